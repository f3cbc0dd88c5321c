"""A report as plain data, for scripts: the same keys in the same order, always; "schema" changes when they do.

::

    schema      "idgraph-report/4"
    name        of the program
    schedule    "as given" or "auto"
    totals      counts: operations accesses contiguous vectorisable data_dependent cycles resize_cycles
                changing_cycles opaque_calls kernels distinct_kernels (compiled; the others are those of an equal
                segment); bytes: bytes_read bytes_written bytes_between; exact: no byte count is
                only a bound
    seconds     stage of the calls so far -> what it has taken
    mapped      ATen name -> number of calls
    opaque      ATen name -> why it is not mapped
    segments    in the order in which they run, each:
      number name bytes_read bytes_written bytes_between
      tensors        inputs and outputs: name role shape dtype strides (elements; null: row-major) line
      operations     name (of its output) op text line inlined_at
        loops          name extent parallel
        accesses       kind ("read", "write") operand tensor shape dtype coordinates address (elements) predicate loop
                       step pattern contiguous contiguous_along vector_width (elements) vector_bytes limit why
                       index_bits points bounds, as in `idgraph.reports.AccessFacts`
          loads          name tensor coordinates
          suggestions          changes that would allow a wider access: text width (elements) loop
                         keeps_result; null: not tried
      cycles         graph kind shift modulus net resizes changes_index tensors steps lines closed_by closing_line
                     consequence
      self_mappings  tensor first second reason
      traffic        tensor role read written size (bytes) exact why, in the kernels as emitted
      kernels        name operations (tensors that they make) source measured_us (null: not run), cost (numbers of
                     `idgraph.cost.report.KernelCost`)
        boundaries   why it is not part of an earlier kernel: earlier tensor how cause because
      refused        why there are no kernels; bytes are then null
      calls          the opaque ones after it: name op reason line

A line is {"file", "line", "code"} or null. A number that depends on symbols is text, like "n*128". Coordinates,
addresses and predicates are text in loop variables, which `ig.simplify` reads.
"""

from __future__ import annotations

from typing import cast

from idgraph.cost.report import KernelCost, kernel_row
from idgraph.errors import SourceLine
from idgraph.reports.model import (
    AccessFacts,
    Boundary,
    CycleFacts,
    KernelFacts,
    LoadFacts,
    LoopFacts,
    OpaqueFacts,
    OperationFacts,
    ProgramFacts,
    SegmentFacts,
    SelfMappingFacts,
    SuggestionFacts,
    TensorFacts,
    Traffic,
)

SCHEMA = "idgraph-report/4"
Plain = dict[str, object]
_KEYS: dict[type, str] = {
    SourceLine: "file line code",
    SegmentFacts: "number name tensors operations cycles self_mappings traffic bytes_read bytes_written bytes_between "
    "kernels refused calls",
    TensorFacts: "name role shape dtype strides line",
    OperationFacts: "name op text line inlined_at loops accesses",
    LoopFacts: "name extent parallel",
    AccessFacts: "kind operand tensor shape dtype coordinates address place predicate loop step pattern contiguous "
    "contiguous_along vector_width vector_bytes limit why index_bits points loads bounds suggestions",
    LoadFacts: "name tensor coordinates",
    SuggestionFacts: "text width loop keeps_result",
    CycleFacts: "graph kind shift modulus map holds resizes changes_index tensors steps lines closed_by closing_line "
    "consequence",
    SelfMappingFacts: "tensor first second reason",
    Traffic: "tensor role read written size exact why",
    KernelFacts: "name operations boundaries source cost measured_us",
    Boundary: "earlier tensor how cause because",
    OpaqueFacts: "name op reason line",
}


def plain_report(r: ProgramFacts) -> Plain:
    """The whole report; the table above names every key."""
    return {
        "schema": SCHEMA,
        "name": r.name,
        "schedule": r.schedule,
        "totals": totals(r),
        "seconds": {stage: round(spent, 4) for stage, spent in r.seconds.items()},
        "mapped": dict(sorted(r.mapped.items())),
        "opaque": dict(sorted(r.opaque.items())),
        "segments": [_plain(s) for s in r.segments],
    }


def totals(r: ProgramFacts) -> Plain:
    """Counts and bytes of the whole program."""
    return {
        "operations": sum(len(s.operations) for s in r.segments),
        "accesses": len(r.accesses),
        "contiguous": len(r.contiguous),
        "vectorisable": len(r.vectorisable),
        "data_dependent": len(r.data_dependent),
        "cycles": len(r.cycles),
        "resize_cycles": len(r.resize_cycles),
        "changing_cycles": sum(c.changes_index for c in r.cycles),
        "opaque_calls": len(r.calls),
        "kernels": len(r.kernels),
        "distinct_kernels": r.kernels.distinct,
        "bytes_read": r.bytes_read,
        "bytes_written": r.bytes_written,
        "bytes_between": r.bytes_between,
        "exact": r.exact,
    }


def _plain(x: object) -> object:
    """Facts as objects of their keys; an amount that depends on symbols as text."""
    keys = _KEYS.get(type(x))
    if keys is not None:
        return {key: _plain(getattr(x, key)) for key in keys.split()}
    if isinstance(x, KernelCost):
        return kernel_row(x)
    if isinstance(x, tuple):
        return [_plain(y) for y in cast("tuple[object, ...]", x)]
    return x if x is None or isinstance(x, int | float | str) else str(x)
