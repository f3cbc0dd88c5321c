"""The only door to sympy.

Floor division and modulo travel as uninterpreted functions ``FloorDiv`` and ``Mod`` of our own: sympy's own ``Mod``
and ``floor`` evaluate some nested forms wrongly.  PyTorch's index functions are read by name, so torch is not imported.

Index expressions as other compilers write them: MLIR's affine maps and sets, TVM's index maps.

`floordiv`/`//` and `mod`/`%` floor in both, as they do here. An affine map has sums, products with a constant
or a symbol, and divisions by one that is positive; any other operation is refused by name. (MLIR, *Affine dialect*,
sections "Affine expressions" and "Semi-affine maps"; TVM, `tir.IndexMap`.)
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from typing import Any, Final

from idgraph.arith.evaluate import ROUNDINGS, integer_parts, round_to_integer
from idgraph.arith.expr import (
    FALSE,
    SIGNS,
    TRUE,
    VERBS,
    ArithError,
    Comparison,
    Expr,
    IntLike,
    add,
    and_,
    as_expr,
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
from idgraph.arith.interval import interval
from idgraph.arith.text import ranged_symbols
from idgraph.errors import arguments, short_repr


@cache
def _sympy_functions() -> dict[str, Any]:
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


_SYMPY: Final = {
    "add": "Add", "mul": "Mul", "floordiv": "FloorDiv", "mod": "Mod", "min": "Min", "max": "Max", "where": "Where",
    "lt": "StrictLessThan", "le": "LessThan", "eq": "Eq", "ne": "Ne", "and": "And", "or": "Or", "not": "Not",
}  # fmt: skip


def to_sympy(e: Expr) -> Any:
    """``e`` as a sympy expression over integer symbols of the same names.

    >>> from idgraph.arith import symbol
    >>> (symbol("i") // 4 * 4).sympy()
    4*FloorDiv(i, 4)
    """
    import sympy

    kit: Any = sympy
    functions = _sympy_functions()
    done: dict[Expr, Any] = {}
    for node in postorder(e):
        args = [done[a] for a in node.args]
        match node.op:
            case "const":
                out: Any = kit.true if node is TRUE else kit.false if node is FALSE else kit.Integer(node.value)
            case "sym":
                out = kit.Symbol(node.name, integer=True)
            case "xor":
                out = reduce(functions["BitXor"], args)
            case op:
                out = (functions.get(_SYMPY[op]) or getattr(kit, _SYMPY[op]))(*args)
        done[node] = out
    return done[e]


def is_sympy(x: object) -> bool:
    """Whether ``x`` is a sympy object, without importing sympy."""
    return any(c.__module__.startswith("sympy.") and c.__name__ == "Basic" for c in type(x).__mro__)


@arguments(ArithError)
def from_sympy(x: Any, ranges: Mapping[str, Any] | None = None) -> Expr:
    """A sympy tree as an expression: its arithmetic, ``floor(a/b)``, ``Mod``, ``Min``, ``Max``, ``Piecewise``,
    relations, and PyTorch's FloorDiv, ModularIndexing, CleanDiv, CeilDiv, PythonMod, Where, Identity, CeilToInt,
    FloorToInt, TruncToInt.

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
        done[node] = _from_sympy_node(node, [done[a] for a in wanted], scope)
        work.pop()
    return done[x]


def replace_roundings(x: Any, names: dict[Any, str]) -> Any:
    """``x`` with symbols for the whole numbers in it that `from_sympy` has no expression of, because floats are rounded
    on the way to them; ``names`` gets what each symbol stands for."""
    import sympy

    if type(x).__name__ in ROUNDINGS | {"RoundToInt"}:
        try:
            from_sympy(x)
        except ArithError:
            return sympy.Symbol(names.setdefault(x, f"rounded{len(names)}"), integer=True, nonnegative=True)
        return x
    return x.func(*(replace_roundings(a, names) for a in x.args)) if x.args else x


def _children(node: Any) -> list[Any]:
    """The operands to read first; a floor of a quotient is read as numerator and denominator."""
    name = type(node).__name__
    if name == "floor" or name == "ceiling":
        numerator, denominator = node.args[0].together().as_numer_denom()
        return [numerator, denominator]
    if name in ROUNDINGS:
        return integer_parts(node.args[0])
    if name == "Piecewise":
        return [part for pair in node.args for part in pair.args]
    if name == "Pow":
        return [node.args[0]]
    return list(node.args)


def _from_sympy_node(node: Any, args: list[Expr], scope: dict[str, Expr]) -> Expr:
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
        case ("FloorDiv" | "CleanDiv" | "PythonFloorDiv" | "floor", [a, b]):
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
        case _ if name in ROUNDINGS:
            return round_to_integer(node, dict(zip(integer_parts(node.args[0]), args, strict=True)))
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


_RELATIONS: Final[Mapping[str, Comparison]] = {
    "StrictLessThan": "lt", "LessThan": "le", "StrictGreaterThan": "gt", "GreaterThan": "ge", "Equality": "eq",
    "Unequality": "ne",
}  # fmt: skip
_JUNCTIONS: Final = {"And": and_, "Or": or_, "Not": not_}


def _relation(node: Any, name: str, args: list[Expr]) -> Expr:
    if name in _RELATIONS:
        return compare(_RELATIONS[name], *args)
    if name in _JUNCTIONS:
        return _JUNCTIONS[name](*args)
    raise ArithError(f"sympy {name} has no integer index meaning", because=(f"in {node}",))


VERBS.sympy = to_sympy


_ATOM, _PRODUCT, _SUM = 3, 2, 1  # how tightly a piece of affine text binds


def affine_map(dims: Sequence[str], results: Iterable[IntLike], symbols: Sequence[str] = ()) -> str:
    """``affine_map<(d0, ...)[s0, ...] -> (...)>``: name ``dims[k]`` becomes ``dk``, ``symbols[k]`` becomes ``sk``.

    Raises ArithError for what an affine map cannot say (xor, min, max, where, a product of two dims, a divisor that is
    not proved positive) and for a name that is neither.

    >>> from idgraph.arith import symbol
    >>> i, j, n = symbol("i", 0, 63), symbol("j"), symbol("n", 1)
    >>> affine_map(["i", "j"], [i // 8, i % 8 + j * n - 3], ["n"])
    'affine_map<(d0, d1)[s0] -> (d0 floordiv 8, d0 mod 8 + d1 * s0 - 3)>'
    """
    head, names = _head(dims, symbols)
    return f"affine_map<{head} -> ({', '.join(_affine(as_expr(x), names) for x in results)})>"


def affine_set(dims: Sequence[str], conditions: Iterable[Expr], symbols: Sequence[str] = ()) -> str:
    """``affine_set<(d0, ...)[s0, ...] : (... >= 0, ... == 0)>``: where all conditions hold.

    Comparisons joined by ``&`` become constraints; ``|``, ``!=`` and negations have no affine set and raise ArithError.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 63)
    >>> affine_set(["i"], [(i >= 2) & (i < 12)])
    'affine_set<(d0) : (d0 - 2 >= 0, d0 * -1 + 11 >= 0)>'
    >>> affine_set(["i"], [])
    'affine_set<(d0) : (0 == 0)>'
    """
    head, names = _head(dims, symbols)
    constraints = [text for c in conditions for text in _constraints(c, names)]
    return f"affine_set<{head} : ({', '.join(constraints) or '0 == 0'})>"


def tvm_index_map(dims: Sequence[str], results: Iterable[IntLike]) -> str:
    """``lambda i, j: [...]`` for ``tvm.tir.IndexMap.from_func``; other names in it are variables of the reader.

    ``min``, ``max``, ``where`` and conditions are written as functions of ``T``, TVM's script module. Raises
    ArithError for a name that Python would not take.

    >>> from idgraph.arith import symbol, where
    >>> i = symbol("i", 0, 63)
    >>> tvm_index_map(["i"], [i // 8, where(i < 32, i, 0)])
    'lambda i: [(i // 8), T.if_then_else((i < 32), i, 0)]'
    """
    for name in dims:
        _identifier(name)
    return f"lambda {', '.join(dims)}: [{', '.join(_tvm(as_expr(x)) for x in results)}]"


# affine ---------------------------------------------------------------------------------------------------------------


def _head(dims: Sequence[str], symbols: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The text before the arrow, and what each name is called in it."""
    names = {name: f"d{k}" for k, name in enumerate(dims)} | {name: f"s{k}" for k, name in enumerate(symbols)}
    if len(names) != len(dims) + len(symbols):
        raise ArithError(f"a name stands twice among dims {list(dims)} and symbols {list(symbols)}")
    of_dims = ", ".join(f"d{k}" for k in range(len(dims)))
    of_symbols = ", ".join(f"s{k}" for k in range(len(symbols)))
    return f"({of_dims})[{of_symbols}]" if symbols else f"({of_dims})", names


def _affine(x: Expr, names: Mapping[str, str]) -> str:
    done: dict[Expr, tuple[str, int]] = {}
    order = postorder(x)
    for node in reversed(order):  # the outermost first: `where` is to blame, not its condition
        if node.op not in ("const", "sym", "add", "mul", "floordiv", "mod"):
            raise _not_affine(node, f"uses {node.op}")
    for node in order:
        done[node] = _affine_node(node, names, done)
    return done[x][0]


def _affine_node(node: Expr, names: Mapping[str, str], done: Mapping[Expr, tuple[str, int]]) -> tuple[str, int]:
    match node.op:
        case "const":
            return str(node.value), _ATOM
        case "sym":
            if node.name not in names:
                raise ArithError(
                    f"affine map: {node.name} is neither a dimension nor a symbol of the map",
                    hint="look a loaded value up before the map; a symbol belongs in symbols=",
                )
            return names[node.name], _ATOM
        case "add":
            return _affine_sum(node, done), _SUM
        case "mul":
            if sum(not _symbolic(a, names) for a in node.args) > 1:
                raise _not_affine(node, "is a product of two dimensions")
            last = [a for a in node.args if a.op == "const"]
            factors = [a for a in node.args if a.op != "const" and not _symbolic(a, names)]
            factors += [a for a in node.args if a.op != "const" and _symbolic(a, names)] + last
            return " * ".join(
                [_at_least(done[factors[0]], _PRODUCT), *(_tight(done[a]) for a in factors[1:])]
            ), _PRODUCT
        case "floordiv" | "mod":
            x, divisor = node.args
            lo, _ = interval(divisor)
            if not _symbolic(divisor, names) or lo is None or lo < 1:
                raise _not_affine(node, f"divides by {divisor}, no constant or symbol that is proved positive")
            return f"{_at_least(done[x], _PRODUCT)} {node.op} {_tight(done[divisor])}", _PRODUCT
        case _:
            raise _not_affine(node, "is not affine")


def _affine_sum(node: Expr, done: Mapping[Expr, tuple[str, int]]) -> str:
    text = ""
    for a in sorted(node.args, key=lambda a: a.op == "const"):
        piece = done[a][0]
        if not text:
            text = piece
        elif a.op == "const" and a.value < 0:
            text += f" - {-a.value}"
        else:
            text += f" + {piece}"
    return text


def _at_least(piece: tuple[str, int], level: int) -> str:
    return piece[0] if piece[1] >= level else f"({piece[0]})"


def _tight(piece: tuple[str, int]) -> str:
    return _at_least(piece, _ATOM)


def _symbolic(x: Expr, names: Mapping[str, str]) -> bool:
    """Constants and symbols only: what a semi-affine expression may multiply or divide by."""
    return all(names.get(name, "d").startswith("s") for name in x.names)


def _not_affine(node: Expr, why: str) -> ArithError:
    return ArithError(f"affine map: {node} {why}", hint="TVM's index maps (tvm_index_map) and sympy can say it")


def _constraints(c: Expr, names: Mapping[str, str]) -> list[str]:
    match c.op:
        case "and":
            return [text for a in c.args for text in _constraints(a, names)]
        case "lt":
            return [f"{_affine(c.args[1] - c.args[0] - 1, names)} >= 0"]
        case "le":
            return [f"{_affine(c.args[1] - c.args[0], names)} >= 0"]
        case "eq":
            return [f"{_affine(c.args[0] - c.args[1], names)} == 0"]
        case "const":
            return [] if c.value else ["-1 >= 0"]
        case _:
            raise ArithError(
                f"affine set: {c} is not a conjunction of comparisons", hint="write one set for each alternative"
            )


# TVM ------------------------------------------------------------------------------------------------------------------

_CALL: Final = {"min": "T.min", "max": "T.max", "and": "T.And", "or": "T.Or", "not": "T.Not", "where": "T.if_then_else"}


def _tvm(x: Expr) -> str:
    done: dict[Expr, str] = {}
    for node in postorder(x):
        args = [done[a] for a in node.args]
        if node.op == "const":
            done[node] = str(bool(node.value)) if node.cond else str(node.value)
        elif node.op == "sym":
            done[node] = _identifier(node.name)
        elif node.op in SIGNS:
            done[node] = f"({f' {SIGNS[node.op]} '.join(args)})"
        else:
            done[node] = _nested(_CALL[node.op], args)
    return done[x]


def _nested(call: str, args: list[str]) -> str:
    """A call of two operands at a time, where more are joined."""
    text = args[-1]
    if call in ("T.min", "T.max", "T.And", "T.Or"):
        for a in reversed(args[:-1]):
            text = f"{call}({a}, {text})"
        return text
    return f"{call}({', '.join(args)})"


def _identifier(name: str) -> str:
    if name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and name != "T":
        return name
    raise ArithError(f"index map: {name!r} is not a name that Python takes", hint="rename the symbol")
