"""Points of one kernel run in any order: none may read what another of them overwrites.

Judged for all memory that a kernel writes, its own results too: a nest against itself, and nests of one loop against
each other (the points of one number are one iteration, in which the nests run in their order). Nests that reduce are
left out: how their points share iterations is the compiler's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, simplify
from idgraph.check.algebraic import flat_of, unflat
from idgraph.check.enumeration import unraveled
from idgraph.check.program import Nest, NeutralProgram, Read, Write
from idgraph.check.report import Difference, Verdict
from idgraph.check.store_coverage import injective

POINTS = 1 << 23  # points of a loop that are looked at one by one

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Race:
    """A finding about one memory that a nest writes, and the nest that reads it."""

    storage: str
    verdict: Verdict
    because: str
    difference: Difference | None = None


def races(p: NeutralProgram, nest: Nest, samples: Sequence[dict[str, int]]) -> Iterator[Race]:
    """For each memory that ``nest`` writes: whether its kernel reads there what another point writes."""
    if not nest.kernel or nest.reduce or nest.unread:
        return
    homes = {b.name: (b.home, b.base) for b in p.buffers} | dict(p.memory)
    group = [n for n in p.nests if n.kernel == nest.kernel and not n.reduce and not n.unread]
    for w in nest.writes:
        home, base = homes.get(w.buffer, (w.buffer, as_expr(0)))
        for other in group:
            reads = [r for x in other.writes for r in x.reads if homes.get(r.buffer, (r.buffer,))[0] == home]
            own = [replaced(r, homes) for r in dict.fromkeys(reads)]
            if own and _iteration_counts(other, samples) == _iteration_counts(nest, samples):
                yield _judged(home, nest, w, w.index + base, other, own, samples)


def replaced(r: Read, homes: Mapping[str, tuple[str, Expr]]) -> Read:
    """A read at its address in its storage."""
    home, base = homes.get(r.buffer, (r.buffer, as_expr(0)))
    return Read(home, simplify(r.index + base), r.when)


def _iteration_counts(n: Nest, samples: Sequence[dict[str, int]]) -> list[int]:
    return [prod(int(a.extent.evaluate(s)) for a in n.loops) for s in samples]


def _judged(
    home: str, nest: Nest, w: Write, address: Expr, other: Nest, reads: Sequence[Read],
    samples: Sequence[dict[str, int]],
) -> Race:  # fmt: skip
    values = {*nest.loads, *nest.places, *other.loads, *other.places}
    theirs = unflat(simplify(flat_of([a.symbol for a in nest.loops], [a.extent for a in nest.loops])),
                    [a.extent for a in other.loops])  # fmt: skip
    way = {a.name: x for a, x in zip(other.loops, theirs, strict=True)}
    if injective(address, nest.loops, w.when) and all(
        simplify(r.index.substitute(way) - address) == as_expr(0) for r in reads
    ):
        return Race(home, "proved", "each point reads what no other point overwrites")
    if values & {n for x in (address, w.when, *(x for r in reads for x in (r.index, r.when))) for n in x.names}:
        return Race(home, "unknown", "it updates what it reads, at addresses of loaded values")
    for sizes in samples:
        if _iteration_counts(nest, [sizes])[0] * len(reads) > POINTS:
            return Race(home, "unknown", "it updates what it reads, at too many points to look at each")
        found = _conflict(home, nest, w, address, other, reads, sizes)
        if found is not None:
            return found
    if len(samples) != 1 or samples[0]:
        return Race(home, "unknown", "it updates what it reads; not proved for all sizes that no point overwrites it")
    return Race(home, "enumerated", "no point reads what another one overwrites")


def _conflict(
    home: str, nest: Nest, w: Write, address: Expr, other: Nest, reads: Sequence[Read], sizes: dict[str, int]
) -> Race | None:
    """A point of ``other`` and another one of ``nest`` that overwrites what the first reads."""
    count = _iteration_counts(nest, [sizes])[0]
    numbers = np.arange(count, dtype=np.int64)
    env, theirs = _env(nest, numbers, sizes), _env(other, numbers, sizes)
    at = np.broadcast_to(address.evaluate_array(env), (count,))
    live = np.broadcast_to(w.when.evaluate_array(env), (count,))
    order = np.argsort(at[live], kind="stable")
    kept, owner = at[live][order], numbers[live][order]
    for r in reads:
        wanted = np.broadcast_to(r.index.evaluate_array(theirs), (count,))
        place = np.minimum(np.searchsorted(kept, wanted), max(len(kept) - 1, 0))
        held = np.broadcast_to(r.when.evaluate_array(theirs), (count,))
        if not len(kept):
            return None
        bad = np.flatnonzero(held & (kept[place] == wanted) & (owner[place] != numbers))
        for k in bad[:1].tolist():
            return _confirmed_race(
                home, nest, w, address, other, r, _point(other, k, sizes), int(owner[place[k]]), sizes
            )
    return None


def _confirmed_race(
    home: str, nest: Nest, w: Write, address: Expr, other: Nest, r: Read, p: dict[str, int], q: int,
    sizes: dict[str, int],
) -> Race | None:  # fmt: skip
    """The conflict, once plain Python sees it too: both formulas at both points."""
    late = _point(nest, q, sizes)
    element = int(r.index.evaluate(p))
    sure = element == int(address.evaluate(late)) and r.when.evaluate(p) and w.when.evaluate(late)
    if not sure:
        return Race(home, "unknown", "NumPy sees a point that overwrites what another reads, plain Python does not")
    shown = ", ".join(f"{k}={v}" for k, v in late.items())
    who = "the same loop" if other is nest else f"{other.name}, in the same kernel"
    fresh = home == w.buffer
    meant = (
        f"{home}[{element}] after the point {shown} of {nest.name} writes it: points run in any order"
        if fresh
        else f"{home}[{element}] before the point {shown} of {nest.name} overwrites it: points run in any order"
    )
    written = f"{home}[{int(address.evaluate(p))}]" if other is nest else ""
    found = Difference(p, written, f"{home}[{element}]", meant, str(r.index))
    return Race(home, "refuted", f"{who} reads what another point {'writes' if fresh else 'overwrites'}", found)


def _env(n: Nest, numbers: Ints, sizes: Mapping[str, int]) -> dict[str, Ints | int]:
    spans = [int(a.extent.evaluate(sizes)) for a in n.loops]
    return {**sizes, **dict(zip((a.name for a in n.loops), unraveled(numbers, spans), strict=True))}


def _point(n: Nest, number: int, sizes: Mapping[str, int]) -> dict[str, int]:
    found = _env(n, np.array([number], dtype=np.int64), sizes)
    return {k: int(v) if isinstance(v, int) else int(v[0]) for k, v in found.items()}
