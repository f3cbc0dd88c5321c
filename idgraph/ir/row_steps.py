"""The loops of rows, as one schedule step: which axes are rows, and how threads and lanes share them and their columns.

A *row* is one point of the kept axes of a reduction, its *columns* are the points of the reduced ones. What is computed
for the same rows by one kernel has the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from idgraph.errors import ScheduleError, user_line
from idgraph.ir import loop_steps
from idgraph.ir.choices import check_choice
from idgraph.ir.domains import Parallel
from idgraph.ir.protocols import TensorLike
from idgraph.ir.targets import GPU

MAX_LANES = 32


def row_loops(
    tensor: TensorLike,
    axes: Sequence[int],
    columns: Sequence[int],
    *,
    threads: int = 1,
    rows: int = 1,
    lanes: int = 1,
    side: int = 1,
    across: bool = False,
) -> None:
    """See `Tensor.row_loops`."""
    _check(tensor, axes, columns, {"threads": threads, "rows": rows, "lanes": lanes, "side": side}, across)
    taken = len(tensor.log)
    rest = [p for p in range(len(tensor.loop)) if p not in axes and p not in columns]
    order = [*axes, *columns, *rest]
    if order != sorted(order):
        loop_steps.reorder(tensor, order)
    for _ in columns[1:]:
        loop_steps.merge(tensor, len(axes), len(axes) + 1)
    for _ in axes[1:]:
        loop_steps.merge(tensor, 0, 1)
    first = min(len(axes), 1)
    if columns and across and threads > 1:
        _cut(tensor, first, threads, "threadIdx.y")
    elif columns and not across:
        loop_steps.split(tensor, first, lanes, inner=True)
        _cut(tensor, first, threads, "threadIdx.x")
        loop_steps.parallelize(tensor, first + 2, "vectorize")
    if first:
        if side > 1:
            _cut(tensor, 0, side, "unroll")
        if across or rows > 1 or side > 1:
            _cut(tensor, 0, rows, "threadIdx.x" if across else "threadIdx.y")
        loop_steps.parallelize(tensor, 0, "blockIdx.x")
    tensor.keep_first(taken)  # one step, which takes all of these again
    told = {"threads": threads, "rows": rows, "lanes": lanes, "side": side, "across": across}
    named = {k: v for k, v in told.items() if k in ("threads", "rows") or v != (k != "across")}
    loop_steps.log_step(tensor, "row_loops", tuple(axes), tuple(columns), **named)


def _cut(tensor: TensorLike, at: int, size: int, parallel: Parallel) -> None:
    loop_steps.split(tensor, at, size, inner=True)
    loop_steps.parallelize(tensor, at + 1, parallel)


def _check(
    tensor: TensorLike, axes: Sequence[int], columns: Sequence[int], sizes: dict[str, int], across: object
) -> None:
    """Raise `ScheduleError` for a position that is not a loop, or is named twice, and for numbers that no block has."""
    count, of = len(tensor.loop), f"row_loops of {tensor.name}"
    lists: dict[str, object] = {"axes": axes, "columns": columns}
    for what, given in lists.items():
        if (
            not isinstance(given, Sequence) or len(cast("Sequence[object]", given)) > count
        ):  # before it is walked: it may have no end
            raise ScheduleError(
                f"row_loops: {what} of {tensor.name} are a list of at most {count} loop positions",
                where=user_line(),
                hint="such as row_loops((0,), (1,))",
            )
    named = [*axes, *columns]
    wrong = [p for p in named if not loop_steps.is_int(p) or not 0 <= p < count or named.count(p) > 1]
    if wrong or not named:
        raise ScheduleError(
            f"row_loops: {wrong[0]!r} is not a loop of {tensor.name}, or is named twice" if wrong
            else f"row_loops: neither a row nor a column of {tensor.name} is named",
            where=user_line(),
            hint=f"its loops are {', '.join(map(repr, tensor.loop)) or '(none)'}, numbered from 0",
        )  # fmt: skip
    for name, value in sizes.items():
        check_choice(name, value, of, MAX_LANES if name == "lanes" else GPU.max_threads)
    check_choice("across", across, of)
