"""Why two things are the same: one reason for each union, chained into explanations.

Why two keys are not the same: the shortest way between their groups, and the first point on it where they part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias, cast

from idgraph.display import Printed
from idgraph.errors import SourceLine
from idgraph.graphs.signature import key_of, key_text
from idgraph.ir import SCATTERS, DomainExpr, Fixed, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr, tensor_of

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
    """Reasons of unions as integers below 2^62. What was entered stays, so graphs that start from one share it."""

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

    __repr__ = __str__


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

    __repr__ = __str__


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

    __repr__ = __str__


_KEYS = 100  # keys of a group that are looked at
_GROUPS = 1000  # groups that are visited

Crossing = tuple[Hashable, str]  # a key on the other side, and why the two are not one


class LabeledEdge(NamedTuple):
    """A step from one group to another by number, in words."""

    to: int
    text: str


def first_divergence(
    mine: int, theirs: int, steps: Callable[[int], Iterator[LabeledEdge]], about: Callable[[int], str]
) -> str | None:
    """The first step of a shortest way between two groups, with how many follow; None where nothing leads there.

    ``about`` names a group.
    """
    first: dict[int, tuple[str, int]] = {mine: ("", 0)}
    queue = deque([mine])
    while queue and len(first) < _GROUPS:
        at = queue.popleft()
        told, length = first[at]
        for to, text in steps(at):
            if to not in first:
                first[to] = told or text, length + 1
                queue.append(to)
        if theirs in first:
            told, length = first[theirs]
            more = f"; {length - 1} more step{'s' if length > 2 else ''} to {about(theirs)}"
            return told + (more if length > 1 else "")
    return None


def unmapped_neighbors(graph: str, keys: Iterable[object]) -> Iterator[Crossing]:
    """From the keys of a group across what maps nothing, in the order of the keys."""
    for key in islice(keys, _KEYS):
        match _axis_and_operation(key):
            case (IterDomain() as d, None):
                yield from _loops(d) if graph == "loop" else _reads(d, None, _domain_key)
            case (IterDomain() as d, TensorExpr() as e):
                yield from _reads(d, e, _index_key)
                yield from _nests(d, e)
            case _:
                pass


def distinct_axes_of_one_tensor(mine: Iterable[object], theirs: Iterable[object]) -> str | None:
    """Where the two sides hold different axes of one tensor (under one operation), which; else None."""
    listed = [
        (d, e, t)
        for d, e in map(_axis_and_operation, islice(mine, _KEYS))
        if d is not None and (t := tensor_of(d)) is not None
    ]
    for other, under in map(_axis_and_operation, islice(theirs, _KEYS)):
        for d, e, t in listed:
            if other is not None and other is not d and e is under and d in t.axes and other in t.axes:
                return f"{key_text(d)} and {key_text(other)} are two axes of {t.name}"
    return None


def place_of(e: TensorExpr) -> str:
    """``slice -> t1 (file:line: code)``."""
    return f"{e.op} -> {e.output.name}" + (f" ({e.source_line})" if e.source_line else "")


def _axis_and_operation(key: object) -> tuple[IterDomain | None, object]:
    """The axis of a key and the operation it stands under, if any."""
    if isinstance(key, IterDomain):
        return key, None
    parts = cast("tuple[object, ...]", key) if isinstance(key, tuple) else ()
    return (parts[0], parts[1]) if len(parts) > 1 and isinstance(parts[0], IterDomain) else (None, None)


def _domain_key(d: IterDomain, _: TensorExpr, __: int | None) -> Hashable:
    return d


def _index_key(d: IterDomain, e: TensorExpr, operand: int | None) -> Hashable:
    return key_of(e, operand)(d)


def _reads(
    d: IterDomain, under: TensorExpr | None, key: Callable[[IterDomain, TensorExpr, int | None], Hashable]
) -> Iterator[Crossing]:
    """An axis that an operation reads, but not at the coordinate of an axis of its own, with those axes; both ways."""
    t = tensor_of(d)
    if t is None:
        return
    for e in t.uses if under is None else (under,):
        for k in e.operands_of(t) if d in t.axes else ():
            p = t.axes.index(d)
            yield from ((key(to, e, None), text) for to, text in _unmapped(e, k, p))
    e = t.definition
    if e is None or under not in (None, e):
        return
    for k, operand in enumerate(e.inputs):
        for p, axis in enumerate(operand.axes):
            yield from ((key(axis, e, k), text) for to, text in _unmapped(e, k, p) if to is d)
    if e.op in SCATTERS:
        yield from ((key(to, e, None), text) for to, text in _scatter_crossings(d, e))


def _scatter_crossings(d: IterDomain, e: TensorExpr) -> Iterator[tuple[IterDomain, str]]:
    """Between the axes that a scatter writes at loaded values and those of its loops over the index."""
    out = e.output
    loaded = [r.operand for r in e.reads[0] if isinstance(r, LoadedCoordinate)]
    names = ", ".join(dict.fromkeys(e.inputs[k].name for k in loaded))
    written = [x for x in out.logical if x.kind == "gather_scatter"]
    looped = [x for x in out.root if x not in out.logical]
    for mine, theirs in ((written, looped), (looped, written)):
        for to in theirs if d in mine else ():
            at = d if mine is written else to
            yield to, f"{place_of(e)} writes {key_text(at)} at values loaded from {names}, at no axis of its loops"


def _unmapped(e: TensorExpr, k: int, p: int) -> Iterator[tuple[IterDomain, str]]:
    """Axes of the output that axis ``p`` of operand ``k`` goes with without being the same."""
    axis, row = e.inputs[k].axes[p], e.reads[k]
    match row[p]:
        case Fixed(resolves=IterDomain() as to):
            yield to, f"{place_of(e)} reads {key_text(axis)} at 0 along {key_text(to)}: it has one element"
        case Mapped(to) if axis.is_broadcast != to.is_broadcast:
            yield to, f"{place_of(e)} reads {key_text(axis)} at 0 along {key_text(to)}: it has one element"
        case LoadedCoordinate(operand):
            index = e.inputs[operand].name
            same = {read.domain for read in row if isinstance(read, Mapped)}
            text = f"{place_of(e)} reads {key_text(axis)} at values loaded from {index}, at no axis of its own"
            yield from ((to, text) for to in e.output.logical if to not in same)
        case _:
            pass


def _nests(d: IterDomain, e: TensorExpr) -> Iterator[Crossing]:
    """The same axis under the operation that makes its tensor and under those that read it, with what they share."""
    t = tensor_of(d)
    if t is None:
        return
    made = t.definition
    for other in (*(() if made is None else (made,)), *t.uses):
        if other is e:
            continue
        for k in (None,) if other is made else other.operands_of(t):
            yield _index_key(d, other, k), _nest_text(d, t, e, other)


def _nest_text(d: IterDomain, t: Tensor, e: TensorExpr, other: TensorExpr) -> str:
    maker, reader = (e, other) if t.definition is e else (other, e)
    if t.definition is not maker:
        return f"{place_of(e)} and {place_of(other)} read {t.name}, each in loops of its own"
    if not t.inline_position:
        return f"{t.name} is not inlined, so {place_of(maker)} and {place_of(reader)} share no loop"
    shares = f"{t.name} is inlined at {t.inline_position}"
    return f"{shares}: {key_text(d)} depends on a loop that {place_of(reader)} does not share with it"


def _loops(d: IterDomain) -> Iterator[Crossing]:
    """A loop and the loops at the same position of the tensors that are read by, or read, its tensor."""
    t = tensor_of(d)
    if t is None or d not in t.loop:
        return
    j = t.loop.index(d)
    pairs = [(t, e.output, e.output) for e in t.uses]
    pairs += [(p, t, p) for p in (t.definition.inputs if t.definition is not None else ())]
    for producer, consumer, other in pairs:
        if j < len(other.loop):
            at = producer.inline_position
            said = (
                f"is inlined at {at}: only loops left of {at} are shared" if at else "is not inlined: no loop is shared"
            )
            yield other.loop[j], f"{producer.name} {said} with {consumer.name}" + _line_suffix_of(consumer)


def _line_suffix_of(t: Tensor) -> str:
    return f" ({t.source_line})" if t.source_line else ""
