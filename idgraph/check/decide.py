"""Deciding a compiled program nest by nest: what is read for what is written, against the program's own maps.

For each write of a nest: the address decodes to an element of the program's tensor; `meaning` says what that element
is made of; `match` proves that the nest reads the same, `points` counts it out or finds the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from time import process_time

import numpy as np
import numpy.typing as npt

from idgraph.arith import TRUE, ArithError, Expr, and_, as_expr, simplify
from idgraph.check.cover import apart, covers, decoded, element_of, injective, inverse, written
from idgraph.check.form import ZERO, Axis, Buffer, Load, Nest, Place, Program, Read, Write
from idgraph.check.match import all_same, flat_of, same_sets, unflat
from idgraph.check.meaning import Meaning, Need, Undecided
from idgraph.check.points import Gap, Space, bind, compare
from idgraph.check.report import Difference, Report, Row, Verdict
from idgraph.check.samples import at_names, extents_of, sample_sizes, some_points, uses
from idgraph.check.stored import Stored
from idgraph.check.values import Table
from idgraph.ir import SCATTERS, Tensor, TensorExpr

_SHAPES = frozenset({"cast", "copy", "permute", "reshape", "squeeze", "unsqueeze"})  # one element from one
BUDGET = 1 << 23  # loop points times reads that an enumeration looks at
ELEMENTS = 1 << 23  # elements of a buffer whose writes are counted one by one


@dataclass(slots=True)
class Checker:
    """Decides one program; `rows` gives the rows of one nest after the other."""

    program: Program
    budget: int = BUDGET
    stage: str = ""
    meaning: Meaning = field(init=False)
    tensors: dict[str, list[Buffer]] = field(init=False)
    buffers: dict[str, Buffer] = field(init=False)
    when_made: dict[str, int] = field(init=False)
    inner: dict[str, tuple[Nest, Write]] = field(init=False)
    samples: tuple[dict[str, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        p = self.program
        self.meaning = Meaning(p.fusion, p.opaque)
        self.buffers = {b.name: b for b in p.buffers}
        self.tensors = {}
        for b in p.buffers:
            self.tensors.setdefault(b.tensor, []).append(b)
        self.when_made = {name: k for k, name in enumerate(p.order or tuple(n.name for n in p.nests))}
        self.inner = {w.buffer: (n, w) for n in p.nests for w in n.writes if w.buffer not in self.buffers}
        self.samples = tuple(sample_sizes(p))

    def rows(self, nest: Nest) -> list[Row]:
        """The rows of one nest: one for what it writes, one for each buffer that it reads or should read."""
        start = process_time()
        found: list[Row] = []
        for write in nest.writes:
            buffer = self.buffers.get(write.buffer)
            if nest.unread:
                found.append(self._row(nest, write.buffer, "unknown", "write", nest.unread))
            elif buffer is not None:
                found += self._write(nest, write, buffer)
        if found:
            found[0] = replace(found[0], seconds=process_time() - start)
        return found

    def _write(self, nest: Nest, write: Write, buffer: Buffer) -> list[Row]:
        try:
            return list(_Writing(self, nest, write, buffer).rows())
        except Undecided as why:
            return [self._row(nest, write.buffer, "unknown", "read", str(why), buffer)]
        except ArithError as error:
            return [self._row(nest, write.buffer, "unknown", "read", error.what, buffer)]

    def _row(
        self, nest: Nest, name: str, verdict: Verdict, role: str, because: str, buffer: Buffer | None = None,
        counterexample: Difference | None = None, points: int = 0,
    ) -> Row:  # fmt: skip
        op, line = self.program.sources.get(buffer.tensor, ("", None)) if buffer else ("", None)
        return Row(
            nest.name, name, verdict, "write" if role == "write" else "read", because, counterexample, self.stage,
            self.program.name, op, line, points,
        )  # fmt: skip

    def stored(self, t: Tensor, coordinates: Sequence[Expr], nest: Nest, reads: set[str]) -> tuple[str, Expr] | None:
        """Where an element lies when the nest runs; None where it is not stored then, or the nest makes it itself.

        A tensor that the program stores but the nest does not read is looked through: the nest makes it again.
        """
        now = self.when_made.get(nest.name, len(self.when_made))
        for b in self.tensors.get(t.name, ()):
            made = self.when_made.get(b.after, -1) if b.after else -1
            gone = any(
                x.over == b.tensor and x.after and self.when_made.get(x.after, 0) < now for x in self.program.buffers
            )
            needed = t.definition is None or b.home in reads
            if made < now and not gone and needed and not b.copy:
                steps = zip(coordinates, b.strides, strict=True)
                return b.home, b.offset + sum((c * s for c, s in steps), start=as_expr(0))
        return None


@dataclass(frozen=True, slots=True)
class _Mate:
    """One write into a memory: loops, address, condition."""

    loops: tuple[Axis, ...]
    address: Expr
    when: Expr
    buffer: Buffer


class _Writing:
    """One write of one nest."""

    def __init__(self, checker: Checker, nest: Nest, write: Write, buffer: Buffer) -> None:
        self.checker, self.nest, self.write, self.buffer = checker, nest, write, buffer
        self.facts = checker.program.facts
        tensor = checker.meaning.tensors.get(buffer.tensor)
        if tensor is None:
            raise Undecided(f"{buffer.tensor} has no form in the fusion")
        self.tensor = tensor
        self.table = Table()
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

    # the nest's side --------------------------------------------------------------------------------------------------

    def _named(self, nest: Nest, given: Mapping[str, Expr]) -> dict[str, Expr]:
        """Symbols of the table for the loaded values of a nest, whose loops are ``given``."""
        table, names = self.table, dict(given)
        left: list[tuple[str, Load | Place]] = [*nest.loads.items(), *nest.places.items()]
        while left:
            waiting = {m for m, _ in left}
            ready = [(n, x) for n, x in left if not uses(x) & waiting]
            if not ready:
                raise Undecided("its loaded values use each other")
            for name, x in ready:
                if isinstance(x, Place):
                    names[name] = table.place(at_names(x.value, names), at_names(x.size, names))
                elif x.text:
                    names[name] = table.text(x.text)
                else:
                    buffer = self.checker.buffers.get(x.buffer)
                    base = buffer.base if buffer else as_expr(0)
                    names[name] = table.load(buffer.home if buffer else x.buffer, at_names(x.index + base, names))
            left = [x for x in left if x not in ready]
        return names

    def _expanded(self, reads: Sequence[Read]) -> list[Need]:
        """The nest's reads; one of a buffer that no tensor of the program has is what its own nest read for it."""
        out: dict[Need, None] = {}
        for r in reads:
            when, address = at_names(and_(self.held, r.when), self.names), at_names(r.index, self.names)
            self._into(r.buffer, address, when, str(r.index), out, 0)
        return list(out)

    def _into(self, name: str, address: Expr, when: Expr, formula: str, out: dict[Need, None], depth: int) -> None:
        buffer = self.checker.buffers.get(name)
        if buffer is not None:
            out[Need(buffer.home, simplify(address + buffer.base), when, formula)] = None
            return
        made = self.checker.inner.get(name)
        if made is None or depth > 8:
            raise Undecided(f"{name} is not a tensor of the program, and no nest makes it")
        nest, write = made
        back = inverse(write.index, nest.loops)
        if back is None or nest.unread:
            raise Undecided(
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
        return self.checker.stored(t, coordinates, self.nest, self.reads | {n[0] for n in self._loaded()})

    def argument(self, t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
        return self.checker.stored(t, coordinates, self.nest, set())

    def _loaded(self) -> list[tuple[str, Expr]]:
        return [x for x in self.table.loads.values() if isinstance(x, tuple)]

    def rows(self) -> Iterator[Row]:
        """A row for the buffer written, and one for each buffer read."""
        e = self.tensor.definition
        loaded = self.write.mode == "add" or self._at_loaded()
        while loaded and e is not None and e.op in _SHAPES and len(e.inputs) == 1:
            e = e.inputs[0].definition
        if loaded and e is not None and e.op in SCATTERS:
            yield from self._scatter(e)
            return
        shape = extents_of(self.tensor)
        coordinates = decoded(self.address, self.buffer, shape)
        inside = element_of(self.address, coordinates, self.buffer, shape)
        yield self._covered(inside)
        demand = self.checker.meaning.demand(
            self.tensor, coordinates, self.held, self.at, self.table, copied=self.buffer.copy
        )
        yield from self._compare(list(demand.needs), list(demand.reduce), demand.nested)

    def _at_loaded(self) -> bool:
        return self.table.holds_data(self.address)

    def _compare(self, theirs: list[Need], reduce: list[Expr], nested: bool) -> Iterator[Row]:
        mine = [a.symbol for a in self.reduce if a.extent != as_expr(1)]
        names = dict.fromkeys([n.storage for n in self.ours] + [n.storage for n in theirs])
        spelled = not mine and bool(reduce)  # a sum that the nest spells out
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
                elif (nested or spelled) and same_sets(a, b, held, self.table, [*mine, *reduce]):
                    because = "formulas are the same, as sets of elements"
            yield self._told(name, "proved", because) if because else self._counted(name, a, b, reduce, nested)

    def _told(
        self, name: str, verdict: Verdict, because: str, role: str = "read",
        counterexample: Difference | None = None, points: int = 0,
    ) -> Row:  # fmt: skip
        return self.checker._row(self.nest, name, verdict, role, because, self.buffer, counterexample, points)  # pyright: ignore[reportPrivateUsage]

    def _counted(self, name: str, a: list[Need], b: list[Need], reduce: list[Expr], nested: bool) -> Row:
        looked = 0
        for sizes in self.checker.samples:
            space = self._space(reduce, nested, sizes)
            total = space.points * max(len(a), len(b), 1)
            only = (
                None
                if total <= self.checker.budget
                else some_points(space, self.checker.budget // max(len(a), len(b), 1))
            )
            gap = compare(space, a, b, self.table, self.held, only)
            looked += space.points if only is None else len(only) * space.inner
            if gap is not None:
                texts = [t for n in (*a, *b) for t in self.table.texts(n.address)]
                inner = self.stored.computed([*a, *b])
                if inner:
                    because = f"an index is loaded from {inner}, whose values the program computes"
                    return self._told(name, "unknown", because, points=looked)
                if texts:
                    return self._told(
                        name, "unknown", f"it depends on {texts[0][:120]}, which is not an integer formula"
                    )
                found = self._difference(name, gap, a, b, sizes)
                return self._told(name, "refuted", "another element than the program means", "read", found, looked)
            if only is not None:
                return self._told(name, "unknown", f"not proved; no difference at {looked} points tried", points=looked)
        if self.checker.program.symbols:
            tried = "; ".join(", ".join(f"{k}={v}" for k, v in s.items()) for s in self.checker.samples)
            return self._told(name, "unknown", f"not proved for all sizes; no difference for {tried}", points=looked)
        return self._told(name, "enumerated", f"the same at all {looked} points", points=looked)

    def _space(self, reduce: list[Expr], nested: bool, sizes: Mapping[str, int]) -> Space:
        def fixed(axes: Sequence[Axis]) -> tuple[tuple[str, int], ...]:
            return tuple((a.name, int(a.extent.evaluate(sizes))) for a in axes)

        theirs = tuple((s.name, int(as_expr(s.symbol_bounds[1] or 0).evaluate(sizes)) + 1) for s in reduce)
        # Where the nest has fewer points it spells a sum out: an element read once may count for several of its terms.
        mine = fixed(self.reduce)
        unrolled = prod(n for _, n in mine) < prod(n for _, n in theirs)
        return Space(fixed(self.nest.loops), mine, theirs, sizes, multiset=not (nested or unrolled))

    def _difference(
        self, name: str, gap: Gap, a: Sequence[Need], b: Sequence[Need], sizes: Mapping[str, int]
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
            point, self._element(self.buffer.home, to, sizes, self.buffer),
            None if gap.read is None else self._element(name, gap.read, sizes),
            None if gap.meant is None else self._element(name, gap.meant, sizes),
            formula, op or source_op, line or source_line,
        )  # fmt: skip

    def _reaches(self, n: Need, gap: Gap, sizes: Mapping[str, int]) -> bool:
        """The formula that gives the odd element, at some reduced point."""
        want = gap.read if gap.read is not None else gap.meant
        loose = [s for s in n.address.names if s.startswith("r") and s not in gap.point and s not in sizes]
        if loose or any(x not in gap.point and x not in sizes for x in n.address.names):
            return True
        env = bind(self.table, {**sizes, **gap.point})
        return int(n.address.evaluate_array(env)) == want

    def _element(self, storage: str, at: int, sizes: Mapping[str, int], buffer: Buffer | None = None) -> str:
        """``buf0[17] = cat[0, 2, 1]``."""
        b = buffer or next((b for b in self.checker.program.buffers if b.home == storage), None)
        t = self.checker.meaning.tensors.get(b.tensor) if b else None
        if b is None or t is None:
            return f"{storage}[{at}]"
        where = decoded(as_expr(at), b, extents_of(t))
        shown = [int(x.evaluate(sizes)) for x in where]
        inside = all(0 <= c < int(n.evaluate(sizes)) for c, n in zip(shown, extents_of(t), strict=True))
        return f"{storage}[{at}] = {t.name}{shown}" + ("" if inside else ", outside of it")

    # what is written --------------------------------------------------------------------------------------------------

    def _covered(self, inside: Expr) -> Row:
        """Each element of the tensor is written once, by this nest or together with others of the same storage."""
        mates = self._mates()
        elements = simplify(prod(extents_of(self.tensor), start=as_expr(1)))
        if len(mates) == 1 and covers(self.address, self.nest.loops, inside, self.held, elements):
            return self._told(self.buffer.home, "proved", "each element is written once", "write")
        if len(mates) > 1 and self._parted(mates):
            because = f"{len(mates)} nests write different parts of it, each element once"
            return self._told(self.buffer.home, "proved", because, "write")
        verdicts: list[tuple[Verdict, str, Difference | None]] = []
        for sizes in self.checker.samples:
            verdicts.append(self._count_writes(mates, inside, sizes))
            if verdicts[-1][0] != "enumerated":
                break
        verdict, because, found = verdicts[-1]
        if verdict == "enumerated" and self.checker.program.symbols:
            verdict, because = "unknown", f"not proved for all sizes; {because} at the sizes tried"
        return self._told(self.buffer.home, verdict, because, "write", found)

    def _mates(self) -> list[_Mate]:
        """All writes that fill the buffer's memory: the pieces of a cat are written by several nests."""
        own, buffers = self.buffer, self.checker.buffers
        return [
            _Mate(n.loops, simplify(w.index + b.base), w.when, b)
            for n in self.checker.program.nests for w in n.writes
            if (b := buffers.get(w.buffer)) is not None and b.home == own.home and b.over == own.over
        ]  # fmt: skip

    def _parted(self, mates: Sequence[_Mate]) -> bool:
        """Proved: the nests write different boxes of the widest tensor of this memory, each element of it once."""
        points = [prod((a.extent for a in m.loops), start=as_expr(1)) for m in mates]
        total = simplify(sum(points, start=as_expr(0)))
        tensors = [(self.checker.meaning.tensors.get(m.buffer.tensor), m) for m in mates]
        whole = next(
            (
                (t, m.buffer)
                for t, m in tensors
                if t is not None and simplify(prod(extents_of(t), start=as_expr(1)) - total) == ZERO
            ),
            None,
        )
        if whole is None or any(m.when is not TRUE for m in mates):
            return False
        shape = extents_of(whole[0])
        found: list[list[Expr]] = []
        for m in mates:
            places = decoded(m.address, whole[1], shape)
            inside = element_of(m.address, places, whole[1], shape)
            if simplify(inside) is not TRUE or not injective(m.address, m.loops, m.when):
                return False
            found.append(places)
        return all(apart(a, b, mates[j].loops) for i, a in enumerate(found) for j, b in enumerate(found[:i]))

    def _count_writes(
        self, mates: Sequence[_Mate], inside: Expr, sizes: dict[str, int]
    ) -> tuple[Verdict, str, Difference | None]:
        points = prod(int(a.extent.evaluate(sizes)) for a in self.nest.loops)
        elements = prod(int(n.evaluate(sizes)) for n in extents_of(self.tensor))
        if max(points, elements) > ELEMENTS or self._at_loaded():
            return "unknown", f"{max(points, elements)} elements are too many to count", None
        outside = written(self.address, self.nest.loops, and_(self.held, ~inside), sizes)
        if outside.size:
            return "refuted", "an address that is not an element's", self._wrong(int(outside[0]), sizes)
        parts = [written(m.address, m.loops, m.when, sizes) for m in mates]
        every: npt.NDArray[np.int64] = np.concatenate(parts)
        kept, counts = np.unique(every, return_counts=True)
        if (counts > 1).any():
            return "refuted", "an element is written twice", self._wrong(int(kept[counts > 1][0]), sizes)
        missing = np.setdiff1d(self._addresses(sizes), kept)
        if missing.size:
            element = self._element(self.buffer.home, int(missing[0]), sizes, self.buffer)
            lost = Difference(dict(sizes), "", None, f"{element} is written", str(self.write.index))
            return "refuted", f"{len(missing)} of {elements} elements are not written", lost
        return "enumerated", f"each of {elements} elements is written once", None

    def _wrong(self, at: int, sizes: Mapping[str, int]) -> Difference:
        """A write of an address that should not be."""
        element = self._element(self.buffer.home, at, sizes, self.buffer)
        return Difference(self._first(at, sizes), element, None, None, str(self.write.index))

    def _addresses(self, sizes: Mapping[str, int]) -> npt.NDArray[np.int64]:
        """Where the elements of the tensor lie."""
        every = np.array([int(self.buffer.offset.evaluate(sizes))], dtype=np.int64)
        for n, s in zip(extents_of(self.tensor), self.buffer.strides, strict=True):
            every = (every[:, None] + np.arange(int(n.evaluate(sizes)))[None, :] * int(s.evaluate(sizes))).reshape(-1)
        return every

    def _first(self, at: int, sizes: Mapping[str, int]) -> dict[str, int]:
        """The last point that writes an address."""
        counts = [int(a.extent.evaluate(sizes)) for a in self.nest.loops]
        found = written(self.address, self.nest.loops, TRUE, dict(sizes))
        hit = np.flatnonzero(found == at)
        flat = int(hit[-1]) if hit.size else 0
        out: dict[str, int] = {}
        for a, n in zip(reversed(self.nest.loops), reversed(counts), strict=True):
            out[a.name], flat = flat % n, flat // n
        return {**sizes, **dict(reversed(out.items()))}

    # scatters ---------------------------------------------------------------------------------------------------------

    def _scatter(self, e: TensorExpr) -> Iterator[Row]:
        """A nest over the entries of a scatter: each entry is added (or stored) where it says, from what it says."""
        loops = self.checker.meaning.model.loops(e)
        axes, extents = self.nest.loops, [x.extent for x in loops]
        total = simplify(prod((a.extent for a in axes), start=as_expr(1)))
        if total != simplify(prod(extents, start=as_expr(1))):
            raise Undecided(f"it runs over {total} points, the scatter over {prod(extents, start=as_expr(1))} entries")
        best: list[Row] = []
        mine = self._reached(e)
        for points in self._entries(extents):
            places, demand = self.checker.meaning.scatter(e, points, self.at, self.table)
            meant = simplify(flat_of(places, extents_of(e.output)))
            own = [n for n in demand.needs if n.storage != self.buffer.home]
            self.ours = [n for n in self.ours if n.storage not in (self.buffer.home, "written")]
            self.ours.append(Need("written", mine, self.adds, str(self.write.index)))
            theirs = [*own, Need("written", meant, demand.when, self.tensor.name)]
            rows = list(self._compare(theirs, list(demand.reduce), demand.nested))
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

        coordinates = decoded(self.address, self.buffer, extents_of(self.tensor))
        found = self.checker.meaning.demand(self.tensor, coordinates, TRUE, there, self.table, copied=True)
        if len(found.needs) != 1:
            raise Undecided("the scatter's result is not the buffer's under another shape")
        return next(iter(found.needs)).address

    def _entries(self, extents: Sequence[Expr]) -> Iterator[list[Expr]]:
        """Entries as functions of the nest's loops: in order, or in the order of the elements that it loads."""
        axes = self.nest.loops
        yield unflat(simplify(flat_of([a.symbol for a in axes], [a.extent for a in axes])), extents)
        for n in self.ours:
            if injective(n.address, axes, n.when) and simplify(n.when) is TRUE:
                yield unflat(n.address, extents)


def decide(program: Program, *, stage: str = "", budget: int = BUDGET, calls: Sequence[str] = ()) -> Report:
    """All rows of a program."""
    checker = Checker(program, budget, stage)
    rows = [r for n in program.nests for r in checker.rows(n)]
    return Report(program.name, tuple(rows), tuple(calls))
