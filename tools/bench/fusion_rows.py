"""Rows of TorchInductor's fusion log, judged here: the captured graph gives each node its operation.

Where a graph is missing, or Inductor numbered other nodes than it does from the graph, the formulas that it logged for
the two nodes are judged themselves (`loop_bodies.jsonl`), without the operations.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import idgraph as ig
from idgraph.arith import Expr, IndexMap, as_expr, simplify, symbol
from idgraph.check.inductor_capture import Capture, Lowered
from idgraph.check.program import BufferLayout, Nest
from idgraph.errors import IdGraphError
from idgraph.fuse.access_relation import AccessLoop, AccessRelation
from idgraph.fuse.mismatch import difference
from idgraph.ir import Tensor
from tools.programs.inductor_programs import captured

Row = dict[str, Any]
THEIRS = ("different numel", "broadcast", "different offset", "Mismatch loop orders", "Unknown reason", "not MemoryDep")


@dataclass(slots=True)
class Verdict:
    """One pair of nodes: Inductor's category for the buffer, ours, and how it was found."""

    case: str
    graph: str
    nodes: tuple[str, str]
    buffer: str
    theirs: str
    ours: str
    how: str
    because: str = ""
    aligned: str = ""
    bytes_saved: int | None = None
    times: int = 1


@dataclass(slots=True)
class Program:
    """One captured graph as Inductor lowered it; None where it is missing."""

    lowered: Lowered | None
    path: Path | None = None
    tensor_of: dict[str, str] = field(default_factory=dict[str, str])  # buffer of the capture -> tensor
    node_of: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])  # node of the log -> tensors
    buffer_of: dict[str, str] = field(default_factory=dict[str, str])  # buffer of the log -> tensor


def read(path: Path) -> list[Row]:
    """Rows of a JSON lines file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def judged(rows: Sequence[Row], graphs: Path, bodies: Sequence[Row]) -> Iterator[Verdict]:
    """A verdict for every pair and buffer of ``rows``."""
    by_graph: dict[tuple[str, str], list[Row]] = {}
    for r in rows:
        by_graph.setdefault((r["case"], r["graph"]), []).append(r)
    logged = {(b["case"], b["graph"], b["node"]): b for b in bodies}
    for (case, graph), mine in by_graph.items():
        mine_logged = [b for b in bodies if (b["case"], b["graph"]) == (case, graph)]
        program = best(graphs, case, graph, mine_logged)
        found: dict[tuple[str, str, str], Verdict] = {}
        for r in mine:
            for buffer, reason in ast.literal_eval(r["failure_reason"]).items():
                key = (r["node1_name"], r["node2_name"], buffer)
                if key in found:
                    found[key].times += 1
                else:
                    found[key] = _verdict(program, case, graph, key, str(reason), logged)
        yield from found.values()


def best(graphs: Path, case: str, part: str, bodies: Sequence[Row]) -> Program:
    """The captured part that most of the logged nodes are found in: a graph break leaves several (fw, fw1)."""
    found = [lowered(p, part, bodies) for p in sorted(graphs.glob(f"{case}.aot.{part}*.json"))]
    return max(found, key=lambda p: len(p.node_of), default=Program(None))


def lowered(path: Path, part: str, bodies: Sequence[Row]) -> Program:
    """The graph as Inductor lowers it, with the nodes and buffers of the log (``bodies``) found in it."""
    if not path.exists():
        return Program(None)
    watched = Capture(options={"fallback_random": True}, name=path.stem)
    module, inputs = captured(path)
    watched.graph(module, inputs, path.stem, backward=part.startswith("bw"))
    made = Program(watched.lowered[0] if watched.lowered else None, path)
    if made.lowered is None:
        return made
    tensors = {t.name: t for t in made.lowered.imported.fusion.tensors}
    held = {b.name: b for b in made.lowered.before.buffers}
    for b in held.values():
        if "#" not in b.name and not b.copy:
            made.tensor_of[b.name] = _piece(b, held, tensors) if b.storage not in ("", b.name) else b.tensor
    mine = [n for n in made.lowered.before.nests if n.writes]
    theirs = [_key_logged(b) for b in bodies]
    same = difflib.SequenceMatcher(None, theirs, [_key(n) for n in mine], autojunk=False)
    for a, b, size in same.get_matching_blocks():
        for k in range(size):
            nest, body = mine[b + k], bodies[a + k]
            made.node_of[body["node"]] = [made.tensor_of[w.buffer] for w in nest.writes if w.buffer in made.tensor_of]
            for text, w in zip(body["writes"], nest.writes):
                if (dep := _DEP.match(text)) is not None and w.buffer in made.tensor_of:
                    made.buffer_of[dep["name"]] = made.tensor_of[w.buffer]
    return made


def _key(nest: Nest) -> tuple[int, int]:
    """Points of the loops, kept and reduced."""
    return prod(int(a.extent) for a in nest.loops), prod(int(a.extent) for a in nest.reduce)


def _key_logged(body: Row) -> tuple[int, int]:
    kept, reduced = (prod(int(x) for x in group) for group in body["sizes"])
    return kept, reduced


def _piece(b: BufferLayout, held: Mapping[str, BufferLayout], tensors: Mapping[str, Tensor]) -> str:
    """The operand of a cat that is written in place into a part of it."""
    whole = tensors.get(b.tensor)
    e = whole.definition if whole is not None else None
    home = held.get(b.storage)
    if e is None or e.op != "cat" or home is None or home.tensor != b.tensor:
        return b.tensor
    dim = e.attrs["dim"]
    at = dim % e.output.ndim if isinstance(dim, int) else 0
    start = as_expr(0)
    for t in e.inputs:
        if simplify(start * home.strides[at] - b.base) == 0:
            return t.name
        start = simplify(start + t.axes[at].extent)
    return b.tensor


def _verdict(
    program: Program,
    case: str,
    graph: str,
    key: tuple[str, str, str],
    reason: str,
    logged: Mapping[tuple[str, str, str], Row],
) -> Verdict:
    theirs = next((t for t in THEIRS if t in reason), reason[:40])
    out = Verdict(case, graph, key[:2], key[2], theirs, "", "graph")
    nodes = [_parts(n) for n in key[:2]]
    if program.lowered is None or not _by_graph(program, nodes, out):
        _by_formulas(case, graph, nodes, out, logged)
    return out


def _parts(name: str) -> list[str]:
    return re.findall(r"op\d+", name)


def _by_graph(program: Program, nodes: Sequence[Sequence[str]], out: Verdict) -> bool:
    assert program.lowered is not None
    fusion = program.lowered.imported.fusion
    by_name = {t.name: t for t in fusion.tensors}
    stored = [by_name[t] for t in program.tensor_of.values() if t in by_name]
    buffer = by_name.get(program.buffer_of.get(out.buffer, out.buffer))
    if buffer is None:
        return False
    asked = met = False
    for x in _made(program, nodes[0], by_name):
        for y in _made(program, nodes[1], by_name):
            if x is y or x.definition is None or y.definition is None:
                continue
            try:
                o = ig.fuse.explain(fusion, x, y, buffer=buffer, stored=stored)
            except IdGraphError:
                continue
            met = True
            if o is not None and not asked:
                asked = True
                out.ours, out.because, out.bytes_saved = o.cause, "; ".join(o.because), o.bytes_saved
                alignment = o.alignment
                out.aligned = "yes" if alignment is not None else "proved not" if o.proof else "tried"
    if met and not asked:
        out.ours, out.because = "none", "both touch it at the same place in the same loops"
    return met


def _made(program: Program, nodes: Sequence[str], by_name: Mapping[str, Tensor]) -> list[Tensor]:
    return [by_name[t] for n in nodes for t in dict.fromkeys(program.node_of.get(n, ())) if t in by_name]


# formulas -------------------------------------------------------------------------------------------------------------

_DEP = re.compile(r"MemoryDep\('(?P<name>\w+)', (?P<index>.*), \{(?P<sizes>[^{}]*)\}(?:, \w+)?\)$")


def _by_formulas(
    case: str, graph: str, nodes: Sequence[Sequence[str]], out: Verdict, logged: Mapping[tuple[str, str, str], Row]
) -> None:
    out.how = "formulas"
    sides = [[t for n in ns if (b := logged.get((case, graph, n))) for t in _touches(b, out.buffer)] for ns in nodes]
    met = False
    for a in sides[0]:
        for b in sides[1]:
            met = True
            found = difference(a, b) if a.is_write or not b.is_write else difference(b, a)
            if found is not None:
                out.ours, out.because = found.cause, "; ".join(found.because)
                return
    out.ours = "none" if met else ""


def _touches(body: Row, buffer: str) -> list[AccessRelation]:
    found: list[AccessRelation] = []
    for kind in ("reads", "writes"):
        for text in body[kind]:
            dep = _DEP.match(text)
            if dep is not None and dep["name"] == buffer:
                found.append(_touch(body, dep, kind == "writes"))
    return found


def _touch(body: Row, dep: re.Match[str], is_write: bool) -> AccessRelation:
    """One dependency as a touch of a flat buffer, by a stand-in for the operation."""
    sizes = {k.strip(): int(v) for k, v in (pair.split(":") for pair in dep["sizes"].split(",") if pair.strip())}
    kept, reduced = ([int(x) for x in group] for group in body["sizes"])
    f = ig.Fusion(body["case"])
    shape = tuple(kept) + tuple(reduced)
    index_text, sizes = _unmerged(_python(dep["index"]), sizes, [n for n in (*kept, *reduced) if n > 1])
    idle = prod([*kept, *reduced]) // max(1, prod(sizes.values()))  # loops that the formula does not need
    if idle > 1:
        sizes["idle"] = idle
    table = {n: symbol(n, 0, v - 1) for n, v in sizes.items()}
    index = ig.simplify(index_text, dict(sizes))
    loaded = index.names - table.keys()
    size = 1 + max(_top(index, sizes), prod(sizes.values()))
    buffer = f.input(dep["name"], shape=(size,))
    stand_in = f.input("stand_in", shape=shape or (1,))
    made = ig.sum(stand_in, list(range(len(kept), len(shape)))) if body["is_reduction"] and reduced else stand_in * 1.0
    made = ig.copy(made, name=body["node"]) if made.definition is None else made
    loops = tuple(AccessLoop(table[n], as_expr(v)) for n, v in sizes.items())
    e = made.definition
    assert e is not None
    points = IndexMap(tuple(x.symbol for x in loops), (_renamed(index, table),), (size,))
    loads = {n: (n, ()) for n in loaded}
    return AccessRelation(e, buffer, is_write, loops, points, loads)


def _unmerged(text: str, sizes: dict[str, int], own: Sequence[int]) -> tuple[str, dict[str, int]]:
    """The loops as the body has them: what the log merged into one is split again."""
    made: dict[str, int] = {}
    at = 0
    for name, extent in sizes.items():
        n, first = 1, at
        while at < len(own) and n < extent:
            n *= own[at]
            at += 1
        if n != extent:
            return text, sizes
        if at - first < 2:
            made[name] = extent
            continue
        parts = {f"{name}_{k}": own[k] for k in range(first, at)}
        unit, terms = 1, list[str]()
        for part, m in reversed(parts.items()):
            terms.append(f"{part}*{unit}")
            unit *= m
        text = re.sub(rf"\b{name}\b", f"({' + '.join(terms)})", text)
        made |= parts
    return text, made


def _renamed(index: Expr, table: Mapping[str, Expr]) -> Expr:
    return simplify(index.substitute({n: s for n, s in table.items() if n in index.names}))


def _top(index: Expr, sizes: Mapping[str, int]) -> int:
    point = {n: sizes.get(n, 1) - 1 if n in sizes else 0 for n in index.names}
    return abs(int(index.evaluate(point)))


def _python(text: str) -> str:
    """Inductor's functions as Python's integer operators."""
    while (m := re.search(r"(ModularIndexing|FloorDiv)\(", text)) is not None:
        depth, at, parts = 1, m.end(), [m.end()]
        while depth:
            c = text[at]
            depth += (c == "(") - (c == ")")
            if c == "," and depth == 1:
                parts.append(at + 1)
            at += 1
        given = [text[a : b - 1].strip() for a, b in zip(parts, [*parts[1:], at])]
        new = f"((({given[0]})//({given[1]}))" + (f"%({given[2]}))" if len(given) == 3 else ")")
        text = text[: m.start()] + new + text[at:]
    return text
