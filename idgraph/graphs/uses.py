"""Keys of the index graph: an axis as one operation uses it, numbered use by use."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from idgraph.graphs.forms import Plan
from idgraph.ir import DomainExpr, IterDomain, Tensor, TensorExpr

Key = tuple[IterDomain, TensorExpr] | tuple[IterDomain, TensorExpr, int]


def canonical_operand(e: TensorExpr, k: int) -> int:
    """The first operand that reads the same tensor in the same way as operand ``k``."""
    t, row = e.inputs[k], e.reads[k]
    for j in range(k):
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
    t = e.inputs[k]
    return k if any(e.inputs[j] is t for j in range(k)) else None


def distinct_operands(e: TensorExpr) -> list[int]:
    """Operand numbers, one for each different way of reading a tensor."""
    return [k for k in range(len(e.inputs)) if canonical_operand(e, k) == k]


class Use(NamedTuple):  # a tuple, because a model makes hundreds of thousands
    """One use of a tensor by an operation: its axes have the numbers from ``first``, in the order of the plan.

    ``operand`` is None for the output; ``slot`` the third part of the keys, None where they have two.
    """

    expr: TensorExpr
    operand: int | None
    slot: int | None
    tensor: Tensor
    plan: Plan
    first: int

    def key(self, d: IterDomain) -> Key:
        """The key of one of its axes."""
        return (d, self.expr) if self.slot is None else (d, self.expr, self.slot)


class UseKeys:
    """Keys of all uses; the keys themselves are made when somebody asks, a model has millions."""

    def __init__(self) -> None:
        self.of: dict[TensorExpr, list[Use]] = {}
        self._uses: list[Use] = []
        self._firsts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, e: TensorExpr, operand: int | None, t: Tensor, plan: Plan) -> None:
        """Number the axes of one more use."""
        slot = None if operand is None else slot_of(e, operand)
        use = Use(e, operand, slot, t, plan, self._count)
        self.of.setdefault(e, []).append(use)
        self._uses.append(use)
        self._firsts.append(self._count)
        self._count += len(plan.domains)

    def number(self, key: Key) -> int | None:
        """The number of a key, None where the operation does not use the axis."""
        slot = key[2] if len(key) == 3 else None
        for use in self.of.get(key[1], ()):
            place = use.plan.place.get(key[0])
            if place is not None and use.slot == slot:
                return use.first + place
        return None

    def at(self, number: int) -> Key:
        """The key of a number."""
        use = self._uses[bisect_right(self._firsts, number) - 1]
        return use.key(use.plan.domains[number - use.first])

    def copy(self) -> UseKeys:
        """Itself."""
        return self  # complete before the graph starts to grow


# A domain expression under one operation: its keys, and whether it belongs to the output (not to an operand).
LocalExpr = tuple[DomainExpr, tuple[Key, ...], tuple[Key, ...], bool]


class LocalExprs:
    """For each operation the domain expressions of its tensors, as it uses them."""

    def __init__(self, keys: UseKeys) -> None:
        self._keys = keys

    def __getitem__(self, e: TensorExpr) -> list[LocalExpr]:
        return [
            (form.expr, tuple(map(use.key, form.expr.inputs)), tuple(map(use.key, form.expr.outputs)), not n)
            for n, use in enumerate(self._keys.of[e])
            for form, _, _ in use.plan.exprs
        ]
