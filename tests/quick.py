"""``--quick``: as much of the suite as fits into a time, one progress bar, and what was left out in one line.

Every module's first test comes before any module's second, in the random order of the run, so that a run that ends
early has tried all of the package a little, and the next run tries other tests.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from itertools import chain, zip_longest
from typing import Any

import pytest

SECONDS = 78  # from the start to the last test that begins; that one and the report take the rest of 90
UNTIL = "idgraph_until"  # the key under which workers hear the end
LEFT_OUT = f"not within {SECONDS} s of a quick run"
WIDTH = 40  # characters of the bar


def arranged(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first tests of all modules, then the second ones, and so on; cases of one function stay together."""
    modules: dict[object, dict[str, list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        name = item.nodeid.partition("[")[0]
        modules[item.nodeid.partition("::")[0]].setdefault(name, []).append(item)
    rounds = zip_longest(*(list(functions.values()) for functions in modules.values()), fillvalue=[])
    return list(chain.from_iterable(chain.from_iterable(rounds)))


class Quick:
    """The plugin of one process: the one that reports, or a worker."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] | None = getattr(config, "workerinput", None)
        self.began = time.time()
        self.until: float = self.began + SECONDS if given is None else given[UNTIL]
        self.reports = given is None
        self.total = self.done = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker ends when the others do."""
        node.workerinput[UNTIL] = self.until

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """One test of each module first."""
        items[:] = arranged(items)
        self.total = len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The number of tests, which only workers collect."""
        self.total = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Nothing begins when the time is up."""
        if time.time() > self.until:
            pytest.skip(LEFT_OUT)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No letters: the bar stands for them. A failure keeps its own."""
        if report.when == "call" and report.passed:
            return "passed", "", ""
        if report.skipped and report.when in ("setup", "call"):
            return ("left out" if str(report.longrepr).find(LEFT_OUT) >= 0 else "skipped"), "", ""
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """One test more is done."""
        if self.reports and report.when == "teardown":
            self.done += 1
            if sys.stderr.isatty() and (self.done % 10 == 0 or self.done == self.total):
                sys.stderr.write("\r" + bar(self.done, self.total, time.time() - self.began))
                sys.stderr.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was left out."""
        left = len(terminalreporter.stats.get("left out", ()))
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        if left:
            terminalreporter.write_line(f"{left} left to the whole suite (tools/test): {LEFT_OUT}")


def bar(done: int, total: int, seconds: float) -> str:
    """The bar as it stands.

    >>> bar(5, 10, 3.2)
    '[####################                    ] 5 of 10 tests, 3 s'
    """
    filled = WIDTH * done // max(total, 1)
    return f"[{'#' * filled}{' ' * (WIDTH - filled)}] {done} of {total} tests, {seconds:.0f} s"
