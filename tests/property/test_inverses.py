"""Inverses are exact: against tables of all points that NumPy makes beside the expressions, without the library.

An expression is read through its text, by Python itself.
"""

from __future__ import annotations

import itertools
from math import prod
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import Collision, Expr, IndexMap, Missed, NotInvertible, Undecided, symbol
from idgraph.errors import IdGraphError, IndexingError
from idgraph.index import Access
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples
from tests.property.legal import model_of
from tests.property.random_maps import LOSSY, STEPS, Table, random_map

Point = tuple[int, ...]


def _least(*args: Any) -> Any:
    return np.minimum.reduce(np.broadcast_arrays(*args))


def _most(*args: Any) -> Any:
    return np.maximum.reduce(np.broadcast_arrays(*args))


def read(x: Expr, env: dict[str, Table], count: int) -> npt.NDArray[Any]:
    """The text of an expression as Python and NumPy understand it."""
    names = {"where": np.where, "min": _least, "max": _most} | env
    return np.broadcast_to(eval(str(x), {"__builtins__": {}}, names), (count,))  # noqa: S307 - our own text


def columns(table: Table) -> list[Point]:
    return [tuple(int(v) for v in c) for c in table.T]


def tried(m: IndexMap | Access) -> IndexMap | NotInvertible:
    """The inverse, or the error that says why there is none."""
    try:
        return m.inverse()
    except NotInvertible as error:
        return error


def check_inverse(forward: IndexMap, back: IndexMap, points: Table, images: Table) -> None:
    """Domain, image and round trip, by enumeration."""
    shape = [int(n) for n in forward.shape]
    every = np.indices(shape, dtype=np.int64).reshape(len(shape), prod(shape))
    env = {s.name: v for s, v in zip(back.symbols, every, strict=True)}
    inside = read(back.condition, env, every.shape[1])
    assert set(columns(every[:, inside])) == set(columns(images)), f"{forward}: wrong domain of {back}"
    env = {s.name: v for s, v in zip(back.symbols, images, strict=True)}
    for x, wanted in zip(back.results, points, strict=True):
        assert (read(x, env, images.shape[1]) == wanted).all(), f"{forward}: {back} does not lead back"
    assert back.is_exact


def check_properties(forward: IndexMap, images: Table) -> None:
    reached = columns(images)
    assert forward.is_injective
    assert bool(forward.is_surjective) == (len(reached) == prod(int(n) for n in forward.shape))
    onto = forward.is_surjective
    assert not isinstance(onto, Missed) or onto.image not in set(reached)
    if not reached:
        return
    low, high = images.min(axis=1, initial=1 << 40), images.max(axis=1, initial=-1)
    dense = forward.is_dense
    assert not isinstance(dense, Undecided) and bool(dense) == (len(reached) == prod(int(n) for n in high - low + 1))
    if isinstance(dense, Missed):
        assert dense.image not in set(reached)
        assert all(a <= x <= b for a, x, b in zip(low, dense.image, high, strict=True))


@settings(max_examples=examples(300, needed=150))
@given(st.integers(0, 1 << 30))
def test_compositions_of_invertible_steps(seed: int) -> None:
    forward, points, images, steps = random_map(Random(seed), STEPS)
    back = tried(forward)
    if isinstance(back, NotInvertible):  # a few per thousand: a cyclic swizzle by a part of the same axis
        assert not isinstance(back.witness, Collision), back
        event("not found")
        return
    event(" ".join(sorted(set(steps))))
    check_inverse(forward, back, points, images)
    check_properties(forward, images)


def test_nearly_all_are_found() -> None:
    """Refusals are rare: 1 of 200, all of which have an inverse."""
    maps = [random_map(Random(seed), STEPS)[0] for seed in range(200)]
    refused = [str(m) for m in maps if isinstance(tried(m), NotInvertible)]
    assert len(refused) <= 1, refused


@settings(max_examples=examples(200))
@given(st.integers(0, 1 << 30))
def test_maps_that_lose_points_are_refused_with_two_of_them(seed: int) -> None:
    forward, points, images, _ = random_map(Random(seed), [*STEPS, *LOSSY, *LOSSY])
    reached = columns(images)
    is_injective = len(set(reached)) == len(reached)
    back = tried(forward)
    if isinstance(back, IndexMap):
        assert is_injective, f"{forward} has no inverse, got {back}"
        check_inverse(forward, back, points, images)
        event("inverted")
        return
    met = back.witness
    assert isinstance(met, Collision) != is_injective, f"{forward}: {met}"
    if isinstance(met, Collision):
        check_collision(met, points, images)
        assert isinstance(forward.is_injective, Collision)
    event("refused")


def check_collision(met: Collision, points: Table, images: Table) -> None:
    goes = dict(zip(columns(points), columns(images), strict=True))
    first, second = tuple(met.first.values()), tuple(met.second.values())
    assert first != second and goes[first] == goes[second] == met.image


def access_table(a: Access) -> tuple[Table, Table]:
    """Loop points at which an access happens, and its coordinates there, by evaluating texts."""
    extents = [int(x.extent) for x in a.loops]
    grid = np.indices(extents, dtype=np.int64).reshape(len(extents), prod(extents))
    env = {x.name: v for x, v in zip(a.loops, grid, strict=True)}
    happens = read(a.predicate, env, grid.shape[1])
    inside = {n: v[happens] for n, v in env.items()}
    count = int(happens.sum())
    places = [read(x, inside, count) for x in a.coordinates]
    return grid[:, happens], np.stack(places) if places else np.zeros((0, count), np.int64)


@settings(max_examples=examples(60))
@given(scheduled_fusions(max_steps=3))
def test_every_access_of_random_fusions(f: Fusion) -> None:
    m = model_of(f)
    for e in f.exprs:
        for a in m.index_map(e).accesses:
            if any(x.loads for x in a.coordinates):
                with pytest.raises(IndexingError, match="says"):
                    a.inverse()
                continue
            points, images = access_table(a)
            reached = columns(images)
            back = tried(a)
            if isinstance(back, IndexMap):
                assert len(set(reached)) == len(reached), f"{a} has no inverse"
                check_inverse(a.as_map(), back, points, images)
                event("inverted")
            elif isinstance(back.witness, Collision):
                check_collision(back.witness, points, images)
            else:
                assert isinstance(back.witness, Undecided) and not a.is_write, f"{a}: {back}"
                event("not found")


def _moved(pick: Random, t: ig.Tensor, a: Table) -> tuple[ig.Tensor, Table]:
    """One operation that moves elements, and NumPy's own."""
    dim = pick.randrange(a.ndim)
    n = a.shape[dim]
    match pick.randrange(9):
        case 0:
            order = pick.sample(range(a.ndim), a.ndim)
            return ig.permute(t, order), a.transpose(order)
        case 1:
            by = pick.randrange(n)
            return ig.roll(t, by, dim), np.roll(a, by, dim)
        case 2:
            return ig.flip(t, dim), np.flip(a, dim)
        case 3:
            start = pick.randrange(n)
            stop, step = pick.randint(start + 1, n), pick.choice([1, 1, 2, 3])
            return ig.slice(t, dim, start, stop, step), a[(*[slice(None)] * dim, slice(start, stop, step))]
        case 4:
            k = pick.randrange(n)
            parts = [p for p in ((k, n), (0, k)) if p[0] < p[1]]
            cut = [np.take(a, range(*p), dim) for p in parts]
            return ig.cat([ig.slice(t, dim, *p) for p in parts], dim), np.concatenate(cut, dim)
        case 5:
            shape = [d for k in a.shape for d in ((2, k // 2) if k % 2 == 0 and pick.random() < 0.5 else (k,))]
            return ig.reshape(t, *shape), a.reshape(shape)
        case 6:
            return ig.reshape(t, a.size), a.reshape(a.size)
        case 7:
            left, right = pick.randrange(3), pick.randrange(3)
            last = [(0, 0)] * (a.ndim - 1) + [(left, right)]
            return ig.pad(t, (left, right)), np.pad(a, last, constant_values=-1)
        case _:
            return ig.neg(t), a


@settings(max_examples=examples(150))
@given(st.integers(0, 1 << 30))
def test_output_to_input_of_random_fusions(seed: int) -> None:
    """The map through all operations is the one that moving element numbers shows; so is its inverse."""
    pick = Random(seed)
    shape = [pick.choice([1, 2, 3, 4, 6, 8]) for _ in range(pick.randint(1, 3))]
    f = Fusion("moves")
    x = f.input("x", shape=tuple(shape))
    t, numbers = x, np.arange(prod(shape), dtype=np.int64).reshape(shape)
    for _ in range(pick.randint(1, 5)):
        t, numbers = _moved(pick, t, numbers)
    assume(t is not x and (numbers >= 0).any())
    there = ig.IdModel(f).output_to_input(t, x)
    at = np.indices(numbers.shape, dtype=np.int64).reshape(numbers.ndim, numbers.size)
    env = {s.name: v for s, v in zip(there.symbols, at, strict=True)}
    inside = read(there.condition, env, numbers.size)
    assert (inside == (numbers.ravel() >= 0)).all()
    env = {n: v[inside] for n, v in env.items()}
    made = np.stack([read(r, env, int(inside.sum())) for r in there.results])
    wanted = np.stack(np.unravel_index(numbers.ravel()[inside], shape))
    assert (made == wanted).all(), f"{f}\n{there}"
    check_inverse(there, there.inverse(), at[:, inside], wanted)


def test_an_element_computed_from_several_is_refused_with_both_uses() -> None:
    f = Fusion("rotation")
    x = f.input("x", shape=(64,))
    y = f.output(x + ig.cat([x[32:], x[:32]]))
    with pytest.raises(IndexingError, match="several elements of x") as error:
        ig.IdModel(f).output_to_input(y, x)
    assert any("add" in line for line in error.value.because) and any("slice" in line for line in error.value.because)
    twice = f.output(x * x)  # the same element by two ways is one
    assert str(ig.IdModel(f).output_to_input(twice, x)) == "(i0) -> (i0)"


def test_every_small_linear_map_over_bits() -> None:
    """All 3x3 matrices over GF(2): 168 are invertible, and these are inverted."""
    x = symbol("x", 0, 7)
    found = 0
    for columns_ in itertools.product(range(8), repeat=3):
        parts = [(x // (1 << k) % 2) * c for k, c in enumerate(columns_)]
        result: Expr = parts[0] ^ parts[1] ^ parts[2]
        images = [result.evaluate({"x": v}) for v in range(8)]
        forward = IndexMap((x,), (result,), (8,))
        back = tried(forward)
        if isinstance(back, NotInvertible):
            assert len(set(images)) < 8 and isinstance(back.witness, Collision)
            continue
        assert [back.results[0].evaluate({"y0": y}) for y in images] == list(range(8))
        found += 1
    assert found == 168


def test_large_boxes_need_no_enumeration() -> None:
    z, w = symbol("z", 0, (1 << 40) - 1), symbol("w", 0, (1 << 20) - 1)
    forward = IndexMap((z, w), ((z + 5) % (1 << 40) // 1024, (z + 5) % 1024, w ^ (z % 1024)), (1 << 30, 1024, 1 << 20))
    back = forward.inverse()
    pick = Random(0)
    for _ in range(200):
        point = {"z": pick.randrange(1 << 40), "w": pick.randrange(1 << 20)}
        image = {f"y{k}": r.evaluate(point) for k, r in enumerate(forward.results)}
        assert [r.evaluate(image) for r in back.results] == list(point.values())
    with pytest.raises(NotInvertible, match="both go to"):
        IndexMap((z,), (z % (1 << 20),), (1 << 20,)).inverse()


def test_errors_are_ours() -> None:
    for error in (NotInvertible, IndexingError):
        assert issubclass(error, IdGraphError)
