"""Ragged axes in the programs of devices: each device has all rows, of a part of the axes beside them.

Between kernels rows lie padded, as every array does; each kernel makes them rows again by the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from idgraph.arith import Expr, as_expr
from idgraph.ir.fusion import Tensor, TensorExpr
from idgraph.ir.mesh import MeshError, Placement
from idgraph.ir.op_table import apply
from idgraph.ir.ops_ragged import crop_ragged, pad_ragged, ragged_dim
from idgraph.ir.ops_view import slice as part_of_axis
from idgraph.ir.ragged_axes import row_ends


def rows_axes(t: Tensor) -> set[int]:
    """The positions of the ragged axis of a tensor and of its component; none of a plain one.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> u = ig.partition(f.input("x", shape=(2, 9)), 1, f.input("offsets", shape=(4,), dtype="int64"))
    >>> rows_axes(u), rows_axes(f["x"])
    ({1, 2}, set())
    """
    at = ragged_dim(t)
    rows = None if at is None else t.axes[at].rows
    return set() if rows is None else {p for p, d in enumerate(t.axes) if p == at or d is rows.component}


def check_rows(t: Tensor, placements: Mapping[str, Placement]) -> None:
    """Raise `MeshError` where a device would not have all rows of a tensor, or not all of their offsets."""
    axes = rows_axes(t)
    over = [s.over for s in placements[t.name].shards if s.axis in axes]
    if over:
        raise MeshError(
            f"{t.name} is sharded over {over[0]} along its rows, and a program of a device has all of them",
            where=t.source_line,
            hint=f"shard an axis beside the rows, or ig.pad_ragged({t.name}, value)",
        )
    for d in (t.axes[p] for p in axes):
        rows = d.rows
        if rows is not None and (placements[rows.starts.name].steps or placements[rows.lengths.name].steps):
            raise MeshError(
                f"the offsets {rows.offsets.name} of the rows of {t.name} are spread over devices, each of which needs "
                "all of them",
                where=t.source_line,
                hint=f"{rows.offsets.name}.replicate()",
            )


class LocalRows:
    """Where rows begin and end in the kernels of one device, made of the local tensors that say so: a run tests the
    offsets there."""

    def __init__(self) -> None:
        self._offsets: dict[Tensor, Tensor] = {}

    def ends(self, starts: Tensor, lengths: Tensor, extent: Expr) -> tuple[Tensor, Tensor]:
        """Starts and lengths as an operation on rows takes them, of rows of ``extent`` elements in all."""
        return row_ends(self._of(starts, lengths), extent)

    def _of(self, starts: Tensor, lengths: Tensor) -> Tensor:
        if starts not in self._offsets:
            n = int(as_expr(starts.axes[0].extent))
            last = [part_of_axis(t, 0, n - 1, n) for t in (starts, lengths)]
            f = starts.fusion
            self._offsets[starts] = apply(f, "cat", (starts, apply(f, "add", tuple(last), {})), {"dim": 0})
        return self._offsets[starts]

    def operands(self, e: TensorExpr, operands: dict[int, Tensor]) -> None:
        """Give an operation on rows its operands 1 and 2."""
        dim = e.attrs["dim"]
        assert isinstance(dim, int)
        whole = e.inputs[0].axes[dim if e.op == "partition" else dim + 1].extent
        operands[1], operands[2] = self.ends(operands[1], operands[2], whole)

    def of_input(self, padded: Tensor, like: Tensor, local: Callable[[Tensor], Tensor]) -> Tensor:
        """Rows again of a padded tensor, where the whole tensor ``like`` has rows."""
        at = ragged_dim(like)
        rows = None if at is None else like.axes[at].rows
        if at is None or rows is None:
            return padded
        starts, lengths = (local(like.fusion[t.name]) for t in (rows.starts, rows.lengths))
        return crop_ragged(padded, at - 1, self._of(starts, lengths))


def stored(t: Tensor) -> Tensor:
    """A tensor as an array has it: rows are padded."""
    return t if ragged_dim(t) is None else pad_ragged(t, False if t.dtype == "bool" else 0)
