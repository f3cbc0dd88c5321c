"""Pictures of graphs whose keys are axes: by group (a cycle is a cycle), by tensor, or one box for each tensor.

Pictures of a single finding: a cycle as a loop with the coordinate at every stop, an explanation as a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from idgraph.graphs import Cycle, DomainGraph, Explanation, ExprGroup, Group, key_text, own_domains, own_exprs
from idgraph.graphs.cycles import e_tensor
from idgraph.graphs.signature import axis_of
from idgraph.ir import DomainExpr, Fixed, IterDomain, Mapped, Tensor, tensor_of
from idgraph.viz.fusion_picture import (
    LIMIT,
    around,
    call_text,
    counted,
    cycle_head,
    cycle_lines,
    listed,
    step_owner,
    step_text,
    step_title,
    where,
)
from idgraph.viz.layout import folded
from idgraph.viz.picture import (
    LINE,
    PALE_RED,
    PALETTE,
    PLAIN,
    RED,
    WHITE,
    Cluster,
    Line,
    Picture,
    PictureEdge,
    PictureNode,
    Swatch,
    clip,
    colours,
    wrapped,
)

ROWS = 6
Highlight = Cycle[Any] | Explanation | None


@dataclass(slots=True)
class Marks:
    """The parts drawn in red, and the text of the red caption."""

    groups: set[int] = field(default_factory=set[int])
    exprs: set[DomainExpr] = field(default_factory=set[DomainExpr])
    steps: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # (group, expression group) on the way
    made: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # (expression group, group)
    pairs: dict[frozenset[IterDomain], str] = field(default_factory=dict[frozenset[IterDomain], str])  # with the reason
    axes: set[IterDomain] = field(default_factory=set[IterDomain])
    alarm: tuple[str, ...] = ()


def marks_of(
    highlight: Highlight, groups_of: dict[DomainExpr, ExprGroup[Any]], cycles: Sequence[Cycle[Any]] = ()
) -> Marks:
    """Marks for a cycle (its groups and expressions) or an explanation (the mappings of its chain)."""
    match highlight:
        case None:
            return Marks()
        case Cycle():
            made = Marks(alarm=tuple(cycle_lines(highlight)))
            ring = highlight.groups
            for p, e in enumerate(highlight.exprs):
                x = groups_of.get(e)
                if x is None:
                    continue
                made.groups.add(ring[p].number)
                made.exprs.add(e)
                made.steps.add((ring[p].number, x.number))
                made.made.add((x.number, ring[(p + 1) % len(ring)].number))
            others = sum(c is not highlight and c.changes_index for c in cycles)
            if others:
                made.alarm += (f"not marked: {counted(others, 'more cycle')} of that sort",)
            return made
        case Explanation():
            head = "The same, because:" if highlight else "Not the same:"
            made = Marks(alarm=(head, *(f"  {line}" for line in str(highlight).splitlines())))
            for fact in highlight.facts:
                made.pairs[frozenset((axis_of(fact.left), axis_of(fact.right)))] = str(fact.reason)
                made.exprs.update(fact.reason.steps)
            return made


def domain_picture(
    graph: DomainGraph, highlight: Highlight, *, by: str = "group", title: str = "", collapse: bool = False
) -> Picture:
    """A graph of axes. ``by`` "group": groups as boxes; "tensor": axes in the frames of their tensors."""
    groups_of = {e: x for x in graph.expr_groups for e in x.exprs}
    marks = marks_of(highlight, groups_of, graph.cycles())
    shown = title or f"{graph.name.replace('_', ' ').capitalize()} graph of {graph.fusion.name}"
    if by == "group":
        return _by_group(graph, marks, shown, collapse)
    if isinstance(highlight, Cycle):
        _mark_chains(graph, highlight, marks)
    return _collapsed(graph, marks, shown) if collapse else _by_tensor(graph, marks, shown)


def _mark_chains(graph: DomainGraph, cycle: Cycle[Any], marks: Marks) -> None:
    """Between tensors a cycle runs along mappings: those from what one expression makes to what the next one reads."""
    for p, e in enumerate(cycle.exprs):
        group = cycle.groups[p]
        made = [d for d in cycle.exprs[p - 1].outputs if d in group]
        read = [d for d in e.inputs if d in group]
        if made and read:
            marks.axes.update((made[0], read[0]))
            for fact in graph.explain(made[0], read[0]).facts:
                marks.pairs[frozenset((axis_of(fact.left), axis_of(fact.right)))] = str(fact.reason)


# by group -------------------------------------------------------------------------------------------------------------


def group_key(g: Group[Any]) -> str:
    """The stable name of a group in a picture: its first axis."""
    return f"group {axis_of(g.keys[0]).label}"


def step_key(x: ExprGroup[Any]) -> str:
    """The stable name of an expression group in a picture: what its first expression reads and makes."""
    reads, makes = (" ".join(d.label for d in axes) for axes in (x.expr.inputs, x.expr.outputs))
    return f"step {reads} -> {makes}"


def palette_of(graph: DomainGraph) -> dict[int, tuple[str, str]]:
    """Colours of the groups by number: one for each group of several axes, in order; the grey one for the others."""
    several = [g.number for g in graph.groups if len(g) > 1]
    return {g.number: PLAIN for g in graph.groups} | {number: colours(p) for p, number in enumerate(several)}


def _by_group(graph: DomainGraph, marks: Marks, title: str, collapse: bool) -> Picture:
    linked = {g.number for x in graph.expr_groups for g in (*x.inputs, *x.outputs)}
    alone = [g for g in graph.groups if g.number not in linked]
    hidden = alone if collapse and len(alone) > 8 else []
    shown = [g for g in graph.groups if g not in hidden] if hidden else list(graph.groups)
    palette = palette_of(graph)
    nodes = [_group_node(g, palette[g.number], marks, collapse) for g in shown]
    if hidden:
        extents = dict.fromkeys(str(axis_of(g.keys[0]).extent) for g in hidden)
        text = f"{len(hidden)} groups that no expression touches"
        lines = (Line(text, "dim"), Line(f"extents {listed(list(extents), 6)}", "dim"))
        nodes.append(PictureNode("other groups", lines, fill=PLAIN[0], stroke=PLAIN[1], dashed=True))
    edges: list[PictureEdge] = []
    for x in graph.expr_groups:
        nodes.append(step_node(x.exprs, step_key(x), bool(marks.exprs.intersection(x.exprs))))
        edges += [
            PictureEdge(group_key(g), step_key(x), marked=(g.number, x.number) in marks.steps)
            for g in dict.fromkeys(x.inputs)
        ]
        edges += [
            PictureEdge(step_key(x), group_key(g), marked=(x.number, g.number) in marks.made)
            for g in dict.fromkeys(x.outputs)
        ]
    caption = ("Each coloured box: axes that are the same. Rounded: what makes one axis of another.",)
    made = Picture(title, tuple(nodes), tuple(edges), (), caption, marks.alarm, _legend(nodes, marks))
    return folded(made) if collapse else made


def _group_node(g: Group[Any], colour: tuple[str, str], marks: Marks, collapse: bool) -> PictureNode:
    fill, stroke = colour
    axes = [axis_of(k) for k in g]
    head = f"[{axes[0].extent}]  {len(axes)} axes" if len(axes) > 1 else f"[{axes[0].extent}]"
    if collapse:
        head = f"{clip(axes[0].label, 20)}  {head}"
        names = list(dict.fromkeys(d.tensor.name for d in axes if d.tensor is not None))
        rows = wrapped(listed(names, 8), 34)
    else:
        rows = wrapped(" ".join(clip(d.label, 30) for d in axes), 34)
    lines = [Line(clip(head, LIMIT), "head"), *map(Line, rows[:ROWS])]
    if len(rows) > ROWS:
        lines.append(Line(f"... {len(rows) - ROWS} more lines", "dim"))
    tooltip = "\n".join(_axis_title(d) for d in axes[:40]) + ("\n..." if len(axes) > 40 else "")
    return PictureNode(
        group_key(g), tuple(lines), "box", fill, stroke, tooltip, "", g.number in marks.groups, name=axes[0].label
    )


def step_node(exprs: Sequence[DomainExpr], key: str, marked: bool, cluster: str = "") -> PictureNode:
    """A rounded box for equal expressions; dashed where only the schedule made them."""
    tensors = [tensor_of(e.outputs[0]) for e in exprs]
    scheduled = all(t is None or not any(e is y for y in t.domain.exprs) for e, t in zip(exprs, tensors, strict=True))
    lines = (Line(clip(step_text(exprs[0]), LIMIT)), Line(step_owner(exprs), "dim"))
    fill = PALE_RED if marked else WHITE
    name = f"{step_text(exprs[0])}, {step_owner(exprs)}"
    return PictureNode(key, lines, "pill", fill, LINE, step_title(exprs), cluster, marked, dashed=scheduled, name=name)


def _axis_title(d: IterDomain) -> str:
    t = tensor_of(d)
    if t is None:
        return f"{d!r} ({d.kind})"
    roles = [r for r, axes in (("root", t.root), ("logical", t.logical), ("loop", t.loop)) if d in axes]
    return f"{d.label}[{d.extent}] {d.kind}, {' '.join(roles) or 'in between'}; {where(t)}"


def _legend(nodes: Sequence[PictureNode], marks: Marks) -> tuple[Swatch, ...]:
    """The legend of the boxes that are in this picture."""
    pills = [n for n in nodes if n.shape == "pill"]
    fills = {n.fill for n in nodes} | {fill for n in nodes for line in n.lines for fill, _ in line.chips}
    entries = (
        (fills & {fill for fill, _ in PALETTE}, Swatch("axes that are the same", *colours(0))),
        (PLAIN[0] in fills, Swatch("axis on its own", *PLAIN)),
        (any(not n.dashed for n in pills), Swatch("axis expression of an operation", WHITE, LINE, "pill")),
        (any(n.dashed for n in pills), Swatch("of the schedule", WHITE, LINE, "pill", dashed=True)),
        (marks.exprs or marks.pairs, Swatch("marked", PALE_RED, RED, thick=True)),
    )
    return tuple(swatch for wanted, swatch in entries if wanted)


# by tensor ------------------------------------------------------------------------------------------------------------


def axis_key(d: IterDomain) -> str:
    """The stable name of an axis in a picture."""
    return f"axis {d.label}"


def _by_tensor(graph: DomainGraph, marks: Marks, title: str) -> Picture:
    palette = palette_of(graph)
    of = {d: graph.group(d).number for t in graph.fusion.tensors for d in own_domains(t)}
    nodes: list[PictureNode] = []
    edges: list[PictureEdge] = []
    clusters: list[Cluster] = []
    groups_of = {e: x for x in graph.expr_groups for e in x.exprs}
    paired = {d for p in marks.pairs for d in p}
    for t in graph.fusion.tensors:
        key = f"tensor {t.name}"
        clusters.append(Cluster(key, (Line(_tensor_head(t), "head"),), where(t)))
        for d in own_domains(t):
            fill, stroke = palette[of[d]]
            marked = d in marks.axes or d in paired
            nodes.append(
                PictureNode(axis_key(d), (Line(repr(d)),), "box", fill, stroke, _axis_title(d), key, marked=marked)
            )
        for n, e in enumerate(own_exprs(t)):
            name = f"step {t.name} {n}"
            marked = e in marks.exprs
            scheduled = not any(e is x for x in t.domain.exprs)
            nodes.append(
                PictureNode(
                    name, (Line(clip(step_text(e), LIMIT)),), "pill", PALE_RED if marked else WHITE, LINE,
                    f"{e}  {e_tensor(e)}", key, marked=marked, dashed=scheduled,
                )
            )  # fmt: skip
            number = groups_of[e].number
            edges += [
                PictureEdge(axis_key(d), name, marked=(of[d], number) in marks.steps and marked) for d in e.inputs
            ]
            edges += [
                PictureEdge(name, axis_key(d), marked=(number, of[d]) in marks.made and marked) for d in e.outputs
            ]
    edges += _mappings(graph, of, palette, marks)
    caption = ("A frame for each tensor, axes of one colour are the same; dashed lines join them across operations.",)
    return Picture(title, tuple(nodes), tuple(edges), tuple(clusters), caption, marks.alarm, _legend(nodes, marks))


def _tensor_head(t: Tensor) -> str:
    name = clip(t.name, 24)
    return clip(f"{name} = {call_text(t.definition)}" if t.definition is not None else f"{name} = input", LIMIT)


def _mappings(
    graph: DomainGraph, of: dict[IterDomain, int], colour: dict[int, tuple[str, str]], marks: Marks
) -> list[PictureEdge]:
    """A link from each operand's axis to the axis of the output it is one group with; facts of a chain too."""
    found: dict[frozenset[IterDomain], PictureEdge] = {}
    for e in graph.fusion.exprs:
        for t, row in zip(e.inputs, e.reads, strict=True):
            for d, read in zip(t.axes, row, strict=True):
                met = read.domain if isinstance(read, Mapped) else read.resolves if isinstance(read, Fixed) else None
                if met is not None and of[met] == of[d]:
                    found.setdefault(frozenset((d, met)), _link(d, met, colour[of[d]], marks, f"{e!r}\n{where(e)}"))
    order = {d: p for p, d in enumerate(of)}
    for pair, reason in marks.pairs.items():
        if pair not in found and len(pair) == 2 and all(d in order for d in pair):
            a, b = sorted(pair, key=order.__getitem__)
            found[pair] = _link(a, b, colour[of[a]], marks, reason)
    return list(found.values())


def _link(a: IterDomain, b: IterDomain, colour: tuple[str, str], marks: Marks, title: str) -> PictureEdge:
    marked = frozenset((a, b)) in marks.pairs
    return PictureEdge(axis_key(a), axis_key(b), title, colour[1], marked, dashed=True, link=True)


# one box for each tensor ----------------------------------------------------------------------------------------------


def _collapsed(graph: DomainGraph, marks: Marks, title: str) -> Picture:
    palette = palette_of(graph)
    of = {d: graph.group(d).number for t in graph.fusion.tensors for d in own_domains(t)}
    marked = {e.outputs[0].tensor for e in marks.exprs} | {d.tensor for p in marks.pairs for d in p}
    nodes: list[PictureNode] = []
    for t in graph.fusion.tensors:
        chips = tuple(palette[of[d]] for d in t.logical)
        name = clip(t.name if t.definition is None else f"{t.name} = {t.definition.op}", 26)
        tooltip = "\n".join([where(t), *(f"{d!r} is {group_key(graph.group(d))}" for d in t.logical)])
        hot = t in marked
        fill = PALE_RED if hot else WHITE
        lines = (Line(" " + name, "plain", chips),)
        nodes.append(PictureNode(f"tensor {t.name}", lines, "box", fill, LINE, tooltip, marked=hot, name=t.name))
    edges: dict[tuple[Tensor, Tensor], PictureEdge] = {}
    for e in graph.fusion.exprs:
        for t in e.inputs:
            hot = t in marked and e.output in marked
            edge = PictureEdge(f"tensor {t.name}", f"tensor {e.output.name}", f"{e!r}\n{where(e)}", marked=hot)
            edges.setdefault((t, e.output), edge)
    caption = ("A box for each tensor; a square for each axis, of one colour where axes are the same.",)
    legend = _legend(nodes, marks)
    return folded(Picture(title, tuple(nodes), tuple(edges.values()), (), caption, marks.alarm, legend))


def cycle_picture(cycle: Cycle[Any], *, title: str = "") -> Picture:
    """Groups and expressions of a cycle once around; each group shows the coordinate that the steps before it give."""
    texts = around(cycle)
    nodes: list[PictureNode] = []
    for p, (g, e) in enumerate(zip(cycle.groups, cycle.exprs, strict=True)):
        fill, stroke = colours(p)
        head = f"coordinate {texts[p]}"
        rows = wrapped(" ".join(clip(key_text(k), 40) for k in g), 40)
        lines = [Line(clip(head, LIMIT), "head"), *map(Line, rows[:4])]
        if len(rows) > 4:
            lines.append(Line(f"... {len(rows) - 4} more lines", "dim"))
        if p == 0 and cycle.changes_index:
            lines.append(Line(clip(f"after one round: {texts[-1]}", LIMIT), "head"))
        tooltip = "\n".join(f"{axis_of(k).label}[{axis_of(k).extent}]" for k in list(g)[:40])
        nodes.append(PictureNode(f"group {p}", tuple(lines), "box", fill, stroke, tooltip))
        t = tensor_of(e.outputs[0])
        line = t.source_line if t is not None and any(x is e for x in t.domain.exprs) else e.line
        code = line.code if line is not None else ""
        says = [Line(step_text(e), "head"), Line(step_owner([e]), "dim")]
        if code:
            says.append(Line(clip(code, LIMIT)))
        tooltip = f"{e}  {e_tensor(e)}"
        nodes.append(
            PictureNode(f"step {p}", tuple(says), "pill", PALE_RED if cycle.changes_index else WHITE, LINE, tooltip)
        )
    ring = [n.key for n in nodes]
    edges = [PictureEdge(a, b, marked=cycle.changes_index) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
    caption: list[str] = []
    if cycle.closing is not None:
        made = f"{cycle.closing.output.name} = {call_text(cycle.closing)}"
        caption.append(f"The cycle is there because {made} maps the two ends onto each other.")
    alarm = tuple(cycle_lines(cycle)) if cycle.changes_index else ()
    caption += [] if alarm else [cycle_head(cycle)]
    article = "An" if cycle.kind in ("identity", "empty") else "A"
    shown = title or f"{article} {cycle.kind} cycle of the {cycle.graph} graph"
    return Picture(shown, tuple(nodes), tuple(edges), (), tuple(caption), alarm, ring=True)


def explanation_picture(explanation: Explanation, *, title: str = "") -> Picture:
    """The chain of facts from one key to the other, or the point where they part."""
    if not explanation:
        rows = wrapped(explanation.parting, 70)
        node = PictureNode("parting", tuple(map(Line, rows)), fill=PALE_RED, stroke=RED)
        return Picture(title or "Why they are not the same", (node,), ())
    nodes: list[PictureNode] = []
    edges: list[PictureEdge] = []
    fill, stroke = colours(0)
    for p, fact in enumerate(explanation.facts):
        if p == 0:
            nodes.append(PictureNode("key 0", (Line(clip(key_text(fact.left), 60), "head"),), "box", fill, stroke))
        rows = wrapped(str(fact.reason), 70)
        nodes.append(PictureNode(f"fact {p}", tuple(map(Line, rows)), "pill", WHITE, LINE, str(fact.reason)))
        nodes.append(PictureNode(f"key {p + 1}", (Line(clip(key_text(fact.right), 60), "head"),), "box", fill, stroke))
        edges += [PictureEdge(f"key {p}", f"fact {p}", link=True), PictureEdge(f"fact {p}", f"key {p + 1}", link=True)]
    if not nodes:
        nodes.append(PictureNode("key 0", (Line("the same axis", "head"),), "box", fill, stroke))
    legend = (Swatch("these are the same", fill, stroke), Swatch("because", WHITE, LINE, "pill"))
    return Picture(title or "Why they are the same", tuple(nodes), tuple(edges), legend=legend)
