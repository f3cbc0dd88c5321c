"""Scans: a running value that takes one more term at each point of its axis."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr
from idgraph.index.nest import IndexMaps
from idgraph.ir import TensorExpr
from idgraph.kernel.ir import Accumulate, Buffer, InitAccumulator, Local, Operand, Stmt
from idgraph.lower.compute import accumulator, finish, identity


def scan_steps(
    e: TensorExpr,
    term: Operand,
    to: Local,
    along: Sequence[int],
    maps: IndexMaps,
    kept: tuple[Local, Buffer | None, Expr | None] | None,
) -> tuple[Stmt, ...]:
    """The running value, ``kept`` in a variable or in an array, takes one more term and is the result ``to`` here."""
    a = accumulator(e)
    if kept is None:  # an axis of one element: its only term
        acc = Local(f"acc{to.name[1:]}", a.dtype)
        return (InitAccumulator(acc.name, acc.dtype, identity(a)), Accumulate(acc, a.op, term), finish(e, acc, to))
    acc, buffer, place = kept
    now, loops = Local(f"now{to.name[1:]}", a.dtype), maps.loops(e)
    names = tuple(loops[p].name for p in along)
    return (Accumulate(acc, a.op, term, buffer, place, running=now, along=names), finish(e, now, to))
