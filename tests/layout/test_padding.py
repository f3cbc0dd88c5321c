"""Padded strides: widths and sectors against counting them one by one."""

from __future__ import annotations

import random

import pytest

import idgraph as ig
from idgraph.layout import PaddedStrides


def _row(f: ig.Fusion, t: ig.Tensor) -> PaddedStrides:
    return next(r for r in ig.layout.pad_strides(f).rows if r.tensor is t)


def _asked(shape: tuple[int, ...], strides: tuple[int, ...], size: int, width: int) -> int:
    """Sectors by marking the bytes of every warp, one row after the other."""
    starts = [0]
    for n, stride in zip(shape[:-1], strides[:-1]):
        starts = [s + k * stride for s in starts for k in range(n)]
    total = 0
    for s in starts:
        for first in range(0, shape[-1], 32 * width):
            last = min(first + 32 * width, shape[-1])
            total += len({b // 32 for b in range((s + first) * size, (s + last) * size)})
    return total


def test_the_row_of_the_design() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(30, 50257), dtype="bfloat16"))
    f.output(t - ig.amax(t, 1, keepdim=True))
    row = _row(f, t)
    assert row.strides == (50304, 1) and f"{row.extra:.2%}" == "0.09%" and row.taken and not row.advice
    assert (row.width_before, row.width_after) == (1, 8)
    assert _row(f, f.inputs[0]).advice and _row(f, f.outputs[0]).advice


@pytest.mark.parametrize("seed", range(40))
def test_sectors_are_counted(seed: int) -> None:
    r = random.Random(seed)
    shape = (*(r.randrange(2, 9) for _ in range(r.randrange(1, 3))), r.randrange(5, 90))
    f = ig.Fusion("f")
    t = ig.copy(f.input("x", shape=shape, dtype=r.choice(("float32", "float16", "int8", "float64"))))
    f.output(ig.copy(t))
    size = {"float32": 4, "float16": 2, "int8": 1, "float64": 8}[t.dtype]
    for row in ig.layout.pad_strides(f, alignment=32, threshold=0).rows:
        if row.tensor is t:
            own = tuple(int(s) for s in ig.layout.dense_strides(t, tuple(range(len(shape)))))
            assert row.sectors_before == _asked(shape, own, size, row.width_before)
            assert row.sectors_after == _asked(shape, row.strides, size, row.width_after)
            assert row.taken == ((row.sectors_before - row.sectors_after) * 32 > row.extra_bytes)


def test_what_is_left_alone() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    a = ig.exp(f.input("a", shape=(4, 2001)))
    b = ig.exp(f.input("b", shape=(n, 2001)))
    c = ig.exp(f.input("c", shape=(4, 512)))
    f.output(ig.reshape(a, 8004), b, c)
    found = ig.layout.pad_strides(f)
    assert not {a, c} & {r.tensor for r in found.rows}
    told = dict(found.skipped)
    assert "reshape" in told[a] and "symbols" in told[b]
    with pytest.raises(ig.OperationError, match="power of two"):
        ig.layout.pad_strides(f, alignment=48)
