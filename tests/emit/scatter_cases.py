"""Rows added to a table: additions that threads do several neighbours at a time, or must do one by one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import idgraph as ig
from idgraph.ir import DType

BLOCK = 8
COUNT, TABLE = 7, 4


def put_rows(width: int, dtype: DType = "float32") -> ig.Fusion:
    """``table[ids] += source`` for 7 rows of ``width`` elements, where 4 rows are."""
    f = ig.Fusion("rows")
    ids, source = f.input("ids", (COUNT,), "int64"), f.input("source", (COUNT, width), dtype)
    f.output(ig.index_put(f.full((TABLE, width), 0.5, dtype), [ids], source, accumulate=True))
    return f


def add_rows(width: int) -> ig.Fusion:
    """The same as `ig.scatter_add` with an expanded index, which takes no negative one."""
    f = ig.Fusion("rows")
    ids, source = f.input("ids", (COUNT,), "int64"), f.input("source", (COUNT, width))
    index = ig.expand(ig.unsqueeze(ids, 1), (COUNT, width))
    f.output(ig.scatter_add(f.full((TABLE, width), 0.5), 0, index, source))
    return f


def add_columns() -> ig.Fusion:
    """Along the last axis: each element goes to a column of its own."""
    f = ig.Fusion("columns")
    ids, source = f.input("ids", (COUNT, 8), "int64"), f.input("source", (COUNT, 8))
    f.output(ig.scatter_add(f.full((COUNT, TABLE), 0.5), 1, ids, source))
    return f


def _auto(build: Callable[[], ig.Fusion]) -> ig.Fusion:
    f = build()
    ig.schedule.auto(f, block=BLOCK)
    return f


def two_entries_of_one_thread() -> ig.Fusion:
    """By hand: a thread adds four neighbours for each of two entries, whose rows may be one."""
    f = add_rows(8)
    t = f.outputs[0]
    t.split(1, 4).split(0, 2).reorder([0, 2, 1, 3])
    t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "unroll").parallelize(3, "vectorize")
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    return f


def columns_in_memory() -> ig.Fusion:
    """Memory whose neighbours are not those of a row."""
    f = add_rows(8)
    t = f.outputs[0]
    t.set_allocation([t.logical[1], t.logical[0]])
    ig.schedule.auto(f, block=BLOCK)
    return f


def ids(shape: tuple[int, ...], low: int = 0) -> np.ndarray:
    """Indices, most of them several times."""
    return np.random.default_rng(3).integers(low, TABLE, shape)


WIDTHS = {5: 0, 6: 2, 8: 4, 12: 4, 130: 2}
"""Elements added at once (0: one by one) to rows of each width."""

SCATTERED: dict[str, Callable[[], ig.Fusion]] = {
    **{f"put_rows_of_{n}": partial(_auto, partial(put_rows, n)) for n in WIDTHS},
    **{f"add_rows_of_{n}": partial(_auto, partial(add_rows, n)) for n in (6, 8)},
    "put_rows_bf16": partial(_auto, partial(put_rows, 8, "bfloat16")),
    "put_rows_int32": partial(_auto, partial(put_rows, 8, "int32")),
    "put_rows_float64": partial(_auto, partial(put_rows, 8, "float64")),
    "add_columns": partial(_auto, add_columns),
    "two_entries_of_one_thread": two_entries_of_one_thread,
    "columns_in_memory": columns_in_memory,
}


def id_arrays(f: ig.Fusion) -> dict[str, np.ndarray]:
    """The input "ids"; `ig.index_put` counts negative ones from the end."""
    (t,) = (t for t in f.inputs if t.name == "ids")
    shape = tuple(int(d.extent) for d in t.axes)
    return {"ids": ids(shape, -TABLE if any(e.op == "index_put" for e in f.exprs) else 0)}
