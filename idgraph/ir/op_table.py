"""The table of operations on numbers: one row each, for every part that asks about an operation.

A row has its meaning in torch, its result's type, its text in every language, its cost, and bounds of its result.
Builders, the frontend, lowering, printers, the verifier, passes and the cost model read it; a new operation is a row
here and its public name in `idgraph.ir.ops_pointwise`. The oracle has its own meanings, which the tests compare with
these.

A text holds for plain Python, NumPy, numba on the CPU and numba.cuda: the functions that it names (``maximum``,
``f32``) exist in each of them. ``{0}``, ``{1}``, ``{2}`` are operands, ``{one}`` and ``{zero}`` numbers of the
computing type, ``{width}`` is ``_32`` where that is float32 and nothing where it is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from idgraph.arith import Expr
from idgraph.errors import OperationError, one_of, shortened
from idgraph.ir.axis_read import Attr
from idgraph.ir.dtypes import Scalar
from idgraph.ir.verifier import AxisError

Result = Literal["number", "same", "difference", "bits", "float", "bool"]
"""The type of a result: of the operands by torch's promotion ("same"); of those that are not bool ("number", and
"difference": not one is); of integers and bool ("bits"); floats ("float"); or bool. None: the builder says it."""
Kind = Literal["pointwise", "compare", "logic", "test", "key", "reduction", "running"]
Sign = bool | Literal["operands"]
Errors = Literal["sum", "twice", "largest"]
Cycles = Literal["free", "plain", "special", "library"]
"""A move; an addition or the like; many cycles; a function of a mathematics library, which no vector unit has."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``meaning`` is torch's, in words; ``aten`` the overloads that mean just this.

    ``floats`` and ``integers`` are its texts in those types, ``truth`` that of one whose result is a truth value; None:
    it has no meaning there. ``steps`` are the float operations of one value. ``pairs``: the GPU does two 16-bit floats
    at a time. ``above_zero``: never negative (True), or where no operand is ("operands"). ``errors``: small relative
    errors of the operands make one of the result that is not above their sum, twice it, or the largest of them; None:
    it may be any. ``errors_above_zero``: only where no operand is negative.

    Of a reduction, ``combine`` is the operation on two values; ``identity`` changes nothing: "low" and "high" are the
    ends of the type's range. All reductions are associative and commutative but for rounding.
    """

    name: str
    operands: int
    meaning: str
    result: Result | None = None
    floats: str | None = None
    integers: str | None = None
    truth: str | None = None
    kind: Kind = "pointwise"
    cycles: Cycles = "plain"
    steps: int = 1
    aten: tuple[str, ...] = ()
    pairs: bool = False
    above_zero: Sign = False
    errors: Errors | None = None
    errors_above_zero: bool = False
    combine: str = ""
    identity: Literal[0, 1, "low", "high"] | bool = 0


_ONE, _BOTH, _ALL = ("default",), ("Tensor", "Scalar"), ("Tensor", "Scalar", "Scalar_Tensor")
_SAFE: Final[Sign] = "operands"


def _both(
    name: str, operands: int, meaning: str, result: Result, text: str, integers: str = "", *, cycles: Cycles = "plain",
    steps: int = 1, aten: tuple[str, ...] = (), pairs: bool = False, above_zero: Sign = False,
    errors: Errors | None = None, errors_above_zero: bool = False,
) -> Operation:  # fmt: skip
    """One with a text for floats and one for integers, by default the same."""
    return Operation(
        name, operands, meaning, result, text, integers or text, cycles=cycles, steps=steps, aten=aten, pairs=pairs,
        above_zero=above_zero, errors=errors, errors_above_zero=errors_above_zero,
    )  # fmt: skip


def _float(
    name: str, meaning: str, text: str = "", cycles: Cycles = "library", steps: int = 1, above_zero: Sign = False,
    errors: Errors | None = None, errors_above_zero: bool = False,
) -> Operation:  # fmt: skip
    """A function of one float."""
    return Operation(
        name, 1, meaning, "float", text or f"{name}({{0}})", cycles=cycles, steps=steps, aten=_ONE,
        above_zero=above_zero, errors=errors, errors_above_zero=errors_above_zero,
    )  # fmt: skip


def _compare(name: str, sign: str) -> Operation:
    return Operation(name, 2, f"a {sign} b", "bool", truth=f"({{0}} {sign} {{1}})", kind="compare", aten=_BOTH)


def _fast(name: str, operands: int, meaning: str, text: str, steps: int = 1) -> Operation:
    """A form of exp that passes make: no builder has it."""
    return Operation(name, operands, meaning, None, text, cycles="special", steps=steps, above_zero=True)


def _key(name: str, operands: int, meaning: str, text: str) -> Operation:
    """The same for integers that stand for floats."""
    return Operation(name, operands, meaning, None, text, kind="key")


def _reduction(name: str, meaning: str, combine: str, identity: Literal[0, 1, "low", "high"] | bool) -> Operation:
    cycles: Cycles = "free" if combine.startswith("logical") else "plain"
    return Operation(name, 1, meaning, kind="reduction", cycles=cycles, combine=combine, identity=identity)


_ROWS: Final = (
    # arithmetic
    _both(
        "add", 2, "a + b", "same", "{0} + {1}", pairs=True, above_zero=_SAFE, errors="largest", errors_above_zero=True,
    ),
    _both("sub", 2, "a - b", "difference", "{0} - {1}", pairs=True),
    _both("mul", 2, "a * b", "same", "{0} * {1}", pairs=True, above_zero=_SAFE, errors="sum"),
    Operation(
        "div", 2, "a / b as floating point", "float", "div({0}, {1})", cycles="special", above_zero=_SAFE, errors="sum"
    ),
    _both("neg", 1, "-x", "number", "-{0}", pairs=True, aten=_ONE, errors="sum"),
    _both("abs", 1, "``|x|``", "number", "abs({0})", pairs=True, aten=_ONE, above_zero=True, errors="sum"),
    _both(
        "relu", 1, "max(x, 0)", "number", "maximum({0}, {zero})", "maximum({0}, 0)", aten=_ONE, above_zero=True,
        errors="sum",
    ),
    _both("sign", 1, "-1, 0 or 1", "same", "sign({0})", aten=_ONE),
    _both("square", 1, "x * x", "number", "{0} * {0}", above_zero=True, errors="twice"),
    _both("floor", 1, "Largest integer not above x", "number", "floor({0})", "{0}", aten=_ONE),
    _both("ceil", 1, "Smallest integer not below x", "number", "ceil({0})", "{0}", aten=_ONE),
    _both("round", 1, "Nearest integer, halves to even", "number", "rint({0})", "{0}", aten=_ONE),
    _both("trunc", 1, "Integer part toward zero", "number", "trunc({0})", "{0}", aten=_ONE),
    _both(
        "maximum", 2, "The larger (NaN wins)", "same", "maximum({0}, {1})", aten=_ONE, above_zero=_SAFE,
        errors="largest",
    ),
    _both("minimum", 2, "The smaller (NaN wins)", "same", "minimum({0}, {1})", aten=_ONE, errors="largest"),
    _both(
        "remainder", 2, "a mod b with the sign of b", "number", "remainder({0}, {1})", "int_remainder({0}, {1})",
        cycles="special", aten=_ALL,
    ),
    _both(
        "fmod", 2, "a mod b with the sign of a", "number", "fmod({0}, {1})", "int_fmod({0}, {1})", cycles="special",
        aten=_BOTH,
    ),
    _both(
        "floor_divide", 2, "a / b rounded down", "number", "floor_divide{width}({0}, {1})",
        "int_floor_divide({0}, {1})", cycles="special",
    ),
    _both("pow", 2, "a ** b", "same", "power({0}, {1})", "int_power({0}, {1})", cycles="library"),
    _both("fma", 3, "a * b + c", "same", "{0} * {1} + {2}", steps=2),
    Operation("atan2", 2, "Angle of the point (b, a)", "float", "atan2({0}, {1})", cycles="library", aten=_ONE),
    # bits
    Operation("bitwise_not", 1, "All bits inverted", "bits", integers="~{0}", aten=_ONE),
    Operation("bitwise_and", 2, "Common bits", "bits", integers="{0} & {1}", aten=_ALL),
    Operation("bitwise_or", 2, "Bits of either", "bits", integers="{0} | {1}", aten=_ALL),
    Operation("bitwise_xor", 2, "Bits of one only", "bits", integers="{0} ^ {1}", aten=_ALL),
    Operation("shift_left", 2, "a * 2 ** (b modulo 64), wrapped", "bits", integers="{0} << ({1} & 63)"),
    Operation("shift_right", 2, "a / 2 ** (b modulo 64) rounded down", "bits", integers="{0} >> ({1} & 63)"),
    # functions
    _float("exp", "e ** x", above_zero=True),
    _float("exp2", "2 ** x", above_zero=True),
    _float("expm1", "e ** x - 1"),
    _float("log", "Natural logarithm"),
    _float("log2", "Logarithm to base 2"),
    _float("log10", "Logarithm to base 10"),
    _float("log1p", "log(1 + x)", errors="sum", errors_above_zero=True),
    _float("sqrt", "Square root", cycles="special", above_zero=True, errors="sum"),
    _float("rsqrt", "1 / sqrt(x)", "div({one}, sqrt({0}))", cycles="special", steps=2, errors="sum"),
    _float("sin", "Sine"),
    _float("cos", "Cosine"),
    _float("tan", "Tangent"),
    _float("tanh", "Hyperbolic tangent", errors="sum"),
    _float("sigmoid", "1 / (1 + exp(-x))", "logistic_of(exp_inside(-{0}))", steps=3, above_zero=True),
    _float("erf", "Error function", errors="sum"),
    _float("reciprocal", "1 / x", "div({one}, {0})", cycles="special", errors="sum"),
    # truth
    *(_compare(n, s) for n, s in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))),
    Operation(
        "logical_not", 1, "True where x is zero or False", "bool", truth="logical_not({0})", kind="logic", aten=_ONE
    ),
    Operation("logical_and", 2, "Both true", "bool", truth="logical_and({0}, {1})", kind="logic", aten=_ONE),
    Operation("logical_or", 2, "At least one true", "bool", truth="logical_or({0}, {1})", kind="logic", aten=_ONE),
    Operation("logical_xor", 2, "Exactly one true", "bool", truth="({0} != {1})", kind="logic", aten=_ONE),
    Operation("isnan", 1, "True where x is not a number", "bool", truth="({0} != {0})", kind="test", aten=_ONE),
    Operation("isinf", 1, "True where x is infinite", "bool", truth="(abs({0}) == inf)", kind="test", aten=_ONE),
    # moves
    _both("copy", 1, "The same values", "same", "{0}", cycles="free", errors="sum"),
    Operation("cast", 1, "torch's conversion", cycles="free", above_zero=_SAFE, errors="sum"),
    Operation("where", 3, "a where the condition holds, else b", cycles="free", errors="largest"),
    # made by passes
    _fast("exp32", 1, "e ** x of a float32, in vectors", "exp32({0})"),
    _fast("fast_exp", 1, "e ** x in one instruction", "fast_exp({0})"),
    _fast("short_exp", 1, "e ** x, rounded to 16 bits", "short_exp({0})"),
    _fast("short_sigmoid", 1, "1 / (1 + exp(-x)), rounded to 16 bits", "logistic_of(fast_exp(-{0}))", steps=3),
    _fast(
        "short_one_plus_tanh", 1, "1 + tanh(x), rounded to 16 bits",
        "({one} + {one}) * logistic_of(fast_exp(-({0} + {0})))", steps=5,
    ),
    _fast(
        "short_one_minus_tanh", 1, "1 - tanh(x), rounded to 16 bits",
        "({one} + {one}) * logistic_of(fast_exp({0} + {0}))", steps=5,
    ),
    _fast("short_one_minus_sigmoid", 1, "1 - sigmoid(x), rounded to 16 bits", "logistic_of(fast_exp({0}))", steps=3),
    _fast("short_one_plus_erf", 1, "1 + erf(x), rounded to 16 bits", "one_plus_erf({0})", steps=11),
    _fast("short_one_minus_erf", 1, "1 - erf(x), rounded to 16 bits", "one_plus_erf(-{0})", steps=11),
    _fast("one_plus_erf", 1, "1 + erf(x)", "one_plus_erf({0})", steps=11),
    _fast("one_minus_erf", 1, "1 - erf(x)", "one_minus_erf({0})", steps=11),
    _fast("log1p_exp", 1, "log(1 + e ** x)", "log1p_exp({0})", steps=11),
    Operation(
        "short_tanh_log1p", 1, "tanh(log(1 + x)) of x at least 0, rounded to 16 bits", None, "tanh_log1p({0})",
        cycles="special", steps=6, above_zero=_SAFE,
    ),
    Operation("short_expm1", 1, "e ** x - 1, rounded to 16 bits", None, "near_expm1({0})", cycles="special", steps=7),
    Operation(
        "short_tanh", 1, "Hyperbolic tangent, rounded to 16 bits", None, "near_tanh({0})", cycles="special", steps=11,
        errors="sum",
    ),
    Operation("short_div", 2, "a / b, rounded to 16 bits", None, "short_div({0}, {1})", cycles="special"),
    Operation("short_reciprocal", 1, "1 / x, rounded to 16 bits", None, "inverse({0})", cycles="special"),
    _fast("short_sqrt", 1, "Square root, rounded to 16 bits", "short_sqrt({0})"),
    _fast("short_rsqrt", 1, "1 / sqrt(x), rounded to 16 bits", "short_rsqrt({0})"),
    _fast("fast_exp_sub", 2, "e ** (a - b) in one instruction", "fast_exp_sub({0}, {1})", steps=2),
    Operation(
        "div_by", 3, "a / b, rounded as that, of a, b and 1 / b", None, "div_by({0}, {1}, {2})", steps=5, errors="sum"
    ),
    Operation("logaddexp", 2, "log(e ** a + e ** b)", None, "logaddexp({0}, {1})", cycles="library", steps=6),
    Operation(
        "near_logaddexp", 2, "The same, what the larger grows by in float32", None, "near_logaddexp({0}, {1})",
        cycles="library", steps=6,
    ),
    _key("near_int", 1, "The integer of a float that is a short one, toward zero; 0 of NaN", "near_int({0})"),
    # reductions
    _reduction("sum", "The sum", "add", 0),
    _reduction("prod", "The product", "mul", 1),
    _reduction("amax", "The largest", "maximum", "low"),
    _reduction("amin", "The smallest", "minimum", "high"),
    _reduction("any", "At least one true", "logical_or", False),
    _reduction("all", "All true", "logical_and", True),
    # of scans alone
    Operation(
        "logsum", 1, "The logarithm of the sum of exp", kind="running", cycles="library", combine="logaddexp",
        identity="low",
    ),
    Operation(
        "near_logsum", 1, "The same for narrower results than float64", kind="running", cycles="library",
        combine="near_logaddexp", identity="low",
    ),
)  # fmt: skip

OPERATIONS: Final[Mapping[str, Operation]] = {o.name: o for o in _ROWS}
SCANS_OF: Final[Mapping[str, str]] = {
    "cumsum": "sum", "cumprod": "prod", "cummax": "amax", "cummin": "amin", "logcumsumexp": "logsum",
}  # fmt: skip
"""The reduction whose running value each scan is."""


def names(
    *, kind: Kind | None = None, operands: int | None = None, result: Iterable[Result] | None = None
) -> tuple[str, ...]:
    """The operations of that kind, of as many operands, with such a result, in the order of the table."""
    kept = None if result is None else frozenset(result)
    return tuple(
        o.name
        for o in _ROWS
        if kind in (None, o.kind) and operands in (None, o.operands) and (kept is None or o.result in kept)
    )


POINTWISE: Final = frozenset(o.name for o in _ROWS if o.result is not None or o.name in ("cast", "where"))
"""The operations of a fusion whose operands broadcast."""

Move = Literal["axes", "places", "pieces", "part", "picks", "writes", "rows", "joins"]
"""What an operation that makes no values does with elements: "axes" come and go or change their order, each as a whole;
elements come from other "places" of one operand; from "pieces", operands or a number, side by side; a "part" of one
operand is another one's; indices say which elements it "picks", or where it "writes"; elements come to lie in "rows"
whose ends are loaded, or it "joins" such rows."""
_MOVES: Final[Mapping[Move, tuple[str, ...]]] = {
    "axes": ("copy", "unsqueeze", "squeeze", "expand", "permute"),
    "places": ("reshape", "slice", "select", "flip", "roll"),
    "pieces": ("pad", "cat"),
    "part": ("slice_scatter",),
    "picks": ("gather", "take_along_dim", "index_select", "index", "embedding"),
    "writes": ("scatter", "scatter_add", "index_put"),
    "rows": ("partition", "pad_ragged", "crop_ragged"),
    "joins": ("combine",),
}


def moving(*kinds: Move) -> frozenset[str]:
    """The operations that do one of these with elements.

    >>> sorted(moving("pieces", "part"))
    ['cat', 'pad', 'slice_scatter']
    """
    return frozenset(name for kind in kinds for name in _MOVES[kind])


VIEWS: Final = moving("axes", "places")
"""Operations of one operand each of whose elements is one of the operand's, at a place that no value says."""
MOVES: Final = VIEWS | moving("pieces")
PIECES: Final = moving("pieces", "part", "rows")
"""Operations that read an operand for a part of their elements only."""
GATHERS: Final = moving("picks")
SCATTERS: Final = moving("writes")
"""Operations whose loops run over index tensors and that write at the values of these."""
ROWS: Final = moving("rows", "joins")
"""Operations that load where the rows of their operand 0 begin and end, from operands 1 and 2."""
WRITES: Final = moving("writes", "joins")
"""Operations whose loops run over their root axes: what they write where is loaded."""
SCANS: Final = frozenset(SCANS_OF)


T = TypeVar("T")
F = TypeVar("F")
V = TypeVar("V")


class Builds(Protocol[T]):
    """A fusion whose tensors are of class ``T``, as far as the table knows it."""

    def check_args(self, op: str, args: Sequence[object]) -> None:
        """See `Fusion.check_args`."""
        ...

    def in_symbols(self, value: V, /) -> V:
        """See `Fusion.in_symbols`."""
        ...

    def building(self, op: str, build: Callable[[], T]) -> T:
        """See `Fusion.building`."""
        ...


Builder: TypeAlias = Callable[[F, "tuple[T | Scalar | Expr, ...]", Mapping[str, Attr], "str | None"], T]
"""A function of a fusion, operands, attributes and the output's name that adds the operation and gives its output."""

_BUILDERS: dict[str, Builder[Any, Any]] = {}


def primitive(*names: str) -> Callable[[Builder[F, T]], Builder[F, T]]:
    """Register a builder under its operation names (import time only)."""

    def register(builder: Builder[F, T]) -> Builder[F, T]:
        for name in names:
            if name in _BUILDERS:
                raise ValueError(f"operation {name} is registered twice")
            _BUILDERS[name] = builder
        return builder

    return register


def primitives() -> tuple[str, ...]:
    """Names of all primitive operations, sorted."""
    return tuple(sorted(_BUILDERS))


@shortened
def apply(
    fusion: Builds[T],
    op: str,
    args: Sequence[T | Scalar | Expr],
    attrs: Mapping[str, Attr] | None = None,
    name: str | None = None,
) -> T:
    """Build one primitive operation in ``fusion`` and return its output tensor.

    Raises `OperationError` for an unknown operation, a tensor of another fusion, or operands without meaning.
    """
    builder = _BUILDERS.get(op)
    if builder is None:
        raise OperationError(f"unknown operation {op!r}", hint=one_of(op, primitives()))
    fusion.check_args(op, args)
    args, given = fusion.in_symbols(tuple(args)), fusion.in_symbols(dict(attrs or {}))
    try:
        return fusion.building(op, lambda: builder(fusion, args, given, name))
    except AxisError as error:
        tensors: dict[Any, None] = dict.fromkeys(a for a in args if not isinstance(a, (int, float, Expr)))
        named = [f"{a.name} of shape {a.shape}" for a in tensors]
        of = f" of {', '.join(named[:4])}{', ...' if len(named) > 4 else ''}" if named else ""
        raise OperationError(f"{op}{of}: {error.what}", where=error.where) from None
