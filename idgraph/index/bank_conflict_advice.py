"""Paddings and swizzles that take bank conflicts away, each tried on a copy and counted for every access.

Operands of matrix instructions: which lane has which element, and what ``ldmatrix`` asks of the banks (PTX ISA).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from idgraph.arith import Expr, IndexMap, simplify, symbol
from idgraph.display import Printed
from idgraph.errors import IdGraphError, IndexingError, arguments, did_you_mean, short_repr, user_line
from idgraph.index.access_relation import AccessFunction
from idgraph.index.bank_conflicts import Conflicts
from idgraph.ir import Fusion, NewSteps, Tensor, clone_fusion, item_size
from idgraph.ir.axis_read import Attr
from idgraph.ir.device import current_device
from idgraph.ir.protocols import axis_place

_MAX_CURES = 3


@dataclass(frozen=True, slots=True)
class BankSuggestion:
    """A layout of the shared array after which ``ways`` words at most are wanted of one bank by any access of it.

    ``extra`` elements more than before are needed. `apply` makes a copy of the fusion with that layout.
    """

    text: str
    ways: int
    extra: int
    edits: tuple[NewSteps, ...] = field(repr=False)

    def apply(self, fusion: Fusion) -> Fusion:
        """A copy of ``fusion`` with the array laid out this way."""
        return clone_fusion(fusion, self.edits)

    def __str__(self) -> str:
        left = "no conflict" if self.ways == 1 else f"{self.ways}-way"
        room = f", {self.extra} elements more" if self.extra else ""
        return f"{left} if {self.text}{room}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class BankConflicts(Conflicts, Printed):
    """Bank conflicts of an access of shared memory, over all warps and all steps of its other loops.

    ``ways``: most different words that one phase of a warp wants of one bank (1: no conflict). ``phases`` are those
    that the access needs anyway (1, 2 or 4); ``passes`` is the most that any warp takes. ``lanes`` want different
    words of ``bank``, one lane for each word. ``bytes`` is what a lane moves; ``points`` how many were counted.

    >>> import idgraph as ig
    >>> f = ig.Fusion("tile")
    >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
    >>> u = f.output(ig.permute(t, (0, 2, 1)))
    >>> for x in (t, u):
    ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
    ...         _ = x.parallelize(p, way)
    >>> found = ig.IdModel(f).access(t.inline(1).uses[0], t).bank_conflicts()
    >>> found.ways, found.bank, [(x.lane, x.byte) for x in found.lanes[:3]]
    (32, 0, [(0, 0), (1, 128), (2, 256)])
    >>> print(found)
    read of t by permute: 32-way bank conflict
      bank 0: lane 0 byte 0, lane 1 byte 128, lane 2 byte 256, lane 3 byte 384, ...
      no conflict if axis 2 of t is swizzled (xor) by axis 1
      no conflict if axis 2 of t is padded by 1, 32 elements more
    """

    def suggestions(self) -> tuple[BankSuggestion, ...]:
        """Paddings and swizzles of the array that take all conflicts away from every access of it, each counted.

        >>> import idgraph as ig
        >>> f = ig.Fusion("tile")
        >>> t = ig.copy(f.input("a", shape=(4, 32, 32)), name="t").set_memory("shared")
        >>> u = f.output(ig.permute(t, (0, 2, 1)))
        >>> for x in (t, u):
        ...     for p, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        ...         _ = x.parallelize(p, way)
        >>> a = ig.IdModel(f).access(t.inline(1).uses[0], t)
        >>> [str(change) for change in a.bank_conflicts().suggestions()][:1]
        ['no conflict if axis 2 of t is swizzled (xor) by axis 1']
        """
        return bank_suggestions(self)

    def __str__(self) -> str:
        verb = "write" if self.access.is_write else "read"
        head = f"{verb} of {self.access.tensor.name} by {self.access.expr.op}"
        if not self:
            return f"{head}: no bank conflict at {self.points} points"
        some = ", ".join(f"lane {x.lane} byte {x.byte}" for x in self.lanes[:4])
        more = ", ..." if len(self.lanes) > 4 else ""
        lines = [f"{head}: {self.ways}-way bank conflict", f"  bank {self.bank}: {some}{more}"]
        return "\n".join([*lines, *(f"  {c}" for c in self.suggestions())])

    __repr__ = __str__


def bank_suggestions(found: Conflicts) -> tuple[BankSuggestion, ...]:
    """See `BankConflicts.suggestions`."""
    access = found.access
    if not found or access.maps is None:
        return ()
    try:
        vectors = [c.bytes for c in _counts(_every(access, ()))]
    except IdGraphError:  # the fusion was changed since
        return ()
    made: list[BankSuggestion] = []
    for text, edit in _layouts(access.tensor):
        if sum(c.ways == 1 for c in made) >= _MAX_CURES:
            break
        suggestion = _trial_layout(access, text, edit, vectors)
        if suggestion is not None and suggestion.ways < found.ways:
            made.append(suggestion)
    best = min((c.ways for c in made), default=0)
    return tuple(sorted((c for c in made if c.ways == best), key=lambda c: c.extra))[:_MAX_CURES]


def _trial_layout(access: AccessFunction, text: str, edit: NewSteps, vectors: Sequence[int]) -> BankSuggestion | None:
    """The layout tried on a copy: the worst of all accesses of the array counts, and none may lose its vectors."""
    try:
        after = _every(access, (edit,))
        counts = _counts(after)
    except IdGraphError:
        return None
    if any(c.bytes < n for c, n in zip(counts, vectors, strict=True)):
        return None
    return BankSuggestion(
        text, max(c.ways for c in counts), _array_elements(after[0]) - _array_elements(access), (edit,)
    )


def _array_elements(access: AccessFunction) -> int:
    """Elements of the array; 0 where that is not a constant number."""
    size = access.buffer.size
    return int(size) if size.is_const else 0


def _counts(accesses: Sequence[AccessFunction]) -> list[Conflicts]:
    return [Conflicts.counted(a) for a in accesses if any(x.parallel.startswith("thread") for x in a.loops)]


def _every(access: AccessFunction, edits: tuple[NewSteps, ...]) -> list[AccessFunction]:
    """All accesses of the array in a changed copy, the write first."""
    t = access.tensor
    if access.maps is None:
        return []
    changed = clone_fusion(t.fusion, edits)
    maps = access.maps(changed)
    maps.verify()
    new = changed[t.name]
    found = [] if new.definition is None else [maps.write(new.definition)]
    return [*found, *(maps.read(e, k) for e in new.uses for k in e.operands_of(new))]


def _layouts(t: Tensor) -> Iterator[tuple[str, NewSteps]]:
    """Swizzles of one loop axis by another (or by its last bits), then paddings; inner axes first."""
    count = len(t.domain.exprs) + len(t.domain.loop_exprs)
    loops: tuple[Attr, ...] = tuple(axis_place(t, d) for d in t.loop)
    inner = [p for p, d in enumerate(t.loop) if d.kind != "reduction" and d.extent.is_const and int(d.extent) > 1]
    inner.reverse()
    for y in inner:
        for x in inner:
            n, rows = int(t.loop[y].extent), int(t.loop[x].extent)
            if x == y or n & (n - 1):
                continue
            if rows <= n:
                laid = {x: (f"made{count}.0",), y: (f"made{count}.1",)}
                steps = (("swizzle", ("xor", x, y)), *_lay(t, laid, loops))
                yield f"axis {y} of {t.name} is swizzled (xor) by axis {x}", NewSteps(t.name, steps)
            elif rows % n == 0:
                laid = {x: (f"made{count}.0", f"made{count + 1}.0"), y: (f"made{count + 1}.1",)}
                turned = ("swizzle", ("xor", x + 1, y + (y > x)))
                steps = (("split", (x, n)), turned, *_lay(t, laid, loops))
                yield f"axis {y} of {t.name} is swizzled (xor) by axis {x} modulo {n}", NewSteps(t.name, steps)
    for extra in dict.fromkeys((max(1, current_device().bank_bytes // item_size(t.dtype)), 1, 2, 4, 8)):
        for y in inner:
            steps = (("resize", (y, 0, extra)), *_lay(t, {y: (f"made{count}.0",)}, loops))
            yield f"axis {y} of {t.name} is padded by {extra}", NewSteps(t.name, steps)


def _lay(
    t: Tensor, laid: Mapping[int, tuple[str, ...]], loops: tuple[Attr, ...]
) -> tuple[tuple[str, tuple[Attr, ...]], tuple[str, tuple[Attr, ...]]]:
    """Lay the array out with the axes just made in place of old ones, and go back to the loops as they were."""
    kept: list[Attr] = []
    for p, d in enumerate(t.loop):
        if d.kind != "reduction":
            kept += laid.get(p, (loops[p],))
    return ("set_allocation", (tuple(kept), (True,) * len(kept))), ("set_loop", (loops,))


WARP = 32  # lanes, by the PTX ISA
ROW_BYTES = 16  # that a lane of ldmatrix addresses: a row of 8 elements of 16 bits
ROWS = 8  # of one matrix of ldmatrix, which are served together


SHAPES: Final[Mapping[str, tuple[int, ...]]] = {  # of mma.sync: bits of an operand's element that it takes
    "m8n8k4": (64,), "m8n8k16": (8,), "m8n8k32": (4,), "m8n8k128": (1,),
    "m16n8k4": (32, 64), "m16n8k8": (16, 32, 64), "m16n8k16": (16, 8, 64), "m16n8k32": (8, 4),
    "m16n8k64": (4,), "m16n8k128": (1,), "m16n8k256": (1,),
}  # fmt: skip
WARPGROUP_DEPTHS: Final[Mapping[int, tuple[int, ...]]] = {8: (32,), 16: (16,), 32: (8,)}  # of wgmma: k to bits
WARPGROUP_COLUMNS: Final = range(8, 257, 8)


@arguments(IndexingError)
def mma_operand(shape: str = "m16n8k16", operand: str = "a", bits: int = 16) -> IndexMap:
    """(lane, value) -> (row, column) of operand "a", "b" or "c" (the accumulator) of ``mma.sync``, or of ``wgmma``
    (shapes ``m64n...``, 128 lanes, operands "a" in registers and "c"), with elements of ``bits`` in "a" and "b".

    A register has 32 // bits elements side by side along k (one of 32 and of 64 bits); four lanes are a row, registers
    go down by 8 rows and then along k. Raises `IndexingError` for a shape, an operand or bits that are not there.

    >>> import idgraph as ig
    >>> m = ig.index.mma_operand("m16n8k16", "a")
    >>> print(m)
    (lane, value) -> (lane//4 + value//2%2*8, lane%4*2 + value//4*8 + value%2)
    >>> m(5, 3), bool(m.is_bijective)
    ((9, 3), True)
    >>> print(ig.index.mma_operand("m16n8k32", "b", bits=8))
    (lane, value) -> (lane%4*4 + value + value//4*12, lane//4)
    >>> print(ig.index.mma_operand("m64n32k16", "c"))
    (lane, value) -> (lane//4 + (lane//32 + value//2%2)*8, lane%4*2 + value//4*8 + value%2)
    """
    rows, columns, depth = _checked_shape(shape, bits)
    lane = symbol("lane", 0, WARP * max(1, rows // 16) - 1)
    group, member, warp = lane // 4 % 8, lane % 4, lane // WARP
    packed = max(1, 32 // bits)  # elements of a register
    down = 2 if rows > 8 else 1  # registers one below the other
    lanes = WARP * max(1, rows // 16)

    def value(elements: int) -> Expr:
        return symbol("value", 0, elements // lanes - 1)

    match operand:
        case "a":
            v = value(rows * depth)
            register = v // packed
            row = warp * 16 + group + register % down * 8
            at = row, register // down * 4 * packed + member * packed + v % packed
            return IndexMap((lane, v), tuple(map(simplify, at)), (rows, depth))
        case "b" if rows <= 16:
            v = value(depth * columns)
            at = v // packed * 4 * packed + member * packed + v % packed, group
            return IndexMap((lane, v), tuple(map(simplify, at)), (depth, columns))
        case "c":
            v = value(rows * columns)
            pair = v // 2
            at = warp * 16 + group + pair % down * 8, pair // down * 8 + member * 2 + v % 2
            return IndexMap((lane, v), tuple(map(simplify, at)), (rows, columns))
        case _:
            there = "a, b, c" if rows <= 16 else "a, c: operand b of wgmma lies in shared memory"
            raise IndexingError(
                f"mma_operand: unknown operand {short_repr(operand)} of {shape}", where=user_line(), hint=there
            )


def _checked_shape(shape: str, bits: int) -> tuple[int, int, int]:
    """Rows, columns and depth; refuses what no instruction has."""
    warpgroup = [f"m64n{n}k{k}" for n in WARPGROUP_COLUMNS for k in WARPGROUP_DEPTHS]
    if shape not in SHAPES and shape not in warpgroup:
        raise IndexingError(
            f"mma_operand: unknown shape {short_repr(shape)}",
            where=user_line(),
            hint=did_you_mean(str(shape), (*SHAPES, *warpgroup), f"{', '.join(SHAPES)}, m64n8k16 to m64n256k16"),
        )
    rows, columns, depth = (int(n) for n in re.split("[mnk]", shape)[1:])
    takes = SHAPES.get(shape) or WARPGROUP_DEPTHS[depth]
    if bits not in takes:
        raise IndexingError(
            f"mma_operand: {shape} has no operands of {short_repr(bits)} bits",
            where=user_line(),
            hint=f"bits={' or '.join(map(str, takes))}",
        )
    return rows, columns, depth


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
