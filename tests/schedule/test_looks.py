"""How often the automatic schedule looks at a whole fusion: once where all that it wants is legal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import idgraph as ig
from idgraph.graphs import build_index_graph
from idgraph.graphs.index_graph import IndexGraph, Legal, legal_nests
from idgraph.ir import Fusion, TensorExpr
from idgraph.schedule import inlining as inline
from idgraph.schedule import legality as legal


def _norms(blocks: int) -> Fusion:
    f = ig.Fusion("norms")
    t = f.input("x", shape=(16, 32))
    for _ in range(blocks):
        t = t + ig.exp(t * ig.sum(t * t, 1, keepdim=True)) * 0.5
    f.output(t)
    return f


@pytest.mark.parametrize("blocks", [1, 3])
def test_rows_and_what_is_inlined_beside_them_are_judged_by_one_graph(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(fusion: Fusion, exprs: tuple[TensorExpr, ...] | None = None) -> IndexGraph:
        looks.append(len(fusion.exprs if exprs is None else exprs))
        return build_index_graph(fusion, exprs)

    def judged(fusion: Fusion, exprs: Sequence[TensorExpr], *, ordered: bool) -> Legal:
        looks.append(len(exprs))
        return legal_nests(fusion, exprs, ordered=ordered)

    monkeypatch.setattr(inline, "legal_nests", judged)
    monkeypatch.setattr(legal, "build_index_graph", counted)
    f = _norms(blocks)
    ig.schedule.auto(f)
    sums = [e.output for e in f.exprs if e.is_reduction]
    assert sums and all(t.inline_position for t in sums)
    assert len(looks) == 1
    assert ig.validate(f).ok
