"""Schedules that no order of threads makes right: found before any source is printed, both accesses named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Protocol

from idgraph.arith import Expr, simplify
from idgraph.errors import ScheduleError
from idgraph.index.access_relation import AccessFunction, IndexMaps, LoopVariable
from idgraph.index.allocation import is_block, is_thread, live_uses
from idgraph.index.loop_tree import (
    LoopNest,
    Node,
    build_tree,
    check_order,
    check_scan,
    launch_dims,
    launch_groups,
    reduced,
)
from idgraph.ir import Tensor, TensorExpr
from idgraph.ir.hooks import advised


class Place(Protocol):
    """The memory from which readers load a tensor."""

    @property
    def in_memory(self) -> bool: ...
    @property
    def is_shared(self) -> bool: ...


class Model(IndexMaps, Protocol):
    """The facts that races need of an index model."""

    @property
    def ways(self) -> Mapping[TensorExpr, tuple[str, ...]]: ...
    def storage(self, t: Tensor, /) -> Place: ...


@dataclass(frozen=True, slots=True)
class Runs:
    """How expressions run: ``ways`` loop by loop, ``dims`` the thread dimensions of the kernel each one is in."""

    ways: Mapping[TensorExpr, tuple[str, ...]]
    dims: Mapping[TensorExpr, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A dependence between threads of a block: ``use`` reads of ``tensor`` what another thread writes.

    ``way`` is the thread dimension along which they differ.
    """

    tensor: Tensor
    use: TensorExpr
    way: str


def check_races(
    exprs: Sequence[TensorExpr], tree: Sequence[Node], maps: IndexMaps, stored: Mapping[Tensor, Place], threads: Runs
) -> tuple[Crossing, ...]:
    """The dependences that need a barrier between write and read. Raises `ScheduleError` for a schedule that would
    race whatever barriers it has, or read what is not computed yet."""
    found: list[Crossing] = []
    for (t, *_), check in _checks(exprs, tree, maps, stored, threads):
        try:
            found += check()
        except ScheduleError as error:
            raise advised(t.fusion, error) from None
    return tuple(dict.fromkeys(found))


def race_conflicts(model: Model, exprs: Sequence[TensorExpr]) -> list[tuple[tuple[Tensor, ...], ScheduleError]]:
    """Each reason for which no kernels can be made of ``exprs`` as they are scheduled, with the tensors concerned."""
    found: list[tuple[tuple[Tensor, ...], ScheduleError]] = []
    try:
        tree = build_tree(exprs, model)
    except ScheduleError as error:
        return [(tuple(e.output for e in exprs), error)]
    ways = model.ways
    stored = {t: model.storage(t) for e in exprs for t in e.outputs}
    for tensors, check in _checks(
        exprs, tree, model, stored, Runs(ways, launch_dims(launch_groups(tree, ways, model), ways, model))
    ):
        try:
            check()
        except ScheduleError as error:
            found.append((tensors, error))
    return found


def _checks(
    exprs: Sequence[TensorExpr], tree: Sequence[Node], maps: IndexMaps, stored: Mapping[Tensor, Place], threads: Runs
) -> Iterator[tuple[tuple[Tensor, ...], Callable[[], list[Crossing]]]]:
    for e in exprs:
        yield (e.output,), partial(_check_alone, e, maps, threads.ways)
    paths, live = _paths(tree), frozenset(exprs)
    for e in exprs:
        for t in e.outputs:
            for use in live_uses(t, live):
                for k in use.operands_of(t):
                    yield (t, use.output), partial(_check_use, t, use, k, paths, maps, stored[t], threads)


def _check_alone(e: TensorExpr, maps: IndexMaps, ways: Mapping[TensorExpr, tuple[str, ...]]) -> list[Crossing]:
    _check_expr(e, maps.loops(e), ways)
    check_order(e, maps, ways)
    check_scan(e, maps, ways)
    return []


def _check_expr(e: TensorExpr, loops: Sequence[LoopVariable], ways: Mapping[TensorExpr, tuple[str, ...]]) -> None:
    t = e.output
    for p in reduced(e, loops):
        if ways[e][p].startswith("blockIdx"):
            raise ScheduleError(
                f"{t.name} would race: its reduced axis {t.loop[p].name} runs on {ways[e][p]}",
                where=e.source_line,
                because=[
                    f"every {ways[e][p]} updates the same element of {t.name}: {e!r}",
                    "a read and a write of one element by several threads have no order",
                ],
                hint="run the reduced axis serially or on the threads of a block, which combine what each one has",
            )
    used: dict[str, int] = {}
    for p, way in enumerate(ways[e]):
        if is_thread(way) and way in used:
            raise ScheduleError(
                f"loops {used[way]} and {p} of {t.name} both run on {way}",
                where=e.source_line,
                hint="use another dimension for one of them",
            )
        used[way] = p


def _paths(tree: Sequence[Node]) -> dict[TensorExpr, tuple[LoopNest, ...]]:
    """For each expression the loops around it, outermost first: two share those that their paths begin with."""
    found: dict[TensorExpr, tuple[LoopNest, ...]] = {}
    work: list[tuple[Node, tuple[LoopNest, ...]]] = [(node, ()) for node in tree]
    while work:
        node, around = work.pop()
        if isinstance(node, LoopNest):
            work += [(child, (*around, node)) for child in node.children]
        else:
            found[node.expr] = around
    return found


def _shared_depth(paths: Mapping[TensorExpr, tuple[LoopNest, ...]], a: TensorExpr, b: TensorExpr) -> int:
    """The number of loops that the two expressions share."""
    pairs = zip(paths.get(a, ()), paths.get(b, ()), strict=False)
    return sum(1 for _ in takewhile(lambda x: x[0] is x[1], pairs))


def _check_use(
    t: Tensor,
    use: TensorExpr,
    operand: int,
    paths: Mapping[TensorExpr, tuple[LoopNest, ...]],
    maps: IndexMaps,
    home: Place,
    threads: Runs,
) -> list[Crossing]:
    made = t.definition
    depth = _shared_depth(paths, made, use) if made is not None else 0
    if made is None or depth == 0:
        return []
    read, loops = maps.read(use, operand), maps.loops(use)
    slots = read.slots
    skip = set(reduced(made, maps.loops(made)))
    for p in range(t.inline_position, min(depth, len(slots))):
        if p in skip or not _same_value(slots[p], loops[p].symbol, read):
            raise ScheduleError(
                f"{use.output.name} reads {t.name} inside loop {p}, which is still computing it",
                where=use.source_line,
                because=[
                    f"{t.name} is inlined at {t.inline_position}, but shares {depth} loops with {use.output.name} "
                    f"through other tensors",
                    f"written: {made!r}{line_of(made)}",
                    f"read at {slots[p] if slots[p] is not None else 'every step of its reduction'}: "
                    f"{use!r}{line_of(use)}",
                ],
                hint=f"inline the tensors around {t.name} less deep",
                subject=(t.name, use.output.name),
            )
    found: list[Crossing] = []
    for way, writer, reader in _other_threads(t, made, read, depth, maps, home, threads):
        if is_block(way) or not (home.is_shared or home.in_memory):
            raise _race(t, made, use, way, writer, reader)
        found.append(Crossing(t, use, way))
    return found


def _other_threads(
    t: Tensor, made: TensorExpr, read: AccessFunction, depth: int, maps: IndexMaps, home: Place, threads: Runs
) -> Iterator[tuple[str, str, str]]:
    """Dimensions along which the thread that reads an element may not be the one that wrote it: (dimension, how it is
    written, how it is read)."""
    use, slots, produced, write = read.expr, read.slots, maps.loops(made), maps.write(made)
    own = {way: x for x, way in zip(maps.loops(use), threads.ways[use], strict=True) if is_thread(way)}
    skip, private = reduced(made, produced), not (home.is_shared or home.in_memory)
    varying = {n for x in (*write.logical, *write.conditions) for n in x.names}
    repeated = {n for x in write.replicas for n in x.names}
    for p in range(depth, len(threads.ways[made])):
        way = threads.ways[made][p]
        if way not in threads.dims[made] or p in skip:
            continue
        if private and produced[p].name in repeated - varying:
            continue  # every thread along it computes the same
        reader = own.get(way)
        if reader is None or p >= len(slots) or not _same_value(slots[p], reader.symbol, read):
            yield way, f"{way} holds axis {t.loop[p].name}", f"at {slots[p]} of that axis"
    if private:
        return  # each thread has written a copy of its own
    held = {way for p, way in enumerate(threads.ways[made]) if p not in skip and produced[p].name not in repeated}
    for way in threads.dims[use]:
        if way not in held and not (home.is_shared and is_block(way)):
            yield way, f"one thread along {way}", f"by every {way}"


def _race(t: Tensor, made: TensorExpr, use: TensorExpr, way: str, writer: str, reader: str) -> ScheduleError:
    where = "other blocks" if is_block(way) else "other threads"
    launch = f"do not inline {t.name} (global memory and a new launch), inline it deeper, or run that axis serially"
    share = f'keep it in shared memory ({t.name}.set_memory("shared")), ' if not is_block(way) else ""
    return ScheduleError(
        f"{t.name} would race: {where} read it in the kernel that writes it",
        where=use.source_line,
        because=[f"written by: {writer}: {made!r}{line_of(made)}", f"read {reader}: {use!r}{line_of(use)}"],
        hint=f"{share}{launch}",
        subject=(t.name, use.output.name),
    )


def line_of(e: TensorExpr | None) -> str:
    """`` (file:line: text)`` of the user's line, or nothing."""
    return f" ({e.source_line})" if e is not None and e.source_line else ""


def _same_value(a: Expr | None, b: Expr, read: AccessFunction) -> bool:
    """Whether the two are equal wherever the access happens."""
    return a is not None and (a == b or simplify(a - b) == 0 or simplify(a - b, facts=read.conditions) == 0)
