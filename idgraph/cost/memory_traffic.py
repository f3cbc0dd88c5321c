"""Traffic of a kernel's memory accesses: points, different elements, sectors of warps, sectors of memory.

The cache model: which accesses of a kernel hit data that an earlier access of the same kernel has loaded.

An element that is touched again stays in the last cache if all that the kernel touches in between, by all blocks that
run at once, fits in it. Three cases: the steps of a loop that the address does not depend on; separate passes over a
tensor inside one block; everything else, which is touched at neighbouring steps and counts once.

The caches between kernels: from which memory the tensors of a kernel come, as earlier kernels have left them.

A tensor lies in a cache if all that was touched since its last use, that use and this one included, fits in it (the
least recently used leaves first). A program that runs again finds what its last run left: its caches are *warm*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from idgraph.arith import Expr
from idgraph.cost.access_sites import AccessSite, Data, EnclosingLoop
from idgraph.cost.iteration_count import (
    Arrays,
    Count,
    Env,
    Ints,
    count_points,
    drawn,
    grid,
    holds,
    limit,
    relevant,
    sample,
    values,
)
from idgraph.index.bank_conflicts import sectors_from
from idgraph.ir import item_size
from idgraph.ir.device import Device

DIMS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True, slots=True)
class Block:
    """Threads of a block along x, y, z; 1 each where the target has none (``warps`` is then False)."""

    x: int
    y: int
    z: int
    warps: bool

    @property
    def threads(self) -> int:
        """All threads of a block."""
        return self.x * self.y * self.z


def site_points(s: AccessSite, data: Mapping[str, Data], arrays: Arrays) -> Count:
    """How often the access happens, threads that all do the same counted once."""
    return count_points(s.around, s.conditions, data, arrays)


# sectors of warps -----------------------------------------------------------------------------------------------------


def warp_sectors(
    s: AccessSite, block: Block, data: Mapping[str, Data], arrays: Arrays, device: Device, unit: int
) -> Count:
    """Sectors, or lines, of ``unit`` bytes that warps ask for: the different ones of each warp at each step, added up.

    Where a target has no threads, neighbouring steps of the innermost loops stand for a warp.
    """
    size = device.warp
    lanes, rest = _warp_loops(s, block, size)
    width = prod(n for _, n, _ in lanes)
    warps = -(-width // size)
    needed = set(relevant([s.address, *s.conditions], s.around, data))
    steps = [x for x in rest if x in needed]
    again = prod(x.extent for x in rest if x not in needed)
    total = prod(x.extent for x in steps) * warps
    if total == 0 or any(x.extent == 0 for x in s.around):
        return Count(0)
    full = total * size <= limit()
    which = EnclosingLoop("", warps, "", 0)
    env, many = grid([*steps, which]) if full else drawn([*steps, which], sample() // size)
    wide: Env = {n: np.repeat(v, size) for n, v in env.items()}
    left = wide.pop("") * size + np.tile(np.arange(size, dtype=np.int64), many)
    inside = left < width
    for x, n, alone in lanes:
        left, at = np.divmod(left, n)
        if alone:
            inside &= at == 0
        if x is not None:
            wide[x.var] = np.minimum(at, x.extent - 1)  # threads beyond a loop's end: any value does
            inside &= at < x.extent
    happens, known = holds(s.conditions, wide, data, arrays, many * size)
    address, sure = values(s.address, wide, data, arrays, many * size)
    inside &= happens
    warp = np.repeat(np.arange(many, dtype=np.int64), size)
    item = item_size(s.buffer.dtype)
    found = _different(warp[inside], address[inside], s.width * item, item, unit)
    return Count(round(found * (1 if full else total / many)) * again, full and known and sure)


def _warp_loops(
    s: AccessSite, block: Block, size: int
) -> tuple[list[tuple[EnclosingLoop | None, int, bool]], list[EnclosingLoop]]:
    """(loops whose steps are the lanes of a warp, with the number of lanes and whether only the first acts, fastest
    first; the other loops)."""
    if not block.warps:
        taken: list[EnclosingLoop] = []
        for x in reversed(s.around):
            if prod(y.extent for y in taken) >= size:
                break
            taken.append(x)
        return [(x, x.extent, False) for x in taken], [x for x in s.around if x not in taken]
    sizes = dict(zip(DIMS, (block.x, block.y, block.z), strict=True))
    own = {x.parallel: x for x in s.around if x.is_thread}
    lanes = [(own.get(d), n, d in s.dims) for d, n in sizes.items()]
    return lanes, [x for x in s.around if not x.is_thread]


def _different(warp: Ints, address: Ints, span: int, item: int, sector: int) -> int:
    """The different (warp, sector) pairs of accesses of ``span`` bytes."""
    if not len(warp):
        return 0
    first, last = sectors_from(address, span, item, sector)
    most = int((last - first).max()) + 1
    made = [np.where(first + k <= last, first + k, last) for k in range(most)]
    low = int(first.min())
    reach = int(last.max()) - low + 1
    return len(_unique(np.concatenate([warp * reach + (m - low) for m in made])))


def _unique(values: Ints) -> Ints:
    """The different integers, ascending: marked in a table where they lie close together, which takes no sorting.

    >>> _unique(np.array([7, 3, 7, 4])), _unique(np.array([1 << 60, 5, 5]))
    (array([3, 4, 7]), array([                  5, 1152921504606846976]))
    """
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if high - low > 8 * len(values):
        return np.unique(values)
    there = np.zeros(high - low + 1, np.bool_)
    there[values - low] = True
    return np.flatnonzero(there) + low


# distinct elements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Distinct:
    """Different elements, and the sectors of memory that they lie in; ``exact`` where they were counted."""

    elements: int
    sectors: int
    exact: bool


def distinct(
    sites: Sequence[AccessSite],
    data: Mapping[str, Data],
    arrays: Arrays,
    size: int,
    fill: Mapping[AccessSite, float],
    sector: int,
) -> Distinct:
    """The different elements of one buffer of ``size`` elements, and its sectors of ``sector`` bytes, that the sites
    touch, each counted once.

    ``fill`` says for a site which part of the sectors that its warps ask for they use.
    """
    own_fill = {s: fill.get(s, 1.0) for s in sites}
    sites = _distinct_sites(sites, data)
    item = item_size(sites[0].buffer.dtype)
    loops = [relevant([s.address, *s.conditions], s.around, data) for s in sites]
    totals = [prod(x.extent for x in own) for own in loops]
    if sum(t * s.width for t, s in zip(totals, sites, strict=True)) <= limit():
        found = [touched(s, *grid(own), data, arrays) for s, own in zip(sites, loops, strict=True)]
        if all(known for _, known in found):
            there = _unique(np.concatenate([a for a, _ in found]))
            return Distinct(len(there), len(_unique(there * item // sector)), exact=True)
    return _sampled(sites, loops, data, arrays, size, own_fill, sector)


def _distinct_sites(sites: Sequence[AccessSite], data: Mapping[str, Data]) -> list[AccessSite]:
    """One site of those that touch the same elements."""
    made: dict[tuple[Expr, tuple[Expr, ...], int, tuple[tuple[str, int], ...]], AccessSite] = {}
    for s in sites:
        own = relevant([s.address, *s.conditions], s.around, data)
        made.setdefault((s.address, s.conditions, s.width, tuple((x.var, x.extent) for x in own)), s)
    return list(made.values())


def touched(s: AccessSite, env: Env, count: int, data: Mapping[str, Data], arrays: Arrays) -> tuple[Ints, bool]:
    """The elements that the site touches at these points, those of one point together."""
    inside, known = holds(s.conditions, env, data, arrays, count)
    address, sure = values(s.address, env, data, arrays, count)
    return (address[inside][:, None] + np.arange(s.width)).ravel(), known and sure


# sets too large to write down -----------------------------------------------------------------------------------------


_SURE = 32  # pairs from which on their number tells how many elements are shared


@dataclass(frozen=True, slots=True)
class _Set:
    """The places that one site touches: ``elements`` of them, a sample of the first elements of its accesses."""

    width: int
    elements: float
    firsts: Ints
    loaded: bool
    rough: bool
    fill: float


def _sampled(
    sites: Sequence[AccessSite],
    loops: Sequence[Sequence[EnclosingLoop]],
    data: Mapping[str, Data],
    arrays: Arrays,
    size: int,
    fill: Mapping[AccessSite, float],
    sector: int,
) -> Distinct:
    """The size of the union, estimated from coincidences within and between fixed samples of the sites.

    A site that never touches an element twice shows no pair in its sample, and is counted exactly by its points. Loaded
    indices that are not given count as all different.
    """
    item = item_size(sites[0].buffer.dtype)
    numbered = enumerate(zip(sites, loops, strict=True))
    sets = [_set_of(s, own, k, data, arrays, fill[s], sector) for k, (s, own) in numbered]
    union, rough = 0.0, False
    unit = min(s.width for s in sets)
    for k, s in enumerate(sets):
        own = min(s.elements, float(size))
        alone = 1.0  # the part of its elements that no site before it touches
        for t in sets[:k]:
            if not (s.loaded or t.loaded):  # loaded indices fall anywhere: what they meet says nothing
                part = _overlap_fraction(s, t, float(size), unit)
                alone, rough = alone * (1.0 - part), rough or part > 0
        union = min(float(size), union + own * alone)
        rough |= s.rough
    whole = rough and union > 0.97 * size and not any(s.loaded for s in sets)
    elements = size if whole else round(union)
    sectors, most = 0.0, -(-size * item // sector)
    each = sum(s.elements for s in sets) or 1.0
    for s in sets:
        sectors += s.elements / each * elements * item / sector / s.fill
    return Distinct(elements, most if elements == size else min(most, max(round(sectors), 1)), exact=False)


def _set_of(
    s: AccessSite,
    own: Sequence[EnclosingLoop],
    number: int,
    data: Mapping[str, Data],
    arrays: Arrays,
    fill: float,
    sector: int,
) -> _Set:
    total = prod(x.extent for x in own)
    env, count = grid(own) if total <= sample() else drawn(own, sample(), number + 1)
    if total > sample():
        ids = np.zeros(count, np.int64)
        for x in own:
            ids = ids * x.extent + env[x.var]
        _, first = np.unique(ids, return_index=True)
        env, count = {n: v[first] for n, v in env.items()}, len(first)
    met, known = touched(s, env, count, data, arrays)
    firsts = met[:: s.width]
    points = count_points(own, s.conditions, data, arrays)
    if not known:
        return _Set(s.width, float(points.points * s.width), firsts, True, False, fill)
    starts, times = np.unique(firsts, return_counts=True)
    pairs = float((times * (times - 1) // 2).sum())
    n = len(firsts)
    places = float(points.points) if pairs == 0 else min(float(points.points), n * (n - 1) / (2 * pairs))
    dense = _density(starts, s.width, item_size(s.buffer.dtype), sector)
    return _Set(s.width, places * s.width, firsts, False, pairs > 0 or not points.exact, dense)


def _overlap_fraction(s: _Set, t: _Set, size: float, unit: int) -> float:
    """The part of a site's elements that another one touches as well, from the pairs of equal ones in their samples."""
    a, n = np.unique(s.firsts // unit, return_counts=True)
    b, m = np.unique(t.firsts // unit, return_counts=True)
    _, at, to = np.intersect1d(a, b, assume_unique=True, return_indices=True)
    pairs = float((n[at] * m[to]).sum())
    if pairs == 0:
        return 0.0
    own, other = min(s.elements, size), min(t.elements, size)
    places = pairs * own * other / (len(s.firsts) * len(t.firsts)) / unit
    least = min(own, other)
    if pairs > _SURE and places > least * (1 - 4 / np.sqrt(pairs)):  # all of the smaller one, but for chance
        places = least
    return min(1.0, places / own) if own else 0.0


def _density(starts: Ints, width: int, item: int, sector: int) -> float:
    """The part of a touched sector that accesses fill, if they begin everywhere on the lattice of the common step of
    ``starts``, which are sorted and differ."""
    step = int(np.gcd.reduce(np.diff(starts))) if len(starts) > 1 else width
    if step * item < sector:
        return min(1.0, width / max(step, 1))
    return min(1.0, width * item / sector)


_ORDER = ("blockIdx.z", "blockIdx.y", "blockIdx.x")  # the last one changes fastest


@dataclass(frozen=True, slots=True)
class Room:
    """The cache that a kernel has: ``bytes`` of it, shared by ``resident`` blocks that run at once."""

    bytes: int
    resident: int


def room_of(device: Device, block: Block, blocks: int) -> Room:
    """The cache capacity of a kernel of ``blocks`` blocks."""
    each = 1
    if device.kind == "cuda" and block.warps:
        each = max(1, min(device.blocks or 1, device.threads // max(1, block.threads)))
    return Room(device.cache, max(1, min(blocks, device.processors * each)))


def in_order(around: Sequence[EnclosingLoop]) -> list[EnclosingLoop]:
    """Loops from the slowest to the fastest: blocks, loops of a thread or block, threads."""
    blocks = sorted((x for x in around if x.is_block), key=lambda x: _ORDER.index(x.parallel))
    rest = [x for x in around if not x.is_block and not x.is_thread]
    return [*blocks, *rest, *(x for x in around if x.is_thread)]


class Reuse:
    """The accesses of a kernel that stay in the cache."""

    def __init__(
        self, sites: Sequence[AccessSite], data: Mapping[str, Data], sizes: Mapping[str, int], room: Room
    ) -> None:
        self.sites, self.data, self.sizes, self.room = sites, data, sizes, room
        loops = [{x.number for x in s.around} for s in sites]
        self.shared = frozenset(n for n in (loops[0] if loops else ()) if all(n in own for own in loops))

    def again(self, s: AccessSite) -> int:
        """How often the elements of a site come from memory: 1 if each stays in the cache until its last use."""
        order = in_order(s.around)
        needed = relevant([s.address, *s.conditions], s.around, self.data)
        times = 1
        for k, x in enumerate(order):
            if x in needed or x.is_thread or x.extent <= 1:
                continue
            inner = {y.number for y in order[: k + 1]}
            between = sum(self._window(t, inner) for t in self.sites if any(y.number == x.number for y in t.around))
            if between * (1 if x.is_block else self.room.resident) > self.room.bytes:
                times *= x.extent
        return times

    def _window(self, t: AccessSite, outer: set[int]) -> int:
        """The working set of a site in bytes: different elements touched while the loops in ``outer`` are fixed."""
        own = [x for x in relevant([t.address, *t.conditions], t.around, self.data) if x.number not in outer]
        elements = t.width * prod(x.extent for x in own)
        return min(elements, self.sizes[t.buffer.name]) * item_size(t.buffer.dtype)

    def passes(self, sites: Sequence[AccessSite]) -> list[list[AccessSite]]:
        """The sites of one tensor, grouped where the cache keeps their elements from one to the next."""
        groups: dict[int, list[AccessSite]] = {}
        for s in sites:
            groups.setdefault(self._pass_of(s), []).append(s)
        if len(groups) < 2:
            return [list(sites)]
        block = {x.number for s in sites for x in s.around if x.is_block}
        inside = [t for t in self.sites if not block or any(x.number in block for x in t.around)]
        windows: dict[tuple[str, int], dict[Expr, int]] = {}
        for t in inside:
            own = self._window(t, {x.number for x in t.around if x.is_block})
            windows.setdefault((t.buffer.name, self._pass_of(t)), {})[t.address] = own
        touched: dict[str, int] = {}
        for (name, _), one in windows.items():
            touched[name] = max(touched.get(name, 0), sum(one.values()))
        return [list(sites)] if sum(touched.values()) * self.room.resident <= self.room.bytes else list(groups.values())

    def _pass_of(self, s: AccessSite) -> int:
        """The number of the first loop of a block that not all accesses stand in: those of one are of one pass."""
        return next((x.number for x in s.around if not x.is_block and x.number not in self.shared), 0)


Footprint = Mapping[str, int]  # bytes of memory that one kernel touches, by tensor
Level = tuple[int, float]  # bytes, and bytes a second


def levels_of(device: Device) -> tuple[Level, ...]:
    """The caches of a device, the nearest first."""
    return (*device.levels, (device.cache, device.cache_bandwidth))


def distances(kernels: Sequence[Footprint], warm: bool) -> list[dict[str, int | None]]:
    """For each kernel and tensor the bytes touched since the tensor's last use; None where it was not used before.

    >>> distances([{"x": 100, "t": 50}, {"t": 50, "y": 10}], warm=False)
    [{'x': None, 't': None}, {'t': 160, 'y': None}]
    >>> distances([{"x": 100, "t": 50}, {"t": 50, "y": 10}], warm=True)[0]
    {'x': 160, 't': 160}
    """
    count = len(kernels)
    made: list[dict[str, int | None]] = [{} for _ in kernels]
    order: list[tuple[str, int]] = []  # tensors and the step of their last use, the latest last
    for step in range(count * (2 if warm else 1)):
        own = kernels[step % count]
        last = dict(order)
        if step >= count or not warm:
            made[step % count] = {name: _since(kernels, last[name], step) if name in last else None for name in own}
        order = [(name, at) for name, at in order if name not in own] + [(name, step) for name in own]
    return made


def _since(kernels: Sequence[Footprint], first: int, step: int) -> int:
    """Bytes of the different tensors that the kernels from step ``first`` to ``step`` touch."""
    most: dict[str, int] = {}
    for at in range(max(first, step - len(kernels)), step + 1):
        for name, size in kernels[at % len(kernels)].items():
            most[name] = max(most.get(name, 0), size)
    return sum(most.values())


def bandwidth_at(device: Device, distance: int | None) -> float:
    """Bytes a second of data that was used so many bytes ago: of the nearest cache that still holds it, or of memory.

    >>> import idgraph as ig
    >>> h = ig.cost.devices["H200"]
    >>> bandwidth_at(h, 1 << 20) == h.cache_bandwidth, bandwidth_at(h, None) == h.bandwidth
    (True, True)
    """
    if distance is not None:
        for size, rate in levels_of(device):
            if distance <= size:
                return max(rate, device.bandwidth)
    return device.bandwidth


def second_cache(device: Device) -> float:
    """Bytes a second from the cache behind the first one."""
    levels = levels_of(device)
    return levels[min(1, len(levels) - 1)][1]
