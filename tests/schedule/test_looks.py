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


WINDOWS = """fusion windows {
  image = input(shape=(2, 3, 5, 4), dtype="float32")
  x = reshape(image, shape=(2, 3, 5, 2, 2))
  n = iota(n=`3`, start=0, step=1, dtype="int64")
  row = reshape(n, shape=(3, 1))
  scaled = mul(row, 5)
  first = floor_divide(scaled, 3)
  more = mul(row, 5)
  past = add(more, 7)
  behind = floor_divide(past, 3)
  m = iota(n=`3`, start=0, step=1, dtype="int64")
  step = reshape(m, shape=(1, 3))
  there = add(first, step)
  last = sub(behind, 1)
  at = minimum(there, last)
  lengths = sub(behind, first)
  flat = reshape(at, shape=(9,))
  picked = index_select(x, flat, dim=2)
  wide = reshape(picked, shape=(2, 3, 3, 3, 2, 2))
  top = amax(wide, dims=(3, 5), keepdim=true)
  y = squeeze(top, dims=(3, 5))
  output y
}"""  # the largest element of each window of a picture, as torch's adaptive pools read them


def test_tensors_in_the_way_of_one_that_is_settled_are_tried_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round finds many in the way of one; copies make way for it, and in the next round for all of them at once."""
    looks: list[int] = []

    def judged(fusion: Fusion, exprs: Sequence[TensorExpr]) -> Legal:
        looks.append(len(exprs))
        return legal_nests(fusion, exprs)

    monkeypatch.setattr(inline, "legal_nests", judged)
    f = ig.parse(WINDOWS)
    ig.schedule.auto(f, device="cpu")
    assert len(ig.emit(f, target="cpu").kernels) == 1 and ig.validate(f).ok
    assert 5 * len(looks) < 7 * sum(t.inline_position > 0 for t in f.tensors)  # rows of four loops


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
