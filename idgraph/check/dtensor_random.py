"""Random operations on DTensors: which numbers of the generators the devices draw.

On CUDA DTensor sets a device's generator before the operations that it knows: a part starts as many numbers behind as
the parts before it have elements, in steps of four, and all devices go on behind the whole tensor. Other operations,
and those on a CPU, draw from each device's own generator, which stands where that of the others does: all have one
seed. A number is the place of the generator that it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from idgraph.check.dtensor_form import DeviceElement
from idgraph.check.dtensor_simulation import Table
from idgraph.ir.mesh import Mesh

_STEP = 4  # numbers that a thread of a CUDA kernel takes from its sequence at a time
_SEQUENCES = 1 << 32  # more than a kernel has threads, each of which has its own


@dataclass(slots=True)
class Generators:
    """The generators of the devices: how far each is, and the numbers that were drawn so far."""

    mesh: Mesh
    cuda: bool
    offsets: npt.NDArray[np.int64] = field(init=False)
    drawn: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = np.zeros(self.mesh.size, np.int64)
        self.drawn = np.zeros(0, np.int64)

    def follows(self, func: Any) -> bool:
        """Whether DTensor sets the generators for an operation."""
        from torch.distributed.tensor import DTensor

        return self.cuda and func in getattr(DTensor, "_op_dispatcher")._random_ops  # noqa: B009 - torch names no other

    @property
    def known(self) -> bool:
        """Whether it is known where they stand: how many numbers an operation takes of a CPU's generator is not, so
        that after parts of different size those of the devices may differ or not."""
        return self.cuda or len(set(self.offsets.tolist())) == 1

    def rule(self, func: Any) -> str:
        """In words, whose numbers an operation draws."""
        if self.follows(func):
            return "DTensor sets the generator of each device"
        which = "for this operation" if self.cuda else "on a CPU"
        return f"DTensor sets no generators {which}, and those of the devices have one seed"

    def draw(self, func: Any, spec: Any, shape: Sequence[int], ids: Sequence[Table]) -> DeviceElement | None:
        """Draw a number for each element, ``ids`` device by device: an element that two devices draw differently, or
        that has the number of another one. ``spec`` is that of the operation's first tensor."""
        starts = self.offsets.copy()
        for rank, part in enumerate(ids):
            if self.follows(func):
                before, all_parts = _parts_before(spec, list(self.mesh.coordinates(rank).values()))
                starts[rank] += before
                self.offsets[rank] += all_parts
            elif part.size:
                self.offsets[rank] += _STEP if self.cuda else part.size
        if self.cuda:
            starts *= _SEQUENCES
        whole, owner = np.full((2, int(np.prod(shape))), -1, np.int64)
        for rank, (part, start) in enumerate(zip(ids, starts.tolist(), strict=True)):
            mine, numbers = part.ravel(), start + np.arange(part.size)
            others = np.flatnonzero((owner[mine] >= 0) & (whole[mine] != numbers))
            if len(others):
                return _witness_of(shape, rank, int(mine[others[0]]), int(mine[others[0]]), owner)
            whole[mine], owner[mine] = numbers, rank
        order = np.argsort(whole, kind="stable")
        twins = order[np.flatnonzero(np.diff(whole[order]) == 0)]
        known = np.flatnonzero(np.isin(whole, self.drawn))
        self.drawn = np.union1d(self.drawn, whole)
        if len(twins):
            first = int(twins[0])
            again = int(np.flatnonzero(whole == whole[first])[1])
            return _witness_of(shape, int(owner[again]), again, first, owner)
        return _witness_of(shape, int(owner[known[0]]), int(known[0]), None, owner) if len(known) else None


def _witness_of(shape: Sequence[int], rank: int, element: int, other: int | None, owner: Table) -> DeviceElement:
    at = tuple(int(x) for x in np.unravel_index(element, tuple(shape)))
    if other is None:
        return DeviceElement(rank, at, drawn="before")
    is_of = tuple(int(x) for x in np.unravel_index(other, tuple(shape)))
    twice: Literal["element", "replica"] = "replica" if other == element else "element"
    return DeviceElement(rank, at, is_of=is_of, owners=(int(owner[other]),), drawn=twice)


def _parts_before(spec: Any, coordinates: Sequence[int]) -> tuple[int, int]:
    """How far DTensor moves the generator of a device before it draws, and all of them in the end."""
    from torch.distributed.tensor import _random

    rules: Any = _random
    places, counts = rules._calc_shard_info(coordinates, spec)
    size = int(np.prod(rules._calc_first_shard_size(spec), dtype=np.int64))
    before = int(rules._calc_shard_linear_idx(places, counts)) * size
    return _in_steps(before), _in_steps(int(np.prod(tuple(spec.shape), dtype=np.int64)))


def _in_steps(count: int) -> int:
    return -(-count // _STEP) * _STEP
