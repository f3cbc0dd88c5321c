"""Inlining as far as it is legal, and private copies where one value is needed at two places of one loop nest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from idgraph.errors import ScheduleError, arguments, user_line
from idgraph.graphs import Joined, canonical_operand, common_loops
from idgraph.graphs.index_graph import legal_nests
from idgraph.index import IdModel
from idgraph.index.cover import check_written
from idgraph.ir import SCANS, Fusion, IterDomain, Mapped, Tensor, TensorExpr, check_fusion, loop_steps
from idgraph.ir.registry import apply
from idgraph.ir.state import rewriting
from idgraph.schedule.legal import uninline
from idgraph.schedule.settle import settle, sharing


@arguments(ScheduleError, first=True, keep=rewriting)
def inline_most(fusion: Fusion, tensors: Sequence[Tensor] | None = None) -> None:
    """Inline every intermediate (or those named) as far right as the index graph allows.

    Consumers first, each from its largest position down; a position that would need one value at two coordinates, or
    that no loop nest can do, is not taken; nor one whose loop is longer or shorter than its reader's, which `inline`
    takes where the coordinates are one. What would race, or be read before it is complete, is inlined less deep.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(4, 8))
    >>> t1 = ig.exp(t0)
    >>> t2 = f.output(t1 / ig.sum(t1, 1, keepdim=True))
    >>> ig.schedule.inline_most(f)
    >>> [(t.name, t.inline_position) for t in f.tensors]
    [('t0', 0), ('t1', 1), ('t2', 1), ('t3', 0)]
    """
    check_fusion(fusion, "inline_most", ScheduleError)
    chosen, _ = _positioned(fusion, fusion.tensors if tensors is None else _named(fusion, tensors), {})
    settle(fusion, chosen)
    _record(chosen)


def inline_far(fusion: Fusion, tensors: Sequence[Tensor], later: Mapping[Tensor, int] | None = None) -> bool:
    """The same for a scheduler that sees to threads and the order of steps itself.

    ``later`` are tensors that will be inlined at these positions: True where that is known to be legal then.
    """
    chosen, agreed = _positioned(fusion, tensors, later or {})
    _record(chosen)
    return agreed


def _record(tensors: Sequence[Tensor]) -> None:
    for t in tensors:
        if t.inline_position:
            loop_steps.inline(t, t.inline_position)


def _positioned(fusion: Fusion, chosen: Sequence[Tensor], later: Mapping[Tensor, int]) -> tuple[Sequence[Tensor], bool]:
    """Tensors with the position that the index graph allows them, not yet in their logs; and whether those of ``later``
    were looked at together with them, which one graph does where all is legal."""
    order = {e.output: n for n, e in enumerate(fusion.exprs)}
    rest = sorted((t for t in chosen if t in order and t.uses), key=lambda t: -order[t])
    for t in rest:
        uninline(t)
    common = common_loops(fusion, rest)
    limits = {t: min(_limit(t), common[t]) for t in rest}
    joined = Joined(fusion)
    done, step = 0, len(rest)
    refused: int | None = None  # no inlining of all up to here is legal
    while done < len(rest):
        # A legal inlining stays legal when fewer tensors are inlined, so all can be tried at once, then halves.
        batch, after = rest[done : done + step], joined.copy()
        positions: dict[Tensor, int] = {}
        for t in batch:
            positions[t] = after.limit(t, limits[t])
            after.join(t, positions[t])
        end = done + len(batch)
        if later and not done and end == len(rest) and _try(fusion, batch, positions, later):
            return rest, True
        if end != refused and _try(fusion, batch, positions):
            joined, done, step = after, end, 2 * step
        elif len(batch) > 1:
            refused, step = end, len(batch) // 2
        else:
            (t,) = batch
            next((p for p in range(positions[t] - 1, 0, -1) if _try(fusion, batch, {t: p})), 0)
            joined.join(t, t.inline_position)
            done, refused = end, None
        if refused is not None:
            step = max(1, min(step, (refused - done) // 2))
    return rest, False


def _try(
    fusion: Fusion, batch: Sequence[Tensor], positions: Mapping[Tensor, int], later: Mapping[Tensor, int] | None = None
) -> bool:
    """Inline these tensors there if that is legal (with those of ``later`` too, which stay at 0), else at 0."""
    for t in batch:
        t.inline_position = positions[t]
    if not later and not any(t.inline_position for t in batch):
        return True
    for t, p in (later or {}).items():
        t.inline_position = p
    legal = _keeps_lengths(fusion, batch, later or ()) and all(_is_written(fusion, t) for t in batch)
    for t in (*(later or ()), *(() if legal else batch)):
        t.inline_position = 0
    return legal


def _keeps_lengths(fusion: Fusion, batch: Sequence[Tensor], beside: Collection[Tensor]) -> bool:
    """Whether the inlining is legal, of those ``beside`` too, and no tensor of ``batch`` runs a loop that is longer or
    shorter than its own."""
    try:
        nests = legal_nests(fusion, sharing(*batch, *beside))
    except ScheduleError:
        return False
    return not any(nests.lengths(t) for t in batch)


def _named(fusion: Fusion, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    for t in listed:
        if t not in fusion:
            named = t.name if isinstance(t, Tensor) else repr(t)
            raise ScheduleError(
                f"inline_most: {named} is not a tensor of fusion {fusion.name}",
                where=user_line(),
                hint="a list of its tensors, or nothing for all of them",
            )
    return cast("Sequence[Tensor]", listed)


def scan_loops(t: Tensor) -> tuple[IterDomain, ...]:
    """The loops of a scan that come of its scanned axis: what follows it waits until they have ended."""
    e = t.definition
    dim = e.attrs.get("dim") if e is not None and e.op in SCANS else None
    if not isinstance(dim, int):
        return ()
    found = {t.axes[dim % t.ndim]}
    for x in t.domain.loop_exprs:
        if found & {*x.inputs}:
            found |= {*x.outputs}
    return tuple(d for d in t.loop if d in found)


def _goes_along(t: Tensor) -> bool:
    """True of a scan whose readers take each running value as it is made: along all of the axis, in its order."""
    e, uses = t.definition, t.uses
    if e is None or e.op not in SCANS or len(uses) != 1 or uses[0].is_reduction:
        return False
    (use,) = uses
    reads = [use.reads[k] for k in use.operands_of(t)]
    places = [[r.domain for r in row if isinstance(r, Mapped)] for row in reads]
    return len(places) == 1 and len(places[0]) == t.ndim and all(d in use.output.logical for d in places[0])


def _limit(t: Tensor) -> int:
    waiting = () if _goes_along(t) else scan_loops(t)
    reduced = [p for p, d in enumerate(t.loop) if d.kind == "reduction" or d in waiting]
    return min([reduced[0] if reduced else len(t.loop), *(len(e.output.loop) for e in t.uses)])


def _is_written(fusion: Fusion, t: Tensor) -> bool:
    """Whether an output is always written: it must not follow a loop that may be empty."""
    if not fusion.is_output(t):
        return True
    try:
        check_written(IdModel(fusion))
    except ScheduleError:
        return False
    return True


@arguments(ScheduleError, first=True, keep=rewriting)
def recompute(t: Tensor, use: TensorExpr, *, operand: int | None = None, name: str | None = None) -> Tensor:
    """Give ``use`` a private copy of ``t``, computed by the same operation; returns the copy.

    The copy has loops of its own, so both may be inlined where one tensor could not be. An operation that reads ``t``
    at several places (``cat([t, t])``) reads the copy at all of them, or with ``operand`` only where it reads ``t`` as
    it does with that operand. Raises `ScheduleError` where ``use`` does not read ``t`` so.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = ig.copy(f.input("a", shape=(64,)), name="x")
    >>> t1 = x[:32]
    >>> ig.schedule.recompute(x, t1.definition, name="x1").uses == (t1.definition,)
    True
    """
    if not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScheduleError(f"recompute: {t!r} is not a tensor", where=user_line(), hint="recompute(t, u.definition)")
    e = t.definition
    if e is None or use not in t.uses:
        why = "is an input, every use reads it for itself" if e is None else f"is not read by {use!r}"
        raise ScheduleError(f"recompute: {t.name} {why}", where=user_line(), hint="name a computed tensor and its use")
    if operand is not None and operand not in use.operands_of(t):
        why = f"{use!r} does not read {t.name} as operand {operand!r}"
        raise ScheduleError(f"recompute: {why}", where=user_line(), hint=f"one of {list(use.operands_of(t))}, or none")
    return private_copy(t, use, operand=operand, name=name)


def private_copy(t: Tensor, use: TensorExpr, *, operand: int | None = None, name: str | None = None) -> Tensor:
    """`recompute` for a scheduler, whose own call guards the fusion: of a computed tensor that ``use`` reads."""
    fusion, e = t.fusion, t.definition
    if e is None:
        raise ScheduleError(f"{t.name} is an input")
    with fusion.at_line(e.source_line):
        made = apply(fusion, e.op, e.args, e.attrs, name)
    same = None
    if operand is not None:
        same = [k for k in use.operands_of(t) if canonical_operand(use, k) == canonical_operand(use, operand)]
    fusion.replace_operand(use, t, made, same)
    return made
