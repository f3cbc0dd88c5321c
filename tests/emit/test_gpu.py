"""The cuda target on a real device: values of every case, memory taken and given without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import shared_layout
from idgraph.runtime import emit
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.dispatch import as_numpy
from idgraph.runtime.tuning.trial import prepare_launch
from tests.emit.cases import CASES, outcome
from tests.emit.row_cases import NORMS, rows
from tests.emit.shared_cases import SHARED
from tests.emit.test_realign import arrays_of as realigned_arrays
from tests.emit.test_realign import biased, padded, program_of, realigned_in, sliced

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CASES)
def test_value_on_the_device(name: str) -> None:
    assert outcome(name, "cuda") == ""


@pytest.mark.parametrize("name", ["gather", "embedding", "scatter"])
def test_checked_on_the_device(name: str) -> None:
    assert outcome(name, "cuda", checked=True) == ""


def test_index_out_of_range_on_the_device() -> None:
    f = ig.Fusion("f")
    x, i = f.input("logits", (4, 9)), f.input("index", (4, 3), "int64")
    f.output(ig.gather(x, 1, i))
    index = np.zeros((4, 3), np.int64)
    index[2, 1] = 9
    with pytest.raises(ig.IndexingError, match="index 9 loaded from index is outside axis 1 of logits"):
        emit(f, "cuda").run({"logits": np.zeros((4, 9), np.float32), "index": index}, checked=True)


@pytest.mark.parametrize("count", [1 << 20, (1 << 20) + 7])
@pytest.mark.parametrize("op", [ig.sum, ig.amax, ig.amin])
def test_a_total_in_two_stages_on_the_device(op: Callable[..., Any], count: int) -> None:
    f = rows(op, (count,))
    ig.schedule.auto(f)
    program = emit(f, "cuda")
    assert len(program.kernels) > 1
    x = np.random.default_rng(0).uniform(-2, -1, count).astype(np.float32)
    wide = x.astype(np.float64)
    want = wide.sum() if op is ig.sum else wide.max() if op is ig.amax else wide.min()
    ready = prepare_launch(program, {"x": x}, poison=True)
    for _ in range(2):  # a second launch starts from nothing too
        ready.launch()
        np.testing.assert_allclose(as_numpy(ready.results()[f.outputs[0].name], "float32"), want, rtol=1e-6)


@pytest.mark.parametrize("columns", [4096, 5001])
def test_rows_in_registers_on_the_device(columns: int) -> None:
    f = rows(NORMS["softmax"], (64, columns), "bfloat16")
    config = ig.schedule.KernelConfig(persistent=True)
    ig.schedule.auto(f, config=config)
    program = emit(f, "cuda")
    assert all(
        0 < kernel.registers <= 255 for kernel in program.functions().values() if isinstance(kernel, DeviceKernel)
    )
    x = np.random.default_rng(0).normal(size=(64, columns)).astype(ml_dtypes.bfloat16)
    e = np.exp(x.astype(np.float64))
    found = program.run({"x": x}, poison=True)[f.outputs[0].name].astype(np.float64)
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=2**-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
@pytest.mark.parametrize("build", [biased, padded, sliced])
def test_rows_at_other_alignments_on_the_device(build: Callable[[int, DType], ig.Fusion], dtype: DType) -> None:
    """The shifts as the device runs them: every element, every phase of a row."""
    pytest.importorskip("torch")  # lays out padded rows on the device
    f = build(1025, dtype)
    arrays = realigned_arrays(f)
    want = emit(f, "numpy").run(arrays)
    program = program_of(f)
    assert realigned_in(program)
    found = program.run(arrays, poison=True)
    for name, values in want.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(values))
    assert ig.validate(f, target="cuda").ok


def test_shared_memory_that_has_to_be_asked_for_on_the_device() -> None:
    f = SHARED["two_wide_tiles"]()
    (kernel,) = emit(f, "cuda").kernels
    assert shared_layout(kernel.body).dynamic > 48 * 1024
    assert ig.validate(f, target="cuda").ok


# numba's own copy kernels for arrays with strides run on a small grid and say so.
@pytest.mark.parametrize("columns", [4096, 130, 5])
def test_rows_added_on_the_device(columns: int) -> None:
    """Many rows to few, so that threads meet: whole numbers, whose sums are the same in every order."""
    f = ig.Fusion("rows")
    ids, source = f.input("ids", (512,), "int64"), f.input("source", (512, columns))
    f.output(ig.index_put(f.full((16, columns), 0.0), [ids], source, accumulate=True))
    ig.schedule.auto(f)
    rng = np.random.default_rng(0)
    at = rng.integers(-16, 16, 512)
    given = rng.integers(-99, 100, (512, columns)).astype(np.float32)
    want = np.zeros((16, columns), np.float32)
    np.add.at(want, at, given)
    ready = prepare_launch(emit(f, "cuda"), {"ids": at, "source": given}, poison=True)
    for _ in range(2):
        ready.launch()
        np.testing.assert_array_equal(as_numpy(ready.results()[f.outputs[0].name], "float32"), want)


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_device_arrays_stay_on_the_device() -> None:
    from idgraph.runtime.cuda.numba_cuda import load_cuda

    cuda = load_cuda()
    f = ig.Fusion("f")
    x = f.input("x", (6, 4), contiguity=(False, True), alignment=8)
    y = f.output(x.T + 1.0)
    y.set_allocation([y.logical[1], y.logical[0]])
    host = np.arange(48, dtype=np.float32).reshape(6, 8)
    whole = cuda.to_device(host)
    out: Any = emit(f, "cuda").run({"x": whole[:, 2:6]})[y.name]
    assert hasattr(out, "__cuda_array_interface__")
    assert out.shape == (4, 6)
    assert out.strides == (4, 16)  # bytes: laid out as x, columns of the result together
    assert np.array_equal(cuda.as_cuda_array(out.T).copy_to_host(), host[:, 2:6] + 1)
    reversed_rows: Any = emit(f, "cuda").run({"x": np.ascontiguousarray(host[:, 2:6])})[y.name]
    assert isinstance(reversed_rows, np.ndarray)


def bits_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.where(np.isnan(x), np.int32(-1), x.view(np.int32))


def test_a_division_by_one_value_of_a_row_is_rounded_as_a_division_on_the_device() -> None:
    """Numerators and divisors of all sizes, both signs, zeros, infinities and NaN: bit for bit."""
    rng = np.random.default_rng(0)
    words = rng.integers(-(2**31), 2**31, (1024, 4096)).astype(np.int32)
    x = words.view(np.float32).copy()
    x[:, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45]
    d = rng.integers(-(2**31), 2**31, (1024, 1)).astype(np.int32).view(np.float32).copy()
    usual = slice(8, 800)
    d[usual] = rng.uniform(0.5, 4000.0, (792, 1)) * rng.choice([-1, 1], (792, 1))
    x[usual, 6:2048] = rng.uniform(-4, 4, (792, 2042))
    d[:8, 0] = [0.0, -0.0, np.inf, np.nan, 1e-45, 2.0**40, 2.0**-40, 2.0**-41]
    f = ig.Fusion("f")
    a, b = f.input("x", x.shape), f.input("d", d.shape)
    y = f.output(a / b)
    f.output(ig.sum(y, 1))  # in the same rows, where the divisor is one value
    ig.schedule.auto(f)
    program = emit(f, "cuda")
    assert "near_quotient(" in program.source
    found = as_numpy(program.run({"x": x, "d": d})[y.name], "float32")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits_of(found), bits_of(x / d))


def test_round_on_the_device() -> None:
    x = np.repeat(np.arange(-80, 80).astype(np.float32) / 4, 8)
    x = np.concatenate(
        [x, np.array([0.49999997, -0.49999997, 8388609.0, 2.0**30, np.inf, -np.inf, np.nan, -0.0], "f4")]
    )
    f = ig.Fusion("f")
    y = f.output(ig.round(f.input("x", x.shape)))
    ig.schedule.auto(f)
    found = as_numpy(emit(f, "cuda").run({"x": x})[y.name], "float32")
    np.testing.assert_array_equal(bits_of(found), bits_of(np.rint(x)))
