"""Parts of one line of a kernel's text: index expressions, variables, operands, buffers, what accesses are for.

Pieces of a kernel's text: splits outside of brackets and quotes, names, numbers, types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar, get_args

from idgraph.arith import FALSE, TRUE, Expr, simplify, symbol
from idgraph.arith.text import parse_in
from idgraph.ir import DTYPES, DType, Scalar
from idgraph.kernel.statements import LANE, AccumulateOp, Buffer, Constant, Index, Local, Operand, Place, Provenance

MAX_LANES: Final = 1024
Word = TypeVar("Word", bound=str)
WAYS: Final = frozenset(
    {"serial", "rolled", "vectorize", "unroll", *(f"{k}Idx.{a}" for k in ("block", "thread") for a in "xyz")}
)
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*'?\Z", re.ASCII)
NUMBER: Final = re.compile(r"-?(\d{1,400}|inf|nan|(?=\d*\.?\d)\d{0,40}(\.\d{0,40})?(e[+-]?\d{1,4})?)\Z", re.ASCII)
_OPEN, _CLOSE = "([{", ")]}"


class WrongError(Exception):
    """The reason why a line cannot be read."""


def _marks(text: str) -> Iterator[tuple[int, int]]:
    """Each place of ``text`` that is in no quotes, with the number of brackets open there."""
    depth, at = 0, 0
    while at < len(text):
        c = text[at]
        if c in '"`':
            end = at + 1
            while end < len(text) and text[end] != c:
                end += 2 if c == '"' and text[end] == "\\" else 1
            if end >= len(text):
                raise WrongError(f"a {c} without its end")
            at = end + 1
            continue
        depth += (c in _OPEN) - (c in _CLOSE)
        if depth < 0:
            raise WrongError(f"a {c!r} too many")
        yield at, depth
        at += 1


def split_top_level(text: str, mark: str) -> list[str]:
    """``text`` split at each ``mark`` outside of brackets and quotes.

    >>> split_top_level('min(a, b), "x, y"', ",")
    ['min(a, b)', '"x, y"']
    """
    made: list[str] = []
    start = 0
    for at, depth in _marks(text):
        if depth == 0 and text[at] == mark:
            made.append(text[start:at].strip(" "))
            start = at + 1
    return [*made, text[start:].strip(" ")]


def parted_once(text: str, mark: str) -> tuple[str, str, str]:
    """``text`` before and behind the first ``mark`` outside of brackets and quotes."""
    for at, depth in _marks(text):
        if depth == 0 and text.startswith(mark, at):
            return text[:at], mark, text[at + len(mark) :]
    return text, "", ""


def split_once(text: str, mark: str) -> tuple[str, str]:
    """The same; a missing mark is an error."""
    left, found, right = parted_once(text, mark)
    if not found:
        raise WrongError(f"{mark.strip()!r} is missing in {text[:40]!r}")
    return left, right


def closing(text: str) -> int:
    """The position at which the first bracket of ``text``, its first character, closes."""
    for at, depth in _marks(text):
        if depth == 0 and at:
            return at
    raise WrongError("a bracket without its end")


def name_of(text: str) -> str:
    """A name."""
    text = text.strip("`")
    if NAME.match(text) is None:
        raise WrongError(f"{text[:40]!r} is not a name")
    return text


def _one_of(names: Iterable[Word], text: str, what: str, listed: bool = False) -> Word:
    """The word among ``names``; an error says ``what`` they are, with ``listed`` all of them."""
    for name in names:
        if name == text:
            return name
    raise WrongError(f"{text[:40]!r} is not {what}{': ' + ', '.join(names) if listed else ''}")


def way_of(text: str) -> str:
    """A way to run a loop."""
    return _one_of(WAYS, text, "a way to run a loop")


def dtype_of(text: str) -> DType:
    """A type."""
    return _one_of(DTYPES, text, "a type")


def place_of(text: str) -> Place:
    """A place in memory."""
    places: tuple[Place, ...] = get_args(Place)
    return _one_of(places, text, "a memory space", listed=True)


def reduction_of(text: str) -> AccumulateOp:
    """How values are combined."""
    ops: tuple[AccumulateOp, ...] = get_args(AccumulateOp)
    return _one_of(ops, text, "a reduction", listed=True)


def scalar_of(text: str) -> Scalar:
    """A number or a truth value."""
    if text in ("True", "False"):
        return text == "True"
    if NUMBER.match(text) is None:
        raise WrongError(f"{text[:40]!r} is not a number")
    return int(text) if text.lstrip("-").isdigit() else float(text)


def integer_of(text: str) -> int:
    """A count."""
    if not re.match(r"\d{1,9}\Z", text, re.ASCII):
        raise WrongError(f"{text[:40]!r} is not a number")
    return int(text)


def lane_count(text: str) -> int:
    """Elements of one access."""
    count = integer_of(text)
    if not 1 <= count <= MAX_LANES:
        raise WrongError(f"{count} elements in one access")
    return count


def string_of(text: str) -> str:
    """A quoted text."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, str):
        raise WrongError(f"{text[:40]!r} is not a quoted text")
    return found


_LOCAL = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(\[(?P<at>.*)\])?(:(?P<type>\w+))?\Z", re.ASCII)


@dataclass(slots=True)
class LineParser:
    """The meaning of names at the present line: symbols, buffers, and the types that variables were last given."""

    scope: dict[str, Expr] = field(default_factory=dict[str, Expr])
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    types: dict[str, DType] = field(default_factory=dict[str, DType])

    def where(self, text: str) -> None:
        """``n in 1, _``: bounds of a symbol; ``n#2`` is another one of the same name."""
        name, bounds = split_once(text, " in ")
        name = name.strip("`")
        given = split_top_level(bounds, ",")
        if len(given) not in (2, 4):
            raise WrongError("a symbol has two bounds, a step and a remainder")
        low, high = (None if b == "_" else self.expr(b) for b in given[:2])
        step, rest = (int(self.expr(b)) for b in given[2:]) if len(given) == 4 else (1, 0)
        self.scope[name] = symbol(name_of(name.partition("#")[0]), low, high, step, rest)

    def buffer(self, text: str) -> Buffer:
        """``name: type[size] place "title"``, and ``align n``."""
        name, rest = split_once(text, ": ")
        found = re.match(r"(\w+)\[(.*)\] (\w+) (\".*\")( align (\d{1,9}))?\Z", rest, re.ASCII)
        if found is None:
            raise WrongError('a buffer is `name: type[size] place "title"`')
        alignment = int(found[6]) if found[6] else 16
        made = Buffer(
            name_of(name), string_of(found[4]), dtype_of(found[1]), self.expr(found[2]), place_of(found[3]), alignment
        )
        self.buffers[made.name] = made
        return made

    def expr(self, text: str) -> Expr:
        """An integer expression under the names of this place."""
        made = self._read(text)
        if made.is_condition:
            raise WrongError(f"{text[:40]!r} is a condition, not an index")
        return made

    def condition(self, text: str) -> Expr:
        made = TRUE if text == "True" else FALSE if text == "False" else self._read(text)
        if not made.is_condition:
            raise WrongError(f"{text[:40]!r} is not a condition")
        return made

    def _read(self, text: str) -> Expr:
        scope = dict(self.scope)
        made = parse_in(text, scope)
        fresh = [n for n in scope if n not in self.scope and NAME.match(n) is None]
        if fresh:
            raise WrongError(f"{fresh[0]!r} is not a name")
        return made

    def operand(self, text: str) -> Operand:
        if text.startswith("{") and text.endswith("}"):
            return Index(self.expr(text[1:-1]))
        if text in ("True", "False") or NUMBER.match(text):
            return Constant(scalar_of(text))
        return self.local(text)

    def local(self, text: str) -> Local:
        """A variable that is read."""
        found = _LOCAL.match(text)
        if found is None:
            raise WrongError(f"{text[:40]!r} is not a variable")
        name = found["name"]
        dtype = dtype_of(found["type"]) if found["type"] else self.types.get(name)
        if dtype is None:
            raise WrongError(f"{name} has no type here")
        return Local(name, dtype, None if found["at"] is None else self.expr(found["at"]))

    def definition(self, text: str) -> Local:
        """A variable that is set, with its type, or of the type that it has already."""
        left, _, dtype = parted_once(text, ": ")
        found = _LOCAL.match(left)
        if found is None or found["type"]:
            raise WrongError(f"{text[:40]!r} is not a variable with its type")
        kind = dtype_of(dtype) if dtype else self.types.get(found["name"])
        if kind is None:
            raise WrongError(f"{found['name']} has no type here")
        made = Local(found["name"], kind, None if found["at"] is None else self.expr(found["at"]))
        self.types[made.name] = made.dtype
        return made

    def lanes(self, text: str) -> tuple[Operand, ...]:
        """Values of a vector access: ``t[4; 8]``, or one by one in parentheses."""
        if text.startswith("(") and text.endswith(")"):
            return tuple(map(self.operand, split_top_level(text[1:-1], ",")))
        return tuple(self._row(text, self.local))

    def made_lanes(self, text: str, width: int) -> tuple[Local, ...]:
        if text.startswith("(") and text.endswith(")"):
            made = tuple(map(self.definition, split_top_level(text[1:-1], ",")))
        else:
            made = tuple(self._row(text, self.definition))
        if len(made) != width:
            raise WrongError(f"{len(made)} variables for {width} elements")
        return made

    def _row(self, text: str, read: Callable[[str], Local]) -> Iterator[Local]:
        found = re.match(r"([\w.]+\[.*); (\d{1,4})(\].*)\Z", text, re.ASCII)
        if found is None:
            raise WrongError(f"{text[:40]!r} is not a row of an array")
        first = read(found[1] + found[3])
        if first.at is None:
            raise WrongError(f"{text[:40]!r} is not a row of an array")
        for n in range(lane_count(found[2])):
            yield Local(first.name, first.dtype, first.at + n)

    def serves(self, text: str, lanes: int | None) -> tuple[Provenance, ...]:
        """Behind ``@``: the operations and points that an access is for."""
        made: list[Provenance] = []
        for one in split_top_level(text, ";") if text else ():
            parts = split_top_level(one, ",")
            found = re.match(r"(\w+)(\.(\d{1,4}))?\((.*)\)\Z", parts[0], re.ASCII)
            if found is None:
                raise WrongError(f"{one[:40]!r} does not say what an access is for")
            scope = self.scope
            over: list[tuple[str, Expr]] = []
            when = TRUE
            self.scope = dict(scope) if lanes is None else {**scope, LANE: symbol(LANE, 0, lanes - 1)}
            for part in parts[1:]:
                if part.startswith("for "):
                    var, extent = split_once(part[4:], " < ")
                    over.append((name_of(var), self.expr(extent)))
            self.scope |= {v: symbol(v, 0, simplify(e - 1)) for v, e in over}
            for part in parts[1:]:
                if part.startswith("if "):
                    when = self.condition(part[3:])
                elif not part.startswith("for "):
                    raise WrongError(f"{part[:40]!r} does not say what an access is for")
            point = tuple(map(self.expr, split_top_level(found[4], ","))) if found[4] else ()
            self.scope = scope
            made.append(Provenance(found[1], int(found[3]) if found[3] else None, point, tuple(over), when))
        return tuple(made)
