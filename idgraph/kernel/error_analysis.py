"""How large a relative error of each float32 value may be: where every use of it ends in a rounding to 16 bits.

A rounding to bfloat16 moves a value by up to 2**-9 of it, one to float16 by up to 2**-12. An error of 1/64 of a unit in
the last place before that does not matter: the result is then off by 0.516 units at most. The analysis goes backward.
A product passes the error of a factor on as it is, a difference may make it any size: which operations pass errors on
is a column of `idgraph.ir.op_table`, and a value with a use that is not such an operation has no tolerance.

Errors of several operands add up, so operands that may have one get equal shares. Those are the results of the
functions that a pass means to compute by shorter forms, whose errors it gives, and all that is computed of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from idgraph.ir.dtypes import DTYPES, ELEMENT_TYPES, DType, compute_dtype
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import defs, locals_read, updates
from idgraph.kernel.statements import (
    Accumulate,
    Alloc,
    BlockReduce,
    Compute,
    Constant,
    InitAccumulator,
    Load,
    Local,
    Operand,
    Select,
    Stmt,
    Store,
    VectorAdd,
    VectorLoad,
    VectorStore,
    walk,
)

TOLERANCES: Final[Mapping[DType, float]] = {
    t.name: 2.0 ** (-6 - t.significand) for t in ELEMENT_TYPES.values() if t.words
}
"""1/64 unit in the last place, relative to the smallest number of each power of two."""
SINGLE: Final = frozenset(d for d in DTYPES if compute_dtype(d) == "float32")
ROUNDS: Final = 16  # an error that still grows after as many may grow without end

Error = Callable[[Compute], float]


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """The relative errors that values may have, by the variable's name; a name that is not in ``of`` may have none.

    ``error`` gives the relative error that the short form of a computation adds, zero where it has no such form.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   buffer z: bfloat16[64] output "z"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     e: float32 = exp(a)
    ...     p: float32 = mul(a, e)
    ...     u: bfloat16 = cast(p)
    ...     y[i] = u
    ...     f: float32 = exp(p)
    ...     d: float32 = sub(f, 1)
    ...     v: bfloat16 = cast(d)
    ...     z[i] = v
    ... ''')
    >>> found = tolerances(k.body, lambda s: 2.0**-17 if s.op == "exp" else 0.0)
    >>> found.of  # p is also an argument of exp, f is less one
    {'d': 6.103515625e-05}
    """

    of: Mapping[str, float]
    error: Error
    inexact: frozenset[str] = frozenset()

    def result(self, s: Compute) -> float:
        """The relative error that the value of ``s`` may have before it is rounded to its type.

        An operand that is rounded to 16 bits first has none after that, and its result is not this one's concern.
        """
        if s.compute not in SINGLE:
            return 0.0
        return TOLERANCES.get(s.local.dtype) or (self.of.get(s.local.name, 0.0) if s.local.dtype == "float32" else 0.0)


@dataclass(slots=True)
class _Analysis:
    """``above`` are the variables that are never negative; ``inexact`` those that short forms may make inexact.

    An accumulator and a private array are variables here: all that is put into one is one of its definitions.
    """

    body: tuple[Stmt, ...]
    error: Error
    arrays: frozenset[str] = frozenset()  # names of private arrays
    accumulators: frozenset[str] = frozenset()
    above: set[str] = field(default_factory=set[str])
    inexact: set[str] = field(default_factory=set[str])
    of: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        found = list(walk(self.body))
        own = {s.buffer.name for s in found if isinstance(s, Alloc) and s.buffer.place == "private"}
        other = (s.buffer for s in found if isinstance(s, Accumulate | VectorAdd | VectorLoad | VectorStore))
        self.arrays = frozenset(own - {b.name for b in other if b is not None})
        self.accumulators = frozenset(s.name for s in found if isinstance(s, InitAccumulator))

    def handed(self, s: Compute) -> bool:
        """Whether errors of the operands of ``s`` bound that of its result."""
        row = OPERATIONS[s.op]
        if s.op == "cast" and all(isinstance(o, Local) and o.name in self.accumulators for o in s.operands):
            return s.local.dtype in SINGLE
        if row.errors is None or s.compute not in SINGLE or s.local.dtype not in SINGLE:
            return False
        return not row.errors_above_zero or all(map(self.is_above, s.operands))

    def is_above(self, o: Operand) -> bool:
        return o.value >= 0 if isinstance(o, Constant) else isinstance(o, Local) and o.name in self.above

    def is_inexact(self, o: Operand) -> bool:
        return isinstance(o, Local) and o.name in self.inexact and self.may_have_error(o)

    def may_have_error(self, x: Local) -> bool:
        return x.dtype == "float32" or x.name in self.accumulators

    def definition(self, s: Stmt) -> tuple[str, tuple[Operand, ...]] | None:
        """The variable that ``s`` moves a value into, or several of one sign or size, and those values."""
        match s:
            case Load(local=local, buffer=buffer) if buffer.name in self.arrays:
                return local.name, (Local(buffer.name, buffer.dtype),)
            case Store(buffer=buffer, value=value) if buffer.name in self.arrays:
                return buffer.name, (value,)
            case InitAccumulator(name=name, value=value):
                return name, (Constant(value),)
            case Accumulate(acc=acc, op="sum" | "amax" | "amin", value=value, buffer=None, running=None):
                return acc.name, (value,)
            case Select(local, cases, default):
                return local.name, (default, *(v for _, v in cases))
            case _:
                return None

    def find_above(self) -> None:
        """Variables all of whose definitions are never negative; each is taken for one until one of them is not."""
        found = [(d[0], d[1]) for s in walk(self.body) if (d := self.definition(s)) is not None]
        makers = [s for s in walk(self.body) if isinstance(s, Compute)]
        self.above.update(s.local.name for s in makers)
        self.above.update(name for name, _ in found)
        for s in walk(self.body):
            if not isinstance(s, Compute) and self.definition(s) is None:
                lost = defs(s) if isinstance(s, BlockReduce) else (*defs(s), *updates(s))
                self.above.difference_update(x.name for x in lost)
        changed = True
        while changed:
            lost = {s.local.name for s in makers if not self.never_negative(s)}
            lost |= {name for name, values in found if not all(map(self.is_above, values))}
            changed = not self.above.isdisjoint(lost)
            self.above -= lost

    def never_negative(self, s: Compute) -> bool:
        row = OPERATIONS[s.op]
        if row.above_zero is True or (s.op == "mul" and s.operands[0] == s.operands[1]):
            return True
        return row.above_zero == "operands" and all(map(self.is_above, s.operands))

    def find_inexact(self) -> None:
        found = -1
        while found < len(self.inexact):
            found = len(self.inexact)
            for s in walk(self.body):
                moved = self.definition(s)
                if isinstance(s, Compute):
                    if self.error(s) or (self.handed(s) and any(map(self.is_inexact, s.operands))):
                        self.inexact.add(s.local.name)
                elif moved is not None and any(map(self.is_inexact, moved[1])):
                    self.inexact.add(moved[0])

    def uses(self, s: Stmt) -> Iterator[tuple[Operand, float]]:
        """The operands of ``s``, with the relative error that each may have there."""
        match s:
            case Compute():
                yield from self.of_compute(s)
            case Select(local, cases, default):
                allowed = TOLERANCES.get(local.dtype) or self.tolerance(local)
                yield from ((o, allowed) for o in (default, *(v for _, v in cases)))
            case Load(local=local, buffer=buffer) if buffer.name in self.arrays:
                yield Local(buffer.name, "float32"), TOLERANCES.get(buffer.dtype) or self.tolerance(local)
            case Store(buffer=buffer, value=value):
                yield value, TOLERANCES.get(buffer.dtype) or self.of.get(buffer.name, 0.0)
            case VectorStore(buffer=buffer, values=values, pairs=False):
                yield from ((o, TOLERANCES.get(buffer.dtype, 0.0)) for o in values)
            case Accumulate(acc=acc, op=op, value=value) if self.definition(s) is not None:
                safe = op != "sum" or self.is_above(acc)
                yield value, self.tolerance(acc) if safe else 0.0
            case BlockReduce(acc=acc, op=op, before=None) if op in ("amax", "amin") or (
                op == "sum" and self.is_above(acc)
            ):
                pass  # the accumulators of other threads are off by as much as this one
            case _:
                yield from ((Local(n, "float32"), 0.0) for n in locals_read(s))

    def tolerance(self, x: Local) -> float:
        return self.of.get(x.name, 0.0) if self.may_have_error(x) else 0.0

    def of_compute(self, s: Compute) -> Iterator[tuple[Operand, float]]:
        if s.compute in TOLERANCES and s.op != "cast":  # each operand is rounded first
            yield from ((o, TOLERANCES[s.compute]) for o in s.operands)
            return
        allowed = (TOLERANCES.get(s.local.dtype) or self.tolerance(s.local)) if self.handed(s) else 0.0
        own = self.error(s)
        allowed -= own if own <= allowed else 0.0
        errors = OPERATIONS[s.op].errors
        shares = sum(map(self.is_inexact, s.operands)) if errors == "sum" else 1
        for k, o in enumerate(s.operands):
            tested = s.op == "where" and k == 0
            yield o, 0.0 if tested else allowed / max(shares, 1) / (2 if errors == "twice" else 1)

    def find(self) -> None:
        """The smallest error that any use allows, from the last use to the first, until none gets smaller."""
        names = {x.name for s in walk(self.body) for x in defs(s) if x.dtype == "float32"}
        self.of.update(dict.fromkeys(names | self.accumulators | self.arrays, float("inf")))
        order = list(walk(self.body))[::-1]
        for n in range(ROUNDS):
            changed: set[str] = set()
            for s in order:
                for o, allowed in self.uses(s):
                    if isinstance(o, Local) and allowed < self.of.get(o.name, 0.0):
                        self.of[o.name] = allowed
                        changed.add(o.name)
            if not changed:
                return
            if n == ROUNDS - 2:
                self.of.update(dict.fromkeys(changed, 0.0))


def tolerances(body: Sequence[Stmt], error: Error) -> ErrorBudget:
    """The relative errors that the float32 variables of ``body`` may have, see `ErrorBudget`."""
    found = _Analysis(tuple(body), error)
    found.find_above()
    found.find_inexact()
    found.find()
    of = {name: e for name, e in found.of.items() if 0.0 < e < float("inf")}
    return ErrorBudget(of, error, frozenset(found.inexact))
