"""Masks of attention that shapes decide: which they are, and that all others stay."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
masks: Any = import_module("idgraph.frontends.graph_rewrites")
Mask = Callable[[Any], Any]
L = 6


def _rows(q: Any) -> tuple[Any, Any]:
    places = torch.arange(q.shape[-2])
    return places[:, None], places[None, :]


def _causal(q: Any) -> Any:
    row, column = _rows(q)
    return (column <= row)[None, None].expand(q.shape[0], -1, L, L)


def _packed(q: Any) -> Any:
    row, column = _rows(q)
    number = (torch.diff(torch.arange(L), prepend=torch.zeros(1, dtype=torch.int64)) > 1).cumsum(-1)
    return (row.new_ones((), dtype=torch.bool) & (column <= row)) & (number[row] == number[column])


def _added(q: Any) -> Any:
    row, column = _rows(q)
    return torch.where(column <= row, 0.0, torch.finfo(torch.float32).min)


def _all(q: Any) -> Any:
    return (_rows(q)[0] >= 0).expand(q.shape[0], 1, L, L)


def _first_column(q: Any) -> Any:
    return (_rows(q)[1] == 0).expand(L, L)


def _window(q: Any) -> Any:
    row, column = _rows(q)
    return (column <= row) & (column > row - 3)


def _ahead(q: Any) -> Any:
    row, column = _rows(q)
    return column >= row


def _changed(q: Any) -> Any:
    mask = torch.ones(L, L, dtype=torch.bool)
    mask[0, L - 1] = False
    return mask


def _written_later(q: Any) -> Any:
    row, column = _rows(q)
    mask = column <= row
    mask.logical_or_(column == 1)
    return mask


def _half(q: Any) -> Any:
    return torch.zeros(L, L) + 0.5


def _soft(q: Any) -> Any:
    row, column = _rows(q)
    return torch.where(column <= row, 0.0, -1.0)


def _drawn(q: Any) -> Any:
    return torch.rand(L, L) < 2


def _of_values(q: Any) -> Any:
    return (q[0, 0, :, :1] < 100).expand(L, L)


CASES: tuple[tuple[Mask, str | None], ...] = (
    (_causal, "causal"), (_packed, "causal"), (_added, "causal"), (_all, "all"), (_first_column, None),
    (_window, None), (_ahead, None), (_changed, None), (_written_later, None), (_half, None), (_soft, None),
    (_drawn, None),
    (_of_values, None),
)  # fmt: skip


def _attention(mask: Mask) -> Callable[[Any, Any, Any], Any]:
    def f(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(q), scale=0.5)

    return f


@pytest.mark.parametrize(("mask", "kind"), CASES, ids=[m.__name__.strip("_") for m, _ in CASES])
def test_masks_are_what_their_values_say(mask: Mask, kind: str | None) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, L, 8) for _ in range(3))
    found: list[Any] = []

    def backend(module: Any, examples: Any) -> Any:
        known = masks.with_constant_masks(module)
        found.append((module, known))
        return known.forward

    f = _attention(mask)
    torch.manual_seed(1)
    got = torch.compile(f, backend=backend)(q, k, v)
    torch.manual_seed(1)
    assert torch.allclose(got, f(q, k, v), atol=1e-6)
    ((module, known),) = found
    (node,) = [n for n in known.graph.nodes if "scaled_dot" in str(n.target)]
    if kind is None:
        assert known is module
    else:
        assert node.kwargs["attn_mask"] is None
        assert node.kwargs["is_causal"] == (kind == "causal")
        assert node.kwargs["scale"] == 0.5


def test_a_mask_that_is_written_by_a_function_in_place_stays() -> None:
    """`relu` in place by its third argument: the mask is not what its own operations say."""

    def f(q: Any, k: Any, v: Any) -> Any:
        bias = torch.arange(L)[:, None].expand(L, L) * 0.0 - 1.0
        mask = bias + 1.0
        torch.nn.functional.threshold(mask, 0.5, -2.0, True)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    torch._dynamo.reset()
    q, k, v = (torch.randn(2, 3, L, 8) for _ in range(3))
    found: list[bool] = []

    def backend(module: Any, examples: Any) -> Any:
        found.append(masks.with_constant_masks(module) is module)
        return module.forward

    torch.compile(f, backend=backend)(q, k, v)
    assert found == [True]


@pytest.mark.parametrize("mask", [_causal, _all, _window])
def test_gradients_through_attention(mask: Mask) -> None:
    import_module("idgraph.frontends.torch_compile")
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(2, 3, L, 8, requires_grad=True) for _ in range(3)]
    f = _attention(mask)
    wanted = torch.autograd.grad(f(*given).sin().sum(), given)
    got = torch.autograd.grad(torch.compile(f, backend="idgraph")(*given).sin().sum(), given)
    for a, b in zip(got, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
