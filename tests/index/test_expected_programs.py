"""Indices of whole chains of operations as XLA, TVM, Halide and pack and shuffle operators define them, rebuilt here.

XLA composes the maps of a fusion's operations from its output to each input; here the same maps come from loops that
all operations share. TVM's iterator maps are fusions and splits of loops; a Halide split is guarded where it leaves a
remainder. Both sides are compared as functions at every point, and ours must not cost more.

Long: a list of cases, each short.
"""

from __future__ import annotations

import pytest

import idgraph as ig
from tests.index.expected import Case, case, judged
from tests.index.expected import Expected as E

CASES: dict[str, Case] = {}


def together(f: ig.Fusion, t: ig.Tensor) -> None:
    """Every other tensor computed in the loops of ``t``: nothing is stored on the way."""
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    assert all(u.inline_position for u in f.tensors if u.definition is not None and u.uses)


def named(t: ig.Tensor, name: str) -> ig.Tensor:
    t.name = name
    return t


# ---- XLA: from the output of a fusion to its inputs ----------------------------------------------------------------
@case(CASES, "XLA, broadcast of the middle dimension", E("v", "x", axes=("i1",), when="True"))
def broadcast_to_the_middle(f: ig.Fusion) -> None:
    v = ig.reshape(f.input("x", (6,)), 1, 6, 1, name="v")
    together(f, f.output(ig.expand(v, 5, 6, 4, name="t")))


@case(
    CASES,
    "XLA, concatenate of three: each is read in its own range, shifted by what stands before it",
    E("t", "a", axes=("i0", "i1", "i2"), when="i1 < 5", only_inside=True),
    E("t", "b", axes=("i0", "i1 - 5", "i2"), when="(i1 >= 5) & (i1 < 16)", only_inside=True),
    E("t", "c", axes=("i0", "i1 - 16", "i2"), when="i1 >= 16", only_inside=True),
)
def concatenated_three(f: ig.Fusion) -> None:
    parts = [f.input(name, (2, n, 3)) for name, n in zip("abc", (5, 11, 17), strict=True)]
    f.output(ig.cat(parts, 1, name="t"))


@case(CASES, "XLA, slice with strides", E("t", "x", axes=("i0 + 5", "i1*7 + 3", "i2*2"), when="True"))
def sliced_with_strides(f: ig.Fusion) -> None:
    f.output(named(f.input("x", (10, 20, 50))[5:10, 3:20:7, 0:50:2], "t"))


@case(CASES, "XLA, reverse of two dimensions of four", E("t", "x", axes=("i0", "16 - i1", "8 - i2", "i3"), when="True"))
def reversed_in_two(f: ig.Fusion) -> None:
    f.output(ig.flip(f.input("x", (1, 17, 9, 9)), (1, 2), name="t"))


@case(
    CASES,
    "XLA, reduce of a broadcast: the broadcast dimensions disappear, reduced or not",
    E("v", "x", axes=("i0", "i2"), when="True"),
)
def reduced_broadcast(f: ig.Fusion) -> None:
    v = ig.reshape(f.input("x", (5, 4)), 5, 1, 4, 1, name="v")
    together(f, f.output(ig.amax(ig.expand(v, 5, 3, 4, 6), (1, 2), name="t")))


@case(
    CASES,
    "XLA, two transposes one after the other, on both sides of an add: one map",
    E("l1", "x", axes=("i2", "i0", "i1"), when="True"),
    E("r1", "x", axes=("i2", "i0", "i1"), when="True"),
)
def transposed_twice(f: ig.Fusion) -> None:
    x = f.input("x", (4, 3, 5))
    left = ig.permute(ig.exp(ig.permute(x, 1, 0, 2, name="l1")), 0, 2, 1)
    right = ig.permute(ig.exp(ig.permute(x, 2, 1, 0, name="r1")), 1, 0, 2)
    together(f, f.output(left + right))


@case(CASES, "XLA, reduce of a strided slice", E("s", "x", axes=("i0 + 5", "i1*2", "i2*3 + 50"), when="True"))
def reduced_slice(f: ig.Fusion) -> None:
    s = named(f.input("x", (24, 16, 90))[5:21, 0:16:2, 50:86:3], "s")
    f.output(ig.amax(s, (0, 2)))


@case(CASES, "XLA, collapse of expand: nothing is left of either", E("u", "x", "i0", "True"))
def collapsed_after_expanding(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (128,)), 8, 16, name="u")
    together(f, f.output(ig.reshape(u, 128, name="t")))


@case(CASES, "XLA, expand of collapse: coordinates are the coordinates", E("u", "x", axes=("i0", "i1"), when="True"))
def expanded_after_collapsing(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (8, 16)), 128, name="u")
    together(f, f.output(ig.reshape(u, 8, 16, name="t")))


@case(
    CASES,
    "XLA, chained reshapes that share no boundary: coordinates are the coordinates",
    E("u", "x", axes=("i0", "i1", "i2"), when="True"),
)
def chained_reshapes(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (10, 10, 10)), 50, 20, name="u")
    together(f, f.output(ig.reshape(u, 10, 10, 10, name="t")))


@case(
    CASES,
    "XLA, slice of slice: starts and strides composed",
    E("s", "x", axes=("i0*2 + 8", "i1*6 + 8", "i2*12 + 65"), when="True"),
)
def sliced_slice(f: ig.Fusion) -> None:
    s = named(f.input("x", (21, 64, 140))[5:21, 0:64:2, 50:134:3], "s")
    together(f, f.output(named(s[3:16:2, 4:30:3, 5:28:4], "t")))


@case(
    CASES,
    "XLA, strided slice over all parts of a concatenate: each part has a range of steps",
    E("w", "a", axes=("i0", "i1*3", "i2"), when="i1 < 2", only_inside=True),
    E("w", "b", axes=("i0", "i1*3 - 5", "i2"), when="(i1 >= 2) & (i1 < 6)", only_inside=True),
    E("w", "c", axes=("i0", "i1*3 - 16", "i2"), when="i1 >= 6", only_inside=True),
)
def sliced_concatenate(f: ig.Fusion) -> None:
    parts = [f.input(name, (2, n, 3)) for name, n in zip("abc", (5, 11, 17), strict=True)]
    w = ig.cat(parts, 1, name="w")
    together(f, f.output(ig.slice(w, 1, 0, 33, 3, name="t")))


@case(
    CASES,
    "XLA, slice of one part of a concatenate: the other parts are known to be empty",
    E("w", "a", axes=("i0", "i1*2", "i2"), when="True"),
    E("w", "b", when="False"),
    E("w", "c", when="False"),
)
def sliced_from_the_first_part(f: ig.Fusion) -> None:
    parts = [f.input(name, (2, n, 3)) for name, n in zip("abc", (5, 11, 17), strict=True)]
    w = ig.cat(parts, 1, name="w")
    together(f, f.output(ig.slice(w, 1, 0, 5, 2, name="t")))


@case(
    CASES,
    "XLA, reshape of a concatenate: one condition on the flat index for each part",
    E("w", "a", "i0*8 + i1", "i0*8 + i1 < 2", only_inside=True),
    E("w", "b", "i0*8 + i1 - 2", "i0*8 + i1 >= 2"),
)
def reshaped_concatenate(f: ig.Fusion) -> None:
    w = ig.cat([f.input("a", (2,)), f.input("b", (30,))], 0, name="w")
    together(f, f.output(ig.reshape(w, 4, 8, name="t")))


@case(
    CASES,
    "XLA, reshape that collapses two and expands one",
    E("t", "x", axes=("i0//8", "i0%8", "i1*4 + i2"), when="True"),
)
def collapsed_and_expanded(f: ig.Fusion) -> None:
    f.output(ig.reshape(f.input("x", (4, 8, 12)), 32, 3, 4, name="t"))


@case(
    CASES,
    "XLA, generic reshape of two dimensions to three",
    E("t", "x", axes=("i0*2 + i1//2", "i1%2*4 + i2"), when="True"),
)
def two_dimensions_to_three(f: ig.Fusion) -> None:
    f.output(ig.reshape(f.input("x", (4, 8)), 2, 4, 4, name="t"))


@case(
    CASES,
    "XLA, generic reshape of three dimensions to two",
    E("t", "x", axes=("i0//2", "i0%2*2 + i1//4", "i1%4"), when="True"),
)
def three_dimensions_to_two(f: ig.Fusion) -> None:
    f.output(ig.reshape(f.input("x", (2, 4, 4)), 4, 8, name="t"))


@case(
    CASES,
    "XLA, pad of the rows: shifted, and read in a range only",
    E("t", "x", axes=("i0 - 1", "i1"), when="(i0 >= 1) & (i0 < 3)", only_inside=True),
)
def padded_rows(f: ig.Fusion) -> None:
    f.output(ig.pad(f.input("x", (2, 8)), (0, 0, 1, 7), name="t"))


@case(
    CASES,
    "XLA, pad between the elements and around them: every second place, halved",
    E("p", "u", axes=("(i0 - 1)//2", "0"), when="(i0 >= 1) & (i0 < 8) & (i0%2 >= 1)", only_inside=True),
)
def padded_between(f: ig.Fusion) -> None:
    u = ig.unsqueeze(f.input("x", (4,)), 1, name="u")
    spread = ig.reshape(ig.pad(u, (0, 1), name="p"), 8)
    together(f, f.output(ig.pad(spread[:7], (1, 4), name="t")))


@case(
    CASES,
    "XLA, pad between the elements, cut on both sides",
    E("p", "u", axes=("(i0 + 3)//2", "0"), when="i0%2 >= 1", only_inside=True),
)
def padded_between_and_cut(f: ig.Fusion) -> None:
    u = ig.unsqueeze(f.input("x", (7,)), 1, name="u")
    spread = ig.reshape(ig.pad(u, (0, 1), name="p"), 14)
    together(f, f.output(named(spread[:13][3:8], "t")))


# ---- TVM: iterator maps --------------------------------------------------------------------------------------------
@case(
    CASES,
    "TVM iterator map, compound: parts of x and y fused across each other, the rest of x inside",
    E("t", "x", axes=("i0//3%2*5 + i1", "i0//6*3 + i0%3"), when="True"),
)
def fused_across(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (10, 9)), name="t"))
    t.split(1, 3).split(0, 5).reorder([2, 0, 3, 1]).merge(0).merge(0)


@case(
    CASES,
    "TVM iterator map, one axis taken apart by 6 and by 2",
    E("t", "t", axes=("i0//6", "i0//2%3", "i0%2"), when="True"),
    E("t", "x", "i0", "True"),
)
def taken_apart_twice(f: ig.Fusion) -> None:
    t = f.output(ig.reshape(f.input("x", (24,)), 4, 3, 2, name="t"))
    t.merge(0).merge(0)


@case(
    CASES,
    "TVM iterator map, symbolic: quotient and remainder by the inner extent",
    E("t", "x", axes=("i0//c0", "i0%c0"), when="True"),
    c0=(3, 7), c1=(2, 5),
)  # fmt: skip
def symbolic_quotient(f: ig.Fusion) -> None:
    c0, c1 = f.symbol("c0", min=1), f.symbol("c1", min=1)
    f.output(ig.exp(f.input("x", (c1, c0)), name="t")).merge(0)


@case(
    CASES,
    "TVM iterator map, symbolic factor with a base of one row",
    E("t", "x", "(i0 + 1)*c + i1", "True"),
    c=(1, 3, 8),
)
def symbolic_factor_with_a_base(f: ig.Fusion) -> None:
    x = f.input("x", (6, f.symbol("c", min=1)))
    f.output(ig.slice(x, 0, 1, 5, name="t"))


@case(
    CASES, "TVM iterator map, simple stride pattern under a symbol", E("t", "x", "i0*2*c0 + i1*2", "True"), c0=(1, 4, 5)
)
def symbolic_strides(f: ig.Fusion) -> None:
    x = f.input("x", (3, f.symbol("c0", min=1) * 2))
    f.output(ig.slice(x, 1, 0, None, 2, name="t"))


@case(
    CASES,
    "TVM iterator map, twice the index divided by four and its remainder",
    E("s", "u", axes=("i0*2",)),
    E("u", "x", axes=("i0//2", "i0%2*2"), when="True"),
)
def twice_the_index(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (4, 4)), 16, name="u")
    together(f, f.output(ig.slice(u, 0, 0, 16, 2, name="s")))


# ---- Halide: splits with tails, fused tiles ------------------------------------------------------------------------
@case(
    CASES,
    "Halide, split by 8 guarded with a condition, inner part vectorised",
    E("t", "x", "i0*8 + i1", "i0*8 + i1 < n"),
    n=(1, 8, 13, 40),
)
def guarded_split(f: ig.Fusion) -> None:
    f.output(ig.exp(f.input("x", (f.symbol("n", min=1),)), name="t")).split(0, 8).parallelize(1, "vectorize")


@case(
    CASES,
    "Halide, tile 4 by 8, tile numbers fused into one parallel loop",
    E("t", "x", axes=("i0//4*4 + i1", "i0%4*8 + i2"), when="True"),
)
def fused_tiles(f: ig.Fusion) -> None:
    t = f.output(ig.exp(f.input("x", (12, 32)), name="t"))
    t.split(1, 8).split(0, 4).reorder({1: 2}).merge(0).parallelize(0, "blockIdx.x")


@case(
    CASES,
    "Halide, fused tiles with remainders in both directions: one condition for each",
    E("t", "x", axes=("i0//4*4 + i1", "i0%4*8 + i2"), when="(i0//4*4 + i1 < 10) & (i0%4*8 + i2 < 27)"),
)
def fused_tiles_with_remainders(f: ig.Fusion) -> None:
    t = f.output(ig.exp(f.input("x", (10, 27)), name="t"))
    t.split(1, 8).split(0, 4).reorder({1: 2}).merge(0)


@case(
    CASES,
    "Halide, reorder_storage: columns beside each other in memory, rows in the loops",
    E("t", "x", "i0*6 + i1", "True"),
    E("t", "t", "i0 + i1*5", "True"),
)
def storage_reordered(f: ig.Fusion) -> None:
    t = f.output(ig.exp(f.input("x", (5, 6)), name="t"))
    t.set_allocation([t.logical[1], t.logical[0]])


# ---- packing, unpacking and shuffles -------------------------------------------------------------------------------
@case(
    CASES,
    "MLIR pack with padding: outer tiles, inner tiles, zero where the tile leaves the matrix",
    E("p", "x", axes=("i0*8 + i2", "i1*2 + i3"), when="(i0*8 + i2 < 13) & (i1*2 + i3 < 15)"),
)
def packed_with_padding(f: ig.Fusion) -> None:
    p = ig.pad(f.input("x", (13, 15)), (0, 1, 0, 3), name="p")
    t = ig.permute(ig.reshape(p, 2, 8, 8, 2), 0, 2, 1, 3, name="t")
    together(f, f.output(t))


@case(
    CASES,
    "MLIR unpack: tile and place in the tile of each coordinate, the padding left out",
    E("u", "x", "i0//8*128 + i1//2*16 + i0%8*2 + i1%2", "True"),
)
def unpacked(f: ig.Fusion) -> None:
    u = ig.permute(f.input("x", (2, 8, 8, 2)), 0, 2, 1, 3, name="u")
    together(f, f.output(named(ig.reshape(u, 16, 16)[:13, :15], "t")))


@case(CASES, "im2col as a view of overlapping windows: position plus tap", E("t", "x", "i0 + i1", "True"))
def windows_of_a_row(f: ig.Fusion) -> None:
    f.output(ig.copy(f.input("x", (6, 3), strides=(1, 1)), name="t"))


@case(
    CASES,
    "ONNX depth to space, DCR: the block's place is the slower part of the channel",
    E("u", "x", axes=("(i1%2*2 + i2%2)*3 + i0", "i1//2", "i2//2"), when="True"),
)
def depth_to_space_dcr(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (12, 2, 5)), 2, 2, 3, 2, 5, name="u")
    together(f, f.output(ig.reshape(ig.permute(u, 2, 3, 0, 4, 1), 3, 4, 10, name="t")))


@case(
    CASES,
    "ONNX depth to space, CRD: the block's place is the faster part of the channel",
    E("u", "x", axes=("i0*4 + i1%2*2 + i2%2", "i1//2", "i2//2"), when="True"),
)
def depth_to_space_crd(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (12, 2, 5)), 3, 2, 2, 2, 5, name="u")
    together(f, f.output(ig.reshape(ig.permute(u, 0, 3, 1, 4, 2), 3, 4, 10, name="t")))


@case(
    CASES,
    "ONNX space to depth: channel divided by the channels is the place in the block",
    E("u", "x", axes=("i0%3", "i1*2 + i0//6", "i2*2 + i0//3%2"), when="True"),
)
def space_to_depth(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (3, 4, 10)), 3, 2, 2, 5, 2, name="u")
    together(f, f.output(ig.reshape(ig.permute(u, 2, 4, 0, 1, 3), 12, 2, 5, name="t")))


@pytest.mark.parametrize("name", list(CASES))
def test_as_expected(name: str) -> None:
    """Equal at every point, not costlier; and every access as the oracle has it."""
    assert judged(name, CASES[name]) == [], CASES[name].source
