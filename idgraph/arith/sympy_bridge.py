"""The only door to sympy.

Floor division and modulo travel as uninterpreted functions ``FloorDiv`` and ``Mod`` of our own: sympy's own ``Mod``
and ``floor`` evaluate some nested forms wrongly.  PyTorch's index functions are read by name, so torch is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from idgraph.arith.nodes import (
    FALSE,
    TRUE,
    VERBS,
    ArithError,
    Expr,
    add,
    and_,
    ceildiv,
    compare,
    const,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    not_,
    or_,
    postorder,
    symbol,
    where,
    xor,
)
from idgraph.arith.text import ranged_symbols
from idgraph.errors import arguments, short_repr


@cache
def _functions() -> dict[str, Any]:
    """FloorDiv, Mod, Where, Min, Max and BitXor for sympy: they fold numbers and nothing else."""
    import sympy

    def fold(name: str, count: int, value: Any) -> Any:
        def evaluate(cls: Any, *args: Any) -> Any:
            if len(args) == count and all(isinstance(a, sympy.Integer) for a in args):
                return value(*(int(a) for a in args))
            return None

        return type(name, (sympy.Function,), {"eval": classmethod(evaluate), "is_integer": True, "nargs": count})

    def divide(a: int, b: int) -> Any:
        return sympy.Integer(a // b) if b else None

    def modulo(a: int, b: int) -> Any:
        return sympy.Integer(a % b) if b else None

    def exclusive(a: int, b: int) -> Any:
        return sympy.Integer(a ^ b)

    return {
        "FloorDiv": fold("FloorDiv", 2, divide),
        "Mod": fold("Mod", 2, modulo),
        "BitXor": fold("BitXor", 2, exclusive),
        "Where": type("Where", (sympy.Function,), {"is_integer": True, "nargs": 3}),
    }


def to_sympy(e: Expr) -> Any:
    """``e`` as a sympy expression over integer symbols of the same names.

    >>> from idgraph.arith import symbol
    >>> (symbol("i") // 4 * 4).sympy()
    4*FloorDiv(i, 4)
    """
    import sympy

    kit: Any = sympy
    functions = _functions()
    done: dict[Expr, Any] = {}
    for node in postorder(e):
        args = [done[a] for a in node.args]
        match node.op:
            case "const":
                out: Any = kit.true if node is TRUE else kit.false if node is FALSE else kit.Integer(node.value)
            case "sym":
                out = kit.Symbol(node.name, integer=True)
            case "add":
                out = kit.Add(*args)
            case "mul":
                out = kit.Mul(*args)
            case "floordiv":
                out = functions["FloorDiv"](*args)
            case "mod":
                out = functions["Mod"](*args)
            case "min":
                out = kit.Min(*args)
            case "max":
                out = kit.Max(*args)
            case "where":
                out = functions["Where"](*args)
            case "xor":
                out = args[0]
                for a in args[1:]:
                    out = functions["BitXor"](out, a)
            case "lt":
                out = kit.StrictLessThan(*args)
            case "le":
                out = kit.LessThan(*args)
            case "eq":
                out = kit.Eq(*args)
            case "ne":
                out = kit.Ne(*args)
            case "and":
                out = kit.And(*args)
            case "or":
                out = kit.Or(*args)
            case "not":
                out = kit.Not(args[0])
        done[node] = out
    return done[e]


def is_sympy(x: object) -> bool:
    """Whether ``x`` is a sympy object, without importing sympy."""
    return any(c.__module__.startswith("sympy.") and c.__name__ == "Basic" for c in type(x).__mro__)


@arguments(ArithError)
def from_sympy(x: Any, ranges: Mapping[str, Any] | None = None) -> Expr:
    """A sympy tree as an expression: its arithmetic, ``floor(a/b)``, ``Mod``, ``Min``, ``Max``, ``Piecewise``,
    relations, and PyTorch's FloorDiv, ModularIndexing, CleanDiv, CeilDiv, PythonMod, Where, Identity.

    Raises ArithError for what has no exact integer meaning.

    >>> import sympy
    >>> i = sympy.Symbol("i", integer=True)
    >>> str(from_sympy(sympy.floor(i / 4) * 4 + sympy.Mod(i, 4)))
    'i//4*4 + i%4'
    """
    if not is_sympy(x):
        raise ArithError(f"{short_repr(x)} is not a sympy expression", hint="ig.simplify takes text, sympy or numbers")
    scope = ranged_symbols(ranges)
    done: dict[Any, Expr] = {}
    work: list[Any] = [x]
    while work:
        node = work[-1]
        if node in done:
            work.pop()
            continue
        wanted = _children(node)
        missing = [a for a in wanted if a not in done]
        if missing:
            work.extend(missing)
            continue
        done[node] = _read(node, [done[a] for a in wanted], scope)
        work.pop()
    return done[x]


def _children(node: Any) -> list[Any]:
    """The operands to read first; a floor of a quotient is read as numerator and denominator."""
    name = type(node).__name__
    if name == "floor" or name == "ceiling":
        numerator, denominator = node.args[0].together().as_numer_denom()
        return [numerator, denominator]
    if name == "Piecewise":
        return [part for pair in node.args for part in pair.args]
    if name == "Pow":
        return [node.args[0]]
    return list(node.args)


def _read(node: Any, args: list[Expr], scope: dict[str, Expr]) -> Expr:
    name = type(node).__name__
    if getattr(node, "is_Symbol", False):
        return _symbol(node, scope)
    if getattr(node, "is_Integer", False):
        return const(int(node))
    match name, args:
        case ("BooleanTrue", _):
            return TRUE
        case ("BooleanFalse", _):
            return FALSE
        case ("Add", _):
            return add(args)
        case ("Mul", _):
            return mul(args)
        case ("Pow", [base]):
            return _power(node, base)
        case ("FloorDiv" | "CleanDiv" | "IntTrueDiv" | "PythonFloorDiv" | "floor", [a, b]):
            return floordiv(a, b)
        case ("CeilDiv" | "ceiling", [a, b]):
            return ceildiv(a, b)
        case ("Mod" | "PythonMod", [a, b]):
            return mod(a, b)
        case ("ModularIndexing", [a, b, c]):
            return mod(floordiv(a, b), c)
        case ("Min", _):
            return minimum(*args)
        case ("Max", _):
            return maximum(*args)
        case ("BitXor" | "BitwiseFn_bitwise_xor", [a, b]):
            return xor(a, b)
        case ("Where", [c, a, b]):
            return where(c, a, b)
        case ("Identity" | "ToInt", [a]):
            return a
        case ("Abs", [a]):
            return abs(a)
        case ("Piecewise", _):
            return _piecewise(node, args)
        case _:
            return _relation(node, name, args)


def _symbol(node: Any, scope: dict[str, Expr]) -> Expr:
    if node.is_integer is False:
        raise ArithError(f"sympy symbol {node} is not an integer")
    found = scope.get(node.name)
    if found is None:
        lo = 1 if node.is_positive else 0 if node.is_nonnegative else None
        hi = -1 if node.is_negative else 0 if node.is_nonpositive else None
        found = scope[node.name] = symbol(node.name, lo, hi)
    return found


def _power(node: Any, base: Expr) -> Expr:
    exponent = node.args[1]
    if not getattr(exponent, "is_Integer", False) or not 0 <= int(exponent) <= 64:
        raise ArithError(f"sympy power {node} has no exact integer meaning here", hint="wrap a quotient in floor()")
    return mul([base] * int(exponent)) if int(exponent) else const(1)


def _piecewise(node: Any, args: list[Expr]) -> Expr:
    if args[-1] is not TRUE:
        raise ArithError(f"sympy {node} has no value where none of its conditions holds")
    out = args[-2]
    for k in range(len(args) - 4, -1, -2):
        out = where(args[k + 1], args[k], out)
    return out


def _relation(node: Any, name: str, args: list[Expr]) -> Expr:
    match name, args:
        case ("StrictLessThan", [a, b]):
            return compare("lt", a, b)
        case ("LessThan", [a, b]):
            return compare("le", a, b)
        case ("StrictGreaterThan", [a, b]):
            return compare("lt", b, a)
        case ("GreaterThan", [a, b]):
            return compare("le", b, a)
        case ("Equality", [a, b]):
            return compare("eq", a, b)
        case ("Unequality", [a, b]):
            return compare("ne", a, b)
        case ("And", _):
            return and_(*args)
        case ("Or", _):
            return or_(*args)
        case ("Not", [a]):
            return not_(a)
        case _:
            raise ArithError(f"sympy {name} has no integer index meaning", because=(f"in {node}",))


VERBS.sympy = to_sympy
