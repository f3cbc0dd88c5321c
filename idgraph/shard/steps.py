"""The steps of programs of devices: kernels on what each holds, and between them named moves of what they lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from idgraph.display import Printed
from idgraph.ir.fusion import Fusion
from idgraph.ir.mesh import Mesh, Reduction
from idgraph.shard.locality import mesh_of_fusion
from idgraph.shard.moves import Move
from idgraph.shard.ownership import Ownership
from idgraph.shard.propagation import Placements
from idgraph.shard.regions import Region

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from idgraph.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Exchange:
    """A move before an operation: parts of ``tensor`` go to the devices that read them for operand ``operand``.

    ``needs`` are what each device has then. Rows of ``source``, ``destination`` and ``element`` say what is sent.
    ``reduces``: the mesh axes along which partial results are reduced first.
    """

    tensor: str
    operand: int
    name: str
    moves: tuple[Move, ...]
    needs: tuple[Region, ...]
    source: npt.NDArray[np.int64]
    destination: npt.NDArray[np.int64]
    element: npt.NDArray[np.int64]
    reduces: Mapping[str, Reduction] = field(default_factory=dict[str, "Reduction"])

    def gives_the_same(self, other: Exchange) -> bool:
        """Whether the devices have after the other one what they have after this: it need not be done twice."""
        rows = ((a.source, a.destination, a.element) for a in (self, other))
        same = (self.tensor, self.needs, self.reduces) == (other.tensor, other.needs, other.reduces)
        return same and all(a.tolist() == b.tolist() for a, b in zip(*rows, strict=True))

    def __str__(self) -> str:
        return "; ".join(map(str, self.moves)) or f"{self.tensor} is spread out on each device"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Kernels:
    """Operations without a move between them: a program for each device (None: its parts are empty)."""

    operations: tuple[str, ...]
    programs: tuple[Program, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.makes)} = kernels of {', '.join(self.operations)}"

    __repr__ = __str__


class DeviceSteps(Printed):
    """One list of steps that all devices of a mesh take, and who owns what of each tensor by name."""

    def __init__(self, fusion: Fusion, placements: Placements, steps: Sequence[Exchange | Kernels]) -> None:
        self.fusion, self.placements, self.steps = fusion, placements, tuple(steps)
        self.mesh: Mesh = mesh_of_fusion(fusion)
        self.owners = {t.name: Ownership(t, p.placement, self.mesh) for t, p in placements.items()}

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))

    __repr__ = __str__
