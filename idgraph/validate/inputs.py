"""Random inputs for a fusion: values of its types, index tensors in range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from idgraph.errors import EmitError
from idgraph.ir import DType, Fusion, Tensor, is_float
from idgraph.validate.indices import make_legal
from idgraph.validate.layout import free_strides, laid_out, layout_of
from idgraph.validate.oracle import INDEXED, SCATTERED, bind, shape_of, stored
from idgraph.validate.oracle.moves import Array
from idgraph.validate.oracle.symbol_values import number

MAX_ELEMENTS = 1 << 48


def index_limits(f: Fusion, symbols: Mapping[str, int]) -> dict[str, int]:
    """For each integer input that serves as an index, the smallest extent of an axis it points into.

    An integer tensor compared with an iota (a one-hot, as in scatter) points into the iota's axis; one that is checked
    where it is compared, into the axis that the comparison names.
    """
    sources: dict[Tensor, set[str]] = {t: {t.name} for t in f.inputs if not is_float(t.dtype) and t.dtype != "bool"}
    counted: dict[Tensor, int] = {}
    limits: dict[str, int] = {}

    def limit(t: Tensor, extent: int) -> None:
        for name in sources.get(t, ()):
            limits[name] = min(limits.get(name, extent), extent)

    for e in f.exprs:
        if e.op == "iota":
            counted[e.output] = number(e.attrs["n"], symbols)
        elif e.op in ("reshape", "unsqueeze", "expand", "copy") and e.inputs[0] in counted:
            counted[e.output] = counted[e.inputs[0]]
        if e.op in INDEXED or e.op in SCATTERED:
            source = INDEXED.get(e.op, 0)
            for axis, read in zip(e.inputs[source].axes, e.reads[source], strict=True):
                operand = getattr(read, "operand", None)
                if isinstance(operand, int):
                    limit(e.inputs[operand], number(axis.extent, symbols))
        if "within" in e.attrs:  # a rewritten scatter or gather still has the axis that its index points into
            limit(e.inputs[0], number(e.attrs["within"], symbols))
        if e.op == "eq" and len(e.inputs) == 2:
            for a, b in (e.inputs, e.inputs[::-1]):
                if b in counted:
                    limit(a, counted[b])
        if not is_float(e.output.dtype) and e.output.dtype != "bool":
            sources[e.output] = set().union(*(sources.get(t, set[str]()) for t in e.inputs))
    return limits


def _values(dtype: DType, shape: tuple[int, ...], limit: int | None, rng: np.random.Generator) -> Array:
    if dtype == "bool":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(np.bool_)
    if is_float(dtype):
        # Away from zero a wrong element is always a wrong value; both signs keep sums small.
        x = rng.random(shape, dtype=np.float32)
        x += np.float32(0.25)
        x *= np.where(rng.integers(0, 2, shape, dtype=np.uint8), np.float32(1), np.float32(-1))
        return x
    low, high = (0, limit) if limit is not None else (0 if dtype == "uint8" else -9, 10)
    return rng.integers(low, max(low + 1, high), shape, dtype=np.int64)


def random_inputs(
    f: Fusion, seed: int = 0, symbols: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """An array for each input, the same for the same seed, laid out with the input's strides and offset.

    Floats lie in ±[0.25, 1.25), indices in the range of the axes they point into. bfloat16 needs `ml_dtypes`.
    Extents that are symbols need ``symbols``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(4, 5)), f.input("i", shape=(4, 1), dtype="int64")
    >>> f.output(ig.gather(x, 1, i)).shape
    (4, 1)
    >>> {n: (a.shape, str(a.dtype)) for n, a in random_inputs(f).items()}
    {'x': ((4, 5), 'float32'), 'i': ((4, 1), 'int64')}
    """
    rng = np.random.default_rng(seed)
    at = bind(f, {}, symbols)
    at |= free_strides(f, at)
    limits = index_limits(f, at)
    made: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
    for t in f.inputs:
        size = math.prod(max(n, 1) for n in shape_of(t, at))
        if size > MAX_ELEMENTS:
            raise EmitError(f"{t.name} has {size:.1e} elements: no machine holds its values", where=t.source_line)
        values = stored(_values(t.dtype, shape_of(t, at), limits.get(t.name), rng), t.dtype)
        made[t.name] = laid_out(values.astype(array_dtype(t.dtype)), layout_of(t, at))
    make_legal(f, made, at, rng)
    return made


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of arrays at the border; bfloat16 is ml_dtypes'."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)
