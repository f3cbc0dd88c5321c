"""How a tree of loops runs on numbers of any kind: memories, orders of iterations, touches outside of a memory.

The iterations of a loop in any order run in one order or the other, and mixed, step by step: the seed says how. What a
statement computes, and the number in memory that nothing has written, are the machine's that runs it
(`idgraph.check.interpreter`: each operation a sum; `idgraph.check.statement_values`: what statements say).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, assert_never

from idgraph.arith import Expr
from idgraph.check.program import (
    ZERO,
    Axis,
    BufferLayout,
    CheckError,
    Nest,
    NeutralProgram,
    TreeGuard,
    TreeLoop,
    TreeNode,
)
from idgraph.validate.oracle import shape_of

MOST = 1 << 20  # points that a run may have
_COPY = "\0"  # before the number of a copy: no name has it

Place = tuple[str, int]
Steps = Iterator[bool]  # whether what the iteration stores next is computed and not yet stored
Order = Callable[[list[Callable[[], Steps]], random.Random], Steps]


def _one_by_one(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    for run in runs:
        yield from run()


def _backwards(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    for run in reversed(runs):
        yield from run()


def _shuffled(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    for run in draw.sample(runs, len(runs)):
        yield from run()


def _in_step(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    """All iterations make their first step, then all their second, and so on."""
    live = [run() for run in draw.sample(runs, len(runs))]
    while live:
        live = [x for x in live if next(x, _END) is not _END]
        yield False


def _interleaved(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    live = [run() for run in runs]
    while live:
        k = draw.randrange(len(live))
        step = next(live[k], _END)
        if step is _END:
            live.pop(k)
        yield step is True


def _stalled(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    """One iteration waits before it stores something, until all others are done."""
    others = draw.sample(runs, len(runs))
    late = others.pop()() if others else iter(())
    for pending in late:
        yield pending
        if pending and draw.random() < 0.5:
            break
    for run in others:
        yield from run()
    yield from late


_END = object()
ORDERS: tuple[Order, ...] = (
    _one_by_one, _backwards, _in_step, _interleaved, _stalled, _shuffled, _stalled, _interleaved, _stalled, _in_step,
)  # fmt: skip


@dataclass(slots=True)
class TreeMachine:
    """Memories by storage and address; a machine of its own kind says what `point` and `unwritten` do."""

    program: NeutralProgram
    sizes: dict[str, int]
    draw: random.Random
    order: Order
    memory: dict[Place, Any] = field(default_factory=dict[Place, Any])
    buffers: dict[str, BufferLayout] = field(default_factory=dict[str, BufferLayout])
    ends: dict[str, int] = field(default_factory=dict[str, int])  # of arguments and results
    outside: str = ""
    steps: int = 0
    copies: int = 0

    def point(self, n: Nest, at: Mapping[str, int], homes: Mapping[str, str]) -> Steps:
        """All writes at one point; a step before it stores, one after."""
        raise NotImplementedError

    def unwritten(self) -> Any:
        """A number of memory that nothing has written, a new one each time."""
        raise NotImplementedError

    def places(self, b: BufferLayout, shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
        start, steps = int(b.offset.evaluate(self.sizes)), [int(s.evaluate(self.sizes)) for s in b.strides]
        for c in product(*map(range, shape)):
            yield c, start + sum(x * s for x, s in zip(c, steps, strict=True))

    def start(self, given: Mapping[str, Any]) -> None:
        """Memories as the program begins; an argument's ends with it, whatever else lies there."""
        f, p = self.program.fusion, self.program
        self.buffers = {b.name: b for b in p.buffers}
        self.ends = {home: int(n.evaluate(self.sizes)) for home, n in p.sizes.items()}
        arguments, results = {t.name for t in f.inputs}, {t.name for t in f.outputs}
        taken = {b.home for b in p.buffers if b.tensor in arguments}
        sized = taken | {b.home for b in p.buffers if b.tensor in results}
        shapes = {t.name: shape_of(t, self.sizes) for t in f.tensors if any(b.tensor == t.name for b in p.buffers)}
        for b in p.buffers:
            places = list(self.places(b, shapes[b.tensor]))
            if b.home in sized - p.sizes.keys() and (b.tensor in arguments or b.home not in taken):
                self.ends[b.home] = max(self.ends.get(b.home, 0), *(at + 1 for _, at in places), 0)
            if b.tensor in given:
                for c, at in places:
                    self.memory[b.home, at] = given[b.tensor][c]

    def load(self, home: str, at: int) -> Any:
        found = self.memory.get((home, at))
        return self.unwritten() if found is None else found

    def nodes(self, body: Sequence[TreeNode], at: Mapping[str, int], homes: Mapping[str, str]) -> Steps:
        """The nodes one after the other; ``homes`` are memories that an iteration has of its own."""
        for node in body:
            match node:
                case Nest():
                    for point in self.points(node.loops):
                        yield from self.point(node, {**at, **point}, homes)
                case TreeGuard():
                    if node.when.evaluate({**self.sizes, **at}):
                        yield from self.nodes(node.body, at, homes)
                case TreeLoop():
                    runs = [self.iteration(node, p, at, homes) for p in self.points((node.axis,))]
                    yield from (self.order if node.any_order else _one_by_one)(runs, self.draw)
                case _:
                    assert_never(node)

    def iteration(
        self, loop: TreeLoop, point: Mapping[str, int], at: Mapping[str, int], homes: Mapping[str, str]
    ) -> Callable[[], Steps]:
        own = dict(homes)
        for name in loop.private:
            self.copies += 1
            own[name] = f"{name}{_COPY}{self.copies}"
        return lambda: self.nodes(loop.body, {**at, **point}, own)

    def points(self, axes: Sequence[Axis]) -> Iterator[dict[str, int]]:
        spans = [int(a.extent.evaluate(self.sizes)) for a in axes]
        if prod(spans) > MOST:
            raise CheckError(f"{prod(spans)} points are too many to run")
        for c in product(*map(range, spans)):
            self.steps += 1
            if self.steps > MOST:
                raise CheckError(f"more than {MOST} points are too many to run")
            yield dict(zip((a.name for a in axes), c, strict=True))

    def place(self, name: str, index: Expr, env: Mapping[str, int], homes: Mapping[str, str]) -> tuple[str, int]:
        b = self.buffers.get(name)
        home, base = (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))
        at = int(index.evaluate(env)) + int(base.evaluate(self.sizes))
        if (at < 0 or at >= self.ends.get(home, at + 1)) and not self.outside:
            self.outside = f"{name}[{at}]"
        return homes.get(name, home), at
