"""Whole rings: from every group of every ring, the places each coordinate comes to, followed in NumPy.

The rings are listed here by trying every simple way between groups; expressions are followed in plain integers, and
whole chains of operations by what NumPy does to an array of element numbers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import Cycle, DomainGraph
from idgraph.ir import DomainExpr, IterDomain, Resize, Roll, Stride
from idgraph.testing import fusions
from tests.property.budget import examples
from tests.property.test_aligned import NONE, forward, residuals

Array = npt.NDArray[np.int64]
Ring = list[tuple[int, DomainExpr]]  # groups with the expressions that read them
Pairs = set[tuple[int, int]]
_MOST = 2_000  # rings of one graph that are gone round here


def all_rings(g: DomainGraph) -> list[Ring] | None:
    """Every simple ring between the groups, from its least group; None where they are too many to go round."""
    after: dict[int, list[tuple[DomainExpr, int]]] = defaultdict(list)
    for x in g.expr_groups:
        for a, b in itertools.product({i.number for i in x.inputs}, {o.number for o in x.outputs}):
            after[a].append((x.expr, b))
    found: list[Ring] = []
    tried = 0
    for start in sorted(after):
        pending: list[tuple[int, Ring, frozenset[int]]] = [(start, [], frozenset((start,)))]
        while pending:
            at, way, on = pending.pop()
            tried += 1
            if tried > 20 * _MOST or len(found) > _MOST:
                return None
            for e, to in after[at]:
                if to == start:
                    found.append([*way, (at, e)])
                elif to > start and to not in on:
                    pending.append((to, [*way, (at, e)], on | {to}))
    return found


def gone_round(ring: Ring) -> Pairs:
    """Where each coordinate of the first group comes back to."""
    begun = np.arange(int(ring[0][1].inputs[0].extent), dtype=np.int64)
    at = begun
    for _, e in ring:
        (at,) = forward(e, [at])
    return {(int(a), int(b)) for a, b in zip(begun, at, strict=True) if b != NONE}


def told(c: Cycle[IterDomain]) -> Pairs:
    """The same as a cycle says it, for all coordinates of the axes beside it."""
    n = int(c.groups[0].first.extent)
    others = [s for s in {*c.map.symbols, *c.holds.symbols} if s.name != c.variable.name]
    spans = [range(s.range.lo or 0, (s.range.hi or 0) + 1) for s in others]
    found: Pairs = set()
    for k, *rest in itertools.product(range(n), *spans):
        at = {c.variable.name: k, **{s.name: v for s, v in zip(others, rest, strict=True)}}
        if c.holds.evaluate(at):
            found.add((k, int(c.map.evaluate(at))))
    return found


def turns(c: Cycle[IterDomain]) -> Iterator[tuple[int, Cycle[IterDomain]]]:
    """A cycle looked at from each of its groups."""
    for group in c.groups:
        yield group.number, c.at(group.first)


def kind_of(pairs: Pairs, n: int) -> str:
    """Nothing, the identity, one amount round n elements, or anything else."""
    moved = {(b - a) % n for a, b in pairs}
    if len(moved) > 1:
        return "reorder"
    return "empty" if not pairs else "identity" if all(a == b for a, b in pairs) else "shift"


@settings(max_examples=examples(300))
@given(residuals() | fusions(max_steps=8))
def test_rings_are_told_from_each_of_their_groups(f: ig.Fusion) -> None:
    """From each group the rings that are told take each coordinate to all places to which some ring takes it."""
    note(str(f))
    g = ig.IdModel(f).exact
    rings = all_rings(g)
    if rings is None or not all(isinstance(e, (Resize, Stride, Roll)) for ring in rings for _, e in ring):
        return
    truth: dict[int, Pairs] = defaultdict(set)
    for ring in rings:
        for k in range(len(ring)):
            truth[ring[k][0]] |= gone_round(ring[k:] + ring[:k])
    found: dict[int, Pairs] = defaultdict(set)
    for c in g.cycles(empty=True):
        seen: Pairs = set()
        for number, there in turns(c):
            way = [(x.number, e) for x, e in zip(there.groups, there.exprs, strict=True)]
            pairs = gone_round(way)
            assert told(there) == pairs and there.kind == kind_of(pairs, int(way[0][1].inputs[0].extent)), str(there)
            if pairs and there.coordinates:
                for start, _ in pairs:
                    stops = [int(x.evaluate({c.variable.name: start})) for x in there.coordinates]
                    assert stops[0] == start and all(0 <= v < int(e.inputs[0].extent) for v, (_, e) in zip(stops, way))
            found[number] |= pairs
            seen |= pairs
        assert (c.kind == "empty") == c.is_empty == (not seen), str(c)
    assert {k: v for k, v in truth.items() if v} == {k: v for k, v in found.items() if v}
    on_rings = {number for ring in rings for number, _ in ring}
    assert {x.number for c in g.cycles(empty=True) for x in c.groups} == on_rings


@settings(max_examples=examples(60))
@given(st.integers(2, 16), st.data())
def test_long_rings_of_rotations(n: int, data: st.DataObject) -> None:
    """At each rotation every coordinate comes back once, to the place where the rotations together put it."""
    cuts = data.draw(st.lists(st.integers(1, n - 1), min_size=2, max_size=7))
    f = ig.Fusion("ring")
    t = x = f.input("x", shape=(n,))
    stops = [x]
    for cut in cuts:
        t = ig.cat([t[cut:], t[:cut]])
        stops.append(t)
    f.output(x + t)
    g = ig.IdModel(f).exact
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for c in g.cycles():
        assert told(c), str(c)
        for number, there in turns(c):
            found[number] += told(there)
    put = (-sum(cuts)) % n
    for stop in stops:
        pairs = set(found[g.group(stop.logical[0]).number])
        assert pairs == {(k, (k + put) % n) for k in range(n)}


State = tuple[ig.Tensor, Array]


def _moved(draw: st.DrawFn, s: State) -> State:
    """The same shape (a multiple of 2 by a multiple of 2), elements elsewhere."""
    t, a = s
    h, w = a.shape
    axis = draw(st.integers(0, 1))
    n = a.shape[axis]
    match draw(st.sampled_from(("roll", "flip", "rotate", "cut", "windows", "parts", "inner"))):
        case "roll":
            by = draw(st.integers(-3, 3))
            return ig.roll(t, by, axis), np.roll(a, by, axis)
        case "flip":
            return ig.flip(t, axis), np.flip(a, axis)
        case "rotate":
            cut = draw(st.integers(1, n - 1))
            parts = ig.slice(t, axis, cut, n), ig.slice(t, axis, 0, cut)
            return ig.cat([*parts], axis), np.roll(a, -cut, axis)
        case "cut":
            by = draw(st.integers(1, n - 1))
            zeros = [0, 0] * (1 - axis)
            moved = np.full_like(a, -1)
            there, here = [slice(None)] * 2, [slice(None)] * 2
            there[axis], here[axis] = slice(by, None), slice(0, n - by)
            moved[tuple(there)] = a[tuple(here)]
            return ig.pad(t, [*zeros, by, -by]), moved
        case "windows":
            order = (0, 2, 1, 3)
            back = draw(st.booleans())
            y, b = ig.permute(ig.reshape(t, h // 2, 2, w // 2, 2), order), a.reshape(h // 2, 2, w // 2, 2)
            b = b.transpose(order)
            if back:
                turned = draw(st.integers(0, 3))
                y, b = ig.roll(y, 1, turned), np.roll(b, 1, turned)
                y, b = ig.permute(y, order), b.transpose(order)
            return ig.reshape(y, h, w), b.reshape(h, w)
        case "parts":
            taken = [ig.slice(t, axis, k, n, 2) for k in (0, 1)]
            return ig.cat(taken, axis), np.concatenate([a.take(range(k, n, 2), axis) for k in (0, 1)], axis)
        case _:
            shape = (*a.shape[:axis], n // 2, 2, *a.shape[axis + 1 :])
            y, b = ig.reshape(t, shape), a.reshape(shape)
            turned = draw(st.sampled_from((axis, axis + 1)))
            return ig.reshape(ig.flip(y, turned), h, w), np.flip(b, turned).reshape(h, w)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[ig.Fusion, list[tuple[ig.Tensor, Array]]]:
    """x moved about and added to itself; with each tensor between, which element of it comes back as which."""
    shape = draw(st.sampled_from(((2, 2), (4, 2), (4, 4), (2, 6), (6, 4))))
    f = ig.Fusion("round")
    first = f.input("x", shape=shape)
    states: list[State] = [(first, np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape))]
    for _ in range(draw(st.integers(1, 3))):
        states.append(_moved(draw, states[-1]))
    f.output(first + states[-1][0])
    whole = states[-1][1].reshape(-1)
    stops: list[tuple[ig.Tensor, Array]] = []
    for t, a in states[:-1]:
        # From element k of t on to the end: that of x whose number the end has, and from there to t again.
        own = a.reshape(-1)
        place = {int(v): k for k, v in enumerate(own) if v >= 0}
        end = {int(v): k for k, v in enumerate(whole) if v >= 0}
        back = np.full(own.size, -1)
        for k, v in enumerate(own.tolist()):
            if v >= 0 and v in end:
                back[k] = place.get(end[v], -1)
        stops.append((t, back))
    return f, stops


@settings(max_examples=examples(100))
@given(rounds())
def test_what_numpy_moves_round_is_told(case: tuple[ig.Fusion, list[tuple[ig.Tensor, Array]]]) -> None:
    """Whole chains in two dimensions: each coordinate that comes back as another one does so on a ring that is told."""
    f, stops = case
    note(str(f))
    g = ig.IdModel(f).exact
    found: dict[int, Pairs] = defaultdict(set)
    for c in g.cycles():
        for number, there in turns(c):
            found[number] |= told(there)
    for t, back in stops:
        shape = tuple(int(n) for n in t.shape)
        ks = np.flatnonzero(back >= 0)
        for axis, here, there in zip(
            t.logical, np.unravel_index(ks, shape), np.unravel_index(back[ks], shape), strict=True
        ):
            moved = {(int(a), int(b)) for a, b in zip(here, there, strict=True) if a != b}
            missing = moved - found[g.group(axis).number]
            assert not missing, f"{axis.label}: {missing}"


def test_an_axis_beside_the_ring_decides_where_the_coordinate_does_not() -> None:
    """Of one row some elements come to one row and some to the next, by the column from which they are rotated."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 4))
    t = ig.flip(x, 0)
    y = ig.reshape(ig.cat([t[:, 2:], t[:, :2]], 1), 2, 2, 2, 2)
    f.output(x + ig.reshape(ig.permute(y, (0, 2, 1, 3)), 4, 4))
    g = ig.IdModel(f).exact
    rows, columns = x.logical
    mine = [there for c in g.cycles() for number, there in turns(c) if number == g.group(rows).number]
    assert {columns.name} in [c.map.names - {"c"} for c in mine]
    assert {(0, 3), (0, 2), (2, 1), (2, 0)} <= set[tuple[int, int]]().union(*map(told, mine))
    (first, *_) = mine
    with pytest.raises(ig.IndexingError, match=f"x.{columns.name} is in no group of this cycle"):
        first.at(columns)
