"""The table of ATen operations: importing this module registers every handler, and the reasons of the others."""

from __future__ import annotations

from idgraph.frontends.aten import complex as complex_
from idgraph.frontends.aten import gather_scatter, pointwise, pooling, reduce, special, views, windows
from idgraph.frontends.aten import gather_scatter as scatter_reduce
from idgraph.frontends.aten import opaque as ragged
from idgraph.frontends.aten import special as search
from idgraph.frontends.aten.opaque import EFFECTS
from idgraph.frontends.importer import HANDLERS, OPAQUE
from idgraph.ir.op_table import OPERATIONS

__all__ = [
    "EFFECTS",
    "HANDLERS",
    "OPAQUE",
    "complex_",
    "gather_scatter",
    "pointwise",
    "pooling",
    "ragged",
    "reduce",
    "scatter_reduce",
    "search",
    "special",
    "views",
    "windows",
]  # the modules register handlers

pointwise.handle_rows(OPERATIONS.values())
