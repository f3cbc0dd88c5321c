"""Warps: which loops run on threads, how threads are numbered, and how many bytes a lane moves at once.

Threads of a block are numbered x fastest, then y, then z; 32 consecutive ones are a warp (CUDA programming guide).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, TypeVar

from idgraph.arith import Expr, as_expr, multiple_of, simplify
from idgraph.errors import IndexingError, user_line
from idgraph.index.access_function import AccessFunction
from idgraph.index.loop import LoopVariable
from idgraph.ir import item_size
from idgraph.ir.device import SECTOR
from idgraph.ir.targets import GPU

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

WARP = GPU.warp  # threads
BANKS = 32
WORD = 4  # bytes that a bank of shared memory serves at a time
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
Place = TypeVar("Place", int, "NDArray[int64]")


def sectors_from(place: Place, span: int, item: int) -> tuple[Place, Place]:
    """The first and the last sector of ``span`` bytes from element ``place`` on, of ``item`` bytes each.

    The one rule of what an access moves: `ig.cost` asks it of arrays of places, `ig.layout.infer` of one warp.

    >>> sectors_from(7, 8, 4)  # bytes 28 to 35
    (0, 1)
    """
    first = place * item // SECTOR
    return first, (place * item + span - 1) // SECTOR


@lru_cache(maxsize=1024)
def warp_bytes(walk: tuple[tuple[int, int], ...], item: int) -> tuple[int, int]:
    """(bytes of the sectors that a warp asks for, bytes of the elements that it reads).

    ``walk``: extent and step in elements of each axis that its lanes walk through, the fastest one first; an element
    has ``item`` bytes.

    >>> warp_bytes(((64, 1),), 4), warp_bytes(((64, 3),), 4), warp_bytes(((64, 1000),), 4)
    ((128, 128), (384, 128), (1024, 128))
    >>> warp_bytes(((3, 1000), (64, 1)), 4)  # three channels: lanes go on to the next position
    (192, 128)
    """
    places: set[int] = set()
    for lane in range(min(WARP, prod(extent for extent, _ in walk))):
        place = 0
        for extent, step in walk:
            lane, at = divmod(lane, extent)
            place += at * step
        places.add(place)
    spans = (sectors_from(place, item, item) for place in places)
    return SECTOR * len({n for first, last in spans for n in range(first, last + 1)}), item * len(places)


def thread_loops(access: AccessFunction) -> list[LoopVariable | None]:
    """The loops on threads x, y and z."""
    return [next((x for x in access.loops if x.parallel == n), None) for n in THREADS]


def vector_loop(access: AccessFunction) -> LoopVariable | None:
    """The vectorised loop."""
    return next((x for x in access.loops if x.parallel == "vectorize"), None)


def number_of(e: Expr, loop: LoopVariable, asked: str) -> int:
    """An extent as a number; ``asked`` is the question that needs it."""
    if not e.is_const:
        raise IndexingError(
            f"loop {loop.name} has the extent {e}: {asked} needs a number",
            where=user_line(),
            hint=f"{asked}(symbols={{{', '.join(f'{n!r}: ...' for n in sorted(e.names))}}})",
        )
    return int(e)


def block_dims(
    threads: Sequence[LoopVariable | None], extents: Mapping[str, int], block: Mapping[str, int] | None
) -> list[int]:
    """Threads of a block along x, y and z: of this operation, or as ``block`` says where that is wider."""
    for name, extent in (block or {}).items():
        if name not in THREADS or isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise IndexingError(
                f"block: {name!r} = {extent!r} is not a thread dimension", where=user_line(), hint=THREADS[0]
            )
    return [
        max(extents[t.name] if t is not None else 1, (block or {}).get(n, 1))
        for n, t in zip(THREADS, threads, strict=True)
    ]


def lane_bytes(access: AccessFunction, vector: LoopVariable | None, place: Expr, extents: Mapping[str, int]) -> int:
    """Bytes that one lane moves at once: a whole vector where that is contiguous and at most 16 bytes."""
    size = item_size(access.tensor.dtype)
    if vector is None:
        return size
    width = extents[vector.name]
    step = simplify(place.substitute({vector.name: vector.symbol}) - place.substitute({vector.name: 0}) - vector.symbol)
    start = simplify(place.substitute({vector.name: as_expr(0)}))
    whole = width * size in (2, 4, 8, 16) and step == 0 and multiple_of(start, width)
    return width * size if whole and vector.name not in access.predicate.names else size


def lane_pieces(
    access: AccessFunction, vector: LoopVariable | None, place: Expr, extents: Mapping[str, int]
) -> tuple[tuple[int, int], ...]:
    """The accesses that one lane makes of its vectorised loop, as the emitter cuts it: (first step, elements) of each,
    at most 16 bytes, and each as wide as it is aligned. Single elements where the steps are not neighbours.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> y = f.output(ig.copy(f.input("x", shape=(32, 12))))
    >>> _ = y.parallelize(0, "threadIdx.x").parallelize(1, "vectorize")
    >>> a = ig.IdModel(f).write(y.definition)
    >>> lane_pieces(a, vector_loop(a), a.address, {"i1": 12})
    ((0, 4), (4, 4), (8, 4))
    """
    if vector is None:
        return ((0, 1),)
    width = extents[vector.name]
    single = tuple((n, 1) for n in range(width))
    step = simplify(place.substitute({vector.name: vector.symbol}) - place.substitute({vector.name: 0}) - vector.symbol)
    if step != 0 or vector.name in access.predicate.names:
        return single
    start = simplify(place.substitute({vector.name: as_expr(0)}))
    left, found = set(range(width)), list[tuple[int, int]]()
    most = GPU.vector_bytes // item_size(access.tensor.dtype)
    while most > 1:
        if multiple_of(start, most):
            for first in range(0, width - most + 1, most):
                run = range(first, first + most)
                if left.issuperset(run):
                    found.append((first, most))
                    left.difference_update(run)
        most //= 2
    return tuple(sorted([*found, *((n, 1) for n in left)]))
