"""Shapes of row fusions: threads, lanes and rows of a block, by the sizes of a space and by its memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd, hypot

from idgraph.ir import IterDomain, Tensor, is_float, item_size
from idgraph.ir.device import current_device, floor_power_of_two
from idgraph.ir.op_table import POINTWISE
from idgraph.ir.walks import operands, reach
from idgraph.schedule.access_strides import SourceAccess, read_order, source_strides
from idgraph.schedule.config import RULE, KernelConfig, most_values
from idgraph.schedule.pointwise_tiling import cuts
from idgraph.schedule.reduction_domain import ReductionDomain, few_rows, product_of, reduces
from idgraph.schedule.tiling import RESOLUTION, is_cheaper
from idgraph.schedule.tiling_cost import AffineAccess, Tiling, affine, tiling_cost

REDUCING_THREADS = 256  # threads of a block that reduces one long row
WRITING_THREADS = 512  # the same where it also writes a row
CHUNKS = 4  # pieces of 16 bytes that each thread takes of a row, where there are enough rows for all processors
HELD = 32  # elements of a row that a thread takes at most: of bytes, CHUNKS accesses would be more than it can hold
BLOCK = 128  # threads of a block that works on several short rows
LEAST_COLUMNS = 16  # columns of each thread, where several share a row
LEAST_THREADS = 4  # of a row that is read in parts
WARP_COLUMNS = 24  # columns of each thread of a row that one warp takes: it waits for no other
SOME_COLUMNS = 16  # the same of a few warps and 16-bit inputs, where no thread is idle: more loads are under way
ACROSS_THREADS = 256  # of a block whose neighbouring threads take neighbouring rows
HELD_ACROSS = 32  # columns of one input that a thread of such a block holds at most
ENOUGH = 3, 8  # of the resident threads keep memory busy, each with an access of 16 bytes or several in flight
SEVERAL = 4  # rows of as many columns as threads can take at once
ROWS_OF_ONE_READ = 8  # that a thread takes at most
SHORT = 8  # columns that one thread reads of several rows at once
SHORT_BYTES = 2  # of an input's element
AGAIN = 16  # reads of an element, in the mean, that find it in a cache
PIECES = (3, 4, 5, 6, 7)  # of 16 bytes that each thread of whole warps takes of a row, the best first
MORE_HELD = 40  # elements of a row that a thread of half as many takes instead, where fewer threads are idle


@dataclass(frozen=True, slots=True)
class ReductionTiling:
    """The loops of one space: ``lanes`` elements of a vector, ``threads`` for each row, ``rows`` of a block.

    ``across`` says that neighbouring threads take neighbouring rows (the rows are what is contiguous); the ``threads``
    of one row lie in the block's other direction. Each thread then takes ``side`` neighbouring rows, and a block
    ``rows`` times as many. ``why`` is the rule's reason.
    """

    lanes: int
    threads: int
    rows: int
    across: bool
    why: str = ""
    side: int = 1

    @property
    def row_loops(self) -> int:
        """Loops left of the columns."""
        return (2 if self.across or self.rows > 1 or self.side > 1 else 1) + (self.side > 1)


def is_outer_reduction(space: ReductionDomain) -> bool:
    """Whether the rows of a space, not its columns, lie side by side in memory; or the vectors of neighbouring rows
    (windows that overlap), which then are a thread's each, and exchange nothing."""
    sums = [t for t in space.labels if reduces(t)]
    if any(_innermost(space, t) < space.rows for t in sums):
        return True
    return bool(sums) and all(_reads_windows(space, t) for t in sums)


def _reads_windows(space: ReductionDomain, t: Tensor) -> bool:
    """Whether a reduction reads windows, and nothing else or unknown."""
    reads = _stored_reads(space, t)
    return bool(reads) and all(_is_window(space, u) for u in reads)


def _is_window(space: ReductionDomain, u: SourceAccess) -> bool:
    """Whether a read's rows overlap, each less than an access behind the one before."""
    count, steps = product_of(space.extents[space.rows :]), [u.steps[d] for d in u.steps]
    if not space.rows or count is None or not all(s is not None and s.is_const for s in steps):
        return False
    own = int(steps[space.rows - 1] or 0)
    return 1 < own <= current_device().lanes(item_size(u.source.dtype)) and own < count and int(steps[-1] or 0) == 1


def _stored_reads(space: ReductionDomain, t: Tensor) -> list[SourceAccess]:
    """Reads of a reduction from memory, by the rows and columns of the space; none where one is not known."""
    own = {n: d for d, n in space.labels[t].items()}
    behind = reach([t], lambda u: operands(u) if u is t or not reduces(u) else ())
    base = [own[n] for n in sorted(own)]
    touches = source_strides(t, set(filter(reduces, behind)), splits=True, base=base, formulas=True)
    return [u for u in touches or () if u.source.definition is None or reduces(u.source)]


def choose_reduction_tiling(
    space: ReductionDomain, writes: bool, across: bool, passes: int, config: KernelConfig = RULE
) -> ReductionTiling:
    """Threads and lanes for the space: by its extents and by which axes lie innermost in memory (see
    `is_outer_reduction`).

    A kernel that ``writes`` over the columns in a later one of its ``passes`` over them may hold them, as may one that
    has three (a maximum and a sum behind it go together): then a thread has elements of one row.

    Long rows get a block each, of the more threads the fewer rows there are; short ones a part of a warp or a few
    warps, several rows a block. What ``config`` chooses is taken as far as the row has elements for it.

    Long: the cases of one decision.
    """
    columns = [t for t in space.labels if not space.is_row(t) or reduces(t)]
    read = [p for t in columns if t.definition is not None for p in t.definition.inputs if not p.definition]
    count, rows = product_of(space.extents[space.rows :]), product_of(space.extents[: space.rows])
    if across:
        held = passes > 1 and (writes or _passes_again(space))
        return _held_across(space, rows, count, config) if held else _across(space, rows, count, config)
    beside = 1 if writes or config.threads or config.rows else _rows_per_thread(space, rows, count)
    if beside > 1:
        why = "rows of a few columns: several a thread, which lie side by side"
        return ReductionTiling(1, 1, BLOCK, across=True, why=why, side=beside)
    gpu = current_device()
    sizes = [item_size(t.dtype) for t in (*read, *columns) if not t.definition or t.fusion.is_output(t)]
    lanes = _lanes(space, gpu.lanes(min([*sizes, 4])))
    usual = WRITING_THREADS if writes else REDUCING_THREADS
    if count is None:
        return ReductionTiling(lanes, config.threads or usual, 1, across=False, why="columns of open number")
    few = rows is not None and rows < few_rows()
    alone = few or count <= gpu.warp * lanes or config.threads
    wanted = -(-count // (lanes if alone else max(lanes, min(lanes * CHUNKS, HELD))))
    most = config.threads or (gpu.block_threads if few else usual)
    threads = 1
    while threads < most and threads < wanted:
        threads *= 2
    if config.threads and threads > config.threads:
        threads = config.threads
    fit = writes and not alone
    if fit and gpu.warp <= threads < BLOCK and count == 2 * threads * SOME_COLUMNS and _is_short(space, columns):
        threads *= 2
    if fit and threads > BLOCK and _is_short(space, columns) and _fuller(count, lanes, threads):
        threads //= 2
    if fit and threads > BLOCK // 2 and count % (lanes * threads) and _is_short(space, columns):
        once = sum(map(reduces, space.labels)) == 1
        threads = _whole_warps(count, lanes, once) or threads
    if writes and len(space.extents) > space.rows + 1 and not config.threads:
        threads = _even_threads(count, lanes, threads)
    threads = _uncut(space, count, lanes, threads)
    single = writes or passes > 2 or config.rows
    side = 1 if single or config.threads or threads * lanes < count else _several(space, rows, threads, lanes)
    if side > 1 and _from_cache(space, columns, rows, count):
        threads = min(threads, _line_threads())
    elif not few and not config.threads:
        threads = _combining_threads(space, columns, rows, count, lanes, threads)
        side = 1 if threads * lanes < count else side
    most = config.rows or -(-BLOCK // threads)
    threads = gpu.warp if fit and threads > gpu.warp and count <= gpu.warp * WARP_COLUMNS else threads
    while lanes > 1 and threads * lanes > max(1, count) * 2 - 1:
        lanes //= 2
    if not single and side == 1 and rows is not None and (shared := _rows_of_one_read(space, rows)) > 1:
        return _of_one_read(lanes, threads, rows, shared)
    if side > 1:
        why, block = "short rows: several a thread, in flight together", max(1, BLOCK // threads)
        return ReductionTiling(lanes, threads, block, across=False, why=why, side=side)
    block = _rows_of_block(most, rows)
    why = _reason(config, few, block)
    return ReductionTiling(lanes, threads, max(1, min(block, gpu.block_threads // threads)), across=False, why=why)


def _passes_again(space: ReductionDomain) -> bool:
    """Whether a column is computed from a number of the row otherwise than as a difference: maxima and sums of exp,
    means and squares of deviations are found in one pass."""
    made = [e for t in space.labels if not space.is_row(t) and (e := t.definition) is not None and e.op in POINTWISE]
    return any(p in space.labels and space.is_row(p) for e in made if e.op != "sub" for p in e.inputs)


def _reason(config: KernelConfig, few: bool, block: int) -> str:
    return (
        "as chosen" if config.threads or config.rows
        else f"fewer rows than {few_rows()}" if few
        else "short rows share a block" if block > 1
        else "rows enough for all processors"
    )  # fmt: skip


def _combining_threads(
    space: ReductionDomain, columns: Iterable[Tensor], rows: int | None, count: int, lanes: int, threads: int
) -> int:
    """Threads of a row of which each would have one vector: fewer, with several vectors each, where the exchange of
    partial results takes longer than memory, behind which a shorter one hides.

    Threads of one access fill a sector, and of all rows they are as many as run at once.
    """
    gpu = current_device()
    if rows is None or threads > gpu.warp or threads * lanes != count:
        return threads
    sums = [t for t in space.labels if reduces(t)]
    wide = {t for t in sums if is_float(t.dtype) and t.definition is not None and t.definition.op in ("sum", "prod")}
    sizes = [item_size("float64" if t in wide else t.dtype) for t in sums]
    moved = {*_stored(space, columns), *(t for t in columns if t.fusion.is_output(t))}
    large = [t for t in moved if product_of([d.extent for d in t.axes]) == rows * count]
    item = min((item_size(t.dtype) for t in large), default=1)
    memory = sum(item_size(t.dtype) for t in large) * rows * count / gpu.bandwidth

    def exchanged(threads: int) -> float:
        return sum(gpu.exchange_seconds(rows * threads, threads, n) for n in sizes)

    if exchanged(threads) <= memory:
        return threads
    times: dict[int, float] = {}
    while (
        threads * lanes * SEVERAL >= count
        and threads * lanes * item >= gpu.sector
        and (not times or rows * threads >= gpu.resident_threads)
    ):
        times[threads] = hypot(memory, exchanged(threads))
        threads //= 2
    least = min(times.values(), default=0.0)
    return next((n for n, time in times.items() if time <= least * RESOLUTION), threads)


def _lanes(space: ReductionDomain, most: int) -> int:
    """Elements of a thread's vectors along a row: ``most`` or fewer, by what the reads of all reductions cost. Windows
    that overlap are read at each of their places, and only those of neighbouring elements lie in few sectors."""
    reads: dict[object, AffineAccess] = {}
    axes: tuple[IterDomain, ...] = ()
    for t in filter(reduces, space.labels):
        own = dict(sorted(space.labels[t].items(), key=lambda x: x[1]))
        if len(own) != len(space.extents) or not all(d.extent.is_const and int(d.extent) for d in own):
            return most
        axes = axes or tuple(own)
        alike = dict(zip(own, axes, strict=True))
        behind = reach([t], lambda u, t=t: operands(u) if u is t or not reduces(u) else ())
        touches = source_strides(t, set(filter(reduces, behind)), splits=True, base=tuple(own))
        known = [affine(u) for u in touches or ()]
        if not known or None in known:
            return most
        for a in filter(None, known):
            parts = tuple(({alike[d]: k for d, k in terms.items()}, *rest) for terms, *rest in a.parts)
            steps = {alike[d]: k for d, k in a.steps.items()}
            reads.setdefault((a.name, a.offset, *steps.values()), replace(a, steps=steps, parts=parts))
    if not any(a.parts for a in reads.values()) and len({a.name for a in reads.values()}) == len(reads):
        return most  # each memory is read at one place: rows of any length have vectors, behind a peeled head
    widths = [most >> n for n in range(most.bit_length())]
    block, device = REDUCING_THREADS, current_device()
    costs = {n: tiling_cost(Tiling(axes, run=n), tuple(reads.values()), block, device) for n in widths}
    best = min(widths, key=lambda n: costs[n].time_us)
    return best if is_cheaper(costs[best], costs[most], device) else most


def _fuller(count: int, lanes: int, threads: int) -> bool:
    """Whether half as many threads, of which fewer are idle in the last piece of a row, can hold it.

    5 120 elements of 16 bits are two and a half pieces of 256 threads, and five of 128.
    """
    return -(-count // (lanes * (threads // 2))) * lanes <= MORE_HELD


def _whole_warps(count: int, lanes: int, once: bool) -> int:
    """Threads, as whole warps, that take a row in a few equal pieces, so that none of them is idle; 0 where none do.

    7 168 elements of 16 bits are four pieces of 224 threads, and three and a half of 256. Where a row is reduced
    ``once``, a thread that has two pieces waits for the others seldom enough.

    >>> [_whole_warps(n, 8, once=False) for n in (4608, 7168, 10752, 14336, 3584, 11008)]
    [192, 224, 224, 256, 0, 0]
    >>> _whole_warps(3584, 8, once=True)
    224
    """
    warp, vectors = current_device().warp, count // lanes if count % lanes == 0 else 0
    pieces = (*PIECES, 2) if once else PIECES
    shapes = [vectors // n for n in pieces if vectors % (n * warp) == 0 and BLOCK <= vectors // n <= WRITING_THREADS]
    return next((t for t in shapes if t <= REDUCING_THREADS), shapes[-1] if shapes else 0)


def _even_threads(count: int, lanes: int, threads: int) -> int:
    """Whole warps, near ``threads``, that take a row of several column axes with no thread idle, and hold it.

    A loop over such columns that some threads leave early has a condition, which no row is held behind.

    >>> _even_threads(25088, 8, 512), _even_threads(25091, 8, 512)
    (448, 512)
    """
    gpu = current_device()
    if count % (lanes * threads) == 0:
        return threads
    fit = [
        t
        for t in range(gpu.warp, gpu.block_threads + 1, gpu.warp)
        if count % (lanes * t) == 0 and count // t <= most_values(t)
    ]
    return min(fit, key=lambda t: abs(t - threads), default=threads)


def _uncut(space: ReductionDomain, count: int, lanes: int, threads: int) -> int:
    """Threads of a row whose parts are read at other columns: as many as one part has vectors, so that all threads are
    in one part at a time and take the same branch, and each has both columns of a pair."""
    places = {c for t in space.labels if any(p in space.beside for p in operands(t)) for c in cuts(t, count)}
    part = gcd(count, *places)
    vectors = part // lanes
    fits = part % lanes == 0 and LEAST_THREADS <= vectors < threads and vectors & (vectors - 1) == 0
    return vectors if fits else threads


def _is_short(space: ReductionDomain, columns: Iterable[Tensor]) -> bool:
    """Whether all inputs that ``columns`` are made of have 16 bits or fewer; one number a row may have more.

    A row of wider ones is not always held in registers; what each pass reads again must then stay in the cache, which
    more threads at a time crowd.
    """
    return all(item_size(t.dtype) <= SHORT_BYTES for t in _stored(space, columns))


def _from_cache(space: ReductionDomain, columns: Iterable[Tensor], rows: int | None, count: int) -> bool:
    """Whether the rows read each element of their inputs again and again (distances between all pairs of rows): then
    their loads wait for a cache only, and fewer threads, of more columns each, exchange fewer partial sums."""
    elements = [product_of(tuple(d.extent for d in t.axes)) for t in _stored(space, columns)]
    known = [n for n in elements if n is not None]
    return rows is not None and 0 < len(known) == len(elements) and sum(known) * AGAIN <= rows * count


def _stored(space: ReductionDomain, columns: Iterable[Tensor]) -> set[Tensor]:
    """The inputs that ``columns`` are made of, but for those that have one number a row."""

    def wide(tensors: Iterable[Tensor]) -> list[Tensor]:
        return [t for t in tensors if not space.is_row(t) or reduces(t)]

    return {t for t in reach(wide(columns), lambda t: wide(operands(t))) if t.definition is None}


def _held_across(space: ReductionDomain, rows: int | None, count: int | None, config: KernelConfig) -> ReductionTiling:
    """Neighbouring threads on neighbouring rows, one each, and for each row as many more as hold its columns between
    the passes over it; where no block has so many, as for rows that are read again."""
    apart = [t for t in space.labels if not space.is_row(t) or reduces(t)]
    if rows is None or count is None or config.persistent is False:
        return _across(space, rows, count, config)
    gpu = current_device()
    processors = floor_power_of_two(gpu.processors)
    held = [t for t in _stored(space, apart) if product_of([d.extent for d in t.axes]) == rows * count]
    threads = config.threads or 1
    while not config.threads and threads * HELD_ACROSS < count * len(held):
        threads *= 2
    together = config.rows or (BLOCK if threads == 1 else min(gpu.warp, gpu.block_threads // threads))
    pays = gpu.warp if any(item_size(t.dtype) <= SHORT_BYTES for t in held) else _line_threads()
    least = 1 if config.threads or config.rows or config.persistent else pays
    if not held or threads * HELD_ACROSS < count * len(held) or together < least:
        return _across(space, rows, count, config)
    while not config.rows and together > pays and rows < processors * together:
        together //= 2
    most = gpu.block_threads // together
    busy = gpu.resident_threads
    while not config.threads and threads < most and rows * threads < busy and threads * 2 * LEAST_COLUMNS <= count:
        threads *= 2
    why = "rows side by side in memory: neighbours on neighbouring threads, enough of them to hold each"
    return ReductionTiling(1, threads, min(together, gpu.block_threads // threads), across=True, why=why)


def _across(space: ReductionDomain, rows: int | None, count: int | None, config: KernelConfig) -> ReductionTiling:
    """Neighbouring threads on neighbouring rows, several rows each as far as one access holds; where those are too few
    for a device, more threads for each row."""
    gpu, side = current_device(), _side(space)
    processors = floor_power_of_two(gpu.processors)
    threads = 1
    if rows is not None and count is not None:
        most = config.threads or (ACROSS_THREADS * 2 // _line_threads() if side > 1 else gpu.warp)
        busy = gpu.resident_threads * ENOUGH[0] // ENOUGH[1] if side > 1 else gpu.resident_threads
        while threads < most and rows // side * threads < busy and threads * 2 * LEAST_COLUMNS <= count:
            threads *= 2
    least, most = _line_threads() if side > 1 else gpu.warp, gpu.warp if threads > 1 else BLOCK
    together = config.rows or max(least, min(most, ACROSS_THREADS // threads))
    if side > 1 and rows is not None and count is not None and not config.rows and not config.threads:
        least = _line_threads() // 2
        while together > least and rows // side < processors * together and threads * 2 * LEAST_COLUMNS <= count:
            together, threads = together // 2, threads * 2
    why = "rows side by side in memory: neighbours on neighbouring threads"
    return ReductionTiling(1, threads, together, across=True, why=why, side=side)


def _line_threads() -> int:
    """Neighbouring threads whose widest accesses fill a line of the cache; memory gives half a line at a time."""
    gpu = current_device()
    return max(2, gpu.line // gpu.vector_bytes)


def _side(space: ReductionDomain) -> int:
    """Neighbouring rows whose elements one access holds, of everything that is read or written by row and column."""
    wide = [t for t in space.labels if reduces(t)]
    if any(_innermost(space, t) != space.rows - 1 for t in wide):
        return 1
    return _neighbours(space, current_device().lanes(max(_largest_read(space, t) for t in wide)))


def _rows_per_thread(space: ReductionDomain, rows: int | None, count: int | None) -> int:
    """Rows of a few columns that one thread takes, so that it reads one run of memory and writes one access."""
    if rows is None or count is None or count > SHORT:
        return 1
    widest = max(item_size(t.dtype) for t in space.labels if space.is_row(t))
    return _neighbours(space, current_device().lanes(widest), rows)


def _rows_of_block(most: int, rows: int | None) -> int:
    """A power of two that reaches ``most``, or all rows."""
    block = 1
    while block < most and (rows is None or block < rows):
        block *= 2
    return block


def _several(space: ReductionDomain, rows: int | None, threads: int, lanes: int) -> int:
    """Short rows that the same threads take, so that the loads of all are in flight together."""
    side = 1 if rows is None else _neighbours(space, SEVERAL, rows * threads)
    return side if side > 1 and _begin_aligned(space, lanes) else 1


def _begin_aligned(space: ReductionDomain, lanes: int) -> bool:
    """Whether the rows of all reads begin where a vector does: a thread takes several at once then, else in turn."""
    for t in filter(reduces, space.labels):
        for u in _stored_reads(space, t) if space.rows else ():
            places = ([*u.steps.values()][space.rows - 1], u.offset)
            if any(n is not None and n.is_const and int(n) % lanes for n in places):
                return False
    return True


def _of_one_read(lanes: int, threads: int, rows: int, side: int) -> ReductionTiling:
    """Threads for rows of the same elements: of more columns each, which exchange fewer partial sums."""
    gpu = current_device()
    while threads > gpu.warp and rows // side * threads > gpu.resident_threads:
        threads //= 2
    why = "rows of the same elements: several a thread, which loads them once"
    return ReductionTiling(lanes, threads, max(1, BLOCK // threads), across=False, why=why, side=side)


def _rows_of_one_read(space: ReductionDomain, rows: int) -> int:
    """Neighbouring rows that a thread takes because they are made of the same elements (a sum for each class): each is
    loaded once for all of them, and not from a cache for each."""
    last = space.extents[space.rows - 1] if space.rows else None
    if last is None or not last.is_const:
        return 1
    for t in filter(reduces, space.labels):
        reads = _stored_reads(space, t)
        if not reads or any(list(u.steps.values())[space.rows - 1] != 0 for u in reads):
            return 1
    side = floor_power_of_two(ROWS_OF_ONE_READ)
    while side > 1 and (int(last) % side or rows // side < few_rows()):
        side //= 2
    return side


def _neighbours(space: ReductionDomain, most: int, threads: int | None = None) -> int:
    """``most`` rows or a half, a quarter, ... of them, as divides the last row axis and leaves threads enough."""
    last = space.extents[space.rows - 1] if space.rows else None
    if last is None or not last.is_const:
        return 1
    busy = current_device().resident_threads
    while most > 1 and (int(last) % most or (threads is not None and threads // most < busy)):
        most //= 2
    return most


def _largest_read(space: ReductionDomain, t: Tensor) -> int:
    """Bytes of the widest element that is loaded along the last row for a reduction, also through views; of its operand
    where a place is not known."""
    reads = _stored_reads(space, t) if space.rows else []
    others = [u for u in reads if u.source not in space.labels]  # numbers of the row itself are read once for it
    along = [item_size(u.source.dtype) for u in others if [*u.steps.values()][space.rows - 1] != 0]
    made = operands(t)
    return max(along, default=item_size(made[0].dtype) if made and not reads else 1)


def _innermost(space: ReductionDomain, t: Tensor) -> int:
    """The label of the axis along which most of what ``t`` is computed from lies side by side in memory."""
    own = [
        d for d in (read_order(t.definition, space.orders) if t.definition is not None else ()) if d in space.labels[t]
    ]
    return space.labels[t][own[-1]] if own else 0
