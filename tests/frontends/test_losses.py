"""Cross entropy and its gradient as PyTorch's autograd writes them: log-softmax and negative log-likelihood."""

from __future__ import annotations

from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")
make_fx: Any = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx


def captured(
    shape: tuple[int, ...], options: dict[str, Any], dtype: str = "float32"
) -> tuple[Any, tuple[Any, ...], Any]:
    """(graph, arguments, what torch gives) of a loss and its gradient."""
    torch.manual_seed(0)
    classes = shape[0] if len(shape) == 1 else shape[1]
    x = torch.randn(shape).to(getattr(torch, dtype))
    y = torch.randint(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())

    def both(x: Any, y: Any) -> Any:
        x = x.detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(x, y, **options)
        (grad,) = torch.autograd.grad(loss.sum(), x)
        return loss, grad

    return make_fx(both)(x, y), (x, y), both(x, y)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((16, 50), {}),
        ((16, 50), {"reduction": "none"}),
        ((3, 11, 4, 5), {"reduction": "sum", "ignore_index": 2}),
        ((9, 33), {"weight": True}),
    ],
    ids=str,
)
def test_loss_and_gradient(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    if "weight" in options:
        options = {"weight": torch.rand(shape[1])}
    graph, args, want = captured(shape, options)
    imported = ig.from_torch(graph, args)
    assert not imported.coverage.opaque
    found: Any = imported.run(*args)
    for got, right in zip(found, want, strict=True):
        torch.testing.assert_close(got, right.detach(), rtol=2e-5, atol=2e-6)


def test_the_gradient_of_ignored_rows() -> None:
    graph, args, _ = captured((16, 50), {})
    x, ignored = args[0], torch.full((16,), -100)
    loss, grad = graph(x, ignored)
    found: Any = ig.from_torch(graph, args).run(x, ignored)
    torch.testing.assert_close(found[0], loss.detach(), equal_nan=True)
    torch.testing.assert_close(found[1], grad)


def test_one_kernel_reads_the_logits() -> None:
    graph, args, _ = captured((64, 1000), {}, "bfloat16")
    f = ig.from_torch(graph, args).fusion
    ig.schedule.auto(f)
    program = ig.emit(f, target="cuda")
    logits = f.inputs[0].name
    assert sum(any(b.title == logits for b in k.buffers) for k in program.kernels) == 1
    assert all(int(b.size) <= 64 for b in program.plan.buffers if b.place == "global")
