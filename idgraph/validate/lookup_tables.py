"""The tables that the checks of one operation look up and mark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from idgraph.validate.concrete_access import Case
from idgraph.validate.oracle import SCATTERED, optional, reads
from idgraph.validate.oracle.moves import Array


@dataclass(frozen=True, slots=True)
class Tables:
    """``wanted[k]``: the element at which operand k should be read, over the output's logical axes (-1: none).

    ``allowed[k]``: a read that is harmless though unused. ``values``: index tensors by name. ``seen`` marks elements
    written, ``terms`` marks (point of the loops that are not reduced, reduction index); ``marks`` False: neither.
    """

    wanted: tuple[Array, ...]
    allowed: tuple[Array | None, ...]
    values: Mapping[str, Array]
    seen: Array
    terms: Array | None
    marks: bool = True


def build_tables(case: Case, values: Mapping[str, Array], symbols: Mapping[str, int], marks: bool = True) -> Tables:
    """Oracle tables and empty marks for one operation."""
    e = case.expr
    wanted = tuple(reads(e, k, values, symbols) for k in range(len(e.inputs)))
    allowed = tuple(optional(e, k, symbols) for k in range(len(e.inputs)))
    if e.op in SCATTERED:  # the last site is where it writes
        wanted, allowed = (*wanted, reads(e, 0, values, symbols)), (*allowed, None)
    used = {load.tensor.name: values[load.tensor.name] for s in case.reads for load in s.loads}
    shape = tuple(case.write.shape[p] for p in case.write.kept)
    terms = None
    if case.reduced and marks:
        points = math.prod(n for j, (_, n) in enumerate(case.loops) if j not in case.reduced)
        folded = math.prod(n for p, n in enumerate(case.write.shape) if p not in case.write.kept)
        terms = np.zeros((points, folded), np.uint8)
    return Tables(wanted, allowed, used, np.zeros(shape if marks else (1,) * len(shape), np.uint8), terms, marks)


def table_bytes(case: Case) -> int:
    """Bytes of the tables and marks of one operation."""
    space = math.prod(case.write.shape)
    if case.expr.op == "matmul":  # its tables are views
        return space
    number = 4 if space < 2**31 else 8
    return space * (number * len(case.reads) + 1) + (case.points if case.reduced else 0)
