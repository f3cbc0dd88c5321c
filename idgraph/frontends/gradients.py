"""Decompositions of our own: gradients, and sums over bags of rows, that torch leaves to kernels.

Each is written with torch's operations that have handlers here; sums are those of the kernels in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from idgraph.frontends.torch_arrays import load_torch

Tap = tuple[Any, Any]  # for each place of the larger axis the element it reads, and how much of it (None: all)


def _torch() -> Any:
    return load_torch("which decompositions are read from")


def _to_float32(x: Any) -> Any:
    torch = _torch()
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def replication_pad_backward(grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """The gradients of the padding are added to those of the first and the last element."""
    torch, g = _torch(), _to_float32(grad)
    for k in range(len(padding) // 2):
        dim, (left, right) = x.ndim - 1 - k, padding[2 * k : 2 * k + 2]
        front, behind, end = max(left, 0), max(right, 0), g.shape[dim]
        parts = [g.narrow(dim, front, end - front - behind)]
        if front:
            parts = [g.narrow(dim, 0, front + 1).sum(dim, True), parts[0].narrow(dim, 1, parts[0].shape[dim] - 1)]
        if behind:
            last = parts.pop()  # a single element left is both the first and the last
            if last.shape[dim]:
                parts.append(last.narrow(dim, 0, last.shape[dim] - 1))
                parts.append(g.narrow(dim, end - behind - 1, behind + 1).sum(dim, True))
            else:
                parts = [parts[0] + g.narrow(dim, end - behind, behind).sum(dim, True)]
        g = torch.cat(parts, dim)
        if min(left, right) < 0:
            cut = [0, 0] * k + [max(-left, 0), max(-right, 0)]
            g = torch.nn.functional.pad(g, cut)
    return g.to(grad.dtype)


def shrink_backward(grad: Any, x: Any, lambd: float) -> Any:
    """The gradient, with zeros where x lies between -lambd and lambd."""
    return _torch().where((x >= -lambd) & (x <= lambd), 0.0, grad).to(grad.dtype)


def rrelu_backward(grad: Any, x: Any, noise: Any, lower: float, upper: float, training: bool, _: bool) -> Any:
    """The gradient times the slopes drawn, or times their mean."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return _torch().where(x > 0, grad, grad * ((lower + upper) / 2))


def masked_scatter_backward(grad: Any, mask: Any, sizes: Sequence[int]) -> Any:
    """The gradients where the mask holds, one after another; zeros behind them."""
    torch = _torch()
    hit = mask.expand(grad.shape).reshape(-1)
    place = (hit.cumsum(0) - 1).clamp(min=0)
    flat = torch.where(hit, grad.reshape(-1), 0.0).to(grad.dtype)
    count = int(np.prod(sizes, dtype=np.int64))
    if not count or not flat.shape[0]:
        return grad.new_zeros(sizes)
    return grad.new_zeros(count).index_add(0, place, flat).reshape(sizes)


def _spread(grad: Any, size: Sequence[int], taps: Callable[[int, int, int], list[Tap]]) -> Any:
    """The gradient of an axis after an axis: each place gives to the elements that it read."""
    g = _to_float32(grad)
    for p in range(len(size) - 2):
        n, m, dim = size[2 + p], g.shape[2 + p], 2 + p
        shape = [n if d == dim else g.shape[d] for d in range(g.ndim)]
        made = g.new_zeros(shape)
        for index, share in taps(p, n, m):
            part = g if share is None else g * share.to(g.dtype).reshape([m if d == dim else 1 for d in range(g.ndim)])
            made = made.index_add(dim, index, part)
        g = made
    return g.to(grad.dtype)


def _steps(scales: Sequence[float | None], p: int, n: int, m: int) -> float:
    """Elements from one place to the next, as the kernels round it."""
    scale = scales[p] if p < len(scales) else None
    return float(np.float32(n / m if not scale else 1.0 / scale))


def nearest_backward(grad: Any, _: Sequence[int], size: Sequence[int], *scales: float | None) -> Any:
    """Each place gives to the element that it repeats."""
    return _nearest(grad, size, scales, 0.0)


def nearest_exact_backward(grad: Any, _: Sequence[int], size: Sequence[int], *scales: float | None) -> Any:
    """The same from the middle of places."""
    return _nearest(grad, size, scales, 0.5)


def _nearest(grad: Any, size: Sequence[int], scales: Sequence[float | None], middle: float) -> Any:
    torch = _torch()

    def taps(p: int, n: int, m: int) -> list[Tap]:
        places = torch.arange(m, device=grad.device)
        if not middle and m in (n, 2 * n):
            return [(places // (m // n), None)]
        source = ((places.float() + middle) * _steps(scales, p, n, m)).floor().long()
        return [(source.clamp(max=n - 1), None)]

    return _spread(grad, size, taps)


def _places(p: int, n: int, m: int, corners: bool, scales: Sequence[float | None], device: Any) -> Any:
    """Where each place lies between elements, in elements."""
    torch = _torch()
    places = torch.arange(m, device=device).float()
    if corners:
        return places * float(np.float32((n - 1) / (m - 1)) if m > 1 else 0.0)
    return (places + 0.5) * _steps(scales, p, n, m) - 0.5


def linear_backward(grad: Any, _: Sequence[int], size: Sequence[int], corners: bool, *scales: float | None) -> Any:
    """Each place gives to the two elements that it lies between, on every axis."""

    def taps(p: int, n: int, m: int) -> list[Tap]:
        at = _places(p, n, m, corners, scales, grad.device).clamp(min=0)
        first = at.floor().long().clamp(max=n - 1)
        share = (at - first).clamp(max=1.0)
        return [(first, 1 - share), ((first + 1).clamp(max=n - 1), share)]

    return _spread(grad, size, taps)


def cubic_backward(grad: Any, _: Sequence[int], size: Sequence[int], corners: bool, *scales: float | None) -> Any:
    """Each place gives to the four elements around it, by Keys' weights with a = -0.75."""

    def taps(p: int, n: int, m: int) -> list[Tap]:
        at = _places(p, n, m, corners, scales, grad.device)
        whole = at.floor()
        t, first = at - whole, whole.long()
        return [((first + k - 1).clamp(0, n - 1), _cubic((t - (k - 1)).abs(), k)) for k in range(4)]

    return _spread(grad, size, taps)


def _cubic(x: Any, k: int) -> Any:
    """Keys' weight of the k-th of four elements, ``x`` away."""
    a = -0.75
    if k in (1, 2):
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


_SUM, _MEAN, _MAX = 0, 1, 2  # torch's numbers of modes of a bag


def embedding_bag(weight: Any, indices: Any, offsets: Any, by_freq: bool = False, mode: int = 0, sparse: bool = False,
                  shares: Any = None, last: bool = False, padding: int = -1) -> Any:  # fmt: skip
    """(a sum, mean or maximum of rows for each bag, each row's bag, rows of each bag, each maximum's row).

    A row belongs to the last bag that begins at it or before it.
    """
    torch = _torch()
    count, bags = indices.shape[0], offsets.shape[0] - int(last)
    if not count or not bags:
        return NotImplemented
    bag = (torch.arange(count, device=indices.device)[:, None] >= offsets[:bags]).sum(1) - 1
    kept = torch.ones_like(indices, dtype=torch.bool) if padding < 0 else indices != padding
    sizes = torch.zeros_like(offsets[:bags]).index_add(0, bag, kept.to(offsets.dtype))
    rows = _to_float32(torch.nn.functional.embedding(indices, weight))
    if mode == _MAX:
        mine = (bag == torch.arange(bags, device=bag.device)[:, None]) & kept
        best, place = torch.where(mine[:, :, None], rows, float("-inf")).max(1)
        out = torch.where(sizes[:, None] > 0, best, 0.0)
        return out.to(weight.dtype), bag, sizes, indices[place]
    rows = rows if shares is None else rows * _to_float32(shares)[:, None]
    rows = torch.where(kept[:, None], rows, 0.0)
    out = rows.new_zeros(bags, weight.shape[1]).index_add(0, bag, rows)
    if mode == _MEAN:
        out = out / sizes.clamp(min=1)[:, None]
    return out.to(weight.dtype), bag, sizes, torch.zeros_like(sizes)


def embedding_bag_backward(grad: Any, indices: Any, bag: Any, sizes: Any, best: Any, rows: int, by_freq: bool,
                           mode: int, shares: Any, padding: int = -1) -> Any:  # fmt: skip
    """Each row's gradient is that of its bag; of a maximum, that of the elements it gave."""
    torch = _torch()
    if by_freq:
        return NotImplemented
    g = _to_float32(grad)
    made = g.new_zeros(rows, g.shape[1])
    if mode == _MAX:
        return made.scatter_add(0, best, torch.where(sizes[:, None] > 0, g, 0.0)).to(grad.dtype)
    if mode == _MEAN:
        g = g / sizes.clamp(min=1)[:, None]
    given = g[bag] if shares is None else g[bag] * _to_float32(shares)[:, None]
    if padding >= 0:
        given = torch.where((indices != padding)[:, None], given, 0.0)
    return made.index_add(0, indices, given).to(grad.dtype)


def _dense_backward(grad: Any, indices: Any, _: Any, bag: Any, sizes: Any, best: Any, rows: int, by_freq: bool,
                    mode: int, sparse: bool, shares: Any, padding: int = -1) -> Any:  # fmt: skip
    if sparse:
        return NotImplemented
    return embedding_bag_backward(grad, indices, bag, sizes, best, rows, by_freq, mode, shares, padding)


OWN: dict[str, Callable[..., Any]] = {
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._embedding_bag_backward.default": _dense_backward,
    "aten._embedding_bag_dense_backward.default": embedding_bag_backward,
    "aten.hardshrink_backward.default": shrink_backward,
    "aten.softshrink_backward.default": shrink_backward,
    "aten.rrelu_with_noise_backward.default": rrelu_backward,
    "aten.masked_scatter_backward.default": masked_scatter_backward,
    "aten.upsample_linear1d_backward.default": linear_backward,
    "aten.upsample_bilinear2d_backward.default": linear_backward,
    "aten.upsample_trilinear3d_backward.default": linear_backward,
    "aten.upsample_bicubic2d_backward.default": cubic_backward,
    **{f"aten.replication_pad{n}d_backward.default": replication_pad_backward for n in (1, 2, 3)},
    **{f"aten.upsample_nearest{n}d_backward.default": nearest_backward for n in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{n}d_backward.default": nearest_exact_backward for n in (1, 2, 3)},
}
