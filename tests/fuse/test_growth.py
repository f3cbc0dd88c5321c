"""The planner's work grows with the number of operations: counted in calls of functions, never in seconds."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any, cast

import pytest

import idgraph as ig
from idgraph.schedule.reduction_groups import schedule_rows
from tools.programs.sized_fusions import FUSIONS


def calls(f: ig.Fusion) -> int:
    """Calls of Python functions that a plan takes."""
    profile = cProfile.Profile()
    profile.enable()
    ig.fuse.plan(f)
    profile.disable()
    return int(cast(Any, pstats.Stats(profile)).total_calls)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("family", FUSIONS)
def test_work_of_a_plan_is_near_linear(family: str) -> None:
    make = FUSIONS[family]
    calls(make(20))  # what is remembered once
    small, large = (calls(make(n)) for n in (40, 120))
    assert large / small < 3**1.3, (small, large)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(("family", "most"), [("residual", 5300), ("norm", 4900)])
def test_calls_for_each_further_operation_are_few(family: str, most: int) -> None:
    """Each block of rows gets a score of private copies: none is judged by a builder again (4970 and 3990 calls)."""
    small, large = (scheduled(FUSIONS[family](n)) for n in (240, 480))
    assert (large - small) / 240 < most, (small, large)


def scheduled(f: ig.Fusion) -> int:
    """Calls of Python functions that an automatic schedule takes."""
    profile = cProfile.Profile()
    profile.enable()
    ig.schedule.auto(f)
    profile.disable()
    return int(cast(Any, pstats.Stats(profile)).total_calls)


@pytest.mark.parametrize("blocks", [32, 80])
def test_spaces_of_rows_do_not_go_through_the_whole_fusion_one_by_one(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that did would make the work quadratic: 10 000 operations have two hundred spaces."""
    reads = 0
    whole = [(name, cast(property, getattr(ig.Fusion, name)).fget) for name in ("exprs", "tensors")]

    def counted(of: Any) -> property:
        def read(f: ig.Fusion) -> object:
            nonlocal reads
            reads += 1
            return of(f)

        return property(read)

    for name, of in whole:
        monkeypatch.setattr(ig.Fusion, name, counted(of))
    f = FUSIONS["residual"](6 * blocks)
    reads = 0
    done = schedule_rows(f)
    assert len(done.decisions) == blocks // 8 and reads < 8, reads


def test_many_norms_in_a_row_are_cut_into_kernels_of_a_few_passes() -> None:
    f = FUSIONS["residual"](84)  # fourteen blocks
    p = ig.fuse.plan(f)
    sums = [sum(p.scheduled[name].definition.is_reduction for name in k) for k in p.kernels]  # type: ignore[union-attr]
    assert len(sums) == p.after == 2 and max(sums) <= 8
    p.apply(f)
    assert ig.validate(f, target="numpy").ok
