"""The result of a measurement and its text form: data only, and nothing in it is trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from idgraph.errors import IdGraphError
from idgraph.schedule.config import KernelConfig

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """One config: microseconds of a run, the least of several; NaN where it was dropped, and ``note`` says why.

    ``note`` also says where a config is the same kernel as an earlier one, and was not run again.

    >>> Measured(KernelConfig(rows=4), 12.5, "the kernels of rule").us
    12.5
    """

    config: KernelConfig
    us: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The best config, and all that was measured, in the order of the search."""

    best: KernelConfig
    measured: tuple[Measured, ...]

    def to_text(self) -> str:
        """JSON."""
        rows = [
            {"config": m.config.to_data(), "us": None if math.isnan(m.us) else m.us, "note": m.note}
            for m in self.measured
        ]
        return json.dumps({"format": FORMAT, "best": self.best.to_data(), "measured": rows})


def record_of(text: str) -> Record | None:
    """The record that a text holds; None for any text that holds none.

    >>> r = Record(KernelConfig(persistent=True), (Measured(KernelConfig(), 3.5),))
    >>> record_of(r.to_text()) == r, record_of("{}"), record_of("[1, ")
    (True, None, None)
    """
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    found = cast("dict[str, Any]", data)
    rows = found.get("measured")
    if found.get("format") != FORMAT or not isinstance(rows, list):
        return None
    best = _config(found.get("best"))
    measured = [_measured(r) for r in cast("Sequence[object]", rows)]
    if best is None or any(m is None for m in measured):
        return None
    return Record(best, tuple(m for m in measured if m is not None))


def _config(data: object) -> KernelConfig | None:
    if not isinstance(data, dict):
        return None
    try:
        return KernelConfig.from_data(cast("Mapping[str, object]", data))
    except IdGraphError:
        return None


def _measured(data: object) -> Measured | None:
    if not isinstance(data, dict):
        return None
    row = cast("dict[str, object]", data)
    config, us, note = _config(row.get("config")), row.get("us"), row.get("note")
    if (
        config is None
        or not isinstance(note, str)
        or isinstance(us, bool)
        or not isinstance(us, (int, float, type(None)))
        or (isinstance(us, int) and us.bit_length() > 64)
    ):
        return None
    return Measured(config, math.nan if us is None else float(us), note)
