"""Masks of attention that follow from shapes: one that lets everything through is none, and one that lets a row
read up to its own column is causal.

Models build such masks from aranges in each call. Torch's kernels for attention take no mask, or a causal one, at a
fraction of the time that a mask in memory costs, and some take no mask from memory at all. In eager mode a model looks
at the values and leaves the mask out; while it is captured it cannot. Here they are computed once, as a graph is
compiled.
"""

from __future__ import annotations

import copy
import inspect
import operator
import types
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from idgraph.frontends.torch_arrays import load_torch

LIMIT = 2**28  # elements of a mask that are looked at
_PLACES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_IN_PLACE: frozenset[Any] = frozenset(
    getattr(operator, name)
    for name in (
        *("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"),
        *("ilshift", "irshift", "imatmul"),
    )
)


class _Varying(Exception):
    """An operation whose result does not follow from its operands, or that changes one."""


def with_constant_masks(module: Any) -> Any:
    """``module``, a graph of torch's functions, with the masks of attention that its shapes decide written as
    ``is_causal``, or left out; ``module`` stays."""
    torch: Any = load_torch("whose graph it is")
    found = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    changed = False
    kinds: dict[Any, Literal["all", "causal"] | None] = {}
    for node in found.graph.nodes:
        if node.op != "call_function" or node.target is not torch.nn.functional.scaled_dot_product_attention:
            continue
        given = {**dict(zip(_PLACES, node.args, strict=False)), **node.kwargs}
        mask = given.get("attn_mask")
        if not isinstance(mask, torch.fx.Node) or given.get("is_causal", False) is not False:
            continue
        if mask not in kinds:
            kinds[mask] = _lets_through(torch, found, mask)
        if kinds[mask] is not None:
            node.args = ()
            node.kwargs = {**given, "attn_mask": None, "is_causal": kinds[mask] == "causal"}
            changed = True
    if not changed:
        return module
    found.recompile()
    return found


def _lets_through(torch: Any, module: Any, mask: Any) -> Literal["all", "causal"] | None:
    """The part that a mask lets through, where its values are constants: everything, or as many columns as rows."""
    needed = _ancestors([mask])
    if any(n.op in ("placeholder", "call_module", "output") for n in needed):
        return None
    if any(_is_in_place(n) and not needed.isdisjoint(_ancestors([n])) for n in module.graph.nodes):
        return None
    try:
        with torch._subclasses.fake_tensor.unset_fake_temporarily(), torch.no_grad(), _constants_only()():
            value = _evaluated(torch, module, [n for n in module.graph.nodes if n in needed], mask)
    except (_Varying, RuntimeError, TypeError, ValueError, IndexError, AttributeError):
        return None  # torch says so itself where the program runs it
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return None
    value = value[tuple(slice(0, 1) if s == 0 else slice(None) for s in value.stride())]
    if value.numel() > LIMIT or not value.numel():
        return None
    if value.dtype == torch.bool:
        through, decided = value, True
    elif value.is_floating_point():  # added to the scores
        through = value == 0
        decided = bool((through | (value <= torch.finfo(value.dtype).min)).all())
    else:
        return None
    if not decided:
        return None
    if bool(through.all()):
        return "all"
    rows, columns = through.shape[-2:]
    if rows == 1 or columns == 1:  # what is repeated is the same for all rows, or columns
        return None
    lower = torch.ones(rows, columns, dtype=torch.bool, device=value.device).tril()
    return "causal" if bool((through == lower).all()) else None


def _ancestors(nodes: Sequence[Any]) -> set[Any]:
    """The nodes, and all that they are computed from."""
    found, pending = set(nodes), list(nodes)
    while pending:
        fresh = [n for n in pending.pop().all_input_nodes if n not in found]
        found.update(fresh)
        pending += fresh
    return found


def _is_in_place(node: Any) -> bool:
    """Whether a node changes an operand in place."""
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace"):
        return True
    if node.op == "call_method":
        name = str(node.target)
        return name in ("__setitem__", "set_") or (name.endswith("_") and (not name.endswith("__") or name[2:3] == "i"))
    if node.op != "call_function":
        return False
    if node.target in _IN_PLACE:
        return True
    name = getattr(node.target, "__name__", "")
    if name.endswith("_") and not name.endswith("__") and getattr(operator, name, None) is not node.target:
        return True
    if not isinstance(node.target, types.FunctionType):
        return False
    try:
        return bool(inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get("inplace"))
    except (TypeError, ValueError):
        return False


def _evaluated(torch: Any, module: Any, nodes: Sequence[Any], last: Any) -> Any:
    values: dict[Any, Any] = {}
    for node in nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "get_attr":
            values[node] = operator.attrgetter(node.target)(module)
        elif node.op == "call_method":
            values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
        else:
            values[node] = node.target(*args, **kwargs)
    return values[last]


@cache
def _constants_only() -> Any:
    torch: Any = load_torch("whose graph it is")

    class ConstantsOnly(torch.utils._python_dispatch.TorchDispatchMode):
        """Raises for an operation that draws numbers, reads memory that nothing has written, or writes an operand."""

        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            drawn = torch.Tag.nondeterministic_seeded in func.tags
            if drawn or func._schema.is_mutable or "empty" in func._schema.name:
                raise _Varying
            return func(*args, **(kwargs or {}))

    return ConstantsOnly
