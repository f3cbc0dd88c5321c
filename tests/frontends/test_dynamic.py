"""Sizes that are known only when a program runs: symbols, guards, and results at several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree

import idgraph as ig
from idgraph.arith import symbol
from idgraph.errors import FrontendError
from idgraph.frontends import from_torch
from idgraph.frontends.dynamic_shapes import DynamicSizes
from tests.frontends.test_from_torch import rotate_half
from tools.bench.corpus import with_oracle

Arguments = tuple[torch.Tensor, ...]
Dim: Any = torch.export.Dim
tree_leaves: Any = _pytree.tree_leaves  # pyright: ignore[reportUnknownMemberType]
FREE, BOTH = {0: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def numbers(top: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, top, shape, generator=torch.Generator().manual_seed(top))


def movement(x: torch.Tensor) -> list[torch.Tensor]:
    window = F.pad(x, (1, 2))
    return [x.roll(1, 0), x.flip(0), x[1:] - x[:-1], x[::2], window, x.flatten(), x.t().reshape(-1), *x.chunk(2, 1)]


def in_place(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:] += x[:-1].clone()
    x[:, ::2] = 0
    x[x < 0] = 3.0
    return x


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    scores = (heads @ heads.transpose(2, 3) / x.shape[1] ** 0.5).masked_fill(mask, float("-inf"))
    return (F.softmax(scores, -1) @ heads).transpose(1, 2).reshape(x.shape[0], -1, 8)


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.mean(), x.mean(0), x.var(0), F.layer_norm(x, (8,)), x.softmax(0), x.sum(0), x.argmax(0)]


def made(x: torch.Tensor) -> list[torch.Tensor]:
    n = x.shape[0]
    return [torch.arange(n), x * n**-0.5, x + torch.arange(1, n + 1)[:, None], x.new_full((n, 2), 1.5)]


def looked_up(x: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
    return [F.embedding(i, x), x[i[:, 0]], F.cross_entropy(x[i[:, 0]], i[:, 0] % 8, reduction="none")]


def rotated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return rotate_half(x) * y + x


def paired(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2, 8).flip(0)


def shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[:-1] + y


def pictures(x: torch.Tensor) -> list[torch.Tensor]:
    """Windows, pads and samples of planes that are known, in batches that are not."""
    four, two = torch.cat((x, x, x, x), 1), torch.cat((x, x), 1)
    return [
        F.max_pool2d(x, 2), F.max_pool2d(x, 2, return_indices=True)[1], F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_max_pool2d(x, 2), F.interpolate(x, scale_factor=2.0),
        F.interpolate(x, size=(3, 5), mode="nearest-exact"), F.unfold(x, 2), F.fold(F.unfold(x, 2), (4, 6), 2),
        F.pad(x, (1, 1, 1, 1), mode="reflect"), F.pad(x, (1, 2, 0, 1), mode="replicate"), F.pixel_unshuffle(x, 2),
        F.pixel_shuffle(four, 2), F.channel_shuffle(two, 2), x.unfold(2, 2, 2), *x.chunk(3, 3), *x.unbind(1),
    ]  # fmt: skip


def eight(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(8)


def opaque(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.sort(0)[0] + x, x[x > 0].sum(), (x > 0).nonzero() + 1, x[x[:, 0] > 0] * 2]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, int], Arguments], Any]] = {
    "rotation": (rotated, lambda n, m: (normal(n, 2 * m), normal(n, 2 * m)), (BOTH, BOTH)),
    "movement": (movement, lambda n, m: (normal(n, 2 * m),), (BOTH,)),
    "in place": (in_place, lambda n, m: (normal(n, m),), (BOTH,)),
    "attention": (attention, lambda n, m: (normal(n, m, 8),), (BOTH,)),
    "reductions": (reductions, lambda n, m: (normal(n + m, 8),), (FREE,)),
    "numbers of sizes": (made, lambda n, m: (normal(n, 8),), (FREE,)),
    "loaded": (looked_up, lambda n, m: (normal(n, 8), numbers(n, m, 3)), (FREE, FREE)),
    "pairs": (paired, lambda n, m: (normal(2 * n, 8),), ({0: 2 * Dim("n", min=2)},)),
    "one more": (
        shifted, lambda n, m: (normal(n + 1, 8), normal(n, 8)), ({0: Dim("k", min=2) + 1}, {0: Dim("k", min=2)})
    ),
    "pictures": (pictures, lambda n, m: (normal(n, 3, 4, 6),), (FREE,)),
    "values decide": (opaque, lambda n, m: (normal(n, 8),), (FREE,)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS)
def test_several_sizes(program: str) -> None:
    f, sample, shapes = PROGRAMS[program]
    imported = from_torch(f, sample(6, 4), dynamic_shapes=shapes)
    assert imported.fusion.symbols
    assert bool(imported.coverage.opaque) == (f is opaque), imported.coverage.opaque
    for n, m in ((6, 4), (9, 7)):
        args = sample(n, m)
        found = tree_leaves(imported.run(*args, target="numpy"))
        torch.testing.assert_close(found, tree_leaves(f(*args)), rtol=2e-5, atol=2e-5)


def test_a_number_of_sizes() -> None:
    """``n // (n // 2)`` is 2 where n is even, as a guard says."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 2, 2, x.shape[1]).transpose(1, 2).reshape(x.shape[0] // 2, -1)

    imported = from_torch(f, (normal(8, 3),), dynamic_shapes=(BOTH,))
    for x in (normal(8, 3), normal(4, 5)):
        torch.testing.assert_close(imported.run(x, target="numpy"), f(x))


def test_a_view_that_begins_where_values_say() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> Arguments:
        return x[i] + x[-1], x[:, i] * 2

    imported = from_torch(f, (normal(4, 5), torch.tensor(3)))
    for at in (2, -1):
        given = normal(4, 5), torch.tensor(at)
        torch.testing.assert_close(imported.run(*given, target="numpy"), f(*given))


def test_compiled_once_for_all_sizes() -> None:
    f, sample, shapes = PROGRAMS["rotation"]
    imported = from_torch(f, sample(6, 4), dynamic_shapes=shapes)
    for n, m in ((3, 5), (8, 4)):
        torch.testing.assert_close(imported.run(*sample(n, m)), f(*sample(n, m)))
    assert len(imported.kernels) == 1


def test_through_the_definitions() -> None:
    f, sample, shapes = PROGRAMS["movement"]
    imported = with_oracle(from_torch(f, sample(6, 4), dynamic_shapes=shapes))
    torch.testing.assert_close(tree_leaves(imported.run(*sample(5, 3), target="oracle")), f(*sample(5, 3)))


def test_symbols_have_torchs_ranges() -> None:
    n = Dim("n", min=4, max=16)
    imported = from_torch(shifted, (normal(7, 8), normal(6, 8)), dynamic_shapes=({0: n + 1}, {0: n}))
    ((name, s),) = imported.fusion.symbols.items()
    assert s.symbol_bounds[:2] == (4, 16)
    assert [str(t.shape[0]) for t in imported.fusion.inputs] == [f"{name} + 1", name]
    for given, why in (
        ((normal(4, 8), normal(3, 8)), rf"{name} = 3 is outside of 4 to 16"),
        ((normal(7, 8), normal(8, 8)), f"axis 0 of y is 8, captured as 6 = {name}"),
    ):
        with pytest.raises(FrontendError, match=why):
            imported.run(*given, target="numpy")
    for given in ((normal(7, 9), normal(6, 9)), (normal(7), normal(6, 8))):
        with pytest.raises(FrontendError, match="captured for float32"):
            imported.run(*given, target="numpy")


def test_guards_are_checked_all_at_once() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Arguments:
        return x.view(-1, 4, 8), x + y

    imported = from_torch(f, (normal(8, 8), normal(8, 8)), dynamic_shapes=(FREE, FREE))
    assert [s.symbol_bounds[2] for s in imported.fusion.symbols.values()] == [4]
    torch.testing.assert_close(
        imported.run(normal(12, 8), normal(12, 8), target="numpy"), f(normal(12, 8), normal(12, 8))
    )
    with pytest.raises(FrontendError, match="is not a multiple of 4"):
        imported.run(normal(10, 8), normal(10, 8), target="numpy")
    with pytest.raises(FrontendError, match="axis 0 of y is 16, captured as 12"):
        imported.run(normal(12, 8), normal(16, 8), target="numpy")


def test_a_guard_of_two_sizes() -> None:
    """A branch that torch chose by a relation of two sizes: sizes of the other branch are refused."""

    def f(x: torch.Tensor, y: torch.Tensor) -> Arguments:
        return x + 1 if x.shape[0] < y.shape[0] else x - 1, y * 2

    imported = from_torch(f, (normal(4, 3), normal(9, 3)), dynamic_shapes=(FREE, FREE))
    given = normal(5, 3), normal(8, 3)
    torch.testing.assert_close(imported.run(*given, target="numpy"), f(*given))
    with pytest.raises(FrontendError, match=r"< s\d+ does not hold for"):
        imported.run(normal(8, 3), normal(5, 3), target="numpy")


def test_symbolic_make_fx() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, x.shape[1]) * x.shape[0] ** -0.5

    imported = from_torch(make_fx(f, tracing_mode="symbolic")(normal(6, 8)))
    (found,) = imported.run(normal(10, 4), target="numpy")  # type: ignore[misc]
    torch.testing.assert_close(found, f(normal(10, 4)))


def test_what_cannot_be_dynamic_says_so() -> None:
    with pytest.raises(FrontendError, match="cannot be captured with dynamic sizes") as caught:
        from_torch(eight, (normal(8),), dynamic_shapes=({0: Dim("n", min=2)},))
    assert "torch.export" in str(caught.value)


def test_an_integer_of_a_tensor() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> Arguments:
        return x[i], x * i.float().item()

    imported = from_torch(f, (normal(5, 6), torch.tensor(2)))
    for at in (4, 0, -1):
        args = normal(5, 6), torch.tensor(at)
        torch.testing.assert_close(imported.run(*args, target="numpy"), f(*args))


def test_binding_solves_for_one_symbol() -> None:
    n = symbol("s0", 2, None)
    sizes, env = DynamicSizes({"s0": n}, []), dict[str, int]()
    sizes.bind((n * 2 + 1,), (8,), "x", env)
    assert env == {}
    assert sizes.misfits((n * 2 + 1,), (8,), "x", env) == ["axis 0 of x is 8, declared s0*2 + 1: no whole number of s0"]
    sizes.bind((n * 2 + 1,), (9,), "x", env)
    assert env == {"s0": 4}


def test_sizes_that_no_call_has_had_are_not_bound_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from idgraph.frontends import callable_import as running

    def scaled(x: Any, y: Any) -> Any:
        return (x * 2 + y).t().contiguous(), x - y

    made: list[int] = []
    whole = running.CallPlan

    def counted(*given: Any) -> Any:
        made.append(1)
        return whole(*given)

    monkeypatch.setattr(running, "CallPlan", counted)
    n = Dim("n", min=2, max=64)
    k = ig.compile(from_torch(scaled, (normal(5, 3), normal(5, 3)), dynamic_shapes=({0: n}, {0: n})))
    for rows in (5, 6, 64, 2, 6):
        x, y = normal(rows, 3), normal(rows, 3)
        for _ in range(2):
            for found, wanted in zip(k(x, y), scaled(x, y), strict=True):
                torch.testing.assert_close(found, wanted)
                assert found.stride() == wanted.stride()
    assert len(made) == 1
    with pytest.raises(FrontendError, match="is outside of 2 to 64"):
        k(normal(65, 3), normal(65, 3))
    with pytest.raises(FrontendError, match="axis 0 of y is 6, captured as 7"):
        k(normal(7, 3), normal(6, 3))
    with pytest.raises(FrontendError, match="captured for float32"):
        k(normal(7, 3), normal(7, 3).double())
    x, y = normal(3, 7).t(), normal(7, 3)
    with pytest.warns(UserWarning, match="copied at each call"):
        torch.testing.assert_close(k(x, y)[1], x - y)
    x = normal(8, 3).requires_grad_()
    torch.testing.assert_close(k(x, normal(8, 3) * 0)[1], x.detach())
