"""The value check: run the emitted program on random data and compare every output element with the float64 oracle.

Running a CPU program with guard zones: the memory around each buffer must stay as it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import IndexingError
from idgraph.index.loop_tree import IndexMaps
from idgraph.ir import DType, Fusion
from idgraph.ir.dtypes import ELEMENT_TYPES
from idgraph.runtime import Program, Target, emit
from idgraph.runtime.array_backends import NumPy
from idgraph.runtime.binding import BoundArray, OutputMemory, given_array
from idgraph.runtime.cpu.launch import CpuMachine
from idgraph.runtime.shape_specialized import ShapeSpecialization
from idgraph.validate.input_values import random_inputs
from idgraph.validate.oracle import bind, evaluate
from idgraph.validate.oracle.pointwise import blocks
from idgraph.validate.oracle.views import Array
from idgraph.validate.report import TensorError, ValueMismatch, ValueReport

GUARD: Final = 4096  # elements before and behind each buffer


def run_guarded(
    program: Program, inputs: Mapping[str, Any], symbols: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(outputs by name, names of the buffers whose surroundings were written) of a "cpu" program; outputs poisoned."""
    guard = _Guard()
    frozen = ShapeSpecialization(program, guard, CpuMachine(), _input_values(program, inputs), symbols, False)
    with np.errstate(all="ignore"):
        results = frozen(program.ordered(inputs), memory=OutputMemory(poison=True))
    out = {t.name: x for t, x in zip(program.fusion.outputs, results, strict=True)}
    touched = tuple(
        m.buffer.title
        for m, (around, mark) in zip(program.mold.made, guard.zones, strict=True)
        if not _untouched(around, mark)
    )
    return out, touched


def _input_values(program: Program, inputs: Mapping[str, Any]) -> dict[str, BoundArray]:
    return {t.name: given_array(t.name, a) for t, a in zip(program.fusion.inputs, program.ordered(inputs), strict=True)}


class _Guard(NumPy):
    """NumPy's arrays inside of larger ones: the memory around each is filled with a byte of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.zones: list[tuple[Array, int]] = []

    def flat(self, size: int, dtype: DType, device: Any) -> Any:
        around = np.empty(size + 2 * GUARD, storage_dtype(dtype))
        # Another byte for each buffer: a value read from one zone must show when it is written into another.
        mark = 0x21 + 2 * (len(self.zones) % 40)
        around.view(np.uint8)[...] = mark
        self.zones.append((around, mark))
        return around[GUARD : GUARD + size]

    def adopt_buffer(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Any) -> Any:
        return self.view(self.flat(prod(shape), dtype, device), shape, strides, dtype)


def _untouched(around: Array, mark: int) -> bool:
    """Both guard zones still hold their byte."""
    return all(bool((zone.view(np.uint8) == mark).all()) for zone in (around[:GUARD], around[-GUARD:]))


def tolerance(dtype: DType) -> float:
    """The allowed difference of a type, relative to |expected| plus the largest |expected| of the tensor: kernels may
    round a transcendental or a sum another way. 0 for integers and bool, which must be equal.

    >>> tolerance("bfloat16"), tolerance("int64")
    (0.015625, 0.0)
    """
    return ELEMENT_TYPES[dtype].tolerance


def check_values(
    f: Fusion,
    target: Target = "cpu",
    *,
    program: Program | None = None,
    model: IndexMaps | None = None,
    inputs: Mapping[str, Any] | None = None,
    symbols: Mapping[str, int] | None = None,
    seed: int = 0,
) -> ValueReport:
    """Run ``f`` on ``target`` and compare with the operations' definitions.

    Allowed are the `tolerance` of the type and, where that is exceeded, 8 times the error that rounding makes in the
    definition itself (`rounding_error`). Outputs are filled with NaN (odd numbers for integers) first, so an element
    never written shows. On "cpu" each buffer stands between guard zones that must stay as they were, and "python" and
    "numpy" stop at an address outside.
    ``inputs`` default to `random_inputs` with ``seed``. ``program`` and ``model`` replace the emitted program and the
    index maps it is made of.
    """
    started = time.perf_counter()
    at = bind(f, {n: np.shape(a) for n, a in (inputs or {}).items()}, symbols)
    given = inputs if inputs is not None else random_inputs(f, seed, at)
    made = program if program is not None else emit(f, target, model=model)
    named = {n: v for n, v in at.items() if n in f.symbols}
    # First the definition: it refuses an index out of range in the inputs, so a later one is the kernel's fault.
    want = evaluate(f, given, named)
    touched: tuple[str, ...] = ()
    try:
        if made.target == "cpu":
            got, touched = run_guarded(made, given, named)
        else:
            got = made.run(given, named, poison=True)
    except IndexingError as error:
        stopped = ValueMismatch(f.outputs[0].name, (), math.nan, math.nan, 0.0, 0, 0, f"the kernel stopped: {error}")
        return ValueReport(stopped, made.target, (), time.perf_counter() - started)
    mismatch: ValueMismatch | None = None
    errors: list[TensorError] = []
    for t in f.outputs:
        right = want.pop(t.name)
        found = compare(t.name, t.dtype, got[t.name], right)
        if found.mismatch is not None and tolerance(t.dtype):
            slack = rounding_error(right, evaluate(f, given, named, wanted=[t.name], rounded=False)[t.name])
            found = compare(t.name, t.dtype, got[t.name], right, slack)
        errors.append(found.error)
        mismatch = mismatch or found.mismatch
    if touched and mismatch is None:
        mismatch = ValueMismatch(
            touched[0], (), math.nan, math.nan, 0.0, 0, 0, f"memory around the buffer of {touched[0]} was written"
        )
    return ValueReport(mismatch, made.target, tuple(errors), time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Compared:
    """One output beside what it should be."""

    error: TensorError
    mismatch: ValueMismatch | None


def rounding_error(rounded: Array, exact: Array) -> float:
    """The effect of nothing but rounding on a tensor: the largest difference between the definition computed both ways.

    A deep chain (a softmax of large logits, say) multiplies the error of its first operations; a kernel may be wrong
    by a few times what rounding every tensor makes of the definition itself, but not by 1/32 of the largest value.
    """
    difference = np.abs(rounded.astype(np.float64) - exact)
    finite = difference[np.isfinite(difference)]
    largest = float(finite.max()) if finite.size else 0.0
    return min(8.0 * largest, _scale(rounded) / 32)


def compare(name: str, dtype: DType, got: Array, want: Array, slack: float = 0.0) -> Compared:
    """Element by element, in blocks; the first wrong element in row-major order is the counterexample.

    ``slack`` is an absolute difference that is allowed on top of `tolerance`.
    """
    relative = tolerance(dtype)
    if got.shape != want.shape:
        note = f"the output has shape {got.shape}, its definition {want.shape}"
        wrong = ValueMismatch(name, (), math.nan, math.nan, 0.0, want.size, want.size, note)
        return Compared(TensorError(name, dtype, 0, math.inf, relative), wrong)
    scale = _scale(want) if relative else 0.0
    largest, count = 0.0, 0
    first: ValueMismatch | None = None
    for block in blocks(want.shape):
        x, y = _as_reference_type(got[block]), _as_reference_type(want[block])
        allowed, difference = _differences(x, y, relative, scale)
        allowed = allowed + slack
        bad = ~(difference <= allowed)
        if difference.size:
            finite = difference[np.isfinite(difference)]
            largest = max(largest, float(finite.max()) if finite.size else 0.0)
        if bool(bad.any()):
            count += int(np.count_nonzero(bad))
            if first is None:
                at = tuple(int(c) for c in np.argwhere(bad)[0])
                where = tuple(c + (block[p].start if p < len(block) else 0) for p, c in enumerate(at))
                limit = float(np.broadcast_to(allowed, bad.shape)[at])
                first = ValueMismatch(name, where, x[at].item(), y[at].item(), limit, 0, want.size)
    if first is not None:
        first = ValueMismatch(
            name, first.coordinates, first.value, first.expected, first.tolerance, count, want.size, first.note
        )
    return Compared(TensorError(name, dtype, int(want.size), largest, 2 * relative * scale + slack), first)


def _as_reference_type(x: Array) -> Array:
    """float64 for floating point types (bfloat16 is ml_dtypes'), int64 or bool else."""
    if x.dtype.kind in "iu":
        return x.astype(np.int64)
    return x if x.dtype == np.bool_ else x.astype(np.float64)


def _scale(want: Array) -> float:
    """The largest finite magnitude of the tensor."""
    top = 0.0
    for block in blocks(want.shape):
        part = np.abs(want[block])
        finite = part[np.isfinite(part)] if part.dtype.kind == "f" else part
        top = max(top, float(finite.max()) if finite.size else 0.0)
    return top


def _differences(x: Array, y: Array, relative: float, scale: float) -> tuple[Array, Array]:
    """(allowed, difference): NaN equals NaN and an infinity itself."""
    if y.dtype.kind != "f":
        return np.zeros((), np.float64), (x != y).astype(np.float64)
    with np.errstate(all="ignore"):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        plain = np.abs(x - y)
        difference = np.where(same, 0.0, np.where(np.isnan(plain), np.inf, plain))
        allowed = relative * (np.where(np.isfinite(y), np.abs(y), 0.0) + scale)
    return allowed, difference
