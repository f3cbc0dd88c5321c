"""Gradients that torch computes by kernels, and bags of rows: nothing is opaque, results are eager's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
F: Any = torch.nn.functional
leaves: Any = torch.utils._pytree.tree_leaves
T = Any


def normal(*shape: int) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def gradients(f: Callable[[T], Any], x: T) -> Any:
    """The gradient of a weighted sum of all results with respect to the argument."""
    given = x.detach().clone().requires_grad_()
    weighed = [(y * torch.linspace(-1.0, 2.0, y.numel()).view(y.shape)).sum() for y in leaves(f(given))]
    return torch.autograd.grad(torch.stack(weighed).sum(), given)


def pads(x: T) -> Any:
    sides = ((2, 1, 0, 3), (-1, 2, 1, -1), (0, 0, 5, 4))
    return gradients(lambda x: [F.pad(x, p, mode="replicate") for p in sides], x), gradients(
        lambda x: [F.pad(x[0], (2, 1), mode="replicate"), F.pad(x[0, :, :1], (2, 1, 3, 3), mode="replicate")], x
    )


def shrunk(x: T) -> Any:
    return gradients(
        lambda x: [F.hardshrink(x, 0.3), F.softshrink(x, 0.3), F.rrelu(x, 0.1, 0.3), F.rrelu(x, training=True)], x
    )


def nearest(x: T) -> Any:
    sizes, modes = ((3, 11), (10, 14)), ("nearest", "nearest-exact")
    return gradients(
        lambda x: (
            [F.interpolate(x, size=s, mode=m) for s in sizes for m in modes]
            + [F.interpolate(x, scale_factor=(1.5, 0.7)), F.interpolate(x[0], size=4)]
        ),
        x,
    )


def linear(x: T) -> Any:
    ways = ({"size": (3, 9)}, {"scale_factor": (1.5, 0.7)}, {"size": (5, 1), "align_corners": True})
    return gradients(lambda x: [F.interpolate(x, mode="bilinear", **w) for w in ways], x)


def linear_of_other_ranks(x: T) -> Any:
    return gradients(
        lambda x: [
            F.interpolate(x[0], size=9, mode="linear", align_corners=True),
            F.interpolate(x[None], size=(3, 4, 5), mode="trilinear"),
        ],
        x,
    )


def cubic(x: T) -> Any:
    ways = ({"scale_factor": (1.5, 0.7)}, {"size": (8, 2), "align_corners": True})
    return gradients(lambda x: [F.interpolate(x, mode="bicubic", **w) for w in ways], x)


def masked(x: T, y: T) -> Any:
    return gradients(lambda x: x.masked_scatter(x > 0, y), x), gradients(lambda y: x.masked_scatter(x > 0, y), y)


def bags(table: T, shares: T) -> Any:
    """Bags of rows, empty ones too, and with padding rows."""
    rows, begin = torch.tensor([3, 1, 4, 1, 5, 0, 2, 6]), torch.tensor([0, 2, 2, 7])
    ways: list[dict[str, Any]] = [
        {"mode": "sum"}, {"mode": "mean"}, {"mode": "max"}, {"mode": "mean", "padding_idx": 1},
        {"mode": "max", "padding_idx": 5}, {"mode": "sum", "per_sample_weights": shares},
    ]  # fmt: skip
    whole = torch.cat((begin, torch.tensor([8])))
    found = [F.embedding_bag(rows, table, begin, **w) for w in ways]
    found.append(F.embedding_bag(rows, table, whole, mode="sum", include_last_offset=True))
    return found, gradients(lambda t: [F.embedding_bag(rows, t, begin, **w) for w in ways], table)


GROUPS: dict[Callable[..., Any], tuple[T, ...]] = {
    pads: (normal(2, 3, 4, 5),),
    shrunk: (normal(4, 5),),
    nearest: (normal(1, 2, 5, 7),),
    linear: (normal(1, 2, 5, 7),),
    linear_of_other_ranks: (normal(1, 2, 5, 7),),
    cubic: (normal(1, 2, 5, 7),),
    masked: (normal(4, 5), normal(5, 6)),
    bags: (normal(7, 3), normal(8)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("program", GROUPS, ids=lambda f: f.__name__)
def test_gradients(program: Callable[..., Any]) -> None:
    args = GROUPS[program]
    imported = from_torch(program, args)
    drawn = ["aten.rrelu_with_noise_functional.default"] if program is shrunk else []
    assert list(imported.coverage.opaque) == drawn, imported.coverage
    torch.manual_seed(0)
    found = leaves(imported.run(*args, target="numpy"))
    torch.manual_seed(0)
    wanted = leaves(program(*args))
    assert len(found) == len(wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
