"""The purpose of each access: the operation, which of its operands, and the logical point, in loop variables."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, as_expr
from idgraph.index.maps_protocol import IndexMaps
from idgraph.index.visit_order import scatter_entries
from idgraph.ir import SCATTERS, TensorExpr
from idgraph.kernel.ir import Provenance

START = "_start"  # behind the name of a scatter's output: the copy of what it updates, by element number


def read_provenance(e: TensorExpr, maps: IndexMaps, name: str, operand: int) -> Provenance:
    """A read of ``operand`` by ``e``, whose output is called ``name``, at the point of all its logical axes."""
    return Provenance(name, operand, _entry(e, maps) if e.op in SCATTERS else tuple(maps.write(e).logical))


def write_provenance(e: TensorExpr, maps: IndexMaps, name: str, along: Sequence[int] = ()) -> Provenance:
    """The result of ``e`` at a point of its shape; of a scatter, an entry of what it writes.

    ``along`` are axes of the shape that have one running value.
    """
    if e.op in SCATTERS:
        return Provenance(name, None, _entry(e, maps))
    axes = [p for p, d in enumerate(e.output.logical) if d.kind != "reduction"]
    logical = maps.write(e).logical
    return Provenance(name, None, tuple(as_expr(0) if n in along else logical[p] for n, p in enumerate(axes)))


def _entry(e: TensorExpr, maps: IndexMaps) -> tuple[Expr, ...]:
    """The coordinates of an entry of a scatter: of its index and, for index_put, of the axes that are not indexed."""
    if e.op != "index_put":
        return tuple(maps.read(e, 1).coordinates)
    dims = e.attrs["dims"]
    at = [d % e.output.ndim for d in dims if isinstance(d, int)] if isinstance(dims, tuple) else []
    write = maps.write(e).coordinates
    return (*write[: at[0]], *scatter_entries(e, maps)[0], *write[at[-1] + 1 :])
