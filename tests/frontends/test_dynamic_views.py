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


FROM_A_NUMBER: dict[str, Callable[[T, int], T]] = {
    "the rest of a row": lambda x, k: x[:, k:] * 2,
    "between": lambda x, k: x[:, k:-k].sum(1),
    "twice as far": lambda x, k: x[:, 2 * k :] + 1,
    "the same from the other end": lambda x, k: x[:, k:] - x[:, : x.shape[1] - k],
    "rows and columns": lambda x, k: x[k:, k:].cumsum(1),
    "turned": lambda x, k: torch.cat([x[:, k:], x[:, :k]], 1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FROM_A_NUMBER)
def test_slices_from_a_number(name: str) -> None:
    """A size is at least the number that rows are cut at: no number of elements is negative."""
    program = FROM_A_NUMBER[name]
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="idgraph", dynamic=True)
    for k, width in ((1, 11), (3, 11), (2, 9), (4, 24), (5, 10)):
        x = NUMBERS[:7, :width].clone()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = compiled(x, k)
        assert not [w for w in told if "left to eager" in str(w.message)], [str(w.message) for w in told]
        torch.testing.assert_close(found, program(x, k))
        assert found.stride() == program(x, k).stride()


def test_a_size_that_only_a_guard_names() -> None:
    """The branch that torch takes depends on the size of what the branch does not read."""

    def program(x: T, y: T) -> T:
        a, b = x.shape[0], y.shape[0]
        return y[a:].sum() + (y[b - a :] * 2).sum() if a <= b <= a + 5 else x.sum()

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="idgraph", dynamic=True)
    for a, b in ((5, 9), (7, 12), (7, 13), (9, 8)):
        x, y = torch.arange(a), torch.arange(b)
        torch.testing.assert_close(compiled(x, y), program(x, y))
