"""An expression under a condition: symbols with narrower ranges, and conditions that the condition decides.

A fact ``sum >= 0`` bounds each of its symbols and atoms; the expression is rewritten over symbols with those bounds,
simplified, and written back.
"""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.arith.bounds import nonneg
from idgraph.arith.engine import normal
from idgraph.arith.linear import Terms, combine, minus, sum_interval, terms
from idgraph.arith.nodes import (
    FALSE,
    TRUE,
    Expr,
    as_expr,
    from_terms,
    maximum,
    minimum,
    postorder,
    rebuild,
    symbol,
)
from idgraph.arith.ranges import congruence, interval

Fact = tuple[Terms, int]  # the sum is >= 0
_ATOMS = ("mod", "floordiv", "min", "max", "xor", "where")
_MAX_FACTS = 24


def facts_of(cond: Expr) -> list[Fact]:
    """The sums that a (normal) condition says are >= 0."""
    out: list[Fact] = []
    for c in cond.args if cond.op == "and" else (cond,):
        match c.op:
            case "lt" | "le":
                t, k = minus(c.args[1], c.args[0])
                out.append((t, k - (c.op == "lt")))
            case "eq":
                out.append(minus(c.args[0], c.args[1]))
                out.append(minus(c.args[1], c.args[0]))
            case "ne":
                out.extend(_off_the_end(c))
            case _:
                pass
    return out[:_MAX_FACTS]


def _off_the_end(c: Expr) -> list[Fact]:
    """``x != bound`` where the bound is an end of the range of ``x``."""
    t, k = minus(c.args[0], c.args[1])
    lo, hi = sum_interval(t, k)
    if lo == 0:
        return [(t, k - 1)]
    if hi == 0:
        return [({b: -v for b, v in t.items()}, -k - 1)]
    return []


def replace(e: Expr, table: dict[Expr, Expr]) -> Expr:
    """``e`` with whole nodes replaced."""
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        new = table.get(node)
        if new is None:
            new = node
            if node.args:
                args = tuple(out[a] for a in node.args)
                if any(a is not b for a, b in zip(args, node.args, strict=True)):
                    new = rebuild(node, args)
        out[node] = new
    return out[e]


def assume(e: Expr, cond: Expr) -> Expr:
    """A form of the normal expression ``e`` that is equal wherever ``cond`` holds; ``e`` itself if that says nothing."""
    if not e.symbols & cond.symbols:
        return e
    known = facts_of(cond)
    decided = _decided(e, cond, known)
    out = replace(e, decided) if decided else e
    table = refinements(out, known)
    if table:
        refined = normal(replace(out, table))
        out = replace(refined, {new: old for old, new in table.items()})
    elif decided:
        out = normal(out)
    return e if out == e else out


def _decided(e: Expr, cond: Expr, known: list[Fact]) -> dict[Expr, Expr]:
    out: dict[Expr, Expr] = {}
    for node in postorder(e):
        if node.cond and node.op in ("lt", "le", "eq", "ne"):
            truth = decide(node, known)
            if truth is not None:
                out[node] = TRUE if truth else FALSE
    given = cond.args if cond.op == "and" else (cond,)
    for c in given:
        out[c] = TRUE
    return out


def decide(c: Expr, known: Iterable[Fact]) -> bool | None:
    """What the facts say about a comparison."""
    t, k = minus(c.args[1], c.args[0])
    back = ({b: -v for b, v in t.items()}, -k)
    known = list(known)
    match c.op:
        case "lt" | "le":
            k -= c.op == "lt"
            if implied((t, k), known):
                return True
            return False if implied((back[0], -k - 1), known) else None
        case "eq" | "ne":
            if implied((t, k - 1), known) or implied((back[0], back[1] - 1), known):
                return c.op == "ne"
            if implied((t, k), known) and implied(back, known):
                return c.op == "eq"
            return None
        case _:
            return None


def implied(claim: Fact, known: list[Fact]) -> bool:
    """Whether ``claim >= 0`` follows from one fact, or from the sum of two."""
    t, c = claim
    for n, (ft, fc) in enumerate(known):
        if not (t.keys() & ft.keys()):
            continue
        rest, rc = combine(((t, c, 1), (ft, fc, -1)))
        if nonneg(rest, rc):
            return True
        for gt, gc in known[n + 1 :]:
            if gt.keys() & rest.keys():
                rest2, rc2 = combine(((rest, rc, 1), (gt, gc, -1)))
                if nonneg(rest2, rc2):
                    return True
    return False


def refinements(e: Expr, known: list[Fact]) -> dict[Expr, Expr]:
    """Symbols (and atoms) of ``e`` with the narrower ranges that the facts give them."""
    inside = set(e.symbols)
    if any(b.op in _ATOMS for t, _ in known for b in t):
        inside.update(n for n in postorder(e) if n.op in _ATOMS)
    found: dict[Expr, tuple[list[Expr], list[Expr]]] = {}
    for t, c in known:
        for base, v in t.items():
            if base not in inside:
                continue
            rest = {b: k for b, k in t.items() if b is not base}
            bound = _bound(base, v, rest, c)
            if bound is not None:
                lows, highs = found.setdefault(base, ([], []))
                (lows if v > 0 else highs).append(bound)
    out: dict[Expr, Expr] = {}
    for base, (lows, highs) in found.items():
        new = _narrowed(base, lows, highs)
        if new is not None:
            out[base] = new
    return out


def _bound(base: Expr, v: int, rest: Terms, c: int) -> Expr | None:
    """The bound that ``v*base + rest + c >= 0`` puts on ``base``: lower for v > 0, upper for v < 0."""
    _, high = sum_interval(rest, c)
    number = None if high is None else (-(high // v) if v > 0 else high // -v)
    if not rest or abs(v) != 1 or base.op != "sym" or any(base in b.symbols for b in rest):
        return None if number is None else as_expr(number)
    other = from_terms(rest, c)
    exact = from_terms({b: -k for b, k in rest.items()}, -c) if v > 0 else other
    if number is None:
        return exact
    return maximum(exact, number) if v > 0 else minimum(exact, number)


def _narrowed(base: Expr, lows: list[Expr], highs: list[Expr]) -> Expr | None:
    if base.op == "sym":
        lo, hi, m, r = base.symbol_bounds
    else:
        lo, hi = interval(base)
        m, r = congruence(base)
    low, high = interval(base)
    new_lows = [b for b in lows if b.op != "const" or low is None or b.value > low]
    new_highs = [b for b in highs if b.op != "const" or high is None or b.value < high]
    if not new_lows and not new_highs:
        return None
    if lo is not None:
        new_lows.append(as_expr(lo))
    if hi is not None:
        new_highs.append(as_expr(hi))
    name = base.name if base.op == "sym" else f"\0{base.op}{base._key[3]}"
    return symbol(
        name, maximum(*new_lows) if new_lows else None, minimum(*new_highs) if new_highs else None, m or 1, r
    )
