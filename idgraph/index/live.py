"""Operations that run: those that the outputs depend on, and those whose values every reader makes again."""

from __future__ import annotations

from collections.abc import Set

from idgraph.ir import SCATTERS, Fusion, Tensor, TensorExpr

# Operations whose elements follow from their coordinates: each reader makes them again, without memory.
COUNTED = frozenset({"iota", "full"})


def counted_exprs(fusion: Fusion) -> frozenset[TensorExpr]:
    """The operations whose values each reader makes in place."""
    # A scatter begins with a copy of its operand 0, so that must be in memory.
    exprs = fusion.exprs
    kept = set(fusion.outputs) | {e.inputs[0] for e in exprs if e.op in SCATTERS}
    return frozenset([e for e in exprs if e.op in COUNTED and kept.isdisjoint(e.outputs)])


def live_exprs(fusion: Fusion) -> tuple[TensorExpr, ...]:
    """The expressions that the outputs depend on, producers first; without those whose values each reader makes."""
    wanted = set(fusion.outputs)
    for e in reversed(fusion.exprs):
        if not wanted.isdisjoint(e.outputs):
            wanted.update(e.inputs)
    made = counted_exprs(fusion)
    return tuple([e for e in fusion.exprs if e not in made and not wanted.isdisjoint(e.outputs)])


def live_uses(t: Tensor, among: Set[TensorExpr]) -> tuple[TensorExpr, ...]:
    """The consumers of ``t`` that are ``among`` those that run."""
    return tuple(dict.fromkeys(u for u in t.uses if u in among))
