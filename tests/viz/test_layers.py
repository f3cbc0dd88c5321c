"""The layout by itself: any graph, cyclic or not, small or deep."""

from __future__ import annotations

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.viz.domain_graph_picture import domain_picture
from idgraph.viz.layout import Rect, arrange
from idgraph.viz.sugiyama import crossings, layered, layers_of, spread

Graph = tuple[int, list[tuple[int, int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 14))
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1])
    return n, draw(st.lists(ends, max_size=30))


@given(graphs())
def test_layers_stand_apart_and_boxes_beside_each_other(graph: Graph) -> None:
    n, edges = graph
    sizes = [(20.0 + 5 * (v % 4), 10.0 + 3 * (v % 3)) for v in range(n)]
    placed = layered(sizes, edges)
    for a in range(n):
        for b in range(a + 1, n):
            (xa, ya), (xb, yb) = placed.centres[a], placed.centres[b]
            beside = abs(xa - xb) >= (sizes[a][0] + sizes[b][0]) / 2 + 20
            assert beside or abs(ya - yb) >= (sizes[a][1] + sizes[b][1]) / 2
    assert len(placed.routes) == len(edges)
    assert all(len(r) % 2 == 0 and len(r) >= 2 for r in placed.routes)


@given(graphs())
def test_arrows_of_an_acyclic_graph_run_down(graph: Graph) -> None:
    n, edges = graph
    edges = [(min(e), max(e)) for e in edges]
    layer = layers_of(n, edges)
    assert all(layer[a] < layer[b] for a, b in edges)
    for route in layered([(30.0, 10.0)] * n, edges).routes:
        assert all(y <= z for (_, y), (_, z) in itertools.pairwise(route))


def test_a_ladder_is_untangled() -> None:
    # Two chains whose boxes are listed crosswise.
    edges = [(0, 3), (1, 2), (2, 5), (3, 4)]
    placed = layered([(30.0, 10.0)] * 6, edges)
    order = [placed.centres[v][0] for v in (0, 3, 4)], [placed.centres[v][0] for v in (1, 2, 5)]
    assert len({x < y for x, y in zip(*order, strict=True)}) == 1


def test_crossings_are_counted() -> None:
    assert crossings([[0, 1, 2], [3, 4, 5]], [[5], [4], [3], [], [], []]) == 3
    assert crossings([[0, 1], [2, 3]], [[2, 3], [2, 3], [], []]) == 1


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20))
def test_spread_keeps_order_and_distance(wanted: list[float]) -> None:
    places = spread(wanted, [1.0] * len(wanted), [10.0] * len(wanted), 4)
    assert all(b - a >= 14 - 1e-6 for a, b in itertools.pairwise(places))


def test_spread_moves_nothing_that_has_room() -> None:
    assert spread([0, 100, 200], [1, 1, 1], [10, 10, 10], 4) == [0, 100, 200]


def test_deep_graphs_take_little_time() -> None:
    n = 4000
    began = time.process_time()
    layered([(30.0, 10.0)] * n, [(v, v + 1) for v in range(n - 1)] + [(v, v + 5) for v in range(0, n - 5, 5)])
    assert time.process_time() - began < 10


def behind(a: tuple[float, float], b: tuple[float, float], box: Rect) -> bool:
    """True where the straight line from a to b meets the inside of a box."""
    inside = [(a[0] + (b[0] - a[0]) * k / 50, a[1] + (b[1] - a[1]) * k / 50) for k in range(51)]
    return any(abs(x - box.x) < box.width / 2 - 1 and abs(y - box.y) < box.height / 2 - 1 for x, y in inside)


def test_links_run_beside_the_boxes_of_their_frames() -> None:
    """Axes of a and b are joined past the merge and split between them, not behind these."""
    f = ig.Fusion("f")
    a = ig.exp(f.input("x", shape=(6, 4)), name="a")
    b = f.output(ig.neg(a, name="b"))
    for t in (a, b):
        t.merge(0).split(0, 5)
    g = ig.IdModel(f).exact
    picture = domain_picture(g, by="tensor", highlight=g.explain(a.loop[0], b.loop[0]))
    placed = arrange(picture)
    links = [(e, r) for e, r in zip(picture.edges, placed.routes, strict=True) if e.link]
    assert any(len(route) == 4 for _, route in links)
    for e, route in links:
        for key, box in placed.nodes.items():
            if key not in (e.tail, e.head):
                assert not any(behind(p, q, box) for p, q in itertools.pairwise(route)), (e.tail, e.head, key)
