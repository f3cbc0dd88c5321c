"""The address check of a kernel as a kernel for a GPU: the same IR and launch, its accesses as comparisons.

Blocks and threads are those of the device, barriers are barriers, and memory of blocks and threads holds element
numbers: a read finds there what the threads of this launch have left. Blocks take turns where there are more than
`BLOCKS`, each with all arrays empty at the start of a turn, unless an array outlives a block's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from idgraph.arith import Expr
from idgraph.ir.device import current_device
from idgraph.kernel.ir import Barrier, BlockReduce, Buffer, Loop, SingleThread, Stmt, walk
from idgraph.validate.kernel_check_source import LOOPS, OUT, POINT, KernelCheckSource, loop_chains, source_name

BLOCKS: Final = 132 * 8  # at a time, each with private and shared arrays of its own
SLOT_BYTES: Final = 1 << 31  # of all those arrays, at most
VIEW_BYTES: Final = 1 << 32  # a table that is a view must be written out for the device
_THREADS: Final = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(slots=True)
class DeviceSource(KernelCheckSource):
    """``check`` as a kernel: launch it on ``blocks`` and ``block`` threads. Marks of writes are counted in 32 bits."""

    blocks: int = 1
    turns: bool = True  # blocks of the device take those of the kernel in turn; else there are as many

    @property
    def block(self) -> tuple[int, ...]:
        """Threads of a block in each dimension."""
        return tuple(self.launched(d) for d in _THREADS)

    def build(self) -> str:
        """See `KernelCheckSource.build`."""
        self.find_slots()
        own = sum(self.size(b) * (prod(self.block) if b.place == "private" else 1) for b in self.own_slots())
        launched = self.launched("blockIdx.x")
        self.turns = not any(map(self.spans, self.slots))
        self.blocks = max(1, min(launched, BLOCKS, SLOT_BYTES // (8 * max(1, own)))) if self.turns else launched
        for b in self.slots.values():
            self.arrays[f"slot_{b.name}"] = np.full(max(1, self.size(b) * self.copies(b)), -1, np.int64)
        self.level(self.kernel.body, self.statements_to_keep(), 1, {})
        head = f"def check(out, {', '.join(self.arrays)}):"
        return "\n".join([head, "    n = 0", *self.lines, "    cuda.atomic.add(out, 4, n)"])

    # memory of blocks and threads ---------------------------------------------------------------------------------

    def spans(self, name: str) -> bool:
        """True of an array that a block keeps from one of its loops to the next."""
        chains: list[list[Loop]] = []
        loop_chains(self.kernel.body, name, [], chains)
        return len({next((id(s) for s in c if s.parallel == "blockIdx.x"), 0) for c in chains}) > 1

    def own_slots(self) -> list[Buffer]:
        """Arrays of which each thread, or each block, has its own."""
        return [b for b in self.slots.values() if b.place in ("private", "shared")]

    def copies(self, b: Buffer) -> int:
        match b.place:
            case "private":
                return self.blocks * prod(self.block)
            case "shared":
                return self.blocks
            case _:
                return 1

    def start(self, b: Buffer) -> str:
        """The first element of this thread's array."""
        block, thread = "np.int64(cuda.blockIdx.x)", self.thread()
        match b.place:
            case "private":
                return f"({block} * {prod(self.block)} + {thread}) * {self.size(b)}"
            case "shared":
                return f"{block} * {self.size(b)}"
            case _:
                return "0"

    def thread(self) -> str:
        """The number of the thread in its block."""
        x, y, _ = self.block
        return f"(np.int64(cuda.threadIdx.x) + {x} * cuda.threadIdx.y + {x * y} * cuda.threadIdx.z)"

    def slot(self, b: Buffer, address: str, others: Mapping[str, str]) -> str:
        return f"slot_{b.name}[{self.start(b)} + {address}]"

    def others(self, b: Buffer) -> list[str]:
        return []  # what stands outside of the loops over threads runs on each of them

    def emptied(self, depth: int) -> None:
        """Nothing in the arrays: each thread empties its own, and a part of the block's."""
        shared = False
        for b in self.own_slots():
            steps = f"{self.size(b)}"
            if b.place == "shared":
                shared, steps = True, f"{self.thread()}, {self.size(b)}, {prod(self.block)}"
            self.put(depth, f"for z in range({steps}):")
            self.put(depth + 1, f"slot_{b.name}[{self.start(b)} + z] = -1")
        if shared:
            self.put(depth, "cuda.syncthreads()")

    # statements ---------------------------------------------------------------------------------------------------

    def level(
        self, body: Sequence[Stmt], kept: set[int], depth: int, resets: Mapping[int, list[str]], of: int = 0
    ) -> None:
        before = len(self.lines)
        for s in body:
            waits = bool(self.slots) and any(isinstance(x, (Barrier, BlockReduce)) for x in walk((s,)))
            if id(s) in kept:
                if isinstance(s, SingleThread):
                    self.put(depth, f"if {' and '.join(f'cuda.{d} == 0' for d in s.dims)}:")
                    self.level(s.body, kept, depth + 1, resets)
                else:
                    self.statement(s, kept, depth, resets)
            elif waits:  # also where what else it does is not looked at
                self.put(depth, "cuda.syncthreads()")
        if len(self.lines) == before:
            self.put(depth, "pass")

    def loop(self, s: Loop, kept: set[int], depth: int, resets: Mapping[int, list[str]]) -> None:
        name, extent = source_name(s.var), self.text(s.extent)
        scope = self.scope
        self.scope = {**scope, s.var: name}
        if s.parallel in _THREADS:
            self.put(depth, f"{name} = np.int64(cuda.{s.parallel})")
            if self.exact(s):
                self.level(s.body, kept, depth, resets)
            else:
                self.guarded(s.body, f"{name} < {extent}", kept, depth)
        else:
            steps = extent
            if depth == 1 and self.part is not None:
                steps = f"{extent} * {self.part[0]} // 1024, ({extent} * {self.part[1]} + 1023) // 1024"
            own = s.parallel == "blockIdx.x"
            if own:
                first, _, last = steps.rpartition(", ") if self.part is not None and depth == 1 else ("0", "", steps)
                steps = f"{first} + np.int64(cuda.blockIdx.x), {last}, np.int64(cuda.gridDim.x)"
            self.put(depth, f"for {name} in range({steps}):")
            if own and self.turns and self.own_slots():
                self.put(depth + 1, "cuda.syncthreads()")
                self.emptied(depth + 1)
            self.level(s.body, kept, depth + 1, resets)
        self.scope = scope

    def exact(self, s: Loop) -> bool:
        """True when as many threads run as the loop has steps."""
        extent: Expr = self.bound(s.extent)
        return extent.is_const and int(extent) == self.launched(s.parallel)

    def guarded(self, body: Sequence[Stmt], test: str, kept: set[int], depth: int) -> None:
        """The statements where ``test`` holds, barriers among them for every thread."""
        for s in body:
            if any(isinstance(x, (Barrier, BlockReduce)) for x in walk((s,))):
                if isinstance(s, Loop) and id(s) in kept:
                    name = source_name(s.var)
                    self.put(depth, f"for {name} in range({self.text(s.extent)}):")
                    scope, self.scope = self.scope, {**self.scope, s.var: name}
                    self.guarded(s.body, test, kept, depth + 1)
                    self.scope = scope
                elif self.slots:
                    self.put(depth, "cuda.syncthreads()")
            elif id(s) in kept:
                self.put(depth, f"if {test}:")
                self.level((s,), kept, depth + 1, {})

    # faults and marks ---------------------------------------------------------------------------------------------

    def fail(self, depth: int, when: str, code: int, address: str, want: str, point: Sequence[str]) -> None:
        if when == "False":
            return
        self.put(depth, f"if {when}:")
        self.put(depth + 1, f"if cuda.atomic.compare_and_swap(out, 0, {code}) == 0:")
        told = [str(len(self.places) - 1), address, want]
        lines = [f"out[{k + 1}] = {x}" for k, x in enumerate(told)]
        lines += [f"out[{POINT + k}] = {x}" for k, x in enumerate(point[: LOOPS - POINT - 1])]
        around = list(self.scope.values())[: OUT - LOOPS - 1]
        lines += [f"out[{LOOPS + k}] = {x}" for k, x in enumerate(around)]
        for line in lines:
            self.put(depth + 2, line)
        self.put(depth + 1, "return")

    def mark(self, depth: int, operand: int | None, point: Sequence[str], shape: tuple[int, ...]) -> None:
        name = "wrote" if operand is None else f"seen_{operand}"
        if name not in self.arrays:
            self.arrays[name] = np.zeros(shape or (1,), np.uint8 if operand is not None else np.int32)
            self.seen[operand] = name
        if operand is not None:  # once is enough: all threads leave the same
            self.put(depth, f"{name}[{', '.join(point) or '0'}] = 1")
            return
        at = f"({', '.join(point)},)" if len(point) > 1 else point[0] if point else "0"
        self.put(depth, f"cuda.atomic.add({name}, {at}, 1)")


def fits_device(source: DeviceSource) -> bool:
    """True where a block of the kernel fits a device, and tables have elements, not too many to write views out."""
    whole = all(a.size > 0 and (a.flags.c_contiguous or a.nbytes <= VIEW_BYTES) for a in source.arrays.values())
    slots = sum(a.nbytes for n, a in source.arrays.items() if n.startswith("slot_"))
    return whole and slots <= SLOT_BYTES and prod(source.block) <= current_device().block_threads
