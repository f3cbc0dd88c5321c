"""The decisions of a program: how gathers and scatters get their elements, and what lies in memory between kernels."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith import Expr
from idgraph.display import Printed
from idgraph.ir import Fusion
from idgraph.ir.decisions import Decision, Format
from idgraph.kernel.ir import KernelModule


@dataclass(frozen=True, slots=True)
class ProgramReport(Printed):
    """``gathers`` and ``scatters`` as `idgraph.schedule.auto` decided them (empty for a schedule by hand), ``kernels``
    the number of launches, ``stored`` the (tensor, elements) of global memory between them, ``formats`` the memory
    formats that were chosen, ``rows`` for each kernel with rows how they are passed over and why, by the schedule or by
    the target's rule.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(64, 1000)), f.input("i", shape=(64, 1), dtype="int64")
    >>> t = f.output(ig.gather(ig.exp(x), 1, i))
    >>> _ = ig.schedule.auto(f)
    >>> report = ig.emit(f, target="python").report
    >>> report.gathers[0].chosen, report.kernels, report.stored
    ('recompute', 1, ())
    """

    gathers: tuple[Decision, ...]
    scatters: tuple[Decision, ...]
    kernels: int
    stored: tuple[tuple[str, Expr], ...]
    formats: tuple[Format, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [str(d) for d in (*self.gathers, *self.scatters, *self.formats)]
        lines += [f"rows of {kernel}: {told}" for kernel, told in self.rows]
        lines.append(f"kernels: {self.kernels}")
        stored = ", ".join(f"{name} ({size} elements)" for name, size in self.stored)
        return "\n".join([*lines, f"in memory between them: {stored or 'nothing'}"])


def report_of(fusion: Fusion, plan: KernelModule) -> ProgramReport:
    """The report of a program."""
    gathers = tuple(d for d in fusion.decisions if d.kind == "gather")
    scatters = tuple(d for d in fusion.decisions if d.kind == "scatter")
    stored = tuple((b.title, b.size) for b in plan.buffers if b.place == "global")
    rows = tuple((k.name, told) for k in plan.kernels for told in k.rows)
    return ProgramReport(gathers, scatters, len(plan.kernels), stored, fusion.formats, rows)
