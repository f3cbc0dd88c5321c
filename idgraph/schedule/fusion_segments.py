"""Readers of a tensor as the automatic schedule sees them, and the tensors that always get a nest of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod

from idgraph.arith import is_true
from idgraph.graphs import canonical_operand
from idgraph.ir import (
    SCANS,
    SCATTERS,
    Fixed,
    Fusion,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    Resize,
    Stride,
    Tensor,
    TensorExpr,
    item_size,
)
from idgraph.ir.device import current_device
from idgraph.ir.op_builders import REDUCTIONS
from idgraph.ir.op_table import MOVES
from idgraph.ir.walks import operands, reach
from idgraph.layout.inference import bytes_of
from idgraph.rewrite.constant_folding import has_formula_index, long_indices

CHEAP = 8  # operations on an element that are computed again rather than stored

PICKS = frozenset({"index", "index_select"})  # gathers at indices that need not lie along the axes that they pick from

Read = tuple[TensorExpr, int]  # a reader and its operand


def reads_of(t: Tensor) -> list[Read]:
    """The ways in which ``t`` is read: one for each reader, more where one reads it at several places."""
    found: list[Read] = []
    for use in t.uses:
        if len(use.inputs) == 1:
            found.append((use, 0))
            continue
        at = [k for k, x in enumerate(use.inputs) if x is t]
        found += [(use, k) for k in at if k == at[0] or canonical_operand(use, k) == k]
    return found


def narrowest(t: Tensor, stored: Collection[Tensor]) -> Tensor:
    """Where on the way to ``t``, along views and conversions, fewest bytes have to be stored: at or before a tensor of
    which several parts are read, as that would be stored too.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = ig.cast(f.input("x", (8, 64)) * 2.0, "bfloat16")
    >>> y = ig.pad(ig.cast(x, "float32"), [0, 0, 1, 1])
    >>> narrowest(y, []) is x
    True
    """
    way = [t]
    while (e := way[-1].definition) is not None and len(e.inputs) == 1 and (e.op in MOVES or e.op == "cast"):
        if e.inputs[0] in stored or e.inputs[0].definition is None:
            return t
        way.append(e.inputs[0])
    shared = next((n for n, u in enumerate(way) if n and len(reads_of(u)) > 1), 0)
    return min(way[shared:], key=bytes_of)


def reads_all(e: TensorExpr, k: int) -> bool:
    """True where all of the output needs all of operand ``k``: nothing is sliced off, skipped or selected."""
    made = e.output.domain.exprs
    cut = bool(made) and any(
        (isinstance(x, Stride) and x.source not in e.output.logical)  # else it says where a slice is put
        or (isinstance(x, Resize) and not (is_true(x.left >= 0) and is_true(x.right >= 0)))
        for x in made
    )
    return not cut and "select" not in [r.why for r in e.reads[k] if isinstance(r, Fixed)]


def _in_place(use: TensorExpr, k: int) -> bool:
    """Whether ``use`` reads all of operand ``k`` once, in its order: loops over either visit both alike."""
    if use.is_reduction or use.op in SCATTERS or use.op in SCANS:
        return False
    if use.op == "reshape":
        return True
    if use.output.domain.exprs:  # a slice, pad or cat, also of one element: its loops may visit none of it
        return False
    reads = [r for axis, r in zip(use.inputs[k].axes, use.reads[k], strict=True) if axis.extent != 1]
    axes = [r.domain for r in reads if isinstance(r, Mapped) and r.domain.extent != 1]
    # An axis that is not mapped is one of which a part is read: an element that is selected, or an index says.
    return len(axes) == len(reads) and axes == [d for d in use.output.logical if d.extent != 1]


_End = tuple[Tensor, dict[IterDomain, IterDomain]]  # where readers lead to, and its axes by those they lead from


def followed_scans(fusion: Fusion) -> dict[Tensor, Tensor]:
    """Scans that readers go through element by element, in order, up to one tensor with a nest of its own, by scan:
    what reads each running value stands in the scan's loops, also another scan or a reduction along the same axis.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.cumsum(f.input("x", (4, 64)), 1)
    >>> u = f.output(ig.amax(ig.cumprod(t * 2.0, 1) - t, 1))
    >>> [(s.definition.op, end is u) for s, end in followed_scans(f).items()]
    [('cumsum', True), ('cumprod', True)]
    """
    made = [e for e in fusion.exprs if e.op in SCANS]
    ends: dict[Tensor, _End | None] = {}
    for e in reversed(fusion.exprs) if made else ():
        ends[e.output] = _end_of(e.output, ends)
    own = {e.output: scanned_axis(e) for e in made}
    along: dict[Tensor, IterDomain] = {}  # one nest goes along one axis
    kept: dict[Tensor, Tensor] = {}
    for t, axis in own.items():
        end = ends[t] if t.uses else None
        if (
            end is not None
            and axis in end[1]
            and along.setdefault(end[0], own.get(end[0], end[1][axis])) is end[1][axis]
        ):
            kept[t] = end[0]
    return kept


def scanned_axis(e: TensorExpr) -> IterDomain:
    """The axis of a scan."""
    dim = e.attrs["dim"]
    return e.output.axes[dim % e.output.ndim if isinstance(dim, int) else 0]


def _end_of(t: Tensor, ends: Mapping[Tensor, _End | None]) -> _End | None:
    """The last tensor that all readers of ``t`` lead to in order, of which ``ends`` has theirs; None for several."""
    found: _End | None = None
    for use, k in reads_of(t):
        o, reduced = use.output, [d for d in use.output.root if d.kind == "reduction"]
        only = reduced if use.op in REDUCTIONS else [scanned_axis(use)] if use.op in SCANS else None
        end = (o, {d: d for d in reduced}) if reduced else ends[o]
        if end is None or use.op == "reshape" or o.domain.exprs or len(reduced) > 1 or (only and t in t.fusion.outputs):
            return None
        if not only and not _in_place(use, k):
            return None
        rows = zip(t.axes, use.reads[k], strict=True)
        axes = {
            d: end[1][r.domain]
            for d, r in rows
            if isinstance(r, Mapped) and r.domain in end[1] and (not only or r.domain in only)
        }
        if found is not None:
            axes = {d: x for d, x in axes.items() if found[0] is end[0] and found[1].get(d) is x}
        found = end[0], axes
    return found or (t, {d: d for d in t.axes})


def stored_tensors(fusion: Fusion) -> set[Tensor]:
    """Tensors that always get a nest of their own: reductions, what is gathered from, long index arithmetic, and
    outputs, but for those that a reader goes through in their own order: they are written on the way to it."""
    kept = long_indices(fusion)
    scans, exprs = followed_scans(fusion), fusion.exprs
    for e in exprs:
        if e.is_reduction or e.op in SCATTERS or (e.op in SCANS and e.output not in scans):
            kept.add(e.output)
        for t, row in zip(e.inputs, e.reads, strict=True):
            if LoadedCoordinate in map(type, row) and t.definition is not None:
                kept.add(t)
    # A tensor that nothing reads is still computed where it is named as an output only; others are dead but legal.
    kept.update([e.output for e in exprs if not e.output.uses])
    # Loops that come to an output through a slice, pad or cat further on would make a part of it only.
    open_ = {t for t in fusion.outputs if t.uses}
    whole = set(kept)
    for t in reversed(fusion.tensors) if open_ else ():
        if t.uses and all(_in_place(use, k) and use.output in whole for use, k in reads_of(t)):
            whole.add(t)
    return kept | {t for t in open_ if t not in whole} | {t for t in fusion.outputs if not t.uses}


def picks_elements(exprs: Iterable[TensorExpr]) -> bool:
    """Whether an index says where each neighbour along the last axis is read: no vector can, and threads go side by
    side."""
    return any(e.op in PICKS and any(row and isinstance(row[-1], LoadedCoordinate) for row in e.reads) for e in exprs)


def repeated_gathers(fusion: Fusion) -> set[Tensor]:
    """Tensors of single elements picked at loaded places that readers repeat along axes of their own (a bias looked
    up for all pictures alike), where to store it takes less time than to pick again for each.

    >>> import idgraph as ig
    >>> f = ig.Fusion("bias")
    >>> s, i = f.input("s", (64, 512, 512)), f.input("i", (512, 512), "int64")
    >>> table = f.input("table", (63,))
    >>> bias = ig.index_get(table, [i])
    >>> t = f.output(s + bias)
    >>> repeated_gathers(f) == {bias}
    True
    """
    found: set[Tensor] = set()
    gpu = current_device()
    for e in fusion.exprs:
        if not picks_elements([e]) or has_formula_index(e):
            continue
        t = e.output
        while len(t.uses) == 1 and not fusion.is_output(t) and _points(t.uses[0].output) == _points(e.output):
            t = t.uses[0].output
        points, times = _points(t), max((_points(use.output) // max(1, _points(t)) for use in t.uses), default=1)
        if times < 2 or fusion.is_output(t) or any(use.is_reduction for use in t.uses):
            continue
        indices = {e.inputs[r.operand] for row in e.reads for r in row if isinstance(r, LoadedCoordinate)}
        loads = sum(item_size(u.dtype) for u in reach(indices, operands) if u.definition is None)
        pick = (loads + gpu.sector) / gpu.cache_bandwidth
        stored = points * item_size(t.dtype)
        read = stored * times / (gpu.cache_bandwidth if stored <= gpu.cache else gpu.bandwidth)
        if (points * (times - 1) * pick - stored / gpu.bandwidth - read) * 1e6 > gpu.launch_us:
            found.add(t)
    return found


def _points(t: Tensor) -> int:
    """Points of the loops that make ``t``; 0 where that is not known."""
    return prod(int(d.extent) if d.extent.is_const else 0 for d in t.root)


def takes_rows(e: TensorExpr) -> bool:
    """Whether ``e`` reads whole rows at loaded coordinates: its indices are the same along the last axis."""
    last = e.output.root[-1] if e.output.ndim else None
    for row in e.reads:
        indices = [e.reads[r.operand] for r in row if isinstance(r, LoadedCoordinate)]
        if indices and not isinstance(row[-1], LoadedCoordinate):
            return not any(isinstance(r, Mapped) and r.domain is last for index in indices for r in index)
    return False
