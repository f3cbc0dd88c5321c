"""Loops follow memory: the order, the flattening and the cuts of a reference's loops by what it reads and writes.

`source_strides` follows each operand back to the memory that it is read from: by how many elements a step along an
axis of the reference moves it. The axis whose neighbours most bytes have side by side is the innermost loop; axes that
lie in all memory alike as one long axis become one loop, so that a vector may cross from one row into the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, lcm, prod

from idgraph.arith import Expr, as_expr, is_true, multiple_of, simplify
from idgraph.index.allocation import strides
from idgraph.ir import Fixed, IterDomain, LoadedCoordinate, Mapped, Merge, Resize, Split, Stride, Tensor, TensorExpr
from idgraph.ir.op_table import MOVES
from idgraph.layout.inference import bytes_of, moved_bytes
from idgraph.layout.stride_order import Order, carried, own_order

HEAVY = 4  # a source with a quarter of the reference's bytes, or more, counts
MAX_ORDERS = 16
MAX_PATHS = 64  # ways from a reference to its sources that are looked at
LONG_ROW = 1024  # elements of a row worth peeling at its ends where a source is constant along it
SHORT = 8  # elements of an innermost axis of which one thread takes several steps
LANES = 32  # elements that it takes
LEAST_REALIGNED = 8  # loads of neighbours that begin anywhere, worth two of vectors; 4 run at the speed of a copy
LEAST_VECTORS = 8  # of a loop whose ends are worth code of their own


class Orders(dict[Tensor, tuple[Order, ...]]):
    """The orders of the memory that tensors are computed from, as orders of their axes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AffineCoordinate:
    """A coordinate: the sum of ``offset`` and of axes of the reference, each times a number."""

    terms: tuple[tuple[IterDomain, Expr], ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class PartialCoordinate:
    """A coordinate that lies inside of ``extent`` elements at some of a reference's points only."""

    at: AffineCoordinate
    extent: Expr


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """A source (an input, or what an earlier nest has stored) as a reference reads it.

    ``steps``: elements that one step along an axis of the reference moves; 0 where the source has no such axis, None
    where a reshape or a move hides it. ``offset``: the element that all axes' first steps read, None where it is not
    known. ``parts`` are the source's coordinates that a pad, or a part of a cat, leaves: it is read where they are
    inside.
    """

    source: Tensor
    steps: Mapping[IterDomain, Expr | None]
    offset: Expr | None = None
    parts: tuple[PartialCoordinate, ...] = ()


def loop_order(t: Tensor, axes: Sequence[IterDomain], stored: Collection[Tensor]) -> tuple[IterDomain, ...]:
    """``axes`` of a reference, outermost loop first: in the order of the memory of which most bytes are moved.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a, b = (f.input(n, shape=(64, 64), strides=(1, 64)) for n in "ab")
    >>> t = f.output(a + b)
    >>> [str(d) for d in loop_order(t, t.logical, [])]
    ['I5[64]', 'I4[64]']
    """
    offers = (own_order(t), *_orders(t, stored))
    candidates: dict[tuple[IterDomain, ...], None] = {}
    for o in offers:
        mine = [d for d in o.axes if d in axes]
        if mine and mine[-1] is o.axes[-1]:
            candidates.setdefault(_filled(mine, axes))
    if not candidates:
        return tuple(axes)
    heavy = [o for o in offers if o.source is t or bytes_of(o.source) * HEAVY >= bytes_of(t)]
    costs = {order: moved_bytes(t, order, heavy) for order in candidates}
    least = min(costs.values())
    return next(order for order in candidates if costs[order] == least)  # the reference's own comes first


def read_order(e: TensorExpr, known: Orders | None = None) -> tuple[IterDomain, ...]:
    """The root axes of a reduction's result, reduced ones too, in the order of the memory that its operand comes from.

    ``known`` keeps the orders of tensors on the way for the next question, whose ways may be the same.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.sum(f.input("x", shape=(4, 6), strides=(1, 4)), 1)
    >>> [str(d) for d in read_order(t.definition)]
    ['r3[6]', 'I2[4]']
    """
    p, root = e.inputs[0], [d for d in e.output.root if not d.is_broadcast]
    found: dict[tuple[IterDomain, ...], int] = {}
    at = {d: r.domain for d, r in zip(p.axes, e.reads[0], strict=True) if isinstance(r, Mapped)}
    # A reduction reads once what none of its reduced axes moves, which is little beside a larger source that they move.
    # Of equal ones the order of the largest source counts: an index is small beside the rows that it names.
    reduced = {d for d, own in at.items() if own.kind == "reduction"}
    every = _orders(p, (), known)
    least = max((bytes_of(o.source) for o in every if not reduced.isdisjoint(o.axes)), default=inf if reduced else 0)
    offers = sorted(
        (o for o in every if bytes_of(o.source) >= least or not reduced.isdisjoint(o.axes)),
        key=lambda o: -bytes_of(o.source),
    )
    for o in offers:
        axes = _filled(o.axes, [d for d in p.axes if not d.is_broadcast])
        if not axes:
            continue
        order = tuple(at[d] for d in axes if at.get(d) in root)
        found.setdefault(order, moved_bytes(p, axes, offers))
    whole = {order: cost for order, cost in found.items() if len(order) == len(root)}
    return min(whole, key=lambda order: whole[order]) if whole else tuple(root)


def _filled(order: Sequence[IterDomain], axes: Sequence[IterDomain]) -> tuple[IterDomain, ...]:
    """The order with the axes that it lacks, each behind its logical neighbour."""
    made = list(order)
    for at, d in enumerate(axes):
        if d in made:
            continue
        before = next((x for x in reversed(axes[:at]) if x in made), None)
        made.insert(made.index(before) + 1 if before is not None else 0, d)
    if order and made[-1] is not order[-1]:  # the fastest axis stays innermost
        made.remove(order[-1])
        made.append(order[-1])
    return tuple(made)


def _orders(t: Tensor, stored: Collection[Tensor], known: Orders | None = None) -> tuple[Order, ...]:
    """The orders of the memory that ``t`` is computed from, as orders of its axes."""
    known = Orders() if known is None else known
    stack = [t]
    while stack:
        u = stack[-1]
        if u in known:
            stack.pop()
            continue
        e = u.definition
        if e is None or (u in stored and u is not t):
            known[u] = (own_order(u),)
            continue
        open_ = [x for x in e.inputs if x not in known]
        if open_:
            stack += open_
            continue
        made = [carried(e, k, o) for k, x in enumerate(e.inputs) for o in known[x]]
        unique = {(o.source, o.axes): o for o in made if o.axes}
        known[u] = tuple(unique.values())[:MAX_ORDERS]
    return known[t]


# what a reference reads, and by which steps ---------------------------------------------------------------------------


def source_strides(
    t: Tensor,
    stored: Collection[Tensor],
    splits: bool = False,
    base: Sequence[IterDomain] = (),
    joined: dict[IterDomain, Expr] | None = None,
    formulas: bool = False,
) -> list[SourceAccess] | None:
    """The sources of ``t``, once for each way that they are read; None where there are too many ways. With ``splits``
    also along the parts of an axis that a reshape cuts or joins, and at every second place. ``base``: the axes to
    follow, those of ``t`` (the default), loops that they were split into, or its root. ``joined`` gets the axes that
    a reshape has made of two and that hide them, each with the extent of the inner one. ``formulas``: also along axes
    that are read at sums of coordinates (windows).

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, b = f.input("x", shape=(4, 6)), f.input("b", shape=(6,))
    >>> t = f.output(x.T + ig.unsqueeze(b, 1))
    >>> [(u.source.name, [str(u.steps[d]) for d in t.logical]) for u in source_strides(t, [])]
    [('x', ['1', '6']), ('b', ['1', '0'])]
    >>> [str(u.offset) for u in source_strides(f.output(x[:, ::2][1:]), [], splits=True)]
    ['6']
    """
    found: list[SourceAccess] = []
    axes = tuple(base) or t.logical
    origin = dict[IterDomain, AffineCoordinate | None]({d: AffineCoordinate(((d, _ONE),), _ZERO) for d in axes})
    for x in _splits_into(t, axes):
        origin[x.source] = AffineCoordinate(((x.outer, x.inner.extent), (x.inner, _ONE)), _ZERO)
    stack: list[tuple[Tensor, Known, tuple[PartialCoordinate, ...]]] = [(t, origin, ())]
    ways = 0
    while stack:
        u, of, parts = stack.pop()
        e = u.definition
        last = e is None or not e.inputs or (u in stored and u is not t)
        ways += last
        if ways + len(stack) > MAX_PATHS:
            return None
        if e is None or (u in stored and u is not t):
            found.append(_touch(axes, u, of, parts))
            continue
        own, inner = dict[IterDomain, PartialCoordinate](), {d for x in u.domain.exprs for d in x.outputs}
        if u is not t or axes == t.logical or len(origin) > len(axes):
            of, own = _through(u, of, splits, {} if joined is None else joined)
        for k, x in enumerate(e.inputs):
            mapped = {r.domain for r in e.reads[k] if isinstance(r, Mapped)}
            mine = (p for d, p in own.items() if d in mapped or d in inner)  # a cat has a part for each operand
            inside = _operand(e, k, of)
            for d, r in zip(x.axes, e.reads[k], strict=True) if formulas else ():
                if isinstance(r, LoadedCoordinate):
                    inside = {**inside, d: _formula(e.inputs[r.operand], _operand(e, r.operand, of))}
            stack.append((x, inside, (*parts, *mine)))
    return found[::-1]


_ZERO, _ONE = as_expr(0), as_expr(1)
Known = Mapping[IterDomain, AffineCoordinate | None]  # None: hidden


def _splits_into(t: Tensor, axes: Sequence[IterDomain]) -> list[Split]:
    """The splits of axes of ``t`` into loops that are among ``axes``."""
    return [x for x in t.domain.loop_exprs if isinstance(x, Split) and x.outer in axes and x.inner in axes]


def _through(
    u: Tensor, of: Known, splits: bool, joined: dict[IterDomain, Expr]
) -> tuple[Known, dict[IterDomain, PartialCoordinate]]:
    """From the logical axes of ``u`` to its root axes: slices and pads shift, ``splits`` add up, merges of what they
    have made come apart, the rest hides.

    Returns the axes of which there is a part, too."""
    known, parts = dict(of), dict[IterDomain, PartialCoordinate]()
    for x in reversed(u.domain.exprs):
        outs = [known.get(d) for d in x.outputs]
        if splits and isinstance(x, Split):
            known[x.source] = _sum_of(_multiplied(outs[0], x.inner.extent), outs[1])
        elif splits and isinstance(x, Merge):
            known[x.outer], known[x.inner] = _divided(outs[0], x.inner.extent, joined)
        elif splits and isinstance(x, Stride):
            known[x.source] = _sum_of(_multiplied(outs[0], x.step), AffineCoordinate((), x.start))
        elif isinstance(x, Resize):
            found = outs[0] if not splits else _sum_of(outs[0], AffineCoordinate((), simplify(-x.left)))
            known[x.source] = found
            if splits and found is not None and not (is_true(x.left <= 0) and is_true(x.right <= 0)):
                parts[x.source] = PartialCoordinate(found, x.source.extent)
        else:
            known.update({d: None for d in x.inputs if not d.is_broadcast})
    return known, parts


def _multiplied(a: AffineCoordinate | None, n: Expr) -> AffineCoordinate | None:
    return (
        None if a is None else AffineCoordinate(tuple((d, simplify(k * n)) for d, k in a.terms), simplify(a.offset * n))
    )


def _divided(
    a: AffineCoordinate | None, n: Expr, joined: dict[IterDomain, Expr]
) -> tuple[AffineCoordinate | None, AffineCoordinate | None]:
    """The quotient by ``n`` and the remainder, where all terms belong to one of them; else the axis in the way is
    ``joined`` of two."""
    numbers = () if a is None else (n, a.offset, *(x for d, k in a.terms for x in (k, d.extent)))
    if a is None or not all(x.is_const for x in numbers):
        return None, None
    by, terms = int(n), sorted(((d, int(k)) for d, k in a.terms), key=lambda x: x[1])
    outer, inner = ([(d, k) for d, k in terms if (k % by == 0) is whole] for whole in (True, False))
    reach = [k * (int(d.extent) - 1) for d, k in inner]
    if int(a.offset) % by + sum(reach) >= by or min(reach, default=0) < 0:
        d, k = inner[-1]
        if k > sum(reach[:-1]) and by % k == 0 and not int(a.offset):
            joined.setdefault(d, as_expr(by // k))
        return None, None
    return (
        AffineCoordinate(tuple((d, as_expr(k // by)) for d, k in outer), as_expr(int(a.offset) // by)),
        AffineCoordinate(tuple((d, as_expr(k)) for d, k in inner), as_expr(int(a.offset) % by)),
    )


def _sum_of(a: AffineCoordinate | None, b: AffineCoordinate | None) -> AffineCoordinate | None:
    return None if a is None or b is None else AffineCoordinate((*a.terms, *b.terms), simplify(a.offset + b.offset))


def _operand(e: TensorExpr, k: int, inside: Known) -> Known:
    """The axes of an operand, from those of the output's root."""
    found: dict[IterDomain, AffineCoordinate | None] = {}
    for d, read in zip(e.inputs[k].axes, e.reads[k], strict=True):
        match read:
            case Mapped(at):
                if at in inside or not d.is_broadcast:
                    found[d] = inside.get(at)
            case Fixed(index):
                found[d] = AffineCoordinate((), index)
            case _:
                found[d] = None
    return found


def _formula(t: Tensor, of: Known) -> AffineCoordinate | None:
    """The elements of an integer tensor as a sum of coordinates, each times a number; None where they are not."""
    e = t.definition
    if e is None:
        return None
    of, _ = _through(t, of, True, {})
    if e.op == "iota" and isinstance(e.attrs["start"], int) and isinstance(e.attrs["step"], int):
        start = AffineCoordinate((), as_expr(e.attrs["start"]))
        return _sum_of(_multiplied(of.get(t.root[0]), as_expr(e.attrs["step"])), start)
    parts = [_formula(x, _operand(e, k, of)) for k, x in enumerate(e.inputs)]
    if len(parts) == 2 and e.op == "add":
        return _sum_of(*parts)
    return parts[0] if len(parts) == 1 and (e.op in MOVES or e.op == "cast") else None


def _touch(axes: Sequence[IterDomain], source: Tensor, of: Known, parts: tuple[PartialCoordinate, ...]) -> SourceAccess:
    steps: dict[IterDomain, Expr | None] = dict.fromkeys(axes, _ZERO)
    hidden = False
    inside = set(source.allocation) <= set(source.axes)
    offset = as_expr(source.offset if source.definition is None else 0)
    for d, stride in zip(source.allocation, strides(source), strict=True):
        at = of.get(d) if inside else None
        if d.is_broadcast or (d not in of and inside):
            continue
        if at is None:
            hidden = True
            continue
        offset = offset + stride * at.offset
        for axis, count in at.terms:
            before = steps[axis]
            steps[axis] = None if before is None else simplify(before + stride * count)
    if hidden:  # an axis that no other step explains may hide there
        steps = {d: None if s is None or s == 0 else s for d, s in steps.items()}
    return SourceAccess(source, steps, None if hidden else simplify(offset), parts)


def output_access(t: Tensor, base: Sequence[IterDomain] = ()) -> SourceAccess | None:
    """A reference's own memory by its axes, or by the ``base`` axes: those of its root before they were flattened, or
    loops that axes were split into; None where it is laid out by others."""
    made = _splits_into(t, base)
    if base and tuple(base) != t.logical and not made:
        if t.allocation != t.axes or not all(isinstance(x, Merge) for x in t.domain.exprs):
            return None
        inner, found = _ONE, dict[IterDomain, Expr | None]()
        for d in reversed(base):
            found[d], inner = inner, simplify(inner * d.extent)
        return SourceAccess(t, found, _ZERO)
    if not set(t.allocation) <= set(t.logical):
        return None
    by_axis = dict(zip(t.allocation, strides(t), strict=True))
    for x in made:
        step = by_axis.get(x.source, _ZERO)
        by_axis |= {x.outer: simplify(step * x.inner.extent), x.inner: step}
    return SourceAccess(t, {d: by_axis.get(d, _ZERO) for d in (base if made else t.logical)}, _ZERO)


# cuts -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlatTiling:
    """The innermost ``axes`` loops as one, in vectors of ``width`` elements.

    ``chunks`` of them for each step of the loops outside, or None where the vectors are counted over all of it. With
    ``steps`` there are no vectors: a thread takes as many elements, a block apart. With ``several`` a thread's elements
    are several vectors, of whole steps along a short innermost axis. ``period`` is the number of vectors after which
    they begin at the same index of such an axis: a block has a multiple of it, so that a thread's vectors are alike.
    """

    axes: int
    width: int
    chunks: int | None
    steps: int = 1
    several: bool = False
    period: int = 1


def flat_cut(
    t: Tensor,
    kept: Sequence[IterDomain],
    stored: Collection[Tensor],
    width: int,
    realigned: bool = True,
    whole_steps: bool = False,
) -> FlatTiling | None:
    """The cut of the loops over ``kept`` (outermost first) into vectors of ``width`` where only the innermost axis is
    not a multiple of it; None where nothing is gained.

    The innermost axes that lie alike in everything that is large make one loop. Where that is not a multiple either,
    its last vector is not whole; rows that begin unaligned have one vector more, as their first is not whole (`peel`).
    What is read at another alignment than the reference is written at comes out of two vectors (`realign`); without
    ``realigned``, or where vectors have fewer elements than that needs, neighbouring threads take single elements.
    ``whole_steps`` along a short innermost axis are one thread's, also where its vectors need not be.
    """
    own, touches = output_access(t), source_strides(t, stored)
    if own is None or touches is None or own.steps[kept[-1]] != 1:
        return None
    heavy = [own, *(u for u in touches if bytes_of(u.source) * HEAVY >= bytes_of(t))]
    if any(u.steps[kept[-1]] is None for u in heavy):
        return None
    tables = any(u not in heavy and u.steps[kept[-1]] != 0 for u in touches)
    short = _short(kept, heavy, width, whole_steps, tables)
    if short is not None:
        return short
    whole = [u for u in heavy if u.steps[kept[-1]] == 1]
    columns = [u for u in touches if u not in heavy and u.steps[kept[-1]] != 0]
    by_row = [u for u in touches if u not in heavy and u.steps[kept[-1]] == 0]
    count = min(_joint(kept, u) for u in (*whole, *columns))
    still = min((_still(kept, u) for u in by_row), default=count)
    if still < count and is_true(_product_of_extents(kept[len(kept) - still :]) >= LONG_ROW):
        count = still  # a number for each row is loaded once for a vector
    inner, outer = kept[len(kept) - count :], kept[: len(kept) - count]
    n = _product_of_extents(inner)
    aligned = all(_aligned(u, outer, width) for u in whole)
    if aligned and multiple_of(n, width):
        return FlatTiling(count, width, None)
    if not n.is_const:
        return FlatTiling(count, width, None) if not outer else None
    if int(n) < LEAST_VECTORS * width:
        return None
    if not outer:
        return FlatTiling(count, width, None)
    if aligned:
        return FlatTiling(count, width, -(-int(n) // width))
    unlike = [u for u in whole if not _same_alignment(own, u, outer, width)]
    if unlike and not (realigned and width >= LEAST_REALIGNED and all(_has_columns(kept, u) for u in unlike)):
        if _crosses(kept, own, touches, width):
            return FlatTiling(len(kept), width, None)
        return FlatTiling(
            0, 1, None, width
        )  # one is aligned where another is not: neighbouring threads, single elements
    return FlatTiling(count, width, -(-(int(n) + width - 1) // width))


def _short(
    kept: Sequence[IterDomain], heavy: Sequence[SourceAccess], width: int, whole_steps: bool, tables: bool
) -> FlatTiling | None:
    """Vectors across a short innermost axis (the channels of a picture).

    Where everything large has that axis innermost, vectors of neighbouring threads lie side by side; with ``tables``,
    numbers of each step of that axis, blocks are whole periods. What has the next
    axis innermost lies in vectors of its own: a thread then takes whole steps along the short axis, as many as make
    whole vectors of both.
    """
    extent = kept[-1].extent
    if len(kept) < 2 or not extent.is_const or not 1 < int(extent) <= SHORT:
        return None
    lanes = lcm(int(extent), width)
    count = min(_joint(kept, u) if u.steps[kept[-1]] == 1 else len(kept) for u in heavy)
    beside = all(u.steps[kept[-1]] == 1 or u.steps[kept[-2]] == 1 for u in heavy)
    inner, outer = kept[len(kept) - count :], kept[: len(kept) - count]
    aligned = all(_aligned(u, outer, width) for u in heavy if u.steps[kept[-1]] == 1)
    if count < 2 or not beside or not aligned:
        return None
    if (
        not whole_steps
        and all(u.steps[kept[-1]] == 1 for u in heavy)
        and multiple_of(_product_of_extents(inner), width)
    ):
        return FlatTiling(count, width, None, period=lanes // width if tables else 1)
    if lanes > LANES or not multiple_of(_product_of_extents(inner), lanes):
        return None
    return FlatTiling(count, lanes, None, several=True)


def _product_of_extents(axes: Sequence[IterDomain]) -> Expr:
    return simplify(prod((d.extent for d in axes), start=as_expr(1)))


def _still(kept: Sequence[IterDomain], u: SourceAccess) -> int:
    """The number of innermost axes along which ``u`` does not move."""
    count = 0
    for d in reversed(kept):
        if u.steps[d] != 0:
            break
        count += 1
    return count


def _same_alignment(own: SourceAccess, u: SourceAccess, outer: Sequence[IterDomain], width: int) -> bool:
    """Whether vectors of both begin as far from a multiple of ``width``, wherever the loops outside are."""
    offset = as_expr(u.source.offset if u.source.definition is None else 0)
    pairs = [(own.steps[d], u.steps[d]) for d in outer]
    return multiple_of(offset, width) and all(
        a is not None and b is not None and multiple_of(simplify(a - b), width) for a, b in pairs
    )


def _has_columns(kept: Sequence[IterDomain], u: SourceAccess) -> bool:
    """Whether a source has all columns: a part of a cat has some of them, and its ends lie inside of vectors."""
    return is_true(_product_of_extents(u.source.axes) >= _product_of_extents([d for d in kept if u.steps[d] != 0]))


def _crosses(kept: Sequence[IterDomain], own: SourceAccess, touches: Sequence[SourceAccess], width: int) -> bool:
    """Whether vectors are counted over all rows of one padded source: its elements are read one by one, but written
    as vectors. Short elements that are written one by one take longer than what they move."""
    whole = _joint(kept, own) == len(kept) and multiple_of(_product_of_extents(kept), width)
    return whole and width >= LEAST_REALIGNED and len(touches) == 1 and all(d.extent.is_const for d in kept)


def _joint(kept: Sequence[IterDomain], u: SourceAccess) -> int:
    """The number of innermost axes that ``u`` has as one long axis."""
    count, step = 1, u.steps[kept[-1]]
    for inner, outer in pairwise(reversed(kept)):
        there = u.steps[outer]
        if there is None or step is None or simplify(there - step * inner.extent) != 0:
            break
        count, step = count + 1, there
    return count


def _aligned(u: SourceAccess, outer: Sequence[IterDomain], width: int) -> bool:
    """Whether vectors begin at multiples of ``width`` wherever the loops outside are."""
    offset = u.source.offset if u.source.definition is None else 0
    steps = [u.steps[d] for d in outer]
    return multiple_of(as_expr(offset), width) and all(s is not None and multiple_of(s, width) for s in steps)
