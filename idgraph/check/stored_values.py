"""Integers that the program itself stores (an ``arange``, a mask): what is loaded from them is known by its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from idgraph.arith import TRUE, Expr, and_, simplify
from idgraph.check.enumeration import extents_of
from idgraph.check.index_values import ValueTable
from idgraph.check.program import NeutralProgram
from idgraph.check.semantics import Address, ElementRead, ProgramSemantics
from idgraph.check.store_coverage import delinearize, element_of
from idgraph.ir import Tensor


@dataclass(frozen=True, slots=True)
class Stored:
    """Values of loaded symbols in ``table``; ``at`` says where arguments lie when the nest runs."""

    program: NeutralProgram
    meaning: ProgramSemantics
    table: ValueTable
    at: Address

    def computed(self, needs: Sequence[ElementRead]) -> str:
        """A buffer of computed values that an index is loaded from: one side may know these values, the other not."""
        made = {b.home for b in self.program.buffers if b.after}
        for n in needs:
            for x in (n.address, n.when):
                found = self.table.storages(x) & made
                if found:
                    return min(found)
        return ""

    def opened(self, needs: Sequence[ElementRead], held: Expr) -> list[ElementRead]:
        """Reads whose indices are loaded from stored integers, with the values that these have."""
        out: list[ElementRead] = []
        for n in needs:
            given = and_(held, n.when)

            def value(storage: str, address: Expr, given: Expr = given) -> Expr | None:
                return self._number(storage, address, given)

            when = self.table.opened(n.when, value)
            out.append(
                ElementRead(n.storage, simplify(self.table.opened(n.address, value), facts=(when,)), when, n.tensor)
            )
        return out

    def _number(self, storage: str, address: Expr, given: Expr) -> Expr | None:
        """The integer that the program stored at an address, as a formula; None where it is not an integer formula, or
        has changed since.
        """
        here = [b for b in self.program.buffers if b.home == storage]
        if any(b.over or b.copy for b in here):
            return None
        for b in here:
            t = self.meaning.tensors.get(b.tensor)
            if t is None or t.definition is None:
                continue
            shape = extents_of(t)
            coordinates = delinearize(address, b, shape)
            if simplify(element_of(address, coordinates, b, shape), facts=(given,)) is TRUE:
                found = self.meaning.known(t, coordinates, self._argument, self.table)
                if found is not None:
                    return found
        return None

    def _argument(self, t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
        """Where an argument of the program lies; results are looked through."""
        return self.at(t, coordinates) if t.definition is None else None
