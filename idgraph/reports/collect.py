"""From a fusion to the facts of its segment: cycles, index maps and what they allow, memory traffic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from idgraph.arith import Expr
from idgraph.errors import IdGraphError
from idgraph.graphs import Cycle
from idgraph.graphs.cycles import e_tensor
from idgraph.graphs.domain_graph import SelfMapping
from idgraph.index import Access, IdModel, LoopVariable
from idgraph.index.vector_width import Limit, loaded_along
from idgraph.ir import Fusion, Resize, Roll, Stride, Tensor, TensorExpr, item_size
from idgraph.reports.emitted import AsEmitted, Emission, as_emitted
from idgraph.reports.facts import (
    AccessFacts,
    CycleFacts,
    LoadFacts,
    LoopFacts,
    OpaqueFacts,
    OperationFacts,
    Pattern,
    SegmentFacts,
    SelfMappingFacts,
    SuggestionFacts,
    TensorFacts,
    amount,
    total,
)

Advance = Callable[[int], None]


def segment_facts(
    f: Fusion,
    model: IdModel | None = None,
    number: int = 0,
    calls: tuple[OpaqueFacts, ...] = (),
    advance: Advance | None = None,
    suggestions: int | None = None,
    how: Emission | None = None,
) -> SegmentFacts:
    """Everything told of one fusion as it is scheduled now; ``advance`` hears of every operation that is done.

    ``how`` says for which target and device its kernels are made.

    ``suggestions`` is the number of accesses for which changes are tried (see `with_suggestions`).
    """
    if suggestions is not None and suggestions < 0:
        raise IdGraphError(
            f"suggestions is {suggestions}, not a number of accesses", hint="0 for none, None for as many as are cheap"
        )
    m = model if model is not None else IdModel(f)
    m.verify()
    operations: list[OperationFacts] = []
    for e in f.exprs:
        operations.append(operation_facts(m, e))
        if advance is not None:
            advance(1)
    operations = with_suggestions(m, operations, _affordable(f) if suggestions is None else suggestions)
    made: AsEmitted = as_emitted(f, how if how is not None else Emission())
    told = (*f.inputs, *(t for t in f.outputs if t.definition is not None))
    return SegmentFacts(
        number, f.name, tuple(_tensor(f, t) for t in told), tuple(operations),
        tuple(map(cycle_facts, m.exact.cycles())),
        tuple(_self_mapping(s) for s in m.exact.self_mappings),
        made.traffic, calls, made.kernels, made.refused, f,
    )  # fmt: skip


_TRIES = 2400  # operations that may be rebuilt, times accesses: each change is tried on a copy of the fusion


def _affordable(f: Fusion) -> int:
    return max(2, min(32, _TRIES // max(1, len(f.exprs))))


def with_suggestions(m: IdModel, operations: list[OperationFacts], limit: int) -> list[OperationFacts]:
    """The operations, with the changes that would allow wider vectors at the ``limit`` narrow accesses of most points.

    Accesses that look alike (those of a model's layers) are asked about once.
    """
    found = [(e, k) for e, op in enumerate(operations) for k, a in enumerate(op.accesses) if a.narrow]
    found.sort(key=lambda at: -_points(operations[at[0]].accesses[at[1]]))
    alike: dict[tuple[object, ...], None] = {}
    made = list(operations)
    for e, k in found:
        a = operations[e].accesses[k]
        looks = (operations[e].op, a.kind, a.shape, a.dtype, a.where, a.loop, a.why)
        if len(alike) == limit or looks in alike:
            continue
        alike[looks] = None
        access = m.index_map(m.fusion.exprs[e]).accesses[k]
        loop = lane_loop(access.loops)
        tried = access.explain_vector_width(loop).suggestions() if loop is not None else ()
        told = tuple(SuggestionFacts(c.text, c.width, c.loop, c.keeps_result) for c in tried)
        accesses = list(made[e].accesses)
        accesses[k] = replace(a, suggestions=told)
        made[e] = replace(made[e], accesses=tuple(accesses))
    return made


def _points(a: AccessFacts) -> int:
    return a.points if isinstance(a.points, int) else 0


def _self_mapping(s: SelfMapping) -> SelfMappingFacts:
    return SelfMappingFacts(s.tensor.name, str(s.first), str(s.second), str(s.reason))


def _number(x: Expr) -> int | str:
    made = amount(x)
    return made if isinstance(made, int) else str(made)


def _shape(t: Tensor) -> tuple[int | str, ...]:
    return tuple(_number(d.extent) for d in t.axes)


def _tensor(f: Fusion, t: Tensor) -> TensorFacts:
    role: Literal["input", "output"] = "input" if t.definition is None else "output"
    given = t.domain.strides
    strides = None if all(s is None for s in given) else tuple("free" if s is None else _number(s) for s in given)
    return TensorFacts(t.name, role, _shape(t), t.dtype, strides, t.source_line)


def operation_facts(m: IdModel, e: TensorExpr) -> OperationFacts:
    """One operation with all of its accesses."""
    found = m.index_map(e)
    loops = tuple(LoopFacts(x.name, _number(x.extent), x.parallel) for x in found.loops)
    accesses = tuple(access_facts(a) for a in found.accesses)
    return OperationFacts(e.output.name, e.op, repr(e), e.source_line, loops, e.output.inline_position, accesses)


def lane_loop(loops: tuple[LoopVariable, ...]) -> LoopVariable | None:
    """The loop whose steps are lanes: the vectorised one, else the innermost with more than one step."""
    wide = [x for x in loops if x.extent != 1]
    return next((x for x in wide if x.parallel == "vectorize"), wide[-1] if wide else None)


def access_facts(a: Access) -> AccessFacts:
    """The facts of one access, and the proofs about it."""
    loop = lane_loop(a.loops)
    step, pattern = _pattern(a, loop)
    width, why = 1, "one element"
    limit: Limit = "extent"
    if loop is not None:
        found = a.explain_vector_width(loop)
        width = found.width
        limit = found.limit
        why = _why(found.reason, pattern, loop, step)
    along = tuple(x.name for x in a.loops if x.extent != 1 and a.contiguous(x))
    loads = tuple(LoadFacts(n, t.name, tuple(map(str, where))) for n, (t, where) in a.loads.items())
    points = total([1])
    for x in a.loops:
        points = amount(x.extent * points)
    return AccessFacts(
        "write" if a.is_write else "read", a.operand, a.tensor.name, _shape(a.tensor), a.tensor.dtype,
        tuple(map(str, a.coordinates)), str(a.address), a.buffer.place, str(a.predicate),
        loop.name if loop is not None else "", step, pattern, along, width, width * item_size(a.tensor.dtype), limit,
        why, a.index_bits, points, loads, tuple(map(str, a.load_bounds)), access=a,
    )  # fmt: skip


def _pattern(a: Access, loop: LoopVariable | None) -> tuple[str | None, Pattern]:
    """The stride along the loop in elements, and the name of its pattern."""
    if loop is None:
        return "0", "one element"
    if loaded_along(a, loop):
        return None, "data-dependent"
    found = a.explain_contiguous(loop)
    if found:
        return "1", "contiguous"
    if found.step == 0:
        return "0", "same element"
    if loop.name in found.step.names:
        return None, "irregular"
    return str(found.step), "strided"


def _why(reason: str, pattern: Pattern, loop: LoopVariable, step: str | None) -> str:
    if pattern == "same element":
        return f"every step of {loop.name} touches the same element: one load serves them all"
    if pattern == "strided":
        return f"a step of {loop.name} moves {step} elements"
    return reason


def cycle_facts(c: Cycle[Any]) -> CycleFacts:
    """A cycle in words, with the lines that made it."""
    resizes = any(isinstance(e, (Resize, Roll, Stride)) for e in c.exprs)
    steps = tuple(f"{e}   {e_tensor(e)}".rstrip() for e in c.exprs)
    closing = c.closing
    return CycleFacts(
        c.graph, c.kind, None if c.shift is None else str(c.shift), None if c.modulus is None else str(c.modulus),
        str(c.map), str(c.holds), resizes, c.changes_index, tuple(t.name for t in c.tensors), steps, c.lines,
        None if closing is None else f"{closing.output.name} = {closing.op}",
        None if closing is None else closing.source_line, _consequence(c), c,
    )  # fmt: skip


def _consequence(c: Cycle[Any]) -> str:
    if not c.changes_index:
        return "harmless: once around gives the same coordinate back"
    return (
        f"a search over the {c.graph} graph may go round and return {c.map} where c is right; the index graph "
        "keeps the uses apart, so the coordinates in this report do not"
    )
