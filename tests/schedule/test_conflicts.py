"""Tensors in each other's way are found once: fewer inlinings are tried, and the same ones are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.graphs import index_graph
from idgraph.ir import Tensor
from idgraph.schedule import inlining

STEPS = 8


def combined(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return left[0] * right[0], right[0] * left[1] + right[1]


def interleaved(even: Tensor, odd: Tensor, count: int) -> Tensor:
    n = odd.shape[0]
    pairs = ig.cat([ig.unsqueeze(even[:n], 1), ig.unsqueeze(odd, 1)], 1)
    flat = ig.reshape(pairs, (2 * int(n), *(int(s) for s in odd.shape[1:])))
    return flat if count == 2 * int(n) else ig.cat([flat, even[int(n) :]], 0)


def recurrence(x: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """``h[i] = a[i] * h[i - 1] + b[i]`` as torch does an associative scan: halves of halves, woven into each other."""
    if count < 2:
        return x
    a, b = x
    half = count // 2
    odd = recurrence(combined((a[0 : 2 * half : 2], b[0 : 2 * half : 2]), (a[1::2], b[1::2])), half)
    found: list[Tensor] = []
    more = combined((odd[0][: half - 1], odd[1][: half - 1]), (a[2::2], b[2::2])) if half > 1 else None
    for n, whole in enumerate(x):
        even = whole[:1] if more is None else ig.cat([whole[:1], more[n]], 0)
        found.append(interleaved(even, odd[n], count))
    return found[0], found[1]


def scheduled() -> str:
    f = ig.Fusion("scan")
    a, b = f.input("a", shape=(4, STEPS, 6)), f.input("b", shape=(4, STEPS, 6))
    rows = ig.permute(ig.exp(a), (1, 0, 2)), ig.permute(b * a, (1, 0, 2))
    f.output(recurrence(rows, STEPS)[1])
    ig.schedule.auto(f, device="cpu")
    return str(f)


def test_fewer_inlinings_are_tried_and_the_same_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    module: Any = inlining
    inner = module._try

    def counted(*given: Any) -> Any:
        tried.append(1)
        return inner(*given)

    monkeypatch.setattr(module, "_try", counted)
    with_memory = scheduled()
    few = len(tried)
    tried.clear()

    def first(errors: Iterable[ScheduleError]) -> None:
        for error in errors:
            raise error

    with monkeypatch.context() as one_refusal:
        one_refusal.setattr(index_graph, "_raise_first", first)
        assert scheduled() == with_memory
    one_at_a_time = len(tried)
    tried.clear()
    assert few < one_at_a_time

    def whole(self: object, batch: Sequence[Tensor]) -> int:
        return len(batch)

    monkeypatch.setattr(module._Conflicts, "first", whole)
    assert scheduled() == with_memory
    assert few < one_at_a_time < len(tried)
    assert few < 0.75 * len(tried)
