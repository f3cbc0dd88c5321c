"""Fusions over rows, scheduled automatically, for tests of row kernels and for the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import idgraph as ig


def rows(form: Callable[[Any], Any], shape: tuple[int, ...], dtype: str = "float32") -> ig.Fusion:
    """One output of one input."""
    f = ig.Fusion("rows")
    f.output(form(f.input("x", shape=shape, dtype=dtype)))
    return f


def cross_entropy(
    count: int, columns: int, reduction: Literal["mean", "sum", "none"], gradient: bool, dtype: str = "bfloat16"
) -> ig.Fusion:
    """The loss of ``count`` rows, with its gradient."""
    f = ig.Fusion("cross entropy")
    x = f.input("x", shape=(count, columns), dtype=dtype)
    y = f.input("y", shape=(count,), dtype="int64")
    f.output(ig.cross_entropy(x, y, reduction=reduction))
    if gradient:
        g = f.input("g", shape=(count,)) if reduction == "none" else None
        f.output(ig.cross_entropy_backward(g, x, y, reduction=reduction))
    return f


def pointwise_row(dtype: str, columns: int) -> ig.Fusion:
    """Softmax computed in float32."""
    return rows(lambda x: ig.cast(ig.softmax(ig.cast(x, "float32"), 1), dtype), (4096, columns), dtype)
