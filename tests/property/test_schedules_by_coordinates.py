"""Random schedules of another generator: each is accepted with every value right, or an oracle confirms the refusal.

The oracle knows loops, steps and the mathematics of the operations, nothing of graphs; NumPy computes the values. It
runs every tensor's schedule forwards, from its axes to its loop variables, at all points of small sizes, and asks of
each inlined tensor: is what a reader reads, at each point of the loops that both share, among what the tensor computes
at that point; and where loops run on threads, by a thread whose results the reading one sees?
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

import idgraph as ig
from tests.emit.cuda_interpreter import interpret

Point = tuple[int, ...]
Element = tuple[int, ...]
Loops = dict[Element, Point]
Reads = list[tuple[int, Callable[[Element], Iterable[Element]]]]
Array = Any  # of NumPy, float64


# programs -------------------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """One tensor: its shape, the elements of each operand that an element of it is made of, and its loops so far.

    ``place`` maps each element to its coordinates on the loops; ``sizes`` are the loops' extents. Steps keep both.
    """

    tensor: ig.Tensor
    shape: tuple[int, ...]
    reads: Reads
    array: Array
    place: Loops = field(default_factory=dict[Element, Point])
    sizes: list[int] = field(default_factory=list[int])
    summed: int = 0
    at: int = 0
    parallel: dict[int, str] = field(default_factory=dict[int, str])
    memory: str = "auto"
    written: bool = False
    steps: list[int] = field(default_factory=list[int])
    single: set[str] = field(default_factory=set[str])


def _elements(shape: tuple[int, ...]) -> list[Element]:
    return list(itertools.product(*map(range, shape)))


KINDS = (
    "unary", "unsqueeze", "wide", "wide", "slice", "flip", "transpose", "reshape", "sum", "both", "split", "rfactor",
    "roll",
)  # fmt: skip


class Program:
    """A random fusion, with each operation's reads by its own definition."""

    def __init__(self, r: random.Random) -> None:
        self.r, self.fusion, self.made = r, ig.Fusion("f"), list[Made]()
        shape = tuple(r.choice((1, 2, 3, 4)) for _ in range(r.randrange(1, 4)))
        self.inputs: dict[str, Array] = {}
        source = self._input("x", shape)
        self._enter(ig.sin(source), shape, [], np.sin(self.inputs["x"]))
        for _ in range(r.randrange(1, 5)):
            self._grow()
        self.fusion.output(self.made[-1].tensor)
        used = {id(t) for e in self.fusion.exprs for t in e.inputs}
        for m in self.made[:-1]:
            if id(m.tensor) not in used:
                self.fusion.output(m.tensor)

    def _input(self, name: str, shape: tuple[int, ...]) -> ig.Tensor:
        self.inputs[name] = np.random.default_rng(len(self.inputs)).uniform(-2, 2, shape)
        return self.fusion.input(name, shape, "float64")

    def _enter(self, t: ig.Tensor, shape: tuple[int, ...], reads: Reads, array: Array) -> None:
        extents = tuple(int(d.extent) for d in t.loop)
        assert array.shape == shape
        made = Made(t, shape, reads, array, {p: p for p in _elements(extents)}, [*extents])
        made.summed = len(extents) - len(shape)
        self.made.append(made)

    def _grow(self) -> None:
        r, k = self.r, self.r.randrange(max(0, len(self.made) - 3), len(self.made))
        m = self.made[k]
        t, shape, n, v = m.tensor, m.shape, len(m.shape), m.array
        at = r.randrange(n) if n else 0
        reads: Reads
        match kind := r.choice(KINDS):
            case "unsqueeze" if n < 4:
                p = r.randrange(n + 1)
                out = (*shape[:p], 1, *shape[p:])
                self._enter(ig.unsqueeze(t, p), out, [(k, lambda i: [(*i[:p], *i[p + 1 :])])], v.reshape(out))
            case "wide":
                self._wide(k)
            case "slice" if n and shape[at] > 1:
                low = r.randrange(shape[at])
                index = (*[slice(None)] * at, slice(low, None))
                out = (*shape[:at], shape[at] - low, *shape[at + 1 :])
                self._enter(t[index], out, [(k, lambda i: [(*i[:at], i[at] + low, *i[at + 1 :])])], v[index])
            case "flip" if n:
                last = shape[at] - 1
                reads = [(k, lambda i: [(*i[:at], last - i[at], *i[at + 1 :])])]
                self._enter(ig.flip(t, at), shape, reads, np.flip(v, at))
            case "transpose" if n > 1:
                order = r.sample(range(n), n)
                back = [order.index(p) for p in range(n)]
                out = tuple(shape[p] for p in order)
                reads = [(k, lambda i: [tuple(i[p] for p in back)])]
                self._enter(ig.permute(t, *order), out, reads, v.transpose(order))
            case "reshape" if n > 1:
                p = r.randrange(n - 1)
                out = (*shape[:p], shape[p] * shape[p + 1], *shape[p + 2 :])
                w = shape[p + 1]
                reads = [(k, lambda i: [(*i[:p], i[p] // w, i[p] % w, *i[p + 1 :])])]
                self._enter(ig.reshape(t, *out), out, reads, v.reshape(out))
            case "split" | "rfactor" if n and n < 4 and shape[at] in (2, 4, 6, 8, 9, 12):
                self._cut(k, at, kind == "rfactor")
            case "roll" if n:
                shift, size = r.randrange(shape[at]), shape[at]
                reads = [(k, lambda i: [(*i[:at], (i[at] - shift) % size, *i[at + 1 :])])]
                self._enter(ig.roll(t, shift, at), shape, reads, np.roll(v, shift, at))
            case "sum" if n > 1:
                self._sum(k, at)
            case "both" if len(self.made) > 1:
                j = r.randrange(len(self.made))
                if self.made[j].shape == shape:
                    reads = [(k, lambda i: [i]), (j, lambda i: [i])]
                    self._enter(t + self.made[j].tensor, shape, reads, v + self.made[j].array)
            case _:
                self._enter(ig.cos(t), shape, [(k, lambda i: [i])], np.cos(v))

    def _cut(self, k: int, at: int, summed: bool) -> None:
        """An axis becomes two; ``summed``: and is summed in two stages, its parts and then their sums."""
        m = self.made[k]
        w = 3 if m.shape[at] in (6, 9) else 2
        out = (*m.shape[:at], m.shape[at] // w, w, *m.shape[at + 1 :])
        reads: Reads = [(k, lambda i: [(*i[:at], i[at] * w + i[at + 1], *i[at + 2 :])])]
        self._enter(ig.reshape(m.tensor, *out), out, reads, m.array.reshape(out))
        if summed:
            self._sum(len(self.made) - 1, at + 1)
            self._sum(len(self.made) - 1, at)

    def _sum(self, k: int, at: int) -> None:
        m = self.made[k]
        count, out = m.shape[at], (*m.shape[:at], *m.shape[at + 1 :])
        reads: Reads = [(k, lambda i: [(*i[:at], c, *i[at:]) for c in range(count)])]
        self._enter(ig.sum(m.tensor, at), out, reads, m.array.sum(at))

    def _wide(self, k: int) -> None:
        """Beside an input that has axes which the tensor lacks, or has as single elements."""
        r, m = self.r, self.made[k]
        out = tuple(r.choice((2, 3)) if s == 1 and r.random() < 0.8 else s for s in m.shape)
        if len(out) < 3 and r.random() < 0.6:
            out = (r.choice((2, 3)), *out)
        more = self._input(f"w{len(self.made)}", out)
        skip, own = len(out) - len(m.shape), m.shape

        def read(i: Element) -> list[Element]:
            return [tuple(0 if s == 1 else c for s, c in zip(own, i[skip:], strict=True))]

        self._enter(m.tensor + more, out, [(k, read)], m.array + self.inputs[more.name])


# schedules ------------------------------------------------------------------------------------------------------------


def _step(r: random.Random, m: Made, swizzled: bool = False) -> None:
    """One step on the tensor and on the oracle's own loops."""
    kinds = [d.kind == "reduction" for d in m.tensor.loop]
    count = len(m.sizes)
    if not count:
        return
    at = r.randrange(count)
    match r.choice(("split", "merge", "reorder", "swizzle") if swizzled else ("split", "merge", "reorder")):
        case "split" if count < 5:
            factor, size = r.randrange(1, 5), m.sizes[at]
            outer = r.random() < 0.3
            rest = -(-size // factor)
            m.tensor.split(at, factor, inner=not outer)
            inner = rest if outer else factor
            m.place = {e: (*p[:at], p[at] // inner, p[at] % inner, *p[at + 1 :]) for e, p in m.place.items()}
            m.sizes[at : at + 1] = [factor, rest] if outer else [rest, factor]
        case "merge" if at + 1 < count and kinds[at] == kinds[at + 1]:
            width = m.sizes[at + 1]
            m.tensor.merge(at)
            m.place = {e: (*p[:at], p[at] * width + p[at + 1], *p[at + 2 :]) for e, p in m.place.items()}
            m.sizes[at : at + 2] = [m.sizes[at] * width]
        case "swizzle" if at + 1 < count and not kinds[at] and not kinds[at + 1]:
            width = m.sizes[at + 1]
            m.tensor.swizzle("cyclic", at, at + 1)
            m.place = {e: (*p[: at + 1], (p[at] + p[at + 1]) % width, *p[at + 2 :]) for e, p in m.place.items()}
        case _:
            order = r.sample(range(count), count)
            m.tensor.reorder(order)
            m.place = {e: tuple(p[q] for q in order) for e, p in m.place.items()}
            m.sizes = [m.sizes[q] for q in order]


def _schedule(r: random.Random, program: Program) -> None:
    """Steps for the last tensor, the same for others of like loops; or steps for each; then positions."""
    made, swizzled = program.made, r.random() < 0.2
    if r.random() < 0.6:
        seed, steps = r.randrange(1 << 30), r.randrange(4)
        for m in made:
            again = random.Random(seed)
            for _ in range(steps):
                _step(again, m, swizzled)
    else:
        for m in made:
            for _ in range(r.randrange(3)):
                _step(r, m, swizzled)
    for m in reversed(made):
        reduced = next((p for p, d in enumerate(m.tensor.loop) if d.kind == "reduction"), len(m.sizes))
        shortest = min((len(e.output.loop) for e in m.tensor.uses), default=0)
        most = min(reduced, shortest, len(m.sizes))
        if most and r.random() < 0.6:
            m.at = r.randrange(1, most + 1)


RACES = ("is read by another", "is written by one block", "two loops of", "have a sum of")
BLOCKS, THREADS = ("blockIdx.x", "blockIdx.y"), ("threadIdx.x", "threadIdx.y")


def _hardware(r: random.Random, program: Program) -> None:
    """Loops on blocks and threads, the first ones of all tensors alike; lanes, memories and layouts."""
    common = [r.choice((*BLOCKS[:1], *THREADS, "serial")) for _ in range(5)]
    common = [w if w not in common[:n] else "serial" for n, w in enumerate(common)]
    shared = r.randrange(4)
    for n, m in enumerate(program.made):
        kinds = [d.kind == "reduction" for d in m.tensor.loop]
        together = max([m.at, *(p.at for p in program.made[:n] for e in p.tensor.uses if e.output is m.tensor)])
        for j, reduced in enumerate(kinds):
            how = (
                common[j]
                if j < max(shared, together) and r.random() < 0.95
                else r.choice((*BLOCKS, *THREADS, "serial", "unroll"))
            )
            if how in m.parallel.values() or (reduced and (how.startswith("block") or r.random() < 0.5)):
                how = "serial"
            if j + 1 == len(kinds) and not reduced and how == "serial" and r.random() < 0.4:
                how = r.choice(("vectorize", "unroll"))
            if how != "serial":
                m.parallel[j] = how
                m.tensor.parallelize(j, how)
        m.written = m.tensor in program.fusion.outputs
        if m.at and r.random() < 0.6 and not m.written:
            m.memory = r.choice(("shared", "shared", "local", "global"))
            m.tensor.set_memory(m.memory)
        if len(m.shape) > 1 and m.memory in ("auto", "global") and r.random() < 0.3:
            axes = [d for d in m.tensor.logical if d.kind != "reduction"]
            m.tensor.set_allocation(r.sample(axes, len(axes)))


# the oracle -----------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """Why no loop nest can do it, by coordinates at points."""


def judge(program: Program) -> None:
    """Raise `Refused` for a schedule that no loop nest can do."""
    made = program.made
    readers: dict[int, list[int]] = {}
    for n, m in enumerate(made):
        for k, _ in m.reads:
            readers.setdefault(k, []).append(n)
    sizes: dict[int, list[int]] = {}
    _share_hardware(made, readers)
    for n in reversed(range(len(made))):
        made[n].steps = sizes[n] = _lengths(made[n], [sizes[u] for u in readers.get(n, [])])
    groups = _groups(made, readers)
    for n, m in enumerate(made):
        m.single = {
            how for how in (*BLOCKS, *THREADS)
            if all(o.steps[j] == 1 for k, o in enumerate(made) if groups[k] == groups[n]
                   for j, way in o.parallel.items() if way == how)
        }  # fmt: skip
    for n in range(len(made)):
        _judge_one(made, n, readers.get(n, []))
    _judge_order(made, readers)


def _lengths(m: Made, readers: list[list[int]]) -> list[int]:
    """How often the loops of a tensor run: a shared one of one step as often as the readers', which is one number."""
    found = [*m.sizes]
    for j in range(m.at):
        wanted = {other[j] for other in readers}
        if len(wanted) > 1:
            raise Refused(f"loop {j} of {m.tensor.name} has {wanted} steps for its readers")
        if wanted and found[j] == 1:
            found[j] = wanted.pop()
    return found


def _share_hardware(made: list[Made], readers: Mapping[int, list[int]]) -> None:
    """A shared loop runs on the blocks or threads that any tensor names for it, which must be the same."""
    pairs = [(m, made[u], j) for n, m in enumerate(made) for u in readers.get(n, ()) for j in range(m.at)]
    for _ in made:
        for a, b, j in (*pairs, *((b, a, j) for a, b, j in pairs)):
            mine, its = a.parallel.get(j, "serial"), b.parallel.get(j, "serial")
            if "serial" not in (mine, its) and mine != its and ("Idx" in mine) == ("Idx" in its):
                raise Refused(f"loop {j} of {a.tensor.name} runs on {mine} and, for {b.tensor.name}, on {its}")
            if "Idx" in mine or its == "serial":
                b.parallel[j] = mine
    for m in made:
        used = [how for how in m.parallel.values() if "Idx" in how]
        if len(set(used)) < len(used):
            raise Refused(f"two loops of {m.tensor.name} run on one of {used}")
        if any(m.tensor.loop[j].kind == "reduction" for j, how in m.parallel.items() if how in BLOCKS):
            raise Refused(f"blocks have a sum of {m.tensor.name} together")


def _groups(made: list[Made], readers: Mapping[int, list[int]]) -> list[int]:
    """A number for each tensor, one for those that inlining puts into one nest."""
    found = [*range(len(made))]
    for _ in made:
        for n, m in enumerate(made):
            for u in readers.get(n, ()) if m.at else ():
                found[n] = found[u] = min(found[n], found[u])
    return found


def _judge_one(made: list[Made], n: int, readers: list[int]) -> None:
    """Where a tensor's loops are those of its readers, it computes at each point what they read there."""
    m = made[n]
    own: dict[Point, set[Element]] = {}
    # A loop of one step computes the same at every step of a wider one that it becomes.
    several = [j for j in range(m.at) if m.sizes[j] != 1]
    for e, p in m.place.items():
        own.setdefault(tuple(p[j] for j in several), set()).add(_kept(m, e))
    for reader in dict.fromkeys(readers):
        u = made[reader]
        for k, read in u.reads:
            if k != n:
                continue
            for e, p in u.place.items():
                wanted = set(read(_kept(u, e)))
                if u.summed:
                    wanted = {x for x in wanted if _term(u, e, x)}
                if not wanted <= own.get(tuple(p[j] for j in several), set()):
                    raise Refused(f"{m.tensor.name} at {p[: m.at]} has not {wanted}")
                if m.at:
                    _judge_threads(m, u, p, wanted)


def _judge_threads(m: Made, u: Made, p: Point, wanted: set[Element]) -> None:
    """What a thread reads at this point is made by one whose results it sees: itself, or one of its block.

    Threads that reduce it all have it, and those along a dimension without a loop of it; what is global has one writer.
    """
    seen = BLOCKS if m.memory in ("shared", "global") else (*BLOCKS, *THREADS)
    kinds = [d.kind == "reduction" for d in m.tensor.loop]
    if m.memory == "global" or m.written:
        one = {how for j, how in m.parallel.items() if not kinds[j] and m.steps[j] == m.sizes[j]}
        if {*BLOCKS} - one - m.single:
            raise Refused(f"{m.tensor.name} is written by one block and read by others")
    there = {how: p[j] if u.steps[j] == u.sizes[j] else -1 for j, how in u.parallel.items()}
    dims = [(j, how) for j, how in m.parallel.items() if j >= m.at and how in {*seen} - m.single and not kinds[j]]
    for x in wanted:
        own = [q for e, q in m.place.items() if _kept(m, e) == x]
        points = [q for q in own if q[: m.at] == p[: m.at]] or own
        if not any(all(q[j] == there.get(how, -1) for j, how in dims) for q in points):
            raise Refused(f"{m.tensor.name}[{x}] is read by another {'block' if seen == BLOCKS else 'thread'} at {p}")


def _kept(m: Made, e: Element) -> Element:
    """The element of the tensor, of a point that also has reduced coordinates."""
    kinds = [d.kind == "reduction" for d in m.tensor.logical]
    return tuple(c for c, reduced in zip(e, kinds, strict=True) if not reduced)


def _term(u: Made, e: Element, x: Element) -> bool:
    """Whether the operand's element is the term of this point: reduced and kept coordinates together."""
    return e == x


def _judge_order(made: list[Made], readers: Mapping[int, list[int]]) -> None:
    """Groups of tensors that share a loop at each depth can be put in an order: none waits for itself."""
    for depth in range(max((m.at for m in made), default=0)):
        group = list(range(len(made)))

        def find(n: int, group: list[int] = group) -> int:
            while group[n] != n:
                n = group[n]
            return n

        for n, m in enumerate(made):
            if m.at > depth:
                for u in readers.get(n, []):
                    group[find(u)] = find(n)
        for n, m in enumerate(made):
            if any(find(u) == find(n) for u in readers.get(n, [])) and m.at <= depth:
                raise Refused(f"{m.tensor.name} is not complete where it is read, inside loop {depth} of both")
        after: dict[int, set[int]] = {}
        for n in range(len(made)):
            for u in readers.get(n, []):
                if find(u) != find(n):
                    after.setdefault(find(n), set()).add(find(u))
        done: set[int] = set()

        for n in range(len(made)):
            _visit(find(n), (), after, done)


def _visit(n: int, path: tuple[int, ...], after: Mapping[int, set[int]], done: set[int]) -> None:
    if n in path:
        raise Refused("nests wait for each other")
    if n not in done:
        for u in after.get(n, ()):
            _visit(u, (*path, n), after, done)
        done.add(n)


# the property ---------------------------------------------------------------------------------------------------------


def _right(program: Program, seed: int, target: Literal["numpy", "cuda"]) -> str:
    """The first result that differs from NumPy's; empty where none does."""
    made = ig.emit(program.fusion, target)
    got = interpret(made, program.inputs, seed) if target == "cuda" else made.run(program.inputs)
    for m in program.made:
        if m.tensor in program.fusion.outputs and not np.allclose(got[m.tensor.name], m.array, 1e-9, 1e-9):
            return f"{target}: {m.tensor.name}"
    return ""


def outcome(seed: int, hardware: bool = False, every: int = 1) -> tuple[str, str, str]:
    """ "accepted", "confirmed" or "legal, refused", with what the refusal and what the oracle says.

    ``hardware``: on blocks and threads, and the source for a GPU is interpreted for one in ``every``."""
    r = random.Random(seed)
    program = Program(r)
    _schedule(r, program)
    legal = ""
    try:
        if hardware:
            _hardware(r, program)
        judge(program)
    except Refused as why:
        legal = str(why)
    try:
        for m in program.made:
            m.tensor.inline_position = m.at
        ig.emit(program.fusion, "cuda" if hardware else "numpy")
    except (ig.ScheduleError, ig.EmitError) as error:
        return ("confirmed" if legal else "legal, refused"), str(error), legal
    assert not any(why in legal for why in RACES), (seed, legal)
    found = _right(program, seed, "numpy")
    if hardware and seed % every == 0:
        found = found or _right(program, seed, "cuda")
    assert not found, (seed, found)
    return "accepted", "", legal


def tally(seeds: Iterable[int], hardware: bool = False) -> Counter[str]:
    """How often each outcome is met; the assertion is that no refusal is unconfirmed."""
    return Counter(outcome(seed, hardware, 10)[0] for seed in seeds)


@pytest.mark.parametrize("hardware", [False, True])
def test_refusals_are_confirmed(hardware: bool) -> None:
    found = {seed: outcome(seed, hardware, 10) for seed in range(150)}
    wrong = {seed: told for seed, (kind, told, _) in found.items() if kind == "legal, refused"}
    assert not wrong, wrong
    assert sum(kind == "accepted" for kind, *_ in found.values()) > 30
    assert sum(kind == "confirmed" for kind, *_ in found.values()) > 10


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("hardware", [False, True])
@pytest.mark.parametrize("part", range(20))
def test_refusals_are_confirmed_widely(part: int, hardware: bool) -> None:
    told = tally(range(100 * part, 100 * part + 100), hardware)["legal, refused"]
    assert told <= 1, "a loop of several steps over one element, see test_lacking_loops.py"


def test_values_of_programs_are_numpys() -> None:
    """The generator's own reads are right: recomputed elements give what the fusion gives."""
    for seed in range(20):
        program = Program(random.Random(seed))
        assert ig.validate(program.fusion, target="python").ok
        assert np.prod(program.made[-1].shape) > 0
