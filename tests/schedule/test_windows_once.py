"""Windows between norms: what several kernels need of them is stored once, as narrow as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import idgraph as ig
from idgraph.ir import item_size
from idgraph.runtime import Program

Array = npt.NDArray[Any]
N, C, H = 4, 8, 16


def pooled(x: ig.Tensor, size: int) -> ig.Tensor:
    """Means of 3 x 3 places around each, in float32."""
    p = ig.pad(ig.cast(x, "float32"), [1, 1, 1, 1])
    parts = [p[:, :, i : size + i, k : size + k] for i in range(3) for k in range(3)]
    return sum(parts[1:], parts[0]) / 9.0


def windows_of(x: Array) -> Array:
    p = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    n = x.shape[-1]
    parts = [p[:, :, i : n + i, k : n + k] for i in range(3) for k in range(3)]
    return np.sum(parts, axis=0) / 9.0


def norm_then_windows(size: int, n: int = N, c: int = C) -> ig.Fusion:
    f = ig.Fusion("norm_then_windows")
    x, w = f.input("x", (n, c, size, size)), f.input("w", (c,))
    m = ig.mean(x, (1, 2, 3), keepdim=True)
    v = ig.mean(ig.square(x - m), (1, 2, 3), keepdim=True)
    y = ig.cast((x - m) * ig.rsqrt(v + 1e-5) * ig.reshape(w, (1, c, 1, 1)) + 0.5, "float16")
    f.output(pooled(y, size) - ig.cast(y, "float32"))
    return f


def windows_then_norm(size: int, n: int = N, c: int = C) -> ig.Fusion:
    f = ig.Fusion("windows_then_norm")
    y = pooled(ig.exp(f.input("x", (n, c, size, size), "float16")), size)
    m = ig.mean(y, (1, 2, 3), keepdim=True)
    v = ig.mean(ig.square(y - m), (1, 2, 3), keepdim=True)
    f.output((y - m) * ig.rsqrt(v + 1e-5))
    return f


def run(f: ig.Fusion, **arrays: Array) -> Array:
    return next(iter(ig.emit(f, target="numpy").run(arrays).values()))


def between(program: Program) -> dict[str, int]:
    """Bytes of the large tensors that a program stores between its kernels."""
    tensors = {t.name: t for t in program.fusion.tensors}
    read = {b.title for k in program.kernels for b in k.buffers if b.place == "global"}
    found = {n: int(np.prod([int(d.extent) for d in tensors[n].axes])) * item_size(tensors[n].dtype) for n in read}
    return {n: b for n, b in found.items() if b > 1 << 20}


def test_a_norm_is_stored_once_for_its_windows() -> None:
    """Neither padded, nor shifted, nor widened copies: one tensor of 16 bits."""
    f = norm_then_windows(56, 32, 64)
    ig.schedule.auto(f, device="H200")
    assert list(between(ig.emit(f, target="cuda")).values()) == [2 * 32 * 64 * 56 * 56]


def test_windows_are_computed_once_for_two_kernels() -> None:
    f = windows_then_norm(56, 32, 64)
    ig.schedule.auto(f, device="H200")
    assert list(between(ig.emit(f, target="cuda")).values()) == [4 * 32 * 64 * 56 * 56]


def test_a_row_of_three_passes_is_held() -> None:
    """A softmax of short rows and its mean of them: read once, not once a pass."""
    f = ig.Fusion("rows")
    x = f.input("x", (1 << 19, 64))
    f.output(ig.sum(ig.softmax(x, 1) * x, 1))
    ig.schedule.auto(f, device="H200")
    total = ig.cost(ig.emit(f, target="cuda")).total
    assert total.bytes_asked == total.bytes_read + total.bytes_written


def test_windows_of_a_held_row_stay_in_its_kernel() -> None:
    f = ig.Fusion("row")
    x = f.input("x", (4096, 1024))
    y = ig.pad(x, [1, 1])[:, :1024] + x
    f.output(ig.softmax(y, 1))
    ig.schedule.auto(f, device="H200")
    assert len(ig.emit(f, target="cuda").kernels) == 1


def test_values() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((N, C, H, H)).astype("float32"), rng.standard_normal(C).astype("float32")
    wide = x.astype("float64")
    y = (wide - wide.mean((1, 2, 3), keepdims=True)) / np.sqrt(wide.var((1, 2, 3), keepdims=True) + 1e-5)
    y = (y * w.reshape(1, C, 1, 1) + 0.5).astype("float16").astype("float64")
    f = norm_then_windows(H)
    ig.schedule.auto(f)
    assert np.allclose(run(f, x=x, w=w), windows_of(y) - y, atol=2e-3)
    g = windows_then_norm(H)
    ig.schedule.auto(g)
    half = x.astype("float16")
    z = windows_of(np.exp(half).astype("float64"))
    z = (z - z.mean((1, 2, 3), keepdims=True)) / np.sqrt(z.var((1, 2, 3), keepdims=True) + 1e-5)
    assert np.allclose(run(g, x=half), z, atol=1e-3)
