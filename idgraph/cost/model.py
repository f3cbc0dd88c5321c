"""From a program to its cost, also of a fusion whose gathers are taken given ways: scheduled, emitted and counted.

The schedules that `ig.schedule.auto` chooses among, each as a fusion with its estimated time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, prod
from typing import Any, TypeVar, cast

import numpy as np

from idgraph.arith import Expr
from idgraph.cost.access_sites import AccessSite, KernelSites, sites_of
from idgraph.cost.calibrate import assemble
from idgraph.cost.cpu_model import core_times
from idgraph.cost.iteration_count import (
    Arrays,
    Count,
    coordinate_count,
    count_points,
    grid,
    relevant,
    stored_integers,
    visiting,
)
from idgraph.cost.memory_traffic import (
    Block,
    Distinct,
    Reuse,
    bandwidth_at,
    distances,
    distinct,
    room_of,
    site_points,
    touched,
    warp_sectors,
)
from idgraph.cost.report import AccessCost, Assembly, Bound, Cost, KernelCost, TensorCost
from idgraph.display import Printed
from idgraph.errors import IdGraphError, ScheduleError, arguments, one_line, short_repr, user_line
from idgraph.ir import Fusion, is_float, item_size
from idgraph.ir.clone import clone_fusion
from idgraph.ir.device import TARGETS, Device, use_device
from idgraph.ir.hooks import Estimate, estimate_with
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.ir import Buffer, Kernel, shared_layout
from idgraph.rewrite.gather_strategy import Force
from idgraph.runtime.binding import BoundArray, bind_strides, flat_input, given_array
from idgraph.runtime.program import Program, emit
from idgraph.runtime.tuning.tuner import kernel_text, stages
from idgraph.schedule.auto import apply_gather_strategies, auto, schedule_loops
from idgraph.schedule.config import KernelConfig


def program_cost(
    program: Program,
    device: Device,
    symbols: Mapping[str, int],
    inputs: Mapping[str, Any],
    assembled: bool,
    warm: bool = True,
) -> Cost:
    """The cost of every kernel; see `idgraph.cost`."""
    given = {name: given_array(name, array) for name, array in inputs.items()}
    sizes = _symbol_values(program, symbols, given)
    arrays = _input_arrays(program, given, sizes)
    assembly = Assembly(lambda: assemble(program, device))
    owns: list[_KernelEstimate] = []
    known: dict[Hashable, Any] = {}
    for k in program.kernels:
        own = _KernelEstimate(program, k, device, sizes, arrays, assembly, known)
        owns.append(own)
        rewritten = {s.buffer.title for s in own.found.sites if s.kind != "read"}
        kept = {title: a for title, a in arrays.items() if title not in rewritten}
        arrays = {**kept, **stored_integers(own.found, arrays, own.size)}
    since = distances([own.footprint for own in owns], warm)
    made = [own.cost(before) for own, before in zip(owns, since, strict=True)]
    if assembled:
        for k in made:
            assembly.of(k.name)
    return Cost(program.fusion.name, program.target, device, tuple(made))


def _symbol_values(program: Program, symbols: Mapping[str, int], given: Mapping[str, BoundArray]) -> dict[str, int]:
    """Numbers for all symbols of the program, free strides as of the given arrays, else of contiguous ones."""
    fusion = program.fusion
    missing = [s for s in fusion.symbols if s not in symbols]
    if missing:
        raise IdGraphError(
            f"cost: symbol {missing[0]} has no number",
            hint=f"ig.cost(program, symbols={{{', '.join(f'{s!r}: ...' for s in missing)}}})",
        )
    for s, n in symbols.items():
        if s not in fusion.symbols or isinstance(n, bool) or not isinstance(n, int):  # pyright: ignore[reportUnnecessaryIsInstance] - users are not type checkers
            raise IdGraphError(
                f"cost: symbols give {short_repr(n)} for {short_repr(s)}",
                hint=f"an integer for each of {', '.join(fusion.symbols) or '(no symbol)'}",
            )
    env = {s: symbols[s] for s in fusion.symbols}
    program.check_sizes(env)
    for t in fusion.inputs:
        shape = [int(d.extent.evaluate(env)) for d in t.axes]
        own = given[t.name].strides if t.name in given and len(given[t.name].shape) == t.ndim else None
        bind_strides(t, env, shape, own)
    return env


def _input_arrays(program: Program, given: Mapping[str, BoundArray], sizes: Mapping[str, int]) -> Arrays:
    """The given arrays as they lie in memory."""
    tensors = {t.name: t for t in program.fusion.inputs}
    made: dict[str, Any] = {}
    for name, g in given.items():
        if name not in tensors:
            raise IdGraphError(
                f"cost: {name!r} is not an input of fusion {program.fusion.name}",
                hint=f"inputs: {', '.join(tensors) or '(none)'}",
            )
        t = tensors[name]
        want = tuple(int(d.extent.evaluate(dict(sizes))) for d in t.axes)
        if g.dtype != t.dtype or tuple(g.shape) != want:
            raise IdGraphError(
                f"cost: input {name} is {g.dtype} {tuple(g.shape)}, declared {t.dtype} {want}", where=t.source_line
            )
        made[name] = flat_input(t, g, dict(sizes))
    return made


_Counted = TypeVar("_Counted")


def _site_key(s: AccessSite) -> Hashable:
    return s.address, s.conditions, s.width, s.buffer.dtype, s.around


class _KernelEstimate:
    def __init__(
        self,
        program: Program,
        kernel: Kernel,
        device: Device,
        sizes: Mapping[str, int],
        arrays: Arrays,
        assembly: Assembly,
        known: dict[Hashable, Any],
    ) -> None:
        self.kernel, self.device, self.arrays, self.assembly, self._known = kernel, device, arrays, assembly, known
        self.found: KernelSites = sites_of(kernel, sizes)
        sides = {d: max(1, max(int(e.evaluate(sizes)) for e in es)) for d, es in kernel.launch.items()}
        on_gpu = TARGETS[program.target].threads
        x, y, z = (sides.get(f"threadIdx.{a}", 1) if on_gpu else 1 for a in "xyz")
        self.block = Block(x, y, z, on_gpu)
        self.blocks = self._blocks(kernel, sizes)
        self.size = {s.buffer.name: _buffer_elements(s.buffer, sizes) for s in self.found.sites}
        self.accesses = [self._access(s) for s in self.found.sites]
        pairs = list(zip(self.found.sites, self.accesses, strict=True))
        self.footprint: dict[str, int] = {}
        self.tensors, again = self._tensors(pairs)
        self.accesses = [replace(a, again=again.get(k, 1)) for k, a in enumerate(self.accesses)]

    @staticmethod
    def _blocks(kernel: Kernel, sizes: Mapping[str, int]) -> int:
        return prod(
            max(int(e.evaluate(sizes)) for e in es) for d, es in kernel.launch.items() if d.startswith("blockIdx")
        )

    def cost(self, since: Mapping[str, int | None]) -> KernelCost:
        """The cost, where each tensor was last used so many bytes ago."""
        accesses, tensors = self.accesses, self.tensors
        outside = [a for a in accesses if a.place not in ("shared", "private")]
        flops, special, by_type, busy = self._arithmetic()
        read, written = sum(t.bytes_read for t in tensors), sum(t.bytes_written for t in tensors)
        asked = sum(a.bytes_asked for a in outside)
        moved, sectors = sum(t.bytes_moved for t in tensors), sum(a.sectors for a in outside)
        atomics = sum(a.points * a.width for a in outside if a.kind == "atomic")
        limits: dict[Bound, float] = {
            "memory": self._moving(since), "launch": 0.0,
            "atomics": max(atomics / self.device.atomics, self._waiting()),
        }  # fmt: skip
        if self.block.warps:
            limits |= {"arithmetic": busy[0], "special functions": busy[1]}
            limits["indices"] = self.device.index_seconds(coordinate_count(self.found)) / self._share()
            parts = self.device.line_seconds(
                *(sum(a.lines for a in outside if a.kind == kind) for kind in ("read", "write"))
            )
            limits["cache"] = max(sectors * self.device.sector / self.device.cache_bandwidth, parts)
            limits["exchanges"] = self._exchanging() / self._share()
        else:
            loops = core_times(self.found, self.arrays, self.size, self.device)
            most = cast("Bound", max(loops, key=lambda n: loops[n], default="loads"))
            limits[most] = sum(loops.values()) / self._share()
        others = [limits[n] for n in limits if n != "exchanges"]
        time_us = hypot(max(others), limits.get("exchanges", 0.0)) * 1e6  # loads of other blocks go on, but not wholly
        bound: Bound = "launch" if time_us < self.device.launch_us else max(limits, key=lambda n: limits[n])
        return KernelCost(
            self.kernel.name, self.blocks, self.block.threads, asked, read, written, max(0, asked - read - written),
            moved, sectors, sum(a.bytes_asked for a in accesses if a.place == "shared"),
            sum(a.bytes_asked for a in accesses if a.place == "private"), shared_layout(self.kernel.body).total,
            flops, by_type, special, atomics, self._collisions(), time_us + self.device.launch_us, bound,
            all(a.exact for a in accesses) and all(t.exact for t in tensors), tuple(accesses), tuple(tensors),
            self.device, self.assembly,
        )  # fmt: skip

    def _access(self, s: AccessSite) -> AccessCost:
        points = self._once(("points", _site_key(s)), lambda: site_points(s, self.found.data, self.arrays))
        item = item_size(s.buffer.dtype)
        outside = s.buffer.place not in ("shared", "private")
        sectors = self._sectors(s, self.device.sector) if outside else None
        lines = self._sectors(s, self.device.line).points if outside and self.block.warps else 0
        return AccessCost(
            self.kernel.name, s.buffer.title, s.kind, s.buffer.place, s.buffer.dtype, str(s.address), s.width,
            points.points, points.points * s.width * item, 0 if sectors is None else sectors.points, lines, 1,
            s.note, points.exact and (sectors is None or sectors.exact),
        )  # fmt: skip

    def _once(self, key: Hashable, count: Callable[[], _Counted]) -> _Counted:
        """Count what follows from loops, conditions and addresses once for all kernels of a program; where indices are
        loaded, for each."""
        if self.found.data:
            return count()
        if key not in self._known:
            self._known[key] = count()
        return self._known[key]

    def _sectors(self, s: AccessSite, unit: int) -> Count:
        around = s, self.block, self.found.data, self.arrays, self.device, unit
        return self._once(("sectors", _site_key(s), s.dims, self.block, unit), lambda: warp_sectors(*around))

    def _tensors(self, pairs: Sequence[tuple[AccessSite, AccessCost]]) -> tuple[list[TensorCost], dict[int, int]]:
        outside = [(k, s, a) for k, (s, a) in enumerate(pairs) if s.buffer.place not in ("shared", "private")]
        room = room_of(self.device, self.block, self.blocks)
        reuse = Reuse([s for _, s, _ in outside], self.found.data, self.size, room)
        made: list[TensorCost] = []
        again: dict[int, int] = {}
        for name in dict.fromkeys(s.buffer.name for _, s, _ in outside):
            own = [(k, s, a) for k, s, a in outside if s.buffer.name == name]
            for k, s, _ in own:
                again[k] = reuse.again(s)
            made.append(self._tensor(own, reuse, again))
        return made, again

    def _tensor(
        self, own: Sequence[tuple[int, AccessSite, AccessCost]], reuse: Reuse, again: Mapping[int, int]
    ) -> TensorCost:
        buffer = own[0][1].buffer
        item = item_size(buffer.dtype)
        # A rare access of which no sample is in the count still asks for something.
        unit = self.device.sector
        fill = {
            s: min(1.0, (a.bytes_asked / a.sectors if a.sectors and a.bytes_asked else s.width * item) / unit)
            for _, s, a in own
        }
        times = {s: again[k] for k, s, _ in own}
        read, read_sectors, passes, exact, once = 0, 0, 1, True, 0
        reads = [s for _, s, _ in own if s.kind in ("read", "atomic")]
        groups = reuse.passes(reads) if reads else []
        for together in groups:
            d = self._distinct(together, fill)
            often = max(times[s] for s in together)
            read, read_sectors, exact = read + d.elements * often, read_sectors + d.sectors * often, exact and d.exact
            passes, once = max(passes, often), max(once, d.sectors)
        if len(groups) > 1:
            passes = max(1, round(read / max(1, self._distinct(reads, fill).elements)))
        writes = [s for _, s, _ in own if s.kind in ("write", "atomic")]
        written, written_sectors = 0, 0
        if writes:
            d = self._distinct(writes, fill)
            often = max(times[s] for s in writes)
            written, written_sectors, exact = d.elements * often, d.sectors * often, exact and d.exact
            once = max(once, d.sectors)
        self.footprint[buffer.title] = once * unit
        place = cast("Any", buffer.place)
        return TensorCost(
            self.kernel.name, buffer.title, place, read * item, written * item, sum(a.bytes_asked for _, _, a in own),
            (read_sectors + written_sectors) * unit, passes, exact,
        )  # fmt: skip

    def _distinct(self, sites: Sequence[AccessSite], fill: Mapping[AccessSite, float]) -> Distinct:
        size = self.size[sites[0].buffer.name]
        around = sites, self.found.data, self.arrays, size, fill, self.device.sector
        key = "distinct", tuple((_site_key(s), fill[s]) for s in sites), size
        return self._once(key, lambda: distinct(*around))

    def _arithmetic(self) -> tuple[int, int, dict[str, int], tuple[float, float]]:
        """Float operations, the special ones of them, by type; seconds of plain and of special ones, integers too."""
        flops = special = 0
        by_type: dict[str, int] = {}
        plain_time = special_time = 0.0
        counts: dict[tuple[Any, ...], int] = {}
        for w in self.found.works:
            key = (w.around, w.conditions)
            if key not in counts:
                counts[key] = count_points(w.around, w.conditions, self.found.data, self.arrays).points
            row = OPERATIONS[w.op]
            if row.cycles == "free":
                continue
            many = counts[key] * w.count * row.steps
            special_op = row.cycles in ("special", "library")
            if is_float(w.dtype):
                flops += many
                by_type[w.dtype] = by_type.get(w.dtype, 0) + many
                special += counts[key] * w.count if special_op else 0
            if special_op:
                special_time += counts[key] * w.count / self.device.function(w.op, w.dtype, row.cycles == "library")
            plain_time += many / self.device.rate(w.dtype, special=False)
        share = self._share()
        return flops, special, by_type, (plain_time / share, special_time / share)

    def _exchanging(self) -> float:
        """Seconds in which threads hand each other their parts of a result."""
        sides, found = {"x": self.block.x, "y": self.block.y, "z": self.block.z}, 0.0
        for w, dims in self.found.exchanges:
            points = count_points(w.around, w.conditions, self.found.data, self.arrays).points
            inside = {x.parallel for x in w.around}
            each = points * prod(sides[d[-1]] for d in dims if d not in inside)
            found += self.device.exchange_seconds(each, prod(sides[d[-1]] for d in dims), item_size(w.dtype))
        return found

    def _share(self) -> float:
        """The part of the device that the kernel's blocks keep busy."""
        return min(1.0, max(1, self.blocks) / self.device.processors)

    def _moving(self, since: Mapping[str, int | None]) -> float:
        """Seconds to move the tensors from where they lie; blocks can use a processor's share of a bandwidth twice."""
        moved = sum(t.bytes_moved / bandwidth_at(self.device, since[t.tensor]) for t in self.tensors)
        return moved / min(1.0, 2 * self._share())

    def _waiting(self) -> float:
        """Seconds that updates of one line of memory wait for each other, where they spread evenly over a tensor."""
        if not self.device.line_atomics:
            return 0.0
        found = 0.0
        for s, a in zip(self.found.sites, self.accesses, strict=True):
            if a.kind == "atomic" and a.place not in ("shared", "private"):
                lines = max(1.0, self.size[s.buffer.name] * item_size(s.buffer.dtype) / self.device.line)
                found += a.points / lines / self.device.line_atomics
        return found

    def _collisions(self) -> int | None:
        """Atomics that meet an element already updated, where every index is known."""
        atomic = [s for s in self.found.sites if s.kind == "atomic" and s.buffer.place not in ("shared", "private")]
        if not atomic:
            return 0
        met = 0
        for s in atomic:
            own = relevant([s.address, *s.conditions], s.around, self.found.data)
            if prod(x.extent for x in own) * s.width > 1 << 24:
                return None
            found, known = touched(s, *grid(own), self.found.data, self.arrays)
            if not known:
                return None
            rest = prod(x.extent for x in s.around if x not in own)
            met += len(found) * rest - len(np.unique(found))
        return met


def _buffer_elements(b: Buffer, sizes: Mapping[str, int]) -> int:
    size: Expr = b.size
    return int(size.evaluate(dict(sizes)))


_KEPT = 1024  # estimates
_KNOWN: dict[tuple[str, str, tuple[tuple[str, int], ...]], Estimate] = {}  # by operations, device and symbols
VISITED = 1 << 18  # points of a statement that are visited one by one to compare ways


def as_emitted(
    fusion: Fusion, ways: Mapping[str, str], device: Device, symbols: Mapping[str, int]
) -> tuple[Program, Cost]:
    """The program of a fusion that `auto` schedules with these ways for the device's kind, and its cost."""
    auto(fusion, gathers=cast("Force", ways), device=device)
    program = emit(fusion, target=device.kind)
    return program, program_cost(program, device, symbols, {}, False)


def estimate_of(c: Cost) -> Estimate:
    """The numbers that ways are compared by."""
    t = c.total
    return Estimate(len(c.kernels), t.bytes_read + t.bytes_written, t.flops + t.atomics, t.time_us)


def estimate(fusion: Fusion, ways: Mapping[str, str] | str, device: Device, symbols: Mapping[str, int]) -> Estimate:
    """Only the estimate; see `idgraph.ir.hooks`.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, i = f.input("x", shape=(8, 10)), f.input("i", shape=(8, 1), dtype="int64")
    >>> t = f.output(ig.gather(x * 2.0, 1, i))
    >>> estimate(f, {t.name: "recompute"}, ig.cost.devices["H200"], {}).kernels
    1
    """
    with visiting(VISITED), one_line():
        apply_gather_strategies(fusion, cast("Force", ways), device)
        key = (str(fusion), device.to_json(), tuple(sorted(symbols.items())))
        known = _KNOWN.get(key)
        if known is None:  # ways often leave the same operations: a gather of a gather takes the inner one with it
            schedule_loops(fusion)
            program = emit(fusion, target=device.kind)
            known = estimate_of(program_cost(program, device, symbols, {}, False))
            if len(_KNOWN) >= _KEPT:
                _KNOWN.clear()
            _KNOWN[key] = known
        return known


estimate_with(estimate)


@dataclass(frozen=True, slots=True)
class CandidateSchedule(Printed):
    """One schedule: ``config`` (see `ig.schedule.KernelConfig`) on ``device``, and ``fusion``, a scheduled copy to look
    at. Prints as the steps of the copy."""

    config: KernelConfig
    device: Device
    fusion: Fusion = field(repr=False)
    layout: bool = True
    gathers: Force = None

    @arguments(ScheduleError)
    def apply(self, fusion: Fusion) -> None:
        """Schedule a fusion of the same operations so. Raises `ScheduleError` for one with other outputs.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("x", shape=(4096, 64)) * 2.0)
        >>> other = ig.schedule.auto(f).runner_up
        >>> other.schedule.apply(f)
        >>> other.schedule.config.to_data()
        {'block': 64}
        """
        if [t.name for t in fusion.outputs] != [t.name for t in self.fusion.outputs]:
            names = ", ".join(t.name for t in self.fusion.outputs)
            raise ScheduleError(
                f"fusion {short_repr(fusion.name)} has other outputs than the schedule is for", hint=f"outputs {names}",
                where=user_line(),
            )  # fmt: skip
        auto(fusion, gathers=self.gathers, config=self.config, layout=self.layout, device=self.device)

    def __str__(self) -> str:
        steps = [x.strip() for x in str(self.fusion).splitlines() if x.strip().startswith("schedule ")]
        return "\n".join(steps) or "no steps"


@dataclass(frozen=True, slots=True)
class ScheduleCandidate(Printed):
    """A schedule, its estimated time ``cost`` (microseconds on the device, all kernels) and whether `auto` chose it."""

    schedule: CandidateSchedule
    cost: float
    chosen: bool

    def __str__(self) -> str:
        return f"{self.schedule.config}: {self.cost:.2f} us on {self.schedule.device.name}{', chosen' * self.chosen}"


def schedule_candidates(
    fusion: Fusion, version: int, config: KernelConfig, layout: bool, device: Device, gathers: Force
) -> tuple[ScheduleCandidate, ...]:
    """The chosen schedule of a fusion, which it has, and the others, the cheapest first; ones that cannot be emitted
    are left out. Raises `ScheduleError` where the fusion has changed since, or has sizes that are symbols."""
    if fusion.version != version:
        raise ScheduleError(
            f"fusion {short_repr(fusion.name)} has changed since auto scheduled it: its candidates are not known",
            hint="ask for candidates before other steps, or call auto again", where=user_line(),
        )  # fmt: skip
    if fusion.symbols:
        names = ", ".join(fusion.symbols)
        raise ScheduleError(
            f"fusion {short_repr(fusion.name)} has sizes that are symbols ({names}): times of candidates are not known",
            hint="build it with numbers, or measure: ig.tune(fusion, symbols={...})", where=user_line(),
        )  # fmt: skip
    with use_device(device):
        found = [_candidate(clone_fusion(fusion), config, layout, device, gathers, True)]
        seen = {found[0][1]}
        best = config
        for stage in stages(fusion, device.kind):
            for move in stage:
                tried = best.but(**move)
                copy = clone_fusion(fusion)
                try:
                    auto(copy, config=tried, layout=layout, device=device)
                    made, text = _candidate(copy, tried, layout, device, gathers, False)
                except IdGraphError:  # a number that this fusion's kernels cannot have
                    continue
                if text not in seen:
                    seen.add(text)
                    found.append((made, text))
            best = min((c for c, _ in found), key=lambda c: c.cost).schedule.config
    first, *rest = (c for c, _ in found)
    return (first, *sorted(rest, key=lambda c: c.cost))


def _candidate(
    scheduled: Fusion, config: KernelConfig, layout: bool, device: Device, gathers: Force, chosen: bool
) -> tuple[ScheduleCandidate, str]:
    program = emit(scheduled, target=device.kind)
    cost = program_cost(program, device, {}, {}, False).total.time_us
    schedule = CandidateSchedule(config, device, scheduled, layout, gathers)
    return ScheduleCandidate(schedule, round(cost, 4), chosen), kernel_text(program)
