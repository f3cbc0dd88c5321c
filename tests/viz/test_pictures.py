"""Contents of pictures: the marked cycle, caption, clusters, shared loops, coordinates, options and their errors."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

import idgraph as ig
from idgraph import viz
from tests.viz.cases import deep, resolved, rope, rotation


def test_the_first_cycle_that_changes_the_index_is_red() -> None:
    made = viz.picture(ig.IdModel(rotation()).exact)
    assert made.alarm[0] == "Shift cycle (+32): once around takes coordinate c to c + 32"
    assert any("t1 = t0[: n // 2]" in line for line in made.alarm)
    assert any("closed by" in line and "t4 = f.output(t0 + t3)" in line for line in made.alarm)
    red = [n.key for n in made.nodes if n.marked]
    assert len(red) == 4
    ring = {(e.tail, e.head) for e in made.edges if e.marked}
    assert {a for a, _ in ring} == {b for _, b in ring} == set(red)


def test_nothing_is_red_where_nothing_is_wrong() -> None:
    f = ig.Fusion("f")
    t = f.input("t", (64,))
    f.output(ig.cat([t[:32], t[32:]]) + t)
    made = viz.picture(ig.IdModel(f).exact)
    assert ig.IdModel(f).exact.is_cyclic
    assert not made.alarm
    assert not any(n.marked for n in made.nodes)
    cycle = ig.IdModel(f).exact.cycles()[0]
    assert viz.picture(ig.IdModel(f).exact, highlight=cycle).alarm[0].startswith("Identity cycle")


def test_another_cycle_or_none_can_be_marked() -> None:
    g = ig.IdModel(rotation()).exact
    assert "(-32)" in viz.picture(g, highlight=g.cycles()[1]).alarm[0]
    assert viz.picture(g, highlight=None).alarm == ()


def test_explanation_marks_the_chain_across_tensors() -> None:
    f = rotation()
    g = ig.IdModel(f).exact
    made = viz.picture(g, highlight=g.explain(f["t0"].logical[0], f["t3"].logical[0]))
    red = {(e.tail, e.head) for e in made.edges if e.marked}
    assert red == {("axis t0.I0", "axis t4.I9"), ("axis t3.I6", "axis t4.I9")}
    assert made.alarm[0] == "The same, because:"


def test_index_graph_has_a_frame_for_each_operation_and_its_coordinates() -> None:
    f = rotation()
    made = viz.picture(ig.IdModel(f).index)
    assert [c.key for c in made.clusters] == [f"operation {t}" for t in ("t1", "t2", "t3", "t4")]
    heads = {(n.cluster, n.lines[0].text) for n in made.nodes if n.shape == "box"}
    assert {("operation t1", "i0 - 32"), ("operation t2", "i0 + 32"), ("operation t4", "loop i0")} <= heads
    shared = [e for e in made.edges if e.link]
    assert shared
    assert all("inlined" in e.title or "equal" in e.title or "reads" in e.title for e in shared)
    fill = {n.cluster: n.fill for n in made.nodes if n.lines[0].text == "loop i0"}
    assert len(fill) == 4
    assert len(set(fill.values())) == 1


def test_operations_that_share_no_loop_are_joined_by_an_arrow_of_frames() -> None:
    made = viz.picture(ig.IdModel(rotation(scheduled=False)).index)
    assert ("operation t3", "operation t4") in {(e.tail, e.head) for e in made.edges}
    assert 'ltail="cluster operation t3"' in viz.to_dot(ig.IdModel(rotation(scheduled=False)).index)


def test_coordinates_are_left_out_where_the_inlining_has_changed_since() -> None:
    f = rotation()
    g = ig.IdModel(f).index
    f["t3"].inline(0)
    assert not any(n.lines[0].text == "i0 - 32" for n in viz.picture(g).nodes)


def test_graphs_older_than_their_schedule_are_refused() -> None:
    f = rotation()
    m = ig.IdModel(f)
    exact, index = m.exact, m.index
    f["t4"].split(0, 8)
    for what, options in ((index, {}), (exact, {"by": "tensor"})):
        with pytest.raises(ig.IndexingError, match="is not in the"):
            viz.picture(what, **options)


def test_promoted_loops_are_drawn() -> None:
    text = viz.to_dot(ig.IdModel(resolved()).index)
    assert "a promoted loop" in text
    assert "loop i1" in text
    made = viz.picture(ig.IdModel(resolved()).index)
    assert all(n.lines[0].style == "head" for n in made.nodes if n.shape == "box"), "a box without its coordinate"


def test_cycle_alone_tells_the_coordinate_at_every_stop() -> None:
    shift = ig.IdModel(rotation()).exact.cycles()[1]
    made = viz.picture(shift)
    assert made.ring
    assert [n.lines[0].text for n in made.nodes if n.shape == "box"] == ["coordinate c", "coordinate c - 32"]
    assert made.nodes[0].lines[-1].text == "after one round: c - 32"


def test_explanation_alone() -> None:
    f = rotation()
    g = ig.IdModel(f).exact
    yes = viz.picture(g.explain(f["t0"].logical[0], f["t3"].logical[0]))
    assert [n.key for n in yes.nodes] == ["key 0", "fact 0", "key 1", "fact 1", "key 2"]
    no = viz.picture(g.explain(f["t0"].logical[0], f["t1"].logical[0]))
    assert len(no.nodes) == 1
    assert "not" in no.title


def test_large_pictures_are_collapsed_unless_asked() -> None:
    f = deep()
    small, full = viz.picture(f), viz.picture(f, collapse=False)
    assert len(f.tensors) > 200
    assert len(full.nodes) == len(f.tensors)
    boxes = [n for n in small.nodes if not n.dashed]
    assert len(boxes) < len(f.tensors)
    assert any("5 operations" in n.lines[0].text for n in boxes)
    assert max(n.column for n in small.nodes) > 2
    g = ig.IdModel(f).exact
    assert {n.key for n in viz.picture(g, by="tensor").nodes} >= {f"tensor {t.name}" for t in f.tensors}
    assert len(viz.picture(ig.IdModel(f).index).clusters) == 0
    assert len(viz.picture(ig.IdModel(rope()).index, collapse=True).nodes) == len(rope().exprs)


def test_collapsing_never_closes_a_cycle() -> None:
    # An arrow that was cut starts at a tag "producer for consumer".
    ends = [(e.tail.split(" for ")[0], e.head) for e in viz.picture(deep()).edges]
    made: nx.DiGraph[str] = nx.DiGraph(ends)
    assert nx.is_directed_acyclic_graph(made)


def test_methods_of_fusions_and_graphs_draw() -> None:
    f = rotation()
    m = ig.IdModel(f)
    assert f.to_dot() == viz.to_dot(f)
    assert f.to_svg(title="x").startswith("<svg")
    assert m.exact.to_dot(by="tensor") == viz.to_dot(m.exact, by="tensor")
    assert m.index.to_svg() == viz.draw(m.index, "svg")


def test_files(tmp_path: Path) -> None:
    f = rotation()
    assert viz.write(f, tmp_path / "a.svg").read_text(encoding="utf-8") == viz.to_svg(f)
    assert viz.write(f, tmp_path / "a.dot").read_text(encoding="utf-8") == viz.to_dot(f)
    with pytest.raises(ig.IdGraphError, match="neither"):
        viz.write(f, tmp_path / "a.png")


def test_errors_say_what_can_be_drawn() -> None:
    f = rotation()
    g = ig.IdModel(f).exact
    for bad, match in (
        ({"colour": 1}, "no option 'colour'"),
        ({"by": "axis"}, "by group or by tensor"),
        ({"highlight": 3}, "cannot mark a int"),
        ({"title": 3}, "is text"),
    ):
        with pytest.raises(ig.IdGraphError, match=match):
            viz.picture(g, **bad)
    with pytest.raises(ig.IdGraphError, match="no picture of a Tensor"):
        viz.to_svg(f["t0"])
    with pytest.raises(ig.IdGraphError, match="svg or dot"):
        viz.draw(f, "png")


def test_graphviz_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ig.IdGraphError, match="not installed"):
        viz.graphviz_svg(rotation())


def test_a_tensor_named_like_a_tag() -> None:
    f = ig.Fusion("f")
    x = first = f.input("x", (8,))
    for n in range(70):
        x = ig.pad(x, (1, 0), name="x for y" if n == 5 else None)
    y = ig.pad(x, (0, 0), name="y")
    f.output(y[:8] + first)
    keys = [n.key for n in viz.picture(f).nodes]
    assert len(keys) == len(set(keys))
