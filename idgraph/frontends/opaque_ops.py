"""Calling torch's own operation for an opaque node. Names are looked up in torch's tables, never evaluated."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.aliasing import GETITEM
from idgraph.frontends.array_space import NUMPY_SPACE, ArraySpace, TorchSpace
from idgraph.frontends.aten import HANDLERS, OPAQUE
from idgraph.frontends.dynamic_shapes import Size
from idgraph.frontends.graph import (
    CapturedProgram,
    EnumConstant,
    Meta,
    Node,
    Ref,
    TensorMeta,
    Value,
    is_float_of_sizes,
    refs_of,
    short,
    where_of,
)
from idgraph.frontends.torch_arrays import is_torch, load_torch

if TYPE_CHECKING:
    import types

RunValue = Any  # an array of the space that the program runs in, a tuple of such, or a number
Operation = Callable[..., object]
_TARGET = re.compile(r"(aten|prims)\.(\w+)\.(\w+)", re.ASCII)


def operation(node: Node) -> Operation:
    """The torch operation that a node names; only one that changes nothing and opens nothing.

    Raises `FrontendError` for a name that torch does not have, an in-place operation, or one that takes text (a file's
    name, say) and is not known here as harmless.
    """
    torch: Any = load_torch(f"and {where_of(node)} runs its operation")
    found = _TARGET.fullmatch(node.target)
    if found is None or "__" in node.target:
        raise FrontendError(f"{where_of(node)}: it is opaque and not an operation of torch, so it cannot be run")
    if found[1] == "prims":
        importlib.import_module("torch._inductor.inductor_prims")  # registers prims.fma and its like
    packet: Any = getattr(getattr(torch.ops, found[1]), found[2], None)
    call: Any = getattr(packet, found[3], None)
    if not isinstance(call, torch._ops.OpOverload):
        raise FrontendError(f"{where_of(node)}: torch {torch.__version__} has no such operation")
    schema: Any = call._schema
    if schema.is_mutable:
        raise FrontendError(f"{where_of(node)}: it writes its operands", hint="run_decompositions() removes it")
    if (
        node.target not in HANDLERS
        and node.target not in OPAQUE
        and any("str" in str(a.type) for a in schema.arguments)
    ):
        raise FrontendError(f"{where_of(node)}: it takes text, and what it would do with it is not known here")
    return call


class Raw(NamedTuple):
    """An operation that was called, and what it gave before that was looked at. ``env``: sizes."""

    call: Operation
    env: Mapping[str, int]
    result: object


def call_reference(
    program: CapturedProgram,
    node: Node,
    values: Mapping[str, RunValue],
    known: Operation | None,
    env: dict[str, int],
    space: ArraySpace = NUMPY_SPACE,
    notes: list[Raw] | None = None,
) -> RunValue:
    """The result of an opaque node by torch, on arrays laid out as they were when the program was captured. ``notes``
    gets what was called."""
    torch: Any = load_torch(f"and {where_of(node)} runs its operation")
    call = known if known is not None else operation(node)
    args = [_operation_argument(a, program, node, values, env, space) for a in node.args]
    kwargs = {k: _operation_argument(v, program, node, values, env, space) for k, v in node.kwargs.items()}
    try:
        with torch.no_grad():
            result = call(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        first = str(error).strip().partition("\n")[0]
        raise FrontendError(f"{where_of(node)}: torch refuses it: {short(first, 200)[1:-1]}") from error
    if notes is not None:
        notes.append(Raw(call, env, result))
    return _result(result, node, program, env, space)


def _operation_argument(
    value: Value, program: CapturedProgram, node: Node, values: Mapping[str, RunValue], env: dict[str, int],
    space: ArraySpace,
) -> object:  # fmt: skip
    """An argument as torch takes it. No closure: one that calls itself keeps all values until garbage is collected."""
    torch: Any = load_torch("whose operation it is")
    match value:
        case Ref(name):
            return operand_of(values.get(name), program[name], env, space)
        case Expr():
            return value.evaluate(env)
        case tuple():
            return [_operation_argument(v, program, node, values, env, space) for v in value]
        case EnumConstant("device", _):
            return space.device if isinstance(space, TorchSpace) else torch.device("cpu")
        case EnumConstant(_, text):
            return word_of(torch, text, node)
        case _:
            return value


def operand_of(value: Any, node: Node, env: Mapping[str, int], space: ArraySpace) -> object:
    """The value of a node as an operation takes it: with the strides captured; a float of sizes as a number."""
    return float(value) if is_float_of_sizes(node) else _strided_operand(value, node.meta, env, space)


def _strided_operand(value: Any, meta: Meta, env: Mapping[str, int], space: ArraySpace) -> object:
    if isinstance(meta, Expr):
        return meta.evaluate(env)
    if isinstance(value, np.ndarray) or is_torch(value):
        return space.tensor(value, meta.at(env) if isinstance(meta, TensorMeta) else None)
    if isinstance(value, tuple):
        metas = meta if isinstance(meta, tuple) else (None,) * len(cast("tuple[Any, ...]", value))
        return [_strided_operand(v, m, env, space) for v, m in zip(cast("tuple[Any, ...]", value), metas, strict=True)]
    if value is None and isinstance(meta, int | float):
        return meta  # a size that the program's guards have fixed
    return value


def word_of(torch: types.ModuleType, text: str, node: Node | None) -> object:
    """torch's dtype, layout or memory format of this name; raises `FrontendError` where it has none."""
    found = getattr(torch, text, None)
    if not isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
        where = "" if node is None else f"{where_of(node)}: "
        raise FrontendError(f"{where}torch has no {short(text)}")
    return found


def _result(result: object, node: Node, program: CapturedProgram, env: dict[str, int], space: ArraySpace) -> RunValue:
    """Arrays of the shapes and types the graph promised."""
    if isinstance(result, (tuple, list)):
        metas = node.meta if isinstance(node.meta, tuple) else ()
        parts = list(cast("tuple[object, ...]", result))
        if len(parts) != len(metas):
            raise FrontendError(f"{where_of(node)}: torch gives {len(parts)} results, the graph says {len(metas)}")
        found: list[Any] = []
        for number, (part, meta) in enumerate(zip(parts, metas, strict=True)):
            try:
                found.append(_checked(part, meta, node, program, env, space))
            except FrontendError:
                # torch describes results that were not asked for (the counts of `unique`) otherwise than it gives them
                if _is_read(program, node, number):
                    raise
                found.append(None)
        return tuple(found)
    return _checked(result, node.meta, node, program, env, space)


def _is_read(program: CapturedProgram, node: Node, number: int) -> bool:
    """Whether the program uses a single result of a node, or all of them as they are. To pick a result that
    nobody reads does not use it."""
    results = set(refs_of(program.results))
    readers = [n for n in program.nodes if node.name in n.refs()]
    picks = [n for n in readers if n.target == GETITEM]
    read = results.union(*(n.refs() for n in program.nodes))
    parts = [n.args[1] for n in picks if n.name in read]
    return number in parts or len(picks) < len(readers) or node.name in results


def _bind_result_sizes(
    program: CapturedProgram, node: Node, wanted: Sequence[Size], given: Sequence[int], env: dict[str, int]
) -> None:
    """The result has the sizes the graph says; symbols that depend on values get theirs."""
    sizes = program.sizes
    wrong = sizes.bind(wanted, given, "it", env) or sizes.misfits(wanted, given, "it", env) or sizes.broken(env)
    if wrong:
        shown = ", ".join(map(str, wanted))
        raise FrontendError(f"{where_of(node)}: torch gives {tuple(given)}, the graph says ({shown})", because=wrong)


def _checked(
    result: object, meta: Meta, node: Node, program: CapturedProgram, env: dict[str, int], space: ArraySpace
) -> Any:
    if isinstance(meta, Expr) and isinstance(result, (int, float)):
        _bind_result_sizes(program, node, (meta,), (int(result),), env)
        return None
    if isinstance(result, float) and is_float_of_sizes(node):
        torch: Any = load_torch("whose scalar it is")
        result = torch.tensor(result, dtype=torch.float64)
    if not isinstance(meta, TensorMeta) or not is_torch(result):
        if meta is None:
            return None
        raise FrontendError(f"{where_of(node)}: torch gives no tensor where the graph says {meta}")
    array = space.from_tensor(_as_promised(result, meta))
    _bind_result_sizes(program, node, meta.shape, tuple(array.shape), env)
    if space.dtype(array) != meta.dtype:
        shown = f"{space.dtype(array)}{tuple(array.shape)}"
        raise FrontendError(f"{where_of(node)}: torch gives {shown}, the graph says {meta}")
    return array


def _as_promised(result: Any, meta: TensorMeta) -> Any:
    """A narrow float as the wider one that the graph has: torch's kernels for the CPU keep bfloat16 in batch statistics
    that its own description of them, by which everything after was captured, gives as float32."""
    torch: Any = load_torch("whose operation ran")
    wanted = getattr(torch, meta.dtype, None)
    narrow = result.dtype in (torch.bfloat16, torch.float16) and wanted in (torch.float32, torch.float64)
    return result.to(wanted) if narrow else result
