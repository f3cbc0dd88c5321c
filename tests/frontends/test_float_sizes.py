"""Sizes that Python computes with floats, of dynamic ones: eager's values at each size, nothing left to eager mode."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnusedImport=false
from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import idgraph.frontends.torch_compile  # noqa: F401 - an installed idgraph is found by its name alone

torch: Any = importlib.import_module("torch")
T = Any


def square(x: T) -> T:
    side = int(math.sqrt(x.shape[0]))
    return x[: side * side].reshape(side, side) + 1


PROGRAMS: dict[str, Callable[[T], T]] = {
    "backwards": lambda x: torch.arange(x.shape[0] - 1, -1, -1.0) + x,
    "half steps to a quotient": lambda x: torch.arange(0, x.shape[0] / 2, 0.5) + x,
    "a range of steps that are not exact": lambda x: torch.arange(0, x.shape[0], 0.3) * x[0],
    "a float length": lambda x: torch.arange(float(x.shape[0])) + x,
    "a part": lambda x: x[: int(x.shape[0] * 0.7)] * 2,
    "a half, rounded to even": lambda x: x[: round(x.shape[0] / 2)] * 2,
    "a square": square,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_floats(name: str) -> None:
    program = PROGRAMS[name]
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="idgraph", dynamic=True, fullgraph=True)
    for size in (10, 17, 27):
        x = torch.arange(1.0, size + 1)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = compiled(x)
        assert not [str(w.message) for w in said if "left to eager" in str(w.message)]
        torch.testing.assert_close(found, program(x))
