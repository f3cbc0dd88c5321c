"""Running an imported program: its segments through kernels, opaque operations by torch, on the caller's own arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.arrays import is_torch
from idgraph.frontends.nodes import Node, Ref, TensorMeta, short, where_of
from idgraph.frontends.reference import RunValue, call_reference
from idgraph.frontends.returned import Returned, memory_of
from idgraph.frontends.segments import Segment, is_projection, last_reads
from idgraph.frontends.sizes import Size
from idgraph.frontends.spaces import Space, space_of
from idgraph.ir import Fusion
from idgraph.ir.rebuild import rebuild
from idgraph.runtime import Target
from idgraph.runtime.caller import as_numpy
from idgraph.runtime.compile import is_scheduled, scheduled, told
from idgraph.runtime.program import Program

if TYPE_CHECKING:
    from idgraph.frontends.fx import Import, Kernels
    from idgraph.runtime.tuning import Tuner


@dataclass(frozen=True, slots=True)
class How:
    """The arguments of `idgraph.compile`."""

    target: str = "cpu"
    checked: bool | Literal["now"] = "now"
    layout: Literal["copy", "refuse"] | None = None  # None: inputs are copied, without a warning
    device: str | None = None
    cache: str | Path | None = None
    tuner: Tuner | None = None
    trusting: bool = False  # torch hands in what it captured: arguments that no kernel reads are not compared


class Runner:
    """An import's calls in one way. Arguments are compared with the program once for each shape, type and device."""

    def __init__(self, imported: Import, how: How) -> None:
        self.imported, self.how = imported, how
        self.program = imported.program
        self._names = [n.name for n in imported.parameters]
        self._known: dict[Hashable, dict[str, int]] = {}
        self._tensors = [n for n in self._names if isinstance(self.program[n].meta, TensorMeta)]
        self._spent: dict[int, list[str]] = {}
        for name, number in last_reads(imported.plan).items():
            self._spent.setdefault(number, []).append(name)
        self._told: set[tuple[str, str]] = set()
        # For some of its operations torch states other result shapes than it returns; kernels read none of those.
        self._read = {t.name for s in imported.segments if s.scheduled is not None for t in s.scheduled.inputs}

    def __call__(self, flat: Sequence[object]) -> list[object]:
        """Results, those of mutated arguments first."""
        if len(flat) != len(self._names):
            raise FrontendError(
                f"{self.program.name} takes {len(self._names)} arguments, got {len(flat)}",
                hint=", ".join(self._names),
            )
        given = dict(zip(self._names, flat, strict=True)) | self.imported.bound
        space = space_of(given)
        if self.how.device is not None:
            self._check_device(given)
        values = {name: space.taken(value) for name, value in given.items()}
        env = dict(self._sizes(given, values, space))
        values = {name: a for name, a in values.items() if a is not None}
        theirs = {memory_of(a) for a in values.values()}
        for number, segment in enumerate(self.imported.segments):
            self._run_segment(number, segment, values, space, env)
            for name in self._spent.get(number, ()):  # values are freed after their last read
                values.pop(name, None)
        return Returned(self.program, self.imported.plan.aliases, given, values, space, env, theirs).results()

    def prepare(self) -> None:
        """Emit all kernels before the first call, so that their errors come now."""
        for number, segment in enumerate(self.imported.segments):
            if segment.scheduled is not None and segment.outputs:
                self._kernels(number, segment.scheduled, segment, {}, {})

    def _check_device(self, given: Mapping[str, object]) -> None:
        for name, value in given.items():
            if is_torch(value) and value.device.type != "cpu" and str(value.device) != self.how.device:
                raise FrontendError(f"{name} is on {value.device}, the kernels are for {self.how.device}")

    def _sizes(self, given: Mapping[str, object], values: Mapping[str, Any], space: Space) -> Mapping[str, int]:
        """Values of the symbols of sizes, once arguments are what was captured."""
        key: Hashable = tuple(
            [(x.shape, x.dtype) if (x := values[n]) is not None else (n, type(given[n]), given[n]) for n in self._names]
        )
        try:
            found = self._known.get(key)
        except TypeError:  # an argument that is not hashable is not one that was captured
            found, key = None, None
        if found is None:
            compared = {n: v for n, v in given.items() if not self.how.trusting or self._is_read(n)}
            for name, value in compared.items():
                check_argument(self.program[name], value, values[name], space)
            found = sizes_of(self.imported, compared, values)
            if key is not None:
                self._known[key] = found
        return found

    def _is_read(self, name: str) -> bool:
        """Whether a kernel reads the argument, or a size is taken from it."""
        meta = self.program[name].meta
        return name in self._read or not isinstance(meta, TensorMeta) or meta.is_dynamic

    def _run_segment(
        self, number: int, segment: Segment, values: dict[str, Any], space: Space, env: dict[str, int]
    ) -> None:
        fusion = segment.scheduled
        if fusion is not None and segment.outputs:
            inputs = {t.name: space.reals(values[t.name]) for t in fusion.inputs}
            sizes = {s: env[s] for s in fusion.symbols}
            kernels = self._kernels(number, fusion, segment, inputs, sizes)
            if isinstance(kernels, Program):
                caller = kernels.caller(bool(self.how.checked), self.how.device)
                tell = None if self.how.layout is None else self._tell
                found = caller(
                    [inputs[t.name] for t in kernels.fusion.inputs],
                    sizes or None,
                    None,
                    False,
                    tell,
                    self.how.checked == "now",
                )
                out: Mapping[str, Any] = {t.name: x for t, x in zip(kernels.fusion.outputs, found, strict=True)}
                if not inputs:  # constants: no input says whether results are arrays or tensors
                    out = {n: space.taken(x) for n, x in out.items()}
            else:
                arrays = {n: as_numpy(a, "float32") for n, a in inputs.items()}
                out = kernels.run(arrays, sizes, checked=bool(self.how.checked))
                out = {n: space.taken(a) for n, a in out.items()}
            for name in segment.outputs:
                values[name] = space.complexes(out[name], cast("TensorMeta", self.program[name].meta).dtype)
        for node in segment.calls:
            if is_projection(self.imported.plan, node):
                values[node.name] = _part(node, values)
            else:
                operation = self.imported.operations.get(node.name)
                values[node.name] = call_reference(self.program, node, values, operation, env, space)

    def _kernels(
        self, number: int, fusion: Fusion, segment: Segment, inputs: Mapping[str, Any], sizes: Mapping[str, int]
    ) -> Kernels:
        """The fusion's kernels: scheduled as the target needs it, or by measurement; a schedule step makes new ones."""
        how, known = self.how, self.imported.kernels
        key = (number, fusion.version, how.target if how.tuner is None else f"{how.target}, tuned")
        found = known.get(key)
        if found is None:
            target = known_target(how.target)
            made = fusion if fusion is segment.fusion else rebuild(fusion, outputs=segment.outputs)
            if how.tuner is not None and target in ("cpu", "cuda") and not is_scheduled(fusion):
                where: Any = target
                found = how.tuner.tune(rebuild(made), where, inputs, symbols=sizes).program
            else:
                found = scheduled(made, target, how.cache)
            known[key] = found
        return found

    def _tell(self, name: str, why: str) -> None:
        told(self.program.name, name, why, self.how.layout, self._told)


def known_target(name: str) -> Target:
    """A target by its name."""
    for known in get_args(Target):
        if name == known:
            return known
    raise FrontendError(f"unknown target {short(name)}", hint=f"one of {', '.join(get_args(Target))}")


def sizes_of(imported: Import, given: Mapping[str, object], values: Mapping[str, Any]) -> dict[str, int]:
    """Values of the symbols of sizes; one error with everything that arguments contradict."""
    env: dict[str, int] = {}
    program = imported.program
    sizes = program.sizes
    pairs: list[tuple[str, tuple[Size, ...], tuple[int, ...]]] = []
    for name, value in given.items():
        meta = program[name].meta
        if isinstance(meta, Expr) and isinstance(value, int):
            pairs.append((name, (meta,), (value,)))
        elif isinstance(meta, TensorMeta):
            pairs.append((name, meta.shape, tuple(values[name].shape)))
    wrong = [w for name, wanted, sizes_given in pairs for w in sizes.bind(wanted, sizes_given, name, env)]
    if not wrong:
        for name, wanted, sizes_given in pairs:  # a second time: a sum of two symbols needs one of them first
            sizes.bind(wanted, sizes_given, name, env)
        wrong = [w for name, wanted, got in pairs for w in sizes.misfits(wanted, got, name, env)]
        wrong += sizes.broken(env)
    if wrong:
        dynamic = "sizes must satisfy what torch.export assumed" if sizes.symbols else "sizes are fixed when captured"
        raise FrontendError(
            f"{program.name} is not captured for these sizes: {wrong[0]}",
            because=wrong[1:],
            hint=f"{dynamic}: from_torch(..., dynamic_shapes=...) makes axes dynamic",
        )
    return env


def check_argument(node: Node, value: object, taken: Any, space: Space) -> None:
    """A run-time argument has the shape and type captured, or is the number that was."""
    meta = node.meta
    if isinstance(meta, Expr):
        if isinstance(value, bool) or not isinstance(value, int):
            raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not the integer {meta}")
        return
    if not isinstance(meta, TensorMeta):
        if value is not meta and value != meta:
            raise FrontendError(f"{where_of(node)}: captured for the value {meta!r}, got another")
        return
    if taken is None:
        raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not a tensor or an array")
    shape = tuple(taken.shape)
    fits = len(shape) == len(meta.shape) and all(isinstance(w, Expr) or w == n for w, n in zip(meta.shape, shape))
    if not fits or space.dtype(taken) != meta.dtype:
        raise FrontendError(
            f"{where_of(node)}: captured for {meta}, got {space.dtype(taken)}{shape}",
            hint="sizes and types are those of the capture, but for sizes made free by dynamic_shapes=...",
        )


def _part(node: Node, values: Mapping[str, RunValue]) -> RunValue:
    """One of several results of an opaque node."""
    source, index = node.args[0], node.args[1]
    found: Any = values[source.name] if isinstance(source, Ref) else None
    parts = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()
    if not isinstance(index, int) or not -len(parts) <= index < len(parts):
        raise FrontendError(f"{where_of(node)}: there is no such result")
    return parts[index]
