"""Pointwise operations with torch's names and meaning; each adds one primitive to a fusion."""

from __future__ import annotations

from collections.abc import Callable

from idgraph.arith import Expr
from idgraph.errors import OperationError, arguments, user_line
from idgraph.ir.dtypes import DTypeLike, Scalar, check_dtype
from idgraph.ir.fusion import Tensor, apply_op
from idgraph.ir.op_table import OPERATIONS

Operand = Tensor | Scalar | Expr


def checked(x: object, op: str) -> Tensor:
    """``x`` as a tensor, or an error that names the operation."""
    if not isinstance(x, Tensor):
        raise OperationError(
            f"{op}: {type(x).__name__} is not a tensor of a fusion",
            where=user_line(),
            hint="a tensor first: x = f.input(name, shape), or the result of an operation",
        )
    return x


# pointwise ------------------------------------------------------------------------------------------------------------


def _unary(op: str) -> Callable[..., Tensor]:
    def f(x: Tensor, *, name: str | None = None) -> Tensor:
        return apply_op(op, checked(x, op), name=name)

    f.__name__ = f.__qualname__ = op
    f.__doc__ = f"""{OPERATIONS[op].meaning}, elementwise; same shape as ``x``.

    Raises `OperationError` for a non-tensor.

    >>> import idgraph as ig
    >>> x = ig.Fusion("f").input("x", shape=(4,))
    >>> ig.{op}(x if {op!r} not in ("bitwise_not",) else ig.cast(x, "int64")).shape
    (4,)
    """
    return arguments(OperationError)(f)


def _binary(op: str) -> Callable[..., Tensor]:
    def f(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
        return apply_op(op, a, b, name=name)

    f.__name__ = f.__qualname__ = op
    f.__doc__ = f"""{OPERATIONS[op].meaning}, elementwise.

    Shapes broadcast from the last axis, a number is an operand too.
    Raises `OperationError` where two extents differ and neither is 1.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, b = f.input("a", shape=(3, 1), dtype="int64"), f.input("b", shape=(4,), dtype="int64")
    >>> ig.{op}(a, b).shape
    (3, 4)
    """
    return arguments(OperationError)(f)


neg = _unary("neg")
abs = _unary("abs")
relu = _unary("relu")
sign = _unary("sign")
square = _unary("square")
floor = _unary("floor")
ceil = _unary("ceil")
round = _unary("round")
trunc = _unary("trunc")
exp = _unary("exp")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
log = _unary("log")
log2 = _unary("log2")
log10 = _unary("log10")
log1p = _unary("log1p")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
tanh = _unary("tanh")
sigmoid = _unary("sigmoid")
erf = _unary("erf")
reciprocal = _unary("reciprocal")
logical_not = _unary("logical_not")
bitwise_not = _unary("bitwise_not")
isnan = _unary("isnan")
isinf = _unary("isinf")

add = _binary("add")
sub = _binary("sub")
mul = _binary("mul")
div = _binary("div")
floor_divide = _binary("floor_divide")
remainder = _binary("remainder")
fmod = _binary("fmod")
pow = _binary("pow")
maximum = _binary("maximum")
minimum = _binary("minimum")
atan2 = _binary("atan2")
eq = _binary("eq")
ne = _binary("ne")
lt = _binary("lt")
le = _binary("le")
gt = _binary("gt")
ge = _binary("ge")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")
shift_left = _binary("shift_left")
shift_right = _binary("shift_right")


@arguments(OperationError)
def copy(x: Tensor, *, name: str | None = None) -> Tensor:
    """The same values in a tensor of its own (nvFuser's ``set``).

    >>> import idgraph as ig
    >>> ig.copy(ig.Fusion("f").input("x", shape=(4,))).definition
    t1[I1] = copy(x[I0])
    """
    return apply_op("copy", checked(x, "copy"), name=name)


@arguments(OperationError)
def where(condition: Tensor, a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
    """``a`` where the condition, a tensor of bool, holds, else ``b``; shapes broadcast.

    >>> import idgraph as ig
    >>> x = ig.Fusion("f").input("x", shape=(4,))
    >>> ig.where(x > 0, x, 0.0).shape
    (4,)
    """
    if not isinstance(condition, (Tensor, Expr)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperationError(
            f"where: the condition {condition!r} is not a tensor",
            where=user_line(),
            hint="== and != of tensors ask whether they are the same tensor: ig.eq(a, b), ig.ne(a, b)",
        )
    return apply_op("where", condition, a, b, name=name)


@arguments(OperationError)
def cast(x: Tensor, dtype: DTypeLike, *, name: str | None = None) -> Tensor:
    """Convert to ``dtype``; floats become integers toward zero, anything non-zero becomes True.

    >>> import idgraph as ig
    >>> ig.cast(ig.Fusion("f").input("x", shape=(4,)), "float16").dtype
    'float16'
    """
    return apply_op("cast", checked(x, "cast"), dtype=check_dtype(dtype), name=name)
