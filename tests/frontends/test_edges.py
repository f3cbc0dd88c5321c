"""Torch functions at the edges of what they take: no axes, no elements, odd layouts, narrow integers; as eager."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from idgraph.frontends import from_torch

torch: Any = importlib.import_module("torch")  # half of its functions have no types
F: Any = torch.nn.functional
leaves: Any = torch.utils._pytree.tree_leaves
T = Any


def normal(*shape: int) -> T:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def no_axes(x: T, i: T) -> Any:
    """A tensor without axes is one of one element where an axis is named."""
    row = x.expand(3) + torch.arange(3.0)
    return [
        x.softmax(0), x.log_softmax(-1), x.gather(0, i * 0), x.gather(0, i.view(1) * 0), row.gather(0, i),
        row.index_select(0, i), x.index_select(0, i.view(1) * 0), x.cumsum(0), row.scatter(0, i, 5.0),
        row.scatter_add(0, i, x), x.scatter(0, i * 0, 5.0), x.scatter_add(0, i * 0, x), x.prod(0), x.logsumexp(0),
    ]  # fmt: skip


def no_elements(x: T, y: T) -> Any:
    """Tensors without elements: no maximum, no divisor, nothing to move."""
    return [
        x.softmax(0), x.softmax(1), x.log_softmax(0), x.logsumexp(1), x.sum(0), x.mean(0), x.cumsum(0), x.cummax(0),
        torch.cat((x, y)), F.pad(x, (1, 1, 1, 1)), x.roll(1, 0), y @ x.T, x.flip(0), x.prod(1), x.argmax(1),
    ]  # fmt: skip


def narrow(x: T, b: T) -> Any:
    """Scans and sums of narrow integers wrap as in eager mode."""
    return [
        x.cumsum(0, dtype=torch.int8), x.cumprod(0, dtype=torch.int32), x.cumsum(0), x.sum(dtype=torch.int8),
        x.prod(dtype=torch.int16), b.cumsum(0, dtype=torch.uint8), b.cumsum(0), x.sum(0, dtype=torch.float32),
    ]  # fmt: skip


def few_elements(x: T) -> Any:
    """Variances of no more elements than the correction: 0 / 0 is NaN."""
    return [x.var(0), x.var(1), x.std(1, correction=3), torch.var_mean(x, 0), x.var(1, correction=0)]


def rounded_once(x: T, y: T) -> Any:
    """alpha times the other is not rounded to two bytes: where both nearly cancel that rounding would show.

    (Eager itself rounds twice in the last elements, which fill no vector of the processor.)
    """
    return [torch.add(x, y, alpha=3), torch.sub(x, y, alpha=5), torch.rsub(x, y.half(), alpha=2), x.add_(y, alpha=0.5)]


def rounded(x: T) -> Any:
    return [x.round(decimals=2), x.round(decimals=-1), x.round(decimals=0), (x * 2).half().round(decimals=1)]


def memory_of_a_turned_tensor(x: T) -> Any:
    """as_strided reads memory, in the order that the operand's elements lie in."""
    y = x * 2
    return [x.as_strided((2, 3), (6, 2), 1), x[1:].as_strided((3, 2), (2, 5)), y.as_strided((4,), (3,), 2)]


def listed_targets(x: T, t: T) -> Any:
    """A row's targets end at the first negative number."""
    return [F.multilabel_margin_loss(x, t, reduction=r) for r in ("none", "mean", "sum")] + [
        F.multilabel_margin_loss(x[0], t[0])
    ]


def masks(x: T, m: T) -> Any:
    """One value, or values that do not change along a mask of some axes, wherever it holds."""
    rows, y = m.any(1), x.clone()
    y[..., m, :] = 7.0
    y[:, rows] = x[0, 0]
    y[:, :, :, x[0, 0, 0] > 0] = x[:, :, :, :1]
    put, one = torch.ops.aten.index_put, torch.ones(1, 5)
    return [
        y,
        put(x, [None, m], one),
        put(x, [None, rows], one, True),
        put(x, [None, m], x[:, :1, 0]),
        put(x, [None, m], x[0, 0, 0]),
        put(x, [None, None, None, x[0, 0, 0] > 0], torch.tensor(2.0)),
        put(x, [None, rows], x[:1, :1]),
        7 % (m + 2),
        5 & (m * 6),
    ]


LISTS = torch.tensor([[1, 3, -1, 0], [0, -1, 2, 1], [2, 1, 0, 3]])
GROUPS: dict[Callable[..., Any], tuple[T, ...]] = {
    no_axes: (torch.tensor(1.5), torch.tensor(2)),
    no_elements: (torch.zeros(0, 5), normal(2, 5)),
    narrow: (torch.tensor([100, 100, -3, 7]), torch.tensor([True] * 5)),
    few_elements: (normal(3, 1),),
    rounded: (normal(4, 5) * 30,),
    rounded_once: (normal(320).bfloat16(), -(normal(320) / 3).bfloat16()),
    memory_of_a_turned_tensor: (normal(4, 3, 6).permute(2, 0, 1),),
    masks: (normal(2, 3, 4, 5), normal(3, 4) > 0),
    listed_targets: (normal(3, 4), LISTS),
}
OPAQUE: dict[Callable[..., Any], set[str]] = {}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:(var|std)\\w*\\(\\). degrees of freedom")
@pytest.mark.parametrize("program", GROUPS, ids=lambda f: f.__name__)
def test_edges(program: Callable[..., Any]) -> None:
    args = GROUPS[program]
    imported = from_torch(program, tuple(t.clone() if t.is_contiguous() else t for t in args))
    assert set(imported.coverage.opaque) <= OPAQUE.get(program, set()), imported.coverage
    mine, torchs = (tuple(t.clone() if t.is_contiguous() else t for t in args) for _ in range(2))
    found, wanted = leaves(imported.run(*mine, target="numpy")), leaves(program(*torchs))
    assert len(found) == len(wanted)
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_a_part_that_reads_nothing_gives_tensors() -> None:
    """The limits of small singular values are constants that torch's own operation reads."""
    x = normal(4, 3)
    found = from_torch(torch.linalg.pinv, (x,)).run(x)
    torch.testing.assert_close(found, torch.linalg.pinv(x))


def test_batch_statistics_that_torch_gives_narrower_than_it_says() -> None:
    def normed(x: T) -> T:
        return F.batch_norm(x, None, None, training=True)

    x = normal(3, 2, 4).bfloat16()
    torch.testing.assert_close(from_torch(normed, (x,)).run(x), normed(x))
