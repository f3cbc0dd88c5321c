"""The size-independent parts of a program's calls, and all numbers that depend on sizes as one tape.

A call with new sizes needs extents, strides, memory and launches of all arrays and kernels. The
expressions of all of them are found here once; `CallSignature.numbers` gives their values in microseconds.

A frozen call in the fewest steps: a function that is written for so many arrays, as most calls need no more.

It serves calls whose inputs are taken as they lie and whose outputs are new arrays without gaps. Where an input has to
be copied, is refused, or there is no memory, the call goes on to the function that says more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from idgraph.arith import CompiledExprs, Expr, as_expr, maximum, symbol
from idgraph.codegen.printers.scalar import runs_parallel, site_numbers
from idgraph.codegen.runtime_lib.numpy_ops import storage_dtype
from idgraph.index import buffer_size, strides
from idgraph.ir import DType, Fusion, Tensor
from idgraph.kernel.ir import PRIME, Buffer, Kernel, Loop, Stmt, bodies, shared_layout
from idgraph.runtime.array_backends import UNMAPPED
from idgraph.runtime.binding import BoundArray, Env, bind, bind_strides, fault_size, updated_inputs
from idgraph.runtime.executable import reused_memory
from idgraph.runtime.source_function import function_of

if TYPE_CHECKING:
    from idgraph.runtime.executable import Executable


Number = int | bool | None
Cut = slice  # of the numbers


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """Where the numbers of a tensor stand: its extents, its strides by axis (None where no strides say where its
    elements lie), its memory, its offset."""

    shape: Cut
    strides: Cut | None
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input; ``number`` is that of its buffer, None where no kernel reads it."""

    tensor: Tensor
    position: int
    number: int | None
    layout: OperandLayout
    item: int
    symbols: tuple[tuple[int, str], ...]  # axes whose extent is a symbol, which the array gives a value


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Memory that kernels write; ``tensor`` is None for memory of no tensor."""

    buffer: Buffer
    number: int
    tensor: Tensor | None
    layout: OperandLayout | None
    size: int
    dtype: DType


class LaunchSpec(NamedTuple):
    """A kernel: numbers of its buffers, where its integers, its launch and the points of its loops stand."""

    kernel: Kernel
    buffers: tuple[int, ...]
    scalars: Cut
    launch: tuple[tuple[str, Cut], ...]
    points: int
    blocks: int | None  # of a kernel that runs on all cores
    sites: bool
    fault_size: int
    shared: int  # bytes of dynamic shared memory


class BufferSlot(NamedTuple):
    """A buffer: its number and its elements."""

    number: int
    size: int
    dtype: DType


class _Listed:
    """Expressions, each once."""

    def __init__(self) -> None:
        self.exprs: list[Expr] = []

    def one(self, e: Expr | int) -> int:
        self.exprs.append(as_expr(e))
        return len(self.exprs) - 1

    def many(self, found: Iterable[Expr | int]) -> Cut:
        first = len(self.exprs)
        self.exprs += [as_expr(e) for e in found]
        return slice(first, len(self.exprs))


class CallSignature:
    """See the module; made once for a program."""

    def __init__(self, program: Executable) -> None:
        fusion = program.fusion
        listed = _Listed()
        homes = {b.title: b for b in program.plan.buffers if b.place != "private"}
        updated = updated_inputs(fusion, homes)
        homes |= {x: homes[t] for t, x in updated.items()}
        self.fusion = fusion
        self.names: dict[str, int] = {}  # of buffers; those that take one memory in turn have one number
        inputs: list[InputSpec] = []
        for position, t in enumerate(fusion.inputs):
            number = None if t.name not in homes else self.names.setdefault(homes[t.name].name, len(self.names))
            symbols = tuple((p, d.extent.name) for p, d in enumerate(t.axes) if d.extent.op == "sym")
            inputs.append(InputSpec(t, position, number, _layout(listed, t), storage_dtype(t.dtype).itemsize, symbols))
        self.inputs = tuple(inputs)
        self.input_names = tuple(t.name for t in fusion.inputs)
        memory = reused_memory(program.plan)
        written = [b for b in program.plan.buffers if b.place in ("output", "global") and b.title not in updated]
        self.made = tuple(
            self._output_specs(listed, b, fusion, program.fusion_names) for b in written if b.name not in memory
        )
        self.names |= {b.name: self.names[memory[b.name]] for b in written if b.name in memory}
        self.kernels = tuple(self._kernel(listed, k, program.target) for k in program.plan.kernels)
        # Of each output the number of its buffer, or -1 less the position of the input that it is, or is written in.
        positions = {t.name: n for n, t in enumerate(fusion.inputs)}
        self.outputs = tuple(
            self.names[homes[t.name].name]
            if t.definition is not None and t.name not in updated
            else -1 - positions[updated.get(t.name, t.name)]
            for t in fusion.outputs
        )
        self.updated = frozenset(positions[x] for x in updated.values())  # inputs that kernels write
        # Strides that follow from arrays: their tensors are bound one after another before any number is known.
        used = [*(i.tensor for i in inputs), *(m.tensor for m in self.made if m.tensor is not None)]
        self.free = tuple(t for t in used if any(s.op == "sym" and s.name.startswith("stride") for s in strides(t)))
        self.exprs = tuple(listed.exprs)
        self._tape = CompiledExprs(self.exprs)

    def _output_specs(self, listed: _Listed, b: Buffer, fusion: Fusion, names: frozenset[str]) -> OutputSpec:
        number = self.names.setdefault(b.name, len(self.names))
        if b.title in names and b.name[:3] == "buf":
            t = fusion[b.title]
            layout = _layout(listed, t)
            return OutputSpec(b, number, t, layout, layout.size, t.dtype)
        return OutputSpec(b, number, None, None, listed.one(b.size), b.dtype)

    def _kernel(self, listed: _Listed, k: Kernel, target: str) -> LaunchSpec:
        names = {s: symbol(s.removesuffix(PRIME)) for s in k.scalars}
        known = listed.many(names.values())
        renamed = {s: e for s, e in names.items() if s != e.name}
        several = target == "cpu" and runs_parallel(k)  # then the work decides whether all cores share it
        loops = iteration_count(k.body).substitute(renamed) if several else 1
        outer = next((s.extent.substitute(renamed) for s in k.body if isinstance(s, Loop) and several), None)
        launch = tuple((dim, listed.many(found)) for dim, found in k.launch.items())
        sites = bool(site_numbers(k))
        return LaunchSpec(
            k, tuple(self.names[b.name] for b in k.buffers), known, launch, listed.one(loops),
            None if outer is None else listed.one(outer), sites,
            fault_size(k), shared_layout(k.body).dynamic if target == "cuda" else 0,  # elsewhere of any size
        )  # fmt: skip

    @cached_property
    def _symbols(self) -> tuple[tuple[str, int, int | None], ...] | None:
        """Names and bounds of all symbols; None where one has bounds that must be computed, or follows from another."""
        if self.fusion.equalities:
            return None
        found: list[tuple[str, int, int | None]] = []
        for name, e in self.fusion.symbols.items():
            low, high, step, _ = e.symbol_bounds
            if isinstance(low, Expr) or isinstance(high, Expr) or step != 1 or low is None:
                return None
            found.append((name, low, high))
        return tuple(found)

    def bind(self, given: Mapping[str, BoundArray], symbols: Mapping[str, int] | None) -> tuple[Env, list[Number]]:
        """The values of all symbols, and all numbers; raises `EmitError` for arrays that do not fit."""
        env = self._quickly(given, symbols)
        if env is not None and not self.free:
            numbers = self._tape(env)
            if all(tuple(numbers[i.layout.shape]) == given[i.tensor.name].shape for i in self.inputs):
                return env, numbers
        env = bind(self.fusion, given, symbols)
        for t in self.free:
            g = given.get(t.name)
            shape = g.shape if g is not None else tuple(int(d.extent.evaluate(env)) for d in t.axes)
            bind_strides(t, env, shape, None if g is None else g.strides)
        return env, self._tape(env)

    def _quickly(self, given: Mapping[str, BoundArray], symbols: Mapping[str, int] | None) -> Env | None:
        """The symbols of arrays that fit; None for any other case, which `bind` examines and reports."""
        bounds = self._symbols
        if bounds is None or len(given) != len(self.inputs):
            return None
        env: Env = {} if symbols is None else dict(symbols)
        for i in self.inputs:
            g = given[i.tensor.name]
            if g.dtype != i.tensor.dtype or len(g.shape) != i.layout.shape.stop - i.layout.shape.start:
                return None
            for p, name in i.symbols:
                env.setdefault(name, g.shape[p])
        for name, low, high in bounds:
            value = env.get(name)
            if type(value) is not int or value < low or (high is not None and value > high):
                return None
        return env if len(env) == len(bounds) else None


class CallSizes(NamedTuple):
    """The numbers of one call for the launches: elements by number of buffer, and the values that a tape gave."""

    env: Env
    slots: Sequence[BufferSlot]
    numbers: Sequence[Number]

    def scalars(self, k: LaunchSpec) -> list[int]:
        """The kernel's integers."""
        return cast("list[int]", self.numbers[k.scalars])

    def launch(self, k: LaunchSpec) -> dict[str, int]:
        """Blocks and threads by dimension: each as large as the largest loop that runs on it."""
        return {dim: max(1, *cast("list[int]", self.numbers[cut])) for dim, cut in k.launch}


def _layout(listed: _Listed, t: Tensor) -> OperandLayout:
    axes = t.axes
    found = dict(zip(t.allocation, strides(t), strict=True))
    strange = any(d not in axes for d in found) or any(d not in found and not d.is_broadcast for d in axes)
    steps = None if strange else listed.many(found.get(d, 0) for d in axes)
    return OperandLayout(listed.many(d.extent for d in axes), steps, listed.one(buffer_size(t)), listed.one(t.offset))


def iteration_count(body: Sequence[Stmt]) -> Expr:
    """Points of the loops, those of other loops added up; of inner loops at the first point of those around.

    >>> iteration_count(())
    1
    """
    inner, beside = as_expr(0), as_expr(0)
    for s in body:
        if isinstance(s, Loop):
            inner = inner + s.extent * iteration_count(s.body).substitute({s.var: 0})
        elif bodies(s):
            beside = beside + iteration_count(bodies(s))
    return maximum(inner, beside, as_expr(1))


Whole = Callable[[Sequence[Any], Any, bool], list[Any]]  # see `idgraph.runtime.shape_specialized.Frozen.whole`


class FastCallTemplate(NamedTuple):
    """A call in numbers. ``inputs``: the place of each among the caller's arrays, the number of its buffer,
    the bytes ahead of its first element, and its alignment in bytes. ``made``: the numbers of the buffers that are new.
    ``buffers`` in all; ``order``: which new ones are the outputs, or -1 less the place of an array that kernels write.

    >>> print(FastCallTemplate(((0, 1, 0, 16),), (0,), 2, (0,)).text)
    def bound(pointer, launch, slow, make0):
        def whole(values, tell, wait):
            try:
                a1 = pointer(values[0])
                if a1 % 16 or a1 < 65536:
                    return slow(values, tell, wait)
                m0 = make0()
            except (RuntimeError, MemoryError, ValueError):
                return slow(values, tell, wait)
            launch((pointer(m0), a1), wait)
            return [m0]
        return whole
    <BLANKLINE>
    """

    inputs: tuple[tuple[int, int, int, int], ...]
    made: tuple[int, ...]
    buffers: int
    order: tuple[int, ...]

    @property
    def text(self) -> str:
        """The function as source."""
        hand_on = "return slow(values, tell, wait)"
        lines = [f"a{n} = pointer(values[{at}]){f' - {ahead}' if ahead else ''}" for at, n, ahead, _ in self.inputs]
        tests = [mistaken_address(f"a{n}", alignment) for _, n, _, alignment in self.inputs]
        lines += [f"if {' or '.join(tests)}:", f"    {hand_on}"] if tests else []
        lines += [f"m{n} = make{n}()" for n in self.made]
        known = {n: f"a{n}" for _, n, _, _ in self.inputs} | {n: f"pointer(m{n})" for n in self.made}
        addresses = ", ".join(known.get(n, "0") for n in range(self.buffers))
        given = ", ".join(["pointer", "launch", "slow", *(f"make{n}" for n in self.made)])
        return "\n".join([
            f"def bound({given}):",
            "    def whole(values, tell, wait):",
            "        try:",
            *(f"            {line}" for line in lines or ["pass"]),
            "        except (RuntimeError, MemoryError, ValueError):",
            f"            {hand_on}",
            f"        launch(({addresses}{',' * (self.buffers == 1)}), wait)",
            f"        return [{', '.join(f'm{self.made[n]}' if n >= 0 else f'values[{-1 - n}]' for n in self.order)}]",
            "    return whole",
            "",
        ])  # fmt: skip


def mistaken_address(name: str, alignment: int) -> str:
    """The condition, as source, of an address that kernels cannot take.

    >>> mistaken_address("p", 16)
    'p % 16 or p < 65536'
    """
    return f"{name} % {alignment} or {name} < {UNMAPPED}"


@lru_cache(maxsize=512)
def _compile_binding(steps: FastCallTemplate) -> Callable[..., Whole]:
    return function_of(steps.text, "bound", {}, "call")


def compile_fast_call(
    steps: FastCallTemplate,
    pointer: Callable[[Any], int],
    launch: Any,
    slow: Whole,
    makers: Sequence[Callable[[], Any]],
) -> Whole:
    """The function of `FastCallTemplate` over what makes each new array, in the order of ``steps.made``."""
    return _compile_binding(steps)(pointer, launch, slow, *makers)
