"""The schedule steps of tensors: each rewrites the loop axes of one, or says what its kernel obeys, and is logged.

Long: a documented method for each step.

A *row* is one point of the kept axes of a reduction, its *columns* are the points of the reduced ones. What is computed
for the same rows by one kernel has the same loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from idgraph.arith import Expr
from idgraph.errors import ScheduleError, arguments, did_you_mean, short_repr, user_line
from idgraph.ir import loop_transforms as loop_steps
from idgraph.ir.device import TARGETS, current_device
from idgraph.ir.iter_domain import IterDomain, Parallel
from idgraph.ir.protocols import L, TensorLike
from idgraph.ir.schedule_log import KernelHints, check_choice
from idgraph.ir.transaction import transactional_step

MAX_LANES = 32


def row_loops(
    tensor: TensorLike,
    axes: Sequence[int],
    columns: Sequence[int],
    *,
    threads: int = 1,
    rows: int = 1,
    lanes: int = 1,
    side: int = 1,
    across: bool = False,
) -> None:
    """See `Tensor.row_loops`."""
    _check_loop_positions(
        tensor, axes, columns, {"threads": threads, "rows": rows, "lanes": lanes, "side": side}, across
    )
    taken = len(tensor.log)
    rest = [p for p in range(len(tensor.loop)) if p not in axes and p not in columns]
    order = [*axes, *columns, *rest]
    if order != sorted(order):
        loop_steps.reorder(tensor, order)
    for _ in columns[1:]:
        loop_steps.merge(tensor, len(axes), len(axes) + 1)
    for _ in axes[1:]:
        loop_steps.merge(tensor, 0, 1)
    first = min(len(axes), 1)
    if columns and across and threads > 1:
        _split_and_parallelize(tensor, first, threads, "threadIdx.y")
    elif columns and not across:
        loop_steps.split(tensor, first, lanes, inner=True)
        _split_and_parallelize(tensor, first, threads, "threadIdx.x")
        loop_steps.parallelize(tensor, first + 2, "vectorize")
    if first:
        if side > 1:
            _split_and_parallelize(tensor, 0, side, "unroll")
        if across or rows > 1 or side > 1:
            _split_and_parallelize(tensor, 0, rows, "threadIdx.x" if across else "threadIdx.y")
        loop_steps.parallelize(tensor, 0, "blockIdx.x")
    tensor.keep_first(taken)  # one step, which takes all of these again
    told = {"threads": threads, "rows": rows, "lanes": lanes, "side": side, "across": across}
    named = {k: v for k, v in told.items() if k in ("threads", "rows") or v != (k != "across")}
    loop_steps.log_step(tensor, "row_loops", tuple(axes), tuple(columns), **named)


def _split_and_parallelize(tensor: TensorLike, at: int, size: int, parallel: Parallel) -> None:
    loop_steps.split(tensor, at, size, inner=True)
    loop_steps.parallelize(tensor, at + 1, parallel)


def _check_loop_positions(
    tensor: TensorLike, axes: Sequence[int], columns: Sequence[int], sizes: dict[str, int], across: object
) -> None:
    """Raise `ScheduleError` for a position that is not a loop, or is named twice, and for numbers that no block has."""
    count, of = len(tensor.loop), f"row_loops of {tensor.name}"
    lists: dict[str, object] = {"axes": axes, "columns": columns}
    for what, given in lists.items():
        if (
            not isinstance(given, Sequence) or len(cast("Sequence[object]", given)) > count
        ):  # before it is walked: it may have no end
            raise ScheduleError(
                f"row_loops: {what} of {tensor.name} are a list of at most {count} loop positions",
                where=user_line(),
                hint="such as row_loops((0,), (1,))",
            )
    named = [*axes, *columns]
    wrong = [p for p in named if not loop_steps.is_int(p) or not 0 <= p < count or named.count(p) > 1]
    if wrong or not named:
        raise ScheduleError(
            f"row_loops: {wrong[0]!r} is not a loop of {tensor.name}, or is named twice" if wrong
            else f"row_loops: neither a row nor a column of {tensor.name} is named",
            where=user_line(),
            hint=f"its loops are {', '.join(map(repr, tensor.loop)) or '(none)'}, numbered from 0",
        )  # fmt: skip
    for name, value in sizes.items():
        check_choice(name, value, of, MAX_LANES if name == "lanes" else current_device().block_threads)
    check_choice("across", across, of)


class ScheduleMixin:
    """The steps by which a user or a scheduler schedules a tensor; a part of `Tensor`.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(30,)) + 1
    >>> t.split(0, 8).parallelize(0, "blockIdx.x").loop
    (I2[4], I3[8])
    """

    __slots__ = ()

    @arguments(ScheduleError, keep=transactional_step)
    def split(self: L, axis: int, factor: int | Expr, *, inner: bool = True) -> L:
        """Loop axis ``axis`` (extent E) becomes two: (ceil(E/factor), factor), or (factor, ceil(E/factor)).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("t", shape=(30,)) + 1
        >>> [str(d.extent) for d in t.split(0, 8).loop]
        ['4', '8']
        """
        loop_steps.split(self, axis, factor, inner)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def merge(self: L, axis: int, other: int | None = None) -> L:
        """Loop axes ``axis`` and ``other`` (default: the next one) become one, ``axis`` outermost.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.merge(0).loop
        (I4[48],)
        """
        loop_steps.merge(self, axis, axis + 1 if other is None and loop_steps.is_int(axis) and axis != -1 else other)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def reorder(self: L, order: Mapping[int, int] | Sequence[int]) -> L:
        """Move loop axes: ``{old: new}``, the others keep their order; or a full list of old positions.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.reorder({0: 1}).loop
        (I3[6], I2[8])
        """
        loop_steps.reorder(self, order)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def swizzle(self: L, kind: str, x: int, y: int) -> L:
        """Loop axis ``y`` permuted by ``x``: y ^ x ("xor", powers of two) or (x + y) mod extent ("cyclic").

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 8)) + 1.0
        >>> t.swizzle("xor", 0, 1).domain.loop_exprs
        [Swizzle(I2[8], I3[8] -> I4[8], I5[8]; xor)]
        """
        loop_steps.swizzle(self, kind, x, y)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def resize(self: L, axis: int, left: int | Expr, right: int | Expr) -> L:
        """Loop axis ``axis`` grows by ``left`` in front and ``right`` behind (negative: is cut).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.resize(0, 2, -1).loop
        (I4[9], I3[6])
        """
        loop_steps.resize(self, axis, left, right)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def roll(self: L, axis: int, shift: int | Expr) -> L:
        """Loop axis ``axis`` is turned: element c stands at (c + shift) mod extent.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.roll(0, 3).domain.loop_exprs
        [Roll(I2[8] -> I4[8]; 3)]
        """
        loop_steps.roll(self, axis, shift)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def stride(self: L, axis: int, start: int | Expr, step: int, extent: int | Expr) -> L:
        """Loop axis ``axis`` runs over ``extent`` of its elements: start + step * c (step -1 runs backwards).

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.stride(0, 7, -1, 8).domain.loop_exprs
        [Stride(I2[8] -> I4[8]; 7, -1)]
        """
        loop_steps.stride(self, axis, start, step, extent)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def vectorize(self: L, axis: int, *, strict: bool = False) -> L:
        """The steps of loop axis ``axis`` are the lanes of vector accesses; as ``parallelize(axis, "vectorize")``.

        Where an access cannot be as wide, a GPU's kernel makes it narrower, which `Kernel.widths` and `Fusion.verify`
        say. With ``strict`` `idgraph.emit` raises `EmitError` for it, for each access in this loop, those of what is
        inlined there included; as wide as asked is also what takes several accesses of 16 bytes.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> y = f.output(f.input("x", shape=(6, 50)) * 2.0).split(1, 4).vectorize(2, strict=True)
        >>> ig.emit(f, "cuda")
        Traceback (most recent call last):
        idgraph.errors.EmitError: the strict vector width is not given: t1: i2 over x: asked 4, got 2
          ...
        """
        loop_steps.parallelize(self, axis, "vectorize", strict)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def parallelize(self: L, axis: int, parallel: str, *, strict: bool = False) -> L:
        """Loop axis ``axis`` runs on blocks or threads, or is vectorised or unrolled; ``strict``: see `vectorize`.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").loop
        (I2[8], I3[6])
        """
        loop_steps.parallelize(self, axis, parallel, strict)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def row_loops(
        self: L,
        axes: Sequence[int],
        columns: Sequence[int],
        *,
        threads: int = 1,
        rows: int = 1,
        lanes: int = 1,
        side: int = 1,
        across: bool = False,
    ) -> L:
        """Loops over rows and their columns: loop axes ``axes`` are the rows, ``columns`` what each row consists of.

        ``threads`` share a row, ``rows`` share a block, a thread takes ``lanes`` neighbouring columns at once and
        ``side`` neighbouring rows. With ``across`` neighbouring threads take neighbouring rows. All are powers of two;
        ``threads`` may also be whole warps.

        >>> import idgraph as ig
        >>> t = ig.sum(ig.Fusion("f").input("x", shape=(64, 512)), 1)
        >>> [(str(d.extent), d.parallel) for d in t.row_loops((0,), (1,), threads=32, rows=4, lanes=4).loop]
        [('16', 'blockIdx.x'), ('4', 'threadIdx.y'), ('4', 'serial'), ('32', 'threadIdx.x'), ('4', 'vectorize')]
        """
        row_loops(self, axes, columns, threads=threads, rows=rows, lanes=lanes, side=side, across=across)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def inline(self: L, position: int) -> L:
        """Compute at: the loop axes left of ``position`` are shared with every consumer's.

        Where consumers loop over what the tensor lacks outside of loops that it has (a broadcast of theirs, an axis
        that only other operands have), it gets loops of one element there, which the position then counts. A loop of
        one element of its own that they have not moves inside.

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
        loop_steps.inline(self, position, beside=True)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def set_loop(self: L, domains: Sequence[IterDomain]) -> L:
        """Take these axes (of this tensor, covering it once) as loops.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_loop(t.logical[::-1]).loop
        (I3[6], I2[8])
        """
        loop_steps.set_loop(self, domains)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def set_allocation(
        self: L,
        domains: Sequence[IterDomain] | None = None,
        contiguity: Sequence[bool] | bool = True,
        strides: Sequence[int] | None = None,
    ) -> L:
        """Lay the tensor out in the order of these axes of it, outermost first; None: of its axes as they are.

        ``strides``: elements between neighbours of each of them, as many or more than lie inside, for axes of constant
        size; None: without gaps where ``contiguity`` says so.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_allocation(t.logical[::-1]).allocation
        (I3[6], I2[8])
        """
        loop_steps.set_allocation(self, self.logical if domains is None else domains, contiguity, strides)
        return self

    @arguments(ScheduleError, keep=transactional_step)
    def set_memory(self: L, memory: str) -> L:
        """Keep an intermediate in "local", "shared" or "global" memory; "auto" lets the emitter choose.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.set_memory("shared").memory
        'shared'
        """
        for known in ("auto", "local", "shared", "global"):
            if memory == known:
                self.memory = known
                loop_steps.log_step(self, "set_memory", memory)
                return self
        raise ScheduleError(
            f"unknown memory {memory!r} for {self.name}",
            where=user_line(),
            hint=did_you_mean(str(memory), ("auto", "local", "shared", "global"), "auto, local, shared or global"),
        )

    @arguments(ScheduleError, keep=transactional_step)
    def persistent(self: L, on: bool = True) -> L:
        """Hold the row that a reduction runs over between the passes over it, or read it again (``on=False``).

        On a GPU a row lies in registers of its threads, at most 64 values of each; on the CPU an array holds what is
        expensive to compute. `ig.emit` raises `EmitError` where a GPU's kernel cannot. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.amax(f.input("x", shape=(8, 64)), 1)
        >>> t.persistent().choices.persistent
        True
        """
        return choose(self, "persistent", on)

    @arguments(ScheduleError, keep=transactional_step)
    def online(self: L, on: bool = True) -> L:
        """Take sums of exp(x - maximum) in the pass that finds the maximum, or in a second pass (``on=False``).

        A GPU's threads rescale their sums whenever the running maximum grows (Milakov and Gimelshein, 2018); a core of
        the CPU takes two passes. `ig.emit` raises `EmitError` for a row without such sums. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> ig.amax(f.input("x", shape=(8, 64)), 1).online(False).choices.online
        False
        """
        return choose(self, "online", on)

    @arguments(ScheduleError, keep=transactional_step)
    def items_per_thread(self: L, most: int) -> L:
        """At most so many elements (a power of two) of a row that is not persistent are under way in one thread.

        On the CPU: so many terms are added up in float32 before they go to a float64 sum. Unset: the target's rule.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> ig.sum(f.input("x", shape=(8, 64)), 1).items_per_thread(8).choices.items_per_thread
        8
        """
        return choose(self, "items_per_thread", most)

    @arguments(ScheduleError, keep=transactional_step)
    def parallel(self: L, on: bool = True) -> L:
        """Run the tensor's kernel on all cores of the CPU, or on one. Unset: on all where the work is large.

        >>> import idgraph as ig
        >>> t = ig.Fusion("f").input("x", shape=(8, 6)) + 1.0
        >>> t.parallel(False).choices.parallel
        False
        """
        return choose(self, "parallel", on)

    @arguments(ScheduleError, keep=transactional_step)
    def by_rule(
        self: L,
        target: str,
        *,
        persistent: bool | None = None,
        online: bool | None = None,
        items_per_thread: int | None = None,
        why: str = "",
    ) -> L:
        """Set what a rule decided for kernels of a target ("cuda" or "cpu"), and ``why``; a step of `ig.schedule.auto`.

        Kernels do as it says where the user does not say otherwise (`Tensor.persistent`, `Tensor.online`,
        `Tensor.items_per_thread`). ``items_per_thread`` is that of the pass with most under way: one that writes its
        row has 16 at most. Another loop step makes all of it void.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = ig.sum(f.input("x", shape=(8, 64)), 1).by_rule("cuda", persistent=False, why="one pass does it")
        >>> str(t.ruled["cuda"]), "by_rule" in str(f), t.split(0, 4).ruled
        ('persistent=false', True, {})
        """
        if target not in TARGETS:
            raise ScheduleError(
                f"by_rule: unknown target {short_repr(target)}", hint=", ".join(TARGETS), where=user_line()
            )
        _check_rows(self, "by_rule")
        found = KernelHints(persistent, online, items_per_thread, why=why)
        self.ruled = {**self.ruled, target: found}
        told = {**found.explicit(), **({"why": why} if why else {})}
        loop_steps.log_step(self, "by_rule", target, **told)
        return self


def choose(tensor: L, name: str, value: bool | int, *, by: str = "") -> L:
    """Make a choice beside loops: of the user, or ``by`` a scheduler, which may choose anew."""
    _check_rows(tensor, name)
    tensor.choices = tensor.choices.but(**{name: value})
    loop_steps.log_step(tensor, name, value, **({"by": by} if by else {}))
    return tensor


def _check_rows(tensor: TensorLike, name: str) -> None:
    """Raise `ScheduleError` for a tensor without rows."""
    e = tensor.definition
    if e is None or not (e.is_reduction or name == "parallel"):
        what = "an input" if e is None else f"made by {e.op}"
        rows = [t.name for t in tensor.fusion.tensors if t.definition is not None and t.definition.is_reduction]
        hint = "any computed tensor" if name == "parallel" else f"a reduction: {', '.join(rows[:8]) or 'none here'}"
        raise ScheduleError(f"{name}: {tensor.name} is {what}, it has no rows", where=user_line(), hint=hint)
