"""The element of one access, in the loop variables of its operation: coordinates, address and predicate, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

from idgraph.arith import TRUE, Expr, and_, simplify
from idgraph.display import Printed, Sheet
from idgraph.graphs.coordinate_rules import Bound
from idgraph.index.allocation import AllocatedBuffer
from idgraph.ir import SCANS, Fusion, IterDomain, Tensor, TensorExpr
from idgraph.ir.iter_domain import Parallel


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """One loop of an operation: variable ``symbol`` named ``name`` runs from 0 to ``extent`` - 1.

    ``domain`` is the axis that gives the extent: the output's own loop axis, or where the loop is promoted the axis
    (or replay) it is promoted to.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(f.input("a", shape=(30,)) + 1).split(0, 8).parallelize(1, "threadIdx.x")
    >>> [str(x) for x in ig.IdModel(f).loops(t.definition)]
    ['i0 in [0, 4)', 'i1 in [0, 8) on threadIdx.x']
    """

    name: str
    extent: Expr
    parallel: Parallel
    domain: IterDomain
    symbol: Expr

    def __str__(self) -> str:
        how = "" if self.parallel == "serial" else f" on {self.parallel}"
        return f"{self.name} in [0, {self.extent}){how}"


class Coordinate(Expr):
    """An expression of an access that holds loaded values; ``loads`` says where these come from.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(4, 1), dtype="int64")
    >>> a = ig.IdModel(f).access(ig.gather(x, 1, i).definition, x)
    >>> {name: (t.name, where) for name, (t, where) in a.coordinates[1].loads.items()}
    {'ld1': ('i', (i0, 0))}
    >>> a.coordinates[1].evaluate({"ld1": 7}), a.coordinates[0].loads
    (7, {})
    """

    __slots__ = ("sources",)
    sources: Mapping[str, tuple[Tensor, tuple[Expr, ...]]]

    @property
    def loads(self) -> Mapping[str, tuple[Tensor, tuple[Expr, ...]]]:
        """Symbol name -> (index tensor, its coordinates)."""
        return self.sources


def with_loads(x: Expr, loads: Mapping[str, tuple[Tensor, tuple[Expr, ...]]]) -> Expr:
    """``x`` itself, or an equal expression that knows where its loaded values come from."""
    used = {name: source for name, source in loads.items() if name in x.names}
    if not used:
        return x
    made = Coordinate.__new__(Coordinate)
    for slot in Expr.__slots__:
        if slot != "__weakref__" and hasattr(x, slot):
            setattr(made, slot, getattr(x, slot))
    made.sources = used
    return made


@dataclass(frozen=True, slots=True)
class AccessFunction(Printed):
    """The functions of one access: from loop points to coordinates, address and predicate, as data.

    `Access` says the meaning of the parts, and answers questions about them.
    """

    expr: TensorExpr
    tensor: Tensor
    operand: int | None
    loops: tuple[LoopVariable, ...]
    logical: tuple[Expr, ...]
    allocation: tuple[Expr, ...]
    address: Expr
    buffer: AllocatedBuffer
    slots: tuple[Expr | None, ...]
    conditions: tuple[Expr, ...]
    loads: Mapping[str, tuple[Tensor, tuple[Expr, ...]]] = field(
        default_factory=dict[str, tuple[Tensor, tuple[Expr, ...]]]
    )
    load_bounds: tuple[Expr, ...] = ()
    bounds: tuple[Bound, ...] = field(default=(), repr=False, compare=False)
    maps: Callable[[Fusion], CheckedMaps] | None = field(default=None, repr=False, compare=False)
    whole: Expr | None = field(default=None, repr=False, compare=False)
    replicas: tuple[Expr, ...] = field(default=(), repr=False, compare=False)
    """Of a write: coordinates of axes that its loops run over and its tensor lacks. At each, the same is written."""

    @property
    def is_write(self) -> bool:
        """True of the output's access."""
        return self.operand is None

    @property
    def coordinates(self) -> tuple[Expr, ...]:
        """One for each axis of ``tensor.shape``."""
        kept = zip(self.tensor.logical, self.logical, strict=True)
        return tuple(x for d, x in kept if d.kind != "reduction")

    @property
    def predicate(self) -> Expr:
        """The condition under which the access happens; needs no loaded value."""
        return and_(*self.conditions) if self.conditions else TRUE

    def guarded(self) -> Self:
        """The same access in the smallest forms that are right where the predicate holds.

        ``coordinates`` and ``address`` of an access say at every loop point where its path leads, also where nothing
        is read or written; those of the guarded one are equal where the predicate is true and mean nothing elsewhere.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(1, 5)) + 1.0).split(0, 8).merge(1)
        >>> write = ig.IdModel(f).write(t.definition)
        >>> print(write)
        add writes t1[0, i1%5] at i1%5 if i1 < 5
        >>> print(write.guarded())
        add writes t1[0, i1] at i1 if i1 < 5
        """
        if not self.conditions:
            return self

        def small(x: Expr) -> Expr:
            return with_loads(simplify(x, facts=self.conditions), self.loads)

        return replace(
            self,
            logical=tuple(map(small, self.logical)),
            allocation=tuple(map(small, self.allocation)),
            address=small(self.address),
            whole=None if self.whole is None else small(self.whole),
            slots=tuple(None if x is None else small(x) for x in self.slots),
        )

    @property
    def tensor_address(self) -> Expr:
        """Elements from the start of a memory that holds the whole tensor, whatever is allocated for it.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.exp(f.input("x", shape=(3, 4)), name="t")
        >>> read = ig.IdModel(f).access(f.output(t.inline(1) + 1.0).definition, t)
        >>> str(read.address), str(read.tensor_address), read.buffer.place
        ('i1', 'i0*4 + i1', 'private')
        """
        return self.address if self.whole is None else self.whole

    @property
    def place(self) -> str:
        """The address as tables show it, with the kind of memory where that is not the whole tensor's."""
        match self.buffer.place:
            case "register":
                return "register"
            case "shared" | "private" as kind:
                return f"{self.address} ({kind})"
            case "input" | "output" | "global":
                return str(self.address)

    def sheet(self) -> Sheet:
        """The notebook form: one fact in each row."""
        rows = [("coordinates", "(" + ", ".join(map(str, self.coordinates)) + ")"), ("address", self.place)]
        rows.append(("when", str(self.predicate)))
        rows += [(n, f"{t.name}[{', '.join(map(str, where))}]") for n, (t, where) in self.loads.items()]
        rows += [("must hold", str(c)) for c in self.load_bounds]
        verb = "writes" if self.is_write else "reads"
        loops = "for " + ", ".join(map(str, self.loops)) if self.loops else "once"
        return Sheet(f"{self.expr.op} {verb} {self.tensor.name}", ("", ""), tuple(rows), (loops,))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        verb = "writes" if self.is_write else "reads"
        where = ", ".join(map(str, self.coordinates))
        at = "in a register" if self.buffer.place == "register" else f"at {self.place}"
        text = f"{self.expr.op} {verb} {self.tensor.name}[{where}] {at}"
        return text if not self.conditions else f"{text} if {self.predicate}"


class IndexMaps(Protocol):
    """The interface of an index model: loops of an expression, and its accesses by operand."""

    def loops(self, e: TensorExpr, /) -> Sequence[LoopVariable]: ...
    def read(self, e: TensorExpr, operand: int, /) -> AccessFunction: ...
    def write(self, e: TensorExpr, /) -> AccessFunction: ...


class CheckedMaps(IndexMaps, Protocol):
    """An index model of a changed fusion, which may turn out to be wrong."""

    def verify(self) -> None: ...


def scanned(e: TensorExpr, maps: IndexMaps) -> tuple[int, ...]:
    """Positions of the loops that visit the axis of a scan, outermost first."""
    dim = e.attrs.get("dim")
    if e.op not in SCANS or not isinstance(dim, int):
        return ()
    names = maps.write(e).coordinates[dim % e.output.ndim].names
    return tuple(p for p, v in enumerate(maps.loops(e)) if v.name in names)
