"""Readers of a tensor as the automatic schedule sees them, and the tensors that always get a nest of their own."""

from __future__ import annotations

from idgraph.arith import is_true
from idgraph.graphs import canonical_operand
from idgraph.ir import SCANS, SCATTERS, Fixed, Fusion, Loaded, Mapped, Resize, Stride, Tensor, TensorExpr

Read = tuple[TensorExpr, int]  # a reader and its operand


def reads_of(t: Tensor) -> list[Read]:
    """The ways in which ``t`` is read: one for each reader, more where one reads it at several places."""
    return [(use, k) for use in t.uses for k in use.operands_of(t) if canonical_operand(use, k) == k]


def reads_all(e: TensorExpr, k: int) -> bool:
    """True where all of the output needs all of operand ``k``: nothing is sliced off, skipped or selected."""
    cut = any(
        (isinstance(x, Stride) and x.source not in e.output.logical)  # else it says where a slice is put
        or (isinstance(x, Resize) and not (is_true(x.left >= 0) and is_true(x.right >= 0)))
        for x in e.output.domain.exprs
    )
    return not cut and not any(isinstance(r, Fixed) and r.why == "select" for r in e.reads[k])


def _in_place(use: TensorExpr, k: int) -> bool:
    """Whether ``use`` reads all of operand ``k`` once, in its order: loops over either visit both alike."""
    if use.is_reduction or use.op in SCATTERS or use.op in SCANS:
        return False
    if use.op == "reshape":
        return True
    axes = [r.domain for r in use.reads[k] if isinstance(r, Mapped)]
    return [d for d in axes if d.extent != 1] == [d for d in use.output.logical if d.extent != 1]


def stored_tensors(fusion: Fusion) -> set[Tensor]:
    """Tensors that always get a nest of their own: reductions, what is gathered from, and outputs, but for those that a
    reader goes through in their own order: they are written on the way to it."""
    kept: set[Tensor] = set()
    for e in fusion.exprs:
        if e.is_reduction or e.op in SCATTERS or e.op in SCANS:
            kept.add(e.output)
        for t, row in zip(e.inputs, e.reads, strict=True):
            if any(isinstance(r, Loaded) for r in row) and t.definition is not None:
                kept.add(t)
    # A tensor that nothing reads is still computed where it is named as an output only; others are dead but legal.
    kept |= {e.output for e in fusion.exprs if not e.output.uses}
    # Loops that come to an output through a slice, pad or cat further on would make a part of it only.
    whole = set(kept)
    for t in reversed(fusion.tensors):
        if t.uses and all(_in_place(use, k) and use.output in whole for use, k in reads_of(t)):
            whole.add(t)
    return kept | {t for t in fusion.outputs if t not in whole}
