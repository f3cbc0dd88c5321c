"""Sources of reads at every size: array dataflow over loops whose lengths are symbols.

A program is a list of statements, one for each write, each with its loops, its condition and its place in the tree. The
source of a read is found in cases: a writer and the point of its loops that is proved to run before, to write that
address, and to have no other write of it in between. Updates of what is there already (a sum in steps) add up between
the source and the read, over the loops that their address leaves open. What is proved is that conditions on integers
have no solution (`idgraph.arith.integer_solutions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, not_, or_, simplify, symbol
from idgraph.arith.integer_solutions import follows, no_solution
from idgraph.check.address_solutions import Point, solutions
from idgraph.check.enumeration import uses
from idgraph.check.program import Axis, IndirectIndex, LoadedValue, Nest, Read, TreeLoop, Write
from idgraph.check.semantics import NoIndexMeaning

ZERO = as_expr(0)
MOST = 200  # reads of one statement


@dataclass(frozen=True, slots=True)
class Statement:
    """One write of one nest: its loops from the outermost, the condition at which it runs, and its path in the tree."""

    nest: Nest
    write: Write
    loops: tuple[tuple[Axis, TreeLoop | None], ...]
    when: Expr
    path: tuple[int, ...]
    home: str
    address: Expr
    own: int = 0  # outer loops of which each iteration has its own memory there

    @property
    def updates(self) -> bool:
        """Whether it goes on from what is there."""
        return self.write.mode == "add" or any(self.goes_on(r) for r in self.write.reads)

    @property
    def reached(self) -> tuple[Expr, ...]:
        """Conditions on the sizes where it runs at all: its loops have an iteration."""
        every = (a.extent for a in (*(a for a, _ in self.loops), *self.nest.reduce))
        return tuple(n >= 1 for n in every if not n.is_const)

    def goes_on(self, r: Read) -> bool:
        """Whether a read is of the element that is written."""
        return r.buffer == self.write.buffer and r.index == self.write.index and self.write.mode == "store"

    def primed(self) -> dict[str, Expr]:
        """Loops of another point of it."""
        return {a.name: Axis(f"{a.name}'", a.extent).symbol for a in (*(a for a, _ in self.loops), *self.nest.reduce)}

    def inside(self, at: Point) -> Expr:
        """Whether a point lies in the ranges of the loops."""
        return and_(*(c for a, _ in self.loops for c in (at[a.name] >= 0, at[a.name] < a.extent)))

    def runs_at_all(self, at: Point) -> Expr:
        """Whether it runs at a point, at some step of its reduction, which is any here."""
        fresh = {a.name: Axis(f"{a.name}'", a.extent).symbol for a in self.nest.reduce}
        return and_(self.inside(at), self.when.substitute({**fresh, **at}))

    def runs(self, at: Point) -> Expr:
        """Whether it runs at a point that is given by formulas; of a reduction, whether its first step does."""
        first = dict.fromkeys((a.name for a in self.nest.reduce), ZERO)
        some = [a.extent > 0 for a in self.nest.reduce]
        return and_(self.inside(at), *some, self.when.substitute({**first, **at}))


@dataclass(frozen=True, slots=True)
class MadeOf:
    """Elements of arguments that a statement combines, over its loops and ``reduce``."""

    reads: tuple[Read, ...] = ()
    reduce: tuple[Axis, ...] = ()
    loads: Mapping[str, LoadedValue] = field(default_factory=dict[str, LoadedValue])
    places: Mapping[str, IndirectIndex] = field(default_factory=dict[str, IndirectIndex])

    def joined(self, other: MadeOf) -> MadeOf:
        return MadeOf(
            tuple(dict.fromkeys((*self.reads, *other.reads))), (*self.reduce, *other.reduce),
            {**self.loads, **other.loads}, {**self.places, **other.places},
        )  # fmt: skip

    def where(self, held: Expr) -> MadeOf:
        """The same, read only where a condition holds."""
        if held is TRUE:
            return self
        reads = ((r, simplify(and_(held, r.when))) for r in self.reads)
        return replace(self, reads=tuple(replace(r, when=w) for r, w in reads if w is not FALSE))


@dataclass(slots=True)
class SymbolicFlow:
    """``statements`` of a program; ``start`` are the memories that hold something at the start, with the buffer and its
    base that name them; ``facts`` hold of the sizes.
    """

    statements: Sequence[Statement]
    start: Mapping[str, tuple[str, Expr]]
    bases: Mapping[str, tuple[str, Expr]]  # of buffers: the memory, and where they begin in it
    facts: tuple[Expr, ...] = ()
    made: dict[int, MadeOf | None] = field(default_factory=dict[int, MadeOf | None])
    levels: dict[tuple[int, Read], int] = field(default_factory=dict[tuple[int, Read], int])
    fresh: int = 0

    def writers(self, home: str) -> list[Statement]:
        return [s for s in self.statements if s.home == home]

    def place(self, r: Read) -> tuple[str, Expr]:
        home, base = self.bases.get(r.buffer, (r.buffer, ZERO))
        return home, r.index + base

    # order ------------------------------------------------------------------------------------------------------------

    def before(self, s: Statement, w: Point, x: Statement, at: Point) -> list[list[Expr]]:
        """The cases in which a point of ``s`` runs before one of ``x``, of one memory."""
        common = _shared_loops(s, x)
        equal = [w[a.name].eq(at[a.name]) for a, _ in s.loops[:common]]
        out = [
            [*equal[:k], w[s.loops[k][0].name] < at[s.loops[k][0].name]] for k in range(s.own, common)
        ]  # fmt: skip
        if s.path < x.path and s.own <= common:
            out.append(equal)
        return out

    # sources ----------------------------------------------------------------------------------------------------------

    def content(self, x: Statement, home: str, address: Expr, when: Expr, key: Read | None = None) -> MadeOf:
        """Elements of arguments that a read of an address, by a point of ``x``, sees."""
        out = MadeOf()
        level = len(x.loops)
        for held, s, at, depth in self.sources(x, home, address, when):
            level = min(level, depth)
            given = (*self.facts, *x.reached, when, held)
            if s is None:
                buffer, base = self.start[home]
                seen = MadeOf((Read(buffer, simplify(address - base)),))
            else:
                seen = self.at(s, at)
            self.nothing_between(x, home, address, given, s, at)
            for u in self.writers(home):
                if u.updates:
                    seen = self.updated(seen, u, x, address, given, s, at)
            out = out.joined(seen.where(held))
            if len(out.reads) > MOST:
                raise NoIndexMeaning("its reads are of too many statements")
        if key is not None:
            self.levels[id(x), key] = level
        return out

    def sources(
        self, x: Statement, home: str, address: Expr, when: Expr
    ) -> Iterator[tuple[Expr, Statement | None, Point, int]]:
        """The cases of a read: a condition, the statement that wrote there last (None: it is there from the start), at
        which point, and how many loops that point shares with the reader's.
        """
        known = (*self.facts, *x.reached, when)
        rest: list[Expr] = []
        at = _itself(x)
        plain = sorted((s for s in self.writers(home) if not s.updates), key=lambda s: s.path, reverse=True)
        levels = max((_shared_loops(s, x) for s in plain), default=0)
        for level in range(levels, -1, -1):
            for s in plain:
                common = _shared_loops(s, x)
                if level > common or level < s.own or (level == common and s.path >= x.path):
                    continue
                same = {a.name: at[a.name] for a, _ in s.loops[:level]}
                free = [a for a, _ in s.loops[level:]]
                last = at[s.loops[level][0].name] - 1 if level < common else None
                every: list[tuple[Expr, Point]] = []
                for found in dict.fromkeys(
                    _sorted_point(c) for c in solutions(s.address.substitute(same), free, address, last)
                ):
                    point = {**same, **dict(found)}
                    order = point[s.loops[level][0].name] <= last if last is not None else TRUE
                    held = and_(order, s.runs(point), s.address.substitute(point).eq(address))
                    held = simplify(held, facts=(and_(*known),))
                    if held is not FALSE and not no_solution(*known, *rest, held):
                        every.append((held, point))
                whole = next((x for x in every if no_solution(*known, *rest, not_(x[0]))), None)
                for held, point in every if whole is None else (whole,):
                    if no_solution(*known, *rest, held):
                        continue
                    yield simplify(and_(held, *rest), facts=(and_(*known),)), s, point, level
                    rest.append(not_(held))
                    if no_solution(*known, *rest):
                        return
        if no_solution(*known, *rest):
            return
        if home not in self.start:
            raise NoIndexMeaning(f"whether something writes all that {x.nest.name} reads in {home} is not proved")
        yield simplify(and_(*rest), facts=(and_(*known),)), None, {}, 0

    def nothing_between(
        self, x: Statement, home: str, address: Expr, given: Sequence[Expr], source: Statement | None, at: Point
    ) -> None:
        """No other statement writes another value there after the source and before the read."""
        for s in self.writers(home):
            if s.updates:
                continue
            w = s.primed()
            held = [*given, s.when.substitute(w), s.address.substitute(w).eq(address)]
            for a, b in product(self.before(s, w, x, _itself(x)), self.after(source, at, s, w)):
                if no_solution(*held, *a, *b) or (
                    source is not None and self.one_value(source, at, s, w, (*held, *a, *b))
                ):
                    continue
                name = source.nest.name if source is not None else "the start"
                raise NoIndexMeaning(
                    f"that {s.nest.name} writes nothing to {home} between {name} and {x.nest.name} is not proved"
                )

    def after(self, source: Statement | None, at: Point, s: Statement, w: Point) -> list[list[Expr]]:
        return [[]] if source is None else self.before(source, at, s, w)

    def updated(
        self, seen: MadeOf, u: Statement, x: Statement, address: Expr, given: Sequence[Expr], source: Statement | None,
        at: Point,
    ) -> MadeOf:  # fmt: skip
        """The elements that updates between the source and the read add."""
        w = u.primed()
        held = [*given, u.when.substitute(w), u.address.substitute(w).eq(address)]
        window = [
            [*held, *a, *b] for a, b in product(self.before(u, w, x, _itself(x)), self.after(source, at, u, w))
            if not no_solution(*held, *a, *b)
        ]  # fmt: skip
        if not window:
            return seen
        for level in range(_shared_loops(u, x), -1, -1):
            same = {a.name: a.symbol for a, _ in u.loops[:level]}
            own = [a for a, _ in u.loops[level:] if a.name in u.address.names or a.extent == as_expr(1)]
            for found in solutions(u.address.substitute(same), own, address, None):
                point = {**same, **found}
                other = or_(*(w[name].ne(v) for name, v in point.items()))
                if not all(no_solution(*case, other) for case in window):
                    continue  # steps of other points are in the window
                more = self.steps(u, point, x, address, given, source, at)
                if more is not None:
                    if not self.disjoint(seen, more, given):
                        raise NoIndexMeaning(f"{u.nest.name} may add an element that is in {u.home} already")
                    return seen.joined(more)
        raise NoIndexMeaning(f"which steps of {u.nest.name} {x.nest.name} sees in {u.home} is not proved")

    def steps(
        self, u: Statement, point: Point, x: Statement, address: Expr, given: Sequence[Expr], source: Statement | None,
        at: Point,
    ) -> MadeOf | None:  # fmt: skip
        """The elements that the steps of an update at ``point`` add, over the loops that are left; None where not all
        of them are between the source and the read, or a loop adds one element again.
        """
        axes = [(a, self.axis(a)) for a, _ in u.loops if a.name not in point]
        every: dict[str, Expr] = {**point, **{a.name: b.symbol for a, b in axes}}
        exact = u.address.substitute(every).eq(address)
        late = self.before(x, _itself(x), u, every)
        early = [] if source is None else self.before(u, every, source, at)
        if not all(no_solution(*given, u.runs_at_all(every), exact, *c) for c in (*late, *early)):
            return None
        made = self.at(u, every)
        made = replace(made, reduce=(*(b for _, b in axes), *made.reduce))
        used = frozenset[str]().union(*(r.index.names for r in made.reads))
        if any(b.name not in used for b in made.reduce):
            return None
        if not made.reads and not follows(and_(u.runs(every), exact), *given):
            return None
        return made.where(simplify(and_(u.inside(every), exact), facts=(and_(*given),)))

    def disjoint(self, a: MadeOf, b: MadeOf, given: Sequence[Expr]) -> bool:
        """No element of the one is of the other too."""
        return all(
            r.buffer != s.buffer or no_solution(*given, r.when, s.when, r.index.eq(s.index))
            for r, s in product(a.reads, b.reads)
        )

    # values -----------------------------------------------------------------------------------------------------------

    def of(self, s: Statement) -> MadeOf:
        """The elements that a statement reads at its points, of arguments; not the element that it goes on from."""
        if id(s) not in self.made:
            self.made[id(s)] = None
            try:
                self.made[id(s)] = self.read_by(s)
            finally:
                if self.made[id(s)] is None:
                    del self.made[id(s)]
        found = self.made[id(s)]
        if found is None:
            raise NoIndexMeaning(f"what {s.nest.name} stores depends on what it stored before, in another element")
        return found

    def read_by(self, s: Statement) -> MadeOf:
        out = MadeOf((), s.nest.reduce, s.nest.loads, s.nest.places)
        for r in s.write.reads:
            home, address = self.place(r)
            when = and_(s.when, r.when)
            if s.goes_on(r) or simplify(when) is FALSE:
                continue
            if not self.writers(home) and home in self.start:
                out = out.joined(MadeOf((replace(r, when=simplify(when)),)))
            else:
                out = out.joined(self.content(s, home, address, when, r).where(when))
        return out

    def at(self, s: Statement, point: Point) -> MadeOf:
        """`of`, at a point, with reduced loops of its own."""
        made = self.of(s)
        names: dict[str, Expr] = dict(point)
        reduce = tuple(self.axis(a) for a in made.reduce)
        names |= {a.name: b.symbol for a, b in zip(made.reduce, reduce, strict=True)}
        loads, places = dict[str, LoadedValue](), dict[str, IndirectIndex]()
        left: dict[str, LoadedValue | IndirectIndex] = {**made.loads, **made.places}
        while left:
            ready = [k for k, v in left.items() if not uses(v) & left.keys()]
            if not ready:
                raise NoIndexMeaning("its loaded values use each other")
            for k in ready:
                v = left.pop(k)
                if isinstance(v, IndirectIndex):
                    own = self.axis(Axis(k, v.size))
                    places[own.name] = replace(v, value=v.value.substitute(names), size=v.size.substitute(names))
                else:
                    own = self.axis(Axis(k, as_expr(1)))
                    loads[own.name] = v if v.text else replace(v, index=v.index.substitute(names))
                names[k] = own.symbol if isinstance(v, IndirectIndex) else symbol(own.name)
        reads = (
            replace(r, index=simplify(r.index.substitute(names)), when=simplify(r.when.substitute(names)))
            for r in made.reads
        )
        return MadeOf(tuple(reads), reduce, loads, places)

    def axis(self, a: Axis) -> Axis:
        self.fresh += 1
        return Axis(f"{a.name.split('~')[0]}~{self.fresh}", a.extent)

    def one_value(self, a: Statement, at: Point, b: Statement, w: Point, given: Sequence[Expr]) -> bool:
        """Whether both statements store one value at points that satisfy ``given``."""
        if a.write.mode == "add" or b.write.mode == "add" or a.updates or b.updates:
            return False
        texts = [(s.write.value.text if s.write.value is not None else "") for s in (a, b)]
        loops = {x.name.split(".")[0] for s in (a, b) for x, _ in s.loops}
        if texts[0] != texts[1] or loops & _words_of(texts[0]):
            return False
        try:
            first, second = self.of(a), self.of(b)
        except NoIndexMeaning:
            return False
        if len(first.reads) != len(second.reads) or first.reduce or second.reduce or first.loads or second.loads:
            return False
        for r, s in zip(first.reads, second.reads, strict=True):
            if r.buffer != s.buffer:
                return False
            i, j = r.index.substitute(at), s.index.substitute(w)
            c, d = r.when.substitute(at), s.when.substitute(w)
            if not (
                no_solution(*given, c, d, i.ne(j))
                and no_solution(*given, c, not_(d))
                and no_solution(*given, d, not_(c))
            ):
                return False
        return True

    # races ------------------------------------------------------------------------------------------------------------

    def race(self) -> str:
        """Why it is not proved that the order of iterations that run in any order is all one; "" where it is."""
        for s in self.statements:
            for x in self.statements:
                for d in range(s.own, _shared_loops(s, x)):
                    loop = s.loops[d][1]
                    if loop is not None and loop.any_order:
                        found = self.raced(s, x, d)
                        if found:
                            return found
        return ""

    def raced(self, s: Statement, x: Statement, d: int) -> str:
        """Whether ``x`` touches what ``s`` writes in another iteration of their loop ``d``."""
        w, name = s.primed(), s.loops[d][0].name
        at = _itself(x)
        apart = [*(w[a.name].eq(at[a.name]) for a, _ in s.loops[:d]), w[name].ne(at[name])]
        held = [*self.facts, s.when.substitute(w), x.when, *apart]
        shown = f"iterations of {name.split('.')[0]} in any order"
        if x.home == s.home and not (s.write.mode == x.write.mode == "add"):
            case = [*held, s.address.substitute(w).eq(x.address)]
            if not no_solution(*case) and not self.one_value(x, at, s, w, case):
                both = f"by {s.nest.name} and {x.nest.name}"
                return f"that {shown} write no element of {s.home} twice, {both}, is not proved"
        for r in x.write.reads:
            home, address = self.place(r)
            if home != s.home:
                continue
            case = [*held, r.when, s.address.substitute(w).eq(address)]
            if no_solution(*case):
                continue
            if x.goes_on(r) or self.levels.get((id(x), r), 0) <= d or not self.writes_same(x, r, s, w, d, case):
                return (
                    f"that {x.nest.name} reads nothing that {shown} write in {s.home}, by {s.nest.name}, is not proved"
                )
        return ""

    def writes_same(self, x: Statement, r: Read, s: Statement, w: Point, d: int, case: Sequence[Expr]) -> bool:
        """Whether what the iteration of ``x`` wrote itself is what another writes there too."""
        home, address = self.place(r)
        return all(
            a is not None and depth > d and self.one_value(a, at, s, w, (*case, held))
            for held, a, at, depth in self.sources(x, home, address, and_(x.when, r.when))
        )


def _sorted_point(point: Point) -> tuple[tuple[str, Expr], ...]:
    return tuple(sorted(point.items(), key=lambda x: x[0]))


def _words_of(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def _itself(x: Statement) -> dict[str, Expr]:
    return {a.name: a.symbol for a, _ in x.loops}


def _shared_loops(a: Statement, b: Statement) -> int:
    """How many loops two statements share."""
    n = 0
    while n < min(len(a.loops), len(b.loops)) and a.loops[n][0] is b.loops[n][0]:
        n += 1
    return n
