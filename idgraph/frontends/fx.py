"""Captured torch programs as fusions: read from a file or from torch, counted, and run through emitted kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, cast, get_args

import numpy as np

from idgraph.arith import Expr
from idgraph.display import Printed, Sheet
from idgraph.errors import FrontendError, ScheduleError, SourceLine, arguments
from idgraph.frontends.arrays import (
    Array,
    dtype_name,
    is_torch,
    laid_out,
    on_device,
    to_numpy,
    to_torch,
    with_strides,
)
from idgraph.frontends.nodes import Node, Program, Ref, TensorMeta, program_line, short, where_of
from idgraph.frontends.pairs import as_complex, as_reals
from idgraph.frontends.reading import read_program
from idgraph.frontends.reference import Operation, RunValue, call_reference
from idgraph.frontends.segments import Plan, Segment, is_projection, last_reads, plan
from idgraph.frontends.sizes import Size, values_of
from idgraph.ir import Fusion, Tensor
from idgraph.ir.limits import LIMITS, Limits
from idgraph.ir.rebuild import rebuild
from idgraph.reports.facts import OpaqueFacts
from idgraph.reports.model import IndexReport, Part, report_parts
from idgraph.runtime import Target, emit
from idgraph.schedule import auto

if TYPE_CHECKING:
    import torch

    from idgraph.runtime.tuning import Tuner

LARGE = 10**8  # loop points from which a fusion on the CPU is worth a schedule
KernelKey = tuple[int, int, str]  # segment, version of its fusion, target


class Kernels(Protocol):
    """A runner of a fusion: arrays by tensor name in, arrays by tensor name out."""

    def run(
        self, arrays: Mapping[str, Array], symbols: Mapping[str, int] | None = None, /, *, checked: bool = False
    ) -> Mapping[str, Array]: ...


@dataclass(frozen=True, slots=True)
class Coverage(Printed):
    """``mapped``: ATen operation name -> number of calls; ``opaque``: name -> why it is not mapped.

    >>> print(Coverage({"aten.add.Tensor": 2}, {"aten.sort.default": "order depends on values"}))
    2 calls mapped, 1 operation opaque
      aten.add.Tensor    2
      aten.sort.default  opaque: order depends on values
    """

    mapped: dict[str, int]
    opaque: dict[str, str]

    def sheet(self) -> Sheet:
        """Opaque operations first."""
        rows = [(name, "", reason) for name, reason in sorted(self.opaque.items())]
        rows += [(name, str(count), "") for name, count in sorted(self.mapped.items())]
        title = str(self).partition("\n")[0]
        return Sheet(title, ("operation", "calls", "opaque because"), tuple(rows), good=not self.opaque)

    def __str__(self) -> str:
        rows = [(name, str(count)) for name, count in sorted(self.mapped.items())]
        rows += [(name, f"opaque: {reason}") for name, reason in sorted(self.opaque.items())]
        width = max((len(name) for name, _ in rows), default=0)
        calls, kinds = sum(self.mapped.values()), len(self.opaque)
        head = f"{calls} call{'s' * (calls != 1)} mapped, {kinds} operation{'s' * (kinds != 1)} opaque"
        return "\n".join([head, *(f"  {name:<{width}}  {what}" for name, what in rows)])


@dataclass(slots=True)
class Import(Printed):
    """An imported program: its ``fusion``, its ``coverage``, and `run`.

    Results of opaque operations are inputs of ``fusion``; ``segments`` are the fusions that run between them. ``bound``
    holds values of placeholders that `run` does not take (parameters, buffers, constants).
    """

    plan: Plan
    bound: dict[str, object] = field(default_factory=dict[str, object])
    operations: Mapping[str, Operation] = field(default_factory=dict[str, Operation])
    mutated: tuple[str, ...] = ()
    flatten: Callable[[Sequence[object], Mapping[str, object]], list[object]] | None = None
    unflatten: Callable[[list[object]], object] | None = None
    kernels: dict[KernelKey, Kernels] = field(default_factory=dict[KernelKey, Kernels], repr=False)

    @property
    def program(self) -> Program:
        """The nodes it was made of."""
        return self.plan.program

    @property
    def fusion(self) -> Fusion:
        """All mapped operations in one fusion."""
        return self.plan.fusion

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, in the order in which they run."""
        return self.plan.segments

    @property
    def coverage(self) -> Coverage:
        """The operations that were mapped and those that are opaque."""
        return Coverage(dict(sorted(self.plan.mapped.items())), dict(sorted(self.plan.opaque.items())))

    @property
    def parameters(self) -> tuple[Node, ...]:
        """The placeholders that `run` takes, in order."""
        return tuple(n for n in self.program.nodes if n.kind != "call" and n.name not in self.bound)

    def calling(self, *operations: str) -> Import:
        """The same program with these ATen operations left to torch, as calls between the fusions.

        Matrix products are the case for it: a library multiplies large matrices far faster than a plain loop nest.
        Raises `FrontendError` for an operation that the program does not call.

        >>> import torch
        >>> from idgraph.frontends import from_torch
        >>> a, b = torch.ones(2, 3), torch.ones(3, 4)
        >>> imp = from_torch(lambda a, b: (a + 1) @ b, (a, b)).calling("aten.mm.default")
        >>> imp.coverage.opaque, imp.run(a, b, target="numpy")[0].tolist()
        ({'aten.mm.default': 'left to torch by choice'}, [6.0, 6.0, 6.0, 6.0])
        """
        found = {n.name: "left to torch by choice" for n in self.program.nodes if n.target in operations}
        missing = sorted(set(operations) - {self.program[name].target for name in found})
        if missing:
            called = sorted({n.target for n in self.program.nodes if n.kind == "call"})
            raise FrontendError(
                f"{self.program.name} does not call {', '.join(map(short, missing))}",
                hint=f"it calls {', '.join(called)}",
            )
        return replace(self, plan=plan(self.program, found), kernels={})

    def source_stack(self, tensor: Tensor | str) -> tuple[SourceLine, ...]:
        """The user's lines that led to a node's tensor, outermost first; the last may be of an installed package.

        Raises `FrontendError` for a tensor that no node of the program made.
        """
        name = tensor if isinstance(tensor, str) else tensor.name
        if name not in self.program.table:
            raise FrontendError(
                f"{short(name)} is not a node of {self.program.name}", hint="tensors have their nodes' names"
            )
        return self.program[name].stack

    def sheet(self) -> Sheet:
        """The coverage, under the program's name."""
        found = self.coverage.sheet()
        return replace(found, title=f"{self.program.name}: {found.title}")

    def __str__(self) -> str:
        return f"{self.program.name}: {self.coverage}"

    @arguments(FrontendError, first=True)
    def report(
        self, *, auto: bool = False, advance: Callable[[int], None] | None = None, suggestions: int | None = None
    ) -> IndexReport:
        """A report of the program's indices, segment by segment: tables, JSON, an HTML page; see `idgraph.reports`.

        ``auto`` reports each segment as `ig.schedule.auto` would schedule a copy of it, else as it is scheduled now.
        ``suggestions``: the number of accesses for which wider ones are sought, as in `ig.report`, of each segment.
        """
        parts = [
            Part(s.fusion, tuple(self._told(n) for n in s.calls if not is_projection(self.plan, n)))
            for s in self.segments
        ]
        coverage = self.coverage
        return report_parts(
            self.program.name,
            parts,
            mapped=coverage.mapped,
            opaque=coverage.opaque,
            auto=auto,
            advance=advance,
            suggestions=suggestions,
        )

    def _told(self, node: Node) -> OpaqueFacts:
        return OpaqueFacts(node.name, node.target, self.plan.reasons.get(node.name, ""), program_line(node))

    def __repr__(self) -> str:
        calls = sum(self.plan.mapped.values())
        return f"Import({self.program.name!r}, {calls} calls mapped, {len(self.coverage.opaque)} operations opaque)"

    def run(
        self, *args: object, target: str = "cpu", checked: bool = True, tuner: Tuner | None = None, **kwargs: object
    ) -> object:
        """The program's results for these arguments, through emitted kernels; opaque operations are torch's own.

        ``args``: torch tensors or NumPy arrays in the order of ``parameters``, or nested as the captured function takes
        them. Results are a tuple (None where the program has no result), or what the captured function returns; torch
        tensors, on its device, when an argument is one, else arrays, with the strides captured. Tensors that the
        program changes in place are changed. Raises `FrontendError` for an argument of another shape or dtype than
        captured, and, when ``checked``,
        `IndexingError` for a loaded index out of range.

        With a ``tuner`` (`idgraph.Tuner`) kernels for "cpu" and "cuda" are chosen by measurement on these arguments,
        the first time; a fusion that the user scheduled is taken as it is.
        """
        flat = list(args) if self.flatten is None else self.flatten(args, kwargs)
        wanted = self.parameters
        if len(flat) != len(wanted) or (self.flatten is None and kwargs):
            names = ", ".join(n.name for n in wanted)
            raise FrontendError(f"{self.program.name} takes {len(wanted)} arguments, got {len(flat)}", hint=names)
        given = {n.name: a for n, a in zip(wanted, flat, strict=True)} | self.bound
        arrays = {name: argument(self.program[name], value) for name, value in given.items()}
        env = self._sizes(arrays)
        values = {name: a for name, a in arrays.items() if not isinstance(self.program[name].meta, Expr)}
        spent: dict[int, list[str]] = {}
        for name, number in last_reads(self.plan).items():
            spent.setdefault(number, []).append(name)
        for number, segment in enumerate(self.segments):
            self._run_segment(number, segment, values, target, checked, env, tuner)
            for name in spent.get(number, ()):  # memory of large programs: nothing is kept that nobody reads
                values.pop(name, None)
        like = next((a for a in given.values() if is_torch(a)), None)
        found = [_returned(self._result(v, values, env), self._memory(v, env), like) for v in self.program.results]
        for name, value in zip(self.mutated, found, strict=False):
            _write_back(given[name], value, self.program[name])
        results = found[len(self.mutated) :]
        return tuple(results) if self.unflatten is None else self.unflatten(results)

    def _sizes(self, given: Mapping[str, RunValue]) -> dict[str, int]:
        """Values of the symbols of sizes; one error with everything that arguments contradict."""
        env: dict[str, int] = {}
        sizes = self.program.sizes
        pairs: list[tuple[str, tuple[Size, ...], tuple[int, ...]]] = []
        for name, value in given.items():
            meta = self.program[name].meta
            if isinstance(meta, Expr) and isinstance(value, int):
                pairs.append((name, (meta,), (value,)))
            elif isinstance(meta, TensorMeta) and isinstance(value, np.ndarray):
                pairs.append((name, meta.shape, value.shape))
        wrong = [w for name, wanted, sizes_given in pairs for w in sizes.bind(wanted, sizes_given, name, env)]
        if not wrong:
            for name, wanted, sizes_given in pairs:  # a second time: a sum of two symbols needs one of them first
                sizes.bind(wanted, sizes_given, name, env)
            wrong = [w for name, wanted, got in pairs for w in sizes.misfits(wanted, got, name, env)]
            wrong += sizes.broken(env)
        if wrong:
            dynamic = (
                "sizes must satisfy what torch.export assumed" if sizes.symbols else "sizes are fixed when captured"
            )
            raise FrontendError(
                f"{self.program.name} is not captured for these sizes: {wrong[0]}",
                because=wrong[1:],
                hint=f"{dynamic}: from_torch(..., dynamic_shapes=...) makes axes dynamic",
            )
        return env

    def _result(self, value: object, values: Mapping[str, RunValue], env: Mapping[str, int]) -> object:
        """The results of the program, by name; a size as a number."""
        if isinstance(value, Ref):
            meta = self.program[value.name].meta
            return meta.evaluate(env) if isinstance(meta, Expr) else values[value.name]
        return value.evaluate(env) if isinstance(value, Expr) else value

    def _memory(self, value: object, env: Mapping[str, int]) -> TensorMeta | None:
        """Shape and strides of a result, as captured."""
        meta = self.program[value.name].meta if isinstance(value, Ref) else None
        return meta.at(env) if isinstance(meta, TensorMeta) else None

    def _run_segment(
        self,
        number: int,
        segment: Segment,
        values: dict[str, RunValue],
        target: str,
        checked: bool,
        env: dict[str, int],
        tuner: Tuner | None,
    ) -> None:
        if segment.fusion is not None:
            arrays = {
                name: as_reals(laid_out(_array(values[name]), _meta(self.program[name]).at(env)))
                for name in segment.inputs
            }
            sizes = {s: env[s] for s in segment.fusion.symbols}
            how = target if tuner is None else f"{target}, tuned"
            key = (number, segment.fusion.version, how)  # a schedule step makes new kernels
            kernels = self.kernels.get(key)
            if kernels is None:
                kernels = self.kernels[key] = _kernels(segment.fusion, _target(target), tuner, arrays, sizes)
            out = kernels.run(arrays, sizes, checked=checked)
            values.update({n: as_complex(out[n], _meta(self.program[n]).dtype) for n in segment.outputs})
        for node in segment.calls:
            if is_projection(self.plan, node):
                values[node.name] = _part(node, values)
            else:
                operation = self.operations.get(node.name)
                values[node.name] = call_reference(self.program, node, values, operation, env)


def _kernels(
    fusion: Fusion, target: Target, tuner: Tuner | None, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> Kernels:
    """The fusion's kernels: scheduled as the target needs it, or by measurement."""
    if tuner is not None and (target == "cpu" or target == "cuda") and not _is_scheduled(fusion):
        return tuner.tune(rebuild(fusion), target, arrays, symbols=sizes).program
    try:
        return emit(for_target(fusion, target), target=target)
    except ScheduleError:
        if target != "cpu" or _is_scheduled(fusion):
            raise
        return emit(fusion, target=target)  # a schedule is for speed here: each tensor by itself is always right


def _is_scheduled(fusion: Fusion) -> bool:
    made = [e.output for e in fusion.exprs]
    return any(t.inline_position or t.loop != t.logical for t in made)


def for_target(fusion: Fusion, target: Target) -> Fusion:
    """The fusion itself, or an automatically scheduled copy: for a GPU, where a kernel without threads is of no use,
    and for large work on the CPU, where each tensor would go through memory.

    For less a schedule costs more to compile than it saves: 8.3 s instead of 7.9 s for an attention of 7e7 points.
    A fusion that the user scheduled is taken as it is.
    """
    if _is_scheduled(fusion):
        return fusion
    if target != "cuda" and not (target == "cpu" and points(fusion) >= LARGE):
        return fusion
    copy = rebuild(fusion)
    auto(copy)
    return copy


def points(fusion: Fusion) -> int:
    """Loop points of all expressions, reduced axes included; a size that is not known yet counts as one.

    >>> from idgraph.ir import composite
    >>> f = Fusion("sum")
    >>> x = f.input("x", (4, 8))
    >>> t = f.output(composite.sum(x, 1))
    >>> points(f)
    32
    """
    extents = ([d.extent for d in e.output.logical] for e in fusion.exprs)
    return sum(math.prod(int(n) for n in row if n.is_const) for row in extents)


def _returned(value: object, meta: TensorMeta | None, like: torch.Tensor | None) -> object:
    """A result in the form asked for, with the strides captured; memory of its own, so that changing it changes no
    argument."""
    if not isinstance(value, np.ndarray):
        return value
    array = cast("Array", value)
    if meta is None or dtype_name(array) != meta.dtype:
        own = array if array.flags.owndata else array.copy(order="K")
        return own if like is None else to_torch(own).to(like.device)
    own = with_strides(array, meta)
    if like is None:
        return own
    made = to_torch(own)
    shape, strides = values_of(meta.shape, {}), values_of(meta.strides, {})
    # NumPy forgets the strides of axes of one element, and torch those of a tensor that goes to another device.
    return made.as_strided(shape, strides, 0) if like.device.type == "cpu" else on_device(made, shape, strides, like)


def _write_back(given: object, value: object, node: Node) -> None:
    """Tensors that the program changes in place are changed in the tensor given."""
    if isinstance(given, np.ndarray):
        given[...] = to_numpy(value) if is_torch(value) else value
    elif is_torch(given):
        given.detach().copy_(value if is_torch(value) else to_torch(np.asarray(value)))
    else:
        raise FrontendError(f"{where_of(node)}: the program changes it, and it is not a tensor")


def _target(name: str) -> Target:
    for known in get_args(Target):
        if name == known:
            return known
    raise FrontendError(f"unknown target {short(name)}", hint=f"one of {', '.join(get_args(Target))}")


def argument(node: Node, value: object) -> RunValue:
    """A run-time argument as an array of the shape and type captured."""
    meta = node.meta
    if isinstance(meta, Expr):
        if isinstance(value, bool) or not isinstance(value, int):
            raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not the integer {meta}")
        return value
    if not isinstance(meta, TensorMeta):
        if value is not meta and value != meta:
            raise FrontendError(f"{where_of(node)}: captured for the value {meta!r}, got another")
        return meta if isinstance(meta, (int, float)) else None
    array = cast("Array", to_numpy(value) if is_torch(value) else value)
    if not isinstance(array, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance] - the cast is a hope
        raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not a tensor or an array")
    fits = array.ndim == len(meta.shape) and all(isinstance(w, Expr) or w == n for w, n in zip(meta.shape, array.shape))
    if not fits or dtype_name(array) != meta.dtype:
        raise FrontendError(
            f"{where_of(node)}: captured for {meta}, got {dtype_name(array)}{tuple(array.shape)}",
            hint="sizes and types are those of the capture, but for sizes made free by dynamic_shapes=...",
        )
    return array


def _array(value: RunValue) -> Array:
    if not isinstance(value, np.ndarray):
        raise FrontendError("a kernel would read something that is not an array")
    return value


def _meta(node: Node) -> TensorMeta:
    if not isinstance(node.meta, TensorMeta):
        raise FrontendError(f"{where_of(node)}: it is not a tensor")
    return node.meta


def _part(node: Node, values: Mapping[str, RunValue]) -> RunValue:
    """One of several results of an opaque node."""
    source, index = node.args[0], node.args[1]
    parts = values[source.name] if isinstance(source, Ref) else None
    if not isinstance(parts, tuple) or not isinstance(index, int) or not -len(parts) <= index < len(parts):
        raise FrontendError(f"{where_of(node)}: there is no such result")
    return parts[index]


@arguments(FrontendError, first=True)
def from_json(path: str | os.PathLike[str], *, limits: Limits = LIMITS) -> Import:
    """Import a captured graph from a JSON file.

    The file is untrusted: nothing in it is evaluated, and a file that says no program, or that is larger than
    ``limits`` (bytes, nodes, rank), ends in one `ParseError` or `FrontendError` that names the node.
    """
    return import_program(read_program(path, limits))


def import_program(
    program: Program, bound: Mapping[str, object] | None = None, operations: Mapping[str, Operation] | None = None
) -> Import:
    """Import nodes that are already read; ``bound`` are values of placeholders, ``operations`` of opaque nodes."""
    return Import(plan(program), dict(bound or {}), dict(operations or {}))
