"""Random fusions whose values NumPy computes beside them, operation by operation: nothing of the library is asked.

Each value comes with a bound of what rounding may add to it, by the rules of running error analysis: a computed
element may differ by ``bound`` times a few units of the last place of its type.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np

import idgraph as ig

Array = Any  # an array of NumPy, float64 or int64
MOST = 200  # elements of the largest tensor

KINDS = (
    "unary", "unary", "both", "both", "both", "wide", "flip", "permute", "reshape", "reshape", "slice", "slice", "pad",
    "cat", "stack", "roll", "select", "unsqueeze", "expand", "sum", "sum", "amax", "norm", "softmax", "scan", "gather",
    "index_select", "scatter_add",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor, its elements, and how large the terms are that rounding errors are parts of."""

    tensor: ig.Tensor
    array: Array
    bound: Array


@dataclass
class Program:
    """A fusion of ``operations`` operations, of numbers of type ``dtype`` if one is named.

    ``want`` are the values of all its tensors by name.
    """

    r: random.Random
    operations: int
    fusion: ig.Fusion = field(default_factory=lambda: ig.Fusion("f"))
    values: list[Value] = field(default_factory=list[Value])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    dtype: str = ""

    def __post_init__(self) -> None:
        r = self.r
        self.dtype = self.dtype or r.choice(("float32", "float32", "float64", "int64"))
        for n in range(r.randrange(1, 3)):
            shape = [r.choice((1, 2, 3, 4, 5, 6, 8, 12)) for _ in range(r.choice((1, 2, 2, 2, 3)))]
            while prod(shape) > 100:
                shape[shape.index(max(shape))] //= 2
            self._input(r.choice((f"x{n}", f"t{n}")), tuple(shape))
        for _ in range(self.operations):
            self._grow()
        made = [v.tensor for v in self.values if v.tensor.definition is not None]
        self.fusion.output(*(t for t in made if not t.uses or r.random() < 0.15))

    @property
    def want(self) -> dict[str, Value]:
        """Values by name."""
        return {v.tensor.name: v for v in self.values}

    def _input(self, name: str, shape: tuple[int, ...]) -> Value:
        return self._entered(self.fusion.input(name, shape, self.dtype), self._numbers(shape), None)

    def _numbers(self, shape: tuple[int, ...]) -> Array:
        draw = np.random.default_rng(self.r.randrange(1 << 30))
        if self.dtype == "int64":
            return draw.integers(-9, 10, shape)
        return draw.uniform(-2, 2, shape).astype(self.dtype).astype(np.float64)

    def _entered(self, t: ig.Tensor, array: Array, bound: Array) -> Value:
        if t.definition is None:
            self.inputs[t.name] = array if self.dtype == "int64" else array.astype(self.dtype)
        assert tuple(int(n) for n in t.shape) == array.shape, (t, array.shape)
        self.values.append(Value(t, array, np.abs(array) if bound is None else bound))
        return self.values[-1]

    def _name(self) -> str | None:
        """Often none; at times one that the next operations would have got."""
        if self.r.random() < 0.8:
            return None
        there = {t.name for t in self.fusion.tensors}
        return self.r.choice([n for k in range(8, 60) if (n := f"t{len(there) + k}") not in there][:6])

    def _moved(self, v: Value, t: ig.Tensor, move: Callable[[Array], Array]) -> None:
        self._entered(t, move(v.array), move(v.bound))

    def _index(self, shape: tuple[int, ...], below: int) -> tuple[ig.Tensor, Array]:
        name = f"i{len(self.inputs)}"
        self.inputs[name] = np.random.default_rng(self.r.randrange(1 << 30)).integers(0, below, shape)
        return self.fusion.input(name, shape, "int64"), self.inputs[name]

    def _grow(self) -> None:
        r = self.r
        v = r.choice(self.values[-4:] if r.random() < 0.7 else self.values)
        d = r.randrange(v.array.ndim) if v.array.ndim else 0
        kind = r.choice(KINDS)
        if not v.array.ndim or not (self._view(kind, v, d) or self._combine(kind, v, d) or self._load(kind, v, d)):
            self._pointwise(kind, v, d)

    def _pointwise(self, kind: str, v: Value, d: int) -> None:
        r, name, whole = self.r, self._name(), self.dtype == "int64"
        if kind in ("both", "wide"):
            fitting = [u for u in self.values if u.array.shape == v.array.shape]
            if kind == "wide":
                shape = [n if p != d else 1 for p, n in enumerate(v.array.shape)]
                if r.random() < 0.5:
                    shape = [r.choice((2, 3)) if n == 1 else m for n, m in zip(v.array.shape, shape, strict=True)]
                if prod(np.broadcast_shapes(v.array.shape, tuple(shape))) > MOST:
                    shape = list(v.array.shape)
                fitting = [self._input(f"w{len(self.inputs)}", tuple(shape))]
            u = r.choice(fitting)
            self._pair(r.choice(("add", "sub", "mul", "maximum")), v, u, name)
            return
        match r.choice(("neg", "abs", "half", "one") if whole else ("neg", "abs", "half", "one", "tanh", "sin")):
            case "neg":
                self._entered(ig.neg(v.tensor, name=name), -v.array, v.bound)
            case "abs":
                self._entered(ig.abs(v.tensor, name=name), np.abs(v.array), v.bound)
            case "half":
                by = 2 if whole else 0.5
                self._entered(ig.mul(v.tensor, by, name=name), v.array * by, v.bound * by)
            case "one":
                self._entered(ig.add(v.tensor, 1, name=name), v.array + 1, v.bound + 1)
            case "tanh":
                self._entered(ig.tanh(v.tensor, name=name), np.tanh(v.array), 1 + v.bound)
            case _:
                self._entered(ig.sin(v.tensor, name=name), np.sin(v.array), 1 + v.bound)

    def _pair(self, op: str, a: Value, b: Value, name: str | None) -> None:
        if op == "mul" and max(a.bound.max(initial=0), b.bound.max(initial=0)) > 1000:
            op = "add"
        array = getattr(np, {"sub": "subtract", "mul": "multiply"}.get(op, op))(a.array, b.array)
        bound = a.bound * b.bound if op == "mul" else a.bound + b.bound
        self._entered(getattr(ig, op)(a.tensor, b.tensor, name=name), array, bound)

    def _view(self, kind: str, v: Value, d: int) -> bool:
        r, t, name = self.r, v.tensor, self._name()
        shape, size = v.array.shape, v.array.shape[d]
        match kind:
            case "flip":
                self._moved(v, ig.flip(t, d, name=name), lambda a: np.flip(a, d))
            case "permute":
                order = r.sample(range(len(shape)), len(shape))
                self._moved(v, ig.permute(t, *order, name=name), lambda a: np.transpose(a, order))
            case "reshape":
                left, wanted = prod(shape), list[int]()
                for _ in range(r.randrange(3)):
                    wanted.append(r.choice([k for k in range(1, left + 1) if left % k == 0]))
                    left //= wanted[-1]
                self._moved(v, ig.reshape(t, *wanted, left, name=name), lambda a: a.reshape(*wanted, left))
            case "slice":
                low = r.randrange(size)
                cut = slice(low, r.randrange(low + 1, size + 1), r.choice((1, 1, 2)))
                made = ig.slice(t, d, cut.start, cut.stop, cut.step, name=name)
                self._moved(v, made, lambda a: a[(slice(None),) * d + (cut,)])
            case "pad" if 4 * prod(shape) <= MOST:
                widths = r.randrange(3), r.randrange(3)
                pads = [(0, 0)] * (len(shape) - 1) + [widths]
                self._moved(v, ig.pad(t, widths, name=name), lambda a: np.pad(a, pads))
            case "cat" if 3 * prod(shape) <= MOST:
                others = [u for u in self.values if u.array.ndim == len(shape)]
                near = [u for u in others if all(p == d or n == shape[p] for p, n in enumerate(u.array.shape))]
                parts = [v, *(r.choice(near) for _ in range(r.randrange(1, 3)))]
                while sum(p.array.size for p in parts) > MOST:
                    parts.pop()
                joined = ig.cat([p.tensor for p in parts], d, name=name)
                self._entered(
                    joined, *(np.concatenate(x, d) for x in ([p.array for p in parts], [p.bound for p in parts]))
                )
            case "stack" if 2 * prod(shape) <= MOST and len(shape) < 4:
                u = r.choice([u for u in self.values if u.array.shape == shape])
                made = ig.stack([v.tensor, u.tensor], d, name=name)
                self._entered(made, np.stack([v.array, u.array], d), np.stack([v.bound, u.bound], d))
            case "roll":
                shift = r.randrange(-size, size + 1)
                self._moved(v, ig.roll(t, shift, d, name=name), lambda a: np.roll(a, shift, d))
            case "select" if len(shape) > 1:
                at = r.randrange(size)
                self._moved(v, ig.select(t, d, at, name=name), lambda a: np.take(a, at, d))
            case "unsqueeze" if len(shape) < 4:
                self._moved(v, ig.unsqueeze(t, d, name=name), lambda a: np.expand_dims(a, d))
            case "expand" if len(shape) < 4 and 3 * prod(shape) <= MOST:
                wide = (r.choice((2, 3)), *shape)
                self._moved(v, ig.expand(ig.unsqueeze(t, 0), *wide, name=name), lambda a: np.broadcast_to(a, wide))
            case _:
                return False
        return True

    def _combine(self, kind: str, v: Value, d: int) -> bool:
        t, name, keep = v.tensor, self._name(), self.r.random() < 0.5
        match kind:
            case "sum":
                self._moved(v, ig.sum(t, d, keep, name=name), lambda a: a.sum(d, keepdims=keep))
            case "amax":
                self._moved(v, ig.amax(t, d, keep, name=name), lambda a: a.max(d, keepdims=keep))
            case "norm":
                top = v.array.max(d, keepdims=True)
                made = ig.sub(t, ig.amax(t, d, True), name=name)
                self._entered(made, v.array - top, v.bound + v.bound.max(d, keepdims=True))
            case "softmax" if self.dtype != "int64":
                e = np.exp(v.array - v.array.max(d, keepdims=True))
                array = e / e.sum(d, keepdims=True)
                self._entered(ig.softmax(t, d, name=name), array, array * (1 + 4 * v.bound.max(d, keepdims=True)))
            case "scan":
                self._moved(v, ig.cumsum(t, d, name=name), lambda a: np.cumsum(a, d))
            case _:
                return False
        return True

    def _load(self, kind: str, v: Value, d: int) -> bool:
        r, t, name, shape = self.r, v.tensor, self._name(), v.array.shape
        match kind:
            case "gather":
                index, at = self._index(tuple(r.randrange(1, n + 1) for n in shape), shape[d])
                cut = tuple(slice(n if p != d else None) for p, n in enumerate(at.shape))
                self._moved(v, ig.gather(t, d, index, name=name), lambda a: np.take_along_axis(a[cut], at, d))
            case "index_select" if 4 * prod(shape) <= MOST:
                index, at = self._index((r.randrange(1, 5),), shape[d])
                self._moved(v, ig.index_select(t, d, index, name=name), lambda a: np.take(a, at, d))
            case "scatter_add":
                index, at = self._index(tuple(r.randrange(1, n + 1) for n in shape), shape[d])
                u = self._input(f"s{len(self.inputs)}", at.shape)
                array, bound = v.array.copy(), v.bound.copy()
                grid = cast("list[Array]", [*np.indices(at.shape)])
                where = (*grid[:d], at, *grid[d + 1 :])
                np.add.at(array, where, u.array)
                np.add.at(bound, where, u.bound)
                self._entered(ig.scatter_add(t, d, index, u.tensor, name=name), array, bound)
            case _:
                return False
        return True


def wrong(program: Program, got: dict[str, Any], names: list[str]) -> str:
    """The first output of which an element differs by more than rounding can explain; empty where none does."""
    want = program.want
    for name in names:
        v, found = want[name], np.asarray(got[name])
        if found.shape != v.array.shape:
            return f"{name}: {found.shape} elements, {v.array.shape} wanted"
        room = 0 if program.dtype == "int64" else 1000 * np.finfo(program.dtype).eps * (v.bound + 1)
        bad = np.argwhere(~(np.abs(found - v.array) <= room))
        if len(bad):
            at = tuple(int(k) for k in bad[0])
            return f"{name}{list(at)} is {found[at]}, {v.array[at]} wanted ({len(bad)} of {v.array.size} differ)"
    return ""
