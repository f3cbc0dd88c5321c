"""CuTe's algebra of layouts on modes (extent, stride): complement, coordinates of a number, swizzles of address bits.

A layout counts its first coordinate fastest, as CuTe's does (Shah and others, CuTe layout representation and algebra).
`idgraph.arith.IndexMap` has the operations as methods; here is what they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from idgraph.arith.expr import ArithError, Expr, IntLike, as_expr, xor
from idgraph.arith.simplify import simplify
from idgraph.arith.solve import coefficients
from idgraph.errors import short_repr

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
