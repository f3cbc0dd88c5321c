"""L1: at every point of its loops, every access has the element that the operation's definition says.

L8 rides along: a predicate is true exactly where the element exists, and every element is visited once.
"""

from __future__ import annotations

from hypothesis import given, reject, settings

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.testing import scheduled_fusions
from idgraph.validate import check_addresses, check_values
from tests.property.budget import examples
from tests.property.legal import model_of


@settings(max_examples=examples(500))
@given(scheduled_fusions())
def test_index_maps_say_what_the_operations_do(f: Fusion) -> None:
    """Exhaustively, on random fusions with random schedules."""
    report = check_addresses(f, model=model_of(f))
    assert report.ok, str(report.mismatch)
    assert report.exhaustive


@settings(max_examples=examples(50))
@given(scheduled_fusions(max_steps=4))
def test_kernels_compute_what_the_operations_say(f: Fusion) -> None:
    """The same fusions, emitted and run."""
    model_of(f)
    for target in ("python", "numpy"):
        try:
            report = check_values(f, target)
        except ig.ScheduleError:
            reject()
        assert report.ok, f"{target}: {report.mismatch}"
