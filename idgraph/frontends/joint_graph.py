"""The joint graph of a training step: written in operations that may be computed again, and cut where few bytes cross.

torch's cut computes elementwise operations again in the backward, from what is in memory anyway; an operation that it
does not know, such as a log-softmax, it leaves in memory for the backward, as large as the logits, or twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from idgraph.frontends.decompositions import nll_loss_backward, to_float32
from idgraph.frontends.torch_arrays import load_torch


def _log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """x - max - log(sum(exp(x - max))): the numbers of rows are what is left, not the result."""
    torch: Any = load_torch("whose graph it is")
    if not x.dim() or not x.dtype.is_floating_point or any(isinstance(n, int) and not n for n in x.shape):
        return NotImplemented
    wide = to_float32(x)
    moved = wide - torch.amax(wide, dim, keepdim=True)
    found = moved - torch.log(torch.sum(torch.exp(moved), dim, keepdim=True))
    return found if half_to_float else found.to(x.dtype)


def _log_softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
    torch: Any = load_torch("whose graph it is")
    if not output.dim():
        return NotImplemented
    g = to_float32(grad)
    return (g - torch.exp(to_float32(output)) * torch.sum(g, dim, keepdim=True)).to(dtype)


def _equal_slices(x: Any, size: Any, dim: int = 0) -> Any:
    """Parts of equal size, but for the last: views, each for itself."""
    extent = x.shape[dim]
    if not isinstance(extent, int) or not isinstance(size, int) or not size:
        return NotImplemented
    return _parts(x, [min(size, extent - at) for at in range(0, extent, size)] or [0], dim)


def _sized_slices(x: Any, sizes: Any, dim: int = 0) -> Any:
    return _parts(x, sizes, dim) if all(isinstance(n, int) for n in sizes) else NotImplemented


def _parts(x: Any, sizes: Any, dim: int) -> Any:
    torch: Any = load_torch("whose graph it is")
    ends = [*itertools.accumulate(sizes)]
    return [torch.ops.aten.slice.Tensor(x, dim, end - n, end) for n, end in zip(sizes, ends, strict=True)]


def _unbind(x: Any, dim: int = 0) -> Any:
    torch: Any = load_torch("whose graph it is")
    extent = x.shape[dim]
    return [torch.ops.aten.select.int(x, dim, n) for n in range(extent)] if isinstance(extent, int) else NotImplemented


def _on_gpu(x: Any) -> bool:
    return x.device.type == "cuda"


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """The bias added after: on a GPU torch adds it in a kernel of its own, here the next kernel does."""
    torch: Any = load_torch("whose graph it is")
    if bias is None or not _on_gpu(x):
        return NotImplemented
    found = torch.ops.aten.convolution(
        x, weight, None, stride, padding, dilation, transposed, output_padding, groups
    )  # fmt: skip
    return found + _of_channels(bias, found)


def _of_channels(bias: Any, result: Any) -> Any:
    """The bias as it is added: its axis is the last one but those that the kernel moves along."""
    return bias.view(-1, *[1] * (result.dim() - 2))


def _convolution_backward(
    grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Any,
) -> Any:  # fmt: skip
    """The bias's gradient as a sum, which the kernel that makes ``grad`` can do beside."""
    torch: Any = load_torch("whose graph it is")
    if not output_mask[2] or not _on_gpu(grad):
        return NotImplemented
    mask = [output_mask[0], output_mask[1], False]
    rest: Any = (None, None, None)
    if any(mask):
        rest = torch.ops.aten.convolution_backward(
            grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
        )
    if grad.stride(1) == 1:  # channels last in memory: rows of them, which are summed in parts
        return rest[0], rest[1], torch.sum(grad.movedim(1, -1).reshape(-1, grad.shape[1]), 0)
    return rest[0], rest[1], torch.sum(grad, [0, *range(2, grad.dim())])


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operation of torch's -> what a step is written in instead."""
    torch: Any = load_torch("whose graph it is")
    aten: Any = torch.ops.aten
    return {
        aten._log_softmax.default: _log_softmax,
        aten._log_softmax_backward_data.default: _log_softmax_backward,
        aten.convolution.default: _convolution,
        aten.convolution_backward.default: _convolution_backward,
        aten.nll_loss_backward.default: nll_loss_backward,
        aten.nll_loss2d_backward.default: nll_loss_backward,
        **{
            op: torch._decomp.decomposition_table[op]
            for op in (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
        },
        aten.split.Tensor: _equal_slices,
        aten.split_with_sizes.default: _sized_slices,
        aten.unbind.int: _unbind,
    }


def partition(prepare: Callable[[Any], Any], joint: Any, inputs: Any, **named: Any) -> tuple[Any, Any]:
    """The forward and the backward graph of a joint one, after ``prepare``, with the fewest bytes between them: what
    elementwise operations give is computed again from what is in memory anyway, which is Inductor's choice too."""
    torch: Any = load_torch("whose graph it is")
    results = set(joint.graph.output_node().all_input_nodes)
    for node in list(joint.graph.nodes):  # names of one value: each would be memory of its own for the cut
        if node.target is torch.ops.aten.detach.default and node not in results:
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    joint = prepare(joint)
    return torch._functorch.partitioners.min_cut_rematerialization_partition(joint, inputs, **named)
