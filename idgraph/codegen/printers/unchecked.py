"""Loaded indices in unchecked runs: an access that one would take outside of its tensor is not made; a load is zero.

A check states the condition on a loaded value, and its name. Every access whose address depends on that name, or on one
made of it, is made only where the condition holds.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from idgraph.arith import TRUE, Expr, and_
from idgraph.kernel.ir import Checked, Index, Let


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
    def of_check(self, s: Checked) -> Generator[None]:
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
