"""Matrix products whose operands begin each row at an address that no vector divides, made of padded operands.

A library has its fast kernels for rows that begin at multiples of the widest access (`Device.vector_bytes`). A
vocabulary of 50257 is none: such products are computed of operands with zeros behind their rows, and a part of the
result is taken. What it costs (the bytes of padded copies) and saves (`Device.products`) decides. Kernels that compute
an operand write it with its zeros at once, so that the estimate is the most that it can cost.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from math import prod
from typing import Any

from idgraph.frontends.torch_arrays import load_torch
from idgraph.ir.device import Device

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


def _transposed_source(torch: Any, x: Any) -> Any | None:
    """The matrix, or the batch of matrices, that ``x`` is the transpose of."""
    aten: Any = torch.ops.aten
    if x.meta["val"].dim() < 2 or x.op != "call_function":
        return None
    last = {-1, -2, x.meta["val"].dim() - 1, x.meta["val"].dim() - 2}
    axes = {*x.args[1:]} if x.target is aten.transpose.int else {-1, -2} if x.target is aten.t.default else set[int]()
    return x.args[0] if len(axes) == 2 and axes <= last and len({a % x.meta["val"].dim() for a in axes}) == 2 else None


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
        """``x`` with zeros behind its last two axes, laid out as it was; both factors that it is, once."""
        if rows == 0 and columns == 0:
            return x
        value, turned = x.meta["val"], _transposed_source(torch, x)
        if turned is not None:
            return call(aten.transpose.int, grown(turned, columns, rows), -2, -1)
        if (x, (rows, columns)) in padded:
            return padded[x, (rows, columns)]
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
