"""A sum of squares around a number of the row, as a variance has it, in the pass that finds that number.

With p the row's first value, D = sum(x - p) and Q = sum((x - p)^2), for any c

    sum((x - c)^2) = Q + (c - p) * (n * (c - p) - 2 * D),

so both sums are taken while the row is read once, and c, which is made of sum(x) = D + n * p, need not be known before.
All of it is in float64, of float32 values. What the difference loses of it is a factor Q / sum((x - mean)^2), which is
never above n + 1 since p is a value of the row (Chan, Golub and LeVeque, "Algorithms for computing the sample variance:
analysis and recommendations", 1983, on shifted data), and a row of equal values gives exactly 0. In place of an
infinite first value p is 0, or the sum of x would be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import TRUE, as_expr, is_true
from idgraph.kernel.def_use import Renamer, all_reads, all_sets, map_statement, reads, rewritten_inside, sets
from idgraph.kernel.ir import (
    Accumulate,
    BlockReduce,
    Comment,
    Compute,
    Constant,
    If,
    Load,
    Local,
    Operand,
    Select,
    Stmt,
)
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.provenance import guard_provenance
from idgraph.passes.rows.reduction_loop import Plain, ReductionLoop, ShiftedMoments

LEAST = 32  # columns of each thread: of fewer, reading them again costs less than what is done once for each row


def with_moments(a: ReductionLoop, added: Sequence[Plain], c: str) -> ReductionLoop | None:
    """Sweep ``a`` with the statements ``added`` of a later one, which use the number ``c`` only in a sum of
    ``(x - c)^2``, where ``a`` adds up the same float32 x; None for any others."""
    ready = [s for s in added if not all_reads((s,)) & _derived_from(added, c)]
    waiting = [s for s in added if s not in ready and not isinstance(s, Comment)]
    match waiting:
        case [
            Compute(Local(d, "float32"), "sub", (Local() as left, Local() as right), "float32"),
            Compute(Local(square, "float32"), op, factors, "float32"),
            Compute(Local(term, "float64"), "cast", (Local(squared),)),
            Accumulate(squares, "sum", Local(added_up), None),
        ] if squared == square and added_up == term and (op, factors) in _squares(d):
            x = right if left.name == c else left
            center = left if left.name == c else right
        case _:
            return None
    total = next((s for s in a.body if _adds(s, x, a.body)), None)
    first = _first(a, x)
    known = a.extent.is_const and is_true(a.extent >= max(1, LEAST * a.threads))
    if x.dtype != "float32" or center.name != c or not isinstance(total, Accumulate) or first is None or not known:
        return None
    pivot, name = Local(f"{total.acc.name}_first", "float64"), total.acc.name
    start, made = first
    endless, finite = Local(f"{total.acc.name}_endless", "bool"), Local(f"{total.acc.name}_finite", "float32")
    start += [
        Compute(endless, "isinf", (made,), "float32"),
        Compute(finite, "where", (endless, Constant(0.0), made), "float32"),
    ]
    apart, squared_apart = Local(f"{name}_apart", "float64"), Local(f"{name}_square", "float64")
    terms: tuple[Plain, ...] = (
        Compute(apart, "sub", (total.value, pivot), "float64"),
        replace(total, value=apart, result="float64"),
        Compute(squared_apart, "mul", (apart, apart), "float64"),
        Accumulate(squares, "sum", squared_apart, result="float64"),
    )
    body = [y for s in a.body for y in (terms if s is total else (s,))]
    return replace(
        a,
        body=(*body, *ready),
        moments=ShiftedMoments(
            (*start, Compute(pivot, "cast", (finite,), "float64")), pivot, name, squares.name, center
        ),
    )


def _derived_from(added: Sequence[Plain], c: str) -> frozenset[str]:
    """The variables that are made of ``c``, and itself."""
    found = {c}
    for s in added:
        if reads(s) & found and not isinstance(s, Accumulate):
            found |= sets(s)
    return frozenset(found)


def _squares(d: str) -> tuple[tuple[str, tuple[Operand, ...]], ...]:
    """The operations that square a variable."""
    x = Local(d, "float32")
    return (("square", (x,)), ("mul", (x, x)))


def _adds(s: Plain, x: Local, body: Sequence[Plain]) -> bool:
    """Whether ``s`` adds up the float32 ``x`` in float64."""
    values = ValueNumbering(read_only=None)
    for y in body:
        values.define(y)
    match s:
        case Accumulate(Local(dtype="float64"), "sum", Local() as term, None, running=None):
            wide = Compute(Local(f"{x.name}_wide", "float64"), "cast", (x,), "float64")
            return values.known(wide) == values.home(term)
        case _:
            return False


def _first(s: ReductionLoop, x: Local) -> tuple[list[Stmt], Local] | None:
    """The statements that compute ``x`` of column 0 by themselves, and the variable that holds it there."""
    needed, found = {x.name}, list[Plain]()
    for y in reversed(s.body):
        if not sets(y) & needed:
            continue
        if not isinstance(y, Load | Compute | Select):
            return None
        found.insert(0, y)
        needed |= reads(y)
    names = Renamer(set(), {n: Local(f"{n}_first", "float32") for n in all_sets(found)})
    made: list[Stmt] = []
    for y in found:
        moved = map_statement(
            y, made=names.local, read=names.operand, index=lambda e: e.substitute({s.column: as_expr(0)})
        )
        if isinstance(moved, Load) and s.condition != TRUE:
            moved = replace(moved, guard=moved.guard & s.condition, serves=guard_provenance(moved.serves, s.condition))
        made.append(moved)
    return made, names.local(x)


def first_value(s: ReductionLoop) -> list[Stmt]:
    """The statements in front of a sweep that compute the value which its sums are taken without."""
    return [] if s.moments is None else list(s.moments.first)


def settled_moments(s: ReductionLoop, after: Sequence[Stmt]) -> list[Stmt]:
    """The statements behind a sweep, with its sum and its sum of squares as they are without the first value."""
    m = s.moments
    if m is None:
        return list(after)
    total, squares = Local(m.total, "float64"), Local(m.squares, "float64")
    whole, count = Local(f"{m.total}_whole", "float64"), Constant(float(int(s.extent)))
    summed: list[Stmt] = [Compute(whole, "fma", (m.pivot, count, total), "float64")]
    names = ("center", "away", "less", "more", "left")
    center, away, less, more, left = (Local(f"{m.squares}_{n}", "float64") for n in names)
    squared: list[Stmt] = [
        Compute(center, "cast", (m.center,), "float64"),
        Compute(away, "sub", (center, m.pivot), "float64"),
        Compute(less, "mul", (total, Constant(-2.0)), "float64"),
        Compute(more, "fma", (away, count, less), "float64"),
        Compute(left, "fma", (away, more, squares), "float64"),
        Compute(squares, "maximum", (left, Constant(0.0)), "float64"),
    ]
    readers = Renamer(set(), {m.total: whole})
    at = _after_exchange(m.total, after)
    made = [*after[:at], *summed, *(rewritten_inside(x, read=readers.operand) for x in after[at:])]
    inside = squared if s.condition == TRUE else [If(s.condition, tuple(squared))]  # only such rows have a center
    at = _after_exchange(m.squares, made)
    return [*made[:at], *inside, *made[at:]]


def _after_exchange(acc: str, after: Sequence[Stmt]) -> int:
    """The place behind the exchange of ``acc`` between threads; where there is none, in front of its first reader."""
    exchanges = [n for n, x in enumerate(after) if isinstance(x, BlockReduce) and x.acc.name == acc]
    readers = [n for n, x in enumerate(after) if acc in all_reads((x,))]
    return exchanges[-1] + 1 if exchanges else readers[0] if readers else 0
