"""Loop graph and promotion: which loops are one, what gives them their extents, and what is refused and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.ir import TensorExpr


def valid(f: ig.Fusion) -> None:
    """Addresses and values are those of the operations' definitions."""
    report = ig.validate(f, target="python")
    assert report.ok, str(report)


def defined(t: ig.Tensor) -> TensorExpr:
    assert t.definition is not None
    return t.definition


def extents(f: ig.Fusion, t: ig.Tensor) -> list[str]:
    return [str(x.extent) for x in ig.IdModel(f).loops(defined(t))]


def row_added() -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    """t[1, 6] is added to every row of a [4, 6]."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("row", shape=(1, 6)), name="t")
    return f, t, f.output(ig.add(t, f.input("a", shape=(4, 6)), name="u"))


@pytest.mark.parametrize("position", [0, 1, 2])
def test_inlining_at_any_legal_position(position: int) -> None:
    """Loops left of the position are one, and the broadcast's takes the consumer's extent."""
    f, t, u = row_added()
    t.inline(position)
    m = ig.IdModel(f)
    assert [m.loop.mapped(t.loop[j], u.loop[j]) for j in range(2)] == [j < position for j in range(2)]
    assert extents(f, t) == (["4", "6"] if position else ["1", "6"])
    assert (m.promotion(t.loop[0]) is u.loop[0]) == (position > 0)
    assert [str(c) for c in m.access(defined(u), t).coordinates] == ["0", "i1"]
    valid(f)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_partially_inlined_merge_and_split(position: int) -> None:
    """split(merge(b, I)) into split(merge(J, I)): the outer loop is promoted to a replay that belongs to no tensor."""
    f, t, u = row_added()
    for x in (t, u):
        x.merge(0).split(0, 5)
    t.inline(position)
    m = ig.IdModel(f)
    assert extents(f, u) == ["5", "5"]
    assert extents(f, t) == (["5", "5"] if position else ["2", "5"])
    promoted = m.promotion(t.loop[0])
    if position == 0:
        assert promoted is t.loop[0]
    else:
        assert promoted is u.loop[0]
    if position == 1:
        inner = m.promotion(t.loop[1])
        assert inner.tensor is None and str(inner.extent) == "5"  # t's own inner loop: a fresh replay
        assert not m.index.mapped((t.loop[0], defined(t)), (t.loop[0], defined(u)))
    valid(f)


def test_merge_alone_inlined() -> None:
    f, t, u = row_added()
    for x in (t, u):
        x.merge(0)
    t.inline(1)
    assert extents(f, t) == ["24"]
    assert ig.IdModel(f).promotion(t.loop[0]) is u.loop[0]
    valid(f)


def test_progressive_broadcasts() -> None:
    """b -> merge(b, I), inlined through two consumers, each of which makes one more axis concrete."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 1, 5)), name="t")
    u = ig.add(t, f.input("y", shape=(1, 3, 5)), name="u")
    v = f.output(ig.add(u, f.input("z", shape=(2, 3, 5)), name="v"))
    for x in (t, u, v):
        x.merge(0).merge(0)
    t.inline(1)
    u.inline(1)
    m = ig.IdModel(f)
    assert extents(f, t) == extents(f, u) == extents(f, v) == ["30"]
    assert m.promotion(t.loop[0]) is v.loop[0] and m.promotion(u.loop[0]) is v.loop[0]
    assert m.loop.mapped(t.loop[0], v.loop[0])
    assert {str(c) for c in m.access(defined(u), t).coordinates} == {"0", "i0%5"}
    valid(f)


def test_progressive_broadcasts_split_and_partly_inlined() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 1, 5)), name="t")
    u = ig.add(t, f.input("y", shape=(1, 3, 5)), name="u")
    v = f.output(ig.add(u, f.input("z", shape=(2, 3, 5)), name="v"))
    for x in (t, u, v):
        x.merge(0).merge(0).split(0, 4)
    t.inline(2)
    u.inline(1)
    m = ig.IdModel(f)
    assert extents(f, t) == extents(f, u) == ["8", "4"]
    assert m.promotion(u.loop[1]).tensor is None
    valid(f)


def test_one_broadcast_resolved_into_two_extents_is_refused() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 8)), name="t")
    rows = [f.output(ig.add(t, f.input(f"y{n}", shape=(n, 8)), name=f"u{n}")) for n in (3, 5)]
    for x in (t, *rows):
        x.merge(0)
    t.inline(1)
    with pytest.raises(ig.ScheduleError) as caught:
        ig.IdModel(f).verify()
    text = str(caught.value)
    assert "inlined into two extents" in text and "u3" in text and "u5" in text and "recompute" in text
    t.inline(0)
    valid(f)
    copy = ig.schedule.recompute(t, defined(rows[1]))
    copy.merge(0)
    for x in (t, copy):
        x.inline(1)
    assert (extents(f, t), extents(f, copy)) == (["24"], ["40"])
    valid(f)


def test_one_broadcast_read_alike_by_two_consumers() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 8)), name="t")
    rows = [f.output(ig.add(t, f.input(f"y{n}", shape=(3, 8)), name=f"u{n}")) for n in range(2)]
    for x in (t, *rows):
        x.merge(0)
    t.inline(1)
    assert extents(f, t) == ["24"]
    valid(f)


def rope(shape: tuple[int, int] = (3, 8)) -> tuple[ig.Fusion, list[ig.Tensor], ig.Tensor]:
    """x * cos + rotated(x) * sin, with cos and sin rows broadcast inside of the cycle."""
    f = ig.Fusion("rope")
    x, cos, sin = f.input("x", shape=shape), f.input("cos", shape=(1, shape[1])), f.input("sin", shape=(1, shape[1]))
    half = shape[1] // 2
    low, high = ig.slice(x, 1, 0, half, name="low"), ig.slice(x, 1, half, shape[1], name="high")
    turned = ig.cat([ig.neg(high, name="minus"), low], 1, name="turned")
    c, s = ig.copy(cos, name="c"), ig.copy(sin, name="s")
    out = f.output(ig.add(ig.mul(x, c, name="xc"), ig.mul(turned, s, name="ts"), name="out"))
    return f, [f[n] for n in ("low", "high", "minus", "turned", "c", "s", "xc", "ts")], out


def test_rope_with_an_inlined_broadcast_inside_the_cycle() -> None:
    f, tensors, out = rope()
    out.merge(0).split(0, 4)
    ig.schedule.like(f, out)
    ig.schedule.inline_most(f)
    m = ig.IdModel(f)
    m.verify()
    assert {c.kind for c in m.exact.cycles()} == {"shift"}
    assert {t.name for t in tensors if t.inline_position == 2} == {t.name for t in tensors}
    assert extents(f, f["c"]) == extents(f, out) == ["6", "4"]
    assert all(c.kind == "identity" for c in m.index.cycles())
    valid(f)


@pytest.mark.parametrize("position", [1, 2])
def test_reshape_there_and_back_on_one_nest(position: int) -> None:
    """The exact graph is cyclic (identity), and every tensor of the cycle is inlined."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    flat = ig.reshape(ig.exp(x, name="e"), 24, name="flat")
    back = ig.reshape(flat, 4, 6, name="back")
    out = f.output(ig.add(ig.mul(back, f.input("b", shape=(1, 6)), name="m"), x, name="out"))
    out.split(1, 3)
    ig.schedule.like(f, out)
    for name in ("e", "flat", "back", "m"):
        f[name].inline(position)
    m = ig.IdModel(f)
    m.verify()
    assert m.exact.is_cyclic or m.almost_exact.is_cyclic
    assert {c.kind for c in (*m.exact.cycles(), *m.almost_exact.cycles())} == {"identity"}
    assert m.loop.mapped(f["e"].loop[0], out.loop[0])
    valid(f)


def test_loops_upstream_of_logical() -> None:
    """A reshape that loops over the axes its producer has, so the producer is inlined."""
    f = ig.Fusion("f")
    e = ig.exp(f.input("x", shape=(4, 6)), name="e")
    flat = f.output(ig.reshape(e, 24, name="flat"))
    flat.set_loop(flat.root)
    e.inline(2)
    m = ig.IdModel(f)
    assert m.loop.mapped(e.loop[1], flat.loop[1])
    assert [str(c) for c in m.access(defined(flat), flat).coordinates] == ["i0*6 + i1"]
    valid(f)


def test_loops_upstream_of_logical_with_a_promoted_loop() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 6)), name="t")
    wide = ig.add(t, f.input("y", shape=(4, 6)), name="wide")
    flat = f.output(ig.reshape(wide, 24, name="flat"))
    flat.set_loop(flat.root)
    t.inline(1)
    wide.inline(2)
    assert extents(f, t) == ["4", "6"]
    valid(f)


def test_two_broadcasts_merged_with_each_other_first() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(1, 1, 4)), name="t")
    u = f.output(ig.add(t, f.input("y", shape=(2, 3, 4)), name="u"))
    for x in (t, u):
        x.merge(0).split(0, 4)
    t.inline(2)
    assert extents(f, t) == ["2", "4", "4"]
    valid(f)


def test_a_loop_not_shared_is_refused_with_the_reason() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 6)), name="t")
    u = f.output(ig.add(t, 1.0, name="u"))
    u.merge(0).split(0, 5)
    t.inline(1)
    with pytest.raises(ig.ScheduleError) as caught:
        ig.IdModel(f).verify()
    assert "t is inlined at 1" in str(caught.value) and "ig.schedule.like" in str(caught.value)


def test_one_value_needed_at_two_coordinates_is_refused_with_the_way_out() -> None:
    g = ig.Fusion("g")
    e = ig.exp(g.input("x", shape=(8,)), name="e")
    part = ig.slice(e, 0, 2, 8, name="part")
    g.output(ig.add(ig.pad(part, (0, 2), name="p"), e, name="o"))
    ig.schedule.like(g, g["o"])
    for name in ("e", "part", "p"):
        g[name].inline(1)
    with pytest.raises(ig.ScheduleError) as caught:
        ig.IdModel(g).verify()
    assert "recompute" in str(caught.value) and "e is inlined" in str(caught.value)


@pytest.mark.parametrize("position", [1, 2, 3])
@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_broadcast_that_is_summed_in_wider_loops(position: int, factor: int) -> None:
    """An axis of one element, reduced: its loop is the reduction's, also where that is split wider than it is."""
    f = ig.Fusion("f")
    e = ig.exp(f.input("x", shape=(4, 1)), name="e")
    s = f.output(ig.sum(e, 1, name="s"))
    for t in (e, s):
        t.split(1, factor)
    e.inline(position)
    m = ig.IdModel(f)
    assert [m.loop.mapped(e.loop[j], s.loop[j]) for j in range(3)] == [j < position for j in range(3)]
    assert extents(f, e) == ["4", "1", str(factor)]
    valid(f)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_a_broadcast_that_is_summed_by_like_and_inline_most(factor: int) -> None:
    f = ig.Fusion("f")
    e = ig.exp(f.input("x", shape=(4, 1)), name="e")
    s = f.output(ig.sum(e, 1, name="s"))
    s.split(1, factor)
    ig.schedule.like(f, s)
    ig.schedule.inline_most(f)
    valid(f)


def test_a_reader_outside_of_a_promoted_nest_reads_the_first_of_equal_slots() -> None:
    """t is inlined into u[5, 1] and v[5, 4], so u's nest runs 20 steps; w reads u from outside of it."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("x", shape=(5, 1)), name="t")
    u = ig.copy(t, name="u")
    v = f.output(ig.add(t, f.input("y", shape=(5, 4)), name="v"))
    w = f.output(ig.pad(u, (0, 0, -2, 0), name="w"))
    for x in (t, u, v):
        x.merge(0)
    t.inline(1)
    assert extents(f, t) == extents(f, u) == extents(f, v) == ["20"]
    assert [str(c) for c in ig.IdModel(f).access(defined(w), u).coordinates] == ["i0 + 2", "0"]
    valid(f)


@pytest.mark.parametrize("reduce", [ig.sum, ig.amax])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_reduction_is_not_repeated_in_a_loop_that_another_reader_widens(
    reduce: Callable[..., ig.Tensor], dim: int
) -> None:
    """w runs 12 steps over merge(3, 4), and t with it: a sum over the 4 in the same loop would take terms thrice."""
    f = ig.Fusion("f")
    t = ig.neg(f.input("x", shape=(2, 4)), name="t")
    w = ig.expand(ig.unsqueeze(t, 0, name="v"), (3, 2, 4), name="w")
    s = reduce(t, dim, name="s")
    f.output(w, s)
    w.merge(0, 2)
    ig.schedule.like(f, w)
    f["v"].inline(2)
    t.inline(1)
    if dim == 0:  # a kept loop may run more often
        assert extents(f, s) == ["12", "2"]
        return valid(f)
    with pytest.raises(ig.ScheduleError, match="whose reduced loop of 4 would run 12 steps"):
        ig.IdModel(f).verify()
    ig.schedule.inline_most(f)
    valid(f)
    return None
