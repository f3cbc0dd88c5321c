"""Points of one kernel run in any order: none may read what another of them writes or overwrites.

A kernel is one loop in any order. Where nests of it reduce, its iterations are theirs: nests over more points, a
multiple, go over the rest in an inner loop, with the reduced loops of the others and in order. A result of a reduction
is there after its inner loop; what needs it comes in the next one. At one point nests run in the order in which they
stand. Judged for all memory that a kernel writes, its own results too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, simplify
from idgraph.check.algebraic import flat_of, unflat
from idgraph.check.enumeration import unraveled
from idgraph.check.program import Axis, Nest, NeutralProgram, Read, Write
from idgraph.check.report import Difference, Verdict
from idgraph.check.store_coverage import injective
from idgraph.errors import SourceLine

POINTS = 1 << 23  # points of a loop that are looked at one by one

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Race:
    """A finding about one memory that a nest writes, and the nest that reads it."""

    storage: str
    verdict: Verdict
    because: str
    difference: Difference | None = None


def races(p: NeutralProgram, nest: Nest, samples: Sequence[dict[str, int]]) -> Iterator[Race]:
    """For each memory that ``nest`` writes: whether its kernel reads there what another point writes."""
    if not nest.kernel or nest.unread:
        return
    homes = {b.name: (b.home, b.base) for b in p.buffers} | dict(p.memory)
    place = {name: k for k, name in enumerate(p.order)}
    group = [n for n in p.nests if n.kernel == nest.kernel and not n.unread]
    group.sort(key=lambda n: place.get(n.name, len(place)))
    for w in nest.writes:
        home, base = homes.get(w.buffer, (w.buffer, as_expr(0)))
        for other in group:
            reads = [r for x in other.writes for r in x.reads if homes.get(r.buffer, (r.buffer,))[0] == home]
            own = [replaced(r, homes) for r in dict.fromkeys(reads)]
            if own:
                yield _Pair(p, group, homes, home, nest, w, w.index + base, other, own).judged(samples)


def replaced(r: Read, homes: Mapping[str, tuple[str, Expr]]) -> Read:
    """A read at its address in its storage."""
    home, base = homes.get(r.buffer, (r.buffer, as_expr(0)))
    return Read(home, simplify(r.index + base), r.when)


def _count(axes: Sequence[Axis], sizes: Mapping[str, int]) -> int:
    return prod(int(a.extent.evaluate(sizes)) for a in axes)


@dataclass(frozen=True, slots=True)
class SharedLoop:
    """A kernel at some sizes: ``rows`` iterations in any order; in each, inner loops one after the other (``phases``).

    ``steps``: points of a nest's own loops in an iteration; ``inner``: those of its reduced loops too.
    """

    nests: Sequence[Nest]
    rows: int
    steps: Sequence[int]
    inner: Sequence[int]
    phases: Sequence[int]

    def slot(self, k: int, *, result: bool = False) -> int:
        """When a nest runs in an iteration: even numbers are between inner loops; ``result``: a reduction's write."""
        if result and self.nests[k].reduce:
            return 2 * self.phases[k] + 2
        return 2 * self.phases[k] + (self.inner[k] > 1)


def shared_loop(
    nests: Sequence[Nest], homes: Mapping[str, tuple[str, Expr]], sizes: Mapping[str, int]
) -> SharedLoop | None:
    """How nests of one kernel share its iterations; None where their numbers of points do not say."""
    counts = [_count(n.loops, sizes) for n in nests]
    reducing = {c for n, c in zip(nests, counts, strict=True) if n.reduce}
    if len(reducing) > 1 or 0 in counts:
        return None
    rows = next(iter(reducing)) if reducing else gcd(*counts)
    if any(c % rows for c in counts) or (rows not in counts):
        return None
    steps = [c // rows for c in counts]
    inner = [s * _count(n.reduce, sizes) for n, s in zip(nests, steps, strict=True)]

    def touched(n: Nest, *, stored: bool) -> set[str]:
        names = [w.buffer for w in n.writes] if stored else [r.buffer for w in n.writes for r in w.reads]
        return {homes.get(x, (x,))[0] for x in names}

    phases: list[int] = []
    for j, n in enumerate(nests):
        phase, mine = 0, touched(n, stored=True)
        for i, m in enumerate(nests[:j]):
            result = touched(m, stored=True) & (mine | touched(n, stored=False))
            if not result and not touched(m, stored=False) & mine:
                continue
            later = (result and m.reduce) or (inner[i] > 1 and inner[j] != inner[i])
            phase = max(phase, phases[i] + bool(later))
        phases.append(phase)
    return SharedLoop(nests, rows, steps, inner, phases)


@dataclass(frozen=True, slots=True)
class _ElementAccess:
    """The points of a nest at which it touches memory: addresses, iterations of the kernel, points of the inner loop;
    ``flat`` numbers the points of ``axes``.
    """

    at: Ints
    row: Ints
    fine: Ints
    flat: Ints
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A write of ``nest`` and what ``other``, of the same kernel, reads in the memory that is written."""

    program: NeutralProgram
    group: Sequence[Nest]
    homes: Mapping[str, tuple[str, Expr]]
    home: str
    nest: Nest
    write: Write
    address: Expr
    other: Nest
    reads: Sequence[Read]

    @property
    def fresh(self) -> bool:
        """Whether the memory is the kernel's own: nothing was there before."""
        return self.home == self.write.buffer

    def judged(self, samples: Sequence[dict[str, int]]) -> Race:
        nest, other, reads = self.nest, self.other, self.reads
        first = [n is other for n in self.group].index(True) < [n is nest for n in self.group].index(True)
        late = first and self.fresh and not self._stored_before()
        if not late and injective(self.address, nest.loops, self.write.when) and all(map(self._at_its_point, reads)):
            return Race(self.home, "proved", "each point reads what no other point overwrites")
        values = {*nest.loads, *nest.places, *other.loads, *other.places}
        formulas = (self.address, self.write.when, *(x for r in reads for x in (r.index, r.when)))
        if values & {n for x in formulas for n in x.names}:
            return Race(self.home, "unknown", "it updates what it reads, at addresses of loaded values")
        for sizes in samples:
            points = max(_count(nest.loops, sizes), _count(other.axes, sizes) * len(reads))
            if points > POINTS:
                return Race(self.home, "unknown", "it updates what it reads, at too many points to look at each")
            loop = shared_loop(self.group, self.homes, sizes)
            if loop is None:
                return Race(self.home, "unknown", f"how {nest.name} and {other.name} share the kernel's iterations")
            found = self._conflict(loop, sizes, late)
            if found is not None:
                return found
        if len(samples) != 1 or samples[0]:
            because = "it updates what it reads; not proved for all sizes that no point overwrites it"
            return Race(self.home, "unknown", because)
        return Race(self.home, "enumerated", "no point reads what another one overwrites")

    def _source(self, nest: Nest) -> tuple[str, SourceLine | None]:
        """The operation of the program that the nest computes and the user's line, where they are known."""
        tensors = {b.name: b.tensor for b in self.program.buffers}
        known = (self.program.sources.get(tensors.get(w.buffer, "")) for w in nest.writes)
        return next((x for x in known if x is not None), ("", None))

    def _stored_before(self) -> bool:
        """Whether some nest or call that runs before ``other`` fills the memory."""
        p = self.program
        place = {name: k for k, name in enumerate(p.order)}
        now = place.get(self.other.name, len(place))
        made = [b.after for b in p.buffers if b.home == self.home]
        made += [n.name for n in p.nests for w in n.writes if self.homes.get(w.buffer, (w.buffer,))[0] == self.home]
        return any(place.get(x, -1 if not x else len(place)) < now for x in made)

    def _at_its_point(self, r: Read) -> bool:
        """Proved: what ``other`` reads at an iteration is what ``nest`` writes at the same one."""
        nest, other = self.nest, self.other
        mine = simplify(prod((a.extent for a in nest.loops), start=as_expr(1)))
        for axes in (other.axes, other.loops):
            if simplify(prod((a.extent for a in axes), start=as_expr(1)) - mine) == as_expr(0):
                number = simplify(flat_of([a.symbol for a in nest.loops], [a.extent for a in nest.loops]))
                places = unflat(number, [a.extent for a in axes])
                way = {a.name: x for a, x in zip(axes, places, strict=True)}
                if simplify(r.index.substitute(way) - self.address) == as_expr(0):
                    return True
        for m in self.group:  # a result of an iteration, read all along its inner loop
            step = simplify(prod((a.extent for a in m.reduce), start=as_expr(1)))
            every = simplify(prod((a.extent for a in other.loops), start=as_expr(1)))
            if m.reduce and simplify(every - mine * step) == as_expr(0):
                number = flat_of([a.symbol for a in other.loops], [a.extent for a in other.loops])
                places = unflat(simplify(number // step), [a.extent for a in nest.loops])
                way = {a.name: x for a, x in zip(nest.loops, places, strict=True)}
                return simplify(self.address.substitute(way) - r.index) == as_expr(0)
        return False

    def _access(
        self, loop: SharedLoop, n: Nest, axes: tuple[Axis, ...], x: Expr, when: Expr, sizes: Mapping[str, int]
    ) -> _ElementAccess:
        k = [m is n for m in self.group].index(True)
        spans = [int(a.extent.evaluate(sizes)) for a in axes]
        flat = np.arange(prod(spans), dtype=np.int64)
        env = {**sizes, **dict(zip((a.name for a in axes), unraveled(flat, spans), strict=True))}
        live = np.broadcast_to(when.evaluate_array(env), flat.shape).astype(bool)
        at = np.broadcast_to(x.evaluate_array(env), flat.shape).astype(np.int64)[live]
        flat = flat[live]
        inner = loop.inner[k] if len(axes) > len(n.loops) else loop.steps[k]
        return _ElementAccess(at, flat // inner, flat % inner, flat, axes)

    def _conflict(self, loop: SharedLoop, sizes: dict[str, int], late: bool) -> Race | None:
        """A point of ``other`` and one of ``nest`` that writes what the first reads, at a moment that is wrong."""
        nest, other = self.nest, self.other
        w = self._access(loop, nest, nest.loops, self.address, self.write.when, sizes)
        i, j = ([m is n for m in self.group].index(True) for n in (nest, other))
        together = loop.slot(i, result=True) == loop.slot(j)
        for r in self.reads:
            a = self._access(loop, other, other.axes, r.index, r.when, sizes)
            for q, hit in _writers(w, a):
                bad = hit & (w.row[q] != a.row)
                if together:
                    bad |= hit & (w.fine[q] > a.fine if i < j else w.fine[q] < a.fine)
                if late:
                    bad |= hit
                for k in np.flatnonzero(bad)[:1].tolist():
                    return self._confirmed(r, _point(a.axes, int(a.flat[k]), sizes),
                                           _point(w.axes, int(w.flat[q[k]]), sizes), sizes,
                                           any_order=bool(w.row[q[k]] != a.row[k]))  # fmt: skip
        return None

    def _confirmed(
        self, r: Read, here: dict[str, int], there: dict[str, int], sizes: Mapping[str, int], *, any_order: bool
    ) -> Race:
        """The conflict, once plain Python sees it too: both formulas at both points."""
        nest, other, home = self.nest, self.other, self.home
        element = int(r.index.evaluate(here))
        sure = element == int(self.address.evaluate(there)) and r.when.evaluate(here)
        if not sure or not self.write.when.evaluate(there):
            return Race(home, "unknown", "NumPy sees a point that overwrites what another reads, plain Python does not")
        shown = ", ".join(f"{k}={v}" for k, v in there.items()) or "its one point"
        verb, moment = ("writes", "after") if self.fresh else ("overwrites", "before")
        order = (
            "points run in any order" if any_order else "that one runs later" if self.fresh else "that one ran sooner"
        )
        source = " at ".join(str(x) for x in self._source(other) if x)
        name = f"{other.name} ({source})" if source else other.name
        who = "the same loop" if other is nest else f"{name}, in the same kernel,"
        meant = f"{home}[{element}] {moment} the point {shown} of {nest.name} {verb} it: {order}"
        written = f"{home}[{int(self.address.evaluate(here))}]" if other is nest and not nest.reduce else ""
        found = Difference(here, written, f"{home}[{element}]", meant, str(r.index), *self._source(nest))
        return Race(home, "refuted", f"{who} reads what another point {verb}", found)


def _writers(w: _ElementAccess, a: _ElementAccess) -> Iterator[tuple[Ints, Bools]]:
    """For each access the first and last write to its address, by iteration and by inner point: (which, whether)."""
    if not len(w.at):
        return
    for keys in ((w.fine, w.row), (w.row, w.fine)):
        order = np.lexsort((*keys, w.at))
        at = w.at[order]
        for side, back in (("left", 0), ("right", 1)):
            k = np.searchsorted(at, a.at, side="left" if side == "left" else "right") - back
            k = np.clip(k, 0, len(at) - 1)
            yield order[k], at[k] == a.at


def _point(axes: Sequence[Axis], number: int, sizes: Mapping[str, int]) -> dict[str, int]:
    places = unraveled(np.array([number], dtype=np.int64), [int(a.extent.evaluate(sizes)) for a in axes])
    return {**sizes, **{a.name: int(c[0]) for a, c in zip(axes, places, strict=True)}}
