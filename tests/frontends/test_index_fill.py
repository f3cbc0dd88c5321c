"""Filled places count from the end where they are negative; places outside are errors."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import idgraph as ig

torch: Any = importlib.import_module("torch")


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("places", [[0, -1, 2], [-3], [], [1, 1]])
def test_index_fill(dim: int, places: list[int]) -> None:
    x, index = torch.arange(15.0).view(3, 5), torch.tensor(places, dtype=torch.int64)

    def program(x: Any, index: Any) -> Any:
        return (
            x.index_fill(dim, index, 9.0),
            x.clone().index_fill_(dim, index, torch.tensor(7)),
            x.long().index_fill(dim, index, 3),
        )

    found = ig.from_torch(program, (x, index)).run(x, index, target="numpy")
    torch.testing.assert_close(found, program(x, index))


def test_a_place_outside() -> None:
    def program(x: Any, index: Any) -> Any:
        return x.index_fill(0, index, 9.0)

    args = torch.zeros(5), torch.tensor([1])
    imported = ig.from_torch(program, args)
    for place in (-6, 5):
        with pytest.raises(ig.IdGraphError, match="outside axis"):
            imported.run(torch.zeros(5), torch.tensor([place]), target="numpy")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("other", ["int8", "int32", "int64", "uint8"])
def test_ldexp_of_integers_and_a_short_float(dtype: str, other: str) -> None:
    x, power = (
        torch.tensor([100, 50, 3, 7], dtype=getattr(torch, other)),
        torch.tensor(2.0, dtype=getattr(torch, dtype)),
    )
    found = ig.from_torch(torch.ldexp, (x, power)).run(x, power, target="numpy")
    torch.testing.assert_close(found, torch.ldexp(x, power))
