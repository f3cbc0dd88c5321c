"""Index maps: tuples of expressions over a box of loop variables; composition, inverse, injectivity.

An inverse is found by solving digits (mixed radix, rotations, xor with what is already known) and is given out only
after both round trips have been proved, so a wrong inverse cannot leave this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from idgraph.arith.engine import normal
from idgraph.arith.enumerate import box
from idgraph.arith.nodes import ArithError, Expr, IntLike, as_expr, symbol
from idgraph.arith.prove import Proof, prove, prove_equal
from idgraph.arith.simplify import simplify
from idgraph.arith.solve import solve

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_POINTS = 4_000_000
Property = Literal["injective", "surjective", "bijective"]


@dataclass(frozen=True, slots=True)
class MapProof:
    """The property holds; truthy."""

    what: Property
    method: Literal["inverse", "exhaustive"]
    points: int = 0

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Collision:
    """Two points with one image: not injective; falsy."""

    first: dict[str, int]
    second: dict[str, int]
    image: tuple[int, ...]

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.first} and {self.second} both go to {self.image}"


@dataclass(frozen=True, slots=True)
class Missed:
    """A point of the codomain that nothing goes to, or an image outside of it: not onto; falsy."""

    image: tuple[int, ...]
    outside: bool = False

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.image} lies outside the codomain" if self.outside else f"nothing goes to {self.image}"


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither proved nor refuted; falsy."""

    tried: tuple[str, ...]

    def __bool__(self) -> bool:
        return False


MapVerdict = MapProof | Collision | Missed | Undecided


@dataclass(frozen=True, slots=True)
class IndexMap:
    """``domain -> results``: symbols with their ranges, and one expression per coordinate of the image.

    ``shape`` is the codomain, 0 <= y < extent in each coordinate (integers or expressions).

    >>> a = symbol("a", 0, 63)
    >>> m = IndexMap((a,), ((a + 32) % 64,), (64,))
    >>> str(m.inverse().results[0]), bool(m.is_bijective())
    ('(y0 + 32)%64', True)
    """

    domain: tuple[Expr, ...]
    results: tuple[Expr, ...]
    shape: tuple[IntLike, ...]

    def __post_init__(self) -> None:
        if len(self.results) != len(self.shape):
            raise ArithError(f"an index map has {len(self.results)} results for a shape of {len(self.shape)} extents")
        for s in self.domain:
            if s.op != "sym":
                raise ArithError(f"the domain of an index map consists of symbols, got `{s}`")
        names = [s.name for s in self.domain]
        if len(set(names)) != len(names):
            raise ArithError(f"the domain of an index map names a symbol twice: {names}")

    def __str__(self) -> str:
        return f"({', '.join(s.name for s in self.domain)}) -> ({', '.join(str(r) for r in self.results)})"

    def __call__(self, *args: IntLike) -> tuple[Expr, ...]:
        """The image of a point, whose coordinates may be expressions; simplified."""
        if len(args) != len(self.domain):
            raise ArithError(f"the index map takes {len(self.domain)} coordinates, got {len(args)}")
        table = {s: as_expr(a) for s, a in zip(self.domain, args, strict=True)}
        return tuple(simplify(r.substitute(table)) for r in self.results)

    def compose(self, inner: IndexMap) -> IndexMap:
        """``self`` after ``inner``: the results of ``inner`` are the coordinates of ``self``.

        >>> i = symbol("i", 0, 63)
        >>> turn = IndexMap((i,), ((i + 32) % 64,), (64,))
        >>> str(turn.compose(turn))
        '(i) -> (i)'
        """
        return IndexMap(inner.domain, self(*inner.results), self.shape)

    def inverse(self) -> IndexMap:
        """The map back, over symbols y0, y1, ... of the codomain.

        Raises ArithError with a counterexample if there is none, and if none could be found and proved.
        """
        found = self._solved()
        if found is not None and self._left(found) and self._right(found):
            return found
        verdict = self.is_bijective()
        why = str(verdict) if not isinstance(verdict, (MapProof, Undecided)) else "no closed form was found"
        raise ArithError(f"the index map {self} has no known inverse", because=(why,))

    def is_injective(self) -> MapVerdict:
        """Whether different points have different images."""
        found = self._solved()
        if found is not None and self._left(found):
            return MapProof("injective", "inverse")
        return self._counted("injective")

    def is_surjective(self) -> MapVerdict:
        """Whether the image is the whole codomain."""
        found = self._solved()
        if found is not None and self._right(found):
            return MapProof("surjective", "inverse")
        return self._counted("surjective")

    def is_bijective(self) -> MapVerdict:
        """Whether the map is one to one and onto."""
        found = self._solved()
        if found is not None and self._left(found) and self._right(found):
            return MapProof("bijective", "inverse")
        return self._counted("bijective")

    def _solved(self) -> IndexMap | None:
        """An inverse by digits of the results as written, or of their normal forms; not proved yet."""
        images = tuple(symbol(f"y{k}", 0, as_expr(n) - 1) for k, n in enumerate(self.shape))
        tops = [s.symbol_bounds[1] for s in self.domain]
        sizes = tuple(as_expr(b) + 1 for b in tops if b is not None)
        if len(sizes) < len(tops):
            return None
        for results in (list(self.results), [normal(r) for r in self.results]):
            found = solve(self.domain, results, images)
            if found is not None:
                back = IndexMap(images, tuple(found), sizes)
                if self._left(back) or self._right(back):
                    return back
        return None

    def _left(self, back: IndexMap) -> bool:
        """Whether ``back`` after ``self`` is proved to be the identity (and the image to lie in the codomain)."""
        inside = all(_sure(r >= 0) and _sure(r < n) for r, n in zip(self.results, self.shape, strict=True))
        return inside and self._identity(back(*self.results), self.domain)

    def _right(self, back: IndexMap) -> bool:
        """Whether ``self`` after ``back`` is proved to be the identity, with ``back`` landing in the domain."""
        for r, s in zip(back.results, self.domain, strict=True):
            lo, hi = s.symbol_bounds[:2]
            if (lo is not None and not _sure(r >= lo)) or (hi is not None and not _sure(r <= hi)):
                return False
            _, _, step, first = s.symbol_bounds
            if step > 1 and not isinstance(prove_equal(r % step, first), Proof):
                return False
        return self._identity(self(*back.results), back.domain)

    @staticmethod
    def _identity(results: Sequence[Expr], domain: tuple[Expr, ...]) -> bool:
        return all(isinstance(prove_equal(r, s), Proof) for r, s in zip(results, domain, strict=True))

    def _counted(self, what: Property) -> MapVerdict:
        """The property decided by counting images, for boxes of constant size."""
        sizes = [n if isinstance(n, int) else n.value if n.is_const else None for n in self.shape]
        values = box(self.results + self.domain)
        if isinstance(values, str) or None in sizes or any(_bound_symbols(s) for s in self.domain):
            return Undecided(("digits", "no enumeration: the box or the codomain is not of constant size"))
        return _count(self, values, [n for n in sizes if n is not None], what)


def _count(m: IndexMap, values: dict[str, range], sizes: list[int], what: Property) -> MapVerdict:
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    free = set(values) - {s.name for s in m.domain}
    total, codomain = 1, 1
    for v in values.values():
        total *= len(v)
    for n in sizes:
        codomain *= n
    if total > MAX_POINTS or codomain > MAX_POINTS or free:
        return Undecided(("digits", f"no enumeration: {total} points, at most {MAX_POINTS}, over constant bounds"))
    names = [s.name for s in m.domain]
    shape = [len(values[n]) for n in names]
    grid = np.indices(shape, dtype=np.int64).reshape(len(names), total) if names else np.zeros((0, 1), np.int64)
    env: dict[str, Any] = {n: values[n].start + values[n].step * grid[k] for k, n in enumerate(names)}
    images = np.stack([np.broadcast_to(r.evaluate_array(env), (total,)) for r in m.results])

    def point(at: int) -> dict[str, int]:
        return {n: int(env[n][at]) for n in names}

    inside = np.logical_and.reduce([(y >= 0) & (y < n) for y, n in zip(images, sizes, strict=True)])
    if what != "injective" and not inside.all():
        return Missed(tuple(int(y) for y in images[:, int(np.argmin(inside))]), outside=True)
    order, same = _sorted_images(images)
    if what != "surjective" and same.any():
        at = int(np.argmax(same))
        first, second = sorted((int(order[at]), int(order[at + 1])))
        return Collision(point(first), point(second), tuple(int(y) for y in images[:, first]))
    if what != "injective":
        hit = np.zeros(codomain, np.bool_)
        hit[np.ravel_multi_index(tuple(images), tuple(sizes))] = True
        if not hit.all():
            missed = np.unravel_index(int(np.argmin(hit)), tuple(sizes))
            return Missed(tuple(int(y) for y in missed))
    return MapProof(what, "exhaustive", total)


def _sure(c: Expr) -> bool:
    return isinstance(prove(c), Proof)


def _bound_symbols(s: Expr) -> bool:
    return any(isinstance(b, Expr) for b in s.symbol_bounds[:2])


def _sorted_images(images: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The points in order of their images, and where neighbours have the same one."""
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    order = np.lexsort(images[::-1])
    ordered = images[:, order]
    return order, (ordered[:, 1:] == ordered[:, :-1]).all(axis=0)


__all__ = ["Collision", "IndexMap", "MapProof", "MapVerdict", "Missed", "Undecided"]
