"""Neighbouring sweeps over a row become one, so that the row is read once for all of its results.

A sweep joins an earlier one over the same columns unless it needs a value that the earlier one computes. One such
dependence is allowed: a sum of ``u * exp(x - c)``, where c is the maximum of the same x, is accumulated relative to
the running maximum and rescaled to c at the end (*online softmax*, `Online`; Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.kernel.def_use import (
    Effects,
    all_reads,
    all_sets,
    loaded_in,
    read_before_set,
    reads,
    rewritten_inside,
    sets,
    stored_in,
)
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    Comment,
    Compute,
    InitAccumulator,
    Load,
    Local,
    Loop,
    Operand,
    ProvenanceList,
    Select,
    Stmt,
    walk,
)
from idgraph.kernel.ssa import Renamer
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.rows.online_reductions import with_moments, with_places
from idgraph.passes.rows.reduction_loop import OnlineRescaling, Plain, ReductionLoop, match_reduction_loop

Part = Stmt | ReductionLoop
_WIDE = ("float32", "float64")


def fuse_reduction_loops(
    body: Sequence[Stmt], online: bool, one_pass: bool = False, of_row: bool = False
) -> list[Part]:
    """The statements with their loops over columns as sweeps, joined where they may be.

    ``online``: sums may follow a running maximum; ``one_pass``: a variance may be found with the mean, and the place of
    an extremum with it; ``of_row``: a loop over other columns than those of the reductions (another nest of the launch)
    stays a statement.
    """
    found = [match_reduction_loop(s) if isinstance(s, Loop) else None for s in body]
    sums = [s for s in found if s is not None and any(isinstance(x, Accumulate) for x in s.body)]
    parts: list[Part] = []
    for n, (s, sweep) in enumerate(zip(body, found, strict=True)):
        foreign = of_row and sweep is not None and not any(_can_fuse(x, sweep) for x in sums)
        parts.append(s if sweep is None or foreign or _is_read_after(sweep, body[n + 1 :]) else sweep)
    parts = _early(parts)
    at = 0
    while at < len(parts):
        if isinstance(parts[at], ReductionLoop):
            nearest = next((k for k in range(at - 1, -1, -1) if isinstance(parts[k], ReductionLoop)), None)
            made = None if nearest is None else _fuse_two_loops(parts, nearest, at, online, one_pass)
            if made is not None and nearest is not None:
                parts[nearest : at + 1] = made
                at = nearest
                continue
        at += 1
    return parts


def _is_read_after(s: ReductionLoop, after: Sequence[Stmt]) -> bool:
    """True where later statements read a value computed for a column: each thread keeps it in a private variable."""
    mine = {n for x in s.body if not isinstance(x, Accumulate) for n in all_sets((x,))}
    return bool(mine & all_reads(after)) and not mine.isdisjoint(read_before_set(after, reads, scoped=True))


def _fuse_two_loops(parts: Sequence[Part], first: int, last: int, online: bool, one_pass: bool) -> list[Part] | None:
    """Sweep ``last`` joined to sweep ``first``, with what stands between before or after them; None if it must wait."""
    a, b = parts[first], parts[last]
    between = [s for s in parts[first + 1 : last] if not isinstance(s, ReductionLoop)]
    if not isinstance(a, ReductionLoop) or not isinstance(b, ReductionLoop) or not _can_fuse(a, b):
        return None
    if any(isinstance(x, (Alloc, Barrier)) for x in walk(tuple(between))):
        return None
    own, theirs = _all(a), _all(b)
    written = stored_in((*own, *theirs, *between))
    if written & loaded_in((*own, *theirs, *between)):
        return None
    before, after = _split_between(a, between)
    waits = all_reads(theirs) & (all_sets(own) | all_sets(tuple(after)))
    waits -= all_sets(theirs) - {x.acc.name for x in theirs if isinstance(x, Accumulate)}
    whole = None
    if not waits:
        whole = _LoopFusion(a, b).plain()
    elif a.online is None and a.moments is None:
        whole = _LoopFusion(a, b).online(waits, after) if online else None
        if whole is None and one_pass:
            whole = _LoopFusion(a, b).moments(waits, after) or _LoopFusion(a, b).places(waits, after)
    return None if whole is None else [*before, whole, *after]


def _early(parts: Sequence[Part]) -> list[Part]:
    """Statements after the first sweep that depend on no sweep move to the front: their loads overlap with it."""
    first = next((n for n, x in enumerate(parts) if isinstance(x, ReductionLoop)), None)
    if first is None or any(
        isinstance(x, (Alloc, Barrier)) for p in parts if not isinstance(p, ReductionLoop) for x in walk((p,))
    ):
        return list(parts)
    sweeps = [x for x in parts if isinstance(x, ReductionLoop)]
    written = stored_in(tuple(x for p in parts for x in (_all(p) if isinstance(p, ReductionLoop) else (p,))))
    made = {n for s in sweeps for n in all_sets(_all(s))}
    early: list[Part] = []
    late: list[Part] = []
    for x in parts[first:]:
        if isinstance(x, ReductionLoop):
            late.append(x)
            continue
        mine, needs = all_sets((x,)), all_reads((x,))
        still = needs & made or mine & made or stored_in((x,)) or loaded_in((x,)) & written
        if still or isinstance(x, (Comment, InitAccumulator)):
            late.append(x)
            made |= mine
        else:
            early.append(x)
    return [*parts[:first], *early, *late]


def _all(s: ReductionLoop) -> tuple[Plain, ...]:
    return (*s.body, *s.later)


def _can_fuse(a: ReductionLoop, b: ReductionLoop) -> bool:
    same = a.extent == b.extent and a.condition == b.condition and a.column == b.column
    alone = b.online is None and b.moments is None
    return same and (a.thread_dim, a.threads, a.lanes) == (b.thread_dim, b.threads, b.lanes) and alone


def _split_between(a: ReductionLoop, between: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
    """The statements between, as (those that may run before the sweep, those that must stay behind it)."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    behind = Effects.of(_all(a))
    for s in between:
        mine = Effects.of((s,))
        if mine.waits_for(behind) or mine.stores:
            after.append(s)
            behind |= mine
        else:
            before.append(s)
    return before, after


@dataclass(slots=True)
class _LoopFusion:
    """Statements of the second sweep after those of the first: equal values once (CSE)."""

    a: ReductionLoop
    b: ReductionLoop
    names: Renamer = field(default_factory=Renamer)
    more: dict[str, ProvenanceList] = field(
        default_factory=dict[str, ProvenanceList]
    )  # what loads of the first one serve, too

    def plain(self) -> ReductionLoop:
        """One sweep that does both."""
        added = self.added(self.b.body)
        return replace(self.a, body=(*map(self.serving, self.a.body), *map(self.serving, added)))

    def serving(self, s: Plain) -> Plain:
        """A statement with what it serves for the second sweep."""
        if not isinstance(s, Load) or s.local.name not in self.more:
            return s
        return replace(s, serves=(*s.serves, *self.more[s.local.name]))

    def added(self, body: Sequence[Plain]) -> list[Plain]:
        """The statements of ``body`` that the first sweep does not have yet."""
        values = ValueNumbering(read_only=None)
        for s in _all(self.a):
            values.define(s)
        made: list[Plain] = []
        for s in body:
            moved = rewritten_inside(s, read=self.names.operand)
            if isinstance(moved, (Load, Compute, Select)):
                held = values.known(moved)
                if held is not None:
                    self.names.to[moved.local.name] = held
                    if isinstance(moved, Load):
                        self.more[held.name] = (*self.more.get(held.name, ()), *moved.serves)
                    continue
            values.define(moved)
            made.append(moved)
        return made

    def online(self, waits: frozenset[str], after: Sequence[Stmt]) -> ReductionLoop | None:
        """One sweep whose sums follow a running maximum, where the second waits for that maximum only."""
        tops = [s for s in self.a.body if isinstance(s, Accumulate) and s.op == "amax" and s.buffer is None]
        sources = {s.acc.name for s in tops}
        made_by = all_sets(after)
        if len(tops) != 1 or len(waits) != 1 or not waits <= made_by or tops[0].acc.dtype not in _WIDE:
            return None
        (c,) = waits
        if not _follows(c, sources, after):
            return None
        (top,) = tops
        held = ValueNumbering(read_only=None)
        for s in _all(self.a):
            held.define(s)
        top = replace(top, value=held.operand(top.value))  # what `added` names a copy of it
        added = self.added(self.b.body)
        ready, later, sums = _relative(added, c, top)
        if later is None:
            return None
        return replace(
            self.a,
            body=(*map(self.serving, self.a.body), *map(self.serving, ready)),
            later=tuple(map(self.serving, later)),
            online=OnlineRescaling(top.acc.name, tuple((s, c) for s in sums)),
        )

    def moments(self, waits: frozenset[str], after: Sequence[Stmt]) -> ReductionLoop | None:
        """One sweep that sums squares around its first value, where the second sums them around a number of the row."""
        if len(waits) != 1 or not waits <= all_sets(after):
            return None
        (c,) = waits
        whole = with_moments(self.a, self.added(self.b.body), c)
        return None if whole is None else replace(whole, body=tuple(map(self.serving, whole.body)))

    def places(self, waits: frozenset[str], after: Sequence[Stmt]) -> ReductionLoop | None:
        """One sweep that has the first place of a running extremum, where the second looks for the finished one."""
        if len(waits) != 1 or not waits <= all_sets(after):
            return None
        (c,) = waits
        whole = with_places(self.a, self.added(self.b.body), c, after)
        return None if whole is None else replace(whole, body=tuple(map(self.serving, whole.body)))


def _relative(added: Sequence[Plain], c: str, top: Accumulate) -> tuple[list[Plain], list[Plain] | None, list[str]]:
    """(statements that do not wait, those relative to the running reference, the sums among them), or None for the
    second where one uses the maximum otherwise than as ``u * exp(x - c)``."""
    shifted: set[str] = set()
    linear: set[str] = set()
    ready: list[Plain] = []
    later: list[Plain] = []
    sums: list[str] = []
    for s in added:
        needs = all_reads((s,))
        if not needs & ({c} | shifted | linear):
            ready.append(s)
            continue
        match s:
            case Compute(Local(name, dtype), "sub", (x, Local(at)), compute) if (
                at == c and x == top.value and dtype in _WIDE and compute == dtype
            ):
                shifted.add(name)
            case Compute(Local(name, dtype), "exp", (Local(d),)) if d in shifted and dtype in _WIDE:
                linear.add(name)
            case Compute(Local(name, dtype), op, operands) if dtype in _WIDE and _is_linear(op, operands, linear):
                linear.add(name)
            case Accumulate(acc, "sum", Local(name), None) if name in linear:
                sums.append(acc.name)
            case Comment():
                pass
            case _:
                return ready, None, sums
        later.append(s)
    if len(set(sums)) != len(sums):
        return ready, None, sums
    return ready, later, sums


def _is_linear(op: str, operands: tuple[Operand, ...], linear: set[str]) -> bool:
    """True where the result is one of ``linear`` times something that is not."""
    which = [isinstance(o, Local) and o.name in linear for o in operands]
    match op:
        case "mul":
            return sum(which) == 1
        case "div":
            return which == [True, False]
        case "neg" | "cast":
            return which == [True]
        case _:
            return False


def _follows(c: str, sources: set[str], after: Sequence[Stmt]) -> bool:
    """True where ``c`` is made, by one statement, of the finished maximum (not of other sums over the row)."""
    found = set(sources)
    for s in after:
        for x in walk((s,)):
            if isinstance(x, BlockReduce):
                continue
            mine = sets(x)
            if mine & found and not isinstance(x, (Compute, Select)):
                return False
            if reads(x) & found:
                found |= mine
    return c in found and c not in sources
