"""RoPE in the conventions that models use, written as PyTorch programs: one kernel, nothing stored, wide accesses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import idgraph as ig
from idgraph.frontends import from_torch
from idgraph.ir import item_size
from idgraph.kernel.ir import Load, Store, VectorLoad, VectorStore, walk
from idgraph.runtime import Program

T = Any  # torch's own types are partly unknown


def turned(x: T) -> T:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def multimodal(q: T, k: T, cos: T, sin: T) -> Any:
    """Qwen2-VL: a section of the tables for time, height and width each."""
    sections = [16, 24, 24] * 2
    c, s = (
        torch.cat([part[i % 3] for i, part in enumerate(t.split(sections, -1))], -1).unsqueeze(1) for t in (cos, sin)
    )
    return q * c + turned(q) * s, k * c + turned(k) * s


def repeated(x: T, cos: T, sin: T) -> T:
    """GPT-J: neighbours are a pair, and share what repeat_interleave repeats."""
    pairs = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos.repeat_interleave(2, -1) + pairs * sin.repeat_interleave(2, -1)


def in_pairs(x: T, table: T) -> T:
    """ChatGLM: the first half of a head in pairs with a table of (cos, sin), the rest passed on."""
    b, s, h, d = x.shape
    front, rest = x[..., : d // 2].reshape(b, s, h, d // 4, 2), x[..., d // 2 :]
    t = table.view(b, s, 1, d // 4, 2)
    made = torch.stack(
        [front[..., 0] * t[..., 0] - front[..., 1] * t[..., 1], front[..., 1] * t[..., 0] + front[..., 0] * t[..., 1]],
        -1,
    )
    return torch.cat((made.flatten(3), rest), -1)


def as_complex(q: T, k: T, table: T) -> Any:
    """Llama 4: complex numbers written as pairs of floats, in float32."""

    def one(x: T) -> T:
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        c, s = table[:, :, None, :, 0], table[:, :, None, :, 1]
        made = (pairs[..., 0] * c - pairs[..., 1] * s, pairs[..., 0] * s + pairs[..., 1] * c)
        return torch.stack(made, -1).flatten(3).type_as(x)

    return one(q), one(k)


def computed(q: T, k: T, frequency: T, position: T) -> Any:
    """Cosines and sines computed in the kernel."""
    angle = (frequency[None, :, None] * position[:, None, :].float()).transpose(1, 2)
    both = torch.cat((angle, angle), -1)
    cos, sin = both.cos()[:, None], both.sin()[:, None]
    return (q * cos + turned(q) * sin).to(q.dtype), (k * cos + turned(k) * sin).to(k.dtype)


def some(*shape: int, dtype: Any = torch.bfloat16) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


# A program, its arguments, and the bytes of its narrowest access other than of positions.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[T, ...], int]] = {
    "mrope": (multimodal, (some(2, 4, 4, 128), some(2, 2, 4, 128), some(3, 2, 4, 128), some(3, 2, 4, 128)), 16),
    "repeat_interleave": (repeated, (some(1, 512, 32, 32), some(512, 1, 16), some(512, 1, 16)), 8),
    "chatglm": (in_pairs, (some(2, 8, 4, 64), some(2, 8, 16, 2)), 16),
    "llama 4": (as_complex, (some(1, 512, 32, 32), some(1, 512, 8, 32), some(1, 512, 16, 2, dtype=torch.float32)), 16),
    "computed tables": (
        computed,
        (some(2, 4, 8, 32), some(2, 2, 8, 32), some(16, dtype=torch.float32), torch.arange(8).repeat(2, 1)),
        16,
    ),
}


def accesses(program: Program) -> list[int]:
    """Bytes of each access of memory, but loads of 64-bit integers."""
    found: list[int] = []
    for s in (s for k in program.plan.kernels for s in walk(k.body)):
        match s:
            case Load(_, b) | Store(b) if b.place in ("input", "output") and b.dtype != "int64":
                found.append(item_size(b.dtype))
            case VectorLoad(made, b, _, pairs) if b.place == "input":
                found.append(len(made) * (1 + pairs) * item_size(b.dtype))
            case VectorStore(b, _, values, pairs) if b.place == "output":
                found.append(len(values) * (1 + pairs) * item_size(b.dtype))
            case _:
                pass
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_that_stores_nothing(name: str) -> None:
    program, arguments, least = PROGRAMS[name]
    f = from_torch(program, arguments).fusion
    ig.schedule.auto(f)
    made = ig.emit(f, target="cuda")
    assert len(made.plan.kernels) == 1
    assert not [b.title for b in made.plan.buffers if b.place == "global"]
    assert set(accesses(made)) == {16, least}
    assert ig.validate(f, target="numpy").ok
