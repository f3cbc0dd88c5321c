"""Lowered loops name the axis that the schedule split into them, and verify holds them to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import EmitError
from idgraph.ir.device import TargetName
from idgraph.kernel.ir import Accumulate, If, Kernel, KernelModule, Load, Loop, walk
from idgraph.kernel.statements import axis_loops
from idgraph.lower.fusion_to_kernel import lower_fusion
from idgraph.passes import kernel_fusion as fuse_launches
from tests.property.budget import examples


def lowered(f: ig.Fusion) -> Kernel:
    (kernel,) = lower_fusion(f, ig.IdModel(f), threads=True).kernels
    return kernel


def summed(shape: tuple[int, ...], dim: int) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    return f, f.output(ig.sum(f.input("x", shape=shape), dim))


def axes(kernel: Kernel) -> list[tuple[str, int]]:
    """Extent and number of loops of each axis that a kernel's loops name."""
    return [(str(s.column.extent), s.column.loops) for s in walk(kernel.body) if isinstance(s, Loop) and s.column]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_the_loops_of_a_row_visit_each_column_of_their_axis_once(
    count: int, threads: int, lanes: int, rows: int
) -> None:
    """By enumeration: the steps that read are those whose index is below the extent, and the index is the address."""
    f, t = summed((3, count), 1)
    t.row_loops((0,), (1,), threads=threads, rows=rows, lanes=lanes)
    kernel = lowered(f)
    assert axes(kernel) == [(str(count), 3)]
    (first,) = (s for s in walk(kernel.body) if isinstance(s, Loop) and s.column)
    chain = axis_loops(first)
    guards = [s.condition for s in walk(chain[-1].body) if isinstance(s, If)]
    (load,) = (s for s in walk(chain[-1].body) if isinstance(s, Load))
    outside = sorted({n for e in (load.address, *guards) for n in e.names} - {v.var for v in chain})
    seen: list[int] = []
    for digits in product(*(range(int(v.extent)) for v in chain)):
        at = {v.var: d for v, d in zip(chain, digits, strict=True)} | dict.fromkeys(outside, 0)
        column = 0
        for v, d in zip(chain, digits, strict=True):
            column = column * int(v.extent) + d
        if all(g.evaluate(at) for g in guards):
            assert load.address.evaluate(at) == column
            seen.append(column)
    assert seen == list(range(count))


SCHEDULES: dict[str, tuple[Callable[[ig.Tensor], object], list[tuple[str, int]]]] = {
    "no split": (lambda t: t, []),
    "one split": (lambda t: t.split(1, 4), [("30", 2)]),
    "from outside": (lambda t: t.split(1, 4, inner=False), [("30", 2)]),
    "a part split again": (lambda t: t.split(1, 8).split(1, 2), [("30", 3)]),
    "both axes": (lambda t: t.split(0, 2).split(2, 8), [("6", 2), ("30", 2)]),
    "another order": (lambda t: t.split(1, 8).reorder({1: 2}), []),
    "a loop between": (lambda t: t.split(1, 8).reorder({1: 0}), []),
    "blocks": (lambda t: t.split(0, 2).parallelize(0, "blockIdx.x").split(2, 8), [("30", 2)]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_axes_of_schedules(name: str) -> None:
    schedule, wanted = SCHEDULES[name]
    f, t = summed((6, 30), 1)
    schedule(t)
    kernel = lowered(f)
    assert axes(kernel) == wanted
    assert ig.kernel.parse(str(kernel)) == kernel


def test_parts_that_an_operation_made_are_axes_of_their_own() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.sum(ig.reshape(f.input("x", shape=(8, 96)), (8, 3, 32)), 2))
    t.row_loops((0, 1), (2,), threads=4, lanes=4)
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    assert ("32", 3) in axes(lowered(f)) and not any(n == "96" for n, _ in axes(lowered(f)))


@pytest.mark.parametrize(
    ("extent", "problem"), [(29, "it runs at 29, behind the 29 of its column"), (30, ""), (31, "")]
)
def test_verify_finds_what_runs_behind_an_axis(extent: int, problem: str) -> None:
    """A longer axis than the loops need is no fault: the passes keep the tests of its end."""
    f, t = summed((4, 30), 1)
    t.row_loops((0,), (1,), threads=8, lanes=2)
    text = str(lowered(f))
    assert text.count("column 30 of 3") == 1
    kernel = ig.kernel.parse(text.replace("column 30", f"column {extent}"))
    if problem:
        with pytest.raises(EmitError, match=problem):
            kernel.verify()
    else:
        kernel.verify()


STEPS = """kernel k():
  buffer y: float32[3] output "y"
  launch threadIdx.x: 2
  alloc all: float32[2] private "t"
  for i < 2, column 3 of 2:
    for j < 2, threadIdx.x:
      alloc own: float32[1] private "t"
      own[0] = 0.0
      if i*2 + j < 3:
        t: float32 = own[0]
        y[i*2 + j] = t"""


def test_an_array_of_one_step_may_be_set_behind_an_axis() -> None:
    """It is gone with the step; one that the steps share is not."""
    ig.kernel.parse(STEPS).verify()
    with pytest.raises(EmitError, match="it runs at 3, behind the 3 of its column"):
        ig.kernel.parse(STEPS.replace("own[0] = 0.0", "all[0] = 0.0")).verify()


def test_sums_in_parts_of_a_split_axis_are_well_formed() -> None:
    """Each thread sets its parts, also one that has no row."""
    f = ig.Fusion("parts")
    t = ig.amax(f.input("x", shape=(1, 2)), 1, keepdim=True)
    y = f.output(t * 1.0)
    for u in (y, t):
        u.split(0, 2)
    t.split(3, 2, inner=False)
    for u in (y, t):
        u.parallelize(0, "threadIdx.x").parallelize(1, "threadIdx.y")
    t.inline(2).set_memory("shared")
    for target in ("cuda", "cpu"):
        for k in ig.emit(f, target).kernels:
            k.verify()


@pytest.mark.parametrize(("other", "named"), [(30, 1), (29, 0)])
def test_loops_that_are_fused_have_one_axis(other: int, named: int) -> None:
    def kernel(end: int, output: str) -> Kernel:
        return ig.kernel.parse(
            f"""
            kernel k{output}():
              buffer x: float32[120] input "x"
              buffer {output}: float32[120] output "{output}"
              launch blockIdx.x: 4
              for b < 4, blockIdx.x:
                for o < 4, column {end} of 2:
                  for q < 8:
                    if o*8 + q < {end}:
                      v: float32 = x[b*30 + o*8 + q]
                      {output}[b*30 + o*8 + q] = v
            """.replace("\n            ", "\n")
        )

    whole = fuse_launches.fuse_kernels(KernelModule((kernel(other, "y"), kernel(30, "z")), (), {}, {}))
    assert len(whole.kernels) == 1 and str(whole).count("column") == named


def test_rows_held_by_one_nest_and_read_again_by_another_are_read_again() -> None:
    f = ig.Fusion("softmax")
    f.output(ig.softmax(f.input("x", shape=(8, 96)), 1))
    ig.schedule.auto(f)
    first, second = (t for t in f.tensors if t.ruled)
    (kernel,) = ig.emit(f, "cuda").kernels
    assert any("held by" in r for r in kernel.rows)
    second.by_rule("cuda", persistent=False, items_per_thread=8, why="asked for")
    (kernel,) = ig.emit(f, "cuda").kernels
    assert not any("held by" in r for r in kernel.rows) and "8 elements in flight" in kernel.rows[0]
    assert first.ruled["cuda"].persistent and any(isinstance(s, Accumulate) for s in walk(kernel.body))


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("factors", [(1, 2), (3, 2), (4, 3), (5, 4)])
def test_an_inner_part_with_a_rest_is_not_digits_of_the_axis(factors: tuple[int, int], target: TargetName) -> None:
    """0 <= i < n as i0 * a + i1 * b + i2 with i1 * b + i2 < a: the three loops skip numbers between."""
    a, b = factors
    f = ig.Fusion("f")
    x = f.input("x", shape=(30,))
    made = {"y": ig.exp(x), "total": ig.sum(x, 0)}
    f.output(*made.values())
    for t in made.values():
        t.split(0, a).split(1, b)
    program = ig.emit(f, target=target)
    for kernel in program.plan.kernels:
        kernel.verify()
    data = np.arange(30, dtype=np.float32) / 8
    found = program.run({"x": data})
    np.testing.assert_allclose(found[made["y"].name], np.exp(data), rtol=1e-6)
    np.testing.assert_allclose(found[made["total"].name], data.sum(), rtol=1e-6)


@pytest.mark.parametrize("target", ["cpu", "python", "numpy"])
def test_a_part_of_a_cat_that_no_step_reads(target: TargetName) -> None:
    """The loop's ranges leave the part out, and with it the output that it would have been read from."""
    f = ig.Fusion("f")
    x = f.input("x", (4,))
    doubled = f.output(x * 2.0)
    c = ig.cat([x, x, doubled], 0)
    s = c[3:6]
    f.output(ig.tanh(s))
    for t in (s, c.resize(0, -3, -6)):
        t.split(0, 128).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    c.inline(2)
    assert ig.validate(f, target=target).ok
