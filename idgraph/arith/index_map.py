"""Index maps: tuples of expressions over a set of points; composition, inverse, one to one, dense, image.

An inverse is found piece by piece (`inverses`) and is given out only after the round trip has been proved, so a wrong
inverse cannot leave this module. The image is then known exactly too: the points that the inverse takes back into the
domain and the map returns to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, cast

from idgraph.arith.digit_solver import one_to_one
from idgraph.arith.evaluate import CompiledExprs
from idgraph.arith.expr import TRUE, ArithError, ArithTypeError, Expr, IntLike, and_, as_expr, symbol
from idgraph.arith.interval import interval
from idgraph.arith.inverse import InverseCandidate, invert, range_conditions
from idgraph.arith.layout_operations import LayoutOperations
from idgraph.arith.map_properties import (
    MAX_POINTS,
    Collision,
    MapProof,
    MapVerdict,
    Missed,
    Property,
    Undecided,
    find_collision,
    find_gap,
    points_of,
    sample,
)
from idgraph.arith.prove import Proof, prove
from idgraph.arith.simplify import simplify
from idgraph.errors import short_repr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class NotInvertible(ArithError):
    """A map without inverse: ``witness`` holds two points with one image, or says what was tried.

    >>> i = symbol("i", 0, 63)
    >>> try:
    ...     IndexMap((i,), (i * 2 % 64,), (64,)).inverse()
    ... except NotInvertible as error:
    ...     print(error.witness)
    {'i': 0} and {'i': 32} both go to (0,)
    """

    witness: MapVerdict

    @classmethod
    def of(cls, m: IndexMap, witness: MapVerdict) -> NotInvertible:
        if not isinstance(witness, Collision):
            made = cls(f"no inverse of the index map {m} was found", because=(str(witness),), hint=_way_out(m, witness))
        else:
            made = cls(
                f"the index map {m} has no inverse",
                because=(str(witness),),
                hint="restrict its condition to points with different images",
            )
        made.witness = witness
        return made

    def at(self, what: str, where: object, hint: str) -> NotInvertible:
        """The same error, said of an access at a line."""
        made = NotInvertible(what, where=str(where) if where else None, because=self.because, hint=hint)
        made.witness = self.witness
        return made


@dataclass(frozen=True, slots=True)
class IndexSet:
    """The points of a box (the symbols' ranges) where ``condition`` holds.

    >>> i = symbol("i", 0, 9)
    >>> evens = IndexSet((i,), (i % 2).eq(0))
    >>> print(evens)
    {(i): 0 <= i < 10, i%2 == 0}
    >>> (4,) in evens, (5,) in evens, evens.points().ravel().tolist()
    (True, False, [0, 2, 4, 6, 8])
    """

    symbols: tuple[Expr, ...]
    condition: Expr = TRUE

    def evaluate(self, values: Mapping[str, int]) -> bool:
        """Whether the point with these values by name lies in the set."""
        return all(_within_ranges(s, values) for s in self.symbols) and bool(self.condition.evaluate(values))

    def __contains__(self, point: object) -> bool:
        """Whether a point (one integer for each symbol) lies in the set; for sets without free symbols."""
        numbers = tuple(cast("Sequence[int]", point)) if isinstance(point, Sequence) else ()
        if len(numbers) != len(self.symbols):
            raise ArithTypeError(f"{short_repr(cast(object, point))} is not a point of {len(self.symbols)} integers")
        inside = _inside(self.symbols, self.condition)
        if inside is not None and all(type(n) is int for n in numbers):
            try:
                return bool(inside(*numbers))
            except ZeroDivisionError:
                pass
        return self.evaluate({s.name: n for s, n in zip(self.symbols, numbers, strict=True)})

    def points(self) -> npt.NDArray[np.int64]:
        """All points, one in each row, in lexicographic order; raises ArithError for more than 4 000 000."""
        found = points_of(self.symbols, self.condition)
        if isinstance(found, str):
            raise ArithError(f"the points of {self} cannot be listed", because=(found,))
        return found.table()

    def __str__(self) -> str:
        names = ", ".join(s.name for s in self.symbols)
        ranges = [_range_text(s) for s in self.symbols]
        rest = [] if self.condition is TRUE else [str(self.condition)]
        return f"{{({names}): {', '.join([*ranges, *rest]) or 'one point'}}}"


def _way_out(m: IndexMap, witness: MapVerdict) -> str:
    """A hint where no inverse was found, by what is known of the map."""
    if isinstance(witness, MapProof):
        return "it is one to one: m.domain.points() lists its points, m(*point) their images"
    free = sorted(
        {s.name for x in (*m.results, m.condition) for s in x.symbols if None in interval(s)}
        - {s.name for s in m.symbols}
    )
    if free:
        return f"give {', '.join(free)} numbers, or a range that ends (max=); otherwise invert its parts one by one"
    return "invert its parts one by one: m.compose joins two maps"


@lru_cache(maxsize=256)
def _inside(symbols: tuple[Expr, ...], condition: Expr) -> Callable[..., bool] | None:
    """Whether a point lies in a box where a condition holds, as one function; None where other symbols are needed."""
    conditions = and_(
        *(c for s in symbols for c in range_conditions(s, symbol(s.name))),
        condition.substitute({s: symbol(s.name) for s in symbols}),
    )
    names = [s.name for s in symbols]
    if not set(conditions.names) <= set(names):
        return None
    tape = CompiledExprs((conditions,))
    run, order = tape.function(), [names.index(n) for n in tape.names]
    return lambda *point: run(*(point[k] for k in order))[0]


@lru_cache(maxsize=256)
def _inverted(
    symbols: tuple[Expr, ...], results: tuple[Expr, ...], condition: Expr, images: tuple[Expr, ...]
) -> InverseCandidate | Collision | None:
    return invert(symbols, results, condition, images)


def _within_ranges(s: Expr, values: Mapping[str, int]) -> bool:
    value = s.evaluate(values)
    lo, hi, step, first = s.symbol_bounds
    above = lo is None or value >= as_expr(lo).evaluate(values)
    return above and (hi is None or value <= as_expr(hi).evaluate(values)) and value % step == first


def _range_text(s: Expr) -> str:
    lo, hi, step, first = s.symbol_bounds
    text = s.name if lo is None else f"{lo} <= {s.name}"
    text = text if hi is None else f"{text} < {simplify(as_expr(hi) + 1)}"
    return text if step == 1 else f"{text}, {s.name}%{step} == {first}"


@dataclass(frozen=True, slots=True)
class IndexMap(LayoutOperations):
    """``symbols -> results`` where ``condition`` holds: symbols with their ranges, one expression a coordinate.

    ``shape`` is the codomain, 0 <= y < extent in each coordinate (integers or expressions). Symbols of the expressions
    that are not in ``symbols`` are parameters, the same numbers throughout.

    >>> a = symbol("a", 0, 63)
    >>> m = IndexMap((a,), ((a + 32) % 64,), (64,))
    >>> str(m.inverse().results[0]), bool(m.is_bijective)
    ('(y0 + 32)%64', True)
    >>> half = IndexMap((a,), (a - 32,), (64,), a >= 32)
    >>> print(half.inverse())
    (y0) -> (y0 + 32) if y0 < 32
    >>> print(half.is_dense, half.is_surjective)
    proved dense by inverse nothing goes to (32,)
    >>> print(half.domain, half.image, (31,) in half.image, bool(half.is_injective), *half.images)
    {(a): 0 <= a < 64, a >= 32} {(y0): 0 <= y0 < 64, y0 < 32} True True y0
    """

    symbols: tuple[Expr, ...]
    results: tuple[Expr, ...]
    shape: tuple[IntLike, ...]
    condition: Expr = TRUE
    is_exact: MapProof = field(default=MapProof("exact", "definition"), compare=False, repr=False)
    """The proof of an inverse: there and back is the identity, at every point of both domains."""

    def __post_init__(self) -> None:
        for name in ("symbols", "results", "shape"):
            if not isinstance(getattr(self, name), tuple | list):
                raise ArithTypeError(f"IndexMap: {name} is {short_repr(getattr(self, name))}, not a tuple")
        if len(self.results) != len(self.shape):
            raise ArithError(f"an index map has {len(self.results)} results for a shape of {len(self.shape)} extents")
        for s in self.symbols:
            if s.op != "sym":
                raise ArithError(f"the domain of an index map consists of symbols, got `{s}`")
        names = [s.name for s in self.symbols]
        if len(set(names)) != len(names):
            raise ArithError(f"the domain of an index map names a symbol twice: {names}")
        if not self.condition.cond:
            raise ArithTypeError(f"the domain of an index map is a condition, got `{self.condition}`")

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        text = f"({', '.join(s.name for s in self.symbols)}) -> ({', '.join(str(r) for r in self.results)})"
        return text if self.condition is TRUE else f"{text} if {self.condition}"

    def __call__(self, *args: IntLike) -> tuple[Expr, ...]:
        """The image of a point, whose coordinates may be expressions; simplified."""
        if len(args) != len(self.symbols):
            raise ArithError(f"the index map takes {len(self.symbols)} coordinates, got {len(args)}")
        table = {s: as_expr(a) for s, a in zip(self.symbols, args, strict=True)}
        return tuple(simplify(r.substitute(table)) for r in self.results)

    def compose(self, inner: IndexMap) -> IndexMap:
        """``self`` after ``inner``: the results of ``inner`` are the coordinates of ``self``.

        Its domain holds the points that ``inner`` takes into the domain of ``self``.

        >>> i = symbol("i", 0, 63)
        >>> turn = IndexMap((i,), ((i + 32) % 64,), (64,))
        >>> str(turn.compose(turn))
        '(i) -> (i)'
        """
        table = {s: as_expr(a) for s, a in zip(self.symbols, inner.results, strict=True)}
        inside = [c for s, x in zip(self.symbols, inner.results, strict=True) for c in range_conditions(s, x)]
        conditions = [c.substitute(table) for c in (*inside, self.condition)]
        condition = simplify(and_(inner.condition, *(c for c in conditions if not _sure(c, inner.condition))))
        facts = () if condition is TRUE else (condition,)
        results = tuple(simplify(r.substitute(table), facts=facts) for r in self.results)
        return IndexMap(inner.symbols, results, self.shape, condition)

    @property
    def domain(self) -> IndexSet:
        """The points that the map takes: the box of its symbols, where its condition holds."""
        return IndexSet(self.symbols, self.condition)

    @property
    def image(self) -> IndexSet:
        """The points that the map reaches, over symbols of the codomain; exact.

        Raises `NotInvertible` where the map is not one to one, or no inverse was found.
        """
        found = self._inverse_candidate()
        return IndexSet(self.images, found.condition)

    @property
    def images(self) -> tuple[Expr, ...]:
        """Symbols of the codomain, by names that the map does not use."""
        taken = {n for x in (*self.symbols, *self.results, self.condition) for n in x.names}
        taken |= {n for x in self.shape if isinstance(x, Expr) for n in x.names}
        letters = ("y", "z", "w", *(f"y{k}_" for k in range(len(taken))))
        letter = next(x for x in letters if not any(f"{x}{k}" in taken for k in range(len(self.shape))))
        return tuple(symbol(f"{letter}{k}", 0, as_expr(n) - 1) for k, n in enumerate(self.shape))

    def inverse(self) -> IndexMap:
        """The map back, over symbols y0, y1, ... of the codomain; its domain is the image of this one.

        Raises `NotInvertible` with two points of one image if there is none, or if none could be found and proved.

        >>> r = symbol("r", 0, 7)
        >>> print(IndexMap((r,), ((r + 2) % 8 // 4, (r + 2) % 8 % 4), (2, 4)).inverse())
        (y0, y1) -> ((y0*4 + y1 + 6)%8)
        >>> i = symbol("i", 0, 14)
        >>> IndexMap((i,), (i % 3, i % 5), (3, 5)).inverse()(2, 4)
        (14,)
        """
        found = self._inverse_candidate()
        tops = [s.symbol_bounds[1] for s in self.symbols]
        sizes = tuple(simplify(as_expr(b) + 1) for b in tops if b is not None)
        return IndexMap(self.images, found.results, sizes, found.condition, found.proof)

    def _inverse_candidate(self) -> InverseCandidate:
        for s in self.symbols:
            lo, hi = s.symbol_bounds[:2]
            if lo is None or hi is None or not _sure(as_expr(lo) >= 0):
                raise ArithError(
                    f"the inverse of {self} needs a box that begins at 0 or above",
                    because=(f"{s.name} has the range {_range_text(s)}",),
                    hint=f"give {s.name} a range, or count it from its first value",
                )
        found = _inverted(self.symbols, self.results, self.condition, self.images)
        if isinstance(found, InverseCandidate):
            return found
        verdict = found if isinstance(found, Collision) else self._collisions()
        raise NotInvertible.of(self, verdict)

    def _collisions(self) -> MapVerdict:
        return find_collision(self.symbols, self.results, self.condition)

    # properties -------------------------------------------------------------------------------------------------------

    @property
    def is_injective(self) -> MapVerdict:
        """Whether different points have different images: `MapProof`, or a `Collision`."""
        if one_to_one(self.symbols, self.results):
            return MapProof("injective", "inverse")
        return self._proved("injective") or self._collisions()

    @property
    def is_dense(self) -> MapVerdict:
        """Whether the image fills its bounding box: no element between the reached ones is left out.

        A `Missed` element is the counterexample. (torch: *dense*; CuTe: *compact*. See `is_surjective` for the whole
        codomain.)
        """
        found = self._try()
        if found is None:
            return self._counted("dense")
        if _is_box(found.condition, self.images):
            return MapProof("dense", "inverse")
        points = sample(self.symbols, self.results, self.condition)
        if points is not None:
            gap = find_gap(points, self.results, found.condition, self.images)
            if isinstance(gap, Missed):
                return gap
        counted = self._counted("dense")
        return (
            Undecided(("the image is not a box by rules", *counted.tried))
            if isinstance(counted, Undecided)
            else counted
        )

    @property
    def is_surjective(self) -> MapVerdict:
        """Whether the image is the whole codomain: `MapProof`, or a `Missed` element of it."""
        found = self._try()
        if found is None:
            return self._counted("surjective")
        return _everywhere(found.condition, self.images)

    @property
    def is_bijective(self) -> MapVerdict:
        """Whether the map is one to one and onto."""
        first = self.is_injective
        second = self.is_surjective if first else first
        if isinstance(first, MapProof) and isinstance(second, MapProof):
            return MapProof("bijective", first.method, first.points)
        return second

    def _try(self) -> InverseCandidate | None:
        found = _inverted(self.symbols, self.results, self.condition, self.images)
        return found if isinstance(found, InverseCandidate) else None

    def _proved(self, what: Property) -> MapVerdict | None:
        found = _inverted(self.symbols, self.results, self.condition, self.images)
        if isinstance(found, Collision):
            return found
        return None if found is None else MapProof(what, "inverse")

    def _counted(self, what: Property) -> MapVerdict:
        """The property decided by listing images, for boxes of constant size."""
        sizes = [n if isinstance(n, int) else n.value if n.is_const else None for n in self.shape]
        found = points_of(self.symbols, self.condition)
        if isinstance(found, str) or None in sizes or found.free(self.results):
            why = found if isinstance(found, str) else "the codomain is not of constant size"
            return Undecided(("no inverse was found", f"no enumeration: {why}"))
        whole = [n for n in sizes if n is not None]
        if prod(whole) > MAX_POINTS and what != "dense":
            return Undecided(("no inverse was found", f"no enumeration: a codomain of {prod(whole)} elements"))
        return found.decide(self.results, whole, what)


def _sure(c: Expr, fact: Expr = TRUE) -> bool:
    return isinstance(prove(c, facts=() if fact is TRUE else (fact,)), Proof)


def _is_box(condition: Expr, images: Sequence[Expr]) -> bool:
    """Whether a condition bounds each coordinate on its own, from below or above."""
    own = frozenset(images)
    for c in condition.conjuncts:
        if c is TRUE:
            continue
        sides = [a for a in c.args if a in own] if c.op in ("lt", "le", "eq") else []
        others = [a for a in c.args if a not in own and not a.symbols & own]
        if len(sides) != 1 or len(others) != 1:
            return False
    return True


def _everywhere(condition: Expr, images: Sequence[Expr]) -> MapVerdict:
    """Whether a condition holds in the whole codomain."""
    found = prove(condition)
    if isinstance(found, Proof):
        return MapProof("surjective", "inverse")
    values = getattr(found, "values", None)
    if values is None:
        return Undecided(("the image is known, whether it is the whole codomain is not", str(found)))
    point = {s.name: values.get(s.name, 0) for s in images}
    rest = {k: v for k, v in values.items() if k not in point}
    return Missed(tuple(point.values()), parameters=rest)


__all__ = ["Collision", "IndexMap", "IndexSet", "MapProof", "MapVerdict", "Missed", "NotInvertible", "Undecided"]
