"""The order in which loops visit a scatter's entries and the axis of a scan.

Of several writers of one element the last one wins, and each element of a scan is made of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol
from idgraph.errors import ScheduleError
from idgraph.index.maps_protocol import IndexMaps, LoopProtocol, scanned
from idgraph.index.storage import flatten, is_block, is_thread
from idgraph.ir import SCANS, SCATTERS, TensorExpr, adds, entry_axes

_HINT = "split the scanned axis only, keep its parts in order and serial, and inline its result left of it"


def scatter_entries(e: TensorExpr, maps: IndexMaps) -> tuple[list[Expr], list[Expr]]:
    """(coordinates, extents) of the entry axes: only points that differ there can write one element."""
    if e.op != "index_put":
        dim = e.attrs["dim"]
        at = dim % e.output.ndim if isinstance(dim, int) else 0
        return [maps.read(e, 1).coordinates[at]], [e.inputs[1].axes[at].extent]
    indices = range(1, 1 + len(e.attrs["dims"])) if isinstance(e.attrs["dims"], tuple) else range(0)
    rank = max(e.inputs[k].ndim for k in indices)
    coordinates, extents = [as_expr(0)] * rank, [as_expr(1)] * rank
    for k in indices:
        t, found = e.inputs[k], maps.read(e, k).coordinates
        for p, (d, c) in enumerate(zip(t.axes, found, strict=True)):
            if not d.is_broadcast:
                coordinates[p + rank - t.ndim], extents[p + rank - t.ndim] = c, d.extent
    if e.attrs.get("aligned") is True:  # beside the entries stands one element for each axis that is not indexed
        own = [p for p, d in enumerate(e.output.root) if d not in e.output.logical]
        return [coordinates[p] for p in own], [extents[p] for p in own]
    return coordinates, extents


def conflicting_scatter_entries(e: TensorExpr, maps: IndexMaps) -> tuple[list[Expr], list[Expr]]:
    """Those of `scatter_entries` along which two points may write one element: not where an index counts."""
    coordinates, extents = scatter_entries(e, maps)
    if e.op != "index_put":
        return coordinates, extents
    own, meeting = [d for d in e.output.root if d not in e.output.logical], entry_axes(e)
    kept = [d in meeting for d in own]
    return [c for c, k in zip(coordinates, kept, strict=True) if k], [
        n for n, k in zip(extents, kept, strict=True) if k
    ]


def meeting_loops(e: TensorExpr, maps: IndexMaps, inside: frozenset[str]) -> frozenset[str]:
    """Loops at whose points one element may be written: those of the entries, ``inside``, and those that another
    coordinate mixes with one of them, as a swizzle of a row by an entry does."""
    write = maps.write(e)
    rows = [c.names for c in write.coordinates if not c.names & write.loads.keys()]
    found = inside
    while more := [r for r in rows if r & found and not r <= found]:
        found = found.union(*more)
    return found


def check_order(e: TensorExpr, maps: IndexMaps, ways: Mapping[TensorExpr, tuple[str, ...]]) -> None:
    """Raise `ScheduleError` where the writers of one element would come in another order than the index's."""
    if e.op not in SCATTERS or adds(e):
        return
    loops = maps.loops(e)
    coordinates, extents = conflicting_scatter_entries(e, maps)
    number = flatten(extents, coordinates)
    meeting = meeting_loops(e, maps, number.names & {v.name for v in loops})
    inside = [(v, way) for v, way in zip(loops, ways[e], strict=True) if v.name in meeting]
    for v, way in inside:
        if is_thread(way):
            raise ScheduleError(
                f"{e.output.name} would race: loop {v.name} over the entries of its index runs on {way}",
                where=e.source_line,
                because=[
                    f"several entries may name one element, and the last one wins: {e!r}",
                    "several threads have no last one",
                ],
                hint="run that loop serially, or add up instead (ig.scatter_add, accumulate=True)",
            )
    counted = [v for v, _ in inside if v.name in number.names]
    if [v for v, _ in inside[: len(counted)]] != counted or not _in_order(number, counted):
        raise ScheduleError(
            f"loops {', '.join(v.name for v, _ in inside)} of {e.output.name} do not visit the entries of its index in "
            "their order",
            where=e.source_line,
            because=[f"of several writers of one element the last one wins; entry number {number}"],
            hint="keep the loops over the index's entries in order, and apart from other axes",
        )


def _in_order(number: Expr, loops: Sequence[LoopProtocol]) -> bool:
    """Whether one step of a loop, the inner ones going back to their first value, leads to a larger number."""
    for p, v in enumerate(loops):
        here = symbol(v.name, 0, simplify(v.extent - 2))
        first: dict[Expr, Expr] = {v.symbol: here + 1} | {w.symbol: as_expr(0) for w in loops[p + 1 :]}
        last: dict[Expr, Expr] = {v.symbol: here} | {w.symbol: simplify(w.extent - 1) for w in loops[p + 1 :]}
        if is_true(v.extent <= 1):
            continue
        if not is_true(simplify(number.substitute(first) - number.substitute(last)) > 0):
            return False
    return True


def check_scan(e: TensorExpr, maps: IndexMaps, ways: Mapping[TensorExpr, tuple[str, ...]]) -> None:
    """Raise `ScheduleError` where the loops of a scan do not visit its axis in order, or blocks share it.

    Threads of one block may: each hands what it has made on to those after it.
    """
    if e.op not in SCANS:
        return
    loops, along, access = maps.loops(e), scanned(e, maps), maps.write(e)
    dim = e.attrs["dim"]
    at = dim % e.output.ndim if isinstance(dim, int) else 0
    shared = [p for p in along if is_thread(ways[e][p])]
    kept = [p for p in range(along[0], len(loops)) if p not in along and loops[p].extent != 1] if along else []
    for p in shared:
        if is_block(ways[e][p]) or len(shared) > 1 or any(not is_thread(ways[e][q]) for q in kept):
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
