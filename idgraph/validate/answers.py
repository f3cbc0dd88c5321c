"""The answer of an engine for one operation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scan:
    """The first faulty point (row-major over the loops), its fault code and access; ``writes`` counts right points.

    ``seconds`` is the time spent on points alone, where an engine can tell it from compiling and copying.
    """

    writes: int
    bad: int | None
    code: int = 0
    place: int = 0
    seconds: float | None = None
