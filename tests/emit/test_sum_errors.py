"""Errors of sums on a CPU against exact sums and against torch's, and the loops that make them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.kernel.ir import Accumulate, Local, walk
from idgraph.runtime import Program

torch: Any = pytest.importorskip("torch")
ROWS, UNIT = 512, 2.0**-24
SHARE = 1.2  # of torch's error: 1.14 with AVX2, at most 1.1 with AVX-512 (parts are added in the order of vectors)
KINDS = ("normal", "wide", "cancelling", "in order", "positive", "alternating")
COLUMNS = (9, 16, 31, 32, 33, 48, 64, 77, 100, 250, 256, 257, 511, 512, 513, 1003, 4096)


def terms(kind: str, n: int) -> Any:
    rng = np.random.default_rng(n)
    x: Any = rng.standard_normal((ROWS, n))
    half = n // 2
    if kind == "wide":
        x *= np.exp2(rng.integers(-20, 20, (ROWS, n)))
    elif kind in ("cancelling", "in order"):
        x[:, half : 2 * half] = -x[:, :half]
        x = rng.permuted(x, axis=1) if kind == "cancelling" else x
    elif kind == "positive":
        x = np.abs(x) + 1.0
    elif kind == "alternating":
        x = np.abs(x) * np.where(np.arange(n) % 2, 1.0, -1.0)
    return x.astype(np.float32)


def compiled(shape: tuple[int, int], axis: int) -> Program:
    f = ig.Fusion("sums")
    f.output(ig.sum(f.input("x", shape), axis))
    ig.schedule.auto(f)
    return ig.emit(f, target="cpu")


def exact(x: Any) -> tuple[Any, Any]:
    """Of each row the exact sum, rounded once, and the sum of magnitudes."""
    wide = x.astype(np.float64)
    return np.array([math.fsum(row) for row in wide.tolist()]), np.abs(wide).sum(1)


@lru_cache(maxsize=len(KINDS))
def known(kind: str, n: int) -> tuple[Any, tuple[Any, Any]]:
    """Terms, which nobody changes, and what they add up to: for both axes of a width."""
    x = terms(kind, n)
    return x, exact(x)


def errors(found: Any, x: Any, of: tuple[Any, Any] | None = None) -> Any:
    """Of each row, relative to the sum of magnitudes; ``of`` is what `exact` says, where that is known."""
    sums, magnitudes = of or exact(x)
    return np.abs(np.asarray(found, np.float64) - sums) / magnitudes


@pytest.mark.sampled
@pytest.mark.parametrize("axis", [1, 0], ids=["rows", "columns"])
@pytest.mark.parametrize("n", COLUMNS)
def test_errors_are_at_most_those_of_torch(n: int, axis: int) -> None:
    program = compiled((ROWS, n) if axis else (n, ROWS), axis)
    shares: dict[str, float] = {}
    for kind in KINDS:
        x, of = known(kind, n)
        given = x if axis else np.ascontiguousarray(x.T)
        own = errors(next(iter(program.run({"x": given}).values())), x, of)
        eager = errors(torch.from_numpy(given).sum(axis).numpy(), x, of)
        assert own.max() <= 3 * UNIT, kind
        if kind != "in order":  # where torch's vectors divide half a row, terms meet their opposites: no error at all
            shares[kind] = math.sqrt((own**2).mean()) / math.sqrt((eager**2).mean())
    assert max(shares.values()) <= SHARE, shares


@pytest.mark.sampled
@pytest.mark.parametrize("n", [1 << 16, 100_003, 1 << 18])
def test_sums_in_two_stages(n: int) -> None:
    """Parts of a sum are added up as the sum itself: in blocks of float32, and between them in float64."""
    program = compiled((16, n), 1)
    assert len(program.kernels) > 1
    added = [s.value for s in walk(program.kernels[0].body) if isinstance(s, Accumulate)]
    assert any(isinstance(x, Local) and x.dtype == "float32" for x in added)
    rng = np.random.default_rng(n)
    normal = rng.standard_normal((16, n))
    wide, positive = normal * np.exp2(rng.integers(-20, 20, (16, n))), np.abs(normal) + 1.0
    for kind in (normal, wide, positive, np.abs(normal) * np.where(np.arange(n) % 2, 1.0, -1.0)):
        x = kind.astype(np.float32)
        of = exact(x)
        own = errors(next(iter(program.run({"x": x}).values())), x, of)
        eager = errors(torch.from_numpy(x).sum(1).numpy(), x, of)
        assert own.max() <= 3 * UNIT
        assert math.sqrt((own**2).mean()) <= SHARE * math.sqrt((eager**2).mean())


def test_a_float64_sum_in_two_stages_stays_float64() -> None:
    f = ig.Fusion("wide")
    f.output(ig.sum(f.input("x", (4, 1 << 16)), 1, dtype="float64"))
    ig.schedule.auto(f)
    x = np.random.default_rng(0).standard_normal((4, 1 << 16)).astype(np.float32)
    program = ig.emit(f, target="cpu")
    assert len(program.kernels) > 1
    assert errors(next(iter(program.run({"x": x}).values())), x).max() < 2.0**-44


def test_a_float64_sum_of_float32_terms_stays_float64() -> None:
    f = ig.Fusion("wide")
    f.output(ig.sum(ig.cast(f.input("x", (8, 1000)), "float64"), 1))
    ig.schedule.auto(f)
    x = terms("alternating", 1000)[:8]
    found = next(iter(ig.emit(f, target="cpu").run({"x": x}).values()))
    assert errors(found, x).max() < 2.0**-44


@pytest.mark.sampled
@pytest.mark.parametrize("n", [7, 40, 64, 256, 300, 1003, 2048])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_address_and_value(n: int, dtype: Any) -> None:
    f = ig.Fusion("sums")
    x = f.input("x", (6, n), dtype)
    f.output(ig.sum(x, 1))
    f.output(ig.sum(ig.exp(x), 1))
    f.output(ig.sum(x * 2.0 - 1.0, 1))
    ig.schedule.auto(f)
    report = ig.validate(f, target="cpu")
    assert report.ok, report


@pytest.mark.parametrize("n", [48, 64])
def test_short_rows_are_not_written_out(n: int) -> None:
    source = compiled((512, n), 1).source
    assert "range(count(" in source
    assert "range(count(" not in compiled((512, 7), 1).source


def test_sizes_known_when_run() -> None:
    f = ig.Fusion("sums")
    n = f.symbol("n", min=1, max=5000)
    f.output(ig.sum(f.input("x", (5, n)), 1))
    ig.schedule.auto(f)
    program = ig.emit(f, target="cpu")
    for size in (1, 31, 64, 255, 256, 1003):
        x = terms("normal", size)[:5]
        assert errors(next(iter(program.run({"x": x}).values())), x).max() <= 3 * UNIT
