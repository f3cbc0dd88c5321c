"""L3: the index graph of a legally scheduled fusion has no index-changing cycle, whatever the exact graph has."""

from __future__ import annotations

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.testing import fusions, scheduled_fusions
from tests.property.budget import examples


@settings(max_examples=examples(500))
@given(scheduled_fusions())
def test_legal_schedules_have_no_shift(f: Fusion) -> None:
    """A schedule is refused, or its index graph has identities only."""
    note(str(f))
    m = ig.IdModel(f)
    try:
        cycles = m.index.cycles()
    except ig.ScheduleError:
        return
    assert [c for c in cycles if c.changes_index] == []


@settings(max_examples=examples(100))
@given(fusions())
def test_without_inlining_nothing_is_refused(f: Fusion) -> None:
    """No shared loop, no reason to refuse: every operation has a nest of its own."""
    note(str(f))
    ig.IdModel(f).verify()


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2))
def test_a_rotation_with_residual_is_a_shift_of_the_exact_graph_only(left: int, right: int, more: int) -> None:
    """t0 + cat(t0[k:], t0[:k]): the exact graph has the shift cycle, the index graph none."""
    f = ig.Fusion("f")
    t0 = f.input("t0", shape=(*(2 for _ in range(more)), left + right))
    cut = ig.slice(t0, -1, 0, left), ig.slice(t0, -1, left)
    f.output(t0 + ig.cat([cut[1], cut[0]], -1))
    m = ig.IdModel(f)
    assert {c.kind for c in m.exact.cycles()} == {"shift"}
    assert {str(c.shift) for c in m.exact.cycles()} == {str(-left), str(right)}
    assert all(c.kind == "identity" for c in m.index.cycles())
