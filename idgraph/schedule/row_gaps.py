"""Tensors between kernels whose rows get gaps: where the sectors that warps save outweigh the bytes that are added.

A row that begins inside of a sector costs each warp that reads it one sector more. That counts where rows are read one
by one, again and again: rows that loaded indices select. A reader of a whole dense tensor has one long row, and gaps
would cost it its vectors.
"""

from __future__ import annotations

from math import prod

from idgraph.ir import Fusion, IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr
from idgraph.ir.decisions import Format
from idgraph.ir.device import SECTOR
from idgraph.layout.orders import memory_order
from idgraph.layout.padding import PaddedStrides, pad_strides


def profitable_row_padding(fusion: Fusion) -> tuple[PaddedStrides, ...]:
    """The rows of `pad_strides` that pay for tensors that the kernels of a scheduled fusion hand to each other."""
    return tuple(row for row in pad_strides(fusion).rows if not row.advice and saved_bytes(row) > row.extra_bytes)


def saved_bytes(row: PaddedStrides) -> int:
    """Bytes of the sectors that all reads by rows save; none where a reader goes through the tensor as a whole.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(8, 1030)))
    >>> y = f.output(ig.embedding(f.input("i", shape=(4000,), dtype="int64"), t))
    >>> row = next(r for r in ig.layout.pad_strides(f).rows if r.tensor is t)
    >>> saved_bytes(row) > row.extra_bytes
    True
    """
    t = row.tensor
    order = memory_order(t)
    rows = prod(int(d.extent) for d in order[:-1])
    visits = [_visits(t, order[-1], use, k) for use in t.uses for k in use.operands_of(t)]
    if not visits or any(v is None for v in visits) or t.memory not in ("auto", "global"):
        return 0
    passes = sum(v for v in visits if v is not None)
    return (row.sectors_before - row.sectors_after) * SECTOR * passes // max(1, rows)


def _visits(t: Tensor, inner: IterDomain, use: TensorExpr, operand: int) -> int | None:
    """The number of rows that a reader selects; None for a reader of the whole tensor."""
    reads = dict(zip(t.axes, use.reads[operand], strict=True))
    at = reads[inner]
    if not any(isinstance(r, LoadedCoordinate) for r in reads.values()) or not isinstance(at, Mapped):
        return None
    others = [d for d in use.output.root if d is not at.domain and not d.is_broadcast]
    return prod(int(d.extent) for d in others) if all(d.extent.is_const for d in others) else None


def pad(fusion: Fusion, rows: tuple[PaddedStrides, ...]) -> None:
    """Give the tensors their strides, and note it in ``fusion.formats``."""
    for row in rows:
        t = row.tensor
        order = memory_order(t)
        axes = (*(d for d in t.allocation if d not in order), *order)
        fusion.formats = tuple(n for n in fusion.formats if n.tensor != t.name)
        by_axis = dict(zip(t.axes, row.strides, strict=True))
        outer = max(by_axis[d] * int(d.extent) for d in order)
        t.set_allocation(axes, strides=[by_axis[d] if d in order else outer for d in axes])
        told = (
            f"{t.name}: strides {row.strides}, padded: rows begin at sectors, which saves {saved_bytes(row)} bytes of "
            f"sectors asked and adds {row.extra_bytes}"
        )
        numbers = tuple(t.axes.index(d) for d in axes)
        fusion.formats = (*fusion.formats, Format(t.name, numbers, told, t.log[-1].at))
