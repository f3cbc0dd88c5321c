"""The passes of each target, in order; running them, one after the other.

One table says which passes a target has. `emit` runs it and nothing else; `trace` gives the kernels after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from idgraph.ir.targets import TARGETS, TargetName
from idgraph.kernel.ir import Kernel, Plan
from idgraph.passes import (
    collapse,
    cse,
    dead_code,
    fuse_lanes,
    fuse_launches,
    hoist_loads,
    init,
    interchange,
    lanes,
    pack_half2,
    peel,
    roll,
    rows,
    scan,
    vectorize,
)
from idgraph.passes.rows import symbols
from idgraph.schedule.config import RULE, KernelConfig


@dataclass(frozen=True, slots=True)
class Pass:
    """``run`` maps kernels to kernels; ``about`` describes the pass in one line."""

    name: str
    about: str
    run: Callable[[Plan, KernelConfig], Plan]


def _each(f: Callable[[Kernel], Kernel]) -> Callable[[Plan, KernelConfig], Plan]:
    """A pass over single kernels."""

    def run(plan: Plan, _: KernelConfig) -> Plan:
        return replace(plan, kernels=tuple(map(f, plan.kernels)))

    return run


def _rows(plan: Plan, config: KernelConfig, threads: bool) -> Plan:
    return rows.with_rows(plan, threads=threads, config=config)


PASSES: Mapping[str, Pass] = {
    p.name: p
    for p in (
        Pass("serial", "one core only, where the configuration says so", fuse_launches.serial),
        Pass("fuse_launches", "independent kernels in one launch", lambda p, _: fuse_launches.together(p)),
        Pass("collapse", "blocks, threads and lanes of a cut row as one loop", _each(collapse.collapsed)),
        Pass("rename_columns", "symbols called like the columns of a row get a prime", lambda p, _: symbols.apart(p)),
        Pass(
            "rows_of_core",
            "loops over columns joined, expensive values kept for the next",
            partial(_rows, threads=False),
        ),
        Pass(
            "rows",
            "rows read once: persistent in registers, in chunks, with an online softmax",
            partial(_rows, threads=True),
        ),
        Pass("interchange", "rows side by side in memory reduced together", _each(interchange.interchanged)),
        Pass("init", "first values for what one path only sets", _each(init.with_first_values)),
        Pass("hoist_loads", "indices of a row in front of its columns", _each(hoist_loads.hoisted_loads)),
        Pass("scan", "running values of threads, exchanged by the block", _each(scan.on_threads)),
        Pass("peel", "lanes across an end as a vector body and scalar ends", _each(peel.peeled)),
        Pass("unroll", "lanes as straight code, split where they differ", _each(lanes.with_lanes)),
        Pass("merge_tests", "tests of one condition side by side as one", _each(vectorize.with_joined_tests)),
        Pass("vectorize_loads", "loads of neighbouring elements as one", _each(vectorize.with_vector_loads)),
        Pass("cse", "equal values computed once", _each(cse.with_values_once)),
        Pass("vectorize_stores", "stores to neighbouring elements as one", _each(vectorize.with_vector_stores)),
        Pass("pack_half2", "16-bit floats in pairs", _each(pack_half2.with_pairs)),
        Pass("dead_code", "values that nobody reads left out", _each(dead_code.live)),
        Pass("roll", "straight code of lanes as loops over registers", _each(roll.rolled)),
        Pass("fuse_lanes", "loops over as many lanes side by side as one", _each(fuse_lanes.fused_lanes)),
        Pass("scalar_replacement", "registers that one step uses as variables", _each(fuse_lanes.scalars)),
    )
}
TABLE: Mapping[TargetName, tuple[Pass, ...]] = {name: tuple(PASSES[p] for p in t.passes) for name, t in TARGETS.items()}
"""The passes of each target, in the order that its record names them in."""


def chosen(names: Iterable[str], target: TargetName = "cuda") -> tuple[Pass, ...]:
    """Passes of one target by name, in the order of its table.

    >>> [p.name for p in chosen(("roll", "unroll"))]
    ['unroll', 'roll']
    """
    wanted = frozenset(names)
    return tuple(p for p in TABLE[target] if p.name in wanted)


def trace(plan: Plan, passes: Iterable[Pass], config: KernelConfig = RULE) -> Iterator[tuple[Pass, Plan]]:
    """Each pass with the kernels after it; a kernel's ``passes`` name those that changed it."""
    for p in passes:
        before = {k.name: k for k in plan.kernels}
        after = p.run(plan, config)
        done = tuple(k if k == before.get(k.name) else replace(k, passes=(*k.passes, p.name)) for k in after.kernels)
        plan = replace(after, kernels=done)
        yield p, plan


def run(plan: Plan, passes: Iterable[Pass], config: KernelConfig = RULE) -> Plan:
    """The kernels after all of ``passes``."""
    made = plan
    for _, made in trace(plan, passes, config):  # noqa: B007 - the last one counts
        pass
    return made
