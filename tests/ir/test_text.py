"""L10: what is printed parses back, with symbols, strides and schedules."""

import pytest

import idgraph as ig


def everything() -> ig.Fusion:
    f = ig.Fusion("everything")
    n = f.symbol("n", min=1, max=4096, multiple_of=8)
    a = f.input("a", shape=(n, 6), dtype="float16", alignment=4, offset=3)
    b = f.input("b", shape=(6, 4), strides=(1, 6))
    i = f.input("i", shape=(4, 2), dtype="int64", contiguity=(False, True))
    c = ig.pad(a[n // 2 :, ::-1], (1, -2), value=float("-inf"))
    d = ig.gather(b.T, 1, i)
    e = ig.roll(ig.cat([d, d], dim=1), 3, 1)
    g = ig.where(e > 0.5, e, -1e-7)
    f.output(c, ig.sum(g, 1, keepdim=True))
    g.split(1, 3).reorder({0: 1}).parallelize(0, "threadIdx.x")
    c.merge(0).split(0, n).resize(1, 0, 0)
    e.set_allocation([e.logical[1], e.logical[0]])
    e.set_memory("global")
    return f


def test_round_trip() -> None:
    f = everything()
    again = ig.parse(str(f))
    assert str(again) == str(f) and again == f
    assert [t.shape for t in again.tensors] == [t.shape for t in f.tensors]
    assert [[repr(d) for d in t.loop] for t in again.tensors] == [[repr(d) for d in t.loop] for t in f.tensors]


def test_axes_counted_from_the_back_are_kept_from_the_front() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    f.output(ig.unsqueeze(x, (-1, 0)), ig.permute(x, (-1, 0)), ig.sum(x, -1), ig.cumsum(x, -2))
    again = ig.parse(str(f).replace("dims=(1,)", "dims=(-1,)").replace("dim=0", "dim=-2"))
    wanted = [("dims", (3, 0)), ("dims", (1, 0)), ("dims", (1,)), ("dim", 0)]
    for g in (f, again):
        assert [(k, e.attrs[k]) for e, (k, _) in zip(g.exprs, wanted, strict=True)] == wanted


def test_printing_is_stable() -> None:
    assert str(everything()) == str(everything())


def test_names_count_per_fusion() -> None:
    assert [d.name for d in everything()["a"].logical] == ["I0", "I1"]
    f = ig.Fusion("f")
    t0 = f.input("t0", shape=(8,))
    t1 = t0[:4]
    assert (t1.name, f["t1"]) == ("t1", t1)
    t1.name = "head"
    assert f["head"] is t1


def test_the_repr_is_the_text() -> None:
    f = everything()
    assert repr(f) == str(f) and ig.parse(repr(f)) == f


def test_a_layout_outlives_the_loops_that_auto_takes_away() -> None:
    """The text says it as long as the tensor has it."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    t = f.output(ig.exp(x))
    t.set_allocation([t.logical[1], t.logical[0]])
    ig.schedule.auto(f)
    again = ig.parse(repr(f))["t1"]
    assert t.allocation == (t.logical[1], t.logical[0])
    assert again.allocation == (again.logical[1], again.logical[0])


def test_what_inline_most_leaves_alone_is_not_said_to_be_inlined() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    t = ig.exp(x, name="t").inline(1)
    f.output(t.T + ig.permute(t, (1, 0)), ig.sum(t, 0))
    t.inline(0)
    t.inline(1)
    ig.schedule.inline_most(f)
    again = ig.parse(repr(f))["t"]
    assert again.inline_position == t.inline_position == 0


def test_strides_that_are_free_stay_apart_when_tensors_move() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    a = ig.exp(x, name="a")
    b = f.output(a + 1.0)
    b.set_allocation(b.logical, False)
    assert b.definition
    ig.schedule.recompute(a, b.definition)
    t = f.output(ig.exp(b))
    t.set_allocation(t.logical, False)
    f.tensors[2].set_allocation(f.tensors[2].logical, False)
    names = [s.names for u in f.tensors for s in u.domain.strides if s is not None]
    assert len(names) == len(set(names))


def test_a_reader_that_came_after_an_inlining_can_be_said() -> None:
    """A schedule that no loop nest can do is refused when loops are asked for, from text as from a fusion."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 6)), name="t")
    f.output(t + 1.0)
    t.inline(2)
    f.output(ig.sum(ig.reshape(t, 24), 0))
    again = ig.parse(repr(f))
    assert again == f and again["t"].inline_position == 2
    for g in (f, again):
        with pytest.raises(ig.ScheduleError, match="past its consumer"):
            ig.IdModel(g).verify()
