"""Keys of the index graph: an axis as one operation uses it, numbered use by use."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from idgraph.graphs.signature import TensorTemplate
from idgraph.ir import DomainExpr, IterDomain, Tensor, TensorExpr

_FEW = 12  # operands that are looked through one by one
Key = tuple[IterDomain, TensorExpr] | tuple[IterDomain, TensorExpr, int]


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
