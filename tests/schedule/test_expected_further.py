"""More of what nvFuser's tests of 2024 to 2026 ask, as tables: values in one nest, addresses, shared memory of views,
mapped axes, placements. Inputs are our own, and each expectation was worked out by hand or is NumPy's.

Long: tables, each entry short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from tests.emit.cuda_interpreter import interpret
from tests.schedule.test_expected_by_hand import definition

Array = Any
Build = Callable[[ig.Fusion], ig.Tensor]
Compute = Callable[[Mapping[str, Array]], Array]


def x(f: ig.Fusion, *shape: int) -> ig.Tensor:
    return f.input("x", shape or (6, 8))


def b(f: ig.Fusion, *shape: int) -> ig.Tensor:
    return f.input("b", shape or (6, 8))


def e(f: ig.Fusion, *shape: int) -> ig.Tensor:
    """What is computed of the input, so that a producer stands before the operation asked about."""
    return ig.exp(x(f, *shape))


def e2(f: ig.Fusion) -> ig.Tensor:
    return ig.exp(b(f))


def rotated(t: ig.Tensor, axis: int, half: int) -> ig.Tensor:
    front, behind = (t[:half], t[half:]) if axis == 0 else (t[:, :half], t[:, half:])
    return ig.cat([-behind, front], axis)


def np_rotated(a: Array, axis: int, half: int) -> Array:
    front, behind = np.split(a, [half], axis)
    return np.concatenate([-behind, front], axis)


# ---- values: the last tensor's loops merged, split with a rest, and followed by all others --------------------------
NESTS: dict[str, tuple[Build, Compute]] = {
    # resize
    "pad of both axes": (lambda f: ig.pad(e(f), (1, 2, 3, 0)), lambda v: np.pad(np.exp(v["x"]), ((3, 0), (1, 2)))),
    "pad then slice inside": (
        lambda f: ig.pad(e(f), (2, 2))[:, 1:9],
        lambda v: np.pad(np.exp(v["x"]), ((0, 0), (2, 2)))[:, 1:9],
    ),
    "slice then pad back": (
        lambda f: ig.pad(e(f)[1:5], (0, 0, 1, 1)),
        lambda v: np.pad(np.exp(v["x"])[1:5], ((1, 1), (0, 0))),
    ),
    "pad with a value, summed": (
        lambda f: ig.pad(e(f), (1, 1), 2.0) + ig.pad(b(f), (0, 2), 3.0),
        lambda v: (
            np.pad(np.exp(v["x"]), ((0, 0), (1, 1)), constant_values=2)
            + np.pad(v["b"], ((0, 0), (0, 2)), constant_values=3)
        ),
    ),
    "pads that overlap": (
        lambda f: ig.pad(e(f)[:, :5], (0, 3)) + ig.pad(e2(f)[:, 3:], (3, 0)),
        lambda v: np.pad(np.exp(v["x"])[:, :5], ((0, 0), (0, 3))) + np.pad(np.exp(v["b"])[:, 3:], ((0, 0), (3, 0))),
    ),
    "slice of a slice": (lambda f: e(f)[1:][:3] * 2.0, lambda v: 2 * np.exp(v["x"])[1:4]),
    "slice with steps": (lambda f: e(f)[::2, 1::3] + 1.0, lambda v: np.exp(v["x"])[::2, 1::3] + 1),
    "slices of one tensor added": (
        lambda f: (lambda t: t[:, 1:7] + t[:, 2:])(e(f)),
        lambda v: np.exp(v["x"])[:, 1:7] + np.exp(v["x"])[:, 2:],
    ),
    "three windows": (
        lambda f: (lambda t: t[:, :6] + t[:, 1:7] + t[:, 2:])(e(f)),
        lambda v: sum(np.exp(v["x"])[:, k : k + 6] for k in range(3)),
    ),
    "cat of three": (
        lambda f: (lambda t: ig.cat([t[:2], t[3:], t[1:2]], 0))(e(f)),
        lambda v: np.exp(v["x"])[[0, 1, 3, 4, 5, 1]],
    ),
    "cat of computed and given": (
        lambda f: ig.cat([e(f), b(f)], 1) * 2.0,
        lambda v: 2 * np.concatenate([np.exp(v["x"]), v["b"]], 1),
    ),
    "cat of a sum": (
        lambda f: (lambda t: ig.cat([t, ig.sum(t, 1, keepdim=True)], 1))(e(f)),
        lambda v: np.concatenate([np.exp(v["x"]), np.exp(v["x"]).sum(1, keepdims=True)], 1),
    ),
    "sum of a cat": (lambda f: ig.sum(ig.cat([e(f), b(f)], 0), 0), lambda v: np.exp(v["x"]).sum(0) + v["b"].sum(0)),
    "pad of a broadcast": (
        lambda f: ig.pad(ig.expand(ig.unsqueeze(e(f, 8), 0), (6, 8)), (1, 0)) + 1.0,
        lambda v: np.pad(np.broadcast_to(np.exp(v["x"]), (6, 8)), ((0, 0), (1, 0))) + 1,
    ),
    "pad a row of one": (
        lambda f: ig.pad(e(f, 1, 8), (0, 0, 2, 3)),
        lambda v: np.pad(np.exp(v["x"]), ((2, 3), (0, 0))),
    ),
    "cut to one element": (lambda f: e(f)[2:3] + b(f), lambda v: np.exp(v["x"])[2:3] + v["b"]),
    "roll of both axes": (
        lambda f: ig.roll(e(f), (2, -3), (0, 1)) + b(f),
        lambda v: np.roll(np.exp(v["x"]), (2, -3), (0, 1)) + v["b"],
    ),
    "flip against itself": (
        lambda f: (lambda t: t + ig.flip(t, (1,)))(e(f)),
        lambda v: np.exp(v["x"]) + np.exp(v["x"])[:, ::-1],
    ),
    # move_split_cat
    "split and cat in order": (lambda f: (lambda t: ig.cat([t[:, :3], t[:, 3:]], 1))(e(f)), lambda v: np.exp(v["x"])),
    "split, negated, cat": (lambda f: (lambda t: ig.cat([-t[:, :3], -t[:, 3:]], 1))(e(f)), lambda v: -np.exp(v["x"])),
    "split, transposed, cat": (
        lambda f: (lambda t: ig.cat([t[:, :4].T, t[:, 4:].T], 0))(e(f)),
        lambda v: np.exp(v["x"]).T,
    ),
    "split, reshaped, cat": (
        lambda f: (lambda t: ig.cat([ig.reshape(t[:2], 2, 2, 4), ig.reshape(t[2:], 4, 2, 4)], 0))(e(f)),
        lambda v: np.exp(v["x"]).reshape(6, 2, 4),
    ),
    "split with one part twice": (
        lambda f: (lambda t: ig.cat([t[:, :4], t[:, :4]], 1))(e(f)),
        lambda v: np.tile(np.exp(v["x"])[:, :4], 2),
    ),
    "split and cat on another axis": (
        lambda f: (lambda t: ig.cat([t[:, :4], t[:, 4:]], 0))(e(f)),
        lambda v: np.concatenate(np.split(np.exp(v["x"]), 2, 1), 0),
    ),
    "split and cat with a gap": (
        lambda f: (lambda t: ig.cat([t[:, :2], t[:, 5:]], 1))(e(f)),
        lambda v: np.exp(v["x"])[:, [0, 1, 5, 6, 7]],
    ),
    # rope
    "halves rotated": (
        lambda f: (lambda t: t * b(f) + rotated(t, 1, 4) * f.input("c", (6, 8)))(e(f)),
        lambda v: np.exp(v["x"]) * v["b"] + np_rotated(np.exp(v["x"]), 1, 4) * v["c"],
    ),
    "rows rotated": (
        lambda f: (lambda t: t + rotated(t, 0, 3))(e(f)),
        lambda v: np.exp(v["x"]) + np_rotated(np.exp(v["x"]), 0, 3),
    ),
    "rotated twice": (lambda f: rotated(rotated(e(f), 1, 4), 1, 4) * 1.0, lambda v: -np.exp(v["x"])),
    "a part rotated": (
        lambda f: (lambda t: ig.cat([rotated(t[:, :4], 1, 2), t[:, 4:]], 1))(e(f)),
        lambda v: np.concatenate([np_rotated(np.exp(v["x"])[:, :4], 1, 2), np.exp(v["x"])[:, 4:]], 1),
    ),
    "interleaved": (
        lambda f: (lambda t: ig.reshape(ig.stack([-t[:, 1::2], t[:, ::2]], 2), 6, 8) + t)(e(f)),
        lambda v: np.stack([-np.exp(v["x"])[:, 1::2], np.exp(v["x"])[:, ::2]], 2).reshape(6, 8) + np.exp(v["x"]),
    ),
    "rotated heads": (
        lambda f: (lambda t: ig.reshape(t + ig.cat([-t[:, :, 2:], t[:, :, :2]], 2), 6, 8))(ig.reshape(e(f), 6, 2, 4)),
        lambda v: (lambda t: (t + np.concatenate([-t[..., 2:], t[..., :2]], 2)).reshape(6, 8))(
            np.exp(v["x"]).reshape(6, 2, 4)
        ),
    ),
    # reshape
    "merge of all": (lambda f: ig.reshape(e(f), 48) + 1.0, lambda v: np.exp(v["x"]).reshape(48) + 1),
    "split of both": (lambda f: ig.reshape(e(f), 2, 3, 4, 2) * 2.0, lambda v: 2 * np.exp(v["x"]).reshape(2, 3, 4, 2)),
    "across the boundary": (lambda f: ig.reshape(e(f), 4, 12) * 2.0, lambda v: 2 * np.exp(v["x"]).reshape(4, 12)),
    "transposed, then merged": (lambda f: ig.reshape(e(f).T, 48) - 1.0, lambda v: np.exp(v["x"]).T.reshape(48) - 1),
    "reshape of a sum": (
        lambda f: ig.reshape(ig.sum(e(f), 1), 2, 3) + 1.0,
        lambda v: np.exp(v["x"]).sum(1).reshape(2, 3) + 1,
    ),
    "sum of a reshape": (lambda f: ig.sum(ig.reshape(e(f), 12, 4), 0), lambda v: np.exp(v["x"]).reshape(12, 4).sum(0)),
    "sum over a merged axis": (
        lambda f: ig.sum(ig.reshape(e(f, 2, 3, 8), 6, 8), 0),
        lambda v: np.exp(v["x"]).sum((0, 1)),
    ),
    "with an axis of one": (
        lambda f: ig.reshape(e(f), 6, 1, 8) + f.input("c", (6, 5, 1)),
        lambda v: np.exp(v["x"])[:, None] + v["c"],
    ),
    "pad of a reshape": (
        lambda f: ig.pad(ig.reshape(e(f), 4, 12), (1, 1)),
        lambda v: np.pad(np.exp(v["x"]).reshape(4, 12), ((0, 0), (1, 1))),
    ),
    "reshape of a pad": (
        lambda f: ig.reshape(ig.pad(e(f), (1, 3)), 9, 8) * 2.0,
        lambda v: 2 * np.pad(np.exp(v["x"]), ((0, 0), (1, 3))).reshape(9, 8),
    ),
    "two ways to one shape": (
        lambda f: (lambda t: ig.reshape(ig.reshape(t, 48), 4, 12) + ig.reshape(ig.reshape(t, 2, 24), 4, 12))(e(f)),
        lambda v: 2 * np.exp(v["x"]).reshape(4, 12),
    ),
    "repeated rows": (lambda f: ig.repeat(e(f), (2, 1)) + 1.0, lambda v: np.tile(np.exp(v["x"]), (2, 1)) + 1),
    "each element twice": (
        lambda f: ig.reshape(ig.expand(ig.unsqueeze(e(f), 2), (6, 8, 2)), 6, 16) + 1.0,
        lambda v: np.repeat(np.exp(v["x"]), 2, 1) + 1,
    ),
    # loop domains of reductions and broadcasts
    "softmax": (lambda f: ig.softmax(x(f), 1), lambda v: (lambda q: q / q.sum(1, keepdims=True))(np.exp(v["x"]))),
    "mean of columns": (lambda f: x(f) - ig.mean(b(f), 0, True), lambda v: v["x"] - v["b"].mean(0, keepdims=True)),
    "outer product": (
        lambda f: ig.unsqueeze(e(f, 6), 1) * f.input("c", (8,)),
        lambda v: np.exp(v["x"])[:, None] * v["c"],
    ),
    "a row for three axes": (lambda f: e(f, 8) + f.input("c", (2, 3, 8)), lambda v: np.exp(v["x"]) + v["c"]),
    "scan along rows": (lambda f: ig.cumsum(e(f), 1) * 2.0, lambda v: 2 * np.cumsum(np.exp(v["x"]), 1)),
    "a column for all": (lambda f: e(f, 6, 1) + b(f), lambda v: np.exp(v["x"]) + v["b"]),
}


def data(f: ig.Fusion) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    return {t.name: (rng.integers(-16, 17, tuple(int(n) for n in t.shape)) / 8).astype(np.float32) for t in f.inputs}


@pytest.mark.parametrize("target", ["python", "cuda"])
@pytest.mark.parametrize("name", NESTS)
def test_values_in_one_nest(name: str, target: Any) -> None:
    build, compute = NESTS[name]
    f = ig.Fusion("f")
    y = f.output(build(f))
    if definition(y).op in ("sum", "cumsum"):
        y.parallelize(next(k for k, d in enumerate(y.loop) if d.kind != "reduction"), "blockIdx.x")
    else:
        while len(y.loop) > 1:
            y.merge(0)
        y.split(0, 7).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
        ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    f.verify()
    v = data(f)
    program = ig.emit(f, target)
    found = interpret(program, v) if target == "cuda" else program.run(v)
    np.testing.assert_allclose(np.asarray(found[y.name]), compute(v), rtol=2e-5, atol=2e-5)


# ---- addresses: where an element of a computed tensor lies, and what of the input is read for it --------------------
Address = Callable[[int, int], int]
READS: dict[str, tuple[Build, tuple[int, int], Address]] = {  # of `x`, 6 rows of 8, by coordinates of the result
    "a transpose": (lambda f: ig.copy(x(f).T), (8, 6), lambda i, j: j * 8 + i),
    "a slice": (lambda f: ig.copy(x(f)[2:, 3:]), (4, 5), lambda i, j: (i + 2) * 8 + j + 3),
    "every second column, backwards": (
        lambda f: ig.copy(ig.flip(x(f)[:, 1::2], (1,))),
        (6, 4),
        lambda i, j: i * 8 + 7 - 2 * j,
    ),
    "a reshape": (lambda f: ig.copy(ig.reshape(x(f), 4, 12)), (4, 12), lambda i, j: i * 12 + j),
    "a reshape of a transpose": (
        lambda f: ig.copy(ig.reshape(x(f).T, 12, 4)),
        (12, 4),
        lambda i, j: ((i * 4 + j) % 6) * 8 + (i * 4 + j) // 6,
    ),
    "rows rolled": (lambda f: ig.copy(ig.roll(x(f), 2, 0)), (6, 8), lambda i, j: (i - 2) % 6 * 8 + j),
    "columns rolled back": (lambda f: ig.copy(ig.roll(x(f), -3, 1)), (6, 8), lambda i, j: i * 8 + (j + 3) % 8),
    "a row for all": (lambda f: ig.copy(ig.expand(x(f)[2:3], (5, 8))), (5, 8), lambda i, j: 16 + j),
    "a part of a reshape": (
        lambda f: ig.copy(ig.reshape(x(f), 3, 16)[1:, 4:12]),
        (2, 8),
        lambda i, j: (i + 1) * 16 + j + 4,
    ),
    "rows twice": (lambda f: ig.copy(ig.repeat(x(f), (2, 1))), (12, 8), lambda i, j: i % 6 * 8 + j),
    "one of a stack": (
        lambda f: ig.copy(ig.select(ig.reshape(x(f), 3, 2, 8), 1, 1)),
        (3, 8),
        lambda i, j: (2 * i + 1) * 8 + j,
    ),
    "a slice of a flip": (lambda f: ig.copy(ig.flip(x(f), (0,))[1:3]), (2, 8), lambda i, j: (4 - i) * 8 + j),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_read(name: str) -> None:
    build, shape, address = READS[name]
    f = ig.Fusion("f")
    y = f.output(build(f))
    assert y.shape == shape
    ig.schedule.inline_most(f)
    flat = np.arange(48, dtype=np.float32).reshape(6, 8)
    want = [[address(i, j) for j in range(shape[1])] for i in range(shape[0])]
    assert ig.emit(f, "python").run({"x": flat})[y.name].tolist() == want
    m = ig.IdModel(f)
    (e,) = [q for q in f.exprs if f["x"] in q.inputs]
    read = m.access(e, f["x"])  # of the operation that reads the input, at its own loops: an element that is there
    names = [v.name for v in read.loops]
    bounds = [range(int(v.extent)) for v in read.loops]
    for point in np.ndindex(*(len(r) for r in bounds)):
        env = dict(zip(names, point, strict=True))
        if bool(read.predicate.evaluate(env)) if read.predicate.cond else True:
            assert 0 <= int(read.address.evaluate(env)) < 48


Place = Callable[[ig.Tensor], object]
STORED: dict[str, tuple[Place, Callable[[int, int], int]]] = {  # of a computed tensor of 6 rows of 8
    "by columns": (lambda t: t.set_allocation(t.logical[::-1]), lambda i, j: j * 6 + i),
    "rows of twelve": (lambda t: t.set_allocation(t.logical, strides=[12, 1]), lambda i, j: 12 * i + j),
    "columns of seven": (lambda t: t.set_allocation(t.logical[::-1], strides=[7, 1]), lambda i, j: 7 * j + i),
    "both with gaps": (lambda t: t.set_allocation(t.logical, strides=[40, 3]), lambda i, j: 40 * i + 3 * j),
    "tiles of 2 by 4": (
        lambda t: (t.split(1, 4), t.split(0, 2), t.set_allocation([t.loop[0], t.loop[2], t.loop[1], t.loop[3]])),
        lambda i, j: (i // 2 * 2 + j // 4) * 8 + i % 2 * 4 + j % 4,
    ),
    "columns in halves": (
        lambda t: (t.split(1, 4), t.set_allocation([t.loop[1], t.loop[0], t.loop[2]])),
        lambda i, j: j // 4 * 24 + i * 4 + j % 4,
    ),
    "rows in pairs, dealt": (
        lambda t: (t.split(0, 2), t.set_allocation([t.loop[1], t.loop[0], t.loop[2]])),
        lambda i, j: i % 2 * 24 + i // 2 * 8 + j,
    ),
    "blocks of 3 by 4": (
        lambda t: t.set_allocation(ig.layout.blocked(t, rows=3, columns=4)),
        lambda i, j: (i // 3 * 2 + j // 4) * 12 + i % 3 * 4 + j % 4,
    ),
    "blocks that do not divide": (
        lambda t: t.set_allocation(ig.layout.blocked(t, rows=4, columns=3)),
        lambda i, j: (i // 4 * 3 + j // 3) * 12 + i % 4 * 3 + j % 3,
    ),
    "lanes of a tile": (
        lambda t: t.set_allocation(ig.layout.blocked(t, rows=6, columns=4, lanes=2)),
        lambda i, j: j // 4 * 24 + i % 2 * 12 + i // 2 * 4 + j % 4,
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_where_it_is_stored(name: str) -> None:
    place, address = STORED[name]
    f = ig.Fusion("f")
    t = f.output(ig.exp(x(f)))
    place(t)
    v = data(f)
    raw = ig.emit(f, "python").run(v, raw=True)[t.name]
    flat = np.asarray(raw.buffer).ravel()
    for i, j in np.ndindex(6, 8):
        np.testing.assert_allclose(flat[address(i, j)], np.exp(v["x"][i, j]), rtol=1e-6)


# ---- mapped axes ----------------------------------------------------------------------------------------------------
Pair = Callable[[ig.Fusion], tuple[ig.IterDomain, ig.IterDomain]]
MAPPED: dict[str, tuple[Pair, str, bool]] = {
    "an operation's axes": (lambda f: (lambda t: (t.axes[0], ig.exp(t).axes[0]))(x(f)), "exact", True),
    "the other axis": (lambda f: (lambda t: (t.axes[0], ig.exp(t).axes[1]))(x(f, 6, 6)), "exact", False),
    "a transpose": (lambda f: (lambda t: (t.axes[0], t.T.axes[1]))(x(f)), "exact", True),
    "operands of a sum": (
        lambda f: (lambda t, u: (f.output(t + u), t.axes[1], u.axes[1])[1:])(x(f), b(f)),
        "exact",
        True,
    ),
    "what two readers give": (lambda f: (lambda t: (ig.exp(t).axes[1], ig.sin(t).axes[1]))(x(f)), "exact", True),
    "a slice's cut axis": (lambda f: (lambda t: (t.axes[1], t[:, 1:].axes[1]))(x(f)), "exact", False),
    "a slice's other axis": (lambda f: (lambda t: (t.axes[0], t[:, 1:].axes[0]))(x(f)), "exact", True),
    "a padded axis": (lambda f: (lambda t: (t.axes[1], ig.pad(t, (1, 0)).axes[1]))(x(f)), "permissive", False),
    "a merged axis and its part": (lambda f: (lambda t: (t.axes[1], ig.reshape(t, 48).axes[0]))(x(f)), "exact", False),
    "two reshapes of one tensor": (
        lambda f: (lambda t: (ig.reshape(t, 48).axes[0], ig.reshape(t, 48).axes[0]))(x(f)),
        "exact",
        True,
    ),
    "there and back": (
        lambda f: (lambda t: (t.axes[0], ig.reshape(ig.reshape(t, 48), 6, 8).axes[0]))(x(f)),
        "almost_exact",
        True,
    ),
    "there and back, other parts": (
        lambda f: (lambda t: (t.axes[0], ig.reshape(ig.reshape(t, 48), 8, 6).axes[1]))(x(f)),
        "almost_exact",
        False,
    ),
    "a broadcast and what it meets": (
        lambda f: (lambda t, u: (f.output(t + u), t.axes[0], u.axes[0])[1:])(x(f, 1, 8), b(f)),
        "exact",
        False,
    ),
    "the same, permissive": (
        lambda f: (lambda t, u: (f.output(t + u), t.axes[0], u.axes[0])[1:])(x(f, 1, 8), b(f)),
        "permissive",
        True,
    ),
    "a gathered axis": (
        lambda f: (lambda t: (t.axes[0], ig.index_select(t, 0, f.input("at", (6,), "int64")).axes[0]))(x(f)),
        "exact",
        False,
    ),
    "the axis of the index": (
        lambda f: (lambda t, i: (i.axes[0], ig.index_select(t, 0, i).axes[0]))(x(f), f.input("at", (4,), "int64")),
        "exact",
        True,
    ),
    "a product's rows": (
        lambda f: (lambda t, u: (t.axes[0], ig.matmul(t, u).axes[0]))(x(f), b(f, 8, 3)),
        "exact",
        True,
    ),
    "a product's shared axis": (
        lambda f: (lambda t, u: (f.output(ig.matmul(t, u)), t.axes[1], u.axes[0])[1:])(x(f), b(f, 8, 3)),
        "exact",
        True,
    ),
    "rows of one table of offsets": (
        lambda f: (lambda o: (ig.partition(x(f, 9), 0, o).axes[1], ig.partition(b(f, 9), 0, o).axes[1]))(
            f.input("o", (4,), "int64")
        ),
        "exact",
        True,
    ),
    "rows of two": (
        lambda f: (
            ig.partition(x(f, 9), 0, f.input("o", (4,), "int64")).axes[1],
            ig.partition(b(f, 9), 0, f.input("p", (4,), "int64")).axes[1],
        ),
        "exact",
        False,
    ),
    "joined halves": (lambda f: (lambda t: (t.axes[1], ig.cat([t[:, :4], t[:, 4:]], 1).axes[1]))(x(f)), "exact", False),
    "a permuted reshape": (
        lambda f: (lambda t: (ig.reshape(t, 6, 2, 4).axes[1], ig.permute(ig.reshape(t, 6, 2, 4), (1, 0, 2)).axes[0]))(
            x(f)
        ),
        "exact",
        True,
    ),
}


@pytest.mark.parametrize("name", MAPPED)
def test_mapped_axes(name: str) -> None:
    build, graph, mapped = MAPPED[name]
    f = ig.Fusion("f")
    one, other = build(f)
    assert getattr(ig.IdModel(f), graph).mapped(one, other) == mapped


# ---- views that are no copies ---------------------------------------------------------------------------------------
ALIASES: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], Callable[[Array], Array], bool]] = {
    "a transpose": (lambda t: t.T, lambda a: a.T, True),
    "a slice of both": (lambda t: t[1:4, 2:7], lambda a: a[1:4, 2:7], True),
    "a step": (lambda t: t[::2, ::3], lambda a: a[::2, ::3], True),
    "a split": (lambda t: ig.reshape(t, 2, 3, 2, 4), lambda a: a.reshape(2, 3, 2, 4), True),
    "a merge": (lambda t: ig.reshape(t, 48), lambda a: a.reshape(48), True),
    "a merge of a transpose": (lambda t: ig.reshape(t.T, 48), lambda a: a.T.reshape(48), False),
    "a merge of a slice": (lambda t: ig.reshape(t[:, :4], 24), lambda a: a[:, :4].reshape(24), False),
    "a merge of whole rows": (lambda t: ig.reshape(t[1:4], 24), lambda a: a[1:4].reshape(24), True),
    "a split of a slice": (lambda t: ig.reshape(t[:, :4], 6, 2, 2), lambda a: a[:, :4].reshape(6, 2, 2), True),
    "one row": (lambda t: ig.select(t, 0, 3), lambda a: a[3], True),
    "an expanded row": (lambda t: ig.expand(t[2:3], (5, 8)), lambda a: np.broadcast_to(a[2:3], (5, 8)), True),
    "a pad": (lambda t: ig.pad(t, (1, 0)), lambda a: np.pad(a, ((0, 0), (1, 0))), False),
    "a roll": (lambda t: ig.roll(t, 1, 0), lambda a: np.roll(a, 1, 0), False),
    "neighbours joined": (lambda t: ig.cat([t[:2], t[2:5]], 0), lambda a: a[:5], True),
    "others joined": (lambda t: ig.cat([t[:2], t[3:5]], 0), lambda a: a[[0, 1, 3, 4]], False),
}


@pytest.mark.parametrize("name", ALIASES)
def test_views_of_the_input(name: str) -> None:
    build, compute, shares = ALIASES[name]
    f = ig.Fusion("f")
    y = f.output(build(x(f)))
    v = data(f)
    p = ig.emit(f, "numpy", views=True)
    found = np.asarray(p.run(v)[y.name])
    np.testing.assert_array_equal(found, compute(v["x"]))
    assert (y.name in p.views) == shares == np.shares_memory(found, v["x"])


# ---- placements that follow, and whether anything moves -------------------------------------------------------------
PLACED: dict[str, tuple[Build, str, bool]] = {  # on two devices d; is the last operation local?
    "pointwise": (lambda f: ig.exp(x(f).shard(0, "d")), 'shard(0, "d")', True),
    "a transpose": (lambda f: x(f).shard(0, "d").T, 'shard(1, "d")', True),
    "a slice of the other axis": (lambda f: x(f).shard(0, "d")[:, 2:], 'shard(0, "d")', True),
    "a split of the sharded axis": (lambda f: ig.reshape(x(f).shard(0, "d"), 2, 3, 8), 'shard(0, "d")', True),
    "a merge with what is inside": (lambda f: ig.reshape(x(f).shard(0, "d"), 48), 'shard(0, "d")', True),
    "heads of columns": (lambda f: ig.reshape(x(f).shard(1, "d"), 6, 2, 4), 'shard(1, "d")', True),
    "a sum of the other axis": (lambda f: ig.sum(x(f).shard(0, "d"), 1), 'shard(0, "d")', True),
    "a sum of the sharded axis": (lambda f: ig.sum(x(f).shard(1, "d"), 1), 'partial("d", "sum")', True),
    "a largest element": (lambda f: ig.amax(x(f).shard(1, "d"), 1), 'partial("d", "max")', True),
    "rows of a product": (lambda f: ig.matmul(x(f).shard(0, "d"), b(f, 8, 3)), 'shard(0, "d")', True),
    "columns of a product": (lambda f: ig.matmul(x(f), b(f, 8, 4).shard(1, "d")), 'shard(1, "d")', True),
    "terms of a product": (
        lambda f: ig.matmul(x(f).shard(1, "d"), b(f, 8, 3).shard(0, "d")),
        'partial("d", "sum")',
        True,
    ),
    "a bias": (lambda f: x(f).shard(1, "d") + f.input("c", (8,)), 'shard(1, "d")', True),
    "a new axis in front": (lambda f: ig.unsqueeze(x(f).shard(0, "d"), 0), 'shard(1, "d")', True),
    "a flip of the other axis": (lambda f: ig.flip(x(f).shard(0, "d"), (1,)), 'shard(0, "d")', True),
    "rows dealt out, merged": (lambda f: ig.exp(x(f).shard(0, "d", inner=True)), 'shard(0, "d", inner=true)', True),
    "a sum of halves": (lambda f: ig.reshape(x(f).shard(1, "d"), 6, 2, 4)[:, 0], "", False),
    "a roll": (lambda f: ig.roll(x(f).shard(0, "d"), 1, 0), "", False),
    "an axis behind that is merged": (lambda f: ig.reshape(x(f).shard(1, "d"), 48), "", False),
    "a relu of a partial sum": (lambda f: ig.relu(ig.sum(x(f).shard(1, "d"), 1)), "", False),
}


@pytest.mark.parametrize("name", PLACED)
def test_placements_follow(name: str) -> None:
    build, placed, local = PLACED[name]
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(d=2)
    y = f.output(build(f))
    found = ig.shard.propagate(f)[y]
    assert (not placed or str(found.placement) == placed) and (found.step is not None and found.step.is_local) == local
    v = data(f)
    want = ig.emit(f, "numpy").run(v)[y.name]
    np.testing.assert_allclose(ig.shard.emit(f).run(v)[y.name], want, rtol=1e-5)
