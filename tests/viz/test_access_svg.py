"""Access pictures as SVG: well formed, escaped, folded, what they mark."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import idgraph as ig
from idgraph import viz
from idgraph.viz.report_page_parts import access_pictures
from tests.index.test_access_pictures import scheduled
from tests.index.test_banks import accesses, tile
from tests.viz.test_notebook import formatted

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str) -> tuple[list[str], list[str]]:
    """Texts and tooltips of a document."""
    root = ET.fromstring(text)
    return ["".join(e.itertext()) for e in root.iter(f"{SVG}text")], [e.text or "" for e in root.iter(f"{SVG}title")]


def test_every_touch_is_drawn_once_in_each_panel() -> None:
    a, elements = scheduled("transposed", (8, 8), "float32", 64, 1)
    texts, told = drawn(a.picture().to_svg())
    for thread in range(64):
        assert texts.count(f"T{thread}") == 3  # above its address, in the tile, in memory
        assert sum(t.startswith(f"T{thread} V0 at") for t in told) == 3
        assert str(elements[thread]) in texts
    assert "warp 1 asks for 8 sectors of 32 bytes where 4 would hold its 128 bytes" in texts


def test_masked_lanes_and_sectors_are_marked() -> None:
    a, _ = scheduled("same", (10, 10), "float32", 32, 1)
    svg = a.picture(at="last").to_svg()
    _, told = drawn(svg)
    assert sum("masked, as not" in t for t in told) == 28
    assert svg.count('stroke-width="2.2"') == 1 + 1  # one sector of the last four elements, and the legend


def test_conflicts_are_red_and_the_swizzle_is_shown_before_and_after() -> None:
    _, read = accesses(tile(32, layout="xor"))
    svg = read.picture().to_svg()
    texts, _ = drawn(svg)
    assert any(
        "without the swizzle: warp 0 asks for 128 bytes: 32-way" in " ".join(texts[n : n + 2])
        for n in range(len(texts))
    )
    assert svg.count('stroke="#d1242f" stroke-width="2"') == 32 + 1


def test_large_pictures_are_folded() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4096, 4096))
    t = f.output(x.T).split(0, 64).split(2, 32).reorder({1: 3})
    t.parallelize(2, "threadIdx.x").parallelize(3, "unroll")
    assert t.definition
    svg = ig.IdModel(f).access(t.definition, x).picture(warps=99).to_svg()
    texts, _ = drawn(svg)
    assert any("48 more values of each thread" in t for t in texts)
    assert any("rows that are not touched" in t for t in texts)
    assert len(svg) < 3_000_000


def test_names_are_escaped_and_files_written(tmp_path: Path) -> None:
    f = ig.Fusion("f")
    x = f.input("<script>alert(1)</script>", shape=(4, 4))
    t = f.output(x.T)
    assert t.definition
    p = ig.IdModel(f).access(t.definition, x).picture()
    svg = p.to_svg()
    assert "<script" not in svg and formatted(p, "svg") == svg and formatted(p, "html") is None
    assert viz.write(p, tmp_path / "a.svg").read_text(encoding="utf-8") == svg
    with pytest.raises(ig.IdGraphError, match="SVG only"):
        viz.to_dot(p)


def test_the_report_page_draws_the_accesses_that_waste_most() -> None:
    f = ig.Fusion("<script>columns")
    x = f.input("<script>x", shape=(64, 128))
    y = f.output(ig.exp(x.T)).split(1, 32).parallelize(2, "threadIdx.x")
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    report = ig.report(f)
    drawn = access_pictures(report.segments[0])
    assert [(name, p.access.is_write) for name, p in drawn] == [("t1", False), ("t2", True)]
    assert drawn[0][1].warps[0].sectors == 32 and drawn[1][1].warps[0].sectors == 4
    page = report.to_html()
    assert "warp 0 asks for 32 sectors of 32 bytes where 4 would hold its 128 bytes" in page
    assert page.count("<script>") == ig.report(ig.parse(repr(f).replace("<script>", ""))).to_html().count("<script>")


def test_a_report_with_symbols_draws_no_access() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    f.output(ig.exp(f.input("x", shape=(n, 4))))
    assert access_pictures(ig.report(f).segments[0]) == []
    assert '-access">' not in ig.report(f).to_html()
