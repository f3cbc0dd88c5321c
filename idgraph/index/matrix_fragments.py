"""Operands of matrix instructions: which lane has which element, and what ``ldmatrix`` asks of the banks (PTX ISA).

An operand map takes (lane, value) to (row, column) of the matrix; lanes are the 32 threads of a warp, values the
elements of 16 bits (operands) or 32 bits (accumulators) that a lane has, in the order of its registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith import IndexMap, symbol
from idgraph.errors import IndexingError, arguments, did_you_mean, short_repr, user_line
from idgraph.ir.device import current_device

WARP = 32  # lanes, by the PTX ISA
ROW_BYTES = 16  # that a lane of ldmatrix addresses: a row of 8 elements of 16 bits
ROWS = 8  # of one matrix of ldmatrix, which are served together


@arguments(IndexingError)
def mma_operand(shape: str = "m16n8k16", operand: str = "a") -> IndexMap:
    """(lane, value) -> (row, column) of operand "a", "b" or "c" (the accumulator) of ``mma.sync`` on 16-bit operands.

    Raises `IndexingError` for a shape or an operand that is not there.

    >>> import idgraph as ig
    >>> m = ig.index.mma_operand("m16n8k16", "a")
    >>> print(m)
    (lane, value) -> (lane//4 + value//2%2*8, lane%4*2 + value//4*8 + value%2)
    >>> m(5, 3), bool(m.is_bijective)
    ((9, 3), True)
    """
    depths = {"m16n8k8": 8, "m16n8k16": 16}
    if shape not in depths:
        raise IndexingError(
            f"mma_operand: unknown shape {short_repr(shape)}",
            where=user_line(),
            hint=did_you_mean(str(shape), depths, ", ".join(depths)),
        )
    k = depths[shape]
    lane = symbol("lane", 0, WARP - 1)
    group, member = lane // 4, lane % 4
    match operand:
        case "a":
            value = symbol("value", 0, k // 2 - 1)
            column = value // 4 * 8 + member * 2 + value % 2 if k == 16 else member * 2 + value % 2
            return IndexMap((lane, value), (group + value // 2 % 2 * 8, column), (16, k))
        case "b":
            value = symbol("value", 0, k // 4 - 1)
            row = value // 2 * 8 + member * 2 + value % 2 if k == 16 else member * 2 + value
            return IndexMap((lane, value), (row, group), (k, 8))
        case "c":
            value = symbol("value", 0, 3)
            return IndexMap((lane, value), (group + value // 2 * 8, member * 2 + value % 2), (16, 8))
        case _:
            raise IndexingError(
                f"mma_operand: unknown operand {short_repr(operand)}", where=user_line(), hint="a, b, c"
            )


@arguments(IndexingError)
def ldmatrix(count: int = 4, transposed: bool = False) -> IndexMap:
    """(lane, register, half) -> (matrix, row, column): what ``ldmatrix`` of ``count`` matrices (1, 2, 4) of 8 x 8
    elements of 16 bits leaves in each lane; lane 8*m + r gave the address of row r of matrix m.

    >>> import idgraph as ig
    >>> print(ig.index.ldmatrix(2))
    (lane, register, half) -> (register, lane//4, half + lane%4*2)
    """
    _check_count(count)
    lane, register = symbol("lane", 0, WARP - 1), symbol("register", 0, count - 1)
    half = symbol("half", 0, 1)
    row, column = lane // 4, lane % 4 * 2 + half
    at = (register, column, row) if transposed else (register, row, column)
    return IndexMap((lane, register, half), at, (count, ROWS, ROWS))


@dataclass(frozen=True, slots=True)
class FragmentConflicts:
    """Bank conflicts of one ``ldmatrix``: each matrix is served in ``ways`` passes at most, all in ``passes``.

    ``lanes`` are those of the worst matrix that want different words of bank ``bank``. True where there is a conflict.
    """

    ways: int
    passes: int
    bank: int
    lanes: tuple[int, ...]

    def __bool__(self) -> bool:
        return self.ways > 1


@arguments(IndexingError)
def ldmatrix_conflicts(rows: IndexMap, count: int = 4, item: int = 2) -> FragmentConflicts:
    """Conflicts of ``ldmatrix`` where (matrix, row) lies at ``rows(matrix, row)``, elements of ``item`` bytes in shared
    memory. The 8 rows of a matrix, of 16 bytes each, are served together, by the banks of the device at hand.

    Raises `IndexingError` for rows that are not aligned to 16 bytes.

    >>> import idgraph as ig
    >>> plain = ig.IndexMap.strided((4, 8), (8, 64))  # four matrices side by side in rows of 64 halves
    >>> xored = plain.swizzle(ig.arith.Swizzle(3, 3, 3))
    >>> ig.index.ldmatrix_conflicts(plain).ways, ig.index.ldmatrix_conflicts(xored).ways
    (8, 1)
    """
    _check_count(count)
    worst, device = FragmentConflicts(1, 0, 0, ()), current_device()
    passes = 0
    for matrix in range(count):
        words: dict[int, dict[int, int]] = {}
        for row in range(ROWS):
            (place,) = rows(matrix, row)
            byte = int(place) * item if place.is_const else -1
            if byte < 0 or byte % ROW_BYTES:
                raise IndexingError(
                    f"ldmatrix: row {row} of matrix {matrix} begins at element {place}, not at a multiple of 16 bytes",
                    where=user_line(),
                    hint=f"rows at multiples of {ROW_BYTES // item} elements",
                )
            for word in range(byte // device.bank_bytes, (byte + ROW_BYTES) // device.bank_bytes):
                words.setdefault(word % device.banks, {}).setdefault(word, matrix * ROWS + row)
        bank = max(words, key=lambda b: len(words[b]))
        ways = len(words[bank])
        passes += ways
        if ways > worst.ways:
            worst = FragmentConflicts(ways, 0, bank, tuple(words[bank].values()))
    return FragmentConflicts(worst.ways, passes, worst.bank, worst.lanes)


def _check_count(count: int) -> None:
    if count not in (1, 2, 4):
        raise IndexingError(f"ldmatrix of {short_repr(count)} matrices", where=user_line(), hint="1, 2 or 4")


__all__ = ["FragmentConflicts", "ldmatrix", "ldmatrix_conflicts", "mma_operand"]
