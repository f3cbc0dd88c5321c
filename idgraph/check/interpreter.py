"""Programs in the neutral form run on numbers: what they store, and what they should.

Which operation a nest computes, the form does not say: it says which elements are read. So each operation stands for
the sum of its operands (modulo 2^64), scaled and moved by numbers of its own where its result has a buffer; a move
stands for itself, a filled value for 0. A write stores the sum of its reads over the reduced loops, with its tensor's
numbers; an element that one point reads twice counts once. A nest that reads other elements than the program means
then stores another number, almost surely. Memory that nothing has written gives a new random number at each read.

A touch outside of an argument or a result, or below address 0, is a mistake too. Plain Python, which shares nothing
with the checker but the form.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.check.program import CheckError, Nest, NeutralProgram, Write, leaves, tree_of
from idgraph.check.tree_machine import MOST, ORDERS, Place, Steps, TreeMachine
from idgraph.ir import SCATTERS, Fusion, Tensor
from idgraph.ir.op_table import SCANS
from idgraph.validate.oracle import INDEXED, reads, shape_of

_WORD = 1 << 64
_MOVES = frozenset({
    "cat", "copy", "expand", "flip", "pad", "permute", "reshape", "roll", "select", "slice", "squeeze", "unsqueeze",
})  # fmt: skip

_IDEMPOTENT = frozenset({"all", "amax", "amin", "any", "cummax", "cummin"})
_FEW = 5  # buffers of no operation that are read in both ways

Numbers = npt.NDArray[np.uint64]
Table = npt.NDArray[np.int64]


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
    """See `idgraph.check.interpret`. The form does not say how a buffer of no operation of the program combines: where
    the program has reductions in which an element counts once, either way is tried, and one that is right is taken.
    """
    first = _interpreted(p, inputs, sizes, seed, frozenset())
    if first.right or not any(e.op in _IDEMPOTENT for e in p.fusion.exprs):
        return first
    for unions in _unnamed(p):
        again = _interpreted(p, inputs, sizes, seed, unions)
        if again.right:
            return again
    return first


def _unnamed(p: NeutralProgram) -> Iterator[frozenset[str]]:
    """Sets of the buffers that hold no operation's result."""
    own = {t.name for t in p.fusion.tensors if t.definition is not None and t.definition.op not in _MOVES}
    named = {b.name for b in p.buffers if b.tensor in own}
    names = sorted({w.buffer for n in leaves(tree_of(p)) for w in n.writes} - named)[:_FEW]
    for bits in range(1, 1 << len(names)):
        yield frozenset(x for k, x in enumerate(names) if bits >> k & 1)


def _interpreted(
    p: NeutralProgram, inputs: Mapping[str, object], sizes: Mapping[str, int], seed: int, unions: frozenset[str]
) -> Execution:
    missing = sorted(p.symbols.keys() - sizes.keys())
    if missing:
        raise CheckError(f"no value for the symbol {missing[0]!r}", hint=f'pass sizes={{"{missing[0]}": 8}}')
    elements = sum(prod(shape_of(t, sizes)) for t in p.fusion.tensors)
    if elements > MOST:
        raise CheckError(f"{elements} elements are too many to run")
    machine = _Machine(p, dict(sizes), random.Random(seed), ORDERS[seed % len(ORDERS)], unions=unions)
    machine.rare = _rarity(p.fusion, sizes)
    ranges = _index_ranges(p.fusion, sizes)
    given = {
        t.name: machine.numbers(t.name, shape_of(t, sizes), inputs.get(t.name), ranges.get(t.name, _WORD))
        for t in p.fusion.inputs
    }
    machine.own = {
        t.name: OperationNumbers(machine.draw, turned=machine.rare > 0)
        for t in p.fusion.tensors
        if t.definition is not None and t.definition.op not in _MOVES and any(b.tensor == t.name for b in p.buffers)
    }
    meant = _meant(p.fusion, given, sizes, machine.own)
    machine.tensors = {t.name: t for t in p.fusion.tensors}
    machine.start({n: x.astype(object) for n, x in given.items()})
    machine.all()
    found = {t.name: machine.contents(t.name, shape_of(t, sizes)) for t in p.fusion.outputs}
    return Execution(found, {n: meant[n] for n in found}, machine.outside)


class OperationNumbers:
    """The number that an operation makes of the sum of its operands, and back. ``turned``: its bits are reversed, so
    that few are set where few were.
    """

    def __init__(self, draw: random.Random, *, turned: bool) -> None:
        self.bits = draw.randrange(1, 64) if turned else 0
        self.scale, self.shift = (1, 0) if turned else (draw.randrange(1, _WORD, 2), draw.randrange(_WORD))
        self.inverse = pow(self.scale, -1, _WORD)

    def sealed(self, x: int) -> int:
        x = (x * self.scale + self.shift) % _WORD
        return (x << self.bits | x >> (64 - self.bits)) % _WORD

    def opened(self, x: int) -> int:
        x = (x >> self.bits | x << (64 - self.bits)) % _WORD
        return (x - self.shift) * self.inverse % _WORD

    def sealed_array(self, x: Numbers) -> Numbers:
        found = [self.sealed(int(v)) for v in x.reshape(-1)]
        return np.array(found, dtype=np.uint64).reshape(x.shape)


def _rarity(f: Fusion, sizes: Mapping[str, int]) -> int:
    """How often a random number is cut, so that of the numbers that a reduction joins few set the same bit."""
    most = 0
    for e in f.exprs:
        if e.op in _IDEMPOTENT:
            spans = [n for t in e.inputs for n in shape_of(t, sizes)]
            most = max(most, prod(shape_of(e.inputs[0], sizes)) // max(prod(shape_of(e.output, sizes)), 1), 2)
            most = max(most, *spans) if e.op in SCANS else most
    return most.bit_length() - 1 if most else 0


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
    f: Fusion, given: Mapping[str, Numbers], sizes: Mapping[str, int], own: Mapping[str, OperationNumbers]
) -> dict[str, Numbers]:
    known = dict(given)
    for e in f.exprs:
        if e.op in SCATTERS:
            raise CheckError(
                f"{e.output.name} = {e.op} is not run on numbers", because=("it is not a sum of its operands",)
            )
        integers = {t.name: known[t.name].astype(np.int64) for t in e.inputs} if e.op in INDEXED else {}
        reduced = tuple(k for k, d in enumerate(e.output.logical) if d.kind == "reduction")
        total, once = np.zeros(shape_of(e.output, sizes), dtype=np.uint64), e.op in _IDEMPOTENT
        before: list[tuple[str, Table]] = []
        for k, t in enumerate(e.inputs):
            table = np.asarray(reads(e, k, integers, dict(sizes)))
            for name, other in before:
                if name == t.name and other.shape == table.shape:  # one element, read once
                    table = np.where(table == other, -1, table)
            before.append((t.name, table))
            flat = np.append(known[t.name].reshape(-1), np.uint64(0))  # -1: nothing is read
            part = flat[table]
            part = np.bitwise_or.reduce(part, axis=reduced) if once else part.sum(axis=reduced, dtype=np.uint64)
            total = total + part.reshape(total.shape)
        if e.op in SCANS:
            axis = int(str(e.attrs["dim"]))
            total = np.bitwise_or.accumulate(total, axis) if once else np.cumsum(total, axis, dtype=np.uint64)
        numbers = own.get(e.output.name)
        known[e.output.name] = total if numbers is None else numbers.sealed_array(total)
    return known


@dataclass(slots=True)
class _Machine(TreeMachine):
    """Each operation a sum, of numbers modulo 2^64."""

    unions: frozenset[str] = frozenset()  # buffers of no operation in which an element counts once
    rare: int = 0  # random numbers that are cut for one in which few bits are set
    own: dict[str, OperationNumbers] = field(default_factory=lambda: dict[str, OperationNumbers]())
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    written: dict[Place, str] = field(default_factory=dict[Place, str])  # the tensor, by place

    def numbers(self, name: str, shape: tuple[int, ...], given: object, most: int) -> Numbers:
        if given is None:
            drawn = [self._drawn(most) for _ in range(prod(shape))]
            return np.array(drawn, dtype=np.uint64).reshape(shape)
        found = np.asarray(given)
        if found.dtype.kind not in "iub" or found.shape != shape:
            raise CheckError(f"inputs[{name!r}]: it is not an array of integers of shape {shape}")
        return found.astype(np.int64).astype(np.uint64)

    def _drawn(self, most: int) -> int:
        out = self.draw.randrange(most)
        for _ in range(self.rare if most == _WORD else 0):
            out &= self.draw.randrange(_WORD)
        return out

    def contents(self, name: str, shape: tuple[int, ...]) -> Numbers:
        out = np.array([self.draw.randrange(_WORD) for _ in range(prod(shape))], dtype=np.uint64).reshape(shape)
        own = next((b for b in self.buffers.values() if b.tensor == name), None)
        if own is not None:
            for c, at in self.places(own, shape):
                out[c] = self.load(own.home, at)
        return out

    def unwritten(self) -> int:
        return self.draw.randrange(_WORD)

    def all(self) -> None:
        """The whole program."""
        tree = tree_of(self.program)
        unread = next((n.name for n in leaves(tree) if n.unread or n.loose), None)
        if unread is not None:
            raise CheckError(f"{unread} is not run on numbers: its formulas could not be read")
        placed = next((n.name for n in leaves(tree) if n.position is not None), None)
        if placed is not None:
            raise CheckError(f"{placed} gives a position, which is not run on numbers")
        for _ in self.nodes(tree, {}, {}):
            pass

    def point(self, n: Nest, at: Mapping[str, int], homes: Mapping[str, str]) -> Steps:
        """All writes at one point, each after all values of its reduced loops; a step before it stores, one after."""
        for w in n.writes:
            b = self.buffers.get(w.buffer)
            tensor = b.tensor if b is not None else ""
            numbers, once = self.own.get(tensor), self.once(w.buffer, tensor)
            total, live = 0, False
            every = list(self.points(n.reduce))
            if not every:  # an empty reduction stores what it starts from
                live = bool(w.when.evaluate({**self.sizes, **at, **dict.fromkeys((a.name for a in n.reduce), 0)}))
            for inner in every:
                env = self.bound(n, {**self.sizes, **at, **inner}, homes)
                if w.when.evaluate(env):
                    live = True
                    more = self.sum(n, w, env, homes)
                    total = total | more if once else total + more
            yield live
            if live:
                where = self.place(w.buffer, w.index, self.bound(n, {**self.sizes, **at}, homes), homes)
                if w.mode == "add":
                    before = self.load(*where)
                    before = before if numbers is None else numbers.opened(before)
                    total = before | total if once else before + total
                self.memory[where] = total % _WORD if numbers is None else numbers.sealed(total)
                self.written[where] = tensor
            yield False

    def once(self, buffer: str, tensor: str) -> bool:
        """Whether an element counts once in what a buffer's writes combine."""
        t = self.tensors.get(tensor)
        op = t.definition.op if t is not None and t.definition is not None else ""
        return op in _IDEMPOTENT if tensor in self.own else buffer in self.unions

    def unrolled(self, tensor: str) -> bool:
        """Whether several elements that one point reads are several of those that a reduction combines: they are where
        its operand is stored, or an argument.
        """
        e = self.tensors[tensor].definition if tensor in self.own else None
        t = e.inputs[0] if e is not None else None
        while t is not None and t.definition is not None and t.definition.op in _MOVES:
            t = t.definition.inputs[0]
        return t is None or t.definition is None or t.name in self.own

    def sum(self, n: Nest, w: Write, env: Mapping[str, int], homes: Mapping[str, str]) -> int:
        where = {self.place(r.buffer, r.index, env, homes) for r in w.reads if r.when.evaluate(env)}
        b = self.buffers.get(w.buffer)
        tensor = b.tensor if b is not None else ""
        numbers, once = self.own.get(tensor), self.once(w.buffer, tensor)
        if n.reduce or w.mode == "add" or (numbers is None and not once):
            return sum(self.load(*x) for x in where)
        to = self.place(w.buffer, w.index, env, homes)
        scan = self.tensors[tensor].definition if tensor else None
        running = scan is not None and scan.op in SCANS
        goes_on = {x for x in where if self.written.get(x) == tensor and (x == to or running)}
        total = 0
        for x in where - goes_on:
            total = total | self.load(*x) if once and self.unrolled(tensor) else total + self.load(*x)
        for x in goes_on:  # an element of the result that its own operation goes on from
            before = self.load(*x)
            before = before if numbers is None else numbers.opened(before)
            total = total | before if once else total + before
        return total

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
