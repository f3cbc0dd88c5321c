"""Random index expressions, checked point by point: ``python -m tools.judges.random_expressions 100000 [seed]``.

The generator and the check know nothing of the rules: values come from the checker's own reading of the printed text.
Ranges are negative, one-point, empty, strided and symbolic too; an expression is compared wherever it is defined.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idgraph.arith import Expr, const, maximum, minimum, simplify, symbol, trace, where, xor
from tools.judges.expressions import cost, divmods, evaluate

CONSTANTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, -1, -2, -3, -4)
MAX_POINTS = 4000


@dataclass(slots=True)
class Scope:
    """Symbols of one random expression: loop variables and extents."""

    variables: list[Expr]
    extents: list[Expr]


class Generator:
    """A stream of random expressions that depends only on its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def scope(self) -> Scope:
        """Three variables and two extents with ranges of every kind."""
        pick = self.random
        n = symbol("n", pick.choice([0, 1, 1, 1, 2, -2]), pick.choice([3, 4, 5, 8]), pick.choice([1, 1, 1, 2]))
        m = symbol("m", 1, pick.choice([2, 3, 4]))
        variables: list[Expr] = []
        for name in "ijk":
            if pick.random() < 0.6:
                lo, size = pick.choice([0, 0, 0, 0, 1, -3, -8, -1]), pick.choice([0, 1, 2, 2, 3, 4, 5, 7, 8, 16])
                step = pick.choice([1, 1, 1, 1, 2, 3, 4])
                variables.append(symbol(name, lo, lo + size - 1, step, pick.randrange(step)))
            else:
                top = pick.choice([n - 1, m - 1, n * m - 1, n, n + m])
                variables.append(symbol(name, pick.choice([const(0), const(0), -n]), top))
        return Scope(variables, [n, m])

    def integer(self, depth: int, scope: Scope) -> Expr:
        """A random integer expression."""
        pick = self.random
        r = pick.random()
        if depth <= 0 or r < 0.08:
            symbols = [*scope.variables, *scope.variables, *scope.extents]
            return pick.choice(symbols) if pick.random() < 0.8 else const(pick.choice((0, *CONSTANTS)))
        a = self.integer(depth - 1, scope)
        if r < 0.35:
            return a + self.integer(depth - 1, scope)
        if r < 0.40:
            return a - self.integer(depth - 1, scope)
        if r < 0.52:
            return a * pick.choice(CONSTANTS)
        if r < 0.57:
            return a * pick.choice([*scope.extents, *scope.variables])
        if r < 0.69:
            return a // self.divisor(scope)
        if r < 0.82:
            return a % self.divisor(scope)
        if r < 0.86:
            return minimum(a, self.integer(depth - 1, scope))
        if r < 0.90:
            return maximum(a, self.integer(depth - 1, scope))
        if r < 0.95:
            return where(self.condition(depth - 1, scope), a, self.integer(depth - 1, scope))
        return xor(a, self.integer(depth - 1, scope))

    def divisor(self, scope: Scope) -> int | Expr:
        """A constant, mostly; else an extent, a multiple or a product."""
        n, m = scope.extents
        return self.random.choice(CONSTANTS) if self.random.random() < 0.8 else self.random.choice([n, m, n * m, n * 2])

    def condition(self, depth: int, scope: Scope) -> Expr:
        """A random condition."""
        pick = self.random
        r = pick.random()
        if depth <= 0 or r < 0.6:
            a = self.integer(max(0, depth - 1), scope)
            b = self.integer(max(0, depth - 1), scope) if pick.random() < 0.5 else const(pick.choice(CONSTANTS))
            return pick.choice([a < b, a <= b, a > b, a >= b, a.eq(b), a.ne(b)])
        a, b = self.condition(depth - 1, scope), self.condition(depth - 1, scope)
        return a & b if r < 0.8 else a | b if r < 0.95 else ~a

    def index(self, scope: Scope) -> Expr:
        """An expression of the shapes that schedules make: splits put together, rotations, reshapes, swizzles."""
        pick = self.random
        x, y, z = self.integer(1, scope), self.integer(1, scope), self.integer(0, scope)
        c, d = pick.choice([2, 4, 8, 3]), pick.choice([2, 4, 3])
        i, j, k = scope.variables
        n, m = scope.extents
        nested = (i * n + j) * m + k
        shapes: list[Any] = [
            lambda: x // c * c + x % c,
            lambda: (x // c % d) * c + x % c + x // (c * d) * (c * d),
            lambda: ((x + c) % (c * d) + c) % (c * d),
            lambda: (x * c * d + y * c + z) // pick.choice([c, d, c * d]) % pick.choice([c, d, c * d]),
            lambda: (i * n + j) // n * n + (i * n + j) % n,
            lambda: pick.choice([nested // (n * m), nested // m % n, nested % m, nested % (n * m) // m]),
            lambda: ((i * 8 + xor(j, i % 8)) % 8) ^ (i % 8),
            lambda: where(i < c, i + d, i - c) // d,
            lambda: (x % c + y * c) % (c * d) // c,
            lambda: minimum(maximum(x, 0), c * d - 1) // c,
            lambda: where(x < y, x % c, y // d) * c + where(x < y, z, x % d),
            lambda: (x + c - 1) // c * c - x,
        ]
        return pick.choice(shapes)()

    def expressions(self) -> Iterator[Expr]:
        """Expressions without end."""
        while True:
            scope = self.scope()
            r = self.random.random()
            if r < 0.4:
                yield self.index(scope)
            elif r < 0.85:
                yield self.integer(self.random.choice([1, 2, 3, 3, 4]), scope)
            else:
                yield self.condition(2, scope)


# ---- checking --------------------------------------------------------------------------------------------------
def all_symbols(*exprs: Expr) -> list[Expr]:
    """The symbols of the expressions and of their symbols' bounds, extents first."""
    found: dict[Expr, None] = {}
    work = [s for e in exprs for s in e.symbols]
    while work:
        s = work.pop()
        if s not in found:
            found[s] = None
            work.extend(t for b in s.symbol_bounds[:2] if isinstance(b, Expr) for t in b.symbols)
    return sorted(found, key=lambda s: (s.name not in "nm", s.name))


def points(exprs: tuple[Expr, ...], pick: random.Random) -> dict[str, Any]:
    """Points of the ranges of all symbols: all of them if there are few."""
    symbols = all_symbols(*exprs)
    extents = {s.name: s for s in symbols if s.name in "nm"}
    values: dict[str, range] = {}
    for s in symbols:
        lo, hi = s.symbol_bounds[:2]
        if isinstance(lo, int) and isinstance(hi, int):
            values[s.name] = range(lo, hi + 1)
        else:
            reach = 2 * max([1, *(int(e.symbol_bounds[1]) for e in extents.values() if e.symbol_bounds[1] is not None)])
            values[s.name] = range(-reach, reach * reach + 1)
    total = int(np.prod([float(len(v)) for v in values.values()]))
    if total == 0:
        return {name: np.zeros(0, np.int64) for name in values}
    if total <= MAX_POINTS:
        table = np.array(list(itertools.product(*values.values())), dtype=np.int64).reshape(total, len(values))
    else:
        columns = [np.array([pick.choice(v) for _ in range(MAX_POINTS)], dtype=np.int64) for v in values.values()]
        table = np.stack(columns, axis=1)
    env: dict[str, Any] = {name: table[:, k] for k, name in enumerate(values)}
    keep = np.ones(len(table), np.bool_)
    for s in symbols:
        lo, hi, step, first = s.symbol_bounds
        for bound, sign in ((lo, 1), (hi, -1)):
            if bound is not None:
                at = evaluate(str(bound), env) if isinstance(bound, Expr) else bound
                keep &= sign * (env[s.name] - at) >= 0
        keep &= env[s.name] % step == first
    return {name: v[keep] for name, v in env.items()}


_POISON = -(1 << 40) - 12345


def values_of(e: Expr, env: dict[str, Any]) -> Any:
    """Values of the printed text, and a mask of the points where it is defined."""
    count = len(next(iter(env.values()))) if env else 1
    try:
        with np.errstate(divide="raise"):
            return np.broadcast_to(evaluate(str(e), env), (count,)), np.ones(count, np.bool_)
    except (FloatingPointError, ZeroDivisionError):
        pass
    out, defined = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    for k in range(count):
        try:
            out[k] = e.evaluate({name: int(v[k]) for name, v in env.items()})
            defined[k] = True
        except ZeroDivisionError:
            pass
    return out, defined


def difference(before: Expr, after: Expr, pick: random.Random) -> str | None:
    """A point where ``before`` is defined and ``after`` is not equal to it."""
    env = points((before, after), pick)
    if env and not len(next(iter(env.values()))):
        return None
    a, defined = values_of(before, env)
    b, also = values_of(after, env)
    bad = np.flatnonzero(defined & ((a != b) | ~also))
    if not len(bad):
        return None
    at = {name: int(v[bad[0]]) for name, v in env.items()}
    ranges = [(s.name, *(str(b) for b in s.symbol_bounds)) for s in all_symbols(before, after)]
    return f"{before} -> {after} at {at}: {a[bad[0]]} became {b[bad[0]]}; ranges {ranges}"


@dataclass(slots=True)
class Outcome:
    """The findings of a run."""

    count: int = 0
    faults: list[str] = field(default_factory=list[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    seconds: list[float] = field(default_factory=list[float])


def run(count: int, seed: int, steps: bool = False) -> Outcome:
    """Simplify ``count`` expressions and check value, cost, divisions, idempotence; each rule application on demand."""
    out = Outcome()
    pick = random.Random(seed + 1)
    for e in itertools.islice(Generator(seed).expressions(), count):
        out.count += 1
        started = time.perf_counter()
        try:
            s = simplify(e)
        except Exception as error:
            out.faults.append(f"{type(error).__name__}: {error} on {e}")
            continue
        out.seconds.append(time.perf_counter() - started)
        wrong = difference(e, s, pick)
        if wrong:
            out.faults.append(f"value: {wrong}")
        before, after = str(e), str(s)
        if cost(after) > cost(before) or divmods(after) > divmods(before):
            out.faults.append(f"cost: {before} -> {after}")
        if simplify(s) != s:
            out.faults.append(f"not a fixed point: {e} -> {s} -> {simplify(s)}")
        for step in trace(e) if steps else ():
            out.fired[step.rule] += 1
            wrong = difference(step.before, step.after, pick)
            if wrong:
                out.faults.append(f"rule {step.rule}: {wrong}")
    return out


def main() -> None:
    """Print the faults of a run and how long an expression takes."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = run(count, seed, steps="--steps" in sys.argv)
    times = sorted(found.seconds)
    print(f"{found.count} expressions, {len(found.faults)} faults")
    print(f"simplify: median {times[len(times) // 2] * 1e6:.0f} us, p95 {times[len(times) * 95 // 100] * 1e6:.0f} us")
    for line in found.faults[:20]:
        print(line)
    if found.fired:
        print(", ".join(f"{name} {n}" for name, n in found.fired.most_common()))
    sys.exit(bool(found.faults))


if __name__ == "__main__":
    main()
