"""The laws on many random fusions, on all cores, for a given time.

    python -m tools.bench.laws [--laws like,auto,...] [--examples 5000] [--jobs 16] [--seconds 80] [--seed 0]

Each process draws examples of its own seeds (others with another ``--seed``), a few at a time, until all of a law's
share are done or the time is over; laws take turns. Prints how many examples of each law were run and every failure
with its fusion; exits 1 after one.
A failure is reported as the smallest fusion that fails in the same way, which may take minutes; with ``--as-drawn`` as
it came.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

# The test of each law, which has its strategies.
LAWS = {
    "like": "tests.property.test_like:test_like_leaves_nothing_that_is_refused",
    "auto": "tests.property.test_auto:test_auto_refuses_no_fusion",
    "inlining": "tests.property.test_like:test_inlining_leaves_nothing_that_is_refused",
    "L1": "tests.property.test_l1_soundness:test_index_maps_say_what_the_operations_do",
    "L2": "tests.property.test_l2_l4_coordinates:test_only_shared_loops_lead_from_one_operation_to_another",
    "L3": "tests.property.test_l3_acyclic:test_legal_schedules_have_no_shift",
    "L4": "tests.property.test_l2_l4_coordinates:test_nodes_of_one_group_have_equal_values",
    "rings": "tests.property.test_rings_whole:test_what_numpy_moves_round_is_told",
    "device": "tests.property.test_on_device:test_values_of_random_fusions",
    "moved": "tests.property.test_on_device:test_values_of_moved_arrays",
    "aligned": "tests.property.test_aligned:test_nothing_is_left_out_without_need",
}
ON_DEVICE = ("device", "moved")  # need a GPU
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
CHUNK = 20  # examples of one turn


def law(name: str, examples: int, begin: int, *, as_drawn: bool) -> Callable[[], None]:
    """The test of a law, to be run with so many examples of a seed."""
    module, _, test = LAWS[name].partition(":")
    found: Any = getattr(importlib.import_module(module), test)
    phases = (Phase.generate,) if as_drawn else tuple(Phase)
    some = settings(max_examples=examples, database=None, deadline=None, suppress_health_check=CHECKS, phases=phases)
    found._hypothesis_internal_use_settings = some  # the test brings settings of its own, which no decorator replaces
    return seed(begin)(found)


def work(job: tuple[int, tuple[str, ...], int, float, bool]) -> tuple[Counter[str], list[str]]:
    """Examples of each law by one process, and what failed."""
    number, names, share, until, as_drawn = job
    sys.path.insert(0, str(ROOT))
    done, failed = Counter[str](), list[str]()
    turn = 0
    while any(done[n] < share for n in names) and time.time() < until:
        for name in names:
            if done[name] >= share or time.time() >= until:
                continue
            begin = number * 1_000_003 + turn
            try:
                law(name, CHUNK, begin, as_drawn=as_drawn)()
            except Exception:
                told = traceback.format_exc().splitlines()
                failed.append(f"{name}, seed {begin}:\n" + "\n".join(told[-40:]))
            done[name] += CHUNK
        turn += 1
    return done, failed


def main() -> int:
    """Run, print one table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", default=",".join(n for n in LAWS if n not in ON_DEVICE))
    parser.add_argument("--examples", type=int, default=5_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--seed", type=int, default=0, help="number of the first process, from which seeds are counted")
    parser.add_argument("--as-drawn", action="store_true", help="tell failures as they are drawn, not the smallest")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = tuple(options.laws.split(","))
    if unknown := [n for n in names if n not in LAWS]:
        parser.error(f"no laws: {', '.join(unknown)}; there are {', '.join(LAWS)}")
    share = -(-options.examples // options.jobs)
    numbers = range(options.seed, options.seed + options.jobs)
    jobs = [(k, names, share, time.time() + options.seconds, options.as_drawn) for k in numbers]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(work, jobs))
    done = sum((d for d, _ in found), Counter[str]())
    failed = [text for _, texts in found for text in texts]
    out = Console(width=120)
    table = Table(title="laws on random fusions", title_justify="left")
    for column in ("law", "examples", "failures"):
        table.add_column(column)
    for name in names:
        table.add_row(name, str(done[name]), str(sum(text.startswith(f"{name},") for text in failed)))
    for text in failed[:5]:
        out.print(text, markup=False, highlight=False)
    out.print(table)
    if options.json is not None:
        rows = {"examples": dict(done), "failures": failed}
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
