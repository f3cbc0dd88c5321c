"""Operands of matrix instructions, by the tables of the PTX ISA written out lane by lane."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.index import ldmatrix, ldmatrix_conflicts, mma_operand


def expected(shape: str, operand: str, lane: int, i: int) -> tuple[int, int]:
    """ "groupID" and "threadID_in_group" of the PTX ISA."""
    group, thread = lane >> 2, lane & 3
    if operand == "c":
        return (group if i < 2 else group + 8), thread * 2 + (i & 1)
    if operand == "a":
        row = group if i in (0, 1, 4, 5) else group + 8
        return row, thread * 2 + (i & 1) + (8 if i >= 4 else 0)
    return thread * 2 + (i & 1) + (8 if i >= 2 else 0), group


@pytest.mark.parametrize("shape", ["m16n8k8", "m16n8k16"])
@pytest.mark.parametrize("operand", ["a", "b", "c"])
def test_operands(shape: str, operand: str) -> None:
    m = mma_operand(shape, operand)
    values = {"a": 8, "b": 4, "c": 8}[operand] // (2 if shape == "m16n8k8" or operand == "c" else 1)
    for lane in range(32):
        for i in range(values):
            assert tuple(map(int, m(lane, i))) == expected(shape, operand, lane, i)
    assert m.is_bijective


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
        mma_operand("m8n8k4")
    with pytest.raises(ig.IndexingError, match="unknown operand"):
        mma_operand(operand="d")
    with pytest.raises(ig.IndexingError, match="1, 2 or 4"):
        ldmatrix(3)
