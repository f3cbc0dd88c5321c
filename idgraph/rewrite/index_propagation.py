"""Index arithmetic in the loops of the operation that gathers or scatters by it.

``x[i]`` with ``i = where(j < 0, j + n, j)`` loops over the axes of ``j`` and those of x that are not indexed. Loops
that merge both could not be followed by ``i``, which lacks the latter, so ``i`` would have a kernel of its own. Index
tensors that are *aligned* have one element along those axes: what computes them, from ``j`` on, is aligned with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from idgraph.ir import Fusion, LoadedCoordinate, Tensor, TensorExpr
from idgraph.ir.axis_read import Attr
from idgraph.ir.op_table import OPERATIONS, POINTWISE, apply
from idgraph.ir.walks import reach
from idgraph.rewrite.canonicalize_views import replace_operation

MOST: Final = 12  # operations on an index that are computed again for each vector that it picks
SHIFTED: Final = frozenset({"unsqueeze", "squeeze", "slice", "flip", "roll"})  # with ``dims``, and no other axes


def align_indices(fusion: Fusion) -> None:
    """Align the index tensors that few operations compute; each then serves a single gather or scatter.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, j = f.input("x", shape=(8, 16)), f.input("j", shape=(4,), dtype="int64")
    >>> t = f.output(ig.index_select(x, 0, ig.remainder(j, 8)))
    >>> align_indices(f)
    >>> [e.op for e in f.exprs]
    ['unsqueeze', 'remainder', 'index']
    >>> narrow_indices(f)
    >>> [e.op for e in f.exprs]
    ['remainder', 'index']
    """
    for e in fusion.exprs:
        found = _indexed(e)
        if found is None or e.attrs.get("aligned") is True:
            continue
        x, indices, dims = found
        before, after = dims[0], x.ndim - 1 - dims[-1]
        if before + after and all(i.ndim for i in indices) and any(_is_few(i) for i in indices):
            replace_operation(e, partial(_aligned, e, x, indices, dims))


def narrow_indices(fusion: Fusion) -> None:
    """The reverse: index tensors without the axes that are not indexed, as a user writes them."""
    for e in fusion.exprs:
        if e.attrs.get("aligned") is True:
            replace_operation(e, partial(_narrow, e))


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


def _indexed(e: TensorExpr) -> tuple[Tensor, Sequence[Tensor], tuple[int, ...]] | None:
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


def _aligned(e: TensorExpr, x: Tensor, indices: Sequence[Tensor], dims: tuple[int, ...]) -> Tensor:
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


def _narrow(e: TensorExpr) -> Tensor:
    found = _indexed(e)
    if found is None:
        raise AssertionError("an aligned operation has index tensors")
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
