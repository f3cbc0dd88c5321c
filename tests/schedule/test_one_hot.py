"""Sums over one-hot masks become gathers, where that is the same for every value."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.rewrite.one_hot import fold_one_hots
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


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", ["plain", "expanded", "kept"])
@pytest.mark.parametrize("index", INDICES)
def test_a_masked_sum_is_a_gather(dim: int, swapped: bool, kind: str, index: list[int]) -> None:
    f = masked(dim, swapped, kind)
    x = np.random.default_rng(0).standard_normal((6, 9) if dim else (9, 6)).astype(np.float32)
    x[2, 4] = np.nan  # in a row or column whose sum leaves it out
    inputs = {"x": x, "i": np.array(index)}
    want = evaluate(f, inputs)
    assert [d.chosen for d in fold_one_hots(f)] == ["gather"]
    assert not any(e.op == "sum" for e in f.exprs)
    (name,) = (t.name for t in f.outputs)
    ig.schedule.auto(f)
    for target in ("numpy", "cpu"):
        got = ig.emit(f, target=target).run(inputs)[name]
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want[name]).astype(np.float32))


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
    f.output(ig.sum(ig.where(ig.eq(i, ig.reshape(f.iota(9, start=1, dtype="int64"), 1, 9)), x, 0.0), 1))
    made["numbers from one"] = f
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
    assert str(plan.saved) == "3.29 GB not stored, 6.59 GB not moved (4.4 ms at 1.5 TB/s)"
    assert "proved" in plan.proof[0] and plan.saved.milliseconds(4.8e12) < 1.4
