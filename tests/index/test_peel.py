"""The peel that a width offers, counted at every point: whole aligned vectors, and what is left."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir import DType


@pytest.mark.parametrize("n", [4, 7, 16, 101, 1003])
@pytest.mark.parametrize("start", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_counted(n: int, start: int, dtype: DType) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(n + start,), dtype=dtype)
    f.output(a[start:] + 1.0)
    why = ig.IdModel(f).access(a.uses[0], a).explain_vector_width("i0")
    width = 4 if dtype == "float32" else 8
    whole = list(range(-(-start // width) * width, start + n - width + 1, width))
    if why or not whole:
        assert why.peel is None
        return
    p = why.peel
    assert p is not None and p.head is not None and p.tail is not None
    assert (p.width, p.head, p.vectors) == (width, whole[0] - start, len(whole))
    assert p.head + p.vectors * p.width + p.tail == n
    assert str(p) in str(why)


def test_rows_that_begin_anywhere() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(30, 101))
    f.output(a + 1.0)
    read = ig.IdModel(f).access(a.uses[0], a)
    p = read.explain_vector_width("i1").peel
    assert p is not None and (p.head, p.vectors, p.tail) == (None, 24, None)
    rows = [[k for k in range(r * 101, r * 101 + 98) if k % 4 == 0] for r in range(30)]
    assert p.vectors == min(len(row) for row in rows)


def test_what_is_not_peeled() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(30, 101), strides=(1, 30))
    b = f.input("b", shape=(101,), alignment=4)
    f.output(a + b)
    m = ig.IdModel(f)
    assert m.access(a.uses[0], a).explain_vector_width("i1").peel is None  # a step of 30
    assert m.access(b.uses[0], b).explain_vector_width("i1").peel is None  # where it begins is not known
