"""Sums over one-hot masks become gathers, where that is the same for every value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.rewrite.one_hot_to_gather import fold_one_hots
from idgraph.validate.oracle import evaluate

INDICES = ([0, 8, 3, 2, 1, 5], [-1, 9, 3, 100, -9, 5])


def masked(dim: int, swapped: bool, kind: str) -> ig.Fusion:
    """The element of each row (or column) that an index names, as a sum over a mask."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9) if dim else (9, 6)), f.input("i", shape=(6,), dtype="int64")
    index = ig.unsqueeze(i, dim)
    numbers = ig.reshape(f.iota(9, dtype="int64"), 1, 9) if dim else ig.reshape(f.iota(9, dtype="int64"), 9, 1)
    if kind == "expanded":
        index = ig.expand(index, *x.shape)
    hit = ig.eq(numbers, index) if swapped else ig.eq(index, numbers)
    f.output(ig.sum(ig.where(hit, x * 2.0, 0.0), dim, keepdim=kind == "kept"))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", ["plain", "expanded", "kept"])
@pytest.mark.parametrize("index", INDICES)
def test_a_masked_sum_is_a_gather(dim: int, swapped: bool, kind: str, index: list[int]) -> None:
    f = masked(dim, swapped, kind)
    x = np.random.default_rng(0).standard_normal((6, 9) if dim else (9, 6)).astype(np.float32)
    x[2, 4] = np.nan  # in a row or column whose sum leaves it out
    x[3, 2] = x[2, 3] = -0.0  # which the sum adds to zeros
    inputs = {"x": x, "i": np.array(index)}
    want = evaluate(f, inputs)
    assert [d.chosen for d in fold_one_hots(f)] == ["gather"]
    assert not any(e.op == "sum" for e in f.exprs)
    (name,) = (t.name for t in f.outputs)
    ig.schedule.auto(f)
    for target in ("numpy", "cpu"):
        got = ig.emit(f, target=target).run(inputs)[name]
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want[name]).astype(np.float32))
        assert not np.signbit(np.asarray(got)[np.asarray(got) == 0]).any()


Mask = Callable[[ig.Fusion, ig.Tensor, ig.Tensor, ig.Tensor], ig.Tensor]
u = ig.unsqueeze
SPELLINGS: dict[str, tuple[tuple[int, ...], str, Mask]] = {  # shape and type of x; of x, one index a row, 0..8
    "numbers from 1": ((6, 9), "float32", lambda f, x, i, n: ig.where(ig.eq(u(i, 1), f.iota(9, start=1)), x, 0.0)),
    "arms the other way": ((6, 9), "float32", lambda f, x, i, n: ig.where(ig.ne(n, u(i, 1)), 0.0, x)),
    "negated": ((6, 9), "float64", lambda f, x, i, n: ig.where(ig.logical_not(ig.eq(u(i, 1), n)), 0.0, x)),
    "zeros": ((6, 9), "float32", lambda f, x, i, n: ig.where(ig.eq(u(i, 1), n), x, f.full((6, 9), 0.0))),
    "factor": ((6, 9), "int32", lambda f, x, i, n: x * ig.cast(ig.eq(u(i, 1), n), "int32")),
    "flags": ((6, 9), "bool", lambda f, x, i, n: ig.where(ig.eq(u(i, 1), n), x, False)),
    "widened": ((6, 9), "float16", lambda f, x, i, n: ig.cast(ig.where(ig.eq(u(i, 1), n), x, 0.0), "float32")),
    "one row for all": ((9,), "float32", lambda f, x, i, n: ig.where(ig.eq(u(i, 1), n), u(x, 0), 0.0)),
    "embedding": ((9, 4), "float32", lambda f, x, i, n: ig.where(u(ig.eq(u(i, 1), n), 2), u(x, 0), 0.0)),
    "in the middle": ((6, 9, 4), "float32", lambda f, x, i, n: ig.where(u(ig.eq(u(i, 1), n), 2), x, 0.0)),
    "a matrix turned": ((6, 9), "float32", lambda f, x, i, n: ig.where(ig.eq(u(n, 1), i).T, x, 0.0)),
    "small numbers": ((6, 9), "float32", lambda f, x, i, n: ig.where(ig.eq(u(i, 1), ig.cast(n, "uint8")), x, 0.0)),
    "and a condition of rows": (
        (6, 9), "float32",
        lambda f, x, i, n: ig.where(ig.logical_and(ig.eq(n, u(i, 1)), ig.ne(u(i, 1), 3)), x, 0.0),
    ),
    "and a condition of each": (
        (6, 9), "float32",
        lambda f, x, i, n: ig.where(ig.logical_and(ig.gt(x, 0.0), ig.eq(u(i, 1), n)), x, 0.0),
    ),
    "or what is left out": (
        (6, 9), "float32",
        lambda f, x, i, n: ig.where(ig.logical_or(ig.ne(u(i, 1), n), ig.eq(u(i, 1), 2)), 0.0, x),
    ),
    "two conditions, turned": (
        (6, 9), "float32",
        lambda f, x, i, n: ig.where(
            ig.logical_and(ig.logical_and(ig.eq(u(n, 1), i), ig.lt(i, 8)).T, ig.gt(x, -4.0)), x, 0.0
        ),
    ),
    "rounded": (
        (6, 9), "float32",
        lambda f, x, i, n: ig.cast(ig.cast(ig.where(ig.eq(u(i, 1), n), x / 3.0, 0.0), "float16"), "float32"),
    ),
    "a table of rows": (
        (2, 3, 9), "float32",
        lambda f, x, i, n: ig.where(ig.reshape(ig.eq(u(i, 1), n), 6, 9), ig.reshape(x, 6, 9), 0.0),
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("index", INDICES)
def test_any_spelling_of_the_mask_is_a_gather(name: str, index: list[int]) -> None:
    shape, dtype, build = SPELLINGS[name]
    f = ig.Fusion("f")
    x, i = f.input("x", shape=shape, dtype=dtype), f.input("i", shape=(6,), dtype="int64")
    t = f.output(ig.sum(build(f, x, i, f.iota(9)), 1))
    drawn = np.random.default_rng(len(name)).integers(-5, 6, shape)
    inputs = {"x": drawn.astype(dtype), "i": np.array(index)}
    want = evaluate(f, inputs)[t.name]
    (decision,) = fold_one_hots(f)
    assert decision.chosen == "gather" and decision.saved is not None and len(decision.proof) == 2
    assert not any(e.op == "sum" for e in f.exprs)
    ig.schedule.auto(f)
    got = ig.emit(f, target="numpy").run(inputs)[t.name]
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def kept() -> dict[str, ig.Fusion]:
    """Sums that look alike and are not gather."""
    made: dict[str, ig.Fusion] = {}
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 1), dtype="int64")
    numbers = ig.reshape(f.iota(9, dtype="int64"), 1, 9)
    f.output(ig.sum(ig.cast(ig.eq(i, numbers), "float32") * x, 1))  # a NaN beside the index makes it NaN
    made["product"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 1), dtype="int64")
    f.output(ig.sum(ig.where(ig.eq(i, ig.reshape(f.iota(9, dtype="int64"), 1, 9)), x, 1.0), 1))
    made["another background"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 9), dtype="int64")
    f.output(ig.sum(ig.where(ig.eq(i, ig.reshape(f.iota(9, dtype="int64"), 1, 9)), x, 0.0), 1))
    made["an index for each element"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(9, 9)), f.input("i", shape=(9, 1), dtype="int64")
    f.output(ig.sum(ig.where(ig.eq(i, ig.reshape(f.iota(9, dtype="int64"), 9, 1)), x, 0.0), 1))
    made["numbers along another axis"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 1), dtype="int64")
    f.output(ig.sum(ig.where(ig.eq(i, f.iota(9, step=2)), x, 0.0), 1))
    made["every second number"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 300)), f.input("i", shape=(6, 1), dtype="int64")
    f.output(ig.sum(ig.where(ig.eq(i, ig.cast(f.iota(300), "uint8")), x, 0.0), 1))
    made["numbers that wrap around"] = f
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 1), dtype="int64")
    f.output(ig.sum(ig.where(ig.ne(i, f.iota(9)), x, 0.0), 1))
    made["all but one"] = f
    return made


@pytest.mark.parametrize("name", list(kept()))
def test_what_is_no_gather_stays(name: str) -> None:
    f = kept()[name]
    before = str(f)
    assert fold_one_hots(f) == () and str(f) == before


def test_a_gather_taken_as_a_sum_is_not_folded_again() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 9)), f.input("i", shape=(6, 1), dtype="int64")
    f.output(ig.gather(x * 2.0, 1, i))
    ig.schedule.auto(f, gathers="one-hot")
    assert fold_one_hots(f) == ()


@pytest.mark.sampled
@pytest.mark.parametrize("entries", [1, 2, 3, 4])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("adds", [False, True])
def test_a_few_entries_of_a_row_are_compared(entries: int, axis: int, adds: bool) -> None:
    f = ig.Fusion("f")
    shape = [4, 5, 3]
    small = [entries if k == axis else n for k, n in enumerate(shape)]
    x, i, v = f.input("x", shape=shape), f.input("i", shape=small, dtype="int64"), f.input("v", shape=small)
    t = ig.scatter_add(x * 2.0, axis, i, v) if adds else ig.scatter(x * 2.0, axis, i, v)
    y = f.output(t + 1.0)
    (plan,) = ig.schedule.scatter_plan(f)
    assert plan.chosen == "where" and len(plan.proof) == entries + 1 + adds
    assert plan.saved is not None and plan.saved.not_stored == 240 and plan.saved.not_moved == 480
    rng = np.random.default_rng(entries)
    inputs = {
        "x": rng.standard_normal(shape).astype(np.float32), "v": rng.standard_normal(small).astype(np.float32),
        "i": rng.integers(0, shape[axis], small),  # the same place twice, often
    }  # fmt: skip
    want = evaluate(f, inputs)[y.name]
    ig.schedule.auto(f)
    got = ig.emit(f, target="numpy").run(inputs)[y.name]
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5)


def test_the_example_of_the_issue_tells_its_savings() -> None:
    """PyTorch #129043: a constant scattered upon a constant, of a language model's logits."""
    f = ig.Fusion("f")
    i, g = f.input("i", shape=(32768, 1), dtype="int64"), f.input("g", shape=(32768, 1), dtype="bfloat16")
    f.output(ig.scatter(ig.full((32768, 50257), 0.0, dtype="bfloat16"), 1, i, -1.0) * g)
    (plan,) = ig.schedule.scatter_plan(f)
    assert plan.saved is not None
    assert str(plan.saved) == "3.29 GB not stored, 6.59 GB not moved (1.5 ms at 4.26 TB/s)"
    assert "proved" in plan.proof[0] and plan.saved.milliseconds(4.8e12) < 1.4


SAME_ALONG = ["number a row", "expanded", "one number", "row of the other axis", "loss of a class"]


@pytest.mark.parametrize("spelling", SAME_ALONG)
@pytest.mark.parametrize("index", INDICES)
def test_an_operand_that_is_the_same_along_the_axis_needs_no_gather(spelling: str, index: list[int]) -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6,)), f.input("i", shape=(6,), dtype="int64")
    hit = ig.eq(u(i, 1), f.iota(9))
    column = u(ig.exp(x), 1)
    operands = {
        "number a row": column, "expanded": ig.expand(column, 6, 9), "one number": ig.sum(x, 0),
        "row of the other axis": ig.expand(u(ig.slice(ig.exp(x), 0, 0, 1), 1), 6, 9), "loss of a class": column,
    }  # fmt: skip
    if spelling == "loss of a class":  # rows of one index are ignored, the gradient is rounded
        hit = ig.logical_and(hit, ig.ne(u(i, 1), 5))
    masked = ig.where(hit, operands[spelling], 0.0)
    if spelling == "loss of a class":
        masked = ig.cast(ig.cast(masked, "bfloat16"), "float32")
    t = f.output(ig.sum(masked, 1))
    inputs = {"x": np.linspace(-1, 1, 6).astype(np.float32), "i": np.array(index)}
    want = evaluate(f, inputs)[t.name]
    (decision,) = fold_one_hots(f)
    assert decision.chosen == "where"
    assert not any(e.op in ("sum", "gather") for e in f.exprs if e.output.ndim == 2 or e.op == "gather")
    ig.schedule.auto(f)
    for target in ("numpy", "cpu"):
        np.testing.assert_allclose(np.asarray(ig.emit(f, target=target).run(inputs)[t.name]), want, rtol=1e-6)
