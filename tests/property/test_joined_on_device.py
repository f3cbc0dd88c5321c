"""Random fusions whose kernels share launches, on a GPU: every value as the definition says, beside the numpy target.

300 in one run: ``python -m pytest -n 0 tests/property/test_joined_on_device.py``; ``--hypothesis-profile nightly`` runs
20 000.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import is_float
from idgraph.testing import joined_launches
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.property.budget import NIGHTLY

PROFILE: int = settings().max_examples  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
COUNT = NIGHTLY if PROFILE > 1000 else 150
pytestmark = pytest.mark.gpu


def right(f: ig.Fusion, seed: int) -> None:
    """Both targets beside the definition of the fusion as it was before `auto`."""
    note(str(f))
    inputs: dict[str, Any] = random_inputs(f, seed)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want, exact = evaluate(f, inputs, {}), evaluate(f, inputs, {}, rounded=False)
        ig.schedule.auto(f)
        for target in ("numpy", "cuda"):
            got = ig.emit(f, target).run(inputs, poison=True)
            for t in f.outputs:
                slack = rounding_error(want[t.name], exact[t.name]) if is_float(t.dtype) else 0.0
                found = compare(t.name, t.dtype, np.asarray(got[t.name]), want[t.name], slack)
                assert found.mismatch is None, f"{target}: {found.mismatch}"


@settings(
    max_examples=COUNT, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(joined_launches(max_steps=25, max_columns=700), st.integers(0, 1 << 16))
def test_joined_launches_on_the_device(f: ig.Fusion, seed: int) -> None:
    right(f, seed)


@settings(
    max_examples=COUNT, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(joined_launches(max_steps=8, max_columns=3000, dtypes=("float32", "float16", "bfloat16")), st.integers(0, 9))
def test_wide_rows_on_the_device(f: ig.Fusion, seed: int) -> None:
    right(f, seed)
