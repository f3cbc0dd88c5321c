"""`inline_most` finds what trying every position of every tensor finds, with few looks at the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import ScheduleError
from idgraph.graphs import build_index_graph
from idgraph.index.cover import check_written
from idgraph.ir import Fusion
from idgraph.schedule import legal
from idgraph.testing import STEPS, fusions
from tests.property.budget import examples


def one_by_one(f: Fusion) -> dict[str, int]:
    """The definition: consumers first, each tensor as far right as is legal with those before it."""
    order = {e.output: n for n, e in enumerate(f.exprs)}
    made = [t for t in f.tensors if t in order and t.uses]
    for t in made:
        t.inline_position = 0
    for t in sorted(made, key=lambda t: -order[t]):
        for position in range(len(t.loop), 0, -1):
            t.inline_position = position
            try:
                build_index_graph(f)
                if t in f.outputs:
                    check_written(ig.IdModel(f))
            except ScheduleError:
                t.inline_position = 0
                continue
            break
    return {t.name: t.inline_position for t in f.tensors}


@settings(max_examples=examples(60))
@given(fusions(max_steps=8, steps=[s for s in STEPS if s != "scan"]), st.data())  # a scan waits for its end
def test_the_same_positions_as_one_by_one(f: Fusion, data: Any) -> None:
    made = [t for t in f.tensors if t.definition is not None and t.loop]
    if made:
        reference = data.draw(st.sampled_from(list(reversed(made))))
        reference.split(len(reference.loop) - 1, 2)
        ig.schedule.like(f, reference)
    note(str(f))
    want = one_by_one(f)
    ig.schedule.inline_most(f)
    assert {t.name: t.inline_position for t in f.tensors} == want


def chain(n: int) -> Fusion:
    f = Fusion("chain")
    x = f.input("x", shape=(8, 32))
    for _ in range(n):
        x = ig.exp(x)
    f.output(x)
    return f


def rotations(n: int) -> Fusion:
    """Each rotation reads what it is added to in parts, so every fourth tensor stops at the rows."""
    f = Fusion("rotations")
    x = f.input("x", shape=(8, 32))
    for _ in range(n // 4):
        y = ig.exp(x)
        x = x + ig.cat([y[:, 16:], y[:, :16]], dim=1)
    f.output(x)
    return f


@pytest.mark.parametrize("make", [chain, rotations])
def test_few_looks_at_the_whole(make: Callable[[int], Fusion], monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def counted(*args: Any) -> Any:
        looked.append(len(args[1]))
        return build_index_graph(*args)

    monkeypatch.setattr(legal, "build_index_graph", counted)
    f = make(400)
    ig.schedule.like(f, f.outputs[0])
    ig.schedule.inline_most(f)
    assert sum(looked) < 4 * 400
    assert all(t.inline_position for t in f.tensors if t.uses and t.definition is not None)
