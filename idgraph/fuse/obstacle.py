"""The answer of `explain`: the obstacle between two operations, and the alignment that would remove it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from idgraph.cost import cost
from idgraph.display import Printed, Sheet
from idgraph.errors import IdGraphError, OperationError, arguments
from idgraph.fuse.access_relation import AccessRelation
from idgraph.fuse.alignment_search import AlignmentQuery, answer
from idgraph.fuse.common_loops import Alignment
from idgraph.fuse.mismatch import Cause
from idgraph.ir import Tensor, TensorExpr
from idgraph.ir.parser import copy_fusion
from idgraph.runtime.program import emit


@dataclass(frozen=True, slots=True)
class Obstacle(Printed):
    """Why ``a`` and ``b``, which both touch ``buffer``, do not access the same element in the same iteration of the
    same loops.

    ``cause`` is one of `CAUSES`. ``accesses``: of ``a`` and of ``b``, as index maps of their own loops.
    ``alignment``: steps that were tried and validated; None where ``proof`` says why nothing aligns them, or
    ``tried`` what did not. ``bytes_saved``: by one kernel for both (reads that become one, dead stores);
    ``estimate``: the same from the accesses only, ``by_trial`` where the tried programs say it better.
    ``recompute_factor``: how often each element is computed where its reader computes it for itself, as it does after
    the steps of an alignment that is not `Alignment.once`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("x", shape=(8, 6)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> o = ig.fuse.obstacles(f)[0]
    >>> o.cause, o.buffer.name, o.row()["cause"], o.tried
    ('loop order', 't', 'loop order', ())
    >>> str(o.alignment.steps[-1]), o.bytes_saved
    ('t.inline(2)', 384)
    """

    a: TensorExpr
    b: TensorExpr
    buffer: Tensor
    cause: Cause
    accesses: tuple[AccessRelation, AccessRelation]
    because: tuple[str, ...]
    estimate: int | None
    recompute_factor: float
    question: AlignmentQuery = field(repr=False, compare=False)
    proof: str = ""
    by_trial: bool = field(default=False, repr=False, compare=False)

    @property
    def alignment(self) -> Alignment | None:
        """The steps, tried when first asked for."""
        return None if self.proof else answer(self.question).alignment

    @property
    def bytes_saved(self) -> int | None:
        """Bytes that one kernel for both moves less than two; None where a size is open. Where others need the result
        that a loaded index chooses from, or stand in the way of the cheapest alignment, or the reader is a scatter,
        whose kernels follow from the schedule, they are those of the two programs that were emitted to try the
        alignment: fewer than none where these move more."""
        tried = answer(self.question) if not self.proof else None
        found = tried.alignment if tried is not None and (self.by_trial or tried.others) else None
        if found is None or not found.one_kernel:
            return self.estimate
        apart, together = copy_fusion(self.question.fusion), copy_fusion(self.question.fusion)
        found.apply(together)
        try:
            totals = [cost(emit(f, target="cuda")).total for f in (apart, together)]
        except IdGraphError:  # a size is open
            return self.estimate
        before, after = (t.bytes_read + t.bytes_written for t in totals)
        return before - after

    @property
    def tried(self) -> tuple[str, ...]:
        """The ways that were tried and did not align them, each with the reason."""
        return () if self.proof else answer(self.question).tried

    def __str__(self) -> str:
        head = f"{self.a.output.name} and {self.b.output.name} touch {self.buffer.name}: {self.cause}"
        lines = [head, *(f"  {x}" for x in self.accesses), *(f"  because {x}" for x in self.because)]
        for e in (self.a, self.b):
            if e.source_line:
                lines.append(f"  {e.output.name} at {e.source_line}")
        if self.bytes_saved is not None:
            once = self.alignment is not None and self.alignment.once
            again = f", each element computed {self.recompute_factor:g} times" if self.recompute_factor > 1 else ""
            again = ", each element computed once" if again and once else again
            lines.append(f"  one kernel for both saves {self.bytes_saved:,} bytes{again}")
        if self.alignment is not None:
            lines.append(f"  aligned by ({self.alignment.points:,} addresses checked):")
            lines += [f"    {s}" for s in self.alignment.steps]
        else:
            lines.append(f"  nothing aligns them: {self.proof}" if self.proof else "  no alignment was found")
            lines += [f"    tried: {x}" for x in self.tried if not self.proof]
        return "\n".join(lines)

    __repr__ = __str__

    def row(self) -> dict[str, object]:
        """Plain data of this pair: for tables."""
        return {
            "a": self.a.output.name, "b": self.b.output.name, "buffer": self.buffer.name, "cause": self.cause,
            "access_a": str(self.accesses[0].map), "access_b": str(self.accesses[1].map),
            "bytes_saved": self.bytes_saved, "recompute_factor": self.recompute_factor,
            "alignment": None if self.alignment is None else [str(s) for s in self.alignment.steps],
            "proof": self.proof, "because": list(self.because),
            "line_a": str(self.a.source_line or ""), "line_b": str(self.b.source_line or ""),
        }  # fmt: skip

    def sheet(self) -> Sheet:
        """The pair as a table of one row."""
        return Obstacles((self,)).sheet()


class NoObstacle(OperationError, IndexError):
    """The error of `Obstacles` for a number that has no obstacle: an IndexError, as of any sequence."""


@dataclass(frozen=True, slots=True)
class Obstacles(Printed, Sequence[Obstacle]):
    """The obstacles of a fusion, one for each pair; prints as a table.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("x", shape=(8, 6)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> found = ig.fuse.obstacles(f)
    >>> len(found), found.to_json()[0]
    (1, '[')
    """

    rows: tuple[Obstacle, ...]
    note: str = field(default="")

    @arguments(OperationError)
    def __getitem__(self, n: int) -> Obstacle:  # type: ignore[override]
        try:
            return self.rows[n]
        except IndexError:
            raise NoObstacle(f"there is no obstacle {n}", hint=f"there are {len(self.rows)}, from 0") from None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Obstacle]:
        return iter(self.rows)

    def sheet(self) -> Sheet:
        """One row a pair."""
        rows = [
            (
                o.a.output.name, o.b.output.name, o.buffer.name, o.cause,
                "" if o.bytes_saved is None else f"{o.bytes_saved:,}",
                "; ".join(map(str, o.alignment.steps)) if o.alignment is not None else o.proof or "none found",
            )
            for o in self.rows
        ]  # fmt: skip
        head = ("a", "b", "buffer", "cause", "bytes saved", "alignment")
        return Sheet("obstacles between operations", head, tuple(rows), (self.note,) if self.note else ())

    def to_json(self) -> str:
        """The rows as a JSON list."""
        return json.dumps([o.row() for o in self.rows], indent=1)

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows)) or "no obstacle: operations that share a buffer can share their loops"

    __repr__ = __str__
