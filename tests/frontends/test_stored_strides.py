"""What kernels store for other kernels is read as it lies: never laid out again at each call."""

# torch is untyped here:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


def expanded(x: Any, w: Any) -> Any:
    mask = (x[:1] > 0).expand(4, -1)  # rows that share memory in torch
    return torch.mm(x, w).where(mask, -x)


def expanded_twice(x: Any, w: Any) -> Any:
    column = torch.exp(x[:, :1]).expand(-1, 8)
    return torch.mm(torch.mm(x, w) * column, w) + column


def part(x: Any, w: Any) -> Any:
    right = torch.sin(x)[:, 1:]  # rows with a gap in torch
    return torch.mm(x, w)[:, 1:] * right


def steps(x: Any, w: Any) -> Any:
    even = torch.sin(x)[:, ::2]
    return torch.mm(x, w)[:, ::2] * even


def turned(x: Any, w: Any) -> Any:
    across = torch.sin(x).t().flip(0)
    return torch.mm(x, w) + across.t()


def diagonal(x: Any, w: Any) -> Any:
    return torch.mm(x, w).diagonal() * torch.cos(x).diagonal()


@pytest.mark.parametrize("function", [expanded, expanded_twice, part, steps, turned, diagonal])
def test_nothing_is_laid_out_anew(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from idgraph.runtime import array_backends

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    if function is diagonal or function is turned:
        x = torch.randn(8, 8)
    imported = ig.from_torch(function, (x, w)).calling("aten.mm.default")
    call = ig.compile(imported, target="cpu")
    want = function(x, w)
    copies: list[str] = []
    inner = array_backends.Torch.laid_out

    def counted(self: Any, t: Any, *rest: Any) -> Any:
        copies.append(t.name)
        return inner(self, t, *rest)

    monkeypatch.setattr(array_backends.Torch, "laid_out", counted)
    for _ in range(3):
        torch.testing.assert_close(call(x, w), want)
    assert copies == []
