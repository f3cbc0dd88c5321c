"""The report of `Fusion.verify`: what `emit` would refuse, and widths that it would not give, found when looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from idgraph.display import Printed
from idgraph.errors import IdGraphError
from idgraph.ir.protocols import FusionLike
from idgraph.loading import load

_ROOM = "idgraph.runtime.refusals"  # behind this one: loaded when the report is looked at


@dataclass(frozen=True, slots=True)
class Verification(Printed):
    """The answer of `emit` for a well-formed ``fusion`` as it is now; true where no target refuses it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(f.input("x", shape=(6, 50)) * 2.0)
    >>> f.verify()
    f: nothing is refused
    >>> _ = y.split(1, 4).parallelize(2, "vectorize")
    >>> print(f.verify())
    f: nothing is refused
      t1: i2 over t1: asked 4, got 2
      t1: i2 over x: asked 4, got 2
    """

    fusion: FusionLike

    @property
    def refusals(self) -> Mapping[str, IdGraphError]:
        """The error of each target ("python", "numpy", "cpu", "cuda") that refuses the fusion."""
        return cast("Mapping[str, IdGraphError]", load(_ROOM).refusals_of(self.fusion))

    @property
    def widths(self) -> tuple[object, ...]:
        """The vector widths asked for that the target "cuda" does not give, as `Kernel.widths` has them."""
        return cast("tuple[object, ...]", load(_ROOM).narrow_widths_of(self.fusion))

    @property
    def ok(self) -> bool:
        """Whether no target refuses the fusion."""
        return not self.refusals

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        refused: dict[str, list[str]] = {}
        for target, error in self.refusals.items():
            refused.setdefault(str(error), []).append(target)
        told = [f"  refused for {', '.join(targets)}: {error}" for error, targets in refused.items()]
        head = f"{self.fusion.name}: " + ("refused" if refused else "nothing is refused")
        return "\n".join([head, *told, *sorted(f"  {w}" for w in self.widths)])
