"""Protocols of tensors, operations and fusions, for the modules that `Fusion` itself is made of.

The three hold each other, so their classes stand in one module (`idgraph.ir.fusion`). All that those classes call - the
steps of a schedule, the operators, the text form, the rules of a fusion - sees them through these protocols only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from idgraph.arith import Expr
from idgraph.errors import ScheduleError, SourceLine, user_line
from idgraph.ir.axis_read import Attr, AxisRead
from idgraph.ir.dtypes import DType, Scalar
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Kind, Owner, TensorDomain
from idgraph.ir.mesh import Mesh, Placement
from idgraph.ir.schedule_log import KernelHints, Memory, ScheduleStep

V = TypeVar("V")


class OperationLike(Protocol):
    """An operation; see `idgraph.ir.fusion.TensorExpr`."""

    name: str
    op: str
    attrs: dict[str, Attr]
    reads: tuple[tuple[AxisRead, ...], ...]
    source_line: SourceLine | None

    @property
    def args(self) -> Sequence[TensorLike | Scalar | Expr]: ...
    @property
    def inputs(self) -> Sequence[TensorLike]: ...
    @property
    def outputs(self) -> Sequence[TensorLike]: ...
    @property
    def output(self) -> TensorLike: ...
    @property
    def is_reduction(self) -> bool: ...


class TensorLike(Protocol):
    """A tensor; see `idgraph.ir.fusion.Tensor`."""

    alignment: int
    choices: KernelHints
    domain: TensorDomain
    dtype: DType
    inline_position: int
    memory: Memory
    offset: Expr | int
    placement: Placement | None
    ruled: Mapping[str, KernelHints]

    @property
    def name(self) -> str: ...
    @property
    def fusion(self) -> FusionLike: ...
    @property
    def definition(self) -> OperationLike | None: ...
    @property
    def uses(self) -> Sequence[OperationLike]: ...
    @property
    def root(self) -> tuple[IterDomain, ...]: ...
    @property
    def logical(self) -> tuple[IterDomain, ...]: ...
    @property
    def loop(self) -> tuple[IterDomain, ...]: ...
    @property
    def axes(self) -> tuple[IterDomain, ...]: ...
    @property
    def shape(self) -> tuple[int | Expr, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def log(self) -> tuple[ScheduleStep, ...]: ...
    def note_step(
        self, name: str, args: tuple[Attr, ...], kwargs: Mapping[str, Attr], line: SourceLine | None
    ) -> None: ...
    def keep_first(self, count: int) -> None: ...
    def keep_last(self, steps: Collection[str]) -> None: ...
    @property
    def source_line(self) -> SourceLine | None: ...
    def state(self) -> Callable[[], None]: ...
    def forget(self, step: str) -> None: ...


class FusionLike(Protocol):
    """A fusion; see `idgraph.ir.fusion.Fusion`."""

    version: int

    @property
    def mesh(self) -> Mesh | None: ...
    @mesh.setter
    def mesh(self, value: Mesh | None) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def symbols(self) -> Mapping[str, Expr]: ...
    @property
    def tensors(self) -> Sequence[TensorLike]: ...
    @property
    def exprs(self) -> Sequence[OperationLike]: ...
    @property
    def inputs(self) -> Sequence[TensorLike]: ...
    @property
    def outputs(self) -> Sequence[TensorLike]: ...
    def __contains__(self, tensor: object, /) -> bool: ...
    def new_domain(self, extent: int | Expr, kind: Kind | None = None, tensor: Owner | None = None) -> IterDomain: ...
    def free_strides(self, tensor: TensorLike, contiguity: Sequence[bool]) -> tuple[Expr | None, ...]: ...
    def touch(self) -> None: ...
    def in_symbols(self, value: V, /) -> V: ...
    def check_args(self, op: str, args: Sequence[object]) -> None: ...
    def building(self, op: str, build: Callable[[], Any]) -> Any: ...


L = TypeVar("L", bound=TensorLike)
"""A tensor whose steps and operators give a tensor of its own class."""
Operand: TypeAlias = "L | Scalar | Expr"


def related(tensor: TensorLike) -> list[DomainExpr]:
    """The axis expressions of a tensor: its own, then the schedule's."""
    return [*tensor.domain.exprs, *tensor.domain.loop_exprs]


def axis_place(tensor: TensorLike, d: IterDomain) -> str:
    """The place of an axis in its tensor (``root0``, ``logical1``, ``made3.0``): names change, places do not."""
    for name, axes in (("root", tensor.root), ("logical", tensor.logical)):
        if d in axes:
            return f"{name}{axes.index(d)}"
    for n, e in enumerate(related(tensor)):
        for word, axes in (("made", e.outputs), ("read", e.inputs)):
            if d in axes:
                return f"{word}{n}.{axes.index(d)}"
    raise ScheduleError(f"{d.label} is not an axis of tensor {tensor.name}", where=user_line())


def axis_at(tensor: TensorLike, place: str) -> IterDomain | None:
    """The axis at a place that `axis_place` named; None where there is none."""
    found = re.fullmatch(r"(root|logical|made|read)(\d{1,6})(?:\.(\d))?", place)
    if found is None:
        return None
    word, n, part = found.group(1), int(found.group(2)), found.group(3)
    if word in ("root", "logical"):
        axes = tensor.root if word == "root" else tensor.logical
        return axes[n] if n < len(axes) and part is None else None
    exprs = related(tensor)
    if n >= len(exprs) or part is None:
        return None
    axes = exprs[n].outputs if word == "made" else exprs[n].inputs
    return axes[int(part)] if int(part) < len(axes) else None
