"""The text form of expressions: Python syntax, printed and read back without ever evaluating it.

``//`` and ``%`` floor, ``^`` is xor, ``min max where(c, a, b)`` are functions, ``&`` and ``|`` join conditions.
A symbol whose name is not a plain identifier is written between backquotes.

Long: the printer and the reader share one table of functions and signs, and each is the other's test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from idgraph.arith.expr import (
    FALSE,
    SIGNS,
    TRUE,
    VERBS,
    ArithError,
    Comparison,
    Expr,
    IntLike,
    Range,
    add,
    add2,
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
    mul2,
    not_,
    or_,
    symbol,
    where,
    xor,
)
from idgraph.errors import did_you_mean

MAX_TEXT: Final = 1_000_000
SHORT: Final = 500  # nodes of an expression whose text is cached
MAX_NESTING: Final = 500
MAX_DIGITS: Final = 4000

RangeLike = int | str | Expr | Range | range | Sequence[int | str | Expr | None]
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Expr], int]]] = {  # with the number of operands, 0: any
    "min": (minimum, 0), "max": (maximum, 0), "where": (where, 3), "xor": (xor, 0), "ceildiv": (ceildiv, 2),
    "floordiv": (floordiv, 2),
}  # fmt: skip
_WORDS: Final = {"and": "&", "or": "|", "not": "~"}
_PLAIN: Final = re.compile(r"[^\W\d][\w.]*\Z")
_NUMBER, _NAME, _QUOTED, _SIGN = 1, 2, 3, 4  # groups of the pattern; a fifth is a character that fits nowhere
_TOKEN: Final = re.compile(r"\s*(?:(\d+)|([^\W\d][\w.]*)|`([^`]+)`|(//|<=|>=|==|!=|[-+*%^&|~<>(),])|(\S))")


# ---- printing ------------------------------------------------------------------------------------------------
# Binding strength of a printed node; an operand that binds less than its place is parenthesised.
_ATOM, _UNARY, _PRODUCT, _SUM, _XOR, _COMPARE, _AND, _OR = range(8)


def to_text(e: Expr) -> str:
    """The printed form, Python syntax with the same meaning.

    >>> from idgraph.arith import symbol, where
    >>> i = symbol("i")
    >>> to_text(where(i < 4, 8 - i, i % 4 * 32))
    'where(i < 4, 8 - i, i%4*32)'
    """
    if e.key[1] > MAX_TEXT:
        raise ArithError("the expression is too large to print as a tree", hint="print shared parts on their own")
    return _short_text(e) if e.key[1] <= SHORT else _text(e)


@lru_cache(maxsize=4096)  # kernels are printed after each pass, and few of their indices differ
def _short_text(e: Expr) -> str:
    return _text(e)


def _text(e: Expr) -> str:
    done: dict[Expr, tuple[str, int]] = {}
    work = [e]
    while work:
        node = work[-1]
        if node in done:
            work.pop()
            continue
        missing = [a for a in node.args if a not in done]
        if node.base is not None and node.base not in done:
            missing.append(node.base)
        if missing:
            work.extend(missing)
            continue
        done[node] = _print(node, done)
        work.pop()
    return done[e][0]


def _wrap(part: tuple[str, int], limit: int) -> str:
    return part[0] if part[1] <= limit else f"({part[0]})"


def symbol_text(name: str) -> str:
    """A symbol's name, between backquotes unless it is a plain identifier."""
    if _PLAIN.match(name) and name not in _FUNCTIONS and name not in _WORDS and name not in ("True", "False"):
        return name
    return f"`{name}`"


def _print(node: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    args = [done[a] for a in node.args]
    match node.op:
        case "const":
            if node.cond:
                return (str(bool(node.value)), _ATOM)
            return (str(node.value), _ATOM if node.value >= 0 else _UNARY)
        case "sym":
            return (symbol_text(node.name), _ATOM)
        case "add":
            return (_print_sum(node, done), _SUM)
        case "mul":
            return _print_product(node, done)
        case "floordiv" | "mod":
            left = args[0] if args[0][1] != _UNARY else (f"({args[0][0]})", _ATOM)
            return (f"{_wrap(left, _PRODUCT)}{SIGNS[node.op]}{_wrap(args[1], _ATOM)}", _PRODUCT)
        case "min" | "max" | "where":
            return (f"{node.op}({', '.join(a[0] for a in args)})", _ATOM)
        case "xor":
            return (" ^ ".join(_wrap(a, _UNARY) for a in args), _XOR)
        case "lt" | "le" | "eq" | "ne":
            if node.op in ("lt", "le") and node.args[0].op == "const":  # `0 < i` reads better as `i > 0`
                return (f"{_wrap(args[1], _SUM)} {'>' if node.op == 'lt' else '>='} {args[0][0]}", _COMPARE)
            return (f"{_wrap(args[0], _SUM)} {SIGNS[node.op]} {_wrap(args[1], _SUM)}", _COMPARE)
        case "and" | "or":
            sign = " & " if node.op == "and" else " | "
            return (sign.join(_wrap(a, _ATOM) for a in args), _AND if node.op == "and" else _OR)
        case "not":
            return (f"~({args[0][0]})", _UNARY)


def _print_product(node: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    if node.coef == -1 and node.base is not None:
        return (f"-{_wrap(done[node.base], _ATOM)}", _UNARY)
    factors = node.args[1:] if node.base is not None else node.args
    # a quotient may stand first without parentheses only: i//4*n, but n*(i//4)
    ordered = sorted(factors, key=lambda a: a.op not in ("floordiv", "mod"))
    texts = [_wrap(done[ordered[0]], _PRODUCT)] + [_wrap(done[a], _ATOM) for a in ordered[1:]]
    if node.base is not None:
        texts.append(str(node.coef))
    return ("*".join(texts), _PRODUCT)


def _print_sum(node: Expr, done: dict[Expr, tuple[str, int]]) -> str:
    plus: list[str] = []
    minus: list[str] = []
    for t in node.args:
        value = t.value if t.op == "const" else t.coef
        if value > 0:
            plus.append(_wrap(done[t], _PRODUCT))
        elif t.op == "const":
            minus.append(str(-t.value))
        elif value == -1 and t.base is not None:
            minus.append(_wrap(done[t.base], _PRODUCT))
        elif t.base is not None:
            text = _print_product_abs(t, done)
            minus.append(text)
    if plus:
        return " + ".join(plus) + "".join(f" - {m}" for m in minus)
    first = next((t for t in node.args if t.op != "const" and t.coef != -1), node.args[0])
    rest = [m for t, m in zip(node.args, minus, strict=True) if t is not first]
    return _wrap(done[first], _PRODUCT) + "".join(f" - {m}" for m in rest)


def _print_product_abs(t: Expr, done: dict[Expr, tuple[str, int]]) -> str:
    text, _ = _print_product(t, done)
    return text[: text.rindex("*") + 1] + str(-t.coef)


# ---- reading -------------------------------------------------------------------------------------------------
def check_ranges(ranges: object) -> Mapping[str, RangeLike]:
    """``ranges`` itself where it is a mapping from names; `ArithError` for anything else."""
    if not isinstance(ranges, Mapping):
        raise ArithError(f"ranges are a mapping from names, got {type(ranges).__name__}", hint='such as {"i": 64}')
    strange = [name for name in cast("Mapping[object, RangeLike]", ranges) if not isinstance(name, str)]
    if strange:
        raise ArithError(f"ranges are given by name, {strange[0]!r} is not a name", hint='such as {"i": 64}')
    return cast("Mapping[str, RangeLike]", ranges)


def ranged_symbols(ranges: Mapping[str, RangeLike] | None) -> dict[str, Expr]:
    """Symbols for API ranges: ``64`` is 0 <= s < 64, ``"n"`` is 0 <= s < n, a pair or triple is half-open as
    Python's ``range`` (start, stop, step) with ``None`` for no bound; a :class:`Range` is inclusive.

    >>> ranged_symbols({"i": 64, "n": (1, None)})["i"].range
    Range(lo=0, hi=63)
    """
    out: dict[str, Expr] = {}
    if ranges is not None:
        for name in check_ranges(ranges):
            _resolve(name, ranges, out, ())
    return out


def _resolve(name: str, ranges: Mapping[str, RangeLike], out: dict[str, Expr], path: tuple[str, ...]) -> Expr:
    if name in out:
        return out[name]
    if name in path:
        raise ArithError(
            f"the range of {name!r} depends on itself", because=(" -> ".join((*path[path.index(name) :], name)),)
        )
    if name not in ranges:
        return symbol(name)
    lo, hi, step = _parse_range(name, ranges[name])
    path = (*path, name)

    def bound(b: int | str | Expr | None) -> Expr | None:
        if b is None:
            return None
        if not isinstance(b, str):
            return as_expr(b)
        tokens = [m.group(2) or m.group(3) for m in _TOKEN.finditer(b)]
        scope = {t: _resolve(t, ranges, out, path) for t in tokens if t and t not in _FUNCTIONS}
        return _ExprParser(b, scope).read()

    low, high = bound(lo), bound(hi)
    first = 0
    if step != 1:
        if low is None:
            first = 0
        elif low.op == "const":
            first = low.value
        else:
            raise ArithError(f"range of {name!r}: a step needs a constant start")
    inclusive = isinstance(ranges[name], Range)
    node = symbol(name, low, high if high is None or inclusive else high - 1, step, first)
    out[name] = node
    return node


_Bound = int | str | Expr | None


def _parse_range(name: str, value: RangeLike) -> tuple[_Bound, _Bound, int]:
    if isinstance(value, (int, str, Expr)):
        return (0, value, 1)
    if isinstance(value, range):
        if value.step < 1:
            raise ArithError(f"range of {name!r}: the step must be positive")
        return (value.start, value.stop, value.step)
    if isinstance(value, (tuple, list)) and len(value) in (2, 3):  # pyright: ignore[reportUnnecessaryIsInstance]
        step = list(value)[2] if len(value) == 3 else 1
        if not isinstance(step, int) or step < 1:
            raise ArithError(f"range of {name!r}: the step must be a positive integer, got {step!r}")
        return (value[0], value[1], step)
    if hasattr(value, "__index__"):  # NumPy's integers
        return (0, as_expr(cast("int", value)), 1)
    raise ArithError(
        f"range of {name!r} is not understood: {value!r}", hint="give 64, 'n', (0, 64), (1, None) or (0, None, 8)"
    )


def parse(text: str, ranges: Mapping[str, RangeLike] | None = None) -> Expr:
    """The expression that ``text`` spells; a name without a range is any integer.

    >>> e = parse("(i*32 + j)//32", {"i": 4, "j": 32})
    >>> str(e), parse(str(e), {"i": 4, "j": 32}) == e
    ('(i*32 + j)//32', True)
    """
    return _ExprParser(text, ranged_symbols(ranges)).read()


def written_terms(text: str) -> int:
    """How many operators and names an expression has as it is written; no expression is made.

    >>> written_terms("n*(n + 2) + 1")
    5
    """
    found = (m for m in _TOKEN.finditer(text) if m.lastindex != _NUMBER)
    return sum(m[m.lastindex or 0] not in _BRACKETS for m in found)


def parse_in(text: str, scope: dict[str, Expr]) -> Expr:
    """As :func:`parse`, with the symbols given as nodes (new names are added to ``scope``)."""
    return _ExprParser(text, scope).read()


_POWER: Final = {
    "|": 1, "&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "^": 4, "+": 5, "-": 5,
    "*": 6, "//": 6, "%": 6, "neg": 7, "~": 7, "pos": 7, "not": 2.5,
}  # fmt: skip
_BRACKETS: Final = ("(", ")", ",")
_SUMS: Final = ("+", "-")
_PREFIXES: Final = {"neg", "pos", "~", "not"}
_COMPARES: Final[Mapping[str, Comparison]] = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


class _ExprParser:
    """One text, read with an explicit stack: depth is bounded by a count, not by Python's."""

    __slots__ = ("calls", "operands", "operators", "scope", "text")

    def __init__(self, text: str, scope: dict[str, Expr]) -> None:
        if len(text) > MAX_TEXT:
            raise ArithError(f"expression text is too long: {len(text)} characters, at most {MAX_TEXT}")
        self.text = text
        self.scope = scope
        self.operands: list[Expr | tuple[Expr, Expr]] = []  # a pair is an open comparison and its right side
        self.operators: list[str] = []
        self.calls: list[tuple[str, int]] = []  # open parentheses: function name or "", operands before it

    def fail(self, why: str, at: int) -> ArithError:
        lo, hi = max(0, at - 30), at + 30
        shown = ("..." if lo else "") + self.text[lo:hi] + ("..." if hi < len(self.text) else "")
        return ArithError(f"cannot read expression: {why}", because=(f"at character {at}: {shown!r}",))

    def called(self, at: int) -> ArithError:
        """The error for a name before a parenthesis that is not one of the functions."""
        word = re.search(r"([A-Za-z_]\w{0,39})\s*$", self.text[max(0, at - 60) : at])
        error = self.fail("an operator is missing before '('", at)
        error.hint = did_you_mean(word[1], _FUNCTIONS, f"functions are {', '.join(sorted(_FUNCTIONS))}") if word else ""
        return error

    def read(self) -> Expr:
        """The expression that the whole text spells."""
        want = True  # an operand is expected next
        pending = ""  # a function's name just before its parenthesis
        operators, operands, scope = self.operators, self.operands, self.scope
        for m in _TOKEN.finditer(self.text):
            kind = m.lastindex
            token: str = m[kind or 0]
            if pending and token != "(":
                raise self.fail(f"function {pending!r} needs its arguments in parentheses", m.start(kind or 0))
            if kind == _NAME and token in _WORDS:
                kind, token = _SIGN, "not" if token == "not" else _WORDS[token]
            if kind == _SIGN:
                if token == "(":
                    if not want and not pending:
                        raise self.called(m.start(_SIGN))
                    self.open(pending, m.start(_SIGN))
                    pending, want = "", True
                elif want:
                    self.prefix(token, m.start(kind))
                else:
                    want = self.infix(token, m)
                continue
            if kind is None or kind > _SIGN or not want:
                why = f"an operator is missing before {token!r}" if kind and kind < _SIGN else f"unexpected {token!r}"
                why += ": integers are divided by //" if token == "/" else ""
                raise self.fail(why, m.start(kind or 0))
            want = False
            if kind == _NUMBER:
                if len(token) > MAX_DIGITS:
                    raise self.fail(f"a number of {len(token)} digits", m.start(kind))
                operands.append(const(int(token)))
            elif kind == _NAME and token in _FUNCTIONS:
                pending, want = token, True
            else:
                found = scope.get(token)
                operands.append(self.name(token, kind == _NAME) if found is None else found)
        if want or pending:
            raise self.fail("it ends where an operand is expected", len(self.text))
        self.reduce(0)
        if operators:
            raise self.fail("a '(' is never closed", len(self.text))
        return self.pop()

    def open(self, function: str, at: int) -> None:
        """A parenthesis: of a call, or (function "") of a group."""
        self.calls.append((function, len(self.operands)))
        if len(self.calls) > MAX_NESTING:
            raise self.fail(f"nested more than {MAX_NESTING} deep", at)
        self.operators.append("(")

    def name(self, token: str, plain: bool) -> Expr:
        if plain and token in ("True", "False"):
            return TRUE if token == "True" else FALSE
        node = self.scope.get(token)
        if node is None:
            node = self.scope[token] = symbol(token)
        return node

    def prefix(self, token: str, at: int) -> None:
        """A sign where an operand is expected."""
        if token in ("-", "+", "~", "not"):
            self.operators.append({"-": "neg", "+": "pos"}.get(token, token))
            last = self.operators[-4 * MAX_NESTING :]
            if len(last) == 4 * MAX_NESTING and all(o in _PREFIXES for o in reversed(last)):
                raise self.fail(f"nested more than {MAX_NESTING} deep", at)
        elif token == ")" and self.operators and self.operators[-1] == "(" and self.calls[-1][0]:
            raise self.fail(f"{self.calls[-1][0]!r} needs arguments", at)
        else:
            raise self.fail(f"an operand is missing before {token!r}", at)

    def infix(self, token: str, m: re.Match[str]) -> bool:
        """A sign after an operand; says whether an operand must follow."""
        power = _POWER.get(token)
        if power is not None and token != "~" and token != "not":
            operators = self.operators
            if token in _SUMS:
                power += 0.5  # a sum of many terms is made at its end, in one step
            elif token == "*" and operators and operators[-1] == "*":
                power += 0.5  # and a product of many factors
            if operators and operators[-1] != "(" and _POWER[operators[-1]] >= power:
                self.reduce(power)
            operators.append(token)
            return True
        if token == ")":
            self.reduce(0)
            if not self.operators:
                raise self.fail("a ')' without '('", m.start(_SIGN))
            self.operators.pop()
            self.close(m.start(_SIGN))
            return False
        if token == ",":
            self.reduce(0)
            if not self.operators or not self.calls[-1][0]:
                raise self.fail("a ',' outside a call", m.start(_SIGN))
            self.operands.append(self.pop())
            return True
        raise self.fail(f"an operator is missing before {token!r}", m.start(_SIGN))

    def close(self, at: int) -> None:
        function, before = self.calls.pop()
        if not function:
            self.operands.append(self.pop())
            return
        args = [a if isinstance(a, Expr) else a[0] for a in self.operands[before:]]
        del self.operands[before:]
        call, wanted = _FUNCTIONS[function]
        if wanted and len(args) != wanted:
            raise self.fail(f"{function!r} takes {wanted} arguments, got {len(args)}", at)
        self.operands.append(call(*args))

    def sum(self, last: str) -> Expr:
        """The terms that wait, of which the last one follows the sign ``last``."""
        terms, signs = [self.pop()], [last]
        while self.operators and self.operators[-1] in _SUMS:
            signs.append(self.operators.pop())
            terms.append(self.pop())
        terms = [mul2(const(-1), t) if sign == "-" else t for t, sign in zip(terms, signs, strict=True)]
        first = self.pop()
        return add2(first, terms[0]) if len(terms) == 1 else add((first, *reversed(terms)))

    def product(self) -> Expr:
        """The factors that wait."""
        factors = [self.pop()]
        while self.operators and self.operators[-1] == "*":
            self.operators.pop()
            factors.append(self.pop())
        first = self.pop()
        return mul2(first, factors[0]) if len(factors) == 1 else mul((first, *reversed(factors)))

    def pop(self) -> Expr:
        top = self.operands.pop()
        return top if isinstance(top, Expr) else top[0]

    def reduce(self, power: float) -> None:
        """Apply the waiting operators that bind at least as strongly as ``power``."""
        operators = self.operators
        while operators and operators[-1] != "(" and _POWER[operators[-1]] >= power:
            op = operators.pop()
            if op in _COMPARES:
                right = self.pop()
                left = self.operands.pop()
                done = TRUE
                if not isinstance(left, Expr):
                    done, left = left
                self.operands.append((and_(done, compare(_COMPARES[op], left, right)), right))
                continue
            if op in _SUMS:
                self.operands.append(self.sum(op))
                continue
            if op == "*":
                self.operands.append(self.product())
                continue
            b = self.pop()
            if op in _PREFIXES:
                self.operands.append(_unary_expr(op, b))
                continue
            self.operands.append(_BINARY[op](self.pop(), b))


def _unary_expr(op: str, b: Expr) -> Expr:
    match op:
        case "neg":
            return mul2(const(-1), b)
        case "~" if not b.cond:
            return add((mul2(const(-1), b), const(-1)))
        case "~" | "not":
            return not_(b)
        case _:
            return b


_BINARY: Final = {"//": floordiv, "%": mod, "^": xor, "&": and_, "|": or_}
IntText = IntLike | str


VERBS.text = to_text
