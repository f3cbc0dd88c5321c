"""Sizes that are known only when a program runs: symbols with their ranges, guards, and what arguments bind them to.

torch names a size s0 and says facts of it as sympy expressions; here they are integer expressions of `idgraph.arith`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from idgraph.arith import ArithError, Expr, as_expr, from_sympy, maximum, simplify, symbol
from idgraph.arith.interop import replace_roundings
from idgraph.errors import FrontendError
from idgraph.ir.walks import reach

Size = int | Expr  # an extent, a stride or an offset: an expression where it is known only at run time
_LARGE = 2**62
_PERIODS = 4096  # of an equation's periodic part that is looked at point by point


@dataclass(slots=True)
class DynamicSizes:
    """``symbols`` by name (their range is part of them), ``guards`` that must hold, ``origin``: where a size is read.

    >>> n = symbol("s0", 2, 64, 2)
    >>> sizes = DynamicSizes({"s0": n}, [n // 2 <= 16])
    >>> env = {}
    >>> sizes.bind((n, n * 4), (10, 40), "x", env), env
    ([], {'s0': 10})
    >>> sizes.broken({"s0": 36})
    ['s0//2 <= 16 does not hold for s0 = 36 (axis 0 of x)']
    """

    symbols: dict[str, Expr] = field(default_factory=dict[str, Expr])
    guards: list[Expr] = field(default_factory=list[Expr])
    origin: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)

    def bind(self, wanted: Sequence[Size], given: Sequence[int], name: str, env: dict[str, int]) -> list[str]:
        """Note the symbols that follow from sizes ``given`` where ``wanted`` are declared; the contradictions."""
        if len(wanted) != len(given):
            return [f"{name} has {len(given)} axes, captured with {len(wanted)}"]
        for p, (w, n) in enumerate(zip(wanted, given, strict=True)):
            if isinstance(w, Expr):
                found = self._solve(w, n, env)
                if found is not None:
                    self.origin.setdefault(found, f"axis {p} of {name}" if w == self.symbols.get(found) else "")
        return []

    def _solve(self, wanted: Expr, given: int, env: dict[str, int]) -> str | None:
        """The name of the symbol that ``wanted == given`` fixes: affine in that one unknown."""
        if wanted.op == "sym":
            if wanted.name in env:
                return None
            env[wanted.name] = given
            return wanted.name
        unknown = [s for s in wanted.names if s not in env]
        if len(unknown) != 1:
            return None
        (name,) = unknown
        base = int(wanted.evaluate({**env, name: 0}))
        slope = int(wanted.evaluate({**env, name: 1})) - base
        if slope and (given - base) % slope == 0:
            value = (given - base) // slope
            if int(wanted.evaluate({**env, name: value})) == given:
                env[name] = value
                return name
        return None

    def _named(self, name: str, env: Mapping[str, int]) -> str:
        """``s0 = 7 (axis 0 of x)``."""
        where = self.origin.get(name)
        return f"{name} = {env[name]}" + (f" ({where})" if where else "")

    def misfits(self, wanted: Sequence[Size], given: Sequence[int], name: str, env: Mapping[str, int]) -> list[str]:
        """The axes whose size is not the declared one."""
        found: list[str] = []
        for p, (w, n) in enumerate(zip(wanted, given, strict=True)):
            if not isinstance(w, int) and w.op == "sym" and env.get(w.name) == n:
                continue
            if isinstance(w, Expr) and not w.names <= env.keys():
                found.append(
                    f"axis {p} of {name} is {n}, declared {w}: no whole number of {', '.join(sorted(w.names))}"
                )
                continue
            size = w if isinstance(w, int) else int(w.evaluate(env))
            if size != n:
                how = "" if isinstance(w, int) else f" = {w}"
                found.append(f"axis {p} of {name} is {n}, captured as {size}{how}")
        return found

    def broken(self, env: Mapping[str, int]) -> list[str]:
        """Ranges and guards that do not hold for the values bound so far."""
        found: list[str] = []
        for name, s in self.symbols.items():
            if name not in env:
                continue
            low, high, step, rest = s.symbol_bounds
            value = env[name]
            if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
                found.append(f"{self._named(name, env)} is outside of {low} to {'any size' if high is None else high}")
            elif value % step != rest:
                found.append(f"{self._named(name, env)} is not a multiple of {step}")
        for g in self.guards:
            if g.names <= env.keys() and not g.evaluate(env):
                known = ", ".join(self._named(s, env) for s in sorted(g.names))
                found.append(f"{g} does not hold for {known}")
        return found


def value_of(size: Size, env: Mapping[str, int]) -> int:
    """A size as a number; raises where a symbol in it is not bound."""
    if isinstance(size, int):
        return size
    if size.op == "sym" and size.name in env:
        return env[size.name]
    missing = sorted(size.names - env.keys())
    if missing:
        raise FrontendError(f"the size {size} is not known yet: nothing gave {', '.join(missing)} a value")
    return int(size.evaluate(env))


def values_of(shape: Iterable[Size], env: Mapping[str, int]) -> tuple[int, ...]:
    """A shape as numbers."""
    return tuple(value_of(n, env) for n in shape)


# from torch -----------------------------------------------------------------------------------------------------------


class Reader:
    """Turns torch's symbolic sizes into expressions, and collects the symbols and guards behind them.

    ``arguments`` are the values that a graph is called with: the symbols among their sizes have values in each call.
    """

    def __init__(self, arguments: Iterable[Any] = ()) -> None:
        sizes = [getattr(n, "node", None) for v in arguments for n in getattr(v, "shape", (v,))]
        self._given = {n.expr.name for n in sizes if n is not None and getattr(n.expr, "is_Symbol", False)}
        self.sizes = DynamicSizes()
        self._env: Any = None
        self._plain: dict[str, Expr] = {}
        self._known: dict[Any, Any] = {}
        self._rounded: dict[Any, str] = {}
        self._steps: dict[str, int] = {}
        self._least: dict[str, list[Expr]] = {}

    def size(self, value: Any) -> Size:
        """An int as it is, torch's SymInt or SymBool as an expression."""
        if isinstance(value, int):
            return value
        self._open(value.node.shape_env)
        found = simplify(self._expr(value.node.expr))
        return int(found) if found.is_const and not found.cond else found

    def _expr(self, x: Any) -> Expr:
        known = self._known.get(x)
        if known is not None:
            return as_expr(known)
        try:
            raw = from_sympy(x)
        except ArithError as error:
            plain = replace_roundings(x, self._rounded)
            if plain == x:
                raise FrontendError(f"the size {x} has no integer meaning here: {error.what}") from None
            return self._expr(plain)
        return raw.substitute({s: self._symbol(s) for s in raw.names})

    def _symbol(self, name: str) -> Expr:
        found = self.sizes.symbols.get(name)
        if found is not None:
            return found
        low, high = self._range(name)
        step = self._steps.get(name, 1)
        if low is not None:
            low = -(-low // step) * step
        least = self._least.get(name, []) if step == 1 else []
        more = [x.substitute({s: self._symbol(s) for s in x.names}) for x in least]
        bound = maximum(low, *more) if low is not None and more else low
        self._plain[name] = symbol(name, low, high, step)  # of which guards speak
        self.sizes.symbols[name] = made = symbol(name, bound, high, step)
        return made

    def _range(self, name: str) -> tuple[int | None, int | None]:
        if name in self._rounded.values():
            return 0, None  # a size
        for s, bounds in self._env.var_to_range.items():
            if s.name == name:
                return _int_bound(bounds.lower), _int_bound(bounds.upper)
        return None, None

    def _open(self, env: Any) -> None:
        """Read the facts of a shape environment, once: first those that make expressions simple."""
        if env is None or env is self._env:
            return
        self._env = env
        facts = [f for f in (_replaced(g.expr, env.replacements) for g in env.guards) if f is not None]
        for fact in facts:
            kind = type(fact).__name__
            if kind != "Equality":
                continue
            left, right = fact.args
            if getattr(right, "is_Integer", False):
                if type(left).__name__ in ("Mod", "PythonMod") and int(right) == 0:
                    self._multiple(left.args[0], left.args[1])
                    self._of_its_part(left.args[0], left.args[1], facts)
                elif not getattr(left, "is_Symbol", False):
                    self._known[left] = int(right)
            for name, step in _exact_quotients(left, right) or _residues(left, right):
                self._steps[name] = math.lcm(step, self._steps.get(name, 1))
        for fact in facts:
            self._order(fact)
        for fact in facts:
            try:
                raw = from_sympy(fact)
            except ArithError:
                continue  # a fact about strides or floats that no size depends on
            guard = simplify(raw.substitute({s: self._plain[self._symbol(s).name] for s in raw.names}))
            if not guard.is_const and guard not in self.sizes.guards:
                self.sizes.guards.append(guard)

    def _order(self, fact: Any) -> None:
        """From ``k <= s - r``: the size s is at least k + r, so that ``x[k:]`` has no negative number of elements."""
        kind = type(fact).__name__
        if kind == "And":
            for part in fact.args:
                self._order(part)
        if kind not in ("LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan"):
            return
        small, large = fact.args if "Less" in kind else fact.args[::-1]
        gap = (large - small - int("Strict" in kind)).expand()
        sizes = [s for s in gap.free_symbols if gap.coeff(s) == 1 and s not in (gap - s).free_symbols]
        others = {o.name for s in sizes[:1] for o in (gap - s).free_symbols}
        known = others <= self._given and all(self._range(o)[0] is not None for o in others)
        if len(sizes) != 1 or not others or not known:
            return
        try:
            least = from_sympy(sizes[0] - gap)
        except ArithError:
            return  # as above: of a product or a quotient that no size depends on
        before = reach(others, lambda o: [n for x in self._least.get(o, ()) for n in x.names])
        if sizes[0].name not in before:  # else each would be the other's bound
            self._least.setdefault(sizes[0].name, []).append(least)

    def _multiple(self, number: Any, of: Any) -> None:
        """From ``number % of == 0`` with one symbol: that symbol's step."""
        top, bottom = (number / of).as_numer_denom()
        free = list(top.free_symbols)
        if len(free) != 1 or not getattr(bottom, "is_Integer", False):
            return
        rest = top / free[0]
        if getattr(rest, "is_Integer", False):
            step = int(bottom) // math.gcd(int(bottom), int(rest))
            self._steps[free[0].name] = math.lcm(step, self._steps.get(free[0].name, 1))

    def _of_its_part(self, number: Any, part: Any, facts: Sequence[Any]) -> None:
        """From ``s % (s//k) == 0`` where ``s//k`` is at least k: what is left of s, below k, is a multiple of it."""
        if type(part).__name__ != "FloorDiv" or part.args[0] != number or not getattr(number, "is_Symbol", False):
            return
        k, (low, _) = part.args[1], self._range(number.name)
        if not getattr(k, "is_Integer", False) or int(k) < 1 or low is None:
            return
        other = [x for f in facts if type(f).__name__ == "Unequality" and part in f.args for x in f.args if x != part]
        least = low // int(k)
        while least < int(k) and least in other:
            least += 1
        if least >= int(k):
            self._steps[number.name] = math.lcm(int(k), self._steps.get(number.name, 1))


def _exact_quotients(left: Any, right: Any) -> list[tuple[str, int]]:
    """(symbol, divisor) of each ``s // d`` of a product that equals one with ``s`` in place of ``d * (s // d)``.

    Sizes are positive and no ``d * (s // d)`` is above ``s``, so that the products are equal where all of these are.
    """
    both = [x for side in (left, right) for x in side.atoms() if getattr(x, "is_Symbol", False)]
    if not all(x.is_positive for x in both):
        return []
    for small, large in ((left, right), (right, left)):
        factors: tuple[Any, ...] = small.args if type(small).__name__ == "Mul" else (small,)
        quotients = [x for x in factors if type(x).__name__ == "FloorDiv" and x.args[0].is_Symbol]
        whole = [x for x in factors if x not in quotients]
        plain = all(x.is_Symbol or (x.is_Integer and x > 0) for x in whole)
        if quotients and plain and all(x.args[1].is_Integer and x.args[1] > 0 for x in quotients):
            exact = math.prod((x.args[0] / x.args[1] for x in quotients), start=math.prod(whole))
            if exact == large:
                return [(x.args[0].name, int(x.args[1])) for x in quotients]
    return []


def _residues(left: Any, right: Any) -> list[tuple[str, int]]:
    """(symbol, k) where an equation of one symbol, of sums of quotients and remainders, holds only for multiples of k.

    Such sums are linear but for a periodic part: a difference that one period does not change is that part.
    """
    names = {x.name for side in (left, right) for x in side.free_symbols}
    period = _nonlinear_period(left) * _nonlinear_period(right)
    if len(names) != 1 or not 1 < period <= _PERIODS:
        return []
    (name,) = names
    try:
        a, b = from_sympy(left), from_sympy(right)
    except ArithError:
        return []
    gaps = [int(a.evaluate({name: v})) - int(b.evaluate({name: v})) for v in range(2 * period)]
    zeros = [v for v in range(period) if not gaps[v]]
    if gaps[:period] != gaps[period:] or not zeros:
        return []
    step = math.gcd(period, *zeros)
    return [(name, step)] if step > 1 else []


def _nonlinear_period(x: Any) -> int:
    """The period of the part of ``x`` that is not linear, or a multiple; 0 where ``x`` is no such sum."""
    kind = type(x).__name__
    if getattr(x, "is_Symbol", False) or getattr(x, "is_Integer", False):
        return 1
    if kind in ("FloorDiv", "Mod", "PythonMod") and getattr(x.args[1], "is_Integer", False) and int(x.args[1]) > 0:
        return int(x.args[1]) * _nonlinear_period(x.args[0])
    linear = kind == "Mul" and sum(not getattr(a, "is_Integer", False) for a in x.args) == 1
    return math.prod(map(_nonlinear_period, x.args)) if kind == "Add" or linear else 0


def _int_bound(value: Any) -> int | None:
    """A bound of torch's, None for infinity."""
    return int(value) if getattr(value, "is_Integer", False) and abs(int(value)) < _LARGE else None


def _replaced(fact: Any, replacements: Mapping[Any, Any]) -> Any:
    """A fact in the symbols that are left after torch joined equal ones."""
    for _ in range(8):
        new = fact.xreplace(replacements)
        if new == fact:
            return new
        fact = new
    return fact
