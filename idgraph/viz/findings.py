"""Pictures of one finding alone: a cycle as a loop with the coordinate at every stop, an explanation as a chain."""

from __future__ import annotations

from typing import Any

from idgraph.graphs import Cycle, Explanation, key_text
from idgraph.graphs.cycles import e_tensor
from idgraph.graphs.numbering import axis_of
from idgraph.ir import tensor_of
from idgraph.viz.captions import LIMIT, around, call_text, cycle_head, cycle_lines, step_owner, step_text
from idgraph.viz.labels import clip, wrapped
from idgraph.viz.picture import LINE, PALE_RED, RED, WHITE, Line, Picture, PictureEdge, PictureNode, Swatch, colours


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
    shown = title or f"A {cycle.kind} cycle of the {cycle.graph} graph"
    return Picture(shown, tuple(nodes), tuple(edges), (), tuple(caption), alarm, ring=True)


def explanation_picture(explanation: Explanation, *, title: str = "") -> Picture:
    """The chain of facts from one key to the other, or the place where they part."""
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
