"""What a program reads for an element: index maps of the fusion, composed back to the tensors that are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, maximum, minimum, not_, or_, simplify, symbol, where
from idgraph.arith.nodes import rebuild
from idgraph.errors import IdGraphError
from idgraph.index import Access, IdModel
from idgraph.ir import SCATTERS, Fusion, Tensor, TensorExpr, written_at
from idgraph.ir.exprs import SCANS

MOST_NEEDS = 2000  # reads of one element, composed; a nest that has more is left undecided
Value = Expr | str  # an integer or a condition; a text for what is computed otherwise
Address = Callable[[Tensor, Sequence[Expr]], tuple[str, Expr] | None]  # (storage, address) where it is stored


class Undecided(Exception):
    """No meaning in index terms, for this reason."""


@dataclass(slots=True)
class Table:
    """Loaded values by what they are, one symbol for each: both sides of a comparison use the same table.

    ``loads``: symbol name -> (storage, address) or a text; ``places``: symbol name -> (value, size). Entries use only
    entries before them.
    """

    loads: dict[str, tuple[str, Expr] | str] = field(default_factory=dict[str, "tuple[str, Expr] | str"])
    places: dict[str, tuple[Expr, Expr]] = field(default_factory=dict[str, tuple[Expr, Expr]])
    order: list[str] = field(default_factory=list[str])
    _known: dict[object, Expr] = field(default_factory=dict[object, Expr])

    def load(self, storage: str, address: Expr) -> Expr:
        """The value at an address."""
        return self._get(("load", storage, address), "ld", (storage, address), None)

    def text(self, text: str) -> Expr:
        """A value known by its text."""
        return self._get(("text", text), "ld", text, None)

    def place(self, value: Expr, size: Expr) -> Expr:
        """A loaded value as the coordinate of an axis: from 0 to size - 1, negative ones counted from the end."""
        value = unwrapped(simplify(value), size)
        inner = {w: self.place(w.args[2], n) for w, n in wraps(value)}
        if inner:
            value = simplify(exchanged(value, inner))
        low, high = value.range
        if not self.holds_data(value) or (low is not None and low >= 0 and high is not None and is_below(high, size)):
            return value
        return self._get(("place", value, size), "at", (value, size), size)

    def _get(self, key: object, prefix: str, what: object, size: Expr | None) -> Expr:
        found = self._known.get(key)
        if found is None:
            name = f"{prefix}.{len(self.order)}"
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
                    given[n] = self.place(turned, size)
            elif n in self.loads:
                what = self.loads[n]
                if isinstance(what, tuple):
                    turned = self.turn(what[1], way)
                    if turned != what[1]:
                        given[n] = self.load(what[0], simplify(turned))
        return x.substitute(given) if given else x

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

    def texts(self, x: Expr) -> list[str]:
        """What is known by its text only, among what ``x`` depends on."""
        out: list[str] = []
        for n in sorted(x.names):
            if n in self.places:
                out += self.texts(self.places[n][0])
            elif n in self.loads:
                what = self.loads[n]
                out += [what] if isinstance(what, str) else self.texts(what[1])
        return out

    def holds_data(self, x: Expr) -> bool:
        """True where a value depends on what is loaded."""
        return any(n in self.loads or n in self.places for n in x.names)

    def may(self, c: Expr, wanted: bool = True) -> Expr:
        """A condition of loop variables alone that holds wherever ``c`` can be ``wanted`` for some loaded values."""
        if not self.holds_data(c):
            return c if wanted else not_(c)
        if c.op == "not":
            return self.may(c.args[0], not wanted)
        if c.op in ("and", "or"):
            parts = [self.may(a, wanted) for a in c.args]
            return and_(*parts) if (c.op == "and") == wanted else or_(*parts)
        return TRUE


def is_below(high: int, size: Expr) -> bool:
    """``high < size`` for every size."""
    low = size.range.lo
    return low is not None and high < low


def wraps(x: Expr) -> list[tuple[Expr, Expr]]:
    """``where(v < 0, v + n, v)`` inside a formula, outermost: (it, n)."""
    found: list[tuple[Expr, Expr]] = []
    work = [x]
    while work:
        e = work.pop()
        if e.op == "where" and not e.cond:
            size = simplify(e.args[1] - e.args[2])
            if size.is_const and simplify(e.args[0]) == simplify(e.args[2] < 0):
                found.append((e, size))
                continue
        work.extend(e.args)
    return found


def exchanged(x: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """``x`` with parts of it replaced."""
    if x in new:
        return new[x]
    args = tuple(exchanged(a, new) for a in x.args)
    return x if args == x.args else rebuild(x, args)


def unwrapped(value: Expr, size: Expr) -> Expr:
    """``x`` of ``where(x < 0, x + size, x)``: places count from the end anyway."""
    if value.op == "where":
        x = value.args[2]
        if simplify(value.args[1] - x - size) == as_expr(0) and simplify(value.args[0]) == simplify(x < 0):
            return x
    return value


@dataclass(frozen=True, slots=True)
class Need:
    """An element that is read: in which storage, at which address, under which condition, of which tensor."""

    storage: str
    address: Expr
    when: Expr
    tensor: str = ""


@dataclass(slots=True)
class Demand:
    """All elements that one element of a tensor is made of; ``reduce`` are variables over which it is combined.

    ``nested``: sums within sums, or entries that a scatter looks through: how often an element is read has no meaning.
    """

    needs: dict[Need, None] = field(default_factory=dict[Need, None])
    reduce: dict[Expr, None] = field(default_factory=dict[Expr, None])
    nested: bool = False


_MOVES = frozenset({
    "cast", "cat", "copy", "embedding", "expand", "flip", "gather", "index", "index_select", "pad", "permute",
    "reshape", "roll", "select", "slice", "slice_scatter", "squeeze", "take_along_dim", "unsqueeze",
})  # fmt: skip
_COMPARE: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "eq": lambda a, b: a.eq(b), "ne": lambda a, b: a.ne(b), "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_INTEGER: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "minimum": minimum, "maximum": maximum,
    "floor_divide": lambda a, b: a // b, "remainder": lambda a, b: a % b,
}  # fmt: skip
_LOGIC: Mapping[str, Callable[..., Expr]] = {
    "logical_and": and_, "bitwise_and": and_, "logical_or": or_, "bitwise_or": or_,
}  # fmt: skip


def combine(op: str, args: Sequence[Value | float | bool], table: Table) -> Value:
    """The value of an elementwise operation on integers or conditions; a text that names it otherwise.

    >>> i = symbol("i", 0, 7)
    >>> str(combine("where", [i < 4, i, as_expr(0)], Table()))
    'where(i < 4, i, 0)'
    """
    whole = [_whole(a) for a in args]
    if all(isinstance(a, Expr) for a in whole):
        exprs = [a for a in whole if isinstance(a, Expr)]
        found = _combined(op, exprs)
        if found is not None:
            return simplify(found)
    return f"{op}({', '.join(str(a) for a in args)})"


def _combined(op: str, args: list[Expr]) -> Expr | None:
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
        return where(c, _number(a), _number(b))
    if len(args) != 2:
        return None
    a, b = args
    if op in _LOGIC and all(conds):
        return _LOGIC[op](a, b)
    if op in ("logical_and", "logical_or"):
        return _LOGIC[op](*(x if x.cond else x.ne(0) for x in args))
    if op in _COMPARE:
        return _COMPARE[op](_number(a), _number(b))
    if op in ("floor_divide", "remainder", "fmod", "div_trunc") and not (b.is_const and not b.cond and int(b) > 0):
        return None
    if op in ("fmod", "div_trunc"):  # toward zero: as the floor for what is not negative
        low = simplify(_number(a)).range.lo
        return None if low is None or low < 0 else _number(a) % b if op == "fmod" else _number(a) // b
    return _INTEGER[op](_number(a), _number(b)) if op in _INTEGER else None


def _number(a: Expr) -> Expr:
    return where(a, 1, 0) if a.cond else a


def _whole(a: Value | float | bool) -> Expr | None:
    if isinstance(a, Expr):
        return a
    if isinstance(a, bool):
        return TRUE if a else FALSE
    return as_expr(a) if isinstance(a, int) else None


class Meaning:
    """Index maps of a fusion, composed. ``opaque`` are inputs that stand for operations without a meaning here."""

    def __init__(self, fusion: Fusion, opaque: frozenset[str] = frozenset()) -> None:
        self.fusion = fusion
        self.opaque = opaque
        self.model = IdModel(fusion)
        self.tensors = {t.name: t for t in fusion.tensors}

    def demand(
        self, root: Tensor, coordinates: Sequence[Expr], when: Expr, at: Address, table: Table, copied: bool = False
    ) -> Demand:
        """What the element of ``root`` at ``coordinates`` is made of, as far as stored tensors; raises `Undecided`.

        ``copied``: the element itself, where it is stored.
        """
        walk = _Walk(self, at, table)
        walk.started = copied
        try:
            walk.into(root, tuple(coordinates), when, ())
        except RecursionError:
            raise Undecided("its operations are nested too deep") from None
        except IdGraphError as error:
            raise Undecided(error.what) from None
        return walk.found

    def scatter(self, e: TensorExpr, points: Sequence[Expr], at: Address, table: Table) -> tuple[list[Expr], Demand]:
        """What a scatter writes at a point of its own loops: the coordinates written, and what is read for them."""
        walk = _Walk(self, at, table)
        walk.started = True
        env = {loop.name: x for loop, x in zip(self.model.loops(e), points, strict=True)}
        try:
            write = self.model.write(e)
            env |= walk.loaded(write, env)
            written = [simplify(x.substitute(env)) for x in write.coordinates]
            when = simplify(write.predicate.substitute(env))
            for k in range(1, len(e.inputs)):
                walk.operand(e, k, env, when, ())
        except IdGraphError as error:
            raise Undecided(error.what) from None
        return written, walk.found


class _Walk:
    """One walk back through the operations."""

    def __init__(self, meaning: Meaning, at: Address, table: Table) -> None:
        self.meaning = meaning
        self.model = meaning.model
        self.at = at
        self.table = table
        self.found = Demand()
        self.seen: set[tuple[Tensor, tuple[Expr, ...], Expr]] = set()
        self.started = False

    def into(self, t: Tensor, coordinates: tuple[Expr, ...], when: Expr, reduced: tuple[Expr, ...]) -> None:
        """Everything that one element is made of."""
        when = simplify(when)
        key = (t, coordinates, when)
        if when is FALSE or key in self.seen:
            return
        self.seen.add(key)
        stored = self.at(t, coordinates) if self.started else None
        self.started = True
        if stored is not None:
            if len(self.found.needs) >= MOST_NEEDS:
                raise Undecided(f"an element is made of more than {MOST_NEEDS} others")
            self.found.needs[Need(stored[0], simplify(stored[1], facts=(when,)), when, t.name)] = None
            return
        e = t.definition
        if e is None:
            why = "an operation without index meaning here" if t.name in self.meaning.opaque else "not stored anywhere"
            raise Undecided(f"{t.name} is {why}")
        if e.op in SCATTERS:
            self.through_scatter(e, coordinates, when, reduced)
            return
        before = len(self.found.reduce)
        env = self.point(e, coordinates)
        new = tuple(self.found.reduce)[before:]
        if new and before:  # a second sum, inside the first or beside it
            self.found.nested = True
        for k in range(len(e.inputs)):
            self.operand(e, k, env, when, (*reduced, *new))

    def point(self, e: TensorExpr, coordinates: Sequence[Expr]) -> dict[str, Expr]:
        """Values of an operation's loops: the element's coordinates, and a new variable for each reduced axis."""
        out = e.output
        given = dict(zip((d for d in out.logical if d.kind != "reduction"), coordinates, strict=True))
        write = self.model.write(e)
        env: dict[str, Expr] = {}
        back = dict(zip((d for d in out.logical if d.kind != "reduction"), write.coordinates, strict=True))
        for d, x in back.items():
            if x.op == "sym":
                env[x.name] = given[d]
        for loop in self.model.loops(e):
            if loop.name not in env:
                env[loop.name] = self.variable(loop.extent)
        return env

    def variable(self, extent: Expr) -> Expr:
        """A new variable over a reduced axis; 0 where there is nothing to go over."""
        if extent == as_expr(1):
            return as_expr(0)
        made = symbol(f"r.{len(self.found.reduce)}", 0, simplify(extent - 1))
        self.found.reduce[made] = None
        return made

    def operand(self, e: TensorExpr, k: int, env: dict[str, Expr], when: Expr, reduced: tuple[Expr, ...]) -> None:
        """What an operation reads of operand ``k`` at a point of its loops."""
        access = self.model.read(e, k)
        env = {**env, **self.loaded(access, env)}
        coordinates = tuple(simplify(x.substitute(env)) for x in access.coordinates)
        held = and_(when, access.predicate.substitute(env)) if access.conditions else when
        if e.op == "where":
            held = and_(held, self.branch(e, k, env))
        if e.op == "slice_scatter" and k == 0:  # what the slice replaces is not read
            held = and_(held, not_(self.model.read(e, 1).predicate.substitute(env)))
        self.into(e.inputs[k], coordinates, held, reduced)

    def branch(self, e: TensorExpr, k: int, env: dict[str, Expr]) -> Expr:
        """When a branch of ``where`` can be taken."""
        places = [p for p, a in enumerate(e.args) if isinstance(a, Tensor)]
        if places[k] == 0 or not isinstance(e.args[0], Tensor):
            return TRUE
        access = self.model.read(e, 0)
        c = self.value(e.args[0], tuple(simplify(x.substitute(env)) for x in access.coordinates))
        if not isinstance(c, Expr):
            return TRUE
        return self.table.may(c if c.cond else c.ne(0), places[k] == 1)

    def loaded(self, access: Access, env: dict[str, Expr]) -> dict[str, Expr]:
        """The loaded values that an access uses, as places of the axes they address."""
        out: dict[str, Expr] = {}
        for name, (index, where_from) in access.loads.items():
            value = self.value(index, tuple(simplify(x.substitute(env)) for x in where_from))
            known = value if isinstance(value, Expr) else self.table.text(value)
            pairs = zip(access.tensor.axes, access.coordinates, strict=True)
            axis = next((d for d, x in pairs if name in x.names), None)
            if axis is not None:  # of an axis of one element only 0 is read, whatever is loaded
                out[name] = self.table.place(_number(known), axis.extent)
        return out

    def through_scatter(
        self, e: TensorExpr, coordinates: tuple[Expr, ...], when: Expr, reduced: tuple[Expr, ...]
    ) -> None:
        """An element of a scatter that is not stored: what was there, and every entry that may name it."""
        self.into(e.inputs[0], coordinates, when, reduced)
        out, loaded = e.output, {d for d, _ in written_at(e)}
        given = {d: x for d, x in zip(out.logical, coordinates, strict=True) if d not in loaded}
        for x in out.domain.exprs:  # a shorter index covers the front of an axis
            (inner,), (outer,) = x.inputs, x.outputs
            if outer in given:
                given[inner] = given[outer]
                when = and_(when, given[outer] < inner.extent)
        env: dict[str, Expr] = {}
        for loop, d in zip(self.model.loops(e), out.root, strict=True):
            env[loop.name] = given[d] if d in given else self.variable(loop.extent)
            if d not in given:
                self.found.nested = True
        for k in range(1, len(e.inputs)):
            self.operand(e, k, env, when, reduced)

    def value(self, t: Tensor, coordinates: tuple[Expr, ...]) -> Value:
        """The value of an element: an integer or a condition, of loaded values where it must be."""
        stored = self.at(t, coordinates)
        if stored is not None:
            found = self.table.load(stored[0], simplify(stored[1]))
            return found.ne(0) if t.dtype == "bool" else found
        e = t.definition
        if e is None:
            raise Undecided(f"{t.name} is an operation without index meaning here")
        if e.op in SCATTERS or e.op in SCANS or e.is_reduction:
            return f"{e.op}({t.name})"
        env = self.point(e, coordinates)
        if e.op == "full":
            given = e.attrs["value"]
            return _scalar(given, t.dtype == "bool")
        if e.op == "iota":
            return self.iota(e, coordinates)
        args = self.values(e, env)
        if e.op in _MOVES:
            return self.moved(e, env, args)
        operands = iter(args)
        every = [next(operands) if isinstance(a, Tensor) else _scalar(a, False) for a in e.args]
        return combine(e.op, every, self.table)

    def iota(self, e: TensorExpr, coordinates: tuple[Expr, ...]) -> Value:
        """``start + step * i``."""
        start, step = e.attrs.get("start", 0), e.attrs.get("step", 1)
        if isinstance(start, (int, Expr)) and isinstance(step, (int, Expr)):
            return simplify(coordinates[0] * step + start)
        return f"iota({start}, {step}, {coordinates[0]})"

    def values(self, e: TensorExpr, env: dict[str, Expr]) -> list[Value]:
        """Values of an operation's operands at a point."""
        found: list[Value] = []
        for k, t in enumerate(e.inputs):
            access = self.model.read(e, k)
            own = {**env, **self.loaded(access, env)}
            found.append(self.value(t, tuple(simplify(x.substitute(own)) for x in access.coordinates)))
        return found

    def moved(self, e: TensorExpr, env: dict[str, Expr], args: list[Value]) -> Value:
        """The one operand that an element comes from; a cast changes no integer."""
        if e.op in ("gather", "index", "index_select", "embedding", "take_along_dim") or len(args) == 1:
            read = self.model.read(e, 0)
            if e.op != "pad" or not read.conditions:
                return _cast(args[0], e.output.dtype) if e.op == "cast" else args[0]
            fill = _scalar(e.attrs.get("value", 0), e.output.dtype == "bool")
            return combine("where", [simplify(read.predicate.substitute(env)), args[0], fill], self.table)
        out = args[-1]
        for k in range(len(args) - 2, -1, -1):
            c = simplify(self.model.read(e, k).predicate.substitute(env))
            out = combine("where", [c, args[k], out], self.table)
        return out


def _cast(value: Value, dtype: str) -> Value:
    """A conversion as far as it changes an integer: to a condition, or from one."""
    if not isinstance(value, Expr):
        return value
    if dtype == "bool":
        return value if value.cond else value.ne(0)
    return _number(value)


def _scalar(value: object, boolean: bool) -> Value:
    if isinstance(value, Expr):
        return value
    if boolean or isinstance(value, bool):
        return TRUE if value else FALSE
    return as_expr(value) if isinstance(value, int) else str(value)
