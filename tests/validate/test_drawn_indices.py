"""Random inputs lead to no index out of range: not where the user computes indices, nor after a rewrite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.ir import Fusion, Tensor


def of_part(x: Tensor, i: Tensor) -> Tensor:
    return ig.gather(x[2:5], 0, i)


def flipped(x: Tensor, i: Tensor) -> Tensor:
    return ig.gather(ig.flip(x[3:5], 0), 0, i)


def shifted(x: Tensor, i: Tensor) -> Tensor:
    return ig.gather(x, 0, i + 6)


def halved(x: Tensor, i: Tensor) -> Tensor:
    return ig.gather(x[:3], 0, i - 4)


@pytest.mark.sampled
@pytest.mark.parametrize("make", [of_part, flipped, shifted, halved])
@pytest.mark.parametrize("auto", [False, True])
def test_indices_are_legal(make: Callable[[Tensor, Tensor], Tensor], auto: bool) -> None:
    for seed in range(4):
        f = Fusion("f")
        x, i = f.input("x", (8, 5)), f.input("i", (3, 5), "int64")
        f.output(make(x, i))
        if auto:
            ig.schedule.auto(f)
        assert ig.validate(f, target="numpy", seed=seed).ok


def test_an_index_of_a_scatter_that_is_read_in_part_is_legal() -> None:
    """The scatter becomes a comparison with the coordinate that is read, not with an iota."""
    for seed in range(4):
        f = Fusion("f")
        x, i, at = f.input("x", (2, 1)), f.input("i", (1, 1), "int64"), f.input("at", (1,), "int64")
        f.output(ig.index_select(ig.scatter(x, 0, i, 2.5), 0, at))
        ig.schedule.auto(f)
        assert any("within" in e.attrs for e in f.exprs)
        assert ig.validate(f, target="numpy", seed=seed).ok
