"""From a fusion to the facts of its segment: cycles, index maps and what they allow, memory traffic."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

from idgraph.arith import Expr
from idgraph.codegen.printers.scalar import site_numbers
from idgraph.cost import Device, cost
from idgraph.cost.report import Cost, KernelCost
from idgraph.errors import IdGraphError
from idgraph.fuse import Obstacle, obstacles
from idgraph.graphs import Cycle
from idgraph.graphs.cycles import e_tensor
from idgraph.graphs.exact import SelfMapping
from idgraph.index import Access, IdModel, LoopVariable
from idgraph.index.vector_width import Limit, loaded_along
from idgraph.ir import Fusion, Resize, Roll, Stride, Tensor, TensorExpr, item_size
from idgraph.ir.clone import clone_fusion
from idgraph.ir.printer import numbered_text
from idgraph.kernel.ir import Buffer, Comment, Kernel, walk
from idgraph.reports.model import (
    AccessFacts,
    Boundary,
    CycleFacts,
    KernelFacts,
    LoadFacts,
    LoopFacts,
    OpaqueFacts,
    OperationFacts,
    Pattern,
    SegmentFacts,
    SelfMappingFacts,
    SuggestionFacts,
    TensorFacts,
    Traffic,
    amount,
    total,
)
from idgraph.runtime import Target, emit
from idgraph.runtime.program import Program
from idgraph.runtime.tuning.trial import prepare_launch, shortest
from idgraph.runtime.tuning.tuner import Tuner
from idgraph.schedule import auto
from idgraph.schedule.config import KernelConfig
from idgraph.validate.value_check import random_inputs

Where = Literal["cpu", "cuda"]


MOST = 8  # kernels of a program that are timed one by one: each needs a program of its own


def program_time(program: Program, symbols: Mapping[str, int]) -> float:
    """Microseconds of a run of all kernels, the least of several; the inputs are random."""
    ready = prepare_launch(program, random_inputs(program.fusion, symbols=symbols), symbols)
    ready.launch()
    return shortest(ready.launch, "cuda" if program.target == "cuda" else "cpu")


def kernel_times(program: Program, symbols: Mapping[str, int]) -> dict[str, float]:
    """Microseconds of each kernel: of the program up to it, less of the program up to the one before.

    A kernel run by itself would read buffers that were never written. Empty for a program of more than `MOST` kernels.
    """
    if len(program.kernels) > MOST:
        return {}
    made: dict[str, float] = {}
    before = 0.0
    for n, k in enumerate(program.kernels, 1):
        plan = replace(program.plan, kernels=program.plan.kernels[:n])
        whole = n == len(program.kernels)
        part = program if whole else Program(program.fusion, program.target, plan, program.cache)
        until = program_time(part, symbols)
        made[k.name] = max(until - before, 0.0)
        before = max(until, before)
    return made


def _time(f: Fusion, where: Where, symbols: Mapping[str, int]) -> float:
    program = emit(f, where)
    ready = prepare_launch(program, random_inputs(f, symbols=symbols), symbols)
    ready.launch()
    return shortest(ready.launch, where)


def slow_pairs(
    f: Fusion, pairs: Iterable[Obstacle], where: Where, symbols: Mapping[str, int]
) -> Iterator[tuple[Obstacle, float, float]]:
    """Each pair that can be aligned, with microseconds of the program with the two apart and together."""
    apart: float | None = None
    for o in pairs:
        if o.alignment is None:
            continue
        fused = clone_fusion(f)
        try:
            o.alignment.apply(fused)
            together = _time(fused, where, symbols)
        except IdGraphError:
            continue  # the steps align the pair, and the program as a whole cannot be emitted with them
        apart = _time(f, where, symbols) if apart is None else apart
        yield o, apart, together


def persistent_times(f: Fusion, where: Where, symbols: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Microseconds with rows held between passes and without, where that makes other kernels."""
    texts: dict[bool, str] = {}
    times: dict[bool, float] = {}
    notes: list[str] = []
    kernels = 0
    for kept in (True, False):
        copy, config = clone_fusion(f), KernelConfig(persistent=kept)
        try:
            auto(copy, config=config)
            program = emit(copy, where)
            texts[kept], kernels = program.source, len(program.kernels)
        except IdGraphError as error:
            notes.append(f"persistent={kept}: {error.what}"[:200])
    if len(texts) == 2 and texts[True] == texts[False]:
        return
    for kept in texts:
        copy, config = clone_fusion(f), KernelConfig(persistent=kept)
        auto(copy, config=config)
        times[kept] = _time(copy, where, symbols)
    if times:
        chosen = min(times, key=lambda k: times[k])
        yield {
            "kernels": kernels, "persistent_us": times.get(True), "looped_us": times.get(False),
            "chosen": "persistent" if chosen else "looped", "note": "; ".join(notes) or None,
        }  # fmt: skip


def autotuned(f: Fusion, where: Where, timer: Callable[..., float] | None = None) -> Iterator[dict[str, Any]]:
    """Every config that the tuner tried."""
    found = (Tuner() if timer is None else Tuner(timer=timer)).tune(clone_fusion(f), where)
    for m in found.measured:
        yield {
            "config": str(m.config), "us": None if math.isnan(m.us) else m.us, "chosen": m.config == found.config,
            "note": m.note or None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Emission:
    """For which ``target`` and ``device`` kernels are made, with numbers for ``symbols``; ``measure`` times them.

    ``program`` are the kernels where they are made already; without ``boundaries`` nothing says what keeps them apart.
    """

    target: Target = "cuda"
    device: Device | str | None = None
    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    measure: bool = False
    program: Program | None = None
    boundaries: bool = True


@dataclass(frozen=True, slots=True)
class AsEmitted:
    """The kernels of one fusion and the bytes of its tensors, or why there are none."""

    kernels: tuple[KernelFacts, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    refused: str = ""
    identity: str = ""


def kernel_operations(kernel: Kernel) -> tuple[str, ...]:
    """Names of the tensors that the operations of a kernel make, as its text has them."""
    found: dict[str, None] = {}
    decoder = json.JSONDecoder()
    for s in walk(kernel.body):
        if isinstance(s, Comment) and s.text.startswith('"'):
            name, end = decoder.raw_decode(s.text)
            if s.text[end:].startswith((" = ", " starts as ")):
                found[str(name)] = None
    return tuple(found)


def same_kernel(program: Program) -> dict[str, set[str]]:
    """The kernels by the tensors that their operations make."""
    made: dict[str, set[str]] = {}
    for k in program.kernels:
        for name in kernel_operations(k):
            made.setdefault(name, set()).add(k.name)
    return made


def as_emitted(f: Fusion, how: Emission) -> AsEmitted:
    """The kernels of a fusion as it is scheduled; ``refused`` where it cannot be emitted, or a size has no number."""
    if not f.exprs:
        return AsEmitted()
    missing = [s for s in f.symbols if s not in how.symbols]
    if missing:
        return AsEmitted(refused=f"symbol {missing[0]} has no number: report(..., symbols={{{missing[0]!r}: ...}})")
    try:
        program = how.program if how.program is not None else emit(f, how.target)
        used = {n: v for n, v in how.symbols.items() if n in f.symbols}
        told = cost(program, how.device, symbols=used)
        pairs: Sequence[Obstacle] = obstacles(f) if how.boundaries and len(program.kernels) > 1 else ()
    except IdGraphError as error:
        return AsEmitted(refused=error.what)
    times = kernel_times(program, used) if how.measure else {}
    made: list[KernelFacts] = []
    for k, c in zip(program.kernels, told.kernels, strict=True):
        own = kernel_operations(k)
        apart = tuple(_boundaries(c, made, own, pairs))
        made.append(KernelFacts(k.name, own, apart, program.kernel_source(k), c, times.get(k.name)))
    buffers = {b.title: b for b in program.plan.buffers}
    traffic = tuple(_traffic(buffers[tensor], f, used, told) for tensor in _touched(told))
    own = any(site_numbers(k) for k in program.kernels)
    return AsEmitted(tuple(made), traffic, identity="" if own else numbered_text(f))


def _touched(told: Cost) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.tensor for k in told.kernels for t in k.tensors))


_ROLES: Mapping[str, Literal["input", "output", "intermediate"]] = {
    "input": "input", "output": "output", "global": "intermediate",
}  # fmt: skip


def _traffic(b: Buffer, f: Fusion, sizes: Mapping[str, int], told: Cost) -> Traffic:
    """The bytes of one tensor over all kernels."""
    tensor = b.title
    elements = prod(int(d.extent.evaluate(dict(sizes))) for d in f[tensor].axes)
    rows = [t for k in told.kernels for t in k.tensors if t.tensor == tensor]
    exact = all(t.exact for t in rows)
    return Traffic(
        tensor, _ROLES[b.place], sum(t.bytes_read for t in rows), sum(t.bytes_written for t in rows),
        elements * item_size(b.dtype), exact, "" if exact else "from a sample, or loaded indices all different",
    )  # fmt: skip


def _boundaries(
    own: KernelCost, earlier: Sequence[KernelFacts], operations: Iterable[str], pairs: Sequence[Obstacle]
) -> Iterable[Boundary]:
    """For each tensor shared with an earlier kernel, the nearest one, what keeps the two apart."""
    mine = set(operations)
    reads = {t.tensor for t in own.tensors if t.bytes_read}
    for tensor in dict.fromkeys(t.tensor for t in own.tensors):
        for k in reversed(earlier):
            theirs = next((t for t in k.cost.tensors if t.tensor == tensor), None)
            if theirs is None or (tensor not in reads and not theirs.bytes_read):
                continue
            how = "stores" if theirs.bytes_written else "reads"
            o = _obstacle_between(set(k.operations), mine, tensor, pairs)
            yield Boundary(
                k.name, tensor, how, "" if o is None else o.cause, "" if o is None else "; ".join(o.because)
            )  # fmt: skip
            break


def _obstacle_between(theirs: set[str], mine: set[str], tensor: str, pairs: Sequence[Obstacle]) -> Obstacle | None:
    """The obstacle between operations of the two kernels: over this tensor, else over any."""
    found = [
        o for o in pairs
        if (o.a.output.name in theirs and o.b.output.name in mine)
        or (o.b.output.name in theirs and o.a.output.name in mine)
    ]  # fmt: skip
    return next((o for o in found if o.buffer.name == tensor), found[0] if found else None)


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
    """Everything reported of one fusion as it is scheduled now; ``advance`` hears of every operation that is done.

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
        number, f.name, tuple(_tensor_facts(t) for t in told), tuple(operations),
        tuple(map(cycle_facts, m.exact.cycles())),
        tuple(_self_mapping(s) for s in m.exact.self_mappings),
        made.traffic, calls, made.kernels, made.refused, f, made.identity,
    )  # fmt: skip


_TRIES = 2400  # operations that may be rebuilt, times accesses: each change is tried on a copy of the fusion


def _affordable(f: Fusion) -> int:
    return max(2, min(32, _TRIES // max(1, len(f.exprs))))


def with_suggestions(m: IdModel, operations: list[OperationFacts], limit: int) -> list[OperationFacts]:
    """The operations, with the changes that would allow wider vectors at the ``limit`` narrow accesses of most points.

    Accesses that look alike (those of a model's layers) are asked about once.
    """
    found = [(e, k) for e, op in enumerate(operations) for k, a in enumerate(op.accesses) if a.narrow]
    found.sort(key=lambda at: -accessed_points(operations[at[0]].accesses[at[1]]))
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


def accessed_points(a: AccessFacts) -> int:
    """The points of an access; 0 where they are not known."""
    return a.points if isinstance(a.points, int) else 0


def _self_mapping(s: SelfMapping) -> SelfMappingFacts:
    return SelfMappingFacts(s.tensor.name, str(s.first), str(s.second), str(s.reason))


def _amount_or_text(x: Expr) -> int | str:
    made = amount(x)
    return made if isinstance(made, int) else str(made)


def _shape(t: Tensor) -> tuple[int | str, ...]:
    return tuple(_amount_or_text(d.extent) for d in t.axes)


def _tensor_facts(t: Tensor) -> TensorFacts:
    role: Literal["input", "output"] = "input" if t.definition is None else "output"
    given = t.domain.strides
    strides = (
        None if all(s is None for s in given) else tuple("free" if s is None else _amount_or_text(s) for s in given)
    )
    return TensorFacts(t.name, role, _shape(t), t.dtype, strides, t.source_line)


def operation_facts(m: IdModel, e: TensorExpr) -> OperationFacts:
    """One operation with all of its accesses."""
    found = m.index_map(e)
    loops = tuple(LoopFacts(x.name, _amount_or_text(x.extent), x.parallel) for x in found.loops)
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
    loads = tuple(LoadFacts(n, t.name, tuple(map(str, where))) for n, (t, where) in a.loads.items())
    points = total([1])
    for x in a.loops:
        points = amount(x.extent * points)
    return AccessFacts(
        "write" if a.is_write else "read", a.operand, a.tensor.name, _shape(a.tensor), a.tensor.dtype,
        tuple(map(str, a.coordinates)), str(a.address), a.buffer.place, str(a.predicate),
        loop.name if loop is not None else "", step, pattern, width, width * item_size(a.tensor.dtype), limit,
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
