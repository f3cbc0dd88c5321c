"""Decisions about a map by its points: two points with one image, an element that no point maps to.

Small boxes are listed whole. Of larger ones a few values of each symbol are, chosen around 0 and around the numbers
that the map divides by: a collision found there is a witness; where none is found, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from idgraph.arith.enumeration import closure, count_of
from idgraph.arith.enumeration import points as box_points
from idgraph.arith.expr import ArithZeroDivisionError, Expr, postorder
from idgraph.arith.interval import interval

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_POINTS = 4_000_000
_SAMPLED = 200_000
_WIDE = 1 << 62
Property = Literal["injective", "surjective", "bijective", "dense", "exact"]


@dataclass(frozen=True, slots=True)
class MapProof:
    """The property holds; truthy."""

    what: Property
    method: Literal["inverse", "exhaustive", "definition"]
    points: int = 0

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        how = f"at all {self.points} points" if self.method == "exhaustive" else f"by {self.method}"
        return f"proved {self.what} {how}"


@dataclass(frozen=True, slots=True)
class Collision:
    """Two points with one image: not injective; falsy. ``parameters`` are the numbers that other symbols have there."""

    first: dict[str, int]
    second: dict[str, int]
    image: tuple[int, ...]
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.first} and {self.second} both go to {self.image}{_for(self.parameters)}"


@dataclass(frozen=True, slots=True)
class Missed:
    """An element that no point maps to, or an image outside of the codomain; falsy."""

    image: tuple[int, ...]
    outside: bool = False
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        if self.outside:
            return f"{self.image} lies outside the codomain{_for(self.parameters)}"
        return f"nothing goes to {self.image}{_for(self.parameters)}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither proved nor refuted; falsy."""

    tried: tuple[str, ...]

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"not decided; tried: {'; '.join(self.tried)}"


MapVerdict = MapProof | Collision | Missed | Undecided


def _for(parameters: Mapping[str, int]) -> str:
    return " where " + ", ".join(f"{k}={v}" for k, v in sorted(parameters.items())) if parameters else ""


@dataclass(frozen=True, slots=True)
class DomainPoints:
    """Points of a domain: for each symbol the values at all of them; ``names`` are the domain's own symbols."""

    names: tuple[str, ...]
    env: Mapping[str, npt.NDArray[np.int64]]
    count: int

    def table(self) -> npt.NDArray[np.int64]:
        """One point in each row."""
        import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

        columns = [self.env[n] for n in self.names]
        return np.stack(columns, axis=1) if columns else np.zeros((self.count, 0), np.int64)

    def free(self, exprs: Sequence[Expr]) -> bool:
        """Whether the expressions speak of other symbols than these points give values to."""
        return any(n not in self.env for x in exprs for n in x.names) or set(self.env) > set(self.names)

    def images(self, results: Sequence[Expr]) -> npt.NDArray[np.int64]:
        """One coordinate in each row."""
        import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

        made = [np.broadcast_to(r.evaluate_array(self.env), (self.count,)) for r in results]
        return np.stack(made) if made else np.zeros((0, self.count), np.int64)

    def collision(self, results: Sequence[Expr]) -> Collision | None:
        """Two of these points, equal in all symbols but the domain's, with one image."""
        import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

        others = [n for n in self.env if n not in self.names]
        images = self.images(results)
        rows = np.concatenate([images, *(self.env[n][None] for n in others)]) if others else images
        order = np.lexsort(rows[::-1]) if len(rows) else np.arange(self.count)
        ordered = rows[:, order]
        same = (ordered[:, 1:] == ordered[:, :-1]).all(axis=0)
        if not same.any():
            return None
        at = int(np.argmax(same))
        first, second = sorted((int(order[at]), int(order[at + 1])))
        image = tuple(int(y) for y in images[:, first])
        return Collision(self.point(first), self.point(second), image, {n: int(self.env[n][first]) for n in others})

    def point(self, at: int) -> dict[str, int]:
        return {n: int(self.env[n][at]) for n in self.names}

    def decide(self, results: Sequence[Expr], sizes: Sequence[int], what: Property) -> MapVerdict:
        """The property, these being all points of the domain."""
        import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

        images = self.images(results)
        if what == "dense":
            if not self.count:
                return MapProof(what, "exhaustive", 0)
            low = images.min(axis=1, initial=_WIDE)
            sizes = [int(n) for n in images.max(axis=1, initial=-_WIDE) - low + 1]
            images = images - low[:, None]
            if prod(sizes) > MAX_POINTS:
                return Undecided((f"no enumeration: a bounding box of {prod(sizes)} elements",))
        else:
            low = np.zeros(len(sizes), np.int64)
            inside = np.logical_and.reduce(
                [(y >= 0) & (y < n) for y, n in zip(images, sizes, strict=True)], initial=True
            )
            if not np.all(inside):
                return Missed(tuple(int(y) for y in images[:, int(np.argmin(inside))]), outside=True)
        hit = np.zeros(prod(sizes), np.bool_)
        hit[np.ravel_multi_index(tuple(images), tuple(sizes)) if len(sizes) else 0] = self.count > 0
        if not hit.all():
            missed = np.unravel_index(int(np.argmin(hit)), tuple(sizes))
            return Missed(tuple(int(y + n) for y, n in zip(missed, low, strict=True)))
        return MapProof(what, "exhaustive", self.count)


def _candidate_values(symbols: Sequence[Expr], few: Sequence[int]) -> dict[str, list[int] | range] | str:
    """The values each symbol takes: all, or with ``few`` those near its ends and near these numbers."""
    out: dict[str, list[int] | range] = {}
    for s in symbols:
        lo, hi = interval(s)
        _, _, m, r = s.symbol_bounds
        if not few:
            if lo is None or hi is None:
                return f"{s.name} has no constant bounds"
            out[s.name] = range(lo + (r - lo) % m, hi + 1, m)
            continue
        low = lo if lo is not None else (hi - 64 if hi is not None else 0)
        high = hi if hi is not None else low + _WIDE
        near = [low + d + e for d in (0, *few) for e in (0, 1, 2, -1)] + [high, high - 1, *range(low, low + 9)]
        kept = sorted({x for x in near if low <= x <= high and x % m == r % m and abs(x) < 1 << 50})
        out[s.name] = kept
    return out


def _grid(
    symbols: Sequence[Expr], own: Sequence[Expr], condition: Expr, values: Mapping[str, list[int] | range]
) -> DomainPoints | str:
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    total = count_of(values)
    if total > MAX_POINTS:
        return f"{total} points, at most {MAX_POINTS}"
    env = box_points(values, np.arange(total, dtype=np.int64))
    inside = np.ones(total, np.bool_)
    for s in symbols:
        lo, hi = s.symbol_bounds[:2]
        for c in ([] if not isinstance(lo, Expr) else [s >= lo]) + ([] if not isinstance(hi, Expr) else [s <= hi]):
            inside &= c.evaluate_array(env)
    inside &= condition.evaluate_array(env)
    return DomainPoints(tuple(s.name for s in own), {n: x[inside] for n, x in env.items()}, int(inside.sum()))


def points_of(symbols: Sequence[Expr], condition: Expr) -> DomainPoints | str:
    """All points of a domain, or why they are not listed."""
    every = _scope(symbols, (condition,))
    values = _candidate_values(every, ())
    return values if isinstance(values, str) else _grid(every, symbols, condition, values)


def _scope(symbols: Sequence[Expr], exprs: Sequence[Expr]) -> list[Expr]:
    """The domain's symbols, then the parameters; one for each name."""
    found = {s.name: s for s in symbols}
    for s in closure(*symbols, *exprs):
        found.setdefault(s.name, s)
    return list(found.values())


def sample(symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr) -> DomainPoints | None:
    """All points of the domain if they are few, else some; None where the numbers are too large to look at."""
    every = _scope(symbols, (*results, condition))
    values = _candidate_values(every, ())
    whole = isinstance(values, dict) and count_of(values) <= MAX_POINTS
    if not whole:
        told = sorted({abs(n.value) for x in (*results, condition) for n in postorder(x) if n.op == "const"} - {0})
        numbers = [*told[:6], *(a * b for a in told[:3] for b in told[:3])] or [1]
        for most in (len(numbers), 4, 1):
            values = _candidate_values(every, numbers[:most])
            if isinstance(values, dict) and count_of(values) <= _SAMPLED:
                break
        assert isinstance(values, dict)
        share = max(2, int(_SAMPLED ** (1 / max(1, len(values)))))
        if count_of(values) > _SAMPLED:
            values = {n: list(islice(v, share)) for n, v in values.items()}
    if not isinstance(values, dict):
        return None
    try:
        found = _grid(every, symbols, condition, values)
    except (ArithZeroDivisionError, OverflowError):
        return None
    return found if isinstance(found, DomainPoints) else None


def find_collision(symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr) -> MapVerdict:
    """Two points with one image; or the proof, by listing all points, that there are none."""
    found = sample(symbols, results, condition)
    if found is None:
        return Undecided(("no inverse was found", "the numbers are too large to look at points"))
    try:
        met = found.collision(results)
    except (ArithZeroDivisionError, OverflowError):
        return Undecided(("no inverse was found", "it divides by zero at some points"))
    if met is not None and _exact(met, results):
        return met
    every = points_of(symbols, condition)
    if isinstance(every, DomainPoints) and not every.free(results) and every.count == found.count:
        return MapProof("injective", "exhaustive", every.count)
    return Undecided(("no inverse was found", f"no two of {found.count} points have one image"))


def _exact(met: Collision, results: Sequence[Expr]) -> bool:
    """The collision again, with integers that cannot wrap."""
    ways = [tuple(r.evaluate({**met.parameters, **point}) for r in results) for point in (met.first, met.second)]
    return ways[0] == ways[1]


def find_gap(points: DomainPoints, results: Sequence[Expr], image: Expr, images: Sequence[Expr]) -> Missed | int:
    """An element between reached ones, in every coordinate, that ``image`` leaves out; or how many were looked at."""
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    if not points.count:
        return 0
    others = {n: int(x[0]) for n, x in points.env.items() if n not in points.names}  # parameters of the first point
    mine = np.logical_and.reduce([points.env[n] == v for n, v in others.items()], initial=True)
    reached = points.images(results)[:, np.broadcast_to(mine, (points.count,))]
    low, high = reached.min(axis=1), reached.max(axis=1)
    sizes = [int(b - a + 1) for a, b in zip(low, high, strict=True)]
    if prod(sizes) <= _SAMPLED:
        tried = np.indices(sizes, dtype=np.int64).reshape(len(sizes), prod(sizes))
    else:
        draw = np.random.default_rng(0)
        far = np.stack([draw.integers(0, n, _SAMPLED) for n in sizes])
        tried = np.concatenate([far, np.stack([np.arange(64) % n for n in sizes])], axis=1)
    env: dict[str, Any] = {y.name: x + a for y, x, a in zip(images, tried, low, strict=True)} | others
    inside = np.broadcast_to(image.evaluate_array(env), tried.shape[1:])
    if inside.all():
        return tried.shape[1] if prod(sizes) <= _SAMPLED else 0
    at = int(np.argmin(inside))
    return Missed(tuple(int(env[y.name][at]) for y in images), parameters=others)
