"""Access pictures: every address, sector and conflict against an enumeration that asks no index map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.index import Access, AccessPicture
from tests.index.test_banks import accesses, tile

Ints = npt.NDArray[np.int64]
BYTES = {"int8": 1, "bfloat16": 2, "float32": 4, "float64": 8}
MOVES: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], Callable[[Ints], Ints]]] = {
    "same": (ig.exp, lambda x: x),
    "transposed": (lambda t: t.T, lambda x: x.T),
    "cut": (lambda t: t[1:, 2:], lambda x: x[1:, 2:]),
    "flipped": (lambda t: ig.flip(t, 1), lambda x: x[:, ::-1]),
    "strided": (lambda t: t[:, ::3], lambda x: x[:, ::3]),
}


def scheduled(move: str, shape: tuple[int, int], dtype: str, threads: int, values: int) -> tuple[Access, Ints]:
    """A read whose loops are steps x threads x values over the flat output, and the element of each output element."""
    f = ig.Fusion("f")
    x = f.input("x", shape=shape, dtype=dtype)
    t = f.output(MOVES[move][0](x)).merge(0).split(0, values).split(0, threads)
    t.parallelize(1, "threadIdx.x").parallelize(2, "vectorize")
    elements = MOVES[move][1](np.arange(shape[0] * shape[1]).reshape(shape)).ravel()
    assert t.definition
    return ig.IdModel(f).access(t.definition, x), elements


def asked(elements: Ints, first: int, size: int, threads: int, values: int, whole: bool) -> list[int]:
    """Sectors that each warp asks for, by marking each 32 bytes of each request."""
    found: list[int] = []
    for w in range(-(-threads // 32)):
        lanes = range(32 * w, min(threads, 32 * w + 32))
        marks: set[tuple[int, int]] = set()
        for lane in lanes:
            for v in range(values):
                at = first + lane * values + v
                if at < len(elements):
                    byte = int(elements[at]) * size
                    marks |= {(0 if whole else v, b // 32) for b in range(byte, byte + size)}
        found.append(len(marks))
    return found


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(MOVES)), st.tuples(st.integers(4, 20), st.integers(4, 40)),
    st.sampled_from(("float32", "bfloat16", "int8", "float64")), st.sampled_from((1, 7, 32, 48, 64)),
    st.sampled_from((1, 2, 4, 8)), st.booleans(),
)  # fmt: skip
def test_addresses_and_sectors(
    move: str, shape: tuple[int, int], dtype: str, threads: int, values: int, last: bool
) -> None:
    a, elements = scheduled(move, shape, dtype, threads, values)
    picture = a.picture(at="last" if last else None, warps=9)
    step = picture.at.get("i0", 0)
    first = step * threads * values
    seen = {(t.thread, t.value): t.address if t.happens else None for t in picture.touches}
    for thread in range(threads):
        for v in range(values):
            at = first + thread * values + v
            assert seen.pop((thread, v)) == (int(elements[at]) if at < len(elements) else None)
    assert not seen
    # A vector is one request only where the access proves it.
    whole = values > 1 and len({t.request for t in picture.touches}) == 1
    if whole:
        assert a.vector_width(2) >= values
    assert [w.sectors for w in picture.warps] == asked(elements, first, BYTES[dtype], threads, values, whole)
    for w in picture.warps:
        own = [t.address for t in picture.touches if t.thread // 32 == w.warp and t.happens]
        assert (w.touched, w.bytes) == (len(own), len(set(own)) * BYTES[dtype])
        assert w.least <= w.sectors and w.ways == 0
        assert w.masked == sum(t.thread // 32 == w.warp and not t.happens for t in picture.touches)


def ways_by_hand(p: AccessPicture, warp: int) -> int:
    """Most different words of one bank that one phase of one request wants."""
    size = BYTES[p.access.tensor.dtype]
    words: dict[tuple[int, int, int], set[int]] = {}
    requests = {t.request for t in p.touches}
    for r in requests:
        group = [t for t in p.touches if t.request == r and t.thread // 32 == warp and t.happens]
        lane = max((sum(x.thread == t.thread for x in group) for t in group), default=1) * size
        for t in group:
            phase = t.thread % 32 // (32 // max(1, lane // 4))
            for byte in range(t.address * size, t.address * size + size):
                words.setdefault((r, phase, byte // 4 % 32), set()).add(byte // 4)
    return max(map(len, words.values()), default=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int8"])
@pytest.mark.parametrize("layout", ["", "xor", "pad"])
def test_conflicts_of_a_tile(dtype: str, layout: str) -> None:
    """The ways told are those of an enumeration, and the cells marked red are in conflict."""
    for a in accesses(tile(32, dtype, layout)):
        p = a.picture()
        assert p.conflicts is not None and p.conflicts.ways == max(w.ways for w in p.warps)
        assert [w.ways for w in p.warps] == [ways_by_hand(p, w.warp) for w in p.warps]
        size = BYTES[dtype]
        banks = {t.address * size // 4 % 32 for t in p.touches if (t.thread, t.value) in p.hot}
        assert bool(p.hot) == (p.conflicts.ways > 1) and (len(banks) == 1 or not p.hot or size > 4)


def test_before_and_after_a_swizzle() -> None:
    _, read = accesses(tile(32, layout="xor"))
    p = read.picture()
    assert p.before is not None
    assert [w.ways for w in p.warps] == [1] and [w.ways for w in p.before.warps] == [32]
    _, plain = accesses(tile(32))
    same = [(t.thread, t.address) for t in plain.picture(at=dict(p.at)).touches]
    assert [(t.thread, t.address) for t in p.before.touches] == same
    assert plain.picture().before is None


def test_a_wider_block_leaves_threads_idle() -> None:
    a, _ = scheduled("same", (4, 8), "float32", 16, 1)
    p = a.picture(block={"threadIdx.x": 64, "threadIdx.y": 2})
    assert p.idle == 112 and len(p.touches) == 16
    assert "112 threads of the block have no work here" in str(p)


def test_without_threads_the_innermost_loops_are_steps() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(3, 8, 8))
    t = f.output(ig.permute(x, (0, 2, 1)))
    assert t.definition
    p = ig.IdModel(f).access(t.definition, x).picture(at={"i0": 2})
    assert (p.values, dict(p.at), p.threaded, p.unit) == (("i1", "i2"), {"i0": 2}, False, 64)
    assert [t.address for t in p.touches] == np.arange(192).reshape(3, 8, 8)[2].T.ravel().tolist()
    assert (p.warps[0].sectors, p.warps[0].bytes) == (4, 256)


def test_loaded_places_and_symbols() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    table, index = f.input("table", shape=(50, n)), f.input("index", shape=(4,), dtype="int64")
    t = f.output(ig.index_select(table, 0, index)).parallelize(1, "threadIdx.x")
    assert t.definition
    a = ig.IdModel(f).access(t.definition, table)
    p = a.picture(symbols={"n": 6}, loads={"ld1": [7, 3, 49, 0]}, at={"i0": 2})
    assert [t.address for t in p.touches] == [49 * 6 + c for c in range(6)]
    with pytest.raises(ig.IndexingError, match="touches table where index says"):
        a.picture(symbols={"n": 6})
    with pytest.raises(ig.IndexingError, match="picture needs a number"):
        a.picture(loads={"ld1": [7, 3, 49, 0]})
    with pytest.raises(ig.IndexingError, match="number 3 is read"):
        a.picture(symbols={"n": 6}, loads={"ld1": [7, 3]}, at={"i0": 3})


def test_questions_without_an_answer() -> None:
    a, _ = scheduled("same", (20, 40), "float32", 32, 2)
    for at in ({"i1": 0}, {"i0": 99}, {"i0": True}, {"q": 0}, "first"):
        with pytest.raises(ig.IndexingError, match=r"is not a step|picture: at is"):
            a.picture(at=at)
    with pytest.raises(ig.IndexingError, match="draws nothing"):
        a.picture(warps=0)
    with pytest.raises(ig.IndexingError, match="not a thread dimension"):
        a.picture(block={"warp": 2})
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(8,)), name="t")
    u = f.output(t + 1).parallelize(0, "threadIdx.x")
    t.parallelize(0, "threadIdx.x").inline(1)
    assert u.definition
    with pytest.raises(ig.IndexingError, match="kept in a register of each thread"):
        ig.IdModel(f).access(u.definition, t).picture()
