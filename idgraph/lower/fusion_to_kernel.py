"""From a scheduled fusion and its index maps to a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import FALSE, TRUE, Expr, and_
from idgraph.errors import EmitError
from idgraph.index import strides
from idgraph.index.allocation import Allocator, flatten, is_thread, live_exprs
from idgraph.index.loop_tree import (
    IndexMaps,
    Leaf,
    LoopNest,
    Node,
    build_tree,
    exprs_of,
    launch_dims,
    launch_groups,
    reduced,
    reduction_positions,
)  # fmt: skip
from idgraph.index.races import Crossing, check_races
from idgraph.ir import SCANS, SCATTERS, Fusion, LoadedCoordinate, Tensor, TensorExpr
from idgraph.ir.dtypes import compute_dtype
from idgraph.ir.op_builders import finished_type
from idgraph.ir.op_table import PIECES, ROWS
from idgraph.ir.ragged_axes import COVERS
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.def_use import index_exprs
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    Buffer,
    CheckSite,
    Comment,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Kernel,
    KernelModule,
    Let,
    Load,
    Local,
    Loop,
    Operand,
    Provenance,
    SingleThread,
    Stmt,
    Store,
    check_shared_total,
    quote,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.statements import Access
from idgraph.lower.buffers import BufferBinding, ThreadMapping, bind_buffers, index_title, private_buffer
from idgraph.lower.provenance import kernel_choices, read_provenance, split_axis, write_provenance
from idgraph.lower.statements import (
    PendingValue,
    accumulate_loaded,
    accumulator,
    compared,
    copied,
    covered,
    finish,
    identity,
    known_indices,
    made_in_place,
    none_where_wrong,
    scan_steps,
    statement_value,
    update,
)
from idgraph.lower.sync_insertion import barriers, check_barriers, merge_adjacent_ifs

Body = tuple[Stmt, ...]
Ruled = tuple[tuple[str, KernelHints], ...]


def lower_fusion(fusion: Fusion, maps: IndexMaps, threads: bool, rule: str = "") -> KernelModule:
    """The plan of ``fusion``; with ``threads``, parallel axes become block and thread indices.

    ``rule`` names the target whose rule's decisions the kernels get (`Tensor.by_rule`).

    Raises `ScheduleError` for a race or an inlining without an order of loops, `EmitError` for what none can express.
    """
    exprs = _loaded(fusion, live_exprs(fusion), maps)
    tree = build_tree(exprs, maps)
    allocator = Allocator(fusion, maps.loops, threads=threads, serial=not threads)
    ways = allocator.ways
    groups = launch_groups(tree, ways, maps) if threads else [[node] for node in tree]
    how = ThreadMapping(ways, launch_dims(groups, ways, maps), threads)
    stored = bind_buffers(exprs, allocator, how, [exprs_of(group) for group in groups])
    crossings = check_races(exprs, tree, maps, stored, how)
    builder = _KernelBuilder(maps, allocator, stored, how, crossings)
    bodies: list[Body] = []
    chosen: list[tuple[KernelHints, Ruled]] = []
    for group in groups:
        bodies += [body for e in exprs_of(group) if (body := builder.start(e))]
        bodies.append(builder.launch(group))
        found = kernel_choices([e.output for e in exprs_of(group)]), builder.ruled(group, rule)
        chosen += [found] * (len(bodies) - len(chosen))
    extra = {b.name: b for body in bodies for b in _buffers(body) if b.place == "global"}
    kept = {b.name: b for h in stored.values() for b in (h.memory,) if b is not None}
    titles = {f"t{n}": t.name for n, t in enumerate(fusion.tensors)}
    rename = {s: f"n{k}" for k, s in enumerate(fusion.symbols)}
    for t in stored:
        rename.update({s: s for x in strides(t) for s in x.names if s not in rename})
    if threads:
        for body in bodies:
            check_shared_total(body)
    # Where all loops have no steps, nothing is launched.
    pairs = [(b, c) for b, c in zip(bodies, chosen, strict=True) if any(isinstance(s, Access) for s in walk(b))]
    kernels = tuple(_make_kernel(f"kernel{k}", body, rename, *found) for k, (body, found) in enumerate(pairs))
    for kernel in kernels:
        check_barriers(kernel)
    return KernelModule(kernels, tuple({**kept, **extra}.values()), rename, titles, _served(kernels))


def _loaded(fusion: Fusion, exprs: Sequence[TensorExpr], maps: IndexMaps) -> tuple[TensorExpr, ...]:
    """The expressions without index tensors whose values every reader computes from its own coordinates."""
    wanted = set(fusion.outputs)
    for e in reversed(exprs):
        if any(t in wanted for t in e.outputs):
            known = known_indices(e, maps)
            wanted.update(t for k, t in enumerate(e.inputs) if k not in known)
    return tuple(e for e in exprs if any(t in wanted for t in e.outputs))


def _served(kernels: Sequence[Kernel]) -> frozenset[tuple[str, int | None]]:
    """The reads, and the writes of memory, by the (tensor, operand) that they serve."""
    found = [s for k in kernels for s in walk(k.body) if isinstance(s, Access)]
    memory = [s for s in found if s.buffer is not None and s.buffer.name.startswith("buf")]
    written = {(x.tensor, x.operand) for s in memory for x in s.serves if x.operand is None}
    return frozenset((x.tensor, x.operand) for s in found for x in s.serves if x.operand is not None) | written


def _buffers(body: Body) -> Iterable[Buffer]:
    for s in walk(body):
        match s:
            case Load(buffer=b) | Store(buffer=b) | Alloc(buffer=b):
                yield b
            case Accumulate(buffer=b) if b is not None:
                yield b
            case _:
                pass


def _make_kernel(name: str, body: Body, rename: Mapping[str, str], choices: KernelHints, ruled: Ruled) -> Kernel:
    buffers = {b.name: b for b in _buffers(body) if b.place not in ("private", "shared")}
    body = to_ssa(body, {*rename})
    free = {n for s in walk(body) for e in index_exprs(s) for n in e.names}
    launch: dict[str, tuple[Expr, ...]] = {}
    for s in walk(body):
        if isinstance(s, Loop) and is_thread(s.parallel) and s.extent not in launch.get(s.parallel, ()):
            launch[s.parallel] = (*launch.get(s.parallel, ()), s.extent)
    scalars = tuple(n for n in rename if n in free)
    return Kernel(name, tuple(buffers.values()), scalars, body, launch, choices=choices, default_hints=ruled)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The running value of a reduction: a variable, or an array over the kept loops right of the reduction."""

    acc: Local
    inner: tuple[int, ...]
    buffer: Buffer | None
    place: Expr | None


@dataclass(frozen=True, slots=True)
class _KernelBuilder:
    maps: IndexMaps
    allocator: Allocator
    stored: Mapping[Tensor, BufferBinding]
    threads: ThreadMapping
    crossings: tuple[Crossing, ...] = ()

    def start(self, e: TensorExpr) -> Body:
        """A scatter's output before it is updated: a copy of its operand 0, unless the two share their memory."""
        if e.op not in SCATTERS:
            return ()
        source, to = self.stored[e.inputs[0]].memory, self.stored[e.output].memory
        if source is None or to is None or source.name == to.name:
            return ()
        return copied(e, source, to, self.stored[e.output].value.name)

    def ruled(self, nodes: Sequence[Node], rule: str) -> Ruled:
        """Decisions of the target's rule for the rows of each reduction, by the name of its running value."""
        found = [e.output for e in exprs_of(nodes) if rule in e.output.ruled]
        return tuple((f"acc{self.stored[t].value.name[1:]}", t.ruled[rule]) for t in found)

    # loops --------------------------------------------------------------------------------------------------------

    def launch(self, nodes: Sequence[Node]) -> Body:
        """The statements of one kernel: barriers where a part reads memory that an earlier one writes."""
        made, out = set[Tensor](), list[Stmt]()
        for node in nodes:
            inside = exprs_of((node,))
            waits = [t for e in inside for t in e.inputs if t in made]
            if waits:
                out.append(Barrier(f"{quote(waits[0].name)} is complete"))
                made.clear()
            out += self.level((node,), 0)
            made.update(e.output for e in inside)
        return tuple(out)

    def level(self, nodes: Sequence[Node], depth: int, around: tuple[LoopNest, ...] = ()) -> Body:
        """The statements of ``nodes`` in order, inside the loops ``around``."""
        out: list[Stmt] = []
        waits = barriers(nodes, self.crossings, around)
        for n, node in enumerate(nodes):
            out += [Barrier(w) for w in waits.get(n, ())]
            out += [Alloc(b) for b in self.arrays(node, depth)]
            match node:
                case Leaf(expr):
                    out += self.leaf(expr)
                case LoopNest():
                    out += self.nest(node, depth, around)
        return merge_adjacent_ifs([*out, *(Barrier(w) for w in waits.get(len(nodes), ()))])

    def arrays(self, node: Node, depth: int) -> Iterator[Buffer]:
        """The arrays that ``node`` fills for the nodes beside it."""
        for e in node.exprs if isinstance(node, LoopNest) else (node.expr,):
            array = self.stored[e.output].array
            if array is not None and array.place in ("private", "shared") and e.output.inline_position == depth:
                yield array

    def nest(self, node: LoopNest, depth: int, around: tuple[LoopNest, ...]) -> list[Stmt]:
        """A loop, and the reductions begun before and finished after it."""
        out: list[Stmt] = []
        begun = [e for e in node.exprs if (reduction_positions(e, self.maps) or (-1,))[0] == depth]
        for e in begun:
            out += self.begin(e)
        body = self.level(node.children, depth + 1, (*around, node))
        note, column = quote(_whose(node, depth))[1:-1], split_axis(node, depth, self.maps)
        out.append(Loop(node.var, node.extent, node.parallel, body, note, column=column))
        for e in begun:
            out += () if e.op in SCANS else self.end(e)
        return out

    def reads(self, e: TensorExpr, operand: int) -> tuple[Provenance, ...]:
        """The purpose of a read of an operand."""
        return (read_provenance(e, self.maps, self.stored[e.output].value.name, operand),)

    def writes(self, e: TensorExpr) -> tuple[Provenance, ...]:
        """The purpose of a write of the result; a scan's running value has one for its whole axis."""
        dim = e.attrs.get("dim")
        along = (dim % e.output.ndim,) if e.op in SCANS and isinstance(dim, int) else ()
        return (write_provenance(e, self.maps, self.stored[e.output].value.name, along),)

    def guard(self, e: TensorExpr, *conditions: Expr) -> Expr:
        """Where ``e`` does anything; nowhere if a loop has no steps, at which coordinates are any numbers."""
        return FALSE if any(v.extent == 0 for v in self.maps.loops(e)) else and_(*conditions)

    def around(self, e: TensorExpr, positions: Sequence[int], body: Body) -> Body:
        """``body`` inside the loops of ``e`` at ``positions``."""
        loops = self.maps.loops(e)
        for p in reversed(positions):
            v = loops[p]
            body = (Loop(v.name, v.extent, self.threads.ways[e][p], body, quote(v.domain.label)[1:-1]),)
        return body

    # one expression -----------------------------------------------------------------------------------------------

    def leaf(self, e: TensorExpr) -> list[Stmt]:
        """Everything ``e`` does at one point of its loops."""
        access, home = self.maps.write(e), self.stored[e.output]
        if e.op in SCATTERS:
            return self.scatter(e)
        skip = reduction_positions(e, self.maps)
        value = self.value(e)
        # What ends of rows decide is asked where they are loaded.
        within = and_(*(c for c in access.conditions if c.names & access.loads.keys()))
        guard = self.guard(e, *(c for c in access.conditions if not c.names & access.loads.keys()), *value.guards)
        out: list[Stmt] = [Comment(_describe(e))]
        if e.op in SCANS:
            r = self.running(e, skip[0]) if skip else None
            steps = scan_steps(e, value.result, home.value, skip, self.maps, r and (r.acc, r.buffer, r.place))
            inside: Body = (*value.body, *steps, *self.store(e, home.value, ()))
            if home.is_local and guard is not TRUE:
                out.append(InitAccumulator(home.value.name, e.output.dtype, 0))
        elif skip:
            running = self.running(e, skip[0])
            step = Accumulate(
                running.acc, accumulator(e).op, value.result, running.buffer, running.place, result=finished_type(e),
                serves=() if running.buffer is None else self.writes(e),
            )  # fmt: skip
            inside = (*value.body, step)
        else:
            cast = Compute(home.value, "cast", (value.result,), e.output.dtype)  # a reduction over no axis
            rounded = () if value.result == home.value else (cast,)
            loaded = max((n for n, s in enumerate(value.body, 1) if isinstance(s, Let)), default=0)
            made = (*value.body[loaded:], *rounded, *self.store(e, home.value, ()))
            inside = (*value.body[:loaded], *_guarded(within, made))
            if home.is_local and guard is not TRUE:
                out.append(InitAccumulator(home.value.name, e.output.dtype, 0))
        wrapped = value.wrap(inside)
        return out if guard is FALSE else [*out, *_guarded(guard, wrapped)]

    def scatter(self, e: TensorExpr) -> list[Stmt]:
        """One update of an element at loaded coordinates."""
        access, buffer = self.maps.write(e), self.stored[e.output].memory
        if buffer is None:
            raise EmitError(f"{e.output.name} is written at loaded coordinates, and lives in no memory")
        value = self.value(e)
        write = update(e, self.maps, buffer, value.result, self.stored[e.output].value, self.threads.ways[e])
        write = replace(write, serves=self.writes(e))
        missing = self.threads.missing(e)
        inside: Body = (*value.body, SingleThread(missing, (write,)) if missing else write)
        guard = self.guard(e, *access.conditions, *value.guards)
        note: Stmt = Comment(_describe(e))
        return [note] if guard is FALSE else [note, *_guarded(guard, value.wrap(inside))]

    def store(self, e: TensorExpr, value: Operand, skip: Sequence[int]) -> Body:
        """Write the finished value to wherever the tensor lives."""
        home, access = self.stored[e.output], self.maps.write(e)
        purpose = (write_provenance(e, self.maps, home.value.name),)
        out: list[Stmt] = []
        if home.array is not None:
            missing = self.threads.missing(e, skip, per_block=True) if home.is_shared else ()
            first = self.threads.first_replica(e, self.maps, per_block=True) if home.is_shared else TRUE
            keep = Store(home.array, home.place(access), value, purpose)
            out += _guarded(first, (SingleThread(missing, (keep,)) if missing else keep,))
        if home.memory is not None:
            write, missing = Store(home.memory, access.tensor_address, value, purpose), self.threads.missing(e, skip)
            first = self.threads.first_replica(e, self.maps)
            out += _guarded(first, (SingleThread(missing, (write,)) if missing else write,))
        return tuple(out)

    # reductions ---------------------------------------------------------------------------------------------------

    def running(self, e: TensorExpr, first: int) -> _Sum:
        """Where ``e`` accumulates; ``first`` is its outermost reduction loop."""
        loops = self.maps.loops(e)
        skip = set(reduction_positions(e, self.maps))
        number = self.stored[e.output].value.name[1:]
        acc = Local(f"acc{number}", accumulator(e).dtype)
        inner = tuple(p for p in range(first + 1, len(loops)) if p not in skip)
        kept = [p for p in inner if not self.threads.on_thread(e, p) and loops[p].extent != 1]
        if not kept:
            return _Sum(acc, inner, None, None)
        box, extents = [loops[p].domain for p in kept], [loops[p].extent for p in kept]
        array, start = self.allocator.private_array(e.output, box, extents)
        buffer = private_buffer(f"part{number}", compute_dtype(acc.dtype), array, self.threads)
        place = flatten(extents, [loops[p].symbol for p in kept])
        return _Sum(acc, inner, buffer, place if start is None else start + place)

    def begin(self, e: TensorExpr) -> list[Stmt]:
        """Start the running value before the outermost reduction loop."""
        r = self.running(e, reduction_positions(e, self.maps)[0])
        start = identity(accumulator(e))
        if r.buffer is None or r.place is None:
            return [InitAccumulator(r.acc.name, r.acc.dtype, start)]
        out: list[Stmt] = [Alloc(r.buffer)] if r.buffer.place == "private" else []
        return [*out, *self.around(e, r.inner, (Store(r.buffer, r.place, Constant(start), self.writes(e)),))]

    def end(self, e: TensorExpr) -> list[Stmt]:
        """Round and store the finished value after the outermost reduction loop."""
        loops, home = self.maps.loops(e), self.stored[e.output]
        skip = reduced(e, loops)
        r = self.running(e, skip[0])
        inner = {loops[p].name for p in skip}
        # A reduction over an empty axis runs at no point, yet its result exists.
        nothing = any(loops[p].extent == 0 for p in skip)
        kept = [c for c in self.maps.write(e).conditions if not c.names & inner and not (nothing and c is FALSE)]
        outer = {v.name for v in loops} - inner
        mixed = [c for c in self.maps.write(e).conditions if c.names & inner and c.names & outer]
        if mixed:
            raise EmitError(f"the predicate of {e.output.name} mixes reduced and kept loops: {mixed[0]}")
        # The exchange stands before any condition: all threads must reach its barrier.
        dims = tuple(self.threads.ways[e][p] for p in skip if self.threads.on_thread(e, p))
        load: Body = ()
        if r.buffer is not None and r.place is not None:
            found = Load(r.acc, r.buffer, r.place, serves=self.writes(e))
            load = (found,) if not dims else accumulate_loaded(e, found)
        body = (finish(e, r.acc, home.value), *self.store(e, home.value, skip))
        out: list[Stmt] = [Comment(f"{quote(e.output.name)} is complete")]
        guard = and_(*kept)
        if home.is_local and guard is not TRUE:
            out.append(InitAccumulator(home.value.name, e.output.dtype, 0))
        exchange: Body = (BlockReduce(r.acc, accumulator(e).op, dims),) if dims else ()
        return [*out, *self.around(e, r.inner, (*load, *exchange, *_guarded(guard, body)))]

    # operands -----------------------------------------------------------------------------------------------------

    def value(self, e: TensorExpr) -> PendingValue:
        """Loads of the operands of ``e`` and the statements that compute its value (or the term it adds)."""
        write = set(self.maps.write(e).conditions)
        result = PendingValue(e, self.stored[e.output].value)
        order = sorted(range(len(e.inputs)), key=lambda k: bool(self.maps.read(e, k).loads))
        operands: dict[int, Operand] = {}
        seen: dict[tuple[Tensor, Expr, Expr], Local] = {}
        needs = {name for k in order for name in self.maps.read(e, k).loads}
        unread = known_indices(e, self.maps)
        for k in order:
            if k in unread:
                continue
            access, t = self.maps.read(e, k), e.inputs[k]
            extra = and_(*(c for c in access.conditions if c not in write))
            if access.loads:
                result.check(self.sites(e, k), access.load_bounds)
            if k == 0 and e.op in SCATTERS:
                continue  # updated where it lives
            operands[k] = self.operand(result, k, t, extra, seen)
            if f"ld{k}" in needs:
                result.add(Let(f"ld{k}", operands[k], self.reads(e, k)))
        if (bounded := compared(e, self.maps)) is not None:
            result.add(Let("ld0", operands[0], self.reads(e, 0)))
            result.check([bounded[0]], bounded[1])
        if COVERS in e.attrs:
            for k in (0, 1):
                result.add(Let(f"ld{k}", operands[k], self.reads(e, k)))
            sites, bounds = covered(e, self.maps)
            result.check(sites, bounds)
            statement_value(result, operands, self.maps)
            none_where_wrong(result, and_(*bounds))
            return result
        statement_value(result, operands, self.maps)
        return result

    def operand(
        self, result: PendingValue, k: int, t: Tensor, extra: Expr, seen: dict[tuple[Tensor, Expr, Expr], Local]
    ) -> Operand:
        """One operand: a variable, or a load; where it may not exist the load is guarded, else the statement is."""
        e, access = result.expr, self.maps.read(result.expr, k)
        optional = e.op in PIECES and (k == 0 or e.op not in ROWS)
        if optional:
            result.exists[k] = extra
        elif extra is not TRUE:
            result.guards.append(extra)
        if t not in self.stored:
            return made_in_place(result, k, access.coordinates)
        home = self.stored[t]
        if home.is_local:
            return home.value
        if home.array is not None:
            buffer, address = home.array, home.place(access)
        elif home.memory is not None:
            buffer, address = home.memory, access.tensor_address
        else:
            raise EmitError(f"{t.name} is read but lives nowhere")
        guard = extra if optional else TRUE
        known = seen.get((t, address, guard))
        if known is not None:
            result.serve(known, self.reads(e, k))
            return known
        name = home.value.name if all(u is not t for u, _, _ in seen) else f"{home.value.name}_{k}"
        local = seen[t, address, guard] = Local(name, t.dtype)
        result.add(Load(local, buffer, address, guard, self.reads(e, k)))
        return local

    def sites(self, e: TensorExpr, k: int) -> list[CheckSite]:
        """A use site for each axis of operand ``k`` whose index is loaded."""
        t, loads, found = e.inputs[k], self.maps.read(e, k).loads, list[CheckSite]()
        loops = tuple(v.name for v in self.maps.loops(e))
        if e.op in ROWS:
            return []  # the difference of the offsets is tested
        for p, (axis, read) in enumerate(zip(t.axes, e.reads[k], strict=True)):
            if isinstance(read, LoadedCoordinate) and f"ld{read.operand}" in loads:
                index = index_title(e.inputs[read.operand])
                line = str(e.source_line or "")
                found.append(CheckSite(t.name, p, axis.extent, index, f"{e.output.name} = {e.op}", line, loops))
        return found


def _guarded(guard: Expr, body: Body) -> Body:
    return body if guard is TRUE or not body else (If(guard, body),)


def _whose(node: LoopNest, depth: int) -> str:
    """The loop axis of the operation that is computed last, and how many others share the loop."""
    axes = [d for e in node.exprs for d in e.output.loop[depth : depth + 1]]
    if not axes:
        return ""
    more = len(axes) - 1
    return axes[-1].label + (f" and {more} more" if more else "")


def _describe(e: TensorExpr) -> str:
    """``"t4" = add("t0", "t3")  at rope.py:7``: user names quoted."""
    args = ", ".join(quote(t.name) for t in e.inputs)
    where = f"  at {quote(f'{e.source_line.file}:{e.source_line.line}')}" if e.source_line else ""
    return f"{quote(e.output.name)} = {e.op}({args}){where}"
