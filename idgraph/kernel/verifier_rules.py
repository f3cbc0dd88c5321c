"""Rules of a well formed kernel, and facts that imply one of several conditions point by point.

Words of two 16-bit floats: what holds one is not read as a single float, and the other way round. An element of an
array of registers lies inside it and is set before it is read, each output is touched, and no input is written. Loops
have the threads they run on, sums are whole where they are written, and one thread writes what is there once.

A thread that adds up its part of a row holds a part of the sum, until the threads of the block combine theirs. It may
compute with its own part (an online softmax scales it), but nobody writes that. Targets without threads run the same
loops one after the other: their kernels have no exchanges, and nothing for one thread.

The values of digits of one index imply each other by periods, of which no rule knows ((i + 1)%5 is 2 where i%5 is 1):
a small box of values is enumerated, which decides; of a larger one random points are, which may refute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idgraph.arith import Expr, is_true
from idgraph.arith.enumeration import closure
from idgraph.arith.interval import interval
from idgraph.errors import EmitError
from idgraph.kernel.def_use import defs, loaded_in, operands_of, stored_in, updates
from idgraph.kernel.printer import statement_text
from idgraph.kernel.statements import (
    Accumulate,
    BlockReduce,
    Buffer,
    Compute,
    ExtractHalf,
    Half2Op,
    If,
    Local,
    Loop,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    Store,
    VectorAdd,
    VectorLoad,
    VectorStore,
    bodies,
    walk,
)


def malformed_error(kernel: str, what: str, s: Stmt, *why: str) -> EmitError:
    """The one error of a kernel that is not well formed."""
    return EmitError(
        f"{kernel} is not well formed: {what}",
        because=[f"at: {statement_text(s)}", *why],
        hint="a pass has made it, or the text that it was read from says so: print(kernel) shows it",
    )


def check_words(name: str, body: Sequence[Stmt]) -> None:
    """Raise `EmitError` for a statement that takes a word for an element, or puts one into an array of elements."""
    arrays: dict[str, bool] = {}
    words: dict[str, bool] = {}
    for s in walk(tuple(body)):
        if isinstance(s, RegisterArray):
            arrays[s.name] = words[s.name] = s.words
            continue
        given = {x.name: words.get(x.name, False) for x in operands_of(s) if isinstance(x, Local)}
        match s:
            case Half2Op(op=op, operands=operands):
                wanted, made = op != "pack", True
                if op == "where":
                    given = {x.name: words.get(x.name, False) for x in operands[1:]}
            case ExtractHalf():
                wanted, made = True, False
            case VectorLoad(pairs=pairs):
                wanted, made = False, pairs
            case VectorStore(pairs=pairs):
                wanted, made = pairs, False
            case Compute(op="cast") | Select():  # a copy
                wanted = made = any(given.values())
            case _:
                wanted = made = False
        for x, word in given.items():
            if word != wanted:
                raise malformed_error(name, f"{x} is {_called(word)}, read as {_called(wanted)}", s)
        for x in defs(s):
            if arrays.get(x.name, made) != made:
                raise malformed_error(
                    name, f"{x.name} has {_called(arrays[x.name])} in each element, {_called(made)} is put there", s
                )
            words[x.name] = made


def _called(word: bool) -> str:
    return "a word of two floats" if word else "one number"


def check_arrays(name: str, buffers: Sequence[Buffer], body: Sequence[Stmt]) -> None:
    """Raise `EmitError` for an element of registers outside of its array or never set, a buffer that stands twice, an
    output that nothing touches, and a write to an input."""
    names = [b.name for b in buffers]
    stored, loaded = stored_in(body), loaded_in(body)
    for b in buffers:
        if names.count(b.name) > 1:
            raise EmitError(f"{name} is not well formed: it has two buffers {b.name}")
        if b.place == "output" and b.name not in stored | loaded:
            raise EmitError(f"{name} is not well formed: nothing writes its output {b.name}")
        if b.place == "input" and b.name in stored:
            raise EmitError(f"{name} is not well formed: it writes its input {b.name}")
    RegisterArrays(name).level(body)


@dataclass(slots=True)
class RegisterArrays:
    """One walk over the statements: ``known`` are the arrays, ``set_at`` the ranges of elements that were set."""

    name: str
    known: dict[str, RegisterArray] = field(default_factory=dict[str, RegisterArray])
    set_at: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, "list[tuple[int, int]]"])

    def level(self, body: Sequence[Stmt]) -> None:
        """The statements of one level, in order."""
        for s in body:
            if isinstance(s, RegisterArray):
                self.known[s.name] = s
            self.elements(s, (*operands_of(s), *updates(s)), read=True)
            self.elements(s, defs(s), read=False)
            self.level(bodies(s))

    def elements(self, s: Stmt, given: Iterable[object], read: bool) -> None:
        """Those of arrays among the variables that a statement reads, or sets."""
        for x in given:
            if not isinstance(x, Local) or x.at is None:
                continue
            array = self.known.get(x.name)
            if array is None:
                raise malformed_error(self.name, f"{x.name} is not an array of registers here", s)
            lo, hi = interval(x.at)
            lo, hi = 0 if lo is None else int(lo), array.count - 1 if hi is None else int(hi)
            if lo >= array.count or hi < 0 or (x.at.is_const and not 0 <= lo < array.count):
                raise malformed_error(self.name, f"element {x.at} of the {array.count} of {x.name}", s)
            if array.dtype != x.dtype:
                raise malformed_error(self.name, f"{x.name} holds {array.dtype}, not {x.dtype}", s)
            known = self.set_at.setdefault(x.name, [])
            if not read:
                known.append((lo, hi))
            elif not any(a <= hi and lo <= b for a, b in known):
                raise malformed_error(self.name, f"element {x.at} of {x.name} is read before any statement sets it", s)


FIRST = "the first of "


def _first_thread_dims(s: Stmt) -> tuple[str, ...]:
    """Marks of dimensions of which only the first thread runs ``s``: what it adds up is the whole sum."""
    if isinstance(s, SingleThread):
        return tuple(FIRST + d for d in s.dims)
    return (FIRST + s.parallel,) if isinstance(s, Loop) and s.extent == 1 and "Idx" in s.parallel else ()


def _implies_first(condition: Expr, var: str) -> bool:
    """True of a condition that holds only in the first step of a loop."""
    steps = [x for x in condition.symbols if x.name == var]
    return bool(steps) and is_true(steps[0] < 1, (condition,))


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
        """The statements of one level, where threads along ``apart`` differ or only one runs; the sums inside them,
        with what is apart there."""
        found: list[tuple[Accumulate, frozenset[str]]] = []
        for s in body:
            self.is_partial(s, apart)
            self.write(s, apart)
            alone = s.dims if isinstance(s, SingleThread) else (s.parallel,) if isinstance(s, Loop) else ()
            only = self.first_in(s.condition) if isinstance(s, If) else ()
            own = (*alone, *_first_thread_dims(s), *only)
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
                                one = (FIRST + way,) if FIRST + way in there else _first_thread_dims(s)
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

    def cases(self, s: Select) -> Iterator[tuple[set[str], Local]]:
        """The variables among which ``s`` chooses, each with the marks of the only threads that choose it."""
        for condition, x in (*s.cases, (None, s.default)):
            if isinstance(x, Local):
                yield set(self.first_in(condition) if condition is not None else ()), x

    def first_in(self, condition: Expr) -> tuple[str, ...]:
        """Marks of the dimensions of which only the first thread meets ``condition``."""
        return tuple(FIRST + d for d, v in self.steps.items() if _implies_first(condition, v))

    def is_partial(self, s: Stmt, apart: frozenset[str]) -> None:
        """A value made of a part is one, and so is a value that only the first thread computes."""
        given = [x for x in operands_of(s) if isinstance(x, Local)]
        found = {d for x in given for d in self.parts.get(x.name, ())}
        if isinstance(s, Select):
            found = {d for when, x in self.cases(s) for d in self.parts.get(x.name, set()) - when}
        first = {d for d in apart if d.startswith(FIRST) and d.removeprefix(FIRST) in self.several}
        for x in defs(s):
            self.parts[x.name] = found | first
            if len(given) > 1 or any(y.name in self.mixed for y in given):
                self.mixed.add(x.name)
        for x in updates(s) if not isinstance(s, BlockReduce) else ():
            self.parts.setdefault(x.name, set()).update(found | first)


MOST_POINTS = 1 << 16
SAMPLED = 1 << 14
NEAR = 256  # values of a variable without bounds


def implied_at_points(facts: Sequence[Expr], cases: Sequence[Sequence[Expr]]) -> Mapping[str, int] | bool | None:
    """True where one of ``cases``, all of its conditions, holds at every point of the facts; a point where none does;
    None where neither is known.

    >>> from idgraph.arith import parse
    >>> i, j = parse("i%5 == 1", {"i": 40}), parse("(i + 1)%5 == 2", {"i": 40})
    >>> implied_at_points([i], [[j]]), implied_at_points([], [[i], [j]])
    (True, {'i': 0})
    """
    symbols = closure(*facts, *(c for case in cases for c in case))
    ends = [interval(s) for s in symbols]
    known = all(low is not None and high is not None for low, high in ends)
    lows = [(-NEAR if high is None else high - NEAR) if low is None else low for low, high in ends]
    highs = [low + NEAR if high is None else high for low, (_, high) in zip(lows, ends, strict=True)]
    total = 1
    for low, high in zip(lows, highs, strict=True):
        total *= max(0, high - low + 1)
    every = known and total <= MOST_POINTS
    env = _all_points(symbols, lows, highs, total) if every else _some(symbols, lows, highs)
    here = _hold_at_points(facts, env) & _inside(symbols, env)
    some = np.zeros_like(here)
    for case in cases:
        some |= _hold_at_points(case, env)
    if (here & ~some).any():
        at = int(np.argmax(here & ~some))
        return {n: int(v[at]) for n, v in env.items()}
    return True if every else None


def _all_points(symbols: Sequence[Expr], lows: Sequence[int], highs: Sequence[int], total: int) -> dict[str, Any]:
    env: dict[str, Any] = {}
    rest = np.arange(total, dtype=np.int64)
    for s, low, high in zip(symbols, lows, highs, strict=True):
        rest, at = np.divmod(rest, high - low + 1)
        env[s.name] = at + low
    return env or {"": np.zeros(1, np.int64)}


def _some(symbols: Sequence[Expr], lows: Sequence[int], highs: Sequence[int]) -> dict[str, Any]:
    order = np.random.default_rng(0)
    return {s.name: order.integers(low, high + 1, SAMPLED) for s, low, high in zip(symbols, lows, highs, strict=True)}


def _inside(symbols: Sequence[Expr], env: Mapping[str, Any]) -> Any:
    """Where the bounds that other symbols give, and the congruences, hold too."""
    found: Any = np.ones(len(next(iter(env.values()))), np.bool_)
    for s in symbols:
        low, high, step, rest = s.symbol_bounds
        value = env[s.name]
        found &= value % step == rest % step
        found &= value >= low.evaluate_array(env) if isinstance(low, Expr) else True
        found &= value <= high.evaluate_array(env) if isinstance(high, Expr) else True
    return found


def _hold_at_points(conditions: Sequence[Expr], env: Mapping[str, Any]) -> Any:
    found: Any = np.ones(len(next(iter(env.values()))), np.bool_)
    for c in conditions:
        found = found & np.asarray(c.evaluate_array(env), np.bool_)
    return found
