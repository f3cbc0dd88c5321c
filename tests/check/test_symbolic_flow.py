"""Programs of any size: what a read sees is proved for all of them, or refuted at one."""

from __future__ import annotations

import random
from typing import Any

import pytest

import idgraph as ig
from tests.check.dynamic_lowerings import DYNAMIC, loop, program
from tests.check.tree_lowerings import put


def right(data: dict[str, Any]) -> bool:
    least = data["symbols"]["n"]["min"]
    step = data["symbols"]["n"]["multiple_of"]
    sizes = [least + step * k for k in (0, 1, 2, 3, 5, 6, 9)]
    return all(ig.check.interpret(data, seed=s, sizes={"n": n}).right for n in sizes for s in range(6))


@pytest.mark.parametrize("kind", DYNAMIC)
def test_a_right_lowering_is_proved_at_every_size(kind: str) -> None:
    for seed in range(5):
        data = DYNAMIC[kind][0](random.Random(seed), "")
        r = ig.check.program(data)
        assert right(data) and r.ok and r.decided, f"seed {seed}: {r}"


@pytest.mark.parametrize(("kind", "fault"), [(k, f) for k, (_, faults) in DYNAMIC.items() for f in faults])
def test_a_fault_is_refuted_at_some_size(kind: str, fault: str) -> None:
    for seed in range(3):
        data = DYNAMIC[kind][0](random.Random(seed), fault)
        r = ig.check.program(data)
        if right(data):
            assert not r.refuted, f"seed {seed}: {r}"
        else:
            assert r.refuted, f"seed {seed}: {r}"


def test_a_fault_of_large_sizes_is_never_proved() -> None:
    """What no size that is tried shows, and the elements alone do not say."""
    again = put("again", "y", "0", ("x", "i*n + j"), reduce=[["i", 3], ["j", "n"], ["k", "n//50 + 1"]])
    sums = ("  a = sum(x, dims=(1,))", "  y = sum(a, dims=(0,))")
    assert not ig.check.program(program(1, [again], *sums, shape="(3, `n`)")).decided
    late = put("late", "y", "j", ("y", "j"), when="n > 50")
    first = put("first", "y", "i", ("x", "i"))
    assert not ig.check.program(program(1, [loop("i", "n", first), loop("j", "n", late)], "  y = exp(x)")).decided
    over = put("over", "b", "max(j*j, 0) + 60", ("x", "j"))
    use = put("use", "y", "k", ("b", "k"))
    body = [loop("i", "n", put("make", "b", "i", ("x", "i"))), loop("j", "n - 1", over), loop("k", "n", use)]
    assert not ig.check.program(program(2, body, "  b = exp(x)", "  y = neg(b)")).decided


def test_numbers_are_tried_in_each_case_of_their_conditions() -> None:
    nest = put("k", "y", "i", ("x", "i"), loops=[["i", "n"]])
    nest["writes"][0]["value"] = "where(i < 50, exp(r0), r0)"
    data = program(1, [nest], "  y = exp(x)")
    r = ig.check.program(data)
    assert r.refuted and r.refuted[0].counterexample is not None and r.refuted[0].counterexample.point["i"] >= 50
    nest["writes"][0]["value"] = "where(i < 50, exp(r0), exp(r0))"
    assert ig.check.program(data).decided
    nest["writes"][0]["value"] = "where(i < 5000000, exp(r0), r0)"
    r = ig.check.program(data)
    assert r.ok and not r.decided and "i >= 5000000" in r.unknown[0].because


def test_the_smallest_size_is_tried() -> None:
    move = put("move", "y", "i", ("x", "i + max(2 - n, 0)"))
    r = ig.check.program(program(1, [loop("i", "n", move)], "  y = exp(x)"))
    assert r.refuted and "n=1" in str(r.refuted[0].counterexample)
