"""Nests on blocks of another shape, so that kernels of different block sizes can share a launch.

A nest whose threads exchange nothing may run on any threads. Its blocks and threads are renumbered: block ``j`` of T
threads runs T // N of its blocks of N threads, thread by thread, or where T divides N one of N // T parts of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from idgraph.arith import Expr, as_expr, ceildiv, simplify, symbol
from idgraph.kernel.defuse import map_statement, updates
from idgraph.kernel.ir import (
    Alloc,
    Barrier,
    BlockReduce,
    BoundsCheck,
    Comment,
    If,
    InitAccumulator,
    Kernel,
    Loop,
    SingleThread,
    Stmt,
    bodies,
    walk,
)

Block = tuple[int, int, int]  # threads of a block along x, y and z
LEAST = 64  # threads of a block that takes a part of another: the most blocks of a multiprocessor then fill its warps
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
    loops = [s for s in k.body if not isinstance(s, Comment)]
    if len(loops) != 1 or not isinstance(loops[0], Loop) or loops[0].parallel != "blockIdx.x":
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
    times as many as a block of `LEAST` or more.

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
    return k.block == block or (k.free and (mine <= threads or (threads >= LEAST and mine % threads == 0)))


def reblock(k: Nested, block: Block) -> Kernel:
    """The nest on blocks of ``block``'s shape, which it `fits`."""
    if k.block == block:
        return k.kernel
    (nest,) = (s for s in k.kernel.body if not isinstance(s, Comment))
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
    inner = _moved(nest.body, {nest.var: place}, simplify(thread))
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


def _moved(body: Sequence[Stmt], at: Mapping[str, Expr], thread: Expr) -> tuple[Stmt, ...]:
    """``body`` with its block, and the threads of its loops, renumbered."""
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop) and s.parallel == DIMS[0]:
            made += _moved(s.body, {**at, s.var: thread}, thread)
            continue
        s = _counted(s, at)
        if isinstance(s, (Loop, If, BoundsCheck)):
            s = replace(s, body=_moved(s.body, at, thread))
        made.append(s)
    return tuple(made)


def _counted(s: Stmt, at: Mapping[str, Expr]) -> Stmt:
    """One statement with other expressions for the variables of ``at``."""

    def moved(e: Expr) -> Expr:
        found = {x: y for x in e.symbols if (y := variable(x)) is not x}
        return e.substitute(found) if found else e

    def variable(x: Expr) -> Expr:
        if x.name in at:
            return at[x.name]
        low, high, step, rest = x.symbol_bounds
        low_, high_ = (moved(b) if isinstance(b, Expr) else b for b in (low, high))
        return x if low_ is low and high_ is high else symbol(x.name, low_, high_, step, rest)

    if isinstance(s, BoundsCheck) and not s.point and any(v in at for v in s.site.loops):
        s = replace(s, point=tuple(symbol(v) for v in s.site.loops))
    return map_statement(s, index=moved)


def _variables(body: Sequence[Stmt]) -> set[str]:
    return {s.var for s in walk(tuple(body)) if isinstance(s, Loop)}


def _fresh(name: str, taken: set[str]) -> str:
    n = 0
    while (made := f"{name}{n or ''}") in taken:
        n += 1
    return made
