"""Why two uses are not the same: the first place where they part, by name and line."""

from __future__ import annotations

import idgraph as ig


def test_a_slice_and_its_source() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    low, high = ig.slice(x, 0, 0, 4, name="low"), ig.slice(x, 0, 4, 8, name="high")
    f.output(low + high)
    g = ig.IdModel(f).exact
    why = str(g.explain(x.logical[0], low.logical[0]))
    assert "is made of {x.I0, low.I1, high.I3} by Resize(I1[8] -> I2[4]; 0, -4) of low (test_why_not.py:" in why


def test_two_splits_of_one_axis() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("a", shape=(12,)), name="t")
    u = f.output(ig.neg(t, name="u"))
    t.split(0, 4)
    u.split(0, 3)
    g = ig.IdModel(f).exact
    assert "made of the same axes by Split" in str(g.explain(t.loop[1], u.loop[1]))
    assert "by Split" in str(g.explain(t.loop[1], u.logical[0]))


def test_a_broadcast_and_what_it_resolves_to() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(4, 6)), f.input("b", shape=(1, 6))
    u = f.output(ig.add(a, b, name="u"))
    m = ig.IdModel(f)
    why = str(m.exact.explain(b.logical[0], u.logical[0]))
    assert "add -> u (test_why_not.py:" in why and "reads b.b2 at 0 along u.I4: it has one element" in why
    assert m.broadcast.explain(b.logical[0], u.logical[0])
    e = u.definition
    assert e
    assert "reads b.b2 at 0" in str(m.index.explain((b.logical[0], e), (u.logical[0], e)))


def test_a_gathered_axis() -> None:
    f = ig.Fusion("f")
    a, i = f.input("a", shape=(4, 6)), f.input("i", shape=(4, 3), dtype="int64")
    u = f.output(ig.gather(a, 1, i, name="u"))
    m, e = ig.IdModel(f), u.definition
    assert e
    for why in (m.exact.explain(a.logical[1], u.logical[1]), m.index.explain((a.logical[1], e), (u.logical[1], e))):
        assert "gather -> u" in str(why) and "reads a.I1 at values loaded from i" in str(why)


def test_two_uses_of_one_axis() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("a", shape=(4, 6)), name="t")
    u, v = f.output(ig.neg(t, name="u")), f.output(ig.mul(t, 2.0, name="v"))
    make, one, two = t.definition, u.definition, v.definition
    assert make and one and two
    rows, columns = t.logical
    m = ig.IdModel(f)
    assert "t is not inlined, so exp -> t" in str(m.index.explain((rows, make), (rows, one)))
    assert "neg -> u" in (why := str(m.index.explain((rows, one), (rows, two)))) and "each in loops of its own" in why
    t.inline(1)
    m = ig.IdModel(f)
    assert m.index.explain((rows, one), (rows, two))
    assert "t is inlined at 1: t.I3 depends on a loop" in str(m.index.explain((columns, make), (columns, one)))


def test_axes_that_nothing_connects() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6))
    f.output(ig.exp(a))
    why = ig.IdModel(f).exact.explain(*a.logical)
    assert not why and "no operation maps {a.I0, t1.I2} to {a.I1, t1.I3}" in str(why)
    assert "a.I0 and a.I1 are two axes of a" in str(why)


def test_the_first_step_and_how_many_follow() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    f.output(ig.neg(ig.reshape(ig.exp(x), 6, 4, name="r"), name="u"))
    r = f["r"]
    why = str(ig.IdModel(f).exact.explain(x.logical[0], r.logical[0]))
    assert "is made of {x.I0, t1.I2, r.I4} by Merge(I4[4], I5[6] -> I6[24]) of r (test_why_not.py:" in why
    assert why.endswith("; 1 more step to {r.I7, u.I9}")


def test_what_is_cut_and_padded_elsewhere() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    part = ig.slice(x, 0, 0, 4, name="part")
    out = f.output(ig.pad(ig.exp(part), (2, 2), name="out"))
    why = str(ig.IdModel(f).exact.explain(x.logical[0], out.logical[0]))
    assert "by Resize(I1[8] -> I2[4]; 0, -4) of part (test_why_not.py:" in why and "1 more step to {out.I5}" in why


def test_the_parts_of_a_cat() -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(8,)), f.input("y", shape=(8,))
    c = f.output(ig.cat([x, y], 0, name="c"))
    m, e = ig.IdModel(f), c.definition
    assert e
    for why in (m.exact.explain(x.logical[0], y.logical[0]), m.index.explain((x.logical[0], e), (y.logical[0], e))):
        assert "by Resize(I4[8] -> I3[16]; 0, 8) of c (test_why_not.py:" in str(why) and "1 more step" in str(why)


def test_a_scattered_axis() -> None:
    f = ig.Fusion("f")
    x, i, s = f.input("x", shape=(8,)), f.input("i", shape=(4,), dtype="int64"), f.input("s", shape=(4,))
    o = f.output(ig.scatter(x, 0, i, s, name="o"))
    m, e = ig.IdModel(f), o.definition
    assert e
    for why in (m.exact.explain(s.logical[0], o.logical[0]), m.index.explain((s.logical[0], e), (o.logical[0], e))):
        assert "scatter -> o (test_why_not.py:" in str(why) and "writes o.g4 at values loaded from i" in str(why)


def test_loops_that_inlining_does_not_share() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 6)), name="t")
    u = f.output(ig.neg(t, name="u"))
    assert "t is not inlined: no loop is shared with u (" in str(ig.IdModel(f).loop.explain(t.loop[0], u.loop[0]))
    t.inline(1)
    g = ig.IdModel(f).loop
    assert g.explain(t.loop[0], u.loop[0])
    assert "t is inlined at 1: only loops left of 1 are shared with u" in str(g.explain(t.loop[1], u.loop[1]))


def test_uses_in_operations_that_only_others_connect() -> None:
    """x's columns under sum and the sum's axis where the result is broadcast back: first the two reads of x part."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    s = ig.sum(x, 1, name="s")
    b = ig.unsqueeze(s, 1, name="b")
    f.output(ig.div(x, b, name="o"))
    assert s.definition and b.definition
    why = str(ig.IdModel(f).index.explain((x.logical[1], s.definition), (b.logical[1], b.definition)))
    assert "sum -> s (test_why_not.py:" in why and "read x, each in loops of its own; 2 more steps to" in why


def test_outputs_of_one_split() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.exp(f.input("x", shape=(12,)), name="t"))
    t.split(0, 4)
    assert "two outputs of Split(I1[12] -> I2[3], I3[4]; 4)" in str(ig.IdModel(f).exact.explain(*t.loop))
