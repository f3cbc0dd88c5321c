"""NumPy's basic indexing, resolved to select, slice and unsqueeze.

The operators of tensors: each builds one operation in the tensor's fusion, by its name in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex, TypeGuard, cast

from idgraph.arith import Expr, as_expr, is_true, maximum, minimum, simplify
from idgraph.errors import OperationError, short_repr, shortened, user_line
from idgraph.ir.axis_read import Attr
from idgraph.ir.op_table import apply
from idgraph.ir.protocols import L, Operand, TensorLike


def is_int(value: object) -> TypeGuard[int]:
    """An int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def plain(value: object) -> object:
    """NumPy's integers as ints; anything else as it is."""
    if isinstance(value, (int, Expr)) or not hasattr(type(value), "__index__") or type(value).__name__ == "bool":
        return value
    try:
        return index(cast(SupportsIndex, value))
    except TypeError:  # an array of several numbers has an index, and refuses it
        return value


def attr(e: Expr | int) -> int | Expr:
    """An int where the expression is constant."""
    value = plain(e)
    if isinstance(value, Expr):
        return int(value) if value.is_const else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise OperationError(
            f"{short_repr(value)} is neither an int nor an integer expression",
            where=user_line(),
            hint="an int, n // 2 instead of n / 2, or an f.symbol(...)",
        )
    return value


MOST_LISTED = 1_000_000  # a fusion has fewer axes and operands; `range(10**18)` is a slip that must not fill memory


def _as_list(values: object) -> str:
    """The hint for a value in the place of a list."""
    if isinstance(values, (int, Expr)):
        return f"a single one is a list too: [{values}]"
    return "a list of integers: [0, 1]" if isinstance(values, float) else "put them into a list: [x, y]"


def listed(values: object, what: str) -> Sequence[Any]:
    """``values`` if it is a list or a tuple (or a sequence other than text), else an error that says ``what``."""
    if isinstance(values, Sequence) and not isinstance(values, (str, bytes)):
        found = cast("Sequence[Any]", values)
        if len(found) > MOST_LISTED:
            raise OperationError(f"{what}: a list of more than {MOST_LISTED} values", where=user_line())
        return found
    raise OperationError(
        f"{what}: {type(values).__name__} is not a list or tuple", where=user_line(), hint=_as_list(values)
    )


def flags(values: object, count: int, what: str) -> Sequence[bool]:
    """``values`` as a list of bools; one bool stands for ``count`` of them."""
    given = [values] * count if isinstance(values, bool) else listed(values, what)
    for v in given:
        if not isinstance(v, bool):
            raise OperationError(f"{what}: {short_repr(v)} is neither True nor False", where=user_line())
    return given


def _clamp(value: object, n: Expr, low: int, default: Expr) -> Expr:
    """A slice bound as NumPy resolves it: negative counts from the end, then clamped to [low, n + low]."""
    value = plain(value)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, Expr)):
        raise OperationError(f"slice bound {short_repr(value)} is neither an int nor an integer expression")
    bound = as_expr(value)
    if isinstance(value, int) and value < 0:
        bound = n + value
    elif isinstance(value, Expr) and not is_true(bound >= 0):
        raise OperationError(f"slice bound {value} may be negative", hint="give its symbols a min")
    top = n if low == 0 else n - 1
    return larger(smaller(bound, top), as_expr(low))


def smaller(a: Expr, b: Expr) -> Expr:
    """min(a, b), without the min where an order is proved."""
    return simplify(a if is_true(a <= b) else b if is_true(b <= a) else minimum(a, b))


def larger(a: Expr, b: Expr) -> Expr:
    """max(a, b), without the max where an order is proved."""
    return simplify(a if is_true(a >= b) else b if is_true(b >= a) else maximum(a, b))


def resolve_slice(n: Expr, start: object, stop: object, step: object) -> tuple[Expr, Expr, int]:
    """(start, stop, step) inside an axis of ``n`` elements, as NumPy means them."""
    start, stop, step = plain(start), plain(stop), 1 if step is None else plain(step)
    if isinstance(step, bool) or not isinstance(step, int) or step == 0:
        raise OperationError(
            f"slice step {short_repr(step)} is not a non-zero int",
            hint="1 takes every element, 2 every other, -1 backwards",
        )
    if step > 0:
        first = _clamp(start, n, 0, as_expr(0))
        last = _clamp(stop, n, 0, n)
        return first, larger(last, first), step
    first = _clamp(start, n, -1, n - 1)
    last = _clamp(stop, n, -1, as_expr(-1))
    if stop is not None and isinstance(stop, int) and stop < 0:
        last = larger(n + stop, as_expr(-1))
    first = simplify(first)
    return first, smaller(last, first), step


def slice_dims(tensor: L, wanted: Sequence[tuple[int, object, object, object]], name: str | None = None) -> L:
    """One slice operation over several axes: (axis, start, stop, step), each as NumPy means it."""
    dims: list[int] = []
    starts: list[int | Expr] = []
    stops: list[int | Expr] = []
    steps: list[int] = []
    for axis, start, stop, step in wanted:
        a, b, c = resolve_slice(tensor.axes[axis].extent, start, stop, step)
        dims.append(axis)
        starts.append(attr(a))
        stops.append(attr(b))
        steps.append(c)
    attrs: dict[str, Attr] = {
        "dims": tuple(dims),
        "starts": tuple(starts),
        "stops": tuple(stops),
        "steps": tuple(steps),
    }
    return apply(tensor.fusion, "slice", (tensor,), attrs, name)


def shape_text(tensor: TensorLike) -> str:
    """``(2, n)``: a shape for messages."""
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.ndim == 1 else ''})"


def _expand_ellipsis(tensor: TensorLike, items: tuple[object, ...]) -> list[object]:
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > tensor.ndim:
        raise OperationError(
            f"{used} indices for tensor {tensor.name} of shape {shape_text(tensor)}",
            hint=f"at most {tensor.ndim}: one for each axis",
        )
    dots = [p for p, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise OperationError("an index may hold one ellipsis")
    at = dots[0] if dots else len(items)
    fill = [slice(None)] * (tensor.ndim - used)
    return [*items[:at], *fill, *items[at + 1 :]]


def basic_index(tensor: L, items: tuple[object, ...]) -> L:
    """See `Tensor.__getitem__`."""
    full = _expand_ellipsis(tensor, items)
    slices: list[tuple[int, object, object, object]] = []
    selects: list[tuple[int, Expr]] = []
    new: list[int] = []
    axis = place = 0
    for given in full:
        item = plain(given)
        if item is None:
            new.append(place)
            place += 1
            continue
        if isinstance(item, slice):
            part = cast("slice[object, object, object]", item)
            if not (part.start is None and part.stop is None and part.step in (None, 1)):
                slices.append((axis, part.start, part.stop, part.step))
            place += 1
        elif isinstance(item, (int, Expr)) and not isinstance(item, bool):
            n = tensor.axes[axis].extent
            at = n + item if isinstance(item, int) and item < 0 else as_expr(item)
            selects.append((axis, simplify(at)))
        else:
            raise OperationError(
                f"index {short_repr(item)} of tensor {tensor.name} is not one of int, slice, None, Ellipsis",
                hint="index with tensors through ig.index_get(x, [i, j]), ig.index_select, ig.gather or ig.embedding",
            )
        axis += 1
    result = slice_dims(tensor, slices) if slices else tensor
    for axis, at in reversed(selects):
        result = apply(tensor.fusion, "select", (result,), {"dim": axis, "index": attr(at)})
    if new:
        result = apply(tensor.fusion, "unsqueeze", (result,), {"dims": tuple(new)})
    return apply(tensor.fusion, "copy", (tensor,)) if result is tensor else result


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
