"""Running sums, products and extrema: one linear pass in order, on every target, and refused out of order."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from idgraph.kernel.ir import Accumulate, BlockReduce, walk
from idgraph.runtime import Target

UFUNC = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum,
         "logcumsumexp": np.logaddexp}  # fmt: skip


def fusion(op: str, shape: tuple[int, ...], dim: int) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("scan")
    t = getattr(ig, op)(f.input("x", shape=shape) * 2.0, dim)
    f.output(t + 1.0)
    return f, t


def plain(f: ig.Fusion, t: ig.Tensor, dim: int) -> None:
    """As built: one nest for each tensor."""


def inlined(f: ig.Fusion, t: ig.Tensor, dim: int) -> None:
    ig.schedule.inline_most(f)


def split(f: ig.Fusion, t: ig.Tensor, dim: int) -> None:
    t.split(dim, 4)
    ig.schedule.inline_most(f)


def outermost(f: ig.Fusion, t: ig.Tensor, dim: int) -> None:
    t.reorder({dim: 0})
    t.split(0, 3)


@pytest.mark.sampled
@pytest.mark.parametrize("schedule", [plain, inlined, split, outermost], ids=lambda s: s.__name__)
@pytest.mark.parametrize("target", ["python", "numpy"])
@pytest.mark.parametrize("op", UFUNC)
def test_values(op: str, target: Target, schedule: Callable[[ig.Fusion, ig.Tensor, int], None]) -> None:
    for shape, dim in (((5,), 0), ((4, 6), 0), ((4, 6), 1), ((2, 3, 4), 1), ((3, 1), 1), ((0, 3), 0), ((3, 0), 1)):
        f, t = fusion(op, shape, dim)
        schedule(f, t, dim)
        x = np.random.default_rng(0).uniform(-1.5, 1.5, shape).astype(np.float32)
        (found,) = ig.emit(f, target=target).run({"x": x}).values()
        wanted = UFUNC[op].accumulate((x * 2).astype(np.float64), axis=dim) + 1
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", [inlined, outermost], ids=lambda s: s.__name__)
def test_every_address_and_value(schedule: Callable[[ig.Fusion, ig.Tensor, int], None]) -> None:
    f, t = fusion("cumsum", (3, 7, 2), 1)
    schedule(f, t, 1)
    report = ig.validate(f, target="cpu", exhaustive=True)
    assert report.ok, report


def test_the_cost_is_linear() -> None:
    f, t = fusion("cumsum", (64, 1000), 1)
    inlined(f, t, 1)
    (kernel,) = ig.emit(f, target="cpu").plan.kernels
    assert sum(isinstance(s, Accumulate) for s in walk(kernel.body)) == 1
    assert t.definition is not None
    assert [v.extent for v in ig.IdModel(f).loops(t.definition)] == [64, 1000]


def test_pieces_of_a_long_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy runs the outermost axis in chunks; a running value goes from one to the next."""
    monkeypatch.setattr(importlib.import_module("idgraph.codegen.runtime_lib.numpy_ops"), "CHUNK", 4)
    x = np.random.default_rng(1).uniform(0.5, 1.5, (37, 3)).astype(np.float32)
    for parts in (False, True):
        f, t = fusion("cumsum", (37, 3), 0)
        if parts:
            t.split(0, 5)
        (found,) = ig.emit(f, target="numpy").run({"x": x}).values()
        np.testing.assert_allclose(found, np.cumsum(x * 2.0, 0) + 1, rtol=1e-5)


def test_a_dynamic_length() -> None:
    f = ig.Fusion("scan")
    t = f.output(ig.cumsum(f.input("x", shape=(f.symbol("n", min=1), 3)), 0))
    for n in (1, 6):
        found = ig.emit(f, target="numpy").run({"x": np.ones((n, 3), np.float32)})[t.name]
        np.testing.assert_array_equal(found, np.arange(1, n + 1)[:, None].repeat(3, 1))


def threads(t: ig.Tensor) -> object:
    """Threads along two loops of the axis."""
    return t.split(1, 2).parallelize(1, "threadIdx.y").parallelize(2, "threadIdx.x")


def blocks(t: ig.Tensor) -> object:
    return t.split(1, 2).parallelize(1, "blockIdx.x")


def merged(t: ig.Tensor) -> object:
    return t.merge(0)


def turned(t: ig.Tensor) -> object:
    return t.split(1, 2).reorder({1: 2, 2: 1})


def rolled(t: ig.Tensor) -> object:
    return t.roll(1, 2)


@pytest.mark.parametrize("step", [threads, blocks, merged, turned, rolled], ids=lambda s: s.__name__)
def test_out_of_order_is_refused(step: Callable[[ig.Tensor], object]) -> None:
    f, t = fusion("cumsum", (4, 6), 1)
    step(t)
    with pytest.raises(ig.ScheduleError, match=r"scanned axis 1") as caught:
        ig.emit(f, target="cuda")
    assert "test_scan.py" in str(caught.value)
    assert "cumsum(" in str(caught.value)


def test_auto_puts_the_axis_on_threads() -> None:
    f, t = fusion("cumsum", (64, 8), 0)
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, target="cuda").kernels
    exchanges = [s for s in walk(kernel.body) if isinstance(s, BlockReduce)]
    assert [(s.dims, s.before is not None) for s in exchanges] == [(("threadIdx.y",), True)]
    assert ig.kernel.parse(str(kernel)) == kernel
    assert ig.parse(str(f)) == f
    assert t.definition is not None and t.definition.op == "cumsum"


def test_bad_operands() -> None:
    x = ig.Fusion("f").input("x", shape=(4,), dtype="bool")
    with pytest.raises(ig.IdGraphError, match="is bool"):
        ig.cummax(x, 0)
    with pytest.raises(ig.IdGraphError, match="has no axis 1"):
        ig.cumsum(x, 1)
