"""Programs that TorchInductor lowers rightly, found by random programs: none of their rows is refuted.

What differs in them is rounding that a jump makes visible (a remainder, the place of the largest), what is read in
place of an element that is known (an updated argument that holds a constant there), and places among one element.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
from idgraph.check.inductor_graph_passes import copies

torch: Any = pytest.importorskip("torch")
Program = Callable[[Any], object]


def updated_in_part(x: Any) -> Any:
    x.view(-1)[::3].fill_(0.5)
    return (x + 1).reshape(-1).mean(0)


def place_of_remainders(x: Any) -> Any:
    x[..., 1:].copy_(x[..., :-1].clone())
    return x.remainder(-0.7).argmax(2).diff(dim=0)


def sum_of_squares(x: Any) -> Any:
    x.add_(1)
    return torch.nn.functional.gelu(x.norm(dim=0))


def gate_of_an_update(x: Any) -> Any:
    x.mul_(2)
    return torch.nn.functional.glu(x, 0).relu()  # the gate is stored for the update, then dead


def norm_of_three(x: Any) -> Any:
    y = torch.nn.functional.layer_norm(x, (3,))
    y[..., 0] = 1
    return y.round()


def norm_of_one_half(x: Any) -> Any:
    x.transpose(0, -1).add_(1)  # 65504 + 1: the mean holds it in 32 bits, the sum is rounded to 16
    y = torch.nn.functional.layer_norm(x, x.shape[-1:])
    y = torch.nn.functional.silu(y * y)
    y[..., ::2] *= 2
    return torch.nn.functional.normalize(y, dim=0)


def copied_into_bytes(x: Any) -> Any:
    y = torch.zeros(x.shape, dtype=torch.int8)
    y.copy_((x * 300).exp())  # floats that a byte has not: any byte
    x.copy_(y * 2)
    return y + 1


PROGRAMS: dict[str, tuple[Program, tuple[int, ...], Any]] = {
    "remainders of halves": (lambda x: (x**2).rsqrt().remainder(-0.7), (3, 3, 6), torch.float16),
    "place of remainders": (place_of_remainders, (4, 4, 3), torch.float64),
    "sum of squares": (sum_of_squares, (4,), torch.bfloat16),
    "floors": (lambda x: (x.sin() * 7).floor() + (x.exp() > 1), (5, 6), torch.float32),
    "a constant of 64 bits": (lambda x: x.lerp(x * 2, 0.3).sum(-1).fmod(0.7).frac(), (2, 8), torch.float64),
    "argument updated in part": (updated_in_part, (6, 6), torch.float32),
    "place in one element": (lambda x: (x.argmax(2), x.min(2).indices), (2, 6, 1), torch.float32),
    "floats that a byte has not": (lambda x: (x * 300).to(torch.uint8) + 1, (3, 6), torch.float32),
    "halves that are infinite": (lambda x: (x * x).float() * 2, (3, 6), torch.float16),
    "integers by integers": (lambda x: (x.int() + 3) // (x.int() + 5) + x.short() % 7, (3, 6), torch.uint8),
    "gate of an update": (gate_of_an_update, (4, 3), torch.float32),
    "norm of three": (norm_of_three, (2, 3), torch.float32),
    "norm of halves": (lambda x: torch.nn.functional.layer_norm(x, (3,)), (3,), torch.float16),
    "copied into bytes": (copied_into_bytes, (3,), torch.float32),
    "place of products": (lambda x: (x.prod(1) * 2).argmax(0), (4, 4), torch.int64),
    "norm of one half": (norm_of_one_half, (1,), torch.float16),
    "halves that are 0": (lambda x: (x * 1e-4 * 1e-4).sign() + 1, (40,), torch.float16),
    "remainders of none": (lambda x: (x**2 * 1e-4).rsqrt().remainder(-0.7), (3, 3, 6), torch.float16),
    "halves that are equal": (lambda x: (x + 100) - 100 == x, (40,), torch.bfloat16),
    "place in one byte": (lambda x: x.argmax(0), (1, 3), torch.uint8),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_right_programs_are_not_refuted(name: str, seed: int) -> None:
    fn, shape, dtype = PROGRAMS[name]
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4 - 2
    report = ig.check.inductor(fn, (drawn.abs().to(dtype) if dtype == torch.uint8 else drawn.to(dtype),))
    assert not report.refuted, str(report.refuted[0])
    assert report.rows


def test_inputs_do_not_depend_on_what_was_drawn_before() -> None:
    given = (torch.zeros(3, 4), torch.zeros(5, dtype=torch.float16), torch.arange(3))
    first = copies(given, drawn=True)
    torch.randn(7)
    again = copies(given, drawn=True)
    assert first and again and [t.tolist() for t in first] == [t.tolist() for t in again]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8])
def test_the_place_in_one_element_is_0(dtype: Any) -> None:
    x = torch.ones(2, 1, 3).to(dtype)
    found: Any = ig.from_torch(lambda x: (x.argmax(1), x.argmin(1, keepdim=True), x.max(1).indices), (x,)).run(x)
    assert [tuple(t.shape) for t in found] == [(2, 3), (2, 1, 3), (2, 3)]
    assert all(not t.any() for t in found)
