"""A picture as one self-contained SVG: no script, no style sheet, no reference to anything outside, no ids.

A picture as Graphviz text. Names are the stable keys of the picture; every name and label is quoted and escaped.
"""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.viz.layout import CELL, CHIP, PAD, ROW, Arranged, Rect, arrange, line_width
from idgraph.viz.picture import (
    DIM,
    FRAME,
    FRAME_LINE,
    INK,
    PALE_RED,
    RED,
    SANS,
    Cluster,
    Line,
    Picture,
    PictureEdge,
    PictureNode,
    Swatch,
    cells,
    clip,
    document,
    dot,
    dot_lines,
    label,
    px,
    wrapped,
    xml_lines,
)
from idgraph.viz.sugiyama import Point

MARGIN = 22.0
ALARM = 11.5  # font size of the red caption, fixed pitch because it quotes code


def to_svg(picture: Picture) -> str:
    """The whole document, as text."""
    placed = arrange(picture)
    least = max(min(max(_caption_cells(picture) * CELL, cells(picture.title) * 9.5), 900), 380)
    inner = max(placed.width, least)
    head, top = _caption(picture, inner)
    foot, bottom = _svg_legend(picture.legend, inner)
    width, height = inner + 2 * MARGIN, top + placed.height + bottom + MARGIN
    left = MARGIN + (inner - placed.width) / 2
    body = _body(picture, placed)
    return document(
        picture.title,
        " ".join([*picture.caption, *picture.alarm]),
        (width, height),
        [
            *head,
            f'<g transform="translate({px(left)} {px(top)})">',
            *body,
            "</g>",
            f'<g transform="translate({px(MARGIN)} {px(top + placed.height)})">',
            *foot,
            "</g>",
        ],
    )


def _caption_cells(picture: Picture) -> int:
    return max((cells(t) for t in (*picture.caption, *picture.alarm)), default=0)


def _caption(picture: Picture, width: float) -> tuple[list[str], float]:
    title = clip(picture.title, max(int(width / 9), 20))
    parts = [label(title, MARGIN, MARGIN + 15, size=16, weight="bold", family=SANS)]
    y = MARGIN + 22
    for text in picture.caption:
        for row in wrapped(text, int(width / 6.6)):
            y += 17
            parts.append(label(row, MARGIN, y, fill=DIM, family=SANS))
    rows = [r for text in picture.alarm for r in wrapped(text, int((width - 30) / 7.0))]
    if rows:
        y += 12
        tall = len(rows) * ROW + 12
        parts.append(
            f'<rect x="{px(MARGIN)}" y="{px(y)}" width="{px(width)}" height="{px(tall)}" rx="4" fill="{PALE_RED}"/>'
        )
        parts.append(f'<rect x="{px(MARGIN)}" y="{px(y)}" width="4" height="{px(tall)}" fill="{RED}"/>')
        for p, row in enumerate(rows):
            bold = "bold" if p == 0 else "normal"
            parts.append(label(row, MARGIN + 14, y + 18 + p * ROW, size=ALARM, fill="#8f1620", weight=bold))
        y += tall
    return parts, y + 24


def _svg_legend(entries: tuple[Swatch, ...], width: float) -> tuple[list[str], float]:
    parts: list[str] = []
    x, y = 0.0, 30.0
    for e in entries:
        need = 29 + cells(e.text) * 6.4 + 18
        if x and x + need > width:
            x, y = 0.0, y + 20
        dash = ' stroke-dasharray="4 3"' if e.dashed else ""
        thick = 2.4 if e.thick else 1.2
        if e.shape == "line":
            parts.append(
                f'<path d="M {px(x)} {px(y)} h 22" stroke="{e.stroke}" stroke-width="{max(thick, 1.6)}" '
                f'fill="none"{dash}/>'
            )
        else:
            radius = 6 if e.shape == "pill" else 2
            parts.append(
                f'<rect x="{px(x)}" y="{px(y - 6)}" width="22" height="12" rx="{radius}" fill="{e.fill}" '
                f'stroke="{e.stroke}" stroke-width="{thick}"{dash}/>'
            )
        parts.append(label(e.text, x + 29, y + 4, size=11, fill=DIM, family=SANS))
        x += need
    return parts, (y + 14 if entries else 8)


def _body(picture: Picture, placed: Arranged) -> list[str]:
    frames = [_frame(c, placed.clusters[c.key]) for c in picture.clusters]
    heads = [_frame_head(c, placed.clusters[c.key]) for c in picture.clusters]
    arrows = [(e, _svg_edge(e, route)) for e, route in zip(picture.edges, placed.routes, strict=True)]
    arrows.sort(key=lambda pair: pair[0].marked)
    boxes = [_svg_node(n, placed.nodes[n.key]) for n in picture.nodes]
    return [*frames, *(text for _, text in arrows), *heads, *boxes]


def _frame(cluster: Cluster, rect: Rect) -> str:
    x, y = rect.x - rect.width / 2, rect.y - rect.height / 2
    stroke = RED if cluster.marked else FRAME_LINE
    return (
        f'<g><title>{xml_lines(cluster.title)}</title><rect x="{px(x)}" y="{px(y)}" width="{px(rect.width)}" '
        f'height="{px(rect.height)}" rx="8" fill="{FRAME}" stroke="{stroke}" stroke-width="1.2"/></g>'
    )


def _frame_head(cluster: Cluster, rect: Rect) -> str:
    """Above the lines that run into the frame: the text on a plate of the frame's colour."""
    x, y = rect.x - rect.width / 2, rect.y - rect.height / 2
    parts: list[str] = []
    for p, line in enumerate(cluster.lines):
        top = y + 5 + p * ROW
        parts.append(
            f'<rect x="{px(x + 8)}" y="{px(top)}" width="{px(line_width(line) + 8)}" height="{px(ROW)}" '
            f'fill="{FRAME}"/>'
        )
        parts.append(_svg_line(line, x + 12, top + 13))
    return "".join(parts)


def _svg_node(node: PictureNode, rect: Rect) -> str:
    x, y = rect.x - rect.width / 2, rect.y - rect.height / 2
    radius = min(rect.height / 2, 13) if node.shape == "pill" else 4
    stroke = RED if node.marked else node.stroke
    weight = 2.4 if node.marked or node.thick else 1.2
    dash = ' stroke-dasharray="5 3"' if node.dashed else ""
    title = f"<title>{xml_lines(node.title)}</title>" if node.title else ""
    rows: list[str] = []
    base = rect.y - len(node.lines) * ROW / 2 + 12.5
    for p, line in enumerate(node.lines):
        centred = rect.x - line_width(line) / 2
        start = centred if node.shape == "pill" or len(node.lines) == 1 else x + PAD
        rows.append(_svg_line(line, start, base + p * ROW))
    return (
        f'<g>{title}<rect x="{px(x)}" y="{px(y)}" width="{px(rect.width)}" height="{px(rect.height)}" '
        f'rx="{px(radius)}" fill="{node.fill}" stroke="{stroke}" stroke-width="{weight}"{dash}/>{"".join(rows)}</g>'
    )


def _svg_line(line: Line, x: float, y: float) -> str:
    parts: list[str] = []
    for fill, stroke in line.chips:
        parts.append(
            f'<rect x="{px(x)}" y="{px(y - 9.5)}" width="11" height="11" rx="2" fill="{fill}" stroke="{stroke}"/>'
        )
        x += CHIP
    fill = DIM if line.style == "dim" else INK
    if line.text:
        parts.append(label(line.text, x, y, fill=fill, weight="bold" if line.style == "head" else "normal"))
    return "".join(parts)


def _svg_edge(edge: PictureEdge, route: list[Point]) -> str:
    colour = RED if edge.marked else edge.colour
    weight = 2.4 if edge.marked else 1.8 if edge.link else 1.3
    dash = ' stroke-dasharray="5 4"' if edge.dashed else ""
    title = f"<title>{xml_lines(edge.title)}</title>" if edge.title else ""
    up = route[-1][1] < route[-2][1]
    tip = route[-1]
    ends = route if edge.link else [*route[:-1], (tip[0], tip[1] + (7 if up else -7))]
    head = "" if edge.link else _head(tip, up, colour, 4.6 if edge.marked else 3.8)
    return f'<g>{title}<path d="{_path(ends)}" fill="none" stroke="{colour}" stroke-width="{weight}"{dash}/>{head}</g>'


def _path(route: list[Point]) -> str:
    x, y = route[0]
    parts = [f"M {px(x)} {px(y)}"]
    for p, (to_x, to_y) in enumerate(route[1:]):
        if p % 2 == 0:
            bend = (y + to_y) / 2
            parts.append(f"C {px(x)} {px(bend)} {px(to_x)} {px(bend)} {px(to_x)} {px(to_y)}")
        else:
            parts.append(f"L {px(to_x)} {px(to_y)}")
        x, y = to_x, to_y
    return " ".join(parts)


def _head(tip: Point, up: bool, colour: str, half: float) -> str:
    x, y = tip
    base = y + (9 if up else -9)
    return f'<path d="M {px(x)} {px(y)} L {px(x - half)} {px(base)} L {px(x + half)} {px(base)} Z" fill="{colour}"/>'


LEFT = "\\l"  # DOT's line end that aligns the line to the left


def to_dot(picture: Picture) -> str:
    """The whole graph, one statement a line, in the order of the picture."""
    lines = [f"digraph {dot(picture.title)} {{"]
    shown = [picture.title, *picture.caption, *picture.alarm]
    colour = RED if picture.alarm else INK
    lines += [
        f'  graph [label={dot_lines(shown, end=LEFT)}, labelloc=t, labeljust=l, fontname="Helvetica", '
        f'fontcolor="{colour}", compound=true];',
        '  node [fontname="Courier", fontsize=11, style=filled];',
        '  edge [fontname="Courier", fontsize=10];',
    ]
    for c in picture.clusters:
        lines += _cluster(c, [n for n in picture.nodes if n.cluster == c.key])
    known = {c.key for c in picture.clusters}
    lines += [f"  {_dot_node(n)}" for n in picture.nodes if n.cluster not in known]
    inside = {n.cluster: n.key for n in reversed(picture.nodes)}
    lines += [f"  {_dot_edge(e, inside if e.tail in known else {})}" for e in picture.edges]
    return "\n".join([*lines, "}", ""])


def _attributes(pairs: Iterable[tuple[str, str]]) -> str:
    return "[" + ", ".join(f"{k}={v}" for k, v in pairs) + "]"


def _cluster(cluster: Cluster, nodes: list[PictureNode]) -> list[str]:
    label = dot_lines([x.text for x in cluster.lines], end=LEFT)
    return [
        f"  subgraph {dot('cluster ' + cluster.key)} {{",
        f"    label={label}; labeljust=l; style=rounded; color={dot(RED if cluster.marked else FRAME_LINE)}; "
        f"tooltip={dot_lines(cluster.title.splitlines())};",
        *(f"    {_dot_node(n)}" for n in nodes),
        "  }",
    ]


def _dot_node(node: PictureNode) -> str:
    style = "rounded,filled" if node.shape == "pill" else "filled"
    pairs = [
        ("label", dot_lines([x.text for x in node.lines if x.text])),
        ("shape", "box"),
        ("style", dot(style + (",dashed" if node.dashed else ""))),
        ("fillcolor", dot(node.fill)),
        ("color", dot(RED if node.marked else node.stroke)),
    ]
    if node.marked or node.thick:
        pairs.append(("penwidth", "2.4"))
    if node.title:
        pairs.append(("tooltip", dot_lines(node.title.splitlines())))
    return f"{dot(node.key)} {_attributes(pairs)};"


def _dot_edge(edge: PictureEdge, inside: dict[str, str]) -> str:
    """One edge; between clusters it joins their first nodes and ends at the frames."""
    pairs = [("color", dot(RED if edge.marked else edge.colour))]
    if edge.link:
        pairs.append(("dir", "none"))
    if edge.dashed:
        pairs.append(("style", "dashed"))
    if edge.marked:
        pairs.append(("penwidth", "2.4"))
    if edge.title:
        pairs.append(("tooltip", dot_lines(edge.title.splitlines())))
    if inside:
        pairs += [("ltail", dot("cluster " + edge.tail)), ("lhead", dot("cluster " + edge.head))]
    tail, head = inside.get(edge.tail, edge.tail), inside.get(edge.head, edge.head)
    return f"{dot(tail)} -> {dot(head)} {_attributes(pairs)};"
