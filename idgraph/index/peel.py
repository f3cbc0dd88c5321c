"""A loop that no vector divides, or whose first element is not aligned: whole vectors with single elements around."""

from __future__ import annotations

from dataclasses import dataclass

from idgraph.arith import as_expr, congruence, simplify
from idgraph.index.access_function import AccessFunction
from idgraph.index.lane_runs import address_along
from idgraph.index.loop import LoopVariable
from idgraph.ir import item_size


@dataclass(frozen=True, slots=True)
class Peel:
    """``head`` elements alone, ``vectors`` aligned accesses of ``width`` elements, ``tail`` elements alone.

    Where each row begins at another alignment, ``head`` is None, ``vectors`` is the least number of them and ``tail``
    None. The automatic schedule peels by itself; a loop that is split by the width and vectorised is peeled as well.
    """

    width: int
    head: int | None
    vectors: int
    tail: int | None

    def __str__(self) -> str:
        of = f"{self.vectors} access{'es' if self.vectors > 1 else ''} of {self.width}"
        if self.head is None or self.tail is None:
            return (
                f"{self.width} elements if the loop is peeled: {of} or more a row, up to {self.width - 1} alone before"
            )
        alone = self.head + self.tail
        return f"{self.width} elements if the loop is peeled: {of} and {alone} alone"


def peel_of(access: AccessFunction, at: LoopVariable, width: int) -> Peel | None:
    """The peeling of a loop whose steps lie side by side; None where no whole vector is left."""
    aligned = access.tensor.alignment % (width * item_size(access.tensor.dtype)) == 0
    cut = any(at.symbol in c.symbols for c in access.conditions)
    if not (aligned and at.extent.is_const) or cut or width < 2 or access.buffer.place == "register":
        return None
    n = int(at.extent)
    first = simplify(address_along(access, at).substitute({at.symbol: as_expr(0)}))
    modulus, rest = congruence(first)
    if modulus % width:
        least = (n - width + 1) // width
        return Peel(width, None, least, None) if least > 0 else None
    head = -rest % width
    vectors = (n - head) // width
    return Peel(width, head, vectors, n - head - vectors * width) if vectors > 0 else None
