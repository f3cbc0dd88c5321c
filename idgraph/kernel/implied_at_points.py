"""Whether facts imply one of several conditions, point by point: where the rules of `arith` do not say.

The values of digits of one index imply each other by periods, of which no rule knows ((i + 1)%5 is 2 where i%5 is 1).
A small box of values is enumerated, which decides; of a larger one random points are, which may refute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from idgraph.arith import Expr
from idgraph.arith.enumeration import closure
from idgraph.arith.interval import interval

MOST_POINTS = 1 << 16
SAMPLED = 1 << 14
NEAR = 256  # values of a variable without bounds


def implied_at_points(facts: Sequence[Expr], cases: Sequence[Sequence[Expr]]) -> Mapping[str, int] | bool | None:
    """True where one of ``cases``, all of its conditions, holds at every point of the facts; a point where none does;
    None where neither is known.

    >>> from idgraph.arith import parse
    >>> i, j = parse("i%5 == 1", {"i": 40}), parse("(i + 1)%5 == 2", {"i": 40})
    >>> implied_at_points([i], [[j]]), implied_at_points([], [[i], [j]])
    (True, {'i': 0})
    """
    symbols = closure(*facts, *(c for case in cases for c in case))
    ends = [interval(s) for s in symbols]
    known = all(low is not None and high is not None for low, high in ends)
    lows = [(-NEAR if high is None else high - NEAR) if low is None else low for low, high in ends]
    highs = [low + NEAR if high is None else high for low, (_, high) in zip(lows, ends, strict=True)]
    total = 1
    for low, high in zip(lows, highs, strict=True):
        total *= max(0, high - low + 1)
    every = known and total <= MOST_POINTS
    env = _all_points(symbols, lows, highs, total) if every else _some(symbols, lows, highs)
    here = _hold_at_points(facts, env) & _inside(symbols, env)
    some = np.zeros_like(here)
    for case in cases:
        some |= _hold_at_points(case, env)
    if (here & ~some).any():
        at = int(np.argmax(here & ~some))
        return {n: int(v[at]) for n, v in env.items()}
    return True if every else None


def _all_points(symbols: Sequence[Expr], lows: Sequence[int], highs: Sequence[int], total: int) -> dict[str, Any]:
    env: dict[str, Any] = {}
    rest = np.arange(total, dtype=np.int64)
    for s, low, high in zip(symbols, lows, highs, strict=True):
        rest, at = np.divmod(rest, high - low + 1)
        env[s.name] = at + low
    return env or {"": np.zeros(1, np.int64)}


def _some(symbols: Sequence[Expr], lows: Sequence[int], highs: Sequence[int]) -> dict[str, Any]:
    order = np.random.default_rng(0)
    return {s.name: order.integers(low, high + 1, SAMPLED) for s, low, high in zip(symbols, lows, highs, strict=True)}


def _inside(symbols: Sequence[Expr], env: Mapping[str, Any]) -> Any:
    """Where the bounds that other symbols give, and the congruences, hold too."""
    found: Any = np.ones(len(next(iter(env.values()))), np.bool_)
    for s in symbols:
        low, high, step, rest = s.symbol_bounds
        value = env[s.name]
        found &= value % step == rest % step
        found &= value >= low.evaluate_array(env) if isinstance(low, Expr) else True
        found &= value <= high.evaluate_array(env) if isinstance(high, Expr) else True
    return found


def _hold_at_points(conditions: Sequence[Expr], env: Mapping[str, Any]) -> Any:
    found: Any = np.ones(len(next(iter(env.values()))), np.bool_)
    for c in conditions:
        found = found & np.asarray(c.evaluate_array(env), np.bool_)
    return found
