"""Shifts by tensors and numbers, also by less than none and by more bits than there are."""

from __future__ import annotations

import operator
from typing import Any

import pytest

import idgraph as ig

torch: Any = pytest.importorskip("torch")


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", ["lshift", "rshift"])
def test_shifts_are_torchs(name: str, dtype: str, target: str) -> None:
    kind, shift = getattr(torch, dtype), getattr(operator, name)
    info = torch.iinfo(kind)
    x = torch.tensor([info.min, info.max, 0, 1, 2, 7, 100, 37], dtype=kind)
    by = torch.arange(-2 if dtype != "uint8" else 0, 70)[:, None].to(kind)

    def shifted(x: Any, by: Any) -> Any:
        return shift(x, by)

    assert torch.equal(torch.as_tensor(ig.from_torch(shifted, (x, by)).run(x, by, target=target)), shifted(x, by))


def test_packed_numbers_are_unpacked_without_powers() -> None:
    """Powers and divisions of 64-bit integers took ten times as long as the shift."""

    def unpacked(q: Any) -> Any:
        return ((q[..., None] >> torch.arange(0, 32, 4, dtype=torch.int32)) & 15).to(torch.int8).flatten(-2)

    f = ig.from_torch(unpacked, (torch.zeros(64, 32, dtype=torch.int32),)).fusion
    ig.schedule.auto(f)
    source = ig.emit(f, target="cuda").source
    assert ">>" in source
    assert "power" not in source
    assert "divide" not in source
