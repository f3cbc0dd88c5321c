"""Index expressions in 32-bit unsigned arithmetic, as a GPU wants them: a 64-bit division is a subroutine there.

Sums and products are computed modulo 2**32, so they are right wherever their true value is in range, whatever the parts
are. Quotients, remainders, extrema and comparisons need their operands themselves in range, by proof: where some may be
negative, extrema and comparisons are those of all operands plus one number. Where there is no proof, that part is
computed in 64 bits.

An exclusive or is a call of ``bits_xor``, which CUDA computes by one instruction that the compiler does not look into:
libNVVM 13.0 made ``(i ^ 516*q) * 8`` in an unrolled loop wrong from its second round on.

Names for index expressions that a kernel's text has several times.

numba types each call, so text that stands twice costs twice. Expressions of block and thread numbers are computed once,
where the numbers are known; the machine code stays the same, since its optimiser merges equal parts (CSE).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce

from idgraph.arith import Expr, simplify
from idgraph.arith.expr import postorder
from idgraph.arith.interval import interval
from idgraph.arith.source import node_source, source_name

LIMIT = 2**32


def fits(e: Expr, limit: int = LIMIT) -> bool:
    """True when every value of ``e`` is proved to be at least 0 and below ``limit``."""
    lo, hi = interval(e)
    return lo is not None and hi is not None and lo >= 0 and hi < limit


def _fits_32_bits(e: Expr) -> bool:
    """True of a quotient or remainder whose operands are in range."""
    return all(fits(a) for a in e.args) and (interval(e.args[1])[0] or 0) > 0


def _lifted(e: Expr) -> Expr | None:
    """The dividend of a remainder that may be negative, with as many divisors added as make it at least 0.

    >>> from idgraph.arith import symbol
    >>> print(_lifted((symbol("i", 0, 9) - symbol("j", 0, 9)) % 4))
    i + 12 - j
    """
    if e.op != "mod" or e.args[1].op != "const" or not 0 < e.args[1].value < LIMIT:
        return None
    a, n = e.args[0], e.args[1].value
    lo, _ = interval(a)
    if lo is None or lo >= 0:
        return None
    made = a + -(lo // n) * n
    return made if fits(made) else None


def _offset(e: Expr) -> int | None:
    """The least number at least 0 that brings every operand into range when it is added to it; None where none does.

    >>> from idgraph.arith import symbol, minimum
    >>> _offset(minimum(symbol("i", 0, 9) - 3, 4)), _offset(minimum(symbol("k", None, None), 4))
    (3, None)
    """
    ends = [interval(a) for a in e.args]
    least = [lo for lo, _ in ends if lo is not None]
    most = [hi for _, hi in ends if hi is not None]
    if len(least) < len(ends) or len(most) < len(ends):
        return None
    offset = max(0, -min(least))
    return offset if max(most) + offset < LIMIT else None


def _exclusive(args: Sequence[str]) -> str:
    """The exclusive or of several, two at a time.

    >>> _exclusive(["a", "b", "c"])
    'bits_xor(bits_xor(a, b), c)'
    """
    return reduce(lambda a, b: f"bits_xor({a}, {b})", args)


@dataclass(slots=True)
class Narrow:
    """Text of index expressions where the variables ``short`` are uint32 and all others int64.

    >>> from idgraph.arith import symbol
    >>> i, j = symbol("i", 0, 9), symbol("j", 0, 99)
    >>> Narrow({}, {"i", "j"}).text((i * 100 + j) % 150 + 3)
    'u32(u32(u32(u32(i * u32(100)) + j) % u32(150)) + u32(3))'
    >>> Narrow({}, {"i", "j"}).text((j + 32) % 100)
    'wrapped(u32(j + u32(32)), u32(100))'
    """

    names: Mapping[str, str]
    short: Collection[str]
    _wide: dict[Expr, str] = field(default_factory=dict[Expr, str])
    _text: dict[Expr, str] = field(default_factory=dict[Expr, str])
    asked: list[Expr] = field(default_factory=list[Expr])  # whose text was wanted
    fixed: Mapping[Expr, str] = field(default_factory=dict[Expr, str])  # what has been computed, under names

    def wide(self, e: Expr) -> str:
        """``e`` as an int64 (or a condition); its divisions in 32 bits where their operands are in range.

        >>> from idgraph.arith import symbol
        >>> i = symbol("i", 0, 99)
        >>> Narrow({}, {"i"}).wide(i % 7 - 3)
        '(i64(u32(i % u32(7))) - 3)'
        """
        for node in postorder(e):
            if node not in self._wide:
                if node.op in ("floordiv", "mod") and (_fits_32_bits(node) or _lifted(node) is not None):
                    self._wide[node] = f"i64({self.text(node)})"
                elif node.op == "sym" and node.name in self.short:
                    self._wide[node] = f"i64({source_name(node.name, self.names)})"
                elif node.op == "xor":
                    self._wide[node] = _exclusive([self._wide[a] for a in node.args])
                else:
                    self._wide[node] = node_source(node, [self._wide[a] for a in node.args], "numba", self.names)
        return self._wide[e]

    def text(self, e: Expr) -> str:
        """``e`` modulo 2**32 as a uint32; a condition as it is."""
        self.asked.append(e)
        return self._of(e)

    def unsigned(self, e: Expr) -> str:
        """``e`` as an index that a compiler takes for unsigned: it counts a negative one from the end, at a cost.

        >>> from idgraph.arith import minimum, symbol
        >>> i = symbol("i", 0, 99)
        >>> Narrow({}, {"i"}).unsigned(i), Narrow({}, {"i"}).unsigned(minimum(i, 4))
        ('i', 'u64(u32(min(i, u32(4))))')
        """
        text = self.text(e)
        plain = e in self.fixed or (e.op == "sym" and e.name in self.short)
        return text if plain or e.op in ("add", "mul", "mod", "floordiv") else f"u64({text})"

    def scaled(self, e: Expr) -> str:
        """`unsigned` of an index that is in range, a factor apart in 64 bits: addressing has it for free.

        In 32 bits the compiler cannot know that the product does not wrap, and takes its upper bits away again.

        >>> from idgraph.arith import symbol
        >>> i, j = symbol("i", 0, 9), symbol("j", 0, 99)
        >>> Narrow({}, {"i", "j"}).scaled((i * 100 + j) * 8), Narrow({}, {"i"}).scaled(i * 8 + 1)
        ('u64(u32(u32(i * u32(100)) + j)) * u64(8)', 'u32(u32(i * u32(8)) + u32(1))')
        """
        factor = e.coef if e.op == "mul" and e not in self.fixed else 1
        whole = simplify(e // factor) if factor > 1 else e
        if whole is e or whole.op == "floordiv":
            return self.unsigned(e)
        return f"u64({self.text(whole)}) * u64({factor})"

    def named(self, names: Mapping[Expr, str]) -> Narrow:
        """The same printer where these expressions have names; its texts, which may have them, stay its own."""
        fixed = {**self.fixed, **names}
        return Narrow(self.names, self.short, _text=dict(fixed), fixed=fixed)

    def _of(self, e: Expr) -> str:
        for node in postorder(e):
            if node not in self._text:
                self._text[node] = self._node(node)
        return self._text[e]

    def _node(self, e: Expr) -> str:
        args = [self._text[a] for a in e.args]
        match e.op:
            case "const":
                return str(bool(e.value)) if e.cond else f"u32({e.value % LIMIT})"
            case "sym":
                name = source_name(e.name, self.names)
                return name if e.name in self.short else f"u32({name})"
            case "add":
                return self._sum(e)
            case "mul":
                return f"u32({' * '.join(reversed(args))})"
            case "xor":
                return _exclusive(args)
            case "where":
                return f"({args[1]} if {args[0]} else {args[2]})"
            case "and" | "or":
                return f"({f' {e.op} '.join(args)})"
            case "not":
                return f"(not {args[0]})"
            case "mod" if (lifted := _lifted(e)) is not None:
                return f"u32({self.text(lifted)} % {args[1]})"
            case "floordiv" | "mod" if _fits_32_bits(e):
                return self._quotient(e, args)
            case "min" | "max" if all(fits(a) for a in e.args):
                return f"u32({e.op}({', '.join(args)}))"
            case "min" | "max" if (by := _offset(e)) is not None:
                return f"u32({e.op}({', '.join(self._of(a + by) for a in e.args)}) - u32({by}))"
            case "lt" | "le" | "eq" | "ne" if (by := _offset(e)) is not None:
                sign = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}[e.op]
                left, right = (self._of(a + by) if by else self._text[a] for a in e.args)
                return f"({left} {sign} {right})"
            case "lt" | "le" | "eq" | "ne":
                return self.wide(e)
            case _:
                return f"u32({self.wide(e)})"

    def _sum(self, e: Expr) -> str:
        """Terms with a negative factor are subtracted; intermediate wraparound is right modulo 2**32."""
        out = ""
        for a in sorted(e.args, key=lambda a: (a.op == "const", a.coef < 0)):
            if out and (a.coef < 0 or (a.op == "const" and a.value < 0)):
                out += f" - {self._of(a * -1)}"
            else:
                out += f" + {self._text[a]}" if out else self._text[a]
        return f"u32({out})"

    def _quotient(self, e: Expr, args: list[str]) -> str:
        """A remainder of a value below twice the divisor is a subtraction and a select; else one unsigned division."""
        a, n = e.args
        if n.op == "const" and fits(a, 2 * n.value):
            if e.op == "mod":
                return f"wrapped({args[0]}, u32({n.value}))"
            return f"u32({args[0]} >= {args[1]})"
        return f"u32({args[0]} {'//' if e.op == 'floordiv' else '%'} {args[1]})"


_TOTAL = frozenset(("add", "mul", "xor", "min", "max", "sym", "const"))  # defined wherever their parts are


def repeated(texts: Iterable[Expr], known: Set[str], named: Collection[Expr] = ()) -> list[Expr]:
    """The parts of ``texts`` that are worth a name, each before those that it is a part of.

    ``known`` are the variables that they may be made of. A part that is always inside a larger one gets none;
    ``named`` have theirs.

    >>> from idgraph.arith import symbol
    >>> i, j, q = symbol("i", 0, 9), symbol("j", 0, 99), symbol("q", 0, 3)
    >>> row = (i * 100 + j) // 7
    >>> [str(e) for e in repeated([row * 8 + q, row * 8 + i, q * 3 + 1], {"i", "j"})]
    ['(i*100 + j)//7*8']
    >>> [str(e) for e in repeated([row + q, row * 8 + q, i * 100 + j + q], {"i", "j"})]
    ['i*100', '(i*100 + j)//7']
    """
    times: Counter[Expr] = Counter()
    for e in texts:
        times.update(_within(e, named))
    total: dict[Expr, bool] = {}
    size: dict[Expr, int] = {}
    for e in times:
        for node in postorder(e):
            if node not in size:
                divides = node.op in ("floordiv", "mod") and node.args[1].is_const and int(node.args[1]) > 0
                total[node] = (divides or node.op in _TOTAL) and all(total[a] for a in node.args)
                size[node] = sum(size[a] for a in node.args) + bool(node.args)
    candidates = [e for e in times if e not in named and size[e] and total[e] and e.names and e.names <= known]
    chosen: list[Expr] = []
    for e in sorted(candidates, key=lambda e: -size[e]):  # a stable order: parts come after what they are parts of
        extra = times[e] - 1
        if extra < 1:
            continue
        chosen.append(e)
        for part, n in _within(e, named).items():
            if part is not e:
                times[part] -= extra * n
    return chosen[::-1]


def _within(e: Expr, named: Collection[Expr]) -> Counter[Expr]:
    """How often each part stands in the text of ``e``, itself among them; a subtracted term counts without its sign."""
    times: Counter[Expr] = Counter({e: 1})
    todo = [e]
    while todo:
        node = todo.pop()
        if node.is_const or node.op == "sym" or node in named:
            continue
        for a in node.args:
            part = a * -1 if node.op == "add" and a.coef < 0 else a
            times[part] += 1
            todo.append(part)
    return times
