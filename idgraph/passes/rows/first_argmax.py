"""The first argmax or argmin, in the pass that finds it: ``amin(where(x == top, place, other))``.

Each thread has the extremum so far and the least place where its elements were equal to it. When the extremum moves,
the places before it count no more: the running place starts anew, at what is above all places (`Online.first`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import Expr, as_expr, is_true
from idgraph.kernel.def_use import all_reads, definitions
from idgraph.kernel.ir import Accumulate, Comment, Compute, Constant, Index, Local, Operand, Stmt, walk
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.rows.reduction_loop import FAR, OnlineRescaling, Plain, ReductionLoop


def with_places(a: ReductionLoop, added: Sequence[Plain], c: str, after: Sequence[Stmt]) -> ReductionLoop | None:
    """Sweep ``a`` with the statements ``added`` of a later one, which use the finished extremum ``c`` only to find the
    least place where x is equal to it (or is NaN); None for any others."""
    tops = [s for s in a.body if isinstance(s, Accumulate) and s.op in ("amax", "amin") and s.buffer is None]
    tops = [s for s in tops if _is_copy(c, s.acc, after)]
    if len(tops) != 1:
        return None
    values = ValueNumbering(read_only=None)
    for s in (*a.body, *added):
        values.define(s)
    found = _ArgmaxSearch(values.operand(tops[0].value), c, values, definitions([*a.body, *added]))
    ready: list[Plain] = []
    later: list[Plain] = []
    for s in added:
        if not all_reads((s,)) & ({c} | found.hits | found.places.keys()):
            ready.append(s)
        elif (made := found.step(s)) is not None:
            later += made
        else:
            return None
    if not found.accs:
        return None
    online = OnlineRescaling(tops[0].acc.name, tuple((acc, c) for acc in found.accs), first=True)
    return replace(a, body=(*a.body, *ready), later=tuple(later), online=online)


def _is_copy(c: str, acc: Local, after: Sequence[Stmt]) -> bool:
    """Whether ``c`` is the finished value of ``acc``, perhaps of a shorter type that holds all elements."""
    made = definitions(walk(tuple(after)))
    while (s := made.get(c)) is not None:
        match s:
            case Compute(Local(), "cast" | "copy", (Local(source, at=None),)):
                c = source
            case _:
                return False
        if c == acc.name:
            return True
    return False


@dataclass(slots=True)
class _ArgmaxSearch:
    """One walk over statements: ``hits`` are conditions that an element is the extremum, ``places`` the integers that
    are its place there, else what is not below any place."""

    element: Operand
    top: str
    values: ValueNumbering
    made: Mapping[str, Stmt]
    hits: set[str] = field(default_factory=set[str])
    places: dict[str, Local] = field(default_factory=dict[str, Local])
    accs: list[str] = field(default_factory=list[str])

    def step(self, s: Plain) -> list[Plain] | None:
        """A statement that depends on the extremum, as it is while that is not finished; None where it is another."""
        match s:
            case Compute(Local(name), "eq", (Local() as x, Local() as y)) if self._is_element(x, y):
                self.hits.add(name)
                return [s]
            case Compute(Local(name), "logical_or", (Local(left), Local(right))) if self._may_be_nan(left, right):
                self.hits.add(name)
                return [s]
            case Compute(Local(name, "int64"), "where", (Local(hit), place, other)) if hit in self.hits:
                return self._placed(name, hit, place, other)
            case Accumulate(acc, "amin", Local(name), None, running=None) if name in self.places:
                self.accs.append(acc.name)
                return [replace(s, value=self.places[name])] if acc.name not in self.accs[:-1] else None
            case Comment():
                return []
            case _:
                return None

    def _is_element(self, x: Local, y: Local) -> bool:
        return self.top in (x.name, y.name) and self.values.operand(x if y.name == self.top else y) == self.element

    def _may_be_nan(self, left: str, right: str) -> bool:
        """One hit, or that the same element is NaN."""
        hit, nan = (left, right) if left in self.hits else (right, left)
        test = self.made.get(nan)
        return hit in self.hits and isinstance(test, Compute) and test.op == "isnan" and (
            self.values.operand(test.operands[0]) == self.element
        )  # fmt: skip

    def _placed(self, name: str, hit: str, place: Operand, other: Operand) -> list[Plain] | None:
        """The place in 32 bits, where it fits, and is not above what stands for no place."""
        at, rest = self._index(place), self._index(other)
        if at is None or rest is None or not (is_true(at >= 0) and is_true(at <= rest) and is_true(rest < FAR)):
            return None
        near, there = Local(f"{name}_near", "int32"), Local(f"{name}_at", "int32")
        self.places[name] = near
        return [
            Compute(there, "cast", (Index(at),), "int32"),
            Compute(near, "where", (Local(hit, "bool"), there, Index(rest)), "int32"),
        ]

    def _index(self, o: Operand) -> Expr | None:
        """An operand as an index expression, behind casts."""
        while isinstance(o, Local):
            s = self.made.get(o.name)
            if not (isinstance(s, Compute) and s.op in ("cast", "copy") and s.local.dtype == "int64"):
                return None
            o = s.operands[0]
        if isinstance(o, Constant):
            return as_expr(o.value) if isinstance(o.value, int) and not isinstance(o.value, bool) else None
        return o.value
