"""Different elements are counted without sorting where they lie close together: what sorting finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from idgraph.cost import memory_traffic as traffic


@given(st.lists(st.one_of(st.integers(-9, 40), st.integers(-(1 << 62), 1 << 62)), max_size=30), st.integers(-50, 50))
def test_different_values_are_those_that_sorting_finds(values: list[int], start: int) -> None:
    for given_values in (values, [start + v % 40 for v in values]):  # anywhere, and close together
        array = np.array(given_values, np.int64)
        found = traffic._unique(array)  # pyright: ignore[reportPrivateUsage]
        assert found.tolist() == sorted(set(given_values))
