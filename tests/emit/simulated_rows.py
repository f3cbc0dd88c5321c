"""Rows of loaded length in numba's simulator: a block has one row, its threads the elements (run by a test)."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from tests.emit.test_ragged import built, check


def main() -> None:
    """Values, and offsets that are refused."""
    for name in ("softmax", "scaled", "sum"):
        f = built(name)
        ig.schedule.auto(f, device="H200")
        p = ig.emit(f, target="cuda")
        check(name, p)
        with pytest.raises(ig.IndexingError, match="off holds 3 where a row ends"):
            p.run({"x": np.zeros(9, np.float32), "off": np.array([0, 5, 3, 9]), "s": np.ones(3, np.float32)})


if __name__ == "__main__":
    main()
