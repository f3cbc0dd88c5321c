"""`plan`: which operations share a kernel, before and after the automatic schedule, and what stays apart, why."""

from __future__ import annotations

import json
from dataclasses import dataclass

from idgraph.display import Printed, Sheet
from idgraph.errors import ScheduleError, arguments
from idgraph.fuse.explain import obstacles
from idgraph.fuse.launched import operations
from idgraph.fuse.obstacle import Obstacles
from idgraph.ir import Fusion, check_fusion
from idgraph.ir.parsing import copy_fusion
from idgraph.ir.state import rewriting
from idgraph.runtime import emit
from idgraph.schedule import auto


@dataclass(frozen=True, slots=True)
class Plan(Printed):
    """``kernels``: the operations of each CUDA kernel after `auto`, by the names of the tensors that they make, in
    launch order. ``before``, ``after``: numbers of kernels as given and after `auto`. ``apart``: the obstacles between
    kernels that share a buffer. ``scheduled`` is the copy that was scheduled; it may hold private copies.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("x", shape=(8, 6)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> p = ig.fuse.plan(f)
    >>> p.before, p.after, p.kernels, p.to_json()[:1]
    (3, 1, (('t', 't2', 't3'),), '{')
    """

    kernels: tuple[tuple[str, ...], ...]
    before: int
    after: int
    apart: Obstacles
    scheduled: Fusion

    @arguments(ScheduleError, keep=rewriting)
    def apply(self, fusion: Fusion) -> None:
        """Schedule the user's fusion like this: `ig.schedule.auto`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(ig.exp(f.input("x", shape=(64,))) * 2.0)
        >>> ig.fuse.plan(f).apply(f)
        >>> len(ig.emit(f, target="cuda").kernels)
        1
        """
        auto(fusion)

    def __str__(self) -> str:
        lines = [f"{self.before} kernels before, {self.after} after"]
        lines += [f"  kernel{n}: {', '.join(names)}" for n, names in enumerate(self.kernels)]
        lines += [f"  apart: {o.a.output.name} and {o.b.output.name}, {o.cause} of {o.buffer.name}" for o in self.apart]
        return "\n".join(lines)

    def sheet(self) -> Sheet:
        """One row a kernel."""
        rows = [(f"kernel{n}", str(len(names)), ", ".join(names)) for n, names in enumerate(self.kernels)]
        return Sheet(
            f"{self.before} kernels before, {self.after} after", ("kernel", "operations", "tensors"), tuple(rows)
        )

    def to_json(self) -> str:
        """Kernels, their numbers, and the pairs that stay apart."""
        data = {"kernels": self.kernels, "before": self.before, "after": self.after,
                "apart": [o.row() for o in self.apart]}  # fmt: skip
        return json.dumps(data, indent=1)


@arguments(ScheduleError, first=True)
def plan(fusion: Fusion) -> Plan:
    """Which operations of ``fusion`` share a kernel where `auto` schedules it; the fusion stays as it is.

    Raises what scheduling and emitting raise.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(64, 128))
    >>> y = ig.exp(x)
    >>> z = f.output(y / ig.sum(y, 1, keepdim=True))
    >>> p = ig.fuse.plan(f)
    >>> p.before, p.after, p.apart.rows
    (3, 1, ())
    """
    check_fusion(fusion, "plan", ScheduleError)
    before = len(emit(copy_fusion(fusion), target="cuda").kernels)
    made = copy_fusion(fusion)
    auto(made)
    kernels = emit(made, target="cuda").kernels
    return Plan(operations(made, kernels), before, len(kernels), obstacles(made), made)
