"""Loops of an operation, as index maps name them."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith import Expr
from idgraph.ir import IterDomain
from idgraph.ir.domains import Parallel


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """One loop of an operation: variable ``symbol`` named ``name`` runs from 0 to ``extent`` - 1.

    ``domain`` is the axis that gives the extent: the output's own loop axis, or where the loop is promoted the axis
    (or replay) it is promoted to.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(30,)) + 1).split(0, 8).parallelize(1, "threadIdx.x")
    >>> [str(x) for x in ig.IdModel(f).loops(t.definition)]
    ['i0 in [0, 4)', 'i1 in [0, 8) on threadIdx.x']
    """

    name: str
    extent: Expr
    parallel: Parallel
    domain: IterDomain
    symbol: Expr

    def __str__(self) -> str:
        how = "" if self.parallel == "serial" else f" on {self.parallel}"
        return f"{self.name} in [0, {self.extent}){how}"
