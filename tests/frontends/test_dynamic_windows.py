"""Windows, mirrored pads, diagonals and shuffles of sizes that are known only when the program runs."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch
from idgraph.frontends.dynamic_shapes import Reader

torch: Any = importlib.import_module("torch")
F: Any = torch.nn.functional
T = Any


def partitioned(x: T) -> T:
    b, h, w, c = x.shape
    return x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)


def rotated(x: T) -> T:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * 2 - b * 3, a * 3 + b * 2], -1).flatten(-2)


# function, axes that are dynamic, shapes
CASES: dict[str, tuple[Callable[[T], T], tuple[int, ...], list[tuple[int, ...]]]] = {
    "unfold": (lambda x: x.unfold(1, 3, 2), (0, 1), [(4, 12), (5, 9), (3, 6)]),
    "unfold, side by side": (lambda x: x.unfold(1, 3, 3), (0, 1), [(4, 13), (5, 11), (3, 7)]),
    "diagonal": (torch.diagonal, (0, 1), [(5, 7), (7, 5), (4, 4)]),
    "diagonal below": (lambda x: torch.diagonal(x, -1, 0, 2), (0, 1, 2), [(5, 2, 4), (7, 3, 5)]),
    "reflection": (lambda x: F.pad(x, (2, 1), mode="reflect"), (1, 2), [(2, 3, 9), (2, 4, 4)]),
    "replication": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (2, 3), [(1, 2, 5, 4), (1, 2, 2, 9)]),
    "largest": (lambda x: F.max_pool2d(x, 2), (2, 3), [(2, 3, 8, 9), (2, 3, 5, 4)]),
    "mean": (lambda x: F.avg_pool2d(x, 2), (2, 3), [(2, 3, 8, 9), (2, 3, 5, 4)]),
    "largest, overlapping": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3), [(2, 3, 8, 9), (2, 3, 5, 4)]),
    "mean, overlapping": (lambda x: F.avg_pool2d(x, 3, 1, 1) + x, (2, 3), [(2, 3, 8, 9), (2, 3, 5, 4)]),
    "every second beside windows": (
        lambda x: F.max_pool2d(x, 3, 2, 1) + x[..., ::2, ::2],
        (2, 3),
        [(2, 3, 8, 9), (2, 3, 5, 4)],
    ),
    "a spread window": (lambda x: F.max_pool2d(x, 2, 1, 0, 3), (2, 3), [(2, 3, 8, 9), (2, 3, 5, 6)]),
    "pixels": (lambda x: F.pixel_shuffle(x, 2), (2, 3), [(2, 12, 3, 5), (2, 12, 4, 2)]),
    "rotary": (rotated, (0, 1), [(5, 8), (3, 4), (2, 12)]),
    "means of writers": (
        lambda x: x.scatter_reduce(1, (x * 3).long(), x * 2, "mean", include_self=False),
        (0, 1),
        [(4, 5), (2, 9), (6, 3)],
    ),
    "sums of rows": (
        lambda x: x.scatter_reduce(0, (x * 3).long(), x * 2, "sum", include_self=False),
        (0, 1),
        [(4, 5), (3, 9), (6, 3)],
    ),
    "windows of an image": (partitioned, (0, 1, 2), [(2, 8, 6, 5), (3, 4, 10, 5)]),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_vary(name: str) -> None:
    f, axes, shapes = CASES[name]
    imported = from_torch(f, (torch.rand(shapes[0]),), dynamic_shapes=(dict.fromkeys(axes, torch.export.Dim.AUTO),))
    assert not imported.coverage.opaque, imported.coverage
    k = imported.compiled("numpy")
    for shape in shapes:
        x = torch.rand(shape)
        torch.testing.assert_close(k(x), f(x))


def facts(f: Callable[..., object], *hints: int) -> dict[str, int]:
    """The steps that are read of symbolic sizes on which ``f`` was run."""
    shapes: Any = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    fake: Any = importlib.import_module("torch._subclasses.fake_tensor")
    env = shapes.ShapeEnv()
    mode = fake.FakeTensorMode(shape_env=env)
    x = mode.from_tensor(torch.empty(hints), static_shapes=False)
    with mode:
        f(x)
    reader = Reader()
    found = [reader.size(n) for n in x.shape]
    return {f"axis {k}": n.symbol_bounds[2] for k, n in enumerate(found) if not isinstance(n, int)}


@pytest.mark.parametrize(
    ("f", "hints", "steps"),
    [
        (lambda x: x.view(x.shape[0] // 2, 2, x.shape[1] // 3, 3), (8, 9), [2, 3]),
        (lambda x: x[::2] + x[1::2], (8, 9), [2, 1]),
        (lambda x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 :], (8, 9), [2, 1]),
        (lambda x: x.view(-1, 4, x.shape[1]), (8, 9), [4, 1]),
        (lambda x: x[1:] + x[:-1], (8, 9), [1, 1]),
        (lambda x: x[::2], (8, 9), [1, 1]),
    ],
)
def test_steps_that_torch_implies(f: Callable[[T], T], hints: tuple[int, ...], steps: list[int]) -> None:
    assert list(facts(f, *hints).values()) == steps
