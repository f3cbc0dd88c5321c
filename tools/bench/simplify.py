"""Index simplification beside the peers that are installed: ``python -m tools.bench.simplify``.

solved: equal everywhere checked and at the smallest known cost.  cold: new symbol names, nothing cached; warm: asked
again.  Times are only of the simplifier, on expressions already built in its own form, median and 95th percentile.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tools.bench.peers import PEERS, NotExpressible, installed
from tools.judges.expressions import Bounds, Case, cost, differs, load
from tools.judges.unseen import unseen

_WORDS = ("min", "max", "where", "True", "False")


@dataclass(slots=True)
class Row:
    """One peer's figures."""

    peer: str
    cases: int = 0
    solved: int = 0
    wrong: int = 0
    not_expressible: int = 0
    cold_median_us: float = 0.0
    cold_p95_us: float = 0.0
    warm_median_us: float = 0.0
    kinds: dict[str, str] = field(default_factory=dict[str, str])
    wrong_cases: list[str] = field(default_factory=list[str])


def renamed(case: Case, suffix: str) -> Case:
    """The case with every symbol under a new name."""

    def new(text: str) -> str:
        return re.sub(r"[A-Za-z_]\w*", lambda m: m[0] if m[0] in _WORDS else m[0] + suffix, text)

    ranges = {
        n + suffix: replace(b, hi=b.hi + suffix if isinstance(b.hi, str) else b.hi) for n, b in case.ranges.items()
    }
    return Case(case.kind, new(case.text), ranges, new(case.minimal))


def key(case: Case) -> str:
    """The key of a case: one text may stand under several ranges."""
    return f"{case.text} {case.ranges}"


def measure(peer: str, cases: Sequence[Case], best: dict[str, int], tag: str = "a") -> Row:
    """All cases by one peer; ``best`` holds the smallest known cost of each case and is lowered where this one's is."""
    prepare = PEERS[peer][1]()
    row = Row(peer, len(cases))
    cold: list[float] = []
    warm: list[float] = []
    solved: Counter[str] = Counter()
    total: Counter[str] = Counter(c.kind for c in cases)
    for case in cases:
        times: list[float] = []
        text = None
        try:
            for k in range(3):
                fresh = renamed(case, f"_{tag}{k}x")
                run, show = prepare(fresh.text, fresh.ranges)
                start = time.perf_counter()
                out = run()
                times.append(time.perf_counter() - start)
                start = time.perf_counter()
                run()
                warm.append(time.perf_counter() - start)
                text = re.sub(rf"_{tag}{k}x\b", "", show(out))
            wrong = differs(case, text or "")
        except NotExpressible:
            row.not_expressible += 1
            continue
        except Exception as error:  # a peer may fail in its own ways; that is not an answer
            row.not_expressible += 1
            row.wrong_cases.append(f"{case.text}: {type(error).__name__}: {str(error)[:80]}")
            continue
        cold.append(min(times))
        if wrong:
            row.wrong += 1
            row.wrong_cases.append(wrong)
            continue
        found = cost(text or "")
        solved[case.kind] += found <= best[key(case)]
        best[key(case)] = min(best[key(case)], found)
    row.solved = solved.total()
    row.kinds = {k: f"{solved[k]}/{total[k]}" for k in total}
    row.cold_median_us = _at(cold, 0.5)
    row.cold_p95_us = _at(cold, 0.95)
    row.warm_median_us = _at(warm, 0.5)
    return row


def _at(seconds: list[float], part: float) -> float:
    ordered = sorted(seconds) or [0.0]
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e6, 2)


def table(rows: Sequence[Row]) -> str:
    """The figures as text."""
    lines = [f"{'peer':14} {'solved':>9} {'wrong':>6} {'n/a':>5} {'cold us':>9} {'p95 us':>9} {'warm us':>9}"]
    for r in rows:
        lines.append(
            f"{r.peer:14} {r.solved:4}/{r.cases:<4} {r.wrong:6} {r.not_expressible:5} "
            f"{r.cold_median_us:9.1f} {r.cold_p95_us:9.1f} {r.warm_median_us:9.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run every installed peer on the known set and on unseen expressions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--unseen", type=int, default=0, help="also this many random expressions of the same kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer", action="append", choices=sorted(PEERS), help="only these")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # peers warn about their own dependencies
    known = load()
    sets = {"known": (known, {key(c): cost(c.minimal) for c in known})}
    if args.unseen:
        fresh = unseen(args.unseen, args.seed)
        sets["unseen"] = (fresh, {key(c): cost(c.text) for c in fresh})
    report: dict[str, object] = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    for name, (cases, best) in sets.items():
        peers = args.peer or installed()
        rows = [measure(p, cases, best) for p in peers]
        if name == "unseen":  # the best of all is known only now
            rows = [measure(p, cases, best, "b") for p in peers]
        print(f"{name}: {len(cases)} expressions")
        print(table(rows))
        report[name] = [asdict(r) for r in rows]
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


__all__ = ["Bounds", "Row", "main", "measure", "table"]

if __name__ == "__main__":
    main()
