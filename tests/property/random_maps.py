"""Random index maps, and the same in numbers: each step is written once and done to expressions and to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd, prod
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, Expr, IndexMap, and_, simplify, symbol, where

Table = npt.NDArray[np.int64]


@dataclass
class Made:
    """A map that is being made, and the same in numbers at every point of its box."""

    pick: Random
    exprs: list[Expr] = field(default_factory=list[Expr])
    values: list[Table] = field(default_factory=list[Table])
    shape: list[int] = field(default_factory=list[int])
    condition: Expr = TRUE
    kept: Any = True
    steps: list[str] = field(default_factory=list[str])

    def put(self, k: int, n: int, f: Callable[[Any], Any]) -> None:
        """Coordinate k becomes f of itself, with n values; f is written once for both sides."""
        x, y = self.exprs[k], self.values[k]
        self.exprs[k], self.values[k], self.shape[k] = f(x), f(y), n

    def choose(self, k: int, f: Callable[[Any, Any], Any]) -> None:
        """The same with a choice: f takes `where` first."""
        self.exprs[k], self.values[k] = f(where, self.exprs[k]), f(np.where, self.values[k])

    def keep(self, f: Callable[[Any], Any]) -> None:
        self.condition = and_(self.condition, f(self.exprs))
        self.kept = self.kept & f(self.values)

    def step(self, op: str) -> None:
        pick, k = self.pick, self.pick.randrange(len(self.shape))
        n, x, y = self.shape[k], self.exprs[k], self.values[k]
        other = self.pick.randrange(len(self.shape))
        match op:
            case "split":
                d = pick.randint(1, n + 1)
                self.exprs[k : k + 1], self.values[k : k + 1] = [x // d, x % d], [y // d, y % d]
                self.shape[k : k + 1] = [-(-n // d), d]
            case "merge" if k + 1 < len(self.shape):
                m = self.shape[k + 1]
                self.exprs[k : k + 2] = [x * m + self.exprs[k + 1]]
                self.values[k : k + 2] = [y * m + self.values[k + 1]]
                self.shape[k : k + 2] = [n * m]
            case "roll":
                by = pick.randrange(n)
                self.put(k, n, lambda v: (v + by) % n)
            case "swizzle" if other != k:
                width, high = n & -n, pick.randrange(3)
                if width == n:
                    a, b = self.exprs[other] // (1 << high) % width, self.values[other] // (1 << high) % width
                    self.exprs[k], self.values[k] = x ^ a, y ^ b
            case "cyclic" if other != k:
                self.exprs[k], self.values[k] = (x + self.exprs[other]) % n, (y + self.values[other]) % n
            case "pad":
                left, right = pick.randrange(4), pick.randrange(4)
                self.put(k, n + left + right, lambda v: v + left)
            case "slice":
                start = pick.randrange(n)
                stop = pick.randint(start + 1, n)
                self.keep(lambda v: (v[k] >= start) & (v[k] < stop))
                self.put(k, stop - start, lambda v: v - start)
            case "stride":
                by = pick.choice([2, 3])
                start = pick.randrange(min(by, n))
                self.condition = and_(self.condition, ((x - start) % by).eq(0), x >= start)
                self.kept = self.kept & ((y - start) % by == 0) & (y >= start)
                self.put(k, -(-(n - start) // by), lambda v: (v - start) // by)
            case _:
                self.rearrange(op, k)
                return
        self.steps.append(op)

    def rearrange(self, op: str, k: int) -> None:
        """Steps that keep every point apart."""
        pick, n, x, y = self.pick, self.shape[k], self.exprs[k], self.values[k]
        match op:
            case "permute":
                order = pick.sample(range(len(self.shape)), len(self.shape))
                self.exprs, self.values = [self.exprs[i] for i in order], [self.values[i] for i in order]
                self.shape = [self.shape[i] for i in order]
            case "flip":
                self.put(k, n, lambda v: n - 1 - v)
            case "interleave" if n % 2 == 0:
                h = n // 2
                self.choose(k, lambda c, v: c(v < h, v * 2, (v - h) * 2 + 1))
            case "halves" if n % 2 == 0:
                self.exprs[k] = where((x % 2).eq(0), x // 2, x // 2 + n // 2)
                self.values[k] = np.where(y % 2 == 0, y // 2, y // 2 + n // 2)
            case "multiply":
                by = pick.choice([c for c in range(1, n + 1) if gcd(c, n) == 1])
                self.put(k, n, lambda v: v * by % n)
            case _:
                self.lose(op, k)
                return
        self.steps.append(op)

    def lose(self, op: str, k: int) -> None:
        """Steps that may give two points one image."""
        pick, n, x, y = self.pick, self.shape[k], self.exprs[k], self.values[k]
        match op:
            case "residues":
                a, b = pick.randint(1, n), pick.randint(1, n)
                self.exprs[k : k + 1], self.values[k : k + 1] = [x % a, x % b], [y % a, y % b]
                self.shape[k : k + 1] = [a, b]
            case "forget":
                d = pick.randint(1, n)
                self.put(k, d, lambda v: v % d)
            case "coarsen":
                self.put(k, -(-n // 2), lambda v: v // 2)
            case "fold":
                self.choose(k, lambda c, v: c(v < n // 2, v, n - 1 - v))
            case _:
                return
        self.steps.append(op)


STEPS = ["split", "merge", "roll", "swizzle", "cyclic", "pad", "slice", "stride", "permute", "flip", "interleave",
         "halves", "multiply"]  # fmt: skip
LOSSY = ["residues", "forget", "coarsen", "fold"]


def random_map(pick: Random, steps: list[str]) -> tuple[IndexMap, Table, Table, list[str]]:
    """A map, the points of its domain, their images, and how it was made."""
    extents = [pick.choice([1, 2, 3, 4, 5, 6, 8, 8, 12, 16]) for _ in range(pick.randint(1, 3))]
    symbols = tuple(symbol(f"i{k}", 0, n - 1) for k, n in enumerate(extents))
    grid = np.indices(extents, dtype=np.int64).reshape(len(extents), prod(extents))
    made = Made(pick, list(symbols), list(grid), list(extents))
    for _ in range(pick.randint(1, 5)):
        made.step(pick.choice(steps))
    results = [simplify(x) for x in made.exprs] if pick.random() < 0.5 else made.exprs
    kept = np.broadcast_to(made.kept, grid.shape[1:])
    images = np.stack([np.broadcast_to(v, kept.shape)[kept] for v in made.values])
    return IndexMap(symbols, tuple(results), tuple(made.shape), made.condition), grid[:, kept], images, made.steps
