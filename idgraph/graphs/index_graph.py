"""The index graph: which uses of axes have equal coordinates at every point of the loops.

Keys are (axis, operation); an operation that reads one tensor in two different ways (``cat([t, t])``) has a third
part, the operand number. Inside one operation, axes are joined by what it reads and by congruence; from one operation
to another only through loops that inlining shares. So slice + cat + residual leaves no way around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from idgraph.errors import IndexingError, ScheduleError
from idgraph.graphs.coordinates import padded, transparent
from idgraph.graphs.cycles import Cycle, find_cycles
from idgraph.graphs.domain_graph import own_domains, own_exprs
from idgraph.graphs.export import domain_networkx
from idgraph.graphs.loops import Nests, Shadow
from idgraph.graphs.memory import no_collection
from idgraph.graphs.order import order_nests
from idgraph.graphs.reasons import Explanation, Reason
from idgraph.graphs.valgraph import ExprGroup, GraphBuilder, Group, ValGraph, key_text
from idgraph.ir import DomainExpr, Fixed, Fusion, IterDomain, Mapped, Tensor, TensorExpr
from idgraph.ir.domains import is_one
from idgraph.ir.views import render

if TYPE_CHECKING:
    import networkx as nx

Key = tuple[IterDomain, TensorExpr] | tuple[IterDomain, TensorExpr, int]


def canonical_operand(e: TensorExpr, k: int) -> int:
    """The first operand that reads the same tensor in the same way as operand ``k``."""
    t, row = e.inputs[k], e.reads[k]
    for j in range(k):
        if e.inputs[j] is t and e.reads[j] == row:
            return j
    return k


def key_of(e: TensorExpr, operand: int | None) -> Callable[[IterDomain], Key]:
    """Keys of an operand's axes under ``e`` (None: of its output's)."""
    if operand is None:
        return lambda d: (d, e)
    k = canonical_operand(e, operand)
    if any(e.inputs[j] is e.inputs[k] for j in range(k)):
        return lambda d: (d, e, k)
    return lambda d: (d, e)


class IndexGraph:
    """Equal group = equal coordinate at every point of the loops. Ask with axis and operation.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a = ig.copy(f.input("a", shape=(1, 8)))
    >>> b = f.output(a + f.input("b", shape=(4, 8)))
    >>> m = ig.IdModel(f)
    >>> row = a.logical[1]
    >>> m.index.mapped((row, a.definition), (row, b.definition))
    False
    >>> _ = a.inline(1)  # the loop over rows is shared, so the broadcast axis has one coordinate; the columns have two
    >>> [m.index.mapped((d, a.definition), (d, b.definition)) for d in a.logical]
    [True, False]
    """

    name = "index"

    def __init__(
        self, fusion: Fusion, nests: Nests, graph: ValGraph[Key], local: dict[TensorExpr, list[LocalExpr]]
    ) -> None:
        self.fusion = fusion
        self.nests = nests
        self.graph = graph
        self.local = local

    @property
    def groups(self) -> tuple[Group[Key], ...]:
        """Groups of (axis, operation) with equal coordinates."""
        return self.graph.groups

    @property
    def expr_groups(self) -> tuple[ExprGroup[Key], ...]:
        """Groups of equal domain expressions."""
        return self.graph.expr_groups

    def group(self, domain: IterDomain, expr: TensorExpr, operand: int | None = None) -> Group[Key]:
        """The group of an axis as ``expr`` uses it; raises `IndexingError` where it does not."""
        return self.graph.lookup(self._key((domain, expr) if operand is None else (domain, expr, operand)))

    def mapped(self, a: Key, b: Key) -> bool:
        """True when two uses have equal coordinates at every point of the loops."""
        return self.graph.same(self._key(a), self._key(b))

    def explain(self, a: Key, b: Key) -> Explanation:
        """Why two uses have equal coordinates, or the first place where they part."""
        return self.graph.chain(self._key(a), self._key(b))

    def definitions(self, group: Group[Key]) -> tuple[ExprGroup[Key], ...]:
        """Expression groups that make a group."""
        return self.graph.definitions(group)

    def uses(self, group: Group[Key]) -> tuple[ExprGroup[Key], ...]:
        """Expression groups that read a group."""
        return self.graph.uses(group)

    @cached_property
    def _cycles(self) -> tuple[Cycle[Key], ...]:
        return find_cycles(self.graph)

    def cycles(self) -> tuple[Cycle[Key], ...]:
        """Cycles left in the index graph: of a legal schedule only identities."""
        return self._cycles

    @property
    def is_cyclic(self) -> bool:
        """True when some coordinate is made, in some steps, of itself (there and back)."""
        return bool(self._cycles)

    @property
    def self_mappings(self) -> tuple[()]:
        """Always empty: uses with different coordinates are never one group."""
        return ()

    def to_networkx(self) -> nx.MultiDiGraph[Any]:
        """Groups and expression groups as a bipartite networkx graph that keeps every attribute."""
        return domain_networkx(self.name, self.groups, self.expr_groups)

    def to_dot(self, **options: object) -> str:
        """Graphviz text."""
        return render("dot", self, **options)

    def to_svg(self, **options: object) -> str:
        """A self-contained SVG picture; needs no graphviz."""
        return render("svg", self, **options)

    def _key(self, key: Key) -> Key:
        if len(key) == 3:
            d, e, k = key
            if not 0 <= k < len(e.inputs):
                raise IndexingError(f"{e!r} has no operand {k}", hint=f"it has {len(e.inputs)} operands")
            return key_of(e, k)(d)
        return key

    def __repr__(self) -> str:
        return f"IndexGraph({len(self.groups)} groups of {self.fusion.name})"

    def __str__(self) -> str:
        return "\n".join("{" + ", ".join(map(key_text, g)) + "}" for g in self.groups)


# A domain expression under one operation: its keys, and whether it belongs to the output (not to an operand).
LocalExpr = tuple[DomainExpr, tuple[Key, ...], tuple[Key, ...], bool]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every use of a tensor enters: its axes, its domain expressions, and the pairs a size-one neighbour joins."""

    domains: tuple[IterDomain, ...]
    exprs: tuple[DomainExpr, ...]
    pairs: tuple[tuple[DomainExpr, IterDomain, IterDomain, IterDomain | None], ...]
    loose: frozenset[IterDomain]


class _Builder:
    def __init__(self, fusion: Fusion, exprs: Sequence[TensorExpr]) -> None:
        self.fusion = fusion
        self.exprs = exprs
        self.nests = Nests(fusion)
        self.graph: GraphBuilder[Key] = GraphBuilder("index")
        self.local: dict[TensorExpr, list[LocalExpr]] = {}
        self._parts: dict[Tensor, _Parts] = {}

    def build(self) -> IndexGraph:
        distinct = {e: _distinct(e) for e in self.exprs}
        for e, operands in distinct.items():
            self._expression(e, operands)
        # Sharing is checked on each operation alone, before any loop joins two of them.
        inlined = [(e, k) for e, operands in distinct.items() for k in operands if self.nests.shared(e.inputs[k])]
        for e, k in inlined:
            self._check_shared(e, k)
        alone = {e: self._joined_loops(e) for e in distinct} if inlined else {}
        for e, k in inlined:
            self._share(e, k)
        made = IndexGraph(self.fusion, self.nests, self.graph.build(), self.local)
        if inlined:  # loops that nobody shares can neither collide nor stand in a knot
            _refuse_shifts(made)
            _refuse_collapsed_loops(made, alone)
            order_nests(self.fusion)
        return made

    def _joined_loops(self, e: TensorExpr) -> set[tuple[IterDomain, IterDomain]]:
        """Loops of one operation that are one wherever it acts, by its own axes alone (both stay at 0)."""
        first: dict[int, IterDomain] = {}
        return {
            (first[n], d)
            for d in self.nests.shadows[e.output].loop
            if first.setdefault(n := self.graph.number((d, e)), d) is not d
        }

    def _expression(self, e: TensorExpr, operands: list[int]) -> None:
        self.local[e] = []
        own = self._enter(e, e.output, key_of(e, None), frozenset())
        for k in operands:
            outside = self._outside(e, k) if self._of(e.inputs[k]).pairs else frozenset[IterDomain]()
            self._read(e, k, self._enter(e, e.inputs[k], key_of(e, k), outside), own)

    def _outside(self, e: TensorExpr, k: int) -> frozenset[IterDomain]:
        """Axes of an operand, and what its schedule makes of them, that ``e`` may ask for out of range (under a false
        predicate): those read through a resize, and those that the output's loops run past."""
        out, t = e.output, e.inputs[k]
        loose = self._of(out).loose
        found = {
            axis
            for axis, read in zip(t.axes, e.reads[k], strict=True)
            if isinstance(read, Mapped) and (read.domain in loose or read.domain not in out.logical)
        }
        for x in self._of(t).exprs:
            if any(d in found for d in x.inputs):
                found.update(x.outputs)
        return frozenset(found)

    def _of(self, t: Tensor) -> _Parts:
        found = self._parts.get(t)
        if found is None:
            exprs = (*own_exprs(t), *self.nests.shadows[t].exprs)
            loose = padded(exprs)
            pairs = tuple((x, a, b, by) for x in exprs for a, b, by in transparent(x) if by not in loose)
            stand_ins = (d for x in self.nests.shadows[t].exprs for d in (*x.inputs, *x.outputs))
            domains = tuple(dict.fromkeys((*own_domains(t), *stand_ins)))
            found = self._parts[t] = _Parts(domains, exprs, pairs, frozenset(loose))
        return found

    def _enter(
        self, e: TensorExpr, t: Tensor, key: Callable[[IterDomain], Key], outside: frozenset[IterDomain]
    ) -> dict[IterDomain, int]:
        """Enter a use of a tensor; returns the number of each of its axes."""
        parts = self._of(t)
        first = self.graph.add_new([key(d) for d in parts.domains])
        numbers = dict(zip(parts.domains, range(first, first + len(parts.domains)), strict=True))
        local = self.local[e]
        for x in parts.exprs:
            self.graph.add_expr(x, key)
            local.append((x, tuple(map(key, x.inputs)), tuple(map(key, x.outputs)), t is e.output))
        for x, a, b, beside in parts.pairs:
            if beside not in outside:
                self.graph.join(numbers[a], numbers[b], Reason("size one", steps=(x,)))
        return numbers

    def _read(self, e: TensorExpr, k: int, mine: dict[IterDomain, int], own: dict[IterDomain, int]) -> None:
        t, join = e.inputs[k], self.graph.join
        theirs, out = self.nests.shadows[t], self.nests.shadows[e.output]
        for p, (axis, read) in enumerate(zip(t.axes, e.reads[k], strict=True)):
            if isinstance(read, Mapped):
                join(mine[axis], own[read.domain], Reason("access", e, t, p))
                if axis in theirs.axis and read.domain in out.axis:
                    join(mine[theirs.axis[axis]], own[out.axis[read.domain]], Reason("promotion", e, t, p))
            elif isinstance(read, Fixed) and read.resolves is not None and axis in theirs.axis:
                join(mine[theirs.axis[axis]], own[out.of(read.resolves)], Reason("promotion", e, t, p))

    def _check_shared(self, e: TensorExpr, k: int) -> None:
        t, key, own = e.inputs[k], key_of(e, k), key_of(e, None)
        mine, out = self.nests.shadows[t], self.nests.shadows[e.output]
        for j in range(self.nests.shared(t)):
            theirs = out.loop[j]
            axis = mine.loop[j]
            if j in mine.direct:
                read = e.reads[k][t.axes.index(axis)]
                met = read.domain if isinstance(read, Mapped) else read.resolves if isinstance(read, Fixed) else None
                same = met is not None and self.graph.same(own(out.of(met)), own(theirs))
            else:
                same = self.graph.same(key(axis), own(theirs))
            if not same:
                raise _not_shared(e, t, j, t.loop[j], e.output.loop[j])

    def _share(self, e: TensorExpr, k: int) -> None:
        t, key = e.inputs[k], key_of(e, k)
        definition = t.definition
        if definition is None:
            return
        mine: Shadow = self.nests.shadows[t]
        for j in range(self.nests.shared(t)):
            d = mine.loop[j]
            because = "inline" if d is t.loop[j] else "promotion"
            self.graph.map((d, definition), key(d), Reason(because, e, t, j))


def _distinct(e: TensorExpr) -> list[int]:
    """Operand numbers, one for each different way of reading a tensor."""
    return [k for k in range(len(e.inputs)) if canonical_operand(e, k) == k]


def _at(e: TensorExpr) -> str:
    return f"{e!r}" + (f" at {e.source_line}" if e.source_line else "")


def _not_shared(e: TensorExpr, t: Tensor, j: int, mine: IterDomain, theirs: IterDomain) -> ScheduleError:
    others = [u for u in t.uses if u is not e]
    copy = f", or give this use its own copy: ig.schedule.recompute({t.name}, use)" if others else ""
    return ScheduleError(
        f"tensor {t.name} is inlined at {t.inline_position}, but its loop {j}, {mine!r}, is not loop {j}, {theirs!r}, "
        f"of its consumer {e.output.name}",
        where=t.source_line,
        because=[
            f"{_at(e)} does not read it at the coordinate of that loop",
            *(f"it is also read by {_at(u)}" for u in others),
        ],
        hint=f"inline {t.name} at most at {j}, or schedule it like {e.output.name}: "
        f"ig.schedule.like(f, {e.output.name}){copy}",
    )


def _refuse_shifts(graph: IndexGraph) -> None:
    """A shift or reorder left in the index graph means one value is needed at two coordinates in one loop nest."""
    for cycle in graph.cycles():
        if not cycle.changes_index:
            continue
        uses: dict[TensorExpr, Tensor] = {}
        for g in cycle.groups:
            for key in g:
                d, e = key[0], key[1]
                if d.tensor is not None and d.tensor in e.inputs and d.tensor.inline_position:
                    uses.setdefault(e, d.tensor)
        shared = [t for t in dict.fromkeys(uses.values()) if sum(u is t for u in uses.values()) > 1]
        t = shared[0] if shared else next(iter(uses.values()), None)
        at = [_at(e) for e, u in uses.items() if u is t]
        name = t.name if t is not None else "a tensor"
        by = f"shifted by {cycle.shift}" if cycle.kind == "shift" else "in another order"
        raise ScheduleError(
            f"{name} is inlined into one loop nest that needs it at two coordinates at once: once {by}",
            where=t.source_line if t is not None else None,
            because=[f"it is read by {line}" for line in at] or [str(cycle)],
            hint=f"give one use its own copy: ig.schedule.recompute({name}, use), or inline {name} at 0",
        )


def _refuse_collapsed_loops(graph: IndexGraph, alone: Mapping[TensorExpr, set[tuple[IterDomain, IterDomain]]]) -> None:
    """Two loops of one operation in one group: inlining asks one loop variable to be two."""
    for e in alone:
        seen: dict[int, IterDomain] = {}
        for d in graph.nests.shadows[e.output].loop:
            number = graph.graph.number((d, e))
            if number in seen and not is_one(d.extent) and (seen[number], d) not in alone[e]:
                a, b = seen[number], d
                raise ScheduleError(
                    f"loops {a!r} and {b!r} of {e.output.name} would have to be one loop",
                    where=e.source_line,
                    because=[str(f) for f in graph.explain((a, e), (b, e)).facts],
                    hint="inline the tensors named further left",
                )
            seen.setdefault(number, d)


def build_index_graph(fusion: Fusion, exprs: Sequence[TensorExpr] | None = None) -> IndexGraph:
    """The index graph of a scheduled fusion; raises `ScheduleError` for an inlining that no loop nest can do.

    ``exprs`` leaves out the others; with everything that shares a loop with them they are judged as in the whole.
    """
    with no_collection():
        return _Builder(fusion, fusion.exprs if exprs is None else exprs).build()
