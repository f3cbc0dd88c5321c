"""The loop tree: which expressions share which loops, in an order that respects the data.

A tensor inlined at k makes its definition and all its consumers share their first k loops. At each depth the
expressions joined this way form one loop; loops stand in the order of the values that flow between them.

Of several writers of one element the last one wins, and each element of a scan is made of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import prod

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol
from idgraph.errors import ScheduleError
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.index.access_relation import IndexMaps, LoopVariable, scanned
from idgraph.index.allocation import flatten, is_block, is_thread
from idgraph.ir import SCANS, SCATTERS, Tensor, TensorExpr, entry_axes
from idgraph.ir.device import current_device
from idgraph.ir.writer_order import ordered_entries


@dataclass(frozen=True, slots=True)
class Leaf:
    """One expression, at a point of all its loops."""

    expr: TensorExpr


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A loop at ``depth`` shared by ``exprs``; ``children`` in order inside it."""

    depth: int
    var: str
    extent: Expr
    parallel: str
    exprs: tuple[TensorExpr, ...]
    children: tuple[Node, ...]


Node = Leaf | LoopNest


def build_tree(exprs: Sequence[TensorExpr], maps: IndexMaps) -> tuple[Node, ...]:
    """The loop trees of ``exprs``, in launch order. Raises `ScheduleError` where no order exists."""
    return _build_level(tuple(exprs), 0, {e: tuple(maps.loops(e)) for e in exprs})


def outermost(exprs: Sequence[TensorExpr]) -> list[tuple[TensorExpr, ...]]:
    """The expressions of each tree of `build_tree`, in launch order, without what is inside of the trees.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(64, 128)))
    >>> u = ig.copy(t * 2.0)
    >>> _ = t.inline(1)
    >>> [[e.output.name for e in nest] for nest in outermost(f.exprs)]
    [['t1', 't2'], ['t3']]
    """
    return _ordered(_components(tuple(exprs), 0), 0)


def _build_level(
    exprs: tuple[TensorExpr, ...], depth: int, loops: Mapping[TensorExpr, tuple[LoopVariable, ...]]
) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for part in _ordered(_components(exprs, depth), depth):
        if len(part) == 1 and len(loops[part[0]]) == depth:
            nodes.append(Leaf(part[0]))
            continue
        short = [e for e in part if len(loops[e]) <= depth]
        if short:
            raise ScheduleError(
                f"{short[0].output.name} has {len(loops[short[0]])} loops, but shares {depth + 1} of them",
                because=[f"with {e!r}" for e in part if e is not short[0]],
                hint="inline at most at its number of loop axes",
            )
        first = loops[part[0]][depth]
        _check_extents(part, depth, loops)
        nodes.append(
            LoopNest(depth, first.name, first.extent, first.parallel, part, _build_level(part, depth + 1, loops))
        )
    return tuple(nodes)


def _components(exprs: tuple[TensorExpr, ...], depth: int) -> list[tuple[TensorExpr, ...]]:
    """Expressions that share the loop at ``depth``: joined by tensors inlined right of it."""
    inside, parts = set(exprs), EquivalenceClasses[TensorExpr]()
    for e in exprs:
        for t in e.inputs:
            if t.inline_position > depth and t.definition in inside:
                parts.union(e, into=t.definition)
    return [tuple(g) for g in parts.groups(exprs)]


def _ordered(parts: list[tuple[TensorExpr, ...]], depth: int) -> list[tuple[TensorExpr, ...]]:
    """Producers before consumers; of those free to go, the one written first."""
    owner = {e: k for k, part in enumerate(parts) for e in part}
    before: list[dict[int, Tensor]] = [{} for _ in parts]
    for e, k in owner.items():
        for t in e.inputs:
            source = owner.get(t.definition) if t.definition is not None else None
            if source is not None and source != k:
                before[k].setdefault(source, t)
    waiting = [len(x) for x in before]
    after: list[list[int]] = [[] for _ in parts]
    for k, sources in enumerate(before):
        for source in sources:
            after[source].append(k)
    ready = [k for k, count in enumerate(waiting) if not count]
    done: list[int] = []
    while ready:
        done.append(k := heappop(ready))
        for n in after[k]:
            waiting[n] -= 1
            if not waiting[n]:
                heappush(ready, n)
    if len(done) < len(parts):
        raise _cycle_error([k for k, count in enumerate(waiting) if count], before, depth)
    return [parts[k] for k in done]


def _cycle_error(rest: list[int], before: list[dict[int, Tensor]], depth: int) -> ScheduleError:
    seen: list[int] = []
    at = rest[0]
    while at not in seen:
        seen.append(at)
        at = next(s for s in before[at] if s in rest)
    ring = seen[seen.index(at) :]
    facts: list[str] = []
    names: list[str] = []
    for k, source in zip(ring, [*ring[1:], ring[0]], strict=True):
        t = before[k][source]
        names.append(t.name)
        where = f" ({t.source_line})" if t.source_line else ""
        facts.append(f"{t.name} is made outside the loop that reads it{where}")
    return ScheduleError(
        f"inlining leaves no order of the loops at depth {depth}: {', '.join(sorted(names))} wait for each other",
        because=facts,
        hint="inline these tensors as deep as their neighbours, or inline the neighbours less deep",
    )


def _check_extents(
    part: tuple[TensorExpr, ...], depth: int, loops: Mapping[TensorExpr, tuple[LoopVariable, ...]]
) -> None:
    first = loops[part[0]][depth]
    for e in part[1:]:
        other = loops[e][depth]
        if other.name != first.name or (other.extent != first.extent and simplify(other.extent - first.extent) != 0):
            raise ScheduleError(
                f"loop {depth} of {part[0].output.name} has extent {first.extent}, loop {depth} of {e.output.name} "
                f"has {other.extent}, and inlining makes them one loop",
                hint="schedule both tensors alike: ig.schedule.like(f, t)",
            )


def reduced(e: TensorExpr, loops: Sequence[LoopVariable]) -> tuple[int, ...]:
    """Positions of the reduction loops of ``e``."""
    own = e.output.loop
    return tuple(p for p in range(len(loops)) if p < len(own) and own[p].kind == "reduction")


def reduction_positions(e: TensorExpr, maps: IndexMaps) -> tuple[int, ...]:
    """Positions of the loops along which ``e`` keeps one running value: those of a reduction or of a scan."""
    return scanned(e, maps) if e.op in SCANS else reduced(e, maps.loops(e))


def exprs_of(nodes: Sequence[Node]) -> tuple[TensorExpr, ...]:
    """The expressions in some trees, in order of their loops."""
    return tuple(e for node in nodes for e in (node.exprs if isinstance(node, LoopNest) else (node.expr,)))


def launch_groups(
    tree: Sequence[Node], ways: Mapping[TensorExpr, tuple[str, ...]], maps: IndexMaps
) -> list[list[Node]]:
    """Nodes of each kernel: a nest that runs in one block joins the one-block kernel with threads before it.

    Threads that exchange values wait for all others of their block: a nest whose loops on threads have another extent
    than those around an exchange has a kernel of its own, and so has one that would make the block, which has the
    most threads that any of them has along each dimension, larger than a device can run.
    """
    return [[tree[n] for n in group] for group in same_launch([exprs_of((node,)) for node in tree], ways, maps)]


def same_launch(
    nests: Sequence[tuple[TensorExpr, ...]], ways: Mapping[TensorExpr, tuple[str, ...]], maps: IndexMaps
) -> list[list[int]]:
    """The same of the expressions of each outermost loop, by number."""
    groups: list[list[int]] = []
    for n, inside in enumerate(nests):
        used = {w for way in {ways[e] for e in inside} for w in way}
        one_block = not any(is_block(w) for w in used) and not any(e.op in SCATTERS for e in inside)
        before = [e for k in groups[-1] for e in nests[k]] if one_block and groups else []
        if any(is_thread(w) for e in before for w in ways[e]):
            blocks = any(is_block(w) for e in before for w in ways[e])
            if not blocks and not any(e.op in SCATTERS for e in before) and _same_block((*before, *inside), ways, maps):
                groups[-1].append(n)
                continue
        groups.append([n])
    return groups


def _same_block(exprs: Sequence[TensorExpr], ways: Mapping[TensorExpr, tuple[str, ...]], maps: IndexMaps) -> bool:
    """Whether each loop on threads that stands around an exchange has the threads of the whole block, and the block
    no more than a device has."""
    extents: dict[str, list[Expr]] = {}
    around: set[str] = set()
    for e in exprs:
        loops = maps.loops(e)
        threads = {p: x for p, x in enumerate(loops) if is_thread(ways[e][p])}
        for p, x in threads.items():
            if x.extent not in extents.setdefault(ways[e][p], []):
                extents[ways[e][p]].append(x.extent)
        if any(p in threads for p in reduction_positions(e, maps)):
            inner = () if e.op in SCANS else reduced(e, loops)
            around |= {ways[e][p] for p in threads if p not in inner}
    known = [[int(x) for x in found if x.is_const] for found in extents.values()]
    threads_of_block = prod(max(sizes, default=1) for sizes in known)
    return threads_of_block <= current_device().block_threads and all(len(extents[way]) == 1 for way in around)


def launch_dims(
    groups: Sequence[Sequence[Node]], ways: Mapping[TensorExpr, tuple[str, ...]], maps: IndexMaps
) -> dict[TensorExpr, tuple[str, ...]]:
    """For each expression the thread dimensions of the kernel that it is in, but those along which there is one."""
    found: dict[TensorExpr, tuple[str, ...]] = {}
    for group in groups:
        inside = exprs_of(group)
        loops = [(w, v) for e in inside for w, v in zip(ways[e], maps.loops(e), strict=True)]
        used = tuple(dict.fromkeys(w for w, v in loops if is_thread(w) and v.extent != 1))
        found.update(dict.fromkeys(inside, used))
    return found


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
    if e.op not in SCATTERS or not ordered_entries(e):
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
    if [v for v, _ in inside[: len(counted)]] != counted or not _is_increasing(number, counted):
        raise ScheduleError(
            f"loops {', '.join(v.name for v, _ in inside)} of {e.output.name} do not visit the entries of its index in "
            "their order",
            where=e.source_line,
            because=[f"of several writers of one element the last one wins; entry number {number}"],
            hint="keep the loops over the index's entries in order, and apart from other axes",
        )


def _is_increasing(number: Expr, loops: Sequence[LoopVariable]) -> bool:
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

    Threads of one block may: each passes its result to those after it.
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
