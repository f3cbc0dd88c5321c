"""The kernels of a program, for reports: which operations each holds, what keeps it apart, its source and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.cost import Device, cost
from idgraph.cost.model import KernelCost
from idgraph.fuse import Obstacle, obstacles
from idgraph.ir import Fusion
from idgraph.kernel.ir import Kernel, Note, walk
from idgraph.runtime import Target, emit
from idgraph.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Boundary:
    """Why a kernel begins: it shares ``tensor`` with ``earlier`` ("stores" or "reads" there), and ``cause`` keeps the
    two apart (of `idgraph.fuse`; "" where no pair of their operations is kept apart)."""

    earlier: str
    tensor: str
    how: str
    cause: str
    because: str

    def __str__(self) -> str:
        why = f": {self.cause}, {self.because}" if self.cause else ": their loops could be one"
        return f"{self.earlier} {self.how} {self.tensor}{why}"


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel as emitted: the tensors that its operations make, in the order of its text; why it is not part of an
    earlier kernel; its source; its estimated cost, and microseconds measured where it was run."""

    name: str
    operations: tuple[str, ...]
    boundaries: tuple[Boundary, ...]
    source: str
    cost: KernelCost = field(repr=False)
    measured_us: float | None = None


def kernel_operations(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that the operations of a kernel make, as its text has them."""
    found: dict[str, None] = {}
    decoder = json.JSONDecoder()
    for s in walk(kernel.body):
        if isinstance(s, Note) and s.text.startswith('"'):
            name, end = decoder.raw_decode(s.text)
            if s.text[end:].startswith((" = ", " starts as ")):
                found[str(name)] = None
    return tuple(found)


def same_kernel(program: Program) -> dict[str, set[str]]:
    """The kernels by the tensors that their operations make."""
    made: dict[str, set[str]] = {}
    for k in program.kernels:
        for name in kernel_operations(k):
            made.setdefault(name, set()).add(k.name)
    return made


def emitted(
    f: Fusion,
    target: Target,
    device: Device | str | None,
    symbols: Mapping[str, int],
    times: Mapping[str, float] | None = None,
) -> tuple[Program, tuple[KernelFacts, ...]]:
    """The program of a fusion as it is scheduled, and its kernels."""
    program = emit(f, target)
    told = cost(program, device, symbols=symbols)
    pairs: Sequence[Obstacle] = obstacles(f) if len(program.kernels) > 1 else ()
    made: list[KernelFacts] = []
    for k, c in zip(program.kernels, told.kernels, strict=True):
        made.append(
            KernelFacts(
                k.name, kernel_operations(k), tuple(_boundaries(c, made, kernel_operations(k), pairs)),
                program.kernel_source(k), c, (times or {}).get(k.name),
            )
        )  # fmt: skip
    return program, tuple(made)


def _boundaries(
    own: KernelCost, earlier: Sequence[KernelFacts], operations: Iterable[str], pairs: Sequence[Obstacle]
) -> Iterable[Boundary]:
    """For each tensor shared with an earlier kernel, the nearest one, what keeps the two apart."""
    mine = set(operations)
    reads = {t.tensor for t in own.tensors if t.bytes_read}
    for tensor in dict.fromkeys(t.tensor for t in own.tensors):
        for k in reversed(earlier):
            theirs = next((t for t in k.cost.tensors if t.tensor == tensor), None)
            if theirs is None or (tensor not in reads and not theirs.bytes_read):
                continue
            how = "stores" if theirs.bytes_written else "reads"
            o = _between(set(k.operations), mine, tensor, pairs)
            yield Boundary(
                k.name, tensor, how, "" if o is None else o.cause, "" if o is None else "; ".join(o.because)
            )  # fmt: skip
            break


def _between(theirs: set[str], mine: set[str], tensor: str, pairs: Sequence[Obstacle]) -> Obstacle | None:
    """The obstacle between operations of the two kernels: over this tensor, else over any."""
    found = [
        o for o in pairs
        if (o.a.output.name in theirs and o.b.output.name in mine)
        or (o.b.output.name in theirs and o.a.output.name in mine)
    ]  # fmt: skip
    return next((o for o in found if o.buffer.name == tensor), found[0] if found else None)
