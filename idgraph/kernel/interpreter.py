"""Accesses of a kernel at the steps of its loops, with NumPy: those outside of their arrays, and races.

Every statement is evaluated at all steps of the loops around it at once. A step's *epoch* is the number of barriers
that its thread has passed: two accesses of one epoch in one block may come in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, Expr
from idgraph.kernel.printer import statement_text
from idgraph.kernel.statements import (
    Access,
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    If,
    Index,
    Let,
    Load,
    Loop,
    SingleThread,
    Stmt,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    axis_loops,
    bodies,
    elements_of,
    walk,
)
from idgraph.kernel.verifier_rules import malformed_error

BUDGET = 1 << 21  # steps of one statement
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _ExecutionState:
    """The steps at a statement: values of variables, whether it runs, and the threads that run it (-1: all).

    ``unknown`` says why the steps are not known: a loaded index, a symbol without a number, too many of them.
    ``axis`` are the loops of one axis that are still to come inside; its index and its end are variables of ``env``.
    ``own`` are the private arrays of one step of that axis: they are gone behind it.
    """

    env: Mapping[str, Array]
    runs: Array
    epoch: Array
    block: Array
    thread: Array
    unknown: str = ""
    axis: int = 0
    own: frozenset[str] = frozenset()


AXIS, END = "axis'", "end'"


@dataclass(slots=True)
class KernelInterpreter:
    """``only``: the accesses, by identity, that must stay inside their arrays. With ``blocks`` the first two blocks and
    the last are checked, else all. Of a dimension along which ``launch`` has one, that one is every one."""

    name: str
    symbols: Mapping[str, int]
    blocks: bool
    launch: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict[str, "tuple[Expr, ...]"])
    only: frozenset[int] = frozenset()
    undecided: list[str] = field(default_factory=list[str])
    touched: dict[str, list[tuple[Access, Array]]] = field(default_factory=dict[str, "list[tuple[Access, Array]]"])

    def run(self, body: Sequence[Stmt]) -> None:
        """All statements of a kernel."""
        one = np.zeros(1, np.int64)
        env = {n: np.full(1, v, np.int64) for n, v in self.symbols.items()}
        self.body(body, _ExecutionState(env, np.ones(1, np.bool_), one, one - 1, one - 1))

    def body(self, body: Sequence[Stmt], at: _ExecutionState) -> None:
        passed = 0
        for s in body:
            here = replace(at, epoch=at.epoch + passed)
            match s:
                case Loop():
                    self.loop(s, here)
                case If(condition) | BoundsCheck(condition):
                    self.conditional(s, condition, here)
                case SingleThread() | StraightLineBlock():
                    self.body(s.body, here)
                case Let(name, value):
                    env = dict(at.env)
                    env.pop(name, None)
                    if isinstance(value, Index) and not at.unknown:
                        found = self.value(value.value, at)
                        env.update({} if isinstance(found, str) else {name: found})
                    at = replace(at, env=env)
                case Alloc(buffer) if buffer.place == "private":
                    at = replace(at, own=at.own | {buffer.name})
                case _ if isinstance(s, Access) and s.buffer is not None and (not self.only or id(s) in self.only):
                    self.access(s, here)
                    if not isinstance(s, (Load, VectorLoad)):
                        self.inside(s, here)
                case Accumulate():
                    self.inside(s, here)
                case _:
                    pass
            passed += self.barriers(s, at)

    def barriers(self, s: Stmt, at: _ExecutionState) -> int:
        """Barriers that each thread passes in a statement."""
        if isinstance(s, (Barrier, BlockReduce)):
            return 1
        inner = sum(self.barriers(x, at) for x in bodies(s))
        if inner and isinstance(s, Loop) and not s.parallel.startswith(("threadIdx", "blockIdx")):
            extent = self.value(s.extent, at)
            return inner * (int(extent.max(initial=0)) if not isinstance(extent, str) else 1)
        return inner

    def loop(self, s: Loop, at: _ExecutionState) -> None:
        found = self.value(s.extent, at) if not at.unknown else at.unknown
        most = 0 if isinstance(found, str) else int(found.max(initial=0))
        steps = np.arange(most, dtype=np.int64)
        if self.blocks and s.parallel.startswith("blockIdx") and most > 3:
            steps = np.array([0, 1, most - 1], np.int64)
        if isinstance(found, str) or at.runs.size * steps.size > BUDGET:
            why = found if isinstance(found, str) else f"more than {BUDGET} steps"
            if any(isinstance(x, Access) for x in walk(s.body)):
                self.body(s.body, replace(at, unknown=why))
            return
        count = at.runs.size
        var = np.tile(steps, count)
        again = np.repeat(np.arange(count), steps.size)
        inner = sum(self.barriers(x, at) for x in s.body)
        epoch, block, thread = at.epoch[again], at.block[again], at.thread[again]
        if self.launch.get(s.parallel) == (1,):
            pass
        elif s.parallel.startswith("threadIdx"):
            thread = thread + (var + 1 << 12 * "xyz".index(s.parallel[-1]))  # in whichever order the loops stand
        elif s.parallel.startswith("blockIdx"):
            block = block + (var + 1 << (0, 32, 49)["xyz".index(s.parallel[-1])])
        else:
            epoch = epoch + var * inner
        env, axis, own = {n: a[again] for n, a in at.env.items()} | {s.var: var}, 0, at.own
        if at.axis:
            env[AXIS], axis = env[AXIS] * most + var, at.axis - 1
        elif s.column is not None and not isinstance(end := self.value(s.column.extent, at), str):
            env |= {AXIS: var, END: end[again]}
            axis, own = len(axis_loops(s)) - 1, frozenset[str]()
            if axis + 1 < s.column.loops:
                env.pop(END)
        self.body(
            s.body,
            _ExecutionState(env, at.runs[again] & (var < found[again]), epoch, block, thread, axis=axis, own=own),
        )

    def inside(self, s: Stmt, at: _ExecutionState) -> None:
        """Nothing that outlives its step is written or added up behind the end of an axis."""
        if isinstance(s, Access) and s.buffer is not None and s.buffer.name in at.own:
            return
        if not at.unknown and END in at.env and (late := at.runs & (at.env[AXIS] >= at.env[END])).any():
            n = int(np.flatnonzero(late)[0])
            index, end = int(at.env[AXIS][n]), int(at.env[END][n])
            raise malformed_error(self.name, f"it runs at {index}, behind the {end} of its column", s)

    def conditional(self, s: If | BoundsCheck, condition: Expr, at: _ExecutionState) -> None:
        found = self.value(condition, at) if not at.unknown else at.unknown
        if isinstance(found, str):
            self.body(s.body, replace(at, unknown=found))
        else:
            self.body(s.body, replace(at, runs=at.runs & found))

    def value(self, e: Expr, at: _ExecutionState) -> Array | str:
        """Values at all steps, or the reason why they are not known."""
        missing = sorted(n for n in e.names if n not in at.env)
        zero = {s.name for s in e.symbols if s.symbol_bounds[:2] == (0, 0)}
        if any(n not in zero for n in missing):
            return f"{missing[0]} is not known"
        env = {**at.env, **{n: np.zeros(at.runs.size, np.int64) for n in missing}}
        return np.broadcast_to(e.evaluate_array(env), at.runs.shape)

    def access(self, s: Access, at: _ExecutionState) -> None:
        b, address = s.buffer, s.address
        if b is None or address is None:
            return
        first = at.unknown or self.value(address, at)
        size = at.unknown or self.value(b.size, at)
        guard = at.runs if not isinstance(s, Load) or s.guard is TRUE else at.unknown or self.value(s.guard, at)
        if isinstance(first, str) or isinstance(size, str) or isinstance(guard, str):
            why = next(x for x in (first, size, guard) if isinstance(x, str))
            self.undecided.append(f"{statement_text(s).partition('  @')[0]}: {why}")
            return
        runs, width = at.runs & guard, elements_of(s)
        outside = runs & ((first < 0) | (first + width > size))
        if outside.any():
            n = int(np.flatnonzero(outside)[0])
            point = ", ".join(f"{v} = {int(a[n])}" for v, a in at.env.items())
            raise malformed_error(
                self.name, f"it touches element {int(first[n])} of the {int(size[n])} of {b.name}", s, f"where {point}"
            )
        if not self.only and b.place != "private":
            rows = np.stack([first, at.block, at.thread, at.epoch])[:, runs]
            wide = np.repeat(rows, width, axis=1)
            wide[0] += np.tile(np.arange(width), rows.shape[1])
            self.touched.setdefault(b.name, []).append((s, wide))

    # races --------------------------------------------------------------------------------------------------------

    def check_races(self) -> None:
        """Two accesses of one element by several threads of a block need a barrier between them, unless they only read
        or are atomic; no block touches an element that another one writes."""
        for found in self.touched.values():
            if all(isinstance(s, (Load, VectorLoad)) for s, _ in found) or all(map(_is_atomic, (s for s, _ in found))):
                continue
            rows = np.concatenate([r for _, r in found], axis=1)
            which = np.concatenate([np.full(r.shape[1], n) for n, (_, r) in enumerate(found)])
            writes = np.array([not isinstance(s, (Load, VectorLoad)) for s, _ in found])[which]
            shared = found[0][0].buffer is not None and found[0][0].buffer.place == "shared"
            element, block, thread, epoch = rows
            self.conflict((element, block, epoch), thread, which, writes, found, "a barrier")
            if not shared:
                self.conflict((element,), block, which, writes, found, "a launch")

    def conflict(
        self, key: tuple[Array, ...], who: Array, which: Array, writes: Array, found: Sequence[tuple[Access, Array]],
        between: str,
    ) -> None:  # fmt: skip
        """Report a group of equal keys that holds a write and several values of ``who``."""
        order = np.lexsort((who, *key))
        columns = [k[order] for k in key]
        who, which, writes = who[order], which[order], writes[order]
        if not who.size:
            return
        new = np.ones(who.size, np.bool_)
        new[1:] = np.any([c[1:] != c[:-1] for c in columns], axis=0)
        start = np.flatnonzero(new)
        end = np.append(start[1:], who.size)
        any_write = np.add.reduceat(writes.astype(np.int64), start) > 0
        bad = np.flatnonzero(any_write & (who[start] != who[end - 1]))
        for n in bad:
            group = slice(int(start[n]), int(end[n]))
            numbers: list[int] = [int(k) for k in np.unique(which[group])]
            statements = [found[k][0] for k in numbers]
            if all(map(_is_atomic, statements)):
                continue
            b = statements[0].buffer
            others = [f"and: {statement_text(s)}" for s in statements[1:3]]
            what = f"{b.name if b is not None else ''}[{int(columns[0][start[n]])}] is touched by several"
            raise malformed_error(
                self.name, f"{what} {'threads' if between == 'a barrier' else 'blocks'} without {between} between them",
                statements[0], *others,
            )  # fmt: skip


def _is_atomic(s: Access) -> bool:
    return isinstance(s, VectorAdd) or (isinstance(s, Accumulate) and s.shared)
