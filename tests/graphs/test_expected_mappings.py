"""Which axes other compilers say are (not) one, and what gives loops their extents: nvFuser's facts, rebuilt here.

Each case is a fusion, scheduled, and what its graphs must say of pairs of axes. Where nvFuser refuses ("invalid loop
promotion", "indexing path not found") it must work here; addresses and values are checked against the operations.
"""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir import TensorExpr


def made(t: ig.Tensor) -> TensorExpr:
    assert t.definition is not None
    return t.definition


def computed(f: ig.Fusion) -> list[ig.Tensor]:
    return [t for t in f.tensors if t.definition is not None]


def valid(f: ig.Fusion, **symbols: int) -> None:
    """Addresses and values are those of the operations' definitions."""
    report = ig.validate(f, target="python", symbols=symbols or None)
    assert report.ok, str(report)


def extents(f: ig.Fusion) -> dict[str, str]:
    m = ig.IdModel(f)
    return {t.name: " ".join(str(x.extent) for x in m.loops(made(t))) for t in computed(f)}


def one_nest(f: ig.Fusion, *tensors: ig.Tensor, position: int) -> None:
    """The first loops of the tensors are one loop each."""
    m = ig.IdModel(f)
    for j in range(position):
        assert len({m.loop.group(t.loop[j]) for t in tensors}) == 1, j


def reshapes_of_twelve() -> ig.Fusion:
    """12 as [3, 4], [3, 2, 2], [6, 2] and back, and as [4, 3] and back; both added."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("t0", (12,)), name="t1")
    t4 = ig.reshape(ig.reshape(ig.reshape(t1, 3, 4, name="t2"), 3, 2, 2, name="t3"), 6, 2, name="t4")
    t6 = ig.reshape(ig.copy(t4, name="t5"), 12, name="t6")
    t8 = ig.reshape(ig.reshape(t1, 4, 3, name="t7"), 12, name="t8")
    f.output(ig.add(t6, t8, name="t9"))
    return f


@pytest.mark.parametrize("reference", ["t6", "t8", "t9"])
def test_many_reshapes_in_the_loop_of_one_of_them(reference: str) -> None:
    """ManyReshape: a flat tensor as reference; every tensor runs in its loops, and what has one reader is inlined."""
    f = reshapes_of_twelve()
    f[reference].split(0, 5)
    ig.schedule.like(f, f[reference])
    ig.schedule.inline_most(f)
    assert set(extents(f).values()) == {"3 5"}
    assert all(t.inline_position == 2 for t in computed(f)[1:-1])
    one_nest(f, *computed(f)[1:], position=2)
    valid(f)


def test_reshape_there_and_back_follows_the_first_tensor() -> None:
    """ReshapeSplitThenMerge: the loops of [10] split by 3, through [2, 5] and back: mapped in exact and loop graph."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("t0", (10,)), name="t1")
    t3 = ig.copy(ig.reshape(t1, 2, 5, name="t2"), name="t3")
    t5 = f.output(ig.copy(ig.reshape(t3, 10, name="t4"), name="t5"))
    t5.split(0, 3)
    ig.schedule.like(f, t5)
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    for t in computed(f):
        assert all(m.almost_exact.mapped(a, b) for a, b in zip(t.loop, t5.loop, strict=True))
        assert all(m.loop.mapped(a, b) for a, b in zip(t.loop, t5.loop, strict=True))
        assert t.inline_position == (0 if t is t5 else 2)
    valid(f)


def test_loops_resized_upstream_of_a_slice() -> None:
    """ScheduleLoopDomainsBy1: what feeds a slice gets its resize, and so its loop."""
    f = ig.Fusion("f")
    t1 = ig.sin(f.input("t0", (100,)), name="t1")
    t2 = ig.cos(t1, name="t2")
    t3 = ig.slice(t2, 0, 1, 99, name="t3")
    f.output(ig.exp(t3, name="t4"))
    ig.schedule.resize_to_inputs(f, made(t3))
    m = ig.IdModel(f)
    assert m.exact.mapped(t1.loop[0], t3.loop[0]) and m.exact.mapped(t2.loop[0], t3.loop[0])
    assert m.exact.mapped(t1.logical[0], t3.root[0]) and not m.exact.mapped(t1.loop[0], t1.logical[0])
    valid(f)


def test_a_merge_of_outermost_and_innermost_keeps_its_place() -> None:
    """ScheduleLoopDomainsBy2: the merge of loops 0 and 2 stands first in the tensor that follows, too."""
    f = ig.Fusion("f")
    n, m_, k = (f.symbol(s, min=1) for s in "nmk")
    t1 = ig.copy(f.input("t0", (n, m_, k)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    t1.merge(0, 2)
    ig.schedule.like(f, t1)
    m = ig.IdModel(f)
    assert len(t2.loop) == 2 and all(m.exact.mapped(a, b) for a, b in zip(t1.loop, t2.loop, strict=True))
    valid(f, n=3, m=4, k=5)


def test_broadcasts_of_the_reference_that_others_lack() -> None:
    """BroadcastRefereceIDs: [1, i, 1] merged and split by 32; i and [1, i] take part in both loops."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("t0", (f.symbol("n", min=1),)), name="t1")
    t2 = ig.unsqueeze(t1, 0, name="t2")
    t3 = f.output(ig.unsqueeze(t2, 2, name="t3"))
    t3.merge(0).merge(0).split(0, 32)
    ig.schedule.like(f, t3)
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    for t in (t1, t2):
        assert t.inline_position == 2
        assert all(m.permissive.mapped(a, b) for a, b in zip(t.loop, t3.loop, strict=True))
        assert all(m.permissive.mapped(m.promotion(a), b) for a, b in zip(t.loop, t3.loop, strict=True))
    one_nest(f, t1, t2, t3, position=2)
    # A merge with 1 is the other axis, also where loops run past its end; no index rests on the almost exact graph.
    assert m.almost_exact.mapped(t1.loop[0], t3.loop[0])
    valid(f, n=45)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_reshape_undone_in_the_loops(cancelled: bool) -> None:
    """CancelReshape1: [i1, i0*i2] looped over (i1, i0, i2), ordered as the input; the sine of it follows."""
    f = ig.Fusion("f")
    t1 = ig.permute(f.input("t0", (16, 32, 2)), 1, 0, 2, name="t1")
    t2 = ig.reshape(t1, 32, 32, name="t2")
    t3 = f.output(ig.sin(t2, name="t3"))
    t3.split(1, 2).reorder({0: 1})
    if cancelled:
        t2.set_loop(t2.root).reorder({0: 1})
    for t in (t1, t2, t3):
        if t is t1:
            t.reorder({0: 1})
        elif t is t2 and not cancelled:
            t.split(1, 2).reorder({0: 1})
        t.merge(0).merge(0).split(0, 128)
    m = ig.IdModel(f)
    for t in (t1, t2):
        assert all(m.almost_exact.mapped(a, b) for a, b in zip(t.loop, t3.loop, strict=True))
        t.inline(2)
    one_nest(f, t1, t2, t3, position=2)
    valid(f)


def test_chained_reshapes_have_one_loop() -> None:
    """CancelReshape2: three reshapes of [10, 11, 12] that share no boundary run in the loops of the last one."""
    f = ig.Fusion("f")
    t1 = ig.reshape(f.input("t0", (10, 11, 12)), 11, 120, name="t1")
    t2 = ig.reshape(t1, 11, 12, 10, name="t2")
    t3 = f.output(ig.reshape(t2, 110, 12, name="t3"))
    t3.merge(0).split(0, 32)
    ig.schedule.like(f, t3)
    ig.schedule.inline_most(f)
    assert set(extents(f).values()) == {"42 32"} and t1.inline_position == t2.inline_position == 2
    valid(f)


def test_two_reshapes_of_one_tensor_are_one() -> None:
    """CancelReshape3: [10, 11] flattened twice and added: the two flat axes are one in the exact graph already."""
    f = ig.Fusion("f")
    t0 = f.input("t0", (10, 11))
    t1, t2 = ig.reshape(t0, 110, name="t1"), ig.reshape(t0, 110, name="t2")
    t3 = f.output(ig.add(t1, t2, name="t3"))
    m = ig.IdModel(f)
    assert m.exact.mapped(t1.logical[0], t2.logical[0]) and m.exact.mapped(t1.logical[0], t3.logical[0])
    assert m.exact.mapped(t1.root[0], t2.root[0]) and not m.exact.is_cyclic


def test_slices_permuted_differently() -> None:
    """PermutedDifferently: kept axes of two slices of one tensor are mapped, cut ones not; cat maps them again."""
    f = ig.Fusion("f")
    x = f.input("x", (2, 2, 5))
    s0, s1 = ig.slice(x, 2, 0, 2, name="s0"), ig.slice(x, 2, 2, 5, name="s1")
    t0, t1 = ig.permute(s0, 1, 0, 2, name="t0"), ig.copy(s1, name="t1")
    f.output(ig.cat([t0, t1], 2, name="out"))
    g = ig.IdModel(f).exact

    def same(a: ig.Tensor, i: int, b: ig.Tensor, j: int) -> bool:
        return g.mapped(a.logical[i], b.logical[j])

    assert same(s0, 0, s1, 0) and same(s0, 1, s1, 1) and not same(s0, 2, s1, 2)
    assert same(t0, 0, t1, 0) and same(t0, 1, t1, 1) and not same(t0, 2, t1, 2)
    assert same(s0, 1, t0, 0) and same(s0, 0, t0, 1) and same(s0, 2, t0, 2)
    assert all(same(s1, j, t1, j) for j in range(3))
    valid(f)


def test_cyclic_graph_of_a_slice_padded_back() -> None:
    """LoopPromotionWithCyclicGraphRoPELike: x + pad(x[16:]); one loop for all four, promoted to the sum's."""
    f = ig.Fusion("f")
    t0 = f.input("t0", (32,))
    t1 = ig.copy(t0, name="t1")
    t2 = ig.slice(t1, 0, 16, 32, name="t2")
    t3 = ig.pad(t2, (0, 16), name="t3")
    t4 = f.output(ig.add(t0, t3, name="t4"))
    ig.schedule.resize_to_inputs(f, made(t2))
    ig.schedule.resize_to_inputs(f, made(t3))
    for t in (t3, t2, t1):
        t.inline(1)
    m = ig.IdModel(f)
    assert m.exact.is_cyclic
    assert all(m.exact.mapped(m.promotion(t.loop[0]), t4.logical[0]) for t in (t1, t2, t3, t4))
    one_nest(f, t1, t2, t3, t4, position=1)
    valid(f)


def test_cyclic_graph_with_an_inlined_broadcast() -> None:
    """LoopPromotionWithCyclicGraphInlinedBroadcast: a column inside a reshape there and back, flattened, split by 3."""
    f = ig.Fusion("f")
    t0 = f.input("t0", (2, 10))
    t2 = ig.copy(f.input("t1", (2,)), name="t2")
    t3 = ig.unsqueeze(t2, 1, name="t3")
    t4 = ig.add(t0, t3, name="t4")
    t6 = ig.reshape(ig.reshape(t4, 20, name="t5"), 2, 10, name="t6")
    t7 = f.output(ig.add(t0, t6, name="t7"))
    t7.merge(0).split(0, 3)
    ig.schedule.like(f, t7)
    for t in reversed(computed(f)[:-1]):
        t.inline(1)
    assert {e.split()[0] for e in extents(f).values()} == {"7"}
    one_nest(f, *computed(f), position=1)
    m = ig.IdModel(f)
    own = [d for t in computed(f) if (d := m.promotion(t.loop[0])).tensor is not None]
    assert own and all(m.almost_exact.mapped(d, t7.loop[0]) for d in own)
    valid(f)


def test_a_broadcast_resolved_nowhere_promotes_nothing() -> None:
    """LoopPromotionCyclicGraphWar: the sine of [1, i], flattened and split by 4; every loop is the sine's."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("t0", (f.symbol("n", min=1),)), name="t1")
    t2 = ig.unsqueeze(t1, 0, name="t2")
    t3 = f.output(ig.sin(t2, name="t3"))
    t3.merge(0).split(0, 4)
    ig.schedule.like(f, t3)
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    for t in (t1, t2, t3):
        for j in range(2):
            assert m.permissive.mapped(m.promotion(t.loop[j]), t3.loop[j])
    valid(f, n=9)


def test_only_shared_loops_are_one() -> None:
    """BroadcastOnlyNoLoopPromotion: [n, 1] split by one outside, two loops shared: the third is its own."""
    f = ig.Fusion("f")
    n, k = f.symbol("n", min=1), f.symbol("k", min=1)
    t2 = ig.copy(f.input("t0", (n, 1)), name="t2")
    t3 = f.output(ig.add(t2, f.input("t1", (n, k)), name="t3"))
    for t in (t2, t3):
        t.split(1, 1, inner=False).reorder({0: 1})
    t2.inline(2)
    m = ig.IdModel(f)
    one_nest(f, t2, t3, position=2)
    assert not m.loop.mapped(t2.loop[2], t3.loop[2])
    valid(f, n=3, k=4)


def test_merged_parts_of_a_broadcast_promoted_to_the_same_loop_group() -> None:
    """LoopPromotionPromoteToSameLoopGroup: the parts of both axes merged crosswise; the shared loop is the sum's, the
    broadcast's own inner loop a replay of it."""
    f = ig.Fusion("f")
    n, k = f.symbol("n", min=1), f.symbol("k", min=1)
    t2 = ig.unsqueeze(f.input("t0", (k,)), 0, name="t2")
    t3 = ig.add(t2, f.input("t1", (n, k)), name="t3")
    t4 = f.output(ig.copy(t3, name="t4"))
    t4.split(1, 2).split(0, 8).merge(0, 2).merge(1, 2)
    ig.schedule.like(f, t4)
    t2.inline(1)
    t3.inline(1)
    m = ig.IdModel(f)
    one_nest(f, t2, t3, t4, position=1)
    assert m.promotion(t3.loop[1]) is t3.loop[1] and m.promotion(t2.loop[1]).tensor is None
    assert len(set(extents(f).values())) == 1
    valid(f, n=13, k=7)


def test_a_broadcast_added_inside_a_partly_shared_nest() -> None:
    """LoopPromotion8: [5] to [1, 5] to [3, 5] to [3, 5, 1] to [3, 5, 7], inlined at one loop, then at two."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("t0", (5,)), name="t1")
    t2 = ig.unsqueeze(t1, 0, name="t2")
    t4 = ig.add(f.input("t3", (3, 5)), t2, name="t4")
    t5 = ig.unsqueeze(t4, 2, name="t5")
    t7 = f.output(ig.add(t5, f.input("t6", (3, 5, 7)), name="t7"))
    t4.merge(0).split(0, 2, inner=False)
    ig.schedule.like(f, t4)
    for t in (t1, t2, t4):
        t.inline(1)
    for t in (t5, t7):
        t.merge(1).split(1, 4, inner=False)
    t5.inline(2)
    assert extents(f) == {"t1": "2 8", "t2": "2 8", "t4": "2 8", "t5": "2 4 14", "t7": "2 4 14"}
    one_nest(f, t1, t2, t4, t5, t7, position=1)
    m = ig.IdModel(f)
    assert m.loop.mapped(t5.loop[1], t7.loop[1]) and not m.loop.mapped(t5.loop[2], t7.loop[2])
    assert m.promotion(t2.loop[1]).tensor is None and m.promotion(t4.loop[1]) is t4.loop[1]
    valid(f)


def test_an_invalid_promotion_elsewhere() -> None:
    """Issue 3702 (InvalidLoopPromotion): tables of RoPE expanded to 2 and to the heads, all in one fusion."""
    f = ig.Fusion("f")
    table = ig.transpose(f.input("T0", (1, 8, 6)), 1, 2)
    wide = ig.reshape(ig.expand(ig.unsqueeze(table, 2), 1, 6, 2, 8), 1, 6, 16, name="wide")
    sine, cosine = (ig.unsqueeze(g(wide), 1) for g in (ig.sin, ig.cos))
    q = ig.transpose(ig.reshape(f.input("T32", (1, 6, 64)), 1, 6, 4, 16), 1, 2, name="q")
    f.output(ig.expand(sine, 1, 4, 6, 16), ig.expand(cosine, 1, 2, 6, 16), q)
    f.output(ig.mul(q, ig.expand(cosine, 1, 4, 6, 16), name="product"))
    valid(f)
    ig.schedule.like(f, f["product"])
    ig.schedule.inline_most(f)
    valid(f)
    ig.schedule.auto(f)
    valid(f)


def test_loops_of_a_scatter_are_those_of_its_index() -> None:
    """ScatterLoopMapping: the loops are index and source, also after equal splits; never the tensor that is updated."""
    f = ig.Fusion("f")
    n, k = f.symbol("n", min=1), f.symbol("k", min=1)
    x, index = ig.copy(f.input("a", (n,)), name="x"), ig.copy(f.input("b", (k,), "int64"), name="index")
    source = ig.copy(f.input("c", (k,)), name="source")
    t = f.output(ig.scatter(x, 0, index, source, name="t"))
    start = t.loop[0]
    m = ig.IdModel(f)
    assert not m.exact.mapped(start, x.logical[0])
    assert m.exact.mapped(start, index.logical[0]) and m.exact.mapped(start, source.logical[0])
    index.split(0, 4)
    t.split(0, 4)
    assert all(m.exact.mapped(a, b) for a, b in zip(t.loop, index.loop, strict=True))


def test_swizzled_loops_are_not_the_axes_they_are_made_of() -> None:
    """Swizzle nodes: equal swizzles of mapped axes are mapped; a swizzle is mapped with neither of its inputs."""
    f = ig.Fusion("f")
    t1 = ig.copy(f.input("x", (4, 8)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    for t in (t1, t2):
        t.swizzle("xor", 0, 1)
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact, m.permissive):
        assert all(g.mapped(a, b) for a, b in zip(t1.loop, t2.loop, strict=True))
        assert not any(g.mapped(a, b) for a, b in zip(t1.loop, t1.logical, strict=True))
    t1.inline(2)
    valid(f)
