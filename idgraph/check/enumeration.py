"""Deciding by points: both sides evaluated with NumPy at the points of the loops, elements compared as sets.

Loaded values are made up by a hash of where they are loaded from, so that both sides load the same value from the
same element, and (almost) never from different ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, cast
from zlib import crc32

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, as_expr, simplify, symbol
from idgraph.check.index_values import ValueTable
from idgraph.check.program import IndirectIndex, LoadedValue, NeutralProgram
from idgraph.check.semantics import ElementRead, NoIndexMeaning
from idgraph.ir import Tensor

Ints = npt.NDArray[np.int64]
Env = dict[str, Any]
CHUNK = 1 << 18  # points of both sides that are held at once
NOTHING = -(1 << 62)


def spread(x: Any, salt: int) -> Any:
    """A hash of integers (splitmix64), the same for equal ones."""
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.int64).astype(np.uint64) + np.uint64(((salt + 1) * 0x9E3779B97F4A7C15) % (1 << 64))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)


def bind(table: ValueTable, env: Env) -> Env:
    """Values of loaded symbols at the points of ``env``."""
    out = dict(env)
    pool, limits = _constants(table), table.limits()
    for name in table.order:
        if name in table.places:
            value, size = table.places[name]
            if not value.names <= out.keys():  # of the other side's loops
                continue
            n, v = np.maximum(size.evaluate_array(out), 1), value.evaluate_array(out)
            least = 0 if name in table.unsigned else -n  # below 0 counts from the end
            inside = (v >= least) & (v < n)  # one out of range is made up
            out[name] = np.where(inside, v % n, spread(v, 77) % n)
            continue
        what = table.loads[name]
        if isinstance(what, str):
            out[name] = np.asarray(crc32(what.encode()) % 1000)
            continue
        if not what[1].names <= out.keys():
            continue
        found = spread(what[1].evaluate_array(out), crc32(what[0].encode()))
        # one value in four is a number that the formulas compare with, so that both branches are taken
        drawn = np.where(found % 4 == 0, pool[(found >> 8) % len(pool)], (found >> 16) % 1009)
        spans = [
            (a.evaluate_array(out), x.evaluate_array(out)) for a, x in limits.get(what[0], ()) if x.names <= out.keys()
        ]
        if spans:  # an index is in range, one below 0 too where it counts from the end
            least = np.maximum.reduce(np.broadcast_arrays(*(a for a, _ in spans)))
            n = np.maximum.reduce(np.broadcast_arrays(1, *(x for _, x in spans)))
            drawn = np.where((drawn >= least) & (drawn < n), drawn, drawn % (n - least) + least)
        out[name] = drawn
    return out


def _constants(table: ValueTable) -> Ints:
    found = {0, 1}
    work = [v for v, _ in table.places.values()]
    while work:
        x = work.pop()
        if x.is_const and not x.cond:
            found.add(int(x))
        work.extend(x.args)
    return np.array(sorted(v for v in found if abs(v) < 1 << 31), dtype=np.int64)


def chunks(sizes: Sequence[int], most: int, only: Ints | None = None) -> Iterator[tuple[Ints, list[Ints]]]:
    """(flat numbers, one array for each loop) of ``most`` points at a time; ``only`` these numbers, where given."""
    total = prod(sizes) if only is None else len(only)
    for start in range(0, total, most):
        stop = min(start + most, total)
        flat = np.arange(start, stop, dtype=np.int64) if only is None else only[start:stop]
        yield flat, unraveled(flat, sizes)


def unraveled(flat: Ints, sizes: Sequence[int]) -> list[Ints]:
    """Coordinates of row-major numbers."""
    out: list[Ints] = []
    for n in reversed(sizes):
        out.append(flat % n)
        flat = flat // n
    return out[::-1]


def addresses(needs: Sequence[ElementRead], env: Env, shape: tuple[int, ...]) -> Ints:
    """(*shape, reads): the address of each read, `NOTHING` where it does not happen."""
    out = np.empty((*shape, len(needs)), dtype=np.int64)
    for k, n in enumerate(needs):
        at = n.address.evaluate_array(env)
        held = n.when.evaluate_array(env)
        out[..., k] = np.where(held, at, NOTHING)
    return out


def as_sets(rows: Ints) -> Ints:
    """Each row sorted, repeated elements replaced by `NOTHING`, which comes first."""
    rows = np.sort(rows, axis=-1)
    rows[..., 1:][rows[..., 1:] == rows[..., :-1]] = NOTHING
    return np.sort(rows, axis=-1)


def differing(a: Ints, b: Ints) -> int | None:
    """The first row in which two arrays of sorted rows differ."""
    width = max(a.shape[1], b.shape[1])
    a, b = (_padded(x, width) for x in (a, b))
    wrong = np.flatnonzero((a != b).any(axis=1))
    return int(wrong[0]) if wrong.size else None


def _padded(rows: Ints, width: int) -> Ints:
    missing = width - rows.shape[1]
    return rows if missing == 0 else np.concatenate([np.full((len(rows), missing), NOTHING), rows], axis=1)


@dataclass(frozen=True, slots=True)
class Space:
    """The points at which a nest is compared: its loops, its reduced loops, and those of the program's side."""

    loops: tuple[tuple[str, int], ...]
    reduce: tuple[tuple[str, int], ...]
    meant: tuple[tuple[str, int], ...]
    symbols: Mapping[str, int]
    multiset: bool = False

    @property
    def points(self) -> int:
        """Loop points that a complete comparison looks at."""
        return prod(n for _, n in self.loops) * self.inner

    @property
    def inner(self) -> int:
        """Points for each element written."""
        return max(prod(n for _, n in self.reduce), prod(n for _, n in self.meant), 1)


@dataclass(frozen=True, slots=True)
class Gap:
    """A point, an element read that is not meant, an element meant that is not read (None: none)."""

    point: dict[str, int]
    read: int | None
    meant: int | None


def compare(
    space: Space,
    ours: Sequence[ElementRead],
    theirs: Sequence[ElementRead],
    table: ValueTable,
    held: Expr,
    only: Ints | None = None,
    inside: bool = False,
) -> Gap | None:
    """The first point at which the elements read (``ours``) are not those meant (``theirs``); all of one storage.
    ``inside``: of those at which all that addresses an axis is in its range.
    """
    names, sizes = [n for n, _ in space.loops], [s for _, s in space.loops]
    for flat, coordinates in chunks(sizes, max(CHUNK // space.inner, 1), only):
        env: Env = {**space.symbols, **dict(zip(names, coordinates, strict=True))}
        a = _gathered(ours, env, flat, space.reduce, table, space.multiset)
        b = _gathered(theirs, env, flat, space.meant, table, space.multiset)
        bound = bind(table, env)
        live = np.broadcast_to(held.evaluate_array(bound), (len(flat),))
        if inside:
            live = live & in_range(table, bound, len(flat))
        a[~live], b[~live] = NOTHING, NOTHING
        at = differing(a, b)
        if at is not None:
            point = {n: int(c[at]) for n, c in zip(names, coordinates, strict=True)}
            return Gap(point, *_odd(a[at], b[at]))
    return None


def in_range(table: ValueTable, env: Env, count: int) -> npt.NDArray[np.bool_]:
    """At which of ``count`` points all loaded indices are indices of their axes."""
    out = np.ones(count, dtype=np.bool_)
    for name, (value, size) in table.places.items():
        if value.names | size.names <= env.keys():
            v, n = value.evaluate_array(env), size.evaluate_array(env)
            out &= (v >= table.lowest(name, n)) & (v < n)
    return out


def share_in_range(space: Space, table: ValueTable, only: Ints | None = None) -> float:
    """The part of the points at which all loaded indices are in range."""
    names, sizes = [n for n, _ in space.loops], [s for _, s in space.loops]
    inside = total = 0
    for flat, coordinates in chunks(sizes, CHUNK, only):
        env: Env = {**space.symbols, **dict(zip(names, coordinates, strict=True))}
        inside += int(in_range(table, bind(table, env), len(flat)).sum())
        total += len(flat)
    return inside / max(total, 1)


def one_sided(ours: Sequence[ElementRead], theirs: Sequence[ElementRead], table: ValueTable) -> str:
    """Why elements that are the same at made-up values may differ at others: only one side depends on a value.

    >>> from idgraph.arith import TRUE, symbol
    >>> table = ValueTable()
    >>> v, i = table.load("k", symbol("i")), symbol("i")
    >>> one_sided([ElementRead("x", i, v > 0)], [ElementRead("x", i, TRUE)], table)
    'a condition of loaded values limits what is read, on one side only'
    """
    sides = (ours, theirs)
    texts = [{t for n in side for x in (n.address, n.when) for t in table.texts(x)} for side in sides]
    values = [{s for n in side for s in n.when.names if table.holds_data(symbol(s))} for side in sides]
    if texts[0] != texts[1]:
        return f"it depends on {min(texts[0] ^ texts[1])[:120]}, which is not an integer formula"
    return "" if values[0] == values[1] else "a condition of loaded values limits what is read, on one side only"


def _gathered(
    needs: Sequence[ElementRead],
    env: Env,
    flat: Ints,
    reduce: Sequence[tuple[str, int]],
    table: ValueTable,
    multiset: bool,
) -> Ints:
    """For each point the sorted elements, over all values of the reduced loops."""
    if not needs:
        return np.full((len(flat), 1), NOTHING)
    sizes = [n for _, n in reduce]
    inner = unraveled(np.arange(prod(sizes), dtype=np.int64)[None, :], sizes)
    wide: Env = {k: cast("Ints", v)[:, None] if isinstance(v, np.ndarray) else v for k, v in env.items()}
    wide |= dict(zip((n for n, _ in reduce), inner, strict=True))
    rows = addresses(needs, bind(table, wide), (len(flat), prod(sizes)))
    flat_rows = as_sets(rows).reshape(len(flat), -1)
    return np.sort(flat_rows, axis=-1) if multiset else as_sets(flat_rows)


def _odd(a: Ints, b: Ints) -> tuple[int | None, int | None]:
    """An element that the first has more often than the second, and one that the second has more often."""
    return _extra(a, b), _extra(b, a)


def _extra(a: Ints, b: Ints) -> int | None:
    left, count = cast("tuple[Ints, Ints]", np.unique(a[a != NOTHING], return_counts=True))
    other = dict(zip(*(x.tolist() for x in np.unique(b[b != NOTHING], return_counts=True)), strict=True))
    for value, n in zip(left.tolist(), count.tolist(), strict=True):
        if n > other.get(value, 0):
            return int(value)
    return None


SAMPLES = 512  # points of a larger space that are tried for a counterexample


def extents_of(t: Tensor) -> tuple[Expr, ...]:
    """The shape as expressions."""
    return tuple(as_expr(n) for n in t.shape)


def at_names(x: Expr, names: Mapping[str, Expr]) -> Expr:
    """A formula with names replaced, in its smallest form."""
    return simplify(x.substitute(dict(names))) if names else simplify(x)


def uses(x: LoadedValue | IndirectIndex) -> frozenset[str]:
    if isinstance(x, IndirectIndex):
        return x.value.names | x.size.names
    return frozenset() if x.text else x.index.names


def some_points(space: Space, most: int) -> npt.NDArray[np.int64]:
    """Some loop points, the first and last among them."""
    total = prod(n for _, n in space.loops)
    count = max(min(SAMPLES, most // space.inner), 2)
    drawn = np.random.default_rng(0).integers(0, total, count)
    return np.unique(np.concatenate([drawn, [0, total - 1]]))


def _some_values(s: Expr, facts: Sequence[Expr]) -> list[int]:
    """The nine smallest values of a symbol that its range and the facts of no other symbol allow."""
    low, high, step, rest = s.symbol_bounds
    least = low if isinstance(low, int) else min(2, high) if isinstance(high, int) else 2
    own = [f for f in facts if f.names == frozenset({s.name})]
    first = least + (rest - least) % step
    every = (first + step * k for k in range(1 << 12) if not isinstance(high, int) or first + step * k <= high)
    return list(islice((v for v in every if all(f.evaluate({s.name: v}) for f in own)), 9))


def sample_sizes(p: NeutralProgram) -> Iterator[dict[str, int]]:
    """Values of the symbols that satisfy the facts: the sizes at which a dynamic program is enumerated."""
    if not p.symbols:
        yield {}
        return
    found, choices = 0, {name: _some_values(s, p.facts) for name, s in p.symbols.items()}
    for salt in range(-1, 400 if all(choices.values()) else -1):  # the smallest first
        env = {
            x: c[(salt * (2 * k + 3) + k + 1) % len(c) if salt >= 0 else 0] for k, (x, c) in enumerate(choices.items())
        }
        if all(bool(f.evaluate(env)) for f in p.facts if f.names <= env.keys()):
            yield env
            found += 1
        if found == 4:
            return
    if not found:
        raise NoIndexMeaning("no sizes were found that satisfy its guards")


def more_sizes(p: NeutralProgram) -> Iterator[dict[str, int]]:
    """Other values of the symbols that satisfy the facts, among the smallest."""
    before = list(sample_sizes(p))
    choices = {name: _some_values(s, p.facts) for name, s in p.symbols.items()}
    for salt in range(max(map(len, choices.values()), default=0)):
        env = {x: c[(salt * (k + 1) + k) % len(c)] for k, (x, c) in enumerate(choices.items())}
        if env not in before and all(bool(f.evaluate(env)) for f in p.facts if f.names <= env.keys()):
            before.append(env)
            yield env
