"""One search for the loops of a reference: orders of its axes and tiles of its threads, by what they cost.

Where all that is large lies in memory alike, loops follow it and there is nothing to choose. Where it does not (a
permutation, parts interleaved on a short axis, channels that change their place), candidates are made of the axes along
which large accesses run: each axis has a vector of each width, or all of a short axis, for a thread; threads follow
one of the orders in which the accesses lie. `tiling_cost` scores each of them, without emitting any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from idgraph.arith import Expr
from idgraph.ir import IterDomain, Merge, Tensor
from idgraph.ir.device import Device
from idgraph.ir.schedule_log import TilingDecision
from idgraph.layout.inference import bytes_of
from idgraph.schedule.access_strides import HEAVY, output_access, source_strides
from idgraph.schedule.tiling_cost import AffineAccess, Tiling, TilingCost, affine, tiling_cost

RESOLUTION = 1.03  # times that the estimate tells apart: a tiling is left for one that is cheaper by more


@dataclass(frozen=True, slots=True)
class TilingChoice:
    """A tiling with its cost, and the runner-up of the search with its own; ``accesses`` are what it was scored by.
    ``usual``: it is the one that loops have without a search."""

    tiling: Tiling
    cost: TilingCost
    second: tuple[Tiling, TilingCost]
    candidates: int
    accesses: tuple[AffineAccess, ...]
    usual: bool = False


def base_axes(t: Tensor) -> tuple[IterDomain, ...]:
    """The axes of a reference to loop over: before a final flattening, so that what it joins can be distinguished."""
    flat = t.domain.exprs and all(isinstance(x, Merge) for x in t.domain.exprs) and t.allocation == t.axes
    return tuple(d for d in (t.root if flat else t.logical) if not d.is_broadcast)


def reference_accesses(
    t: Tensor, base: Sequence[IterDomain], stored: Collection[Tensor]
) -> tuple[AffineAccess, ...] | None:
    """Writes and reads of a reference, by its ``base`` axes; None where a place is not known in closed form.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", (4, 6)).T)
    >>> [list(a.steps.values()) for a in reference_accesses(t, t.axes, [])]
    [[4, 1], [1, 6]]
    """
    touches = source_strides(t, stored, splits=True, base=base)
    own = output_access(t, base)
    if touches is None or own is None:
        return None
    found: dict[object, AffineAccess] = {}
    for u in (own, *touches):
        if not bytes_of(u.source):
            return None
        a = affine(u)
        if a is not None:
            found.setdefault((u.source, u.offset, u.parts, *u.steps.values()), a)
        elif bytes_of(u.source) * HEAVY >= bytes_of(t):
            return None
    return tuple(found.values())


def choose_tiling(
    t: Tensor, stored: Collection[Tensor], usual: Tiling, block: int, device: Device
) -> TilingChoice | None:
    """The tiling of a reference whose accesses run along different axes, the ``usual`` one where that is as good as
    any; None where all run along one, or where a place is not known.

    >>> import idgraph as ig
    >>> f = ig.Fusion("channels last")
    >>> t = f.output(ig.permute(f.input("x", (24, 3, 320, 480), "uint8"), (0, 2, 3, 1)))
    >>> found = choose_tiling(t, [], Tiling(t.axes, ((t.axes[3], 1),)), 128, ig.cost.devices["H200"])
    >>> [(str(d.extent), n) for d, n in found.tiling.tile], found.candidates
    ([('480', 16), ('3', 3)], 16)
    """
    base = base_axes(t)
    if (
        not base
        or not all(d.extent.is_const and int(d.extent) for d in base)
        or any(d.kind != "iteration" for d in base)
    ):
        return None
    accesses = reference_accesses(t, base, stored)
    if accesses is None:
        base, usual = _in_parts(t, base, usual, stored)
        accesses = reference_accesses(t, base, stored)
    if accesses is None:
        return None
    heavy = [a for a in accesses if a.bytes * HEAVY >= bytes_of(t)]
    fast = dict.fromkeys(d for a in heavy if (d := a.fast) is not None)
    if len(fast) < 2:
        return None
    before = tiling_cost(usual, accesses, block, device)
    found = [(x, tiling_cost(x, accesses, block, device)) for x in candidates(base, heavy, device)]
    found.sort(key=lambda x: x[1].time_us)
    if not found:
        return None
    if not is_cheaper(found[0][1], before, device):
        return TilingChoice(usual, before, found[0], len(found) + 1, accesses, usual=True)
    (best, cost), *others = found
    second = min((*others, (usual, before)), key=lambda x: x[1].time_us)
    return TilingChoice(best, cost, second, len(found) + 1, accesses)


def is_cheaper(new: TilingCost, usual: TilingCost, device: Device) -> bool:
    """Whether the estimate tells that a tiling takes less time than the usual one: more threads that ask for more
    sectors have to save what shows beside the launch.

    >>> import idgraph as ig
    >>> a, b, c = TilingCost(100, 50, 1, 1.0), TilingCost(80, 50, 1, 0.9), TilingCost(120, 50, 1, 0.9)
    >>> [is_cheaper(x, a, ig.cost.devices["H200"]) for x in (a, b, c)]
    [False, True, False]
    """
    launch = device.launch_us if new.sectors > usual.sectors else 0.0
    return (launch + new.time_us) * RESOLUTION <= launch + usual.time_us


def _in_parts(
    t: Tensor, base: tuple[IterDomain, ...], usual: Tiling, stored: Collection[Tensor]
) -> tuple[tuple[IterDomain, ...], Tiling]:
    """``base`` with the axes that a reshape has joined (frames of two pictures in turn) split as loops of ``t``."""
    joined = dict[IterDomain, Expr]()
    source_strides(t, stored, splits=True, base=base, joined=joined)
    for d, n in joined.items():
        if d not in t.loop or not n.is_const or int(d.extent) % int(n):
            continue
        at = t.loop.index(d)
        t.split(at, int(n))
        parts = t.loop[at : at + 2]
        base, axes = (tuple(y for x in own for y in (parts if x is d else (x,))) for own in (base, usual.axes))
        usual = replace(usual, axes=axes)
    return base, usual


def tiling_decision(t: Tensor, choice: TilingChoice, staged: TilingCost | None) -> TilingDecision:
    """The report of a search; ``staged``: what the way through shared memory costs that was taken instead."""
    best, second = (str(choice.tiling), choice.cost), (str(choice.second[0]), choice.second[1])
    if staged is not None:
        best, second = ("tiles in shared memory", staged), best
    return TilingDecision(t.name, best[0], str(best[1]), second[0], str(second[1]), choice.candidates)


def candidates(base: Sequence[IterDomain], heavy: Sequence[AffineAccess], device: Device) -> Iterator[Tiling]:
    """Tilings of a reference: every order of what is large, with tiles of every width along the axes it runs along.

    The elements of a tile, of all that is large, take half of a thread's registers at most.
    """
    item = min(a.item for a in heavy)
    most = (device.thread_registers + 1) // (2 * len({a.name for a in heavy}))
    fast: dict[IterDomain, None] = {}
    for a in heavy:
        fast.update(dict.fromkeys(_short_run(a, base, device.lanes(a.item))))
    sizes = [[(d, n) for n in _divisors(int(d.extent), device.lanes(item))] for d in fast]
    orders = dict.fromkeys(_axis_order(base, a) for a in heavy)
    seen: set[object] = set()
    for order, chosen in product(orders, product(*sizes)):
        tile = tuple((d, n) for d, n in chosen if n > 1)
        outer = tuple(d for d in order if int(d.extent) != dict(tile).get(d, 1))
        if (outer, tile) not in seen and prod(n for _, n in tile) <= most:
            seen.add((outer, tile))
            made = Tiling(order, tuple(sorted(tile, key=lambda x: order.index(x[0]))))
            yield made
            yield from _rectangles(made, heavy, device)


def _rectangles(tiling: Tiling, heavy: Sequence[AffineAccess], device: Device) -> Iterator[Tiling]:
    """The tiling with warps along two axes: those that large accesses run along from tile to tile."""
    sizes = dict(tiling.tile)
    open_ = [d for d in tiling.axes if int(d.extent) != sizes.get(d, 1)]
    fast = {min((d for d in open_ if a.steps[d]), key=lambda d: abs(a.steps[d]), default=None) for a in heavy}
    pair = [d for d in open_ if d in fast]
    for n in (device.warp // 8, device.warp // 4) if len(pair) == 2 else ():
        warp = ((pair[0], device.warp // n), (pair[1], n))
        if all(int(d.extent) % (sizes.get(d, 1) * k) == 0 for d, k in warp):
            yield replace(tiling, warp=warp)


def _short_run(a: AffineAccess, base: Sequence[IterDomain], lanes: int) -> list[IterDomain]:
    """The fastest axes of an access: one, and those behind it until a vector is full."""
    found: list[IterDomain] = []
    step = None
    for d in sorted((d for d in base if a.steps[d]), key=lambda d: abs(a.steps[d])):
        if step is not None and abs(a.steps[d]) != step:
            break
        found.append(d)
        step = abs(a.steps[d]) * int(d.extent)
        if prod(int(d.extent) for d in found) >= lanes:
            break
    return found


def _divisors(extent: int, lanes: int) -> list[int]:
    """Elements of a thread along an axis: powers of two up to a vector that divide it, and all of a short one."""
    found = [1]
    while found[-1] * 2 <= lanes and extent % (found[-1] * 2) == 0:
        found.append(found[-1] * 2)
    return found if extent > lanes or extent in found else [*found, extent]


def _axis_order(base: Sequence[IterDomain], a: AffineAccess) -> tuple[IterDomain, ...]:
    """The axes as an access lies in memory, those along which it does not move behind their neighbours on the left."""
    made = sorted((d for d in base if a.steps[d]), key=lambda d: -abs(a.steps[d]))
    for at, d in enumerate(base):
        if not a.steps[d]:
            before = next((x for x in reversed(base[:at]) if x in made), None)
            made.insert(made.index(before) + 1 if before is not None else 0, d)
    return tuple(made)


def apply_tiling(t: Tensor, tiling: Tiling, block: int) -> None:
    """Loops of a tiling: blocks and threads of what is outside of the tiles, and the axes of a tile unrolled, the last
    one as a vector.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", (64, 32)).T)
    >>> apply_tiling(t, Tiling(t.axes, tuple(zip(t.axes, (4, 4)))), 128)
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('1', 'blockIdx.x'), ('128', 'threadIdx.x'), ('4', 'unroll'), ('4', 'vectorize')]
    """
    if t.loop != tiling.axes:
        t.set_loop(tiling.axes)
    inner, rest = list[IterDomain](), dict[IterDomain, IterDomain]()
    whole = [d for d, n in tiling.tile if n == int(d.extent)]
    if len(whole) == len(tiling.axes):
        whole = []
    for d, n in tiling.tile:
        if d in whole:
            inner.append(d)
        else:
            at = t.loop.index(d)
            t.split(at, n)
            rest[d] = t.loop[at]
            inner.append(t.loop[at + 1])
    warp: list[IterDomain] = []
    for d, n in tiling.warp:
        at = t.loop.index(rest.get(d, d))
        t.split(at, n)
        warp.append(t.loop[at + 1])
    outer = [*(d for d in t.loop if d not in inner and d not in warp), *warp]
    if [*outer, *inner] != list(t.loop):
        t.reorder([t.loop.index(d) for d in (*outer, *inner)])
    for _ in outer[1:]:
        t.merge(0)
    t.split(0, block)
    for n in range(len(inner)):
        t.parallelize(2 + n, "vectorize" if n == len(inner) - 1 else "unroll")
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")
