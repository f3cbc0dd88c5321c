"""Kernels of the kinds that models are made of beside those of `tools.programs.gpu_rows`, at the sizes of real models.

Nobody tuned for these: `tools.bench.compile_time` asks what their source costs the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

import idgraph as ig
from idgraph.ir import DType

Build = Callable[[], ig.Fusion]


def _wide(f: ig.Fusion, name: str, shape: tuple[int, ...], dtype: DType = "bfloat16") -> ig.Tensor:
    return ig.cast(f.input(name, shape=shape, dtype=dtype), "float32")


def _narrow(f: ig.Fusion, *outputs: ig.Tensor) -> ig.Fusion:
    for t in outputs:
        f.output(ig.cast(t, "bfloat16"))
    return f


def _turned(x: ig.Tensor) -> ig.Tensor:
    half = int(x.shape[-1]) // 2
    return ig.cat([-x[..., half:], x[..., :half]], dim=-1)


def rope_partial() -> ig.Fusion:
    """RoPE of the first 32 of 80 elements of each head."""
    f = ig.Fusion("RoPE, partial")
    x = f.input("x", shape=(2, 32, 2048, 80), dtype="bfloat16")
    cos, sin = (f.input(n, shape=(1, 1, 2048, 32), dtype="bfloat16") for n in ("cos", "sin"))
    part = x[..., :32]
    f.output(ig.cat([part * cos + _turned(part) * sin, x[..., 32:]], dim=-1))
    return f


def rope_sections() -> ig.Fusion:
    """RoPE whose columns take their angles from three streams of positions."""
    f = ig.Fusion("RoPE, sections")
    x = f.input("x", shape=(2, 28, 2048, 128), dtype="bfloat16")
    tables = [f.input(n, shape=(3, 2, 1, 2048, 128), dtype="bfloat16") for n in ("cos", "sin")]
    cuts = (0, 16, 40, 64, 80, 104, 128)

    def chosen(t: ig.Tensor) -> ig.Tensor:
        return ig.cat([t[k % 3][..., a:b] for k, (a, b) in enumerate(pairwise(cuts))], dim=-1)

    cos, sin = map(chosen, tables)
    f.output(x * cos + _turned(x) * sin)
    return f


def sum_leading() -> ig.Fusion:
    """Sum over the leading axis: the gradient of a bias."""
    f = ig.Fusion("sum over the leading axis")
    f.output(ig.sum(f.input("x", shape=(16384, 4096)), 0))
    return f


def mean_middle() -> ig.Fusion:
    """Mean over a middle axis."""
    f = ig.Fusion("mean over a middle axis")
    return _narrow(f, ig.mean(_wide(f, "x", (64, 512, 1024)), 1))


def running_sum() -> ig.Fusion:
    """Running sums along rows."""
    f = ig.Fusion("running sums")
    f.output(ig.cumsum(f.input("x", shape=(8192, 2048)), 1))
    return f


def bags() -> ig.Fusion:
    """Eight rows of a table, weighted and summed."""
    f = ig.Fusion("bags")
    ids, weight = f.input("ids", shape=(16384, 8), dtype="int64"), f.input("weight", shape=(16384, 8))
    rows = ig.embedding(ids, f.input("table", shape=(50000, 256)))
    f.output(ig.sum(rows * ig.unsqueeze(weight, 2), 1))
    return f


def table_norm() -> ig.Fusion:
    """Rows of a table of words and of one of places, added and normalised."""
    f = ig.Fusion("two tables and norm")
    ids = f.input("ids", shape=(32, 512), dtype="int64")
    words, places = f.input("words", shape=(30000, 768)), f.input("places", shape=(512, 768))
    x = ig.embedding(ids, words) + ig.unsqueeze(places, 0)
    apart = x - ig.mean(x, 2, keepdim=True)
    scale = ig.rsqrt(ig.mean(ig.square(apart), 2, keepdim=True) + 1e-12)
    f.output(apart * scale * f.input("weight", shape=(768,)) + f.input("bias", shape=(768,)))
    return f


def residual_norm() -> ig.Fusion:
    """Residual and layer norm, both results wanted."""
    f = ig.Fusion("residual and layer norm")
    x = _wide(f, "x", (16384, 4096)) + _wide(f, "r", (16384, 4096))
    apart = x - ig.mean(x, 1, keepdim=True)
    normed = apart * ig.rsqrt(ig.mean(ig.square(apart), 1, keepdim=True) + 1e-5)
    return _narrow(f, x, normed * _wide(f, "weight", (4096,)) + _wide(f, "bias", (4096,)))


def norm_gradient() -> ig.Fusion:
    """The gradient of rms norm by its input."""
    f = ig.Fusion("gradient of rms norm")
    x, g = _wide(f, "x", (16384, 4096)), _wide(f, "g", (16384, 4096))
    scale = ig.rsqrt(ig.mean(ig.square(x), 1, keepdim=True) + 1e-6)
    w = g * _wide(f, "weight", (4096,))
    return _narrow(f, scale * (w - x * scale * scale * ig.mean(w * x, 1, keepdim=True)))


def group_norm() -> ig.Fusion:
    """Norm over groups of channels, NCHW."""
    f = ig.Fusion("group norm")
    x = ig.reshape(_wide(f, "x", (16, 320, 64, 64)), 16, 32, 10 * 64 * 64)
    apart = x - ig.mean(x, 2, keepdim=True)
    normed = ig.reshape(apart * ig.rsqrt(ig.mean(ig.square(apart), 2, keepdim=True) + 1e-5), 16, 320, 64, 64)
    weight, bias = (ig.reshape(_wide(f, n, (320,)), 1, 320, 1, 1) for n in ("weight", "bias"))
    return _narrow(f, normed * weight + bias)


def reflected() -> ig.Fusion:
    """A picture with its borders reflected."""
    f = ig.Fusion("reflecting pad")
    x = f.input("x", shape=(16, 64, 128, 128))
    for dim in (2, 3):
        n = int(x.shape[dim])
        near, far = ig.flip(_cut(x, dim, 1, 4), dim), ig.flip(_cut(x, dim, n - 4, n - 1), dim)
        x = ig.cat([near, x, far], dim=dim)
    f.output(x)
    return f


def _cut(x: ig.Tensor, dim: int, start: int, stop: int) -> ig.Tensor:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, stop)
    return x[tuple(index)]


def quantised_rows() -> ig.Fusion:
    """Rows to 8 bits, each by its largest value."""
    f = ig.Fusion("rows to 8 bits")
    x = _wide(f, "x", (16384, 4096))
    scale = ig.maximum(ig.amax(ig.abs(x), 1, keepdim=True) / 127.0, 1e-8)
    f.output(ig.cast(ig.minimum(ig.maximum(ig.round(x / scale), -127.0), 127.0), "int8"))
    f.output(scale)
    return f


def widened_rows() -> ig.Fusion:
    """Rows of 8 bits back to numbers."""
    f = ig.Fusion("rows of 8 bits")
    x = ig.cast(f.input("x", shape=(16384, 4096), dtype="int8"), "float32")
    return _narrow(f, x * f.input("scale", shape=(16384, 1)))


def packed_nibbles() -> ig.Fusion:
    """Two numbers of 4 bits in each byte, by groups of 64."""
    f = ig.Fusion("4 bits unpacked")
    x = f.input("x", shape=(4096, 2048), dtype="uint8")
    pairs = ig.flatten(ig.stack([ig.bitwise_and(x, 15), ig.floor_divide(x, 16)], dim=-1), 1)
    groups = ig.reshape(ig.cast(pairs, "float32") - 8.0, 4096, 64, 64)
    return _narrow(f, ig.reshape(groups * f.input("scale", shape=(4096, 64, 1)), 4096, 4096))


def smoothed_loss() -> ig.Fusion:
    """Cross entropy with label smoothing."""
    f = ig.Fusion("smoothed cross entropy")
    x, y = _wide(f, "x", (8192, 32000)), f.input("y", shape=(8192, 1), dtype="int64")
    logs = ig.log_softmax(x, 1)
    picked = ig.squeeze(ig.gather(logs, 1, y), 1)
    f.output(ig.mean(-0.9 * picked - 0.1 * ig.mean(logs, 1)))
    return f


def causal_softmax() -> ig.Fusion:
    """Softmax of scores, the later columns masked by a mask that is computed."""
    f = ig.Fusion("causal softmax")
    n = 2048
    x = _wide(f, "x", (32, n, n)) * (1 / math.sqrt(128))
    hidden = ig.unsqueeze(f.iota(n), 0) > ig.unsqueeze(f.iota(n), 1)
    return _narrow(f, ig.softmax(ig.where(ig.unsqueeze(hidden, 0), -math.inf, x), 2))


def picture() -> ig.Fusion:
    """Bytes of pictures, channels last, to normalised channels first."""
    f = ig.Fusion("bytes to channels")
    x = ig.permute(ig.cast(f.input("x", shape=(64, 224, 224, 3), dtype="uint8"), "float32"), (0, 3, 1, 2))
    mean, deviation = (ig.reshape(f.input(n, shape=(3,)), 1, 3, 1, 1) for n in ("mean", "deviation"))
    f.output((x / 255.0 - mean) / deviation)
    return f


def unshuffle() -> ig.Fusion:
    """Space to depth by 2."""
    f = ig.Fusion("pixel unshuffle")
    x = ig.reshape(f.input("x", shape=(16, 64, 256, 256), dtype="bfloat16"), 16, 64, 128, 2, 128, 2)
    f.output(ig.reshape(ig.permute(x, (0, 1, 3, 5, 2, 4)), 16, 256, 128, 128))
    return f


def odd_parts() -> ig.Fusion:
    """Parts of odd widths side by side."""
    f = ig.Fusion("cat of odd widths")
    f.output(ig.cat([f.input(f"x{n}", shape=(8192, n), dtype="bfloat16") for n in (301, 77, 1023)], dim=1))
    return f


def gelu() -> ig.Fusion:
    """gelu by tanh, with a bias."""
    f = ig.Fusion("gelu with bias")
    x = _wide(f, "x", (8192, 11008)) + _wide(f, "bias", (11008,))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return _narrow(f, 0.5 * x * (1.0 + ig.tanh(inner)))


def odd_rows() -> ig.Fusion:
    """Pointwise work on rows that no vector divides."""
    f = ig.Fusion("odd rows")
    return _narrow(f, ig.exp(_wide(f, "x", (2048, 50257)) - f.input("m", shape=(2048, 1))))


CLASSES: Mapping[str, Build] = {
    f.__name__: f
    for f in (
        rope_partial, rope_sections, sum_leading, mean_middle, running_sum, bags, table_norm, residual_norm,
        norm_gradient, group_norm, reflected, quantised_rows, widened_rows, packed_nibbles, smoothed_loss,
        causal_softmax, picture, unshuffle, odd_parts, gelu, odd_rows,
    )
}  # fmt: skip
