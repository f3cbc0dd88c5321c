"""Rows that are joined of a long piece and single elements, taken piece by piece.

A softmax with a sink, ``softmax(cat(x, s), 1)[:, :n]``, is computed over n + 1 columns, which no vector divides, and
stores all of them, as a slice of the result has loops of its own. Piece by piece, ``max(amax(x), s)`` and
``sum(exp(x - m)) + exp(s - m)`` are reductions over the n columns of x, and so is what the slice reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from idgraph.arith import Expr, as_expr, is_true, simplify
from idgraph.ir import Fusion, Mapped, Tensor, TensorExpr, movement, ops
from idgraph.ir.indexing import attr
from idgraph.ir.optable import OPERATIONS, POINTWISE
from idgraph.ir.pointwise import same_extent
from idgraph.ir.reduce import REDUCTIONS, int_tuple
from idgraph.ir.registry import apply
from idgraph.rewrite.replacing import replace_operation
from idgraph.rewrite.two_stage import finished, stage

NEAR: Final = 64  # operations looked at behind a cat, and before what reads one piece
MOST: Final = 8  # pieces of a cat: each single one is a term of its own


def split_reduction_over_cat(fusion: Fusion) -> None:
    """Reductions along an axis that is joined of one long piece and single elements, and slices of one piece.

    Rows that are read as a whole, too, are left as they are.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, s = f.input("x", shape=(4, 16)), f.input("s", shape=(4, 1))
    >>> row = ig.exp(ig.cat([x, s], dim=1))
    >>> t = f.output((row / ig.sum(row, 1, keepdim=True))[:, :16])
    >>> take_pieces(f)
    >>> [e.op for e in f.exprs]
    ['exp', 'sum', 'exp', 'squeeze', 'cast', 'add', 'cast', 'unsqueeze', 'div']
    """
    for e in fusion.exprs:
        if e.op == "cat" and e.output.definition is e:
            joined = _joined(e)
            readers = _readers(joined) if joined is not None else []
            if joined is not None and any(r.op in REDUCTIONS for r in readers):
                for r in readers:
                    replace_operation(r, partial(_whole if r.op in REDUCTIONS else _reduced_piece, joined, r))


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
        seen, work = {t}, [t]
        while work and len(seen) < NEAR:
            u = work.pop()
            if u is self.tensor:
                return True
            e = u.definition
            if e is not None and e.op in POINTWISE:
                new = [x for x in e.inputs if x not in seen and self.has_axis(x)]
                seen.update(new)
                work += new
        return False

    def has_axis(self, t: Tensor) -> bool:
        return t.ndim + self.last >= 0 and not t.axes[t.ndim + self.last].is_broadcast


def _joined(e: TensorExpr) -> _Joined | None:
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


def _whole(joined: _Joined, e: TensorExpr) -> Tensor:
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
