"""CuTe's operations on layouts, by their names: methods of `idgraph.arith.IndexMap`.

A layout has one address for each point of a box. Its modes are flat: where CuTe nests them, the coordinates stand one
after the other, and an operation that makes one mode of several counts them with the first one fastest.
(CuTe layout algebra; Shah and others, CuTe layout representation and algebra.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Self

from idgraph.arith.expr import TRUE, ArithError, ArithTypeError, Expr, IntLike, as_expr, symbol, xor
from idgraph.arith.interval import interval
from idgraph.arith.simplify import simplify
from idgraph.arith.solve import coefficients
from idgraph.errors import short_repr


class LayoutOperations:
    """The operations; `IndexMap` has the fields.

    >>> from idgraph.arith import IndexMap
    >>> print(IndexMap.strided((2, 1), (4, 2)).coalesce())
    (i0) -> (i0)
    """

    __slots__ = ()

    if TYPE_CHECKING:
        symbols: tuple[Expr, ...]
        results: tuple[Expr, ...]
        shape: tuple[IntLike, ...]
        condition: Expr

        def __init__(
            self,
            symbols: tuple[Expr, ...],
            results: tuple[Expr, ...],
            shape: tuple[IntLike, ...],
            condition: Expr = ...,
        ) -> None: ...

        def __call__(self, *args: IntLike) -> tuple[Expr, ...]: ...

    @classmethod
    def strided(cls, *modes: Mode, name: str = "i") -> Self:
        """The layout of modes (extent, stride in elements), one coordinate each; CuTe's ``shape:stride``.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((4, 1), (8, 4)))
        (i0, i1) -> (i0 + i1*4)
        """
        for m in modes:
            numbers = list(m) if isinstance(m, tuple) else []  # pyright: ignore[reportUnnecessaryIsInstance]
            whole = len(numbers) == 2 and all(type(x) is int for x in numbers)
            if not whole or numbers[0] < 1 or numbers[1] < 0:
                raise ArithError(f"{short_repr(m)} is not a mode", hint="(extent, stride): from 1, and from 0")
        symbols = tuple(symbol(f"{name}{k}", 0, n - 1) for k, (n, _) in enumerate(modes))
        at = as_expr(0)
        for s, (_, step) in zip(symbols, modes, strict=True):
            at = at + s * step
        return cls(symbols, (simplify(at),), (1 + sum((n - 1) * step for n, step in modes),))

    def coalesce(self) -> Self:
        """CuTe's ``coalesce``: the same addresses in the same order, with as few coordinates as say it.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((2, 1), (1, 6), (6, 2), (3, 5)).coalesce())
        (i0, i1) -> (i0 + i1*5)
        """
        self.check_layout("coalesce")
        return self.strided(*coalesced_modes(modes_of(self.symbols, self.results[0], "coalesce")))

    def composition(self, inner: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``composition``: the addresses of the elements that ``inner`` names, counted with the first coordinate
        fastest.

        Several layouts, or numbers of neighbours, are taken coordinate by coordinate. Raises ArithError where
        ``inner`` names elements that this layout has not. See `compose` for maps that are not layouts.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((6, 8), (2, 2)).composition(IndexMap.strided((4, 3), (3, 1))))
        (i0, i1) -> ((i0*24 + i1*8)%46)
        """
        self.check_layout("composition")
        extents = extents_of(self.symbols, "composition")
        if isinstance(inner, tuple):
            return self._by_coordinate([self._as_layout(x, "composition") for x in inner], "composition", "i")
        inner = self._as_layout(inner, "composition")
        _check_reach(inner, prod(extents), "composition")
        return self._at_numbers(inner, extents)

    def complement(self, n: int) -> Self:
        """The layout of what this one leaves out of the addresses 0 .. ``n`` - 1: both together reach each once.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((2, 1), (2, 4)).complement(16))
        (c0, c1) -> (c0*2 + c1*8)
        """
        self.check_layout("complement")
        modes = complement_modes(modes_of(self.symbols, self.results[0], "complement"), _element_count(n, "complement"))
        return self.strided(*modes, name=_free_letter("c", self))

    def divide(self, tile: Self | int) -> Self:
        """CuTe's ``logical_divide``: coordinates within a tile, then those of the tiles, of this layout's addresses.

        ``tile`` says which of this layout's elements, counted with the first coordinate fastest, are one tile; a number
        stands for so many neighbours. Raises ArithError where tiles do not divide the layout.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((4, 2), (6, 8)).divide(IndexMap.strided((2, 2))))
        (t0, t1, t2) -> (t0*4 + t1*2 + t2*8)
        """
        self.check_layout("divide")
        extents = extents_of(self.symbols, "divide")
        size = prod(extents)
        tile = self._as_layout(tile, "divide")
        modes = modes_of(tile.symbols, tile.results[0], "divide")
        both = (*modes, *complement_modes(modes, size))
        if prod(m for m, _ in both) != size:
            raise ArithError(
                f"divide: tiles of {prod(m for m, _ in modes)} elements do not divide {size} elements",
                hint="pad the layout, or take a tile whose size and strides divide it",
            )
        joint = self.strided(*(m for m in both if m[0] > 1), name=_free_letter("t", self))
        return self._at_numbers(joint, extents)

    def logical_divide(self, tiler: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``logical_divide``: `divide`; of several tilers coordinate by coordinate.

        Those give coordinates (tile 0, rest 0, tile 1, rest 1, ...); coordinates without a tiler stay.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((4, 1), (6, 4)).logical_divide((2, 3)))
        (t0, t1, t2, t3) -> (t0 + t1*2 + t2*4 + t3*12)
        """
        if not isinstance(tiler, tuple):
            return self.divide(tiler)
        return self._divided(tiler, "logical_divide")[0]

    def zipped_divide(self, tiler: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``zipped_divide``: two coordinates, the number of an element in its tile and the number of the tile.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((4, 1), (6, 4)).zipped_divide((2, 3))
        >>> m(3, 0), m(0, 1), m(0, 2)
        ((5,), (2,), (12,))
        """
        divided, tiles, rest = self._divided(tiler, "zipped_divide")
        return divided._grouped("t", [tiles, rest])

    def tiled_divide(self, tiler: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``tiled_divide``: the number of an element in its tile, then the coordinates of the tile.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((4, 1), (6, 4)).tiled_divide((2, 3))
        >>> m(3, 0, 0), m(0, 1, 0), m(0, 0, 1)
        ((5,), (2,), (12,))
        """
        divided, tiles, rest = self._divided(tiler, "tiled_divide")
        return divided._grouped("t", [tiles, *([k] for k in rest)])

    def flat_divide(self, tiler: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``flat_divide``: the coordinates of an element in its tile, then the coordinates of the tile.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((4, 1), (6, 4)).flat_divide((2, 3))
        >>> m(1, 1, 0, 0), m(0, 0, 1, 0), m(0, 0, 0, 1)
        ((5,), (2,), (12,))
        """
        divided, tiles, rest = self._divided(tiler, "flat_divide")
        return divided._grouped("t", [[k] for k in (*tiles, *rest)])

    def _divided(self, tiler: Self | int | tuple[Self | int, ...], who: str) -> tuple[Self, list[int], list[int]]:
        """This layout divided, and which of its coordinates count in a tile and which count tiles."""
        self.check_layout(who)
        if not isinstance(tiler, tuple):
            tile = self._as_layout(tiler, who)
            inside = len(modes_of(tile.symbols, tile.results[0], who))
            divided = self.divide(tile)
            return divided, [*range(inside)], [*range(inside, len(divided.symbols))]
        extents = extents_of(self.symbols, who)
        if len(tiler) > len(extents):
            raise ArithError(
                f"{who}: {len(tiler)} tilers of {len(extents)} coordinates", hint="one a coordinate at most"
            )
        parts: list[Self] = []
        tiles: list[int] = []
        rest: list[int] = []
        for k, n in enumerate(extents):
            if k >= len(tiler):
                rest.append(len(tiles) + len(rest))
                parts.append(self.strided((n, 1)))
                continue
            parts.append(self.strided((n, 1)).zipped_divide(tiler[k]))
            tiles.append(len(tiles) + len(rest))
            rest.append(len(tiles) + len(rest))
        return self._by_coordinate(parts, who, "t"), tiles, rest

    def _by_coordinate(self, parts: Sequence[Self], who: str, letter: str) -> Self:
        """This layout with its coordinate k where ``parts[k]`` says; the coordinates without a part stay."""
        extents = extents_of(self.symbols, who)
        if len(parts) > len(extents):
            raise ArithError(
                f"{who}: {len(parts)} layouts of {len(extents)} coordinates", hint="one a coordinate at most"
            )
        letter = _free_letter(letter, self)
        symbols: list[Expr] = []
        at: list[Expr] = []
        for k, n in enumerate(extents):
            part = parts[k] if k < len(parts) else self.strided((n, 1))
            _check_reach(part, n, who)
            sizes = extents_of(part.symbols, who)
            own = [symbol(f"{letter}{len(symbols) + p}", 0, size - 1) for p, size in enumerate(sizes)]
            symbols += own
            at.append(part(*own)[0])
        return type(self)(tuple(symbols), self(*at), self.shape)

    def product(self, n: Self | int | tuple[Self | int, ...]) -> Self:
        """CuTe's ``logical_product``: this layout, repeated at the addresses it leaves out, in the order of ``n``.

        Several layouts repeat it coordinate by coordinate, each at the addresses that this one coordinate leaves out.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((2, 1), (2, 4)).product(4))
        (i0, i1, r0) -> (i0 + (i1 + r0//2)*4 + r0*2)
        """
        self.check_layout("product")
        if isinstance(n, tuple):
            return self._product_by_coordinate(n)
        n = self._as_layout(n, "product")
        letter = _free_letter("r", self)
        extents = extents_of(n.symbols, "product")
        mine, repeats = extents_of(self.symbols, "product"), tuple(f"{letter}{k}" for k in range(len(extents)))
        symbols = tuple(symbol(name, 0, e - 1) for name, e in zip(repeats, extents, strict=True))
        at = n.results[0].substitute(dict(zip(n.symbols, symbols, strict=True)))
        cosize = 1 + sum((e - 1) * step for e, step in modes_of(n.symbols, n.results[0], "product"))
        free = self.complement(prod(mine) * cosize)
        far = free._at_numbers(type(self)(symbols, (at,), (cosize,)), extents_of(free.symbols, "product"))
        result = simplify(self.results[0] + far.results[0])
        top = 1 + sum(int(interval(x.results[0])[1] or 0) for x in (self, far))
        return type(self)((*self.symbols, *symbols), (result,), (top,))

    def _product_by_coordinate(self, tilers: Sequence[Self | int]) -> Self:
        """`product` of each coordinate, a layout of its own, with its tiler; the coordinates without one stay."""
        if len(tilers) > len(self.symbols):
            raise ArithError(
                f"product: {len(tilers)} tilers of {len(self.symbols)} coordinates", hint="one a coordinate at most"
            )
        strides = iter(modes_of(self.symbols, self.results[0], "product"))
        letter = _free_letter("p", self)
        symbols: list[Expr] = []
        at = as_expr(0)
        for k, n in enumerate(extents_of(self.symbols, "product")):
            part = self.strided(next(strides) if n > 1 else (1, 0))
            part = part.product(tilers[k]) if k < len(tilers) else part
            sizes = extents_of(part.symbols, "product")
            own = [symbol(f"{letter}{len(symbols) + p}", 0, size - 1) for p, size in enumerate(sizes)]
            symbols += own
            at = at + part(*own)[0]
        return type(self)(tuple(symbols), (simplify(at),), (1 + int(interval(at)[1] or 0),))

    def logical_product(self, n: Self | int | tuple[Self | int, ...]) -> Self:
        """`product`, by CuTe's name.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((4, 1)).logical_product(3))
        (i0, r0) -> (i0 + r0*4)
        """
        return self.product(n)

    def blocked_product(self, n: Self) -> Self:
        """CuTe's ``blocked_product``: blocks of this layout, side by side along each coordinate as ``n`` says.

        Coordinate k runs through its own extent first, then through that of ``n``.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((2, 1), (2, 2)).blocked_product(IndexMap.strided((2, 1), (3, 2)))
        >>> m(0, 0), m(1, 1), m(2, 0), m(0, 2)
        ((0,), (3,), (4,), (8,))
        """
        return self._joined_product(n, "blocked_product", own_first=True)

    def raked_product(self, n: Self) -> Self:
        """CuTe's ``raked_product``: as `blocked_product`, with the blocks interleaved.

        Coordinate k runs through the extent of ``n`` first, then through its own.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((2, 1), (2, 2)).raked_product(IndexMap.strided((2, 1), (3, 2)))
        >>> m(0, 0), m(1, 0), m(2, 0), m(0, 1)
        ((0,), (4,), (1,), (8,))
        """
        return self._joined_product(n, "raked_product", own_first=False)

    def _joined_product(self, n: Self, who: str, *, own_first: bool) -> Self:
        """A product of which coordinate k counts this layout's and the other's coordinate k, one faster."""
        n = self._as_layout(n, who)
        mine, theirs = extents_of(self.symbols, who), extents_of(n.symbols, who)
        if len(mine) != len(theirs):
            raise ArithError(
                f"{who}: layouts of {len(mine)} and {len(theirs)} coordinates",
                hint="give the shorter one coordinates of extent 1",
            )
        pairs = [(k, len(mine) + k) if own_first else (len(mine) + k, k) for k in range(len(mine))]
        return self.product(n)._grouped("b", pairs)

    def right_inverse(self) -> Self:
        """CuTe's ``right_inverse``: from the addresses 0, 1, ... that this layout reaches without a gap, to the number
        of the element there, counted with the first coordinate fastest.

        >>> from idgraph.arith import IndexMap
        >>> print(IndexMap.strided((4, 2), (2, 1)).right_inverse())
        (i0, i1) -> (i0*4 + i1)
        """
        self.check_layout("right_inverse")
        return self.strided(*inverse_modes(modes_of(self.symbols, self.results[0], "right_inverse")))

    def left_inverse(self) -> Self:
        """CuTe's ``left_inverse``: from addresses to the number of the element there; an address that this layout does
        not reach has a number behind its elements. Raises ArithError where two elements have one address, or strides
        do not divide each other.

        >>> from idgraph.arith import IndexMap
        >>> m = IndexMap.strided((4, 2), (2, 16)).left_inverse()
        >>> print(m, *m(0, 3, 0, 0))
        (i0, i1, i2, i3) -> (i0*8 + i1 + i2*16 + i3*4) 3
        """
        self.check_layout("left_inverse")
        modes = modes_of(self.symbols, self.results[0], "left_inverse")
        if any(n > 1 and step == 0 for n, step in modes):
            raise ArithError(
                f"left_inverse: several elements of {self} have one address", hint="leave out coordinates of stride 0"
            )
        reach = 1 + sum((n - 1) * step for n, step in modes)
        return self.strided(*inverse_modes((*modes, *complement_modes(modes, reach))))

    def swizzle(self, s: AddressSwizzle) -> Self:
        """This layout with its addresses swizzled.

        >>> from idgraph.arith import IndexMap, Swizzle
        >>> print(IndexMap.strided((4, 4), (4, 1)).swizzle(Swizzle(2, 0, 2)))
        (i0, i1) -> (i0 ^ (i0*4 + i1))
        """
        self.check_layout("swizzle")
        if not isinstance(s, AddressSwizzle):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArithTypeError(f"swizzle: {short_repr(s)} is not a swizzle", hint="ig.arith.Swizzle(3, 3, 3)")
        low, high = interval(self.results[0])
        if low is None or low < 0 or high is None:
            raise ArithError(f"swizzle: `{self.results[0]}` is not known to be 0 or more, and bounded")
        top = 1 << max(int(high).bit_length(), s.base + s.bits + max(-s.shift, 0))
        return type(self)(self.symbols, (as_expr(s(self.results[0])),), (top,), self.condition)

    def check_layout(self, who: str) -> None:
        """Raise ArithError, in the name of ``who``, unless there is one address for each point of a box.

        >>> from idgraph.arith import IndexMap
        >>> IndexMap.strided((4, 1), (8, 4)).check_layout("divide")
        """
        if len(self.results) != 1 or self.condition is not TRUE:
            raise ArithError(
                f"{who}: {self} is not a layout: one address for each point of a box",
                hint="IndexMap.strided((extent, stride), ...), or a map of one result without a condition",
            )

    def _at_numbers(self, numbers: Self, extents: Sequence[int]) -> Self:
        """The addresses of elements counted with the first coordinate fastest."""
        at = dict(zip(self.symbols, coordinates(numbers.results[0], extents), strict=True))
        return type(self)(numbers.symbols, (simplify(self.results[0].substitute(at)),), self.shape)

    def _as_layout(self, n: object, who: str) -> Self:
        """A layout, or so many neighbours."""
        if not isinstance(n, type(self)):
            return self.strided((_element_count(n, who), 1))
        n.check_layout(who)
        return n

    def _grouped(self, letter: str, groups: Sequence[Sequence[int]]) -> Self:
        """This layout with one coordinate for each group of its coordinates, whose first one is the fastest."""
        extents = extents_of(self.symbols, "group")
        letter = _free_letter(letter, self)
        at: list[Expr] = [as_expr(0)] * len(extents)
        symbols: list[Expr] = []
        for k, group in enumerate(groups):
            inside = [extents[g] for g in group]
            symbols.append(symbol(f"{letter}{k}", 0, prod(inside) - 1))
            for g, x in zip(group, coordinates(symbols[-1], inside), strict=True):
                at[g] = x
        return type(self)(tuple(symbols), self(*at), self.shape)


def _element_count(n: object, who: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ArithError(f"{who}: {short_repr(n)} is not a number of elements", hint="an integer from 1 on")
    return n


def _check_reach(inner: LayoutOperations, count: int, who: str) -> None:
    """Raise unless the addresses of a layout are below ``count``."""
    low, high = interval(inner.results[0])
    if low is None or low < 0 or high is None or high >= count:
        raise ArithError(
            f"{who}: `{inner.results[0]}` names elements up to {high}, and there are {count}",
            hint="a layout of smaller extents or strides",
        )


def _free_letter(letter: str, m: LayoutOperations) -> str:
    """A letter whose numbered names the map does not use."""
    taken = {n for x in (*m.symbols, *m.results) for n in x.names}
    while any(n.startswith(letter) and n[len(letter) :].isdigit() for n in taken):
        letter += "_"
    return letter


Mode = tuple[int, int]


def extents_of(symbols: Sequence[Expr], who: str) -> tuple[int, ...]:
    """The extents of coordinates that run from 0 to a constant; raises ArithError for others."""
    found: list[int] = []
    for s in symbols:
        low, high, step, _ = s.symbol_bounds
        top = None if high is None else as_expr(high)
        if low is None or as_expr(low) != as_expr(0) or top is None or not top.is_const or step != 1:
            raise ArithError(
                f"{who}: coordinate {s.name} does not run from 0 to a number",
                hint=f'symbol("{s.name}", 0, n - 1), with a number n',
            )
        found.append(int(top) + 1)
    return tuple(found)


def modes_of(symbols: Sequence[Expr], result: Expr, who: str) -> tuple[Mode, ...]:
    """(extent, stride) of each coordinate of an address; raises ArithError where it does not add up strides.

    >>> from idgraph.arith import symbol
    >>> i, j = symbol("i", 0, 3), symbol("j", 0, 7)
    >>> modes_of((i, j), i * 8 + j, "complement")
    ((4, 8), (8, 1))
    """
    extents = extents_of(symbols, who)
    *strides, offset = coefficients(result, symbols) or (as_expr(-1),)
    if offset != 0 or not all(x.is_const and int(x) >= 0 for x in strides):
        raise ArithError(
            f"{who}: `{result}` is not a sum of coordinates times strides, from 0 on",
            hint="take it of the layout before its swizzle, and swizzle the result",
        )
    return tuple((n, int(x)) for n, x in zip(extents, strides, strict=True) if n > 1)


def complement_modes(modes: Sequence[Mode], size: int) -> tuple[Mode, ...]:
    """The modes that reach what ``modes`` leaves out of 0 .. ``size`` - 1, as CuTe's ``complement``; a mode of stride 0
    reaches nothing that the others do not.

    >>> complement_modes(((4, 1),), 24), complement_modes(((2, 4),), 24), complement_modes(((2, 1), (2, 4)), 16)
    (((6, 4),), ((4, 1), (3, 8)), ((2, 2), (2, 8)))
    """
    found: list[Mode] = []
    reached = 1
    for extent, stride in sorted((m for m in modes if m[0] > 1 and m[1] > 0), key=lambda m: m[1]):
        if stride % reached:
            raise ArithError(
                f"complement: stride {stride} of extent {extent} is not a multiple of the {reached} addresses below it",
                hint="the modes of a layout that has a complement do not overlap, and divide each other",
            )
        if stride > reached:
            found.append((stride // reached, reached))
        reached = stride * extent
    rest = -(-size // reached)
    if rest > 1 or not found:
        found.append((rest, reached))
    return tuple(found)


def coalesced_modes(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """The fewest modes with the same addresses in the same order; one of extent 1 where there is one element.

    >>> coalesced_modes(((2, 1), (6, 2), (1, 7), (3, 5))), coalesced_modes(())
    (((12, 1), (3, 5)), ((1, 0),))
    """
    found: list[Mode] = []
    for extent, stride in modes:
        if extent == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = found[-1][0] * extent, found[-1][1]
        else:
            found.append((extent, stride))
    return tuple(found) or ((1, 0),)


def inverse_modes(modes: Sequence[Mode]) -> tuple[Mode, ...]:
    """The modes from addresses back to numbers, as far as addresses go up from 0 without a gap.

    >>> inverse_modes(((4, 2), (2, 1))), inverse_modes(((2, 1), (4, 6)))
    (((2, 4), (4, 1)), ((2, 1),))
    """
    numbers = [prod(n for n, _ in modes[:k]) for k in range(len(modes))]
    found: list[Mode] = []
    reached = 1
    for (extent, stride), number in sorted(zip(modes, numbers, strict=True), key=lambda m: m[0][1]):
        if extent == 1 or stride == 0:
            continue
        if stride != reached:
            break
        found.append((extent, number))
        reached *= extent
    return coalesced_modes(found)


def coordinates(number: Expr, extents: Sequence[int]) -> tuple[Expr, ...]:
    """The coordinates of a number below the product of the extents, the first one fastest.

    >>> from idgraph.arith import symbol
    >>> [str(x) for x in coordinates(symbol("k", 0, 11), (3, 4))]
    ['k%3', 'k//3']
    """
    found: list[Expr] = []
    for k, n in enumerate(extents):
        digit = number // prod(extents[:k])
        found.append(simplify(digit if k == len(extents) - 1 else digit % n))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class AddressSwizzle:
    """CuTe's ``Swizzle<B, M, S>``: ``bits`` bits of an address, ``shift`` above bit ``base``, are xored into the bits
    from ``base`` on; below 0, ``shift`` xors the lower ones into the upper. Addresses are in elements.

    It is its own inverse. Raises ArithError for bits that overlap (|shift| < bits) or a negative count.

    >>> from idgraph.arith import symbol
    >>> s = AddressSwizzle(3, 3, 3)
    >>> s(8), s(64), s(72), s(s(200))
    (8, 72, 64, 200)
    >>> print(AddressSwizzle(1, 0, 1)(symbol("i", 0, 3)))
    i ^ (i//2)
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name, n in (("bits", self.bits), ("base", self.base), ("shift", self.shift)):
            if isinstance(n, bool) or not isinstance(n, int) or abs(n) > 62 or (n < 0 and name != "shift"):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArithError(f"Swizzle: {name} is {short_repr(n)}", hint="small integers, bits and base 0 or more")
        if abs(self.shift) < self.bits:
            raise ArithError(
                f"Swizzle({self.bits}, {self.base}, {self.shift}) xors bits into themselves",
                hint=f"a shift of {self.bits} or more",
            )

    def __call__(self, address: IntLike) -> IntLike:
        """The swizzled address: a number of a number, an expression of an expression (of values 0 or more)."""
        read, write = self.base + max(self.shift, 0), self.base + max(-self.shift, 0)
        if isinstance(address, int):
            return address ^ ((address >> read) % (1 << self.bits) << write)
        return simplify(xor(address, address // (1 << read) % (1 << self.bits) * (1 << write)))
