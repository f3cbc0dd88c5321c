"""Source text of an expression for Python, NumPy, numba and C.

Signedness and width: "python" is exact at any width; "numpy" and "numba" are right for signed 64-bit values (numba's
``//`` and ``%`` on int64 floor, as Python's); "c" states floor semantics through ``idg_floordiv`` / ``idg_mod``
(:data:`C_PRELUDE`, int64_t) except where operands are proved non-negative, where plain ``/`` and ``%`` are the same.

Expensive is a division or modulo by anything but a power of two.  ``x % d`` and ``x // d`` with ``0 <= x < 2*d``
become a compare and a select; powers of two become shifts and masks, which floor for negative numbers too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from idgraph.arith.expr import SIGNS, TRUE, ArithError, Expr, add, from_terms, mul, not_, postorder, rebuild, where
from idgraph.arith.facts import Fact, facts_of, implied
from idgraph.arith.fourier_motzkin import nonneg
from idgraph.arith.interval import interval
from idgraph.arith.linear import combine, terms
from idgraph.arith.simplify import simplify

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
            return _constant_source(node, dialect)
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
            return f"({args[0]} {SIGNS[node.op]} {args[1]})"
        case "and" | "or":
            join = {"numpy": (" & ", " | "), "c": (" && ", " || ")}.get(dialect, (" and ", " or "))
            return f"({join[node.op == 'or'].join(args)})"
        case "not":
            return f"({ {'numpy': '~', 'c': '!'}.get(dialect, 'not ') }{args[0]})"


def _constant_source(node: Expr, dialect: Dialect) -> str:
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


IntType = Literal["int32", "uint32", "int64"]
_LIMITS: dict[IntType, tuple[int, int]] = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


def expensive(e: Expr) -> int:
    """Divisions and modulos that no shift or mask can do, each distinct one once.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0)
    >>> expensive(i // 8 + i % 6 + i // symbol("n", 1))
    2
    """
    return sum(n.op in ("floordiv", "mod") and not is_power_of_two(n.args[1]) for n in postorder(e))


def is_power_of_two(d: Expr) -> bool:
    """Whether an expression is a number with one bit."""
    return d.op == "const" and d.value > 0 and d.value & (d.value - 1) == 0


def reduce_strength(e: Expr) -> Expr:
    """``e`` with compare-and-select in place of expensive divisions and modulos by ``d`` of values below ``2*d``.

    >>> from idgraph.arith import symbol
    >>> n = symbol("n", 2, multiple_of=2)
    >>> str(reduce_strength((symbol("i", 0, n - 1) + n // 2) % n))
    'where(i + n//2 < n, i + n//2, i + n//2 - n)'
    """
    done: dict[Expr, Expr] = {}
    for node in postorder(e):
        args = tuple(done[a] for a in node.args)
        new = node if all(a is b for a, b in zip(args, node.args, strict=True)) else rebuild(node, args)
        if node.op in ("floordiv", "mod") and not is_power_of_two(node.args[1]):
            new = _select_source(node, new)
        done[node] = new
    return done[e]


def _select_source(node: Expr, new: Expr) -> Expr:
    x, d = node.args
    td, cd = terms(d)
    tx, cx = terms(x)
    for k in (0, 1):  # -d <= x < d, or 0 <= x < 2*d
        low, lc = combine(((tx, cx, 1), (td, cd, 1 - k)))
        high, hc = combine(((td, cd, 1 + k), (tx, cx, -1)))
        if not (nonneg(low, lc) and nonneg(high, hc - 1) and nonneg(td, cd - 1)):
            continue
        if len(new.args) != 2:
            continue
        a, b = new.args
        if k == 0:
            return where(a < 0, -1, 0) if node.op == "floordiv" else where(a < 0, add((a, b)), a)
        if node.op == "floordiv":
            return where(a < b, 0, 1)
        return where(a < b, a, add((a, mul((-b,)))))
    return new


def integer_type(exprs: Sequence[Expr]) -> IntType | None:
    """The cheapest machine type in which every intermediate value of the printed sources is proved to fit.

    Unsigned 32-bit where nothing is ever negative, then signed 32-bit, then 64-bit; None if not even that is proved.

    >>> from idgraph.arith import symbol
    >>> integer_type([symbol("i", 0, 2**16 - 1) * 65536]), integer_type([symbol("i", -4, 9) * 4])
    ('uint32', 'int32')
    """
    for kind in ("uint32", "int32", "int64"):
        if all(fits(e, kind) for e in exprs):
            return kind
    return None


def fits(e: Expr, kind: IntType, facts: Sequence[Expr] = ()) -> bool:
    """Whether every value on the way to ``e``, partial sums, products and constants included, fits the type.

    A branch of a ``where`` counts only where its condition asks for it, all of it only where ``facts`` hold.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 9)
    >>> fits(i - 2, "uint32"), fits(i - 2, "uint32", [i >= 2])
    (False, True)
    """
    return _fits_limits(e, _LIMITS[kind], [f for c in facts for f in facts_of(c)], {})


def _fits_limits(e: Expr, limits: tuple[int, int], facts: list[Fact], seen: dict[Expr, None]) -> bool:
    """``seen`` holds what has been found to fit with no facts."""
    low, high = limits
    work = [e]
    here = seen if not facts else dict(seen)
    while work:
        node = work.pop()
        if node in here:
            continue
        here[node] = None
        if node.op == "where":
            c, a, b = node.args
            for branch, cond in ((a, c), (b, not_(c))):
                if not _fits_limits(branch, limits, [*facts, *facts_of(cond)], dict(here)):
                    return False
            work.append(c)
            continue
        # a term that is subtracted is written, and computed, without its sign
        summed = node.op == "add"
        work.extend(-a if summed and a.coef < 0 else a for a in node.args if not (summed and a.op == "const"))
        if not node.cond and not all(_lies_between(part, low, high, facts) for part in _partial(node)):
            return False
    return True


def _lies_between(part: Expr, low: int, high: int, facts: list[Fact]) -> bool:
    lo, hi = interval(part)
    t, c = terms(part)
    if (lo is None or lo < low) and not (facts and _holds((t, c - low), part >= low, facts)):
        return False
    if hi is not None and hi <= high:
        return True
    return bool(facts) and _holds(({b: -v for b, v in t.items()}, high - c), part <= high, facts)


def _holds(wanted: Fact, condition: Expr, facts: list[Fact]) -> bool:
    if implied(wanted, facts):
        return True
    return simplify(condition, facts=[from_terms(t, c) >= 0 for t, c in facts]) is TRUE


def _partial(node: Expr) -> list[Expr]:
    """The values that evaluating ``node`` makes, in the order in which sources are written."""
    out = [node]
    if node.op == "add":
        plus = [t for t in node.args if (t.value if t.op == "const" else t.coef) > 0]
        minus = [t for t in node.args if t not in plus]
        ordered = [*plus, *minus]
        out.extend(add(ordered[: k + 1]) for k in range(len(plus) and 1, len(ordered) - 1))
        out.extend(-t for t in minus)  # a term with a minus sign is written as its absolute value
    elif node.op == "mul" and len(node.args) > 2:
        out.extend(mul(node.args[:k]) for k in range(2, len(node.args)))
    return out
