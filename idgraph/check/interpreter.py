"""Programs in the neutral form run on numbers: what they store, and what they should.

Which operation a nest computes, the form does not say: it says which elements are read. So each operation stands for
the sum of its operands (modulo 2^64), scaled and moved by numbers of its own where its result has a buffer; a move
stands for itself, a filled value for 0. A write stores the sum of its reads over the reduced loops, with its tensor's
numbers. A nest that reads other elements than the program means then stores another number, almost surely. (So does
one that computes again what another buffer holds, though it may be right.) Memory that nothing has written gives a
new random number at each read. Plain Python, which shares nothing with the checker but the form.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr
from idgraph.check.program import ZERO, Axis, BufferLayout, CheckError, Nest, NeutralProgram
from idgraph.ir import SCATTERS, Fusion
from idgraph.ir.op_table import SCANS
from idgraph.validate.oracle import INDEXED, reads, shape_of

MOST = 1 << 20  # points that a run may have
_WORD = 1 << 64
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Execution:
    """``outputs``: what the memory of each output holds at the end; ``meant``: the program's own numbers (uint64)."""

    outputs: Mapping[str, Numbers]
    meant: Mapping[str, Numbers]

    @property
    def right(self) -> bool:
        """Whether each output holds the numbers that the program means.

        >>> Execution({"y": np.zeros(2, np.uint64)}, {"y": np.ones(2, np.uint64)}).right
        False
        """
        return all(np.array_equal(self.outputs[n], v) for n, v in self.meant.items())

    def __bool__(self) -> bool:
        return self.right


def run(p: NeutralProgram, inputs: Mapping[str, object], sizes: Mapping[str, int], seed: int) -> Execution:
    """See `idgraph.check.interpret`."""
    missing = sorted(p.symbols.keys() - sizes.keys())
    if missing:
        raise CheckError(f"no value for the symbol {missing[0]!r}", hint=f'pass sizes={{"{missing[0]}": 8}}')
    machine = _Machine(p, dict(sizes), random.Random(seed))
    given = {t.name: machine.numbers(t.name, shape_of(t, sizes), inputs.get(t.name)) for t in p.fusion.inputs}
    machine.own = {
        t.name: (machine.draw.randrange(1, _WORD, 2), machine.draw.randrange(_WORD))
        for t in p.fusion.tensors
        if t.definition is not None and t.definition.op not in _MOVES and any(b.tensor == t.name for b in p.buffers)
    }
    meant = _meant(p.fusion, given, sizes, machine.own)
    machine.start(given)
    machine.all()
    found = {t.name: machine.contents(t.name, shape_of(t, sizes)) for t in p.fusion.outputs}
    return Execution(found, {n: meant[n] for n in found})


def _meant(
    f: Fusion, given: Mapping[str, Numbers], sizes: Mapping[str, int], own: Mapping[str, tuple[int, int]]
) -> dict[str, Numbers]:
    known = dict(given)
    for e in f.exprs:
        if e.op in SCATTERS or e.op in SCANS or e.op in INDEXED:
            raise CheckError(
                f"{e.output.name} = {e.op} is not run on numbers", because=("it is not a sum of its operands",)
            )
        reduced = tuple(k for k, d in enumerate(e.output.logical) if d.kind == "reduction")
        total = np.zeros(shape_of(e.output, sizes), dtype=np.uint64)
        for k, t in enumerate(e.inputs):
            table = np.asarray(reads(e, k, symbols=dict(sizes)))
            flat = np.append(known[t.name].reshape(-1), np.uint64(0))  # -1: nothing is read
            total = total + flat[table].sum(axis=reduced, dtype=np.uint64).reshape(total.shape)
        scale, shift = own.get(e.output.name, (1, 0))
        known[e.output.name] = total * np.uint64(scale) + np.uint64(shift)
    return known


@dataclass(slots=True)
class _Machine:
    """Memories by storage and address."""

    program: NeutralProgram
    sizes: dict[str, int]
    draw: random.Random
    memory: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    own: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # by results of operations

    def numbers(self, name: str, shape: tuple[int, ...], given: object) -> Numbers:
        if given is None:
            drawn = [self.draw.randrange(_WORD) for _ in range(prod(shape))]
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
        for b in self.program.buffers:
            if b.tensor in given:
                for c, at in self.places(b, given[b.tensor].shape):
                    self.memory[b.home, at] = int(given[b.tensor][c])

    def contents(self, name: str, shape: tuple[int, ...]) -> Numbers:
        out = np.array([self.draw.randrange(_WORD) for _ in range(prod(shape))], dtype=np.uint64).reshape(shape)
        own = next((b for b in self.program.buffers if b.tensor == name), None)
        if own is not None:
            for c, at in self.places(own, shape):
                out[c] = self.load(own.home, at)
        return out

    def load(self, home: str, at: int) -> int:
        found = self.memory.get((home, at))
        return self.draw.randrange(_WORD) if found is None else found

    def all(self) -> None:
        """All nests; those of one kernel that stand together are one loop, its points in a random order."""
        p = self.program
        named = {n.name: n for n in p.nests}
        calls = [x for x in p.order if x not in named]
        placed = next((n.name for n in p.nests if n.position is not None), None)
        if placed is not None:
            raise CheckError(f"{placed} gives a position, which is not run on numbers")
        if calls:
            raise CheckError(f"the call {calls[0]!r} is not run on numbers")
        groups: list[list[Nest]] = []
        for n in (named[x] for x in p.order or named):
            if groups and n.kernel and groups[-1][0].kernel == n.kernel:
                groups[-1].append(n)
            else:
                groups.append([n])
        for group in groups:
            points = [list(self.points(n.loops)) for n in group]
            if len({len(x) for x in points}) > 1:
                raise CheckError(f"nests of the kernel {group[0].kernel!r} have not the same number of points")
            order = list(range(len(points[0])))
            if group[0].kernel:
                self.draw.shuffle(order)
            for k in order:
                for n, own in zip(group, points, strict=True):
                    self.point(n, own[k])

    def points(self, axes: Sequence[Axis]) -> Iterator[dict[str, int]]:
        spans = [int(a.extent.evaluate(self.sizes)) for a in axes]
        if prod(spans) > MOST:
            raise CheckError(f"{prod(spans)} points are too many to run")
        for c in product(*map(range, spans)):
            yield dict(zip((a.name for a in axes), c, strict=True))

    def point(self, n: Nest, at: Mapping[str, int]) -> None:
        """All writes at one point, each after all values of its reduced loops."""
        for w in n.writes:
            b = next((b for b in self.program.buffers if b.name == w.buffer), None)
            scale, shift = self.own.get(b.tensor, (1, 0)) if b is not None and w.mode == "store" else (1, 0)
            total, live = 0, False
            for inner in self.points(n.reduce):
                env = self.bound(n, {**self.sizes, **at, **inner})
                if not w.when.evaluate(env):
                    continue
                live = True
                for r in w.reads:
                    if r.when.evaluate(env):
                        total += self.load(*self.place(r.buffer, r.index, env))
            if live:
                where = self.place(w.buffer, w.index, self.bound(n, {**self.sizes, **at}))
                before = self.load(*where) if w.mode == "add" else 0
                self.memory[where] = (before + total * scale + shift) % _WORD

    def bound(self, n: Nest, env: dict[str, int]) -> dict[str, int]:
        """The point with the loaded values of the nest."""
        left: dict[str, object] = {**n.loads, **n.places}
        for _ in range(len(left)):
            for name in [x for x in left if x not in env]:
                load, place = n.loads.get(name), n.places.get(name)
                if load is not None and load.text:
                    raise CheckError(f"{n.name}: {load.text[:80]!r} is not run on numbers")
                if load is not None and load.index.names <= env.keys():
                    value = self.load(*self.place(load.buffer, load.index, env))
                    env[name] = value - _WORD if value >= _WORD // 2 else value
                if place is not None and place.value.names <= env.keys():
                    env[name] = int(place.value.evaluate(env)) % max(int(place.size.evaluate(env)), 1)
        return env

    def place(self, name: str, index: Expr, env: Mapping[str, int]) -> tuple[str, int]:
        b = next((b for b in self.program.buffers if b.name == name), None)
        home, base = (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))
        return home, int(index.evaluate(env)) + int(base.evaluate(self.sizes))
