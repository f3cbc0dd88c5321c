"""Operations without meaning: one clear error that names tensor, axis and the user's line; never a wrong index."""

from collections.abc import Callable

import pytest

import idgraph as ig

Build = Callable[[ig.Fusion, ig.Tensor], object]

CASES: dict[str, tuple[Build, str]] = {
    "slice of an axis that is not there": (lambda f, t: ig.slice(t, 2, 0, 1), "has no axis 2"),
    "index past the end": (lambda f, t: t[7], r"index 7 is not provably inside axis 0 of t, of extent 4"),
    "too many indices": (lambda f, t: t[0, 0, 0], "3 indices for tensor t of shape"),
    "index with a float": (lambda f, t: t[1.5], "index 1.5"),
    "step zero": (lambda f, t: t[::0], "slice step 0"),
    "cat of unequal axes": (
        lambda f, t: ig.cat([t, f.input("u", shape=(4, 9))], dim=0),
        "axis 1 of u has extent 9, axis 1 of t has 6: only axis 0 may differ",
    ),
    "cat of nothing": (lambda f, t: ig.cat([]), "no tensor to join"),
    "reshape of the wrong size": (lambda f, t: ig.reshape(t, 5, 5), r"24 elements; \(5, 5\) has 25"),
    "reshape with two free extents": (lambda f, t: ig.reshape(t, -1, -1), "only one extent may be -1"),
    "reshape that does not divide": (lambda f, t: ig.reshape(t, -1, 7), "not a multiple of 7"),
    "negative pad larger than the axis": (lambda f, t: ig.pad(t, (-7, 0)), "cut more of axis 1 of t than its extent 6"),
    "two cuts that meet": (lambda f, t: ig.pad(t, (-4, -4)), "cut more of axis 1"),
    "pads for too many axes": (lambda f, t: ig.pad(t, (0,) * 6), "6 numbers for tensor t with 2 axes"),
    "broadcast of unequal extents": (lambda f, t: t + f.input("u", shape=(5,)), "axis 0 of u has extent 5"),
    "expand of a real axis": (lambda f, t: ig.expand(t, 4, 12), "axis 1 of t has extent 6 and cannot become 12"),
    "squeeze through select words": (lambda f, t: ig.permute(t, 0, 0), "no permutation"),
    "sum over an axis twice": (lambda f, t: ig.sum(t, (1, -1)), "twice"),
    "gather with a float index": (lambda f, t: ig.gather(t, 0, t), "index t is float32"),
    "gather with a larger index": (
        lambda f, t: ig.gather(t, 0, f.input("i", shape=(4, 7), dtype="int64")),
        "axis 1 of index i has extent 7, more than 6 of t",
    ),
    "embedding with swapped operands": (
        lambda f, t: ig.embedding(t, f.input("i", shape=(4,), dtype="int64")),
        "index t is float32",
    ),
    "where with a number as condition": (lambda f, t: ig.where(t, t, t), "the condition is float32, not bool"),
    "matmul of unequal inner axes": (lambda f, t: ig.matmul(t, t), "axis 1 of t has extent 6, axis 0 of t has 4"),
    "bitwise operation of floats": (lambda f, t: t & t, "operands are float32"),
    "tensor of another fusion": (lambda f, t: t + ig.Fusion("g").input("x", shape=(6,)), "not a tensor of fusion f"),
    "output of another fusion": (
        lambda f, t: f.output(ig.Fusion("g").input("x", shape=(6,))),
        "output x is not a tensor",
    ),
    "unknown dtype": (lambda f, t: ig.cast(t, "float23"), "unknown dtype 'float23'"),
    "name twice": (lambda f, t: f.input("t", shape=(1,)), "already has a tensor 't'"),
    "name with a line break": (lambda f, t: f.input("a\nb", shape=(1,)), "is not a name for a tensor"),
    "negative extent": (lambda f, t: f.input("u", shape=(-1,)), "extent -1 of axis 0"),
    "fractional extent": (lambda f, t: f.input("u", shape=(1.5,)), "extent 1.5 of axis 0"),  # type: ignore[arg-type]
    "strides of the wrong length": (lambda f, t: f.input("u", shape=(4,), strides=(1, 1)), "do not fit shape"),
    "symbol with a reserved name": (lambda f, t: f.symbol("i0"), "'i0' is not a name for a symbol"),
    "symbol that is code": (lambda f, t: f.symbol("__import__('os')"), "is not a name for a symbol"),
    "truth value": (lambda f, t: bool(t > 0), "has no truth value"),
    "amax of an empty axis": (lambda f, t: ig.amax(t[:0], 0), "no element to take the amax of"),
    "mean of integers": (lambda f, t: ig.mean(ig.cast(t, "int32")), "cast it to float32 first"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_error(name: str) -> None:
    build, message = CASES[name]
    f = ig.Fusion("f")
    t = f.input("t", shape=(4, 6))
    with pytest.raises(ig.IdGraphError, match=message) as caught:
        build(f, t)
    assert "test_operations.py" in str(caught.value) or "has no truth value" in message or "unknown dtype" in message
    assert len(str(caught.value).splitlines()) <= 5


def test_numpy_clamps_out_of_range_slices() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(10,))
    assert t[5:100].shape == (5,) and t[-100:3].shape == (3,) and t[7:3].shape == (0,) and t[20:].shape == (0,)


def test_all_violations_of_a_fusion_at_once() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(4,))
    u = t + 1.0
    assert u.definition
    u.definition.reads = ((),)
    with pytest.raises(ig.FusionError) as caught:
        f.verify()
    assert len(caught.value.violations) == 2 and "has no output" in str(caught.value)
    assert "reads 0 axes of t, which has 1" in str(caught.value)


HALFWAY: dict[str, Callable[[ig.Tensor, ig.Tensor], object]] = {
    "an index past the end, after a slice": lambda t, v: t[1:3, 9],
    "a product of unequal lengths, after its axis of one": lambda t, v: t @ v,
    "a sum of unequal lengths": lambda t, v: t + v,
    "a name that is taken": lambda t, v: ig.neg(t, name="v"),
}


@pytest.mark.parametrize("name", HALFWAY)
def test_what_fails_halfway_leaves_nothing(name: str) -> None:
    """Operators are as good as functions: no operation stays behind, and no number of a tensor or axis is used up."""
    f = ig.Fusion("f")
    t, v = f.input("t", shape=(4, 6)), f.input("v", shape=(3,))
    before = str(f), f.mark
    with pytest.raises(ig.IdGraphError):
        HALFWAY[name](t, v)
    assert (str(f), f.mark) == before


HABITS: list[tuple[Build, str]] = [
    (lambda f, t: ig.neg(t, name="z").bind, 'z.parallelize(axis, "threadIdx.x")'),
    (lambda f, t: t.add_, "ig.add(t, b)"),
    (lambda f, t: ig.index_select(t, f.input("i", (4,), "int64"), 0), "before other operands"),  # pyright: ignore[reportArgumentType]
    (lambda f, t: ig.pad(t, [(1, 1), (0, 0)]), "a flat list: left, right for the last axis"),  # pyright: ignore[reportArgumentType]
    (lambda f, t: f.input("q", (8,), alignment=3), "16, or 4"),
    (lambda f, t: ig.reshape(t, -1, -1), "numbers for all others"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "hint"), HABITS)
def test_habits_of_others_have_a_way_out(build: Build, hint: str) -> None:
    f = ig.Fusion("f")
    with pytest.raises(ig.IdGraphError) as caught:
        build(f, f.input("t", shape=(4, 6)))
    assert hint in caught.value.hint
