"""The picture of rows: as many cells as elements, each with its row and its address."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

import idgraph as ig
from idgraph.errors import IdGraphError


def picture(*offsets: int) -> ig.viz.RaggedPicture:
    f = ig.Fusion("f")
    x, o = f.input("x", (offsets[-1],)), f.input("<o>", (len(offsets),), "int64")
    return ig.viz.ragged(ig.partition(x, 0, o), offsets)


def test_each_row_is_as_long_as_it_is() -> None:
    text = ig.viz.to_svg(picture(0, 2, 2, 9))
    ElementTree.fromstring(text)  # names are escaped
    found = re.findall(r"row (\d), element (\d): at address (\d)", text)
    rows = [(0, 0, 0), (0, 1, 1), *((2, j, 2 + j) for j in range(7))]
    assert sorted((int(b), int(j), int(a)) for b, j, a in found) == sorted(2 * rows)  # as rows and as memory
    assert all(f"row {b}: {n}" in text for b, n in enumerate((2, 0, 7)))
    assert "not drawn" not in text


def test_long_and_many_rows_are_cut() -> None:
    assert "not drawn" in ig.viz.to_svg(picture(0, 200))
    assert "not drawn" in ig.viz.to_svg(picture(*range(200)))


def test_refusals() -> None:
    f = ig.Fusion("f")
    x, o = f.input("x", (9,)), f.input("o", (4,), "int64")
    with pytest.raises(IdGraphError, match="x has no ragged axis"):
        ig.viz.ragged(x, [0, 9])
    with pytest.raises(IdGraphError, match="cannot be offsets"):
        ig.viz.ragged(ig.partition(x, 0, o), [0, 5, 3, 9])
    with pytest.raises(IdGraphError, match="SVG only"):
        ig.viz.to_dot(picture(0, 9))
