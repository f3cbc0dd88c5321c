"""One move as one device sees it, as flat positions: elements that stay, go to each other device, and arrive.

The simulation in one process and the processes of torch.distributed read the same lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.shard.regions import Region, local_region
from idgraph.shard.steps import DeviceSteps, Exchange

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankTransfer:
    """One device's side of an `Exchange`: the ``shape`` of what it has afterwards, and positions row by row.

    Elements at ``kept_from`` of what it holds go to ``kept_to``; those at ``sends[r]`` go to rank r, those from rank r
    to ``gets[r]``, in the same order.
    """

    shape: tuple[int, ...]
    kept_from: Positions
    kept_to: Positions
    sends: tuple[Positions, ...]
    gets: tuple[Positions, ...]


def transfer_of(program: DeviceSteps, step: Exchange, rank: int) -> RankTransfer:
    """The side of a move that device ``rank`` has."""
    mesh, needs = program.mesh, step.needs[rank]
    have = local_region(program.owners[step.tensor], mesh.coordinates(rank))
    to: list[Positions] = []
    of: list[Positions] = []
    for need, has in zip(needs, have, strict=True):
        _, a, b = np.intersect1d(np.array(need.numbers()), np.array(has.numbers()), return_indices=True)
        to.append(a)
        of.append(b)
    sends = [step.element[(step.source == rank) & (step.destination == r)] for r in mesh.ranks]
    gets = [step.element[(step.source == r) & (step.destination == rank)] for r in mesh.ranks]
    return RankTransfer(
        tuple(s.count for s in needs),
        _flat_grid(have, of), _flat_grid(needs, to),
        tuple(_flat_positions(have, rows) for rows in sends),
        tuple(_flat_positions(needs, rows) for rows in gets),
    )  # fmt: skip


def _flat_grid(region: Region, axes: Sequence[Positions]) -> Positions:
    """The positions of a grid of local coordinates."""
    flat = np.zeros((1,) * len(axes), np.int64)
    for k, (at, step) in enumerate(zip(axes, _row_strides(region), strict=True)):
        flat = flat + (at.astype(np.int64) * step).reshape([-1 if n == k else 1 for n in range(len(axes))])
    return flat.reshape(-1)


def _flat_positions(region: Region, element: Positions) -> Positions:
    """The positions of elements of the whole tensor in a local part of it."""
    flat = np.zeros(len(element), np.int64)
    for k, (span, step) in enumerate(zip(region, _row_strides(region), strict=True)):
        flat += (element[:, k] - span.start) // max(span.step, 1) * step
    return flat


def _row_strides(region: Region) -> list[int]:
    return [prod(s.count for s in region[k + 1 :]) for k in range(len(region))]
