"""A picture as Graphviz text. Names are the stable keys of the picture; every name and label is quoted and escaped."""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.viz.labels import dot, dot_lines
from idgraph.viz.picture import FRAME_LINE, INK, RED, Cluster, Picture, PictureEdge, PictureNode

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
