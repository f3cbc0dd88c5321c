"""CuTe's operations by name, against their definitions on listed addresses of small random layouts.

A layout is a list of modes here, and its addresses are counted by hand: the first coordinate is the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import ArithError, symbol

Modes = tuple[tuple[int, int], ...]


def points(extents: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(reversed(at)) for at in product(*(range(n) for n in reversed(extents)))]


def by_hand(modes: Modes) -> list[int]:
    return [sum(x * step for x, (_, step) in zip(at, modes, strict=True)) for at in points([n for n, _ in modes])]


def beyond(modes: Modes, number: int) -> int:
    """The address of element ``number``, whose last coordinate may go on behind its extent."""
    at = 0
    for k, (n, step) in enumerate(modes):
        at += (number if k == len(modes) - 1 else number % n) * step
        number //= n
    return at


def sizes(m: ig.IndexMap) -> tuple[int, ...]:
    return tuple(int(s.range[1] or 0) + 1 for s in m.symbols)


def listed(m: ig.IndexMap) -> list[int]:
    return [int(m(*at)[0]) for at in points(sizes(m))]


def layout(modes: Modes) -> ig.IndexMap:
    return ig.IndexMap.strided(*modes)


@st.composite
def layouts(draw: st.DrawFn, most: int = 3, gaps: int = 3) -> Modes:
    """Modes that do not overlap, in any order."""
    found: list[tuple[int, int]] = []
    reached = 1
    for _ in range(draw(st.integers(1, most))):
        step, n = reached * draw(st.integers(1, gaps)), draw(st.integers(1, 4))
        found.append((n, step))
        reached = step * n
    return tuple(draw(st.permutations(found)))


any_modes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=3).map(tuple)


@given(any_modes)
def test_coalesced_layouts_have_the_same_addresses(modes: Modes) -> None:
    m = layout(modes).coalesce()
    assert listed(m) == by_hand(modes)
    steps = [int(m(*(int(p == k) for p in range(len(m.symbols))))[0]) for k in range(len(m.symbols))]
    for n, step, far in zip(sizes(m), steps, steps[1:], strict=False):
        assert n > 1 and far != n * step  # no two that one coordinate would say


@given(any_modes, any_modes)
def test_a_composition_is_one_function_after_the_other(modes: Modes, inner: Modes) -> None:
    outer, named = by_hand(modes), by_hand(inner)
    if max(named) >= len(outer):
        with pytest.raises(ArithError, match=r"composition: .* names elements"):
            layout(modes).composition(layout(inner))
        return
    m = layout(modes).composition(layout(inner))
    assert sizes(m) == tuple(n for n, _ in inner) and listed(m) == [outer[k] for k in named]


@given(layouts(2, 1), st.data())
def test_a_composition_by_coordinate(modes: Modes, data: st.DataObject) -> None:
    parts = tuple(data.draw(st.integers(1, n)) for n, _ in modes)
    m = layout(modes).composition(parts)
    assert sizes(m) == parts and listed(m) == by_hand(tuple((n, s) for n, (_, s) in zip(parts, modes, strict=True)))


Divide = Callable[[ig.IndexMap, tuple[int, ...]], ig.IndexMap]
DIVIDES: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], list[list[tuple[int, int]]]]] = {
    # Each coordinate as those that it counts, the first one fastest: (mode, 0 in a tile or 1 of tiles).
    "logical_divide": lambda t, r: [[(k, part)] for k in range(len(t)) for part in (0, 1)],
    "zipped_divide": lambda t, r: [[(k, part) for k in range(len(t))] for part in (0, 1)],
    "tiled_divide": lambda t, r: [[(k, 0) for k in range(len(t))], *([(k, 1)] for k in range(len(t)))],
    "flat_divide": lambda t, r: [[(k, part)] for part in (0, 1) for k in range(len(t))],
}


@pytest.mark.parametrize("name", DIVIDES)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 20)), min_size=1, max_size=3))
def test_divides_by_coordinate(name: str, modes: list[tuple[int, int, int]]) -> None:
    tiles, rest = tuple(t for t, _, _ in modes), tuple(r for _, r, _ in modes)
    m = getattr(layout(tuple((t * r, step) for t, r, step in modes)), name)(tiles)
    groups = DIVIDES[name](tiles, rest)
    extents = [prod((tiles, rest)[part][k] for k, part in g) for g in groups]
    assert sizes(m) == tuple(extents)
    for at in points(extents):
        address = 0
        for number, group in zip(at, groups, strict=True):
            for k, part in group:
                n = (tiles, rest)[part][k]
                address += number % n * (1, tiles[k])[part] * modes[k][2]
                number //= n
        assert m(*at) == (address,)


@given(layouts(), layouts(2), st.integers(1, 2))
def test_divides_by_a_layout(modes: Modes, tile: Modes, times: int) -> None:
    size = max(n * s for n, s in tile) * times
    whole: Modes = (*modes, (size, max(n * s for n, s in modes)))
    addresses, inside = by_hand(whole), by_hand(tile)
    z = layout(whole).zipped_divide(layout(tile))
    count = prod(n for n, _ in tile)
    assert sizes(z) == (count, len(addresses) // count)
    found = [[int(z(k, t)[0]) for k in range(count)] for t in range(len(addresses) // count)]
    real = [k for k, (n, _) in enumerate(tile) if n > 1]
    kept = by_hand(tuple(tile[k] for k in real)) if real else [0]
    assert found[0] == [addresses[k] for k in kept] and sorted(kept) == sorted(inside)
    assert sorted(x for row in found for x in row) == sorted(addresses)  # each element in one tile
    t, flat = layout(whole).tiled_divide(layout(tile)), layout(whole).flat_divide(layout(tile))
    assert listed(t) == listed(flat) == [x for row in found for x in row] and sizes(t)[0] == count


@pytest.mark.parametrize("name", ["blocked_product", "raked_product"])
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=2), st.data())
def test_products_put_blocks_side_by_side(name: str, pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(pairs))))
    mine: dict[int, tuple[int, int]] = {}
    reached = 1
    for k in order:
        mine[k] = pairs[k][0], reached
        reached *= pairs[k][0]
    block: Modes = tuple(mine[k] for k in range(len(pairs)))
    tiles: Modes = tuple((n, prod(b for _, b in pairs[:k])) for k, (_, n) in enumerate(pairs))
    m = getattr(layout(block), name)(layout(tiles))
    assert sizes(m) == tuple(a * b for a, b in pairs)
    for at in points(sizes(m)):
        own = [x % a if name == "blocked_product" else x // b for x, (a, b) in zip(at, pairs, strict=True)]
        which = [x // a if name == "blocked_product" else x % b for x, (a, b) in zip(at, pairs, strict=True)]
        number = sum(x * step for x, (_, step) in zip(which, tiles, strict=True))
        assert m(*at) == (sum(x * step for x, (_, step) in zip(own, block, strict=True)) + number * reached,)


@given(layouts())
def test_right_inverses_give_the_element_of_an_address(modes: Modes) -> None:
    addresses, found = by_hand(modes), listed(layout(modes).right_inverse())
    assert [addresses[k] for k in found] == list(range(len(found)))
    gap = next(a for a in range(max(addresses) + 2) if a not in addresses)
    assert len(found) <= gap and (len(found) == gap or not all(s == 1 for _, s in modes))


@given(layouts())
def test_left_inverses_give_the_number_of_an_element(modes: Modes) -> None:
    m = layout(modes).left_inverse()
    extents = sizes(m)
    back = [(n, int(m(*(int(p == k) for p in range(len(extents))))[0])) for k, n in enumerate(extents)]
    addresses = by_hand(modes)
    assert [beyond(tuple(back), a) for a in addresses] == list(range(len(addresses)))
    others = [beyond(tuple(back), a) for a in range(max(addresses)) if a not in addresses]
    assert all(k >= len(addresses) for k in others)


def test_operations_of_the_documentation() -> None:
    """The examples of CuTe's page on its layout algebra."""
    strided = ig.IndexMap.strided
    assert listed(strided((2, 1), (1, 6), (6, 2)).coalesce()) == by_hand(((12, 1),))
    a = strided((20, 2)).composition(strided((5, 4), (4, 1)))
    assert sizes(a) == (5, 4) and listed(a) == by_hand(((5, 8), (4, 2)))
    b = strided((10, 16), (2, 4)).composition(strided((5, 1), (4, 5)))
    assert listed(b) == by_hand(((5, 16), (2, 80), (2, 4)))
    i, j = symbol("i", 0, 8), symbol("j", 0, 31)  # a mode of modes is one coordinate here
    nine = ig.IndexMap((i, j), (i * 59 + j % 4 * 13 + j // 4,), (519,))
    tilers = strided((3, 3)), strided((2, 1), (4, 8))
    z = nine.zipped_divide(tilers)
    assert sizes(z) == (24, 12)
    assert listed(z) == by_hand(((3, 177), (2, 13), (4, 2), (3, 59), (2, 26), (2, 1)))
    d = nine.logical_divide(tilers)
    assert sizes(d) == (3, 3, 8, 4) and listed(d) == by_hand(((3, 177), (3, 59), (2, 13), (4, 2), (2, 26), (2, 1)))
    r = strided((2, 5), (5, 1)).raked_product(strided((3, 1), (4, 3)))
    assert sizes(r) == (6, 20) and listed(r) == by_hand(((3, 10), (2, 5), (4, 30), (5, 1)))


def test_refusals_name_the_operation() -> None:
    m = ig.IndexMap.strided((6, 1), (4, 6))
    with pytest.raises(ArithError, match=r"composition: .* names elements up to 30, and there are 24"):
        m.composition(ig.IndexMap.strided((7, 5)))
    with pytest.raises(ArithError, match="3 tilers of 2 coordinates"):
        m.zipped_divide((2, 2, 2))
    with pytest.raises(ArithError, match="do not divide"):
        m.flat_divide((4, 2))
    with pytest.raises(ArithError, match="raked_product: layouts of 2 and 1 coordinates"):
        m.raked_product(ig.IndexMap.strided((4, 1)))
    with pytest.raises(ArithError, match="not a multiple"):
        ig.IndexMap.strided((4, 1), (4, 2)).left_inverse()
    for bad in (None, "x", 2.5, True, 0, (0,), ("x",), (None,)):
        for ask in (m.composition, m.logical_divide, m.zipped_divide, m.tiled_divide, m.flat_divide, m.raked_product):
            with pytest.raises(ig.IdGraphError):
                ask(bad)  # type: ignore[arg-type]


def test_coordinates_of_stride_0_leave_what_the_others_leave() -> None:
    """CuTe's complement is that of the layout without them."""
    for modes, size, rest in (
        (((4, 0),), 6, list(range(6))),
        (((2, 4), (3, 0)), 8, [0, 1, 2, 3]),
        (((3, 0), (2, 1), (2, 4)), 16, [0, 2, 8, 10]),
    ):
        assert listed(layout(modes).complement(size)) == rest
    repeated = layout(((2, 1), (3, 0))).product(2)
    assert listed(repeated) == [0, 1] * 3 + [2, 3] * 3
    with pytest.raises(ArithError, match="have one address"):
        layout(((4, 1), (3, 0))).left_inverse()


@given(layouts(), st.data())
def test_a_product_by_coordinates_repeats_each(modes: Modes, data: st.DataObject) -> None:
    tilers = [data.draw(layouts(most=2, gaps=2)) for _ in range(data.draw(st.integers(1, len(modes))))]
    plain = [data.draw(st.booleans()) for _ in tilers]
    if any(plain):
        tilers = [((prod(n for n, _ in t), 1),) if p else t for t, p in zip(tilers, plain, strict=True)]
    found = layout(modes).logical_product(
        tuple(t[0][0] if p else layout(t) for t, p in zip(tilers, plain, strict=True))
    )
    parts: list[list[int]] = []
    for k, (n, step) in enumerate(modes):
        own = [x * step for x in range(n)]
        if k < len(tilers):
            # What one coordinate leaves out: below its stride, and from behind its last element on.
            free = ((step, 1), (1, n * step)) if n > 1 else ((1, 1),)
            own = [x + beyond(free, r) for r in by_hand(tilers[k]) for x in own]
        parts.append(own)
    expected = [sum(at) for at in (tuple(reversed(p)) for p in product(*reversed(parts)))]
    assert listed(found) == expected
    with pytest.raises(ArithError, match="tilers of"):
        layout(modes).product((1,) * (len(modes) + 1))
