"""Tensor expressions: an operation, the tensors it reads and writes, and how each operand's axes are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from idgraph.arith import Expr
from idgraph.display import Printed, Sheet
from idgraph.errors import OperationError, SourceLine, arguments
from idgraph.ir.domains import IterDomain
from idgraph.ir.dtypes import Scalar
from idgraph.ir.optable import SCANS_OF

if TYPE_CHECKING:
    from idgraph.ir.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Mapped:
    """The operand's axis is read at the coordinate of this root axis of the output."""

    domain: IterDomain


@dataclass(frozen=True, slots=True)
class Fixed:
    """The operand's axis is read at one coordinate: 0 where a broadcast is resolved or squeezed, or a selected index.

    A resolved broadcast names the root axis of the output that it ``resolves`` to.
    """

    index: Expr
    why: Literal["broadcast", "squeeze", "select", "empty"]
    resolves: IterDomain | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The operand's axis is read at the value loaded from the operand number ``operand`` (a gathered axis)."""

    operand: int


AxisRead = Mapped | Fixed | Loaded
SCATTERS = frozenset({"scatter", "scatter_add", "index_put"})
"""Operations whose loops run over index tensors and that write at the values of these."""
SCANS = frozenset(SCANS_OF)
Attr: TypeAlias = "bool | int | float | str | Expr | tuple[Attr, ...] | None"


def plain_text(value: Attr) -> str:
    """An attribute for messages: expressions as they print, tuples of them too."""
    if isinstance(value, tuple):
        return f"({', '.join(map(plain_text, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def from_the_front(attrs: Mapping[str, Attr], rank: int) -> dict[str, Attr]:
    """``attrs`` with the axes of "dim" and "dims", which a builder has checked, counted from the front.

    >>> from_the_front({"dims": (-1, 0), "shifts": (-1, 2)}, rank=3)
    {'dims': (2, 0), 'shifts': (-1, 2)}
    """
    return {k: _positions(v, rank) if k in ("dim", "dims") else v for k, v in attrs.items()}


def _positions(value: Attr, rank: int) -> Attr:
    if isinstance(value, tuple):
        return tuple(_positions(v, rank) for v in value)
    return value % rank if isinstance(value, int) and rank else value


class TensorExpr(Printed):
    """One operation: ``op`` applied to ``args`` (tensors, numbers) with ``attrs``, making ``outputs``.

    ``inputs`` are the tensors among ``args``, one entry for each operand (a tensor read twice stands there twice);
    ``reads[k]`` says for each axis of ``inputs[k].axes`` how it is read. ``source_line`` is the user's line.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t1 = f.input("t0", shape=(64,))[:32]
    >>> t1.definition
    t1[I2] = slice(t0[I0]; dims=(0,), starts=(0,), stops=(32,), steps=(1,))
    >>> t1.definition.op, t1.definition.reads
    ('slice', ((Mapped(domain=I1[64]),),))
    >>> t1.definition.output.name, t1.definition.is_reduction
    ('t1', False)
    """

    __slots__ = ("args", "attrs", "inputs", "name", "op", "outputs", "reads", "source_line")

    def __init__(
        self,
        name: str,
        op: str,
        args: tuple[Tensor | Scalar | Expr, ...],
        attrs: Mapping[str, Attr],
        inputs: tuple[Tensor, ...],
        reads: tuple[tuple[AxisRead, ...], ...],
        source_line: SourceLine | None,
    ) -> None:
        self.name = name
        self.op = op
        self.args = args
        self.attrs: dict[str, Attr] = dict(attrs)
        self.inputs = inputs
        self.reads = reads
        self.outputs: tuple[Tensor, ...] = ()
        self.source_line = source_line

    @property
    def output(self) -> Tensor:
        """The tensor it makes (the first of several)."""
        return self.outputs[0]

    @property
    def is_reduction(self) -> bool:
        """True when some axis of the output is reduced."""
        return any(d.kind == "reduction" for d in self.output.logical)

    @arguments(OperationError, first=True)
    def operands_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The operand numbers at which ``tensor`` is read; empty when it is not."""
        return tuple(k for k, t in enumerate(self.inputs) if t is tensor)

    def sheet(self) -> Sheet:
        """The rows that notebooks show: the operation, its line, and how it reads each axis of each operand."""
        rows = [("line", str(self.source_line))] if self.source_line is not None else []
        for t, row in zip(self.inputs, self.reads, strict=True):
            ways = [f"{d!r} {_read_text(r, self)}" for d, r in zip(t.axes, row, strict=True)]
            rows.append((f"reads {t.name}", "\n".join(ways) or "its only element"))
        return Sheet(repr(self), ("", ""), tuple(rows))

    def __repr__(self) -> str:
        def show(t: Tensor) -> str:
            return f"{t.name}[{', '.join(d.name for d in t.logical)}]"

        args = ", ".join(show(a) if hasattr(a, "logical") else str(a) for a in self.args)  # type: ignore[arg-type]
        attrs = ", ".join(f"{k}={plain_text(v)}" for k, v in self.attrs.items())
        return f"{', '.join(show(t) for t in self.outputs)} = {self.op}({args}{'; ' + attrs if attrs else ''})"


def _read_text(read: AxisRead, e: TensorExpr) -> str:
    match read:
        case Mapped(domain):
            return f"at {domain!r}"
        case Fixed(index, why):
            return f"at {index} ({why})"
        case Loaded(operand):
            return f"where {e.inputs[operand].name} says"
