"""Memory formats by mapping: the order of a stored tensor's axes follows the input that most of its axes come from.

The question is NVIDIA/Fuser #1756: a pointwise fusion of a channels-last tensor that stores its result in logical order
turns a copy into a transposition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from idgraph.arith import Expr, as_expr, simplify
from idgraph.display import Printed, Sheet
from idgraph.errors import OperationError, arguments, short_repr, user_line
from idgraph.index.allocation import strides
from idgraph.index.bank_conflicts import warp_bytes
from idgraph.ir import Fusion, IterDomain, Tensor
from idgraph.ir.clone import rewriting
from idgraph.ir.device import current_device
from idgraph.ir.dtypes import item_size
from idgraph.ir.view_builders import int_if_constant
from idgraph.layout.stride_order import Order, eager_strides, memory_order, offered

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

    __repr__ = __str__


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
            raise NoDecision(
                f"{named} has no memory format here",
                where=user_line(),
                hint="outputs have one, and tensors between kernels: [t.name for t in decisions]",
            )
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

    __repr__ = __str__


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


ASSUMED = 1024  # elements of an axis whose size is a symbol, where costs are compared


@arguments(OperationError, first=True)
def infer(fusion: Fusion, *, like: Literal["reference", "torch"] = "reference") -> Decisions:
    """The memory format of each output and of each tensor that is stored between kernels.

    ``like="reference"``: the order of the input with the most axes mapped to the tensor that have more than one
    element. Among inputs that disagree, the order that moves fewer bytes; a tie: the logical order. ``like="torch"``:
    the strides that torch's eager mode gives on the CPU. The memory of inputs, and a `Tensor.set_allocation` of the
    user's, are demands and are returned as is. Nothing is changed: see `apply`. Raises `OperationError` for what is
    not a fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(8, 256, 32, 32), strides=(262144, 1, 8192, 256))  # channels last
    >>> y = f.output(ig.relu(ig.reshape(x, 8, 256, 1024)))
    >>> d = ig.layout.infer(f)
    >>> d[y].order, d[y].strides, d[y].reference.name
    ((0, 2, 1), (262144, 1, 256), 'x')
    """
    if like not in ("reference", "torch"):
        raise OperationError(f"infer: like={like!r} is not known", hint='like="reference" or like="torch"')
    eager = eager_strides(fusion) if like == "torch" else {}
    formats = Formats()
    outputs = set(fusion.outputs)
    made: dict[Tensor, LayoutDecision] = {}
    for t in fusion.tensors:
        if t.definition is None or not (t in outputs or _is_stored(t)):
            continue
        if like != "torch":
            made[t] = formats.decide(t)
        else:
            made[t] = _told_by_torch(_demanded_layout(t), eager[t]) if demanded(t) else _as_torch(t, eager[t])
    return Decisions(made)


@dataclass(slots=True)
class Formats:
    """Orders as they reach tensors, each asked for once; ``ended`` are the reasons why none reached a tensor."""

    known: dict[Tensor, tuple[Order, ...]] = field(default_factory=dict[Tensor, "tuple[Order, ...]"])
    ended: dict[Tensor, tuple[str, ...]] = field(default_factory=dict[Tensor, "tuple[str, ...]"])

    def decide(self, t: Tensor) -> LayoutDecision:
        """The memory format of one tensor, as `infer` has it."""
        if demanded(t):
            return _demanded_layout(t)
        self._reach(t)
        return _decide_layout(t, self.known[t], self.ended.get(t, ()))

    def _reach(self, t: Tensor) -> None:
        """The formats offered to ``t``, those of its operands first."""
        stack = [t]
        while stack:
            u = stack[-1]
            open_ = [] if u.definition is None else [x for x in u.definition.inputs if x not in self.known]
            if u in self.known or open_:
                stack += open_
                if u in self.known:
                    stack.pop()
                continue
            self.known[u], lost = offered(u, self.known)
            if not self.known[u] and u.definition is not None:
                before = (reason for x in u.definition.inputs for reason in self.ended.get(x, ()))
                self.ended[u] = tuple(dict.fromkeys((*before, *lost)))
            stack.pop()


def demanded(t: Tensor) -> bool:
    """Whether the user laid the tensor out: a step that an automatic schedule took is not one of the user's."""
    own = {n.at for n in t.fusion.formats if n.tensor == t.name}
    return any(step.name == "set_allocation" and step.at not in own for step in t.log)


def _is_stored(t: Tensor) -> bool:
    """Whether others read it from memory: it is not inlined, or asked for in memory."""
    return t.memory == "global" or (t.memory == "auto" and t.inline_position == 0 and bool(t.uses))


def _demanded_layout(t: Tensor) -> LayoutDecision:
    """The memory that the user asked for."""
    by_axis = dict(zip(t.allocation, strides(t), strict=True))
    inside = set(t.allocation) <= set(t.axes)
    order = _axis_numbers(t, memory_order(t))
    told = tuple(int_if_constant(by_axis[d]) for d in t.axes) if inside else dense_strides(t, order)
    reasons = tuple(f"{_axis_text(t, a)}: set_allocation" for a in order)
    return LayoutDecision(t, order, told, None, "demand", reasons)


def _told_by_torch(d: LayoutDecision, given: tuple[int, ...]) -> LayoutDecision:
    """A demand with the strides of eager mode where both are the same memory: axes of one element may have any."""
    same = all(n == 1 or a == b for n, a, b in zip(d.tensor.shape, d.strides, given, strict=True))
    return replace(d, strides=given) if same else d


def _as_torch(t: Tensor, given: tuple[int | Expr, ...]) -> LayoutDecision:
    """The strides that eager mode gives."""

    def size(axis: int) -> int:
        stride = given[axis]
        return stride if isinstance(stride, int) else ASSUMED

    order = tuple(sorted(range(len(given)), key=lambda a: (-size(a), a)))
    return LayoutDecision(
        t, order, given, None, "hint", tuple(f"{_axis_text(t, a)}: as torch's eager mode" for a in order)
    )


def _decide_layout(t: Tensor, orders: Sequence[Order], lost: tuple[str, ...]) -> LayoutDecision:
    most = max((len(o.axes) for o in orders), default=0)
    best = [o for o in orders if len(o.axes) == most]
    logical = tuple(range(len(t.axes)))
    if not best:
        why = lost or ("no tensor that it is computed from has a say",)
        plain = tuple(f"{_axis_text(t, a)}: logical order" for a in logical)
        return LayoutDecision(t, logical, dense_strides(t, logical), None, "none", plain, why)
    whole = [(o, *_completed(t, o, orders)) for o in best]
    different = list(dict.fromkeys(axes for _, axes, _ in whole))
    costs: tuple[Candidate, ...] = ()
    chosen = whole[0]
    if len(different) > 1:
        costs = tuple(Candidate(o.source, _axis_numbers(t, axes), moved_bytes(t, axes, orders)) for o, axes, _ in whole)
        least = min(c.moved_bytes for c in costs)
        cheap = [w for w, c in zip(whole, costs, strict=True) if c.moved_bytes == least]
        if len({axes for _, axes, _ in cheap}) > 1:
            plain = tuple(f"{_axis_text(t, a)}: logical order" for a in logical)
            why = ("orders that disagree move the same bytes: a tie keeps the logical order",)
            return LayoutDecision(t, logical, dense_strides(t, logical), None, "none", plain, why, costs)
        chosen = cheap[0]
    reference, axes, reasons = chosen
    order = _axis_numbers(t, axes)
    ones = [f"{_axis_text(t, a)}: one element, no say, outermost" for a in order[: len(order) - len(axes)]]
    told = (*ones, *(f"{_axis_text(t, t.axes.index(d))}: {why}" for d, why in zip(axes, reasons, strict=True)))
    return LayoutDecision(t, order, dense_strides(t, order), reference.source, "hint", told, (), costs)


def _completed(t: Tensor, order: Order, others: Sequence[Order]) -> tuple[tuple[IterDomain, ...], tuple[str, ...]]:
    """All axes of more than one element: those of the order, and between them what other tensors fill."""
    axes = list(order.axes)
    why = {d: f"follows {name}" for d, name in zip(order.axes, order.names, strict=True)}
    for other in others:
        for k, d in enumerate(other.axes):
            if d in why:
                continue
            before = next((x for x in reversed(other.axes[:k]) if x in why), None)
            behind = next((x for x in other.axes[k + 1 :] if x in why), None)
            if before is None and behind is None:
                continue
            axes.insert(axes.index(before) + 1 if before is not None else axes.index(behind), d)  # pyright: ignore[reportArgumentType]
            why[d] = f"placed by {other.names[k]}"
    for at, d in enumerate(t.axes):  # axes that no neighbour places stand as in the logical order
        if d in why or d.is_broadcast:
            continue
        before = next((x for x in reversed(t.axes[:at]) if x in why), None)
        axes.insert(axes.index(before) + 1 if before is not None else 0, d)
        why[d] = "no tensor determines its position: behind its logical neighbour"
    return tuple(axes), tuple(why[d] for d in axes)


def moved_bytes(t: Tensor, axes: Sequence[IterDomain], orders: Sequence[Order]) -> int:
    """Bytes of the sectors that warps ask for whose threads walk through the innermost axes, as `ig.cost` counts them:
    of ``t``, and of what offers orders."""
    total, inside = bytes_of(t), _warp_axes(axes)
    for o in orders:
        size = bytes_of(o.source)
        walk = _walk(o, inside)
        if any(step for _, step in walk):  # else neighbours read one place
            asked, needed = warp_bytes(walk, item_size(o.source.dtype))
            size = size * asked // needed
        total += size
    return total


def _warp_axes(axes: Sequence[IterDomain]) -> list[IterDomain]:
    """The axes that the threads of one warp are apart on, the innermost first."""
    found: list[IterDomain] = []
    warp, lanes = current_device().warp, 1
    for d in reversed(axes):
        if lanes >= warp:
            break
        found.append(d)
        lanes *= _elements(d)
    return found


def _walk(o: Order, inside: Sequence[IterDomain]) -> tuple[tuple[int, int], ...]:
    """(extent, elements of the source between neighbours) of each axis; one that has no elements counts as one."""
    smallest = _smallest_stride(o.source)
    step = smallest if isinstance(smallest, int) else int(smallest) if smallest.is_const else ASSUMED
    steps: dict[IterDomain, int] = {}
    for d in reversed(o.axes):
        steps[d] = step
        step *= _elements(d)
    return tuple((max(1, _elements(d)), steps.get(d, 0)) for d in inside)


def _smallest_stride(source: Tensor) -> Expr | int:
    """The smallest stride of a source in elements."""
    order = memory_order(source)
    by_axis = dict(zip(source.allocation, strides(source), strict=True))
    return by_axis.get(order[-1], 1) if order else 1


def _elements(d: IterDomain) -> int:
    """Elements of an axis; where the size is a symbol, `ASSUMED`."""
    return int(d.extent) if d.extent.is_const else ASSUMED


def bytes_of(t: Tensor) -> int:
    """Bytes of a tensor; an axis whose size is a symbol counts as `ASSUMED` elements."""
    count = 1
    for d in t.axes:
        count *= _elements(d)
    return count * item_size(t.dtype)


def _axis_numbers(t: Tensor, axes: Sequence[IterDomain]) -> tuple[int, ...]:
    """Axis numbers, those of one element in front."""
    chosen = [t.axes.index(d) for d in axes]
    return (*(a for a in range(len(t.axes)) if a not in chosen), *chosen)


def _axis_text(t: Tensor, axis: int) -> str:
    return f"axis {axis} ({t.axes[axis].extent} elements)"


@arguments(OperationError, keep=rewriting)
def apply(fusion: Fusion, decisions: Decisions) -> Fusion:
    """Lay each decided tensor out as decided, where its layout differs; demands stay. Returns the fusion.

    From then on the layout is a demand. Raises `OperationError` for decisions of another fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("x", shape=(2, 3), strides=(1, 2)) * 2.0)
    >>> ig.layout.apply(f, ig.layout.infer(f))["t1"].allocation
    (I3[3], I2[2])
    """
    strange = next((t.name for t in decisions if t not in fusion), None)
    if strange is not None:
        raise OperationError(f"layout.apply: {strange} is not a tensor of fusion {fusion.name}")
    for t, d in decisions.items():
        wanted = tuple(t.axes[a] for a in d.order)
        if d.kind == "hint" and wanted != t.allocation:
            t.set_allocation(wanted)
    return fusion
