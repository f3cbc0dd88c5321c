"""Rows of loaded length: one nest of loops for all that is computed of them, rows outermost, the row itself inside.

A block (on a CPU, a step of a core) has one row. What needs the whole row, a reduction, stands before what reads its
result, in loops of its own over the row; what only moves or combines elements is computed again in each of those loops.
So nothing of a row is stored, and the nest is one kernel for each result. Where rows must wait in memory for several
readers, they lie there one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from idgraph.ir import AxisRead, Fixed, Fusion, IterDomain, Mapped, Tensor, TensorExpr
from idgraph.ir.op_builders import same_extent
from idgraph.ir.op_table import ROWS, SCANS
from idgraph.ir.ops_ragged import combine, partition, ragged_dim
from idgraph.ir.ops_view import permute
from idgraph.ir.ragged_axes import row_axes
from idgraph.schedule.config import KernelConfig
from idgraph.schedule.fusion_segments import scanned_axis, stored_tensors
from idgraph.schedule.inlining import inline_far, private_copy
from idgraph.schedule.pointwise_tiling import schedule_reference, sources_of
from idgraph.schedule.reduction_domain import reduces

THREADS: Final = 128  # of a block, along its row


def has_rows(fusion: Fusion) -> bool:
    """Whether some operation of a fusion is one on rows of loaded length.

    >>> import idgraph as ig
    >>> has_rows(ig.Fusion("f"))
    False
    """
    return any(e.op in ROWS for e in fusion.exprs)


def schedule_ragged(fusion: Fusion, config: KernelConfig, *, threads: bool) -> set[Tensor]:
    """Loops for a fusion with ragged axes, whose loops are its own axes now; ``threads``: a block has threads along its
    row. Returns the tensors that are stored.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
    >>> t = f.output(ig.sum(ig.partition(x, 0, offsets), 1))
    >>> [t.name for t in schedule_ragged(f, KernelConfig(), threads=False)], len(ig.emit(f, target="cpu").kernels)
    (['t7'], 1)
    """
    nests = _RowNests(*_row_positions(fusion), stored_tensors(fusion))
    for e in reversed(fusion.exprs):
        nests.place(e.output)
    added_up = {t for t, p in nests.component.items() if t.loop[p].kind == "reduction"}
    stored = {t for t, root in nests.root.items() if t is root}
    for e in fusion.exprs:
        t = e.output
        if t in nests.component:
            _over_rows(t, nests, added_up, threads)
        elif t in stored or not t.uses:
            schedule_reference(t, sources_of(t, stored), stored, config)
    inline_far(fusion, [e.output for e in fusion.exprs if e.output not in stored])
    return stored


def _row_positions(fusion: Fusion) -> tuple[dict[Tensor, int], dict[Tensor, int]]:
    """Where the component axis and the axis along the row stand among the loops of each computed tensor: those of the
    operations on rows, and what is read, or reads, at the same coordinate; a scan goes from row to row."""
    part: dict[IterDomain, int] = {}
    for e in fusion.exprs:
        for k, d in enumerate(row_axes(e) or ()):
            part[d] = k
    pairs = [
        (axis, d) for e in fusion.exprs for t, row in zip(e.inputs, e.reads, strict=True)
        for axis, read in zip(t.axes, row, strict=True)
        if (d := _met(axis, read)) is not None and not (e.op in SCANS and d is scanned_axis(e))
    ]  # fmt: skip
    known = -1
    while known != len(part):
        known = len(part)
        for pair in (*pairs, *reversed(pairs)):
            for a, b in (pair, pair[::-1]):
                if a in part:
                    part.setdefault(b, part[a])
    found: tuple[dict[Tensor, int], dict[Tensor, int]] = {}, {}
    for e in fusion.exprs:
        for p, d in enumerate(e.output.loop):
            if d in part and not (e.op in SCANS and d is scanned_axis(e)):
                found[part[d]].setdefault(e.output, p)
    return found


def _met(axis: IterDomain, read: AxisRead) -> IterDomain | None:
    """The axis of the output at whose coordinate an operand's axis is read; one of one element, too."""
    match read:
        case Mapped(d):
            return d
        case Fixed(resolves=IterDomain() as d) if same_extent(axis.extent, d.extent):
            return d
        case _:
            return None


@dataclass(slots=True)
class _RowNests:
    """``root``: the stored tensor in whose nest each one is computed; ``phase``: the tensor in whose loop over the row.
    Tensors without a component axis are computed where they are read, or stored, as ``own_nests`` are."""

    component: dict[Tensor, int]
    ragged: dict[Tensor, int]
    own_nests: Set[Tensor]
    root: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    phase: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])

    def place(self, t: Tensor) -> None:
        """The nest and the phase of ``t``, whose readers have theirs; private copies for readers in others."""
        groups: dict[Tensor, list[TensorExpr]] = {}
        for use in dict.fromkeys(t.uses):
            groups.setdefault(self._key(t, use), []).append(use)
        # A reader of single places of a row has no loop along it: it waits for the stored row.
        lone = t in self.ragged and not reduces(t) and any(u.output not in self.ragged for u in t.uses)
        own = t.fusion.is_output(t) or not groups or lone or self._has_own_nest(t)
        if own or (len(groups) > 1 and not self._is_copied(t, groups)):
            if groups and ragged_dim(t) is not None:
                self._pack(t)
            else:
                self.root[t] = self.phase[t] = t
            return
        *others, last = groups.items()
        order = {e: n for n, e in enumerate(t.fusion.exprs)} if others else {}
        for key, uses in others:
            uses.sort(key=lambda use: -order[use])  # the copy stands in front of the first of them, which comes last
            made = private_copy(t, uses[0])
            for use in uses[1:]:
                t.fusion.replace_operand(use, t, made)
            for known in (self.component, self.ragged):
                if t in known:
                    known[made] = known[t]
            self._note(made, key, uses[0])
        self._note(t, last[0], last[1][0])

    def _has_own_nest(self, t: Tensor) -> bool:
        """Whether a tensor is read row by row at loaded places; whether a plain one has a nest as without rows, or one
        of rows is read by a scan from row to row."""
        if any(u.op == "partition" and u.inputs[0] is t for u in t.uses):
            return True
        if t in self.component:
            return any(u.op in SCANS and u.output not in self.component for u in t.uses)
        return t in self.own_nests

    def _pack(self, t: Tensor) -> None:
        """Let ``t`` be read from its rows one behind the other, which are what is stored: as many elements as they
        have together, and not for each row the space of the longest that there may be."""
        fusion, e = t.fusion, t.definition
        assert e is not None  # an input has no ragged axis
        made, exprs = fusion.trying(lambda: _through_memory(fusion.again(e)), e.source_line)
        fusion.adopt(t, made, exprs)
        self.component, self.ragged = _row_positions(fusion)
        for x in reversed(exprs):
            self.place(x.output)

    def _note(self, t: Tensor, key: Tensor, use: TensorExpr) -> None:
        self.root[t] = self.root[use.output]
        self.phase[t] = t if reduces(t) else key

    def _key(self, t: Tensor, use: TensorExpr) -> Tensor:
        """The tensor that readers have in common which can share one computation of ``t``."""
        o = use.output
        if t not in self.ragged or reduces(t):
            return self.root[o]
        return o if reduces(o) else self.phase[o]

    def _is_copied(self, t: Tensor, groups: Mapping[Tensor, object]) -> bool:
        """Whether ``t`` is computed for each group of readers: nothing of it waits for a whole row of its own."""
        return not reduces(t) and t.definition is not None and not t.definition.is_reduction and len(groups) > 1


def _through_memory(t: Tensor) -> Tensor:
    """``t``, a tensor with a ragged axis, of its rows one behind the other."""
    at = ragged_dim(t)
    rows = None if at is None else t.axes[at].rows
    assert at is not None and rows is not None
    first = t.axes.index(rows.component)
    order = [p for p in range(t.ndim) if p not in (first, at)]
    order[min(first, at) : min(first, at)] = [first, at]
    same = order == list(range(t.ndim))
    flat = combine(t if same else permute(t, order))
    found = partition(flat, order.index(first), t.fusion[rows.offsets.name])
    return found if same else permute(found, [order.index(p) for p in range(t.ndim)])


def _over_rows(t: Tensor, nests: _RowNests, added_up: Set[Tensor], threads: bool) -> None:
    """Rows outermost, on blocks unless they are added up; then the row, on the threads of a block; then all else."""
    first: list[IterDomain] = [t.loop[known[t]] for known in (nests.component, nests.ragged) if t in known]
    order = [*first, *(d for d in t.loop if d not in first)]
    if order != list(t.loop):
        t.reorder([t.loop.index(d) for d in order])
    if threads and t in nests.ragged:
        t.split(1, THREADS).parallelize(2, "threadIdx.x")
    if nests.root.get(t, t) not in added_up:
        t.parallelize(0, "blockIdx.x")
