"""Pools, forward and backward, and scatters that join writers: nothing is opaque, results are eager's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from idgraph.errors import IndexingError
from idgraph.frontends import from_torch
from idgraph.frontends.aten import gather_scatter as joined

torch: Any = importlib.import_module("torch")
F: Any = torch.nn.functional
leaves: Any = torch.utils._pytree.tree_leaves
T = Any
KINDS = ("sum", "prod", "mean", "amax", "amin")


def normal(*shape: int, seed: int = 0) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def numbers(top: int, *shape: int) -> T:
    return torch.randint(0, top, shape, generator=torch.Generator().manual_seed(top))


def same(f: Callable[..., Any], *args: T, opaque: tuple[str, ...] = ()) -> None:
    imported = from_torch(f, args)
    assert tuple(imported.coverage.opaque) == opaque
    found, wanted = leaves(imported.run(*args, target="numpy")), leaves(f(*args))
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5, equal_nan=True)


def pools(x: T) -> Any:
    """Windows that end outside, padding that counts or not, dilation, ties, fractions of an axis."""
    return [
        F.max_pool2d(x.round(), 3, 2, 1, ceil_mode=True, return_indices=True),
        F.max_pool2d(x, 2, 2, 1, 2, return_indices=True), F.max_pool2d(x, 2, 3, ceil_mode=True, return_indices=True),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.avg_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True, divisor_override=3),
        F.max_pool3d(x, 2, 2, 1, ceil_mode=True, return_indices=True), F.avg_pool3d(x, 2, 2, 1, ceil_mode=True),
        F.max_pool1d(x[0], 3, 2, 1, ceil_mode=True), F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True),
        F.adaptive_max_pool2d(x, (3, 4), return_indices=True), F.adaptive_max_pool2d(x, (9, 5), return_indices=True),
        F.adaptive_max_pool1d(x[0], 3), F.adaptive_max_pool3d(x, (2, 3, 2)), F.max_unpool2d(x, places(x), 2),
    ]  # fmt: skip


def places(x: T) -> T:
    return torch.arange(x.shape[2] * x.shape[3]).view(1, 1, *x.shape[2:]).expand(x.shape) * 4


def test_pools() -> None:
    same(pools, normal(2, 3, 8, 7))


def test_windows_share_their_slices() -> None:
    """Of 27 places 39 slices and five operations each find the number of the largest; it was 451 tensors."""
    x = torch.full((1, 2, 6, 6, 5), float("-inf"))  # the padding is as large as every element, and never the largest

    def f(x: T) -> T:
        return F.max_pool3d(x, 3, (2, 1, 2), 1, (1, 2, 1), return_indices=True)

    assert len(from_torch(f, (x,)).fusion.tensors) < 230
    same(f, x)


def test_largest_of_numbers_that_are_none() -> None:
    x = normal(1, 2, 6, 5)
    x[0, 0, 2, 3] = float("nan")
    x[0, 1] = float("-inf")

    def f(x: T) -> Any:
        return F.max_pool2d(x, 3, 2, 1, return_indices=True), F.adaptive_max_pool2d(x, (2, 3))

    same(f, x)


def gradients(x: T) -> Any:
    """The gradient of each pool, for an incoming gradient that differs at every place."""
    given = x.clone().requires_grad_(True)
    results = [
        F.max_pool2d(given, 3, 2, 1, ceil_mode=True), F.avg_pool2d(given, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(given, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.avg_pool3d(given, 2, 2, 1),
        F.max_pool3d(given, 2, 2, 1, ceil_mode=True), F.adaptive_max_pool2d(given, (3, 4)),
        F.adaptive_avg_pool2d(given, (3, 4)), F.adaptive_avg_pool2d(given, (9, 5)),
        F.adaptive_max_pool3d(given, (2, 3, 2)),
    ]  # fmt: skip
    return [torch.autograd.grad((y * torch.arange(y.numel()).view(y.shape) * 0.1).sum(), given)[0] for y in results]


def test_gradients_of_pools() -> None:
    same(gradients, normal(2, 3, 8, 7))


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:index_reduce.. is in beta")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8], ids=str)
def test_writers_are_joined(dtype: T) -> None:
    def f(x: T, i: T, s: T, row: T, y: T) -> Any:
        found = [x.scatter_reduce(0, i, s, kind, include_self=own) for kind in KINDS for own in (True, False)]
        found += [y.index_reduce(1, row, s[None], k, include_self=o) for k in KINDS[1:] for o in (True, False)]
        found += [x.scatter(0, i, 2, reduce="multiply"), x.scatter(0, i, 2, reduce="add")]
        return found + [x[:, 0].scatter_reduce(0, row, s[:, 1], kind) for kind in KINDS]

    args = ((normal(n, m, seed=n) * 4).to(dtype) for n, m in ((5, 6), (8, 5)))
    x, s = (t.abs() if dtype == torch.uint8 else t for t in args)
    same(f, x, numbers(5, 7, 4), s, numbers(4, 8), torch.ones(1, 5, 5, dtype=dtype) * 3)


def test_gradients_of_joined_writers() -> None:
    def f(x: T, i: T, s: T) -> Any:
        given = x.clone().requires_grad_(True), s.clone().requires_grad_(True)
        results = [given[0].scatter_reduce(0, i, given[1], kind) for kind in KINDS]
        return [torch.autograd.grad((y * y).sum(), given) for y in results]

    same(f, normal(5, 4), numbers(5, 7, 4), normal(7, 4))


def test_a_running_logsumexp() -> None:
    x = normal(3, 7)
    x[0, :3], x[1, 2], x[2, 4] = float("-inf"), float("inf"), float("nan")

    def f(x: T) -> Any:
        return x.logcumsumexp(1), (x * 300).logcumsumexp(0), x[0].logcumsumexp(0)

    same(f, x)
    same(f, x.to(torch.bfloat16))


def test_a_running_logsumexp_of_large_and_small_values() -> None:
    x = torch.linspace(-2000.0, 2000.0, 801)[torch.randperm(801)].reshape(3, 267)

    def f(x: T) -> Any:
        return x.logcumsumexp(1), (x * 1e-3).logcumsumexp(1), x.double().logcumsumexp(0)

    same(f, x)


def test_an_index_out_of_range_is_an_error_when_joined() -> None:
    def f(x: T, i: T, s: T) -> T:
        return x.scatter_reduce(0, i, s, "amax")

    args = normal(4), torch.tensor([0, 3]), normal(2)
    imported = from_torch(f, args)
    with pytest.raises(IndexingError, match="4"):
        imported.run(args[0], torch.tensor([0, 4]), args[2], target="numpy")


def test_too_many_pairs_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "MAX_PAIRS", 30)
    args = normal(4), numbers(4, 9), normal(9)
    opaque = ("aten.scatter_reduce.two",)

    def f(x: T, i: T, s: T) -> Any:
        return x.scatter_reduce(0, i, s, "amax"), s.logcumsumexp(0)

    def g(x: T, i: T, s: T) -> Any:
        return x.scatter_reduce(0, i, s, "mean")

    same(f, *args, opaque=opaque)
    same(g, *args)


def test_adaptive_windows_of_one_length_are_reshapes() -> None:
    def pool(x: Any) -> Any:
        return torch.nn.functional.adaptive_max_pool3d(x, (2, 4, None), True)

    x = torch.randn(2, 4, 4, 6, generator=torch.Generator().manual_seed(0))
    imported = from_torch(pool, (x,))
    assert not {e.op for e in imported.fusion.exprs} & {"index", "index_select", "floor_divide"}
    torch.testing.assert_close(imported.run(x, target="numpy"), pool(x))


def test_the_divisor_of_windows_does_not_grow_with_them() -> None:
    """Windows in the padding add a formula to a kernel, as long for large windows as for small ones."""

    def lines(size: int, padding: bool) -> int:
        def pool(x: T) -> T:
            return F.avg_pool2d(x, size, 1, size // 2, count_include_pad=padding)

        f = from_torch(pool, (normal(1, 2, 8, 8),)).fusion
        return len(f.exprs)

    small, large = (lines(k, False) - lines(k, True) for k in (3, 5))
    assert 0 < small == large < 20


@pytest.mark.parametrize(("kernel", "mapped"), [(5, True), (6, False)])
def test_a_window_is_statements_only_while_it_has_few_places(kernel: int, mapped: bool) -> None:
    """A kernel has a statement a place, and fuses them; of large windows the library's loop is taken."""
    x = torch.randn(1, 2, 9, 9)
    for pool in (torch.nn.functional.avg_pool2d, torch.nn.functional.max_pool2d):
        imported = from_torch(partial(pool, kernel_size=kernel, stride=2), (x,))
        torch.testing.assert_close(imported.run(x), pool(x, kernel, 2))
        assert (not imported.plan.reasons) == mapped
