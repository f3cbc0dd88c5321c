"""Bank conflicts of warps: shared memory has 32 banks of 4 bytes, and each serves one word at a time.

Threads of a block are numbered x fastest, then y, then z; 32 consecutive ones are a warp. Lanes that want the same word
are served together. Accesses of 8 bytes run in two phases of 16 lanes, of 16 bytes in four of 8 (CUDA programming
guide, shared memory). A vectorised loop of more than 16 bytes is several accesses: the worst counts. Everything here is
counted at every point, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from idgraph.arith import Expr, as_expr, multiple_of, simplify
from idgraph.errors import IndexingError, arguments, user_line
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.ir import item_size
from idgraph.ir.device import Device, current_device

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from numpy import int64
    from numpy.typing import NDArray


THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
Place = TypeVar("Place", int, "NDArray[int64]")


def sectors_from(place: Place, span: int, item: int, sector: int) -> tuple[Place, Place]:
    """The first and the last ``sector`` (bytes) of ``span`` bytes from element ``place`` on, of ``item`` bytes each.

    The one rule of what an access moves: `ig.cost` asks it of arrays of places, `ig.layout.infer` of one warp.

    >>> sectors_from(7, 8, 4, sector=32)  # bytes 28 to 35
    (0, 1)
    """
    first = place * item // sector
    return first, (place * item + span - 1) // sector


def warp_bytes(walk: tuple[tuple[int, int], ...], item: int) -> tuple[int, int]:
    """(bytes of the sectors that a warp of the device in force asks for, bytes of the elements that it reads).

    ``walk``: extent and step in elements of each axis that its lanes walk through, the fastest one first; an element
    has ``item`` bytes.
    """
    gpu = current_device()
    return _warp_bytes(walk, item, gpu.warp, gpu.sector)


@lru_cache(maxsize=1024)
def _warp_bytes(walk: tuple[tuple[int, int], ...], item: int, warp: int, sector: int) -> tuple[int, int]:
    places: set[int] = set()
    for lane in range(min(warp, prod(extent for extent, _ in walk))):
        place = 0
        for extent, step in walk:
            lane, at = divmod(lane, extent)
            place += at * step
        places.add(place)
    spans = (sectors_from(place, item, item, sector) for place in places)
    return sector * len({n for first, last in spans for n in range(first, last + 1)}), item * len(places)


def thread_loops(access: AccessFunction) -> list[LoopVariable | None]:
    """The loops on threads x, y and z."""
    return [next((x for x in access.loops if x.parallel == n), None) for n in THREADS]


def vector_loop(access: AccessFunction) -> LoopVariable | None:
    """The vectorised loop."""
    return next((x for x in access.loops if x.parallel == "vectorize"), None)


def number_of(e: Expr, loop: LoopVariable, asked: str) -> int:
    """An extent as a number; ``asked`` is the question that needs it."""
    if not e.is_const:
        raise IndexingError(
            f"loop {loop.name} has the extent {e}: {asked} needs a number",
            where=user_line(),
            hint=f"{asked}(symbols={{{', '.join(f'{n!r}: ...' for n in sorted(e.names))}}})",
        )
    return int(e)


def block_dims(
    threads: Sequence[LoopVariable | None], extents: Mapping[str, int], block: Mapping[str, int] | None
) -> list[int]:
    """Threads of a block along x, y and z: of this operation, or as ``block`` says where that is wider."""
    for name, extent in (block or {}).items():
        if name not in THREADS or isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"block: {name!r} = {extent!r} is not a thread dimension", where=user_line(), hint=THREADS[0]
            )
    return [
        max(extents[t.name] if t is not None else 1, (block or {}).get(n, 1))
        for n, t in zip(THREADS, threads, strict=True)
    ]


def lane_pieces(
    access: AccessFunction, vector: LoopVariable | None, place: Expr, extents: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """The accesses that one lane makes of its vectorised loop, as the emitter cuts it: (first step, elements) of each,
    at most `Device.vector_bytes`, and each as wide as it is aligned. Single elements where steps are not neighbours.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(ig.copy(f.input("x", shape=(32, 12))))
    >>> _ = y.parallelize(0, "threadIdx.x").parallelize(1, "vectorize")
    >>> a = ig.IdModel(f).write(y.definition)
    >>> lane_pieces(a, vector_loop(a), a.address, {"i1": 12})
    ((0, 4), (4, 4), (8, 4))
    """
    if vector is None:
        return ((0, 1),)
    width = extents[vector.name]
    single = tuple((n, 1) for n in range(width))
    step = simplify(place.substitute({vector.name: vector.symbol}) - place.substitute({vector.name: 0}) - vector.symbol)
    if step != 0 or vector.name in access.predicate.names:
        return single
    start = simplify(place.substitute({vector.name: as_expr(0)}))
    left, found = set(range(width)), list[tuple[int, int]]()
    most = current_device().vector_bytes // item_size(access.tensor.dtype)
    while most > 1:
        if multiple_of(start, most):
            for first in range(0, width - most + 1, most):
                run = range(first, first + most)
                if left.issuperset(run):
                    found.append((first, most))
                    left.difference_update(run)
        most //= 2
    return tuple(sorted([*found, *((n, 1) for n in left)]))


MAX_POINTS = 1 << 20
Ints: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class ConflictLane:
    """One lane of a conflict: its number in the warp, its loop point, and the byte of the shared array it wants."""

    lane: int
    point: Mapping[str, int]
    byte: int


@dataclass(frozen=True, slots=True)
class Conflicts:
    """`idgraph.index.BankConflicts` as data."""

    access: AccessFunction = field(repr=False, compare=False)
    ways: int
    phases: int
    passes: int
    bytes: int
    bank: int
    lanes: tuple[ConflictLane, ...]
    points: int

    def __bool__(self) -> bool:
        return self.ways > 1

    @classmethod
    @arguments(IndexingError)
    def counted(
        cls, access: AccessFunction, block: Mapping[str, int] | None = None, symbols: Mapping[str, int] | None = None
    ) -> Self:
        """The conflicts of an access; see `Access.bank_conflicts`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("tile")
        >>> t = ig.copy(f.input("a", shape=(32, 32)), name="t").set_memory("shared")
        >>> u = f.output(t.T)
        >>> for x in (t, u):
        ...     _ = x.parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x")
        >>> Conflicts.counted(ig.IdModel(f).access(u.definition, t)).ways
        32
        """
        place = access.address
        if access.buffer.place != "shared":
            raise IndexingError(
                f"{access.tensor.name} is not in shared memory, and only shared memory has banks",
                where=access.expr.source_line,
                hint=f'{access.tensor.name}.set_memory("shared")',
            )
        sizes = dict(symbols or {})
        place, when = place.substitute(sizes), access.predicate.substitute(sizes)
        threads, vector, rest = _roles(access, place, when, sizes)
        extents = {x.name: number_of(x.extent.substitute(sizes), x, "bank_conflicts") for x in access.loops}
        dims = block_dims(threads, extents, block)
        steps = [x for x in rest if x is not vector]
        pieces = lane_pieces(access, vector, place, extents)
        total = dims[0] * dims[1] * dims[2] * len(pieces)
        for x in steps:
            total *= extents[x.name]
        if total > MAX_POINTS:
            raise IndexingError(
                f"bank conflicts of {access.tensor.name}: {total} points are too many to count",
                hint=f"at most {MAX_POINTS}; loops that only move the whole warp are not counted",
            )
        size, worst = item_size(access.tensor.dtype), None
        for first, count in pieces:
            counted = ConflictCount(access, place, when, count * size)
            for at in product(*(range(extents[x.name]) for x in steps)):
                fixed = {
                    **dict.fromkeys((x.name for x in access.loops), 0),
                    **({} if vector is None else {vector.name: first}),
                    **{x.name: v for x, v in zip(steps, at, strict=True)},
                }
                _warps(counted, fixed, threads, extents, dims)
            if worst is None or (counted.ways, counted.passes) > (worst.ways, worst.passes):
                worst = counted
        counted = worst or ConflictCount(access, place, when, size)
        return cls(access, *counted.result(), total)


def _roles(
    access: AccessFunction, place: Expr, when: Expr, sizes: Mapping[str, int]
) -> tuple[list[LoopVariable | None], LoopVariable | None, list[LoopVariable]]:
    """The loops on threads (x, y, z), the vectorised one, and those others that can change who conflicts."""
    threads = thread_loops(access)
    if not any(threads):
        raise IndexingError(
            f"no loop of {access.expr!r} runs on threads, so no warp reads or writes together",
            where=access.expr.source_line,
            hint='t.parallelize(axis, "threadIdx.x")',
        )
    vector = vector_loop(access)
    size, word = item_size(access.tensor.dtype), current_device().bank_bytes
    rest: list[LoopVariable] = []
    for x in access.loops:
        if x in threads:
            continue
        moved = simplify(place - place.substitute({x.name: 0}))
        alone = not any(t is not None and t.name in moved.names for t in (*threads, vector) if t is not x)
        # Moving all lanes by whole words rotates the banks, and the conflicts with them.
        if x is vector or not (alone and multiple_of(moved * size, word)) or x.name in when.names:
            rest.append(x)
    return threads, vector, rest


@dataclass(slots=True)
class ConflictCount:
    """The counts so far, of accesses of ``bytes`` by each lane."""

    access: AccessFunction
    place: Expr
    when: Expr
    bytes: int
    ways: int = 0
    passes: int = 0
    bank: int = 0
    lanes: tuple[ConflictLane, ...] = ()
    device: Device = field(default_factory=current_device)

    @property
    def phases(self) -> int:
        """Parts of a warp that are served one after another: its lanes want more than all banks have at a time."""
        return min(self.device.warp, max(1, self.device.warp * self.bytes // self.device.bank_row))

    def warps(self, numbers: Ints, bytes_: Ints, point: Callable[[int], Mapping[str, int]]) -> None:
        """Count the warps of these threads: in each phase, the different words that each bank is asked for.

        ``bytes_`` are the first ones that each thread wants; ``point`` says the loop point of the k-th of them.
        """
        import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

        warp, banks_, word = self.device.warp, self.device.banks, self.device.bank_bytes
        groups = numbers // (warp // self.phases)  # one phase of one warp
        span = (bytes_ + self.bytes - 1) // word - bytes_ // word + 1
        who = np.repeat(np.arange(len(numbers)), span)
        steps = np.arange(len(who)) - np.repeat(np.cumsum(span) - span, span)  # from a lane's first word on
        words = bytes_[who] // word + steps
        most = int(words.max()) + 1
        asked, first = np.unique(groups[who] * most + words, return_index=True)
        banks = asked // most * banks_ + asked % most % banks_
        each, ways = np.unique(banks, return_counts=True)
        phase = each // banks_
        begins = np.flatnonzero(np.r_[True, phase[1:] != phase[:-1]])
        per_phase = np.maximum.reduceat(ways, begins)
        per_warp = np.bincount(phase[begins] // self.phases, weights=per_phase)
        self.passes = max(self.passes, int(per_warp.max()))
        worst = int(np.argmax(ways))
        if int(ways[worst]) > self.ways:
            self.ways, self.bank = int(ways[worst]), int(each[worst]) % banks_
            chosen = [int(who[k]) for k in first[banks == each[worst]].tolist()]
            self.lanes = tuple(ConflictLane(int(numbers[k]) % warp, point(k), int(bytes_[k])) for k in sorted(chosen))

    def result(self) -> tuple[int, int, int, int, int, tuple[ConflictLane, ...]]:
        """The fields of `Conflicts` from ``ways`` to ``lanes``."""
        lanes = self.lanes if self.ways > 1 else ()
        return max(self.ways, 1), self.phases, max(self.passes, self.phases), self.bytes, self.bank, lanes


def _warps(
    counted: ConflictCount,
    fixed: dict[str, int],
    threads: list[LoopVariable | None],
    extents: Mapping[str, int],
    dims: list[int],
) -> None:
    """All warps of a block at one step of the other loops."""
    import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

    size = item_size(counted.access.tensor.dtype)
    numbers = np.arange(dims[0] * dims[1] * dims[2], dtype=np.int64)
    at = (numbers % dims[0], numbers // dims[0] % dims[1], numbers // (dims[0] * dims[1]))
    inside = np.ones(len(numbers), np.bool_)  # threads of the block that this operation has work for
    for t, v in zip(threads, at, strict=True):
        inside &= v < (extents[t.name] if t is not None else len(numbers))
    numbers = numbers[inside]
    values = {t.name: v[inside] for t, v in zip(threads, at, strict=True) if t is not None}
    env = {**fixed, **values}
    places = np.broadcast_to(counted.place.evaluate_array(env), numbers.shape) * size
    happens = np.broadcast_to(counted.when.evaluate_array(env), numbers.shape)
    lanes = np.flatnonzero(happens)

    def point(k: int) -> dict[str, int]:
        return {**fixed, **{name: int(v[lanes[k]]) for name, v in values.items()}}

    if len(lanes):
        counted.warps(numbers[lanes], places[lanes], point)
