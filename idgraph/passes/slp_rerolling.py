"""Lanes as loops: straight-line code that does one thing for each lane becomes loops over arrays of registers.

Compilers read a loop once, and unroll it where its extent is constant; an array of constant size whose indices are
constants then becomes registers. Straight-line code for 64 lanes takes 30 times as long, for the same machine code.

Arrays of registers that statements share, one after the other.

Long: one pass; its cases share what they know of a statement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import count

from idgraph.arith import Expr, as_expr, symbol
from idgraph.kernel.def_use import (
    all_reads,
    all_sets,
    defs,
    effects,
    expand_body,
    index_exprs,
    map_body,
    map_statement,
    read_before_set,
    reads,
    same,
    sets,
)
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    Compute,
    Constant,
    Half2Op,
    If,
    Index,
    Kernel,
    Let,
    Local,
    Loop,
    Operand,
    RegisterArray,
    SingleThread,
    Stmt,
    StraightLineBlock,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.ssa import Renamer, all_leaving
from idgraph.kernel.statements import Access
from idgraph.passes.lane_loop_fusion import along, merge_provenance, shape


@dataclass(slots=True)
class RegisterArrayPool:
    """Arrays for the values of one level: those it may use, those it uses, those that statements inside are done with.

    Nothing behind a statement reads what is set inside it, so the next one may use its arrays; statements of the level
    itself may not, since a loop of theirs may move in front.

    >>> outer = RegisterArrayPool(used=["a"])
    >>> outer = outer.behind(RegisterArrayPool(used=["t"]), {"a", "t"})
    >>> outer.free, outer.inside().free
    ([], ['t'])
    """

    free: list[str] = field(default_factory=list[str])
    used: list[str] = field(default_factory=list[str])
    done: list[str] = field(default_factory=list[str])

    def inside(self) -> RegisterArrayPool:
        """The scope of a level inside this one."""
        return RegisterArrayPool([*self.free, *self.done])

    def behind(self, inner: RegisterArrayPool, several: Set[str]) -> RegisterArrayPool:
        """The scope behind a statement whose level had ``inner``; an array without ``several`` elements becomes a
        variable, and stays its own."""
        used = [*(x for x in inner.used if x in several), *inner.done]
        kept = [x for x in self.done if x in inner.free]
        return RegisterArrayPool([x for x in self.free if x in inner.free], self.used, [*kept, *used])


_BASE = re.compile(r"[a-z]+[0-9]*")
LANE = ("q", "r")  # variables of the loops over lanes, inner ones first
Part = Local | Operand | Expr
Body = tuple[Stmt, ...]


def reroll_lanes(kernel: Kernel) -> Kernel:
    """roll: straight-line code of lanes as loops over arrays of registers.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   for i < 16:
    ...     (t_0: float32, t_1: float32) = x[i*4; 2]
    ...     u_0: float32 = neg(t_0)
    ...     u_1: float32 = neg(t_1)
    ...     y[i*4; 2] = (u_0, u_1)
    ... ''')
    >>> print(reroll_lanes(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      registers t: float32[2], u: float32[2]
      for i < 16:
        t[0; 2]: float32 = x[i*4; 2]
        for q < 2, unroll: u[q]: float32 = neg(t[q])
        y[i*4; 2] = u[0; 2]
    """
    kernel = replace(kernel, body=expand_short_arrays(kernel.body))
    taken = {b.name for b in kernel.buffers} | all_sets(kernel.body) | all_reads(kernel.body) | set(LANE)
    roller = SlpReroller(_single(kernel.body), Renamer(taken), leaving=all_leaving(kernel.body))
    body = tuple(roller.level(kernel.body))
    return replace(kernel, body=(*roller.arrays.values(), *body))


def expand_short_arrays(body: Body) -> Body:
    """``body`` with the statements of its lanes moved to the level around them."""
    return expand_body(body, lambda s: expand_short_arrays(s.body) if isinstance(s, StraightLineBlock) else None)


def _single(body: Body) -> frozenset[str]:
    """Variables that stay single: read before they are set (a step of a loop goes on from the one before), added to,
    or part of an index expression."""
    found = set(read_before_set(body, reads, scoped=False))
    for s in walk(body):
        found.update(*(e.names for e in index_exprs(s)), sets(s) - {x.name for x in defs(s)})
        if isinstance(s, Let):
            found.add(s.name)
        if isinstance(s, BoundsCheck):
            found.add(s.value)
    return frozenset(found)


# the parts of a statement, of those inside it too, in one order


def _statement_operands(s: Stmt) -> list[Part]:
    found: list[Part] = []

    def local(x: Local) -> Local:
        found.append(x)
        return x

    def operand(o: Operand) -> Operand:
        found.append(o)
        return o

    def index(e: Expr) -> Expr:
        found.append(e)
        return e

    map_body((s,), lambda x: map_statement(x, made=local, updated=local, read=operand, index=index, point=same))
    return found


def _with(s: Stmt, parts: Iterable[Part]) -> Stmt:
    given = iter(parts)

    def local(_: Local) -> Local:
        found = next(given)
        if not isinstance(found, Local):
            raise AssertionError("a variable stands for a variable")
        return found

    def operand(_: Operand) -> Operand:
        found = next(given)
        if isinstance(found, Expr):
            raise AssertionError("an operand stands for an operand")
        return found

    def index(_: Expr) -> Expr:
        found = next(given)
        if not isinstance(found, Expr):
            raise AssertionError("an index stands for an index")
        return found

    (made,) = map_body(
        (s,), lambda x: map_statement(x, made=local, updated=local, read=operand, index=index, point=same)
    )
    return made


def _serving(s: Stmt, steps: Sequence[Stmt], var: Expr) -> Stmt:
    """``s``, which is step n at ``var`` = n, with the purposes of its accesses there."""
    columns = zip(*([x for x in walk((one,)) if isinstance(x, Access)] for one in steps), strict=True)
    found = [merge_provenance([x.serves for x in column], var) for column in columns]
    order = {id(x): p for x, p in zip([x for x in walk((s,)) if isinstance(x, Access)], found, strict=True)}
    return map_body((s,), lambda x: replace(x, serves=order[id(x)]) if isinstance(x, Access) else x)[0]


def _blank(p: Part) -> Part:
    match p:
        case Local(_, dtype):
            return Local("", dtype)
        case Index():
            return Index(as_expr(0))
        case Constant():
            return p
        case _:
            return as_expr(0)


def _forms(parts: Iterable[Part]) -> tuple[object, ...]:
    """Equal for the parts of statements that may be steps of one loop: operands in the same arrays, indices of one
    form."""
    return tuple([
        shape(p) if isinstance(p, Expr) else None if not isinstance(p, Local) else p.name if p.at is None else
        (p.name, "at")
        for p in parts
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement with its parts; ``form`` is the statement without them."""

    statement: Stmt
    parts: Sequence[Part]
    form: Stmt

    @classmethod
    def of(cls, s: Stmt) -> _Step:
        """A statement whose parts are not known."""
        parts = _statement_operands(s)
        return cls(s, parts, _with(s, map(_blank, parts)))

    def over(self, local: Callable[[Local], Local]) -> _Step:
        """The same over other variables, of the same types."""
        parts = [local(p) if isinstance(p, Local) else p for p in self.parts]
        return _Step(_with(self.statement, parts), parts, self.form)


def _united(first_step: Stmt, steps: Sequence[Sequence[Part]], var: Expr) -> Stmt | None:
    """The statement that is step n, of these parts, at ``var`` = n, or None."""
    columns = zip(*steps, strict=True)
    found: list[Part] = []
    for column in columns:
        first = column[0]
        if all(p == first for p in column):
            found.append(first)
        elif isinstance(first, Local):
            places = [p.at for p in column if isinstance(p, Local) and p.at is not None and p.name == first.name]
            at = along(places, var) if len(places) == len(column) else None
            if at is None:
                return None
            found.append(replace(first, at=at))
        elif isinstance(first, Index):
            found.append(first)  # its expression follows
        elif isinstance(first, Expr):
            e = along([p for p in column if isinstance(p, Expr)], var)
            if e is None:
                return None
            found.append(e)
        else:
            return None
    return _with(first_step, found)


@dataclass(slots=True)
class _Pack:
    """Isomorphic, independent statements that may be steps of one loop; ``arrays`` hold the values that they set."""

    steps: list[_Step] = field(default_factory=list[_Step])
    arrays: list[str] = field(default_factory=list[str])
    single: Stmt | None = None  # no lanes: emitted unchanged


@dataclass(slots=True)
class _Order:
    """Packs in order, and in which of them a name or a buffer was last touched."""

    packs: list[_Pack] = field(default_factory=list[_Pack])
    by_key: dict[object, list[int]] = field(default_factory=dict[object, list[int]])
    made: dict[str, int] = field(default_factory=dict[str, int])
    used: dict[str, int] = field(default_factory=dict[str, int])
    stored: dict[str, int] = field(default_factory=dict[str, int])
    loaded: dict[str, int] = field(default_factory=dict[str, int])

    def place(self, s: Stmt, key: object) -> _Pack:
        """The first pack of this kind after all that ``s`` depends on, else a new one at the end.

        Two stores to one buffer keep their order, in one pack or in two.
        """
        own = effects(s)
        mine, needs, writes, loads = own.sets, own.reads, own.stores, own.loads
        after = [self.made[n] for n in mine | needs if n in self.made]
        after += [self.used[n] for n in mine if n in self.used]
        after += [self.stored[b] for b in loads if b in self.stored]
        after += [self.loaded[b] for b in writes if b in self.loaded]
        least = max([0, *(n + 1 for n in after), *(self.stored[b] for b in writes if b in self.stored)])
        at = next((n for n in self.by_key.get(key, ()) if n >= least), None)
        if at is None:
            at = len(self.packs)
            self.packs.append(_Pack())
            self.by_key.setdefault(key, []).append(at)
        for table, names in ((self.made, mine), (self.used, needs), (self.stored, writes), (self.loaded, loads)):
            table.update((n, max(at, table.get(n, 0))) for n in names)
        return self.packs[at]

    def alone(self, s: Stmt, made: Stmt) -> None:
        """``made``, which stands for ``s``, by itself."""
        self.place(s, object()).single = made


@dataclass(slots=True)
class SlpReroller:
    """``names`` maps each lane's variable to its array element; ``arrays`` holds the sizes of the arrays."""

    fixed: frozenset[str]
    names: Renamer
    arrays: dict[str, RegisterArray] = field(default_factory=dict[str, RegisterArray])
    bases: dict[str, RegisterArray] = field(
        default_factory=dict[str, RegisterArray]
    )  # what two arrays that are alike share
    gathered: dict[object, str] = field(default_factory=dict[object, str])
    leaving: frozenset[str] = frozenset()  # variables that are read outside of the statement that they are set in
    held: dict[str, int] = field(default_factory=dict[str, int])  # elements of each array that the level has in use
    room: RegisterArrayPool = field(default_factory=RegisterArrayPool)

    def level(self, body: Sequence[Stmt]) -> list[Stmt]:
        """``body`` with its straight parts rolled."""
        made: list[Stmt] = []
        part: list[Stmt] = []
        for s in body:
            if _has_no_control_flow(s):
                part.append(s)
            else:
                made += [*self.part(part), self.reroll_statement(s)]
                part = []
        return [*made, *self.part(part)]

    def reroll_statement(self, s: Stmt) -> Stmt:
        """A whole statement, its body included."""
        s = self.names.statement(s)
        if isinstance(s, (Loop, SingleThread, If, BoundsCheck)):
            return replace(s, body=tuple(self.inside(s.body)))
        return s

    def inside(self, body: Sequence[Stmt]) -> list[Stmt]:
        """The statements inside one: they may use the arrays that are done with."""
        outer, gathered = self.room, self.gathered
        self.room, self.gathered = outer.inside(), {}
        made = self.level(body)
        self.room = outer.behind(self.room, {n for n, x in self.arrays.items() if x.count > 1})
        self.gathered = gathered
        return made

    # packs --------------------------------------------------------------------------------------------------------

    def part(self, body: Sequence[Stmt]) -> list[Stmt]:
        """Straight-line code: independent statements of one kind are packed, then packs become loops."""
        order = _Order()
        kinds = {id(s): _loose(s) for s in body if isinstance(s, (If, BoundsCheck))}
        alike = Counter(kinds[id(s)] for s in body if id(s) in kinds)
        for s in body:
            unlike = id(s) in kinds and (alike[kinds[id(s)]] < 2 or _has_vectors(s))
            if unlike or isinstance(s, (Let, Comment)) or (isinstance(s, Accumulate) and s.buffer is None):
                order.alone(s, self.reroll_statement(s))
            elif isinstance(s, VectorStore):
                self.lane(self.side_by_side(s, order), order)
            elif isinstance(s, VectorLoad) and not self.may_load(s):
                self.moved(s, order)
            else:
                self.lane(s, order)
        made: list[Stmt] = []
        for pack in order.packs:
            made += _loops(pack.steps, 0) if pack.single is None else [pack.single]
        return made

    def lane(self, s: Stmt, order: _Order) -> None:
        """One statement of a lane, into the first pack that it fits."""
        groups = [defs(y) for y in walk((s,))]
        fresh = {x.name for group in groups for x in group if x.name not in self.names.to}
        if fresh & self.fixed:
            order.alone(s, self.reroll_statement(s))
            return
        blank = {name: f"#{n}" for n, name in enumerate(x.name for g in groups for x in g if x.name in fresh)}

        def loose(p: Part) -> Part:
            if not isinstance(p, Local):
                return p
            return replace(p, name=blank[p.name]) if p.name in blank else self.names.local(p)

        step = _Step.of(s)
        pack = order.place(s, (step.form, _forms(map(loose, step.parts))))
        for n, group in enumerate(groups):
            if n == len(pack.arrays):
                pack.arrays.append(self.array(group, self.makes_words(s)) if {x.name for x in group} & fresh else "")
            for x in group:
                if x.name not in self.names.to:
                    self.names.to[x.name] = self.element(pack.arrays[n], x)
        pack.steps.append(step.over(self.names.local))

    def makes_words(self, s: Stmt) -> bool:
        """True of a statement whose results are words of two 16-bit floats, also of a copy of one."""
        if isinstance(s, Compute) and s.op == "cast":
            places = [self.names.to.get(o.name) for o in s.operands if isinstance(o, Local)]
            return any(p is not None and self.arrays[p.name].words for p in places)
        return isinstance(s, Half2Op) or (isinstance(s, VectorLoad) and s.pairs)

    def may_load(self, s: VectorLoad) -> bool:
        """True where what a vector access sets is new, or lies in neighbouring elements already."""
        if s.locals[0].name not in self.names.to:
            return not any(x.name in self.names.to or x.name in self.fixed for x in s.locals)
        return self.in_row(s.locals)

    def in_row(self, values: Sequence[Operand]) -> bool:
        """True where values are neighbouring elements of one array."""
        places = [self.names.to.get(v.name) if isinstance(v, Local) else None for v in values]
        first = places[0]
        return first is not None and first.at is not None and all(
            p is not None and (p.name, p.at) == (first.name, first.at + n) for n, p in enumerate(places)
        )  # fmt: skip

    def moved(self, s: VectorLoad, order: _Order) -> None:
        """A vector load of variables of other arrays: into an array of its own, then copied to them."""
        loaded = tuple(replace(x, name=f"{x.name}.{len(self.names.to)}") for x in s.locals)  # no variable has this name
        self.lane(replace(s, locals=loaded), order)
        for x, word in zip(s.locals, loaded, strict=True):
            self.lane(Compute(x, "cast", (word,), x.dtype), order)

    def array(self, group: Sequence[Local], words: bool) -> str:
        """A new array, named after its first value."""
        found = _BASE.match(group[0].name)
        base = found.group() if found else "x"
        alike = RegisterArray(base, group[0].dtype, 0, words)
        name = next((x for x in self.room.free if self.bases[x] == alike), None)
        if name is None:
            name = self.names.fresh(f"{base}_{k}" if k else base for k in count())
            self.arrays[name], self.bases[name] = replace(alike, name=name), alike
        else:
            self.room.free.remove(name)
        self.room.used.append(name)
        self.held[name] = 0
        return name

    def element(self, name: str, of: Local) -> Local:
        """One more element of an array, for a variable."""
        at, array = self.held[name], self.arrays[name]
        self.held[name] = at + 1
        self.arrays[name] = replace(array, count=max(array.count, at + 1))
        if of.name in self.leaving and name in self.room.used:
            self.room.used.remove(name)
        return Local(name, of.dtype, as_expr(at))

    def side_by_side(self, s: VectorStore, order: _Order) -> VectorStore:
        """The store with its values in neighbouring elements of one array, moved there where they are not."""
        if self.in_row(s.values):
            return s
        to = self.gathered.get((s.buffer.name, len(s.values)))
        if to is None:
            to = self.gathered[s.buffer.name, len(s.values)] = self.array((Local("row", s.buffer.dtype),), s.pairs)
        values: list[Operand] = []
        for v in s.values:
            dtype = v.dtype if isinstance(v, Local) else s.buffer.dtype
            moved = Local(f"{to}.{len(self.names.to)}", dtype)  # no variable has this name
            self.names.to[moved.name] = self.element(to, moved)
            self.lane(Compute(moved, "cast", (v,), dtype), order)
            values.append(moved)
        return replace(s, values=tuple(values))


def _has_no_control_flow(s: Stmt) -> bool:
    return not any(
        isinstance(x, (Loop, SingleThread, Alloc, Barrier, BlockReduce))
        or (x is not s and isinstance(x, (Let, Accumulate)))
        for x in walk((s,))
    )


def _has_vectors(s: Stmt) -> bool:
    return any(isinstance(x, (VectorLoad, VectorStore)) for x in walk((s,)))


def _loose(s: Stmt) -> object:
    """Equal for conditions whose bodies may be alike."""
    step = _Step.of(s)
    return step.form, tuple(shape(p) for p in step.parts if isinstance(p, Expr))


# loops ----------------------------------------------------------------------------------------------------------------


def _loops(steps: Sequence[_Step], depth: int) -> list[Stmt]:
    """The longest runs of steps that are one statement along a variable, as loops; then loops of such loops."""
    if len(steps) < 2:
        return [s.statement for s in steps]
    made: list[Stmt] = []
    alike = _equal_key_runs([(s.form, _forms(s.parts)) for s in steps])
    at = 0
    while at < len(steps):
        lengths = (n for n in _lengths(len(steps) - at) if n <= alike[at])
        run = next((x for n in lengths if (x := _reroll_run(steps[at : at + n], depth))), None)
        made.append(run or steps[at].statement)
        at += int(run.extent) if run is not None else 1
    if depth + 1 < len(LANE) and 1 < len(made) < len(steps):
        return _loops([_Step.of(s) for s in made], depth + 1)
    return made


def _lengths(count: int) -> list[int]:
    powers = [1 << k for k in range(count.bit_length(), 0, -1) if 1 << k < count]
    return [n for n in (count, *powers) if n > 1]


def _equal_key_runs(keys: Sequence[object]) -> list[int]:
    """For each key, how many in a row are equal to it from there on, itself among them."""
    lengths = [1] * len(keys)
    for n in range(len(keys) - 2, -1, -1):
        lengths[n] += lengths[n + 1] if keys[n] == keys[n + 1] else 0
    return lengths


def _reroll_run(steps: Sequence[_Step], depth: int) -> Loop | None:
    """Isomorphic steps as one loop, or None."""
    var, statements = symbol(LANE[depth], 0, len(steps) - 1), [s.statement for s in steps]
    one = _united(statements[0], [s.parts for s in steps], var)
    return None if one is None else Loop(var.name, as_expr(len(steps)), "unroll", (_serving(one, statements, var),))
