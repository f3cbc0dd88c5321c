"""Loops within loops, no deeper than the compiler of a source takes them.

Two loops become one over the steps of both, from which their variables follow. What stands in front of the inner loop
and only computes runs at each of its steps, other statements there at its first, those behind it at its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from idgraph.arith import Expr, and_, as_expr, is_true, maximum, minimum, simplify, symbol
from idgraph.errors import EmitError
from idgraph.kernel.def_use import all_sets, stored_in
from idgraph.kernel.ir import (
    ZERO,
    BoundsCheck,
    Comment,
    Compute,
    If,
    Index,
    Let,
    Load,
    Loop,
    Select,
    Stmt,
    StraightLineBlock,
    bodies,
    walk,
)

PYTHON_BLOCKS: Final = 20
"""Loops that CPython compiles within each other."""


def limit_nesting(body: Sequence[Stmt], most: int, threads: bool = False) -> tuple[Stmt, ...]:
    """``body`` with at most ``most`` loops within each other; of ``threads``, loops on blocks and threads are none.

    Raises `EmitError` where the steps of inner loops depend on those of the loops around them.

    >>> inner = Loop("j", as_expr(3), "serial", (Let("k", Index(symbol("i") + symbol("j"))),))
    >>> (made,) = limit_nesting([Loop("i", as_expr(2), "serial", (inner,))], 1)
    >>> str(made.extent), [f"{s.name} = {s.value.value}" for s in made.body]
    ('6', ['i = i_j//3', 'j = i_j%3', 'k = i + j'])
    """
    return tuple(_limited_inside(s, most, threads) if _is_shared(s) else _limited(s, most, threads) for s in body)


def _is_shared(s: Stmt) -> bool:
    """True of a loop whose steps the cores share out."""
    return isinstance(s, Loop) and s.parallel.startswith("blockIdx")


def _limited_inside(s: Stmt, most: int, threads: bool) -> Stmt:
    body = tuple(_limited(x, most - _is_block(s, threads), threads) for x in bodies(s))
    return replace(s, body=body)  # type: ignore[call-arg]


def _depth(body: Sequence[Stmt], threads: bool) -> int:
    return max((_is_block(s, threads) + _depth(bodies(s), threads) for s in body), default=0)


def _is_block(s: Stmt, threads: bool) -> bool:
    return isinstance(s, Loop) and not (threads and s.parallel.startswith(("blockIdx", "threadIdx")))


def _limited(s: Stmt, most: int, threads: bool) -> Stmt:
    while (depth := _depth([s], threads)) > most:
        made = _merged(s, most - 1, threads) if isinstance(s, Loop) and _is_block(s, threads) else None
        if made is None:
            if most <= 1 and isinstance(s, Loop) and _is_block(s, threads):
                raise EmitError(
                    f"{PYTHON_BLOCKS - most + depth} loops lie within each other, and Python compiles {PYTHON_BLOCKS}",
                    hint="merge axes of the tensor, or inline it further out",
                )
            return _limited_inside(s, most, threads)
        s = made
    return s


def _merged(s: Loop, most: int, threads: bool) -> Loop | None:
    """``s`` merged with the loops in it that are too deep; None where they do not begin in it, or do not run as often
    at each of its steps, or repeat loads of what they write."""
    inner = list(_too_deep(s.body, most, threads))
    steps = [x.extent if x.stop is None else minimum(x.extent, x.stop) for x in inner]
    unknown = {s.var, *all_sets(s.body)}
    again = {x.buffer.name for x in walk(tuple(_repeated_each_step(s.body, most, threads))) if isinstance(x, Load)}
    if any(unknown & e.names for e in steps) or any(x.var == s.var or not _is_block(x, threads) for x in inner):
        return None
    if again & stored_in(s.body):
        return None
    sizes = [simplify(maximum(e, 1)) for e in steps]
    total = simplify(sum(sizes, as_expr(0)))
    var = "_".join([s.var, *(x.var for x in inner)])
    extent = simplify((s.extent if s.stop is None else maximum(minimum(s.extent, s.stop), 0)) * total)
    number = symbol(var, 0, extent - 1)
    made = _Merged(simplify(number % total), most, threads, steps, sizes)
    body = (Let(s.var, Index(simplify(number // total))), *made.steps_of(s.body))
    return replace(s, var=var, extent=extent, body=body, column=None, stop=None)


@dataclass(slots=True)
class _Merged:
    """The body of one loop made of two: its step ``at`` is one of the inner loop that begins at ``low``."""

    at: Expr
    most: int
    threads: bool
    steps: list[Expr]
    sizes: list[Expr]
    low: Expr = ZERO

    def steps_of(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        made, begin = list[Stmt](), self.low
        for s in body:
            first = self.low
            if _depth([s], self.threads) <= self.most:
                now = begin if first == begin else simplify(first - 1)  # behind a loop: at its last step
                made += self.where(self.at >= now if _only_computes(s) else self.at.eq(now), (s,))
            elif isinstance(s, Loop):
                made.append(Let(s.var, Index(simplify(self.at - first))))
                self.low = simplify(first + self.sizes.pop(0))
                made += self.where(and_(self.at >= first, self.at < first + self.steps.pop(0)), s.body)
            else:
                inside = self.steps_of(bodies(s))
                made += self.where(and_(self.at >= first, self.at < self.low), (replace(s, body=inside),))  # type: ignore[call-arg]
        return tuple(made)

    def where(self, condition: Expr, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        condition = simplify(condition)
        return body if is_true(condition) else (If(condition, body),)


def _too_deep(body: Sequence[Stmt], most: int, threads: bool) -> Iterator[Loop]:
    """The outermost loops of a body that are deeper than ``most``."""
    for s in body:
        if _depth([s], threads) > most:
            yield from (s,) if isinstance(s, Loop) else _too_deep(bodies(s), most, threads)


def _repeated_each_step(body: Sequence[Stmt], most: int, threads: bool) -> Iterator[Stmt]:
    """Statements that compute at each step of merged loops."""
    for s in body:
        if _depth([s], threads) <= most:
            yield from (s,) if _only_computes(s) else ()
        elif not isinstance(s, Loop):
            yield from _repeated_each_step(bodies(s), most, threads)


def _only_computes(s: Stmt) -> bool:
    """True of what may run once more: it sets variables to what it set them to before."""
    compound = isinstance(s, (If, BoundsCheck, StraightLineBlock))
    return isinstance(s, (Load, Compute, Select, Let, Comment)) or (compound and all(map(_only_computes, s.body)))
