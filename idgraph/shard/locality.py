"""Whether an operation is local: the owner of each element of its output owns everything that the element is made of.

Decided on the maps: along each axis of the mesh, the coordinate that owns an element of the output is compared with
the coordinate that owns what it reads, by `prove_equal`, and where no rule decides, at every point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from idgraph.arith import (
    TRUE,
    CounterExample,
    Expr,
    IndexMap,
    Proof,
    and_,
    as_expr,
    enumerate_points,
    prove,
    prove_equal,
    simplify,
    symbol,
)
from idgraph.display import Printed, Sheet
from idgraph.errors import user_line
from idgraph.ir.fusion import Fusion, TensorExpr
from idgraph.ir.mesh import Mesh, MeshError, Placement, Reduction
from idgraph.ir.op_table import OPERATIONS, SCANS, SCATTERS
from idgraph.shard.moves import Collective, ForeignRead, Move, classify, reduced_bytes, traffic
from idgraph.shard.ownership import Ownership
from idgraph.shard.reads import OperandRead, OperationReads

LocalityVerdict = Literal["local", "communication", "unknown"]
_VALUES = frozenset(OPERATIONS) | SCANS | SCATTERS | {"matmul"}  # operations that do more than move elements
REDUCES: Mapping[str, Reduction] = {"sum": "sum", "matmul": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@dataclass(frozen=True, slots=True)
class Locality(Printed):
    """How an operation runs on the devices: "local" (proved), or the moves that it needs first.

    ``because`` has a line for each operand and mesh axis that was compared; ``witness`` is an element that a device
    reads and does not hold. ``bytes`` are the most that one device receives (None: not counted).

    >>> import idgraph as ig
    >>> f, mesh = ig.Fusion("f"), ig.Mesh(x=2)
    >>> x = f.input("x", shape=(8, 6)).shard(0, "x")
    >>> y = f.output(x.T.shard(0, "x"))
    >>> step = ig.shard.explain(f, y.definition)
    >>> print(step)
    permute: all-to-all of x over x, 48 bytes a rank
      rank 0 makes t1[0, 4] of x[4, 0], which rank 1 holds
    """

    expr: TensorExpr
    verdict: LocalityVerdict
    placement: Placement
    because: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    witness: ForeignRead | None = None

    @property
    def is_local(self) -> bool:
        """True where it is proved that no device reads what it does not hold."""
        return self.verdict == "local"

    @property
    def collective(self) -> Collective | None:
        """The collective of its first move; None where there is none."""
        return self.moves[0].collective if self.moves else None

    @property
    def bytes(self) -> int | None:
        """Bytes that a device receives at most, for all moves; None where one was not counted."""
        counts = [m.bytes for m in self.moves]
        return None if any(n is None for n in counts) else sum(n for n in counts if n is not None)

    def __bool__(self) -> bool:
        return self.is_local

    def sheet(self) -> Sheet:
        """The reasons, then the moves."""
        rows = [("", line) for line in (*self.because, *map(str, self.moves))]
        rows += [("witness", str(self.witness))] if self.witness is not None else []
        return Sheet(f"{self.expr.op}: {self.verdict}", ("", ""), tuple(rows), good=self.is_local)

    def __str__(self) -> str:
        if not self.moves:
            return f"{self.expr.op}: {self.verdict}" + "".join(f"\n  {line}" for line in self.because)
        found = [f"{self.expr.op}: {'; '.join(map(str, self.moves))}"]
        return "\n".join([*found, *([f"  {self.witness}"] if self.witness is not None else [])])

    __repr__ = __str__


def mesh_of_fusion(f: Fusion) -> Mesh:
    """The mesh of a fusion; raises `MeshError` where it has none."""
    if f.mesh is None:
        raise MeshError(
            f"fusion {f.name} has no mesh", where=user_line(), hint='f.mesh = ig.Mesh(x=2), t.shard(0, "x")'
        )
    return f.mesh


@dataclass(frozen=True, slots=True)
class _Compared:
    """Along ``over``, ``needs`` (None: every device) makes what ``owns`` holds."""

    over: str
    needs: Expr | None
    owns: Expr


class LocalityDecision:
    """The decision about one operation; see `decide`."""

    def __init__(self, found: OperationReads, placements: Mapping[str, Placement], mesh: Mesh) -> None:
        self.found, self.mesh = found, mesh
        self.expr = found.expr
        self.placement = placements[self.expr.output.name]
        self.output = Ownership(self.expr.output, self.placement, mesh)
        self.ranks, _ = self.output.at(found.symbols)
        self.owners = {t.name: Ownership(t, placements[t.name], mesh) for t in self.expr.inputs}
        self.symbols = (*found.symbols, *found.terms, *found.anywhere)
        self.because: list[str] = []
        self.moves: list[Move] = []
        self.witness: ForeignRead | None = None
        self.sure = True
        self.term_ranks = self._terms()

    def _terms(self) -> dict[str, Expr]:
        """Along each mesh axis that the output is partial over: the device that has a term of it."""
        found: dict[str, Expr] = {}
        terms = {r.name for r in self.found.terms}
        for over, op in self.placement.partials.items():
            ranks = [self._term_rank(r, over) for r in self.found.reads if over in self._owns(r)]
            if ranks and REDUCES.get(self.expr.op) == op and terms.issuperset(ranks[0].names):
                found[over] = ranks[0]
                continue
            partial = [r for r in self.found.reads if over in self.owners[r.tensor.name].placement.partials]
            if not partial or not all(self.passes(r, over, op) for r in partial):
                raise MeshError(
                    f"{self.expr.output.name} is not a partial {op} over {over}: {self.expr.op} neither reduces an "
                    f"axis that is sharded over {over}, nor makes one of such operands",
                    where=self.expr.source_line,
                    hint="shard or replicate it there",
                )
        return found

    def _term_rank(self, read: OperandRead, over: str) -> Expr:
        """The device along ``over`` that has a term: as the operand is split by only those mesh axes that the output
        is partial over, so that each device has terms at equal steps."""
        steps = self.owners[read.tensor.name].placement.steps
        split = Placement(tuple(s for s in steps if s.over in self.placement.partials))
        return simplify(Ownership(read.tensor, split, self.mesh).at(read.coordinates)[0][over])

    def _owns(self, read: OperandRead) -> dict[str, Expr]:
        return self.owners[read.tensor.name].at(read.coordinates)[0]

    def run(self) -> Locality:
        for read in self.found.reads:
            self._operand(read)
        verdict: LocalityVerdict = "communication" if self.moves else "local" if self.sure else "unknown"
        return Locality(self.expr, verdict, self.placement, tuple(self.because), tuple(self.moves), self.witness)

    def _operand(self, read: OperandRead) -> None:
        owner = self.owners[read.tensor.name]
        owns = {m: simplify(x) for m, x in self._owns(read).items()}
        reduced = [m for m, op in owner.placement.partials.items() if not self.passes(read, m, op)]
        for m in reduced:
            self._reduce(read, owner, m)
        for m in owner.placement.partials.keys() - set(reduced):
            self.because.append(f"{read.tensor.name} over {m}: its parts give parts of the result")
        compared = [_Compared(m, self.needs(m), x) for m, x in owns.items() if self.mesh.sizes[m] > 1]
        verdicts = [self._compare(read, c) for c in compared]
        foreign = [c for c, v in zip(compared, verdicts, strict=True) if v is not True]
        if not foreign:
            return
        destination = {m: x for m in self.mesh.sizes if (x := self.needs(m)) is not None}
        seen = traffic(read, self.symbols, self.mesh, owns, destination)
        if seen is not None and not len(seen.source):
            self.because += [f"{read.tensor.name} over {c.over}: at every point" for c in foreign]
            return
        if seen is None and all(v is None for v in verdicts):
            self.because.append(f"{read.tensor.name}: neither proved nor refuted, and too many points to list")
            self.sure = False
            return
        self._see(read, owner, owns, destination)
        self.moves.append(classify(read, owns, destination, seen, owner))

    def needs(self, over: str) -> Expr | None:
        """The device along a mesh axis that makes an element (or a term of it); None: all of them."""
        found = self.term_ranks.get(over)
        return self.ranks.get(over) if found is None else found

    def _compare(self, read: OperandRead, c: _Compared) -> bool | None:
        """Whether the devices that make it hold it: proved, refuted, or neither."""
        facts = () if read.condition is TRUE else (read.condition,)
        name = f"{read.tensor.name} over {c.over}"
        if c.needs is None:
            self.because.append(f"{name}: every device needs what {c.owns} owns")
            return False
        verdict = prove_equal(c.needs, c.owns, facts=facts)
        if isinstance(verdict, Proof):
            self.because.append(f"{name}: {c.needs} owns both")
            return True
        self.because.append(f"{name}: {c.needs} needs what {c.owns} owns")
        return False if isinstance(verdict, CounterExample) else None

    def _see(
        self, read: OperandRead, owner: Ownership, owns: Mapping[str, Expr], destination: Mapping[str, Expr]
    ) -> None:
        """A witness: the first point at which a device needs what it does not hold."""
        if self.witness is not None:
            return
        free = {m: symbol(f"at_{m}", 0, n - 1) for m, n in self.mesh.axes if m not in destination}
        there = {**destination, **free}
        same = and_(*(there[m].eq(x) for m, x in owns.items()))
        symbols = (*self.symbols, *free.values())
        point = _first_foreign(same, read.condition, symbols)
        if point is None:
            return
        rank = {m: int(as_expr(there[m]).evaluate(point)) for m in self.mesh.sizes}
        self.witness = ForeignRead(
            self.expr.output.name,
            tuple(point[s.name] for s in self.found.symbols),
            self.mesh.rank(**rank),
            read.tensor.name,
            tuple(int(x.evaluate(point)) for x in read.coordinates),
            owner.devices({m: int(x.evaluate(point)) for m, x in owns.items()}),
            {n: v for n, v in point.items() if n in self.expr.output.fusion.symbols},
        )

    def passes(self, read: OperandRead, over: str, op: Reduction) -> bool:
        """Whether the operation of partial operands is a partial result of the same kind."""
        if not self.placement.partials.get(over) == self._partial(read, over) == op:
            return False
        e, k = self.expr, read.operand
        others = [r for r in self.found.reads if r.operand != k]
        partial = [r for r in others if self._partial(r, over) == op]
        apart = [r for r in others if over in self._owns(r)]
        if apart:
            return False
        if e.op in REDUCES and e.op != "matmul":
            return REDUCES[e.op] == ("sum" if op == "avg" else op)
        if e.op == "pad":  # what is added is what the reduction of it by all devices is
            return op in ("max", "min", "avg") or e.attrs.get("value") in (0, int(op == "prod"))
        if op not in ("sum", "avg"):
            return e.op not in _VALUES and not others
        # A mean of what is equal on all devices is that, so that what is added may be equal there.
        alone = op == "avg" or (len(e.inputs) == len(e.args) and len(partial) == len(others))
        match e.op:
            case "add" | "sub" | "cat":
                return alone
            case "mul" | "matmul":
                return not partial
            case "div":
                return k == 0 and not partial
            case "where":
                inside = [r.operand for r in (read, *partial)]
                return 0 not in inside and (op == "avg" or (len(e.inputs) == 3 and len(partial) == 1))
            case "neg" | "copy":
                return True
            case _:  # moves of values alone
                return e.op not in _VALUES and not others

    def _partial(self, read: OperandRead, over: str) -> Reduction | None:
        return self.owners[read.tensor.name].placement.partials.get(over)

    def _reduce(self, read: OperandRead, owner: Ownership, over: str) -> None:
        """The move of an operand that is a partial result, to where whole ones are needed."""
        n = self.mesh.sizes[over]
        scattered = over in self.ranks and self._one_device(read, self.ranks[over])
        sizes = owner.sizes(dict.fromkeys(owner.ranks, 0))
        count = prod(int(x) for x in sizes) if all(x.is_const for x in sizes) else None
        kind: Collective = "reduce-scatter" if scattered else "all-reduce"
        size = None if count is None else reduced_bytes(read.tensor, count, n, scattered=scattered)
        self.because.append(f"{read.tensor.name} over {over}: a partial {owner.placement.partials[over]} is read")
        destination = {over: self.ranks[over]} if scattered else {}
        self.moves.append(
            Move(
                read.tensor, kind, (over,), read.coordinates, {}, destination, read.condition, size,
                None if size is None else (size,) * self.mesh.size,
            )
        )  # fmt: skip

    def _one_device(self, read: OperandRead, rank: Expr) -> bool:
        """Whether each element of an operand is read by one device along a mesh axis: its coordinates fix the rank."""
        names = {n for x in (*read.coordinates, rank) for n in x.names}
        symbols = tuple(s for s in self.symbols if s.name in names)
        if IndexMap(symbols, read.coordinates, tuple(read.tensor.shape), read.condition).is_injective:
            return True
        again = {s: symbol(f"{s.name}_again", *s.symbol_bounds[:2]) for s in symbols}
        facts = [x.eq(x.substitute(again)) for x in read.coordinates]
        if read.condition is not TRUE:
            facts += [read.condition, read.condition.substitute(again)]
        return isinstance(prove_equal(rank, rank.substitute(again), facts=facts), Proof)


def _first_foreign(same: Expr, condition: Expr, symbols: tuple[Expr, ...]) -> dict[str, int] | None:
    """The first point at which a condition holds and the owners differ, or any."""
    facts = () if condition is TRUE else (condition,)
    for verdict in (enumerate_points(same, facts=facts), prove(same, facts=facts)):
        if isinstance(verdict, CounterExample):
            return {**dict.fromkeys((s.name for s in symbols), 0), **verdict.values}
    return None


def decide(found: OperationReads, placements: Mapping[str, Placement], mesh: Mesh) -> Locality:
    """`explain` of an operation under given placements, by the name of the tensor."""
    return LocalityDecision(found, placements, mesh).run()
