"""The index that another compiler would compute for an access, compared with ours: as functions and by cost.

Both sides are texts, read by Python's own parser and evaluated with NumPy at every point of the loops: nothing of the
library takes part but the texts it printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.validate import check_addresses
from tools.judges.expressions import cost, evaluate

Builder = Callable[[ig.Fusion], None]


@dataclass(frozen=True, slots=True)
class Expected:
    """An access as the other compiler has it, in loop variables i0, i1, ... of the operation that makes ``of``.

    ``address``: elements, or ``axes`` coordinates for each axis of the shape; ``when``: the predicate. Empty texts are
    not compared. ``only_inside``: the address is the other's where its predicate holds, and its business elsewhere.
    """

    of: str
    touched: str
    address: str = ""
    when: str = ""
    axes: tuple[str, ...] = ()
    only_inside: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """``source`` says in words whose expectation it is; ``build`` fills and schedules a fusion."""

    source: str
    build: Builder
    expected: tuple[Expected, ...]
    symbols: tuple[Mapping[str, int], ...] = field(default=({},))


def case(
    cases: dict[str, Case], source: str, *expected: Expected, **symbols: tuple[int, ...]
) -> Callable[[Builder], Builder]:
    """Enter a case under its builder's name; ``symbols`` gives the values each symbol takes, one after another."""

    def register(build: Builder) -> Builder:
        count = max((len(v) for v in symbols.values()), default=1)
        points = tuple({n: v[k % len(v)] for n, v in symbols.items()} for k in range(count))
        assert build.__name__ not in cases, "two cases of one name"
        cases[build.__name__] = Case(source, build, expected, points)
        return build

    return register


def box(a: ig.Access, values: Mapping[str, int]) -> dict[str, Any]:
    """Every point of the loops, and one value for each symbol."""
    numbers: dict[str, Any] = {n: np.int64(v) for n, v in values.items()}
    extents = [int(evaluate(str(x.extent), numbers)) for x in a.loops]
    grids = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in extents), indexing="ij")
    return {**numbers, **{x.name: g.ravel() for x, g in zip(a.loops, grids, strict=True)}}


def values(text: str, env: Mapping[str, Any]) -> Any:
    """``text`` at every point of the box."""
    size = max((np.size(v) for v in env.values()), default=1)
    return np.broadcast_to(np.asarray(evaluate(text, dict(env))), (size,))


def differences(f: ig.Fusion, case: Case) -> list[str]:
    """The differences from the expectation: other values, another predicate, or more operations than expected."""
    m = ig.IdModel(f)
    m.verify()
    wrong: list[str] = []
    for x in case.expected:
        e = f[x.of].definition
        assert e is not None
        a = m.access(e, f[x.touched])
        a = a.guarded() if x.only_inside else a
        pairs = [(x.address, str(a.address), "address")] if x.address else []
        if x.axes:
            pairs += [(t, str(c), f"axis {n}") for n, (t, c) in enumerate(zip(x.axes, a.coordinates, strict=True))]
        for theirs, ours, what in pairs:
            if cost(ours) > cost(theirs):
                wrong.append(f"{a}: {what} {ours} costs more than {theirs}")
        if x.when and cost(str(a.predicate)) > cost(x.when):
            wrong.append(f"{a}: predicate {a.predicate} costs more than {x.when}")
        for symbols in case.symbols:
            env = box(a, symbols)
            inside = values(x.when or str(a.predicate), env).astype(bool)
            if x.when:
                wrong += told(a, "predicate", inside != values(str(a.predicate), env).astype(bool), env)
            for theirs, ours, what in pairs:
                other = values(theirs, env) != values(ours, env)
                wrong += told(a, what, other & inside if x.only_inside else other, env)
    return wrong


def told(a: ig.Access, what: str, bad: Any, env: Mapping[str, Any]) -> list[str]:
    """The first point at which two texts differ, in words."""
    at = np.flatnonzero(bad)
    if not len(at):
        return []
    point = {n: int(v[at[0]]) if np.ndim(v) else int(v) for n, v in env.items()}
    return [f"{a}: {what} differs at {point}, and {len(at) - 1} more"]


def judged(name: str, case: Case) -> list[str]:
    """`differences` of a case, and what the oracle finds wrong with any access of it."""
    f = ig.Fusion(name)
    case.build(f)
    wrong = differences(f, case)
    for symbols in case.symbols:
        report = check_addresses(f, symbols={n: v for n, v in symbols.items() if not n.startswith("stride")})
        if not report.ok:
            wrong.append(f"{symbols}: {report.mismatch}")
    return wrong
