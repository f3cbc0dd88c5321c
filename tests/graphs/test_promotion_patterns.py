"""Loop promotion on the patterns that compilers with an IterDomain model find hard, with the groups expected.

Each test names what is inlined where, which loops are one, what extent each loop has, and whether the axis that gives
the extent belongs to a tensor or is a fresh replay. Addresses and values are then checked against the operations.
"""

from __future__ import annotations

import math

import pytest

import idgraph as ig


def loops_of(f: ig.Fusion) -> dict[str, str]:
    """Extents of the loops of each computed tensor, outermost first: ``{"t": "5 3"}``."""
    m = ig.IdModel(f)
    return {t.name: " ".join(str(x.extent) for x in m.loops(t.definition)) for t in f.tensors if t.definition}


def groups_of(f: ig.Fusion) -> set[frozenset[str]]:
    """Groups of more than one loop, by tensor and position: ``{{"t0", "u0"}}``."""
    named = {d: f"{t.name}.{j}" for t in f.tensors if t.definition for j, d in enumerate(t.loop)}
    found = (frozenset(named[d] for d in g if d in named) for g in ig.IdModel(f).loop.groups)
    return {g for g in found if len(g) > 1}


def promoted(f: ig.Fusion, name: str) -> list[str]:
    """Where the extent of each loop of a tensor comes from: a tensor's name, or ``fresh``."""
    m = ig.IdModel(f)
    by = [m.promotion(d).tensor for d in f[name].loop]
    return ["fresh" if t is None else t.name for t in by]


def sets(*texts: str) -> set[frozenset[str]]:
    return {frozenset(t.split()) for t in texts}


def valid(f: ig.Fusion) -> None:
    """Addresses and values are those of the operations' definitions."""
    for target in ("python", "numpy"):
        report = ig.validate(f, target=target)
        assert report.ok, str(report)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_fresh_broadcast_inlined_nowhere_outside_and_whole(position: int) -> None:
    """t = unsqueeze(a, 0); u = t + b: loops left of the position take u's extents, the rest stay."""
    f = ig.Fusion("f")
    t = ig.unsqueeze(f.input("a", shape=(6,)), 0, name="t")
    f.output(ig.add(t, f.input("b", shape=(4, 6)), name="u"))
    t.inline(position)
    assert loops_of(f) == {"t": "4 6" if position else "1 6", "u": "4 6"}
    assert groups_of(f) == sets(*("t.0 u.0", "t.1 u.1")[:position])
    assert promoted(f, "t") == (["u", "t"] if position else ["t", "t"])
    valid(f)


def test_broadcasts_made_one_after_the_other() -> None:
    """Each tensor of the chain adds one broadcast; the last reader resolves all of them."""
    f = ig.Fusion("f")
    t = ig.unsqueeze(f.input("a", shape=(5,)), 1, name="t")
    u = ig.unsqueeze(t, 2, name="u")
    f.output(ig.add(u, f.input("b", shape=(5, 3, 2)), name="v"))
    t.inline(2)
    u.inline(3)
    assert loops_of(f) == {"t": "5 3", "u": "5 3 2", "v": "5 3 2"}
    assert groups_of(f) == sets("t.0 u.0 v.0", "t.1 u.1 v.1", "u.2 v.2")
    assert promoted(f, "t") == ["t", "v"] and promoted(f, "u") == ["u", "v", "v"]
    valid(f)


def test_inlined_and_not_inlined_broadcasts_of_one_tensor() -> None:
    """[i, b, j, b'] merged in pairs and inlined at 1: b is resolved, b' is not."""
    f = ig.Fusion("f")
    t = ig.unsqueeze(ig.unsqueeze(f.input("a", shape=(3, 4)), 1, name="s"), 3, name="t")
    u = f.output(ig.add(t, f.input("b", shape=(3, 5, 4, 2)), name="u"))
    u.merge(0).merge(1)
    ig.schedule.like(f, u)
    t.inline(1)
    assert loops_of(f) == {"s": "3 4", "t": "15 4", "u": "15 8"}
    assert groups_of(f) == sets("t.0 u.0")
    assert promoted(f, "t") == ["u", "t"]
    valid(f)


def test_an_outer_split_of_a_merged_broadcast_has_a_replayed_inner_loop() -> None:
    """[1, 4] and [3, 4] are copied, merged and split by 4 outside: the first copy's inner loop is 3, not 1."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(1, 4)), name="t")
    s = ig.copy(f.input("b", shape=(3, 4)), name="s")
    u = f.output(ig.add(t, s, name="u"))
    u.merge(0).split(0, 4, inner=False)
    ig.schedule.like(f, u)
    t.inline(1)
    s.inline(1)
    assert loops_of(f) == {"t": "4 3", "s": "4 3", "u": "4 3"}
    assert groups_of(f) == sets("t.0 s.0 u.0")
    assert promoted(f, "t") == ["u", "fresh"] and promoted(f, "s") == ["s", "s"]
    valid(f)


def test_a_producer_of_the_broadcast_runs_in_its_merged_loops() -> None:
    """t has no broadcast at all: its reader's reader merges three axes with the one that t lacks."""
    f = ig.Fusion("f")
    t = ig.add(f.input("a", shape=(3, 4, 5)), 1.0, name="t")
    u = ig.unsqueeze(t, 0, name="u")
    v = f.output(ig.add(u, f.input("b", shape=(2, 3, 4, 5)), name="v"))
    v.merge(0).merge(0).merge(0).split(0, 8).split(0, 4)
    ig.schedule.like(f, v)
    t.inline(1)
    u.inline(1)
    assert loops_of(f) == {"t": "4 4 8", "u": "4 4 8", "v": "4 4 8"}
    assert groups_of(f) == sets("t.0 u.0 v.0")
    assert promoted(f, "t") == promoted(f, "u") == ["v", "fresh", "fresh"]
    valid(f)


def two_ways(rows: int, left: int, right: int) -> ig.Fusion:
    """One vector broadcast two ways, (rows, left) and (rows, right), which meet in (rows, left, right)."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(rows,)), name="t")
    p = ig.add(f.input("b", shape=(rows, left)), ig.unsqueeze(t, 1, name="p0"), name="p")
    q = ig.add(f.input("c", shape=(rows, right)), ig.unsqueeze(t, 1, name="q0"), name="q")
    out = f.output(ig.add(ig.unsqueeze(p, 2, name="p1"), ig.unsqueeze(q, 1, name="q1"), name="out"))
    out.merge(0).merge(0).split(0, 5).split(0, 3)
    ig.schedule.like(f, out)
    for name in ("t", "p0", "p", "q0", "q"):
        f[name].inline(1)
    return f


@pytest.mark.parametrize(("rows", "left", "right"), [(7, 11, 13), (2, 3, 2), (5, 1, 4)])
def test_two_ways_of_resolving_one_vector_in_one_nest(rows: int, left: int, right: int) -> None:
    """p1 and q1 are not inlined, yet share the nest with t: its loop runs over all three axes for every tensor."""
    f = two_ways(rows, left, right)
    outer = math.ceil(math.ceil(rows * left * right / 5) / 3)
    names = ["t", "p0", "p", "q0", "q", "p1", "q1", "out"]
    assert {loops_of(f)[n] for n in names} == {f"{outer} 3 5"}
    assert groups_of(f) == sets(" ".join(f"{n}.0" for n in names[:-1]))
    if left > 1:
        assert all(promoted(f, n)[1:] == ["fresh", "fresh"] for n in names[:-1])
    valid(f)


def test_a_producer_split_once_more_than_its_reader() -> None:
    """t is split again to the right of its position: its own inner loops replay that split on the widened loop."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(6,)), name="t")
    u = ig.unsqueeze(t, 0, name="u")
    v = f.output(ig.add(u, f.input("b", shape=(4, 6)), name="v"))
    v.merge(0).split(0, 5)
    ig.schedule.like(f, v)
    t.split(1, 3)
    t.inline(1)
    u.inline(1)
    assert loops_of(f) == {"t": "5 2 3", "u": "5 5", "v": "5 5"}
    assert groups_of(f) == sets("t.0 u.0 v.0")
    assert promoted(f, "t") == ["v", "fresh", "fresh"]
    valid(f)


def test_broadcasts_resolved_at_different_positions_of_one_nest() -> None:
    """t shares one loop with u, u shares two with v; v's second loop merges what is left of u's with a new axis."""
    f = ig.Fusion("f")
    s = ig.copy(f.input("a", shape=(5,)), name="s")
    t = ig.unsqueeze(s, 0, name="t")
    u = ig.add(f.input("b", shape=(3, 5)), t, name="u")
    w = ig.unsqueeze(u, 2, name="w")
    v = f.output(ig.add(w, f.input("c", shape=(3, 5, 7)), name="v"))
    u.merge(0).split(0, 2, inner=False)
    ig.schedule.like(f, u)
    for x in (w, v):
        x.merge(1).split(1, 4, inner=False)
    for x, k in ((s, 1), (t, 1), (u, 1), (w, 2)):
        x.inline(k)
    assert loops_of(f) == {"s": "2 8", "t": "2 8", "u": "2 8", "w": "2 4 14", "v": "2 4 14"}
    assert groups_of(f) == sets("s.0 t.0 u.0 w.0 v.0", "w.1 v.1")
    assert promoted(f, "s") == promoted(f, "t") == ["u", "fresh"]
    assert promoted(f, "w") == ["w", "v", "fresh"]
    valid(f)


def test_two_lacking_axes_merged_into_different_loops() -> None:
    """The broadcast's split halves go to two loops: the shared one takes one half, the private one the other."""
    f = ig.Fusion("f")
    s = ig.copy(f.input("a", shape=(6,)), name="s")
    t = ig.unsqueeze(s, 0, name="t")
    u = ig.add(t, f.input("b", shape=(20, 6)), name="u")
    v = f.output(ig.copy(u, name="v"))
    v.split(1, 2).split(0, 8).merge(0, 2).merge(1, 2)
    ig.schedule.like(f, v)
    for x in (s, t, u):
        x.inline(1)
    assert loops_of(f) == {"s": "9 2", "t": "9 16", "u": "9 16", "v": "9 16"}
    assert groups_of(f) == sets("s.0 t.0 u.0 v.0")
    assert promoted(f, "t") == ["u", "fresh"] and promoted(f, "u") == ["u", "u"]
    valid(f)


def test_merged_nest_whose_result_feeds_another_nest_unmerged() -> None:
    """Everything up to the sum of two broadcast ways is one merged loop; a copy of it has three loops of its own.

    Another system maps the three loops onto each other here, because each was merged into the one before.
    """
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(3,)), name="t")
    p = ig.add(f.input("b", shape=(3, 4)), ig.unsqueeze(t, 1, name="p0"), name="p")
    q = ig.add(f.input("c", shape=(3, 2)), ig.unsqueeze(t, 1, name="q0"), name="q")
    s = ig.add(ig.unsqueeze(p, 2, name="p1"), ig.unsqueeze(q, 1, name="q1"), name="s")
    x = ig.copy(s, name="x")
    y = f.output(ig.copy(x, name="y"))
    for name in ("p0", "p", "p1", "q0", "q", "q1", "s"):
        while len(f[name].loop) > 1:
            f[name].merge(0)
    for name in ("t", "p0", "p", "p1", "q0", "q", "q1"):
        f[name].inline(1)
    x.inline(3)
    nest = ("t", "p0", "p", "p1", "q0", "q", "q1", "s")
    assert {loops_of(f)[n] for n in nest} == {"24"} and loops_of(f)["x"] == "3 4 2"
    assert groups_of(f) == sets(" ".join(f"{n}.0" for n in nest), "x.0 y.0", "x.1 y.1", "x.2 y.2")
    loop = ig.IdModel(f).loop
    assert not any(loop.mapped(a, b) for k, a in enumerate(y.loop) for b in y.loop[:k])
    valid(f)


def test_one_vector_widened_to_two_extents_is_refused_with_both() -> None:
    """The two ways never meet, so no loop has both: the reason names both readers and both extents."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(7,)), name="t")
    for name, n in (("p", 11), ("q", 13)):
        wide = ig.unsqueeze(t, 1, name=f"{name}0")
        out = f.output(ig.add(f.input(f"in_{name}", shape=(7, n)), wide, name=name))
        for x in (wide, out):
            x.merge(0)
        wide.inline(1)
    t.inline(1)
    with pytest.raises(ig.ScheduleError) as caught:
        ig.IdModel(f).verify()
    text = str(caught.value)
    assert "the loops of p0 merge t." in text and "with 11 elements" in text
    assert "the loops of q0 merge t." in text and "with 13 elements" in text and "recompute" in text
    ig.schedule.recompute(t, f["q0"].definition, name="t_q").inline(1)  # type: ignore[arg-type]
    assert loops_of(f)["t"] == "77" and loops_of(f)["t_q"] == "91"
    valid(f)


def test_a_reader_beside_the_widening_one_runs_in_the_widened_loop() -> None:
    """t is inlined into u, widened by a broadcast, and into w, which is not: w runs every step, and is stored."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", shape=(6,)), name="t")
    u = ig.unsqueeze(t, 0, name="u")
    v = f.output(ig.add(u, f.input("b", shape=(4, 6)), name="v"))
    w = f.output(ig.neg(t, name="w"))
    v.merge(0).split(0, 5)
    ig.schedule.like(f, v)
    t.inline(1)
    u.inline(1)
    assert loops_of(f) == {"t": "5 5", "u": "5 5", "v": "5 5", "w": "5 5"}
    assert groups_of(f) == sets("t.0 u.0 v.0 w.0") and w.inline_position == 0
    valid(f)


def test_a_cut_to_one_element_in_a_loop_that_a_broadcast_widens() -> None:
    """x is computed at one element only, which is read by a broadcast of three: the loop is three long for both."""
    f = ig.Fusion("f")
    x = ig.copy(f.input("a", shape=(3,)), name="x")
    one = ig.slice(x, 0, 0, 1, 3, name="one")
    out = f.output(ig.add(one, f.input("b", shape=(3,)), name="out"))
    ig.schedule.like(f, out)
    ig.schedule.inline_most(f)
    assert loops_of(f) == {"x": "3", "one": "3", "out": "3"}
    assert groups_of(f) == sets("x.0 one.0 out.0") and promoted(f, "x") == ["out"]
    valid(f)


def test_slices_joined_after_a_permutation_of_one_of_them() -> None:
    """Rows and columns of one slice are swapped before both are joined: exact maps each with each, and says so."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(2, 2, 5))
    left, right = ig.slice(a, 2, 0, 2, name="left"), ig.slice(a, 2, 2, 5, name="right")
    turned = ig.permute(left, (1, 0, 2), name="turned")
    out = f.output(ig.cat([turned, right], 2, name="out"))
    m = ig.IdModel(f)
    for axis in range(2):
        assert m.exact.mapped(left.logical[axis], turned.logical[1 - axis])
        assert m.exact.mapped(left.logical[axis], right.logical[axis])
        assert m.exact.mapped(turned.logical[axis], right.logical[axis])
    assert not m.exact.mapped(left.logical[2], right.logical[2])
    assert m.exact.mapped(left.logical[2], turned.logical[2])
    assert {s.tensor for s in m.exact.self_mappings} >= {left, turned, right, out}
    valid(f)
