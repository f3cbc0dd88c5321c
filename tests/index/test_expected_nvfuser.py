"""Indices and predicates that nvFuser's own tests expect, rebuilt here: equal as functions, and never larger.

The facts are those of its indexing tests (plain, contiguous and predicate indexing, resize repros), said in this
library's schedule steps: what each tensor's index and each expression's predicate must be. Its unrolled and
double-buffered configs have no counterpart here (`unroll` is a promise to the printer, not another predicate).

Long: a list of cases, each short.
"""

from __future__ import annotations

import pytest

import idgraph as ig
from tests.index.expected import Case, case, judged
from tests.index.expected import Expected as E

CASES: dict[str, Case] = {}


def like(f: ig.Fusion, t: ig.Tensor) -> None:
    """Every tensor gets the loops of ``t``, inlined as far as that goes."""
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


# ---- indices --------------------------------------------------------------------------------------------------------
FLAT = "i0*4 + i1"


@case(
    CASES,
    "SimplePointwise1: a strided input flattened and split by 4; the intermediate is inlined beside the inner loop",
    E("t1", "a", f"({FLAT})//m*stride0_0 + ({FLAT})%m*stride0_1", f"{FLAT} < n*m"),
    E(
        "t2", "t2",
        f"({FLAT})//m*m + ({FLAT})%m",
        f"(({FLAT})//m >= 0) & (({FLAT})//m < n) & (({FLAT})%m >= 0) & (({FLAT})%m < m)",
    ),
    E("t1", "t1", "i1"),
    E("t2", "t1", "i1"),
    n=(1, 5, 6), m=(1, 7, 4), stride0_0=(20, 33, 8), stride0_1=(1, 2, 1),
)  # fmt: skip
def strided_flattened(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t1 = ig.add(f.input("a", (n, m), contiguity=(False, False)), 1.0, name="t1")
    t2 = f.output(ig.add(t1, 1.0, name="t2"))
    t2.merge(0).split(0, 4)
    ig.schedule.like(f, t2)
    t1.inline(1).set_memory("local")


@case(
    CASES,
    "SimplePointwise2: blocks and threads, no inlining; registers hold one element, shared memory the block's threads",
    E("t1", "a", f"({FLAT})//m*m + ({FLAT})%m", f"{FLAT} < n*m"),
    E("t1", "t1", "0"),
    E("t2", "t1", "0"),
    E("t2", "t2", "i1"),
    E("t3", "t2", "i1"),
    E("t3", "t3", f"({FLAT})//m*m + ({FLAT})%m", f"{FLAT} < n*m"),
    n=(1, 5, 6), m=(1, 7, 4),
)  # fmt: skip
def blocks_and_threads(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t1 = ig.add(f.input("a", (n, m)), 1.0, name="t1")
    t2 = ig.add(t1, 1.0, name="t2")
    t3 = f.output(ig.add(t2, 1.0, name="t3"))
    t3.merge(0).split(0, 4)
    ig.schedule.like(f, t3)
    for t in (t1, t2, t3):
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    t1.set_memory("local")
    t2.set_memory("shared")


@case(
    CASES,
    "SimpleReduction: the reduced axis is indexed in the producer only",
    E("t1", "a", "i0*m + i1", "True"),
    E("t1", "t1", "i0", "True"),
    E("t2", "t1", "i0", "True"),
    n=(1, 5),
    m=(3, 4),
)
def simple_reduction(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t1 = ig.sum(f.input("a", (n, m)), 1, name="t1")
    f.output(ig.add(t1, 1.0, name="t2"))


@case(
    CASES,
    "PromotionToReductionDomain: an intermediate inlined into the reducing loop is indexed by its thread",
    E("t1", "t1", "i1", "True"),
    E("t2", "t1", "i1", "True"),
)
def intermediate_inside_a_reducing_loop(f: ig.Fusion) -> None:
    t1 = ig.add(f.input("a", (5, 32)), 1.0, name="t1")
    t2 = f.output(ig.sum(t1, 1, name="t2"))
    t1.set_memory("shared")
    ig.schedule.inline_most(f)
    t1.parallelize(1, "threadIdx.x")
    t2.parallelize(1, "threadIdx.x")


@case(
    CASES, "AllocationDomain: a shared tile stored by columns", E("t1", "t1", "i1*32 + i0"), E("t2", "t1", "i1*32 + i0")
)
def shared_tile_by_columns(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (32, 32)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    for t in (t1, t2):
        t.parallelize(0, "threadIdx.x")
    t1.set_memory("shared").set_allocation([t1.logical[1], t1.logical[0]])


AT = "i0*20 + (i1*10 + i2)"


@case(
    CASES,
    "Reshape: [100] to [4, 25] to [5, 2, 10], all in the last one's loops; intermediates shrink to one element",
    E("t1", "a", f"({AT})//25*25 + ({AT})%25", "True"),
    E("t5", "t5", "i0*20 + i1*10 + i2", "True"),
    E("t4", "t3", axes=(f"({AT})//25", f"({AT})%25")),
    E("t1", "t1", "0"),
    E("t3", "t2", "0"),
    E("t5", "t4", "0"),
)
def reshapes_in_one_nest(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (100,)), name="t1")
    t2 = ig.reshape(t1, 4, 25, name="t2")
    t3 = ig.add(t2, 1.0, name="t3")
    t4 = ig.reshape(t3, 5, 2, 10, name="t4")
    t5 = f.output(ig.add(t4, 1.0, name="t5"))
    like(f, t5)
    for t in (t1, t2, t3, t4):
        t.set_memory("local")


@case(
    CASES,
    "SimpleBroadcast1: a broadcast that nothing resolves adds nothing to an index",
    E("t1", "a", "i0", "True"),
    E("t1", "t1", "i0", "True"),
    E("t2", "t1", "i0", "True"),
    E("t2", "t2", "i0", "True"),
    n=(1, 6),
)
def broadcast_unresolved(f: ig.Fusion) -> None:
    n = f.symbol("n", min=1)
    t1 = ig.unsqueeze(f.input("a", (n,)), 1, name="t1")
    f.output(ig.add(t1, 1.0, name="t2"))


@case(
    CASES,
    "SimpleBroadcast2: the same flattened and split: the merge with one element is transparent",
    E("t1", "a", FLAT, f"{FLAT} < n"),
    E("t1", "t1", FLAT, f"{FLAT} < n"),
    E("t2", "t1", FLAT, f"{FLAT} < n"),
    E("t2", "t2", FLAT, f"{FLAT} < n"),
    n=(1, 6),
)
def broadcast_flattened(f: ig.Fusion) -> None:
    n = f.symbol("n", min=1)
    t1 = ig.unsqueeze(f.input("a", (n,)), 1, name="t1")
    t2 = f.output(ig.add(t1, 1.0, name="t2"))
    t2.merge(0).split(0, 4)
    ig.schedule.like(f, t2)


@case(
    CASES,
    "SimpleBroadcast3: a row value in the merged loop of the tensor it is added to",
    E("t2", "a", "i0//m", "True"),
    E("t3", "t2", "0"),
    E("t3", "b", "i0//m*m + i0%m", "True"),
    E("t3", "t3", "i0//m*m + i0%m", "True"),
    n=(1, 6), m=(4, 5),
)  # fmt: skip
def broadcast_resolved_in_a_merge(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    a, b = f.input("a", (n,)), f.input("b", (n, m))
    t2 = ig.unsqueeze(a, 1, name="t2")
    t3 = f.output(ig.add(t2, b, name="t3"))
    t3.merge(0)
    like(f, t3)
    t2.set_memory("local")


@case(
    CASES,
    "SimpleBroadcast4: inlined outside of the inner loop, whose extent is promoted; both sides name the slot alike",
    E("t2", "t2", "i1"),
    E("t4", "t2", "i1"),
    n=(3, 8), m=(4, 5),
)  # fmt: skip
def broadcast_inlined_at_a_promoted_loop(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t2 = ig.copy(f.input("a", (1, m)), name="t2")
    t3 = ig.copy(f.input("b", (n, m)), name="t3")
    t4 = f.output(ig.add(t2, t3, name="t4"))
    for t in (t2, t3, t4):
        t.merge(0).split(0, 4, inner=False)
    t2.inline(1).set_memory("local")
    t3.inline(1)


@case(
    CASES,
    "PromotedBroadcast: a resolved broadcast needs no room in shared memory, an inlined axis neither",
    E("t2", "t2", "0"),
    E("t3", "t2", "0"),
    n=(3, 8), m=(4, 5),
)  # fmt: skip
def broadcast_in_shared_memory(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t2 = ig.unsqueeze(f.input("a", (m,)), 0, name="t2")
    t3 = f.output(ig.add(t2, f.input("b", (n, m)), name="t3"))
    t2.inline(2).set_memory("shared")
    t3.parallelize(0, "threadIdx.x")


@case(
    CASES,
    "SimpleVectorize: block, thread and four lanes",
    E("t1", "a", "(i0*128 + i1)*4 + i2", "(i0*128 + i1)*4 + i2 < n"),
    E("t2", "t2", "(i0*128 + i1)*4 + i2", "(i0*128 + i1)*4 + i2 < n"),
    E("t1", "t1", "i2"),
    n=(600, 1024, 3),
)
def vectorised_copy(f: ig.Fusion) -> None:
    n = f.symbol("n", min=1)
    t1 = ig.copy(f.input("a", (n,)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    t2.split(0, 4).split(0, 128)
    ig.schedule.like(f, t2)
    t1.inline(2).set_memory("local")
    for t in (t1, t2):
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "vectorize")


@case(
    CASES,
    "SimpleVectorize, predicate of a vector where 4 divides the extent: its last lane has that of its first",
    E("t1", "a", "(i0*128 + i1)*4 + i2", "i0*128 + i1 < n//4"),
    E("t1", "t1", when="((i0*128 + i1)*4 >= 0) & ((i0*128 + i1)*4 + 3 < n)"),
    n=(600, 1024, 4),
)
def vectorised_copy_without_a_tail(f: ig.Fusion) -> None:
    n = f.symbol("n", min=4, multiple_of=4)
    t1 = f.output(ig.copy(f.input("a", (n,)), name="t1"))
    t1.split(0, 4).split(0, 128)
    t1.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "vectorize")


@case(
    CASES,
    "NonInnermostVectorize: the vector's loop stands outside of a serial one of two",
    E("t1", "a", "((i0*128 + i1)*2 + i3)*4 + i2", "((i0*128 + i1)*2 + i3)*4 + 3 < n"),
    E("t3", "t3", "((i0*128 + i1)*2 + i3)*4 + i2", "((i0*128 + i1)*2 + i3)*4 + 3 < n"),
    n=(600, 2048, 4),
)
def vector_loop_not_innermost(f: ig.Fusion) -> None:
    n = f.symbol("n", min=4, multiple_of=4)
    t1 = ig.copy(f.input("a", (n,)), name="t1")
    t2 = ig.copy(t1, name="t2")
    t3 = f.output(ig.copy(t2, name="t3"))
    t3.split(0, 4).split(0, 2).split(0, 128).reorder({-1: -2})
    ig.schedule.like(f, t3)
    for t in (t1, t2, t3):
        t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    t1.parallelize(2, "vectorize")
    t3.parallelize(2, "vectorize")


@case(
    CASES,
    "AlmostExactTraversalWithNonOneBroadcast: splits of both sides of a broadcast that is resolved, merged across",
    E(
        "t2", "a",
        axes=("i0*3 + (i1*5 + i2)//2",),
        when="((i0*3 + (i1*5 + i2)//2) < 7) & ((i1*5 + i2)%2*4 + i3 < 6) & (i1*5 + i2 < 6)",
    ),
    E("t3", "b", "(i0*3 + (i1*5 + i2)//2)*6 + (i1*5 + i2)%2*4 + i3", only_inside=True),
)  # fmt: skip
def splits_merged_across_a_broadcast(f: ig.Fusion) -> None:
    a, b = f.input("a", (7,)), f.input("b", (7, 6))
    t3 = f.output(ig.add(b, ig.unsqueeze(a, 1, name="t2"), name="t3"))
    t3.split(0, 3).split(2, 4).merge(1).split(1, 5)
    f["t2"].inline(0)
    like(f, t3)


@case(
    CASES,
    "Swizzle: a shared tile whose columns are exchanged by row",
    E("t1", "t1", "i0*32 + (i0 ^ i1)"),
    E("t2", "t1", "i0*32 + (i0 ^ i1)"),
)
def swizzled_tile(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (32, 32)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    t1.swizzle("xor", 0, 1).set_allocation(t1.loop).set_loop(t1.logical)
    for t in (t1, t2):
        t.parallelize(0, "threadIdx.x")
    t1.set_memory("shared")


@case(
    CASES,
    "SmemAllocationDomainForTranspose: a tile written through (columns, rows) merged and read through (rows, columns)",
    E("t3", "t3", "(i1*4 + i2)%32*32 + (i1*4 + i2)//32"),
    E("t4", "t3", "(i1*4 + i2)//32*32 + (i1*4 + i2)%32"),
)
def transposed_tile_through_merged_loops(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (64, 96)), name="t1")
    t2 = ig.transpose(t1, 0, 1, name="t2")
    t3 = ig.copy(t2, name="t3")
    t4 = f.output(ig.copy(t3, name="t4"))
    for t in (t2, t3):
        t.reorder({0: 1})
    for t in (t1, t2, t3, t4):
        t.split(0, 32).split(2, 32).reorder({1: 2}).merge(2, 3)
        if t is t4:
            t.merge(1, 0)
        else:
            t.merge(0, 1)
        t.split(-1, 4).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    tile = t3.loop
    (columns, rows) = (x.outputs for x in t3.domain.loop_exprs[:2])
    t3.set_allocation([rows[0], columns[0], rows[1], columns[1]])
    t3.set_loop(tile).set_memory("shared").inline(1)
    t4.parallelize(-1, "vectorize")


@case(
    CASES,
    "ResizePath (two halves of a row added): each slice indexes the input by its own path",
    E("t1", "a", "i0*30 + i1", "True"),
    E("t2", "a", "i0*30 + (i1 + 15)", "True"),
    E("t3", "t3", "i0*15 + i1", "True"),
)
def halves_added(f: ig.Fusion) -> None:
    a = f.input("a", (11, 30))
    t1 = ig.slice(a, 1, 0, 15, name="t1")
    t2 = ig.slice(a, 1, 15, 30, name="t2")
    f.output(ig.add(t1, t2, name="t3"))


# ---- contiguous indices ---------------------------------------------------------------------------------------------
@case(
    CASES,
    "ContigIndexing SimplePointwise: a contiguous input is indexed by the flattened loop itself",
    E("t1", "a", FLAT, f"{FLAT} < n*m"),
    E("t2", "t2", FLAT, f"{FLAT} < n*m"),
    E("t2", "t1", "i1"),
    n=(1, 5, 6), m=(1, 7, 4),
)  # fmt: skip
def contiguous_flattened(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t1 = ig.add(f.input("a", (n, m)), 1.0, name="t1")
    t2 = f.output(ig.add(t1, 1.0, name="t2"))
    t2.merge(0).split(0, 4)
    ig.schedule.like(f, t2)
    t1.inline(1).set_memory("local")


@case(
    CASES,
    "NonContigInnermost: only the innermost stride is free, the merge of the inner two stays one loop",
    E("t1", "a", "i0*(stride0_2*7*5) + i1*stride0_2", "True"),
    E("t1", "t1", "i0*(7*5) + i1", "True"),
    stride0_2=(1, 3),
)
def free_innermost_stride(f: ig.Fusion) -> None:
    t1 = f.output(ig.copy(f.input("a", (3, 5, 7), contiguity=(True, True, False)), name="t1"))
    t1.merge(1)


@case(
    CASES,
    "ContigIndexing BroadcastInlining: a column value in a merged loop",
    E("t2", "a", "i0%m", "True"),
    E("t3", "t2", "0"),
    E("t4", "t3", "0"),
    E("t4", "b", "i0", "True"),
    E("t4", "t4", "i0", "True"),
    n=(3, 5), m=(4, 7),
)  # fmt: skip
def column_value_in_a_merge(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t2 = ig.copy(f.input("a", (m,)), name="t2")
    t3 = ig.unsqueeze(t2, 0, name="t3")
    t4 = f.output(ig.add(t3, f.input("b", (n, m)), name="t4"))
    t4.merge(0)
    like(f, t4)
    for t in (t2, t3):
        t.set_memory("local")


@case(
    CASES,
    "ContigIndexing Resize: after a slice of the row the merged loop is taken apart in the input only",
    E("t1", "a", "i0//15*30 + (i0%15 - (-15))", "True"),
    E("t1", "t1", "i0", "True"),
    E("t2", "t2", "i0", "True"),
)
def half_flattened(f: ig.Fusion) -> None:
    t1 = ig.slice(f.input("a", (11, 30)), 1, 15, 30, name="t1")
    t2 = f.output(ig.add(t1, 1.0, name="t2"))
    t2.merge(0)
    ig.schedule.like(f, t2)


@case(
    CASES,
    "NonConsistentMerge: outer with innermost, then with the middle: no part of the index is contiguous",
    E("t1", "a", "i0//m//k*(k*m) + i0%m*k + i0//m%k", "True"),
    E("t1", "t1", "i0//m//k*(k*m) + i0%m*k + i0//m%k", "True"),
    n=(2, 3), m=(4, 5), k=(3, 2),
)  # fmt: skip
def merged_across_the_middle(f: ig.Fusion) -> None:
    n, m, k = f.symbol("n", min=1), f.symbol("m", min=1), f.symbol("k", min=1)
    t1 = f.output(ig.add(f.input("a", (n, m, k)), 1.0, name="t1"))
    t1.merge(0, 2).merge(0, 1)


@case(
    CASES,
    "ConcretizedBroadcastMerge: written through the merge of its own axes, read through that of all three",
    E("t2", "t2", "i0"),
    E("t3", "t2", "i0//(m*k)*m + i0%(m*k)//k", "True"),
    n=(2, 5), m=(4, 6), k=(3, 7),
)  # fmt: skip
def merged_with_a_resolved_broadcast(f: ig.Fusion) -> None:
    n, m, k = f.symbol("n", min=1), f.symbol("m", min=1), f.symbol("k", min=1)
    t2 = ig.unsqueeze(f.input("a", (n, m)), 2, name="t2")
    t3 = f.output(ig.add(t2, f.input("b", (n, m, k)), name="t3"))
    for t in (t2, t3):
        t.merge(1, 2).merge(0, 1).parallelize(0, "threadIdx.x")
    t2.set_memory("shared")


@case(
    CASES,
    "PerDimLogicalIndices: coordinates of both sides of a reshape under block, thread and unrolled loops",
    E("t1", "a", axes=("((i0*128 + i1)*4 + i2)//8", "((i0*128 + i1)*4 + i2)%8"), when="(i0*128 + i1)*4 + i2 < 32"),
    E("t1", "t1", axes=("(i0*128 + i1)*4 + i2",)),
)
def coordinates_through_a_reshape(f: ig.Fusion) -> None:
    t1 = f.output(ig.reshape(f.input("a", (4, 8)), 32, name="t1"))
    t1.split(0, 4).split(0, 128)
    t1.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "unroll")


# ---- predicates -----------------------------------------------------------------------------------------------------
@case(
    CASES,
    "NonDivisibleSplit1: a split of the inner part of a reduced axis that leaves a remainder has a bound of its own",
    E("t1", "a", "i0*5 + (i1*3 + i2)", "(i0*5 + (i1*3 + i2) >= 0) & (i0*5 + (i1*3 + i2) < n) & (i1*3 + i2 < 5)"),
    E("t2", "a", "i0*4 + (i1*2 + i2)", "(i0*4 + (i1*2 + i2) >= 0) & (i0*4 + (i1*2 + i2) < n)"),
    n=(1, 4, 5, 13, 20),
)
def reduced_axis_split_twice(f: ig.Fusion) -> None:
    a = f.input("a", (f.symbol("n", min=1),))
    f.output(ig.sum(a, 0, name="t1")).split(0, 5).split(1, 3)
    f.output(ig.sum(a, 0, name="t2")).split(0, 4).split(1, 2)


@case(
    CASES,
    "NonDivisibleSplitWithUnswitch, inline predicate: producer and consumer carry the remainder's bound alike",
    E("t1", "a", "i0*5 + i1*3 + i2", "(i0*5 + i1*3 + i2 < n) & (i1*3 + i2 < 5)"),
    E("t2", "t2", "i0*5 + i1*3 + i2", "(i0*5 + i1*3 + i2 < n) & (i1*3 + i2 < 5)"),
    n=(1, 4, 5, 13, 20),
)
def remainder_of_producer_and_consumer(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (f.symbol("n", min=1),)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    for t in (t1, t2):
        t.split(0, 5).split(1, 3)
    t1.inline(3)


@case(
    CASES,
    "NonDivisibleSplitWithCircularBuffering, inline predicate: four parts of three for ten",
    E("t2", "t1", "i2", "(i0*10 + i1*3 + i2 < n) & (i1*3 + i2 < 10)"),
    E("t1", "a", "i0*10 + i1*3 + i2", "(i0*10 + i1*3 + i2 < n) & (i1*3 + i2 < 10)"),
    n=(1, 9, 10, 37),
)
def ten_in_four_threes(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (f.symbol("n", min=1),)), name="t1")
    t2 = f.output(ig.copy(t1, name="t2"))
    for t in (t1, t2):
        t.split(0, 10).split(1, 3).parallelize(0, "threadIdx.x")
    t1.inline(2).set_memory("local")


@case(
    CASES,
    "UnswitchPredicateIssueRepro681, inline predicate: a split inner axis merged with the outer one, both reduced",
    E(
        "t1", "a",
        "(i0*4 + i1)//3*10 + ((i0*4 + i1)%3*4 + i2)",
        "((i0*4 + i1)//3 < 4) & ((i0*4 + i1)%3*4 + i2 < 10)",
    ),
)  # fmt: skip
def reduced_split_and_merged(f: ig.Fusion) -> None:
    t1 = f.output(ig.sum(f.input("a", (4, 10)), (0, 1), name="t1"))
    t1.split(1, 4).merge(0).split(0, 4)


@case(
    CASES,
    "NonDivisibleSplitWithUnswitchAndBroadcast, inline predicate: the remainder is that of the wider tensor's loops",
    E("t2", "a", "(i0*100 + i1*16 + i2)//m", "((i0*100 + i1*16 + i2)//m < n) & (i1*16 + i2 < 100)"),
    E("t3", "b", "i0*100 + i1*16 + i2", "((i0*100 + i1*16 + i2)//m < n) & (i1*16 + i2 < 100)"),
    n=(5, 3), m=(100, 77),
)  # fmt: skip
def remainder_of_the_wider_tensor(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t2 = ig.unsqueeze(f.input("a", (n,)), 1, name="t2")
    t3 = f.output(ig.add(t2, f.input("b", (n, m)), name="t3"))
    t3.merge(0).split(0, 100).split(1, 16)
    like(f, t3)


@case(
    CASES,
    "NonDivisibleSplitWithNonLogicalToLoopDomains: a reshape undone in the loops, then a split with a remainder",
    E("t3", "t3", "i0*2 + i2", "(i0*2 + i2 >= 0) & (i0*2 + i2 < 10) & (i2 < 2)", only_inside=True),
    E("t1", "a", "i0*2 + i2", "i2 < 2", only_inside=True),
    E("t2", "t1", "0"),
)
def remainder_upstream_of_a_reshape(f: ig.Fusion) -> None:
    t1 = ig.copy(f.input("a", (5, 2)), name="t1")
    t2 = ig.reshape(t1, 10, name="t2")
    t3 = f.output(ig.copy(t2, name="t3"))
    t2.set_loop(t2.root)
    t2.split(1, 8)
    t1.split(1, 8)
    t3.split(0, 2).split(1, 8)
    t1.inline(3).set_memory("local")
    t2.inline(3)
    for n, way in enumerate(("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        t3.parallelize(n, way)


@case(
    CASES,
    "ParallelDimensionPredicateWithUnswitchAndSetLoopDomain: a flattened axis summed in the loops of its two parts",
    E("t4", "t3", "0", "i0*8 + i2 < 32"),
    E("t3", "b", "i0*8 + i2", "i0*8 + i2 < 32"),
)
def flattened_and_summed_in_its_parts(f: ig.Fusion) -> None:
    t3 = ig.reshape(f.input("b", (4, 8)), 32, name="t3")
    t4 = f.output(ig.sum(t3, 0, name="t4"))
    t3.set_loop(t3.root)
    t3.split(1, 1, inner=False)
    t4.split(0, 8).split(1, 1, inner=False)
    t3.inline(3).set_memory("local")
    t4.parallelize(-1, "threadIdx.x")


@case(
    CASES,
    "ContigPredicateIndexing SimplePointwise1: inner merged as the outer: one bound of the product is enough",
    E("t2", "t2", when=f"({FLAT} >= 0) & ({FLAT} < m*n)"),
    n=(1, 5, 6), m=(1, 7, 4),
)  # fmt: skip
def merged_the_wrong_way_round(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t1 = ig.add(f.input("a", (n, m)), 1.0, name="t1")
    t2 = f.output(ig.add(t1, 1.0, name="t2"))
    t2.merge(1, 0).split(0, 4)
    ig.schedule.like(f, t2)
    t1.inline(1)


@case(
    CASES,
    "ContigPredicateIndexing NonDivisibleSplit1: a reshape's split divides, its merge needs one bound; 5 divides 10",
    E("t1", "t1", "i0", "i0 < 10*(5*20)//5"),
    E("t2", "t2", "i0//100*100 + i0%100//20*20 + i0%100%20", "(i0//100*5 + i0%100//20 < 10) & (i0%100%20 < 20)"),
)
def merge_after_a_dividing_split(f: ig.Fusion) -> None:
    a = f.input("a", (10, 20))
    f.output(ig.reshape(a, 2, 5, 20, name="t1")).merge(1, 2).merge(0, 1)
    f.output(ig.copy(a, name="t2")).split(0, 5).merge(1, 2).merge(0, 1)


@case(
    CASES,
    "the same with an extent that 5 need not divide: each axis is bounded by itself",
    E(
        "t2", "t2",
        "(i0//100*5 + i0%100//20)*20 + i0%100%20",
        "(i0//100*5 + i0%100//20 >= 0) & (i0//100*5 + i0%100//20 < n)",
    ),
    n=(1, 5, 10, 12),
)  # fmt: skip
def merge_after_a_split_with_a_remainder(f: ig.Fusion) -> None:
    t2 = f.output(ig.copy(f.input("a", (f.symbol("n", min=1), 20)), name="t2"))
    t2.split(0, 5).merge(1, 2).merge(0, 1)


@case(
    CASES,
    "NonTrivialSizeOneDomain: a part of one element split by four is not that part",
    E("t1", "a", "i1*10 + i2", "(i1*10 + i2 >= 0) & (i1*10 + i2 < 8)", only_inside=True),
)
def one_element_split_by_four(f: ig.Fusion) -> None:
    f.output(ig.sum(f.input("a", (8,)), 0, name="t1")).split(0, 10).split(0, 4)


@case(
    CASES,
    "AdditionalNonDivisibleSplit: the inner part of one element split by four is bounded",
    E("t1", "a", "i0", "(i0 >= 0) & (i0 < 8) & (i2 < 1)", only_inside=True),
)
def inner_one_split_by_four(f: ig.Fusion) -> None:
    f.output(ig.sum(f.input("a", (8,)), 0, name="t1")).split(0, 1).split(1, 4)


@case(
    CASES,
    "AdditionalNonDivisibleSplitAfterDivisibleSplit: the same after another split by one",
    E("t1", "a", "i0", "(i0 >= 0) & (i0 < 8) & (i3 < 1)", only_inside=True),
)
def inner_one_split_by_one_and_by_four(f: ig.Fusion) -> None:
    f.output(ig.sum(f.input("a", (8,)), 0, name="t1")).split(0, 1).split(1, 1).split(2, 4)


# ---- resizes --------------------------------------------------------------------------------------------------------
@case(
    CASES,
    "ResizeRotation (its issue 3455): halves exchanged and added to the whole, every tensor in the whole's loop",
    E("t1", "a", "i0 - 16", "(i0 >= 16) & (i0 < 32)"),
    E("t2", "a", "i0 + 16", "(i0 >= 0) & (i0 < 16)"),
    E("t4", "a", "i0", "True"),
    E("t4", "t4", "i0", "True"),
)
def rotation(f: ig.Fusion) -> None:
    a = f.input("a", (32,))
    t1, t2 = ig.slice(a, 0, 0, 16, name="t1"), ig.slice(a, 0, 16, 32, name="t2")
    t4 = f.output(ig.add(a, ig.cat([t2, t1], 0), name="t4"))
    like(f, t4)


@case(
    CASES,
    "VectorizedResizeRotation: copies before the slices, all split by four; first and last lane of a vector",
    E("t1", "a", "i0*4 + i1 - 16", "(i0*4 + 0 - 16 >= 0) & (i0*4 + 3 - 16 < 32)"),
    E("t3", "a", "i0*4 + i1 + 16", "(i0*4 + 0 + 16 >= 0) & (i0*4 + 3 + 16 < 32)"),
)
def rotation_of_copies_vectorised(f: ig.Fusion) -> None:
    a = f.input("a", (32,))
    t1, t3 = ig.copy(a, name="t1"), ig.copy(a, name="t3")
    t5 = ig.cat([ig.slice(t3, 0, 16, 32, name="t4"), ig.slice(t1, 0, 0, 16, name="t2")], 0, name="t5")
    t6 = f.output(ig.add(a, t5, name="t6"))
    t6.split(0, 4)
    like(f, t6)
    t1.parallelize(-1, "vectorize")


@case(
    CASES,
    "Issue3505Repro1: a corner of a matrix broadcast and added, everything flattened",
    E("rows", "a", "i0%8//4*8 + i0%4", "True"),
    E("t3", "t2", axes=("i0%8//4", "i0%4")),
    E("t4", "b", "i0", "True"),
)
def corner_broadcast_and_flattened(f: ig.Fusion) -> None:
    a, b = f.input("a", (4, 8)), f.input("b", (2, 2, 4))
    t2 = ig.slice(ig.slice(a, 0, 0, 2, name="rows"), 1, 0, 4, name="t2")
    t3 = ig.unsqueeze(t2, 0, name="t3")
    t4 = f.output(ig.add(b, t3, name="t4"))
    t4.merge(0).merge(0)
    like(f, t4)


@case(
    CASES,
    "Issue3505Repro2: two halves of one axis added, broadcast and flattened: two paths through the same group",
    E("t2", "a", "i0%4", "True"),
    E("t3", "a", "i0%4 + 4", "True"),
    E("t6", "t6", "i0", "True"),
)
def halves_broadcast_and_flattened(f: ig.Fusion) -> None:
    a, b = f.input("a", (8,)), f.input("b", (2, 4))
    t2, t3 = ig.slice(a, 0, 0, 4, name="t2"), ig.slice(a, 0, 4, 8, name="t3")
    t5 = ig.unsqueeze(ig.add(t2, t3), 0, name="t5")
    t6 = f.output(ig.add(b, t5, name="t6"))
    t6.merge(0)
    like(f, t6)


@case(
    CASES,
    "AlmostExactIndexingUpdate: a row cut out, its columns split by 5 and by 3, the last part merged with the row",
    E(
        "t1", "a",
        "8 + i2*5 + i3*3 + (i0*2 + i1)",
        "(i0*2 + i1 < 3) & (i3*3 + (i0*2 + i1) < 5) & (i2*5 + i3*3 + (i0*2 + i1) < 8)",
        only_inside=True,
    ),
)  # fmt: skip
def row_cut_out_and_merged(f: ig.Fusion) -> None:
    t1 = f.output(ig.slice(f.input("a", (4, 8)), 0, 1, 2, name="t1"))
    t1.split(-1, 5).split(-1, 3)
    t1.merge(0, -1).split(0, 2)


@case(
    CASES,
    "BroadcastLogicalDomainIndexing (issue 3688): a row padded on both sides, inlined into a matrix",
    E("t2", "a", "i1 - 1", "(i1 >= 1) & (i1 < 33)"),
    E("t3", "t2", "0"),
    E("t3", "b", "i0*34 + i1", "True"),
)
def padded_row_in_a_matrix(f: ig.Fusion) -> None:
    t2 = ig.pad(f.input("a", (1, 32)), (1, 1), name="t2")
    t3 = f.output(ig.add(t2, f.input("b", (8, 34)), name="t3"))
    t2.inline(2).set_memory("local")
    t3.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")


@case(
    CASES,
    "Issue3374: complex halves padded to pairs and added to a product with a broadcast, permuted and reshaped",
    E("t4", "c", "i1//2*6 + i0", "i1%2 >= 1"),
    E("t5", "d", "i1//2*6 + i0", "i1%2 < 1"),
    E("t7", "b", "i0*2 + i1%2", "True"),
    E("t8", "a", "i1//2*(6*2) + i0*2 + i1%2", "True"),
)
def pairs_padded_and_permuted(f: ig.Fusion) -> None:
    a, b = f.input("a", (5, 6, 2)), f.input("b", (6, 2))
    c, d = f.input("c", (5, 6, 1)), f.input("d", (5, 6, 1))
    t4, t5 = ig.pad(c, (1, 0), name="t4"), ig.pad(d, (0, 1), name="t5")
    t8 = ig.mul(ig.unsqueeze(b, 0, name="t7"), a, name="t8")
    t9 = ig.add(ig.add(t4, t5, name="t6"), t8, name="t9")
    t11 = f.output(ig.reshape(ig.permute(t9, 1, 0, 2, name="t10"), 6, 10, name="t11"))
    like(f, t11)


@case(
    CASES,
    "Issue3299: heads split off, moved to the front, repeated fourfold and flattened",
    E("t1", "a", "i1*12 + i0//4*4 + i2", "True"),
    E("t5", "t5", "i0*(9*4) + i1*4 + i2", "True"),
)
def heads_repeated(f: ig.Fusion) -> None:
    t1 = ig.reshape(f.input("a", (9, 12)), 9, 3, 4, name="t1")
    t4 = ig.expand(ig.unsqueeze(ig.permute(t1, 1, 0, 2), 1), 3, 4, 9, 4)
    t5 = f.output(ig.reshape(t4, 12, 9, 4, name="t5"))
    like(f, t5)


@pytest.mark.parametrize("name", list(CASES))
def test_as_expected(name: str) -> None:
    """Equal at every point, not costlier; and every access as the oracle has it."""
    assert judged(name, CASES[name]) == [], CASES[name].source
