"""The address check: every access of every operation, at every point of its loops, against the oracle.

For each point it asks: does the access happen exactly where the operation's definition says, at the element that it
says, at that element's address; does a consumer find in an intermediate's buffer slot the element it wants; is every
output element written once, and every index of a reduction added once. None of this looks at graphs or paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from idgraph.errors import EmitError
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.validate.engine_numpy import (
    CHUNK,
    FAULTS,
    NEVER,
    REDUCED,
    TWICE,
    Tables,
    build_tables,
    check_points,
    explain_read,
    loop_values,
)
from idgraph.validate.inputs import random_inputs
from idgraph.validate.layout import free_strides
from idgraph.validate.oracle import INDEXED, bind, evaluate
from idgraph.validate.oracle.moves import Array
from idgraph.validate.progress import Progress, silent
from idgraph.validate.report import AddressMismatch, AddressReport
from idgraph.validate.sites import Case, Site, build_case

Engine = Literal["auto", "numpy", "numba", "cuda"]

SMALL: Final = 1 << 20  # checks below which compiling takes longer than NumPy
TABLE_BYTES: Final = 5 << 30  # oracle tables of one operation, at most
EXHAUSTIVE_CHECKS: Final = 1 << 34  # of one operation; more is sampled
SAMPLE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Scan:
    """What an engine found: the first faulty point (row-major), its code and access, and how many points were writes."""

    writes: int
    bad: int | None
    code: int = 0
    place: int = 0


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
    progress: Progress = silent,
) -> AddressReport:
    """Check the index maps of ``f``; stops at the first wrong access and reports its smallest loop point.

    ``engine``: "numpy", "numba" (compiled, all cores), "cuda", or "auto" by size. ``exhaustive`` False, or an operation
    whose tables would not fit, looks at a random sample of `SAMPLE` points (from ``seed``) and says so.

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
    values = _index_values(f, at, inputs, seed)
    cases = [build_case(m, e, at) for e in f.exprs]
    total = sum(c.checks for c in cases)
    name = _choose(engine, total)
    scan = _scanner(name)
    accesses = points = 0
    sampled: list[str] = []
    mismatch: AddressMismatch | None = None
    rng = np.random.default_rng(seed)
    with progress(f"addresses of {f.name}", total) as advance:
        for case in cases:
            whole = exhaustive and case.checks <= EXHAUSTIVE_CHECKS and _table_bytes(case) <= TABLE_BYTES
            if whole:
                tables = build_tables(case, values, at)
                found = scan(case, tables, advance)
                points += case.checks
                mismatch = _mismatch(case, tables, found)
            else:
                mismatch, looked = _sample(case, values, at, rng)
                points += looked * (1 + len(case.reads))
                sampled.append(
                    f"{case.expr.name}: {looked:,} of {case.points:,} points, seed {seed}; coverage not checked"
                )
                advance(case.checks)
            accesses += 1 + len(case.reads)
            if mismatch is not None:
                break
    widened = tuple(c.expr.name for c in cases if c.widened)
    return AddressReport(mismatch, accesses, points, name, time.perf_counter() - started, tuple(sampled), widened)


def _choose(engine: Engine, checks: int) -> str:
    if engine != "auto":
        return engine
    return "numba" if checks > SMALL else "numpy"


def _scanner(name: str) -> Scanner:
    if name == "numpy":
        return scan_numpy
    if name == "numba":
        from idgraph.validate.engine_numba import scan_numba  # noqa: PLC0415

        return scan_numba
    if name == "cuda":
        from idgraph.validate.engine_cuda import scan_cuda  # noqa: PLC0415

        return scan_cuda
    raise EmitError(f"unknown engine {name!r}", hint="auto, numpy, numba or cuda")


def _index_values(
    f: Fusion, symbols: Mapping[str, int], inputs: Mapping[str, Array] | None, seed: int
) -> dict[str, Array]:
    """Values of all index tensors, from the inputs given or random ones."""
    names: set[str] = set()
    for e in f.exprs:
        if e.op in INDEXED:
            names |= {t.name for k, t in enumerate(e.inputs) if k != INDEXED[e.op]}
    if not names:
        return {}
    given = inputs if inputs is not None else random_inputs(f, seed, symbols)
    found = evaluate(f, given, {n: v for n, v in symbols.items() if n in f.symbols}, wanted=sorted(names))
    return {n: np.ascontiguousarray(a, dtype=np.int64) for n, a in found.items()}


def _table_bytes(case: Case) -> int:
    """Bytes of oracle tables and marks: 4 or 8 for each point of the logical axes and operand."""
    space = int(np.prod(case.write.shape, dtype=np.int64))
    if case.expr.op == "matmul":  # its tables are views
        return space
    return space * (4 * len(case.reads) + 1) + (case.points if case.reduced else 0)


def scan_numpy(case: Case, tables: Tables, advance: Callable[[int], None]) -> Scan:
    """Look at every point, a chunk at a time."""
    writes = 0
    for start in range(0, case.points, CHUNK):
        flat = np.arange(start, min(case.points, start + CHUNK), dtype=np.int64)
        code, where = check_points(case, tables, flat)
        wrong = np.flatnonzero(code >= 2)
        if wrong.size:
            first = int(wrong[0])
            return Scan(writes, start + first, int(code[first]), int(where[first]))
        writes += int(np.count_nonzero(code))
        advance(flat.size * (1 + len(case.reads)))
    return Scan(writes, None)


def _sample(
    case: Case, values: Mapping[str, Array], symbols: Mapping[str, int], rng: np.random.Generator
) -> tuple[AddressMismatch | None, int]:
    tables = build_tables(case, values, symbols, marks=False)
    count = min(SAMPLE, case.points)
    flat = np.sort(rng.integers(0, max(case.points, 1), count)) if count < case.points else np.arange(count)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        code, where = check_points(case, tables, part)
        wrong = np.flatnonzero(code >= 2)
        if wrong.size:
            k = int(wrong[0])
            return _describe(case, tables, int(part[k]), int(code[k]), int(where[k])), start + k
    return None, int(flat.size)


def _mismatch(case: Case, tables: Tables, found: Scan) -> AddressMismatch | None:
    """The scan's fault, or one of coverage."""
    if found.bad is not None:
        return _describe(case, tables, found.bad, found.code, found.place)
    seen = int(np.count_nonzero(tables.seen))
    visits = found.writes
    if tables.terms is not None:
        terms = int(np.prod([n for p, n in enumerate(case.write.shape) if p not in case.write.kept], dtype=np.int64))
        if terms == 0:
            return None
        per_point = np.count_nonzero(tables.terms, axis=1)
        visits = int(np.count_nonzero(per_point))
        if found.writes != int(per_point.sum()) or visits * terms != found.writes:
            return _coverage(case, REDUCED, None)
    if visits != seen and not case.widened:
        return _coverage(case, TWICE, _second_visit(case, tables))
    if case.must_cover and seen != tables.seen.size:
        missing = np.argwhere(tables.seen == 0)[0]
        found_none = _coverage(case, NEVER, None)
        coordinates = tuple(int(c) for c in missing)
        return replace(found_none, coordinates=None, expected=_row_major(coordinates, tables.seen.shape))
    return None


def _row_major(coordinates: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(coordinates, shape)) if coordinates else 0


def _second_visit(case: Case, tables: Tables) -> int | None:
    """The first point that writes an element written before."""
    seen = np.zeros(tables.seen.size, np.bool_)
    w = case.write
    for start in range(0, case.points, CHUNK):
        flat = np.arange(start, min(case.points, start + CHUNK), dtype=np.int64)
        env = loop_values(case, flat)
        happens = np.flatnonzero(np.broadcast_to(w.predicate.evaluate_array(env), flat.shape))
        element = np.zeros(flat.size, np.int64)
        for p in w.kept:
            element = element * w.shape[p] + w.coordinates[p].evaluate_array(env)
        element = element[happens]
        fresh = np.zeros(element.size, np.bool_)
        fresh[np.unique(element, return_index=True)[1]] = True
        again = np.flatnonzero(~fresh | seen[element])
        if again.size and not case.reduced:
            return start + int(happens[again[0]])
        seen[element] = True
    return None


def _coverage(case: Case, code: int, bad: int | None) -> AddressMismatch:
    if bad is not None:
        return _describe(case, None, bad, code, 0)
    e = case.expr
    return AddressMismatch(
        FAULTS[code], repr(e), e.output.name, None, {}, None, None, None, None, None, explain_read(e, -1)
    )


def _describe(case: Case, tables: Tables | None, bad: int, code: int, place: int) -> AddressMismatch:
    """The counterexample at one loop point, evaluated anew."""
    e = case.expr
    env = {name: int(np.asarray(v).item()) for name, v in loop_values(case, np.asarray([bad])).items()}
    site = case.write if place == 0 else case.reads[place - 1]
    point = dict(env)
    coordinates, address = _evaluate(site, env, tables)
    shape = tuple(site.shape[p] for p in site.kept)
    inside = coordinates is not None and all(0 <= c < n for c, n in zip(coordinates, shape, strict=True))
    element = _row_major(coordinates, shape) if inside and coordinates is not None else None
    expected = element if place == 0 else _wanted(case, tables, env, place - 1)
    expected_address = None
    if expected is not None:
        where = tuple(int(c) for c in np.unravel_index(expected, shape)) if shape else ()
        expected_address = site.layout.address(where, shape)
    t = site.access.tensor
    return AddressMismatch(
        FAULTS[code], repr(e), t.name, None if place == 0 else place - 1, point, coordinates, element, expected,
        address, expected_address, explain_read(e, place - 1),
    )  # fmt: skip


def _evaluate(site: Site, env: dict[str, int], tables: Tables | None) -> tuple[tuple[int, ...] | None, int | None]:
    at = dict(env)
    for load in site.loads:
        where = tuple(int(c.evaluate(env)) for c in load.coordinates)
        if tables is None or not all(0 <= c < n for c, n in zip(where, load.shape, strict=True)):
            return None, None
        at[load.name] = int(tables.values[load.tensor.name][where])
    return tuple(int(site.coordinates[p].evaluate(at)) for p in site.kept), int(site.address.evaluate(at))


def _wanted(case: Case, tables: Tables | None, env: dict[str, int], k: int) -> int | None:
    where = tuple(int(c.evaluate(env)) for c in case.write.coordinates)
    if tables is None or not all(0 <= c < n for c, n in zip(where, case.write.shape, strict=True)):
        return None
    found = int(tables.wanted[k][where])
    return found if found >= 0 else None
