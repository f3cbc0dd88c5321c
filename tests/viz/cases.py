"""Fusions that the picture tests draw. ``python -m tests.viz.cases`` writes the golden DOT texts anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import idgraph as ig
from idgraph import viz

GOLDEN = Path(__file__).parent / "golden"


def rotation(n: int = 64, *, scheduled: bool = True) -> ig.Fusion:
    """Two halves swapped, plus the residual that makes the exact graph cyclic."""
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(n,))
    t1 = t0[: n // 2]
    t2 = t0[n // 2 :]
    t3 = ig.cat([t2, t1], dim=0)
    t4 = f.output(t0 + t3)
    if scheduled:
        ig.schedule.like(f, t4)
        ig.schedule.inline_most(f)
    return f


def rope() -> ig.Fusion:
    """Rotate-half RoPE of q and k: 18 tensors."""
    f = ig.Fusion("rope")
    q, k = f.input("q", (2, 8, 128, 64)), f.input("k", (2, 8, 128, 64))
    cos, sin = f.input("cos", (128, 64)), f.input("sin", (128, 64))
    for x in (q, k):
        half = ig.cat([-x[..., 32:], x[..., :32]], dim=-1)
        f.output(x * cos + half * sin)
    return f


def deep(tensors: int = 200) -> ig.Fusion:
    """Rotations, reshapes and sums, one after the other."""
    f = ig.Fusion("deep")
    x, w = f.input("x", (4, 128, 64)), f.input("w", (64,))
    while len(f.tensors) < tensors:
        y = x + ig.cat([-x[..., 32:], x[..., :32]], dim=-1) * w
        y = ig.reshape(ig.exp(y * 2.0) + x, 512, 64)
        x = ig.reshape(y / ig.sum(y, 1, keepdim=True), 4, 128, 64)
    f.output(x)
    return f


def resolved() -> ig.Fusion:
    """A broadcast inlined into a merged loop nest: promoted loops and replays."""
    f = ig.Fusion("resolved")
    a, b = f.input("a", (1, 32)), f.input("b", (8, 32))
    t = ig.copy(a)
    u = f.output(t + b)
    u.merge(0).split(0, 16)
    ig.schedule.like(f, u)
    t.inline(1)
    return f


def _exact(**options: object) -> str:
    return viz.to_dot(ig.IdModel(rotation()).exact, **options)


def _explained() -> str:
    f = rotation()
    g = ig.IdModel(f).exact
    return viz.to_dot(g, highlight=g.explain(f["t0"].logical[0], f["t3"].logical[0]))


CASES: dict[str, Callable[[], str]] = {
    "rotation_fusion": lambda: viz.to_dot(rotation()),
    "rotation_exact": _exact,
    "rotation_exact_by_tensor": lambda: _exact(by="tensor"),
    "rotation_explained": _explained,
    "rotation_index": lambda: viz.to_dot(ig.IdModel(rotation()).index),
    "rotation_cycle": lambda: viz.to_dot(ig.IdModel(rotation()).exact.cycles()[0]),
    "rope_fusion": lambda: viz.to_dot(rope()),
    "resolved_index": lambda: viz.to_dot(ig.IdModel(resolved()).index),
    "deep_collapsed": lambda: viz.to_dot(deep(70)),
    "deep_exact_collapsed": lambda: viz.to_dot(ig.IdModel(deep(70)).exact),
}


if __name__ == "__main__":
    for name, build in CASES.items():
        (GOLDEN / f"{name}.dot").write_text(build(), encoding="utf-8")
