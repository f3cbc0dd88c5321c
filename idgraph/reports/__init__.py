"""Reports: what a program does to indices, as tables, JSON and one HTML page.

facts (collect, emitted) -> model (IndexReport) -> tables, plain (JSON); the page is drawn by `idgraph.viz`.
Importing this package is light; the rest is loaded with the first report.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from idgraph.errors import IdGraphError, arguments, no_attribute, one_of, short_repr
from idgraph.index import IdModel
from idgraph.ir import Fusion
from idgraph.ir.device import TargetName
from idgraph.loading import LOADING, load

if TYPE_CHECKING:
    from idgraph.cost import Device
    from idgraph.reports.collect import Boundary, KernelFacts
    from idgraph.reports.metric_tables import TABLES, Metrics, metric_parts, metrics
    from idgraph.reports.model import (
        AccessFacts,
        CycleFacts,
        LoadFacts,
        LoopFacts,
        OpaqueFacts,
        OperationFacts,
        ProgramKernels,
        SegmentFacts,
        SelfMappingFacts,
        SuggestionFacts,
        TensorFacts,
        Traffic,
    )
    from idgraph.reports.program_report import IndexReport, Part, ReportDiff, diff, report_parts

__all__ = [
    "TABLES", "AccessFacts", "Boundary", "CycleFacts", "IndexReport", "KernelFacts", "LoadFacts", "LoopFacts",
    "Metrics", "OpaqueFacts", "OperationFacts", "Part", "ProgramKernels", "ReportDiff", "SegmentFacts",
    "SelfMappingFacts", "SuggestionFacts", "TensorFacts", "Traffic", "diff", "metric_parts", "metrics", "report",
    "report_parts",
]  # fmt: skip

_LATER = {
    "Boundary": "collect", "IndexReport": "program_report", "KernelFacts": "collect", "Metrics": "metric_tables",
    "Part": "program_report", "ReportDiff": "program_report", "TABLES": "metric_tables", "diff": "program_report",
    "metric_parts": "metric_tables", "metrics": "metric_tables", "report_parts": "program_report",
}  # fmt: skip


@arguments(IdGraphError, first=True)
def report(
    f: Fusion,
    *,
    model: IdModel | None = None,
    auto: bool = False,
    suggestions: int | None = None,
    target: TargetName = "cuda",
    device: Device | str | None = None,
    symbols: Mapping[str, int] | None = None,
    measure: bool = False,
) -> IndexReport:
    """A fusion's indices and kernels, as it is scheduled now; ``auto``: as `ig.schedule.auto` would schedule a copy.

    Accesses of less than 16 bytes come with the changes that would allow more, each tried on a copy of the fusion: for
    the ``suggestions`` accesses with the most points (default: 32 of a small fusion, fewer of one with hundreds of
    operations; 0: none).

    Its kernels are those that `ig.emit` makes for ``target``, with the cost of each on ``device`` (as `ig.cost` takes
    it), why it is not part of an earlier one, and its source. Sizes that are symbols need ``symbols`` for that;
    ``measure`` runs the program here and reports the time of each kernel.

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
        from idgraph.ir.device import device_of  # noqa: PLC0415 - as above
        from idgraph.reports.collect import Emission  # noqa: PLC0415 - as below
        from idgraph.reports.program_report import report_fusion  # noqa: PLC0415 - a fifth of the time that the rest takes
        from idgraph.runtime.cuda.numba_cuda import need_device as need_cuda  # noqa: PLC0415 - as above

    if target not in get_args(TargetName):
        raise IdGraphError(f"report: target is {short_repr(target)}", hint=one_of(target, get_args(TargetName)))
    if device is not None:
        device_of(device)
    if measure and target == "cuda":
        need_cuda()
    return report_fusion(
        f, model, auto, suggestions, Emission(target, device, {} if symbols is None else dict(symbols), measure)
    )


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise no_attribute(sys.modules[__name__], name)
    return getattr(load(f"{__name__}.{_LATER.get(name, 'model')}"), name)
