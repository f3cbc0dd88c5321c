"""Reductions of a few columns that a cat or a pad puts together: one kernel, and the values of the reductions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.validate import random_inputs


def pixels(dtype: str, join: Callable[[ig.Tensor, ig.Tensor], ig.Tensor], keepdim: bool = False) -> ig.Fusion:
    """The largest of three channels, which lie innermost, and the spread of them."""
    f = ig.Fusion("pixels")
    x = ig.cast(ig.permute(f.input("x", (2, 6, 8, 3), dtype=dtype), (0, 3, 1, 2)), "float32") / 255.0
    high, low, mean = (r(x, (1,), keepdim) for r in (ig.amax, ig.amin, ig.sum))
    f.output(join(high, (high - low) / (mean + 1.0)))
    return f


def differ(f: ig.Fusion) -> bool:
    """Whether a schedule changes the values."""
    inputs = random_inputs(f, 1)
    wanted = ig.emit(f, target="python").run(inputs)
    ig.schedule.auto(f)
    found = ig.emit(f, target="numpy").run(inputs)
    return not all(np.allclose(found[t.name], wanted[t.name], 1e-6) for t in f.outputs)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_cat_of_rows_is_one_kernel(dtype: str, keepdim: bool) -> None:
    f = pixels(dtype, lambda a, b: ig.cat([a, b], 1), keepdim)
    assert not differ(f)
    assert len(ig.emit(f, "cuda").kernels) == 1


def test_what_is_written_as_it_is_stays_a_reduction() -> None:
    f = pixels("uint8", lambda a, b: a + b)
    assert not differ(f)
    assert {"amax", "amin", "sum"} <= {e.op for e in f.exprs}
    f = pixels("uint8", lambda a, b: ig.pad(a + b, (1, 1)))
    assert not differ(f)
    assert not {"amax", "amin", "sum"} & {e.op for e in f.exprs}
