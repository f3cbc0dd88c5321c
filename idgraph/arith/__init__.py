"""Exact integer index expressions: nodes, ranges, named rewrite rules, proofs, and the only door to sympy."""

from idgraph.arith.enumeration import closure
from idgraph.arith.evaluate import CompiledExprs
from idgraph.arith.expr import (
    FALSE,
    TRUE,
    ArithError,
    ArithTypeError,
    ArithZeroDivisionError,
    Expr,
    IntLike,
    Range,
    and_,
    as_expr,
    ceildiv,
    const,
    maximum,
    minimum,
    not_,
    or_,
    postorder,
    sort_key,
    symbol,
    where,
    xor,
)
from idgraph.arith.facts import strongest
from idgraph.arith.index_map import (
    Collision,
    IndexMap,
    IndexSet,
    MapProof,
    MapVerdict,
    Missed,
    NotInvertible,
    Undecided,
)
from idgraph.arith.interop import affine_map, affine_set, from_sympy, to_sympy, tvm_index_map
from idgraph.arith.interval import congruence, interval, multiple_of
from idgraph.arith.layout_operations import AddressSwizzle
from idgraph.arith.layout_operations import AddressSwizzle as Swizzle
from idgraph.arith.linear import divisible
from idgraph.arith.mixed_radix import cost, divmods
from idgraph.arith.prove import (
    CounterExample,
    Proof,
    Root,
    Unknown,
    Verdict,
    drop_redundant,
    enumerate_points,
    integer_root,
    is_true,
    prove,
    prove_equal,
)
from idgraph.arith.rewriter import Rule, RuleApplication, rules
from idgraph.arith.simplify import simplify, trace
from idgraph.arith.source import C_PRELUDE, IntType, expensive, fits, integer_type, reduce_strength, to_source
from idgraph.arith.text import RangeLike, parse, ranged_symbols, symbol_text
from idgraph.errors import suggesting

__all__ = [
    "C_PRELUDE", "FALSE", "TRUE", "AddressSwizzle", "ArithError", "ArithTypeError", "ArithZeroDivisionError",
    "Collision", "CounterExample", "Expr", "IndexMap", "IndexSet", "IntLike", "IntType", "MapProof", "MapVerdict",
    "Missed", "NotInvertible", "Proof", "Range", "RangeLike", "Root", "Rule", "RuleApplication", "CompiledExprs",
    "Swizzle", "Undecided", "Unknown", "Verdict", "affine_map", "affine_set", "and_", "as_expr", "ceildiv",
    "closure", "congruence", "const", "cost", "divisible", "divmods", "drop_redundant", "enumerate_points",
    "expensive", "fits", "from_sympy", "integer_root", "integer_type", "interval", "is_true", "maximum", "minimum",
    "multiple_of", "not_", "or_", "parse", "postorder", "prove", "prove_equal", "ranged_symbols", "reduce_strength",
    "rules", "simplify", "sort_key", "strongest", "symbol", "symbol_text", "to_source", "to_sympy", "trace",
    "tvm_index_map", "where", "xor",
]  # fmt: skip

__getattr__ = suggesting(__name__)
