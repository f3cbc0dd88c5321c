"""Elements side by side that go to several vectors (pixels to channels): a thread reads a run of them, as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import idgraph as ig
from tests.emit.test_launch_shapes import judge

ORDERS = ((0, 1, 3, 5, 2, 4), (0, 3, 5, 1, 2, 4), (0, 1, 5, 3, 2, 4))


def dealt(n: int, order: tuple[int, ...], dtype: Any, width: int = 64, scale: float = 1.0) -> ig.Fusion:
    """``n`` x ``n`` pixels to channels, in an order of the parts, from a picture ``n * width`` wide."""
    f = ig.Fusion("dealt")
    x = f.input("x", (2, 3, 2 * n, width * n), dtype)
    parts = ig.permute(ig.reshape(x, 2, 3, 2, n, width, n), order)
    flat = ig.reshape(parts * scale if scale != 1.0 else parts, 2, 3 * n * n, 2, width)
    f.output(ig.copy(flat))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("n", "dtype"), [(2, "bfloat16"), (2, "float32"), (4, "float16"), (3, "float32")])
def test_neighbours_ask_for_few_sectors(n: int, dtype: Any, order: tuple[int, ...]) -> None:
    """Of no order of threads are both sides side by side; what warps ask for is at most half as much again."""
    f = dealt(n, order, dtype)
    ig.schedule.auto(f)
    (k,) = ig.cost(ig.emit(f, "cuda"), "H200").kernels
    assert 32 * k.sectors <= 1.5 * (k.bytes_read + k.bytes_written)


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cpu", "numpy"])
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_values(scale: float, target: Any) -> None:
    for order in ORDERS:
        f = dealt(2, order, "float32", scale=scale)
        ig.schedule.auto(f)
        a = np.arange(2 * 3 * 4 * 128, dtype=np.float32).reshape(2, 3, 4, 128)
        want = a.reshape(2, 3, 2, 2, 64, 2).transpose(order).reshape(2, 12, 2, 64) * scale
        assert np.array_equal(ig.emit(f, target).run({"x": a})[f.outputs[0].name], want)


@pytest.mark.parametrize(("n", "width"), [(2, 63), (5, 64), (1, 64)])
def test_other_widths_keep_their_loops(n: int, width: int) -> None:
    """Rows that no vector divides, runs of more than four, and pictures that stay as they are."""
    f = dealt(n, ORDERS[0], "float32", width=width)
    judge(f)
    assert all(d.parallel != "unroll" for d in f.outputs[0].loop)


def test_a_copy_of_a_reshape_is_a_reshape_unless_it_is_laid_out() -> None:
    f = dealt(2, ORDERS[0], "float32")
    ig.schedule.auto(f)
    assert [e.op for e in f.exprs].count("reshape") == 2 and f.outputs[0].definition.op == "reshape"  # type: ignore[union-attr]
