"""The same operation in every spelling that torch has for it: operators, keywords, types by object."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import idgraph as ig

A = np.arange(24, dtype=np.float32).reshape(4, 6) + 1
B = (A * 7 % 5 + 1).astype(np.float32)
I = (np.arange(24).reshape(4, 6) * 5 % 4).astype(np.int64)  # noqa: E741 - the usual letter of an index
V, W = np.arange(6, dtype=np.float32), np.arange(4, dtype=np.float32)
SPELLINGS: dict[str, tuple[Callable[[Any, Any, Any, Any, Any], Any], Callable[[Any, Any, Any, Any, Any], Any]]] = {
    "3 // a": (lambda a, b, i, v, w: 3 // a, lambda a, b, i, v, w: 3 // a),
    "3 % a": (lambda a, b, i, v, w: 3 % a, lambda a, b, i, v, w: 3 % a),
    "2 ** b": (lambda a, b, i, v, w: 2**b, lambda a, b, i, v, w: 2**b),
    "1 & i": (lambda a, b, i, v, w: (1 & i) + (1 | i) + (3 ^ i), lambda a, b, i, v, w: (1 & i) + (1 | i) + (3 ^ i)),
    "+a": (lambda a, b, i, v, w: ig.copy(+a), lambda a, b, i, v, w: +a),
    "a @ b.T": (lambda a, b, i, v, w: a @ b.T, lambda a, b, i, v, w: a @ b.T),
    "a @ v": (lambda a, b, i, v, w: a @ v, lambda a, b, i, v, w: a @ v),
    "w @ a": (lambda a, b, i, v, w: w @ a, lambda a, b, i, v, w: w @ a),
    "v @ v": (lambda a, b, i, v, w: ig.matmul(v, v), lambda a, b, i, v, w: v @ v),
    "permute dims": (lambda a, b, i, v, w: ig.permute(a, dims=(1, 0)), lambda a, b, i, v, w: a.T),
    "reshape shape": (lambda a, b, i, v, w: ig.reshape(a, shape=(3, -1)), lambda a, b, i, v, w: a.reshape(3, -1)),
    "flip": (lambda a, b, i, v, w: ig.flip(a, 0, 1), lambda a, b, i, v, w: np.flip(a)),
    "flip dims": (lambda a, b, i, v, w: ig.flip(a, dims=(1,)), lambda a, b, i, v, w: np.flip(a, 1)),
    "take_along_dim": (
        lambda a, b, i, v, w: ig.take_along_dim(a, indices=i, dim=1),
        lambda a, b, i, v, w: np.take_along_axis(a, i, 1),
    ),
    "take_along_dim, flat": (
        lambda a, b, i, v, w: ig.take_along_dim(a, i),
        lambda a, b, i, v, w: np.take_along_axis(a, i.reshape(-1), None),
    ),
    "padding_idx": (lambda a, b, i, v, w: ig.embedding(i, a, padding_idx=-1), lambda a, b, i, v, w: a[i]),
    "scatter value": (
        lambda a, b, i, v, w: ig.scatter(a, 1, i, value=2.5),
        lambda a, b, i, v, w: torch.scatter(torch.tensor(a), 1, torch.tensor(i), value=2.5).numpy(),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling(name: str) -> None:
    arrays = {"a": A, "b": B, "i": I, "v": V, "w": W}
    f = ig.Fusion("f")
    tensors = [f.input(n, shape=x.shape, dtype=x.dtype.name) for n, x in arrays.items()]
    ours, theirs = SPELLINGS[name]
    out = f.output(ours(*tensors))
    used = {t.name: arrays[t.name] for t in f.inputs}
    np.testing.assert_array_equal(ig.emit(f, target="numpy").run(used)[out.name], theirs(*arrays.values()))


@pytest.mark.parametrize("dtype", [np.int64, np.dtype("int64"), torch.int64, "int64"])
def test_a_type_by_its_object(dtype: Any) -> None:
    t = ig.Fusion("f").input("t", shape=(4,), dtype=dtype)
    assert (t.dtype, ig.cast(t, torch.bfloat16).dtype, ig.cast(t, ml_dtypes.bfloat16).dtype) == (
        "int64", "bfloat16", "bfloat16",
    )  # fmt: skip
    with pytest.raises(ig.OperationError, match="unknown dtype"):
        ig.cast(t, torch.complex64)


def test_tensors_by_name_and_flags_for_all_axes() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(4, 8), contiguity=False)
    assert "t" in f and t in f and "u" not in f and 3 not in f
    assert t.domain.strides[0] is not None and t.domain.strides[1] is not None
    flags: Any = (1, "x")
    with pytest.raises(ig.OperationError, match="1 is neither True nor False"):
        f.input("u", shape=(4, 8), contiguity=flags)


def test_what_would_be_silently_wrong() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(4,)), f.input("b", shape=(4,))
    condition: Any = a == b  # the same tensor? no: False
    with pytest.raises(ig.OperationError, match=r"ig\.eq\(a, b\)"):
        ig.where(condition, a, b)
    with pytest.raises(ig.OperationError, match="dims is given twice"):
        ig.permute(a, 0, dims=(0,))
    with pytest.raises(ig.OperationError, match="no axis is named"):
        ig.flip(a)
    with pytest.raises(ig.OperationError, match="padding_idx 4 is not a row of w"):
        ig.embedding(ig.cast(a, "int64"), f.input("w", shape=(4, 2)), 4)
    with pytest.raises(ig.OperationError, match="takes a tensor src or a number value"):
        ig.scatter(a, 0, ig.cast(a, "int64"))
