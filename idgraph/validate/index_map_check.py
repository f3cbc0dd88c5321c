"""The address check: every access of every operation, at every point of its loops, against the oracle.

For each point it asks: does the access happen exactly where the operation's definition says, at the element that it
says, at that element's address; does a consumer find in an intermediate's buffer slot the element it wants; is every
output element written once, and every index of a reduction added once. None of this looks at graphs or paths.

From a fault code to a counterexample: what the access has at that point, and what the definition says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from idgraph.errors import EmitError
from idgraph.index import IdModel
from idgraph.ir import Fusion, TensorExpr
from idgraph.loading import LOADING
from idgraph.validate import report as faults
from idgraph.validate.concrete_access import Case, Site, build_case, free_strides
from idgraph.validate.engines import CHUNK, check_points, loop_values, scan_numpy
from idgraph.validate.oracle import INDEXED, ROWED, SCATTERED, bind, evaluate, index_operands
from idgraph.validate.oracle.views import Array
from idgraph.validate.reference_tables import Tables, build_tables, table_bytes
from idgraph.validate.report import AddressMismatch, AddressReport, Progress, Scan, silent
from idgraph.validate.value_check import random_inputs


def find_mismatch(case: Case, tables: Tables, found: Scan) -> AddressMismatch | None:
    """The scan's fault, or one of coverage."""
    if found.bad is not None:
        return describe(case, tables, found.bad, found.code, found.place)
    seen = int(np.count_nonzero(tables.seen))
    visits = found.writes
    if tables.terms is not None:
        terms = int(np.prod([n for p, n in enumerate(case.write.shape) if p not in case.write.kept], dtype=np.int64))
        if terms == 0:
            return None
        per_point = np.count_nonzero(tables.terms, axis=1)
        visits = int(np.count_nonzero(per_point))
        if found.writes != int(per_point.sum()) or visits * terms != found.writes:
            return _coverage_mismatch(case, faults.REDUCED, None)
    if visits != seen and not case.widened:
        return _coverage_mismatch(case, faults.TWICE, _second_visit(case, tables))
    if case.must_cover and seen != tables.seen.size:
        missing = np.argwhere(tables.seen == 0)[0]
        found_none = _coverage_mismatch(case, faults.NEVER, None)
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


def _coverage_mismatch(case: Case, code: int, bad: int | None) -> AddressMismatch:
    if bad is not None:
        return describe(case, None, bad, code, 0)
    e = case.expr
    return AddressMismatch(
        faults.TEXT[code], repr(e), e.output.name, None, {}, None, None, None, None, None, explain_read(e, -1)
    )


def describe(case: Case, tables: Tables | None, bad: int, code: int, place: int) -> AddressMismatch:
    """The counterexample at one loop point, evaluated anew."""
    e = case.expr
    env = {name: int(np.asarray(v).item()) for name, v in loop_values(case, np.asarray([bad])).items()}
    site = case.write if place == 0 else case.reads[place - 1]
    point = dict(env)
    coordinates, address = _evaluate(site, env, tables)
    shape = tuple(site.shape[p] for p in site.kept)
    inside = coordinates is not None and all(0 <= c < n for c, n in zip(coordinates, shape, strict=True))
    element = _row_major(coordinates, shape) if inside and coordinates is not None else None
    expected = element if place == 0 else _expected_element(case, tables, env, place - 1)
    expected_address = None
    if expected is not None:
        where = tuple(int(c) for c in np.unravel_index(expected, shape)) if shape else ()
        expected_address = site.layout.address(where, shape)
    t = site.access.tensor
    operand = place - 1 if 0 < place <= len(e.inputs) else None
    return AddressMismatch(
        faults.TEXT[code], repr(e), t.name, operand, point, coordinates, element, expected,
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


def _expected_element(case: Case, tables: Tables | None, env: dict[str, int], k: int) -> int | None:
    where = tuple(int(c.evaluate(env)) for c in case.write.coordinates)
    if tables is None or not all(0 <= c < n for c, n in zip(where, case.write.shape, strict=True)):
        return None
    found = int(tables.wanted[k][where])
    return found if found >= 0 else None


def explain_read(e: TensorExpr, k: int) -> tuple[str, ...]:
    """The axis expressions between the loops and the operand, for a counterexample."""
    out = e.output
    steps = [f"loops of {out.name}: {', '.join(map(repr, out.loop)) or '(none)'}"]
    steps += [repr(x) for x in reversed(out.domain.loop_exprs)]
    steps += [repr(x) for x in reversed(out.domain.exprs)]
    if 0 <= k < len(e.inputs):
        t = e.inputs[k]
        how = ", ".join(str(r) for r in e.reads[k])
        steps.append(f"operand {k}, {t.name}{list(t.axes)}, is read at: {how}")
        steps += [repr(x) for x in (*t.domain.loop_exprs,)]
    return tuple(steps)


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
            from idgraph.validate.engines import scan_numba  # noqa: PLC0415

        return scan_numba
    if name == "cuda":
        with LOADING:
            from idgraph.validate.engines import scan_cuda  # noqa: PLC0415

        return scan_cuda
    raise EmitError(f"unknown engine {name!r}", hint="auto, numpy, numba or cuda")


def index_values(
    f: Fusion, symbols: Mapping[str, int], inputs: Mapping[str, Array] | None, seed: int
) -> dict[str, Array]:
    """Values of all operands that kernels load as indices, from the inputs given or random ones."""
    names: set[str] = set()
    for e in f.exprs:
        if e.op in INDEXED:
            names |= {t.name for k, t in enumerate(e.inputs) if k != INDEXED[e.op]}
        if e.op in ROWED:
            names |= {t.name for t in e.inputs[1:]}
        if "covers" in e.attrs:
            names |= {t.name for t in e.inputs}
        if "within" in e.attrs:  # compared with the numbers of an axis
            names.add(e.inputs[0].name)
        if e.op in SCATTERED:
            names |= {e.inputs[k].name for k in index_operands(e)}
    if not names:
        return {}
    given = inputs if inputs is not None else random_inputs(f, seed, symbols)
    found = evaluate(f, given, {n: v for n, v in symbols.items() if n in f.symbols}, wanted=sorted(names))
    return {n: np.asarray(a, dtype=np.int64, order="C") for n, a in found.items()}


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
