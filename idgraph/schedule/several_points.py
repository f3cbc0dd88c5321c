"""Several points of one thread, where their loads can be under way together, or what they load can be shared.

The tables of a rotation are the same for all heads. Where they are put together of pieces, their loads and the choices
of their addresses are most of a kernel's instructions; taken for several heads at once, they are shared. So are the
places and weights of a picture that is resized, for several channels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from idgraph.ir import IterDomain, LoadedCoordinate, Mapped, Tensor, TensorExpr, item_size
from idgraph.ir.optable import OPERATIONS, POINTWISE
from idgraph.layout.inference import bytes_of
from idgraph.schedule.follow import HEAVY, SourceAccess, source_strides
from idgraph.schedule.readers import PICKS

SHARED_POINTS = 4  # points of a thread that share what it loads
PIECES = 4  # loads of small tensors for a vector of the result that are worth sharing
WORK = 24  # operations on an element whose results several points share, where they are most of all
THREADS = 1 << 18  # that a large GPU runs at once
BUSY_RESULT_BYTES = 1 << 24  # bytes of a result that keep all threads busy with several vectors each


def coarsening_axis(t: Tensor, kept: Sequence[IterDomain], stored: Collection[Tensor]) -> tuple[IterDomain, int] | None:
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
    touches = source_strides(t, stored)
    if touches is None or len(kept) < 2:
        return None
    small = [u for u in touches if bytes_of(u.source) * HEAVY < bytes_of(t)]
    if len(small) < PIECES:
        return None
    for d in kept[:-1]:
        n = int(d.extent) if d.extent.is_const else 0
        steps = next((s for s in (SHARED_POINTS, 2) if n and n % s == 0), 1)
        if steps > 1 and all(_still(u, d) for u in small):
            return d, steps
    return None


def _still(u: SourceAccess, d: IterDomain) -> bool:
    step = u.steps.get(d)  # a loop that is cut already has none
    return step is not None and step == 0


def coarsening_by_work(
    t: Tensor, kept: Sequence[IterDomain], exprs: Collection[TensorExpr]
) -> tuple[IterDomain, int] | None:
    """(axis, steps) of the kept loops along which most operations of gathers, and not the innermost one, compute the
    same; None where there is none, few operations, or fewer points than would keep a device busy.

    Indices that lie in memory may select any element: of those two steps, so that fewer lines of a cache are in use.

    >>> import idgraph as ig
    >>> f = ig.Fusion("every other column")
    >>> x = f.input("x", shape=(64, 64, 512))
    >>> at = ig.cast(f.iota(512), "float32")
    >>> for _ in range(8):
    ...     at = ig.maximum(at * 0.5 + at * 0.25, 1.0)
    >>> t = f.output(ig.index_select(x, 2, ig.cast(at, "int64")))
    >>> axis, steps = shared_work(t, t.logical, f.exprs)
    >>> str(axis.extent), steps
    ('64', 4)
    """
    order = {e: n for n, e in enumerate(t.fusion.exprs)}
    work = sorted(exprs, key=order.__getitem__)
    varies, where = _varying(work), _axes_along(t, work)
    points = [e for e in work if e.op in POINTWISE]
    loaded = has_random_gather(work)
    best: tuple[IterDomain, int] | None = None
    most = max(WORK, (len(points) + 1) // 2) - 1
    for d in kept[:-1]:
        n = int(d.extent) if d.extent.is_const else 0
        steps = next((s for s in (2 if loaded else SHARED_POINTS, 2) if n and n % s == 0), 1)
        still = sum(not (varies[e.output] & where[e.output].get(d, _NONE)) for e in points)
        if steps > 1 and still >= most and bytes_of(t) >= THREADS * steps * item_size(t.dtype):
            best, most = (d, steps), max(still, most)
    return best


_NONE = frozenset[IterDomain]()


def has_random_gather(exprs: Collection[TensorExpr]) -> bool:
    """Whether an operation picks single elements at places that lie in memory, which may be any.

    >>> import idgraph as ig
    >>> f = ig.Fusion("take")
    >>> x, i = f.input("x", shape=(64,)), f.input("i", shape=(64,), dtype="int64")
    >>> t, u = ig.index_select(x, 0, i), ig.index_select(x, 0, 63 - f.iota(64))
    >>> picks_anywhere([t.definition]), picks_anywhere([u.definition])
    (True, False)
    """
    seen: set[Tensor] = set()
    stack = [e.inputs[r.operand] for e in exprs if e.op in PICKS for row in e.reads for r in _loaded(row)]
    while stack:
        u = stack.pop()
        if u.definition is None:
            return True
        if u not in seen:
            seen.add(u)
            stack += u.definition.inputs
    return False


def _loaded(row: Sequence[object]) -> list[LoadedCoordinate]:
    return [r for r in row if isinstance(r, LoadedCoordinate)]


def _varying(exprs: Sequence[TensorExpr]) -> dict[Tensor, set[IterDomain]]:
    """The axes along which the elements of each result differ: an axis that is expanded is not one of them."""
    found: dict[Tensor, set[IterDomain]] = {}
    for e in exprs:
        own = {d for d in e.output.root if not d.is_broadcast} if not e.inputs else set[IterDomain]()
        for p, row in zip(e.inputs, e.reads, strict=True):
            before = found.get(p, {d for d in p.axes if not d.is_broadcast})
            own |= {r.domain for d, r in zip(p.axes, row, strict=True) if d in before and isinstance(r, Mapped)}
        for x in e.output.domain.exprs:
            own |= {*x.outputs} if own & {*x.inputs} else set[IterDomain]()
        found[e.output] = own
    return found


def _axes_along(t: Tensor, exprs: Sequence[TensorExpr]) -> dict[Tensor, dict[IterDomain, set[IterDomain]]]:
    """For each tensor and each axis of ``t`` the axes whose coordinate is made of that one's."""
    found: dict[Tensor, dict[IterDomain, set[IterDomain]]] = {t: {d: {d} for d in t.logical}}
    for e in reversed(exprs):
        along = found.setdefault(e.output, {})
        for d, own in along.items():
            for x in reversed(e.output.domain.exprs):
                own |= {*x.inputs} if own & {*x.outputs} else set[IterDomain]()
            for p, row in zip(e.inputs, e.reads, strict=True):
                read = {a for a, r in zip(p.axes, row, strict=True) if isinstance(r, Mapped) and r.domain in own}
                found.setdefault(p, {}).setdefault(d, set()).update(read)
    return found


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
    touches = source_strides(t, stored)
    if touches is None or not bytes_of(t) >= BUSY_RESULT_BYTES:
        return False
    last = next((d for d in reversed(t.logical) if not d.is_broadcast), None)
    large = [u for u in touches if bytes_of(u.source) * HEAVY >= bytes_of(t)]
    if last is None or len({u.source for u in large}) != 1 or any(u.steps[last] != 1 for u in large):
        return False
    return calls_functions(exprs) or any(_still(u, last) for u in touches if u not in large)


def calls_functions(exprs: Collection[TensorExpr]) -> bool:
    """Whether an operation is a function of a mathematics library, which takes longer than a load's share of it."""
    return any(e.op in OPERATIONS and OPERATIONS[e.op].cycles == "library" for e in exprs)
