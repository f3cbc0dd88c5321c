"""The automatic schedule where tensors are read in parts: all that a reader needs is computed, for each reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig

CASES: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "two halves": lambda x: ig.cat([-(y := ig.exp(x))[:, 4:], y[:, :4]], dim=1),
    "halves and whole": lambda x: (y := ig.exp(x)) + ig.cat([-y[:, 4:], y[:, :4]], dim=1),
    "three parts": lambda x: ig.cat([(y := ig.exp(x))[:, :3] * y[:, 3:6], y[:, 6:]], dim=1),
    "halves of a half": lambda x: ig.cat([-(y := ig.exp(x)[:, :4])[:, 2:], y[:, :2], ig.sin(x)[:, 4:]], dim=1),
    "even and odd": lambda x: ig.stack([-(y := ig.exp(x))[:, 1::2], y[:, ::2]], dim=2),
    "selected rows": lambda x: ig.select(y := ig.exp(x), 0, 1) + ig.select(y, 0, 2),
    "one row and all": lambda x: ig.select(y := ig.exp(x), 0, 1) + y,
    "every second": lambda x: ig.exp(x)[::2],
    "every second of every second": lambda x: ig.exp(x)[::2][:, 1::2],
    "a cut": lambda x: ig.exp(x)[1:, 2:5],
    "cut by a pad": lambda x: ig.pad(y := ig.exp(x), (-1, -2)) + ig.pad(y, (-2, -1)),
    "one twice, in parts": lambda x: ig.cat([(c := ig.cat([y := ig.exp(x)[:, :1], y], dim=1))[:, 1:], c[:, :1]], dim=1),
    "a part that nobody reads": lambda x: ig.cat([(c := ig.cat([x[1:], x[:1]], dim=0))[1:], c[:1]], dim=0),
    "nothing": lambda x: ig.pad(ig.exp(x)[:1], (0, 0, -1, 0)),
    "new axes from the back": lambda x: ig.unsqueeze(ig.unsqueeze(ig.unsqueeze(ig.exp(x), -1), -3), -2) + x[:1, :1],
    "a part through a reshape": lambda x: ig.reshape(y := ig.exp(x), (32,))[4:20] + ig.reshape(y, (32,))[:16],
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_in_parts_is_all_computed(name: str) -> None:
    f = ig.Fusion("parts")
    f.output(CASES[name](f.input("x", shape=(4, 8))))
    ig.schedule.auto(f)
    report = ig.validate(f, target="numpy")
    assert report.ok, report


def _kernels(f: ig.Fusion) -> int:
    return len(ig.emit(f, target="cuda").kernels)


AGAIN: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "whole and halves": lambda x: (y := ig.exp(x)) + ig.cat([-y[:, 4:], y[:, :4]], dim=1),
    "a transpose": lambda x: (y := x.T) * ig.cat([-y[2:], y[:2]], dim=0),
    "rolled": lambda x: (y := x + 1.0) + ig.roll(y, 3, 1),
    "flipped and cut": lambda x: (y := x * 2.0) + ig.flip(y, 0) + ig.pad(y[:, 1:], (0, 1)),
    "one twice": lambda x: ig.cat([y := ig.exp(x), y], dim=1),
    "selected of a reshape of a part": lambda x: ig.stack(
        [-(y := ig.reshape(x[:, :4], (4, 2, 2)))[:, :, 1], y[:, :, 0]], dim=2
    ),
    "fewer axes": lambda x: x * ig.exp(ig.select(x, 0, 2)),
    "repeated elements": lambda x: (
        x[:, None] * ig.reshape(ig.expand(ig.unsqueeze(ig.exp(x[:, :4]), 2), (4, 4, 2)), (4, 8))
    ),
    "parts of parts": lambda x: (
        x * (c := ig.cat([ig.select(x[:2, 3:6], 0, 1), ig.select(x[2:, :5], 0, 0)], dim=0))
        + ig.flip(x, 1) * ig.flip(c, 0)
    ),
    "parts of a reshape": lambda x: ig.cat([(y := ig.reshape(ig.exp(x), (8, 4)))[:, :1], y[:, 3:], y], dim=1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", AGAIN)
def test_what_is_read_at_several_places_is_computed_again_not_stored(name: str) -> None:
    f = ig.Fusion("again")
    f.output(AGAIN[name](f.input("x", shape=(4, 8))))
    ig.schedule.auto(f)
    assert _kernels(f) == 1
    assert ig.validate(f, target="python").ok
    count = len(f.tensors)
    ig.schedule.auto(f)
    assert len(f.tensors) == count


def test_a_deep_chain_of_rotations_is_not_computed_again_and_again() -> None:
    f = ig.Fusion("chain")
    x = f.input("x", shape=(4, 8))
    for _ in range(8):
        y = ig.exp(x) * 2.0
        x = y + ig.cat([-y[:, 4:], y[:, :4]], dim=1)
    f.output(x)
    count = len(f.tensors)
    ig.schedule.auto(f)
    assert len(f.tensors) < 4 * count
    assert ig.validate(f, target="numpy").ok


def test_split_heads_and_rope_store_no_view() -> None:
    f = ig.Fusion("qkv")
    qkv = f.input("qkv", shape=(2, 4, 6 * 8))
    cos = f.input("cos", shape=(2, 1, 4, 8))
    start = 0
    for heads in (4, 1, 1):
        x = ig.transpose(ig.reshape(qkv[..., start * 8 : (start + heads) * 8], 2, 4, heads, 8), 1, 2)
        start += heads
        f.output(x * cos + ig.cat([-x[..., 4:], x[..., :4]], dim=-1))
    ig.schedule.auto(f)
    assert [b.place for b in ig.emit(f, target="cuda").plan.buffers].count("global") == 0
    assert ig.validate(f, target="numpy").ok


def test_inlining_is_judged_nest_by_nest() -> None:
    """Operations that share no loop with a tensor do not affect whether it can be inlined."""
    f = ig.Fusion("chain")
    x = f.input("x", shape=(4, 8))
    for _ in range(3):
        y = ig.exp(x)
        x = y / ig.sum(y, 1, keepdim=True)
    f.output(x)
    ig.schedule.inline_most(f)
    ig.IdModel(f).verify()
    assert all(t.inline_position for t in f.tensors if t.definition is not None and t.uses)
    assert ig.validate(f, target="numpy").ok


def test_a_scatter_of_what_a_reduction_makes_keeps_its_order() -> None:
    """A scatter over the rows of a reduction is not a part of that nest: of several writers the last one wins."""
    f = ig.Fusion("scatter")
    total = ig.sum(f.input("x", shape=(5, 2, 4)), 2, keepdim=True)
    index = f.input("index", shape=(5, 2, 1), dtype="int32")
    f.output(ig.scatter(-total, 1, index, total))
    ig.schedule.auto(f)
    ig.emit(f, target="cuda")
    assert ig.validate(f, target="numpy").ok


def test_a_scan_over_the_rows_of_a_reduction() -> None:
    f = ig.Fusion("scan")
    f.output(ig.cumsum(ig.sum(f.input("x", shape=(5, 6, 4)), 2), 1))
    ig.schedule.auto(f)
    ig.emit(f, target="cuda")
    assert ig.validate(f, target="numpy").ok


def test_a_part_in_threads_of_its_own_is_seen_to_be_inside() -> None:
    """No rule says that i1//32 + i1%32 - 1 stays in the part that is computed; its points do."""
    f = ig.Fusion("apart")
    x, index = f.input("x", shape=(3,)), f.input("index", shape=(1,), dtype="int64")
    y = -ig.index_put(x, (index,), -1.5)
    z = ig.copy(x) + y
    f.output(-y, ig.cat([z[2:], z[:2]], dim=0), ig.cat([f.output(z[1:]), z[:1]], dim=0))
    ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


def test_equal_operands_become_one_reader() -> None:
    """Operations that are done once have readers that name them twice."""
    f = ig.Fusion("equal")
    x = f.input("x", shape=(1,))
    a, b = -x, -x
    f.output(ig.amax(x, 0), a + b, ig.copy(b), ig.cat([x, b], dim=0))
    ig.schedule.auto(f)
    assert all(len(t.uses) == len(set(t.uses)) for t in f.tensors)
    assert ig.validate(f, target="numpy").ok


def test_a_copy_for_one_operand_of_two() -> None:
    f = ig.Fusion("twice")
    y = ig.exp(f.input("x", shape=(4,)), name="y")
    e = f.output(ig.cat([y, y], dim=0)).definition
    assert e is not None
    made = ig.schedule.recompute(y, e, operand=1, name="y1")
    assert e.inputs == (y, made)
    assert (y.uses, made.uses) == ((e,), (e,))
    assert ig.parse(str(f)) == f
    with pytest.raises(ig.ScheduleError, match="does not read y as operand 1"):
        ig.schedule.recompute(y, e, operand=1)


def test_a_scatter_beside_a_wider_reader() -> None:
    """The scatter's output is also read in wider loops: the scatter's loops are those of its index."""
    f = ig.Fusion("beside")
    x, index = f.input("x", shape=(7, 6)), f.input("index", shape=(3, 4), dtype="int32")
    front = ig.pad(-x, (0, -2, 0, -4))
    f.output(ig.scatter(x, 0, index, front), ig.expand(ig.unsqueeze(front, 0), (3, 3, 4)) + front)
    ig.schedule.auto(f)
    assert ig.validate(f, target="numpy").ok


def test_what_shares_the_blocks_of_its_reader_but_not_its_threads_is_stored() -> None:
    """One column for a whole row, whose thirds have threads of their own: computed once for each thread of a block,
    it would be read by others than those that computed it."""
    f = ig.Fusion("f")
    x, y = f.input("x", (8, 4, 3)), f.input("y", (8, 4, 1))
    column = ig.slice(ig.neg(x, name="n"), 2, 0, 1, name="column")
    f.output(ig.add(ig.add(x, column), y))
    ig.schedule.auto(f)
    assert f["n"].inline_position == 0 and f["column"].inline_position == 2
    assert ig.emit(f, target="cuda").source and ig.validate(f, target="python").ok


@pytest.mark.parametrize("dims", [(-1, -1), (-1, 0), (1, -1), (0, -2)])
def test_views_in_a_row_whose_axes_count_from_the_end(dims: tuple[int, int]) -> None:
    f = ig.Fusion("f")
    view = ig.unsqueeze(ig.unsqueeze(ig.neg(f.input("x", (3, 4))), dims[0]), dims[1])
    shape = view.shape
    f.output(ig.exp(view, name="out"))
    ig.schedule.auto(f)
    assert f["out"].shape == shape and ig.validate(f, target="numpy").ok


OUTPUTS_IN_PART: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "an element": lambda y: ig.select(y, 0, 1),
    "the last row of two axes": lambda y: ig.select(ig.select(y, 0, 3), 0, 7),
    "a row beside others": lambda y: ig.select(y, 1, 2) * ig.select(y, 1, 5),
    "a row of the sum": lambda y: ig.sum(ig.select(y, 0, 2), 0),
    "a row of a row": lambda y: ig.select(y[1:2], 0, 0),
}


@pytest.mark.parametrize("name", OUTPUTS_IN_PART)
def test_an_output_that_is_read_in_part_is_written_whole(name: str) -> None:
    f = ig.Fusion("parts")
    y = f.output(f.input("x", shape=(4, 8)) * 2.0)
    f.output(OUTPUTS_IN_PART[name](y))
    ig.schedule.auto(f)
    report = ig.validate(f, target="numpy")
    assert report.ok, report


@pytest.mark.parametrize("part", [(0, 1), (1, 2), (2, 3), (0, 2)], ids=str)
def test_a_part_of_interleaved_tensors_that_are_cut_before(part: tuple[int, int]) -> None:
    """Two cuts in a row, of four elements to three and on: what is interleaved has half as many, none is cut there."""
    f = ig.Fusion("interleaved")
    x, y = f.input("x", shape=(4,)), f.input("y", shape=(4,))
    pairs = [ig.unsqueeze(t, 1) for t in (-x[1::2], ig.exp(y[::2]))]
    both = ig.pad(-ig.reshape(ig.cat(pairs, dim=1), (4,)), (0, -2 if part[1] < 3 else -1))
    a = both[part[0] : part[1]]
    f.output(a * (y if a.shape[0] == 1 else y[:2]))
    ig.schedule.auto(f)
    report = ig.validate(f, target="numpy")
    assert report.ok, report


def test_differences_of_differences_are_stored_in_between() -> None:
    """Each difference reads its operand at two places: private copies of all of them double with each order."""
    f = ig.Fusion("f")
    t = f.input("x", shape=(3, 20))
    for _ in range(12):
        t = t[:, 1:] - t[:, :-1]
    f.output(t)
    ig.schedule.auto(f)
    assert len(f.exprs) < 300  # copies of 36 operations; 1542 before
    assert ig.validate(f).ok
