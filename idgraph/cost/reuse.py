"""The cache model: which accesses of a kernel hit data that an earlier access of the same kernel has loaded.

An element that is touched again stays in the last cache if all that the kernel touches in between, by all blocks that
run at once, fits in it. Three cases: the steps of a loop that the address does not depend on; separate passes over a
tensor inside one block; everything else, which is touched at neighbouring steps and counts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from idgraph.cost.points import relevant
from idgraph.cost.sites import AccessSite, Data, EnclosingLoop
from idgraph.cost.traffic import Block
from idgraph.ir import item_size
from idgraph.ir.device import Device

_ORDER = ("blockIdx.z", "blockIdx.y", "blockIdx.x")  # the last one changes fastest


@dataclass(frozen=True, slots=True)
class Room:
    """The cache that a kernel has: ``bytes`` of it, shared by ``resident`` blocks that run at once."""

    bytes: int
    resident: int


def room_of(device: Device, block: Block, blocks: int) -> Room:
    """The room of a kernel of ``blocks`` blocks."""
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
            inner = next((x.number for x in s.around if not x.is_block), 0)
            groups.setdefault(inner, []).append(s)
        if len(groups) < 2:
            return [list(sites)]
        block = {x.number for s in sites for x in s.around if x.is_block}
        inside = [t for t in self.sites if not block or any(x.number in block for x in t.around)]
        touched: dict[str, int] = {}
        for t in inside:
            own = self._window(t, {x.number for x in t.around if x.is_block})
            touched[t.buffer.name] = max(touched.get(t.buffer.name, 0), own)
        return [list(sites)] if sum(touched.values()) * self.room.resident <= self.room.bytes else list(groups.values())
