"""The decision for one tensor, with its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from idgraph.arith import Expr, as_expr, simplify
from idgraph.display import Printed, Sheet
from idgraph.errors import OperationError, arguments, short_repr
from idgraph.ir import Tensor

Kind = Literal["hint", "demand", "none"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One order that was offered: its ``reference``, and the bytes that its choice moves, by 32-byte sectors."""

    reference: Tensor
    order: tuple[int, ...]
    moved_bytes: int


@dataclass(frozen=True, slots=True)
class LayoutDecision(Printed):
    """The memory format of one tensor.

    ``order``: axis numbers of ``tensor.shape``, outermost in memory first. ``strides``: elements, by axis.
    ``reference``: the tensor that the order comes from, or None. ``kind``: "demand" where the user (or the
    captured program) laid the tensor out, "hint" where an order was carried over, "none" where the tensor keeps its
    logical order for want of one. ``reasons``: one line an axis, in that order. ``candidates``: where orders disagreed,
    all of them with their costs.
    """

    tensor: Tensor
    order: tuple[int, ...]
    strides: tuple[int | Expr, ...]
    reference: Tensor | None
    kind: Kind
    reasons: tuple[str, ...]
    because: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    def explain(self) -> str:
        """The decision in words.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = f.input("x", shape=(2, 3), strides=(1, 2))
        >>> t = f.output(x * 2.0)
        >>> print(ig.layout.infer(f)[t].explain())
        t1 (2, 3): strides (1, 2), a hint from x
          axis 1 (3 elements): follows axis 1 of x
          axis 0 (2 elements): follows axis 0 of x
        """
        whom = f"a {self.kind}" if self.kind != "none" else "logical order"
        head = f"{self.tensor.name} {_shown(self.tensor.shape)}: strides {_shown(self.strides)}, {whom}"
        if self.reference is not None and self.kind == "hint":
            head += f" from {self.reference.name}"
        costs = [f"order {c.order} of {c.reference.name} moves {c.moved_bytes} bytes" for c in self.candidates]
        return "\n  ".join([head, *self.reasons, *self.because, *costs])

    def sheet(self) -> Sheet:
        """One row an axis."""
        rows = [(str(a), str(self.strides[a]), why) for a, why in zip(self.order, self.reasons, strict=True)]
        return Sheet(self.explain().partition("\n")[0], ("axis", "stride", "because"), tuple(rows), self.because)

    def __str__(self) -> str:
        return self.explain()


class NoDecision(OperationError, KeyError):
    """The error of `Decisions` for a tensor without a decision: a KeyError, as of any mapping."""


@dataclass(frozen=True, slots=True)
class Decisions(Printed, Mapping[Tensor, LayoutDecision]):
    """Tensor -> `LayoutDecision`, for each output and each tensor that is stored between kernels; prints as a table."""

    by_tensor: Mapping[Tensor, LayoutDecision]

    def __getitem__(self, tensor: Tensor) -> LayoutDecision:
        given = cast("object", tensor)
        found = self.by_tensor.get(given) if isinstance(given, Tensor) else None
        if found is None:
            named = given.name if isinstance(given, Tensor) else short_repr(given)
            raise NoDecision(f"{named} has no memory format here", hint="outputs have one, and tensors between kernels")
        return found

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.by_tensor)

    def __len__(self) -> int:
        return len(self.by_tensor)

    @arguments(OperationError)
    def explain(self, tensor: Tensor) -> str:
        """The decision for one tensor in words, and the user's line that makes it; raises `OperationError` for a tensor
        without one.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("x", shape=(2, 3), strides=(1, 2)) * 2.0)
        >>> print(ig.layout.infer(f).explain(t).splitlines()[0])
        t1 (2, 3): strides (1, 2), a hint from x
        """
        found = self[tensor]
        made = tensor.definition
        line = f"\n  made by {made.op} at {made.source_line}" if made is not None and made.source_line else ""
        return f"{found.explain()}{line}"

    def sheet(self) -> Sheet:
        """One row a tensor."""
        rows = [
            (t.name, _shown(t.shape), _shown(d.strides), d.kind, d.reference.name if d.reference is not None else "")
            for t, d in self.items()
        ]
        return Sheet("memory formats", ("tensor", "shape", "strides", "kind", "reference"), tuple(rows))

    def __str__(self) -> str:
        return "\n".join(d.explain() for d in self.values())


@arguments(OperationError, first=True)
def dense_strides(t: Tensor, order: tuple[int, ...]) -> tuple[int | Expr, ...]:
    """Elements between neighbours of each axis where the axes lie densely in that order.

    >>> import idgraph as ig
    >>> dense_strides(ig.Fusion("f").input("t", shape=(8, 256, 1024)), (0, 2, 1))
    (262144, 1, 256)
    """
    if sorted(order) != [*range(len(t.axes))]:
        raise OperationError(f"{t.name}: {order} is not an order of its {len(t.axes)} axes", hint="each axis once")
    made: dict[int, int | Expr] = {}
    inner = as_expr(1)
    for axis in reversed(order):
        made[axis] = int(inner) if inner.is_const else inner
        inner = simplify(inner * t.axes[axis].extent)
    return tuple(made[a] for a in range(len(order)))


def _shown(values: tuple[int | Expr, ...]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"
