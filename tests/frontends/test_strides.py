"""Results of imported programs have the strides that eager mode gives them."""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import idgraph as ig
from idgraph.frontends import from_torch
from idgraph.frontends.array_space import TorchSpace
from idgraph.runtime.fusion_call import is_scheduled, scheduled

KINDS = (
    "relu",
    "mul",
    "exp",
    "sum",
    "cat",
    "reshape",
    "transpose",
    "narrow",
    "clone",
    "contiguous",
    "unsqueeze",
    "add",
)


def an_input(r: random.Random) -> Any:
    """Permuted memory, a slice of more, or rows repeated by an expansion."""
    n = r.choice((2, 3, 4))
    shape = [r.choice((1, 2, 3, 4, 6)) for _ in range(n)]
    kind = r.random()
    if kind < 0.25:
        k = r.randrange(n)
        wide = torch.randn([m + 2 * (a == k) for a, m in enumerate(shape)])
        return wide.narrow(k, 1, shape[k])
    if kind < 0.4:
        return torch.randn([1, *shape[1:]]).expand(shape)
    order = list(range(n))
    r.shuffle(order)
    return torch.randn([shape[a] for a in order]).permute([order.index(a) for a in range(n)])


def program(r: random.Random) -> Callable[[Any, Any], tuple[Any, ...]]:
    """A few operations, each at an axis of its own."""
    steps = [(r.choice(KINDS), r.random()) for _ in range(r.randrange(1, 5))]

    def one(kind: str, x: Any, y: Any, at: float) -> Any:
        d = int(at * x.ndim)
        match kind:
            case "relu" | "exp":
                return getattr(torch, kind)(x)
            case "mul":
                return x * 2.0
            case "clone":
                return x.clone()
            case "contiguous":
                return (x + 1).contiguous()
            case "add":
                return x + y if x.shape == y.shape else x
            case _ if x.ndim == 0:
                return x
            case "sum":
                return x.sum(d)
            case "cat":
                return torch.cat([x, x * 2.0], d)
            case "reshape":
                return x.reshape(-1) if at < 0.5 else x.reshape(*x.shape[:d], 1, *x.shape[d:])
            case "transpose":
                return x.transpose(0, -1)
            case "narrow":
                return x.narrow(d, 0, max(1, x.shape[d] - 1))
            case _:
                return x.unsqueeze(d)

    def run(x: Any, y: Any) -> tuple[Any, ...]:
        made = x
        for kind, at in steps:
            made = one(kind, made, y, at)
        return made, x + y

    return run


def agree(seed: int) -> None:
    """Values and strides of one random program."""
    r = random.Random(seed)
    x = an_input(r)
    y = torch.randn(list(reversed(x.shape))).permute(list(reversed(range(x.ndim))))
    f = program(r)
    for want, got in zip(f(x, y), from_torch(f, (x, y)).run(x, y, target="numpy"), strict=True):  # type: ignore[arg-type]
        assert got.shape == want.shape and got.stride() == want.stride()
        assert torch.allclose(got, want, atol=1e-5)
        theirs = any(want.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in (x, y))
        assert got.data_ptr() == want.data_ptr() if theirs else got.storage_offset() == 0 or 0 in got.stride()


def test_random_programs() -> None:
    for seed in range(12):
        agree(seed)


@pytest.mark.nightly
def test_many_random_programs() -> None:
    for seed in range(12, 2000):
        agree(seed)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_channels_last_stays(target: str) -> None:
    x = torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    imp = from_torch(lambda x: (torch.relu(x), x.contiguous(), x.transpose(1, 2)), (x,))
    assert [t.allocation == t.logical for t in imp.fusion.outputs[:2]] == [False, True]
    for got, want in zip(imp.run(x, target=target), (torch.relu(x), x.contiguous(), x.transpose(1, 2)), strict=True):  # type: ignore[arg-type]
        assert torch.equal(got, want) and got.stride() == want.stride()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_captured_layout_is_no_schedule(target: Any) -> None:
    x = torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    fusion = from_torch(lambda x: torch.relu(x) + 1.0, (x,)).fusion
    assert not is_scheduled(fusion) and any(t.log for t in fusion.tensors)
    (kernel,) = scheduled(fusion, target).kernels
    assert kernel.launch


def test_strides_of_axes_of_one_element_are_no_reason_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured axis of one element may have any stride; a result with another one there lies as it should."""

    def refused(*_args: object) -> None:
        raise AssertionError("a result was copied")

    monkeypatch.setattr(TorchSpace, "_laid_out", refused)
    x = torch.randn(4, 1, 48)

    def fn(x: Any) -> Any:
        return torch.nn.functional.pad(x, (3, 5), mode="reflect")

    call = ig.compile(from_torch(fn, (x,)), "cpu")
    for _ in range(2):
        y = call(x)
        assert y.stride() == fn(x).stride() and torch.equal(y, fn(x)) and y._base is None
