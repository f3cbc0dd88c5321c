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
    assert 5 * len(looks) < 3 * sum(t.inline_position > 0 for t in f.tensors)
