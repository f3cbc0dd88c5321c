"""Sizes at which a program of any size computes its numbers: each case of its conditions is met at one of them.

What a statement computes is one formula between the conditions that its ``value``, its reads and its mask state. A
combination of these that integers can satisfy (`idgraph.arith.integer_solutions`) is a case; its numbers are right at
every size where they are right at a point of each case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from idgraph.arith import TRUE, Expr, and_, as_expr, not_, or_, simplify
from idgraph.arith.integer_solutions import no_solution
from idgraph.check.enumeration import sample_sizes, unraveled
from idgraph.check.program import (
    Axis,
    Nest,
    NeutralProgram,
    StatementValue,
    TreeGuard,
    TreeLoop,
    TreeNode,
    Write,
    tree_of,
)

POINTS = 1 << 16
MOST = 5  # conditions of one statement whose combinations are looked at
LARGEST = 12  # doublings of a size
_ARITHMETIC: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}  # fmt: skip
_COMPARE = {"lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A case that no size that was tried has a point of."""

    nest: Nest
    write: Write
    condition: Expr


def sizes_of_cases(p: NeutralProgram) -> tuple[list[dict[str, int]], OpenCase | None]:
    """The sizes, and a case that none of them meets, or that is none of integer formulas; None where there is none."""
    sizes = list(sample_sizes(p))
    if not p.symbols:
        return sizes[:1], None
    every = list(_statements(tree_of(p), (), TRUE, p.symbols))
    more = list(_larger(p))
    for axes, when, nest, w, scope in every:
        found = _conditions(w, scope)
        if found is None or len(found) > MOST:
            return sizes, OpenCase(nest, w, TRUE)
        met = set[tuple[bool, ...]]()
        for s in sizes:
            met |= _met(axes, when, found, s)
        for signs in product((True, False), repeat=len(found)):
            case = [c if sign else not_(c) for c, sign in zip(found, signs, strict=True)]
            if signs in met or no_solution(*p.facts, when, *(a.extent >= 1 for a in axes), *case):
                continue
            at = next((s for s in more if signs in _met(axes, when, found, s)), None)
            if at is None:
                return sizes, OpenCase(nest, w, simplify(and_(*case)))
            sizes.append(at)
            met |= _met(axes, when, found, at)
    return sizes, None


def _larger(p: NeutralProgram) -> Iterator[dict[str, int]]:
    """Larger sizes: twice as large each time, and one more."""
    least = next(iter(sample_sizes(p)))
    for k in range(2, LARGEST):
        for more in (0, 1):
            env: dict[str, int] = {}
            for name, s in p.symbols.items():
                _, high, step, _ = s.symbol_bounds
                env[name] = least[name] + step * ((1 << k) // step + more)
                if isinstance(high, int) and env[name] > high:
                    env[name] = least[name]
            if all(bool(f.evaluate(env)) for f in p.facts if f.names <= env.keys()):
                yield env


def _statements(
    body: Sequence[TreeNode], loops: tuple[Axis, ...], when: Expr, names: Mapping[str, Expr]
) -> Iterator[tuple[tuple[Axis, ...], Expr, Nest, Write, Mapping[str, Expr]]]:
    for node in body:
        if isinstance(node, TreeGuard):
            yield from _statements(node.body, loops, and_(when, node.when), names)
        elif isinstance(node, TreeLoop):
            yield from _statements(node.body, (*loops, node.axis), when, names)
        else:
            axes = (*loops, *node.axes)
            scope = {**names, **{a.name: a.symbol for a in axes}}
            for w in node.writes:
                yield axes, and_(when, w.when), node, w, scope


def _conditions(w: Write, scope: Mapping[str, Expr]) -> list[Expr] | None:
    """The conditions on integers of a statement; None where its value has another formula of positions."""
    found = dict.fromkeys(r.when for r in w.reads if r.when is not TRUE)
    work = [w.value] if w.value is not None else []
    while work:
        v = work.pop()
        if v.op in (*_COMPARE, "and", "or", "not"):
            c = _integer_condition(v, scope)
            if c is None and _of_positions(v):
                return None
            if c is not None:
                found[c] = None
                continue
        elif v.op not in ("add", "sub", "mul", "neg", "name", "number", "where") and any(
            _of_positions(x) for x in v.parts
        ):
            return None
        work += v.parts
    return [c for c in found if not c.is_const]


def _of_positions(v: StatementValue) -> bool:
    """Whether a formula is of loops and sizes only, and of some."""
    names = _names(v)
    return bool(names) and not any(n[0] == "r" and n[1:].isdigit() for n in names)


def _names(v: StatementValue) -> set[str]:
    return set[str]({v.name} if v.op == "name" else ()).union(*(_names(x) for x in v.parts))


def _integer_condition(v: StatementValue, scope: Mapping[str, Expr]) -> Expr | None:
    """A condition of loops and sizes as an expression; None for others."""
    parts = [_integer_condition(x, scope) for x in v.parts]
    known = [x for x in parts if x is not None]
    if len(known) < len(parts):
        return None
    match v.op:
        case "name":
            return scope.get(v.name)
        case "number":
            return as_expr(int(v.number)) if v.number == int(v.number) else None
        case op if op in _ARITHMETIC and not any(x.cond for x in known):
            a, b = known
            return _ARITHMETIC[v.op](a, b)
        case "neg" if not known[0].cond:
            return -known[0]
        case "and" | "or" if all(x.cond for x in known):
            return (and_ if v.op == "and" else or_)(*known)
        case "not" if known[0].cond:
            return not_(known[0])
        case _ if v.op in _COMPARE and not any(x.cond for x in known):
            made: Expr = getattr(known[0], _COMPARE[v.op])(known[1])
            return made
        case _:
            return None


def _met(
    axes: Sequence[Axis], when: Expr, conditions: Sequence[Expr], sizes: Mapping[str, int]
) -> set[tuple[bool, ...]]:
    """The combinations that points of the loops meet."""
    spans = [max(int(a.extent.evaluate(sizes)), 0) for a in axes]
    if prod(spans) > POINTS:
        return set()
    flat = np.arange(prod(spans), dtype=np.int64)
    env = {**sizes, **dict(zip((a.name for a in axes), unraveled(flat, spans), strict=True))}
    if any(not c.names <= env.keys() for c in (when, *conditions)):
        return set()
    live = np.broadcast_to(when.evaluate_array(env), flat.shape).astype(bool)
    rows = [np.broadcast_to(c.evaluate_array(env), flat.shape).astype(bool)[live] for c in conditions]
    return set(zip(*(r.tolist() for r in rows), strict=True)) if rows else ({()} if live.any() else set())
