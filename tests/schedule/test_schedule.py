"""Legal schedules of whole fusions, and the illegal ones with their reasons."""

from collections.abc import Callable
from typing import Literal

import pytest

import idgraph as ig


def chain() -> tuple[ig.Fusion, ig.Tensor, ig.Tensor, ig.Tensor]:
    f = ig.Fusion("chain")
    a = f.input("a", shape=(4, 6))
    x = ig.exp(a, name="x")
    s = ig.sum(x, 1, name="s")
    y = f.output(ig.mul(x, ig.unsqueeze(s, 1), name="y"))
    return f, x, s, y


def test_inline_past_a_consumer() -> None:
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(4, 6)))
    ig.flatten(x)
    with pytest.raises(ig.ScheduleError, match="past its consumer t2, which has 1 loop axes"):
        x.inline(2)


def test_inline_past_a_consumer_that_was_merged_later() -> None:
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(4, 6)))
    y = f.output(x + 1.0)
    x.inline(2)
    y.merge(0)
    with pytest.raises(ig.ScheduleError, match="inlined at 2, past its consumer t2"):
        ig.IdModel(f).verify()


def test_inline_right_of_a_reduced_axis() -> None:
    _, _, s, _ = chain()
    with pytest.raises(ig.ScheduleError, match="right of its reduced axis"):
        s.inline(2)


def test_inline_into_loops_that_are_not_the_same() -> None:
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(4, 4)))
    f.output(x.T + 1.0)
    x.inline(1)
    with pytest.raises(ig.ScheduleError, match="is not loop 0") as caught:
        ig.IdModel(f).verify()
    assert "permute" in str(caught.value) and "hint: inline t1 at most at 0" in str(caught.value)


def test_inputs_cannot_be_inlined() -> None:
    f, *_ = chain()
    with pytest.raises(ig.ScheduleError, match="is an input of the fusion"):
        f["a"].inline(1)


def test_one_value_at_two_places_of_one_nest_is_refused_and_a_copy_helps() -> None:
    """x[i + 32] and x[i] in one loop: the slices' loops are the root axis, so every loop would be shared."""
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(64,)), name="x")
    low, high = x[:32], x[32:]
    joined = ig.cat([high, low])
    f.output(x + joined)
    ig.schedule.resize_to_inputs(f, joined.definition)  # type: ignore[arg-type]
    for t in (low, high, joined, x):
        t.inline(1)
    with pytest.raises(ig.ScheduleError) as caught:
        ig.IdModel(f).verify()
    assert "x is inlined at 1" in str(caught.value) and "recompute" in str(caught.value)
    assert low.definition and high.definition
    for name, t in (("x_low", low), ("x_high", high)):
        assert t.definition
        ig.schedule.recompute(x, t.definition, name=name)
    ig.schedule.like(f, f.outputs[0])
    ig.schedule.inline_most(f)
    ig.IdModel(f).verify()
    assert [f[n].inline_position for n in ("x", "x_low", "x_high")] == [1, 1, 1]
    assert ig.parse(str(f)) == f


def test_inline_most_stops_at_the_reduction() -> None:
    f, x, s, _ = chain()
    ig.schedule.inline_most(f)
    assert (x.inline_position, s.inline_position) == (1, 1)
    ig.IdModel(f).verify()


def test_inline_most_does_not_tie_a_knot() -> None:
    """x feeds y directly and through a whole-tensor sum: x cannot share y's loop, the sum stands between."""
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(8,)), name="x")
    total = ig.sum(x, 0, keepdim=True)
    f.output(x / total)
    ig.schedule.inline_most(f)
    assert x.inline_position == 0
    x.inline(1)
    with pytest.raises(ig.ScheduleError, match="is not finished where"):
        ig.IdModel(f).verify()


def test_one_broadcast_inlined_into_two_extents() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(1, 8))
    t = ig.copy(a)
    for rows in (3, 5):
        u = f.output(t + f.input(f"b{rows}", shape=(rows, 8)))
        u.merge(0)
    t.merge(0)
    t.inline(1)
    with pytest.raises(ig.ScheduleError, match=r"two extents: [35] of .* and [35]"):
        ig.IdModel(f).verify()


def test_cut_loops_must_cover_their_readers() -> None:
    f = ig.Fusion("f")
    a = ig.copy(f.input("a", shape=(64,)))
    b = f.output(a[31:])
    a.resize(0, -32, 0)
    with pytest.raises(ig.ScheduleError, match="computes a part of it only"):
        ig.IdModel(f).verify()
    b.set_loop(b.loop)


def test_loops_cut_to_one_element_must_cover_their_readers() -> None:
    f = ig.Fusion("f")
    a = ig.copy(f.input("a", shape=(2,)))
    first, second = a[:1], a[1:]
    f.output(ig.cat([second, first]))
    assert first.definition
    ig.schedule.resize_to_inputs(f, first.definition)
    with pytest.raises(ig.ScheduleError, match="computes a part of it only"):
        ig.IdModel(f).verify()


def test_cut_output_is_refused() -> None:
    f = ig.Fusion("f")
    f.output(ig.copy(f.input("a", shape=(64,)))).resize(0, 0, -1)
    with pytest.raises(ig.ScheduleError, match="is an output, all of its elements are needed"):
        ig.IdModel(f).verify()


STEPS: list[tuple[Callable[[ig.Tensor], object], str]] = [
    (lambda t: t.split(5, 2), "no loop axis 5"),
    (lambda t: t.split(0, 0), "factor 0"),
    (lambda t: t.split(True, 2), "no loop axis True"),
    (lambda t: t.merge(1), "has no next one"),
    (lambda t: t.merge(0, 0), "with itself"),
    (lambda t: t.reorder({0: 1, 1: 1}), "twice"),
    (lambda t: t.reorder([0]), "2 loop axes, the list names 1"),
    (lambda t: t.swizzle("spiral", 0, 1), "unknown kind 'spiral'"),
    (lambda t: t.swizzle("xor", 0, 1), "leaves the axis"),
    (lambda t: t.resize(0, -5, 0), "cuts more of axis"),
    (lambda t: t.parallelize(0, "warp"), "unknown way 'warp'"),
    (lambda t: t.parallelize(0, "threadIdx.x").parallelize(1, "threadIdx.x"), "two loop axes of tensor"),
    (lambda t: t.inline(3), "position 3 is past them"),
    (lambda t: t.set_loop([t.logical[0]]), "do not reach"),
    (lambda t: t.set_loop([*t.logical, t.logical[0]]), "named twice"),
    (lambda t: t.set_memory("cloud"), "unknown memory"),
]


@pytest.mark.parametrize(("step", "message"), STEPS)
def test_steps_without_meaning(step: Callable[[ig.Tensor], object], message: str) -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(4, 6)) + 1.0)
    with pytest.raises(ig.ScheduleError, match=message):
        step(t)


def test_like_replays_through_reshape_roll_and_pad() -> None:
    f = ig.Fusion("f")
    a = ig.copy(f.input("a", shape=(6, 4)))
    out = f.output(ig.pad(ig.roll(ig.reshape(a, 24), 5, 0), (3, 3)) * 2.0)
    out.split(0, 4)
    ig.schedule.like(f, out)
    ig.schedule.inline_most(f)
    ig.IdModel(f).verify()
    assert {t.inline_position for t in f.tensors if t.definition and t.uses} == {2}


def test_auto_gives_blocks_and_threads() -> None:
    f, *_ = chain()
    ig.schedule.auto(f)
    ig.IdModel(f).verify()
    y = f["y"]
    ways = ["blockIdx.x", "threadIdx.y", "serial", "threadIdx.x", "vectorize"]
    assert [d.parallel for d in y.loop] == ways  # several short rows a block, each on some threads
    assert ig.parse(str(f)) == f


def test_auto_puts_both_halves_of_a_rotation_in_one_thread() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(4, 64), dtype="bfloat16")
    out = f.output(t + ig.cat([t[:, 32:], t[:, :32]], dim=1))
    ig.schedule.auto(f)
    assert [(str(d.extent), d.parallel) for d in out.loop] == [
        ("1", "blockIdx.x"),
        ("128", "threadIdx.x"),
        ("2", "unroll"),
        ("8", "vectorize"),
    ]
    assert {x.inline_position for x in f.tensors if x.definition and x.uses} == {4}


def test_like_through_a_flip_of_a_resolved_broadcast() -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(3, 4)), f.input("y", shape=(1, 4))
    t = f.output(ig.flip(ig.exp(y) + x, 0))
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize("target", ["python", "numpy"])
def test_parts_that_are_never_reached(target: Literal["python", "numpy"]) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(6, 4))
    joined = ig.cat([x * 2.0, x[:, :0], x[:, :1]], 1)
    t = f.output(joined[:, 1:4])  # of the three parts only the first is left
    t.merge(0).split(0, 5)
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    report = ig.validate(f, target=target)
    assert report.ok, str(report)


def test_cut_away_part_needs_no_cover() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4,))
    turned = ig.cat([x[3:], x[:3]])
    t = f.output((turned + x)[1:])
    t.split(0, 256)
    ig.schedule.like(f, t)
    assert ig.validate(f, target="numpy").ok


def test_an_output_does_not_follow_a_loop_that_may_be_empty() -> None:
    f = ig.Fusion("f")
    y = f.output(ig.copy(f.input("y", shape=(1, 2)), name="copied"))
    f.output(y + f.input("x", shape=(f.symbol("n"), 2)))
    y.inline(2)
    with pytest.raises(ig.ScheduleError, match="copied is an output, and inlined at 2 into a loop that may be empty"):
        ig.IdModel(f).verify()
    y.inline(0)
    ig.schedule.inline_most(f)
    assert y.inline_position == 0
    assert ig.validate(f, target="numpy", symbols={"n": 0}).ok


def rotated(residual: str) -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    """A computed x of 64 elements, its halves swapped, and what else reads it."""
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(64,)), name="x")
    low, high = ig.slice(x, 0, 0, 32, name="low"), ig.slice(x, 0, 32, 64, name="high")
    out = ig.cat([high, low], name="turned")
    match residual:
        case "far":  # reached through the slices first, if ways were followed by length alone
            out = ig.add(out, ig.neg(ig.neg(ig.neg(x))), name="out")
        case "output":
            f.output(x)
        case _:
            pass
    return f, x, f.output(out)


@pytest.mark.parametrize("residual", ["none", "far", "output"])
def test_like_leaves_a_tensor_whole_that_others_need(residual: str) -> None:
    """Halves of x are read by two slices: neither may cut x's loops, which keep the reference's steps."""
    f, x, out = rotated(residual)
    out.split(0, 8)
    ig.schedule.like(f, out)
    assert [str(d.extent) for d in x.loop] == ["8", "8"] and not x.domain.loop_exprs[1:]
    ig.schedule.inline_most(f)
    assert ig.validate(f, target="python").ok


def test_like_cuts_a_tensor_whose_readers_all_take_the_same_part() -> None:
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(64,)), name="x")
    out = f.output(ig.mul(x[32:], ig.neg(x[32:]), name="out"))
    out.split(0, 8)
    ig.schedule.like(f, out)
    assert [str(d.extent) for d in x.loop] == ["4", "8"]
    ig.schedule.inline_most(f)
    assert x.inline_position == 2 and ig.validate(f, target="python").ok


def test_like_from_a_slice_does_not_cut_what_a_longer_way_shows_whole() -> None:
    """The reference is behind the slice, another branch reads the tensor as it is; it follows without the cut."""
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(4, 7)), name="x")
    part = f.output(ig.neg(x[:, 2:], name="part"))
    other = f.output(ig.mul(x, 2.0, name="other"))
    part.merge(0).split(0, 5)
    ig.schedule.like(f, part)
    assert [str(d.extent) for d in x.loop] == [str(d.extent) for d in other.loop] == ["6", "5"]
    ig.schedule.inline_most(f)
    assert ig.validate(f, target="python").ok


def test_like_does_not_cut_what_slice_scatter_keeps() -> None:
    f = ig.Fusion("f")
    x = ig.exp(f.input("a", shape=(8,)), name="x")
    part = ig.neg(x[0:5:2], name="part")
    f.output(ig.slice_scatter(x, part, 0, 0, 5, 2))
    ig.schedule.like(f, part)
    assert [str(d.extent) for d in x.loop] == ["8"]
    assert ig.validate(f, target="python").ok


@pytest.mark.parametrize("kind", ["xor", "cyclic"])
@pytest.mark.parametrize("shape", [(4, 1), (1, 8), (8,)])
def test_like_leaves_out_a_swizzle_that_a_broadcast_cannot_take(kind: str, shape: tuple[int, ...]) -> None:
    f = ig.Fusion("f")
    t = ig.neg(f.input("x", shape), name="t")
    u = f.output(ig.add(t, f.input("y", (4, 8)), name="u")).swizzle(kind, 0, 1)
    ig.schedule.like(f, u)
    ig.schedule.inline_most(f)
    assert t.inline_position == 2 or not t.domain.loop_exprs
    assert ig.validate(f, target="python").ok


def test_like_leaves_out_a_swizzle_of_a_reduced_with_a_kept_axis() -> None:
    f = ig.Fusion("f")
    t = ig.neg(f.input("x", (4, 8)), name="t").swizzle("cyclic", 0, 1)
    s = f.output(ig.sum(t, 1, name="s"))
    ig.schedule.like(f, t)
    assert s.domain.loop_exprs == [] and ig.validate(f, target="python").ok


def test_like_drops_a_vector_inside_which_another_loop_would_run() -> None:
    f = ig.Fusion("f")
    x, at, source = f.input("x", (4, 8)), f.input("at", (3,), "int64"), f.input("source", (3, 8))
    t = -x
    y = f.output(-ig.index_put(t, [at], source))  # its rows are not those of t
    t.reorder({0: 1, 1: 0}).parallelize(1, "unroll").parallelize(0, "vectorize")
    ig.schedule.like(f, t)
    assert "vectorize" not in [d.parallel for d in y.loop][:-1]
    assert ig.validate(f, target="numpy").ok
