"""A sweep: nested loops over the columns of a row, as the statements for one column.

Loops ``o < N, t < T on threads, w < W`` whose statements use them only as ``c = (o*T + t)*W + w``, below ``extent``,
are one loop over c. That is proved for every index expression; without a proof the loops stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from idgraph.arith import TRUE, Expr, and_, as_expr, is_true, simplify, symbol
from idgraph.kernel.defuse import index_exprs, rewritten_inside
from idgraph.kernel.ir import (
    Accumulate,
    Checked,
    Choose,
    Compute,
    If,
    Load,
    Loop,
    Note,
    Stmt,
    Store,
    walk,
)
from idgraph.lower.merge_guards import joined

COLUMN = "c"
Plain = Note | Load | Compute | Choose | Accumulate | Store | If
"""What a sweep does for a column; an `If` is what the owner of one column does alone (`idgraph.passes.owner`)."""
_ALONE = ("serial", "vectorize", "unroll")  # ways to run a loop on one thread


@dataclass(frozen=True, slots=True)
class Sweep:
    """``body`` for each column ``column`` (a symbol) below ``extent``, where ``condition``, on the row, holds.

    ``loops`` are the loops it was: those of ``way`` run on threads, the innermost one gives the ``lanes``. ``later``
    are the statements that depend on the running maximum ``online`` of ``body``.
    """

    loops: tuple[Loop, ...]
    column: Expr
    extent: Expr
    condition: Expr
    body: tuple[Plain, ...]
    online: Online | None = None
    later: tuple[Plain, ...] = ()

    @property
    def way(self) -> str | None:
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
class Online:
    """Sums taken relative to a running reference: when ``top``, the running maximum, grows, they shrink with it.

    sum(u * exp(x - c)) = exp(r - c) * sum(u * exp(x - r)) for any r; r is ``top`` where that is finite, else 0.
    ``sums`` pairs each accumulator with the variable c of its terms.
    """

    top: str
    sums: tuple[tuple[str, str], ...]


def tidied(body: Sequence[Stmt]) -> list[Stmt]:
    """Without the loops of one step that no message names: their variable is 0 in every index."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and s.extent == 1 and s.parallel in _ALONE and not _is_named(s):
            made += tidied(s.body)
        elif isinstance(s, (Loop, If, Checked)):
            made.append(replace(s, body=tuple(tidied(s.body))))
        else:
            made.append(s)
    return list(joined(made))


def _is_named(s: Loop) -> bool:
    return any(isinstance(x, Checked) and s.var in x.site.loops for x in walk(s.body))


def sweep_of(s: Loop) -> Sweep | None:
    """The loops as a sweep, or None where they are not provably one loop over columns."""
    chain = [s]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], Loop):
        chain.append(chain[-1].body[0])
    if not _runs_as_columns(chain) or any(v.extent == 0 for v in chain):
        return None
    variables = [symbol(v.var, 0, simplify(v.extent - 1)) for v in chain]
    total, linear = as_expr(1), as_expr(0)
    steps: list[Expr] = []
    for v, x in zip(reversed(chain), reversed(variables), strict=True):
        steps.append(simplify(total))
        linear, total = simplify(linear + x * total), simplify(total * v.extent)
    body, conditions = chain[-1].body, list[Expr]()
    while sum(not isinstance(x, Note) for x in body) == 1 and isinstance(body[-1], If):
        inner = body[-1]
        conditions += inner.condition.args if inner.condition.op == "and" else (inner.condition,)
        body = (*body[:-1], *inner.body)
    own = {v.var for v in chain}
    on_row = [c for c in conditions if not c.names & own]
    extent = _extent([c for c in conditions if c.names & own], linear, variables, steps, total)
    column = symbol(COLUMN, 0, simplify(extent - 1)) if extent is not None else None
    if extent is None or column is None:
        return None
    place = {x: as_expr(0) for x in variables[:-1]} | {variables[-1]: column}
    digits = {
        x: column // step if n == 0 else column // step % chain[n].extent
        for n, (x, step) in enumerate(zip(variables, reversed(steps), strict=True))
    }
    made: list[Plain] = []
    for inner in body:
        if not isinstance(inner, Plain) or (isinstance(inner, If) and not _is_owner(inner)):
            return None
        if isinstance(inner, Accumulate) and (inner.running is not None or inner.buffer is not None):
            return None  # a scan runs in order, and a sum in memory is not one value of a row
        moved = rewritten_inside(inner, index=lambda e: _at(e, place), point=lambda e: _at(e, digits))
        pairs = zip(walk((inner,)), walk((moved,)), strict=True)
        if not all(_same_indices(old, new, column, linear) for old, new in pairs):
            return None
        made.append(moved)
    return Sweep(tuple(chain), column, extent, and_(*on_row) if on_row else TRUE, tuple(made))


def _is_owner(s: If) -> bool:
    """Whether the statements for one column are straight code that reads and writes memory."""
    return all(isinstance(x, Note | Load | Compute | Choose | Store) for x in s.body)


def _at(e: Expr, place: dict[Expr, Expr]) -> Expr:
    return simplify(e.substitute(place))


def _runs_as_columns(chain: Sequence[Loop]) -> bool:
    """Serial loops, one of them on threads of a block at most, lanes innermost; all but the first of known extent."""
    threads = [v for v in chain if v.parallel.startswith("threadIdx")]
    lanes = [v for v in chain if v.parallel in ("vectorize", "unroll")]
    known = all(v.parallel in ("serial", "vectorize", "unroll") or v in threads for v in chain)
    sizes = all(v.extent.is_const for v in (*chain[1:], *threads))
    return known and sizes and len(threads) <= 1 and len(lanes) <= 1 and (not lanes or chain[-1] is lanes[0])


def _same_indices(before: Stmt, after: Stmt, column: Expr, linear: Expr) -> bool:
    """True where the moved indices, at column = linear, provably equal the original ones."""
    for old, new in zip(index_exprs(before), index_exprs(after), strict=True):
        back = new.substitute({column: linear})
        same = old == back or simplify(old) == simplify(back)
        if not same and (old.is_condition or simplify(old - back) != 0):
            return False
    return True


def _extent(
    conditions: Sequence[Expr], linear: Expr, variables: Sequence[Expr], steps: Sequence[Expr], total: Expr
) -> Expr | None:
    """The bound of the column: the extent of the loops, or the least bound that the conditions on them give."""
    found = total
    own = {n for v in variables for n in v.names}
    for c in conditions:
        if c.op not in ("lt", "le") or c.args[1].names & own:
            return None
        below, limit = c.args[0], c.args[1] + 1 if c.op == "le" else c.args[1]
        for n, step in enumerate(steps):
            # The condition may speak of whole chunks: (o*T + t) < limit is c < limit * W.
            chunk = linear.substitute({v: as_expr(0) for v in variables[len(variables) - n :]})
            if simplify(below * step - chunk) == 0:
                bound = simplify(limit * step)
                break
        else:
            return None
        if is_true(bound <= found):
            found = bound
        elif not is_true(found <= bound):
            return None
    return found
