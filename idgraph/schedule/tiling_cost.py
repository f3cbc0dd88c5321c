"""The cost of a tiling of a reference's loops, in closed form: from accesses and extents, without emitting it.

A thread takes a tile of points, a warp the tiles of neighbouring threads. Each access is packed into the vectors that
its strides allow, and the sectors that a warp asks for at each of them are counted for the first warp; all others ask
for as many. The time is the root of the sum of squares of what memory and what the cache need: they overlap, but not
wholly. So of two tilings that only memory limits the one with fewer sectors is the better one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import gcd, hypot, prod

from idgraph.ir import IterDomain, item_size
from idgraph.ir.device import Device
from idgraph.schedule.access_strides import AffineCoordinate, SourceAccess

Sizes = Mapping[IterDomain, int]


@dataclass(frozen=True, slots=True)
class AffineAccess:
    """One access of a reference: ``steps`` are the elements of ``item`` bytes that a step along each axis moves, from
    ``offset``. ``bytes`` are those of the tensor called ``name``. ``parts``: (terms, offset, extent) of each coordinate
    that is inside at some points only: where a tile does not decide it, all parts are computed for a point.
    """

    name: str
    steps: Mapping[IterDomain, int]
    offset: int
    item: int
    bytes: int
    parts: tuple[tuple[Mapping[IterDomain, int], int, int], ...] = ()

    @property
    def fast(self) -> IterDomain | None:
        """The axis along which neighbours lie nearest to each other; None where it moves along none."""
        moving = [d for d, s in self.steps.items() if s]
        return min(moving, key=lambda d: abs(self.steps[d]), default=None)


@dataclass(frozen=True, slots=True)
class Tiling:
    """``axes``: a reference's, in the order of neighbouring threads, the fastest last. ``tile``: elements of one thread
    along some of them, those that lie side by side last; or ``run`` elements side by side of all axes as one. ``warp``:
    tiles of neighbouring threads along several axes, a rectangle of them; none: along ``axes``."""

    axes: tuple[IterDomain, ...]
    tile: tuple[tuple[IterDomain, int], ...] = ()
    run: int = 1
    warp: tuple[tuple[IterDomain, int], ...] = ()

    @property
    def points(self) -> int:
        """Elements of one thread."""
        return prod(n for _, n in self.tile) * self.run

    def __str__(self) -> str:
        tile = " x ".join(f"{n} of {d.label}" for d, n in self.tile) or f"{self.run} side by side"
        warp = " x ".join(f"{n} of {d.label}" for d, n in self.warp)
        along = f"{warp} a warp, " if warp else ""
        return f"threads along {along}{', '.join(d.label for d in self.axes)}; each takes {tile}"


@dataclass(frozen=True, slots=True)
class TilingCost:
    """The estimated cost of a tiling: ``sectors`` that warps ask for beside the ``least``, ``accesses`` of a thread,
    and microseconds."""

    sectors: float
    least: float
    accesses: int
    time_us: float

    def __str__(self) -> str:
        return f"{self.time_us:.2f} us, {self.sectors / max(1.0, self.least):.2f} times the sectors"


def affine(u: SourceAccess) -> AffineAccess | None:
    """An access with numbers for all steps; None where one is open or hidden."""
    steps = {d: int(s) for d, s in u.steps.items() if s is not None and s.is_const}
    if u.offset is None or not u.offset.is_const or len(steps) < len(u.steps):
        return None
    parts: list[tuple[Mapping[IterDomain, int], int, int]] = []
    for p in u.parts:
        terms = _constants(p.at)
        if terms is None or not p.extent.is_const:
            return None
        parts.append((*terms, int(p.extent)))
    total = prod(int(d.extent) for d in u.source.axes) if all(d.extent.is_const for d in u.source.axes) else 0
    item = item_size(u.source.dtype)
    return AffineAccess(u.source.name, steps, int(u.offset), item, total * item, tuple(parts))


def _constants(a: AffineCoordinate) -> tuple[Mapping[IterDomain, int], int] | None:
    if not a.offset.is_const or not all(k.is_const for _, k in a.terms):
        return None
    made: dict[IterDomain, int] = {}
    for d, k in a.terms:
        made[d] = made.get(d, 0) + int(k)
    return made, int(a.offset)


def tiling_cost(tiling: Tiling, accesses: Sequence[AffineAccess], block: int, device: Device) -> TilingCost:
    """The cost of a tiling whose sizes divide their axes, in blocks of ``block`` threads.

    >>> import idgraph as ig
    >>> from idgraph.schedule.access_strides import output_access, source_strides
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", (1024, 1024)).T)
    >>> both = [a for u in (output_access(t), *source_strides(t, [], splits=True)) if (a := affine(u))]
    >>> tiles = (), tuple(zip(t.axes, (4, 4)))
    >>> [str(tiling_cost(Tiling(t.axes, k), both, 128, ig.cost.devices["H200"])) for k in tiles]
    ['8.58 us, 4.50 times the sectors', '3.09 us, 1.50 times the sectors']
    """
    warp = _Warp(tiling, device)
    points = prod(int(d.extent) for d in tiling.axes)
    threads = points / tiling.points
    sectors, count, lines = 0.0, 0, {True: 0.0, False: 0.0}
    for together in _of_one_memory(accesses).values():
        inside = [(a, warp.inside(a)) for a in together]
        decided = [(a, at) for a, at in inside if warp.decides(a)]
        if decided:  # a thread loads what it reads of them once, in vectors of all
            union = sorted({k + a.offset for a, at in decided for k in at})
            inside = [(replace(decided[0][0], offset=0), union), *((a, at) for a, at in inside if not warp.decides(a))]
        seen: set[object] = set()  # what another way has loaded already
        for a, at in inside:
            asked, whole, vectors = warp.sectors(a, at)
            new = 0.0 if (a.offset, *at) in seen else threads / device.warp
            sectors, count = sectors + asked * new, count + vectors
            lines[a is accesses[0]] += whole * new
            seen.add((a.offset, *at))
    least = least_sectors(accesses, points, device)
    busy = device.busy(threads / block)
    issue = count * threads / device.loads
    places = device.index_seconds(threads * _coordinate_count(tiling, accesses), threads * count)
    asking = device.line_seconds(lines[False], lines[True])
    return TilingCost(sectors, least, count, _microseconds(least / busy, sectors, issue + places, 0.0, device, asking))


def _coordinate_count(tiling: Tiling, accesses: Sequence[AffineAccess]) -> int:
    """The coordinates that a thread takes its number apart into: axes that no access tells apart are one."""
    tile = dict(tiling.tile)
    outer = [d for d in tiling.axes if int(d.extent) > tile.get(d, 1)]
    outer += [d for d, _ in tiling.warp]
    joined = sum(all(a.steps[p] == a.steps[d] * int(d.extent) for a in accesses) for p, d in pairwise(outer))
    return len(outer) - joined


def _of_one_memory(accesses: Sequence[AffineAccess]) -> Mapping[object, list[AffineAccess]]:
    """Accesses of one tensor with the same steps: parts of it that lie beside each other, as even and odd elements."""
    found: dict[object, list[AffineAccess]] = {}
    for a in accesses:
        found.setdefault((a.name, *a.steps.items()), []).append(a)
    return found


def staged_cost(
    accesses: Sequence[AffineAccess], points: int, staged: int, waste: float, tile: tuple[int, int], device: Device
) -> TilingCost:
    """The cost of a nest that reads ``staged`` bytes through shared memory: no access asks for more sectors than it
    needs, but for threads of tiles that lie across the end of an axis (``waste`` times as many as have work).
    ``tile``: the points of a block, and those of one access."""
    least = least_sectors(accesses, points, device)
    count = len(accesses) + 2  # each of them once, the tile in and out
    issue = count * waste * points / tile[1] / device.loads
    shared = 2 * staged * waste / (device.processors * device.clock * device.bank_row) if device.clock else 0.0
    busy = device.busy(waste * points / tile[0])
    whole = least * waste * device.sector / device.line
    written = points * accesses[0].item * waste / device.line
    asking = device.line_seconds(max(0.0, whole - written), written)
    time = _microseconds(least / busy, least * waste, issue, shared, device, asking)
    return TilingCost(least * waste, least, count, time)


def least_sectors(accesses: Sequence[AffineAccess], points: int, device: Device) -> float:
    """The sectors of all different elements that are read and written."""
    return sum({a.name: min(points * a.item, a.bytes) for a in accesses}.values()) / device.sector


def _microseconds(
    moved: float, sectors: float, issue: float, shared: float, device: Device, asking: float = 0.0
) -> float:
    memory = moved * device.sector / device.bandwidth
    return hypot(memory, sectors * device.sector / device.cache_bandwidth, asking, issue, shared) * 1e6


class _Warp:
    """The first warp of a tiling: the coordinates of each thread's first point, and of the points of its tile."""

    def __init__(self, tiling: Tiling, device: Device) -> None:
        self.tiling, self.device, self.sizes = tiling, device, dict(tiling.tile)
        outer = [(d, int(d.extent) // self.sizes.get(d, 1)) for d in tiling.axes]
        self.moving = [d for d, n in outer if n > 1]
        starts = [_unravel_lane(tiling.warp or outer, lane * tiling.run) for lane in range(device.warp)]
        self.starts = [{d: k * self.sizes.get(d, 1) for d, k in at.items() if k} for at in starts]
        axes = [d for d, _ in tiling.tile]
        self.tile = [dict(zip(axes, at, strict=True)) for at in product(*(range(n) for _, n in tiling.tile))]
        if tiling.run > 1:
            self.tile = [_unravel_lane(outer, k) for k in range(tiling.run)]

    def inside(self, a: AffineAccess) -> list[int]:
        """The elements that a tile reads, in order, beside the thread's first one."""
        found = sorted(_dot(a.steps, at) for at in self.tile if self.happens(a, at))
        once = sorted(set(found))
        crosses = int(self.tiling.axes[-1].extent) % self.tiling.run and once != list(range(self.tiling.run))
        return found if crosses else once  # a run over the end of an axis is read element by element

    def sectors(self, a: AffineAccess, inside: Sequence[int]) -> tuple[int, int, int]:
        """Sectors that the warp asks for, the lines that they lie in, and the accesses of one thread."""
        starts = [_dot(a.steps, at) for at in self.starts]
        unit = gcd(*(starts if self.tiling.run > 1 else (a.steps[d] * self.sizes.get(d, 1) for d in self.moving)))
        most = self.device.lanes(a.item) if self.decides(a) else 1
        known: dict[tuple[int, int], tuple[int, int]] = {}
        total = lines = count = at = 0
        while at < len(inside):
            first, width = inside[at] + a.offset, most
            while width > 1 and (
                unit % width or first % width or inside[at + width - 1 : at + width] != [inside[at] + width - 1]
            ):
                width //= 2
            key = first * a.item % self.device.line, width * a.item
            if key not in known:
                known[key] = self.spanned([s * a.item + key[0] for s in starts], key[1])
            total, lines = total + known[key][0], lines + known[key][1]
            count, at = count + 1, at + width
        return total, lines, count

    def spanned(self, starts: Sequence[int], span: int) -> tuple[int, int]:
        """Different sectors of accesses of ``span`` bytes, and the lines that they lie in."""
        size, each = self.device.sector, max(1, self.device.line // self.device.sector)
        found = {n for s in starts for n in range(s // size, (s + span - 1) // size + 1)}
        return len(found), len({n // each for n in found})

    def decides(self, a: AffineAccess) -> bool:
        """Whether each point of a tile is inside of all parts, or outside, in all tiles alike."""
        return all(self._is_uniform(*part) for part in a.parts)

    def _is_uniform(self, terms: Mapping[IterDomain, int], offset: int, extent: int) -> bool:
        """Whether coordinates that differ along axes that tiles cut are all inside of a part, or all outside."""
        inside = {d: k for d, k in terms.items() if k and self.sizes.get(d, 1) == int(d.extent)}
        cut = [k * (int(d.extent) - 1) for d, k in terms.items() if d not in inside]
        if not any(cut):
            return True
        low, high = offset + sum(n for n in cut if n < 0), offset + sum(n for n in cut if n > 0)
        firsts = {sum(at) for at in product(*({k * n for n in range(int(d.extent))} for d, k in inside.items()))}
        return all((low + n >= 0 and high + n < extent) or high + n < 0 or low + n >= extent for n in firsts)

    def happens(self, a: AffineAccess, at: Mapping[IterDomain, int]) -> bool:
        """Whether a point of the tile is read in some tile."""
        return not self.decides(a) or all(0 <= off + _dot(terms, at) < n for terms, off, n in a.parts)


def _unravel_lane(outer: Sequence[tuple[IterDomain, int]], place: int) -> dict[IterDomain, int]:
    """The coordinates of a place of all axes as one."""
    at: dict[IterDomain, int] = {}
    for d, n in reversed(outer):
        if not place:
            break
        place, at[d] = divmod(place, n)
    return at


def _dot(steps: Mapping[IterDomain, int], at: Mapping[IterDomain, int]) -> int:
    return sum(steps.get(d, 0) * k for d, k in at.items())
