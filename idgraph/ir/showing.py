"""Views of a fusion: its text, its loops, its picture."""

from __future__ import annotations

from typing import cast

from idgraph.display import Shown, render, show
from idgraph.errors import OperationError, arguments, shortened
from idgraph.ir.printing import print_fusion
from idgraph.ir.protocols import FusionLike


class ShownFusion(Shown):
    """The forms of a fusion for people. Its repr is text that `idgraph.parse` reads."""

    @shortened
    def to_dot(self, **options: object) -> str:
        """Graphviz text of tensors and operations; see `idgraph.viz`."""
        return render("dot", self, **options)

    @shortened
    def to_svg(self, **options: object) -> str:
        """A self-contained SVG picture of tensors and operations; needs no graphviz."""
        return render("svg", self, **options)

    @arguments(OperationError)
    def show(self, *, loops: bool = False) -> None:
        """Print the text form; with ``loops`` the nests of loops as scheduled, in the order in which they run.

        In colour where standard output is a terminal. Raises `ScheduleError` where no loop nest does the schedule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(30,)) * 2.0)
        >>> t.split(0, 8).parallelize(1, "vectorize").fusion.show(loops=True)
        for i0 < 4:
          vectorize i1 < 8:
            t1 = mul(a, 2.0)  if i0*8 + i1 < 30
        """
        show(render("loops", self) if loops else str(self))

    def __str__(self) -> str:
        return print_fusion(cast("FusionLike", self))

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownFusion) and (self is other or str(self) == str(other))

    def __hash__(self) -> int:
        return hash(cast("FusionLike", self).name)
