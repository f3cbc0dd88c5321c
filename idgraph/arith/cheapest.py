"""From the normal form (sums multiplied out) to the form with the fewest operations."""

from __future__ import annotations

from idgraph.arith.cost import cost
from idgraph.arith.linear import Terms, combine, divide_base, factors, sum_interval, terms
from idgraph.arith.nodes import Expr, add, const, floordiv, from_terms, mod, mul, rebuild


def cheapest(e: Expr) -> Expr:
    """The normal expression ``e`` with common factors taken out and constants moved where they cost least."""
    done: dict[Expr, Expr] = {}
    work = [e]
    while work:
        node = work[-1]
        if node in done:
            work.pop()
            continue
        if not node.args:
            done[node] = node
            work.pop()
            continue
        missing = [a for a in _parts(node) if a not in done]
        if missing:
            work.extend(missing)
            continue
        done[node] = _sum(node, done) if node.op in ("add", "mul") else _plain(node, done)
        work.pop()
    return done[e]


def _parts(node: Expr) -> list[Expr]:
    """What has to be in cheapest form first: the atoms of a sum or product, else the operands."""
    if node.op in ("add", "mul"):
        return [f for b in terms(node)[0] for f in factors(b) if f is not node]
    return list(node.args)


def _plain(node: Expr, done: dict[Expr, Expr]) -> Expr:
    args = tuple(done[a] for a in node.args)
    return node if all(a is b for a, b in zip(args, node.args, strict=True)) else rebuild(node, args)


def _sum(node: Expr, done: dict[Expr, Expr]) -> Expr:
    t, c = terms(node)
    if any(b.op in ("floordiv", "mod") for b in t):
        t, c, moved = _absorbed(t, c)
        t, c, more = _modulo_absorbed(t, c)
        moved += more
        for b in moved:
            if b not in done:
                done[b] = _plain_quotient(b)
    table = {f: done.get(f, f) for b in t for f in factors(b)}
    return _factored(t, c, table)


def _plain_quotient(b: Expr) -> Expr:
    return rebuild(b, (cheapest(b.args[0]), b.args[1]))


def _absorbed(t: Terms, c: int) -> tuple[Terms, int, list[Expr]]:
    """``x//d + k -> (x + k*d)//d`` and the same for a whole term, where that saves an operation."""
    moved: list[Expr] = []
    best = cost(from_terms(t, c))
    again = True
    while again:
        again = False
        for base, v in list(t.items()):
            if base.op != "floordiv" or base.args[1].op != "const":
                continue
            d = base.args[1].value
            tx, cx = terms(base.args[0])
            options: list[tuple[Expr | None, int]] = [(b, w // v) for b, w in t.items() if b in tx and w % v == 0]
            if c and c % v == 0:
                options.append((None, c // v))
            for b, k in options:
                extra = {b: k * d} if b is not None else {}
                new_x = from_terms({x: tx.get(x, 0) + extra.get(x, 0) for x in tx}, cx + (k * d if b is None else 0))
                new = floordiv(new_x, base.args[1])
                if new.op != "floordiv" or new in t:
                    continue
                trial = {x: w for x, w in t.items() if x is not base and x != b}
                trial[new] = v
                trial_c = 0 if b is None else c
                if cost(from_terms(trial, trial_c)) < best:
                    t, c, best, again = trial, trial_c, cost(from_terms(trial, trial_c)), True
                    moved.append(new)
                    break
            if again:
                break
    return t, c, moved


def _modulo_absorbed(t: Terms, c: int) -> tuple[Terms, int, list[Expr]]:
    """``v*(x % d) + S -> (v*x + S) % (v*d)`` for 0 <= S < v, where that saves an operation."""
    best = cost(from_terms(t, c))
    for base, v in t.items():
        if base.op != "mod" or v < 2 or base.args[1].op != "const":
            continue
        period = v * base.args[1].value
        tx, cx = terms(base.args[0])
        rest = {b: w for b, w in t.items() if b is not base}
        for small in ({}, rest) if rest else ({},):
            lo, hi = sum_interval(small, c)
            if lo is None or hi is None or lo < 0 or hi >= v:
                continue
            inner, k = combine(((tx, cx, v), (small, c, 1)))
            new = mod(from_terms({b: _nearest(w, period) for b, w in inner.items()}, k % period), const(period))
            left = {b: w for b, w in rest.items() if b not in small}
            if new.op == "mod" and new not in left and cost(from_terms({**left, new: 1}, 0)) < best:
                return {**left, new: 1}, 0, [new]
    return t, c, []


def _nearest(v: int, period: int) -> int:
    """The residue of ``v`` that a sum writes with fewest signs: 0 <= r, but -1 for period - 1."""
    r = v % period
    return -1 if r == period - 1 else r


def _factored(t: Terms, c: int, table: dict[Expr, Expr]) -> Expr:
    """The sum with common factors taken out, greedily, while that saves multiplications."""
    plain = add((*(_term(b, v, table) for b, v in t.items()), const(c)))
    if len(t) < 2:
        return plain
    candidates: dict[Expr | int, int] = {}
    for base, v in t.items():
        if abs(v) > 1:
            candidates[abs(v)] = candidates.get(abs(v), 0) + 1
        for f in dict.fromkeys(factors(base)):
            candidates[f] = candidates.get(f, 0) + 1
    best = plain
    for candidate, count in candidates.items():
        if count < 2:
            continue
        found = _taken_out(t, c, candidate, table)
        if cost(found) < cost(best) or (cost(found) == cost(best) and best is not plain and found.key < best.key):
            best = found
    return best


def _taken_out(t: Terms, c: int, candidate: Expr | int, table: dict[Expr, Expr]) -> Expr:
    inner: Terms = {}
    outer: Terms = {}
    inner_c = 0
    for base, v in t.items():
        if isinstance(candidate, int):
            if abs(v) == candidate:
                inner[base] = v // candidate
            else:
                outer[base] = v
            continue
        left = divide_base(base, (candidate,))
        if left is None:
            outer[base] = v
        elif left.op == "const":
            inner_c += v
        else:
            inner[left] = inner.get(left, 0) + v
    factor = const(candidate) if isinstance(candidate, int) else table[candidate]
    return add((mul((factor, _factored(inner, inner_c, table))), _factored(outer, c, table)))


def _term(base: Expr, v: int, table: dict[Expr, Expr]) -> Expr:
    return mul((const(v), *(table[f] for f in factors(base))))
