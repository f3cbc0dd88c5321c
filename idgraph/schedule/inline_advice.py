"""The schedule step after which an inlining is no longer legal: steps are taken again on copies, up to each in turn.

Ways out of an inlining that is not legal: each is tried on a copy of the fusion, and offered only where it works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import IdGraphError, ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.index import IdModel
from idgraph.index.allocation import is_thread, live_exprs
from idgraph.index.races import race_conflicts
from idgraph.ir import Fusion, Tensor
from idgraph.ir.parser import copy_fusion, parse_fusion
from idgraph.ir.schedule_log import ScheduleStep
from idgraph.schedule.inlining import recompute
from idgraph.schedule.legality import nest_error
from idgraph.schedule.transform_replay import like

_BISECTION_LIMIT = 300  # operations of a fusion that is worth copying a dozen times
Taken = tuple[Tensor, ScheduleStep]


def bisect_illegal_step(fusion: Fusion, error: ScheduleError, hint: str) -> ScheduleError:
    """``error`` at the line of the step that causes it, with ``hint``; where none is found, at its operation's line."""
    found = _causing(fusion, error)
    where, because = error.where, list(error.because)
    if found is not None:
        t, step = found
        made = f", and {error.subject[0]} is made at {error.where}" if error.where and error.subject else ""
        because.append(f"the schedule is legal before the step {t.name}.{step}{made}")
        where = str(step.line) if step.line is not None else where
    return ScheduleError(error.what, where=where, because=because, hint=hint or error.hint, subject=error.subject)


def _causing(fusion: Fusion, error: ScheduleError) -> Taken | None:
    taken = sorted(((t, step) for t in fusion.tensors for step in t.log), key=lambda pair: pair[1].at)
    if len(fusion.exprs) > _BISECTION_LIMIT:
        own = [pair for pair in taken if pair[0].name in error.subject and pair[1].name == "inline"]
        return own[-1] if own else None
    lines = str(fusion).splitlines()
    steps = [n for n, line in enumerate(lines) if line.startswith("  schedule ")]
    if len(steps) != len(taken) or not steps:
        return None

    def legal(count: int) -> bool:
        """The fusion with its first ``count`` steps."""
        try:
            build_index_graph(parse_fusion("\n".join([*lines[: steps[0]], *lines[steps[0] : steps[0] + count], "}"])))
        except IdGraphError:
            return False
        return True

    low, high, back = len(steps), len(steps), 1
    while low and not legal(low):
        low, high, back = max(0, low - back), low, 2 * back
    if low == len(steps) or not legal(low):
        return None
    while high - low > 1:  # legal after ``low`` steps, not after ``high``
        middle = (low + high) // 2
        low, high = (middle, high) if legal(middle) else (low, middle)
    return taken[low]


_TRIAL_LIMIT = 2000  # operations of a fusion that is worth copying for a hint
_OFFERED = 3  # ways out that are reported

Change = Callable[[Fusion], object]  # on a copy of the fusion


def ways_out(fusion: Fusion, error: ScheduleError) -> str:
    """The changes of which each makes the inlining legal, as a hint; empty where none was found."""
    if len(fusion.exprs) > _TRIAL_LIMIT:
        return ""
    found: list[str] = []
    told: set[str] = set()
    races = 0 if nest_error(fusion) is not None else len(race_conflicts(IdModel(fusion), live_exprs(fusion)))
    for kind, text, change in (
        *(_on_threads(fusion, error.subject) if races else ()),
        *_changes(fusion, error.subject),
    ):
        if kind == "all" and found:
            break  # the last resort
        if len(found) < _OFFERED and kind not in told and _helps(fusion, change, races):
            found.append(text)
            told.add(kind)
    return ", or ".join(found)


def _helps(fusion: Fusion, change: Change, races: int) -> bool:
    """Whether the nests are legal after a change; of those that are, whether fewer of ``races`` are left."""
    try:
        made = copy_fusion(fusion)
        change(made)
        build_index_graph(made)
        if races and len(race_conflicts(IdModel(made), live_exprs(made))) >= races:
            return False
    except IdGraphError:
        return False
    return True


def _changes(fusion: Fusion, subject: tuple[str, ...]) -> Iterator[tuple[str, str, Change]]:
    """(kind, text, change), the least first within a kind: the first that helps is offered."""
    tensors = [t for t in fusion.tensors if t.name in subject]
    tensors.sort(key=lambda t: subject.index(t.name))
    for t in tensors:
        for k in reversed(range(t.inline_position)):
            yield f"inline {t.name}", f"inline {t.name} at most at {k}", _inline_change(t, k)
    for t in tensors[:1]:
        for k in range(t.inline_position + 1, len(t.loop) + 1) if t.inline_position < len(t.loop) else ():
            yield f"inline {t.name}", f"inline {t.name} at {k}", _inline_change(t, k)
        readers = [e.output for e in t.uses]
        for r in (u for u in tensors[1:] if u in readers):
            yield "like", f"schedule it like {r.name}: ig.schedule.like(f, {r.name})", _like(r)
            yield from _widened(t, r)
        alone = [[r] for r in sorted(readers, key=lambda r: r not in tensors)] if len(readers) > 1 else []
        others = [[r for r in readers if r is not kept] for kept in readers] if len(readers) > 2 else []
        for chosen in (*alone, *others):
            calls = ", ".join(f"ig.schedule.recompute({t.name}, {r.name}.definition)" for r in chosen)
            whose = "this use its own copy" if len(chosen) == 1 else "each of these uses its own copy"
            yield "copy", f"give {whose}: {calls}", _copy(t, chosen)
    deepest = max((t.inline_position for t in fusion.tensors), default=0)
    for k in reversed(range(deepest)):
        yield "all", f"inline no tensor past {k}", _all_at(k)


def _on_threads(fusion: Fusion, subject: tuple[str, ...]) -> Iterator[tuple[str, str, Change]]:
    """For a tensor that other threads read: memory that they share, or no threads along that axis."""
    for t in (t for t in fusion.tensors if t.name == subject[0]):
        if t.inline_position and t.memory in ("auto", "local"):
            yield "shared", f'keep it in shared memory: {t.name}.set_memory("shared")', _shared_memory_change(t)
        if t.inline_position:
            yield f"inline {t.name}", f"do not inline {t.name} (global memory and a new launch)", _inline_change(t, 0)
        for p, d in enumerate(t.loop):
            if is_thread(d.parallel) and p >= t.inline_position:
                yield "serial", f'run loop {p} serially: {t.name}.parallelize({p}, "serial")', _serial_change(t, p)


def _shared_memory_change(t: Tensor) -> Change:
    name = t.name

    def change(f: Fusion) -> None:
        f[name].set_memory("shared")

    return change


def _serial_change(t: Tensor, axis: int) -> Change:
    name = t.name

    def change(f: Fusion) -> None:
        f[name].parallelize(axis, "serial")

    return change


def _widened(t: Tensor, reader: Tensor) -> Iterator[tuple[str, str, Change]]:
    """The shorter of two loops that should be one runs as often as the longer, and does nothing beyond its own end."""
    for j, (a, b) in enumerate(zip(t.loop[: t.inline_position], reader.loop, strict=False)):
        more = simplify(a.extent - b.extent)
        if more == 0 or not (is_true(more > 0) or is_true(more < 0)):
            continue
        short, more = (reader, more) if is_true(more > 0) else (t, simplify(-more))
        for left, right in ((as_expr(0), more), (more, as_expr(0))):
            call = f"{short.name}.resize({j}, {left}, {right})"
            yield "widen", f"widen loop {j} of {short.name}: {call}", _resize(short, j, left, right)
        return


def _resize(t: Tensor, axis: int, left: Expr, right: Expr) -> Change:
    name = t.name

    def change(f: Fusion) -> None:
        f[name].resize(axis, left, right)

    return change


def _inline_change(t: Tensor, position: int) -> Change:
    name = t.name

    def change(f: Fusion) -> None:
        f[name].inline_position = position

    return change


def _all_at(position: int) -> Change:
    def change(f: Fusion) -> None:
        for t in f.tensors:
            t.inline_position = min(t.inline_position, position)

    return change


def _like(reader: Tensor) -> Change:
    """Everything scheduled like ``reader``, and inlined where it was."""
    name = reader.name

    def change(f: Fusion) -> None:
        positions = {t: t.inline_position for t in f.tensors}
        like(f, f[name])
        for t, k in positions.items():
            t.inline_position = k

    return change


def _copy(t: Tensor, readers: Sequence[Tensor]) -> Change:
    name, uses = t.name, [r.name for r in readers]

    def change(f: Fusion) -> None:
        for use in uses:
            e = f[use].definition
            if e is not None:
                recompute(f[name], e)

    return change
