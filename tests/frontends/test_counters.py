"""Integers of a graph that no size depends on, as tokens in a cache: one text serves all their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from idgraph.arith import symbol  # noqa: E402 - behind the import of torch
from idgraph.frontends import call_source  # noqa: E402
from idgraph.frontends.call_plan import CallPlan  # noqa: E402
from idgraph.frontends.dynamic_shapes import DynamicSizes  # noqa: E402
from idgraph.frontends.graph import CapturedProgram, Node, Ref, TensorMeta  # noqa: E402
from idgraph.runtime.dispatch import Dispatcher  # noqa: E402

Result = tuple[Any, int]


def window(x: Any, keys: Any, count: int) -> Result:
    """Attention to the last four of ``count`` tokens, a product between two parts, and the next count."""
    places = torch.arange(keys.shape[0], device=x.device) + max(count - 3, 0)
    scores = torch.where(places <= count, (x * count) @ keys.t(), -1e9).softmax(-1)
    return torch.full_like(scores, 2 * count + 1) + scores @ keys @ keys.t(), count + 1


def branching(x: Any, keys: Any, count: int) -> Result:
    """Another graph from 20 tokens on."""
    y = x + count if count < 20 else x - count
    return (y @ keys.t()).relu() * count, count * 2


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is done for a call beside its text."""
    found: list[str] = []
    for owner, name in ((CallPlan, "_call"), (Dispatcher, "route")):
        whole = getattr(owner, name)

        def noted(*args: Any, whole: Any = whole, name: str = name) -> Any:
            found.append(name)
            return whole(*args)

        monkeypatch.setattr(owner, name, noted)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


@pytest.mark.parametrize("function", [window, branching])
def test_counts_are_arguments_of_one_text(function: Any, bound: list[str]) -> None:
    torch.manual_seed(0)
    compiled = torch.compile(function, backend="idgraph", dynamic=True, options={"cache": False})
    x, keys = torch.randn(2, 8), torch.randn(6, 8)
    for count in (5, 6, 7, 8, 300, 301, 9, 10, 11, 25, 19, 20, 21, 22):
        before = len(bound)
        found, wanted = compiled(x, keys, count), function(x, keys, count)
        torch.testing.assert_close(found[0], wanted[0], rtol=2e-5, atol=2e-5)
        assert found[1] == wanted[1]
        if count in (8, 11, 22):
            assert bound[before:] == [], count


def test_arguments_of_other_sizes_are_not_the_text_s(bound: list[str]) -> None:
    compiled = torch.compile(window, backend="idgraph", dynamic=True, options={"cache": False})
    for size, count in ((6, 5), (6, 6), (6, 7), (9, 8), (6, 9), (9, 9), (9, 10)):
        x, keys = torch.ones(2, 8), torch.linspace(-1, 1, size * 8).reshape(size, 8)
        torch.testing.assert_close(compiled(x, keys, count)[0], window(x, keys, count)[0], rtol=2e-5, atol=2e-5)


def test_numbers_that_ranges_and_guards_refuse_do_not_fit() -> None:
    n, rows = symbol("n", 2, 40, 2), symbol("rows", 1)
    meta = TensorMeta((rows, 4), "float32", (4, 1))
    nodes = (
        Node("x", "placeholder", "x", meta=meta),
        Node("count", "placeholder", "count", meta=n),
        Node("y", "call", "aten.mul.Tensor", (Ref("x"), Ref("count")), meta=meta),
    )
    sizes = DynamicSizes({"n": n, "rows": rows}, [n + rows < 30, rows < 8])
    program = CapturedProgram("f", nodes, (Ref("y"),), sizes)
    assert program.counters == {"n": "count"}
    x = torch.ones(6, 4)
    fits: Any = call_source.argument_guard(torch, (x, 4), [1], call_source.counter_guard(program, {"n": 4, "rows": 6}))
    given = (0, 2, 3, 22, 24, 42, True, 4.0)
    assert [bool(fits([x, c])) for c in given] == [False, True, False, True, False, False, False, False]
    fixed: Any = call_source.argument_guard(torch, (x, 4))
    assert fixed([x, 4]) and not fixed([x, 6])
