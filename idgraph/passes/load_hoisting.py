"""Loop-invariant code motion of loaded indices, with their checks.

A check is not a branch: its body always runs, and an access that a wrong index would take outside is left out.

select_loads: one load at a chosen address in place of a choice between loads.

A tensor joined of many pieces of another one (tables of sections, a row put together of slices) reads each piece where
its condition holds, and chooses. Where all pieces are elements of one buffer, the choice is one of addresses:
neighbours in one piece are loaded together, and no branch waits for memory. Two pieces stay apart: lanes are split at
their test, and each side is straight code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, Proof, and_, as_expr, enumerate_points, is_true, not_, simplify, symbol
from idgraph.arith import where as chosen
from idgraph.index.allocation import is_block
from idgraph.kernel.def_use import (
    all_reads,
    all_sets,
    index_exprs,
    locals_read,
    map_body,
    map_statement,
    read_only_buffers,
    sets,
    stored_in,
    substitute_indices,
)
from idgraph.kernel.ir import (
    PRIME,
    BoundsCheck,
    CheckSite,
    Comment,
    Compute,
    If,
    InitAccumulator,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
    ProvenanceList,
    Select,
    SingleThread,
    Stmt,
    walk,
)
from idgraph.passes.cse_dce import without_dead
from idgraph.passes.lane_loop_fusion import guard_provenance
from idgraph.passes.lane_unrolling import is_lanes
from idgraph.passes.rows.reduction_loop import drop_unit_loops

Body = tuple[Stmt, ...]


def licm_loads(kernel: Kernel) -> Kernel:
    """hoist_loads: an index of a row, with its check, in front of the loop over the row's columns.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   where ld0 in _, _
    ...   buffer i: int64[4] input "i"
    ...   buffer x: float32[448] input "x"
    ...   buffer y: float32[256] output "y"
    ...   for r < 4:
    ...     for c < 64:
    ...       t0: int64 = i[r]
    ...       let ld0 = t0
    ...       check (ld0 >= 0) & (ld0 < 7), of ld0, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
    ...         t1: float32 = x[ld0*64 + c]
    ...         y[r*64 + c] = t1
    ... ''')
    >>> print(licm_loads(k))
    kernel k():
      where ld0_row0 in _, _
      buffer i: int64[4] input "i"
      buffer x: float32[448] input "x"
      buffer y: float32[256] output "y"
      for r < 4:
        t0_ld0_row0: int64 = i[r]
        let ld0_row0 = t0_ld0_row0
        check (ld0_row0 >= 0) & (ld0_row0 < 7), of ld0_row0, site "x", axis 0, extent 7, index "i", in "y", at "f.py:1":
          for c < 64:
            t1: float32 = x[c + ld0_row0*64]
            y[c + r*64] = t1
    """
    written = stored_in(kernel.body)
    sometimes = frozenset[str]().union(*(all_sets(s.body) for s in walk(kernel.body) if isinstance(s, If)))
    made = _Hoist(frozenset(b.name for b in kernel.buffers if b.name not in written), sometimes)
    body, loads = made.level(kernel.body)
    return replace(kernel, body=_inside_index_checks(loads, body)) if made.known else kernel


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """An index on its way out: its load, its name, and its check; ``steps`` compute it from the loaded value.

    Without a ``load`` it is made of a variable that stands outside already."""

    load: Load | None
    let: Let
    check: BoundsCheck
    steps: tuple[Compute, ...] = ()

    @property
    def locals(self) -> tuple[Local, ...]:
        """The variables that are set."""
        return (*(() if self.load is None else (self.load.local,)), *(c.local for c in self.steps))

    @property
    def names(self) -> frozenset[str]:
        """Variables of loops, and other indices, that it depends on."""
        own = self.load.address.names if self.load is not None else frozenset[str]()
        return own.union(*(e.names for c in self.steps for e in index_exprs(c)))

    @property
    def outer(self) -> frozenset[str]:
        """The variable that it is made of without a load."""
        value = self.let.value
        return frozenset((value.name,)) if self.load is None and isinstance(value, Local) else frozenset()

    def mapped(self, each: Callable[[Body], Body]) -> LoadedIndex:
        """The same with other statements, as many of each kind."""
        made = each((*(() if self.load is None else (self.load,)), *self.steps, self.let, self.check))
        load = next((s for s in made if isinstance(s, Load)), None)
        (let,) = (s for s in made if isinstance(s, Let))
        (check,) = (s for s in made if isinstance(s, BoundsCheck))
        return LoadedIndex(load, let, check, tuple(s for s in made if isinstance(s, Compute)))

    def renamed(self, old: str, new: str) -> LoadedIndex:
        """The same, where another index has a new name."""
        return self.mapped(lambda body: _renamed(body, old, new))

    def reading(self, old: str, new: Local) -> LoadedIndex:
        """The same, where another index is made of a variable of a new name."""
        return self.mapped(lambda body: _read_as(body, old, new))


@dataclass(slots=True)
class _Hoist:
    """``sometimes`` are the variables that are set under a test: what is made of them stays under tests."""

    read_only: frozenset[str]
    sometimes: frozenset[str]
    known: dict[str, int] = field(default_factory=dict[str, int])

    def level(self, body: Sequence[Stmt]) -> tuple[Body, list[LoadedIndex]]:
        """The statements of one level, and the indices that were loaded in loops of it."""
        out: list[Stmt] = []
        found: list[LoadedIndex] = []
        for s in body:
            if isinstance(s, Loop):
                inner, loads = self.own(s)
                out += _named(inner, found, loads)
            elif isinstance(s, If):
                inside, loads = self.level(s.body)
                if any(s.condition.names & x.names or x.outer & self.sometimes for x in loads):
                    out.append(replace(s, body=_inside_index_checks(loads, inside)))
                else:
                    out += _named(replace(s, body=inside), found, loads)
            else:
                out.append(s)
        return tuple(out), found

    def own(self, s: Loop) -> tuple[Loop, list[LoadedIndex]]:
        """A loop, and the indices that leave it."""
        body, loads = self.level(s.body)
        body, first = self.first(body)
        every = [*first, *loads]
        if is_block(s.parallel) or not is_true(s.extent >= 1):
            return replace(s, body=_inside_index_checks(every, body)), []
        stay: list[LoadedIndex] = []
        go: list[LoadedIndex] = []
        held: set[str] = {s.var}
        sets = all_sets(body)
        for x in every:
            once = x.load is None and s.extent == 1  # nothing is won, and its load stays in front of the columns
            if x.names & held or x.outer & (sets | held) or once:
                stay.append(x)
                held.update((x.let.name, *(v.name for v in x.locals)))
            else:
                go.append(outside(x, s))
        return replace(s, body=_inside_index_checks(stay, body)), go

    def first(self, body: Sequence[Stmt]) -> tuple[Body, list[LoadedIndex]]:
        """The statements without the indices that they load first, also those under tests of other values."""
        found: list[LoadedIndex] = []
        out = list(body)
        while True:
            at = next((n for n, s in enumerate(out) if isinstance(s, BoundsCheck)), None)
            head = next((n for n, s in enumerate(out) if not isinstance(s, (Comment, InitAccumulator))), len(out) - 1)
            if at is None and out and isinstance(test := out[head], If):
                inner, inside = self.first(test.body)
                before = {y.name.removesuffix(f"_{x.let.name}") for x in inside for y in x.locals}
                decided = any(test.condition.names & x.names or x.outer & self.sometimes for x in inside)
                if inside and not decided and not before & all_reads(out[head + 1 :]):
                    found += [under(x, test.condition) for x in inside]
                    return (*out[:head], replace(test, body=inner), *out[head + 1 :]), found
            if at is None or at < 1:
                return tuple(out), found
            check, let = out[at], out[at - 1]
            if not isinstance(check, BoundsCheck) or check.always or not isinstance(let, Let):
                return tuple(out), found
            if check.value != let.name or check.condition.names - {let.name}:
                return tuple(out), found
            made = self.made_of(let.value, out[: at - 1], (*check.body, *out[at + 1 :]))
            if made is None:
                return tuple(out), found
            number = self.known.setdefault(let.name, 0)
            self.known[let.name] += 1
            name = f"{let.name}_row{number}"
            kept = [x for x in out[: at - 1] if not any(x is y for y in made)]
            rest = [*_renamed(check.body, let.name, name), *out[at + 1 :]]
            for old in (x.local for x in made):
                local = Local(f"{old.name}_{name}", old.dtype)
                kept, rest = list(_read_as(kept, old.name, local)), list(_read_as(rest, old.name, local))
            new = replace(check, condition=_as(check.condition, let.name, name), value=name, body=())
            found.append(_called(made, Let(name, let.value, let.serves), new))
            out = [*kept, *rest]

    def made_of(
        self, value: Operand, before: Sequence[Stmt], after: Sequence[Stmt]
    ) -> tuple[Load | Compute, ...] | None:
        """The load of an index and the steps that compute it from what is loaded, None where it is made otherwise; none
        of them where it is a variable that no statement here sets."""
        if isinstance(value, Local) and value.name not in all_sets((*before, *after)):
            return ()
        wanted = {value.name} if isinstance(value, Local) else set[str]()
        made: list[Load | Compute] = []
        for s in reversed(before):
            if isinstance(s, (Load, Compute)) and s.local.name in wanted:
                wanted.remove(s.local.name)
                wanted |= locals_read(s)
                made.insert(0, s)
        loads = [x for x in made if isinstance(x, Load)]
        others = all_sets((*(x for x in before if not any(x is y for y in made)), *after))
        held = {x.local.name for x in made}.union(*(e.names for x in made for e in index_exprs(x)))
        if wanted or len(loads) != 1 or held & others:
            return None
        if loads[0].buffer.name not in self.read_only or loads[0].guard is not TRUE:
            return None
        return (loads[0], *(x for x in made if x is not loads[0]))


def _called(made: Sequence[Load | Compute], let: Let, check: BoundsCheck) -> LoadedIndex:
    """An index whose variables have names of its own."""
    own = {x.local.name: Local(f"{x.local.name}_{let.name}", x.local.dtype) for x in made}

    def read(o: Operand) -> Operand:
        return own.get(o.name, o) if isinstance(o, Local) else o

    renamed = [map_statement(x, made=lambda x: own[x.name], read=read) for x in made]
    load = next((x for x in renamed if isinstance(x, Load)), None)
    steps = tuple(x for x in renamed if isinstance(x, Compute))
    return LoadedIndex(load, replace(let, value=read(let.value)), check, steps)


def under(x: LoadedIndex, condition: Expr) -> LoadedIndex:
    """An index that serves what it did, where the condition holds."""
    load = x.load and replace(x.load, serves=guard_provenance(x.load.serves, condition))
    return replace(x, load=load, let=replace(x.let, serves=guard_provenance(x.let.serves, condition)))


def _as(e: Expr, old: str, new: str) -> Expr:
    moved = {x: symbol(new, *x.symbol_bounds) for x in e.symbols if x.name == old}
    return e.substitute(moved) if moved else e


def _renamed(body: Body, old: str, new: str) -> Body:
    def one(s: Stmt) -> Stmt:
        made = map_statement(s, index=lambda e: _as(e, old, new))
        return replace(made, value=new) if isinstance(made, BoundsCheck) and made.value == old else made

    return map_body(body, one)


def _read_as(body: Sequence[Stmt], old: str, new: Local) -> Body:
    def read(o: Operand) -> Operand:
        return new if isinstance(o, Local) and o.name == old else o

    return map_body(body, lambda s: map_statement(s, read=read))


def _named(s: Stmt, found: list[LoadedIndex], loads: Sequence[LoadedIndex]) -> list[Stmt]:
    """``s``, whose indices join those ``found`` on this level; one that is loaded there already has that name."""
    rest = list(loads)
    while rest:
        x = rest.pop(0)
        same = next((y for y in found if _same_index(x, y)), None)
        if same is None or _as(x.check.condition, x.let.name, same.let.name) != same.check.condition:
            found.append(x)
            continue
        (s,) = _renamed((s,), x.let.name, same.let.name)
        rest = [y.renamed(x.let.name, same.let.name) for y in rest]
        for a, b in zip(x.locals, same.locals, strict=True):
            (s,) = _read_as((s,), a.name, b)
            rest = [y.reading(a.name, b) for y in rest]
        at = found.index(same)
        more = same.load and x.load and replace(same.load, serves=(*same.load.serves, *x.load.serves))
        found[at] = replace(same, load=more, let=replace(same.let, serves=(*same.let.serves, *x.let.serves)))
    return [s]


def _same_index(x: LoadedIndex, y: LoadedIndex) -> bool:
    """Whether two indices are computed alike from one element."""
    if x.load is None or y.load is None:
        return x.load is y.load and x.let.value == y.let.value
    if (x.load.buffer, x.load.address, len(x.steps)) != (y.load.buffer, y.load.address, len(y.steps)):
        return False
    names = {a.name: b for a, b in zip(x.locals, y.locals, strict=True)}

    def read(o: Operand) -> Operand:
        return names.get(o.name, o) if isinstance(o, Local) else o

    renamed = [map_statement(c, made=lambda a: names[a.name], read=read) for c in x.steps]
    return renamed == list(y.steps)


def _inside_index_checks(loads: Sequence[LoadedIndex], body: Body) -> Body:
    """The statements inside the checks of these indices, of which each may depend on those before it."""
    for n in range(len(loads) - 1, -1, -1):
        body = _behind_definitions(loads[n], _dependences(loads[n], loads[:n]), body)
    return body


def _dependences(x: LoadedIndex, before: Sequence[LoadedIndex]) -> frozenset[str]:
    """The names that ``x``, and the indices ``before`` it that it is made of, depend on."""
    names = x.names | x.outer
    for y in reversed(before):
        if names & {y.let.name, *(v.name for v in y.locals)}:
            names |= y.names | y.outer
    return names


def _behind_definitions(x: LoadedIndex, needed: frozenset[str], body: Body) -> Body:
    """``body`` with one index, and what its check guards, behind the statements that define what is ``needed``.

    Where these stand inside the check of another index, so does this one. Of an index without a load the check guards
    only the statements from the first that reads it to the last that needs what they make: passes over a row before
    and behind a gather stay side by side.
    """
    own = {x.let.name, *(v.name for v in x.locals)}
    at = max((n + 1 for n, s in enumerate(body) if _defined_values((s,)) & needed), default=0)
    readers = [n for n, s in enumerate(body) if own & all_reads((s,))]
    if readers and readers[0] < at and isinstance(s := body[readers[0]], BoundsCheck):
        rest = (*s.body, *body[readers[0] + 1 :])
        return (*body[: readers[0]], replace(s, body=_behind_definitions(x, needed, rest)))
    end = len(body)
    if x.load is None:
        at, end = max(at, min(readers, default=at)), max(readers, default=end - 1) + 1
        while end < len(body) and _defined_values(body[at:end]) & all_reads(body[end:]):
            end += 1
    first = () if x.load is None else (x.load,)
    return (*body[:at], *first, *x.steps, x.let, replace(x.check, body=body[at:end]), *body[end:])


def _defined_values(body: Body) -> frozenset[str]:
    """The values that statements set, loops' variables left out."""
    return all_sets(body) - {s.var for s in walk(body) if isinstance(s, Loop)}


def outside(x: LoadedIndex, s: Loop) -> LoadedIndex:
    """The same outside of a loop: for all of its steps."""
    site: CheckSite = x.check.site
    point = x.check.point or tuple(map(symbol, site.loops))
    kept = [(v, e) for v, e in zip(site.loops, point, strict=True) if s.var not in e.names]
    site = replace(site, loops=tuple(v for v, _ in kept))
    check = replace(x.check, site=site, point=tuple(e for _, e in kept) if x.check.point else ())
    load = x.load and replace(x.load, serves=for_all(x.load.serves, s))
    return LoadedIndex(load, replace(x.let, serves=for_all(x.let.serves, s)), check, x.steps)


def for_all(purpose: ProvenanceList, s: Loop) -> ProvenanceList:
    """The purpose of a statement in the loop ``s``, outside of it: for all of its steps.

    >>> from idgraph.arith import as_expr
    >>> p = Provenance("t1", 0, (symbol("i"),))
    >>> for_all((p,), Loop("i", as_expr(4), "serial", ()))[0].over
    (("i'", 4),)
    """
    every = symbol(f"{s.var}{PRIME}", 0, s.extent - 1)

    def moved(e: Expr) -> Expr:
        return e.substitute({y: every for y in e.symbols if y.name == s.var})

    def each(p: Provenance) -> Provenance:
        if not any(s.var in e.names for e in (*p.point, p.when)):
            return p
        over = (*p.over, (every.name, s.extent))
        return replace(p, point=tuple(map(moved, p.point)), when=moved(p.when), over=over)

    return tuple(map(each, purpose))


LEAST = 3  # pieces
POINTS = 1 << 14  # at which it is enumerated that one of the pieces holds


def select_address_then_load(kernel: Kernel) -> Kernel:
    """select_loads: choices between loads of one buffer as one load.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[96] input "x"
    ...   buffer y: float32[24] output "y"
    ...   for i < 24, unroll:
    ...     if i < 8:
    ...       a: float32 = x[i]
    ...     if (i >= 8) & (i < 16):
    ...       b: float32 = x[i + 32]
    ...     if i >= 16:
    ...       c: float32 = x[i + 64]
    ...     t: float32 = choose(i < 8 ? a, i < 16 ? b, c)
    ...     y[i] = t
    ... ''')
    >>> print(select_address_then_load(k))
    kernel k():
      buffer x: float32[96] input "x"
      buffer y: float32[24] output "y"
      for i < 24, unroll:
        t: float32 = x[i + where(i < 8, -64, where(i < 16, -32, 0)) + 64]
        y[i] = t
    """
    return replace(kernel, body=_Selection(read_only_buffers(kernel.buffers, kernel.body)).level(kernel.body, (), {}))


@dataclass(frozen=True, slots=True)
class _SelectedAddress:
    """A load whose value a variable has, where ``conditions`` hold."""

    load: Load
    conditions: tuple[Expr, ...]


Known = dict[str, _SelectedAddress]


@dataclass(frozen=True, slots=True)
class _Selection:
    read_only: frozenset[str]

    def level(self, body: Body, facts: tuple[Expr, ...], known: Known) -> Body:
        """The statements of one level, under ``facts``; ``known`` is brought up to date."""
        made: list[Stmt] = []
        for s in body:
            match s:
                case Select() if (load := self.selected(s, facts, known)) is not None:
                    made.append(load)
                case Loop() if s.extent == 1:
                    zero = {symbol(s.var, 0, 0): as_expr(0)}
                    made.append(replace(s, body=self.level(substitute_indices(s.body, zero), facts, known)))
                    continue
                case If(condition):
                    made.append(replace(s, body=self.level(s.body, (*facts, condition), known)))
                    continue
                case Loop() if is_lanes(s):  # what lanes set is read in them alone
                    inner = self.level(s.body, facts, {})
                    made.append(
                        replace(
                            s, body=s.body if inner == s.body else tuple(without_dead(drop_unit_loops(inner), set()))
                        )
                    )
                    known.clear()
                    continue
                case Loop() | BoundsCheck() | SingleThread():
                    made.append(replace(s, body=self.level(s.body, facts, {})))
                    known.clear()
                    continue
                case _:
                    made.append(s)
            self.define(s, facts, known)
        return tuple(made)

    def define(self, s: Stmt, facts: tuple[Expr, ...], known: Known) -> None:
        """Bring ``known`` up to date behind a statement."""
        held: _SelectedAddress | None = None
        match s:
            case Load(local, buffer, _, guard) if guard is TRUE and buffer.name in self.read_only:
                held = _SelectedAddress(s, facts) if local.dtype == buffer.dtype else None
            case Compute(Local(dtype=dtype), "cast", (Local(name, given, None),)) if dtype == given and name in known:
                held = _SelectedAddress(known[name].load, (*known[name].conditions, *facts))
            case Select(Local(dtype=to), ((condition, Local(name, given, None)),)) if to == given and name in known:
                held = _SelectedAddress(known[name].load, (*known[name].conditions, *facts, condition))
            case _:
                pass
        for name in sets(s):
            known.pop(name, None)
            for other in [k for k, x in known.items() if name in x.load.address.names]:  # an index loaded anew
                del known[other]
            if held is not None:
                known[name] = held

    def selected(self, s: Select, facts: tuple[Expr, ...], known: Known) -> Load | None:
        """The choice as a load, where each operand provably holds an element of one buffer."""
        operands = [o for _, o in s.cases] + [s.default]
        found = [known.get(o.name) if isinstance(o, Local) and o.at is None else None for o in operands]
        if len(found) < LEAST or any(x is None for x in found):
            return None
        pieces = [x for x in found if x is not None]
        buffer = pieces[0].load.buffer
        if any(x.load.buffer != buffer for x in pieces) or s.local.dtype != buffer.dtype:
            return None
        before, serves, ways = list(facts), list[ProvenanceList](), list[Expr]()
        for condition, piece in zip([*(c for c, _ in s.cases), TRUE], pieces, strict=True):
            here = (*before, condition) if condition is not TRUE else tuple(before)
            if not all(_is_implied(c, here) for c in dict.fromkeys(piece.conditions)):
                return None
            way = and_(*here[len(facts) :])
            ways.append(condition)
            serves.append(guard_provenance(piece.load.serves, way))
            before.append(simplify(not_(condition)))
        last = pieces[-1].load.address
        apart = as_expr(0)
        for condition, piece in reversed(list(zip(ways[:-1], pieces[:-1], strict=True))):
            apart = chosen(condition, simplify(piece.load.address - last), apart)
        return Load(s.local, buffer, last + apart, serves=tuple(x for some in serves for x in some))


def _is_implied(condition: Expr, facts: tuple[Expr, ...]) -> bool:
    """True where a condition provably holds under the facts: by the algebra, or at every point of its few variables."""
    if simplify(condition, facts=facts) is TRUE:
        return True
    return isinstance(enumerate_points(condition, POINTS, [f for f in facts if f.names <= condition.names]), Proof)
