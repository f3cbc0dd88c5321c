"""Why two things are the same: one reason for each union, chained into explanations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from idgraph.display import Printed
from idgraph.errors import SourceLine
from idgraph.ir import DomainExpr, Tensor, TensorExpr

Because = Literal[
    "access", "broadcast", "resize", "forward", "inline", "promotion", "coordinate", "congruence", "backward",
    "size one", "rows",
]  # fmt: skip

# The arguments of a union: the fields of a `Reason`, or for congruence the numbers of two equal expressions.
# One serves all axes that an operation reads of a tensor, with the axis number `ANY`: which of them it is, the two keys
# of the union tell. A union keeps a number instead (see `Reasons`), since a model has millions.
Told: TypeAlias = tuple[Because, TensorExpr | None, Tensor | None, int, tuple[DomainExpr, ...]]
Equal: TypeAlias = tuple[Literal["congruence", "backward"], int, int]
Why: TypeAlias = Told | Equal
ANY = -1
_KINDS = 4  # the last two bits of a number: told, an access, congruence, backward
_BITS = 30  # of the number of an expression
_MASK = (1 << _BITS) - 1


class Reasons:
    """Reasons of unions as integers below 2^62. What was entered stays, so graphs that start from one share it.

    >>> reasons = Reasons()
    >>> reasons.why(reasons.tell(("access", None, None, 0, ()))), reasons.why(equal("backward", 3, 5))
    (('access', None, None, 0, ()), ('backward', 3, 5))
    """

    __slots__ = ("_operand", "_reader", "_told")

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._reader: list[TensorExpr] = []
        self._operand: list[Tensor] = []

    def tell(self, told: Told) -> int:
        """The number of a reason."""
        self._told.append(told)
        return _KINDS * (len(self._told) - 1)

    def access(self, e: TensorExpr, t: Tensor) -> int:
        """The number of the reason that ``e`` reads an axis of ``t``, whichever."""
        self._reader.append(e)
        self._operand.append(t)
        return _KINDS * (len(self._reader) - 1) + 1

    def why(self, number: int) -> Why:
        """The reason of a number."""
        rest, kind = divmod(number, _KINDS)
        if kind == 0:
            return self._told[rest]
        if kind == 1:
            return ("access", self._reader[rest], self._operand[rest], ANY, ())
        return ("congruence" if kind == 2 else "backward", rest >> _BITS, rest & _MASK)


def equal(because: Literal["congruence", "backward"], m: int, n: int) -> int:
    """The number of the reason that two expressions of a graph are equal."""
    return _KINDS * (m << _BITS | n) + (2 if because == "congruence" else 3)


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact that made one union.

    ``access``: operation ``expr`` reads axis ``axis`` of ``tensor`` at the coordinate of its own axis. ``inline``:
    ``tensor`` shares the loop ``axis`` with the operation that reads it. ``promotion``: the same for a loop whose
    extent comes from a consumer. ``coordinate``: ``expr`` reads ``tensor`` at the coordinate of its own loop ``axis``
    at every point, as the algebra proves. ``congruence`` / ``backward``: ``steps`` are two equal axis expressions whose
    inputs (outputs) were the same.
    """

    because: Because
    expr: TensorExpr | None = None
    tensor: Tensor | None = None
    axis: int = 0
    steps: tuple[DomainExpr, ...] = ()

    @property
    def line(self) -> SourceLine | None:
        """The user's line behind the fact."""
        if self.expr is not None:
            return self.expr.source_line
        return next((s.line for s in self.steps if s.line is not None), None)

    def __str__(self) -> str:
        name = self.tensor.name if self.tensor is not None else ""
        op = f"{self.expr.op} -> {self.expr.output.name}" if self.expr is not None else ""
        match self.because:
            case "access":
                text = f"{op} reads axis {self.axis} of {name} at the same coordinate"
            case "broadcast":
                text = f"{op} resolves the broadcast axis {self.axis} of {name}"
            case "resize":
                text = f"{self.steps[0]} changes only where the axis starts and ends"
            case "forward":
                text = f"{self.steps[0]} merges with a broadcast, so it keeps the other axis"
            case "inline":
                text = f"{name} is inlined: loop {self.axis} is shared with {op}"
            case "promotion":
                text = f"{name} is inlined: loop {self.axis} takes its extent from {op}"
            case "coordinate":
                text = f"{op} reads {name} at the coordinate of its own loop {self.axis}, by proof"
            case "size one":
                text = f"{self.steps[0]} changes nothing: the other axis has one element"
            case "rows":
                text = f"{op} has rows of {name}, as the other axis has"
            case "congruence":
                text = f"equal inputs of {self.steps[0]} and {self.steps[1]}"
            case "backward":
                text = f"equal outputs of {self.steps[0]} and {self.steps[1]}"
        return f"{text} ({self.line})" if self.line is not None else text


@dataclass(frozen=True, slots=True)
class Fact:
    """One step of an explanation: ``left`` and ``right`` are the same for ``reason``.

    ``premises`` are the pairs of keys whose sameness a congruence rests on; explain them in turn to go deeper.
    """

    left: object
    right: object
    reason: Reason
    text: str
    premises: tuple[tuple[object, object], ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Explanation(Printed):
    """A chain of facts from one key to another; falsy with ``parting`` where the two are not mapped.

    ``note`` is what the graph has to say beside that: how indices differ where extents are one.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.input("t", shape=(8,))
    >>> u = t + 1
    >>> why = ig.IdModel(f).exact.explain(t.logical[0], u.logical[0])
    >>> bool(why), len(why), why.facts[0].reason.because
    (True, 1, 'access')
    """

    mapped: bool
    facts: tuple[Fact, ...]
    parting: str = ""
    note: str = ""

    def __bool__(self) -> bool:
        return self.mapped

    def __len__(self) -> int:
        return len(self.facts)

    def __iter__(self) -> Iterator[Fact]:
        return iter(self.facts)

    def __str__(self) -> str:
        if not self.mapped:
            return self.parting
        chain = "\n".join(map(str, self.facts)) if self.facts else "the same axis"
        return f"{chain}\n{self.note}" if self.note else chain
