"""Element numbers that operations read, against torch and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import idgraph as ig
from idgraph.ir.op_table import apply
from idgraph.validate.oracle import optional, reads


def fusion(*shapes: tuple[int, ...], dtype: str = "float32") -> list[ig.Tensor]:
    """Inputs x0, x1, ... of one fusion."""
    f = ig.Fusion("f")
    return [f.input(f"x{k}", shape=s, dtype=dtype) for k, s in enumerate(shapes)]


def of(t: ig.Tensor, k: int = 0, **values: Any) -> np.ndarray[Any, Any]:
    """The elements of its operand k that the definition of ``t`` reads."""
    assert t.definition is not None
    return reads(t.definition, k, {n: np.asarray(v) for n, v in values.items()})


MOVES: list[tuple[str, Callable[[ig.Tensor], ig.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = [
    ("slice", lambda x: x[1:5:2, 3:], lambda x: x[1:5:2, 3:]),
    ("select", lambda x: ig.select(x, 0, 4), lambda x: x[4]),
    ("permute", lambda x: ig.permute(x, 1, 0), lambda x: x.T),
    ("reshape", lambda x: ig.reshape(x, 4, 12), lambda x: x.reshape(4, 12)),
    ("flip", lambda x: ig.flip(x, 1), lambda x: x.flip(1)),
    ("roll", lambda x: ig.roll(x, 3, 0), lambda x: x.roll(3, 0)),
    ("pad", lambda x: ig.pad(x, (2, -1, -1, 1)), lambda x: torch.nn.functional.pad(x, (2, -1, -1, 1), value=-1)),
    ("unsqueeze", lambda x: ig.unsqueeze(x, 1), lambda x: x[:, None]),
    ("expand", lambda x: ig.expand(x, 2, -1, -1), lambda x: x.expand(2, -1, -1)),
    ("pointwise", lambda x: x * 2.0, lambda x: x),
    ("sum", lambda x: ig.sum(x, 0), lambda x: x),
    ("sum, axis kept", lambda x: ig.sum(x, 0, keepdim=True), lambda x: x[:, None]),
]


@pytest.mark.parametrize("case", MOVES, ids=lambda c: c[0])
def test_one_operand(
    case: tuple[str, Callable[[ig.Tensor], ig.Tensor], Callable[[torch.Tensor], torch.Tensor]],
) -> None:
    """torch moves the element numbers."""
    _, build, reference = case
    (x,) = fusion((6, 8))
    want = reference(torch.arange(48).reshape(6, 8))
    np.testing.assert_array_equal(of(build(x)), want.numpy())


def test_broadcast_operands() -> None:
    """A broadcast operand is read at the same element again and again."""
    a, b = fusion((3, 1), (4,))
    t = a + b
    assert of(t, 0).tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert of(t, 1).tolist() == [[0, 1, 2, 3]] * 3


def test_cat_reads_each_part_once() -> None:
    """Every point of a cat reads exactly one operand, also when one tensor stands there twice."""
    (a,) = fusion((2, 3))
    t = ig.cat([a, a, a[:, :1]], 1)
    assert of(t, 0).tolist() == [[0, 1, 2, -1, -1, -1, -1], [3, 4, 5, -1, -1, -1, -1]]
    assert of(t, 1).tolist() == [[-1, -1, -1, 0, 1, 2, -1], [-1, -1, -1, 3, 4, 5, -1]]
    assert of(t, 2).tolist() == [[-1] * 6 + [0], [-1] * 6 + [1]]


def test_slice_scatter() -> None:
    """The source where it replaces, the operand elsewhere; reading the replaced part is harmless."""
    x, s = fusion((6,), (2,))
    t = ig.slice_scatter(x, s, 0, 1, 5, 2)
    assert of(t, 0).tolist() == [0, -1, 2, -1, 4, 5]
    assert of(t, 1).tolist() == [-1, 0, -1, 1, -1, -1]
    assert t.definition is not None
    free = optional(t.definition, 0)
    assert free is not None
    assert free.tolist() == [-1, 1, -1, 3, -1, -1]


def test_matmul_has_its_contracted_axis() -> None:
    """One read of each operand at each (row, column, k)."""
    a, b = fusion((2, 3), (3, 4))
    t = ig.matmul(a, b)
    assert [d.kind for d in t.logical] == ["iteration", "iteration", "reduction"]
    assert of(t, 0)[1, 2].tolist() == [3, 4, 5]
    assert of(t, 1)[1, 2].tolist() == [2, 6, 10]


def test_indexed_operands() -> None:
    """The gathered operand at the index's values; the index at its own place."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 3))
    i = f.input("i", shape=(2, 3), dtype="int64")
    ids = f.input("ids", shape=(2,), dtype="int64")
    value = [[3, 0, 1], [2, 2, 0]]
    assert of(ig.gather(x, 0, i), 0, i=value).tolist() == [[9, 1, 5], [6, 7, 2]]
    assert of(ig.gather(x, 0, i), 1).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert of(ig.embedding(ids, x), 1, ids=[3, 1]).tolist() == [[9, 10, 11], [3, 4, 5]]
    assert of(ig.embedding(ids, x), 0).tolist() == [[0] * 3, [1] * 3]
    assert of(ig.index_select(x, 1, ids), 0, ids=[2, 0]).tolist() == [[2, 0], [5, 3], [8, 6], [11, 9]]
    assert of(ig.index_select(x, 1, ids), 1).tolist() == [[0, 1]] * 4
    pair = apply(f, "index", (x, ids, ids), {"dims": (0, 1)})
    assert of(pair, 0, ids=[2, 1]).tolist() == [8, 4]


def test_views_stay_views() -> None:
    """A real contraction is not written out: its reads are a strided view."""
    a, b = fusion((512, 512), (512, 512))
    found = of(ig.matmul(a, b))
    assert found.shape == (512, 512, 512)
    assert found.base is not None
    assert 0 in found.strides


def test_an_index_of_no_axes() -> None:
    """One element of an axis, by a number: what is left has no axes either."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4,)), f.input("i", shape=(), dtype="int64")
    f.output(ig.index_get(x, (i,)), ig.index_put(x, (i,), 2.0))
    assert ig.validate(f, target="numpy").ok
