"""Devices simulated by the definition of ownership, with NumPy alone: nothing of `idgraph.shard`.

The coordinates of each axis are cut for each device: a block shard keeps the device's chunk of ceil(extent / size),
padded where the axis ends before, an inner shard every size-th one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.int64]
Steps = Sequence[tuple[int, str, bool]]


def devices(mesh: Mapping[str, int]) -> list[dict[str, int]]:
    """The coordinates of each rank."""
    return [dict(zip(mesh, at, strict=True)) for at in product(*(range(n) for n in mesh.values()))]


def held(shape: Sequence[int], steps: Steps, mesh: Mapping[str, int]) -> list[Table]:
    """The element numbers that each rank holds, as its local array."""
    ids = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    found: list[Table] = []
    for at in devices(mesh):
        along = [np.arange(n) for n in shape]  # coordinates along each axis that this device has; -1: behind the end
        for axis, over, inner in steps:
            n, mine = mesh[over], along[axis]
            block = -(-len(mine) // n)
            mine = np.concatenate([mine, np.full(block * n - len(mine), -1)])
            along[axis] = mine[at[over] :: n] if inner else mine[at[over] * block : (at[over] + 1) * block]
        found.append(ids[np.ix_(*(mine[mine >= 0] for mine in along))])
    return found
