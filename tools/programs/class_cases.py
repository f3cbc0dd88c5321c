# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
"""Functions of models beside the tables that kernels were tuned for: the rows of ``tools.bench.gpu --table classes``.

Each is plain PyTorch, captured and run the user's way. They work on all types: float64 arguments
give the reference. A case is added by one entry; ``args`` says what each argument is, as "shape type[:range]".

    python -m tools.bench.gpu --table classes --cases tools.programs.class_cases:OTHER --default-only

`OTHER` and `THIRD` were written in one go each, the latter on 26 November 2026; their first figures, in
``results/gpu_other_classes.json`` and ``results/gpu_third_classes.json``, are of code that had never met them.

Long: one entry a case.
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


def sum_of_codebooks(ids: Any, table: Any) -> Any:
    _, books = ids.shape
    offsets = torch.arange(books, device=ids.device) * 1024
    return wide(F.embedding(ids + offsets, table)).sum(1)


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


def batch_statistics(x: Any) -> Any:
    a = wide(x)
    return a.mean((0, 2, 3)), a.var((0, 2, 3), unbiased=False)


def head_norm(x: Any, w: Any) -> Any:
    a = wide(x)
    return as_type(a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-6) * wide(w), x)


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


def rows_to_bytes(x: Any) -> Any:
    a = wide(x)
    scale = a.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
    return torch.round(a / scale).clamp(-127, 127).to(torch.int8), scale


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


def smoothed_each(x: Any, y: Any) -> Any:
    logs = F.log_softmax(wide(x), -1)
    picked = logs.gather(1, y[:, None])[:, 0]
    return -(0.9 * picked + 0.1 * logs.mean(-1))


def entropy(x: Any) -> Any:
    logs = F.log_softmax(wide(x), -1)
    return -(logs.exp() * logs).sum(-1)


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


def to_channels(x: Any, mean: Any, deviation: Any) -> Any:
    y = x.permute(0, 3, 1, 2).to(mean.dtype) / 255
    return (y - channels(mean)) / channels(deviation)


def to_bytes(x: Any, mean: Any, deviation: Any) -> Any:
    y = (x * channels(deviation) + channels(mean)) * 255
    return torch.round(y).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def geglu(x: Any) -> Any:
    a, b = wide(x).chunk(2, -1)
    return as_type(F.gelu(a) * b, x)


def sum_by_node(x: Any, at: Any) -> Any:
    out = torch.zeros((32768, x.shape[1]), dtype=x.dtype, device=x.device)
    return out.scatter_add(0, at[:, None].expand_as(x), x)


Rows = dict[str, Callable[[str, str], ClassCase]]


def row(args: str, fn: Function, **more: Any) -> Callable[[str, str], ClassCase]:
    """A case without its name and class; semicolons stand between the arguments."""
    return lambda key, kind: ClassCase(key, kind, tuple(args.split("; ")), fn, **more)


def cases(**classes: Rows) -> tuple[ClassCase, ...]:
    """The rows of all classes."""
    return tuple(made(key, kind) for kind, rows in classes.items() for key, made in rows.items())


CASES: tuple[ClassCase, ...] = cases(
    sums={
        "sum_first": row("16384x4096 f32", lambda x: x.sum(0)),
        "mean_middle": row("64x512x1024 bf16", lambda x: as_type(wide(x).mean(1), x)),
        "sum_channels": row("64x256x56x56 f32", lambda x: x.sum((0, 2, 3))),
        "largest_middle": row("128x1000x320 f32", lambda x: x.amax(1), exact=True),
        "mean_first_two": row("32x1024x768 bf16", lambda x: as_type(wide(x).mean((0, 1)), x)),
        "bias_gradient": row("16384x3000 bf16", lambda g: as_type(wide(g).sum(0), g)),
    },
    scans={
        "cumsum_last": row("8192x4096 f32", lambda x: torch.cumsum(x, 1)),
        "cumsum_first": row("2048x16384 f32", lambda x: torch.cumsum(x, 0)),
        "cumprod_middle": row("64x512x1024 f32:+", lambda x: torch.cumprod(x, 1)),
        "logcumsumexp_last": row("8192x2048 f32", lambda x: torch.logcumsumexp(x, 1)),
        "running_max": row("8192x4096 f32", lambda x: torch.cummax(x, 1).values, exact=True),
        "position_ids": row("4096x4096 i64:2", lambda mask: (torch.cumsum(mask, 1) - 1).clamp(min=0), exact=True),
    },
    bags={
        "weighted_bag": row("16384x8 i64:50000; 16384x8 f32; 50000x256 f32",
            lambda ids, weight, table: (F.embedding(ids, table) * weight[..., None]).sum(1)),
        "mean_of_rows": row("8192x16 i64:32000; 32000x512 bf16",
            lambda ids, table: as_type(wide(F.embedding(ids, table)).mean(1), table)),
        "sum_of_codebooks": row("16384x9 i64:1024; 9216x512 bf16", sum_of_codebooks),
        "product_of_rows": row("262144 i64:100000; 262144 i64:50000; 100000x128 f32; 50000x128 f32",
            lambda a, b, left, right: (F.embedding(a, left) * F.embedding(b, right)).sum(-1)),
        "edges_of_graph": row("200000 i64:50000; 200000 i64:50000; 50000x256 bf16",
            lambda a, b, x: as_type(wide(x)[a] - wide(x)[b], x)),
    },
    tables={
        "bert_embedding": row("64x512 i64:30000; 64x512 i64:2; 30000x768 f32; 512x768 f32; 2x768 f32; 768 f32; 768 f32",
            bert_embedding),
        "table_rms": row("16384 i64:32000; 32000x4096 bf16; 4096 bf16", table_rms),
        "two_tables_norm": row("16x1024 i64:50000; 16x1024 i64:1024; 50000x1280 bf16; 1024x1280 bf16; 1280 bf16; "
            "1280 bf16",
            two_tables_norm),
        "places_and_norm": row("64x577x1024 bf16; 600x1024 bf16; 1024 bf16; 1024 bf16", places_and_norm),
    },
    norms={
        "layer_norm_two": row("16384x4096 bf16; 16384x4096 bf16; 4096 bf16; 4096 bf16", layer_norm_two),
        "rms_norm_two": row("32768x2048 bf16; 32768x2048 bf16; 2048 bf16", rms_norm_two),
        "rms_gradient": row("16384x4096 bf16; 16384x4096 bf16; 4096 bf16", rms_gradient),
        "layer_gradient": row("32768x1024 f32; 32768x1024 f32; 1024 f32", layer_gradient),
        "weight_gradients": row("16384x2048 bf16; 16384x2048 bf16; 16384x1 f32; 16384x1 f32", weight_gradients),
    },
    groups={
        "group_norm": row("16x320x64x64 bf16; 320 bf16; 320 bf16",
            lambda x, w, b: as_type(F.group_norm(wide(x), 32, wide(w), wide(b), 1e-5), x)),
        "group_norm_silu": row("8x128x128x128 bf16; 128 bf16; 128 bf16",
            lambda x, w, b: as_type(F.silu(F.group_norm(wide(x), 16, wide(w), wide(b), 1e-6)), x)),
        "instance_norm": row("32x64x96x96 f32", lambda x: F.instance_norm(x, eps=1e-5)),
        "batch_statistics": row("64x256x32x32 bf16", batch_statistics),
        "head_norm": row("4x2048x32x128 bf16; 128 bf16", head_norm),
    },
    sections={
        "three_streams": row("2x28x2048x128 bf16; 3x2x1x2048x128 bf16; 3x2x1x2048x128 bf16", three_streams),
        "two_streams": row("4x16x2048x64 f32; 4x4x2048x64 f32; 2x4x1x2048x64 f32; 2x4x1x2048x64 f32", two_streams),
        "split_streams": row("2x32x2048x64 bf16; 3x2x1x2048x64 bf16; 3x2x1x2048x64 bf16", split_streams),
        "picture_rope": row("16x16x64x64x64 f32; 64x32 f32; 64x32 f32", picture_rope),
    },
    pads={
        "reflect": row("16x64x128x128 f32", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), exact=True),
        "circular": row("16x64x120x120 bf16", lambda x: F.pad(x, (4, 4, 4, 4), mode="circular"), exact=True),
        "replicate": row("8x96x112x112 f32", lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), exact=True),
        "reflect_sound": row("64x1x480000 f32", lambda x: F.pad(x, (200, 200), mode="reflect"), exact=True),
        "circular_row": row("4096x8192 bf16", lambda x: F.pad(x, (8, 8), mode="circular") * 2.0, exact=True),
    },
    narrow={
        "rows_to_bytes": row("16384x4096 bf16", rows_to_bytes),
        "bytes_to_rows": row("16384x4096 i8; 16384x1 bf16", lambda x, scale: as_type(wide(x) * scale, scale)),
        "unpack_halves": row("8192x2048 u8; 8192x64 bf16", unpack_halves),
        "pack_halves": row("8192x8192 bf16", pack_halves),
        "zero_point": row("8192x6144 u8; 8192x1 f32; 8192x1 f32", lambda x, scale, zero: (wide(x) - zero) * scale),
    },
    losses={
        "smoothed": row("4096x32000 bf16; 4096 i64:32000",
            lambda x, y: F.cross_entropy(wide(x), y, label_smoothing=0.1)),
        "smoothed_each": row("4096x50257 bf16; 4096 i64:50257", smoothed_each),
        "divergence": row("4096x16000 bf16; 4096x16000 bf16",
            lambda x, t: F.kl_div(F.log_softmax(wide(x), -1), F.log_softmax(wide(t), -1), reduction="none",
                log_target=True).sum(-1)),
        "entropy": row("8192x8192 f32", entropy),
    },
    masks={
        "causal": row("32x2048x2048 bf16", causal),
        "window": row("16x2048x2048 bf16", window),
        "alibi": row("32x1024x1024 f32; 32 f32", alibi),
        "same_document": row("4x16x1024x1024 bf16; 4x1024 i64:6", same_document),
    },
    pictures={
        "to_channels": row("64x224x224x3 u8; 3 f32; 3 f32:+", to_channels),
        "to_bytes": row("64x3x224x224 f32; 3 f32; 3 f32", to_bytes),
        "grey": row("64x512x512x3 u8; 3 f32", lambda x, w: (x.to(w.dtype) * w).sum(-1) / 255),
        "bytes_scaled": row("32x3x512x512 u8; 1 f32", lambda x, one: x.to(one.dtype) * (1 / 127.5) - one),
    },
    odd={
        "odd_parts": row("8192x301 bf16; 8192x77 bf16; 8192x1023 bf16",
            lambda a, b, c: torch.cat([a, b, c], 1), exact=True),
        "odd_exp": row("2048x50257 bf16; 2048x1 f32:+", lambda x, m: as_type(torch.exp(wide(x) - m), x)),
        "odd_cut": row("16384x2051 f32", lambda x: F.relu(x[:, 1:-2]) * 2.0, exact=True),
        "odd_softcap": row("1021x50257 bf16", lambda x: as_type(30 * torch.tanh(wide(x) / 30), x)),
    },
    functions={
        "gelu_bias": row("8192x11008 bf16; 11008 bf16",
            lambda x, b: as_type(F.gelu(wide(x) + wide(b), approximate="tanh"), x)),
        "gelu_exact": row("8192x8192 bf16", lambda x: as_type(F.gelu(wide(x)), x)),
        "swiglu": row("8192x8192 bf16; 8192x8192 bf16", lambda x, y: as_type(F.silu(wide(x)) * wide(y), x)),
        "mish": row("8192x8192 bf16", lambda x: as_type(F.mish(wide(x)), x)),
        "geglu": row("16384x8192 bf16", geglu),
    },
    writes={
        "put_rows": row("65536x512 bf16; 16384 perm:65536; 16384x512 bf16",
            lambda x, at, rows: torch.index_put(x, (at,), rows), exact=True),
        "add_rows": row("32768x512 f32; 65536 i64:32768; 65536x512 f32",
            lambda x, at, rows: torch.index_add(x, 0, at, rows)),
        "copy_cache": row("8x8x4096x128 bf16; 64 perm:4096; 8x8x64x128 bf16",
            lambda cache, at, new: torch.index_copy(cache, 2, at, new), exact=True),
        "sum_by_node": row("200000x128 f32; 200000 i64:32768", sum_by_node),
        "put_along": row("16384x2048 f32; 16384x1 i64:2048; 16384x1 f32",
            lambda x, at, v: torch.scatter(x, 1, at, v), exact=True),
    },
)  # fmt: skip


def std_last_mean(x: Any) -> Any:
    s, m = torch.std_mean(wide(x), dim=-1)
    return as_type(s, x), as_type(m, x)


def bert_embed(ids: Any, typ: Any, t: Any, s: Any, p: Any, w: Any, b: Any) -> Any:
    x = t[ids] + s[typ] + p[None]
    return as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b), 1e-12), x)


def residual_rms(x: Any, r: Any, w: Any) -> Any:
    h = x + r
    y = wide(h)
    return as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * wide(w), x), h


def gemma_norm(x: Any, w: Any) -> Any:
    y = wide(x)
    return as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * (1 + wide(w)), x)


def ln_grad_wb(g: Any, x: Any, m: Any, r: Any) -> Any:
    xh = (wide(x) - m) * r
    return (wide(g) * xh).sum(0), wide(g).sum(0)


def grn(x: Any) -> Any:
    g = torch.linalg.vector_norm(wide(x), dim=(1, 2), keepdim=True)
    n = g / (g.mean(-1, keepdim=True) + 1e-6)
    return as_type(wide(x) * n + wide(x), x)


def layer2d(x: Any, w: Any, b: Any) -> Any:
    u = wide(x).mean(1, keepdim=True)
    s = (wide(x) - u).pow(2).mean(1, keepdim=True)
    return as_type((wide(x) - u) / torch.sqrt(s + 1e-6) * wide(w)[:, None, None] + wide(b)[:, None, None], x)


def rope_inter(x: Any, c: Any, s: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


def rope_qk(q: Any, k: Any, c: Any, s: Any) -> Any:
    def turned(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s

    return turned(q), turned(k)


def rope_norm(q: Any, w: Any, c: Any, s: Any) -> Any:
    y = wide(q)
    y = as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6), q) * w
    a, b = y.chunk(2, -1)
    return y * c + torch.cat((-b, a), -1) * s


def sincos(t: Any) -> Any:
    f = torch.exp(-math.log(10000) * torch.arange(0, 160, device=t.device, dtype=torch.float32) / 160)
    a = t[:, None] * f[None]
    return torch.cat((a.cos(), a.sin()), -1)


def q_groups(x: Any) -> Any:
    y = wide(x).view(x.shape[0], -1, 128)
    s = y.abs().amax(-1, keepdim=True) / 127
    return torch.round(y / s).clamp(-127, 127).to(torch.int8).view(x.shape), s[..., 0]


def unpack_int32(q: Any) -> Any:
    sh = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
    return ((q[..., None] >> sh) & 15).to(torch.int8).flatten(-2)


def unpack_bits(q: Any) -> Any:
    sh = torch.arange(8, device=q.device, dtype=torch.uint8)
    return ((q[..., None] >> sh) & 1).flatten(-2)


def pack_bits(x: Any) -> Any:
    b = (x.view(x.shape[0], -1, 8) > 0).to(torch.int32)
    w = 2 ** torch.arange(8, device=x.device, dtype=torch.int32)
    return (b * w).sum(-1).to(torch.uint8)


def focal(x: Any, t: Any) -> Any:
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (ce * (1 - (p * t + (1 - p) * (1 - t))) ** 2).mean()


def nll_masked(x: Any, t: Any) -> Any:
    m = t >= 0
    lp = torch.log_softmax(wide(x), -1).gather(1, t.clamp(min=0)[:, None])[:, 0]
    return -(lp * m).sum() / m.sum()


def prefix_mask(x: Any) -> Any:
    n = x.shape[-1]
    i = torch.arange(n, device=x.device)
    keep = (i[:, None] >= i[None]) | (i[None] < 256)
    return as_type(torch.softmax(wide(x).masked_fill(~keep, float("-inf")), -1), x)


def rel_bias(x: Any, t: Any) -> Any:
    n = x.shape[-1]
    i = torch.arange(n, device=x.device)
    d = (i[None] - i[:, None]).clamp(-128, 128) + 128
    return as_type(torch.softmax(wide(x) + t[:, d], -1), x)


def sink(x: Any, s: Any) -> Any:
    m = torch.cat((wide(x), s[None, :, None, None].expand(x.shape[0], -1, x.shape[2], 1)), -1)
    return as_type(torch.softmax(m, -1)[..., :-1], x)


def yuv(x: Any) -> Any:
    r, g, b = (x[..., k].float() for k in range(3))
    y, u = 0.299 * r + 0.587 * g + 0.114 * b, -0.169 * r - 0.331 * g + 0.5 * b
    return torch.stack((y, u, 0.5 * r - 0.419 * g - 0.081 * b), -1)


def space2depth(x: Any) -> Any:
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(b, c * 4, h // 2, w // 2)


def shuffle_ch(x: Any) -> Any:
    b, c, h, w = x.shape
    return x.view(b, 4, c // 4, h, w).transpose(1, 2).reshape(b, c, h, w)


def gated_tanh(x: Any) -> Any:
    a, b = x.chunk(2, 1)
    return torch.tanh(a) * torch.sigmoid(b)


def dropout_mask(x: Any, m: Any) -> Any:
    return x * m.to(x.dtype) / 0.9


def cache_at(c: Any, pos: Any, k: Any) -> Any:
    c = c.clone()
    c[torch.arange(c.shape[0], device=c.device), pos] = k
    return c


def scatter_max(x: Any, i: Any) -> Any:
    none = torch.zeros(32768, 128, device=x.device, dtype=x.dtype)
    return none.scatter_reduce(0, i[:, None].expand(-1, 128), x, "amax")


def adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p * 0.999 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def qkv_split(x: Any) -> Any:
    q, k, v = x.view(8, 1024, 3, 16, 64).permute(2, 0, 3, 1, 4).unbind(0)
    return q * 0.125, k.contiguous(), v.contiguous()


OTHER: tuple[ClassCase, ...] = cases(
    sums={
        "sum_mid2": row("128x14x14x1024 bf16", lambda x: x.sum((1, 2))),
        "var_first": row("8192x4096 bf16", lambda x: wide(x).var(0)),
        "std_last_mean": row("16384x3072 bf16", std_last_mean),
        "norm_cols": row("30000x1000 f32", lambda x: torch.linalg.vector_norm(wide(x), dim=0)),
        "argmax_mid": row("64x150x96x96 f32", lambda x: x.argmax(1), exact=True),
        "minmax": row("4096x10000 f32", lambda x: torch.aminmax(x, dim=1), exact=True),
        "any_rows": row("8192x8192 bf16", lambda x: (x > 3).any(1), exact=True),
        "total": row("8192x8192 bf16", lambda x: wide(x).sum()),
        "l1_loss": row("8192x8191 bf16; 8192x8191 bf16", lambda a, b: (wide(a) - wide(b)).abs().mean()),
        "huber": row("4096x8192 f32; 4096x8192 f32", lambda a, b: F.smooth_l1_loss(wide(a), wide(b))),
        "bce": row("8192x4096 f32; 8192x4096 f32:+", lambda a, b: F.binary_cross_entropy_with_logits(a, b)),
        "dist1": row("512x64 f32; 2048x64 f32", lambda a, b: (a[:, None] - b[None]).abs().sum(-1)),
        "cosine": row("32768x1024 bf16; 32768x1024 bf16", lambda a, b: F.cosine_similarity(wide(a), wide(b), -1)),
    },
    scans={
        "cumsum_mid": row("32x2048x512 f32", lambda x: torch.cumsum(x, 1)),
        "cumsum_bf": row("16x1024x2000 bf16", lambda x: as_type(torch.cumsum(wide(x), -1), x)),
        "rev_cumsum": row("8192x4096 f32", lambda x: torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])),
        "cumsum_excl": row("8192x3000 f32", lambda x: torch.cumsum(x, 1) - x),
        "seg_decay": row("16x2048x1024 f32", lambda x: torch.exp(torch.cumsum(F.logsigmoid(x), 1)), within=2.0),
        "cummin_last": row("4096x5000 f32", lambda x: torch.cummin(x, 1).values, exact=True),
    },
    bags={
        "bag_max": row("16384x6 i64:20000; 20000x512 bf16", lambda ids, t: F.embedding(ids, t).amax(1), exact=True),
        "two_tables": row("32768 i64:50000; 32768 i64:2048; 50000x768 bf16; 2048x768 bf16",
            lambda ids, pos, t, p: F.embedding(ids, t) + F.embedding(pos, p)),
        "gathered_dot": row("200000 i64:50000; 200000 i64:50000; 50000x128 bf16",
            lambda i, j, t: (wide(t[i]) * wide(t[j])).sum(1)),
        "moe_combine": row("65536x1024 bf16; 32768x2 i64:65536; 32768x2 bf16",
            lambda y, idx, w: (y[idx] * w[..., None]).sum(1)),
    },
    tables={
        "bert_embed": row("32x512 i64:30522; 32x512 i64:2; 30522x768 bf16; 2x768 bf16; 512x768 bf16; 768 bf16; "
            "768 bf16",
            bert_embed),
        "table_l2": row("32768 i64:100000; 100000x300 bf16",
            lambda ids, t: as_type(F.normalize(wide(t[ids]), dim=-1), t)),
    },
    norms={
        "residual_rms": row("16384x5120 bf16; 16384x5120 bf16; 5120 bf16", residual_rms),
        "gemma_norm": row("16384x3584 bf16; 3584 bf16", gemma_norm),
        "softmax_grad": row("16384x4096 f32; 16384x4096 f32", lambda g, y: y * (g - (g * y).sum(-1, keepdim=True))),
        "ln_grad_wb": row("16384x2048 bf16; 16384x2048 bf16; 16384x1 f32; 16384x1 f32", ln_grad_wb),
        "ada_ln": row("16x1024x1152 bf16; 16x1152 bf16; 16x1152 bf16",
            lambda x, sc, sh: as_type(F.layer_norm(wide(x), (x.shape[-1],)) * (1 + wide(sc)[:, None]) + wide(sh)[:,
                None], x)),
        "weight_norm": row("8192x4608 bf16; 8192x1 f32",
            lambda v, g: as_type(wide(v) * (g / torch.linalg.vector_norm(wide(v), dim=1, keepdim=True)), v)),
    },
    groups={
        "grn": row("32x28x28x768 bf16", grn),
        "group5": row("8x640x48x48 bf16; 640 bf16; 640 bf16",
            lambda x, w, b: as_type(F.group_norm(wide(x), 20, wide(w), wide(b)), x)),
        "pixel_norm": row("8x512x64x64 bf16",
            lambda x: as_type(wide(x) * torch.rsqrt((wide(x) ** 2).mean(1, keepdim=True) + 1e-8), x)),
        "layer2d": row("32x192x56x56 bf16; 192 bf16; 192 bf16", layer2d),
    },
    sections={
        "rope_inter": row("8x32x2048x128 bf16; 2048x64 bf16; 2048x64 bf16", rope_inter),
        "rope_qk": row("4x32x2048x128 bf16; 4x8x2048x128 bf16; 2048x128 bf16; 2048x128 bf16", rope_qk),
        "rope_norm": row("4x32x2048x128 bf16; 128 bf16; 2048x128 bf16; 2048x128 bf16", rope_norm),
        "sincos": row("65536 f32", sincos),
    },
    pads={
        "pad3d": row("8x32x30x62x62 f32", lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"), exact=True),
        "reflect1": row("2048x16000 bf16", lambda x: F.pad(x, (7, 9), mode="reflect"), exact=True),
        "pad_const": row("32x64x111x113 bf16", lambda x: F.pad(x, (3, 5, 2, 1), value=-1.0), exact=True),
        "roll2": row("64x56x56x192 bf16", lambda x: torch.roll(x, (-3, 5), (1, 2)), exact=True),
        "unfold1": row("64x80000 f32", lambda x: F.pad(x, (128, 128), mode="reflect").unfold(-1, 400, 160), exact=True),
    },
    narrow={
        "q_groups": row("8192x8192 bf16", q_groups),
        "dq_groups": row("8192x8192 i8; 8192x64 bf16",
            lambda q, s: (q.view(q.shape[0], -1, 128).float() * s.float()[..., None]).to(s.dtype).view(q.shape)),
        "unpack_int32": row("4096x1024 i32:100000000", unpack_int32, exact=True),
        "unpack_bits": row("8192x1024 u8", unpack_bits, exact=True),
        "pack_bits": row("8192x8192 bf16", pack_bits, exact=True),
        "fake_quant": row("8192x4096 bf16; 4096 f32:+",
            lambda x, s: as_type(torch.round(wide(x) / s).clamp(-128, 127) * s, x)),
    },
    losses={
        "focal": row("65536x80 f32; 65536x80 f32:+", focal),
        "zloss": row("8192x32000 bf16", lambda x: (torch.logsumexp(wide(x), -1) ** 2).mean()),
        "nll_masked": row("8192x32001 bf16; 8192 i64:32000", nll_masked),
        "distill": row("4096x32000 bf16; 4096x32000 bf16",
            lambda a, b: F.kl_div(torch.log_softmax(wide(a) / 2, -1), torch.softmax(wide(b) / 2, -1),
                reduction="batchmean")),
        "dpo": row("8x512x32000 bf16; 8x512 i64:32000",
            lambda x, t: torch.log_softmax(wide(x), -1).gather(2, t[..., None])[..., 0].sum(-1)),
    },
    masks={
        "prefix_mask": row("16x2048x2048 bf16", prefix_mask),
        "rel_bias": row("8x12x512x512 bf16; 12x257 f32", rel_bias),
        "t5_mask": row("16x12x512x512 bf16; 16x512 i64:2",
            lambda x, pad: as_type(torch.softmax(wide(x) + (1 - pad.float())[:, None, None] * -1e9, -1), x)),
        "sink": row("4x16x1024x1024 bf16; 16 f32", sink),
        "topsig": row("131072x256 bf16",
            lambda x: as_type(torch.sigmoid(wide(x)) / (torch.sigmoid(wide(x)).sum(-1, keepdim=True) + 1e-6), x)),
        "triu": row("64x1024x1024 f32", lambda x: torch.triu(x, 1), exact=True),
        "diag_add": row("64x512x512 f32; 64x512 f32", lambda x, d: x + torch.diag_embed(d)),
    },
    pictures={
        "yuv": row("32x512x512x3 u8", yuv),
        "bgr": row("64x224x224x3 u8", lambda x: (x.flip(-1).permute(0, 3, 1, 2).float() / 255 - 0.5) * 2),
        "crop_norm": row("64x256x256x3 u8",
            lambda x: (x[:, 16:240, 16:240].permute(0, 3, 1, 2).float() - 120.0) / 58.0),
        "up2": row("16x128x64x64 bf16", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), exact=True),
        "bilinear": row("16x64x80x80 f32",
            lambda x: F.interpolate(x, size=(160, 160), mode="bilinear", align_corners=False)),
        "avgpool": row("32x64x112x112 bf16", lambda x: F.avg_pool2d(x, 2)),
        "maxpool": row("32x64x112x112 f32", lambda x: F.max_pool2d(x, 3, 2, 1), exact=True),
        "space2depth": row("32x32x128x128 bf16", space2depth, exact=True),
        "shuffle_ch": row("32x240x56x56 bf16", shuffle_ch, exact=True),
    },
    odd={
        "odd_t": row("16x1001x771 f32", lambda x: x.transpose(1, 2).contiguous(), exact=True),
        "odd_add": row("3x7777x1111 bf16; 3x7777x1111 bf16", lambda a, b: a + b * 0.5),
        "odd_ln": row("16384x1031 bf16; 1031 bf16; 1031 bf16",
            lambda x, w, b: as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b)), x)),
        "odd_cat0": row("5001x1023 bf16; 777x1023 bf16", lambda a, b: torch.cat((a, b), 0), exact=True),
        "odd_lsm": row("4096x10007 f32", lambda x: as_type(torch.log_softmax(wide(x), -1), x)),
    },
    functions={
        "softplus": row("8192x8192 f32", lambda x: F.softplus(x)),
        "elu_res": row("8192x8192 bf16; 8192x8192 bf16", lambda x, r: F.elu(x) + r),
        "tanh_bias": row("8192x5000 bf16; 5000 bf16", lambda x, b: torch.tanh(x + b)),
        "relu2": row("8192x14336 bf16", lambda x: torch.square(torch.relu(x))),
        "gated_tanh": row("16x1024x8000 bf16", gated_tanh),
        "quick_gelu": row("16384x5120 bf16", lambda x: x * torch.sigmoid(1.702 * x)),
        "adamw": row("4000x9001 f32; 4000x9001 f32; 4000x9001 f32; 4000x9001 f32:+", adamw),
        "ema": row("8000x4097 f32; 8000x4097 f32", lambda a, b: torch.lerp(a, b, 0.01)),
        "outer": row("512x300 f32; 512x500 f32", lambda a, b: a[:, :, None] * b[:, None, :]),
        "swap_heads": row("8x1024x4096 bf16",
            lambda x: x.view(8, 1024, 32, 128).transpose(1, 2).contiguous(), exact=True),
        "qkv_split": row("8x1024x3072 bf16", qkv_split),
    },
    writes={
        "cache_at": row("64x2048x8x64 bf16; 64 i64:2048; 64x8x64 bf16", cache_at, exact=True),
        "hist": row("4000000 i64:4096; 4000000 f32",
            lambda i, w: torch.zeros(4096, device=w.device, dtype=w.dtype).index_add(0, i, w), within=4.0),
        "scatter_max": row("200000x128 f32; 200000 i64:32768", scatter_max, exact=True),
        "one_hot": row("16384 i64:4096", lambda i: F.one_hot(i, 4096).to(torch.float32), exact=True),
    },
)  # fmt: skip


def _resized(x: Any, size: tuple[int, int], mode: str, corners: bool | None = None) -> Any:
    return F.interpolate(x, size=size, mode=mode, align_corners=corners)


def triplet(a: Any, p: Any, n: Any) -> Any:
    near, far = ((a - b).square().sum(-1).sqrt() for b in (p, n))
    return (near - far + 1).clamp(min=0)


def q_token(x: Any) -> Any:
    scale = wide(x).abs().amax(-1, keepdim=True) / 127
    return torch.round(wide(x) / scale).clamp(-127, 127).to(torch.int8), scale


def kl(p: Any, q: Any) -> Any:
    given, wanted = torch.log_softmax(wide(q), -1), torch.log_softmax(wide(p), -1)
    return (torch.softmax(wide(p), -1) * (wanted - given)).sum(-1)


def near(x: Any) -> Any:
    return _resized(x, (137, 160), "nearest")


BIG = "16384x4096 bf16"


THIRD: tuple[ClassCase, ...] = cases(
    third={
        "dist2": row("256x128 f32; 4096x128 f32", lambda a, b: (a[:, None] - b[None]).square().sum(-1)),
        "bilinear2": row("8x32x100x120 f32", lambda x: _resized(x, (237, 311), "bilinear", True)),
        "bilinear16": row("16x64x80x80 bf16", lambda x: as_type(_resized(wide(x), (160, 160), "bilinear"), x)),
        "bicubic": row("8x16x80x80 f32", lambda x: _resized(x, (160, 160), "bicubic")),
        "near": row("16x64x80x80 f32", near),
        "grid": row("8x32x128x128 f32; 8x128x128x2 f32",
            lambda x, at: F.grid_sample(x, at.clamp(-1, 1), align_corners=False)),
        "take": row("1000000 f32; 16777216 i64:1000000", lambda x, i: x[i] * 2),
        "mish": row(f"{BIG}", lambda x: F.mish(x)),
        "hardswish": row(f"{BIG}", lambda x: F.hardswish(x)),
        "gelu_exact": row(f"{BIG}", lambda x: F.gelu(x)),
        "gelu_odd": row("9999x4097 bf16", lambda x: F.gelu(x)),
        "swiglu_clamped": row(f"{BIG}; {BIG}", lambda a, b: F.silu(a.clamp(max=7.0)) * (b.clamp(-7, 7) + 1)),
        "softmax_mid": row("64x256x64x64 f32", lambda x: torch.softmax(x, 1)),
        "logsumexp_mid": row("64x256x4096 bf16", lambda x: as_type(torch.logsumexp(wide(x), 1), x)),
        "instance_norm": row("64x128x56x56 f32", lambda x: F.instance_norm(x)),
        "norm_silu": row("32x256x64x64 bf16; 256 bf16; 256 bf16",
            lambda x, w, b: as_type(F.silu(F.group_norm(wide(x), 32, wide(w), wide(b))), x)),
        "ln_odd": row("32768x1537 bf16; 1537 bf16; 1537 bf16",
            lambda x, w, b: as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b)), x)),
        "rms_5000": row("16384x5000 f32; 5000 f32",
            lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-06) * w),
        "kl": row(f"{BIG}; {BIG}", kl),
        "triplet": row("65536x256 f32; 65536x256 f32; 65536x256 f32", triplet),
        "std_12": row("256x64x1024 f32", lambda x: x.std((1, 2))),
        "dq_columns": row("16384x4096 i8; 4096 f32", lambda q, s: (q.float() * s).bfloat16()),
        "q_token": row(f"{BIG}", q_token),
        "masked_softmax": row("16x16x512x512 bf16; 16x1x1x512 i64:2",
            lambda x, mask: as_type(torch.softmax(wide(x).masked_fill(mask == 0, -1e9), -1), x)),
        "drop_add": row(f"{BIG}; {BIG}; 16384x4096 u8:2", lambda x, r, m: r + x * m.to(x.dtype) * 1.25),
        "lerp3": row(f"{BIG}; {BIG}; 4096 bf16", lambda a, b, w: torch.lerp(a, b, w.sigmoid())),
        "poly": row(f"{BIG}", lambda x: x * (1 + x * (0.5 + x * (0.25 + x * 0.125)))),
        "norm_clip": row(f"{BIG}", lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1)),
        "above_diagonal": row("16x16x512x512 f32",
            lambda x: x + torch.full((512, 512), -1e9, device=x.device, dtype=x.dtype).triu(1)),
        "avg_odd": row("32x64x113x113 f32", lambda x: F.avg_pool2d(x, 3, 2, 1)),
        "xent_small": row("65536x1000 bf16; 65536 i64:1000",
            lambda x, t: F.cross_entropy(wide(x), t, reduction="none")),
        "bce_mean": row(f"{BIG}; {BIG}", lambda a, b: F.binary_cross_entropy_with_logits(wide(a), wide(b).sigmoid())),
        "gather_last": row("8192x4096 f32; 8192x4096 i64:4096", lambda x, i: torch.gather(x, 1, i), exact=True),
        "gather16": row("8192x4096 bf16; 8192x4096 i64:4096", lambda x, i: torch.gather(x, 1, i), exact=True),
        "index_columns": row(f"{BIG}; 2048 i64:4096", lambda x, i: x.index_select(1, i), exact=True),
        "flip_cat": row("16384x2048 bf16", lambda x: torch.cat([x, x.flip(-1)], -1), exact=True),
        "repeat_kv": row("8x8x2048x128 bf16",
            lambda x: x[:, :, None].expand(-1, -1, 4, -1, -1).reshape(8, 32, 2048, 128), exact=True),
        "cumsum_i64": row("16384x2048 i64", lambda x: x.cumsum(0), exact=True),
        "roll3": row("64x56x56x192 f32", lambda x: torch.roll(x, (-3, -3), (1, 2)), exact=True),
        "windows": row("64x56x56x192 bf16",
            lambda x: x.view(64, 8, 7, 8, 7, 192).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 192), exact=True),
        "pad_reflect2": row("16x64x127x129 f32", lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"), exact=True),
        "maxpool_odd": row("32x64x113x113 f32", lambda x: F.max_pool2d(x, 2, 2), exact=True),
        "argmax_last": row("65536x1000 bf16", lambda x: x.argmax(-1), exact=True),
    },
)  # fmt: skip
