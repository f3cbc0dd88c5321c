"""Views that an alias analysis must find, and those that it must not find: strides and offset in elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

import idgraph as ig
from idgraph.layout import Alias, NoAlias

Expected = tuple[tuple[object, ...], object] | None  # strides and offset; None: it is no view
Build = Callable[[ig.Fusion], ig.Tensor]


def x(f: ig.Fusion, *shape: int, strides: tuple[int, ...] | None = None) -> ig.Tensor:
    return f.input("x", shape, strides=strides)


def rows(f: ig.Fusion) -> ig.Tensor:
    return f.input("x", (f.symbol("n", min=1), 6))


def grouped_heads(f: ig.Fusion) -> ig.Tensor:
    return ig.reshape(ig.expand(ig.unsqueeze(x(f, 2, 4, 8), 2), 2, 4, 3, 8), 2, 12, 8)


def keys_of_packed_heads(f: ig.Fusion) -> ig.Tensor:
    return ig.select(ig.permute(ig.reshape(x(f, 2, 5, 96), 2, 5, 3, 4, 8), 2, 0, 3, 1, 4), 0, 1)


def thirds(f: ig.Fusion) -> ig.Tensor:
    a = x(f, 4, 9)
    return ig.cat([a[:, 0:3], a[:, 3:6], a[:, 6:9]], 1)


def windows(f: ig.Fusion) -> ig.Tensor:
    a = x(f, 10)
    return ig.stack([a[0:8], a[1:9], a[2:10]], 1)


def every_other(f: ig.Fusion) -> ig.Tensor:
    a = x(f, 4, 8)
    return ig.stack([ig.select(a, 0, k) for k in (0, 2)], 0)


def permuted_and_back(f: ig.Fusion) -> ig.Tensor:
    y = ig.permute(x(f, 2, 3, 4), 1, 0, 2)
    return ig.permute(ig.reshape(ig.reshape(y, 3, 8), 3, 2, 4), 1, 0, 2)


VIEWS: Mapping[str, tuple[Build, Expected]] = {
    "merged": (lambda f: ig.reshape(x(f, 2, 3, 4), 2, 12), ((12, 1), 0)),
    "merged and permuted": (lambda f: ig.permute(ig.reshape(x(f, 2, 3, 4), 6, 4), 1, 0), ((1, 4), 0)),
    "columns": (lambda f: x(f, 4, 8)[:, 2:6], ((8, 1), 2)),
    "columns permuted": (lambda f: ig.permute(x(f, 2, 4, 8)[:, :, 3:5], 2, 0, 1), ((1, 32, 8), 3)),
    "rows split behind a slice": (lambda f: ig.reshape(x(f, 2, 4, 8)[:, 1:3], 2, 2, 2, 4), ((32, 8, 4, 1), 8)),
    "columns merged with rows": (lambda f: ig.reshape(x(f, 2, 4, 8)[:, :, 1:3], 2, 8), None),
    "a batch flattened": (lambda f: ig.reshape(x(f, 2, 4, 8)[1:], 32), ((1,), 32)),
    "one element of any stride": (lambda f: ig.reshape(x(f, 1, 4, 8, strides=(999, 8, 1)), 4, 8), ((8, 1), 0)),
    "a broadcast axis split": (
        lambda f: ig.reshape(ig.expand(ig.unsqueeze(x(f, 4), 1), 4, 6), 4, 2, 3), ((1, 0, 0), 0)
    ),
    "equal axes merged": (lambda f: ig.reshape(ig.expand(ig.reshape(x(f, 4), 4, 1, 1), 4, 2, 3), 4, 6), ((1, 0), 0)),
    "an equal axis merged": (lambda f: ig.reshape(ig.expand(ig.reshape(x(f, 4), 4, 1), 4, 3), 12), None),
    "rows with gaps flattened": (lambda f: ig.reshape(x(f, 4, 8, strides=(16, 1)), 32), None),
    "rows with gaps split": (lambda f: ig.reshape(x(f, 4, 8, strides=(16, 1)), 2, 2, 2, 4), ((32, 16, 4, 1), 0)),
    "columns in memory merged": (lambda f: ig.reshape(ig.permute(x(f, 4, 8, strides=(1, 4)), 1, 0), 32), ((1,), 0)),
    "columns in memory merged by rows": (lambda f: ig.reshape(x(f, 4, 8, strides=(1, 4)), 32), None),
    "a row of each": (lambda f: ig.select(x(f, 4, 5, 8), 1, 3), ((40, 1), 24)),
    "every third": (lambda f: x(f, 4, 9)[:, 1::3], ((9, 3), 1)),
    "every second split": (lambda f: ig.reshape(x(f, 16)[1::2], 2, 4), ((8, 2), 1)),
    "padding that adds": (lambda f: ig.pad(x(f, 9), (1, 0)), None),
    "padding that takes away": (lambda f: ig.pad(x(f, 9), (-2, -1)), ((1,), 2)),
    "thirds put together": (thirds, ((9, 1), 0)),
    "windows side by side": (windows, ((1, 1), 0)),
    "every other row stacked": (every_other, ((16, 1), 0)),
    "other numbers": (lambda f: ig.cast(x(f, 9), "float16"), None),
    "rows of unknown number split": (lambda f: ig.reshape(a := rows(f), a.shape[0], 2, 3), ((6, 3, 1), 0)),
    "rows of unknown number flattened": (lambda f: ig.reshape(a := rows(f), a.shape[0] * 6), ((1,), 0)),
    "rolled and back": (lambda f: ig.roll(ig.roll(x(f, 8), 3, 0), -3, 0), ((1,), 0)),
    "one of equal rows": (lambda f: ig.select(ig.expand(ig.unsqueeze(x(f, 8), 0), 5, 8), 0, 3), ((1,), 0)),
    "repeated": (lambda f: ig.repeat(x(f, 8), 2), None),
    "heads of a group": (grouped_heads, None),
    "keys of packed heads": (keys_of_packed_heads, ((480, 8, 96, 1), 32)),
    "permuted and back": (permuted_and_back, ((12, 4, 1), 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_expected(name: str) -> None:
    build, expected = VIEWS[name]
    f = ig.Fusion("views")
    t = f.output(build(f))
    found = ig.layout.alias(f, t)
    if expected is None:
        assert isinstance(found, NoAlias)
        return
    assert isinstance(found, Alias), str(found)
    assert (found.of.name, *map(str, found.strides), str(found.offset)) == (
        "x",
        *map(str, expected[0]),
        str(expected[1]),
    )


def test_a_demanded_order_is_no_view() -> None:
    f = ig.Fusion("demand")
    y = f.output(ig.permute(x(f, 4, 8), 1, 0))
    y.set_allocation([y.logical[0], y.logical[1]])
    data = np.arange(32, dtype=np.float32).reshape(4, 8)
    out = ig.emit(f, "numpy", views=True).run({"x": data})[y.name]
    assert out.strides == (16, 4) and not np.shares_memory(out, data)
    np.testing.assert_array_equal(out, data.T)
