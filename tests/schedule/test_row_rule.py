"""What the rules of the targets decide for rows lies in the schedule, and is what the kernels would decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir.rebuild import rebuild
from idgraph.schedule import KernelConfig
from idgraph.testing import fusions
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import NORMS, cross_entropy, rows, safe_logsumexp, weighted_norm
from tests.emit.thread_runner import run_threads
from tests.property.budget import examples

TARGETS = ("cuda", "cpu")


def softmax(shape: tuple[int, int] = (8, 96)) -> ig.Fusion:
    return rows(lambda x: ig.softmax(x, 1), shape)


def groups(x: ig.Tensor) -> ig.Tensor:
    """Rows of 32 columns of a longer one, each divided by its largest."""
    parts = ig.reshape(x, (8, 3, 32))
    return ig.reshape(parts / ig.amax(ig.abs(parts), 2, keepdim=True), (8, 96))


def causal(x: ig.Tensor) -> ig.Tensor:
    at = ig.unsqueeze(x.fusion.iota(x.shape[1]), 0)
    return ig.softmax(ig.where(at > 40, float("-inf"), x), 1)


BUILDS: dict[str, Callable[[], ig.Fusion]] = {
    **{
        f"{name} {dtype} {shape}": lambda name=name, shape=shape, dtype=dtype: rows(NORMS[name], shape, dtype)
        for name in NORMS
        for dtype, shape in (("float32", (33, 7)), ("float32", (64, 65536)), ("bfloat16", (4096, 4096)))
    },
    "loss": lambda: cross_entropy(256, 4096, "mean", gradient=False),
    "loss and gradient": lambda: cross_entropy(256, 4096, "mean", gradient=True),
    "gradient of rows": lambda: cross_entropy(256, 32000, "none", gradient=True),
    "weighted": lambda: weighted_norm((64, 1024), "float16"),
    "safe": lambda: rows(safe_logsumexp, (64, 1024)),
    "groups": lambda: rows(groups, (8, 96)),
    "causal": lambda: rows(causal, (8, 96)),
    "side by side": lambda: rows(lambda x: ig.softmax(x, 0), (96, 64)),
    "other terms": lambda: rows(lambda x: ig.sum(ig.exp(x * 0.5 - ig.amax(x, 1, keepdim=True)), 1), (64, 1024)),
    "two sums": lambda: rows(lambda x: ig.sum(x, 1) + ig.amax(x, 1), (64, 96)),
}


def forget_rules(f: ig.Fusion) -> None:
    """From now on the kernels decide."""
    for t in f.tensors:
        t.forget("by_rule")
        t.ruled = {}


def sources(f: ig.Fusion, target: Any) -> list[str]:
    program = ig.emit(f, target)
    return [program.kernel_source(k) for k in program.kernels]


@pytest.mark.parametrize("name", BUILDS)
def test_the_rule_decides_as_a_kernel_without_facts_does(name: str) -> None:
    """The kernel's own rule reads other things: its statements, value by value."""
    f = BUILDS[name]()
    ig.schedule.auto(f)
    assert " by_rule(" in str(f)
    ruled = [sources(f, target) for target in TARGETS]
    forget_rules(f)
    assert [sources(f, target) for target in TARGETS] == ruled


@settings(max_examples=examples(20), deadline=None)
@given(fusions(), st.sampled_from(TARGETS))
def test_random_fusions_have_the_same_kernels_without_the_rule(f: ig.Fusion, target: Any) -> None:
    t = next((t for t in f.outputs if t.ndim and t.dtype == "float32"), None)
    if t is not None:
        f.output(ig.exp(t - ig.amax(t, t.ndim - 1, keepdim=True)) * ig.sum(t, t.ndim - 1, keepdim=True))
    ig.schedule.auto(f)
    ruled = sources(f, target)
    forget_rules(f)
    assert sources(f, target) == ruled


def test_a_schedule_shows_what_was_decided_and_why() -> None:
    f = softmax((4096, 4096))
    told = ig.schedule.auto(f)
    top = next(t for t in f.tensors if t.definition is not None and t.definition.op == "amax")
    held = '"cuda", persistent=true, online=false, why="each of 256 threads holds 32 values, of 64 at most"'
    assert f"schedule {top.name} row_loops((0,), (1,), threads=256, rows=1, lanes=4)" in str(f)
    assert f"schedule {top.name} by_rule({held})" in str(f)
    assert 'by_rule("cpu", persistent=true, online=false, items_per_thread=256, why="held in arrays: 16384' in str(f)
    assert "on cuda: persistent=true online=false (each of 256 threads holds 32 values" in str(told)
    for copy in (ig.parse(str(f)), rebuild(f)):
        assert str(copy) == str(f) and copy[top.name].ruled == top.ruled
        assert [k.rows for k in ig.emit(copy, "cuda").kernels] == [k.rows for k in ig.emit(f, "cuda").kernels]


@pytest.mark.parametrize(
    "build", [lambda: softmax((512, 4096)), lambda: cross_entropy(256, 32000, "none", gradient=False)]
)
def test_what_the_rule_chose_set_by_hand_gives_the_same_kernel(build: Callable[[], ig.Fusion]) -> None:
    for target in TARGETS:
        f = build()
        ig.schedule.auto(f)
        ruled = sources(f, target)
        for t in f.tensors:
            made = t.ruled[target].made() if t.ruled else {}
            for name, value in made.items():
                getattr(t, name)(value)
        assert any(t.choices.made() for t in f.tensors)
        forget_rules(f)
        assert sources(f, target) == ruled


def right(f: ig.Fusion) -> None:
    inputs = random_inputs(f, 0, {})
    got, wanted = run_threads(ig.emit(f, "cuda"), inputs), evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(
            np.asarray(got[t.name], float), np.asarray(wanted[t.name], float), rtol=2e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    "choices",
    [
        {"persistent": True}, {"persistent": False}, {"persistent": False, "online": False}, {"online": True},
        {"persistent": False, "items_per_thread": 4},
    ],
)  # fmt: skip
def test_other_facts_give_other_kernels_that_are_right(choices: dict[str, Any]) -> None:
    kernels: list[list[str]] = []
    for chosen in ({}, choices):
        f = softmax()
        ig.schedule.auto(f)
        for t in f.tensors:
            if t.ruled:
                made: dict[str, Any] = {**t.ruled["cuda"].made(), **chosen}
                t.by_rule("cuda", **made)
        right(f)
        kernels.append(sources(f, "cuda"))
    assert (kernels[0] == kernels[1]) == (choices in ({"persistent": True}, {"online": True}))


@pytest.mark.parametrize("threads", [8, 32])
@pytest.mark.parametrize(("rows_", "lanes"), [(1, 4), (4, 1)])
def test_row_loops_set_by_hand(threads: int, rows_: int, lanes: int) -> None:
    f = softmax()
    ig.schedule.auto(f)
    config = KernelConfig(threads=threads, rows=rows_)
    g = softmax()
    ig.schedule.auto(g, config=config)
    assert f"threads={threads}, rows={rows_}" in str(g)
    h = ig.Fusion("sum")
    x = h.input("x", shape=(8, 96))
    t = h.output(ig.sum(x, 1)).row_loops((0,), (1,), threads=threads, rows=rows_, lanes=lanes)
    by_steps = rebuild(h)[t.name]
    assert [(str(d.extent), d.parallel) for d in by_steps.loop] == [(str(d.extent), d.parallel) for d in t.loop]
    for made in (g, h):
        right(made)


def test_row_loops_are_the_steps_that_they_stand_for() -> None:
    def made(by_hand: bool) -> list[tuple[str, str]]:
        t = ig.sum(ig.Fusion("f").input("x", shape=(6, 10, 64)), 2)
        if by_hand:
            t.merge(0).split(1, 4).split(1, 8).parallelize(2, "threadIdx.x").parallelize(3, "vectorize")
            t.split(0, 2).parallelize(1, "threadIdx.y").parallelize(0, "blockIdx.x")
        else:
            t.row_loops((0, 1), (2,), threads=8, rows=2, lanes=4)
        return [(str(d.extent), d.parallel) for d in t.loop]

    assert made(by_hand=True) == made(by_hand=False)


def test_a_user_s_choice_stays_when_auto_runs_again() -> None:
    f = softmax((512, 4096))
    sums = [t for t in f.tensors if t.definition is not None and t.definition.is_reduction]
    for t in sums:
        t.persistent(False)
    for _ in range(2):
        ig.schedule.auto(f, config=KernelConfig(persistent=True, items_per_thread=8))
        assert [str(t.choices) for t in sums] == ["persistent=false items_per_thread=8"] * 2
        assert not any(t.ruled for t in sums) and "kept" not in ig.emit(f, "cuda").source
    ig.schedule.auto(f)
    assert [str(t.choices) for t in sums] == ["persistent=false"] * 2


def test_a_rule_is_void_with_other_loops() -> None:
    f = softmax((512, 4096))
    ig.schedule.auto(f)
    t = next(t for t in f.tensors if t.ruled)
    t.split(0, 2)
    assert not t.ruled and f"schedule {t.name} by_rule" not in str(f)


WRONG: list[tuple[Callable[[ig.Tensor], Any], str]] = [
    (lambda t: t.by_rule("tpu", persistent=True), "unknown target 'tpu'"),
    (lambda t: t.by_rule("cuda", items_per_thread=3), "items_per_thread=3"),
    (lambda t: t.row_loops((0,), (0,)), "0 is not a loop of t1, or is named twice"),
    (lambda t: t.row_loops((0,), (7,)), "7 is not a loop of t1"),
    (lambda t: t.row_loops((), ()), "neither a row nor a column"),
    (lambda t: t.row_loops((0,), (1,), threads=3), "threads=3 of row_loops of t1"),
    (lambda t: t.row_loops((0, 1), (2,), lanes=64), "lanes=64"),
    (lambda t: t.row_loops((0,), (1, 2)), "a reduced and a kept axis cannot become one loop"),
]


@pytest.mark.parametrize(("step", "told"), WRONG)
def test_a_wrong_fact_leaves_the_fusion_as_it_was(step: Callable[[ig.Tensor], Any], told: str) -> None:
    f = ig.Fusion("f")
    t = ig.sum(f.input("x", shape=(4, 6, 64)), 2, name="t1")
    f.output(t)
    before, loop = str(f), t.loop
    with pytest.raises(ig.ScheduleError, match="^[^\n]*" + told.replace("(", r"\(")):
        step(t)
    assert str(f) == before and t.loop == loop


def test_a_kernel_shows_the_rule_before_the_pass_that_obeys() -> None:
    f = softmax((512, 4096))
    ig.schedule.auto(f)
    before = next(iter(ig.emit(f, "cuda").kernels))
    text = "kernel k():\n  rule acc1 persistent=false online=true items_per_thread=16: one pass does it\n"
    parsed = ig.kernel.parse(text + '  buffer x: float32[1] output "x"\n  x[0] = 1.0\n')
    assert [(acc, str(c), c.why) for acc, c in parsed.ruled] == [
        ("acc1", "persistent=false online=true items_per_thread=16", "one pass does it")
    ]
    assert ig.kernel.parse(str(parsed)).ruled == parsed.ruled and before.ruled == ()
