"""owner: a reduction whose value is one element of a row, stored by the thread that has that element.

`idgraph.rewrite.gather_strategy` writes a gather "by predicate" as the greatest of ``where(column == index, x,
lowest)``. At most one column equals the index, so only its thread computes what follows and stores it: no thread
combines anything, and no other one waits. Where no column equals the index (an unchecked run), the first thread stores
what the reduction would have given. (The owner-computes rule: Callahan and Kennedy, Compiling programs for
distributed-memory multiprocessors, 1988.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from idgraph.arith import TRUE, Expr, and_, as_expr, is_true, not_, simplify, symbol
from idgraph.kernel.def_use import (
    Renamer,
    all_reads,
    all_sets,
    defs,
    loaded_in,
    map_body,
    map_statement,
    read_before_set,
    read_only_buffers,
    reads,
    stored_in,
)
from idgraph.kernel.ir import (
    Accumulate,
    BlockReduce,
    BoundsCheck,
    Comment,
    Compute,
    If,
    Index,
    InitAccumulator,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Select,
    SingleThread,
    Stmt,
    Store,
    StraightLineBlock,
    bodies,
    walk,
)
from idgraph.passes.load_hoisting import LoadedIndex, for_all, outside, under
from idgraph.passes.provenance import guard_provenance

Body = tuple[Stmt, ...]
_STEPS = (Comment, Compute, Select, Load, InitAccumulator, SingleThread, Store, If, Loop, BlockReduce)


def owner_computes(kernel: Kernel) -> Kernel:
    """owner: the element that an index names, stored by the thread that has it, without a reduction.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   where ld0 in _, _
    ...   buffer i: int64[4] input "i"
    ...   buffer x: float32[128] input "x"
    ...   buffer y: float32[4] output "y"
    ...   launch blockIdx.x: 4
    ...   launch threadIdx.x: 32
    ...   for b < 4, blockIdx.x:
    ...     n: int64 = i[b]
    ...     let ld0 = n
    ...     check (ld0 >= 0) & (ld0 < 32), of ld0, site "x", axis 0, extent 32, index "i", in "y", at "f.py:1":
    ...       acc s: float32 = -inf
    ...       for t < 32, threadIdx.x:
    ...         v: float32 = x[b*32 + t]
    ...         c: int64 = cast({t})
    ...         hit: bool = eq(n, c) in int64
    ...         w: float32 = where(hit, v, -inf)
    ...         s <- amax w, to float32
    ...       s <- amax over threadIdx.x
    ...       r: float32 = exp(s)
    ...       single threadIdx.x:
    ...         y[b] = r
    ... ''')
    >>> print("\\n".join(str(owner_computes(k)).splitlines()[11:]))
          for t < 32, threadIdx.x:
            v: float32 = x[b*32 + t]
            if ld0 == t:
              s_s2: float32 = cast(v)
              r_s2: float32 = exp(s_s2)
              y[b] = r_s2
          if (ld0 >= 32) | (ld0 < 0):
            r: float32 = exp(s)
            single threadIdx.x:
              y[b] = r
    """
    if not any(isinstance(s, Accumulate) and s.op in ("amax", "any") for s in walk(kernel.body)):
        return kernel
    times = Counter(n for s in walk(kernel.body) for n in reads(s))
    taken = set(all_reads(kernel.body) | all_sets(kernel.body))
    made = _Owner(read_only_buffers(kernel.buffers, kernel.body), times, taken)
    body = made.level(kernel.body, {}, {})
    return replace(kernel, body=body) if made.done else kernel


@dataclass(frozen=True, slots=True)
class _Index:
    """An index that is the same for all columns: ``name`` in the loop, ``first`` loads it in front of that, in the
    place of ``gone``. Behind the loop, where ``held``, after ``last``, it is in range if ``inside``."""

    name: str
    inside: Expr
    gone: tuple[Stmt, ...] = ()
    first: tuple[Stmt, ...] = ()
    held: Expr = TRUE
    last: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class _Hit:
    """The one column that a reduction looks for: ``value`` is what it takes there, ``column`` its coordinate in the
    variables of ``loops``, ``index`` the variable that names it. ``whole`` is the value at all columns."""

    step: Accumulate
    value: Local
    whole: Compute
    index: _Index
    column: Expr
    loops: tuple[Loop, ...]


@dataclass(slots=True)
class _Owner:
    """``read_only``: buffers that nobody writes; ``times``: how often each name is read in the kernel."""

    read_only: frozenset[str]
    times: Counter[str]
    taken: set[str]
    done: list[str] = field(default_factory=list[str])

    def level(self, body: Sequence[Stmt], lets: Mapping[str, str], checks: Mapping[str, Expr]) -> Body:
        """The statements of one level. ``lets``: the index variable of a local; ``checks``: its range."""
        out = list(body)
        n = 0
        while n < len(out):
            s = out[n]
            if isinstance(s, Let) and isinstance(s.value, Local):
                lets = {**lets, s.value.name: s.name}
            if isinstance(s, InitAccumulator):
                found = self.owner(out, n, lets, checks)
                out = found if found is not None else out
            elif isinstance(s, (Loop, If, SingleThread, StraightLineBlock)):
                out[n] = replace(s, body=self.level(s.body, lets, checks))
            elif isinstance(s, BoundsCheck):
                out[n] = replace(s, body=self.level(s.body, lets, {**checks, s.value: s.condition}))
            n += 1
        return tuple(out)

    def owner(self, body: list[Stmt], n: int, lets: Mapping[str, str], checks: Mapping[str, Expr]) -> list[Stmt] | None:
        """The level where the reduction that ``body[n]`` starts is left to the owner; None where it stays."""
        start = body[n]
        at = next((k for k in range(n + 1, len(body)) if not isinstance(body[k], Comment)), n)
        loop = body[at]
        if not isinstance(start, InitAccumulator) or not isinstance(loop, Loop):
            return None
        hit = self.hit(loop, start, lets, checks)
        if hit is None or self.times[_name(hit.step.value)] != 1:
            return None
        after = self.after(body[at + 1 :], start.name, loop)
        if after is None:
            return None
        steps, rest = after
        self.done.append(start.name)
        alone = _without_exchange(steps)
        at_end: Body = (*hit.index.last, If(simplify(not_(hit.index.inside)), alone))
        outside = at_end if hit.index.held == TRUE else (If(hit.index.held, at_end),)
        return [*body[:at], *hit.index.first, self.stored(loop, hit, alone), *outside, *rest]

    def hit(
        self, loop: Loop, start: InitAccumulator, lets: Mapping[str, str], checks: Mapping[str, Expr]
    ) -> _Hit | None:
        """The column that a reduction looks for, where it is at most one."""
        steps = [
            s for s in walk((loop,)) if isinstance(s, Accumulate) and s.acc.name == start.name and s.buffer is None
        ]
        if len(steps) != 1 or steps[0].running is not None:
            return None
        (step,) = steps
        made: dict[str, list[Stmt]] = {}
        for s in walk((loop,)):
            for x in defs(s):
                if not isinstance(s, InitAccumulator):
                    made.setdefault(x.name, []).append(s)
        whole = _only(made, _name(step.value))
        if whole is None:
            return None
        selects, value = _match_selection(whole, step, start)
        test = _only(made, _name(selects))
        if value is None or test is None or test.op != "eq" or test.compute != "int64":
            return None
        loops = _around((loop,), step)
        for k in (0, 1):
            index, column = test.operands[k], _column(made, test.operands[1 - k])
            if isinstance(index, Local) and column is not None and _is_injective(column, loops):
                named = self.named(loop, index, step, lets, checks)
                if named is not None:
                    return _Hit(step, value, whole, named, column, loops)
        return None

    def named(
        self, loop: Loop, index: Local, step: Stmt, lets: Mapping[str, str], checks: Mapping[str, Expr]
    ) -> _Index | None:
        """An index that is the same for all columns."""
        name = lets.get(index.name, "")
        if index.name not in all_sets((loop,)) and name in checks:
            return _Index(name, checks[name])
        moving = all_sets((loop,))
        here = [s for s in walk((loop,)) if isinstance(s, Let) and s.value == index]
        tests = [s for s in walk((loop,)) if isinstance(s, BoundsCheck) and here and s.value == here[0].name]
        loads = [s for s in walk((loop,)) if isinstance(s, Load) and s.local == index]
        if len(here) != 1 or len(tests) != 1 or len(loads) > 1:
            return None
        old = [x for x in tests[0].condition.symbols if x.name == here[0].name]
        if (tests[0].condition.names - {here[0].name}) & moving or not old:
            return None
        own = Renamer(self.taken)
        local = replace(index, name=own.fresh(f"{index.name}_own{n}" for n in count()))
        name = own.fresh(f"{here[0].name}_own{n}" for n in count())
        inside = tests[0].condition.substitute(dict.fromkeys(old, symbol(name)))
        under_all = _conditions((loop,), here[0])
        held = and_(*(c for c in under_all if not c.names & moving))
        around = _around((loop,), here[0])[::-1]
        if not loads:  # it was made before, where it is needed
            purpose = guard_provenance(here[0].serves, and_(*under_all))
            for v in around:
                purpose = for_all(purpose, v)
            late = (Let(name, index, purpose),)
            return None if index.name in moving else _Index(here[0].name, inside, held=held, last=late)
        (load,) = loads
        if load.address.names & moving or load.buffer.name not in self.read_only or load.guard is not TRUE:
            return None
        check = replace(tests[0], condition=inside, value=name, body=())
        out = LoadedIndex(replace(load, local=local, guard=held), Let(name, local, here[0].serves), check)
        out = under(out, and_(*under_all))
        for v in around:
            out = outside(out, v)
        return _Index(
            name, inside, (load, here[0], tests[0]), (load if out.load is None else out.load, out.let, out.check)
        )

    def after(self, body: Sequence[Stmt], acc: str, loop: Loop) -> tuple[Body, list[Stmt]] | None:
        """(what the reduction's value is used for, the other statements), where its owner can do that by itself."""
        tainted, uses = {acc}, list[Stmt]()
        for s in body:
            if tainted & (all_reads((s,)) | _live_out_names((s,))):
                tainted |= _live_out_names((s,))
                uses.append(s)
        own = Counter(m for s in walk(tuple(uses)) for m in reads(s))
        own[acc] += sum(acc in reads(s) for s in walk((loop,)))
        rest = [s for s in body if not any(s is x for x in uses)]
        if not uses or any(own[m] != self.times[m] for m in tainted):
            return None  # others need the value
        steps = _with_needed(uses, rest)
        others = (loop, *rest)
        open_ = {*read_before_set(steps, reads, scoped=False)} - {acc}
        if not all(self.is_alone(s, acc) for s in walk(steps)) or open_ & _live_out_names(others):
            return None
        return None if stored_in(steps) & (stored_in(others) | loaded_in(others)) else (steps, rest)

    def is_alone(self, s: Stmt, acc: str) -> bool:
        """Whether one thread can do ``s`` without the others, inside of the loop."""
        match s:
            case Loop(extent=extent, parallel=way):
                return extent == 1 and not way.startswith(("threadIdx", "blockIdx"))
            case Load(buffer=buffer):
                return buffer.name in self.read_only
            case Store(buffer=buffer):
                return buffer.place in ("output", "global")
            case BlockReduce(acc=x, before=before):
                return x.name == acc and before is None
            case _:
                return isinstance(s, _STEPS)

    def stored(self, loop: Loop, hit: _Hit, steps: Body) -> Loop:
        """The loop, in which the owner does ``steps`` where the reduction took its value."""
        renaming = Renamer(self.taken)
        acc = renaming.unique(hit.step.acc)
        for s in walk(steps):
            for x in defs(s):
                if x.name not in renaming.to:
                    renaming.unique(x)
        here = map_body(steps, renaming.statement)
        threads = frozenset(v.parallel for v in hit.loops if v.parallel.startswith("threadIdx"))
        own = (Compute(acc, "cast", (hit.value,), acc.dtype), *_by(here, threads))
        chosen = If(symbol(hit.index.name).eq(hit.column), own)

        def each(s: Stmt) -> Stmt:
            if s is hit.step:
                return chosen
            return Compute(hit.whole.local, "cast", (hit.value,), hit.whole.local.dtype) if s is hit.whole else s

        (made,) = map_body(_without((loop,), hit.index.gone), each)
        live = _live((made,), set())
        return live[0]  # type: ignore[return-value]


def _live_out_names(body: Sequence[Stmt]) -> frozenset[str]:
    """Names set in ``body`` that mean something behind it: not those of its loops."""
    return all_sets(body) - {s.var for s in walk(tuple(body)) if isinstance(s, Loop)}


def _with_needed(uses: Sequence[Stmt], rest: Sequence[Stmt]) -> Body:
    """The statements with those of ``rest`` that they need, in front."""
    found = list(uses)
    needs = set(all_reads(found))
    for s in reversed(rest):
        if _live_out_names((s,)) & needs:
            found.insert(0, s)
            needs |= all_reads((s,))
    return tuple(found)


def _without_exchange(steps: Body) -> Body:
    """The steps without the exchange, and without loops of one step."""
    made: list[Stmt] = []
    for s in steps:
        if isinstance(s, BlockReduce):
            continue
        if isinstance(s, Loop):
            zero = {x: as_expr(0) for x in (symbol(s.var), symbol(s.var, 0, 0))}
            made += map_body(
                _without_exchange(s.body), lambda x, zero=zero: map_statement(x, index=lambda e: e.substitute(zero))
            )
        elif isinstance(s, (If, SingleThread)):
            made.append(replace(s, body=_without_exchange(s.body)))
        else:
            made.append(s)
    return tuple(made)


def _by(steps: Body, threads: frozenset[str]) -> Body:
    """The steps by this one of the ``threads``, no matter which."""
    made: list[Stmt] = []
    for s in steps:
        if isinstance(s, SingleThread):
            dims = tuple(d for d in s.dims if d not in threads)
            inner = _by(s.body, threads)
            made += (replace(s, dims=dims, body=inner),) if dims else inner
        elif isinstance(s, If):
            made.append(replace(s, body=_by(s.body, threads)))
        else:
            made.append(s)
    return tuple(made)


def _without(body: Sequence[Stmt], gone: Sequence[Stmt]) -> Body:
    """The statements without those; what stood inside of them stays."""
    made: list[Stmt] = []
    for s in body:
        inner = _without(bodies(s), gone)
        if any(s is x for x in gone):
            made += inner
        else:
            made.append(
                replace(s, body=inner) if isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)) else s
            )
    return tuple(made)


def _live(body: Sequence[Stmt], needed: set[str]) -> list[Stmt]:
    """The statements without computations that nobody reads; loads stay, whose purposes are checked."""
    kept: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, (Loop, If, SingleThread, StraightLineBlock, BoundsCheck)):
            inner = _live(s.body, needed)
            needed |= reads(s)
            kept.append(replace(s, body=tuple(inner)))
            continue
        if isinstance(s, (Compute, Select)) and s.local.name not in needed:
            continue
        if isinstance(s, InitAccumulator) and s.name not in needed:
            continue
        needed |= reads(s)
        kept.append(s)
    return kept[::-1]


# the one column -------------------------------------------------------------------------------------------------------


def _name(o: object) -> str:
    return o.name if isinstance(o, Local) else ""


def _conditions(body: Sequence[Stmt], s: Stmt) -> list[Expr]:
    """The conditions under which a statement of ``body`` runs."""
    for x in body:
        if x is s:
            return []
        if any(y is s for y in walk(bodies(x))):
            own = list(x.condition.conjuncts) if isinstance(x, If) else []
            return own + _conditions(bodies(x), s)
    return []


def _only(made: Mapping[str, list[Stmt]], name: str) -> Compute | None:
    found = made.get(name, [])
    return found[0] if len(found) == 1 and isinstance(found[0], Compute) else None


def _match_selection(whole: Compute, step: Accumulate, start: InitAccumulator) -> tuple[object, Local | None]:
    """(where it holds, the value there) of a selection that is the reduction's first value elsewhere."""
    if whole.op == "where" and step.op == "amax":
        hit, value, other = whole.operands
        if isinstance(value, Local) and getattr(other, "value", None) == start.value:
            return hit, value
    if whole.op == "logical_and" and step.op == "any":
        hit, value = whole.operands
        if isinstance(value, Local):
            return hit, value
    return None, None


def _column(made: Mapping[str, list[Stmt]], o: object) -> Expr | None:
    """The index expression that an integer holds."""
    while isinstance(o, Local):
        s = _only(made, o.name)
        if s is None or s.op != "cast" or o.dtype != "int64":
            return None
        (o,) = s.operands
    return o.value if isinstance(o, Index) else None


def _around(body: Sequence[Stmt], step: Stmt) -> tuple[Loop, ...]:
    """The loops around a statement, outermost first."""
    for s in body:
        if s is step:
            return ()
        if any(x is step for x in walk(bodies(s))):
            inner = _around(bodies(s), step)
            return (s, *inner) if isinstance(s, Loop) else inner
    return ()


def _is_injective(column: Expr, loops: Sequence[Loop]) -> bool:
    """Whether no two steps of the loops have the same column: each loop goes further than all shorter ones together."""
    terms: list[tuple[int, Expr]] = []
    for v in loops:
        if v.extent == 1:
            continue
        x = next((s for s in column.symbols if s.name == v.var), None)
        by = None if x is None else simplify(column.substitute({x: x + 1}) - column)
        if by is None or not by.is_const or int(by) <= 0:
            return False
        terms.append((int(by), v.extent))
    reach = as_expr(0)
    for by, extent in sorted(terms, key=lambda t: t[0]):
        if not is_true(simplify(reach) < by):
            return False
        reach = reach + (extent - 1) * by
    return True
