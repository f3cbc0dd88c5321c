"""The passes of each target, in order; running them, one after the other.

One table says which passes a target has. `emit` runs it and nothing else; `trace` gives the kernels after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from idgraph.ir.device import TARGETS, TargetName
from idgraph.kernel.def_use import loaded_in, stored_in
from idgraph.kernel.ir import Kernel, KernelModule
from idgraph.passes.block_scan import on_threads
from idgraph.passes.cse_dce import eliminate_common_subexpressions, eliminate_dead_code
from idgraph.passes.divmod_strength_reduction import strength_reduce_divmod
from idgraph.passes.kernel_fusion import fuse_kernels, fuse_nests, serial
from idgraph.passes.lane_loop_fusion import fuse_lane_loops, scalar_replacement
from idgraph.passes.lane_unrolling import unroll_lanes
from idgraph.passes.load_hoisting import licm_loads, select_address_then_load
from idgraph.passes.loop_flattening import flatten_loops
from idgraph.passes.loop_interchange import interchange_loops
from idgraph.passes.loop_partition import end_before_idle_steps, mark_nounroll, unswitched
from idgraph.passes.loop_peeling import peel_loops
from idgraph.passes.narrowing import approximate_math, elide_double_rounding, fuse_math_functions, narrow_int64
from idgraph.passes.packed_half2 import pack_half2
from idgraph.passes.reduction_flattening import flatten_reduction_loops
from idgraph.passes.rows import rename_conflicting_symbols, with_rows
from idgraph.passes.slp_rerolling import reroll_lanes
from idgraph.passes.unroll_and_jam import unroll_and_jam
from idgraph.passes.value_range_analysis import eliminate_bounds_checks
from idgraph.passes.vectorize_memory import realigned, with_vector_loads, with_vector_stores


@dataclass(frozen=True, slots=True)
class Pass:
    """``run`` maps kernels to kernels; ``about`` describes the pass in one line."""

    name: str
    about: str
    run: Callable[[KernelModule], KernelModule]


def _each(f: Callable[[Kernel], Kernel]) -> Callable[[KernelModule], KernelModule]:
    """A pass over single kernels. What a kernel only read and reads no longer is not passed to it."""

    def changed(k: Kernel) -> Kernel:
        made = f(k)
        if made.body is k.body:
            return made
        used = stored_in(k.body) | stored_in(made.body) | loaded_in(made.body)
        return replace(made, buffers=tuple(b for b in made.buffers if b.name in used))

    def run(plan: KernelModule) -> KernelModule:
        return replace(plan, kernels=tuple(map(changed, plan.kernels)))

    return run


PASSES: Mapping[str, Pass] = {
    p.name: p
    for p in (
        Pass("serial", "one core only, where the schedule says so", _each(serial)),
        Pass("fuse_launches", "independent kernels in one launch", fuse_kernels),
        Pass("fuse_nests", "independent kernels over the same loops as one nest", fuse_nests),
        Pass("prove_checks", "checks of indices that cannot leave their axis", _each(eliminate_bounds_checks)),
        Pass("collapse", "blocks, threads and lanes of a cut row as one loop", _each(flatten_loops)),
        Pass("columns", "reduced rows of several axes without divisions", _each(flatten_reduction_loops)),
        Pass("rename_columns", "symbols called like the columns of a row get a prime", rename_conflicting_symbols),
        Pass(
            "rows_of_core",
            "loops over columns joined, expensive values kept for the next",
            partial(with_rows, threads=False),
        ),
        Pass(
            "rows",
            "rows read once: persistent in registers, in chunks, with an online softmax",
            partial(with_rows, threads=True),
        ),
        Pass("jam", "lanes around loops over columns, inside of them", _each(unroll_and_jam)),
        Pass("interchange", "rows side by side in memory reduced together", _each(interchange_loops)),
        Pass("unswitch", "one loop for each outcome of a test that no step changes", _each(unswitched)),
        Pass("round_once", "values rounded to 16 bits where they are written", _each(elide_double_rounding)),
        Pass("keep_rolled", "reductions that the compiler does not write out", _each(mark_nounroll)),
        Pass("hoist_loads", "indices of a row in front of its columns", _each(licm_loads)),
        Pass("scan", "running values of threads, exchanged by the block", _each(on_threads)),
        Pass("select_loads", "choices between loads of one buffer as one load", _each(select_address_then_load)),
        Pass("peel", "lanes across an end as a vector body and scalar ends", _each(peel_loops)),
        Pass("carry_digits", "rows and columns of lanes from those of the first", _each(strength_reduce_divmod)),
        Pass("unroll", "lanes as straight code, split where they differ", _each(unroll_lanes)),
        Pass("composed", "functions of functions as one", _each(fuse_math_functions)),
        Pass("short_ints", "small 64-bit integers to floats through 32 bits", _each(narrow_int64)),
        Pass("short_functions", "exp and sigmoid that are rounded to 16 bits at once", _each(approximate_math)),
        Pass("vectorize_loads", "loads of neighbouring elements as one", _each(with_vector_loads)),
        Pass("realign", "neighbouring elements that begin anywhere, from aligned vectors", _each(realigned)),
        Pass("cse", "equal values computed once", _each(eliminate_common_subexpressions)),
        Pass("vectorize_stores", "stores to neighbouring elements as one", _each(with_vector_stores)),
        Pass("pack_half2", "16-bit floats in pairs", _each(pack_half2)),
        Pass("dead_code", "values that nobody reads left out", _each(eliminate_dead_code)),
        Pass("roll", "straight code of lanes as loops over registers", _each(reroll_lanes)),
        Pass("fuse_lanes", "loops over as many lanes side by side as one", _each(fuse_lane_loops)),
        Pass("end_rows", "rows of loaded length to their end", _each(end_before_idle_steps)),
        Pass("scalar_replacement", "registers that one step uses as variables", _each(scalar_replacement)),
    )
}
TABLE: Mapping[TargetName, tuple[Pass, ...]] = {name: tuple(PASSES[p] for p in t.passes) for name, t in TARGETS.items()}
"""The passes of each target, in the order that its record names them in."""


def up_to(name: str, target: TargetName) -> tuple[Pass, ...]:
    """Passes of a target to the one named, with it; none where it has no such pass.

    >>> [p.name for p in up_to("fuse_launches", "cuda")], up_to("fuse_launches", "python")
    (['fuse_launches'], ())
    """
    names = [p.name for p in TABLE[target]]
    return TABLE[target][: names.index(name) + 1] if name in names else ()


def trace(plan: KernelModule, passes: Iterable[Pass]) -> Iterator[tuple[Pass, KernelModule]]:
    """Each pass with the kernels after it; a kernel's ``passes`` name those that changed it."""
    for p in passes:
        before = {k.name: k for k in plan.kernels}
        after = p.run(plan)
        done = tuple(k if k == before.get(k.name) else replace(k, passes=(*k.passes, p.name)) for k in after.kernels)
        plan = replace(after, kernels=done)
        yield p, plan


def run(plan: KernelModule, passes: Iterable[Pass]) -> KernelModule:
    """The kernels after all of ``passes``."""
    made = plan
    for _, made in trace(plan, passes):  # noqa: B007 - the last one counts
        pass
    return made
