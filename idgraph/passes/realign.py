"""realign: loads of neighbouring elements that begin anywhere, as one read of the aligned vectors that hold them.

A row that begins at another alignment than the one that is written (a bias under rows of odd width, an input whose rows
are padded) would be read element by element: a thread's 8 elements of 2 bytes are 8 loads of the warp, each over all of
the lines that one vector access takes. Two aligned vectors hold them, and a few shifts pick them out.

It pays where at least 8 loads become two: for elements of 1 and 2 bytes. The 4 loads of a vector of float32 that begins
anywhere ran as fast as a copy on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from idgraph.arith import TRUE, Expr, simplify
from idgraph.ir import item_size
from idgraph.ir.targets import GPU
from idgraph.kernel.defuse import in_lanes
from idgraph.kernel.ir import BoundsCheck, Comment, If, Kernel, Load, Stmt, VectorLoad
from idgraph.passes.vectorize import VECTOR_TYPES, Places, vector_load
from idgraph.schedule.follow import LEAST_REALIGNED


def realigned(kernel: Kernel) -> Kernel:
    """realign: loads of neighbouring elements that begin anywhere as one, of the aligned vectors that hold them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: int16[257] input "x"
    ...   buffer y: int16[256] output "y"
    ...   for i < 32:
    ...     lanes:
    ...       a: int16 = x[i*8 + 1]; b: int16 = x[i*8 + 2]; c: int16 = x[i*8 + 3]; d: int16 = x[i*8 + 4]
    ...       e: int16 = x[i*8 + 5]; g: int16 = x[i*8 + 6]; h: int16 = x[i*8 + 7]; k: int16 = x[i*8 + 8]
    ...       y[i*8; 8] = (a, b, c, d, e, g, h, k)
    ... ''')
    >>> print(str(realigned(k)).split("lanes:")[1])  # doctest: +NORMALIZE_WHITESPACE
          (a: int16, b: int16, c: int16, d: int16, e: int16, g: int16, h: int16, k: int16) = x[i*8 + 1; 8] realigned
          y[i*8; 8] = (a, b, c, d, e, g, h, k)
    """
    return replace(kernel, body=in_lanes(kernel.body, _level))


def _level(body: Sequence[Stmt]) -> list[Stmt]:
    """Loads side by side, between other statements, may stand in any order."""
    made: list[Stmt] = []
    side: list[Stmt] = []
    for s in body:
        if isinstance(s, (Load, VectorLoad, Comment)):
            side.append(s)
            continue
        made += _joined(side)
        side = []
        made.append(replace(s, body=tuple(_level(s.body))) if isinstance(s, (If, BoundsCheck)) else s)
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
    """True of a load from memory that all threads see, whose first element is aligned."""
    b = s.buffer
    plain = s.guard == TRUE and s.local.dtype == b.dtype and b.place not in ("private", "shared")
    whole = b.alignment % GPU.vector_bytes == 0
    return plain and whole and b.dtype in VECTOR_TYPES


def _runs(loads: Mapping[int, Load]) -> list[tuple[int, int]]:
    """(first, width) of neighbours, as many as a vector has, or half as many, at least `LEAST_REALIGNED`."""
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
