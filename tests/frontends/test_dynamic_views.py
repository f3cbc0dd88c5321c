"""Views of dynamic sizes through ``torch.compile(backend="idgraph", dynamic=True)``: values, strides and places in
memory as eager's, and no graph left to eager mode.

Torch makes a result that is a view of an argument anew from where the backend's result lies: a copy would be read at
the wrong offset.
"""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnusedImport=false
from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import idgraph.frontends.torch_compile  # noqa: F401 - an installed idgraph is found by its name alone

torch: Any = importlib.import_module("torch")
T = Any
NUMBERS = torch.arange(33 * 24).reshape(33, 24)

PROGRAMS: dict[str, tuple[Callable[[T], Any], T]] = {
    "one of four pieces": (lambda x: (x.chunk(4, 1)[2],), NUMBERS),
    "steps of a row": (lambda x: (x[:, 3::2], x[1:].t()), NUMBERS[1:]),
    "both halves of pairs": (lambda x: (torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2),), NUMBERS),
    "pairs beside a table": (lambda x: (x[..., 0::2] * torch.arange(33)[:, None],), NUMBERS),
    "pairs beside as many numbers": (lambda x: (x[..., 0::2] * torch.arange(12),), NUMBERS),
    "differences of a half": (lambda x: (x.chunk(2, -1)[1].diff(dim=-1),), NUMBERS),
    "places in columns": (lambda x: (x.argmin(1).reshape(3, -1),), NUMBERS[:3]),
    "a size that a later split fixes": (
        lambda x: ((y := x.sum(-3).flatten(0, 1)), y.split([84, 85], -1)[1]),
        torch.arange(8 * 169).reshape(8, 13, 13),
    ),
    "pieces of what is computed": (lambda x: ((y := x + 1)[:, 3::2], y.chunk(4, 1)[2]), NUMBERS),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_dynamic_views(name: str) -> None:
    program, x = PROGRAMS[name]
    torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = torch.compile(program, backend="idgraph", dynamic=True)(x)
    assert not [w for w in told if "left to eager" in str(w.message)], [str(w.message) for w in told]
    for a, b in zip(found, program(x), strict=True):
        torch.testing.assert_close(a, b)
        assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
