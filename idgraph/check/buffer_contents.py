"""The tensors that each buffer of a program holds when a nest runs, in the order of the nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from idgraph.arith import Expr, as_expr, simplify
from idgraph.check.algebraic import flat_of, unflat
from idgraph.check.enumeration import extents_of
from idgraph.check.program import BufferLayout, Nest, NeutralProgram, Write
from idgraph.check.report import Difference
from idgraph.check.run_order import VIEWS
from idgraph.ir import Tensor, TensorExpr


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
        if buffer.over or any(b.tensor in inputs or (b.after and b.after not in names) for b in shared):
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
