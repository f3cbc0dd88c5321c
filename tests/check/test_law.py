"""The law of the checker: what it calls right is right in all runs on numbers, what it refutes is wrong in some run."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import settings

import idgraph as ig
from tests.check.lowerings import lowered
from tests.check.pipeline_lowerings import PIPELINES
from tests.check.tree_lowerings import KINDS, tree_lowered

EVERY = KINDS | PIPELINES
RUNS = 10  # orders of iterations, and numbers in memory that nothing wrote


def right(data: dict[str, Any]) -> bool | None:
    """Whether all runs hold the program's numbers; None where the form is not run."""
    try:
        sizes: list[dict[str, int]] = [{"n": k} for k in (2, 5, 8)] if "symbols" in data else [{}]
        return all(ig.check.interpret(data, seed=s, sizes=n).right for s in range(RUNS) for n in sizes)
    except ig.check.CheckError:
        return None


def judged(seed: int) -> str:
    draw = random.Random(seed)
    data = lowered(draw) if seed % 3 == 0 else tree_lowered(draw, KINDS if seed % 3 == 1 else PIPELINES)
    r = ig.check.program(data)
    good = right(data)
    if good is None:
        return "skipped"
    shown = f"seed {seed}: {json.dumps(data, indent=1)}\n{r}"
    if r.refuted:
        assert not good, shown
        return "refuted"
    if r.ok and r.decided:
        assert good, shown
        return "right"
    return "unknown"


def law(first: int, count: int) -> None:
    found = [judged(s) for s in range(first, first + count)]
    assert found.count("right") > count // 10 and found.count("refuted") > count // 10
    assert found.count("unknown") <= count * 0.02


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("kind", "fault"), [(k, f) for k, (_, faults) in EVERY.items() for f in faults])
def test_a_fault_of_order_is_refuted_with_both_points(kind: str, fault: str, seed: int) -> None:
    draws = (EVERY[kind][0](random.Random(s), fault) for s in range(100 * seed, 100 * seed + 40))
    data = next(d for d in draws if right(d) is False)  # a lost mask may mask nothing
    r = ig.check.program(data)
    assert r.refuted and not r.ok, str(r)
    for row in r.refuted:
        found = row.counterexample
        assert found is not None and (found.read or found.written) and found.meant, str(row)


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_right_lowering_is_decided(kind: str) -> None:
    for seed in range(4):
        data = PIPELINES[kind][0](random.Random(seed), "")
        r = ig.check.program(data)
        assert r.ok and r.decided, f"{json.dumps(data, indent=1)}\n{r}"


def test_verdicts_are_true() -> None:
    law(0, 1000 if settings.get_current_profile_name() == "ci" else 100)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_verdicts_of_twenty_thousand_programs_are_true(part: int) -> None:
    law(1000 * (part + 1), 1000)
