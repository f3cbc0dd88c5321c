"""Cost of the graphs per tensor operation, over three shapes of fusion, beside networkx and a bare union-find.

    python -m tools.bench.graphs [--sizes 100,1000,10000,100000] [--repeat 3] [--json FILE]

Prints microseconds of processor time per operation for building the fusion, the exact, almost exact and index graph
with their groups listed, and in addition for looking at every key of every group; for the same unions in networkx and
in a bare union-find over ints; and the memory and the objects that a garbage collector walks through per operation of
the graphs. The collector runs as it does in every program.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable

import networkx as nx
from rich.console import Console
from rich.progress import track

import idgraph as ig
from idgraph.ir import Mapped
from tools.bench import report
from tools.programs.sized_fusions import SHAPES

LEAST = 1000  # operations from which on the growth is told


def unions(f: ig.Fusion) -> list[tuple[int, int]]:
    """The direct mappings of the exact graph, as ints."""
    number = {d: k for k, d in enumerate(d for t in f.tensors for d in (*t.root, *t.logical))}
    return [
        (number[axis], number[read.domain])
        for e in f.exprs
        for t, row in zip(e.inputs, e.reads, strict=True)
        for axis, read in zip(t.axes, row, strict=True)
        if isinstance(read, Mapped) and read.domain in number
    ]


def bare(pairs: list[tuple[int, int]]) -> None:
    """A union-find without keys, groups, reasons or congruence."""
    parent = list(range(1 + max(max(p) for p in pairs)))
    for a, b in pairs:
        while parent[a] != a:
            parent[a] = a = parent[parent[a]]
        while parent[b] != b:
            parent[b] = b = parent[parent[b]]
        parent[b] = a


def components(pairs: list[tuple[int, int]]) -> None:
    """The same with networkx."""
    g: nx.Graph[int] = nx.Graph()
    g.add_edges_from(pairs)
    list(nx.connected_components(g))


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def graph_times(f: ig.Fusion) -> dict[str, float]:
    """Seconds for each graph of a fusion and its groups, for their keys, and for the cycles of the exact one."""
    m = ig.IdModel(f)
    return {
        "exact": timed(lambda: len(m.exact.groups)),
        "almost exact": timed(lambda: len(m.almost_exact.groups)),
        "index": timed(lambda: len(m.index.groups)),
        "keys": timed(lambda: [len(g.keys) for each in (m.exact, m.almost_exact, m.index) for g in each.groups]),
        "cycles": timed(lambda: m.exact.cycles()),
    }


def best_times(f: ig.Fusion, repeat: int) -> dict[str, float]:
    """The least of several, part by part: what else runs on the machine only adds."""
    found: list[dict[str, float]] = []
    for _ in range(repeat):
        gc.collect()
        found.append(graph_times(f))
    return {part: min(times[part] for times in found) for part in found[0]}


def least(work: Callable[[], object], repeat: int, before: Callable[[], object] = gc.collect) -> float:
    """The least processor time of several runs, with what was made ``before`` each gone."""
    found: list[float] = []
    for _ in range(repeat):
        before()
        gc.collect()
        found.append(timed(work))
    return min(found)


def measure(name: str, n: int, repeat: int) -> dict[str, object]:
    """One row: microseconds per operation of each part; small fusions are run until 10 000 operations are timed."""
    repeat = max(repeat, 10_000 // n)
    made: list[ig.Fusion] = []
    build = least(lambda: made.append(SHAPES[name](n)), repeat, made.clear)
    f = made[-1]
    parts = {"build": build, **best_times(f, repeat)}
    pairs = unions(f)
    parts["union-find"] = least(lambda: bare(pairs), repeat)
    parts["networkx"] = least(lambda: components(pairs), repeat)
    count = len(f.exprs)
    row: dict[str, object] = {"shape": name, "operations": count}
    row.update({k: round(v / count * 1e6, 2) for k, v in parts.items()})
    row["three graphs"] = round(sum(parts[k] for k in ("exact", "almost exact", "index")) / count * 1e6, 2)
    fresh = ig.IdModel(f)
    gc.collect()
    walked = len(gc.get_objects())
    tracemalloc.start()
    _ = [len(each.groups) for each in (fresh.exact, fresh.almost_exact, fresh.index)]
    row["bytes"] = round(tracemalloc.get_traced_memory()[0] / count)
    tracemalloc.stop()
    gc.collect()
    row["objects"] = round((len(gc.get_objects()) - walked) / count, 1)
    return row


def growth(rows: list[dict[str, object]]) -> dict[str, tuple[int, int, float]]:
    """For each shape the first size from 1 000 operations on, the last, and the ratio of their costs an operation."""
    found: dict[str, tuple[int, int, float]] = {}
    for name in SHAPES:
        mine = [r for r in rows if r["shape"] == name and int(str(r["operations"])) >= LEAST]
        if len(mine) > 1:
            low, high = mine[0], mine[-1]
            ratio = float(str(high["three graphs"])) / float(str(low["three graphs"]))
            found[name] = int(str(low["operations"])), int(str(high["operations"])), round(ratio, 2)
    return found


def main() -> None:
    """Measure, print one table, write JSON."""
    parser = report.arguments(__doc__)
    parser.add_argument("--sizes", default="100,1000,10000,100000")
    parser.add_argument("--repeat", type=int, default=3, help="take the least of so many (default: 3)")
    options = parser.parse_args()
    work = [(name, int(n)) for name in SHAPES for n in options.sizes.split(",")]
    rows = [
        measure(name, n, options.repeat) for name, n in track(work, console=Console(stderr=True), description="graphs")
    ]
    # thirteen columns: a narrow terminal wraps lines, no figure is cut
    report.show(
        "microseconds of processor time per tensor operation (rank 4)", list(rows[0]), (list(r.values()) for r in rows)
    )
    for name, (first, last, ratio) in growth(rows).items():
        print(f"{name}: three graphs at {last} operations cost {ratio} times as much an operation as at {first}")
    report.write(options.json, {**report.facts(), "rows": rows})


if __name__ == "__main__":
    main()
