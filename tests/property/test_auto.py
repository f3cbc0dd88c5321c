"""`schedule.auto` takes every legal fusion: what it makes is legal, is emitted for every target, and is right."""

from __future__ import annotations

from hypothesis import given, note, settings

import idgraph as ig
from idgraph.ir import Fusion
from idgraph.testing import fusions
from idgraph.validate import check_addresses, check_values, random_inputs
from tests.property.budget import examples


@settings(max_examples=examples(60))
@given(fusions(max_steps=8))
def test_auto_refuses_no_fusion(f: Fusion) -> None:
    note(str(f))
    inputs = random_inputs(f, 0, {})
    ig.schedule.auto(f)
    for target in ("cpu", "cuda"):
        ig.emit(f, target=target)
    addresses = check_addresses(f, inputs=inputs)
    assert addresses.ok, str(addresses.mismatch)
    values = check_values(f, "numpy", inputs=inputs)
    assert values.ok, str(values.mismatch)
