"""The verdict on a program as it runs: its tree followed on values, and what it finds confirmed by runs on numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from idgraph.arith import ArithError
from idgraph.check.enumeration import sample_sizes
from idgraph.check.interpreter import run
from idgraph.check.program import CheckError, NeutralProgram
from idgraph.check.program_tree import leaves
from idgraph.check.report import CheckRow, Difference
from idgraph.check.semantics import NoIndexMeaning
from idgraph.check.tree_flow import Seen, TreeEvent, TreeRun
from idgraph.check.tree_values import placed

SEEDS = 10  # runs on numbers, in each order of iterations


@dataclass(frozen=True, slots=True)
class TreeVerdict:
    """``right``: None where it is not decided; ``rows``: of each write, of what is wrong, or of why."""

    right: bool | None
    rows: tuple[CheckRow, ...]


def follow_tree(p: NeutralProgram) -> TreeVerdict:
    """Whether each result holds what the program means, at all points of all loops."""
    points = 0
    samples: list[dict[str, int]] = list(sample_sizes(p)) if p.symbols else [{}]
    try:
        for sizes in samples:
            found = TreeRun(p, sizes)
            points += found.points
            rows = _wrong(found)
            if rows:
                if _confirmed(p, sizes):
                    return TreeVerdict(False, rows)
                because = f"{rows[0].because}, though no run on numbers shows it"
                return TreeVerdict(None, (_unknown(p, because),))
    except (NoIndexMeaning, CheckError, ArithError) as error:
        return TreeVerdict(None, (_unknown(p, error.what if not isinstance(error, NoIndexMeaning) else str(error)),))
    if p.symbols or not samples:
        return TreeVerdict(
            None, (_unknown(p, "it is right at the sizes that were tried; for all sizes nothing proves it"),)
        )
    because = "it runs before what reads it, and each result holds the value that the program means"
    return TreeVerdict(True, tuple(
        CheckRow(n.name, b, "enumerated", "write", because, graph=p.name, points=points)
        for n in leaves(p.body or p.nests) for b in dict.fromkeys(w.buffer for w in n.writes)
    ))  # fmt: skip


def _unknown(p: NeutralProgram, because: str) -> CheckRow:
    return CheckRow(p.name, "", "unknown", "read", because, graph=p.name)


def _confirmed(p: NeutralProgram, sizes: Mapping[str, int]) -> bool:
    """Whether a run on numbers is wrong."""
    return not all(run(p, {}, sizes, seed).right for seed in range(SEEDS))


def _wrong(r: TreeRun) -> tuple[CheckRow, ...]:
    graph = r.program.name
    if r.outside is not None:
        nest, write, point, where = r.outside
        found = Difference(point, "", where, "an element of its memory", str(write.index))
        because = f"it touches {where}, outside of the memory"
        return (CheckRow(nest.name, write.buffer, "refuted", "write", because, found, graph=graph),)
    if r.race is not None:
        return (_race_row(r, *r.race),)
    rows = [_Fault(r, t.name).row() for t in dict.fromkeys(r.program.fusion.outputs)]
    return tuple(x for x in rows if x is not None)


def _point_text(point: Mapping[str, int]) -> str:
    return ", ".join(f"{k}={v}" for k, v in point.items()) or "its one point"


def _address_text(place: tuple[str, int]) -> str:
    return f"{place[0].split('#')[0]}[{place[1]}]"


def _race_row(r: TreeRun, a: TreeEvent, b: TreeEvent, read: Seen | None, loop: str) -> CheckRow:
    where = _address_text(a.place)
    if read is None:
        because = f"iterations of {loop}, which run in any order, write {where} with different values"
        found = Difference(
            b.point, where, None, f"no other value than {a.nest.name} writes there at {_point_text(a.point)}", ""
        )
        return CheckRow(b.nest.name, b.write.buffer, "refuted", "write", because, found, graph=r.program.name)
    because = f"it reads what another iteration of {loop} writes, and they run in any order"
    meant = f"{where} after or before {a.nest.name} writes it at {_point_text(a.point)}: nothing says which"
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
            raise NoIndexMeaning(f"no buffer says where {self.tensor}, a result, lies")
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
        b = next((b for b in self.run.program.buffers if b.name == event.write.buffer), None)
        if b is not None and b.tensor != self.tensor and b.tensor in self.values.own:
            found = Difference(
                event.point, where, f"the value of {b.tensor}", f"{name}, a result", str(event.write.index)
            )
            because = f"it overwrites {name}, a result"
            return CheckRow(event.nest.name, place[0], "refuted", "write", because, found, graph=graph)
        return self.blamed(k, name, self.since(last))

    def since(self, last: int) -> list[TreeEvent]:
        """The writes of one address whose values add up there."""
        out: list[TreeEvent] = []
        while last >= 0:
            out.append(self.run.events[last])
            last = out[-1].before if out[-1].write.mode == "add" else -1
        return out

    def blamed(self, k: int, name: str, events: list[TreeEvent]) -> CheckRow:
        operands = self.values.operands.get(self.tensor, [])
        wanted = Counter(operands[k] if operands else [])
        seen = Counter(s.value for e in events for s in e.seen)
        missing = [v for v in wanted if wanted[v] > seen[v]]
        should = self.origin(missing[0]) if missing else None
        for e in events:
            for s in e.seen:
                if s.value not in wanted:
                    return self.read(e, s, name, should)
        for e in events:
            for s in e.seen:
                if wanted[s.value] < seen[s.value]:
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
        found = Difference(e.point, f"{_address_text(e.place)} = {name}", read, should or name, str(e.write.index))
        return CheckRow(e.nest.name, e.write.buffer, "refuted", "write", because, found, graph=self.run.program.name)

    def read(self, e: TreeEvent, s: Seen, name: str, should: str | None) -> CheckRow:
        what = self.values.name(s.value)
        if s.writer < 0:
            because = "it reads what nothing has written before" if not what else "it reads another element"
            shown = f"{_address_text(s.place)}, {what or 'which nothing has written before'}"
        else:
            w = self.run.events[s.writer]
            because = "it sees what was written last, which is another value"
            what = what or f"a value of {w.write.buffer}"
            shown = f"{_address_text(s.place)}, {what}: {w.nest.name} wrote it at {_point_text(w.point)}"
        meant = should or f"what {name} is made of"
        found = Difference(e.point, f"{_address_text(e.place)} = {name}", shown, meant, s.formula)
        return CheckRow(e.nest.name, s.buffer, "refuted", "read", because, found, graph=self.run.program.name)

    def origin(self, value: int) -> str:
        """An element, and who writes it when."""
        name = self.values.name(value) or "an element"
        for e in reversed(self.run.events):
            tag = self.run.program.buffers
            own = next((b.tensor for b in tag if b.name == e.write.buffer and b.tensor in self.values.own), "")
            if self.run.numbers.sealed(own, e.value) == value:
                return f"{name}, which {e.nest.name} writes to {_address_text(e.place)} at {_point_text(e.point)}"
        return name
