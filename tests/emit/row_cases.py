"""Fusions over rows, scheduled automatically, for tests of row kernels and for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import idgraph as ig
from idgraph.ir import DType


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


def variance(x: ig.Tensor, dim: int) -> ig.Tensor:
    """Squares around the mean, in float32."""
    a = ig.cast(x, "float32")
    return ig.mean(ig.square(a - ig.mean(a, dim, keepdim=True)), dim)


def place(x: ig.Tensor, dim: int, f: Callable[..., ig.Tensor] = ig.amax) -> ig.Tensor:
    """Argmax or argmin, as the front end makes it of torch's."""
    n = x.shape[dim]
    hit = ig.logical_or(ig.eq(x, f(x, dim, True)), ig.isnan(x))
    numbers = ig.reshape(x.fusion.iota(n), [n if p == dim % x.ndim else 1 for p in range(x.ndim)])
    return ig.amin(ig.where(hit, numbers, n), dim)


def least_place(x: ig.Tensor, dim: int) -> ig.Tensor:
    """Argmin."""
    return place(x, dim, ig.amin)


def _wide(form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Computed in float32, rounded to the type of the operand."""
    return lambda x: ig.cast(form(ig.cast(x, "float32")), x.dtype)


def _layer_norm(x: ig.Tensor) -> ig.Tensor:
    apart = x - ig.mean(x, 1, keepdim=True)
    return apart * ig.rsqrt(ig.mean(ig.square(apart), 1, keepdim=True) + 1e-5)


NORMS: Mapping[str, Callable[[Any], Any]] = {
    "softmax": _wide(lambda x: ig.softmax(x, 1)),
    "log_softmax": _wide(lambda x: ig.log_softmax(x, 1)),
    "layer norm": _wide(_layer_norm),
    "rms norm": _wide(lambda x: x * ig.rsqrt(ig.mean(ig.square(x), 1, keepdim=True) + 1e-5)),
}


def weighted_norm(shape: tuple[int, int], dtype: DType) -> ig.Fusion:
    """Layer norm with float32 weight and bias."""
    f = ig.Fusion("layer norm")
    x = f.input("x", shape=shape, dtype=dtype)
    w, b = (f.input(n, shape=shape[1:]) for n in ("weight", "bias"))
    f.output(ig.cast(_layer_norm(ig.cast(x, "float32")) * w + b, dtype))
    return f


def safe_logsumexp(x: ig.Tensor) -> ig.Tensor:
    """As torch has it: relative to the maximum where that is finite."""
    top = ig.amax(x, 1, keepdim=True)
    safe = ig.where(ig.isinf(top), 0.0, top)
    return ig.log(ig.sum(ig.exp(x - safe), 1, keepdim=True)) + safe
