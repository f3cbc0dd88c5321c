"""SVG documents: well-formed, self-contained, nothing on top of something else, whatever names say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph import viz
from idgraph.viz.layout import arrange, node_size
from idgraph.viz.render import to_svg
from tests.viz.cases import deep, resolved, rope, rotation

NS = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    'a"b',
    "a\\",
    "</title><script>alert(1)</script>",
    "&lt;",
    "a'b",
    "<b>",
    "\\N",
    "тензор",
    "重み",
    "x" * 200,
    "]]>",
]


def fused(name: str) -> ig.Fusion:
    f = ig.Fusion(name)
    t = f.input(name, (64,))
    f.output(t + ig.cat([t[32:], t[:32]]))
    return f


def everything(f: ig.Fusion) -> list[object]:
    m = ig.IdModel(f)
    return [
        f,
        m.exact,
        m.index,
        *m.exact.cycles()[:1],
        m.exact.explain(f.inputs[0].logical[0], f.outputs[0].logical[0]),
    ]


def pictures() -> list[viz.Picture]:
    made = [viz.picture(x) for f in (rotation(), rope(), resolved(), deep(70)) for x in everything(f)]
    made += [viz.picture(ig.IdModel(f).exact, by="tensor") for f in (rotation(), rope())]
    return made


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_nothing_else(name: str) -> None:
    for what in everything(fused(name)):
        svg, dot = viz.to_svg(what), viz.to_dot(what)
        tree = ElementTree.fromstring(svg)
        tags = {e.tag.removeprefix(NS) for e in tree.iter()}
        assert tags <= {"svg", "title", "desc", "rect", "g", "text", "path"}
        # Every line of DOT has balanced quotes once escapes are gone, so no name leaves its string.
        assert all(re.sub(r"\\.", "", line).count('"') % 2 == 0 for line in dot.splitlines())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.isprintable))
def test_any_printable_name(name: str) -> None:
    f = fused(name)
    tree = ElementTree.fromstring(viz.to_svg(f))
    assert tree.find(f"{NS}title") is not None
    assert dot_labels(viz.to_dot(f))


def dot_labels(text: str) -> list[str]:
    return re.findall(r'label="((?:[^"\\]|\\.)*)"', text)


def test_the_whole_name_is_in_the_tooltip() -> None:
    name = "x" * 200
    tree = ElementTree.fromstring(viz.to_svg(fused(name)))
    assert any(name in (t.text or "") for t in tree.iter(f"{NS}title"))
    assert not any(name in (t.text or "") for t in tree.iter(f"{NS}text"))


def test_source_lines_are_tooltips() -> None:
    tree = ElementTree.fromstring(viz.to_svg(rotation()))
    titles = [t.text or "" for t in tree.iter(f"{NS}title")]
    assert any("cases.py" in t and "t3 = ig.cat([t2, t1], dim=0)" in t for t in titles)


def test_self_contained_and_accessible() -> None:
    for made in pictures():
        text = to_svg(made)
        tree = ElementTree.fromstring(text)
        assert tree.get("role") == "img"
        assert tree.get("aria-label") == made.title
        assert tree[0].tag == f"{NS}title"
        assert tree[1].tag == f"{NS}desc"
        assert not re.search(r"\b(href|src|id|style|class|url)\b\s*[=(]", re.sub(r">[^<]*<", "><", text))


def test_boxes_do_not_overlap_and_lie_inside() -> None:
    for made in pictures():
        placed = arrange(made)
        rects = list(placed.nodes.values())
        for p, a in enumerate(rects):
            assert a.x - a.width / 2 >= -0.1
            assert a.x + a.width / 2 <= placed.width + 0.1
            assert a.y - a.height / 2 >= -0.1
            assert a.y + a.height / 2 <= placed.height + 0.1
            for b in rects[p + 1 :]:
                apart = abs(a.x - b.x) >= (a.width + b.width) / 2 or abs(a.y - b.y) >= (a.height + b.height) / 2
                assert apart
        for n in made.nodes:
            if n.cluster:
                frame, box = placed.clusters[n.cluster], placed.nodes[n.key]
                assert abs(frame.x - box.x) <= (frame.width - box.width) / 2 + 0.1
                assert abs(frame.y - box.y) <= (frame.height - box.height) / 2 + 0.1


def test_arrows_end_at_their_boxes() -> None:
    for made in pictures():
        placed = arrange(made)
        for e, route in zip(made.edges, placed.routes, strict=True):
            ends = placed.nodes | placed.clusters
            for rect, (x, y) in ((ends[e.tail], route[0]), (ends[e.head], route[-1])):
                assert abs(x - rect.x) <= rect.width / 2 + 0.1
                assert abs(abs(y - rect.y) - rect.height / 2) < 0.1


def test_wide_letters_get_wide_boxes() -> None:
    f = fused("重み重み重み")
    nodes = {n.key: node_size(n)[0] for n in viz.picture(f).nodes}
    assert nodes["重み重み重み"] > 12 * 7
