"""From a fault code to a counterexample: what the access has at that point, and what the definition says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from idgraph.ir import TensorExpr
from idgraph.validate import faults
from idgraph.validate.answers import Scan
from idgraph.validate.concrete_access import Case, Site
from idgraph.validate.engine_numpy import CHUNK, loop_values
from idgraph.validate.lookup_tables import Tables
from idgraph.validate.report import AddressMismatch


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
            return _coverage(case, faults.REDUCED, None)
    if visits != seen and not case.widened:
        return _coverage(case, faults.TWICE, _second_visit(case, tables))
    if case.must_cover and seen != tables.seen.size:
        missing = np.argwhere(tables.seen == 0)[0]
        found_none = _coverage(case, faults.NEVER, None)
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
    expected = element if place == 0 else _wanted(case, tables, env, place - 1)
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


def _wanted(case: Case, tables: Tables | None, env: dict[str, int], k: int) -> int | None:
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
