"""A program bound to arguments of certain shapes, types and devices: the steps of a call, with all decided that these
decide.

Values of nodes have numbered slots, arguments first. A step runs the kernels of a segment, or calls an operation of
torch's. No array is kept from one call to the next.

The facts that an import's calls are compared with, whatever the sizes: shapes, ranges and guards as captured.

Calls with arguments of sizes that none has had are laid out by it (`idgraph.runtime.shape_guards`); where anything
does not hold, the call is bound the whole way, which says what is wrong.

Long: the stages of one call, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from idgraph.arith import Expr, as_expr
from idgraph.errors import FrontendError
from idgraph.frontends.array_space import PARTS, ArraySpace, TorchSpace, space_of
from idgraph.frontends.call_source import CallSource, Wrapper
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import Node, Ref, TensorMeta, where_of
from idgraph.frontends.imported import FusionRunner, Imported
from idgraph.frontends.opaque_ops import Raw, call_reference, operation
from idgraph.frontends.partition import Partition, is_projection
from idgraph.frontends.results import ResultBuilder, ResultContext, ResultSource, check_argument, memory_of, sizes_of
from idgraph.frontends.session import Session
from idgraph.frontends.torch_arrays import is_torch
from idgraph.runtime.array_backends import NUMPY, torch_kind
from idgraph.runtime.binding import OutputMemory
from idgraph.runtime.dispatch import DirectCall, Dispatcher, as_numpy
from idgraph.runtime.program import Program
from idgraph.runtime.shape_guards import (
    GuardSpec,
    Place,
    ResizedCall,
    ShapeFamily,
    compile_shape_guards,
    compile_symbol_guards,
)

if TYPE_CHECKING:
    from idgraph.ir import Fusion
    from idgraph.runtime.dispatch import CallPath
    from idgraph.runtime.shape_specialized import Tell


def _argument_sizes(meta: object) -> Sequence[Size] | Size | None:
    """The sizes of an argument: of a tensor its shape, of an integer itself, also where it is the one captured."""
    if isinstance(meta, TensorMeta):
        return meta.shape
    return meta if isinstance(meta, (Expr, int)) and not isinstance(meta, bool) else None


def guards_of_sizes(imported: Imported) -> GuardSpec:
    """The facts that give the symbols of sizes their values, of calls in several parts."""
    program = imported.program
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    return GuardSpec([_argument_sizes(m) for m in metas], (), program.sizes.symbols, program.sizes.guards)


def guards_of(imported: Imported, inputs: tuple[int, ...], gives: Sequence[ResultSource]) -> GuardSpec | None:
    """The facts of calls whose kernels read these arguments, and whose results are found so. None where sizes are
    fixed.
    """
    program, aliases = imported.program, imported.plan.aliases
    sizes = program.sizes
    if not sizes.symbols:
        return None
    metas = [n.meta for n in program.nodes if n.kind != "call"]
    arguments = [_argument_sizes(m) for m in metas]
    strides: list[tuple[int, tuple[Size, ...]]] = []
    lying: list[tuple[int, tuple[Size, ...]]] = []
    more: list[Size | Place] = []
    for n, (v, g) in enumerate(zip(program.results, gives, strict=True)):
        name = v.name if isinstance(v, Ref) else ""
        shared = aliases.get(name)
        meta = program[name].meta if name else v
        root = meta if shared is None else program[shared.root].meta
        if isinstance(root, TensorMeta) and g.of != "value":
            (strides if g.of == "kernels" else lying).append((g.slot, root.strides))
        if shared is not None and g.value is not None:
            of, view = shared.of, shared.meta
            more.append((view.shape, view.strides, as_expr(view.offset) - of.offset))
        else:
            more.append(meta if isinstance(meta, Expr) else n)
    return GuardSpec(arguments, inputs, sizes.symbols, sizes.guards, strides, lying, more)


Env = dict[str, int]
Targets = Mapping[int, Any]  # the caller's arrays by the slots of what they take


def _tensor_key(value: Any) -> Hashable:
    kind = cast("Any", type(value))  # pyright sees a type of unknown parts
    return kind, value.dtype, value.device, value.shape, value.stride(), value.is_neg(), value.requires_grad


def _number_key(value: Any) -> Hashable:
    return cast("Any", type(value)), value


# What a binding follows from, by the type of an argument; torch's types come with the first of its tensors.
KEYS: dict[type, Callable[[Any], Hashable]] = {
    np.ndarray: NUMPY.key,
    **dict.fromkeys((bool, int, float, complex, str, type(None)), _number_key),
}


def key_of(given: Sequence[object]) -> tuple[Any, ...] | None:
    """The key of these arguments; None where one must be looked at each time."""
    for value in given:
        if is_torch(value) and type(value) not in KEYS and torch_kind().is_plain(type(value)):
            KEYS[type(value)] = _tensor_key
    try:
        return tuple([KEYS[type(v)](v) for v in given])
    except (KeyError, RuntimeError):
        return None


class FastCall(Protocol):
    """A short call of all arguments: None where the kernels have changed. ``out``: arrays to write, one for each
    result; ``first``: the call that waits."""

    def __call__(
        self, given: Sequence[Any], out: Sequence[Any] | None = None, first: bool = False, /
    ) -> list[Any] | None: ...


class CallStage(Protocol):
    """A part of a call; reads and writes values."""

    def __call__(self, values: list[Any], env: Env, targets: Targets, source: CallSource | None = None) -> None:
        """``source`` gets the text of what is done."""
        ...


class CallPlan:
    """See the module."""

    __slots__ = (
        "_direct", "_env", "_fresh", "_late", "_results", "_room", "_runner", "_slots", "_space", "_steps", "_turns",
    )  # fmt: skip

    def __init__(self, runner: Session, flat: Sequence[object]) -> None:
        imported, program = runner.imported, runner.program
        if len(flat) != len(runner.names):
            raise FrontendError(
                f"{program.name} takes {len(runner.names)} arguments, got {len(flat)}", hint=", ".join(runner.names)
            )
        given = dict(zip(runner.names, flat, strict=True)) | imported.bound
        self._runner = runner
        self._space = space = (
            space_of(given, runner.imported.unflatten is not None and runner.how.target != "cuda")
            if runner.how.home is None
            else TorchSpace(runner.how.home)
        )
        runner.check_device(given)
        taken = {name: space.to_space(value) for name, value in given.items()}
        compared = {n: given[n] for n in runner.names if runner.is_read(n)}
        for name, value in compared.items():
            check_argument(program[name], value, taken[name], space)
        self._env = sizes_of(program, compared, taken)
        self._late = any(s not in self._env for s in program.sizes.symbols)  # sizes that opaque operations find
        self._slots = {name: n for n, name in enumerate((*given, *_computed(imported.segments)))}
        self._room = [None] * (len(self._slots) - len(given))
        # Kernels read tensors as they are; what else reads one gets it without its gradient, and on its device.
        self._turns = tuple(
            n
            for n, (name, x) in enumerate(given.items())
            if taken[name] is not None and (needs_conversion(x, space) or (is_torch(x) and x.requires_grad))
        )
        self._steps = tuple(self._build_stages(frozenset(given)))
        scheduled = [s for s in imported.segments if s.scheduled is not None]
        self._fresh = frozenset(n for s in scheduled for n in s.outputs if not self._is_complex(n))
        self._results = None if self._late else self._returned(self._env)
        self._direct = self._direct_slots()

    def __call__(self, given: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """Results, those of mutated arguments first; ``out``: see `idgraph.frontends.callable_import.Runner`."""
        return self._call(given, out, None)[0]

    def written(self, given: Sequence[Any]) -> tuple[list[Any], Wrapper | None]:
        """Results, and the function that later calls with arguments like these need; None where sizes are found by
        operations, or a step has no text."""
        if self._results is None:
            return self(given), None
        return self._call(given, None, CallSource(self._runner.program, self._space, self._slots, given, self._env))

    def _call(
        self, given: Sequence[Any], out: Sequence[Any] | None, source: CallSource | None
    ) -> tuple[list[Any], Wrapper | None]:
        values = [*given, *self._room]
        if source is not None and not source.fits:
            source = None
        for n in self._turns:
            values[n] = self._space.to_space(values[n])
            if source is not None:
                source.turn(n, given[n])
        call = ResultContext(given, values)
        if self._results is None or self._results.watches:
            call.theirs.update([memory_of(a) for a in values if isinstance(a, np.ndarray) or is_torch(a)])
        env = dict(self._env) if self._late else self._env
        targets = {} if out is None else {s: x for s, x in zip(self._direct, out, strict=True) if s is not None}
        for step, spent in self._steps:
            step(values, env, targets, source)
            for slot in spent:  # values are freed after their last read
                values[slot] = None
        results = self._results or self._returned(env)
        found = results.results(call)
        named = None if source is None or not source.fits else results.source(call, found, source)
        return found, None if named is None or source is None else source.wrapper(named, given)

    def versions(self) -> list[tuple[int, int]]:
        """The versions of the fusions that kernels are made of."""
        return [step.versions() for step, _ in self._steps if isinstance(step, _Kernels)]

    def learned(self, key: Sequence[Any]) -> Callable[[Any], Env | None] | None:
        """A function of the keys of arguments that are like these in all but sizes, for `resized`; None where sizes
        are fixed, or found by operations, or the import has arrays of its own."""
        imported = self._runner.imported
        if self._late or imported.bound or not imported.program.sizes.symbols:
            return None
        return compile_symbol_guards(key, guards_of_sizes(imported))

    def resized(self, env: Env) -> CallPlan:
        """The same for arguments of other sizes: what follows only from types, devices and slots is shared."""
        made: CallPlan = object.__new__(CallPlan)
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made._env = env
        made._steps = tuple([(s.resized() if isinstance(s, _Kernels) else s, spent) for s, spent in self._steps])
        made._results = made._returned(env)
        return made

    def likeness(self, given: Sequence[Any]) -> FastPathTemplate | None:
        """The parts of the call that is left where one launch of kernels gives all results that are not arguments or
        sizes; None where more is done. Found after a call with ``given``, which has bound the kernels."""
        if len(self._steps) != 1:
            return None
        step = self._steps[0][0]
        gives = None if self._results is None else self._results.gives(given)
        if (
            gives is None
            or not isinstance(step, _Kernels)
            or any(needs_conversion(given[n], self._space) for n in self._turns)
        ):
            return None
        return step.likeness(gives)

    def _build_stages(self, known: frozenset[str]) -> Iterator[tuple[CallStage, tuple[int, ...]]]:
        """All steps, each with the slots that no later one reads."""
        runner, slots = self._runner, self._slots
        for number, segment in enumerate(runner.imported.segments):
            steps: list[CallStage] = []
            if segment.scheduled is not None and segment.outputs:
                fixed = not self._late and known.issuperset(segment.inputs)
                steps.append(_Kernels(runner, number, segment, self._space, slots, fixed))
                known |= set(segment.outputs) if fixed else frozenset()
            for node in segment.calls:
                if is_projection(runner.imported.plan, node):
                    steps.append(_ResultPart(node, slots))
                else:
                    steps.append(_Operation(runner, node, self._space, slots))
            spent = tuple(slots[n] for n in runner.spent.get(number, ()) if n in slots)
            for n, step in enumerate(steps):
                yield step, spent if n == len(steps) - 1 else ()

    def _returned(self, env: Env) -> ResultBuilder:
        aliases = self._runner.imported.plan.aliases
        return ResultBuilder(self._runner.program, aliases, self._space, env, self._slots, self._fresh)

    def _is_complex(self, name: str) -> bool:
        meta = self._runner.program[name].meta
        return isinstance(meta, TensorMeta) and meta.dtype in PARTS

    def _direct_slots(self) -> tuple[int | None, ...]:
        """Of each result the slot that kernels write and nobody else reads, or None."""
        imported, program = self._runner.imported, self._runner.program
        names = [v.name if isinstance(v, Ref) else None for v in program.results[len(program.mutated) :]]
        read = {n for s in imported.segments for n in s.inputs}
        read |= {r for s in imported.segments for c in s.calls for r in c.refs()}
        read |= {v.name for v in program.results[: len(program.mutated)] if isinstance(v, Ref)}
        own = [n for n in names if n in self._fresh and n not in read and n not in imported.plan.aliases]
        return tuple(self._slots[n] if n is not None and own.count(n) == 1 else None for n in names)


def _computed(segments: Sequence[Partition]) -> list[str]:
    """The nodes that steps give values, each once."""
    return list(dict.fromkeys(n for s in segments for n in (*s.outputs, *(c.name for c in s.calls))))


def needs_conversion(value: Any, space: ArraySpace) -> bool:
    """Whether kernels read another array than an argument: one in the memory of the others."""
    return isinstance(space, TorchSpace) and (not is_torch(value) or value.device != space.device)


class FastPathTemplate(NamedTuple):
    """The parts that short calls of one launch share, whatever the sizes: its kernels, their call of one size, slots of
    the arguments that they read, and how each result is found (those of kernels: its place among outputs)."""

    kernels: _Kernels
    route: DirectCall | ResizedCall
    inputs: tuple[int, ...]
    gives: tuple[ResultSource, ...]


class _Kernels:
    """The kernels of a segment. ``fixed``: its inputs are alike in all calls, so that their route is found once."""

    __slots__ = (
        "_caller", "_complexes", "_fixed", "_inputs", "_number", "_outputs", "_reals", "_room", "_route", "_runner",
        "_segment", "_slots", "_space", "_symbols", "_versions",
    )  # fmt: skip

    def __init__(
        self, runner: Session, number: int, segment: Partition, space: ArraySpace, slots: Mapping[str, int], fixed: bool
    ) -> None:
        self._runner, self._number, self._segment = runner, number, segment
        self._space, self._slots, self._fixed = space, slots, fixed
        self._versions: tuple[int, int] | None = None  # of the fusion that kernels were made for
        self._route: CallPath | None = None

    def resized(self) -> _Kernels:
        """The same kernels for inputs of other sizes, whose route a call finds."""
        made: _Kernels = object.__new__(_Kernels)
        for name in self.__slots__:
            if hasattr(self, name):  # some come with the first call
                setattr(made, name, getattr(self, name))
        made._route = None
        return made

    def _prepare(self, fusion: Fusion, values: Sequence[Any], env: Env) -> Dispatcher | _Definitions:
        """Find the kernels, and the slots of what they read and write."""
        runner, slots, space = self._runner, self._slots, self._space
        inputs = {t.name: space.reals(values[slots[t.name]]) for t in fusion.inputs}
        self._symbols = tuple(fusion.symbols)
        kernels = runner.kernels(self._number, fusion, self._segment, inputs, {s: env[s] for s in self._symbols})
        run = kernels.fusion if isinstance(kernels, Program) else fusion
        names = runner.names_of(self._number, fusion, kernels)
        inputs_of = [names.get(t.name, t.name) for t in run.inputs]
        self._inputs = tuple(slots[n] for n in inputs_of)
        self._reals = any(self._dtype(n) in PARTS for n in inputs_of)
        places = {names.get(t.name, t.name): n for n, t in enumerate(run.outputs)}
        self._outputs = tuple((slots[n], places[n]) for n in self._segment.outputs)
        self._room = len(places)
        turned = [n for n in self._segment.outputs if self._dtype(n) in PARTS]
        self._complexes = tuple((slots[n], self._dtype(n)) for n in turned)
        if isinstance(kernels, Program):
            return kernels.caller(bool(runner.how.checked), runner.how.device)
        return _Definitions(kernels, fusion, space, bool(runner.how.checked))

    def _dtype(self, name: str) -> str:
        return cast("TensorMeta", self._runner.program[name].meta).dtype

    def __call__(self, values: list[Any], env: Env, targets: Targets, source: CallSource | None = None) -> None:
        segment, how = self._segment, self._runner.how
        versions = self.versions()
        if versions != self._versions:
            self._caller = self._prepare(cast("Fusion", segment.scheduled), values, env)
            self._versions, self._route = versions, None
        given = [values[n] for n in self._inputs]
        if self._reals:
            given = [self._space.reals(x) for x in given]
        out = self._targets(targets) if targets else None
        tell = None if how.layout is None else self._runner.tell
        if self._route is not None:
            found = self._route(given, out, None, tell, how.checked == "now")
        else:
            symbols = {s: env[s] for s in self._symbols} or None
            found: Sequence[Any] = self._caller(given, symbols, out, None, tell, how.checked == "now")
            if self._fixed and given:
                self._route = self._caller.known(given, symbols)
            if not given:  # constants: no input says whether results are arrays or tensors
                found = [self._space.to_space(x) for x in found]
        if source is not None and source.fits:
            self._write(source, given, env)
        for slot, place in self._outputs:
            values[slot] = found[place]
        for slot, dtype in self._complexes:
            values[slot] = self._space.complexes(values[slot], dtype)

    def _write(self, source: CallSource, given: Sequence[Any], env: Env) -> None:
        """The text of a call."""
        route: Any = self._route
        numbers = source.numbers(self._symbols)
        if not given:
            caller, taken = self._caller, self._space.to_space
            numbers = numbers or repr({s: env[s] for s in self._symbols} or None)

            def constants(
                values: Sequence[Any],
                symbols: Mapping[str, int] | None,
                out: Sequence[Any] | None,
                memory: OutputMemory | None,
                tell: Tell | None,
                wait: bool,
            ) -> list[Any]:
                return [taken(x) for x in caller(values, symbols, out, memory, tell, wait)]

            route = constants
        elif numbers is not None:
            route = self._caller
        elif route is None:
            route = self._caller.known(given, {s: env[s] for s in self._symbols} or None)
        names = source.reals(self._inputs) if self._reals else [source.value(n) for n in self._inputs]
        source.kernels(self._number, route, names, given, self._outputs, numbers)
        for slot, dtype in self._complexes:
            source.complexes(slot, dtype)

    def versions(self) -> tuple[int, int]:
        """The versions of the fusions that the kernels are made of: a schedule step of the user's makes new ones."""
        whole = self._segment.whole
        return cast("Fusion", self._segment.fusion).version, 0 if whole is None else whole.version

    def likeness(self, gives: Sequence[ResultSource]) -> FastPathTemplate | None:
        """The kernels' call, where that gives these results."""
        places, route = dict(self._outputs), self._route
        if not isinstance(route, (DirectCall, ResizedCall)) or self._reals or self._complexes:
            return None
        shapes = route.whole_shapes
        if shapes is None or any(1 in s for s in shapes):
            return None  # the stride of an axis of one element is the captured one, which the whole way sees to
        if any(g.of == "kernels" and g.slot not in places for g in gives):
            return None
        found = tuple([g._replace(slot=places[g.slot]) if g.of == "kernels" else g for g in gives])
        return FastPathTemplate(self, route, self._inputs, found)

    def short(self, likeness: FastPathTemplate) -> Callable[[DirectCall | ResizedCall], FastCall]:
        """A maker of calls of all arguments, of routes like this one."""
        inputs, gives, count = likeness.inputs, likeness.gives, self._room
        runner, versions = self._runner, self._versions
        tell, now = None if runner.how.layout is None else runner.tell, runner.how.checked == "now"
        picked = tuple([g.slot for g in gives])
        plain = all(g.is_new for g in gives)
        same = [None] * len(gives)
        own, whole = cast("Fusion", self._segment.fusion), self._segment.whole
        first_version, second = versions or (-1, -1)
        # Most calls: arrays are the kernels' own in their order, and so are the results.
        in_order = plain and tuple(inputs) == tuple(range(len(inputs))) and picked == tuple(range(count))

        def allocated(route: DirectCall | ResizedCall) -> FastCall:
            def call(given: Sequence[Any], out: Sequence[Any] | None = None, first: bool = False) -> list[Any] | None:
                if self.versions() != versions:
                    return None
                values = [given[n] for n in inputs]
                if out is None or not plain:
                    found = route.run_all(values, tell, now or first)
                else:
                    found = route(values, _output_slots(picked, out, count), None, tell, now or first)
                if plain:
                    return [found[n] for n in picked]
                return [g.resolve(found, given, size) for g, size in zip(gives, route.more or same, strict=True)]

            def straight(given: Sequence[Any], out: Sequence[Any] | None = None, first: bool = False) -> Any:
                current = own.version == first_version and (whole is None or whole.version == second)
                return run(given, tell, now or first) if current and out is None else call(given, out, first)

            run = route.frozen.whole if isinstance(route, DirectCall) else route.run_all
            return straight if in_order else call

        return allocated

    def family_of(self, likeness: FastPathTemplate, key: Sequence[Any]) -> ShapeFamily | None:
        """Calls of arguments that differ from those with this key only in sizes."""
        if not self._fixed or not isinstance(self._caller, Dispatcher):
            return None
        wanted = guards_of(self._runner.imported, likeness.inputs, likeness.gives)
        frozen = likeness.route.like
        return None if wanted is None else compile_shape_guards(frozen, key, wanted, self._caller.frozen)

    def is_current(self) -> bool:
        """Whether the kernels are those of the fusions as they are."""
        return self.versions() == self._versions

    def _targets(self, targets: Targets) -> list[Any] | None:
        """The caller's arrays in the order of the outputs."""
        found: list[Any] = [None] * self._room
        for slot, place in self._outputs:
            found[place] = targets.get(slot)
        return None if all(x is None for x in found) or not self._inputs else found


def _output_slots(places: Sequence[int], out: Sequence[Any], count: int) -> list[Any]:
    """The caller's arrays, one for each result, in the order of the kernels' outputs."""
    found: list[Any] = [None] * count
    for n, x in zip(places, out, strict=True):
        found[n] = x
    return found


@dataclass(frozen=True, slots=True)
class _Definitions:
    """A runner of the fusion that is not a program, called as the callers of programs are."""

    kernels: FusionRunner
    fusion: Fusion
    space: ArraySpace
    checked: bool

    def __call__(self, given: Sequence[Any], symbols: Mapping[str, int] | None, *_: object) -> list[Any]:
        arrays = {t.name: as_numpy(a, "float32") for t, a in zip(self.fusion.inputs, given, strict=True)}
        found = self.kernels.run(arrays, symbols, checked=self.checked)
        return [self.space.to_space(found[t.name]) for t in self.fusion.outputs]

    def known(self, given: Sequence[Any], symbols: Mapping[str, int] | None) -> None:
        """There is no way to remember."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation of torch's."""

    runner: Session
    node: Node
    space: ArraySpace
    slots: Mapping[str, int]

    def __call__(self, values: list[Any], env: Env, targets: Targets, source: CallSource | None = None) -> None:
        imported, node, slots = self.runner.imported, self.node, self.slots
        named = {r: values[slots[r]] for r in node.refs() if r in slots}
        known = imported.operations.get(node.name) or operation(node)
        notes: list[Raw] = []
        found = call_reference(imported.program, node, named, known, env, self.space, notes)
        values[slots[node.name]] = found
        if source is not None and source.fits:
            source.operation(node, known, named, notes[0], found)


@dataclass(frozen=True, slots=True)
class _ResultPart:
    """One of several results of an opaque node."""

    node: Node
    slots: Mapping[str, int]

    def __call__(self, values: list[Any], env: Env, targets: Targets, source: CallSource | None = None) -> None:
        several, index = self.node.args[0], self.node.args[1]
        found: Any = values[self.slots[several.name]] if isinstance(several, Ref) else None
        parts = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()
        if not isinstance(index, int) or not -len(parts) <= index < len(parts):
            raise FrontendError(f"{where_of(self.node)}: there is no such result")
        values[self.slots[self.node.name]] = parts[index]
        if source is not None and isinstance(several, Ref):
            source.part(self.node, several.name, index, parts[index])
