"""An imported program as data: its plan, the values it holds, and the kernels that were made for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from idgraph.frontends.graph import CapturedProgram, Node
from idgraph.frontends.opaque_ops import Operation
from idgraph.frontends.partition import Partition, PartitionPlan
from idgraph.frontends.torch_arrays import Array
from idgraph.ir import Fusion

KernelKey = tuple[int, int, str]  # segment, version of its fusion, target


class FusionRunner(Protocol):
    """A runner of a fusion: arrays by tensor name in, arrays by tensor name out."""

    def run(
        self, arrays: Mapping[str, Array], symbols: Mapping[str, int] | None = None, /, *, checked: bool = False
    ) -> Mapping[str, Array]: ...


@dataclass(slots=True)
class StageSeconds:
    """Seconds of the stages of a compilation: schedule, emit, load (of programs that a folder had),
    compile (what this process waited for it), first call."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, stage: str, seconds: float) -> None:
        """More of a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in self.seconds.items())


@dataclass(slots=True)
class Imported:
    """The parts of `idgraph.frontends.import_.Import`, which says what they are."""

    plan: PartitionPlan
    bound: dict[str, object] = field(default_factory=dict[str, object])
    operations: Mapping[str, Operation] = field(default_factory=dict[str, Operation])
    flatten: Callable[[Sequence[object], Mapping[str, object]], list[object]] | None = None
    unflatten: Callable[[list[object]], object] | None = None
    kernels: dict[KernelKey, FusionRunner] = field(default_factory=dict[KernelKey, FusionRunner], repr=False)
    # Kernels by the text of their fusion with its tensors numbered, with the names of these.
    equal: dict[tuple[str, str], tuple[FusionRunner, tuple[str, ...]]] = field(
        default_factory=dict[tuple[str, str], "tuple[FusionRunner, tuple[str, ...]]"], repr=False, compare=False
    )
    # By the segment and the identity of its kernels, which stand here with the names of their tensors in the segment.
    renamed: dict[tuple[KernelKey, int], tuple[FusionRunner, dict[str, str]]] = field(
        default_factory=dict[tuple[KernelKey, int], "tuple[FusionRunner, dict[str, str]]"], repr=False, compare=False
    )
    loaded: int = field(default=0, repr=False, compare=False)  # programs that come from disk
    # By target, the source of the function that calls run.
    written: dict[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    stages: StageSeconds = field(default_factory=StageSeconds, repr=False, compare=False)

    @property
    def program(self) -> CapturedProgram:
        """The nodes it was made of."""
        return self.plan.program

    @property
    def fusion(self) -> Fusion:
        """All mapped operations in one fusion."""
        return self.plan.fusion

    @property
    def segments(self) -> tuple[Partition, ...]:
        """The segments, in the order in which they run."""
        return self.plan.segments

    @property
    def parameters(self) -> tuple[Node, ...]:
        """The placeholders that `run` takes, in order."""
        return tuple(n for n in self.program.nodes if n.kind != "call" and n.name not in self.bound)
