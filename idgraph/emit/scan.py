"""The order of a scan: its axis is visited from the first element on, without a gap, by one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.arith import Expr, is_true, simplify
from idgraph.emit.compute import accumulator, finish, identity
from idgraph.emit.nest import IndexMaps, flatten, scanned
from idgraph.emit.plan import Accumulate, Buffer, Declare, Local, Operand, Stmt
from idgraph.errors import ScheduleError
from idgraph.index.storage import is_thread
from idgraph.ir import SCANS, TensorExpr

_HINT = "split the scanned axis only, keep its parts in order and serial, and inline its result left of it"


def check_scan(e: TensorExpr, maps: IndexMaps, ways: Mapping[TensorExpr, tuple[str, ...]]) -> None:
    """Raise `ScheduleError` where the loops of a scan do not visit its axis in order, or threads share it."""
    if e.op not in SCANS:
        return
    loops, along, access = maps.loops(e), scanned(e, maps), maps.write(e)
    dim = e.attrs["dim"]
    at = dim % e.output.ndim if isinstance(dim, int) else 0
    for p in along:
        if is_thread(ways[e][p]):
            raise ScheduleError(
                f"{e.output.name} would race: its scanned axis {at} runs on {ways[e][p]}",
                where=e.source_line,
                because=[f"each element is made of the one before: {e!r}"],
                hint=_HINT,
            )
    names = {loops[p].name for p in along}
    place, extent = access.coordinates[at], e.output.axes[at].extent
    order = flatten([loops[p].extent for p in along], [loops[p].symbol for p in along])
    mixed = any(c.names & names for p, c in enumerate(access.coordinates) if p != at)
    bounds = [c for c in access.conditions if c.names & names]
    cut = [c for c in bounds if not is_true(c.simplify([place < extent]))]
    if mixed or cut or simplify(place - order) != 0:
        why = f"its coordinate is {place}" + (f" where {cut[0]}" if cut else "")
        raise ScheduleError(
            f"loops {', '.join(sorted(names))} of {e.output.name} do not visit its scanned axis {at} in order",
            where=e.source_line,
            because=[why, f"each element is made of the one before: {e!r}"],
            hint=_HINT,
        )


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
        return (Declare(acc.name, acc.dtype, identity(a)), Accumulate(acc, a.op, term), finish(e, acc, to))
    acc, buffer, place = kept
    now, loops = Local(f"now{to.name[1:]}", a.dtype), maps.loops(e)
    names = tuple(loops[p].name for p in along)
    return (Accumulate(acc, a.op, term, buffer, place, running=now, along=names), finish(e, now, to))
