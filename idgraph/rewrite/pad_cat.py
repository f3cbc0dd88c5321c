"""Tensors that are written piece by piece with their own pieces, as reads at coordinates that wrap around.

PyTorch pads circularly by copies: the middle is written first, then each end from what the middle holds, axis by axis.
Inlined, every read of an end is a choice among all writes before it, several times over for each axis. Where each axis
of the result runs through an axis of one tensor cyclically, the result is that tensor at ``(i + c) % n``. Where the
pieces along the last axis are whole words, they stay pieces, joined once: they move in vectors.

Rows that are joined of a long piece and single elements, taken piece by piece.

A softmax with a sink, ``softmax(cat(x, s), 1)[:, :n]``, is computed over n + 1 columns, which no vector divides, and
stores all of them, as a slice of the result has loops of its own. Piece by piece, ``max(amax(x), s)`` and
``sum(exp(x - m)) + exp(s - m)`` are reductions over the n columns of x, and so is what the slice reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Final

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.errors import ScheduleError, arguments
from idgraph.ir import Fusion, Mapped, Tensor, TensorExpr, check_fusion, item_size
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_view as movement
from idgraph.ir.argument_resolution import attr
from idgraph.ir.clone import rewriting
from idgraph.ir.op_builders import REDUCTIONS, int_tuple, same_extent
from idgraph.ir.op_table import MOVES, OPERATIONS, POINTWISE, apply
from idgraph.ir.ops_reduce import index_select
from idgraph.ir.walks import operands, reach
from idgraph.rewrite.canonicalize_views import produced_by, replace_operation
from idgraph.rewrite.two_stage_reduction import finished, reduced_dims, stage, wide_type

WORDS = 8  # bytes: what pieces along the last axis are multiples of, to be read in vectors
Piece = tuple[int, int | None]  # elements, and the first of them in the other tensor; None: not of that tensor
Axis = tuple[Piece, ...] | None  # None: the whole axis


@arguments(ScheduleError, first=True, keep=rewriting)
def wrap_pieces(fusion: Fusion) -> int:
    """Rewrite what is put together cyclically from pieces of one tensor; returns the number of operations removed."""
    return fuse_circular_pad(check_fusion(fusion, "wrap_pieces", ScheduleError))


def fuse_circular_pad(fusion: Fusion) -> int:
    """`wrap_pieces` for a scheduler, whose own call guards the fusion."""
    before = len(fusion.exprs)
    if not any(e.op == "slice_scatter" for e in fusion.exprs):
        return 0
    forms: dict[Tensor, _Form] = {}
    for e in fusion.exprs:
        forms[e.output] = _form(e, forms)
    alive = set(fusion.exprs)
    for e in reversed(fusion.exprs):
        if e.op == "slice_scatter" and e in alive and forms[e.output].wraps:
            replace_operation(e, partial(_wrapped, forms[e.output]))
            _drop_unread(fusion)
            alive = set(fusion.exprs)  # without those that served it alone
    return before - len(fusion.exprs)


def _drop_unread(fusion: Fusion) -> None:
    """Remove moves that nobody reads: a copy into an end took only that end's shape."""
    for e in reversed(fusion.exprs):
        if e.op in ("slice", "slice_scatter", "copy", "full") and not e.output.uses and not fusion.is_output(e.output):
            fusion.remove([e])


@dataclass(frozen=True, slots=True)
class _Form:
    """The elements of a tensor as those of ``source`` at coordinates that each axis has for itself."""

    source: Tensor | None
    axes: tuple[Axis, ...]

    def pieces(self, k: int) -> tuple[Piece, ...]:
        """Axis ``k`` as pieces, where it is the whole one too."""
        found = self.axes[k]
        if found is not None or self.source is None:
            return found or ()
        return ((int(self.source.axes[k].extent), 0),)

    def at(self, k: int, pieces: tuple[Piece, ...]) -> _Form:
        """The same with other pieces along axis ``k``."""
        made: list[Piece] = []
        for size, first in pieces:
            last = made[-1] if made else (0, 0)
            after = None if last[1] is None else last[1] + last[0]
            if made and (first is None if last[1] is None else first == after):
                made[-1] = (last[0] + size, last[1])
            elif size:
                made.append((size, first))
        whole = self.source is not None and made == [(int(self.source.axes[k].extent), 0)]
        return replace(self, axes=(*self.axes[:k], None if whole else tuple(made), *self.axes[k + 1 :]))

    @property
    def wraps(self) -> bool:
        """Whether the pieces of each axis follow each other, and some axis has several."""
        several = [k for k, a in enumerate(self.axes) if a is not None and len(a) != 1]
        alone = [a[0][1] for a in self.axes if a is not None and len(a) == 1]
        return bool(several) and None not in alone and all(self._is_cyclic(k) for k in several)

    def _is_cyclic(self, k: int) -> bool:
        at: int | None = None
        for size, first in self.pieces(k):
            if self.source is None or first is None or (at is not None and first != at):
                return False
            at = (first + size) % int(self.source.axes[k].extent)
        return at is not None


def _form(e: TensorExpr, forms: dict[Tensor, _Form]) -> _Form:
    t = e.output
    own = _Form(t, (None,) * t.ndim)
    given = [forms.get(x, _Form(x, (None,) * x.ndim)) for x in e.inputs]
    match e.op:
        case "full":
            return _Form(None, (None,) * t.ndim)
        case "copy" if e.inputs[0].dtype == t.dtype:
            return given[0]
        case "slice":
            found = given[0]
            ways = (int_tuple(e.attrs, n) for n in ("dims", "starts", "stops", "steps")) if _is_fixed(e) else ()
            for k, start, stop, step in zip(*ways, strict=True):
                if step != 1 or not all(_is_known(x, k) for x in (e.inputs[0], found.source)):
                    return own
                found = found.at(k, _slice_of_pieces(found.pieces(k), start, stop))
            return found if _is_fixed(e) else own
        case "slice_scatter":
            return _scattered(e, *given) or own
        case _:
            return own


def _scattered(e: TensorExpr, base: _Form, inner: _Form) -> _Form | None:
    """``inner`` in its place of ``base``: other tensors' elements beside it are holes."""
    k, start, stop, step = (e.attrs[n] for n in ("dim", "start", "stop", "step"))
    if not (isinstance(k, int) and isinstance(start, int) and isinstance(stop, int) and step == 1):
        return None
    if not all(_is_known(x, k) for x in (e.output, base.source, inner.source)):
        return None
    if any(x.source is not None and x.source.dtype != e.output.dtype for x in (base, inner)):
        return None
    size = int(e.output.axes[k].extent)
    others = [p for p in range(len(base.axes)) if p != k]
    together = base.source is inner.source and all(base.axes[p] == inner.axes[p] for p in others)
    if inner.source is None:
        made, middle, outside = base, ((stop - start, None),), base.pieces(k)
    else:
        made, middle = inner, inner.pieces(k)
        outside = base.pieces(k) if together else ((size, None),)
    if made.source is None:
        return made
    return made.at(k, (*_slice_of_pieces(outside, 0, start), *middle, *_slice_of_pieces(outside, stop, size)))


def _slice_of_pieces(pieces: tuple[Piece, ...], start: int, stop: int) -> tuple[Piece, ...]:
    """The pieces between two places."""
    made: list[Piece] = []
    at = 0
    for size, first in pieces:
        a, b = max(start, at), min(stop, at + size)
        if a < b:
            made.append((b - a, None if first is None else first + a - at))
        at += size
    return tuple(made)


def _is_fixed(e: TensorExpr) -> bool:
    return all(isinstance(n, int) for name in ("starts", "stops") for n in e.attrs[name])  # type: ignore[union-attr]


def _is_known(t: Tensor | None, k: int) -> bool:
    return t is None or t.axes[k].extent.is_const


def _wrapped(form: _Form) -> Tensor:
    t, last = form.source, form.axes[-1]
    assert t is not None
    words = last is not None and all(x * item_size(t.dtype) % WORDS == 0 for p in last for x in p if x)
    for k, axis in enumerate(form.axes):
        if axis is None:
            continue
        parts = [(first, size) for size, first in axis if first is not None]
        if len(parts) == 1 or words:
            joined = [movement.slice(t, k, first, first + size) for first, size in parts]
            t = movement.cat(joined, k) if len(joined) > 1 else joined[0]
        else:
            numbers = t.fusion.iota(sum(size for _, size in parts), parts[0][0])
            t = index_select(t, k, ops.remainder(numbers, int(t.axes[k].extent)))
    return t


NEAR: Final = 64  # operations looked at behind a cat, and before what reads one piece
MOST: Final = 8  # pieces of a cat: each single one is a term of its own


def split_reduction_over_cat(fusion: Fusion) -> None:
    """Reductions along an axis that is joined of one long piece and single elements, and slices of one piece.

    Rows that are read as a whole, too, are left as they are.
    """
    for e in fusion.exprs:
        if e.op == "cat" and e.output.definition is e:
            joined = _match_single_element_cat(e)
            readers = _readers(joined) if joined is not None else []
            if joined is not None and any(r.op in REDUCTIONS for r in readers):
                for r in readers:
                    replace_operation(
                        r, partial(_reduce_with_singles if r.op in REDUCTIONS else _reduced_piece, joined, r)
                    )


def unroll_reductions_in_cat(fusion: Fusion) -> None:
    """Reductions of a few columns that go into a cat, or a pad, as operations on the columns: they are computed where
    those read them, and nothing is stored in between.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(3, 64))
    >>> t = f.output(ig.cat([ig.amax(x, 0), ig.amin(x, 0)]))
    >>> unroll_reductions_in_cat(f)
    >>> [e.op for e in f.exprs if e.op != "select"]
    ['maximum', 'maximum', 'minimum', 'minimum', 'cat']
    """
    for e in fusion.exprs if any(e.op in ("cat", "pad") for e in fusion.exprs) else ():
        if e.op in REDUCTIONS and e.is_reduction and OPERATIONS[e.op].combine in POINTWISE and len(e.inputs) == 1:
            count = prod(int(n) if n.is_const else 0 for n in (e.inputs[0].axes[d].extent for d in reduced_dims(e)))
            if 0 < count <= MOST and not fusion.is_output(e.output) and _is_joined(e.output):
                replace_operation(e, partial(finished, e, partial(_unrolled, e)))


def _is_joined(t: Tensor) -> bool:
    """Whether operations on single elements lead to a cat or a pad."""
    near = reach([t], lambda u: [e.output for e in u.uses if e.op in POINTWISE or e.op in MOVES], NEAR)
    return any(produced_by(u, ("cat", "pad")) for u in near if u is not t)


def _unrolled(e: TensorExpr) -> Tensor:
    """The columns of a reduction, joined one after the other; sums of floats in float64, as `stage` adds them up."""
    x, dims, made = e.inputs[0], reduced_dims(e), None
    for at in product(*(range(int(x.axes[d].extent)) for d in dims)):
        column = x
        for d, n in reversed(list(zip(dims, at, strict=True))):
            column = movement.select(column, d, n)
        if e.op in ("sum", "prod"):
            column = ops.cast(column, wide_type(e))
        made = column if made is None else apply(x.fusion, OPERATIONS[e.op].combine, (made, column), {}, None)
    if made is None:
        raise AssertionError("a reduction of no columns")
    return made


@dataclass(slots=True)
class _Joined:
    """A tensor joined along the axis ``last`` (counted from the end, negative) at ``bounds``; piece ``long`` is more
    than one element. ``known`` has pieces of tensors that were built."""

    tensor: Tensor
    last: int
    bounds: tuple[Expr, ...]
    long: int
    known: dict[tuple[Tensor, int], Tensor] = field(default_factory=dict[tuple[Tensor, int], Tensor])

    def range_of(self, piece: int) -> tuple[Expr, Expr]:
        return self.bounds[piece], self.bounds[piece + 1]

    def piece(self, t: Tensor, piece: int) -> Tensor:
        """A part of ``t``, which has the joined axis or is broadcast along it."""
        found = self.known.get((t, piece))
        if found is None or not (found.uses or found.definition is None):
            found = self.known[t, piece] = self._piece(t, piece)
        return found

    def _piece(self, t: Tensor, piece: int) -> Tensor:
        e, axis = t.definition, t.ndim + self.last
        if axis < 0 or t.axes[axis].is_broadcast:
            return t
        if t is self.tensor and e is not None:
            own = e.inputs[piece]
            return own if own.dtype == t.dtype else ops.cast(own, t.dtype)
        if e is not None and e.op in POINTWISE and self.reaches(t):
            args = tuple(self.piece(a, piece) if isinstance(a, Tensor) else a for a in e.args)
            return apply(t.fusion, e.op, args, dict(e.attrs), None)
        start, stop = (attr(b) for b in self.range_of(piece))
        return movement.slice(t, axis, start, stop)

    def reaches(self, t: Tensor) -> bool:
        """Whether pointwise operations compute ``t`` of the joined tensor, element by element of its axis."""
        near = reach([t], lambda u: filter(self.has_axis, operands(u) if produced_by(u, POINTWISE) else ()), NEAR)
        return self.tensor in near

    def has_axis(self, t: Tensor) -> bool:
        return t.ndim + self.last >= 0 and not t.axes[t.ndim + self.last].is_broadcast


def _match_single_element_cat(e: TensorExpr) -> _Joined | None:
    """The cat, where all its pieces but one have one element."""
    t, dim = e.output, e.attrs["dim"]
    if not isinstance(dim, int) or len(e.inputs) > MOST or not t.uses:
        return None
    extents = [x.axes[dim % t.ndim].extent for x in e.inputs]
    long = [k for k, n in enumerate(extents) if n != as_expr(1)]
    if len(long) != 1 or not is_true(simplify(extents[long[0]] > 1)):
        return None
    bounds = [as_expr(0)]
    for n in extents:
        bounds.append(simplify(bounds[-1] + n))
    return _Joined(t, dim % t.ndim - t.ndim, tuple(bounds), long[0])


def _readers(joined: _Joined) -> list[TensorExpr]:
    """Reductions along the axis and slices of one piece that end everything computed of it, in order; none where a row
    is wanted as a whole, or by an operation that is neither."""
    found = dict[TensorExpr, None]()
    seen, work = {joined.tensor}, [joined.tensor]
    while work:
        t = work.pop()
        if t.fusion.is_output(t) or len(seen) > NEAR:
            return []
        for use in t.uses:
            if use.op in POINTWISE:
                if use.output not in seen:
                    seen.add(use.output)
                    work.append(use.output)
            elif _is_split(use, joined) or _piece_of(use, joined) is not None:
                found[use] = None
            else:
                return []
    place = {e: k for k, e in enumerate(joined.tensor.fusion.exprs)}
    return sorted(found, key=place.__getitem__)


def _is_split(e: TensorExpr, joined: _Joined) -> bool:
    """Whether ``e`` reduces the axis by an operation that has a form for two values."""
    if e.op not in REDUCTIONS or not e.is_reduction or OPERATIONS[e.op].combine not in POINTWISE:
        return False
    rank = e.inputs[0].ndim
    return rank + joined.last in {d % rank for d in int_tuple(e.attrs, "dims")}


def _piece_of(e: TensorExpr, joined: _Joined) -> int | None:
    """The piece that a slice reads, all of it; None of any other operation."""
    if e.op != "slice" or [d % e.output.ndim for d in int_tuple(e.attrs, "dims")] != [e.output.ndim + joined.last]:
        return None
    starts, stops, steps = (e.attrs[k] for k in ("starts", "stops", "steps"))
    if not (isinstance(starts, tuple) and isinstance(stops, tuple)) or steps != (1,):
        return None
    if not all(isinstance(r, Mapped) for r in e.reads[0]):
        return None
    (a,), (b,) = ([as_expr(v) for v in some if isinstance(v, int | Expr)] for some in (starts, stops))
    for k in range(len(joined.bounds) - 1):
        start, stop = joined.range_of(k)
        if same_extent(a, start) and same_extent(b, stop):
            return k
    return None


def _reduced_piece(joined: _Joined, e: TensorExpr) -> Tensor:
    piece = _piece_of(e, joined)
    if piece is None:
        raise AssertionError("found before")
    return joined.piece(e.inputs[0], piece)


def _reduce_with_singles(joined: _Joined, e: TensorExpr) -> Tensor:
    """The reduction of the long piece, and each single element as one value more."""
    x = e.inputs[0]
    dims = sorted(d % x.ndim for d in int_tuple(e.attrs, "dims"))
    return finished(e, partial(_combined, joined, e, x, dims))


def _combined(joined: _Joined, e: TensorExpr, x: Tensor, dims: Sequence[int]) -> Tensor:
    at = x.ndim + joined.last
    others = [d for d in dims if d != at]
    made = stage(e, joined.piece(x, joined.long), dims)
    for piece in range(len(joined.bounds) - 1):
        if piece != joined.long:
            few = joined.piece(x, piece)
            one = movement.squeeze(stage(e, few, others) if others else few, at - sum(d < at for d in others))
            value = one if one.dtype == made.dtype else ops.cast(one, made.dtype)
            made = apply(x.fusion, OPERATIONS[e.op].combine, (made, value), {}, None)
    return made
