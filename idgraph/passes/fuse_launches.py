"""Fewer launches: kernels that need nothing of each other run as one.

A launch costs microseconds, and its last blocks leave the device half empty. Two nests over the same loops that read a
common input become one nest, whose threads do the work of both (the cosines of a rotation serve queries and keys).
Nests of other sizes share a launch, each on a range of its blocks.
"""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod

from idgraph.arith import as_expr, simplify
from idgraph.ir.choices import KernelHints
from idgraph.kernel.defuse import loaded_in, stored_in
from idgraph.kernel.grids import X, beyond_x
from idgraph.kernel.ir import Accumulate, Comment, Kernel, KernelModule, Loop, Stmt, walk
from idgraph.kernel.shared import shared_layout
from idgraph.kernel.ssa import to_ssa
from idgraph.passes.launch_shapes import Block, Nested, fits, nested, reblock

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
    >>> from idgraph.kernel.ir import Plan
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
    >>> (joined,) = together(Plan(kernels, (), {}, {})).kernels
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
    found = _Launches()
    for k in plan.kernels:
        found.place(k)
    found.delay()
    joined = [g.joined() for g in found.groups if g.kernels]
    return replace(plan, kernels=tuple(replace(k, name=f"kernel{n}") for n, k in enumerate(joined)))


@dataclass(slots=True)
class _Launch:
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
        """Whether these may join it: blocks of one shape, not too many of them, few enough
        arrays, shared memory that every device has."""
        if self.nests is None or len(self.arrays | arrays) > ARRAYS:
            return False
        both = (*self.nests, *nests)
        if len({n.kernel.choices for n in both}) > 1 and len({c for n in both if (c := _choices(n)) is not None}) > 1:
            return False
        fixed = {n.block for n in both if not n.free}
        block = next(iter(fixed)) if fixed else (max(n.block[0] for n in both), 1, 1)
        if len(fixed) > 1 or not all(fits(n, block) for n in both):
            return False
        if prod(block) > WIDEST and any(n.block != block for n in both):
            return False
        if beyond_x({X: (sum((n.blocks for n in both), as_expr(0)),)}):
            return False
        return not any(n.shares for n in both) or not shared_layout([s for n in both for s in n.kernel.body]).dynamic

    def joined(self) -> Kernel:
        """All of it as one kernel."""
        if len(self.kernels) == 1 or self.nests is None:
            return self.kernels[0]
        block = self.block or (self.threads, 1, 1)
        made = _joined([reblock(n, block) for n in self.nests])
        return replace(made, body=to_ssa(made.body), choices=self.choices or made.choices)


@dataclass(slots=True)
class _Launches:
    """The launches so far, and which of them touch a buffer: ``written`` the last that writes it, ``readers`` those
    that read it since. ``open`` are launches that others may join, by the shape of their blocks; None: any."""

    groups: list[_Launch] = field(default_factory=list[_Launch])
    written: dict[str, int] = field(default_factory=dict[str, int])
    readers: dict[str, set[int]] = field(default_factory=dict[str, "set[int]"])
    open: dict[Block | None, list[int]] = field(default_factory=dict[Block | None, "list[int]"])

    def place(self, k: Kernel) -> None:
        """Put a kernel into the first launch that it may join, or into one of its own."""
        writes, names = stored_in(k.body), {b.name for b in k.buffers}
        needed = {self.written[n] for n in names if n in self.written}
        needed.update(g for n in writes for g in self.readers.get(n, ()))
        nest = nested(k)
        home = len(self.groups) if nest is None else self.home(nest, max(needed, default=-1), names)
        if home == len(self.groups):
            self.groups.append(_Launch([], set(), None if nest is None else [], sys.maxsize))
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


def _choices(n: Nested) -> KernelHints | None:
    """The choices of a nest with rows: they speak of these alone."""
    rows = any(isinstance(s, Accumulate) and s.buffer is None for s in walk(n.kernel.body))
    return n.kernel.choices if rows else None


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
    launch = {d: e for k in kernels for d, e in k.launch.items()} | {"blockIdx.x": (first,)}
    ruled = tuple(x for k in kernels for x in k.default_hints)
    return replace(
        kernels[0],
        buffers=tuple(buffers.values()),
        scalars=scalars,
        body=tuple(body),
        launch=launch,
        default_hints=ruled,
    )


def _shares(group: Sequence[Kernel], k: Kernel) -> bool:
    """True where ``k`` runs on the same blocks as the group and reads something that the group reads."""
    if simplify(group[0].launch["blockIdx.x"][0] - k.launch["blockIdx.x"][0]) != 0:
        return False
    return any(loaded_in(g.body) & loaded_in(k.body) for g in group)


def _one_nest(bodies: Sequence[Body]) -> Body:
    """Bodies of one loop: fused where all are one loop of one kind, else one after the other."""
    loops = [[s for s in b if not isinstance(s, Comment)] for b in bodies]
    heads = [b[0] for b in loops if len(b) == 1 and isinstance(b[0], Loop)]
    if len(heads) == len(bodies) and all(
        h.var == heads[0].var and h.parallel == heads[0].parallel and simplify(h.extent - heads[0].extent) == 0
        for h in heads
    ):
        note = "; ".join(dict.fromkeys(h.note for h in heads if h.note))
        column = heads[0].column if len({h.column for h in heads}) == 1 else None  # nobody else has its end
        return (replace(heads[0], body=_one_nest([h.body for h in heads]), note=note, column=column),)
    return tuple(s for b in bodies for s in b)


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
    return replace(k, body=tuple(map(_serial, k.body))) if k.choices.parallel is False else k


def _serial(s: Stmt) -> Stmt:
    return replace(s, parallel="serial") if isinstance(s, Loop) else s
