"""Closed forms of the classic schedules, readable; the property tests check them at every point."""

from typing import Any

import pytest

import idgraph as ig
from idgraph.arith import symbol
from idgraph.index import buffer_size


def maps(t: ig.Tensor) -> ig.AccessTable:
    assert t.definition
    return ig.IdModel(t.fusion).index_map(t.definition)


def test_pointwise_flattened_and_split() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(6, 35)) + 1.0)
    t.merge(0).split(0, 4)
    a = maps(t).accesses[0]
    assert str(a.address) == "i0*4 + i1" and str(a.predicate) == "i0*4 + i1 < 210"
    assert [str(c) for c in a.coordinates] == ["(i0*4 + i1)//35", "(i0*4 + i1)%35"]


def test_divisible_split_has_no_predicate() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(64,)) + 1.0)
    t.split(0, 8)
    assert str(maps(t).accesses[0].predicate) == "True"


def test_outer_split() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(30,)) + 1.0)
    t.split(0, 4, inner=False)
    assert str(maps(t).accesses[0].address) == "i0*8 + i1"
    assert str(maps(t).accesses[0].predicate) == "i0*8 + i1 < 30"


def test_nested_non_divisible_splits_bound_the_inner_part_too() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(12,)) + 1.0)
    t.split(0, 4).split(1, 3)
    assert str(maps(t).accesses[0].predicate) == "i1*3 + i2 < 4"


def test_split_hidden_behind_a_size_one_axis() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(1, 5)) + 1.0)
    t.split(0, 8)
    write = maps(t).accesses[0]
    visits = [i for i in range(8) if write.predicate.evaluate({"i0": 0, "i1": i, "i2": 0})]
    assert visits == [0]


def test_reshape_chain() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(100,))
    t = f.output(ig.reshape(ig.reshape(a, 4, 25), 5, 2, 10))
    assert str(maps(t).accesses[1].address) == "i0*20 + i1*10 + i2"


def test_transposed_reshape() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.reshape(ig.transpose(f.input("a", shape=(4, 6)), 0, 1), 24))
    assert [str(c) for c in maps(t).accesses[1].coordinates] == ["i0//4", "i0%4"]


def test_slice_scheduled_like_its_producer() -> None:
    """The loop runs over the whole root axis; only the slice's part is touched."""
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(64,))[8:40])
    t.set_loop(t.root)
    write, read = maps(t).accesses
    assert str(write.coordinates[0]) == "i0 - 8" and str(read.coordinates[0]) == "i0"
    assert [i for i in range(64) if write.predicate.evaluate({"i0": i})] == list(range(8, 40))


def test_pad_reads_only_what_exists() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.pad(f.input("a", shape=(10,)), (2, 3)))
    write, read = maps(t).accesses
    assert str(write.predicate) == "True"
    assert [i for i in range(15) if read.predicate.evaluate({"i0": i})] == list(range(2, 12))


def test_reduction_with_a_split_reduction_axis() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.sum(f.input("a", shape=(4, 10)), 1))
    t.split(1, 4)
    write, read = maps(t).accesses
    assert [str(c) for c in write.coordinates] == ["i0"] and str(write.predicate) == "i1*4 + i2 < 10"
    assert [str(c) for c in read.coordinates] == ["i0", "i1*4 + i2"]


def test_broadcast_inlined_into_a_merge() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(1, 7)), f.input("b", shape=(5, 7))
    t = ig.copy(a)
    u = f.output(t + b)
    for x in (t, u):
        x.merge(0).split(0, 4)
    t.inline(1)
    m = ig.IdModel(f)
    assert t.definition and u.definition
    write, read = m.write(t.definition), m.access(u.definition, t)
    # both sides name one slot of the buffer that belongs to one iteration of the shared loop
    assert str(write.slots[1]) == str(read.slots[1]) == "i1"
    assert [str(x.extent) for x in m.loops(t.definition)] == ["9", "4"]
    assert m.promotion(t.loop[0]) is u.loop[0]


def test_xor_swizzle_is_its_own_inverse() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(8, 8)) + 1.0)
    t.swizzle("xor", 0, 1)
    assert [str(c) for c in maps(t).accesses[0].coordinates] == ["i0", "i0 ^ i1"]


def test_gather_has_a_loaded_coordinate() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(4, 1), dtype="int64")
    t = f.output(ig.gather(x, 1, i))
    assert t.definition
    a = ig.IdModel(f).access(t.definition, x)
    assert str(a.address) == "i0*33 + ld1"
    ((name, (tensor, where)),) = a.loads.items()
    assert name == "ld1" and tensor is i and [str(w) for w in where] == ["i0", "0"]
    assert a.address.evaluate({"i0": 2, "ld1": 5}) == 71
    assert [str(b) for b in a.load_bounds] == ["ld1 >= 0", "ld1 < 33"]
    assert str(a.predicate) == "True"
    # A coordinate knows its own loads, and is otherwise the same expression.
    row, column = a.coordinates
    assert dict(row.loads) == {} and dict(column.loads) == a.loads == a.address.loads
    assert column == symbol("ld1") and hash(column) == hash(symbol("ld1"))
    assert column.evaluate({"ld1": 5, "i0": 2}) == 5
    assert dict(ig.IdModel(f).write(t.definition).coordinates[0].loads) == {}


def test_strided_transposed_expanded_and_offset_inputs() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 6), strides=(1, 4), offset=3)
    b = f.input("b", shape=(4, 6), strides=(0, 1))
    t = f.output(a + b)
    _, read_a, read_b = maps(t).accesses
    assert str(read_a.address) == "i0 + i1*4 + 3" and str(read_b.address) == "i1"


def test_allocation_order() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(4, 6)) + 1.0)
    t.set_allocation([t.logical[1], t.logical[0]])
    assert str(maps(t).accesses[0].address) == "i0 + i1*4"


def test_symbolic_extents() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    t = f.output(ig.reshape(f.input("a", shape=(n, 8)), n * 8))
    t.split(0, 8)
    assert str(maps(t).accesses[1].address) == "i0*8 + i1"
    assert str(maps(t).accesses[0].predicate) == "True"


@pytest.mark.parametrize(("offset", "width"), [(0, 4), (4, 4), (2, 2), (3, 1)])
def test_vector_width_through_a_slice(offset: int, width: int) -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(64,))
    t = f.output(a[offset : offset + 32])
    assert t.definition
    read = ig.IdModel(f).access(t.definition, a)
    assert read.contiguous(0) and read.vector_width("i0") == width


def test_vector_width_stops_at_a_loaded_value() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(33, 8)), f.input("i", shape=(4, 8), dtype="int64")
    t = f.output(ig.gather(x, 0, i))
    assert t.definition
    read = ig.IdModel(f).access(t.definition, x)
    assert not read.contiguous(1) and read.vector_width(1) == 1


def test_index_width() -> None:
    f = ig.Fusion("f")
    small, large = f.input("s", shape=(2**20,)), f.input("l", shape=(2**16, 2**16))
    for t, bits in ((f.output(small + 1), 32), (f.output(large + 1), 64)):
        assert t.definition and ig.IdModel(f).write(t.definition).index_bits == bits


def test_unreachable_question_names_the_operation() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(4,)), f.input("b", shape=(4,))
    t = f.output(a + 1)
    assert t.definition
    with pytest.raises(ig.IndexingError, match="neither reads nor writes b"):
        ig.IdModel(f).access(t.definition, b)


def test_answers_follow_the_schedule() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(30,)) + 1.0)
    assert t.definition
    m = ig.IdModel(f)
    exact = m.exact
    assert str(m.write(t.definition).address) == "i0"
    t.split(0, 4)
    assert (
        str(m.write(t.definition).address) == "i0*4 + i1" and str(m.write(t.definition).predicate) == "i0*4 + i1 < 30"
    )
    assert m.exact is not exact and len(exact.groups) == 1


def test_the_definition_of_an_input_is_no_operation() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4,))
    f.output(x + 1.0)
    nothing: Any = x.definition
    m = ig.IdModel(f)
    with pytest.raises(ig.IndexingError, match="that of an input is None"):
        m.loops(nothing)
    with pytest.raises(ig.IndexingError, match="that of an input is None"):
        m.index_map(nothing)
    with pytest.raises(ig.IndexingError, match="that of an input is None"):
        m.access(nothing, x)


def test_buffers_hold_their_last_element_and_no_more() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    sizes = {
        "40": f.input("a", shape=(5, 8)),
        "45": f.input("b", shape=(5, 8), offset=5),
        "56": f.input("c", shape=(5, 8), strides=(12, 1)),
        "8": f.input("d", shape=(5, 8), strides=(0, 1)),
        "0": f.input("e", shape=(5, 0), offset=3),
        "n*8": f.input("g", shape=(n, 8)),
        "1": f.input("h", shape=()),
    }
    for size, t in sizes.items():
        assert str(buffer_size(t)) == size, t.name


def test_a_bound_that_remainders_imply_is_dropped() -> None:
    """Every third element from the second on, of sixteen: the last one is not among them."""
    f = ig.Fusion("f")
    t = f.output(ig.slice(f.input("a", shape=(16,)), 0, 2, 15, 3))
    t.set_loop(t.root)
    write = maps(t).accesses[0]
    visits = [i for i in range(16) if write.predicate.evaluate({"i0": i})]
    assert visits == [2, 5, 8, 11, 14]
    assert str(write.predicate) == "i0%3 == 2"
    assert str(write.coordinates[0]) == "(i0 - 2)//3"
