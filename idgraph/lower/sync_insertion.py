"""Placement of barriers: between writes and reads of memory through which the threads of a block exchange values.

A barrier stands between two parts of a loop body, never inside a condition: a thread without work waits too.

Neighbouring statements under one condition merged; loads whose value a variable already holds dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from idgraph.arith import Expr, simplify
from idgraph.errors import ScheduleError
from idgraph.index.allocation import is_thread
from idgraph.index.loop_tree import LoopNest, Node
from idgraph.index.races import Crossing
from idgraph.ir import TensorExpr
from idgraph.kernel.def_use import defs, names
from idgraph.kernel.ir import (
    Accumulate,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    If,
    InitAccumulator,
    Kernel,
    Load,
    Loop,
    SingleThread,
    Stmt,
    Store,
    bodies,
    quote,
    walk,
)


def barriers(
    nodes: Sequence[Node], crossings: Iterable[Crossing], around: Sequence[LoopNest]
) -> Mapping[int, list[str]]:
    """Reasons for a barrier before node n (after the last one: n = len(nodes)).

    Read after write: a barrier between the writing node and the reading node. Write after read: the next step of a
    serial loop around them overwrites elements that slower threads of this step may still read. So a barrier stands
    between the last read and the end of the body, or between its begin and the write.
    """
    owner: dict[TensorExpr, int] = {}
    for n, node in enumerate(nodes):
        owner.update(dict.fromkeys(node.exprs if isinstance(node, LoopNest) else (node.expr,), n))
    made: dict[int, list[str]] = {}
    here = [
        (owner[c.tensor.definition], owner[c.use], c)
        for c in crossings
        if c.tensor.definition in owner and c.use in owner and owner[c.tensor.definition] != owner[c.use]
    ]
    for write, read, c in sorted(here, key=lambda x: x[1]):
        if not any(write < n <= read for n in made):
            made[read] = [f"{quote(c.tensor.name)} is complete"]
    if any(not is_thread(loop.parallel) and loop.extent != 1 for loop in around):
        for write, read, c in sorted(here, key=lambda x: -x[1]):
            if not any(n > read or n <= write for n in made):
                made[len(nodes)] = [f"{quote(c.tensor.name)} has been read"]
    return made


def check_barriers(kernel: Kernel) -> None:
    """Raise `ScheduleError` where threads combine values under a condition that only some of them meet."""

    def visit(body: Sequence[Stmt], threads: frozenset[str], why: str) -> None:
        for s in body:
            match s:
                case BlockReduce(acc, _, dims) if why:
                    raise ScheduleError(
                        f"{acc.name} is combined over {', '.join(dims)} where not every thread of the block comes",
                        because=[why, "threads that combine values wait for all others"],
                        hint="let the loops around the reduction fill their threads: split without a rest",
                    )
                case Loop(var, extent, way, inner):
                    on_threads = way.startswith("threadIdx")
                    part = on_threads and any(simplify(e - extent) != 0 for e in kernel.launch[way])
                    uneven = "" if on_threads else _only_some(extent, threads, f"loop {var} ends at {extent}")
                    mine = f"loop {var} leaves threads of {way} idle" if part else uneven
                    visit(inner, threads | {var} if on_threads else threads, why or mine)
                case If(condition, inner):
                    visit(inner, threads, why or _only_some(condition, threads, f"the condition {condition}"))
                case SingleThread() | BoundsCheck():
                    visit(s.body, threads, why or "a part for some threads only")
                case _:
                    pass

    visit(kernel.body, frozenset(), "")


def _only_some(e: Expr, threads: frozenset[str], why: str) -> str:
    """``why`` where the value of ``e`` may differ between the threads of a block."""
    return why if any(n in threads or n.startswith("ld") for n in e.names) else ""


Body = tuple[Stmt, ...]


def joined_tests(body: Sequence[Stmt]) -> list[Stmt]:
    """Neighbouring tests of one condition as one; comments and first values that stand between them move in front."""
    made: list[Stmt] = []
    for s in body:
        at = next((n for n in range(len(made) - 1, -1, -1) if not isinstance(made[n], (Comment, InitAccumulator))), -1)
        last = made[at] if at >= 0 else None
        if isinstance(s, If) and isinstance(last, If) and last.condition == s.condition:
            first_values = [d for d in made[at + 1 :] if isinstance(d, InitAccumulator)]
            if not any(d.name in names(x) for d in first_values for x in walk(last.body)):
                notes = [n for n in made[at + 1 :] if isinstance(n, Comment)]
                made[at:] = [*first_values, replace(s, body=(*last.body, *notes, *s.body))]
                continue
        made.append(s)
    return [replace(s, body=tuple(joined_tests(s.body))) if isinstance(s, If | BoundsCheck) else s for s in made]


def merge_adjacent_ifs(body: Sequence[Stmt]) -> Body:
    """Neighbouring statements under one condition share it; variables that only they use need no first value."""
    out = joined_tests(body)
    kept = [s for s in out if not (isinstance(s, InitAccumulator) and _within_one(s.name, out))]
    return _loaded_once(tuple(If(s.condition, _loaded_once(s.body)) if isinstance(s, If) else s for s in kept))


def _loaded_once(body: Body) -> Body:
    """``body`` without loads of a value that the variable already holds."""
    held: dict[str, Load] = {}
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Load):
            known = held.get(s.local.name)
            if known is not None and known == s:
                also = replace(known, serves=(*known.serves, *s.serves))
                out[next(n for n, x in enumerate(out) if x is known)] = held[s.local.name] = also
                continue
            held[s.local.name] = s
        elif bodies(s) or isinstance(s, Barrier):
            held = {}
        else:
            for x in defs(s):
                held.pop(x.name, None)
            if isinstance(s, (Store, Accumulate)):
                held = {n: x for n, x in held.items() if x.buffer != s.buffer}
        out.append(s)
    return tuple(out)


def _within_one(name: str, body: Sequence[Stmt]) -> bool:
    """True when the variable is set, before it is read, inside a single condition; an accumulation counts as a read."""
    users = [s for s in body if not isinstance(s, InitAccumulator) and any(name in names(x) for x in walk((s,)))]
    if len(users) != 1 or not isinstance(users[0], If):
        return False
    first = next(x for x in walk(users[0].body) if name in names(x))
    return name in {x.name for x in defs(first)}
