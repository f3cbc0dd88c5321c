"""Source text of values: conversions, literals and one formula for each operation.

Values have one of four types: bool, int (64 bits, kept in the range of their dtype), float32 (also for float16 and
bfloat16, rounded to their grid) and float64. The functions named here (``f32``, ``i8``, ``maximum``, ...) exist for
Python scalars, NumPy arrays and numba, so a formula is the same text everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

from idgraph.arith import Expr
from idgraph.errors import EmitError
from idgraph.ir import DType, Scalar, is_float, is_integer
from idgraph.kernel.ir import Compute, Index, Local, Number, Operand
from idgraph.lower.compute import COMPARE, LOGIC

ValueType = Literal["bool", "int", "f32", "f64"]
IndexText = Callable[[Expr], str]

_BITS: Final[Mapping[DType, tuple[str, int, bool]]] = {
    "uint8": ("u8", 8, False), "int8": ("i8", 8, True), "int16": ("i16", 16, True),
    "int32": ("i32", 32, True), "int64": ("i64", 64, True),
}  # fmt: skip
_FLOATS: Final[Mapping[DType, str]] = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}

# {0}, {1}, {2} are operands, {one} and {zero} literals of the computing type.
FLOAT: Final[Mapping[str, str]] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "div({0}, {1})", "neg": "-{0}",
    "abs": "abs({0})", "relu": "maximum({0}, {zero})", "sign": "sign({0})", "square": "{0} * {0}",
    "floor": "floor({0})", "ceil": "ceil({0})", "round": "rint({0})", "trunc": "trunc({0})",
    "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})", "remainder": "remainder({0}, {1})",
    "fmod": "fmod({0}, {1})", "floor_divide": "floor_divide({0}, {1})", "pow": "power({0}, {1})",
    "atan2": "atan2({0}, {1})", "fma": "{0} * {1} + {2}", "exp": "exp({0})", "fast_exp": "fast_exp({0})",
    "exp32": "exp32({0})",
    "fast_exp_sub": "fast_exp_sub({0}, {1})",
    "exp2": "exp2({0})",
    "expm1": "expm1({0})", "log": "log({0})", "log2": "log2({0})", "log1p": "log1p({0})", "sqrt": "sqrt({0})",
    "rsqrt": "div({one}, sqrt({0}))", "sin": "sin({0})", "cos": "cos({0})", "tan": "tan({0})", "tanh": "tanh({0})",
    "sigmoid": "div({one}, {one} + exp(-{0}))", "erf": "erf({0})", "reciprocal": "div({one}, {0})",
}  # fmt: skip
INTEGER: Final[Mapping[str, str]] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}", "abs": "abs({0})",
    "relu": "maximum({0}, 0)", "sign": "sign({0})", "square": "{0} * {0}", "floor": "{0}", "ceil": "{0}",
    "round": "{0}", "trunc": "{0}", "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})",
    "remainder": "int_remainder({0}, {1})", "fmod": "int_fmod({0}, {1})",
    "floor_divide": "int_floor_divide({0}, {1})", "pow": "int_power({0}, {1})", "fma": "{0} * {1} + {2}",
    "bitwise_not": "~{0}", "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
}  # fmt: skip
TRUTH: Final[Mapping[str, str]] = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})", "gt": "({0} > {1})",
    "ge": "({0} >= {1})", "logical_not": "logical_not({0})", "logical_and": "logical_and({0}, {1})",
    "logical_or": "logical_or({0}, {1})", "logical_xor": "({0} != {1})", "isnan": "({0} != {0})",
    "isinf": "(abs({0}) == inf)",
}  # fmt: skip
COMBINE: Final[Mapping[str, str]] = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "amax": "maximum({0}, {1})", "amin": "minimum({0}, {1})",
    "any": "logical_or({0}, {1})", "all": "logical_and({0}, {1})",
}  # fmt: skip


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
    if is_float(dtype):
        return f"{_FLOATS[dtype]}({text})"
    return f"{_BITS[dtype][0]}({text})"


def converted(text: str, source: DType, to: DType) -> str:
    """torch's conversion of a value of dtype ``source`` to dtype ``to``.

    >>> converted("x", "float32", "int8"), converted("x", "int64", "float16"), converted("x", "float16", "float32")
    ('i8(toint(x))', 'f16(f32(x))', 'x')
    """
    if source == to:
        return text
    a = value_type(source)
    if to == "bool":
        return f"({text} != 0)"
    if is_integer(to):
        whole = f"toint({text})" if a in ("f32", "f64") else f"i64({text})" if a == "bool" else text
        return whole if _fits(source, to) else rounded(whole, to)
    if to == "float64":
        return f"f64({text})"
    single = text if a == "f32" else f"f32({text})"
    if to == "float32":
        return single
    return rounded(single, to)


def _fits(source: DType, to: DType) -> bool:
    """Every value of ``source``, as a 64-bit integer, lies in the range of ``to``."""
    if to == "int64" or source == "bool":
        return True
    if not is_integer(source):
        return False
    _, bits, signed = _BITS[source]
    _, wide, with_sign = _BITS[to]
    return (with_sign and bits < wide) or (signed == with_sign and bits <= wide)


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
        _, bits, signed = _BITS[dtype]
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
        case Number(value):
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
    >>> inner_text(Index(n + 4), "int64", str), inner_text(Index(n), "int64", str), inner_text(Number(2), "int64", str)
    ('(n + 4)', 'n', '2')
    """
    text = operand_text(o, to, index)
    plain = not isinstance(o, Index) or text != index(o.value) or text.isidentifier() or text.isdecimal()
    return text if plain or enclosed(text) else f"({text})"


def formula(s: Compute, index: IndexText, choose: str) -> str:
    """The value of ``s``; ``choose`` is the text of a conditional in the language, with {0} the condition."""
    to, c = s.local.dtype, s.compute
    if s.op == "cast":
        return operand_text(s.operands[0], to, index, exact=True)
    if s.op in ("order_key", "order_value", "larger_key", "lowest_key"):
        return f"{s.op}({', '.join(operand_text(o, c, index) for o in s.operands)})"
    if s.op == "where":
        texts = [inner_text(o, "bool" if k == 0 else to, index) for k, o in enumerate(s.operands)]
        chosen = choose.format(*texts)
        return chosen if to == "bool" else rounded(chosen, to)
    if s.op in COMPARE or s.op in LOGIC or s.op in ("isnan", "isinf"):
        # Conditions compare as the integers 0 and 1.
        kind: DType = "int64" if c == "bool" and s.op not in LOGIC else c
        return TRUTH[s.op].format(*(inner_text(o, kind, index) for o in s.operands))
    if c == "bool":
        if s.op == "bitwise_not":
            return f"logical_not({operand_text(s.operands[0], 'bool', index)})"
        whole = _arithmetic(s, INTEGER, "int64", index)
        return f"(({whole}) != 0)"
    table = INTEGER if is_integer(c) else FLOAT
    return rounded(_arithmetic(s, table, c, index), to)


def _arithmetic(s: Compute, table: Mapping[str, str], c: DType, index: IndexText) -> str:
    pattern = table.get(s.op)
    if pattern is None:
        raise EmitError(f"operation {s.op} has no meaning for {c}")
    texts = [inner_text(o, c, index) for o in s.operands]
    return pattern.format(*texts, one=literal(1, c), zero=literal(0, c))
