"""The number of loop points that a statement runs at, and which: counted exactly where that is possible.

A condition that is one linear inequality is counted in closed form, others point by point up to `limit` points; beyond
that a fixed sample is counted and the result says that it is not exact.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, simplify, symbol
from idgraph.arith.expr import postorder
from idgraph.arith.linear import minus
from idgraph.cost.access_sites import ComputedValue, Data, EnclosingLoop, KernelSites, MemoryValue, ReducedValue, Value
from idgraph.ir import is_float
from idgraph.ir.walks import reach
from idgraph.kernel.ir import Constant, Index

_LIMIT: ContextVar[int] = ContextVar("idgraph_points_visited", default=1 << 20)
Ints: TypeAlias = "npt.NDArray[np.int64]"
Env: TypeAlias = "dict[str, Ints]"
Arrays = Mapping[str, "npt.NDArray[Any]"]


def limit() -> int:
    """Points that are visited one by one."""
    return _LIMIT.get()


def sample() -> int:
    """Points of a sample, where there are more."""
    return _LIMIT.get() // 8


@contextmanager
def visiting(points: int) -> Generator[None]:
    """Within, another number of points is visited one by one: for estimates that are compared, not reported as exact.

    >>> with visiting(1 << 10):
    ...     limit(), sample()
    (1024, 128)
    """
    before = _LIMIT.set(points)
    try:
        yield
    finally:
        _LIMIT.reset(before)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of points; ``exact`` is False for an estimate from a sample or from values that are not known."""

    points: int
    exact: bool = True


def relevant(
    exprs: Iterable[Expr], around: Sequence[EnclosingLoop], data: Mapping[str, Data]
) -> tuple[EnclosingLoop, ...]:
    """The loops that the expressions depend on, loaded indices followed to where they are loaded."""

    def names_of(name: str) -> list[str]:
        return [n for e in _index_exprs(data[name].value) for n in e.names] if name in data else []

    seen = reach((n for e in exprs for n in e.names), names_of)
    return tuple(x for x in around if x.var in seen)


def _index_exprs(v: Value) -> list[Expr]:
    match v:
        case MemoryValue(_, address):
            return [address]
        case Index(e):
            return [e]
        case Constant():
            return []
        case ComputedValue(_, operands):
            return [e for o in operands for e in _index_exprs(o)]
        case ReducedValue():
            steps = [symbol(x.var) for x in v.loops if v.running]
            return [*_index_exprs(v.start), *_index_exprs(v.value), *v.conditions, *steps]


def grid(loops: Sequence[EnclosingLoop]) -> tuple[Env, int]:
    """Every point of the loops, the last one fastest, and their number."""
    total = prod(x.extent for x in loops)
    numbers = np.arange(total, dtype=np.int64)
    env: Env = {}
    for x in reversed(loops):
        numbers, env[x.var] = np.divmod(numbers, max(x.extent, 1))
    return env, total


def drawn(loops: Sequence[EnclosingLoop], count: int, seed: int = 0) -> tuple[Env, int]:
    """``count`` points of the loops, the same ones every time."""
    draw = np.random.default_rng((seed, count))
    return {x.var: draw.integers(0, max(x.extent, 1), count) for x in loops}, count


def with_data(env: Env, data: Mapping[str, Data], names: Iterable[str], arrays: Arrays, count: int) -> bool:
    """Add values of loaded indices to ``env``; whether all are the values of given arrays.

    Unknown values are spread evenly over the extent that they index; loads of one place give equal values.
    """
    known = True
    for name in sorted(names):
        if name not in data or name in env:
            continue
        d = data[name]
        found = _evaluate(d.value, env, data, arrays, count)
        if found is None:
            known = False
            mixed = np.zeros(count, np.uint64)
            for e in _index_exprs(d.value):
                known &= with_data(env, data, e.names, arrays, count)
                mixed = _mixed(mixed ^ _evaluate_at(e, env, count).astype(np.uint64))
            found = (mixed % np.uint64(max(d.extent, 1))).astype(np.int64)
        env[name] = found
    return known


def _mixed(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The numbers stirred (splitmix64's finisher)."""
    x = (x + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(0xFFFFFFFFFFFFFFFF)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_OPS: Mapping[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "remainder": np.remainder, "floor_divide": np.floor_divide, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "where": np.where,
    "neg": np.negative, "abs": np.abs, "cast": np.int64, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logical_not": np.logical_not,
}  # fmt: skip


def _evaluate(v: Value, env: Env, data: Mapping[str, Data], arrays: Arrays, count: int) -> Any:
    """The values, or None where they follow from no given array."""
    match v:
        case Constant(value):
            return value
        case Index(e):
            return _evaluate_at(e, env, count) if with_data(env, data, e.names, arrays, count) else None
        case MemoryValue(buffer, address):
            if buffer.title not in arrays or is_float(buffer.dtype):
                return None
            if not with_data(env, data, address.names, arrays, count):
                return None
            flat = arrays[buffer.title]
            return flat[np.clip(_evaluate_at(address, env, count), 0, len(flat) - 1)]
        case ComputedValue(op, operands):
            if op is None or op not in _OPS:
                return None
            made = [_evaluate(o, env, data, arrays, count) for o in operands]
            return None if any(x is None for x in made) else _OPS[op](*made)
        case ReducedValue():
            return _folded(v, env, data, arrays, count)


_ENDS = np.iinfo(np.int64)
_COMBINED: Mapping[str, tuple[Any, int]] = {
    "sum": (np.add, 0), "prod": (np.multiply, 1), "amax": (np.maximum, _ENDS.min), "amin": (np.minimum, _ENDS.max),
    "any": (np.logical_or, 0), "all": (np.logical_and, 1),
}  # fmt: skip


def _folded(v: ReducedValue, env: Env, data: Mapping[str, Data], arrays: Arrays, count: int) -> Any:
    """The value combined at each point of ``env``, step by step; None where that is too much or rests on a guess."""
    inner, steps = grid(v.loops)
    own = {x.var for x in v.loops}
    if is_float(v.dtype) or v.op not in _COMBINED or count * steps > limit() or (v.running and not own <= env.keys()):
        return None
    wide: Env = {n: np.repeat(at, steps) for n, at in env.items() if n not in data and n not in own}
    wide |= {n: np.tile(at, count) for n, at in inner.items()}
    inside, known = holds(v.conditions, wide, data, arrays, count * steps)
    start = _evaluate(v.start, env, data, arrays, count)
    terms = _evaluate(v.value, wide, data, arrays, count * steps)
    if not known or start is None or terms is None:
        return None
    if v.running:
        here = np.zeros(count, np.int64)
        for x in v.loops:
            here = here * x.extent + env[x.var]
        inside &= np.tile(np.arange(steps), count) <= np.repeat(here, steps)
    combine, nothing = _COMBINED[v.op]
    table = np.where(inside, terms, nothing).astype(np.int64).reshape(count, steps)
    return combine(start, combine.reduce(table, 1)).astype(v.dtype)


def stored_integers(found: KernelSites, arrays: Arrays, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arrays of integers that a kernel stores for later ones, by tensor, where all their values are known.

    ``arrays`` are those that were there before: a kernel may write a part of one.
    """
    made: dict[str, Any] = {}
    combined = {s.buffer.title for s, _, op in found.stores if op is not None}
    spoiled: set[str] = set()
    for s, stored, op in found.stores:
        title, total = s.buffer.title, prod(x.extent for x in s.around)
        again = prod(x.extent for x in relevant([s.address], s.around, found.data)) < total
        if total * s.width > 4 * limit() or len(stored) != s.width or (op is None and title in combined and again):
            spoiled.add(title)
            continue
        env, count = grid(s.around)
        inside, known = holds(s.conditions, env, found.data, arrays, count)
        address, sure = values(s.address, env, found.data, arrays, count)
        told = [_evaluate(v, env, found.data, arrays, count) for v in stored]
        if not (known and sure) or any(v is None for v in told) or (op is not None and op not in _COMBINED):
            spoiled.add(title)
            continue
        flat = made.setdefault(title, np.array(arrays.get(title, np.zeros(sizes[s.buffer.name])), np.int64))
        for k, v in enumerate(told):
            at, new = address[inside] + k, np.broadcast_to(v, (count,))[inside]
            if op is None:
                flat[at] = new
            else:
                _COMBINED[op][0].at(flat, at, new)
    return {title: flat for title, flat in made.items() if title not in spoiled}


def _evaluate_at(e: Expr, env: Env, count: int) -> Ints:
    bound: dict[str, Ints | int] = {n: env.get(n, 0) for n in e.names}
    return np.broadcast_to(e.evaluate_array(bound), (count,))


def values(e: Expr, env: Env, data: Mapping[str, Data], arrays: Arrays, count: int) -> tuple[Ints, bool]:
    """``e`` at each point, and whether it rests on no guess."""
    known = with_data(env, data, e.names, arrays, count)
    return _evaluate_at(e, env, count), known


def holds(
    conditions: Sequence[Expr], env: Env, data: Mapping[str, Data], arrays: Arrays, count: int
) -> tuple[npt.NDArray[np.bool_], bool]:
    """Where all conditions hold, and whether that rests on no guess."""
    made, known = np.ones(count, np.bool_), True
    for c in conditions:
        at, sure = values(c, env, data, arrays, count)
        made &= at.astype(np.bool_)
        known &= sure
    return made, known


# counting -------------------------------------------------------------------------------------------------------------


def count_points(
    around: Sequence[EnclosingLoop], conditions: Sequence[Expr], data: Mapping[str, Data], arrays: Arrays
) -> Count:
    """The number of points at which all conditions hold."""
    parts = _group_by_loops([p for c in conditions for p in simplify(c).conjuncts], around, data)
    total, exact, free = 1, True, list(around)
    for loops, together in parts:
        found = _count_points(loops, together, data, arrays)
        total, exact = total * found.points, exact and found.exact
        free = [x for x in free if x not in loops]
    return Count(total * prod(x.extent for x in free), exact)


def coordinate_count(found: KernelSites) -> int:
    """The coordinates that all threads take their numbers apart into: each quotient or rest of an address or a
    condition once at each point of the loops that it is in, and of the grid; a rest of a quotient is one.

    >>> import idgraph as ig
    >>> from idgraph.cost.access_sites import sites_of
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.permute(f.input("x", shape=(6, 10, 12)), (2, 0, 1)))
    >>> _ = t.merge(0).merge(0).split(0, 128).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    >>> coordinate_count(sites_of(ig.emit(f, "cuda").kernels[0], {}))  # one for each of 6 blocks of 128 threads
    768
    """
    seen: dict[tuple[Expr, tuple[int, ...]], int] = {}
    for s in found.sites:
        nodes = [n for e in (s.address, *s.conditions) for n in postorder(e) if n.op in ("floordiv", "mod")]
        inner = {n.args[0] for n in nodes if n.op == "mod"}
        for n in dict.fromkeys(n for n in nodes if n not in inner):
            own = [x for x in s.around if x.is_block or x.is_thread or x.var in n.names]
            seen[n, tuple(x.number for x in own)] = prod(x.extent for x in own)
    return sum(seen.values())


def _group_by_loops(
    conditions: Sequence[Expr], around: Sequence[EnclosingLoop], data: Mapping[str, Data]
) -> list[tuple[tuple[EnclosingLoop, ...], list[Expr]]]:
    """The conditions, grouped by the loops that they share."""
    made: list[tuple[tuple[EnclosingLoop, ...], list[Expr]]] = []
    for c in conditions:
        loops, own = set(relevant([c], around, data)), [c]
        apart: list[tuple[tuple[EnclosingLoop, ...], list[Expr]]] = []
        for other, more in made:
            if loops & set(other):
                loops |= set(other)
                own = [*more, *own]
            else:
                apart.append((other, more))
        made = [*apart, (tuple(x for x in around if x in loops), own)]
    return made


def _count_points(
    loops: tuple[EnclosingLoop, ...], conditions: list[Expr], data: Mapping[str, Data], arrays: Arrays
) -> Count:
    total = prod(x.extent for x in loops)
    if total == 0:
        return Count(0)
    if total > limit() and len(conditions) == 1:
        found = _count_linear(loops, conditions[0])
        if found is not None:
            return Count(found)
    full = total <= limit()
    env, count = grid(loops) if full else drawn(loops, sample())
    inside, known = holds(conditions, env, data, arrays, count)
    hits = int(np.count_nonzero(inside))
    return Count(hits if full else round(total * hits / count), full and known)


def _count_linear(loops: tuple[EnclosingLoop, ...], c: Expr) -> int | None:
    """The points of a box where a linear inequality holds; None where ``c`` is not a linear inequality."""
    if c.op not in ("lt", "le"):
        return None
    terms, constant = minus(c.args[1], c.args[0])  # 0 < it, or 0 <= it
    extents = {x.var: x.extent for x in loops}
    if any(t.op != "sym" or t.name not in extents for t in terms):
        return None
    constant -= c.op == "lt"
    steps: list[tuple[int, int]] = []
    for t, k in terms.items():
        n = extents.pop(t.name)
        constant += k * (n - 1) if k < 0 else 0  # counted from the other end
        steps.append((abs(k), n))
    steps.sort(reverse=True)
    return _count_at_least(tuple(steps), constant) * prod(extents.values())


@lru_cache(maxsize=1024)
def _count_at_least(steps: tuple[tuple[int, int], ...], constant: int) -> int:
    """The points of ``0 <= x_k < n_k`` with ``sum s_k x_k + constant >= 0``, all s_k positive and sorted downwards."""
    if constant >= 0:
        return prod(n for _, n in steps)
    reach = sum(s * (n - 1) for s, n in steps)
    if not steps or reach + constant < 0:
        return 0
    (s, n), rest = steps[0], steps[1:]
    inner = reach - s * (n - 1)
    none = min(n, max(0, -((constant + inner) // s)))  # x below this: not even the largest rest suffices
    every = min(n, max(0, -(constant // s)))  # x from here on: no rest is needed
    some = sum(_count_at_least(rest, constant + s * x) for x in range(none, every))
    return some + (n - every) * prod(m for _, m in rest)
