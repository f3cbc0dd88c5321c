"""Sums of a row: which of them may be added up in the type of their terms first."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.ir.optable import OPERATIONS
from idgraph.kernel.defuse import definitions, reads
from idgraph.kernel.ir import Accumulate, Compute, Local, Number, Operand
from idgraph.passes.rows.sweep import Plain


def widened(body: Sequence[Plain]) -> dict[str, Local]:
    """Terms of sums that are another variable in float64: name -> that variable."""
    terms = {x.value.name for x in body if isinstance(x, Accumulate) and is_coarse(x) and isinstance(x.value, Local)}
    used = [n for x in body if not (isinstance(x, Accumulate) and is_coarse(x)) for n in reads(x)]
    return {
        x.local.name: x.operands[0]
        for x in body
        if isinstance(x, Compute) and x.op == "cast" and x.local.name in terms and x.local.name not in used
        and x.local.dtype == "float64" and isinstance(x.operands[0], Local) and x.operands[0].dtype == "float32"
    }  # fmt: skip


def is_coarse(x: Accumulate) -> bool:
    """True of a sum whose partial results may be in the type of its terms."""
    return x.op == "sum" and x.result != "float64"


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
            return isinstance(o, Number) and o.value >= 0
        row = OPERATIONS[x.op]
        if row.above_zero is True or (x.op == "mul" and x.operands[0] == x.operands[1]):
            return True
        return row.above_zero == "operands" and all(map(sure, x.operands))

    return sure(term)
