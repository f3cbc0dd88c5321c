"""Sums of a row: which of them may be added up in float32 first."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, simplify
from idgraph.ir import is_float
from idgraph.ir.optable import OPERATIONS
from idgraph.kernel.defuse import all_reads, definitions
from idgraph.kernel.ir import Accumulate, Comment, Compute, Constant, Load, Local, Operand, Select, Store
from idgraph.passes.rows.sweep import Plain

VECTOR_FORMS = frozenset({"exp", "tanh", "erf"})  # functions of `idgraph.runtime.cpu_math` without branches or tables


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
