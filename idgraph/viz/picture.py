"""A picture before it is drawn: boxes, arrows, clusters, a caption and a legend. DOT and SVG print it."""

from __future__ import annotations

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
