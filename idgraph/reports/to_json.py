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

from dataclasses import asdict

from idgraph.cost.report import kernel_row
from idgraph.errors import SourceLine
from idgraph.reports.model import (
    AccessFacts,
    Amount,
    CycleFacts,
    KernelFacts,
    OpaqueFacts,
    OperationFacts,
    ProgramFacts,
    SegmentFacts,
    SuggestionFacts,
    TensorFacts,
    Traffic,
)

SCHEMA = "idgraph-report/4"
Plain = dict[str, object]


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
        "segments": [_segment_to_json(s) for s in r.segments],
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


def _amount(x: Amount) -> int | str:
    return x if isinstance(x, int) else str(x)


def _line_to_json(line: SourceLine | None) -> Plain | None:
    return None if line is None else {"file": line.file, "line": line.line, "code": line.code}


def _segment_to_json(s: SegmentFacts) -> Plain:
    return {
        "number": s.number,
        "name": s.name,
        "tensors": [_tensor_to_json(t) for t in s.tensors],
        "operations": [_operation_to_json(e) for e in s.operations],
        "cycles": [_cycle(c) for c in s.cycles],
        "self_mappings": [
            {"tensor": m.tensor, "first": m.first, "second": m.second, "reason": m.reason} for m in s.self_mappings
        ],
        "traffic": [_traffic_to_json(t) for t in s.traffic],
        "bytes_read": s.bytes_read,
        "bytes_written": s.bytes_written,
        "bytes_between": s.bytes_between,
        "kernels": [_kernel(k) for k in s.kernels],
        "refused": s.refused,
        "calls": [_call(c) for c in s.calls],
    }


def _tensor_to_json(t: TensorFacts) -> Plain:
    strides = None if t.strides is None else list(t.strides)
    facts: Plain = {"name": t.name, "role": t.role, "shape": list(t.shape), "dtype": t.dtype}
    return {**facts, "strides": strides, "line": _line_to_json(t.line)}


def _operation_to_json(e: OperationFacts) -> Plain:
    return {
        "name": e.name,
        "op": e.op,
        "text": e.text,
        "line": _line_to_json(e.line),
        "inlined_at": e.inlined_at,
        "loops": [{"name": x.name, "extent": x.extent, "parallel": x.parallel} for x in e.loops],
        "accesses": [_access(a) for a in e.accesses],
    }


def _access(a: AccessFacts) -> Plain:
    return {
        "kind": a.kind,
        "operand": a.operand,
        "tensor": a.tensor,
        "shape": list(a.shape),
        "dtype": a.dtype,
        "coordinates": list(a.coordinates),
        "address": a.address,
        "place": a.place,
        "predicate": a.predicate,
        "loop": a.loop,
        "step": a.step,
        "pattern": a.pattern,
        "contiguous": a.contiguous,
        "contiguous_along": list(a.contiguous_along),
        "vector_width": a.vector_width,
        "vector_bytes": a.vector_bytes,
        "limit": a.limit,
        "why": a.why,
        "index_bits": a.index_bits,
        "points": _amount(a.points),
        "loads": [{"name": x.name, "tensor": x.tensor, "coordinates": list(x.coordinates)} for x in a.loads],
        "bounds": list(a.bounds),
        "suggestions": None if a.suggestions is None else [_suggestion(c) for c in a.suggestions],
    }


def _suggestion(c: SuggestionFacts) -> Plain:
    return {"text": c.text, "width": c.width, "loop": c.loop, "keeps_result": c.keeps_result}


def _cycle(c: CycleFacts) -> Plain:
    return {
        "graph": c.graph,
        "kind": c.kind,
        "shift": c.shift,
        "modulus": c.modulus,
        "map": c.map,
        "holds": c.holds,
        "resizes": c.resizes,
        "changes_index": c.changes_index,
        "tensors": list(c.tensors),
        "steps": list(c.steps),
        "lines": [_line_to_json(x) for x in c.lines],
        "closed_by": c.closed_by,
        "closing_line": _line_to_json(c.closing_line),
        "consequence": c.consequence,
    }


def _traffic_to_json(t: Traffic) -> Plain:
    return {
        "tensor": t.tensor,
        "role": t.role,
        "read": t.read,
        "written": t.written,
        "size": t.size,
        "exact": t.exact,
        "why": t.why,
    }


def _kernel(k: KernelFacts) -> Plain:
    return {
        "name": k.name,
        "operations": list(k.operations),
        "boundaries": [asdict(b) for b in k.boundaries],
        "source": k.source,
        "cost": kernel_row(k.cost),
        "measured_us": k.measured_us,
    }


def _call(c: OpaqueFacts) -> Plain:
    return {"name": c.name, "op": c.op, "reason": c.reason, "line": _line_to_json(c.line)}
