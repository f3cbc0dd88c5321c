"""Numbers that `iota` counts up to a length that a call tells: right, or one error that names the tensor."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime.binding import has_distinct_elements

TARGETS: tuple[Literal["python", "numpy", "cpu"], ...] = ("python", "numpy", "cpu")


def counted(target: Literal["python", "numpy", "cpu"], start: int, step: int, length: int) -> list[int]:
    f = ig.Fusion("f")
    n = f.symbol("n", min=0)
    x = f.input("x", shape=(n,), dtype="int64")
    f.output(ig.iota(n, start, step) + x)
    found = ig.compile(f, target)(np.zeros(length, np.int64))
    return [int(v) for v in np.asarray(found)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("start", "step", "length"),
    [(2**63 - 3, 1, 5), (-(2**63), -1, 2), (0, 2**62, 3), (0, 2**62, 2), (2**63 - 1, -(2**62), 5)],
)
def test_a_number_beyond_64_bits_is_never_wrapped(
    target: Literal["python", "numpy", "cpu"], start: int, step: int, length: int
) -> None:
    right = [start + step * k for k in range(length)]
    try:
        assert counted(target, start, step, length) == right
    except ig.EmitError as error:
        assert "of t1 is beyond 64 bits where n = " in str(error)  # noqa: PT017 - either is right
    if not all(-(2**63) <= v < 2**63 for v in right):
        with pytest.raises(ig.EmitError, match="beyond 64 bits"):
            counted(target, start, step, length)


@pytest.mark.parametrize("target", TARGETS)
def test_far_numbers_that_fit_are_counted(target: Literal["python", "numpy", "cpu"]) -> None:
    assert counted(target, 2**62, -3, 4) == [2**62 - 3 * k for k in range(4)]
    assert counted(target, -(2**60), 2**40, 3) == [-(2**60), -(2**60) + 2**40, -(2**60) + 2**41]


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 6), (6, 1)), ((4, 6), (1, 4)), ((4, 6), (0, 1)), ((3, 3), (1, 1)), ((3, 2), (2, 3)), ((1, 5), (0, -2))],
)
def test_elements_are_apart_where_no_two_have_one_place(shape: tuple[int, int], strides: tuple[int, int]) -> None:
    """Against all places, counted; it may miss some that are apart."""
    places = {i * strides[0] + j * strides[1] for i in range(shape[0]) for j in range(shape[1])}
    right = len(places) == shape[0] * shape[1]
    assert has_distinct_elements(shape, strides) == right or (shape == (3, 2) and right)
