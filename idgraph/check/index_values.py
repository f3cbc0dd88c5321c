"""Values that indices are made of: integers, conditions, and what is loaded, named by where it is loaded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, maximum, minimum, not_, or_, simplify, symbol, where
from idgraph.arith.expr import rebuild

LONGEST = 400  # characters of a text; a longer one is known by its digest
Value = Expr | str  # an integer or a condition; a text for what is computed otherwise


@dataclass(slots=True)
class ValueTable:
    """Loaded values by what they are, one symbol for each: both sides of a comparison use the same table.

    ``loads``: symbol name -> (storage, address) or a text; ``places``: symbol name -> (value, size). Entries use only
    entries before them. A place counts from the end below 0, but for those in ``unsigned`` (of a gather, a scatter);
    values of those in ``meant``, the program's, are in range.
    """

    loads: dict[str, tuple[str, Expr] | str] = field(default_factory=dict[str, "tuple[str, Expr] | str"])
    places: dict[str, tuple[Expr, Expr]] = field(default_factory=dict[str, tuple[Expr, Expr]])
    order: list[str] = field(default_factory=list[str])
    unsigned: set[str] = field(default_factory=set[str])
    meant: set[str] = field(default_factory=set[str])
    loose: bool = False  # a condition of loaded values was left out of what limits a read
    _known: dict[object, Expr] = field(default_factory=dict[object, Expr])

    def load(self, storage: str, address: Expr) -> Expr:
        """The value at an address."""
        return self._get(("load", storage, address), "ld", (storage, address), None)

    def text(self, text: str) -> Expr:
        """A value known by its text: of one name in every table, as texts and formulas of it are compared."""
        return self._get(("text", text), "ld", text, None)

    def truncated(self, text: str) -> Expr:
        """The integer that a float, known by its text, is without its fraction."""
        return self.text(f"trunc({text})")

    def place(self, value: Expr, size: Expr, *, wraps: bool = True) -> Expr:
        """A loaded value as the coordinate of an axis: from 0 to size - 1, below 0 counted from the end (``wraps``)."""
        value = simplify(value)
        bare = unwrapped(value, size)
        wraps, value = wraps or bare != value, bare
        inner = {w: self.place(w, n) for w, n in wrapped_parts(value)}
        if inner:
            value = simplify(substitute_symbols(value, inner))
        low, high = value.range
        if low is not None and low >= 0 and high is not None and is_below(high, size):
            return value
        if not self.holds_data(value):
            if not wraps or (low is not None and low >= 0):
                return value
            return simplify(value % size if _is_wrapped_index(value, size) else where(value < 0, value + size, value))
        made = self._get(("place", value, size, wraps), "at", (value, size), size)
        if not wraps:
            self.unsigned.add(made.name)
        return made

    def meant_place(self, value: Expr, size: Expr) -> Expr:
        """`place` of the program, which says itself what counts from the end (`where(i < 0, i + n, i)`)."""
        made = self.place(value, size, wraps=False)
        work = list(made.names & self.places.keys())
        while work:
            name = work.pop()
            self.meant.add(name)
            work += self.places[name][0].names & self.places.keys()
        return made

    def settled(self, x: Expr, held: Expr) -> Expr:
        """``x`` with places as the values that they are of, where ``held`` says that these are in range."""
        given: dict[str, Expr] = {}
        for n in x.names & self.places.keys():
            value, size = self.places[n]
            if value.names & held.names and simplify(and_(value >= 0, value < size), facts=(held,)) is TRUE:
                given[n] = value
        return simplify(x.substitute(given)) if given else x

    def unsigned_as_meant(self, x: Expr) -> Expr:
        """``x`` with places that count from the end as those that do not, where the program means values from 0."""
        given: dict[str, Expr] = {}
        for n in x.names & self.places.keys():
            value, size = self.places[n]
            value = self.unsigned_as_meant(value)
            plain = self._known.get(("place", value, size, False))
            if plain is not None and n not in self.meant and plain.name in self.meant:
                given[n] = plain
            elif value != self.places[n][0]:
                given[n] = self.place(value, size, wraps=n not in self.unsigned)
        return x.substitute(given) if given else x

    def lowest(self, name: str, size: Any) -> Any:
        """The least value of a place that is in range."""
        return 0 * size if name in self.unsigned & self.meant else -size

    def _get(self, key: object, prefix: str, what: object, size: Expr | None) -> Expr:
        found = self._known.get(key)
        if found is None:
            name = f"{prefix}.{_text_digest(what)[:12] if isinstance(what, str) else len(self.order)}"
            found = symbol(name) if size is None else symbol(name, 0, simplify(size - 1))
            self._known[key] = found
            self.order.append(name)
            if size is None:
                self.loads[name] = what  # type: ignore[assignment]
            else:
                self.places[name] = what  # type: ignore[assignment]
        return found

    def turn(self, x: Expr, way: Mapping[str, Expr]) -> Expr:
        """``x`` with variables replaced, also those that its loaded values are loaded at."""
        given: dict[str, Expr] = {n: way[n] for n in x.names if n in way}
        for n in x.names:
            if n in self.places:
                value, size = self.places[n]
                turned = self.turn(value, way)
                if turned != value:
                    given[n] = self.place(turned, size, wraps=n not in self.unsigned)
            elif n in self.loads:
                what = self.loads[n]
                if isinstance(what, tuple):
                    turned = self.turn(what[1], way)
                    if turned != what[1]:
                        given[n] = self.load(what[0], simplify(turned))
        return x.substitute(given) if given else x

    def opened(self, x: Expr, value: Callable[[str, Expr], Expr | None]) -> Expr:
        """``x`` with loaded values replaced by what was stored there, where ``value(storage, address)`` knows it."""
        given: dict[str, Expr] = {}
        for n in x.names:
            if n in self.places:
                inner, size = self.places[n]
                found = self.opened(inner, value)
                if found != inner:
                    given[n] = self.place(found, size, wraps=n not in self.unsigned)
            elif n in self.loads:
                what = self.loads[n]
                if isinstance(what, tuple):
                    address = simplify(self.opened(what[1], value))
                    known = value(what[0], address)
                    given[n] = self.load(what[0], address) if known is None else known
        return simplify(x.substitute(given)) if given else x

    def variables(self, x: Expr) -> set[str]:
        """Names of loop variables that ``x`` depends on, through its loaded values too."""
        out: set[str] = set()
        for n in x.names:
            if n in self.places:
                out |= self.variables(self.places[n][0])
            elif n in self.loads:
                what = self.loads[n]
                out |= set() if isinstance(what, str) else self.variables(what[1])
            else:
                out.add(n)
        return out

    def storages(self, x: Expr) -> set[str]:
        """Storages that the loaded values in ``x`` are loaded from."""
        out: set[str] = set()
        for n in x.names:
            if n in self.places:
                out |= self.storages(self.places[n][0])
            elif n in self.loads:
                what = self.loads[n]
                out |= set() if isinstance(what, str) else {what[0], *self.storages(what[1])}
        return out

    def texts(self, x: Expr) -> list[str]:
        """The values that are known by their text only, among those on which ``x`` depends."""
        out: list[str] = []
        for n in sorted(x.names):
            if n in self.places:
                out += self.texts(self.places[n][0])
            elif n in self.loads:
                what = self.loads[n]
                out += [what] if isinstance(what, str) else self.texts(what[1])
        return out

    def limits(self) -> dict[str, list[tuple[Expr, Expr]]]:
        """By storage, (least value, size) of the axes that what is loaded there addresses as it is: values in range."""
        out: dict[str, list[tuple[Expr, Expr]]] = {}
        for name, (value, size) in self.places.items():
            what = self.loads.get(value.name) if value.op == "sym" else None
            if isinstance(what, tuple):
                out.setdefault(what[0], []).append((as_expr(self.lowest(name, size)), size))
        return out

    def holds_data(self, x: Expr) -> bool:
        """True where a value depends on what is loaded."""
        return any(n in self.loads or n in self.places for n in x.names)

    def may(self, c: Expr, wanted: bool = True) -> Expr:
        """A condition of loop variables only that holds wherever ``c`` can be ``wanted`` for some loaded values."""
        if not self.holds_data(c):
            return c if wanted else not_(c)
        if c.op == "not":
            return self.may(c.args[0], not wanted)
        if c.op in ("and", "or"):
            parts = [self.may(a, wanted) for a in c.args]
            return and_(*parts) if (c.op == "and") == wanted else or_(*parts)
        self.loose = True
        return TRUE


def is_below(high: int, size: Expr) -> bool:
    """``high < size`` for every size."""
    low = size.range.lo
    return low is not None and high < low


def wrapped_parts(x: Expr) -> list[tuple[Expr, Expr]]:
    """``where(v < 0, v + n, v)`` inside a formula, or ``v % n`` with -n <= v < n, outermost: (it, n)."""
    found: list[tuple[Expr, Expr]] = []
    work = [x]
    while work:
        e = work.pop()
        if e.op == "where" and not e.cond:
            clamped = _match_clamp(e)
            if clamped is not None:
                found.append((e, clamped))
                continue
            size = simplify(e.args[1] - e.args[2])
            if size.is_const and simplify(e.args[0]) == simplify(e.args[2] < 0):
                found.append((e, size))
                continue
        if e.op == "mod" and e.args[1].is_const and _is_wrapped(e.args[0], int(e.args[1])):
            found.append((e, e.args[1]))
            continue
        work.extend(e.args)
    return found


def _match_clamp(e: Expr) -> Expr | None:
    """n of ``where(v < 0, max(v, -n) + n, min(v, n - 1))``: clamped to what there is, and counted from the end."""
    c, low, high = e.args
    if c.op != "lt" or high.op != "min" or len(high.args) != 2 or c.args[0] not in high.args:
        return None
    v = c.args[0]
    n = simplify(next((a for a in high.args if a != v), v) + 1)
    if not n.is_const or simplify(c) != simplify(v < 0):
        return None
    return n if simplify(low - n - maximum(v, -n)) == as_expr(0) else None


def _is_wrapped(x: Expr, n: int) -> bool:
    """-n <= x < n, and x may be below 0."""
    low, high = x.range
    return low is not None and -n <= low < 0 and high is not None and high < n


def _is_wrapped_index(x: Expr, size: Expr) -> bool:
    return size.is_const and _is_wrapped(x, int(size))


def substitute_symbols(x: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """``x`` with parts of it replaced."""
    if x in new:
        return new[x]
    args = tuple(substitute_symbols(a, new) for a in x.args)
    return x if args == x.args else rebuild(x, args)


def unwrapped(value: Expr, size: Expr) -> Expr:
    """``x`` of ``where(x < 0, x + size, x)``: indices count from the end anyway."""
    if value.op == "where" and not value.cond:
        x = value.args[2]
        if _match_clamp(value) == size:
            return simplify(maximum(minimum(value.args[0].args[0], size - 1), -size))
        below = simplify(value.args[0])
        if below == simplify(x < 0) and simplify(value.args[1].eq(x + size), facts=(below,)) is TRUE:
            return x
    wrapped = value.op == "mod" and value.args[1] == size and _is_wrapped_index(value.args[0], size)
    return value.args[0] if wrapped else value


_COMPARE: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "eq": lambda a, b: a.eq(b), "ne": lambda a, b: a.ne(b), "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_INTEGER: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "minimum": minimum, "maximum": maximum,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b,
}  # fmt: skip
_NEUTRAL = frozenset({("add", "0.0"), ("sub", "0.0"), ("mul", "1.0")})  # of floats: the other operand as it is
_LOGIC: Mapping[str, Callable[..., Expr]] = {
    "logical_and": and_, "bitwise_and": and_, "logical_or": or_, "bitwise_or": or_,
}  # fmt: skip


def combine(op: str, args: Sequence[Value | float | bool], table: ValueTable) -> Value:
    """The value of an elementwise operation on integers or conditions; a text that names it otherwise.

    >>> i = symbol("i", 0, 7)
    >>> str(combine("where", [i < 4, i, as_expr(0)], ValueTable()))
    'where(i < 4, i, 0)'
    """
    if args and isinstance(args[0], (Expr, str)) and (op, args[-1]) in _NEUTRAL:
        return args[0]
    if op == "add" and args[0] == "0.0" and isinstance(args[-1], (Expr, str)):
        return args[-1]
    whole = [_integer_expr(a) for a in args]
    if all(isinstance(a, Expr) for a in whole):
        exprs = [a for a in whole if isinstance(a, Expr)]
        found = _combine(op, exprs)
        if found is not None:
            return simplify(found)
    text = f"{op}({', '.join(str(a) for a in args)})"
    return text if len(text) <= LONGEST else f"{op}#{_text_digest(text)}"


def _text_digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def _combine(op: str, args: list[Expr]) -> Expr | None:
    conds = [a.cond for a in args]
    if len(args) == 1:
        (a,) = args
        if op in ("logical_not", "bitwise_not") and a.cond:
            return not_(a)
        if op == "logical_not":
            return a.eq(0)
        return {"neg": lambda: -a, "abs": lambda: abs(a)}[op]() if op in ("neg", "abs") and not a.cond else None
    if op == "where" and len(args) == 3:
        c, a, b = args
        c = c if c.cond else c.ne(0)
        if a.cond and b.cond:
            return or_(and_(c, a), and_(not_(c), b))
        return where(c, number_of(a), number_of(b))
    if len(args) != 2:
        return None
    a, b = args
    if op in _LOGIC and all(conds):
        return _LOGIC[op](a, b)
    if op in ("logical_and", "logical_or"):
        return _LOGIC[op](*(x if x.cond else x.ne(0) for x in args))
    if op in _COMPARE:
        return _COMPARE[op](number_of(a), number_of(b))
    if op in ("floor_divide", "remainder", "fmod", "div_trunc"):
        least = None if b.cond else simplify(b).range.lo
        if least is None or least < 1:
            return None
    if op in ("fmod", "div_trunc"):  # toward zero: as the floor for what is not negative
        below = simplify(number_of(a) >= 0) is not TRUE
        return None if below else number_of(a) % b if op == "fmod" else number_of(a) // b
    return _INTEGER[op](number_of(a), number_of(b)) if op in _INTEGER else None


def number_of(a: Expr) -> Expr:
    return where(a, 1, 0) if a.cond else a


def _integer_expr(a: Value | float | bool) -> Expr | None:
    if isinstance(a, Expr):
        return a
    if isinstance(a, bool):
        return TRUE if a else FALSE
    return as_expr(a) if isinstance(a, int) else None


def cast_value(value: Value, dtype: str, truncated: Callable[[str], Expr] | None = None) -> Value:
    """A conversion as far as it changes an integer: to a condition, or from one; a float's is ``truncated``."""
    if not isinstance(value, Expr):
        return value if truncated is None else truncated(value)
    if dtype == "bool":
        return value if value.cond else value.ne(0)
    return number_of(value)


def scalar_value(value: object, boolean: bool) -> Value:
    if isinstance(value, Expr):
        return value
    if boolean or isinstance(value, bool):
        return TRUE if value else FALSE
    return as_expr(value) if isinstance(value, int) else str(value)
