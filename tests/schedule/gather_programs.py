"""Random programs with one gather of a computed tensor each: shape, type, axis, producer, index and consumer vary."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import idgraph as ig

STEPS: tuple[Callable[[ig.Tensor], ig.Tensor], ...] = (
    ig.exp, ig.sigmoid, ig.relu, lambda t: t * 0.5, lambda t: t + 1.0,
)  # fmt: skip


def producer(r: random.Random, f: ig.Fusion, x: ig.Tensor) -> ig.Tensor:
    """What is gathered from: a chain over ``x``, a row operation, a scan, a movement, or two of them."""
    for _ in range(r.choice((1, 1, 2))):
        match r.choice(("chain", "chain", "softmax", "bias", "scan", "roll", "scatter", "sum")):
            case "chain":
                for _ in range(r.randint(1, 5)):
                    x = r.choice(STEPS)(x)
            case "softmax":
                x = r.choice((ig.softmax, ig.log_softmax))(x, r.randrange(x.ndim))
            case "bias":
                x = x + f.input(f"b{len(f.inputs)}", x.shape[-1:], x.dtype)
            case "scan":
                x = ig.cumsum(x, r.randrange(x.ndim)) * 0.125
            case "roll":
                x = ig.roll(x, 3, r.randrange(x.ndim))
            case "scatter":
                x = ig.slice_scatter(x, x[:5] * 2.0, 0, 0, 5)
            case _:
                x = x - ig.mean(x, r.randrange(x.ndim), keepdim=True)
    return x


def consumer(r: random.Random, f: ig.Fusion, t: ig.Tensor) -> ig.Tensor:
    """What follows the gather."""
    match r.choice(("none", "scale", "sum", "add", "norm")):
        case "scale":
            return ig.tanh(t * 1.5)
        case "sum":
            return ig.sum(t, -1)
        case "add":
            return t + f.input("c", t.shape, t.dtype)
        case "norm":
            return t / (ig.sum(t * t, -1, keepdim=True) + 1.0)
        case _:
            return t


def program(seed: int) -> tuple[ig.Fusion, str]:
    """A random program, the same for the same seed, and the name of its gather."""
    r = random.Random(f"gathers {seed}")
    f = ig.Fusion(f"random{seed}")
    ndim = r.choice((2, 2, 2, 3))
    parts = [r.uniform(0.2, 1.0) for _ in range(ndim)]
    size = r.uniform(13, 20)  # the power of two of all elements
    shape = tuple(max(6, int(2 ** (size * p / sum(parts)))) for p in parts)
    kind = r.choice(("float32", "float32", "float64"))
    y = producer(r, f, f.input("x", shape, kind))
    axis = r.randrange(ndim)
    count = r.choice((1, 1, r.randint(2, 8), int(2 ** r.uniform(3, 11))))
    count = max(1, min(count, (1 << 25) // math.prod(shape)))  # all of the axis is looked at for each of the results
    way = r.choice(("gather", "take_along_dim", "index_select", "embedding"))
    integer = r.choice(("int64", "int32"))
    if way == "embedding" and ndim == 2:
        t = ig.embedding(f.input("i", (count, r.randint(1, 6)), integer), y)
    elif way == "index_select":
        t = ig.index_select(y, axis, f.input("i", (count,), integer))
    else:
        index = f.input("i", (*shape[:axis], count, *shape[axis + 1 :]), "int64")
        t = ig.gather(y, axis, index) if way == "gather" else ig.take_along_dim(y, index, axis)
    name = t.name
    f.output(consumer(r, f, t))
    if r.random() < 0.2:
        f.output(y)
    return f, name
