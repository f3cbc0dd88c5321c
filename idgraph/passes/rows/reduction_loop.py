"""A sweep: nested loops over the columns of a row, as the statements for one column.

The schedule splits the axis of the columns into loops ``o < N, t < T on threads, w < W``, and the first of them names
that axis (`Column`): their variables are the digits of one index c, below ``extent``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import Expr, and_, simplify, symbol
from idgraph.kernel.def_use import index_exprs, rewritten_inside
from idgraph.kernel.ir import (
    Accumulate,
    BoundsCheck,
    Comment,
    Compute,
    If,
    Load,
    Local,
    Loop,
    Select,
    SplitAxis,
    Stmt,
    Store,
    walk,
)
from idgraph.kernel.statements import axis_loops
from idgraph.lower.sync_insertion import merge_adjacent_ifs

COLUMN = "c"
Plain = Comment | Load | Compute | Select | Accumulate | Store | If
"""What a sweep does for a column; an `If` is what only some columns do."""
FAR = 2**31 - 1  # above every place that is counted in 32 bits
_ALONE = ("serial", "vectorize", "unroll")  # ways to run a loop on one thread


@dataclass(frozen=True, slots=True)
class ReductionLoop:
    """``body`` for each column ``column`` (a symbol) below ``extent``, where ``condition``, on the row, holds.

    ``loops`` are the loops it was: those of ``thread_dim`` run on threads, the innermost one gives the ``lanes``.
    ``later`` are the statements that depend on the running maximum ``online`` of ``body``. ``moments``: a sum of
    squares that ``body`` takes around the row's first value.
    """

    loops: tuple[Loop, ...]
    column: Expr
    extent: Expr
    condition: Expr
    body: tuple[Plain, ...]
    online: OnlineRescaling | None = None
    later: tuple[Plain, ...] = ()
    moments: ShiftedMoments | None = None

    @property
    def thread_dim(self) -> str | None:
        """The thread dimension the columns run on."""
        return next((s.parallel for s in self.loops if s.parallel.startswith("threadIdx")), None)

    @property
    def threads(self) -> int:
        """Threads that share the columns."""
        return next((int(s.extent) for s in self.loops if s.parallel.startswith("threadIdx")), 1)

    @property
    def thread(self) -> str:
        """The variable of the loop on threads."""
        return next((s.var for s in self.loops if s.parallel.startswith("threadIdx")), "")

    @property
    def lanes(self) -> int:
        """Neighbouring columns of one thread."""
        last = self.loops[-1]
        return int(last.extent) if last.parallel in ("vectorize", "unroll") else 1


@dataclass(frozen=True, slots=True)
class OnlineRescaling:
    """Sums taken relative to a running reference: when ``top``, the running maximum, grows, they shrink with it.

    sum(u * exp(x - c)) = exp(r - c) * sum(u * exp(x - r)) for any r; r is ``top`` where that is finite, else 0.
    ``sums`` pairs each accumulator with the variable c of its terms.

    With ``first`` they are not sums but the least places of elements that are equal to the running extremum ``top``,
    a maximum or minimum: they start anew, from `FAR`, when it moves.
    """

    top: str
    sums: tuple[tuple[str, str], ...]
    first: bool = False


@dataclass(frozen=True, slots=True)
class ShiftedMoments:
    """A sum, and a sum of squares around ``center``, of values that are taken without the row's first one, ``pivot``,
    which the statements ``first`` compute. ``total`` and ``squares`` are their accumulators."""

    first: tuple[Stmt, ...]
    pivot: Local
    total: str
    squares: str
    center: Local


def drop_unit_loops(body: Sequence[Stmt]) -> list[Stmt]:
    """Without the loops of one step that no message names: their variable is 0 in every index."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and s.column is not None:
            made += _tidy_axis(s, s.column)
        elif isinstance(s, Loop) and _is_left_out(s):
            made += drop_unit_loops(s.body)
        elif isinstance(s, (Loop, If, BoundsCheck)):
            made.append(replace(s, body=tuple(drop_unit_loops(s.body))))
        else:
            made.append(s)
    return list(merge_adjacent_ifs(made))


def _tidy_axis(s: Loop, column: SplitAxis) -> tuple[Stmt, ...]:
    """The loops of one axis without those of one step."""
    chain = axis_loops(s)
    kept = [v for v in chain if not _is_left_out(v)]
    body = tuple(drop_unit_loops(chain[-1].body))
    for v in reversed(kept):
        body = (replace(v, body=body, column=replace(column, loops=len(kept)) if v is kept[0] else None),)
    return body


def _is_left_out(s: Loop) -> bool:
    named = any(isinstance(x, BoundsCheck) and s.var in x.site.loops for x in walk(s.body))
    return s.extent == 1 and s.parallel in _ALONE and not named


def match_reduction_loop(s: Loop) -> ReductionLoop | None:
    """The loops of one axis as a sweep over its index; None where they do other things than one sweep can."""
    chain = axis_loops(s)
    if not _runs_as_columns(chain) or any(v.extent == 0 for v in chain):
        return None
    extent = s.extent if s.column is None else s.column.extent
    column = symbol(COLUMN, 0, simplify(extent - 1))
    digits, steps, step = dict[Expr, Expr](), set[int](), 1
    for v in reversed(chain):
        rest = column // step
        digits[symbol(v.var, 0, simplify(v.extent - 1))] = rest if v is s else rest % v.extent
        step *= 1 if v is s else int(v.extent)
        steps |= {step} - {1}

    def at(e: Expr) -> Expr:
        return simplify(e.substitute(digits))

    body, conditions = chain[-1].body, list[Expr]()
    while sum(not isinstance(x, Comment) for x in body) == 1 and isinstance(body[-1], If):
        inner = body[-1]
        conditions += map(at, inner.condition.conjuncts)
        body = (*body[:-1], *inner.body)
    if any(column in c.symbols for c in conditions):
        return None
    made: list[Plain] = []
    for inner in body:
        if not isinstance(inner, Plain) or (isinstance(inner, If) and not _has_straight_body(inner)):
            return None
        if isinstance(inner, Accumulate) and (inner.running is not None or inner.buffer is not None):
            return None  # a scan runs in order, and a sum in memory is not one value of a row
        moved = rewritten_inside(inner, index=at)
        if any(_has_digit(e, column, steps) for x in walk((moved,)) for e in index_exprs(x)):
            return None
        made.append(moved)
    return ReductionLoop(tuple(chain), column, extent, and_(*conditions), tuple(made))


def _has_digit(e: Expr, column: Expr, steps: Collection[int]) -> bool:
    """Whether an index is the same for all columns of a loop's step: it stays outside of that loop. One that has the
    number of the step as well as the place in it, as 8 channels of each pixel have, is another for each column."""
    n = next((n for n in sorted(steps) if _divides_by(e, column, n)), None)
    if n is None:
        return False
    step, place = symbol(f"{COLUMN}_step", 0, None), symbol(f"{COLUMN}_place", 0, n - 1)
    moved = simplify(e.substitute({column: step * n + place}))
    return place not in moved.symbols


def _divides_by(e: Expr, column: Expr, n: int) -> bool:
    divides = e.op in ("floordiv", "mod") and column in e.symbols and e.args[1].is_const
    return (divides and int(e.args[1]) % n == 0) or any(_divides_by(x, column, n) for x in e.args)


def _has_straight_body(s: If) -> bool:
    """Whether the statements for some columns are straight code that reads and writes memory."""
    return all(isinstance(x, Comment | Load | Compute | Select | Store) for x in s.body)


def _runs_as_columns(chain: Sequence[Loop]) -> bool:
    """Serial loops, one of them on threads of a block at most, lanes innermost; all but the first of known extent."""
    threads = [v for v in chain if v.parallel.startswith("threadIdx")]
    lanes = [v for v in chain if v.parallel in ("vectorize", "unroll")]
    known = all(v.parallel in ("serial", "vectorize", "unroll") or v in threads for v in chain)
    sizes = all(v.extent.is_const for v in (*chain[1:], *threads))
    return known and sizes and len(threads) <= 1 and len(lanes) <= 1 and (not lanes or chain[-1] is lanes[0])
