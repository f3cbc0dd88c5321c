"""Ownership against devices that are simulated by its definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from tests.shard.ranks import devices, held

MESH = {"x": 2, "y": 3}


@st.composite
def placed(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, str, bool]], dict[str, int]]:
    """A shape, the shards of it and a mesh."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    mesh = dict(zip("xyz", draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)), strict=False))
    over = draw(st.permutations(list(mesh)))[: draw(st.integers(0, len(mesh)))]
    steps = [(draw(st.integers(0, len(shape) - 1)), m, draw(st.booleans())) for m in over]
    return shape, steps, mesh


@given(placed())
def test_each_element_is_where_the_definition_puts_it(
    case: tuple[tuple[int, ...], list[tuple[int, str, bool]], dict[str, int]],
) -> None:
    shape, steps, mesh = case
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    t = f.input("t", shape=shape).replicate()
    for axis, over, inner in steps:
        t.shard(axis, over, inner=inner)
    owner, expected = ig.shard.owner(t), held(shape, steps, mesh)
    for rank, ids in enumerate(expected):
        mine = ig.shard.local(t, rank)
        assert mine.shape == ids.shape
        assert mine.strides == tuple(int(np.prod(ids.shape[k + 1 :])) for k in range(ids.ndim))
        for at in np.ndindex(*ids.shape):
            element = tuple(int(x) for x in mine.elements(*at))
            assert int(np.ravel_multi_index(element, shape)) == ids[at]
            home = owner(*element)
            assert rank in home.ranks and home.coordinates == at
            assert home.address == int(np.ravel_multi_index(at, ids.shape))
    for element in np.ndindex(*shape):
        number = int(np.ravel_multi_index(element, shape))
        assert list(owner(*element).ranks) == [r for r in range(len(devices(mesh))) if number in expected[r]]
    assert owner.map.is_injective


def test_sharding_twice_nests_in_order() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=2)
    t, u = f.input("t", shape=(8,)).shard(0, "x").shard(0, "y"), f.input("u", shape=(8,)).shard(0, "y").shard(0, "x")
    assert ig.shard.owner(t)(2).ranks == (1,)
    assert ig.shard.owner(u)(2).ranks == (2,)


def test_symbolic_extents_have_an_owner() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=4)
    n = f.symbol("n", min=1, multiple_of=4)
    o = ig.shard.owner(f.input("t", shape=(n, 3)).shard(0, "x"))
    assert str(o) == "t: x = i0*4//n at i0*4%n//4*3 + i1"


WRONG: dict[str, Callable[[ig.Tensor], object]] = {
    "t has no axis 2": lambda t: t.shard(2, "x"),
    "has no axis 'q'": lambda t: t.shard(0, "q"),
    "is on mesh axis x already": lambda t: t.shard(0, "x").shard(1, "x"),
    "unknown reduction 'median'": lambda t: t.partial("x", "median"),
    "is not an axis of the mesh": lambda t: t.shard(0, ig.Mesh(x=7).x),
    "has no axis True": lambda t: t.shard(True, "x"),
    "a mesh of 0 axes": lambda _: ig.Mesh(),
    "has 0 devices": lambda _: ig.Mesh(x=0),
}


@pytest.mark.parametrize("said", WRONG)
def test_bad_placements_are_refused_by_name(said: str) -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=2)
    t = f.input("t", shape=(4, 4))
    before = str(f)
    with pytest.raises(ig.MeshError, match=said):
        WRONG[said](t)
    if "already" not in said:
        assert str(f) == before


def test_no_mesh_is_said() -> None:
    import contextvars

    def shard() -> None:
        ig.Fusion("f").input("t", shape=(4,)).shard(0, "x")

    with pytest.raises(ig.MeshError, match="has no mesh"):
        contextvars.Context().run(shard)


def test_text_says_the_placement() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=2)
    t = f.input("mesh", shape=(4, 4)).shard(1, "y", inner=True).partial("x", "max")
    f.output(t + 1.0).replicate()
    text = str(f)
    assert ig.parse(text) == f and str(ig.parse(text)) == text
    assert [line.strip() for line in text.splitlines() if "place" in line or line.startswith("  mesh")] == [
        "mesh x=2 y=2",
        'place "mesh" shard(1, "y", inner=true)',
        'place "mesh" partial("x", "max")',
        "place t1 replicate()",
    ]


@pytest.mark.parametrize(
    "line", ["place t shard(0)", 'place t shard("x", 0)', 'place t moved(0, "x")', "mesh x=0", "mesh x=2 x=2", "mesh"]
)
def test_bad_text_is_refused(line: str) -> None:
    mesh = "" if line.startswith("mesh") else "mesh x=2"
    text = f"fusion f {{\n  t = input(shape=(4,))\n  output t\n  {mesh}\n  {line}\n}}"
    with pytest.raises(ig.ParseError):
        ig.parse(text)
