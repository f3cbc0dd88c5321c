"""Strides padded to a boundary: a row that begins at a multiple of 128 bytes is read in whole sectors and wide vectors.

TorchInductor calls it comprehensive padding (``pad_strides`` in its ``ir.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

from idgraph.display import Printed, Sheet
from idgraph.errors import OperationError, ScheduleError, arguments, short_repr, user_line
from idgraph.index.allocation import strides
from idgraph.ir import SCANS, SCATTERS, Fusion, IterDomain, Tensor
from idgraph.ir.device import ALIGNMENT, current_device
from idgraph.ir.dtypes import item_size
from idgraph.ir.fusion import TensorExpr
from idgraph.ir.schedule_log import Format
from idgraph.layout.inference import Formats, demanded
from idgraph.layout.stride_order import memory_order


@dataclass(frozen=True, slots=True)
class PaddedStrides:
    """Strides that one tensor could have. ``strides`` by axis, in elements; widths are elements of one access.

    ``extra_bytes`` are added to the buffer. ``sectors_before`` and ``sectors_after`` are the 32-byte sectors that the
    warps ask for in one pass over all rows; ``banks_before`` and ``banks_after`` the threads of a warp that meet in one
    bank when they walk down a column of the tensor in shared memory. ``taken``: the sectors saved outweigh the bytes
    added. ``advice``: an input or an output, which only its owner may change.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.copy(f.input("a", shape=(64, 1025)), name="t")
    >>> u = f.output(t.T + 1.0)
    >>> for x in ig.layout.pad_strides(f)[:1]:
    ...     print(x.tensor.name, x.strides, x.extra_bytes, round(x.extra, 3))
    a (1056, 1) 7812 0.03
    """

    tensor: Tensor
    strides: tuple[int, ...]
    extra_bytes: int
    width_before: int
    width_after: int
    sectors_before: int
    sectors_after: int
    banks_before: int
    banks_after: int
    taken: bool
    advice: bool

    @property
    def extra(self) -> float:
        """The share of bytes added."""
        return self.extra_bytes / max(1, _count(self.tensor) * item_size(self.tensor.dtype))


@dataclass(frozen=True, slots=True)
class StridePadding(Printed):
    """A row for each tensor that padding changes, and why others were not changed; prints as a table."""

    rows: tuple[PaddedStrides, ...]
    skipped: tuple[tuple[Tensor, str], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> PaddedStrides:
        return self.rows[at]

    def sheet(self) -> Sheet:
        """One row a tensor."""
        rows = [
            (
                r.tensor.name, str(r.strides), f"+{r.extra_bytes} B ({r.extra:.2%})",
                f"{r.width_before} -> {r.width_after}",
                f"{r.sectors_before} -> {r.sectors_after}", f"{r.banks_before} -> {r.banks_after}",
                "advice" if r.advice else "taken" if r.taken else "does not pay",
            )
            for r in self.rows
        ]  # fmt: skip
        head = ("tensor", "strides", "added", "elements an access", "sectors", "threads a bank", "")
        return Sheet("padded strides", head, tuple(rows), tuple(f"{t.name}: {why}" for t, why in self.skipped))

    def __str__(self) -> str:
        found = self.sheet()
        return "\n".join([found.title, *("  ".join(r) for r in found.rows), *found.notes])

    __repr__ = __str__


@arguments(OperationError, first=True)
def pad_strides(fusion: Fusion, *, alignment: int = 128, threshold: int = 1024) -> StridePadding:
    """Strides whose rows begin at multiples of ``alignment`` bytes, where rows have over ``threshold`` elements.

    From the second smallest stride on, in memory order, each stride becomes a multiple of the alignment; the order
    stays. Only tensors of constant size; a tensor whose readers need it dense (a reshape that merges a padded axis) is
    skipped. Inputs and outputs are advised, never changed; the fusion is not changed at all. Raises `OperationError`
    for an alignment that is not a power of two.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = ig.exp(f.input("x", shape=(30, 50257), dtype="bfloat16"))
    >>> y = f.output(t - ig.amax(t, 1, keepdim=True))
    >>> row = next(r for r in ig.layout.pad_strides(f) if r.tensor is t)
    >>> row.strides, row.width_before, row.width_after, f"{row.extra:.2%}"
    ((50304, 1), 1, 8, '0.09%')
    """
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OperationError(f"pad_strides: alignment {alignment!r} is not a power of two of bytes", hint="128")
    rows: list[PaddedStrides] = []
    skipped: list[tuple[Tensor, str]] = []
    inside = {t for t in fusion.tensors if t.inline_position == 0}
    for t in fusion.tensors:
        if t not in inside and not fusion.is_output(t):
            continue
        found = _padded(t, alignment, threshold)
        if isinstance(found, str):
            skipped.append((t, found))
        elif found is not None:
            rows.append(found)
    return StridePadding(tuple(rows), tuple(skipped))


def _padded(t: Tensor, alignment: int, threshold: int) -> PaddedStrides | str | None:
    """The padded strides of one tensor; a reason; or None where nothing changes."""
    if not all(isinstance(n, int) for n in t.shape) or not all(s.is_const for s in strides(t)):
        return "its sizes or strides are symbols"
    order = memory_order(t)
    if len(order) < 2 or not set(t.allocation) <= set(t.axes):
        return None
    own = {d: int(s) for d, s in zip(t.allocation, strides(t), strict=True)}
    size = item_size(t.dtype)
    unit = max(1, alignment // size)
    made = dict(own)
    step = own[order[-1]] * int(order[-1].extent)
    for d in reversed(order[:-1]):
        step = max(step, made[d]) if d is order[-2] else step
        made[d] = step if step <= threshold else -(-step // unit) * unit
        step = made[d] * int(d.extent)
    if made == own:
        return None
    dense = _needs_dense(t, [d for d in order if made[d] != own[d]])
    if dense is not None:
        return (
            f"{dense.op} at {dense.source_line} reads it as dense"
            if dense.source_line
            else f"{dense.op} reads it as dense"
        )
    outer = [(int(d.extent), own[d], made[d]) for d in order[:-1]]
    run = int(order[-1].extent) * own[order[-1]]
    widths = [_width(t, order[-1], s, own) for s in (own, made)]
    before = _sectors([(n, a) for n, a, _ in outer], run, size, widths[0])
    after = _sectors([(n, b) for n, _, b in outer], run, size, widths[1])
    extra = (_span(order, made) - _span(order, own)) * size
    advice = t.definition is None or t.fusion.is_output(t)
    padded, bytes_saved = tuple(made.get(d, 1) for d in t.axes), (before - after) * current_device().sector
    banks = [_banks(by_axis[order[-2]], size) for by_axis in (own, made)]
    return PaddedStrides(
        t, padded, extra, widths[0], widths[1], before, after, banks[0], banks[1], bytes_saved > extra, advice
    )


def _needs_dense(t: Tensor, changed: list[IterDomain]) -> TensorExpr | None:
    """A reader for which the padded axes must lie densely: a reshape that merges one of them with what lies outside."""
    for e in t.uses:
        if e.op == "reshape" and any(d in changed for d in t.axes):
            return e
    return None


def _span(order: tuple[IterDomain, ...], by_axis: dict[IterDomain, int]) -> int:
    return 1 + sum((int(d.extent) - 1) * by_axis[d] for d in order)


def _width(t: Tensor, inner: IterDomain, by_axis: dict[IterDomain, int], own: dict[IterDomain, int]) -> int:
    """Elements of the widest aligned access along the innermost axis, in every row."""
    if own[inner] != 1:
        return 1
    size = item_size(t.dtype)
    start = int(t.offset) * size if isinstance(t.offset, int) else 1
    vector = current_device().vector_bytes
    common = gcd(vector, t.alignment if t.definition is None else ALIGNMENT, start or vector)
    for d in t.axes:
        if d is not inner and d.extent != 1 and d in by_axis:
            common = gcd(common, by_axis[d] * size)
    return max(1, common // size)


def _sectors(outer: list[tuple[int, int]], run: int, size: int, width: int) -> int:
    """Sectors that the warps ask for when they read every row, ``width`` elements a thread.

    Rows are counted by where they begin within a sector: a warp whose bytes begin inside one asks for one more.
    """
    gpu, starts = current_device(), {0: 1}
    for n, stride in outer:
        made: dict[int, int] = {}
        period = gpu.sector // gcd(gpu.sector, stride * size)
        for begin, many in starts.items():
            for k in range(min(n, period)):
                at = (begin + k * stride * size) % gpu.sector
                made[at] = made.get(at, 0) + many * ((n - k + period - 1) // period)
        starts = made
    request = gpu.warp * width * size
    whole, rest = divmod(run * size, request)

    def asked(begin: int) -> int:
        return whole * -(-(begin + request) // gpu.sector) + (-(-(begin + rest) // gpu.sector) if rest else 0)

    return sum(many * asked(begin) for begin, many in starts.items())


def _banks(row: int, size: int) -> int:
    """Threads of a warp that meet in one bank when each takes the first element of a row of its own."""
    gpu, hits = current_device(), dict[int, int]()
    for lane in range(gpu.warp):
        bank = lane * row * size // gpu.bank_bytes % gpu.banks
        hits[bank] = hits.get(bank, 0) + 1
    return max(hits.values())


def _count(t: Tensor) -> int:
    total = 1
    for n in t.shape:
        total *= int(n)
    return total


def take_back(fusion: Fusion) -> None:
    """Forget the formats that an earlier automatic schedule chose; those of the user stay."""
    by_name = {t.name: t for t in fusion.tensors} if fusion.formats else {}
    for note in fusion.formats:
        t = by_name.get(note.tensor)
        if t is None or demanded(t) or not any(s.name == "set_allocation" for s in t.log):
            continue
        t.forget("set_allocation")
        t.domain.allocation = t.axes
        t.domain.strides = (None,) * len(t.axes)
    fusion.formats = ()
    fusion.touch()


def lay_out(fusion: Fusion, tensors: Iterable[Tensor]) -> None:
    """Lay ``tensors`` out as `infer` decides, where their layout differs, and note it in ``fusion.formats``.

    The result of a scatter has its operand's layout, as it may be updated in place; that of a scan follows its axis.
    """
    formats = Formats()
    for t in tensors:
        e = t.definition
        if e is None or e.op in SCATTERS or e.op in SCANS or t.ndim < 2:
            continue
        d = formats.decide(t)
        wanted = tuple(t.axes[a] for a in d.order)
        if d.kind != "hint" or wanted == t.allocation:
            continue
        t.set_allocation(wanted)
        fusion.formats = (*fusion.formats, Format(t.name, d.order, d.explain(), t.log[-1].at))


LANES = 32  # rows of a tile that lie one after another: those that the lanes of a warp take


@arguments(ScheduleError)
def blocked(t: Tensor, rows: int, columns: int, lanes: int = LANES) -> tuple[IterDomain, ...]:
    """Axes for `Tensor.set_allocation`: tiles of ``rows`` by ``columns`` elements of the last two axes, tiles by rows.

    Within a tile, row r is number r // lanes of those at r % lanes: element (r, c) of a tile of 128 by 4 lies at
    ``r % 32 * 16 + r // 32 * 4 + c``, as tensor cores read the scales of blocks (cuDNN's F8_128x4). ``lanes=rows`` is a
    plain tile, as a tile of at most ``lanes`` rows is anyhow. Tiles at the ends are padded: holes in memory.

    The loops of ``t`` stay as they are. Raises `ScheduleError` for a tensor of fewer than two axes and for sizes that
    do not divide each other; a result comes back in this order with ``run(..., raw=True)``.

    >>> import idgraph as ig
    >>> f = ig.Fusion("scales")
    >>> t = f.output(ig.copy(f.input("x", shape=(256, 8))))
    >>> _ = t.set_allocation(ig.layout.blocked(t, rows=128, columns=4))
    >>> [str(d.extent) for d in t.allocation]
    ['2', '2', '32', '4', '4']
    >>> print(t.loop, ig.IdModel(f).write(t.definition).address.evaluate({"i0": 33, "i1": 5}))
    (I2[256], I3[8]) 533
    """
    for name, n in (("rows", rows), ("columns", columns), ("lanes", lanes)):
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(f"blocked: {name} is {short_repr(n)}", where=user_line(), hint="an integer from 1 on")
    if t.ndim < 2:
        raise ScheduleError(
            f"blocked: {t.name} of shape {t.shape} has no two axes", where=user_line(), hint="t = t.reshape(1, -1)"
        )
    if rows > lanes and rows % lanes:
        raise ScheduleError(
            f"blocked: {lanes} lanes do not divide tiles of {rows} rows",
            where=user_line(),
            hint=f"lanes={rows} for plain tiles",
        )
    loop, row, column = t.loop, t.axes[-2], t.axes[-1]
    t.set_loop(list(t.logical))
    outer_row, inner_row = _tile_axis(t, row, rows)
    outer_column, inner_column = _tile_axis(t, column, columns)
    within = (inner_row,)
    if rows > lanes:
        group, lane = _tile_axis(t, inner_row, lanes)
        within = (lane, group)
    t.set_loop(list(loop))
    return (*t.axes[:-2], outer_row, outer_column, *within, inner_column)


def _tile_axis(t: Tensor, axis: IterDomain, size: int) -> tuple[IterDomain, IterDomain]:
    at = t.loop.index(axis)
    t.split(at, size)
    return t.loop[at], t.loop[at + 1]
