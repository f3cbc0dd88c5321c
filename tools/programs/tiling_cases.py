"""Functions of kinds that no schedule was tuned for: for each kind that once fell short, shapes of its own.

    python -m tools.bench.gpu --table classes --cases tools.programs.tiling_cases --plan --cost

Long: one function a case.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tools.programs.class_cases import ClassCase, as_type, wide

torch: Any = import_module("torch")
F: Any = torch.nn.functional


def frames_last(x: Any) -> Any:
    return x[:, :, ::2, ::2].permute(0, 2, 3, 1).contiguous()


def bytes_last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1).contiguous()


def bytes_first(x: Any) -> Any:
    return x.permute(0, 3, 1, 2).contiguous()


def bytes_normalized(x: Any) -> Any:
    return (x.permute(0, 3, 1, 2).float() / 255.0 - 0.45) / 0.22


def unpatch(x: Any) -> Any:
    n, _, d = x.shape
    p = int((d // 3) ** 0.5)
    h = int(x.shape[1] ** 0.5)
    return x.reshape(n, h, h, p, p, 3).permute(0, 5, 1, 3, 2, 4).reshape(n, 3, h * p, h * p)


def patch(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 14, 14, w // 14, 14).permute(0, 2, 4, 3, 5, 1).reshape(n, -1, 14 * 14 * c)


def transpose_bf16(x: Any) -> Any:
    return x.transpose(1, 2).contiguous()


def heads_out(x: Any) -> Any:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def transpose_add(x: Any, y: Any) -> Any:
    return x.transpose(0, 1) + y


def sobel_replicate(x: Any) -> Any:
    p = F.pad(x, (1, 1, 1, 1), mode="replicate")
    return (p[..., :-2, 2:] + 2 * p[..., 1:-1, 2:] + p[..., 2:, 2:]) - (
        p[..., :-2, :-2] + 2 * p[..., 1:-1, :-2] + p[..., 2:, :-2]
    )


def laplace_reflect(x: Any) -> Any:
    p = F.pad(x, (1, 1, 1, 1), mode="reflect")
    return p[..., :-2, 1:-1] + p[..., 2:, 1:-1] + p[..., 1:-1, :-2] + p[..., 1:-1, 2:] - 4 * p[..., 1:-1, 1:-1]


def reflect_pad(x: Any) -> Any:
    return F.pad(x, (3, 3, 3, 3), mode="reflect")


def blur_half(x: Any) -> Any:
    p = F.pad(x, (1, 1, 1, 1), mode="reflect")
    rows = p[..., :-2, :] * 0.25 + p[..., 1:-1, :] * 0.5 + p[..., 2:, :] * 0.25
    return (rows[..., :-2] * 0.25 + rows[..., 1:-1] * 0.5 + rows[..., 2:] * 0.25)[..., ::2, ::2]


def dice(x: Any, y: Any) -> Any:
    t = F.one_hot(y, x.shape[1]).permute(0, 3, 1, 2)
    p = torch.sigmoid(x)
    return 1 - (2 * (p * t).sum((2, 3)) + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)


def factors(v: Any) -> Any:
    s = v.sum(1)
    return 0.5 * (s * s).sum(1) - 0.5 * (v * v).sum((1, 2))


def group_norm_last(x: Any) -> Any:
    n, h, w, c = x.shape
    g = x.reshape(n, h, w, 16, c // 16)
    m = g.mean((1, 2, 4), keepdim=True)
    v = (g * g).mean((1, 2, 4), keepdim=True) - m * m
    return ((g - m) * torch.rsqrt(v + 1e-5)).reshape(n, h, w, c)


def repetition(logits: Any, ids: Any) -> Any:
    score = torch.gather(logits, 1, ids)
    score = torch.where(score < 0, score * 1.3, score / 1.3)
    return logits.scatter(1, ids, score)


def segment_sum(x: Any, at: Any) -> Any:
    return torch.zeros(4096, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, at, x)


def standardize(x: Any) -> Any:
    return (x - x.mean()) / x.std()


def below_share(x: Any) -> Any:
    p = torch.softmax(x, -1)
    return torch.where(p < 0.05 * p.amax(-1, keepdim=True), torch.zeros_like(p), p)


def class_second(x: Any, y: Any) -> Any:
    return F.cross_entropy(wide(x), y, reduction="none")


def gumbel(x: Any, u: Any) -> Any:
    return x - torch.log(-torch.log(u.abs() * 0.5 + 1e-6) + 1e-6)


def soft_cap(x: Any) -> Any:
    return as_type(30.0 * torch.tanh(wide(x) / 30.0), x)


def column_sums(x: Any) -> Any:
    return wide(x).sum(0)


def shifted_masks(x: Any) -> Any:
    return torch.stack([((x >> k) & 3).to(torch.int8) for k in (0, 2, 4, 6, 8)], -1).flatten()


def factored_rms(g: Any) -> Any:
    s = g * g
    r, c = s.mean(1), s.mean(0)
    return g * torch.rsqrt(r / r.mean())[:, None] * torch.rsqrt(c)[None]


def outer_middle(a: Any, b: Any) -> Any:
    return (a[:, :, None] * b[:, None, :]).permute(0, 2, 1).contiguous()


CASES = (
    ClassCase("frames_last", "bytes", ("16x3x448x640 u8",), frames_last, exact=True),
    ClassCase("bytes_last", "bytes", ("24x3x320x480 u8",), bytes_last, exact=True),
    ClassCase("bytes_first", "bytes", ("24x320x480x3 u8",), bytes_first, exact=True),
    ClassCase("bytes_normalized", "bytes", ("24x320x480x3 u8",), bytes_normalized),
    ClassCase("unpatch", "patches", ("32x256x768 f32",), unpatch, exact=True),
    ClassCase("patch", "patches", ("32x3x224x224 bf16",), patch, exact=True),
    ClassCase("transpose_bf16", "transpose", ("16x1536x768 bf16",), transpose_bf16, exact=True),
    ClassCase("transpose_bytes", "transpose", ("16x1536x768 i8",), transpose_bf16, exact=True),
    ClassCase("heads_out", "transpose", ("8x24x1024x64 bf16",), heads_out, exact=True),
    ClassCase("transpose_add", "transpose", ("3000x2200 f32", "2200x3000 f32"), transpose_add),
    ClassCase("outer_middle", "transpose", ("64x512 f32", "64x384 f32"), outer_middle),
    ClassCase("sobel_replicate", "stencil", ("16x3x384x512 f32",), sobel_replicate),
    ClassCase("laplace_reflect", "stencil", ("16x3x384x512 f32",), laplace_reflect),
    ClassCase("reflect_pad", "stencil", ("32x16x160x240 f32",), reflect_pad, exact=True),
    ClassCase("blur_half", "stencil", ("8x16x320x320 f32",), blur_half),
    ClassCase("dice", "reduction", ("8x12x256x320 f32", "8x256x320 i64:12"), dice),
    ClassCase("factors", "reduction", ("4096x26x48 f32",), factors),
    ClassCase("group_norm_last", "reduction", ("16x48x48x256 f32",), group_norm_last),
    ClassCase("standardize", "reduction", ("4096x3000 f32",), standardize),
    ClassCase("below_share", "reduction", ("2048x12000 f32",), below_share),
    ClassCase("class_second", "reduction", ("8x24x256x320 f32", "8x256x320 i64:24"), class_second),
    ClassCase("column_sums", "reduction", ("6000x4096 bf16",), column_sums),
    ClassCase("factored_rms", "reduction", ("4096x3072 f32",), factored_rms),
    ClassCase("repetition", "scatter", ("64x128000 f32", "64x500 i64:128000"), repetition),
    ClassCase("segment_sum", "scatter", ("65536x96 f32", "65536 i64:4096"), segment_sum),
    ClassCase("gumbel", "arithmetic", ("2048x8192 f32", "2048x8192 f32"), gumbel),
    ClassCase("soft_cap", "arithmetic", ("2048x16384 bf16",), soft_cap),
    ClassCase("shifted_masks", "bytes", ("3000000 i32",), shifted_masks, exact=True),
)
