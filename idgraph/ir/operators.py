"""The operators of tensors: each builds one operation in the tensor's fusion, by its name in the table."""

from __future__ import annotations

from typing import cast

from idgraph.errors import OperationError, shortened, user_line
from idgraph.ir.indexing import basic_index
from idgraph.ir.protocols import L, Operand, TensorLike
from idgraph.ir.registry import apply


class Operators:
    """Arithmetic, comparisons and indexing; a part of `Tensor`.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 32))
    >>> (t * 2.0 + t).definition.op, (t @ t.T).shape, t[0].shape
    ('add', (4, 4), (32,))
    """

    __slots__ = ()

    def __add__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "add", (self, other))

    def __radd__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "add", (other, self))

    def __sub__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "sub", (self, other))

    def __rsub__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "sub", (other, self))

    def __mul__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "mul", (self, other))

    def __rmul__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "mul", (other, self))

    def __truediv__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "div", (self, other))

    def __rtruediv__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "div", (other, self))

    def __floordiv__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "floor_divide", (self, other))

    def __mod__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "remainder", (self, other))

    def __pow__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "pow", (self, other))

    def __rfloordiv__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "floor_divide", (other, self))

    def __rmod__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "remainder", (other, self))

    def __rpow__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "pow", (other, self))

    def __rand__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_and", (other, self))

    def __ror__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_or", (other, self))

    def __rxor__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_xor", (other, self))

    def __matmul__(self: L, other: L) -> L:
        return self.fusion.building("matmul", lambda: product(self, other))

    def __pos__(self: L) -> L:
        return self

    def __neg__(self: L) -> L:
        return apply(self.fusion, "neg", (self,))

    def __abs__(self: L) -> L:
        return apply(self.fusion, "abs", (self,))

    def __invert__(self: L) -> L:
        return apply(self.fusion, "logical_not" if self.dtype == "bool" else "bitwise_not", (self,))

    def __and__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_and", (self, other))

    def __or__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_or", (self, other))

    def __xor__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "bitwise_xor", (self, other))

    def __lt__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "lt", (self, other))

    def __le__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "le", (self, other))

    def __gt__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "gt", (self, other))

    def __ge__(self: L, other: Operand[L]) -> L:
        return apply(self.fusion, "ge", (self, other))

    def __getitem__(self: L, index: object) -> L:
        """NumPy's basic indexing: ints, slices (steps, negative bounds), None, Ellipsis.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(4, 32))
        >>> t[0, ::-2].shape, t[..., None, 8:].shape
        ((16,), (4, 1, 24))
        """
        items = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
        return self.fusion.building("index", lambda: basic_index(self, items))

    def __iter__(self: TensorLike) -> object:
        raise OperationError(
            f"tensor {self.name} is not iterable",
            where=user_line(),
            hint=f"[ig.select({self.name}, 0, k) for k in range(n)], or slices: {self.name}[a:b]",
        )

    def __bool__(self: TensorLike) -> bool:
        raise OperationError(
            f"tensor {self.name} has no truth value while a fusion is built",
            where=user_line(),
            hint="use ig.where(condition, a, b)",
        )

    @property
    def T(self: L) -> L:
        """The axes in reverse order."""
        return apply(self.fusion, "permute", (self,), {"dims": tuple(reversed(range(self.ndim)))})


_OPERATORS = tuple(
    f"__{name}__"
    for name in (
        "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rfloordiv",
        "rmod", "rpow", "rand", "ror", "rxor", "matmul", "neg", "abs", "invert", "and", "or", "xor", "lt", "le", "gt",
        "ge", "getitem",
    )
)  # fmt: skip
for _operator in _OPERATORS:
    setattr(Operators, _operator, shortened(getattr(Operators, _operator)))


def product(a: L, b: L, name: str | None = None) -> L:
    """See `idgraph.matmul`."""
    fusion, row, column = a.fusion, a.ndim == 1, isinstance(b, Operators) and b.ndim == 1  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (row or column):
        return apply(fusion, "matmul", (a, b), name=name)
    left = apply(fusion, "unsqueeze", (a,), {"dims": (0,)}) if row else a
    right = apply(fusion, "unsqueeze", (b,), {"dims": (1,)}) if column else b
    wide = apply(fusion, "matmul", (left, right))
    drop = tuple(wide.ndim - back for back, gone in ((1, column), (2, row)) if gone)
    return apply(fusion, "squeeze", (wide,), {"dims": drop}, name)
