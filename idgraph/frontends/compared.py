"""Arguments of a call against what was captured: shapes, types, numbers, and the symbols that shapes give values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from idgraph.arith import Expr
from idgraph.errors import FrontendError
from idgraph.frontends.captured import CapturedProgram, Node, TensorMeta, where_of
from idgraph.frontends.sizes import Size
from idgraph.frontends.spaces import ArraySpace


def sizes_of(program: CapturedProgram, given: Mapping[str, object], values: Mapping[str, Any]) -> dict[str, int]:
    """Values of the symbols of sizes; one error with everything that arguments contradict."""
    env: dict[str, int] = {}
    sizes = program.sizes
    pairs: list[tuple[str, tuple[Size, ...], tuple[int, ...]]] = []
    for name, value in given.items():
        meta = program[name].meta
        if isinstance(meta, Expr) and isinstance(value, int):
            pairs.append((name, (meta,), (value,)))
        elif isinstance(meta, TensorMeta):
            pairs.append((name, meta.shape, tuple(values[name].shape)))
    wrong = [w for name, wanted, sizes_given in pairs for w in sizes.bind(wanted, sizes_given, name, env)]
    if not wrong:
        if len(env) < len(sizes.symbols):
            for name, wanted, sizes_given in pairs:  # a second time: a sum of two symbols needs one of them first
                sizes.bind(wanted, sizes_given, name, env)
        wrong = [w for name, wanted, got in pairs for w in sizes.misfits(wanted, got, name, env)]
        wrong += sizes.broken(env)
    if wrong:
        dynamic = "sizes must satisfy what torch.export assumed" if sizes.symbols else "sizes are fixed when captured"
        raise FrontendError(
            f"{program.name} is not captured for these sizes: {wrong[0]}",
            because=wrong[1:],
            hint=f"{dynamic}: from_torch(..., dynamic_shapes=...) makes axes dynamic",
        )
    return env


def check_argument(node: Node, value: object, taken: Any, space: ArraySpace) -> None:
    """A run-time argument has the shape and type captured, or is the number that was."""
    meta = node.meta
    if isinstance(meta, Expr):
        if isinstance(value, bool) or not isinstance(value, int):
            raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not the integer {meta}")
        return
    if not isinstance(meta, TensorMeta):
        if value is not meta and value != meta:
            raise FrontendError(f"{where_of(node)}: captured for the value {meta!r}, got another")
        return
    if taken is None:
        raise FrontendError(f"{where_of(node)}: got {type(value).__name__}, not a tensor or an array")
    shape = tuple(taken.shape)
    fits = len(shape) == len(meta.shape) and all(isinstance(w, Expr) or w == n for w, n in zip(meta.shape, shape))
    if not fits or space.dtype(taken) != meta.dtype:
        raise FrontendError(
            f"{where_of(node)}: captured for {meta}, got {space.dtype(taken)}{shape}",
            hint="sizes and types are those of the capture, but for sizes made free by dynamic_shapes=...",
        )
