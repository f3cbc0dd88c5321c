"""Each device's program: kernels on what it holds, and between them named moves of what it lacks.

Operations that need no move go into one kernel module of a device, as they would without devices; devices whose parts
are alike share its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from idgraph.arith import Expr
from idgraph.errors import IdGraphError, arguments, user_line
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import DType, Scalar, int_limits, is_float
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr, check_fusion
from idgraph.ir.mesh import MeshError, Reduction
from idgraph.ir.op_table import ROWS, apply
from idgraph.ir.ops_view import full, pad
from idgraph.ir.ops_view import slice as part_of_axis
from idgraph.ir.ragged_axes import COVERS
from idgraph.runtime import Target
from idgraph.runtime.fusion_call import scheduled
from idgraph.shard.locality import REDUCES, Locality, LocalityDecision, mesh_of_fusion
from idgraph.shard.moves import traffic
from idgraph.shard.propagation import Placements, propagate
from idgraph.shard.reads import OperandRead, reads_of
from idgraph.shard.regions import DevicePart, Region, Span, agrees, boxed, local_region, part_of
from idgraph.shard.rows import LocalRows, check_rows, stored
from idgraph.shard.steps import DeviceSteps, Exchange, Kernels

if TYPE_CHECKING:
    import numpy.typing as npt

    from idgraph.runtime.program import Program


class DeviceProgram(DeviceSteps):
    """The programs of all devices of a mesh; `emit` makes one.

    ``run`` simulates the devices; `idgraph.shard.processes.run_rank` runs one of them with torch.distributed.
    """

    def run(self, inputs: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """Outputs by name from whole arrays by input name, computed by simulated devices.

        Partial inputs are on the first device along their mesh axis. Raises `MeshError` where devices that hold one
        element of an output have different values of it.
        """
        from idgraph.shard.execution import simulate  # noqa: PLC0415 - NumPy

        return simulate(self, inputs)

    def local_inputs(self, inputs: Mapping[str, Any], rank: int) -> dict[str, Any]:
        """The parts of whole arrays, by input name, that device ``rank`` holds: copies of NumPy arrays, or of torch's
        tensors on their device."""
        from idgraph.shard.execution import local_inputs  # noqa: PLC0415 - NumPy

        return local_inputs(self, inputs, rank)


@arguments(MeshError, first=True)
def emit_devices(f: Fusion, target: Target = "numpy") -> DeviceProgram:
    """Each device's program for a fusion whose tensors are placed on a mesh (`propagate` places the others).

    Extents are numbers. Raises `MeshError` where they are symbols, or the fusion has no mesh or no outputs.

    >>> import idgraph as ig
    >>> import numpy as np
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> a = f.input("a", shape=(4, 8)).shard(1, "x")
    >>> b = f.input("b", shape=(8, 6)).shard(0, "x")
    >>> c = f.output(ig.relu(ig.matmul(a, b)))
    >>> p = ig.shard.emit(f)
    >>> print(p)
    t2 = kernels of matmul
    all-reduce of t2 over x, 96 bytes a rank
    t3 = kernels of relu
    >>> x, y = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)
    >>> p.run({"a": x, "b": y})["t3"][0, 0].item()
    8.0
    """
    f = check_fusion(f, "shard.emit", MeshError)
    if not f.outputs:
        raise MeshError(f"fusion {f.name} has no output", hint="f.output(tensor)", where=user_line())
    named = [t for t in f.tensors if any(isinstance(n, Expr) for n in t.shape)]
    if named:
        raise MeshError(
            f"{named[0].name} has the shape {named[0].shape}: programs of devices need numbers",
            where=named[0].source_line,
        )
    return DeviceProgram(f, (found := propagate(f)), _Steps(f, found, target).build())


@dataclass(slots=True)
class _Segment:
    """The kernels under construction: a fusion for each device, and its tensors by the names of the whole ones."""

    fusions: list[Fusion]
    tensors: list[dict[str, Tensor]]
    rows: list[LocalRows]
    operations: list[str] = field(default_factory=list[str])
    reads: list[str] = field(default_factory=list[str])
    makes: list[str] = field(default_factory=list[str])


class _Steps:
    """The steps of a program, operation by operation."""

    def __init__(self, f: Fusion, placements: Placements, target: Target) -> None:
        self.fusion, self.placements = f, placements
        self.target: Target = target
        self.mesh = mesh_of_fusion(f)
        self.names = {t.name: p.placement for t, p in placements.items()}
        self.steps: list[Exchange | Kernels] = []
        self.programs: dict[str, Program] = {}
        self.open: _Segment | None = None
        self.run = set(f.outputs)  # what an output needs
        for e in reversed(f.exprs):
            if e.output in self.run:
                self.run.update(e.inputs)

    def build(self) -> list[Exchange | Kernels]:
        for e in self.fusion.exprs:
            if e.output in self.run:
                check_rows(e.output, self.names)
                self._operation(e)
        self._close()
        return self.steps

    def _operation(self, e: TensorExpr) -> None:
        decision = LocalityDecision(reads_of(e), self.names, self.mesh)
        found = decision.run()
        parts = [_try_directly(part_of(decision, rank), decision) for rank in self.mesh.ranks]
        received: dict[int, str] = {}
        for read in decision.found.reads:
            moved = any(m.tensor is read.tensor for m in found.moves)
            if moved or not all(self._has(decision, p, read, r) for r, p in enumerate(parts)):
                self._close()
                received[read.operand] = self._exchange(decision, found, read, parts)
        now = self._segment()
        for rank in self.mesh.ranks:
            self._build(e, decision, parts[rank], rank, received, now)
        now.operations.append(e.op)
        now.makes.append(e.output.name)

    def _has(self, decision: LocalityDecision, part: DevicePart, read: OperandRead, rank: int) -> bool:
        """Whether what a device needs of an operand is a slice of what it holds."""
        mine = local_region(decision.owners[read.tensor.name], self.mesh.coordinates(rank))
        return inside(part.needs[read.operand], mine) is not None

    def _exchange(
        self, decision: LocalityDecision, found: Locality, read: OperandRead, parts: Sequence[DevicePart]
    ) -> str:
        """Add the move of one operand; the name of what the devices have then."""
        name = f"{read.tensor.name} for {decision.expr.output.name}, operand {read.operand}"
        owner = decision.owners[read.tensor.name]
        moves = tuple(m for m in found.moves if m.tensor is read.tensor)
        owns, _ = owner.at(read.coordinates)
        destination = {m: decision.needs(m) for m in self.mesh.sizes}
        sent = traffic(
            read,
            decision.symbols,
            self.mesh,
            owns,
            {m: x for m, x in destination.items() if x is not None},
            split=False,
        )
        if sent is None:
            raise MeshError(
                f"{decision.expr!r} moves more elements of {read.tensor.name} than can be listed",
                where=decision.expr.source_line,
                hint="place them so that it is local: ig.shard.explain(f, e)",
            )
        reduces: dict[str, Reduction] = {
            m: op for m, op in owner.placement.partials.items() if not decision.passes(read, m, op)
        }
        needs = tuple(p.needs[read.operand] for p in parts)
        made = Exchange(
            read.tensor.name, read.operand, name, moves, needs, sent.source, sent.destination, sent.element, reduces
        )
        for step in self.steps:
            if isinstance(step, Exchange) and step.gives_the_same(made):
                return step.name
        self.steps.append(made)
        return name

    def _segment(self) -> _Segment:
        if self.open is None:
            n = self.mesh.size
            fusions = [Fusion(self.fusion.name) for _ in range(n)]
            self.open = _Segment(fusions, [{} for _ in range(n)], [LocalRows() for _ in range(n)])
        return self.open

    def _build(
        self,
        e: TensorExpr,
        decision: LocalityDecision,
        part: DevicePart,
        rank: int,
        received: Mapping[int, str],
        now: _Segment,
    ) -> None:
        """Add one device's part of an operation to its kernels."""
        f = now.fusions[rank]
        at = self.mesh.coordinates(rank)
        operands: dict[int, Tensor] = {}
        for k, t in enumerate(e.inputs):
            needs = part.needs[k]
            if k in received:
                operands[k] = self._input(now, rank, received[k], tuple(s.count for s in needs), t)
                continue
            mine = local_region(decision.owners[t.name], at)
            whole = self._input(now, rank, t.name, tuple(s.count for s in mine), t)
            positions = inside(needs, mine)
            assert positions is not None  # else it was received
            operands[k] = cut(whole, positions)
        if e.op in ROWS:
            now.rows[rank].operands(e, operands)
        made = direct(f, e, part, operands) if part.direct else embedded(f, e, part, operands)
        now.tensors[rank][e.output.name] = made

    def _input(self, now: _Segment, rank: int, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        known = now.tensors[rank].get(name)
        if known is None:
            known = now.fusions[rank].input(f"p{len(now.tensors[rank])}", shape=shape, dtype=like.dtype)
            now.tensors[rank][name] = known
            if name not in now.reads:
                now.reads.append(name)
            known = now.rows[rank].of_input(
                known, like, lambda t: self._input(now, rank, t.name, tuple(int(n) for n in t.shape), t)
            )
            now.tensors[rank][name] = known
        return known

    def _close(self) -> None:
        """Emit the kernels under construction."""
        now, self.open = self.open, None
        if now is None:
            return
        programs: list[Program] = []
        together = set(now.makes)
        last = {t.name for t in self.fusion.outputs}
        makes = [n for n in now.makes if n in last or any(u.output.name not in together for u in self._uses(n))]
        for f, tensors in zip(now.fusions, now.tensors, strict=True):
            for name in makes:
                f.output(stored(tensors[name]))
            text = str(f)
            if text not in self.programs:
                self.programs[text] = scheduled(f, self.target)
            programs.append(self.programs[text])
        self.steps.append(Kernels(tuple(now.operations), tuple(programs), tuple(now.reads), tuple(makes)))

    def _uses(self, name: str) -> list[TensorExpr]:
        """The operations that read a tensor and are run."""
        return [u for u in self.fusion[name].uses if u.output in self.run]


def _try_directly(part: DevicePart, decision: LocalityDecision) -> DevicePart:
    """A part, with whether the operation of what it needs is the part of the result: tried, compared by the maps."""
    e = decision.expr
    if part.direct:
        trial = Fusion("trial")
        operands = {
            k: trial.input(f"p{k}", shape=tuple(s.count for s in part.needs[k]), dtype=t.dtype)
            for k, t in enumerate(e.inputs)
        }
        try:
            made = direct(trial, e, part, operands)
        except IdGraphError:  # such an operation of parts is none
            return boxed(part, decision)
        counts = tuple(s.count for s in part.output)
        assert made.definition is not None
        if tuple(made.shape) == counts and (
            0 in (*counts, *(s.count for s in part.terms)) or agrees(decision.found, reads_of(made.definition), part)
        ):
            return part
    return boxed(part, decision)


def inside(needs: Region, mine: Region) -> Region | None:
    """A region in positions of another; None where that does not hold all of it."""
    found: list[Span] = []
    for need, have in zip(needs, mine, strict=True):
        step = max(have.step, 1)
        if not need.count:
            found.append(Span(0, 0))
        elif need.start not in have.numbers() or need.stop - 1 not in have.numbers() or need.step % step:
            if need.count > 1 or need.start not in have.numbers():
                return None
            found.append(Span((need.start - have.start) // step, 1))
        else:
            found.append(Span((need.start - have.start) // step, need.count, max(need.step // step, 1)))
    return tuple(found)


def cut(t: Tensor, region: Region) -> Tensor:
    """The part of a tensor at these positions."""
    for axis, (span, n) in enumerate(zip(region, t.shape, strict=True)):
        if (span.start, span.count, span.step) != (0, n, 1):
            t = part_of_axis(t, axis, span.start, span.stop, span.step)
    return t


def attributes(e: TensorExpr, part: DevicePart) -> dict[str, Attr]:
    """The attributes of an operation of parts: a shape is that of the part, and offsets are tested where rows are."""
    attrs = {n: v for n, v in e.attrs.items() if n != COVERS}
    if tuple(e.output.shape) == attrs.get("shape"):
        attrs["shape"] = tuple(s.count for s in part.output)
    return attrs


def direct(f: Fusion, e: TensorExpr, part: DevicePart, operands: Mapping[int, Tensor]) -> Tensor:
    """The operation of the needed parts; of no terms of a reduction, what changes nothing."""
    if any(not s.count for s in part.terms):
        counts = [s.count for s in part.output]
        return full(counts, nothing(REDUCES[e.op], e.output.dtype), dtype=e.output.dtype, fusion=f)
    return apply(f, e.op, arguments_of(e, operands), attributes(e, part), None)


def nothing(op: Reduction, dtype: DType) -> float | int:
    """The value that a reduction does not notice."""
    if op in ("sum", "prod"):
        return int(op == "prod")
    if is_float(dtype):
        return -inf if op == "max" else inf
    return int_limits(dtype)[0 if op == "max" else 1]


def embedded(f: Fusion, e: TensorExpr, part: DevicePart, operands: Mapping[int, Tensor]) -> Tensor:
    """The operation of operands that are padded to their whole extents, of which the part is cut out."""
    whole: dict[int, Tensor] = {}
    for k, t in operands.items():
        widths: list[int] = []
        for span, d, have in zip(part.needs[k], e.inputs[k].axes, t.shape, strict=True):
            widths = [span.start, int(d.extent) - span.start - int(have), *widths]
        whole[k] = pad(t, tuple(widths)) if any(widths) else t
    made = apply(f, e.op, arguments_of(e, whole), {n: v for n, v in e.attrs.items() if n != COVERS}, None)
    return cut(made, part.output)


def arguments_of(e: TensorExpr, operands: Mapping[int, Tensor]) -> tuple[Tensor | Scalar | Expr, ...]:
    """The arguments of an operation, with other operands."""
    found: list[Tensor | Scalar | Expr] = []
    number = 0
    for a in e.args:
        if isinstance(a, Tensor):
            found.append(operands[number])
            number += 1
        else:
            found.append(a)
    return tuple(found)
