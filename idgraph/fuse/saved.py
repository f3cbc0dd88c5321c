"""Bytes that one kernel for two operations does not move: counted as `ig.cost` counts those of an emitted program.

A kernel reads each element of a buffer once, and writes each once. What the two read and write in kernels of their own
is compared with what one kernel does, or, where the producer's result is needed elsewhere too and its reader takes a
part of it, with what the producer and a reader with a private copy of it do: the copy reads its sources again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from idgraph.fuse.overlap import elements_of_any
from idgraph.fuse.touch import AccessRelation, access_relations, needs_memory
from idgraph.index.live import COUNTED
from idgraph.ir import Tensor, TensorExpr, item_size

CUTS = frozenset({"slice", "pad", "cat", "slice_scatter"})  # along these a producer's loops are cut like its reader's
Reads: TypeAlias = "Mapping[Tensor, Sequence[AccessRelation]]"
"""What an operation, with those inlined into it, touches: by buffer."""


def of_readers(a: Reads, b: Reads) -> int | None:
    """Bytes of what both read; None where a size is open."""
    found = [_once(t, ways, b.get(t, ())) for t, ways in a.items()]
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def bytes_saved_by_forwarding(
    a: TensorExpr,
    b: TensorExpr,
    reads: tuple[Reads, Reads],
    y: Sequence[AccessRelation],
    inside: set[TensorExpr],
    kept: bool,
) -> int | None:
    """Bytes of a producer ``a`` whose result ``b`` reads as ``y`` does; None where a size is open.

    ``inside`` are operations between the two, ``kept`` says that the result is needed elsewhere too.
    """
    t = a.output
    if a.op in COUNTED and not t.fusion.is_output(t):
        return 0  # never stored
    read, whole = elements_of_any(y), _size(t)
    if read is None or whole is None:
        return None
    found: list[int | None] = [(read + (0 if kept else whole)) * item_size(t.dtype)]
    if needs_memory(a):
        found += [_once(u, ways, reads[1].get(u, ())) for u, ways in reads[0].items() if u is not t]
    else:
        way = access_relations(b, lambda e: e is a or e in inside)
        for u, mine in reads[0].items():
            theirs, again = reads[1].get(u, ()), [v for v in way.get(u, ()) if a in v.path]
            if u is t:
                continue
            if kept and (read == whole or _stands_around(y, read)) and not any(v.loads for v in y):
                # it is written on the way to its reader
                found.append(_once(u, mine, theirs))
            elif kept:
                found.append(_less(u, (theirs,), [*theirs, *again]))
            else:
                found.append(_less(u, (mine, theirs), [*theirs, *again]))
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def _stands_around(y: Sequence[AccessRelation], read: int) -> bool:
    """Whether the reader's loops go over whole axes and it takes one place of each other axis: the loops of a producer
    whose elements are all needed are those, with loops over the other axes inside."""
    if len(y) != 1 or any(e.op in CUTS for e in y[0].path):
        return False
    axes = zip(y[0].buffer.axes, y[0].map.results, strict=True)
    return read == prod(int(d.extent) for d, at in axes if not at.is_const)


def _once(t: Tensor, a: Sequence[AccessRelation], b: Sequence[AccessRelation]) -> int | None:
    """Bytes that are read by both."""
    return _less(t, (a, b), [*a, *b])


def _less(t: Tensor, apart: Sequence[Sequence[AccessRelation]], together: Sequence[AccessRelation]) -> int | None:
    """Bytes by which reads in kernels ``apart`` are more than those of one kernel."""
    counts = [elements_of_any(ways) for ways in apart]
    known = [n for n in counts if n is not None]
    one = elements_of_any(together)
    return None if one is None or len(known) < len(counts) else (sum(known) - one) * item_size(t.dtype)


def _size(t: Tensor) -> int | None:
    return prod(int(d.extent) for d in t.axes) if all(d.extent.is_const for d in t.axes) else None
