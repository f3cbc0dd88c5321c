"""A sweep on the CPU: plain loops over the columns, in a form that compilers vectorise.

64-bit values halve the vector width of the whole loop, so it has as few as it can where it becomes vector code:

- In blocks, terms are added up in float32 for ``elements`` columns before they go to the float64 sum. The error is
  below ``elements`` * 2**-24 of the sum of magnitudes in any order, and about 10 * 2**-24 in that of vectors. This is
  for terms that are never negative, whose sum is at least as large as each, and for the whole steps of long rows.
- In runs, `RUNS` neighbouring ranges of columns are read side by side, and their terms are added up in pairs in
  float32 (pairwise summation): an error below log2(`RUNS`) * 2**-24 of the sum of magnitudes in any order. This is for
  the rest.

The tests hold each kind of row to these bounds, and the root mean square of the errors to 1.1 of that of torch's
cascade; rows that mirror themselves, whose terms cancel in torch's vectors, only to the bound (Higham, The accuracy of
floating point summation, 1993). Where a loop becomes no vector code, a float64 sum costs no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, as_expr, ceildiv, is_true, minimum, simplify, symbol
from idgraph.ir import is_float
from idgraph.kernel.ir import Accumulate, Compute, If, Index, InitAccumulator, Let, Local, Loop, Stmt
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_unrolling import Lane
from idgraph.passes.rows.reduction_loop import COLUMN, Plain, ReductionLoop
from idgraph.passes.rows.summation import (
    hoisted,
    is_short,
    narrowed,
    of_one_sign,
    rounds,
    runs_as_vectors,
    with_products,
)
from idgraph.passes.rows.vector_chunks import Pairs
from idgraph.schedule.reduction_persistence import BLOCK

RUNS = 4  # whose terms are added up in pairs
LEAST = 32  # columns that are worth either
LONG = 512  # columns of a row whose partial sums are small beside it in blocks
STEP = 64  # columns that vector code takes at once


def emit_cpu_reduction(
    s: ReductionLoop, read_only: frozenset[str], elements: int = BLOCK, short: bool | None = None
) -> list[Stmt]:
    """The loops, with loop-invariant values in front of them.

    ``short``: all floating point numbers that the kernel's rows read and write have two bytes.
    """
    fixed, s = hoisted(s, read_only)
    if (is_short(s) if short is None else short) and not rounds(s):
        s = with_products(s, fixed, exact=False)
    near = [
        replace(x, op="exp32")
        if isinstance(x, Compute) and x.op == "exp" and is_float(x.compute) and x.compute != "float64" else x
        for x in s.body
    ]  # fmt: skip
    s = replace(s, body=tuple(near))
    loops = _vectors(s, elements) if runs_as_vectors(near, s.column) else [_loop(s, s.extent, near)]
    whole = (*fixed, *loops)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)


def _loop(s: ReductionLoop, count: Expr, body: Sequence[Stmt], var: str = COLUMN) -> Stmt:
    return Loop(var, count, "serial", tuple(body), s.loops[0].note)


def _vectors(s: ReductionLoop, elements: int) -> list[Stmt]:
    """Sums in blocks, then in runs."""
    body, terms = narrowed(s.body)
    if not terms or is_true(s.extent < LEAST):
        return [_loop(s, s.extent, s.body)]
    if all(of_one_sign(s.body, x) for x in terms.values()):
        return _blocks(s, body, terms, s.extent, elements)
    whole = int(s.extent) if s.extent.is_const and int(s.extent) >= LONG else 0
    whole -= whole % (elements if whole > elements else STEP)  # compilers know the length of whole blocks
    blocks = _blocks(s, body, terms, as_expr(whole), elements) if whole else []
    return [*blocks, *_emit_runs(s, body, terms, as_expr(whole), elements)]


def _blocks(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], count: Expr, elements: int
) -> list[Stmt]:
    """The first ``count`` columns in blocks, each with sums of its own; the last one may be shorter."""
    sums = [x for x in body if isinstance(x, Accumulate) and isinstance(x.value, Local) and x.value.name in terms]
    near = {x.value.name: Local(f"{x.acc.name}_near", "float32") for x in sums if isinstance(x.value, Local)}
    first = [InitAccumulator(x.name, x.dtype, 0.0) for x in near.values()]
    last = [replace(x, value=near[x.value.name]) for x in sums if isinstance(x.value, Local)]
    inside = [_into(x, near, terms) for x in body]
    if is_true(count <= elements) and count == s.extent:
        return [*first, _loop(s, count, inside), *last]
    many = simplify(ceildiv(count, elements))
    block, inner = symbol(f"{COLUMN}_block", 0, simplify(many - 1)), symbol(f"{COLUMN}_in", 0, elements - 1)
    at = Let(COLUMN, Index(simplify(block * elements + inner)))
    some = _loop(s, simplify(minimum(as_expr(elements), count - block * elements)), (at, *inside), inner.name)
    return [_loop(s, many, (*first, some, *last), block.name)]


def _into(x: Plain, near: Mapping[str, Local], terms: Mapping[str, Local]) -> Stmt:
    """A sum's update as that of its block's sum."""
    if isinstance(x, Accumulate) and isinstance(x.value, Local) and x.value.name in near:
        return Accumulate(near[x.value.name], "sum", terms[x.value.name])
    return x


def _emit_runs(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], first: Expr, elements: int
) -> list[Stmt]:
    """The columns from ``first`` on: blocks of `RUNS` runs of one length, as many shorter runs, what is left."""
    run = max(1, elements // RUNS)
    size, behind = run * RUNS, simplify(s.extent - first)
    whole, rest = simplify(behind // size), simplify(behind % size)
    made: list[Stmt] = []
    if whole != 0:
        block = symbol(f"{COLUMN}_block", 0, simplify(whole - 1))
        made.append(_loop(s, whole, (_interleaved_runs(s, body, terms, first + block * size, run),), block.name))
        first = simplify(first + whole * size)
    if rest.is_const and int(rest) >= RUNS:
        run = int(rest) // RUNS
        made.append(_interleaved_runs(s, body, terms, first, run))
        first, rest = simplify(first + run * RUNS), simplify(rest - run * RUNS)
    if rest != 0:
        inner = symbol(f"{COLUMN}_in", 0, simplify(rest - 1))
        left = Pairs(ValueNumbering(frozenset())).expand(s.body, [Lane((), {s.column: first + inner})], {})
        made.append(_loop(s, rest, left, inner.name))
    return made


def _interleaved_runs(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], first: Expr, run: int
) -> Stmt:
    """`RUNS` runs of ``run`` columns from ``first`` on, side by side."""
    inner = symbol(f"{COLUMN}_in", 0, run - 1)
    lanes = [Lane((n,), {s.column: first + n * run + inner}) for n in range(RUNS)]
    return _loop(s, as_expr(run), Pairs(ValueNumbering(frozenset()), terms).expand(body, lanes, {}), inner.name)
