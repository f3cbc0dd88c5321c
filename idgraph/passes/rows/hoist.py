"""Loop-invariant code motion: values that are the same for every column are computed in front of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import TRUE
from idgraph.ir import DType, is_float, item_size
from idgraph.kernel.defuse import all_reads, all_sets, definitions, reads, sets
from idgraph.kernel.ir import Compute, Load, Local, Select, Stmt, Store, walk
from idgraph.passes.purpose import quantify_provenance
from idgraph.passes.rows.sweep import COLUMN, Plain, ReductionLoop

_STEPS = frozenset(("round", "floor", "ceil", "trunc", "floor_divide", "remainder", "fmod"))


def hoisted(s: ReductionLoop, read_only: frozenset[str]) -> tuple[list[Stmt], ReductionLoop]:
    """(what is the same for every column, the sweep without it)."""
    moving = {COLUMN, *all_sets((*s.body, *s.later))}
    if s.online is not None:
        moving |= {s.online.top, *(c for _, c in s.online.sums)}
    fixed: list[Stmt] = []

    def without(body: Sequence[Plain]) -> tuple[Plain, ...]:
        kept: list[Plain] = []
        for x in body:
            open_ = isinstance(x, Load) and (x.buffer.name not in read_only or x.guard != TRUE)
            if open_ or not isinstance(x, (Compute, Select, Load)) or reads(x) & moving:
                kept.append(x)
                continue
            moving.difference_update(sets(x))
            fixed.append(
                replace(x, serves=quantify_provenance(x.serves, s.column, s.extent)) if isinstance(x, Load) else x
            )
        return tuple(kept)

    body = without(s.body)
    return fixed, replace(s, body=body, later=without(s.later))


def is_short(s: ReductionLoop) -> bool:
    """True where all floating point numbers that the sweep moves have two bytes.

    Their rounding error, 2**-9 or 2**-12, covers the error of the short forms of exp and division, 2**-17.
    """
    kinds: list[DType] = [x.buffer.dtype for x in walk((*s.body, *s.later)) if isinstance(x, (Load, Store))]
    sizes = [item_size(k) for k in kinds if is_float(k)]
    return bool(sizes) and max(sizes) == 2


def rounds(s: ReductionLoop) -> bool:
    """True where a value of the sweep is rounded to a whole number."""
    return any(isinstance(x, Compute) and x.op in _STEPS for x in (*s.body, *s.later))


def cheaper(s: ReductionLoop, fixed: list[Stmt], short: bool) -> ReductionLoop:
    """Division by a loop-invariant value by its reciprocal; where only two-byte floats are moved, exp as one
    instruction, and that division as a product.
    """
    if not short:
        return with_products(s, fixed, exact=True)
    made = definitions((*s.body, *s.later))

    def cheap(x: Plain) -> Plain:
        match x:
            case Compute(Local(dtype="float32"), "exp", (o,), "float32"):
                match made.get(o.name) if isinstance(o, Local) else None:
                    case Compute(Local(dtype="float32"), "sub", apart, "float32"):
                        return replace(x, op="fast_exp_sub", operands=apart)
                    case _:
                        return replace(x, op="fast_exp")
            case _:
                return x

    s = with_products(s, fixed, exact=rounds(s))
    body, later = _used(tuple(map(cheap, s.body)), tuple(map(cheap, s.later)))
    return replace(s, body=body, later=later)


def with_products(s: ReductionLoop, fixed: list[Stmt], exact: bool) -> ReductionLoop:
    """Division by a loop-invariant value as a product with its reciprocal, which is added to ``fixed``.

    ``exact``: corrected, so that it is rounded as a division. It is where a value is rounded to a whole number: the
    product may lie on the other side of a half.
    """
    inside = {n for x in (*s.body, *s.later) for n in all_sets((x,))} | {
        c for _, c in (s.online.sums if s.online else ())
    }

    def cheap(x: Plain) -> Plain:
        match x:
            case Compute(Local(_, "float32") as made, "div", (a, Local(by, "float32")), "float32") if by not in inside:
                inverse = Local(f"{by}_inverse", "float32")
                if not any(inverse.name in sets(y) for y in fixed):
                    fixed.append(Compute(inverse, "reciprocal", (Local(by, "float32"),), "float32"))
                if exact:
                    return Compute(made, "div_by", (a, Local(by, "float32"), inverse), "float32")
                return Compute(made, "mul", (a, inverse), "float32")
            case _:
                return x

    return replace(s, body=tuple(map(cheap, s.body)), later=tuple(map(cheap, s.later)))


def _used(body: tuple[Plain, ...], later: tuple[Plain, ...]) -> tuple[tuple[Plain, ...], tuple[Plain, ...]]:
    """Both bodies without differences that are never read."""
    needed = all_reads((*body, *later))

    def kept(part: tuple[Plain, ...]) -> tuple[Plain, ...]:
        return tuple(x for x in part if not (isinstance(x, Compute) and x.op == "sub") or x.local.name in needed)

    return kept(body), kept(later)
