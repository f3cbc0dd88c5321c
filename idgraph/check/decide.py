"""Deciding a compiled program nest by nest: the elements read for each element written, against the program's own maps.

For each write of a nest: the address decodes to an element of the program's tensor; `meaning` says what that element
is made of; `match` proves that the nest reads the same, `points` counts it out or finds the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from time import process_time

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify
from idgraph.check.algebraic import all_same, extent, flat_of, same, same_sets, spelled_out, unflat
from idgraph.check.buffer_contents import BufferContents, Stored, other_mode, other_reduction, unfilled
from idgraph.check.confirmation import Confirmation
from idgraph.check.enumeration import (
    Gap,
    Space,
    at_names,
    bind,
    compare,
    extents_of,
    one_sided,
    sample_sizes,
    share_in_range,
    some_points,
    uses,
)
from idgraph.check.index_values import ValueTable
from idgraph.check.program import Axis, BufferLayout, IndirectIndex, LoadedValue, Nest, NeutralProgram, Read, Write
from idgraph.check.races import races
from idgraph.check.report import CheckReport, CheckRow, Difference, Verdict
from idgraph.check.semantics import ElementRead, NoIndexMeaning, NotStored, ProgramSemantics, ReadSet, reason
from idgraph.check.store_coverage import StoreCoverage, delinearize, element, injective, inverse, overlaps
from idgraph.ir import SCATTERS, Tensor, TensorExpr

_SHAPES = frozenset({"cast", "copy", "permute", "reshape", "squeeze", "unsqueeze"})  # one element from one
ENOUGH = 0.25  # of the points, at which indices are in range
BUDGET = 1 << 23  # loop points times reads that an enumeration looks at


@dataclass(slots=True)
class Checker:
    """Decides one program; `rows` gives the rows of one nest after the other."""

    program: NeutralProgram
    budget: int = BUDGET
    stage: str = ""
    meaning: ProgramSemantics = field(init=False)
    contents: BufferContents = field(init=False)
    buffers: dict[str, BufferLayout] = field(init=False)
    inner: dict[str, tuple[Nest, Write]] = field(init=False)
    samples: tuple[dict[str, int], ...] = field(init=False)
    read: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        p = self.program
        self.meaning = ProgramSemantics(p.fusion, p.opaque, p.constants)
        self.contents = BufferContents(p)
        self.buffers = self.contents.buffers
        self.inner = {w.buffer: (n, w) for n in p.nests for w in n.writes if w.buffer not in self.buffers}
        try:
            self.samples = tuple(sample_sizes(p))
        except NoIndexMeaning:  # nothing is counted out then
            self.samples = ()
        self.read = frozenset(r.buffer for n in p.nests for w in n.writes for r in w.reads)

    def rows(self, nest: Nest) -> list[CheckRow]:
        """The rows of one nest: one for what it writes, one for each buffer that it reads or should read."""
        start = process_time()
        found: list[CheckRow] = []
        for write in nest.writes:
            buffer = self.buffers.get(write.buffer)
            if nest.unread:
                found.append(self._row(nest, write.buffer, "unknown", "write", nest.unread))
            elif buffer is not None:
                found += self._write(nest, write, buffer)
            elif write.buffer not in self.read:
                because = (
                    "no node of the graph names what it writes, and no nest reads it (a copy for a library call, say)"
                )
                found.append(self._row(nest, write.buffer, "unknown", "write", because))
        try:
            found += [
                self._row(nest, r.storage, r.verdict, "read", r.because, counterexample=r.difference)
                for r in races(self.program, nest, self.samples)
            ]
        except Exception as error:
            found.append(self._row(nest, "", "unknown", "read", reason(error)))
        if found:
            found[0] = replace(found[0], seconds=process_time() - start)
        return found

    def _write(self, nest: Nest, write: Write, buffer: BufferLayout) -> list[CheckRow]:
        try:
            return list(_Writing(self, nest, write, buffer).rows())
        except NotStored as error:
            found = self.contents.overwritten(nest, write, error.tensor)
            verdict = "unknown" if found is None else "refuted"
            because = str(error) if found is None else "it reads what was overwritten before"
            return [self._row(nest, write.buffer, verdict, "read", because, buffer, found)]
        except Exception as error:  # of one write: the others are decided
            return [self._row(nest, write.buffer, "unknown", "read", reason(error), buffer)]

    def _row(
        self, nest: Nest, name: str, verdict: Verdict, role: str, because: str, buffer: BufferLayout | None = None,
        counterexample: Difference | None = None, points: int = 0,
    ) -> CheckRow:  # fmt: skip
        op, line = self.program.sources.get(buffer.tensor, ("", None)) if buffer else ("", None)
        return CheckRow(
            nest.name, name, verdict, "write" if role == "write" else "read", because, counterexample, self.stage,
            self.program.name, op, line, points,
        )  # fmt: skip


class _Writing:
    """One write of one nest."""

    def __init__(self, checker: Checker, nest: Nest, write: Write, buffer: BufferLayout) -> None:
        self.checker, self.nest, self.write, self.buffer = checker, nest, write, buffer
        self.facts = checker.program.facts
        tensor = checker.meaning.tensors.get(buffer.tensor)
        if tensor is None:
            raise NoIndexMeaning(f"{buffer.tensor} has no form in the fusion")
        if overlaps(buffer, extents_of(tensor)):
            raise NoIndexMeaning(f"elements of {tensor.name} lie over each other in {buffer.home}")
        self.tensor = tensor
        self.table = ValueTable()
        self.stored = Stored(checker.program, checker.meaning, self.table, self.argument)
        self.reduce = list(nest.reduce)
        self.names = self._named(nest, {})
        self.held = at_names(write.when, self.names)
        self.address = at_names(write.index + buffer.base, self.names)
        self.adds = self.held  # where something is added at all: may depend on loaded values
        if write.mode == "add":
            self.held = TRUE
        self.ours = self._expanded(write.reads)
        self.reads = {n.storage for n in self.ours}
        self.nest_loose = nest.loose
        self.confirmation = Confirmation(
            checker.program, checker.meaning, self.table, tensor, buffer, self.address, self.at
        )

    # the nest's side --------------------------------------------------------------------------------------------------

    def _named(self, nest: Nest, given: Mapping[str, Expr]) -> dict[str, Expr]:
        """Symbols of the table for the loaded values of a nest, whose loops are ``given``."""
        table, names = self.table, dict(given)
        left: list[tuple[str, LoadedValue | IndirectIndex]] = [*nest.loads.items(), *nest.places.items()]
        while left:
            waiting = {m for m, _ in left}
            ready = [(n, x) for n, x in left if not uses(x) & waiting]
            if not ready:
                raise NoIndexMeaning("its loaded values use each other")
            for name, x in ready:
                if isinstance(x, IndirectIndex):
                    names[name] = table.place(at_names(x.value, names), at_names(x.size, names), wraps=x.wraps)
                elif x.text:
                    names[name] = table.text(x.text)
                else:
                    buffer = self.checker.buffers.get(x.buffer)
                    base = buffer.base if buffer else as_expr(0)
                    names[name] = table.load(buffer.home if buffer else x.buffer, at_names(x.index + base, names))
            left = [x for x in left if x not in ready]
        return names

    def _expanded(self, reads: Sequence[Read]) -> list[ElementRead]:
        """The nest's reads; one of a buffer that no tensor of the program has is what its own nest read for it."""
        out: dict[ElementRead, None] = {}
        for r in reads:
            when, address = at_names(and_(self.held, r.when), self.names), at_names(r.index, self.names)
            self._into(r.buffer, address, when, str(r.index), out, 0)
        return list(out)

    def _into(
        self, name: str, address: Expr, when: Expr, formula: str, out: dict[ElementRead, None], depth: int
    ) -> None:
        buffer = self.checker.buffers.get(name)
        if buffer is not None:
            out[ElementRead(buffer.home, simplify(address + buffer.base), when, formula)] = None
            return
        made = self.checker.inner.get(name)
        if made is None or depth > 8:
            raise NoIndexMeaning(f"{name} is not a tensor of the program, and no nest makes it")
        nest, write = made
        back = inverse(write.index, nest.loops)
        if back is None or nest.unread:
            raise NoIndexMeaning(
                f"{name} is not a tensor of the program, and its formula {write.index} is not inverted here"
            )
        loops, inside = back
        given = {n: x.substitute({"a": address}) for n, x in loops.items()}
        for a in nest.reduce:
            fresh = Axis(f"{a.name}.{len(self.reduce)}", a.extent)
            self.reduce.append(fresh)
            given[a.name] = fresh.symbol
        names = self._named(nest, given)
        held = simplify(and_(when, inside.substitute({"a": address}), write.when.substitute(names)))
        for r in write.reads:
            inner = at_names(r.index, names)
            self._into(r.buffer, inner, and_(held, r.when.substitute(names)), f"{name} <- {r.index}", out, depth + 1)

    # the program's side -----------------------------------------------------------------------------------------------

    def at(self, t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
        return self.checker.contents.stored(t, coordinates, self.nest, self.reads | {n[0] for n in self._loaded()})

    def argument(self, t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
        return self.checker.contents.stored(t, coordinates, self.nest, set())

    def _loaded(self) -> list[tuple[str, Expr]]:
        return [x for x in self.table.loads.values() if isinstance(x, tuple)]

    def rows(self) -> Iterator[CheckRow]:
        """A row for the buffer written, and one for each buffer read."""
        e = self.tensor.definition
        entries = self.write.mode == "add" or self._at_loaded()
        while e is not None and e.op in _SHAPES and len(e.inputs) == 1:
            e = e.inputs[0].definition
        if entries and e is not None and e.op in SCATTERS:
            yield from self._scatter(e)
            return
        if self.write.mode == "add" and self.checker.contents.never_filled(self.nest, self.buffer):
            yield self._added_to_nothing(self.tensor.name)
        shape = extents_of(self.tensor)
        coordinates = delinearize(self.address, self.buffer, shape)
        demand = self.checker.meaning.demand(
            self.tensor, coordinates, self.held, self.at, self.table, copied=self.buffer.copy
        )
        if demand.loose and self.buffer.over and e is not None and e.op in SCATTERS:  # entries whose places are numbers
            yield from self._scatter(e)
            return
        yield self._covered()
        other = other_reduction(self.nest.combines, demand.combined, self.buffer.name)
        if other is not None:
            yield self._row(self.buffer.home, "refuted", "another reduction than the program's", "write", other)
        if self.nest.position is not None:
            yield from self._positions(self.nest.position, demand)
        else:
            yield from self._compare(list(demand.needs), list(demand.reduce), demand.nested, demand.loose)

    def _added_to_nothing(self, meant: str) -> CheckRow:
        found = Difference({}, "", f"{self.buffer.home}, which nothing has written before", meant, "")
        because = "it adds to what nothing has written before"
        return self._row(self.buffer.home, "refuted", because, "write", found)

    def _positions(self, position: Expr, demand: ReadSet) -> Iterator[CheckRow]:
        """A nest that looks for a position: what it reads at a point is what the program has at the point's number.

        Its reduced loops are loops like others from here on.
        """
        axes = self.reduce
        number = at_names(position, self.names)
        place = next(iter(demand.reduce), None)  # of the smallest position; others are of the value looked for
        total = simplify(prod((a.extent for a in axes), start=as_expr(1)))
        if simplify(total - (extent(place) if place is not None else 1)) != as_expr(0):
            raise NoIndexMeaning(f"it goes over {total} positions, the program over {place and extent(place)}")
        once = injective(number, axes, TRUE)
        self.nest, self.reduce = replace(self.nest, loops=(*self.nest.loops, *axes), reduce=()), []
        others, inner = {s.name: s for s in demand.reduce if s is not place}, dict[str, Expr]()
        table, way = self.table, {place.name: number} if place is not None else {}
        theirs: list[ElementRead] = []  # inner: of what is compared, where that is reduced itself
        for n in demand.needs:
            names = table.variables(n.address) | table.variables(n.when)
            if place is None or place.name in names or not names & others.keys():
                theirs.append(replace(n, address=table.turn(n.address, way), when=table.turn(n.when, way)))
                inner |= {x: others[x] for x in names & others.keys()}
        yield from (rows := list(self._compare(theirs, list(inner.values()), bool(inner), demand.loose)))
        if not once and not any(r.verdict == "refuted" for r in rows):
            yield self._row(self.buffer.home, "unknown", f"whether {position} is each position once")

    def _covered(self) -> CheckRow:
        """Each element of the tensor is written once."""
        c, table = self.checker, self.table
        by_value = table.holds_data(self.address) or table.holds_data(self.held)
        stores = StoreCoverage(
            c.program, c.meaning, self.nest, self.write, self.buffer, self.address, self.held, by_value
        )
        verdict, because, found = stores.verdict(c.samples)
        return self._row(self.buffer.home, verdict, because, "write", found)

    def _at_loaded(self) -> bool:
        return self.table.holds_data(self.address)

    def _compare(self, theirs: list[ElementRead], reduce: list[Expr], nested: bool, loose: bool) -> Iterator[CheckRow]:
        meant = self.table.unsigned_as_meant
        self.held = meant(self.held)

        def read(n: ElementRead) -> ElementRead:
            when = meant(n.when)
            return replace(n, address=self.table.settled(meant(n.address), and_(when, self.held)), when=when)

        self.ours, theirs = [read(n) for n in self.ours], [read(n) for n in theirs]
        mine = [a.symbol for a in self.reduce if a.extent != as_expr(1)]
        names = dict.fromkeys([n.storage for n in self.ours] + [n.storage for n in theirs])
        spelled = not mine and bool(reduce)  # a sum that the nest spells out
        again = "" if not nested else self._again(mine, reduce)
        whole = all_same(self.ours, theirs, mine, reduce, and_(self.held, *self.facts), self.table)
        for name in names:
            a, b = [n for n in self.ours if n.storage == name], [n for n in theirs if n.storage == name]
            held = and_(self.held, *self.facts)
            because = "" if not whole else "formulas are the same"
            for opened in (False, True):
                if because or (opened and not self.stored.computed([*a, *b])):
                    break
                if opened:
                    a, b = self.stored.opened(a, held), self.stored.opened(b, held)
                if all_same(a, b, mine, reduce, held, self.table):
                    because = "formulas are the same"
                elif (nested or spelled) and not again and same_sets(a, b, held, self.table, [*mine, *reduce]):
                    because = "formulas are the same, as sets of elements"
                elif spelled and not again and same(a, spelled_out(b, reduce, self.table), held):
                    because = "formulas are the same, each term of the sum spelled out"
            if because:
                yield self._row(name, "proved", because)
            elif again:
                yield self._row(name, "unknown", again)
            else:
                yield self._counted(name, a, b, reduce, nested, loose)

    def _again(self, mine: Sequence[Expr], theirs: Sequence[Expr]) -> str:
        """Why elements compared as sets do not say how often each counts: a loop of the nest that no read uses."""
        points = [simplify(prod((extent(s) for s in x), start=as_expr(1))) for x in (mine, theirs)]
        used = frozenset[str]().union(*(self.table.variables(n.address) for n in self.ours))
        loop = next((s.name for s in mine if s.name not in used), None)
        if loop is None or points[0] == points[1]:
            return ""
        return f"each iteration of {loop} combines the same elements again: how often each counts is not decided"

    def _row(
        self, name: str, verdict: Verdict, because: str, role: str = "read",
        counterexample: Difference | None = None, points: int = 0,
    ) -> CheckRow:  # fmt: skip
        return self.checker._row(self.nest, name, verdict, role, because, self.buffer, counterexample, points)  # pyright: ignore[reportPrivateUsage]

    def _counted(
        self, name: str, a: list[ElementRead], b: list[ElementRead], reduce: list[Expr], nested: bool, loose: bool
    ) -> CheckRow:
        looked = 0
        for sizes in self.checker.samples:
            space = self._space(reduce, nested, sizes)
            total = space.points * max(len(a), len(b), 1)
            few = total <= self.checker.budget
            only = None if few else some_points(space, self.checker.budget // max(len(a), len(b), 1))
            gap = compare(space, a, b, self.table, self.held, only)
            if (
                gap is not None and self.table.places and not self._doubt(a, b, loose)
            ):  # an index out of range has no meaning
                gap = compare(space, a, b, self.table, self.held, only, inside=True)
                if gap is None and share_in_range(space, self.table, only) < ENOUGH:
                    return self._row(name, "unknown", "at most points a loaded index is out of range", points=looked)
            looked += space.points if only is None else len(only) * space.inner
            if gap is not None:
                doubt = self._doubt(a, b, loose) or self.confirmation.doubt(space, name, a, b, gap)
                if doubt:
                    return self._row(name, "unknown", doubt, points=looked)
                found = self._difference(name, gap, a, b, sizes)
                return self._row(name, "refuted", "another element than the program means", "read", found, looked)
            if only is not None:
                return self._row(name, "unknown", f"not proved; no difference at {looked} points tried", points=looked)
        if self.checker.program.symbols:
            tried = "; ".join(", ".join(f"{k}={v}" for k, v in s.items()) for s in self.checker.samples)
            return self._row(name, "unknown", f"not proved for all sizes; no difference for {tried}", points=looked)
        doubt = one_sided(a, b, self.table)
        verdict, because = ("unknown", doubt) if doubt else ("enumerated", f"the same at all {looked} points")
        return self._row(name, verdict, because, points=looked)

    def _doubt(self, a: Sequence[ElementRead], b: Sequence[ElementRead], loose: bool) -> str:
        """Why a difference of the elements is not yet a fault: one side is known only in part. Else empty."""
        inner = self.stored.computed([*a, *b])
        if inner:
            return f"an index is loaded from {inner}, whose values the program computes"
        texts = [t for n in (*a, *b) for x in (n.address, n.when) for t in self.table.texts(x)]
        if texts:
            return f"it depends on {texts[0][:120]}, which is not an integer formula"
        if loose:
            return "an element of a scatter is made of entries that loaded values choose"
        if self.table.loose != self.nest_loose:
            return "a condition of loaded values limits what is read, on one side only"
        return ""

    def _space(self, reduce: list[Expr], nested: bool, sizes: Mapping[str, int]) -> Space:
        def fixed(axes: Sequence[Axis]) -> tuple[tuple[str, int], ...]:
            return tuple((a.name, max(int(a.extent.evaluate(sizes)), 0)) for a in axes)

        theirs = tuple((s.name, int(extent(s).evaluate(sizes))) for s in reduce)
        # Where the nest has fewer points it spells a sum out: an element read once may count for several of its terms.
        mine = fixed(self.reduce)
        unrolled = prod(n for _, n in mine) < prod(n for _, n in theirs)
        return Space(fixed(self.nest.loops), mine, theirs, sizes, multiset=not (nested or unrolled))

    def _difference(
        self, name: str, gap: Gap, a: Sequence[ElementRead], b: Sequence[ElementRead], sizes: Mapping[str, int]
    ) -> Difference:
        env = bind(self.table, {**sizes, **gap.point})
        to = int(self.address.evaluate_array(env))
        formula = next((n.tensor for n in a if gap.read is not None and self._reaches(n, gap, sizes)), "")
        source = next((n.tensor for n in b if gap.meant is None or self._reaches(n, gap, sizes)), "") or (
            b[0].tensor if b else ""
        )
        op, line = self.checker.program.sources.get(self.buffer.tensor, ("", None))
        source_op, source_line = self.checker.program.sources.get(source, ("", None))
        point = {**sizes, **gap.point}
        return Difference(
            point, self._name(self.buffer.home, to, sizes, self.buffer),
            None if gap.read is None else self._name(name, gap.read, sizes),
            None if gap.meant is None else self._name(name, gap.meant, sizes),
            formula, op or source_op, line or source_line,
        )  # fmt: skip

    def _reaches(self, n: ElementRead, gap: Gap, sizes: Mapping[str, int]) -> bool:
        """The formula that gives the odd element, at some reduced point."""
        want = gap.read if gap.read is not None else gap.meant
        loose = [s for s in n.address.names if s.startswith("r") and s not in gap.point and s not in sizes]
        if loose or any(x not in gap.point and x not in sizes for x in n.address.names):
            return True
        env = bind(self.table, {**sizes, **gap.point})
        return int(n.address.evaluate_array(env)) == want

    def _name(self, storage: str, at: int, sizes: Mapping[str, int], buffer: BufferLayout | None = None) -> str:
        return element(self.checker.program, self.checker.meaning, storage, at, sizes, buffer)

    # scatters ---------------------------------------------------------------------------------------------------------

    def _scatter(self, e: TensorExpr) -> Iterator[CheckRow]:
        """A nest over the entries of a scatter: each entry is added (or stored) where it says, from what it says."""
        loops = self.checker.meaning.model.loops(e)
        axes, extents = self.nest.loops, [x.extent for x in loops]
        total = simplify(prod((a.extent for a in axes), start=as_expr(1)))
        if total != simplify(prod(extents, start=as_expr(1))):
            raise NoIndexMeaning(
                f"it runs over {total} points, the scatter over {prod(extents, start=as_expr(1))} entries"
            )
        if self.checker.contents.never_filled(self.nest, self.buffer):
            yield self._added_to_nothing(e.inputs[0].name)
        adds = e.op == "scatter_add" or e.attrs.get("accumulate") is True
        if adds != (self.write.mode == "add") and e.op != "scatter_reduce":
            reads_there = any(n.storage == self.buffer.home for n in self.ours)  # it may add to what it reads
            verdict, found = other_mode(adds, f"{self.buffer.home}[{self.write.index}]", reads_there)
            because = "it combines entries of one element in another way"
            yield self._row(self.buffer.home, verdict, because, "write", found)
        best: list[CheckRow] = []
        mine = self._reached(e)
        for points in self._entries(extents):
            places, demand = self.checker.meaning.scatter(e, points, self.at, self.table)
            meant = simplify(flat_of(places, extents_of(e.output)))
            own = [n for n in demand.needs if n.storage != self.buffer.home]
            self.ours = [n for n in self.ours if n.storage not in (self.buffer.home, "written")]
            self.ours.append(ElementRead("written", mine, self.adds, str(self.write.index)))
            theirs = [*own, ElementRead("written", meant, demand.when, self.tensor.name)]
            rows = list(self._compare(theirs, list(demand.reduce), demand.nested, False))
            if not best or sum(r.verdict == "refuted" for r in rows) < sum(r.verdict == "refuted" for r in best):
                best = rows
            if all(r.verdict in ("proved", "enumerated") for r in rows):
                break
        for r in best:
            yield replace(r, buffer=self.buffer.home, role="write") if r.buffer == "written" else r

    def _reached(self, e: TensorExpr) -> Expr:
        """The element of the scatter's result (its row-major number) that the nest writes: the buffer may hold it
        under another shape.
        """

        def there(t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
            return ("", flat_of(coordinates, extents_of(t))) if t is e.output else None

        coordinates = delinearize(self.address, self.buffer, extents_of(self.tensor))
        found = self.checker.meaning.demand(self.tensor, coordinates, TRUE, there, self.table, copied=True)
        if len(found.needs) != 1:
            raise NoIndexMeaning("the scatter's result is not the buffer's under another shape")
        return next(iter(found.needs)).address

    def _entries(self, extents: Sequence[Expr]) -> Iterator[list[Expr]]:
        """Entries as functions of the nest's loops: in order, or in the order of the elements that it loads."""
        axes = self.nest.loops
        yield unflat(simplify(flat_of([a.symbol for a in axes], [a.extent for a in axes])), extents)
        for n in self.ours:
            if injective(n.address, axes, n.when) and simplify(n.when) is TRUE:
                yield unflat(n.address, extents)


def decide(program: NeutralProgram, *, stage: str = "", budget: int = BUDGET, calls: Sequence[str] = ()) -> CheckReport:
    """All rows of a program, nest by nest: each read is of what its buffer holds when it is written before."""
    checker = Checker(program, budget, stage)
    rows = [r for n in program.nests for r in checker.rows(n)]
    rows += unfilled(program, checker.meaning, checker.samples, stage)
    return CheckReport(program.name, tuple(rows), tuple(calls))
