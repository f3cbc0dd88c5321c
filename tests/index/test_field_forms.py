"""Expectations of other systems' index tests, in this library's words: schedules, and every index of them as printed.

The cases follow the questions that nvFuser's indexing tests, TVM's compute-at tests and Inductor's printed strides ask;
each is also checked at every point against the oracle.

Long: a list of cases, each short.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.validate import check_addresses

Built = tuple[ig.Fusion, list[str]]
CASES: dict[str, Callable[[], Built]] = {}


def case(build: Callable[[], Built]) -> Callable[[], Built]:
    """Register a case under its name."""
    CASES[build.__name__] = build
    return build


def lines(f: ig.Fusion) -> list[str]:
    """Every access of every operation, as it prints."""
    m = ig.IdModel(f)
    return [str(a) for e in f.exprs for a in m.index_map(e).accesses]


@case
def pointwise_merged_and_split() -> Built:
    """All axes in one loop, cut into threads: contiguous addresses, one bound."""
    f = ig.Fusion("f")
    t = f.output(f.input("a", (10, 20)) + 1.0)
    t.merge(0).split(0, 128)
    return f, [
        "add writes t1[(i0*128 + i1)//20, (i0*8 + i1)%20] at i0*128 + i1 if i0*128 + i1 < 200",
        "add reads a[(i0*128 + i1)//20, (i0*8 + i1)%20] at i0*128 + i1 if i0*128 + i1 < 200",
    ]


@case
def pointwise_of_strided_input_merged() -> Built:
    """The coordinates come back from the merged loop where the strides ask for them."""
    f = ig.Fusion("f")
    t = f.output(f.input("a", (10, 20), strides=(32, 1)) + 1.0)
    t.merge(0).split(0, 128)
    return f, [
        "add writes t1[(i0*128 + i1)//20, (i0*8 + i1)%20] at i0*128 + i1 if i0*128 + i1 < 200",
        "add reads a[(i0*128 + i1)//20, (i0*8 + i1)%20] at i0*200 + (i0*8 + i1)//20*12 + i1 if i0*128 + i1 < 200",
    ]


@case
def transposed_input_merged() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (10, 20), strides=(1, 10)) + 1.0)
    t.merge(0)
    return f, ["add writes t1[i0//20, i0%20] at i0", "add reads a[i0//20, i0%20] at i0//20 + i0%20*10"]


@case
def outer_split_of_a_remainder() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (100,)) + 1.0)
    t.split(0, 8, inner=False)
    return f, [
        "add writes t1[i0*13 + i1] at i0*13 + i1 if i0*13 + i1 < 100",
        "add reads a[i0*13 + i1] at i0*13 + i1 if i0*13 + i1 < 100",
    ]


@case
def split_by_one() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (7,)) + 1.0)
    t.split(0, 1)
    return f, ["add writes t1[i0] at i0", "add reads a[i0] at i0"]


@case
def split_by_more_than_there_is() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (7,)) + 1.0)
    t.split(0, 16)
    return f, ["add writes t1[i1] at i1 if i1 < 7", "add reads a[i1] at i1 if i1 < 7"]


@case
def split_twice_with_remainders() -> Built:
    """The second split's padding is past the end of the first one's axis: its bound is implied."""
    f = ig.Fusion("f")
    t = f.output(f.input("a", (100,)) + 1.0)
    t.split(0, 7).split(0, 4)
    return f, [
        "add writes t1[i0*28 + i1*7 + i2] at i0*28 + i1*7 + i2 if i0*28 + i1*7 + i2 < 100",
        "add reads a[i0*28 + i1*7 + i2] at i0*28 + i1*7 + i2 if i0*28 + i1*7 + i2 < 100",
    ]


@case
def inner_part_split_again() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (64,)) + 1.0)
    t.split(0, 6).split(1, 4)
    return f, [
        "add writes t1[i0*6 + i1*4 + i2] at i0*6 + i1*4 + i2 if (i0*6 + i1*4 + i2 < 64) & (i1*4 + i2 < 6)",
        "add reads a[i0*6 + i1*4 + i2] at i0*6 + i1*4 + i2 if (i0*6 + i1*4 + i2 < 64) & (i1*4 + i2 < 6)",
    ]


@case
def two_by_two_tiles() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (32, 48)) + 1.0)
    t.split(1, 16).split(0, 8).reorder({1: 2})
    return f, [
        "add writes t1[i0*8 + i2, i1*16 + i3] at i0*384 + i1*16 + i2*48 + i3",
        "add reads a[i0*8 + i2, i1*16 + i3] at i0*384 + i1*16 + i2*48 + i3",
    ]


@case
def reorder_changes_names_only() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (4, 6)) + 1.0)
    t.reorder({0: 1})
    return f, ["add writes t1[i1, i0] at i0 + i1*6", "add reads a[i1, i0] at i0 + i1*6"]


@case
def outer_merged_with_a_loop_further_in() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (4, 5, 6)) + 1.0)
    t.merge(0, 2)
    return f, [
        "add writes t1[i0//6, i1, i0%6] at i0 + i0//6*24 + i1*6",
        "add reads a[i0//6, i1, i0%6] at i0 + i0//6*24 + i1*6",
    ]


@case
def inner_merged_as_the_outer_one() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (4, 6)) + 1.0)
    t.merge(1, 0)
    return f, ["add writes t1[i0%4, i0//4] at i0//4 + i0%4*6", "add reads a[i0%4, i0//4] at i0//4 + i0%4*6"]


@case
def reshape_of_100() -> Built:
    f = ig.Fusion("f")
    a = f.input("a", (100,))
    f.output(ig.reshape(ig.reshape(a, 4, 25), 5, 2, 10))
    return f, [
        "reshape writes t1[i0, i1] at i0*25 + i1",
        "reshape reads a[i0*25 + i1] at i0*25 + i1",
        "reshape writes t2[i0, i1, i2] at i0*20 + i1*10 + i2",
        "reshape reads t1[(i0*20 + i1*10 + i2)//25, (i0*20 + i1*10 + i2)%25] at i0*20 + i1*10 + i2",
    ]


@case
def reshape_flattened() -> Built:
    f = ig.Fusion("f")
    f.output(ig.reshape(f.input("a", (4, 6, 5)), 24, 5))
    return f, ["reshape writes t1[i0, i1] at i0*5 + i1", "reshape reads a[i0//6, i0%6, i1] at i0*5 + i1"]


@case
def reshape_looped_over_its_producers_axes() -> Built:
    """Loops upstream of the logical axes: the output's own coordinates follow forward."""
    f = ig.Fusion("f")
    t = f.output(ig.reshape(f.input("a", (4, 6)), 24))
    t.set_loop(t.root)
    return f, ["reshape writes t1[i0*6 + i1] at i0*6 + i1", "reshape reads a[i0, i1] at i0*6 + i1"]


@case
def reshape_split_looped_over_the_root() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.reshape(f.input("a", (24,)), 4, 6))
    t.set_loop(t.root)
    t.split(0, 8)
    return f, [
        "reshape writes t1[(i0*8 + i1)//6, (i0*2 + i1)%6] at i0*8 + i1",
        "reshape reads a[i0*8 + i1] at i0*8 + i1",
    ]


@case
def sum_over_the_inner_axis() -> Built:
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("a", (4, 10)), 1))
    return f, ["sum writes t1[i0] at i0", "sum reads a[i0, i1] at i0*10 + i1"]


@case
def sum_with_its_reduced_axis_split() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.sum(f.input("a", (4, 10)), 1))
    t.split(1, 4)
    return f, [
        "sum writes t1[i0] at i0 if i1*4 + i2 < 10",
        "sum reads a[i0, i1*4 + i2] at i0*10 + i1*4 + i2 if i1*4 + i2 < 10",
    ]


@case
def sum_over_the_outer_axis_split_outer() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.sum(f.input("a", (10, 4)), 0))
    t.reorder({0: 1}).split(1, 4, inner=False)
    return f, [
        "sum writes t1[i0] at i0 if i1*3 + i2 < 10",
        "sum reads a[i1*3 + i2, i0] at i0 + i1*12 + i2*4 if i1*3 + i2 < 10",
    ]


@case
def sum_of_everything_as_one_loop() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.sum(f.input("a", (6, 7)), (0, 1)))
    t.merge(0).split(0, 8)
    return f, [
        "sum writes t1[] at 0 if i0*8 + i1 < 42",
        "sum reads a[i0 + (i0 + i1)//7, (i0 + i1)%7] at i0*8 + i1 if i0*8 + i1 < 42",
    ]


@case
def broadcast_of_a_row() -> Built:
    f = ig.Fusion("f")
    a, b = f.input("a", (7,)), f.input("b", (5, 7))
    f.output(a + b)
    return f, ["add writes t2[i0, i1] at i0*7 + i1", "add reads a[i1] at i1", "add reads b[i0, i1] at i0*7 + i1"]


@case
def broadcast_inlined_into_a_merge() -> Built:
    f = ig.Fusion("f")
    a, b = f.input("a", (1, 7)), f.input("b", (5, 7))
    t = ig.copy(a)
    u = f.output(t + b)
    for x in (t, u):
        x.merge(0).split(0, 4)
    t.inline(1)
    return f, [
        "copy writes t2[0, (i0*4 + i1)%7] at i1 (private) if i0*4 + i1 < 35",
        "copy reads a[0, (i0*4 + i1)%7] at (i0*4 + i1)%7 if i0*4 + i1 < 35",
        "add writes t3[(i0*4 + i1)//7, (i0*4 + i1)%7] at i0*4 + i1 if i0*4 + i1 < 35",
        "add reads t2[0, (i0*4 + i1)%7] at i1 (private) if i0*4 + i1 < 35",
        "add reads b[(i0*4 + i1)//7, (i0*4 + i1)%7] at i0*4 + i1 if i0*4 + i1 < 35",
    ]


@case
def column_broadcast_inlined_at_the_merged_loop() -> Built:
    f = ig.Fusion("f")
    a, b = f.input("a", (5, 1)), f.input("b", (5, 7))
    t = ig.copy(a)
    u = f.output(t * b)
    for x in (t, u):
        x.merge(0)
    t.inline(1)
    return f, [
        "copy writes t2[i0//7, 0] in a register",
        "copy reads a[i0//7, 0] at i0//7",
        "mul writes t3[i0//7, i0%7] at i0",
        "mul reads t2[i0//7, 0] in a register",
        "mul reads b[i0//7, i0%7] at i0",
    ]


@case
def slice_by_itself() -> Built:
    f = ig.Fusion("f")
    f.output(f.input("a", (64,))[8:40])
    return f, ["slice writes t1[i0] at i0", "slice reads a[i0 + 8] at i0 + 8"]


@case
def slice_scheduled_like_its_producer() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (64,))[8:40])
    t.set_loop(t.root)
    t.split(0, 16)
    return f, [
        "slice writes t1[i0*16 + i1 - 8] at i0*16 + i1 - 8 if (i0*16 + i1 >= 8) & (i0*16 + i1 < 40)",
        "slice reads a[i0*16 + i1] at i0*16 + i1 if (i0*16 + i1 >= 8) & (i0*16 + i1 < 40)",
    ]


@case
def slice_with_a_step() -> Built:
    f = ig.Fusion("f")
    f.output(f.input("a", (64,))[3:40:5])
    return f, ["slice writes t1[i0] at i0", "slice reads a[i0*5 + 3] at i0*5 + 3"]


@case
def flipped() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.flip(f.input("a", (64,)), 0))
    t.split(0, 8)
    return f, ["flip writes t1[i0*8 + i1] at i0*8 + i1", "flip reads a[63 - i0*8 - i1] at 63 - i0*8 - i1"]


@case
def pad_on_both_sides() -> Built:
    f = ig.Fusion("f")
    f.output(ig.pad(f.input("a", (10,)), (2, 3)))
    return f, ["pad writes t1[i0] at i0", "pad reads a[i0 - 2] at i0 - 2 if (i0 >= 2) & (i0 < 12)"]


@case
def pad_scheduled_like_its_consumer() -> Built:
    """A producer of a pad computed in the padded loop: its own write is bounded."""
    f = ig.Fusion("f")
    t1 = f.input("a", (10,)) * 2.0
    t2 = ig.pad(t1, (2, 3))
    t3 = f.output(t2 + 1.0)
    t3.split(0, 4)
    ig.schedule.like(f, t3)
    ig.schedule.inline_most(f)
    return f, [
        "mul writes t1[i0*4 + i1 - 2] in a register if (i0 < 3) & (i0*4 + i1 >= 2)",
        "mul reads a[i0*4 + i1 - 2] at i0*4 + i1 - 2 if (i0 < 3) & (i0*4 + i1 >= 2)",
        "pad writes t2[i0*4 + i1] in a register if i0*4 + i1 < 15",
        "pad reads t1[i0*4 + i1 - 2] in a register if (i0 < 3) & (i0*4 + i1 >= 2)",
        "add writes t3[i0*4 + i1] at i0*4 + i1 if i0*4 + i1 < 15",
        "add reads t2[i0*4 + i1] in a register if i0*4 + i1 < 15",
    ]


@case
def rotation_vectorised_by_four() -> Built:
    f = ig.Fusion("f")
    t0 = f.input("t0", (64,))
    t4 = f.output(t0 + ig.cat([t0[32:], t0[:32]], 0))
    t4.split(0, 4).parallelize(1, "vectorize")
    ig.schedule.like(f, t4)
    ig.schedule.inline_most(f)
    return f, [
        "slice writes t1[i0*4 + i1] in a register if i0 < 8",
        "slice reads t0[i0*4 + i1 + 32] at i0*4 + i1 + 32 if i0 < 8",
        "slice writes t2[i0*4 + i1 - 32] in a register if i0 >= 8",
        "slice reads t0[i0*4 + i1 - 32] at i0*4 + i1 - 32 if i0 >= 8",
        "cat writes t3[i0*4 + i1] in a register",
        "cat reads t1[i0*4 + i1] in a register if i0 < 8",
        "cat reads t2[i0*4 + i1 - 32] in a register if i0 >= 8",
        "add writes t4[i0*4 + i1] at i0*4 + i1",
        "add reads t0[i0*4 + i1] at i0*4 + i1",
        "add reads t3[i0*4 + i1] in a register",
    ]


@case
def roll_of_a_split_loop() -> Built:
    f = ig.Fusion("f")
    t = f.output(ig.roll(f.input("a", (64,)), 16, 0))
    t.split(0, 16)
    return f, ["roll writes t1[i0*16 + i1] at i0*16 + i1", "roll reads a[(i0 + 3)%4*16 + i1] at (i0 + 3)%4*16 + i1"]


@case
def concatenation() -> Built:
    f = ig.Fusion("f")
    a, b = f.input("a", (3, 4)), f.input("b", (5, 4))
    f.output(ig.cat([a, b], 0))
    return f, [
        "cat writes t2[i0, i1] at i0*4 + i1",
        "cat reads a[i0, i1] at i0*4 + i1 if i0 < 3",
        "cat reads b[i0 - 3, i1] at i0*4 + i1 - 12 if i0 >= 3",
    ]


@case
def permuted() -> Built:
    f = ig.Fusion("f")
    f.output(ig.permute(f.input("a", (2, 3, 4)), (2, 0, 1)))
    return f, ["permute writes t1[i0, i1, i2] at i0*6 + i1*3 + i2", "permute reads a[i1, i2, i0] at i0 + i1*12 + i2*4"]


@case
def expanded() -> Built:
    f = ig.Fusion("f")
    f.output(ig.expand(f.input("a", (5, 1)), 5, 8))
    return f, ["expand writes t1[i0, i1] at i0*8 + i1", "expand reads a[i0, 0] at i0"]


@case
def input_with_stride_zero_and_offset() -> Built:
    f = ig.Fusion("f")
    a = f.input("a", (4, 6), strides=(0, 1), offset=5)
    t = f.output(a + 1.0)
    t.merge(0)
    return f, ["add writes t1[i0//6, i0%6] at i0", "add reads a[i0//6, i0%6] at i0%6 + 5"]


@case
def output_laid_out_by_columns() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (4, 6)) + 1.0)
    t.set_allocation([t.logical[1], t.logical[0]])
    return f, ["add writes t1[i0, i1] at i0 + i1*4", "add reads a[i0, i1] at i0*6 + i1"]


@case
def output_with_padded_rows() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (4, 6)) + 1.0)
    t.resize(1, 0, 2)
    t.set_allocation(t.loop).set_loop(t.logical)
    return f, ["add writes t1[i0, i1] at i0*8 + i1", "add reads a[i0, i1] at i0*6 + i1"]


@case
def transposed_tile_with_swizzle() -> Built:
    f = ig.Fusion("f")
    t = ig.copy(f.input("a", (64, 64)))
    u = f.output(t.T)
    u.split(1, 8).split(0, 8).reorder({1: 2})
    ig.schedule.like(f, u)
    for x, way in ((u, (2, 3)), (t, (3, 2))):
        x.parallelize(0, "blockIdx.y").parallelize(1, "blockIdx.x")
        x.parallelize(way[0], "threadIdx.y").parallelize(way[1], "threadIdx.x")
    loops = t.loop
    t.swizzle("xor", 2, 3)
    t.set_allocation(t.loop).set_loop(loops)
    t.inline(2).set_memory("shared")
    return f, [
        "copy writes t1[i1*8 + i3, i0*8 + i2] at i2*8 + (i2 ^ i3) (shared)",
        "copy reads a[i1*8 + i3, i0*8 + i2] at i0*8 + i1*512 + i2 + i3*64",
        "permute writes t2[i0*8 + i2, i1*8 + i3] at i0*512 + i1*8 + i2*64 + i3",
        "permute reads t1[i1*8 + i3, i0*8 + i2] at i2*8 + (i2 ^ i3) (shared)",
    ]


@case
def cyclic_swizzle_of_loops() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (6, 5)) + 1.0)
    t.swizzle("cyclic", 0, 1)
    return f, [
        "add writes t1[i0, (i1 - i0)%5] at i0*5 + (i1 - i0)%5",
        "add reads a[i0, (i1 - i0)%5] at i0*5 + (i1 - i0)%5",
    ]


@case
def symbolic_rows_split() -> Built:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    t = f.output(f.input("a", (n, 8)) + 1.0)
    t.split(0, 4)
    return f, [
        "add writes t1[i0*4 + i1, i2] at i0*32 + i1*8 + i2 if i0*4 + i1 < n",
        "add reads a[i0*4 + i1, i2] at i0*32 + i1*8 + i2 if i0*4 + i1 < n",
    ]


@case
def symbolic_flattened() -> Built:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    t = f.output(f.input("a", (n, 8)) + 1.0)
    t.merge(0)
    return f, ["add writes t1[i0//8, i0%8] at i0", "add reads a[i0//8, i0%8] at i0"]


@case
def symbolic_multiple_needs_no_bound() -> Built:
    f = ig.Fusion("f")
    n = f.symbol("n", min=4, multiple_of=4)
    t = f.output(f.input("a", (n,)) + 1.0)
    t.split(0, 4)
    return f, ["add writes t1[i0*4 + i1] at i0*4 + i1", "add reads a[i0*4 + i1] at i0*4 + i1"]


@case
def symbolic_halves_rotated() -> Built:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    a = f.input("a", (2 * n,))
    f.output(ig.cat([a[n:], a[:n]], 0))
    return f, [
        "slice writes t1[i0] at i0",
        "slice reads a[i0 + n] at i0 + n",
        "slice writes t2[i0] at i0",
        "slice reads a[i0] at i0",
        "cat writes t3[i0] at i0",
        "cat reads t1[i0] at i0 if i0 < n",
        "cat reads t2[i0 - n] at i0 - n if n <= i0",
    ]


@case
def gather_of_rows() -> Built:
    f = ig.Fusion("f")
    x, i = f.input("x", (9, 8)), f.input("i", (5,), dtype="int64")
    f.output(ig.index_select(x, 0, i))
    return f, [
        "index_select writes t2[i0, i1] at i0*8 + i1",
        "index_select reads x[ld1, i1] at i1 + ld1*8",
        "index_select reads i[i0] at i0",
    ]


@case
def padded_loop_hidden_behind_one_element() -> Built:
    f = ig.Fusion("f")
    t = f.output(f.input("a", (1, 5)) + 1.0)
    t.split(0, 8).merge(1)
    return f, ["add writes t1[0, i1%5] at i1%5 if i1 < 5", "add reads a[0, i1%5] at i1%5 if i1 < 5"]


@pytest.mark.parametrize("name", list(CASES))
def test_printed_indices(name: str) -> None:
    """The closed forms, and the oracle's agreement."""
    f, expected = CASES[name]()
    assert lines(f) == expected
    symbols = dict.fromkeys(f.symbols, 12)
    assert check_addresses(f, symbols=symbols).ok
