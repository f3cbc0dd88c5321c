"""Names are data: with hostile names every text the library writes has the structure that it has with plain ones."""

from __future__ import annotations

import ast
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import idgraph as ig

PIECES = (  # quotes, markup, words of several languages, letters of two directions
    "'", '"', '"""', "\\", "\\n", "{", "}", "{x}", "%s", "$(id)", "`id`", "<b>", "</script>",
    "<script>alert(1)</script>", "&lt;", "]]>", "-->", "*/", "//", "# ", "];", "--", "; drop", "|", "=1+1", "@x",
    "lambda", "import os", "buf0", "i0", "t0", "kernel0", "cuda", "__import__('os')", "range", "None", "../x",
    "/etc/passwd", "\u05d0", "\u00e9", " ", "a", "\U0001f600",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
TARGETS = ("python", "numpy", "cpu", "cuda")


def built(names: list[str]) -> ig.Fusion:
    """A rotation with a residual, a gather and a sum, under these names."""
    f = ig.Fusion(names[0])
    x = f.input(names[1], shape=(64,))
    i = f.input(names[2], shape=(8,), dtype="int64")
    y = ig.cat([x[32:], x[:32]], dim=0, name=names[3])
    f.output(ig.add(x, y, name=names[4]), ig.index_select(y, 0, i, name=names[5]), ig.sum(x, 0, name=names[6]))
    return f


PLAIN = built([f"n{k}" for k in range(7)])


def code(source: str) -> str:
    """A Python source without its comments."""
    return ast.dump(ast.parse(source))


class Tags(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[object] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, tuple(sorted(a for a, _ in attrs))))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(tag)


def tags(svg: str) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and names of their attributes, but for runs of text, which are cut where a line is full."""
    return [(e.tag, tuple(sorted(e.attrib))) for e in ET.fromstring(svg).iter() if not e.tag.endswith("tspan")]


def dot_structure(dot: str) -> str:
    """A DOT text whose quoted strings are empty."""
    return re.sub(r"\s+", " ", re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot))


LONG = built([f"{'long' * 20}{k}" for k in range(7)])  # long names are folded on a page, behind a button
KNOWN_TAGS = {x for f in (PLAIN, LONG) for x in Tags(ig.report(f).to_html()).seen}


@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
@given(st.lists(NAMES, min_size=7, max_size=7, unique=True))
def test_structure_does_not_depend_on_names(names: list[str]) -> None:
    f = built(names)
    assert str(ig.parse(str(f))) == str(f)
    for target in TARGETS:
        hostile, plain = ig.emit(f, target=target).source, ig.emit(PLAIN, target=target).source
        assert code(hostile) == code(plain)
        assert len(hostile.splitlines()) == len(plain.splitlines())
    m, p = ig.IdModel(f), ig.IdModel(PLAIN)
    assert set(tags(m.exact.to_svg())) == set(tags(p.exact.to_svg()))
    assert dot_structure(f.to_dot()) == dot_structure(PLAIN.to_dot())
    assert set(Tags(ig.report(f).to_html()).seen) <= KNOWN_TAGS


def test_the_comparison_can_fail() -> None:
    assert code("x = 1") != code("x = 1; y = 2")
    assert tags("<svg><g/></svg>") != tags('<svg><g onload="x"/></svg>')
    assert dot_structure('a [label="x"]; b') != dot_structure('a [label="x"]')


@pytest.mark.parametrize(
    "name", ["a\nb", "a\rb", "a\u2028b", "a\u202eb", "a\u200bb", "\x1b[31m", "", "a" * 201, "\ud800"]
)
def test_names_that_change_lines_or_direction_are_refused(name: str) -> None:
    f = ig.Fusion("f")
    for build in (lambda: f.input(name, shape=(2,)), lambda: ig.Fusion(name), lambda: f.symbol(name)):
        with pytest.raises(ig.IdGraphError) as caught:
            build()
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
