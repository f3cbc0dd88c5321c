"""Several outputs of one torch function: their axes are the same in every graph, and so are loops made alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import idgraph as ig

Function = Callable[[torch.Tensor], object]
SIBLINGS: dict[str, tuple[Function, int]] = {
    "var_mean": (lambda x: torch.var_mean(x, 1), 1),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), 1),
    "max with indices": (lambda x: torch.max(x, dim=0), 1),
    "cummax with indices": (lambda x: torch.cummax(x, dim=1), 2),
    "unbind": (lambda x: torch.unbind(x, dim=0), 1),
}


def halves(x: torch.Tensor) -> object:
    return torch.split(x, 4, dim=1)


GRAPHS = ("exact", "almost_exact", "broadcast", "permissive", "permissive_resize")


@pytest.mark.parametrize("name", SIBLINGS)
def test_axes_of_siblings_are_the_same_in_every_graph(name: str) -> None:
    function, rank = SIBLINGS[name]
    f = ig.from_torch(function, (torch.randn(3, 8),)).fusion
    first, *others = f.outputs
    assert others and len(first.axes) == rank
    for t in f.outputs:
        t.split(0, 2)
    m = ig.IdModel(f)
    for graph in (getattr(m, g) for g in GRAPHS):
        for t in others:
            assert all(graph.mapped(a, b) for a, b in zip(first.axes, t.axes, strict=True)), graph.name
            mine, theirs = ([d for d in u.loop if d.kind == "iteration"] for u in (first, t))
            assert all(graph.mapped(a, b) for a, b in zip(mine, theirs, strict=True)), graph.name


def test_parts_of_a_split_share_the_axes_that_are_whole() -> None:
    """torch.split along columns: rows are one axis; columns are two, which only permissive resize takes for one."""
    f = ig.from_torch(halves, (torch.randn(6, 8),)).fusion
    left, right = f.outputs
    m = ig.IdModel(f)
    for g in GRAPHS:
        same = [getattr(m, g).mapped(a, b) for a, b in zip(left.axes, right.axes, strict=True)]
        assert same == [True, g == "permissive_resize"], g
