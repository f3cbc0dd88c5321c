"""IterDomains, the axes of tensors, and the closed union of expressions that make one axis of others.

An axis compares by identity: two axes of extent 32 are two things until a graph says otherwise. Extents and
attributes are values (integer expressions).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from idgraph.arith import Expr, as_expr
from idgraph.errors import SourceLine

Kind = Literal["iteration", "reduction", "broadcast", "gather_scatter"]
Parallel = Literal[
    "serial",
    "blockIdx.x", "blockIdx.y", "blockIdx.z",
    "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vectorize", "unroll",
]  # fmt: skip
SwizzleKind = Literal["xor", "cyclic"]

PARALLEL: tuple[Parallel, ...] = get_args(Parallel)
SWIZZLES: tuple[SwizzleKind, ...] = get_args(SwizzleKind)
_ONE = as_expr(1)
_LETTER: dict[Kind, str] = {"iteration": "I", "reduction": "r", "broadcast": "b", "gather_scatter": "g"}


class Owner(Protocol):
    """The tensor of an axis, as far as the axis knows it; `idgraph.ir.fusion.tensor_of` gives the tensor itself."""

    @property
    def name(self) -> str:
        """Unique in its fusion."""
        ...


class IterDomain:
    """One axis of one tensor: ``extent`` elements, of a ``kind``, run by loops or by ``parallel`` threads.

    ``definitions`` are the expressions that make this axis of others; a concatenated axis has one for each operand,
    every other axis at most one. Axes are made by a `Fusion`, which numbers them, so names are the same in every run.
    ``rows`` are those of a ragged axis, None of every other; its extent is then a bound, see `RaggedRows`.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(64, 1))
    >>> t.logical
    (I0[64], b1[1])
    >>> t.logical[0].kind, t.logical[1].kind
    ('iteration', 'broadcast')
    >>> u = t[32:]
    >>> u.logical[0].label, u.logical[0].is_broadcast, u.logical[0].definition
    ('t1.I4', False, Resize(I2[64] -> I4[32]; -32, 0))
    >>> t.logical[0].definitions, len(u.logical[0].definitions), len(ig.cat([u, u], 0).logical[0].definitions)
    ((), 1, 2)
    """

    __slots__ = ("_made", "extent", "kind", "name", "parallel", "rows", "tensor")

    def __init__(self, number: int, extent: Expr, kind: Kind, tensor: Owner | None = None) -> None:
        self.name = f"{_LETTER[kind]}{number}"
        self.extent = extent
        self.kind: Kind = kind
        self.parallel: Parallel = "serial"
        # A fusion has a hundred thousand axes, most of one definition or none: no tuple for each.
        self._made: DomainExpr | tuple[DomainExpr, ...] | None = None
        self.tensor = tensor
        self.rows: RaggedRows | None = None

    @property
    def definitions(self) -> tuple[DomainExpr, ...]:
        """The expressions that make this axis; may be set."""
        made = self._made
        return () if made is None else made if isinstance(made, tuple) else (made,)

    @definitions.setter
    def definitions(self, made: tuple[DomainExpr, ...]) -> None:
        self._made = made if len(made) > 1 else made[0] if made else None

    def defined_by(self, made: DomainExpr) -> None:
        """Set its only definition; for copies of schedules, which make a hundred thousand.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(64,)).T[32:]
        >>> made = t.logical[0].definition
        >>> t.logical[0].defined_by(made)
        >>> t.logical[0].definitions == (made,)
        True
        """
        self._made = made

    def resolve(self) -> None:
        """Make a broadcast axis that was just made an axis of one element, which no other axis stands for.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> d = f.new_domain(1)
        >>> d.resolve()
        >>> d, d.kind
        (I0[1], 'iteration')
        """
        if self.kind == "broadcast":
            self.kind, self.name = "iteration", _LETTER["iteration"] + self.name[1:]

    @property
    def definition(self) -> DomainExpr | None:
        """The expression that makes this axis, the first where there are several; None for an axis of its own."""
        made = self._made
        return made[0] if isinstance(made, tuple) else made

    @property
    def is_broadcast(self) -> bool:
        """True of an axis whose only coordinate is 0 until it is resolved."""
        return self.kind == "broadcast"

    @property
    def label(self) -> str:
        """Tensor and axis, for messages: ``t1.I3``."""
        return f"{self.tensor.name}.{self.name}" if self.tensor is not None else self.name

    def __repr__(self) -> str:
        return f"{self.name}[{self.extent if self.rows is None else self.rows.offsets.name}]"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """``source -> outer, inner``: source = outer * inner.extent + inner. The last part may be padded.

    An inner split has ``inner.extent == factor``, an outer split ``outer.extent == factor``.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(30,)) + 1
    >>> t.split(0, 8).domain.loop_exprs
    [Split(I1[30] -> I2[4], I3[8]; 8)]
    >>> e = t.domain.loop_exprs[0]
    >>> e.inputs, e.outputs, [str(x) for x in e.attributes]
    ((I1[30],), (I2[4], I3[8]), ['split', '8', 'True'])
    """

    source: IterDomain
    outer: IterDomain
    inner: IterDomain
    factor: Expr
    inner_split: bool = True
    line: SourceLine | None = None

    @property
    def inputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression reads."""
        return (self.source,)

    @property
    def outputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression makes."""
        return (self.outer, self.inner)

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two splits are the same split."""
        return ("split", self.factor, self.inner_split)

    def __repr__(self) -> str:
        side = "" if self.inner_split else ", inner=False"
        return f"Split({self.source} -> {self.outer}, {self.inner}; {self.factor}{side})"


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """``outer, inner -> out``: out = outer * inner.extent + inner.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 6)) + 1
    >>> t.merge(0).domain.loop_exprs
    [Merge(I2[4], I3[6] -> I4[24])]
    >>> e = t.domain.loop_exprs[0]
    >>> e.inputs, e.outputs, e.attributes
    ((I2[4], I3[6]), (I4[24],), ('merge',))
    """

    outer: IterDomain
    inner: IterDomain
    out: IterDomain
    line: SourceLine | None = None

    @property
    def inputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression reads."""
        return (self.outer, self.inner)

    @property
    def outputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression makes."""
        return (self.out,)

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two merges are the same merge."""
        return ("merge",)

    def __repr__(self) -> str:
        return f"Merge({self.outer}, {self.inner} -> {self.out})"


@dataclass(frozen=True, slots=True, eq=False)
class _OneAxis:
    """An expression from one axis to one."""

    source: IterDomain
    out: IterDomain

    @property
    def inputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression reads."""
        return (self.source,)

    @property
    def outputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression makes."""
        return (self.out,)


@dataclass(frozen=True, slots=True, eq=False)
class Resize(_OneAxis):
    """``source -> out``: out = source + left, of extent ``left + source.extent + right``; negative sides cut.

    >>> import idgraph as ig
    >>> ig.Fusion("f").input("t", shape=(64,))[32:].domain.exprs
    (Resize(I1[64] -> I2[32]; -32, 0),)
    >>> e = ig.Fusion("f").input("t", shape=(64,))[32:].domain.exprs[0]
    >>> e.inputs, e.outputs, [str(x) for x in e.attributes]
    ((I1[64],), (I2[32],), ['resize', '-32', '0'])
    """

    left: Expr
    right: Expr
    line: SourceLine | None = None

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two resizes are the same resize."""
        return ("resize", self.left, self.right)

    def __repr__(self) -> str:
        return f"Resize({self.source} -> {self.out}; {self.left}, {self.right})"


@dataclass(frozen=True, slots=True, eq=False)
class Stride(_OneAxis):
    """``source -> out``: source = start + step * out. Slices with a step and flips (step -1).

    >>> import idgraph as ig
    >>> ig.Fusion("f").input("t", shape=(9,))[1::2].domain.exprs
    (Stride(I1[9] -> I2[4]; 1, 2),)
    >>> e = ig.Fusion("f").input("t", shape=(9,))[1::2].domain.exprs[0]
    >>> e.inputs, e.outputs, [str(x) for x in e.attributes]
    ((I1[9],), (I2[4],), ['stride', '1', '2', '4'])
    """

    start: Expr
    step: Expr
    line: SourceLine | None = None

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two strides are the same stride."""
        return ("stride", self.start, self.step, self.out.extent)

    def __repr__(self) -> str:
        return f"Stride({self.source} -> {self.out}; {self.start}, {self.step})"


@dataclass(frozen=True, slots=True, eq=False)
class Roll(_OneAxis):
    """``source -> out``: out = (source + shift) mod extent, torch's roll.

    >>> import idgraph as ig
    >>> ig.roll(ig.Fusion("f").input("t", shape=(9,)), 2, 0).domain.exprs
    (Roll(I1[9] -> I2[9]; 2),)
    >>> e = ig.roll(ig.Fusion("f").input("t", shape=(9,)), 2, 0).domain.exprs[0]
    >>> e.inputs, e.outputs, [str(x) for x in e.attributes]
    ((I1[9],), (I2[9],), ['roll', '2'])
    """

    shift: Expr
    line: SourceLine | None = None

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two rolls are the same roll."""
        return ("roll", self.shift)

    def __repr__(self) -> str:
        return f"Roll({self.source} -> {self.out}; {self.shift})"


@dataclass(frozen=True, slots=True, eq=False)
class Swizzle:
    """``x, y -> x', y'``: x' = x; y' = x ^ y ("xor") or (x + y) mod y.extent ("cyclic"). A permutation of each row.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(8, 8)) + 1
    >>> t.swizzle("xor", 0, 1).domain.loop_exprs
    [Swizzle(I2[8], I3[8] -> I4[8], I5[8]; xor)]
    >>> e = t.domain.loop_exprs[0]
    >>> e.inputs, e.outputs, [str(x) for x in e.attributes]
    ((I2[8], I3[8]), (I4[8], I5[8]), ['swizzle', 'xor'])
    """

    x: IterDomain
    y: IterDomain
    out_x: IterDomain
    out_y: IterDomain
    kind: SwizzleKind
    line: SourceLine | None = None

    @property
    def inputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression reads."""
        return (self.x, self.y)

    @property
    def outputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression makes."""
        return (self.out_x, self.out_y)

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two swizzles are the same swizzle."""
        return ("swizzle", self.kind)

    def __repr__(self) -> str:
        return f"Swizzle({self.x}, {self.y} -> {self.out_x}, {self.out_y}; {self.kind})"


@dataclass(frozen=True, slots=True, eq=False)
class RowPartition:
    """``flat`` as rows of loaded length: flat = start + ragged, where ``component`` is the number of the row.

    ``start`` is the loaded number at which the row begins (``ld1``, from operand 1 of the operation), ``length``
    (``ld2``) how many elements it has. `idgraph.partition` makes component and ragged of flat; with ``combines`` it is
    the other way round. Rows lie one behind the other and have no gaps, so that each element is in one row. Two are
    equal where their ``offsets`` are one tensor. (nvFuser: Partition, Combine.)

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
    >>> c, r = x.partition(0, offsets)
    >>> r.definition
    Partition(I9[9] -> I7[3], I8[offsets]; offsets)
    >>> e = r.definition
    >>> e.inputs, e.outputs, e.attributes[0], str(e.length)
    ((I9[9],), (I7[3], I8[offsets]), 'partition', 'ld2')
    """

    flat: IterDomain
    component: IterDomain
    ragged: IterDomain
    start: Expr
    length: Expr
    offsets: Owner
    combines: bool = False
    line: SourceLine | None = None

    @property
    def inputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression reads."""
        return (self.component, self.ragged) if self.combines else (self.flat,)

    @property
    def outputs(self) -> tuple[IterDomain, ...]:
        """The axes this expression makes."""
        return (self.flat,) if self.combines else (self.component, self.ragged)

    @property
    def attributes(self) -> tuple[object, ...]:
        """The key by which two partitions are the same."""
        return ("combine" if self.combines else "partition", self.offsets)

    def __repr__(self) -> str:
        what = "Combine" if self.combines else "Partition"
        ins, outs = (", ".join(map(repr, axes)) for axes in (self.inputs, self.outputs))
        return f"{what}({ins} -> {outs}; {self.offsets.name})"


@dataclass(frozen=True, slots=True, eq=False)
class RaggedRows:
    """The rows of a ragged axis: in row b of its ``component`` axis it has ``offsets[b + 1] - offsets[b]`` elements.

    ``starts`` and ``lengths`` are the tensors ``offsets[:-1]`` and ``offsets[1:] - offsets[:-1]``. The extent of the
    axis is a bound that every row keeps: the number of elements of all rows.
    """

    offsets: Owner
    starts: Owner
    lengths: Owner
    component: IterDomain

    @property
    def extent(self) -> str:
        """The number of elements of row ``b``, as text.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
        >>> x.partition(0, offsets)[1].rows.extent
        'offsets[b + 1] - offsets[b]'
        """
        return f"{self.offsets.name}[b + 1] - {self.offsets.name}[b]"

    def same_rows(self, other: RaggedRows) -> bool:
        """Whether the rows are those of one tensor of offsets."""
        return self.offsets is other.offsets


DomainExpr = Split | Merge | Resize | Stride | Roll | Swizzle | RowPartition


@dataclass(slots=True)
class TensorDomain:
    """The axes of one tensor, four times.

    ``root``: as the producer sees them; ``logical``: as consumers see them (with reduction axes); ``allocation``: in
    memory order, outermost first; ``loop``: as scheduled, outermost first. ``strides`` are elements for each
    allocation axis, None where they follow from the extents (contiguous). ``exprs`` lie between root and logical,
    ``loop_exprs`` were added by the schedule.

    ``pattern`` is what ``patterned`` loops were made after, all at once: those of another tensor of one pattern came by
    equal steps. Every later step makes other loops.
    """

    root: tuple[IterDomain, ...]
    logical: tuple[IterDomain, ...]
    allocation: tuple[IterDomain, ...]
    loop: tuple[IterDomain, ...]
    strides: tuple[Expr | None, ...]
    exprs: tuple[DomainExpr, ...] = ()
    loop_exprs: list[DomainExpr] = field(default_factory=list[DomainExpr])
    pattern: Hashable = field(default=None, repr=False, compare=False)
    patterned: tuple[IterDomain, ...] = field(default=(), repr=False, compare=False)

    def made_after(self) -> Hashable:
        """The pattern of the present loops, None where they came by steps of their own.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(30,)) + 1
        >>> t.domain.pattern, t.domain.patterned = "halves", t.split(0, 2).loop
        >>> t.domain.made_after(), t.split(0, 3).domain.made_after()
        ('halves', None)
        """
        return self.pattern if self.patterned is self.loop else None


def is_one(extent: Expr) -> bool:
    """True of the constant 1."""
    return extent is _ONE or extent == _ONE
