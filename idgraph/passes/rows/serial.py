"""A sweep on the CPU: plain loops over the columns, in a form that compilers vectorise.

64-bit values halve the vector width of the whole loop, so it has as few as it can: a maximum is looked for
among 32-bit integers, and float32 terms that are never negative are added up in float32 for ``elements`` columns before
they go to the float64 sum: an error below ``elements`` * 2**-24 of the sum (Higham, The accuracy of floating point
summation, 1993). Where terms may cancel, the sum may be small beside them, and they are added in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from idgraph.arith import TRUE, Expr, as_expr, is_true, simplify, symbol
from idgraph.ir import is_float, item_size
from idgraph.kernel.defuse import definitions, reads
from idgraph.kernel.ir import Accumulate, AccumulateOp, Compute, Declare, If, Index, Let, Local, Loop, Stmt, Store
from idgraph.passes.rows.hoist import hoisted, is_short, with_products
from idgraph.passes.rows.sums import of_one_sign, widened
from idgraph.passes.rows.sweep import COLUMN, Sweep

ELEMENTS = 128  # columns whose terms are added up in float32
_EXTREMA = ("amax", "amin")


def serial(s: Sweep, read_only: frozenset[str], elements: int = ELEMENTS, short: bool | None = None) -> list[Stmt]:
    """The loops, with loop-invariant values in front of them.

    ``short``: all floating point numbers that the kernel's rows read and write have two bytes.
    """
    fixed, s = hoisted(s, read_only)
    if is_short(s) if short is None else short:
        s = with_products(s, fixed)
    before: list[Stmt] = []
    after: list[Stmt] = []
    body: list[Stmt] = []
    sums: list[tuple[Accumulate, Local]] = []
    wide = {name: term for name, term in widened(s.body).items() if of_one_sign(s.body, term)}
    for x in s.body:
        match x:
            case Compute(op="exp", compute=c) if is_float(c) and c != "float64":
                body.append(replace(x, op="exp32"))
            case Accumulate(acc, op, Local() as value, None) if _is_keyed(x) and is_true(s.extent >= 1):
                first, each, last = _by_key(acc, op, value)
                before += first
                body += each
                after += last
            case Accumulate(acc, "sum", Local() as value, None) if value.name in wide:
                near = Local(f"{acc.name}_near", "float32")
                body.append(Accumulate(near, "sum", wide[value.name]))
                sums.append((x, near))
            case Compute(local) if local.name in wide:
                pass
            case _:
                body.append(x)
    body = _rounded_once(body)
    loops = _blocks(s, body, sums, elements) if sums else [_loop(s, s.extent, body)]
    whole = (*fixed, *before, *loops, *after)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)


def _rounded_once(body: Sequence[Stmt]) -> list[Stmt]:
    """``body`` without roundings to bfloat16 that only a bfloat16 store reads: the store rounds by itself."""
    source = {n: x.operands[0] for n, x in definitions(body).items() if _is_bfloat16(x)}
    made: list[Stmt] = []
    for x in body:
        if isinstance(x, Store) and isinstance(x.value, Local) and x.buffer.dtype == "bfloat16":
            x = replace(x, value=source.get(x.value.name, x.value))
        made.append(x)
    used = frozenset[str]().union(*(reads(x) for x in made))
    return [x for x in made if not (isinstance(x, Compute) and x.local.name in source and x.local.name not in used)]


def _is_bfloat16(x: Stmt) -> TypeGuard[Compute]:
    """True of a float32 rounded to bfloat16."""
    match x:
        case Compute(Local(dtype="bfloat16"), "cast", (Local(dtype="float32"),)):
            return True
        case _:
            return False


def _loop(s: Sweep, count: Expr, body: Sequence[Stmt], var: str = COLUMN) -> Stmt:
    return Loop(var, count, "serial", tuple(body), s.loops[0].note)


def _blocks(s: Sweep, body: Sequence[Stmt], sums: Sequence[tuple[Accumulate, Local]], elements: int) -> list[Stmt]:
    """Blocks of columns, each with sums of its own, and the columns behind the last block."""
    block, inner = symbol(f"{COLUMN}_block", 0, None), symbol(f"{COLUMN}_in", 0, None)
    whole, rest = simplify(s.extent // elements), simplify(s.extent % elements)
    first = [Declare(near.name, near.dtype, 0.0) for _, near in sums]
    last = [replace(x, value=near) for x, near in sums]
    made: list[Stmt] = []
    if not (whole.is_const and whole == 0):
        at = Let(COLUMN, Index(simplify(block * elements + inner)))
        steps = (*first, _loop(s, as_expr(elements), (at, *body), inner.name), *last)
        made.append(_loop(s, whole, steps, block.name))
    if not (rest.is_const and rest == 0):
        at = Let(COLUMN, Index(simplify(whole * elements + inner)))
        made += [*first, _loop(s, rest, (at, *body), inner.name), *last]
    return made


def _is_keyed(x: Accumulate) -> bool:
    return x.op in _EXTREMA and is_float(x.acc.dtype) and item_size(x.acc.dtype) <= 4


def _by_key(acc: Local, op: AccumulateOp, value: Local) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
    """(before, for each column, after) of an extremum of float32 values by integers in the same order."""
    key, top = Local(f"{acc.name}_key", "int32"), Local(f"{acc.name}_top", "float32")
    found = value if op == "amax" else Local(f"{acc.name}_neg", "float32")
    turned: list[Stmt] = [] if op == "amax" else [Compute(found, "neg", (value,), "float32")]
    back: list[Stmt] = [] if op == "amax" else [Compute(top, "neg", (top,), "float32")]
    number = Local(f"{acc.name}_number", "int32")
    larger = Compute(key, "larger_key", (key, number), "int32")
    return (
        [Compute(key, "lowest_key", (), "int32")],
        [*turned, Compute(number, "order_key", (found,), "float32"), larger],
        [Compute(top, "order_value", (key,), "int32"), *back, Accumulate(acc, op, top)],
    )
