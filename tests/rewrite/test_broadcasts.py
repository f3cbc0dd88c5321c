"""What is computed of a row that all rows share is computed in their own nest, whatever the operations are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.rewrite.canonicalize_views import join_views

OF_ONE: dict[str, Callable[[ig.Tensor], ig.Tensor]] = {
    "add": lambda w: w + 1.0, "exp": ig.exp, "sigmoid": ig.sigmoid, "tanh": ig.tanh, "reciprocal": lambda w: 1.0 / w,
    "rsqrt": ig.rsqrt, "silu": lambda w: w * ig.sigmoid(w),
    "relu": ig.relu, "abs": ig.abs, "log": ig.log, "erf": ig.erf,
    "compared": lambda w: ig.where(w > 0.5, w, 2.0), "cast": lambda w: ig.cast(ig.cast(w, "float16"), "float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_a_norm_with_any_function_of_its_weights_is_one_kernel(name: str, target: str) -> None:
    f = ig.Fusion("f")
    x, w = f.input("x", shape=(6, 256)), f.input("w", shape=(256,))
    f.output(x * ig.rsqrt(ig.mean(x * x, 1, keepdim=True)) * OF_ONE[name](w))
    ig.schedule.auto(f)
    assert len(ig.emit(f, target).kernels) == 1  # pyright: ignore[reportArgumentType]
    assert ig.validate(f).ok


def test_a_function_of_weights_that_is_an_output_is_kept() -> None:
    f = ig.Fusion("f")
    x, w = f.input("x", shape=(6, 256)), f.input("w", shape=(256,))
    e = f.output(ig.exp(w))
    f.output(x * ig.rsqrt(ig.mean(x * x, 1, keepdim=True)) * e)
    ig.schedule.auto(f)
    assert ig.validate(f).ok


def test_two_rows_of_weights() -> None:
    f = ig.Fusion("f")
    x, w, b = f.input("x", shape=(6, 256)), f.input("w", shape=(256,)), f.input("b", shape=(256,))
    f.output(x * ig.rsqrt(ig.mean(x * x, 1, keepdim=True)) * ig.exp(w * b + 1.0) + ig.tanh(b))
    ig.schedule.auto(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    assert ig.validate(f).ok


def test_views_in_a_row_are_one() -> None:
    f = ig.Fusion("views")
    t = f.output(ig.unsqueeze(ig.unsqueeze(f.input("x", (4, 5)), 1), 0) * 2.0)
    join_views(f)
    assert [(e.op, e.attrs.get("dims")) for e in f.exprs] == [("unsqueeze", (0, 2)), ("mul", None)]
    assert [int(n) for n in t.shape] == [1, 4, 1, 5]
