"""Random fusions on a GPU: the values of what `schedule.auto` makes are those of the definition, element by element."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.testing import fusions
from idgraph.validate import check_values
from tests.property.budget import examples

MOST = 1 << 19  # elements of an input


@st.composite
def moved(draw: st.DrawFn) -> ig.Fusion:
    """Large arrays whose axes change places, are cut, padded, turned and joined: tiles, vectors, tails and guards."""
    f = ig.Fusion("f")
    kinds = ("bfloat16", "float16", "float32", "uint8", "int32", "float64")
    shape, room = list[int](), MOST
    for _ in range(draw(st.integers(2, 4))):
        shape.append(draw(st.integers(1, max(1, min(700, room)))))
        room //= shape[-1]
    x = y = f.input("x", shape=shape, dtype=draw(st.sampled_from(kinds)))
    for _ in range(draw(st.integers(1, 4))):
        sizes = [int(n) for n in y.shape]
        d = draw(st.integers(0, y.ndim - 1))
        match draw(
            st.sampled_from(("permute", "permute", "permute", "slice", "pad", "roll", "flip", "merge", "add", "cat"))
        ):
            case "permute":
                y = ig.permute(y, draw(st.permutations(range(y.ndim))))
            case "slice":
                begin = draw(st.integers(0, sizes[d] - 1))
                y = ig.slice(y, d, begin, draw(st.integers(begin + 1, sizes[d])))
            case "pad":
                y = ig.pad(y, [0] * 2 * (y.ndim - 1 - d) + [draw(st.integers(0, 9)), draw(st.integers(0, 9))])
            case "roll":
                y = ig.roll(y, draw(st.integers(0, sizes[d])), d)
            case "flip":
                y = ig.flip(y, d)
            case "merge" if y.ndim > 2:
                y = ig.reshape(y, (prod(sizes[:2]), *sizes[2:]))
            case "cat" if prod(sizes) < MOST:
                y = ig.cat([y, ig.flip(y, d)], d)
            case _:
                y = y + y
    f.output(y if y is not x else x + x)
    if draw(st.booleans()) and y is not x:
        f.output(x + x)
    return f


def right(f: ig.Fusion) -> None:
    """Scheduled, emitted, run and compared."""
    note(str(f))
    ig.schedule.auto(f, layout=False)  # outputs in logical order, so that axes change places
    values = check_values(f, "cuda")
    assert values.ok, str(values.mismatch)


@pytest.mark.gpu
@settings(max_examples=examples(20), deadline=None)
@given(fusions(max_steps=6, rows=0) | fusions(max_steps=6, rows=1000))
def test_values_of_random_fusions(f: ig.Fusion) -> None:
    right(f)


@pytest.mark.gpu
@settings(max_examples=examples(20), deadline=None)
@given(moved())
def test_values_of_moved_arrays(f: ig.Fusion) -> None:
    right(f)
