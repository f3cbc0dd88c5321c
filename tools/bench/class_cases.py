"""Functions of models beside the tables that kernels were tuned for: the rows of ``tools.bench.gpu --table classes``.

Each is plain PyTorch, captured and run the user's way. They work on all types: float64 arguments
give the reference. A case is added by one entry; ``args`` says what each argument is, as "shape type[:range]".

Long: one function a case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

torch: Any = import_module("torch")
F: Any = torch.nn.functional

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ClassCase:
    """A function of class ``kind``; ``args`` are "shape type" or "shape type:limit" (integers below the limit).

    ``exact`` results must be equal to the reference; ``within`` is how much error of one step is allowed (of integers
    that are rounded: their units).
    """

    key: str
    kind: str
    args: tuple[str, ...]
    fn: Function
    exact: bool = False
    within: float = 1.0

    def arguments(self, device: str, small: bool = False) -> tuple[Any, ...]:
        """Random arguments on a device; ``small``: nothing is filled, for a capture."""
        return tuple(_argument(a, device, small) for a in self.args)


TYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "i8": torch.int8, "i32": torch.int32,
    "u8": torch.uint8, "perm": torch.int64,
}  # fmt: skip


def _argument(text: str, device: str, empty: bool) -> Any:
    dims, _, kind = text.partition(" ")
    name, _, limit = kind.partition(":")
    shape, dtype = tuple(int(n) for n in dims.split("x")), TYPES[name]
    if empty:
        return torch.empty(shape, dtype=dtype, device=device)
    if name == "perm":  # rows that are all different
        return torch.randperm(int(limit), device=device)[: shape[0]]
    if dtype.is_floating_point:
        if limit == "+":
            return (torch.rand(shape, device=device) * 0.01 + 0.995).to(dtype)
        return torch.randn(shape, device=device).to(dtype)
    low = -127 if name == "i8" else 0
    return torch.randint(low, int(limit or (128 if name == "i8" else 256)), shape, device=device).to(dtype)


def wide(x: Any) -> Any:
    """float32 of narrow types; float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def as_type(x: Any, like: Any) -> Any:
    """Back to the type of an argument."""
    return x.to(like.dtype)


def channels(v: Any) -> Any:
    """One number a channel, for pictures."""
    return v[None, :, None, None]


# sums and means -------------------------------------------------------------------------------------------------------


def sum_first(x: Any) -> Any:
    return x.sum(0)


def mean_middle(x: Any) -> Any:
    return as_type(wide(x).mean(1), x)


def sum_channels(x: Any) -> Any:
    return x.sum((0, 2, 3))


def largest_middle(x: Any) -> Any:
    return x.amax(1)


def mean_first_two(x: Any) -> Any:
    return as_type(wide(x).mean((0, 1)), x)


def bias_gradient(g: Any) -> Any:
    return as_type(wide(g).sum(0), g)


# scans ----------------------------------------------------------------------------------------------------------------


def cumsum_last(x: Any) -> Any:
    return torch.cumsum(x, 1)


def cumsum_first(x: Any) -> Any:
    return torch.cumsum(x, 0)


def cumprod_middle(x: Any) -> Any:
    return torch.cumprod(x, 1)


def logcumsumexp_last(x: Any) -> Any:
    return torch.logcumsumexp(x, 1)


def running_max(x: Any) -> Any:
    return torch.cummax(x, 1).values


def position_ids(mask: Any) -> Any:
    return (torch.cumsum(mask, 1) - 1).clamp(min=0)


# gathered rows --------------------------------------------------------------------------------------------------------


def weighted_bag(ids: Any, weight: Any, table: Any) -> Any:
    return (F.embedding(ids, table) * weight[..., None]).sum(1)


def mean_of_rows(ids: Any, table: Any) -> Any:
    return as_type(wide(F.embedding(ids, table)).mean(1), table)


def sum_of_codebooks(ids: Any, table: Any) -> Any:
    _, books = ids.shape
    offsets = torch.arange(books, device=ids.device) * 1024
    return wide(F.embedding(ids + offsets, table)).sum(1)


def product_of_rows(a: Any, b: Any, left: Any, right: Any) -> Any:
    return (F.embedding(a, left) * F.embedding(b, right)).sum(-1)


def edges_of_graph(a: Any, b: Any, x: Any) -> Any:
    return as_type(wide(x)[a] - wide(x)[b], x)


# tables and norms -----------------------------------------------------------------------------------------------------


def bert_embedding(ids: Any, kinds: Any, words: Any, places: Any, segments: Any, w: Any, b: Any) -> Any:
    x = F.embedding(ids, words) + places[: ids.shape[1]] + F.embedding(kinds, segments)
    return F.layer_norm(x, (x.shape[-1],), w, b, 1e-12)


def table_rms(ids: Any, words: Any, w: Any) -> Any:
    x = wide(F.embedding(ids, words))
    return as_type(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * wide(w), words)


def two_tables_norm(ids: Any, at: Any, words: Any, places: Any, w: Any, b: Any) -> Any:
    x = wide(F.embedding(ids, words)) + wide(F.embedding(at, places))
    return as_type(F.layer_norm(x, (x.shape[-1],), wide(w), wide(b), 1e-5), words)


def places_and_norm(x: Any, places: Any, w: Any, b: Any) -> Any:
    y = wide(x) + wide(places)[None, : x.shape[1]]
    return as_type(F.layer_norm(y, (y.shape[-1],), wide(w), wide(b), 1e-6), x)


# residual and norm ----------------------------------------------------------------------------------------------------


def layer_norm_two(x: Any, r: Any, w: Any, b: Any) -> Any:
    y = wide(x) + wide(r)
    return as_type(y, x), as_type(F.layer_norm(y, (y.shape[-1],), wide(w), wide(b), 1e-5), x)


def rms_norm_two(x: Any, r: Any, w: Any) -> Any:
    y = wide(x) + wide(r)
    return as_type(y, x), as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * wide(w), x)


def rms_gradient(x: Any, g: Any, w: Any) -> Any:
    a, u = wide(x), wide(g) * wide(w)
    s = torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6)
    return as_type(s * (u - a * s * s * (a * u).mean(-1, keepdim=True)), x)


def layer_gradient(x: Any, g: Any, w: Any) -> Any:
    a, u = wide(x), wide(g) * wide(w)
    mean = a.mean(-1, keepdim=True)
    s = torch.rsqrt(((a - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
    h = (a - mean) * s
    return as_type(s * (u - u.mean(-1, keepdim=True) - h * (u * h).mean(-1, keepdim=True)), x)


def weight_gradients(x: Any, g: Any, mean: Any, s: Any) -> Any:
    h = (wide(x) - mean) * s
    return (wide(g) * h).sum(0), wide(g).sum(0)


# grouped norms --------------------------------------------------------------------------------------------------------


def group_norm(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.group_norm(wide(x), 32, wide(w), wide(b), 1e-5), x)


def group_norm_silu(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.silu(F.group_norm(wide(x), 16, wide(w), wide(b), 1e-6)), x)


def instance_norm(x: Any) -> Any:
    return F.instance_norm(x, eps=1e-5)


def batch_statistics(x: Any) -> Any:
    a = wide(x)
    return a.mean((0, 2, 3)), a.var((0, 2, 3), unbiased=False)


def head_norm(x: Any, w: Any) -> Any:
    a = wide(x)
    return as_type(a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6) * wide(w), x)


# position tables in sections ------------------------------------------------------------------------------------------


def turned(x: Any) -> Any:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def sections(table: Any, cuts: tuple[int, ...]) -> Any:
    parts = [table[k % table.shape[0]][..., a:b] for k, (a, b) in enumerate(pairwise(cuts))]
    return torch.cat(parts, -1)


def three_streams(x: Any, cos: Any, sin: Any) -> Any:
    cuts = (0, 16, 40, 64, 80, 104, 128)
    c, s = (wide(sections(t, cuts)) for t in (cos, sin))
    return as_type(wide(x) * c + turned(wide(x)) * s, x)


def two_streams(q: Any, k: Any, cos: Any, sin: Any) -> Any:
    cuts = (0, 16, 32, 48, 64)
    c, s = (sections(t, cuts) for t in (cos, sin))
    return q * c + turned(q) * s, k * c + turned(k) * s


def split_streams(x: Any, cos: Any, sin: Any) -> Any:
    parts = [m[i % 3] for i, m in enumerate(cos.split((8, 12, 12, 8, 12, 12), -1))]
    others = [m[i % 3] for i, m in enumerate(sin.split((8, 12, 12, 8, 12, 12), -1))]
    c, s = (wide(torch.cat(p, -1)) for p in (parts, others))
    return as_type(wide(x) * c + turned(wide(x)) * s, x)


def picture_rope(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    ya = a * cos[:, None] + turned(a) * sin[:, None]
    yb = b * cos[None, :] + turned(b) * sin[None, :]
    return torch.cat([ya, yb], -1)


# pads -----------------------------------------------------------------------------------------------------------------


def reflect(x: Any) -> Any:
    return F.pad(x, (3, 3, 3, 3), mode="reflect")


def circular(x: Any) -> Any:
    return F.pad(x, (4, 4, 4, 4), mode="circular")


def replicate(x: Any) -> Any:
    return F.pad(x, (1, 2, 2, 1), mode="replicate")


def reflect_sound(x: Any) -> Any:
    return F.pad(x, (200, 200), mode="reflect")


def circular_row(x: Any) -> Any:
    return F.pad(x, (8, 8), mode="circular") * 2.0


# packed and narrow numbers --------------------------------------------------------------------------------------------


def rows_to_bytes(x: Any) -> Any:
    a = wide(x)
    scale = a.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(a / scale).clamp(-127, 127).to(torch.int8), scale


def bytes_to_rows(x: Any, scale: Any) -> Any:
    return as_type(wide(x) * scale, scale)


def unpack_halves(x: Any, scale: Any) -> Any:
    low, high = x & 15, x >> 4
    n, m = x.shape
    y = torch.stack([low, high], -1).reshape(n, -1, 64).to(scale.dtype) - 8
    return (y * scale[..., None]).reshape(n, m * 2)


def pack_halves(x: Any) -> Any:
    n, m = x.shape
    a = wide(x).reshape(n, m // 32, 32)
    scale = a.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 7
    q = (torch.round(a / scale).clamp(-8, 7) + 8).to(torch.uint8).reshape(n, m // 2, 2)
    return q[..., 0] | (q[..., 1] << 4), scale[..., 0]


def zero_point(x: Any, scale: Any, zero: Any) -> Any:
    return (wide(x) - zero) * scale


# losses ---------------------------------------------------------------------------------------------------------------


def smoothed(x: Any, y: Any) -> Any:
    return F.cross_entropy(wide(x), y, label_smoothing=0.1)


def smoothed_each(x: Any, y: Any) -> Any:
    logs = F.log_softmax(wide(x), -1)
    picked = logs.gather(1, y[:, None])[:, 0]
    return -(0.9 * picked + 0.1 * logs.mean(-1))


def divergence(x: Any, t: Any) -> Any:
    return F.kl_div(F.log_softmax(wide(x), -1), F.log_softmax(wide(t), -1), reduction="none", log_target=True).sum(-1)


def entropy(x: Any) -> Any:
    logs = F.log_softmax(wide(x), -1)
    return -(logs.exp() * logs).sum(-1)


# masks ----------------------------------------------------------------------------------------------------------------


def causal(x: Any) -> Any:
    n = x.shape[-1]
    at = torch.arange(n, device=x.device)
    hidden = at[None, :] > at[:, None]
    return as_type(torch.softmax((wide(x) * 0.088).masked_fill(hidden, -math.inf), -1), x)


def window(x: Any) -> Any:
    at = torch.arange(x.shape[-1], device=x.device)
    apart = at[:, None] - at[None, :]
    seen = (apart >= 0) & (apart < 256)
    return as_type(torch.softmax(torch.where(seen, wide(x), -10000.0), -1), x)


def alibi(x: Any, slopes: Any) -> Any:
    at = torch.arange(x.shape[-1], device=x.device)
    apart = (at[None, :] - at[:, None]).to(slopes.dtype)
    y = wide(x) + slopes[:, None, None] * apart
    return as_type(torch.softmax(y.masked_fill(apart > 0, -math.inf), -1), x)


def same_document(x: Any, ids: Any) -> Any:
    same = ids[:, None, :, None] == ids[:, None, None, :]
    return as_type(torch.softmax(wide(x).masked_fill(~same, -10000.0), -1), x)


# pictures -------------------------------------------------------------------------------------------------------------


def to_channels(x: Any, mean: Any, deviation: Any) -> Any:
    y = x.permute(0, 3, 1, 2).to(mean.dtype) / 255
    return (y - channels(mean)) / channels(deviation)


def to_bytes(x: Any, mean: Any, deviation: Any) -> Any:
    y = (x * channels(deviation) + channels(mean)) * 255
    return torch.round(y).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def grey(x: Any, w: Any) -> Any:
    return (x.to(w.dtype) * w).sum(-1) / 255


def bytes_scaled(x: Any, one: Any) -> Any:
    return x.to(one.dtype) * (1 / 127.5) - one


# odd widths -----------------------------------------------------------------------------------------------------------


def odd_parts(a: Any, b: Any, c: Any) -> Any:
    return torch.cat([a, b, c], 1)


def odd_exp(x: Any, m: Any) -> Any:
    return as_type(torch.exp(wide(x) - m), x)


def odd_cut(x: Any) -> Any:
    return F.relu(x[:, 1:-2]) * 2.0


def odd_softcap(x: Any) -> Any:
    return as_type(30 * torch.tanh(wide(x) / 30), x)


# functions ------------------------------------------------------------------------------------------------------------


def gelu_bias(x: Any, b: Any) -> Any:
    return as_type(F.gelu(wide(x) + wide(b), approximate="tanh"), x)


def gelu_exact(x: Any) -> Any:
    return as_type(F.gelu(wide(x)), x)


def swiglu(x: Any, y: Any) -> Any:
    return as_type(F.silu(wide(x)) * wide(y), x)


def mish(x: Any) -> Any:
    return as_type(F.mish(wide(x)), x)


def geglu(x: Any) -> Any:
    a, b = wide(x).chunk(2, -1)
    return as_type(F.gelu(a) * b, x)


# rows at loaded places ------------------------------------------------------------------------------------------------


def put_rows(x: Any, at: Any, rows: Any) -> Any:
    return torch.index_put(x, (at,), rows)


def add_rows(x: Any, at: Any, rows: Any) -> Any:
    return torch.index_add(x, 0, at, rows)


def copy_cache(cache: Any, at: Any, new: Any) -> Any:
    return torch.index_copy(cache, 2, at, new)


def sum_by_node(x: Any, at: Any) -> Any:
    out = torch.zeros((32768, x.shape[1]), dtype=x.dtype, device=x.device)
    return out.scatter_add(0, at[:, None].expand_as(x), x)


def put_along(x: Any, at: Any, v: Any) -> Any:
    return torch.scatter(x, 1, at, v)


CASES: tuple[ClassCase, ...] = (
    ClassCase("sum_first", "sums", ("16384x4096 f32",), sum_first),
    ClassCase("mean_middle", "sums", ("64x512x1024 bf16",), mean_middle),
    ClassCase("sum_channels", "sums", ("64x256x56x56 f32",), sum_channels),
    ClassCase("largest_middle", "sums", ("128x1000x320 f32",), largest_middle, exact=True),
    ClassCase("mean_first_two", "sums", ("32x1024x768 bf16",), mean_first_two),
    ClassCase("bias_gradient", "sums", ("16384x3000 bf16",), bias_gradient),
    ClassCase("cumsum_last", "scans", ("8192x4096 f32",), cumsum_last),
    ClassCase("cumsum_first", "scans", ("2048x16384 f32",), cumsum_first),
    ClassCase("cumprod_middle", "scans", ("64x512x1024 f32:+",), cumprod_middle),
    ClassCase("logcumsumexp_last", "scans", ("8192x2048 f32",), logcumsumexp_last),
    ClassCase("running_max", "scans", ("8192x4096 f32",), running_max, exact=True),
    ClassCase("position_ids", "scans", ("4096x4096 i64:2",), position_ids, exact=True),
    ClassCase("weighted_bag", "bags", ("16384x8 i64:50000", "16384x8 f32", "50000x256 f32"), weighted_bag),
    ClassCase("mean_of_rows", "bags", ("8192x16 i64:32000", "32000x512 bf16"), mean_of_rows),
    ClassCase("sum_of_codebooks", "bags", ("16384x9 i64:1024", "9216x512 bf16"), sum_of_codebooks),
    ClassCase(
        "product_of_rows", "bags",
        ("262144 i64:100000", "262144 i64:50000", "100000x128 f32", "50000x128 f32"), product_of_rows,
    ),
    ClassCase("edges_of_graph", "bags", ("200000 i64:50000", "200000 i64:50000", "50000x256 bf16"), edges_of_graph),
    ClassCase(
        "bert_embedding", "tables",
        ("64x512 i64:30000", "64x512 i64:2", "30000x768 f32", "512x768 f32", "2x768 f32", "768 f32", "768 f32"),
        bert_embedding,
    ),
    ClassCase("table_rms", "tables", ("16384 i64:32000", "32000x4096 bf16", "4096 bf16"), table_rms),
    ClassCase(
        "two_tables_norm", "tables",
        ("16x1024 i64:50000", "16x1024 i64:1024", "50000x1280 bf16", "1024x1280 bf16", "1280 bf16", "1280 bf16"),
        two_tables_norm,
    ),
    ClassCase(
        "places_and_norm", "tables", ("64x577x1024 bf16", "600x1024 bf16", "1024 bf16", "1024 bf16"), places_and_norm
    ),
    ClassCase(
        "layer_norm_two", "norms", ("16384x4096 bf16", "16384x4096 bf16", "4096 bf16", "4096 bf16"), layer_norm_two
    ),
    ClassCase("rms_norm_two", "norms", ("32768x2048 bf16", "32768x2048 bf16", "2048 bf16"), rms_norm_two),
    ClassCase("rms_gradient", "norms", ("16384x4096 bf16", "16384x4096 bf16", "4096 bf16"), rms_gradient),
    ClassCase("layer_gradient", "norms", ("32768x1024 f32", "32768x1024 f32", "1024 f32"), layer_gradient),
    ClassCase(
        "weight_gradients", "norms", ("16384x2048 bf16", "16384x2048 bf16", "16384x1 f32", "16384x1 f32"),
        weight_gradients,
    ),
    ClassCase("group_norm", "groups", ("16x320x64x64 bf16", "320 bf16", "320 bf16"), group_norm),
    ClassCase("group_norm_silu", "groups", ("8x128x128x128 bf16", "128 bf16", "128 bf16"), group_norm_silu),
    ClassCase("instance_norm", "groups", ("32x64x96x96 f32",), instance_norm),
    ClassCase("batch_statistics", "groups", ("64x256x32x32 bf16",), batch_statistics),
    ClassCase("head_norm", "groups", ("4x2048x32x128 bf16", "128 bf16"), head_norm),
    ClassCase(
        "three_streams", "sections", ("2x28x2048x128 bf16", "3x2x1x2048x128 bf16", "3x2x1x2048x128 bf16"), three_streams
    ),
    ClassCase(
        "two_streams", "sections",
        ("4x16x2048x64 f32", "4x4x2048x64 f32", "2x4x1x2048x64 f32", "2x4x1x2048x64 f32"), two_streams,
    ),
    ClassCase(
        "split_streams", "sections", ("2x32x2048x64 bf16", "3x2x1x2048x64 bf16", "3x2x1x2048x64 bf16"), split_streams
    ),
    ClassCase("picture_rope", "sections", ("16x16x64x64x64 f32", "64x32 f32", "64x32 f32"), picture_rope),
    ClassCase("reflect", "pads", ("16x64x128x128 f32",), reflect, exact=True),
    ClassCase("circular", "pads", ("16x64x120x120 bf16",), circular, exact=True),
    ClassCase("replicate", "pads", ("8x96x112x112 f32",), replicate, exact=True),
    ClassCase("reflect_sound", "pads", ("64x1x480000 f32",), reflect_sound, exact=True),
    ClassCase("circular_row", "pads", ("4096x8192 bf16",), circular_row, exact=True),
    ClassCase("rows_to_bytes", "narrow", ("16384x4096 bf16",), rows_to_bytes),
    ClassCase("bytes_to_rows", "narrow", ("16384x4096 i8", "16384x1 bf16"), bytes_to_rows),
    ClassCase("unpack_halves", "narrow", ("8192x2048 u8", "8192x64 bf16"), unpack_halves),
    ClassCase("pack_halves", "narrow", ("8192x8192 bf16",), pack_halves),
    ClassCase("zero_point", "narrow", ("8192x6144 u8", "8192x1 f32", "8192x1 f32"), zero_point),
    ClassCase("smoothed", "losses", ("4096x32000 bf16", "4096 i64:32000"), smoothed),
    ClassCase("smoothed_each", "losses", ("4096x50257 bf16", "4096 i64:50257"), smoothed_each),
    ClassCase("divergence", "losses", ("4096x16000 bf16", "4096x16000 bf16"), divergence),
    ClassCase("entropy", "losses", ("8192x8192 f32",), entropy),
    ClassCase("causal", "masks", ("32x2048x2048 bf16",), causal),
    ClassCase("window", "masks", ("16x2048x2048 bf16",), window),
    ClassCase("alibi", "masks", ("32x1024x1024 f32", "32 f32"), alibi),
    ClassCase("same_document", "masks", ("4x16x1024x1024 bf16", "4x1024 i64:6"), same_document),
    ClassCase("to_channels", "pictures", ("64x224x224x3 u8", "3 f32", "3 f32:+"), to_channels),
    ClassCase("to_bytes", "pictures", ("64x3x224x224 f32", "3 f32", "3 f32"), to_bytes),
    ClassCase("grey", "pictures", ("64x512x512x3 u8", "3 f32"), grey),
    ClassCase("bytes_scaled", "pictures", ("32x3x512x512 u8", "1 f32"), bytes_scaled),
    ClassCase("odd_parts", "odd", ("8192x301 bf16", "8192x77 bf16", "8192x1023 bf16"), odd_parts, exact=True),
    ClassCase("odd_exp", "odd", ("2048x50257 bf16", "2048x1 f32:+"), odd_exp),
    ClassCase("odd_cut", "odd", ("16384x2051 f32",), odd_cut, exact=True),
    ClassCase("odd_softcap", "odd", ("1021x50257 bf16",), odd_softcap),
    ClassCase("gelu_bias", "functions", ("8192x11008 bf16", "11008 bf16"), gelu_bias),
    ClassCase("gelu_exact", "functions", ("8192x8192 bf16",), gelu_exact),
    ClassCase("swiglu", "functions", ("8192x8192 bf16", "8192x8192 bf16"), swiglu),
    ClassCase("mish", "functions", ("8192x8192 bf16",), mish),
    ClassCase("geglu", "functions", ("16384x8192 bf16",), geglu),
    ClassCase("put_rows", "writes", ("65536x512 bf16", "16384 perm:65536", "16384x512 bf16"), put_rows, exact=True),
    ClassCase("add_rows", "writes", ("32768x512 f32", "65536 i64:32768", "65536x512 f32"), add_rows),
    ClassCase("copy_cache", "writes", ("8x8x4096x128 bf16", "64 perm:4096", "8x8x64x128 bf16"), copy_cache, exact=True),
    ClassCase("sum_by_node", "writes", ("200000x128 f32", "200000 i64:32768"), sum_by_node),
    ClassCase("put_along", "writes", ("16384x2048 f32", "16384x1 i64:2048", "16384x1 f32"), put_along, exact=True),
)  # fmt: skip
