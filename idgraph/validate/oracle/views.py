"""Operations that move elements, and those that write at index values, applied to arrays: values or element numbers.

Each takes the operation's attributes and NumPy arrays and nothing else of the fusion: no axis, no domain expression.

A point of a scatter is an element of what is written (the index's shape; for index_put the index tensors' common shape
among the axes that are not indexed).

Operations on rows whose ends are loaded, applied to arrays: to values, or to element numbers to see what goes where.

Only attributes and arrays are read: where rows begin and how long they are, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from idgraph.arith import Expr, congruence
from idgraph.errors import IndexingError, OperationError
from idgraph.ir import Fusion, Tensor
from idgraph.ir.axis_read import Attr
from idgraph.ir.fusion import TensorExpr

Symbols = Mapping[str, int]


def number(value: Attr, symbols: Symbols) -> int:
    """An int, or an integer expression at ``symbols``."""
    if isinstance(value, Expr):
        return int(value.evaluate(symbols))
    if isinstance(value, int):
        return int(value)
    raise OperationError(f"{value!r} is not an integer")


def numbers(value: Attr, symbols: Symbols) -> tuple[int, ...]:
    """A tuple of ints and integer expressions at ``symbols``."""
    if not isinstance(value, tuple):
        raise OperationError(f"{value!r} is not a tuple of integers")
    return tuple(number(v, symbols) for v in value)


def shape_of(tensor: Tensor, symbols: Symbols) -> tuple[int, ...]:
    """Elements along each axis of ``tensor.shape``."""
    return tuple(number(d.extent, symbols) for d in tensor.axes)


def bind(fusion: Fusion, shapes: Mapping[str, tuple[int, ...]], symbols: Symbols | None = None) -> dict[str, int]:
    """Values of all symbols, read off input shapes where an extent is a plain symbol or one value of a symbol gives it,
    else taken from ``symbols``.

    Raises `OperationError` for a symbol without a value, outside its declared range, or with two values.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> n = f.symbol("n", min=1)
    >>> t = f.input("t", shape=(n, 2 * n))
    >>> bind(f, {"t": (3, 6)})
    {'n': 3}
    """
    found = dict(symbols or {})
    for t in fusion.inputs:
        if t.name not in shapes:
            continue
        if len(shapes[t.name]) != t.ndim:
            raise OperationError(f"{t.name} has {t.ndim} axes, its array has {len(shapes[t.name])}")
        for d, size in zip(t.axes, shapes[t.name], strict=True):
            if d.extent.op == "sym" and found.setdefault(d.extent.name, size) != size:
                raise OperationError(f"symbol {d.extent} is {found[d.extent.name]}, axis {d.label} has {size} elements")
    _try_out(fusion, shapes, found)
    for name, s in fusion.symbols.items():
        if name not in found:
            raise OperationError(f"symbol {name} has no value", hint=f'pass symbols={{"{name}": ...}}')
        step, first = congruence(s)
        low, high = (b.evaluate(found) if isinstance(b, Expr) else b for b in s.symbol_bounds[:2])
        beyond = (low is not None and found[name] < low) or (high is not None and found[name] > high)
        if beyond or found[name] not in s.range or (step > 1 and (found[name] - first) % step):
            raise OperationError(f"symbol {name} = {found[name]} is outside its declared range", because=[repr(s)])
    return found


_BEYOND = 64  # values that are tried beyond twice the size: extents grow with their symbols


def _try_out(fusion: Fusion, shapes: Mapping[str, tuple[int, ...]], found: dict[str, int]) -> None:
    """Symbols in larger extents (``n*4``): every value is tried, and the only one that fits is it."""
    for _ in fusion.symbols:
        for t in fusion.inputs:
            for d, size in zip(t.axes, shapes.get(t.name, ()), strict=False):
                left = [s for s in d.extent.symbols if s.name not in found]
                if len(left) != 1:
                    continue
                fitting = [
                    n
                    for n in range(2 * size + _BEYOND)
                    if n in left[0].range and int(d.extent.evaluate({**found, left[0].name: n})) == size
                ]
                if len(fitting) == 1:
                    found[left[0].name] = fitting[0]


Array = npt.NDArray[Any]
Attrs = Mapping[str, Attr]

MOVES = frozenset(
    {"unsqueeze", "squeeze", "expand", "permute", "slice", "select", "pad", "flip", "roll", "cat", "slice_scatter",
     "reshape", "gather", "take_along_dim", "index_select", "embedding", "index"}
)  # fmt: skip
INDEXED: Mapping[str, int] = {"gather": 0, "take_along_dim": 0, "index_select": 0, "index": 0, "embedding": 1}
"""Operations that read one operand (by number) at the values of the others."""


def _dim_attribute(attrs: Attrs, ndim: int) -> int:
    dim = number(attrs["dim"], {})
    return dim % ndim


def move(op: str, attrs: Attrs, parts: Sequence[Array], symbols: Symbols, fill: Any) -> Array:
    """The result of ``op`` on arrays; ``fill`` stands where a pad adds elements. A view where NumPy has one.

    >>> move("cat", {"dim": 0}, [np.arange(2, 4), np.arange(2)], {}, -1).tolist()
    [2, 3, 0, 1]
    """
    x = parts[0]
    match op:
        case "unsqueeze":
            return np.expand_dims(x, numbers(attrs["dims"], symbols))
        case "squeeze":
            return np.squeeze(x, axis=numbers(attrs["dims"], symbols))
        case "expand":
            return _expand(x, numbers(attrs["shape"], symbols))
        case "permute":
            return np.transpose(x, numbers(attrs["dims"], symbols))
        case "slice":
            return x[_slices(attrs, x.ndim, symbols)]
        case "select":
            at = [slice(None)] * x.ndim
            dim = _dim_attribute(attrs, x.ndim)
            return x[(*at[:dim], number(attrs["index"], symbols), *at[dim + 1 :])]
        case "pad":
            return _pad(x, numbers(attrs["left"], symbols), numbers(attrs["right"], symbols), fill)
        case "flip":
            return np.flip(x, numbers(attrs["dims"], symbols))
        case "roll":
            return np.roll(x, numbers(attrs["shifts"], symbols), numbers(attrs["dims"], symbols))
        case "cat":
            return np.concatenate(list(parts), _dim_attribute(attrs, x.ndim))
        case "slice_scatter":
            out = x.copy()
            out[region(attrs, x.ndim, symbols)] = parts[1]
            return out
        case "reshape":
            return x.reshape(numbers(attrs["shape"], symbols))
        case _ if op in INDEXED:
            source = INDEXED[op]
            return picked(op, attrs, parts[source], [p for k, p in enumerate(parts) if k != source])
        case _:
            raise OperationError(f"the oracle knows no operation {op!r} that moves elements")


def _expand(x: Array, wanted: tuple[int, ...]) -> Array:
    lead = len(wanted) - x.ndim
    return np.broadcast_to(x, tuple(x.shape[p - lead] if n == -1 else n for p, n in enumerate(wanted)))


def _slices(attrs: Attrs, ndim: int, symbols: Symbols) -> tuple[slice, ...]:
    at = [slice(None)] * ndim
    bounds = zip(*(numbers(attrs[key], symbols) for key in ("dims", "starts", "stops", "steps")), strict=True)
    for dim, start, stop, step in bounds:
        # Going down, -1 is the place before the front, not the last element.
        end = None if step < 0 and stop < 0 else stop
        at[dim] = slice(0, 0) if start == stop else slice(start, end, step)
    return tuple(at)


def region(attrs: Attrs, ndim: int, symbols: Symbols) -> tuple[slice, ...]:
    """The elements that slice_scatter replaces."""
    at = [slice(None)] * ndim
    at[_dim_attribute(attrs, ndim)] = slice(*(number(attrs[key], symbols) for key in ("start", "stop", "step")))
    return tuple(at)


def _pad(x: Array, left: tuple[int, ...], right: tuple[int, ...], fill: Any) -> Array:
    kept = tuple(slice(max(0, -a), n - max(0, -b)) for a, b, n in zip(left, right, x.shape, strict=True))
    out = np.full(tuple(a + n + b for a, b, n in zip(left, right, x.shape, strict=True)), fill, x.dtype)
    inner = x[kept]
    out[tuple(slice(max(0, a), max(0, a) + n) for a, n in zip(left, inner.shape, strict=True))] = inner
    return out


def unaligned(attrs: Attrs, rank: int, indices: Sequence[Array]) -> list[Array]:
    """Index arrays without the axes of one element that aligned ones have along the others of ``rank`` axes."""
    if attrs.get("aligned") is not True:
        return list(indices)
    dims = [d % rank for d in numbers(attrs["dims"], {})]
    before, after = dims[0], rank - 1 - dims[-1]
    return [i.reshape(i.shape[before : i.ndim - after]) for i in indices]


def check_index(index: Array, extent: int, op: str) -> Array:
    """``index`` itself; raises `IndexingError` where a value is outside an axis of ``extent`` elements."""
    wrong = (index < 0) | (index >= extent)
    if bool(wrong.any()):
        at = tuple(int(c) for c in np.argwhere(wrong)[0])
        raise IndexingError(
            f"{op}: the index at {at} is {int(index[at])}, outside the {extent} elements of the axis",
            hint="pass inputs= with indices in range",
        )
    return index


def picked(op: str, attrs: Attrs, x: Array, indices: Sequence[Array]) -> Array:
    """Elements of ``x`` at the values of index arrays."""
    first = indices[0]
    match op:
        case "gather":
            dim = _dim_attribute(attrs, x.ndim)
            cut = x[tuple(slice(None) if p == dim else slice(n) for p, n in enumerate(first.shape))]
            return np.take_along_axis(cut, check_index(first, x.shape[dim], op), dim)
        case "take_along_dim":
            dim = _dim_attribute(attrs, x.ndim)
            return np.take_along_axis(x, check_index(first, x.shape[dim], op), dim)
        case "index_select":
            dim = _dim_attribute(attrs, x.ndim)
            return np.take(x, check_index(first, x.shape[dim], op), dim)
        case "embedding":
            return x[check_index(first, x.shape[0], op)]
        case "index":
            dims = [d % x.ndim for d in numbers(attrs["dims"], {})]
            own = unaligned(attrs, x.ndim, indices)
            checked = [check_index(i, x.shape[d], op) for i, d in zip(own, dims, strict=True)]
            return x[(*(slice(None) for _ in range(dims[0])), *checked)]
        case _:
            raise OperationError(f"the oracle knows no operation {op!r} that reads at index values")


def index_reads(op: str, attrs: Attrs, ids: Array, rank: int, shape: tuple[int, ...]) -> Array:
    """Which element (of ``ids``) of an index operand each element of the result, of ``shape``, depends on.

    ``rank``: axes of the operand read at the index values.
    """
    match op:
        case "gather" | "take_along_dim":
            return np.broadcast_to(ids, shape)
        case "embedding":
            return np.broadcast_to(ids[..., None], shape)
        case "index_select":
            after = len(shape) - 1 - _dim_attribute(attrs, rank)
            return np.broadcast_to(ids.reshape(ids.size, *(1 for _ in range(after))), shape)
        case "index":
            dims = [d % rank for d in numbers(attrs["dims"], {})]
            after = rank - 1 - dims[-1]
            (own,) = unaligned(attrs, rank, [ids])
            return np.broadcast_to(own.reshape((*own.shape, *(1 for _ in range(after)))), shape)
        case _:
            raise OperationError(f"the oracle knows no index operand of {op!r}")


SCATTERED = frozenset({"scatter", "scatter_add", "index_put"})


def index_operands(e: TensorExpr) -> tuple[int, ...]:
    """Numbers of the operands of a scatter that hold indices."""
    return tuple(range(1, 1 + len(numbers(e.attrs["dims"], {})))) if e.op == "index_put" else (1,)


def _written_index(op: str, attrs: Attrs, shape: tuple[int, ...], indices: Sequence[Array]) -> tuple[Any, ...]:
    """The NumPy index of the elements of an array of ``shape`` that are written, in order."""
    if op == "index_put":
        dims = [d % len(shape) for d in numbers(attrs["dims"], {})]
        own = unaligned(attrs, len(shape), indices)
        found = [check_index(i, shape[d], op) for i, d in zip(own, dims, strict=True)]
        return (*(slice(None) for _ in range(dims[0])), *found)
    dim = number(attrs["dim"], {}) % len(shape)
    (index,) = indices
    rank = len(shape)
    counted = [np.arange(n, dtype=np.int64) for n in index.shape]
    own = [np.expand_dims(c, [q for q in range(rank) if q != p]) for p, c in enumerate(counted)]
    return tuple(check_index(index, shape[dim], op) if p == dim else own[p] for p in range(rank))


def scatter(op: str, attrs: Attrs, x: Array, indices: Sequence[Array], src: Array) -> Array:
    """``x`` with ``src`` written or added; of several writers the last one (in the order of the points) wins.

    >>> scatter("scatter", {"dim": 0}, np.zeros(4), [np.array([1, 3, 1])], np.array([5.0, 6.0, 7.0])).tolist()
    [0.0, 7.0, 0.0, 6.0]
    """
    where = _written_index(op, attrs, x.shape, indices)
    if op == "index_put" and attrs["accumulate"] == "amax":
        out = x.astype(np.int64)
        np.maximum.at(out, where, src.astype(np.int64))
        return out
    added = op == "scatter_add" or (op == "index_put" and attrs["accumulate"] is True)
    if added:
        out = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        np.add.at(out, where, src.astype(out.dtype))
        return out
    # One element after another: NumPy does not define the result of several values for one place.
    targets = element_targets(op, attrs, x.shape, indices)
    values = np.broadcast_to(src, targets.shape).reshape(-1)
    flat = targets.reshape(-1)
    last = np.full(x.size, -1, np.int64)
    np.maximum.at(last, flat, np.arange(flat.size))
    out = x.copy().reshape(-1)
    hit = last >= 0
    out[hit] = values[last[hit]]
    return out.reshape(x.shape)


def element_targets(op: str, attrs: Attrs, shape: tuple[int, ...], indices: Sequence[Array]) -> Array:
    """Row-major number of the element (of an array of ``shape``) that each point writes."""
    ids = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
    return ids[_written_index(op, attrs, shape, indices)]


def scatter_reads(e: TensorExpr, k: int, ids: Array, shape: tuple[int, ...], indices: Sequence[Array]) -> Array:
    """Which element (of ``ids``) of operand ``k`` each point reads; ``shape`` is that of operand 0."""
    targets = element_targets(e.op, e.attrs, shape, indices)
    if k == 0:
        return targets
    if e.op != "index_put":
        return ids
    if k not in index_operands(e):
        return np.broadcast_to(ids, targets.shape)
    after = len(shape) - 1 - max(d % len(shape) for d in numbers(e.attrs["dims"], {}))
    try:
        (own,) = unaligned(e.attrs, len(shape), [ids])
        return np.broadcast_to(own.reshape((*own.shape, *(1 for _ in range(after)))), targets.shape)
    except ValueError as error:
        raise OperationError(f"index {k} of {e.name} does not fit what is written") from error


ROWED = frozenset({"partition", "pad_ragged", "crop_ragged", "combine"})


def check_rows(starts: Array, stops: Array, extent: int) -> None:
    """Raise `IndexingError` unless rows follow each other from 0 to ``extent``."""
    ends = [0, *(int(n) for n in stops)]
    for b, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if int(start) != ends[b] or int(stop) < int(start):
            raise IndexingError(f"row {b} is from {int(start)} to {int(stop)}, the one before it ends at {ends[b]}")
    if ends[-1] != extent:
        raise IndexingError(f"the rows end at {ends[-1]}, not at {extent}")


def rows(op: str, attrs: Attrs, parts: list[Array], shape: tuple[int, ...], fill: Any) -> Array:
    """The result of ``op``, of ``shape``, on (operand, starts, lengths); ``fill`` where there is no element."""
    x, starts, lengths = parts
    dim = number(attrs["dim"], {})
    out = np.full(shape, fill, x.dtype)
    before = (slice(None),) * dim
    for b in range(len(starts)):
        start, count = int(starts[b]), int(lengths[b])
        flat, row = (*before, slice(start, start + count)), (*before, b, slice(0, count))
        if op == "partition":
            out[row] = x[flat]
        elif op == "combine":
            out[flat] = x[row]
        else:
            out[row] = x[row]
    return out


def row_reads(op: str, attrs: Attrs, k: int, ids: Array, ends: list[Array], points: tuple[int, ...]) -> Array:
    """The element of operand ``k``, of element numbers ``ids``, that each of the points reads; -1 for none. The points
    are the elements of the rows: of what `combine` reads, of what the others make."""
    dim = number(attrs["dim"], {})
    if k:
        wide = ids.reshape([-1 if p == dim else 1 for p in range(len(points))])
        return np.broadcast_to(wide, points)
    return rows("partition" if op == "partition" else "pad_ragged", attrs, [ids, *ends], points, -1)


def row_writes(attrs: Attrs, ids: Array, ends: list[Array], points: tuple[int, ...]) -> Array:
    """The element of the result of combine, of element numbers ``ids``, that each element of the rows is; -1: none."""
    return rows("partition", attrs, [ids, *ends], points, -1)
