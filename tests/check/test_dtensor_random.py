"""Random numbers of DTensors: each element has its own, on whichever devices it is, or the row says which has not.

The places in the generators are counted by hand: on CUDA part p of a sharded tensor starts p * (elements of the first
part) behind, rounded up to fours; all devices go on behind the whole tensor, rounded up as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

import idgraph as ig

Fn = Callable[..., Any]
X2, X8, XY = ig.Mesh(x=2), ig.Mesh(x=8), ig.Mesh(x=2, y=2)


def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


def drawn_twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand_like(x), torch.rand_like(y)


def waited(x: torch.Tensor) -> torch.Tensor:
    return x.clone().exponential_()


def picked(x: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(x, 2)


def both_dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return dropped(x).sum() + dropped(y) * 2


def fused(x: torch.Tensor) -> torch.Tensor:
    return torch.native_dropout(x, 0.5, True)[0] * 2


# function, shape, mesh, placements, kind of devices; the operation that is wrong, and what is said of it
CASES: Mapping[str, tuple[Fn, tuple[int, ...], ig.Mesh, Mapping[str, Sequence[str]], Any, str, str]] = {
    "rows on two GPUs": (dropped, (8, 4), X2, {"x": ["S(0)"]}, "cuda", "", ""),
    "a mask and what it leaves": (fused, (8, 4), X2, {"x": ["S(1)"]}, "cuda", "", ""),
    "replicas": (dropped, (8, 4), X2, {"x": ["R"]}, "cuda", "", ""),
    "uneven rows, then replicas": (both_dropped, (11,), ig.Mesh(x=3), {"x": ["S(0)"]}, "cuda", "", ""),
    # 0, 4, 4, 4, 4, 8, 8, 8: parts of one element each
    "parts of one element": (
        dropped, (8,), X8, {"x": ["S(0)"]}, "cuda", "bernoulli_",
        "rank 2 draws the random number for element [2] that rank 1 for element [1] draws",
    ),
    "two tensors": (drawn_twice, (9,), X2, {"x": ["S(0)"], "y": ["R"]}, "cuda", "", ""),  # 0, 8, the end at 12
    # 0, 4, 8, the end at 8: element 6 of the first, element 0 of the second
    "a part that begins where the next tensor does": (
        drawn_twice, (7,), ig.Mesh(x=3), {"x": ["S(0)"], "y": ["R"]}, "cuda", "rand_like",
        "draws a random number for element [0] that an operation before drew",
    ),
    # the first part is taken for 4 rows, sharded twice it has 2: parts at 0, 32, 64 and 96, the end at 64
    "an axis that is sharded twice": (
        drawn_twice, (8, 8), XY, {"x": ["S(0)", "S(0)"], "y": ["R", "R"]}, "cuda", "rand_like",
        "draws a random number for element [0, 0] that an operation before drew",
    ),
    "an operation that DTensor does not know": (
        waited, (8, 4), X2, {"x": ["S(0)"]}, "cuda", "exponential_",
        "rank 1 draws the random number for element [4, 0] that rank 0 for element [0, 0] draws",
    ),
    "rows that are picked": (picked, (8, 4), X2, {"x": ["S(0)"]}, "cuda", "multinomial", "element [4, 0]"),
    "replicas of what DTensor does not know": (waited, (8, 4), X2, {"x": ["R"]}, "cuda", "", ""),
    "rows on two CPUs": (
        dropped, (6, 2), X2, {"x": ["S(0)"]}, "cpu", "bernoulli_",
        "rank 1 draws the random number for element [3, 0] that rank 0 for element [0, 0] draws",
    ),
    "replicas on CPUs": (dropped, (6, 2), X2, {"x": ["R"]}, "cpu", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_element_has_a_number_of_its_own(name: str) -> None:
    fn, shape, mesh, placements, device, operation, said = CASES[name]
    args = [torch.rand(*shape) + 1 for _ in range(fn.__code__.co_argcount)]
    r = ig.check.dtensor(fn, args, mesh=mesh, placements=placements, device=device)
    assert {row.verdict for row in r.rows} <= {"local", "communication", "wrong"}
    assert [row.operation for row in r.wrong][-1:] == ([operation] if operation else [])
    assert not operation or said in str(r.wrong[-1].witness)


def test_cpus_that_drew_for_parts_of_different_size() -> None:
    """Three numbers and two: an operation may take more of a generator than it has elements, and in blocks."""
    args, placed = (torch.rand(5), torch.rand(5)), {"x": ["S(0)"], "y": ["R"]}
    r = ig.check.dtensor(drawn_twice, args, mesh=X2, placements=placed, device="cpu")
    assert [row.verdict for row in r.rows] == ["wrong", "unknown"] and "different size" in r.rows[1].because


def test_a_kind_of_devices_that_is_none() -> None:
    other: Any = "cpus"
    with pytest.raises(ig.check.CheckError, match="kind of device"):
        ig.check.dtensor(dropped, (torch.rand(4),), mesh=X2, placements={"x": ["S(0)"]}, device=other)
