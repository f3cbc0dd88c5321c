"""``python -m tools.docs.series``: the figures of `results/` as a series over days, and pictures of it for the pages.

    python -m tools.docs.series add gpu_h200 cpu     # after a run: append the figures of these tables
    python -m tools.docs.series from-history         # make the file again from every commit that changed a table

`results/series.jsonl` has one line for each run: date, commit, machine, table, and the figures by name. A figure is a
number of which more is better ("of_copy": speed beside a device copy; "of_eager": beside torch eager) or seconds, of
which less is better. Lines are only ever added, so that a figure that got worse stays to be seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, cast

RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"
SERIES = RESULTS / "series.jsonl"
ROOT = RESULTS.parent.parent.parent


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of one table, measured at one commit on one machine."""

    date: str
    commit: str
    machine: str
    table: str
    unit: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Kind:
    """The figure that a table is followed by: its unit in words, and whether more of it is better."""

    unit: str
    rises: bool


TABLES = {
    "gpu_h200": Kind("speed beside a device copy of the same bytes", rises=True),
    "gpu_layout": Kind("speed beside a device copy of the same bytes", rises=True),
    "cpu": Kind("speed beside torch eager", rises=True),
    "calls_h200": Kind("speed of a call beside torch eager", rises=True),
    "compile_time": Kind("seconds from schedule to PTX", rises=False),
    "simplify": Kind("microseconds of one simplification, median", rises=False),
}


def figures(table: str, data: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a results file of this table, by name; rows that failed or lack the figure are left out."""
    match table:
        case "gpu_h200" | "gpu_layout":
            return {r["name"]: r["of_copy"] for r in data["rows"] if r.get("ok") and r.get("of_copy")}
        case "cpu":
            return {r["name"]: r["of"]["eager"] for r in data["rows"] if r.get("ok") and "eager" in r.get("of", {})}
        case "calls_h200":
            rows = [r for r in data["rows"] if r.get("ok") and "eager" in r["us"]]
            return {r["name"]: r["us"]["eager"] / r["us"]["idgraph"] for r in rows}
        case "compile_time":
            return {r["name"]: r["schedule"] + r["emit"] + r.get("ptx", 0.0) for r in data["rows"]}
        case "simplify":
            return {r["peer"]: r["cold_median_us"] for r in data.get("known", []) if r.get("cold_median_us")}
        case _:
            raise ValueError(f"{table} is not followed; there are {', '.join(TABLES)}")


def machine(data: Mapping[str, Any]) -> str:
    """The machine that a results file names."""
    held: Any = data.get("device") or data.get("machine") or "not named"
    if isinstance(held, Mapping):
        named = cast("Mapping[str, object]", held)
        return ", ".join(f"{value} {key}" if isinstance(value, int) else str(value) for key, value in named.items())
    return str(held)


def run_of(table: str, text: str, date: str, commit: str) -> Run | None:
    """The run that a results file records; None where it has none of the figures."""
    data: Any = json.loads(text)
    if not isinstance(data, dict):
        return None
    told = cast("dict[str, Any]", data)
    found = {name: round(float(x), 4) for name, x in figures(table, told).items()}
    return Run(date, commit, machine(told), table, TABLES[table].unit, found) if found else None


def read(path: Path = SERIES) -> list[Run]:
    """All runs, in the order of the file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Run(**json.loads(line)) for line in lines]


def write(runs: Iterable[Run], path: Path = SERIES) -> None:
    """One line for each run."""
    path.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs), encoding="utf-8")


def added(runs: Sequence[Run], new: Sequence[Run]) -> list[Run]:
    """The series with new runs behind it; a run of figures that are the last ones of its table is not news."""
    made = list(runs)
    for run in new:
        last = next((r for r in reversed(made) if r.table == run.table), None)
        if last is None or last.figures != run.figures:
            made.append(run)
    return made


def from_history() -> list[Run]:
    """A run for each commit of this repository that changed a table, the oldest first."""
    found: list[Run] = []
    for table in TABLES:
        name = f"tools/bench/results/{table}.json"
        log = _git("log", "--format=%H %cs", "--", name).split("\n")
        for line in filter(None, log):
            commit, date = line.split()
            text = _git("show", f"{commit}:{name}", check=False)
            run = run_of(table, text, date, commit[:10]) if text else None
            if run is not None:
                found.append(run)
    rank = {commit[:10]: n for n, commit in enumerate(reversed(_git("log", "--format=%H").split()))}
    return added([], sorted(found, key=lambda run: rank[run.commit]))


def _git(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=check, capture_output=True, text=True)
    return done.stdout


# pictures -------------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, ROW = 760, 170, 60, 14, 18
COLOURS = ("#3465a4", "#c17d11", "#4e9a06", "#a40000", "#75507b", "#06989a", "#8f5902", "#555753")


def page(runs: Sequence[Run]) -> str:
    """The series as Markdown with pictures in it: one for each table, with the figures of its first and last run."""
    parts: list[str] = []
    for table, kind in TABLES.items():
        own = [run for run in runs if run.table == table]
        if own:
            better = "More is better." if kind.rises else "Less is better."
            parts += [f"## {table}", "", f"{kind.unit.capitalize()}, on {own[-1].machine}. {better}", ""]
            parts += ["```{raw} html", svg(own), "```", "", *_table(own), ""]
    return "\n".join(parts)


def _table(runs: Sequence[Run]) -> list[str]:
    first, last = runs[0], runs[-1]
    lines = [f"| figure | {first.date} ({first.commit}) | {last.date} ({last.commit}) | best |", "|---|---|---|---|"]
    best = max if TABLES[last.table].rises else min
    for name, value in last.figures.items():
        all_of = [run.figures[name] for run in runs if name in run.figures]
        before = f"{first.figures[name]:g}" if name in first.figures else ""
        lines.append(f"| {name.replace('|', '/')} | {before} | {value:g} | {best(all_of):g} |")
    return lines


def svg(runs: Sequence[Run]) -> str:
    """The figures of one table as lines over its runs; titles name figure, run and value."""
    names = list(dict.fromkeys(name for run in runs for name in run.figures))
    top = max(value for run in runs for value in run.figures.values()) or 1.0
    step = (WIDTH - LEFT - 20) / max(1, len(runs) - 1)

    def at(n: int, value: float) -> tuple[float, float]:
        return LEFT + n * step, TOP + (HEIGHT - TOP) * (1 - value / top)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 2 * ROW}" role="img">']
    for share in (0.0, 0.5, 1.0):
        y = at(0, top * share)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8888" />')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" {_TEXT}>{top * share:.3g}</text>')
    for k, name in enumerate(names):
        colour = COLOURS[k % len(COLOURS)]
        points = [(n, run.figures[name]) for n, run in enumerate(runs) if name in run.figures]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(n, value) for n, value in points))
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" />')
        for n, value in points:
            x, y = at(n, value)
            told = escape(f"{name}: {value:g} on {runs[n].date}")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{told}</title></circle>')
    shown = range(0, len(runs), max(1, len(runs) // 8))
    for n in shown:
        x = at(n, 0.0)[0]
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT + ROW}" text-anchor="middle" {_TEXT}>{runs[n].date[5:]}</text>')
    return "".join([*parts, "</svg>"])


_TEXT = 'font-family="sans-serif" font-size="11" fill="currentColor"'


def main(arguments: Sequence[str]) -> int:
    """``add TABLE...`` or ``from-history``; exit status 2 for anything else."""
    match arguments:
        case ["from-history"]:
            write(from_history())
        case ["add", *tables] if tables and set(tables) <= set(TABLES):
            today = datetime.now(tz=UTC).date().isoformat()
            commit = _git("rev-parse", "HEAD").strip()[:10]
            texts = {table: (RESULTS / f"{table}.json").read_text(encoding="utf-8") for table in tables}
            new = [run for table in tables if (run := run_of(table, texts[table], today, commit)) is not None]
            write(added(read(), new))
        case _:
            print(f"{__doc__}\ntables: {', '.join(TABLES)}")
            return 2
    print(f"{len(read())} runs in {SERIES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
