"""The elements that a program reads for one element: index maps of the fusion, composed back to the stored tensors."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, not_, simplify, symbol
from idgraph.check.index_values import Value, ValueTable, cast_value, combine, number_of, scalar_value
from idgraph.errors import REPORT, IdGraphError
from idgraph.index import Access, IdModel
from idgraph.ir import SCATTERS, Fusion, Tensor, TensorExpr, is_float, is_integer, scatter_axes
from idgraph.ir.op_table import SCANS

MOST_NEEDS = 2000  # reads of one element, composed; a nest that has more is left undecided
Address = Callable[[Tensor, Sequence[Expr]], tuple[str, Expr] | None]  # (storage, address) where it is stored


class NoIndexMeaning(Exception):
    """No meaning in index terms, for this reason."""


def reason(error: Exception) -> str:
    """Why a row is unknown: the meaning or formula that is not known here, or a fault of this library, and where.

    >>> reason(NoIndexMeaning("x is not stored anywhere"))
    'x is not stored anywhere'
    >>> reason(KeyError("k")).splitlines()[0]
    "KeyError: 'k' in idgraph; this is a fault of idgraph 0.1.0, not of the program: please report it, with this row"
    """
    if isinstance(error, IdGraphError):
        return error.what
    if isinstance(error, NoIndexMeaning):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "idgraph"
    what = f"{type(error).__name__}: {str(error)[:200]} in {where}"
    return f"{what}; {REPORT.replace('the traceback', 'this row')}"


class NotStored(NoIndexMeaning):
    """An argument that lies nowhere when it is read."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"{tensor} is not stored anywhere")
        self.tensor = tensor


@dataclass(frozen=True, slots=True)
class ElementRead:
    """An element that is read: in which storage, at which address, under which condition, of which tensor."""

    storage: str
    address: Expr
    when: Expr
    tensor: str = ""


@dataclass(slots=True)
class ReadSet:
    """All elements that one element of a tensor is made of; ``reduce`` are variables over which it is combined.

    ``nested``: sums within sums, or entries that a scatter looks through: how often an element is read has no meaning.
    ``loose``: of all entries of a scatter that may name the element, so that it may be made of fewer.
    """

    needs: dict[ElementRead, None] = field(default_factory=dict[ElementRead, None])
    combined: dict[str, None] = field(default_factory=dict[str, None])  # operations of the reductions
    reduce: dict[Expr, None] = field(default_factory=dict[Expr, None])
    nested: bool = False
    loose: bool = False
    when: Expr = TRUE  # of an entry of a scatter that adds: where it adds something, it may depend on loaded values


_MOVES = frozenset({
    "cast", "cat", "copy", "embedding", "expand", "flip", "gather", "index", "index_select", "pad", "permute",
    "reshape", "roll", "select", "slice", "slice_scatter", "squeeze", "take_along_dim", "unsqueeze",
})  # fmt: skip


class ProgramSemantics:
    """Index maps of a fusion, composed. ``opaque`` are inputs that stand for operations without a meaning here,
    ``constants`` inputs on one axis whose numbers are known and in no memory.
    """

    def __init__(
        self, fusion: Fusion, opaque: frozenset[str] = frozenset(),
        constants: Mapping[str, tuple[object, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.fusion = fusion
        self.opaque = opaque
        self.constants = constants or {}
        self.model = IdModel(fusion)
        self.tensors = {t.name: t for t in fusion.tensors}

    def demand(
        self,
        root: Tensor,
        coordinates: Sequence[Expr],
        when: Expr,
        at: Address,
        table: ValueTable,
        copied: bool = False,
    ) -> ReadSet:
        """The stored elements from which ``root[coordinates]`` is computed; raises `NoIndexMeaning`.

        ``copied``: the element itself, where it is stored.
        """
        walk = _BackwardWalk(self, at, table)
        walk.started = copied
        try:
            walk.into(root, tuple(coordinates), when, ())
        except RecursionError:
            raise NoIndexMeaning("its operations are nested too deep") from None
        except IdGraphError as error:
            raise NoIndexMeaning(error.what) from None
        return walk.found

    def known(self, t: Tensor, coordinates: Sequence[Expr], at: Address, table: ValueTable) -> Expr | None:
        """The number that an element of ``t`` is, of loop variables and of values ``at`` which its operands are stored;
        None where it is not an integer formula.
        """
        try:
            found = _BackwardWalk(self, at, table).value(t, tuple(coordinates))
        except (NoIndexMeaning, IdGraphError, RecursionError):
            return None
        return number_of(found) if isinstance(found, Expr) and not table.texts(found) else None

    def scatter(
        self, e: TensorExpr, points: Sequence[Expr], at: Address, table: ValueTable
    ) -> tuple[list[Expr], ReadSet]:
        """The write of a scatter at a point of its own loops: coordinates written, and elements read for them."""
        walk = _BackwardWalk(self, at, table)
        walk.started = True
        env = {loop.name: x for loop, x in zip(self.model.loops(e), points, strict=True)}
        try:
            write = self.model.write(e)
            env |= walk.loaded(write, env)
            written = [simplify(x.substitute(env)) for x in write.coordinates]
            when = simplify(write.predicate.substitute(env))
            for k in range(1, len(e.inputs)):
                walk.operand(e, k, env, when, ())
            walk.found.when = simplify(and_(when, walk.added(e, env)))
        except IdGraphError as error:
            raise NoIndexMeaning(error.what) from None
        return written, walk.found


class _BackwardWalk:
    """One walk back through the operations."""

    def __init__(self, meaning: ProgramSemantics, at: Address, table: ValueTable) -> None:
        self.meaning = meaning
        self.model = meaning.model
        self.at = at
        self.table = table
        self.found = ReadSet()
        self.seen: set[tuple[Tensor, tuple[Expr, ...], Expr]] = set()
        self.values_of: dict[tuple[Tensor, tuple[Expr, ...]], Value] = {}
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
                raise NoIndexMeaning(f"an element is made of more than {MOST_NEEDS} others")
            self.found.needs[ElementRead(stored[0], simplify(stored[1], facts=(when,)), when, t.name)] = None
            return
        e = t.definition
        if e is None:
            if t.name in self.meaning.constants:
                return
            if t.name in self.meaning.opaque:
                raise NoIndexMeaning(f"{t.name} is an operation without index meaning here")
            raise NotStored(t.name)
        if e.op in SCATTERS:
            self.through_scatter(e, coordinates, when, reduced)
            return
        before = len(self.found.reduce)
        env = self.point(e, coordinates)
        new = tuple(self.found.reduce)[before:]
        if new and before:  # a second sum, inside the first or beside it
            self.found.nested = True
        if e.is_reduction and new:
            self.found.combined[e.op] = None
        loose = self.table.loose
        for k in range(len(e.inputs)):
            self.operand(e, k, env, when, (*reduced, *new))
        if e.op == "where" and self.table.loose and not loose and self.either_branch(e, env, when):
            self.table.loose = False

    def either_branch(self, e: TensorExpr, env: dict[str, Expr], when: Expr) -> bool:
        """Whether both branches of ``where`` are made of the same elements: it does not matter which is taken."""
        places = [p for p, a in enumerate(e.args) if isinstance(a, Tensor)]
        made: list[set[tuple[str, Expr]]] = [set(), set()]
        for k, p in enumerate(places):
            if p == 0:
                continue
            walk = _BackwardWalk(self.meaning, self.at, self.table)
            walk.started = True
            access = self.model.read(e, k)
            own = {**env, **walk.loaded(access, env)}
            walk.into(e.inputs[k], tuple(simplify(x.substitute(own)) for x in access.coordinates), when, ())
            made[p - 1] |= {(n.storage, n.address) for n in walk.found.needs}
        return made[0] == made[1]

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
        """The element of operand ``k`` that an operation reads at a point of its loops."""
        access = self.model.read(e, k)
        env = {**env, **self.loaded(access, env)}
        coordinates = tuple(simplify(x.substitute(env)) for x in access.coordinates)
        held = and_(when, access.predicate.substitute(env)) if access.conditions else when
        if e.op == "where":
            held = and_(held, self.branch(e, k, env))
        if e.op == "slice_scatter" and k == 0:  # elements that the slice replaces are not read
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
        """The loaded values that an access uses, as indices of the axes they address."""
        out: dict[str, Expr] = {}
        for name, (index, where_from) in access.loads.items():
            value = self.value(index, tuple(simplify(x.substitute(env)) for x in where_from))
            known = value if isinstance(value, Expr) else self.table.text(value)
            pairs = zip(access.tensor.axes, access.coordinates, strict=True)
            axis = next((d for d, x in pairs if name in x.names), None)
            if axis is not None:  # an axis of one element is read at 0, for every loaded value
                out[name] = self.table.meant_place(number_of(known), axis.extent)
        return out

    def through_scatter(
        self, e: TensorExpr, coordinates: tuple[Expr, ...], when: Expr, reduced: tuple[Expr, ...]
    ) -> None:
        """An element of a scatter that is not stored: what was there, and every entry that may name it."""
        self.found.loose = True
        self.into(e.inputs[0], coordinates, when, reduced)
        out, loaded = e.output, {d for d, _ in scatter_axes(e)}
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

    def added(self, e: TensorExpr, env: dict[str, Expr]) -> Expr:
        """Where an entry adds something: not where what it adds is the 0 of ``where(c, x, 0)``."""
        src = e.args[-1]
        accumulates = e.op == "scatter_add" or e.attrs.get("accumulate") is True
        if not isinstance(src, Tensor) or not accumulates:
            return TRUE
        access = self.model.read(e, len(e.inputs) - 1)
        coordinates = tuple(simplify(x.substitute(env)) for x in access.coordinates)
        return self.not_zero(src, coordinates)

    def not_zero(self, t: Tensor, coordinates: tuple[Expr, ...]) -> Expr:
        """Where an element is not the 0 of a ``where``, through casts and moves."""
        e = t.definition
        if e is None or self.at(t, coordinates) is not None:
            return TRUE
        if e.op in _MOVES and len(e.inputs) == 1 and e.op != "pad":
            access, env = self.model.read(e, 0), self.point(e, coordinates)
            return self.not_zero(e.inputs[0], tuple(simplify(x.substitute(env)) for x in access.coordinates))
        if e.op != "where" or not isinstance(e.args[0], Tensor) or not self.is_zero(e.args[2]):
            return TRUE
        env = self.point(e, coordinates)
        c = self.value(e.args[0], tuple(simplify(x.substitute(env)) for x in self.model.read(e, 0).coordinates))
        return (c if c.cond else c.ne(0)) if isinstance(c, Expr) else TRUE

    def is_zero(self, a: object) -> bool:
        """The number 0, or a tensor filled with it."""
        if isinstance(a, Tensor):
            e = a.definition
            while e is not None and e.op in _MOVES and len(e.inputs) == 1:
                e = e.inputs[0].definition
            return e is not None and e.op == "full" and e.attrs.get("value") == 0
        return isinstance(a, (int, float)) and a == 0

    def value(self, t: Tensor, coordinates: tuple[Expr, ...]) -> Value:
        """The value of an element: an integer or a condition, of loaded values where it must be."""
        key = (t, coordinates)
        if key not in self.values_of:
            self.values_of[key] = self.made_of(t, coordinates)
        return self.values_of[key]

    def made_of(self, t: Tensor, coordinates: tuple[Expr, ...]) -> Value:
        """`value`, of an element not met before."""
        stored = self.at(t, coordinates)
        if stored is not None:
            found = self.table.load(stored[0], simplify(stored[1]))
            return found.ne(0) if t.dtype == "bool" else found
        e = t.definition
        if e is None:
            if t.name in self.meaning.constants:
                return self.chosen(self.meaning.constants[t.name], coordinates[0], 0)
            raise NoIndexMeaning(f"{t.name} is an operation without index meaning here")
        if e.op in SCATTERS or e.op in SCANS or e.is_reduction:
            return f"{e.op}({t.name})"
        env = self.point(e, coordinates)
        if e.op == "full":
            given = e.attrs["value"]
            return scalar_value(given, t.dtype == "bool")
        if e.op == "iota":
            return self.iota(e, coordinates)
        args = self.values(e, env)
        if e.op in _MOVES:
            return self.moved(e, env, args)
        operands = iter(args)
        every = [next(operands) if isinstance(a, Tensor) else scalar_value(a, False) for a in e.args]
        return combine(e.op, every, self.table)

    def chosen(self, numbers: Sequence[object], place: Expr, first: int) -> Value:
        """The number at a place, where those from ``first`` on are given: a search by halves, as loops spell it."""
        if len(numbers) == 1:
            return scalar_value(numbers[0], False)
        half = len(numbers) // 2
        low, high = self.chosen(numbers[:half], place, first), self.chosen(numbers[half:], place, first + half)
        return combine("where", [place < first + half, low, high], self.table)

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
                if e.op != "cast":
                    return args[0]
                whole = is_float(e.inputs[0].dtype) and is_integer(e.output.dtype)
                return cast_value(args[0], e.output.dtype, self.table.truncated if whole else None)
            given = e.attrs.get("value", 0)
            if isinstance(given, float) and given.is_integer() and e.output.dtype.startswith(("int", "uint")):
                given = int(given)  # torch pads integers with a float
            fill = scalar_value(given, e.output.dtype == "bool")
            return combine("where", [simplify(read.predicate.substitute(env)), args[0], fill], self.table)
        out = args[-1]
        for k in range(len(args) - 2, -1, -1):
            c = simplify(self.model.read(e, k).predicate.substitute(env))
            out = combine("where", [c, args[k], out], self.table)
        return out
