"""The purpose of each access: the operation, which of its operands, and the logical point, in loop variables.

The axes that loops go over: what the schedule split stays one index, which kernels are given.

The choices of one kernel: those of its tensors, which must not contradict each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.arith import Expr, as_expr, simplify
from idgraph.errors import ScheduleError, SourceLine
from idgraph.index.access_relation import IndexMaps
from idgraph.index.allocation import is_block
from idgraph.index.loop_tree import LoopNest, scatter_entries
from idgraph.ir import IterDomain, Split, Tensor, TensorExpr
from idgraph.ir.fusion import tensor_of
from idgraph.ir.op_table import WRITES
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.ir import Provenance, SplitAxis

START = "_start"  # behind the name of a scatter's output: the copy of what it updates, by element number


def read_provenance(e: TensorExpr, maps: IndexMaps, name: str, operand: int) -> Provenance:
    """A read of ``operand`` by ``e``, whose output is called ``name``, at the point of all its logical axes."""
    return Provenance(name, operand, _entry(e, maps) if e.op in WRITES else tuple(maps.write(e).logical))


def write_provenance(e: TensorExpr, maps: IndexMaps, name: str, along: Sequence[int] = ()) -> Provenance:
    """The result of ``e`` at a point of its shape; of a scatter, an entry of what it writes; of rows that
    are combined, an element of one.

    ``along`` are axes of the shape that have one running value.
    """
    if e.op in WRITES:
        return Provenance(name, None, _entry(e, maps))
    axes = [p for p, d in enumerate(e.output.logical) if d.kind != "reduction"]
    logical = maps.write(e).logical
    return Provenance(name, None, tuple(as_expr(0) if n in along else logical[p] for n, p in enumerate(axes)))


def _entry(e: TensorExpr, maps: IndexMaps) -> tuple[Expr, ...]:
    """The coordinates of an entry of a scatter: of its index and, for index_put, of the axes that are not indexed."""
    if e.op == "combine":
        return tuple(maps.read(e, 0).coordinates)
    if e.op != "index_put":
        return tuple(maps.read(e, 1).coordinates)
    dims = e.attrs["dims"]
    at = [d % e.output.ndim for d in dims if isinstance(d, int)] if isinstance(dims, tuple) else []
    write = maps.write(e).coordinates
    return (*write[: at[0]], *scatter_entries(e, maps)[0], *write[at[-1] + 1 :])


def split_axis(nest: LoopNest, depth: int, maps: IndexMaps) -> SplitAxis | None:
    """The axis that the loops from ``nest`` on go over, each directly inside the one before; None where it is one loop.

    All expressions in the loops have it, one of them at least as an axis that is not itself a part of another one.
    Loops on blocks name none: passes give blocks other extents.
    """
    if is_block(nest.parallel):
        return None
    first, *others = (_axes([v.domain for v in maps.loops(e)], depth) for e in nest.exprs)
    for axis, whole in first.items():
        if all(axis in x for x in others) and (whole or any(x[axis] for x in others)):
            return axis if _is_perfect_nest(nest, axis.loops) else None
    return None


def _is_perfect_nest(nest: LoopNest, loops: int) -> bool:
    """Whether so many loops stand directly inside each other."""
    if loops == 1:
        return True
    inner = nest.children[0]
    return len(nest.children) == 1 and isinstance(inner, LoopNest) and _is_perfect_nest(inner, loops - 1)


def _axes(loops: Sequence[IterDomain], depth: int) -> dict[SplitAxis, bool]:
    """The axes that the schedule split into several ``loops`` from ``depth`` on, and whether each is a whole one.

    An inner part must be split without a rest: else its loops leave places out, and their digits are not the axis's.
    """
    parts: list[tuple[IterDomain, int, bool]] = []  # an axis, its first loop, and whether its loops have no rest
    found: dict[SplitAxis, bool] = {}
    for n, d in enumerate(loops, 1):
        parts.append((d, n - 1, True))
        while len(parts) > 1 and parts[-1][2] and (source := _split_source(parts[-2][0], parts[-1][0])) is not None:
            (outer, at, exact), (inner, _, _) = parts[-2:]
            exact = exact and simplify(outer.extent * inner.extent) == simplify(source.extent)
            parts[-2:] = [(source, at, exact)]
            if at == depth:
                found[SplitAxis(simplify(source.extent), n - depth)] = False
    ends = [at for _, at, _ in parts[1:]] + [len(loops)]
    whole = {
        SplitAxis(simplify(d.extent), end - at) for (d, at, _), end in zip(parts, ends, strict=True) if at == depth
    }
    return {axis: axis in whole for axis in reversed(found)}


def _split_source(outer: IterDomain, inner: IterDomain) -> IterDomain | None:
    """The axis that the schedule split into these two."""
    made, t = inner.definition, tensor_of(inner)
    if isinstance(made, Split) and made.outer is outer and made.inner is inner:
        return made.source if t is not None and made in t.domain.loop_exprs else None
    return None


def kernel_choices(tensors: Sequence[Tensor]) -> KernelHints:
    """The choices beside loops that the schedules of ``tensors``, computed by one kernel, hold.

    Raises `ScheduleError` where two of them say different things, or a row shall be held and read in one pass.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x = f.input("x", shape=(8, 64))
    >>> t, u = ig.amax(x, 1).persistent(), ig.sum(x, 1)
    >>> print(kernel_choices([t, u]))
    persistent=true
    >>> kernel_choices([t, u.persistent(False)])
    Traceback (most recent call last):
    idgraph.errors.ScheduleError: t2 says persistent(False), t1 in the same kernel says persistent(True)
      ...
    """
    by: dict[str, Tensor] = {}
    made = KernelHints()
    for t in tensors:
        for name, value in t.choices.explicit().items():
            first = by.setdefault(name, t)
            if getattr(first.choices, name) != value:
                raise ScheduleError(
                    f"{t.name} says {_said(t, name)}, {first.name} in the same kernel says {_said(first, name)}",
                    where=_choice_line(t, name), hint="say the same of both",
                )  # fmt: skip
            made = made.but(**{name: value})
    if made.persistent and made.online:
        t, u = by["persistent"], by["online"]
        raise ScheduleError(
            f"{t.name} says persistent(True), {u.name} in the same kernel says online(True)",
            because=("a row that is held is passed over twice, and online is one pass",),
            where=_choice_line(t, "persistent"),
            hint=f"{t.name}.persistent(False), or {u.name}.online(False)",
        )
    if not by:
        return made
    told = [f"{t.name}.{_said(t, name)}{_line_suffix(t, name)}" for name, t in by.items()]
    return made.but(of="; ".join(told))


def _said(t: Tensor, name: str) -> str:
    return f"{name}({getattr(t.choices, name)})"


def _choice_line(t: Tensor, name: str) -> SourceLine | None:
    """The user's line that made the choice."""
    return next((s.line for s in reversed(t.log) if s.name == name), None)


def _line_suffix(t: Tensor, name: str) -> str:
    line = _choice_line(t, name)
    return f" at {line.file}:{line.line}" if line is not None else ""
