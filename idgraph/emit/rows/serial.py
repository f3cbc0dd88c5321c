"""A sweep on the CPU: one plain loop over the columns, in a form that compilers turn into vector code."""

from __future__ import annotations

from dataclasses import replace

from idgraph.arith import TRUE, is_true
from idgraph.emit.plan import Accumulate, Compute, Declare, If, Local, Loop, Stmt
from idgraph.emit.rows.chunks import hoisted
from idgraph.emit.rows.sweep import COLUMN, Sweep

LOWEST = -(2**31)  # below the order key of every float32


def serial(s: Sweep, read_only: frozenset[str]) -> list[Stmt]:
    """The loop, with what is the same for every column in front of it."""
    fixed, s = hoisted(s, read_only)
    before: list[Stmt] = []
    after: list[Stmt] = []
    body: list[Stmt] = []
    for x in s.body:
        match x:
            case Compute(Local(dtype="float32"), "exp", _, "float32"):
                body.append(replace(x, op="exp32"))
            case Accumulate(Local(acc, "float32"), "amax", Local() as value, None) if is_true(s.extent >= 1):
                key, number = Local(f"{acc}_key", "int64"), Local(f"{acc}_number", "int64")
                top = Local(f"{acc}_top", "float32")
                before.append(Declare(key.name, "int64", LOWEST))
                body += [Compute(number, "order_key", (value,), "float32"), Accumulate(key, "amax", number)]
                after += [Compute(top, "order_value", (key,), "int64"), replace(x, value=top)]
            case _:
                body.append(x)
    whole = (*fixed, *before, Loop(COLUMN, s.extent, "serial", tuple(body), s.loops[0].note), *after)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)
