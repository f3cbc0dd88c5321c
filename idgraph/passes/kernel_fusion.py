"""Fewer launches: kernels that need nothing of each other run as one.

A launch costs microseconds, and its last blocks leave the device half empty. Two nests over the same loops that read a
common input become one nest, whose threads do the work of both (the cosines of a rotation serve queries and keys).
Nests of other sizes share a launch, each on a range of its blocks. One whose threads exchange nothing may run on any
threads: block ``j`` of T threads runs T // N of its blocks of N threads, or where T divides N a part of one.

fuse_nests: on a CPU what kernels over the same loops read in common is read once. Kernels over other loops stay apart,
as a CPU gains nothing by starting them together.

Long: which nests may share a launch, and the launch that they share.
"""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from math import prod

from idgraph.arith import Expr, as_expr, ceildiv, simplify, symbol
from idgraph.ir import item_size
from idgraph.ir.device import current_device
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.def_use import (
    all_reads,
    all_sets,
    loaded_in,
    map_body,
    map_statement,
    read_only_buffers,
    renamed_symbols,
    rewritten_inside,
    stored_in,
    updates,
)
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    If,
    InitAccumulator,
    Kernel,
    KernelModule,
    Load,
    Loop,
    SingleThread,
    Stmt,
    X,
    beyond_x,
    bodies,
    shared_layout,
    single_statement,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering

Block = tuple[int, int, int]  # threads of a block along x, y and z
DIMS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


@dataclass(frozen=True, slots=True)
class Nested:
    """A kernel that is one nest on ``blockIdx.x`` and ``block`` threads, each a known number of them.

    ``free``: its threads exchange nothing and lie along x only, so that it may run on a block of another shape.
    ``shares``: its threads share arrays.
    """

    kernel: Kernel
    block: Block
    free: bool
    shares: bool

    @property
    def blocks(self) -> Expr:
        """How many blocks it runs on."""
        return self.kernel.launch["blockIdx.x"][0]


def nested(k: Kernel) -> Nested | None:
    """The kernel as a nest; None where it runs on blocks of several dimensions, or on threads of unknown number."""
    if not k.launch:
        k = _on_one_thread(k)
    dims = set(k.launch) - {"blockIdx.x"}
    if "blockIdx.x" not in k.launch or not dims <= set(DIMS) or any(len(e) != 1 for e in k.launch.values()):
        return None
    if not all(k.launch[d][0].is_const for d in dims):
        return None
    loop = single_statement(k.body)
    if not isinstance(loop, Loop) or loop.parallel != "blockIdx.x":
        return None
    x, y, z = (int(k.launch[d][0]) if d in dims else 1 for d in DIMS)
    shares = any(isinstance(s, Alloc) and s.buffer.place == "shared" for s in walk(k.body))
    meet = shares or threads_meet(k.body)
    return Nested(k, (x, y, z), free=not meet and dims <= {"threadIdx.x"}, shares=shares)


def threads_meet(body: Sequence[Stmt], outside: frozenset[str] = frozenset(), threads: bool = False) -> bool:
    """Whether the threads of a block wait for each other, or one goes on with what another has computed.

    The second is a value from ``outside`` of a loop on ``threads`` that the loop changes: a running value, until `scan`
    makes an exchange of it, or a sum that an exchange completes. Either is over the threads that the loop has now, so
    that it must keep them.

    >>> import idgraph as ig
    >>> text = '''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   launch threadIdx.x: 64
    ...   acc a: float32 = 0
    ...   for t < 64, threadIdx.x:
    ...     v: float32 = x[t]
    ...     a <- sum v, now s: float32, along t
    ...     y[t] = s
    ... '''
    >>> threads_meet(ig.kernel.parse(text).body), threads_meet(ig.kernel.parse(text).body[1:])
    (True, False)
    """
    for s in body:
        if isinstance(s, (Barrier, BlockReduce, SingleThread)) or (
            threads and any(x.name in outside for x in updates(s))
        ):
            return True
        if isinstance(s, InitAccumulator) and not threads:
            outside |= {s.name}
        if threads_meet(bodies(s), outside, threads or (isinstance(s, Loop) and s.parallel in DIMS)):
            return True
    return False


def _on_one_thread(k: Kernel) -> Kernel:
    """A kernel without loops, as a nest of one block and one thread."""
    if not k.body or any(isinstance(s, (Loop, Alloc)) for s in walk(k.body)):
        return k
    taken = _variables(k.body)
    block, thread = _fresh("b0", taken), _fresh("b1", taken)
    one = as_expr(1)
    body = Loop(block, one, "blockIdx.x", (Loop(thread, one, "threadIdx.x", k.body),))
    return replace(k, body=(body,), launch={"blockIdx.x": (one,), "threadIdx.x": (one,)})


def fits(k: Nested, block: Block) -> bool:
    """Whether the nest runs on blocks of this shape: it has the same, or is free and has no more threads, or several
    times as many as a block that takes a part of it: the most blocks of a multiprocessor then fill its warps.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> _ = f.output(ig.exp(f.input("x", shape=(4096,))))
    >>> _ = ig.schedule.auto(f)
    >>> from idgraph.runtime.program import stages
    >>> k = nested(next(stages(f, "cuda"))[1].kernels[0])
    >>> fits(k, (32, 4, 1)), fits(k, (32, 8, 1)), fits(k, (32, 2, 1)), fits(k, (32, 3, 1)), fits(k, (32, 1, 1))
    (True, True, True, False, False)
    """
    threads, mine = prod(block), k.block[0]
    least = current_device().threads // max(1, current_device().blocks)
    return k.block == block or (k.free and (mine <= threads or (threads >= least and mine % threads == 0)))


def reblock(k: Nested, block: Block) -> Kernel:
    """The nest on blocks of ``block``'s shape, which it `fits`."""
    if k.block == block:
        return k.kernel
    nest = single_statement(k.kernel.body)
    if not isinstance(nest, Loop):
        raise AssertionError("a nest is a loop on blocks")
    threads, mine, taken = prod(block), k.block[0], _variables(k.kernel.body)
    several = threads // mine if threads % mine == 0 and k.blocks != 1 else 1
    parts = max(1, mine // threads)
    blocks = simplify(ceildiv(k.blocks * parts, several))
    names = [_fresh(f"{nest.var}_{a}", taken) for a in "bxyz"]
    j = symbol(names[0], 0, simplify(blocks - 1))
    x, y, z = (symbol(v, 0, n - 1) for v, n in zip(names[1:], block, strict=True))
    linear = simplify(x + y * block[0] + z * (block[0] * block[1]))
    place = simplify(j // parts if parts > 1 else j * several + linear // mine)
    thread = j % parts * threads + linear if parts > 1 else linear % mine if several > 1 else linear
    inner = _renumber_launch(nest.body, {nest.var: place}, simplify(thread))
    if several > 1 and not (k.blocks.is_const and int(k.blocks) % several == 0):
        inner = (If(place < k.blocks, inner),)
    if several == 1 and threads > mine:
        inner = (If(linear < mine, inner),)
    for d, v, n in reversed(list(zip(DIMS, names[1:], block, strict=True))):
        if n > 1:
            inner = (Loop(v, as_expr(n), d, inner),)
    notes = tuple(s for s in k.kernel.body if isinstance(s, Comment))
    launch = {"blockIdx.x": (blocks,), **{d: (as_expr(n),) for d, n in zip(DIMS, block, strict=True) if n > 1}}
    return replace(k.kernel, body=(*notes, Loop(names[0], blocks, "blockIdx.x", inner, nest.note)), launch=launch)


def _renumber_launch(body: Sequence[Stmt], at: Mapping[str, Expr], thread: Expr) -> tuple[Stmt, ...]:
    """``body`` with its block, and the threads of its loops, renumbered."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and s.parallel == DIMS[0]:
            made += _renumber_launch(s.body, {**at, s.var: thread}, thread)
            continue
        s = _renumber_statement(s, at)
        if isinstance(s, (Loop, If, BoundsCheck)):
            s = replace(s, body=_renumber_launch(s.body, at, thread))
        made.append(s)
    return tuple(made)


def _renumber_statement(s: Stmt, at: Mapping[str, Expr]) -> Stmt:
    """One statement with other expressions for the variables of ``at``."""
    if isinstance(s, BoundsCheck) and not s.point and any(v in at for v in s.site.loops):
        s = replace(s, point=tuple(symbol(v) for v in s.site.loops))
    return map_statement(s, index=lambda e: renamed_symbols(e, at))


def _variables(body: Sequence[Stmt]) -> set[str]:
    return {s.var for s in walk(tuple(body)) if isinstance(s, Loop)}


def _fresh(name: str, taken: set[str]) -> str:
    return next(made for n in count() if (made := f"{name}{n or ''}") not in taken)


ARRAYS = 96  # parameters of a launch: the driver takes 4 KB, of which an array and its extents take some 40 bytes
LOOKED_AT = 16  # launches that are tried before a kernel gets one of its own
WIDEST = 512  # threads of a block that nests of other blocks may join: more leave a thread few registers
MOST = 4  # nests in one thread: each holds registers for its loads
Body = tuple[Stmt, ...]


def fuse_kernels(plan: KernelModule) -> KernelModule:
    """fuse_launches: independent kernels joined, in as few launches as that leaves.

    A kernel goes into the first launch after all those that it needs (what it reads is written, what it writes has been
    read), among launches whose blocks it fits and that pass few enough arrays. Then a launch that nothing waits for is
    joined to a later one. The time is near linear in the number of kernels.

    >>> import idgraph as ig
    >>> from idgraph.kernel.ir import KernelModule
    >>> text = '''
    ... kernel k():
    ...   buffer x: float32[512] input "x"
    ...   buffer y: float32[512] output "y"
    ...   launch blockIdx.x: 2
    ...   launch threadIdx.x: 256
    ...   for b < 2, blockIdx.x:
    ...     for t < 256, threadIdx.x:
    ...       v: float32 = x[b*256 + t]
    ...       y[b*256 + t] = v
    ... '''
    >>> kernels = tuple(ig.kernel.parse(t) for t in (text, text.replace("y", "z")))
    >>> (joined,) = fuse_kernels(KernelModule(kernels, (), {}, {})).kernels
    >>> print(joined)
    kernel kernel0():
      buffer x: float32[512] input "x"
      buffer y: float32[512] output "y"
      buffer z: float32[512] output "z"
      launch blockIdx.x: 2; threadIdx.x: 256
      for b < 2, blockIdx.x:
        for t < 256, threadIdx.x:
          v: float32 = x[b*256 + t]
          y[b*256 + t] = v
          v_s2: float32 = x[b*256 + t]
          z[b*256 + t] = v_s2
    """
    return Launches().fused(plan)


@dataclass(slots=True)
class LaunchGroup:
    """Kernels of one launch. ``nests``: those kernels, where others may join; their ``block``, and whether its shape
    may still change. ``until``: the first later launch that needs this one."""

    kernels: list[Kernel]
    arrays: set[str]
    nests: list[Nested] | None
    until: int

    @property
    def choices(self) -> KernelHints | None:
        """The choices of its rows; None without rows."""
        return next((c for n in self.nests or () if (c := _choices(n)) is not None), None)

    @property
    def block(self) -> Block | None:
        """The shape of its blocks; None where it may still change."""
        return next((n.block for n in self.nests or () if not n.free), None)

    @property
    def threads(self) -> int:
        """Threads of a block, at least."""
        return max((prod(n.block) for n in self.nests or ()), default=1)

    def takes(self, nests: Sequence[Nested], arrays: set[str]) -> bool:
        """Whether these may join it: blocks of one shape, not too many of them, few enough arrays, shared memory that
        every device has; and a launch that counts, where some threads exchange: their registers are all others' too."""
        if self.nests is None or len(self.arrays | arrays) > ARRAYS:
            return False
        both = (*self.nests, *nests)
        if len({n.kernel.choices for n in both}) > 1 and len({c for n in both if (c := _choices(n)) is not None}) > 1:
            return False
        fixed = {n.block for n in both if not n.free}
        block = next(iter(fixed)) if fixed else (max(n.block[0] for n in both), 1, 1)
        if not all(fits(n, block) for n in both):
            return False
        if prod(block) > WIDEST and any(n.block != block for n in both):
            return False
        counts = current_device().launch_us * 1e-6 * current_device().bandwidth
        if len({n.free for n in both}) > 1 and min(_array_bytes(self.nests), _array_bytes(nests)) > counts:
            mine = [reblock(n, block) for n in self.nests]
            if not any(shares_input(mine, reblock(n, block)) for n in nests):  # else they are one nest
                return False
        if beyond_x({X: (sum((n.blocks for n in both), as_expr(0)),)}):
            return False
        return not any(n.shares for n in both) or not shared_layout([s for n in both for s in n.kernel.body]).dynamic

    def joined(self) -> Kernel:
        """All of it as one kernel."""
        if len(self.kernels) == 1 or self.nests is None:
            return self.kernels[0]
        block = self.block or (self.threads, 1, 1)
        made = _fuse_nests([reblock(n, block) for n in self.nests])
        return replace(made, body=to_ssa(made.body), choices=self.choices or made.choices)


@dataclass(slots=True)
class Launches:
    """The launches so far, and which of them touch a buffer: ``written`` the last that writes it, ``readers`` those
    that read it since. ``open`` are launches that others may join, by the shape of their blocks; None: any.
    ``nest`` and ``group`` say what a target's kernels are as nests, and which may be one launch."""

    nest: Callable[[Kernel], Nested | None] = nested
    group: type[LaunchGroup] = LaunchGroup
    groups: list[LaunchGroup] = field(default_factory=list[LaunchGroup])
    written: dict[str, int] = field(default_factory=dict[str, int])
    readers: dict[str, set[int]] = field(default_factory=dict[str, "set[int]"])
    open: dict[Block | None, list[int]] = field(default_factory=dict[Block | None, "list[int]"])

    def fused(self, plan: KernelModule) -> KernelModule:
        """The kernels of the plan, joined."""
        for k in plan.kernels:
            self.place(k)
        self.delay()
        joined = [g.joined() for g in self.groups if g.kernels]
        return replace(plan, kernels=tuple(replace(k, name=f"kernel{n}") for n, k in enumerate(joined)))

    def place(self, k: Kernel) -> None:
        """Put a kernel into the first launch that it may join, or into one of its own."""
        writes, names = stored_in(k.body), {b.name for b in k.buffers}
        needed = {self.written[n] for n in names if n in self.written}
        needed.update(g for n in writes for g in self.readers.get(n, ()))
        nest = self.nest(k)
        home = len(self.groups) if nest is None else self.home(nest, max(needed, default=-1), names)
        if home == len(self.groups):
            self.groups.append(self.group([], set(), None if nest is None else [], sys.maxsize))
            if nest is not None:
                self.open.setdefault(None if nest.free else nest.block, []).append(home)
        group = self.groups[home]
        group.kernels.append(k)
        group.arrays |= names
        if nest is not None and group.nests is not None:
            if group.block is None and not nest.free and group.nests:
                self.open[None].remove(home)
                insort(self.open.setdefault(nest.block, []), home)
            group.nests.append(nest)
        self.note(home, needed, names, writes)

    def note(self, home: int, needed: set[int], names: set[str], writes: frozenset[str]) -> None:
        """Record the dependences between launches, and the buffers that each touches."""
        for g in needed:
            self.groups[g].until = min(self.groups[g].until, home)
        for n in names:
            self.readers.setdefault(n, set()).add(home)
        for n in writes:
            self.written[n] = max(home, self.written.get(n, -1))
            self.readers[n] = {home}

    def home(self, nest: Nested, after: int, names: set[str]) -> int:
        """The first launch behind ``after`` that takes the nest; a new one where none of the next does."""
        keys = list(self.open) if nest.free else [k for k in (None, nest.block) if k in self.open]
        best = len(self.groups)
        for key in keys:
            open_ = self.open[key]
            for g in islice(open_, bisect_right(open_, after), bisect_right(open_, after) + LOOKED_AT):
                if g >= best:
                    break
                if self.groups[g].takes([nest], names):
                    best = g
        return best

    def delay(self) -> None:
        """Join launches that can wait to later ones."""
        for at, g in enumerate(self.groups):
            if g.nests is None:
                continue
            last = min(g.until, at + 1 + LOOKED_AT, len(self.groups))
            for other in self.groups[at + 1 : last]:
                if other.nests is not None and other.kernels and other.takes(g.nests, g.arrays):
                    other.kernels[:0], other.nests[:0] = g.kernels, g.nests
                    other.arrays |= g.arrays
                    other.until = min(other.until, g.until)
                    g.kernels, g.nests = [], None
                    break


def _array_bytes(nests: Sequence[Nested]) -> int:
    return sum(int(b.size) * item_size(b.dtype) for n in nests for b in n.kernel.buffers if b.size.is_const)


def _choices(n: Nested) -> KernelHints | None:
    """The choices of a nest with rows: they speak only of these."""
    rows = any(isinstance(s, Accumulate) and s.buffer is None for s in walk(n.kernel.body))
    return n.kernel.choices if rows else None


def _fuse_nests(kernels: Sequence[Kernel]) -> Kernel:
    """One kernel: nests over equal loops merged, the others side by side on ranges of blocks."""
    merged: list[list[Kernel]] = []
    for k in kernels:
        home = next((g for g in merged if len(g) < MOST and shares_input(g, k)), None)
        if home is None:
            merged.append([k])
        else:
            home.append(k)
    first = as_expr(0)
    body: list[Stmt] = []
    for g in merged:
        for s in one_nest([k.body for k in g]):
            body.append(replace(s, first=first) if isinstance(s, Loop) else s)
        first = simplify(first + g[0].launch["blockIdx.x"][0])
    launch = {d: e for k in kernels for d, e in k.launch.items()} | {"blockIdx.x": (first,)}
    return replace(kernel_of(kernels, tuple(body)), launch=launch)


def kernel_of(kernels: Sequence[Kernel], body: Body) -> Kernel:
    """The first kernel with the buffers, scalars and hints of all, and ``body``."""
    return replace(
        kernels[0],
        buffers=tuple({b.name: b for k in kernels for b in k.buffers}.values()),
        scalars=tuple(dict.fromkeys(s for k in kernels for s in k.scalars)),
        body=body,
        default_hints=tuple(x for k in kernels for x in k.default_hints),
    )


def shares_input(group: Sequence[Kernel], k: Kernel) -> bool:
    """True where ``k`` runs on the same blocks as the group and reads something that the group reads."""
    if simplify(group[0].launch["blockIdx.x"][0] - k.launch["blockIdx.x"][0]) != 0:
        return False
    return any(loaded_in(g.body) & loaded_in(k.body) for g in group)


def one_nest(bodies: Sequence[Body]) -> Body:
    """Bodies of one loop: fused where all are one loop of one kind, else one after the other."""
    heads = [s for s in map(single_statement, bodies) if isinstance(s, Loop)]
    if len(heads) == len(bodies) and all(_are_equal(h, heads[0]) for h in heads):
        note = "; ".join(dict.fromkeys(h.note for h in heads if h.note))
        column = heads[0].column if len({h.column for h in heads}) == 1 else None  # nobody else has its end
        return (replace(heads[0], body=one_nest([h.body for h in heads]), note=note, column=column),)
    return tuple(s for b in bodies for s in b)


def _are_equal(a: Loop, b: Loop) -> bool:
    """Whether two loops are steps of one variable, as many, run in one way."""
    return (a.var, a.parallel) == (b.var, b.parallel) and simplify(a.extent - b.extent) == 0


def serial(k: Kernel) -> Kernel:
    """serial: no parallel loops on the CPU, where these are not wanted: starting the cores costs more
    than a small kernel.

    >>> import idgraph as ig
    >>> text = '''
    ... kernel k():
    ...   choose parallel=false
    ...   buffer x: float32[512] input "x"
    ...   buffer y: float32[512] output "y"
    ...   launch blockIdx.x: 2
    ...   launch threadIdx.x: 256
    ...   for b < 2, blockIdx.x:
    ...     for t < 256, threadIdx.x:
    ...       v: float32 = x[b*256 + t]
    ...       y[b*256 + t] = v
    ... '''
    >>> print(serial(ig.kernel.parse(text)))
    kernel k():
      choose parallel=false
      buffer x: float32[512] input "x"
      buffer y: float32[512] output "y"
      launch blockIdx.x: 2; threadIdx.x: 256
      for b < 2:
        for t < 256, threadIdx.x:
          v: float32 = x[b*256 + t]
          y[b*256 + t] = v
    """
    if k.choices.parallel is not False:
        return k
    return replace(k, body=tuple(replace(s, parallel="serial") if isinstance(s, Loop) else s for s in k.body))


def fuse_nests(plan: KernelModule) -> KernelModule:
    """fuse_nests: kernels that run the same loops over a common input, as one loop nest each.

    >>> import idgraph as ig
    >>> from idgraph.kernel.ir import KernelModule
    >>> text = '''
    ... kernel k():
    ...   buffer x: float32[512] input "x"
    ...   buffer y: float32[512] output "y"
    ...   for b < 2, blockIdx.x:
    ...     for i < 256:
    ...       v: float32 = x[b*256 + i]
    ...       w: float32 = exp(v)
    ...       y[b*256 + i] = w
    ... '''
    >>> other = text.replace("exp", "neg").replace("y", "z")
    >>> kernels = tuple(ig.kernel.parse(t) for t in (text, other))
    >>> (fused,) = fuse_nests(KernelModule(kernels, (), {}, {})).kernels
    >>> print(fused)
    kernel kernel0():
      buffer x: float32[512] input "x"
      buffer y: float32[512] output "y"
      buffer z: float32[512] output "z"
      for b < 2, blockIdx.x:
        for i < 256:
          v: float32 = x[b*256 + i]
          w: float32 = exp(v)
          y[b*256 + i] = w
          w_s2: float32 = neg(v)
          z[b*256 + i] = w_s2
    """
    return Launches(nest=_kernel_nest, group=_NestGroup).fused(plan)


def _kernel_nest(k: Kernel) -> Nested | None:
    """The kernel as a nest that has no threads; None where it is not one loop."""
    return Nested(k, (1, 1, 1), free=True, shares=False) if isinstance(single_statement(k.body), Loop) else None


@dataclass(slots=True)
class _NestGroup(LaunchGroup):
    """Kernels that are one nest."""

    def takes(self, nests: Sequence[Nested], arrays: set[str]) -> bool:
        """Whether the nests run the loops of this group, read some of what it reads, and pass over rows as it does."""
        mine = [n.kernel for n in self.nests or ()]
        if len(mine) + len(nests) > MOST:
            return False
        return all(_fits(mine, n.kernel) for n in nests)

    def joined(self) -> Kernel:
        """One nest of them all, in which each value is read once."""
        if len(self.kernels) == 1:
            return self.kernels[0]
        made = kernel_of(self.kernels, to_ssa(one_nest([k.body for k in self.kernels])))
        inputs = read_only_buffers(made.buffers, made.body)
        once = map_body(made.body, partial(_loads_once, read_only=inputs))
        needed = (all_sets(made.body) - all_sets(once)) & all_reads(once)  # behind the loop that loaded it
        return replace(made, body=made.body if needed else once, launch=_launch(self.kernels))


def _launch(kernels: Sequence[Kernel]) -> dict[str, tuple[Expr, ...]]:
    """The extents of the loops on each parallel dimension, of all kernels."""
    dims = dict.fromkeys(d for k in kernels for d in k.launch)
    return {d: tuple(dict.fromkeys(e for k in kernels for e in k.launch.get(d, ()))) for d in dims}


def _fits(group: Sequence[Kernel], k: Kernel) -> bool:
    """Whether the kernel's nest may be one with those of the group."""
    first = group[0]
    if k.choices != first.choices or not _same_loop(first, k):
        return False
    hints = [{c for _, c in x.default_hints} for x in (*group, k)]
    if any(a and b and a != b for a in hints for b in hints):
        return False  # a row that one holds would be read again
    return any(loaded_in(x.body) & loaded_in(k.body) for x in group)


def _same_loop(a: Kernel, b: Kernel) -> bool:
    """Whether the nests' outermost loops are one: equal steps of one variable, which all cores share or none."""
    one, other = single_statement(a.body), single_statement(b.body)
    return isinstance(one, Loop) and isinstance(other, Loop) and _are_equal(one, other)


def _loads_once(s: Stmt, read_only: frozenset[str]) -> Stmt:
    """A loop without others in it that loads each element of a ``read_only`` buffer once; the first load then serves
    what the others did."""
    if not isinstance(s, Loop) or any(isinstance(x, Loop) for x in walk(s.body)):
        return s
    values, made, first = ValueNumbering(read_only), list[Stmt](), dict[str, int]()
    for x in s.body:
        x = rewritten_inside(x, read=values.operand)
        if not isinstance(x, Load):
            values.forget(all_sets((x,)))
            made.append(x)
            continue
        known = values.known(x)
        values.define(x)
        at = first.get(known.name) if known is not None else None
        if at is not None and isinstance(load := made[at], Load):
            made[at] = replace(load, serves=(*load.serves, *x.serves))
        else:
            first[x.local.name] = len(made)
            made.append(x)
    return replace(s, body=tuple(made))
