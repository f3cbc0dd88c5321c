"""Every way to take a gather or a scatter computes the same, on random fusions of gathers, resizes and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, note, settings

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.ir.op_table import GATHERS
from idgraph.rewrite.gather_strategy import Force
from idgraph.testing import fusions
from idgraph.validate import check_addresses, random_inputs
from idgraph.validate.oracle import evaluate

PROFILE = settings().max_examples  # 100; 2000 in the nightly profile
WAYS: tuple[Force, ...] = (None, "recompute", "predicate", "one-hot")
STEPS = (
    "unary", "binary", "slice", "pad", "cat", "rotate", "reduce", "normalise", "permute", "reshape", "expand", "flip",
    "roll", "gather", "take_along_dim", "index_select", "embedding", "scatter", "scatter_add", "index_put",
)  # fmt: skip


def close(found: Any, wanted: Any) -> bool:
    """Equal but for the rounding of sums in another order."""
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    return np.allclose(found, wanted, rtol=1e-4, atol=2e-5 * scale, equal_nan=True)


@settings(max_examples=PROFILE // 2)
@given(fusions(steps=STEPS))
def test_all_ways_agree(f: Fusion) -> None:
    """The rewritten fusion against the one it was made of, by the oracle; its addresses at every point."""
    text = str(f)
    note(text)
    inputs = random_inputs(f, 0)
    want = evaluate(f, inputs)
    for way in WAYS:
        g = ig.parse(text)
        try:
            plan = ig.schedule.gather_plan(g, way)
        except ig.ScheduleError as error:
            assert "impossible" in str(error)  # noqa: PT017 - most ways are possible
            continue
        assert str(g) == text
        assert [d.tensor for d in plan] == [e.output.name for e in g.exprs if e.op in GATHERS]
        ig.schedule.apply_gather_plan(g, plan)
        if way is None:
            ig.schedule.apply_scatter_plan(g, ig.schedule.scatter_plan(g))
        g.verify()
        assert ig.parse(str(g)) == g
        got = evaluate(g, inputs)
        assert all(close(got[name], value) for name, value in want.items()), way
        if way is None:
            report = check_addresses(g, inputs=inputs)
            assert report.ok, report.mismatch
