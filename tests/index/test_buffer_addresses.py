"""The address of an access counts from the start of the buffer that memory type and inlining give the tensor."""

from __future__ import annotations

import itertools

import pytest

import idgraph as ig


def tiled(memory: str) -> tuple[ig.Fusion, ig.Tensor]:
    """x [64, 96] copied through t, inlined where a tile of 32 x 32 begins, and transposed; threads along tile rows."""
    f = ig.Fusion("tile")
    t = ig.copy(f.input("x", shape=(64, 96)), name="t")
    y = f.output(ig.copy(ig.transpose(t, 0, 1), name="y"))
    y.split(0, 32).split(2, 32).reorder({2: 1, 1: 2})
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    t.inline(2)
    for u in (t, f["t2"], y):
        u.parallelize(0, "blockIdx.x").parallelize(1, "blockIdx.y").parallelize(3, "threadIdx.x")
    t.set_memory(memory)
    return f, t


@pytest.mark.parametrize(
    ("memory", "address"),
    [
        ("auto", "i2"),  # nothing is said: of a thread, too
        ("shared", "i2*32 + i3"),  # of a block: blocks and the loops left of the position are gone
        ("local", "i2"),  # of a thread: so are threads
    ],
)
def test_address_by_memory_type(memory: str, address: str) -> None:
    f, t = tiled(memory)
    m = ig.IdModel(f)
    assert t.definition is not None
    assert str(m.access(t.definition, t).address) == address
    assert str(m.access(t.uses[0], t).address) == address


def test_shared_slots_are_one_for_each_element_of_a_tile() -> None:
    f, t = tiled("shared")
    m = ig.IdModel(f)
    assert t.definition is not None
    write, read = m.access(t.definition, t), m.access(t.uses[0], t)
    for i0, i1 in itertools.product(range(3), range(2)):
        slots: dict[int, tuple[int, ...]] = {}
        for i2, i3 in itertools.product(range(32), range(32)):
            env = {"i0": i0, "i1": i1, "i2": i2, "i3": i3}
            slots[int(write.address.evaluate(env))] = tuple(int(c.evaluate(env)) for c in write.coordinates)
        assert sorted(slots) == list(range(1024)), "each slot of the tile is written once"
        for i2, i3 in itertools.product(range(32), range(32)):
            env = {"i0": i0, "i1": i1, "i2": i2, "i3": i3}
            element = tuple(int(c.evaluate(env)) for c in read.coordinates)
            assert slots[int(read.address.evaluate(env))] == element, "the reader finds what the writer left there"


def test_the_whole_tensors_address_is_kept_beside_it() -> None:
    f, t = tiled("shared")
    assert t.definition is not None
    assert str(ig.IdModel(f).access(t.definition, t).tensor_address) == "i0*32 + i1*3072 + i2 + i3*96"
    assert ig.validate(f, target="python").ok
