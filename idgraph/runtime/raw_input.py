"""Raw memory as an input: taken as it lies where kernels read it so, element by element; else copied.

The map of a `RawOutput` is compared with that of the declared input, address by address, once for arrays of each sort.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from idgraph.errors import EmitError
from idgraph.ir import Tensor
from idgraph.runtime.array_backends import ArrayBackend
from idgraph.runtime.binding import BoundArray, Env, OutputMemory, buffer_size, places
from idgraph.runtime.raw_output import RawOutput

OTHER_MAP = "it is raw memory in which the elements lie elsewhere than declared"


def check_raw(inputs: Sequence[Tensor], values: Sequence[Any]) -> None:
    """Refuse raw memory whose map does not give each element of its shape a place in its buffer."""
    for t, raw in zip(inputs, values, strict=True):
        if not isinstance(raw, RawOutput):
            continue
        length = raw.buffer.shape[0] if len(raw.buffer.shape) == 1 else None
        if length is None or len(raw.shape) != len(raw.map.symbols) or len(raw.map.results) != 1:
            raise EmitError(
                f"input {t.name}: raw memory is a flat buffer with a map from {len(raw.shape)} coordinates to "
                "an offset",
                where=t.source_line,
                hint="run(..., raw=True) gives it so",
            )
        at = raw.addresses
        if at.size and not (int(at.min()) >= 0 and int(at.max()) < length):
            raise EmitError(
                f"input {t.name}: its raw memory has {length} elements, and its map gives offsets "
                f"{int(at.min())} to {int(at.max())}",
                where=t.source_line,
            )


def lies_as_declared(t: Tensor, raw: RawOutput, env: Env) -> bool:
    """Whether kernels find every element of ``t`` in this buffer where its map says."""
    shape = tuple(int(d.extent.evaluate(env)) for d in t.axes)
    if shape != raw.shape or raw.buffer.shape[0] < int(buffer_size(t).evaluate(env)):
        return False
    return bool(np.array_equal(raw.addresses, np.broadcast_to(places(t, env), shape)))


def bound_inputs(inputs: Sequence[Tensor], values: Sequence[Any], kind: ArrayBackend) -> dict[str, BoundArray]:
    """The arguments by input name: of raw memory the shape is that of its elements, the data the whole buffer."""
    found: dict[str, BoundArray] = {}
    for t, v in zip(inputs, values, strict=True):
        if isinstance(v, RawOutput):
            flat = kind.declared(t.name, v.buffer)
            found[t.name] = flat._replace(shape=v.shape, strides=None, whole=True)
        else:
            found[t.name] = kind.declared(t.name, v)
    return found


def raw_key(values: Sequence[Any], key_of: Callable[[Any], Hashable]) -> Hashable:
    """A key of these arguments: of raw memory its map and shape, and the key of its buffer."""
    return tuple(
        ("raw", str(v.map), v.shape, key_of(v.buffer)) if isinstance(v, RawOutput) else key_of(v) for v in values
    )


def memory_of(values: Sequence[Any]) -> list[Any]:
    """The arguments with raw memory as its flat buffer."""
    return [v.buffer if isinstance(v, RawOutput) else v for v in values]


def dense_inputs(values: Sequence[Any]) -> list[Any]:
    """The arguments with the elements of raw memory as arrays of their shape: copies."""
    return [v.dense() if isinstance(v, RawOutput) else v for v in values]


def other_maps(inputs: Sequence[Tensor], values: Sequence[Any], env: Mapping[str, int]) -> dict[str, str]:
    """The inputs whose raw memory is copied, and why."""
    return {
        t.name: OTHER_MAP
        for t, v in zip(inputs, values, strict=True)
        if isinstance(v, RawOutput) and not lies_as_declared(t, v, dict(env))
    }


@dataclass(frozen=True, slots=True)
class DenseCall:
    """A call with copies of the elements of raw memory; ``why``: by input, where the map is another than declared."""

    caller: Callable[..., list[Any]]
    symbols: Mapping[str, int] | None
    why: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | None,
        memory: OutputMemory | None,
        tell: Callable[[str, str], object] | None,
        wait: bool,
    ) -> list[Any]:
        if tell is not None:
            for name, why in self.why.items():
                tell(name, why)
        return self.caller(dense_inputs(values), self.symbols, out, memory, tell, wait)
