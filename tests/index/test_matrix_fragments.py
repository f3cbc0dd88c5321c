"""Operands of matrix instructions, by the tables of the PTX ISA written out lane by lane."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.index import ldmatrix, ldmatrix_conflicts, mma_operand
from idgraph.index.bank_conflict_advice import SHAPES


def expected(operand: str, lane: int, i: int, *, rows: int, bits: int) -> tuple[int, int]:
    """ "groupID" and "threadID_in_group" of the PTX ISA, by its conditions on the number of the element."""
    group, thread = lane >> 2, lane & 3
    if operand == "c":
        return (group if i < 2 or rows == 8 else group + 8), thread * 2 + (i & 1)
    match bits, operand:
        case 64 | 32, "a":  # f64, tf32
            if rows == 8:
                return group, thread
            return (group if i % 2 == 0 else group + 8), thread + 4 * (i // 2)
        case 64 | 32, "b":
            return thread + 4 * i, group
        case 16, "a":
            row = group if i in (0, 1, 4, 5) else group + 8
            return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)
        case 16, "b":
            return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group
        case 8, "a":
            row = group if rows == 8 or 0 <= i < 4 or 8 <= i < 12 else group + 8
            return row, thread * 4 + (i & 3) + (16 if i >= 8 else 0)
        case 8, "b":
            return thread * 4 + (i & 3) + (16 if i >= 4 else 0), group
        case 4, "a":
            row = group if rows == 8 or 0 <= i < 8 or 16 <= i < 24 else group + 8
            return row, thread * 8 + (i & 7) + (32 if i >= 16 else 0)
        case 4, "b":
            return thread * 8 + (i & 7) + (32 if i >= 8 else 0), group
        case 1, "a":
            row = group if rows == 8 or 0 <= i < 32 or 64 <= i < 96 else group + 8
            return row, thread * 32 + (i & 31) + (128 if i >= 64 else 0)
        case _:
            return thread * 32 + (i & 31) + (128 if i >= 32 else 0), group


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_operands(shape: str, operand: str) -> None:
    m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
    size = {"a": m * k, "b": k * n, "c": m * n}[operand]
    for bits in SHAPES[shape]:
        found = mma_operand(shape, operand, bits)
        assert found.shape == {"a": (m, k), "b": (k, n), "c": (m, n)}[operand]
        seen = {(lane, i): tuple(map(int, found(lane, i))) for lane in range(32) for i in range(size // 32)}
        assert seen == {at: expected(operand, *at, rows=m, bits=bits) for at in seen}
        assert sorted(seen.values()) == [(r, c) for r in range(found.shape[0]) for c in range(found.shape[1])]
        assert found.is_bijective


@pytest.mark.parametrize(("shape", "bits"), [("m64n8k16", 16), ("m64n24k8", 32), ("m64n16k32", 8)])
def test_a_warp_group_has_four_warps_of_rows(shape: str, bits: int) -> None:
    """wgmma: warp w has rows 16*w to 16*w + 15, as one mma.sync has them; the accumulator goes on by 8 columns."""
    a, c = mma_operand(shape, "a", bits), mma_operand(shape, "c", bits)
    small = mma_operand(f"m16n8k{shape.split('k')[1]}", "a", bits)
    for lane in range(0, 128, 3):
        for i in range(small.symbols[1].symbol_bounds[1] + 1):  # type: ignore[operator]
            row, column = map(int, small(lane % 32, i))
            assert tuple(map(int, a(lane, i))) == (row + lane // 32 * 16, column)
        for i in range(int(c.shape[1]) // 2):
            row, column = expected("c", lane % 32, i % 4, rows=16, bits=bits)
            assert tuple(map(int, c(lane, i))) == (row + lane // 32 * 16, column + i // 4 * 8)
    assert a.is_bijective and c.is_bijective


def test_ldmatrix_gives_an_operand_of_mma() -> None:
    """Four matrices, two by two, are operand a of m16n8k16; the transposed one moves columns to rows."""
    a, loaded = mma_operand(), ldmatrix(4)
    for lane in range(32):
        for i in range(8):
            matrix, row, column = map(int, loaded(lane, i // 2, i % 2))
            assert tuple(map(int, a(lane, i))) == (matrix % 2 * 8 + row, matrix // 2 * 8 + column)
            assert tuple(map(int, ldmatrix(4, transposed=True)(lane, i // 2, i % 2))) == (matrix, column, row)


@pytest.mark.parametrize(("pitch", "ways"), [(8, 1), (16, 2), (32, 4), (64, 8), (72, 1), (40, 1), (24, 1)])
def test_conflicts_of_rows(pitch: int, ways: int) -> None:
    """Rows of ``pitch`` halves: 8 rows of 4 words; two of them meet where their distance is a multiple of 128 bytes."""
    starts = [r * pitch * 2 % 128 // 16 for r in range(8)]
    assert max(starts.count(s) for s in starts) == ways
    m = ig.IndexMap.strided((4, 8 * pitch), (8, pitch))
    c = ldmatrix_conflicts(m)
    assert c.ways == ways and c.passes == 4 * ways and bool(c) == (ways > 1)
    assert len(c.lanes) == (ways if ways > 1 else 0)


def test_refusals() -> None:
    with pytest.raises(ig.IndexingError, match="not at a multiple of 16 bytes"):
        ldmatrix_conflicts(ig.IndexMap.strided((4, 8), (8, 12)))
    with pytest.raises(ig.IndexingError, match="unknown shape"):
        mma_operand("m8n4k4")
    with pytest.raises(ig.IndexingError, match="no operands of 16 bits") as refused:
        mma_operand("m16n8k32")
    assert "bits=8 or 4" in str(refused.value)
    with pytest.raises(ig.IndexingError, match="shared memory"):
        mma_operand("m64n8k16", "b")
    with pytest.raises(ig.IndexingError, match="unknown operand"):
        mma_operand(operand="d")
    with pytest.raises(ig.IndexingError, match="1, 2 or 4"):
        ldmatrix(3)
