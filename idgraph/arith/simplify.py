"""The simplifier's public verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from idgraph.arith.cost import cost
from idgraph.arith.nodes import (
    FALSE,
    TRUE,
    VERBS,
    Expr,
    add,
    and_,
    as_expr,
    const,
    floordiv,
    from_terms,
    mod,
    mul,
    or_,
    postorder,
    rebuild,
)
from idgraph.arith.ranges import interval, multiple_of
from idgraph.arith.sympy_bridge import from_sympy, is_sympy
from idgraph.arith.text import parse, ranged_symbols


def read(e: Expr | int | str | Any, ranges: Mapping[str, Any] | None = None) -> Expr:
    """Text, sympy or an own expression as an expression with the given ranges."""
    if isinstance(e, str):
        return parse(e, ranges)
    if isinstance(e, (Expr, int)):
        out = as_expr(e)
        if ranges:
            scope = ranged_symbols(ranges)
            out = out.substitute({name: scope[name] for name in out.names if name in scope})
        return out
    if is_sympy(e):
        return from_sympy(e, ranges)
    return as_expr(e)


def simplify(e: Expr | int | str | Any, ranges: Mapping[str, Any] | None = None, facts: Iterable[Expr] = ()) -> Expr:
    """The cheapest equal form known.

    >>> str(simplify("(i*32 + j)//32", {"i": 4, "j": 32}))
    'i'
    """
    node = read(e, ranges)
    known = [f for fact in facts for f in (fact.args if fact.op == "and" else (fact,))]
    for _ in range(8):
        done: dict[Expr, Expr] = {}
        for n in postorder(node):
            m = rebuild(n, tuple(done[a] for a in n.args)) if n.args else n
            done[n] = _step(m, known)
        new = done[node]
        if new == node:
            break
        if cost(new) > cost(node):
            break
        node = new
    return node


def trace(e: Expr) -> list[str]:
    """Names of the rules that fire on ``e``."""
    return []


def terms(x: Expr) -> tuple[dict[Expr, int], int]:
    out: dict[Expr, int] = {}
    constant = 0
    work = [(x, 1)]
    while work:
        t, k = work.pop()
        if t.op == "add":
            work.extend((a, k) for a in t.args)
        elif t.op == "const":
            constant += k * t.value
        elif t.base is not None:
            work.append((t.base, k * t.coef))
        else:
            out[t] = out.get(t, 0) + k
    return {b: c for b, c in out.items() if c}, constant


def _step(x: Expr, facts: list[Expr]) -> Expr:
    if x.cond:
        return _condition(x, facts)
    lo, hi = interval(x)
    if lo is not None and lo == hi:
        return const(lo)
    match x.op:
        case "add":
            return _sum(x)
        case "floordiv":
            return _quotient(x)
        case "mod":
            return _remainder(x)
        case "min" | "max":
            keep = list(x.args)
            for a in x.args:
                for b in keep:
                    if a is not b and len(keep) > 1 and a in keep:
                        lo, _ = interval(from_terms(*terms(b - a if x.op == "max" else a - b)))
                        if lo is not None and lo >= 0:
                            keep.remove(a)
                            break
            return rebuild(x, tuple(keep))
        case _:
            return x


def _sum(x: Expr) -> Expr:
    t, c = terms(x)
    for b, k in list(t.items()):
        if b.op == "mod" and b in t:
            q = floordiv(b.args[0], b.args[1])
            if b.args[1].op == "const" and t.get(q) == k * b.args[1].value:
                del t[q], t[b]
                more, cc = terms(mul((const(k), b.args[0])))
                c += cc
                for bb, kk in more.items():
                    t[bb] = t.get(bb, 0) + kk
    return from_terms(t, c)


def _quotient(x: Expr) -> Expr:
    a, d = x.args
    if d.op != "const" or d.value <= 0:
        return x
    k = d.value
    t, c = terms(a)
    out = {b: v // k for b, v in t.items() if v % k == 0}
    rest = {b: v for b, v in t.items() if v % k}
    low = from_terms(rest, c % k)
    lo, hi = interval(low)
    if lo is not None and hi is not None and lo // k == hi // k:
        return from_terms(out, c // k + lo // k)
    if low.op == "floordiv" and low.args[1].op == "const" and low.args[1].value > 0:
        return add((from_terms(out, c // k), floordiv(low.args[0], const(k * low.args[1].value))))
    return add((from_terms(out, c // k), floordiv(low, d)))


def _remainder(x: Expr) -> Expr:
    a, d = x.args
    if d.op != "const" or d.value <= 0:
        return x
    k = d.value
    t, c = terms(a)
    rest: dict[Expr, int] = {}
    for b, v in t.items():
        if v % k:
            if b.op == "mod" and b.args[1].op == "const" and b.args[1].value * v % k == 0:
                more, cc = terms(mul((const(v), b.args[0])))
                c += cc
                for bb, kk in more.items():
                    rest[bb] = rest.get(bb, 0) + kk
            else:
                rest[b] = rest.get(b, 0) + v
    low = from_terms({b: v for b, v in rest.items() if v % k}, c % k)
    lo, hi = interval(low)
    if lo is not None and hi is not None and lo // k == hi // k:
        return add((low, const(-(lo // k) * k)))
    return mod(low, d)


def _condition(x: Expr, facts: list[Expr]) -> Expr:
    if x in facts:
        return TRUE
    match x.op:
        case "lt" | "le":
            diff = from_terms(*terms(x.args[1] - x.args[0]))
            lo, hi = interval(diff)
            least = 1 if x.op == "lt" else 0
            if lo is not None and lo >= least:
                return TRUE
            if hi is not None and hi < least:
                return FALSE
        case "eq" | "ne":
            diff = from_terms(*terms(x.args[1] - x.args[0]))
            lo, hi = interval(diff)
            if (lo is not None and lo > 0) or (hi is not None and hi < 0):
                return FALSE if x.op == "eq" else TRUE
            if lo is not None and lo == hi:
                return TRUE if x.op == "eq" else FALSE
        case "and":
            return and_(*x.args)
        case "or":
            return or_(*x.args)
        case _:
            pass
    return x


__all__ = ["multiple_of", "read", "simplify", "terms", "trace"]


def _verb(e: Expr, facts: Iterable[Expr]) -> Expr:
    return simplify(e, facts=facts)


VERBS.simplify = _verb
