"""Placements of all tensors from those that are given: each follows from what its operation reads, by the maps.

Along each axis of the mesh an output may be sharded on the axis whose owner is the owner of what is read, hold parts of
a reduction, or be replicated. Where no choice is local, the one with the fewest bytes over the links is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from idgraph.arith import TRUE, Expr, Proof, prove_equal, simplify
from idgraph.display import Printed, Sheet
from idgraph.errors import arguments, short_repr, user_line
from idgraph.ir.fusion import Fusion, Tensor, TensorExpr, check_fusion
from idgraph.ir.mesh import Mesh, MeshError, Partial, Placement, Shard
from idgraph.shard.locality import REDUCES, Locality, decide, mesh_of_fusion
from idgraph.shard.ownership import REPLICATED, Ownership
from idgraph.shard.reads import OperandRead, OperationReads, reads_of
from idgraph.shard.rows import rows_axes


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """The placement of one tensor, why it has that, and how the operation that makes it runs (None: an input)."""

    placement: Placement
    reason: str
    step: Locality | None = None

    @property
    def bytes(self) -> int | None:
        """Bytes that a device receives at most before the tensor can be made; None where they were not counted."""
        return 0 if self.step is None else self.step.bytes


class Placements(Printed, Mapping[Tensor, TensorPlacement]):
    """Tensor -> `TensorPlacement`, in the order of the fusion; prints as a table."""

    def __init__(self, fusion: Fusion, rows: Mapping[Tensor, TensorPlacement]) -> None:
        self.fusion, self._rows = fusion, dict(rows)

    def __getitem__(self, t: Tensor) -> TensorPlacement:
        return self._rows[t]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def apply(self) -> None:
        """Give each tensor its placement, as if the user had said it."""
        for t, row in self._rows.items():
            t.placement = row.placement
        self.fusion.touch()

    def sheet(self) -> Sheet:
        """A row for each tensor."""
        columns = ("tensor", "placement", "", "because")
        rows = [(t.name, str(p.placement), "" if p.step is None else p.step.verdict, p.reason) for t, p in self.items()]
        return Sheet(f"placements of {self.fusion.name} on {self.fusion.mesh}", columns, tuple(rows))

    def __str__(self) -> str:
        rows = [(t.name, str(p.placement), p.reason) for t, p in self.items()]
        wide = [max(len(r[k]) for r in rows) for k in range(2)] if rows else [0, 0]
        return "\n".join(f"{a.ljust(wide[0])}  {b.ljust(wide[1])}  {c}" for a, b, c in rows)

    __repr__ = __str__


@arguments(MeshError, first=True)
def propagate(f: Fusion) -> Placements:
    """Placements of all tensors of ``f`` from those that are given, each with its reason and cost; changes nothing.

    An input without a placement is replicated. Raises `MeshError` where the fusion has no mesh.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> a = f.input("a", shape=(4, 8)).shard(1, "x")
    >>> b = f.input("b", shape=(8, 6)).shard(0, "x")
    >>> c = f.output(ig.relu(ig.matmul(a, b)))
    >>> print(ig.shard.propagate(f))
    a   shard(1, "x")      given
    b   shard(0, "x")      given
    t2  partial("x", "sum")  local: each device adds up its terms over x
    t3  replicate()        all-reduce of t2 over x, 96 bytes a rank
    """
    f = check_fusion(f, "shard.propagate", MeshError)
    mesh = mesh_of_fusion(f)
    rows: dict[Tensor, TensorPlacement] = {}
    placements: dict[str, Placement] = {}
    for t in f.tensors:
        e = t.definition
        if e is None:
            rows[t] = TensorPlacement(
                t.placement or REPLICATED, "given" if t.placement is not None else "an input, not placed"
            )
        elif t.placement is not None:
            placements[t.name] = t.placement
            step = decide(reads_of(e), placements, mesh)
            rows[t] = TensorPlacement(t.placement, f"given; {_cost(step)}", step)
        else:
            step = _best(reads_of(e), placements, mesh)
            rows[t] = TensorPlacement(step.placement, _cost(step), step)
        placements[t.name] = rows[t].placement
    return Placements(f, rows)


def _cost(step: Locality) -> str:
    if step.moves:
        return "; ".join(map(str, step.moves))
    parts = step.placement.partials
    if step.is_local and parts:
        verb = "adds up" if "sum" in parts.values() else "reduces"
        return f"local: each device {verb} its terms over {', '.join(parts)}"
    return "local: " + ("; ".join(step.because) or "every device has all of it") if step.is_local else step.verdict


def _best(found: OperationReads, placements: Mapping[str, Placement], mesh: Mesh) -> Locality:
    """The cheapest of the placements that the output may have."""
    best: tuple[float, Locality] | None = None
    for candidate in candidates(found, placements, mesh):
        try:
            step = decide(found, {**placements, found.expr.output.name: candidate}, mesh)
        except MeshError:  # no partial result of this operation
            continue
        cost = 0.0 if step.is_local else inf if step.bytes is None else float(step.bytes)
        if best is None or cost < best[0]:
            best = cost, step
        if step.is_local:
            break
    assert best is not None  # replicated is always one
    return best[1]


def candidates(found: OperationReads, placements: Mapping[str, Placement], mesh: Mesh) -> list[Placement]:
    """Placements that an output may have, those that follow from an operand first, the replicated one last."""
    made: dict[Placement, None] = {}
    for leader in found.reads:
        steps: list[Shard | Partial] = []
        for read in (leader, *(r for r in found.reads if r is not leader)):
            _follow_operand(found, read, placements[read.tensor.name], mesh, steps)
        made[Placement(tuple(steps))] = None
        made[Placement(tuple(s for s in steps if isinstance(s, Shard)))] = None
    for leader in found.reads:
        made[_shifted_shards(found, leader, placements[leader.tensor.name], mesh)] = None
    apart = rows_axes(found.expr.output)  # a device's program has all rows
    return [*(p for p in made if p.steps and apart.isdisjoint(s.axis for s in p.shards)), REPLICATED]


def _follow_operand(
    found: OperationReads, read: OperandRead, placement: Placement, mesh: Mesh, steps: list[Shard | Partial]
) -> None:
    """Add what follows for the output from the placement of one operand, along mesh axes that no step has."""
    owns, _ = Ownership(read.tensor, placement, mesh).at(read.coordinates)
    e = found.expr
    terms = {s.name for s in found.terms}
    for s in placement.steps:
        if any(x.over == s.over for x in steps):
            continue
        if isinstance(s, Partial):
            steps.append(s)
        elif set(simplify(owns[s.over]).names) & terms:
            if e.op in REDUCES:
                steps.append(Partial(s.over, REDUCES[e.op]))
        else:
            made = _matching_shard(e, read, simplify(owns[s.over]), s, steps, mesh, found.symbols)
            steps += [] if made is None else [made]


def _shifted_shards(found: OperationReads, read: OperandRead, placement: Placement, mesh: Mesh) -> Placement:
    """The shards of an operand on the axes of the output whose coordinates it is read at, though not on the same
    devices: a slice, a shift or padding moves what crosses the border of a part, not the whole operand."""
    owns, _ = Ownership(read.tensor, placement, mesh).at(read.coordinates)
    steps: list[Shard] = []
    for s in placement.shards:
        axes = [k for k, i in enumerate(found.symbols) if i.name in simplify(owns[s.over]).names]
        steps += [Shard(axes[0], s.over, s.inner)] if axes else []
    return Placement(tuple(steps))


def _matching_shard(
    e: TensorExpr, read: OperandRead, owns: Expr, s: Shard, steps: list[Shard | Partial], mesh: Mesh,
    symbols: tuple[Expr, ...],
) -> Shard | None:  # fmt: skip
    """The shard of the output along one mesh axis whose owner is ``owns``."""
    facts = () if read.condition is TRUE else (read.condition,)
    for k, i in enumerate(symbols):
        if i.name not in owns.names:
            continue
        for inner in (s.inner, not s.inner):
            trial = Shard(k, s.over, inner)
            ranks, _ = Ownership(e.output, Placement((*steps, trial)), mesh).at(symbols)
            if isinstance(prove_equal(ranks[s.over], owns, facts=facts), Proof):
                return trial
    return None


@arguments(MeshError, first=True)
def explain(f: Fusion, e: TensorExpr) -> Locality:
    """Whether operation ``e`` is local under the placements of its tensors, and what moves where it is not.

    Tensors without a placement have that of `propagate`. Raises `MeshError` where the fusion has no mesh, or an
    output is said to be a partial result that ``e`` does not make.

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2, y=2)
    >>> x = f.input("x", shape=(2, 4, 4)).shard(1, "x").shard(1, "y")
    >>> y = f.output(ig.reshape(x, (2, 16)).shard(1, "x").shard(1, "y"))
    >>> print(ig.shard.explain(f, y.definition))
    reshape: local
      x over x: i1//8 owns both
      x over y: i1//4%2 owns both
    >>> z = f.output(ig.reshape(x, (32,)).shard(0, "x").shard(0, "y"))
    >>> print(ig.shard.explain(f, z.definition).witness)
    rank 0 makes t2[4] of x[0, 1, 0], which rank 1 holds
    """
    f = check_fusion(f, "shard.explain", MeshError)
    if not isinstance(e, TensorExpr) or e.output not in f:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise MeshError(
            f"{short_repr(e)} is not an operation of fusion {f.name}", hint="t.definition", where=user_line()
        )
    mesh = mesh_of_fusion(f)
    if all(t.placement is not None for t in (*e.inputs, e.output)):
        placements = {t.name: t.placement or REPLICATED for t in (*e.inputs, e.output)}
        return decide(reads_of(e), placements, mesh)
    found = propagate(f)[e.output].step
    assert found is not None  # an operation's output has one
    return found
