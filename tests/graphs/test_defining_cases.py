"""The two cases that define the project, over sizes and positions."""

from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import Cycle


def rotation(n: int, cut: int) -> tuple[ig.Fusion, list[ig.Tensor]]:
    """``t4 = t0 + cat(t0[cut:], t0[:cut])`` of ``n`` elements, everything on t4's loop."""
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(n,))
    t1, t2 = t0[:cut], t0[cut:]
    t3 = ig.cat([t2, t1], dim=0)
    t4 = f.output(t0 + t3)
    return f, [t0, t1, t2, t3, t4]


def scheduled_rotation(n: int, cut: int) -> tuple[ig.Fusion, list[ig.Tensor]]:
    f, tensors = rotation(n, cut)
    _, t1, t2, t3, _ = tensors
    t1.resize(0, n - cut, 0)
    t2.resize(0, 0, cut)
    for t in (t1, t2, t3):
        t.inline(1)
    return f, tensors


sizes = st.integers(4, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, n - 2)))


@given(sizes)
def test_rotation_makes_shift_cycles_in_the_exact_graph(size: tuple[int, int]) -> None:
    n, cut = size
    f, tensors = scheduled_rotation(n, cut)
    cycles: tuple[Cycle[ig.IterDomain], ...] = ig.IdModel(f).exact.cycles()
    assert [c.kind for c in cycles] == ["shift", "shift"]
    # once around adds what cat puts in front less what the slice cut off
    assert {int(c.shift) for c in cycles if c.shift is not None} == {n - cut, -cut}
    for c in cycles:
        assert c.closing is tensors[4].definition
        assert tensors[4].source_line in c.lines
        assert {"slice", "cat"} <= {t.definition.op for t in c.tensors if t.definition}


@given(sizes)
def test_rotation_reads_through_the_slices_and_the_residual(size: tuple[int, int]) -> None:
    n, cut = size
    f, (t0, t1, t2, _, t4) = scheduled_rotation(n, cut)
    m = ig.IdModel(f)
    assert t1.definition and t2.definition and t4.definition
    low, high, residual = (m.access(t.definition, t0) for t in (t1, t2, t4) if t.definition)
    for i in range(n):
        at = {"i0": i}
        assert high.predicate.evaluate(at) == (i < n - cut)
        assert low.predicate.evaluate(at) == (i >= n - cut)
        assert high.coordinates[0].evaluate(at) == i + cut
        assert low.coordinates[0].evaluate(at) == i - (n - cut)
        assert residual.coordinates[0].evaluate(at) == i and residual.predicate.evaluate(at)


@given(sizes)
def test_rotation_leaves_no_changing_cycle_in_the_index_graph(size: tuple[int, int]) -> None:
    f, _ = scheduled_rotation(*size)
    m = ig.IdModel(f)
    assert not [c for c in m.index.cycles() if c.changes_index]
    m.verify()


@given(sizes, st.integers(1, 9))
def test_like_and_inline_most_find_the_same_schedule(size: tuple[int, int], factor: int) -> None:
    f, (_, t1, t2, t3, t4) = rotation(*size)
    t4.split(0, factor)
    ig.schedule.like(f, t4)
    ig.schedule.inline_most(f)
    assert [t.inline_position for t in (t1, t2, t3)] == [2, 2, 2]
    m = ig.IdModel(f)
    m.verify()
    assert all(m.loop.mapped(t.loop[0], t4.loop[0]) for t in (t1, t2, t3))


@given(st.integers(2, 50), st.integers(2, 50))
def test_broadcast_inlined_into_an_add(rows: int, columns: int) -> None:
    f = ig.Fusion("broadcast")
    big, small = f.input("T0", shape=(1, columns)), f.input("T1", shape=(rows, columns))
    t2 = ig.set(big, name="T2")
    t3 = f.output(ig.add(t2, small, name="T3"))
    t2.inline(1)
    copy, add = t2.definition, t3.definition
    assert copy and add
    b0, i0 = big.logical
    b1, i1 = t2.logical
    i2, i3 = t3.logical
    i4, i5 = small.logical
    m = ig.IdModel(f)
    assert {frozenset(g) for g in m.index.groups} == {
        frozenset({(b0, copy), (b1, copy), (b1, add)}),
        frozenset({(i0, copy), (i1, copy)}),
        frozenset({(i1, add), (i5, add), (i3, add)}),
        frozenset({(i2, add), (i4, add)}),
    }
    assert not m.index.mapped((i1, copy), (i1, add))
    assert m.promotion(b1) is i2
    assert [str(x.extent) for x in m.loops(copy)] == [str(rows), str(columns)]
    assert [str(c) for c in m.access(add, t2).coordinates] == ["0", "i1"]
    chain = m.index.explain((b0, copy), (b1, add))
    assert len(chain) == 2 and "inlined" in str(chain)


def test_every_pair_of_the_rotation_is_explained() -> None:
    f, (t0, t1, _, t3, t4) = scheduled_rotation(64, 32)
    g = ig.IdModel(f).exact
    text = str(g.explain(t0.logical[0], t3.logical[0]))
    assert "add -> t4 reads axis 0 of t0" in text and "add -> t4 reads axis 0 of t3" in text
    apart = g.explain(t0.logical[0], t1.logical[0])
    assert not apart and "are not the same" in str(apart)
    assert t4.logical[0] in g.group(t0.logical[0])
