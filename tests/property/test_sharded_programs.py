"""Programs of devices: random fusions with random placements give the values of the fusion without devices.

A device has no array but those of what it holds and of what was moved to it: a step that is told to be local and is
not would compute with zeros. The expected values are the oracle's, which knows no device.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.testing import fusions
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import random_inputs
from tests.property.budget import examples

MESHES = ({"x": 2}, {"x": 3}, {"x": 4}, {"x": 2, "y": 2}, {"x": 3, "y": 2}, {"x": 2, "y": 2, "z": 2})
PARTIALS = {"sum": "sum", "matmul": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@st.composite
def placed_fusions(draw: st.DrawFn) -> ig.Fusion:
    """A fusion, some of whose tensors are sharded."""
    f = draw(fusions(max_steps=4))
    f.mesh = ig.Mesh(**draw(st.sampled_from(MESHES)))
    for t in f.tensors:
        if t.ndim and (t.definition is None or draw(st.integers(0, 3)) == 0):
            t.replicate()
            for over in draw(st.permutations(list(f.mesh.sizes))):
                if draw(st.booleans()):
                    t.shard(draw(st.integers(0, t.ndim - 1)), over, inner=draw(st.integers(0, 3)) == 0)
        e = t.definition
        if e is not None and e.op in PARTIALS and t.placement is None and draw(st.booleans()):
            t.partial(draw(st.sampled_from(list(f.mesh.sizes))), PARTIALS[e.op])
    return f


@settings(max_examples=examples(200), deadline=None)
@given(placed_fusions(), st.integers(0, 5))
def test_devices_compute_what_one_device_computes(f: ig.Fusion, seed: int) -> None:
    inputs = random_inputs(f, seed=seed)
    try:
        run = ig.shard.emit(f)
    except ig.MeshError as refused:
        if "is not a partial" not in str(refused):  # of what is not sharded there, or of another reduction
            raise
        reject()
    found = run.run(inputs)
    expected = evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(
            found[t.name].astype(np.float64), np.asarray(expected[t.name], np.float64), rtol=2e-4, atol=2e-4
        )


@pytest.mark.parametrize("over", ["x"])
def test_moves_are_those_that_are_told(over: str) -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=4)
    x = f.input("x", shape=(16, 3)).shard(0, over)
    y = f.output(ig.roll(x, 1, 0)).shard(0, over)
    run = ig.shard.emit(f)
    exchange = run.steps[0]
    assert isinstance(exchange, ig.shard.Exchange)
    sent = [(int(a), int(b)) for a, b in zip(exchange.source, exchange.destination, strict=True)]
    assert sorted(set(sent)) == [(0, 1), (1, 2), (2, 3), (3, 0)] and len(sent) == 4 * 3
    data = np.arange(48, dtype=np.float32).reshape(16, 3)
    np.testing.assert_array_equal(run.run({"x": data})[y.name], np.roll(data, 1, 0))
