"""Indices and predicates as Inductor, TVM and CuTe write them, rebuilt here: equal as functions, and never larger.

Inductor flattens the output into one loop and reads each input through divisions and modulos; TVM splits, fuses, binds
and guards with likely predicates; a CuTe layout maps a coordinate (colexicographic if it is one number) to an offset.

Long: a list of cases, each short.
"""

from __future__ import annotations

import pytest

import idgraph as ig
from tests.index.expected import Case, case, judged
from tests.index.expected import Expected as E

CASES: dict[str, Case] = {}


def inlined(f: ig.Fusion, t: ig.Tensor) -> None:
    """Every other tensor computed in the loops of ``t``."""
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


def flat(f: ig.Fusion, t: ig.Tensor) -> None:
    """One loop over the whole output."""
    while len(t.loop) > 1:
        t.merge(0)
    inlined(f, t)


# ---- Inductor: one flat loop ----------------------------------------------------------------------------------------
@case(
    CASES,
    "Inductor, permute and contiguous: the flat loop taken apart by three extents",
    E("t", "x", "i0//24*24 + i0//6%4 + 4*(i0%6)", "True"),
    E("t", "t", "i0", "True"),
)
def permuted_to_contiguous(f: ig.Fusion) -> None:
    flat(f, f.output(ig.permute(f.input("x", (3, 6, 4)), 0, 2, 1, name="t")))


@case(
    CASES,
    "Inductor, transposed then viewed as one axis: a reading that no stride can say",
    E("u", "x", "6*(i0%4) + i0//4", "True"),
    E("t", "t", "i0", "True"),
)
def transposed_and_viewed(f: ig.Fusion) -> None:
    u = ig.transpose(f.input("x", (4, 6)), 0, 1, name="u")
    flat(f, f.output(ig.reshape(u, 24, name="t")))


@case(
    CASES,
    "Inductor, pixel shuffle by 2: channels become a square of neighbours",
    E("u", "x", "(i0//8%2*2 + i0//1%2)*(3*4) + i0//16*4 + i0//2%4", "True"),
)
def pixel_shuffle(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (4, 3, 4)), 2, 2, 3, 4, name="u")
    v = ig.permute(u, 2, 0, 3, 1, name="v")
    flat(f, f.output(ig.reshape(v, 6, 8, name="t")))


@case(
    CASES,
    "Inductor, channel shuffle: groups and channels exchanged",
    E("t", "t", "i0", "True"),
    E("u", "x", "(i0//5%2*3 + i0//10)*5 + i0%5", "True"),
)
def channel_shuffle(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (6, 5)), 2, 3, 5, name="u")
    flat(f, f.output(ig.reshape(ig.transpose(u, 0, 1, name="v"), 6, 5, name="t")))


@case(
    CASES,
    "Inductor, cat: each input is read under its mask, the second shifted back",
    E("t", "a", "i0//12*5 + i0%12", "i0%12 < 5", only_inside=True),
    E("t", "b", "i0//12*7 + (i0%12 - 5)", "i0%12 >= 5", only_inside=True),
)
def concatenated_columns(f: ig.Fusion) -> None:
    flat(f, f.output(ig.cat([f.input("a", (4, 5)), f.input("b", (4, 7))], 1, name="t")))


@case(
    CASES,
    "Inductor, constant pad: coordinates shifted by the pad, masked on both sides",
    E(
        "t", "x",
        "(i0//8 - 1)*5 + (i0%8 - 2)",
        "(i0//8 >= 1) & (i0//8 < 5) & (i0%8 >= 2) & (i0%8 < 7)",
        only_inside=True,
    ),
)  # fmt: skip
def padded_plane(f: ig.Fusion) -> None:
    flat(f, f.output(ig.pad(f.input("x", (4, 5)), (2, 1, 1, 2), name="t")))


@case(CASES, "Inductor, roll: a modulo of the shifted column", E("t", "x", "i0//9*9 + (i0%9 + 9 - 2)%9", "True"))
def rolled_columns(f: ig.Fusion) -> None:
    flat(f, f.output(ig.roll(f.input("x", (4, 9)), 2, 1, name="t")))


@case(CASES, "Inductor, flip of both axes: one subtraction from the last element", E("t", "x", "35 - i0", "True"))
def flipped_plane(f: ig.Fusion) -> None:
    flat(f, f.output(ig.flip(f.input("x", (4, 9)), (0, 1), name="t")))


@case(CASES, "Inductor, nearest upsampling by 2: halves of both coordinates", E("r", "x", "i0//16*4 + i0%8//2", "True"))
def upsampled(f: ig.Fusion) -> None:
    u = ig.unsqueeze(ig.unsqueeze(f.input("x", (3, 4)), 1, name="r"), 3, name="u")
    e = ig.expand(u, 3, 2, 4, 2, name="e")
    flat(f, f.output(ig.reshape(e, 6, 8, name="t")))


@case(
    CASES,
    "Inductor, stack on a new last axis (interleaved RoPE): parity chooses the operand",
    E("t2", "a", "i0//2", "i0%2 < 1", only_inside=True),
    E("t3", "b", "i0//2", "i0%2 >= 1", only_inside=True),
    E("t", "t3", axes=("i0//8", "i0//2%4", "0"), when="i0%2 >= 1"),
)
def stacked_pairs(f: ig.Fusion) -> None:
    flat(f, f.output(ig.stack([f.input("a", (3, 4)), f.input("b", (3, 4))], 2, name="t")))


@case(
    CASES,
    "Inductor, QKV cut and heads moved forward: an offset of one third and the flat loop's parts",
    E("k", "x", "i0%20//4*36 + i0//20*4 + i0%4 + 12", "True"),
    E("t", "t", "i0", "True"),
)
def key_heads(f: ig.Fusion) -> None:
    k = ig.slice(f.input("x", (5, 36)), 1, 12, 24, name="k")
    t = f.output(ig.permute(ig.reshape(k, 5, 3, 4, name="h"), 1, 0, 2, name="t"))
    flat(f, t)


@case(
    CASES,
    "Inductor, a long sum in two levels: the last part masked by the true length",
    E("t", "x", "i0*143 + i1", "i0*143 + i1 < 1000"),
)
def sum_in_parts(f: ig.Fusion) -> None:
    f.output(ig.sum(f.input("x", (1000,)), 0, name="t")).split(0, 7, inner=False)


@case(
    CASES,
    "Inductor, dynamic shapes: a transposed read under symbols keeps one division and one modulo",
    E("t", "x", "i0//s0 + s1*(i0%s0)", "True"),
    E("t", "t", "i0", "True"),
    s0=(3, 5), s1=(4, 7),
)  # fmt: skip
def transposed_under_symbols(f: ig.Fusion) -> None:
    s0, s1 = f.symbol("s0", min=1), f.symbol("s1", min=1)
    flat(f, f.output(ig.transpose(f.input("x", (s0, s1)), 0, 1, name="t")))


@case(
    CASES,
    "Inductor, dynamic shapes: cat of two symbolic lengths",
    E("t", "a", "i0", "i0 < s0"),
    E("t", "b", "i0 - s0", "i0 >= s0"),
    s0=(3, 5), s1=(4, 7),
)  # fmt: skip
def concatenated_under_symbols(f: ig.Fusion) -> None:
    a, b = f.input("a", (f.symbol("s0", min=1),)), f.input("b", (f.symbol("s1", min=1),))
    f.output(ig.cat([a, b], 0, name="t"))


# ---- TVM: split, fuse, bind, compute at -----------------------------------------------------------------------------
@case(
    CASES,
    "TVM, matrix tiled 32 by 32 with remainders on both axes: one likely predicate each, none repeated",
    E("t", "x", "(i0*32 + i2)*50 + (i1*32 + i3)", "(i0*32 + i2 < 70) & (i1*32 + i3 < 50)"),
)
def tiles_with_remainders(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (70, 50)), name="t"))
    t.split(1, 32).split(0, 32).reorder({1: 2})


@case(
    CASES,
    "TVM, fused and bound to 256 threads: the bound is that of the fused loop alone",
    E("t", "x", "(i0*256 + i1)//35*40 + (i0*256 + i1)%35", "i0*256 + i1 < 700"),
    E("t", "t", "i0*256 + i1", "i0*256 + i1 < 700", axes=("(i0*256 + i1)//35", "(i0*256 + i1)%35")),
)
def fused_and_bound(f: ig.Fusion) -> None:
    t = f.output(ig.exp(f.input("x", (20, 35), strides=(40, 1)), name="t"))
    t.merge(0).split(0, 256).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")


@case(CASES, "TVM, split by nparts where it divides: no likely", E("t", "x", "i0*8 + i1", "True"))
def split_by_parts(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (64,)), name="t")).split(0, 8, inner=False)


@case(
    CASES,
    "TVM, buffer with symbolic strides and element offset",
    E("t", "x", "i0*stride0_0 + i1*stride0_1 + 7", "True"),
    stride0_0=(9, 20), stride0_1=(1, 3),
)  # fmt: skip
def strided_buffer_with_offset(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (4, 6), contiguity=(False, False), offset=7), name="t"))


@case(
    CASES,
    "TVM, transform_layout NCHW to NCHW4c",
    E("t", "t", "((i0*3 + i1//4)*5 + i2)*24 + i3*4 + i1%4", "True"),
    E("t", "x", "((i0*12 + i1)*5 + i2)*6 + i3", "True"),
)
def packed_channels(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (2, 12, 5, 6)), name="t"))
    loops = t.loop
    t.split(1, 4).reorder({2: 4})
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "TVM, transform_layout of loops too: packed channels as the innermost loop",
    E("t", "t", "((i0*3 + i1)*5 + i2)*24 + i3*4 + i4", "True"),
    E("t", "x", "((i0*12 + i1*4 + i4)*5 + i2)*6 + i3", "True"),
)
def packed_channels_as_loops(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (2, 12, 5, 6)), name="t"))
    t.split(1, 4).reorder({2: 4})
    t.set_allocation(t.loop)


@case(
    CASES,
    "TVM, compute_at of a padded producer: where inside, the input at the shifted place",
    E("p", "x", "i0*8 + i1 - 1", "(i0*8 + i1 >= 1) & (i0*8 + i1 < 31)"),
    E("t", "p", "i1"),
    E("t", "t", "i0*8 + i1", "i0*8 + i1 < 32"),
)
def padded_producer_computed_at(f: ig.Fusion) -> None:
    p = ig.pad(f.input("x", (30,)), (1, 1), name="p")
    t = f.output(ig.exp(p, name="t"))
    t.split(0, 8)
    ig.schedule.like(f, t)
    p.inline(1).set_memory("local")


@case(
    CASES,
    "TVM, cache_read in shared memory: the tile indexed by its threads, the global side by block and thread",
    E("s", "x", "(i0*16 + i2)*128 + i1*16 + i3", "True"),
    E("s", "s", "i2*16 + i3", "True"),
    E("t", "s", "i3*16 + i2", "True"),
    E("t", "t", "(i1*16 + i2)*64 + i0*16 + i3", "True"),
)
def shared_tile_transposed(f: ig.Fusion) -> None:
    s = ig.copy(f.input("x", (64, 128)), name="s")
    t = f.output(ig.transpose(s, 0, 1, name="t"))
    s.split(1, 16).split(0, 16).reorder({1: 2})
    t.split(1, 16).split(0, 16).reorder([2, 0, 1, 3])
    for u in (s, t):
        for n, way in enumerate(("blockIdx.x", "blockIdx.y", "threadIdx.y", "threadIdx.x")):
            u.parallelize(n, way)
    s.inline(2).set_memory("shared")


@case(
    CASES,
    "TVM, vectorised by 4 with a tail: the predicate of lane i2, no other",
    E("t", "x", "(i0*32 + i1)*4 + i2", "i0*128 + i1*4 + i2 < 1001"),
)
def vector_with_a_tail(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (1001,)), name="t")).split(0, 4).split(0, 32)


@case(
    CASES,
    "TVM, rfactor: the factored axis outside, each part summed by itself",
    E("p", "x", "i0*16 + i1", "True"),
    E("t", "p", "i0", "True"),
)
def factored_sum(f: ig.Fusion) -> None:
    x = ig.reshape(f.input("x0", (128,)), 8, 16, name="x")
    f.output(ig.sum(ig.sum(x, 1, name="p"), 0, name="t"))


@case(
    CASES,
    "TVM, symbolic extent split by a multiple of it: the predicate is provably true",
    E("t", "x", "i0*4 + i1", "True"),
    n=(4, 8, 20),
)
def symbolic_multiple(f: ig.Fusion) -> None:
    n = f.symbol("n", min=4, multiple_of=4)
    f.output(ig.copy(f.input("x", (n,)), name="t")).split(0, 4)


@case(
    CASES,
    "TVM, two fused symbolic axes split by 64: one comparison with the product",
    E("t", "x", "i0*64 + i1", "i0*64 + i1 < n*m"),
    n=(3, 40), m=(5, 7),
)  # fmt: skip
def symbolic_axes_fused(f: ig.Fusion) -> None:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    f.output(ig.copy(f.input("x", (n, m)), name="t")).merge(0).split(0, 64)


# ---- CuTe: layouts --------------------------------------------------------------------------------------------------
@case(
    CASES,
    "CuTe (4,8):(8,1) at one number: colexicographic, the first mode counts fastest",
    E("t", "x", "i0%4*8 + i0//4", "True"),
    E("t", "t", "i0%4*8 + i0//4", "True"),
)
def row_major_by_one_number(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (4, 8)), name="t")).merge(1, 0)


@case(CASES, "CuTe (4,8):(1,4) at one number is the number", E("t", "x", "i0", "True"))
def column_major_by_one_number(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (4, 8), strides=(1, 4)), name="t")).merge(1, 0)


@case(
    CASES,
    "CuTe (4,(4,2)):(4,(1,16)): two tiles of four columns beside each other",
    E("t", "t", "i0*4 + i1%4 + i1//4*16", "True"),
)
def tiled_columns(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (4, 8)), name="t"))
    loops = t.loop
    t.split(1, 4).reorder({1: 0})
    t.set_allocation(t.loop).set_loop(loops)


@case(CASES, "CuTe (5,4):(8,2) is 20:2 composed with (5,4):(4,1)", E("t", "x", "i0*8 + i1*2", "True"))
def composed_with_a_stride(f: ig.Fusion) -> None:
    f.output(ig.reshape(f.input("x", (20,), strides=(2,)), 5, 4, name="t"))


@case(
    CASES,
    "CuTe (10,2):(16,4) composed with (5,4):(1,5) is (5,(2,2)):(16,(80,4))",
    E("t", "u", axes=("i0*5 + i1",)),
    E("u", "x", "i0//5%2*80 + i0//5//2*4 + i0%5*16", "True"),
)
def composed_in_two_modes(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (2, 10), strides=(4, 16)), 20, name="u")
    f.output(ig.reshape(u, 4, 5, name="t"))


@case(
    CASES,
    "CuTe logical_divide of 24 by 4:2: every second element of eight makes a tile",
    E("t", "x", "i0*2 + i1 + i2*8", "True"),
)
def divided_with_a_stride(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (24,)), name="t")).split(0, 8).split(1, 2).reorder([1, 2, 0])


@case(
    CASES,
    "CuTe zipped_divide of (8,16):(16,1) by (4,4): tile coordinates outside, offsets inside",
    E("t", "x", "i0*64 + i1*4 + i2*16 + i3", "True"),
)
def zipped_divide(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (8, 16)), name="t"))
    t.split(1, 4).split(0, 4).reorder({1: 2})


@case(
    CASES,
    "CuTe, C fragment of a 16x8 MMA: 32 threads of (8,4), values of (2,2)",
    E("t", "x", "(i0//4 + i1//2*8)*8 + i0%4*2 + i1%2", "True", axes=("i0//4 + i1//2*8", "i0%4*2 + i1%2")),
)
def accumulator_fragment(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (16, 8)), name="t"))
    t.split(1, 2).split(0, 8).reorder([1, 2, 0, 3]).merge(0).merge(1)
    t.parallelize(0, "threadIdx.x")


@case(CASES, "CuTe raked product: threads take neighbouring elements in turn", E("t", "x", "i1*32 + i0", "True"))
def raked_threads(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (128,)), name="t")).split(0, 32).reorder({0: 1}).parallelize(0, "threadIdx.x")


@case(
    CASES,
    "CuTe Swizzle<3,3,3> of (8,64):(64,1): eights of a row exchanged by the row",
    E("t", "t", "i0*64 + ((i1//8) ^ i0)*8 + i1%8", "True"),
)
def swizzled_eights(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (8, 64)), name="t"))
    loops = t.loop
    t.split(1, 8).swizzle("xor", 0, 1)
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "CuTe Swizzle<2,3,3> of (8,32):(32,1): fours of eights exchanged by pairs of rows",
    E("t", "t", "i0*32 + ((i1//8) ^ (i0//2))*8 + i1%8", "True"),
)
def swizzled_by_pairs_of_rows(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (8, 32)), name="t"))
    loops = t.loop
    t.split(1, 8).split(0, 2).swizzle("xor", 0, 2)
    t.set_allocation(t.loop).set_loop(loops)


@pytest.mark.parametrize("name", list(CASES))
def test_as_expected(name: str) -> None:
    """Equal at every point, not costlier; and every access as the oracle has it."""
    assert judged(name, CASES[name]) == [], CASES[name].source
