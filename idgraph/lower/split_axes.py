"""The axes that loops go over: what the schedule split stays one index, which kernels are told."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import simplify
from idgraph.index.maps_protocol import IndexMaps
from idgraph.index.nest import LoopNest
from idgraph.index.storage import is_block
from idgraph.ir import IterDomain, Split
from idgraph.ir.fusion import tensor_of
from idgraph.kernel.ir import SplitAxis


def split_axis(nest: LoopNest, depth: int, maps: IndexMaps) -> SplitAxis | None:
    """The axis that the loops from ``nest`` on go over, each directly inside the one before; None where it is one loop.

    All expressions in the loops have it, one of them at least as an axis that is not itself a part of another one.
    Loops on blocks name none: passes give blocks other extents.
    """
    if is_block(nest.parallel):
        return None
    first, *others = (_axes([v.domain for v in maps.loops(e)], depth) for e in nest.exprs)
    for axis, whole in first.items():
        if all(axis in x for x in others) and (whole or any(x[axis] for x in others)):
            return axis if _alone(nest, axis.loops) else None
    return None


def _alone(nest: LoopNest, loops: int) -> bool:
    """Whether so many loops stand directly inside each other."""
    if loops == 1:
        return True
    inner = nest.children[0]
    return len(nest.children) == 1 and isinstance(inner, LoopNest) and _alone(inner, loops - 1)


def _axes(loops: Sequence[IterDomain], depth: int) -> dict[SplitAxis, bool]:
    """The axes that the schedule split into several ``loops`` from ``depth`` on, and whether each is a whole one.

    An inner part must be split without a rest: else its loops leave places out, and their digits are not the axis's.
    """
    parts: list[tuple[IterDomain, int, bool]] = []  # an axis, its first loop, and whether its loops have no rest
    found: dict[SplitAxis, bool] = {}
    for n, d in enumerate(loops, 1):
        parts.append((d, n - 1, True))
        while len(parts) > 1 and parts[-1][2] and (source := _source(parts[-2][0], parts[-1][0])) is not None:
            (outer, at, exact), (inner, _, _) = parts[-2:]
            exact = exact and simplify(outer.extent * inner.extent) == simplify(source.extent)
            parts[-2:] = [(source, at, exact)]
            if at == depth:
                found[SplitAxis(simplify(source.extent), n - depth)] = False
    ends = [at for _, at, _ in parts[1:]] + [len(loops)]
    whole = {
        SplitAxis(simplify(d.extent), end - at) for (d, at, _), end in zip(parts, ends, strict=True) if at == depth
    }
    return {axis: axis in whole for axis in reversed(found)}


def _source(outer: IterDomain, inner: IterDomain) -> IterDomain | None:
    """The axis that the schedule split into these two."""
    made, t = inner.definition, tensor_of(inner)
    if isinstance(made, Split) and made.outer is outer and made.inner is inner:
        return made.source if t is not None and made in t.domain.loop_exprs else None
    return None
