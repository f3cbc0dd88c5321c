"""Values as the reads they are made of, loops and stores as a tree: shared by readers of other compilers' text.

Text is parsed by a grammar (lark) with limits and evaluated nowhere. What is unknown is refused with line and column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from idgraph.arith import TRUE, Expr, and_, as_expr, not_, simplify, symbol, where
from idgraph.check.program import CheckError
from idgraph.check.statement_values import parse_value

LARGEST = 4 << 20  # characters of a text
DEPTH = 100  # brackets inside of each other


@dataclass(frozen=True, slots=True)
class TextRead:
    """An element that a value is made of."""

    buffer: str
    index: Expr
    when: Expr = TRUE


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value in a text: what it is, where it is an integer or a condition, and the elements it is made of.

    ``parts``: what it combines, where it is a sum, product, least or largest of two values. ``formula``: what it
    computes (None: not known here).
    """

    what: Expr | None = None
    reads: tuple[TextRead, ...] = ()
    parts: tuple[TextValue, ...] = ()
    formula: TextFormula | None = None

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
        read = self.read and TextRead(self.read.buffer, self.read.index, simplify(and_(self.read.when, held)))
        return TextFormula(self.op, tuple(p.where(held) for p in self.parts), read, self.number, self.what)

    def text(self, reads: Sequence[TextRead]) -> str:
        """In the syntax of the neutral form, by the numbers of ``reads``."""
        if self.read is not None:
            return f"r{list(reads).index(self.read)}"
        if self.what is not None:
            return f"({simplify(self.what)})"
        return (
            repr(self.number) if self.op == "number" else f"{self.op}({', '.join(p.text(reads) for p in self.parts)})"
        )


def loaded(buffer: str, index: Expr) -> TextValue:
    """An element of memory."""
    read = TextRead(buffer, index)
    return TextValue(None, (read,), formula=TextFormula("read", read=read))


def number(x: float) -> TextValue:
    """A constant that is not an integer."""
    return TextValue(formula=TextFormula("number", number=x))


def combined(values: Sequence[TextValue], op: str = "", *, parts: bool = False) -> TextValue:
    """A value made of others; it is not an integer here. ``op``: the function, where it is known."""
    reads = dict.fromkeys(r for v in values for r in v.reads)
    known = [f for f in (v.computed for v in values) if f is not None]
    formula = TextFormula(op, tuple(known)) if op and len(known) == len(values) else None
    return TextValue(None, tuple(reads), tuple(values) if parts else (), formula)


def chosen(c: TextValue, a: TextValue, b: TextValue) -> TextValue:
    """``a`` where the condition holds, else ``b``; each is read where it is taken."""
    if c.what is None:
        return combined([c, a, b])
    held = c.what if c.what.cond else c.what.ne(0)
    reads = [TextRead(r.buffer, r.index, simplify(and_(r.when, held))) for r in a.reads]
    reads += [TextRead(r.buffer, r.index, simplify(and_(r.when, not_(held)))) for r in b.reads]
    what = where(held, a.what, b.what) if a.what is not None and b.what is not None and not a.what.cond else None
    formula = None
    if a.computed is not None and b.computed is not None and not c.reads:
        formula = TextFormula("where", (
            TextFormula("integer", what=held), a.computed.where(held), b.computed.where(not_(held))
        ))  # fmt: skip
    return TextValue(what, (*c.reads, *dict.fromkeys(reads)), formula=formula)


@dataclass(slots=True)
class TextTree:
    """The tree of the neutral form while it is made; ``scopes`` are the loops and guards that are open."""

    body: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    names: set[str] = field(default_factory=set[str])
    loops: list[str] = field(default_factory=list[str])
    open: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
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
        self.loops += [name] * (extent > 1)
        if trips.is_const:
            inside(variable)
        else:
            self.guard(variable < trips, lambda: inside(variable))
        if extent > 1:
            self.loops.pop()
        self.open.pop()
        if not node["body"]:
            self._into().remove(node)

    def guard(self, when: Expr, inside: Callable[[], None]) -> None:
        """Statements that run where a condition holds."""
        node: dict[str, Any] = {"if": str(simplify(when)), "body": []}
        self._into().append(node)
        self.open.append(node)
        inside()
        self.open.pop()
        if not node["body"]:
            self._into().remove(node)

    def allocated(self, name: str) -> None:
        """Memory that each iteration of the innermost loop has of its own."""
        for node in reversed(self.open):
            if "for" in node:
                node["private"].append(name)
                return

    def store(self, buffer: str, index: Expr, value: TextValue, line: int) -> None:
        """A store; one that combines what is there with other values, over a loop that its address lacks, adds up."""
        index = simplify(index)
        mode, reads, formula = "store", value.reads, value.computed
        own = [v for v in value.parts if v.reads and all(_is(r, buffer, index) for r in v.reads)]
        if own and set(self.loops) - index.names:
            rest = [v for v in value.parts if v is not own[0]]
            mode, reads = "add", tuple(dict.fromkeys(r for v in rest for r in v.reads))
            formula = rest[0].computed if formula is not None and formula.op == "add" and len(rest) == 1 else None
        self.lines[buffer, line] += 1
        again = self.lines[buffer, line]
        self._into().append({
            "name": f"{buffer} at line {line}" + (f" ({again})" if again > 1 else ""),
            "loops": [], "writes": [{
                "buffer": buffer, "index": str(index), "mode": mode,
                **({"value": shown} if (shown := _value_text(formula, reads)) else {}),
                "reads": [
                    {"buffer": r.buffer, "index": str(simplify(r.index)), "when": str(simplify(r.when))} for r in reads
                ],
            }],
        })  # fmt: skip

    def neutral(self, program: str) -> dict[str, object]:
        """The program in the neutral form."""
        return {"version": 1, "program": program, "body": self.body}


def _value_text(formula: TextFormula | None, reads: Sequence[TextRead]) -> str:
    """The formula of a store; "" where there is none that the neutral form has."""
    if formula is None:
        return ""
    text = formula.text(reads)
    try:
        return parse_value(text, frozenset(re.findall(r"[A-Za-z_]\w*", text)), "value").text
    except CheckError:
        return ""


def _is(r: TextRead, buffer: str, index: Expr) -> bool:
    return r.buffer == buffer and simplify(r.index - index) == as_expr(0)


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


def parsed(grammar: str, text: str, what: str) -> Any:
    """The syntax tree of a text; `CheckError` with line and column for what the grammar lacks."""
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
        raise CheckError(
            f"{what}, line {line} column {column}: `{shown}` is not known here",
            hint="the guide lists the forms that are read; nothing else is guessed",
        ) from None
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
