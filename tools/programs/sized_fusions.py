"""Fusions of any number of operations, for asking how work grows: what the planner and the graphs are measured on."""

from __future__ import annotations

from collections.abc import Callable

import idgraph as ig

SHAPE = (4, 8, 16, 32)


def chain(n: int) -> ig.Fusion:
    """``n`` pointwise operations, each of the one before."""
    f = ig.Fusion("chain")
    t = f.input("x", shape=(64, 128))
    for k in range(n):
        t = t * 1.5 if k % 2 else ig.exp(t)
    f.output(t)
    return f


def residual(n: int) -> ig.Fusion:
    """Blocks of six operations: a mean of squares over each row goes back into the row."""
    f = ig.Fusion("residual")
    t = f.input("x", shape=(64, 128))
    while len(f.exprs) < n:
        t = t + ig.exp(t * ig.sum(t * t, 1, keepdim=True)) * 0.5
    f.output(t)
    return f


def skip(n: int) -> ig.Fusion:
    """Residual blocks of three pointwise operations, each weighted by one row: all of them are one nest."""
    f = ig.Fusion("skip")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(128,))
    while len(f.exprs) < n:
        t = t + ig.relu(t * w)
    f.output(t)
    return f


def fan(n: int) -> ig.Fusion:
    """``n`` - 1 outputs of one value."""
    f = ig.Fusion("fan")
    y = ig.exp(f.input("x", shape=(64, 128)))
    f.output(*(y * float(k + 2) for k in range(n - 1)))
    return f


def norm(n: int) -> ig.Fusion:
    """Blocks of thirteen operations: a row is centred, divided by its deviation, scaled, gated and added to itself."""
    f = ig.Fusion("norm")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(128,))
    while len(f.exprs) < n:
        c = t - ig.sum(t, 1, keepdim=True) * (1 / 128)
        y = c * ig.rsqrt(ig.sum(c * c, 1, keepdim=True) * (1 / 128) + 1e-6) * w
        t = t + y * ig.sigmoid(y)
    f.output(t)
    return f


def join(n: int) -> ig.Fusion:
    """Blocks of six pointwise operations: three branches of one value join in the next."""
    f = ig.Fusion("join")
    t = f.input("x", shape=(64, 128))
    while len(f.exprs) < n:
        a, b = ig.exp(t), ig.relu(t)
        t = a * b + ig.tanh(t) * 0.5
    f.output(t)
    return f


def gather(n: int) -> ig.Fusion:
    """Residual blocks of six operations, each with the rows of a table that an index picks."""
    f = ig.Fusion("gather")
    t, w = f.input("x", shape=(64, 128)), f.input("w", shape=(256, 128))
    i = f.input("i", shape=(64, 1), dtype="int64")
    while len(f.exprs) < n:
        t = t + ig.relu(t * ig.gather(w, 0, ig.expand(i, (64, 128)))) * 0.5
    f.output(t)
    return f


FUSIONS: dict[str, Callable[[int], ig.Fusion]] = {
    "chain": chain, "residual": residual, "skip": skip, "fan": fan, "norm": norm, "join": join, "gather": gather,
}  # fmt: skip


def wide_chain(n: int) -> ig.Fusion:
    """A long pointwise chain."""
    f = ig.Fusion("chain")
    t = other = f.input("a", shape=SHAPE)
    for _ in range(n):
        t = t + other
    f.output(t)
    return f


def reshaped(n: int) -> ig.Fusion:
    """Reshape there and back, rotation of the last axis, residual add: eight operations a round."""
    f = ig.Fusion("residual")
    t = f.input("a", shape=SHAPE)
    for _ in range(max(1, n // 8)):
        u = ig.reshape(ig.reshape(t, 32, 512), SHAPE)
        rotated = ig.cat([u[..., 16:], u[..., :16]], dim=-1)
        t = ig.exp(rotated + t) * u
    f.output(t)
    return f


def wide_fan(n: int) -> ig.Fusion:
    """One tensor read by everything."""
    f = ig.Fusion("fan")
    t = ig.exp(f.input("a", shape=SHAPE))
    f.output(*[t * float(k) for k in range(n - 1)])
    return f


SHAPES: dict[str, Callable[[int], ig.Fusion]] = {
    "pointwise chain": wide_chain,
    "reshape/slice/cat/residual": reshaped,
    "fan-out": wide_fan,
}
