"""Six kernels are printed as they are stored: a change of a pass or a printer shows as a difference to read."""

from __future__ import annotations

import pytest

from tests.golden.kernels import HERE, KERNELS, source


@pytest.mark.parametrize("name", KERNELS)
def test_printed_as_stored(name: str) -> None:
    stored = HERE / f"{name}.txt"
    assert stored.exists(), "store it: python -m tests.golden.kernels"
    assert source(name) == stored.read_text(encoding="utf-8"), "read the difference; python -m tests.golden.kernels"


def test_nothing_else_is_stored() -> None:
    assert {p.name.removesuffix(".txt") for p in HERE.iterdir()} == KERNELS.keys()
