"""Values of expressions: one point, many points at once, and substitution.

All three walk the distinct nodes once in operand-first order, so depth costs no recursion.  Only the branch of a
``where`` that is taken has to be defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from idgraph.arith.nodes import (
    VERBS,
    ArithError,
    ArithTypeError,
    ArithZeroDivisionError,
    Expr,
    IntLike,
    as_expr,
    postorder,
    rebuild,
    symbol,
    symbols_of,
)
from idgraph.errors import short_repr

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def _missing(name: str, env: Mapping[str, Any]) -> ArithError:
    return ArithError(
        f"no value for symbol {name!r}",
        because=(f"values were given for {sorted(env) or 'no symbol'}",),
        hint=f"pass {{{name!r}: ...}}",
    )


def _whole(name: str, value: object) -> int:
    """An integer of any kind. A float is refused, even 2.0: a rounded coordinate is a wrong one."""
    try:
        return index(cast("SupportsIndex", value))
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
        values[id(node)] = found[0] if node.op == "where" else _value(node, found, env)
        work.pop()
    return values[id(e)]


def _known(node: Expr, values: Mapping[int, int | bool], env: Mapping[str, int]) -> int | bool | None:
    """The value of a number or symbol, and of a node that has been evaluated; None of another."""
    if node.args:
        return values.get(id(node))
    if node.op == "const":
        return bool(node.value) if node.cond else node.value
    value = env.get(node.name)
    return value if type(value) is int else _value(node, [], env)


def _value(node: Expr, args: list[int | bool], env: Mapping[str, int]) -> int | bool:
    match node.op:
        case "const":
            return bool(node.value) if node.cond else node.value
        case "sym":
            if node.name not in env:
                raise _missing(node.name, env)
            return _whole(node.name, env[node.name])
        case "add":
            return sum(args)
        case "mul":
            out = 1
            for a in args:
                out *= a
            return out
        case "floordiv" | "mod":
            if args[1] == 0:
                raise ArithZeroDivisionError(f"`{node}` divides by zero", because=(f"`{node.args[1]}` is 0",))
            return args[0] // args[1] if node.op == "floordiv" else args[0] % args[1]
        case "min":
            return min(args)
        case "max":
            return max(args)
        case "xor":
            out = 0
            for a in args:
                out ^= a
            return out
        case "where":
            return args[1] if args[0] else args[2]
        case "lt":
            return args[0] < args[1]
        case "le":
            return args[0] <= args[1]
        case "eq":
            return args[0] == args[1]
        case "ne":
            return args[0] != args[1]
        case "and":
            return all(args)
        case "or":
            return any(args)
        case "not":
            return not args[0]


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
        case "add" | "mul" | "min" | "max" | "xor" | "and" | "or":
            ufunc: Any = {
                "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
                "xor": np.bitwise_xor, "and": np.logical_and, "or": np.logical_or,
            }[node.op]  # fmt: skip
            out = args[0]
            for a in args[1:]:
                out = ufunc(out, a)
            return out
        case "floordiv":
            return np.floor_divide(args[0], args[1])
        case "mod":
            return np.remainder(args[0], args[1])
        case "where":
            choose: Any = np.where  # its stub types no mixed branches
            return choose(args[0], args[1], args[2])
        case "lt":
            return np.less(args[0], args[1])
        case "le":
            return np.less_equal(args[0], args[1])
        case "eq":
            return np.equal(args[0], args[1])
        case "ne":
            return np.not_equal(args[0], args[1])
        case "not":
            return np.logical_not(args[0])


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
