"""The explorer's data: views of boxes and arrows, operations with their accesses, kernel lines, schedule steps, passes.

Plain lists, mappings, numbers and text, so that it travels as JSON to a page or a notebook widget.
"""

from __future__ import annotations

import json
import linecache
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from idgraph.errors import IdGraphError, SourceLine, display_file, visible
from idgraph.graphs.union_find import EquivalenceClasses
from idgraph.index import IdModel
from idgraph.ir import Fusion, Tensor, TensorExpr, parse_fusion
from idgraph.ir.parser import replay_step
from idgraph.ir.printer import value_text
from idgraph.kernel.ir import Kernel, KernelModule, Load, Local, Operand, Store, VectorLoad, VectorStore, walk
from idgraph.reports.model import AccessFacts, OperationFacts, SegmentFacts
from idgraph.reports.to_text import bytes_text
from idgraph.runtime import Program
from idgraph.runtime.program import stages
from idgraph.viz.draw import picture
from idgraph.viz.fusion_picture import LIMIT, axes_text, category
from idgraph.viz.index_graph_picture import index_picture
from idgraph.viz.picture import PLAIN, Line, Picture, PictureNode, clean, clip

LONGEST = 64  # nests of one period
AROUND = 3  # lines of the program above and below one that makes an operation
FEWEST = 6  # operations of a repetition: fewer are easier to read as they are


@dataclass(slots=True)
class Fold:
    """A branch: ``exprs`` of one nest, or ``parts`` of a repetition. ``title`` is its first line."""

    title: str
    exprs: list[TensorExpr] = field(default_factory=list[TensorExpr])
    parts: list[Fold] = field(default_factory=list["Fold"])
    note: str = ""


def folds_of(fusion: Fusion) -> list[Fold]:
    """The nests in the order of the program; a run of nests that repeats is one branch with the rounds in it."""
    nests = _nests(fusion)
    keys = [tuple((e.op, e.output.dtype, tuple(str(d.extent) for d in e.output.logical)) for e in n) for n in nests]
    out: list[Fold] = []
    at = 0
    while at < len(nests):
        period, times = _period(keys, at)
        if sum(map(len, nests[at : at + period * times])) < FEWEST:
            period, times = 1, 1
        if times > 1:
            rounds = [nests[at + r * period : at + (r + 1) * period] for r in range(times)]
            parts = [_round(n, part) for n, part in enumerate(rounds)]
            names = [e.op for part in rounds[0] for e in part]
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            out.append(Fold(f"{times} x ({shown})", parts=parts, note="rounds with the same operations and extents"))
        else:
            out.append(_nest(nests[at]))
        at += period * times
    return out


def _round(number: int, nests: Sequence[list[TensorExpr]]) -> Fold:
    if len(nests) == 1:
        return _nest(nests[0])
    return Fold(f"round {number}", parts=[_nest(n) for n in nests])


def _nest(exprs: list[TensorExpr]) -> Fold:
    last = exprs[-1].output
    names = [e.op for e in exprs]
    shown = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return Fold(f"nest of {last.name}", exprs, note=shown)


def _period(keys: Sequence[Hashable], at: int) -> tuple[int, int]:
    """The period of the longest repetition that starts at ``at``, and how often it comes; (1, 1) for none."""
    best, covered = (1, 1), 1
    for p in range(1, min(LONGEST, (len(keys) - at) // 2) + 1):
        times = 1
        while keys[at + times * p : at + (times + 1) * p] == keys[at : at + p]:
            times += 1
        if times > 1 and times * p > covered:
            best, covered = (p, times), times * p
    return best


def _nests(fusion: Fusion) -> list[list[TensorExpr]]:
    """Operations that share loops, in the order of the program; without a schedule, pointwise chains."""
    nests = EquivalenceClasses[Tensor]()
    inlined = any(t.inline_position for t in fusion.tensors)
    kept = set(fusion.outputs)
    for t in fusion.tensors:
        uses = list(dict.fromkeys(u.output for u in t.uses))
        if inlined:
            joined = uses if t.inline_position else []
        else:
            plain = category(t) == "pointwise" and t not in kept and len(uses) == 1
            joined = [u for u in uses if plain and category(u) == "pointwise"]
        for u in joined:
            nests.union(t, u)
    found: dict[Tensor, list[TensorExpr]] = {}
    for e in fusion.exprs:
        found.setdefault(nests.find(e.output), []).append(e)
    return list(found.values())


Data = dict[str, Any]
_NAMES = re.compile(r"\b(?:t|buf)\d+\b")
_OPERATION = re.compile(r"""\s*(?:#|//) ("(?:[^"\\]|\\.)*") (?:=|starts as) """)  # the comment above its statements
MOST_MARKED = 300  # operations of a fusion whose index graph is searched for cycles


def explorer_data(
    fusion: Fusion,
    facts: SegmentFacts,
    program: Program | None = None,
    model: IdModel | None = None,
    passes: Iterable[tuple[str, KernelModule]] | None = None,
) -> Data:
    """All that the explorer shows of one fusion; ``facts`` are its segment in a report, ``program`` its kernels.

    ``model`` are its graphs and index maps and ``passes`` what `idgraph.runtime.program.stages` gives, if known.

    >>> import idgraph as ig
    >>> f = ig.Fusion("half")
    >>> y = f.output(f.input("x", (8,))[4:] * 2.0)
    >>> data = explorer_data(f, ig.report(f).segments[0], ig.emit(f))
    >>> len(data["views"]), [o["name"] for o in data["ops"]], len(data["kernels"])
    (7, ['t1', 't2'], 2)
    >>> print(*(v["title"] for v in data["views"]), sep=", ")
    operations, index graph, exact graph, almost exact graph, loop graph, aligned graph, extents graph
    >>> dict(data["summary"])["widths"]
    '4 elements: 4 accesses'
    """
    lines = sorted({e.line for e in facts.operations if e.line is not None}, key=lambda x: (x.file, x.line))
    at = {line: n for n, line in enumerate(lines)}
    model = IdModel(fusion) if model is None else model
    kernels = [] if program is None else _kernels(program)
    if passes is None:
        passes = [] if program is None else stages(fusion, program.target, model=model)
    _mark_folded(fusion, kernels)
    served: dict[str, list[list[int]]] = {}
    for k, kernel in enumerate(kernels):
        for n, names in enumerate(kernel["ops"]):
            for name in names:
                served.setdefault(name, []).append([k, n])
    base, steps = _schedule_frames(fusion)
    stages_of, texts = _passes(passes)
    return {
        "name": clean(fusion.name),
        "summary": _summary(fusion, facts, program),
        "inputs": [_input_data(t) for t in fusion.inputs],
        "views": _views(fusion, model),
        "ops": [_operation(fusion, e, at, served.get(e.name, [])) for e in facts.operations],
        "lines": [{"file": clean(x.file), "line": x.line, "code": clean(x.code)} for x in lines],
        "sources": _source_parts(lines),
        "kernels": kernels,
        "loops": base,
        "steps": steps,
        "passes": stages_of,
        "texts": texts,
    }


def _source_parts(lines: Sequence[SourceLine]) -> list[Data]:
    """The lines with those around them, where their file can be read; ``own`` is a line's index in ``lines``."""
    parts: list[Data] = []
    for n, x in enumerate(lines):
        text = _program_of(x)
        first = max(1, x.line - AROUND) if text else x.line
        last = min(len(text), x.line + AROUND) if text else x.line
        if not parts or parts[-1]["file"] != clean(x.file) or parts[-1]["first"] + len(parts[-1]["text"]) < first:
            parts.append({"file": clean(x.file), "first": first, "text": [], "own": []})
        shown, own = parts[-1]["text"], parts[-1]["own"]
        for number in range(parts[-1]["first"] + len(shown), last + 1):
            shown.append(clean(visible(text[number - 1].rstrip().expandtabs(4)) if text else x.code))
            own.append(None)
        own[x.line - parts[-1]["first"]] = n
    return parts


def _program_of(x: SourceLine) -> list[str]:
    """The lines of the program that ``x`` is one of; none where it is not there, or has changed since.

    A fusion's text names files too, and may be anybody's: only what Python itself ran and `user_line` looked at is
    read, and only where it has this line.
    """
    for name in [n for n in linecache.cache if display_file(n) == x.file and x.code]:
        text = linecache.getlines(name)
        if 0 < x.line <= len(text) and text[x.line - 1].strip() == x.code:
            return text
    return []


def _summary(fusion: Fusion, facts: SegmentFacts, program: Program | None) -> list[list[str]]:
    """Labels and texts that a page opens with. Bytes and widths are those of the report."""
    kinds = Counter(f"{c.kind} by {c.shift}" if c.kind == "shift" else c.kind for c in facts.cycles)
    cycles = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none in the exact graph"
    moved = Counter(a.vector_width for a in facts.memory_accesses)
    widths = ", ".join(
        f"{w} element{'s' * (w > 1)}: {n} access{'es' * (n > 1)}" for w, n in sorted(moved.items(), reverse=True)
    )
    rows = [
        ("inputs", _listed([_shape_text(t) for t in fusion.inputs])),
        ("outputs", _listed([_shape_text(t) for t in fusion.outputs])),
        ("operations", str(len(fusion.exprs))),
        ("kernels", f"none: {facts.refused}" if program is None else _kernel_names(program)),
        ("bytes", "" if facts.refused else _bytes_line(facts)),
        ("cycles", cycles),
        ("widths", widths),
    ]
    return [[label, clean(text)] for label, text in rows if text]


def _kernel_names(program: Program) -> str:
    return f"{len(program.kernels)} for {program.target}: {_listed([k.name for k in program.kernels])}"


def _listed(names: Sequence[str], most: int = 6) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{rest}"


def _bytes_line(facts: SegmentFacts) -> str:
    parts = (("read", facts.bytes_read), ("written", facts.bytes_written), ("between kernels", facts.bytes_between))
    return ", ".join(f"{bytes_text(n, facts.exact)} {what}" for what, n in parts)


def _shape_text(t: Tensor) -> str:
    return f"{t.name}: {t.dtype}({', '.join(map(str, t.shape))})"


def _input_data(t: Tensor) -> Data:
    readers = list(dict.fromkeys(u.output.name for u in t.uses))
    return {"name": t.name, "text": clean(_shape_text(t)), "readers": readers}


# views ---------------------------------------------------------------------------------------------------------------


def _views(fusion: Fusion, model: IdModel) -> list[Data]:
    branches = folds_of(fusion)
    made = [_view("operations", picture(fusion, collapse=False), branches)]
    try:
        graph = model.index
    except IdGraphError as error:  # a schedule that no loop nest can do has no index graph
        made[0]["alarm"] = [clean(error.what)]
        return made
    kept, left_out = _once(branches)
    marked = next((c for c in graph.cycles() if c.changes_index), None) if len(fusion.exprs) <= MOST_MARKED else None
    view = _view("index graph", index_picture(graph, marked, only=kept, model=model), branches)
    if left_out:
        view["caption"].append(
            f"{left_out} operations of rounds that repeat are left out: each is like the first round."
        )
    made.append(view)
    for name in ("exact", "almost_exact", "loop", "aligned", "extents"):
        made.append(_view(f"{name.replace('_', ' ')} graph", picture(getattr(model, name), collapse=False), []))
    return made


def _once(branches: Iterable[Fold]) -> tuple[set[TensorExpr], int]:
    """The operations without the later rounds of repetitions, and the number of those left out."""
    kept: set[TensorExpr] = set()
    left_out = 0
    for b in branches:
        kept |= set(b.exprs)
        if b.parts:
            first, rest = _all(b.parts[0]), [e for part in b.parts[1:] for e in _all(part)]
            kept |= set(first)
            left_out += len(rest)
    return kept, left_out


def _all(branch: Fold) -> list[TensorExpr]:
    return [*branch.exprs, *(e for part in branch.parts for e in _all(part))]


def _view(title: str, drawn: Picture, branches: Iterable[Fold]) -> Data:
    """A picture as boxes in a tree of folds; frames (of the index graph) are branches that stay open."""
    parent: dict[str, str] = {}
    folds: list[Data] = []
    for number, branch in enumerate(branches):
        _fold(branch, f"fold {number}", "", parent, folds)
    frames = {c.key: c for c in drawn.clusters}
    for key, c in frames.items():
        op = key.removeprefix("operation ")
        folds.append(
            {
                "id": key, "parent": parent.get(op) or None, "lines": _label_lines(c.lines), "title": clean(c.title),
                "op": op, "marked": c.marked, "fill": PLAIN[0], "stroke": PLAIN[1],
            }
        )  # fmt: skip
    boxes = [_box(n, parent, bool(frames)) for n in drawn.nodes]
    first: dict[str, str] = {}
    for b in boxes:
        if b["parent"] in frames:
            first.setdefault(b["parent"], b["id"])
    edges = [
        {
            "a": first.get(e.tail, e.tail), "b": first.get(e.head, e.head), "title": clean(e.title), "colour": e.colour,
            "marked": e.marked, "dashed": e.dashed, "link": e.link,
        }
        for e in drawn.edges
    ]  # fmt: skip
    used = {b["parent"] for b in boxes} | {f["parent"] for f in folds}
    while unused := [f for f in folds if f["id"] not in used]:
        folds = [f for f in folds if f["id"] in used]
        used -= {f["id"] for f in unused}
    return {
        "id": title, "title": title, "boxes": boxes, "folds": folds, "edges": edges,
        "caption": [clean(x) for x in drawn.caption], "alarm": [clean(x) for x in drawn.alarm],
    }  # fmt: skip


def _fold(branch: Fold, key: str, above: str, parent: dict[str, str], folds: list[Data]) -> None:
    if not branch.parts and len(branch.exprs) == 1:  # a nest of one operation needs no frame
        parent[branch.exprs[0].output.name] = above
        return
    lines = [[clip(clean(branch.title), LIMIT), "head"]]
    if branch.note:
        lines.append([clip(clean(branch.note), LIMIT), "faint"])
    folds.append(
        {
            "id": key, "parent": above or None, "lines": lines, "title": "", "op": None, "marked": False,
            "fill": "#eef0f4", "stroke": "#7a8496",
        }
    )  # fmt: skip
    for e in branch.exprs:
        parent[e.output.name] = key
    for n, part in enumerate(branch.parts):
        _fold(part, f"{key}.{n}", key, parent, folds)


def _box(n: PictureNode, parent: Mapping[str, str], framed: bool) -> Data:
    op = n.cluster.removeprefix("operation ") if n.cluster else n.key
    above = n.cluster if framed and n.cluster else parent.get(n.key)
    return {
        "id": n.key, "parent": above or None, "lines": _label_lines(n.lines), "fill": n.fill, "stroke": n.stroke,
        "shape": n.shape, "title": clean(n.title), "marked": n.marked, "dashed": n.dashed, "thick": n.thick, "op": op,
        "main": n.key == op,
    }  # fmt: skip


def _label_lines(lines: Iterable[Line]) -> list[list[Any]]:
    return [[clean(x.text), x.style, [list(c) for c in x.chips]] for x in lines]


# operations ----------------------------------------------------------------------------------------------------------


def _operation(fusion: Fusion, e: OperationFacts, at: Mapping[SourceLine, int], served: list[list[int]]) -> Data:
    t = fusion[e.name]
    reads = [] if t.definition is None else list(dict.fromkeys(x.name for x in t.definition.inputs))
    readers = list(dict.fromkeys(u.output.name for u in t.uses))
    loops = ", ".join(f"{x.name} < {x.extent}" + (f" {x.parallel}" if x.parallel != "serial" else "") for x in e.loops)
    return {
        "name": e.name, "op": e.op, "text": clean(e.text), "line": None if e.line is None else at[e.line],
        "loops": loops + (f"; {e.inlined_at} shared" if e.inlined_at else ""), "reads": reads, "readers": readers,
        "kernel": served, "accesses": [_access_data(a) for a in e.accesses],
    }  # fmt: skip


def _access_data(a: AccessFacts) -> Data:
    rows = [
        ("element", f"[{', '.join(a.coordinates)}]"),
        ("address", f"{a.address} ({a.place})"),
        ("when", "" if a.predicate == "True" else a.predicate),
        ("lanes", f"{a.pattern} along {a.loop}" if a.loop else a.pattern),
        ("width", f"{a.vector_width} elements, {a.vector_bytes} bytes: {a.why}"),
        ("loaded", "\n".join(f"{x.name} = {x.tensor}[{', '.join(x.coordinates)}]" for x in a.loads)),
    ]
    shape = ", ".join(map(str, a.shape))
    return {"title": clean(f"{a.kind} {a.tensor}: {a.dtype}({shape})"), "rows": [[k, clean(v)] for k, v in rows if v]}


# kernels -------------------------------------------------------------------------------------------------------------


def _kernels(program: Program) -> list[Data]:
    """Sources line by line, each line with the operations whose tensors it names and those that an access serves."""
    titles = dict(program.plan.titles)
    known = {e.output.name for e in program.fusion.exprs}
    for b in program.plan.buffers:
        titles[b.name] = b.title
    made: list[Data] = []
    for k in program.kernels:
        text = program.kernel_source(k).splitlines()
        served = _lines_of_accesses(k, text)
        ops: list[list[str]] = []
        for n, line in enumerate(text):
            if operation := _OPERATION.match(line):
                found = [str(json.loads(operation[1]))]
            else:
                found = [titles.get(x, "") for x in (*_NAMES.findall(line), *served.get(n, ()))]
            ops.append([x for x in dict.fromkeys(found) if x in known])
        made.append({"name": k.name, "text": [clean(x) for x in text], "ops": ops})
    return made


def _mark_folded(fusion: Fusion, kernels: Sequence[Data]) -> None:
    """An operation without a statement (a constant, a coordinate) gets the lines of its readers."""
    lines: dict[str, list[list[str]]] = {}
    for kernel in kernels:
        for names in kernel["ops"]:
            for name in names:
                lines.setdefault(name, []).append(names)
    for e in reversed(fusion.exprs):
        name = e.output.name
        if name not in lines:
            parts = {id(x): x for u in e.output.uses for x in lines.get(u.output.name, ())}
            lines[name] = list(parts.values())
            for names in parts.values():
                names.append(name)


def _lines_of_accesses(kernel: Kernel, text: Sequence[str]) -> dict[int, list[str]]:
    """The operations (t0, t1, ...) that the access on a line serves.

    A line of an access names its buffer and its local variable. Accesses of the same two are in the order of their
    lines; where one is not one line (lanes that a printer writes one by one), each line has the operations of all.
    """
    accesses: dict[frozenset[str], list[list[str]]] = {}
    for s in walk(kernel.body):
        if isinstance(s, Load | VectorLoad | Store | VectorStore):
            key = frozenset((s.buffer.name, *_locals_of(s)))
            accesses.setdefault(key, []).append([p.tensor for p in s.serves])
    found: dict[int, list[str]] = {}
    about = ("#", "//", "def ")  # lines that name buffers and move nothing
    named: list[set[str]] = [set() if x.lstrip().startswith(about) else set(_NAMES.findall(x)) for x in text]
    for key, each in accesses.items():
        at = [n for n, names in enumerate(named) if key <= names]
        every = list(dict.fromkeys(x for part in each for x in part))
        for n, part in zip(at, each if len(each) == len(at) else [every] * len(at), strict=True):
            found.setdefault(n, []).extend(part)
    return found


def _locals_of(s: Load | VectorLoad | Store | VectorStore) -> set[str]:
    """The local variables (or arrays of them) whose values the access moves."""
    match s:
        case Load(local=x):
            moved: tuple[Operand, ...] = (x,)
        case VectorLoad(locals=several):
            moved = several
        case Store(value=x):
            moved = (x,)
        case VectorStore(values=values):
            moved = values
    return {x.name for x in moved if isinstance(x, Local)}


def _passes(made_by: Iterable[tuple[str, KernelModule]]) -> tuple[list[Data], list[list[str]]]:
    """The kernels as lowered, and after each pass that changed one: numbers of their texts, which come second.

    Most passes change a few kernels of many, so a text stands once for all the passes that leave it as it is.
    """
    made: list[Data] = []
    texts: dict[tuple[str, ...], int] = {}
    printed: dict[str, tuple[Kernel, int]] = {}
    for name, plan in made_by:
        for k in plan.kernels:
            if k.name not in printed or printed[k.name][0] is not k:
                text = tuple(clean(x) for x in str(k).splitlines())
                printed[k.name] = (k, texts.setdefault(text, len(texts)))
        numbers = [printed[k.name][1] for k in plan.kernels]
        if not made or made[-1]["kernels"] != numbers:
            made.append({"name": name, "kernels": numbers})
    return made, [list(x) for x in texts]


# the schedule, step by step ------------------------------------------------------------------------------------------


def _schedule_frames(fusion: Fusion) -> tuple[list[list[str]], list[Data]]:
    """Loops before any step, and each step with the loops of its tensor before and after."""
    text = [line for line in str(fusion).splitlines() if not line.startswith("  schedule ")]
    plain = parse_fusion("\n".join(text))
    base = [[clean(t.name), axes_text(t.loop)] for t in plain.tensors if t.definition is not None]
    made: list[Data] = []
    for mine, step in sorted(((t, s) for t in fusion.tensors for s in t.log), key=lambda pair: pair[1].at):
        t = plain[mine.name]
        before = axes_text(t.loop)
        replay_step(t, step.name, step.args, step.kwargs)
        words = ", ".join([*map(value_text, step.args), *(f"{k}={value_text(v)}" for k, v in step.kwargs.items())])
        inlined = f", inlined at {t.inline_position}" if t.inline_position else ""
        made.append(
            {
                "tensor": clean(t.name), "text": clean(f"{step.name}({words})"), "before": before,
                "after": axes_text(t.loop) + inlined,
            }
        )  # fmt: skip
    return base, made
