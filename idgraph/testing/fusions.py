"""Random fusions: a few inputs, then operations on what is there already, with many residual paths.

Shapes and index expressions that shrink to small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from hypothesis import strategies as st

from idgraph.arith import Expr, as_expr, maximum, minimum, symbol, where
from idgraph.errors import IdGraphError
from idgraph.ir import Fusion, Tensor
from idgraph.ir import ops_index as indexed
from idgraph.ir import ops_pointwise as ops
from idgraph.ir import ops_reduce as rows
from idgraph.ir import ops_view as moves
from idgraph.ir.op_table import apply


@st.composite
def shapes(
    draw: st.DrawFn, *, min_rank: int = 1, max_rank: int = 3, max_extent: int = 8, max_elements: int = 240
) -> tuple[int, ...]:
    """Shapes with extents from 1 and few elements; shrinks to ``(1,)``, then ``()`` where ``min_rank`` allows it.

    >>> from hypothesis import find, settings
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> find(shapes(), lambda s: len(s) == 2 and s[0] > 2, settings=same)
    (3, 1)
    """
    rank = draw(st.integers(min_rank, max_rank))
    found: list[int] = []
    room = max_elements
    for _ in range(rank):
        size = draw(st.integers(1, max(1, min(max_extent, room))))
        found.append(size)
        room //= size
    return tuple(found)


@st.composite
def index_expressions(
    draw: st.DrawFn, ranges: Mapping[str, int] | None = None, *, max_terms: int = 4
) -> tuple[Expr, dict[str, int]]:
    """(expression, ranges): an integer expression over variables ``0 <= name < ranges[name]``.

    Divisors are positive constants. Shrinks to one variable, then to a small constant.

    >>> from hypothesis import find, settings
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> e, ranges = find(index_expressions(), lambda found: found[0].divmods > 0, settings=same)
    >>> e.divmods
    1
    """
    sizes = dict(ranges or {name: draw(st.integers(1, 12)) for name in ("i", "j")})
    variables = [symbol(name, 0, size - 1) for name, size in sizes.items()]
    e = draw(st.one_of(st.integers(-4, 8).map(as_expr), st.sampled_from(variables)))
    for _ in range(draw(st.integers(0, max_terms))):
        other = draw(st.one_of(st.integers(-4, 8).map(as_expr), st.sampled_from(variables)))
        match draw(st.sampled_from(("add", "scale", "div", "mod", "min", "max", "where"))):
            case "add":
                e = e + other
            case "scale":
                e = e * draw(st.integers(-2, 8))
            case "div":
                e = e // draw(st.integers(1, 9))
            case "mod":
                e = e % draw(st.integers(1, 9))
            case "min":
                e = minimum(e, other)
            case "max":
                e = maximum(e, other)
            case _:
                e = where(draw(st.sampled_from(variables)) < draw(st.integers(0, 9)), e, other)
    return e, sizes


Draw = st.DrawFn

_FEW: Final = 300  # elements of the largest tensor: every point of every access is looked at


def _extents(t: Tensor) -> tuple[int, ...]:
    return tuple(int(d.extent) for d in t.axes)


def _draw_axis(draw: Draw, t: Tensor) -> int:
    return draw(st.integers(0, t.ndim - 1))


def broadcasts(a: Tensor, b: Tensor) -> bool:
    """Whether the shapes of two tensors broadcast to a small one."""
    pairs = list(zip(reversed(_extents(a)), reversed(_extents(b)), strict=False))
    wide = prod(max(x, y) for x, y in pairs)
    rest = prod(_extents(a)[: max(0, a.ndim - b.ndim)]) * prod(_extents(b)[: max(0, b.ndim - a.ndim)])
    return all(x == y or 1 in (x, y) for x, y in pairs) and wide * rest <= _FEW


def _draw_unary(draw: Draw, t: Tensor) -> Tensor:
    return draw(st.sampled_from((ops.neg, ops.copy)))(t)


def _draw_binary(draw: Draw, t: Tensor) -> Tensor:
    """Add or multiply ``t`` and any earlier tensor that broadcasts with it: a residual path."""
    others = [u for u in t.fusion.tensors if u.dtype == t.dtype and broadcasts(t, u)]
    other = draw(st.sampled_from(others or [t]))
    if draw(st.booleans()):
        t, other = other, t
    return draw(st.sampled_from((ops.add, ops.mul)))(t, other)


def _slice(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    n = _extents(t)[axis]
    start = draw(st.integers(0, n - 1))
    stop = draw(st.integers(start + 1, n))
    return moves.slice(t, axis, start, stop, draw(st.sampled_from((1, 1, 2, 3))))


def _rotate(draw: Draw, t: Tensor) -> Tensor:
    """cat(t[k:], t[:k]), the heart of RoPE, sometimes negating one part."""
    axis = _draw_axis(draw, t)
    n = _extents(t)[axis]
    if n < 2:
        return ops.neg(t)
    k = draw(st.integers(1, n - 1))
    back = moves.slice(t, axis, k, n)
    return moves.cat([ops.neg(back) if draw(st.booleans()) else back, moves.slice(t, axis, 0, k)], axis)


def _pad(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    n = _extents(t)[axis]
    left, right = draw(st.integers(-(n // 2), 3)), draw(st.integers(-(n // 3), 3))
    if n + left + right < 1 or prod(_extents(t)) // n * (n + left + right) > _FEW:
        left = right = 0
    pads = [0, 0] * (t.ndim - 1 - axis) + [left, right]
    return moves.pad(t, pads, draw(st.sampled_from((0.0, 1.5))))


def _cat(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)

    def same(u: Tensor) -> bool:
        fits = all(x == y for p, (x, y) in enumerate(zip(_extents(t), _extents(u), strict=True)) if p != axis)
        return fits and prod(_extents(t)) + prod(_extents(u)) <= _FEW

    others = [u for u in t.fusion.tensors if u.dtype == t.dtype and u.ndim == t.ndim and same(u)]
    return moves.cat([t, draw(st.sampled_from(others))] if others else [t], axis)


def _roll(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    return moves.roll(t, draw(st.integers(-9, 9)), axis)


def _reshape(draw: Draw, t: Tensor) -> Tensor:
    """Any factorisation of the number of elements into at most three extents."""
    left = prod(_extents(t))
    wanted: list[int] = []
    for _ in range(draw(st.integers(0, 2))):
        wanted.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= wanted[-1]
    return moves.reshape(t, *wanted, left)


def _unsqueeze(draw: Draw, t: Tensor) -> Tensor:
    return t if t.ndim >= 4 else moves.unsqueeze(t, draw(st.integers(0, t.ndim)))


def _expand(draw: Draw, t: Tensor) -> Tensor:
    factor = draw(st.integers(1, 4))
    if factor * prod(_extents(t)) > _FEW or t.ndim >= 4:
        return ops.neg(t)
    wide = moves.unsqueeze(t, 0)
    return moves.expand(wide, factor, *_extents(t))


def _select(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    return ops.neg(t) if t.ndim < 2 else moves.select(t, axis, draw(st.integers(0, _extents(t)[axis] - 1)))


def _slice_scatter(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    n = _extents(t)[axis]
    start = draw(st.integers(0, n - 1))
    stop, step = draw(st.integers(start + 1, n)), draw(st.sampled_from((1, 2)))
    return moves.slice_scatter(t, ops.neg(moves.slice(t, axis, start, stop, step)), axis, start, stop, step)


def _reduce(draw: Draw, t: Tensor) -> Tensor:
    f = draw(st.sampled_from((rows.sum, rows.amax)))
    return f(t, _draw_axis(draw, t), draw(st.booleans()))


def _normalise(draw: Draw, t: Tensor) -> Tensor:
    """A reduction broadcast back onto what it reduced."""
    return ops.sub(t, rows.amax(t, _draw_axis(draw, t), keepdim=True))


def _index(draw: Draw, t: Tensor, shape: Sequence[int]) -> Tensor:
    return t.fusion.input(f"index{len(t.fusion.inputs)}", shape=shape, dtype=draw(st.sampled_from(("int64", "int32"))))


def _gather(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    shape = [draw(st.integers(1, n)) for n in _extents(t)]
    return rows.gather(t, axis, _index(draw, t, shape))


def _take_along(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    shape = [draw(st.integers(1, 3)) if p == axis else draw(st.sampled_from((1, n))) for p, n in enumerate(_extents(t))]
    return rows.take_along_dim(t, _index(draw, t, shape), axis)


def _index_select(draw: Draw, t: Tensor) -> Tensor:
    return rows.index_select(t, _draw_axis(draw, t), _index(draw, t, (draw(st.integers(1, 4)),)))


def _embedding(draw: Draw, t: Tensor) -> Tensor:
    if t.ndim != 2:
        return _draw_unary(draw, t)
    return rows.embedding(_index(draw, t, draw(shapes(max_rank=2, max_extent=3))), t)


def _shrunk(draw: Draw, t: Tensor, axis: int) -> list[int]:
    """The shape of an index into ``t``: as large off ``axis``, or smaller."""
    whole = draw(st.booleans())
    return [
        draw(st.integers(1, 4)) if p == axis else n if whole else draw(st.integers(1, n))
        for p, n in enumerate(_extents(t))
    ]


def _source(draw: Draw, t: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor that is written: a fresh input, or ``t``'s own front part where that is large enough."""
    if all(n <= m for n, m in zip(shape, _extents(t), strict=True)) and draw(st.booleans()):
        return ops.neg(t)
    return t.fusion.input(f"source{len(t.fusion.inputs)}", shape=shape)


def _scatter(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    shape = _shrunk(draw, t, axis)
    value = _source(draw, t, shape) if draw(st.booleans()) else 2.5
    return indexed.scatter(t, axis, _index(draw, t, shape), value)


def _scatter_add(draw: Draw, t: Tensor) -> Tensor:
    axis = _draw_axis(draw, t)
    shape = _shrunk(draw, t, axis)
    return indexed.scatter_add(t, axis, _index(draw, t, shape), _source(draw, t, shape))


def _index_put(draw: Draw, t: Tensor) -> Tensor:
    """One or two axes that lie together, with index tensors that broadcast against each other."""
    first = _draw_axis(draw, t)
    count = draw(st.integers(1, min(2, t.ndim - first)))
    common = draw(shapes(max_rank=2, max_extent=3))
    found = [_index(draw, t, [n if draw(st.booleans()) else 1 for n in common]) for _ in range(count)]
    wide = [max(int(i.axes[p].extent) for i in found) for p in range(len(common))]
    written = [*_extents(t)[:first], *wide, *_extents(t)[first + count :]]
    if prod(written) > _FEW:
        return ops.neg(t)
    values = _values_of(draw, t, written)
    attrs = {"dims": tuple(range(first, first + count)), "accumulate": draw(st.booleans())}
    return apply(t.fusion, "index_put", (t, *found, values), attrs)


def _values_of(draw: Draw, t: Tensor, written: Sequence[int]) -> Tensor | float:
    if draw(st.booleans()):
        return -1.5
    return t.fusion.input(f"source{len(t.fusion.inputs)}", shape=[n if draw(st.booleans()) else 1 for n in written])


def _draw_selects(draw: Draw, t: Tensor) -> Tensor:
    """Elements of one axis, each read by an operation of its own, then added, joined or stacked."""
    axis = _draw_axis(draw, t)
    if t.ndim < 2:
        return ops.neg(t)
    p, n = ops.neg(t) if draw(st.booleans()) else t, _extents(t)[axis]
    parts = [moves.select(p, axis, draw(st.integers(0, n - 1))) for _ in range(draw(st.integers(2, 3)))]
    room = len(parts) * prod(_extents(parts[0])) <= _FEW
    match draw(st.sampled_from(("add", "stack", "cat"))):
        case "stack" if room:
            return moves.stack(parts, draw(st.integers(0, parts[0].ndim)))
        case "cat" if room:
            return moves.cat(parts, _draw_axis(draw, parts[0]))
        case _:
            return ops.add(parts[0], ops.add(parts[1], parts[-1]))


def _interleave(draw: Draw, t: Tensor) -> Tensor:
    """Pairs of neighbours, one negated, changed about: the other convention of RoPE."""
    n, twice = _extents(t)[-1], ops.mul(t, 2.0)
    if n % 2 or t.ndim >= 4:
        return twice
    odd, even = moves.slice(twice, t.ndim - 1, 1, n, 2), moves.slice(twice, t.ndim - 1, 0, n, 2)
    return moves.reshape(moves.stack([ops.neg(odd), even], t.ndim), *_extents(t))


def _halves(draw: Draw, t: Tensor) -> Tensor:
    """Two halves of an axis, selected after a reshape, are exchanged."""
    axis, twice = _draw_axis(draw, t), ops.mul(t, 2.0)
    shape = list(_extents(t))
    if shape[axis] % 2 or t.ndim >= 4:
        return twice
    cut = moves.reshape(twice, *shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :])
    return moves.cat([ops.neg(moves.select(cut, axis, 1)), moves.select(cut, axis, 0)], axis)


def _repeat(draw: Draw, t: Tensor) -> Tensor:
    """Every element of an axis three times: expanded, then reshaped."""
    axis, shape = _draw_axis(draw, t), list(_extents(t))
    if t.ndim >= 4 or 3 * prod(shape) > _FEW:
        return ops.neg(t)
    wide = moves.expand(moves.unsqueeze(t, axis + 1), *shape[: axis + 1], 3, *shape[axis + 1 :])
    return moves.reshape(wide, *shape[:axis], 3 * shape[axis], *shape[axis + 1 :])


STEPS: Final[dict[str, Callable[[Draw, Tensor], Tensor]]] = {
    "unary": _draw_unary, "binary": _draw_binary, "where": lambda _, t: ops.where(t > 0, t, 0.5),
    "slice": _slice, "rotate": _rotate, "pad": _pad,
    "cat": _cat, "roll": _roll, "flip": lambda draw, t: moves.flip(t, _draw_axis(draw, t)),
    "permute": lambda draw, t: moves.permute(t, *draw(st.permutations(range(t.ndim)))),
    "reshape": _reshape, "unsqueeze": _unsqueeze,
    "expand": _expand, "select": _select, "slice_scatter": _slice_scatter, "reduce": _reduce, "normalise":
    _normalise, "gather": _gather, "take_along_dim": _take_along, "index_select": _index_select, "embedding":
    _embedding, "scatter": _scatter, "scatter_add": _scatter_add, "index_put": _index_put, "selects": _draw_selects,
    "interleave": _interleave, "halves": _halves, "repeat": _repeat,
    "scan": lambda draw, t: rows.cumsum(t, _draw_axis(draw, t)),
}  # fmt: skip
"""Kinds of steps that `fusions` takes, by name, simplest first: a failing example shrinks towards the front."""


def _input(draw: Draw, f: Fusion, name: str, shape: Sequence[int]) -> Tensor:
    """Contiguous, or with gaps between rows, or repeated with stride 0, or at an offset."""
    match draw(st.sampled_from(("contiguous", "contiguous", "strided", "repeated", "offset", "free"))):
        case "strided":
            strides = [1] * len(shape)
            for p in reversed(range(len(shape) - 1)):
                strides[p] = strides[p + 1] * shape[p + 1] + draw(st.integers(0, 2))
            return f.input(name, shape=shape, strides=strides)
        case "repeated":
            return f.input(name, shape=shape, strides=[0, *(prod(shape[p + 1 :]) for p in range(1, len(shape)))])
        case "offset":
            return f.input(name, shape=shape, offset=draw(st.integers(1, 5)))
        case "free":
            return f.input(name, shape=shape, contiguity=[draw(st.booleans()) for _ in shape])
        case _:
            return f.input(name, shape=shape)


@st.composite
def fusions(
    draw: Draw, *, max_inputs: int = 2, max_steps: int = 6, steps: Sequence[str] = tuple(STEPS), rows: int = 0
) -> Fusion:
    """Fusions of small float32 tensors, verified, with at least one output. ``steps`` names kinds out of `STEPS`.

    Each step works on any earlier tensor, the newest first, so that long chains and residual paths are both common.
    Extents are concrete and every tensor has at most 300 elements, so that every access can be checked at every point;
    ``rows`` puts an axis of that many more elements in front, for tests that look at kernels only.
    Shrinks to one input of one element and one operation; integer inputs are index tensors (see
    `idgraph.validate.value_check` for arrays with indices in range).

    >>> from hypothesis import find, settings
    >>> same = settings(derandomize=True, database=None)  # the same examples in every run
    >>> f = find(fusions(), lambda f: any(e.op == "cat" for e in f.exprs), settings=same)
    >>> len(f.exprs) < 12
    True
    """
    f = Fusion("f")
    base = draw(shapes(max_elements=_FEW // 2))
    base = (rows, *base) if rows else base
    _input(draw, f, "x0", base)
    for k in range(1, draw(st.integers(1, max_inputs))):
        _input(draw, f, f"x{k}", [n if draw(st.booleans()) else 1 for n in base])
    strange = [s for s in steps if s not in STEPS]
    if strange or not steps:
        raise IdGraphError(f"steps: {strange or 'none'}", hint=f"some of {', '.join(STEPS)}")
    weighted = [s for s in steps for _ in range(5 if s in ("unary", "binary", "rotate") else 1)]
    for _ in range(draw(st.integers(1, max_steps))):
        floats = [t for t in reversed(f.tensors) if t.dtype == "float32" and t.ndim]
        step = STEPS[draw(st.sampled_from(weighted))]
        step(draw, draw(st.sampled_from(floats)))
    if not f.exprs:
        apply(f, "copy", (f["x0"],))
    f.output(*(t for t in f.tensors if not t.uses and t.definition is not None))
    inner = [t for t in f.tensors if t.uses and t.definition is not None]
    if inner and draw(st.booleans()):
        f.output(draw(st.sampled_from(inner)))  # stored and read again
    f.verify()
    return f
