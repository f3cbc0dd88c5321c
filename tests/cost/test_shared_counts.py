"""Kernels that touch memory alike are counted once, and each costs what it costs in a program of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest

import idgraph as ig

# number of elements (in loops of 2 x 32, so that 48 of them need a condition), type, operation
Work = tuple[int, str, Callable[[ig.Tensor], ig.Tensor]]
WORK: Sequence[Work] = [
    (48, "float32", ig.exp), (64, "float32", ig.exp), (64, "float32", ig.neg), (64, "float64", ig.neg),
    (48, "float32", lambda x: ig.flip(x, (0,))),
]  # fmt: skip


def costs(work: Sequence[Work]) -> list[tuple[int, ...]]:
    f = ig.Fusion("f")
    for n, (size, dtype, op) in enumerate(work):
        f.output(op(f.input(f"x{n}", (size,), dtype))).split(0, 32)
    kernels = ig.cost(ig.emit(f, target="python"), "H200").kernels
    return [(k.bytes_read, k.bytes_written, k.bytes_asked, k.sectors, k.flops) for k in kernels]


def test_kernels_cost_what_they_cost_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    model, counted = import_module("idgraph.cost.model"), 0
    sectors = model.warp_sectors

    def once(*args: Any) -> Any:
        nonlocal counted
        counted += 1
        return sectors(*args)

    monkeypatch.setattr(model, "warp_sectors", once)
    together = costs(WORK)
    assert counted < 2 * len(WORK)
    assert together == [k for w in WORK for k in costs([w])]
