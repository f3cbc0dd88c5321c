"""The order in which a program runs: who writes and reads a memory when, and which memory has to be followed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from idgraph.arith import Expr
from idgraph.check.program import ZERO, BufferLayout, Nest, NeutralProgram, Write
from idgraph.check.report import CheckRow, Difference
from idgraph.ir import Tensor

_VIEWS = frozenset({"copy", "permute", "reshape", "squeeze", "unsqueeze"})


def unwritten(p: NeutralProgram) -> Iterator[CheckRow]:
    """Rows of outputs that nothing writes."""
    names = {n.name for n in p.nests}
    homes = {b.name: b.home for b in p.buffers}
    stored = {homes.get(w.buffer, w.buffer) for n in p.nests for w in n.writes}
    for t in dict.fromkeys(p.fusion.outputs):
        own = [b for b in p.buffers if b.tensor == t.name]
        if t.definition is None or t.name in stored or any(b.home in stored for b in own):
            continue
        if any(b.after and b.after not in names for b in own):  # a library call writes it
            continue
        viewed: Tensor = t
        while viewed.definition is not None and viewed.definition.op in _VIEWS:
            viewed = viewed.definition.inputs[0]
        there = viewed.definition is None or any(b.home in stored for b in p.buffers if b.tensor == viewed.name)
        if viewed is not t and there:
            because = f"no nest writes this output; a view of {viewed.name} needs a buffer that says where it lies"
            yield CheckRow(t.name, t.name, "unknown", "write", because, graph=p.name)
            continue
        found = Difference({}, "", None, f"{t.name}, an output, is written by some nest", "")
        yield CheckRow(t.name, t.name, "refuted", "write", "no nest writes this output", found, graph=p.name)


class RunOrder:
    """The program as it runs: nests and calls in order, which nest makes what an unnamed buffer holds for a reader."""

    def __init__(self, p: NeutralProgram) -> None:
        self.program = p
        place = {name: k for k, name in enumerate(p.order)}
        self.nests = sorted(p.nests, key=lambda n: place.get(n.name, len(place)))  # stable
        self.time = place
        self.buffers = {b.name: b for b in p.buffers}
        self.inner = {w.buffer: (n, w) for n in p.nests for w in n.writes if w.buffer not in self.buffers}

    def home(self, name: str) -> tuple[str, Expr]:
        b = self.buffers.get(name)
        return (b.home, b.base) if b is not None else self.program.memory.get(name, (name, ZERO))

    def when(self, name: str) -> int:
        return self.time.get(name, len(self.time))

    def readers(self, home: str) -> list[Nest]:
        return [n for n in self.nests if any(self.home(r.buffer)[0] == home for w in n.writes for r in w.reads)]

    def writers(self, home: str) -> list[tuple[Nest, Write]]:
        return [(n, w) for n in self.nests for w in n.writes if self.home(w.buffer)[0] == home]

    def followed(self) -> list[str]:
        """Storages that are written, and not by one single buffer before all that read it."""
        every = dict.fromkeys(self.home(w.buffer)[0] for n in self.nests for w in n.writes)
        count = Counter(b.home for b in self.buffers.values())
        every |= dict.fromkeys(h for h, k in count.items() if k > 1 and self.readers(h))
        return [h for h in every if not self._plain(h)]

    def _plain(self, home: str) -> bool:
        writers, readers = self.writers(home), self.readers(home)
        names = {w.buffer for _, w in writers} | {
            r.buffer for n in readers for w in n.writes for r in w.reads if self.home(r.buffer)[0] == home
        }
        names |= {b.name for b in self.buffers.values() if b.home == home}
        name = next(iter(names), "")
        if len(names) != 1 or (name not in self.buffers and len(writers) > 1):
            return False
        return all(
            self.nests.index(n) < self.nests.index(m) and not (n.kernel and n.kernel == m.kernel)
            for n, _ in writers for m in readers
        )  # fmt: skip

    def lookers(self, nest: Nest) -> list[Nest]:
        """The nest itself, and those that look through it: what they mean is composed with its reads."""
        found = [nest]
        for n in found:
            made = {w.buffer for w in n.writes if w.buffer in self.inner}
            found += [
                m for m in self.nests
                if m not in found and any(r.buffer in made for w in m.writes for r in w.reads)
            ]  # fmt: skip
        return found

    def readable(self, home: str, nest: Nest) -> list[BufferLayout]:
        """Buffers that the checker takes to hold their tensors when a nest starts."""
        now = self.when(nest.name)
        every = self.program.buffers
        return [
            b for b in every
            if b.home == home and (self.time.get(b.after, -1) if b.after else -1) < now
            and not any(x.over == b.tensor and x.after and self.time.get(x.after, 0) < now for x in every)
        ]  # fmt: skip
