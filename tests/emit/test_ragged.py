"""Ragged axes against loops over NumPy's rows: values, order, empty rows, and offsets that are none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.index.allocation import live_exprs
from idgraph.ir import Fusion, Tensor
from idgraph.ir.device import TargetName
from idgraph.ir.schedule_log import Memory
from idgraph.kernel.ir import Alloc, Loop, walk
from idgraph.runtime import Program, compile_ptx
from tests.emit.turns import simulated

OFFSETS = ([0, 2, 2, 9], [0, 0, 0, 9], [0, 9, 9, 9], [0, 3, 6, 9])
WRONG = {
    "begins late": ([1, 2, 2, 9], "off holds 1 where a row begins"),
    "falls": ([0, 5, 3, 9], "off holds 3 where a row ends"),
    "ends early": ([0, 3, 6, 8], "off holds 8 where a row ends"),
    "ends late": ([0, 3, 6, 12], "off holds 12 where a row ends"),
    "beyond and back": ([0, 3, 12, 9], "off holds 12 where a row ends"),
    "below zero": ([-1, 3, 3, 9], "off holds -1 where a row begins"),
    "an empty first row begins late": ([2, 2, 3, 9], "off holds 2 where a row begins"),
}
Array = np.ndarray[Any, np.dtype[Any]]
Rows = Sequence[Array]


def flat(rows: Sequence[Array]) -> Array:
    return np.concatenate(rows)


def soft(row: Array) -> Array:
    if not len(row):
        return row
    e = np.exp(row - row.max(0))
    return e / e.sum(0)


def folded(row: Array, f: Callable[[Array], Any], empty: float) -> Any:
    return f(row) if len(row) else empty


CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Rows, Array], Array]]] = {
    "identity": (lambda u, s: ig.combine(u), lambda rows, s: flat(rows)),
    "exp": (lambda u, s: ig.combine(ig.exp(u)), lambda rows, s: np.exp(flat(rows))),
    "scaled": (
        lambda u, s: ig.combine(u * ig.unsqueeze(s, 1)),
        lambda rows, s: flat([r * k for r, k in zip(rows, s, strict=True)]),
    ),
    "sum": (lambda u, s: ig.sum(u, 1), lambda rows, s: np.array([r.sum() for r in rows])),
    "prod": (lambda u, s: ig.prod(u, 1), lambda rows, s: np.array([r.prod() for r in rows])),
    "amax": (lambda u, s: ig.amax(u, -1), lambda rows, s: np.array([folded(r, np.max, -np.inf) for r in rows])),
    "amin": (lambda u, s: ig.amin(u, 1), lambda rows, s: np.array([folded(r, np.min, np.inf) for r in rows])),
    "mean": (lambda u, s: ig.mean(u, 1), lambda rows, s: np.array([folded(r, np.mean, np.nan) for r in rows])),
    "softmax": (lambda u, s: ig.combine(ig.softmax(u, 1)), lambda rows, s: flat([soft(r) for r in rows])),
    "centred": (
        lambda u, s: ig.combine(u - ig.mean(u, 1, keepdim=True)),
        lambda rows, s: flat([r - r.mean() if len(r) else r for r in rows]),
    ),
    "all of it": (lambda u, s: ig.sum(ig.combine(u * 2.0)), lambda rows, s: np.array(2 * flat(rows).sum())),
    "any": (lambda u, s: ig.any(ig.gt(u, 1.0), 1), lambda rows, s: np.array([bool((r > 1).any()) for r in rows])),
    "padded": (
        lambda u, s: ig.pad_ragged(u, -7.0),
        lambda rows, s: np.array([[*r, *[-7.0] * (9 - len(r))] for r in rows]),
    ),
}


def stored_rows(f: Fusion) -> list[str]:
    """Tensors with rows that lie in memory, each as long as the longest may be."""
    m = ig.IdModel(f)
    live = [t for e in live_exprs(f) for t in e.outputs if any(d.rows is not None for d in t.axes)]
    return [t.name for t in live if m.storage(t).in_memory]


def built(name: str) -> Fusion:
    f = ig.Fusion("rows")
    x, off, s = f.input("x", (9,)), f.input("off", (4,), "int64"), f.input("s", (3,))
    f.output(CASES[name][0](ig.partition(x, 0, off), s))
    return f


def run(p: Program, x: Array, off: Sequence[int], s: Array) -> Array:
    (out,) = p.run({"x": x, "off": np.array(off), "s": s}).values()
    return np.asarray(out)


def check(name: str, p: Program) -> None:
    x, s = np.linspace(-1, 2, 9, dtype=np.float32), np.array([0.5, -2, 3], np.float32)
    for off in OFFSETS:
        wanted = CASES[name][1](np.split(x, off[1:-1]), s)
        found = run(p, x, off, s)
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6, equal_nan=True), (name, off, found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_rows_against_numpy_rows(name: str) -> None:
    f = built(name)
    check(name, ig.emit(f, target="python"))
    check(name, ig.emit(f, target="numpy"))
    ig.schedule.auto(f, device="cpu")
    check(name, ig.emit(f, target="python"))


@pytest.mark.parametrize("name", ["softmax", "scaled", "sum"])
def test_rows_on_cpu(name: str) -> None:
    f = built(name)
    ig.schedule.auto(f, device="cpu")
    p = ig.emit(f, target="cpu")
    check(name, p)
    assert len(p.kernels) == 1


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("all of it",)])
@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_one_kernel(name: str, device: str) -> None:
    f = built(name)
    ig.schedule.auto(f, device=device)
    assert len(ig.emit(f, target="cuda" if device == "H200" else "cpu").kernels) == 1


@pytest.mark.parametrize("why", WRONG)
@pytest.mark.parametrize("name", ["identity", "sum", "padded"])
@pytest.mark.parametrize("auto", [False, True])
def test_wrong_offsets_are_refused_by_name(name: str, why: str, auto: bool) -> None:
    f = built(name)
    if auto:
        ig.schedule.auto(f, device="cpu")
    off, said = WRONG[why]
    with pytest.raises(ig.IndexingError, match=said) as info:
        run(ig.emit(f, target="python"), np.zeros(9, np.float32), off, np.ones(3, np.float32))
    assert "offsets begin at 0, never fall, and end at 9" in str(info.value)


def test_loops_end_with_the_row() -> None:
    """The number of steps is that of all elements, not of rows times elements."""
    f = ig.Fusion("long")
    x, off = f.input("x", (4096,)), f.input("off", (65,), "int64")
    f.output(ig.combine(ig.softmax(ig.partition(x, 0, off), 1)))
    ig.schedule.auto(f, device="cpu")
    p = ig.emit(f, target="cpu")
    assert p.source.count("range(min(4096, ld1_end") == 3  # maximum, sum, result: each ends with the row


def test_loops_of_threads_end_with_the_row() -> None:
    f = ig.Fusion("long")
    x, off = f.input("x", (4096,)), f.input("off", (65,), "int64")
    f.output(ig.combine(ig.softmax(ig.partition(x, 0, off), 1)))
    ig.schedule.auto(f, device="H200")
    p = ig.emit(f, target="cuda")
    assert str(p.kernels[0]).count("+ 127)//128") == 3
    assert str(ig.kernel.parse(str(p.kernels[0]))) == str(p.kernels[0])
    (ptx,) = compile_ptx(p)
    assert ".visible .entry" in ptx


def test_without_checks_nothing_outside_is_written() -> None:
    """Rows of wrong offsets are empty where nobody looks at the checks."""
    f = built("identity")
    ig.schedule.auto(f, device="cpu")
    p = ig.emit(f, target="python")
    x = np.arange(9, dtype=np.float32)
    out = p.run({"x": x, "off": np.array([0, 400, 3, 9]), "s": np.ones(3, np.float32)}, checked=False)
    (made,) = out.values()
    assert np.array_equal(np.asarray(made)[3:], x[3:])


@pytest.mark.parametrize("target", ["python", "numpy"])
@pytest.mark.parametrize("auto", [False, True])
def test_oracle_agrees(target: TargetName, auto: bool) -> None:
    for name in ("softmax", "centred", "padded"):
        f = built(name)
        if auto:
            ig.schedule.auto(f, device="cpu")
        for seed in (0, 3):
            r = ig.validate(f, target=target, exhaustive=True, seed=seed)
            assert r.ok, r


def test_axes_beside_the_rows_and_symbols() -> None:
    f = ig.Fusion("beside")
    n, b = f.symbol("n", min=1), f.symbol("b", min=2)
    x, off, s = f.input("x", (2, n, 3)), f.input("off", (b,), "int32"), f.input("s", (b - 1,))
    u = ig.partition(x, 1, off)
    f.output(ig.mean(u, 2, name="mean"), ig.amax(u, (2, 3), name="top"))
    f.output(ig.combine(u * ig.reshape(s, 1, -1, 1, 1) - ig.mean(u, 2, keepdim=True), name="moved"))
    assert str(ig.parse(str(f))) == str(f)
    rng = np.random.default_rng(0)
    for auto, off_ in itertools.product((None, "cpu", "H200"), ([0, 3, 3, 4, 11], [0, 7])):
        if auto:
            ig.schedule.auto(f, device=auto)
            assert len(ig.emit(f, target="python").kernels) == 3
        v = rng.random((2, off_[-1], 3), np.float32)
        k = rng.random(len(off_) - 1, np.float32)
        rows = np.split(v, off_[1:-1], axis=1)
        out = ig.emit(f, target="python").run({"x": v, "off": np.array(off_, np.int32), "s": k})
        mean = [r.mean(1) if r.shape[1] else np.full((2, 3), np.nan) for r in rows]
        top = [r.max((1, 2)) if r.shape[1] else np.full(2, -np.inf) for r in rows]
        moved = [r * w - m[:, None] for r, w, m in zip(rows, k, mean, strict=True)]
        assert np.allclose(out["mean"], np.stack(mean, 1), equal_nan=True, rtol=1e-5)
        assert np.allclose(out["top"], np.stack(top, 1))
        assert np.allclose(out["moved"], np.concatenate(moved, 1), rtol=1e-4, atol=1e-6)


def test_one_row_and_one_element() -> None:
    for n, off in ((1, [0, 1]), (5, [0, 5]), (1, [0, 0, 1])):
        f = ig.Fusion("one")
        x, o = f.input("x", (n,)), f.input("off", (len(off),), "int64")
        u = ig.partition(x, 0, o)
        f.output(ig.combine(u + 1.0, name="y"), ig.sum(u, 1, name="z"))
        v = np.arange(1, n + 1, dtype=np.float32)
        for auto in (False, True):
            if auto:
                ig.schedule.auto(f, device="cpu")
            out = ig.emit(f, target="python").run({"x": v, "off": np.array(off)})
            assert np.array_equal(out["y"], v + 1)
            assert np.array_equal(out["z"], [float(r.sum()) for r in np.split(v, off[1:-1])])


def test_integers_and_truth_values() -> None:
    f = ig.Fusion("ints")
    x, off = f.input("x", (9,), "int32"), f.input("off", (4,), "int64")
    u = ig.partition(x, 0, off)
    f.output(ig.amax(u, 1, name="top"), ig.sum(u, 1, name="total"), ig.all(ig.gt(u, 0), 1, name="all"))
    v = np.array([3, -1, 4, 1, 5, 9, 2, 6, 5], np.int32)
    ig.schedule.auto(f, device="cpu")
    out = ig.emit(f, target="python").run({"x": v, "off": np.array([0, 2, 2, 9])})
    assert np.array_equal(out["top"], [3, np.iinfo(np.int32).min, 9])
    assert np.array_equal(out["total"], [2, 0, 32])
    assert np.array_equal(out["all"], [False, True, True])


@pytest.mark.slow
def test_threads_of_a_block_share_a_row() -> None:
    found = simulated("-m", "tests.emit.simulated_rows")
    assert found.returncode == 0, found.stdout + found.stderr


def test_nothing_of_a_row_is_stored() -> None:
    """What several operations of one loop read, and one of another loop, is computed once in each, in a variable."""
    f = ig.Fusion("twice")
    x, off = f.input("x", (9,)), f.input("off", (4,), "int64")
    v = ig.partition(x, 0, off) * 2.0
    w = v * ig.exp(v)
    f.output(ig.combine(w - ig.amax(v, 1, keepdim=True)))
    ig.schedule.auto(f, device="cpu")
    (kernel,) = ig.emit(f, target="cpu").kernels
    assert not [s for s in walk(kernel.body) if isinstance(s, Alloc)]


def test_a_loop_that_stores_behind_the_row_does_not_end_with_it() -> None:
    f = built("padded")
    ig.schedule.auto(f, device="cpu")
    (kernel,) = ig.emit(f, target="cpu").kernels
    assert all(s.stop is None for s in walk(kernel.body) if isinstance(s, Loop))


@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_all_rows_are_added_up_one_after_the_other(device: str) -> None:
    """No block has a row of its own where one result is made of all of them."""
    f = ig.Fusion("all")
    x, off = f.input("x", (9,)), f.input("off", (4,), "int64")
    f.output(ig.sum(ig.exp(ig.partition(x, 0, off)), name="total"))
    ig.schedule.auto(f, device=device)
    v = np.linspace(0, 1, 9, dtype=np.float32)
    out = ig.emit(f, target="python").run({"x": v, "off": np.array([0, 2, 2, 9])})
    np.testing.assert_allclose(out["total"], np.exp(v).sum(), rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_one_place_of_each_row_is_read_of_stored_rows(device: str) -> None:
    f = ig.Fusion("first")
    x, off = f.input("x", (9,)), f.input("off", (4,), "int64")
    f.output(ig.select(ig.pad_ragged(ig.partition(x, 0, off) * 2.0, -1.0), 1, 0, name="first"))
    ig.schedule.auto(f, device=device)
    v = np.arange(9, dtype=np.float32)
    out = ig.emit(f, target="python").run({"x": v, "off": np.array([0, 2, 2, 9])})
    assert np.array_equal(out["first"], [0, -1, 4])


def sums_of_parts(u: Tensor) -> Tensor:
    return ig.sum(u, 2)


def sums_behind_another_axis(u: Tensor) -> Tensor:
    """The rows do not stand beside their components where they are stored."""
    halves = ig.permute(ig.stack([u[:, :, :2], u[:, :, 2:]], 2), (0, 2, 1, 3))
    return ig.permute(ig.sum(halves, 3), (0, 2, 1))


def sums_behind_two_axes(u: Tensor) -> Tensor:
    """The way back is another permutation than the way there."""
    halves = ig.stack([u[:, :, :2], u[:, :, 2:]], 2)
    behind = ig.permute(ig.stack([halves, halves * 2.0], 4), (0, 2, 3, 1, 4))
    return ig.permute(ig.sum(behind, 4), (0, 3, 1, 2))


@pytest.mark.parametrize("ends", [[0, 0, 3, 3, 9], [0, 9], [0, 3, 6, 9], [0, 4, 9, 9]])
@pytest.mark.parametrize(("device", "target"), [("cpu", "python"), ("cpu", "cpu"), ("H200", "python")])
@pytest.mark.parametrize(
    ("part", "size"), [(sums_of_parts, 9), (sums_behind_another_axis, 18), (sums_behind_two_axes, 36)]
)
def test_stored_rows_take_as_many_elements_as_they_have(
    part: Callable[[Tensor], Tensor], size: int, device: str, target: TargetName, ends: list[int]
) -> None:
    """Sums that two reductions of rows wait for lie in memory one row behind the other."""
    f = ig.Fusion("stored")
    x, off = f.input("x", (9, 4)), f.input("off", (len(ends),), "int64")
    t = part(ig.partition(x, 0, off))
    f.output(ig.combine(t - ig.amax(t, 1, keepdim=True), name="below"), ig.sum(t, 1, name="total"))
    ig.schedule.auto(f, device=device)
    p = ig.emit(f, target=target)
    between = {
        b.name: b.size for k in p.kernels for b in k.buffers if b.place == "global" and b.title not in ("x", "off")
    }
    assert max(int(n) for n in between.values()) == max(size, (len(ends) - 1) * size // 9), between
    v = np.random.default_rng(0).random((9, 4)).astype(np.float32)
    pairs = [r.reshape(-1, 2, 2) for r in np.split(v, ends[1:-1])]
    rows = [{9: r.sum((1, 2)), 18: r.sum(2), 36: 3 * r}[size] for r in pairs]
    out = p.run({"x": v, "off": np.array(ends)})
    np.testing.assert_allclose(out["total"], [r.sum(0) for r in rows], rtol=1e-5)
    below = np.concatenate([r - r.max(0) if len(r) else r for r in rows])
    np.testing.assert_allclose(out["below"], below, rtol=1e-5, atol=1e-6)


REREAD: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Rows], Rows]]] = {
    "itself": (lambda u, off: ig.partition(ig.combine(u), 0, off) + u, lambda rows: [2 * r for r in rows]),
    "after its maximum": (
        lambda u, off: ig.partition(ig.combine(u - ig.amax(u, 1, keepdim=True)) * 2.0, 0, off) + u,
        lambda rows: [2 * (r - r.max(initial=-np.inf)) + r for r in rows],
    ),
    "its running sums": (
        lambda u, off: ig.partition(ig.cumsum(ig.combine(u), 0), 0, off) * u,
        lambda rows: [r * s for r, s in zip(rows, np.split(np.cumsum(flat(rows)), ends_of(rows)), strict=True)],
    ),
    "mirrored": (
        lambda u, off: ig.partition(ig.flip(ig.combine(u), (0,)), 0, off) - u,
        lambda rows: [s - r for r, s in zip(rows, np.split(flat(rows)[::-1], ends_of(rows)), strict=True)],
    ),
}


def ends_of(rows: Rows) -> Array:
    """Where the rows but the last end."""
    return np.cumsum([len(r) for r in rows])[:-1]


@pytest.mark.parametrize("ends", [[0, 9], [0, 0, 3, 9], [0, 3, 6, 9, 9]])
@pytest.mark.parametrize("device", ["cpu", "H200"])
@pytest.mark.parametrize("way", REREAD)
def test_rows_that_are_put_together_and_read_again_are_not_stored_as_rows(
    way: str, device: str, ends: list[int]
) -> None:
    """A loop over a row that reads what lies at loaded places is another kernel's: what both read is computed twice, or
    waits with its rows one behind the other. Loops that nobody chose store what each operation makes, all rows long."""
    f = ig.Fusion("again")
    x, off = f.input("x", (9,)), f.input("off", (len(ends),), "int64")
    f.output(ig.combine(REREAD[way][0](ig.partition(x, 0, off) * 0.5, off)))
    v = np.linspace(-1, 2, 9, dtype=np.float32)
    expected = flat(REREAD[way][1](np.split(v.astype(np.float64) / 2, ends[1:-1])))
    assert stored_rows(f)
    for auto in (False, True):
        if auto:
            ig.schedule.auto(f, device=device)
            assert not stored_rows(f)
        for target in ("python", "numpy"):
            (found,) = ig.emit(f, target=target).run({"x": v, "off": np.array(ends)}).values()
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ends", [[0, 9], [0, 0, 9], [0, 4, 9]])
@pytest.mark.parametrize(("device", "target"), [("cpu", "python"), ("cpu", "cpu"), ("H200", "python")])
@pytest.mark.parametrize("rows", [False, True])
def test_combined_rows_are_read_by_place(ends: list[int], device: str, target: TargetName, rows: bool) -> None:
    """One row is a loop of one step, which another loop of one step is not: what reads places is in no row."""
    f = ig.Fusion("again")
    x, off, y = f.input("x", (9,)), f.input("off", (len(ends),), "int64"), f.input("y", (1, 9))
    joined = ig.combine(ig.partition(x, 0, off) * 2.0)
    t = ig.sum(ig.partition(joined, 0, off), 1) if rows else ig.unsqueeze(joined, 0) + y
    f.output(t)
    ig.schedule.auto(f, device=device)
    v = np.linspace(0, 1, 9, dtype=np.float32)
    found = ig.emit(f, target=target).run({"x": v, "off": np.array(ends), "y": v[None]})[t.name]
    sums = [r.sum() for r in np.split(2 * v, ends[1:-1])]
    np.testing.assert_allclose(found, sums if rows else 3 * v[None], rtol=1e-5)


@pytest.mark.parametrize("ends", [[0, 1], [0, 0, 1], [0, 1, 1], [0, 5]])
@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_rows_of_a_static_size_stay_rows(device: str, ends: list[int]) -> None:
    """Also one row, and rows of one element in all, through reductions and what reads them again."""
    f = ig.Fusion("static")
    u = ig.sum(ig.partition(f.input("x", (ends[-1], 3)), 0, f.input("off", (len(ends),), "int64")), 2)
    f.output(ig.combine(ig.softmax(u, 1) * 2.0, name="y"))
    ig.schedule.auto(f, device=device)
    v = np.random.default_rng(0).random((ends[-1], 3)).astype(np.float32)
    out = ig.emit(f, target="python").run({"x": v, "off": np.array(ends)})
    powers = [np.exp(r.sum(1)) for r in np.split(v, ends[1:-1])]
    np.testing.assert_allclose(out["y"], np.concatenate([2 * r / r.sum() for r in powers]), rtol=1e-5)


@pytest.mark.parametrize("ends", [[0, 1], [0, 9], [0, 4, 9]])
@pytest.mark.parametrize("memory", ["auto", "local", "shared"])
def test_combined_rows_inside_a_loop_lie_by_place(ends: list[int], memory: Memory) -> None:
    """What is made at one point of an outer loop lies in an array of places: its readers know no rows."""
    n = ends[-1]
    f = ig.Fusion("inside")
    x, off, y = f.input("x", (3, n)), f.input("off", (len(ends),), "int64"), f.input("y", (3, n))
    joined = ig.combine(ig.partition(x, 1, off) * 2.0)
    t = f.output(ig.flip(joined, 1) + y)
    joined.inline(1).set_memory(memory)
    v = np.linspace(0, 1, 3 * n, dtype=np.float32).reshape(3, n)
    for target in ("python", "numpy"):
        found = ig.emit(f, target=target).run({"x": v, "off": np.array(ends), "y": v})[t.name]
        np.testing.assert_allclose(found, 2 * v[:, ::-1] + v, rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_a_gather_near_rows_is_estimated_without_them(device: str) -> None:
    """A part of a program that is cut where rows are read has no rows."""
    f = ig.Fusion("near")
    x, at, off = f.input("x", (9, 4)), f.input("at", (9, 4), "int64"), f.input("off", (4,), "int64")
    u = ig.partition(ig.gather(ig.log_softmax(x, 1), 1, at) * 2.0, 0, off)
    for k in range(10):
        u = ig.sin(u) + float(k)
    f.output(ig.combine(ig.softmax(u, 1)))
    ig.schedule.auto(f, device=device)
    rng, ends = np.random.default_rng(0), np.array([0, 2, 2, 9])
    a, picks = rng.random((9, 4), np.float32), rng.integers(0, 4, (9, 4))
    (found,) = ig.emit(f, target="numpy").run({"x": a, "at": picks, "off": ends}).values()
    b = np.take_along_axis(np.log(np.exp(a) / np.exp(a).sum(1, keepdims=True)), picks, 1) * 2
    for k in range(10):
        b = np.sin(b) + k
    np.testing.assert_allclose(found, flat([soft(r) for r in np.split(b, ends[1:-1])]), rtol=1e-4)


PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: -x,
    "scan": lambda x: -ig.cummin(x, 1),
    "sum": lambda x: -ig.sum(x, 0, keepdim=True),
    "gather of a scan": lambda x: ig.index_select(ig.cummin(x, 1), 0, x.fusion.input("at", (4,), "int64")),
}


@pytest.mark.parametrize("op", PLAIN)
def test_plain_tensors_beside_rows_have_the_nests_of_plain_fusions(op: str) -> None:
    """What is partitioned is no part of the loops over rows: it has blocks and threads of its own."""
    f = ig.Fusion("plain")
    x, off = f.input("x", (4, 70)), f.input("off", (3,), "int64")
    scan = ig.cummin(x, 1) if op == "gather of a scan" else x
    f.output(ig.combine(ig.partition(scan, 1, off)), ig.combine(ig.partition(PLAIN[op](x), 1, off)))
    ig.schedule.auto(f, device="H200")
    program = ig.emit(f, target="cuda")
    for k in program.kernels:
        assert all(s.parallel.startswith("blockIdx") for s in k.body if isinstance(s, Loop)), k
    v = np.random.default_rng(0).random((4, 70), np.float32)
    inputs = {"x": v, "off": np.array([0, 33, 70]), "at": np.array([2, 0, 0, 3])}
    got = ig.emit(f, target="numpy").run({t.name: inputs[t.name] for t in f.inputs})
    low = np.minimum.accumulate(v, 1)
    want = {"pointwise": -v, "scan": -low, "sum": -v.sum(0, keepdims=True), "gather of a scan": low[[2, 0, 0, 3]]}[op]
    first, second = (got[t.name] for t in f.outputs)
    np.testing.assert_array_equal(first, low if op == "gather of a scan" else v)
    np.testing.assert_allclose(second, want, rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_a_scan_from_row_to_row(device: str) -> None:
    """Each row needs those before it: no block has a row of its own."""
    f = ig.Fusion("scan")
    x, off = f.input("x", (9,)), f.input("off", (4,), "int64")
    u = ig.partition(x, 0, off)
    total = ig.cumsum(ig.sum(u, 1, keepdim=True), 0)
    f.output(total * 2.0, ig.combine(u + total))
    ig.schedule.auto(f, device=device)
    v = np.random.default_rng(0).random(9, np.float32)
    ends = np.array([0, 2, 2, 9])
    rows = np.split(v, ends[1:-1])
    want = np.cumsum([r.sum() for r in rows])
    for target in ("python", "numpy"):
        total, moved = ig.emit(f, target=target).run({"x": v, "off": ends}).values()
        np.testing.assert_allclose(total[:, 0], 2 * want, rtol=1e-5)
        np.testing.assert_allclose(moved, flat([r + t for r, t in zip(rows, want, strict=True)]), rtol=1e-5)
