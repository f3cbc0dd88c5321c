"""Walks over graphs of tensors, operations, groups and the like: every node once, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from idgraph.ir.fusion import Tensor, TensorExpr

N = TypeVar("N", bound=Hashable)


def reach(start: Iterable[N], onward: Callable[[N], Iterable[N]], most: int | None = None) -> dict[N, None]:
    """The nodes that ``onward`` leads to from those of ``start``, which are among them, each once. No more are looked
    for where there are ``most`` already.

    >>> sorted(reach([12], lambda n: [n // p for p in (2, 3) if n % p == 0]))
    [1, 2, 3, 4, 6, 12]
    """
    found = dict.fromkeys(start)
    pending = list(found)
    while pending and (most is None or len(found) < most):
        fresh = [n for n in dict.fromkeys(onward(pending.pop())) if n not in found]
        found.update(dict.fromkeys(fresh))
        pending += fresh
    return found


def operands(t: Tensor) -> tuple[Tensor, ...]:
    """The tensors that one is computed of in one step: none where it is an input."""
    return t.definition.inputs if t.definition is not None else ()


def upstream(tensors: Iterable[Tensor], through: Callable[[TensorExpr], bool] | None = None) -> set[TensorExpr]:
    """The operations that compute the tensors, in any number of steps, not those that ``through`` refuses.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4,))
    >>> y, z = -x, ig.exp(x)
    >>> both = y + z
    >>> [sorted(e.op for e in found) for found in (upstream([both]), upstream([both], lambda e: e.op != "exp"))]
    [['add', 'exp', 'neg'], ['add', 'neg']]
    """

    def definitions(of: Iterable[Tensor]) -> list[TensorExpr]:
        return [e for t in of if (e := t.definition) is not None and (through is None or through(e))]

    return set(reach(definitions(tensors), lambda e: definitions(e.inputs)))
