"""Checks of integer divisors, where torch in eager mode checks them: a kernel's quotient by zero is zero."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from idgraph.frontends.torch_arrays import load_torch

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
