"""Integer expressions as immutable, hash-consed nodes.

A node is built once per structure and shared.  ``+`` and ``*`` are canonical (flattened, sorted by a structural
order, like terms collected, constants folded); nothing here looks at ranges, that is the simplifier's work.
Equality is structural; the table of shared nodes is a cache of two generations. A symbol is one node while it lives.

Long: nodes, their operators and the canonical constructors that the operators call are one recursive definition.

The budget of one simplification: an expression that needs more stays as it is and says so.

Sums that share parts may grow with every level of // and % above them. The unit is a term that a rule looks at, so the
budget is the same on every machine.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn
from weakref import WeakValueDictionary

from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError, shortened, trimmed

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


BUDGET: Final = 50_000  # terms of sums that one outermost call builds: about half a second; few take over 1 000


class BudgetExceeded(Exception):
    """The budget is exceeded; the call that began the work catches it."""


class _Meter(threading.local):
    """The budget left to the call that is under way in one thread; None between calls."""

    left: int | None = None


meter: Final = _Meter()


def charge(terms: int) -> None:
    """Count work; raises `BudgetExceeded` in a call whose budget it exceeds."""
    left = meter.left
    if left is not None:
        meter.left = left = left - terms
        if left < 0:
            raise BudgetExceeded


@contextmanager
def budget() -> Generator[bool]:
    """Yield True with a budget for the call; False inside of a call that has one, whose budget is then shared."""
    if meter.left is not None:
        yield False
        return
    meter.left = BUDGET
    try:
        yield True
    finally:
        meter.left = None


@contextmanager
def at_most() -> Generator[None]:
    """One budget for all that is asked inside; what exceeds it ends the block, and what was found so far stands."""
    with budget() as is_outermost:
        try:
            yield
        except BudgetExceeded:
            if not is_outermost:
                raise


Op = Literal[
    "const", "sym", "add", "mul", "floordiv", "mod", "min", "max", "where", "xor",
    "lt", "le", "eq", "ne", "and", "or", "not",
]  # fmt: skip

_OP_NUMBER: Final[dict[str, int]] = {
    "const": 1, "sym": 2, "add": 3, "mul": 4, "floordiv": 5, "mod": 6, "min": 7, "max": 8, "where": 9, "xor": 10,
    "le": 11, "lt": 12, "eq": 13, "ne": 14, "and": 15, "or": 16, "not": 17,
}  # fmt: skip
Comparison = Literal["lt", "le", "gt", "ge", "eq", "ne"]
SIGNS: Final[dict[str, str]] = {
    "add": "+", "mul": "*", "floordiv": "//", "mod": "%", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
CONDITION_OPS: Final = frozenset({"lt", "le", "eq", "ne", "and", "or", "not"})
_TABLE_LIMIT: Final = 200_000


class _Verbs:
    """The methods of expressions, filled in by the modules that have them: nodes stay the lowest module."""

    __slots__ = (
        "cost", "digit_bounds", "divmods", "evaluate", "evaluate_array", "interval", "is_simplified", "simplify",
        "substitute", "sympy", "text",
    )  # fmt: skip

    cost: Callable[[Expr], int]
    digit_bounds: Callable[[Expr], tuple[int | None, int | None]]
    divmods: Callable[[Expr], int]
    evaluate: Callable[[Expr, Mapping[str, int]], int | bool]
    evaluate_array: Callable[[Expr, Mapping[str, Any]], Any]
    interval: Callable[[Expr], Range]
    is_simplified: Callable[[Expr], bool]
    simplify: Callable[[Expr, Iterable[Expr]], Expr]
    substitute: Callable[[Expr, Mapping[Any, int | Expr]], Expr]
    sympy: Callable[[Expr], Any]
    text: Callable[[Expr], str]


VERBS: Final = _Verbs()


class Range(NamedTuple):
    """Inclusive bounds of an integer; ``None`` where there is none.

    >>> Range(0, 7).size, 3 in Range(0, None)
    (8, True)
    """

    lo: int | None
    hi: int | None

    @property
    def size(self) -> int | None:
        """The number of integers in the range, ``None`` if unbounded."""
        return None if self.lo is None or self.hi is None else max(0, self.hi - self.lo + 1)

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int) and (self.lo is None or value >= self.lo) and (self.hi is None or value <= self.hi)
        )


class ArithError(IdGraphError):
    """An index expression that cannot be built, read or evaluated."""


class ArithZeroDivisionError(ArithError, ZeroDivisionError):
    """A floor division or modulo whose divisor is zero."""


class ArithTypeError(ArithError, TypeError):
    """An operand of the wrong kind: a condition where an integer is needed, or the reverse."""


class Expr(Printed):
    """One node of an index expression.

    ``op`` names the operation, ``args`` are the operands.  Constants carry ``value``, symbols ``name`` and their
    inclusive bounds.  Build nodes with :func:`symbol`, :func:`const` and Python operators.

    >>> i = symbol("i", 0, 7)
    >>> str((i * 32 + 5) // 4)
    '(i*32 + 5)//4'
    >>> e = (i * 32 + 5) // 4
    >>> e.range, e.divmods, e.names, e.is_const, e.is_condition, (e < 8).is_condition
    (Range(lo=1, hi=57), 1, frozenset({'i'}), False, False, True)
    >>> e.symbols, e.loads
    (frozenset({i}), {})
    """

    __slots__ = (
        "__weakref__", "args", "base", "cached_cost", "cached_divmods", "cached_symbols", "coef", "cond", "cong",
        "digest", "iv", "key", "least", "lin", "name", "normal_form", "op", "quotients", "set_bits", "simplest",
        "symbol_bounds", "value", "why",
    )  # fmt: skip

    op: Op
    args: tuple[Expr, ...]
    value: int
    name: str
    cond: bool
    coef: int
    base: Expr | None
    symbol_bounds: tuple[int | Expr | None, int | Expr | None, int, int]
    digest: int
    key: tuple[str, int, int, int]
    iv: tuple[int | None, int | None] | None
    cong: tuple[int, int] | None
    cached_symbols: frozenset[Expr] | None
    cached_cost: int
    cached_divmods: int
    lin: tuple[dict[Expr, int], int] | None
    normal_form: Expr | None
    least: Expr | None
    quotients: tuple[dict[tuple[Expr, int], int], int] | Literal[False] | None
    simplest: Expr | None
    set_bits: dict[int, int] | None
    why: tuple[str, Expr] | None

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Expr):
            return self.digest == other.digest and _structurally_equal(self, other)
        if isinstance(other, bool):
            return self.op == "const" and self.cond and bool(self.value) == other
        if isinstance(other, int):
            return self.op == "const" and not self.cond and self.value == other
        return NotImplemented

    # ---- questions -------------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        """True of a number."""
        return self.op == "const"

    @property
    def is_condition(self) -> bool:
        """True of an expression whose value is true or false."""
        return self.cond

    @property
    def conjuncts(self) -> tuple[Expr, ...]:
        """The conditions that all hold where this one does: those of a conjunction, or itself.

        >>> i = symbol("i", 0, 9)
        >>> [str(c) for c in and_(i > 2, i < 7).conjuncts], (i > 2).conjuncts == (i > 2,)
        (['i < 7', 'i > 2'], True)
        """
        return self.args if self.op == "and" else (self,)

    @property
    def symbols(self) -> frozenset[Expr]:
        """The symbol nodes that occur in the expression (bounds of symbols not included)."""
        found = self.cached_symbols
        return found if found is not None else symbols_of(self)

    @property
    def names(self) -> frozenset[str]:
        """Names of `symbols`."""
        return frozenset(s.name for s in self.symbols)

    @property
    def loads(self) -> Mapping[str, tuple[Any, tuple[Expr, ...]]]:
        """Data-dependent symbols, each with the tensor and the coordinates it is loaded from.

        Empty here: only the expressions of an access know where their symbols come from.
        """
        return {}

    def sheet(self) -> Sheet:
        """The rows that notebooks show: its bounds and those of its symbols."""
        rows = [(str(x), f"{x.range.lo} to {x.range.hi}") for x in sorted({self, *self.symbols}, key=str)]
        return Sheet(str(self), ("", "bounds"), tuple(rows) if self.symbols else ())

    @property
    def range(self) -> Range:
        """Sound inclusive bounds of the value, ``None`` where unbounded."""
        return VERBS.interval(self)

    @property
    def cost(self) -> int:
        """Operations of the printed form: + - * // % min max where compare xor, as a tree."""
        return VERBS.cost(self)

    @property
    def divmods(self) -> int:
        """The number of floor divisions and modulos in the expression, counted as a tree."""
        return VERBS.divmods(self)

    @property
    def is_simplified(self) -> bool:
        """Whether this is what `simplify` gives, with no product left as it was for having too many terms.

        >>> from idgraph.arith import parse, simplify
        >>> parse("i//4*4 + i%4").is_simplified, simplify("i//4*4 + i%4").is_simplified
        (False, True)
        >>> wide = simplify("*".join(f"(a{n} + b{n})" for n in range(12)))
        >>> wide.cost, wide.is_simplified
        (23, False)
        """
        return VERBS.is_simplified(self)

    # ---- verbs -----------------------------------------------------------------------------------------------
    @shortened
    def simplify(self, facts: Iterable[Expr] = ()) -> Expr:
        """The cheapest equal form known; see :func:`idgraph.arith.simplify`.

        >>> i = symbol("i", 0, 7)
        >>> str(((i * 32 + 5) // 4).simplify()), str(((i + 3) % 8).simplify(facts=[i < 5]))
        ('i*8 + 1', 'i + 3')
        """
        return VERBS.simplify(self, facts)

    def evaluate(self, env: Mapping[str, int]) -> int | bool:
        """The value with symbols bound by name.

        >>> (symbol("i") // 4).evaluate({"i": -1})
        -1
        """
        try:  # costs nothing where nothing is raised
            return VERBS.evaluate(self, env)
        except IdGraphError as failure:
            raise trimmed(failure) from failure.__cause__

    @shortened
    def evaluate_array(self, env: Mapping[str, npt.NDArray[np.int64] | int]) -> npt.NDArray[Any]:
        """Values at many points at once (int64, or bool for a condition); arrays broadcast.

        >>> import numpy as np
        >>> i = symbol("i", 0, 7)
        >>> ((i * 3) % 8).evaluate_array({"i": np.arange(4)})
        array([0, 3, 6, 1])
        """
        return VERBS.evaluate_array(self, env)

    def substitute(self, values: Mapping[str, IntLike] | Mapping[Expr, IntLike] | Mapping[str | Expr, IntLike]) -> Expr:
        """Symbols replaced, by name or by symbol node, all at once.

        >>> i, j = symbol("i", 0, 7), symbol("j", 0, 7)
        >>> str((i * 8 + j).substitute({"i": j + 1}))
        'j + (j + 1)*8'
        """
        try:  # costs nothing where nothing is raised
            return VERBS.substitute(self, values)
        except IdGraphError as failure:
            raise trimmed(failure) from failure.__cause__

    def sympy(self) -> Any:
        """The expression as a sympy object with exact FloorDiv and Mod functions.

        >>> i = symbol("i", 0, 7)
        >>> (i * 3 + 1).sympy()
        3*i + 1
        """
        return VERBS.sympy(self)

    def __str__(self) -> str:
        return VERBS.text(self)

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Expr does not pickle; print it and parse the text")

    def __bool__(self) -> bool:
        if self.op == "const":
            return bool(self.value)
        raise TypeError(f"the truth of `{self}` is not known here; use is_true, prove or simplify")

    def __index__(self) -> int:
        if self.op == "const" and not self.cond:
            return self.value
        raise TypeError(f"`{self}` is not a constant integer")

    __int__ = __index__

    def __iter__(self) -> NoReturn:
        raise TypeError("an index expression is not iterable")

    # ---- operators -------------------------------------------------------------------------------------------
    def __add__(self, other: IntLike) -> Expr:
        return add2(self, _coerce(other))

    def __radd__(self, other: int) -> Expr:
        return add2(_coerce(other), self)

    def __sub__(self, other: IntLike) -> Expr:
        return add2(self, mul2(MINUS_ONE, _coerce(other)))

    def __rsub__(self, other: int) -> Expr:
        return add2(_coerce(other), mul2(MINUS_ONE, self))

    def __neg__(self) -> Expr:
        return mul2(MINUS_ONE, self)

    def __abs__(self) -> Expr:
        return const(abs(self.value)) if self.is_const else maximum(self, -self)

    def __pos__(self) -> Expr:
        return self

    def __mul__(self, other: IntLike) -> Expr:
        return mul2(self, _coerce(other))

    def __rmul__(self, other: int) -> Expr:
        return mul2(_coerce(other), self)

    def __floordiv__(self, other: IntLike) -> Expr:
        return floordiv(self, _coerce(other))

    def __rfloordiv__(self, other: int) -> Expr:
        return floordiv(_coerce(other), self)

    def __mod__(self, other: IntLike) -> Expr:
        return mod(self, _coerce(other))

    def __rmod__(self, other: int) -> Expr:
        return mod(_coerce(other), self)

    def __divmod__(self, other: IntLike) -> tuple[Expr, Expr]:
        divisor = _coerce(other)
        return floordiv(self, divisor), mod(self, divisor)

    def __xor__(self, other: IntLike) -> Expr:
        return xor(self, other)

    def __rxor__(self, other: int) -> Expr:
        return xor(other, self)

    def __lt__(self, other: IntLike) -> Expr:
        return compare("lt", self, _coerce(other))

    def __le__(self, other: IntLike) -> Expr:
        return compare("le", self, _coerce(other))

    def __gt__(self, other: IntLike) -> Expr:
        return compare("lt", _coerce(other), self)

    def __ge__(self, other: IntLike) -> Expr:
        return compare("le", _coerce(other), self)

    @shortened
    def eq(self, other: IntLike) -> Expr:
        """The condition that both values are equal (``==`` compares structure).

        >>> i = symbol("i", 0, 7)
        >>> str((i % 4).eq(1))
        'i%4 == 1'
        """
        return compare("eq", self, _coerce(other))

    @shortened
    def ne(self, other: IntLike) -> Expr:
        """The condition that the values differ.

        >>> i = symbol("i", 0, 7)
        >>> str((i % 4).ne(1))
        'i%4 != 1'
        """
        return compare("ne", self, _coerce(other))

    def __and__(self, other: Expr | bool) -> Expr:
        return and_(self, other)

    __rand__ = __and__

    def __or__(self, other: Expr | bool) -> Expr:
        return or_(self, other)

    __ror__ = __or__

    def __invert__(self) -> Expr:
        return not_(self)


IntLike = int | Expr


def _structurally_equal(a: Expr, b: Expr) -> bool:
    """Structural equality of two distinct objects with equal hashes, without recursion."""
    work = [(a, b)]
    while work:
        x, y = work.pop()
        if x is y:
            continue
        if x.digest != y.digest or x.op != y.op or x.cond != y.cond or len(x.args) != len(y.args):
            return False
        if x.op == "const":
            if x.value != y.value:
                return False
        elif x.op == "sym":
            if x.name != y.name or x.symbol_bounds[2:] != y.symbol_bounds[2:]:
                return False
            for p, q in zip(x.symbol_bounds[:2], y.symbol_bounds[:2], strict=True):
                if isinstance(p, Expr) and isinstance(q, Expr):
                    work.append((p, q))
                elif p is not q and p != q:
                    return False
        else:
            work.extend(zip(x.args, y.args, strict=True))
    return True


_young: dict[Any, Expr] = {}  # shared nodes, the young generation
_older: dict[Any, Expr] = {}  # the one before it: a node that is asked for again comes back from here
_SYMBOLS: WeakValueDictionary[Any, Expr] = WeakValueDictionary()  # a symbol is one node as long as anybody has it
_CONSTS: dict[int, Expr] = {}


def _new(op: Op, args: tuple[Expr, ...], hashed: int, key: tuple[str, int, int, int]) -> Expr:
    node = Expr.__new__(Expr)
    node.op = op
    node.args = args
    node.digest = hashed
    node.key = key
    node.iv = node.cong = node.cached_symbols = node.lin = node.why = node.base = None
    node.normal_form = node.least = node.simplest = node.set_bits = node.quotients = None
    node.cached_cost = -1
    node.coef = 1
    node.cond = False
    return node


def make(op: Op, args: tuple[Expr, ...]) -> Expr:
    """The shared node ``op(args)`` exactly as given; callers pass canonical operands."""
    table_key = (op, args)
    node = _young.get(table_key)
    if node is None:
        node = _again(table_key)
    if node is not None:
        return node
    first = "~"
    size = 1
    for a in args:
        k = a.key
        if k[0] < first:
            first = k[0]
        size += k[1]
    hashed = hash((_OP_NUMBER[op], *[a.key[3] for a in args]))
    node = _new(op, args, hashed, (first, size, _OP_NUMBER[op], hashed))
    if op in CONDITION_OPS:
        node.cond = True
    elif op == "mul" and args[0].op == "const":
        node.coef = args[0].value
        node.base = args[1] if len(args) == 2 else make("mul", args[1:])
    return _share(table_key, node)


def _again(table_key: Any) -> Expr | None:
    """The node from the older generation, which is young again by being asked for."""
    node = _older.get(table_key)
    return None if node is None else _young.setdefault(table_key, node)


def _share(table_key: Any, node: Expr) -> Expr:
    global _young, _older
    if len(_young) > _TABLE_LIMIT:
        _older, _young = _young, {}
    return _young.setdefault(table_key, node)  # another thread may have made it meanwhile


MOST_BITS = 1 << 13  # of a constant: far beyond any address, and still a number that Python prints


def const(value: int) -> Expr:
    """The constant ``value``.

    >>> const(3) == 3, hash(const(3)) == hash(3)
    (True, True)
    """
    if value is True or value is False:
        raise ArithTypeError("a truth value is not an integer constant", hint="use TRUE or FALSE")
    node = _CONSTS.get(value)
    if node is not None:
        return node
    if value.bit_length() > MOST_BITS:
        raise ArithError(
            f"a number of {value.bit_length()} bits is beyond index arithmetic", hint=f"at most {MOST_BITS} bits"
        )
    node = _new("const", (), hash(value), ("~", 0, 1, 4 * value + 1))  # hash(-1) == hash(-2): keep digests apart
    node.value = value
    if len(_CONSTS) < 100_000:
        return _CONSTS.setdefault(value, node)
    return node


def _truth(value: bool) -> Expr:
    node = _new("const", (), 0x51ED + value, ("~", 0, 1, 4 * value + 2))
    node.value = int(value)
    node.cond = True
    return node


ZERO: Final = const(0)
ONE: Final = const(1)
MINUS_ONE: Final = const(-1)
TRUE: Final = _truth(True)
FALSE: Final = _truth(False)


def symbol(
    name: str, lo: IntLike | None = None, hi: IntLike | None = None, multiple_of: int = 1, remainder: int = 0
) -> Expr:
    """An integer unknown with ``lo <= s <= hi`` (inclusive) and ``s = remainder`` modulo ``multiple_of``.

    Bounds are integers, expressions over other symbols, or ``None``.  Two symbols of one name and different
    ranges are different nodes; evaluation binds by name.

    >>> n = symbol("n", 8, None, multiple_of=8)
    >>> symbol("j", 0, n - 1).range
    Range(lo=0, hi=None)
    """
    if not name:
        raise ArithError("a symbol needs a name that is not empty")
    if isinstance(multiple_of, bool) or multiple_of < 1:
        raise ArithError(f"symbol {name!r}: multiple_of must be a positive integer, got {multiple_of!r}")
    lo, hi = _bound(lo), _bound(hi)
    bounds = (lo, hi, multiple_of, remainder % multiple_of)
    table_key = ("sym", name, bounds)
    node = _young.get(table_key)
    if node is None:
        node = _SYMBOLS.get(table_key)
        if node is not None:
            return _share(table_key, node)
    if node is not None:
        return node
    marks = [0x7FFFFFFF if b is None else b.digest if isinstance(b, Expr) else hash(b) for b in bounds]
    hashed = hash((2, zlib.crc32(name.encode("utf-8", "surrogatepass")), *marks))
    node = _new("sym", (), hashed, (name, 1, 2, hashed))
    node.name = name
    node.symbol_bounds = bounds
    node = _SYMBOLS[table_key] = _share(table_key, node)
    return node


def _bound(b: IntLike | None) -> int | Expr | None:
    if isinstance(b, Expr):
        if b.cond:
            raise ArithTypeError(
                "a symbol's bound must be an integer expression", because=(f"got the condition `{b}`",)
            )
        return b.value if b.op == "const" else b
    if b is None or (isinstance(b, int) and not isinstance(b, bool)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return b
    return int(_coerce(b))


def _coerce(x: IntLike) -> Expr:
    if isinstance(x, Expr):
        return x
    node = _CONSTS.get(x) if type(x) is int else None
    return node if node is not None else as_expr(x)


def as_expr(x: IntLike) -> Expr:
    """``x`` as an expression; integers become constants, truth values are refused with TypeError."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, bool):
        raise ArithTypeError(f"expected an integer expression, got the truth value {x!r}")
    if isinstance(x, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        return const(x)
    try:
        value = None if type(x).__name__ in ("bool", "bool_") else index(x)
    except TypeError:  # an array of several numbers has an index, and refuses it
        value = None
    if value is None:
        raise ArithTypeError(f"expected an integer or an index expression, got {type(x).__name__}")
    return const(value)


def _need_int(args: Iterable[Expr], what: str) -> None:
    for a in args:
        if a.cond:
            raise ArithTypeError(f"{what} takes integers, not a condition", because=(f"got `{a}`",))


def scale(base: Expr, coef: int) -> Expr:
    """``coef * base`` for a base without a constant factor."""
    if coef == 1:
        return base
    if coef == 0:
        return ZERO
    factors = base.args if base.op == "mul" else (base,)
    return make("mul", (const(coef), *factors))


def from_terms(terms: dict[Expr, int], constant: int) -> Expr:
    """The sum of ``coef * base`` over ``terms`` plus a constant, in canonical order."""
    items = [(base, coef) for base, coef in terms.items() if coef]
    if not items:
        return const(constant)
    if len(items) == 1:
        base, coef = items[0]
        term = base if coef == 1 else scale(base, coef)
        return term if constant == 0 else make("add", (term, const(constant)))
    if meter.left is not None:
        charge(len(items))
    items.sort(key=_item_key)
    out = [base if coef == 1 else scale(base, coef) for base, coef in items]
    if constant:
        out.append(const(constant))
    return make("add", tuple(out))


def _item_key(item: tuple[Expr, int]) -> tuple[str, int, int, int]:
    return item[0].key


def sort_key(e: Expr) -> tuple[str, int, int, int]:
    """The structural order of operands: smallest name, size, then a digest; the same in every process."""
    return e.key


def add(args: Iterable[Expr]) -> Expr:
    """The canonical sum."""
    terms: dict[Expr, int] = {}
    constant = 0
    for a in args:
        for t in a.args if a.op == "add" else (a,):
            if t.op == "const":
                if t.cond:
                    _need_int((t,), "+")
                constant += t.value
            else:
                if t.cond:
                    _need_int((t,), "+")
                base = t if t.base is None else t.base
                terms[base] = terms.get(base, 0) + t.coef
    return from_terms(terms, constant)


def add2(a: Expr, b: Expr) -> Expr:
    """``add((a, b))``, quicker for two single terms."""
    if a.cond or b.cond or a.op == "add" or b.op == "add":
        return add((a, b))
    if a.op == "const":
        a, b = b, a
    if b.op == "const":
        if a.op == "const":
            return const(a.value + b.value)
        return make("add", (a, b)) if b.value else a
    x = a if a.base is None else a.base
    y = b if b.base is None else b.base
    if x is y or x == y:
        return scale(x, a.coef + b.coef)
    if y.key < x.key:
        a, b = b, a
    return make("add", (a, b))


def mul2(a: Expr, b: Expr) -> Expr:
    """``mul((a, b))``, quicker for a constant and one factor."""
    if a.op == "const":
        a, b = b, a
    if b.op != "const" or a.op == "const" or a.op == "mul" or a.cond or b.cond:
        return mul((a, b))
    if b.value == 1:
        return a
    return make("mul", (b, a)) if b.value else ZERO


def mul(args: Iterable[Expr]) -> Expr:
    """The canonical product; sums are not multiplied out."""
    coef = 1
    factors: list[Expr] = []
    for a in args:
        if a.cond:
            _need_int((a,), "*")
        if a.op == "const":
            coef *= a.value
            if coef.bit_length() > MOST_BITS:
                return const(coef)  # refuses it
        elif a.op == "mul":
            coef *= a.coef
            base = a.base if a.base is not None else a
            if base.op == "mul":
                factors.extend(base.args)
            else:
                factors.append(base)
        else:
            factors.append(a)
    if coef == 0:
        return ZERO
    if not factors:
        return const(coef)
    if len(factors) > 1:
        factors.sort(key=sort_key)
    elif coef == 1:
        return factors[0]
    if coef != 1:
        return make("mul", (const(coef), *factors))
    return make("mul", tuple(factors))


def floordiv(x: Expr, d: Expr) -> Expr:
    """Floor division, as Python's ``//``."""
    if x.cond or d.cond:
        _need_int((x, d), "//")
    if d.op == "const":
        if d.value == 0:
            raise ArithZeroDivisionError(f"floor division of `{x}` by zero")
        if d.value == 1:
            return x
        if x.op == "const":
            return const(x.value // d.value)
    return make("floordiv", (x, d))


def mod(x: Expr, d: Expr) -> Expr:
    """Remainder with the sign of the divisor, as Python's ``%``."""
    if x.cond or d.cond:
        _need_int((x, d), "%")
    if d.op == "const":
        if d.value == 0:
            raise ArithZeroDivisionError(f"modulo of `{x}` by zero")
        if d.value in (1, -1):
            return ZERO
        if x.op == "const":
            return const(x.value % d.value)
    return make("mod", (x, d))


def _flatten_operands(op: Op, args: Iterable[IntLike]) -> Iterator[Expr]:
    for x in args:
        a = _coerce(x)
        if a.op == op:
            yield from a.args
        else:
            yield a


def _extremum(op: Literal["min", "max"], args: tuple[IntLike, ...]) -> Expr:
    if not args:
        raise ArithError(f"{op} needs at least one operand")
    constant: int | None = None
    rest: dict[Expr, None] = {}
    for a in _flatten_operands(op, args):
        if a.cond:
            _need_int((a,), op)
        if a.op == "const":
            constant = a.value if constant is None else (min if op == "min" else max)(constant, a.value)
        else:
            rest[a] = None
    out = sorted(rest, key=sort_key)
    if constant is not None:
        out.append(const(constant))
    return out[0] if len(out) == 1 else make(op, tuple(out))


def minimum(*args: IntLike) -> Expr:
    """The least of its operands."""
    return _extremum("min", args)


def maximum(*args: IntLike) -> Expr:
    """The greatest of its operands."""
    return _extremum("max", args)


def xor(*args: IntLike) -> Expr:
    """Bitwise exclusive or of two's-complement integers of unbounded width."""
    constant = 0
    rest: dict[Expr, int] = {}
    for a in _flatten_operands("xor", args):
        if a.cond:
            _need_int((a,), "^")
        if a.op == "const":
            constant ^= a.value
        else:
            rest[a] = rest.get(a, 0) ^ 1
    out = sorted((a for a, odd in rest.items() if odd), key=sort_key)
    if constant or not out:
        out.append(const(constant))
    return out[0] if len(out) == 1 else make("xor", tuple(out))


def ceildiv(x: IntLike, d: IntLike) -> Expr:
    """Division rounded up, in terms of floor division.

    >>> str(ceildiv(symbol("n", 0), 8))
    '(n + 7)//8'
    """
    a, b = _coerce(x), _coerce(d)
    lo = b.value if b.op == "const" else b.symbol_bounds[0] if b.op == "sym" else None
    if isinstance(lo, int) and lo > 0:
        return floordiv(add((a, b, MINUS_ONE)), b)
    return mul((MINUS_ONE, floordiv(mul((MINUS_ONE, a)), b)))


def compare(op: Comparison, a: Expr, b: Expr) -> Expr:
    """The comparison as a condition; constants and equal operands are decided."""
    if op == "gt" or op == "ge":
        return compare("lt" if op == "gt" else "le", b, a)
    if a.cond or b.cond:
        _need_int((a, b), "a comparison")
    if a is b or (a.op == "const" and b.op == "const"):
        x, y = (0, 0) if a is b else (a.value, b.value)
        holds = x < y if op == "lt" else x <= y if op == "le" else x == y if op == "eq" else x != y
        return TRUE if holds else FALSE
    if op in ("eq", "ne") and (a.op == "const" or (b.op != "const" and b.key < a.key)):
        a, b = b, a
    return make(op, (a, b))


def _condition(c: Expr | bool) -> Expr:
    if isinstance(c, Expr):
        if c.cond:
            return c
        raise ArithTypeError("expected a condition", because=(f"got the integer expression `{c}`",))
    if isinstance(c, bool) or type(c).__name__ in ("bool", "bool_"):  # pyright: ignore[reportUnnecessaryIsInstance]
        return TRUE if c else FALSE
    raise ArithTypeError(f"expected a condition, got {type(c).__name__}")


def _junction(op: Literal["and", "or"], args: Iterable[Expr | bool]) -> Expr:
    neutral, absorbing = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    rest: dict[Expr, None] = {}
    for x in args:
        c = _condition(x)
        for a in c.args if c.op == op else (c,):
            if a is absorbing:
                return absorbing
            if a is not neutral:
                rest[a] = None
    if not rest:
        return neutral
    out = sorted(rest, key=sort_key)
    return out[0] if len(out) == 1 else make(op, tuple(out))


def and_(*args: Expr | bool) -> Expr:
    """All of the conditions hold."""
    return _junction("and", args)


def or_(*args: Expr | bool) -> Expr:
    """At least one of the conditions holds."""
    return _junction("or", args)


def not_(c: Expr | bool) -> Expr:
    """The condition fails; comparisons are turned round, so ``not`` remains only over and/or."""
    a = _condition(c)
    if a is TRUE:
        return FALSE
    if a is FALSE:
        return TRUE
    match a.op:
        case "not":
            return a.args[0]
        case "lt":
            return compare("le", a.args[1], a.args[0])
        case "le":
            return compare("lt", a.args[1], a.args[0])
        case "eq":
            return compare("ne", *a.args)
        case "ne":
            return compare("eq", *a.args)
        case "and":
            return or_(*(not_(x) for x in a.args))
        case "or":
            return and_(*(not_(x) for x in a.args))
        case _:
            return make("not", (a,))


def where(cond: Expr | bool, a: IntLike | bool, b: IntLike | bool) -> Expr:
    """``a`` where the condition holds, else ``b``; the branch not taken is never evaluated."""
    c = _condition(cond)
    if isinstance(a, bool) or isinstance(b, bool) or (isinstance(a, Expr) and a.cond):
        x, y = _condition(a), _condition(b)  # pyright: ignore[reportArgumentType]
        return or_(and_(c, x), and_(not_(c), y))
    x, y = _coerce(a), _coerce(b)
    _need_int((x, y), "where")
    if c is TRUE or x is y:
        return x
    if c is FALSE:
        return y
    return make("where", (c, x, y))


def postorder(root: Expr) -> list[Expr]:
    """Every distinct node below ``root``, operands before users, without recursion."""
    out: list[Expr] = []
    seen: set[Expr] = set()
    work: list[tuple[Expr, bool]] = [(root, False)]
    while work:
        node, ready = work.pop()
        if ready:
            out.append(node)
        elif node not in seen:
            seen.add(node)
            work.append((node, True))
            work.extend((a, False) for a in reversed(node.args))
    return out


def symbols_of(e: Expr) -> frozenset[Expr]:
    """The symbols in ``e``; cached on the nodes."""
    work = [e]
    while work:
        node = work[-1]
        if node.cached_symbols is not None:
            work.pop()
            continue
        if not node.args:
            node.cached_symbols = frozenset((node,)) if node.op == "sym" else frozenset()
            work.pop()
            continue
        missing = [a for a in node.args if a.cached_symbols is None]
        if missing:
            work.extend(missing)
            continue
        parts = [a.cached_symbols for a in node.args if a.cached_symbols]
        node.cached_symbols = frozenset[Expr]().union(*parts) if len(parts) != 1 else parts[0]
        work.pop()
    return e.cached_symbols if e.cached_symbols is not None else frozenset()


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """``node`` with other operands, through the canonical constructors."""
    match node.op:
        case "const" | "sym":
            return node
        case "add":
            return add(args)
        case "mul":
            return mul(args)
        case "floordiv":
            return floordiv(*args)
        case "mod":
            return mod(*args)
        case "min" | "max":
            return _extremum(node.op, args)
        case "where":
            return where(*args)
        case "xor":
            return xor(*args)
        case "lt" | "le" | "eq" | "ne":
            return compare(node.op, *args)
        case "and" | "or":
            return _junction(node.op, args)
        case "not":
            return not_(args[0])
