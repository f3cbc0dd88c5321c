"""A program frozen for arrays of certain shapes, types, strides and device: the work that a call need not repeat.

Each buffer has a number. A call finds the address of each (the caller's memory, or memory of the caller's kind that is
made here), and passes the addresses to the launches, which have everything else laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from idgraph.arith import Expr
from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.errors import EmitError
from idgraph.index import buffer_size
from idgraph.ir import DType, Tensor
from idgraph.runtime.array_backends import HOST, UNMAPPED, ArrayBackend, check_writable
from idgraph.runtime.binding import Array, BoundArray, Env, OutputMemory, element_strides, extents, fits, places
from idgraph.runtime.call_signature import (
    BufferSlot,
    CallSizes,
    FastCallTemplate,
    InputSpec,
    Number,
    OperandLayout,
    OutputSpec,
    Whole,
    compile_fast_call,
)
from idgraph.runtime.raw_output import raw_output

if TYPE_CHECKING:
    from idgraph.runtime.loaded_program import LoadedKernels

Addresses = list[int]
Tell = Callable[[str, str], None]  # an input's name, and why it was copied
_EMPTY = "it is empty"
_NO_SLOT = BufferSlot(0, 0, "bool")
TARGETS_KEPT = 64  # sorts of arrays given as ``out`` that are remembered


class LaunchPlan(Protocol):
    """The kernels of a program, laid out; starts them with these addresses, one for each buffer."""

    def __call__(self, addresses: Sequence[int], wait: bool = True) -> None:
        """``wait``: what a check found on a device is raised now, and not by a later call or by `check`."""
        ...

    def direct(self) -> Callable[[Sequence[int], bool], None]:
        """The launches themselves, as a function, in as few steps as there are."""
        ...

    def check(self, wait: bool = False) -> None:
        """Raise failures of calls that did not wait: those found so far or, with ``wait``, all."""
        ...

    def parts(self, elements: Mapping[int, Expr], exprs: Sequence[Expr]) -> list[LaunchArguments]:
        """The numbers that follow from sizes, for each kernel; ``elements`` of buffers, ``exprs`` of the mold."""
        ...

    def resized(self, env: Env, parts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> LaunchPlan:
        """The same kernels on the same part of the machine, for other sizes: with the values of `parts` there."""
        ...


class LaunchArguments(NamedTuple):
    """The numbers of a kernel's launch, its words (0 for an address), and what must hold for it to be launched."""

    numbers: Sequence[Expr | int]
    words: Sequence[Expr | int]
    within: Sequence[Expr] = ()


class LaunchBackend(Protocol):
    """The part that runs kernels: lays out the launches of a program for these sizes."""

    def launches(self, program: LoadedKernels, checked: bool, sizes: CallSizes) -> LaunchPlan: ...


class _In(NamedTuple):
    """An input in memory: taken as it lies, ``before`` bytes ahead of its first element, or copied because ``why``;
    ``whole``: it is given as its memory."""

    tensor: Tensor
    position: int
    number: int
    layout: OperandLayout
    before: int
    alignment: int
    why: str
    whole: bool = False


class OutputBuffer(NamedTuple):
    """Memory that kernels write; an output has a shape, and strides or the places of its elements."""

    name: str
    number: int
    size: int
    dtype: DType
    title: str
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    at: Array | None = None
    whole: bool = False  # the array is the memory: it has no gaps, and ends where it ends


class _Passed(NamedTuple):
    """An output that is an input: a copy of it, or the array itself where kernels have ``updated`` it."""

    position: int
    updated: bool


class ShapeSpecialization:
    """See the module; made once for each key of `idgraph.runtime.array_backends.Kind.key`."""

    __slots__ = (
        "_makers",
        "_numbers",
        "_outputs",
        "_spans",
        "_targets",
        "_updated",
        "count",
        "device",
        "env",
        "gives_whole",
        "inputs",
        "kind",
        "launches",
        "made",
        "order",
        "program",
        "whole",
    )  # fmt: skip

    def __init__(
        self,
        program: LoadedKernels,
        kind: ArrayBackend,
        machine: LaunchBackend,
        given: Mapping[str, BoundArray],
        symbols: Mapping[str, int] | None,
        checked: bool,
        device: str = HOST,
    ) -> None:
        """``device``: where there are no arrays that are on one."""
        mold = program.mold
        self.program, self.kind = program, kind
        self.device = _one_device(given) if given else device
        self.env, numbers = mold.bind(given, symbols)
        program.check_sizes(self.env)
        self.count = len({*mold.names.values()})
        self.inputs = tuple(
            self._input(i, i.number, given[i.tensor.name], numbers) for i in mold.inputs if i.number is not None
        )
        places = {m.number: n for n, m in enumerate(mold.made)}
        self.order = tuple(places[o] if o >= 0 else o for o in mold.outputs)
        self.launches = machine.launches(program, checked, self._laid_out(numbers))
        self.whole: Whole = self._run_all
        if self.gives_whole and not any(i.why for i in self.inputs):
            inputs = tuple([(i.position, i.number, i.before, i.alignment) for i in self.inputs])
            steps = FastCallTemplate(inputs, tuple([m.number for m in self.made]), self.count, self.order)
            self.whole = compile_fast_call(steps, kind.pointer, self.launches.direct(), self._run_all, self._makers)

    def _laid_out(self, numbers: Sequence[Number]) -> CallSizes:
        """Find the memory that calls make; return the numbers of the launches."""
        kind, mold = self.kind, self.program.mold
        self._numbers = numbers
        self.made = [self._memory(m, numbers) for m in mold.made]
        slots: list[BufferSlot] = [_NO_SLOT] * self.count
        for i in self.inputs:
            size = 1 if i.why == _EMPTY else cast("int", numbers[i.layout.size])
            slots[i.number] = BufferSlot(i.number, size, i.tensor.dtype)
        for m in self.made:
            slots[m.number] = BufferSlot(m.number, m.size, m.dtype)
        self._outputs: tuple[OutputBuffer | _Passed, ...] = tuple(
            [self.made[n] if n >= 0 else _Passed(-1 - n, -1 - n in mold.updated) for n in self.order]
        )
        self._updated = mold.updated
        self._makers = tuple(
            [
                partial(kind.allocator(m.dtype, self.device, False), m.size)
                if m.shape is None
                else partial(kind.allocator(m.dtype, self.device, True), m.shape, m.strides or ())
                for m in self.made
                if m.shape is None or (m.whole and m.strides is not None)
            ]
        )
        # Whether all outputs are memory that kernels write, without gaps, so that `whole` serves.
        passed = any(isinstance(o, _Passed) and not o.updated for o in self._outputs)
        self.gives_whole = len(self._makers) == len(self.made) and not passed
        self._spans: list[tuple[int, int]] | None = None
        self._targets: dict[Hashable, tuple[bool, int, int]] = {}
        return CallSizes(self.env, slots, numbers)

    def _input(self, i: InputSpec, number: int, g: BoundArray, numbers: Sequence[Number]) -> _In:
        t, layout = i.tensor, i.layout
        offset = cast("int", numbers[layout.offset])
        why = _EMPTY if 0 in g.shape else "" if g.whole else why_not(g, _strides(layout, numbers))
        before = 0 if g.whole else offset * i.item
        return _In(t, i.position, number, layout, before, t.alignment, why, g.whole)

    def _memory(self, m: OutputSpec, numbers: Sequence[Number]) -> OutputBuffer:
        size = max(1, cast("int", numbers[m.size] or 0))
        name, title, layout = m.buffer.name, m.buffer.title, m.layout
        if m.tensor is None or layout is None:
            return OutputBuffer(name, m.number, size, m.dtype, title)
        shape = cast("tuple[int, ...]", tuple(numbers[layout.shape]))
        size = 1 if 0 in shape else size
        if m.buffer.place != "output":
            return OutputBuffer(name, m.number, size, m.dtype, title)
        if 0 in shape:
            return OutputBuffer(name, m.number, size, m.dtype, title, shape, element_strides(shape, None, 1))
        want = _strides(layout, numbers)
        if want is None:
            return OutputBuffer(name, m.number, size, m.dtype, title, shape, at=np.array(places(m.tensor, self.env)))
        whole = prod(shape) == size == _reach(shape, want)
        return OutputBuffer(name, m.number, size, m.dtype, title, shape, want, None, whole)

    # one call ---------------------------------------------------------------------------------------------------------

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None = None,
        memory: OutputMemory | None = None,
        tell: Tell | None = None,
        wait: bool = True,
    ) -> list[Any]:
        """Outputs for these arrays, in the order of the fusion's; ``out`` are arrays of theirs to write (None:
        memory is made)."""
        if out is None and memory is None and self.gives_whole:
            return self.whole(values, tell, wait)
        kind, addresses = self.kind, [0] * self.count
        raw = memory is not None and memory.raw
        kept = self.take(values, addresses, tell)
        flat: dict[str, Any] = {}
        if out is not None:
            self._given_memory(values, out, addresses, flat)
        for m in self.made:
            if m.name not in flat:
                made = flat[m.name] = self.memory(m, raw)
                if memory is not None and memory.fills:
                    kind.fill(made, m.dtype, memory.fill)
                addresses[m.number] = kind.address(made)
        self.launches(addresses, wait)
        if self._updated:
            self._put_back(values, kept, addresses)
        return self._raw(values, flat) if raw else self.results(values, out, flat)

    def strides(self, places: Sequence[int]) -> list[tuple[int, ...] | None]:
        """How the outputs at these places lie in memory, as `whole` gives them."""
        return [self.made[self.order[n]].strides for n in places]

    def _run_all(self, values: Sequence[Any], tell: Tell | None, wait: bool) -> list[Any]:
        """``whole``, a call whose outputs are all new arrays, where inputs may have to be copied
        (`compile_fast_call`)."""
        kind, addresses = self.kind, [0] * self.count
        kept = self.take(values, addresses, tell)
        try:
            made = [make() for make in self._makers]
        except (MemoryError, ValueError):
            made = [self.memory(m) for m in self.made]  # raises, and names it
        for m, x in zip(self.made, made, strict=True):
            addresses[m.number] = kind.address(x)
        self.launches(addresses, wait)
        if self._updated:
            self._put_back(values, kept, addresses)
        return [made[n] if n >= 0 else values[-1 - n] for n in self.order]

    def _put_back(self, values: Sequence[Any], kept: Sequence[Any], addresses: Addresses) -> None:
        """Copies of inputs that kernels have updated, into the inputs."""
        copies = {self.kind.address(x): x for x in kept}
        for i in self.inputs:
            made = copies.get(addresses[i.number])
            if i.position in self._updated and made is not None and i.why != _EMPTY:
                shape = cast("tuple[int, ...]", tuple(self._numbers[i.layout.shape]))
                steps = cast("tuple[int, ...]", element_strides(shape, None, 1))  # what is updated lies in rows
                self.kind.assign(values[i.position], self.kind.view(made, shape, steps, i.tensor.dtype))

    def memory(self, m: OutputBuffer, flat: bool = False) -> Any:
        """New memory of a buffer."""
        try:
            if not flat and m.whole and m.shape is not None and m.strides is not None:
                return self.kind.adopt_buffer(m.shape, m.strides, m.dtype, self.device)
            return self.kind.flat(m.size, m.dtype, self.device)
        except (MemoryError, ValueError):
            raise EmitError(
                f"there is no memory for {m.title}: {m.size} elements of {storage_dtype(m.dtype).itemsize} bytes",
                hint="inline it into what reads it, or run the program on parts",
            ) from None

    def take(self, values: Sequence[Any], addresses: Addresses, tell: Tell | None = None) -> list[Any]:
        """Write the addresses of the inputs; return the objects that must outlive the reads."""
        kind = self.kind
        kept: list[Any] = []
        for i in self.inputs:
            if i.why:
                found = self._copied(i, values[i.position], i.why, tell)
                kept.append(found)
                addresses[i.number] = kind.address(found)
                continue
            address = kind.address(values[i.position]) - i.before
            if address % i.alignment or address < UNMAPPED:  # accesses were proved with the declared alignment
                why = f"it starts at an address that {i.tensor.alignment} bytes do not divide"
                found = self._copied(i, values[i.position], why, tell)
                kept.append(found)
                address = kind.address(found)
            addresses[i.number] = address
        return kept

    def _copied(self, i: _In, value: Any, why: str, tell: Tell | None) -> Any:
        g = self.kind.declared(i.tensor.name, value)
        if tell is not None and 0 not in g.shape:
            tell(i.tensor.name, why)
        if 0 in g.shape:
            return self.kind.flat(1, i.tensor.dtype, self.device)
        if i.whole:
            return self.kind.copied(value)
        return self.kind.laid_out(i.tensor, g, dict(self.env), cast("int", self._numbers[i.layout.size]))

    def _given_memory(
        self, values: Sequence[Any], out: Sequence[Any], addresses: Addresses, flat: dict[str, Any]
    ) -> None:
        """Let kernels write into the caller's ``out`` where its layout is theirs; else a copy into it follows them."""
        fusion, kind = self.program.fusion, self.kind
        if len(out) != len(self._outputs):
            raise EmitError(f"{fusion.name} has {len(self._outputs)} outputs, out has {len(out)}")
        if self._spans is None:
            self._spans = [kind.placing(v).span for v in values]
        taken: list[tuple[int, int, str]] = []
        for t, value, (before, behind) in zip(fusion.inputs, values, self._spans, strict=True):
            at = kind.address(value)
            taken.append((at + before, at + behind, f"input {t.name}, which kernels may still have to read"))
        for n, target in enumerate(out):
            if target is None:
                continue
            t, made = fusion.outputs[n], self._outputs[n]
            direct, before, behind = self._taking(n, t, target)
            address = kind.address(target)
            if address < UNMAPPED or kind.is_read_only(target):
                check_writable(kind, t.name, target)
            for first, end, what in taken:
                if address + before < end and first < address + behind:
                    raise EmitError(
                        f"out of {t.name} shares memory with {what}", hint="give memory of its own, and copy"
                    )
            taken.append((address + before, address + behind, f"out of {t.name}, which is written too"))
            if direct and isinstance(made, OutputBuffer) and made.name not in flat and address % t.alignment == 0:
                flat[made.name] = target
                addresses[made.number] = address

    def _taking(self, n: int, t: Tensor, target: Any) -> tuple[bool, int, int]:
        """Whether kernels can write output ``n`` into an array like ``target``, and its span; found out once for arrays
        of each sort. Raises `EmitError` for one that does not fit."""
        kind, made = self.kind, self._outputs[n]
        try:
            key: Hashable = n, cast("Any", type(target)), kind.key(target)
            found = self._targets.get(key)
        except (AttributeError, RuntimeError):  # not an array of this kind; `given` says so
            key = found = None
        if found is not None:
            return found
        check_writable(kind, t.name, target)
        g = kind.declared(f"out of {t.name}", target)
        wanted = made.shape if isinstance(made, OutputBuffer) else extents(t, self.env)
        if (g.shape, g.dtype, g.device) != (wanted, t.dtype, self.device):
            raise EmitError(
                f"out of {t.name} is {g.dtype}{g.shape} on {g.device}, the result {t.dtype}{wanted} on {self.device}"
            )
        whole = isinstance(made, OutputBuffer) and made.whole and fits(g.shape, g.strides, made.strides or ())
        found = whole, *kind.placing(target).span
        if len(self._targets) >= TARGETS_KEPT:
            self._targets.clear()
        self._targets[key] = found
        return found

    def results(self, values: Sequence[Any], out: Sequence[Any] | None, flat: Mapping[str, Any]) -> list[Any]:
        """Outputs in ``flat`` memory, in ``out`` where that is given."""
        kind = self.kind
        found: list[Any] = []
        for n, made in enumerate(self._outputs):
            target = None if out is None else out[n]
            if isinstance(made, _Passed):
                result = values[made.position] if made.updated else kind.copied(values[made.position])
            elif made.whole:
                result = flat[made.name]
                if result is target:
                    found.append(target)
                    continue
            elif made.strides is not None and made.shape is not None:
                result = kind.view(flat[made.name], made.shape, made.strides, made.dtype)
            else:
                result = kind.gathered(flat[made.name], made.at if made.at is not None else np.empty(0), made.dtype)
            if target is not None:
                kind.assign(target, result)
                result = target
            found.append(result)
        return found

    def _raw(self, values: Sequence[Any], flat: Mapping[str, Any]) -> list[Any]:
        """The memory of the outputs, with its maps; an output that is an input has memory of its own."""
        kind, found = self.kind, list[Any]()
        for t, made in zip(self.program.fusion.outputs, self._outputs, strict=True):
            shape = extents(t, self.env)
            size = 0 if 0 in shape else int(buffer_size(t).evaluate(self.env))
            if isinstance(made, OutputBuffer):
                memory = flat[made.name]
            else:
                g = kind.declared(t.name, values[made.position])
                memory = kind.copied(kind.laid_out(t, g, dict(self.env), size))
            found.append(raw_output(t, kind.view(memory, (size,), (1,), t.dtype), shape, self.env))
        return found

    def hold(self, values: Sequence[Any], poison: bool = False) -> PreparedLaunch:
        """The program with buffers of its own, to be launched any number of times."""
        return PreparedLaunch(self, values, poison)

    def reasons(self, values: Sequence[Any]) -> dict[str, str]:
        """The inputs that a call with these copies, and why."""
        found: dict[str, str] = {}
        self.take(values, [0] * self.count, found.__setitem__)
        return found


class PreparedLaunch:
    """Buffers that stay: ``launch()`` runs the kernels, ``results()`` are the outputs, which another launch writes."""

    __slots__ = ("_addresses", "_flat", "_frozen", "_kept", "_values")

    def __init__(self, frozen: ShapeSpecialization, values: Sequence[Any], poison: bool) -> None:
        kind = frozen.kind
        self._frozen, self._values, self._addresses = frozen, values, [0] * frozen.count
        self._kept = frozen.take(values, self._addresses)
        self._flat: dict[str, Any] = {}
        for m in frozen.made:
            made = self._flat[m.name] = frozen.memory(m)
            if poison:
                kind.fill(made, m.dtype)
            self._addresses[m.number] = kind.address(made)

    def launch(self) -> None:
        """Run all kernels in order; on a device they are queued."""
        self._frozen.launches(self._addresses, False)

    def results(self) -> dict[str, Any]:
        """Outputs by name; `IndexingError` for a loaded index out of range that the launches have met."""
        self._frozen.launches.check(True)
        found = self._frozen.results(self._values, None, self._flat)
        return {t.name: x for t, x in zip(self._frozen.program.fusion.outputs, found, strict=True)}


def _strides(layout: OperandLayout, numbers: Sequence[Number]) -> tuple[int, ...] | None:
    """Elements between neighbours along each axis; None where memory is not a strided view of it."""
    return None if layout.strides is None else cast("tuple[int, ...]", tuple(numbers[layout.strides]))


def why_not(g: BoundArray, want: tuple[int, ...] | None) -> str:
    """Why an array does not lie in memory as declared, with ``want``, or ""; calls differ in where it begins."""
    if want is not None and g.strides == want:
        return ""
    if want is None:
        return "its memory is laid out by axes that the schedule made"
    if g.strides is None:
        return "its strides are negative, or no whole numbers of elements"
    if not fits(g.shape, g.strides, want):
        return f"its strides are {g.strides}, not {want} as declared"
    return ""


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one of an array."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _one_device(given: Mapping[str, BoundArray]) -> str:
    """The device of all arrays."""
    found = {g.device for g in given.values()}
    if len(found) > 1:
        (first, g), *rest = given.items()
        name, other = next((n, x.device) for n, x in rest if x.device != g.device)
        raise EmitError(
            f"input {first} is on {g.device}, input {name} on {other}",
            hint=f"one device for all: {name}.to({str(g.device)!r})",
        )
    return found.pop()
