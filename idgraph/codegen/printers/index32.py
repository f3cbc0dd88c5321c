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

Loaded indices: an access that one would take outside of its tensor is not made; a load is zero.

A check states the condition on a loaded value, and its name. Every access whose address depends on that name, or on one
made of it, is made only where the condition holds.

First values for variables that are set under a condition, or in an inner loop, and read under another.

The conditions agree, so no such value is ever used. But numba's parallel loops take a variable that some path leaves
without a value to be the same in every iteration.

Divisions by the reciprocal of their divisor, for a GPU: exact, with one test for all of a thread's.

A quotient by the reciprocal is that of the division for all usual numbers. A test of each quotient would be a branch
beside each, across which nothing is computed together. All divisions of neighbouring statements are tested at once:
where one was not usual, the statements run again, with the division itself.

Exchange between the threads of a block: by shuffles where whole warps, or aligned parts of one, take part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf

from idgraph.arith import TRUE, Expr, and_, simplify
from idgraph.arith.expr import postorder
from idgraph.arith.interval import interval
from idgraph.arith.source import node_source, source_name
from idgraph.codegen.runtime_lib.formulas import IndexText, inner_text
from idgraph.ir.device import GPU
from idgraph.kernel.def_use import defs, reads
from idgraph.kernel.ir import (
    BoundsCheck,
    Comment,
    Compute,
    ExtractHalf,
    Half2Op,
    Index,
    Let,
    Load,
    Local,
    Loop,
    Select,
    Stmt,
    Store,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.ssa import live_out

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


@dataclass(slots=True)
class Inside:
    """The conditions on addresses made of these names.

    >>> from idgraph.arith import symbol
    >>> known = Inside({"ld0": symbol("ld0") < 4})
    >>> str(known.of(symbol("ld0") * 8)), known.of(symbol("i")) is TRUE
    ('ld0 < 4', True)
    """

    known: dict[str, Expr] = field(default_factory=dict[str, Expr])

    @contextmanager
    def of_check(self, s: BoundsCheck) -> Generator[None]:
        """Within the statements of a check."""
        before = dict(self.known)
        self.known[s.value] = and_(self.known.get(s.value, TRUE), s.condition)
        yield
        self.known = before

    def let(self, s: Let) -> None:
        """A name made of others."""
        held = self.of(s.value.value) if isinstance(s.value, Index) else TRUE
        if held is not TRUE:
            self.known[s.name] = held

    def of(self, address: Expr) -> Expr:
        """The condition on an access at ``address``."""
        found = [self.known[n] for n in sorted(address.names & self.known.keys())] if self.known else []
        return and_(*found) if found else TRUE


@dataclass(frozen=True, slots=True)
class NestedChecks:
    """Checks in each other of indices that vectors are read at. ``early`` is what stands between them and depends on
    none of them: the indices of the inner ones."""

    checks: tuple[BoundsCheck, ...]
    early: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


def rows_of(s: BoundsCheck) -> NestedChecks | None:
    """A check of an index of vectors, which one instruction reads or leaves out, with those inside of it; None of other
    checks, before a write or of single elements."""
    checks, early = [s], list[Stmt]()
    while checks[-1].body and isinstance(last := checks[-1].body[-1], BoundsCheck):
        early += checks[-1].body[:-1]
        checks.append(last)
    values = {x.value for x in checks}
    free = _moves_up(early, values) and not any(x.always for x in checks)
    if not free or _rows_read(checks[-1].body, values) <= 0:
        return None
    return NestedChecks(tuple(checks), tuple(early), checks[-1].body)


def _moves_up(early: Sequence[Stmt], values: set[str]) -> bool:
    """Whether statements between checks may run in front of all of them: they read no checked value."""
    for s in walk(tuple(early)):
        if isinstance(s, (Loop, Load, VectorLoad, Let, Compute, Select, Comment)) and not reads(s) & values:
            continue
        return False
    return True


def _rows_read(body: Sequence[Stmt], checked: set[str]) -> float:
    """The vectors read at checked indices; less than any number where there is more that depends on them."""
    found = 0.0
    for s in body:
        match s:
            case VectorLoad():
                found += 1 if s.address.names & checked and not s.realigned else -inf
            case Loop(parallel="unroll"):
                found += _rows_read(s.body, checked)
            case VectorStore() | Store() | Load() if not s.address.names & checked:
                pass
            case Compute() | Select() | Comment() | Half2Op() | ExtractHalf():
                pass
            case _:
                found = -inf
    return found


def without_value(s: Stmt, after: Sequence[Stmt]) -> list[Local]:
    """The variables that some path through ``s`` leaves without a value, and statements ``after`` it read.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 8:
    ...     if i < 4:
    ...       t: float32 = x[i]
    ...     if i < 4:
    ...       y[i] = t
    ... ''')
    >>> first, *rest = k.body[0].body
    >>> [str(x) for x in without_value(first, rest)]
    ['t']
    """
    names = live_out(s, after)
    made = [x for y in walk((s,)) if isinstance(y, (Load, Compute, Select)) for x in defs(y)] if names else []
    return [x for x in made if x.name in names]


Body = Sequence[Stmt]
MOST = 8  # divisions that are tested at once: what they need stays in registers until then


def is_division(s: Stmt) -> bool:
    """A division by a number whose reciprocal is known."""
    return isinstance(s, Compute) and s.op == "div_by"


def divided(body: Body) -> Iterator[tuple[Body, bool]]:
    """``body`` in parts; True beside those with divisions that are tested at once, and may run again.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4] input "x"
    ...   buffer y: float32[4] output "y"
    ...   for i < 2:
    ...     a: float32 = x[i]
    ...     c: float32 = reciprocal(a)
    ...     d: float32 = div_by(2, a, c)
    ...     e: float32 = add(d, 1)
    ...     f: float32 = div_by(e, a, c)
    ...     y[i] = f
    ... ''')
    >>> [(len(part), again) for part, again in divided(k.body[0].body)]
    [(2, False), (3, True), (1, False)]
    """
    plain, part, last, many = 0, 0, 0, 0  # what begins at ``plain`` has no divisions; those of ``part`` end at ``last``
    for n, s in enumerate((*body, Comment(""))):
        more = divisions(s) if _runs_again(s) and n < len(body) else 0
        if many and (not _runs_again(s) or n == len(body) or (more and many + more > MOST)):
            if part > plain:
                yield body[plain:part], False
            yield body[part : last + 1], True
            plain, many = last + 1, 0
        if more:
            part, last, many = n if not many else part, n, many + more
    if plain < len(body):
        yield body[plain:], False


def divisions(s: Stmt) -> int:
    """How many divisions by reciprocals a statement has, in all steps of its loops."""
    if isinstance(s, Loop):
        return sum(map(divisions, s.body)) * (int(s.extent) if s.extent.is_const else MOST)
    return int(is_division(s))


def steps_together(body: Body) -> int | None:
    """The steps whose divisions are tested at once, of a loop that by itself has more than ``MOST``; None of all
    others."""
    if len(body) != 1 or not isinstance(body[0], Loop) or divisions(body[0]) <= MOST:
        return None
    each = divisions(body[0]) // int(body[0].extent)
    return next((n for n in range(MOST // each, 0, -1) if int(body[0].extent) % n == 0), 1) if each <= MOST else 1


def _runs_again(s: Stmt) -> bool:
    """Whether a statement may run twice: it computes values of a thread from others, and no more."""
    if isinstance(s, Loop):
        return s.parallel == "unroll" and s.extent.is_const and all(map(_runs_again, s.body))
    if isinstance(s, Load):
        return s.buffer.place == "private"
    return isinstance(s, (Compute, Select, Comment, Half2Op, ExtractHalf))


def divided_by(s: Compute) -> Compute:
    """The division itself."""
    return replace(s, op="div", operands=s.operands[:2])


def operands_of(s: Compute, index: IndexText) -> str:
    """The arguments of a division: a, b and 1 / b."""
    return ", ".join(inner_text(o, "float32", index) for o in s.operands)


WARP = GPU.warp  # of the language: a device of other warps gets no kernels


def by_shuffles(count: int, block: int) -> bool:
    """True where ``count`` threads in x, of ``block`` in all, are whole warps or an aligned part of one.

    >>> by_shuffles(512, 512), by_shuffles(8, 128), by_shuffles(8, 16), by_shuffles(96, 96), by_shuffles(24, 96)
    (True, True, False, True, False)
    """
    return block % WARP == 0 and (count % WARP == 0 or (count < WARP and count & (count - 1) == 0))


def by_columns(dims: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """True where threads in y exchange for each of a few in x, both powers of two, and the block is whole warps.

    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 64, "threadIdx.z": 1})
    True
    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 2, "threadIdx.z": 1})
    False
    """
    x, y = sizes["threadIdx.x"], sizes["threadIdx.y"]
    whole = x <= WARP and x & (x - 1) == 0 and y & (y - 1) == 0 and x * y % WARP == 0
    return tuple(dims) == ("threadIdx.y",) and sizes["threadIdx.z"] == 1 and whole
