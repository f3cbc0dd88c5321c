"""Elements that must move between devices: they by source and destination, the collective that they are, bytes.

Points are listed only for those symbols that decide where an element lies or goes; the others multiply the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal

from idgraph.arith import TRUE, Expr, IndexSet
from idgraph.errors import IdGraphError
from idgraph.ir.dtypes import item_size
from idgraph.ir.fusion import Tensor
from idgraph.ir.mesh import Mesh, Shard
from idgraph.shard.ownership import Ownership
from idgraph.shard.reads import OperandRead

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Collective = Literal[
    "all-gather", "all-to-all", "all-reduce", "reduce-scatter", "neighbour exchange", "permute", "broadcast", "exchange"
]
MAX_ROWS = 4_000_000


@dataclass(frozen=True, slots=True)
class ForeignRead:
    """A device that needs an element that it does not hold: ``rank`` makes ``made`` of ``output`` and reads ``read``
    of ``tensor``, which ``owners`` hold. ``sizes`` are the numbers that symbols of extents have there."""

    output: str
    made: tuple[int, ...]
    rank: int
    tensor: str
    read: tuple[int, ...]
    owners: tuple[int, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.owners))
        sizes = "".join(f", where {n} = {v}" for n, v in self.sizes.items())
        return (
            f"rank {self.rank} makes {self.output}{list(self.made)} of {self.tensor}{list(self.read)}, "
            f"which rank{'s' * (len(self.owners) > 1)} {ranks} hold{'s' * (len(self.owners) == 1)}{sizes}"
        )


@dataclass(frozen=True, slots=True)
class Move:
    """The elements that one operand of an operation needs from other devices.

    The element ``element`` (over coordinates of the output: i0, ..., r0, ...) goes from ``source`` to ``destination``,
    by mesh axis, wherever ``condition`` holds and they differ; an axis that ``destination`` lacks stands for all
    devices along it. ``bytes`` are the most that one device receives, ``by_rank`` what each receives (None: too many
    points to count, or sizes are symbols); ``halo`` the elements from the device before and behind.
    """

    tensor: Tensor
    collective: Collective
    over: tuple[str, ...]
    element: tuple[Expr, ...] = ()
    source: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    destination: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    condition: Expr = TRUE
    bytes: int | None = None
    by_rank: tuple[int, ...] | None = None
    halo: tuple[int, int] | None = None

    def __str__(self) -> str:
        halo = f" with halo {self.halo[0]} and {self.halo[1]}" if self.halo else ""
        size = "" if self.bytes is None else f", {self.bytes} bytes a rank"
        return f"{self.collective} of {self.tensor.name} over {', '.join(self.over)}{halo}{size}"


@dataclass(frozen=True, slots=True)
class ElementTraffic:
    """Elements that go from device to device: one row each in ``source`` and ``destination`` (ranks) and ``element``
    (coordinates, one in each column; of the axes in ``listed``); ``each`` elements of the other axes go with a row."""

    source: npt.NDArray[np.int64]
    destination: npt.NDArray[np.int64]
    element: npt.NDArray[np.int64]
    listed: tuple[int, ...]
    each: int


def traffic(
    read: OperandRead,
    symbols: Sequence[Expr],
    mesh: Mesh,
    source: Mapping[str, Expr],
    destination: Mapping[str, Expr],
    *,
    split: bool = True,
) -> ElementTraffic | None:
    """The elements that devices read and do not hold; None where they are too many to list, or sizes are symbols.

    ``split``: list only the symbols that decide where; else all.
    """
    import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

    where = (*source.values(), *destination.values())
    active, each = _deciding_symbols(read, symbols, where) if split else (tuple(symbols), 1)
    if each is None:
        return None
    try:
        points = IndexSet(active, read.condition).points()
    except IdGraphError:
        return None
    env = {s.name: points[:, k] for k, s in enumerate(active)}
    count = len(points)
    listed = tuple(k for k, x in enumerate(read.coordinates) if not split or x.is_const or set(x.names) & set(env))

    def values(x: Expr) -> npt.NDArray[np.int64]:
        return np.broadcast_to(np.asarray(x.evaluate_array(env), np.int64), (count,))

    cells = (
        np.stack([values(read.coordinates[k]) for k in listed], axis=1) if listed else np.zeros((count, 0), np.int64)
    )
    to, of = {m: values(x) for m, x in destination.items()}, {m: values(x) for m, x in source.items()}
    free = [m for m in mesh.sizes if m not in to]
    if count * prod(mesh.sizes[m] for m in free) > MAX_ROWS:
        return None
    rows: list[npt.NDArray[np.int64]] = []
    for at in product(*(range(mesh.sizes[m]) for m in free)):
        there = {**to, **{m: np.full(count, r, np.int64) for m, r in zip(free, at, strict=True)}}
        here = {**there, **of}
        pair = [sum_ranks(mesh, x, count) for x in (here, there)]
        row = np.column_stack([*pair, cells])
        rows.append(np.unique(row[pair[0] != pair[1]], axis=0))
    table = np.unique(np.concatenate(rows), axis=0)
    return ElementTraffic(table[:, 0], table[:, 1], table[:, 2:], listed, each)


def sum_ranks(mesh: Mesh, at: Mapping[str, npt.NDArray[np.int64]], count: int) -> npt.NDArray[np.int64]:
    """The numbers of the devices at these coordinates."""
    import numpy as np  # noqa: PLC0415 - as above

    found = np.zeros(count, np.int64)
    for name, n in mesh.axes:
        found = found * n + at[name]
    return found


def _deciding_symbols(
    read: OperandRead, symbols: Sequence[Expr], where: Sequence[Expr]
) -> tuple[tuple[Expr, ...], int | None]:
    """The symbols that decide where elements lie or go; how many elements the others make of each (None: unknown)."""
    names = {n for x in where for n in x.names}
    together = [set(x.names) for x in (*read.coordinates, read.condition)]
    before = -1
    while before != len(names):
        before = len(names)
        for group in together:
            if group & names:
                names |= group
    each = 1
    for x, axis in zip(read.coordinates, read.tensor.axes, strict=True):
        if x.is_const or set(x.names) & names:
            continue
        if x.op != "sym" or x not in symbols or set(x.names) & set(read.condition.names):
            return tuple(symbols), 1  # not one coordinate of each: list all
        if not axis.extent.is_const:
            return (), None
        low, high = x.symbol_bounds[:2]
        if not (isinstance(low, int) and isinstance(high, int)):
            return (), None
        each *= high - low + 1
    rest = set(read.condition.names) - names
    return tuple(s for s in symbols if s.name in names or s.name in rest), each


def classify(
    read: OperandRead,
    source: Mapping[str, Expr],
    destination: Mapping[str, Expr],
    found: ElementTraffic | None,
    o: Ownership,
) -> Move:
    """The move of an operand's elements: which collective, and how much."""
    import numpy as np  # noqa: PLC0415 - as above

    over = tuple(m for m in o.mesh.sizes if m in source and destination.get(m) is not source[m])
    if found is None:
        return Move(read.tensor, "exchange", over, read.coordinates, source, destination, read.condition)
    mesh, size = o.mesh, item_size(read.tensor.dtype)
    at = {name: np.array([mesh.coordinates(r)[name] for r in mesh.ranks]) for name in mesh.sizes}
    moving = [m for m in source if np.any(at[m][found.source] != at[m][found.destination])]
    counts = np.bincount(found.destination, minlength=mesh.size) * found.each
    by_rank = tuple(int(n) * size for n in counts)
    kind, halo = _collective_of(found, o, moving, at, counts)
    return Move(
        read.tensor, kind, tuple(moving) or over, read.coordinates, source, destination, read.condition,
        max(by_rank, default=0), by_rank, halo,
    )  # fmt: skip


def _collective_of(
    found: ElementTraffic,
    o: Ownership,
    moving: Sequence[str],
    at: Mapping[str, npt.NDArray[np.int64]],
    counts: npt.NDArray[np.int64],
) -> tuple[Collective, tuple[int, int] | None]:
    import numpy as np  # noqa: PLC0415 - as above

    mesh = o.mesh
    held = np.array([prod(int(n) for n in o.sizes(mesh.coordinates(r))) for r in mesh.ranks])
    rest = [m for m in mesh.sizes if m not in moving]
    group = np.zeros(mesh.size, np.int64)
    for m in rest:
        group = group * mesh.sizes[m] + at[m]
    whole = np.bincount(group, weights=held).astype(np.int64)
    pairs, sent = np.unique(np.stack([found.source, found.destination]), axis=1, return_counts=True)
    if np.array_equal(counts, whole[group] - held):
        return "all-gather", None
    if len(moving) == 1:
        step = at[moving[0]][pairs[1]] - at[moving[0]][pairs[0]]
        n = mesh.sizes[moving[0]]
        shard = o.placement.on(moving[0])
        if np.isin(step % n, (1, n - 1)).all() and isinstance(shard, Shard) and not shard.inner:
            halo = _halo(found, o, pairs, sent, (step == 1) | ((step == 1 - n) & (n > 2)), shard.axis)
            if halo is not None:
                return "neighbour exchange", halo
    single = len(np.unique(pairs[0])) == len(pairs[0]) and len(np.unique(pairs[1])) == len(pairs[1])
    if single and np.array_equal(sent * found.each, held[pairs[0]]):  # each sends all it has to one other
        return "permute", None
    cells = np.column_stack([found.source, found.element])
    if len(np.unique(cells, axis=0)) == len(cells):
        return "all-to-all", None
    first = {int(group[d]): int(s) for s, d in pairs.T}
    if all(first[int(group[d])] == int(s) for s, d in pairs.T):
        return "broadcast", None
    return "exchange", None


def _halo(
    found: ElementTraffic,
    o: Ownership,
    pairs: npt.NDArray[np.int64],
    sent: npt.NDArray[np.int64],
    from_before: npt.NDArray[np.bool_],
    axis: int,
) -> tuple[int, int] | None:
    """The most coordinates along the sharded axis that a device gets from the one before it, and from that behind;
    None where they are not some of the sender's, with all that lies beside them."""
    import numpy as np  # noqa: PLC0415 - as above

    if axis not in found.listed:
        return None
    width = [0, 0]
    for (s, d), count, before in zip(pairs.T, sent, from_before, strict=True):
        sizes = [int(n) for n in o.sizes(o.mesh.coordinates(int(s)))]
        rows = (found.source == s) & (found.destination == d)
        wide = len(np.unique(found.element[rows, found.listed.index(axis)]))
        if wide >= sizes[axis] or count * found.each != wide * prod(sizes) // sizes[axis]:
            return None
        side = 0 if before else 1
        width[side] = max(width[side], wide)
    return width[0], width[1]


def reduced_bytes(tensor: Tensor, elements: int, devices: int, *, scattered: bool) -> int:
    """Bytes that a device receives in a ring of ``devices`` that reduce ``elements`` of each: one pass round it with
    each device's part, and for an all-reduce one more."""
    part = -(-elements // devices) * (devices - 1) * item_size(tensor.dtype)
    return part if scattered else 2 * part
