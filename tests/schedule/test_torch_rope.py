"""RoPE as PyTorch programs write it, imported and scheduled by `auto`: one kernel, nothing stored, 16-byte accesses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import idgraph as ig
from idgraph.frontends import from_torch
from idgraph.runtime import compile_ptx

T = Any  # torch's own types are partly unknown


def turned(x: T) -> T:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def halves(q: T, k: T, cos: T, sin: T) -> Any:
    return q * cos + turned(q) * sin, k * cos + turned(k) * sin


def views(q: T, k: T, cos: T, sin: T) -> Any:
    return halves(q.transpose(1, 2), k.transpose(1, 2), cos, sin)


def in_float32(q: T, cos: T, sin: T) -> T:
    wide = q.float()
    return (wide * cos.float() + turned(wide) * sin.float()).to(q.dtype)


def partial(q: T, cos: T, sin: T) -> T:
    n = cos.shape[-1]
    return torch.cat((q[..., :n] * cos + turned(q[..., :n]) * sin, q[..., n:]), -1)


def joined(x: T, cos: T, sin: T) -> Any:
    q, k, v = (t.view(2, 16, -1, 32).transpose(1, 2) for t in x.split([128, 64, 64], -1))
    return *(t.contiguous() for t in halves(q, k, cos, sin)), v.contiguous()


def some(*shape: int) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(torch.bfloat16)


TABLES = (some(2, 1, 16, 32), some(2, 1, 16, 32))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[T, ...]]] = {
    "halves, grouped heads": (halves, (some(2, 4, 16, 32), some(2, 2, 16, 32), *TABLES)),
    "transposed views": (views, (some(2, 16, 4, 32), some(2, 16, 4, 32), *TABLES)),
    "in float32": (in_float32, (some(2, 4, 16, 32), *TABLES)),
    "partial": (partial, (some(2, 4, 16, 48), *TABLES)),
    "joined projection": (joined, (some(2, 16, 256), *TABLES)),
}


OFTEN = ("halves, grouped heads", "joined projection")


@pytest.mark.parametrize("name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.nightly) for n in PROGRAMS])
def test_one_kernel_of_16_byte_accesses(name: str) -> None:
    pytest.importorskip("numba_cuda")
    program, arguments = PROGRAMS[name]
    f = from_torch(program, arguments).fusion
    ig.schedule.auto(f)
    made = ig.emit(f, target="cuda")
    assert not [b for b in made.plan.buffers if b.place == "global"]
    (ptx,) = compile_ptx(made)
    accesses = re.findall(r"\t((?:ld|st)\.global\S*)", ptx)
    assert accesses and all(".v4." in a for a in accesses)
    assert ig.validate(f, target="numpy").ok
