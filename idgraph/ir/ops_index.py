"""Between which numbers the values of a tensor lie, from how they are made; integers wrap around as the type does.

Writing at loaded coordinates, and advanced indexing, with torch's names, arguments and meaning.

Duplicates: `scatter_add` and an accumulating `index_put` add all of them up; of several writers of one element without
accumulation, where torch promises nothing, the last one in row-major order of the index wins, on every target.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from idgraph.arith import Expr, interval, is_true
from idgraph.errors import OperationError, arguments
from idgraph.ir.argument_resolution import attr, listed
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import DType, Scalar, int_limits, is_float, is_integer, is_short_float
from idgraph.ir.fusion import Tensor, TensorExpr, apply_op
from idgraph.ir.gather_scatter_builders import ADDED
from idgraph.ir.op_table import VIEWS
from idgraph.ir.ops_pointwise import add, cast, checked, lt, where
from idgraph.ir.ops_view import at_user_line, pad, permute, resolve_dim
from idgraph.ir.transaction import transactional_build

Bounds = tuple[float, float]  # the least and the largest value; of integers both are exact

MOST = 2**48  # elements of an axis whose extent has no bound: no memory holds more
_DEPTH = 64  # operations behind each other that are followed
_ROUNDED = 2.0**-7  # what one operation of bfloat16 may add, relatively
_FINITE = {"float16": 6e4}  # below the largest number of a type; of others:
_LARGE = 2.0**120
# The values of operand 0, at other places or in another type.
_SAME = VIEWS | {"cast", "gather", "index_select", "index", "amax", "amin"}
_OPERATIONS = frozenset(
    {"add", "sub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide", "where", "cat", "sum"}
)


def value_bounds(t: Tensor) -> Bounds:
    """The least and the largest value of an element of ``t``; all that its type holds where nothing is known.

    A result that may leave the range of its type wraps around, so that any number of the type is possible.
    """
    return _Known().of(t, _DEPTH)


def _widest(dtype: DType) -> Bounds:
    if dtype == "bool":
        return 0, 1
    return int_limits(dtype) if is_integer(dtype) else (-inf, inf)


class _Known:
    """The bounds of one question, each tensor once: operands are shared."""

    def __init__(self) -> None:
        self._found: dict[Tensor, Bounds] = {}

    def of(self, t: Tensor, depth: int) -> Bounds:
        """The bounds of a tensor's values."""
        found = self._found.get(t)
        if found is not None:
            return found
        widest, e = _widest(t.dtype), t.definition
        made = self._unrounded(e, depth - 1) if e is not None and depth else None
        room = widest
        if made is not None and is_float(t.dtype):
            made = made[0] - abs(made[0]) * _ROUNDED, made[1] + abs(made[1]) * _ROUNDED
            most = _FINITE.get(t.dtype, _LARGE)  # beyond it a result may be infinite, and NaN what is made of it
            room = -most, most
        found = made if made is not None and room[0] <= made[0] <= made[1] <= room[1] else widest
        self._found[t] = found
        return found

    def _operand(self, a: Tensor | Scalar | Expr, depth: int) -> Bounds:
        if isinstance(a, Tensor):
            return self.of(a, depth)
        if isinstance(a, Expr):
            low, high = interval(a)
            return -inf if low is None else low, inf if high is None else high
        return a, a

    def _unrounded(self, e: TensorExpr, depth: int) -> Bounds | None:
        """The bounds of a result before it is a number of its type; None where nothing is known."""
        if e.op == "where" and _is_wrapped(e.args):
            return 0, int_limits("int64")[1]  # whatever is left of it is refused by the bounds of the axis
        if e.op == "iota":
            return _iota_range(e)
        if e.op == "full":
            value = e.attrs["value"]
            return (value, value) if isinstance(value, (int, float)) else None
        if e.op in _SAME:
            low, high = self._operand(e.args[0], depth)
            return (int(low), int(high)) if _is_cut(e) and max(-low, high) < inf else (low, high)
        if e.op not in _OPERATIONS:
            return None
        given = [self._operand(a, depth) for a in (e.args[1:] if e.op == "where" else e.args)]
        # a float without bounds may be NaN, and so may be what is made of it
        return _combined(e, given) if all(-inf < low and high < inf for low, high in given) else None


def _is_cut(e: TensorExpr) -> bool:
    """Whether floats become integers, which cuts them towards zero."""
    return e.op == "cast" and is_integer(e.outputs[0].dtype)


def _combined(e: TensorExpr, given: Sequence[Bounds]) -> Bounds | None:
    """The bounds of a result of operands."""
    (low, high), (least, most) = given[0], given[-1]
    match e.op:
        case "add":
            return low + least, high + most
        case "sub":
            return low - most, high - least
        case "mul":
            corners = [a * b for a in (low, high) for b in (least, most)]
            return min(corners), max(corners)
        case "maximum":
            return max(low, least), max(high, most)
        case "minimum":
            return min(low, least), min(high, most)
        case "where" | "cat":
            return min(b[0] for b in given), max(b[1] for b in given)
        case "remainder":
            return (0, most) if least > 0 else None
        case "fmod":
            return (0, high) if low >= 0 and least >= 0 else None
        case "floor_divide":
            return (0, high) if low >= 0 and least >= 0 and is_integer(e.outputs[0].dtype) else None
        case _:  # a sum
            times = _terms(e)
            return min(low * times, low), max(high * times, high)


def _terms(e: TensorExpr) -> int:
    """At most so many terms has each sum."""
    read, made = e.inputs[0].shape, e.outputs[0].shape  # without the axes that are added up
    sizes = [int(n) for n in (*read, *made) if not isinstance(n, Expr)]
    if len(sizes) < len(read) + len(made):
        return MOST
    return prod(sizes[: len(read)]) // max(prod(sizes[len(read) :]), 1)


def _iota_range(e: TensorExpr) -> Bounds | None:
    start, step, n = e.attrs["start"], e.attrs["step"], e.outputs[0].logical[0].extent
    if not isinstance(start, (int, float)) or not isinstance(step, (int, float)):
        return None
    high = interval(n)[1]
    last = start + step * max((MOST if high is None else min(high, MOST)) - 1, 0)
    return min(start, last), max(start, last)


def _is_wrapped(args: Sequence[Tensor | Scalar | Expr]) -> bool:
    """``where(i < 0, i + n, i)``: made by `idgraph.ir.ops_index.counted_from_front`."""
    condition, moved, index = args
    if not isinstance(condition, Tensor) or not isinstance(moved, Tensor):
        return False
    test, shift = condition.definition, moved.definition
    return (
        test is not None and shift is not None and test.op == "lt" and shift.op == "add"
        and test.args[0] is index and shift.args[0] is index and test.args[1] == 0
    )  # fmt: skip


def counted_from_front(index: Tensor, extent: int | Expr) -> Tensor:
    """An index of advanced indexing, whose negative values count from the end; as it is where none can be negative.

    >>> import idgraph as ig
    >>> i = ig.Fusion("f").input("i", shape=(4,), dtype="int64")
    >>> counted_from_front(i, 10).definition.op
    'where'
    """
    if value_bounds(index)[0] >= 0:
        return index
    return where(lt(index, 0), add(index, extent), index)


def _wide(dtype: DType) -> DType:
    """The type in which elements of ``dtype`` are added up: halves in float32, small integers in int32."""
    if dtype in ADDED:
        return dtype
    return "float32" if is_short_float(dtype) else "int32"


@arguments(OperationError, keep=transactional_build)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor, *, name: str | None = None) -> Tensor:
    """x with src added at the indices: out[index[i, j], j] += src[i, j] for dim 0; duplicates all count.

    index may be smaller than x off ``dim``, src larger than index (its front part is taken). Indices run from 0 to the
    extent - 1 (a checked run and `idgraph.validate` refuse others). float16 and bfloat16 are added up in float32,
    small integers and bool in int32, and rounded once.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, s = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 1), dtype="int64"), f.input("s", shape=(4, 1))
    >>> t = ig.scatter_add(x, 1, i, s)
    >>> t.shape, [d.kind for d in t.logical]
    ((4, 9), ['iteration', 'gather_scatter'])
    >>> [str(c) for c in ig.IdModel(f).access(t.definition, t).coordinates]
    ['i0', 'ld1']
    """
    at = resolve_dim(checked(x, "scatter_add"), dim, "scatter_add")
    with at_user_line("scatter_add"):
        source = _crop_to_index(checked(src, "scatter_add"), checked(index, "scatter_add"))
        _same_type(x, source)
        wide = _wide(x.dtype)
        if wide == x.dtype:
            return apply_op("scatter_add", x, index, source, name=name, dim=at)
        total = apply_op("scatter_add", cast(x, wide), index, cast(source, wide), dim=at)
        return cast(total, x.dtype, name=name)


@arguments(OperationError, keep=transactional_build)
def scatter(
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | Scalar | None = None,
    *,
    value: Scalar | None = None,
    name: str | None = None,
) -> Tensor:
    """x with src, a tensor or a number (or ``value``), at the indices: out[index[i, j], j] = src[i, j] for dim 0.

    Of several writers of one element the last one along ``dim`` wins. Shapes and bounds are those of `scatter_add`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 1), dtype="int64")
    >>> ig.scatter(x, 1, i, 1.0).definition
    t2[I4, g6] = scatter(x[I0, I1], i[I2, b3], 1.0; dim=1)
    """
    at = resolve_dim(checked(x, "scatter"), dim, "scatter")
    with at_user_line("scatter"):
        checked(index, "scatter")
        written = value if src is None else src
        if written is None or (src is not None and value is not None) or isinstance(value, Tensor):
            raise OperationError("takes a tensor src or a number value, one of them")
        if isinstance(written, Tensor):
            written = _crop_to_index(written, index)
            _same_type(x, written)
        return apply_op("scatter", x, index, written, name=name, dim=at)


def _same_type(x: Tensor, src: Tensor) -> None:
    if x.dtype != src.dtype:
        raise OperationError(
            f"src {src.name} is {src.dtype}, {x.name} is {x.dtype}",
            hint=f'torch refuses that too: ig.cast(src, "{x.dtype}")',
        )


def _crop_to_index(src: Tensor, index: Tensor) -> Tensor:
    """src cut to the index's shape, as torch allows it to be larger."""
    if src.ndim != index.ndim:
        raise OperationError(f"src {src.name} has {src.ndim} axes, index {index.name} has {index.ndim}")
    pads: list[int | Expr] = []
    cuts = False
    for p in reversed(range(src.ndim)):
        a, b = src.axes[p].extent, index.axes[p].extent
        if not is_true(b <= a):
            raise OperationError(f"axis {p} of src {src.name} has extent {a}, the index {b}")
        cuts = cuts or not is_true(a.eq(b))
        pads += [0, attr(b - a)]
    return pad(src, pads) if cuts else src


def _indices(x: Tensor, indices: Sequence[Tensor | None], op: str) -> tuple[list[int], list[Tensor]]:
    """Indexed axes and their index tensors, negative values counted from the end."""
    found = listed(indices, f"{op}: indices")
    if len(found) > x.ndim:
        raise OperationError(f"{len(found)} indices for {x.name}, which has {x.ndim} axes")
    dims = [p for p, t in enumerate(found) if t is not None]
    if not dims:
        raise OperationError("takes at least one index tensor")
    made: list[Tensor] = []
    for p in dims:
        t = checked(found[p], op)
        if not is_integer(t.dtype):
            raise OperationError(
                f"index {t.name} is {t.dtype}",
                hint="an index tensor holds integers; a mask selects a number of elements that depends on values: "
                "use ig.where",
            )
        made.append(counted_from_front(t, attr(x.axes[p].extent)))
    return dims, made


def _to_front(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, list[int], list[int]]:
    """(x, indexed axes, order of axes): axes that lie apart move to the front, as torch does it."""
    if dims == list(range(dims[0], dims[0] + len(dims))):
        return x, list(dims), list(range(x.ndim))
    order = [*dims, *(p for p in range(x.ndim) if p not in dims)]
    return permute(x, order), list(range(len(dims))), order


@arguments(OperationError, keep=transactional_build)
def index_get(x: Tensor, indices: Sequence[Tensor | None], *, name: str | None = None) -> Tensor:
    """``x[i, j, ...]`` of torch: elements at index tensors that broadcast against each other, None for a whole axis.

    Negative indices count from the end. Axes of the index tensors stand where the indexed ones stood; in front if
    these lie apart.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(9, 4, 5)), f.input("i", shape=(2, 3), dtype="int64")
    >>> ig.index_get(x, [None, i]).shape
    (9, 2, 3, 5)
    """
    with at_user_line("index_get"):
        dims, found = _indices(checked(x, "index_get"), indices, "index_get")
        source, at, _ = _to_front(x, dims)
        return apply_op("index", source, *found, name=name, dims=tuple(at))


@arguments(OperationError, keep=transactional_build)
def index_put(
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor | Scalar,
    accumulate: bool = False,
    *,
    name: str | None = None,
    in_place: bool = False,
) -> Tensor:
    """x with values written, or added, at ``x[indices]`` (see `index`); values broadcast to the written elements.

    Without ``accumulate`` the last of several writers of one element wins. Negative indices count from the end.
    ``in_place``: kernels may write the memory of x, an input that nothing else reads; the output is then that array.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, v = f.input("x", shape=(9, 4)), f.input("i", shape=(3,), dtype="int64"), f.input("v", shape=(3, 4))
    >>> ig.index_put(x, [i], v, accumulate=True).shape
    (9, 4)
    """
    with at_user_line("index_put"):
        dims, found = _indices(checked(x, "index_put"), indices, "index_put")
        if isinstance(values, Tensor):
            _same_type(x, values)
        if not isinstance(accumulate, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OperationError(f"accumulate {accumulate!r} is neither True nor False")
        return put_at(x, dims, found, values, accumulate, name, in_place)


def put_at(
    x: Tensor, dims: Sequence[int], found: Sequence[Tensor], values: Tensor | Scalar, accumulate: bool,
    name: str | None = None, in_place: bool = False,
) -> Tensor:  # fmt: skip
    """`index_put` at indices of the axes ``dims`` that count from 0: a negative one is out of range."""
    target, at, order = _to_front(x, list(dims))
    wide = _wide(x.dtype) if accumulate else x.dtype
    attrs: dict[str, Attr] = {"dims": tuple(at), "accumulate": accumulate}
    attrs |= {"in_place": True} if in_place else {}
    if wide != x.dtype:
        target = cast(target, wide)
        values = cast(values, wide) if isinstance(values, Tensor) else values
    moved, narrow = order != list(range(x.ndim)), wide != x.dtype
    put = apply_op("index_put", target, *found, values, name=None if moved or narrow else name, **attrs)
    if narrow:
        put = cast(put, x.dtype, name=None if moved else name)
    return permute(put, [order.index(p) for p in range(x.ndim)], name=name) if moved else put
