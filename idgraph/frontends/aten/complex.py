"""Handlers of ATen operations on complex tensors, as operations on their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from idgraph.frontends.array_space import PARTS, Pair, part_meta
from idgraph.frontends.aten.special import length
from idgraph.frontends.graph import TensorMeta
from idgraph.frontends.importer import COMPLEX, GETITEM, HANDLERS, Call, Unmapped
from idgraph.ir import Scalar, Tensor, is_float
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as composite
from idgraph.ir import ops_view as movement
from idgraph.ir.dtypes import check_dtype

Part = Tensor | Scalar
Complex = tuple[Part, Part]
PairHandler = Callable[[Call], Tensor | Pair | tuple[Pair, ...]]

# Each part by itself: what moves elements, or adds them up.
_LINEAR = (
    "_reshape_copy.default", "_unsafe_view.default", "alias.default", "cat.default", "clone.default",
    "copy.default", "cumsum.default", "detach.default", "diagonal.default", "embedding.default", "expand.default",
    "flip.default", "gather.default", "index.Tensor", "index_select.default", "mean.default", "mean.dim", "neg.default",
    "permute.default", "repeat.default", "reshape.default", "roll.default", "select.int", "select_scatter.default",
    "slice.Tensor", "slice_scatter.default", "split.Tensor", "split_with_sizes.default", "squeeze.default",
    "squeeze.dim", "squeeze.dims", "sum.default", "sum.dim_IntList", "t.default", "transpose.int", "unbind.int",
    "unfold.default", "unsqueeze.default", "view.default", "where.self",
)  # fmt: skip


def handles_complex(*targets: str) -> Callable[[PairHandler], PairHandler]:
    """Register a handler for calls that read or make complex tensors (import time only)."""

    def register(handler: PairHandler) -> PairHandler:
        COMPLEX.update(dict.fromkeys(targets, handler))
        return handler

    return register


def _dtype(c: Call) -> str:
    """The type of the parts of the result, or of the result where it is real."""
    return check_dtype(PARTS.get(c.meta.dtype, c.meta.dtype))


def _real_and_imaginary(c: Call, position: int, name: str, dtype: str) -> Complex:
    """(real, imaginary) of an operand; a real one has 0.0."""
    value = c.get(position, name)

    def cast_(t: Tensor) -> Tensor:
        return t if t.dtype == dtype else ops.cast(t, check_dtype(dtype))

    match value:
        case Pair(real, imag):
            return cast_(real), cast_(imag)
        case Tensor():
            return cast_(value), 0.0
        case complex():
            return value.real, value.imag
        case bool() | int() | float():
            return float(value), 0.0
        case _:
            raise c.wrong(name, value, "a tensor or a number")


def _pair(c: Call, position: int, name: str) -> Pair:
    value = c.get(position, name)
    if not isinstance(value, Pair):
        raise Unmapped(f"argument {name!r} is not complex")
    return value


def _broadcast_parts(c: Call, real: Part, imag: Part) -> Pair:
    """Both parts as tensors of the result's shape."""
    shape, dtype = c.meta.shape, check_dtype(_dtype(c))

    def filled(part: Part) -> Tensor:
        if not isinstance(part, Tensor):
            return c.fusion.full(shape, float(part), dtype)
        return part if part.shape == tuple(shape) else movement.expand(part, shape)

    return Pair(filled(real), filled(imag))


def _zero(part: Part) -> bool:
    return not isinstance(part, Tensor) and float(part) == 0.0


def _mul(a: Part, b: Part) -> Part:
    if _zero(a) or _zero(b):
        return 0.0
    return ops.mul(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else float(a) * float(b)


def _add(a: Part, b: Part, sign: int = 1) -> Part:
    if _zero(b):
        return a
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return float(a) + sign * float(b)
    if _zero(a) and isinstance(b, Tensor):
        return b if sign > 0 else ops.neg(b)
    return (ops.add if sign > 0 else ops.sub)(a, b)


def _complex_product(a: Complex, b: Complex) -> Complex:
    return _add(_mul(a[0], b[0]), _mul(a[1], b[1]), -1), _add(_mul(a[0], b[1]), _mul(a[1], b[0]))


@handles_complex("aten.mul.Tensor", "aten.mul.Scalar")
def mul(c: Call) -> Pair:
    """(a + bi)(c + di)."""
    return _broadcast_parts(
        c,
        *_complex_product(_real_and_imaginary(c, 0, "self", _dtype(c)), _real_and_imaginary(c, 1, "other", _dtype(c))),
    )


@handles_complex("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")
def add(c: Call) -> Pair:
    """Part by part; alpha times the second."""
    a, b = _real_and_imaginary(c, 0, "self", _dtype(c)), _real_and_imaginary(c, 1, "other", _dtype(c))
    alpha = c.number(2 if c.node.target.endswith("Scalar") else -1, "alpha", 1)
    scaled = b if alpha == 1 else (_mul(b[0], alpha), _mul(b[1], alpha))
    sign = 1 if c.node.target.startswith("aten.add") else -1
    return _broadcast_parts(c, _add(a[0], scaled[0], sign), _add(a[1], scaled[1], sign))


@handles_complex("aten.div.Tensor", "aten.div.Scalar", "aten.reciprocal.default")
def div(c: Call) -> Pair:
    """a / b = a * conj(b) / |b|**2, with b scaled by its larger part, so that no square overflows."""
    if c.node.target == "aten.reciprocal.default":
        a, b = (1.0, 0.0), _real_and_imaginary(c, 0, "self", _dtype(c))
    else:
        a, b = _real_and_imaginary(c, 0, "self", _dtype(c)), _real_and_imaginary(c, 1, "other", _dtype(c))
    if _zero(b[1]):
        return _broadcast_parts(c, *(_over(part, b[0]) for part in a))
    most = ops.maximum(_magnitude(c, b[0]), _magnitude(c, b[1]))
    x, y = _over(b[0], most), _over(b[1], most)
    square = _add(_mul(x, x), _mul(y, y))
    real, imag = _complex_product(a, (x, _mul(y, -1.0)))
    return _broadcast_parts(c, _over(_over(real, square), most), _over(_over(imag, square), most))


def _over(a: Part, b: Part) -> Part:
    if _zero(a):
        return 0.0
    return ops.div(a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else float(a) / float(b)


def _magnitude(c: Call, a: Part) -> Tensor:
    return ops.abs(a) if isinstance(a, Tensor) else c.fusion.full((), abs(float(a)), check_dtype(_dtype(c)))


@handles_complex("aten._conj.default", "aten._conj_physical.default", "aten.conj_physical.default", "aten.conj.default")
def conj(c: Call) -> Pair:
    """a - bi."""
    z = _pair(c, 0, "self")
    return Pair(ops.copy(z.real), ops.neg(z.imag))


@handles_complex("aten.abs.default")
def absolute(c: Call) -> Tensor:
    """The distance from zero."""
    z = _pair(c, 0, "self")
    return length(z.real, z.imag)


@handles_complex("aten.angle.default")
def angle(c: Call) -> Tensor:
    """The angle of each number, from -pi to pi."""
    z = _pair(c, 0, "self")
    return ops.atan2(z.imag, z.real)


@handles_complex("aten.exp.default")
def exp(c: Call) -> Pair:
    """e**a * (cos b + i sin b)."""
    z = _pair(c, 0, "self")
    size = ops.exp(z.real)
    return Pair(ops.mul(size, ops.cos(z.imag)), ops.mul(size, ops.sin(z.imag)))


@handles_complex("aten.polar.default")
def polar(c: Call) -> Pair:
    """A length and an angle."""
    size, turn = c.tensor(0, "abs"), c.tensor(1, "angle")
    return _broadcast_parts(c, ops.mul(size, ops.cos(turn)), ops.mul(size, ops.sin(turn)))


@handles_complex("aten.complex.default")
def complex_(c: Call) -> Pair:
    """Two real tensors."""
    return _broadcast_parts(c, ops.copy(c.tensor(0, "real")), ops.copy(c.tensor(1, "imag")))


@handles_complex("aten.full.default", "aten.scalar_tensor.default")
def full(c: Call) -> Pair:
    """One number everywhere."""
    at = 1 if c.node.target == "aten.full.default" else 0
    c.get(0, "size", None)
    return _broadcast_parts(c, *_real_and_imaginary(c, at, "fill_value" if at else "s", _dtype(c)))


@handles_complex("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(c: Call) -> Pair:
    """The last axis, of two, as parts."""
    x = c.tensor(0, "self")
    return Pair(movement.select(x, x.ndim - 1, 0), movement.select(x, x.ndim - 1, 1))


@handles_complex("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(c: Call) -> Tensor:
    """Parts as a last axis of two."""
    z = _pair(c, 0, "self")
    return movement.stack([z.real, z.imag], z.real.ndim)


@handles_complex("aten.real.default", "aten.imag.default")
def one_part(c: Call) -> Tensor:
    """One of the parts."""
    z = _pair(c, 0, "self")
    return ops.copy(z.real if c.node.target == "aten.real.default" else z.imag)


@handles_complex("aten.eq.Tensor", "aten.ne.Tensor", "aten.eq.Scalar", "aten.ne.Scalar")
def equal(c: Call) -> Tensor:
    """Whether both parts are equal, or one differs."""
    first = c.get(0, "self")
    dtype = first.real.dtype if isinstance(first, Pair) else "float64"
    a, b = _real_and_imaginary(c, 0, "self", dtype), _real_and_imaginary(c, 1, "other", dtype)
    if c.node.target.startswith("aten.eq"):
        return ops.logical_and(ops.eq(a[0], b[0]), ops.eq(a[1], b[1]))
    return ops.logical_or(ops.ne(a[0], b[0]), ops.ne(a[1], b[1]))


@handles_complex("aten.mm.default", "aten.bmm.default")
def matmul(c: Call) -> Pair:
    """A matrix product from those of the parts."""
    a, b = _pair(c, 0, "self"), _pair(c, 1, "mat2")
    f = composite.matmul
    real = ops.sub(f(a.real, b.real), f(a.imag, b.imag))
    return Pair(real, ops.add(f(a.real, b.imag), f(a.imag, b.real)))


@handles_complex("aten._to_copy.default", "prims.convert_element_type.default")
def convert(c: Call) -> Pair:
    """From real to complex, or to another width."""
    if c.meta.dtype not in PARTS:
        raise Unmapped("it drops the imaginary parts")
    c.get(1, "dtype", None)
    real, imag = _real_and_imaginary(c, 0, "self", _dtype(c))
    return _broadcast_parts(c, *(ops.copy(t) if isinstance(t, Tensor) else t for t in (real, imag)))


@handles_complex(GETITEM)
def getitem(c: Call) -> Pair:
    """One of several complex results."""
    parts, index = c.items(0, "parts"), c.int(1, "index")
    found = parts[index] if -len(parts) <= index < len(parts) else None
    if not isinstance(found, Pair):
        raise c.error(f"result {index} of {len(parts)}")
    return found


def _by_part(target: str) -> PairHandler:
    def handler(c: Call) -> Pair | tuple[Pair, ...]:
        real, imag = (_forced(HANDLERS[target](_of_part(c, k))) for k in range(2))
        if isinstance(real, Tensor) and isinstance(imag, Tensor):
            return Pair(real, imag)
        both = zip(cast("tuple[Tensor, ...]", real), cast("tuple[Tensor, ...]", imag), strict=True)
        return tuple(Pair(a, b) for a, b in both)

    return handler


def _forced(result: object) -> Tensor | tuple[Tensor, ...]:
    if isinstance(result, Tensor):
        return result
    if not isinstance(result, tuple):
        raise Unmapped("it has no result")
    items = [t() if callable(t) else t for t in cast("tuple[object, ...]", result)]
    return tuple(t for t in items if isinstance(t, Tensor))


def _of_part(c: Call, part: int) -> Call:
    """The call for real parts (0) or imaginary ones (1); a real tensor among complex ones has no imaginary part."""

    def chosen(value: object) -> object:
        match value:
            case Pair(real, imag):
                return imag if part else real
            case tuple():
                return tuple(chosen(v) for v in cast("tuple[object, ...]", value))
            case Tensor() if is_float(value.dtype):
                return c.fusion.full(value.shape, 0.0, value.dtype) if part else value
            case complex() | float():
                raise Unmapped(f"the number {value} among complex tensors")
            case _:
                return value

    meta = c.node.meta
    told = part_meta(meta) if isinstance(meta, TensorMeta) else meta
    args = tuple(chosen(a) for a in c.args)
    inner = Call(replace(c.node, meta=told), c.fusion, args, {k: chosen(v) for k, v in c.kwargs.items()})
    inner.used = c.used  # an argument read for a part counts as read
    return inner


for _name in _LINEAR:
    handles_complex(f"aten.{_name}")(_by_part(f"aten.{_name}"))
