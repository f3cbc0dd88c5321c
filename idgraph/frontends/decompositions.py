"""Which decompositions a captured program goes through: torch's core ones, and more where that makes operations known.

An operation that has a handler of its own here is kept: a window of strided slices says more than a gather by numbers.

Decompositions of our own: gradients, and sums over bags of rows, that torch leaves to kernels.

Each is written with torch's operations that have handlers here; sums are those of the kernels in another order.

Long: rows of one table, each a function.
"""

from __future__ import annotations

import contextlib
import math
import typing
from collections import abc
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from idgraph.frontends.torch_arrays import load_torch

Tap = tuple[Any, Any]  # for each place of the larger axis the element it reads, and how much of it (None: all)


def _torch() -> Any:
    return load_torch("which decompositions are read from")


def to_float32(x: Any) -> Any:
    """Two-byte floats as float32, in which torch computes them."""
    torch = _torch()
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def replication_pad_backward(grad: Any, x: Any, padding: Sequence[int]) -> Any:
    """The gradients of the padding are added to those of the first and the last element."""
    torch, g = _torch(), to_float32(grad)
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


def _spread_gradient(grad: Any, size: Sequence[int], taps: Callable[[int, int, int], list[Tap]]) -> Any:
    """The gradient of an axis after an axis: each place gives to the elements that it read."""
    g = to_float32(grad)
    for p in range(len(size) - 2):
        n, m, dim = size[2 + p], g.shape[2 + p], 2 + p
        shape = [n if d == dim else g.shape[d] for d in range(g.ndim)]
        made = g.new_zeros(shape)
        for index, share in taps(p, n, m):
            part = g if share is None else g * share.to(g.dtype).reshape([m if d == dim else 1 for d in range(g.ndim)])
            made = made.index_add(dim, index, part)
        g = made
    return g.to(grad.dtype)


def _sample_spacing(scales: Sequence[float | None], p: int, n: int, m: int) -> float:
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
        source = ((places.float() + middle) * _sample_spacing(scales, p, n, m)).floor().long()
        return [(source.clamp(max=n - 1), None)]

    return _spread_gradient(grad, size, taps)


def _sample_positions(p: int, n: int, m: int, corners: bool, scales: Sequence[float | None], device: Any) -> Any:
    """Where each place lies between elements, in elements."""
    torch = _torch()
    places = torch.arange(m, device=device).float()
    if corners:
        return places * float(np.float32((n - 1) / (m - 1)) if m > 1 else 0.0)
    return (places + 0.5) * _sample_spacing(scales, p, n, m) - 0.5


def linear_backward(grad: Any, _: Sequence[int], size: Sequence[int], corners: bool, *scales: float | None) -> Any:
    """Each place gives to the two elements that it lies between, on every axis."""

    def taps(p: int, n: int, m: int) -> list[Tap]:
        at = _sample_positions(p, n, m, corners, scales, grad.device).clamp(min=0)
        first = at.floor().long().clamp(max=n - 1)
        share = (at - first).clamp(max=1.0)
        return [(first, 1 - share), ((first + 1).clamp(max=n - 1), share)]

    return _spread_gradient(grad, size, taps)


def cubic_backward(grad: Any, _: Sequence[int], size: Sequence[int], corners: bool, *scales: float | None) -> Any:
    """Each place gives to the four elements around it, by Keys' weights with a = -0.75."""

    def taps(p: int, n: int, m: int) -> list[Tap]:
        at = _sample_positions(p, n, m, corners, scales, grad.device)
        whole = at.floor()
        t, first = at - whole, whole.long()
        return [((first + k - 1).clamp(0, n - 1), _cubic((t - (k - 1)).abs(), k)) for k in range(4)]

    return _spread_gradient(grad, size, taps)


def _cubic(x: Any, k: int) -> Any:
    """Keys' weight of the k-th of four elements, ``x`` away."""
    a = -0.75
    if k in (1, 2):
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total_weight: Any
) -> Any:
    """-weight at each row's own class, 0 elsewhere, times the gradient of the loss. Of ``x`` it reads no value, which
    torch's own operation has among its operands."""
    torch, dim = _torch(), min(x.dim() - 1, 1)
    row, g = target.unsqueeze(dim), to_float32(grad)
    if reduction == _MEAN:
        g = g / to_float32(total_weight)
    if g.dim():
        g = g.unsqueeze(1)
    if weight is not None:
        g = g * to_float32(weight)[torch.where(row != ignored, row, 0)]
    number = torch.arange(x.shape[dim], device=x.device)[(..., *[None] * (x.dim() - dim - 1))]
    # Not by multiplying with 0: a mean over no rows divides by 0.
    return torch.where((number == row) & (row != ignored), -g, 0.0).to(x.dtype)


_SUM, _MEAN, _MAX = 0, 1, 2  # torch's numbers of modes of a bag; a mean of a loss has the same


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
    rows = to_float32(torch.nn.functional.embedding(indices, weight))
    if mode == _MAX:
        mine = (bag == torch.arange(bags, device=bag.device)[:, None]) & kept
        best, place = torch.where(mine[:, :, None], rows, float("-inf")).max(1)
        out = torch.where(sizes[:, None] > 0, best, 0.0)
        return out.to(weight.dtype), bag, sizes, indices[place]
    rows = rows if shares is None else rows * to_float32(shares)[:, None]
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
    g = to_float32(grad)
    made = g.new_zeros(rows, g.shape[1])
    if mode == _MAX:
        return made.scatter_add(0, best, torch.where(sizes[:, None] > 0, g, 0.0)).to(grad.dtype)
    if mode == _MEAN:
        g = g / sizes.clamp(min=1)[:, None]
    given = g[bag] if shares is None else g[bag] * to_float32(shares)[:, None]
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
    "aten.nll_loss_backward.default": nll_loss_backward,
    "aten.nll_loss2d_backward.default": nll_loss_backward,
    "aten.upsample_linear1d_backward.default": linear_backward,
    "aten.upsample_bilinear2d_backward.default": linear_backward,
    "aten.upsample_trilinear3d_backward.default": linear_backward,
    "aten.upsample_bicubic2d_backward.default": cubic_backward,
    **{f"aten.replication_pad{n}d_backward.default": replication_pad_backward for n in (1, 2, 3)},
    **{f"aten.upsample_nearest{n}d_backward.default": nearest_backward for n in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{n}d_backward.default": nearest_exact_backward for n in (1, 2, 3)},
}


# Core decompositions that would hide how elements move, or take a negative index as one from the end.
KEPT = frozenset(
    f"aten.{name}"
    for name in (
        "im2col.default", "col2im.default",
        "upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec",
        "upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default",
        "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec",
        "_upsample_nearest_exact1d.default", "_upsample_nearest_exact2d.default", "_upsample_nearest_exact3d.default",
        "reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default",
        "replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default",
        "addmm.default", "addbmm.default", "roll.default", "index_add.default", "index_copy.default",
    )
)  # fmt: skip

# Decompositions of torch's that export leaves out, into operations that have handlers.
ADDED = (
    "_adaptive_avg_pool2d", "_addmm_activation", "_batch_norm_no_update", "_batch_norm_with_update",
    "_batch_norm_with_update_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "batch_norm_backward", "dist", "elu", "empty_strided", "grid_sampler_2d", "hardtanh", "ldexp", "linalg_vector_norm",
    "narrow_copy", "native_batch_norm", "tril_indices", "triu_indices", "upsample_bicubic2d", "upsample_bilinear2d",
    "upsample_trilinear3d",
)  # fmt: skip


def _attention(q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
               scale: float | None = None) -> Any:  # fmt: skip
    """(output, logsumexp) of torch's attention on the CPU.

    torch's own decomposition returns the weights where the kernel returns their logsumexp, which the gradient reads.
    """
    if dropout_p:
        return NotImplemented
    scores, values = _scores(q, k, is_causal, attn_mask, scale), _repeat_heads(v, q).to(_accumulation_dtype(q))
    out = (scores.softmax(-1) @ values).to(q.dtype)
    sums = scores.logsumexp(-1)
    # laid out as the kernel does it: [batch, place, head, channel] in memory
    return out.transpose(1, 2).contiguous().transpose(1, 2), sums.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_backward(grad: Any, q: Any, k: Any, v: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool,
                        *, attn_mask: Any = None, scale: float | None = None) -> Any:  # fmt: skip
    """The gradients of q, k and v."""
    if dropout_p:
        return NotImplemented
    wide = _accumulation_dtype(q)
    weights = (_scores(q, k, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    given, factor = grad.to(wide), _attention_scale(q, scale)
    inner = (
        weights
        * (given @ _repeat_heads(v, q).to(wide).transpose(-2, -1) - (given * out.to(wide)).sum(-1, keepdim=True))
        * factor
    )
    found = (
        inner @ _repeat_heads(k, q).to(wide),
        _sum_head_gradients(inner.transpose(-2, -1) @ q.to(wide), k),
        _sum_head_gradients(weights.transpose(-2, -1) @ given, v),
    )
    return tuple(t.to(x.dtype).transpose(1, 2).contiguous().transpose(1, 2) for t, x in zip(found, (q, k, v)))


def multilabel_margin(x: Any, target: Any, reduction: int) -> Any:
    """(loss, which classes are targets): each row's targets stand in front of its first negative number.

    torch's own decomposition adds margins to class 0 for what stands behind.
    """
    torch: Any = load_torch("which decompositions are read from")
    rows, wanted = torch.atleast_2d(x), torch.atleast_2d(target)
    places = torch.arange(rows.shape[1], device=x.device)
    count = torch.where(wanted < 0, places, rows.shape[1]).amin(1, keepdim=True)
    listed = places < count
    hit = (torch.where(listed, wanted, -1).unsqueeze(2) == places).any(1)
    own = rows.gather(1, torch.where(listed, wanted, 0))
    margins = (1 - own.unsqueeze(2) + rows.unsqueeze(1)).relu()
    losses = torch.where(listed.unsqueeze(2) & ~hit.unsqueeze(1), margins, 0).sum((1, 2)) / rows.shape[1]
    found = losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses.reshape(x.shape[:-1])
    return found, hit.to(x.dtype).reshape(target.shape)


def _linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **placed: Any) -> Any:
    """Numbers from start to end; those of integers lie between the integers of both, rounded once, toward zero.

    torch's own decomposition rounds start and end after the steps between them.
    """
    torch: Any = load_torch("which decompositions are read from")
    if dtype is None or dtype.is_floating_point or dtype.is_complex or steps < 2:
        return torch._refs.linspace(start, end, steps, dtype=dtype, **placed)
    first, last = (
        v.to(dtype).to(torch.float64) if isinstance(v, torch.Tensor) else float(int(v)) for v in (start, end)
    )
    step, places = (last - first) / (steps - 1), torch.arange(steps, device=placed.get("device"))
    whole = places.to(torch.float64)
    rising, falling = first + step * whole, last - step * (steps - 1 - whole)
    return torch.where(places < steps // 2, rising, falling).to(dtype)


def _repeat_heads(x: Any, q: Any) -> Any:
    """Keys or values once for each head of q, where several heads share them."""
    groups = q.shape[1] // x.shape[1]
    return x if groups == 1 else x.repeat_interleave(groups, 1)


def _sum_head_gradients(x: Any, like: Any) -> Any:
    """The gradients of heads that share keys or values, summed."""
    groups = x.shape[1] // like.shape[1]
    return x if groups == 1 else x.unflatten(1, (like.shape[1], groups)).sum(2)


def _accumulation_dtype(q: Any) -> Any:
    torch: Any = load_torch("which decompositions are read from")
    return torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype


def _attention_scale(q: Any, scale: float | None) -> float:
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale


def _scores(q: Any, k: Any, is_causal: bool, mask: Any, scale: float | None) -> Any:
    torch: Any = load_torch("which decompositions are read from")
    scores = (
        q.to(_accumulation_dtype(q))
        @ _repeat_heads(k, q).to(_accumulation_dtype(q)).transpose(-2, -1)
        * _attention_scale(q, scale)
    )
    if is_causal:
        rows, columns = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        scores = scores.masked_fill(columns > rows, float("-inf"))
    if mask is None:
        return scores
    return scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


# Torch takes all operands of these in their common type, its decompositions in float32 as they are.
_CONVERTED_FIRST = ("addcmul", "addcdiv", "lerp", "xlogy", "special_xlog1py", "logaddexp", "logaddexp2", "heaviside",
                    "ldexp")  # fmt: skip


def _converted_first(decomposition: Any) -> Any:
    """``decomposition`` of tensors that have the common type already: of float16 and of a float32 without axes, what
    that is as a float16."""

    def f(*args: Any, **kwargs: Any) -> Any:
        torch: Any = load_torch("which decompositions are read from")
        operands = [v for v in args if isinstance(v, (torch.Tensor, bool, int, float))]
        promotion: Any = torch._prims_common
        kind = promotion.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        _, common = promotion.elementwise_dtypes(*operands, type_promotion_kind=kind)
        if common in (torch.float16, torch.bfloat16):
            args = tuple(v.to(common) if isinstance(v, torch.Tensor) and v.dtype != common else v for v in args)
        return decomposition(*args, **kwargs)

    return f


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    """A value at some places of an axis, which count from the end where they are negative.

    torch's own decomposition is a copy to those places, and there they do not count from the end.
    """
    torch: Any = load_torch("which decompositions are read from")
    if not x.dim():
        return _index_fill(x.reshape(1), 0, index, value).reshape(())
    filled = value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
    places = [None] * (dim % x.dim()) + [index.reshape(-1)]
    return torch.ops.aten.index_put.default(x, places, filled.to(x.dtype))


def _eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Ones on the diagonal, by row and column of 64 bits.

    torch's own decomposition numbers them in uint16, which its CUDA kernels do not.
    """
    torch: Any = load_torch("which decompositions are read from")
    rows, columns = torch.arange(n, device=device), torch.arange(n if m is None else m, device=device)
    return (rows.unsqueeze(1) == columns).to(torch.get_default_dtype() if dtype is None else dtype)


_BOUNDS = ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")  # of linspace: which of start and end is a tensor
_OWN = OWN | {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
    "aten.multilabel_margin_loss_forward.default": multilabel_margin,
    **{f"aten.eye.{name}": _eye for name in ("default", "m")},
    **{f"aten.index_fill.int_{name}": _index_fill for name in ("Scalar", "Tensor")},
    **{f"aten.linspace.{name}": _linspace for name in ("default", *_BOUNDS)},
}


def table(base: Any) -> dict[Any, Any]:
    """``base`` (operation -> its decomposition) without `KEPT`, with `ADDED` and those of our own."""
    torch: Any = load_torch("which decompositions are read from")
    found = {op: f for op, f in dict(base).items() if str(op) not in KEPT}
    for op, f in torch._decomp.decomposition_table.items():
        _, _, rest = str(op).partition(".")
        name, _, overload = rest.partition(".")
        plain = name in ADDED and not overload.endswith("out")
        if plain and isinstance(op, torch._ops.OpOverload):
            found.setdefault(op, f)
    for op, f in list(found.items()):
        if str(op).split(".")[1] in _CONVERTED_FIRST:
            found[op] = _converted_first(f)
    for name, f in _OWN.items():
        _, op, overload = name.split(".")
        packet: Any = getattr(torch.ops.aten, op, None)
        if packet is not None:
            found[getattr(packet, overload)] = f
    return found


def to_core(exported: Any) -> Any:
    """An exported program with torch's decompositions to core ATen and those of ours."""
    torch: Any = load_torch("which decompositions are read from")
    with _listed_once(torch), _cached_type_aliases(torch):
        return exported.run_decompositions(table(torch.export.default_decompositions()))


@contextlib.contextmanager
def _listed_once(torch: Any) -> Generator[None]:
    """Let torch ask for its operations once. It asks again for each namespace, for both of the tables that it needs:
    half of the time of a small program's capture."""
    utils: Any = torch._export.utils
    ask = getattr(utils, "_materialize_cpp_cia_ops", None)
    if ask is None:  # another release of torch: it asks as it does
        yield
        return
    asked: list[None] = []

    def once() -> None:
        if not asked:
            asked.append(ask())

    utils._materialize_cpp_cia_ops = once
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = ask


@contextlib.contextmanager
def _cached_type_aliases(torch: Any) -> Generator[None]:
    """Let torch make the type in an annotation once. Each of the 11 000 kernels that it registers for a capture
    has a function with `Callable[_P, _T]` in it, which `collections.abc` makes anew and `typing` keeps."""
    ops: Any = torch._ops
    anew: Any = vars(abc)["Callable"]
    if getattr(ops, "Callable", None) is not anew:  # another release of torch, or a capture in another thread
        yield
        return
    ops.Callable = vars(typing)["Callable"]  # the one of `typing`, which keeps what it makes
    try:
        yield
    finally:
        ops.Callable = anew
