"""The common part of all tests: the hypothesis profiles, and skipping GPU tests where there is no GPU."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from idgraph.errors import full_tracebacks
from tools.env import CUDA_DRIVER, cuda_driver

# A deadline per example measures the machine, not the code; the slow-data check does too.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True
)  # the same verdict on the same commit
settings.register_profile("nightly", settings.get_profile("default"), max_examples=2000)
settings.register_profile(  # tools/mutation.py asks whether anything fails, not for the smallest example
    "first", settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("default")

full_tracebacks()  # a test that fails shows where; tests/golden/test_errors.py asks for what users see


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, with the reason."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    driver = cuda_driver()
    if driver is not None and driver >= CUDA_DRIVER:
        return
    reason = "no NVIDIA GPU" if driver is None else f"the driver is for CUDA {driver // 1000}, the kernels for 13"
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason=reason))
