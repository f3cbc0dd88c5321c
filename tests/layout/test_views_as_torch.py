"""Views that expand, cut, merge and split: an alias where torch has a view, with its strides; and orders in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")

View = Callable[[Any], Any]


def rows(x: Any, at: int, *shape: int) -> Any:
    """A new axis at ``at``, expanded; of a tensor of either library."""
    if isinstance(x, ig.Tensor):
        return ig.expand(ig.unsqueeze(x, at), *shape)
    return x.unsqueeze(at).expand(*shape)


def shaped(x: Any, *shape: int) -> Any:
    return ig.reshape(x, *shape) if isinstance(x, ig.Tensor) else x.view(*shape)


def turned(x: Any, *order: int) -> Any:
    return ig.permute(x, *order) if isinstance(x, ig.Tensor) else x.permute(*order)


# Shape, strides (None: dense), the view; torch's `view` says whether there is one.
VIEWS: Mapping[str, tuple[Sequence[int], Sequence[int] | None, View]] = {
    "merged beside the expanded axis": ((4, 5), None, lambda x: shaped(rows(x, 2, 4, 5, 6), 20, 6)),
    "merged with the expanded axis": ((4, 5), None, lambda x: shaped(rows(x, 2, 4, 5, 6), 4, 30)),
    "expanded axis split and merged": ((4, 5), None, lambda x: shaped(rows(x, 2, 4, 5, 6), 40, 3)),
    "expanded axis split": ((4, 5), None, lambda x: shaped(rows(x, 2, 4, 5, 6), 4, 5, 2, 3)),
    "merged under the expanded axis": ((4, 5), None, lambda x: shaped(rows(x, 0, 3, 4, 5), 3, 20)),
    "expanded axis outside merged": ((4, 5), None, lambda x: shaped(rows(x, 0, 3, 4, 5), 12, 5)),
    "rows cut, the rest merged": ((6, 5, 4), None, lambda x: shaped(x[1:3], 2, 20)),
    "middle cut, merged inside": ((6, 5, 4), None, lambda x: shaped(x[:, 1:3], 6, 8)),
    "middle cut, merged outside": ((6, 5, 4), None, lambda x: shaped(x[:, 1:3], 12, 4)),
    "one of the middle, merged": ((6, 5, 4), None, lambda x: shaped(x[:, 2:3], 6, 4)),
    "an axis of one merged": ((6, 1, 4), None, lambda x: shaped(x[2:5], 12)),
    "heads of the second third": ((4, 24), None, lambda x: turned(shaped(x[:, 8:16], 4, 2, 4), 1, 0, 2)),
    "padded rows merged": ((4, 5), (8, 1), lambda x: shaped(x, 20)),
    "padded rows split": ((4, 6), (8, 1), lambda x: shaped(x, 4, 2, 3)),
    "columns merged": ((4, 5), (1, 4), lambda x: shaped(turned(x, 1, 0), 20)),
    "channels last, pixels merged": ((2, 3, 4, 5), (60, 1, 15, 3), lambda x: shaped(x, 2, 3, 20)),
    "channels last, rows merged": ((2, 3, 4, 5), (60, 1, 15, 3), lambda x: shaped(x, 2, 12, 5)),
    "cuts of cuts": ((9, 8), None, lambda x: x[1:8][2:5][:, 1:7:2]),
    "heads in front merged": ((4, 6), None, lambda x: shaped(turned(shaped(x, 4, 2, 3), 1, 0, 2), 8, 3)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_an_alias_is_torchs_view(name: str) -> None:
    shape, strides, view = VIEWS[name]
    f = ig.Fusion("f")
    t = view(f.input("x", shape=shape) if strides is None else f.input("x", shape=shape, strides=strides))
    count = (
        int(np.prod(shape)) if strides is None else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    )
    base = torch.arange(float(count))
    base = base.view(*shape) if strides is None else torch.as_strided(base, shape, strides)
    found = ig.layout.alias(f, t)
    try:
        meant = view(base)
    except RuntimeError:
        assert isinstance(found, ig.layout.NoAlias)
        return
    assert isinstance(found, ig.layout.Alias), found
    assert int(found.offset) == meant.storage_offset()
    wide = [k for k, n in enumerate(meant.shape) if n != 1]
    assert [int(found.strides[k]) for k in wide] == [meant.stride(k) for k in wide]


def image(f: ig.Fusion, name: str = "a") -> ig.Tensor:
    """[N, C, H, W], channels innermost in memory."""
    return f.input(name, shape=(2, 3, 4, 5), strides=(60, 1, 15, 3))


ORDERS: Mapping[str, tuple[Callable[[ig.Fusion], ig.Tensor], tuple[int, ...]]] = {
    "of one operand": (lambda f: ig.exp(image(f)), (0, 2, 3, 1)),
    "with a number": (lambda f: image(f) * f.input("s", shape=()), (0, 2, 3, 1)),
    "with a channel's number": (lambda f: image(f) + f.input("b", shape=(3, 1, 1)), (0, 2, 3, 1)),
    "summed over pixels": (lambda f: ig.sum(image(f), (2, 3)), (0, 1)),
    "summed over channels": (lambda f: ig.sum(image(f), 1), (0, 1, 2)),
    "one axis more": (lambda f: ig.copy(ig.unsqueeze(image(f), 0)), (0, 1, 3, 4, 2)),
    "permuted": (lambda f: ig.exp(ig.permute(f.input("a", shape=(3, 4, 5)), 2, 0, 1)), (1, 2, 0)),
    "padded": (lambda f: ig.pad(image(f), (1, 1)), (0, 2, 3, 1)),
    "joined": (lambda f: ig.cat([image(f), image(f, "b")], dim=1), (0, 2, 3, 1)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_in_memory_is_the_operands(name: str) -> None:
    build, order = ORDERS[name]
    f = ig.Fusion("f")
    t = f.output(build(f))
    assert ig.layout.infer(f)[t].order == order
