"""Every mapping is explained, and what an explanation rests on holds: premises are mapped and stand where it says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import networkx as nx
from hypothesis import given, note, settings

import idgraph as ig
from idgraph.graphs.proof import Fact
from idgraph.graphs.val_graph import ValGraph
from idgraph.ir import Fusion, IterDomain
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples


def axis(key: object) -> IterDomain:
    """The axis of a key of a domain graph or the index graph."""
    d: object = key[0] if isinstance(key, tuple) else key  # pyright: ignore[reportUnknownVariableType]
    assert isinstance(d, IterDomain)
    return d


def on_one_side(fact: Fact, pairs: Iterable[tuple[object, object]]) -> set[bool]:
    """Of each pair, one axis of either step: True where the first step reads its axis, False where it makes it.

    Pairs of a merge and a split stand on opposite sides of the two.
    """
    one, two = fact.reason.steps
    found: set[bool] = set()
    for pair in pairs:
        a, b = map(axis, pair)
        if a not in (*one.inputs, *one.outputs) or b not in (*two.inputs, *two.outputs):
            a, b = b, a
        crossed = type(one) is not type(two)
        places = [
            reads
            for reads, mine in ((True, one.inputs), (False, one.outputs))
            for p, q in zip(mine, two.inputs if reads is not crossed else two.outputs, strict=True)
            if {p, q} == {a, b}
        ]
        assert places, f"{fact}: {a} and {b} do not correspond"
        found.add(places[0])
    return found


def check_shortest(g: ValGraph[Any], keys: tuple[object, ...]) -> None:
    """Explanations are shortest ways in the forest of all unions that were made: networkx finds the same lengths."""
    forest: nx.Graph[object] = nx.Graph()
    forest.add_nodes_from(keys)
    for b in keys:
        forest.add_edges_from((fact.left, fact.right) for fact in g.chain(keys[0], b))
    assert nx.is_tree(forest)
    assert all(axis(x).tensor is None for x in set(forest) - set(keys))  # merges that no tensor has
    for a, b in itertools.islice(itertools.permutations(keys, 2), 40):
        shortest = nx.shortest_path_length(forest, a, b)  # pyright: ignore[reportUnknownMemberType]
        assert len(g.chain(a, b)) == shortest


def check(g: ValGraph[Any]) -> None:
    """Each pair of neighbours in a group, and the ends, are explained by facts that hold."""
    for group in g.groups:
        keys = tuple(group)
        check_shortest(g, keys)
        for a, b in (*itertools.pairwise(keys), (keys[0], keys[-1])):
            why = g.chain(a, b)
            assert why and str(why)
            for fact in why:
                assert all(g.same(*pair) for pair in fact.premises), str(fact)
                if fact.reason.because in ("congruence", "backward"):
                    (side,) = on_one_side(fact, [(fact.left, fact.right)])
                    assert on_one_side(fact, fact.premises) <= {not side}, str(fact)


@settings(max_examples=examples(100))
@given(scheduled_fusions())
def test_every_mapping_is_explained_by_what_holds(f: Fusion) -> None:
    note(str(f))
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact, m.broadcast, m.permissive, m.permissive_resize):
        check(g.graph)
    try:
        m.verify()
    except ig.ScheduleError:
        return  # loops that no nest can share are not a loop graph
    check(m.loop.graph)
    check(m.index.graph)
