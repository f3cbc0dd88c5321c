"""Constants folded before anything is scheduled: a tensor of one number becomes `full`, or a number in its readers.

A decomposition computes with constants as with tensors: a shift by 2 compares 2, takes the lesser of 2 and 62, raises
2 to it, each a kernel of one element. Only numbers that every target has alike are folded: finite ones, whose zero is
not negative.

Index arithmetic in the loops of the operation that gathers or scatters by it.

``x[i]`` with ``i = where(j < 0, j + n, j)`` loops over the axes of ``j`` and those of x that are not indexed. Loops
that merge both could not be followed by ``i``, which lacks the latter, so ``i`` would have a kernel of its own. Index
tensors that are *aligned* have one element along those axes: what computes them, from ``j`` on, is aligned with them.
"""

# The functions of `operator` have no types:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeGuard

from idgraph.errors import OperationError, ScheduleError, arguments
from idgraph.ir import DType, Fusion, LoadedCoordinate, Tensor, TensorExpr, check_fusion
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.axis_read import Attr
from idgraph.ir.clone import rewriting
from idgraph.ir.dtypes import ELEMENT_TYPES, Scalar, is_float, is_short_float, item_size
from idgraph.ir.op_table import OPERATIONS, POINTWISE, VIEWS, apply
from idgraph.ir.walks import reach
from idgraph.rewrite.canonicalize_views import RewriteRule, replace_operation, rewrite

EXACT = 1 << 24  # a float32 holds every integer up to this one


def _square(a: Any) -> Any:
    return a * a


def _both(a: Scalar, b: Scalar) -> bool:
    return bool(a) and bool(b)


def _logical_or(a: Scalar, b: Scalar) -> bool:
    return bool(a) or bool(b)


def _either(a: Scalar, b: Scalar) -> bool:
    return bool(a) != bool(b)


_INTEGERS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs,
    "maximum": max, "minimum": min, "square": _square, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "bitwise_not": operator.invert,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": pow,
}  # fmt: skip
_FLOATS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "abs": abs, "maximum": max, "minimum": min, "square": _square, "sqrt": math.sqrt, "exp": math.exp,
    "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "reciprocal": partial(operator.truediv, 1.0),
}  # fmt: skip
_TRUTHS: Mapping[str, Callable[..., Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "logical_not": operator.not_, "logical_and": _both, "logical_or": _logical_or, "logical_xor": _either,
}  # fmt: skip


@arguments(ScheduleError, first=True, keep=rewriting)
def fold_constants(fusion: Fusion) -> int:
    """Compute what follows from constants; returns the number of operations removed."""
    return folded(check_fusion(fusion, "fold_constants", ScheduleError))


def folded(fusion: Fusion) -> int:
    """`fold_constants` for a scheduler, whose own call guards the fusion."""
    before = len(fusion.exprs)
    known: dict[Tensor, Scalar] = {}
    for e in fusion.exprs:
        value = _uniform_value(e, known) if len(e.outputs) == 1 else None
        if value is not None:
            known[e.output] = value
    for e in fusion.exprs:
        if e.op in POINTWISE and e.output not in known and any(t in known for t in e.inputs):
            _with_numbers(e, known)
    _sweep(fusion, known)
    return before - len(fusion.exprs)


def _with_numbers(e: TensorExpr, known: Mapping[Tensor, Scalar]) -> None:
    """Let ``e`` read numbers for the tensors that are one, where it then computes the same."""
    fusion, t = e.output.fusion, e.output
    args = [known.get(a, a) if isinstance(a, Tensor) else a for a in e.args]
    if e.op == "where" and not isinstance(args[0], Tensor):
        picked = args[1] if args[0] else args[2]
        if isinstance(picked, Tensor):
            replace_operation(e, lambda: picked if picked.ndim == t.ndim else movement.expand(picked, list(t.shape)))
        return
    changed = [a for a, new in zip(e.args, args, strict=True) if isinstance(a, Tensor) and not isinstance(new, Tensor)]
    if not any(isinstance(a, Tensor) for a in args) or any(
        a.ndim and not _is_exact(known[a], "float32") for a in changed
    ):
        return
    build = partial(apply, fusion, e.op, args, e.attrs)
    mark = fusion.mark
    try:
        made = build()
        same = made.dtype == t.dtype and made.ndim == t.ndim
    except OperationError:  # a number that its neighbours' type does not hold
        same = False
    fusion.undo(mark)
    if same:
        replace_operation(e, build)


def _full(t: Tensor, value: Scalar) -> Tensor:
    return t.fusion.full([attr(d.extent) for d in t.axes], value, t.dtype)


def _sweep(fusion: Fusion, known: Mapping[Tensor, Scalar]) -> None:
    """Remove operations that nobody reads; those that are read become one number everywhere."""
    for e in reversed(fusion.exprs):
        t = e.outputs[0]
        if t not in known or t.definition is not e or t not in fusion.tensors:
            continue
        if not t.uses and not fusion.is_output(t):
            fusion.remove([e])
        elif e.op != "full":
            replace_operation(e, partial(_full, t, known[t]))


# values ---------------------------------------------------------------------------------------------------------------


def _uniform_value(e: TensorExpr, known: Mapping[Tensor, Scalar]) -> Scalar | None:
    """The one number that the output of ``e`` holds everywhere; None where it is not known."""
    dtype = e.outputs[0].dtype
    if e.op == "full":
        value = e.attrs["value"]
        return _representable(value, dtype) if isinstance(value, (bool, int, float)) else None
    if e.op in VIEWS:
        return known.get(e.inputs[0])
    if e.op not in POINTWISE:
        return None
    values = [known.get(a) if isinstance(a, Tensor) else a for a in e.args]
    if e.op == "where" and _is_number(values[0]):
        picked = values[1] if values[0] else values[2]
        return _representable(picked, dtype) if _is_number(picked) else None
    if not all(_is_number(v) for v in values):
        return None
    numbers = [v for v in values if _is_number(v)]
    if e.op in ("cast", "copy"):
        return _representable(numbers[0], dtype)
    wide = all(a.dtype == "float64" for a in e.args if isinstance(a, Tensor))
    if not wide and not all(_is_exact(v, "float32") for v in numbers if isinstance(v, float)):
        return None
    return _computed(e.op, numbers, dtype)


def _computed(op: str, numbers: list[Scalar], dtype: DType) -> Scalar | None:
    floats = any(isinstance(v, float) for v in numbers) or is_float(dtype)
    if floats and any(abs(v) > EXACT for v in numbers if not isinstance(v, float)):
        return None
    table: Mapping[str, Callable[..., Any]] = _TRUTHS if dtype == "bool" else _FLOATS if floats else _INTEGERS
    if op not in table or (floats and dtype != "bool" and not is_float(dtype)):
        return None
    if op == "pow" and not 0 <= numbers[1] < 64:
        return None
    if floats and dtype != "bool":
        numbers = [float(v) for v in numbers]
    elif not floats:
        numbers = [int(v) for v in numbers]
    try:
        found: Any = table[op](*numbers)
    except (ArithmeticError, ValueError):
        return None
    if floats and is_short_float(dtype):
        found = _rounded(float(found), "float32")
    return None if found is None else _representable(found, dtype)


def _is_number(value: object) -> TypeGuard[Scalar]:
    return isinstance(value, (bool, int, float))


def _representable(value: Scalar, dtype: DType) -> Scalar | None:
    """``value`` as a tensor of this type holds it; None where targets may differ."""
    if isinstance(value, float) and (not math.isfinite(value) or (value == 0.0 and math.copysign(1, value) < 0)):
        return None
    if dtype == "bool":
        return bool(value)
    if is_float(dtype):
        if not isinstance(value, float) and abs(value) > EXACT:
            return None
        return _rounded(float(value), dtype)
    bits, signed = 8 * item_size(dtype), ELEMENT_TYPES[dtype].signed
    if isinstance(value, float):
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        return int(value) if low <= int(value) < high else None
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _is_exact(value: Scalar, dtype: DType) -> bool:
    return not isinstance(value, float) or _rounded(value, dtype) == value


def _rounded(value: float, dtype: DType) -> float | None:
    """The nearest number of the type, halves to even; None beyond its range."""
    if dtype == "float64":
        return value
    try:
        if dtype == "float16":
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return None
    if dtype == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    found = float(struct.unpack("<f", struct.pack("<I", bits))[0])
    return found if math.isfinite(found) else None


MOST: Final = 12  # operations on an index that are computed again for each vector that it picks
SHIFTED: Final = frozenset({"unsqueeze", "squeeze", "slice", "flip", "roll"})  # with ``dims``, and no other axes


def align_indices(fusion: Fusion) -> None:
    """Align the index tensors that few operations compute; each then serves a single gather or scatter."""
    rewrite(fusion, RewriteRule(_INDEXED, _narrow_operands, _aligned))


def narrow_indices(fusion: Fusion) -> None:
    """The reverse: index tensors without the axes that are not indexed, as a user writes them."""
    rewrite(fusion, RewriteRule(_INDEXED, lambda e: _indexed(e) if e.attrs.get("aligned") is True else None, _narrow))


def long_indices(fusion: Fusion) -> set[Tensor]:
    """Index tensors of too many operations to compute them again for each vector that they pick."""
    kept: set[Tensor] = set()
    for e in fusion.exprs:
        found = _indexed(e)
        if found is None or e.attrs.get("aligned") is True:
            continue
        x, indices, dims = found
        if x.ndim > len(dims):
            kept.update(i for i in indices if i.ndim and _operation_count(i) > MOST)
    return kept


def has_formula_index(e: TensorExpr) -> bool:
    """Whether what ``e`` gathers by follows from coordinates only, by few operations on integers: nothing is loaded
    for it, so the gather is a view of its source.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i, j = f.input("x", shape=(8, 9)), f.iota(8), f.input("j", shape=(8,), dtype="int64")
    >>> at = [ig.maximum(i - 1, 0), ig.minimum(i + j, 7)]
    >>> [has_formula_index(ig.index_select(x, 0, k).definition) for k in at]
    [True, False]
    """
    loads = {r.operand for row in e.reads for r in row if isinstance(r, LoadedCoordinate)}
    return all(_is_formula(e.inputs[k]) for k in loads)


def _is_formula(t: Tensor) -> bool:
    made = [u.definition for u in reach([t], lambda u: () if u.definition is None else u.definition.inputs)]
    plain = sum(e is not None and e.op in POINTWISE for e in made)
    return plain <= MOST and all(e is not None and (e.op in ("iota", "full") or _follows(e.output, e)) for e in made)


_INDEXED: Final = frozenset({"embedding", "index_select", "index", "index_put"})
_Indexed = tuple[Tensor, Sequence[Tensor], tuple[int, ...]]


def _narrow_operands(e: TensorExpr) -> _Indexed | None:
    """The result of `_indexed`, where a few operations compute an index tensor that lacks axes."""
    found = None if e.attrs.get("aligned") is True else _indexed(e)
    if found is None:
        return None
    x, indices, dims = found
    return found if x.ndim > len(dims) and all(i.ndim for i in indices) and any(map(_is_few, indices)) else None


def _indexed(e: TensorExpr) -> _Indexed | None:
    """(what is indexed, the index tensors, the indexed axes) of an operation whose indices may lack axes."""
    if e.op == "embedding":
        return e.inputs[1], e.inputs[:1], (0,)
    x = e.inputs[0] if e.inputs else None
    if x is not None and e.op == "index_select" and isinstance(e.attrs["dim"], int):
        return x, e.inputs[1:2], (e.attrs["dim"] % x.ndim,)
    value = e.attrs.get("dims")
    if x is not None and e.op in ("index", "index_put") and isinstance(value, tuple):
        dims = tuple(d % x.ndim for d in value if isinstance(d, int))
        return x, e.inputs[1 : 1 + len(dims)], dims
    return None


def _is_few(t: Tensor) -> bool:
    """Whether a few plain operations on elements compute ``t`` from what is read, at least one of them."""
    return 0 < _operation_count(t) <= MOST


def _operation_count(t: Tensor) -> int:
    """Plain operations on elements that compute ``t`` from what is read."""

    def definition(u: Tensor) -> TensorExpr | None:
        return u.definition if u.definition is not None and _follows(u, u.definition) else None

    found = map(definition, reach([t], lambda u: () if (e := definition(u)) is None else e.inputs))
    return sum(e is not None and e.op in POINTWISE for e in found)


def _follows(t: Tensor, e: TensorExpr) -> bool:
    """Whether the operation that makes ``t`` can be aligned: on one element, or a view."""
    if t.fusion.is_output(t):
        return False
    if e.op in POINTWISE:
        return e.op not in OPERATIONS or OPERATIONS[e.op].cycles != "library"
    return e.op in SHIFTED or e.op in ("select", "reshape", "expand", "permute")


def _aligned(e: TensorExpr, found: _Indexed) -> Tensor:
    x, indices, dims = found
    before, after, rank = dims[0], x.ndim - 1 - dims[-1], max(i.ndim for i in indices)
    known: dict[tuple[Tensor, int, int], Tensor] = {}
    made = [_spread(i, before + rank - i.ndim, after, known) for i in indices]
    if e.op == "index_put":
        attrs: dict[str, Attr] = {**e.attrs, "dims": dims, "aligned": True}
        return apply(x.fusion, "index_put", (x, *made, *e.args[1 + len(dims) :]), attrs)
    return apply(x.fusion, "index", (x, *made), {"dims": dims, "aligned": True})


def _spread(t: Tensor, before: int, after: int, known: dict[tuple[Tensor, int, int], Tensor]) -> Tensor:
    """``t`` with this many axes of one element in front and behind, computed so from its sources on."""
    key = (t, before, after)
    e = t.definition
    if e is not None and e.op == "unsqueeze" and _follows(t, e):  # its axes in front and behind, as those of ``t``
        own = {*_shift_dims(e.attrs["dims"], t.ndim, 0)}
        front = next(p for p in range(t.ndim + 1) if p not in own)
        behind = next(p for p in range(t.ndim + 1) if t.ndim - 1 - p not in own)
        if front + behind == len(own):
            return _spread(e.inputs[0], before + front, after + behind, known)
    if key not in known:
        if e is None or not _follows(t, e):
            new = (*range(before), *range(before + t.ndim, before + t.ndim + after))
            known[key] = apply(t.fusion, "unsqueeze", (t,), {"dims": new}) if new else t
        elif e.op in POINTWISE:
            args = [_spread(a, before + t.ndim - a.ndim, after, known) if isinstance(a, Tensor) else a for a in e.args]
            known[key] = apply(t.fusion, e.op, tuple(args), dict(e.attrs))
        else:
            (source,) = e.inputs
            moved = _spread(source, before, after, known)
            known[key] = apply(t.fusion, e.op, (moved,), _shifted(e, source, before, after))
    return known[key]


def _has_unit_axes(a: Tensor, t: Tensor, before: int, after: int) -> bool:
    """Whether an operand of ``t`` has the axes of one element that ``t`` is to lose."""
    beside = (*a.axes[:before], *a.axes[a.ndim - after :])
    aligned = a.ndim == t.ndim or (t.definition is not None and t.definition.op not in POINTWISE)
    return aligned and a.ndim >= before + after and all(d.is_broadcast for d in beside)


def _shifted(e: TensorExpr, source: Tensor, before: int, after: int) -> Mapping[str, Attr]:
    """The attributes of a view when its operand gets (or loses: below 0) axes of one element in front and behind."""
    attrs, rank = dict(e.attrs), (e.output if e.op == "unsqueeze" else e.inputs[0]).ndim
    if e.op in SHIFTED:
        return {**attrs, "dims": _shift_dims(attrs["dims"], rank, before)}
    if e.op == "select":
        return {**attrs, "dim": _shift_dims((attrs["dim"],), rank, before)[0]}
    key = "dims" if e.op == "permute" else "shape"
    value = attrs[key]
    given: tuple[Attr, ...] = value if isinstance(value, tuple) else ()
    own: tuple[Attr, ...] = _shift_dims(given, rank, before) if e.op == "permute" else given
    if before <= 0 and after <= 0:
        return {**attrs, key: own[-before : len(own) + after]}
    last = range(before + source.ndim, before + source.ndim + after)
    front, behind = (range(before), last) if e.op == "permute" else ((1,) * before, (1,) * after)
    return {**attrs, key: (*front, *own, *behind)}


def _shift_dims(dims: Attr, rank: int, by: int) -> tuple[int, ...]:
    return tuple(d % rank + by for d in dims if isinstance(d, int)) if isinstance(dims, tuple) else ()


def _narrow(e: TensorExpr, found: _Indexed) -> Tensor:
    x, indices, dims = found
    known: dict[Tensor, Tensor] = {}
    made = [_stripped(i, dims[0], x.ndim - 1 - dims[-1], known) for i in indices]
    attrs = {k: v for k, v in e.attrs.items() if k != "aligned"}
    return apply(x.fusion, e.op, (x, *made, *e.args[1 + len(dims) :]), attrs)


def _stripped(t: Tensor, before: int, after: int, known: dict[Tensor, Tensor]) -> Tensor:
    """``t`` without that many axes of one element in front and behind."""
    if t not in known:
        e, drop = t.definition, (*range(before), *range(t.ndim - after, t.ndim))
        own = _shift_dims(e.attrs["dims"], t.ndim, 0) if e is not None and e.op == "unsqueeze" else ()
        if e is not None and own and {*drop} <= {*own}:
            rest = tuple(d - before for d in own if d not in drop)
            known[t] = apply(t.fusion, "unsqueeze", e.inputs, {"dims": rest}) if rest else e.inputs[0]
        elif e is None or not _follows(t, e) or not all(_has_unit_axes(a, t, before, after) for a in e.inputs):
            known[t] = apply(t.fusion, "squeeze", (t,), {"dims": drop})
        elif e.op not in POINTWISE:
            source = _stripped(e.inputs[0], before, after, known)
            known[t] = apply(t.fusion, e.op, (source,), _shifted(e, source, -before, -after))
        else:
            args = [_stripped(a, before, after, known) if isinstance(a, Tensor) else a for a in e.args]
            known[t] = apply(t.fusion, e.op, tuple(args), dict(e.attrs))
    return known[t]
