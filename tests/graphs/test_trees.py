"""Trees with running sums, where two of them meet, and long rings of rotations that are told in linear time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig
from idgraph.arith import as_expr
from idgraph.graphs.trees import Step, Sums, Tree, meetings, tree


def rings(draw: st.DrawFn) -> list[Step]:
    """A long ring with chords in both directions: strongly connected."""
    n = draw(st.integers(3, 120))
    chords = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12))
    pairs = [*((k, (k + 1) % n) for k in range(n)), *chords]
    return [Step(a, number, b) for number, (a, b) in enumerate(pairs)]


def one(step: Step) -> Sums:
    return Sums(1, 0, as_expr(step.node), step.node)


def trees_of(steps: list[Step], root: int) -> tuple[Tree, Tree]:
    leaving: dict[int, list[Step]] = {}
    entering: dict[int, list[Step]] = {}
    for s in steps:
        leaving.setdefault(s.source, []).append(s)
        entering.setdefault(s.to, []).append(s)
    return tree(root, leaving, True, one), tree(root, entering, False, one)


def up(t: Tree, g: int) -> list[int]:
    """The group and all between it and the root, the root last."""
    found = [g]
    while (above := t.parent(found[-1])) is not None:
        found.append(above)
    return found


@given(st.composite(rings)(), st.data())
def test_meetings_are_those_of_the_two_lists(steps: list[Step], data: st.DataObject) -> None:
    groups = sorted({s.source for s in steps})
    there, back = trees_of(steps, data.draw(st.sampled_from(groups)))
    asked = [(s.source, s.to) for s in steps]
    found = meetings(there, back, asked)
    for a, b in asked:
        on_the_way = set(up(there, a))
        assert found[a, b] == next(g for g in up(back, b) if g in on_the_way)


@given(st.composite(rings)())
def test_sums_are_those_of_the_steps(steps: list[Step]) -> None:
    there, back = trees_of(steps, 0)
    for t in (there, back):
        for g in t.up:
            way = [step for x in up(t, g) if (step := t.up[x]) is not None]
            assert t.sums[g].steps == len(way) and t.sums[g].offset == sum(s.node for s in way)


def ring(cuts: list[int], n: int = 64) -> tuple[ig.Fusion, ig.Tensor]:
    """x rotated again and again, and x itself added at the very end."""
    f = ig.Fusion("ring")
    x = t = f.input("x", shape=(n,))
    for cut in cuts:
        t = ig.cat([t[cut:], t[:cut]])
    f.output(x + t)
    return f, x


@given(st.lists(st.integers(1, 63), min_size=1, max_size=60))
def test_kinds_and_shifts_of_a_ring(cuts: list[int]) -> None:
    """Each way round takes one of the two slices of every rotation; the report has one more way than rotations."""
    f, _ = ring(cuts)
    cycles = ig.IdModel(f).exact.cycles()
    assert len(cycles) == len(cuts) + 1
    for c in cycles:
        adds = sum(int(str(e.attributes[1])) for e in c.exprs)
        assert len(c.exprs) == len(c.groups) == 2 * len(cuts) and c.shift == adds
        assert c.kind == ("shift" if adds else "identity") and str(c.net) in (f"c + {adds}", f"c - {-adds}", "c")
        assert (adds + sum(cuts)) % 64 == 0  # the whole of the rotations, whichever slices are taken


def test_a_long_ring_is_told_without_listing_its_ways() -> None:
    """600 rotations have 601 ways of 1200 steps each: kinds and shifts take the sums, nothing is listed."""
    f, x = ring([1 + k % 63 for k in range(600)])
    cycles = ig.IdModel(f).exact.cycles()
    assert len(cycles) == 601 and {c.kind for c in cycles} <= {"shift", "identity"}
    assert not any("_steps" in vars(c) for c in cycles)
    assert len(cycles[0].exprs) == 1200 and x in cycles[0].tensors
    assert cycles[0].closing is f.outputs[0].definition
