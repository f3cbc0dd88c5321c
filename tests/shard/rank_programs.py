"""Programs of devices that processes run, each with the moves that it needs; every rank builds the same ones."""

from __future__ import annotations

from collections.abc import Callable

import idgraph as ig

Build = Callable[[ig.Fusion, str, str], ig.Tensor]
PROGRAMS: dict[str, Build] = {}  # given the fusion, and the first and the last axis of its mesh


def program(build: Build) -> Build:
    """Enter a function into `PROGRAMS`."""
    PROGRAMS[build.__name__] = build
    return build


@program
def pointwise(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(12, 10)).shard(0, x)
    b = f.input("b", shape=(12, 10)).shard(1, last)
    return ig.relu(a * b - a).shard(0, x)


@program
def reduction(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.copy(ig.sum(f.input("a", shape=(9, 14)).shard(1, x), 1)).shard(0, last)


@program
def largest(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.copy(ig.amax(f.input("a", shape=(8, 9)).shard(0, x), 0)).replicate()


@program
def product(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.prod(f.input("a", shape=(8, 3)).shard(0, x, inner=True), 0).partial(x, "prod") * 2.0


@program
def whole_numbers(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    t = f.input("a", shape=(8, 6), dtype="int16").shard(0, last)
    return ig.amin(t, 0).partial(last, "min") + ig.sum(ig.cast(t, "int16"), 0)


@program
def truths(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    t = f.input("a", shape=(7, 5)) > 0.5
    return ig.flip(ig.copy(t).shard(0, x), (0,)).shard(0, x)


@program
def stencil(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(17, 4)).shard(0, last)
    return (a[2:] + a[1:-1] * 2.0 + a[:-2]).shard(0, last)


@program
def rolled(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.roll(f.input("a", shape=(9, 6)).shard(0, last), 1, 0).shard(0, last)


@program
def reshaped(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.reshape(f.input("a", shape=(6, 8)).shard(1, x), (16, 3)).shard(0, x) + 1.0


@program
def transposed(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return f.input("a", shape=(10, 12), dtype="bfloat16").shard(0, x).T.shard(0, x)


@program
def pieces(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(5, 8), dtype="float16").shard(1, x)
    return ig.pad(ig.cat([ig.flip(a, (1,)), a[:, 2:]], dim=1), (1, 2)).shard(1, last)


@program
def rows_of_table(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    table = f.input("a", shape=(13, 6)).shard(0, x)
    at = f.input("at", shape=(10,), dtype="int64").shard(0, last)
    return ig.embedding(at, table).shard(0, last)


@program
def products(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(8, 10)).shard(1, x)
    b = f.input("b", shape=(10, 6)).shard(0, x)
    return ig.copy(ig.relu(ig.matmul(a, b))).shard(1, last)


@program
def scattered_sums(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(7, 9)).shard(1, x)
    return ig.relu(ig.sum(a * a, 1).partial(x, "sum")).shard(0, x)


@program
def scattered_maxima(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(7, 4, 9)).shard(2, x).shard(0, last) if x != last else f.input("a", (7, 4, 9)).shard(2, x)
    return (ig.amax(a, 2) * 2.0).shard(1, x)


@program
def scattered_twice(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(5, 6)).partial(x, "sum")
    a = a if x == last else a.partial(last, "sum")
    b = ig.sigmoid(a).shard(0, x)
    return b if x == last else b.shard(1, last)


@program
def means(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(6, 8)).partial(x, "avg")
    return ig.relu(ig.pad(a * 3.0 + 1.0, (1, 0), value=2.0)).shard(0, x)


@program
def attention(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    q = f.input("a", shape=(8, 4)).shard(0, x)
    k = f.input("b", shape=(8, 4)).shard(0, last)
    return ig.matmul(ig.softmax(ig.matmul(q, k.T), 1), k).shard(0, x)


@program
def softmax(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.softmax(f.input("a", shape=(6, 10)).shard(1, x), 1).shard(1, x)


@program
def normalized(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    a = f.input("a", shape=(4, 12)).shard(1, last)
    middle = a - ig.unsqueeze(ig.mean(a, 1), 1)
    return middle * ig.unsqueeze(ig.rsqrt(ig.mean(middle * middle, 1) + 1e-5), 1)


@program
def running_sums(f: ig.Fusion, x: str, last: str) -> ig.Tensor:
    return ig.cumsum(f.input("a", shape=(6, 9)).shard(1, x), 1).shard(1, x)


def build(name: str, mesh: ig.Mesh) -> ig.Fusion:
    """The fusion of a program on a mesh."""
    f = ig.Fusion(name)
    f.mesh = mesh
    axes = list(mesh.sizes)
    f.output(PROGRAMS[name](f, axes[0], axes[-1]))
    return f
