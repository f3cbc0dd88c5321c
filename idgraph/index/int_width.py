"""The machine integers that an access needs, whatever the predicate says: 32 bits, signed or not, or 64.

Whether every number that kernels compute for a fusion fits 64 bits: extents, loops, memory, conditions, addresses,
and the numbers that `iota` counts.

Most are proved by the ranges of symbols when kernels are made. The rest is looked at again when a program is run, with
numbers for the symbols; a number beyond 64 bits is an error that names the tensor, never an address that wraps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import (
    ArithZeroDivisionError,
    Expr,
    IntType,
    as_expr,
    closure,
    fits,
    interval,
    postorder,
    reduce_strength,
    symbol,
)
from idgraph.errors import EmitError, IndexingError, SourceLine
from idgraph.index.access_relation import AccessFunction, IndexMaps
from idgraph.index.allocation import buffer_size
from idgraph.index.lane_analysis import bounded_loads
from idgraph.ir import Fusion, Tensor

_KINDS: tuple[IntType, ...] = ("uint32", "int32", "int64")


def index_type(access: AccessFunction, guarded: bool = False) -> IntType:
    """See `Access.index_type`."""
    found: IntType | None = next((k for k in _KINDS if _access_fits(access, k, guarded)), None)
    if found is None:
        raise IndexingError(
            f"{access.tensor.name} at {access.address}: 64 bits are not proved to be enough",
            where=access.expr.source_line,
            hint="give every symbol a max: f.symbol(name, max=...)",
        )
    return found


def index_bits(access: AccessFunction) -> int:
    """See `Access.index_bits`."""
    return 32 if _access_fits(access, "int32", guarded=False) else 64


def _access_fits(access: AccessFunction, kind: IntType, guarded: bool) -> bool:
    """Loop ends, both sides of each condition, and the address (loaded values in bounds), also as kernels reduce it."""
    bounded = bounded_loads(access)
    address = access.address.substitute(bounded) if bounded else access.address
    always: tuple[Expr, ...] = (*(x.extent for x in access.loops), *access.conditions)
    facts = access.conditions if guarded else ()
    return (
        all(fits(e, kind) for e in always)
        and fits(address, kind, facts)
        and fits(reduce_strength(address), kind, facts)
    )


LARGEST = (1 << 63) - 1
_ROOM = 1 << 55


@dataclass(frozen=True, slots=True)
class Size:
    """A number that is computed for ``tensor``; ``what`` it is in words."""

    tensor: Tensor
    what: str
    value: Expr
    line: SourceLine | None

    def error(self, value: Expr, env: Mapping[str, int]) -> EmitError:
        """The error that it does not fit, with its range where the symbols have these values."""
        at = ", ".join(f"{k} = {v}" for k, v in sorted(env.items()) if k in _parameters(self.value))
        worst = next((n for n in postorder(value) if not n.cond and not _fits_int64(n)), value)
        low, high = interval(worst)
        ends = ("any number" if low is None else str(low), "any number" if high is None else str(high))
        reach = f"it is {high}" if low == high else f"it runs from {ends[0]} to {ends[1]}"
        return EmitError(
            f"{self.what} of {self.tensor.name} is beyond 64 bits{f' where {at}' if at else ''}",
            where=self.line,
            because=[f"{worst if value is self.value else self.value}: {reach}, int64 ends at {LARGEST}"],
            hint=f"cut {self.tensor.name} into parts that fit",
        )


def open_sizes(fusion: Fusion, maps: IndexMaps) -> tuple[Size, ...]:
    """The numbers not proved to fit 64 bits; all depend on symbols. Raises `EmitError` for one that does not."""
    found: dict[tuple[Expr, str], Size] = {}
    for s in _numbers(fusion, maps):
        if _narrow(s.value) or fits(s.value, "int64"):
            continue
        if not (_parameters(s.value) & fusion.symbols.keys() or _unknown(s.value)):
            raise s.error(s.value, {})
        found.setdefault((s.value, s.what), s)
    return tuple(found.values())


def check_sizes(sizes: Sequence[Size], env: Mapping[str, int]) -> None:
    """Raise `EmitError` for a number that does not fit 64 bits where the symbols have these values.

    One that depends on a stride without a value yet is passed over, as is one that divides by the extent of an axis
    that turns out empty: no kernel computes it.
    """
    for s in sizes:
        try:
            value = s.value.substitute({k: as_expr(env[k]) for k in _parameters(s.value) & env.keys()})
        except ArithZeroDivisionError:
            continue
        if not (_unknown(value) or _narrow(value) or fits(value, "int64")):
            raise s.error(value, env)


@dataclass(frozen=True, slots=True)
class Fitting:
    """A box of values of symbols in which every number fits 64 bits: name, least, most."""

    box: tuple[tuple[str, int, int], ...]

    def holds(self, env: Mapping[str, int]) -> bool:
        """Whether these values are in it."""
        return all(low <= env.get(name, low - 1) <= high for name, low, high in self.box)


def fitting(sizes: Sequence[Size], env: Mapping[str, int]) -> Fitting | None:
    """A box around these values, as wide as a byte more of each, in which all numbers are proved to fit; or None.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> n = f.symbol("n", min=1)
    >>> y = f.output(f.input("x", (n, n)) + 1.0)
    >>> sizes = open_sizes(f, ig.IdModel(f))
    >>> fitting(sizes, {"n": 300}), fitting(sizes, {"n": 2**40})
    (Fitting(box=(('n', 1, 65535),)), None)
    """
    known = {s.name: s for size in sizes for s in closure(size.value) if s.name in env}
    box: list[tuple[str, int, int]] = []
    for name, s in sorted(known.items()):
        low = interval(s)[0]
        if env[name] < 0:
            return None
        least = low if low is not None and 0 <= low <= env[name] else 0
        box.append((name, least, (1 << -(-max(env[name].bit_length(), 1) // 8) * 8) - 1))
    widened = {name: symbol(name, low, high) for name, low, high in box}
    for size in sizes:
        try:
            value = size.value.substitute({k: e for k, e in widened.items() if k in _parameters(size.value)})
        except ArithZeroDivisionError:
            return None
        if _unknown(value) or not (_narrow(value) or fits(value, "int64")):
            return None
    return Fitting(tuple(box))


def _fits_int64(e: Expr) -> bool:
    low, high = interval(e)
    return low is not None and high is not None and low >= -LARGEST and high <= LARGEST


def _parameters(e: Expr) -> set[str]:
    """The names that a number depends on, those in the bounds of loop variables too."""
    return {s.name for s in closure(e)}


def _unknown(e: Expr) -> bool:
    """Whether it depends on a number that is known later: a stride that follows from an array."""
    return any(None in interval(s) for s in closure(e))


def _narrow(e: Expr) -> bool:
    """The quick answer: every part is so far below 64 bits that no sum of them, in any order, comes near."""
    for node in postorder(e):
        low, high = (0, 0) if node.cond else interval(node)
        if low is None or high is None or low < -_ROOM or high > _ROOM:
            return False
    return True


def _numbers(fusion: Fusion, maps: IndexMaps) -> Iterator[Size]:
    for t in fusion.tensors:
        for d in t.axes:
            yield Size(t, "an extent", d.extent, t.source_line)
        yield Size(t, "the memory", buffer_size(t), t.source_line)
    for e in fusion.exprs:
        for loop in maps.loops(e):
            yield Size(e.output, "a loop", loop.extent, e.source_line)
        for k in (None, *range(len(e.inputs))):
            a = maps.write(e) if k is None else maps.read(e, k)
            t = e.output if k is None else e.inputs[k]
            for c in a.conditions:
                yield Size(t, "a bound", c, e.source_line)
            held = bounded_loads(a)
            address = a.tensor_address.substitute(held) if held else a.tensor_address
            yield Size(t, "an address", reduce_strength(address), e.source_line)
            if t.definition is not None and t.definition.op == "iota":
                start, step = (t.definition.attrs[key] for key in ("start", "step"))
                if isinstance(start, int) and isinstance(step, int):
                    yield Size(t, "a number", reduce_strength(a.coordinates[0] * step + start), e.source_line)
