"""A layered layout (Sugiyama, Tagawa, Toda 1981): longest-path layers, barycentre order, least-squares positions.

Every pass is linear in boxes and arrows (sorting apart); the number of passes is fixed. Sizes are pixels.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]
Sizes = Sequence[tuple[float, float]]
SWEEPS = 8
STRAIGHT = 6.0  # how much more a long arrow wants to be straight than a box wants to stand below its producers


@dataclass(slots=True)
class Placed:
    """Centres of boxes and the way of every arrow: points in pairs (start and end of a bend), from tail to head."""

    width: float
    height: float
    centres: list[Point]
    routes: list[list[Point]]


@dataclass(slots=True)
class _Layered:
    """Boxes and the dummies of long arrows, in layers. ``ups`` and ``downs`` are neighbours one layer away."""

    width: list[float]
    height: list[float]
    layer: list[int]
    real: int
    ups: list[list[int]] = field(default_factory=list[list[int]])
    downs: list[list[int]] = field(default_factory=list[list[int]])
    chains: list[list[int]] = field(default_factory=list[list[int]])
    rows: list[list[int]] = field(default_factory=list[list[int]])


def layered(sizes: Sizes, edges: Sequence[tuple[int, int]], gap: Point = (26, 42)) -> Placed:
    """Place boxes of ``sizes`` along ``edges``; ``gap`` is the least distance of boxes and of layers."""
    if not sizes:
        return Placed(0, 0, [], [])
    turned = _back_edges(len(sizes), edges)
    down = [(b, a) if n in turned else (a, b) for n, (a, b) in enumerate(edges)]
    graph = _with_dummies(sizes, down, _longest_path(len(sizes), down))
    _order(graph)
    x = _abscissae(graph, gap[0])
    return _placed(graph, x, [n in turned for n in range(len(edges))], gap[1])


def layers_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each of ``count`` boxes, 0 on top."""
    turned = _back_edges(count, edges)
    return _longest_path(count, [(b, a) if n in turned else (a, b) for n, (a, b) in enumerate(edges)])


def _back_edges(count: int, edges: Sequence[tuple[int, int]]) -> set[int]:
    """Arrows that a depth-first search from the sources finds to close a cycle."""
    out: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    indegree = [0] * count
    for n, (a, b) in enumerate(edges):
        out[a].append((n, b))
        indegree[b] += 1
    found: set[int] = set()
    state = [0] * count
    for root in sorted(range(count), key=lambda v: indegree[v] > 0):
        if state[root]:
            continue
        state[root] = 1
        stack = [(root, 0)]
        while stack:
            v, at = stack.pop()
            if at == len(out[v]):
                state[v] = 2
                continue
            stack.append((v, at + 1))
            n, to = out[v][at]
            if state[to] == 1:
                found.add(n)
            elif state[to] == 0:
                state[to] = 1
                stack.append((to, 0))
    return found


def _longest_path(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Layer of every box: below all its producers; a source stands just above its first consumer."""
    out: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for a, b in edges:
        out[a].append(b)
        missing[b] += 1
    sources = [v for v in range(count) if missing[v] == 0]
    layer = [0] * count
    ready = list(sources)
    for v in ready:
        for to in out[v]:
            layer[to] = max(layer[to], layer[v] + 1)
            missing[to] -= 1
            if missing[to] == 0:
                ready.append(to)
    for v in sources:
        if out[v]:
            layer[v] = min(layer[to] for to in out[v]) - 1
    return layer


def _with_dummies(sizes: Sizes, edges: Sequence[tuple[int, int]], layer: list[int]) -> _Layered:
    made = _Layered([w for w, _ in sizes], [h for _, h in sizes], list(layer), len(sizes))
    for a, b in edges:
        chain = [a]
        for level in range(layer[a] + 1, layer[b]):
            chain.append(len(made.layer))
            made.width.append(4.0)
            made.height.append(0.0)
            made.layer.append(level)
        made.chains.append([*chain, b])
    made.ups = [[] for _ in made.layer]
    made.downs = [[] for _ in made.layer]
    for chain in made.chains:
        for a, b in pairwise(chain):
            made.downs[a].append(b)
            made.ups[b].append(a)
    made.rows = [[] for _ in range(max(made.layer) + 1)]
    for v in _walk(made):
        made.rows[made.layer[v]].append(v)
    return made


def _walk(graph: _Layered) -> list[int]:
    """All boxes in depth-first order from the first of each part, so that what belongs together starts together."""
    seen = [False] * len(graph.layer)
    order: list[int] = []
    for root in range(len(graph.layer)):
        stack = [root]
        while stack:
            v = stack.pop()
            if seen[v]:
                continue
            seen[v] = True
            order.append(v)
            stack += [*reversed(graph.downs[v]), *reversed(graph.ups[v])]
    return order


def _order(graph: _Layered) -> None:
    """Barycentre sweeps down and up; the order with the fewest crossings is kept."""
    best, fewest = [list(r) for r in graph.rows], crossings(graph.rows, graph.downs)
    for sweep in range(SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        rows = graph.rows if down else graph.rows[::-1]
        beside = graph.ups if down else graph.downs
        for before, row in pairwise(rows):
            place = {v: float(p) for p, v in enumerate(before)}
            mine = {v: float(p) for p, v in enumerate(row)}
            centre = {v: sum(place[u] for u in beside[v]) / len(beside[v]) if beside[v] else mine[v] for v in row}
            row.sort(key=centre.__getitem__)
        count = crossings(graph.rows, graph.downs)
        if count < fewest:
            best, fewest = [list(r) for r in graph.rows], count
    graph.rows = best


def crossings(rows: Sequence[Sequence[int]], downs: Sequence[Sequence[int]]) -> int:
    """The number of crossing pairs of arrows between neighbouring layers."""
    total = 0
    for row, below in pairwise(rows):
        place = {v: p for p, v in enumerate(below)}
        seen: list[int] = []
        for v in row:
            ends = sorted(place[u] for u in downs[v])
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _abscissae(graph: _Layered, gap: float) -> list[float]:
    """Places in every layer: boxes pushed towards their neighbours' mean, in order and without overlap."""
    x = [0.0] * len(graph.layer)
    for row in graph.rows:
        at = 0.0
        for v in row:
            x[v] = at + graph.width[v] / 2
            at += graph.width[v] + gap
        for v in row:
            x[v] -= (at - gap) / 2
    for sweep in range(2 * SWEEPS):
        last = sweep >= 2 * SWEEPS - 2
        rows = graph.rows if sweep % 2 == 0 else graph.rows[::-1]
        for row in rows:
            wanted: list[float] = []
            weights: list[float] = []
            for v in row:
                near = graph.ups[v] if sweep % 2 == 0 else graph.downs[v]
                if last or not near:
                    near = [*graph.ups[v], *graph.downs[v]]
                pull = [STRAIGHT if v >= graph.real and u >= graph.real else 1.0 for u in near]
                total = sum(pull)
                wanted.append(sum(x[u] * p for u, p in zip(near, pull, strict=True)) / total if near else x[v])
                weights.append(total or 0.1)
            for v, place in zip(row, spread(wanted, weights, [graph.width[v] for v in row], gap), strict=True):
                x[v] = place
    left = min(x[v] - graph.width[v] / 2 for v in range(len(x)))
    return [place - left for place in x]


def spread(wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float], gap: float) -> list[float]:
    """Places nearest to the wanted ones (weighted squares) that keep order and distance: pool adjacent violators."""
    offsets = [0.0]
    for a, b in pairwise(widths):
        offsets.append(offsets[-1] + (a + b) / 2 + gap)
    blocks: list[tuple[float, float, int]] = []
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, heavy, size = want - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, more, count = blocks.pop()
            mean = (mean * heavy + other * more) / (heavy + more)
            heavy, size = heavy + more, size + count
        blocks.append((mean, heavy, size))
    flat = [mean for mean, _, size in blocks for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]


def _placed(graph: _Layered, x: list[float], turned: list[bool], gap: float) -> Placed:
    tops: list[float] = []
    y = 0.0
    for row in graph.rows:
        tops.append(y)
        y += max((graph.height[v] for v in row), default=0.0) + gap
    bottoms = [top - gap for top in [*tops[1:], y]]
    middle = [(a + b) / 2 for a, b in zip(tops, bottoms, strict=True)]
    ports = _ports(graph, x)
    routes: list[list[Point]] = []
    for n, chain in enumerate(graph.chains):
        points: list[Point] = []
        for at, v in enumerate(chain):
            level = graph.layer[v]
            half = graph.height[v] / 2
            if v >= graph.real:
                points += [(x[v], tops[level]), (x[v], bottoms[level])]
            elif at == 0:
                points.append((ports[n, True], middle[level] + half))
            else:
                points.append((ports[n, False], middle[level] - half))
        routes.append(points[::-1] if turned[n] else points)
    width = max(x[v] + graph.width[v] / 2 for v in range(len(x)))
    centres = [(x[v], middle[graph.layer[v]]) for v in range(graph.real)]
    return Placed(width, bottoms[-1], centres, routes)


def _ports(graph: _Layered, x: list[float]) -> dict[tuple[int, bool], float]:
    """Where each arrow leaves (True) or enters (False) its box: side by side, in the order of the other ends."""
    sides: dict[tuple[int, bool], list[tuple[float, int]]] = {}
    for n, chain in enumerate(graph.chains):
        sides.setdefault((chain[0], True), []).append((x[chain[1]], n))
        sides.setdefault((chain[-1], False), []).append((x[chain[-2]], n))
    found: dict[tuple[int, bool], float] = {}
    for (v, leaving), ends in sides.items():
        room = min(18.0, (graph.width[v] - 20) / max(len(ends) - 1, 1))
        for p, (_, n) in enumerate(sorted(ends)):
            found[n, leaving] = x[v] + (p - (len(ends) - 1) / 2) * max(room, 0)
    return found
