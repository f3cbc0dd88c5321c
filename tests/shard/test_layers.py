"""Placements that follow through the layers of models: heads, rows and columns of products, biases, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

import idgraph as ig

Build = Callable[[ig.Fusion], ig.Tensor]


def over(f: ig.Fusion, shape: tuple[int, ...], axis: int, name: str = "a") -> ig.Tensor:
    return f.input(name, shape=shape).shard(axis, "x")


LAYERS: Mapping[str, tuple[Build, str]] = {
    "heads apart": (lambda f: ig.reshape(over(f, (3, 4, 24), 2), 3, 4, 6, 4), 'shard(2, "x")'),
    "heads merged": (lambda f: ig.reshape(over(f, (3, 4, 6, 4), 2), 3, 4, 24), 'shard(2, "x")'),
    "heads in front": (lambda f: ig.permute(over(f, (3, 4, 6, 5), 2), 0, 2, 1, 3), 'shard(1, "x")'),
    "columns": (lambda f: ig.matmul(f.input("b", shape=(4, 6)), over(f, (6, 8), 1)), 'shard(1, "x")'),
    "rows": (lambda f: ig.matmul(over(f, (4, 6), 1), over(f, (6, 8), 0, "b")), 'partial("x", "sum")'),
    "bias": (lambda f: over(f, (4, 6), 1) + over(f, (6,), 0, "b"), 'shard(1, "x")'),
    "largest of the shared axis": (lambda f: ig.amax(over(f, (4, 6), 1), 1), 'partial("x", "max")'),
    "sum of another axis": (lambda f: ig.sum(over(f, (4, 6), 0), 1), 'shard(0, "x")'),
    "sum of an axis in front": (lambda f: ig.sum(over(f, (4, 6, 8), 2), 0), 'shard(1, "x")'),
    "cut beside": (lambda f: over(f, (4, 6), 0)[:, 1:3], 'shard(0, "x")'),
    "two axes": (lambda f: ig.exp(over(f, (8, 6), 0).shard(1, "y")), 'shard(0, "x") shard(1, "y")'),
    "expanded in front": (lambda f: ig.expand(ig.unsqueeze(over(f, (4, 6), 1), 0), 3, 4, 6), 'shard(2, "x")'),
    "a table": (
        lambda f: ig.embedding(f.input("i", (8,), "int64").shard(0, "x"), f.input("w", shape=(10, 4))), 'shard(0, "x")'
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_placements_follow(name: str) -> None:
    build, placed = LAYERS[name]
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=3)
    t = f.output(build(f))
    assert str(ig.shard.propagate(f)[t].placement) == placed
