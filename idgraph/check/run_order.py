"""Whether the order in which a program runs says what it stores, and which outputs nothing writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from idgraph.arith import TRUE, Expr, as_expr, simplify
from idgraph.check.program import ZERO, Nest, NeutralProgram, Write, leaves
from idgraph.check.report import CheckRow, Difference
from idgraph.ir import SCANS

VIEWS = frozenset({"copy", "permute", "reshape", "squeeze", "unsqueeze"})


def unwritten(p: NeutralProgram) -> Iterator[CheckRow]:
    """Rows of outputs that nothing writes."""
    nests = tuple(leaves(p.body or p.nests))
    names = {n.name for n in nests}
    homes = {b.name: b.home for b in p.buffers}
    stored = {homes.get(w.buffer, w.buffer) for n in nests for w in n.writes}
    for t in dict.fromkeys(p.fusion.outputs):
        own = [b for b in p.buffers if b.tensor == t.name]
        if t.definition is None or any(b.home in stored for b in own):
            continue
        if any(b.after and b.after not in names for b in own):  # a library call writes it
            continue
        because = "no nest writes this output"
        viewed = t
        while viewed.definition is not None and viewed.definition.op in VIEWS:
            viewed = viewed.definition.inputs[0]
        if viewed is not t:
            because += f" (a view of {viewed.name}, not copied, needs a buffer with its storage)"
        found = Difference({}, "", None, f"{t.name}, an output, is written by some nest", "")
        yield CheckRow(t.name, t.name, "refuted", "write", because, found, graph=p.name)


def order_matters(p: NeutralProgram) -> bool:
    """Whether memory is used in another way than "one buffer, written before it is read", or a value runs along an
    axis, memory ends where a size says, or what fills a buffer of no tensor may touch an address outside: its nests,
    one by one, do not say what a read sees then.
    """
    order = _MemoryUse(p)
    named = {b.name for b in p.buffers}
    if any(not touches_inside(p, w, w.when) for n in p.nests for w in n.writes if w.buffer not in named):
        return True
    if p.sizes or any(e.op in SCANS for e in p.fusion.exprs):
        return True
    return any(not order.plain(home) for home in order.used()) or any(unwritten(p))


def touches_inside(p: NeutralProgram, w: Write, when: Expr) -> bool:
    """Whether all that a write touches where ``when`` holds lies in its memory at every size, of memory whose size is
    known; decided by algebra.
    """
    facts = (when, *p.facts)
    return all(
        simplify(at >= 0, facts=(*facts, held)) is TRUE
        and (end is None or simplify(at < end, facts=(*facts, held)) is TRUE)
        for name, index, held in ((w.buffer, w.index, TRUE), *((r.buffer, r.index, r.when) for r in w.reads))
        for at, end in (_address_and_end(p, name, index),)
    )


def _address_and_end(p: NeutralProgram, name: str, index: Expr) -> tuple[Expr, Expr | None]:
    """An address in the storage, and the end of that; None where it is not known."""
    b = next((b for b in p.buffers if b.name == name), None)
    home, base = (b.home, b.base) if b is not None else p.memory.get(name, (name, ZERO))
    end = p.sizes.get(home)
    if end is None and b is not None and b.tensor in {t.name for t in (*p.fusion.inputs, *p.fusion.outputs)}:
        shape = next(t.shape for t in p.fusion.tensors if t.name == b.tensor)
        end = b.offset + 1 + sum(((as_expr(n) - 1) * s for n, s in zip(shape, b.strides, strict=True)), ZERO)
    return index + base, end


class _MemoryUse:
    """The writers and readers of each storage, in the order of the program."""

    def __init__(self, p: NeutralProgram) -> None:
        self.program = p
        place = {name: k for k, name in enumerate(p.order)}
        self.nests = sorted(p.nests, key=lambda n: place.get(n.name, len(place)))  # stable
        self.buffers = {b.name: b for b in p.buffers}
        arguments, nests = {t.name for t in p.fusion.inputs}, {n.name for n in self.nests}
        self.filled = {b.home for b in p.buffers if b.tensor in arguments or (b.after and b.after not in nests)}

    def home(self, name: str) -> str:
        b = self.buffers.get(name)
        return b.home if b is not None else self.program.memory.get(name, (name, ZERO))[0]

    def readers(self, home: str) -> list[Nest]:
        return [n for n in self.nests if any(self.home(r.buffer) == home for w in n.writes for r in w.reads)]

    def writers(self, home: str) -> list[tuple[Nest, Write]]:
        return [(n, w) for n in self.nests for w in n.writes if self.home(w.buffer) == home]

    def used(self) -> list[str]:
        """Storages that are written, or read under several names, or read though no argument or call fills them."""
        every = dict.fromkeys(self.home(w.buffer) for n in self.nests for w in n.writes)
        count = Counter(b.home for b in self.buffers.values())
        read = dict.fromkeys(self.home(r.buffer) for n in self.nests for w in n.writes for r in w.reads)
        return list(every | {h: None for h in read if h not in self.filled or count[h] > 1})

    def plain(self, home: str) -> bool:
        """One single buffer, which is written before all that read it."""
        writers, readers = self.writers(home), self.readers(home)
        names = {w.buffer for _, w in writers} | {
            r.buffer for n in readers for w in n.writes for r in w.reads if self.home(r.buffer) == home
        }
        names |= {b.name for b in self.buffers.values() if b.home == home}
        name = next(iter(names), "")
        if len(names) != 1 or (name not in self.buffers and len(writers) > 1):
            return False
        if not writers and home not in self.filled:
            return False
        if writers and writers[0][1].mode == "add":  # to what is there at first
            return False
        return all(
            self.nests.index(n) < self.nests.index(m) and not (n.kernel and n.kernel == m.kernel)
            for n, _ in writers for m in readers
        )  # fmt: skip
