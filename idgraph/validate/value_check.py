"""Random inputs for a fusion: values of its types, index tensors in range.

An index may be computed from an input, by the user (``i + 2``) or by a rewrite (an index that was tested, and is -1
where it was out of range). The definitions of the operations tell which elements of an input are to blame.

The value check: run the emitted program on random data and compare every output element with the float64 oracle.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError, IndexingError
from idgraph.index.loop_tree import IndexMaps
from idgraph.ir import DType, Fusion, Tensor, TensorExpr, is_float
from idgraph.ir.dtypes import ELEMENT_TYPES
from idgraph.runtime import Program, Target, emit
from idgraph.runtime.array_backends import NumPy
from idgraph.runtime.binding import BoundArray, OutputMemory, given_array
from idgraph.runtime.cpu.launch import CpuMachine
from idgraph.runtime.shape_specialized import ShapeSpecialization
from idgraph.validate.concrete_access import free_strides, laid_out, layout_of
from idgraph.validate.oracle import INDEXED, SCATTERED, bind, evaluate, reads, shape_of, stored
from idgraph.validate.oracle.evaluate import blocks
from idgraph.validate.oracle.views import Array, number
from idgraph.validate.report import TensorError, ValueMismatch, ValueReport

ROUNDS: Final = 200
WIDEST: Final = 10  # doublings of the numbers that are tried on both sides of 0


def index_uses(f: Fusion, symbols: Mapping[str, int]) -> Iterator[tuple[Tensor, int]]:
    """Index tensors in the order of their uses, with the extent of the axis that they point into."""
    for e in f.exprs:
        if e.op in INDEXED or e.op in SCATTERED:
            for axis, read in zip(e.inputs[INDEXED.get(e.op, 0)].axes, e.reads[INDEXED.get(e.op, 0)], strict=True):
                operand = getattr(read, "operand", None)
                if isinstance(operand, int):
                    yield e.inputs[operand], number(axis.extent, symbols)
        elif e.op == "eq" and "within" in e.attrs:
            yield e.inputs[0], number(e.attrs["within"], symbols)


def make_legal(f: Fusion, arrays: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator) -> None:
    """Draw elements of integer inputs again, in place, until every computed index is in range.

    Legal values of other elements of the input are tried, then smaller numbers, and numbers farther from 0. Where none
    is legal, a run with the arrays raises the error that names the index.
    """
    uses = [(t, n) for t, n in index_uses(f, symbols) if t.definition is not None]
    named = {n: v for n, v in symbols.items() if n in f.symbols}
    for attempt in range(ROUNDS if uses else 0):
        blamed = next((b for t, n in uses if (b := _blamed(f, t, n, arrays, symbols, named))), None)
        if blamed is None:
            return
        for name, bad in blamed.items():
            x = arrays[name]
            good: Array = np.unique(x[~bad])
            top = int(good.max(initial=0)) if good.size else int(x.max(initial=0))
            again: Array
            match attempt % 3:
                case 0 if good.size:
                    again = rng.choice(good, x.shape)
                case 1:
                    again = rng.integers(0, (top >> (attempt // 6)) + 1, x.shape)
                case _:
                    reach = 4 << (attempt // 3 % WIDEST)
                    again = rng.integers(0 if x.dtype.kind == "u" else -reach, reach, x.shape)
            x[bad] = again.astype(x.dtype)[bad]


def _blamed(
    f: Fusion, t: Tensor, extent: int, arrays: Mapping[str, Array], symbols: Mapping[str, int], named: Mapping[str, int]
) -> dict[str, Array]:
    """For each integer input, the elements that an index out of range in ``t`` was made of; empty where it is legal."""
    try:
        values = evaluate(f, arrays, named, wanted=[t.name])[t.name]
    except IndexingError:
        return {}  # of an index before it, which comes first
    bad = (values < 0) | (values >= extent)
    if not bad.any():
        return {}
    marks: dict[Tensor, Array] = {t: bad}
    made = {e.output: e for e in f.exprs}
    for e in reversed(f.exprs):
        if e.output in marks:
            _back(f, e, marks, arrays, symbols, named)
    return {x.name: m for x, m in marks.items() if x not in made and x.dtype.startswith(("int", "uint")) and m.any()}


def _back(
    f: Fusion,
    e: TensorExpr,
    marks: dict[Tensor, Array],
    arrays: Mapping[str, Array],
    symbols: Mapping[str, int],
    named: Mapping[str, int],
) -> None:
    """Mark the elements of the operands of ``e`` that the marked ones of its output are made of."""
    bad = marks[e.output]
    loaded = [k for k in range(len(e.inputs)) if e.op in INDEXED and k != INDEXED[e.op]]
    values = evaluate(f, arrays, named, wanted=[e.inputs[k].name for k in loaded]) if loaded else {}
    axes = [d.kind == "reduction" for d in e.output.logical]
    wide = bad.reshape([1 if r else n for r, n in zip(axes, _spread(bad.shape, axes), strict=True)])
    for k, t in enumerate(e.inputs):
        mark = marks.setdefault(t, np.zeros(shape_of(t, symbols), np.bool_))
        if e.op in SCATTERED:
            mark[...] = True  # any of its writers
            continue
        numbers = reads(e, k, {n: np.asarray(v, np.int64) for n, v in values.items()}, symbols)
        chosen = numbers[np.broadcast_to(wide, numbers.shape) & (numbers >= 0)]
        mark.reshape(-1)[chosen] = True


def _spread(shape: tuple[int, ...], reduced: list[bool]) -> list[int]:
    rest = iter(shape)
    return [1 if r else next(rest) for r in reduced]


MAX_ELEMENTS = 1 << 48


def index_limits(f: Fusion, symbols: Mapping[str, int]) -> dict[str, int]:
    """For each integer input that serves as an index, the smallest extent of an axis it points into.

    An integer tensor compared with an iota (a one-hot, as in scatter) points into the iota's axis; one that is checked
    where it is compared, into the axis that the comparison names.
    """
    sources: dict[Tensor, set[str]] = {t: {t.name} for t in f.inputs if not is_float(t.dtype) and t.dtype != "bool"}
    counted: dict[Tensor, int] = {}
    limits: dict[str, int] = {}

    def limit(t: Tensor, extent: int) -> None:
        for name in sources.get(t, ()):
            limits[name] = min(limits.get(name, extent), extent)

    for e in f.exprs:
        if e.op == "iota":
            counted[e.output] = number(e.attrs["n"], symbols)
        elif e.op in ("reshape", "unsqueeze", "expand", "copy") and e.inputs[0] in counted:
            counted[e.output] = counted[e.inputs[0]]
        if e.op in INDEXED or e.op in SCATTERED:
            source = INDEXED.get(e.op, 0)
            for axis, read in zip(e.inputs[source].axes, e.reads[source], strict=True):
                operand = getattr(read, "operand", None)
                if isinstance(operand, int):
                    limit(e.inputs[operand], number(axis.extent, symbols))
        if "within" in e.attrs:  # a rewritten scatter or gather still has the axis that its index points into
            limit(e.inputs[0], number(e.attrs["within"], symbols))
        if e.op == "eq" and len(e.inputs) == 2:
            for a, b in (e.inputs, e.inputs[::-1]):
                if b in counted:
                    limit(a, counted[b])
        if not is_float(e.output.dtype) and e.output.dtype != "bool":
            sources[e.output] = set().union(*(sources.get(t, set[str]()) for t in e.inputs))
    return limits


def _values(dtype: DType, shape: tuple[int, ...], limit: int | None, rng: np.random.Generator) -> Array:
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(np.bool_)
    if is_float(dtype):
        # Away from zero a wrong element is always a wrong value; both signs keep sums small.
        x = rng.random(shape, dtype=np.float32)
        x += np.float32(0.25)
        x *= np.where(rng.integers(0, 2, shape, dtype=np.uint8), np.float32(1), np.float32(-1))
        return x
    low, high = (0, limit) if limit is not None else (0 if dtype == "uint8" else -9, 10)
    return rng.integers(low, max(low + 1, high), shape, dtype=np.int64)


def random_inputs(
    f: Fusion, seed: int = 0, symbols: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """An array for each input, the same for the same seed, laid out with the input's strides and offset.

    Floats lie in ±[0.25, 1.25), indices in the range of the axes they point into. bfloat16 needs `ml_dtypes`.
    Extents that are symbols need ``symbols``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 5)), f.input("i", shape=(4, 1), dtype="int64")
    >>> f.output(ig.gather(x, 1, i)).shape
    (4, 1)
    >>> {n: (a.shape, str(a.dtype)) for n, a in random_inputs(f).items()}
    {'x': ((4, 5), 'float32'), 'i': ((4, 1), 'int64')}
    """
    rng = np.random.default_rng(seed)
    at = bind(f, {}, symbols)
    at |= free_strides(f, at)
    limits = index_limits(f, at)
    made: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    for t in f.inputs:
        size = math.prod(max(n, 1) for n in shape_of(t, at))
        if size > MAX_ELEMENTS:
            raise EmitError(f"{t.name} has {size:.1e} elements: no machine holds its values", where=t.source_line)
        values = stored(_values(t.dtype, shape_of(t, at), limits.get(t.name), rng), t.dtype)
        made[t.name] = laid_out(values.astype(array_dtype(t.dtype)), layout_of(t, at))
    _make_offsets(f, made, at, rng)
    make_legal(f, made, at, rng)
    return made


def _make_offsets(f: Fusion, arrays: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator) -> None:
    """Offsets of rows, where they are inputs: they begin at 0, never fall, and end at what the rows cover."""
    for e in f.exprs:
        made = e.inputs[0].definition if "covers" in e.attrs else None
        if made is None or made.inputs[0].name not in arrays or made.inputs[0].definition is not None:
            continue
        x = arrays[made.inputs[0].name]
        cover = number(e.attrs["covers"], symbols)
        x[...] = np.sort(rng.integers(0, cover + 1, x.shape)).astype(x.dtype)
        x[0], x[-1] = 0, cover


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of arrays at the border; bfloat16 is ml_dtypes'."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


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
    made = program.mold.made
    touched = tuple(
        m.buffer.title
        for m, (around, mark) in zip(made, guard.zones[-len(made) :], strict=True)  # copies of inputs come before
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
