"""The words that pictures share: axes with extents, what an operation or an axis expression does, and where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from idgraph.arith import Expr
from idgraph.graphs import Cycle
from idgraph.graphs.cycles import e_tensor
from idgraph.ir import (
    DomainExpr,
    IterDomain,
    LoadedCoordinate,
    Merge,
    Resize,
    Roll,
    RowPartition,
    Split,
    Stride,
    Swizzle,
    Tensor,
    TensorExpr,
)
from idgraph.ir.axis_read import Attr
from idgraph.ir.fusion import tensor_of
from idgraph.viz.picture import clip

LIMIT = 44  # cells of one line of a box; longer text stands in the tooltip


def axes_text(axes: Iterable[IterDomain]) -> str:
    """``I0[4] I1[64]``, with the parallel type where there is one."""
    return " ".join(repr(d) + (f" {d.parallel}" if d.parallel != "serial" else "") for d in axes) or "scalar"


def signed(x: Expr) -> str:
    """``+32``, ``-n//2``.

    >>> from idgraph.arith import as_expr
    >>> signed(as_expr(32)), signed(as_expr(-32)), signed(as_expr(0))
    ('+32', '-32', '+0')
    """
    text = str(x)
    return text if text.startswith("-") else f"+{text}"


def step_text(e: DomainExpr) -> str:
    """The effect of an axis expression, in a few words.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(64,))[32:].split(0, 8)
    >>> [step_text(e) for e in (*t.domain.exprs, *t.domain.loop_exprs)]
    ['resize left -32', 'split by 8']
    """
    match e:
        case Split():
            return f"split by {e.factor}" + ("" if e.inner_split else ", outer")
        case Merge():
            return "merge"
        case Resize():
            sides = [f"{side} {signed(x)}" for side, x in (("left", e.left), ("right", e.right)) if x != 0]
            return f"resize {' '.join(sides) or 'by 0'}"
        case Stride():
            return f"stride from {e.start} by {e.step}"
        case Roll():
            return f"roll by {e.shift}"
        case Swizzle():
            return f"swizzle {e.kind}"
        case RowPartition():
            return f"{'combine' if e.combines else 'partition'} by {e.offsets.name}"
        case _:
            assert_never(e)


def step_owner(exprs: Sequence[DomainExpr]) -> str:
    """Whose expressions these are, operations first: ``t1 = slice``, ``schedule of t1``, ``... and 3 more``."""
    operations: list[str] = []
    schedules: list[str] = []
    for e in exprs:
        t = tensor_of(e.outputs[0])
        if t is None:
            schedules.append("a promoted loop")
        elif t.definition is not None and any(x is e for x in t.domain.exprs):
            operations.append(f"{t.name} = {t.definition.op}")
        else:
            schedules.append(f"schedule of {t.name}")
    unique = list(dict.fromkeys([*operations, *schedules]))
    return clip(unique[0], LIMIT - 12) + (f" and {len(unique) - 1} more" if len(unique) > 1 else "")


def step_title(exprs: Sequence[DomainExpr]) -> str:
    """Tooltip of expressions: each with its owner and line."""
    return "\n".join(f"{e}  {e_tensor(e)}".rstrip() for e in exprs)


def where(thing: Tensor | TensorExpr) -> str:
    """The user's line, or that it is not known."""
    return str(thing.source_line) if thing.source_line is not None else "(line not known)"


def attribute(value: Attr) -> str:
    """An attribute, short: a tuple of one as what is in it."""
    if isinstance(value, tuple):
        return attribute(value[0]) if len(value) == 1 else f"({','.join(map(attribute, value))})"
    return str(value)


def call_text(e: TensorExpr) -> str:
    """``slice(t0)``: an operation with its operands."""
    args = [a.name if isinstance(a, Tensor) else str(a) for a in e.args]
    return f"{e.op}({', '.join(clip(a, 24) for a in args)})"


def category(t: Tensor) -> str:
    """The effect on coordinates of the operation behind a tensor; decided by its axes, not by its name.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(4, 64))
    >>> category(t), category(t[:, 1:]), category(ig.sum(t, 1)), category(-t)
    ('input', 'resize', 'reduction', 'pointwise')
    """
    e = t.definition
    if e is None:
        return "input"
    if any(isinstance(r, LoadedCoordinate) for row in e.reads for r in row):
        return "gather"
    if e.is_reduction:
        return "reduction"
    if any(isinstance(x, (Resize, Roll, Stride)) for x in t.domain.exprs):
        return "resize"
    return "reshape" if t.domain.exprs else "pointwise"


def counted(number: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "input"), counted(2, "input")
    ('1 input', '2 inputs')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], limit: int) -> str:
    """At most ``limit`` names, and how many more there are.

    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    shown = ", ".join(clip(n, 30) for n in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def cycle_head(cycle: Cycle[Any]) -> str:
    """One sentence: kind and net map of a cycle."""
    match cycle.kind:
        case "shift":
            wrap = f" modulo {cycle.modulus}" if cycle.modulus is not None else ""
            shift = signed(cycle.shift) if cycle.shift is not None else "?"
            return f"Shift cycle ({shift}{wrap}): once around takes coordinate c to {cycle.map}{cycle.where}"
        case "reorder":
            return f"Reorder cycle: once around takes coordinate c to {cycle.map}{cycle.where}"
        case "identity":
            return f"Identity cycle: once around gives the coordinate back{cycle.where}"
        case "empty":
            return "Empty cycle: no coordinate goes all the way round"
        case _:
            assert_never(cycle.kind)


def cycle_lines(cycle: Cycle[Any]) -> list[str]:
    """Caption of a cycle: kind and shift, the user's lines, what closes it."""
    closing = str(cycle.closing.source_line) if cycle.closing and cycle.closing.source_line else ""
    lines = [f"  {line}" for line in map(str, cycle.lines) if line != closing]
    if cycle.closing is not None:
        made = f"{cycle.closing.output.name} = {call_text(cycle.closing)}"
        lines.append(f"  closed by {closing or made}")
    return [cycle_head(cycle), *lines]


def around(cycle: Cycle[Any]) -> list[str]:
    """The coordinate at each group of a cycle as text in ``c``; the last entry is the first group after one round.

    "none" everywhere where no coordinate goes all the way round.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("t", shape=(64,))
    >>> u = t + ig.cat([t[32:], t[:32]], dim=0)
    >>> [around(c) for c in ig.IdModel(u.fusion).exact.cycles()]
    [['c', 'c - 32', 'c - 32'], ['c', 'c', 'c + 32']]
    """
    if cycle.kind == "empty":
        return ["none"] * (len(cycle.groups) + 1)
    return [*map(str, cycle.coordinates), str(cycle.map)]
