"""The rules a fusion must keep; every violation is reported, each with its line.

The report of `Fusion.verify`: what `emit` would refuse, and widths that it would not give, found when looked at.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from idgraph.arith import Expr
from idgraph.display import Printed
from idgraph.errors import IdGraphError, OperationError, user_line
from idgraph.ir.axis_read import LoadedCoordinate, Mapped
from idgraph.ir.protocols import FusionLike, OperationLike
from idgraph.loading import load

LARGEST = (1 << 63) - 1  # the largest index, size or integer operand


class AxisError(OperationError):
    """An axis that is too long for any index; `idgraph.ir.op_table.apply` adds the operation and its operands."""


def check_symbols(op: str, values: Iterable[object], known: Container[str], fusion: str) -> None:
    """Expressions, also within tuples, speak of symbols of their fusion only: no loop variable, no other fusion's."""
    for x in values:
        if isinstance(x, Expr):
            for name in sorted(x.names):
                if name not in known:
                    raise OperationError(
                        f"{op}: `{x}` uses {name}, which is not a symbol of fusion {fusion}",
                        where=user_line(),
                        hint=f'{name} = f.symbol("{name}", min=1)',
                    )
        elif isinstance(x, tuple):
            check_symbols(op, cast("tuple[object, ...]", x), known, fusion)


def _unaddressable_tensors(fusion: FusionLike) -> list[str]:
    """Tensors whose memory no 64-bit address reaches."""
    found: list[str] = []
    for t in fusion.tensors:
        first = t.offset if isinstance(t.offset, int) else 0
        count, last = 1, first
        for d, step in zip(t.domain.allocation, t.domain.strides, strict=True):
            size = int(d.extent) if d.extent.is_const else 1
            count *= size
            last += max(size - 1, 0) * (int(step) if step is not None and step.is_const else 0)
        if max(count + first, last) > LARGEST:
            line = f" ({t.source_line})" if t.source_line else ""
            found.append(f"{t.name} ends beyond element 2^63 - 1 of its memory, which no address reaches{line}")
    return found


def _read_violations(e: OperationLike) -> list[str]:
    found: list[str] = []
    own = {*e.output.root, *e.output.logical}
    for x in e.output.domain.exprs:
        own |= {*x.inputs, *x.outputs}
    for k, (t, row) in enumerate(zip(e.inputs, e.reads, strict=True)):
        if len(row) != t.ndim:
            found.append(f"{e.name} reads {len(row)} axes of {t.name}, which has {t.ndim}")
        for p, read in enumerate(row):
            match read:
                case Mapped(domain) if domain not in own:
                    found.append(f"{e.name} maps axis {p} of {t.name} to {domain.label}, no axis of {e.output.name}")
                case LoadedCoordinate(operand) if not 0 <= operand < len(e.inputs) or operand == k:
                    found.append(f"{e.name} reads axis {p} of {t.name} at a value of operand {operand}")
                case _:
                    pass
    return found


def violations(fusion: FusionLike) -> list[str]:
    """All violations of a fusion: operands made before their uses, outputs reachable, reads of the right rank."""
    found: list[str] = []
    made = {t.name for t in fusion.inputs}
    for e in fusion.exprs:
        line = f" ({e.source_line})" if e.source_line else ""
        found += [f"{e.name} reads {t.name} before it is made{line}" for t in e.inputs if t.name not in made]
        found += [f"{finding}{line}" for finding in _read_violations(e)]
        made |= {t.name for t in e.outputs}
    found += _unaddressable_tensors(fusion)
    found += [f"output {t.name} is not a tensor of the fusion" for t in fusion.outputs if t not in fusion]
    if fusion.exprs and not fusion.outputs:
        found.append(f"fusion {fusion.name} has no output")
    return found


_ROOM = "idgraph.runtime.program"  # behind this one: loaded when the report is looked at


@dataclass(frozen=True, slots=True)
class Verification(Printed):
    """The answer of `emit` for a well-formed ``fusion`` as it is now; true where no target refuses it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(f.input("x", shape=(6, 50)) * 2.0)
    >>> f.verify()
    f: nothing is refused
    >>> _ = y.split(1, 4).parallelize(2, "vectorize")
    >>> print(f.verify())
    f: nothing is refused
      t1: i2 over t1: asked 4, got 2
      t1: i2 over x: asked 4, got 2
    """

    fusion: FusionLike

    @property
    def refusals(self) -> Mapping[str, IdGraphError]:
        """The error of each target ("python", "numpy", "cpu", "cuda") that refuses the fusion."""
        return cast("Mapping[str, IdGraphError]", load(_ROOM).refusals_of(self.fusion))

    @property
    def widths(self) -> tuple[object, ...]:
        """The vector widths asked for that the target "cuda" does not give, as `Kernel.widths` has them."""
        return cast("tuple[object, ...]", load(_ROOM).narrow_widths_of(self.fusion))

    @property
    def ok(self) -> bool:
        """Whether no target refuses the fusion."""
        return not self.refusals

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        refused: dict[str, list[str]] = {}
        for target, error in self.refusals.items():
            refused.setdefault(str(error), []).append(target)
        told = [f"  refused for {', '.join(targets)}: {error}" for error, targets in refused.items()]
        head = f"{self.fusion.name}: " + ("refused" if refused else "nothing is refused")
        return "\n".join([head, *told, *sorted(f"  {w}" for w in self.widths)])
