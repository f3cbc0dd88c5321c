"""Schedules that emit refuses: `Fusion.verify` says so first, of the same targets and in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

import idgraph as ig
from idgraph.ir.device import TargetName

ALL = tuple(sorted(get_args(TargetName)))
GPU = ("cuda",)
Steps = Callable[[ig.Fusion], object]


def chain(*shape: int) -> ig.Fusion:
    """The output y = exp(t), t = sin(x)."""
    f = ig.Fusion("f")
    f.output(ig.exp(ig.sin(f.input("x", shape), name="t"), name="y"))
    return f


def on(f: ig.Fusion, *parallel: str, names: str = "ty") -> None:
    """The first loops of these tensors on blocks and threads."""
    for name in names:
        for axis, how in enumerate(parallel):
            f[name].parallelize(axis, how)


def reduced(f: ig.Fusion, op: Any = ig.sum, **kwargs: Any) -> Any:
    """An output more: t, reduced along its last axis."""
    return f.output(op(f["t"], 1, name="s", **kwargs))


def flipped(f: ig.Fusion, axis: int, memory: str) -> None:
    """An output more, z, reads t backward; t is in this memory, in the loop that both have on blocks."""
    f.output(ig.flip(f["t"], axis, name="z"))
    f["t"].set_memory(memory)
    on(f, "blockIdx.x", "threadIdx.x", names="tyz")
    f["t"].inline(1)


CASES: dict[str, tuple[tuple[int, ...], Steps, tuple[str, ...]]] = {
    "vectors not innermost": ((64, 64), lambda f: f["y"].parallelize(0, "vectorize"), ALL),
    "vectors between serial loops": ((8, 16), lambda f: f["y"].split(1, 4).parallelize(1, "vectorize"), ALL),
    "threads in x": ((64, 2048), lambda f: f["y"].parallelize(1, "threadIdx.x"), GPU),
    "threads in z": ((128, 4), lambda f: f["y"].parallelize(0, "threadIdx.z"), GPU),
    "threads in all": ((64, 64), lambda f: on(f, "threadIdx.y", "threadIdx.x", names="y"), GPU),
    "blocks in y": ((70000, 4), lambda f: f["y"].parallelize(0, "blockIdx.y"), GPU),
    "blocks in z": ((70000, 4), lambda f: f["y"].parallelize(0, "blockIdx.z"), GPU),
    "sum over blocks": ((64, 64), lambda f: reduced(f).parallelize(1, "blockIdx.x"), ALL),
    "product over blocks": ((64, 64), lambda f: reduced(f, ig.prod).parallelize(1, "blockIdx.y"), ALL),
    "maximum over blocks": ((64, 64), lambda f: reduced(f, ig.amax).parallelize(1, "blockIdx.z"), ALL),
    "scan over blocks": ((64, 64), lambda f: reduced(f, ig.cumsum).parallelize(1, "blockIdx.x"), ALL),
    "shared, too large": ((256, 1024), lambda f: (on(f, "serial", "threadIdx.x"), f["t"].set_memory("shared")), GPU),
    "shared, between kernels": ((64, 64), lambda f: f["t"].set_memory("shared"), GPU),
    "shared output": ((64, 64), lambda f: f["y"].set_memory("shared"), GPU),
    "shared, other blocks": ((64, 64), lambda f: flipped(f, 0, "shared"), ALL),
    "local, between kernels": ((64, 64), lambda f: f["t"].set_memory("local"), ALL),
    "local output": ((64, 64), lambda f: f["y"].set_memory("local"), ALL),
    "local, other threads": ((64, 64), lambda f: flipped(f, 1, "local"), ALL),
    "split after inline": ((64, 64), lambda f: (f["t"].inline(2), f["y"].split(1, 8)), ALL),
    "outer split after inline": ((64, 64), lambda f: (f["t"].inline(1), f["y"].split(0, 8, inner=False)), ALL),
    "merge after inline": ((64, 64), lambda f: (f["t"].inline(2), f["y"].merge(0)), ALL),
    "reorder after inline": ((64, 64), lambda f: (f["t"].inline(2), f["y"].reorder({0: 1})), ALL),
    "swizzle after inline": ((64, 64), lambda f: (f["t"].inline(2), f["y"].swizzle("xor", 0, 1)), ALL),
    "roll after inline": ((64, 64), lambda f: (f["t"].inline(2), f["y"].roll(1, 3)), ALL),
    "resize after inline": ((64, 64), lambda f: (f["t"].inline(2), f["t"].resize(0, 1, 1)), ALL),
    "one loop, two ways": (
        (64, 64), lambda f: (f["t"].inline(2), on(f, "blockIdx.x", names="y"), on(f, "threadIdx.y", names="t")), ALL,
    ),
    "a row too few": ((64, 64), lambda f: f["y"].resize(0, -1, 0), ALL),
    "three columns too few": ((64, 64), lambda f: f["t"].resize(1, 0, -3), ALL),
    "a row too few, split": ((64, 64), lambda f: f["y"].resize(0, 0, -1).split(0, 7), ALL),
    "strict, rows of 50": ((64, 50), lambda f: f["y"].split(1, 4).vectorize(2, strict=True), GPU),
    "strict, rows of 63": ((64, 63), lambda f: f["y"].split(1, 2).vectorize(2, strict=True), GPU),
    "strict, three": ((64, 48), lambda f: f["y"].split(1, 3).vectorize(2, strict=True), GPU),
    "strict, across rows": ((64, 64), lambda f: f["y"].reorder({0: 1}).split(1, 4).vectorize(2, strict=True), GPU),
    "strict, inlined": ((64, 50), lambda f: (f["y"].split(1, 4), ig.schedule.like(f, f["y"]),
                        f["t"].inline(3), f["y"].vectorize(2, strict=True)), GPU),
    "a row too long to keep": ((4, 100000), lambda f: reduced(f).persistent(), GPU),
    "loops of an input": ((64, 64), lambda f: f["x"].split(0, 2), ALL),
    "no sums of exp": ((64, 64), lambda f: reduced(f).online(), GPU),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verify_refuses_what_emit_refuses(name: str) -> None:
    shape, steps, targets = CASES[name]
    f = chain(*shape)
    steps(f)
    report = f.verify()
    emitted: dict[str, tuple[object, ...]] = {}
    lines = set[bool]()
    for target in ALL:
        try:
            ig.emit(f, target)  # type: ignore[arg-type]
        except ig.IdGraphError as error:
            emitted[target] = error.what, error.because, error.hint
            lines.add("test_refused_early.py:" in str(error))
    assert tuple(sorted(emitted)) == targets and lines == {True}
    assert {t: (e.what, e.because, e.hint) for t, e in report.refusals.items()} == emitted
    assert not report.ok and all(str(what) in str(report) for what, *_ in emitted.values())


NEVER: tuple[Steps, ...] = (
    lambda f: f["y"].parallelize(1, "threadIdx.x"), lambda f: f["y"].parallelize(2, "unroll"),
    lambda f: f["y"].swizzle("xor", 0, 1), lambda f: f["y"].split(0, 0), lambda f: f["y"].merge(1),
    lambda f: f["y"].set_loop([f["y"].logical[0]]), lambda f: f["t"].set_allocation([f["t"].logical[0]]),
    lambda f: f["y"].reorder({0: 2}), lambda f: f["t"].inline(3), lambda f: f["y"].parallelize(0, "warp"),
    lambda f: f["y"].set_memory("registers"), lambda f: f["y"].items_per_thread(2),
)  # fmt: skip


@pytest.mark.parametrize("steps", NEVER)
def test_a_step_that_can_never_be_right_is_refused_at_once(steps: Steps) -> None:
    f = chain(8, 6)
    f["y"].parallelize(0, "threadIdx.x")
    before = str(f)
    with pytest.raises(ig.ScheduleError):
        steps(f)
    assert str(f) == before
