"""The cases of `tools.bench.gpu`: each a fusion at the size of a real model, and the same work in PyTorch.

A case is added by one entry of `CASES`: ``build(small)`` makes the fusion, ``torch(torch, x)`` computes its outputs, in
their order, from tensors by input name. The PyTorch function runs eagerly, compiled, and in float64 as the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import idgraph as ig

Tensors = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """``bar`` is the share of a matched device copy to reach; ``exact`` cases move elements only, bit for bit.

    ``gathered`` names inputs of which no more bytes count than the first output has (tables that are gathered from).
    ``twice`` names inputs that the work reads two times by its nature (the logits of a loss and of its gradient).
    ``schedule`` replaces `ig.schedule.auto`.
    """

    key: str
    bar: float
    build: Callable[[bool], ig.Fusion]
    torch: Callable[[Any, Tensors], tuple[Any, ...]]
    exact: bool = False
    gathered: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    schedule: Callable[[ig.Fusion], object] | None = None


def rotation(small: bool) -> ig.Fusion:
    """t0 + cat(t0[n/2:], t0[:n/2]), float32."""
    f = ig.Fusion("rotation + residual")
    n = 1 << (12 if small else 28)
    t0 = f.input("t0", shape=(n,))
    f.output(t0 + ig.cat([t0[n // 2 :], t0[: n // 2]]))
    return f


def rotation_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    t0 = x["t0"]
    n = t0.shape[0] // 2
    return (t0 + torch.cat([t0[n:], t0[:n]]),)


def _half(torch: Any, x: Any) -> Any:
    n = x.shape[-1] // 2
    return torch.cat([-x[..., n:], x[..., :n]], dim=-1)


def _turned(x: ig.Tensor, half: int) -> ig.Tensor:
    return ig.cat([-x[..., half:], x[..., :half]], dim=-1)


def _rope(name: str, small: bool, residual: bool, transposed: bool = False) -> ig.Fusion:
    """q and k [batch, heads, length, width]; ``transposed``: they lie in memory as [batch, length, heads, width]."""
    f = ig.Fusion(name)
    batch, heads, length, width = (2, 4, 16, 16) if small else (2, 32, 4096, 128)
    cos, sin = (f.input(n, shape=(batch, 1, length, width), dtype="bfloat16") for n in ("cos", "sin"))
    for n in ("q", "k"):
        if transposed:
            x = ig.transpose(f.input(n, shape=(batch, length, heads, width), dtype="bfloat16"), 1, 2)
        else:
            x = f.input(n, shape=(batch, heads, length, width), dtype="bfloat16")
        out = x * cos + _turned(x, width // 2) * sin
        f.output(out + x if residual else out)
    return _dense(f) if transposed else f


def _dense(f: ig.Fusion) -> ig.Fusion:
    """Outputs in the order of their shape, whatever the memory of the inputs is: ``.contiguous()``."""
    for t in f.outputs:
        t.set_allocation(t.axes)
    return f


def rope(small: bool) -> ig.Fusion:
    """Rotate-half RoPE of q and k, bfloat16."""
    return _rope("RoPE q,k bf16", small, residual=False)


def rope_residual(small: bool) -> ig.Fusion:
    """The same with residual."""
    return _rope("RoPE + residual bf16", small, residual=True)


def rope_views(small: bool) -> ig.Fusion:
    """The same of transposed views, as attention has them."""
    return _rope("RoPE q,k of transposed views", small, residual=False, transposed=True)


def rope_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return tuple(x[n] * x["cos"] + _half(torch, x[n]) * x["sin"] for n in ("q", "k"))


def rope_views_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    qk = [x[n].transpose(1, 2) for n in ("q", "k")]
    return tuple((t * x["cos"] + _half(torch, t) * x["sin"]).contiguous() for t in qk)


def rope_interleaved(small: bool) -> ig.Fusion:
    """GPT-J's convention: pairs (2i, 2i + 1), float32."""
    f = ig.Fusion("RoPE interleaved f32")
    batch, length, heads, width = (2, 16, 4, 8) if small else (2, 4096, 32, 128)
    x = f.input("q", shape=(batch, length, heads, width))
    cos, sin = (f.input(n, shape=(batch, length, 1, width // 2)) for n in ("cos", "sin"))
    even, odd = x[..., ::2], x[..., 1::2]
    f.output(ig.flatten(ig.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1), 3))
    return f


def rope_interleaved_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    even, odd = x["q"][..., ::2], x["q"][..., 1::2]
    cos, sin = x["cos"], x["sin"]
    return (torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(3),)


def _qkv_sizes(small: bool) -> tuple[int, int, int, int, int]:
    return (2, 16, 16, 4, 2) if small else (2, 4096, 128, 32, 8)


def qkv_rope(small: bool) -> ig.Fusion:
    """A joined QKV projection (32, 8 and 8 heads) split, q and k rotated, all made contiguous; bfloat16."""
    f = ig.Fusion("QKV split + RoPE bf16")
    batch, length, width, heads, groups = _qkv_sizes(small)
    qkv = f.input("qkv", shape=(batch, length, (heads + 2 * groups) * width), dtype="bfloat16")
    cos, sin = (f.input(n, shape=(batch, 1, length, width), dtype="bfloat16") for n in ("cos", "sin"))
    start = 0
    for n, rotated in ((heads, True), (groups, True), (groups, False)):
        part = ig.reshape(qkv[..., start * width : (start + n) * width], batch, length, n, width)
        x = ig.transpose(part, 1, 2)
        start += n
        f.output(x * cos + _turned(x, width // 2) * sin if rotated else ig.copy(x))
    return _dense(f)


def qkv_rope_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same; the head counts stand 4 : 1 : 1 (2 : 1 : 1 when small)."""
    qkv, width = x["qkv"], x["cos"].shape[-1]
    batch, length, total = qkv.shape
    heads = total // width
    groups = 8 if heads == 48 else heads // 4
    made: list[Any] = []
    for part in qkv.split([(heads - 2 * groups) * width, groups * width, groups * width], dim=-1):
        t = part.reshape(batch, length, -1, width).transpose(1, 2)
        turned = len(made) < 2
        made.append((t * x["cos"] + _half(torch, t) * x["sin"]).contiguous() if turned else t.contiguous())
    return tuple(made)


def _swin_sizes(small: bool) -> tuple[int, int, int, int]:
    return (1, 14, 16, 7) if small else (32, 112, 192, 7)


def swin(small: bool) -> ig.Fusion:
    """Swin's cyclic shift and window partition, bfloat16."""
    f = ig.Fusion("Swin shift + windows bf16")
    batch, side, width, window = _swin_sizes(small)
    x = f.input("x", shape=(batch, side, side, width), dtype="bfloat16")
    moved = ig.roll(x, (-3, -3), (1, 2))
    n = side // window
    windows = ig.permute(ig.reshape(moved, batch, n, window, n, window, width), 0, 1, 3, 2, 4, 5)
    f.output(ig.reshape(windows, batch * n * n, window, window, width))
    return f


def swin_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    t = x["x"]
    batch, side, _, width = t.shape
    n = side // 7
    moved = torch.roll(t, (-3, -3), (1, 2)).reshape(batch, n, 7, n, 7, width)
    return (moved.permute(0, 1, 3, 2, 4, 5).reshape(batch * n * n, 7, 7, width),)


def pixel_shuffle(small: bool) -> ig.Fusion:
    """Depth to space by 2, bfloat16."""
    f = ig.Fusion("pixel shuffle bf16")
    batch, depth, side = (1, 8, 8) if small else (16, 256, 256)
    x = f.input("x", shape=(batch, depth, side, side), dtype="bfloat16")
    parts = ig.permute(ig.reshape(x, batch, depth // 4, 2, 2, side, side), 0, 1, 4, 2, 5, 3)
    f.output(ig.reshape(parts, batch, depth // 4, 2 * side, 2 * side))
    return f


def take_along(small: bool) -> ig.Fusion:
    """One element of each row, by an int64 index."""
    f = ig.Fusion("take_along_dim, extent 1")
    rows, columns = (64, 40) if small else (16384, 32768)
    x = f.input("x", shape=(rows, columns))
    f.output(ig.take_along_dim(x, f.input("index", shape=(rows, 1), dtype="int64"), 1) * 2.0)
    return f


def embedding(small: bool) -> ig.Fusion:
    """Rows of a table, bfloat16, int64 ids."""
    f = ig.Fusion("embedding bf16")
    count, rows, width = (16, 50, 16) if small else (16384, 32000, 4096)
    ids = f.input("ids", shape=(count,), dtype="int64")
    f.output(ig.embedding(ids, f.input("table", shape=(rows, width), dtype="bfloat16")))
    return f


def embedding_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return (torch.nn.functional.embedding(x["ids"], x["table"]),)


def gather(small: bool) -> ig.Fusion:
    """gather along the last axis, float32, int64 index of the same shape."""
    f = ig.Fusion("gather f32")
    n = 32 if small else 8192
    x, index = f.input("x", shape=(n, n)), f.input("index", shape=(n, n), dtype="int64")
    f.output(ig.gather(x, 1, index))
    return f


def gather_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return (torch.gather(x["x"], 1, x["index"]),)


def scatter_add(small: bool) -> ig.Fusion:
    """Rows added to a table, float32: the gradient of an embedding, with atomics."""
    f = ig.Fusion("scatter_add rows f32")
    count, rows, width = (40, 16, 16) if small else (16384, 32000, 4096)
    ids, source = f.input("ids", shape=(count,), dtype="int64"), f.input("source", shape=(count, width))
    f.output(ig.index_put(f.full((rows, width), 0.0), [ids], source, accumulate=True))
    return f


def scatter_add_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    source = x["source"]
    table = torch.zeros((16 if len(source) == 40 else 32000, source.shape[1]), device=source.device, dtype=source.dtype)
    return (table.index_put_((x["ids"],), source, accumulate=True),)


def index_put(small: bool) -> ig.Fusion:
    """Rows of a cache replaced, bfloat16; no two slots are equal, since torch promises no last writer."""
    f = ig.Fusion("index_put rows bf16")
    count, rows, width = (12, 16, 16) if small else (16384, 32000, 4096)
    cache = f.input("cache", shape=(rows, width), dtype="bfloat16")
    start, new = f.input("start", shape=(1,), dtype="int64"), f.input("new", shape=(count, width), dtype="bfloat16")
    f.output(ig.index_put(cache, [(f.iota(count, step=12347) + start) % rows], new))
    return f


def index_put_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    slots = torch.arange(len(x["new"]), device=x["new"].device) * 12347 + x["start"]
    return (x["cache"].index_put((slots % len(x["cache"]),), x["new"]),)


def _moved(name: str, shape: tuple[int, ...], dims: tuple[int, ...], dtype: str) -> ig.Fusion:
    f = ig.Fusion(name)
    f.output(ig.permute(f.input("x", shape=shape, dtype=dtype), dims))
    return _dense(f)


def transpose(small: bool) -> ig.Fusion:
    """A matrix transposed, bfloat16."""
    n = 128 if small else 16384
    return _moved("transpose bf16", (n, n), (1, 0), "bfloat16")


def transpose_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return (x["x"].t().contiguous(),)


def transpose_f32(small: bool) -> ig.Fusion:
    """A batch of matrices transposed, float32."""
    return _moved("batched transpose f32", (2, 48, 64) if small else (16, 4096, 2048), (0, 2, 1), "float32")


def channels_last(small: bool) -> ig.Fusion:
    """NCHW to NHWC, bfloat16."""
    shape = (1, 16, 6, 8) if small else (128, 256, 56, 56)
    return _moved("NCHW to NHWC bf16", shape, (0, 2, 3, 1), "bfloat16")


def transpose_bytes(small: bool) -> ig.Fusion:
    """A matrix of bytes transposed."""
    n = 128 if small else 16384
    return _moved("transpose uint8", (n, n), (1, 0), "uint8")


def transpose_add(small: bool) -> ig.Fusion:
    """relu(x.T + r), bfloat16."""
    f = ig.Fusion("relu(x.T + r) bf16")
    n = 128 if small else 12288
    x, r = (f.input(name, shape=(n, n), dtype="bfloat16") for name in ("x", "r"))
    f.output(ig.relu(ig.permute(x, (1, 0)) + r))
    return f


def _cross_entropy(classes: int, gradient: bool) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        rows, count = (8, classes // 512) if small else (8192, classes)
        f = ig.Fusion(f"cross entropy{' and gradient' if gradient else ''} bf16 {rows} x {count}")
        x = f.input("x", shape=(rows, count), dtype="bfloat16")
        y = f.input("y", shape=(rows,), dtype="int64")
        f.output(ig.cross_entropy(x, y))
        if gradient:
            f.output(ig.cross_entropy_backward(None, x, y))
        return f

    return build


def cross_entropy_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The loss."""
    return (torch.nn.functional.cross_entropy(x["x"], x["y"]),)


def cross_entropy_gradient_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The loss and its gradient."""
    logits = x["x"].detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, x["y"])
    return loss.detach(), *torch.autograd.grad(loss, logits)


def _softmax(columns: int, dtype: str) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        rows, count = (8, columns // 32) if small else ((1 << 28) // columns, columns)
        f = ig.Fusion(f"softmax {dtype} {rows} x {count}")
        x = f.input("x", shape=(rows, count), dtype=dtype)
        f.output(ig.cast(ig.softmax(ig.cast(x, "float32"), 1), dtype))
        return f

    return build


def softmax_torch(torch: Any, x: Tensors) -> tuple[Any, ...]:
    """The same."""
    return (torch.softmax(x["x"], 1),)


def _norm(centred: bool) -> Callable[[bool], ig.Fusion]:
    def build(small: bool) -> ig.Fusion:
        rows, count = (4, 96) if small else (32768, 4096)
        f = ig.Fusion(f"{'layer' if centred else 'rms'} norm bf16 {rows} x {count}")
        x = f.input("x", shape=(rows, count), dtype="bfloat16")
        names = ("weight", "bias") if centred else ("weight",)
        weight, *bias = (ig.cast(f.input(n, shape=(count,), dtype="bfloat16"), "float32") for n in names)
        wide = ig.cast(x, "float32")
        apart = wide - ig.mean(wide, 1, keepdim=True) if centred else wide
        made = apart * ig.rsqrt(ig.mean(ig.square(apart), 1, keepdim=True) + 1e-5) * weight
        f.output(ig.cast(made + bias[0] if bias else made, "bfloat16"))
        return f

    return build


def total(small: bool) -> ig.Fusion:
    """The sum of all squares, float32: two stages."""
    f = ig.Fusion("sum of squares f32")
    f.output(ig.sum(ig.square(f.input("x", shape=(1 << 16 if small else 1 << 28,)))))
    return f


CASES: tuple[Case, ...] = (
    Case("rotation", 0.99, rotation, rotation_torch),
    Case("rope", 0.99, rope, rope_torch),
    Case("rope_views", 0.99, rope_views, rope_views_torch),
    Case(
        "rope_residual",
        0.98,
        rope_residual,
        lambda torch, x: tuple(x[n] * x["cos"] + _half(torch, x[n]) * x["sin"] + x[n] for n in ("q", "k")),
    ),
    Case("rope_interleaved", 0.97, rope_interleaved, rope_interleaved_torch),
    Case("qkv_rope", 0.97, qkv_rope, qkv_rope_torch),
    Case("swin", 0.97, swin, swin_torch, exact=True),
    Case(
        "pixel_shuffle",
        0.97,
        pixel_shuffle,
        lambda torch, x: (torch.nn.functional.pixel_shuffle(x["x"], 2),),
        exact=True,
    ),
    Case("transpose", 0.95, transpose, transpose_torch, exact=True),
    Case("transpose_f32", 0.95, transpose_f32, lambda torch, x: (x["x"].transpose(1, 2).contiguous(),), exact=True),
    Case("transpose_bytes", 0.95, transpose_bytes, transpose_torch, exact=True),
    Case("channels_last", 0.95, channels_last, lambda torch, x: (x["x"].permute(0, 2, 3, 1).contiguous(),), exact=True),
    Case("transpose_add", 0.95, transpose_add, lambda torch, x: (torch.relu(x["x"].t() + x["r"]),)),
    Case("embedding", 0.97, embedding, embedding_torch, exact=True, gathered=("table",)),
    Case("gather", 0.85, gather, gather_torch, exact=True),
    Case("scatter_add", 0.0, scatter_add, scatter_add_torch),
    Case("index_put", 0.0, index_put, index_put_torch, exact=True),
    Case(
        "take_along",
        0.0,
        take_along,
        lambda torch, x: (torch.take_along_dim(x["x"], x["index"], 1) * 2.0,),
        gathered=("x",),
    ),
    *(Case(f"ce_{n}", 0.96, _cross_entropy(n, False), cross_entropy_torch) for n in (32768, 50257, 128256)),
    *(
        Case(f"ce_grad_{n}", 0.92, _cross_entropy(n, True), cross_entropy_gradient_torch, twice=("x",))
        for n in (32768, 50257, 128256)
    ),
    Case("softmax", 0.9, _softmax(4096, "bfloat16"), softmax_torch),
    Case("softmax_f32", 0.9, _softmax(8192, "float32"), softmax_torch),
    Case(
        "layer_norm",
        0.9,
        _norm(centred=True),
        lambda torch, x: (torch.nn.functional.layer_norm(x["x"], x["weight"].shape, x["weight"], x["bias"], 1e-5),),
    ),
    Case(
        "rms_norm",
        0.9,
        _norm(centred=False),
        lambda torch, x: (torch.nn.functional.rms_norm(x["x"], x["weight"].shape, x["weight"], 1e-5),),
    ),
    Case("total", 0.0, total, lambda torch, x: (torch.sum(torch.square(x["x"])),)),
)
