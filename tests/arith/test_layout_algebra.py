"""CuTe's operations on layouts: the examples of its documentation, and their definitions on listed addresses."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import ArithError, Swizzle

Modes = tuple[tuple[int, int], ...]


def listed(m: ig.IndexMap, extents: tuple[int, ...]) -> list[int]:
    """The addresses, the first coordinate fastest."""
    return [int(m(*reversed(at))[0]) for at in product(*(range(n) for n in reversed(extents)))]


def by_hand(*modes: tuple[int, int]) -> list[int]:
    return [
        sum(x * step for x, (_, step) in zip(reversed(at), modes, strict=True))
        for at in product(*(range(n) for n, _ in reversed(modes)))
    ]


def sizes(m: ig.IndexMap) -> tuple[int, ...]:
    return tuple(int(s.range[1] or 0) + 1 for s in m.symbols)


@pytest.mark.parametrize(
    ("modes", "size", "found"),
    [
        (((4, 1),), 24, ((6, 4),)),
        (((6, 4),), 24, ((4, 1),)),
        (((4, 2),), 24, ((2, 1), (3, 8))),
        (((2, 1), (4, 6)), 24, ((3, 2),)),
        (((2, 1), (2, 6)), 24, ((3, 2), (2, 12))),
    ],
)
def test_complements_of_the_documentation(modes: Modes, size: int, found: Modes) -> None:
    m = ig.IndexMap.strided(*modes).complement(size)
    assert listed(m, sizes(m)) == by_hand(*found)


def test_divide_and_products_of_the_documentation() -> None:
    a = ig.IndexMap.strided((4, 2), (2, 1), (3, 8))
    d = a.divide(ig.IndexMap.strided((4, 2)))
    assert listed(d, sizes(d)) == by_hand((2, 4), (2, 1), (2, 2), (3, 8))
    p = ig.IndexMap.strided((2, 4), (2, 1)).product(6)
    assert listed(p, sizes(p)) == by_hand((2, 4), (2, 1), (2, 2), (3, 8))
    b = ig.IndexMap.strided((2, 5), (5, 1)).blocked_product(ig.IndexMap.strided((3, 1), (4, 3)))
    assert sizes(b) == (6, 20)
    assert listed(b, (6, 20)) == by_hand((2, 5), (3, 10), (5, 1), (4, 30))


@st.composite
def layouts(draw: st.DrawFn) -> Modes:
    """Modes that do not overlap, in any order."""
    found: list[tuple[int, int]] = []
    reached = 1
    for _ in range(draw(st.integers(1, 3))):
        step = reached * draw(st.integers(1, 3))
        n = draw(st.integers(1, 4))
        found.append((n, step))
        reached = step * n
    return tuple(draw(st.permutations(found)))


@given(layouts(), st.integers(1, 3))
def test_a_layout_and_its_complement_reach_each_address_once(modes: Modes, times: int) -> None:
    top = max(n * step for n, step in modes)
    m = ig.IndexMap.strided(*modes)
    c = m.complement(top * times)
    both = [x + y for x in listed(m, sizes(m)) for y in listed(c, sizes(c))]
    assert len(set(both)) == len(both) and set(range(top * times)) <= set(both)


@given(layouts(), layouts(), st.data())
def test_a_division_keeps_the_elements_and_begins_with_the_tile(modes: Modes, tile: Modes, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([max(n * s for n, s in tile) * k for k in (1, 2)]))
    flat = by_hand(*modes, (whole, max(n * s for n, s in modes)))
    m, t = ig.IndexMap.strided(*modes, (whole, max(n * s for n, s in modes))), ig.IndexMap.strided(*tile)
    d = m.divide(t)
    assert sorted(listed(d, sizes(d))) == sorted(flat)
    first = prod(n for n, _ in tile)
    assert sorted(listed(d, sizes(d))[:first]) == sorted(flat[k] for k in by_hand(*tile))


@given(layouts(), layouts())
def test_a_product_repeats_the_layout_without_overlap(modes: Modes, n: Modes) -> None:
    m = ig.IndexMap.strided(*modes)
    p = m.product(ig.IndexMap.strided(*n))
    found = listed(p, sizes(p))
    mine = listed(m, sizes(m))
    assert len(set(found)) == len(found)
    for k in range(0, len(found), len(mine)):
        assert [x - found[k] for x in found[k : k + len(mine)]] == mine


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.booleans(), st.integers(0, 4095))
def test_swizzles_exchange_bits(bits: int, base: int, more: int, down: bool, address: int) -> None:
    shift = (bits + more) * (-1 if down else 1)
    text = list(reversed(f"{address:020b}"))
    made = list(text)
    for k in range(bits):
        read, write = (base + k, base + k - shift) if shift < 0 else (base + k + shift, base + k)
        made[write] = "1" if made[write] != text[read] else "0"
    want = int("".join(reversed(made)), 2)
    s = Swizzle(bits, base, shift)
    assert s(address) == want and s(want) == address
    m = ig.IndexMap.strided((4096, 1)).swizzle(s)
    assert m(address) == (want,)


def test_refusals_name_what_is_wrong() -> None:
    m = ig.IndexMap.strided((4, 1), (4, 2))
    with pytest.raises(ArithError, match="not a multiple of the 4 addresses below it"):
        m.complement(32)
    with pytest.raises(ArithError, match="do not divide"):
        ig.IndexMap.strided((6, 1)).divide(4)
    with pytest.raises(ArithError, match="is not a sum of coordinates"):
        ig.IndexMap.strided((16, 1)).swizzle(Swizzle(2, 0, 2)).complement(32)
    with pytest.raises(ArithError, match="xors bits into themselves"):
        Swizzle(3, 0, 1)
    with pytest.raises(ArithError, match="is not a number of elements"):
        m.product(0)
    for bad in (None, "x", 2.5, True, [4]):
        for ask in (m.product, m.divide, m.complement, m.blocked_product, m.swizzle, ig.IndexMap.strided):
            with pytest.raises(ig.IdGraphError):
                ask(bad)  # type: ignore[arg-type]
