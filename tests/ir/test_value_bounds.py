"""Bounds of values hold for every element, wrapped integers too; an index that wraps below zero counts from the end."""

# torch gives lambdas of its tensors no types:
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir.dtypes import DType
from idgraph.ir.ops_index import value_bounds

torch: Any = importlib.import_module("torch")
INTEGERS: tuple[DType, ...] = tuple(d for d in get_args(DType) if "int" in d)
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (ig.add, np.add), "sub": (ig.sub, np.subtract), "mul": (ig.mul, np.multiply),
    "maximum": (ig.maximum, np.maximum), "minimum": (ig.minimum, np.minimum),
    "floor_divide": (ig.floor_divide, np.floor_divide), "remainder": (ig.remainder, np.remainder),
    "fmod": (ig.fmod, np.fmod),
}  # fmt: skip


def values(r: random.Random, f: ig.Fusion, depth: int) -> tuple[ig.Tensor, Any]:
    """A tensor of counted numbers after random operations, and NumPy's values of the same."""
    if depth == 0:
        dtype = r.choice(INTEGERS)
        start, step = r.choice((0, 1, 100, 120)), r.choice((1, 2, 3))
        return f.iota(12, start, step, dtype), (np.arange(12) * step + start).astype(dtype)
    t, v = values(r, f, depth - 1)
    kind = r.choice((*BINARY, "cast", "sum", "amax", "where", "float"))
    if kind in BINARY:
        ours, theirs = BINARY[kind]
        c = r.choice((1, 2, 3, 7, 100))
        return ours(t, c), theirs(v, v.dtype.type(c))
    if kind == "cast":
        dtype = r.choice(INTEGERS)
        changed: Any = v.astype(dtype)
        return ig.cast(t, dtype), changed
    if kind == "float":
        half = ig.cast(ig.mul(ig.cast(t, "float64"), 0.5), "int64")
        cut: Any = np.trunc(v.astype("f8") * 0.5).astype("i8")
        return half, cut
    if kind in ("sum", "amax"):
        rows = ig.reshape(t, 3, 4)
        made = ig.sum(rows, 1) if kind == "sum" else ig.amax(rows, 1)
        back = ig.reshape(ig.expand(ig.unsqueeze(made, 1), (3, 4)), 12)
        total = v.reshape(3, 4).sum(1).astype(made.dtype) if kind == "sum" else v.reshape(3, 4).max(1)
        again: Any = np.repeat(total, 4)
        return back, again
    either: Any = np.where(v > 5, v, v.dtype.type(3))
    return ig.where(ig.gt(t, 5), t, 3), either


def test_every_value_is_within_its_bounds() -> None:
    r, narrow = random.Random(3), 0
    with np.errstate(all="ignore"):
        for _ in range(600):
            t, v = values(r, ig.Fusion("f"), r.randint(1, 5))
            low, high = value_bounds(t)
            assert low <= v.min() and v.max() <= high, (t.fusion, v, low, high)
            narrow += high - low < 250
    assert narrow > 200  # most questions have an answer


def test_a_shared_operand_is_looked_at_once() -> None:
    i = ig.Fusion("f").iota(4)
    for _ in range(60):
        i = i + i
    assert value_bounds(i) == (0, 3 * 2**60)


X = torch.arange(200.0)
WRAPPED: dict[str, Callable[[Any], Any]] = {
    "doubled": lambda x: x[(torch.arange(100, dtype=torch.int8) * 2).long()],
    "cast": lambda x: x[torch.arange(200).to(torch.int8).to(torch.int32)],
    "from 2^32": lambda x: x[(torch.arange(3) + (2**32 - 3)).int()],
    "sums": lambda x: x[torch.arange(200).to(torch.int8).view(10, 20).sum(1, dtype=torch.int8).long()],
    "written": lambda x: x.index_put(((torch.arange(100, dtype=torch.int8) * 2).long(),), torch.ones(100)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRAPPED)
def test_an_index_that_wraps_below_zero_counts_from_the_end(name: str) -> None:
    f = WRAPPED[name]
    imported = ig.from_torch(f, (X,))
    for target in ("python", "numpy", "cpu"):
        assert torch.equal(imported.run(X, target=target), f(X)), target


@pytest.mark.parametrize(("start", "step"), [(2**63 - 3, 3), (-(2**63), -1), (0, 2**62)])
def test_counted_numbers_that_no_int64_holds_are_refused(start: int, step: int) -> None:
    f = ig.Fusion("f")
    with pytest.raises(ig.OperationError, match=r"^iota: its last number, -?\d+, does not fit an int64"):
        f.iota(8, start, step)
    assert not f.tensors
