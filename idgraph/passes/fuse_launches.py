"""Fewer launches: kernels that need nothing of each other run as one.

A launch costs microseconds, and its last blocks leave the device half empty. Two nests over the same loops that read a
common input become one nest, whose threads do both works (the cosines of a rotation serve queries and keys); nests of
other sizes share a launch, each on a range of its blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from idgraph.arith import Expr, as_expr, simplify
from idgraph.kernel.defuse import loaded_in, stored_in
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    Combine,
    Kernel,
    Loop,
    Note,
    Plan,
    Stmt,
    walk,
)
from idgraph.schedule.config import KernelConfig

ARRAYS = 96  # parameters of a launch: the driver takes 4 KB, of which an array and its extents take some 40 bytes
LOOKED_AT = 16  # launches that are tried before a kernel gets one of its own
MOST = 4  # nests in one thread: each holds registers for its loads
Body = tuple[Stmt, ...]


def together(plan: Plan) -> Plan:
    """The plan with independent kernels joined, each as early as what it reads is there.

    A kernel goes into the first launch after all those that it needs (what it reads is written, what it writes has been
    read), among launches of as many threads and few enough arrays. Near linear in the kernels.
    """
    groups: list[list[Kernel]] = []
    arrays: list[set[str]] = []
    written: dict[str, int] = {}  # buffer -> the last launch that writes it
    touched: dict[str, int] = {}  # buffer -> the last launch that reads or writes it
    places: dict[Expr, list[int]] = {}  # threads of a block -> launches of plain kernels
    for k in plan.kernels:
        writes, names = stored_in(k.body), {b.name for b in k.buffers}
        after = max([*(written.get(n, -1) for n in names), *(touched.get(n, -1) for n in writes)], default=-1)
        home = len(groups)
        if _is_plain(k):
            open_ = places.setdefault(k.launch["threadIdx.x"][0], [])
            first = bisect_right(open_, after)
            fits = (n for n in islice(open_, first, first + LOOKED_AT) if len(arrays[n] | names) <= ARRAYS)
            home = next(fits, home)
            if home == len(groups):
                open_.append(home)
        if home == len(groups):
            groups.append([])
            arrays.append(set())
        groups[home].append(k)
        arrays[home] |= names
        for n in names:
            touched[n] = max(home, touched.get(n, -1))
        for n in writes:
            written[n] = max(home, written.get(n, -1))
    joined = [_joined(g) if len(g) > 1 else g[0] for g in groups]
    return replace(plan, kernels=tuple(replace(k, name=f"kernel{n}") for n, k in enumerate(joined)))


def _is_plain(k: Kernel) -> bool:
    """One nest on blockIdx.x and a known number of threadIdx.x, in which threads do not meet: sums are their own."""
    if set(k.launch) != {"blockIdx.x", "threadIdx.x"} or any(len(e) != 1 for e in k.launch.values()):
        return False
    if not k.launch["threadIdx.x"][0].is_const or any(
        isinstance(s, (Alloc, Barrier, Combine)) or (isinstance(s, Accumulate) and s.buffer is not None)
        for s in walk(k.body)
    ):
        return False
    loops = [s for s in k.body if not isinstance(s, Note)]
    return len(loops) == 1 and isinstance(loops[0], Loop) and loops[0].parallel == "blockIdx.x"


def _joined(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel: nests over equal loops merged, the others side by side on ranges of blocks."""
    merged: list[list[Kernel]] = []
    for k in kernels:
        home = next((g for g in merged if len(g) < MOST and _shares(g, k)), None)
        if home is None:
            merged.append([k])
        else:
            home.append(k)
    first = as_expr(0)
    body: list[Stmt] = []
    for g in merged:
        for s in _one_nest([k.body for k in g]):
            body.append(replace(s, first=first) if isinstance(s, Loop) else s)
        first = simplify(first + g[0].launch["blockIdx.x"][0])
    buffers = {b.name: b for k in kernels for b in k.buffers}
    scalars = tuple(dict.fromkeys(s for k in kernels for s in k.scalars))
    launch = {"blockIdx.x": (first,), "threadIdx.x": kernels[0].launch["threadIdx.x"]}
    return replace(kernels[0], buffers=tuple(buffers.values()), scalars=scalars, body=tuple(body), launch=launch)


def _shares(group: Sequence[Kernel], k: Kernel) -> bool:
    """True where ``k`` runs on the same blocks as the group and reads something that the group reads."""
    if simplify(group[0].launch["blockIdx.x"][0] - k.launch["blockIdx.x"][0]) != 0:
        return False
    return any(loaded_in(g.body) & loaded_in(k.body) for g in group)


def _one_nest(bodies: Sequence[Body]) -> Body:
    """Bodies of one loop: where all are one loop of one kind, that loop; else one after the other."""
    loops = [[s for s in b if not isinstance(s, Note)] for b in bodies]
    heads = [b[0] for b in loops if len(b) == 1 and isinstance(b[0], Loop)]
    if len(heads) == len(bodies) and all(
        h.var == heads[0].var and h.parallel == heads[0].parallel and simplify(h.extent - heads[0].extent) == 0
        for h in heads
    ):
        note = "; ".join(dict.fromkeys(h.note for h in heads if h.note))
        return (replace(heads[0], body=_one_nest([h.body for h in heads]), note=note),)
    return tuple(s for b in bodies for s in b)


def serial(plan: Plan, config: KernelConfig) -> Plan:
    """The plan for the CPU without its parallel loops, where these are not wanted: starting the cores costs more than a
    small kernel."""
    if config.parallel is not False:
        return plan
    return replace(plan, kernels=tuple(replace(k, body=tuple(_serial(s) for s in k.body)) for k in plan.kernels))


def _serial(s: Stmt) -> Stmt:
    return replace(s, parallel="serial") if isinstance(s, Loop) else s
