"""The time of a CPU's cores, loop by loop: what each innermost loop does takes its time after the others.

A compiler makes vectors of the steps of an innermost loop, and of short loops inside it, which it writes out. It does
not where an address divides by a constant along the loop or is loaded at each step, or where what is written out stands
under conditions of its own. There every access, operation and quotient of an index is an instruction or several. Where
neighbouring steps are lines of memory apart, each moves a line to the nearest cache, unless that still holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from idgraph.arith import Expr, symbol
from idgraph.cost.access_sites import AccessSite, EnclosingLoop, KernelSites, Work
from idgraph.cost.iteration_count import Arrays, count_points, relevant
from idgraph.cost.memory_traffic import second_cache
from idgraph.ir import item_size
from idgraph.ir.device import Device
from idgraph.ir.op_table import OPERATIONS
from idgraph.ir.walks import reach

SHORT = 8  # steps of a loop that is written out
DIVISION = 5  # instructions of a quotient or rest by a constant: a product, its upper half, shifts, a difference
APART = 2  # instructions of an element that is put into a vector, or taken out of it
CoreBound = Literal["arithmetic", "special functions", "loads", "steps"]
_SPECIAL = ("special", "library")


@dataclass(slots=True)
class Body:
    """The statements of one innermost loop: ``loops`` are those whose steps its vectors would take."""

    loops: tuple[EnclosingLoop, ...]
    sites: list[AccessSite] = field(default_factory=list[AccessSite])
    works: list[Work] = field(default_factory=list[Work])


def core_times(found: KernelSites, arrays: Arrays, sizes: Mapping[str, int], device: Device) -> dict[CoreBound, float]:
    """Seconds of a kernel's loops on all cores, added up by what bounds each; ``sizes`` are elements of buffers."""
    return _Core(found, arrays, sizes, device).computed()


def scalar_steps(found: KernelSites, device: Device) -> int:
    """The steps of a kernel in loops without vectors."""
    core = _Core(found, {}, {}, device)
    return sum(core.steps(b) for b in bodies(found) if not core.is_vector(b))


def bodies(found: KernelSites) -> list[Body]:
    """The statements by innermost loop, each with the short loops that are written out in it."""
    made: dict[tuple[int, ...], Body] = {}
    for x in (*found.sites, *found.works):
        loops = innermost(x.around)
        body = made.setdefault(tuple(y.number for y in loops[:1]), Body(loops))
        known = {y.number for y in body.loops}
        body.loops = (*body.loops, *(y for y in loops if y.number not in known))
        if isinstance(x, AccessSite):
            body.sites.append(x)
        else:
            body.works.append(x)
    return list(made.values())


def innermost(around: Sequence[EnclosingLoop]) -> tuple[EnclosingLoop, ...]:
    """The innermost loop of more than a few steps, and the short loops in it that have more than one."""
    inside: list[EnclosingLoop] = []
    for x in reversed(around):
        if x.extent > SHORT or x.is_block:
            return (x, *reversed(inside))
        if x.extent > 1:
            inside.append(x)
    return tuple(reversed(inside))


def divisions(e: Expr, own: frozenset[str]) -> list[Expr]:
    """The quotients and rests in an expression that depend on one of the loops."""
    found = reach([e], lambda x: x.args if x.names & own else ())
    return [x for x in found if x.op in ("floordiv", "mod") and x.names & own]


class _Core:
    """The times of one kernel."""

    def __init__(self, found: KernelSites, arrays: Arrays, sizes: Mapping[str, int], device: Device) -> None:
        self.found, self.arrays, self.sizes, self.device = found, arrays, sizes, device
        self.near = device.levels[0][0] // device.processors if device.levels else 0
        self.counts: dict[tuple[tuple[EnclosingLoop, ...], tuple[Expr, ...]], int] = {}
        self.outer = {y.number for x in (*found.sites, *found.works) for y in _outer_loops(x.around)}

    def computed(self) -> dict[CoreBound, float]:
        made = dict[CoreBound, float]()
        for body in bodies(self.found):
            limits = self.limits(body)
            bound = max(limits, key=lambda n: limits[n])
            made[bound] = made.get(bound, 0.0) + limits[bound]
        return made

    def limits(self, body: Body) -> dict[CoreBound, float]:
        """Seconds of the parts of one loop that run at once, of all cores together."""
        vector, device = self.is_vector(body), self.device
        works = [(w, self.many(w) * w.count) for w in body.works if OPERATIONS[w.op].cycles != "free"]
        special = sum(n / self.function(w, vector) for w, n in works if OPERATIONS[w.op].cycles in _SPECIAL)
        plain = sum(n * OPERATIONS[w.op].steps / device.rate(w.dtype, special=False) for w, n in works)
        apart = [s for s in body.sites if self.is_strided(s, body)]
        steps = sum(self.many(s) * s.width * APART for s in apart) if vector else self.steps(body)
        lines = sum(self.many(s) for s in apart) if sum(self.reach(s, body) for s in apart) > self.near else 0
        moved = lines * device.line / second_cache(device)
        return {
            "arithmetic": plain, "special functions": special,
            "loads": sum(self.many(s) for s in body.sites) / device.loads,
            "steps": steps / device.scalar + moved + special if device.scalar else 0.0,
        }  # fmt: skip

    def function(self, w: Work, vector: bool) -> float:
        """Special operations a second; where no vectors are made a library's at most."""
        library = OPERATIONS[w.op].cycles == "library"
        rate = self.device.function(w.op, w.dtype, library)
        return rate if vector or not library else min(rate, self.device.function("", w.dtype, library))

    def many(self, x: AccessSite | Work) -> int:
        """The points of a statement."""
        key = (x.around, x.conditions)
        if key not in self.counts:
            self.counts[key] = count_points(x.around, x.conditions, self.found.data, self.arrays).points
        return self.counts[key]

    def is_vector(self, body: Body) -> bool:
        """Whether a compiler makes vectors of the body's steps."""
        if not body.loops:
            return True
        if body.loops[0].number in self.outer:
            return False
        step, short = {body.loops[0].var}, {x.var for x in body.loops[1:]}
        own = frozenset(step | short)
        if any(divisions(e, own) for e in _expressions(body)) or any(self.is_loaded(s, body) for s in body.sites):
            return False
        conditions = {c for x in (*body.sites, *body.works) for c in x.conditions}
        return not any(c.names & short and c.names - short for c in conditions)

    def is_loaded(self, s: AccessSite, body: Body) -> bool:
        """Whether an access goes where an index says that is loaded at each step."""
        own, data = {x.var for x in body.loops}, self.found.data
        loaded = [symbol(n) for n in s.address.names if n in data]
        return any(x.var in own for x in relevant(loaded, body.loops, data))

    def is_strided(self, s: AccessSite, body: Body) -> bool:
        """Whether neighbouring steps of the loop are far apart: by a stride, or where an index says."""
        if self.is_loaded(s, body):
            return True
        first = next((x for x in reversed(body.loops) if x.var in s.address.names), None)
        if first is None or divisions(s.address, frozenset({first.var})):
            return False
        at = s.address.substitute({first.var: 0})
        step = (s.address.substitute({first.var: 1}) - at).simplify()
        return not step.is_const or abs(int(step)) * item_size(s.buffer.dtype) >= self.device.line // 2

    def reach(self, s: AccessSite, body: Body) -> int:
        """Bytes of the lines that an access touches while the body's loops run."""
        lines = prod(x.extent for x in relevant([s.address], body.loops, self.found.data)) * self.device.line
        size = self.sizes.get(s.buffer.name, lines)
        return min(lines, size * item_size(s.buffer.dtype))

    def steps(self, body: Body) -> int:
        """Steps of a body without vectors."""
        own = frozenset(x.var for x in body.loops)
        made = sum(self.many(s) * s.width for s in body.sites)
        made += sum(
            self.many(w) * w.count * OPERATIONS[w.op].steps for w in body.works if OPERATIONS[w.op].cycles != "free"
        )
        around = max((x.around for x in (*body.sites, *body.works)), key=len, default=())
        conditions = {c for x in (*body.sites, *body.works) for c in x.conditions}
        parts = dict.fromkeys((d for e in _expressions(body) for d in divisions(e, own)), DIVISION)
        parts |= {c: 2 for c in conditions if c.names & own}
        return made + sum(each * _often(e, around) for e, each in parts.items())


def _often(e: Expr, around: Sequence[EnclosingLoop]) -> int:
    """How often an expression is computed: at the steps of the loops down to the last one that it depends on."""
    deepest = max((k for k, x in enumerate(around) if x.var in e.names), default=-1)
    return prod(x.extent for x in around[: deepest + 1])


def _outer_loops(around: Sequence[EnclosingLoop]) -> Sequence[EnclosingLoop]:
    """The loops around an innermost one."""
    inner = innermost(around)[:1]
    return around[: around.index(inner[0])] if inner else ()


def _expressions(body: Body) -> set[Expr]:
    """The addresses and conditions of a body, each once."""
    return {e for x in body.sites for e in (x.address, *x.conditions)} | {c for w in body.works for c in w.conditions}
