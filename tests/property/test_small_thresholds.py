"""Passes and schedules with small thresholds: what is made for large tensors is right, tried on small ones.

Rows of thousands, and rows enough for all processors of a device, are more than random tests have. Here the numbers
from which a pass or a schedule does something are a few elements. A core's kernels are printed as plain Python, a
GPU's run thread by thread; both are compared with the operations themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.ir.device import devices, use_device
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes import loop_flattening as collapse
from idgraph.passes import loop_interchange as interchange
from idgraph.passes import loop_partition as unswitch
from idgraph.passes import pipeline as table
from idgraph.passes import unroll_and_jam as jam
from idgraph.passes.rows import persistent as registers
from idgraph.passes.rows import reduction_codegen as core_loops
from idgraph.passes.rows import reduction_codegen as row_kernels
from idgraph.passes.rows import vector_chunks as chunks
from idgraph.runtime import Program
from idgraph.schedule import access_strides as follow
from idgraph.schedule import pointwise_tiling as references
from idgraph.schedule import reduction_persistence as row_rule
from idgraph.schedule import reduction_tiling as row_shapes
from idgraph.testing import fusions, scheduled_fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.thread_runner import run_threads
from tests.property.budget import examples

CORE: dict[ModuleType, dict[str, int]] = {
    collapse: {"LEAST": 2, "BLOCKS": 2, "COLUMNS": 12},
    interchange: {"LEAST": 2, "ROWS": 3, "BLOCKS": 2, "STEPS": 2},
    unswitch: {"LEAST_UNSWITCHED": 2},
    core_loops: {"LEAST": 5, "LONG": 16, "STEP": 4},
}
DEVICE: dict[ModuleType, dict[str, int]] = {
    row_shapes: {"LEAST_COLUMNS": 2, "REDUCING_THREADS": 4, "WRITING_THREADS": 8, "BLOCK": 4},
    follow: {"LANES": 4, "LONG_ROW": 8, "LEAST_VECTORS": 1},
    references: {"BLOCK": 4, "GATHER_BLOCK": 8},
    jam: {"COLUMNS": 2},
    chunks: {"FEW": 2, "SERIAL_CHUNK": 2},
    row_kernels: {"IN_FLIGHT": 2, "UNROLLED": 2, "UNROLLED_STORES": 2},
    registers: {"HELD": 4},
    row_rule: {"HELD": 4, "UNROLLED": 2, "UNROLLED_BESIDE": 2, "UNROLLED_STORES": 2, "IN_FLIGHT": 2},
}


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    core, card = devices["cpu"], devices["H200"]
    near = tuple((256 * core.processors, rate) for _, rate in core.levels)
    with (
        pytest.MonkeyPatch.context() as patch,
        use_device(replace(core, levels=near)),
        use_device(replace(card, processors=1, threads=2, blocks=1)),
    ):
        for module, numbers in (*CORE.items(), *DEVICE.items()):
            for name, number in numbers.items():
                assert getattr(module, name) > number, f"{module.__name__}.{name} is small already"
                patch.setattr(module, name, number)
        yield


PASSES = table.TABLE["cpu"]


def equal(f: Fusion, found: dict[str, Any], inputs: dict[str, Any]) -> None:
    wanted = evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(found[t.name].astype(float), np.asarray(wanted[t.name], float), rtol=2e-5, atol=2e-4)


def on_a_core(f: Fusion) -> None:
    inputs = random_inputs(f, 0, {})
    try:
        plan = lower_fusion(f, ig.IdModel(f), threads=False, rule="cpu")
    except ig.ScheduleError:
        reject()
    plan = table.run(plan, PASSES)
    note("\n".join(str(k) for k in plan.kernels))
    equal(f, Program(f, "python", plan).run(inputs, poison=True), inputs)


def on_threads(f: Fusion) -> None:
    inputs = random_inputs(f, 0, {})
    program = ig.emit(f, "cuda")
    note("\n".join(str(k) for k in program.plan.kernels))
    equal(f, run_threads(program, inputs), inputs)


@settings(max_examples=examples(60), deadline=None)
@given(scheduled_fusions())
def test_a_core_computes_scheduled_fusions(f: Fusion) -> None:
    note(str(f))
    on_a_core(f)


@st.composite
def cut_rows(draw: st.DrawFn) -> Fusion:
    """All axes of one output as one, cut into blocks and threads; the rest follows as far as it may."""
    f = draw(fusions(max_steps=4))
    moved = [t for t in f.outputs if t.loop and t.definition is not None and not t.definition.is_reduction]
    t = draw(st.sampled_from(moved)) if moved else reject()
    for _ in t.loop[1:]:
        t.merge(0)
    ways = draw(st.sampled_from([("blockIdx.x", "threadIdx.x"), ("blockIdx.x", "threadIdx.x", "vectorize")]))
    for k, _ in enumerate(ways[1:]):
        t.split(k, draw(st.integers(2, 8)))
    for k, way in enumerate(ways):
        t.parallelize(k, way)
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    return f


@settings(max_examples=examples(200), deadline=None)
@given(cut_rows())
def test_a_core_computes_cut_rows(f: Fusion) -> None:
    note(str(f))
    on_a_core(f)


@settings(max_examples=examples(60), deadline=None)
@given(fusions(max_steps=8))
def test_a_core_computes_what_is_scheduled_automatically(f: Fusion) -> None:
    ig.schedule.auto(f)
    note(str(f))
    on_a_core(f)


@settings(max_examples=examples(40), deadline=None)
@given(fusions(max_steps=8))
def test_threads_compute_what_is_scheduled_automatically(f: Fusion) -> None:
    ig.schedule.auto(f)
    note(str(f))
    on_threads(f)
