"""A program cut at its opaque nodes: one fusion to look at, and the segments that run between the opaque calls.

Operations on elements that wait for their readers: computed in the segment that reads them, not stored for it.

A program runs in segments between its opaque calls. An operation could run in the first segment that has its operands;
where only a later one reads the result, storing it there and reading it here moves more bytes than reading its operands
here.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.aliasing import Shared, shared_results
from idgraph.frontends.array_space import PARTS, Pair
from idgraph.frontends.aten import EFFECTS, HANDLERS, OPAQUE
from idgraph.frontends.graph import CapturedProgram, Meta, Node, Ref, TensorMeta, is_of_sizes, refs_of, where_of
from idgraph.frontends.importer import COMPLEX, GETITEM, Builder, Unmapped
from idgraph.ir import DTYPES, Fusion, Tensor, item_size
from idgraph.ir.op_table import POINTWISE

MOVES = frozenset({"copy", "unsqueeze", "squeeze", "expand", "permute", "reshape", "slice", "select", "flip", "cat"})
MADE = frozenset({"full", "iota"})
UNKNOWN = 1024  # elements along an axis whose size a call tells


@dataclass(slots=True)
class PartitionSinking:
    """Where nodes are computed.

    ``nodes`` are all that run, in order, ``mapped`` those that fusions compute; ``first``: the first segment that has
    the operands of each. Nodes of ``fixed`` are made or read outside of fusions, ``stored`` are results, which
    have a kernel anyway and do not wait. ``at`` is the segment of each node now, ``late`` are those that wait.
    """

    nodes: Sequence[Node]
    mapped: Collection[str]
    first: Mapping[str, int]
    fixed: Collection[str]
    stored: Collection[str]
    metas: Mapping[str, Meta]
    readers: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    at: dict[str, int] = field(default_factory=dict[str, int])
    late: set[str] = field(default_factory=set[str])

    def sunk_nodes(self, fusion: Fusion) -> dict[str, int]:
        """Name of a node -> the later segment that computes it: as late as its readers allow, where that pays."""
        self.at = dict(self.first)
        for n in self.nodes:
            for r in dict.fromkeys(n.refs()):
                self.readers.setdefault(r, []).append(n.name)
        tensors = {t.name: t for t in fusion.tensors}
        for n in reversed(self.nodes):
            used = self.readers.get(n.name, ())
            if (
                n.name not in self.mapped
                or n.name in self.stored
                or not used
                or any(x in self.fixed or x not in self.mapped for x in (n.name, *used))
            ):
                continue
            reader = min(self.at[r] for r in used)
            parted = any(isinstance(self.metas[r], tuple) for r in (n.name, *n.refs()))  # parts stay with the whole
            if reader > self.at[n.name] and not parted and _is_on_elements(tensors.get(n.name), set(n.refs())):
                self.at[n.name] = reader
                self.late.add(n.name)
        going = True
        while going:  # what does not pay goes back, then what it reads
            back = [n.name for n in reversed(self.nodes) if n.name in self.late and self.returns(n)]
            going = bool(back)
        return {name: self.at[name] for name in self.late}

    def returns(self, n: Node) -> bool:
        """Take ``n`` back where it is read elsewhere too, for which it is stored, or where waiting saves nothing."""
        if {self.at[r] for r in self.readers[n.name]} == {self.at[n.name]} and self.gain(n) > 0:
            return False
        self.late.discard(n.name)
        self.at[n.name] = self.first[n.name]
        return True

    def gain(self, n: Node) -> int:
        """Bytes that waiting saves: of storing and reading ``n``, less those of its operands."""
        here, before = self.at[n.name], self.first[n.name]
        saved = 2 * _bytes(self.metas[n.name])
        for x in dict.fromkeys(n.refs()):
            size, at = _bytes(self.metas[x]), self.at[x]
            given = x not in self.mapped or x in self.fixed
            users = {self.at[r] for r in self.readers[x] if r != n.name}
            if x in self.late and at == here:
                continue  # computed there too
            if not given and x not in self.stored and at >= before and all(u <= at for u in users):
                saved -= size  # stored for this alone
            if here not in users:
                saved -= size
            if (given or at < before) and before not in users:
                saved += size
        return saved


def _is_on_elements(t: Tensor | None, refs: Collection[str]) -> bool:
    """Whether each of its elements is computed of one element of each operand, or moved."""
    if t is None:
        return False
    work, seen = [t], set[Tensor]()
    while work:
        u = work.pop()
        e = u.definition
        if u in seen or (u is not t and u.name in refs):
            continue
        seen.add(u)
        if e is None:
            continue
        if e.op not in POINTWISE and e.op not in MOVES and e.op not in MADE:
            return False
        work += e.inputs
    return True


def _bytes(meta: Meta) -> int:
    if not isinstance(meta, TensorMeta) or meta.dtype not in DTYPES:
        return 0
    sizes = [int(n) if not isinstance(n, Expr) or n.is_const else UNKNOWN for n in meta.shape]
    return prod(sizes) * item_size(meta.dtype)


# Views whatever the strides of their source.
PLAIN_VIEWS = frozenset({
    "aten.permute.default", "aten.t.default", "aten.transpose.int", "aten.unsqueeze.default", "aten.squeeze.dim",
    "aten.squeeze.dims", "aten.expand.default", "aten.slice.Tensor", "aten.select.int", "aten.alias.default",
})  # fmt: skip
# Views only of operands with the strides captured; opaque calls get those strides.
SAME_ORDER = frozenset({"aten.view.default", "aten._unsafe_view.default"})
VIEWS = PLAIN_VIEWS | SAME_ORDER


@dataclass(frozen=True, slots=True)
class Partition:
    """One fusion (None where nothing is mapped), then opaque calls and the picking of their results, in order.

    ``inputs`` and ``outputs`` are names of nodes: what the fusion reads from before, and what is needed after. Of a
    program whose results are views, ``whole`` is the fusion with these too, as it was when it had ``version``.
    """

    fusion: Fusion | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Node, ...]
    whole: Fusion | None = None
    version: int = 0

    @property
    def scheduled(self) -> Fusion | None:
        """The fusion that kernels are made for: the one with the views in it where the user has scheduled that."""
        return self.fusion if self.whole is None or self.whole.version == self.version else self.whole


@dataclass(slots=True)
class PartitionPlan:
    """The fate of each node: ``reasons`` why a node is opaque, ``stage`` in which segment a node is computed.

    ``aliases``: results that lie in the memory of an argument, or of other results. ``remains``: a node turned out to
    be opaque when operations of it stood in the fusion already.
    """

    program: CapturedProgram
    fusion: Fusion
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    stage: dict[str, int] = field(default_factory=dict[str, int])
    mapped: Counter[str] = field(default_factory=Counter[str])
    aliases: dict[str, Shared] = field(default_factory=dict[str, Shared])
    segments: tuple[Partition, ...] = ()
    remains: bool = False

    @property
    def opaque(self) -> dict[str, str]:
        """Operation name -> why it is opaque."""
        return {self.program[name].target: reason for name, reason in reversed(self.reasons.items())}

    @property
    def stored(self) -> tuple[str, ...]:
        """The nodes that are computed for the results: these, or what they are views of."""
        changed = [v.name for v in self.program.results[: len(self.program.mutated)] if isinstance(v, Ref)]
        rest = [
            self.aliases[n].root if n in self.aliases else n
            for n in refs_of(self.program.results[len(self.program.mutated) :])
        ]
        return tuple(n for n in dict.fromkeys((*changed, *rest)) if self.program[n].kind == "call")


def plan(program: CapturedProgram, opaque: Mapping[str, str] | None = None) -> PartitionPlan:
    """Import a program: one fusion with the results of opaque nodes as inputs, and the segments to run.

    ``opaque``: names of nodes that are opaque by choice, and why. Raises `FrontendError` that names the node where a
    call has no meaning at all.
    """
    live = _live(program)
    known = {name: why for name, why in (opaque or {}).items() if name in live}
    made = _attempt(program, live, known)
    clean = _attempt(program, live, made.reasons) if made.remains else made
    for node in program.nodes:
        if node.kind == "call" and node.name not in live:
            _count_dead(clean, node)
    clean.segments = _segments(clean, _needed_nodes(clean)) if clean.reasons else _merge_aliased_partitions(clean)
    return clean


def _live(program: CapturedProgram) -> frozenset[str]:
    """Nodes whose values reach a result or an effect."""
    wanted = set(refs_of(program.results))
    for node in reversed(program.nodes):
        if node.name in wanted or node.target in EFFECTS or node.kind != "call":
            wanted.add(node.name)
            wanted.update(node.refs())
    return frozenset(wanted)


def _needed_nodes(plan: PartitionPlan) -> frozenset[str]:
    """Nodes whose values are read to compute what is stored, or that have an effect."""
    wanted = set(plan.stored)
    for node in reversed(plan.program.nodes):
        if node.name in wanted or node.target in EFFECTS or node.kind != "call":
            wanted.add(node.name)
            wanted.update(node.refs())
    return frozenset(wanted)


def _count_dead(plan: PartitionPlan, node: Node) -> None:
    """A node that nothing reads is not built; it still counts."""
    if node.target in HANDLERS or node.target in COMPLEX or node.target == GETITEM:
        plan.mapped[node.target] += 1
    else:
        plan.reasons.setdefault(node.name, OPAQUE.get(node.target, "no handler; nothing reads its result"))


def _attempt(program: CapturedProgram, live: frozenset[str], known: Mapping[str, str]) -> PartitionPlan:
    """Build the whole fusion, leaving out the nodes known to be opaque."""
    made = PartitionPlan(program, Fusion(program.name), dict(known))
    builder = Builder(program, made.fusion)
    last = 0  # opaque calls keep their order, so that random numbers are drawn as in the program
    for node in program.nodes:
        if node.name not in live:
            continue
        at = max((made.stage[r] for r in node.refs()), default=0)
        if node.kind != "call":
            _declare(builder, node)
        elif is_projection(made, node):
            made.mapped[node.target] += 1
            _check_projection(program, node)
            _declare(builder, node)
        elif _is_mapped(builder, made, node):
            made.mapped[node.target] += 1
        else:
            last = at = max(at, last)
            at += node.meta is not None
            if not isinstance(node.meta, tuple):
                _declare(builder, node)
        made.stage[node.name] = at
    made.aliases = shared_results(program, builder.values)
    _mark_outputs(builder, (*refs_of(program.results), *made.stored))
    return made


def _mark_outputs(builder: Builder, names: Iterable[str]) -> None:
    """Outputs are what is computed here; an input that is returned is not an output of the fusion. They lie in memory
    as captured, where nothing else would lay them out."""
    computed = {name: t for name in names if (t := builder.result(name)) is not None}
    if not computed:
        return
    builder.fusion.output(*computed.values())
    moved = any(t.ndim > 1 and any(s is not None for s in t.domain.strides) for t in builder.fusion.inputs)
    moved = moved or any(e.op == "permute" for e in builder.fusion.exprs)  # which would keep its operand's order
    for name, t in computed.items():
        meta = builder.program[name].meta
        order = meta.dense_order if isinstance(meta, TensorMeta) and len(meta.shape) == t.ndim else None
        if order is not None and t.ndim > 1 and (moved or order != tuple(range(t.ndim))):
            t.set_allocation([t.axes[a] for a in order])


def _is_mapped(builder: Builder, made: PartitionPlan, node: Node) -> bool:
    if node.name in made.reasons:
        return False
    before = builder.fusion.mark
    try:
        builder.add(node)
    except Unmapped as why:
        made.reasons[node.name] = str(why)
        made.remains |= builder.fusion.mark != before
        return False
    return True


def is_projection(plan: PartitionPlan, node: Node) -> bool:
    """One result of an opaque node with several: it is an input of what follows."""
    source = node.args[0] if node.target == GETITEM and node.args else None
    return isinstance(source, Ref) and source.name in plan.reasons and isinstance(plan.program[source.name].meta, tuple)


def _check_projection(program: CapturedProgram, node: Node) -> None:
    """The picked result is what its source says it is."""
    source, index = node.args[0], node.args[1] if len(node.args) == 2 else None
    metas = program[source.name].meta if isinstance(source, Ref) else None
    if not isinstance(metas, tuple) or type(index) is not int or not -len(metas) <= index < len(metas):
        raise FrontendError(f"{where_of(node)}: there is no such result", where=node.line)
    picked, own = metas[index], node.meta
    if picked is None or not isinstance(own, TensorMeta) or (picked.shape, picked.dtype) != (own.shape, own.dtype):
        raise FrontendError(f"{where_of(node)}: the graph says {own}, its source {picked}", where=node.line)


def _declare(builder: Builder, node: Node, stored: bool = False) -> None:
    """A value that comes from outside of the fusion: a tensor is an input, a number is itself."""
    match node.meta:
        case TensorMeta() as meta:
            if meta.dtype in DTYPES or meta.dtype in PARTS:
                with contextlib.suppress(Unmapped):  # of its shape: what reads it has no form in the fusion either
                    builder.input(node, stored)
        case None if node.kind == "call":
            return
        case tuple():
            raise FrontendError(f"{where_of(node)}: it stands for several tensors", where=node.line)
        case Expr() as size:
            builder.values[node.name] = size
        case int() as number if is_of_sizes(node.target):
            builder.values[node.name] = number  # where the guards say so
        case _ if node.kind == "call":
            raise FrontendError(
                f"{where_of(node)}: its result is a number that depends on values of tensors", where=node.line
            )
        case number:
            builder.values[node.name] = number


def _merge_aliased_partitions(plan: PartitionPlan) -> tuple[Partition, ...]:
    if not plan.aliases:
        fusion = plan.fusion if plan.fusion.outputs else None
        inputs = tuple(t.name for t in plan.fusion.inputs)
        return (Partition(fusion, inputs, tuple(t.name for t in plan.fusion.outputs), ()),)
    needed = _needed_nodes(plan)
    nodes = [n for n in plan.program.nodes if n.kind == "call" and n.name in needed]
    made = _make_partition(plan, plan.program.name, nodes, frozenset(plan.stored), (), frozenset())
    return (replace(made, whole=plan.fusion, version=plan.fusion.version),)


def _segments(plan: PartitionPlan, live: frozenset[str]) -> tuple[Partition, ...]:
    """Nodes by stage: within a stage first what is mapped, in one fusion, then the opaque calls."""
    calls = [n for n in plan.program.nodes if n.kind == "call" and n.name in live]
    views = _views(plan, calls)
    outside = [n for n in calls if n.name in plan.reasons or is_projection(plan, n)]
    mapped = [n for n in calls if n.name not in plan.reasons and not is_projection(plan, n)]
    fixed = views | {n.name for n in outside}
    metas = {n.name: n.meta for n in plan.program.nodes}
    plan.stage |= _behind_calls(plan, [n for n in mapped if n.name not in views], [n for n in calls if n.name in fixed])
    waits = PartitionSinking(calls, {n.name for n in mapped}, plan.stage, fixed, frozenset(plan.stored), metas)
    plan.stage |= waits.sunk_nodes(plan.fusion)
    last = max(plan.stage[n.name] for n in calls) if calls else 0
    inner: list[list[Node]] = [[] for _ in range(last + 1)]
    outer: list[list[Node]] = [[] for _ in range(last + 1)]
    for n in mapped:
        inner[plan.stage[n.name]].append(n)
    for n in calls:
        if n.name in views:
            outer[plan.stage[n.name]].append(n)
        elif n in outside:
            outer[plan.stage[n.name] - (n.meta is not None)].append(n)
    wanted = _names_read_outside(plan, mapped, [*outside, *(n for n in mapped if n.name in views)]) - views
    wanted |= {n for n in _crossing(plan, mapped) if n not in views or plan.program[n].target not in SAME_ORDER}
    written = frozenset(n.name for n in mapped if n.name not in views)
    made = [
        _make_partition(plan, f"{plan.program.name}.{k}", inner[k], wanted, tuple(outer[k]), written)
        for k in range(last + 1)
    ]
    return tuple(s for s in made if s.fusion is not None or s.calls)


def _behind_calls(plan: PartitionPlan, mapped: Sequence[Node], outside: Sequence[Node]) -> dict[str, int]:
    """Name of a node -> its segment, where the opaque calls that would part it from its readers read nothing of it, nor
    of the others of its segment: these calls run first, and all of it is one fusion with what reads their results."""
    found = dict[str, int]()
    at = {n.name: plan.stage[n.name] for n in mapped}
    for k in range(max(plan.stage.values(), default=0)):
        ends = [n for n in outside if plan.stage[n.name] - (n.name in plan.reasons and n.meta is not None) == k]
        here = [name for name, stage in at.items() if stage == k]
        if any(n.name in plan.reasons for n in ends) and not any(
            n.target in EFFECTS or not set(here).isdisjoint(n.refs()) for n in ends
        ):
            found |= dict.fromkeys(here, k + 1)
            at |= found
    return found


def last_reads(plan: PartitionPlan) -> dict[str, int]:
    """Name of a node -> the number of the last segment that reads it; results of the program are left out."""
    found: dict[str, int] = {}
    for number, segment in enumerate(plan.segments):
        for name in (*segment.inputs, *segment.outputs, *(r for n in segment.calls for r in (n.name, *n.refs()))):
            found[name] = number
    for name in (*refs_of(plan.program.results), *(s.root for s in plan.aliases.values())):
        found.pop(name, None)
    return found


def _names_read_outside(plan: PartitionPlan, mapped: Sequence[Node], outside: Sequence[Node]) -> frozenset[str]:
    """Names that something outside of their own segment reads."""
    found = set(plan.stored) | _crossing(plan, mapped)
    for node in outside:
        found.update(node.refs())
    return frozenset(found)


def _crossing(plan: PartitionPlan, mapped: Sequence[Node]) -> set[str]:
    """Names that mapped nodes of a later segment read."""
    return {r for n in mapped for r in n.refs() if plan.stage[r] != plan.stage[n.name]}


def _views(plan: PartitionPlan, calls: Sequence[Node]) -> frozenset[str]:
    """Mapped nodes that only move axes about and that an opaque call reads, or that are results: torch makes the view,
    nothing is copied."""
    named = {n.name: n for n in calls}
    found: set[str] = set()
    work = [r for n in calls if n.name in plan.reasons for r in n.refs()]
    work += plan.stored
    while work:
        n = named.get(work.pop())
        if n is None or n.name in found or n.name in plan.reasons or n.target not in VIEWS:
            continue
        if n.target in SAME_ORDER and _is_computed(plan, named, n):
            continue  # a kernel writes it in the view's shape at no cost
        if isinstance(n.meta, TensorMeta) and n.meta.dtype in DTYPES:
            found.add(n.name)
            work += n.refs()
    return frozenset(found)


def _is_computed(plan: PartitionPlan, named: Mapping[str, Node], n: Node) -> bool:
    """Whether a kernel computes what a view shows: it is neither an argument nor the result of an opaque call."""
    while n.target in VIEWS:
        source = named.get(next(iter(n.refs()), ""))
        if source is None:
            return False
        n = source
    opaque = n.name in plan.reasons or is_projection(plan, n)
    return not opaque and n.name not in plan.program.updates  # which is an argument by then


def _make_partition(
    plan: PartitionPlan, title: str, nodes: Sequence[Node], wanted: frozenset[str], calls: tuple[Node, ...],
    stored: frozenset[str],
) -> Partition:  # fmt: skip
    """``stored``: names that kernels write, of this partition or of others."""
    names = {n.name for n in nodes}
    outputs = tuple(n.name for n in nodes if n.name in wanted and isinstance(n.meta, TensorMeta))
    if not outputs:
        return Partition(None, (), (), calls)
    builder = Builder(plan.program, Fusion(title[:200]))
    inputs: list[str] = []
    for ref in dict.fromkeys(r for n in nodes for r in n.refs() if r not in names):
        _declare(builder, plan.program[ref], ref in stored)
        if isinstance(builder.values.get(ref), (Tensor, Pair)):
            inputs.append(ref)
    for node in nodes:
        builder.add(node)
    _mark_outputs(builder, outputs)
    return Partition(builder.fusion, tuple(inputs), outputs, calls)
