"""Complex tensors are pairs of real ones: rotary embeddings as Llama's own code writes them, and what else is done."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch
from idgraph.frontends.import_ import Import

torch: Any = importlib.import_module("torch")
leaves: Any = torch.utils._pytree.tree_leaves
T = Any


def normal(*shape: int, seed: int = 0) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def number(*shape: int, seed: int = 0) -> T:
    return torch.complex(normal(*shape, seed=seed), normal(*shape, seed=seed + 1))


def same(f: Callable[..., Any], *args: T, opaque: tuple[str, ...] = ()) -> Import:
    mine = tuple(t.clone() for t in args)
    imported = from_torch(f, args)
    assert tuple(imported.coverage.opaque) == opaque
    found, wanted = leaves(imported.run(*mine, target="numpy")), leaves(f(*args))
    assert [t.dtype for t in found] == [t.dtype for t in wanted]
    torch.testing.assert_close([t.resolve_conj() for t in found], [t.resolve_conj() for t in wanted])
    torch.testing.assert_close(mine, args)  # what the program writes in place
    return imported


class Rotary(torch.nn.Module):
    """Its table is a buffer of complex numbers."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        turns = torch.outer(torch.arange(16.0), 1 / 10000 ** (torch.arange(4.0) / 4))
        self.register_buffer("table", torch.polar(torch.ones_like(turns), turns))

    def forward(self, x: T) -> T:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * self.table[: x.shape[1]][None, :, None]).flatten(3).type_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rotary_embeddings(dtype: T) -> None:
    imported = same(Rotary().eval(), normal(2, 5, 3, 8).to(dtype))
    assert len(imported.segments) == 1
    table = imported.fusion["b_table"]
    assert (table.shape, table.dtype) == ((16, 4, 2), "float32")
    assert "contiguous" in imported.report().to_json()


def test_a_gradient_through_rotary_embeddings() -> None:
    def f(x: T, angles: T) -> T:
        given = x.clone().requires_grad_(True)
        z = torch.view_as_complex(given.reshape(2, 6, 3, 4, 2))
        y = torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(3)
        return torch.autograd.grad((y * torch.arange(y.numel()).view(y.shape)).sum(), given)[0]

    same(f, normal(2, 6, 3, 8), normal(6, 4, seed=1))


def arithmetic(a: T, b: T, r: T) -> Any:
    """Complex with complex, real and Python's numbers."""
    return [
        a * b, a + b, a - b, a / b, a * r, r * a, a + 2, a * (1 + 2j), a / 3.0, 2 / a, 1 - a, -a, a.conj(), a.abs(),
        a.angle(), a.exp(), a.real, a.imag, a.reciprocal(), a == a, a != b, a.add(b, alpha=2), torch.sub(r, a),
        a @ b.T, a.conj().T @ b, torch.complex(r, r), torch.polar(r.abs(), r), r.to(torch.complex64),
        a.to(torch.complex128), torch.full((2,), 1 + 2j), (a.conj() * a).sum(),
    ]  # fmt: skip


def moved(a: T, b: T, r: T) -> Any:
    """Each part by itself."""
    return [
        a.sum(), a.mean(0), a.T, a[1:, ::2], torch.cat([a, b]), torch.stack([a, b]), a.reshape(-1), a.cumsum(0),
        a.unsqueeze(0).expand(2, 3, 4), torch.where(r > 0, a, b), a.roll(1, 0), a.flip(0), *a.split(2, 1),
        *a.unbind(0), a.clone(), a[torch.tensor([2, 0])], torch.view_as_real(a), torch.cat([a, r], 1),
    ]  # fmt: skip


@pytest.mark.parametrize("program", [arithmetic, moved], ids=lambda f: f.__name__)
def test_operations(program: Callable[..., Any]) -> None:
    same(program, number(3, 4), number(3, 4, seed=5), normal(3, 4, seed=9))


def test_large_and_small_numbers_divide() -> None:
    def f(a: T, b: T) -> T:
        return a / b

    same(f, number(6) * 1e30, number(6, seed=3) * 1e30)
    same(f, number(6) * 1e-30, number(6, seed=3) * 1e-30)


def test_strides_results_and_arguments() -> None:
    def f(a: T, b: T) -> Any:
        a.mul_(2)
        return a * b, a.t(), b, a

    same(f, number(4, 3).T, number(3, 4, seed=2))


def test_a_transform_stays_torchs() -> None:
    def f(x: T, w: T) -> T:
        z = torch.fft.rfft(x) * torch.complex(w, w * 0.5)
        return torch.fft.irfft(z, 16) + x

    imported = same(f, normal(2, 16), normal(9), opaque=("aten._fft_c2r.default", "aten._fft_r2c.default"))
    assert "complex numbers" in imported.coverage.opaque["aten._fft_r2c.default"]


def test_what_has_no_meaning_for_complex_numbers_is_opaque() -> None:
    def f(a: T) -> T:
        return (a * a).sin()

    imported = same(f, number(4), opaque=("aten.sin.default",))
    assert imported.coverage.opaque["aten.sin.default"] == "its meaning for complex numbers is not known here"


def test_complex_numbers_without_elements() -> None:
    """An array without elements may come back with any strides."""

    def f(a: T, b: T) -> Any:
        return torch.complex(a, b), torch.complex(a, b).T * 2j, a.to(torch.complex64)

    for shape in ((0,), (0, 3), (3, 0), (0, 0)):
        x = torch.ones(shape)
        imported = from_torch(f, (x, x))
        for target in ("python", "numpy", "cpu"):
            found: Any = imported.run(x, x, target=target)
            assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in f(x, x)]
