"""Tensors that are written piece by piece with their own pieces, as reads at coordinates that wrap around.

PyTorch pads circularly by copies: the middle is written first, then each end from what the middle holds, axis by axis.
Inlined, every read of an end is a choice among all writes before it, several times over for each axis. Where each axis
of the result runs through an axis of one tensor cyclically, the result is that tensor at ``(i + c) % n``. Where the
pieces along the last axis are whole words, they stay pieces, joined once: they move in vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from idgraph.errors import ScheduleError, arguments
from idgraph.ir import Fusion, Tensor, TensorExpr, check_fusion, item_size, movement, ops
from idgraph.ir.composite import index_select
from idgraph.ir.reduce import int_tuple
from idgraph.ir.state import rewriting
from idgraph.rewrite.replacing import replace_operation

WORDS = 8  # bytes: what pieces along the last axis are multiples of, to be read in vectors
Piece = tuple[int, int | None]  # elements, and the first of them in the other tensor; None: not of that tensor
Axis = tuple[Piece, ...] | None  # None: the whole axis


@arguments(ScheduleError, first=True, keep=rewriting)
def wrap_pieces(fusion: Fusion) -> int:
    """Rewrite what is put together cyclically from pieces of one tensor; returns the number of operations removed.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(4, 9))
    >>> t = ig.slice_scatter(f.full((4, 14), 0.0), x, 1, 4, 13)
    >>> t = ig.slice_scatter(t, t[:, 9:13], 1, 0, 4)
    >>> t = f.output(ig.slice_scatter(t, t[:, 4:5], 1, 13, 14))
    >>> wrap_pieces(f)
    3
    >>> [e.op for e in f.exprs]
    ['iota', 'remainder', 'index_select']
    """
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
