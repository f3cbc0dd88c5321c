"""Graphs that torch captured, rewritten before they are imported; and writes that no rewritten graph stands for.

Padded products: a library has its fast kernels for rows that begin at multiples of the widest access
(`Device.vector_bytes`). A vocabulary of 50257 is none: such products are computed of operands with zeros behind their
rows, and a part of the result is taken. What it costs (the bytes of padded copies) and saves (`Device.products`)
decides. Kernels that compute an operand write it with its zeros at once, so that the estimate is the most that it can
cost.

Masks of attention that follow from shapes: one that lets everything through is none, and one that lets a row read up
to its own column is causal. Torch's kernels take no mask, or a causal one, at a fraction of the time that one in memory
costs. In eager mode a model looks at the values and leaves the mask out; while it is captured it cannot, so the values
are computed once, as a graph is compiled.

Integer divisors are checked where torch in eager mode checks them: a kernel's quotient by zero is zero.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import types
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Literal

from idgraph.frontends.torch_arrays import load_torch, repeats
from idgraph.frontends.torch_export import OVERLAPPING_VIEWS, refuse_overlap
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


_VIEWS = frozenset(name.split(".")[1] for name in OVERLAPPING_VIEWS)


def refuse_written_views(module: Any, examples: Sequence[Any]) -> None:
    """Raise `FrontendError` where a captured function writes through a view of which several elements are one in
    memory, or to windows that leave elements out. ``examples`` are its arguments, which stay as they are.

    Only functions with such a view are traced for it; what cannot be traced is torch's to refuse.
    """
    torch: Any = load_torch("whose views are asked about")
    nodes = [n for g in _graphs(module) for n in g.nodes]
    if not any(_name(n.target) in _VIEWS or _written_and_repeats(torch, n) for n in nodes):
        return
    interpreter: Any = torch.fx.Interpreter(module)
    interpreter.extra_traceback = False
    seen = [n.meta.get("example_value", x) for n, x in zip(_arguments(module), examples, strict=False)]
    mode = torch._guards.detect_fake_mode(seen) or torch._subclasses.FakeTensorMode()
    try:
        with torch.no_grad(), mode, torch.fx.traceback.preserve_node_meta():
            given = [_stand_in(torch, x) for x in seen]
            traced = torch.fx.experimental.proxy_tensor.make_fx(interpreter.run)(*given)
    except Exception:  # torch raises many kinds, and again when it compiles
        return
    refuse_overlap("it", traced)


def _written_and_repeats(torch: Any, node: Any) -> bool:
    """Whether what a node made has an axis of stride 0, in memory that has been written since it was made: torch counts
    writes, of a view with those of the tensor that it is of."""
    made = torch.utils._pytree.tree_leaves(node.meta.get("example_value"))
    return any(isinstance(v, torch.Tensor) and v._version and repeats(v) for v in made)


def _arguments(module: Any) -> list[Any]:
    return [n for n in module.graph.nodes if n.op == "placeholder"]


def _stand_in(torch: Any, x: Any) -> Any:
    """An argument without values, which may be written."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def _graphs(module: Any) -> list[Any]:
    """The graph of a captured function, and those of its branches and loops."""
    return [m.graph for m in module.modules() if hasattr(m, "graph")]


def _name(target: object) -> str:
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return str(name).split(".", maxsplit=1)[0].rstrip("_")
