"""Reductions of few results in two stages: parts on blocks, then the parts; the definition's values, no atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.kernel.ir import Accumulate, walk
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import rows

Form = Callable[[Any], Any]


def cancelling(x: ig.Tensor) -> ig.Tensor:
    return ig.sum(x * 1000.0)


CASES: dict[str, tuple[Form, tuple[int, ...]]] = {
    "one axis": (lambda x: ig.sum(x), (1 << 17,)),
    "odd": (lambda x: ig.sum(x), (100_003,)),
    "axes": (lambda x: ig.mean(x), (300, 1000)),
    "small axes": (cancelling, (20_011, 7)),
    "few rows": (lambda x: ig.amax(x, 1), (3, 1 << 16)),
    "kept axes": (lambda x: x - ig.amax(x, (1, 2), keepdim=True), (2, 300, 300)),
    "any": (lambda x: ig.any(x > 1.2499, (0, 1)), (2, 1 << 16)),
    "kept between": (lambda x: ig.sum(x, (0, 2, 3)), (64, 2, 32, 32)),
    "kept between, one long axis": (lambda x: ig.mean(x, (0, 2), keepdim=True), (2, 2, 1 << 16)),
}


def staged(name: str) -> ig.Fusion:
    form, shape = CASES[name]
    f = rows(form, shape)
    ig.schedule.auto(f)
    return f


@pytest.mark.parametrize("name", CASES)
def test_parts_run_on_blocks(name: str) -> None:
    f = staged(name)
    reductions = [e for e in f.exprs if e.is_reduction]
    parts = int(np.prod([int(n) for n in reductions[0].output.shape]))
    assert 128 <= parts <= 2048
    program = ig.emit(f, target="cuda")
    (first,) = (int(e) for e in program.kernels[0].launch["blockIdx.x"])
    assert first >= 16  # not one block for all of it
    for k in program.kernels:
        assert not any(isinstance(s, Accumulate) and s.shared for s in walk(k.body))
    assert "atomic" not in program.source


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_values_and_addresses(name: str) -> None:
    report = ig.validate(staged(name), target="cpu")
    assert report.ok, report


def test_a_kept_leading_axis_stays_in_front() -> None:
    f = ig.Fusion("f")
    x = f.input("x", (3000, 2))
    y = f.output(x - ig.amax(x, 0, keepdim=True))
    ig.schedule.auto(f)
    assert [int(n) for n in y.shape] == [3000, 2]
    assert ig.validate(f, target="numpy").ok


def test_a_sum_of_what_cancels_is_rounded_once() -> None:
    f = rows(cancelling, (1 << 16,))
    x = {"x": np.random.default_rng(3).normal(size=1 << 16).astype(np.float32)}
    want = evaluate(f, x, rounded=False)[f.outputs[0].name]
    ig.schedule.auto(f)
    found = ig.emit(f, target="cpu").run(x)[f.outputs[0].name]
    products = (x["x"] * np.float32(1000.0)).astype(np.float64)
    assert found == np.float32(np.sum(products)) or abs(found - np.sum(products)) <= np.spacing(np.float32(want))


def test_the_result_is_the_same_every_time() -> None:
    f = staged("odd")
    program = ig.emit(f, target="cpu")
    x = {"x": np.random.default_rng(0).normal(size=100_003).astype(np.float32)}
    results = {program.run(x)[f.outputs[0].name].tobytes() for _ in range(5)}
    assert len(results) == 1


# Short, of many results, over columns of many neighbours.
@pytest.mark.parametrize(("dim", "shape"), [(0, (4096,)), (1, (64, 1 << 16)), (0, (1 << 12, 1 << 14))])
def test_others_stay_as_they_are(dim: int, shape: tuple[int, ...]) -> None:
    f = rows(lambda x: ig.sum(x, dim), shape)
    before = [e.op for e in f.exprs]
    ig.schedule.auto(f)
    assert [e.op for e in f.exprs] == before


def test_twice_is_once() -> None:
    f = staged("axes")
    ops = [e.op for e in f.exprs]
    ig.schedule.auto(f)
    assert [e.op for e in f.exprs] == ops and f.outputs[0].dtype == "float32"


@pytest.mark.parametrize("explicit", [False, True])
def test_casts_of_weights_belong_to_the_rows(explicit: bool) -> None:
    f = ig.Fusion("norm")
    x, w = f.input("x", shape=(6, 40), dtype="bfloat16"), f.input("w", shape=(40,), dtype="bfloat16")
    wide, weight = ig.cast(x, "float32"), ig.cast(w, "float32") + 1.0
    scaled = wide * ig.rsqrt(ig.mean(ig.square(wide), 1, keepdim=True) + 1e-5)
    f.output(ig.cast(scaled * (ig.unsqueeze(weight, 0) if explicit else weight), "bfloat16"))
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 1
    assert ig.validate(f, target="numpy").ok


def packed(f: ig.Fusion) -> None:
    x = f.input("x", (24, 4, 32), dtype="bfloat16")
    wide = ig.cast(x, "float32")
    scale = ig.maximum(ig.amax(ig.abs(wide), 2, keepdim=True), 1e-6) / 7.0
    q = ig.cast(ig.minimum(ig.maximum(ig.round(wide / scale), -8), 7), "int32") + 8
    f.output(ig.cast(ig.bitwise_or(q[:, :, :16], q[:, :, 16:] * 16), "uint8"))


def divided(f: ig.Fusion) -> None:
    g = f.input("g", (48, 40))
    u = g * ig.rsqrt(ig.mean(g * g, 0, keepdim=True))
    f.output(u / ig.sqrt(ig.mean(u * u)))


def expected_places(f: ig.Fusion) -> None:
    p = ig.reshape(ig.softmax(ig.reshape(f.input("x", (6, 5, 24, 32)), (6, 5, 768)), 2), (6, 5, 24, 32))
    for dim in (2, 3):
        f.output(ig.sum(p, dim))


@pytest.mark.parametrize("build", [packed, divided, expected_places])
def test_what_only_others_read_is_computed_there(build: Callable[[ig.Fusion], None]) -> None:
    f = ig.Fusion("f")
    build(f)
    ig.schedule.auto(f)
    largest = max(int(np.prod([int(n) for n in t.shape])) for t in f.inputs)
    stored = [t for t in f.tensors if t.definition is not None and not f.is_output(t) and not t.inline_position]
    assert stored and all(np.prod([int(n) for n in t.shape]) < largest for t in stored)
    assert ig.validate(f, target="numpy").ok
    assert ig.validate(f, target="python").ok


def test_what_takes_more_to_compute_again_is_stored() -> None:
    f = ig.Fusion("f")
    x, y, z = (f.input(n, (48, 40)) for n in "xyz")
    p = ig.softmax(x * y + z, 1)
    f.output(p[:, :20] + p[:, 20:])
    ig.schedule.auto(f)
    assert any(t.definition is not None and t.shape == (48, 40) and not t.inline_position for t in f.tensors)
    assert ig.validate(f, target="numpy").ok


@pytest.mark.parametrize(("shape", "dim"), [((1 << 16,), 0), ((3, 1 << 17), 1), ((1 << 15, 5), 0)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_few_long_scans_go_in_parts(shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    f = ig.Fusion("running")
    t = f.output(ig.cumsum(f.input("x", shape, dtype), dim))
    ig.schedule.auto(f)
    assert sum(e.op == "cumsum" for e in f.exprs) == 2
    x = (np.random.default_rng(0).random(shape) * 100 - 50).astype(dtype)
    if dtype == "float32":
        x[(..., -3) if dim == x.ndim - 1 else (-3, 0)] = np.inf  # what comes before it stays finite
    want = x.astype(np.float64 if dtype == "float32" else np.int64).cumsum(dim)
    (got,) = ig.emit(f, "numpy").run({"x": x}).values()
    assert np.asarray(got).dtype == t.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6, atol=1e-4)


def test_few_long_rows_with_functions_are_not_left_to_a_block_each() -> None:
    """A spectrogram's largest logarithm, and all of it above a share of that: neither the maximum nor the writing."""
    f = ig.Fusion("spectrogram")
    y = ig.log(ig.maximum(ig.abs(f.input("x", (64, 240_000))), 1e-10))
    f.output(ig.maximum(y, ig.amax(y, 1, keepdim=True) - 8.0))
    ig.schedule.auto(f, device="H200")
    kernels = ig.cost(ig.emit(f, "cuda")).kernels
    assert all(k.blocks > 132 for k in kernels if k.bytes_moved > 1 << 20) and len(kernels) == 3
