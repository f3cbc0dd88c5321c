"""Random schedules of another generator: each is accepted with every value right, or an oracle confirms the refusal.

The oracle knows loops, steps and the mathematics of the operations, nothing of graphs. It runs every tensor's schedule
forwards, from its axes to its loop variables, at all points of small sizes, and asks of each inlined tensor: is what a
reader reads, at each point of the loops that both share, among what the tensor computes at that point?
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

import idgraph as ig

Point = tuple[int, ...]
Element = tuple[int, ...]
Loops = dict[Element, Point]


# programs -------------------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """One tensor: its shape, the elements of each operand that an element of it is made of, and its loops so far.

    ``place`` maps each element to its coordinates on the loops; ``sizes`` are the loops' extents. Steps keep both.
    """

    tensor: ig.Tensor
    shape: tuple[int, ...]
    reads: list[tuple[int, Callable[[Element], Iterable[Element]]]]
    place: Loops = field(default_factory=dict[Element, Point])
    sizes: list[int] = field(default_factory=list[int])
    summed: int = 0
    at: int = 0


def _elements(shape: tuple[int, ...]) -> list[Element]:
    return list(itertools.product(*map(range, shape)))


class Program:
    """A random fusion, with each operation's reads by its own definition."""

    def __init__(self, r: random.Random) -> None:
        self.r, self.fusion, self.made = r, ig.Fusion("f"), list[Made]()
        shape = tuple(r.choice((1, 2, 3, 4)) for _ in range(r.randrange(1, 4)))
        self.source = self.fusion.input("x", shape=shape)
        self._enter(ig.sin(self.source), shape, [])
        for _ in range(r.randrange(1, 5)):
            self._grow()
        self.fusion.output(self.made[-1].tensor)
        used = {id(t) for e in self.fusion.exprs for t in e.inputs}
        for m in self.made[:-1]:
            if id(m.tensor) not in used:
                self.fusion.output(m.tensor)

    def _enter(
        self, t: ig.Tensor, shape: tuple[int, ...], reads: list[tuple[int, Callable[[Element], Iterable[Element]]]]
    ) -> None:
        extents = tuple(int(d.extent) for d in t.loop)
        made = Made(t, shape, reads, {p: p for p in _elements(extents)}, [*extents])
        made.summed = len(extents) - len(shape)
        self.made.append(made)

    def _grow(self) -> None:
        r, k = self.r, self.r.randrange(max(0, len(self.made) - 3), len(self.made))
        m = self.made[k]
        t, shape, n = m.tensor, m.shape, len(m.shape)
        at = r.randrange(n) if n else 0
        match r.choice(("unary", "unsqueeze", "wide", "wide", "slice", "flip", "transpose", "reshape", "sum", "both")):
            case "unsqueeze" if n < 4:
                p = r.randrange(n + 1)
                self._enter(ig.unsqueeze(t, p), (*shape[:p], 1, *shape[p:]), [(k, lambda i: [(*i[:p], *i[p + 1 :])])])
            case "wide":
                self._wide(k)
            case "slice" if n and shape[at] > 1:
                low = r.randrange(shape[at])
                index = (*[slice(None)] * at, slice(low, None))
                out = (*shape[:at], shape[at] - low, *shape[at + 1 :])
                self._enter(t[index], out, [(k, lambda i: [(*i[:at], i[at] + low, *i[at + 1 :])])])
            case "flip" if n:
                last = shape[at] - 1
                self._enter(ig.flip(t, at), shape, [(k, lambda i: [(*i[:at], last - i[at], *i[at + 1 :])])])
            case "transpose" if n > 1:
                order = r.sample(range(n), n)
                back = [order.index(p) for p in range(n)]
                out = tuple(shape[p] for p in order)
                self._enter(ig.permute(t, *order), out, [(k, lambda i: [tuple(i[p] for p in back)])])
            case "reshape" if n > 1:
                p = r.randrange(n - 1)
                out = (*shape[:p], shape[p] * shape[p + 1], *shape[p + 2 :])
                w = shape[p + 1]
                self._enter(ig.reshape(t, *out), out, [(k, lambda i: [(*i[:p], i[p] // w, i[p] % w, *i[p + 1 :])])])
            case "sum" if n > 1:
                count, out = shape[at], (*shape[:at], *shape[at + 1 :])
                self._enter(ig.sum(t, at), out, [(k, lambda i: [(*i[:at], c, *i[at:]) for c in range(count)])])
            case "both" if len(self.made) > 1:
                j = r.randrange(len(self.made))
                if self.made[j].shape == shape:
                    self._enter(t + self.made[j].tensor, shape, [(k, lambda i: [i]), (j, lambda i: [i])])
            case _:
                self._enter(ig.cos(t), shape, [(k, lambda i: [i])])

    def _wide(self, k: int) -> None:
        """Beside an input that has axes which the tensor lacks, or has as single elements."""
        r, m = self.r, self.made[k]
        out = tuple(r.choice((2, 3)) if s == 1 and r.random() < 0.8 else s for s in m.shape)
        if len(out) < 3 and r.random() < 0.6:
            out = (r.choice((2, 3)), *out)
        more = self.fusion.input(f"w{len(self.made)}", shape=out)
        skip, own = len(out) - len(m.shape), m.shape

        def read(i: Element) -> list[Element]:
            return [tuple(0 if s == 1 else c for s, c in zip(own, i[skip:], strict=True))]

        self._enter(m.tensor + more, out, [(k, read)])


# schedules ------------------------------------------------------------------------------------------------------------


def _step(r: random.Random, m: Made) -> None:
    """One step on the tensor and on the oracle's own loops."""
    kinds = [d.kind == "reduction" for d in m.tensor.loop]
    count = len(m.sizes)
    if not count:
        return
    at = r.randrange(count)
    match r.choice(("split", "merge", "reorder")):
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
        case _:
            order = r.sample(range(count), count)
            m.tensor.reorder(order)
            m.place = {e: tuple(p[q] for q in order) for e, p in m.place.items()}
            m.sizes = [m.sizes[q] for q in order]


def _schedule(r: random.Random, program: Program) -> None:
    """Steps for the last tensor, the same for others of like loops; or steps for each; then positions."""
    made = program.made
    if r.random() < 0.5:
        seed, steps = r.randrange(1 << 30), r.randrange(4)
        for m in made:
            again = random.Random(seed)
            for _ in range(steps):
                _step(again, m)
    else:
        for m in made:
            for _ in range(r.randrange(3)):
                _step(r, m)
    for m in reversed(made):
        reduced = next((p for p, d in enumerate(m.tensor.loop) if d.kind == "reduction"), len(m.sizes))
        shortest = min((len(e.output.loop) for e in m.tensor.uses), default=0)
        most = min(reduced, shortest, len(m.sizes))
        if most and r.random() < 0.6:
            m.at = r.randrange(1, most + 1)


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
    for n in reversed(range(len(made))):
        sizes[n] = _lengths(made[n], [sizes[u] for u in readers.get(n, [])])
        _judge_one(made, n, readers.get(n, []))
    _judge_order(made, readers)


def _lengths(m: Made, readers: list[list[int]]) -> list[int]:
    """How often the loops of a tensor run: a shared one as often as the readers', which must be one number."""
    found = [*m.sizes]
    for j in range(m.at):
        wanted = {sizes[j] for sizes in readers}
        if len(wanted) > 1:
            raise Refused(f"loop {j} of {m.tensor.name} has {wanted} steps for its readers")
        if wanted and found[j] == 1:
            found[j] = wanted.pop()
        elif wanted != {found[j]}:
            raise Refused(f"loop {j} of {m.tensor.name} has {found[j]} steps, {wanted} for its readers")
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


def outcome(seed: int) -> tuple[str, str]:
    """ "accepted", "confirmed" or "legal, refused", with what the refusal says."""
    r = random.Random(seed)
    program = Program(r)
    _schedule(r, program)
    legal = ""
    try:
        judge(program)
    except Refused as why:
        legal = str(why)
    try:
        for m in program.made:
            m.tensor.inline_position = m.at
        report = ig.validate(program.fusion, target="python")
    except ig.ScheduleError as error:
        return ("confirmed" if legal else "legal, refused"), error.what
    assert report.ok, (seed, report)
    return "accepted", legal


def tally(seeds: Iterable[int]) -> Counter[str]:
    """How often each outcome is met; the assertion is that no refusal is unconfirmed."""
    return Counter(outcome(seed)[0] for seed in seeds)


def test_refusals_are_confirmed() -> None:
    found = {seed: outcome(seed) for seed in range(150)}
    wrong = {seed: told for seed, (kind, told) in found.items() if kind == "legal, refused"}
    assert not wrong, wrong
    assert sum(kind == "accepted" for kind, _ in found.values()) > 30
    assert sum(kind == "confirmed" for kind, _ in found.values()) > 10


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_refusals_are_confirmed_widely(part: int) -> None:
    assert not tally(range(100 * part, 100 * part + 100))["legal, refused"]


def test_values_of_programs_are_numpys() -> None:
    """The generator's own reads are right: recomputed elements give what the fusion gives."""
    for seed in range(20):
        program = Program(random.Random(seed))
        assert ig.validate(program.fusion, target="python").ok
        assert np.prod(program.made[-1].shape) > 0
