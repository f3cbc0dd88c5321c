"""Where only sizes count, the extents graph is the answer: launches, parallel types, positions right of what is shared.

Extents are kept in one form, so comparing two of them is asking that graph; neither needs the coordinates to be one.
"""

from __future__ import annotations

from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir.op_builders import same_extent
from idgraph.testing import scheduled_fusions
from tests.property.budget import examples
from tests.property.test_aligned import residuals


@settings(max_examples=examples(100))
@given(scheduled_fusions() | residuals())
def test_one_group_has_one_extent(f: ig.Fusion) -> None:
    note(str(f))
    m = ig.IdModel(f)
    for group in m.extents.groups:
        assert len({d.extent for d in group}) == 1


@given(st.integers(2, 9), st.integers(1, 8))
def test_symbolic_extents_of_one_group_have_one_form(factor: int, part: int) -> None:
    """Also of splits, and of what is cut and joined again."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=8)
    t = f.input("t", shape=(n,))
    out = f.output(t + ig.cat([t[part:], t[:part]]))
    out.split(0, factor)
    ig.schedule.like(f, out)
    for group in ig.IdModel(f).extents.groups:
        assert all(d.extent == group.first.extent and same_extent(d.extent, group.first.extent) for d in group)


def test_a_launch_and_a_position_of_axes_that_are_not_aligned() -> None:
    """Rolled within a block: one size of block, one kernel, though no coordinate of the axis is the same."""
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(4, 64)), f.input("y", shape=(4, 64))
    u = ig.exp(y, name="u")
    v = ig.roll(u, 5, 1, name="v")
    w = ig.add(x, u, name="w")
    out = f.output(ig.add(w, v))
    for t in f.tensors:
        if t.definition is not None:
            t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    u.set_memory("shared").inline(1)
    v.inline(1)
    w.inline(1)
    m = ig.IdModel(f)
    a, b = u.logical[1], out.logical[1]
    assert m.extents.mapped(a, b) and m.extents.mapped(v.logical[1], b)
    assert not m.aligned.mapped(v.logical[1], a)
    (kernel,) = ig.emit(f, target="cuda").kernels
    assert {way: tuple(map(str, extents)) for way, extents in kernel.launch.items()} == {
        "blockIdx.x": ("4",),
        "threadIdx.x": ("64",),
    }
    assert ig.validate(f, target="numpy").ok
