"""Random programs, built in torch and here alike, on inputs that are permuted, sliced or expanded in memory."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

import idgraph as ig

Pair = tuple[Any, ig.Tensor]


def _factors(n: int, r: random.Random) -> list[int]:
    for k in (2, 3, 4, 5):
        if n % k == 0 and n > k and r.random() < 0.7:
            return [k, n // k]
    return [n]


def an_input(f: ig.Fusion, r: random.Random, name: str, shape: tuple[int, ...]) -> Pair:
    """A tensor of this shape in memory that is permuted, sliced or expanded."""
    order = list(range(len(shape)))
    if r.random() < 0.6:
        r.shuffle(order)
    if len(shape) == 4 and r.random() < 0.3:
        order = [0, 2, 3, 1]
    base = [shape[a] for a in order]
    pad = [r.choice((0, 0, 0, 1, 3)) for _ in base]
    expanded = [n > 1 and r.random() < 0.08 for n in base]
    x = torch.arange(1.0, 1 + float(torch.tensor([1 if e else n + p for n, p, e in zip(base, pad, expanded)]).prod()))
    x = x.reshape([1 if e else n + p for n, p, e in zip(base, pad, expanded)])
    x = x[tuple(slice(None) if e else slice(0, n) for n, e in zip(base, expanded))].expand(base)
    x = x.permute([order.index(a) for a in range(len(shape))])
    return x, f.input(name, shape=shape, strides=tuple(x.stride()))


def _one(r: random.Random, pool: list[Pair]) -> Pair | None:
    """One operation on tensors of the pool; None where the choice does not fit."""
    a, b = r.choice(pool)
    n = b.ndim
    dims = list(range(n))
    match r.choice(("unary", "unary", "binary", "binary", "binary", "where", "sum", "amax", "cat", "reshape", "permute",
                    "slice", "unsqueeze", "expand", "select", "copy", "flip", "cast", "pad")):  # fmt: skip
        case "unary":
            return torch.relu(a), ig.relu(b)
        case "binary":
            c, d = r.choice(pool)
            try:
                torch.broadcast_shapes(a.shape, c.shape)
            except RuntimeError:
                return a * 2.0, b * 2.0
            return a + c, b + d
        case "where":
            c, d = r.choice(pool)
            if c.shape != a.shape:
                return None
            return torch.where(a > 3, a, c), ig.where(b > 3, b, d)
        case ("sum" | "amax") as op if n:
            dim, keep = r.choice(dims), r.random() < 0.5
            if a.shape[dim] == 0:
                return None
            made: Callable[..., Any] = torch.sum if op == "sum" else torch.amax
            ours: Callable[..., Any] = ig.sum if op == "sum" else ig.amax
            return made(a, dim, keepdim=keep), ours(b, dim, keepdim=keep)
        case "cat" if n:
            dim = r.choice(dims)
            others = [p for p in pool if p[0].ndim == n and all(p[0].shape[k] == a.shape[k] for k in dims if k != dim)]
            chosen = [(a, b), *(r.choice(others) for _ in range(r.randrange(1, 3)))]
            return torch.cat([x for x, _ in chosen], dim), ig.cat([y for _, y in chosen], dim)
        case "reshape" if n:
            k = r.choice(dims)
            if r.random() < 0.5 and k + 1 < n:
                shape = [*a.shape[:k], a.shape[k] * a.shape[k + 1], *a.shape[k + 2 :]]
            else:
                shape = [*a.shape[:k], *_factors(a.shape[k], r), *a.shape[k + 1 :]]
            return a.reshape(shape), ig.reshape(b, *shape)
        case "permute" if n > 1:
            r.shuffle(dims)
            return a.permute(dims), ig.permute(b, *dims)
        case "slice" if n:
            k = r.choice(dims)
            start, step = r.randrange(0, max(1, a.shape[k] // 2)), r.choice((1, 1, 2))
            index = (*[slice(None)] * k, slice(start, None, step))
            return a[index], b[index]
        case "unsqueeze" if n < 5:
            k = r.randrange(n + 1)
            return a.unsqueeze(k), ig.unsqueeze(b, k)
        case "expand" if n:
            shape = [r.choice((2, 3)) if s == 1 else s for s in a.shape]
            return a.expand(shape), ig.expand(b, *shape)
        case "select" if n:
            k = r.choice(dims)
            return a.select(k, 0), ig.select(b, k, 0)
        case "copy":
            return a.clone(), ig.copy(b)
        case "flip" if n:
            k = r.choice(dims)
            return a.flip(k), ig.flip(b, k)
        case "pad" if n:
            return torch.nn.functional.pad(a, (1, 2)), ig.pad(b, (1, 2))
        case "cast":
            return a.to(torch.float64), ig.cast(b, "float64")
        case _:
            return None


def program(seed: int) -> tuple[ig.Fusion, list[Pair]]:
    """A fusion and the tensors of eager mode beside its own."""
    r = random.Random(seed)
    f = ig.Fusion(f"program{seed}")
    rank = r.choice((1, 2, 3, 4, 4, 4, 5))
    shape = tuple(r.choice((1, 2, 3, 4, 6)) for _ in range(rank))
    pool = [an_input(f, r, "x0", shape), an_input(f, r, "x1", shape)]
    other = tuple(1 if r.random() < 0.4 else n for n in shape[r.randrange(rank) :])
    pool.append(an_input(f, r, "x2", other))
    made: list[Pair] = []
    for _ in range(r.randrange(2, 7)):
        found = _one(r, pool)
        if found is None or found[0].dtype == torch.bool:
            continue
        pool.append(found)
        made.append(found)
    return f, made
