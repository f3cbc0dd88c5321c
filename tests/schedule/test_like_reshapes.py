"""`schedule.like` through reshapes downstream: the same loops, or the place where the way ends."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion, Tensor
from tests.property.budget import examples

# Shapes with one number of elements, among which reshapes go.
SHAPES = ((30,), (2, 15), (15, 2), (3, 10), (2, 3, 5), (5, 6), (6, 5), (1, 30), (2, 1, 15), (10, 3))


def extents(t: Tensor) -> list[str]:
    return [str(d.extent) for d in t.loop]


def same_elements(f: Fusion, a: Tensor, b: Tensor) -> bool:
    """Whether the two tensors, which lie row by row, have the element of one number at each step of equal loops."""
    model = ig.IdModel(f)
    assert a.definition is not None and b.definition is not None
    one, other = model.write(a.definition), model.write(b.definition)
    for point in product(*(range(int(d.extent)) for d in a.loop)):
        places: list[int | None] = []
        for access in (one, other):
            env = {v.name: p for v, p in zip(access.loops, point, strict=True)}
            inside = bool(access.predicate.evaluate(env)) if access.predicate.cond else True
            places.append(int(access.address.evaluate(env)) if inside else None)
        if places[0] != places[1]:
            return False
    return True


@pytest.mark.parametrize(
    ("shape", "after", "factor", "loops"),
    [
        ((30,), (2, 15), 8, ["4", "8"]),  # a split undone by a merge
        ((2, 15), (30,), 8, ["4", "8"]),  # a merge undone by a split
        ((6, 10), (4, 15), 8, ["8", "8"]),
        ((2, 3, 5), (2, 15), 8, ["4", "8"]),  # the sibling that got loops (1, 8, 15)
    ],
)
def test_a_reader_behind_a_reshape_gets_the_loops(
    shape: tuple[int, ...], after: tuple[int, ...], factor: int, loops: list[str]
) -> None:
    f = Fusion("f")
    p = ig.exp(f.input("x", shape=shape))
    a, c = f.output(ig.neg(p)), f.output(ig.reshape(p, *after) * 2.0)
    for _ in shape[1:]:
        a.merge(0)
    a.split(0, factor)
    assert ig.schedule.like(f, a) == ()
    assert extents(c) == extents(p) == extents(a) == loops and same_elements(f, a, c)
    ig.schedule.inline_most(f)
    assert p.inline_position == 2 and ig.validate(f, target="python").ok


def test_untouched_axes_are_loops_of_the_reader_too() -> None:
    f = Fusion("f")
    p = ig.exp(f.input("x", shape=(2, 15)))
    a, c = f.output(ig.neg(p)), f.output(ig.reshape(p, 30))
    a.split(1, 4)
    assert ig.schedule.like(f, a) == ()
    assert extents(c) == ["2", "4", "4"] and same_elements(f, a, c)


def test_a_roll_is_undone() -> None:
    f = Fusion("f")
    p = ig.exp(f.input("x", shape=(30,)))
    a, c = f.output(ig.neg(p)), f.output(ig.reshape(ig.roll(p, 3, 0), 2, 15))
    a.split(0, 8)
    assert ig.schedule.like(f, a) == ()
    ig.schedule.inline_most(f)
    assert extents(c) == ["4", "8"] and p.inline_position == 2 and ig.validate(f, target="numpy").ok


def test_the_place_where_loops_do_not_follow_is_told() -> None:
    f = Fusion("f")
    p = ig.exp(f.input("x", shape=(4, 15)))
    a, part, both = f.output(ig.neg(p)), f.output(ig.reshape(p[1:], 45)), f.output(ig.cat([p, p], 1))
    total, other = f.output(ig.sum(p * 3.0, 1)), f.output(ig.exp(f.input("y", shape=(4, 15))))
    a.merge(0).split(0, 8)
    stops = {s.tensor: s for s in ig.schedule.like(f, a)}
    assert [t.name for t in stops] == [f"{t.name}" for t in (f.tensors) if t in stops]
    cut = part.definition.inputs[0] if part.definition is not None else part
    assert set(stops) == {cut, both, total, other}
    assert stops[cut].axes == (0,) and "resize that its slice does" in stops[cut].why
    assert stops[both].axes == (1,) and "resize that its cat does" in stops[both].why
    assert stops[total].axes == (0,) and "reduces with one that it keeps" in stops[total].why
    assert stops[other].axes == () and "no operation joins it" in str(stops[other])
    # Nothing bends: what cannot follow keeps its own loops.
    assert extents(cut) == ["3", "15"] and extents(both) == ["4", "30"] and extents(total) == ["4", "15"]
    assert extents(other) == ["4", "15"] and ig.validate(f, target="python").ok


@settings(max_examples=examples(60))
@given(st.data())
def test_all_readers_behind_reshapes_run_in_the_reference_s_loops(data: st.DataObject) -> None:
    """A chain of reshapes and elementwise operations, with branches: whatever is the reference, each step of its loops
    visits one element of the memory order on all."""
    f = Fusion("f")
    tensors = [ig.exp(f.input("x", shape=data.draw(st.sampled_from(SHAPES))))]
    for _ in range(data.draw(st.integers(1, 4))):
        source = data.draw(st.sampled_from(tensors))
        if data.draw(st.booleans()):
            tensors.append(ig.reshape(source, *data.draw(st.sampled_from(SHAPES))))
        else:
            tensors.append(ig.neg(source))
    tensors = [t for t in tensors if t.definition is not None]
    for t in tensors:
        f.output(t)
    a = data.draw(st.sampled_from(tensors))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(a.loop) - 1))
        match data.draw(st.sampled_from(("split", "merge", "reorder"))):
            case "split" if prod(int(d.extent) for d in a.loop) < 200:
                a.split(at, data.draw(st.integers(2, 5)))
            case "merge" if at + 1 < len(a.loop):
                a.merge(at)
            case _:
                a.reorder({at: 0})
    note(str(f))
    stops = ig.schedule.like(f, a)
    assert not stops, [str(s) for s in stops]
    ones = [d for d in a.loop if d.extent == 1]
    for t in f.tensors:
        if t.definition is not None and not ones:
            own = [d for d in t.loop if d.extent != 1]
            assert [str(d.extent) for d in own] == extents(a), (t.name, extents(t), extents(a))
            if len(own) == len(t.loop):
                assert same_elements(f, a, t)
    ig.schedule.inline_most(f)
    assert ig.validate(f, target="python").ok
