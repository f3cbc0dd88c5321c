"""Inlining taken back where it leaves loops that no order of threads or steps makes right.

The index graph says which positions share one coordinate. Whether kernels can be made of them is a question of the
whole nest: a value may be read by another thread than the one that wrote it, a scan may be visited out of order because
a loop that it shares visits more, and a tensor that shares more loops through its neighbours than by its own position
would be read before it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from idgraph.errors import ScheduleError
from idgraph.index import IdModel
from idgraph.index.live import live_exprs
from idgraph.index.races import race_conflicts
from idgraph.index.storage import is_thread
from idgraph.ir import SCANS, SCATTERS, Fusion, Tensor, TensorExpr
from idgraph.schedule.legal import nest_error

Conflicts = list[tuple[tuple[Tensor, ...], ScheduleError]]


def undo_conflicting_inlines(fusion: Fusion, inlined: Sequence[Tensor]) -> None:
    """Take back positions of these tensors until no conflict is left that they have a part in.

    The position that goes back least is taken, of the tensors nearest to the conflict first. Conflicts of the
    user's own loops, which are there without any inlining, stay.
    """
    among = _doubtful(fusion, inlined)
    open_ = _conflicts(fusion, among)
    while open_ and (left := _one_less(fusion, inlined, among, open_)) is not None:
        open_ = left


def sharing(*tensors: Tensor) -> tuple[TensorExpr, ...]:
    """The operations that share a loop with those of ``tensors``, through tensors inlined, in order: no other can
    conflict."""
    found: set[TensorExpr] = set()
    open_ = [e for t in tensors if (e := t.definition) is not None]
    while open_:
        e = open_.pop()
        if e in found:
            continue
        found.add(e)
        open_ += [p.definition for p in e.inputs if p.definition is not None and p.inline_position]
        open_ += e.output.uses if e.output.inline_position else ()
    return tuple(e for e in tensors[0].fusion.exprs if e in found)


def _doubtful(fusion: Fusion, inlined: Sequence[Tensor]) -> tuple[TensorExpr, ...]:
    """The operations in nests with threads, with loops of several depths, or whose order of steps counts."""
    found: set[TensorExpr] = set()
    seen: set[TensorExpr] = set()
    for t in inlined:
        if t.inline_position and t.definition is not None and t.definition not in seen:
            nest = sharing(t)
            seen.update(nest)
            depths = {u.inline_position for e in nest for u in e.outputs if u.uses}
            threads = any(is_thread(d.parallel) for e in nest for d in e.output.loop)
            if len(depths) > 1 or threads or any(e.op in SCANS or e.op in SCATTERS for e in nest):
                found.update(nest)
    return tuple(e for e in live_exprs(fusion) if e in found)


def _conflicts(fusion: Fusion, among: Sequence[TensorExpr]) -> Conflicts:
    return race_conflicts(IdModel(fusion), among) if among else []


def _one_less(
    fusion: Fusion, inlined: Sequence[Tensor], among: Sequence[TensorExpr], before: Conflicts
) -> Conflicts | None:
    """Conflicts that are left when one position is taken back, or all of the nest's; None where that does not help."""
    tried = list(dict.fromkeys(t for tensors, _ in before for t in _near(tensors, inlined)))
    for t in tried:
        kept = t.inline_position
        for p in range(kept - 1, -1, -1):
            left = _at(fusion, {t: p}, among)
            if left is not None and len(left) < len(before):
                return left
        t.inline_position = kept
    positions = {t: t.inline_position for t in tried}
    left = _at(fusion, dict.fromkeys(tried, 0), among)
    if tried and left is not None and len(left) < len(before):
        return left
    for t, p in positions.items():
        t.inline_position = p
    return None


def _at(fusion: Fusion, positions: dict[Tensor, int], among: Sequence[TensorExpr]) -> Conflicts | None:
    """Conflicts with these positions; None where the index graph does not allow them."""
    for t, p in positions.items():
        t.inline_position = p
    return None if nest_error(fusion, among) is not None else _conflicts(fusion, among)


def _near(tensors: Sequence[Tensor], inlined: Sequence[Tensor]) -> Iterator[Tensor]:
    """The inlined tensors of the nests of some tensors, these first, then what they read, then all others."""
    allowed = {t for t in inlined if t.inline_position}
    yield from (t for t in tensors if t in allowed)
    yield from (p for t in tensors for p in (t.definition.inputs if t.definition is not None else ()) if p in allowed)
    yield from (e.output for t in tensors for e in sharing(t)[::-1] if e.output in allowed)
