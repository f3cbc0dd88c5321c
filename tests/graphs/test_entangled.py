"""Unions beside rings of several relations: aligned where once around gives coordinates back, an edge elsewhere."""

from __future__ import annotations

import pytest

import idgraph as ig


def test_a_reshape_there_and_back_beside_a_rotation_is_aligned() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 8, 16))
    there = ig.reshape(ig.reshape(a, 32, 16), (4, 8, 16)) + a  # a ring of merge and split: right by construction
    rotated = ig.cat([there[..., 5:], there[..., :5]], dim=-1)
    out = f.output(ig.reshape(ig.reshape(rotated, 4, 128), (4, 8, 16)) * a)
    aligned = ig.IdModel(f).aligned
    assert not aligned.mapped(out.logical[2], a.logical[2]) or not aligned.mapped(rotated.logical[2], a.logical[2])
    assert aligned.left_out
    assert all(aligned.mapped(x, y) for x, y in zip(a.logical, there.logical, strict=True))


@pytest.mark.parametrize("rolled", [False, True])
def test_a_reshape_by_other_parts_is_an_identity_by_algebra(rolled: bool) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6))
    b = ig.reshape(ig.reshape(ig.reshape(a, 2, 2, 6), (2, 12)), (4, 6)) + a
    f.output(b + ig.roll(b, 1, 1) if rolled else b)
    assert len(ig.IdModel(f).aligned.left_out) == rolled


@pytest.mark.parametrize(("by", "same"), [((1, -1), False), ((0, 0), True)])
def test_a_slice_put_back_is_aligned_only_where_it_was(by: tuple[int, int], same: bool) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(9,))
    out = f.output(ig.pad(ig.slice(a, 0, 2, 7), (2 + by[0], 2 + by[1])) + a)
    m = ig.IdModel(f)
    assert (m.aligned.left_out == ()) is same
    assert m.aligned.mapped(out.logical[0], a.logical[0])


def test_an_axis_split_otherwise_and_back_is_aligned() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6))
    out = f.output(ig.reshape(ig.reshape(a, 2, 12), (4, 6)) + a)
    aligned = ig.IdModel(f).aligned
    assert all(aligned.mapped(x, y) for x, y in zip(a.logical, out.logical, strict=True))
