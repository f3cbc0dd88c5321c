"""The address check: every access of every operation, at every point of its loops, against the oracle.

For each point it asks: does the access happen exactly where the operation's definition says, at the element that it
says, at that element's address; does a consumer find in an intermediate's buffer slot the element it wants; is every
output element written once, and every index of a reduction added once. None of this looks at graphs or paths.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from idgraph.errors import EmitError
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.loading import LOADING
from idgraph.validate.answers import Scan
from idgraph.validate.concrete_access import Case, build_case
from idgraph.validate.diagnosis import describe, find_mismatch
from idgraph.validate.engine_numpy import CHUNK, check_points, scan_numpy
from idgraph.validate.inputs import random_inputs
from idgraph.validate.layout import free_strides
from idgraph.validate.lookup_tables import Tables, build_tables, table_bytes
from idgraph.validate.oracle import INDEXED, SCATTERED, bind, evaluate, index_operands
from idgraph.validate.oracle.moves import Array
from idgraph.validate.progress import Progress, silent
from idgraph.validate.report import AddressMismatch, AddressReport

Engine = Literal["auto", "numpy", "numba", "cuda"]


def _free_memory() -> int:
    """Bytes of free memory; 0 where the system does not report them."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


SMALL: Final = 1 << 26  # checks below which compiling takes longer than NumPy
TABLE_BYTES: Final = max(5 << 30, _free_memory() // 8)  # oracle tables of one operation, at most
EXHAUSTIVE_CHECKS: Final = 1 << 34  # of one operation; more is sampled
SAMPLE: Final = 1 << 22


Scanner = Callable[[Case, Tables, Callable[[int], None]], Scan]


def check_addresses(
    f: Fusion,
    *,
    model: IdModel | None = None,
    symbols: Mapping[str, int] | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
    exhaustive: bool = True,
    engine: Engine = "auto",
    large: Literal["numba", "cuda"] = "numba",
    progress: Progress = silent,
) -> AddressReport:
    """Check the index maps of ``f``; stops at the first wrong access and reports its smallest loop point.

    ``engine``: "numpy", "numba" (compiled, all cores), "cuda", or "auto": NumPy, and ``large`` where there is much to
    do. ``exhaustive`` False, or an operation whose tables would not fit, looks at a random sample of `SAMPLE` points
    (from ``seed``) and says so.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> f.output(t + ig.cat([t[4:], t[:4]])).name
    't4'
    >>> r = check_addresses(f)
    >>> r.ok, r.accesses, r.points
    (True, 10, 64)
    """
    started = time.perf_counter()
    at = bind(f, {n: np.shape(a) for n, a in (inputs or {}).items()}, symbols)
    at |= free_strides(f, at)
    m = model if model is not None else IdModel(f)
    values = index_values(f, at, inputs, seed)
    cases = [build_case(m, e, at) for e in f.exprs]
    total = sum(c.checks for c in cases)
    name = engine if engine != "auto" else large if total > SMALL else "numpy"
    scan = _scanner(name)
    rng = np.random.default_rng(seed)
    looked: list[_Looked] = []
    looking = 0.0
    with progress(f"addresses of {f.name}", total) as advance:
        for case in cases:
            whole = exhaustive and case.checks <= EXHAUSTIVE_CHECKS and table_bytes(case) <= TABLE_BYTES
            if whole:
                tables = build_tables(case, values, at)
                began = time.perf_counter()
                found = scan(case, tables, advance)
                looking += found.seconds if found.seconds is not None else time.perf_counter() - began
                looked.append(_Looked(find_mismatch(case, tables, found), case.points))
            else:
                looked.append(_sample(case, values, at, rng))
                advance(case.checks)
            if looked[-1].mismatch is not None:
                break
    done = list(zip(cases, looked, strict=False))
    return AddressReport(
        looked[-1].mismatch if looked else None,
        accesses=sum(1 + len(c.reads) for c, _ in done),
        points=sum(n.points * (1 + len(c.reads)) for c, n in done),
        engine=name,
        seconds=time.perf_counter() - started,
        looking=looking,
        sampled=tuple(f"{c.expr.name}: {n.part}, seed {seed}; coverage not checked" for c, n in done if n.part),
        widened=tuple(c.expr.name for c in cases if c.widened),
    )


@dataclass(frozen=True, slots=True)
class _Looked:
    """The result of one operation; ``part`` says how much of it was a sample, empty where all was checked."""

    mismatch: AddressMismatch | None
    points: int
    part: str = ""


def _scanner(name: str) -> Scanner:
    if name == "numpy":
        return scan_numpy
    if name == "numba":
        with LOADING:
            from idgraph.validate.engine_numba import scan_numba  # noqa: PLC0415

        return scan_numba
    if name == "cuda":
        with LOADING:
            from idgraph.validate.engine_cuda import scan_cuda  # noqa: PLC0415

        return scan_cuda
    raise EmitError(f"unknown engine {name!r}", hint="auto, numpy, numba or cuda")


def index_values(
    f: Fusion, symbols: Mapping[str, int], inputs: Mapping[str, Array] | None, seed: int
) -> dict[str, Array]:
    """Values of all index tensors, from the inputs given or random ones."""
    names: set[str] = set()
    for e in f.exprs:
        if e.op in INDEXED:
            names |= {t.name for k, t in enumerate(e.inputs) if k != INDEXED[e.op]}
        if e.op in SCATTERED:
            names |= {e.inputs[k].name for k in index_operands(e)}
    if not names:
        return {}
    given = inputs if inputs is not None else random_inputs(f, seed, symbols)
    found = evaluate(f, given, {n: v for n, v in symbols.items() if n in f.symbols}, wanted=sorted(names))
    return {n: np.ascontiguousarray(a, dtype=np.int64) for n, a in found.items()}


def _sample(case: Case, values: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator) -> _Looked:
    """Random points, in the order of the loops."""
    tables = build_tables(case, values, symbols, marks=False)
    count = min(SAMPLE, case.points)
    flat = np.sort(rng.integers(0, max(case.points, 1), count)) if count < case.points else np.arange(count)
    part = f"{count:,} of {case.points:,} points"
    for start in range(0, count, CHUNK):
        points = flat[start : start + CHUNK]
        code, where = check_points(case, tables, points)
        wrong = np.flatnonzero(code >= 2)
        if wrong.size:
            k = int(wrong[0])
            found = describe(case, tables, int(points[k]), int(code[k]), int(where[k]))
            return _Looked(found, start + k + 1, part)
    return _Looked(None, count, part)
