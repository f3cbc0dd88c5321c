"""Memory between kernels that several tensors take in turn: by liveness, whatever the sizes."""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.arith import Expr, as_expr
from idgraph.kernel.ir import Buffer, KernelModule


def live_ranges(plan: KernelModule) -> Mapping[str, tuple[int, int]]:
    """Name of a buffer -> the first and the last kernel that has it."""
    found: dict[str, tuple[int, int]] = {}
    for number, kernel in enumerate(plan.kernels):
        for b in kernel.buffers:
            found[b.name] = found.get(b.name, (number, 0))[0], number
    return found


def reused_memory(plan: KernelModule) -> Mapping[str, str]:
    """Name of a buffer -> that of the earlier one whose memory it takes; others have memory of their own.

    Only what no caller sees is shared, among tensors of equal size and type, where all kernels that have the earlier
    one have ended before the first that has the later one: kernels of a stream run one after the other. Inputs and
    outputs keep theirs, so no result lies in the memory of another.

    >>> import idgraph as ig
    >>> f = ig.Fusion("chain")
    >>> t = f.input("x", shape=(8,))
    >>> for _ in range(5):
    ...     t = ig.exp(t)
    >>> _ = f.output(t)
    >>> program = ig.emit(f, target="cpu")  # not scheduled: a kernel for each operation
    >>> titles = {b.name: b.title for b in program.plan.buffers}
    >>> {titles[a]: titles[b] for a, b in reused_memory(program.plan).items()}
    {'t3': 't1', 't4': 't2'}
    """
    ranges = live_ranges(plan)
    between = [b for b in plan.buffers if b.place == "global" and b.name in ranges]
    free: dict[tuple[Expr, str], list[tuple[int, Buffer]]] = {}  # memory, and the last kernel that has it so far
    found: dict[str, str] = {}
    for b in sorted(between, key=lambda b: ranges[b.name]):
        first, last = ranges[b.name]
        same = free.setdefault((as_expr(b.size), b.dtype), [])
        at = next((n for n, (ended, _) in enumerate(same) if ended < first), None)
        if at is None:
            same.append((last, b))
            continue
        found[b.name] = same[at][1].name
        same[at] = last, same[at][1]
    return found
