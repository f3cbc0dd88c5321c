"""The content of each buffer of a program when a nest runs, in the order of the nests.

The tensors that it holds; how a nest combines values into it, against the operations of the program; integers that the
program itself stores (an ``arange``, a mask), known by their values; and whether the order of the nests says what is
stored, and which outputs nothing writes, or not whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify
from idgraph.arith.integer_solutions import follows
from idgraph.check.algebraic import flat_of, unflat
from idgraph.check.enumeration import extents_of
from idgraph.check.index_values import ValueTable
from idgraph.check.program import ZERO, BufferLayout, Nest, NeutralProgram, Write, leaves
from idgraph.check.report import CheckRow, Difference, Verdict
from idgraph.check.semantics import Address, ElementRead, ProgramSemantics
from idgraph.check.store_coverage import StoreCoverage, delinearize, element_of
from idgraph.ir import SCANS, Tensor, TensorExpr


@dataclass(frozen=True, slots=True)
class Stored:
    """Values of loaded symbols in ``table``; ``at`` says where arguments lie when the nest runs."""

    program: NeutralProgram
    meaning: ProgramSemantics
    table: ValueTable
    at: Address

    def computed(self, needs: Sequence[ElementRead]) -> str:
        """A buffer of computed values that an index is loaded from: one side may know these values, the other not."""
        made = {b.home for b in self.program.buffers if b.after}
        for n in needs:
            for x in (n.address, n.when):
                found = self.table.storages(x) & made
                if found:
                    return min(found)
        return ""

    def opened(self, needs: Sequence[ElementRead], held: Expr) -> list[ElementRead]:
        """Reads whose indices are loaded from stored integers, with the values that these have."""
        out: list[ElementRead] = []
        for n in needs:
            given = and_(held, n.when)

            def value(storage: str, address: Expr, given: Expr = given) -> Expr | None:
                return self._number(storage, address, given)

            when = self.table.opened(n.when, value)
            out.append(
                ElementRead(n.storage, simplify(self.table.opened(n.address, value), facts=(when,)), when, n.tensor)
            )
        return out

    def _number(self, storage: str, address: Expr, given: Expr) -> Expr | None:
        """The integer that the program stored at an address, as a formula; None where it is not an integer formula, or
        has changed since.
        """
        here = [b for b in self.program.buffers if b.home == storage]
        if any(b.over or b.copy for b in here):
            return None
        for b in here:
            t = self.meaning.tensors.get(b.tensor)
            if t is None or t.definition is None:
                continue
            shape = extents_of(t)
            coordinates = delinearize(address, b, shape)
            if simplify(element_of(address, coordinates, b, shape), facts=(given,)) is TRUE:
                found = self.meaning.known(t, coordinates, self._argument, self.table)
                if found is not None:
                    return found
        return None

    def _argument(self, t: Tensor, coordinates: Sequence[Expr]) -> tuple[str, Expr] | None:
        """Where an argument of the program lies; results are looked through."""
        return self.at(t, coordinates) if t.definition is None else None


COMBINES: Mapping[str, tuple[str, ...]] = {  # operations of the program, and what a nest may do for them
    "sum": ("sum",), "mean": ("sum",), "prod": ("prod",), "amax": ("max", "any"), "amin": ("min", "any", "prod"),
    "any": ("any", "max"), "all": ("any", "min", "prod"),
}  # fmt: skip


def other_reduction(found: frozenset[str], meant: Iterable[str], buffer: str) -> Difference | None:
    """How a nest combines (``found``, of Inductor's words) where no operation of the program (``meant``) does so.

    >>> other_reduction(frozenset({"sum"}), ["mean"], "buf0")
    >>> print(other_reduction(frozenset({"max"}), ["sum"], "buf0").read)
    max
    """
    ops = list(meant)
    known = {x for op in ops for x in COMBINES.get(op, ())}
    other = (found & frozenset().union(*COMBINES.values())) - known
    if not other or not known or any(op not in COMBINES for op in ops):
        return None
    return Difference({}, buffer, " and ".join(sorted(other)), " and ".join(ops), "")


def other_mode(adds: bool, element: str, reads_there: bool) -> tuple[Verdict, Difference | None]:
    """The verdict on a nest that stores entries which the program adds (``adds``), or the other way round.

    >>> other_mode(True, "y[x0]", reads_there=False)[0], other_mode(True, "y[x0]", reads_there=True)[0]
    ('refuted', 'unknown')
    """
    words = ("stored", "added")
    return ("unknown", None) if reads_there else ("refuted", Difference({}, element, words[not adds], words[adds], ""))


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


def unfilled(
    p: NeutralProgram, meaning: ProgramSemantics, samples: Sequence[dict[str, int]], stage: str
) -> Iterator[CheckRow]:
    """Rows of memory that nests fill with parts of a tensor, none under its name, where elements are left out."""
    layouts = {b.name: b for b in p.buffers}
    named = {layouts[w.buffer].tensor for n in p.nests for w in n.writes if w.buffer in layouts}
    for b in {b.home: b for b in p.buffers if b.tensor not in named}.values():
        t = meaning.tensors.get(b.tensor)
        if t is None or t.definition is None or t.definition.op != "cat" or b.over or b.copy:
            continue
        for nest, w in ((n, w) for n in p.nests for w in n.writes):
            part = layouts.get(w.buffer)
            if part is None or part.home != b.home or nest.unread or {*nest.loads, *nest.places} & w.index.names:
                continue
            address, shape = simplify(w.index + part.base), extents_of(t)
            stores = StoreCoverage(p, meaning, nest, w, b, address, w.when, by_value=False)
            verdict, because, found = stores.verdict(samples) if shape else ("proved", "", None)
            if verdict == "refuted" and because.endswith("are not written"):
                op, line = p.sources.get(b.tensor, ("", None))
                yield CheckRow(nest.name, b.home, verdict, "write", because, found, stage, p.name, op, line)
            break


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


def entangled(p: NeutralProgram) -> frozenset[str]:
    """Nests that touch memory of which order says what it holds: their formulas do not say what they read there."""
    order = _MemoryUse(p)
    mixed = {home for home in order.used() if not order.plain(home)}
    return frozenset(
        n.name for n in p.nests for w in n.writes
        if mixed & {order.home(x) for x in (w.buffer, *(r.buffer for r in w.reads))}
    )  # fmt: skip


def touches_inside(p: NeutralProgram, w: Write, when: Expr) -> bool:
    """Whether all that a write touches where ``when`` holds lies in its memory at every size, of memory whose size is
    known; decided by algebra.
    """
    return all(
        follows(at >= 0, *p.facts, when, held) and (end is None or follows(at < end, *p.facts, when, held))
        for name, index, held in ((w.buffer, w.index, TRUE), *((r.buffer, r.index, r.when) for r in w.reads))
        for at, end in (_address_and_end(p, name, index),)
    )


def _address_and_end(p: NeutralProgram, name: str, index: Expr) -> tuple[Expr, Expr | None]:
    """An address in the storage, and the end of that; None where it is not known."""
    b = next((b for b in p.buffers if b.name == name), None)
    home, base = p.place_of(name)
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
        return self.program.place_of(name)[0]

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


@dataclass(slots=True)
class BufferContents:
    """The buffers of a program by name and by tensor, and which nest or call of the order makes them."""

    program: NeutralProgram
    buffers: dict[str, BufferLayout] = field(init=False)
    tensors: dict[str, list[BufferLayout]] = field(init=False)
    when_made: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        p = self.program
        self.buffers = {b.name: b for b in p.buffers}
        self.tensors = {}
        for b in p.buffers:
            self.tensors.setdefault(b.tensor, []).append(b)
        self.when_made = {name: k for k, name in enumerate(p.order or tuple(n.name for n in p.nests))}

    def stored(self, t: Tensor, coordinates: Sequence[Expr], nest: Nest, reads: set[str]) -> tuple[str, Expr] | None:
        """Where an element lies when the nest runs; None where it is not stored then, or the nest makes it itself.

        A tensor that the program stores but the nest does not read is looked through: the nest makes it again. One
        that is stored under another shape lies where that is.
        """
        found = self._lies(t, coordinates, nest, reads)
        if found is not None or not reads or t.definition is None:
            return found
        for e in t.uses:
            if e.op in VIEWS:
                found = self.stored(e.output, in_view(e, coordinates), nest, reads)
                if found is not None:
                    return found
        return None

    def _lies(self, t: Tensor, coordinates: Sequence[Expr], nest: Nest, reads: set[str]) -> tuple[str, Expr] | None:
        now = self.when_made.get(nest.name, len(self.when_made))
        for b in self.tensors.get(t.name, ()):
            made = self.when_made.get(b.after, -1) if b.after else -1
            gone = any(
                x.over == b.tensor and x.home == b.home and x.after and self.when_made.get(x.after, 0) < now
                for x in self.program.buffers
            )
            needed = t.definition is None or b.home in reads
            if made < now and not gone and needed and not b.copy:
                steps = zip(coordinates, b.strides, strict=True)
                return b.home, b.offset + sum((c * s for c, s in steps), start=as_expr(0))
        return None

    def never_filled(self, nest: Nest, buffer: BufferLayout) -> bool:
        """Whether nothing is in a buffer's memory before a nest: no argument, no other nest's or call's result."""
        p, home = self.program, buffer.home
        names = {n.name for n in p.nests}
        shared = [b for b in p.buffers if b.home == home]
        inputs = {t.name for t in p.fusion.inputs}
        if any(b.tensor in inputs or (b.after and b.after not in names) for b in shared):
            return False
        now = self.when_made.get(nest.name, len(self.when_made))
        own = {b.name for b in shared} | {home}
        return not any(
            w.buffer in own and (n is not nest or w.mode == "store") and self.when_made.get(n.name, now) <= now
            for n in p.nests for w in n.writes
        )  # fmt: skip

    def overwritten(self, nest: Nest, write: Write, tensor: str) -> Difference | None:
        """An argument that is needed, where the only memory that had it, which the nest reads, has another value."""
        now = self.when_made.get(nest.name, len(self.when_made))
        homes = {self.buffers[r.buffer].home for r in write.reads if r.buffer in self.buffers}
        if any(b.tensor == tensor and b.copy for b in self.program.buffers):
            return None
        for b in self.tensors.get(tensor, ()):
            for x in self.program.buffers:
                over = x.over == tensor and x.home == b.home and self.when_made.get(x.after, now) < now
                if over and b.home in homes:
                    meant = f"{tensor}, which {x.after} has overwritten before"
                    return Difference({}, write.buffer, f"{b.home} after that", meant, "")
        return None


def in_view(e: TensorExpr, coordinates: Sequence[Expr]) -> list[Expr]:
    """Where an operation that only gives another shape or order of axes puts an element of its operand."""
    if e.op == "permute":
        dims = [int(str(d)) for d in e.attrs["dims"]]  # type: ignore[union-attr]
        return [coordinates[d] for d in dims]
    if e.op == "copy":
        return list(coordinates)
    return unflat(simplify(flat_of(coordinates, extents_of(e.inputs[0]))), extents_of(e.output))
