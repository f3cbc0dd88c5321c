"""Index maps of a random fusion that may be scheduled illegally."""

from __future__ import annotations

from hypothesis import note, reject

import idgraph as ig
from idgraph.ir import Fusion


def model_of(f: Fusion) -> ig.IdModel:
    """The index maps; an illegal inlining leaves the example out."""
    note(str(f))
    m = ig.IdModel(f)
    try:
        m.verify()
    except ig.ScheduleError:
        reject()
    return m
