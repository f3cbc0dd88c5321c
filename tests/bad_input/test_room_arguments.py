"""Functions and objects of the rooms behind the fusion: wrong arguments are one error, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import idgraph as ig
from idgraph.layout import dense_strides
from idgraph.reports import Part, metric_parts, report_parts

Call = Callable[[ig.Tensor, Any], object]
CALLS: dict[str, Call] = {
    "dense_strides": lambda t, wrong: dense_strides(t, wrong),
    "dense_strides of": lambda _, wrong: dense_strides(wrong, (0, 1)),
    "pad_strides": lambda t, wrong: ig.layout.pad_strides(t.fusion, threshold=wrong),
    "report_parts": lambda _, wrong: report_parts("r", wrong),
    "metric_parts": lambda _, wrong: metric_parts("m", wrong, target="python"),
    "metric_parts of": lambda t, wrong: metric_parts("m", [Part(t.fusion)], target="python", device=wrong),
    "rate": lambda _, wrong: ig.cost.devices["cpu"].rate("float32", special=wrong),
    "to_csv": lambda t, wrong: ig.cost(ig.emit(t.fusion, "python"), device="cpu").to_csv(wrong),
    "decisions": lambda t, wrong: ig.layout.infer(t.fusion)[wrong],
}
WRONG: dict[str, Callable[[ig.Tensor], object]] = {
    "tensor": lambda t: t, "tensors": lambda t: [t, t], "number": lambda _: 2.5, "list": lambda _: [[0]],
    "mapping": lambda _: {"a": 1}, "nothing": lambda _: None, "odd order": lambda _: (0, 0),
}  # fmt: skip


RIGHT = {("dense_strides of", "tensor"), ("metric_parts of", "nothing")}
PAIRS = [(call, wrong) for call in CALLS for wrong in WRONG if (call, wrong) not in RIGHT]


@pytest.mark.parametrize(("call", "wrong"), PAIRS)
def test_a_wrong_argument_is_one_error_and_changes_nothing(call: str, wrong: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64, 1025))
    f.output(x + 1.0)
    before = str(f)
    with pytest.raises(ig.IdGraphError):
        CALLS[call](x, WRONG[wrong](x))
    assert str(f) == before


def test_a_range_without_end_is_not_a_list_of_tensors() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4,))
    y, many = f.output(x + 1.0), range(10**18)
    wrong: list[Callable[[Any], object]] = [
        lambda m: ig.fuse.explain(f, y, y, stored=m),
        lambda m: report_parts("r", m),
        lambda m: ig.schedule.inline_most(f, m),
    ]
    for call in wrong:
        with pytest.raises(ig.IdGraphError, match=r"is range\(0, 1000000000000000000\)"):
            call(many)


def test_a_fusion_without_end_is_not_looked_through() -> None:
    class Endless:
        def __getitem__(self, at: int) -> int:
            return at

    y, wrong = ig.Fusion("f").input("x", shape=(4,)), cast("Any", Endless())
    for call in (lambda: ig.layout.alias(wrong, y), lambda: ig.layout.infer(wrong)):
        with pytest.raises(ig.IdGraphError, match="fusion is"):
            call()


def test_decisions_are_a_mapping() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(2, 3))
    y = f.output(x + 1.0)
    found: Any = ig.layout.infer(f)
    assert y in found and x not in found and [] not in found
    assert found.get(x) is None and found.get("x", 3) == 3
