"""A plan run thread by thread, looking for races: who touches which address between which barriers.

It reads the statements of a plan and nothing else: no schedule, no index map, no part of the planner. Threads of a
block run one after the other up to their next barrier, which is an order the hardware may choose; a fault is any pair
of threads that touch one address between two barriers, one of them writing, a barrier that some threads do not reach,
or a shared element that is read before it is written. Where threads combine values all have to come, as to a barrier;
but that orders no access of theirs, since it may be done by shuffles within warps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

import numpy as np

from idgraph.arith import Expr
from idgraph.index.allocation import is_thread
from idgraph.ir import item_size
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Comment,
    Compute,
    Constant,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Kernel,
    KernelModule,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
)

DIMENSIONS = ("x", "y", "z")
MEETS = "combine"  # the last part of a place where threads combine values
ADDER = -1  # the thread, and the block, that all additions in one step count as
Env = dict[str, int]


@dataclass(slots=True)
class Epoch:
    """The accesses since the last barrier, by thread."""

    writers: dict[tuple[str, int], set[int]] = field(default_factory=dict[tuple[str, int], set[int]])
    readers: dict[tuple[str, int], set[int]] = field(default_factory=dict[tuple[str, int], set[int]])

    def fault(self) -> str:
        for place, who in self.writers.items():
            others = who | self.readers.get(place, set())
            if len(others) > 1:
                kind = "written" if len(who) > 1 else "written and read"
                return f"{place[0]}[{place[1]}] is {kind} by threads {sorted(others)[:4]} without a barrier between"
        return ""


def _computed(op: str, given: Sequence[Any]) -> Any:
    """A value that may become an index: a cast one, or integers computed of others; None for the rest."""
    if op == "cast":
        return given[0]
    if not all(isinstance(x, (int, np.integer, np.bool_)) for x in given):
        return None
    match op, *map(int, given):
        case "add", int(a), int(b):
            return a + b
        case "sub", int(a), int(b):
            return a - b
        case "mul", int(a), int(b):
            return a * b
        case "ge", int(a), int(b):
            return a >= b
        case "lt", int(a), int(b):
            return a < b
        case "logical_and", int(a), int(b):
            return bool(a and b)
        case "where", int(c), int(a), int(b):
            return a if c else b
        case _:
            return None


@dataclass(slots=True)
class Thread:
    """One thread: its number, its indices, its private values, and the accesses it makes."""

    number: int
    indices: Mapping[str, int]
    block: Block
    values: dict[object, Any] = field(default_factory=dict[object, Any])

    def run(self, body: tuple[Stmt, ...], env: Env, active: bool = True) -> Iterator[tuple[str, ...]]:
        """Yields at each barrier; an inactive thread (past the end of its loop) only goes to the barriers."""
        for n, s in enumerate(body):
            match s:
                case Loop(var, extent, parallel, inner):
                    size = int(extent.evaluate(env))
                    if is_thread(parallel):
                        at = self.indices.get(parallel, 0) - int(s.first.evaluate(env))
                        yield from self.run(inner, {**env, var: at}, active and 0 <= at < size)
                        continue
                    for at in range(size):
                        for where in self.run(inner, {**env, var: at}, active):
                            yield (f"{n}.{at}", *where)
                case Barrier():
                    yield (str(n),)
                case BlockReduce(acc):
                    self.values[acc.name] = None
                    yield (str(n), MEETS)
                case If(condition, inner):
                    yield from self.run(inner, env, active) if not active or self.holds(condition, env) else ()
                case SingleThread(dims, inner):
                    first = all(self.indices.get(d, 0) == 0 for d in dims)
                    yield from self.run(inner, env, active) if first or not active else ()
                case StraightLineBlock(inner):
                    yield from self.run(inner, env, active)
                case BoundsCheck(condition, _, _, inner):
                    yield from self.run(inner, env, active) if not active or self.holds(condition, env) else ()
                case _:
                    if active:
                        self.straight(s, env)

    def holds(self, condition: Expr, env: Env) -> bool:
        return bool(condition.evaluate(env))

    def straight(self, s: Stmt, env: Env) -> None:
        match s:
            case Comment() | Alloc() | RegisterArray():
                pass
            case InitAccumulator(name, _, value):
                self.values[name] = value
            case Let(name, value):
                env[name] = int(self.value(value, env))
            case Load(local, buffer, address, guard):
                self.values[place(local, env)] = self.read(buffer, address, env) if self.holds(guard, env) else 0
            case Compute(local, op, operands):
                self.values[place(local, env)] = _computed(op, [self.value(o, env) for o in operands])
            case Select(local, cases, default):
                chosen = next((o for c, o in cases if self.holds(c, env)), default)
                self.values[place(local, env)] = self.value(chosen, env)
            case Accumulate(buffer=buffer, address=address):
                if s.shared and buffer is not None and address is not None:
                    self.add(buffer, address, env)
                elif buffer is not None and address is not None:
                    self.read(buffer, address, env)
                    self.write(buffer, address, env)
            case Store(buffer, address):
                self.write(buffer, address, env)
            case VectorLoad(made, buffer, address, pairs):
                found = [self.read(buffer, address + k, env) for k in range(len(made) * (1 + pairs))]
                for k, local in enumerate(made):
                    self.values[place(local, env)] = None if pairs else found[k]
            case VectorStore(buffer, address, values, pairs):
                for k in range(len(values) * (1 + pairs)):
                    self.write(buffer, address + k, env)
            case VectorAdd(buffer, address, values):
                at, size = int(address.evaluate(env)), len(values) * item_size(buffer.dtype)
                if at % len(values) or buffer.alignment % size:
                    self.block.faults.append(f"{buffer.name}[{at}] does not lie at a multiple of {size} bytes")
                for k in range(len(values)):
                    self.add(buffer, address + k, env)
            case Half2Op(local) | ExtractHalf(local):
                self.values[place(local, env)] = None
            case Loop() | If() | SingleThread() | StraightLineBlock() | BoundsCheck() | Barrier() | BlockReduce():
                raise AssertionError(f"{s} is not straight code")
            case _:
                assert_never(s)

    def value(self, o: Operand, env: Env) -> Any:
        match o:
            case Local():
                return self.values[place(o, env)]
            case Constant(value):
                return value
            case Index(value):
                return value.evaluate(env)
            case _:
                assert_never(o)

    def read(self, b: Buffer, address: Expr, env: Env) -> Any:
        at = int(address.evaluate(env))
        self.block.touch(b, at, self.number, False, env)
        if b.place == "input":
            data = self.block.inputs.get(b.title)
            return data[at] if data is not None else None
        return None

    def write(self, b: Buffer, address: Expr, env: Env) -> None:
        self.block.touch(b, int(address.evaluate(env)), self.number, True, env)

    def add(self, b: Buffer, address: Expr, env: Env) -> None:
        """In one step: threads that all add disturb each other as little as one thread alone."""
        self.block.touch(b, int(address.evaluate(env)), ADDER, True, env)


def place(x: Local, env: Env) -> object:
    """Where a thread keeps a variable, or an element of an array of them."""
    return x.name if x.at is None else (x.name, int(x.at.evaluate(env)))


@dataclass(slots=True)
class Block:
    """The threads of one block and what they touched between the last two barriers."""

    number: int
    inputs: Mapping[str, Any]
    everywhere: dict[tuple[str, int], set[tuple[int, bool]]]
    epoch: Epoch = field(default_factory=Epoch)
    written: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    faults: list[str] = field(default_factory=list[str])
    barriers: int = 0

    def touch(self, b: Buffer, at: int, thread: int, writes: bool, env: Env) -> None:
        size = int(b.size.evaluate(env))
        if not 0 <= at < size:
            self.faults.append(f"{b.name}[{at}] is outside its {size} elements")
        if b.place == "private" or b.place == "input":
            return
        place = (b.name, at)
        (self.epoch.writers if writes else self.epoch.readers).setdefault(place, set()).add(thread)
        if b.place == "shared":
            if writes:
                self.written.add(place)
            elif place not in self.written:
                self.faults.append(f"{b.name}[{at}] is read by thread {thread} before anybody wrote it")
        else:
            self.everywhere.setdefault(place, set()).add((ADDER if thread == ADDER else self.number, writes))

    def run(self, kernel: Kernel, threads: list[Mapping[str, int]], env: Env) -> None:
        running = [Thread(n, where, self).run(kernel.body, dict(env)) for n, where in enumerate(threads)]
        while True:
            met = [next(r, None) for r in running]
            if met[0] is not None and met[0][-1] == MEETS and all(m == met[0] for m in met):
                continue
            fault = self.epoch.fault()
            if fault:
                self.faults.append(fault)
            self.epoch = Epoch()
            if any(m != met[0] for m in met):
                self.faults.append(f"threads wait at different barriers: {sorted(set(map(str, met)))}")
                return
            if met[0] is None:
                return
            self.barriers += 1


def faults(
    plan: KernelModule, symbols: Mapping[str, int] | None = None, inputs: Mapping[str, Any] | None = None
) -> list[str]:
    """The faults of a plan for threads at these sizes; empty when there is none."""
    found: list[str] = []
    for kernel in plan.kernels:
        found += kernel_faults(kernel, symbols, inputs)[0]
    return found


def kernel_faults(
    kernel: Kernel, symbols: Mapping[str, int] | None = None, inputs: Mapping[str, Any] | None = None
) -> tuple[list[str], int]:
    """Faults of one kernel, and how many barriers its first block meets."""
    env: Env = dict(symbols or {})
    sizes = {dim: max(1, *(int(e.evaluate(env)) for e in found)) for dim, found in kernel.launch.items()}

    def points(kind: str) -> list[Mapping[str, int]]:
        dims = [f"{kind}Idx.{d}" for d in DIMENSIONS]
        return [dict(zip(dims, p, strict=True)) for p in itertools.product(*(range(sizes.get(d, 1)) for d in dims))]

    everywhere: dict[tuple[str, int], set[tuple[int, bool]]] = {}
    found: list[str] = []
    met = 0
    for number, block in enumerate(points("block")):
        state = Block(number, inputs or {}, everywhere)
        state.run(kernel, [{**block, **t} for t in points("thread")], env)
        found += state.faults
        met = max(met, state.barriers)
    for (name, at), who in everywhere.items():
        if len({n for n, _ in who}) > 1 and any(writes for _, writes in who):
            found.append(f"{name}[{at}] is written by one block and touched by another")
    return found, met
