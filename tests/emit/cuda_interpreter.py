"""An interpreter of the CUDA source that a program prints: each thread, and what hardware would forgive.

It executes the text of each kernel and reads nothing else of the code generator: no statement, no schedule, no index
map. Threads of a block are greenlets that run in a random order from one exchange to the next; blocks run in a random
order. Memory and exchanges are its own. It raises `Fault` for

- a name without a value, an element read that nobody wrote (of local, shared and global memory), an address outside,
  a vector that is not aligned;
- two accesses of one element, one of them a write, by threads of one block without a barrier between, or by two blocks;
- a barrier that some threads of a block do not reach, and an exchange over other threads than the block has.

The arithmetic of scalars is that of the plain Python target.
"""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.codegen.runtime_lib.vector_ops import plain_pairs
from idgraph.ir import SCATTERS
from idgraph.kernel.ir import shared_layout
from idgraph.runtime import Program
from idgraph.runtime.binding import OutputMemory, bind, flat_input, given_array, global_buffer, output_array, scalars_of
from idgraph.runtime.cuda.launch import launch_shape

WARP = 32
WHOLE_WIDTHS = (2, 4, 8, 16)
EXCHANGE = re.compile(r"\b(block|columns|tree|scan|scan_columns|scan_tree)_(\w+)_(f32|f64|int)\(")
KINDS: Mapping[str, Any] = {"f32": np.float32, "f64": float, "int": int}
PAIRS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "amax": scalars.maximum,
    "amin": scalars.minimum,
    "logsum": scalars.logaddexp,
    "near_logsum": scalars.logaddexp,
}


class Fault(AssertionError):
    """What is wrong with the source, and where."""


@dataclass(slots=True)
class Touched:
    """Who has touched an element since it was last forgotten: (block, thread, epoch), atomic ones apart."""

    writes: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    reads: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    adds: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])


@dataclass(slots=True)
class Machine:
    """The thread that runs now, and the number of barriers that its block has passed. ``scattered``: what scatters
    write, where threads whose entries name one element may write the value of the last of them without an order."""

    kernel: str = ""
    block: int = 0
    thread: int = 0
    epoch: int = 0
    home: Any = None
    scattered: frozenset[str] = frozenset()

    @property
    def now(self) -> tuple[int, int, int]:
        return self.block, self.thread, self.epoch

    def fault(self, what: str) -> Fault:
        return Fault(f"{self.kernel}, block {self.block}, thread {self.thread}: {what}")

    def wait(self, request: object) -> Any:
        """The thread waits for those of its block."""
        return self.home.switch(request)


class Memory:
    """Elements of global, shared or local memory; ``shift`` counts from the first one of the array it is a part of."""

    def __init__(
        self, machine: Machine, name: str, data: Any, written: Any, touched: dict[int, Touched] | None, shift: int = 0
    ) -> None:
        self.machine, self.name, self.data, self.written = machine, name, data, written
        self.touched, self.shift = touched, shift
        self.dtype = data.dtype

    @property
    def size(self) -> int:
        return int(self.data.size)

    def place(self, at: Any) -> int:
        place = int(at)
        if not 0 <= place < self.size:
            raise self.machine.fault(f"{self.name}[{place}] is outside of its {self.size} elements")
        return place

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            part: Any = at  # pyright: ignore[reportUnknownVariableType]
            low = int(part.start or 0)
            data, written = self.data[low : part.stop], self.written[low : part.stop]
            return Memory(self.machine, self.name, data, written, self.touched, self.shift + low)
        place = self.place(at)
        if not self.written[place]:
            raise self.machine.fault(f"{self.name}[{place}] is read before anybody wrote it")
        self.note(place, "reads")
        return self.data[place]

    def __setitem__(self, at: Any, value: Any) -> None:
        place = self.place(at)
        before = repr(self.data[place]) if self.written[place] and self.name in self.machine.scattered else ""
        self.data[place] = value
        self.note(place, "writes", same=repr(self.data[place]) == before)
        self.written[place] = True

    def updated(self, at: Any, by: Callable[[Any, Any], Any], value: Any) -> None:
        """An atomic update."""
        place = self.place(at)
        if not self.written[place]:
            raise self.machine.fault(f"{self.name}[{place}] is added to before anybody wrote it")
        self.note(place, "adds")
        self.data[place] = by(self.data[place], value)

    def note(self, place: int, kind: str, same: bool = False) -> None:
        """Record an access; two of one element that no barrier orders are a race, but for writes of the ``same`` value
        as before."""
        if self.touched is None:
            return
        found = self.touched.setdefault(self.shift + place, Touched())
        now = self.machine.now
        writes = set[tuple[int, int, int]]() if same else found.writes
        others = writes if kind == "reads" else writes | found.reads
        if kind != "adds":
            others = others | found.adds
        for block, thread, epoch in others:
            if block != now[0] or (thread != now[1] and epoch == now[2]):
                who = f"thread {thread} of block {block}"
                raise self.machine.fault(
                    f"{self.name}[{place}] is touched ({kind}) and was touched by {who} without a barrier between"
                )
        getattr(found, kind).add(now)


def _local(machine: Machine, size: int, dtype: Any) -> Memory:
    return Memory(machine, "a local array", np.zeros(int(size), dtype), np.zeros(int(size), np.bool_), None)


def _atomic(by: Callable[[Any, Any], Any]) -> Callable[[Memory, Any, Any], None]:
    return lambda array, at, value: array.updated(at, by, value)


class Shared:
    """Shared arrays of one block: one for each line that asks for one, and the dynamic piece."""

    def __init__(self, machine: Machine, dynamic: int) -> None:
        self.machine, self.bytes = machine, np.zeros(dynamic, np.uint8)
        self.arrays: dict[object, Memory] = {}

    def array(self, size: int, dtype: Any, alignment: object = None) -> Memory:
        del alignment
        if size == 0:  # pieces of one type overlap no others: the layout gives every array bytes of its own
            key: object = np.dtype(dtype)
            count = self.bytes.size // np.dtype(dtype).itemsize
        else:
            key, count = sys._getframe(1).f_lineno, int(size)  # pyright: ignore[reportPrivateUsage]
        if key not in self.arrays:
            self.arrays[key] = Memory(
                self.machine, "shared memory", np.zeros(count, dtype), np.zeros(count, np.bool_), {}
            )
        return self.arrays[key]


def _value(array: Memory, element: Any) -> Any:
    return scalars.bf16_load(int(element)) if array.dtype == np.uint16 else element


def _element(array: Memory, value: Any) -> Any:
    return np.uint16(scalars.bf16_word(float(value))) if array.dtype == np.uint16 else value


def _bf16(word: Any) -> float:
    return scalars.bf16_load(int(word))


def _bf16_word(value: Any) -> Any:
    return np.uint16(scalars.bf16_word(float(value)))


def _vectors(machine: Machine) -> dict[str, Any]:
    """Accesses of several elements: aligned, of elements in a row."""

    def aligned(array: Memory, at: Any, width: int) -> int:
        if int(at) % width:
            raise machine.fault(f"{width} elements from {array.name}[{at}] on are not aligned")
        return int(at)

    def load(width: int, registers: Any, first: int, array: Memory, at: Any, wanted: Any = True) -> None:
        start = aligned(array, at, width) if wanted else 0
        for n in range(width):
            registers[first + n] = _value(array, array[start + n] if wanted else array.dtype.type(0))

    def load_anywhere(width: int, registers: Any, first: int, array: Memory, at: Any, last: Any) -> None:
        del last
        for n in range(width):
            registers[first + n] = _value(array, array[int(at) + n])

    def store(width: int, array: Memory, at: Any, registers: Any, first: int) -> None:
        start = aligned(array, at, width)
        for n in range(width):
            array[start + n] = _element(array, registers[first + n])

    def add(width: int, array: Memory, at: Any, values: Any) -> None:
        start = aligned(array, at, width)
        for n in range(width):
            array.updated(start + n, PAIRS["sum"], values[n])

    made: dict[str, Any] = {}
    for w in WHOLE_WIDTHS:
        made |= {f"vload{w}": partial(load, w), f"vload{w}_where": partial(load, w), f"vstore{w}": partial(store, w)}
        made |= {f"rload{w}": partial(load_anywhere, w), f"vadd{w}": partial(add, w)}
    return made


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one thread asks for: ``group`` says with whom, ``index`` at which place of ``count``."""

    name: str
    op: str
    kind: str
    value: Any
    group: object
    index: int
    count: int
    first: Any = None
    barrier: bool = True

    @property
    def key(self) -> object:
        """Equal for threads that may exchange with each other, in one place of the source."""
        return self.name, self.count


def _answers(machine: Machine, asked: Sequence[Exchange]) -> list[Any]:
    """The value of each thread: all of its group, or those before it."""
    groups: dict[object, list[int]] = {}
    for n, x in enumerate(asked):
        groups.setdefault(x.group, []).append(n)
    found: list[Any] = [None] * len(asked)
    for members in groups.values():
        members.sort(key=lambda n: asked[n].index)
        x = asked[members[0]]
        places = [asked[n].index for n in members]
        if places != list(range(x.count)):
            raise machine.fault(f"{x.name} is over {x.count} threads, and those at {places[:8]} of a row exchange")
        combine, held = PAIRS[x.op], KINDS[x.kind]
        befores: list[Any] = []
        total: Any = x.first
        for n in members:
            befores.append(total)
            total = asked[n].value if total is None else held(combine(total, asked[n].value))
        for n, before in zip(members, befores, strict=True):
            found[n] = total if x.first is None else (held(before), held(total))
    return found


def _exchange(machine: Machine, cuda: Any, name: str) -> Callable[..., Any]:
    """The function of one name: it makes the request that the thread waits with."""
    how, op, kind = re.fullmatch(r"(block|columns|tree|scan_columns|scan_tree|scan)_(\w+)_(f32|f64|int)", name).groups()  # type: ignore[union-attr]
    scan = how.startswith("scan")

    def along_x(value: Any, first: Any, count: Any) -> Any:
        t, sizes = cuda.threadIdx, cuda.blockDim
        if sizes.x != count:
            raise machine.fault(f"{name} is over {count} threads of a block that has {sizes.x} along x")
        return ask(value, (t.y, t.z), t.x, count, first, count > WARP)

    def along_y(value: Any, first: Any, count: Any) -> Any:
        t, sizes = cuda.threadIdx, cuda.blockDim
        if sizes.y != count or sizes.z != 1:
            raise machine.fault(f"{name} is over {count} threads of a block that has {sizes.y} along y")
        return ask(value, t.x, t.y, count, first, True)

    def ask(value: Any, group: object, index: Any, count: Any, first: Any, barrier: bool) -> Any:
        return machine.wait(Exchange(name, op, kind, value, group, int(index), int(count), first, barrier))

    def call(value: Any, *rest: Any) -> Any:
        first, rest = (rest[0], rest[1:]) if scan else (None, rest)
        match how.removeprefix("scan_"):
            case "tree":
                index, group, count = rest
                return ask(value, int(group), index, count, first, True)
            case "columns":
                return along_y(value, first, rest[-1])
            case _:
                return along_x(value, first, rest[0])

    return call


def _names(machine: Machine, cuda: Any, source: str) -> dict[str, Any]:
    plain = {k: v for k, v in vars(scalars).items() if not k.startswith("__")}
    kinds = ("bool_", *(f"float{n}" for n in (16, 32, 64)), *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
    return {
        **plain, "np": np, "cuda": cuda, "f16_load": float, "f16_word": np.float16, "shared_alignment": None,
        "in_stream_order": lambda: None, "word": object, "bf16_load": _bf16,
        **{f"dynamic_{k}": np.dtype(k) for k in kinds},
        **plain_pairs({"bf16": _bf16, "f16": float}, {"bf16": _bf16_word, "f16": np.float16}),
        **_vectors(machine),
        **{m: _exchange(machine, cuda, m) for m in {x.group(0)[:-1] for x in EXCHANGE.finditer(source)}},
    }  # fmt: skip


def interpret(
    program: Program, inputs: Mapping[str, Any], seed: int = 0, text: Callable[[str], str] = lambda source: source
) -> dict[str, Any]:
    """The outputs of a program by name, from arrays by the names of its inputs; the same ``seed``, the same order.

    ``text`` changes the source of each kernel first.
    """
    fusion, order, machine = program.fusion, random.Random(seed), Machine()
    given = {name: given_array(name, a) for name, a in inputs.items()}
    env = bind(fusion, given, None)
    homes = {b.title: b.name for b in program.plan.buffers if b.place not in ("private", "shared")}
    made = {e.output.name for e in fusion.exprs if e.op in SCATTERS}
    machine.scattered = frozenset(home for title, home in homes.items() if title in made)
    memory: dict[str, Memory] = {}
    for b in program.plan.buffers:
        if b.place in ("output", "global"):
            data = global_buffer(program, b, env, OutputMemory(poison=True))
            memory[b.name] = Memory(machine, b.name, data, np.zeros(data.size, np.bool_), {})
    for t in fusion.inputs:
        if t.name in homes:
            data = np.array(flat_input(t, given[t.name], env))
            memory[homes[t.name]] = Memory(machine, homes[t.name], data, np.ones(data.size, np.bool_), {})
    for kernel in program.plan.kernels:
        blocks, threads = launch_shape(kernel, env)
        arguments = [*(memory[b.name] for b in kernel.buffers), *scalars_of(kernel, env)]
        for b in kernel.buffers:
            touched = memory[b.name].touched
            if touched is not None:
                touched.clear()
        cuda = SimpleNamespace(
            blockDim=SimpleNamespace(**dict(zip("xyz", threads, strict=True))),
            gridDim=SimpleNamespace(**dict(zip("xyz", blocks, strict=True))),
            atomic=SimpleNamespace(add=_atomic(PAIRS["sum"]), max=_atomic(max)),
            local=SimpleNamespace(array=partial(_local, machine)),
            syncthreads=partial(machine.wait, None),
        )
        source = text(program.kernel_source(kernel))
        names = _names(machine, cuda, source)
        exec(compile(source, kernel.name, "exec"), names)
        machine.kernel = kernel.name
        for number, at in enumerate(_shuffled(blocks, order)):
            cuda.blockIdx = SimpleNamespace(**at)
            cuda.shared = Shared(machine, shared_layout(kernel.body).dynamic)
            machine.block, machine.epoch = number, 0
            _run_block(machine, cuda, partial(names[kernel.name], *arguments), threads, order)
    return {
        t.name: output_array(t, memory[homes[t.name]].data, env)
        if t.definition is not None
        else np.array(given[t.name].data)
        for t in fusion.outputs
    }


def _run_block(
    machine: Machine, cuda: Any, body: Callable[[], None], threads: Sequence[int], order: random.Random
) -> None:
    """Every thread of a block to its end."""
    greenlet: Any = import_module("greenlet")
    machine.home = greenlet.getcurrent()
    done = object()

    def whole() -> object:
        try:
            body()
        except NameError as error:
            raise machine.fault(str(error)) from error
        return done

    running = [(n, SimpleNamespace(**at), greenlet.greenlet(whole)) for n, at in enumerate(_places(threads))]
    answers: dict[int, Any] = {}
    while running:
        order.shuffle(running)
        asked: list[Any] = []
        for n, at, thread in running:
            cuda.threadIdx, machine.thread = at, n
            asked.append(thread.switch(answers[n]) if n in answers else thread.switch())
        kinds = {"the end" if x is done else "a barrier" if x is None else str(x.key) for x in asked}
        if len(kinds) > 1:
            raise machine.fault(f"threads of a block wait at {' and at '.join(sorted(kinds))}")
        if asked[0] is done:
            return
        exchanges = [x for x in asked if isinstance(x, Exchange)]
        given = _answers(machine, exchanges) if exchanges else [None] * len(asked)
        answers = {n: a for (n, _, _), a in zip(running, given, strict=True)}
        machine.epoch += not exchanges or exchanges[0].barrier


def _places(sizes: Sequence[int]) -> list[dict[str, int]]:
    return [dict(zip("xyz", p, strict=True)) for p in itertools.product(*map(range, sizes))]


def _shuffled(sizes: Sequence[int], order: random.Random) -> list[dict[str, int]]:
    found = _places(sizes)
    order.shuffle(found)
    return found
