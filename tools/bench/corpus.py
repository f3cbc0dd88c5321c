"""The share of a folder of captured graphs that is imported, and the share of it that gives torch's values.

python -m tools.bench.corpus FOLDER [--target oracle|cpu|cuda] [--match TEXT] [--limit POINTS] [--bytes N] [--json FILE]

A graph of more than LIMIT points is run whole where its tensors fit into BYTES, its matrix products by torch where they
have more than 1e10 points; what that leaves out is run with smaller sizes (`tools.judges.smaller_graph`), every
operation by emitted kernels. Without --bytes a graph over the limit is not run. A graph equal in FILE is not run again.

Equal means: integers, and floats that are only moved, bit by bit; other floats to the accuracy of their type (float32:
1e-4 of the largest value and 4e-4 of each). Sums of float32 in another order can differ by more where a softmax of
large scores follows. A graph of float32 is then computed in float64 too, and is equal where our largest error against
that is at most twice eager's, and eager's itself at most a thousandth of the largest value.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from idgraph.errors import IdGraphError
from idgraph.frontends.graph_json import parse_program
from idgraph.frontends.import_ import Import, from_json, import_program
from idgraph.frontends.torch_arrays import Array, numpy_dtype
from idgraph.ir import Fusion
from idgraph.validate.oracle import evaluate
from tools.judges.smaller_graph import smaller
from tools.judges.torch_graph import (
    coarsest,
    difference,
    in_float64,
    interpret,
    load,
    moved,
    noise,
    random_inputs,
    refs,
)

PRODUCTS = ("aten.addmm.default", "aten.bmm.default", "aten.mm.default")
MANY = 10**10  # points of matrix products that a plain loop nest takes minutes for


@dataclass(frozen=True, slots=True)
class Row:
    """One graph: calls mapped, operations opaque, if its values are torch's ("equal" or why not), how it was run."""

    name: str
    calls: int
    opaque: tuple[str, ...]
    values: str
    seconds: float
    how: str = "whole"


class Oracle:
    """Runs a fusion by the definitions of its operations, in float64 rounded to each tensor's type."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion

    def run(
        self, arrays: Mapping[str, Array], symbols: Mapping[str, int] | None = None, /, *, checked: bool = False
    ) -> Mapping[str, Array]:
        """Outputs by name; indices are always checked."""
        out = evaluate(self.fusion, dict(arrays), symbols)
        return {name: np.asarray(a).astype(numpy_dtype(self.fusion[name].dtype)) for name, a in out.items()}


def work(imported: Import) -> int:
    """Points of all loops: elements of every tensor, reduced axes included."""
    return sum(_points(s.fusion) for s in imported.segments if s.fusion is not None)


def _points(fusion: Fusion) -> int:
    """Loop points of all expressions, reduced axes included; a size that is not known yet counts as one."""
    extents = ([d.extent for d in e.output.logical] for e in fusion.exprs)
    return sum(math.prod(int(n) for n in row if n.is_const) for row in extents)


def memory(graph: dict[str, Any]) -> int:
    """Bytes that torch needs for a graph, node by node: its arguments, and the most that is alive at once."""
    nodes = graph["nodes"]
    last = {r: k for k, n in enumerate(nodes) for r in refs([n["args"], *n["kwargs"].values()])}
    given = alive = most = 0
    sizes: dict[str, int] = {}
    for k, n in enumerate(nodes):
        sizes[n["name"]] = 0 if n["op"] == "output" else _bytes(n["out"])
        given += sizes[n["name"]] * (n["op"] == "placeholder")
        alive += sizes[n["name"]] * (n["op"] == "call_function" and n["target"].split(".")[1] not in _VIEWS)
        most = max(most, alive)
        for r in {r for r in refs([n["args"], *n["kwargs"].values()]) if last[r] == k}:
            node = next(m for m in nodes if m["name"] == r)
            alive -= sizes[r] * (node["op"] == "call_function" and node["target"].split(".")[1] not in _VIEWS)
    return given + most


_VIEWS = {
    "view", "expand", "permute", "slice", "squeeze", "unsqueeze", "alias", "select", "getitem", "split",
    "split_with_sizes",
}  # fmt: skip


def _bytes(out: Any) -> int:
    if isinstance(out, list):
        return sum(map(_bytes, cast("list[Any]", out)))
    if not isinstance(out, dict):
        return 0
    told = cast("dict[str, Any]", out)
    return math.prod(told["shape"]) * getattr(torch, told["dtype"]).itemsize


def with_oracle(imported: Import) -> Import:
    """Target "oracle" runs the definitions of the operations instead of kernels."""
    for number, segment in enumerate(imported.segments):
        if segment.fusion is not None:
            imported.kernels[number, segment.fusion.version, "oracle"] = Oracle(segment.fusion)
    return imported


def compare(path: Path, target: str, limit: int, seed: int = 0, most_bytes: int = 0) -> Row:
    """Import one graph, run it and torch on the same random values; see the head of this file for large ones."""
    start = time.perf_counter()
    imported = with_oracle(from_json(path))
    coverage, graph = imported.coverage, load(path)
    calls, found, how = sum(coverage.mapped.values()), work(imported), ""
    verdict = f"not run: {found:.1e} points"
    if found <= limit:
        verdict, how = values_of(graph, imported, target, seed), "whole"
    elif most_bytes:
        by_torch = _products(imported) > MANY
        if memory(graph) <= most_bytes:
            whole = (
                with_oracle(imported.calling(*(p for p in PRODUCTS if p in coverage.mapped))) if by_torch else imported
            )
            verdict, how = values_of(graph, whole, target, seed), "whole"
        small = smaller(graph) if by_torch or not how else None
        if small is not None and verdict in ("equal", f"not run: {found:.1e} points"):
            reduced = with_oracle(import_program(parse_program(json.dumps(small).encode(), path.stem)))
            verdict = values_of(small, reduced, target, seed)
            how = "smaller sizes" if not how else "whole with matrix products by torch; smaller sizes"
    return Row(path.stem, calls, tuple(coverage.opaque), verdict, time.perf_counter() - start, how)


def _products(imported: Import) -> int:
    """Points of matrix products."""
    exprs = [e for s in imported.segments if s.fusion is not None for e in s.fusion.exprs if e.op == "matmul"]
    return sum(math.prod(int(d.extent) for d in e.output.logical) for e in exprs)


def seeded(seed: int) -> None:
    """Random operations draw the same numbers again."""
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]


def values_of(graph: dict[str, Any], imported: Import, target: str, seed: int) -> str:
    """ "equal", or what differs."""
    inputs = random_inputs(graph, seed)
    try:
        seeded(seed)
        wanted = interpret(graph, inputs)
    except (RuntimeError, IndexError) as error:
        return f"torch refuses the random inputs: {str(error).splitlines()[0][:60]}"
    seeded(seed)
    try:
        found = imported.run(*inputs, target=target)
    except IdGraphError as error:
        return f"{type(error).__name__}: {error.what[:90]}"
    results = cast("tuple[object, ...]", found)
    names, kept = (refs([r]) for r in graph["nodes"][-1]["args"][0]), moved(graph)
    wide: list[torch.Tensor | None] | None = None
    for k, (a, b, of) in enumerate(zip(results, wanted, names, strict=True)):
        if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
            if a is not None or b is not None:
                return f"result {k}: one is None"
            continue
        what = difference(a, b, coarsest(graph), exactly=kept.issuperset(of))
        if what and not kept.issuperset(of):
            wide = wide or in_float64(graph, inputs)
            reference = None if wide is None else wide[k]
            what = "" if reference is not None and noise(a, b, reference) else what
        if what:
            return f"result {k}: {what}"
    return "equal"


def table(rows: list[Row]) -> Table:
    """Counts by kind of graph."""
    made = Table(title=f"{len(rows)} captured graphs")
    for head in ("kind", "graphs", "nothing opaque", "equal to torch", "not run (large)", "differ or fail"):
        made.add_column(head, justify="left" if head == "kind" else "right")
    kinds = sorted({r.name.split(".", 1)[1] for r in rows})
    for kind in [*kinds, "all"]:
        mine = [r for r in rows if kind in ("all", r.name.split(".", 1)[1])]
        equal = sum(r.values == "equal" for r in mine)
        large = sum(r.values.startswith("not run") for r in mine)
        cells = [len(mine), sum(not r.opaque for r in mine), equal, large, len(mine) - equal - large]
        made.add_row(kind, *map(str, cells), end_section=kind == kinds[-1])
    return made


def report(rows: list[Row], target: str) -> str:
    """The rows as JSON, one line each, with the machine and the versions."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    head = {"machine": machine, "torch": torch.__version__, "target": target}
    ordered = sorted(rows, key=lambda r: r.name)
    lines = ",\n  ".join(json.dumps(asdict(r) | {"seconds": round(r.seconds, 2)}) for r in ordered)
    return json.dumps(head)[:-1] + f', "graphs": [\n  {lines}\n]}}\n'


def equal_before(file: Path | None) -> dict[str, Row]:
    """The graphs that an earlier run found equal."""
    if file is None or not file.is_file():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))["graphs"]
    return {r["name"]: Row(**(r | {"opaque": tuple(r["opaque"])})) for r in rows if r["values"] == "equal"}


def main() -> int:
    """Print the tables; exit 1 where a graph differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--match", default="")
    parser.add_argument("--limit", type=float, default=3e7, help="points of a graph above which it is not run")
    parser.add_argument("--bytes", type=float, default=0, help="memory that a larger graph may take; 0: it is not run")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    console = Console()
    paths = sorted(p for p in given.folder.glob("*.json") if given.match in p.name)
    rows: list[Row] = []
    known = equal_before(given.json)
    for path in track(paths, "graphs", console=console, disable=not console.is_terminal):
        try:
            row = known.get(path.stem) or compare(path, given.target, int(given.limit), 0, int(given.bytes))
        except IdGraphError as error:
            row = Row(path.stem, 0, ("not imported",), f"{type(error).__name__}: {error.what[:90]}", 0.0)
        rows.append(row)
        if given.json is not None and path.stem not in known:
            given.json.write_text(
                report([*(known | {r.name: r for r in rows}).values()], given.target), encoding="utf-8"
            )
    console.print(table(rows))
    reasons = Counter(name for r in rows for name in r.opaque)
    if reasons:
        console.print("opaque: " + ", ".join(f"{name} ({n})" for name, n in reasons.most_common()))
    bad = [r for r in rows if r.values != "equal" and not r.values.startswith("not run")]
    for r in bad:
        console.print(f"{r.name}: {r.values}", markup=False)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
