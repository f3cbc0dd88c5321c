"""Several points of one thread, where their loads can be under way together, or what they load can be shared.

The tables of a rotation are the same for all heads. Where they are put together of pieces, their loads and the choices
of their addresses are most of a kernel's instructions; taken for several heads at once, they are shared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from idgraph.ir import IterDomain, Tensor, TensorExpr
from idgraph.ir.optable import OPERATIONS
from idgraph.layout.inference import bytes_of
from idgraph.schedule.follow import HEAVY, Touch, traced

STEPS = 4  # points of a thread that share what it loads
PIECES = 4  # loads of small tensors for a vector of the result that are worth sharing
LARGE = 1 << 24  # bytes of a result that keep all threads busy with several vectors each


def shared_axis(t: Tensor, kept: Sequence[IterDomain], stored: Collection[Tensor]) -> tuple[IterDomain, int] | None:
    """(axis, steps) of the kept loops along which no small source of ``t`` moves, though each moves along the innermost
    one; None where there is none, or few loads to share.

    >>> import idgraph as ig
    >>> f = ig.Fusion("heads")
    >>> x, table = f.input("x", shape=(32, 2048, 64)), f.input("table", shape=(4, 2048, 16))
    >>> t = f.output(x * ig.cat([table[k] for k in range(4)], dim=1))
    >>> axis, steps = shared_axis(t, t.logical, [])
    >>> str(axis.extent), steps
    ('32', 4)
    """
    touches = traced(t, stored)
    if touches is None or len(kept) < 2:
        return None
    small = [u for u in touches if bytes_of(u.source) * HEAVY < bytes_of(t)]
    if len(small) < PIECES:
        return None
    for d in kept[:-1]:
        n = int(d.extent) if d.extent.is_const else 0
        steps = next((s for s in (STEPS, 2) if n and n % s == 0), 1)
        if steps > 1 and all(_still(u, d) for u in small):
            return d, steps
    return None


def _still(u: Touch, d: IterDomain) -> bool:
    step = u.steps.get(d)  # a loop that is cut already has none
    return step is not None and step == 0


def outlasts(t: Tensor, exprs: Collection[TensorExpr], stored: Collection[Tensor]) -> bool:
    """Whether a thread has more to do, or to wait for, than its one large source's load: a function, or a number of the
    row that must be there first. Two vectors then share the wait.

    >>> import idgraph as ig
    >>> f = ig.Fusion("gelu")
    >>> x = f.input("x", shape=(4096, 4096))
    >>> t, u = ig.tanh(x), x + 1.0
    >>> outlasts(t, [t.definition], []), outlasts(u, [u.definition], [])
    (True, False)
    """
    touches = traced(t, stored)
    if touches is None or not bytes_of(t) >= LARGE:
        return False
    last = next((d for d in reversed(t.logical) if not d.is_broadcast), None)
    large = [u for u in touches if bytes_of(u.source) * HEAVY >= bytes_of(t)]
    if last is None or len({u.source for u in large}) != 1 or any(u.steps[last] != 1 for u in large):
        return False
    return calls_functions(exprs) or any(_still(u, last) for u in touches if u not in large)


def calls_functions(exprs: Collection[TensorExpr]) -> bool:
    """Whether an operation is a function of a mathematics library, which takes longer than a load's share of it."""
    return any(e.op in OPERATIONS and OPERATIONS[e.op].cycles == "library" for e in exprs)
