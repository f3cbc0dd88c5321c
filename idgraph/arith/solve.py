"""Solving for symbols: over bits, as coefficients of a sum.

Equations that are linear over bits (GF(2)) are swizzles, and layouts given by the images of powers of two. Each side
is a matrix over GF(2), given by its diagonals (`known_bits.diagonals`), from the bits of the symbols to those of the
value. Elimination inverts all equations together. (Triton's linear layouts: Zhou et al., *Linear Layouts*, 2025.)
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith.expr import Expr, as_expr, const, xor
from idgraph.arith.interval import interval
from idgraph.arith.known_bits import Diagonals, diagonals, from_diagonals
from idgraph.arith.linear import terms
from idgraph.arith.simplify import simplify

_MAX_BITS = 256
Row = tuple[int, int]  # the bits of which a bit is the xor, and the constant that flips it


class _BitLinearizer:
    """Bits of expressions as sums of unknown bits: those of symbols, and of atoms that are not linear."""

    def __init__(self, domain: frozenset[Expr]) -> None:
        self.domain = domain
        self.first: dict[Expr, tuple[int, int]] = {}  # atom -> number of its lowest bit, and of bits
        self.count = 0

    def bits(self, e: Expr) -> list[Row] | None:
        """The lowest bit first, all higher ones are 0; None where it is not linear."""
        flipped = _flipped(e)
        found = diagonals(e if flipped is None else flipped[0])
        if found is None or any(mask < 0 for mask in found.values()):
            return None
        out: list[Row] = [(0, (0 if flipped is None else flipped[1]) >> k & 1) for k in range(_width(found, flipped))]
        for (x, up), mask in found.items():
            at = None if x.op == "const" else self.atom(x)
            if at is None and x.op != "const":
                return None
            for k in range(mask.bit_length()):
                if mask >> k & 1:
                    row, turned = out[k + up]
                    out[k + up] = (row, turned ^ 1) if at is None else (row ^ 1 << (at + k), turned)
        return out

    def atom(self, x: Expr) -> int | None:
        """The number of the lowest bit of an atom; None for one that is not a part of the domain or is unbounded."""
        if x not in self.first:
            lo, hi = interval(x)
            if lo is None or hi is None or lo < 0 or not x.symbols & self.domain:
                return None
            if self.count + hi.bit_length() > _MAX_BITS:
                return None
            self.first[x] = (self.count, hi.bit_length())
            self.count += hi.bit_length()
        return self.first[x][0]


def _width(found: Diagonals, flipped: tuple[Expr, int] | None) -> int:
    tops = [mask.bit_length() + up for (_, up), mask in found.items()]
    return max([*tops, 0 if flipped is None else flipped[1].bit_length()], default=0)


def _flipped(e: Expr) -> tuple[Expr, int] | None:
    """``(x, ones)`` of ``ones - x``, whose bits are those of x flipped."""
    t, c = terms(e)
    if len(t) != 1:
        return None
    x, k = next(iter(t.items()))
    lo, hi = interval(x)
    if k != -1 or c & (c + 1) or lo is None or lo < 0 or hi is None or hi > c:
        return None
    return x, c


def solve_bits(equations: Sequence[tuple[Expr, Expr]], domain: frozenset[Expr]) -> dict[Expr, Expr]:
    """Atoms all of whose bits the equations ``left = value`` determine, as expressions in the values."""
    reader = _BitLinearizer(domain)
    sources: list[tuple[Expr, int]] = []  # of each row: the value, and which bit of it
    rows: list[list[int]] = []  # unknown bits, bits of the values, constant
    for left, value in equations:
        bits = reader.bits(left)
        for k, (row, turned) in enumerate(bits or ()):
            rows.append([row, 1 << len(sources), turned])
            sources.append((value, k))
    told = _eliminated(rows, reader.count)
    out: dict[Expr, Expr] = {}
    for atom, (first, width) in reader.first.items():
        mine = [told[first + k] for k in range(width) if first + k in told]
        made = _number_of_bits(mine, sources) if len(mine) == width else None
        if made is not None:
            out[atom] = made
    return out


def _eliminated(rows: list[list[int]], count: int) -> dict[int, Row]:
    """Gauss and Jordan: for each unknown bit that is determined, the bits of values it is made of, and the constant."""
    left = [list(r) for r in rows]
    pivots: list[tuple[int, list[int]]] = []
    for bit in range(count):
        at = next((n for n, r in enumerate(left) if r[0] >> bit & 1), None)
        if at is None:
            continue
        found = left.pop(at)
        for r in (*left, *(p for _, p in pivots)):
            if r[0] >> bit & 1:
                r[0], r[1], r[2] = r[0] ^ found[0], r[1] ^ found[1], r[2] ^ found[2]
        pivots.append((bit, found))
    return {bit: (r[1], r[2]) for bit, r in pivots if r[0] == 1 << bit}


def _number_of_bits(bits: Sequence[Row], sources: Sequence[tuple[Expr, int]]) -> Expr | None:
    """The number with these bits, by the diagonals of its matrix; None for too many."""
    found: Diagonals = {}
    for k, (row, _) in enumerate(bits):
        for n, (value, bit) in enumerate(sources):
            if row >> n & 1:
                found[value, k - bit] = found.get((value, k - bit), 0) | 1 << bit
    made = from_diagonals(found)
    turned = sum(c << k for k, (_, c) in enumerate(bits))
    return None if made is None else simplify(xor(made, const(turned)))


def coefficients(e: Expr, variables: Sequence[Expr]) -> tuple[Expr, ...] | None:
    """The coefficient of each variable, then the rest, where ``e`` is provably the sum of all; None where it is not.

    No variable is in any of them.

    >>> from idgraph.arith import symbol
    >>> i, j, n = symbol("i", 0, 7), symbol("j", 0, 7), symbol("n", 1)
    >>> [str(part) for part in coefficients(i * n * 2 + j + n + 3, (i, j))], coefficients(i // 2, (i,))
    (['n*2', '1', 'n + 3'], None)
    """
    zero = {v: as_expr(0) for v in variables}
    rest = simplify(e.substitute(zero))
    each = [simplify(e.substitute({**zero, v: as_expr(1)}) - rest) for v in variables]
    left = e - rest
    for v, factor in zip(variables, each, strict=True):
        left = left - factor * v
    free = not any(v in x.symbols for x in (*each, rest) for v in variables)
    return (*each, rest) if free and simplify(left) == 0 else None
