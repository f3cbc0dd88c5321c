"""Does the suite notice? Faults planted one by one in a copy of the package, and the first test that finds each.

    python -m tools.mutation [--only NAME,...] [--jobs N] [--json FILE [--rest]]

Each fault is a change of one place in the sources: a rule, a predicate, a promotion, an allocation, a claim about
vectors or banks, a barrier. The tests of `FIRST` and `SUITE` run until one fails; at the end those that failed run
without a fault, where they must pass. Prints a table; exits 1 if a fault went unnoticed. FILE gets each result as it
comes and keeps those of other faults; `--rest` runs only the faults that it does not have yet, or has of another
change. That of all is `tools/bench/results/mutation.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tools" / "bench" / "faults.toml"
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - (.*))?$", re.MULTILINE)
PART_S = 900  # a part of the suite that takes longer hangs

# Where a package's faults show soonest; then the laws, what is quick, and the rest.
FIRST = {
    "coordinates": ("tests/index/test_field_forms.py",),
    "rules": ("tests/arith/test_rules.py", "tests/index/test_field_forms.py"),
    "predicates": ("tests/index/test_field_forms.py", "tests/index/test_classic_forms.py"),
    "promotion": (
        "tests/graphs/test_promotion.py",
        "tests/graphs/test_index_graph.py",
        "tests/schedule/test_schedule.py",
    ),
    "allocation": ("tests/index",),
    "claims": ("tests/index/test_widths.py", "tests/index/test_banks.py"),
    "check": ("tests/check/test_doubt.py", "tests/check/test_program.py"),
    "showing": ("tests/golden/test_errors.py", "tests/ir/test_text.py"),
    "pictures": ("tests/index/test_access_pictures.py",),
    "cycles": ("tests/graphs/test_cycles.py", "tests/graphs/test_cycles_by_force.py"),
    "aligned": ("tests/graphs/test_aligned.py", "tests/property/test_aligned.py"),
    "barriers": ("tests/emit/test_shared_memory.py",),
    "inverses": ("tests/arith/test_maps.py", "tests/property/test_inverses.py"),
    "sizes": ("tests/emit/test_sizes.py", "tests/emit/test_special_numbers.py"),
    "schedule": ("tests/schedule/test_windows_once.py", "tests/schedule/test_row_rule.py"),
    "sharing": (
        "tests/graphs/test_same_loop.py",
        "tests/schedule/test_hints.py",
        "tests/schedule/test_resize_to_inputs.py",
        "tests/property/test_same_loop_by_force.py",
    ),
    "algebra": (
        "tests/arith/test_bits.py",
        "tests/arith/test_residues.py",
        "tests/arith/test_expected_maps.py",
        "tests/arith/test_facts.py",
        "tests/index/test_known_indices.py",
    ),
    "storage": ("tests/graphs/test_storage.py", "tests/graphs/test_valgraph_rules.py"),
    "cost": ("tests/cost",),
    "fusion": ("tests/fuse", "tests/schedule/test_one_hot.py"),
    "passes": ("tests/validate/test_kernels.py", "tests/kernel/test_verify.py"),
    "formats": ("tests/layout", "tests/schedule/test_follow.py", "tests/emit/test_interchange.py"),
    "runtime": (
        "tests/runtime/test_branchless.py",
        "tests/arith/test_tape.py",
        "tests/runtime/test_compile.py",
        "tests/golden/test_errors.py",
    ),
    "trust": ("tests/bad_input/test_fuzz.py", "tests/emit/test_cache.py", "tests/threads"),
    "frontends": ("tests/frontends",),
    "shard": ("tests/shard",),
    "ir": ("tests/ir",),
}
SUITE = (
    "tests/property/test_l1_soundness.py",
    "tests/property/test_l9_claims.py",
    "tests/property/test_l2_l4_coordinates.py",
    "tests/property/test_l5_refinement.py",
    "tests/index",
    "tests/graphs",
    "tests/arith",
    "tests/emit/test_shared_memory.py",
    "tests/emit/test_schedules.py",
    "tests/mutation/test_planted.py",
    "tests/validate",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """``old`` becomes ``new`` at its only place in ``file`` of the package. ``first`` is the test to begin with."""

    name: str
    room: str
    file: str
    old: str
    new: str
    first: str = ""

    def place(self, root: Path = ROOT) -> str:
        """The text of the file."""
        return (root / "idgraph" / self.file).read_text(encoding="utf-8")

    @property
    def change(self) -> str:
        """A short digest of the change: a result of another change is not this fault's."""
        return hashlib.sha256("\0".join((self.file, self.old, self.new)).encode()).hexdigest()[:12]


def faults() -> tuple[Fault, ...]:
    """Those of `FILE`."""
    return tuple(Fault(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["fault"])


@dataclass(frozen=True, slots=True)
class Result:
    """The fate of one fault: ``found_by`` is the first failing test, empty where none failed."""

    name: str
    room: str
    found_by: str
    message: str
    seconds: float
    change: str = ""


def copied(into: Path) -> None:
    """A copy of package, tests and tools; the package with its bytecode, which Python checks against the sources."""
    for part in ("idgraph", "tests", "tools"):
        left_out = ("*.ipynb",) if part == "idgraph" else ("*.ipynb", "__pycache__")
        shutil.copytree(ROOT / part, into / part, ignore=shutil.ignore_patterns(*left_out))
    shutil.copy(ROOT / "pyproject.toml", into / "pyproject.toml")


def plant(fault: Fault, into: Path) -> None:
    """`copied` with the fault in it; raises where its place is not there exactly once."""
    copied(into)
    text = fault.place(into)
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: its place stands {text.count(fault.old)} times in {fault.file}, not once")
    for compiled in (into / "idgraph" / fault.file).parent.glob(f"__pycache__/{Path(fault.file).stem}.*"):
        compiled.unlink()
    (into / "idgraph" / fault.file).write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def run(fault: Fault, suite: Sequence[str] = ()) -> Result:
    """Plant one fault and run the suite (all of it, unless named) until a test fails."""
    started = time.perf_counter()
    own = (fault.first,) if fault.first else ()
    suite = suite or tuple(dict.fromkeys((*own, *FIRST.get(fault.room, ()), *SUITE)))
    with tempfile.TemporaryDirectory(prefix="fault") as folder:
        plant(fault, Path(folder))
        found, message = _first_failure(Path(folder), suite)
    return Result(fault.name, fault.room, found, message, round(time.perf_counter() - started, 1), fault.change)


def _first_failure(folder: Path, suite: Sequence[str]) -> tuple[str, str]:
    for part in suite:  # one part after the other: the laws first
        if not (folder / part.partition("::")[0]).exists():
            raise ValueError(f"{part} is not a part of the tests")
        try:
            done = _pytest(folder, "-x", part, limit=PART_S)
        except subprocess.TimeoutExpired:
            return part, f"over {PART_S} s"
        if done.returncode:
            seen = FAILED.search(done.stdout)
            return (seen.group(1), seen.group(2) or "") if seen else (part, done.stdout[-200:] + done.stderr[-200:])
    return "", ""


def _pytest(folder: Path, *arguments: str, limit: float | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "--hypothesis-profile", "first", "--no-header", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=limit
    )


def failing_anyway(tests: Sequence[str]) -> set[str]:
    """Those of ``tests`` that fail in a copy without a fault: they find nothing."""
    if not tests:
        return set()
    with tempfile.TemporaryDirectory(prefix="sound") as folder:
        copied(Path(folder))
        done = _pytest(Path(folder), *dict.fromkeys(tests))
    if done.returncode not in {0, 1}:
        raise ValueError(f"the tests that found faults do not run by themselves: {done.stdout[-1000:]}")
    return {seen.group(1) for seen in FAILED.finditer(done.stdout)}


def stored(file: Path) -> list[Result]:
    """The results in a file that are of today's faults."""
    if not file.exists():
        return []
    changes = {f.name: f.change for f in faults()}
    rows = [Result(**row) for row in json.loads(file.read_text(encoding="utf-8"))]
    return [r for r in rows if changes.get(r.name) == r.change]


def store(file: Path, results: Sequence[Result]) -> None:
    """Results beside those that the file has of other faults, in the order of the faults."""
    kept = {r.name: r for r in (*stored(file), *results)}
    rows = [asdict(kept[f.name]) for f in faults() if f.name in kept]
    made = file.with_suffix(".part")
    made.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    made.replace(file)


def table(results: Sequence[Result]) -> Table:
    """The results as a table."""
    made = Table(title=f"{sum(bool(r.found_by) for r in results)} of {len(results)} planted faults found")
    for column in ("fault", "in", "found by", "s"):
        made.add_column(column)
    for r in results:
        made.add_row(r.name, r.room, r.found_by.removeprefix("tests/") or "[red]NOBODY[/red]", str(r.seconds))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run faults; 0 where all were found."""
    reader = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    reader.add_argument("--only", default="", help="names of faults, comma-separated")
    reader.add_argument("--jobs", type=int, default=1)
    reader.add_argument("--json", type=Path)
    reader.add_argument("--rest", action="store_true", help="only those that the JSON file does not tell yet")
    given = reader.parse_args(arguments)
    if given.rest and not given.json:
        reader.error("--rest needs --json FILE")
    wanted = [n.strip() for n in given.only.split(",") if n.strip()]
    told = {r.name for r in stored(given.json)} if given.rest else set[str]()
    chosen = [f for f in faults() if f.name not in told and (not wanted or any(n in f.name for n in wanted))]
    console = Console()
    results: list[Result] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        running = pool.map(run, chosen)
        shown = not console.is_terminal
        for result in track(running, "faults", total=len(chosen), console=console, disable=shown):
            results.append(result)
            if given.json:
                store(given.json, results)
    for name in sorted(failing_anyway([r.found_by for r in results if "::" in r.found_by])):
        console.print(f"{name} fails without a fault too")
        results = [replace(r, found_by="") if r.found_by == name else r for r in results]
    if given.json:
        store(given.json, results)
    console.print(table(results))
    return 0 if all(r.found_by for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
