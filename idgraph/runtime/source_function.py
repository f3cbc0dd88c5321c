"""Generated source as functions."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable
from functools import reduce
from types import CodeType
from typing import Any

from idgraph.errors import EmitError
from idgraph.loading import with_trees

CONVERSIONS = frozenset(("f32", "f64", "i64", "u32", "u64"))


PURE = (ast.Add, ast.Sub, ast.Mult, ast.BitAnd)


class _Typed(ast.NodeTransformer):
    """Numbers of one type, ``u32(6)``, as names of values: a compiler types and lowers each call, a value for nothing.

    Where a target has a ``select``, choices between values that are there anyway, and tests joined by ``and`` that
    always have a value, do not branch: numba looks through all of a function once more for each variable that it
    finds two definitions of. ``values`` are the values by name.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.values: dict[str, Any] = {}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A conversion of a number becomes a name; other calls keep theirs inside."""
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id=kind), args=[number], keywords=[]) if kind in CONVERSIONS:
                return self.named(node, kind, number)
            case _:
                return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """A choice between names or numbers becomes a call."""
        self.generic_visit(node)
        if "select" not in self.names or not (_is_there(node.body) and _is_there(node.orelse)):
            return node
        call = ast.Call(ast.Name("select", ast.Load()), [node.test, node.body, node.orelse], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Comparisons that all have a value are taken together."""
        self.generic_visit(node)
        if "select" not in self.names or not isinstance(node.op, ast.And) or not all(map(_is_test, node.values)):
            return node
        tests = reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), node.values)
        return ast.fix_missing_locations(ast.copy_location(tests, node))

    def named(self, node: ast.Call, kind: str, number: ast.expr) -> ast.expr:
        match number:
            case ast.Constant(value=int() | float() as value):
                sign = ""
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                value, sign = -value, "minus_"
            case _:
                return node
        name = f"{kind}_{sign}{abs(value)!r}"  # not an identifier where there is a point: no name of the source's
        self.values[name] = self.names[kind](value)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _is_there(node: ast.expr) -> bool:
    """Whether this needs no memory and no arithmetic: a name, a number, a choice between such."""
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.Call(func=ast.Name(id="select"), args=args):
            return _is_test(args[0]) and all(map(_is_there, args[1:]))
        case _:
            return False


def _is_test(node: ast.expr) -> bool:
    """Whether this is a comparison of numbers, which reads no memory and divides by nothing."""
    match node:
        case ast.Compare(left=left, comparators=[right]):
            return _is_arithmetic(left) and _is_arithmetic(right)
        case ast.BinOp(op=ast.BitAnd(), left=left, right=right):
            return _is_test(left) and _is_test(right)
        case _:
            return False


def _is_arithmetic(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.BinOp(op=op, left=left, right=right):
            return isinstance(op, PURE) and _is_arithmetic(left) and _is_arithmetic(right)
        case ast.Call(func=ast.Name(id=kind), args=[number], keywords=[]):
            return kind in CONVERSIONS and _is_arithmetic(number)
        case _:
            return False


def _code(source: str, file: str, names: dict[str, Any]) -> CodeType:
    """The compiled source; ``names`` gets the numbers that stand in it."""
    typed = _Typed(names)
    code = with_trees(lambda: compile(typed.visit(ast.parse(source, file)), file, "exec"))
    names.update(typed.values)
    return code


def function_of(source: str, name: str, names: dict[str, Any], target: str) -> Callable[..., Any]:
    """Run generated source, made of this package's own tokens only, and return its function.

    The text stands in `linecache`, so that tracebacks and numba show its lines.

    >>> import numpy as np
    >>> f = function_of("def f(x): return f32(x + f32(-0.0))", "f", {"f32": np.float32}, "cpu")
    >>> f(np.float32(2.0)), f.__code__.co_names
    (np.float32(2.0), ('f32', 'f32_minus_0.0'))
    """
    file = f"<idgraph {target} {name} {abs(hash(source)):x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    code = _code(source, file, names)
    exec(code, names)  # noqa: S102  # no user text: names are numbered, comments are quoted
    found = names[name]
    if not callable(found):
        raise EmitError(f"{name} is not a function")
    return found
