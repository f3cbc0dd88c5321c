"""Random fusions whose kernels share launches, on a GPU: every value as the definition says, beside the numpy target.

300 in one run: ``python -m pytest tests/property/test_joined_on_device.py``; ``--hypothesis-profile nightly`` runs
20 000.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import is_float
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import compare, rounding_error
from tests.property.budget import NIGHTLY
from tests.property.launches import joined_launches

PROFILE: int = settings().max_examples  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
COUNT = NIGHTLY if PROFILE > 1000 else 150
PARTS = 10
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


def run_part(fusions: st.SearchStrategy[ig.Fusion], part: int) -> None:
    """A `PARTS`-th of the fusions, so that the cores of the machine compile them at once."""

    @seed(part)
    @settings(
        max_examples=COUNT // PARTS, deadline=None, phases=[Phase.generate], database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given],
    )  # fmt: skip
    @given(fusions, st.integers(0, 1 << 16))
    def run(f: ig.Fusion, number: int) -> None:
        right(f, number)

    run()


@pytest.mark.parametrize("part", range(PARTS))
def test_joined_launches_on_the_device(part: int) -> None:
    run_part(joined_launches(max_steps=25, max_columns=700), part)


@pytest.mark.parametrize("part", range(PARTS))
def test_wide_rows_on_the_device(part: int) -> None:
    run_part(joined_launches(max_steps=8, max_columns=3000, dtypes=("float32", "float16", "bfloat16")), part)
