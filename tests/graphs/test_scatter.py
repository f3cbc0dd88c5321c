"""Scatters in the graphs: the indexed axis is its own, the others are the index's and the operand's."""

from __future__ import annotations

import dataclasses

import pytest

import idgraph as ig
from idgraph.index import Access
from idgraph.ir import TensorExpr
from idgraph.validate import check_addresses


def fusion(smaller: bool = False) -> tuple[ig.Fusion, ig.Tensor, ig.Tensor, ig.Tensor, ig.Tensor]:
    f = ig.Fusion("f")
    rows = 3 if smaller else 4
    x, i, s = f.input("x", (4, 9)), f.input("i", (rows, 5), "int64"), f.input("s", (rows, 5))
    return f, x, i, s, f.output(ig.scatter_add(x, 1, i, s))


def test_kinds_and_axes() -> None:
    _, _, _, _, t = fusion()
    assert [d.kind for d in t.logical] == ["iteration", "gather_scatter"]
    assert t.loop == t.root
    assert [str(d.extent) for d in t.loop] == ["4", "5"]


def test_exact_graph() -> None:
    f, x, i, s, t = fusion()
    g = ig.IdModel(f).exact
    rows = [u.logical[0] for u in (x, i, s, t)]
    assert all(g.mapped(rows[0], d) for d in rows)
    assert g.mapped(i.logical[1], s.logical[1])
    assert len(g.group(t.logical[1])) == 1  # written at loaded coordinates: mapped with no other axis
    assert len(g.group(x.logical[1])) == 1


def test_a_smaller_index_covers_the_front() -> None:
    f, x, i, _, t = fusion(smaller=True)
    m = ig.IdModel(f)
    assert m.exact.mapped(x.logical[0], t.logical[0])
    assert not m.exact.mapped(i.logical[0], t.logical[0])
    assert m.permissive_resize.mapped(i.logical[0], t.logical[0])


def test_index_map() -> None:
    f, x, i, _, t = fusion()
    m = ig.IdModel(f)
    e = t.definition
    assert e is not None
    a = m.access(e, t)
    assert [str(c) for c in a.coordinates] == ["i0", "ld1"]
    assert {n: (u.name, list(map(str, at))) for n, (u, at) in a.coordinates[1].loads.items()} == {
        "ld1": ("i", ["i0", "i1"])
    }
    assert [str(c) for c in a.load_bounds] == ["ld1 >= 0", "ld1 < 9"]
    assert str(a.address) == "i0*9 + ld1"
    assert str(a.predicate) == "True"
    assert str(m.access(e, x).address) == str(a.address)
    assert str(m.access(e, i).address) == "i0*5 + i1"


def test_loops_run_over_the_index() -> None:
    f, _, _, _, t = fusion()
    with pytest.raises(ig.ScheduleError, match="is written at loaded indices, no loop runs over it"):
        t.set_loop(t.logical)
    t.merge(0).split(0, 7)
    assert check_addresses(f).ok
    t.resize(0, -1, 0)
    with pytest.raises(ig.ScheduleError, match="computes a part of it only"):
        ig.IdModel(f).verify()


class Mutant(ig.IdModel):
    """A model whose scatter writes somewhere else."""

    def __init__(self, f: ig.Fusion, fault: str) -> None:
        super().__init__(f)
        self.fault = fault

    def write(self, e: TensorExpr) -> Access:
        a = super().write(e)
        if e.op != "scatter_add":
            return a
        if self.fault == "address":
            return dataclasses.replace(a, address=a.address + 1)
        if self.fault == "row":
            return dataclasses.replace(a, logical=((a.logical[0] + 1) % 4, a.logical[1]))
        return dataclasses.replace(a, conditions=(a.loops[0].symbol < 3,))


@pytest.mark.parametrize("fault", ["address", "row", "predicate"])
def test_a_planted_fault_is_found(fault: str) -> None:
    f, *_ = fusion()
    assert check_addresses(f).ok
    assert not check_addresses(f, model=Mutant(f, fault)).ok


def test_a_scatter_is_not_repeated_in_a_loop_that_another_reader_widens() -> None:
    """The one element it adds would be added at each of the two steps of the other reader's loop."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("x", (1,)), name="t")
    index, big = f.input("i", (1,), dtype="int64"), f.input("big", (3,))
    added = f.output(ig.scatter_add(big, 0, index, t, name="added"))
    wide = f.output(ig.add(ig.neg(t, name="u"), f.input("y", (2,)), name="wide"))
    f["u"].inline(1)
    t.inline(1)
    with pytest.raises(ig.ScheduleError, match=r"t is inlined at 1 into the scatter .* the 2 of wide"):
        ig.IdModel(f).verify()
    t.inline(0)
    assert check_addresses(f).ok and added.shape == (3,) and wide.shape == (2,)


@pytest.mark.parametrize("memory", ["local", "shared"])
def test_a_scatter_in_memory_that_ends_with_the_kernel_is_refused(memory: str) -> None:
    """Its loops run over the index, so they say nothing about the place of an element that a reader asks for."""
    f = ig.Fusion("f")
    x, i, s = f.input("x", (4, 6)), f.input("i", (4, 2), "int64"), f.input("s", (4, 2))
    t = ig.scatter(x, 1, i, s, name="t").set_memory(memory)
    f.output(ig.add(t, 1.0))
    with pytest.raises(ig.ScheduleError, match=f"t asks for {memory} memory, but it must be whole in memory"):
        ig.IdModel(f).verify()
