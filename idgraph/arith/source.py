"""Source text of an expression for Python, NumPy, numba and C.

Signedness and width: "python" is exact at any width; "numpy" and "numba" are right for signed 64-bit values (numba's
``//`` and ``%`` on int64 floor, as Python's); "c" states floor semantics through ``idg_floordiv`` / ``idg_mod``
(:data:`C_PRELUDE`, int64_t) except where operands are proved non-negative, where plain ``/`` and ``%`` are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from idgraph.arith.nodes import ArithError, Expr, postorder
from idgraph.arith.ranges import interval

Dialect = Literal["python", "numpy", "numba", "c"]

C_PRELUDE: Final = """\
static inline int64_t idg_floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t idg_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
"""


def to_source(e: Expr, dialect: Dialect = "python", rename: Mapping[str, str] | None = None) -> str:
    """Fully parenthesised source of ``e``; ``rename`` maps symbol names to source names.

    A name that is not an ASCII identifier must be renamed: no user text reaches source unquoted.

    >>> from idgraph.arith import symbol, where
    >>> i = symbol("i", 0, 63)
    >>> to_source(where(i < 32, i + 32, i - 32), "numpy", {"i": "v0"})
    'np.where((v0 < 32), (v0 + 32), (v0 - 32))'
    """
    if dialect not in ("python", "numpy", "numba", "c"):
        raise ArithError(f"unknown dialect {dialect!r}", hint='use "python", "numpy", "numba" or "c"')
    names = rename or {}
    done: dict[Expr, str] = {}
    for node in postorder(e):
        done[node] = node_source(node, [done[a] for a in node.args], dialect, names)
    return done[e]


def source_name(name: str, names: Mapping[str, str]) -> str:
    """The identifier that stands for a symbol."""
    text = names.get(name, name)
    if not (text.isidentifier() and text.isascii()):
        raise ArithError(f"symbol name {name!r} is not a source identifier", hint="pass rename={name: identifier}")
    return text


def node_source(node: Expr, args: list[str], dialect: Dialect, names: Mapping[str, str]) -> str:
    """The source of one node, given its operands\' sources."""
    match node.op:
        case "const":
            return _constant(node, dialect)
        case "sym":
            return source_name(node.name, names)
        case "add":
            return _sum(node, args)
        case "mul":
            return f"(-{args[1]})" if node.coef == -1 and len(args) == 2 else f"({' * '.join(args)})"
        case "floordiv" | "mod":
            return _division(node, args, dialect)
        case "min" | "max":
            return _extremum(node.op, args, dialect)
        case "xor":
            return f"({' ^ '.join(args)})"
        case "where":
            if dialect == "numpy":
                return f"np.where({args[0]}, {args[1]}, {args[2]})"
            if dialect == "c":
                return f"({args[0]} ? {args[1]} : {args[2]})"
            return f"({args[1]} if {args[0]} else {args[2]})"
        case "lt" | "le" | "eq" | "ne":
            sign = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[node.op]
            return f"({args[0]} {sign} {args[1]})"
        case "and" | "or":
            join = {"numpy": (" & ", " | "), "c": (" && ", " || ")}.get(dialect, (" and ", " or "))
            return f"({join[node.op == 'or'].join(args)})"
        case "not":
            return f"({ {'numpy': '~', 'c': '!'}.get(dialect, 'not ') }{args[0]})"


def _constant(node: Expr, dialect: Dialect) -> str:
    if node.cond:
        return ("1" if node.value else "0") if dialect == "c" else str(bool(node.value))
    text = str(node.value)
    if dialect == "c" and not -(2**31) < node.value < 2**31:
        text += "LL"
    return f"({text})" if node.value < 0 else text


def _sum(node: Expr, args: list[str]) -> str:
    """Positive terms first, so that a difference reads (and costs) as one subtraction."""
    out = ""
    negative: list[str] = []
    for t, text in zip(node.args, args, strict=True):
        if t.op == "const" and t.value < 0:
            negative.append(str(-t.value))
        elif t.coef == -1 and text.startswith("(-") and len(t.args) == 2:
            negative.append(text[2:-1])  # "(-x)"
        else:
            out = f"{out} + {text}" if out else text
    if not out:
        out, negative = f"(-{negative[0]})", negative[1:]
    return f"({out}{''.join(f' - {n}' for n in negative)})"


def _division(node: Expr, args: list[str], dialect: Dialect) -> str:
    if dialect == "c":
        floor = node.op == "floordiv"
        (lo, _), (low, _) = interval(node.args[0]), interval(node.args[1])
        if lo is not None and lo >= 0 and low is not None and low >= 0:
            return f"({args[0]} {'/' if floor else '%'} {args[1]})"
        return f"{'idg_floordiv' if floor else 'idg_mod'}({args[0]}, {args[1]})"
    return f"({args[0]} {'//' if node.op == 'floordiv' else '%'} {args[1]})"


def _extremum(op: str, args: list[str], dialect: Dialect) -> str:
    if dialect == "python" or dialect == "numba":
        return f"{op}({', '.join(args)})"
    out = args[0]
    for a in args[1:]:
        if dialect == "numpy":
            out = f"np.{op}imum({out}, {a})"
        else:
            out = f"({out} {'<' if op == 'min' else '>'} {a} ? {out} : {a})"
    return out
