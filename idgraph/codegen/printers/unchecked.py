"""Loaded indices: an access that one would take outside of its tensor is not made; a load is zero.

A check states the condition on a loaded value, and its name. Every access whose address depends on that name, or on one
made of it, is made only where the condition holds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from idgraph.arith import TRUE, Expr, and_
from idgraph.kernel.defuse import reads
from idgraph.kernel.ir import (
    BoundsCheck,
    Comment,
    Compute,
    ExtractHalf,
    Half2Op,
    Index,
    Let,
    Load,
    Loop,
    Select,
    Stmt,
    Store,
    VectorLoad,
    VectorStore,
    walk,
)


@dataclass(slots=True)
class Inside:
    """The conditions on addresses made of these names.

    >>> from idgraph.arith import symbol
    >>> known = Inside({"ld0": symbol("ld0") < 4})
    >>> str(known.of(symbol("ld0") * 8)), known.of(symbol("i")) is TRUE
    ('ld0 < 4', True)
    """

    known: dict[str, Expr] = field(default_factory=dict[str, Expr])

    @contextmanager
    def of_check(self, s: BoundsCheck) -> Generator[None]:
        """Within the statements of a check."""
        before = dict(self.known)
        self.known[s.value] = and_(self.known.get(s.value, TRUE), s.condition)
        yield
        self.known = before

    def let(self, s: Let) -> None:
        """A name made of others."""
        held = self.of(s.value.value) if isinstance(s.value, Index) else TRUE
        if held is not TRUE:
            self.known[s.name] = held

    def of(self, address: Expr) -> Expr:
        """The condition on an access at ``address``."""
        found = [self.known[n] for n in sorted(address.names & self.known.keys())] if self.known else []
        return and_(*found) if found else TRUE


@dataclass(frozen=True, slots=True)
class NestedChecks:
    """Checks in each other of indices that vectors are read at. ``early`` is what stands between them and depends on
    none of them: the indices of the inner ones."""

    checks: tuple[BoundsCheck, ...]
    early: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


def rows_of(s: BoundsCheck) -> NestedChecks | None:
    """A check of an index of vectors, which one instruction reads or leaves out, with those inside of it; None of other
    checks, before a write or of single elements."""
    checks, early = [s], list[Stmt]()
    while checks[-1].body and isinstance(last := checks[-1].body[-1], BoundsCheck):
        early += checks[-1].body[:-1]
        checks.append(last)
    values = {x.value for x in checks}
    free = _moves_up(early, values) and not any(x.always for x in checks)
    if not free or _rows_read(checks[-1].body, values) <= 0:
        return None
    return NestedChecks(tuple(checks), tuple(early), checks[-1].body)


def _moves_up(early: Sequence[Stmt], values: set[str]) -> bool:
    """Whether statements between checks may run in front of all of them: they read no checked value."""
    for s in walk(tuple(early)):
        if isinstance(s, (Loop, Load, VectorLoad, Let, Compute, Select, Comment)) and not reads(s) & values:
            continue
        return False
    return True


def _rows_read(body: Sequence[Stmt], checked: set[str]) -> float:
    """The vectors read at checked indices; less than any number where there is more that depends on them."""
    found = 0.0
    for s in body:
        match s:
            case VectorLoad():
                found += 1 if s.address.names & checked and not s.realigned else -inf
            case Loop(parallel="unroll"):
                found += _rows_read(s.body, checked)
            case VectorStore() | Store() | Load() if not s.address.names & checked:
                pass
            case Compute() | Select() | Comment() | Half2Op() | ExtractHalf():
                pass
            case _:
                found = -inf
    return found
