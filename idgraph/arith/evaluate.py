"""Values of expressions: one point, many points at once, and substitution.

All three walk the distinct nodes once in operand-first order, so depth costs no recursion.  Only the branch of a
``where`` that is taken has to be defined.

`evaluate` looks at each node each time. A caller that wants the same expressions at other points again and again, as
calls with other sizes do, has them laid out once.

Whole numbers that are computed with floats: ``ceil(n / 0.5)`` as an integer expression.

PyTorch computes some sizes in double precision (``arange`` with a float step, a scale factor of ``interpolate``).
Integers, dyadic numbers of few digits, their sums and products, and quotients by powers of two are exact there. Any
other quotient of two exact numbers is rounded once: no integer lies between it and the true quotient, and it is an
integer only where that is one, as long as both stay below 2**53 in units of their last digit. So floor, ceiling and
truncation of such numbers are those of the rational number. (Goldberg, *What every computer scientist should know about
floating-point arithmetic*, 1991.) What is rounded twice has no form here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, SupportsIndex, cast

from idgraph.arith.expr import (
    SIGNS,
    VERBS,
    ArithError,
    ArithTypeError,
    ArithZeroDivisionError,
    Expr,
    IntLike,
    add,
    as_expr,
    ceildiv,
    const,
    floordiv,
    mul,
    postorder,
    rebuild,
    symbol,
    symbols_of,
    where,
)
from idgraph.errors import short_repr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


_FOLDS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "add": sum, "mul": prod, "min": min, "max": max, "xor": partial(reduce, int.__xor__), "and": all, "or": any,
}  # fmt: skip
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "floordiv": int.__floordiv__, "mod": int.__mod__, "lt": int.__lt__, "le": int.__le__, "eq": int.__eq__,
    "ne": int.__ne__, "not": operator.not_,
}  # fmt: skip
_UFUNCS: Final[Mapping[str, str]] = {
    "add": "add", "mul": "multiply", "min": "minimum", "max": "maximum", "xor": "bitwise_xor", "and": "logical_and",
    "or": "logical_or", "floordiv": "floor_divide", "mod": "remainder", "lt": "less", "le": "less_equal", "eq": "equal",
    "ne": "not_equal", "not": "logical_not", "where": "where",
}  # fmt: skip


def _missing(name: str, env: Mapping[str, Any]) -> ArithError:
    return ArithError(
        f"no value for symbol {name!r}",
        because=(f"values were given for {sorted(env) or 'no symbol'}",),
        hint=f"pass {{{name!r}: ...}}",
    )


def _as_integer(name: str, value: object) -> int:
    """An integer of any kind. A float is refused, even 2.0: a rounded coordinate is a wrong one."""
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError:
        raise ArithError(f"the value of {name!r} is {value!r}, not an integer", hint=f"pass {{{name!r}: 3}}") from None


def evaluate(e: Expr, env: Mapping[str, int]) -> int | bool:
    """The value of ``e`` with symbols bound by name; names it does not need are ignored.

    >>> from idgraph.arith import parse
    >>> evaluate(parse("where(i < 4, i, i % 4)"), {"i": 6})
    2
    """
    if not isinstance(env, (dict, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArithError(f"values are given by name, got {type(env).__name__}", hint='such as {"i0": 3}')
    values: dict[int, int | bool] = {}  # by the identity of nodes with operands: asking a node for its hash costs more
    if not e.args:
        return cast("int | bool", _known(e, values, env))
    work = [e]
    while work:
        node = work[-1]
        if id(node) in values:
            work.pop()
            continue
        needed = node.args
        if node.op == "where":  # the branch that is not taken may have no value
            cond = _known(needed[0], values, env)
            if cond is None:
                work.append(needed[0])
                continue
            needed = (needed[1 if cond else 2],)
        args = [_known(a, values, env) for a in needed]
        if None in args:
            work.extend(a for a, v in zip(needed, args, strict=True) if v is None)
            continue
        found = cast("list[int | bool]", args)
        values[id(node)] = found[0] if node.op == "where" else _evaluate_node(node, found, env)
        work.pop()
    return values[id(e)]


def _known(node: Expr, values: Mapping[int, int | bool], env: Mapping[str, int]) -> int | bool | None:
    """The value of a number or symbol, and of a node that has been evaluated; None of another."""
    if node.args:
        return values.get(id(node))
    if node.op == "const":
        return bool(node.value) if node.cond else node.value
    value = env.get(node.name)
    return value if type(value) is int else _evaluate_node(node, [], env)


def _evaluate_node(node: Expr, args: list[int | bool], env: Mapping[str, int]) -> int | bool:
    match node.op:
        case "const":
            return bool(node.value) if node.cond else node.value
        case "sym":
            if node.name not in env:
                raise _missing(node.name, env)
            return _as_integer(node.name, env[node.name])
        case "floordiv" | "mod" if args[1] == 0:
            raise ArithZeroDivisionError(f"`{node}` divides by zero", because=(f"`{node.args[1]}` is 0",))
        case op:
            return _FOLDS[op](args) if op in _FOLDS else _FUNCTIONS[op](*args)


def evaluate_array(e: Expr, env: Mapping[str, npt.NDArray[np.int64] | int]) -> npt.NDArray[Any]:
    """``e`` at many points: int64 (bool for a condition), the operands broadcast against each other.

    A division by zero is an error only where its value is used; values must fit 64 bits.
    """
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    if not isinstance(env, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArithTypeError(f"{short_repr(cast(object, env))} is not a mapping from names to arrays")
    values: dict[Expr, npt.NDArray[Any]] = {}
    undefined: dict[Expr, npt.NDArray[Any]] = {}
    for node in postorder(e):
        args = [values[a] for a in node.args]
        bad = [undefined[a] for a in node.args if a in undefined]
        if node.op == "where" and bad:
            off = np.zeros((), np.bool_)
            c, x, y = (undefined.get(a, off) for a in node.args)
            bad = [c | np.where(args[0], x, y)]
        if node.op in ("floordiv", "mod"):
            zero = args[1] == 0
            if bool(np.any(zero)):
                bad.append(zero)
                args[1] = np.where(zero, 1, args[1])
        values[node] = _array_value(node, args, env)
        if bad:
            undefined[node] = np.logical_or.reduce(np.broadcast_arrays(*bad)) if len(bad) > 1 else bad[0]
    if e in undefined and bool(np.any(undefined[e])):
        raise ArithZeroDivisionError(f"`{e}` divides by zero at some of the points")
    return values[e]


def _array_value(node: Expr, args: list[Any], env: Mapping[str, Any]) -> Any:
    import numpy as np  # noqa: PLC0415  # half of the time that importing the library would take

    match node.op:
        case "const":
            return np.asarray(bool(node.value) if node.cond else node.value)
        case "sym":
            if node.name not in env:
                raise _missing(node.name, env)
            return np.asarray(env[node.name], dtype=np.int64)
        case op:
            ufunc: Any = getattr(np, _UFUNCS[op])
            return ufunc(*args) if op in ("where", "not") else reduce(ufunc, args)


def substitute(e: Expr, values: Mapping[str, IntLike] | Mapping[Expr, IntLike] | Mapping[str | Expr, IntLike]) -> Expr:
    """``e`` with symbols replaced at once, found by symbol node or by name.

    >>> from idgraph.arith import symbol
    >>> i, j = symbol("i"), symbol("j")
    >>> str(substitute(i * 4 + j, {"i": j, "j": i}))
    'i + j*4'
    """
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArithTypeError(f"{short_repr(cast(object, values))} is not a mapping from symbols to values")
    table: dict[str | Expr, Expr] = {k: as_expr(v) for k, v in values.items()}
    moved: dict[Expr, Expr] = {}
    for node in symbols_of(e):
        found = table.get(node)
        if found is None:
            found = table.get(node.name)
        new = _rebound(node, values, table) if found is None else found
        if new is not node:
            moved[node] = new
    return _replaced(e, moved) if moved else e


def _replaced(e: Expr, moved: Mapping[Expr, Expr]) -> Expr:
    """``e`` with other symbols; what has none of those in it stays, and is not looked at."""
    out, symbols = dict(moved), moved.keys()
    work = [e]
    while work:
        node = work[-1]
        if node in out:
            work.pop()
            continue
        waiting: list[Expr] = []
        for a in node.args:
            if a not in out:
                if symbols.isdisjoint(symbols_of(a)):
                    out[a] = a
                else:
                    waiting.append(a)
        if waiting:
            work.extend(waiting)
            continue
        work.pop()
        args = tuple([out[a] for a in node.args])
        out[node] = node if all(a is b for a, b in zip(args, node.args, strict=True)) else rebuild(node, args)
    return out[e]


def _rebound(
    node: Expr,
    values: Mapping[str, IntLike] | Mapping[Expr, IntLike] | Mapping[str | Expr, IntLike],
    table: dict[str | Expr, Expr],
) -> Expr:
    """A symbol that stays, its symbolic bounds rewritten: ``j < n`` must not speak of the old ``n``."""
    lo, hi, step, first = node.symbol_bounds
    bounds = [b for b in (lo, hi) if isinstance(b, Expr)]
    if not any(s in table or s.name in table for b in bounds for s in b.symbols):
        return node
    low = substitute(lo, values) if isinstance(lo, Expr) else lo
    high = substitute(hi, values) if isinstance(hi, Expr) else hi
    return symbol(node.name, low, high, step, first)


VERBS.evaluate = evaluate
VERBS.evaluate_array = evaluate_array
VERBS.substitute = substitute


Value = int | bool | None
_Step = Callable[[list[Any]], Any]


class CompiledExprs:
    """The values of ``exprs`` at a point, in their order; None for one that divides by zero there.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 0)
    >>> CompiledExprs((n + 1, n * n, 7 // n))({"n": 3}), CompiledExprs((n + 1, 7 // n))({"n": 0})
    ([4, 9, 2], [1, None])
    """

    __slots__ = ("_constants", "_exprs", "_names", "_places", "_steps", "_symbols")

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self._exprs = tuple(exprs)
        nodes = dict.fromkeys(_topological_nodes(self._exprs))
        symbols = [n for n in nodes if n.op == "sym"]
        constants = [n for n in nodes if n.op == "const"]
        at = {n: k for k, n in enumerate([*symbols, *constants])}
        self._names = tuple(n.name for n in symbols)
        self._symbols = tuple(symbols)
        self._constants = tuple(bool(n.value) if n.cond else n.value for n in constants)
        steps: list[_Step] = []
        for n in nodes:
            if n not in at:
                steps.append(_compile_node(n, tuple(at[a] for a in n.args)))
                at[n] = len(at)
        self._steps = tuple(steps)
        self._places = tuple(at[e] for e in self._exprs)

    def __call__(self, env: Mapping[str, int]) -> list[Value]:
        """The values where symbols have those of ``env``; raises `ArithError` for one that has none."""
        try:
            values: list[Any] = [env[n] for n in self._names]
        except KeyError:
            values = [evaluate(s, env) for s in self._symbols]
        values += self._constants
        try:
            for step in self._steps:
                values.append(step(values))
        except ZeroDivisionError:  # perhaps in a branch not taken: each alone
            return [_evaluate_or_none(e, env) for e in self._exprs]
        return [values[k] for k in self._places]

    def function(self) -> Callable[..., tuple[Any, ...]]:
        """The same as one Python function of the symbols, in the order of `names`: some times faster, and dearer to
        make. It raises `ZeroDivisionError` where an expression divides by zero.

        >>> from idgraph.arith import symbol
        >>> n, m = symbol("n", 0), symbol("m", 0)
        >>> tape = CompiledExprs((n + 1, n * m, 7 // n))
        >>> tape.names, tape.function()(3, 4)
        (('n', 'm'), (4, 12, 2))
        """
        names = {n: f"s{k}" for k, n in enumerate(self._names)}
        lines = SourceLines(names)
        found = "".join([f"{lines.text(e)}, " for e in self._exprs])
        head = f"def numbers({', '.join(names.values())}):"
        space = dict(SPACE)
        exec("\n".join([head, *(f"    {line}" for line in lines.lines), f"    return ({found})"]), space)  # noqa: S102 - words of ours and integers
        return space["numbers"]

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols that the expressions have."""
        return self._names


class SourceLines:
    """Lines of Python that compute expressions, each once; ``names`` are the texts of symbols that have values.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 0)
    >>> lines = SourceLines({"n": "s0"})
    >>> lines.text(n * 2 + 1), lines.text(n * 2), lines.lines
    ('v1', 'v0', ['v0 = 2 * s0', 'v1 = v0 + 1'])
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names, self.lines = dict(names), list[str]()
        self._texts: dict[Expr, str] = {}

    def text(self, e: Expr) -> str:
        """A name or a number with the value of ``e``; raises `KeyError` for a symbol without a name."""
        for n in _topological_nodes([e]):
            if n in self._texts:
                continue
            if n.op == "const":
                self._texts[n] = repr(bool(n.value) if n.cond else n.value)
            elif n.op == "sym":
                self._texts[n] = self.names[n.name]
            else:
                found = _node_source(n, [self._texts[a] for a in n.args])
                self._texts[n] = name = f"v{len(self.lines)}"
                self.lines.append(f"{name} = {found}")
        return self._texts[e]


SPACE: Mapping[str, Any] = {"min": min, "max": max, "bool": bool}  # what the lines call


def _node_source(node: Expr, operands: Sequence[str]) -> str:
    """The node's value as Python."""
    match node.op:
        case "min" | "max":
            return f"{node.op}({', '.join(operands)})"
        case "not":
            return f"not {operands[0]}"
        case "where":
            return f"{operands[1]} if {operands[0]} else {operands[2]}"
        case "and" | "or":
            return f"bool({node.op.join(f' {o} ' for o in operands)})"
        case _:
            return f" {SIGNS[node.op]} ".join(operands)


def _evaluate_or_none(e: Expr, env: Mapping[str, int]) -> Value:
    try:
        return evaluate(e, env)
    except ArithZeroDivisionError:
        return None


def _topological_nodes(exprs: Sequence[Expr]) -> list[Expr]:
    """All nodes, each behind its operands; shared ones once."""
    found: dict[Expr, None] = {}
    work = list(reversed(exprs))
    while work:
        node = work[-1]
        missing = [a for a in node.args if a not in found]
        if missing:
            work.extend(missing)
            continue
        found[node] = None
        work.pop()
    return list(found)


def _compile_node(node: Expr, at: tuple[int, ...]) -> _Step:
    """The node's value from those of its operands, which stand at these places."""
    if len(at) == 2:
        return _PAIRS[node.op](*at)
    if node.op == "not":
        return lambda v: not v[at[0]]
    if node.op == "where":
        return lambda v: v[at[1]] if v[at[0]] else v[at[2]]
    fold = _FOLDS[node.op]
    return lambda v: fold([v[k] for k in at])


_PAIRS: Final[Mapping[str, Callable[[int, int], _Step]]] = {
    "add": lambda a, b: lambda v: v[a] + v[b],
    "mul": lambda a, b: lambda v: v[a] * v[b],
    "floordiv": lambda a, b: lambda v: v[a] // v[b],
    "mod": lambda a, b: lambda v: v[a] % v[b],
    "min": lambda a, b: lambda v: min(v[a], v[b]),
    "max": lambda a, b: lambda v: max(v[a], v[b]),
    "xor": lambda a, b: lambda v: v[a] ^ v[b],
    "lt": lambda a, b: lambda v: v[a] < v[b],
    "le": lambda a, b: lambda v: v[a] <= v[b],
    "eq": lambda a, b: lambda v: v[a] == v[b],
    "ne": lambda a, b: lambda v: v[a] != v[b],
    "and": lambda a, b: lambda v: bool(v[a] and v[b]),
    "or": lambda a, b: lambda v: bool(v[a] or v[b]),
}


ROUNDINGS = frozenset({"CeilToInt", "FloorToInt", "TruncToInt"})
_FLOATS = frozenset({"ToFloat", "FloatTrueDiv", "IntTrueDiv", "Float", "Rational", "Half"})
_DIGITS = 2**20  # of a constant's numerator and denominator: sizes below 2**33 stay exact


class Ratio(NamedTuple):
    """``top / bottom``; not ``exact``: the nearest double."""

    top: Expr
    bottom: Expr
    exact: bool = True


def integer_parts(x: Any) -> list[Any]:
    """The largest parts of a sympy tree below a rounding that are integers."""
    if type(x).__name__ not in _FLOATS and getattr(x, "is_integer", False):
        return [x]
    return [part for a in x.args for part in integer_parts(a)]


def round_to_integer(x: Any, known: Mapping[Any, Expr]) -> Expr:
    """Rounding ``x`` (a sympy node of `ROUNDINGS`) as an integer expression; ``known``: of its `integer_parts`.

    Raises ArithError where more than one step of the float computation may round.
    """
    top, bottom, _ = _ratio(x.args[0], known)
    match type(x).__name__:
        case "CeilToInt":
            return ceildiv(top, bottom)
        case "FloorToInt":
            return floordiv(top, bottom)
        case _:
            down = floordiv(top, bottom)
            return where(mul([top, bottom]) >= 0, down, ceildiv(top, bottom))


def _ratio(x: Any, known: Mapping[Any, Expr]) -> Ratio:
    found = known.get(x)
    if found is not None:
        return Ratio(found, const(1))
    name = type(x).__name__
    if getattr(x, "is_Float", False) or getattr(x, "is_Rational", False):
        number = Fraction(float(x)) if x.is_Float else Fraction(int(x.p), int(x.q))
        if max(abs(number.numerator), number.denominator) > _DIGITS or number.denominator & (number.denominator - 1):
            raise _inexact(x)
        return Ratio(const(number.numerator), const(number.denominator))
    parts = [_ratio(a, known) for a in x.args]
    match name, parts:
        case "ToFloat", [a]:
            return a
        case "Mul", _:
            return _exact_product(parts, x)
        case "Add", _ if all(p.exact for p in parts):
            bottoms = [int(p.bottom) for p in parts]
            bottom = max(map(abs, bottoms))  # powers of two
            return Ratio(
                add([mul([p.top, const(bottom // b)]) for p, b in zip(parts, bottoms, strict=True)]), const(bottom)
            )
        case (("FloatTrueDiv" | "IntTrueDiv"), [a, b]) if a.exact and b.exact:
            return _exact_quotient(a, b)
        case _:
            raise _inexact(x)


def _exact_product(parts: list[Ratio], x: Any) -> Ratio:
    """A product; a factor that was rounded may only be scaled by powers of two."""
    near = [p for p in parts if not p.exact]
    if len(near) > 1 or (near and not all(_is_power(p) for p in parts if p.exact)):
        raise _inexact(x)
    return Ratio(mul([p.top for p in parts]), mul([p.bottom for p in parts]), not near)


def _exact_quotient(a: Ratio, b: Ratio) -> Ratio:
    top, bottom = mul([a.top, b.bottom]), mul([a.bottom, b.top])
    if not _is_power(b):
        return Ratio(top, bottom, exact=False)
    if int(bottom) < 0:
        top, bottom = mul([const(-1), top]), mul([const(-1), bottom])
    return Ratio(top, bottom)


def _is_power(p: Ratio) -> bool:
    """A constant that is a power of two or its negative: its denominator is one, so its numerator must be."""
    return p.top.is_const and int(p.top) != 0 and abs(int(p.top)) & (abs(int(p.top)) - 1) == 0


def _inexact(x: Any) -> ArithError:
    return ArithError(
        f"sympy {type(x).__name__} is rounded as a float, and no integer expression says how",
        because=(f"in {x}",),
        hint="integer arithmetic (// and %), or a step that is a power of two",
    )
