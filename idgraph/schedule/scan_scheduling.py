"""Scans: their axis on the threads of a block, whichever axis lies innermost in memory.

A block walks along the axis in steps of its threads; each thread makes the running value of a few neighbours, and the
block passes on what the threads before have (`idgraph.passes.block_scan`). Memory is read once, side by side: along the
axis where that is contiguous, else by a warp of neighbouring columns at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import hypot, prod
from typing import Final

from idgraph.arith import Expr, as_expr, divisible, is_true
from idgraph.ir import SCANS, IterDomain, Mapped, Tensor, TensorExpr, item_size
from idgraph.ir.device import current_device
from idgraph.ir.op_table import OPERATIONS, SCANS_OF
from idgraph.layout.inference import bytes_of
from idgraph.schedule.access_strides import loop_order, output_access, read_order
from idgraph.schedule.fusion_segments import scanned_axis as own_axis
from idgraph.schedule.tiling import RESOLUTION

THREADS: Final = 256  # of a block along a contiguous axis, rows and all
WIDE_THREADS: Final = 128  # the same where running values have 64 bits: an exchange of two words each takes longer
DEEP: Final = 16  # threads of a block along such an axis
AHEAD: Final = 8  # elements of a thread along it
LEAST: Final = 2  # elements of a thread: wide ones fill an access, and stores of neighbours leave no gaps
BASE_REGISTERS: Final = 24  # of a thread, for places and loops
HEAVY: Final = 16  # elements of a thread where two values take a function to join: most of an exchange's time


def cut_scan(t: Tensor, exprs: Sequence[TensorExpr], width: int, stored: Collection[Tensor]) -> bool:
    """Loops for ``t`` where it is a scan, or follows scans that ``exprs`` compute for it; False where none fit.

    ``width``: elements of one access.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.cumsum(f.input("x", (64, 4096)), 1))
    >>> cut_scan(t, [t.definition], 4, {t})
    True
    >>> [(str(d.extent), d.parallel) for d in t.loop]
    [('64', 'blockIdx.x'), ('4', 'serial'), ('128', 'threadIdx.x'), ('8', 'vectorize')]
    """
    axis, beside = scanned_axis(t, exprs), _scans_of_such_rows(t, exprs)
    reduction = t.definition if t.definition is not None and t.definition.is_reduction else None
    width = max(width, LEAST)
    own = output_access(t)
    if axis is None or own is None or t.loop != t.logical:
        return False
    n = int(axis.extent) if axis.extent.is_const else 0
    others = [d for d in t.loop if d is not axis and not d.is_broadcast]
    order = list(loop_order(t, others, stored)) if len(others) > 1 else others
    contiguous = own.steps[axis] == 1 if reduction is None else read_order(reduction)[-1] is axis
    many = is_true(_axis_product(others) >= current_device().resident_threads)
    if not axis.extent.is_const or n <= 2 * width or (not contiguous and (n < 2 * AHEAD or many or not others)):
        return False
    rest = [d for d in t.loop if d.is_broadcast]
    t.reorder([t.loop.index(d) for d in (*order, axis, *rest)])
    rows = len(order)
    for _ in range(rows - 1):
        t.merge(0)
    at = min(1, rows)
    if contiguous:
        block = WIDE_THREADS if _is_wide(beside) else THREADS
        width = HEAVY if _is_heavy(beside) else _cheapest_width(t, exprs, beside, n, width, block)
        threads = min(block, _next_power_of_two(-(-n // width)))
        t.split(at, width).split(at, threads)
        t.parallelize(at + 1, "threadIdx.x").parallelize(at + 2, "vectorize")
        if rows and threads < block:
            t.split(0, block // threads).parallelize(1, "threadIdx.y")
    else:
        threads = min(DEEP, _next_power_of_two(-(-n // AHEAD)))
        t.split(at, AHEAD).split(at, threads)
        t.parallelize(at + 1, "threadIdx.y").parallelize(at + 2, "unroll")
        t.split(0, current_device().warp).parallelize(1, "threadIdx.x")
    if rows:
        t.parallelize(0, "blockIdx.x")
    return True


def _cheapest_width(
    t: Tensor, exprs: Sequence[TensorExpr], beside: Sequence[TensorExpr], n: int, width: int, block: int
) -> int:
    """Neighbours of one thread, from ``width`` on: the more, the fewer exchanges, but they take registers, and fewer
    threads keep less of memory busy; and each access of several that a thread has asks for parts of as many lines.
    One answer for all scans ``beside``, whichever is asked about: they share a launch.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.cumsum(f.input("x", (8192, 8192)), 1))
    >>> _cheapest_width(t, [t.definition], [t.definition], 8192, 4, 128)
    8
    """
    exprs, gpu = [*exprs, *(e for e in beside if e not in exprs)], current_device()
    made = {e.output for e in exprs}
    read = {x for e in exprs for x in e.inputs if x not in made}
    written = {t, *filter(t.fusion.is_output, made)}
    memory = sum(map(bytes_of, read | written)) / gpu.bandwidth
    points = prod(int(d.extent) if d.extent.is_const else 0 for d in beside[0].output.axes) if beside else 0
    sizes = [8 if _is_wide([e]) else item_size(e.output.dtype) for e in beside]
    width = max(LEAST, min([width, *(gpu.lanes(item_size(e.output.dtype)) for e in beside)]))
    words = sum(sizes) // gpu.bank_bytes + 2  # with what is read and written
    times: dict[int, float] = {}
    while width <= HEAVY and n > 2 * width and points:
        threads = min(block, _next_power_of_two(-(-n // width)))
        values = points // n * -(-n // (width * threads)) * threads
        exchanged = sum(gpu.exchange_seconds(values, threads, size) for size in sizes)
        running = gpu.registers / (BASE_REGISTERS + width * words)  # of a multiprocessor; half of all keep memory busy
        busy = min(1.0, 2 * running / gpu.threads) if gpu.threads else 1.0
        lines = [sum(bytes_of(x) * _access_count(x, width) for x in xs) for xs in (read, written)]
        asking = gpu.line_seconds(*(n / gpu.line for n in lines))
        times[width] = hypot(max(memory / busy, asking), exchanged)
        width *= 2
    least = min(times.values(), default=0.0)
    return next((w for w, time in times.items() if time <= least * RESOLUTION), width)


def _access_count(x: Tensor, width: int) -> int:
    """Of ``width`` neighbours in memory: rows that begin at any element are accessed one by one."""
    lanes, innermost = current_device().lanes(item_size(x.dtype)), x.axes[-1].extent if x.axes else as_expr(1)
    return -(-width // lanes) if divisible(innermost, min(width, lanes)) else width


def _is_heavy(exprs: Sequence[TensorExpr]) -> bool:
    return any(e.op in SCANS and OPERATIONS[SCANS_OF[e.op]].cycles == "library" for e in exprs)


def _scans_of_such_rows(t: Tensor, exprs: Sequence[TensorExpr]) -> list[TensorExpr]:
    """The scans of ``exprs``, if any, and those of the fusion along an axis of the same place in as many rows.

    They share a launch if they have blocks of one shape: threads that exchange running values cannot be renumbered.
    """
    own = [e for e in exprs if e.op in SCANS]
    if not own:
        return []
    shape, at = own[0].output.shape, own[0].output.axes.index(own_axis(own[0]))
    return [
        e
        for e in t.fusion.exprs
        if e in own or (e.op in SCANS and e.output.shape == shape and e.output.axes.index(own_axis(e)) == at)
    ]


def _is_wide(exprs: Sequence[TensorExpr]) -> bool:
    """Whether a running value has 64 bits: what is added up or multiplied is kept in float64."""
    scans = [e for e in exprs if e.op in SCANS]
    return any(e.op in ("cumsum", "cumprod", "logcumsumexp") or item_size(e.output.dtype) > 4 for e in scans)


def _axis_product(axes: Sequence[IterDomain]) -> Expr:
    return prod((d.extent for d in axes), start=as_expr(1))


def _next_power_of_two(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, n - 1).bit_length()


def scanned_axis(t: Tensor, exprs: Sequence[TensorExpr]) -> IterDomain | None:
    """The axis of ``t`` along which it, or what is computed for it on the way, is scanned; None for none, or several.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> t = f.output(ig.cumsum(f.input("x", (4, 64)), 0) * 2.0)
    >>> scanned_axis(t, f.exprs) is t.logical[0]
    True
    """
    found: set[IterDomain] = set()
    for e in exprs:
        if e.op not in SCANS:
            continue
        u, axis = e.output, own_axis(e)
        while u is not t:
            use = next(use for use in u.uses if use in exprs)
            read = use.reads[use.operands_of(u)[0]][u.axes.index(axis)]
            if not isinstance(read, Mapped):
                return None
            u, axis = use.output, read.domain
        found.add(axis)
    return next(iter(found)) if len(found) == 1 else None
