"""One move as one device sees it, as flat positions: elements that stay, go to each other device, and arrive.

The simulation in one process and the processes of torch.distributed read the same lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.ir.mesh import Mesh, Reduction
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


@dataclass(frozen=True, slots=True)
class PartialReduction:
    """The reduction of partial results along mesh axis ``over``, before a move. ``kept``: the positions that each
    device goes on with, by rank, of a reduce-scatter; None of an all-reduce, after which each has all."""

    over: str
    op: Reduction
    kept: tuple[Positions, ...] | None


def reductions_of(program: DeviceSteps, step: Exchange, sides: Sequence[RankTransfer]) -> tuple[PartialReduction, ...]:
    """The reductions of a move, in the order in which the placement has them; ``sides`` are those of all devices.

    A device goes on with what it keeps and sends, and with what those need that it reduces with afterwards.
    """
    scattered = {m.over[0] for m in step.moves if m.collective == "reduce-scatter"}
    needed = [np.unique(np.concatenate([t.kept_from, *t.sends])) for t in sides]
    found: list[PartialReduction] = []
    for over in reversed(list(step.reduces)):
        found.insert(0, PartialReduction(over, step.reduces[over], tuple(needed) if over in scattered else None))
        groups = [[needed[r] for r in ranks_along(program.mesh, rank, over)] for rank in program.mesh.ranks]
        needed = [np.unique(np.concatenate(g)) for g in groups]
    return tuple(found)


def ranks_along(mesh: Mesh, rank: int, over: str) -> list[int]:
    """The devices of one line along a mesh axis, through a device."""
    at = mesh.coordinates(rank)
    return [mesh.rank(**{**at, over: k}) for k in range(mesh.sizes[over])]


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
