"""Programs in the neutral form run on numbers: what they store, and what they should.

Which operation a nest computes, the form does not say: it says which elements are read. So each operation stands for
the sum of its operands (modulo 2^64), scaled and moved by numbers of its own where its result has a buffer; a move
stands for itself, a filled value for 0. A write stores the sum of its reads over the reduced loops, with its tensor's
numbers; an element that one point reads twice counts once. A nest that reads other elements than the program means
then stores another number, almost surely. Memory that nothing has written gives a new random number at each read.

The iterations of a loop in any order run in one order or the other, and mixed, step by step: the seed says how. A
touch outside of an argument or a result, or below address 0, is a mistake too. Plain Python, which shares nothing with
the checker but the form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import assert_never

import numpy as np
import numpy.typing as npt

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
    Write,
)
from idgraph.check.program_tree import leaves, tree_of
from idgraph.ir import SCATTERS, Fusion, Tensor
from idgraph.ir.op_table import SCANS
from idgraph.validate.oracle import INDEXED, reads, shape_of

MOST = 1 << 20  # points that a run may have
_WORD = 1 << 64
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

Numbers = npt.NDArray[np.uint64]
Table = npt.NDArray[np.int64]
Steps = Iterator[None]


@dataclass(frozen=True, slots=True)
class Execution:
    """``outputs``: what the memory of each output holds at the end; ``meant``: the program's own numbers (uint64);
    ``outside``: the first touch outside of a memory, "" where there is none.
    """

    outputs: Mapping[str, Numbers]
    meant: Mapping[str, Numbers]
    outside: str = ""

    @property
    def right(self) -> bool:
        """Whether each output holds the numbers that the program means, and nothing was touched outside of a memory.

        >>> Execution({"y": np.zeros(2, np.uint64)}, {"y": np.ones(2, np.uint64)}).right
        False
        """
        return not self.outside and all(np.array_equal(self.outputs[n], v) for n, v in self.meant.items())

    def __bool__(self) -> bool:
        return self.right


def run(p: NeutralProgram, inputs: Mapping[str, object], sizes: Mapping[str, int], seed: int) -> Execution:
    """See `idgraph.check.interpret`."""
    missing = sorted(p.symbols.keys() - sizes.keys())
    if missing:
        raise CheckError(f"no value for the symbol {missing[0]!r}", hint=f'pass sizes={{"{missing[0]}": 8}}')
    machine = _Machine(p, dict(sizes), random.Random(seed), _ORDERS[seed % len(_ORDERS)])
    ranges = _index_ranges(p.fusion, sizes)
    given = {
        t.name: machine.numbers(t.name, shape_of(t, sizes), inputs.get(t.name), ranges.get(t.name, _WORD))
        for t in p.fusion.inputs
    }
    machine.own = {
        t.name: (machine.draw.randrange(1, _WORD, 2), machine.draw.randrange(_WORD))
        for t in p.fusion.tensors
        if t.definition is not None and t.definition.op not in _MOVES and any(b.tensor == t.name for b in p.buffers)
    }
    meant = _meant(p.fusion, given, sizes, machine.own)
    machine.buffers = {b.name: b for b in p.buffers}
    machine.tensors = {t.name: t for t in p.fusion.tensors}
    machine.start(given)
    machine.all()
    found = {t.name: machine.contents(t.name, shape_of(t, sizes)) for t in p.fusion.outputs}
    return Execution(found, {n: meant[n] for n in found}, machine.outside)


def _index_ranges(f: Fusion, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many values an integer argument may have that names elements: those of the shortest axis that it may name."""
    out: dict[str, int] = {}
    for e in f.exprs:
        if e.op not in INDEXED:
            continue
        most = min(shape_of(e.inputs[INDEXED[e.op]], sizes), default=1)
        for k, t in enumerate(e.inputs):
            if k == INDEXED[e.op]:
                continue
            while t.definition is not None:
                if t.definition.op not in _MOVES:
                    raise CheckError(f"{t.name}, an index, is computed: it is not run on numbers")
                t = t.definition.inputs[0]
            out[t.name] = min(most, out.get(t.name, most))
    return out


def _meant(
    f: Fusion, given: Mapping[str, Numbers], sizes: Mapping[str, int], own: Mapping[str, tuple[int, int]]
) -> dict[str, Numbers]:
    known = dict(given)
    for e in f.exprs:
        if e.op in SCATTERS:
            raise CheckError(
                f"{e.output.name} = {e.op} is not run on numbers", because=("it is not a sum of its operands",)
            )
        integers = {t.name: known[t.name].astype(np.int64) for t in e.inputs} if e.op in INDEXED else {}
        reduced = tuple(k for k, d in enumerate(e.output.logical) if d.kind == "reduction")
        total = np.zeros(shape_of(e.output, sizes), dtype=np.uint64)
        before: list[tuple[str, Table]] = []
        for k, t in enumerate(e.inputs):
            table = np.asarray(reads(e, k, integers, dict(sizes)))
            for name, other in before:
                if name == t.name and other.shape == table.shape:  # one element, read once
                    table = np.where(table == other, -1, table)
            before.append((t.name, table))
            flat = np.append(known[t.name].reshape(-1), np.uint64(0))  # -1: nothing is read
            total = total + flat[table].sum(axis=reduced, dtype=np.uint64).reshape(total.shape)
        if e.op in SCANS:
            total = np.cumsum(total, axis=int(str(e.attrs["dim"])), dtype=np.uint64)
        scale, shift = own.get(e.output.name, (1, 0))
        known[e.output.name] = total * np.uint64(scale) + np.uint64(shift)
    return known


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
        yield


def _interleaved(runs: list[Callable[[], Steps]], draw: random.Random) -> Steps:
    live = [run() for run in runs]
    while live:
        k = draw.randrange(len(live))
        if next(live[k], _END) is _END:
            live.pop(k)
        yield


_END = object()
_ORDERS = (_one_by_one, _backwards, _in_step, _interleaved, _shuffled)


@dataclass(slots=True)
class _Machine:
    """Memories by storage and address."""

    program: NeutralProgram
    sizes: dict[str, int]
    draw: random.Random
    order: Callable[[list[Callable[[], Steps]], random.Random], Steps]
    memory: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    own: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # by results of operations
    buffers: dict[str, BufferLayout] = field(default_factory=dict[str, BufferLayout])
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    ends: dict[str, int] = field(default_factory=dict[str, int])  # of arguments and results
    written: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])  # the tensor, by place
    outside: str = ""
    steps: int = 0
    copies: int = 0

    def numbers(self, name: str, shape: tuple[int, ...], given: object, most: int) -> Numbers:
        if given is None:
            drawn = [self.draw.randrange(most) for _ in range(prod(shape))]
            return np.array(drawn, dtype=np.uint64).reshape(shape)
        found = np.asarray(given)
        if found.dtype.kind not in "iub" or found.shape != shape:
            raise CheckError(f"inputs[{name!r}]: it is not an array of integers of shape {shape}")
        return found.astype(np.int64).astype(np.uint64)

    def places(self, b: BufferLayout, shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], int]]:
        start, steps = int(b.offset.evaluate(self.sizes)), [int(s.evaluate(self.sizes)) for s in b.strides]
        for c in product(*map(range, shape)):
            yield c, start + sum(x * s for x, s in zip(c, steps, strict=True))

    def start(self, given: Mapping[str, Numbers]) -> None:
        f = self.program.fusion
        ends = {t.name for t in (*f.inputs, *f.outputs)}
        shapes = {
            t.name: shape_of(t, self.sizes) for t in f.tensors if any(b.tensor == t.name for b in self.buffers.values())
        }
        sized = {b.home for b in self.buffers.values() if b.tensor in ends}
        for b in self.buffers.values():
            places = list(self.places(b, shapes[b.tensor]))
            if b.home in sized:
                self.ends[b.home] = max(self.ends.get(b.home, 0), *(at + 1 for _, at in places), 0)
            if b.tensor in given:
                for c, at in places:
                    self.memory[b.home, at] = int(given[b.tensor][c])

    def contents(self, name: str, shape: tuple[int, ...]) -> Numbers:
        out = np.array([self.draw.randrange(_WORD) for _ in range(prod(shape))], dtype=np.uint64).reshape(shape)
        own = next((b for b in self.buffers.values() if b.tensor == name), None)
        if own is not None:
            for c, at in self.places(own, shape):
                out[c] = self.load(own.home, at)
        return out

    def load(self, home: str, at: int) -> int:
        found = self.memory.get((home, at))
        return self.draw.randrange(_WORD) if found is None else found

    def all(self) -> None:
        """The whole program."""
        tree = tree_of(self.program)
        placed = next((n.name for n in leaves(tree) if n.position is not None), None)
        if placed is not None:
            raise CheckError(f"{placed} gives a position, which is not run on numbers")
        unread = next((n.name for n in leaves(tree) if n.unread or n.loose), None)
        if unread is not None:
            raise CheckError(f"{unread} is not run on numbers: its formulas could not be read")
        placed = next((n.name for n in leaves(tree) if n.position is not None), None)
        if placed is not None:
            raise CheckError(f"{placed} gives a position, which is not run on numbers")
        for _ in self.nodes(tree, {}, {}):
            pass

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
            own[name] = f"{name}#{self.copies}"
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

    def point(self, n: Nest, at: Mapping[str, int], homes: Mapping[str, str]) -> Steps:
        """All writes at one point, each after all values of its reduced loops; a step before it stores, one after."""
        for w in n.writes:
            b = self.buffers.get(w.buffer)
            tensor = b.tensor if b is not None else ""
            scale, shift = self.own.get(tensor, (1, 0))
            total, live = 0, False
            for inner in self.points(n.reduce):
                env = self.bound(n, {**self.sizes, **at, **inner}, homes)
                if w.when.evaluate(env):
                    live = True
                    total += self.sum(n, w, env, homes)
            yield
            if live:
                where = self.place(w.buffer, w.index, self.bound(n, {**self.sizes, **at}, homes), homes)
                before = self.load(*where) - shift if w.mode == "add" else 0
                self.memory[where] = (before + total * scale + shift) % _WORD
                self.written[where] = tensor
            yield

    def sum(self, n: Nest, w: Write, env: Mapping[str, int], homes: Mapping[str, str]) -> int:
        where = {self.place(r.buffer, r.index, env, homes) for r in w.reads if r.when.evaluate(env)}
        b = self.buffers.get(w.buffer)
        if b is None or b.tensor not in self.own or n.reduce or w.mode == "add":
            return sum(self.load(*x) for x in where)
        to = self.place(w.buffer, w.index, env, homes)
        scan = self.tensors[b.tensor].definition
        running = scan is not None and scan.op in SCANS
        scale, shift = self.own[b.tensor]
        inverse = pow(scale, -1, _WORD)  # an element of the result that its own operation goes on from
        return sum(
            (self.load(*x) - shift) * inverse
            if self.written.get(x) == b.tensor and (x == to or running)
            else self.load(*x)
            for x in where
        )

    def bound(self, n: Nest, env: dict[str, int], homes: Mapping[str, str]) -> dict[str, int]:
        """The point with the loaded values of the nest."""
        left: dict[str, object] = {**n.loads, **n.places}
        for _ in range(len(left)):
            for name in [x for x in left if x not in env]:
                load, place = n.loads.get(name), n.places.get(name)
                if load is not None and load.text:
                    raise CheckError(f"{n.name}: {load.text[:80]!r} is not run on numbers")
                if load is not None and load.index.names <= env.keys():
                    value = self.load(*self.place(load.buffer, load.index, env, homes))
                    env[name] = value - _WORD if value >= _WORD // 2 else value
                if place is not None and place.value.names <= env.keys():
                    env[name] = int(place.value.evaluate(env)) % max(int(place.size.evaluate(env)), 1)
        return env

    def place(self, name: str, index: Expr, env: Mapping[str, int], homes: Mapping[str, str]) -> tuple[str, int]:
        b = self.buffers.get(name)
        home, base = (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))
        at = int(index.evaluate(env)) + int(base.evaluate(self.sizes))
        if (at < 0 or at >= self.ends.get(home, at + 1)) and not self.outside:
            self.outside = f"{name}[{at}]"
        return homes.get(name, home), at
