"""Rows that lie across memory and are written along it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir.device import device_of

Make = Callable[[ig.Fusion, ig.Tensor], list[ig.Tensor]]


def _norm(t: ig.Tensor) -> ig.Tensor:
    gap = t - ig.mean(t, 2, keepdim=True)
    return gap * ig.rsqrt(ig.mean(gap * gap, 2, keepdim=True) + 1e-6)


def _first_layer(f: ig.Fusion, x: ig.Tensor) -> list[ig.Tensor]:
    """A picture's patches, a class token in front, positions, and the norm of the channels."""
    batch, channels, places = (int(d.extent) for d in x.logical)
    token = f.input("token", shape=(1, 1, channels))
    position = f.input("position", shape=(1, places + 1, channels))
    t = ig.cat([ig.expand(token, (batch, 1, channels)), ig.permute(x, (0, 2, 1))], 1) + position
    return [t, _norm(t)]


def _norm_only(f: ig.Fusion, x: ig.Tensor) -> list[ig.Tensor]:
    return [_norm(ig.permute(ig.exp(x), (0, 2, 1)))]


def _softmax(f: ig.Fusion, x: ig.Tensor) -> list[ig.Tensor]:
    return [ig.softmax(ig.permute(x, (0, 2, 1)) * 0.5, 2)]


def _converted(f: ig.Fusion, x: ig.Tensor) -> list[ig.Tensor]:
    return [ig.cast(_norm(ig.cast(ig.cast(ig.permute(x, (0, 2, 1)), "float16"), "float32")), "float16")]


def _permuted_after(f: ig.Fusion, x: ig.Tensor) -> list[ig.Tensor]:
    t = ig.cast(ig.exp(x), "float16")
    wide = ig.cast(t, "float32")
    return [ig.cast(ig.permute(wide * ig.rsqrt(ig.mean(wide * wide, 1, keepdim=True)), (0, 2, 1)), "float16")]


CASES: tuple[tuple[Make, int], ...] = (
    (_first_layer, 2),
    (_norm_only, 1),
    (_softmax, 1),
    (_converted, 2),
    (_permuted_after, 2),
)
NAMES = [m.__name__.strip("_") for m, _ in CASES]


def _fusion(make: Make, shape: tuple[int, int, int], columns_inner: bool = True) -> ig.Fusion:
    f = ig.Fusion("f")
    for t in make(f, f.input("x", shape=shape)):
        f.output(t)
        batch, places, channels = t.logical
        t.set_allocation([batch, places, channels] if columns_inner else [batch, channels, places])
    return f


@pytest.mark.parametrize(("make", "kernels"), CASES, ids=NAMES)
def test_rows_are_stored_along_memory_where_that_takes_less_time(make: Make, kernels: int) -> None:
    """Norms of float32 take as long either way on an H200; two results, or 16 bits, do not."""
    f = _fusion(make, (16, 768, 256))
    ig.schedule.auto(f, device="H200")
    program = ig.emit(f, target="cuda")
    assert len(program.kernels) == kernels
    if kernels == 2:
        total = ig.cost(program, device="H200").total
        assert total.sectors * 32 < 2 * total.bytes_moved


@pytest.mark.parametrize("make", [m for m, _ in CASES], ids=NAMES)
def test_rows_that_are_written_as_they_are_read_stay(make: Make) -> None:
    f = _fusion(make, (16, 768, 256), columns_inner=False)
    ig.schedule.auto(f, device="H200")
    assert len(ig.emit(f, target="cuda").kernels) == 1


@pytest.mark.parametrize("make", [m for m, _ in CASES], ids=NAMES)
def test_values(make: Make) -> None:
    """On a device whose launches cost nothing all are stored first."""
    quick = replace(device_of("H200"), launch_us=1e-6)
    given: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    plain, staged = (_fusion(make, (3, 40, 21)) for _ in range(2))
    for t in plain.inputs:
        given[t.name] = rng.standard_normal([int(d.extent) for d in t.logical]).astype("float32")
    ig.schedule.auto(staged, device=quick)
    assert len(ig.emit(staged, target="cuda").kernels) == 2
    wanted = ig.emit(plain, target="numpy").run(given)
    got = ig.emit(staged, target="cpu").run(given)
    for a, b in zip(plain.outputs, staged.outputs, strict=True):
        np.testing.assert_allclose(got[b.name], wanted[a.name], rtol=5e-3, atol=1e-3)


# stored, or computed again by other kernels -----------------------------------------------------------------------


def _norm_in_windows(batch: int, side: int, channels: int) -> ig.Fusion:
    """The norm of the channels, then windows of a picture that has been rolled."""
    f = ig.Fusion("windows")
    x = ig.cast(f.input("x", (batch, side, side, channels), "bfloat16"), "float32")
    gap = x - ig.mean(x, 3, keepdim=True)
    y = ig.roll(gap * ig.rsqrt(ig.mean(gap * gap, 3, keepdim=True) + 1e-6), (-1, -1), (1, 2))
    y = ig.reshape(y, (batch, side // 4, 4, side // 4, 4, channels))
    f.output(ig.copy(ig.permute(y, (0, 1, 3, 2, 4, 5))))
    ig.schedule.auto(f)
    return f


def _cosines(batch: int, rows: int, columns: int) -> ig.Fusion:
    f = ig.Fusion("pairs")
    x = f.input("x", (batch, rows, columns))
    n = x / ig.sqrt(ig.sum(x * x, 2, keepdim=True))
    f.output(ig.sum(ig.unsqueeze(n, 2) * ig.unsqueeze(n, 1), 3))
    ig.schedule.auto(f)
    return f


def _stored(f: ig.Fusion) -> dict[str, int]:
    """Elements of the tensors between kernels."""
    p = ig.emit(f, "cuda")
    return {b.title: int(b.size) for k in p.kernels for b in k.buffers if b.place == "global"}


def test_what_a_reduction_and_another_kernel_read_is_computed_by_both() -> None:
    """The gap to the mean: two numbers of a row are stored, not the gaps."""
    assert set(_stored(_norm_in_windows(32, 56, 192)).values()) == {32 * 56 * 56}


def test_what_pairs_of_rows_divide_by_is_divided_once() -> None:
    """512 pairs of each row would divide each of its elements again."""
    assert list(_stored(_cosines(64, 512, 64)).values()) == [64 * 512 * 64]


def test_values_of_what_is_computed_again_or_once() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 8, 8, 16)).astype("float32")
    import ml_dtypes  # numpy has no bfloat16

    short = x.astype(ml_dtypes.bfloat16)
    wide = short.astype("float64")
    y = (wide - wide.mean(3, keepdims=True)) / np.sqrt(wide.var(3, keepdims=True) + 1e-6)
    y = np.roll(y, (-1, -1), (1, 2)).reshape(2, 2, 4, 2, 4, 16).transpose(0, 1, 3, 2, 4, 5)
    (found,) = ig.emit(_norm_in_windows(2, 8, 16), "numpy").run({"x": short}).values()
    np.testing.assert_allclose(np.asarray(found, "float64"), y, atol=1e-5)
    z = x.reshape(2, 64, 16).astype("float64")
    n = z / np.sqrt((z * z).sum(2, keepdims=True))
    (found,) = ig.emit(_cosines(2, 64, 16), "numpy").run({"x": x.reshape(2, 64, 16)}).values()
    np.testing.assert_allclose(np.asarray(found, "float64"), n @ n.transpose(0, 2, 1), atol=1e-5)


def test_rows_of_one_element_that_five_divides() -> None:
    """All rows are one element: a thread takes a power of two of them, though five divides their number too."""
    f = ig.Fusion("f")
    x = f.input("x", (1500, 1, 1), strides=(0, 1, 1))
    f.output(x - ig.amax(x, 1, keepdim=True))
    ig.schedule.auto(f, device="H200")
    assert ig.validate(f, target="numpy").ok
