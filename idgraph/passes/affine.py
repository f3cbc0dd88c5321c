"""Index expressions of neighbouring lanes as one expression along a variable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from idgraph.arith import Expr, as_expr, simplify
from idgraph.arith.nodes import rebuild


def split_constant(e: Expr) -> tuple[Expr, int]:
    """``e`` as (rest, constant).

    >>> from idgraph.arith import symbol
    >>> rest, constant = split_constant(symbol("i") * 4 + 3)
    >>> str(rest), constant
    ('i*4', 3)
    """
    if e.is_condition:
        return e, 0
    if e.is_const:
        return as_expr(0), int(e)
    if e.op == "add":
        constant = sum(int(a) for a in e.args if a.is_const)
        return (simplify(e - constant), constant) if constant else (e, 0)
    return e, 0


@lru_cache(maxsize=1 << 14)
def shape(e: Expr) -> object:
    """Equal for expressions that differ in constants only.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i")
    >>> shape(i * 4 + 1) == shape(i * 4 + 3) == shape(i * 4), shape(i // 4) == shape(i % 4)
    (True, False)
    """
    if e.is_const:
        return ("#", e.is_condition and bool(e.value))
    if e.op == "sym":
        return e
    args = tuple(shape(a) for a in e.args if not (e.op == "add" and a.is_const))
    return args[0] if e.op == "add" and len(args) == 1 else (e.op, args)


def along(es: Sequence[Expr], var: Expr) -> Expr | None:
    """The expression that is ``es[n]`` at ``var`` = n, where their constants form an arithmetic progression.

    >>> from idgraph.arith import symbol
    >>> i, q = symbol("i"), symbol("q", 0, 2)
    >>> str(along([i * 4 + 1, i * 4 + 3, i * 4 + 5], q)), along([i, i + 1, i + 3], q)
    ('i*4 + q*2 + 1', None)
    """
    if all(e == es[0] for e in es):
        return es[0]
    found = _affine_in(es, var)
    if found is None or any(not _equal(found.substitute({var: n}), e) for n, e in enumerate(es)):
        return None
    return found


def _affine_in(es: Sequence[Expr], var: Expr) -> Expr | None:
    first = es[0]
    if all(e == first for e in es):
        return first
    parts = [split_constant(e) for e in es]
    constants = [c for _, c in parts]
    by = constants[1] - constants[0]
    if any(b - a != by for a, b in pairwise(constants)):
        return None
    rest = parts[0][0]
    if any(r != rest for r, _ in parts):
        if any(r.op != rest.op or len(r.args) != len(rest.args) for r, _ in parts) or not rest.args:
            return None
        args = [_affine_in(column, var) for column in zip(*(r.args for r, _ in parts), strict=True)]
        known = tuple(a for a in args if a is not None)
        if len(known) < len(args):
            return None
        rest = rebuild(rest, known)
    return rest if first.is_condition else rest + constants[0] + var * by


def _equal(a: Expr, b: Expr) -> bool:
    return a == b or simplify(a) == simplify(b) or (not a.is_condition and simplify(a - b) == 0)
