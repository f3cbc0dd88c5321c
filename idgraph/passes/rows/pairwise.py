"""Lanes whose terms are added up in pairs, in float32, before they go to a running value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.kernel.ir import Accumulate, Local, Stmt
from idgraph.passes.rows.chunks import gathered
from idgraph.passes.unroll import Lane, LaneExpansion


@dataclass(slots=True)
class Pairs(LaneExpansion):
    """Statements once for each lane, and one update of each running value: the n terms of a sum are combined in
    ceil(log2(n)) roundings each, which lose at most that many times 2**-24 of the sum of their magnitudes.

    ``terms`` says which variable is the float32 of a term in float64.
    """

    terms: Mapping[str, Local] = field(default_factory=dict[str, Local])

    def accumulate(self, s: Accumulate, lanes: Sequence[Lane], depths: Mapping[str, int]) -> list[Stmt]:
        return gathered(s, self.terms, {}, lanes, depths)
