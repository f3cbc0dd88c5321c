"""Why two operations do not access the same element of a buffer in the same iteration of the same loops: one cause, by
what differs.

Two accesses agree where both nests run the same steps in the same order and name the same element at each. Obstacles
are tested in one order, so that there is one cause: values known only at run time, disjoint elements, results that must
be complete first, then the places of the elements, and last the order in which they are visited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import prod
from typing import Literal, get_args

from idgraph.arith import TRUE, Expr, Proof, as_expr, prove_equal, simplify, symbol
from idgraph.arith.expr import postorder
from idgraph.fuse.access_relation import AccessRelation, StridedForm, delinearize_strides
from idgraph.ir import SCATTERS
from idgraph.ir.op_table import SCANS

Cause = Literal[
    "loop order", "factorisation", "element order", "offset", "extent", "broadcast", "reduction", "synchronisation",
    "loaded index", "constant index", "stride", "limits",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)
MOST_LOOPS = 7  # orders of which are tried one by one
MOST_POINTS = 4096  # of an irregular access, that are counted


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The cause, and the facts that show it."""

    cause: Cause
    because: tuple[str, ...]
    disjoint: bool = False


def difference(a: AccessRelation, b: AccessRelation, ways: int = 1) -> Mismatch | None:
    """Why ``a`` (the earlier one) and ``b`` do not touch their buffer alike; None where they do.

    ``ways``: how many times the operation of ``b`` touches the buffer: a rotation reads it in two parts.
    """
    if agree(a, b):
        return None
    known = _loaded_mismatch(a, b) or _constant(a, b)
    if known is not None:
        return known
    if a.is_write and (a.expr.op in SCATTERS or a.expr.op in SCANS or a.expr.is_reduction):
        return _waits(a, b)
    return _placed(a, b, ways)


def agree(a: AccessRelation, b: AccessRelation) -> bool:
    """Whether both run the same steps, and name the same element at each at which they touch one."""
    if a.is_write and a.expr.op in SCATTERS:
        return False  # each element may be written by any of the entries
    # A sum is written when its loops have ended; loops of one step do not count.
    mine = [x for x in a.loops if x.extent != 1 and not (a.is_write and x.reduced)]
    their = [x for x in b.loops if x.extent != 1]
    if len(mine) != len(their) or any(simplify(x.extent - y.extent) != 0 for x, y in zip(mine, their)):
        return False
    # Both name their loops i0, i1, ...: each has a table of its own.
    alone: dict[Expr, Expr] = {x.symbol: as_expr(0) for x in a.loops if x.extent == 1}
    table: dict[Expr, Expr] = {y.symbol: x.symbol for x, y in zip(mine, their)}
    table |= {y.symbol: as_expr(0) for y in b.loops if y.extent == 1}
    theirs = {v: k for k, v in a.loads.items()}
    for name, (index, at) in b.loads.items():
        mine = theirs.get((index, tuple(simplify(x.substitute(table)) for x in at)))
        if mine is None:
            return False
        old = next(s for x in (*b.map.results, b.map.condition) for s in x.symbols if s.name == name)
        table[old] = next(s for x in (*a.map.results, a.map.condition) for s in x.symbols if s.name == mine)
    facts = () if b.map.condition is TRUE else (b.map.condition.substitute(table),)
    return all(
        _provably_equal(x.substitute(alone), y.substitute(table), facts) for x, y in zip(a.map.results, b.map.results)
    )


def _provably_equal(a: Expr, b: Expr, facts: tuple[Expr, ...] = ()) -> bool:
    a, b = simplify(a), simplify(b, facts=facts)
    return a == b or isinstance(prove_equal(a, b, facts=facts), Proof)


def _loaded_mismatch(a: AccessRelation, b: AccessRelation) -> Mismatch | None:
    by = [t for t in (a, b) if t.loads]
    if not by or (a.is_write and a.expr.op in SCATTERS):
        return None
    index = next(iter(by[-1].loads.values()))[0]
    return Mismatch("loaded index", (f"{index} says at run time which element of {a.buffer.name} is meant",))


def _constant(a: AccessRelation, b: AccessRelation) -> Mismatch | None:
    for p, (x, y) in enumerate(zip(a.map.results, b.map.results)):
        n = simplify(as_expr(a.buffer.axes[p].extent))
        if x.is_const and y.is_const and x != y and n != 1:
            both = f"axis {p} of {a.buffer.name} is {x} for one and {y} for the other: no element is touched by both"
            return Mismatch("constant index", (both,), disjoint=True)
    return None


def _waits(a: AccessRelation, b: AccessRelation) -> Mismatch:
    """``b`` needs what ``a`` knows only when loops of its own have ended."""
    name, op = a.buffer.name, a.expr.op
    if op in SCATTERS:
        why = f"an element of {name} is known when all entries of the {op} have been written, by whichever blocks"
        return Mismatch("synchronisation", (why,))
    shared = _shared_loops(a, b)
    if op in SCANS:
        found = _placed(a, b, 1)
        return found if shared else Mismatch("synchronisation", (f"{name} is complete when its scan has ended",))
    if not any(x.reduced for x in a.loops):
        return _placed(a, b, 1)
    extra = [x for n, x in enumerate(b.loops) if n not in shared.values() and x.extent != 1]
    mine = [x for n, x in enumerate(a.loops) if not x.reduced and n not in shared and x.extent != 1]
    total = " x ".join(str(x.extent) for x in a.loops if x.reduced)
    if not extra and not mine:
        return _placed(_final_write(a), b, 1)
    if len(mine) == 0 and shared:
        why = f"{name} is the {op} of {total} elements for each of " + ", ".join(
            f"{a.loops[n].symbol} < {a.loops[n].extent}" for n in shared
        )
        return Mismatch(
            "reduction", (why, f"{b.expr.output.name} needs it at {_step_sizes(extra)} more points of each")
        )
    if extra and not mine:
        why = f"every point of {b.expr.output.name} needs {name}, the {op} of all {total} elements"
        return Mismatch("synchronisation", (why, "no loop of the reader holds one part of it: blocks wait for all"))
    return _placed(_final_write(a), b, 1)


def _final_write(a: AccessRelation) -> AccessRelation:
    """The write of a reduction, as it is when its reduced loops have ended."""
    loops = tuple(x for x in a.loops if not x.reduced)
    m = a.map
    return replace(a, loops=loops, map=type(m)(tuple(x.symbol for x in loops), m.results, m.shape, m.condition))


def _step_sizes(loops: Sequence[object]) -> str:
    sizes = [getattr(x, "size", None) for x in loops]
    known = [n for n in sizes if isinstance(n, int)]
    return str(prod(known)) if len(known) == len(sizes) else "several"


def _shared_loops(a: AccessRelation, b: AccessRelation) -> dict[int, int]:
    """Kept loops of the writer ``a`` that are loops of ``b``: position -> position."""
    found: dict[int, int] = {}
    for n, x in enumerate(a.loops):
        if x.reduced:
            continue
        axis = next((p for p, r in enumerate(a.map.results) if r == x.symbol), None)
        if axis is None:
            continue
        at = b.map.results[axis]
        k = next((k for k, y in enumerate(b.loops) if at == y.symbol and k not in found.values()), None)
        if k is not None and simplify(b.loops[k].extent - x.extent) == 0:
            found[n] = k
    return found


# where the elements lie -----------------------------------------------------------------------------------------------


def _placed(a: AccessRelation, b: AccessRelation, ways: int) -> Mismatch:
    fa, fb = delinearize_strides(a), delinearize_strides(b)
    if fa is None or fb is None:
        return _irregular(a, b, fa, fb)
    if _in_another_order(a, b, fa, fb):
        return Mismatch("loop order", (_orders(a, b),))
    skipped = next((t for t in (b, a) if _skips(t)), None)
    if skipped is not None:
        why = f"{skipped.expr.output.name} touches {a.buffer.name} where {skipped.map.condition}"
        return Mismatch("stride", (why,))
    wide = _broadcast(a, b, fa, fb)
    if wide is not None:
        return wide
    if fa.box == fb.box:
        return Mismatch("factorisation", (_factors(a, b),))
    if _unsigned(fa) == _unsigned(fb):
        return Mismatch("element order", (_orders(a, b),))
    stepped = _stepped(a, fa) or _stepped(b, fb)
    if stepped:
        return Mismatch("stride", (stepped,), disjoint=_are_disjoint(fa, fb))
    if ways > 1 and a.points == b.points:
        return Mismatch("element order", (f"{b.expr.output.name} reads {a.buffer.name} in {ways} parts",))
    if [prod(e for e, _ in runs) for _, runs in fa.box] != [prod(e for e, _ in runs) for _, runs in fb.box]:
        return Mismatch("extent", (_extents_text(a, b),), disjoint=_are_disjoint(fa, fb))
    if fa.first != fb.first:
        shift = ", ".join(f"{y - x:+d} along axis {p}" for p, (x, y) in enumerate(zip(fa.first, fb.first)) if x != y)
        return Mismatch("offset", (f"{b.expr.output.name} reads {a.buffer.name} {shift}",), _are_disjoint(fa, fb))
    return Mismatch("element order", (_orders(a, b),))


def _skips(t: AccessRelation) -> bool:
    """Whether it touches elements only at every few of its points (a condition with a remainder)."""
    return any(x.op == "mod" for x in postorder(t.map.condition))


def _unsigned(form: StridedForm) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """The box with every run counted upwards."""
    out: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    for low, runs in form.box:
        low += sum((e - 1) * s for e, s in runs if s < 0)
        up = sorted(((abs(s), e) for e, s in runs), reverse=True)
        joined: list[tuple[int, int]] = []
        for s, e in up:
            if joined and joined[-1][1] == s * e:
                joined[-1] = (joined[-1][0] * e, s)
            else:
                joined.append((e, s))
        out.append((low, tuple(joined)))
    return out


def _in_another_order(a: AccessRelation, b: AccessRelation, fa: StridedForm, fb: StridedForm) -> bool:
    """Whether the loops of ``a`` in some other order visit as ``b`` does."""
    if fa.merged or fb.merged or fa.first != fb.first:
        return False
    mine = [(x.extent, d) for x, d in zip(a.loops, fa.loops) if x.extent != 1]
    theirs = [(x.extent, d) for x, d in zip(b.loops, fb.loops) if x.extent != 1]
    if len(mine) != len(theirs) or mine == theirs:
        return False
    rest = list(mine)
    for x in theirs:
        if x not in rest:
            return False
        rest.remove(x)
    return True


def _broadcast(a: AccessRelation, b: AccessRelation, fa: StridedForm, fb: StridedForm) -> Mismatch | None:
    idle = _visits_per_element(a, fa), _visits_per_element(b, fb)
    if idle[0] == idle[1]:
        return None
    wide, n = (b, idle[1]) if idle[1] > idle[0] else (a, idle[0])
    why = f"{wide.expr.output.name} touches each element of {a.buffer.name} at {n} points of its loops"
    return Mismatch("broadcast", (why,))


def _stepped(t: AccessRelation, form: StridedForm) -> str:
    """Where the access leaves out elements between those it touches."""
    for p, (_, runs) in enumerate(form.box):
        steps = [abs(s) for _, s in runs]
        if steps and min(steps) > 1:
            return f"{t.expr.output.name} touches every {_nth(min(steps))} element along axis {p} of {t.buffer.name}"
    return ""


def _nth(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")


def _irregular(a: AccessRelation, b: AccessRelation, fa: StridedForm | None, fb: StridedForm | None) -> Mismatch:
    sizes = a.sizes, b.sizes
    which = next((t for t, f in ((b, fb), (a, fa)) if f is None), b)
    if sizes[0] is None or sizes[1] is None:
        return _symbolic(a, b)
    mine, idle = _visits_per_element(a, fa), _visits_per_element(b, fb)
    if idle != mine:
        wide = b if idle > mine else a
        why = f"{wide.expr.output.name} touches each element of {a.buffer.name} at several points of its loops"
        return Mismatch("broadcast", (why,))
    if a.points != b.points:
        return Mismatch("extent", (_extents_text(a, b),))
    return Mismatch("element order", (f"{which.expr.output.name} goes through {a.buffer.name} as {which.map}",))


def _visits_per_element(t: AccessRelation, form: StridedForm | None) -> int:
    """How often it touches each element: by digits that move nothing, by counting, or by loops that no axis has."""
    if form is not None:
        return prod(d.extent for d in form.digits if not d.moves)
    sizes = t.sizes or ()
    if t.sizes is not None and prod(sizes) <= MOST_POINTS:
        met: list[tuple[int | bool, ...]] = []
        for point in product(*map(range, sizes)):
            env = {x.symbol.name: v for x, v in zip(t.loops, point, strict=True)}
            if t.map.condition.evaluate(env):
                met.append(tuple(x.evaluate(env) for x in t.map.results))
        return max(Counter(met).values(), default=1)
    used = {n for x in t.map.results for n in x.names}
    return prod(x.size or 1 for x in t.loops if x.symbol.name not in used)


def _symbolic(a: AccessRelation, b: AccessRelation) -> Mismatch:
    """Sizes are symbols: orders of the loops are tried, then the flat order, then the difference is the cause."""
    if len(a.loops) == len(b.loops) <= MOST_LOOPS and a.map.condition is b.map.condition is TRUE:
        for order in permutations(range(len(a.loops))):
            if any(simplify(a.loops[k].extent - b.loops[n].extent) != 0 for n, k in enumerate(order)):
                continue
            table = {a.loops[k].symbol: b.loops[n].symbol for n, k in enumerate(order)}
            if all(simplify(x.substitute(table)) == y for x, y in zip(a.map.results, b.map.results)):
                return Mismatch("loop order", (_orders(a, b),))
    used = [{n for x in t.map.results for n in x.names} for t in (a, b)]
    idle = [[x for x in t.loops if x.symbol.name not in u and x.extent != 1] for t, u in zip((a, b), used)]
    if len(idle[0]) != len(idle[1]):
        wide = b if len(idle[1]) > len(idle[0]) else a
        why = f"{wide.expr.output.name} touches each element of {a.buffer.name} at several points of its loops"
        return Mismatch("broadcast", (why,))
    total = [simplify(_product([x.extent for x in t.loops])) for t in (a, b)]
    if total[0] == total[1]:
        flat = [_as_flat_function(t, total[0]) for t in (a, b)]
        if flat[0] is not None and flat[1] is not None and all(_provably_equal(x, y) for x, y in zip(flat[0], flat[1])):
            return Mismatch("factorisation", (_factors(a, b),))
        shifts = [simplify(y - x) for x, y in zip(_renamed(a, b), b.map.results)]
        if all(x.is_const or not (x.names & {v.symbol.name for v in b.loops}) for x in shifts):
            return Mismatch("offset", (f"they differ by ({', '.join(map(str, shifts))})",))
        return Mismatch("element order", (_orders(a, b),))
    return Mismatch("extent", (_extents_text(a, b),))


def _renamed(a: AccessRelation, b: AccessRelation) -> list[Expr]:
    table = {x.symbol: y.symbol for x, y in zip(a.loops, b.loops)}
    return [x.substitute(table) for x in a.map.results]


def _product(extents: Sequence[Expr]) -> Expr:
    out = as_expr(1)
    for x in extents:
        out = out * x
    return out


def _as_flat_function(t: AccessRelation, total: Expr) -> list[Expr] | None:
    """The access as a function of the number of the point."""
    if t.map.condition is not TRUE:
        return None
    rest: Expr = symbol("lin", 0, simplify(total - 1))
    table: dict[Expr, Expr] = {}
    for x in reversed(t.loops):
        table[x.symbol] = rest % x.extent
        rest = rest // x.extent
    return [simplify(x.substitute(table)) for x in t.map.results]


# elements that both touch ---------------------------------------------------------------------------------------------


def _are_disjoint(fa: StridedForm, fb: StridedForm) -> bool:
    """Whether, by some single axis, no element is touched by both."""
    for (x, runs), (y, others) in zip(fa.box, fb.box):
        ends = [(low + sum(min(0, (e - 1) * s) for e, s in r), low + sum(max(0, (e - 1) * s) for e, s in r))
                for low, r in ((x, runs), (y, others))]  # fmt: skip
        if ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]:
            return True
        if len(runs) == 1 and len(others) == 1 and abs(runs[0][1]) == abs(others[0][1]) and (y - x) % runs[0][1]:
            return True
    return False


def _orders(a: AccessRelation, b: AccessRelation) -> str:
    return f"{_visit(a)}; {_visit(b)}"


def _visit(t: AccessRelation) -> str:
    loops = ", ".join(str(x.symbol) for x in t.loops)
    at = ", ".join(map(str, t.map.results))
    return f"{t.expr.output.name} goes ({loops}) -> {t.buffer.name}[{at}]"


def _factors(a: AccessRelation, b: AccessRelation) -> str:
    sizes = [" x ".join(str(x.extent) for x in t.loops) or "one point" for t in (a, b)]
    return f"the same elements, as {sizes[0]} loops of {a.expr.output.name} and {sizes[1]} of {b.expr.output.name}"


def _extents_text(a: AccessRelation, b: AccessRelation) -> str:
    sizes = [" x ".join(str(x.extent) for x in t.loops) or "one point" for t in (a, b)]
    return f"{a.expr.output.name} runs over {sizes[0]}, {b.expr.output.name} over {sizes[1]}"
