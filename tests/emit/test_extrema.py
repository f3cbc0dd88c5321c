"""Extrema of floats on a core: taken in any order, NaN kept, loops that are vectors."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from tests.emit.llvm_text import llvm_texts


def test_a_maximum_beside_a_sum() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (6, 1000))
    t = f.output(ig.amax(x, 1) + ig.sum(ig.exp(x * 0.0), 1))  # one sweep, in blocks for the sum
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert "largest(" in p.source
    a = -np.arange(6000, dtype=np.float32).reshape(6, 1000)
    assert np.array_equal(p.run({"x": a})[t.name], a.max(1) + 1000)
    assert ig.validate(f, target="cpu").ok


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_extrema_have_the_order_of_floats(dtype: Any) -> None:
    f = ig.Fusion("f")
    x = f.input("x", (64, 40), dtype)
    tops = ig.amax(x, 0), ig.amin(x, 0), ig.amax(x, 1), ig.amin(x)
    f.output(*tops)
    a = np.random.default_rng(1).standard_normal((64, 40)).astype(dtype)
    a[3, 5], a[7, 6], a[9, 7], a[11, 8] = np.nan, np.inf, -np.inf, -np.nan
    ig.schedule.auto(f)
    found = ig.emit(f, "cpu").run({"x": a})
    for t, want in zip(tops, (a.max(0), a.min(0), a.max(1), a.min()), strict=True):
        assert np.array_equal(found[t.name], want, equal_nan=True)


@pytest.mark.parametrize("place", [0, 1, 500, 1001, 1002])
@pytest.mark.parametrize("op", [ig.amax, ig.amin])
def test_nan_at_any_place_stays(op: Any, place: int) -> None:
    """In the vectors of a loop, in their ends, and whatever comes after."""
    f = ig.Fusion("f")
    f.output(op(f.input("x", (3, 1003)), 1))
    a = np.ones((3, 1003), np.float32)
    a[1, place] = np.nan
    found = np.asarray(ig.compile(f)(a))
    assert np.array_equal(found, [1.0, np.nan, 1.0], equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ig.amax, ig.amin])
def test_loops_over_extrema_are_vectors(op: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = llvm_texts(monkeypatch)
    f = ig.Fusion(f"vectors of {op.__name__} {dtype}")
    f.output(op(f.input("x", (64, 4096), dtype), 1))
    ig.compile(f)(np.ones((64, 4096), dtype))
    assert any(_vectors(op.__name__, dtype).search(text) for text in seen)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", [ig.amax, ig.amin])
def test_extrema_under_a_mask_are_vectors(op: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a running value behind a condition, though the mask's other value changes no extremum."""
    seen = llvm_texts(monkeypatch)
    f = ig.Fusion(f"masked {op.__name__} {dtype}")
    x, hit = f.input("x", (64, 1000), dtype), f.input("hit", (64, 1000), "bool")
    f.output(op(ig.where(hit, x, -math.inf if op is ig.amax else math.inf), 1))
    a, b = np.linspace(-1, 1, 64000).reshape(64, 1000).astype(dtype), np.arange(64000).reshape(64, 1000) % 7 == 3
    a[5, 3:50], b[6] = np.nan, False
    found = np.asarray(ig.compile(f)(a, b))
    want = np.where(b, a, -np.inf).max(1) if op is ig.amax else np.where(b, a, np.inf).min(1)
    assert np.array_equal(found, want, equal_nan=True)
    assert any(_vectors(op.__name__, dtype).search(text) for text in seen)


def _vectors(op: str, dtype: str) -> re.Pattern[str]:
    name, kind = {"amax": "maximum", "amin": "minimum"}[op], {"float32": "f32", "float64": "f64"}[dtype]
    return re.compile(rf"call [^@\n]*@llvm\.{name}\.v\d+{kind}")
