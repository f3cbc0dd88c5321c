"""Sums of a row: which of them may be added up in float32 first.

Loop-invariant code motion: values that are the same for every column are computed in front of a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, simplify
from idgraph.ir import DType, is_float, item_size
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import all_reads, all_sets, definitions, reads, sets
from idgraph.kernel.ir import Accumulate, Comment, Compute, Constant, Load, Local, Operand, Select, Stmt, Store, walk
from idgraph.passes.lane_loop_fusion import quantify_provenance
from idgraph.passes.rows.reduction_loop import COLUMN, Plain, ReductionLoop

VECTOR_FORMS = frozenset(
    {"exp", "tanh", "erf"}
)  # functions of `idgraph.runtime.cpu.vector_math` without branches or tables


def widened(body: Sequence[Plain]) -> dict[str, Local]:
    """Terms of sums that are another variable in float64: name -> that variable, a float32."""
    return {name: x for name, x in terms_of(body).items() if x.dtype == "float32"}


def terms_of(body: Sequence[Plain]) -> dict[str, Local]:
    """Terms of sums that are a shorter float in float64: name -> the variable that holds it."""
    terms = {x.value.name for x in body if isinstance(x, Accumulate) and is_coarse(x) and isinstance(x.value, Local)}
    used = [n for x in body if not (isinstance(x, Accumulate) and is_coarse(x)) for n in all_reads((x,))]
    return {
        x.local.name: x.operands[0]
        for x in body
        if isinstance(x, Compute) and x.op == "cast" and x.local.name in terms and x.local.name not in used
        and x.local.dtype == "float64" and isinstance(x.operands[0], Local)
        and is_float(x.operands[0].dtype) and x.operands[0].dtype != "float64"
    }  # fmt: skip


def narrowed(body: Sequence[Plain]) -> tuple[list[Plain], dict[str, Local]]:
    """The statements with the terms of sums in float32, and those terms: name in float64 -> variable in float32.

    >>> x, term, s = Local("x", "bfloat16"), Local("t", "float64"), Local("s", "float64")
    >>> narrowed([Compute(term, "cast", (x,), "float64"), Accumulate(s, "sum", term, result="float32")])[1]["t"].dtype
    'float32'
    """
    found, made = terms_of(body), list[Plain]()
    short = {name: x if x.dtype == "float32" else Local(f"{name}_short", "float32") for name, x in found.items()}
    for x in body:
        if not (isinstance(x, Compute) and x.local.name in found):
            made.append(x)
        elif short[x.local.name] != found[x.local.name]:
            made.append(Compute(short[x.local.name], "cast", x.operands, "float32"))
    return made, short


def is_coarse(x: Accumulate) -> bool:
    """True of a sum whose partial results may be in the type of its terms."""
    return x.op == "sum" and x.result != "float64"


def runs_as_vectors(body: Sequence[Plain], column: Expr) -> bool:
    """True where compilers make vector code of a loop over columns: they lie side by side in memory, one at least is
    read, and no operation is a function of a mathematics library, a branch, or a conversion of float16.

    >>> from idgraph.arith import symbol
    >>> from idgraph.kernel.ir import Buffer
    >>> c, x = symbol("c", 0, 63), Buffer("x", "x", "float32", 4096, "input")
    >>> [runs_as_vectors([Load(Local("v", "float32"), x, at)], c) for at in (c + 64, c * 64)]
    [True, False]
    """
    steps: set[bool] = set()
    for x in body:
        match x:
            case Load(buffer=buffer, address=address) | Store(buffer=buffer, address=address):
                if buffer.dtype == "float16":
                    return False
                if column.names & address.names:
                    steps.add(not column.names & simplify(address - column).names)
            case Compute(op=op):
                if op not in VECTOR_FORMS and OPERATIONS[op].cycles == "library":
                    return False
            case Comment() | Select() | Accumulate():
                pass
            case _:
                return False
    return steps == {True}


def of_one_sign(body: Sequence[Plain], term: Local) -> bool:
    """True where a term is never negative (or is NaN): its sum is not small beside the terms.

    >>> x, e = Local("x", "float32"), Local("e", "float32")
    >>> of_one_sign([Compute(e, "exp", (x,), "float32")], e), of_one_sign([Compute(e, "neg", (x,), "float32")], e)
    (True, False)
    """
    made = definitions(body)

    def sure(o: Operand) -> bool:
        x = made.get(o.name) if isinstance(o, Local) else None
        if not isinstance(x, Compute):
            return isinstance(o, Constant) and o.value >= 0
        row = OPERATIONS[x.op]
        if row.above_zero is True or (x.op == "mul" and x.operands[0] == x.operands[1]):
            return True
        return row.above_zero == "operands" and all(map(sure, x.operands))

    return sure(term)


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
    """True where all floating point numbers that the sweep moves for a column have two bytes.

    Their rounding error, 2**-9 or 2**-12, covers the error of the short forms of exp and division, 2**-17.
    """
    moved = [x for x in walk((*s.body, *s.later)) if isinstance(x, (Load, Store)) and COLUMN in x.address.names]
    kinds: list[DType] = [x.buffer.dtype for x in moved]
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

    def retained(part: tuple[Plain, ...]) -> tuple[Plain, ...]:
        return tuple(x for x in part if not (isinstance(x, Compute) and x.op == "sub") or x.local.name in needed)

    return retained(body), retained(later)
