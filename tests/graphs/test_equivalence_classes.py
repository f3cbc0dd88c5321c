"""Classes of anything that can be a key: which representative stays, and order, beside plain sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from idgraph.graphs.union_find import EquivalenceClasses

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20)


@given(PAIRS)
def test_classes_are_those_of_plain_sets(pairs: list[tuple[int, int]]) -> None:
    found, sets = EquivalenceClasses[int](), [{n} for n in range(10)]
    for a, b in pairs:
        stays = found.find(b)
        found.union(a, into=b)
        assert found.find(a) == found.find(b) == stays
        one = next(s for s in sets if a in s) | next(s for s in sets if b in s)
        sets = [*(s for s in sets if not s & one), one]
    groups = found.groups(range(10))
    assert sorted(map(sorted, groups)) == sorted(map(sorted, sets))
    assert all(g == sorted(g) for g in groups) and [g[0] for g in groups] == sorted(g[0] for g in groups)
