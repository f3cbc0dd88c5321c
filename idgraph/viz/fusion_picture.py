"""Pictures of a fusion: a box for each tensor with the operation that makes it, its axes, loops and inlining.

The loop nest of a scheduled fusion as text, as Halide prints one: a line for each loop, array and operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from idgraph.arith import Expr
from idgraph.errors import IdGraphError
from idgraph.graphs import Cycle
from idgraph.graphs.cycles import e_tensor
from idgraph.index import IdModel
from idgraph.index.loop_tree import Leaf, LoopNest, Node, build_tree, reduction_positions
from idgraph.ir import (
    DomainExpr,
    Fusion,
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
from idgraph.viz.layout import folded
from idgraph.viz.picture import WHITE, Line, Picture, PictureEdge, PictureNode, Swatch, clip

# The effect of an operation on coordinates, as fill and border; a box without an effect is white.
KINDS = {
    "input": ("#dcebf9", "#3b78b5"),
    "pointwise": (WHITE, "#7a8496"),
    "resize": ("#fdebcd", "#c0790f"),
    "reshape": ("#ebe2f7", "#7d55b0"),
    "reduction": ("#d9f1ee", "#2f8f86"),
    "gather": ("#fbe2ef", "#b54a8a"),
    "several": ("#eef0f4", "#7a8496"),
}
MEANING = {
    "input": "input",
    "pointwise": "element by element",
    "resize": "moves elements: slice, pad, cat, roll",
    "reshape": "reshape",
    "reduction": "reduction",
    "gather": "gather",
    "several": "several operations",
}


def fusion_picture(fusion: Fusion, *, title: str = "", collapse: bool = False) -> Picture:
    """Tensors and operations as a DAG; collapsed, operations with one consumer join it where both are elementwise."""
    blocks = _picture_blocks(fusion) if collapse else {t: t for t in fusion.tensors}
    members: dict[Tensor, list[Tensor]] = {}
    for t in fusion.tensors:
        members.setdefault(blocks[t], []).append(t)
    nodes = tuple(_node(fusion, last, ts, collapse) for last, ts in members.items())
    edges: dict[tuple[str, str], PictureEdge] = {}
    for e in fusion.exprs:
        for t in dict.fromkeys(e.inputs):
            for made in e.outputs:
                a, b = blocks[t], blocks[made]
                if a is not b:
                    title_ = f"{e.op} -> {made.name} reads {t.name}\n{where(e)}"
                    edges.setdefault((_node_key(a), _node_key(b)), PictureEdge(_node_key(a), _node_key(b), title_))
    kinds = [k for k in KINDS if any(_kind(ts) == k for ts in members.values())]
    legend = [Swatch(MEANING[k], *KINDS[k]) for k in kinds]
    legend.append(Swatch("output", WHITE, "#1f2430", thick=True))
    sizes = ((len(fusion.inputs), "input"), (len(fusion.exprs), "operation"), (len(fusion.outputs), "output"))
    count = ", ".join(counted(n, what) for n, what in sizes)
    caption = [f"{count}. Each box: a tensor, the operation that makes it, its axes with extents."]
    if collapse:
        caption = [f"{count}. Elementwise operations that only one other reads are drawn with it in one box."]
    shown = title or f"Fusion {fusion.name}"
    made = Picture(shown, nodes, tuple(edges.values()), (), tuple(caption), (), tuple(legend))
    return folded(made) if collapse else made


def _node_key(t: Tensor) -> str:
    return t.name


def _kind(members: list[Tensor]) -> str:
    return category(members[0]) if len(members) == 1 else "several"


def _picture_blocks(fusion: Fusion) -> dict[Tensor, Tensor]:
    """For each tensor the last one of its block. Joining a producer with its only consumer never closes a cycle."""
    block: dict[Tensor, Tensor] = {}
    kept = set(fusion.outputs)
    for t in reversed(fusion.tensors):
        uses = list(dict.fromkeys(u.output for u in t.uses))
        only = uses[0] if len(uses) == 1 and t.uses[0].outputs == (uses[0],) else None
        plain = category(t) == "pointwise" and t not in kept
        block[t] = block[only] if only is not None and plain and category(only) == "pointwise" else t
    return block


def _node(fusion: Fusion, t: Tensor, members: list[Tensor], collapsed: bool) -> PictureNode:
    fill, stroke = KINDS[_kind(members)]
    output = any(m in fusion.outputs for m in members)
    title = "\n".join(_title(m) for m in members[:40])
    lines: list[Line] = []
    if len(members) > 1:
        ops = [m.definition.op for m in members if m.definition is not None]
        lines = [Line(clip(f"{t.name}  {len(ops)} operations", LIMIT), "head"), Line(listed(ops, 5))]
        lines.append(Line(clip(axes_text(t.axes), LIMIT), "dim"))
    elif collapsed:
        name = t.name if t.definition is None else f"{t.name} = {t.definition.op}"
        lines = [Line(clip(name, LIMIT), "head"), Line(clip(axes_text(t.axes), LIMIT), "dim")]
    else:
        lines = _tensor_label(t)
    return PictureNode(_node_key(t), tuple(lines), "box", fill, "#1f2430" if output else stroke, title, thick=output)


def _tensor_label(t: Tensor) -> list[Line]:
    e = t.definition
    head = t.name if e is None else f"{clip(t.name, 24)} = {call_text(e)}"
    lines = [Line(clip(head, LIMIT), "head")]
    attrs = {k: v for k, v in e.attrs.items() if v is not None} if e is not None else {}
    if attrs:
        lines.append(Line(clip(", ".join(f"{k} {attribute(v)}" for k, v in attrs.items()), LIMIT), "dim"))
    lines.append(Line(clip(axes_text(t.logical), LIMIT)))
    if t.loop != t.logical:
        lines.append(Line(clip(f"loops {axes_text(t.loop)}", LIMIT), "dim"))
    note = t.dtype + (f", inlined at {t.inline_position}" if t.inline_position else "")
    lines.append(Line(note, "dim"))
    return lines


def _title(t: Tensor) -> str:
    made = f"{t.definition!r}" if t.definition is not None else f"{t.name} = input"
    return f"{made}\n{where(t)}"


_WORDS = {"vectorize": "vectorize", "unroll": "unroll"}


def loop_nest(what: object) -> str:
    """The loops of a fusion in the order in which they run; raises `ScheduleError` where no nest can do them.

    >>> import idgraph as ig
    >>> f = ig.Fusion("softmax")
    >>> x = f.input("x", shape=(4, 30))
    >>> t = ig.exp(x, name="t")
    >>> y = f.output(ig.div(t, ig.sum(t, 1, keepdim=True, name="s"), name="y"))
    >>> _ = ig.schedule.inline_most(f)
    >>> print(loop_nest(f))
    for i0 < 4:
      allocate t: 30 float32, private
      for i1 < 30:
        t = exp(x)
      for i1 < 30:
        for i2 < 1:
          s = sum(t) over i1
      for i1 < 30:
        y = div(t, s)
    """
    if not isinstance(what, Fusion):
        raise IdGraphError(f"a {type(what).__name__} has no loop nest", hint="fusion.show(loops=True)")
    return "\n".join(_Printer(what).lines()) or "# no operation"


class _Printer:
    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.model = IdModel(fusion)

    def lines(self) -> Iterator[str]:
        yield from self.arrays(self.fusion.exprs, 0, "")
        for node in build_tree(self.fusion.exprs, self.model):
            yield from self.node(node, "")

    def node(self, node: Node, pad: str) -> Iterator[str]:
        match node:
            case Leaf(e):
                yield pad + self.operation(e)
            case LoopNest(depth, var, extent, parallel, exprs, children):
                on = "" if parallel in ("serial", *_WORDS) else f" on {parallel}"
                yield f"{pad}{_WORDS.get(parallel, 'for')} {var} < {extent}{on}:"
                yield from self.arrays(exprs, depth + 1, pad + "  ")
                for child in children:
                    yield from self.node(child, pad + "  ")
            case _:
                assert_never(node)

    def operation(self, e: TensorExpr) -> str:
        args = ", ".join(a.name if isinstance(a, Tensor) else str(a) for a in e.args)
        over = [self.model.loops(e)[p].name for p in reduction_positions(e, self.model)]
        along = f" over {', '.join(over)}" if over else ""
        when = self.model.write(e).predicate
        return f"{e.output.name} = {e.op}({args}){along}" + ("" if str(when) == "True" else f"  if {when}")

    def arrays(self, exprs: Sequence[TensorExpr], depth: int, pad: str) -> Iterator[str]:
        """The arrays allocated inside the ``depth`` outermost loops."""
        outputs = set(self.fusion.outputs)
        for e in exprs:
            t = e.output
            if t in outputs or t.inline_position != depth:
                continue
            buffer = self.model.storage(t).buffer(write=True)
            if buffer.tensor is t and buffer.place not in ("register", "input", "output"):
                yield f"{pad}allocate {t.name}: {buffer.size} {t.dtype}, {buffer.place}"


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
    """A number with its noun."""
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
