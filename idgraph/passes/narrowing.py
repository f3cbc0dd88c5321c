"""short_ints: small 64-bit integers in 32 bits, where they become floats or are compared.

PyTorch counts positions in int64, and a GPU converts between 64-bit integers and floats at a fraction of the rate of 32
bits. Where the range of an integer is known (sums, differences and products of loop variables and numbers), it is
computed in 32 bits beside, for conversions and comparisons; where that of a float is (it was clamped), it becomes an
integer of 32 bits first. NaN becomes 0 either way. Integers of 64 bits that nobody reads then are dead code.

round_once: a value that is only written to 16-bit floats is rounded by the writes, not before them as well.

short_functions: functions and quotients in few instructions where the result is rounded to 16 bits.

A float32 exp that is right to its last place takes eight instructions of a GPU, which kernels of 16-bit activations
wait for: at 16 bytes a thread they have as many instructions as memory has time for. A value of which every use leads
to a rounding to float16 or bfloat16, by operations that keep relative errors (`idgraph.kernel.error_analysis`), may be
off by 1/64 of a unit in the last place of what is rounded. e ** x as 2 ** (x * log2(e)) is off by 2**-17 of it at most.

A function of a function may have a form of its own. 1 + tanh(x) = 2 / (1 + e ** -2x) has no difference in it and is
right to its last places where tanh is near -1; so have 1 - tanh(x), 1 - sigmoid(x), and 1 + erf(x) = erfc(-x). With
1 + x as y, tanh(log(y)) = (y ** 2 - 1) / (y ** 2 + 1).

Only tanh and e ** x - 1 are a difference of 1 and a power, in which 4 bits cancel at most: below 1/16 they are the
first terms of their series.

composed: a function of a function as one, where that is nearer to the exact value and costs less.

1 + erf(x) is erfc(-x): no difference loses the places of small results. log1p(exp(x)) is a polynomial of e ** -abs(x).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import frexp
from struct import pack, unpack
from typing import Final

from idgraph.ir.dtypes import is_float, is_integer, is_short_float
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import all_sets, defs, locals_read, map_body, map_statement, operands_of, sets, updates
from idgraph.kernel.error_analysis import SINGLE, tolerances
from idgraph.kernel.ir import CompoundStmt, Compute, Constant, Kernel, Let, Local, Operand, Stmt, Store, bodies, walk
from idgraph.passes.value_range_analysis import Ranges, ValueInterval

LIMIT = 1 << 31
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def narrow_int64(kernel: Kernel) -> Kernel:
    """short_ints: small 64-bit integers in 32 bits, where they become floats or are compared.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     a: int64 = cast({i})
    ...     b: int64 = sub(a, 5)
    ...     t: float32 = cast(b)
    ...     y[i] = t
    ... ''')
    >>> print(narrow_int64(k))
    kernel k():
      buffer y: float32[64] output "y"
      for i < 64:
        a: int64 = cast({i})
        a_int: int32 = cast({i})
        b: int64 = sub(a, 5)
        b_int: int32 = sub(a_int, 5)
        t: float32 = cast(b_int)
        y[i] = t
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: int8[64] output "y"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     b: float32 = maximum(a, -127)
    ...     c: float32 = minimum(b, 127)
    ...     t: int8 = cast(c)
    ...     y[i] = t
    ... ''')
    >>> print(narrow_int64(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: int8[64] output "y"
      for i < 64:
        a: float32 = x[i]
        b: float32 = maximum(a, -127)
        c: float32 = minimum(b, 127)
        t_int: int32 = near_int(c) in float32
        t: int8 = cast(t_int)
        y[i] = t
    """
    return replace(kernel, body=tuple(_narrow_body(kernel.body, Ranges(), {})))


def _narrow_body(body: Sequence[Stmt], ranges: Ranges, short: dict[str, Local]) -> list[Stmt]:
    """``short``: the variable of 32 bits that has the value of one of 64."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, CompoundStmt):
            inside = all_sets((s,))
            ranges = ranges.without(inside)
            short = {n: x for n, x in short.items() if n not in inside}
            made.append(replace(s, body=tuple(_narrow_body(s.body, ranges.without(()), dict(short)))))
            continue
        beside: Local | None = None
        if isinstance(s, Let) and isinstance(s.value, Local) and s.value.name in short:
            s = replace(s, value=short[s.value.name])
        elif isinstance(s, Compute):
            s, before = _in_short(s, ranges, short)
            made += before
            for b in before:
                ranges.learn(b)
            near = before[0].local if before and s.local.dtype == "int64" else None
            more = None if near is not None else _narrow_compute(s, ranges.of_compute(s), short)
            beside = more.local if more is not None else near
            made += [s] if more is None else [s, more]
        if not isinstance(s, Compute):
            made.append(s)
        for name in sets(s):
            short.pop(name, None)
        ranges.learn(s)
        if isinstance(s, Compute) and beside is not None:
            short[s.local.name] = beside
    return made


def _in_short(s: Compute, ranges: Ranges, short: Mapping[str, Local]) -> tuple[Compute, list[Compute]]:
    """A conversion or a comparison in 32 bits where it may be, and what it needs in front."""
    if s.op in COMPARED and s.compute == "int64":
        operands = _in_32(s, short)
        return (s, []) if operands is None else (replace(s, operands=operands, compute="int32"), [])
    if is_float(s.compute) and is_float(s.local.dtype):  # integers among the operands become floats
        operands = tuple(short.get(o.name, o) if isinstance(o, Local) and o.at is None else o for o in s.operands)
        return (replace(s, operands=operands) if operands != s.operands else s), []
    if s.op != "cast" or not is_integer(s.local.dtype):
        return s, []
    (x,) = s.operands
    if not isinstance(x, Local) or x.at is not None or not is_float(x.dtype):
        return s, []
    known = ranges.known.get(x.name)
    if known is None or not _fits_int32(known) or (known.nan and s.local.dtype == "int64"):
        return s, []
    near = Compute(Local(f"{s.local.name}_int", "int32"), "near_int", (x,), x.dtype)
    return replace(s, operands=(near.local,)), [near]


def _narrow_compute(s: Compute, known: ValueInterval | None, short: Mapping[str, Local]) -> Compute | None:
    """The same value in 32 bits, of operands that have as many."""
    if not s.local.dtype == s.compute == "int64" or s.local.at is not None or known is None or not _fits_int32(known):
        return None
    operands = _in_32(s, short)
    return None if operands is None else Compute(Local(f"{s.local.name}_int", "int32"), s.op, operands, "int32")


def _in_32(s: Compute, short: Mapping[str, Local]) -> tuple[Operand, ...] | None:
    """The operands in 32 bits; None where one may need more."""
    found: list[Operand] = []
    for o in s.operands:
        if isinstance(o, Local):
            if o.at is not None or o.name not in short:
                return None
            found.append(short[o.name])
        elif (known := Ranges().of(o, "int64")) is not None and _fits_int32(known):
            found.append(o)
        else:
            return None
    return tuple(found)


def _fits_int32(known: ValueInterval) -> bool:
    return known.lo >= -LIMIT and known.hi < LIMIT


def elide_double_rounding(kernel: Kernel) -> Kernel:
    """round_once: one rounding of each value that is only stored.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 64:
    ...     u: bfloat16 = x[i]
    ...     v: bfloat16 = mul(u, 2)
    ...     y[i] = v
    ... ''')
    >>> print(elide_double_rounding(k))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 64:
        u: bfloat16 = x[i]
        v: float32 = mul(u, 2) in bfloat16
        y[i] = v
    """
    stored: set[str] = set()
    others: set[str] = set()
    for s in walk(kernel.body):
        if (
            isinstance(s, Store)
            and isinstance(s.value, Local)
            and s.value.dtype == s.buffer.dtype
            and is_short_float(s.value.dtype)
        ):
            stored.add(s.value.name)
        else:
            others |= locals_read(s) | {x.name for x in updates(s)}
        if not _is_rounding(s):
            others |= {x.name for x in defs(s)}
    once = stored - others
    if not once:
        return kernel

    def wide(x: Local) -> Local:
        return replace(x, dtype="float32") if x.name in once else x

    def read(o: Operand) -> Operand:
        return wide(o) if isinstance(o, Local) else o

    def changed(s: Stmt) -> Stmt:
        return map_statement(s, made=wide, read=read)

    return replace(kernel, body=map_body(kernel.body, changed))


def _is_rounding(s: Stmt) -> bool:
    """Floating point arithmetic whose result is rounded to 16 bits."""
    match s:
        case Compute(Local(dtype=dtype, at=None), op, operands, compute):
            floats = all(isinstance(o, Local) and is_float(o.dtype) and o.dtype != "float64" for o in operands)
            return is_short_float(dtype) and op != "where" and is_float(compute) and (op != "cast" or floats)
        case _:
            return False


LARGEST: Final = 88.73  # arguments of exp, up to a sign, whose results are normal numbers
EXP: Final = LARGEST * (2.0**-24 + 2.0**-26) + 2.0**-22  # the product with log2(e), log2(e) itself, the instruction
LOGISTIC: Final = EXP + 2.0**-23 + 2.0**-24  # the reciprocal, the sum
QUOTIENT: Final = 2.0**-22
EXPM1: Final = EXP + 2.0**-23
TANH: Final = 2.0**-18  # at 1/16, where e ** -2x is off by 2 ** -22 and 1 less it is an eighth
APPROXIMATIONS: Final[Mapping[str, tuple[str, float]]] = {
    "exp": ("short_exp", EXP), "sigmoid": ("short_sigmoid", LOGISTIC), "div": ("short_div", QUOTIENT),
    "reciprocal": ("short_reciprocal", QUOTIENT), "rsqrt": ("short_rsqrt", QUOTIENT),
    "sqrt": ("short_sqrt", QUOTIENT), "expm1": ("short_expm1", EXPM1), "tanh": ("short_tanh", TANH),
    "div_by": ("mul", QUOTIENT),
}  # fmt: skip
"""The short form of an operation and the largest relative error that it adds."""
ERFC: Final = 5.5e-6
COMPOSED: Final[Mapping[tuple[str, str], tuple[str, float]]] = {
    ("add", "tanh"): ("short_one_plus_tanh", LOGISTIC), ("sub", "tanh"): ("short_one_minus_tanh", LOGISTIC),
    ("sub", "sigmoid"): ("short_one_minus_sigmoid", LOGISTIC),
    ("add", "erf"): ("short_one_plus_erf", ERFC), ("sub", "erf"): ("short_one_minus_erf", ERFC),
    ("tanh", "log1p"): ("short_tanh_log1p", 2 * QUOTIENT),
}  # fmt: skip
"""An operation and the one inside: 1 and a function, 1 less it, a function of it. Their form, as in
`APPROXIMATIONS`."""


def approximate_math(kernel: Kernel) -> Kernel:
    """short_functions: functions and quotients in few instructions where the result is rounded to 16 bits.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: bfloat16[64] input "x"
    ...   buffer y: bfloat16[64] output "y"
    ...   for i < 64:
    ...     a: bfloat16 = x[i]
    ...     b: float32 = cast(a)
    ...     s: float32 = sigmoid(b)
    ...     p: float32 = mul(b, s)
    ...     t: bfloat16 = cast(p)
    ...     y[i] = t
    ... ''')
    >>> print(approximate_math(k))
    kernel k():
      buffer x: bfloat16[64] input "x"
      buffer y: bfloat16[64] output "y"
      for i < 64:
        a: bfloat16 = x[i]
        b: float32 = cast(a)
        s: float32 = short_sigmoid(b)
        p: float32 = mul(b, s)
        t: bfloat16 = cast(p)
        y[i] = t
    """
    if not any(
        isinstance(s, Compute) and (s.op in APPROXIMATIONS or s.op in _INNER_FUNCTIONS) for s in walk(kernel.body)
    ):
        return kernel
    known = _Forms()
    known.find(kernel.body)
    found = tolerances(kernel.body, known.error)

    def short(s: Stmt) -> Stmt:
        if not isinstance(s, Compute):
            return s
        error = known.error(s)
        return known.form(s) if 0.0 < error <= found.result(s) else s

    return replace(kernel, body=map_body(kernel.body, short))


_INNER_FUNCTIONS: Final = frozenset(inner for _, inner in COMPOSED)


def _inner_operand(s: Stmt, dtypes: frozenset[str]) -> Local | None:
    """The operand whose function ``s``, in one of ``dtypes``, may be one with: the other one of a sum with 1, or of 1
    less it."""
    match s:
        case Compute(op="add" | "sub", operands=(Constant(1), Local(dtype="float32") as x)):
            pass
        case Compute(op="add", operands=(Local(dtype="float32") as x, Constant(1))):
            pass
        case Compute(op="tanh" | "log1p", operands=(Local(dtype="float32") as x,)):
            pass
        case _:
            return None
    return x if s.compute in dtypes and s.local.dtype in dtypes else None


@dataclass(slots=True)
class _Forms:
    """The short forms of a kernel's computations; ``composed`` are those with functions that nothing else reads."""

    composed: dict[int, tuple[Compute, float]] = field(default_factory=dict[int, tuple[Compute, float]])

    def find(self, body: Sequence[Stmt]) -> None:
        """Find ``composed``."""
        reads = Counter(o.name for s in walk(tuple(body)) for o in operands_of(s) if isinstance(o, Local))
        found = {id(s): (x, form) for s, x, form in _composition_candidates(body, {})}
        alone = Counter(x.name for x, _ in found.values())
        self.composed = {at: form for at, (x, form) in found.items() if reads[x.name] == alone[x.name]}

    def form(self, s: Compute) -> Compute:
        """The short form of ``s``."""
        if id(s) in self.composed:
            return self.composed[id(s)][0]
        if s.op == "div" and isinstance(s.operands[1], Constant) and (by := inverse_of(s.operands[1])) is not None:
            return replace(s, op="mul", operands=(s.operands[0], by))  # the compiler has this for a power of two
        if s.op == "div_by":  # the reciprocal is there
            return replace(s, op="mul", operands=(s.operands[0], s.operands[2]))
        return replace(s, op=APPROXIMATIONS[s.op][0])

    def error(self, s: Compute) -> float:
        """The relative error of the short form, zero where ``s`` has none."""
        if s.compute not in SINGLE or s.local.dtype not in SINGLE:
            return 0.0
        if id(s) in self.composed:
            return self.composed[id(s)][1]
        if s.op not in APPROXIMATIONS or (
            s.op == "div" and isinstance(s.operands[1], Constant) and not inverse_of(s.operands[1])
        ):
            return 0.0
        return APPROXIMATIONS[s.op][1]


def inverse_of(by: Constant) -> Constant | None:
    """The reciprocal of a number, as float32 (rounded twice it is the same: float64 has more than twice the bits); None
    of zeros, of powers of two, whose products are quotients, and of what is not usual.

    >>> inverse_of(Constant(3)), inverse_of(Constant(4.0)), inverse_of(Constant(1e39))
    (Constant(value=0.3333333432674408), None, None)
    """
    try:
        value: float = unpack("f", pack("f", float(by.value)))[0]
    except OverflowError:
        return None
    if not 2.0**-40 <= abs(value) < 2.0**40 or abs(frexp(value)[0]) == 0.5:
        return None
    return Constant(unpack("f", pack("f", 1 / value))[0])


Found = tuple[Compute, Local, tuple[Compute, float]]


def _composition_candidates(body: Sequence[Stmt], known: Mapping[str, Compute]) -> Iterator[Found]:
    """Functions of functions: the outer one, the variable between them, and what they are together with its error.

    ``known`` are the definitions that hold before ``body``.
    """
    made, read = dict(known), {n for f in known.values() for n in locals_read(f)}
    for s in body:
        x = _inner_operand(s, SINGLE)
        f = None if x is None else made.get(x.name)
        if isinstance(s, Compute) and x is not None and f is not None and (s.op, f.op) in COMPOSED:
            op, error = COMPOSED[s.op, f.op]
            if f.op != "log1p" or _is_above_zero(f.operands[0], made):
                yield s, x, (replace(s, op=op, operands=f.operands), error)
        yield from _composition_candidates(bodies(s), made)
        lost = all_sets((s,))
        if not lost.isdisjoint(made) or not lost.isdisjoint(read):
            made = {n: f for n, f in made.items() if n not in lost and lost.isdisjoint(locals_read(f))}
        if isinstance(s, Compute) and s.compute in SINGLE and s.local.at is None and s.local.dtype == "float32":
            of_use = s.op in _INNER_FUNCTIONS or OPERATIONS[s.op].above_zero is True
            made |= {s.local.name: s} if of_use and s.local.name not in locals_read(s) else {}
            read |= locals_read(s)


def _is_above_zero(o: Operand, made: Mapping[str, Compute]) -> bool:
    f = made.get(o.name) if isinstance(o, Local) else None
    return f is not None and OPERATIONS[f.op].above_zero is True


COMPOSITIONS: Final[Mapping[tuple[str, str], str]] = {
    ("add", "erf"): "one_plus_erf", ("sub", "erf"): "one_minus_erf", ("log1p", "exp"): "log1p_exp",
}  # fmt: skip
"""1 and a function, 1 less it, or a function of it, with the function inside: both in one."""
_COMPOSED_INNER: Final = frozenset(inner for _, inner in COMPOSITIONS)
_FLOAT32: Final = frozenset({"float32"})


def fuse_math_functions(kernel: Kernel) -> Kernel:
    """composed: functions of functions as one, in float32, where nothing else reads the inner one.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 64:
    ...     a: float32 = x[i]
    ...     b: float32 = exp(a)
    ...     c: float32 = log1p(b)
    ...     y[i] = c
    ... ''')
    >>> print(fuse_math_functions(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      for i < 64:
        a: float32 = x[i]
        c: float32 = log1p_exp(a)
        y[i] = c
    """
    if not any(isinstance(s, Compute) and s.op in _COMPOSED_INNER for s in walk(kernel.body)):
        return kernel
    reads = Counter(o.name for s in walk(kernel.body) for o in operands_of(s) if isinstance(o, Local))
    return replace(kernel, body=_fuse_in_body(kernel.body, reads))


def _fuse_in_body(body: Sequence[Stmt], reads: Mapping[str, int]) -> tuple[Stmt, ...]:
    """The statements of one level, and those inside them."""
    made: list[Stmt] = []
    inner: dict[str, Compute] = {}  # functions whose operands still have the values that they had
    for s in body:
        x = _inner_operand(s, _FLOAT32)
        f = None if x is None or reads[x.name] > 1 else inner.get(x.name)
        if isinstance(s, Compute) and f is not None and (s.op, f.op) in COMPOSITIONS:
            made = [y for y in made if y is not f]
            s = replace(s, op=COMPOSITIONS[s.op, f.op], operands=f.operands)
        elif bodies(s):
            s = replace(s, body=_fuse_in_body(bodies(s), reads))  # pyright: ignore[reportCallIssue]  # loops and conditions
        made.append(s)
        lost = all_sets((s,))
        inner = {n: f for n, f in inner.items() if n not in lost and lost.isdisjoint(locals_read(f))}
        if (
            isinstance(s, Compute)
            and s.op in _COMPOSED_INNER
            and s.compute == s.local.dtype == "float32"
            and s.local.at is None
        ):
            inner[s.local.name] = s
    return tuple(made)
