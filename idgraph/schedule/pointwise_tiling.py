"""Loops of a reference: a tensor with a nest of its own, whose kept axes are cut into blocks, threads and vectors.

Several points of one thread, where their loads can be under way together, or what they load can be shared.

The tables of a rotation are the same for all heads. Where they are put together of pieces, their loads and the choices
of their addresses are most of a kernel's instructions; taken for several heads at once, they are shared. So are the
places and weights of a picture that is resized, for several channels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import gcd, hypot, inf, lcm

from idgraph.ir import SCATTERS, IterDomain, LoadedCoordinate, Mapped, Merge, Resize, Tensor, TensorExpr, item_size
from idgraph.ir.device import current_device
from idgraph.ir.loop_transforms import reset
from idgraph.ir.op_table import OPERATIONS, POINTWISE
from idgraph.ir.walks import operands, reach
from idgraph.layout.inference import bytes_of
from idgraph.schedule.access_strides import HEAVY, FlatTiling, SourceAccess, flat_cut, loop_order, source_strides
from idgraph.schedule.config import KernelConfig, cut_blocks
from idgraph.schedule.fusion_segments import PICKS, picks_elements, takes_rows
from idgraph.schedule.inlining import scan_loops
from idgraph.schedule.scan_scheduling import cut_scan, scanned_axis
from idgraph.schedule.scatter_scheduling import schedule_scatter
from idgraph.schedule.tiling import RESOLUTION, TilingChoice, apply_tiling, base_axes, choose_tiling
from idgraph.schedule.tiling_cost import Tiling

SHARED_POINTS = 4  # points of a thread that share what it loads
PIECES = 4  # loads of small tensors for a vector of the result that are worth sharing
WORK = 24  # operations on an element whose results several points share, where they are most of all
BUSY_ACCESSES = 4  # of each resident thread: a result of as many vectors keeps all of them busy


def coarsening_axis(t: Tensor, kept: Sequence[IterDomain], stored: Collection[Tensor]) -> tuple[IterDomain, int] | None:
    """(axis, steps) of the kept loops along which no small source of ``t`` moves, though each moves along the innermost
    one; None where there is none, or few loads to share.

    >>> import idgraph as ig
    >>> f = ig.Fusion("heads")
    >>> x, table = f.input("x", shape=(32, 2048, 64)), f.input("table", shape=(4, 2048, 16))
    >>> t = f.output(x * ig.cat([table[k] for k in range(4)], dim=1))
    >>> axis, steps = coarsening_axis(t, t.logical, [])
    >>> str(axis.extent), steps
    ('32', 4)
    """
    touches = source_strides(t, stored)
    if touches is None or len(kept) < 2:
        return None
    small = [u for u in touches if bytes_of(u.source) * HEAVY < bytes_of(t)]
    if len(small) < PIECES:
        return None
    for d in kept[:-1]:
        n = int(d.extent) if d.extent.is_const else 0
        steps = next((s for s in (SHARED_POINTS, 2) if n and n % s == 0), 1)
        if steps > 1 and all(_still(u, d) for u in small):
            return d, steps
    return None


def _still(u: SourceAccess, d: IterDomain) -> bool:
    step = u.steps.get(d)  # a loop that is cut already has none
    return step is not None and step == 0


def coarsening_by_work(
    t: Tensor, kept: Sequence[IterDomain], exprs: Collection[TensorExpr]
) -> tuple[IterDomain, int] | None:
    """(axis, steps) of the kept loops along which most operations of gathers, and not the innermost one, compute the
    same; None where there is none, few operations, or fewer points than would keep a device busy.

    Indices that lie in memory may select any element: of those two steps, so that fewer lines of a cache are in use, or
    all of a short axis, as colours.

    >>> import idgraph as ig
    >>> f = ig.Fusion("every other column")
    >>> x = f.input("x", shape=(64, 64, 512))
    >>> at = ig.cast(f.iota(512), "float32")
    >>> for _ in range(8):
    ...     at = ig.maximum(at * 0.5 + at * 0.25, 1.0)
    >>> t = f.output(ig.index_select(x, 2, ig.cast(at, "int64")))
    >>> axis, steps = coarsening_by_work(t, t.logical, f.exprs)
    >>> str(axis.extent), steps
    ('64', 4)
    """
    order = {e: n for n, e in enumerate(t.fusion.exprs)}
    work = sorted(exprs, key=order.__getitem__)
    varies, where = _varying(work), _axes_along(t, work)
    points = [e for e in work if e.op in POINTWISE]
    loaded = has_random_gather(work)
    best: tuple[IterDomain, int] | None = None
    most = max(WORK, (len(points) + 1) // 2) - 1
    for d in kept[:-1]:
        n = int(d.extent) if d.extent.is_const else 0
        whole = n if n <= SHARED_POINTS else 2
        steps = next((s for s in (whole if loaded else SHARED_POINTS, whole) if n and n % s == 0), 1)
        still = sum(not (varies[e.output] & where[e.output].get(d, _NONE)) for e in points)
        busy = current_device().resident_threads * steps * item_size(t.dtype)
        if steps > 1 and still >= most and bytes_of(t) >= busy:
            best, most = (d, steps), max(still, most)
    return best


_NONE = frozenset[IterDomain]()


def coarsening_by_functions(
    t: Tensor, kept: Sequence[IterDomain], sources: Sources, width: int, parts: int = 1
) -> tuple[IterDomain, int] | None:
    """(axis, steps) of the kept loops, not the innermost one, along which functions have the same values, and so many
    steps that these take least time beside memory; None where no time is saved, or threads would be too few.

    A thread has ``width`` points of each of ``parts`` at one step: those of all steps, once for each place where
    something large is read, take half of its registers. The parts of a rotation read the same places.

    >>> import idgraph as ig
    >>> f = ig.Fusion("angles")
    >>> x, a = f.input("x", (64, 4096, 256)), f.input("a", (4096, 256))
    >>> t, u = f.output(x * ig.cos(a) + ig.sin(a)), f.output(x * a)
    >>> first, second = (coarsening_by_functions(v, v.logical, sources_of(v, []), 4) for v in (t, u))
    >>> (str(first[0].extent), first[1]) if first else None, second
    (('64', 16), None)
    """
    order = {e: n for n, e in enumerate(t.fusion.exprs)}
    work = sorted(sources.exprs, key=order.__getitem__)
    functions = {e for e in work if e.op in OPERATIONS and OPERATIONS[e.op].cycles not in ("free", "plain")}
    touches = source_strides(t, sources.inputs, splits=True) if functions else None
    if touches is None:
        return None
    gpu, varies, where = current_device(), _varying(work), _axes_along(t, work)
    reads = {(u.source, u.offset) for u in touches if bytes_of(u.source) * HEAVY >= bytes_of(t)}
    large = 1 + max(len({x for x, _ in reads}), len(reads) // parts)
    memory = sum(map(bytes_of, (t, *sources.inputs))) / gpu.bandwidth
    best, least, elements = None, inf, bytes_of(t) / item_size(t.dtype)
    for d in kept[:-1]:
        once = every = 0.0
        alike = {e for e in work if not varies[e.output] & where[e.output].get(d, _NONE)}
        if not alike & functions:
            continue
        for e in work:
            cycles = OPERATIONS[e.op].cycles if e.op in POINTWISE else "free"
            if cycles != "free":
                time = elements / gpu.rate(e.output.dtype, special=cycles != "plain")
                once, every = (once + time, every) if e in alike else (once, every + time)
        least = min(least, hypot(memory, once + every) / RESOLUTION)
        steps = 2
        while (
            d.extent.is_const
            and int(d.extent) % steps == 0
            and steps * width * parts * large * 2 <= gpu.thread_registers + 1
        ):
            time = hypot(memory, once / steps + every)
            if time < least and bytes_of(t) >= gpu.resident_threads * steps * item_size(t.dtype):
                best, least = (d, steps), time
            steps *= 2
    return best


def has_random_gather(exprs: Collection[TensorExpr]) -> bool:
    """Whether an operation picks single elements at places that lie in memory, which may be any.

    >>> import idgraph as ig
    >>> f = ig.Fusion("take")
    >>> x, i = f.input("x", shape=(64,)), f.input("i", shape=(64,), dtype="int64")
    >>> t, u = ig.index_select(x, 0, i), ig.index_select(x, 0, 63 - f.iota(64))
    >>> has_random_gather([t.definition]), has_random_gather([u.definition])
    (True, False)
    """
    indices = [
        e.inputs[r.operand]
        for e in exprs
        if e.op in PICKS
        for row in e.reads
        for r in row
        if isinstance(r, LoadedCoordinate)
    ]
    return any(u.definition is None for u in reach(indices, operands))


def _varying(exprs: Sequence[TensorExpr]) -> dict[Tensor, set[IterDomain]]:
    """The axes along which the elements of each result differ: an axis that is expanded is not one of them."""
    found: dict[Tensor, set[IterDomain]] = {}
    for e in exprs:
        own = {d for d in e.output.root if not d.is_broadcast} if not e.inputs else set[IterDomain]()
        for p, row in zip(e.inputs, e.reads, strict=True):
            before = found.get(p, {d for d in p.axes if not d.is_broadcast})
            own |= {r.domain for d, r in zip(p.axes, row, strict=True) if d in before and isinstance(r, Mapped)}
        for x in e.output.domain.exprs:
            own |= {*x.outputs} if own & {*x.inputs} else set[IterDomain]()
        found[e.output] = own
    return found


def _axes_along(t: Tensor, exprs: Sequence[TensorExpr]) -> dict[Tensor, dict[IterDomain, set[IterDomain]]]:
    """For each tensor and each axis of ``t`` the axes whose coordinate is made of that one's."""
    found: dict[Tensor, dict[IterDomain, set[IterDomain]]] = {t: {d: {d} for d in t.logical}}
    for e in reversed(exprs):
        along = found.setdefault(e.output, {})
        for d, own in along.items():
            for x in reversed(e.output.domain.exprs):
                own |= {*x.inputs} if own & {*x.outputs} else set[IterDomain]()
            for p, row in zip(e.inputs, e.reads, strict=True):
                read = {a for a, r in zip(p.axes, row, strict=True) if isinstance(r, Mapped) and r.domain in own}
                found.setdefault(p, {}).setdefault(d, set()).update(read)
    return found


def outlasts(t: Tensor, exprs: Collection[TensorExpr], stored: Collection[Tensor]) -> bool:
    """Whether a thread has more to do, or to wait for, than its one large source's load: a function, or a number of the
    row that must be there first. Two vectors then share the wait.

    >>> import idgraph as ig
    >>> f = ig.Fusion("gelu")
    >>> x = f.input("x", shape=(4096, 4096))
    >>> t, u = ig.tanh(x), x + 1.0
    >>> outlasts(t, [t.definition], []), outlasts(u, [u.definition], [])
    (True, False)
    """
    touches = source_strides(t, stored)
    if touches is None or not bytes_of(t) >= BUSY_ACCESSES * current_device().resident_bytes:
        return False
    last = next((d for d in reversed(t.logical) if not d.is_broadcast), None)
    large = [u for u in touches if bytes_of(u.source) * HEAVY >= bytes_of(t)]
    if last is None or len({u.source for u in large}) != 1 or any(u.steps[last] != 1 for u in large):
        return False
    return calls_functions(exprs) or any(_still(u, last) for u in touches if u not in large)


def calls_functions(exprs: Collection[TensorExpr]) -> bool:
    """Whether an operation is a function of a mathematics library, which takes longer than a load's share of it."""
    return any(e.op in OPERATIONS and OPERATIONS[e.op].cycles == "library" for e in exprs)


BLOCK = 128
GATHER_BLOCK = 1024  # elements gathered from one row by many threads of a block are found in its cache
FEW = 4  # operations for which 1024 threads have registers enough
VECTORS_PER_THREAD = 2
MAX_VECTORS = 4  # that one thread loads for the parts of a rotation
GATHERS = frozenset({"gather", "take_along_dim"})
MAX_PARTS = 4


def schedule_reference(
    t: Tensor, sources: Sources, stored: Collection[Tensor], config: KernelConfig, search: bool = True
) -> TilingChoice | None:
    """Kept axes flattened and cut into blocks and threads; reduced axes inside them, axes of one element last.

    Returns what the search chose, or left as it is, where accesses run along different axes. Without ``search`` there
    is none: its costs are those of warps, which a CPU has not.

    Long: the cases of one decision, each with what excludes it.
    """
    rows = [e for e in sources.exprs if takes_rows(e)]
    single = picks_elements(sources.exprs)
    block, warp = config.block or _block(sources, rows, single), current_device().warp
    if t.definition is not None and t.definition.op in SCATTERS:
        schedule_scatter(t.definition, block, config.vectors or 1, cores=not search)
        return None
    if cut_scan(t, sources.exprs, _vector(t, sources), stored):
        return None

    natural = t.loop == t.logical
    kept = _in_order(t, stored, scanned_axis(t, sources.exprs))
    if not kept:
        return None
    alone = kept == len(t.loop) or all(d.is_broadcast for d in t.loop[kept:])
    most = _vector(t, sources)
    parts, width = _lanes(t, kept, sources) if alone and not single else (1, 1)
    flat = alone and parts == 1 and width < most and not single
    cut = _flat_cut(t, kept, stored, most, config) if flat else None
    choice = None
    if search and natural and alone and (parts == 1 or width == 1) and not single and config.vectors is None:
        axes, run = _unflattened(t, t.loop[:kept]), cut.width if cut is not None else width
        usual = Tiling(axes, run=run) if parts == 1 else Tiling(axes, ((axes[-1], parts),))
        choice = _searched(t, stored, usual, block)
        if choice is not None and not choice.usual:
            return choice
    if cut is not None and cut.axes:
        kept, width = _flattened(t, kept, cut), 1
    elif width > 1 and cut is None:
        t.split(kept - 1, width).parallelize(kept, "vectorize")
    if parts > 1:
        t.split(kept - 1, parts, inner=False).reorder({kept - 1: kept}).parallelize(kept, "unroll")
    # A row that an index selects has the latency of two loads, so several are in flight at once; so are constants.
    waits = (
        not sources.inputs
        or bool(rows)
        or (alone and cut is None and width == most and outlasts(t, sources.exprs, stored))
    )
    usual = (
        most
        if single
        else VECTORS_PER_THREAD
        if waits
        else 1
        if cut is not None and cut.several
        else _deep(t, sources, most)
    )
    steps = config.vectors or (cut.steps if cut is not None and cut.steps > 1 else usual if parts == 1 else 1)
    if cut is not None and cut.period > 1 and not config.block:
        block = lcm(warp, cut.period) * max(1, BLOCK // lcm(warp, cut.period))
    apart = parts > 1 and (parts * len(sources.inputs) > MAX_VECTORS if config.apart is None else config.apart)
    if apart:  # each part has threads of its own, whole warps of them
        block = max(warp, block // parts // warp * warp)
    plain = alone and cut is None and width == most and steps == 1
    shared = coarsening_axis(t, t.loop[:kept], stored) if plain else None
    if plain and shared is None and search and not single:
        shared = coarsening_by_functions(t, t.loop[:kept], sources, width, parts)
    if single and alone and not config.vectors:
        shared = coarsening_by_work(t, t.loop[:kept], sources.exprs)
        steps = steps if shared is None else max(1, steps // shared[1])
    if shared is not None:
        at, to = t.loop.index(shared[0]), kept + (parts > 1)
        t.split(at, shared[1]).reorder({at + 1: to}).parallelize(to, "unroll")
    cut_blocks(t, kept, block, steps)
    if apart:
        at = 3 if steps > 1 else 2
        t.reorder({at: 1}).parallelize(1, "serial").merge(1)
    t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    return choice


def _searched(t: Tensor, stored: Collection[Tensor], usual: Tiling, block: int) -> TilingChoice | None:
    """The choice of the search, applied unless it is the usual tiling."""
    order = t.loop
    choice = choose_tiling(t, stored, usual, block, current_device())
    if choice is not None and not choice.usual:
        apply_tiling(t, choice.tiling, block)
    elif t.loop != order:  # the search has split axes
        reset(t)
        t.reorder([t.loop.index(d) for d in order])
    return choice


def _unflattened(t: Tensor, axes: Sequence[IterDomain]) -> tuple[IterDomain, ...]:
    """The `base_axes` of a reference in the order of its loops."""
    of: dict[IterDomain, tuple[IterDomain, ...]] = {}
    for x in t.domain.exprs if base_axes(t) != tuple(d for d in t.logical if not d.is_broadcast) else ():
        if isinstance(x, Merge):
            of[x.out] = (*of.get(x.outer, (x.outer,)), *of.get(x.inner, (x.inner,)))
    return tuple(d for a in axes for d in of.get(a, (a,)) if not d.is_broadcast)


def _block(sources: Sources, rows: Sequence[TensorExpr], single: bool) -> int:
    """Threads of a block: many where they pick elements (``single``: of any axis) that neighbours find in the cache."""
    elements = any(e.op in GATHERS and e not in rows for e in sources.exprs)
    if not elements and not (single and has_random_gather(sources.exprs)):
        return BLOCK
    small = len(sources.exprs) <= FEW and len(sources.inputs) <= 2
    return GATHER_BLOCK if small else GATHER_BLOCK // 2


def _in_order(t: Tensor, stored: Collection[Tensor], scanned: IterDomain | None) -> int:
    """Loops as memory lies: first those that are kept, whose number is returned; reduced ones and those that go in
    order inside them, axes of one element last."""
    serial = (*scan_loops(t), scanned)

    def rank(d: IterDomain) -> int:
        return 2 if d.is_broadcast else 1 if d.kind == "reduction" or d in serial else 0

    kept = [d for d in t.loop if rank(d) == 0]
    order = loop_order(t, kept, stored) if len(kept) > 1 and t.loop == t.logical else kept
    wanted = [*order, *sorted((d for d in t.loop if rank(d)), key=rank)]
    if wanted != list(t.loop):
        t.reorder([t.loop.index(d) for d in wanted])
    return len(kept)


def _flat_cut(t: Tensor, kept: int, stored: Collection[Tensor], width: int, config: KernelConfig) -> FlatTiling | None:
    """`flat_cut` of the kept loops, as the config has it."""
    return flat_cut(t, t.loop[:kept], stored, width, config.realigned is not False, config.whole_steps is True)


def _flattened(t: Tensor, kept: int, cut: FlatTiling) -> int:
    """The innermost kept loops as one, cut into vectors; returns the number of kept loops outside of the vectors."""
    for _ in range(cut.axes - 1):
        kept -= 1
        t.merge(kept - 1)
    if cut.chunks is not None:  # a row has vectors of its own, whole and not
        t.split(kept - 1, cut.chunks * cut.width)
        kept += 1
    t.split(kept - 1, cut.width).parallelize(kept, "unroll" if cut.several else "vectorize")
    return kept


@dataclass(frozen=True, slots=True)
class Sources:
    """The tensors computed for a tensor, and the inputs that it reads."""

    exprs: tuple[TensorExpr, ...]
    inputs: tuple[Tensor, ...]


def sources_of(t: Tensor, stored: Collection[Tensor]) -> Sources:
    exprs: dict[TensorExpr, None] = {}
    inputs: dict[Tensor, None] = {}
    stack = [t]
    while stack:
        u = stack.pop()
        e = u.definition
        if e is None or (u in stored and u is not t):
            inputs[u] = None
        elif e not in exprs:
            exprs[e] = None
            stack += e.inputs
    return Sources(tuple(exprs), tuple(inputs))


def _vector(t: Tensor, sources: Sources) -> int:
    """Elements of one access: of the reference, or of what it reads where that is a byte wide, and less."""
    size = item_size(t.dtype)
    if size == 1 and sources.inputs and not bytes_of(t) > max(map(bytes_of, sources.inputs)):
        size = max(size, min(item_size(x.dtype) for x in sources.inputs))
    return current_device().lanes(size)


def _deep(t: Tensor, sources: Sources, width: int) -> int:
    """Vectors of a thread where those of the largest input are narrow: together they are 16 bytes of it."""
    largest = max(sources.inputs, key=bytes_of, default=None)
    if largest is None or bytes_of(largest) < current_device().resident_bytes:
        return VECTORS_PER_THREAD if _only_writes(t, sources) else 1
    return max(1, min(MAX_VECTORS, current_device().vector_bytes // (width * item_size(largest.dtype))))


def _only_writes(t: Tensor, sources: Sources) -> bool:
    """Whether a thread does little but write: what it computes an address and a few numbers for is then two vectors."""
    small = all(bytes_of(x) * HEAVY < bytes_of(t) for x in sources.inputs)
    return small and bytes_of(t) >= current_device().resident_bytes and not calls_functions(sources.exprs)


def _lanes(t: Tensor, kept: int, sources: Sources) -> tuple[int, int]:
    """(parts, width) for the last kept loop axis: equal parts that cuts leave, and elements of one vector access."""
    extent = t.loop[kept - 1].extent
    if not extent.is_const or extent == 0:
        return 1, 1
    n, width = int(extent), _vector(t, sources)
    parts = n // gcd(n, *cuts(t, n))
    if parts > MAX_PARTS:  # small tables in many pieces are read by chosen addresses
        parts = n // gcd(n, *cuts(t, n, bytes_of(t) // HEAVY))
    if parts > MAX_PARTS:
        parts = 1
    while width > 1 and (n // parts) % width:
        width //= 2
    return parts, width


def cuts(t: Tensor, n: int, least: int = 0) -> set[int]:
    """Places at which resizes of what feeds ``t`` cut an axis of ``n`` elements, with ``least`` bytes behind them."""
    found: set[int] = set()
    for u in reach([t], operands):
        for x in u.domain.exprs if u.definition is not None else ():
            if not isinstance(x, Resize) or n not in (x.source.extent, x.out.extent):
                continue
            if not least or max((bytes_of(s) for s in sources_of(u, ()).inputs), default=0) >= least:
                found.update(abs(int(c)) for c in (x.left, x.right) if c.is_const)
    return found - {0}
