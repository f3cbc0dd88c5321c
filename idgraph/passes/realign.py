"""realign: loads of neighbouring elements that begin anywhere, as one read of the aligned vectors that hold them.

A row that begins at another alignment than the one that is written (a bias under rows of odd width, an input whose rows
are padded) would be read element by element: a thread's 8 elements of 2 bytes are 8 loads of the warp, each over all of
the lines that one vector access takes. Two aligned vectors hold them, and a few shifts pick them out.

It pays where at least 4 loads become two. Elements of 8 bytes stay: a vector has two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, simplify
from idgraph.ir import item_size
from idgraph.ir.targets import GPU
from idgraph.kernel.defuse import in_lanes
from idgraph.kernel.ir import Checked, If, Kernel, Load, Note, Stmt, VectorLoad
from idgraph.passes.vectorize import VECTOR_TYPES, Places, vector_load
from idgraph.schedule.follow import LEAST_REALIGNED, WIDEST_REALIGNED


def realigned(kernel: Kernel) -> Kernel:
    """realign: loads of neighbouring elements that begin anywhere as one, of the aligned vectors that hold them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[129] input "x"
    ...   buffer y: float32[128] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       a: float32 = x[i*4 + 1]
    ...       b: float32 = x[i*4 + 2]
    ...       c: float32 = x[i*4 + 3]
    ...       d: float32 = x[i*4 + 4]
    ...       y[i*4; 4] = (a, b, c, d)
    ... ''')
    >>> print(realigned(k))
    kernel k():
      buffer x: float32[129] input "x"
      buffer y: float32[128] output "y"
      for i < 32:
        lanes:
          (a: float32, b: float32, c: float32, d: float32) = x[i*4 + 1; 4] realigned
          y[i*4; 4] = (a, b, c, d)
    """
    return replace(kernel, body=in_lanes(kernel.body, _level))


def _level(body: Sequence[Stmt]) -> list[Stmt]:
    """Loads side by side, between other statements, may stand in any order."""
    made: list[Stmt] = []
    side: list[Stmt] = []
    for s in body:
        if isinstance(s, (Load, VectorLoad, Note)):
            side.append(s)
            continue
        made += _joined(side)
        side = []
        made.append(replace(s, body=tuple(_level(s.body))) if isinstance(s, (If, Checked)) else s)
    return [*made, *_joined(side)]


def _joined(side: Sequence[Stmt]) -> list[Stmt]:
    places = Places()
    wanted: dict[tuple[str, Expr], dict[int, Load]] = {}
    for s in side:
        if isinstance(s, Load) and _may_join(s):
            base, at = places.of(s.buffer, s.address)
            wanted.setdefault((s.buffer.name, base), {}).setdefault(at, s)
    by_first: dict[int, VectorLoad] = {}
    inside: set[int] = set()
    for (_, base), loads in wanted.items():
        for first, width in _runs(loads):
            chunk = [loads[n] for n in range(first, first + width)]
            inside.update(map(id, chunk))
            at = next(id(s) for s in side if any(s is x for x in chunk))
            by_first[at] = vector_load(chunk, simplify(base + first), realigned=True)
    return [by_first.get(id(s), s) for s in side if id(s) not in inside or id(s) in by_first]


def _may_join(s: Load) -> bool:
    """True of a load from memory that all threads see, of elements small enough."""
    b = s.buffer
    plain = s.guard == TRUE and s.local.dtype == b.dtype and b.place not in ("private", "shared")
    whole = b.alignment % GPU.vector_bytes == 0
    return plain and whole and b.dtype in VECTOR_TYPES and item_size(b.dtype) <= WIDEST_REALIGNED


def _runs(loads: Mapping[int, Load]) -> list[tuple[int, int]]:
    """(first, width) of neighbours, as many as a vector has, or half as many, not fewer than 4."""
    size = item_size(next(iter(loads.values())).buffer.dtype)
    found: list[tuple[int, int]] = []
    left = set(loads)
    width = GPU.vector_bytes // size
    while width >= LEAST_REALIGNED:
        for first in sorted(left):
            run = range(first, first + width)
            if left.issuperset(run):
                found.append((first, width))
                left.difference_update(run)
        width //= 2
    return found
