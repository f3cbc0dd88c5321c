"""L5: each coarser graph keeps every mapping of the finer one; loops that inlining shares are permissively mapped."""

from __future__ import annotations

from hypothesis import given, note, settings

import idgraph as ig
from idgraph.graphs import DomainGraph
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples


def check_refines(fine: DomainGraph, coarse: DomainGraph) -> None:
    """Every mapping of ``fine`` is one of ``coarse``."""
    for group in fine.groups:
        first = group.keys[0]
        for d in group.keys[1:]:
            assert coarse.mapped(first, d), f"{coarse.name} lacks\n{fine.explain(first, d)}"


@settings(max_examples=examples(500))
@given(scheduled_fusions())
def test_each_graph_refines_the_next(f: Fusion) -> None:
    """Exact in almost exact; exact in broadcast in permissive in permissive resize; shared loops in permissive."""
    note(str(f))
    m = ig.IdModel(f)
    check_refines(m.exact, m.almost_exact)
    for fine, coarse in ((m.exact, m.broadcast), (m.broadcast, m.permissive), (m.permissive, m.permissive_resize)):
        check_refines(fine, coarse)
    try:
        loops = m.loop
    except ig.ScheduleError:
        return  # loops that no nest can share are not a loop graph
    check_refines(loops, m.permissive)


@settings(max_examples=examples(100))
@given(scheduled_fusions())
def test_almost_exact_keeps_the_axes_of_one_tensor_apart(f: Fusion) -> None:
    """Two axes of one root, logical or loop list are one group only where the exact graph has them in one."""
    note(str(f))
    m = ig.IdModel(f)
    for t in f.tensors:
        for axes in (t.root, t.logical, t.loop):
            for p, a in enumerate(axes):
                for b in axes[:p]:
                    assert m.exact.mapped(a, b) or not m.almost_exact.mapped(a, b), str(m.almost_exact.explain(a, b))
