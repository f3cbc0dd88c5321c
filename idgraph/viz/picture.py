"""A picture before it is drawn: boxes, arrows, clusters, a caption and a legend. DOT and SVG print it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from idgraph.display import Shown

INK = "#1f2430"
DIM = "#667085"
LINE = "#7a8496"
FRAME = "#f7f8fa"
FRAME_LINE = "#d5dae3"
WHITE = "#ffffff"
RED = "#d1242f"
PALE_RED = "#fdeaea"
PLAIN = ("#f6f7f9", "#98a1ae")
_FORBIDDEN = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML, or not shown

# Fill and border of groups; neighbours in the list differ in lightness too, for those who see few colours.
PALETTE = (
    ("#cfe3f7", "#3b78b5"),
    ("#fde3bf", "#c0790f"),
    ("#d5efd0", "#4a9440"),
    ("#e4d7f3", "#7d55b0"),
    ("#cdeeea", "#2f8f86"),
    ("#f9d9ea", "#b54a8a"),
    ("#ece5b8", "#8f8220"),
    ("#c9d1f5", "#4757b8"),
    ("#e8d9c8", "#8a6440"),
    ("#dbe9b9", "#6c8a2d"),
)


def colours(number: int) -> tuple[str, str]:
    """Fill and border by number; the colours repeat after ten.

    >>> colours(0) == colours(10)
    True
    """
    return PALETTE[number % len(PALETTE)]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a box or caption; ``chips`` are small squares of colour in front of it."""

    text: str
    style: Literal["head", "plain", "dim"] = "plain"
    chips: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A box. ``key`` is its stable name; ``title`` the tooltip (lines); ``cluster`` the key of the cluster it is in.

    Boxes of a lower ``column`` stand further left; ``name`` is what a cut arrow calls the box (default: the key).
    """

    key: str
    lines: tuple[Line, ...]
    shape: Literal["box", "pill"] = "box"
    fill: str = WHITE
    stroke: str = LINE
    title: str = ""
    cluster: str = ""
    marked: bool = False
    thick: bool = False
    dashed: bool = False
    column: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """A line from box to box (or cluster to cluster) by key. A ``link`` says "the same": it has no arrow head."""

    tail: str
    head: str
    title: str = ""
    colour: str = LINE
    marked: bool = False
    dashed: bool = False
    link: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A frame around boxes."""

    key: str
    lines: tuple[Line, ...]
    title: str = ""
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Swatch:
    """One entry of the legend."""

    text: str
    fill: str
    stroke: str
    shape: Literal["box", "pill", "line"] = "box"
    thick: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Picture(Shown):
    """A whole picture. ``ring`` lays the boxes out as one loop in their order, else in layers along the arrows.

    ``alarm`` are caption lines in red.
    """

    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...]
    clusters: tuple[Cluster, ...] = ()
    caption: tuple[str, ...] = ()
    alarm: tuple[str, ...] = ()
    legend: tuple[Swatch, ...] = ()
    ring: bool = False

    def __repr__(self) -> str:
        return f"Picture({self.title!r}, {len(self.nodes)} boxes, {len(self.edges)} lines)"


def cells(text: str) -> int:
    """Width in cells of a fixed-pitch font: wide letters take two, combining marks none.

    >>> cells("t0"), cells("テンソル"), cells("e\\u0301")
    (2, 8, 1)
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, limit: int) -> str:
    """At most ``limit`` cells, with an ellipsis where something was cut.

    >>> clip("attention_scores", 8)
    'attenti…'
    """
    if cells(text) <= limit:
        return text
    kept = ""
    for c in text:
        if cells(kept + c) >= limit:
            break
        kept += c
    return kept + "…"


def wrapped(text: str, limit: int) -> list[str]:
    """Lines of at most ``limit`` cells, broken at spaces; a longer word is clipped."""
    lines: list[str] = []
    for word in text.split():
        if lines and cells(lines[-1]) + 1 + cells(word) <= limit:
            lines[-1] += " " + word
        else:
            lines.append(clip(word, limit))
    return lines or [""]


def clean(text: str) -> str:
    """The text without characters that XML forbids; tabs and line breaks become spaces.

    >>> clean("a\\x00b\\tc")
    'a�b c'
    """
    return _FORBIDDEN.sub(lambda c: " " if c[0] in "\t\n\r" else "\ufffd", text)


def xml(text: str) -> str:
    """Text as XML content or as a double-quoted attribute.

    >>> xml('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def xml_lines(text: str) -> str:
    """As `xml`, line breaks kept (tooltips)."""
    return "\n".join(map(xml, text.split("\n")))


def dot(text: str) -> str:
    """A double-quoted DOT string that shows ``text`` as it is: no escapes, no entities, no HTML labels.

    >>> print(dot('a"b\\\\c & <d>'))
    "a\\"b\\\\c &amp; <d>"
    """
    return dot_lines([text])


def dot_lines(lines: list[str], end: str = "\\n") -> str:
    """Several lines as one DOT string; ``end`` is DOT's line end (``\\n`` centred, ``\\l`` to the left)."""
    # Graphviz reads character entities in labels, so an ampersand must be one.
    shown = [clean(x).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for x in lines]
    return '"' + end.join(shown) + (end if end == "\\l" else "") + '"'


MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"
SANS = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"


def px(x: float) -> str:
    """Pixels, to a tenth.

    >>> px(3.0), px(2.25)
    ('3', '2.2')
    """
    return f"{x:.1f}".rstrip("0").rstrip(".")


def label(
    text: str,
    x: float,
    y: float,
    *,
    size: float = 12,
    fill: str = INK,
    weight: str = "normal",
    family: str = "",
    anchor: str = "",
) -> str:
    """One line of text, escaped."""
    bold = f' font-weight="{weight}"' if weight != "normal" else ""
    sized = f' font-size="{size:g}"' if size != 12 else ""
    named = f' font-family="{family}"' if family else ""
    placed = f' text-anchor="{anchor}"' if anchor else ""
    marks = f'fill="{fill}"{sized}{bold}{named}{placed}'
    return f'<text x="{px(x)}" y="{px(y)}" {marks} xml:space="preserve">{xml(text)}</text>'


def document(title: str, about: str, size: tuple[float, float], body: Sequence[str]) -> str:
    """A self-contained SVG document on a white sheet of ``size`` pixels."""
    width, height = px(size[0]), px(size[1])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{xml(title)}" '
            f'font-family="{MONO}" font-size="12">',
            f"<title>{xml(title)}</title>",
            f"<desc>{xml(about)}</desc>",
            f'<rect width="{width}" height="{height}" fill="{WHITE}"/>',
            *body,
            "</svg>",
            "",
        ]
    )
