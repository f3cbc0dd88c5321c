"""A Fusion, its tensors and its operations: a DAG that builds, rewrites and verifies itself.

Long: three classes that hold each other, so that no module is needed twice; what they call stands in modules below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, cast
from weakref import ReferenceType, ref

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol, symbol_text
from idgraph.display import Printed, Sheet, Shown, render, show
from idgraph.errors import (
    FusionError,
    IdGraphError,
    InternalError,
    OperationError,
    SourceLine,
    arguments,
    short_repr,
    shortened,
    user_line,
)
from idgraph.ir.argument_resolution import Operators, attr, flags, is_int, listed, plain
from idgraph.ir.axis_read import Attr, AxisRead, Fixed, LoadedCoordinate, Mapped, from_the_front, plain_text, read_along
from idgraph.ir.dtypes import DType, DTypeLike, Scalar, check_dtype, scalar_dtype
from idgraph.ir.equalities import Equality, equal_sizes, put_back, respell, spelled
from idgraph.ir.foreign_calls import UnsupportedArrayApi
from idgraph.ir.iter_domain import IterDomain, Kind, Owner, TensorDomain, is_one
from idgraph.ir.limits import check_name
from idgraph.ir.mesh import Mesh, MeshError, Placement
from idgraph.ir.op_table import apply
from idgraph.ir.placing import Placing
from idgraph.ir.printer import print_fusion
from idgraph.ir.protocols import FusionLike, TensorLike
from idgraph.ir.ragged_axes import check_offsets, inherit_rows, row_ends
from idgraph.ir.schedule_log import (
    MANY,
    NO_CHOICES,
    NO_NAMES,
    NO_RULES,
    Decision,
    Flat,
    Format,
    KernelHints,
    Memory,
    ScheduleStep,
    TilingDecision,
    keep_last_step,
    only_first,
    steps_in,
    without,
)
from idgraph.ir.schedule_primitives import ScheduleMixin
from idgraph.ir.transaction import Mark, Member, Restorable, Restore, with_front
from idgraph.ir.transaction import transactional_build as adding
from idgraph.ir.verifier import LARGEST, AxisError, Verification, check_symbols, violations


class ShownFusion(Shown):
    """The forms of a fusion for people. Its repr is text that `idgraph.parse` reads."""

    @shortened
    def to_dot(self, **options: object) -> str:
        """Graphviz text of tensors and operations; see `idgraph.viz`."""
        return render("dot", self, **options)

    @shortened
    def to_svg(self, **options: object) -> str:
        """A self-contained SVG picture of tensors and operations; needs no graphviz."""
        return render("svg", self, **options)

    @arguments(OperationError)
    def show(self, *, loops: bool = False) -> None:
        """Print the text form; with ``loops`` the nests of loops as scheduled, in the order in which they run.

        In colour where standard output is a terminal. Raises `ScheduleError` where no loop nest does the schedule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(30,)) * 2.0)
        >>> t.split(0, 8).parallelize(1, "vectorize").fusion.show(loops=True)
        for i0 < 4:
          vectorize i1 < 8:
            t1 = mul(a, 2.0)  if i0*8 + i1 < 30
        """
        show(render("loops", self) if loops else str(self))

    def __str__(self) -> str:
        return print_fusion(cast("FusionLike", self))

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShownFusion) and (self is other or str(self) == str(other))

    def __hash__(self) -> int:
        return hash(cast("FusionLike", self).name)


def symbol_bound(known: Mapping[str, Expr], name: str, value: object) -> int | Expr:
    """A bound of the new symbol ``name``; raises `OperationError` for another object, or one that names a symbol not
    ``known``.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, Expr) or value.is_condition:
        raise OperationError(
            f"symbol {name}: {short_repr(value)} is not a bound",
            where=user_line(),
            hint="an int, or an expression in symbols of the fusion",
        )
    strange = [s.name for s in value.symbols if known.get(s.name) != s]
    if strange:
        raise OperationError(
            f"symbol {name}: its bound {value} names {strange[0]}, which is not a symbol of the fusion",
            where=user_line(),
            hint=f"f.symbol({strange[0]!r}) first",
        )
    return int(value) if value.is_const else value


Operands: TypeAlias = "tuple[Tensor | Scalar | Expr, ...]"
V = TypeVar("V")
_current: ContextVar[ReferenceType[Fusion] | None] = ContextVar("idgraph_current_fusion", default=None)


def current_fusion() -> Fusion:
    """The fusion made last in this context (thread or task), for operations without a tensor operand."""
    held = _current.get()
    fusion = held() if held is not None else None
    if fusion is None:
        raise OperationError("there is no fusion to add this operation to", hint="pass fusion=f, or make one first")
    return fusion


class TensorExpr(Printed):
    """One operation: ``op`` applied to ``args`` (tensors, numbers) with ``attrs``, making the tensor ``output``.

    ``inputs`` are the tensors among ``args``, one entry for each operand (a tensor read twice stands there twice);
    ``reads[k]`` says for each axis of ``inputs[k].axes`` how it is read. ``source_line`` is the user's line.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t1 = f.input("t0", shape=(64,))[:32]
    >>> t1.definition
    t1[I2] = slice(t0[I0]; dims=(0,), starts=(0,), stops=(32,), steps=(1,))
    >>> t1.definition.op, t1.definition.reads
    ('slice', ((Mapped(domain=I1[64]),),))
    >>> t1.definition.output.name, t1.definition.outputs, t1.definition.is_reduction
    ('t1', (t1[I2[32]],), False)
    """

    __slots__ = ("args", "attrs", "inputs", "name", "op", "output", "reads", "source_line")
    output: Tensor

    def __init__(
        self,
        name: str,
        op: str,
        args: Operands,
        attrs: Mapping[str, Attr],
        inputs: tuple[Tensor, ...],
        reads: tuple[tuple[AxisRead, ...], ...],
        source_line: SourceLine | None,
    ) -> None:
        self.name = name
        self.op = op
        self.args = args
        self.attrs: dict[str, Attr] = dict(attrs)
        self.inputs = inputs
        self.reads = reads
        self.source_line = source_line

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors it makes: one."""
        return (self.output,)

    @property
    def is_reduction(self) -> bool:
        """True when some axis of the output is reduced."""
        return "reduction" in [d.kind for d in self.output.domain.logical]

    @arguments(OperationError, first=True)
    def operands_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The operand numbers at which ``tensor`` is read; empty when it is not."""
        return tuple(k for k, t in enumerate(self.inputs) if t is tensor)

    def sheet(self) -> Sheet:
        """The rows that notebooks show: the operation, its line, and how it reads each axis of each operand."""
        rows = [("line", str(self.source_line))] if self.source_line is not None else []
        for t, row in zip(self.inputs, self.reads, strict=True):
            ways = [f"{d!r} {_read_text(r, self)}" for d, r in zip(t.axes, row, strict=True)]
            rows.append((f"reads {t.name}", "\n".join(ways) or "its only element"))
        return Sheet(repr(self), ("", ""), tuple(rows))

    def __repr__(self) -> str:
        def show(t: Tensor) -> str:
            return f"{t.name}[{', '.join(d.name for d in t.logical)}]"

        args = ", ".join(show(a) if hasattr(a, "logical") else str(a) for a in self.args)  # type: ignore[arg-type]
        attrs = ", ".join(f"{k}={plain_text(v)}" for k, v in self.attrs.items())
        return f"{', '.join(show(t) for t in self.outputs)} = {self.op}({args}{'; ' + attrs if attrs else ''})"


def _read_text(read: AxisRead, e: TensorExpr) -> str:
    match read:
        case Mapped(domain):
            return f"at {domain!r}"
        case Fixed(index, why):
            return f"at {index} ({why})"
        case LoadedCoordinate(operand):
            return f"where {e.inputs[operand].name} says"


_AXES = tuple(f.name for f in fields(TensorDomain) if f.name != "loop_exprs")
_KEPT = (
    "_name", "alignment", "choices", "definition", "domain", "dtype", "inline_position", "memory", "offset",
    "placement", "ruled",
)  # fmt: skip
_fields_of, _lists_of = attrgetter(*_KEPT), attrgetter(*_AXES)
Saved: TypeAlias = tuple[Any, ...]
"""What `Tensor.saved` keeps: a flat tuple, as the collector walks every object of a hundred thousand tensors."""


class Tensor(Operators, ScheduleMixin, Placing, Member, Printed, UnsupportedArrayApi):
    """A tensor of a fusion. Build one with `Fusion.input` or an operation, not by hand.

    ``shape`` is a tuple of ints, or of integer expressions where extents are symbols.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 32))
    >>> u = t * 2.0 + t
    >>> u.shape, u.dtype, u.definition.op
    ((4, 32), 'float32', 'add')
    >>> u.name, u.ndim, u.root, u.logical, u.allocation, u.axes
    ('t2', 2, (I4[4], I5[32]), (I4[4], I5[32]), (I4[4], I5[32]), (I4[4], I5[32]))
    >>> [e.op for e in t.uses], u.T.shape, [step.name for step in u.split(0, 2).log]
    (['mul', 'add'], (32, 4), ['split'])
    >>> u.source_line.line
    1
    >>> before = u.saved()
    >>> u.forget("split")
    >>> u.put_back(before)
    >>> [step.name for step in u.log]
    ['split']
    """

    __slots__ = (
        "__weakref__",
        "_log",
        "_name",
        "_readers",
        "_uses",
        "alignment",
        "choices",
        "definition",
        "domain",
        "dtype",
        "fusion",
        "inline_position",
        "memory",
        "offset",
        "placement",
        "ruled",
    )  # fmt: skip

    def __init__(self, fusion: Fusion, name: str, dtype: DType, domain: TensorDomain) -> None:
        self.fusion = fusion
        self._name = name
        self.dtype: DType = dtype
        self.domain = domain
        self.definition: TensorExpr | None = None
        # A fusion has a hundred thousand tensors: most have one reader, and no step of a schedule, so no list for them.
        self._readers: list[TensorExpr] | None = None  # None while there is at most one
        self._uses: tuple[TensorExpr, ...] | None = ()
        self.inline_position = 0
        self.memory: Memory = "auto"
        self.choices: KernelHints = NO_CHOICES
        self.ruled: Mapping[str, KernelHints] = NO_RULES
        self.alignment = 16
        self.offset: Expr | int = 0
        self.placement: Placement | None = None
        self._log: Flat | None = None

    # names and axes -----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Unique in its fusion; may be set."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self.fusion.note_name(self, value)
        self._name = value

    @property
    def uses(self) -> tuple[TensorExpr, ...]:
        """The operations that read it, each once, in the order in which they were built."""
        if self._uses is None:  # kept between additions: a tensor may have a hundred thousand readers
            self._uses = tuple(self._readers or ())
        return self._uses

    def add_use(self, expr: TensorExpr) -> None:
        """Note a reader; for `Fusion` only."""
        if self._readers is not None:
            self._readers.append(expr)
            self._uses = None
        elif self._uses:
            self._readers, self._uses = [*self._uses, expr], None
        else:
            self._uses = (expr,)

    def drop_use(self, expr: TensorExpr) -> None:
        """Forget a reader; for `Fusion` only."""
        kept = list(self.readers())
        kept.remove(expr)
        self.read_by(kept)

    def readers(self) -> tuple[TensorExpr, ...]:
        """The same as `uses`, without keeping it; for `Fusion` only."""
        return self._uses if self._uses is not None else tuple(self._readers or ())

    def read_by(self, readers: Sequence[TensorExpr]) -> None:
        """Set the readers; for `Fusion` only."""
        few = len(readers) < 2
        self._readers, self._uses = (None, tuple(readers)) if few else (list(readers), None)

    @property
    def log(self) -> tuple[ScheduleStep, ...]:
        """The steps of its schedule, in the order in which they were done."""
        return steps_in(self._log) if self._log else ()

    def note_step(self, name: str, args: tuple[Attr, ...], kwargs: Mapping[str, Attr], line: SourceLine | None) -> None:
        """Add a step to the log; for schedule steps only.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(8,)) + 1.0
        >>> t.note_step("split", (0, 4), {}, None)
        >>> [str(s) for s in t.log]
        ['split(0, 4)']
        """
        step = (name, args, kwargs, self.fusion.version, line)
        if self._log is None:
            self._log = [*step]
        else:
            self._log += step

    def note_steps(self, steps: tuple[ScheduleStep, ...], line: SourceLine | None) -> None:
        """Add steps like these to the log, all of them taken at ``line``; for schedulers only.

        The log refers to ``steps``: thousands of tensors that are scheduled alike share them.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t, u = f.input("t", shape=(8,)) + 1.0, f["t"] * 2.0
        >>> u.note_steps(t.split(0, 4).merge(0, 1).log, None)
        >>> [str(s) for s in u.log]
        ['split(0, 4)', 'merge(0, 1)']
        """
        if not steps:
            return
        entry = (MANY, steps, NO_NAMES, self.fusion.version, line)
        if self._log is None:
            self._log = [*entry]
        else:
            self._log += entry
        self.fusion.version += len(steps)

    def keep_last(self, steps: Collection[str]) -> None:
        """Keep the last step of each of those names in the log; for schedulers only.

        >>> import idgraph as ig
        >>> t = (ig.Fusion("f").input("t", shape=(8,)) + 1.0).split(0, 4).split(0, 2)
        >>> t.keep_last(["split"])
        >>> [str(s) for s in t.log]
        ['split(0, 2)']
        """
        if self._log:
            keep_last_step(self._log, steps)

    def keep_first(self, count: int) -> None:
        """Keep the first ``count`` steps in the log; for a step made of others only."""
        if self._log:
            only_first(self._log, count)

    def forget(self, step: str) -> None:
        """Take the steps of that name out of the log; for schedulers only."""
        if self._log:
            without(self._log, step)

    def state(self) -> Restore:
        """The function that puts the tensor back as it is now: `put_back` of `saved`."""
        return partial(self.put_back, self.saved())

    def saved(self) -> Saved:
        """Its fields, lists of axes, log, readers, and its axes' own fields; for guards of calls only."""
        domain = self.domain
        axes: list[object] = []
        for d in dict.fromkeys((*domain.root, *domain.logical, *domain.loop)):
            axes += (d, d.parallel, d.definitions, d.tensor)
        steps, log = tuple(domain.loop_exprs), tuple(self._log or ())
        return *_fields_of(self), *_lists_of(domain), steps, log, self.readers(), *axes

    def put_back(self, saved: Saved) -> None:
        """Be as when ``saved`` was made; for guards of calls only."""
        count = len(_KEPT) + len(_AXES)
        (steps, log, readers), axes = saved[count : count + 3], saved[count + 3 :]
        for name, value in zip(_KEPT, saved, strict=False):
            setattr(self, name, value)
        for name, value in zip(_AXES, saved[len(_KEPT) : count], strict=True):
            setattr(self.domain, name, value)
        self.domain.loop_exprs[:] = steps
        self._log = list(log) or None
        self.read_by(readers)
        for at in range(0, len(axes), 4):
            axes[at].parallel, axes[at].definitions, axes[at].tensor = axes[at + 1 : at + 4]

    @property
    def root(self) -> tuple[IterDomain, ...]:
        """Axes as the (first) producer sees them."""
        return self.domain.root

    @property
    def logical(self) -> tuple[IterDomain, ...]:
        """Axes as consumers see them; reduced axes stand here with kind "reduction"."""
        return self.domain.logical

    @property
    def allocation(self) -> tuple[IterDomain, ...]:
        """Axes in memory order, outermost first."""
        return self.domain.allocation

    @property
    def loop(self) -> tuple[IterDomain, ...]:
        """Axes as scheduled, outermost first."""
        return self.domain.loop

    @property
    def axes(self) -> tuple[IterDomain, ...]:
        """The logical axes without reduced ones: one for each entry of ``shape``."""
        logical = self.domain.logical
        if self.domain.allocation is logical:  # memory has no reduced axes
            return logical
        kept = [d for d in logical if d.kind != "reduction"]
        return logical if len(kept) == len(logical) else tuple(kept)

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        """Extents of ``axes``: ints, or expressions where symbolic."""
        return tuple(int(d.extent) if d.extent.is_const else d.extent for d in self.axes)

    @property
    def ndim(self) -> int:
        """Number of axes of ``shape``."""
        return len(self.axes)

    @arguments(OperationError, keep=adding)
    def partition(self, axis: int, offsets: Tensor) -> tuple[IterDomain, IterDomain]:
        """`idgraph.partition`: axis ``axis`` as rows that end at ``offsets``; the component and the ragged axis.

        The ragged tensor that they belong to is their ``tensor``; this one stays as it is. Raises `OperationError` for
        what cannot be offsets.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
        >>> c, r = x.partition(0, offsets)
        >>> c, r, r.rows.extent, c.tensor is r.tensor
        (I7[3], I8[offsets], 'offsets[b + 1] - offsets[b]', True)
        """
        check_offsets(offsets)
        if not is_int(axis) or not -self.ndim <= axis < self.ndim:
            raise OperationError(f"partition: {self.name} has no axis {axis}", hint=f"its shape is {self.shape}")
        made = apply(self.fusion, "partition", (self, *row_ends(offsets, self.axes[axis].extent)), {"dim": axis})
        at = made.definition.attrs["dim"] if made.definition is not None else 0
        assert isinstance(at, int)
        return made.logical[at], made.logical[at + 1]

    @property
    def source_line(self) -> SourceLine | None:
        """The user's line that made it."""
        return self.definition.source_line if self.definition is not None else self.fusion.input_line(self)

    def sheet(self) -> Sheet:
        """The rows that notebooks show: shape, axes, schedule, operations around it."""
        made = "input" if self.definition is None else repr(self.definition)
        shape = "(" + ", ".join(map(str, self.shape)) + ("," if self.ndim == 1 else "") + ")"
        rows = [("shape", f"{shape} {self.dtype}"), ("made by", made)]
        rows += [("line", str(self.source_line))] if self.source_line is not None else []
        for name in ("root", "logical", "allocation", "loop"):
            axes: tuple[IterDomain, ...] = getattr(self.domain, name)
            how = [f" {d.parallel}" if name == "loop" and d.parallel != "serial" else "" for d in axes]
            rows.append((name, ", ".join(f"{d!r}{h}" for d, h in zip(axes, how, strict=True)) or "none"))
        rows += [("inlined", f"at {self.inline_position}")] if self.inline_position else []
        rows += [("memory", self.memory)] if self.memory != "auto" else []
        readers = self.readers()
        more = f" and {len(readers) - 12} more" if len(readers) > 12 else ""
        rows.append(("read by", (", ".join(e.output.name for e in readers[:12]) + more) or "nothing"))
        return Sheet(self.name, ("", ""), tuple(rows))

    def __repr__(self) -> str:
        return f"{self.name}[{', '.join(map(repr, self.logical))}]"


class Fusion(Restorable, ShownFusion):
    """A named DAG of operations.

    >>> import idgraph as ig
    >>> f = ig.Fusion("rotation")
    >>> t0 = f.input("t0", shape=(64,))
    >>> t4 = t0 + ig.cat([t0[32:], t0[:32]], dim=0)
    >>> f.output(t4).name
    't4'
    >>> [e.op for e in f.exprs]
    ['slice', 'slice', 'cat', 'add']
    >>> [t.name for t in f.tensors], f.inputs, f.outputs, f.symbols
    (['t0', 't1', 't2', 't3', 't4'], (t0[I0[64]],), (t4[I9[64]],), {})
    >>> f.to_dot()[:7], f.to_svg()[:4]
    ('digraph', '<svg')
    """

    @shortened
    def __init__(self, name: str = "fusion") -> None:
        self.name = name
        self._tensors: dict[str, Tensor] = {}
        self._exprs: list[TensorExpr] = []
        self._moves: dict[TensorExpr, TensorExpr] = {}  # operations that are to stand in front of a reader
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []
        self._known_outputs: set[Tensor] = set()  # the same ones: a fusion may have ten thousand
        self._symbols: dict[str, Expr] = {}
        self._equalities: list[Equality] = []
        self._automatic: dict[str, None] = {}  # names that nobody chose
        self._input_lines: dict[str, SourceLine | None] = {}
        self._domains = 0
        self._made = 0
        self._forced_line: SourceLine | None = None
        self.decisions: tuple[Decision, ...] = ()
        self.formats: tuple[Format, ...] = ()
        self.tilings: tuple[TilingDecision, ...] = ()
        self.version = 0
        self._mesh: Mesh | None = None
        self.operations_left: int | None = None  # that may be built, within `idgraph.ir.clone.at_most`
        _current.set(ref(self))

    @property
    def name(self) -> str:
        """Its name, 1 to 200 printable characters; assigning another renames it, as long as it is one."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = check_name(value, "fusion")

    @property
    def mesh(self) -> Mesh | None:
        """The devices that its tensors may be placed on: that of the first placement, or assigned before it.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> f.mesh = ig.Mesh(x=2)
        >>> f.input("t", shape=(8,)).shard(0, "x").fusion.mesh
        Mesh(x=2)
        """
        return self._mesh

    @mesh.setter
    def mesh(self, value: Mesh | None) -> None:
        if value is not None and not isinstance(value, Mesh):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise MeshError(f"{short_repr(value)} is not a mesh", where=user_line(), hint="f.mesh = ig.Mesh(x=2, y=2)")
        placed = [t.name for t in self._tensors.values() if t.placement is not None]
        if placed and value != self._mesh:
            raise MeshError(
                f"tensor {placed[0]} is placed on {self._mesh} already",
                where=user_line(),
                hint="assign the mesh before",
            )
        self._mesh = value
        self.touch()

    # parts --------------------------------------------------------------------------------------------------------

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors in the order they were made."""
        self._in_order()
        return tuple(self._tensors.values())

    @property
    def exprs(self) -> tuple[TensorExpr, ...]:
        """All operations, producers before consumers."""
        self._in_order()
        return tuple(self._exprs)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Input tensors in the order they were declared."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Output tensors in the order they were declared."""
        return tuple(self._outputs)

    @property
    def symbols(self) -> dict[str, Expr]:
        """Symbols of extents by name; without those that an operation has made equal to others, see `equalities`."""
        known = dict(self._symbols)
        for found in self._equalities:
            known.pop(found.name, None)
        return known

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """Symbols that are equal to another, or to a number, since an elementwise operation takes both.

        >>> f = Fusion("f")
        >>> n, m = f.symbol("n", min=1), f.symbol("m", min=2, max=9)
        >>> y = f.input("x", shape=(n,)) + f.input("z", shape=(m,))
        >>> [str(found) for found in f.equalities], y.shape, f["z"].shape, f.symbols["n"].range
        (['m = n: axis 0 of z meets axis 0 of x at <doctest ...>:1'], (n,), (n,), Range(lo=2, hi=9))
        """
        return tuple(self._equalities)

    @arguments(OperationError, first=True)
    def equate(self, a: Expr, b: Expr, because: str) -> bool:
        """Let two sizes (elements) be one from now on; False where no symbol of theirs follows, or they never agree.

        >>> f = Fusion("f")
        >>> n, m = f.symbol("n"), f.symbol("m")
        >>> f.equate(n, m, "they are added"), str(f.in_symbols(m + n))
        (True, 'n*2')
        """
        found = equal_sizes(a, b, self.symbols, because)
        if found is None:
            return False
        symbols = {**self._symbols, **{n: v for n, v in found.values.items() if n != found.name}}
        before = ((self, "_symbols", self._symbols), *respell(self.tensors, self.exprs, found.values))
        self._symbols = symbols
        self._equalities.append(replace(found, before=before))
        self.touch()
        return True

    def in_symbols(self, value: V) -> V:
        """A size (elements), or an attribute, in the symbols that stand for others; see `equate`."""
        for found in self._equalities:
            value = spelled(value, found.values)
        return value

    def __getitem__(self, name: str) -> Tensor:
        found = self._tensors.get(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if found is None:
            known = ", ".join(self._tensors)
            raise OperationError(
                f"fusion {self.name} has no tensor {short_repr(name)}", where=user_line(), hint=f"it has {known}"
            )
        return found

    def __contains__(self, tensor: object) -> bool:
        """A tensor of this fusion, or the name of one."""
        if isinstance(tensor, str):
            return tensor in self._tensors
        return isinstance(tensor, Tensor) and self._tensors.get(tensor.name) is tensor

    # building -----------------------------------------------------------------------------------------------------

    @arguments(OperationError, keep=adding)
    def symbol(self, name: str, *, min: int | Expr = 0, max: int | Expr | None = None, multiple_of: int = 1) -> Expr:
        """A symbolic extent: any integer from ``min`` to ``max`` that ``multiple_of`` divides.

        Bounds may be expressions in symbols of the fusion: ``f.symbol("k", max=n - 1)``.

        >>> f = Fusion("f")
        >>> n = f.symbol("n", min=1, multiple_of=2)
        >>> f.input("t", shape=(n, 128)).shape
        (n, 128)
        """
        check_name(name, "symbol")
        # loop variables are i0, i1, ...; loaded values ld0, ld1, ...
        reserved = any(name.startswith(p) and name[len(p) :].isdigit() for p in ("i", "ld"))
        words = symbol_text(name) != name or name in ("inf", "nan")  # where expressions and values are read
        if not (name.isidentifier() and name.isascii()) or reserved or words:
            raise OperationError(
                f"{name!r} is not a name for a symbol",
                where=user_line(),
                hint="an ASCII identifier other than i0, ... (loops), ld0, ... (loaded values), and the words of "
                "expressions, such as min, where, xor, True, inf",
            )
        min = symbol_bound(self._symbols, name, min)
        max = None if max is None else symbol_bound(self._symbols, name, max)
        if not is_int(multiple_of) or multiple_of < 1:
            raise OperationError(
                f"symbol {name}: min={min!r}, max={max!r}, multiple_of={multiple_of!r} do not give a range",
                where=user_line(),
                hint="ints, multiple_of at least 1",
            )
        if isinstance(min, int) and isinstance(max, int) and -(-min // multiple_of) * multiple_of > max:
            raise OperationError(f"symbol {name}: no multiple of {multiple_of} from {min} to {max}", where=user_line())
        made = symbol(name, min, max, multiple_of)
        known = self._symbols.get(name)
        if known is not None and any(name in found.values for found in self._equalities):
            return self.in_symbols(known)
        if known is not None and known != made:
            raise OperationError(f"symbol {name} is already defined with another range", where=user_line())
        self._symbols[name] = made
        return made

    @arguments(OperationError, keep=adding)
    def input(
        self,
        name: str,
        shape: Sequence[int | Expr],
        dtype: DTypeLike = "float32",
        *,
        strides: Sequence[int | Expr] | None = None,
        contiguity: Sequence[bool] | bool | None = None,
        alignment: int = 16,
        offset: int | Expr = 0,
    ) -> Tensor:
        """Declare an input of ``shape`` (elements for each axis).

        ``strides`` and ``offset`` are elements, ``alignment`` bytes. ``contiguity`` False at an axis (or for all)
        leaves its stride free (bound when it runs). An axis of extent 1 is a broadcast axis.

        >>> f = Fusion("f")
        >>> f.input("w", shape=(4, 1), dtype="float16").logical
        (I0[4], b1[1])
        """
        check_name(name, "tensor")
        where = user_line()
        if name in self._tensors:
            raise self._name_error(name, where, "another name")
        self._automatic.pop(name, None)
        extents = [self._extent(name, p, e) for p, e in enumerate(listed(shape, f"{name}: shape"))]
        kind = check_dtype(dtype)
        if not is_int(alignment) or alignment < 1 or alignment & (alignment - 1):
            what = f"input {name}: alignment {alignment!r} is not a power of two (bytes)"
            raise OperationError(what, where=where, hint="16, or 4")
        start = self.in_symbols(attr(offset))
        if strides is not None:
            strides = [self.in_symbols(attr(n)) for n in listed(strides, f"{name}: strides")]
        if contiguity is not None:
            contiguity = flags(contiguity, len(extents), f"{name}: contiguity")
        check_symbols(f"input {name}", (start, tuple(strides or ())), self._symbols, self.name)
        if not is_true(as_expr(start) >= 0):
            what, hint = f"input {name}: offset {offset} may be negative", "elements, 0 or more"
            raise OperationError(what, where=where, hint=hint)
        if strides is not None and contiguity is not None:
            hint = "only strides; contiguity=False leaves a stride free until a kernel runs"
            raise OperationError(f"input {name}: give strides or contiguity, not both", where=where, hint=hint)
        if strides is not None and (len(strides) != len(extents) or not all(is_true(as_expr(s) >= 0) for s in strides)):
            raise OperationError(
                f"input {name}: strides {plain_text(tuple(strides))} do not fit shape {plain_text(tuple(extents))}",
                where=where,
                hint="one non-negative number of elements for each axis",
            )
        if contiguity is not None and len(contiguity) != len(extents):
            raise OperationError(f"input {name}: {len(contiguity)} contiguity flags, {len(extents)} axes", where=where)
        try:
            logical = tuple(self.new_domain(e) for e in extents)
        except AxisError as error:
            raise OperationError(f"input {name}: {error.what}", where=error.where) from None
        fixed: tuple[Expr | None, ...] = (
            tuple(as_expr(s) for s in strides) if strides is not None else (None,) * len(logical)
        )
        tensor = Tensor(self, name, kind, TensorDomain(logical, logical, logical, logical, fixed))
        for d in logical:
            d.tensor = tensor
        tensor.alignment, tensor.offset = alignment, start
        if contiguity is not None:
            tensor.domain.strides = self.free_strides(tensor, contiguity)
        self._tensors[name] = tensor
        self._inputs.append(tensor)
        self._input_lines[name] = self._forced_line or where
        self._made += 1
        self.touch()
        return tensor

    def _marked(self) -> set[Tensor]:
        """The outputs as a set: a fusion may have ten thousand."""
        known = self._known_outputs
        if len(known) != len(self._outputs):  # some were taken back
            known.clear()
            known.update(self._outputs)
        return known

    def is_output(self, t: object) -> bool:
        """Whether ``t`` is one of the outputs, in constant time; anything else than a tensor is not one.

        >>> f = Fusion("f")
        >>> x = f.input("x", shape=(4,))
        >>> f.is_output(x), f.is_output(f.output(x + 1.0))
        (False, True)
        """
        return isinstance(t, Tensor) and t in self._marked()

    @arguments(OperationError, keep=adding)
    def output(self, *tensors: Tensor) -> Tensor:
        """Mark tensors of this fusion as outputs; returns the first."""
        known = self._marked()
        for t in tensors:
            if t not in self:
                name = t.name if isinstance(t, Tensor) else repr(t)  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OperationError(
                    f"output {name} is not a tensor of fusion {self.name}",
                    where=user_line(),
                    hint="build it from tensors of this fusion",
                )
            rows = next((d.rows for d in t.axes if d.rows is not None), None)
            if rows is not None:
                raise OperationError(
                    f"output {t.name} has a ragged axis, with rows of {rows.offsets.name}, and no array has rows",
                    where=user_line(),
                    hint=f"f.output(ig.combine({t.name})), or ig.pad_ragged({t.name}, value)",
                )
            if t not in known:
                known.add(t)
                self._outputs.append(t)
        if not tensors:
            raise OperationError("output needs a tensor", where=user_line())
        self.touch()
        return tensors[0]

    @arguments(OperationError, keep=adding)
    def full(
        self, shape: Sequence[int | Expr], value: Scalar, dtype: DTypeLike | None = None, *, name: str | None = None
    ) -> Tensor:
        """A tensor of ``shape`` with one value; the type follows the value unless given (as in torch).

        >>> Fusion("f").full((2, 3), 1.5).dtype
        'float32'
        """
        extents = tuple(self.extent("full", p, e) for p, e in enumerate(listed(shape, "full")))
        chosen = check_dtype(dtype if dtype is not None else scalar_dtype(value))
        return apply(self, "full", (), {"shape": extents, "value": value, "dtype": chosen}, name)

    @arguments(OperationError, keep=adding)
    def iota(
        self, n: int | Expr, start: int = 0, step: int = 1, dtype: DTypeLike = "int64", *, name: str | None = None
    ) -> Tensor:
        """The ``n`` numbers start, start + step, ... (torch's arange).

        >>> Fusion("f").iota(8).shape
        (8,)
        """
        attrs: dict[str, Attr] = {
            "n": self.extent("iota", 0, n),
            "start": start,
            "step": step,
            "dtype": check_dtype(dtype),
        }
        return apply(self, "iota", (), attrs, name)

    # used by the builders -----------------------------------------------------------------------------------------

    def new_domain(self, extent: int | Expr, kind: Kind | None = None, tensor: Owner | None = None) -> IterDomain:
        """A fresh axis; kind None means broadcast for extent 1, else iteration."""
        size = as_expr(extent)
        if size.is_const and int(size) > LARGEST:
            whose = "" if tensor is None else f"{tensor.name}: "
            raise AxisError(f"{whose}an axis of {size} elements is beyond 2^63 - 1", where=user_line())
        return self.axis_like(size, kind or ("broadcast" if is_one(size) else "iteration"), tensor)

    def axis_like(self, extent: Expr, kind: Kind, tensor: Owner | None = None) -> IterDomain:
        """A fresh axis as one that was checked before; for copies of operations and of schedules only."""
        made = IterDomain(self._domains, extent, kind, tensor)
        self._domains += 1
        return made

    def axes_like(self, known: Sequence[tuple[Expr, Kind]], tensor: Owner | None = None) -> list[IterDomain]:
        """The same for each of several extents and kinds.

        >>> f = Fusion("f")
        >>> x = f.input("x", shape=(4, 8))
        >>> f.axes_like([(d.extent, d.kind) for d in x.logical])
        [I2[4], I3[8]]
        """
        first = self._domains
        self._domains += len(known)
        return [IterDomain(first + n, extent, kind, tensor) for n, (extent, kind) in enumerate(known)]

    def free_strides(self, tensor: TensorLike, contiguity: Sequence[bool]) -> tuple[Expr | None, ...]:
        """None for contiguous allocation axes, a stride symbol for the others."""
        if all(contiguity):
            return (None,) * len(contiguity)
        self._in_order()
        number = list(self._tensors).index(tensor.name) if tensor.name in self._tensors else len(self._tensors)
        theirs = {
            n
            for t in self._tensors.values()
            if t is not tensor
            for s in t.domain.strides
            if s is not None
            for n in s.names
        }
        while any(f"stride{number}_{p}" in theirs for p in range(len(contiguity))):
            number += 1  # of a tensor that has moved since
        made = (symbol(f"stride{number}_{p}", 0) for p in range(len(contiguity)))
        return tuple(None if contiguous else s for s, contiguous in zip(made, contiguity, strict=True))

    def check_args(self, op: str, args: Sequence[object]) -> None:
        """Raise unless tensor operands belong to this fusion and all others are numbers or integer expressions."""
        for a in args:
            if isinstance(a, Tensor):
                if a not in self:
                    raise OperationError(
                        f"{op}: tensor {a.name} is not a tensor of fusion {self.name}",
                        where=user_line(),
                        hint="one operation takes tensors of one fusion",
                    )
            elif not isinstance(a, (bool, int, float, Expr)):
                held = type(a).__module__.partition(".")[0]
                what = f"an array of {held}" if hasattr(a, "shape") else "neither a tensor nor a number"
                raise OperationError(
                    f"{op}: operand {short_repr(a)} is {what}{', not a tensor of this fusion' * hasattr(a, 'shape')}",
                    where=user_line(),
                    hint="a number of Python, or an input that is declared: f.input(name, shape, dtype)",
                )
            elif isinstance(a, int) and not -LARGEST - 1 <= a <= LARGEST:
                raise OperationError(f"{op}: operand {short_repr(a)} does not fit an int64", where=user_line())

    def building(self, op: str, build: Callable[[], Tensor]) -> Tensor:
        """Run a builder; its errors get the operation's name and the user's line, and leave the fusion as it was."""
        mark = self.mark
        try:
            return build()
        except IdGraphError as error:
            self.restore(mark)
            if not error.where and not isinstance(error, InternalError):
                line = self._forced_line or user_line()
                error.where = str(line) if line is not None else "(unknown line)"
                error.what = f"{op}: {error.what}"
                error.args = (error.what,)
            raise
        except BaseException:
            self.restore(mark)
            raise

    @property
    def line(self) -> SourceLine | None:
        """The user's line that builds an operation now.

        >>> Fusion("f").line is not None
        True
        """
        return self._forced_line or user_line()

    @contextmanager
    def at_line(self, line: SourceLine | None) -> Generator[None, None, None]:
        """Operations built inside say they were written at ``line`` (for front ends)."""
        before, self._forced_line = self._forced_line, line
        try:
            yield
        finally:
            self._forced_line = before

    def emit(
        self,
        op: str,
        args: Operands,
        attrs: dict[str, Attr],
        reads: Sequence[Sequence[AxisRead]],
        dtype: str,
        domain: TensorDomain,
        name: str | None,
    ) -> Tensor:
        """Add one expression with one output; used by the builders only."""
        check_symbols(op, (*args, *attrs.values()), self._symbols, self.name)
        inputs = tuple(a for a in args if isinstance(a, Tensor))
        if len(inputs) == len(args):
            args = inputs  # one tuple instead of two
        if inputs:
            attrs = from_the_front(attrs, len(domain.logical) if op == "unsqueeze" else inputs[0].ndim)
        rows = tuple(tuple(r) for r in reads)
        return self._added(op, args, attrs, inputs, rows, check_dtype(dtype), domain, name, None)

    def again(self, e: TensorExpr, name: str | None = None) -> Tensor:
        """The operation ``e`` of this fusion once more, at its line, with axes of its own; for schedulers only.

        What its builder has judged is not judged again where all axes are the operation's own: the copy is made of its
        parts.

        >>> f = Fusion("f")
        >>> t = f.input("x", shape=(4, 8)) * 2.0
        >>> f.again(t.definition, "copy").definition
        copy[I4, I5] = mul(x[I0, I1], 2.0)
        """
        t, own = e.output, e.output.domain
        if own.exprs or own.root != own.logical:
            with self.at_line(e.source_line):
                return apply(self, e.op, e.args, e.attrs, name)
        axes = tuple(self.axes_like([(d.extent, d.kind) for d in own.logical]))
        image = dict(zip(own.logical, axes, strict=True))
        kept = axes if len(t.axes) == len(axes) else tuple([d for d in axes if d.kind != "reduction"])
        rows: dict[int, tuple[AxisRead, ...]] = {}  # those that are one row stay one
        for row in e.reads:
            if id(row) not in rows:
                rows[id(row)] = tuple([read_along(r, image) for r in row])
        domain = TensorDomain(axes, axes, kept, axes, (None,) * len(kept))
        reads = tuple([rows[id(row)] for row in e.reads])
        return self._added(e.op, e.args, e.attrs, e.inputs, reads, t.dtype, domain, name, e.source_line)

    def _added(
        self,
        op: str,
        args: Operands,
        attrs: Mapping[str, Attr],
        inputs: tuple[Tensor, ...],
        reads: tuple[tuple[AxisRead, ...], ...],
        dtype: DType,
        domain: TensorDomain,
        name: str | None,
        line: SourceLine | None,
    ) -> Tensor:
        """Add an operation of checked parts at the end."""
        inherit_rows(op, inputs, reads, domain, attrs)
        if self.operations_left is not None:
            self._spend(op, self.operations_left - 1)
        if name is not None:
            check_name(name, "tensor")
            if name in self._tensors:
                raise self._name_error(name)
            self._automatic.pop(name, None)
        else:
            number = self._made
            while f"t{number}" in self._tensors:
                number += 1
            name = f"t{number}"
            self._automatic[name] = None
        line = line or self._forced_line or user_line()
        expr = TensorExpr(f"{op}{len(self._exprs)}", op, args, attrs, inputs, reads, line)
        tensor = Tensor(self, name, dtype, domain)
        for d in domain.logical:
            d.tensor = tensor
        if domain.exprs or domain.root is not domain.logical:
            for d in (*domain.root, *(x for e in domain.exprs for x in (*e.inputs, *e.outputs))):
                d.tensor = tensor
        tensor.definition = expr
        expr.output = tensor
        for t in dict.fromkeys(inputs):
            t.add_use(expr)
        self._tensors[name] = tensor
        self._exprs.append(expr)
        self._made += 1
        self.touch()
        return tensor

    def _name_error(self, name: str, where: SourceLine | None = None, hint: str = "") -> OperationError:
        """The error for a name that a tensor has already."""
        if name in self._automatic:
            told, hint = ", which was named automatically", "names that are not t and a number are nobody's yet"
        else:
            told = ""
        return OperationError(f"fusion {self.name} already has a tensor {name!r}{told}", where=where, hint=hint)

    def _spend(self, op: str, left: int) -> None:
        """One operation less that may be built: ``left`` after this one."""
        self.operations_left = left
        if left < 0:
            raise InternalError(
                f"rewriting fusion {self.name} does not end: a step more would build {op}",
                because=(f"it has {len(self._exprs)} operations, and each rewrite is to leave less to do",),
            )

    def input_line(self, tensor: Tensor) -> SourceLine | None:
        """The line at which an input was declared."""
        return self._input_lines.get(tensor.name)

    def note_name(self, tensor: Tensor, name: str) -> None:
        """Keep the table of names in step; for the setter of `Tensor.name` only, which is how a tensor is renamed."""
        check_name(name, "tensor")
        if name != tensor.name and name in self._tensors:
            raise self._name_error(name, user_line())
        if tensor.name in self._input_lines:
            self._input_lines[name] = self._input_lines.pop(tensor.name)
        self._in_order()
        if next(reversed(self._tensors)) == tensor.name:  # the last one: named as soon as it is made
            del self._tensors[tensor.name]
            self._tensors[name] = tensor
        else:
            self._tensors = {name if k == tensor.name else k: t for k, t in self._tensors.items()}
        self.touch()

    def touch(self) -> None:
        """Note a change, so that graphs built before know they are old."""
        self.version += 1

    def _extent(self, name: str, axis: int, extent: object) -> Expr:
        extent = self.in_symbols(plain(extent))
        if is_int(extent) and extent >= 0:
            return as_expr(extent)
        if isinstance(extent, Expr) and is_true(extent >= 0):
            strange = [s for s in extent.names if s not in self._symbols]
            if not strange:
                return simplify(extent)
            raise OperationError(
                f"{name}: axis {axis} uses {strange[0]}, which is not a symbol of fusion {self.name}",
                where=user_line(),
                hint=f'{strange[0]} = f.symbol("{strange[0]}", min=1)',
            )
        said = "a non-negative int, or an expression of this fusion's symbols that is never negative"
        raise OperationError(
            f"{name}: extent {extent!r} of axis {axis} is not a number of elements",
            where=user_line(),
            hint=f'n = f.symbol("{extent}"), then n in the shape' if isinstance(extent, str) else said,
        )

    def extent(self, op: str, axis: int, extent: object) -> Expr:
        """A checked extent given to an operation."""
        return self._extent(op, axis, extent)

    # rewrites -------------------------------------------------------------------------------------------------------

    def trying(self, build: Callable[[], Tensor], line: SourceLine | None) -> tuple[Tensor, tuple[TensorExpr, ...]]:
        """The result of ``build``, with the operations it adds at the end: for `adopt`, or `undo` to take them back."""
        count = len(self._exprs)
        with self.at_line(line):
            made = build()
        return made, tuple(self._exprs[count:])

    @property
    def mark(self) -> Mark:
        """The present state, for `undo` and `restore`."""
        counts = (len(self._exprs), len(self._tensors), len(self._inputs), len(self._outputs), len(self._symbols))
        return Mark(counts, self._made, self._domains, len(self._equalities))

    def undo(self, mark: Mark) -> None:
        """Take back every operation added since ``mark``; names go on from there."""
        self._forget_equalities(mark)
        self.remove(list(reversed(self._exprs[mark.counts[0] :])))
        self._made, self._domains = mark.made, mark.domains

    def restore(self, mark: Mark) -> None:
        """Take back all that was added at the end since ``mark``, also what an interrupt left half added.

        The time is proportional to the fusion: this is for calls that failed.
        """
        exprs, tensors, inputs, outputs, symbols = mark.counts
        self._in_order()
        self._forget_equalities(mark)
        self._made, self._domains = mark.made, mark.domains
        del self._exprs[exprs:], self._inputs[inputs:], self._outputs[outputs:]
        for name in list(self._tensors)[tensors:]:
            del self._tensors[name]
            self._input_lines.pop(name, None)
        for name in list(self._symbols)[symbols:]:
            del self._symbols[name]
        known = set(self._exprs)
        for t in self._tensors.values():
            t.read_by([e for e in t.readers() if e in known])
        self.touch()

    def _forget_equalities(self, mark: Mark) -> None:
        while len(self._equalities) > mark.equalities:
            put_back(self._equalities.pop().before)

    def remove(self, exprs: Sequence[TensorExpr]) -> None:
        """Take operations away whose outputs nobody else reads."""
        self._in_order()
        gone = set(exprs)
        for e in exprs:
            for t in dict.fromkeys(e.inputs):
                t.drop_use(e)
            for t in e.outputs:
                del self._tensors[t.name]
        self._exprs = [e for e in self._exprs if e not in gone]
        self.touch()

    def adopt(self, t: Tensor, made: Tensor, exprs: Sequence[TensorExpr]) -> None:
        """Let ``t`` be computed as ``made``, a tensor of its shape that the last of ``exprs`` makes; they move in front
        of what reads t, and t's own definition goes. Loops of t are those of ``made``.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("x", shape=(4,)) * 2.0)
        >>> made, exprs = f.trying(lambda: f["x"] + f["x"], None)
        >>> f.adopt(t, made, exprs)
        >>> t.definition
        t1[I2] = add(x[I0], x[I0])
        """
        self._in_order()
        old, new = t.definition, made.definition
        if old is None or new is None or new not in exprs or made.uses:
            raise OperationError(f"{t.name} cannot be computed as {made.name}")
        for x in dict.fromkeys(old.inputs):
            x.drop_use(old)
        t.definition, t.domain, t.inline_position = new, made.domain, 0
        t.choices, t.ruled = NO_CHOICES, NO_RULES
        t.keep_last(())
        new.output = t
        exprs_of = (*made.domain.exprs, *made.domain.loop_exprs)
        for d in {*made.root, *made.logical, *(d for x in exprs_of for d in (*x.inputs, *x.outputs))}:
            d.tensor = t
        moved = set(exprs)
        rest = [e for e in self._exprs if e not in moved]
        at = rest.index(old)
        self._exprs = [*rest[:at], *exprs, *rest[at + 1 :]]
        fresh = [e.output.name for e in exprs if e is not new]
        names = [n for n in self._tensors if n not in fresh and n != made.name]
        names[names.index(t.name) : names.index(t.name)] = fresh
        self._tensors = {n: self._tensors[n] for n in names}
        self.touch()

    def replace_operand(
        self, use: TensorExpr, old: Tensor, new: Tensor, operands: Collection[int] | None = None
    ) -> None:
        """Let ``use`` read ``new``, a copy of ``old`` made just now, instead; keeps producers before consumers.

        ``operands`` are the numbers of those operands that do, by default all that are ``old``.
        """
        number, args = -1, list[Tensor | Scalar | Expr]()
        for a in use.args:
            number += isinstance(a, Tensor)
            args.append(new if a is old and (operands is None or number in operands) else a)
        use.inputs = tuple([a for a in args if isinstance(a, Tensor)])
        use.args = use.inputs if len(use.inputs) == len(args) else tuple(args)  # one tuple instead of two
        if old not in use.inputs:
            old.drop_use(use)
        new.add_use(use)
        maker = new.definition
        if maker is not None:
            self._moves.pop(maker, None)
            self._moves[maker] = use
        self.touch()

    def _in_order(self) -> None:
        """Put operations that `replace_operand` made readable in front of their readers: all at once, when somebody
        asks for the order. Tensors print in order, so a copy stands in front of what its reader makes."""
        if not self._moves:
            return
        moves, front = self._moves, dict[TensorExpr, list[TensorExpr]]()
        self._moves = {}
        for maker, use in moves.items():
            front.setdefault(use, []).append(maker)
        self._exprs = with_front([e for e in self._exprs if e not in moves], front)
        named = {maker.output.name: maker for maker in moves}
        ahead = {use.output.name: [m.output.name for m in makers] for use, makers in front.items()}
        names = with_front([n for n in self._tensors if n not in named], ahead)
        self._tensors = {n: self._tensors[n] for n in names}

    def replace(self, old: Tensor, new: Tensor) -> None:
        """Let all who read ``old`` read ``new``, which is computed before it and has the same values; ``old`` goes."""
        for use in old.uses:
            use.inputs = tuple(new if t is old else t for t in use.inputs)
            use.args = tuple(new if a is old else a for a in use.args)
            old.drop_use(use)
            if use not in new.uses:
                new.add_use(use)
        if old.definition is not None:
            self.remove([old.definition])

    # whole --------------------------------------------------------------------------------------------------------

    @shortened
    def verify(self) -> Verification:
        """Check everything at once: raises `FusionError` with all violations, each with the user's line.

        The report says what else `emit` would refuse, by target, and which vector widths it would not give: that is
        found when the report is looked at, of the fusion as it is then.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("x", shape=(8,)) + 1.0)
        >>> f.verify()
        f: nothing is refused
        """
        found = violations(self)
        if found:
            hint = "" if self._outputs else "mark what it computes: f.output(tensor)"
            raise FusionError(f"fusion {self.name} is not well formed: {len(found)} violation(s)", found, hint=hint)
        return Verification(self)


def tensor_of(axis: IterDomain) -> Tensor | None:
    """The tensor of an axis, which itself knows only an owner of some name; None for an axis outside a tensor.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(64,))
    >>> tensor_of(t.logical[0]) is t
    True
    """
    return axis.tensor if isinstance(axis.tensor, Tensor) else None


def check_fusion(value: object, who: str, error: type[IdGraphError] = IdGraphError) -> Fusion:
    """``value`` itself where it is a fusion; anything else is an ``error`` that says what ``who`` needs."""
    if not isinstance(value, Fusion):
        raise error(
            f"{who} needs a Fusion, got {type(value).__name__}",
            where=user_line(),
            hint='f = ig.Fusion("f"), a tensor\'s .fusion, or ig.parse(text)',
        )
    return value


def fusion_of(tensors: Sequence[object], op: str) -> Fusion:
    """The fusion of the first tensor among operands."""
    for t in tensors:
        if isinstance(t, Tensor):
            return t.fusion
    raise OperationError(f"{op}: no operand is a tensor", where=user_line())


def apply_op(op: str, *args: object, name: str | None = None, **attrs: Attr) -> Tensor:
    """Build a primitive from operands at least one of which is a tensor."""
    fusion = fusion_of(args, op)
    fusion.check_args(op, args)
    return apply(fusion, op, cast("Operands", args), attrs, name)
