"""Promotion where a reshape stands between what is inlined and the reader that widens the nest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig


def loops_of(f: ig.Fusion) -> dict[str, str]:
    m = ig.IdModel(f)
    return {t.name: " ".join(str(x.extent) for x in m.loops(t.definition)) for t in f.tensors if t.definition}


def promoted(f: ig.Fusion, name: str) -> list[str]:
    """Where the extent of each loop of a tensor comes from: a tensor's name, or ``fresh``."""
    m = ig.IdModel(f)
    by = [m.promotion(d).tensor for d in f[name].loop]
    return ["fresh" if t is None else t.name for t in by]


def one_nest(f: ig.Fusion, *names: str) -> None:
    """The outermost loops of the tensors are one group of the loop graph, and every address and value is right."""
    g = ig.IdModel(f).loop
    first = g.group(f[names[0]].loop[0])
    assert {d for d in first if d.tensor is not None} >= {f[n].loop[0] for n in names}
    for target in ("python", "numpy"):
        report = ig.validate(f, target=target)
        assert report.ok, str(report)


def widened_twice(inner: bool = True) -> tuple[ig.Fusion, list[ig.Tensor]]:
    """[5] broadcast to [5, 2], flattened by a reshape, broadcast once more and added to [10, 3] or [3, 10]."""
    f = ig.Fusion("f")
    t3 = ig.copy(f.input("t0", shape=(5,)), name="t3")
    t4 = ig.unsqueeze(t3, 1, name="t4")
    t5 = ig.add(t4, f.input("t1", shape=(5, 2)), name="t5")
    t6 = ig.reshape(t5, 10, name="t6")
    t7 = ig.unsqueeze(t6, 1 if inner else 0, name="t7")
    t8 = f.output(ig.add(t7, f.input("t2", shape=(10, 3) if inner else (3, 10)), name="t8"))
    for t in (t4, t5, t7, t8):
        t.merge(0)
    return f, [t3, t4, t5, t6, t7, t8]


@pytest.mark.parametrize("inner", [True, False])
def test_a_producer_of_a_reshape_takes_part_in_the_widened_loop(inner: bool) -> None:
    """All six tensors run in the 30 steps of the last one: those before the reshape lack an axis of 3 elements."""
    f, tensors = widened_twice(inner)
    ig.schedule.inline_most(f)
    assert [t.inline_position for t in tensors] == [1, 1, 1, 1, 1, 0]
    assert set(loops_of(f).values()) == {"30"}
    assert all(promoted(f, t.name) == ["t8"] for t in tensors)
    one_nest(f, *(t.name for t in tensors))


def test_the_same_split_and_partly_inlined_replays_the_inner_loop() -> None:
    f, tensors = widened_twice()
    for t in tensors:
        t.split(0, 4)
    for t in tensors[:-1]:
        t.inline(1)
    assert set(loops_of(f).values()) == {"8 4"}
    assert all(promoted(f, t.name) == ["t8", "fresh"] for t in tensors[:-1])
    one_nest(f, *(t.name for t in tensors))


def test_two_reshapes_that_meet_and_are_widened() -> None:
    """[3, 4] and [2, 6] flattened to 12, one with a broadcast inside; the sum is broadcast against [12, 3]."""
    f = ig.Fusion("f")
    t4 = ig.reshape(f.input("t0", shape=(3, 4)), 12, name="t4")
    t5 = ig.unsqueeze(f.input("t1", shape=(2,)), 1, name="t5")
    t6 = ig.add(t5, f.input("t2", shape=(2, 6)), name="t6")
    t7 = ig.reshape(t6, 12, name="t7")
    t9 = ig.unsqueeze(ig.add(t4, t7, name="t8"), 1, name="t9")
    t10 = f.output(ig.add(t9, f.input("t3", shape=(12, 3)), name="t10"))
    t10.merge(0)
    ig.schedule.like(f, t10)
    ig.schedule.inline_most(f)
    names = ("t4", "t5", "t6", "t7", "t8", "t9", "t10")
    assert loops_of(f) == dict.fromkeys(names, "36")
    assert all(promoted(f, n) == ["t10"] for n in names)
    one_nest(f, *names)


def split_apart(f: ig.Fusion) -> list[ig.Tensor]:
    """[12] reshaped to [3, 4], broadcast against [3, 4, 5]; the producer is split as the reshape splits."""
    a = ig.exp(f.input("x", shape=(12,)), name="a")
    r = ig.reshape(a, 3, 4, name="r")
    u = ig.unsqueeze(r, 2, name="u")
    v = f.output(ig.add(u, f.input("y", shape=(3, 4, 5)), name="v"))
    a.split(0, 4)
    return [a, r, u, v]


def inner_merged(f: ig.Fusion) -> list[ig.Tensor]:
    a, r, u, v = split_apart(f)
    for t in (u, v):
        t.merge(1)
    return [a, r, u, v]


def all_merged(f: ig.Fusion) -> list[ig.Tensor]:
    a, r, u, v = split_apart(f)
    for t in (a, r, u, v):
        while len(t.loop) > 1:
            t.merge(0)
    return [a, r, u, v]


@pytest.mark.parametrize(("build", "extents"), [(inner_merged, "3 20"), (all_merged, "60")])
def test_a_producer_split_like_the_reshape(build: Callable[[ig.Fusion], list[ig.Tensor]], extents: str) -> None:
    f = ig.Fusion("f")
    tensors = build(f)
    for t in tensors[:-1]:
        t.inline(len(t.loop))
    assert loops_of(f) == dict.fromkeys("aruv", extents)
    assert promoted(f, "a")[-1] == "v"
    one_nest(f, *"aruv")


def test_slice_and_pad_replayed_one_after_the_other_inline_everything() -> None:
    """x + pad(copy(x)[16:]): the pad goes through the slice to the copy, whose loop then runs over all 32 elements."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(32,))
    t1 = ig.copy(x, name="t1")
    t2 = ig.slice(t1, 0, 16, 32, name="t2")
    t3 = ig.pad(t2, (0, 16), name="t3")
    t4 = f.output(ig.add(x, t3, name="t4"))
    for t in (t2, t3):
        assert t.definition
        ig.schedule.resize_to_inputs(f, t.definition)
    assert [str(d.extent) for d in t1.loop] == ["32"]
    ig.schedule.inline_most(f)
    assert [t.inline_position for t in (t1, t2, t3)] == [1, 1, 1]
    m = ig.IdModel(f)
    assert [(c.kind, str(c.shift)) for c in m.exact.cycles()] == [("shift", "-16")]
    assert m.exact.mapped(t1.loop[0], t4.loop[0])
    one_nest(f, "t1", "t2", "t3", "t4")


def test_loops_shared_through_a_split_undone_are_permissively_mapped() -> None:
    """t's loops split what they merged of a resized axis, so the outer one is t's own axis, which u reads."""
    f = ig.Fusion("f")
    t = ig.neg(f.input("x", shape=(1, 3)), name="t")
    u = f.output(ig.exp(ig.select(t, dim=0, index=0, name="s"), name="u"))
    s = f["s"]
    t.resize(0, 0, 1).merge(1, 0).split(0, 2)
    s.inline(1)
    t.inline(1)
    m = ig.IdModel(f)
    assert m.loop.mapped(t.loop[0], u.loop[0]) and m.permissive.mapped(t.loop[0], u.loop[0])
    one_nest(f, "t", "s", "u")
