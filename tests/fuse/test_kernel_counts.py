"""Kernels of models' blocks, forward and backward: no more than TorchInductor makes for the same operations."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tools.programs.model_blocks import BLOCKS, counted

AGAIN = ("swin block, not shifted",)  # the other one of its kind has all of its operations, and a roll
LONG = "swin block"  # its backward graph takes longer to schedule than the graphs of all the others


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.nightly] if n in (*AGAIN, LONG) else []) for n in BLOCKS]
)
def test_no_more_kernels_than_inductor(name: str) -> None:
    rows = list(counted(name))
    assert [r["graph"] for r in rows] == ["fw", "bw"]
    for row in rows:
        assert 0 < row["idgraph"] <= row["inductor"], row


@pytest.mark.thorough
@pytest.mark.slow
def test_no_more_kernels_than_inductor_forward() -> None:
    row = next(counted(LONG))
    assert row["graph"] == "fw" and 0 < row["idgraph"] <= row["inductor"], row
