"""Schedules by a config's choices, and by the rules where nothing is chosen."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir.choices import Choices
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
    assert len(sums) == 2 and all(t.choices == Choices(True, None, 8, False) for t in sums)
    assert {k.choices for k in once.kernels} == {Choices(True, None, 8, False)}
    again = ig.parse(str(f))
    assert str(again) == str(f) and [k.choices for k in ig.emit(again, "cuda").kernels] == [
        k.choices for k in once.kernels
    ]
    ig.schedule.auto(f)
    assert ig.emit(f, "cuda").source != once.source and not any(t.choices.made() for t in f.tensors)
