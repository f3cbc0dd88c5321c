"""Reports: what a program does to indices, told in tables, JSON and one HTML page.

facts (traffic, collect) -> model (IndexReport) -> tables, plain (JSON); the page is drawn by `idgraph.viz`.
Importing this package is light; the rest is loaded with the first report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from idgraph.errors import IdGraphError, arguments
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.loading import LOADING, load

if TYPE_CHECKING:
    from idgraph.reports.facts import (
        AccessFacts,
        CycleFacts,
        LoadFacts,
        LoopFacts,
        OpaqueFacts,
        OperationFacts,
        SegmentFacts,
        SelfMappingFacts,
        SuggestionFacts,
        TensorFacts,
        Traffic,
    )
    from idgraph.reports.metric_tables import TABLES, Metrics, metric_parts, metrics
    from idgraph.reports.model import IndexReport, Part, report_parts
    from idgraph.reports.traffic import traffic_of

__all__ = [
    "TABLES", "AccessFacts", "CycleFacts", "IndexReport", "LoadFacts", "LoopFacts", "Metrics", "OpaqueFacts",
    "OperationFacts", "Part", "SegmentFacts", "SelfMappingFacts", "SuggestionFacts", "TensorFacts", "Traffic",
    "metric_parts", "metrics", "report", "report_parts", "traffic_of",
]  # fmt: skip

_LATER = {
    "IndexReport": "model", "Metrics": "metric_tables", "Part": "model", "TABLES": "metric_tables",
    "metric_parts": "metric_tables", "metrics": "metric_tables", "report_parts": "model", "traffic_of": "traffic",
}  # fmt: skip


@arguments(IdGraphError, first=True)
def report(
    f: Fusion, *, model: IdModel | None = None, auto: bool = False, suggestions: int | None = None
) -> IndexReport:
    """A fusion's indices, as it is scheduled now; ``auto``: as `ig.schedule.auto` would schedule a copy.

    Accesses of less than 16 bytes come with the changes that would allow more, each tried on a copy of the fusion: for
    the ``suggestions`` accesses with the most points (default: 32 of a small fusion, fewer of one with hundreds of
    operations; 0: none).

    For an imported model there is ``imp.report()``. Raises `ScheduleError` for a schedule that is not legal.

    >>> import idgraph as ig
    >>> f = ig.Fusion("turn")
    >>> t = f.output(f.input("x", shape=(8, 16)).T + 1.0)
    >>> r = ig.report(f)
    >>> a = r.segments[0].operations[0].accesses[1]
    >>> a.tensor, a.loop, a.step, a.pattern, a.contiguous_along, a.why
    ('x', 'i1', '16', 'strided', ('i0',), 'a step of i1 moves 16 elements')
    >>> r.bytes_read, r.bytes_written  # bytes
    (512, 512)
    """
    with LOADING:
        from idgraph.reports.model import report_fusion  # noqa: PLC0415 - a fifth of the time that the rest takes

    return report_fusion(f, model, auto, suggestions)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(load(f"{__name__}.{_LATER.get(name, 'facts')}"), name)
