"""Facts of nvFuser's tests of 2024 to 2026 once more: loops of resizes and reshapes, broadcasts, strides, scales of
blocks, ragged axes, scatters, devices. Sizes are our own; each fact is NumPy's or a formula at each listed integer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import ScheduleError
from tests.emit.cuda_interpreter import interpret
from tests.index.expected import Case, judged
from tests.index.expected import Expected as E
from tests.schedule.test_expected_by_hand import arrays, definition
from tests.schedule.test_expected_further import Array, Build, Compute, b, e, x


def take(t: ig.Tensor, steps: str) -> ig.Tensor:
    """Schedule steps as words: ``merge 0, split 0 4``."""
    for name, *numbers in (step.split() for step in steps.split(", ")):
        getattr(t, name)(*map(int, numbers))
    return t


def one_nest(f: ig.Fusion, y: ig.Tensor, steps: str) -> None:  # all that is computed at the innermost of its loops
    take(y, steps)
    assert ig.schedule.like(f, y) == () and ig.schedule.inline_most(f) == ()


def agree(f: ig.Fusion, y: ig.Tensor, compute: Compute) -> None:
    """The values, of plain loops, of whole arrays and of each thread of the CUDA text; offsets o and indices i + j."""
    i, one = np.argsort(np.random.default_rng(5).random((7, 3)), 0)[:4], np.arange(12).reshape(4, 3) - 6
    v = {**arrays(f, {}), "o": np.array([0, 3, 3, 9]), "i": one, "j": i - one}
    v, want = {t.name: v[t.name] for t in f.inputs}, compute({**v, "at": i})
    for target in ("python", "numpy", "cuda"):
        program = ig.emit(f, target)
        found = np.asarray((interpret(program, v) if target == "cuda" else program.run(v))[y.name])
        assert found.shape == np.shape(want)
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def ex(v: Mapping[str, Array]) -> Array:
    return np.exp(v["x"])


NESTS: dict[str, tuple[Build, str, Compute]] = {
    "halves padded back": (lambda f: (lambda t: ig.pad(t[:5], (0, 5)) + ig.pad(t[5:] * 2.0, (5, 0)))(e(f, 10)),
        "split 0 3", lambda v: ex(v) * np.repeat([1, 2], 5)),
    "the left half": (lambda f: ig.pad(e(f, 10)[:5], (0, 5)), "split 0 4", lambda v: ex(v) * np.repeat([1, 0], 5)),
    "the right half": (lambda f: ig.pad(e(f, 10)[5:], (5, 0)), "split 0 4", lambda v: ex(v) * np.repeat([0, 1], 5)),
    "parts joined": (lambda f: (lambda t: ig.cat([t[:2] + 1.0, t[2:4] + 2.0, t[4:]], 0))(e(f, 9)), "split 0 4",
        lambda v: ex(v) + np.repeat([1, 2, 0], [2, 2, 5])),
    "a pad between operations": (lambda f: ig.pad(e(f, 21), (1, 1)) + 1.0, "split 0 8", lambda v: np.pad(ex(v), 1) + 1),
    "a cat of broadcasts": (lambda f: ig.cat([ig.expand(e(f, 1, 4), (3, 4)), ig.expand(b(f, 3, 1), (3, 4))], 1),
        "merge 0, split 0 5", lambda v: np.concatenate([np.tile(ex(v), (3, 1)), np.tile(v["b"], 4)], 1)),
    "a part of a reshape of a pad": (lambda f: ig.reshape(ig.pad(e(f, 10), (1, 1)), 3, 4)[1:, 1:3] + 1.0,
        "merge 0, split 0 3", lambda v: np.pad(ex(v), 1).reshape(3, 4)[1:, 1:3] + 1),
    "outermost and innermost merged": (lambda f: ig.exp(ig.sin(x(f, 3, 4, 5))), "merge 0 2, split 0 4",
        lambda v: np.exp(np.sin(v["x"]))),
    "a row between merged axes": (lambda f: ig.unsqueeze(e(f, 7), (0, 2)) + b(f, 2, 7, 3),
        "merge 0, merge 0, split 0 2, split 0 3", lambda v: ex(v)[:, None] + v["b"]),
    "broadcasts of broadcasts": (lambda f: (ig.unsqueeze(e(f, 5), 1) + b(f, 5, 3)) + f.input("c", (4, 5, 3)),
        "split 1 4, merge 2, merge 0", lambda v: ex(v)[:, None] + v["b"] + v["c"]),
    "merged pairs around a row": (lambda f: ig.unsqueeze(e(f, 4), (0, 2, 3)) + b(f, 3, 4, 2, 5),
        "merge 0, merge 1, split 1 4, split 0 1", lambda v: ex(v)[:, None, None] + v["b"]),
    "an expanded row reshaped": (lambda f: ig.reshape(ig.expand(e(f, 1, 5), (4, 5)), 2, 10) + b(f, 2, 10),
        "merge 0, split 0 3", lambda v: np.tile(ex(v), (4, 1)).reshape(2, 10) + v["b"]),
    "a scalar": (lambda f: e(f, 23)[1:22] * ig.sin(f.input("c", ())), "split 0 8",
        lambda v: ex(v)[1:22] * np.sin(v["c"])),
    "grown loops": (lambda f: e(f, 10) * 2.0, "resize 0 3 2, split 0 4", lambda v: 2 * ex(v)),
    "grown and cut back": (lambda f: e(f, 10) * 2.0, "resize 0 2 1, resize 0 -2 -1, split 0 4", lambda v: 2 * ex(v)),
    "cut less than grown": (lambda f: e(f, 10) * 2.0, "split 0 4, resize 1 1 2, resize 1 0 1, resize 1 -1 -2",
        lambda v: 2 * ex(v)),
    "a slice in loops of its source": (lambda f: e(f, 5, 6)[1:4, 2:] * 2.0,
        "resize 0 1 1, resize 1 2 0, merge 0, split 0 7", lambda v: 2 * ex(v)[1:4, 2:]),
}  # fmt: skip


@pytest.mark.parametrize("name", NESTS)
def test_one_nest(name: str) -> None:
    build, steps, compute = NESTS[name]
    f = ig.Fusion(name)
    y = f.output(build(f))
    one_nest(f, y, steps)
    y.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    agree(f, y, compute)


@pytest.mark.parametrize(
    "steps", ["resize 0 2 1, resize 0 -3 -1", "resize 0 -2 -1, resize 0 2 1", "resize 0 5 0, resize 0 -3 -2"]
)
def test_loops_that_do_not_reach_all(steps: str) -> None:
    f = ig.Fusion("f")
    take(f.output(e(f, 10)), steps)
    with pytest.raises(ScheduleError, match="computes a part of it only"):
        ig.IdModel(f).verify()


@pytest.mark.parametrize("number", range(8))
def test_any_reference(number: int) -> None:
    """Twelve elements reshaped on two ways and added: each tensor's axes as loops of all."""
    f = ig.Fusion("f")
    ways = [e(f, 12)]
    for at, *shape in ((0, 3, 4), (1, 3, 2, 2), (2, 6, 2), (3, 12), (0, 4, 3), (5, 12)):
        ways.append(ig.reshape(ways[at], *shape))
    ways.append(f.output(ways[4] + ways[6]))
    assert ig.schedule.like(f, reference := ways[number]) == () and ig.schedule.inline_most(f) == ()
    same = ig.IdModel(f).almost_exact.mapped
    for t in ways:
        assert all(same(p, q) for p, q in zip(t.loop, reference.logical, strict=True))
        assert t.inline_position == (0 if t is ways[-1] else len(t.loop))
    agree(f, ways[-1], lambda v: 2 * ex(v))


def test_parts_of_a_head_rotated_by_hand() -> None:
    f = ig.Fusion("rope")
    a = e(f, 12)
    head, tail = a[:8], a[8:]
    one, two = head[:4], head[4:]
    changed = one + 1.0, two + 2.0
    pads = ig.pad(changed[0], (0, 4)), ig.pad(changed[1], (4, 0))
    joined = pads[0] + pads[1]
    y = f.output(ig.pad(joined, (0, 4)) + ig.pad(tail, (8, 0)))
    for t in (head, one, two, tail):
        t.set_loop(t.root)
    changed[0].resize(0, 0, 4)
    changed[1].resize(0, 4, 0)
    for t in (one, two, *changed, *pads, joined):
        t.resize(0, 0, 4)
    for t in (t for t in f.tensors if t.definition):
        take(t, "split 0 5").parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    assert ig.schedule.inline_most(f) == ()
    agree(f, y, lambda v: ex(v) + np.repeat([1, 2, 0], 4))


# ---- indices and predicates: equal at all points, never costlier; oracle behind -------------------------------------
INDEXED: dict[str, tuple[Build, str, tuple[E, ...]]] = {
    "a rest of a rest": (lambda f: ig.copy(x(f, 10), name="t"), "split 0 3, split 1 2",
        (E("t", "x", "i0*3 + (i1*2 + i2)", "(i0*3 + (i1*2 + i2) < 10) & (i1*2 + i2 < 3)"),)),
    "a slice where its source is": (lambda f: ig.copy(ig.slice(x(f, 23), 0, 1, 22, name="s"), name="t"),
        "resize 0 1 1, split 0 8",
        (E("s", "x", "i0*8 + i1", "(i0*8 + i1 >= 1) & (i0*8 + i1 < 22)", only_inside=True),
         E("t", "t", "i0*8 + i1 - 1", "(i0*8 + i1 >= 1) & (i0*8 + i1 < 22)", only_inside=True))),
    "a row and a column": (
        lambda f: ig.add(ig.exp(x(f, 4), name="r"), ig.unsqueeze(ig.exp(b(f, 3), name="c"), 1), name="t"),
        "merge 0, split 0 5", (E("r", "x", "(i0*5 + i1)%4", "i0*5 + i1 < 12"),
        E("c", "b", "(i0*5 + i1)//4", "i0*5 + i1 < 12"), E("t", "t", "i0*5 + i1", "i0*5 + i1 < 12"))),
    "reshaped there and back": (lambda f: ig.reshape(ig.reshape(ig.exp(x(f, 10), name="s"), 2, 5), 10, name="t"),
        "split 0 3", (E("t", "t", "i0*3 + i1", "i0*3 + i1 < 10"), E("s", "x", "i0*3 + i1", "i0*3 + i1 < 10"))),
    "a sum of merged axes": (lambda f: ig.sum(x(f, 2, 3, 4), (1, 2), name="t"), "merge 1, split 1 5",
        (E("t", "x", "i0*12 + i1*5 + i2", "i1*5 + i2 < 12"),)),
    "rows with gaps": (lambda f: (lambda t: t.set_allocation(t.logical, strides=[8, 1]))(ig.copy(x(f, 3, 5), name="t")),
        "merge 0, split 0 4", (E("t", "t", "(i0*4 + i1)//5*8 + (i0*4 + i1)%5", "i0*4 + i1 < 15"),)),
    "halves exchanged": (
        lambda f: (lambda a: ig.add(a, ig.cat([ig.slice(a, 0, 4, 8, name="p"), a[:4]], 0), name="t"))(x(f, 8)),
        "split 0 3", (E("p", "x", "i0*3 + i1 + 4", "i0*3 + i1 < 4"), E("t", "x", "i0*3 + i1", "i0*3 + i1 < 8"))),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXED)
def test_indices(name: str) -> None:
    build, steps, expected = INDEXED[name]
    assert judged(name, Case(name, lambda f: one_nest(f, f.output(build(f)), steps), expected)) == []


WIDTHS: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], int]] = {  # of reading x, float32, 6 rows of 16
    "a slice at 4": (lambda t: t[:, 4:12], 4), "a slice at 2": (lambda t: t[:, 2:10], 2), "rows": (lambda t: t[1:4], 4),
    "six of a row": (lambda t: t[:, :6], 2), "a pad by 2": (lambda t: ig.pad(t, (2, 2)), 2),
    "a pad by 4 and 8": (lambda t: ig.pad(t, (4, 8)), 4), "a pad behind": (lambda t: ig.pad(t, (0, 3)), 1),
    "a roll by 4": (lambda t: ig.roll(t, 4, 1), 4), "every second": (lambda t: t[:, ::2], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", WIDTHS)
def test_vectors_of_resizes(name: str) -> None:
    f = ig.Fusion("f")
    t = x(f, 6, 16)
    assert ig.IdModel(f).access(definition(f.output(WIDTHS[name][0](t))), t).vector_width(1) == WIDTHS[name][1]


@pytest.mark.parametrize(("rows", "columns"), [(512, 9), (200, 4), (130, 6)])
def test_scales_of_blocks(rows: int, columns: int) -> None:
    """Block128x4: scale (r, c) lies at 32 rows by 4 by 4 of its tile of 128 by 4; what lies between are holes."""
    f = ig.Fusion("scales")
    t = ig.reshape(x(f, rows, columns * 16), rows, columns, 16)
    scale = ig.amax(t, 2)
    y, _ = f.output(t / ig.unsqueeze(scale, 2)), f.output(scale)
    scale.set_allocation(ig.layout.blocked(scale, rows=128, columns=4))
    blocks = np.arange(1, rows * columns * 16 + 1, dtype=np.float32).reshape(rows, columns, 16)
    found = ig.emit(f, "numpy").run({"x": blocks.reshape(rows, -1)}, raw=True)
    np.testing.assert_allclose(np.ravel(np.asarray(found[y.name].buffer)), (blocks / blocks[:, :, -1:]).ravel())
    r, c = np.indices((rows, columns))
    at = (r // 128 * -(-columns // 4) + c // 4) * 512 + r % 32 * 16 + r // 32 % 4 * 4 + c % 4
    np.testing.assert_array_equal(np.ravel(np.asarray(found[scale.name].buffer))[at], blocks[:, :, -1])


# ---- ragged axes: rows 0 to 3, none, 3 to 9; scatters and gathers at a sum of two indices: 4 of 7 rows --------------
def u(f: ig.Fusion) -> ig.Tensor:
    return ig.partition(e(f, 9, 2), 0, f.input("o", (4,), "int64"))


def at(f: ig.Fusion) -> ig.Tensor:
    return f.input("i", (4, 3), "int64") + f.input("j", (4, 3), "int64")


LOADED: dict[str, tuple[Build, Compute]] = {
    "there and back": (lambda f: ig.combine(u(f)), ex),
    "sums of rows": (lambda f: ig.sum(u(f), 1), lambda v: np.stack([r.sum(0) for r in np.split(ex(v), [3, 3])])),
    "rows without their sums": (lambda f: (lambda t: ig.combine(t - ig.sum(t, 1, keepdim=True)))(u(f)),
        lambda v: np.concatenate([r - r.sum(0) for r in np.split(ex(v), [3, 3])])),
    "a cut of what is combined": (lambda f: ig.combine(u(f) * 2.0)[2:7], lambda v: 2 * ex(v)[2:7]),
    "scattered over zeros": (lambda f: ig.scatter(ig.full((7, 3), 0.0, fusion=f), 0, at(f), ig.exp(b(f, 4, 3))),
        lambda v: ((v["at"] == np.arange(7)[:, None, None]) * np.exp(v["b"])).sum(1)),
    "read where it was written": (lambda f: ig.gather(ig.scatter(x(f, 7, 3), 0, i := at(f), b(f, 4, 3)), 0, i),
        lambda v: v["b"]),
    "taken and reshaped": (lambda f: ig.reshape(ig.take_along_dim(e(f, 7, 3), at(f), 0), 12) + 1.0,
        lambda v: np.take_along_axis(ex(v), v["at"], 0).reshape(12) + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_loaded_axes_and_indices(name: str) -> None:
    f = ig.Fusion(name)
    agree(f, f.output(LOADED[name][0](f)), LOADED[name][1])


# ---- devices of two axes: is nothing moved, and values of all ranks put together ------------------------------------
MESHED: dict[str, tuple[Build, str, bool, Compute]] = {
    "both axes": (lambda f: ig.exp(x(f).shard(0, "d").shard(1, "s")).T, 'shard(1, "d") shard(0, "s")', True,
        lambda v: ex(v).T),
    "one axis over both": (lambda f: ig.reshape(x(f, 8, 6).shard(0, "d").shard(0, "s"), 4, 2, 6) * 2.0,
        'shard(0, "d") shard(0, "s")', True, lambda v: 2 * v["x"].reshape(4, 2, 6)),
    "terms over one": (lambda f: ig.matmul(x(f).shard(0, "d").shard(1, "s"), b(f, 8, 4).shard(0, "s")),
        'shard(0, "d") partial("s", "sum")', True, lambda v: v["x"] @ v["b"]),
    "a cut that each has": (lambda f: e(f).shard(0, "d")[1:5], 'shard(0, "d")', True, lambda v: ex(v)[1:5]),
    "a cut that one has not": (lambda f: x(f).shard(0, "d")[2:6], 'shard(0, "d")', False, lambda v: v["x"][2:6]),
}  # fmt: skip


@pytest.mark.parametrize("name", MESHED)
def test_devices_of_two_axes(name: str) -> None:
    build, placed, local, compute = MESHED[name]
    f = ig.Fusion(name)
    f.mesh = ig.Mesh(d=2, s=2)
    y = f.output(build(f))
    found, v = ig.shard.propagate(f)[y], arrays(f, {})
    assert (str(found.placement), found.step is not None and found.step.is_local) == (placed, local)
    np.testing.assert_allclose(np.asarray(ig.shard.emit(f).run(v)[y.name]), compute(v), rtol=2e-5)
