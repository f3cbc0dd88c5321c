"""A result as the memory that kernels wrote, with the map from its elements to their addresses there.

Strides cannot say how a tensor lies whose memory follows blocks, padded splits or swizzles: as an array of its shape it
is a copy. What reads such memory (a kernel of somebody else's, a matrix unit) wants it as it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import IndexMap, as_expr, symbol
from idgraph.errors import EmitError, short_repr
from idgraph.index.allocation import memory_map
from idgraph.ir import Tensor
from idgraph.ir.dtypes import int_limits, is_float


@dataclass(frozen=True, slots=True, eq=False)
class RawOutput:
    """The memory of an output: ``buffer`` is a flat array of the caller's kind, gaps included; ``map`` takes the
    coordinates of an element to its offset in it (elements), and has the shape of the buffer. `Program.run` with
    ``raw=True`` gives it.

    >>> import idgraph as ig
    >>> f = ig.Fusion("blocks")
    >>> y = f.output(f.input("x", shape=(3, 2)) * 1.0)
    >>> _ = y.split(0, 2).reorder({1: 2, 2: 1}).set_allocation(y.loop)
    >>> x = np.arange(6, dtype=np.float32).reshape(3, 2)
    >>> raw = ig.emit(f, "numpy").run({"x": x}, raw=True, fill=-1)[y.name]
    >>> raw.buffer.tolist(), print(raw.map)
    (i0, i1) -> (i0 + (i0//2 + i1)*2)
    ([0.0, 2.0, 1.0, 3.0, 4.0, -1.0, 5.0, -1.0], None)
    >>> raw.holes.tolist(), (raw.dense() == x).all().item()
    ([5, 7], True)
    """

    name: str
    buffer: Any
    map: IndexMap
    shape: tuple[int, ...]

    @property
    def addresses(self) -> npt.NDArray[np.int64]:
        """The offset of each element in the buffer, an array of the result's shape."""
        count = len(self.shape)
        at = {
            s.name: np.arange(n, dtype=np.int64).reshape([-1 if q == p else 1 for q in range(count)])
            for p, (s, n) in enumerate(zip(self.map.symbols, self.shape, strict=True))
        }
        return np.array(np.broadcast_to(self.map.results[0].evaluate_array(at), self.shape), np.int64)

    @property
    def holes(self) -> npt.NDArray[np.int64]:
        """The offsets of the buffer at which no element lies, in order."""
        free = np.ones(int(self.map.shape[0]), bool)
        free[self.addresses.reshape(-1)] = False
        return np.flatnonzero(free)

    def dense(self) -> Any:
        """The elements as an array of the result's shape, of the buffer's kind: a copy. Raises `EmitError` for memory
        that only a device reads (``__cuda_array_interface__`` without indexing by arrays)."""
        if issubclass(type(self.buffer), np.ndarray):
            return self.buffer[self.addresses]
        if not hasattr(self.buffer, "index_select"):
            raise EmitError(
                f"{self.name}: a {type(self.buffer).__name__} gives no elements by their addresses",
                hint="give the inputs as torch tensors, or copy the buffer to the host first",
            )
        at = self.buffer.new_tensor(self.addresses.reshape(-1).tolist(), dtype=_int64_of(self.buffer))
        return self.buffer.index_select(0, at).reshape(self.shape)

    def with_buffer(self, buffer: Any) -> RawOutput:
        """The same with the elements of another array."""
        return replace(self, buffer=buffer)

    def __repr__(self) -> str:
        return f"RawOutput({self.name}{self.shape} in {self.map.shape[0]} elements: {self.map})"


def _int64_of(tensor: Any) -> Any:
    """torch's own type of indices."""
    return tensor.new_empty(0).long().dtype


def raw_output(t: Tensor, buffer: Any, shape: tuple[int, ...], env: Mapping[str, int]) -> RawOutput:
    """The memory of ``t`` with its map at these sizes; ``buffer`` has its elements and no more."""
    found = memory_map(t)
    own = tuple(symbol(s.name, 0, max(0, n - 1)) for s, n in zip(found.symbols, shape, strict=True))
    known = {s: as_expr(env[s.name]) for s in found.results[0].symbols if s not in found.symbols}
    known |= dict(zip(found.symbols, own, strict=True))
    size = buffer.shape[0]
    made = IndexMap(own, tuple(found.results), (size,))
    return RawOutput(t.name, buffer, replace(made, results=tuple(r.substitute(known) for r in found.results)), shape)


def check_fill(t: Tensor, value: object) -> None:
    """Refuse a number that the type of ``t`` does not have."""
    if not isinstance(value, (bool, int, float)):
        raise EmitError(f"fill {short_repr(value)} is not a number", where=t.source_line)
    if is_float(t.dtype):
        return
    low, high = (0, 1) if t.dtype == "bool" else int_limits(t.dtype)
    if value != value or value in (float("inf"), -float("inf")) or int(value) != value or not low <= value <= high:
        raise EmitError(
            f"fill {value!r} is no {t.dtype}, as the elements of {t.name} are",
            where=t.source_line,
            hint=f"an integer from {low} to {high}",
        )
