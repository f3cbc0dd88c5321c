"""Functions of models that no kernel was tuned for: written in one go beside those of `tools.bench.class_cases`.

    python -m tools.bench.gpu --table classes --cases tools.bench.other_cases --default-only

The first figures of these rows are of code that had never met them; see ``results/gpu_other_classes.json``.

Long: one function a case.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from tools.bench.class_cases import ClassCase, as_type, wide

torch: Any = import_module("torch")
F: Any = torch.nn.functional


def sum_mid2(x: Any) -> Any:
    return x.sum((1, 2))


def var_first(x: Any) -> Any:
    return wide(x).var(0)


def std_last_mean(x: Any) -> Any:
    s, m = torch.std_mean(wide(x), dim=-1)
    return as_type(s, x), as_type(m, x)


def norm_cols(x: Any) -> Any:
    return torch.linalg.vector_norm(wide(x), dim=0)


def argmax_mid(x: Any) -> Any:
    return x.argmax(1)


def minmax(x: Any) -> Any:
    return torch.aminmax(x, dim=1)


def any_rows(x: Any) -> Any:
    return (x > 3).any(1)


def total(x: Any) -> Any:
    return wide(x).sum()


def l1_loss(a: Any, b: Any) -> Any:
    return (wide(a) - wide(b)).abs().mean()


def huber(a: Any, b: Any) -> Any:
    return F.smooth_l1_loss(wide(a), wide(b))


def bce(a: Any, b: Any) -> Any:
    return F.binary_cross_entropy_with_logits(a, b)


def cumsum_mid(x: Any) -> Any:
    return torch.cumsum(x, 1)


def cumsum_bf(x: Any) -> Any:
    return as_type(torch.cumsum(wide(x), -1), x)


def rev_cumsum(x: Any) -> Any:
    return torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1])


def cumsum_excl(x: Any) -> Any:
    return torch.cumsum(x, 1) - x


def seg_decay(x: Any) -> Any:
    return torch.exp(torch.cumsum(F.logsigmoid(x), 1))


def cummin_last(x: Any) -> Any:
    return torch.cummin(x, 1).values


def bag_max(ids: Any, t: Any) -> Any:
    return F.embedding(ids, t).amax(1)


def two_tables(ids: Any, pos: Any, t: Any, p: Any) -> Any:
    return F.embedding(ids, t) + F.embedding(pos, p)


def gathered_dot(i: Any, j: Any, t: Any) -> Any:
    return (wide(t[i]) * wide(t[j])).sum(1)


def bert_embed(ids: Any, typ: Any, t: Any, s: Any, p: Any, w: Any, b: Any) -> Any:
    x = t[ids] + s[typ] + p[None]
    return as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b), 1e-12), x)


def table_l2(ids: Any, t: Any) -> Any:
    return as_type(F.normalize(wide(t[ids]), dim=-1), t)


def residual_rms(x: Any, r: Any, w: Any) -> Any:
    h = x + r
    y = wide(h)
    return as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * wide(w), x), h


def gemma_norm(x: Any, w: Any) -> Any:
    y = wide(x)
    return as_type(y * torch.rsqrt((y * y).mean(-1, keepdim=True) + 1e-6) * (1 + wide(w)), x)


def softmax_grad(g: Any, y: Any) -> Any:
    return y * (g - (g * y).sum(-1, keepdim=True))


def ln_grad_wb(g: Any, x: Any, m: Any, r: Any) -> Any:
    xh = (wide(x) - m) * r
    return (wide(g) * xh).sum(0), wide(g).sum(0)


def ada_ln(x: Any, sc: Any, sh: Any) -> Any:
    return as_type(F.layer_norm(wide(x), (x.shape[-1],)) * (1 + wide(sc)[:, None]) + wide(sh)[:, None], x)


def grn(x: Any) -> Any:
    g = torch.linalg.vector_norm(wide(x), dim=(1, 2), keepdim=True)
    n = g / (g.mean(-1, keepdim=True) + 1e-6)
    return as_type(wide(x) * n + wide(x), x)


def group5(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.group_norm(wide(x), 20, wide(w), wide(b)), x)


def pixel_norm(x: Any) -> Any:
    return as_type(wide(x) * torch.rsqrt((wide(x) ** 2).mean(1, keepdim=True) + 1e-8), x)


def layer2d(x: Any, w: Any, b: Any) -> Any:
    u = wide(x).mean(1, keepdim=True)
    s = (wide(x) - u).pow(2).mean(1, keepdim=True)
    return as_type((wide(x) - u) / torch.sqrt(s + 1e-6) * wide(w)[:, None, None] + wide(b)[:, None, None], x)


def weight_norm(v: Any, g: Any) -> Any:
    return as_type(wide(v) * (g / torch.linalg.vector_norm(wide(v), dim=1, keepdim=True)), v)


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


def pad3d(x: Any) -> Any:
    return F.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate")


def reflect1(x: Any) -> Any:
    return F.pad(x, (7, 9), mode="reflect")


def pad_const(x: Any) -> Any:
    return F.pad(x, (3, 5, 2, 1), value=-1.0)


def roll2(x: Any) -> Any:
    return torch.roll(x, (-3, 5), (1, 2))


def unfold1(x: Any) -> Any:
    return F.pad(x, (128, 128), mode="reflect").unfold(-1, 400, 160)


def q_groups(x: Any) -> Any:
    y = wide(x).view(x.shape[0], -1, 128)
    s = y.abs().amax(-1, keepdim=True) / 127
    return torch.round(y / s).clamp(-127, 127).to(torch.int8).view(x.shape), s[..., 0]


def dq_groups(q: Any, s: Any) -> Any:
    return (q.view(q.shape[0], -1, 128).float() * s.float()[..., None]).to(s.dtype).view(q.shape)


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


def fake_quant(x: Any, s: Any) -> Any:
    return as_type(torch.round(wide(x) / s).clamp(-128, 127) * s, x)


def focal(x: Any, t: Any) -> Any:
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (ce * (1 - (p * t + (1 - p) * (1 - t))) ** 2).mean()


def zloss(x: Any) -> Any:
    return (torch.logsumexp(wide(x), -1) ** 2).mean()


def nll_masked(x: Any, t: Any) -> Any:
    m = t >= 0
    lp = torch.log_softmax(wide(x), -1).gather(1, t.clamp(min=0)[:, None])[:, 0]
    return -(lp * m).sum() / m.sum()


def distill(a: Any, b: Any) -> Any:
    return F.kl_div(torch.log_softmax(wide(a) / 2, -1), torch.softmax(wide(b) / 2, -1), reduction="batchmean")


def dpo(x: Any, t: Any) -> Any:
    return torch.log_softmax(wide(x), -1).gather(2, t[..., None])[..., 0].sum(-1)


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


def t5_mask(x: Any, pad: Any) -> Any:
    return as_type(torch.softmax(wide(x) + (1 - pad.float())[:, None, None] * -1e9, -1), x)


def sink(x: Any, s: Any) -> Any:
    m = torch.cat((wide(x), s[None, :, None, None].expand(x.shape[0], -1, x.shape[2], 1)), -1)
    return as_type(torch.softmax(m, -1)[..., :-1], x)


def topsig(x: Any) -> Any:
    return as_type(torch.sigmoid(wide(x)) / (torch.sigmoid(wide(x)).sum(-1, keepdim=True) + 1e-6), x)


def yuv(x: Any) -> Any:
    r, g, b = (x[..., k].float() for k in range(3))
    y, u = 0.299 * r + 0.587 * g + 0.114 * b, -0.169 * r - 0.331 * g + 0.5 * b
    return torch.stack((y, u, 0.5 * r - 0.419 * g - 0.081 * b), -1)


def bgr(x: Any) -> Any:
    return (x.flip(-1).permute(0, 3, 1, 2).float() / 255 - 0.5) * 2


def crop_norm(x: Any) -> Any:
    return (x[:, 16:240, 16:240].permute(0, 3, 1, 2).float() - 120.0) / 58.0


def up2(x: Any) -> Any:
    return F.interpolate(x, scale_factor=2, mode="nearest")


def bilinear(x: Any) -> Any:
    return F.interpolate(x, size=(160, 160), mode="bilinear", align_corners=False)


def avgpool(x: Any) -> Any:
    return F.avg_pool2d(x, 2)


def maxpool(x: Any) -> Any:
    return F.max_pool2d(x, 3, 2, 1)


def space2depth(x: Any) -> Any:
    b, c, h, w = x.shape
    return x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(b, c * 4, h // 2, w // 2)


def shuffle_ch(x: Any) -> Any:
    b, c, h, w = x.shape
    return x.view(b, 4, c // 4, h, w).transpose(1, 2).reshape(b, c, h, w)


def odd_t(x: Any) -> Any:
    return x.transpose(1, 2).contiguous()


def odd_add(a: Any, b: Any) -> Any:
    return a + b * 0.5


def odd_ln(x: Any, w: Any, b: Any) -> Any:
    return as_type(F.layer_norm(wide(x), (x.shape[-1],), wide(w), wide(b)), x)


def odd_cat0(a: Any, b: Any) -> Any:
    return torch.cat((a, b), 0)


def odd_lsm(x: Any) -> Any:
    return as_type(torch.log_softmax(wide(x), -1), x)


def softplus(x: Any) -> Any:
    return F.softplus(x)


def elu_res(x: Any, r: Any) -> Any:
    return F.elu(x) + r


def tanh_bias(x: Any, b: Any) -> Any:
    return torch.tanh(x + b)


def relu2(x: Any) -> Any:
    return torch.square(torch.relu(x))


def gated_tanh(x: Any) -> Any:
    a, b = x.chunk(2, 1)
    return torch.tanh(a) * torch.sigmoid(b)


def quick_gelu(x: Any) -> Any:
    return x * torch.sigmoid(1.702 * x)


def dropout_mask(x: Any, m: Any) -> Any:
    return x * m.to(x.dtype) / 0.9


def cache_at(c: Any, pos: Any, k: Any) -> Any:
    c = c.clone()
    c[torch.arange(c.shape[0], device=c.device), pos] = k
    return c


def hist(i: Any, w: Any) -> Any:
    return torch.zeros(4096, device=w.device, dtype=w.dtype).index_add(0, i, w)


def scatter_max(x: Any, i: Any) -> Any:
    none = torch.zeros(32768, 128, device=x.device, dtype=x.dtype)
    return none.scatter_reduce(0, i[:, None].expand(-1, 128), x, "amax")


def one_hot(i: Any) -> Any:
    return F.one_hot(i, 4096).to(torch.float32)


def moe_combine(y: Any, idx: Any, w: Any) -> Any:
    return (y[idx] * w[..., None]).sum(1)


def adamw(p: Any, g: Any, m: Any, v: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return p * 0.999 - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def ema(a: Any, b: Any) -> Any:
    return torch.lerp(a, b, 0.01)


def triu(x: Any) -> Any:
    return torch.triu(x, 1)


def diag_add(x: Any, d: Any) -> Any:
    return x + torch.diag_embed(d)


def outer(a: Any, b: Any) -> Any:
    return a[:, :, None] * b[:, None, :]


def dist1(a: Any, b: Any) -> Any:
    return (a[:, None] - b[None]).abs().sum(-1)


def cosine(a: Any, b: Any) -> Any:
    return F.cosine_similarity(wide(a), wide(b), -1)


def swap_heads(x: Any) -> Any:
    return x.view(8, 1024, 32, 128).transpose(1, 2).contiguous()


def qkv_split(x: Any) -> Any:
    q, k, v = x.view(8, 1024, 3, 16, 64).permute(2, 0, 3, 1, 4).unbind(0)
    return q * 0.125, k.contiguous(), v.contiguous()


CASES = (
    ClassCase("sum_mid2", "sums", ("128x14x14x1024 bf16",), sum_mid2),
    ClassCase("var_first", "sums", ("8192x4096 bf16",), var_first),
    ClassCase("std_last_mean", "sums", ("16384x3072 bf16",), std_last_mean),
    ClassCase("norm_cols", "sums", ("30000x1000 f32",), norm_cols),
    ClassCase("argmax_mid", "sums", ("64x150x96x96 f32",), argmax_mid, True),
    ClassCase("minmax", "sums", ("4096x10000 f32",), minmax, True),
    ClassCase("any_rows", "sums", ("8192x8192 bf16",), any_rows, True),
    ClassCase("total", "sums", ("8192x8192 bf16",), total),
    ClassCase("l1_loss", "sums", ("8192x8191 bf16", "8192x8191 bf16"), l1_loss),
    ClassCase("huber", "sums", ("4096x8192 f32", "4096x8192 f32"), huber),
    ClassCase("bce", "sums", ("8192x4096 f32", "8192x4096 f32:+"), bce),
    ClassCase("cumsum_mid", "scans", ("32x2048x512 f32",), cumsum_mid),
    ClassCase("cumsum_bf", "scans", ("16x1024x2000 bf16",), cumsum_bf),
    ClassCase("rev_cumsum", "scans", ("8192x4096 f32",), rev_cumsum),
    ClassCase("cumsum_excl", "scans", ("8192x3000 f32",), cumsum_excl),
    ClassCase("seg_decay", "scans", ("16x2048x1024 f32",), seg_decay, False, 2.0),
    ClassCase("cummin_last", "scans", ("4096x5000 f32",), cummin_last, True),
    ClassCase("bag_max", "bags", ("16384x6 i64:20000", "20000x512 bf16"), bag_max, True),
    ClassCase(
        "two_tables", "bags", ("32768 i64:50000", "32768 i64:2048", "50000x768 bf16", "2048x768 bf16"), two_tables
    ),
    ClassCase("gathered_dot", "bags", ("200000 i64:50000", "200000 i64:50000", "50000x128 bf16"), gathered_dot),
    ClassCase(
        "bert_embed",
        "tables",
        ("32x512 i64:30522", "32x512 i64:2", "30522x768 bf16", "2x768 bf16", "512x768 bf16", "768 bf16", "768 bf16"),
        bert_embed,
    ),
    ClassCase("table_l2", "tables", ("32768 i64:100000", "100000x300 bf16"), table_l2),
    ClassCase("residual_rms", "norms", ("16384x5120 bf16", "16384x5120 bf16", "5120 bf16"), residual_rms),
    ClassCase("gemma_norm", "norms", ("16384x3584 bf16", "3584 bf16"), gemma_norm),
    ClassCase("softmax_grad", "norms", ("16384x4096 f32", "16384x4096 f32"), softmax_grad),
    ClassCase("ln_grad_wb", "norms", ("16384x2048 bf16", "16384x2048 bf16", "16384x1 f32", "16384x1 f32"), ln_grad_wb),
    ClassCase("ada_ln", "norms", ("16x1024x1152 bf16", "16x1152 bf16", "16x1152 bf16"), ada_ln),
    ClassCase("grn", "groups", ("32x28x28x768 bf16",), grn),
    ClassCase("group5", "groups", ("8x640x48x48 bf16", "640 bf16", "640 bf16"), group5),
    ClassCase("pixel_norm", "groups", ("8x512x64x64 bf16",), pixel_norm),
    ClassCase("layer2d", "groups", ("32x192x56x56 bf16", "192 bf16", "192 bf16"), layer2d),
    ClassCase("weight_norm", "norms", ("8192x4608 bf16", "8192x1 f32"), weight_norm),
    ClassCase("rope_inter", "sections", ("8x32x2048x128 bf16", "2048x64 bf16", "2048x64 bf16"), rope_inter),
    ClassCase(
        "rope_qk", "sections", ("4x32x2048x128 bf16", "4x8x2048x128 bf16", "2048x128 bf16", "2048x128 bf16"), rope_qk
    ),
    ClassCase("rope_norm", "sections", ("4x32x2048x128 bf16", "128 bf16", "2048x128 bf16", "2048x128 bf16"), rope_norm),
    ClassCase("sincos", "sections", ("65536 f32",), sincos),
    ClassCase("pad3d", "pads", ("8x32x30x62x62 f32",), pad3d, True),
    ClassCase("reflect1", "pads", ("2048x16000 bf16",), reflect1, True),
    ClassCase("pad_const", "pads", ("32x64x111x113 bf16",), pad_const, True),
    ClassCase("roll2", "pads", ("64x56x56x192 bf16",), roll2, True),
    ClassCase("unfold1", "pads", ("64x80000 f32",), unfold1, True),
    ClassCase("q_groups", "narrow", ("8192x8192 bf16",), q_groups),
    ClassCase("dq_groups", "narrow", ("8192x8192 i8", "8192x64 bf16"), dq_groups),
    ClassCase("unpack_int32", "narrow", ("4096x1024 i32:100000000",), unpack_int32, True),
    ClassCase("unpack_bits", "narrow", ("8192x1024 u8",), unpack_bits, True),
    ClassCase("pack_bits", "narrow", ("8192x8192 bf16",), pack_bits, True),
    ClassCase("fake_quant", "narrow", ("8192x4096 bf16", "4096 f32:+"), fake_quant),
    ClassCase("focal", "losses", ("65536x80 f32", "65536x80 f32:+"), focal),
    ClassCase("zloss", "losses", ("8192x32000 bf16",), zloss),
    ClassCase("nll_masked", "losses", ("8192x32001 bf16", "8192 i64:32000"), nll_masked),
    ClassCase("distill", "losses", ("4096x32000 bf16", "4096x32000 bf16"), distill),
    ClassCase("dpo", "losses", ("8x512x32000 bf16", "8x512 i64:32000"), dpo),
    ClassCase("prefix_mask", "masks", ("16x2048x2048 bf16",), prefix_mask),
    ClassCase("rel_bias", "masks", ("8x12x512x512 bf16", "12x257 f32"), rel_bias),
    ClassCase("t5_mask", "masks", ("16x12x512x512 bf16", "16x512 i64:2"), t5_mask),
    ClassCase("sink", "masks", ("4x16x1024x1024 bf16", "16 f32"), sink),
    ClassCase("topsig", "masks", ("131072x256 bf16",), topsig),
    ClassCase("yuv", "pictures", ("32x512x512x3 u8",), yuv),
    ClassCase("bgr", "pictures", ("64x224x224x3 u8",), bgr),
    ClassCase("crop_norm", "pictures", ("64x256x256x3 u8",), crop_norm),
    ClassCase("up2", "pictures", ("16x128x64x64 bf16",), up2, True),
    ClassCase("bilinear", "pictures", ("16x64x80x80 f32",), bilinear),
    ClassCase("avgpool", "pictures", ("32x64x112x112 bf16",), avgpool),
    ClassCase("maxpool", "pictures", ("32x64x112x112 f32",), maxpool, True),
    ClassCase("space2depth", "pictures", ("32x32x128x128 bf16",), space2depth, True),
    ClassCase("shuffle_ch", "pictures", ("32x240x56x56 bf16",), shuffle_ch, True),
    ClassCase("odd_t", "odd", ("16x1001x771 f32",), odd_t, True),
    ClassCase("odd_add", "odd", ("3x7777x1111 bf16", "3x7777x1111 bf16"), odd_add),
    ClassCase("odd_ln", "odd", ("16384x1031 bf16", "1031 bf16", "1031 bf16"), odd_ln),
    ClassCase("odd_cat0", "odd", ("5001x1023 bf16", "777x1023 bf16"), odd_cat0, True),
    ClassCase("odd_lsm", "odd", ("4096x10007 f32",), odd_lsm),
    ClassCase("softplus", "functions", ("8192x8192 f32",), softplus),
    ClassCase("elu_res", "functions", ("8192x8192 bf16", "8192x8192 bf16"), elu_res),
    ClassCase("tanh_bias", "functions", ("8192x5000 bf16", "5000 bf16"), tanh_bias),
    ClassCase("relu2", "functions", ("8192x14336 bf16",), relu2),
    ClassCase("gated_tanh", "functions", ("16x1024x8000 bf16",), gated_tanh),
    ClassCase("quick_gelu", "functions", ("16384x5120 bf16",), quick_gelu),
    ClassCase("cache_at", "writes", ("64x2048x8x64 bf16", "64 i64:2048", "64x8x64 bf16"), cache_at, True),
    ClassCase("hist", "writes", ("4000000 i64:4096", "4000000 f32"), hist, False, 4.0),
    ClassCase("scatter_max", "writes", ("200000x128 f32", "200000 i64:32768"), scatter_max, True),
    ClassCase("one_hot", "writes", ("16384 i64:4096",), one_hot, True),
    ClassCase("moe_combine", "bags", ("65536x1024 bf16", "32768x2 i64:65536", "32768x2 bf16"), moe_combine),
    ClassCase("adamw", "functions", ("4000x9001 f32", "4000x9001 f32", "4000x9001 f32", "4000x9001 f32:+"), adamw),
    ClassCase("ema", "functions", ("8000x4097 f32", "8000x4097 f32"), ema),
    ClassCase("triu", "masks", ("64x1024x1024 f32",), triu, True),
    ClassCase("diag_add", "masks", ("64x512x512 f32", "64x512 f32"), diag_add),
    ClassCase("outer", "functions", ("512x300 f32", "512x500 f32"), outer),
    ClassCase("dist1", "sums", ("512x64 f32", "2048x64 f32"), dist1),
    ClassCase("cosine", "sums", ("32768x1024 bf16", "32768x1024 bf16"), cosine),
    ClassCase("swap_heads", "functions", ("8x1024x4096 bf16",), swap_heads, True),
    ClassCase("qkv_split", "functions", ("8x1024x3072 bf16",), qkv_split),
)
