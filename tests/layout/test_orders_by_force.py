"""The order of loops against all orders: the sectors that warps ask for, counted element by element with NumPy.

A warp takes 32 neighbours of the flattened loops. An input of at most a quarter of the result is read from a cache:
its sectors count once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.layout.padding import lay_out
from idgraph.schedule.access_strides import loop_order, read_order

Places = npt.NDArray[np.int64]  # the byte at which each element of the result finds its operand; -1: it does not
SIZES = {"float16": 2, "float32": 4, "float64": 8}
FAR = 1 << 40  # between inputs


@dataclass(frozen=True, slots=True)
class Operand:
    """An input as the result reads it; ``count``: its elements."""

    tensor: ig.Tensor
    places: Places
    count: int


def an_operand(f: ig.Fusion, r: random.Random, name: str, shape: Sequence[int], dtype: DType) -> Operand:
    """Elements in memory of some order, with gaps or a slice, through a permutation, as a tensor of ``shape``."""
    n = len(shape)
    view = r.sample(range(n), n)  # axis k of the result is axis view[k] of the input
    own = [shape[view.index(a)] for a in range(n)]
    order, strides, step = r.sample(range(n), n), [0] * n, 1
    gap = r.choice((0, 0, 8))
    for k, a in enumerate(order):
        strides[a] = step
        step *= own[a] + (gap if k == 0 else 0)
    size = SIZES[dtype]
    first = len(f.inputs) * FAR
    axes = [np.arange(m) * s * size for m, s in zip(own, strides, strict=True)]
    places: Any = first + sum(np.ix_(*axes))
    t = f.input(name, shape=own, dtype=dtype, strides=strides)
    return Operand(ig.permute(t, *view), places.transpose(view), int(np.prod(own)))


def sectors(places: Places, order: Sequence[int], cached: bool) -> int:
    """Sectors of 32 bytes, for each warp of the loops in this order; of what is cached each one once."""
    lines = places.transpose(order).reshape(-1) // 32
    if cached:
        return len(np.unique(lines[lines >= 0]))
    lines = np.pad(lines, (0, -len(lines) % 32), mode="edge").reshape(-1, 32)
    lines.sort(axis=1)
    return int(((np.diff(lines, axis=1) != 0) & (lines[:, 1:] >= 0)).sum()) + int((lines[:, 0] >= 0).sum())


def a_fusion(seed: int) -> tuple[ig.Fusion, ig.Tensor, list[Operand]]:
    """Two to four operands that lie in different orders, a broadcast one, a cat of some; one result."""
    r = random.Random(seed)
    f = ig.Fusion("f")
    rank = r.choice((2, 3, 3))
    shape = [r.choice((32, 64)) for _ in range(rank)]
    kind: list[DType] = ["float32", "float16", "float64"]
    operands = [an_operand(f, r, f"x{k}", shape, r.choice(kind)) for k in range(r.randrange(1, 4))]
    total: ig.Tensor = ig.cast(operands[0].tensor, "float32")
    for x in operands[1:]:
        total = total + ig.cast(x.tensor, "float32")
    if r.random() < 0.4:  # a bias along one axis, or along two that lie by columns
        kept = r.sample(range(rank), r.choice((1, rank - 1)))
        narrow = [n if a in kept else 1 for a, n in enumerate(shape)]
        b = an_operand(f, r, "b", narrow, "float32")
        operands.append(Operand(b.tensor, np.broadcast_to(b.places, shape), b.count))
        total = total + b.tensor
    if r.random() < 0.3:  # beside another piece, in an order of its own
        d = r.randrange(rank)
        other = an_operand(f, r, "c", shape, "float32")
        nowhere = np.full(shape, -1)
        both = [np.concatenate([x.places, nowhere], d) for x in operands]
        operands = [Operand(x.tensor, p, x.count) for x, p in zip(operands, both, strict=True)]
        operands.append(Operand(other.tensor, np.concatenate([nowhere, other.places], d), other.count))
        total = ig.cat([total, other.tensor], d)
    out = f.output(ig.cast(ig.relu(total), r.choice(kind)))
    return f, out, operands


def _written(t: ig.Tensor) -> Places:
    """The bytes at which a result lies: dense, in the order of its allocation."""
    order = [t.axes.index(d) for d in t.allocation]
    dense = np.arange(int(np.prod([int(n) for n in t.shape]))).reshape([int(t.shape[a]) for a in order])
    return 99 * FAR + dense.transpose(np.argsort(order)) * SIZES[t.dtype]


@pytest.mark.parametrize("seed", range(80))
def test_loops_are_the_best_of_all_orders(seed: int) -> None:
    f, out, operands = a_fusion(seed)
    lay_out(f, [out])
    chosen = loop_order(out, out.logical, [])
    large = int(np.prod([int(n) for n in out.shape]))
    accesses = [(_written(out), False), *((x.places, x.count * 4 <= large) for x in operands)]
    costs = {p: sum(sectors(a, p, c) for a, c in accesses) for p in permutations(range(out.ndim))}
    mine = costs[tuple(out.logical.index(d) for d in chosen)]
    assert mine <= min(costs.values()) * 1.02, (seed, mine, costs, str(f))


@pytest.mark.parametrize("seed", range(40))
def test_reductions_read_as_memory_lies(seed: int) -> None:
    """Sums over the middle axis, and others, of permuted tensors."""
    r = random.Random(seed)
    f = ig.Fusion("f")
    shape = [r.choice((32, 64)) for _ in range(3)]
    operands = [an_operand(f, r, f"x{k}", shape, "float32") for k in range(r.choice((1, 1, 3)))]
    total = operands[0].tensor
    for x in operands[1:]:
        total = total + x.tensor
    out = f.output(ig.sum(total, r.choice((1, 1, 0, 2))))
    assert out.definition is not None
    order = tuple(out.root.index(d) for d in read_order(out.definition))
    costs = {p: sum(sectors(x.places, p, False) for x in operands) for p in permutations(range(3))}
    assert costs[order] == min(costs.values()), (seed, costs, str(f))
