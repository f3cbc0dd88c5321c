"""Broadcasts before operations on one element: a norm's weights are cast where they are multiplied.

``unsqueeze(cast(w))`` lies on the loops of ``w`` until it is broadcast, so that no row's nest could hold the cast; as
``cast(unsqueeze(w))`` it is computed in the row's own loops, and ``w`` is all that is read.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from idgraph.ir import Fusion, Mapped, Tensor, TensorExpr
from idgraph.ir.optable import POINTWISE
from idgraph.ir.pointwise import aligned_reads
from idgraph.ir.registry import apply
from idgraph.rewrite.replacing import replace_operation

SCALARS: Final = 8  # operations on one element that each reader may do again


def broadcasts_first(fusion: Fusion) -> None:
    """Exchange broadcasts of new axes with the cheap operations before them; tensors needed no more are removed.

    What ends it: an exchange moves one broadcast towards the inputs, past one operation of one operand.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, w = f.input("x", shape=(8, 16)), f.input("w", shape=(16,), dtype="bfloat16")
    >>> t = f.output(x * ig.cast(w, "float32"))
    >>> broadcasts_first(f)
    >>> [e.op for e in f.exprs]
    ['unsqueeze', 'cast', 'mul']
    """
    changed = True
    while changed:
        changed = False
        for t in fusion.tensors:
            if _is_cheap(t):
                wide_views(t)
        for e in fusion.exprs:
            if e.op == "unsqueeze" and e.output.definition is e and _is_cheap(e.inputs[0]):
                replace_operation(e, partial(_exchanged, e))
                changed = True


def numbers_into_readers(fusion: Fusion) -> None:
    """Compute what a few operations make of single elements in the loops of its readers: a tensor without axes has no
    loop that a reader's nest could hold it by.

    That of reductions is left: their kernel ends with it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, s = f.input("x", shape=(8, 16)), f.input("s", shape=())
    >>> t = f.output(x * ig.exp(s))
    >>> numbers_into_readers(f)
    >>> [e.op for e in f.exprs]
    ['unsqueeze', 'exp', 'mul']
    """
    for t in fusion.tensors:
        if t.definition is None or t.ndim or not _is_of_numbers(t):
            continue
        work = wide_views(t)
        while work:
            view = work.pop()
            e = view.definition
            if e is not None and e.op == "unsqueeze" and e.inputs[0].definition is not None:
                replace_operation(e, partial(_exchanged, e))
                work += view.definition.inputs if view.definition is not None else ()


def _is_of_numbers(t: Tensor) -> bool:
    """True of what at most `SCALARS` operations, each on one element, compute of inputs of one element."""
    seen: set[Tensor] = set()
    work = [t]
    while work:
        u = work.pop()
        e = u.definition
        if e is None or u in seen:
            continue
        seen.add(u)
        if e.op not in POINTWISE or len(seen) > SCALARS:
            return False
        work += e.inputs
    return all(not x.ndim for u in seen if u.definition is not None for x in u.definition.inputs)


def wide_views(t: Tensor) -> list[Tensor]:
    """Views of ``t`` with as many axes as its readers have, where those are more; these read the views then."""
    fusion, made = t.fusion, list[Tensor]()
    missing: dict[int, dict[TensorExpr, None]] = {}
    for use in t.uses:
        if (use.op in POINTWISE or use.op == "expand") and use.output.ndim > t.ndim:
            missing.setdefault(use.output.ndim - t.ndim, {})[use] = None
    for count, uses in missing.items():
        with fusion.at_line(next(iter(uses)).source_line):
            view = apply(fusion, "unsqueeze", (t,), {"dims": tuple(range(count))}, None)
        for use in sorted(uses, key=fusion.exprs.index, reverse=True):
            fusion.replace_operand(use, t, view)
            rows = zip(use.inputs, use.reads, strict=True)
            use.reads = tuple(aligned_reads(view, use.output.root) if u is view else row for u, row in rows)
        made.append(view)
    return made


def _is_cheap(t: Tensor) -> bool:
    """True of what at most `SCALARS` operations, each on one element, compute of inputs of its own axes, and that is
    not asked for itself: computing it again costs less than a kernel of its own and a load."""
    if t.definition is None or t.definition.op == "unsqueeze" or t.fusion.is_output(t) or not t.ndim:
        return False
    seen: set[Tensor] = set()
    work = [t]
    while work:
        u = work.pop()
        e = u.definition
        if u in seen or (u is not t and (e is None or e.op == "unsqueeze" or not e.inputs)):
            continue
        seen.add(u)
        if e is None or e.op not in POINTWISE or not e.inputs or len(seen) > SCALARS or u.domain.exprs:
            return False
        if not all(isinstance(r, Mapped) for row in e.reads for r in row) or any(x.ndim < t.ndim for x in e.inputs):
            return False
        work += e.inputs
    return True


def _exchanged(e: TensorExpr) -> Tensor:
    before = e.inputs[0].definition
    if before is None:
        raise AssertionError("a computed tensor has a definition")
    fusion = e.output.fusion
    moved = {x: apply(fusion, e.op, (x,), dict(e.attrs), None) for x in dict.fromkeys(before.inputs)}
    args = tuple(moved[a] if isinstance(a, Tensor) else a for a in before.args)
    return apply(fusion, before.op, args, dict(before.attrs), None)
