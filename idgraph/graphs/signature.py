"""Forms of domain expressions as small integers, so that congruence compares numbers and not extents.

Extents are numbered by proof: ``2*n`` and ``n + n`` have one number. Two expressions have one form exactly when they
have equal attributes and equal extents wherever their coordinates depend on them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, assert_never, cast

from idgraph.arith import ArithError, Expr, simplify
from idgraph.errors import IndexingError, short_repr, user_line
from idgraph.graphs.coordinate_rules import is_product, resized_axes, transparent
from idgraph.ir import (
    DomainExpr,
    IterDomain,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.op_builders import same_extent


class ExprSignature(NamedTuple):
    """The key by which two domain expressions are equal.

    ``forward``: equal numbers map inputs to outputs; ``backward``: outputs to inputs (a merge needs equal extents for
    that). ``loose``: equal attributes whatever the extents, as a broadcast is split like what it resolves to.
    ``parts``: of a merge or a divisible split, which are both ``whole = outer * n + inner`` with
    0 <= inner < n, the number of ``n``; -1 for others and for n = 0.
    """

    expr: DomainExpr
    forward: int
    backward: int
    loose: int
    parts: int


_STEPS = (1, 60, 720_719, 3**40, 3**250)  # of a symbol's values from its least one on; pieces of pieces need large ones


def sample_values(e: Expr) -> tuple[int, ...]:
    """Values at a few points of the symbols' ranges, the same ones for every expression of the same symbols.

    Empty where a symbol is bounded by another one, or where there is no value.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 1)
    >>> sample_values(n + n) == sample_values(2 * n), sample_values(n + 1) == sample_values(n)
    (True, False)
    """
    points: list[dict[str, int]] = [{} for _ in _STEPS]
    for place, s in enumerate(sorted(e.symbols, key=lambda s: s.name)):
        low, high, m, r = s.symbol_bounds
        if isinstance(low, Expr) or isinstance(high, Expr):
            return ()
        first = low if low is not None else 0 if high is None else high - m * _STEPS[-1] * (place + 1)
        first += (r - first) % m
        count = None if high is None else (high - first) // m + 1
        for point, step in zip(points, _STEPS, strict=True):
            k = step * (place + 1) + place
            point[s.name] = first + m * (k if count is None else k % max(count, 1))
    try:
        return tuple([int(e.evaluate(point)) for point in points])
    except ArithError:
        return ()


class SignatureTable:
    """Numbers forms and extents; shared by all graphs of a fusion.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> n = f.symbol("n", min=1)
    >>> forms = SignatureTable()
    >>> forms.extent(2 * n) == forms.extent(n + n), forms.extent(n) == forms.extent(n + n)
    (True, False)
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._extents: dict[Expr, int] = {}
        self._symbolic: dict[tuple[frozenset[str], tuple[int, ...]], list[tuple[Expr, int]]] = {}

    def extent(self, e: Expr) -> int:
        """A number that provably equal extents share."""
        found = self._extents.get(e)
        if found is None:
            found = self._extents[e] = self._new_extent(simplify(e))
        return found

    def _new_extent(self, e: Expr) -> int:
        known = self._extents.get(e)
        if known is not None:
            return known
        number = len(self._extents)
        if not e.is_const:  # only those with equal values where both are looked at can be equal
            alike = self._symbolic.setdefault((e.names, sample_values(e)), [])
            number = next((n for other, n in alike if same_extent(other, e)), number)
            alike.append((e, number))
        self._extents[e] = number
        return number

    def _number(self, *parts: object) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

    def of(self, x: DomainExpr) -> ExprSignature:
        """The form of a domain expression."""
        extent, number = self.extent, self._number
        match x:
            case Split():
                inner = extent(x.inner.extent)
                loose = number("split", extent(x.factor), x.inner_split)
                same = number(loose, extent(x.source.extent), inner)
                divides = x.inner.extent != 0 and is_product(x.outer.extent, x.inner.extent, x.source.extent)
                if divides:  # whether the size of the pieces was given or their number
                    same = number("pieces", extent(x.source.extent), inner)
                return ExprSignature(x, same, same, loose, inner if divides else -1)
            case Merge():
                inner = extent(x.inner.extent)
                back = number("merge back", extent(x.outer.extent), inner)
                same = number("merge")
                return ExprSignature(x, same, back, same, inner if x.inner.extent != 0 else -1)
            case Resize():
                loose = number("resize", extent(x.left), extent(x.right))
                same = number(loose, extent(x.source.extent))
            case Stride():
                loose = number("stride", extent(x.start), extent(x.step), extent(x.out.extent))
                same = number(loose, extent(x.source.extent))
            case Roll():
                loose = number("roll", extent(x.shift))
                same = number(loose, extent(x.source.extent))
            case Swizzle():
                loose = number("swizzle", x.kind)
                same = number(loose, extent(x.y.extent))
            case RowPartition():
                loose = same = number(*x.attributes)
            case _:
                assert_never(x)
        return ExprSignature(x, same, same, loose, -1)


def own_exprs(tensor: Tensor) -> tuple[DomainExpr, ...]:
    """Domain expressions of a tensor: root to logical, then its schedule."""
    return (*tensor.domain.exprs, *tensor.domain.loop_exprs)


def own_domains(tensor: Tensor) -> tuple[IterDomain, ...]:
    """All axes of a tensor, each once: root, logical, what lies between, loop."""
    domain = tensor.domain
    if domain.root is domain.logical is domain.loop and domain.allocation == domain.logical:
        return domain.root
    between = (d for e in own_exprs(tensor) for d in (*e.inputs, *e.outputs))
    return tuple(dict.fromkeys((*domain.root, *domain.logical, *between, *domain.loop, *domain.allocation)))


# A domain expression between places of a plan: its form, the places it reads, the places it makes.
PlannedExpr = tuple[ExprSignature, tuple[int, ...], tuple[int, ...]]
# Places of two axes with one coordinate as long as a third (None: nothing) stays at 0, and the expression that says so.
Transparent = tuple[DomainExpr, int, int, IterDomain | None]


_FEW = 12  # axes or operands that are looked through one by one


@dataclass(frozen=True, slots=True, eq=False)
class TensorTemplate:
    """The entries of every use of one tensor in a graph: its axes by place, expressions and size-one pairs over places.

    ``axes`` are the places of ``tensor.axes``. ``loose`` are the axes that loops may run past.
    """

    domains: tuple[IterDomain, ...]
    axes: Sequence[int]
    exprs: tuple[PlannedExpr, ...] = ()
    transparent: tuple[Transparent, ...] = ()
    loose: frozenset[IterDomain] = frozenset()
    table: dict[IterDomain, int] | None = None  # places of many axes

    def find(self, d: IterDomain, near: int = 0) -> int | None:
        """The place of an axis, looked for at place ``near`` first; None where it has none."""
        domains = self.domains
        if near < len(domains) and domains[near] is d:
            return near
        if self.table is not None:
            return self.table.get(d)
        return next((p for p, x in enumerate(domains) if x is d), None)

    def place(self, d: IterDomain, near: int = 0) -> int:
        """The same of an axis that has a place."""
        found = self.find(d, near)
        if found is None:
            raise KeyError(d)
        return found


class TensorTemplates:
    """Plans of the tensors of a fusion as it is scheduled now, made when first asked for."""

    def __init__(self) -> None:
        self.forms = SignatureTable()
        self._own: dict[Tensor, TensorTemplate] = {}

    def of(self, t: Tensor) -> TensorTemplate:
        """The plan of a single tensor."""
        found = self._own.get(t)
        if found is None:
            found = self._own[t] = self.plan(t, own_domains(t), own_exprs(t))
        return found

    def plan(self, t: Tensor, domains: tuple[IterDomain, ...], exprs: tuple[DomainExpr, ...]) -> TensorTemplate:
        """A plan of these axes and expressions of a tensor."""
        logical = t.domain.logical
        if not exprs and domains is logical and all(d.kind != "reduction" for d in domains):
            return TensorTemplate(domains, range(len(domains)))
        place = dict(zip(domains, range(len(domains)), strict=True))
        table = place if len(place) > _FEW else None
        axes = tuple([place[d] for d in logical if d.kind != "reduction"])
        if not exprs:
            return TensorTemplate(domains, axes, table=table)
        loose = resized_axes(exprs)
        pairs = tuple(
            (x, place[a], place[b], by) for x in exprs for a, b, by in transparent(x) if by is None or by not in loose
        )
        planned = tuple(
            (self.forms.of(x), tuple(place[d] for d in x.inputs), tuple(place[d] for d in x.outputs)) for x in exprs
        )
        return TensorTemplate(domains, axes, planned, pairs, frozenset(loose), table)


K = TypeVar("K", bound=Hashable)


class Keys(Protocol[K]):
    """A numbering of keys from 0."""

    def __len__(self) -> int: ...

    def number(self, key: K) -> int | None:
        """The number of a key, None where it has none."""
        ...

    def at(self, number: int) -> K:
        """The key of a number."""
        ...


class KeyList(Generic[K]):
    """Keys numbered in the order in which they entered; the way back is made when a number is first asked for."""

    __slots__ = ("_listed", "_numbers")

    def __init__(self) -> None:
        self._listed: list[K] = []
        self._numbers: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._listed)

    def enter(self, keys: Sequence[K]) -> int:
        """Number keys known to be new; returns the first of their consecutive numbers."""
        first = len(self._listed)
        self._listed.extend(keys)
        return first

    def number(self, key: K) -> int | None:
        """The number of a key, None where it has none."""
        known, count = len(self._numbers), len(self._listed)
        if known < count:
            self._numbers.update(zip(self._listed[known:], range(known, count), strict=True))
        return self._numbers.get(key)

    def at(self, number: int) -> K:
        """The key of a number."""
        return self._listed[number]


def axis_of(key: object) -> IterDomain:
    """The axis of a key: the key itself, or the first part of an index-graph key."""
    if isinstance(key, IterDomain):
        return key
    if isinstance(key, tuple):
        first: object = key[0]  # pyright: ignore[reportUnknownVariableType]
        if isinstance(first, IterDomain):
            return first
    raise TypeError(f"{key!r} is not a key of a domain graph")


def key_text(key: object) -> str:
    """``t1.I3``, or ``(t1.I3, slice -> t1)`` for a key of the index graph."""
    if isinstance(key, tuple):
        parts = cast("tuple[object, ...]", key)
        return f"({', '.join(map(key_text, parts))})"
    label = getattr(key, "label", None)
    if isinstance(label, str):
        return label
    op, output = getattr(key, "op", None), getattr(getattr(key, "output", None), "name", None)
    return f"{op} -> {output}" if output is not None else short_repr(key)


Key = tuple[IterDomain, TensorExpr] | tuple[IterDomain, TensorExpr, int]


def is_use(key: object) -> bool:
    """Whether it is a use of an axis by an operation."""
    parts = list(cast("tuple[object, ...]", key)) if isinstance(key, tuple) else []
    return len(parts) in (2, 3) and isinstance(parts[0], IterDomain) and isinstance(parts[1], TensorExpr)


def check_use(key: object) -> None:
    """Raise `IndexingError` for what is not one."""
    if is_use(key):
        return
    raise IndexingError(
        f"{short_repr(key)} is not a use of an axis by an operation",
        where=user_line(),
        hint="name both: the axis and the operation that touches it, such as (t.logical[0], u.definition); "
        "the definition of an input is None",
    )


def canonical_operand(e: TensorExpr, k: int) -> int:
    """The first operand that reads the same tensor in the same way as operand ``k``."""
    t, row = e.inputs[k], e.reads[k]
    for j in range(e.inputs.index(t), k):
        if e.inputs[j] is t and e.reads[j] == row:
            return j
    return k


def key_of(e: TensorExpr, operand: int | None) -> Callable[[IterDomain], Key]:
    """Keys of an operand's axes under ``e`` (None: of its output's)."""
    if operand is None:
        return lambda d: (d, e)
    k = slot_of(e, canonical_operand(e, operand))
    if k is not None:
        return lambda d: (d, e, k)
    return lambda d: (d, e)


def slot_of(e: TensorExpr, k: int) -> int | None:
    """The third part of the keys of canonical operand ``k``; None where no operand before it reads its tensor."""
    return k if e.inputs.index(e.inputs[k]) < k else None


def distinct_operands(e: TensorExpr) -> list[int]:
    """Operand numbers, one for each different way of reading a tensor."""
    return [k for k in range(len(e.inputs)) if canonical_operand(e, k) == k]


class Use(NamedTuple):
    """One use of a tensor by an operation: its axes have the numbers from ``first``, in the order of the plan.

    ``operand`` is None for the output; ``slot`` the third part of the keys, None where they have two.
    """

    expr: TensorExpr
    operand: int | None
    slot: int | None
    tensor: Tensor
    plan: TensorTemplate
    first: int

    def key(self, d: IterDomain) -> Key:
        """The key of one of its axes."""
        return (d, self.expr) if self.slot is None else (d, self.expr, self.slot)


class UseKeys:
    """Keys of all uses, numbered; uses and keys are objects made when somebody asks, a model has millions."""

    def __init__(self) -> None:
        self._of: dict[TensorExpr, int] = {}  # the first use of each operation; the others follow it
        # By use; an operand or slot of -1 is None.
        self._expr: list[TensorExpr] = []
        self._operand = array("q")
        self._slot = array("q")
        self._plan: list[TensorTemplate] = []
        self._first = array("q")
        self._count = 0
        self._many: dict[TensorExpr, dict[tuple[IterDomain, int], int]] = {}

    def __len__(self) -> int:
        return self._count

    def enter(self, e: TensorExpr, plan: Callable[[Tensor], TensorTemplate]) -> None:
        """Number the axes of all uses that an operation makes: of its output, then of its operands."""
        self._of[e] = len(self._expr)
        self._add(e, -1, -1, plan(e.output))
        inputs = e.inputs
        for k in range(len(inputs)) if len(inputs) < 2 else distinct_operands(e):
            slot = slot_of(e, k) if k else None
            self._add(e, k, -1 if slot is None else slot, plan(inputs[k]))

    def _add(self, e: TensorExpr, operand: int, slot: int, plan: TensorTemplate) -> None:
        self._expr.append(e)
        self._operand.append(operand)
        self._slot.append(slot)
        self._plan.append(plan)
        self._first.append(self._count)
        self._count += len(plan.domains)

    def of(self, e: TensorExpr) -> list[Use]:
        """The uses that an operation makes, its output's in front."""
        found, n = list[Use](), self._of[e]
        while n < len(self._expr) and self._expr[n] is e:
            found.append(self._use(n))
            n += 1
        return found

    def _use(self, n: int) -> Use:
        e, k, slot = self._expr[n], self._operand[n], self._slot[n]
        tensor = e.output if k < 0 else e.inputs[k]
        return Use(e, None if k < 0 else k, None if slot < 0 else slot, tensor, self._plan[n], self._first[n])

    def number(self, key: Key) -> int | None:
        """The number of a key, None where the operation does not use the axis."""
        e, slot = key[1], key[2] if len(key) == 3 else -1
        if len(e.inputs) > _FEW:
            return self._numbers(e).get((key[0], slot))
        n = self._of.get(e, len(self._expr))
        while n < len(self._expr) and self._expr[n] is e:
            if self._slot[n] == slot:
                place = self._plan[n].find(key[0])
                if place is not None:
                    return self._first[n] + place
            n += 1
        return None

    def _numbers(self, e: TensorExpr) -> dict[tuple[IterDomain, int], int]:
        """The numbers of all keys of an operation of many operands; the first use of two that have one key."""
        found = self._many.get(e)
        if found is None:
            found = dict[tuple[IterDomain, int], int]()
            n = self._of.get(e, len(self._expr))
            while n < len(self._expr) and self._expr[n] is e:
                for place, d in enumerate(self._plan[n].domains):
                    found.setdefault((d, self._slot[n]), self._first[n] + place)
                n += 1
            self._many[e] = found
        return found

    def at(self, number: int) -> Key:
        """The key of a number."""
        n = bisect_right(self._first, number) - 1
        d, e, slot = self._plan[n].domains[number - self._first[n]], self._expr[n], self._slot[n]
        return (d, e) if slot < 0 else (d, e, slot)


# A domain expression under one operation: its keys, and whether it belongs to the output (not to an operand).
LocalExpr = tuple[DomainExpr, tuple[Key, ...], tuple[Key, ...], bool]


class LocalExprs:
    """For each operation the domain expressions of its tensors, as it uses them."""

    def __init__(self, keys: UseKeys) -> None:
        self._keys = keys

    def __getitem__(self, e: TensorExpr) -> list[LocalExpr]:
        return [
            (form.expr, tuple(map(use.key, form.expr.inputs)), tuple(map(use.key, form.expr.outputs)), not n)
            for n, use in enumerate(self._keys.of(e))
            for form, _, _ in use.plan.exprs
        ]
