"""Operations on rows whose ends are loaded, applied to arrays: to values, or to element numbers to see what goes where.

Only attributes and arrays are read: where rows begin and how long they are, row by row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from idgraph.errors import IndexingError
from idgraph.validate.oracle.views import Array, Attrs, number

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
    """The result of ``op``, of ``shape``, on (operand, starts, lengths); ``fill`` where there is no element.

    >>> x, starts, lengths = np.arange(5), np.array([0, 2, 2]), np.array([2, 0, 3])
    >>> rows("partition", {"dim": 0}, [x, starts, lengths], (3, 5), -1).tolist()
    [[0, 1, -1, -1, -1], [-1, -1, -1, -1, -1], [2, 3, 4, -1, -1]]
    """
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
