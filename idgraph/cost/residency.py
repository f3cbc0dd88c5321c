"""The caches between kernels: from which memory the tensors of a kernel come, as earlier kernels have left them.

A tensor lies in a cache if all that was touched since its last use, that use and this one included, fits in it (the
least recently used leaves first). A program that runs again finds what its last run left: its caches are *warm*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.ir.device import Device

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
