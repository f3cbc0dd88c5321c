"""The table of ATen operations: importing this module registers every handler, and the reasons of the others."""

from __future__ import annotations

from idgraph.frontends.aten import (
    complexes,
    gather_scatter,
    joined,
    losses,
    movement,
    pointwise,
    pools,
    python_numbers,
    reduce,
    search,
    special,
    window,
)
from idgraph.frontends.aten.opaque import EFFECTS
from idgraph.frontends.importer import HANDLERS, OPAQUE

__all__ = [
    "EFFECTS",
    "HANDLERS",
    "OPAQUE",
    "complexes",
    "gather_scatter",
    "joined",
    "losses",
    "movement",
    "pointwise",
    "pools",
    "python_numbers",
    "reduce",
    "search",
    "special",
    "window",
]  # the modules register handlers
