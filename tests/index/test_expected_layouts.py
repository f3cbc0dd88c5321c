"""Layouts, vector widths, contiguity and bank conflicts as CuTe, Triton and nvFuser state them, rebuilt here.

A CuTe layout's first mode counts fastest, so a tensor here has its axes in the opposite order. Triton's axis analysis
says how many elements in a row a pointer has and what divides it; nvFuser's tests say how wide a pad or a slice may be
vectorised, which merged axes stay contiguous, and how many ways a column of a shared tile conflicts.

Long: a list of cases, each short.
"""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir import DType
from tests.index.expected import Case, case, judged
from tests.index.expected import Expected as E

CASES: dict[str, Case] = {}


def inlined(f: ig.Fusion, t: ig.Tensor) -> None:
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)


# ---- CuTe: composition, complement, division, products, swizzles ---------------------------------------------------
@case(
    CASES,
    "CuTe (6,2):(8,2) composed with (4,3):(3,1) is ((2,2),3):((24,2),8)",
    E("u", "x", "i0%2*24 + i0//2*2 + i1*8", "True"),
)
def composed_across_modes(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (2, 6), strides=(2, 8)), 12, name="u")
    inlined(f, f.output(ig.reshape(u, 4, 3, name="t")))


def strange_columns(f: ig.Fusion, rows: int) -> ig.Tensor:
    """(rows,(4,8)):(59,(13,1)) as a matrix of 32 columns."""
    return ig.reshape(f.input("x", (rows, 8, 4), strides=(59, 1, 13)), rows, 32, name="u")


@case(
    CASES,
    "CuTe (12,(4,8)):(59,(13,1)) by <3:4, 8:2> is (3,(2,4)):(236,(26,1))",
    E("u", "x", "i0*236 + i1%2*26 + i1//2", "True"),
)
def composed_by_mode(f: ig.Fusion) -> None:
    inlined(f, f.output(strange_columns(f, 12)[0:12:4, 0:16:2]))


@case(
    CASES,
    "CuTe (12,(4,8)):(59,(13,1)) by the shape (3,8) is (3,(4,2)):(59,(13,1))",
    E("u", "x", "i0*59 + i1%4*13 + i1//4", "True"),
)
def composed_by_shape(f: ig.Fusion) -> None:
    inlined(f, f.output(strange_columns(f, 12)[:3, :8]))


@case(
    CASES,
    "CuTe logical_divide of (4,2,3):(2,1,8) by 4:2 is ((2,2),(2,3)):((4,1),(2,8))",
    E("u", "x", "i0%2*4 + i0//2 + i1%2*2 + i1//2*8", "True"),
)
def divided_across_modes(f: ig.Fusion) -> None:
    u = ig.reshape(f.input("x", (3, 2, 4), strides=(8, 1, 2)), 24, name="u")
    t = f.output(ig.copy(u, name="t"))
    t.split(0, 8).split(1, 2).reorder([1, 0, 2]).merge(1)
    inlined(f, t)


@case(
    CASES,
    "CuTe zipped_divide of (9,(4,8)):(59,(13,1)) by <3:3, (2,4):(1,8)>: tiles of strided rows and pairs of columns",
    E("u", "x", "i0*177 + i1%2*13 + i1//2*2 + i2*59 + i3%2*26 + i3//2", "True"),
)
def divided_by_mode(f: ig.Fusion) -> None:
    t = f.output(ig.copy(strange_columns(f, 9), name="t"))
    t.split(0, 3).split(2, 8).split(3, 2)  # rows of the tile, which tile; eights of columns, which pair, in the pair
    t.reorder([0, 2, 4, 1, 3]).merge(1)
    inlined(f, t)


@case(
    CASES,
    "CuTe complement of (2,2):(1,6) in 24 is (3,2):(2,12): together they visit everything once",
    E("t", "x", "i0%2 + i0//2*6 + i1%3*2 + i1//3*12", "True"),
)
def complement_of_pairs(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (24,)), name="t"))
    t.split(0, 12).split(1, 6).split(2, 2).reorder([1, 3, 0, 2]).merge(0).merge(1)


@case(CASES, "CuTe complement of (2,4):(1,6) in 24 is 3:2", E("t", "x", "i0%2 + i0//2*6 + i1*2", "True"))
def complement_of_rows(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (24,)), name="t"))
    t.split(0, 6).split(1, 2).reorder([0, 2, 1]).merge(0)


@case(CASES, "CuTe (2,(1,6)):(1,(6,2)) coalesces to 12:1", E("t", "x", "i0", "True"))
def coalesced(f: ig.Fusion) -> None:
    f.output(ig.reshape(f.input("x", (6, 1, 2), strides=(2, 6, 1)), 12, name="t"))


@case(
    CASES,
    "CuTe logical_product of (2,2):(4,1) by 6:1 is ((2,2),(2,3)):((4,1),(2,8))",
    E("t", "t", "i0%2*4 + i0//2 + i1%2*2 + i1//2*8", "True"),
)
def repeated_tile(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (4, 6)), name="t"))
    loops = t.loop
    t.split(1, 2).split(0, 2).reorder([2, 1, 3, 0])
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "CuTe blocked_product of a 2x5 row-major tile over 3x4 column-major tiles",
    E("t", "t", "i0%2*5 + i0//2*10 + i1%5 + i1//5*30", "True"),
)
def blocked_product(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (6, 20)), name="t"))
    loops = t.loop
    t.split(1, 5).split(0, 2).reorder([2, 0, 1, 3])
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "CuTe raked_product of the same: elements of a tile lie apart, tiles are interleaved",
    E("t", "t", "i0%3*10 + i0//3*5 + i1%4*30 + i1//4", "True"),
)
def raked_product(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (6, 20)), name="t"))
    loops = t.loop
    t.split(1, 4).split(0, 3).reorder([3, 1, 0, 2])
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "CuTe Swizzle<2,2,3> of (8,32):(32,1): fours of half a row exchanged by the row",
    E("t", "t", "i0*32 + i1//16*16 + ((i1//4%4) ^ (i0%4))*4 + i1%4", "True"),
)
def swizzled_fours(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (8, 32)), name="t"))
    loops = t.loop
    t.split(1, 4).split(1, 4).split(0, 4).swizzle("xor", 1, 3)
    t.set_allocation(t.loop).set_loop(loops)


@case(
    CASES,
    "CuTe, A fragment of a 16x16 MMA: pairs of columns, then rows 8 apart, then columns 8 apart",
    E("t", "x", axes=("i0//4 + i1//2%2*8", "i0%4*2 + i1%2 + i1//4*8"), when="True"),
)
def operand_fragment(f: ig.Fusion) -> None:
    t = f.output(ig.copy(f.input("x", (16, 16)), name="t"))
    t.split(1, 8).split(2, 2).split(0, 8)  # rows: half, in the half; columns: half, pair, in the pair
    t.reorder([1, 3, 2, 0, 4]).merge(0).merge(1).merge(1)
    t.parallelize(0, "threadIdx.x")


@pytest.mark.parametrize("name", list(CASES))
def test_as_expected(name: str) -> None:
    """Equal at every point, not costlier; and every access as the oracle has it."""
    assert judged(name, CASES[name]) == [], CASES[name].source


# ---- widths --------------------------------------------------------------------------------------------------------
def width(f: ig.Fusion, t: ig.Tensor, x: ig.Tensor) -> int:
    """The widest vector of t's reading of x along its last loop."""
    assert t.definition is not None
    a = ig.IdModel(f).access(t.definition, x)
    return a.vector_width(len(a.loops) - 1)


@pytest.mark.parametrize(
    ("dtype", "offset", "expected"),
    [
        ("int8", 1, 1), ("bfloat16", 1, 1), ("float32", 1, 1), ("float64", 1, 1),
        ("int8", 4, 4), ("bfloat16", 4, 4), ("float32", 4, 4), ("float64", 4, 2),
    ],
)  # fmt: skip
def test_divisibility_of_a_moved_pointer(dtype: DType, offset: int, expected: int) -> None:
    """Triton: a pointer that 16 divides, moved by so many elements, is divided by their bytes at most."""
    f = ig.Fusion("f")
    x = f.input("x", (128,), dtype, offset=offset)
    assert width(f, f.output(ig.copy(x)), x) == expected


@pytest.mark.parametrize(("part", "expected"), [(64, 4), (66, 2)])
def test_contiguity_of_a_remainder(part: int, expected: int) -> None:
    """Triton: 0 to 127 modulo 64 goes on for 64 elements, modulo 66 for two."""
    f = ig.Fusion("f")
    x = f.input("x", (part,))
    t = f.output(ig.expand(ig.unsqueeze(x, 0, name="v"), 2, part, name="t"))
    t.merge(0)
    inlined(f, t)
    assert width(f, f["v"], x) == expected


def test_constancy_of_a_quotient() -> None:
    """Triton: 0 to 127 divided by 64 stays where it is for 64 elements: no step moves it by one."""
    f = ig.Fusion("f")
    x = f.input("x", (2,))
    t = f.output(ig.expand(ig.unsqueeze(x, 1, name="v"), 2, 64, name="t"))
    t.merge(0)
    inlined(f, t)
    assert width(f, f["v"], x) == 1


@pytest.mark.parametrize(
    ("left", "right", "expected"), [(2, 2, 2), (4, 2, 2), (32, 32, 16), (-2, -2, 2), (-2, -4, 2), (-2, 4, 2), (0, 4, 4)]
)
def test_vectors_through_a_pad_of_the_last_axis(left: int, right: int, expected: int) -> None:
    """nvFuser: rows of 16 padded or cut on both sides; bytes, so that 16 of them are one access."""
    f = ig.Fusion("f")
    x = f.input("x", (4, 8, 16), "int8")
    assert width(f, f.output(ig.pad(x, (left, right))), x) == expected


@pytest.mark.parametrize("amount", [2, -2])
def test_vectors_through_a_pad_of_the_middle_axis(amount: int) -> None:
    """nvFuser: two rows of 16 at each end are 32 elements, more than an access takes."""
    f = ig.Fusion("f")
    x = f.input("x", (4, 8, 16), "int8")
    t = f.output(ig.pad(x, (0, 0, amount, amount)))
    t.merge(1)
    assert width(f, t, x) == 16


def test_vectors_through_pads_of_two_axes() -> None:
    """nvFuser: rows of 32 padded by 8 on both sides, and rows added: 8, in both directions."""
    f = ig.Fusion("f")
    x = f.input("x", (4, 8, 32), "int8")
    assert width(f, f.output(ig.pad(x, (8, 8, 4, 4))), x) == 8


@pytest.mark.parametrize(
    ("pads", "expected"), [(((-6, -6), (9, 9)), 1), (((-6, -6), (8, 8)), 2), (((-4, -4), (8, 8)), 4)]
)
def test_vectors_through_stacked_pads(pads: tuple[tuple[int, int], ...], expected: int) -> None:
    """nvFuser: what two pads of one axis have in common; 3 is not a width of an access, 1 is."""
    f = ig.Fusion("f")
    x = f.input("x", (4, 8, 36), "int8")
    inner = ig.pad(x, pads[0], name="inner")
    inlined(f, f.output(ig.pad(inner, pads[1])))
    assert f["inner"].inline_position == 3
    assert width(f, inner, x) == expected


def test_vectors_of_a_row_added_to_a_matrix() -> None:
    """nvFuser: a row in the loops of the matrix, flattened and split by 4, is loaded in fours."""
    f = ig.Fusion("f")
    x = f.input("x", (1, 32))
    u = ig.copy(x, name="u")
    t = f.output(ig.add(u, f.input("y", (4, 32))))
    t.merge(0).split(0, 4)
    inlined(f, t)
    assert u.inline_position == 2 and width(f, u, x) == 4


# ---- contiguity ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("order", "contiguity", "expected"), [((0, 1), True, True), ((0, 1), (False, False), False), ((1, 0), True, False)]
)
def test_loops_upstream_of_a_split(
    order: tuple[int, int], contiguity: bool | tuple[bool, bool], expected: bool
) -> None:
    """nvFuser: a row written as [25, 4] in the loop of the row itself is contiguous if the memory is, in that order."""
    f = ig.Fusion("f")
    t = f.output(ig.reshape(f.input("x", (100,)), 25, 4))
    t.set_loop(t.root).set_allocation([t.logical[p] for p in order], contiguity=contiguity)
    assert t.definition is not None
    assert ig.IdModel(f).write(t.definition).contiguous(0) == expected


# ---- shared memory -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "expected"), [("", 32), ("xor", 1), ("cyclic", 1)])
def test_a_transposed_tile(kind: str, expected: int) -> None:
    """nvFuser: reading a 32 by 32 tile by columns conflicts 32 ways, with either swizzle of it not at all."""
    f = ig.Fusion("f")
    tile = ig.copy(f.input("x", (32, 32)), name="tile")
    t = f.output(ig.transpose(tile, 0, 1))
    loops = tile.loop
    if kind:
        tile.swizzle(kind, 0, 1).set_allocation(tile.loop).set_loop(loops)
    for u in (tile, t):
        u.parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x")
    tile.set_memory("shared")
    m = ig.IdModel(f)
    assert tile.definition is not None and t.definition is not None
    assert m.write(tile.definition).bank_conflicts().ways == 1
    assert m.read(t.definition, 0).bank_conflicts().ways == expected


def test_no_vectors_along_a_swizzled_axis() -> None:
    """nvFuser: columns exchanged by the row are not a vector of memory."""
    f = ig.Fusion("f")
    tile = ig.copy(f.input("x", (4, 4)), name="tile")
    f.output(ig.copy(tile))
    loops = tile.loop
    tile.swizzle("xor", 0, 1).set_allocation(tile.loop).set_loop(loops).set_memory("shared")
    assert tile.definition is not None
    write = ig.IdModel(f).write(tile.definition)
    assert not write.contiguous(1) and write.vector_width(1) == 1
