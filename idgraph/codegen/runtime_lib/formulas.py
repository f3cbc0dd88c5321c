"""Source text of values: conversions, literals, and the formulas of `idgraph.ir.op_table` over operands.

Values have one of four types: bool, int (64 bits, kept in the range of their dtype), float32 (also for float16 and
bfloat16, rounded to their grid) and float64. The functions named here (``f32``, ``int8``, ``maximum``, ...) exist for
Python scalars, NumPy arrays and numba, so a formula is the same text everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from idgraph.arith import Expr
from idgraph.errors import EmitError
from idgraph.ir import DType, Scalar, is_integer
from idgraph.ir.dtypes import ELEMENT_TYPES, int_limits, item_size
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.ir import Compute, Constant, Index, Local, Operand

ValueType = Literal["bool", "int", "f32", "f64"]
IndexText = Callable[[Expr], str]


def value_type(dtype: DType) -> ValueType:
    """The type in which values of ``dtype`` are held.

    >>> value_type("bfloat16"), value_type("uint8")
    ('f32', 'int')
    """
    if dtype == "bool":
        return "bool"
    if is_integer(dtype):
        return "int"
    return "f64" if dtype == "float64" else "f32"


def rounded(text: str, dtype: DType) -> str:
    """A number or int expression brought to the grid or range of ``dtype`` (which is not a bool)."""
    return f"{ELEMENT_TYPES[dtype].code}({text})"


def converted(text: str, source: DType, to: DType) -> str:
    """torch's conversion of a value of dtype ``source`` to dtype ``to``.

    >>> converted("x", "float32", "int8"), converted("x", "int64", "float16"), converted("x", "float16", "float32")
    ('int8(toint(x))', 'f16(f32(x))', 'x')
    """
    if source == to:
        return text
    a = value_type(source)
    if to == "bool":
        return f"({text} != 0)"
    if is_integer(to):
        whole = f"toint({text})" if a in ("f32", "f64") else f"i64({text})" if a == "bool" else text
        return whole if _range_fits(source, to) else rounded(whole, to)
    if to == "float64":
        return f"f64({text})"
    single = text if a == "f32" else f"f32({text})"
    if to == "float32":
        return single
    return rounded(single, to)


def _range_fits(source: DType, to: DType) -> bool:
    """Every value of ``source``, as a 64-bit integer, lies in the range of ``to``."""
    if to == "int64" or source == "bool":
        return True
    if not is_integer(source):
        return False
    (low, high), (least, most) = int_limits(source), int_limits(to)
    return least <= low and high <= most


def literal(value: Scalar, dtype: DType, exact: bool = False) -> str:
    """A number as a value of ``dtype``; with ``exact`` on its grid, else as torch computes with it (float32 for halfs).

    >>> literal(300, "uint8"), literal(0.5, "bfloat16"), literal(float("-inf"), "float64"), literal(2, "bool")
    ('44', 'f32(0.5)', 'f64(-inf)', 'True')
    """
    if dtype == "bool":
        return str(bool(value))
    if is_integer(dtype):
        if isinstance(value, float) and not math.isfinite(value):
            raise EmitError(f"{value!r} is no {dtype}")
        bits, signed = 8 * item_size(dtype), ELEMENT_TYPES[dtype].signed
        whole = int(value) % 2**bits
        whole -= 2**bits if signed and whole >= 2 ** (bits - 1) else 0
        # The most negative 64-bit integer has no literal: its magnitude does not fit.
        return f"({whole + 1} - 1)" if whole == -(2**63) else f"({whole})" if whole < 0 else str(whole)
    number = float(value)
    text = repr(number) if math.isfinite(number) else "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
    if dtype == "float64":
        return f"f64({text})"
    single = f"f32({text})"
    return rounded(single, dtype) if exact and dtype != "float32" else single


def local_text(x: Local, index: IndexText) -> str:
    """A variable, or an element of an array of them."""
    if x.at is None:
        return x.name
    at = index(x.at)
    return f"{x.name}[{at[1:-1] if enclosed(at) else at}]"


def operand_text(o: Operand, to: DType, index: IndexText, exact: bool = False) -> str:
    """An operand as a value of ``to``."""
    match o:
        case Local(dtype=dtype):
            text = local_text(o, index)
            # Arrays hold integers as memory does; values have 64 bits.
            narrow = o.at is not None and is_integer(dtype) and dtype not in ("int64", "bool")
            return converted(f"i64({text})" if narrow else text, dtype, to)
        case Constant(value):
            return literal(value, to, exact)
        case Index(value):
            return converted(index(value), "int64", to)


def enclosed(text: str) -> bool:
    """True when the first parenthesis closes at the end."""
    if not text.startswith("("):
        return False
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return k == len(text) - 1
    return False


def inner_text(o: Operand, to: DType, index: IndexText) -> str:
    """An operand as a value of ``to`` that other operators may stand beside.

    >>> import idgraph as ig
    >>> n = ig.Fusion("f").symbol("n")
    >>> [inner_text(x, "int64", str) for x in (Index(n + 4), Index(n), Constant(2))]
    ['(n + 4)', 'n', '2']
    """
    text = operand_text(o, to, index)
    plain = not isinstance(o, Index) or text != index(o.value) or text.isidentifier() or text.isdecimal()
    return text if plain or enclosed(text) else f"({text})"


def formula(s: Compute, index: IndexText, choose: str) -> str:
    """The value of ``s``; ``choose`` is the text of a conditional in the language, with {0} the condition."""
    to, c = s.local.dtype, s.compute
    if s.op == "cast":
        return operand_text(s.operands[0], to, index, exact=True)
    row = OPERATIONS.get(s.op)
    if row is None:
        raise EmitError(f"{s.op} is not in the table of operations")
    if row.kind == "key":
        return _pattern(row.floats, s.op, c).format(*(operand_text(o, c, index) for o in s.operands))
    if s.op == "where":
        texts = [inner_text(o, "bool" if k == 0 else to, index) for k, o in enumerate(s.operands)]
        chosen = choose.format(*texts)
        return chosen if to == "bool" else rounded(chosen, to)
    if row.truth is not None:
        # Conditions compare as the integers 0 and 1.
        kind: DType = "int64" if c == "bool" and row.kind != "logic" else c
        return row.truth.format(*(inner_text(o, kind, index) for o in s.operands))
    if c == "bool":
        if s.op == "bitwise_not":
            return f"logical_not({operand_text(s.operands[0], 'bool', index)})"
        return f"(({_arithmetic(s, 'int64', index)}) != 0)"
    return rounded(_arithmetic(s, c, index), to)


def _arithmetic(s: Compute, c: DType, index: IndexText) -> str:
    row = OPERATIONS[s.op]
    pattern = _pattern(row.integers if is_integer(c) else row.floats, s.op, c)
    texts = [inner_text(o, c, index) for o in s.operands]
    width = "_32" if value_type(c) == "f32" else ""
    return pattern.format(*texts, one=literal(1, c), zero=literal(0, c), width=width)


def _pattern(found: str | None, op: str, c: DType) -> str:
    if found is None:
        raise EmitError(f"operation {op} has no meaning for {c}")
    return found


def combined_text(op: str, a: str, b: str, dtype: DType) -> str:
    """Two values of ``dtype`` combined as the reduction ``op`` does.

    >>> combined_text("amax", "a", "b", "float32"), combined_text("any", "a", "b", "bool")
    ('maximum(a, b)', 'logical_or(a, b)')
    """
    row = OPERATIONS[OPERATIONS[op].combine]
    text = row.truth if row.truth is not None else row.integers if is_integer(dtype) else row.floats
    return _pattern(text, op, dtype).format(a, b)
