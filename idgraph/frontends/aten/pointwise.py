"""Handlers of pointwise ATen operations, with torch's type promotion (a tensor without axes counts as a number)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from idgraph.arith import Expr
from idgraph.frontends.importer import HANDLERS, Call, Unmapped, handles
from idgraph.frontends.torch_arrays import numpy_dtype
from idgraph.ir import DType, Scalar, Tensor, is_float, item_size
from idgraph.ir import ops_pointwise as ops
from idgraph.ir.dtypes import promote, scalar_dtype
from idgraph.ir.fusion import apply_op
from idgraph.ir.op_table import Operation

Operand = Tensor | Scalar | Expr

_SHORT_FLOATS = ("float16", "bfloat16")


def promoted(operands: Sequence[Operand]) -> DType:
    """torch's result type: tensors with axes decide, then tensors without, then numbers, each only by category."""
    if not any(isinstance(v, Tensor) for v in operands):
        raise Unmapped("no operand is a tensor")
    wide: list[DType] = [t.dtype for t in operands if isinstance(t, Tensor) and t.ndim]
    flat: list[DType] = [t.dtype for t in operands if isinstance(t, Tensor) and not t.ndim]
    numbers: list[DType] = [
        "int64" if isinstance(v, Expr) else scalar_dtype(v) for v in operands if not isinstance(v, Tensor)
    ]
    narrow: list[DType] = [promote(flat)] if flat else []
    base = promote(wide, narrow) if wide else promote(flat)
    return promote([base], numbers)


def common_dtype(operands: Sequence[Operand], floats: bool = False) -> DType:
    """The type in which torch takes the operands; of a function of floats, integers and truth values are float32."""
    common = promoted(operands)
    return common if is_float(common) or not floats else "float32"


def aligned(*operands: Operand, floats: bool = False) -> list[Operand]:
    """Operands as torch takes them: converted to their common type (``floats``: a floating one) before it computes.

    A tensor with axes stays as it is where the common type has all of its values, since the IR promotes it itself.
    """
    common = common_dtype(operands, floats)
    return [_converted(v, common) for v in operands]


def _converted(value: Operand, common: DType) -> Operand:
    if isinstance(value, Expr):
        return value
    if not isinstance(value, Tensor):
        return rounded_number(value, common)
    stays = value.dtype == common or (value.ndim > 0 and _holds_all(common, value.dtype))
    return value if stays else ops.cast(value, common)


def _holds_all(common: DType, dtype: DType) -> bool:
    """Every number of ``dtype`` is one of ``common``, or becomes one by the IR's own conversion."""
    return common not in _SHORT_FLOATS or dtype in (common, "bool", "uint8", "int8")


def rounded_number(value: Scalar, common: DType) -> Scalar:
    """A number as an element of a two-byte float; of other types the IR itself makes one of it."""
    if common not in _SHORT_FLOATS:
        return value
    with np.errstate(over="ignore"):
        return float(np.asarray(value, numpy_dtype(common)))


def by_scale(f: Callable[[Operand, Operand], Tensor], first: Operand, second: Operand, floats: bool = False) -> Tensor:
    """``f(first, second)`` of products and quotients in the common type, rounded once.

    Beside two-byte floats torch takes a second operand that is a number or a tensor without axes as a float32, so that
    a scale of 65536 stays finite.
    """
    to = common_dtype([first, second], floats)
    a = _converted(first, to)
    if not isinstance(second, Tensor):
        return f(a, second)
    if second.ndim or _holds_all(to, second.dtype):
        return f(a, _converted(second, to))
    found = f(ops.cast(a, "float32") if isinstance(a, Tensor) else a, ops.cast(second, "float32"))
    return ops.cast(found, to)


def _unary(f: Callable[[Tensor], Tensor]) -> Callable[[Call], Tensor]:
    return lambda c: f(c.tensor(0, "self"))


def _binary(f: Callable[[Operand, Operand], Tensor], floats: bool) -> Callable[[Call], Tensor]:
    def handler(c: Call) -> Tensor:
        a, b = (
            _division_operands(c) if f in (ops.remainder, ops.fmod) else (c.operand(0, "self"), c.operand(1, "other"))
        )
        return f(*aligned(a, b, floats=floats))

    return handler


def _division_operands(c: Call) -> tuple[Operand, Operand]:
    """Dividend and divisor; an integer divided by the number zero is torch's to refuse."""
    a, b = c.operand(0, "self"), c.operand(1, "other")
    if not isinstance(b, (Tensor, Expr)) and b == 0 and not is_float(promoted([a, b])):
        raise Unmapped("it divides integers by zero")
    return a, b


def handle_rows(rows: Iterable[Operation]) -> None:
    """Map the ATen operations of these rows of the table of operations, where no handler of its own does."""
    for row in rows:
        built = getattr(ops, row.name, None)
        if built is None or row.operands > 2:
            continue
        handler = _unary(built) if row.operands == 1 else _binary(built, floats=row.result == "float")
        for overload in row.aten:
            HANDLERS.setdefault(f"aten.{row.name}.{overload}", handler)


def _scale_by_alpha(c: Call, value: Operand) -> Operand:
    """``alpha * value`` of aten.add and aten.sub."""
    alpha = c.number(2, "alpha", 1)
    if alpha == 1:
        return value
    if isinstance(value, Expr):
        if not isinstance(alpha, int):
            raise Unmapped(f"a fraction of the dynamic size {value}")
        return value * alpha
    return ops.mul(value, alpha) if isinstance(value, Tensor) else value * alpha


def _weighed(c: Call, f: Callable[[Operand, Operand], Tensor], first: Operand, second: Operand) -> Tensor:
    """``f(first, alpha * second)`` in the common type, in two-byte floats rounded once."""
    if c.get(2, "alpha", 1) == 1:
        return f(*aligned(first, second))
    to = promoted([first, second])
    a, b = (
        wide_of(ops.cast(v, to) if v.dtype != to else v) if isinstance(v, Tensor) else _converted(v, to)
        for v in (first, second)
    )
    found = f(a, _scale_by_alpha(c, b))
    return found if found.dtype == to else ops.cast(found, to)


@handles("aten.add.Tensor", "aten.add.Scalar")
def add(c: Call) -> Tensor:
    """self + alpha * other; of booleans, their or."""
    a, b = c.operand(0, "self"), c.operand(1, "other")
    if promoted([a, b]) == "bool":
        return ops.logical_or(*aligned(a, _scale_by_alpha(c, b)))
    return _weighed(c, ops.add, a, b)


@handles("aten.sub.Tensor", "aten.sub.Scalar")
def sub(c: Call) -> Tensor:
    """self - alpha * other."""
    return _weighed(c, ops.sub, c.operand(0, "self"), c.operand(1, "other"))


@handles("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(c: Call) -> Tensor:
    """other - alpha * self."""
    return _weighed(c, ops.sub, c.operand(1, "other"), c.operand(0, "self"))


@handles("aten.mul.Tensor", "aten.mul.Scalar")
def mul(c: Call) -> Tensor:
    """self * other; of booleans, their and."""
    a, b = c.operand(0, "self"), c.operand(1, "other")
    return ops.logical_and(*aligned(a, b)) if promoted([a, b]) == "bool" else by_scale(ops.mul, a, b)


@handles(
    "aten.div.Tensor", "aten.div.Scalar", "aten.div.Tensor_mode", "aten.div.Scalar_mode",
    "aten.true_divide.Tensor", "aten.true_divide.Scalar",
)  # fmt: skip
def div(c: Call) -> Tensor:
    """self / other, rounded down or toward zero where asked."""
    mode = c.get(-1, "rounding_mode", None)
    a, b = (c.operand(0, "self"), c.operand(1, "other")) if mode is None else _division_operands(c)
    if mode == "floor":
        return by_scale(ops.floor_divide, a, b)
    if mode == "trunc":
        return _toward_zero(a, b)
    if mode is not None:
        raise c.wrong("rounding_mode", mode, "'floor' or 'trunc'")
    return by_scale(ops.div, a, b, floats=True)


def _toward_zero(a: Operand, b: Operand) -> Tensor:
    """The quotient without its fraction; that of two-byte floats is rounded first, but beside a number or a tensor
    without axes."""
    to = promoted([a, b])
    if to in _SHORT_FLOATS and not (isinstance(b, Tensor) and b.ndim):
        first = _converted(a, to)
        wide = [ops.cast(v, "float32") if isinstance(v, Tensor) else v for v in (first, b)]
        return ops.cast(ops.trunc(ops.div(*wide)), to)
    first, second = aligned(a, b)
    if is_float(to):
        return ops.trunc(ops.div(first, second))
    # a less its remainder toward zero is a multiple of b
    if isinstance(first, Tensor):
        first = ops.cast(first, to) if first.dtype == "bool" else first
    elif isinstance(first, bool):
        first = int(first)
    return ops.floor_divide(ops.sub(first, ops.fmod(first, second)), second)


@handles("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(c: Call) -> Tensor:
    """self / other, rounded down."""
    return by_scale(ops.floor_divide, *_division_operands(c))


@handles("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(c: Call) -> Tensor:
    """self ** exponent; of exponents 0.5 and -0.5 torch takes the root, but of float16, of 3, -1 and -2 products."""
    a, b = aligned(c.operand(0, "self"), c.operand(1, "exponent"))
    if isinstance(a, Tensor) and promoted([a, b]) == "bool" and c.meta.dtype != "bool":
        a = ops.cast(a, c.meta.dtype)
    if isinstance(a, Tensor) and not isinstance(b, Tensor) and promoted([a, b]) == a.dtype:
        if b == 1:
            return ops.copy(a)
        if b == 2:
            return ops.square(a)
        if b in (0.5, -0.5) and a.dtype != "float16":
            return ops.sqrt(a) if b == 0.5 else ops.rsqrt(a)
        if b in (3, -1, -2) and is_float(a.dtype):  # a power takes as long as fifty products
            wide = ops.cast(a, "float32") if item_size(a.dtype) < 4 else a
            low = wide if b == -1 else ops.square(wide)
            found = ops.mul(low, wide) if b == 3 else ops.reciprocal(low)
            return ops.cast(found, a.dtype) if found.dtype != a.dtype else found
    return ops.pow(a, b)


@handles("prims.fma.default", "aten.addcmul.default")
def fma(c: Call) -> Tensor:
    """a * b + c; aten.addcmul has the addend first and a factor."""
    if c.node.target.startswith("prims"):
        a, b, addend = aligned(c.operand(0, "a"), c.operand(1, "b"), c.operand(2, "c"))
        return apply_op("fma", a, b, addend)
    addend, a, b = aligned(c.operand(0, "self"), c.operand(1, "tensor1"), c.operand(2, "tensor2"))
    product, value = ops.mul(a, b), c.element(promoted([addend, a, b]), -1, "value", 1)
    return ops.add(addend, product if value == 1 else ops.mul(product, value))


@handles("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(c: Call) -> Tensor:
    """self where the condition holds, else other."""
    a, b = aligned(c.operand(1, "self"), c.operand(2, "other"))
    return ops.where(c.tensor(0, "condition"), a, b)


@handles("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_max.default")
def clamp(c: Call) -> Tensor:
    """self, not below min nor above max."""
    x: Tensor = c.tensor(0, "self")
    name = c.node.target
    low = None if "clamp_max" in name else c.get(1, "min", None)
    high = c.get(1, "max") if "clamp_max" in name else None if "clamp_min" in name else c.get(2, "max", None)
    bounds: list[Operand] = []
    for bound, word in ((low, "min"), (high, "max")):
        if bound is not None and not isinstance(bound, (Tensor, int, float, Expr)):
            raise c.wrong(word, bound, "a tensor or a number")
        bounds += [] if bound is None else [bound]
    common = promoted([x, *bounds])  # of all three: uint8 has no -3, the float32 that 5.5 asks for has
    x = x if x.dtype == common else ops.cast(x, common)
    for f, bound in zip((ops.maximum, ops.minimum)[low is None :], bounds, strict=False):
        x = f(*aligned(x, bound))
    return x


@handles("aten._to_copy.default", "prims.convert_element_type.default", "aten.to.dtype")
def convert(c: Call) -> Tensor:
    """self in another type; where the type stays, a copy."""
    x = c.tensor(0, "self")
    dtype = c.dtype(x.dtype, -1 if c.node.target.startswith("aten._to_copy") else 1)
    return ops.copy(x) if dtype == x.dtype else ops.cast(x, dtype)


@handles(
    "aten.alias.default", "aten.clone.default", "aten.detach.default", "aten.lift_fresh_copy.default",
    "aten.alias_copy.default", "aten.detach_copy.default", "aten.lift.default", "aten.lift_fresh.default",
    "aten.contiguous.default", "aten.positive.default",
)  # fmt: skip
def alias(c: Call) -> Tensor:
    """The same elements under another name."""
    return ops.copy(c.tensor(0, "self"))


@handles("prims.copy_strided.default")
def copy_strided(c: Call) -> Tensor:
    """The same elements; its strides say how torch lays them out."""
    c.get(1, "stride", None)
    return ops.copy(c.tensor(0, "a"))


@handles("aten.gelu.default")
def gelu(c: Call) -> Tensor:
    """x * (1 + erf(x / sqrt 2)) / 2, or its tanh approximation."""
    x, form = wide_of(c.tensor(0, "self")), c.text(-1, "approximate", "none")
    if form == "tanh":
        inner = ops.mul(ops.add(x, ops.mul(ops.mul(ops.square(x), x), 0.044715)), 0.7978845608028654)
        gate = ops.tanh(inner)
    elif form == "none":
        gate = ops.erf(ops.mul(x, 0.7071067811865476))
    else:
        raise c.wrong("approximate", form, "'none' or 'tanh'")
    return narrowed(ops.mul(ops.mul(x, 0.5), ops.add(gate, 1.0)), c.tensor(0, "self"))


@handles("aten.silu.default")
def silu(c: Call) -> Tensor:
    """x * sigmoid(x)."""
    x = wide_of(c.tensor(0, "self"))
    return narrowed(ops.mul(x, ops.sigmoid(x)), c.tensor(0, "self"))


@handles("aten.leaky_relu.default")
def leaky_relu(c: Call) -> Tensor:
    """x where positive, else negative_slope * x."""
    x, slope = c.tensor(0, "self"), c.number(1, "negative_slope", 0.01)
    return ops.where(ops.gt(x, 0), x, ops.mul(x, slope))


def wide_of(x: Tensor) -> Tensor:
    """Two-byte floats as float32: torch computes in float32 and rounds once."""
    return ops.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


def narrowed(x: Tensor, like: Tensor) -> Tensor:
    return x if x.dtype == like.dtype else ops.cast(x, like.dtype)


@handles("aten._assert_tensor_metadata.default")
def assert_metadata(c: Call) -> None:
    """The program's facts about a tensor: checked here, once."""
    x = c.tensor(0, "a")
    sizes, dtype = c.get(1, "size", None), c.dtype(x.dtype, 3)
    c.get(2, "stride", None)
    c.get(4, "device", None)
    c.get(5, "layout", None)
    if sizes is not None and sizes != tuple(x.shape):
        raise c.error(f"the program asserts shape {sizes}, {x.name} has {tuple(x.shape)}")
    if dtype != x.dtype:
        raise c.error(f"the program asserts {dtype}, {x.name} is {x.dtype}")
