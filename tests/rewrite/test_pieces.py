"""Rows joined of a long piece and single elements: reductions and slices of them, judged by NumPy on the joined row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.rewrite.pad_cat import split_reduction_over_cat

Array = np.ndarray[Any, Any]
DRAW = np.random.default_rng(5)


def softmax(t: ig.Tensor, dim: int) -> ig.Tensor:
    e = ig.exp(t - ig.amax(t, dim, keepdim=True))
    return e / ig.sum(e, dim, keepdim=True)


def soft(a: Array, dim: int) -> Array:
    e = np.exp(a - a.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(("before", "behind"), [(0, 1), (1, 0), (2, 3)])
def test_a_softmax_with_sinks(dim: int, before: int, behind: int, target: Any) -> None:
    """Along any axis, single elements on either side, what lies between is read: one kernel, no cat."""
    shape = [3, 5, 4]
    single = [1 if d == dim else n for d, n in enumerate(shape)]
    f = ig.Fusion("sinks")
    x = f.input("x", shape)
    s = [f.input(f"s{k}", single) for k in range(before + behind)]
    row = ig.cat([*s[:before], x * 2.0, *s[before:]], dim) - 1.0
    t = f.output(ig.slice(softmax(row, dim), dim, before, before + shape[dim]))
    ig.schedule.auto(f)
    assert not any(e.op == "cat" for e in f.exprs)
    program = ig.emit(f, target)
    assert len(program.plan.kernels) == 1
    values = {u.name: DRAW.standard_normal(u.shape).astype(np.float32) for u in f.inputs}
    whole = np.concatenate(
        [*(values[u.name] for u in s[:before]), values["x"] * 2, *(values[u.name] for u in s[before:])], dim
    )
    want = np.take(soft(whole - 1, dim), range(before, before + shape[dim]), dim)
    assert np.allclose(program.run(values)[t.name], want, rtol=1e-5, atol=1e-6)
    assert ig.validate(f).ok


@pytest.mark.sampled
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", [(1,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin", "any", "all"])
def test_reductions_of_a_joined_axis(op: str, dims: tuple[int, ...], keepdim: bool) -> None:
    """Of integers and truths exactly; other axes are reduced with it."""
    kind: Any = "bool" if op in ("any", "all") else "int32"
    f = ig.Fusion(op)
    x, a, b = (f.input(n, shape, kind) for n, shape in (("x", (2, 7, 3)), ("a", (2, 1, 3)), ("b", (2, 1, 3))))
    form: Any = getattr(ig, op)
    t = f.output(form(ig.cat([a, x, b], 1), dims, keepdim=keepdim))
    before = t.shape, t.dtype
    split_reduction_over_cat(f)
    assert not any(e.op == "cat" for e in f.exprs) and (t.shape, t.dtype) == before
    ig.schedule.auto(f)
    values = {u.name: DRAW.integers(0, 2 if kind == "bool" else 5, u.shape).astype(kind) for u in f.inputs}
    whole = np.concatenate([values["a"], values["x"], values["b"]], 1)
    want = getattr(np, {"amax": "max", "amin": "min"}.get(op, op))(whole, dims, keepdims=keepdim)
    assert np.array_equal(ig.emit(f, "numpy").run(values)[t.name], want)


@pytest.mark.parametrize(("long", "single"), [("uint8", "int32"), ("int16", "int64"), ("int64", "int32")])
def test_pieces_of_several_types(long: Any, single: Any) -> None:
    """Arithmetic behind the cat is of the type of the cat, whose numbers do not fit the narrower piece's."""
    f = ig.Fusion("types")
    x, s = f.input("x", (3, 8), long), f.input("s", (3, 1), single)
    row = ig.cat([x, s], 1) * 30000
    tops = f.output(ig.sum(row, 1)), f.output(ig.amax(row, 1)), f.output(row[:, :8])
    ig.schedule.auto(f)
    assert not any(e.op == "cat" for e in f.exprs)
    values = {"x": DRAW.integers(100, 120, (3, 8)).astype(long), "s": DRAW.integers(100, 120, (3, 1)).astype(single)}
    whole = np.concatenate([values["x"], values["s"]], 1) * 30000
    found = ig.emit(f, "numpy").run(values)
    for t, want in zip(tops, (whole.sum(1), whole.max(1), whole[:, :8]), strict=True):
        assert found[t.name].dtype == want.dtype and np.array_equal(found[t.name], want)


def test_a_sum_is_rounded_once() -> None:
    """2^24 ones and a one more, each of which float32 would lose behind the other."""
    f = ig.Fusion("once")
    x, s = f.input("x", (2, 3)), f.input("s", (2, 1))
    t = f.output(ig.sum(ig.cat([x, s], 1), 1))
    ig.schedule.auto(f)
    values = {"x": np.array([[2**24, 1, 0]] * 2, np.float32), "s": np.array([[1], [-(2**24)]], np.float32)}
    assert np.array_equal(ig.emit(f, "numpy").run(values)[t.name], [2**24 + 2, 1])


@pytest.mark.parametrize("place", ["x", "s"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_numbers_of_either_piece(place: str, value: float) -> None:
    f = ig.Fusion("special")
    x, s = f.input("x", (2, 8)), f.input("s", (2, 1))
    row = ig.cat([x, s], 1)
    tops = f.output(ig.amax(row, 1)), f.output(ig.amin(row, 1)), f.output(ig.sum(row, 1))
    ig.schedule.auto(f)
    values = {"x": np.ones((2, 8), np.float32), "s": np.zeros((2, 1), np.float32)}
    values[place][1, 0] = value
    whole = np.concatenate([values["x"], values["s"]], 1)
    found = ig.emit(f, "cpu").run(values)
    for t, want in zip(tops, (whole.max(1), whole.min(1), whole.sum(1)), strict=True):
        assert np.array_equal(found[t.name], want, equal_nan=True)


def _row(f: ig.Fusion, *more: int) -> ig.Tensor:
    return ig.cat([f.input("x", (4, 16)), *(f.input(f"s{k}", (4, n)) for k, n in enumerate(more))], 1)


def _sum_and_all(f: ig.Fusion) -> None:
    row = ig.exp(_row(f, 1))
    f.output(row / ig.sum(row, 1, keepdim=True))


def _part_of_a_piece(f: ig.Fusion) -> None:
    row = ig.exp(_row(f, 1))
    f.output((row / ig.sum(row, 1, keepdim=True))[:, 1:16])


def _two_long(f: ig.Fusion) -> None:
    f.output(ig.sum(_row(f, 2), 1))


def _scan_too(f: ig.Fusion) -> None:
    row = _row(f, 1)
    f.output(ig.sum(row, 1), ig.cumsum(row, 1))


def _other_axis(f: ig.Fusion) -> None:
    f.output(ig.sum(_row(f, 1), 0))


def _no_reduction(f: ig.Fusion) -> None:
    f.output(ig.exp(_row(f, 1))[:, :16])


@pytest.mark.parametrize(
    "build", [_sum_and_all, _part_of_a_piece, _two_long, _scan_too, _other_axis, _no_reduction]
)  # fmt: skip
def test_rows_that_are_wanted_whole_stay(build: Any) -> None:
    f = ig.Fusion("whole")
    build(f)
    before = str(f)
    split_reduction_over_cat(f)
    assert str(f) == before


def test_an_operand_of_the_whole_row_is_cut() -> None:
    f = ig.Fusion("cut")
    b = f.input("b", (17,))
    t = f.output(ig.sum(_row(f, 1) * b, 1))
    ig.schedule.auto(f)
    assert not any(e.op == "cat" for e in f.exprs)
    values = {u.name: DRAW.standard_normal(u.shape).astype(np.float32) for u in f.inputs}
    want = (np.concatenate([values["x"], values["s0"]], 1) * values["b"]).sum(1)
    assert np.allclose(ig.emit(f, "cpu").run(values)[t.name], want, rtol=1e-5, atol=1e-5)


def test_a_size_that_is_a_symbol() -> None:
    f = ig.Fusion("symbol")
    n = f.symbol("n", min=2)
    x, s = f.input("x", (3, n)), f.input("s", (3, 1))
    t = f.output(softmax(ig.cat([x, s], 1), 1)[:, :n])
    ig.schedule.auto(f)
    assert not any(e.op == "cat" for e in f.exprs)
    for size in (2, 37):
        values = {"x": DRAW.standard_normal((3, size)).astype(np.float32), "s": np.ones((3, 1), np.float32)}
        want = soft(np.concatenate([values["x"], values["s"]], 1), 1)[:, :size]
        assert np.allclose(ig.emit(f, "cpu").run(values)[t.name], want, rtol=1e-5)
