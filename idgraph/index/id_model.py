"""IdModel: the graphs of a fusion, its loops and its index maps, each built when first asked for.

Long: one class, every question about one fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar, cast

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol
from idgraph.arith import IndexMap as Map
from idgraph.display import Printed, Sheet
from idgraph.errors import IndexingError, ScheduleError, arguments, short_repr, shortened, user_line
from idgraph.graphs import (
    AlignedGraph,
    DomainGraph,
    ExactBuilder,
    ExtentsGraph,
    IndexGraph,
    LoopNests,
    TensorTemplates,
    build_aligned,
    build_almost_exact,
    build_broadcast,
    build_index_graph,
    build_loop,
    build_permissive,
    build_permissive_resize,
    canonical_operand,
    key_of,
)  # fmt: skip
from idgraph.graphs.index_graph import Key, SharedLoop
from idgraph.graphs.loop_promotion import Promotion
from idgraph.index.access import Access, AccessTable, model_sheet
from idgraph.index.access_relation import LoopVariable, with_loads
from idgraph.index.allocation import Allocator, Storage, address_of, is_thread
from idgraph.index.index_solver import IndexSolver, fold_index_tensor, pull_back
from idgraph.index.predicate import Bound, check_reads_covered, undischarged_bounds
from idgraph.ir import (
    SCATTERS,
    Fixed,
    Fusion,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    Resize,
    Tensor,
    TensorExpr,
    check_fusion,
    scatter_axes,
)
from idgraph.ir.argument_resolution import is_int
from idgraph.ir.hooks import advised
from idgraph.ir.iter_domain import is_one
from idgraph.ir.op_table import ROWS
from idgraph.ir.ragged_axes import LENGTH, START, row_axes

T = TypeVar("T")
ROW_ENDS = frozenset({START.name, LENGTH.name})
Conditions = tuple[tuple[Expr, ...], tuple[Bound, ...]]  # conjuncts that are needed, and all bounds behind them


class IdModel(Printed):
    """The meaning of a scheduled fusion: graphs, loops, index maps.

    Everything is built when first asked for and kept until the fusion changes; answers always speak of the fusion as
    it is now, graphs and accesses returned before stay as they were.

    ``threads`` says of what addresses speak: True, each block and thread has private memory of its own; False, their
    loops run one after another, as on the targets "python", "numpy" and "cpu"; None, the first where any loop is on
    them. Only tensors whose private array spans such a loop differ.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t0 = f.input("t0", shape=(4, 8))
    >>> t1 = f.output(t0.T + 1)
    >>> print(ig.IdModel(f).index_map(t1.definition))
    t2[I4, I5] = add(t1[I3, I2], 1)
      for i0 in [0, 8), i1 in [0, 4)
             tensor  coordinates  address    when
      write  t2      (i0, i1)     i0*4 + i1  True
      read   t1      (i0, i1)     i0*4 + i1  True
    >>> m = ig.IdModel(f)
    >>> graphs = m.exact, m.extents, m.aligned, m.almost_exact, m.broadcast, m.permissive, m.permissive_resize, m.loop
    >>> [len(g.groups) for g in graphs], len(m.index.groups)
    ([2, 2, 2, 2, 2, 2, 2, 6], 4)
    >>> list(m.ways.values())
    [('serial', 'serial'), ('serial', 'serial')]
    """

    @shortened
    def __init__(self, fusion: Fusion, *, threads: bool | None = None) -> None:
        self.fusion = check_fusion(fusion, "IdModel", IndexingError)
        if not any(threads is x for x in (True, False, None)):
            raise IndexingError(f"IdModel: threads is {short_repr(threads)}", hint="threads: True, False or None")
        self._threads = threads
        self._version = fusion.version
        self._kept: dict[str, object] = {}
        self._solvers: dict[TensorExpr, IndexSolver] = {}
        self._accesses: dict[tuple[TensorExpr, int | None], Access] = {}
        self._writes: dict[TensorExpr, Conditions] = {}
        self._loops: dict[TensorExpr, tuple[LoopVariable, ...]] = {}

    def sheet(self) -> Sheet:
        """The rows that notebooks show: the accesses of the first operations."""
        return model_sheet(self.fusion, self.index_map)

    def __str__(self) -> str:
        return f"IdModel of {self.fusion.name}: {len(self.fusion.exprs)} operations"

    __repr__ = __str__

    def _keep(self, name: str, build: Callable[[], T]) -> T:
        """The result of ``build`` for this state of the fusion."""
        self._refresh()
        if name not in self._kept:
            self._kept[name] = build()
        return cast("T", self._kept[name])

    def _refresh(self) -> None:
        if self._version != self.fusion.version:
            for held in (self._kept, self._solvers, self._accesses, self._writes, self._loops):
                held.clear()
            self._version = self.fusion.version

    # graphs -------------------------------------------------------------------------------------------------------

    @property
    def _plans(self) -> TensorTemplates:
        """The entries that every graph makes for a tensor."""
        return self._keep("plans", TensorTemplates)

    @property
    def _exact(self) -> ExactBuilder:
        """The exact graph's builder, which the coarser graphs fork."""
        return self._keep("exact builder", lambda: ExactBuilder(self.fusion, self._plans))

    @property
    def exact(self) -> DomainGraph:
        """The exact graph."""
        return self._keep("exact", lambda: DomainGraph("exact", self.fusion, self._exact.build()))

    @property
    def extents(self) -> ExtentsGraph:
        """Axes that the operations say have one extent, whatever their coordinates: the exact groups, index free."""
        return self._keep(
            "extents", lambda: ExtentsGraph(self.fusion, self._exact.fork("extents").build(), self.aligned)
        )

    @property
    def aligned(self) -> AlignedGraph:
        """Exact, without the unions that would give one axis two coordinates; those are its ``align_edges``."""
        return self._keep("aligned", lambda: build_aligned(self.exact, self._exact))

    @property
    def almost_exact(self) -> DomainGraph:
        """Exact, with size-one merges and splits transparent and equal divisible splits joined."""
        return self._keep("almost_exact", lambda: build_almost_exact(self.fusion, self._exact, self._plans))

    @property
    def broadcast(self) -> DomainGraph:
        """Exact, and broadcast axes with what they resolve to."""
        return self._keep("broadcast", lambda: build_broadcast(self.fusion, self._exact))

    @property
    def permissive(self) -> DomainGraph:
        """Broadcast, and forwarding through merges with broadcasts."""
        return self._keep("permissive", lambda: build_permissive(self.fusion, self._exact, self._proved))

    @property
    def permissive_resize(self) -> DomainGraph:
        """Permissive, and a resize's input with its output."""
        return self._keep("permissive_resize", lambda: build_permissive_resize(self.fusion, self._exact, self._proved))

    @property
    def _proved(self) -> tuple[SharedLoop, ...]:
        """Loops shared only by coordinates; none where the inlining is not legal."""
        if not any(t.inline_position for t in self.fusion.tensors):
            return ()
        found = self._built
        return () if isinstance(found, ScheduleError) else found.proved

    @property
    def loop(self) -> DomainGraph:
        """Loop axes that share one real loop; see `promotion` for its extent."""
        return self._keep("loop", lambda: build_loop(self.fusion, self._nests))

    @property
    @shortened
    def index(self) -> IndexGraph:
        """The index graph; raises `ScheduleError` for an inlining that no loop nest can do."""
        found = self._built
        if isinstance(found, ScheduleError):
            raise self._keep("advised", lambda: advised(self.fusion, found)) from None
        return found

    @property
    def _built(self) -> IndexGraph | ScheduleError:
        """The index graph, or why there is none."""

        def build() -> IndexGraph | ScheduleError:
            try:
                return build_index_graph(self.fusion, plans=self._plans)
            except ScheduleError as error:
                return error.with_traceback(None)

        return self._keep("index", build)

    @shortened
    def verify(self) -> None:
        """Raise `ScheduleError` unless every loop nest can be done and every read finds a computed element.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> m.verify()
        >>> _ = t1.split(0, 3)
        >>> m.verify()
        """
        self.index  # noqa: B018 - building it checks the nests
        check_reads_covered(self)

    # loops --------------------------------------------------------------------------------------------------------

    @property
    def _nests(self) -> LoopNests:
        return self.index.nests

    @arguments(IndexingError)
    def promotion(self, domain: IterDomain) -> IterDomain:
        """The axis that gives the loop of ``domain`` its extent; itself where nothing is promoted.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = ig.copy(f.input("a", shape=(1, 8))).merge(0)
        >>> b = f.output(a + f.input("b", shape=(4, 8))).merge(0)
        >>> _ = a.inline(1)
        >>> ig.IdModel(f).promotion(a.loop[0]), b.loop
        (I9[32], (I9[32],))
        """
        known = isinstance(domain, IterDomain)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not known or domain not in self.index.promotion:
            raise IndexingError(
                f"{domain.label if known else repr(domain)} is not a loop axis of an operation of {self.fusion.name}",
                where=user_line(),
                hint="ask for one of t.loop, of a tensor that an operation makes",
            )
        return self.index.promotion.of(domain)

    @arguments(IndexingError)
    def loops(self, e: TensorExpr) -> tuple[LoopVariable, ...]:
        """Loops of an operation, outermost first; variables are named i0, i1, ... by position.

        A serial loop that inlining shares runs as the others that share it say.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> [(loop.name, loop.extent, loop.parallel) for loop in m.loops(t1.definition)]
        [('i0', 8, 'serial'), ('i1', 4, 'serial')]
        """
        self._check(e)
        if e in self._loops:
            return self._loops[e]
        return self._loops.setdefault(e, loops_of(e, self.index.promotion))

    @arguments(IndexingError)
    def lengths(self, t: Tensor) -> Mapping[int, Resize]:
        """By position the steps that make shared loops of ``t`` as long as its readers' loops, where its own are not.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.copy(f.input("x", shape=(8,)))
        >>> _ = f.output(ig.pad(t, (0, 2)))
        >>> _ = t.inline(1)
        >>> [(loop, str(x.right)) for loop, x in ig.IdModel(f).lengths(t).items()]
        [(0, '2')]
        """
        if not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(f"{short_repr(t)} is not a tensor", where=user_line())
        return self._nests.lengths(t)

    # accesses -----------------------------------------------------------------------------------------------------

    @arguments(IndexingError)
    def write(self, e: TensorExpr) -> Access:
        """The access of the output of an operation.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.write(t1.definition))
        permute writes t1[i0, i1] at i0*4 + i1
        """
        return self._access(e, None)

    @arguments(IndexingError)
    def read(self, e: TensorExpr, operand: int) -> Access:
        """The access of operand number ``operand``.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.read(t1.definition, 0))
        permute reads t0[i1, i0] at i0 + i1*8
        """
        self._check(e)
        if not is_int(operand) or not 0 <= operand < len(e.inputs):
            raise IndexingError(f"{e!r} has no operand {operand!r}", where=e.source_line)
        return self._access(e, operand)

    @arguments(IndexingError)
    def access(self, e: TensorExpr, t: Tensor, operand: int | None = None) -> Access:
        """The access of tensor ``t`` by operation ``e``; ``operand`` says which where e reads t in several ways.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> print(m.access(t1.definition, t0))
        permute reads t0[i1, i0] at i0 + i1*8
        """
        self._check(e)
        if not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"{t!r} is not a tensor", where=user_line(), hint=f"{e!r} touches {_tensor_names_text(e)}"
            )
        if operand is not None:
            if not is_int(operand) or not 0 <= operand < len(e.inputs) or e.inputs[operand] is not t:
                raise IndexingError(f"operand {operand!r} of {e!r} is not {t.name}", where=e.source_line)
            return self.read(e, operand)
        if t is e.output:
            return self.write(e)
        places = e.operands_of(t)
        if not places:
            raise IndexingError(
                f"{e!r} neither reads nor writes {t.name}",
                where=e.source_line,
                hint=f"it touches {_tensor_names_text(e)}",
            )
        distinct = {canonical_operand(e, k) for k in places}
        if len(distinct) > 1:
            raise IndexingError(
                f"{e!r} reads {t.name} in {len(distinct)} different ways",
                where=e.source_line,
                hint=f"say which: access(e, t, operand=k) with k in {sorted(distinct)}",
            )
        return self.read(e, places[0])

    @arguments(IndexingError)
    def index_map(self, e: TensorExpr) -> AccessTable:
        """All accesses of an operation: its output, then its operands."""
        self._check(e)
        reads = tuple(self.read(e, k) for k in range(len(e.inputs)))
        return AccessTable(e, self.loops(e), (self.write(e), *reads))

    @arguments(IndexingError)
    def output_to_input(self, output: Tensor, source: Tensor) -> Map:
        """The element of ``source`` that each element of ``output`` is computed from, through all operations between.

        A map from coordinates of ``output`` (i0, i1, ...; then r0, ... for axes that are reduced on the way) to those
        of ``source``, guarded where an element needs none; its ``inverse()`` goes from input to output. The schedule
        does not matter. Raises `IndexingError` where an element is computed from several (both are named), or where an
        index is loaded.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x = f.input("x", shape=(64,))
        >>> y = f.output(ig.reshape(ig.cat([x[32:], x[:32]]), (8, 8)).T)
        >>> there = ig.IdModel(f).output_to_input(y, x)
        >>> there(3, 5), there.inverse()(11), bool(there.is_dense)
        ((11,), (3, 5), True)
        >>> t = f.output(x + ig.cat([x[32:], x[:32]]))
        >>> ig.IdModel(f).output_to_input(t, x)
        Traceback (most recent call last):
        idgraph.errors.IndexingError: an element of t9 is computed from several elements of x at {'i0': 32}
          ...
        """
        return pull_back(self._own(output), self._own(source))

    def _own(self, t: Tensor) -> Tensor:
        if t not in self.fusion:
            raise IndexingError(f"{t.name} is not a tensor of fusion {self.fusion.name}", where=user_line())
        return t

    def _check(self, e: TensorExpr) -> None:
        self._refresh()
        if not isinstance(e, TensorExpr):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"{e!r} is not an operation", where=user_line(), hint="t.definition names one; that of an input is None"
            )
        if e.output not in self.fusion:
            raise IndexingError(f"{e!r} is not an operation of fusion {self.fusion.name}", where=e.source_line)

    def solver(self, e: TensorExpr) -> IndexSolver:
        """Coordinates of all axes under one operation."""
        found = self._solvers.get(e)
        if found is not None:
            return found
        shadow = self._nests.shadows[e.output]
        given: list[tuple[Key, Expr]] = []
        for k, (t, row) in enumerate(zip(e.inputs, e.reads, strict=True)):
            key, theirs = key_of(e, k), self._nests.shadows[t]
            for axis, read in zip(t.axes, row, strict=True):
                if isinstance(read, Fixed):
                    given.append((key(axis), read.index))
                elif isinstance(read, LoadedCoordinate):
                    given.append((key(axis), symbol(f"ld{read.operand}")))
            linked = {d for d, _ in self._nests.promoted_pairs(t, e, k)}
            stand_ins = (*theirs.resolved.values(), *theirs.lacking.values())
            given += [(key(d), as_expr(0)) for d in stand_ins if d not in linked]
        # A resolved broadcast axis stays at 0: the wider loop is its stand-in's, or nobody's.
        zero = as_expr(0)
        start = [(d, zero) for d in e.output.logical if d in shadow.resolved]
        start += [(d, symbol(f"ld{k}")) for d, k in scatter_axes(e)]
        for j, (d, loop) in enumerate(zip(shadow.loop, self.loops(e), strict=True)):
            start.append((d, zero if j in shadow.direct else loop.symbol))
        solver = IndexSolver(self.index, e, start, given)
        self._solvers[e] = solver
        return solver

    def _access(self, e: TensorExpr, operand: int | None) -> Access:
        self._check(e)
        slot = None if operand is None else canonical_operand(e, operand)
        found = self._accesses.get((e, slot))
        if found is None:
            found = self._accesses[e, slot] = self._solve(e, slot)
        return found

    def _solve(self, e: TensorExpr, operand: int | None) -> Access:
        solver = self.solver(e)
        t = e.output if operand is None else e.inputs[operand]
        key = key_of(e, operand)
        conditions, way = self._write_bounds(e, solver)
        if operand is not None:
            conditions, way = self._read_bounds(e, operand, solver, (conditions, way))
        logical = tuple(
            as_expr(0) if operand is not None and d.kind == "reduction" else solver.coordinate(key(d))
            for d in t.logical
        )
        allocation = tuple(solver.coordinate(key(d)) for d in t.allocation)
        loads, bounds = self._loads(e, operand, solver)
        known: dict[str, Expr] = {}
        if loads and e.op not in SCATTERS:
            known, loads, bounds = _without_known(loads, bounds, conditions)
        if known:
            logical, allocation = (tuple(simplify(x.substitute(known)) for x in axes) for axes in (logical, allocation))
        whole = address_of(t, allocation)
        if loads:
            logical, allocation = (tuple(with_loads(x, loads) for x in axes) for axes in (logical, allocation))
        slots, storage, write = self._slots(t, key, solver), self.storage(t), operand is None
        if known:
            slots = tuple(None if x is None else simplify(x.substitute(known)) for x in slots)
            conditions = tuple(simplify(c.substitute(known)) for c in conditions)
        buffer, address = storage.buffer(write=write), whole
        if storage.memory is not buffer:
            address = storage.address(slots, allocation, whole, write=write)
        return Access(
            e, t, operand, self.loops(e), logical, allocation, with_loads(address, loads), buffer, slots, conditions,
            loads, bounds, way, self._again, None if address is whole else with_loads(whole, loads),
            self._replicas(e, solver) if write else (),
        )  # fmt: skip

    def _replicas(self, e: TensorExpr, solver: IndexSolver) -> tuple[Expr, ...]:
        """See `AccessFunction.replicas`."""
        shadow, loops = self._nests.shadows[e.output], self.loops(e)
        stand_ins = (*shadow.resolved.values(), *shadow.lacking.values())
        made = [
            *(solver.own.value[d] for d in stand_ins if d in solver.own.value),
            *(loops[j].symbol for j in shadow.direct),
        ]
        return tuple(dict.fromkeys(x for x in map(simplify, made) if x != 0))

    def _again(self, fusion: Fusion) -> IdModel:
        """The model of a changed copy, asked in the same way."""
        return IdModel(fusion, threads=self._threads)

    @arguments(IndexingError)
    def storage(self, t: Tensor) -> Storage:
        """The storage of ``t``: the memory that kernels allocate for it, and the axes that it is laid out by.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t0 = f.input("t0", shape=(4, 8))
        >>> t1 = f.output(t0.T)
        >>> m = ig.IdModel(f)
        >>> m.storage(t1).memory.place, m.storage(t1).memory.size
        ('output', 32)
        """
        return self._keep("allocator", self._allocate).storage(self._own(t))

    @property
    def ways(self) -> Mapping[TensorExpr, tuple[str, ...]]:
        """For each operation how its loops run, position by position: a shared one as any of those in it."""
        return self._keep("allocator", self._allocate).ways

    def _allocate(self) -> Allocator:
        on_threads = (is_thread(d.parallel) for e in self.fusion.exprs for d in e.output.loop)
        threads = any(on_threads) if self._threads is None else self._threads
        return Allocator(self.fusion, self.loops, threads=threads)

    def _slots(self, t: Tensor, key: Callable[[IterDomain], Key], solver: IndexSolver) -> tuple[Expr | None, ...]:
        shadow = self._nests.shadows[t]
        made: list[Expr | None] = []
        for d, own in zip(shadow.loop, t.loop, strict=True):
            k = key(d)
            if own.kind == "reduction" or not solver.known(k):
                made.append(None)
            else:  # the one element of an axis that loops run past, or that they move, has a place among their steps
                made.append(solver.coordinate(k) if is_one(d.extent) else solver.unclamped_coordinate(k))
        return tuple(made)

    def _write_bounds(self, e: TensorExpr, solver: IndexSolver) -> Conditions:
        """Bounds of every axis between the loops and the logical axes of the output."""
        found = self._writes.get(e)
        if found is None:
            out, shadow = e.output, self._nests.shadows[e.output]
            # A resolved broadcast is bounded as the axis it stands for. Every axis that the schedule made on the way to
            # a loop is bounded too, also where a neighbour of one element hides it.
            steps = (*out.domain.loop_exprs, *self.lengths(out).values())
            between = [d for x in steps for d in (*x.inputs, *x.outputs)]
            loaded = {d for d, _ in scatter_axes(e)}  # bounded by `Access.load_bounds`
            own = (d for d in (*out.logical, *(out.root if loaded else ())) if d not in loaded)
            wanted = dict.fromkeys(shadow.of(d) for d in (*own, *between))
            direct = frozenset(out.loop[j] for j in shadow.direct)
            found = self._writes[e] = undischarged_bounds(solver.own.bounds_on_path(wanted, direct), ())
        return found

    def _read_bounds(self, e: TensorExpr, operand: int, solver: IndexSolver, write: Conditions) -> Conditions:
        """The write's conditions, and that every axis from logical to the root that is read is in bounds."""
        if e.op in ROWS and operand:  # where rows end is asked for every row, whatever is in it
            plain = tuple(c for c in write[0] if not c.names & ROW_ENDS)
            return plain, tuple(b for b in write[1] if not b.condition.names & ROW_ENDS)
        mapped = [r.domain for r in e.reads[operand] if isinstance(r, Mapped)]
        known = frozenset(e.output.logical)
        found = list(solver.own.bounds_on_path((d for d in mapped if d not in known), known))
        if e.op in ("pad_ragged", "crop_ragged") and (axes := row_axes(e)) is not None:
            found.append(Bound(solver.coordinate((axes[1], e)) < LENGTH, axes[1], "stop", None))
        conditions, bounds = undischarged_bounds(found, write[0])
        return conditions, (*write[1], *bounds)

    def _loads(
        self, e: TensorExpr, operand: int | None, solver: IndexSolver
    ) -> tuple[dict[str, tuple[Tensor, tuple[Expr, ...]]], tuple[Expr, ...]]:
        if e.op in ROWS and operand in (None, 0):
            return self._row_loads(e, solver)
        if operand is None and e.op not in SCATTERS:
            return {}, ()
        # A scatter writes where it reads its operand 0.
        at = operand or 0
        loads: dict[str, tuple[Tensor, tuple[Expr, ...]]] = {}
        bounds: list[Expr] = []
        for axis, read in zip(e.inputs[at].axes, e.reads[at], strict=True):
            if isinstance(read, LoadedCoordinate):
                index, key = e.inputs[read.operand], key_of(e, read.operand)
                loads[f"ld{read.operand}"] = (index, tuple(solver.coordinate(key(d)) for d in index.axes))
                value = symbol(f"ld{read.operand}")
                bounds += [value >= 0, value < axis.extent]
        return loads, tuple(bounds)

    def _row_loads(self, e: TensorExpr, solver: IndexSolver) -> tuple[Loads, tuple[Expr, ...]]:
        """Where the row of an operation on rows begins, its length, and what the test of the offsets says of them."""
        axes = row_axes(e)
        assert axes is not None
        loads: Loads = {}
        for k in (1, 2):
            key = key_of(e, k)
            loads[f"ld{k}"] = (e.inputs[k], tuple(solver.coordinate(key(d)) for d in e.inputs[k].axes))
        return loads, (START >= 0, LENGTH >= 0, axes[1].extent >= START + LENGTH)


Loads = dict[str, tuple[Tensor, tuple[Expr, ...]]]


def loops_of(e: TensorExpr, promotion: Promotion) -> tuple[LoopVariable, ...]:
    """Loops of an operation, outermost first, over the axes that give them their extents."""
    made: list[LoopVariable] = []
    for j, d in enumerate(e.output.loop):
        by = promotion.of(d)
        made.append(LoopVariable(f"i{j}", by.extent, promotion.parallel_type(d), by, _counter(j, by.extent)))
    return tuple(made)


@lru_cache(maxsize=1024)
def _counter(j: int, extent: Expr) -> Expr:
    """The symbol of loop ``j``, which counts to ``extent``: many operations have the same."""
    return symbol(f"i{j}", 0, simplify(extent - 1))


def _without_known(
    loads: Loads, bounds: tuple[Expr, ...], conditions: tuple[Expr, ...]
) -> tuple[dict[str, Expr], Loads, tuple[Expr, ...]]:
    """Loaded indices that are known numbers and proved to be in bounds, by name; the loads and bounds of the others."""
    known: dict[str, Expr] = {}
    for name, (index, where) in loads.items():
        value = fold_index_tensor(index, where, conditions)
        mine = [b for b in bounds if name in b.names]
        if value is not None and all(is_true(b.substitute({name: value}), conditions) for b in mine):
            known[name] = value
    left = {name: load for name, load in loads.items() if name not in known}
    return known, left, tuple(b for b in bounds if not b.names & known.keys())


def _tensor_names_text(e: TensorExpr) -> str:
    return ", ".join(dict.fromkeys(x.name for x in (*e.outputs, *e.inputs)))
