"""The rule of each target for rows: held between passes or read again, online or in two passes, how much is under way.

The thresholds are measured: on an H200 softmax and norms of 4096 columns take 0.87 to 0.93 of the time when held, a
loss that one pass can do 1.6 times as long. Facts are written on the reductions (`Tensor.by_rule`); kernels obey them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from idgraph.arith import as_expr, is_true, simplify
from idgraph.ir import Tensor, item_size
from idgraph.ir.device import current_device
from idgraph.ir.schedule_log import KernelHints, Ruled
from idgraph.schedule.config import HELD, most_values
from idgraph.schedule.reduction_dataflow import (
    Dataflow,
    FusedPasses,
    ReductionPass,
    UnclearError,
    joined,
    reused_values,
)
from idgraph.schedule.reduction_domain import ReductionDomain, product_of, reduces
from idgraph.schedule.reduction_tiling import ReductionTiling

IN_FLIGHT = 32  # elements whose loads a thread has in flight, where it takes several rows side by side
UNROLLED = 16  # the same of one row, where a kernel only reduces
UNROLLED_BESIDE = 32  # the same in a kernel that also writes a row: fewer of its blocks run at a time
UNROLLED_STORES = 16  # where a sweep keeps as many results too
BLOCK = 256  # columns whose terms the CPU adds up in float32
ONE_PASS = "one pass does it"
NO_VALUE = "no value of one pass is read by another"
CONDITIONS = "parts of its columns are read under conditions"
DIGITS = "a loop over its columns has a condition, or an index modulo its steps"
CHEAP = "nothing to hold that costs more than its loads"
NO_RULE = "nothing says that it is held"
AGAIN = "as a row that is read again"
ON_CORE = KernelHints(items_per_thread=BLOCK, why=AGAIN)
UNCLEAR = KernelHints(online=False, why="what a column reads does not follow from its tensors")


@dataclass(frozen=True, slots=True)
class ReductionGroup:
    """A space with its loops; ``owners``: its reductions and what is written over its columns, in order."""

    space: ReductionDomain
    how: ReductionTiling
    owners: Sequence[Tensor]


def choose_persistence(group: ReductionGroup) -> Iterator[Ruled]:
    """Write what the rules decide on the reductions of a space, nest by nest.

    Where the tensors do not say it, it is not one pass with others, and decides nothing for them.
    """
    flow = Dataflow(group.space, frozenset(t for t in group.space.labels if not t.inline_position))
    passes: list[ReductionPass] = []
    for t in group.owners:
        with suppress(UnclearError):
            passes.append(flow.sweep(t))
    for part in _passes_by_nest(passes):
        sums = [p.owner for p in part if reduces(p.owner)]
        again = KernelHints(online=_is_online(part), items_per_thread=_in_flight(part, group.how.side), why=AGAIN)
        yield from _write_hints(sums, "cuda", on_gpu(part, group), again, "online")
        yield from _write_hints(sums, "cpu", cpu_persistence(part, group), ON_CORE)
    told = {p.owner for p in passes}
    left = [t for t in group.owners if reduces(t) and t not in told]
    yield from _write_hints(left, "cuda", UNCLEAR, UNCLEAR, "online")
    yield from _write_hints(left, "cpu", UNCLEAR, ON_CORE)


def _write_hints(
    sums: Sequence[Tensor], target: str, rule: KernelHints, again: KernelHints, *read: str
) -> Iterator[Ruled]:
    """The decision written on reductions, as far as the user made none: where one was made on whether the row is held,
    or that says so too (``read``), the rest is that of a row that is read ``again``."""
    made = {n for t in sums for n in t.choices.explicit()}
    if sums:
        given = again if made & {"persistent", *read} else rule
        given = given.but(**dict.fromkeys(made & {"online", "items_per_thread"}, None))
        if given.explicit():
            for t in sums:
                t.by_rule(
                    target, persistent=given.persistent, online=given.online,
                    items_per_thread=given.items_per_thread, why=given.why,
                )  # fmt: skip
            yield Ruled(target, tuple(t.name for t in sums), given, given.why)


def _passes_by_nest(passes: Sequence[ReductionPass]) -> list[list[ReductionPass]]:
    """The passes of each loop nest: those that read one number of a row share it."""
    home: dict[Tensor, list[ReductionPass]] = {p.owner: [p] for p in passes}
    for p in passes:
        for t in p.waits:
            if t in home and home[t] is not home[p.owner]:
                whole = [*home[t], *home[p.owner]]
                home.update((q.owner, whole) for q in whole)
    found = {id(part): part for part in home.values()}
    return [[p for p in passes if home[p.owner] is part] for part in found.values()]


def on_gpu(passes: Sequence[ReductionPass], group: ReductionGroup) -> KernelHints:
    """In registers of the threads, where a row is passed over twice and fits."""
    if group.how.side > 1:
        side = group.how.side
        return KernelHints(False, _is_online(passes), _in_flight(passes, side), why=f"a thread has {side} rows")
    online = joined(passes, online=True)
    held, why = (False, ONE_PASS) if len(online) < 2 else _in_registers(joined(passes, online=False), group)
    return KernelHints(held, not held and _is_online(passes), None if held else _in_flight(passes, 1), why=why)


def _in_flight(passes: Sequence[ReductionPass], side: int) -> int:
    """Elements whose loads a thread of a GPU has in flight, of each of its ``side`` rows that are read again."""
    if side > 1:
        return max(1, IN_FLIGHT // side)
    writes = [any(not reduces(p.owner) for p in part.passes) for part in joined(passes, online=True)]
    beside = UNROLLED_BESIDE if any(writes) else UNROLLED
    return max((UNROLLED_STORES if w else beside for w in writes), default=UNROLLED)


def _is_online(passes: Sequence[ReductionPass]) -> bool:
    return any(part.online for part in joined(passes, online=True))


def _in_registers(parts: Sequence[FusedPasses], group: ReductionGroup) -> tuple[bool, str]:
    """Whether the threads hold a row between the passes over it, and why."""
    columns = product_of(group.space.extents[group.space.rows :])
    if len(parts) < 2:
        return False, ONE_PASS
    if columns is None:
        return False, "its length is open"
    arrays = len(reused_values(parts, loads=True))
    if not arrays:
        return False, NO_VALUE
    threads, lanes = group.how.threads, group.how.lanes
    width = lanes
    while width > 1 and columns % width:
        width //= 2
    held = -(-columns // (threads * width)) * width * arrays
    most = most_values(threads)
    if held <= most:
        return True, f"each of {threads} threads holds {held} values, of {HELD} at most"
    return False, f"each of the {threads} threads of its {columns} columns would hold {held} values, at most {most} fit"


def cached_row_bytes() -> int:
    """Bytes of a row kept on the CPU: what a core's own cache holds beside the row itself.

    >>> cached_row_bytes()
    524288
    """
    return current_device("cpu").core_cache // 2


def cpu_persistence(passes: Sequence[ReductionPass], group: ReductionGroup) -> KernelHints:
    """In an array, where a value is expensive to compute and the array stays in a core's cache."""
    found = reused_values(joined(passes, online=False), loads=False)
    if not found:
        return KernelHints(False, False, BLOCK, why=CHEAP)
    size = as_expr(sum(item_size(v.dtype) for v in found))
    for n in group.space.extents[group.space.rows :]:
        size = size * n
    size = simplify(size)
    cached = cached_row_bytes()
    held = is_true(size <= cached)
    why = f"{'held in arrays' if held else 'computed again'}: {size} bytes a row, {cached} at most"
    return KernelHints(held, False, BLOCK, why=why)
