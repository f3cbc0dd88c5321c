"""Reductions of a few columns that a cat or a pad puts together: one kernel, and the values of the reductions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig


def pixels(dtype: str, join: Callable[[ig.Tensor, ig.Tensor], ig.Tensor], keepdim: bool = False) -> ig.Fusion:
    """The largest of three channels, which lie innermost, and the spread of them."""
    f = ig.Fusion("pixels")
    x = ig.cast(ig.permute(f.input("x", (2, 6, 8, 3), dtype=dtype), (0, 3, 1, 2)), "float32") / 255.0
    high, low, mean = (r(x, (1,), keepdim) for r in (ig.amax, ig.amin, ig.sum))
    f.output(join(high, (high - low) / (mean + 1.0)))
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_cat_of_rows_is_one_kernel(dtype: str, keepdim: bool) -> None:
    f = pixels(dtype, lambda a, b: ig.cat([a, b], 1), keepdim)
    assert len(ig.emit(f, "cuda").kernels) == 1
    report = ig.validate(f, target="numpy")
    assert report.ok, str(report)


def test_what_is_written_as_it_is_stays_a_reduction() -> None:
    f = pixels("uint8", lambda a, b: a + b)
    assert {"amax", "amin", "sum"} <= {e.op for e in f.exprs}
    f = pixels("uint8", lambda a, b: ig.pad(a + b, (1, 1)))
    assert not {"amax", "amin", "sum"} & {e.op for e in f.exprs}
    report = ig.validate(f, target="numpy")
    assert report.ok, str(report)
