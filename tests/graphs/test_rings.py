"""Long rings of rotations: what each way round does, and for which coordinates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import idgraph as ig


def ring(cuts: list[int], n: int = 64) -> tuple[ig.Fusion, ig.Tensor]:
    """x rotated again and again, and x itself added at the very end."""
    f = ig.Fusion("ring")
    x = t = f.input("x", shape=(n,))
    for cut in cuts:
        t = ig.cat([t[cut:], t[:cut]])
    f.output(x + t)
    return f, x


@given(st.lists(st.integers(1, 63), min_size=1, max_size=24))
def test_kinds_and_shifts_of_a_ring(cuts: list[int]) -> None:
    """Each coordinate takes one slice of every rotation: the ways round part the 64 coordinates."""
    f, x = ring(cuts)
    cycles = ig.IdModel(f).exact.cycles()
    for c in cycles:
        adds = sum(int(str(e.attributes[1])) for e in c.exprs)
        assert len(c.exprs) == len(c.groups) == 2 * len(cuts) and c.shift == adds
        assert c.kind == ("shift" if adds else "identity") and str(c.map) in (f"c + {adds}", f"c - {-adds}", "c")
        assert (adds + sum(cuts)) % 64 == 0  # the whole of the rotations, whichever slices are taken
    mine = [c for c in cycles if x.logical[0] in c.groups[0]]  # others are told from where some coordinate goes round
    gone = [[bool(c.holds.evaluate({"c": k})) for k in range(64)] for c in mine]
    assert all(any(row) for row in gone) and all(sum(column) == 1 for column in zip(*gone, strict=True))


def test_a_long_ring_is_told_without_listing_its_ways() -> None:
    """600 rotations have 2^600 ways, 64 of which some element goes from each group: kinds and shifts are told."""
    f, x = ring([1 + k % 63 for k in range(600)])
    cycles = ig.IdModel(f).exact.cycles()
    assert len(cycles) <= 64 * 600 and {c.kind for c in cycles} <= {"shift", "identity"}
    assert {int(str(c.shift)) % 64 for c in cycles} == {-sum(1 + k % 63 for k in range(600)) % 64}
    assert not any("_steps" in vars(c) for c in cycles)
    assert len(cycles[0].exprs) == 1200 and x in cycles[0].tensors
    assert cycles[0].closing is f.outputs[0].definition
