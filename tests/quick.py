"""``--quick``: one module in ten of each folder of tests, others in each run, within a time and with one progress bar.

Modules for a GPU are a group by themselves. Only the modules taken are imported: that takes most of the time of a short
run. Every module's first test comes before any module's second, in the random order of the run, so that a run on a busy
machine, which ends early, has tried all of them a little. A run that names files or tests takes all that it names.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pytest

SECONDS = 70  # from the start to the last test that begins; that one and the report take the rest of 90
SHARE = 10  # one module in so many, at least one of each group
RUN = "idgraph_quick"  # the key under which workers hear the end of the time and the seed
WIDTH = 40  # characters of the bar


def groups(modules: Iterable[Path]) -> dict[str, list[Path]]:
    """Modules by folder, those with tests that want a GPU by themselves."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(modules):
        found[path.parent.name + " on a GPU" * ("pytest.mark.gpu" in path.read_text(encoding="utf-8"))].append(path)
    return found


def chosen(modules: Mapping[str, Sequence[Path]], seed: object) -> set[Path]:
    """The modules of a run, of each group some: the same ones for one seed.

    >>> tests = {"a": [Path(f"tests/a/test_{n}.py") for n in range(12)], "b": [Path("tests/b/test_0.py")]}
    >>> [len([x for x in chosen(tests, 1) if x.parent.name == folder]) for folder in "ab"]
    [2, 1]
    """
    return {x for name, of in modules.items() for x in Random(f"{seed} {name}").sample(of, -(-len(of) // SHARE))}


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
        self.until, self._seed = (self.began + SECONDS, None) if given is None else given[RUN]
        self.reports = given is None
        self.total = self.done = 0
        self._modules: set[Path] | None = None

    def _of_run(self, config: pytest.Config) -> set[Path]:
        """The modules of this run; the seed is known only after all plugins are there."""
        if self._modules is None:
            self._seed = config.getoption("randomly_seed", 0) if self._seed is None else self._seed
            roots = [config.rootpath / name for name in config.getini("testpaths")]
            self._modules = chosen(groups(x for root in roots for x in root.rglob("test_*.py")), self._seed)
        return self._modules

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker ends when the others do, and takes the same modules."""
        self._of_run(node.config)
        node.workerinput[RUN] = self.until, self._seed

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """A module that this run does not take is not imported."""
        if config.args_source is pytest.Config.ArgsSource.ARGS or config.getoption("keyword"):
            return None
        module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
        return True if module and collection_path not in self._of_run(config) else None

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
    def pytest_runtest_protocol(self) -> bool | None:
        """Nothing begins when the time is up; it has no report either, which takes longer than many a test."""
        return True if time.time() > self.until else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No letters: the bar stands for them. A failure keeps its own."""
        if report.when == "call" and report.passed:
            return "passed", "", ""
        if report.skipped and report.when in ("setup", "call"):
            return "skipped", "", ""
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
        """What the end of the time left out."""
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        if self.done < self.total and time.time() > self.until:
            left = self.total - self.done
            terminalreporter.write_line(f"{left} not begun within {SECONDS} s; all tests: tools/test")


def bar(done: int, total: int, seconds: float) -> str:
    """The bar as it stands.

    >>> bar(5, 10, 3.2)
    '[####################                    ] 5 of 10 tests, 3 s'
    """
    filled = WIDTH * done // max(total, 1)
    return f"[{'#' * filled}{' ' * (WIDTH - filled)}] {done} of {total} tests, {seconds:.0f} s"
