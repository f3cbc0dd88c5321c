"""Purposes of accesses when several become one: equal loads, neighbours in a vector, lanes in a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, and_, simplify, symbol
from idgraph.kernel.ir import PRIME, Provenance, ProvenanceList
from idgraph.passes.lane_loop_fusion import along

EVERY = f"every{PRIME}"  # the column, in purposes of statements outside of the loop over columns


def guard_provenance(purpose: ProvenanceList, condition: Expr) -> ProvenanceList:
    """The same, where ``condition`` holds."""
    if condition is TRUE:
        return purpose
    return tuple(replace(x, when=and_(x.when, condition)) for x in purpose)


def quantify_provenance(purpose: ProvenanceList, var: Expr, extent: Expr) -> ProvenanceList:
    """The same for all values of ``var`` below ``extent``: the statement was hoisted out of the loop over it."""
    every = symbol(EVERY, *var.symbol_bounds)

    def moved(e: Expr) -> Expr:
        return e.substitute({var: every})

    def each(x: Provenance) -> Provenance:
        if not any(var.name in e.names for e in (*x.point, x.when)):
            return x
        return replace(x, point=tuple(map(moved, x.point)), over=(*x.over, (EVERY, extent)), when=moved(x.when))

    return tuple(map(each, purpose))


def merge_provenance(purposes: Sequence[ProvenanceList], var: Expr) -> ProvenanceList:
    """The purpose of a statement over ``var``, whose purpose at ``var`` = n is ``purposes[n]``.

    >>> i, v = symbol("i"), symbol("v", 0, 1)
    >>> merge_provenance([(Provenance("t0", 0, (i * 4,)),), (Provenance("t0", 0, (i * 4 + 1,)),)], v)[0].point
    (i*4 + v,)
    """
    first = purposes[0]
    if all(p == first for p in purposes):
        return first
    if all(len(p) == len(first) for p in purposes):
        made = [_one(column, var) for column in zip(*purposes, strict=True)]
        known = tuple(x for x in made if x is not None)
        if len(known) == len(made):
            return known
    return tuple(x for n, p in enumerate(purposes) for x in guard_provenance(p, var.eq(n)))


def _along(es: Sequence[Expr], var: Expr) -> Expr | None:
    found = along(es, var)
    return found if found is not None else along(list(map(simplify, es)), var)


def _one(column: Sequence[Provenance], var: Expr) -> Provenance | None:
    first = column[0]
    if any((x.tensor, x.operand, x.over, len(x.point)) != (first.tensor, first.operand, first.over, len(first.point))
           for x in column):  # fmt: skip
        return None
    point = [_along(es, var) for es in zip(*(x.point for x in column), strict=True)]
    when = along([x.when for x in column], var)
    known = tuple(e for e in point if e is not None)
    return replace(first, point=known, when=when) if when is not None and len(known) == len(point) else None
