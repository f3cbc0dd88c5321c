"""Reshapes and divisible splits against positional arithmetic: every axis is a run of digits of a flat index.

An axis made by divisible splits and merges of neighbours is ``flat // low % (high / low)`` of the flat element number.
The almost exact graph maps two such axes exactly when they are the same digits.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import own_domains
from idgraph.ir import Merge, Split

Digits = tuple[int, int]
PROFILE = settings().max_examples


def chain(*shapes: tuple[int, ...]) -> tuple[ig.Fusion, ig.IdModel]:
    f = ig.Fusion("f")
    t = f.input("t0", shape=shapes[0])
    for n, shape in enumerate(shapes[1:]):
        t = ig.reshape(t, *shape, name=f"t{n + 1}")
    f.output(ig.exp(t))
    return f, ig.IdModel(f)


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 4), (24,), (2, 3, 4)),
        ((2, 3, 4), (6, 4), (24,), (2, 12), (2, 3, 4)),
        ((2, 3, 4), (2, 12), (24,), (6, 4), (2, 3, 4)),
        ((4, 6), (2, 2, 6), (2, 12), (24,), (4, 6)),
        ((2, 6, 2), (2, 2, 6), (4, 6), (2, 6, 2)),
        ((24,), (4, 6), (8, 3), (24,)),
    ],
)
def test_there_by_one_way_and_back_by_another(shapes: tuple[tuple[int, ...], ...]) -> None:
    f, m = chain(*shapes)
    first, last = f["t0"], f[f"t{len(shapes) - 1}"]
    mapped = [[m.almost_exact.mapped(a, b) for b in last.logical] for a in first.logical]
    assert mapped == [[i == j for j in range(len(last.logical))] for i in range(len(first.logical))]
    assert {d.tensor for g in m.almost_exact.groups for d in g} == set(f.tensors)  # nothing hidden shows
    for a, b in zip(first.logical, last.logical, strict=True):
        assert str(m.almost_exact.explain(a, b)) and m.almost_exact.explain(a, b).mapped


def test_symbolic_reshapes() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x = f.input("x", shape=(n, 3, 4))
    back = ig.reshape(ig.reshape(ig.reshape(x, 3 * n, 4), n, 12), n, 3, 4)
    f.output(ig.exp(back))
    g = ig.IdModel(f).almost_exact
    assert [g.mapped(a, b) for a, b in zip(x.logical, back.logical, strict=True)] == [True, True, True]


def test_divisibility_that_a_symbol_states() -> None:
    """n is a multiple of 4: by 4, and in n/4 parts from the outside, is one split; so are n/2 and two halves."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=4, multiple_of=4)
    t = ig.exp(f.input("x", shape=(n,)), name="t")
    u = f.output(ig.neg(t, name="u"))
    t.split(0, 4)
    u.split(0, n // 4, inner=False)
    assert [str(d.extent) for d in u.loop] == ["n//4", "4"]
    g = ig.IdModel(f).almost_exact
    assert [g.mapped(a, b) for a, b in zip(t.loop, u.loop, strict=True)] == [True, True]
    v = f.output(ig.reshape(ig.exp(f.input("y", shape=(n,)), name="e"), 2, n // 2, name="v"))
    f["e"].split(0, n // 2)
    g = ig.IdModel(f).almost_exact
    assert [g.mapped(a, b) for a, b in zip(f["e"].loop, v.logical, strict=True)] == [True, True]


def test_nested_splits_of_either_order() -> None:
    """48 by 12, and by 4 and then 3 outside: the outer axes are the same; the inner one is the two merged."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(48,)), name="t")
    u = f.output(ig.neg(t, name="u"))
    t.split(0, 12)
    u.split(0, 4).split(0, 3)
    g = ig.IdModel(f).almost_exact
    assert g.mapped(t.loop[0], u.loop[0]) and not g.mapped(t.loop[1], u.loop[1])
    assert "between(t.I3, u.I6)[3]" in str(g.explain(t.loop[0], u.loop[0]))
    u.merge(1)
    assert ig.IdModel(f).almost_exact.mapped(t.loop[1], u.loop[1])


@st.composite
def reshaped(draw: st.DrawFn) -> tuple[ig.Fusion, int]:
    """A chain of reshapes of one flat index, some tensors split by divisors and merged again."""
    total = draw(st.sampled_from((24, 36, 48, 60, 64)))

    def shape() -> tuple[int, ...]:
        left, found = total, list[int]()
        while left > 1 and len(found) < 3:
            found.append(draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
            left //= found[-1]
        return (*found, left) if left > 1 else tuple(found)

    f = ig.Fusion("f")
    t = f.input("x", shape=shape())
    for _ in range(draw(st.integers(1, 4))):
        t = ig.reshape(ig.exp(t), *shape())
    f.output(ig.neg(t))
    for u in f.tensors[1:]:
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.integers(0, len(u.loop) - 1))
            extent = int(u.loop[place].extent)
            if draw(st.booleans()) and place + 1 < len(u.loop):
                u.merge(place)
            elif factors := [d for d in range(2, extent) if extent % d == 0]:
                u.split(place, draw(st.sampled_from(factors)))
    return f, total


def digits(f: ig.Fusion) -> dict[ig.IterDomain, Digits]:
    """For each axis the run of digits that it is."""
    found: dict[ig.IterDomain, Digits] = {}
    for t in f.tensors:
        for axes in (t.root, t.logical):
            low = 1
            for d in reversed(axes):
                found[d] = (low, low * int(d.extent))
                low *= int(d.extent)
        for x in (*t.domain.exprs, *t.domain.loop_exprs):
            match x:
                case Split():
                    low, high = found[x.source]
                    middle = low * int(x.inner.extent)
                    found[x.inner], found[x.outer] = (low, middle), (middle, high)
                case Merge():
                    assert found[x.outer][0] == found[x.inner][1]
                    found[x.out] = found[x.inner][0], found[x.outer][1]
                case _:
                    raise AssertionError(x)
    return found


@settings(max_examples=PROFILE)
@given(reshaped())
def test_axes_are_the_same_exactly_where_their_digits_are(case: tuple[ig.Fusion, int]) -> None:
    f, _ = case
    note(str(f))
    known = digits(f)
    g = ig.IdModel(f).almost_exact
    wide = [d for t in f.tensors for d in own_domains(t) if int(d.extent) > 1]
    for a, b in itertools.combinations(wide, 2):
        if known[a] != known[b]:
            assert not g.mapped(a, b), f"{a.label} {known[a]} {b.label} {known[b]}"
        else:
            assert g.mapped(a, b), f"{a.label} {b.label} {known[a]}: {g.explain(a, b)}"


def test_axes_that_would_be_glued_cost_other_tensors_nothing() -> None:
    """v is split by one twice: its two axes of one element stay apart, and the reshape there and back is still seen."""
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(4, 6)), f.input("y", shape=(5,))
    back = f.output(ig.reshape(ig.reshape(x, 24), 4, 6))
    v = f.output(ig.exp(y, name="v"))
    v.split(0, 1).split(0, 1)
    g = ig.IdModel(f).almost_exact
    assert [g.mapped(a, b) for a, b in zip(x.logical, back.logical, strict=True)] == [True, True]
    assert not g.mapped(v.loop[1], v.loop[2]) and len(v.loop) == 3
    assert {frozenset(pair) for pair in g.unmappable} == {frozenset(v.loop[1:])}
    assert "two axes of v, which mappings beside single elements" in str(g.explain(v.loop[1], v.loop[2]))
    assert ig.IdModel(f).exact.unmappable == ()
