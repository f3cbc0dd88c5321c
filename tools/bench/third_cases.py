"""43 functions that no kernel was tuned for, written in one go on 26 November 2026, after `tools.bench.other_cases`.

    python -m tools.bench.gpu --table classes --cases tools.bench.third_cases

``results/gpu_third_classes.json`` has their figures.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tools.bench.class_cases import ClassCase, as_type, wide

torch: Any = import_module("torch")
F: Any = torch.nn.functional


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


def masked_softmax(x: Any, mask: Any) -> Any:
    return as_type(torch.softmax(wide(x).masked_fill(mask == 0, -1e9), -1), x)


def above_diagonal(x: Any) -> Any:
    return x + torch.full((512, 512), -1e9, device=x.device, dtype=x.dtype).triu(1)


def windows(x: Any) -> Any:
    return x.view(64, 8, 7, 8, 7, 192).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 192)


def norm_silu(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.silu(F.group_norm(wide(x), 32, wide(w), wide(b))), x)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b)), x)


def dist2(a: Any, b: Any) -> Any:
    return (a[:, None] - b[None]).square().sum(-1)


def bilinear2(x: Any) -> Any:
    return _resized(x, (237, 311), "bilinear", True)


def bilinear16(x: Any) -> Any:
    return as_type(_resized(wide(x), (160, 160), "bilinear"), x)


def bicubic(x: Any) -> Any:
    return _resized(x, (160, 160), "bicubic")


def near(x: Any) -> Any:
    return _resized(x, (137, 160), "nearest")


def grid(x: Any, at: Any) -> Any:
    return F.grid_sample(x, at.clamp(-1, 1), align_corners=False)


def take(x: Any, i: Any) -> Any:
    return x[i] * 2


def mish(x: Any) -> Any:
    return F.mish(x)


def hardswish(x: Any) -> Any:
    return F.hardswish(x)


def gelu_exact(x: Any) -> Any:
    return F.gelu(x)


def gelu_odd(x: Any) -> Any:
    return F.gelu(x)


def swiglu_clamped(a: Any, b: Any) -> Any:
    return F.silu(a.clamp(max=7.0)) * (b.clamp(-7, 7) + 1)


def softmax_mid(x: Any) -> Any:
    return torch.softmax(x, 1)


def logsumexp_mid(x: Any) -> Any:
    return as_type(torch.logsumexp(wide(x), 1), x)


def instance_norm(x: Any) -> Any:
    return F.instance_norm(x)


def rms_5000(x: Any, w: Any) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-06) * w


def std_12(x: Any) -> Any:
    return x.std((1, 2))


def dq_columns(q: Any, s: Any) -> Any:
    return (q.float() * s).bfloat16()


def drop_add(x: Any, r: Any, m: Any) -> Any:
    return r + x * m.to(x.dtype) * 1.25


def lerp3(a: Any, b: Any, w: Any) -> Any:
    return torch.lerp(a, b, w.sigmoid())


def poly(x: Any) -> Any:
    return x * (1 + x * (0.5 + x * (0.25 + x * 0.125)))


def norm_clip(x: Any) -> Any:
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1)


def avg_odd(x: Any) -> Any:
    return F.avg_pool2d(x, 3, 2, 1)


def xent_small(x: Any, t: Any) -> Any:
    return F.cross_entropy(wide(x), t, reduction="none")


def bce_mean(a: Any, b: Any) -> Any:
    return F.binary_cross_entropy_with_logits(wide(a), wide(b).sigmoid())


def gather_last(x: Any, i: Any) -> Any:
    return torch.gather(x, 1, i)


def gather16(x: Any, i: Any) -> Any:
    return torch.gather(x, 1, i)


def index_columns(x: Any, i: Any) -> Any:
    return x.index_select(1, i)


def flip_cat(x: Any) -> Any:
    return torch.cat([x, x.flip(-1)], -1)


def repeat_kv(x: Any) -> Any:
    return x[:, :, None].expand(-1, -1, 4, -1, -1).reshape(8, 32, 2048, 128)


def cumsum_i64(x: Any) -> Any:
    return x.cumsum(0)


def roll3(x: Any) -> Any:
    return torch.roll(x, (-3, -3), (1, 2))


def pad_reflect2(x: Any) -> Any:
    return F.pad(x, (3, 3, 3, 3), mode="reflect")


def maxpool_odd(x: Any) -> Any:
    return F.max_pool2d(x, 2, 2)


def argmax_last(x: Any) -> Any:
    return x.argmax(-1)


BIG = "16384x4096 bf16"
CASES = (
    ClassCase("dist2", "third", ("256x128 f32", "4096x128 f32"), dist2),
    ClassCase("bilinear2", "third", ("8x32x100x120 f32",), bilinear2),
    ClassCase("bilinear16", "third", ("16x64x80x80 bf16",), bilinear16),
    ClassCase("bicubic", "third", ("8x16x80x80 f32",), bicubic),
    ClassCase("near", "third", ("16x64x80x80 f32",), near),
    ClassCase("grid", "third", ("8x32x128x128 f32", "8x128x128x2 f32"), grid),
    ClassCase("take", "third", ("1000000 f32", "16777216 i64:1000000"), take),
    ClassCase("mish", "third", (BIG,), mish),
    ClassCase("hardswish", "third", (BIG,), hardswish),
    ClassCase("gelu_exact", "third", (BIG,), gelu_exact),
    ClassCase("gelu_odd", "third", ("9999x4097 bf16",), gelu_odd),
    ClassCase("swiglu_clamped", "third", (BIG, BIG), swiglu_clamped),
    ClassCase("softmax_mid", "third", ("64x256x64x64 f32",), softmax_mid),
    ClassCase("logsumexp_mid", "third", ("64x256x4096 bf16",), logsumexp_mid),
    ClassCase("instance_norm", "third", ("64x128x56x56 f32",), instance_norm),
    ClassCase("norm_silu", "third", ("32x256x64x64 bf16", "256 bf16", "256 bf16"), norm_silu),
    ClassCase("ln_odd", "third", ("32768x1537 bf16", "1537 bf16", "1537 bf16"), layer_norm),
    ClassCase("rms_5000", "third", ("16384x5000 f32", "5000 f32"), rms_5000),
    ClassCase("kl", "third", (BIG, BIG), kl),
    ClassCase("triplet", "third", ("65536x256 f32", "65536x256 f32", "65536x256 f32"), triplet),
    ClassCase("std_12", "third", ("256x64x1024 f32",), std_12),
    ClassCase("dq_columns", "third", ("16384x4096 i8", "4096 f32"), dq_columns),
    ClassCase("q_token", "third", (BIG,), q_token),
    ClassCase("masked_softmax", "third", ("16x16x512x512 bf16", "16x1x1x512 i64:2"), masked_softmax),
    ClassCase("drop_add", "third", (BIG, BIG, "16384x4096 u8:2"), drop_add),
    ClassCase("lerp3", "third", (BIG, BIG, "4096 bf16"), lerp3),
    ClassCase("poly", "third", (BIG,), poly),
    ClassCase("norm_clip", "third", (BIG,), norm_clip),
    ClassCase("above_diagonal", "third", ("16x16x512x512 f32",), above_diagonal),
    ClassCase("avg_odd", "third", ("32x64x113x113 f32",), avg_odd),
    ClassCase("xent_small", "third", ("65536x1000 bf16", "65536 i64:1000"), xent_small),
    ClassCase("bce_mean", "third", (BIG, BIG), bce_mean),
    ClassCase("gather_last", "third", ("8192x4096 f32", "8192x4096 i64:4096"), gather_last, True),
    ClassCase("gather16", "third", ("8192x4096 bf16", "8192x4096 i64:4096"), gather16, True),
    ClassCase("index_columns", "third", (BIG, "2048 i64:4096"), index_columns, True),
    ClassCase("flip_cat", "third", ("16384x2048 bf16",), flip_cat, True),
    ClassCase("repeat_kv", "third", ("8x8x2048x128 bf16",), repeat_kv, True),
    ClassCase("cumsum_i64", "third", ("16384x2048 i64",), cumsum_i64, True),
    ClassCase("roll3", "third", ("64x56x56x192 f32",), roll3, True),
    ClassCase("windows", "third", ("64x56x56x192 bf16",), windows, True),
    ClassCase("pad_reflect2", "third", ("16x64x127x129 f32",), pad_reflect2, True),
    ClassCase("maxpool_odd", "third", ("32x64x113x113 f32",), maxpool_odd, True),
    ClassCase("argmax_last", "third", ("65536x1000 bf16",), argmax_last, True),
)
