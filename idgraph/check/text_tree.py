"""Values as the reads they are made of, loops and stores as a tree: shared by readers of other compilers' text.

Text is parsed by a grammar (lark) with limits and evaluated nowhere. What is unknown is refused with line and column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from math import isfinite, isnan
from typing import Any

from idgraph.arith import TRUE, Expr, and_, as_expr, not_, simplify, symbol, where
from idgraph.check.program import CheckError
from idgraph.check.statement_values import OPAQUE, parse_value
from idgraph.errors import IdGraphError
from idgraph.ir import parse_fusion

LARGEST = 4 << 20  # characters of a text
DEPTH = 100  # brackets inside of each other
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # binary, of a number


@dataclass(frozen=True, slots=True)
class TextRead:
    """An element that a value is made of; ``load`` is the number of its load (`TextTree.load`)."""

    buffer: str
    index: Expr
    when: Expr = TRUE
    load: int = 0

    def where(self, held: Expr) -> TextRead:
        """The same, used only where a condition holds."""
        return replace(self, when=simplify(and_(self.when, held)))


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value in a text: what it is, where it is an integer or a condition, and the elements it is made of.

    ``formula``: what it computes (None: not known here); ``width``: bits and sign of an integer that was cast.
    """

    what: Expr | None = None
    reads: tuple[TextRead, ...] = ()
    formula: TextFormula | None = None
    width: tuple[int, bool] | None = None

    @property
    def computed(self) -> TextFormula | None:
        """The formula, or the integer that it is."""
        return TextFormula("integer", what=self.what) if self.what is not None else self.formula


@dataclass(frozen=True, slots=True)
class TextFormula:
    """The computation of a value: a function by name (`idgraph.check.statement_values`), an element, or a number."""

    op: str
    parts: tuple[TextFormula, ...] = ()
    read: TextRead | None = None
    number: float = 0.0
    what: Expr | None = None

    def where(self, held: Expr) -> TextFormula:
        """The same with what is read only where a condition holds."""
        read = self.read and self.read.where(held)
        return TextFormula(self.op, tuple(p.where(held) for p in self.parts), read, self.number, self.what)

    def text(self, reads: Sequence[TextRead]) -> str:
        """In the syntax of the neutral form, by the numbers of ``reads``."""
        if self.read is not None:
            return f"r{list(reads).index(self.read)}"
        if self.what is not None:
            return f"({simplify(self.what)})"
        if self.op == "number":
            return repr(self.number) if isfinite(self.number) else "inf()" if self.number > 0 else "neg(inf())"
        return f"{self.op}({', '.join(p.text(reads) for p in self.parts)})"


def number(x: float) -> TextValue:
    """A constant that is not an integer."""
    return TextValue() if isnan(x) else TextValue(formula=TextFormula("number", number=x))


def fitted(x: Expr, bits: int, *, signed: bool = True) -> TextValue:
    """An integer of a type, where it is known to fit; one that may wrap has no formula."""
    found = simplify(x)
    low, high = found.range.lo, found.range.hi
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    known = bits >= 64 or (low is not None and high is not None and least <= low and high <= most)
    fits = known and (signed or (low is not None and low >= 0))
    return TextValue(found, width=(bits, signed)) if fits else TextValue()


def combined(values: Sequence[TextValue], op: str = "") -> TextValue:
    """A value made of others; it is not an integer here. ``op``: the function, where it is known."""
    reads = dict.fromkeys(r for v in values for r in v.reads)
    known = [f for f in (v.computed for v in values) if f is not None]
    formula = TextFormula(op, tuple(known)) if op and len(known) == len(values) else None
    return TextValue(None, tuple(reads), formula)


def chosen(c: TextValue, a: TextValue, b: TextValue) -> TextValue:
    """``a`` where the condition holds, else ``b``; each is read where it is taken."""
    if c.what is None:
        return combined([c, a, b], "where")
    held = c.what if c.what.cond else c.what.ne(0)
    reads = [r.where(held) for r in a.reads]
    reads += [r.where(not_(held)) for r in b.reads]
    what = where(held, a.what, b.what) if a.what is not None and b.what is not None and not a.what.cond else None
    formula = None
    if a.computed is not None and b.computed is not None and not c.reads:
        formula = TextFormula("where", (
            TextFormula("integer", what=held), a.computed.where(held), b.computed.where(not_(held))
        ))  # fmt: skip
    return TextValue(what, (*c.reads, *dict.fromkeys(reads)), formula=formula)


@dataclass(frozen=True, slots=True)
class TextLoad:
    """A load as it stands: its node (a place for a nest), its loops and guards, its moment, its line."""

    read: TextRead
    node: dict[str, Any]
    depth: int
    loop: dict[str, Any] | None
    moment: int
    line: int
    inside: bool  # it is known to lie in its memory


@dataclass(slots=True)
class TextTree:
    """The tree of the neutral form while it is made; ``open`` are the loops and guards that are open.

    A loaded value is the one of the moment of its load: where memory may be written between it and its use, or it is
    used under a condition that the load is not under, the load is a nest of its own that fills a register.
    """

    body: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    names: set[str] = field(default_factory=set[str])
    open: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    types: frozenset[str] = frozenset()  # of the elements of the program's tensors
    sizes: dict[str, int] = field(default_factory=dict[str, int])  # of memory that the text allocates
    homes: dict[str, dict[str, Any] | None] = field(default_factory=dict[str, dict[str, Any] | None])  # their loops
    freed: dict[str, int] = field(default_factory=dict[str, int])  # memory that is gone, and since which line
    loads: list[TextLoad] = field(default_factory=list[TextLoad])
    uses: list[tuple[dict[str, Any], TextRead, int, dict[str, Any] | None]] = field(
        default_factory=list[tuple[dict[str, Any], TextRead, int, dict[str, Any] | None]]
    )
    stored: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])  # buffers and moments
    ended: dict[int, int] = field(default_factory=dict[int, int])  # moments at which loops end
    moment: int = 0
    lines: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])

    def name(self, wanted: str) -> str:
        """An identifier that no other loop has."""
        plain = re.sub(r"\W", "_", wanted, flags=re.ASCII) or "i"
        plain = plain if plain[0].isalpha() or plain[0] == "_" else f"i{plain}"
        found, k = plain, 1
        while found in self.names:
            found, k = f"{plain}_{k}", k + 1
        self.names.add(found)
        return found

    def _into(self) -> list[dict[str, Any]]:
        return self.open[-1]["body"] if self.open else self.body

    def loop(
        self, wanted: str, trips: Expr, inside: Callable[[Expr], None], unknown: CheckError, *, any_order: bool
    ) -> None:
        """A loop from 0, whose body ``inside`` makes for its variable; a length of other loops is its longest, with a
        guard. ``unknown`` is raised where that has no bound.
        """
        trips = simplify(trips)
        most = trips if trips.is_const else trips.range.hi
        if most is None or not as_expr(most).is_const:
            raise unknown
        name, extent = self.name(wanted), max(int(as_expr(most)), 0)
        node: dict[str, Any] = {"for": [name, extent], "order": "any" if any_order else "serial",
                                "private": [], "body": []}  # fmt: skip
        variable = symbol(name, 0, max(extent - 1, 0))
        self._into().append(node)
        self.open.append(node)
        if trips.is_const:
            inside(variable)
        else:
            self.guard(variable < trips, lambda: inside(variable))
        self.open.pop()
        self.ended[id(node)] = self.moment

    def guard(self, when: Expr, inside: Callable[[], None]) -> None:
        """Statements that run where a condition holds."""
        node: dict[str, Any] = {"if": str(simplify(when)), "body": []}
        self._into().append(node)
        self.open.append(node)
        inside()
        self.open.pop()

    def allocated(self, name: str, size: int | None) -> None:
        """Memory of ``size`` elements that each iteration of the innermost loop has of its own."""
        if size is not None:
            self.sizes[name] = max(size, self.sizes.get(name, 0))
        loop = self.homes[name] = self._innermost()
        self.freed.pop(name, None)
        if loop is not None:
            loop["private"].append(name)

    def free(self, name: str, line: int) -> None:
        """The end of memory: whatever stands below and uses it is refused."""
        if self.homes.get(name) is not self._innermost():
            raise CheckError(f"line {line}: {name} is freed in a loop inside of the one that allocates it")
        self.freed[name] = line

    def _alive(self, name: str, line: int) -> None:
        if name in self.freed:
            raise CheckError(f"line {line}: {name} is used after line {self.freed[name]} freed it")

    def narrows(self, kind: str) -> bool:
        """Whether numbers lose digits that the program's tensors all have; ``kind`` names a type of floats."""
        digits = min((_DIGITS.get(t, 64) for t in self.types), default=0)
        return _DIGITS.get(kind, 64) < digits

    def _innermost(self) -> dict[str, Any] | None:
        return next((n for n in reversed(self.open) if "for" in n), None)

    def load(self, buffer: str, index: Expr, line: int, size: int | None = None) -> TextValue:
        """An element of memory, of ``size`` elements where that is known."""
        self._alive(buffer, line)
        self.moment += 1
        index, node = simplify(index), dict[str, Any]()
        inside = size is not None and simplify(and_(index >= 0, index < size)) is TRUE
        read = TextRead(buffer, index, load=len(self.loads))
        self._into().append(node)
        self.loads.append(TextLoad(read, node, len(self.open), self._innermost(), self.moment, line, inside))
        return TextValue(None, (read,), formula=TextFormula("read", read=read))

    def store(self, buffer: str, index: Expr, value: TextValue, line: int) -> None:
        """A store."""
        self._alive(buffer, line)
        self.moment += 1
        index, reads, formula = simplify(index), value.reads, value.computed
        shown: list[dict[str, Any]] = []
        for r in reads:
            loops = (n for n in self.open[self.loads[r.load].depth :] if "for" in n)
            shown.append({"buffer": r.buffer, "index": str(r.index), "when": str(simplify(r.when))})
            self.uses.append((shown[-1], r, self.moment, next(loops, None)))
        self.stored.append((buffer, self.moment))
        self.lines[buffer, line] += 1
        again = self.lines[buffer, line]
        self._into().append({
            "name": f"{buffer} at line {line}" + (f" ({again})" if again > 1 else ""),
            "loops": [], "writes": [{
                "buffer": buffer, "index": str(index), "mode": "store",
                "value": _value_text(formula, reads), "reads": shown,
            }],
        })  # fmt: skip

    def neutral(self, program: str) -> dict[str, object]:
        """The program in the neutral form."""
        registers = dict[int, str]()
        for shown, read, moment, loop in self.uses:
            load = self.loads[read.load]
            end = moment if loop is None else self.ended[id(loop)] + 1
            late = any(b == read.buffer and load.moment < m < end for b, m in self.stored)
            if not late and (load.inside or read.when is TRUE):
                continue
            if read.load not in registers:
                registers[read.load] = self._register(load, len(registers))
            shown |= {"buffer": registers[read.load], "index": "0"}
        self.body = _without_empty(self.body)
        sizes = {"buffers": {k: {"size": n} for k, n in self.sizes.items()}} if self.sizes else {}
        return {"version": 1, "program": program, **sizes, "body": self.body}

    def _register(self, load: TextLoad, number: int) -> str:
        """A load as a nest, and the name of the register that it fills."""
        name = f"register {number} ({load.read.buffer} at line {load.line})"
        read = {"buffer": load.read.buffer, "index": str(load.read.index), "when": "True"}
        write = {"buffer": name, "index": "0", "mode": "store", "value": "r0", "reads": [read]}
        load.node.update({"name": name, "loops": [], "writes": [write]})
        if load.loop is not None:
            load.loop["private"].append(name)
        return name


def _without_empty(body: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes in which something runs."""
    inner = ({**n, "body": _without_empty(n["body"])} if "body" in n else n for n in body)
    return [n for n in inner if n.get("body") or "writes" in n]


def _value_text(formula: TextFormula | None, reads: Sequence[TextRead]) -> str:
    """The formula of a store; `OPAQUE` where there is none that the neutral form has."""
    if formula is None:
        return f"{OPAQUE}()"
    text = formula.text(reads)
    try:
        return parse_value(text, frozenset(re.findall(r"[A-Za-z_]\w*", text)), "value").text
    except CheckError:
        return f"{OPAQUE}()"


def element_types(program: str) -> dict[str, str]:
    """The element types of a fusion's tensors, by name; none where its text is not one, which its reader reports."""
    try:
        return {t.name: t.dtype for t in parse_fusion(program).tensors}
    except IdGraphError:
        return {}


def row_major(shape: Sequence[int], indices: Sequence[Expr]) -> Expr:
    """The address of an element."""
    out = as_expr(0)
    for n, x in zip(shape, indices, strict=True):
        out = out * n + x
    return out


@cache
def _parser(grammar: str) -> Any:
    try:  # an extra
        lark: Any = import_module("lark")
    except ImportError:
        raise CheckError("reading this text needs lark", hint="pip install lark") from None
    return lark.Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parsed(grammar: str, text: str, what: str, ways: Mapping[str, str]) -> Any:
    """The syntax tree of a text; `CheckError` with line and column for what the grammar lacks.

    ``ways``: parts of a line that is not known -> what to do about it.
    """
    if len(text) > LARGEST:
        raise CheckError(f"the {what} has more than {LARGEST} characters")
    depth = most = 0
    for c in text:
        depth += (c in "([{<") - (c in ")]}>")
        most = max(most, depth)
    if most > DEPTH:
        raise CheckError(f"the {what} is nested too deep")
    parser = _parser(grammar)
    errors: Any = import_module("lark.exceptions")
    try:
        return parser.parse(text)
    except errors.UnexpectedInput as error:
        at = error.pos_in_stream if isinstance(error.pos_in_stream, int) and error.pos_in_stream >= 0 else len(text)
        word = re.match(r"[%@#]?[\w.]+|\S|", text[at:].lstrip()[:80])
        shown = word[0] if word and word[0] else "the end"
        line, column = (error.line, error.column) if at < len(text) else (text.count("\n") + 1, 1)
        rest = text[max(at, 0) :].split("\n", 1)[0]
        hint = next((way for part, way in ways.items() if part in rest), "the guide lists the forms that are read")
        raise CheckError(f"{what}, line {line} column {column}: `{shown}` is not known here", hint=hint) from None
    except (RecursionError, errors.LarkError) as error:
        raise CheckError(f"{what}: it cannot be read: {type(error).__name__}") from None


def refused(what: str, node: Any, why: str) -> CheckError:
    """An error at a node of the syntax tree, or at a token."""
    meta = getattr(node, "meta", node)
    line, column = getattr(meta, "line", "?"), getattr(meta, "column", "?")
    return CheckError(f"{what}, line {line} column {column}: {why}")


def integer(x: TextValue, what: str, node: Any) -> Expr:
    """The integer that an index is; one of loaded values is refused."""
    if x.what is None:
        raise refused(what, node, "an index that is not a formula of loops and numbers")
    return where(x.what, 1, 0) if x.what.cond else x.what


COMPARISONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "==": lambda a, b: a.eq(b), "!=": lambda a, b: a.ne(b), "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
