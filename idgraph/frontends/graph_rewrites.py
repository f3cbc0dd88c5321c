"""The joint graph of a training step: written in operations that may be computed again, and cut where few bytes cross.

torch's cut computes elementwise operations again in the backward, from what is in memory anyway; an operation that it
does not know, such as a log-softmax, it leaves in memory for the backward, as large as the logits, or twice.

Checks of integer divisors, where torch in eager mode checks them: a kernel's quotient by zero is zero.

Matrix products whose operands begin each row at an address that no vector divides, made of padded operands.

A library has its fast kernels for rows that begin at multiples of the widest access (`Device.vector_bytes`). A
vocabulary of 50257 is none: such products are computed of operands with zeros behind their rows, and a part of the
result is taken. What it costs (the bytes of padded copies) and saves (`Device.products`) decides. Kernels that compute
an operand write it with its zeros at once, so that the estimate is the most that it can cost.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from idgraph.frontends.torch_arrays import load_torch
from idgraph.ir.device import Device

_MEAN = 1  # torch's numbers of reductions


def _at_least_float32(x: Any) -> Any:
    """Narrow floats are computed as float32."""
    torch: Any = load_torch("whose graph it is")
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    """x - max - log(sum(exp(x - max))): the numbers of rows are what is left, not the result."""
    torch: Any = load_torch("whose graph it is")
    if not x.dim() or not x.dtype.is_floating_point or any(isinstance(n, int) and not n for n in x.shape):
        return NotImplemented
    wide = _at_least_float32(x)
    moved = wide - torch.amax(wide, dim, keepdim=True)
    found = moved - torch.log(torch.sum(torch.exp(moved), dim, keepdim=True))
    return found if half_to_float else found.to(x.dtype)


def _log_softmax_backward(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
    torch: Any = load_torch("whose graph it is")
    if not output.dim():
        return NotImplemented
    g = _at_least_float32(grad)
    return (g - torch.exp(_at_least_float32(output)) * torch.sum(g, dim, keepdim=True)).to(dtype)


def _nll_loss_backward(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: int, total_weight: Any
) -> Any:
    """-weight at each row's own class, 0 elsewhere, times the gradient of the loss. Of ``x`` it reads no value, which
    torch's own operation has among its operands."""
    torch: Any = load_torch("whose graph it is")
    if x.dim() < 2:
        return NotImplemented
    row = target.unsqueeze(1)
    g = _at_least_float32(grad)
    if reduction == _MEAN:
        g = g / _at_least_float32(total_weight)
    if g.dim():
        g = g.unsqueeze(1)
    if weight is not None:
        g = g * _at_least_float32(weight)[torch.where(row != ignored, row, 0)]
    number = torch.arange(x.shape[1], device=x.device).view(1, -1, *[1] * (x.dim() - 2))
    # Not by multiplying with 0: a mean over no rows divides by 0.
    return torch.where((number == row) & (row != ignored), -g, 0.0).to(x.dtype)


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    """Parts of equal size, but for the last: views, each for itself."""
    extent = x.shape[dim]
    if not isinstance(extent, int) or not isinstance(size, int) or not size:
        return NotImplemented
    return _parts(x, [min(size, extent - at) for at in range(0, extent, size)] or [0], dim)


def _split_with_sizes(x: Any, sizes: Any, dim: int = 0) -> Any:
    return _parts(x, sizes, dim) if all(isinstance(n, int) for n in sizes) else NotImplemented


def _parts(x: Any, sizes: Any, dim: int) -> Any:
    torch: Any = load_torch("whose graph it is")
    ends = [*itertools.accumulate(sizes)]
    return [torch.ops.aten.slice.Tensor(x, dim, end - n, end) for n, end in zip(sizes, ends, strict=True)]


def _unbind(x: Any, dim: int = 0) -> Any:
    torch: Any = load_torch("whose graph it is")
    extent = x.shape[dim]
    return [torch.ops.aten.select.int(x, dim, n) for n in range(extent)] if isinstance(extent, int) else NotImplemented


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Operation of torch's -> what a step is written in instead."""
    torch: Any = load_torch("whose graph it is")
    aten: Any = torch.ops.aten
    return {
        aten._log_softmax.default: _log_softmax,
        aten._log_softmax_backward_data.default: _log_softmax_backward,
        aten.nll_loss_backward.default: _nll_loss_backward,
        aten.nll_loss2d_backward.default: _nll_loss_backward,
        aten.split.Tensor: _split,
        aten.split_with_sizes.default: _split_with_sizes,
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


_DIVISIONS = ("aten.div.Tensor_mode", "aten.floor_divide.default", "aten.remainder.Tensor",
              "aten.remainder.Scalar_Tensor", "aten.fmod.Tensor")  # fmt: skip


def with_division_checks(module: Any) -> Any:
    """``module``, a graph of ATen operations, in which an integer divisor on the CPU that is zero raises.

    torch raises there, and nowhere on a GPU. A divisor that is a number is known when the graph is imported.
    """
    torch: Any = load_torch("whose graph it is")
    if not any(_divisor(torch, node) for node in module.graph.nodes):
        return module
    found = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    checked: set[Any] = set()
    for node in list(found.graph.nodes):
        divisor = _divisor(torch, node)
        if divisor is not None and divisor not in checked:
            checked.add(divisor)
            _insert_check(torch, found.graph, node, divisor)
    found.recompile()
    return found


def _divisor(torch: Any, node: Any) -> Any:
    """The node of an integer divisor whose values decide whether torch raises; None where there is none."""
    if node.op != "call_function" or str(node.target) not in _DIVISIONS:
        return None
    made: Any = node.meta.get("val")
    divisor: Any = node.args[1]
    value: Any = divisor.meta.get("val") if isinstance(divisor, torch.fx.Node) else None
    if not isinstance(made, torch.Tensor) or not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return None
    integer = not (made.is_floating_point() or made.is_complex() or made.dtype == torch.bool)
    return divisor if integer and 0 not in made.shape else None


def _insert_check(torch: Any, graph: Any, node: Any, divisor: Any) -> None:
    aten: Any = torch.ops.aten
    fake: Any = torch._guards.detect_fake_mode([divisor.meta["val"]])
    calls = ((aten.ne.Scalar, (0,)), (aten.all.default, ()), (aten._assert_async.msg, ("ZeroDivisionError",)))
    last = divisor
    with graph.inserting_before(node), fake or contextlib.nullcontext():
        for operation, rest in calls:
            made = graph.call_function(operation, (last, *rest))
            made.meta = {**node.meta, "val": operation(last.meta["val"], *rest)}
            last = made


# Operand positions of the factors; what stands before them is added.
_PRODUCTS = {"aten.mm.default": 0, "aten.bmm.default": 0, "aten.addmm.default": 1, "aten.baddbmm.default": 1}


@dataclass(frozen=True, slots=True)
class PaddedProduct:
    """One product: its name in the graph, sizes (rows, columns, summed) before and after, and microseconds."""

    name: str
    before: tuple[int, int, int]
    after: tuple[int, int, int]
    saves_us: float
    costs_us: float

    def __str__(self) -> str:
        pairs = zip(("rows", "columns", "summed"), self.before, self.after, strict=True)
        what = ", ".join(f"{name} {a} -> {b}" for name, a, b in pairs if a != b)
        return (
            f"product {self.name} on padded operands: {what}; saves {self.saves_us:.0f} us for {self.costs_us:.0f} us"
        )


def with_padded_products(module: Any, device: Device) -> tuple[Any, tuple[PaddedProduct, ...]]:
    """``module``, a graph of ATen operations with a fake value for each, in which products on tensors of ``device``'s
    kind have padded operands where that pays; and these products. The graph given is not changed."""
    torch: Any = load_torch("whose graph it is")
    chosen = {n.name: p for n in module.graph.nodes if (p := _plan(torch, n, device)) is not None}
    if not chosen:
        return module, ()
    found = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    padded: dict[tuple[Any, tuple[int, ...]], Any] = {}
    for node in list(found.graph.nodes):
        if node.name in chosen:
            _rewrite(torch, found.graph, node, chosen[node.name], padded)
    found.recompile()
    return found, tuple(chosen.values())


def _plan(torch: Any, node: Any, device: Device) -> PaddedProduct | None:
    """The padded sizes of a product, where they pay."""
    first = _PRODUCTS.get(str(node.target)) if node.op == "call_function" else None
    made: Any = node.meta.get("val")
    if first is None or not isinstance(made, torch.Tensor) or made.device.type != device.kind:
        return None
    a, b = (x.meta.get("val") if isinstance(x, torch.fx.Node) else None for x in node.args[first : first + 2])
    dtype = str(made.dtype).removeprefix("torch.")
    fast, slow = device.products.get(dtype), device.products.get(f"{dtype} unaligned")
    if a is None or b is None or fast is None or slow is None:
        return None
    sizes = [*made.shape, a.shape[-1]]
    if not all(isinstance(n, int) for n in sizes) or 0 in sizes:
        return None
    lanes = device.lanes(made.element_size())
    m, n, k = made.shape[-2], made.shape[-1], a.shape[-1]
    # In memory rows of an operand go along the axis whose elements are neighbours.
    along = (k if _is_row_major(a) else m, n if _is_row_major(b) else k, n)
    if all(length % lanes == 0 for length in along):
        return None
    m2, n2, k2 = (-(-x // lanes) * lanes if x in along else x for x in (m, n, k))
    batch, size = prod(made.shape[:-2]), made.element_size()
    copies = [(m * k, m2 * k2), (k * n, k2 * n2), (m * n, m2 * n2)]
    moved = sum(2 * x for x, y in copies if x != y) * batch * size
    costs = moved / device.bandwidth * 1e6 + device.launch_us * sum(x != y for x, y in copies)
    flops = 2.0 * batch * m * n * k
    saves = (flops / slow - flops / fast) * 1e6
    return PaddedProduct(node.name, (m, n, k), (m2, n2, k2), saves, costs) if saves > costs else None


def _is_row_major(value: Any) -> bool:
    """Whether neighbours in the last axis are neighbours in memory."""
    return value.stride(-1) == 1 or value.shape[-1] == 1


def _rewrite(torch: Any, graph: Any, node: Any, plan: PaddedProduct, padded: dict[Any, Any]) -> None:
    aten: Any = torch.ops.aten
    fake: Any = torch._guards.detect_fake_mode([node.meta["val"]])

    def call(operation: Any, *args: Any, **named: Any) -> Any:
        made = graph.call_function(operation, args, named)
        values = [x.meta["val"] if isinstance(x, torch.fx.Node) else x for x in args]
        made.meta = {k: v for k, v in node.meta.items() if k not in ("tensor_meta", "eager_input_vals")}
        made.meta["val"] = operation(*values, **named)
        return made

    def grown(x: Any, rows: int, columns: int) -> Any:
        """``x`` with zeros behind its last two axes; laid out as it was."""
        if rows == 0 and columns == 0:
            return x
        if (x, (rows, columns)) in padded:
            return padded[x, (rows, columns)]
        value = x.meta["val"]
        if value.dim() == 1:
            made = call(aten.constant_pad_nd.default, x, [0, columns], 0.0)
        elif _is_row_major(value):
            made = call(aten.constant_pad_nd.default, x, [0, columns, 0, rows], 0.0)
        else:
            flipped = call(aten.transpose.int, x, -2, -1)
            longer = call(aten.constant_pad_nd.default, flipped, [0, rows, 0, columns], 0.0)
            made = call(aten.transpose.int, longer, -2, -1)
        padded[x, (rows, columns)] = made
        return made

    first = _PRODUCTS[str(node.target)]
    (m, n, k), (m2, n2, k2) = plan.before, plan.after
    with graph.inserting_before(node), fake or contextlib.nullcontext():
        operands = [grown(node.args[first], m2 - m, k2 - k), grown(node.args[first + 1], k2 - k, n2 - n)]
        if first:
            bias = node.args[0]
            shape = bias.meta["val"].shape
            rows = m2 - m if len(shape) > 1 and shape[-2] != 1 else 0
            operands.insert(0, grown(bias, rows, n2 - n if shape[-1] != 1 else 0))
        made = call(node.target, *operands, **node.kwargs)
        for axis, size, wide in ((-2, m, m2), (-1, n, n2)):
            if size != wide:
                made = call(aten.slice.Tensor, made, made.meta["val"].dim() + axis, 0, size)
        if made.meta["val"].stride() != node.meta["val"].stride():  # readers have it dense, as it was
            made = call(aten.clone.default, made, memory_format=torch.contiguous_format)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
