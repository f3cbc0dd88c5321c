"""From a picture to positions: sizes of boxes from their text, parts side by side, clusters laid out inside first.

Tall pictures in columns: a deep graph is cut between layers, and what was cut is named, as in schematics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from idgraph.graphs.union_find import UnionFind
from idgraph.viz.picture import LINE, WHITE, Cluster, Line, Picture, PictureEdge, PictureNode, Swatch, cells, clip
from idgraph.viz.sugiyama import Placed, Point, Sizes, layered, layers_of

CELL = 7.3  # pixels of one cell of the 12-pixel fixed-pitch font
ROW = 17.0
PAD = 9.0
CHIP = 15.0


@dataclass(frozen=True, slots=True)
class Rect:
    """A placed box: centre and size in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Arranged:
    """Places of nodes and clusters by key, and the way of each edge (points in pairs, tail to head)."""

    width: float
    height: float
    nodes: dict[str, Rect]
    clusters: dict[str, Rect]
    routes: list[list[Point]]


def line_width(line: Line) -> float:
    """Pixels of one line of a box."""
    return cells(line.text) * CELL + len(line.chips) * CHIP


def node_size(node: PictureNode) -> tuple[float, float]:
    """Pixels of a box with its text."""
    pad = PAD + (4 if node.shape == "pill" else 0)
    return max(map(line_width, node.lines), default=10.0) + 2 * pad, len(node.lines) * ROW + PAD + 1


def arrange(picture: Picture) -> Arranged:
    """Place everything in a picture."""
    if picture.ring:
        return _ring(picture)
    if picture.clusters:
        return _nested(picture)
    index = {n.key: p for p, n in enumerate(picture.nodes)}
    sizes = [node_size(n) for n in picture.nodes]
    ranks = [(n.column, not n.marked) for n in picture.nodes]
    placed = parts(sizes, [(index[e.tail], index[e.head]) for e in picture.edges], ranks)
    return Arranged(placed.width, placed.height, _rects(picture.nodes, sizes, placed), {}, placed.routes)


def _rects(nodes: Sequence[PictureNode], sizes: Sizes, placed: Placed) -> dict[str, Rect]:
    return {n.key: Rect(*c, *s) for n, c, s in zip(nodes, placed.centres, sizes, strict=True)}


def parts(
    sizes: Sizes,
    edges: Sequence[tuple[int, int]],
    ranks: Sequence[tuple[int, bool]] = (),
    width: float = 1150,
    gap: Point = (26, 42),
    between: float = 34,
) -> Placed:
    """Unconnected parts laid out each for itself, then side by side on shelves.

    Parts with the least ``ranks`` come first, of those the larger ones; shelves are ``width`` pixels, or as wide as
    makes the whole about three by two. ``gap`` lies within parts, ``between`` between them.
    """
    owner = _components(len(sizes), edges)
    members: dict[int, list[int]] = {}
    for v, root in enumerate(owner):
        members.setdefault(root, []).append(v)
    inside: dict[int, list[int]] = {}
    for n, (a, _) in enumerate(edges):
        inside.setdefault(owner[a], []).append(n)
    drawn: list[tuple[int, Placed]] = []
    for root, vs in members.items():
        local = {v: p for p, v in enumerate(vs)}
        mine = [(local[edges[n][0]], local[edges[n][1]]) for n in inside.get(root, [])]
        drawn.append((root, layered([sizes[v] for v in vs], mine, gap)))
    if ranks:
        drawn.sort(key=lambda d: (min(ranks[v] for v in members[d[0]]), -len(members[d[0]])))
    else:
        drawn.sort(key=lambda d: -len(members[d[0]]))
    area = sum((p.width + between) * (p.height + between) for _, p in drawn)
    limit = max([width, (1.5 * area) ** 0.5, *(p.width for _, p in drawn)])
    whole = Placed(0, 0, [(0.0, 0.0)] * len(sizes), [[] for _ in edges])
    x = y = shelf = 0.0
    for root, part in drawn:
        if x and x + part.width > limit:
            x, y, shelf = 0.0, y + shelf + between, 0.0
        for v, (cx, cy) in zip(members[root], part.centres, strict=True):
            whole.centres[v] = (cx + x, cy + y)
        for n, route in zip(inside.get(root, []), part.routes, strict=True):
            whole.routes[n] = [(px + x, py + y) for px, py in route]
        whole.width, whole.height = max(whole.width, x + part.width), max(whole.height, y + part.height)
        x, shelf = x + part.width + between, max(shelf, part.height)
    return whole


def _components(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    sets = UnionFind(count)
    for a, b in edges:
        sets.union(a, b, 0)
    return sets.roots()


# clusters -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Inner:
    cluster: Cluster | None
    nodes: list[PictureNode]
    placed: Placed
    edges: list[int]
    width: float
    height: float
    top: float


def _nested(picture: Picture) -> Arranged:
    """Each cluster inside, then the clusters as boxes; an edge between clusters follows the way of their arrow."""
    inner = _cluster_members(picture)
    at = {n.key: c for c, box in enumerate(inner) for n in box.nodes}
    at |= {box.cluster.key: c for c, box in enumerate(inner) if box.cluster is not None}
    outer: dict[tuple[int, int], int] = {}
    for e in picture.edges:
        a, b = at[e.tail], at[e.head]
        if a != b:
            outer.setdefault((a, b), len(outer))
    placed = parts([(b.width, b.height) for b in inner], list(outer), gap=(36, 46))
    nodes: dict[str, Rect] = {}
    clusters: dict[str, Rect] = {}
    routes: list[list[Point]] = [[] for _ in picture.edges]
    for box, (cx, cy) in zip(inner, placed.centres, strict=True):
        left = cx - box.placed.width / 2
        top = cy - box.height / 2 + box.top
        for n, (x, y) in zip(box.nodes, box.placed.centres, strict=True):
            nodes[n.key] = Rect(x + left, y + top, *node_size(n))
        for n, route in zip(box.edges, box.placed.routes, strict=True):
            routes[n] = [(x + left, y + top) for x, y in route]
        if box.cluster is not None:
            clusters[box.cluster.key] = Rect(cx, cy, box.width, box.height)
    for n, e in enumerate(picture.edges):
        if at[e.tail] != at[e.head]:
            way = placed.routes[outer[at[e.tail], at[e.head]]]
            whole = e.tail in clusters
            routes[n] = way if whole else _between(nodes[e.tail], nodes[e.head], way)
    _route_around_boxes(picture, nodes, routes)
    return Arranged(placed.width, placed.height, nodes, clusters, routes)


def _between(tail: Rect, head: Rect, way: list[Point]) -> list[Point]:
    """From box to box along the way of the arrow between their clusters, whose own ends are replaced."""
    down = tail.y <= head.y
    start = (tail.x, tail.y + (tail.height if down else -tail.height) / 2)
    end = (head.x, head.y + (-head.height if down else head.height) / 2)
    return [start, *way[1:-1], end]


def _route_around_boxes(picture: Picture, nodes: dict[str, Rect], routes: list[list[Point]]) -> None:
    """Links that would run behind other boxes of their two frames run beside them, each in a lane of its own."""
    frame = {n.key: n.cluster for n in picture.nodes}
    lanes: dict[tuple[str, str, bool], int] = {}
    for n, e in enumerate(picture.edges):
        if not e.link or e.tail not in nodes or e.head not in nodes or len(routes[n]) != 2:
            continue
        (x, y), (to_x, to_y) = routes[n]
        low, high = min(y, to_y), max(y, to_y)
        ends = {frame[e.tail], frame[e.head]} - {None}
        span = [r for k, r in nodes.items() if frame.get(k) in ends and low < r.y < high and k not in (e.tail, e.head)]
        if not any(min(x, to_x) - r.width / 2 < r.x < max(x, to_x) + r.width / 2 for r in span):
            continue
        left = min(r.x - r.width / 2 for r in span)
        right = max(r.x + r.width / 2 for r in span)
        on_left = x + to_x - 2 * left <= 2 * right - x - to_x
        taken = lanes.setdefault((frame[e.tail] or "", frame[e.head] or "", on_left), 0)
        lanes[frame[e.tail] or "", frame[e.head] or "", on_left] = taken + 1
        aside = left - 7 - 4 * (taken % 4) if on_left else right + 7 + 4 * (taken % 4)
        turn = min(16.0, (high - low) / 4) * (1 if to_y > y else -1)
        routes[n] = [(x, y), (aside, y + turn), (aside, to_y - turn), (to_x, to_y)]


def _cluster_members(picture: Picture) -> list[_Inner]:
    by_cluster: dict[str, list[PictureNode]] = {c.key: [] for c in picture.clusters}
    alone: list[PictureNode] = []
    for n in picture.nodes:
        by_cluster.get(n.cluster, alone).append(n)
    heads: list[tuple[Cluster | None, list[PictureNode]]] = [(c, by_cluster[c.key]) for c in picture.clusters]
    heads += [(None, [n]) for n in alone]
    where = {n.key: c for c, (_, nodes) in enumerate(heads) for n in nodes}
    where |= {c.key: -1 - p for p, c in enumerate(picture.clusters)}  # an edge of whole clusters is inside none
    mine: list[list[int]] = [[] for _ in heads]
    for n, e in enumerate(picture.edges):
        if where[e.tail] == where[e.head]:
            mine[where[e.tail]].append(n)
    return [_inner(c, nodes, [picture.edges[n] for n in ns], ns) for (c, nodes), ns in zip(heads, mine, strict=True)]


def _inner(cluster: Cluster | None, nodes: list[PictureNode], edges: list[PictureEdge], numbers: list[int]) -> _Inner:
    local = {n.key: p for p, n in enumerate(nodes)}
    ends = [(local[e.tail], local[e.head]) for e in edges]
    placed = parts([node_size(n) for n in nodes], ends, width=520, gap=(18, 26), between=14)
    if cluster is None:
        return _Inner(None, nodes, placed, numbers, placed.width, placed.height, 0)
    top = len(cluster.lines) * ROW + 14
    width = max([placed.width, *map(line_width, cluster.lines)]) + 24
    return _Inner(cluster, nodes, placed, numbers, width, placed.height + top + 12, top)


# one loop -------------------------------------------------------------------------------------------------------------


def _ring(picture: Picture) -> Arranged:
    """The boxes once around: the first on top, half of the rest down on the right, the others up on the left."""
    nodes = picture.nodes
    sizes = [node_size(n) for n in nodes]
    bottom = (len(nodes) + 1) // 2 if len(nodes) > 2 else len(nodes) - 1
    right, left = list(range(1, bottom)), list(range(len(nodes) - 1, bottom, -1))
    gap = 40.0
    wide = [max((sizes[p][0] for p in side), default=0.0) for side in (left, right)]
    middle = max(40.0, max(sizes[p][0] for p in (0, bottom)) - wide[0] / 2 - wide[1] / 2)
    tall = max(sum(sizes[p][1] + gap for p in side) for side in (left, right))
    top, width = sizes[0][1], wide[0] + middle + wide[1]
    centres: dict[int, Point] = {0: (width / 2, top / 2)}
    if bottom:
        centres[bottom] = (width / 2, top + tall + gap + sizes[bottom][1] / 2)
    for side, x in ((left, wide[0] / 2), (right, width - wide[1] / 2)):
        free = (tall + gap - sum(sizes[p][1] for p in side)) / (len(side) + 1)
        y = top + free
        for p in side:
            centres[p] = (x, y + sizes[p][1] / 2)
            y += sizes[p][1] + free
    rects = [Rect(*centres[p], *sizes[p]) for p in range(len(nodes))]
    least = min(r.x - r.width / 2 for r in rects)
    rects = [Rect(r.x - least, r.y, r.width, r.height) for r in rects]
    index = {n.key: p for p, n in enumerate(nodes)}
    routes = [_around(rects, index[e.tail], index[e.head], bottom) for e in picture.edges]
    width = max(r.x + r.width / 2 for r in rects)
    height = max(r.y + r.height / 2 for r in rects)
    return Arranged(width, height, {n.key: r for n, r in zip(nodes, rects, strict=True)}, {}, routes)


def _around(rects: list[Rect], tail: int, head: int, bottom: int) -> list[Point]:
    down = tail < bottom
    a, b = rects[tail], rects[head]
    start = (a.x, a.y + (a.height if down else -a.height) / 2)
    end = (b.x, b.y + (-b.height if down else b.height) / 2)
    # The box on top and the one below it are left and entered on the side of the column.
    for p, rect in ((tail, a), (head, b)):
        if p in (0, bottom):
            x = rect.x + (1 if down else -1) * min(rect.width / 3, 60)
            if p == tail:
                start = (x, start[1])
            else:
                end = (x, end[1])
    return [start, end]


ROWS = 18  # layers of one column
SPAN = 6  # an arrow over more layers is named too


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
