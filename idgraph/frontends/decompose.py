"""Which decompositions a captured program goes through: torch's core ones, and more where that makes operations known.

An operation that has a handler of its own here is kept: a window of strided slices says more than a gather by numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections import abc
from collections.abc import Generator
from typing import Any, Callable  # noqa: UP035 - the one that keeps its aliases

from idgraph.frontends.gradients import OWN
from idgraph.frontends.torch_arrays import load_torch

# Core decompositions that would hide how elements move.
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
        "addmm.default", "addbmm.default", "roll.default",
    )
)  # fmt: skip

# Decompositions of torch's that export leaves out, into operations that have handlers.
ADDED = (
    "_adaptive_avg_pool2d", "_addmm_activation", "_batch_norm_no_update", "_batch_norm_with_update",
    "_batch_norm_with_update_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
    "batch_norm_backward", "dist", "elu", "empty_strided",
    "grid_sampler_2d", "hardtanh", "ldexp", "narrow_copy", "native_batch_norm", "tril_indices", "triu_indices",
    "upsample_bicubic2d", "upsample_bilinear2d", "upsample_trilinear3d",
)  # fmt: skip


def _attention(q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
               scale: float | None = None) -> Any:  # fmt: skip
    """(output, logsumexp) of torch's attention on the CPU.

    torch's own decomposition returns the weights where the kernel returns their logsumexp, which the gradient reads.
    """
    if dropout_p:
        return NotImplemented
    scores, values = _scores(q, k, is_causal, attn_mask, scale), _shared(v, q).to(_wide(q))
    out = (scores.softmax(-1) @ values).to(q.dtype)
    sums = scores.logsumexp(-1)
    # laid out as the kernel does it: [batch, place, head, channel] in memory
    return out.transpose(1, 2).contiguous().transpose(1, 2), sums.transpose(1, 2).contiguous().transpose(1, 2)


def _attention_backward(grad: Any, q: Any, k: Any, v: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool,
                        *, attn_mask: Any = None, scale: float | None = None) -> Any:  # fmt: skip
    """The gradients of q, k and v."""
    if dropout_p:
        return NotImplemented
    wide = _wide(q)
    weights = (_scores(q, k, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    given, factor = grad.to(wide), _factor(q, scale)
    inner = (
        weights
        * (given @ _shared(v, q).to(wide).transpose(-2, -1) - (given * out.to(wide)).sum(-1, keepdim=True))
        * factor
    )
    found = (
        inner @ _shared(k, q).to(wide),
        _gathered(inner.transpose(-2, -1) @ q.to(wide), k),
        _gathered(weights.transpose(-2, -1) @ given, v),
    )
    return tuple(t.to(x.dtype).transpose(1, 2).contiguous().transpose(1, 2) for t, x in zip(found, (q, k, v)))


def _multilabel_margin(x: Any, target: Any, reduction: int) -> Any:
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
    margins = (1 - own.unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
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


def _shared(x: Any, q: Any) -> Any:
    """Keys or values once for each head of q, where several heads share them."""
    groups = q.shape[1] // x.shape[1]
    return x if groups == 1 else x.repeat_interleave(groups, 1)


def _gathered(x: Any, like: Any) -> Any:
    """The gradients of heads that share keys or values, summed."""
    groups = x.shape[1] // like.shape[1]
    return x if groups == 1 else x.unflatten(1, (like.shape[1], groups)).sum(2)


def _wide(q: Any) -> Any:
    torch: Any = load_torch("which decompositions are read from")
    return torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype


def _factor(q: Any, scale: float | None) -> float:
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale


def _scores(q: Any, k: Any, is_causal: bool, mask: Any, scale: float | None) -> Any:
    torch: Any = load_torch("which decompositions are read from")
    scores = q.to(_wide(q)) @ _shared(k, q).to(_wide(q)).transpose(-2, -1) * _factor(q, scale)
    if is_causal:
        rows, columns = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        scores = scores.masked_fill(columns > rows, float("-inf"))
    if mask is None:
        return scores
    return scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask


# Torch takes all operands of these in their common type, its decompositions in float32 as they are.
_CONVERTED_FIRST = ("addcmul", "addcdiv", "lerp", "xlogy", "special_xlog1py", "logaddexp", "logaddexp2", "heaviside")


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


_BOUNDS = ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")  # of linspace: which of start and end is a tensor
_OWN = OWN | {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
    "aten.multilabel_margin_loss_forward.default": _multilabel_margin,
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
    with _listed_once(torch), _aliases_kept(torch):
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
def _aliases_kept(torch: Any) -> Generator[None]:
    """Let torch make the type in an annotation once. Each of the 11 000 kernels that it registers for a capture
    has a function with `Callable[_P, _T]` in it, which `collections.abc` makes anew and `typing` keeps."""
    ops: Any = torch._ops
    anew: Any = vars(abc)["Callable"]
    if getattr(ops, "Callable", None) is not anew:  # another release of torch, or a capture in another thread
        yield
        return
    ops.Callable = Callable
    try:
        yield
    finally:
        ops.Callable = anew
