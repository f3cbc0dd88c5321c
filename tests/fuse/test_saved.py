"""The bytes that one kernel is told to save are those that the emitted programs move less."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.ir.parser import copy_fusion
from tests.fuse.test_causes import between_readers, seeds


def moved(f: ig.Fusion) -> int:
    """Bytes of the distinct elements that each kernel reads and writes, as `ig.cost` counts them."""
    total = ig.cost(ig.emit(f, target="cuda")).total
    return total.bytes_read + total.bytes_written


def counted(o: ig.fuse.Obstacle) -> int:
    """Bytes moved by the two operations in kernels of their own, less those after the alignment's steps."""
    assert o.alignment is not None
    apart, together = copy_fusion(o.question.fusion), copy_fusion(o.question.fusion)
    o.alignment.apply(together)
    return moved(apart) - moved(together)


def readers_of_parts() -> dict[str, ig.Fusion]:
    """Fusions in which a copy of a producer reads its sources again, or its reader takes a part of it."""
    made: dict[str, ig.Fusion] = {}

    def fusion(name: str) -> ig.Fusion:
        f = made[name] = ig.Fusion("f")
        return f

    f = fusion("a slice of an output")
    x = f.input("x", shape=(8, 12))
    y = f.output(ig.exp(x))
    f.output(y[:, 2:7] * 1.0)
    f = fusion("a slice of what nobody else needs")
    y = ig.exp(f.input("x", shape=(8, 12)))
    f.output(y[:, 2:7])
    f = fusion("a product of two, of which a part is read")
    y = f.output(f.input("x", shape=(8, 12)) * f.input("w", shape=(12,)))
    f.output(y[2:5])
    f = fusion("rows of a padded output, and their source")
    x = f.input("x", shape=(8, 12))
    y = f.output(ig.pad(x, [1, 1, 0, 0]))
    f.output(y[0:7:2])
    f = fusion("places of an axis, of what others need")
    y = ig.exp(f.input("x", shape=(3, 8, 4)))
    f.output(y, ig.select(y, 0, 1) * 2.0, ig.transpose(ig.select(y, 0, 2), 0, 1))
    f = fusion("one element of a slice, of what others need")
    y = f.output(ig.exp(f.input("x", shape=(3, 8))))
    f.output(y[1:2] * 1.0)
    f = fusion("rows at an index, of what others need")
    y = f.output(ig.exp(f.input("x", shape=(8, 4))))
    f.output(ig.index_select(y, 0, f.input("i", shape=(6,), dtype="int64")))
    f = fusion("a maximum that something else needs first")
    x = f.input("x", shape=(8, 6))
    m = ig.amax(x, 1, keepdim=True)
    f.output(ig.where(x >= m, x, 0.0) / m)
    f = fusion("both read the same two")
    x, w = f.input("x", shape=(8, 12)), f.input("w", shape=(8, 12))
    f.output(ig.exp(x * w), ig.transpose(x, 0, 1) * ig.transpose(w, 0, 1))
    for name, also_read in (("an index of a scatter", False), ("an index of a scatter, an output too", True)):
        f = fusion(name)
        i, low = f.input("i", shape=(6,), dtype="int64"), f.input("low", shape=(6,), dtype="int64")
        at = ig.maximum(i, low)
        f.output(ig.index_put(f.input("base", shape=(8, 9)), (at,), f.input("rows", shape=(6, 9))))
        f.output(*([at] if also_read else []), ig.exp(f["rows"]))
    f = fusion("an output read in another order, and its source")
    x = f.input("x", shape=(8, 12))
    y = f.output(ig.exp(x))
    f.output(ig.transpose(y, 0, 1) * ig.transpose(x, 0, 1))
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(readers_of_parts()))
def test_told_bytes_are_those_of_the_emitted_programs(name: str) -> None:
    f = readers_of_parts()[name]
    met = 0
    for o in ig.fuse.obstacles(f):
        if o.alignment is not None and o.alignment.one_kernel:
            met += 1
            assert o.bytes_saved == counted(o), o
    assert met


def test_constants_have_no_obstacles() -> None:
    """They are computed where they are read: nothing is stored that a kernel for both would save."""
    f = ig.Fusion("f")
    c = f.full((4, 6), 2.0)
    y, z = ig.flip(c, 0) * f.input("x", shape=(4, 6)), ig.transpose(c, 0, 1) + 1.0
    f.output(y, z)
    assert not any(c in (o.a.output, o.buffer) for o in ig.fuse.obstacles(f))
    assert ig.fuse.explain(f, c, f["t1"]) is None
    f.output(c)  # a result is stored
    assert any(c in (o.a.output, o.buffer) for o in ig.fuse.obstacles(f))


@pytest.mark.sampled
@pytest.mark.parametrize("name", list(seeds()))
def test_told_bytes_of_each_cause(name: str) -> None:
    f, a, b = seeds()[name]
    o = ig.fuse.explain(f, a, b)
    assert o is not None
    if o.alignment is not None and o.alignment.one_kernel and not between(o):
        assert o.bytes_saved == counted(o), o


@pytest.mark.parametrize("name", list(between_readers()))
def test_told_bytes_of_readers(name: str) -> None:
    f, a, b, _ = between_readers()[name]
    o = ig.fuse.explain(f, a, b)
    assert o is not None and o.alignment is not None and o.alignment.one_kernel
    if not between(o):
        assert o.bytes_saved == counted(o), o


def between(o: ig.fuse.Obstacle) -> bool:
    """Whether other operations stand between the two, whose own kernels an obstacle does not tell of."""
    return any(e not in (o.a, o.b) for t in o.accesses for e in t.path)
