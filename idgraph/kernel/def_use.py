"""Definitions and uses of statements, and the same statements over other variables and indices.

One function, `map_statement`, knows the parts of each kind of statement; every query below is made of it. Passes keep
no list of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import TypeVar, assert_never

from idgraph.arith import FALSE, TRUE, Expr, simplify, symbol
from idgraph.kernel.statements import (
    Access,
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Comment,
    CompoundStmt,
    Compute,
    ExtractHalf,
    Half2Op,
    If,
    Index,
    InitAccumulator,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
    ProvenanceList,
    RegisterArray,
    Select,
    SingleThread,
    SplitAxis,
    Stmt,
    Store,
    StraightLineBlock,
    VectorAdd,
    VectorLoad,
    VectorStore,
    bodies,
    walk,
)

ToLocal = Callable[[Local], Local]
ToOperand = Callable[[Operand], Operand]
ToExpr = Callable[[Expr], Expr]
Body = tuple[Stmt, ...]
S = TypeVar("S", bound=Stmt)
T = TypeVar("T")
D = TypeVar("D", bound=Stmt | Provenance | Buffer | SplitAxis)


def same(x: T) -> T:
    """The part itself."""
    return x


def map_statement(
    s: S,
    *,
    made: ToLocal = same,
    updated: ToLocal = same,
    read: ToOperand = same,
    index: ToExpr = same,
    point: ToExpr | None = None,
) -> S:
    """``s`` with the variables it sets through ``made``, those it adds to through ``updated``, its operands through
    ``read`` and its index expressions, conditions among them, through ``index``. Bodies inside ``s`` stay.

    The points that it serves go through ``point``, by default ``index``: a substitution in an address also
    changes the purpose of the access. Where nothing changes, the result is ``s`` itself.

    >>> from idgraph.arith import symbol
    >>> let = Let("a", Index(symbol("i")))
    >>> s = map_statement(let, made=lambda x: Local(f"{x.name}_1", x.dtype), index=lambda e: e * 4)
    >>> s.name, str(s.value.value)
    ('a_1', 'i*4')
    """
    done = _rewritten(s, made, updated, read, index)
    to = index if point is None else point
    if to is not same and isinstance(done, Access | Let) and done.serves:
        done = _replace_parts(done, serves=_moved_all(done.serves, to))
    return done  # pyright: ignore[reportReturnType]  # each kind gives its own kind


def _replace_parts(x: D, **parts: object) -> D:
    """``x`` with other parts; itself where they are those it has, so that passes know what none of them changed."""
    for name, part in parts.items():
        if getattr(x, name) is not part:
            return replace(x, **parts)
    return x


def _each(f: Callable[[T], T], given: tuple[T, ...]) -> tuple[T, ...]:
    """``given`` through ``f``; itself where ``f`` changes nothing."""
    done = tuple(map(f, given))
    return given if all(map(is_, done, given)) else done


def _moved_all(purpose: ProvenanceList, to: ToExpr) -> ProvenanceList:
    """The purpose through ``to``, without entries that never hold."""
    done = _each(lambda x: _substitute_provenance(x, to), purpose)
    return tuple(x for x in done if x.when is not FALSE) if any(x.when is FALSE for x in done) else done


def _substitute_provenance(x: Provenance, to: ToExpr) -> Provenance:
    def end(v: tuple[str, Expr]) -> tuple[str, Expr]:
        return v if (e := to(v[1])) is v[1] else (v[0], e)

    return _replace_parts(
        x, point=_each(to, x.point), over=_each(end, x.over), when=x.when if x.when is TRUE else to(x.when)
    )


def _rewritten(s: Stmt, made: ToLocal, updated: ToLocal, read: ToOperand, index: ToExpr) -> Stmt:
    """One statement with other variables, operands and indices.

    Long: one case for each kind of statement.
    """

    def operand(o: Operand) -> Operand:
        o = read(o)
        if not isinstance(o, Index):
            return o
        e = index(o.value)
        return o if e is o.value else Index(e)

    def word(o: Local) -> Local:
        found = read(o)
        if not isinstance(found, Local):
            raise AssertionError("a word stays a word")
        return found

    def case_of(c: tuple[Expr, Operand]) -> tuple[Expr, Operand]:
        condition, value = index(c[0]), operand(c[1])
        return c if condition is c[0] and value is c[1] else (condition, value)

    match s:
        case Load(local, _, address, guard):
            return _replace_parts(s, local=made(local), address=index(address), guard=index(guard))
        case Compute(local, _, operands):
            return _replace_parts(s, operands=_each(operand, operands), local=made(local))
        case Store(_, address, value):
            return _replace_parts(s, address=index(address), value=operand(value))
        case Loop(extent=extent, first=first, column=column, stop=stop):
            axis = None if column is None else _replace_parts(column, extent=index(column.extent))
            end = None if stop is None else index(stop)
            return _replace_parts(s, extent=index(extent), first=index(first), column=axis, stop=end)
        case If(condition):
            return _replace_parts(s, condition=index(condition))
        case BoundsCheck(condition, point=point):
            return _replace_parts(s, condition=index(condition), point=_each(index, point))
        case SingleThread() | StraightLineBlock() | Comment() | Barrier() | RegisterArray():
            return s
        case InitAccumulator(name, dtype):
            return _replace_parts(s, name=made(Local(name, dtype)).name)
        case Alloc(buffer):
            return _replace_parts(s, buffer=_replace_parts(buffer, size=index(buffer.size)))
        case Let(name, value):
            return _replace_parts(s, name=made(Local(name, "int64")).name, value=operand(value))
        case Select(local, cases, default):
            chosen, last = _each(case_of, cases), operand(default)
            return _replace_parts(s, cases=chosen, default=last, local=made(local))
        case Accumulate(acc, _, value, buffer, address, running=running):
            value, acc = operand(value), updated(acc) if buffer is None else acc
            place = None if address is None else index(address)
            return _replace_parts(
                s, value=value, acc=acc, address=place, running=None if running is None else made(running)
            )
        case BlockReduce(acc, before=before):
            return _replace_parts(s, acc=updated(acc), before=None if before is None else made(before))
        case VectorLoad(locals_, _, address):
            return _replace_parts(s, locals=_each(made, locals_), address=index(address))
        case VectorStore(_, address, values) | VectorAdd(_, address, values):
            return _replace_parts(s, address=index(address), values=_each(operand, values))
        case Half2Op(local, _, operands):
            return _replace_parts(s, operands=_each(word, operands), local=made(local))
        case ExtractHalf(local, word=pair):
            return _replace_parts(s, word=word(pair), local=made(local))
        case _:
            assert_never(s)


# questions about one statement, not about those inside it -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one statement, those of its body left out; the functions below say which is which."""

    made: tuple[Local, ...]
    updated: tuple[Local, ...]
    operands: tuple[Operand, ...]
    indices: tuple[Expr, ...]
    sets: frozenset[str]
    locals_read: frozenset[str]
    reads: frozenset[str]


_KEPT = 1 << 13  # statements whose parts are known
_parts: dict[int, tuple[Stmt, Parts]] = {}  # by identity: a statement never changes, and stays alive in here


def parts(s: Stmt) -> Parts:
    """The parts of ``s``, found once: passes ask for them again and again."""
    known = _parts.get(id(s))
    if known is not None and known[0] is s:
        return known[1]
    made: list[Local] = []
    updated: list[Local] = []
    operands: list[Operand] = []
    indices: list[Expr] = []

    def keep(into: list[T]) -> Callable[[T], T]:
        def retained(x: T) -> T:
            into.append(x)
            return x

        return retained

    _rewritten(s, keep(made), keep(updated), keep(operands), keep(indices))
    if isinstance(s, BoundsCheck):
        indices.append(s.site.extent)
    own = (s.var,) if isinstance(s, Loop) else ()
    read = frozenset(x.name for x in (*operands, *updated) if isinstance(x, Local))
    found = Parts(
        tuple(made), tuple(updated), tuple(operands), tuple(indices),
        frozenset((*own, *(x.name for x in (*made, *updated)))), read, read.union(*(e.names for e in indices)),
    )  # fmt: skip
    if len(_parts) >= _KEPT:
        _parts.clear()
    _parts[id(s)] = s, found
    return found


def defs(s: Stmt) -> tuple[Local, ...]:
    """The variables that ``s`` sets without reading their old value; a loop's variable is not one of them."""
    return parts(s).made


def updates(s: Stmt) -> tuple[Local, ...]:
    """The variables that ``s`` updates: the new value depends on the old one."""
    return parts(s).updated


def operands_of(s: Stmt) -> tuple[Operand, ...]:
    """The operands of ``s``, its accumulator left out."""
    return parts(s).operands


def index_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The index expressions and conditions of ``s``; of a check also the extent that its message names."""
    return parts(s).indices


def sets(s: Stmt) -> frozenset[str]:
    """Names of the variables whose value ``s`` changes, a loop's variable among them."""
    return parts(s).sets


def locals_read(s: Stmt) -> frozenset[str]:
    """Names of the variables that ``s`` reads as operands, or adds to."""
    return parts(s).locals_read


def reads(s: Stmt) -> frozenset[str]:
    """Names that ``s`` reads: operands, and variables of its index expressions."""
    return parts(s).reads


def names(s: Stmt) -> frozenset[str]:
    """Names of the variables that ``s`` sets or reads, loops' and index variables not among them."""
    return locals_read(s) | {x.name for x in defs(s)}


# questions about bodies -----------------------------------------------------------------------------------------------


def all_sets(body: Iterable[Stmt]) -> frozenset[str]:
    """Names set anywhere in ``body``."""
    return _all_names([effects(s).sets for s in body])


def carried(loop: Loop) -> tuple[str, ...]:
    """Names of the accumulators that a step of a loop carries to the next one, in the order of their first update.

    An accumulator that the body itself declares begins anew in each step. The steps of a loop on blocks or threads
    carry nothing: each has accumulators of its own.

    >>> from idgraph.arith import as_expr
    >>> s, m = Local("s", "float64"), Local("m", "float64")
    >>> body = (InitAccumulator("m", "float64", 0.0), Accumulate(m, "sum", s), Accumulate(s, "sum", m))
    >>> carried(Loop("i", as_expr(4), "serial", body)), carried(Loop("i", as_expr(4), "threadIdx.x", body))
    (('s',), ())
    """
    if loop.parallel not in ("serial", "rolled", "unroll", "vectorize"):
        return ()
    inside = tuple(walk(loop.body))
    own = {s.name for s in inside if isinstance(s, InitAccumulator | RegisterArray)}
    return tuple(dict.fromkeys(x.name for s in inside for x in updates(s) if x.name not in own))


def all_reads(body: Iterable[Stmt]) -> frozenset[str]:
    """Names read anywhere in ``body``."""
    return _all_names([effects(s).reads for s in body])


def definitions(body: Iterable[Stmt]) -> dict[str, Stmt]:
    """The statement, at this level, that gives each variable its value; of several the last one."""
    return {x.name: s for s in body for x in defs(s)}


def defined_once(body: Sequence[Stmt]) -> dict[str, Stmt]:
    """The definitions of variables that ``body`` sets exactly once, at this level."""
    times = Counter(x.name for s in walk(tuple(body)) for x in defs(s))
    return {name: s for name, s in definitions(body).items() if times[name] == 1}


def read_before_set(
    body: Sequence[Stmt], read: Callable[[Stmt], frozenset[str]], known: Iterable[str] = (), *, scoped: bool
) -> list[str]:
    """Names that a statement reads, by ``read``, before any sets them, in order; ``known`` are set before ``body``.

    ``scoped``: a name set inside a loop or under a condition is not defined after it.

    >>> x, y = Local("x", "int64"), Local("y", "int64")
    >>> body = (If(TRUE, (Compute(x, "neg", (y,), "int64"),)), Compute(y, "neg", (x,), "int64"))
    >>> read_before_set(body, locals_read, scoped=True), read_before_set(body, locals_read, scoped=False)
    (['y', 'x'], ['y'])
    """
    missing: dict[str, None] = {}

    def visit(body: Sequence[Stmt], known: set[str]) -> None:
        for s in body:
            if wanted := read(s) - known:
                missing.update(dict.fromkeys(sorted(wanted)))
            if inner := bodies(s):
                visit(inner, known | sets(s))
                known |= sets(s) if scoped else all_sets((s,))
            else:
                known |= sets(s)

    visit(body, set(known))
    return list(missing)


@dataclass(frozen=True, slots=True)
class Effects:
    """Names of variables and of buffers that statements set or write, and read."""

    sets: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()

    @classmethod
    def of(cls, body: Sequence[Stmt]) -> Effects:
        """The effects of a body."""
        each = [(e.sets, e.reads, e.stores, e.loads) for e in map(effects, body)]
        return cls(*(x[0].union(*x[1:]) for x in zip(*each, strict=True)))

    def __or__(self, by: Effects) -> Effects:
        return Effects(self.sets | by.sets, self.reads | by.reads, self.stores | by.stores, self.loads | by.loads)

    def waits_for(self, before: Effects) -> bool:
        """True where these depend on those: one of the two sets or writes a name that the other one touches.

        >>> Effects(reads=frozenset("x")).waits_for(Effects(sets=frozenset("x"))), Effects().waits_for(Effects())
        (True, False)
        """
        return bool(
            self.reads & before.sets or self.sets & (before.sets | before.reads)
            or self.loads & before.stores or self.stores & (before.stores | before.loads)
        )  # fmt: skip


_effects: dict[int, tuple[Stmt, Effects]] = {}  # by identity, as `parts`


def effects(s: Stmt) -> Effects:
    """The effects of ``s`` and of the statements inside it, found once: a level asks for those of the levels inside.

    >>> loop = If(TRUE, (Compute(Local("x", "int64"), "neg", (Local("y", "int64"),), "int64"),))
    >>> sorted(effects(loop).sets), sorted(effects(loop).reads), effects(loop) is effects(loop)
    (['x'], ['y'], True)
    """
    known = _effects.get(id(s))
    if known is not None and known[0] is s:
        return known[1]
    stored = s.buffer if isinstance(s, (Store, VectorStore, VectorAdd, Accumulate)) else None
    own = Effects(
        sets(s), reads(s), frozenset() if stored is None else frozenset((stored.name,)),
        frozenset((s.buffer.name,)) if isinstance(s, (Load, VectorLoad)) else frozenset(),
    )  # fmt: skip
    found = own | Effects.of(inner) if (inner := bodies(s)) else own
    if len(_effects) >= _KEPT:
        _effects.clear()
    _effects[id(s)] = s, found
    return found


def _all_names(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    return sets[0] if len(sets) == 1 else frozenset[str]().union(*sets)


def stored_in(body: Iterable[Stmt]) -> frozenset[str]:
    """Names of buffers written anywhere in ``body``."""
    return _all_names([effects(s).stores for s in body])


def read_only_buffers(buffers: Iterable[Buffer], body: Sequence[Stmt]) -> frozenset[str]:
    """Names of those buffers that no statement of ``body`` writes."""
    return frozenset(b.name for b in buffers) - stored_in(body)


def unchanged(body: Sequence[Stmt]) -> frozenset[str]:
    """Shared arrays that ``body`` only reads: no thread writes them before the next barrier, which is outside of it."""
    found = (s.buffer for s in walk(tuple(body)) if isinstance(s, Load) and s.buffer.place == "shared")
    return read_only_buffers(found, body)


def in_lanes(body: Sequence[Stmt], f: Callable[[Sequence[Stmt]], Sequence[Stmt]]) -> Body:
    """``body`` with the statements of its lanes through ``f``."""
    return map_body(body, lambda s: replace(s, body=tuple(f(s.body))) if isinstance(s, StraightLineBlock) else s)


def loaded_in(body: Iterable[Stmt]) -> frozenset[str]:
    """Names of buffers read anywhere in ``body``."""
    return _all_names([effects(s).loads for s in body])


def map_body(body: Sequence[Stmt], f: Callable[[Stmt], Stmt]) -> Body:
    """Every statement of ``body`` and inside it through ``f``, inner ones first.

    >>> from idgraph.arith import symbol
    >>> body = (If(symbol("i").eq(0), (Comment("a"),)),)
    >>> map_body(body, lambda s: Comment("b") if isinstance(s, Comment) else s)[0].body
    (Comment(text='b'),)
    """
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, CompoundStmt):
            inner = map_body(s.body, f)
            s = s if inner is s.body else replace(s, body=inner)
        made.append(f(s))
    same = isinstance(body, tuple) and len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
    return tuple(body) if same else tuple(made)


def expand_body(body: Sequence[Stmt], f: Callable[[Stmt], Sequence[Stmt] | None]) -> Body:
    """Every statement of ``body`` as those that ``f`` makes of it; where that is None, with those inside it through
    ``f``.

    >>> from idgraph.arith import symbol
    >>> body = (If(symbol("i").eq(0), (Comment("a"),)), Comment("b"))
    >>> expand_body(body, lambda s: s.body if isinstance(s, If) else None)
    (Comment(text='a'), Comment(text='b'))
    """
    made: list[Stmt] = []
    for s in body:
        found = f(s)
        if found is None:
            found = (replace(s, body=expand_body(s.body, f)) if isinstance(s, CompoundStmt) else s,)
        made += found
    return tuple(made)


def renamed_symbols(e: Expr, at: Mapping[str, Expr | str]) -> Expr:
    """``e`` with other values, or other names, for symbols by name, also in what bounds a symbol: a loop's variable is
    known by its name and its range."""

    def other(x: Expr) -> Expr:
        found = at.get(x.name, x.name)
        if isinstance(found, Expr):
            return found
        low, high, step, rest = x.symbol_bounds
        ends = [renamed_symbols(b, at) if isinstance(b, Expr) else b for b in (low, high)]
        same = found == x.name and ends[0] is low and ends[1] is high
        return x if same else symbol(found, ends[0], ends[1], step, rest)

    moved = {x: y for x in e.symbols if (y := other(x)) is not x}
    return e.substitute(moved) if moved else e


def substitute_indices(body: Sequence[Stmt], place: Mapping[Expr, Expr]) -> Body:
    """Statements, and those inside them, with other values for symbols of their indices.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i")
    >>> substitute_indices((Let("a", Index(i // 4)),), {i: i * 8})[0].value
    Index(value=i*2)
    """
    return map_body(body, lambda s: map_statement(s, index=lambda e: simplify(e.substitute(place))))


def rewritten_inside(s: S, *, read: ToOperand = same, index: ToExpr = same, point: ToExpr | None = None) -> S:
    """`map_statement` of a statement and of those inside it.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i")
    >>> s = If(i.eq(0), (Let("a", Index(i)),))
    >>> print(rewritten_inside(s, index=lambda e: e.substitute({i: i * 4})).body[0].value.value)
    i*4
    """
    (made,) = map_body((s,), lambda x: map_statement(x, read=read, index=index, point=point))
    return made  # pyright: ignore[reportReturnType]  # each kind gives its own kind
