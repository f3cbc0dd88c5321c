"""Where the aligned graph looks with coordinates: only where two ways join groups; and with formulas only if numbers
do not refute a union."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.graphs import alignment_builder as aligning
from idgraph.graphs.alignment_builder import two_core
from idgraph.graphs.coordinate_propagation import CoordinatePropagator
from idgraph.graphs.cycle_kind import PointPropagation
from idgraph.graphs.flow_graph import ValGraphDigraph


def _formulas(monkeypatch: pytest.MonkeyPatch, f: ig.Fusion) -> tuple[int, int]:
    """How often a coordinate is carried as a formula while unions are judged, and how many unions are left out."""
    made: list[object] = []
    formulas, judged = CoordinatePropagator._formulas, aligning.follow  # pyright: ignore[reportPrivateUsage]
    judging = False

    def counted(self: CoordinatePropagator, *args: object) -> object:
        if judging:
            made.append(args)
        return formulas(self, *args)  # pyright: ignore[reportArgumentType]

    def watched(*args: object, **options: object) -> object:
        nonlocal judging
        judging = True
        return judged(*args, **options)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(CoordinatePropagator, "_formulas", counted)
        patch.setattr(aligning, "follow", watched)
        left_out = len(ig.IdModel(f).aligned.left_out)
    return len(made), left_out


def test_a_reshape_there_and_back_beside_a_rotation_needs_no_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 8, 16))
    there = ig.reshape(ig.reshape(a, 32, 16), (4, 8, 16)) + a  # a ring of merge and split: right by construction
    rotated = ig.cat([there[..., 5:], there[..., :5]], dim=-1)
    f.output(ig.reshape(ig.reshape(rotated, 4, 128), (4, 8, 16)) * a)
    formulas, left_out = _formulas(monkeypatch, f)
    assert left_out > 0 and formulas == 0


def test_rings_of_two_relations_are_looked_at_with_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6))
    b = ig.reshape(ig.reshape(ig.reshape(a, 2, 2, 6), (2, 12)), (4, 6)) + a  # by other parts: identity only by algebra
    f.output(b + ig.roll(b, 1, 1))
    formulas, left_out = _formulas(monkeypatch, f)
    assert left_out == 1 and formulas > 0


@pytest.mark.parametrize(("by", "tree"), [((1, -1), False), ((0, 0), True)])
def test_a_slice_put_back_is_one_relation_only_where_it_was(by: tuple[int, int], tree: bool) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(9,))
    f.output(ig.pad(ig.slice(a, 0, 2, 7), (2 + by[0], 2 + by[1])) + a)
    net = ValGraphDigraph(ig.IdModel(f).exact.graph)
    groups = {g for n in net.equal for g in (*net.ins(n), *net.outs(n))}

    def relation(n: int) -> object:
        (x,), (y,), e = net.ins(n), net.outs(n), net.expr(n)
        amount = int(e.left)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        return (x, y, amount) if x < y else (y, x, -amount)

    found = two_core(net, groups, relation)  # pyright: ignore[reportArgumentType]
    assert (found == set()) is tree
    assert PointPropagation(net).some_come_back_other(groups) is not tree


def test_points_ask_nothing_of_axes_that_may_follow_from_others() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6))
    f.output(ig.reshape(ig.reshape(a, 2, 12), (4, 6)) + a)
    net = ValGraphDigraph(ig.IdModel(f).exact.graph)
    groups = {g for n in net.equal for g in (*net.ins(n), *net.outs(n))}
    assert not PointPropagation(net).some_come_back_other(groups)
