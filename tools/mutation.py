"""Does the suite notice? Faults planted one by one in a copy of the package, and the first test that finds each.

    python -m tools.mutation [--only NAME,...] [--jobs N] [--json FILE]

Each fault is a change of one place in the sources: a rule, a predicate, a promotion, an allocation, a claim about
vectors or banks, a barrier. The tests of `FIRST` and `SUITE` run until one fails. Prints a table; exits 1 if a fault
went unnoticed. The table of the last full run is `tools/bench/results/mutation.json`.
"""

from __future__ import annotations

import argparse
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
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tools" / "bench" / "faults.toml"

# Where a room's faults show soonest; then the laws, what is quick, and the rest.
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
    "runtime": ("tests/arith/test_tape.py", "tests/runtime/test_compile.py", "tests/golden/test_errors.py"),
    "trust": ("tests/bad_input/test_fuzz.py", "tests/emit/test_cache.py", "tests/threads"),
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


def plant(fault: Fault, into: Path) -> None:
    """A copy of package and tests with the fault in it; raises where its place is not there exactly once."""
    for part in ("idgraph", "tests", "tools"):
        shutil.copytree(ROOT / part, into / part, ignore=shutil.ignore_patterns("__pycache__", "*.ipynb"))
    shutil.copy(ROOT / "pyproject.toml", into / "pyproject.toml")
    text = fault.place(into)
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: its place stands {text.count(fault.old)} times in {fault.file}, not once")
    (into / "idgraph" / fault.file).write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def run(fault: Fault, suite: Sequence[str] = ()) -> Result:
    """Plant one fault and run the suite (all of it, unless named) until a test fails."""
    started = time.perf_counter()
    own = (fault.first,) if fault.first else ()
    suite = suite or tuple(dict.fromkeys((*own, *FIRST.get(fault.room, ()), *SUITE)))
    with tempfile.TemporaryDirectory(prefix="fault") as folder:
        plant(fault, Path(folder))
        found, message = _first_failure(Path(folder), suite)
    return Result(fault.name, fault.room, found, message, round(time.perf_counter() - started, 1))


def _first_failure(folder: Path, suite: Sequence[str]) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:randomly", "-p", "no:cacheprovider"]
    for part in suite:
        if not (folder / part.partition("::")[0]).exists():
            raise ValueError(f"{part} is not a part of the tests")
        done = subprocess.run(  # one part after the other: the laws first
            [*command, "-p", "no:xdist", "--hypothesis-profile", "first", "--no-header", part],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            seen = re.search(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", done.stdout, re.MULTILINE)
            return (seen.group(1), seen.group(2) or "") if seen else (part, done.stdout[-200:] + done.stderr[-200:])
    return "", ""


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
    given = reader.parse_args(arguments)
    wanted = [n.strip() for n in given.only.split(",") if n.strip()]
    chosen = [f for f in faults() if not wanted or any(n in f.name for n in wanted)]
    console = Console()
    with ThreadPoolExecutor(given.jobs) as pool:
        running = track(
            pool.map(run, chosen), "faults", total=len(chosen), console=console, disable=not console.is_terminal
        )
        results = list(running)
    console.print(table(results))
    if given.json:
        given.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n", encoding="utf-8")
    return 0 if all(r.found_by for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
