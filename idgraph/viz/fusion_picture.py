"""Pictures of a fusion: a box for each tensor with the operation that makes it, its axes, loops and inlining.

The loop nest of a scheduled fusion as text, as Halide prints one: a line for each loop, array and operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from idgraph.errors import IdGraphError
from idgraph.index import IdModel
from idgraph.index.loop_tree import Leaf, LoopNest, Node, build_tree, reduction_positions
from idgraph.ir import Fusion, Tensor, TensorExpr
from idgraph.viz.captions import LIMIT, attribute, axes_text, call_text, category, counted, listed, where
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
    >>> ig.schedule.inline_most(f)
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
