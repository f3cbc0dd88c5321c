"""`inline_most` where readers loop over single elements outside of shared loops, or over axes of other operands."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import idgraph as ig
from tests.property.numpy_programs import Program, wrong


def rows_of_a_slice(f: ig.Fusion) -> ig.Tensor:
    t = ig.exp(f.input("x", (5, 24)))[:, :8]
    return ig.permute(ig.reshape(t, 1, 5, 2, 4), 0, 2, 1, 3) * 1.5


def single_elements_between(f: ig.Fusion) -> ig.Tensor:
    t = ig.exp(f.input("x", (4, 12)))[:, 2:10]
    return ig.permute(ig.reshape(t, 4, 1, 2, 4), 1, 2, 0, 3) + 1.0


@pytest.mark.parametrize("build", [rows_of_a_slice, single_elements_between])
def test_one_kernel(build: Callable[[ig.Fusion], ig.Tensor]) -> None:
    f = ig.Fusion("f")
    y = f.output(build(f))
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    assert ig.validate(f, target="numpy").ok


def test_nothing_is_computed_again_at_each_step_of_a_reader() -> None:
    f = ig.Fusion("f")
    t = ig.flip(ig.exp(f.input("x", (6, 8))), 1)[1:]
    y = f.output(ig.permute(ig.unsqueeze(t, 0), 0, 2, 1) * f.input("w", (3, 8, 5)))
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    assert t.inline_position == 0 and len(ig.emit(f, "cuda").kernels) == 2


def test_values_stay_and_a_second_time_changes_nothing() -> None:
    """Random programs, scheduled like one of their results."""
    for seed in range(12):
        r = random.Random(seed)
        p = Program(r, r.randrange(2, 12))
        ig.schedule.like(p.fusion, r.choice(p.fusion.outputs))
        ig.schedule.inline_most(p.fusion)
        positions = [(t.inline_position, len(t.loop)) for t in p.fusion.tensors]
        got = ig.emit(p.fusion, "numpy").run(p.inputs)
        assert not wrong(p, got, [t.name for t in p.fusion.outputs]), seed
        ig.schedule.inline_most(p.fusion)
        assert positions == [(t.inline_position, len(t.loop)) for t in p.fusion.tensors], seed
