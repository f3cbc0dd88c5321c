"""The kernels of a program, for reports: the operations of each, the obstacles around it, its source and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from idgraph.cost import Device, cost
from idgraph.cost.kernel_costs import Cost, KernelCost
from idgraph.errors import IdGraphError
from idgraph.fuse import Obstacle, obstacles
from idgraph.ir import Fusion, item_size
from idgraph.kernel.ir import Buffer, Comment, Kernel, walk
from idgraph.reports.facts import Boundary, KernelFacts, Traffic
from idgraph.reports.measured import kernel_times
from idgraph.runtime import Target, emit
from idgraph.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Emission:
    """For which ``target`` and ``device`` kernels are made, with numbers for ``symbols``; ``measure`` times them."""

    target: Target = "cuda"
    device: Device | str | None = None
    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    measure: bool = False


@dataclass(frozen=True, slots=True)
class AsEmitted:
    """The kernels of one fusion and the bytes of its tensors, or why there are none."""

    kernels: tuple[KernelFacts, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    refused: str = ""


def kernel_operations(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that the operations of a kernel make, as its text has them."""
    found: dict[str, None] = {}
    decoder = json.JSONDecoder()
    for s in walk(kernel.body):
        if isinstance(s, Comment) and s.text.startswith('"'):
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


def as_emitted(f: Fusion, how: Emission) -> AsEmitted:
    """The kernels of a fusion as it is scheduled; ``refused`` where it cannot be emitted, or a size has no number."""
    if not f.exprs:
        return AsEmitted()
    missing = [s for s in f.symbols if s not in how.symbols]
    if missing:
        return AsEmitted(refused=f"symbol {missing[0]} has no number: report(..., symbols={{{missing[0]!r}: ...}})")
    try:
        program = emit(f, how.target)
        used = {n: v for n, v in how.symbols.items() if n in f.symbols}
        told = cost(program, how.device, symbols=used)
        pairs: Sequence[Obstacle] = obstacles(f) if len(program.kernels) > 1 else ()
    except IdGraphError as error:
        return AsEmitted(refused=error.what)
    times = kernel_times(program, used) if how.measure else {}
    made: list[KernelFacts] = []
    for k, c in zip(program.kernels, told.kernels, strict=True):
        own = kernel_operations(k)
        apart = tuple(_boundaries(c, made, own, pairs))
        made.append(KernelFacts(k.name, own, apart, program.kernel_source(k), c, times.get(k.name)))
    buffers = {b.title: b for b in program.plan.buffers}
    traffic = tuple(_traffic(buffers[tensor], f, used, told) for tensor in _touched(told))
    return AsEmitted(tuple(made), traffic)


def _touched(told: Cost) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.tensor for k in told.kernels for t in k.tensors))


_ROLES: Mapping[str, Literal["input", "output", "intermediate"]] = {
    "input": "input", "output": "output", "global": "intermediate",
}  # fmt: skip


def _traffic(b: Buffer, f: Fusion, sizes: Mapping[str, int], told: Cost) -> Traffic:
    """The bytes of one tensor over all kernels."""
    tensor = b.title
    elements = prod(int(d.extent.evaluate(dict(sizes))) for d in f[tensor].axes)
    rows = [t for k in told.kernels for t in k.tensors if t.tensor == tensor]
    exact = all(t.exact for t in rows)
    return Traffic(
        tensor, _ROLES[b.place], sum(t.bytes_read for t in rows), sum(t.bytes_written for t in rows),
        elements * item_size(b.dtype), exact, "" if exact else "from a sample, or loaded indices all different",
    )  # fmt: skip


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
