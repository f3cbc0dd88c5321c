"""Pointwise operations with torch's names and meaning; each adds one primitive to a fusion."""

from __future__ import annotations

from collections.abc import Callable

from idgraph.arith import Expr
from idgraph.errors import OperationError, arguments, user_line
from idgraph.ir.dtypes import DTypeLike, Scalar, check_dtype
from idgraph.ir.fusion import apply_op
from idgraph.ir.tensor import Tensor

Operand = Tensor | Scalar | Expr


def checked(x: object, op: str) -> Tensor:
    """``x`` as a tensor, or an error that names the operation."""
    if not isinstance(x, Tensor):
        raise OperationError(f"{op}: {type(x).__name__} is not a tensor of a fusion", where=user_line())
    return x


# pointwise ------------------------------------------------------------------------------------------------------------


def _unary(op: str, what: str) -> Callable[..., Tensor]:
    def f(x: Tensor, *, name: str | None = None) -> Tensor:
        return apply_op(op, checked(x, op), name=name)

    f.__name__ = f.__qualname__ = op
    f.__doc__ = f"""{what}, elementwise; same shape as ``x``. Raises `OperationError` for a non-tensor.

    >>> import idgraph as ig
    >>> x = ig.Fusion("f").input("x", shape=(4,))
    >>> ig.{op}(x if {op!r} not in ("bitwise_not",) else ig.cast(x, "int64")).shape
    (4,)
    """
    return arguments(OperationError)(f)


def _binary(op: str, what: str) -> Callable[..., Tensor]:
    def f(a: Operand, b: Operand, *, name: str | None = None) -> Tensor:
        return apply_op(op, a, b, name=name)

    f.__name__ = f.__qualname__ = op
    f.__doc__ = f"""{what}, elementwise; shapes broadcast from the last axis, a number is an operand too.

    Raises `OperationError` where two extents differ and neither is 1.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, b = f.input("a", shape=(3, 1), dtype="int64"), f.input("b", shape=(4,), dtype="int64")
    >>> ig.{op}(a, b).shape
    (3, 4)
    """
    return arguments(OperationError)(f)


neg = _unary("neg", "-x")
abs = _unary("abs", "``|x|``")
relu = _unary("relu", "max(x, 0)")
sign = _unary("sign", "-1, 0 or 1")
square = _unary("square", "x * x")
floor = _unary("floor", "Largest integer not above x")
ceil = _unary("ceil", "Smallest integer not below x")
round = _unary("round", "Nearest integer, halves to even")
trunc = _unary("trunc", "Integer part toward zero")
exp = _unary("exp", "e ** x")
exp2 = _unary("exp2", "2 ** x")
expm1 = _unary("expm1", "e ** x - 1")
log = _unary("log", "Natural logarithm")
log2 = _unary("log2", "Logarithm to base 2")
log1p = _unary("log1p", "log(1 + x)")
sqrt = _unary("sqrt", "Square root")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
sin = _unary("sin", "Sine")
cos = _unary("cos", "Cosine")
tan = _unary("tan", "Tangent")
tanh = _unary("tanh", "Hyperbolic tangent")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
erf = _unary("erf", "Error function")
reciprocal = _unary("reciprocal", "1 / x")
logical_not = _unary("logical_not", "True where x is zero or False")
bitwise_not = _unary("bitwise_not", "All bits inverted")
isnan = _unary("isnan", "True where x is not a number")
isinf = _unary("isinf", "True where x is infinite")

add = _binary("add", "a + b")
sub = _binary("sub", "a - b")
mul = _binary("mul", "a * b")
div = _binary("div", "a / b as floating point")
floor_divide = _binary("floor_divide", "a / b rounded down")
remainder = _binary("remainder", "a mod b with the sign of b")
fmod = _binary("fmod", "a mod b with the sign of a")
pow = _binary("pow", "a ** b")
maximum = _binary("maximum", "The larger (NaN wins)")
minimum = _binary("minimum", "The smaller (NaN wins)")
atan2 = _binary("atan2", "Angle of the point (b, a)")
eq = _binary("eq", "a == b")
ne = _binary("ne", "a != b")
lt = _binary("lt", "a < b")
le = _binary("le", "a <= b")
gt = _binary("gt", "a > b")
ge = _binary("ge", "a >= b")
logical_and = _binary("logical_and", "Both true")
logical_or = _binary("logical_or", "At least one true")
logical_xor = _binary("logical_xor", "Exactly one true")
bitwise_and = _binary("bitwise_and", "Common bits")
bitwise_or = _binary("bitwise_or", "Bits of either")
bitwise_xor = _binary("bitwise_xor", "Bits of one only")


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
