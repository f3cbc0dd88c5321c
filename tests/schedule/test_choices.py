"""Schedules by a config's choices, and by the rules where nothing is chosen."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir.schedule_log import KernelHints
from idgraph.schedule import KernelConfig
from tests.emit.row_cases import NORMS, cross_entropy, rows


def loops(t: ig.Tensor) -> list[tuple[str, str]]:
    return [(str(d.extent), d.parallel) for d in t.loop]


def rotation(config: KernelConfig) -> ig.Tensor:
    f = ig.Fusion("f")
    x = f.input("x", (64, 128))
    t = f.output(ig.cat([-x[:, 64:], x[:, :64]], dim=1) + x)
    ig.schedule.auto(f, config=config)
    return t


def test_a_thread_has_several_vectors_under_way() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.exp(f.input("x", (4096,))))
    ig.schedule.auto(f, config=KernelConfig(vectors=4))
    assert loops(t) == [("2", "blockIdx.x"), ("128", "threadIdx.x"), ("4", "unroll"), ("4", "vectorize")]


def test_constants_are_written_two_vectors_a_thread_and_loads_are_not() -> None:
    f = ig.Fusion("f")
    constant, loaded = f.output(f.full((4096,), 0.0)), f.output(f.input("x", (4096,)) + 1.0)
    ig.schedule.auto(f)
    assert loops(constant) == [("4", "blockIdx.x"), ("128", "threadIdx.x"), ("2", "unroll"), ("4", "vectorize")]
    assert loops(loaded) == [("8", "blockIdx.x"), ("128", "threadIdx.x"), ("4", "vectorize")]


@pytest.mark.parametrize("vectors", [1, 2])
def test_halves_of_a_rotation_in_one_thread_or_on_threads_of_their_own(vectors: int) -> None:
    more = [("2", "unroll")] if vectors == 2 else []
    blocks = 64 * 16 // (32 * vectors)
    together = loops(rotation(KernelConfig(apart=False, block=32, vectors=vectors)))
    assert together == [(str(blocks), "blockIdx.x"), ("32", "threadIdx.x"), *more, ("2", "unroll"), ("4", "vectorize")]
    apart = loops(rotation(KernelConfig(apart=True, block=64, vectors=vectors)))
    assert apart == [(str(blocks), "blockIdx.x"), ("64", "threadIdx.x"), *more, ("4", "vectorize")]


def kept(f: ig.Fusion, config: KernelConfig) -> bool:
    ig.schedule.auto(f, config=config)
    return "kept" in ig.emit(f, target="cuda").source


def test_a_row_that_is_passed_over_again_stays_in_registers() -> None:
    for form in ("softmax", "layer norm", "rms norm"):
        assert kept(rows(NORMS[form], (8192, 1024)), KernelConfig())
        assert not kept(rows(NORMS[form], (8192, 1024)), KernelConfig(persistent=False))
    assert not kept(rows(NORMS["softmax"], (8192, 100_000)), KernelConfig())  # too long


def test_a_row_that_one_pass_can_do_stays_there_only_when_asked() -> None:
    def loss(gradient: bool) -> ig.Fusion:
        return cross_entropy(8192, 1024, "mean", gradient=gradient, dtype="float32")

    assert not kept(loss(False), KernelConfig())
    assert kept(loss(False), KernelConfig(persistent=True))
    assert kept(loss(True), KernelConfig())


def test_the_config_that_auto_was_given_lies_in_the_schedule() -> None:
    f = rows(NORMS["softmax"], (8, 2048), "float32")
    ig.schedule.auto(f, config=KernelConfig(threads=64, persistent=True, items_per_thread=8, parallel=False))
    once = ig.emit(f, "cuda")
    sums = [t for t in f.tensors if t.choices.persistent is not None]
    assert len(sums) == 2 and all(t.choices == KernelHints(True, None, 8, False) for t in sums)
    assert {k.choices for k in once.kernels} == {KernelHints(True, None, 8, False)}
    again = ig.parse(str(f))
    assert str(again) == str(f) and [k.choices for k in ig.emit(again, "cuda").kernels] == [
        k.choices for k in once.kernels
    ]
    ig.schedule.auto(f)
    assert ig.emit(f, "cuda").source != once.source and not any(t.choices.explicit() for t in f.tensors)


def _softmax(columns: int) -> ig.Fusion:
    f = ig.Fusion("rows")
    f.output(ig.softmax(f.input("x", shape=(512, columns)), 1))
    return f


@pytest.mark.parametrize(
    ("columns", "config", "told"),
    [
        (4096, KernelConfig(), "read once and held by the target's rule: each of 256 threads holds 32 values"),
        (4096, KernelConfig(persistent=True), "read once and held by the schedule: each of 256 threads holds 32"),
        (
            4096,
            KernelConfig(persistent=False),
            "2 passes, sums follow the running maximum by the target's rule; not held: so",
        ),
        (
            4096,
            KernelConfig(persistent=False, online=False),
            "3 passes by the schedule; not held: so says the schedule",
        ),
        (
            65536,
            KernelConfig(),
            "not held: each of the 512 threads of its 65536 columns would hold 256 values, at most 64",
        ),
        (65536, KernelConfig(items_per_thread=8), "; 8 elements in flight by the schedule"),
    ],
)
def test_a_program_tells_what_rows_do_and_why(columns: int, config: KernelConfig, told: str) -> None:
    """Also where the target's rule decides: `choose` shows only what a schedule says."""
    f = _softmax(columns)
    ig.schedule.auto(f, config=config)
    program = ig.emit(f, "cuda")
    (kernel,) = program.kernels
    assert len(kernel.rows) == 1 and told in kernel.rows[0]
    assert f"  row {kernel.rows[0]}\n" in str(kernel) and ig.kernel.parse(str(kernel)).rows == kernel.rows
    assert f"rows of kernel0: {kernel.rows[0]}" in str(program.report)


def test_a_core_tells_what_it_holds_and_why() -> None:
    told = [ig.emit(f, "cpu").kernels[0].rows for f in map(_scheduled, (4096, 1 << 18))]
    assert told == [
        ("3 passes; held in arrays: 16384 bytes a row, 524288 at most, by the target's rule",),
        ("3 passes; computed again: 1048576 bytes a row, 524288 at most, by the target's rule",),
    ]


def _scheduled(columns: int) -> ig.Fusion:
    f = _softmax(columns)
    ig.schedule.auto(f)
    return f
