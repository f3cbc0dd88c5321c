"""The common part of all tests: the hypothesis profiles, kernels kept between runs, slow tests first, and
skipping GPU tests where there is no GPU."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from idgraph.errors import EmitError, full_tracebacks
from idgraph.runtime.compile_workers import limit_workers
from idgraph.runtime.kernel_cache import KernelCache, keep_in
from tests.property.budget import is_nightly
from tests.quick import Quick
from tests.sample import CHOSEN, SHARE, left_out, seed_of
from tools.env import CUDA_DRIVER, ROOT, cuda_driver

# A deadline per example measures the machine, not the code; the slow-data check does too.
# Each run tries new examples, so that one run may try few; those of `ci` are the same on every run of one commit.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=30
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=100)
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2000)
settings.register_profile(  # tools/mutation.py asks whether anything fails, not for the smallest example
    "first", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("default")

full_tracebacks()  # a test that fails shows where; tests/golden/test_errors.py asks for what users see


KERNELS = ROOT / ".venv" / "kernels"
MOST = 256 << 20  # bytes of kernels that are kept


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick``: see `tests/quick.py`."""
    parser.addoption("--quick", action="store_true", help="one module in ten, within 90 seconds, with one progress bar")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels that a run has compiled are there in the next; random tests leave ever new ones, so all go at times."""
    limit_workers(0)  # the suite has a worker for each core
    if config.getoption("--quick"):
        config.pluginmanager.register(Quick(config), "idgraph-quick")
    KERNELS.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not hasattr(config, "workerinput") and sum(f.stat().st_size for f in KERNELS.iterdir()) > MOST:
        for f in KERNELS.iterdir():
            f.unlink(missing_ok=True)
    try:
        KernelCache(KERNELS).check()
    except EmitError as error:  # a checkout on a volume that everybody may write: the suite runs, each run compiles
        config.issue_config_time_warning(pytest.PytestConfigWarning(f"no kernels are kept: {error}"), 2)
        return
    keep_in(KERNELS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """The cases of a function go to one worker; a file of its own, since a run without workers may lack xdist."""
    from tests.spread import Spread

    return Spread(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """The modules and tests that are loaded stay to the end: they are not looked through for garbage again and again.

    Kernels and graphs are many small objects that live for one test, so the youngest are looked at less often too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 20, 20)


@pytest.fixture(autouse=True)
def as_many_threads() -> Generator[None]:
    """A test leaves the thread counts of numba and torch as they were: what is measured and kept is for a count."""
    before = _thread_counts()
    yield
    after = _thread_counts()
    assert {name: after[name] for name in before} == before, "the test changed a thread count"


def _thread_counts() -> dict[str, int]:
    """Of this thread, for the libraries that are loaded."""
    found: dict[str, Any] = {name: sys.modules[name] for name in ("numba", "torch") if name in sys.modules}
    return {name: int(m.get_num_threads()) for name, m in found.items() if hasattr(m, "get_num_threads")}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker tries the part of the suite that the others try."""
    node.workerinput[CHOSEN] = seed_of(node.config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """How much of the suite is tried, where that is not all."""
    if seed_of(config) is None:
        return None
    return f"one case in {SHARE} of the costly tests, others in each run; all: --hypothesis-profile ci"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests come first, so that none of them is the last of a worker; what needs a GPU is skipped where there is
    none, with the reason. Nightly tests, and laws with the night's examples, may take as long as they like. A run on
    one's own machine leaves some tests to the CI (`tests/sample.py`)."""
    seed = seed_of(config)
    if seed is not None and (others := {id(item) for item in left_out(items, seed)}):
        config.hook.pytest_deselected(items=[item for item in items if id(item) in others])
        items[:] = [item for item in items if id(item) not in others]
    for item in items:
        law = is_nightly() and hasattr(getattr(item, "obj", None), "hypothesis")
        if law or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.timeout(0))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    driver = cuda_driver()
    if driver is not None and driver >= CUDA_DRIVER:
        return
    reason = "no GPU" if driver is None else f"the driver is for CUDA {driver // 1000}, the kernels for 13"
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line for each reason how many tests want a GPU that is not there."""
    reasons = Counter(
        reason
        for r in terminalreporter.stats.get("skipped", ())
        if "gpu" in getattr(r, "keywords", ())  # a module that is skipped as a whole has none
        for reason in [str(r.longrepr[2]).removeprefix("Skipped: ")]
    )
    for reason, n in sorted(reasons.items()):
        terminalreporter.write_line(f"{n} skipped: {reason}")
