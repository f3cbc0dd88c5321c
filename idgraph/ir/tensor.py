"""Tensors, their four lists of axes, and the schedule steps that rewrite the loop axes.

Long: one class, a documented method for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from idgraph.arith import Expr
from idgraph.display import Printed, Sheet
from idgraph.errors import OperationError, ScheduleError, SourceLine, arguments, did_you_mean, shortened, user_line
from idgraph.ir import loops
from idgraph.ir.choices import NO_CHOICES, Choices
from idgraph.ir.domains import DomainExpr, IterDomain
from idgraph.ir.dtypes import DType, Scalar
from idgraph.ir.exprs import TensorExpr
from idgraph.ir.foreign import Foreign
from idgraph.ir.registry import apply

if TYPE_CHECKING:
    from idgraph.ir.fusion import Fusion

Memory = Literal["auto", "local", "shared", "global"]
Restore = Callable[[], None]  # puts a state back
Operand: TypeAlias = "Tensor | Scalar | Expr"


@dataclass(slots=True)
class TensorDomain:
    """The axes of one tensor, four times.

    ``root``: as the producer sees them; ``logical``: as consumers see them (with reduction axes); ``allocation``: in
    memory order, outermost first; ``loop``: as scheduled, outermost first. ``strides`` are elements for each
    allocation axis, None where they follow from the extents (contiguous). ``exprs`` lie between root and logical,
    ``loop_exprs`` were added by the schedule.
    """

    root: tuple[IterDomain, ...]
    logical: tuple[IterDomain, ...]
    allocation: tuple[IterDomain, ...]
    loop: tuple[IterDomain, ...]
    strides: tuple[Expr | None, ...]
    exprs: tuple[DomainExpr, ...] = ()
    loop_exprs: list[DomainExpr] = field(default_factory=list[DomainExpr])


_AXES = tuple(f.name for f in fields(TensorDomain) if f.name != "loop_exprs")
_KEPT = ("_name", "alignment", "choices", "definition", "domain", "dtype", "inline_position", "memory", "offset")
_fields_of, _lists_of = attrgetter(*_KEPT), attrgetter(*_AXES)
Saved: TypeAlias = tuple[Any, ...]
"""What `Tensor.saved` keeps: a flat tuple, as the collector walks every object of a hundred thousand tensors."""


def _stepping(args: tuple[object, ...], _kwargs: Mapping[str, object]) -> Restore | None:
    """The undo of a schedule step that failed or was interrupted."""
    tensor = args[0] if args else None
    if not isinstance(tensor, Tensor):
        return None
    state, fusion, mark = tensor.state(), tensor.fusion, tensor.fusion.mark

    def restore() -> None:
        state()
        fusion.restore(mark)

    return restore


class Tensor(Printed, Foreign):
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
        self.choices: Choices = NO_CHOICES
        self.alignment = 16
        self.offset: Expr | int = 0
        self._log: list[loops.Step] | None = None

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
    def log(self) -> list[loops.Step]:
        """The steps of its schedule, in the order in which they were done."""
        if self._log is None:
            self._log = []
        return self._log

    def forget(self, step: str) -> None:
        """Take the steps of that name out of the log; for schedulers only."""
        if self._log:
            self._log[:] = [s for s in self._log if s.name != step]

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
        return *_fields_of(self), *_lists_of(domain), steps, log, self.readers(), axes

    def put_back(self, saved: Saved) -> None:
        """Be as when ``saved`` was made; for guards of calls only."""
        *values, steps, log, readers, axes = saved
        for name, value in zip(_KEPT, values, strict=False):
            setattr(self, name, value)
        for name, value in zip(_AXES, values[len(_KEPT) :], strict=True):
            setattr(self.domain, name, value)
        self.domain.loop_exprs[:] = steps
        if log or self._log:
            self.log[:] = log
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

    # operators ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "add", (self, other))

    def __radd__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "add", (other, self))

    def __sub__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "sub", (self, other))

    def __rsub__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "sub", (other, self))

    def __mul__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "mul", (self, other))

    def __rmul__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "mul", (other, self))

    def __truediv__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "div", (self, other))

    def __rtruediv__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "div", (other, self))

    def __floordiv__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "floor_divide", (self, other))

    def __mod__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "remainder", (self, other))

    def __pow__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "pow", (self, other))

    def __rfloordiv__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "floor_divide", (other, self))

    def __rmod__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "remainder", (other, self))

    def __rpow__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "pow", (other, self))

    def __rand__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_and", (other, self))

    def __ror__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_or", (other, self))

    def __rxor__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_xor", (other, self))

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.fusion.building("matmul", lambda: product(self, other))

    def __pos__(self) -> Tensor:
        return self

    def __neg__(self) -> Tensor:
        return apply(self.fusion, "neg", (self,))

    def __abs__(self) -> Tensor:
        return apply(self.fusion, "abs", (self,))

    def __invert__(self) -> Tensor:
        return apply(self.fusion, "logical_not" if self.dtype == "bool" else "bitwise_not", (self,))

    def __and__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_and", (self, other))

    def __or__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_or", (self, other))

    def __xor__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "bitwise_xor", (self, other))

    def __lt__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "lt", (self, other))

    def __le__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "le", (self, other))

    def __gt__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "gt", (self, other))

    def __ge__(self, other: Operand) -> Tensor:
        return apply(self.fusion, "ge", (self, other))

    def __getitem__(self, index: object) -> Tensor:
        """NumPy's basic indexing: ints, slices (steps, negative bounds), None, Ellipsis.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(4, 32))
        >>> t[0, ::-2].shape, t[..., None, 8:].shape
        ((16,), (4, 1, 24))
        """
        items = cast("tuple[object, ...]", index) if isinstance(index, tuple) else (index,)
        return self.fusion.index(self, items)

    def __iter__(self) -> object:
        raise OperationError(
            f"tensor {self.name} is not iterable",
            where=user_line(),
            hint=f"[ig.select({self.name}, 0, k) for k in range(n)], or slices: {self.name}[a:b]",
        )

    def __bool__(self) -> bool:
        raise OperationError(
            f"tensor {self.name} has no truth value while a fusion is built",
            where=user_line(),
            hint="use ig.where(condition, a, b)",
        )

    @property
    def T(self) -> Tensor:
        """The axes in reverse order."""
        return apply(self.fusion, "permute", (self,), {"dims": tuple(reversed(range(self.ndim)))})

    # schedule -----------------------------------------------------------------------------------------------------

    @arguments(ScheduleError, keep=_stepping)
    def split(self, axis: int, factor: int | Expr, *, inner: bool = True) -> Tensor:
        """Loop axis ``axis`` (extent E) becomes two: (ceil(E/factor), factor), or (factor, ceil(E/factor)).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(30,)) + 1
        >>> [str(d.extent) for d in t.split(0, 8).loop]
        ['4', '8']
        """
        loops.split(self, axis, factor, inner)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def merge(self, axis: int, other: int | None = None) -> Tensor:
        """Loop axes ``axis`` and ``other`` (default: the next one) become one, ``axis`` outermost.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.merge(0).loop
        (I4[48],)
        """
        loops.merge(self, axis, axis + 1 if other is None and loops.is_int(axis) and axis != -1 else other)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def reorder(self, order: Mapping[int, int] | Sequence[int]) -> Tensor:
        """Move loop axes: ``{old: new}``, the others keep their order; or a full list of old positions.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.reorder({0: 1}).loop
        (I3[6], I2[8])
        """
        loops.reorder(self, order)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def swizzle(self, kind: str, x: int, y: int) -> Tensor:
        """Loop axis ``y`` permuted by ``x``: y ^ x ("xor", powers of two) or (x + y) mod extent ("cyclic").

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 8)) + 1.0
        >>> t.swizzle("xor", 0, 1).domain.loop_exprs
        [Swizzle(I2[8], I3[8] -> I4[8], I5[8]; xor)]
        """
        loops.swizzle(self, kind, x, y)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def resize(self, axis: int, left: int | Expr, right: int | Expr) -> Tensor:
        """Loop axis ``axis`` grows by ``left`` in front and ``right`` behind (negative: is cut).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.resize(0, 2, -1).loop
        (I4[9], I3[6])
        """
        loops.resize(self, axis, left, right)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def roll(self, axis: int, shift: int | Expr) -> Tensor:
        """Loop axis ``axis`` is turned: element c stands at (c + shift) mod extent.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.roll(0, 3).domain.loop_exprs
        [Roll(I2[8] -> I4[8]; 3)]
        """
        loops.roll(self, axis, shift)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def stride(self, axis: int, start: int | Expr, step: int, extent: int | Expr) -> Tensor:
        """Loop axis ``axis`` runs over ``extent`` of its elements: start + step * c (step -1 runs backwards).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.stride(0, 7, -1, 8).domain.loop_exprs
        [Stride(I2[8] -> I4[8]; 7, -1)]
        """
        loops.stride(self, axis, start, step, extent)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def parallelize(self, axis: int, parallel: str) -> Tensor:
        """Loop axis ``axis`` runs on blocks or threads, or is vectorised or unrolled.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").loop
        (I2[8], I3[6])
        """
        loops.parallelize(self, axis, parallel)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def inline(self, position: int) -> Tensor:
        """Compute at: the loop axes left of ``position`` are shared with every consumer's.

        Whether the consumers' loops agree is checked when indices are asked for, when all loops are known.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.exp(f.input("x", shape=(8, 6)))
        >>> u = f.output(t * 2.0)
        >>> print(ig.viz.loop_nest(f))
        allocate t1: 48 float32, global
        for i0 < 8:
          for i1 < 6:
            t1 = exp(x)
        for i0 < 8:
          for i1 < 6:
            t2 = mul(t1, 2.0)
        >>> _ = t.inline(1)
        >>> print(ig.viz.loop_nest(f))
        for i0 < 8:
          allocate t1: 6 float32, private
          for i1 < 6:
            t1 = exp(x)
          for i1 < 6:
            t2 = mul(t1, 2.0)
        """
        loops.inline(self, position)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def set_loop(self, domains: Sequence[IterDomain]) -> Tensor:
        """Take these axes (of this tensor, covering it once) as loops.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_loop(t.logical[::-1]).loop
        (I3[6], I2[8])
        """
        loops.set_loop(self, domains)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def set_allocation(
        self,
        domains: Sequence[IterDomain],
        contiguity: Sequence[bool] | bool = True,
        strides: Sequence[int] | None = None,
    ) -> Tensor:
        """Lay the tensor out in the order of these axes of it, outermost first.

        ``strides``: elements between neighbours of each of them, as many or more than lie inside, for axes of constant
        size; None: without gaps where ``contiguity`` says so.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_allocation(t.logical[::-1]).allocation
        (I3[6], I2[8])
        """
        loops.set_allocation(self, domains, contiguity, strides)
        return self

    @arguments(ScheduleError, keep=_stepping)
    def set_memory(self, memory: str) -> Tensor:
        """Keep an intermediate in "local", "shared" or "global" memory; "auto" lets the emitter choose.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_memory("shared").memory
        'shared'
        """
        for known in ("auto", "local", "shared", "global"):
            if memory == known:
                self.memory = known
                loops.log_step(self, "set_memory", memory)
                return self
        raise ScheduleError(
            f"unknown memory {memory!r} for {self.name}",
            where=user_line(),
            hint=did_you_mean(str(memory), ("auto", "local", "shared", "global"), "auto, local, shared or global"),
        )

    @arguments(ScheduleError, keep=_stepping)
    def persistent(self, on: bool = True) -> Tensor:
        """Hold the row that a reduction runs over between the passes over it, or read it again (``on=False``).

        On a GPU a row lies in registers of its threads, at most 64 values of each; on the CPU an array holds what is
        expensive to compute. `ig.emit` raises `EmitError` where a GPU's kernel cannot. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.amax(f.input("x", shape=(8, 64)), 1)
        >>> t.persistent().choices.persistent
        True
        """
        return self._choose("persistent", on)

    @arguments(ScheduleError, keep=_stepping)
    def online(self, on: bool = True) -> Tensor:
        """Take sums of exp(x - maximum) in the pass that finds the maximum, or in a second pass (``on=False``).

        A GPU's threads rescale their sums whenever the running maximum grows (Milakov and Gimelshein, 2018); a core of
        the CPU takes two passes. `ig.emit` raises `EmitError` for a row without such sums. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> ig.amax(f.input("x", shape=(8, 64)), 1).online(False).choices.online
        False
        """
        return self._choose("online", on)

    @arguments(ScheduleError, keep=_stepping)
    def items_per_thread(self, most: int) -> Tensor:
        """At most so many elements (a power of two) of a row that is not persistent are under way in one thread.

        On the CPU: so many terms are added up in float32 before they go to a float64 sum. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> ig.sum(f.input("x", shape=(8, 64)), 1).items_per_thread(8).choices.items_per_thread
        8
        """
        return self._choose("items_per_thread", most)

    @arguments(ScheduleError, keep=_stepping)
    def parallel(self, on: bool = True) -> Tensor:
        """Run the tensor's kernel on all cores of the CPU, or on one. Unset: on all where the work is large.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.parallel(False).choices.parallel
        False
        """
        return self._choose("parallel", on)

    def _choose(self, name: str, value: bool | int) -> Tensor:
        e = self.definition
        if e is None or not (e.is_reduction or name == "parallel"):
            what = "an input" if e is None else f"made by {e.op}"
            rows = [t.name for t in self.fusion.tensors if t.definition is not None and t.definition.is_reduction]
            hint = "any computed tensor" if name == "parallel" else f"a reduction: {', '.join(rows[:8]) or 'none here'}"
            raise ScheduleError(f"{name}: {self.name} is {what}, it has no rows", where=user_line(), hint=hint)
        self.choices = self.choices.but(**{name: value})
        loops.log_step(self, name, value)
        return self


_OPERATORS = tuple(
    f"__{name}__"
    for name in (
        "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rfloordiv",
        "rmod", "rpow", "rand", "ror", "rxor", "matmul", "neg", "abs", "invert", "and", "or", "xor", "lt", "le", "gt",
        "ge", "getitem",
    )
)  # fmt: skip
for _operator in _OPERATORS:
    setattr(Tensor, _operator, shortened(getattr(Tensor, _operator)))


def product(a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
    """See `idgraph.matmul`."""
    fusion, row, column = a.fusion, a.ndim == 1, isinstance(b, Tensor) and b.ndim == 1  # pyright: ignore[reportUnnecessaryIsInstance]
    if not (row or column):
        return apply(fusion, "matmul", (a, b), name=name)
    left = apply(fusion, "unsqueeze", (a,), {"dims": (0,)}) if row else a
    right = apply(fusion, "unsqueeze", (b,), {"dims": (1,)}) if column else b
    wide = apply(fusion, "matmul", (left, right))
    drop = tuple(wide.ndim - back for back, gone in ((1, column), (2, row)) if gone)
    return apply(fusion, "squeeze", (wide,), {"dims": drop}, name)
