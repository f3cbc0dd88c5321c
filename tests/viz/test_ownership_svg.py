"""The picture of an ownership: a cell for each element, with the ranks that hold it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import idgraph as ig
from idgraph.errors import IdGraphError


def owner(shape: tuple[int, ...], *over: tuple[int, str]) -> ig.shard.Ownership:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=2)
    t = f.input("<t>", shape=shape).replicate()
    for axis, name in over:
        t.shard(axis, name)
    return ig.shard.owner(t)


def test_each_cell_has_its_ranks() -> None:
    o = owner((2, 4, 4), (1, "x"), (1, "y"))
    text = ig.viz.to_svg(o)
    ElementTree.fromstring(text)  # names are escaped
    found = re.findall(r"element \[(\d), (\d), (\d)\]: rank (\d) at address (\d+)", text)
    assert len(found) == 32
    assert all((int(r),) == o(int(a), int(b), int(c)).ranks for a, b, c, r, _ in found)
    assert "not drawn" not in text


def test_replicas_large_and_small_tensors() -> None:
    assert "rank 0, 1 at" in ig.viz.to_svg(owner((4,), (0, "x")))
    assert "not drawn" in ig.viz.to_svg(owner((100, 100), (0, "x")))
    assert ig.viz.to_svg(owner(())).count("<title>") == 2


def test_it_shows_itself_and_has_no_dot() -> None:
    o = owner((4,), (0, "x"))
    assert (o._repr_svg_() or "").startswith("<svg")  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(IdGraphError, match="SVG only"):
        ig.viz.to_dot(o)
