"""The axis that gives each loop its extent, and the way it runs: one answer for all that share a loop.

Tensors inlined at k share their first k loops with their readers, so loops fall into classes. A class runs over an axis
of one of its tensors in which no broadcast was resolved, a reader's rather than a producer's. Where there is none, it
runs over the stand-in of a reader.

Whether a loop of a tensor is a loop of its reader: judged by coordinates, whatever was built on either side.

Loop j of ``t`` is loop j of its reader where, at every point at which the reader reads ``t``, the element that it reads
is one that ``t`` computes at that step of loop j. Both coordinates are composed from the reader's loop variables by the
one rule table, and compared by the algebra.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

from idgraph.arith import ArithError, Expr, Proof, as_expr, prove_equal, simplify, strongest, symbol
from idgraph.errors import ScheduleError
from idgraph.graphs.coordinate_rules import CoordinateSolver, backward, forward, is_bijective_at
from idgraph.graphs.loop_nest import LoopNests
from idgraph.graphs.signature import own_exprs
from idgraph.ir import (
    DomainExpr,
    Fixed,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    Tensor,
    TensorExpr,
    scatter_axes,
    tensor_of,
)
from idgraph.ir.iter_domain import Parallel
from idgraph.ir.op_builders import same_extent


class Promotion:
    """For each loop axis of a computed tensor the axis that gives its loop the extent, and the way the loop runs."""

    def __init__(self, nests: LoopNests) -> None:
        self.nests = nests
        # Only of loops that are shared or widened: most are neither, and run over their own axis in its own way.
        self._of: dict[IterDomain, IterDomain] = {}
        self._way: dict[IterDomain, Parallel] = {}
        classes: dict[IterDomain, list[IterDomain]] = {}
        self._joined = nests.joined
        for e in reversed(nests.exprs) if self._joined else ():
            for j, d in enumerate(e.output.loop):
                if d in self._joined:
                    classes.setdefault(nests.loop_class(e.output, j), []).append(d)
        for members in classes.values():
            self._way.update(dict.fromkeys(members, _merge_parallel_types(members)))
        moved: dict[IterDomain, IterDomain] = {}  # loops that run over a stand-in
        for t, shadow in nests.shadows.items():
            stands = (shadow.direct.get(j, d) for j, d in enumerate(shadow.loop))
            if t.definition is not None:
                moved.update((d, by) for d, by in zip(t.loop, stands, strict=True) if by is not d)
        for e in reversed(nests.exprs) if moved else ():  # readers first: a shared loop takes its extent from them
            for j, d in enumerate(e.output.loop):
                if d in moved:
                    self._of[d] = self._extent_source(
                        e.output, j, moved, classes.get(nests.loop_class(e.output, j), ())
                    )

    def _extent_source(
        self, t: Tensor, j: int, moved: Mapping[IterDomain, IterDomain], members: Sequence[IterDomain]
    ) -> IterDomain:
        """The axis that gives loop ``j`` of ``t``, not one of its own, the extent: of a reader, as near as can be;
        else of whatever else shares the loop; else a stand-in."""
        read = [self.of(e.output.loop[j]) for e in t.uses if j < t.inline_position]
        real = [d for d in (*read, *members) if d in self._joined and d not in moved]
        return next(iter((*real, *read, moved[t.loop[j]])))

    def of(self, d: IterDomain) -> IterDomain:
        """The axis that gives the loop of ``d`` its extent."""
        return self._of.get(d, d)

    def parallel_type(self, d: IterDomain) -> Parallel:
        """The way the loop of ``d`` runs: serially, unless any that shares it says otherwise."""
        return self._way.get(d, d.parallel)

    def __contains__(self, d: object) -> bool:
        return d in self._loops

    @cached_property
    def _loops(self) -> frozenset[IterDomain]:
        return frozenset(d for e in self.nests.exprs for d in e.output.loop)


def _merge_parallel_types(members: Sequence[IterDomain]) -> Parallel:
    """The way one loop runs: any other way overrides serial, and blocks and threads override lanes."""
    found: dict[Parallel, IterDomain] = {d.parallel: d for d in members if d.parallel != "serial"}
    threads: list[Parallel] = [w for w in found if w.startswith(("blockIdx", "threadIdx"))]
    chosen = threads or list(found)
    if len(chosen) > 1:
        a, b = (found[w] for w in chosen[:2])
        raise ScheduleError(
            f"the loops {a.label} on {a.parallel} and {b.label} on {b.parallel} are one by inlining",
            where=next((t.source_line for t in map(tensor_of, (a, b)) if t is not None), None),
            because=["a shared loop runs one way"],
            subject=tuple(t.name for t in (a.tensor, b.tensor) if t is not None),
        )
    return chosen[0] if chosen else "serial"


_TRIED = 24  # points that are tried before anything is proved: most loops that differ do so at one of the first
_ZERO = as_expr(0)


@dataclass(frozen=True, slots=True)
class SharedLoopResult:
    """A reader's loop over its operand: ``at`` is the coordinate of the operand's loop axis, None where it has none.

    ``same``: it is the loop variable wherever the operand is read; ``always``: also where it is not, and the operand's
    axes and the reader's follow from each other there too. Only then are the two one in a graph closed by congruence.
    """

    at: Expr | None
    same: bool
    always: bool = False


@lru_cache(maxsize=1 << 13)
def _equal_under(facts: tuple[Expr, ...], at: Expr, loop: Expr, loops: int) -> bool:
    """Whether two coordinates are equal where these facts hold, by their expressions: a schedule that takes inlinings
    back asks again and again, and equal layers ask alike."""
    facts = tuple(strongest(facts))
    if at.names <= {f"i{j}" for j in range(loops)} and _differs(at, loop, facts):
        return False
    return isinstance(prove_equal(at, loop, facts=facts), Proof)


class SharedLoopProver:
    """Coordinates of operands' loops under their readers, for one set of nests."""

    def __init__(self, nests: LoopNests, promotion: Promotion) -> None:
        self._nests = nests
        self._promotion = promotion
        self._own: dict[TensorExpr, CoordinateSolver] = {}

    def prove_shared(self, e: TensorExpr, k: int, j: int) -> SharedLoopResult:
        """Loop ``j`` of operand ``k`` beside loop ``j`` of the output of ``e``."""
        mine, theirs = self._nests.shadows[e.inputs[k]], self._nests.shadows[e.output]
        if j in mine.direct or j in theirs.direct:
            return SharedLoopResult(None, False)  # one element in a wider loop: broadcast resolution decides
        loop = self._loop(e, j)
        known, doubtful = self._coordinates(e, k)
        at = known.get(mine.loop[j])
        if at is None:
            return SharedLoopResult(None, False)
        if simplify(at - loop) == _ZERO:
            return SharedLoopResult(at, True, mine.loop[j] not in doubtful)
        try:
            return SharedLoopResult(at, self._proved(e, k, at, loop))
        except ArithError:  # as a division by an extent that may be 0
            return SharedLoopResult(at, False)

    def _loop(self, e: TensorExpr, j: int) -> Expr:
        return symbol(f"i{j}", 0, simplify(self._promotion.of(e.output.loop[j]).extent - 1))

    def own(self, e: TensorExpr) -> CoordinateSolver:
        """Coordinates of the output's axes."""
        found = self._own.get(e)
        if found is None:
            shadow = self._nests.shadows[e.output]
            start = [(d, _ZERO) for d in e.output.logical if d in shadow.resolved]
            start += [(d, symbol(f"ld{k}")) for d, k in scatter_axes(e)]
            start += [(d, _ZERO if j in shadow.direct else self._loop(e, j)) for j, d in enumerate(shadow.loop)]
            found = self._own[e] = CoordinateSolver(start, (*own_exprs(e.output), *shadow.exprs))
        return found

    def _coordinates(self, e: TensorExpr, k: int) -> tuple[dict[IterDomain, Expr], set[IterDomain]]:
        """Coordinates of the axes of operand ``k``, and of what its schedule and its nest make of them; and those among
        these axes whose coordinate is sure only where the operand is read."""
        t, axes = e.inputs[k], self.own(e)
        own = axes.value
        known: dict[IterDomain, Expr] = {}
        doubtful: set[IterDomain] = set()
        for axis, read in zip(t.axes, e.reads[k], strict=True):
            if isinstance(read, Mapped) and read.domain in own:
                beside = axis.is_broadcast and simplify(own[read.domain]) != _ZERO
                if beside or not axes.is_invertible_path(read.domain):
                    doubtful.add(axis)
            match read:
                case _ if axis.is_broadcast:
                    known[axis] = _ZERO
                case Fixed():
                    known[axis] = read.index
                case LoadedCoordinate():
                    known[axis] = symbol(f"ld{read.operand}")
                case Mapped(domain):
                    if domain in own:
                        known[axis] = own[domain]
        for d, met in self._nests.promoted_pairs(t, e, k):
            if met in own:
                known[d] = own[met]
                if not axes.is_invertible_path(met):
                    doubtful.add(d)
        steps = [*own_exprs(t), *self._nests.shadows[t].exprs]
        while steps:
            rest: list[DomainExpr] = []
            for x in steps:
                if all(d in known for d in x.inputs):
                    made = zip(x.outputs, forward(x, tuple(known[d] for d in x.inputs)), strict=True)
                elif all(d in known for d in x.outputs):
                    made = zip(x.inputs, backward(x, tuple(known[d] for d in x.outputs)), strict=True)
                else:
                    rest.append(x)
                    continue
                for d, v in made:
                    known.setdefault(d, simplify(v))
                if any(d in doubtful for d in (*x.inputs, *x.outputs)) or not is_bijective_at(x, known):
                    doubtful.update((*x.inputs, *x.outputs))
            if len(rest) == len(steps):
                break
            steps = rest
        return known, doubtful

    def _facts(self, e: TensorExpr, k: int) -> Iterator[Expr]:
        """Bounds of every axis on the way from the loops to what is read of operand ``k``."""
        own, out = self.own(e), e.output
        shadow = self._nests.shadows[out]
        between = [d for x in out.domain.loop_exprs for d in (*x.inputs, *x.outputs)]
        loaded = {d for d, _ in scatter_axes(e)}
        logical = [d for d in (*out.logical, *(out.root if loaded else ())) if d not in loaded]
        mapped = [r.domain for r in e.reads[k] if isinstance(r, Mapped) and r.domain not in loaded]
        direct = frozenset(out.loop[j] for j in shadow.direct)
        wanted = dict.fromkeys((*(shadow.of(d) for d in (*logical, *between)), *mapped))
        for bound in own.bounds_on_path(wanted, direct):
            fact = simplify(bound.condition)
            if not fact.is_const or not fact.evaluate({}):
                yield fact

    def _proved(self, e: TensorExpr, k: int, at: Expr, loop: Expr) -> bool:
        return _equal_under(tuple(self._facts(e, k)), at, loop, len(e.output.loop))

    def extents_agree(self, e: TensorExpr, k: int, j: int) -> bool:
        """Whether both run as many steps."""
        mine, theirs = self._nests.shadows[e.inputs[k]], self._nests.shadows[e.output]
        return same_extent(mine.loop[j].extent, theirs.loop[j].extent)


def _differs(a: Expr, b: Expr, facts: tuple[Expr, ...]) -> bool:
    """Whether they differ at one of a few points at which all facts hold."""
    symbols = {s for x in (a, b, *facts) for s in x.symbols}
    bounds = {s.name: s.symbol_bounds[:2] for s in symbols}
    draw = Random(0)
    if not all(isinstance(low, int) and isinstance(high, int) and low <= high for low, high in bounds.values()):
        return False
    for n in range(_TRIED):
        env: dict[str, int] = {}
        for name, (low, high) in sorted(bounds.items()):
            if isinstance(low, int) and isinstance(high, int):
                env[name] = min(low + n, high) if n < 3 else draw.randint(low, high)
        if all(f.evaluate(env) for f in facts) and a.evaluate(env) != b.evaluate(env):
            return True
    return False
