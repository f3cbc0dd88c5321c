"""Registers and buffers of a kernel: an element of an array of registers lies inside it and is set before it is read,
each output is touched, and no input is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from idgraph.arith.ranges import interval
from idgraph.errors import EmitError
from idgraph.kernel.defuse import defs, loaded_in, operands_of, stored_in, updates
from idgraph.kernel.malformed import malformed_error
from idgraph.kernel.statements import Buffer, Local, RegisterArray, Stmt, bodies


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
