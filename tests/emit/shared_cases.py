"""Fusions whose threads exchange values through shared (or global) memory, with few threads for the simulator."""

from __future__ import annotations

from collections.abc import Callable

import idgraph as ig
from idgraph.ir import DType

SHARED: dict[str, Callable[[], ig.Fusion]] = {}


def shared(f: Callable[[], ig.Fusion]) -> Callable[[], ig.Fusion]:
    """Register a case under its function's name."""
    SHARED[f.__name__] = f
    return f


def on(t: ig.Tensor, *ways: str) -> None:
    """Parallelize the loops of ``t`` from the outermost on; "" leaves one serial."""
    for p in range(len(t.loop)):
        t.parallelize(p, "serial")
    for p, way in enumerate(ways):
        t.parallelize(p, way or "serial")


def tile(
    shape: tuple[int, int] = (8, 8), side: int = 4, layout: str = "", dtype: DType = "float32", extra: bool = False
) -> ig.Fusion:
    """A transpose through a tile of ``side`` by ``side``; ``layout`` is "" (as its loops stand), "xor" or "pad"."""
    f = ig.Fusion("tile")
    t0 = f.input("t0", shape, dtype)
    t1 = ig.copy(t0, name="t1")
    t2 = ig.permute(t1, (1, 0), name="t2")
    if extra:
        t2 = ig.add(ig.mul(t2, 2.0), f.input("bias", (shape[1], 1), dtype))
    f.output(t2)
    t2.split(1, side).split(0, side).reorder([0, 2, 1, 3])
    on(t2, "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    ig.schedule.like(f, t2)
    if extra:
        ig.schedule.inline_most(f, [t for t in f.tensors if t is not t1 and t.definition is not None and t.uses])
    t1.reorder({2: 3})
    on(t1, "", "", "threadIdx.y", "threadIdx.x")
    loops = t1.loop
    if layout == "xor":
        t1.swizzle("xor", 2, 3)
    elif layout == "pad":
        t1.resize(3, 0, 1)
    if layout:
        t1.set_allocation(t1.loop)
        t1.set_loop(loops)
    t1.inline(2).set_memory("shared")
    return f


for _layout in ("", "xor", "pad"):
    SHARED[f"tile_{_layout or 'plain'}"] = lambda layout=_layout: tile(layout=layout)
for _dtype in ("bfloat16", "float16", "int8", "int64", "bool"):
    SHARED[f"tile_{_dtype}"] = lambda dtype=_dtype: tile((4, 8), dtype=dtype, layout="xor")
SHARED["tile_cut"] = lambda: tile((6, 7), layout="xor")
SHARED["tile_epilogue"] = lambda: tile((6, 8), layout="pad", dtype="bfloat16", extra=True)


def padded(t: ig.Tensor, columns: int) -> None:
    """Memory of ``t`` by its loops, with this many more elements to a row."""
    loops = t.loop
    t.resize(len(loops) - 1, 0, columns)
    t.set_allocation(t.loop)
    t.set_loop(loops)


@shared
def two_wide_tiles() -> ig.Fusion:
    """Two tiles of different types that find room in dynamic shared memory only."""
    f = ig.Fusion("two_wide_tiles")
    a = ig.copy(f.input("x", (2, 4, 5)), name="a")
    b = ig.cast(ig.permute(a, (0, 2, 1)), "float64", name="b")
    c = f.output(ig.permute(b, (0, 2, 1), name="c"))
    turned = b.definition.inputs[0] if b.definition is not None else a
    for t in (a, turned, b, c):
        on(t, "blockIdx.x", "threadIdx.y", "threadIdx.x")
    turned.inline(3)
    for t, columns in ((a, 1500), (b, 1001)):
        padded(t, columns)
        t.inline(1).set_memory("shared")
    return f


@shared
def tile_other_threads() -> ig.Fusion:
    """Sixteen threads fill the tile, eight read it: the barrier stands outside of the test for the eight."""
    f = ig.Fusion("threads")
    a = ig.copy(f.input("x", (3, 16)), name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    b.split(1, 8).reorder({1: 2})
    on(b, "blockIdx.x", "threadIdx.x")
    on(a, "blockIdx.x", "threadIdx.x")
    a.inline(1).set_memory("shared")
    return f


@shared
def tile_in_a_loop() -> ig.Fusion:
    """Each step of a serial loop fills the same array: a barrier before it is filled again."""
    f = ig.Fusion("loop")
    a = ig.exp(f.input("x", (3, 5, 8)), name="a")
    b = f.output(ig.flip(a, 2, name="b"))
    on(a, "blockIdx.x", "", "threadIdx.x")
    on(b, "blockIdx.x", "", "threadIdx.x")
    a.inline(2).set_memory("shared")
    return f


@shared
def two_tiles_in_a_loop() -> ig.Fusion:
    """Two arrays one after the other: the barrier between them also guards the first one's next step."""
    f = ig.Fusion("two")
    a = ig.exp(f.input("x", (5, 8)), name="a")
    b = ig.flip(a, 1, name="b")
    c = f.output(ig.flip(b, 1, name="c") + 1.0)
    d = c.definition.inputs[0]  # type: ignore[union-attr]
    for t in (a, b, d, c):
        on(t, "", "threadIdx.x")
    a.inline(1).set_memory("shared")
    b.inline(1).set_memory("shared")
    d.inline(2)
    return f


@shared
def row_sum_for_all_threads() -> ig.Fusion:
    """One thread sums a row, all threads of the block divide by it."""
    f = ig.Fusion("row")
    x = f.input("x", (3, 6))
    s = ig.sum(x, 1, keepdim=True, name="s")
    y = f.output(ig.div(x, s, name="y"))
    s.reorder({1: 2})
    on(s, "blockIdx.x")
    on(y, "blockIdx.x", "threadIdx.x")
    s.inline(1).set_memory("shared")
    return f


@shared
def partial_sums() -> ig.Fusion:
    """Four threads sum a quarter of a row each, then one thread adds the four."""
    f = ig.Fusion("partial")
    x = ig.reshape(f.input("x", (3, 20)), 3, 5, 4)
    part = ig.sum(x, 1, name="part")
    total = f.output(ig.sum(part, 1, name="total"))
    on(x, "blockIdx.x", "", "threadIdx.x")
    part.reorder({1: 2})
    on(part, "blockIdx.x", "threadIdx.x")
    on(total, "blockIdx.x")
    x.reorder({1: 2})
    x.inline(3)
    part.inline(1).set_memory("shared")
    return f


@shared
def matmul_through_tiles() -> ig.Fusion:
    """Tiles of both operands in each step of the reduced axis; their broadcast axes are promoted."""
    f = ig.Fusion("matmul")
    a, b = f.input("a", (4, 6)), f.input("b", (6, 4))
    ta = ig.copy(ig.unsqueeze(a, 2), name="ta")
    tb = ig.copy(ig.unsqueeze(b, 0), name="tb")
    c = f.output(ig.sum(ig.mul(ta, tb, name="p"), 1, name="c"))
    c.split(2, 2).split(1, 3).split(0, 2).reorder([0, 4, 2, 1, 5, 3])
    ig.schedule.like(f, c)
    ig.schedule.inline_most(f, [t for t in f.tensors if t.definition is not None and t.uses and t not in (ta, tb)])
    # The three columns of a tile run on threads, and so do rows: two of three have work in the product.
    for names, order in ((("t2", "ta"), (3, 5, 4)), (("t4", "tb"), (5, 4, 3))):
        for name in names:
            f[name].reorder([0, 1, 2, *order])
    for t in f.tensors:
        if t.definition is not None:
            on(t, "blockIdx.y", "blockIdx.x", "", "threadIdx.y", "threadIdx.x")
    for t in (ta, tb):
        t.inline(3).set_memory("shared")
    return f


@shared
def past_a_thread_axis() -> ig.Fusion:
    """Inlined right of a thread axis: each thread along it has its own row of the shared array."""
    f = ig.Fusion("past")
    a = ig.exp(f.input("x", (2, 3, 4)), name="a")
    b = f.output(ig.flip(a, 2, name="b"))
    on(a, "blockIdx.x", "threadIdx.y", "threadIdx.x")
    on(b, "blockIdx.x", "threadIdx.y", "threadIdx.x")
    a.inline(2).set_memory("shared")
    return f


@shared
def through_global_memory() -> ig.Fusion:
    """The threads of a block exchange a row through global memory."""
    f = ig.Fusion("global")
    a = ig.exp(f.input("x", (2, 6)), name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    on(a, "blockIdx.x", "threadIdx.x")
    on(b, "blockIdx.x", "threadIdx.x")
    a.inline(1).set_memory("global")
    return f


@shared
def no_exchange() -> ig.Fusion:
    """Every thread reads what it wrote: shared memory, and no barrier."""
    f = ig.Fusion("own")
    a = ig.exp(f.input("x", (2, 4, 3)), name="a")
    b = f.output(ig.flip(a, 2, name="b"))
    on(a, "blockIdx.x", "threadIdx.x")
    on(b, "blockIdx.x", "threadIdx.x")
    a.inline(1).set_memory("shared")
    return f


@shared
def shared_output() -> ig.Fusion:
    """An output that other threads read too: it is written to both memories."""
    f = ig.Fusion("both")
    a = f.output(ig.exp(f.input("x", (2, 4)), name="a"))
    b = f.output(ig.roll(a, 1, 1, name="b"))
    on(a, "blockIdx.x", "threadIdx.x")
    on(b, "blockIdx.x", "threadIdx.x")
    a.inline(1).set_memory("shared")
    return f


@shared
def local_tile() -> ig.Fusion:
    """A private array in an order of its own."""
    f = ig.Fusion("local")
    a = ig.exp(f.input("x", (4, 4, 4)), name="a")
    b = f.output(ig.permute(a, (0, 2, 1), name="b"))
    on(a, "threadIdx.x")
    on(b, "threadIdx.x")
    loops = a.loop
    a.swizzle("cyclic", 1, 2)
    a.set_allocation([a.loop[0], a.loop[2], a.loop[1]])
    a.set_loop(loops)
    a.inline(1).set_memory("local")
    return f


@shared
def vectors_both_ways() -> ig.Fusion:
    """Rows of a tile are written and read back in vectors, by other threads."""
    f = ig.Fusion("vectors")
    a = ig.exp(f.input("x", (2, 8, 8)), name="a")
    b = f.output(ig.flip(a, 1, name="b"))
    for t in (a, b):
        t.split(2, 4)
        on(t, "blockIdx.x", "threadIdx.y", "threadIdx.x", "vectorize")
    a.inline(1).set_memory("shared")
    return f
