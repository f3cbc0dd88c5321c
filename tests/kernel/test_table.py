"""The table of passes: what a program's kernels went through, and what each pass leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

import idgraph as ig
from idgraph.ir.schedule_log import KernelHints
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes import pipeline as table
from idgraph.runtime import Target
from idgraph.runtime.program import stages
from tests.emit.row_cases import cross_entropy


def scheduled() -> ig.Fusion:
    f = cross_entropy(4, 512, "none", False)
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("target", list(table.TABLE))
def test_stages_end_in_the_program(target: Target) -> None:
    f = scheduled()
    made = list(stages(f, target))
    program = ig.emit(f, target)
    assert made[0][0] == "lower"
    assert made[-1][1].kernels == program.kernels
    known = [p.name for p in table.TABLE[target]]
    names = [name for name, _ in made[1:]]
    rest = iter(known)  # of a pass that runs twice, one run may change nothing
    assert all(n in rest for n in names)
    done = {n for k in program.kernels for n in k.passes}
    assert done <= set(names)
    assert ("rows" in done) == (target == "cuda")
    assert ("rows_of_core" in done) == (target == "cpu")


def test_a_pass_that_changes_nothing_is_not_named() -> None:
    f = ig.Fusion("half")
    f.output(f.input("x", shape=(8,))[4:])
    (kernel,) = ig.emit(f, "cpu").kernels
    assert kernel.passes == ()


def test_serial_asks_the_schedule() -> None:
    f = scheduled()
    plan = lower_fusion(f, ig.IdModel(f), threads=False)
    alone = replace(plan, kernels=tuple(replace(k, choices=KernelHints(parallel=False)) for k in plan.kernels))
    serial = table.PASSES["serial"]
    assert serial.run(plan) == plan
    loops = [s for k in serial.run(alone).kernels for s in k.body]
    assert loops != [s for k in plan.kernels for s in k.body]
