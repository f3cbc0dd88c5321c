"""Operands of several types: values are of the common type, as eager computes them; nothing is rounded on the way."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
T = Any


def normal(*shape: int) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def lengths(x: T, m: T) -> Any:
    """Booleans are numbers beside floats."""
    return [torch.hypot(m, x), torch.hypot(x, m), torch.hypot(x, m.double())]


def empty_parts(x: T, i: T) -> Any:
    """A joined tensor of shape (0,) has no elements, but a type."""
    none = torch.empty(0, dtype=torch.int32)
    return [torch.cat([none, i, i]), torch.cat([torch.empty(0), i[None]], 1), torch.cat([x, none.double()], 0)]


def scaled(x: T, y: T) -> Any:
    """alpha times the narrower operand is of the common type."""
    return [torch.add(x, y, alpha=3), torch.sub(x, y, alpha=0.3), torch.rsub(y, x, alpha=7), torch.add(y, x, alpha=3)]


def of_bytes(b: T, i: T) -> Any:
    """Bounds of which one alone would wrap in the type of x; whether bytes are not zero is told in bytes."""
    bounds = [torch.clamp(b, -3, 5.5), torch.clamp(b, -3, 7), b.clamp(min=2.5), torch.clamp(b, i, 4.5 * torch.ones(2))]
    return [*bounds, torch.any(b, 0), torch.all(b), b.any(0, keepdim=True), b[0].any()]


PROGRAMS: dict[Callable[..., Any], tuple[T, ...]] = {
    lengths: (normal(3, 5).half(), normal(3, 5) > 0),
    empty_parts: (normal(2, 3).half(), torch.tensor([True, False])),
    of_bytes: (torch.tensor([0, 254], dtype=torch.uint8), torch.tensor([-7, 300])),
    scaled: (normal(4, 5).double(), normal(4, 5).half()),
}


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("target", ["python", "numpy"])
def test_mixed_types(program: Callable[..., Any], target: str) -> None:
    args = PROGRAMS[program]
    imported = from_torch(program, args)
    assert not imported.coverage.opaque
    near = dict.fromkeys(("rtol", "atol"), 1e-13) if program is scaled else {}  # a product in float32 has 6e-8
    torch.testing.assert_close(imported.run(*args, target=target), program(*args), **near)
