"""The verdict on a program as it runs: its tree followed on values, and what it finds confirmed by runs on numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product

from idgraph.arith import ArithError
from idgraph.check.buffer_contents import unwritten
from idgraph.check.decide import BUDGET
from idgraph.check.enumeration import more_sizes, sample_sizes
from idgraph.check.interpreter import run
from idgraph.check.program import CheckError, NeutralProgram, leaves
from idgraph.check.report import CheckRow, Difference
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.statement_values import numbers_agree
from idgraph.check.tree_flow import MOST, Seen, TreeEvent, TreeRun, buffer_of
from idgraph.check.tree_proof import prove_tree
from idgraph.check.tree_values import IDEMPOTENT, operations, placed
from idgraph.ir.op_table import SCANS

SEEDS = 10  # runs on numbers, in each order of iterations


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """``right``: None where it is not decided; ``rows``: of each write, of what is wrong, or of why; ``outside``: the
    one of a touch outside of a memory; ``tried``: it is right at the sizes that were tried.
    """

    right: bool | None
    rows: tuple[CheckRow, ...]
    outside: CheckRow | None = None
    tried: bool = False


def follow_tree(p: NeutralProgram, budget: int = BUDGET) -> TreeVerdict:
    """Whether each result holds what the program means, at all points of all loops."""
    points = 0
    try:
        for sizes in sample_sizes(p):
            found, wrong = _judged_at(p, sizes)
            points += found.points
            if wrong is not None:
                return wrong
    except (NoIndexMeaning, CheckError, ArithError) as error:
        return _proved(p, error.what if not isinstance(error, NoIndexMeaning) else str(error), budget)
    if p.symbols:
        verdict = _proved(p, "it is right at the sizes that were tried; for all sizes it is not proved", budget)
        if verdict.right:
            return verdict
        try:
            more = (_judged_at(p, sizes)[1] for sizes in more_sizes(p))
            wrong = next((x for x in more if x is not None and x.right is False), None)
        except (NoIndexMeaning, CheckError, ArithError):
            wrong = None
        return replace(verdict, tried=True) if wrong is None else wrong
    because = "it runs before what reads it, and each result holds the value that the program means"
    return TreeVerdict(True, tuple(
        CheckRow(n.name, b, "enumerated", "write", because, graph=p.name, points=points)
        for n in leaves(p.body or p.nests) for b in dict.fromkeys(w.buffer for w in n.writes)
    ))  # fmt: skip


def _judged_at(p: NeutralProgram, sizes: Mapping[str, int]) -> tuple[TreeRun, TreeVerdict | None]:
    """A run, and the verdict where it is not right, or not known to be."""
    found, rows = _followed(p, sizes)
    if rows:
        if not runs_right(p, sizes):
            return found, TreeVerdict(False, rows, next((r for r in rows if found.outside is not None), None))
        because = f"{rows[0].because}, though no run on numbers shows it"
        return found, TreeVerdict(None, (_unknown(p, because),))
    if found.undistinguished and not numbers_agree(p, sizes):
        because = f"elements of {found.undistinguished}, made of positions, are not the same numbers in all runs"
        return found, TreeVerdict(None, (_unknown(p, because),))
    return found, None


def _followed(p: NeutralProgram, sizes: Mapping[str, int]) -> tuple[TreeRun, tuple[CheckRow, ...]]:
    """A run and what is wrong in it; where a buffer of no operation of the program is combined in steps, the one of a
    reading (each element counts once there, or each time; what one point reads is added up, or is of one operation) in
    which nothing is wrong, if there is one.
    """
    first = TreeRun(p, sizes)
    rows = _wrong(first)
    if not rows or first.outside is not None or first.race is not None:
        return first, rows
    points = first.points
    for unions, sums in _readings(p):
        if (points := points + first.points) > MOST:
            break
        try:
            again = TreeRun(p, sizes, unions, sums)
            if not _wrong(again):
                return again, ()
        except NoIndexMeaning:
            continue
    return first, rows


def _readings(p: NeutralProgram) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """(buffers in which an element counts once, buffers that add up what one point reads), of those in which no
    operation of the program is stored and that are combined in steps or made of several elements.
    """
    named = operations(p)
    tensors = {b.name: b.tensor for b in p.buffers}
    steps = dict.fromkeys(
        w.buffer for n in leaves(p.body or p.nests) for w in n.writes
        if tensors.get(w.buffer) not in named
        and (n.reduce or w.mode == "add" or len(w.reads) > 1 or any(r.buffer == w.buffer for r in w.reads))
    )  # fmt: skip
    combining = [e.op in IDEMPOTENT for e in p.fusion.exprs if e.is_reduction or e.op in SCANS]
    kinds = (0, *((1,) if any(combining) else ()), *((2,) if not all(combining) else ()))
    every = product(kinds, repeat=len(steps))
    alike = [(k,) * len(steps) for k in kinds[1:]]
    for c in chain(alike, (c for c in every if any(c) and c not in alike)):
        once, added = (frozenset(b for b, k in zip(steps, c, strict=True) if k == which) for which in (1, 2))
        if steps:
            yield once, added


def _proved(p: NeutralProgram, why: str, budget: int) -> TreeVerdict:
    """The verdict without counting; ``why`` nothing was counted."""
    try:
        return TreeVerdict(True, prove_tree(p, budget))
    except (NoIndexMeaning, CheckError, ArithError) as error:
        more = str(error) if isinstance(error, NoIndexMeaning) else error.what
        return TreeVerdict(None, (_unknown(p, why if more in why else f"{why}: {more}"),))


def _unknown(p: NeutralProgram, because: str) -> CheckRow:
    return CheckRow(p.name, "", "unknown", "read", because, graph=p.name)


def runs_right(p: NeutralProgram, sizes: Mapping[str, int]) -> bool:
    """Whether all runs on numbers are right, of operations that are sums or of what statements compute; `CheckError`
    where they are not run.
    """
    return all(run(p, {}, sizes, seed).right for seed in range(SEEDS)) or numbers_agree(p, sizes)


def _wrong(r: TreeRun) -> tuple[CheckRow, ...]:
    outside = _outside_row(r)
    first = () if outside is None else (outside,)
    if r.race is not None:
        return (*first, _race_row(r, *r.race))
    rows = [_Fault(r, t.name).row() for t in dict.fromkeys(r.program.fusion.outputs)]
    return (*first, *(x for x in rows if x is not None))


def _outside_row(r: TreeRun) -> CheckRow | None:
    """The first touch outside of a memory, a fault of its own."""
    if r.outside is None:
        return None
    nest, point, place, buffer, formula = r.outside
    where = f"{buffer}[{place[1]}]"
    end = r.ends.get(buffer_of(place))
    has = f"an address of {buffer_of(place)}, which has 0 to {end - 1}" if end is not None else "0 or more"
    because = f"it touches {where}, outside of the memory"
    if formula:
        found = Difference(point, "", where, has, formula)
        return CheckRow(nest.name, buffer, "refuted", "read", because, found, graph=r.program.name)
    found = Difference(point, where, None, has, "")
    return CheckRow(nest.name, buffer, "refuted", "write", because, found, graph=r.program.name)


def _point_text(point: Mapping[str, int]) -> str:
    return ", ".join(f"{k}={v}" for k, v in point.items()) or "its one point"


def _address_text(place: tuple[str, int]) -> str:
    return f"{buffer_of(place)}[{place[1]}]"


def _race_row(r: TreeRun, a: TreeEvent, b: TreeEvent, read: Seen | None, loop: str) -> CheckRow:
    where = _address_text(a.place)
    if read is None:
        because = f"iterations of {loop}, which run in any order, write {where} with different values"
        found = Difference(
            b.point, where, None, f"no other value than {a.nest.name} writes there at {_point_text(a.point)}", ""
        )
        return CheckRow(b.nest.name, b.write.buffer, "refuted", "write", because, found, graph=r.program.name)
    because = f"it reads what another iteration of {loop} writes, and they run in any order"
    meant = f"{where} before or after {a.nest.name} writes it at {_point_text(a.point)}"
    meant += f": iterations of {loop} run in any order"
    found = Difference(b.point, "", where, meant, read.formula)
    return CheckRow(b.nest.name, read.buffer, "refuted", "read", because, found, graph=r.program.name)


class _Fault:
    """The first element of a result that does not hold what it should, and the read or write that is to blame."""

    def __init__(self, r: TreeRun, tensor: str) -> None:
        self.run, self.tensor, self.values = r, tensor, r.values

    def row(self) -> CheckRow | None:
        p = self.run.program
        b = next((b for b in p.buffers if b.tensor == self.tensor), None)
        if b is None:
            return next(r for r in unwritten(p) if r.node == self.tensor)
        for k, at in enumerate(placed(b, self.values.shapes[self.tensor], self.run.sizes)):
            tag, value, last = self.run.memory.get((b.home, at), ("", None, -1))
            wanted = self.values.of[self.tensor][k]
            if value is None or self.run.numbers.sealed(tag, value) != wanted:
                return self.element(k, (b.home, at), last)
        return None

    def element(self, k: int, place: tuple[str, int], last: int) -> CheckRow:
        name, graph = self.values.element(self.tensor, k), self.run.program.name
        where = _address_text(place)
        if last < 0:
            found = Difference({}, "", f"{where}, which nothing has written at the end", f"{name}, a result", "")
            return CheckRow(
                self.tensor, place[0], "refuted", "write", f"nothing writes {name}, a result", found, graph=graph
            )
        event = self.run.events[last]
        first = next((w for w in self.earlier(last) if self.value(w) == self.values.of[self.tensor][k]), None)
        if first is not None and len(self.since(last)) == 1:
            made = self.values.name(self.value(event)) or f"a value of {event.write.buffer}"
            order = f"{_point_text(first.point)} ({self.run.order(first, event)})"
            meant = f"{name}, which {first.nest.name} wrote there at {order}"
            found = Difference(event.point, f"{where} = {made}", None, meant, "")
            because = f"it overwrites the output {self.tensor}"
            return CheckRow(event.nest.name, place[0], "refuted", "write", because, found, graph=graph)
        return self.blamed(k, name, self.since(last))

    def earlier(self, last: int) -> list[TreeEvent]:
        """The writes of one place before the last."""
        out: list[TreeEvent] = []
        while (last := self.run.events[last].before) >= 0:
            out.append(self.run.events[last])
        return out

    def value(self, w: TreeEvent) -> int:
        """The value that a write leaves, as a reader sees it."""
        return self.run.numbers.sealed(self.tensor_of(w.write.buffer) if self.owned(w) else "", w.value)

    def since(self, last: int) -> list[TreeEvent]:
        """The writes of one address whose values add up there."""
        out: list[TreeEvent] = []
        while last >= 0:
            out.append(self.run.events[last])
            more = out[-1].write.mode == "add" or any(s.partial for s in out[-1].seen)
            last = out[-1].before if more else -1
        return out

    def blamed(self, k: int, name: str, events: list[TreeEvent]) -> CheckRow:
        operands = self.values.operands.get(self.tensor, [])
        wanted = Counter(operands[k] if operands else [])
        seen = Counter(s.value for e in events for s in e.seen if not s.partial)
        missing = [v for v in wanted if wanted[v] > seen[v]]
        should: int | str = missing[0] if missing else f"what {name} is made of"
        for e in events:
            for s in e.seen:
                if s.value not in wanted and not s.partial:
                    return self.read(e, s, name, should)
        for e in events if self.tensor not in self.values.idempotent else ():
            for s in e.seen:
                if wanted[s.value] < seen[s.value] and not s.partial:
                    return self.read(
                        e,
                        s,
                        name,
                        f"{self.values.name(s.value)} {wanted[s.value]} times for {name}, not {seen[s.value]}",
                    )
        e = events[0]
        if e.write.mode == "add" and events[-1].write.mode == "add":
            because, read = (
                "it adds to what nothing has written before",
                f"{_address_text(e.place)}, which nothing has written before",
            )
        elif missing:
            because, read = "an element is missing in what it stores", None
        else:
            because, read = "it does not store what the program means", "other values there"
        meant = self.origin(should, e, None) if isinstance(should, int) else name
        found = Difference(e.point, f"{_address_text(e.place)} = {name}", read, meant, str(e.write.index))
        return CheckRow(e.nest.name, e.write.buffer, "refuted", "write", because, found, graph=self.run.program.name)

    def read(self, e: TreeEvent, s: Seen, name: str, should: int | str) -> CheckRow:
        """A read that sees another element than it should: both writes, and what orders them."""
        what = self.values.name(s.value)
        seen = self.run.events[s.writer] if s.writer >= 0 else None
        if seen is None:
            because = "it reads what nothing has written before" if not what else "it reads another element"
            held = what or "which nothing has written before"
            shown = held if held == _address_text(s.place) else f"{_address_text(s.place)}, {held}"
            shown += ", there from the start" if what else ""
        else:
            own, made = (self.tensor_of(x) for x in (s.buffer, seen.write.buffer))
            because = "it sees what was written last, which is another value"
            because = f"it sees what was written as {made}" if own != made else because
            what = what or f"a value of {seen.write.buffer}"
            order = self.run.order(seen, e)
            shown = f"{_address_text(s.place)}, {what}: {seen.nest.name} wrote it at {_point_text(seen.point)}"
            shown += f" ({order})" if order else ""
        meant = should if isinstance(should, str) else self.origin(should, e, seen)
        found = Difference(e.point, f"{_address_text(e.place)} = {name}", shown, meant, s.formula)
        return CheckRow(e.nest.name, s.buffer, "refuted", "read", because, found, graph=self.run.program.name)

    def tensor_of(self, buffer: str) -> str:
        return next((b.tensor for b in self.run.program.buffers if b.name == buffer), buffer)

    def origin(self, value: int, reader: TreeEvent, seen: TreeEvent | None) -> str:
        """An element that should be read: who writes it when, and what comes in between."""
        name = self.values.name(value) or "an element"
        run = self.run
        writes = [w for w in run.events if self.value(w) == value]
        before = [w for w in writes if w.number < reader.number]
        if not writes:
            lies = next((_address_text(p) for p, v in run.start.items() if v == value), name)
            return name if lies == name else f"{name}, which {lies} holds at the start"
        w = before[-1] if before else writes[0]
        where = f"{_address_text(w.place)} at {_point_text(w.point)}"
        if not before:
            return f"{name}, which {w.nest.name} writes later, to {where} ({run.order(reader, w)})"
        over = next((x for x in run.events[w.number + 1 : reader.number] if x.place == w.place), None)
        if over is None:
            return f"{name}, which {w.nest.name} writes to {where}"
        gone = f"{over.nest.name} overwrote it at {_point_text(over.point)}" if over is not seen else "it is gone then"
        return f"{name}, which {w.nest.name} wrote to {where}; {gone} ({run.order(w, over)})"

    def owned(self, w: TreeEvent) -> bool:
        return self.tensor_of(w.write.buffer) in self.values.own
