"""One step of a schedule, as a tensor's log keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from idgraph.errors import SourceLine
from idgraph.ir.exprs import Attr, plain_text


@dataclass(frozen=True, slots=True)
class Step:
    """One logged schedule step: the method's name and its arguments (axes by name where domains were given).

    ``line`` is the user's. ``at`` grows from step to step over all tensors of a fusion: replayed in another order, a
    step may not be legal.
    """

    name: str
    args: tuple[Attr, ...]
    kwargs: Mapping[str, Attr]
    at: int = field(default=0, compare=False)
    line: SourceLine | None = field(default=None, compare=False)

    def __str__(self) -> str:
        given = [*map(plain_text, self.args), *(f"{k}={plain_text(v)}" for k, v in self.kwargs.items())]
        return f"{self.name}({', '.join(given)})"
