"""Bank conflicts: known layouts by their known ways, every count against one made here word by word."""

from __future__ import annotations

import importlib.util
import itertools
import re
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.index import Access
from idgraph.index.allocation import live_exprs
from idgraph.ir import item_size


def _cases() -> ModuleType:
    path = Path(__file__).parents[1] / "emit" / "shared_cases.py"
    spec = importlib.util.spec_from_file_location("shared_cases", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = _cases()


def tile(side: int, dtype: str = "float32", layout: str = "", amount: int = 1) -> ig.Fusion:
    """A transpose of a square through shared memory, one thread for each element of a row of the tile."""
    f = ig.Fusion("tile")
    t = ig.copy(f.input("a", shape=(2, side, side), dtype=dtype), name="t").set_memory("shared")
    u = f.output(ig.permute(t, (0, 2, 1)))
    for x in (t, u):
        x.parallelize(0, "blockIdx.x").parallelize(2, "threadIdx.x")
    loops = t.loop
    if layout == "xor":
        t.swizzle("xor", 1, 2)
    elif layout == "pad":
        t.resize(2, 0, amount)
    if layout:
        t.set_allocation(t.loop).set_loop(loops)
    t.inline(1)
    return f


def accesses(f: ig.Fusion) -> tuple[Access, Access]:
    m, t = ig.IdModel(f), f["t"]
    assert t.definition
    return m.write(t.definition), m.access(t.uses[0], t)


@pytest.mark.parametrize(
    ("dtype", "layout", "amount", "ways"),
    [
        ("float32", "", 0, 32),
        ("float32", "xor", 0, 1),
        ("float32", "pad", 1, 1),
        ("float32", "pad", 2, 2),
        ("float32", "pad", 4, 4),
        ("float32", "pad", 32, 32),
        ("bfloat16", "", 0, 16),  # a row of 32 is 16 words: two rows of one column share a bank in turn
        ("bfloat16", "pad", 2, 1),
        ("bfloat16", "pad", 1, 2),
        ("float64", "", 0, 16),  # two phases of 16 lanes, two words each
        ("float64", "pad", 1, 1),
        ("int8", "", 0, 8),
        ("int8", "pad", 4, 1),
    ],
)
def test_known_ways_of_a_column(dtype: str, layout: str, amount: int, ways: int) -> None:
    """Down a column of a 32 x 32 tile; along its rows there is none."""
    write, read = accesses(tile(32, dtype, layout, amount))
    assert read.bank_conflicts().ways == ways
    assert bool(read.bank_conflicts()) == (ways > 1)
    if layout != "pad" or amount != 1 or dtype == "float32":
        assert write.bank_conflicts().ways == 1


def lane_bytes(a: Access) -> int:
    """Bytes that each lane moves at once: a whole vector where every one of them lies whole and aligned."""
    size = item_size(a.tensor.dtype)
    loop = next((x for x in a.loops if x.parallel == "vectorize"), None)
    width = int(loop.extent) if loop is not None else 1
    assert a.buffer.place == "shared"
    if loop is None or width * size not in (2, 4, 8, 16):
        return size
    others = [x for x in a.loops if x is not loop]
    for rest in itertools.product(*(range(int(x.extent)) for x in others)):
        at = {x.name: v for x, v in zip(others, rest, strict=True)}
        happens = {bool(a.predicate.evaluate({**at, loop.name: n})) for n in range(width)}
        places = [int(a.address.evaluate({**at, loop.name: n})) for n in range(width)]
        if len(happens) > 1 or places[0] % width or places != list(range(places[0], places[0] + width)):
            return size
    return width * size


def words_by_hand(a: Access) -> int:
    """Most different words of one bank in one phase, by looking at every warp."""
    size, moved = item_size(a.tensor.dtype), lane_bytes(a)
    ids = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
    on = {x.parallel: x for x in a.loops if x.parallel in ids}
    dims = [int(on[w].extent) if w in on else 1 for w in ids]
    others = [x for x in a.loops if x.parallel not in ids]
    worst, lanes = 1, 32 // max(1, moved // 4)
    assert a.buffer.place == "shared"
    for rest in itertools.product(*(range(int(x.extent)) for x in others)):
        wanted: dict[tuple[int, int], set[int]] = {}
        for x, y, z in itertools.product(*map(range, dims)):
            at = {o.name: v for o, v in zip(others, rest, strict=True)}
            at |= {on[w].name: v for w, v in zip(ids, (x, y, z), strict=True) if w in on}
            number = x + dims[0] * (y + dims[1] * z)
            if a.predicate.evaluate(at):
                byte = int(a.address.evaluate(at)) * size // moved * moved
                for word in {b // 4 for b in range(byte, byte + moved)}:
                    wanted.setdefault((number // lanes, word % 32), set()).add(word)
        worst = max([worst, *map(len, wanted.values())])
    return worst


@pytest.mark.parametrize("name", sorted(CASES.SHARED))
def test_every_case_by_hand(name: str) -> None:
    """Ways as counted here."""
    f: ig.Fusion = CASES.SHARED[name]()
    m = ig.IdModel(f)
    shared = [a for e in live_exprs(f) for a in m.index_map(e).accesses if a.buffer.place == "shared"]
    for a in shared:
        if any(x.parallel.startswith("thread") for x in a.loops):
            assert a.bank_conflicts().ways == words_by_hand(a), str(a)
    assert len(shared) >= 2 or not any(t.memory == "shared" for t in f.tensors)


@settings(max_examples=40)
@given(st.data())
def test_any_tile_by_hand(data: st.DataObject) -> None:
    """Tiles of odd sizes, padded or swizzled, read along rows or columns, threads in one or two dimensions."""
    rows, columns = data.draw(st.sampled_from([3, 4, 8, 20, 32])), data.draw(st.sampled_from([4, 7, 16, 32, 33]))
    f = ig.Fusion("tile")
    dtype = data.draw(st.sampled_from(["float32", "bfloat16", "float64", "int8", "int64"]))
    t = ig.copy(f.input("a", shape=(2, rows, columns), dtype=dtype), name="t").set_memory("shared")
    u = f.output(ig.permute(t, (0, 2, 1)))
    for x in (t, u):
        ways = data.draw(st.sampled_from([("", "threadIdx.x"), ("threadIdx.x", ""), ("threadIdx.y", "threadIdx.x")]))
        x.parallelize(0, "blockIdx.x")
        for p, way in enumerate(ways):
            x.parallelize(p + 1, way or "serial")
    loops = t.loop
    pad = data.draw(st.integers(0, 5))
    if data.draw(st.booleans()) and rows <= columns and columns & (columns - 1) == 0:
        t.swizzle("xor", 1, 2).set_allocation(t.loop).set_loop(loops)
    elif pad:
        t.resize(2, 0, pad).set_allocation(t.loop).set_loop(loops)
    t.inline(1)
    for a in accesses(f):
        assert a.bank_conflicts().ways == words_by_hand(a), f"{a}\n{f}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_suggestions_hold(dtype: str) -> None:
    """Each layout offered, applied: no access of the array has a conflict, and the result is the same."""
    f = tile(32, dtype)
    found = accesses(f)[1].bank_conflicts()
    suggestions = found.suggestions()
    assert suggestions and "conflict" in str(found)
    for suggestion in suggestions:
        g = suggestion.apply(f)
        left = [words_by_hand(a) for a in accesses(g)]
        assert max(left) == suggestion.ways < found.ways
        assert ig.validate(g, target="python").ok
        assert accesses(g)[0].buffer.size - accesses(f)[0].buffer.size == suggestion.extra


def test_the_witness_lanes_want_different_words_of_one_bank() -> None:
    read = accesses(tile(32))[1]
    found = read.bank_conflicts()
    assert read.buffer.place == "shared" and len(found.lanes) == found.ways == 32
    for lane in found.lanes:
        assert int(read.address.evaluate(lane.point)) * 4 == lane.byte and lane.byte // 4 % 32 == found.bank
    assert len({lane.byte // 4 for lane in found.lanes}) == 32 and len({lane.lane for lane in found.lanes}) == 32


def vectors(columns: int, width: int) -> ig.Fusion:
    """Rows of vectors through shared memory: each lane moves ``width`` float32 at once."""
    f = ig.Fusion("v")
    t = ig.copy(f.input("a", shape=(32, columns)), name="t").set_memory("shared")
    u = f.output(ig.copy(t))
    for x in (t, u):
        x.split(1, width).parallelize(0, "threadIdx.y").parallelize(1, "threadIdx.x").parallelize(2, "vectorize")
        x.split(0, 32).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.y")
    t.inline(1)
    return f


@pytest.mark.parametrize(("width", "phases"), [(1, 1), (2, 2), (4, 4)])
def test_vectors_run_in_phases(width: int, phases: int) -> None:
    read = accesses(vectors(32, width))[1]
    found = read.bank_conflicts()
    assert (found.bytes, found.phases, found.passes, found.ways) == (4 * width, phases, phases, 1)


def test_vectors_down_a_column() -> None:
    """16-byte lanes, one row each, rows of 32 words: 8 lanes of a phase all want the same four banks."""
    f = ig.Fusion("v")
    t = ig.copy(f.input("a", shape=(2, 32, 32)), name="t").set_memory("shared")
    u = f.output(ig.copy(t))
    for x in (t, u):
        x.split(2, 4).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(3, "vectorize")
    t.inline(1)
    found = accesses(f)[1].bank_conflicts()
    assert (found.bytes, found.phases, found.ways, found.passes) == (16, 4, 8, 32)
    for suggestion in found.suggestions():
        after = accesses(suggestion.apply(f))
        assert [a.bank_conflicts().ways for a in after] == [1, 1]
        assert [a.bank_conflicts().bytes for a in after] == [16, 16]
    assert found.suggestions()


def test_an_array_in_the_order_of_the_allocation() -> None:
    """Columns of the tile first: the conflict moves from the reader to the writer."""
    f = tile(32)
    t = f["t"]
    write, read = accesses(f)
    assert (str(write.address), str(read.address)) == ("i1*32 + i2", "i1 + i2*32")
    t.set_allocation([t.logical[0], t.logical[2], t.logical[1]])
    write, read = accesses(f)
    assert (str(write.address), str(read.address)) == ("i1 + i2*32", "i1*32 + i2")
    assert (write.bank_conflicts().ways, read.bank_conflicts().ways) == (32, 1)
    assert ig.validate(f, target="python").ok


def test_questions_without_an_answer() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(8,))
    t = ig.copy(a, name="t").set_memory("shared")
    u = f.output(ig.copy(t))
    m = ig.IdModel(f)
    assert u.definition
    assert t.definition
    with pytest.raises(ig.IndexingError, match="a is not in shared memory"):
        m.access(t.definition, a).bank_conflicts()
    with pytest.raises(ig.IndexingError, match="runs on threads"):
        m.access(u.definition, t).bank_conflicts()
    t.parallelize(0, "threadIdx.x")
    u.parallelize(0, "threadIdx.x")
    with pytest.raises(ig.IndexingError, match="not a thread dimension"):
        m.access(u.definition, t).bank_conflicts(block={"threadIdx.q": 4})


def test_symbolic_extents_need_numbers() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    t = ig.copy(f.input("a", shape=(n, 32)), name="t").set_memory("shared")
    u = f.output(ig.copy(t))
    for x in (t, u):
        x.parallelize(0, "threadIdx.x")
    read = ig.IdModel(f).access(t.uses[0], t)
    assert u.definition
    with pytest.raises(ig.IndexingError, match="bank_conflicts needs a number"):
        read.bank_conflicts()
    assert read.bank_conflicts(symbols={"n": 32}).ways == 32 and read.bank_conflicts(symbols={"n": 5}).ways == 5


@pytest.mark.parametrize(
    ("dtype", "lanes", "ways"),
    [("float32", 4, 1), ("float32", 8, 2), ("float32", 16, 4), ("float32", 6, 1), ("float32", 3, 1), ("float64", 4, 2),
     ("float64", 8, 4), ("float16", 16, 2), ("float16", 6, 1), ("int8", 32, 2), ("int8", 64, 4)],
)  # fmt: skip
def test_a_lane_of_more_than_16_bytes_is_several_accesses(dtype: Literal["float32"], lanes: int, ways: int) -> None:
    f = ig.Fusion("wide")
    t = ig.copy(f.input("x", shape=(4, 32 * lanes), dtype=dtype), name="t")
    y = f.output(ig.copy(t))
    for u in (t, y):
        u.split(1, lanes)
        u.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x").parallelize(2, "vectorize")
    t.inline(1).set_memory("shared")
    m = ig.IdModel(f)
    assert t.definition is not None and y.definition is not None
    for a in (m.write(t.definition), m.access(y.definition, t)):
        assert a.bank_conflicts().ways == ways
    bytes_ = m.write(t.definition).bank_conflicts().bytes
    stores = re.findall(r"([vw])store(\d+)\(tile", ig.emit(f, target="cuda").source) or [("v", "1")]
    size = {"float32": 4, "float64": 8, "float16": 2, "int8": 1}[dtype]
    assert {int(n) * (4 if kind == "w" else size) for kind, n in stores} >= {bytes_}
