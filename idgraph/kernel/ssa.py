"""Static single assignment: statements in which every value has one definition.

Code that is built, or copied, may set one name in several places. `to_ssa` gives each definition a name of its own, and
lets each read take the one that reaches it. Where two of them do, because one is under a condition, the value is chosen
behind the condition. (Cytron, Ferrante, Rosen, Wegman and Zadeck, Efficiently computing static single assignment form
and the control dependence graph, 1991; here the control is a tree, so no dominance frontiers are needed.)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from idgraph.arith import Expr, is_true, not_, simplify, symbol
from idgraph.ir import DType, Scalar
from idgraph.kernel.def_use import Body, all_reads, all_sets, defs, map_statement, reads, updates
from idgraph.kernel.statements import (
    BoundsCheck,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Let,
    Local,
    Loop,
    Operand,
    RegisterArray,
    Select,
    SingleThread,
    Stmt,
    StraightLineBlock,
    bodies,
    walk,
)

Facts = tuple[Expr, ...]
_COPY = re.compile(r"_s\d+\Z")


def to_ssa(body: Sequence[Stmt], taken: Iterable[str] = ()) -> Body:
    """``body`` with one definition for each value; ``taken`` are names that mean something else.

    A first value that statements under a condition replace is the other case of a choice behind them; a first value
    that statements add to is an accumulator, and stays. A value that one step of a loop sets and the next one reads has
    to be an accumulator: for any other one, AssertionError.

    >>> from idgraph.kernel import parse
    >>> k = parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 8:
    ...     v: float32 = x[i]
    ...     if i < 4:
    ...       v: float32 = neg(v)
    ...     y[i] = v
    ... ''')
    >>> print(replace(k, body=to_ssa(k.body)))
    kernel k():
      buffer x: float32[8] input "x"
      buffer y: float32[8] output "y"
      for i < 8:
        v: float32 = x[i]
        if i < 4:
          v_s2: float32 = neg(v)
        v_s3: float32 = choose(i < 4 ? v_s2, v)
        y[i] = v_s3
    """
    body = tuple(body)
    if is_single(body):
        return body
    names = _ValueNames(body, set(taken))
    return _written(names.level(body, ()))


def is_single(body: Sequence[Stmt]) -> bool:
    """True where every value has one definition, and every first value is that of an accumulator."""
    times = Counter(x.name for s in walk(tuple(body)) for x in defs(s) if x.at is None)
    added = {x.name for s in walk(tuple(body)) for x in updates(s)}
    first = {s.name for s in walk(tuple(body)) if isinstance(s, InitAccumulator)}
    return first <= added and all(n == 1 for n in times.values())


def simplify_selects(body: Sequence[Stmt]) -> Body:
    """``body`` where each read of a choice, under conditions that tell its case, reads the variable of that case.

    Choices that no statement reads any more are left out. A pass that changes conditions may make two of them one.

    >>> from idgraph.kernel import parse
    >>> k = parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 8:
    ...     if i < 4:
    ...       u: float32 = x[i]
    ...     v: float32 = choose(i < 4 ? u, 0.0)
    ...     if i < 3:
    ...       y[i] = v
    ... ''')
    >>> print(replace(k, body=simplify_selects(k.body)))
    kernel k():
      buffer x: float32[8] input "x"
      buffer y: float32[8] output "y"
      for i < 8:
        if i < 4:
          u: float32 = x[i]
        if i < 3:
          y[i] = u
    """
    body = tuple(body)
    if not any(isinstance(s, Select) for s in walk(body)):
        return body
    changing = {x.name for s in walk(body) for x in updates(s)}
    before = _read_choices(body)
    made = _Resolving(changing).level(body, (), {})
    return _without_choices(made, before - _read_choices(made))


def live_out(s: Stmt, after: Iterable[Stmt]) -> frozenset[str]:
    """Names that a statement inside ``s`` sets, and one of those ``after`` it reads, where the same conditions hold."""
    return all_sets((s,)) & all_reads(after) if bodies(s) else frozenset()


def all_leaving(body: Sequence[Stmt]) -> frozenset[str]:
    """The same of all statements of ``body``, and inside it."""
    found = frozenset[str]()
    for n, s in enumerate(body):
        if bodies(s):
            found |= live_out(s, body[n + 1 :]) | all_leaving(bodies(s))
    return found


def _read_choices(body: Body) -> frozenset[str]:
    """Names of the choices that some statement reads."""
    return all_reads(body) & {s.local.name for s in walk(body) if isinstance(s, Select)}


def _without_choices(body: Body, names: frozenset[str]) -> Body:
    """``body`` without the choices of those names."""
    made: list[Stmt] = []
    for s in body:
        inner = bodies(s)
        kept = _without_choices(inner, names) if inner else inner
        if not (isinstance(s, Select) and s.local.name in names):
            made.append(s if kept == inner else replace(s, body=kept))  # pyright: ignore[reportCallIssue]
    return tuple(made)


@dataclass(slots=True)
class _Resolving:
    """One walk over statements in single assignment; accumulators, which are ``changing``, stand for no choice."""

    changing: set[str]

    def level(self, body: Body, facts: Facts, choices: dict[str, Select]) -> Body:
        """The statements of one level, where ``facts`` hold and ``choices`` are known."""
        made: list[Stmt] = []
        choices = dict(choices)
        for s in body:
            s = self.reading(s, facts, choices)
            if isinstance(s, Select) and s.local.at is None:
                choices[s.local.name] = s
            if isinstance(s, If):
                s = replace(s, body=self.level(s.body, (*facts, *s.condition.conjuncts), choices))
            elif isinstance(s, Loop):
                around = tuple(c for c in facts if s.var not in c.names)
                known = {n: c for n, c in choices.items() if s.var not in reads(c)}
                s = replace(s, body=self.level(s.body, around, known))
            elif isinstance(s, (SingleThread, StraightLineBlock, BoundsCheck)):
                s = replace(s, body=self.level(s.body, facts, choices))
            made.append(s)
        return tuple(made)

    def reading(self, s: Stmt, facts: Facts, choices: Mapping[str, Select]) -> Stmt:
        """``s`` with its reads."""
        if not choices or not facts or choices.keys().isdisjoint(reads(s)) or isinstance(s, Select):
            return s
        return map_statement(s, read=lambda o: self.operand(o, facts, choices))

    def operand(self, o: Operand, facts: Facts, choices: Mapping[str, Select]) -> Operand:
        """The variable of the case that holds, where the facts tell it; else the operand itself."""
        s = choices.get(o.name) if isinstance(o, Local) and o.at is None else None
        if s is None:
            return o
        chosen: Operand = s.default
        for condition, value in s.cases:
            if _is_implied(condition, facts):
                chosen = value
                break
            if not _is_implied(simplify(not_(condition)), facts):
                return o
        if not isinstance(chosen, Local) or chosen.at is not None or chosen.name in self.changing:
            return o
        return self.operand(chosen, facts, choices) if chosen.dtype == s.local.dtype else o


def _is_implied(condition: Expr, facts: Facts) -> bool:
    """Whether the facts imply a condition."""
    return all(c in facts or (bool(facts) and is_true(c, facts)) for c in condition.conjuncts)


@dataclass(slots=True)
class _Phi:
    """The value of a name behind a condition: ``then`` where it holds, else ``other``, or none where nothing has set it
    before; ``facts`` hold around it. Where a read takes both, ``written`` is the choice at this place. In a ``loop``,
    ``other`` is of the step before."""

    name: str
    dtype: DType
    condition: Expr
    then: _Held
    other: _Held | None
    facts: Facts
    loop: str
    written: Select | None = None


@dataclass(slots=True)
class _First:
    """A first value that nothing adds to; ``written`` at this place where a read takes it as it is."""

    name: str
    dtype: DType
    value: Scalar
    written: Compute | None = None


@dataclass(slots=True)
class _Open:
    """A statement, and the places inside it."""

    head: Stmt
    inside: list[_Place]


_Held = Local | _Phi | _First
_Place = Stmt | _Open | _Phi | _First


def _written(places: Sequence[_Place]) -> Body:
    made: list[Stmt] = []
    for p in places:
        match p:
            case _Phi(written=found) | _First(written=found):
                made += () if found is None else (found,)
            case _Open(head, inside):
                made.append(replace(head, body=_written(inside)))  # pyright: ignore[reportCallIssue]
            case _:
                made.append(p)
    return tuple(made)


@dataclass(slots=True)
class _LoopCarried:
    """One loop of several steps around: the names that its body has set so far, and those that it read before."""

    var: str
    made: set[str] = field(default_factory=set[str])
    early: set[str] = field(default_factory=set[str])


class _ValueNames:
    """One walk over the statements: ``held`` is what each name holds at the present one."""

    def __init__(self, body: Body, taken: set[str]) -> None:
        self.used = all_sets(body) | all_reads(body) | taken
        self.arrays = {s.name for s in walk(body) if isinstance(s, RegisterArray)}
        self.added = {x.name for s in walk(body) for x in updates(s)}
        self.defined = {s.var for s in walk(body) if isinstance(s, Loop)} | self.arrays | taken
        self.numbers = Counter[str]()
        self.held: dict[str, _Held] = {}
        self.lets: dict[str, str] = {}
        self.loops: list[_LoopCarried] = []
        self.known: dict[tuple[Expr, Facts], bool] = {}

    # names --------------------------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        """The name itself for its first definition, else a new one."""
        if name not in self.defined:
            self.defined.add(name)
            return name
        stem = _COPY.sub("", name)
        self.numbers[stem] = max(2, self.numbers[stem] + 1)
        while (made := f"{stem}_s{self.numbers[stem]}") in self.used or made in self.defined:
            self.numbers[stem] += 1
        self.defined.add(made)
        return made

    def define(self, x: Local) -> Local:
        """The definition of a variable."""
        if x.at is not None or x.name in self.arrays:
            return x
        new = replace(x, name=self.fresh(x.name))
        self.set(x.name, new)
        return new

    def set(self, name: str, held: _Held) -> None:
        self.held[name] = held
        for steps in self.loops:
            steps.made.add(name)

    def read(self, o: Local, facts: Facts) -> Local:
        """The definition that reaches a read, where the facts hold."""
        if o.at is not None or o.name in self.arrays:
            return o
        for steps in self.loops:
            if o.name not in steps.made:
                steps.early.add(o.name)
        held = self.held.get(o.name)
        return o if held is None else replace(o, name=self.reached(held, facts).name)

    def reached(self, held: _Held, facts: Facts) -> Local:
        """The variable that holds a value where the facts hold; a choice is made where they do not tell."""
        match held:
            case Local():
                return held
            case _First(name, dtype, value):
                if held.written is None:
                    held.written = Compute(Local(self.fresh(name), dtype), "cast", (Constant(value),), dtype)
                return held.written.local
            case _Phi(condition=condition, then=then, other=other):
                if other is None:
                    return self.reached(then, facts)
                opposite = simplify(not_(condition))
                if self.holds(condition, facts) or self.is_unset(other, held.facts):
                    return self.reached(then, facts)
                if held.loop:
                    raise _carried(held.name, held.loop)
                if self.holds(opposite, facts):
                    return self.reached(other, facts)
                if held.written is None:
                    chosen = self.reached(then, (*held.facts, *condition.conjuncts))
                    last = (
                        Constant(other.value) if isinstance(other, _First) else
                        self.reached(other, (*held.facts, *opposite.conjuncts))
                    )  # fmt: skip
                    local = Local(self.fresh(held.name), held.dtype)
                    held.written = Select(local, ((condition, chosen),), last)
                return held.written.local

    def is_unset(self, held: _Held, facts: Facts) -> bool:
        """Whether a value was set under conditions only that do not hold where the facts do: in another branch."""
        match held:
            case _Phi(condition=condition, then=then, other=other):
                unset = self.holds(simplify(not_(condition)), facts) or self.is_unset(then, facts)
                return unset and (other is None or self.is_unset(other, facts))
            case _:
                return False

    def holds(self, condition: Expr, facts: Facts) -> bool:
        """Whether the facts imply a condition."""
        key = condition, facts
        if key not in self.known:
            self.known[key] = _is_implied(condition, facts)
        return self.known[key]

    def index(self, e: Expr) -> Expr:
        """An index expression of the variables that hold its names here."""
        moved = {x: symbol(self.lets[x.name], *x.symbol_bounds) for x in e.symbols if x.name in self.lets}
        return e.substitute(moved) if moved else e

    # statements ---------------------------------------------------------------------------------------------------

    def level(self, body: Sequence[Stmt], facts: Facts) -> list[_Place]:
        """The statements of one level, and the places of choices among them."""
        out: list[_Place] = []
        for s in body:
            if isinstance(s, InitAccumulator) and s.name not in self.added:
                first = _First(s.name, s.dtype, s.value)
                self.set(s.name, first)
                out.append(first)
                continue
            made = self.defining(self.reading(s, facts))
            if isinstance(made, If):
                before, made_before = dict(self.held), [frozenset(x.made) for x in self.loops]
                out.append(_Open(made, self.level(made.body, (*facts, *made.condition.conjuncts))))
                out += self.merges(made.condition, before, made_before, facts)
            elif isinstance(made, Loop):
                out.append(_Open(made, self.steps(made, facts)))
            elif isinstance(
                made, (SingleThread, StraightLineBlock, BoundsCheck)
            ):  # a check is not a test: what is behind it knows of it
                out.append(_Open(made, self.level(made.body, facts)))
            else:
                out.append(made)
        return out

    def merges(
        self, condition: Expr, before: Mapping[str, _Held], made: Sequence[frozenset[str]], facts: Facts
    ) -> list[_Place]:
        """Behind a condition, what was set before it and under it."""
        found: list[_Place] = []
        for name, now in list(self.held.items()):
            was = before.get(name)
            if was is not now:
                loop = next((x.var for x, before_it in zip(self.loops, made, strict=True) if name not in before_it), "")
                loop = "" if was is None else loop
                merge = _Phi(name, now.dtype, condition, now, was, facts, loop)
                self.set(name, merge)
                found.append(merge)
        return found

    def steps(self, s: Loop, facts: Facts) -> list[_Place]:
        """The statements of a loop: what a step sets, the next one does not read, nor does what is behind the loop."""
        hidden, before = self.lets.pop(s.var, None), frozenset(self.held)
        one = s.extent == 1 or "Idx" in s.parallel  # one for each thread
        if not one:
            self.loops.append(_LoopCarried(s.var))
        made = self.level(s.body, facts)
        steps = _LoopCarried(s.var) if one else self.loops.pop()
        if hidden is not None:
            self.lets[s.var] = hidden
        if carried := sorted(steps.early & steps.made):
            raise _carried(carried[0], s.var)
        for name in steps.made - before:
            self.held.pop(name, None)
        return made

    def reading(self, s: Stmt, facts: Facts) -> Stmt:
        """``s`` with its reads."""
        if isinstance(s, Select):
            return self.choice(s, facts)

        def updated(x: Local) -> Local:
            return replace(x, name=self.read(x, facts).name)

        made = map_statement(s, updated=updated, read=lambda o: self.operand(o, facts), index=self.index)
        if isinstance(made, BoundsCheck) and made.value in self.lets:
            return replace(made, value=self.lets[made.value])
        return made

    def operand(self, o: Operand, facts: Facts) -> Operand:
        """An operand; `rewritten` sees to indices."""
        return self.read(o, facts) if isinstance(o, Local) else o

    def choice(self, s: Select, facts: Facts) -> Stmt:
        """An operand is read where its case holds, and none before it."""
        s = map_statement(s, index=self.index)
        cases: list[tuple[Expr, Operand]] = []
        for condition, o in s.cases:
            cases.append((condition, self.operand(o, (*facts, *condition.conjuncts))))
            facts = (*facts, *simplify(not_(condition)).conjuncts)
        return replace(s, cases=tuple(cases), default=self.operand(s.default, facts))

    def defining(self, s: Stmt) -> Stmt:
        """``s`` with what it defines."""
        if not isinstance(s, Let):
            return map_statement(s, made=self.define)
        name = self.fresh(s.name)
        self.lets[s.name] = name
        return replace(s, name=name)


def _carried(name: str, loop: str) -> AssertionError:
    return AssertionError(f"{name} goes from one step of loop {loop} to the next, and is not an accumulator")


@dataclass(slots=True)
class Renamer:
    """Variables under other names: ``to`` says which one stands for a name, ``taken`` which names are in use.

    >>> names = Renamer({"t"})
    >>> t, u = Local("t", "int64"), Local("u", "int64")
    >>> names.unique(t).name, names.operand(t).name, names.local(u).name
    ('t_s2', 't_s2', 'u')
    """

    taken: set[str] = field(default_factory=set[str])
    to: dict[str, Local] = field(default_factory=dict[str, Local])

    def local(self, x: Local) -> Local:
        """The variable that stands for ``x``, of its type."""
        found = self.to.get(x.name)
        return x if found is None else replace(found, dtype=x.dtype)

    def operand(self, o: Operand) -> Operand:
        """The same for an operand."""
        return self.local(o) if isinstance(o, Local) else o

    def statement(self, s: Stmt) -> Stmt:
        """``s`` over the variables that stand for its own."""
        return map_statement(s, made=self.local, updated=self.local, read=self.operand)

    def fresh(self, names: Iterable[str]) -> str:
        """The first of ``names`` that is not in use; it is in use from here on."""
        found = next(n for n in names if n not in self.taken)
        self.taken.add(found)
        return found

    def unique(self, x: Local) -> Local:
        """A variable of unique name for ``x``: itself where its name is free, else a new one that stands for it."""
        name = self.fresh(chain((x.name,), (f"{x.name}_s{n}" for n in count(2))))
        if name != x.name:
            self.to[x.name] = replace(x, name=name)
        return replace(x, name=name)
