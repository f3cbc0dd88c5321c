# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Blocks of Llama, GPT-2, BERT and Swin, of any size, whose kernels are counted, forward and backward.

`counted` compiles one with TorchInductor, unchanged up to the end of its scheduler, takes the graphs that this lowered,
and counts the kernels of both compilers for the operations of each; matrix products are left to torch in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

import idgraph as ig
from idgraph.check.inductor_capture import Capture
from idgraph.frontends.import_ import Import
from idgraph.ir.parser import copy_fusion
from idgraph.runtime.program import launches

F: Any = torch.nn.functional
T = Any
PRODUCTS = ("aten.addmm.default", "aten.bmm.default", "aten.mm.default")


class _Norm(nn.Module):  # type: ignore[misc]
    """RMS norm, as Llama has it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(d))

    def forward(self, x: T) -> T:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):  # type: ignore[misc]
    """Rotary positions, grouped-query attention, gated feed-forward."""

    def __init__(self, d: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.width, self.groups = heads, d // heads, max(1, heads // 2)
        self.first, self.second = _Norm(d), _Norm(d)
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.k, self.v = (nn.Linear(d, self.groups * self.width, bias=False) for _ in "kv")
        self.up, self.gate, self.down = (nn.Linear(*s, bias=False) for s in ((d, 3 * d), (d, 3 * d), (3 * d, d)))
        self.cos: T
        self.sin: T
        at = torch.arange(length).float()[:, None] * 10000.0 ** -(torch.arange(0, self.width, 2) / self.width)
        self.register_buffer("cos", torch.cat([at, at], -1).cos())
        self.register_buffer("sin", torch.cat([at, at], -1).sin())

    def turned(self, x: T) -> T:
        """Rotated by its place."""
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x: T) -> T:
        n, t, d = x.shape
        y = self.first(x)
        q = self.turned(self.q(y).view(n, t, self.heads, -1).transpose(1, 2))
        k, v = (p(y).view(n, t, self.groups, -1).transpose(1, 2) for p in (self.k, self.v))
        many = self.heads // self.groups
        k, v = (z[:, :, None].expand(-1, -1, many, -1, -1).reshape(n, self.heads, t, -1) for z in (self.turned(k), v))
        scores = (q @ k.transpose(-1, -2)) * self.width**-0.5
        scores = scores + torch.full((t, t), float("-inf")).triu(1)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GPT2(nn.Module):  # type: ignore[misc]
    """Layer norm in front (pre-norm), one projection for queries, keys and values, tanh's gelu."""

    def __init__(self, d: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.first, self.second, self.qkv = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d)
        self.o, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: T) -> T:
        n, t, d = x.shape
        q, k, v = (p.view(n, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.first(x)).split(d, 2))
        scores = (q @ k.transpose(-1, -2)) / (d // self.heads) ** 0.5
        scores = torch.where(torch.ones(t, t, dtype=torch.bool).tril(), scores, torch.finfo(x.dtype).min)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class Bert(nn.Module):  # type: ignore[misc]
    """Layer norm behind (post-norm), gelu by erf, masked keys."""

    def __init__(self, d: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in "qkvo")
        self.first, self.second = nn.LayerNorm(d), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.register_buffer("mask", torch.zeros(1, 1, 1, length))

    def forward(self, x: T) -> T:
        n, t, d = x.shape
        q, k, v = (p(x).view(n, t, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2)) / (d // self.heads) ** 0.5 + self.mask
        x = self.first(x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Swin(nn.Module):  # type: ignore[misc]
    """Shifted windows, their attention with a bias by place and a mask, and the shift back."""

    def __init__(self, d: int, heads: int, side: int, window: int = 4, shift: int = 2) -> None:
        super().__init__()
        self.heads, self.side, self.window, self.shift = heads, side, window, shift
        self.first, self.second, self.qkv = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d)
        self.o, self.up, self.down = nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        self.place: T
        self.mask: T
        apart = (at[:, :, None] - at[:, None, :]) + window - 1
        self.register_buffer("place", (apart[0] * (2 * window - 1) + apart[1]).flatten())
        self.register_buffer("mask", torch.zeros((side // window) ** 2, window**2, window**2))

    def forward(self, x: T) -> T:
        n, d, w, s = x.shape[0], x.shape[-1], self.window, self.side
        y = torch.roll(self.first(x).view(n, s, s, d), (-self.shift, -self.shift), (1, 2))
        y = y.view(n, s // w, w, s // w, w, d).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, d)
        q, k, v = self.qkv(y).view(-1, w * w, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (d // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.bias[self.place].view(w * w, w * w, -1).permute(2, 0, 1)
        scores = scores.view(n, -1, self.heads, w * w, w * w) + self.mask[None, :, None]
        y = (scores.softmax(-1).view(-1, self.heads, w * w, w * w) @ v).transpose(1, 2).reshape(-1, w * w, d)
        y = self.o(y).view(n, s // w, s // w, w, w, d).permute(0, 1, 3, 2, 4, 5).reshape(n, s, s, d)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2)).view(n, s * s, d)
        return x + self.down(F.gelu(self.up(self.second(x))))


BLOCKS: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "llama block": lambda: (Llama(64, 4, 24), torch.randn(2, 24, 64, requires_grad=True)),
    "gpt2 block": lambda: (GPT2(48, 3, 20), torch.randn(2, 20, 48, requires_grad=True)),
    "bert block": lambda: (Bert(64, 4, 24), torch.randn(3, 24, 64, requires_grad=True)),
    "swin block": lambda: (Swin(32, 2, 8), torch.randn(2, 64, 32, requires_grad=True)),
    "swin block, not shifted": lambda: (Swin(48, 3, 8, shift=0), torch.randn(2, 64, 48, requires_grad=True)),
}


def counted(name: str) -> Iterator[dict[str, Any]]:
    """Kernels of a block, Inductor's and ours: a row for its forward and its backward graph."""
    torch.manual_seed(0)
    model, x = BLOCKS[name]()
    watched = Capture(options={"fallback_random": True}, name=name)
    watched.run(model, (x,))
    for n, lowered in enumerate(watched.lowered):
        mapped = [p for p in PRODUCTS if p in lowered.imported.coverage.mapped]
        yield {
            "case": name, "graph": ("fw", "bw")[n] if n < 2 else str(n),
            "inductor": len({nest.kernel or nest.name for nest in lowered.after.nests}),
            "idgraph": kernels_of(lowered.imported.calling(*mapped)),
        }  # fmt: skip


def kernels_of(imported: Import) -> int:
    """Kernels of all segments, scheduled by `auto`."""
    total = 0
    for s in imported.segments:
        if s.fusion is not None:
            f = copy_fusion(s.fusion)
            ig.schedule.auto(f)
            total += len(launches(f))
    return total
