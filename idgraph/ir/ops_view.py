"""Operations that move, drop, repeat or join axes, with torch's names, meaning and argument order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from idgraph.arith import Expr, as_expr
from idgraph.errors import IdGraphError, OperationError, arguments, user_line
from idgraph.ir.argument_resolution import attr, listed, plain, resolve_slice, shape_text, slice_dims
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import DTypeLike, Scalar
from idgraph.ir.fusion import Fusion, Tensor, apply_op, current_fusion
from idgraph.ir.op_builders import check_axis
from idgraph.ir.ops_pointwise import checked
from idgraph.ir.transaction import transactional_build

if TYPE_CHECKING:
    from collections.abc import Generator

Dims = int | Sequence[int] | None
Extents = Sequence[int | Expr]


@contextmanager
def at_user_line(op: str) -> Generator[None, None, None]:
    """Errors of argument checks outside a builder get the operation and the user's line too."""
    try:
        yield
    except IdGraphError as error:
        if not error.where:
            error.where = str(user_line() or "")
        if not error.what.startswith(f"{op}: "):
            error.what = f"{op}: {error.what}"
        raise


def resolve_dims(x: Tensor, dim: Dims, op: str) -> tuple[int, ...]:
    """Positions of ``dim`` (None: all axes), counted from the front, each once."""
    with at_user_line(op):
        given = plain(dim)
        wanted = range(x.ndim) if given is None else [given] if isinstance(given, int) else listed(given, "dims")
        found = tuple(check_axis(x, plain(d)) for d in wanted)
        if len(set(found)) != len(found):
            raise OperationError(f"dims {tuple(wanted)} name an axis of {x.name} twice")
        return found


def resolve_dim(x: Tensor, dim: int, op: str) -> int:
    """Position of the one axis ``dim``, counted from the front."""
    with at_user_line(op):
        return check_axis(x, plain(dim))


def _flat(args: Sequence[object]) -> tuple[object, ...]:
    """``f(x, 2, 3)`` and ``f(x, (2, 3))`` alike."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], (tuple, list)) else tuple(args)  # type: ignore[arg-type]


def _either(given: Sequence[object], named: object, word: str) -> Sequence[object]:
    """Arguments given one by one, or all under their name."""
    if named is None:
        return given
    if given:
        raise OperationError(f"{word} is given twice: {tuple(given)!r} and {word}={named!r}", where=user_line())
    return (named,)


def _extents(args: Sequence[object], op: str) -> tuple[Attr, ...]:
    found: list[Attr] = []
    for e in map(plain, _flat(args)):
        if isinstance(e, bool) or not isinstance(e, (int, Expr)):
            raise OperationError(f"{op}: {e!r} is not an extent", where=user_line())
        found.append(attr(e))
    return tuple(found)


def _ints(args: Sequence[object], op: str) -> tuple[int, ...]:
    found = tuple(a for a in map(plain, _flat(args)) if isinstance(a, int) and not isinstance(a, bool))
    if len(found) != len(_flat(args)):
        raise OperationError(f"{op}: {args!r} are not all ints", where=user_line())
    return found


@arguments(OperationError, keep=transactional_build)
def unsqueeze(x: Tensor, dim: int | Sequence[int], *, name: str | None = None) -> Tensor:
    """New axes of extent 1 at positions ``dim`` of the result.

    >>> import idgraph as ig
    >>> ig.unsqueeze(ig.Fusion("f").input("x", shape=(4, 8)), 1).shape
    (4, 1, 8)
    """
    given = plain(dim)
    dims = (given,) if isinstance(given, int) else tuple(map(plain, listed(given, "unsqueeze: dim")))
    return apply_op("unsqueeze", checked(x, "unsqueeze"), dims=_ints(dims, "unsqueeze"), name=name)


@arguments(OperationError, keep=transactional_build)
def broadcast(x: Tensor, is_broadcast: Sequence[bool | int | Expr], *, name: str | None = None) -> Tensor:
    """nvFuser's broadcast: a flag for each axis of the result, True for a new axis of extent 1. A shape expands.

    >>> import idgraph as ig
    >>> x = ig.Fusion("f").input("x", shape=(4,))
    >>> ig.broadcast(x, [True, False]).shape, ig.broadcast(x, (3, 4)).shape
    ((1, 4), (3, 4))
    """
    flags = list(listed(is_broadcast, "broadcast"))
    if not all(isinstance(b, bool) for b in flags):
        return expand(x, *flags, name=name)
    checked(x, "broadcast")
    if flags.count(False) != x.ndim:
        raise OperationError(
            f"broadcast: {flags.count(False)} flags are False, {x.name} has {x.ndim} axes",
            where=user_line(),
            hint="one False for each axis of the operand",
        )
    return unsqueeze(x, [p for p, b in enumerate(flags) if b], name=name)


@arguments(OperationError, keep=transactional_build)
def squeeze(x: Tensor, dim: Dims = None, *, name: str | None = None) -> Tensor:
    """Drop axes of extent 1: those named (as in torch, others stay as they are), or all.

    >>> import idgraph as ig
    >>> ig.squeeze(ig.Fusion("f").input("x", shape=(4, 1, 8)), 1).shape
    (4, 8)
    """
    found = resolve_dims(checked(x, "squeeze"), dim, "squeeze")
    return apply_op("squeeze", x, dims=tuple(d for d in found if x.axes[d].is_broadcast), name=name)


@arguments(OperationError, keep=transactional_build)
def expand(x: Tensor, *shape: int | Expr | Extents | bool, name: str | None = None) -> Tensor:
    """Repeat axes of extent 1 (-1 keeps an extent; new axes may stand in front).

    >>> import idgraph as ig
    >>> ig.expand(ig.Fusion("f").input("x", shape=(4, 1)), 2, -1, 8).shape
    (2, 4, 8)
    """
    return apply_op("expand", checked(x, "expand"), shape=_extents(shape, "expand"), name=name)


@arguments(OperationError, keep=transactional_build)
def repeat(x: Tensor, *repeats: int | Sequence[int], name: str | None = None) -> Tensor:
    """Tile each axis, torch's repeat: new axes in front where there are more numbers than axes.

    >>> import idgraph as ig
    >>> ig.repeat(ig.Fusion("f").input("x", shape=(4, 3)), 2, 1, 5).shape
    (2, 4, 15)
    """
    counts = _ints(repeats, "repeat")
    lead = len(counts) - checked(x, "repeat").ndim
    if lead < 0 or any(c < 0 for c in counts):
        raise OperationError(f"repeat: {counts} for the {x.ndim} axes of {x.name}", where=user_line())
    shape = [*(1 for _ in range(lead)), *x.shape]
    result = unsqueeze(x, list(range(lead))) if lead else x
    between = unsqueeze(result, [2 * p for p in range(len(counts))])
    wide = expand(between, [v for c, n in zip(counts, shape, strict=True) for v in (c, n)])
    return reshape(wide, [attr(as_expr(n) * c) for c, n in zip(counts, shape, strict=True)], name=name)


@arguments(OperationError, keep=transactional_build)
def permute(
    x: Tensor, *order: int | Sequence[int], dims: Sequence[int] | None = None, name: str | None = None
) -> Tensor:
    """Axis p of the result is axis ``dims[p]`` of x; one after the other, as a list, or named ``dims``.

    >>> import idgraph as ig
    >>> ig.permute(ig.Fusion("f").input("x", shape=(2, 3, 4)), 2, 0, 1).shape
    (4, 2, 3)
    """
    return apply_op("permute", checked(x, "permute"), dims=_ints(_either(order, dims, "dims"), "permute"), name=name)


@arguments(OperationError, keep=transactional_build)
def transpose(x: Tensor, dim0: int, dim1: int, *, name: str | None = None) -> Tensor:
    """Exchange two axes.

    >>> import idgraph as ig
    >>> ig.transpose(ig.Fusion("f").input("x", shape=(2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    a, b = (resolve_dim(checked(x, "transpose"), d, "transpose") for d in (dim0, dim1))
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return permute(x, order, name=name)


@arguments(OperationError, keep=transactional_build)
def reshape(x: Tensor, *extents: int | Expr | Extents, shape: Extents | None = None, name: str | None = None) -> Tensor:
    """The same elements in row-major order under another shape; one extent may be -1.

    >>> import idgraph as ig
    >>> t = ig.reshape(ig.Fusion("f").input("x", shape=(6, 4)), 3, -1)
    >>> t.shape, t.domain.exprs
    ((3, 8), (Merge(I2[6], I3[4] -> I4[24]), Split(I4[24] -> I5[3], I6[8]; 8)))
    """
    return apply_op(
        "reshape", checked(x, "reshape"), shape=_extents(_either(extents, shape, "shape"), "reshape"), name=name
    )


@arguments(OperationError, keep=transactional_build)
def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1, *, name: str | None = None) -> Tensor:
    """Merge the axes from ``start_dim`` to ``end_dim`` (inclusive).

    >>> import idgraph as ig
    >>> ig.flatten(ig.Fusion("f").input("x", shape=(2, 3, 4)), 1).shape
    (2, 12)
    """
    if checked(x, "flatten").ndim == 0:
        return reshape(x, 1, name=name)
    first, last = (resolve_dim(x, d, "flatten") for d in (start_dim, end_dim))
    if first > last:
        raise OperationError(f"flatten: start_dim {first} is right of end_dim {last}", where=user_line())
    total = as_expr(1)
    for d in x.axes[first : last + 1]:
        total = total * d.extent
    return reshape(x, [*x.shape[:first], attr(total), *x.shape[last + 1 :]], name=name)


@arguments(OperationError, keep=transactional_build)
def slice(
    x: Tensor,
    dim: int = 0,
    start: int | Expr | None = None,
    end: int | Expr | None = None,
    step: int | None = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """``x[start:end:step]`` along ``dim``, bounds as in NumPy (negative counts from the end, then clamped).

    >>> import idgraph as ig
    >>> t = ig.slice(ig.Fusion("f").input("x", shape=(64,)), 0, 32)
    >>> t.shape, t.domain.exprs
    ((32,), (Resize(I1[64] -> I2[32]; -32, 0),))
    """
    at = resolve_dim(checked(x, "slice"), dim, "slice")
    with at_user_line("slice"):
        return slice_dims(x, [(at, start, end, step)], name)


@arguments(OperationError, keep=transactional_build)
def select(x: Tensor, dim: int, index: int | Expr, *, name: str | None = None) -> Tensor:
    """One index of axis ``dim``, which is dropped.

    >>> import idgraph as ig
    >>> ig.select(ig.Fusion("f").input("x", shape=(4, 8)), 1, -1).shape
    (4,)
    """
    at = resolve_dim(checked(x, "select"), dim, "select")
    with at_user_line("select"):
        place = attr(index)
    place = x.axes[at].extent + place if isinstance(place, int) and place < 0 else place
    return apply_op("select", x, dim=at, index=attr(place), name=name)


@arguments(OperationError, keep=transactional_build)
def pad(x: Tensor, pad: Sequence[int | Expr], value: Scalar = 0, *, name: str | None = None) -> Tensor:
    """torch's constant pad: (left, right) elements for the last axis first; negative pads cut.

    >>> import idgraph as ig
    >>> ig.pad(ig.Fusion("f").input("x", shape=(4, 8)), (1, -2, 3, 0)).shape
    (7, 7)
    """
    pairs = list(listed(pad, "pad"))
    nested = any(isinstance(p, (tuple, list)) for p in pairs)  # NumPy's
    if nested or len(pairs) % 2 or len(pairs) > 2 * checked(x, "pad").ndim:
        raise OperationError(
            f"pad: {len(pairs)} {'pairs' if nested else 'numbers'} for tensor {x.name} with {x.ndim} axes",
            where=user_line(),
            hint="a flat list: left, right for the last axis, then for the one before it, ...",
        )
    left: list[Attr] = [0] * x.ndim
    right: list[Attr] = [0] * x.ndim
    for k in range(len(pairs) // 2):
        left[x.ndim - 1 - k], right[x.ndim - 1 - k] = attr(pairs[2 * k]), attr(pairs[2 * k + 1])
    return apply_op("pad", x, left=tuple(left), right=tuple(right), value=value, name=name)


@arguments(OperationError, keep=transactional_build)
def cat(tensors: Sequence[Tensor], dim: int = 0, *, name: str | None = None) -> Tensor:
    """Join tensors along ``dim``; all other extents must agree.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("x", shape=(64,))
    >>> ig.cat([t[32:], t[:32]], dim=0).domain.exprs
    (Resize(I7[32] -> I6[64]; 0, 32), Resize(I8[32] -> I6[64]; 32, 0))
    """
    if not listed(tensors, "cat"):
        raise OperationError("cat: no tensor to join", where=user_line(), hint="ig.cat([x, y], dim)")
    at = resolve_dim(checked(tensors[0], "cat"), dim, "cat")
    return apply_op("cat", *tensors, dim=at, name=name)


@arguments(OperationError, keep=transactional_build)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, name: str | None = None) -> Tensor:
    """Join tensors of one shape along a new axis at ``dim``.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("x", shape=(4, 8))
    >>> ig.stack([t, t], dim=-1).shape
    (4, 8, 2)
    """
    if not listed(tensors, "stack"):
        raise OperationError("stack: no tensor to join", where=user_line(), hint="ig.stack([x, y], dim)")
    first = checked(tensors[0], "stack")
    dim = resolve_stacked(dim, first.ndim + 1)
    for n, t in enumerate(tensors):
        if checked(t, "stack").ndim != first.ndim:
            raise OperationError(
                f"stack: operand {n}, {t.name}, has shape {shape_text(t)}, {first.name} has {shape_text(first)}",
                where=user_line(),
                hint="tensors of one shape: unsqueeze, expand or reshape one of them",
            )
    return cat([unsqueeze(t, dim) for t in tensors], dim, name=name)


def resolve_stacked(dim: object, rank: int) -> int:
    """Position of the new axis in a result of ``rank`` axes."""
    place = plain(dim)
    if isinstance(place, bool) or not isinstance(place, int) or not -rank <= place < rank:
        raise OperationError(f"stack: the result has {rank} axes, {dim!r} is not one of them", where=user_line())
    return place % rank


@arguments(OperationError, keep=transactional_build)
def roll(x: Tensor, shifts: int | Expr | Sequence[int | Expr], dims: Dims = None, *, name: str | None = None) -> Tensor:
    """Element c of an axis goes to (c + shift) mod extent; without ``dims`` the flattened tensor is rolled.

    >>> import idgraph as ig
    >>> ig.roll(ig.Fusion("f").input("x", shape=(64,)), 3, 0).domain.exprs
    (Roll(I1[64] -> I2[64]; 3),)
    """
    amount = plain(shifts)
    given = (amount,) if isinstance(amount, (int, Expr)) else listed(amount, "roll: shifts")
    amounts = tuple(attr(s) for s in given)
    if dims is None:
        flat = apply_op("roll", flatten(x), shifts=amounts, dims=(0,))
        return reshape(flat, *x.shape, name=name)
    along = plain(dims)
    wanted = (along,) if isinstance(along, int) else tuple(listed(along, "roll: dims"))
    if len(wanted) == len(amounts):  # an axis named twice turns twice, as in torch
        turned: dict[int, Expr] = {}
        for d, amount in zip(wanted, given, strict=True):
            at = resolve_dim(checked(x, "roll"), d, "roll")
            turned[at] = turned[at] + amount if at in turned else as_expr(amount)
        wanted, amounts = tuple(turned), tuple(map(attr, turned.values()))
    return apply_op("roll", checked(x, "roll"), shifts=amounts, dims=resolve_dims(x, wanted, "roll"), name=name)


@arguments(OperationError, keep=transactional_build)
def flip(
    x: Tensor, *axes: int | Sequence[int], dims: int | Sequence[int] | None = None, name: str | None = None
) -> Tensor:
    """These axes backwards: one after the other, as a list, or named ``dims``.

    >>> import idgraph as ig
    >>> ig.flip(ig.Fusion("f").input("x", shape=(4, 8)), 1).domain.exprs
    (Stride(I3[8] -> I4[8]; 7, -1),)
    """
    given = _ints(_either(axes, dims, "dims"), "flip")
    if not axes and dims is None:
        raise OperationError("flip: no axis is named", where=user_line(), hint="ig.flip(x, 0) or ig.flip(x, (0, 1))")
    return apply_op("flip", checked(x, "flip"), dims=resolve_dims(x, given, "flip"), name=name)


@arguments(OperationError, keep=transactional_build)
def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | Expr | None = None,
    end: int | Expr | None = None,
    step: int | None = 1,
    *,
    name: str | None = None,
) -> Tensor:
    """x with ``x[start:end:step]`` along ``dim`` replaced by ``src``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, s = f.input("x", shape=(8,)), f.input("s", shape=(3,))
    >>> ig.slice_scatter(x, s, 0, 2, 5).shape
    (8,)
    """
    at = resolve_dim(checked(x, "slice_scatter"), dim, "slice_scatter")
    with at_user_line("slice_scatter"):
        a, b, c = resolve_slice(x.axes[at].extent, start, end, step)
    attrs: dict[str, Attr] = {"dim": at, "start": attr(a), "stop": attr(b), "step": c}
    return apply_op("slice_scatter", x, checked(src, "slice_scatter"), name=name, **attrs)


@arguments(OperationError, keep=transactional_build)
def full(
    shape: Extents,
    value: Scalar,
    dtype: DTypeLike | None = None,
    *,
    fusion: Fusion | None = None,
    name: str | None = None,
) -> Tensor:
    """A tensor of one value in ``fusion`` (default: the fusion made last).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.full((2, 3), 1.5).dtype
    'float32'
    """
    return (fusion if fusion is not None else current_fusion()).full(shape, value, dtype, name=name)


@arguments(OperationError, keep=transactional_build)
def iota(
    n: int | Expr,
    start: int = 0,
    step: int = 1,
    dtype: DTypeLike = "int64",
    *,
    fusion: Fusion | None = None,
    name: str | None = None,
) -> Tensor:
    """The ``n`` numbers start, start + step, ... in ``fusion`` (default: the fusion made last).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> ig.iota(8).shape
    (8,)
    """
    return (fusion if fusion is not None else current_fusion()).iota(n, start, step, dtype, name=name)
