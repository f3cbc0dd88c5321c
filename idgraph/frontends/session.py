"""The parts that all calls of an import in one way share: its options, its kernels, the values that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from idgraph.codegen.printers.scalar import site_numbers
from idgraph.errors import FrontendError, one_of
from idgraph.frontends.graph import TensorMeta, short
from idgraph.frontends.imported import FusionRunner, Imported, KernelKey
from idgraph.frontends.partition import Partition, last_reads
from idgraph.frontends.torch_arrays import ONE_MEMORY, is_torch, shares_memory
from idgraph.ir import Fusion
from idgraph.ir.clone import clone_fusion
from idgraph.ir.printer import numbered_text
from idgraph.runtime import Target
from idgraph.runtime.fusion_call import is_scheduled, scheduled_or_stored, submit_fusions, warn_of_copy
from idgraph.runtime.program_cache import ScheduledProgram

if TYPE_CHECKING:
    from idgraph.runtime.tuning import Tuner


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The arguments of `idgraph.compile`."""

    target: str = "cpu"
    checked: bool | Literal["now"] = "now"
    layout: Literal["copy", "refuse"] | None = None  # None: inputs are copied, without a warning
    device: str | None = None
    cache: str | Path | None = None
    tuner: Tuner | None = None
    home: Any = None  # the device of a graph of torch's; None: that of the arguments

    @property
    def trusting(self) -> bool:
        """Whether torch passes what it captured: arguments that no kernel reads are not compared."""
        return self.home is not None


class Session:
    """See the module; `idgraph.frontends.callable_import.Runner` makes the calls."""

    def __init__(self, imported: Imported, how: CompileOptions) -> None:
        self.imported, self.how = imported, how
        self.program = imported.program
        self.names = [n.name for n in imported.parameters]
        self.spent: dict[int, list[str]] = {}
        for name, number in last_reads(imported.plan).items():
            self.spent.setdefault(number, []).append(name)
        self._told: set[tuple[str, str]] = set()
        # For some of its operations torch states other result shapes than it returns; kernels read none of those.
        self._read = {t.name for s in imported.segments if s.scheduled is not None for t in s.scheduled.inputs}

    def check_device(self, given: Mapping[str, object]) -> None:
        """Raise for a tensor on another device than asked for, or than the others; torch takes the host's lone numbers
        anywhere, and a capture's own arrays of the host follow the arguments."""
        first: tuple[str, Any] | None = None
        for name, value in given.items():
            if not is_torch(value):
                continue
            on_host = value.device.type == "cpu"
            if self.how.device is not None and not on_host and str(value.device) != self.how.device:
                raise FrontendError(f"{name} is on {value.device}, the kernels are for {self.how.device}")
            if on_host and (not value.dim() or self.how.trusting or name in self.imported.bound):
                continue
            first = first or (name, value.device)
            if value.device != first[1]:
                raise FrontendError(
                    f"{first[0]} is on {first[1]}, {name} on {value.device}",
                    hint=f"one device for all: {name}.to({str(first[1])!r})",
                )

    def check_written(self, flat: Sequence[object]) -> None:
        """Raise for an argument that the program writes and that lies in the memory of another one."""
        arrays: dict[str, Any] = {
            n: v for n, v in zip(self.names, flat, strict=False) if is_torch(v) or isinstance(v, np.ndarray)
        }
        for name in self.program.mutated:
            for other, value in arrays.items():
                if name in arrays and name != other and shares_memory(arrays[name], value):
                    raise FrontendError(
                        f"{self.program.name}: {short(name)}, which the program writes, and {short(other)} lie in one "
                        "memory",
                        hint=ONE_MEMORY,
                    )

    def is_read(self, name: str) -> bool:
        """Whether an argument is compared with the program: a kernel reads it, a size is taken from it."""
        meta = self.program[name].meta
        dynamic = not isinstance(meta, TensorMeta) or meta.is_dynamic
        return not self.how.trusting or name in self._read or dynamic

    def kernels(
        self, number: int, fusion: Fusion, segment: Partition, inputs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> FusionRunner:
        """The fusion's kernels: scheduled as the target needs it, or by measurement; a schedule step makes new ones."""
        how, known = self.how, self.imported.kernels
        where: Any = how.target
        tuner = self._tuner(fusion)
        way = how.target if tuner is None else f"{where}, tuned on {tuner.machine(where, inputs, how.device)}"
        found = known.get((number, fusion.version, way))
        if found is None:
            target = known_target(how.target)
            made = fusion if fusion is segment.fusion else clone_fusion(fusion, outputs=segment.outputs)
            if tuner is not None:
                found = tuner.tune(clone_fusion(made), where, inputs, symbols=sizes, device=how.device).program
            else:
                found = self._scheduled(made, target, (number, fusion.version, way))
            known[number, fusion.version, way] = found
        return found

    def _scheduled(self, fusion: Fusion, target: Target, key: KernelKey) -> FusionRunner:
        """The kernels of a fusion; of equal ones (layers of a model) they are made once.

        Kernels that check indices, and calls that tell of copies, name tensors of the program: each has its own.
        """
        imported, names = self.imported, tuple(t.name for t in fusion.tensors)
        if is_scheduled(fusion) or self.how.layout is not None:
            return self._program_of(fusion, target, False).program
        text = numbered_text(fusion), key[2]
        found = imported.equal.get(text)
        if found is None:
            made = self._program_of(fusion, target, True)
            found = made.program, made.names
            # A fusion of the user's may change.
            if found[0].fusion is not fusion and not any(site_numbers(k) for k in made.program.plan.kernels):
                imported.equal[text] = found
        if found[1] != names:
            imported.renamed[key, id(found[0])] = found[0], dict(zip(found[1], names, strict=True))
        return found[0]

    def submit(self) -> None:
        """Have other processes make the kernels of fusions, while this one makes others."""
        if self.how.layout is None and self.how.target in ("cpu", "cuda") and self.how.tuner is None:
            distinct: dict[str, Fusion] = {}
            for s in self.imported.segments:
                if s.fusion is not None and s.fusion is s.scheduled and s.outputs:
                    distinct.setdefault(numbered_text(s.fusion), s.fusion)
            submit_fusions(distinct.values(), known_target(self.how.target), self.how.cache, True)

    def _program_of(self, fusion: Fusion, target: Target, shared: bool) -> ScheduledProgram:
        """The kernels of a fusion, made or from disk."""
        made = scheduled_or_stored(fusion, target, self.how.cache, self.imported.stages.add, shared)
        self.imported.loaded += made.loaded
        return made

    def names_of(self, number: int, fusion: Fusion, kernels: FusionRunner) -> Mapping[str, str]:
        """The program's names of the tensors of ``kernels``, where these were made for an equal fusion."""
        # By the kernels: another thread may have made others at the same time.
        found = self.imported.renamed.get(((number, fusion.version, self.how.target), id(kernels)))
        return {} if found is None else found[1]

    def _tuner(self, fusion: Fusion) -> Tuner | None:
        """The tuner that chooses the fusion's kernels by measurement, if anything does."""
        return self.how.tuner if self.how.target in ("cpu", "cuda") and not is_scheduled(fusion) else None

    def tell(self, name: str, why: str) -> None:
        """Say once that an input is copied, or refuse."""
        warn_of_copy(self.program.name, name, why, self.how.layout, self._told)


def known_target(name: str) -> Target:
    """A target by its name."""
    for known in get_args(Target):
        if name == known:
            return known
    raise FrontendError(f"unknown target {short(name)}", hint=one_of(name, get_args(Target)))
