"""How often the automatic schedule looks at a whole fusion: once where all that it wants is legal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.graphs import build_index_graph, common_loops
from idgraph.graphs.index_graph import IndexGraph, Legal, legal_nests
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.schedule import inlining as inline
from idgraph.schedule import legality as legal
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples


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

    def judged(fusion: Fusion, exprs: Sequence[TensorExpr]) -> Legal:
        looks.append(len(exprs))
        return legal_nests(fusion, exprs)

    monkeypatch.setattr(inline, "legal_nests", judged)
    monkeypatch.setattr(legal, "build_index_graph", counted)
    f = _norms(blocks)
    ig.schedule.auto(f)
    sums = [e.output for e in f.exprs if e.is_reduction]
    assert sums and all(t.inline_position for t in sums)
    assert len(looks) == 1
    assert ig.validate(f).ok


@pytest.mark.parametrize(("shape", "order", "depth"), [((8, 1, 4), (2, 1, 0), 0), ((1, 8, 4), (0, 2, 1), 1)])
def test_a_refusal_says_how_deep_a_tensor_may_be_inlined(
    shape: tuple[int, ...], order: tuple[int, ...], depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the first loop that the reader does not share: no position behind that is tried."""
    tried: list[int] = []
    f = ig.Fusion("orders")
    t = ig.exp(f.input("a", shape=shape))  # one of its loops is that of a broadcast: no limit is known before
    u = f.output(f.input("x", shape=(8, 8, 4)) + t)
    u.reorder(order)

    def judged(fusion: Fusion, exprs: Sequence[TensorExpr]) -> Legal:
        tried.append(t.inline_position)
        return legal_nests(fusion, exprs)

    monkeypatch.setattr(inline, "legal_nests", judged)
    ig.schedule.inline_most(f, [t])
    assert t.inline_position == depth
    assert set(tried) == {3, depth} - {0}
    monkeypatch.undo()
    assert ig.validate(f).ok


def _refusal(f: Fusion, t: Tensor, position: int) -> ScheduleError | None:
    t.inline_position = position
    f.touch()
    try:
        build_index_graph(f)
    except ScheduleError as error:
        return error
    return None


@settings(max_examples=examples(60))
@given(scheduled_fusions())
def test_what_is_refused_for_a_loop_is_refused_at_all_positions_behind_it(f: Fusion) -> None:
    for t in f.tensors:
        kept = t.inline_position
        most = min([len(t.loop), *(len(e.output.loop) for e in t.uses)]) if t.uses and t.definition is not None else 0
        found = {p: _refusal(f, t, p) for p in range(most, 0, -1)}
        for p, error in found.items():
            if error is not None and error.loop is not None and error.subject[0] == t.name:
                assert all(found[q] is not None for q in range(error.loop + 1, p))
        t.inline_position = kept
    f.touch()


def test_limits_hold_beside_a_nest_whose_loops_run_over_what_an_operand_lacks() -> None:
    f = ig.Fusion("two nests")
    a, w = f.input("a", shape=(8,)), f.input("w", shape=(4, 8))
    t, v = ig.exp(w), ig.exp(a)
    joined = f.output(v + w)  # one loop over both axes: v has the second only
    joined.merge(0)
    turned = f.output(t * 2.0)
    turned.reorder((1, 0))
    assert common_loops(f, [t, v]) == {t: 0, v: 1}
    assert common_loops(f, [t]) == {t: 0}
    one = f.output(t + v)  # t may come to share loops with such a nest
    one.merge(0)
    assert common_loops(f, [t, v]) == {t: 2, v: 1}
