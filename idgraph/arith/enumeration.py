"""Exhaustive checks of small boxes, with NumPy in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from idgraph.arith.evaluate import evaluate_array
from idgraph.arith.expr import ArithZeroDivisionError, Expr, postorder
from idgraph.arith.interval import interval

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_INT64 = 1 << 62
_TRIES = 400  # of points that are drawn


def closure(*exprs: Expr) -> list[Expr]:
    """All symbols of the expressions and, transitively, of their symbols' bounds; by name."""
    found: dict[Expr, None] = {}
    work = [s for e in exprs for s in e.symbols]
    while work:
        s = work.pop()
        if s not in found:
            found[s] = None
            for b in s.symbol_bounds[:2]:
                if isinstance(b, Expr):
                    work.extend(b.symbols)
    return sorted(found, key=lambda s: s.name)


def box(exprs: tuple[Expr, ...]) -> dict[str, range] | str:
    """The values each symbol can take, as ranges; or why there is no finite box."""
    out: dict[str, range] = {}
    for s in closure(*exprs):
        lo, hi = interval(s)
        if lo is None or hi is None:
            return f"{s.name} is unbounded"
        _, _, m, r = s.symbol_bounds
        values = range(lo + (r - lo) % m, hi + 1, m)
        if s.name in out and out[s.name] != values:
            lo, hi = max(values.start, out[s.name].start), min(values.stop, out[s.name].stop)
            values = range(lo, hi)  # two ranges of one name: both hold (the domain test re-checks steps)
        out[s.name] = values
    return out


def count_of(values: Mapping[str, Sequence[int]]) -> int:
    """The number of points of a box; len() of a range ends at the largest index of a list.

    >>> count_of({"i": range(0, 2**62), "j": range(0, 10, 4)}) == 3 * 2**62
    True
    """
    sizes = (max(0, -(-(v.stop - v.start) // v.step)) if isinstance(v, range) else len(v) for v in values.values())
    return prod(sizes)


def points(values: Mapping[str, Sequence[int]], numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The points of a box with these row-major numbers: of each symbol its values there."""
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    env: dict[str, Any] = {}
    for name in reversed(list(values)):
        v = values[name]
        own = numbers % max(len(v), 1)
        env[name] = v.start + own * v.step if isinstance(v, range) else np.asarray(v, np.int64)[own]
        numbers = numbers // max(len(v), 1)
    return {name: env[name] for name in values}


def first_failure(claim: Expr, facts: tuple[Expr, ...], limit: int, chunk: int) -> dict[str, int] | int | str:
    """A failing point, or how many points were checked, or why it was not tried."""
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    symbols = closure(claim, *facts)
    values = box((claim, *facts))
    if isinstance(values, str):
        return f"no enumeration: {values}"
    total = count_of(values)
    if total > limit:
        return f"no enumeration: {total} points, at most {limit}"
    if any(_too_wide(e) for e in (claim, *facts)):
        return "no enumeration: values exceed 64 bits"
    if not values:
        return 1 if claim.evaluate({}) or not all(fact.evaluate({}) for fact in facts) else {}
    names = list(values)
    for start in range(0, total, chunk):
        env = points(values, np.arange(start, min(start + chunk, total), dtype=np.int64))
        inside = _mask_of_ranges(symbols, env, np.ones(min(chunk, total - start), np.bool_))
        for fact in facts:
            inside &= evaluate_array(fact, env)
        try:
            env_in = {k: x[inside] for k, x in env.items()}
            holds = np.broadcast_to(evaluate_array(claim, env_in), env_in[names[0]].shape)
        except ArithZeroDivisionError:
            return "the claim divides by zero at some of the points"
        if not holds.all():
            at = int(np.argmin(holds))
            return {name: int(env_in[name][at]) for name in names}
    return total


def values_met(condition: Expr, of: Expr, limit: int) -> list[int] | None:
    """The values of a symbol at which some values of the other symbols meet a condition, in order.

    None where there is no finite box, or one of more than ``limit`` points.

    >>> from idgraph.arith.expr import symbol
    >>> c, s = symbol("c", 0, 9), symbol("s", 0, 1)
    >>> values_met((c + s*7 >= 9) & (c < 5), c, 100)
    [2, 3, 4]
    """
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    values = box((condition, of))
    if isinstance(values, str):
        return None
    total = count_of(values)
    if total > limit or _too_wide(condition):
        return None
    env = points(values, np.arange(total, dtype=np.int64))
    inside = _mask_of_ranges(closure(condition, of), env, np.ones(total, np.bool_))
    inside &= evaluate_array(condition, env)
    return np.unique(env[of.name][inside]).tolist()


def sampled_failure(claim: Expr, facts: tuple[Expr, ...]) -> dict[str, int] | None:
    """A failing point among some that are tried, small numbers and ends of ranges first; the same ones every time."""
    symbols = _bounds_first(closure(claim, *facts))
    draw = Random(0)
    for attempt in range(_TRIES):
        env: dict[str, int] = {}
        spread = 2 + attempt if attempt < _TRIES // 2 else 1 << draw.randrange(4, 40)
        if not all(_draw(s, env, spread, draw) for s in symbols):
            continue
        try:
            if all(fact.evaluate(env) for fact in facts) and not claim.evaluate(env):
                return dict(sorted(env.items()))
        except ArithZeroDivisionError:
            continue
    return None


def _bounds_first(symbols: list[Expr]) -> list[Expr]:
    """Each symbol behind those that its bounds speak of."""
    order: dict[Expr, None] = {}

    def visit(s: Expr, above: frozenset[str]) -> None:
        for b in s.symbol_bounds[:2]:
            for inner in sorted(b.symbols, key=lambda x: x.name) if isinstance(b, Expr) else ():
                if inner.name not in above:
                    visit(inner, above | {inner.name})
        order[s] = None

    for s in symbols:
        visit(s, frozenset({s.name}))
    return list(order)


def _draw(s: Expr, env: dict[str, int], spread: int, draw: Random) -> bool:
    """Give a symbol a value of its range, at most about ``spread`` from an end of it (or from 0); False without one."""
    said_low, said_high, m, r = s.symbol_bounds
    low, high = interval(s)
    if isinstance(said_low, Expr):
        low = int(said_low.evaluate(env))
    if isinstance(said_high, Expr):
        high = int(said_high.evaluate(env))
    if s.name in env:
        held = env[s.name]
        return (low is None or held >= low) and (high is None or held <= high) and held % m == r % m
    if low is None:
        low, high = (-spread, spread) if high is None else (high - spread, high)
    elif high is None:
        high = low + spread
    elif high - low > spread:
        low, high = (high - spread, high) if draw.random() < 0.5 else (low, low + spread)
    first = low + (r - low) % m
    if first > high:
        return False
    env[s.name] = first + m * draw.randrange((high - first) // m + 1)
    return True


def _mask_of_ranges(symbols: list[Expr], env: dict[str, Any], inside: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    for s in symbols:
        lo, hi, m, r = s.symbol_bounds
        if isinstance(lo, Expr):
            inside &= evaluate_array(lo, env) <= env[s.name]
        if isinstance(hi, Expr):
            inside &= env[s.name] <= evaluate_array(hi, env)
        low, high = interval(s)
        if low is not None and high is not None:
            inside &= (env[s.name] >= low) & (env[s.name] <= high)
        if m > 1:
            inside &= env[s.name] % m == r
    return inside


def _too_wide(e: Expr) -> bool:
    """Whether some node may exceed the 64 bits the arrays have."""
    for node in postorder(e):
        lo, hi = interval(node)
        if lo is None or hi is None or lo < -_INT64 or hi > _INT64:
            return True
    return False
