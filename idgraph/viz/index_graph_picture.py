"""Pictures of the index graph: a frame for each operation, in it its coordinates; shared loops run across frames."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from idgraph.errors import ScheduleError
from idgraph.graphs import ExprGroup, Group, IndexGraph, key_of, key_text, own_domains
from idgraph.graphs.index_graph import Key
from idgraph.index import IdModel
from idgraph.ir import DomainExpr, TensorExpr
from idgraph.viz.domain_graph_picture import Highlight, Marks, marks_of, step_node
from idgraph.viz.fusion_picture import LIMIT, call_text, where
from idgraph.viz.layout import folded
from idgraph.viz.picture import (
    LINE,
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


@dataclass(slots=True)
class _GroupUses:
    """The keys of one group that one operation uses, and what is known of them."""

    group: Group[Key]
    expr: TensorExpr
    keys: list[Key] = field(default_factory=list[Key])
    loop: int | None = None
    coordinate: str = ""


def index_picture(
    graph: IndexGraph,
    highlight: Highlight,
    *,
    title: str = "",
    collapse: bool = False,
    only: Collection[TensorExpr] | None = None,
    model: IdModel | None = None,
) -> Picture:
    """An index graph; ``collapse`` draws one box for each operation, ``only`` leaves the other operations out.

    ``model`` is the one whose graph it is, to ask for coordinates; without it one is made.
    """
    shown = title or f"Index graph of {graph.fusion.name}"
    groups_of = {e: x for x in graph.expr_groups for e in x.exprs}
    marks = marks_of(highlight, groups_of, graph.cycles())
    if model is None and not collapse:
        model = _same_model(graph)
    if model is not None:
        graph = model.index
        groups_of = {e: x for x in graph.expr_groups for e in x.exprs}
    drawn = [e for e in graph.fusion.exprs if only is None or e in only]
    parts = {e: _groups_of_operation(graph, e) for e in drawn}
    spanning = _spanning(parts)
    if collapse:
        return _collapsed(graph, parts, spanning, marks, shown)
    if model is not None:
        _coordinates(model, parts)
    nodes: list[PictureNode] = []
    edges: list[PictureEdge] = []
    clusters: list[Cluster] = []
    titles: dict[int, str] = {}  # of groups: most have a box in many operations
    for e in drawn:
        cluster = f"operation {e.output.name}"
        head = f"{clip(e.output.name, 24)} = {call_text(e)}"
        code = e.source_line.code if e.source_line is not None else ""
        lines = [Line(clip(head, LIMIT), "head")] + ([Line(clip(code, LIMIT), "dim")] if code else [])
        clusters.append(Cluster(cluster, tuple(lines), f"{e!r}\n{where(e)}"))
        for p in parts[e].values():
            number = p.group.number
            if number not in titles:
                titles[number] = "\n".join(map(key_text, p.group.keys[:30]))
            nodes.append(_group_node(p, cluster, spanning, marks, titles[number]))
        nodes_of_steps, edges_of_steps = _domain_exprs(graph, e, parts[e], groups_of, marks)
        nodes += nodes_of_steps
        edges += edges_of_steps
    edges += _links(graph, parts, spanning)
    caption = (
        "A frame for each operation, a box for each coordinate in it, written in the operation's loop variables; under "
        "it the axes that have it.",
        "Boxes of one colour are one coordinate; dashed lines join the loops that operations share.",
    )
    dashed = any(n.dashed for n in nodes)
    entries = (
        (spanning, Swatch("shared by operations", *colours(0))),
        (True, Swatch("of one operation only", *PLAIN)),
        (spanning, Swatch("shared loop", WHITE, colours(0)[1], "line", thick=True, dashed=True)),
        (any(n.shape == "pill" for n in nodes), Swatch("axis expression", WHITE, LINE, "pill")),
        (dashed, Swatch("of the schedule", WHITE, LINE, "pill", dashed=True)),
        (marks.alarm, Swatch("marked", WHITE, RED, thick=True)),
    )
    legend = tuple(swatch for wanted, swatch in entries if wanted)
    return Picture(shown, tuple(nodes), tuple(edges), tuple(clusters), caption, marks.alarm, legend)


def _groups_of_operation(graph: IndexGraph, e: TensorExpr) -> dict[int, _GroupUses]:
    """Groups that an operation uses: all axes of its output; of operands the logical ones and loops it shares."""
    own = key_of(e, None)
    keys: list[Key] = [own(d) for d in own_domains(e.output)]
    for k, t in enumerate(e.inputs):
        axes = [*t.logical, *t.allocation]
        if graph.nests.shared(t):
            axes += [*t.loop, *(d for step in t.domain.loop_exprs for d in (*step.inputs, *step.outputs))]
        keys += map(key_of(e, k), dict.fromkeys(axes))
    replayed = {d for t in (e.output, *e.inputs) for x in graph.nests.shadows[t].exprs for d in (*x.inputs, *x.outputs)}
    keys += [key for _, ins, outs, _ in graph.local[e] for key in (*ins, *outs) if key[0] in replayed]
    found: dict[int, _GroupUses] = {}
    for key in dict.fromkeys(keys):
        g = graph.graph.lookup(key)
        found.setdefault(g.number, _GroupUses(g, e)).keys.append(key)
    for j, d in enumerate(graph.nests.shadows[e.output].loop):
        found[graph.graph.lookup(own(d)).number].loop = j
    return found


def _spanning(parts: dict[TensorExpr, dict[int, _GroupUses]]) -> dict[int, int]:
    """Groups that several operations use, each with the number of its colour."""
    seen: dict[int, int] = {}
    for mine in parts.values():
        for number in mine:
            seen[number] = seen.get(number, 0) + 1
    return {number: p for p, number in enumerate(n for n, times in seen.items() if times > 1)}


def _same_model(graph: IndexGraph) -> IdModel | None:
    """A model with an equal index graph, to ask for coordinates; None where the fusion was scheduled anew since."""
    model = IdModel(graph.fusion)
    try:
        return model if str(model.index) == str(graph) else None
    except ScheduleError:
        return None


def _coordinates(model: IdModel, parts: dict[TensorExpr, dict[int, _GroupUses]]) -> None:
    """Write each box's coordinate, where the loops reach it."""
    for e, mine in parts.items():
        solver = model.solver(e)
        for part in mine.values():
            key = next(filter(solver.known, part.keys), None)
            if key is not None:
                part.coordinate = str(solver.coordinate(key))


def _group_node(part: _GroupUses, cluster: str, spanning: dict[int, int], marks: Marks, title: str) -> PictureNode:
    number = part.group.number
    fill, stroke = colours(spanning[number]) if number in spanning else PLAIN
    head = part.coordinate
    if part.loop is not None:
        head = f"loop i{part.loop}" + (f" = {head}" if head not in ("", f"i{part.loop}") else "")
    rows = wrapped(" ".join(f"{clip(k[0].label, 26)}[{k[0].extent}]" for k in part.keys), 34)
    lines = ([Line(clip(head, LIMIT), "head")] if head else []) + [Line(r) for r in rows[:4]]
    if len(rows) > 4:
        lines.append(Line(f"... {len(rows) - 4} more lines", "dim"))
    hot = number in marks.groups or any(k[0] in pair for pair in marks.pairs for k in part.keys)
    return PictureNode(_key(part), tuple(lines), "box", fill, stroke, title, cluster, marked=hot)


def _key(part: _GroupUses) -> str:
    axis, _, *operand = part.keys[0]
    return f"group {axis.label} in {part.expr.output.name}" + (f", operand {operand[0]}" if operand else "")


def _domain_exprs(
    graph: IndexGraph,
    e: TensorExpr,
    mine: dict[int, _GroupUses],
    groups_of: Mapping[DomainExpr, ExprGroup[Key]],
    marks: Marks,
) -> tuple[list[PictureNode], list[PictureEdge]]:
    """Axis expressions of one operation between boxes that are drawn, equal ones once."""
    nodes: list[PictureNode] = []
    edges: list[PictureEdge] = []
    equal: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[DomainExpr]] = {}
    for x, ins, outs, _ in graph.local[e]:
        a, b = (tuple(dict.fromkeys(graph.graph.lookup(k).number for k in keys)) for keys in (ins, outs))
        if all(n in mine for n in (*a, *b)):
            equal.setdefault((groups_of[x].number, a, b), []).append(x)
    for p, ((number, a, b), exprs) in enumerate(equal.items()):
        key = f"step {p} in {e.output.name}"
        nodes.append(step_node(exprs, key, any(x in marks.exprs for x in exprs), f"operation {e.output.name}"))
        edges += [PictureEdge(_key(mine[n]), key, marked=(n, number) in marks.steps) for n in a]
        edges += [PictureEdge(key, _key(mine[n]), marked=(number, n) in marks.made) for n in b]
    return nodes, edges


def _links(
    graph: IndexGraph, parts: dict[TensorExpr, dict[int, _GroupUses]], spanning: dict[int, int]
) -> Iterator[PictureEdge]:
    """From each producer to its consumers: the loops they share, or a pale arrow where they share none."""
    for e in parts:
        for t in dict.fromkeys(e.inputs):
            made = t.definition
            if made is None or made not in parts:
                continue
            shared = [n for n in parts[e] if n in parts[made]]
            # A consequence of a shared loop has its colour only: a line for each would hide the loops.
            loops = [n for n in shared if parts[e][n].loop is not None and parts[made][n].loop is not None]
            for n in loops or shared:
                a, b = parts[made][n], parts[e][n]
                why = graph.explain(a.keys[0], b.keys[0])
                yield PictureEdge(_key(a), _key(b), str(why), colours(spanning[n])[1], dashed=True, link=True)
            if not shared:
                title = f"{e.output.name} reads {t.name}; they share no loop"
                yield PictureEdge(f"operation {made.output.name}", f"operation {e.output.name}", title, "#c3cad6")


def _collapsed(
    graph: IndexGraph,
    parts: dict[TensorExpr, dict[int, _GroupUses]],
    spanning: dict[int, int],
    marks: Marks,
    title: str,
) -> Picture:
    nodes: list[PictureNode] = []
    edges: dict[tuple[str, str], PictureEdge] = {}
    for e in graph.fusion.exprs:
        loops = [graph.group(d, e).number for d in graph.nests.shadows[e.output].loop]
        chips = tuple(colours(spanning[n]) if n in spanning else PLAIN for n in loops)
        hot = any(n in marks.groups for n in parts[e])
        name = clip(f" {e.output.name} = {e.op}", 28)
        key = f"operation {e.output.name}"
        lines = (Line(name, "plain", chips),)
        nodes.append(PictureNode(key, lines, title=f"{e!r}\n{where(e)}", marked=hot, name=e.output.name))
        for t in e.inputs:
            if t.definition is None:
                continue
            tail = f"operation {t.definition.output.name}"
            k = graph.nests.shared(t)
            colour = colours(spanning[loops[0]])[1] if k and loops[0] in spanning else LINE
            what = f"{e.output.name} reads {t.name}: {k} shared loop{'' if k == 1 else 's'}"
            edges.setdefault((tail, key), PictureEdge(tail, key, what, colour))
    caption = ("A box for each operation, a square for each of its loops, of one colour where operations share it.",)
    legend = (Swatch("shared by operations", *colours(0)), Swatch("of one operation only", *PLAIN))
    return folded(Picture(title, tuple(nodes), tuple(edges.values()), (), caption, marks.alarm, legend))
