"""Shapes and index expressions that shrink to small ones."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from idgraph.arith import Expr, as_expr, maximum, minimum, symbol, where


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
