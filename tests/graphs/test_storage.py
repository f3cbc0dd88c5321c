"""Graphs are integers in arrays: objects are made when looked at, and the collector is left alone."""

from __future__ import annotations

import ast
import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import CongruenceClosure, ExprGroup, Group, SignatureTable, common_loops
from idgraph.graphs.graph_view import GraphView
from idgraph.graphs.proof import Reasons, equal
from idgraph.graphs.signature import ExprSignature, KeyList
from idgraph.graphs.union_find import UnionFind
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples
from tools.programs.sized_fusions import SHAPES

PACKAGE = Path(ig.__file__).parent
GRAPHS = ("exact", "almost_exact", "index")


# the collector ----------------------------------------------------------------------------------------------------


def collector_calls(text: str) -> list[int]:
    """Lines that name the module gc, however it is imported."""
    found: list[int] = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names) if any(n.name.partition(".")[0] == "gc" for n in names):
                found.append(node.lineno)
            case ast.ImportFrom(module="gc"):
                found.append(node.lineno)
            case ast.Call(args=[ast.Constant(value="gc"), *_]):
                found.append(node.lineno)
            case _:
                pass
    return found


def test_no_module_names_the_collector() -> None:
    told = {str(p): collector_calls(p.read_text(encoding="utf-8")) for p in PACKAGE.rglob("*.py")}
    assert len(told) > 200 and not any(told.values()), {p: lines for p, lines in told.items() if lines}


@pytest.mark.parametrize(
    "text", ["import gc", "import os, gc as g", "from gc import freeze", "__import__('gc').freeze()"]
)
def test_the_search_finds_every_way_to_name_it(text: str) -> None:
    assert collector_calls(text) == [1]


def test_the_collector_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_args: object) -> None:
        raise AssertionError("somebody else's setting")

    for name in ("freeze", "unfreeze", "disable", "enable", "set_threshold", "collect", "set_debug"):
        monkeypatch.setattr(gc, name, refused)
    for shape in SHAPES.values():
        f = shape(64)
        m = ig.IdModel(f)
        assert all(len(getattr(m, name).groups) for name in GRAPHS)
        assert set(common_loops(f, f.tensors)) == set(f.tensors)


# objects ----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _what_was_there_is_not_counted() -> None:  # nor walked through: a worker's tests of before leave many objects
    gc.freeze()


def tracked() -> int:
    """Objects that a collection walks through, of those made in this test."""
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize(
    ("name", "most"), [("pointwise chain", 1.5), ("reshape/slice/cat/residual", 6), ("fan-out", 1.5)]
)
def test_a_graph_costs_few_objects_an_operation(name: str, most: float) -> None:
    """A plan for each tensor, and what a reshape or slice adds to it; nothing for a key, a group or a union."""
    f = SHAPES[name](800)
    m = ig.IdModel(f)
    before = tracked()
    graphs = m.exact, m.almost_exact, m.index
    assert tracked() - before < most * len(f.exprs) + 300
    assert all(len(g.groups) for g in graphs)


@pytest.mark.parametrize("name", SHAPES)
def test_a_fusion_costs_few_objects_an_operation(name: str) -> None:
    before = tracked()
    f = SHAPES[name](800)
    assert tracked() - before < 30 * len(f.exprs)


@pytest.mark.parametrize("name", SHAPES)
def test_counting_groups_makes_none(name: str) -> None:
    m = ig.IdModel(SHAPES[name](400))
    graphs = m.exact, m.almost_exact, m.index
    before = tracked()
    counts = [(len(g.groups), len(g.expr_groups)) for g in graphs]
    assert tracked() - before < 40, counts  # a few arrays and lists
    assert counts[2][0] > 10


def test_groups_that_were_looked_at_are_gone_when_nobody_holds_them() -> None:
    m = ig.IdModel(SHAPES["fan-out"](400))
    list(m.index.groups[0])  # what is made once
    before = tracked()
    assert sum(len(g.keys) for g in m.index.groups) > 3000
    assert tracked() - before < 20
    held = list(m.index.groups)
    assert len(held) <= tracked() - before <= 2 * len(held) + 20  # each with a weak reference


def test_a_group_is_one_object_as_long_as_it_is_held() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 4))
    u = f.output(t + t.T.T)
    g = ig.IdModel(f).exact
    mine = g.group(t.logical[0])
    assert mine is g.group(u.logical[0]) is g.groups[0] is next(iter(g.groups))
    assert mine is not g.group(t.logical[1]) and mine in g.groups and mine in {g.groups[0]: 1}
    watched = weakref.ref(mine)
    del mine
    assert watched() is None
    assert g.group(t.logical[0]).keys == g.groups[0].keys


def test_groups_read_like_a_tuple() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 4, 2))
    f.output(ig.exp(t))
    g = ig.IdModel(f).exact
    all_of_them = tuple(g.groups)
    assert len(g.groups) == 3 and g.groups == g.groups and g.groups == all_of_them and hash(g.groups) == hash(g.groups)
    assert g.groups != g.expr_groups and g.groups != ig.IdModel(f).exact.groups
    assert g.groups[-1] is all_of_them[2] and g.groups[1:] == all_of_them[1:] and g.groups.index(all_of_them[1]) == 1
    assert repr(g.groups) == repr(all_of_them) and list(reversed(g.groups)) == list(reversed(all_of_them))
    with pytest.raises(IndexError):
        g.groups[3]
    assert [x.number for x in g.groups] == sorted(x.number for x in g.groups)


# what the arrays say ----------------------------------------------------------------------------------------------


def check_groups(g: GraphView[Any]) -> None:
    """Groups part the keys, in the order of the keys; definitions and uses are those that list them."""
    graph = g.graph
    groups: list[Group[Any]] = list(g.groups)
    steps: list[ExprGroup[Any]] = list(g.expr_groups)
    listed = [[graph.key_number(k) for k in x] for x in groups]
    assert sorted(n for numbers in listed for n in numbers) == list(range(sum(map(len, listed))))
    assert all(numbers == sorted(numbers) and numbers[0] == x.number for numbers, x in zip(listed, groups, strict=True))
    assert listed == sorted(listed)
    for x in groups:
        assert len(x) == len(x.keys) and x.first == x.keys[0]
        assert all(graph.lookup(k) is x for k in x)
        for told, side in ((g.definitions(x), "outputs"), (g.uses(x), "inputs")):
            assert told == tuple(s for s in steps if any(y is x for y in getattr(s, side)))
    for s in steps:
        numbers = [k for k in range(len(graph.nodes)) if graph.nodes.find(k) == s.number]
        shown = len(graph.nodes) if graph.nodes.visible is None else graph.nodes.visible
        assert s.exprs == tuple(dict.fromkeys(graph.nodes.form[k].expr for k in numbers if k < shown))
        assert s.expr is s.exprs[0]


@settings(max_examples=examples(60))
@given(scheduled_fusions())
def test_groups_of_random_fusions(f: ig.Fusion) -> None:
    note(str(f))
    m = ig.IdModel(f)
    check_groups(m.exact)
    check_groups(m.almost_exact)
    try:
        index = m.index
    except ig.ScheduleError:
        return
    check_groups(index)


def test_hidden_axes_are_counted_in_no_group() -> None:
    f = ig.Fusion("f")
    t = f.input("t0", shape=(2, 3, 4))
    for shape in ((6, 4), (24,), (2, 12), (2, 3, 4)):
        t = ig.reshape(t, *shape)
    f.output(ig.exp(t))
    g = ig.IdModel(f).almost_exact
    assert g.graph.nodes.visible is not None and len(g.graph.nodes) > g.graph.nodes.visible
    check_groups(g)


@given(st.integers(2, 40), st.randoms(use_true_random=False))
def test_disjoint_sets_against_a_search(count: int, random: Random) -> None:
    """Sets, sizes and the one path of stated unions between two elements, by breadth first over what was stated."""
    sets, edges = UnionFind(count - 1), dict[int, list[tuple[int, int]]]()
    assert sets.add() == count - 1
    for why in range(random.randrange(2 * count)):
        a, b = random.randrange(count), random.randrange(count)
        if sets.union(a, b, why):
            edges.setdefault(a, []).append((b, why))
            edges.setdefault(b, []).append((a, why))
    for a in range(count):
        way = dict(search(a, edges))
        assert sets.size(a) == len(way)
        for b in range(count):
            assert (sets.find(a) == sets.find(b)) == (b in way)
            if b in way:
                assert sets.path(a, b) == way[b]
            else:
                with pytest.raises(KeyError):
                    sets.path(a, b)
    before = [sets.find(x) for x in range(count)]
    assert sets.roots() == before == sets.copy().parent


def search(start: int, edges: dict[int, list[tuple[int, int]]]) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Every element of a component with the only path to it: stated unions that joined two sets form a forest."""
    queue, seen = deque([(start, list[tuple[int, int, int]]())]), {start}
    while queue:
        at, path = queue.popleft()
        yield at, path
        for to, why in edges.get(at, ()):
            if to not in seen:
                seen.add(to)
                queue.append((to, [*path, (at, to, why)]))


Entry = tuple[int, tuple[int, ...], tuple[int, ...]]  # the number of a form, elements read, elements made
SIDES = ((1, 1), (1, 2), (2, 1), (2, 2))


def closed(count: int, entries: list[Entry], stated: list[tuple[int, int]]) -> list[int]:
    """The least element of each element's class, by trying every pair of entries until nothing changes."""
    least = list(range(count))

    def join(a: int, b: int) -> bool:
        low, high = sorted((least[a], least[b]))
        least[:] = [low if x == high else x for x in least]
        return low != high

    for a, b in stated:
        join(a, b)
    changed = True
    while changed:
        changed = False
        for form, ins, outs in entries:
            for other, others_in, others_out in entries:
                for mine, theirs, follow in (
                    (ins, others_in, (outs, others_out)),
                    (outs, others_out, (ins, others_in)),
                ):
                    if form == other and [least[x] for x in mine] == [least[x] for x in theirs]:
                        changed |= sum(join(a, b) for a, b in zip(*follow, strict=True)) > 0
    return least


@settings(max_examples=examples(200, needed=100))
@given(st.integers(2, 24), st.randoms(use_true_random=False))
def test_congruence_against_trying_every_pair(count: int, random: Random) -> None:
    """Entries and mappings in any order, settled in between; also in a fork that goes on alone."""
    f = ig.Fusion("f")
    ig.reshape(f.input("t", shape=(4, 6)), 24)
    expr = f.tensors[-1].domain.exprs[0]
    keys = KeyList[str]()
    keys.enter([f"k{n}" for n in range(count)])
    builder = CongruenceClosure("random", keys, SignatureTable())
    entries, stated = list[Entry](), list[tuple[int, int]]()

    def grow(steps: int) -> None:
        for _ in range(steps):
            if random.random() < 0.5:
                form = random.randrange(len(SIDES))
                ins, outs = (tuple(random.randrange(count) for _ in range(n)) for n in SIDES[form])
                entries.append((form, ins, outs))
                builder.add_node(ExprSignature(expr, form, form, form, -1), ins, outs)
            else:
                stated.append((random.randrange(count), random.randrange(count)))
                builder.join(*stated[-1], ("access", None, None, 0, ()))
            if random.random() < 0.3:
                builder.rebuild()

    def check(of: CongruenceClosure[str]) -> None:
        of.rebuild()
        wanted = closed(count, entries, stated)
        first: dict[int, int] = {}
        assert [first.setdefault(of.sets.find(x), x) for x in range(count)] == wanted
        graph = of.build()
        assert [[keys.number(k) for k in g] for g in graph.groups] == [
            [x for x in range(count) if wanted[x] == n] for n in sorted(set(wanted))
        ]
        for x, y in zip(range(count), wanted, strict=True):
            assert graph.chain(keys.at(x), keys.at(y)).mapped  # every step has its reason

    grow(random.randrange(2 * count))
    check(builder)
    before = [builder.sets.find(x) for x in range(count)]
    alone, builder = builder, builder.fork("fork")
    grow(random.randrange(count))
    check(builder)
    assert [alone.sets.find(x) for x in range(count)] == before


NUMBERS = st.integers(0, (1 << 30) - 1)


@given(st.sampled_from(["congruence", "backward"]), NUMBERS, NUMBERS)
def test_reasons_of_equal_expressions_are_numbers(because: str, m: int, n: int) -> None:
    number = equal(because, m, n)  # pyright: ignore[reportArgumentType]
    assert 0 <= number < 1 << 62 and Reasons().why(number) == (because, m, n)


def test_reasons_by_number() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8,))
    e = ig.exp(t).definition
    assert e is not None
    reasons = Reasons()
    numbers = [
        reasons.tell(("inline", e, t, 0, ())),
        reasons.access(e, t),
        reasons.tell(("size one", None, None, 0, ())),
        reasons.access(e, e.output),
    ]
    assert len(set(numbers)) == 4
    told = [reasons.why(n) for n in numbers]
    assert told == [
        ("inline", e, t, 0, ()),
        ("access", e, t, -1, ()),
        ("size one", None, None, 0, ()),
        ("access", e, e.output, -1, ()),
    ]


def held(make: Callable[[], Group[Any]]) -> bool:
    """Whether the objects made are kept alive."""
    watched = weakref.ref(make())
    return watched() is not None


def test_a_graph_holds_no_group() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 4))
    f.output(ig.reshape(t, 32) + 1.0)
    m = ig.IdModel(f)
    check_holds_none(m.exact)
    check_holds_none(m.index)


def check_holds_none(g: GraphView[Any]) -> None:
    assert not held(lambda: g.groups[0])
    step = g.expr_groups[0]
    assert g.definitions(step.outputs[0]) == (step,) and g.uses(step.inputs[0]) == (step,)
    assert not held(lambda: step.inputs[0])
