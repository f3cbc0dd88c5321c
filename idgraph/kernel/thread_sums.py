"""Threads of a kernel and its launch: loops have the threads they run on, sums are whole where they are written, and
one thread writes what is there once.

A thread that adds up its part of a row holds a part of the sum, until the threads of the block combine theirs. It may
compute with its own part (an online softmax scales it), but nobody writes that. Targets
without threads run the same loops one after the other: their kernels have no exchanges, and nothing for one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import Expr, is_true
from idgraph.kernel.defuse import defs, operands_of, updates
from idgraph.kernel.malformed import malformed_error
from idgraph.kernel.statements import (
    Accumulate,
    BlockReduce,
    If,
    Local,
    Loop,
    SingleThread,
    Stmt,
    Store,
    VectorAdd,
    VectorStore,
    bodies,
    walk,
)

FIRST = "the first of "


def _first(s: Stmt) -> tuple[str, ...]:
    """Marks of dimensions of which the first thread alone runs ``s``: what it adds up is the whole sum."""
    if isinstance(s, SingleThread):
        return tuple(FIRST + d for d in s.dims)
    return (FIRST + s.parallel,) if isinstance(s, Loop) and s.extent == 1 and "Idx" in s.parallel else ()


def _is_one(s: Stmt, var: str) -> bool:
    """True of a test that holds in the first step of a loop alone."""
    if not isinstance(s, If):
        return False
    steps = [x for x in s.condition.symbols if x.name == var]
    return bool(steps) and is_true(steps[0] < 1, (s.condition,))


def check_threads(name: str, launch: Mapping[str, Sequence[Expr]], body: Sequence[Stmt]) -> None:
    """Raise `EmitError` for a loop on blocks or threads that the launch lacks, for a part of a sum that is written as
    the whole, and for an element that all threads of a block write."""
    together = any(isinstance(s, (BlockReduce, SingleThread)) for s in walk(tuple(body)))
    several = [d for d, es in launch.items() if d.startswith("thread") and not all(e == 1 for e in es)]
    ThreadSums(name, launch, frozenset(several) if together else frozenset()).level(body, frozenset())


@dataclass(slots=True)
class ThreadSums:
    """One walk over the statements. ``parts`` has, for each variable, the dimensions along which threads hold parts of
    a sum in it, or what they made of theirs; ``mixed`` those made of other values too; ``ops`` how an accumulator was
    added to; ``steps`` the variables of the loops around on threads."""

    name: str
    launch: Mapping[str, Sequence[Expr]]
    several: frozenset[str]  # dimensions of threads that run at a time
    parts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    ops: dict[str, str] = field(default_factory=dict[str, str])
    mixed: set[str] = field(default_factory=set[str])
    steps: dict[str, str] = field(default_factory=dict[str, str])

    def level(self, body: Sequence[Stmt], apart: frozenset[str]) -> list[tuple[Accumulate, frozenset[str]]]:
        """The statements of one level, where threads along ``apart`` differ or one alone runs; the sums inside them,
        with what is apart there."""
        found: list[tuple[Accumulate, frozenset[str]]] = []
        for s in body:
            self.made(s, apart)
            self.write(s, apart)
            alone = s.dims if isinstance(s, SingleThread) else (s.parallel,) if isinstance(s, Loop) else ()
            own = (*alone, *_first(s), *(FIRST + d for d, v in self.steps.items() if _is_one(s, v)))
            around = self.steps
            if isinstance(s, Loop) and s.parallel:
                self.steps = {**around, s.parallel: s.var}
            inner = self.level(bodies(s), apart.union(own))
            self.steps = around
            found += inner
            match s:
                case Loop(extent=extent, parallel=way, first=first) if "Idx" in way:
                    self.launched(s, first + extent)
                    if way in self.several:
                        for x, there in inner:
                            if x.buffer is None and x.running is None:
                                one = (FIRST + way,) if FIRST + way in there else _first(s)
                                self.parts.setdefault(x.acc.name, set()).update(one or (way,))
                case Accumulate():
                    found.append((s, apart))
                    self.ops[s.acc.name] = s.op
                case BlockReduce():
                    self.combine(s)
                case _:
                    pass
        return found

    def launched(self, s: Loop, end: Expr) -> None:
        """The launch has as many blocks or threads as the loop has steps."""
        given = self.launch.get(s.parallel)
        if given is None:
            raise malformed_error(self.name, f"the kernel is launched without {s.parallel}", s)
        if all(is_true(end > e) for e in given):
            raise malformed_error(self.name, f"it is launched with {', '.join(map(str, given))} of {s.parallel}", s)

    def combine(self, s: BlockReduce) -> None:
        """An exchange adds up as its threads did, along dimensions that they have."""
        for d in s.dims:
            if d not in self.launch:
                raise malformed_error(self.name, f"the kernel is launched without {d}", s)
        before = self.ops.get(s.acc.name, s.op)
        if before != s.op:
            raise malformed_error(
                self.name, f"parts of {s.acc.name} were made by {before}, and are combined by {s.op}", s
            )
        self.parts.get(s.acc.name, set()).difference_update(s.dims, (FIRST + d for d in s.dims))

    def write(self, s: Stmt, apart: frozenset[str]) -> None:
        """An element of memory is written by the thread whose element it is, or by one for all."""
        buffer = s.buffer if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) else None
        if buffer is not None and buffer.place in ("output", "global") and not self.several <= apart:
            dims = ", ".join(sorted(self.several - apart))
            raise malformed_error(self.name, f"every thread of {dims} writes the same element of {buffer.name}", s)
        for x in operands_of(s) if buffer is not None else ():
            held = self.parts.get(x.name, set()) if isinstance(x, Local) else set[str]()
            whole = {d for d in held if d.startswith(FIRST) and d in apart}
            if isinstance(s, (Store, VectorStore)) and isinstance(x, Local) and x.name not in self.mixed:
                # A result of each thread's own: the axis is kept, and stands inside of the reduced ones.
                whole |= {d for d in held if self.steps.get(d) in s.address.names}
            dims = ", ".join(sorted(d.removeprefix(FIRST) for d in held - whole))
            if isinstance(x, Local) and dims:
                raise malformed_error(self.name, f"{x.name} is made of a value that one thread of {dims} holds", s)

    def made(self, s: Stmt, apart: frozenset[str]) -> None:
        """A value made of a part is one, and so is a value that the first thread alone makes."""
        given = [x for x in operands_of(s) if isinstance(x, Local)]
        found = {d for x in given for d in self.parts.get(x.name, ())}
        first = {d for d in apart if d.startswith(FIRST) and d.removeprefix(FIRST) in self.several}
        for x in defs(s):
            self.parts[x.name] = found | first
            if len(given) > 1 or any(y.name in self.mixed for y in given):
                self.mixed.add(x.name)
        for x in updates(s) if not isinstance(s, BlockReduce) else ():
            self.parts.setdefault(x.name, set()).update(found | first)
