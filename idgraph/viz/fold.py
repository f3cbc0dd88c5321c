"""Tall pictures in columns: a deep graph is cut between layers, and what was cut is told by name, as in schematics."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from idgraph.viz.labels import clip
from idgraph.viz.layers import layers_of
from idgraph.viz.picture import LINE, WHITE, Line, Picture, PictureEdge, PictureNode, Swatch

ROWS = 18  # layers of one column
SPAN = 6  # an arrow over more layers is told by name too


def folded(picture: Picture) -> Picture:
    """The same picture in columns of at most 18 layers; small ones come back as they are.

    An arrow from one column to another, or over many layers, becomes a dashed box with the name of where it comes from.
    """
    index = {n.key: p for p, n in enumerate(picture.nodes)}
    layer = layers_of(len(index), [(index[e.tail], index[e.head]) for e in picture.edges])
    depth = max(layer, default=0) + 1
    if depth <= ROWS:
        return picture
    rows = ceil(depth / ceil(depth / ROWS))
    column = [at // rows for at in layer]
    nodes = [replace(n, column=c) for n, c in zip(picture.nodes, column, strict=True)]
    edges: list[PictureEdge] = []
    tags: dict[tuple[str, int], str] = {}
    for e in picture.edges:
        a, b = index[e.tail], index[e.head]
        if column[a] == column[b] and abs(layer[a] - layer[b]) <= SPAN:
            edges.append(e)
            continue
        if (e.tail, layer[b]) not in tags:
            tag_key = f"{e.tail} for {e.head}"
            while tag_key in index:  # a tensor may have any name
                tag_key += "'"
            tags[e.tail, layer[b]] = tag_key
            lines = (Line(clip(picture.nodes[a].name or e.tail, 24), "dim"),)
            tag = PictureNode(tag_key, lines, "pill", WHITE, LINE, picture.nodes[a].title, dashed=True)
            nodes.append(replace(tag, column=column[b]))
        edges.append(replace(e, tail=tags[e.tail, layer[b]]))
    entry = Swatch("name of a box that stands elsewhere", WHITE, LINE, "pill", dashed=True)
    return replace(picture, nodes=tuple(nodes), edges=tuple(edges), legend=(*picture.legend, entry))
