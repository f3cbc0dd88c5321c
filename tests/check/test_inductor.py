"""TorchInductor's loops, forward and backward, before and after its loop transformations: all decided."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


def rope(q: Any, cos: Any, sin: Any) -> Any:
    half = q.shape[-1] // 2
    return q * cos + torch.cat((-q[..., half:], q[..., :half]), -1) * sin


def swin(x: Any) -> Any:
    b, h, w, c = x.shape
    x = torch.roll(x, (-3, -3), (1, 2)).view(b, h // 7, 7, w // 7, 7, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c) * 2


def qkv(x: Any, w: Any) -> Any:
    q, k, v = (x @ w).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
    return (q * 2) @ k.transpose(-1, -2) @ v


def put(x: Any, i: Any, src: Any) -> Any:
    return torch.zeros_like(x).index_add(0, i, src) * 2 + x


def update(x: Any, y: Any) -> Any:
    x.copy_(x.flip(0) + y)
    return x * 2


def next_token_loss(logits: Any, labels: Any) -> Any:
    labels = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]  # a pad of integers, ignored by the loss
    return torch.nn.functional.cross_entropy(logits.view(-1, 17), labels.reshape(-1), ignore_index=-100)


def view_of_views(x: Any) -> Any:
    y = x.t()[1:].unflatten(0, (3, 2)).transpose(0, 2)
    return y.reshape(-1, 2)[::2] + y.flatten(1)[0, 0]


def masked_add(x: Any, i: Any, src: Any, keep: Any) -> Any:
    return x.index_put((i,), torch.where(keep, src, torch.zeros_like(src)), accumulate=True) + 1


def grad(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "rope": (rope, lambda: (grad(2, 4, 16, 8), torch.randn(16, 8), torch.randn(16, 8))),
    "swin": (swin, lambda: (grad(2, 14, 14, 6),)),
    "qkv": (qkv, lambda: (grad(2, 8, 32), grad(32, 96))),
    "cross entropy": (torch.nn.functional.cross_entropy, lambda: (grad(8, 33), torch.randint(0, 33, (8,)))),
    "index_add": (put, lambda: (torch.randn(9, 4), torch.randint(0, 9, (5,)), torch.randn(5, 4))),
    "next token loss": (next_token_loss, lambda: (grad(2, 8, 17), torch.randint(0, 17, (2, 8)))),
    "views": (view_of_views, lambda: (grad(4, 7),)),
    "masked add": (
        masked_add,
        lambda: (torch.randn(9, 4), torch.randint(0, 9, (5,)), torch.randn(5, 4), torch.rand(5, 4) > 0.5),
    ),
    "in place": (update, lambda: (torch.randn(6, 4), torch.randn(6, 4))),
    "channels last": (
        lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1)).amax(1),
        lambda: (torch.randn(2, 3, 5, 4).to(memory_format=torch.channels_last),),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_every_node_is_decided_and_right(name: str) -> None:
    fn, args = CASES[name]
    r = ig.check.inductor(fn, args())
    assert r.rows and r.ok, str(r)
    assert r.decided, str(r)
    assert {row.stage for row in r.rows} == {"graph", "before", "after"}


def test_dynamic_sizes() -> None:
    r = ig.check.inductor(lambda x: torch.cat((x[:, 4:], x[:, :4]), 1) + x, (torch.randn(6, 8),), dynamic=True)
    assert r.ok and r.decided, str(r)


def test_what_torch_cannot_compile_is_one_error() -> None:
    with pytest.raises(ig.check.CheckError):
        ig.check.inductor(lambda x: x + torch.ones(7), (torch.ones(3),))


def test_a_softmax_that_inductor_prepares_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor does so for GPUs only; its own test of the device is told otherwise."""
    passes: Any = pytest.importorskip("torch._inductor.fx_passes.post_grad")
    monkeypatch.setattr(passes, "prepare_softmax_extra_check", lambda _match: True)
    r = ig.check.inductor(lambda x: torch.softmax(x, -1), (torch.randn(6, 10),))
    assert r.ok and {row.verdict for row in r.rows} <= {"proved", "enumerated", "tested"}
