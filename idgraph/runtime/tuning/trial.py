"""One config tried: scheduled and emitted on a copy of the fusion, its results compared, its runs timed.

The result of a measurement and its text form are data only, and nothing in it is trusted.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from idgraph.errors import EmitError, IdGraphError
from idgraph.ir import DType, Fusion, LoadedCoordinate, Tensor, is_float
from idgraph.runtime.binding import OutputMemory, extents
from idgraph.runtime.cuda.numba_cuda import microseconds, simulated
from idgraph.runtime.cuda.simulator import Simulated
from idgraph.runtime.dispatch import as_numpy
from idgraph.runtime.host_launch import HostPrepared
from idgraph.runtime.program import Program
from idgraph.runtime.shape_specialized import PreparedLaunch
from idgraph.schedule.config import KernelConfig

Array = npt.NDArray[Any]
Work = Callable[[], None]
BLOCK: Final = 1 << 22  # elements compared at a time
WINDOWS: Final = 5  # of which the shortest counts
LEAST_US: Final = 2_000.0  # of one window, where a run is shorter
# The allowed difference of two kernels, relative to the magnitudes of both: each may be off by half of it.
APART: Final[Mapping[DType, float]] = {
    "float64": 1e-9, "float32": 4e-5, "float16": 2.0**-7, "bfloat16": 2.0**-5,
}  # fmt: skip


class Timer(Protocol):
    """Measures microseconds of one call of ``work``, which starts kernels; ``target`` says where they run."""

    def __call__(self, work: Work, target: Literal["cpu", "cuda"]) -> float: ...


def shortest(work: Work, target: Literal["cpu", "cuda"]) -> float:
    """The shortest of several windows: other load on the machine can only lengthen a window.

    A GPU's windows lie between two of its events, others between two readings of the monotonic clock.
    """
    window = microseconds if target == "cuda" and not simulated() else _by_clock
    work()  # compiled, and in the caches
    repeat = max(1, min(200, int(LEAST_US / max(window(work, 1), 1.0))))
    return min(window(work, repeat) for _ in range(WINDOWS))


def _by_clock(work: Work, repeat: int) -> float:
    began = time.perf_counter_ns()
    for _ in range(repeat):
        work()
    return (time.perf_counter_ns() - began) / 1000 / repeat


# inputs and outputs -----------------------------------------------------------------------------------------------


def made_up(fusion: Fusion, symbols: Mapping[str, int] | None) -> dict[str, Array]:
    """Arrays for all inputs: floats of both signs, indices inside the axis that they select from, else zeros."""
    missing = [s for s in fusion.symbols if s not in (symbols or {})]
    if missing:
        raise EmitError(
            f"tuning {fusion.name}: the size {missing[0]} is not known",
            hint=f"tune(..., symbols={{{missing[0]!r}: 1024}}), or the inputs themselves",
        )
    rng, env, made = np.random.default_rng(0), dict(symbols or {}), dict[str, Array]()
    for t in fusion.inputs:
        shape = extents(t, env)
        if is_float(t.dtype):
            values = (rng.random(shape, dtype=np.float32) + np.float32(0.25)) * rng.choice(
                np.array([-1, 1], np.float32), shape
            )
        else:
            values = rng.integers(0, max(1, _selects(t, env)), shape)
        made[t.name] = values.astype(_array_dtype(t.dtype))
    return made


def _selects(t: Tensor, env: Mapping[str, int]) -> int:
    """The least extent of an axis that ``t`` itself selects from; 1 for what is computed with first."""
    found: list[int] = []
    for e in t.uses:
        for operand, row in zip(e.inputs, e.reads, strict=True):
            for axis, read in zip(operand.axes, row, strict=True):
                if isinstance(read, LoadedCoordinate) and e.inputs[read.operand] is t:
                    found.append(int(axis.extent.evaluate(env)))
    return min(found, default=1)


def _array_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: PLC0415  # only where there are such arrays

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def values_of(results: Mapping[str, Any], fusion: Fusion) -> dict[str, Array]:
    """Outputs as arrays to compare, on the host."""
    made: dict[str, Array] = {}
    for t in fusion.outputs:
        array = as_numpy(results[t.name], t.dtype)
        made[t.name] = array.copy()
    return made


def difference(fusion: Fusion, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> str:
    """The differences beyond rounding; empty where there is none."""
    for t in fusion.outputs:
        x, y = found[t.name], wanted[t.name]
        if t.dtype not in APART:
            if not np.array_equal(x, y):
                return f"other values of {t.name}"
            continue
        count, worst = _count_mismatches(x, y, APART[t.dtype])
        if count:
            return f"other values of {t.name}: {count} elements, off by up to {worst:.3g}"
    return ""


def _count_mismatches(found: Array, wanted: Array, relative: float) -> tuple[int, float]:
    """The number of elements off by more than ``relative`` to their magnitude plus the largest one, and by how much."""
    x, y = found.reshape(-1), wanted.reshape(-1)
    scale, count, worst = math.nan, 0, 0.0
    with np.errstate(all="ignore"):
        for n in range(0, y.size, BLOCK):
            u, v = x[n : n + BLOCK], y[n : n + BLOCK]
            other = np.flatnonzero(u != v)  # most configs round most elements alike; NaN differs from itself
            if not other.size:
                continue
            a, b = u[other].astype(np.float64), v[other].astype(np.float64)
            scale = _largest(y) if math.isnan(scale) else scale
            allowed = relative * (np.where(np.isfinite(b), np.abs(b), 0.0) + scale)
            bad = ~((np.abs(a - b) <= allowed) | (np.isnan(a) & np.isnan(b)))
            if bool(bad.any()):
                count += int(bad.sum())
                worst = max(worst, float(np.nan_to_num(np.abs(a - b)[bad], nan=np.inf).max()))
    return count, worst


def _largest(x: Array) -> float:
    """The largest finite magnitude; 0 where there is none."""
    blocks = (np.abs(x[n : n + BLOCK].astype(np.float64)) for n in range(0, x.size, BLOCK))
    return max((float(np.where(np.isfinite(b), b, 0.0).max()) for b in blocks), default=0.0)


def is_faster(us: float, best: float) -> bool:
    """True where a difference is more than noise."""
    return math.isfinite(us) and (math.isnan(best) or us < 0.98 * best)


FORMAT = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """One config: microseconds of a run, the least of several; NaN where it was dropped, and ``note`` says why.

    ``note`` also says where a config is the same kernel as an earlier one, and was not run again.

    >>> Measured(KernelConfig(rows=4), 12.5, "the kernels of rule").us
    12.5
    """

    config: KernelConfig
    us: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The best config, and all that was measured, in the order of the search."""

    best: KernelConfig
    measured: tuple[Measured, ...]

    def to_text(self) -> str:
        """JSON."""
        rows = [
            {"config": m.config.to_data(), "us": None if math.isnan(m.us) else m.us, "note": m.note}
            for m in self.measured
        ]
        return json.dumps({"format": FORMAT, "best": self.best.to_data(), "measured": rows})


def record_of(text: str) -> Record | None:
    """The record that a text holds; None for any text that holds none.

    >>> r = Record(KernelConfig(persistent=True), (Measured(KernelConfig(), 3.5),))
    >>> record_of(r.to_text()) == r, record_of("{}"), record_of("[1, ")
    (True, None, None)
    """
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    found = cast("dict[str, Any]", data)
    rows = found.get("measured")
    if found.get("format") != FORMAT or not isinstance(rows, list):
        return None
    best = _config(found.get("best"))
    measured = [_parse_measurement(r) for r in cast("Sequence[object]", rows)]
    if best is None or any(m is None for m in measured):
        return None
    return Record(best, tuple(m for m in measured if m is not None))


def _config(data: object) -> KernelConfig | None:
    if not isinstance(data, dict):
        return None
    try:
        return KernelConfig.from_data(cast("Mapping[str, object]", data))
    except IdGraphError:
        return None


def _parse_measurement(data: object) -> Measured | None:
    if not isinstance(data, dict):
        return None
    row = cast("dict[str, object]", data)
    config, us, note = _config(row.get("config")), row.get("us"), row.get("note")
    if (
        config is None
        or not isinstance(note, str)
        or isinstance(us, bool)
        or not isinstance(us, (int, float, type(None)))
        or (isinstance(us, int) and us.bit_length() > 64)
    ):
        return None
    return Measured(config, math.nan if us is None else float(us), note)


def prepare_launch(
    program: Program,
    inputs: Mapping[str, Any],
    symbols: Mapping[str, int] | None = None,
    checked: bool = True,
    poison: bool = False,
    overlap: bool = True,
) -> PreparedLaunch | HostPrepared | Simulated:
    """The program with its buffers laid out: ``launch()`` runs its kernels, any number of times. ``results()`` are its
    outputs, which another launch overwrites. ``overlap``: on CUDA, blocks of a kernel may be placed while the
    last ones of the kernel before it run (they wait for its memory); False starts each after the one before has
    ended."""
    if program.target in ("python", "numpy"):
        return HostPrepared(program, inputs, symbols, checked, OutputMemory(poison))
    if program.target == "cuda" and simulated():
        return Simulated(program, inputs, symbols, checked, OutputMemory(poison))
    return program.caller(checked).with_static_buffers(program.ordered(inputs), symbols, poison, overlap)
