"""Sixty facts of nvFuser's tests of 2024 to 2026: loops of resizes and reshapes, broadcasts, strides, blocks of scales,
ragged axes, gathers, scatters, devices. Sizes are our own; each fact is NumPy's, or a formula at each listed integer.

Long: tables, each entry short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.ir import DType
from tests.emit.cuda_interpreter import interpret
from tests.index.expected import Case, case, judged
from tests.index.expected import Expected as E
from tests.schedule.test_expected_by_hand import arrays, definition
from tests.schedule.test_expected_further import Array, Build, Compute, b, e, x


def take(t: ig.Tensor, steps: str) -> ig.Tensor:
    """Schedule steps as words: ``merge 0, split 0 4``; ``outer 1 2`` splits into two parts."""
    for step in steps.split(", ") if steps else ():
        name, *words = step.split()
        numbers = [int(n) for n in words]
        match name:
            case "outer":
                t.split(numbers[0], numbers[1], inner=False)
            case "reorder":
                t.reorder(dict([numbers]))
            case _:
                getattr(t, name)(*numbers)
    return t


def outer(f: ig.Fusion, *tensors: ig.Tensor) -> ig.Tensor:
    """Outputs, of which the first is asked about."""
    f.output(*tensors)
    return tensors[0]


def same(found: Mapping[str, Any], t: ig.Tensor, want: Array) -> None:
    assert np.shape(found[t.name]) == np.shape(want)
    np.testing.assert_allclose(np.asarray(found[t.name]), want, rtol=2e-5, atol=2e-5)


# ---- one tensor's loops for all: where they reach everything, all that is computed stands at the innermost -----------
def parts(t: ig.Tensor, size: int) -> list[ig.Tensor]:
    return [t[k : k + size] for k in range(0, int(t.shape[0]), size)]


def partly_rotated(t: ig.Tensor) -> ig.Tensor:
    return ig.cat([t[:2] + 1.0, t[2:4] + 2.0, t[4:]], 0)


NESTS: dict[str, tuple[Build, str, Compute]] = {
    "halves padded back": (
        lambda f: (lambda t: ig.pad(t[:5], (0, 5)) + ig.pad(t[5:] * 2.0, (5, 0)))(e(f, 10)), "split 0 3",
        lambda v: np.exp(v["x"]) * np.repeat([1, 2], 5),
    ),
    "the left half padded back": (
        lambda f: ig.pad(e(f, 10)[:5], (0, 5)), "split 0 4", lambda v: np.exp(v["x"]) * np.repeat([1, 0], 5)
    ),
    "the right half padded back": (
        lambda f: ig.pad(e(f, 10)[5:], (5, 0)), "split 0 4", lambda v: np.exp(v["x"]) * np.repeat([0, 1], 5)
    ),
    "a cat within a cat": (
        lambda f: partly_rotated(e(f, 9)), "split 0 4", lambda v: np.exp(v["x"]) + [1, 1, 2, 2, 0, 0, 0, 0, 0]
    ),
    "an inner slice, its ends away": (lambda f: e(f, 23)[1:22], "split 0 8", lambda v: np.exp(v["x"])[1:22]),
    "a pad between operations": (lambda f: ig.pad(e(f, 21), (1, 1)) + 1.0, "split 0 8", lambda v: np.pad(np.exp(v["x"]), 1) + 1),
    "a pad of nothing": (lambda f: ig.pad(e(f), (0, 0)) * 2.0, "merge 0, split 0 5", lambda v: 2 * np.exp(v["x"])),
    "rows of one joined": (
        lambda f: ig.cat([e(f, 1, 3), ig.sin(b(f, 1, 3))], 0), "merge 0, split 0 4",
        lambda v: np.concatenate([np.exp(v["x"]), np.sin(v["b"])]),
    ),
    "a row of one repeated by a cat": (
        lambda f: (lambda t: ig.exp(ig.cat([t, t, t], 0)))(x(f, 1, 5)), "merge 0, split 0 4", lambda v: np.tile(np.exp(v["x"]), (3, 1))
    ),
    "a cat of broadcasts": (
        lambda f: ig.cat([ig.expand(e(f, 1, 4), (3, 4)), ig.expand(b(f, 3, 1), (3, 4))], 1), "merge 0, split 0 5",
        lambda v: np.concatenate([np.tile(np.exp(v["x"]), (3, 1)), np.tile(v["b"], 4)], 1),
    ),
    "a slice of a reshape's inner part": (
        lambda f: ig.reshape(e(f, 4, 20), 4, 5, 4)[..., 1:3] * 2.0, "merge 0, split 1 2",
        lambda v: 2 * np.exp(v["x"]).reshape(4, 5, 4)[..., 1:3],
    ),
    "split and merged": (
        lambda f: ig.reshape(ig.reshape(e(f, 10), 2, 5) + 1.0, 10), "split 0 3", lambda v: np.exp(v["x"]) + 1
    ),
    "outermost and innermost merged": (
        lambda f: ig.exp(ig.sin(x(f, 3, 4, 5))), "merge 0 2, split 0 4", lambda v: np.exp(np.sin(v["x"]))
    ),
    "a row between merged axes": (
        lambda f: ig.unsqueeze(e(f, 7), (0, 2)) + b(f, 2, 7, 3), "merge 0, merge 0, split 0 2, split 0 3",
        lambda v: np.exp(v["x"])[:, None] + v["b"],
    ),
    "three steps of broadcasting": (
        lambda f: (ig.unsqueeze(e(f, 5), 1) + b(f, 5, 3)) + f.input("c", (4, 5, 3)), "split 1 4, merge 2, merge 0",
        lambda v: np.exp(v["x"])[:, None] + v["b"] + v["c"],
    ),
    "merged pairs around a row": (
        lambda f: ig.unsqueeze(e(f, 4), (0, 2, 3)) + b(f, 3, 4, 2, 5), "merge 0, merge 1, split 1 4, split 0 1, reorder 2 1",
        lambda v: np.exp(v["x"])[:, None, None] + v["b"],
    ),
    "a matrix under three merged axes": (
        lambda f: e(f, 2, 3, 4) + b(f, 5, 2, 3, 4), "merge 2, merge 1, merge 0, split 0 16, split 0 4",
        lambda v: np.exp(v["x"]) + v["b"],
    ),
    "split by parts, by one, by four": (
        lambda f: e(f, 4, 24) + (b(f, 4, 24) + 2.0), "outer 1 2, split 1 1, split -1 4", lambda v: np.exp(v["x"]) + v["b"] + 2
    ),
    "a broadcast split with a rest, then met": (
        lambda f: ig.reshape(ig.expand(e(f, 1, 5), (4, 5)), 2, 10) + b(f, 2, 10), "merge 0, split 0 3",
        lambda v: np.tile(np.exp(v["x"]), (4, 1)).reshape(2, 10) + v["b"],
    ),
    "one scalar for all": (
        lambda f: e(f, 23)[1:22] * ig.sin(f.input("c", ())), "split 0 8", lambda v: np.exp(v["x"])[1:22] * np.sin(v["c"])
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["python", "cuda"])
@pytest.mark.parametrize("name", NESTS)
def test_loops_of_the_result_for_all(name: str, target: Any) -> None:
    build, steps, compute = NESTS[name]
    f = ig.Fusion(name)
    y = take(f.output(build(f)), steps).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    assert ig.schedule.like(f, y) == ()
    assert ig.schedule.inline_most(f) == ()
    f.verify()
    v, program = arrays(f, {}), ig.emit(f, target)
    same(interpret(program, v) if target == "cuda" else program.run(v), y, compute(v))


# ---- any tensor as the reference: twelve elements reshaped on two ways and added (loop domains of ManyReshape) ---------
def two_ways(f: ig.Fusion) -> list[ig.Tensor]:
    t1 = e(f, 12)
    ways = [t1]
    for shape in ((3, 4), (3, 2, 2), (6, 2), (12,)):
        ways.append(ig.reshape(ways[-1], *shape))
    t7 = ig.reshape(t1, 4, 3)
    t8 = ig.reshape(t7, 12)
    return [*ways, t7, t8, f.output(ways[-1] + t8)]


@pytest.mark.parametrize("number", range(8))
def test_any_reference(number: int) -> None:
    f = ig.Fusion("f")
    ways = two_ways(f)
    shape = ways[number].shape
    assert ig.schedule.like(f, ways[number]) == ()
    assert ig.schedule.inline_most(f) == ()
    m = ig.IdModel(f)
    for t in ways:
        assert tuple(int(d.extent) for d in t.loop) == shape and t.inline_position == (0 if t is ways[-1] else len(shape))
        assert all(m.almost_exact.mapped(p, q) for p, q in zip(t.loop, ways[number].loop, strict=True))
    v = arrays(f, {})
    same(ig.emit(f, "python").run(v), ways[-1], 2 * np.exp(v["x"]))


# ---- indices and predicates, at all points and never costlier -------------------------------------------------------
INDEXED: dict[str, Case] = {}


@case(
    INDEXED, "a split with a rest of a split with a rest: two comparisons",
    E("t", "x", "i0*3 + (i1*2 + i2)", "(i0*3 + (i1*2 + i2) < 10) & (i1*2 + i2 < 3)"),
)  # fmt: skip
def rest_of_a_rest(f: ig.Fusion) -> None:
    take(f.output(ig.copy(x(f, 10), name="t")), "split 0 3, split 1 2")


@case(
    INDEXED, "a split with a rest by parts: the outer extent is known, the inner rounded up",
    E("t", "x", "(i0*2 + i1)*3 + i2", "(i0*2 + i1)*3 + i2 < 10"),
)  # fmt: skip
def parts_and_a_rest(f: ig.Fusion) -> None:
    take(f.output(ig.copy(x(f, 10), name="t")), "split 0 3, outer 0 2")


@case(
    INDEXED, "a slice in the loops of what it reads: the input's index is the loop, the result's starts one later",
    E("s", "x", "i0*8 + i1", "(i0*8 + i1 >= 1) & (i0*8 + i1 < 22)", only_inside=True),
    E("t", "t", "i0*8 + i1 - 1", "(i0*8 + i1 >= 1) & (i0*8 + i1 < 22)", only_inside=True),
)  # fmt: skip
def a_slice_as_its_producer(f: ig.Fusion) -> None:
    s = ig.slice(x(f, 23), 0, 1, 22, name="s")
    t = f.output(ig.copy(s, name="t"))
    take(s.set_loop(s.root), "split 0 8")
    take(t, "resize 0 1 1, split 0 8")
    ig.schedule.inline_most(f)
    assert s.inline_position == 2


@case(
    INDEXED, "two broadcasts merged with the loops that they meet: a row and a column of one flat loop",
    E("r", "x", "(i0*5 + i1)%4", "i0*5 + i1 < 12"), E("c", "b", "(i0*5 + i1)//4", "i0*5 + i1 < 12"),
    E("t", "t", "i0*5 + i1", "i0*5 + i1 < 12"),
)  # fmt: skip
def a_row_and_a_column(f: ig.Fusion) -> None:
    r = ig.unsqueeze(ig.exp(x(f, 4), name="r"), 0)
    t = f.output(ig.add(r, ig.unsqueeze(ig.exp(b(f, 3), name="c"), 1), name="t"))
    take(t, "merge 0, split 0 5")
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


@case(
    INDEXED, "a merge replayed through a reshape: one index, no division on the way",
    E("t", "t", "i0*3 + i1", "i0*3 + i1 < 10"), E("s", "x", "i0*3 + i1", "i0*3 + i1 < 10"),
)  # fmt: skip
def a_reshape_without_divisions(f: ig.Fusion) -> None:
    s = ig.exp(x(f, 10), name="s")
    take(s, "split 0 3")
    f.output(ig.reshape(ig.reshape(s, 2, 5), 10, name="t"))
    ig.schedule.like(f, s)
    ig.schedule.inline_most(f)


@case(
    INDEXED, "a reduction of merged axes split with a rest: the reader's predicate covers it once",
    E("t", "x", "i0*12 + i1*5 + i2", "i1*5 + i2 < 12"), E("t", "t", "i0", "i1*5 + i2 < 12"),
)  # fmt: skip
def a_sum_of_merged_axes(f: ig.Fusion) -> None:
    x = f.input("x", (2, 3, 4))
    take(f.output(ig.sum(x, (1, 2), name="t")), "merge 1, split 1 5")


@case(
    INDEXED, "columns first in memory, loops rows first, merged and split",
    E("t", "t", "(i0*4 + i1)//5 + (i0*4 + i1)%5*3", "i0*4 + i1 < 15"),
)  # fmt: skip
def columns_under_a_flat_loop(f: ig.Fusion) -> None:
    t = f.output(ig.copy(x(f, 3, 5), name="t"))
    take(t.set_allocation(t.logical[::-1]), "merge 0, split 0 4")


@case(
    INDEXED, "rows of eight elements for five: each row begins a stride later",
    E("t", "t", "(i0*4 + i1)//5*8 + (i0*4 + i1)%5", "i0*4 + i1 < 15"), E("t", "x", "i0*4 + i1", "i0*4 + i1 < 15"),
)  # fmt: skip
def padded_rows_under_a_flat_loop(f: ig.Fusion) -> None:
    t = f.output(ig.copy(x(f, 3, 5), name="t"))
    take(t.set_allocation(t.logical, strides=[8, 1]), "merge 0, split 0 4")


@case(
    INDEXED, "rotated halves in the loops of the residual: no loop of the ring is its own predecessor",
    E("a", "x", "i0*3 + i1 + 4", "i0*3 + i1 < 4"), E("c", "x", "i0*3 + i1 - 4", "(i0*3 + i1 >= 4) & (i0*3 + i1 < 8)", only_inside=True),
    E("t", "x", "i0*3 + i1", "i0*3 + i1 < 8"),
)  # fmt: skip
def rotated_halves_split_with_a_rest(f: ig.Fusion) -> None:
    t0 = x(f, 8)
    t = f.output(ig.add(t0, ig.cat([ig.slice(t0, 0, 4, 8, name="a"), ig.slice(t0, 0, 0, 4, name="c")], 0), name="t"))
    take(t, "split 0 3")
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


@pytest.mark.parametrize("name", INDEXED)
def test_indices(name: str) -> None:
    assert judged(name, INDEXED[name]) == [], INDEXED[name].source


# ---- vectors through resizes: elements of an access of 16 bytes -----------------------------------------------------
WIDTHS: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], int]] = {  # reading x, float32, 6 rows of 16
    "a slice at 4": (lambda t: t[:, 4:12], 4), "a slice at 2": (lambda t: t[:, 2:10], 2), "a slice at 1": (lambda t: t[:, 1:9], 1),
    "rows cut": (lambda t: t[1:4], 4), "six of a row": (lambda t: t[:, :6], 2),
    "padded by 2": (lambda t: ig.pad(t, (2, 2)), 2), "padded by 4 and 8": (lambda t: ig.pad(t, (4, 8)), 4),
    "padded behind by 3": (lambda t: ig.pad(t, (0, 3)), 1), "a flip": (lambda t: ig.flip(t, (1,)), 1),
    "rolled by 4": (lambda t: ig.roll(t, 4, 1), 4), "every second": (lambda t: t[:, ::2], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WIDTHS)
def test_vectors_of_resizes(name: str) -> None:
    build, width = WIDTHS[name]
    f = ig.Fusion("f")
    t0 = x(f, 6, 16)
    a = ig.IdModel(f).access(definition(f.output(build(t0))), t0)
    assert a.vector_width(len(a.loops) - 1) == width


# ---- scales of blocks (Block128x4): where each lies, what is a hole, and what is divided by them ---------------------
@pytest.mark.parametrize(("rows", "columns"), [(512, 9), (200, 4), (128, 1), (130, 6)])
def test_scales_of_blocks(rows: int, columns: int) -> None:
    f = ig.Fusion("scales")
    t = ig.reshape(x(f, rows, columns * 16), rows, columns, 16)
    largest = ig.amax(t, 2)
    y = f.output(t / ig.unsqueeze(largest, 2))
    f.output(largest).set_allocation(ig.layout.blocked(largest, rows=128, columns=4))
    v = {"x": np.arange(1, rows * columns * 16 + 1, dtype=np.float32).reshape(rows, -1)}
    found = ig.emit(f, "numpy").run(v, raw=True)
    blocks = v["x"].reshape(rows, columns, 16)
    np.testing.assert_allclose(np.asarray(found[y.name].buffer).reshape(blocks.shape), blocks / blocks.max(2, keepdims=True), rtol=1e-6)
    lies = np.asarray(found[largest.name].buffer).reshape(-(-rows // 128), -(-columns // 4), 32, 4, 4)
    tiles = lies.transpose(0, 3, 2, 1, 4).reshape(-(-rows // 128) * 128, -1)
    np.testing.assert_array_equal(tiles[:rows, :columns], blocks.max(2))


# ---- ragged axes ----------------------------------------------------------------------------------------------------
def table(f: ig.Fusion, dtype: DType = "int64") -> ig.Tensor:
    return f.input("o", (4,), dtype)


ENDS = np.array([0, 3, 3, 9])
RAGGED: dict[str, tuple[Callable[[ig.Fusion, ig.Tensor], ig.Tensor], Callable[[Array, list[Array]], Array]]] = {
    "there and back": (lambda f, u: ig.combine(u), lambda a, rows: a),
    "scaled by its row": (
        lambda f, u: ig.combine(u * ig.reshape(f.input("s", (3,)), 3, 1, 1)),
        lambda a, rows: np.concatenate([r * s for r, s in zip(rows, (2, 3, 4), strict=True)]),
    ),
    "a sum for each row": (lambda f, u: ig.sum(u, 1), lambda a, rows: np.stack([r.sum(0) for r in rows])),
    "rows beside their sums": (
        lambda f, u: ig.combine(u - ig.sum(u, 1, keepdim=True)), lambda a, rows: np.concatenate([r - r.sum(0) for r in rows])
    ),
    "combined and cut": (lambda f, u: ig.combine(u * 2.0)[2:7], lambda a, rows: 2 * a[2:7]),
    "the axis beside reshaped": (lambda f, u: ig.reshape(ig.combine(u), 9, 2, 1), lambda a, rows: a.reshape(9, 2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", RAGGED)
def test_ragged(name: str) -> None:
    build, compute = RAGGED[name]
    f = ig.Fusion(name)
    y = f.output(build(f, ig.partition(ig.exp(x(f, 9, 2)), 0, table(f))))
    rng = np.random.default_rng(3)
    a = (rng.integers(-8, 9, (9, 2)) / 8).astype(np.float32)
    rows = np.split(np.exp(a), ENDS[1:3])
    v = {"x": a, "o": ENDS, **({"s": np.array([2, 3, 4], np.float32)} if "s" in [t.name for t in f.inputs] else {})}
    for target in ("python", "numpy", "cuda"):
        program = ig.emit(f, target)
        same(interpret(program, v) if target == "cuda" else program.run(v), y, compute(np.exp(a), rows))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda f: ig.partition(x(f, 9), 0, table(f, "float32")), "o"),
        (lambda f: ig.partition(ig.partition(x(f, 9), 0, o := table(f)), 1, o), "ragged"),
        (lambda f: ig.combine(x(f, 9)), "ragged"),
        (lambda f: ig.partition(x(f, 9), 0, b(f, 2, 2)), "b"),
    ],
)  # fmt: skip
def test_ragged_axes_that_are_none(build: Build, says: str) -> None:
    with pytest.raises(IdGraphError, match=says) as caught:
        build(ig.Fusion("f"))
    assert caught.value.where and caught.value.hint


# ---- scatters and gathers whose index is computed -------------------------------------------------------------------
def index(f: ig.Fusion, *shape: int) -> ig.Tensor:
    return f.input("i", shape, "int64") + f.input("j", shape, "int64")


def put(a: Array, i: Array, src: Array, axis: int) -> Array:
    out = a.copy()
    np.put_along_axis(out, i, src, axis)
    return out


PLACED: dict[str, tuple[Build, tuple[int, ...], int, Callable[[Mapping[str, Array], Array], Array]]] = {
    "over itself": (lambda f: ig.scatter(x(f, 4, 3), 0, index(f, 4, 3), b(f, 4, 3)), (4, 3), 4, lambda v, i: put(v["x"], i, v["b"], 0)),
    "over zeros": (
        lambda f: ig.scatter(ig.full((7, 3), 0.0, fusion=f), 0, index(f, 4, 3), ig.exp(b(f, 4, 3))), (4, 3), 7,
        lambda v, i: put(np.zeros((7, 3), np.float32), i, np.exp(v["b"]), 0),
    ),
    "read again": (
        lambda f: ig.gather(ig.scatter(x(f, 7, 3), 0, i := index(f, 4, 3), b(f, 4, 3)), 0, i), (4, 3), 7, lambda v, i: v["b"]
    ),
    "taken along the rows, reshaped": (
        lambda f: ig.reshape(ig.take_along_dim(e(f, 7, 3), index(f, 4, 3), 0), 12) + 1.0, (4, 3), 7,
        lambda v, i: np.take_along_axis(np.exp(v["x"]), i, 0).reshape(12) + 1,
    ),
    "one index for all columns": (
        lambda f: ig.take_along_dim(e(f, 7, 3), index(f, 4, 1), 0), (4, 1), 7, lambda v, i: np.exp(v["x"])[i[:, 0]]
    ),
    "a cut of a scatter": (
        lambda f: ig.scatter(x(f, 7, 3), 0, index(f, 4, 3), b(f, 4, 3))[2:5] * 2.0, (4, 3), 7,
        lambda v, i: 2 * put(v["x"], i, v["b"], 0)[2:5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", ["python", "numpy", "cuda"])
@pytest.mark.parametrize("name", PLACED)
def test_computed_indices(name: str, target: Any) -> None:
    build, shape, limit, compute = PLACED[name]
    f = ig.Fusion(name)
    y = f.output(build(f))
    rng = np.random.default_rng(5)
    i = np.stack([rng.permutation(limit)[: shape[0]] for _ in range(shape[1])], 1)
    one = rng.integers(-24, 24, shape)
    v = {**arrays(f, {}), "i": one, "j": i - one}
    program = ig.emit(f, target)
    same(interpret(program, v) if target == "cuda" else program.run(v), y, compute(v, i))


# ---- devices of two axes: what stays where, and values of all ranks put together ------------------------------------
MESHED: dict[str, tuple[Build, str, bool, Compute]] = {  # on 2 x 2 devices d and s; is the last operation local?
    "both axes": (
        lambda f: ig.exp(x(f).shard(0, "d").shard(1, "s")).T, 'shard(1, "d") shard(0, "s")', True, lambda v: np.exp(v["x"]).T
    ),
    "one axis over both": (
        lambda f: ig.reshape(x(f, 8, 6).shard(0, "d").shard(0, "s"), 4, 2, 6) * 2.0, 'shard(0, "d") shard(0, "s")', True,
        lambda v: 2 * v["x"].reshape(4, 2, 6),
    ),
    "a product of both": (
        lambda f: ig.matmul(x(f).shard(0, "d"), b(f, 8, 4).shard(1, "s")), 'shard(0, "d") shard(1, "s")', True,
        lambda v: v["x"] @ v["b"],
    ),
    "terms over one, rows over the other": (
        lambda f: ig.matmul(x(f).shard(0, "d").shard(1, "s"), b(f, 8, 4).shard(0, "s")), 'shard(0, "d") partial("s", "sum")', True,
        lambda v: v["x"] @ v["b"],
    ),
    "rows of a chunk for each": (
        lambda f: ig.softmax(ig.permute(ig.reshape(x(f).shard(0, "d"), 6, 2, 4), 1, 0, 2), 2), 'shard(1, "d")', True,
        lambda v: (lambda q: q / q.sum(2, keepdims=True))(np.exp(v["x"].reshape(6, 2, 4).transpose(1, 0, 2))),
    ),
    "a cut that each device has": (
        lambda f: x(f).shard(0, "d")[1:5] + 1.0, 'shard(0, "d")', True, lambda v: v["x"][1:5] + 1
    ),
    "a cut that one has not": (lambda f: x(f).shard(0, "d")[2:6] + 1.0, "", False, lambda v: v["x"][2:6] + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MESHED)
def test_devices_of_two_axes(name: str) -> None:
    build, placed, local, compute = MESHED[name]
    f = ig.Fusion(name)
    f.mesh = ig.Mesh(d=2, s=2)
    y = f.output(build(f))
    found = ig.shard.propagate(f)
    steps = [found[t].step for t in f.tensors if t.definition is not None]
    assert (not placed or str(found[y].placement) == placed) and all(s is None or s.is_local for s in steps) == local
    v = arrays(f, {})
    same(ig.shard.emit(f).run(v), y, compute(v))
