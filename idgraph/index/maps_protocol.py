"""The interface through which checks and kernels ask an index model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from idgraph.arith import Expr
from idgraph.ir import SCANS, IterDomain, Tensor, TensorExpr


class LoopProtocol(Protocol):
    """The interface of a loop."""

    @property
    def name(self) -> str: ...
    @property
    def extent(self) -> Expr: ...
    @property
    def parallel(self) -> str: ...
    @property
    def domain(self) -> IterDomain: ...
    @property
    def symbol(self) -> Expr: ...


class AccessMap(Protocol):
    """The interface of an access."""

    @property
    def coordinates(self) -> tuple[Expr, ...]: ...
    @property
    def logical(self) -> tuple[Expr, ...]: ...
    @property
    def tensor_address(self) -> Expr: ...
    @property
    def conditions(self) -> tuple[Expr, ...]: ...
    @property
    def loads(self) -> Mapping[str, tuple[Tensor, tuple[Expr, ...]]]: ...
    @property
    def load_bounds(self) -> tuple[Expr, ...]: ...
    @property
    def slots(self) -> tuple[Expr | None, ...]: ...
    @property
    def allocation(self) -> tuple[Expr, ...]: ...


class IndexMaps(Protocol):
    """The interface of an index model: loops of an expression, and its accesses by operand."""

    def loops(self, e: TensorExpr, /) -> Sequence[LoopProtocol]: ...
    def read(self, e: TensorExpr, operand: int, /) -> AccessMap: ...
    def write(self, e: TensorExpr, /) -> AccessMap: ...


def scanned(e: TensorExpr, maps: IndexMaps) -> tuple[int, ...]:
    """Positions of the loops that visit the axis of a scan, outermost first."""
    dim = e.attrs.get("dim")
    if e.op not in SCANS or not isinstance(dim, int):
        return ()
    names = maps.write(e).coordinates[dim % e.output.ndim].names
    return tuple(p for p, v in enumerate(maps.loops(e)) if v.name in names)
