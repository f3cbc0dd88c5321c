"""Why operations do not fuse, over captured graphs, beside TorchInductor's own words and kernels; as tables and JSON.

    python -m tools.bench.fusion GRAPHS LOG [--match TEXT] [--align] [--json FILE]

GRAPHS is a folder of captured graphs, LOG one with `fusion_failures.jsonl` and `loop_bodies.jsonl` of Inductor. Three
tables: causes of every pair that shares a buffer, graph by graph, each operation in a kernel of its own (``--align``
tries the alignments too: some 50 ms each); Inductor's pairs with its word and ours; kernels of the mapped operations of
the programs in the log and of blocks of four models, matrix products left to torch in both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.frontends.import_ import from_json
from idgraph.fuse import CAUSES, Obstacle
from tools.bench.fusion_rows import Row, best, judged, read
from tools.programs.model_blocks import BLOCKS, PRODUCTS, counted, kernels_of


def causes(folder: Path, match: str, align: bool) -> dict[str, Any]:
    """Pairs by cause, for all graphs and for each."""
    total: Counter[str] = Counter()
    how: Counter[str] = Counter()
    graphs: dict[str, dict[str, int]] = {}
    start = time.process_time()
    for path in sorted(p for p in folder.glob("*.json") if match in p.name):
        found: Counter[str] = Counter()
        for o in ig.fuse.obstacles(from_json(path).fusion):
            found[o.cause if o.cause in CAUSES else "unknown"] += 1
            if align:
                how[_outcome(o)] += 1
        graphs[path.stem] = dict(found)
        total += found
    return {
        "graphs": len(graphs), "pairs": sum(total.values()), "unknown": total["unknown"], "causes": dict(total),
        "alignments": dict(how), "seconds": round(time.process_time() - start, 1), "by_graph": graphs,
    }  # fmt: skip


def _outcome(o: Obstacle) -> str:
    return f"{o.cause}: {'proved that none' if o.proof else 'aligned' if o.alignment is not None else 'none found'}"


def rows(folder: Path, log: Path, match: str) -> dict[str, Any]:
    """Inductor's pairs, its word and ours."""
    failures = [r for r in read(log / "fusion_failures.jsonl") if match in r["case"]]
    made = list(judged(failures, folder, read(log / "loop_bodies.jsonl")))
    both: Counter[tuple[str, str]] = Counter()
    for v in made:
        both[v.theirs, v.ours or "unknown"] += v.times
    return {
        "rows": len(failures), "pairs": sum(both.values()),
        "unknown": sum(n for (_, o), n in both.items() if o == "unknown"),
        "theirs_and_ours": [{"inductor": a, "idgraph": b, "pairs": n} for (a, b), n in both.most_common()],
        "by_operations": sum(v.times for v in made if v.how == "graph"),
        "alignments": dict(Counter(f"{v.ours}: {v.aligned}" for v in made if v.aligned)),
        "verdicts": [
            {"case": v.case, "graph": v.graph, "nodes": v.nodes, "buffer": v.buffer, "inductor": v.theirs,
             "idgraph": v.ours, "because": v.because, "aligned": v.aligned, "bytes_saved": v.bytes_saved}
            for v in made
        ],
    }  # fmt: skip


def kernels(folder: Path, log: Path, match: str) -> list[dict[str, Any]]:
    """Kernels of the mapped operations, Inductor's and ours, for each program of the log."""
    theirs: dict[tuple[str, str], list[Row]] = {}
    for body in read(log / "loop_bodies.jsonl"):
        theirs.setdefault((body["case"], body["graph"]), []).append(body)
    out: list[dict[str, Any]] = []
    for (case, graph), bodies in theirs.items():
        path = best(folder, case, graph, bodies).path if match in case else None
        if path is None:
            continue
        fused = {body["fused"] for body in bodies}
        imported = from_json(path)
        imported = imported.calling(*(p for p in PRODUCTS if p in imported.coverage.mapped))
        row: dict[str, Any] = {"case": case, "graph": path.stem.rpartition(".")[2], "inductor": len(fused)}
        try:
            row["idgraph"] = kernels_of(imported)
        except IdGraphError as error:
            row["failed"] = error.what
        out.append(row)
    return out


def blocks(match: str) -> list[dict[str, Any]]:
    """The same for blocks of four models, compiled here."""
    return [row for name in BLOCKS if match in name for row in counted(name)]


def main() -> int:
    """The tables on the terminal, everything in a JSON file; 1 where a pair has no cause."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs")
    parser.add_argument("log")
    parser.add_argument("--match", default="")
    parser.add_argument("--align", action="store_true")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    folder, log = Path(args.graphs), Path(args.log)
    result: dict[str, Any] = {
        "kernels": [*kernels(folder, log, args.match), *blocks(args.match)],
        "inductor_rows": rows(folder, log, args.match),
        "causes": causes(folder, args.match, args.align),
    }
    for row in result["kernels"]:
        ours = row.get("idgraph", row.get("failed"))
        more = " more" if isinstance(ours, int) and ours > row["inductor"] else ""
        print(f"{row['case']:<24} {row['graph']:<3} Inductor {row['inductor']:>3}  idgraph {ours}{more}")
    told = result["inductor_rows"]
    print(f"{told['rows']} rows of Inductor's log, {told['pairs']} pairs with a buffer, {told['unknown']} unknown")
    for line in told["theirs_and_ours"]:
        print(f"{line['pairs']:>6}  {line['inductor']:<24} {line['idgraph']}")
    found = result["causes"]
    print(f"{found['graphs']} graphs, {found['pairs']} pairs, {found['unknown']} unknown, {found['seconds']} s")
    for cause, n in sorted(found["causes"].items(), key=lambda x: -x[1]):
        print(f"{n:>6}  {cause}")
    for outcome, n in sorted(found["alignments"].items()):
        print(f"{n:>6}  {outcome}")
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1))
    return 1 if found["unknown"] or told["unknown"] else 0


if __name__ == "__main__":
    sys.exit(main())
