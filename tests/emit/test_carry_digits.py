"""Vectors that cross from row to row of a padded tensor: values, addresses, one division for all lanes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Load, VectorStore, walk
from idgraph.runtime import Program, compile_ptx
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import bind
from tests.emit.thread_runner import run_threads

TYPES: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16}
PADS = [
    ((2, 4, 20, 113), (3, 5, 2, 1)),
    ((2, 4, 7, 70), (-2, 5, 0, 1)),
    ((8, 61, 67), (1, 2)),
    ((4, 6, 90), (5, 2, 1, 1, 1, 3)),
    ((8, 30, 64), (0, 1)),
    ((64, 72), (1, 0)),
    ((8, 5, 203), (7, -11, -1, 4)),
]


def padded(shape: tuple[int, ...], pads: tuple[int, ...], dtype: DType, value: float = -1.0) -> ig.Fusion:
    f = ig.Fusion("padded")
    f.output(ig.pad(f.input("x", shape, dtype), pads, int(value) if dtype[0] == "i" else value))
    ig.schedule.auto(f)
    return f


def wanted(x: Any, pads: tuple[int, ...], value: float) -> Any:
    pairs = [(0, 0)] * (x.ndim - len(pads) // 2) + [(pads[k], pads[k + 1]) for k in range(len(pads) - 2, -1, -2)]
    cut = x[tuple(slice(max(0, -a), n - max(0, -b)) for (a, b), n in zip(pairs, x.shape, strict=True))]
    return np.pad(cut, [(max(0, a), max(0, b)) for a, b in pairs], constant_values=value)


def is_right(p: Program) -> bool:
    """Every address of the kernels as they run, at every point of their loops."""
    at = bind(p.fusion, {t.name: tuple(map(int, t.shape)) for t in p.fusion.inputs}, {})
    found = check_kernel_addresses(p, at, index_values(p.fusion, at, {}, 0))
    return found.ok and found.exhaustive


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int16"])
@pytest.mark.parametrize(("shape", "pads"), PADS)
def test_values_and_addresses(shape: tuple[int, ...], pads: tuple[int, ...], dtype: DType) -> None:
    f = padded(shape, pads, dtype)
    p = ig.emit(f, "cuda")
    assert "carry_digits" in p.kernels[0].passes
    assert is_right(p)
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(TYPES.get(dtype, dtype))
    got = run_threads(p, {"x": x})[f.outputs[0].name]
    np.testing.assert_array_equal(np.asarray(got, np.float64), wanted(x, pads, -1.0).astype(np.float64))


def parts(p: Program) -> tuple[int, int]:
    """How many vectors a kernel writes, and how many of its loads have a guard."""
    inside = [s for k in p.kernels for s in walk(k.body)]
    return sum(isinstance(s, VectorStore) for s in inside), sum(
        isinstance(s, Load) and not s.guard.is_const for s in inside
    )


def test_one_store_and_no_guarded_load() -> None:
    p = ig.emit(padded((32, 64, 111, 113), (3, 5, 2, 1), "bfloat16"), "cuda")
    assert "carry_digits" in p.kernels[0].passes
    assert parts(p) == (1, 0)


def test_one_division_by_each_number() -> None:
    """The row and the column of the first lane, the picture of its row and of the next one, and where each begins."""
    (ptx,) = compile_ptx(ig.emit(padded((32, 64, 111, 113), (3, 5, 2, 1), "bfloat16"), "cuda"))
    lines = [x.split()[0] for x in ptx.splitlines() if x.strip().endswith(";")]
    assert lines.count("ld.global.u16") == 8
    assert lines.count("st.global.v4.u32") == 1
    assert sum(x.startswith(("div", "rem")) for x in lines) == 0
    assert sum(x.startswith("mul.hi") or x == "shr.u64" for x in lines) <= 10
    assert len(lines) < 350  # of eight elements; 750 with a row and a column computed for each


def test_rows_shorter_than_a_vector_have_their_own_digits() -> None:
    p = ig.emit(padded((64, 8, 5), (1, 0), "int16"), "cuda")
    assert is_right(p)
    assert all("carry_digits" not in k.passes for k in p.kernels)
