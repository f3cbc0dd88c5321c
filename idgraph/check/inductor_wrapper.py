"""The wrapper that Inductor generates: which kernels it calls, with which buffers. Its text is parsed, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from idgraph.arith import ArithError, Expr, parse, simplify, symbol
from idgraph.check.program import ZERO, CheckError
from idgraph.loading import with_trees

LARGEST = 8 << 20  # characters of source


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that a wrapper passes: a buffer from an offset on, or a number."""

    buffer: str = ""
    offset: Expr = ZERO
    number: Expr | None = None
    before: str = ""  # the buffer that had this memory before
    start: Expr = ZERO  # where that one's memory it begins
    item: bool = False  # its one value, not its address


@dataclass(frozen=True, slots=True)
class WrapperLaunch:
    """One call of a kernel by the wrapper: its name, its source, its arguments in order."""

    kernel: str
    source: str
    arguments: tuple[Argument, ...]


def parse_source(text: str) -> ast.Module:
    """The tree of a source text; raises `CheckError` for what is not Python."""
    if len(text) > LARGEST:
        raise CheckError(f"the source has more than {LARGEST} characters")
    try:
        return with_trees(lambda: ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CheckError(f"the source is not Python: {type(error).__name__}") from None


def launches(text: str, symbols: Mapping[str, Expr] | None = None) -> list[WrapperLaunch]:
    """The kernels that a wrapper calls, in order; ``symbols`` are sizes by name. Nothing is executed."""
    tree = parse_source(text)
    sources: dict[str, str] = {}
    found: list[WrapperLaunch] = []
    aliases: dict[str, Argument] = {}
    scope = dict(symbols or {})
    for node in _statements(tree.body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
            source = _kernel_source(value)
            if source is not None:
                sources[name] = source
            elif isinstance(value, ast.Name) and value.id != name:
                aliases[name] = Argument(value.id)
            elif isinstance(value, ast.Call) and name_of(value.func) == "reinterpret_tensor":
                aliases[name] = _argument(value, {}, scope)
            else:
                number = _size_of_node(value, scope)
                if number is not None:
                    scope[name] = number
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "run":
            kernel = name_of(call.func.value)
            if kernel in sources:
                given = tuple(_argument(a, aliases, scope) for a in call.args)
                found.append(WrapperLaunch(kernel, sources[kernel], given))
    return found


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements in their order, those of functions, classes and with blocks too."""
    for s in body:
        yield s
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(s, part, ()))


def _kernel_source(value: ast.expr) -> str | None:
    if not isinstance(value, ast.Call) or name_of(value.func) != "triton" or len(value.args) < 2:
        return None
    text = value.args[1]
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None


def name_of(f: ast.expr) -> str:
    """The last part of a dotted name."""
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def _size_of_node(node: ast.expr, scope: Mapping[str, Expr]) -> Expr | None:
    """A size: an integer, a symbol, or arithmetic of them."""
    try:
        found = parse(ast.unparse(node))
    except (ArithError, ValueError, RecursionError):
        return None
    if found.cond or not found.names <= scope.keys():
        return None
    return simplify(found.substitute({n: scope[n] for n in found.names}))


def _argument(node: ast.expr, aliases: Mapping[str, Argument], scope: Mapping[str, Expr]) -> Argument:
    if isinstance(node, ast.Name):
        number = scope.get(node.id)
        if number is not None:
            return Argument(number=number)
        start, root = ZERO, aliases.get(node.id)
        while root is not None and root.buffer in aliases:
            start, root = start + root.offset, aliases[root.buffer]
        return Argument(node.id) if root is None else Argument(node.id, ZERO, None, root.buffer, start + root.offset)
    if isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor" and len(node.args) >= 3:
        base = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
        offset = _size_of_node(node.args[3], scope) if len(node.args) > 3 else ZERO
        return Argument(base, offset if offset is not None else symbol(f"offset of {base}"))
    if isinstance(node, ast.Call) and name_of(node.func) == "item" and isinstance(node.func, ast.Attribute):
        return Argument(name_of(node.func.value), item=True)
    return Argument(number=_size_of_node(node, scope))
