"""Refusals of a fusion by target, and vector widths that it does not get, before anybody emits it."""

from __future__ import annotations

from idgraph.errors import IdGraphError, shortened
from idgraph.ir import Fusion
from idgraph.ir.device import TARGETS
from idgraph.kernel.ir import LaneWidth
from idgraph.runtime.program import emit


def refusals_of(fusion: Fusion) -> dict[str, IdGraphError]:
    """The error of each target that refuses the fusion."""
    found: dict[str, IdGraphError] = {}
    for target in TARGETS:
        try:
            shortened(emit)(fusion, target=target)  # as `idgraph.emit` says it
        except IdGraphError as error:
            found[target] = error
    return found


def narrow_widths_of(fusion: Fusion) -> tuple[LaneWidth, ...]:
    """The accesses along vectorised loops that a GPU's kernels make narrower than was asked for."""
    try:
        kernels = emit(fusion, target="cuda").kernels
    except IdGraphError:
        return ()
    return tuple(w for k in kernels for w in k.widths if w.is_narrow)
