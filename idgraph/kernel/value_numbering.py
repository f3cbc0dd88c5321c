"""Value numbering: equal numbers are equal values. Every pass that asks whether two computations are one asks here.

A statement's key is its operation over the numbers of its operands; a variable, or an index expression of variables,
has the number of what it holds at the present statement, so a variable that is set again is another value.
(Cocke and Schwartz, Programming languages and their compilers, 1970, with hash keys for the trees.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from idgraph.arith import Expr
from idgraph.kernel.def_use import all_sets, defs, sets
from idgraph.kernel.statements import Compute, Index, Load, Local, Operand, Select, Stmt, bodies

Value = Load | Compute | Select  # the statements that make one value of others


@dataclass(slots=True)
class ValueNumbering:
    """The numbers of what variables hold at one point of a kernel; `define` moves on by a statement.

    ``read_only`` are the buffers whose elements no statement changes (None: all of them). A variable that is a copy of
    another one holds the same value.

    >>> from idgraph.kernel.statements import Constant
    >>> x, y, z = (Local(n, "float32") for n in "xyz")
    >>> v = ValueNumbering()
    >>> for local in (y, z):
    ...     v.define(Compute(local, "add", (x, Constant(1.0)), "float32"))
    >>> v.number(y) == v.number(z), v.home(z)
    (True, Local(name='y', dtype='float32', at=None))
    >>> v.define(Compute(x, "neg", (x,), "float32"))
    >>> v.define(Compute(z, "add", (x, Constant(1.0)), "float32"))
    >>> v.number(y) == v.number(z)
    False
    """

    read_only: frozenset[str] | None = frozenset()
    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    held: dict[str, int] = field(default_factory=dict[str, int])  # of variables that are set here
    homes: dict[int, Local] = field(default_factory=dict[int, Local])

    def branch(self) -> ValueNumbering:
        """A copy of the numbering, for statements under a condition."""
        return ValueNumbering(self.read_only, self.numbers, dict(self.held), dict(self.homes))

    # values -------------------------------------------------------------------------------------------------------

    def number(self, o: Operand) -> int:
        """The number of an operand's value."""
        match o:
            case Local(at=None):
                found = self.held.get(o.name)
                return self._outer(o) if found is None else found
            case Local():
                return self._numbered((o.name, o.dtype, self.held.get(o.name), self.index(o.at)))
            case Index(value):
                return self._numbered(self.index(value))
            case _:
                return self._numbered(o)

    def index(self, e: Expr | None) -> Hashable:
        """The key of an index expression, or of a condition."""
        if e is None:
            return None
        return (e, *((n, self.held[n]) for n in sorted(e.names & self.held.keys())))

    def key(self, s: Stmt) -> Hashable:
        """Equal for statements that make equal values here; None for a statement that equals no other."""
        match s:
            case Load(local, buffer, address, guard) if self.read_only is None or buffer.name in self.read_only:
                return ("load", local.dtype, buffer.name, self.index(address), self.index(guard))
            case Compute(Local(dtype=dtype), "cast", (Local(dtype=given) as o,)) if dtype == given:
                return self.number(o)
            case Select(Local(dtype=dtype), (), Local(dtype=given) as o) if dtype == given:
                return self.number(o)
            case Compute(local, op, operands, compute):
                return (op, local.dtype, tuple(map(self.number, operands)), compute)
            case Select(local, cases, default):
                chosen = tuple((self.index(c), self.number(o)) for c, o in cases)
                return ("choose", local.dtype, chosen, self.number(default))
            case _:
                return None

    def known(self, s: Value) -> Local | None:
        """A variable of the same type that holds the value of ``s`` already."""
        key = self.key(s)
        number = key if isinstance(key, int) else self.numbers.get(key) if key is not None else None
        return None if number is None else self._home(number, s.local)

    def home(self, x: Local) -> Local:
        """The first variable of the type of ``x`` that holds its value, else ``x`` itself."""
        return self._home(self.number(x), x) or x

    def operand(self, o: Operand) -> Operand:
        """The same for an operand."""
        return self.home(o) if isinstance(o, Local) and o.at is None else o

    # statements ---------------------------------------------------------------------------------------------------

    def define(self, s: Stmt) -> None:
        """Update the numbering past ``s``."""
        key = self.key(s)
        if isinstance(s, Value) and key is not None and s.local.at is None:
            self.same(s.local, key if isinstance(key, int) else self._numbered(key))
            return
        self.forget(all_sets((s,)) if bodies(s) else sets(s))
        for x in defs(s):
            if x.at is None:
                self.homes[self.held[x.name]] = x

    def same(self, x: Local, number: int) -> None:
        """``x`` holds the value of that number from here on."""
        self.held[x.name] = number
        if self._home(number, x) is None:
            self.homes[number] = x

    def forget(self, names: Iterable[str]) -> None:
        """Give variables new numbers: their values equal no earlier ones."""
        for name in names:
            self.held[name] = self._numbered(("fresh", len(self.numbers)))

    def _outer(self, x: Local) -> int:
        """The number of a variable that was set before."""
        number = self._numbered((x.name, x.dtype))
        self.homes.setdefault(number, x)
        return number

    def _numbered(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def _home(self, number: int, like: Local) -> Local | None:
        """The variable of a number, where it still holds that number."""
        found = self.homes.get(number)
        if found is None or found.dtype != like.dtype or self.number(found) != number:
            return None
        return found
