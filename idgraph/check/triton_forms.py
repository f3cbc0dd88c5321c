"""Forms of Triton source that Inductor writes: names that mean something, and values of a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from idgraph.arith import TRUE, Expr, simplify, where
from idgraph.check.form import Read
from idgraph.check.index_values import Value

PREFIXES = ("z", "y", "x")
REDUCERS = frozenset({
    "sum", "max2", "min2", "any", "prod", "xor_sum", "min_with_index", "max_with_index", "welford", "reduce",
    "online_softmax_reduce", "max", "min",
})  # fmt: skip
METHODS = frozenset({"to", "broadcast_to", "reshape", "expand_dims"})  # they change no element's value
STATEMENTS = frozenset({"device_assert", "debug_barrier", "static_assert", "static_print", "assume", "multiple_of"})
BINARY: Mapping[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip


class Unreadable(Exception):
    """A form of source that is not known here."""


@dataclass(frozen=True, slots=True)
class TritonValue:
    """A value of a kernel: what it is as far as it is an integer or a condition, what it is made of, its own masks."""

    what: Value
    reads: frozenset[Read] = frozenset()
    guards: frozenset[str] = frozenset()
    live: Expr = TRUE  # where it is not the 0 of a ``where``; may depend on loaded values


def toward_zero(name: str, a: Value, b: Value, node: ast.expr) -> Expr:
    """The machine's division of integers, toward zero: the floor for what is not negative only."""
    if not isinstance(a, Expr) or not isinstance(b, Expr) or a.cond or b.cond or not (b.is_const and int(b) > 0):
        raise Unreadable(f"a division by what may be 0 or negative: {shown(node)}")
    whole = where(a >= 0, a // b, -((-a) // b))
    return simplify(whole if name == "div_trunc" else a - b * whole)


def is_slices(text: str) -> bool:
    """``...[:, None]``: nothing but slices after the range."""
    tail = text[text.index("[") + 1 :].removesuffix(".to(tl.int64)")
    return tail.endswith("]") and set(tail[:-1]) <= set(":,None")


def shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]
