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
