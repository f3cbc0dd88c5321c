"""Reports: what a program does to indices, told in tables, JSON and one HTML page.

facts (traffic, collect) -> model (IndexReport) -> tables, plain (JSON); the page is drawn by `idgraph.viz`.
"""

from idgraph.reports.facts import (
    AccessFacts,
    CycleFacts,
    LoadFacts,
    LoopFacts,
    OpaqueFacts,
    OperationFacts,
    SegmentFacts,
    SelfMappingFacts,
    TensorFacts,
    Traffic,
)
from idgraph.reports.model import IndexReport, Part, report, report_parts
from idgraph.reports.traffic import traffic_of

__all__ = [
    "AccessFacts", "CycleFacts", "IndexReport", "LoadFacts", "LoopFacts", "OpaqueFacts", "OperationFacts", "Part",
    "SegmentFacts", "SelfMappingFacts", "TensorFacts", "Traffic", "report", "report_parts", "traffic_of",
]  # fmt: skip
