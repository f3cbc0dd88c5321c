"""The elements that the threads of a block touch at one step of the other loops: the data of access pictures.

Every number is counted by looking at every thread: sectors of 32 bytes that each request of a warp asks for, and for
shared memory the bank conflicts of `idgraph.index.bank_conflicts`. A buffer is taken to start at a multiple of 128
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias

from idgraph.arith import Expr
from idgraph.display import Shown, render
from idgraph.errors import IndexingError, user_line
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.bank_conflict_advice import BankConflicts
from idgraph.index.bank_conflicts import ConflictCount, block_dims, lane_pieces, number_of, thread_loops, vector_loop
from idgraph.ir import NewSteps, Swizzle, clone_fusion, item_size
from idgraph.ir.device import Device, current_device
from idgraph.ir.protocols import axis_place

MAX_VALUES = 64  # elements of one thread that are looked at
MAX_STEPS = 256  # the same where no loop runs on threads
_STEPS = 64  # without threads, loops are added from the inside up to as many

At: TypeAlias = "Mapping[str, int] | str | None"
Numbers: TypeAlias = "Mapping[str, Sequence[int]]"


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """One element as one thread touches it.

    ``thread`` counts in the block, ``value`` in the thread; touches of one ``request`` are moved by one instruction of
    a warp. ``address`` counts elements of the buffer; where ``happens`` is False the predicate masks the access.
    """

    thread: int
    value: int
    request: int
    point: Mapping[str, int]
    coordinates: tuple[int, ...]
    address: int
    happens: bool


@dataclass(frozen=True, slots=True)
class WarpCount:
    """The requests of one warp at this step.

    ``touched`` and ``masked`` are elements, ``bytes`` distinct ones. Of each request the ``sectors`` are counted that
    it asks for, and the ``least`` that could hold its bytes. ``ways`` is the bank conflict (0: not in shared memory).
    """

    warp: int
    touched: int
    masked: int
    requests: int
    sectors: int
    least: int
    bytes: int
    ways: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class AccessPicture(Shown):
    """Which thread touches which address, at one step of the loops that no thread runs. Notebooks draw it.

    ``at`` are the values of those loops, ``values`` the loops whose steps one thread holds. ``warps`` counts each warp
    of the block; ``shown`` of them are drawn. ``hot`` are the (thread, value) that one bank is asked for by a conflict.
    ``conflicts`` is over all steps. ``before`` is the same where the buffer is laid out without its swizzle.

    >>> import idgraph as ig
    >>> f = ig.Fusion("columns")
    >>> x = f.input("x", shape=(32, 32))
    >>> t = f.output(x.T).parallelize(1, "threadIdx.x")
    >>> print(ig.IdModel(f).access(t.definition, x).picture())
    permute reads x at i0 + i1*32 at i0=0: block of 32 threads
      warp 0 asks for 32 sectors of 32 bytes where 4 would hold its 128 bytes
      T0: 0  T1: 32  T2: 64  T3: 96  T4: 128  T5: 160  T6: 192  T7: 224 ...
    """

    access: AccessFunction
    at: Mapping[str, int]
    block: tuple[int, int, int]
    values: tuple[str, ...]
    touches: tuple[ElementAccess, ...]
    warps: tuple[WarpCount, ...]
    shown: int
    idle: int = 0
    note: str = ""
    hot: frozenset[tuple[int, int]] = frozenset()
    conflicts: BankConflicts | None = None
    before: AccessPicture | None = field(default=None)
    device: Device = field(default_factory=current_device, compare=False)

    @property
    def threaded(self) -> bool:
        """False where no loop runs on threads: the touches are steps of one thread."""
        return any(thread_loops(self.access))

    @property
    def unit(self) -> int:
        """Bytes of what is counted: a sector of the device, or where no loop runs on threads a CPU's cache line."""
        return unit_of(self.device, self.threaded)

    def drawn(self) -> tuple[ElementAccess, ...]:
        """The touches of the warps that are drawn."""
        return tuple(t for t in self.touches if t.thread < self.shown * self.device.warp)

    def facts(self) -> tuple[str, ...]:
        """Lines of text below the title: what each warp asks for."""
        lines = [_asks(self, w) for w in self.warps[: self.shown]]
        rest = self.warps[self.shown :]
        if rest:
            counts = [w.ways or w.sectors for w in rest]
            each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
            what = "ways" if rest[0].ways else "sectors"
            lines.append(f"... and {len(rest)} more warp{'s' * (len(rest) > 1)} of {each} {what}")
        if self.conflicts is not None:
            found = self.conflicts
            over = f"{found.ways}-way bank conflict" if found else "no bank conflict"
            lines.append(f"{over} over all {found.points} points that differ")
        if self.idle:
            lines.append(f"{self.idle} threads of the block have no work here")
        if self.note:
            lines.append(self.note)
        return tuple(lines)

    def title(self) -> str:
        """The access, its address and its step in one line."""
        a = self.access
        verb = "writes" if a.is_write else "reads"
        where = "" if not self.at else " at " + ", ".join(f"{k}={v}" for k, v in self.at.items())
        threads = " x ".join(map(str, _trimmed(self.block)))
        what = f"block of {threads} threads" if self.threaded else f"steps of {', '.join(self.values) or 'nothing'}"
        return f"{a.expr.op} {verb} {a.tensor.name} at {a.place}{where}: {what}"

    def to_svg(self) -> str:
        """A self-contained SVG document: threads, the tensor, memory; see `idgraph.viz`."""
        return render("svg", self)

    def __str__(self) -> str:
        lines = [self.title(), *(f"  {x}" for x in self.facts())]
        cells = [f"{_who(self, t)}: {t.address if t.happens else 'masked'}" for t in self.drawn()]
        lines.append("  " + "  ".join(cells[:8]) + (" ..." if len(cells) > 8 else ""))
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"AccessPicture({self.title()!r}, {len(self.touches)} touches)"


def unit_of(device: Device, threaded: bool) -> int:
    """Bytes that memory moves for a request of a warp; without threads, a cache line of the CPU in force."""
    return device.sector if threaded else current_device("cpu").line


def _trimmed(block: tuple[int, int, int]) -> tuple[int, ...]:
    return block if block[2] > 1 else block[:2] if block[1] > 1 else block[:1]


def _who(p: AccessPicture, t: ElementAccess) -> str:
    thread = f"T{t.thread}" if p.threaded else ""
    value = f"V{t.value}" if len({x.value for x in p.touches}) > 1 or not thread else ""
    return thread + value


def _asks(p: AccessPicture, w: WarpCount) -> str:
    whose, verb = (f"warp {w.warp}", "asks for") if p.threaded else ("one thread", "touches")
    if w.ways:
        text = f"{whose} {verb} {w.bytes} bytes: " + (
            f"{w.ways}-way bank conflict" if w.ways > 1 else "no bank conflict"
        )
    else:
        text = f"{whose} {verb} {w.sectors} {'sector' if p.threaded else 'cache line'}{'s' * (w.sectors != 1)}"
        text += f" of {p.unit} bytes"
        wide = w.sectors > w.least
        text += f" where {w.least} would hold its {w.bytes} bytes" if wide else f", all needed for its {w.bytes} bytes"
    if w.requests > 1:
        text += f", in {w.requests} requests"
    return text + (f"; {w.masked} of {w.touched + w.masked} elements are masked" if w.masked else "")


def access_picture(
    access: AccessFunction,
    *,
    at: At = None,
    block: Mapping[str, int] | None = None,
    symbols: Mapping[str, int] | None = None,
    loads: Numbers | None = None,
    warps: int = 2,
) -> AccessPicture:
    """See `Access.picture`."""
    made = _picture(access, at, block, symbols, loads, warps)
    plain = unswizzled(access)
    if plain is None:
        return made
    before = _picture(plain, dict(made.at), block, symbols, loads, warps)
    return replace(made, before=before)


def unswizzled(access: AccessFunction) -> AccessFunction | None:
    """The same access of a copy whose buffer is laid out by the axes that its swizzles permute; None without a swizzle.

    A swizzled axis that is split or merged again stays as it is.
    """
    t = access.tensor
    plain = {out: d for e in t.domain.loop_exprs if isinstance(e, Swizzle) for out, d in zip(e.outputs, e.inputs)}
    if access.maps is None or not any(d in plain for d in t.allocation):
        return None
    axes: list[str] = []
    for d in t.allocation:
        while d in plain:
            d = plain[d]
        axes.append(axis_place(t, d))
    flags = tuple(s is None for s in t.domain.strides)
    changed = clone_fusion(t.fusion, (NewSteps(t.name, (("set_allocation", (tuple(axes), flags)),)),))
    e, maps = changed[access.expr.output.name].definition, access.maps(changed)
    if e is None:  # cannot happen: the copy has the same operations
        return None
    return maps.write(e) if access.operand is None else maps.read(e, access.operand)


@dataclass(frozen=True, slots=True)
class _NumericAccess:
    """An access with its numbers put in, and the roles of its loops."""

    access: AccessFunction
    place: Expr
    when: Expr
    where: tuple[Expr, ...]
    extents: Mapping[str, int]
    threads: Sequence[LoopVariable | None]
    values: tuple[LoopVariable, ...]
    block: tuple[int, int, int]
    bytes: int
    read: Callable[[Mapping[str, int]], Mapping[str, int]]

    @property
    def loops(self) -> list[LoopVariable]:
        """Those that neither threads run nor values count."""
        return [x for x in self.access.loops if x not in self.threads and x not in self.values]


def _picture(
    access: AccessFunction,
    at: At,
    block: Mapping[str, int] | None,
    symbols: Mapping[str, int] | None,
    loads: Numbers | None,
    warps: int,
) -> AccessPicture:
    step, note = _numeric_access(access, block, symbols, loads)
    shared = access.buffer.place == "shared" and any(step.threads)
    conflicts = BankConflicts.counted(access, block, symbols) if shared and not access.loads else None
    fixed = _fixed(step, at, conflicts)
    touches, idle = _touches(step, fixed)
    hot: set[tuple[int, int]] = set()
    counts = [_count_warp(step, shared, w, group, hot) for w, group in _by_warp(touches)]
    if warps < 1:
        raise IndexingError(f"picture: warps={warps} draws nothing", where=user_line(), hint="warps=1 or more")
    return AccessPicture(
        access, fixed, step.block, tuple(x.name for x in step.values), tuple(touches), tuple(counts),
        min(warps, len(counts)), idle, note, frozenset(hot), conflicts,
    )  # fmt: skip


def _numeric_access(
    access: AccessFunction, block: Mapping[str, int] | None, symbols: Mapping[str, int] | None, loads: Numbers | None
) -> tuple[_NumericAccess, str]:
    threads = thread_loops(access)
    if access.buffer.place == "register" or (access.buffer.place == "private" and any(threads)):
        raise IndexingError(
            f"{access.tensor.name} is kept in {'a register' if access.buffer.place == 'register' else 'an array'} of "
            "each thread: there is no memory that threads touch together",
            where=access.expr.source_line,
            hint="take the picture of an input, an output, or of what set_memory puts into shared or global memory",
        )
    sizes = dict(symbols or {})
    extents = {x.name: number_of(x.extent.substitute(sizes), x, "picture") for x in access.loops}
    values = _values(access, threads, extents)
    note = ""
    for x in values:
        limit = MAX_VALUES if any(threads) else MAX_STEPS
        if extents[x.name] > limit:
            note = f"the first {limit} of {extents[x.name]} steps of {x.name} are shown"
            extents[x.name] = limit
    place = access.address.substitute(sizes)
    vector = vector_loop(access)
    pieces = lane_pieces(access, vector if vector in values else None, place, extents)
    step = _NumericAccess(
        access, place, access.predicate.substitute(sizes), tuple(x.substitute(sizes) for x in access.coordinates),
        extents, threads, values, _block_thread_counts(threads, extents, block),
        item_size(access.tensor.dtype) * (pieces[0][1] if len(pieces) == 1 else 1), _reader(access, loads),
    )  # fmt: skip
    return step, note


def _block_thread_counts(
    threads: Sequence[LoopVariable | None], extents: Mapping[str, int], block: Mapping[str, int] | None
) -> tuple[int, int, int]:
    x, y, z = block_dims(threads, extents, block)
    most = current_device().block_threads
    if x * y * z > most:
        raise IndexingError(f"picture: a block of {x} x {y} x {z} threads", hint=f"a block has at most {most} threads")
    return x, y, z


def _values(
    access: AccessFunction, threads: Sequence[LoopVariable | None], extents: Mapping[str, int]
) -> tuple[LoopVariable, ...]:
    """The loops whose steps one thread holds: vectorised and unrolled ones; without threads the innermost loops."""
    if any(threads):
        return tuple(x for x in access.loops if x.parallel in ("vectorize", "unroll"))
    chosen: list[LoopVariable] = []
    steps = 1
    for x in reversed(access.loops):
        if x.parallel.startswith("block") or (chosen and steps * extents[x.name] > _STEPS):
            break
        chosen.append(x)
        steps *= extents[x.name]
    return tuple(reversed(chosen))


def _fixed(step: _NumericAccess, at: At, conflicts: BankConflicts | None) -> dict[str, int]:
    """The values of the other loops: as asked, else where a conflict was found, else 0."""
    names = {x.name: step.extents[x.name] for x in step.loops}
    if at is None:
        worst = conflicts.lanes[:1] if conflicts is not None else ()
        return {n: worst[0].point.get(n, 0) if worst else 0 for n in names}
    if at == "last":
        return {n: max(0, extent - 1) for n, extent in names.items()}
    if isinstance(at, str):
        raise IndexingError(f"picture: at={at!r} is not a step", where=user_line(), hint='at="last", or {"i0": 3}')
    for name, value in at.items():
        if name not in names or isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < names[name]:  # pyright: ignore[reportUnnecessaryIsInstance]
            told = ", ".join(f"0 <= {n} < {extent}" for n, extent in names.items()) or "there is no other loop"
            raise IndexingError(f"picture: at: {name!r} = {value!r} is not a step", where=user_line(), hint=told)
    return {n: at.get(n, 0) for n in names}


def _reader(access: AccessFunction, loads: Numbers | None) -> Callable[[Mapping[str, int]], Mapping[str, int]]:
    """From a loop point to the values that are loaded there."""
    given = dict(loads or {})
    missing = sorted(access.loads.keys() - given.keys())
    if missing:
        t, _ = access.loads[missing[0]]
        raise IndexingError(
            f"{access.expr.op} touches {access.tensor.name} where {t.name} says",
            where=access.expr.source_line,
            hint=f"give the numbers in {t.name}, row by row: picture(loads={{{missing[0]!r}: [...]}})",
        )

    def read(point: Mapping[str, int]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name, (t, where) in access.loads.items():
            flat = 0
            for d, x in zip(t.axes, where, strict=True):
                flat = flat * int(d.extent) + int(x.evaluate(point))
            if not 0 <= flat < len(given[name]):
                raise IndexingError(f"picture: loads has {len(given[name])} numbers of {t.name}, number {flat} is read")
            found[name] = int(given[name][flat])
        return found

    return read


def _touches(step: _NumericAccess, fixed: Mapping[str, int]) -> tuple[list[ElementAccess], int]:
    """Every element that every thread touches at this step, and how many threads have no work."""
    found: list[ElementAccess] = []
    idle = 0
    x, y, z = step.block
    for number in range(x * y * z):
        ids = (number % x, number // x % y, number // (x * y))
        own = {t.name: v for t, v in zip(step.threads, ids, strict=True) if t is not None}
        beyond = any(v > 0 for t, v in zip(step.threads, ids, strict=True) if t is None)
        if beyond or any(v >= step.extents[n] for n, v in own.items()):
            idle += 1
            continue
        found += _of_thread(step, number, {**fixed, **own})
    return found, idle


def _of_thread(step: _NumericAccess, number: int, base: Mapping[str, int]) -> Iterator[ElementAccess]:
    vector = vector_loop(step.access)
    whole = vector is not None and step.bytes > item_size(step.access.tensor.dtype)
    requests: dict[tuple[int, ...], int] = {}
    for value, held in enumerate(product(*(range(step.extents[x.name]) for x in step.values))):
        point = {**base, **{x.name: v for x, v in zip(step.values, held, strict=True)}}
        key = tuple(v for x, v in zip(step.values, held, strict=True) if not (whole and x is vector))
        env = {**point, **step.read(point)}
        yield ElementAccess(
            number, value, requests.setdefault(key, len(requests)), point,
            tuple(int(x.evaluate(env)) for x in step.where), int(step.place.evaluate(env)),
            bool(step.when.evaluate(env)),
        )  # fmt: skip


def _by_warp(touches: Sequence[ElementAccess]) -> list[tuple[int, list[ElementAccess]]]:
    warp, groups = current_device().warp, dict[int, list[ElementAccess]]()
    for t in touches:
        groups.setdefault(t.thread // warp, []).append(t)
    return sorted(groups.items())


def _count_warp(
    step: _NumericAccess, shared: bool, warp: int, touches: Sequence[ElementAccess], hot: set[tuple[int, int]]
) -> WarpCount:
    """Count one warp; (thread, value) of its worst bank conflict go into ``hot``."""
    size = item_size(step.access.tensor.dtype)
    live = [t for t in touches if t.happens]
    threaded = any(step.threads)
    requests: dict[int, list[ElementAccess]] = {}
    for t in live:
        requests.setdefault(t.request if threaded else 0, []).append(t)
    unit = unit_of(current_device(), threaded)
    sectors = least = ways = 0
    for group in requests.values():
        bytes_ = {b for t in group for b in (t.address * size, t.address * size + size - 1)}
        sectors += len({b // unit for b in bytes_})
        least += -(-len({t.address for t in group}) * size // unit)
        if shared:
            ways = max(ways, _conflict(step, group, hot))
    distinct = len({t.address for t in live}) * size
    return WarpCount(warp, len(live), len(touches) - len(live), len(requests), sectors, least, distinct, ways)


def _conflict(step: _NumericAccess, group: Sequence[ElementAccess], hot: set[tuple[int, int]]) -> int:
    """Ways of the conflict of one request of a warp, by the count that `bank_conflicts` makes."""
    import numpy as np  # noqa: PLC0415 - half of the time that importing the library would take

    first = {t.thread: t for t in reversed(group)}  # where a vector begins
    lanes = [first[n] for n in sorted(first)]
    size = item_size(step.access.tensor.dtype)
    count = ConflictCount(step.access, step.place, step.when, step.bytes)
    numbers = np.array([t.thread for t in lanes], np.int64)
    count.warps(numbers, np.array([t.address * size for t in lanes], np.int64), lambda k: lanes[k].point)
    if count.ways > 1:
        of_lane = {t.thread % count.device.warp: t.thread for t in lanes}
        clashing = {of_lane[x.lane] for x in count.lanes}
        hot.update((t.thread, t.value) for t in group if t.thread in clashing)
    return count.ways
