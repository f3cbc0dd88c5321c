"""A loop is one with a reader's where the coordinates are, whatever splits, resizes and broadcasts built them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.errors import ScheduleError


def checked(f: ig.Fusion, **at: int) -> None:
    """Inline the tensors named; every access and every value of the kernels must be right."""
    for name, position in at.items():
        f[name].inline(position)
    ig.IdModel(f).verify()
    for target in ("python", "numpy", "cpu"):
        report = ig.validate(f, target=target, exhaustive=True)
        assert report.ok, str(report)


def start(*shape: int) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    return f, ig.copy(f.input("x", shape=shape), name="c")


def test_a_slice_over_its_root_beside_a_consumer_resized_back() -> None:
    f, c = start(100)
    s = ig.slice(c, 0, 1, 99, name="s")
    f.output(ig.exp(s, name="o")).resize(0, 1, 1)
    s.set_loop([s.root[0]])
    checked(f, c=1, s=1)
    m, e = ig.IdModel(f), f["o"].definition
    assert e
    why = str(m.index.explain((s.loop[0], e), (f["o"].loop[0], e)))
    assert "reads s at the coordinate of its own loop 0, by proof" in why


@pytest.mark.parametrize("upstream", [False, True])
def test_a_slice_padded_back(upstream: bool) -> None:
    f, c = start(100)
    s = ig.slice(c, 0, 1, 99, name="s")
    p = ig.pad(s, (1, 1), name="p")
    f.output(ig.exp(p, name="o"))
    if upstream:
        s.set_loop([s.root[0]])
    else:
        s.resize(0, 1, 1)
    checked(f, c=1, s=1, p=1)


def test_two_slices_padded_back_and_added() -> None:
    f, c = start(100)
    for n in (1, 2):
        ig.pad(ig.slice(c, 0, n, 100 - n, name=f"s{n}"), (n, n), name=f"p{n}")
        f[f"s{n}"].resize(0, n, n)
    f.output(ig.add(f["p1"], f["p2"], name="o"))
    checked(f, c=1, s1=1, p1=1, s2=1, p2=1)


@pytest.mark.parametrize("steps", [((3, 3),), ((2, 2), (1, 1)), ((1, 2), (2, 1))])
def test_nested_slices_and_pads(steps: tuple[tuple[int, int], ...]) -> None:
    f, c = start(100)
    a = ig.slice(c, 0, 1, 99, name="a")
    b = ig.slice(a, 0, 2, 96, name="b")
    d = ig.pad(b, (2, 2), name="d")
    f.output(ig.exp(ig.pad(d, (1, 1), name="e"), name="o"))
    a.resize(0, 1, 1)
    for left, right in steps:
        b.resize(0, left, right)
    d.resize(0, 1, 1)
    checked(f, c=1, a=1, b=1, d=1, e=1)


def test_splits_by_the_number_of_parts_and_by_their_size() -> None:
    f, c = start(100)
    o = f.output(ig.exp(c, name="o")).split(0, 20)
    c.split(0, 5, inner=False)
    checked(f, c=2)
    m = ig.IdModel(f)
    assert all(m.exact.mapped(a, b) for a, b in zip(c.loop, o.loop, strict=True))


def test_parts_of_different_counts_stay_apart() -> None:
    f, c = start(10)
    o = f.output(ig.exp(c, name="o")).split(0, 2)
    c.split(0, 6, inner=False)  # parts of 2 as well, but one more of them
    assert not any(ig.IdModel(f).exact.mapped(a, b) for a, b in zip(c.loop, o.loop, strict=True))
    checked(f, c=1)  # the loop is the reader's, one part shorter


def test_a_flattened_matrix_read_by_a_reshape() -> None:
    f, c = start(4, 25)
    f.output(ig.exp(ig.reshape(c, 5, 2, 10, name="r"), name="o"))
    c.merge(0).split(0, 5, inner=False).split(1, 2, inner=False)
    checked(f, c=3, r=3)


@pytest.mark.parametrize("second", [0, 1, 2])
def test_two_axes_unsqueezed_and_flattened_in_another_order(second: int) -> None:
    f, c = start(10)
    one = ig.unsqueeze(c, 0, name="one")
    two = ig.unsqueeze(one, second, name="two")
    shape = [4, 10]
    shape.insert(second, 3)
    f.output(ig.add(two, f.input("y", shape=shape), name="o")).merge(0).merge(0)
    two.merge(1).merge(0)
    one.merge(0)
    checked(f, two=1, one=1, c=1)


def test_broadcasts_added_one_by_one_and_flattened_in_another_order() -> None:
    f, c = start(10)
    one = ig.add(ig.unsqueeze(c, 0, name="u1"), f.input("y", shape=(4, 10)), name="one")
    two = ig.add(ig.unsqueeze(one, 0, name="u2"), f.input("z", shape=(3, 4, 10)), name="two")
    f.output(ig.exp(two, name="o")).merge(0).merge(0)
    for t in (two, f["u2"]):
        t.merge(1).merge(0)
    for t in (one, f["u1"]):
        t.merge(0)
    checked(f, c=1, u1=1, one=1, u2=1, two=1)


def test_a_slice_of_a_fused_row_reshaped_and_permuted() -> None:
    f, c = start(6, 24)
    q = ig.slice(c, 1, 8, 16, name="q")
    p = ig.permute(ig.reshape(q, 6, 2, 4, name="r"), 1, 0, 2, name="p")
    f.output(ig.exp(p, name="o"))
    c.split(1, 4).resize(1, -2, -2).reorder([1, 0, 2])
    q.split(1, 2, inner=False).reorder([1, 0, 2])
    f["r"].reorder([1, 0, 2])
    checked(f, c=3, q=3, r=3, p=3)


def test_a_reshape_scheduled_through_its_own_merge_and_split() -> None:
    f, c = start(4, 6)
    r = ig.reshape(c, 8, 3, name="r")
    o = f.output(ig.exp(r, name="o"))
    r.merge(0).split(0, 6)
    o.merge(0).split(0, 4, inner=False)
    checked(f, c=2, r=2)


def test_a_symbolic_slice_padded_back() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=4, max=40)
    c = ig.copy(f.input("x", shape=(n,)), name="c")
    s = ig.slice(c, 0, 1, n - 1, name="s")
    f.output(ig.exp(ig.pad(s, (1, 1), name="p"), name="o"))
    s.resize(0, 1, 1)
    for t in (c, s, f["p"]):
        t.inline(1)
    ig.IdModel(f).verify()


def shifted(f: ig.Fusion, c: ig.Tensor) -> None:
    s = ig.slice(c, 0, 1, 99, name="s")
    f.output(ig.exp(s, name="o")).resize(0, 2, 0)
    s.set_loop([s.root[0]])
    s.inline(1)


def reversed_twice_and_once_more(f: ig.Fusion, c: ig.Tensor) -> None:
    s = ig.flip(c, 0, name="s")
    f.output(ig.exp(s, name="o"))
    s.inline(1)
    c.inline(1)


def rotated(f: ig.Fusion, c: ig.Tensor) -> None:
    s = ig.cat([c[50:], c[:50]], 0, name="s")
    f.output(ig.add(s, c, name="o"))
    for t in f.tensors:
        if t.uses and t.definition is not None:
            if t.axes[0].extent != 100:
                t.resize(0, *((0, 50) if t is c.uses[0].output else (50, 0)))
            t.inline(1)


@pytest.mark.parametrize("make", [shifted, reversed_twice_and_once_more, rotated])
def test_loops_that_differ_are_refused_with_both_uses(make: Callable[[ig.Fusion, ig.Tensor], None]) -> None:
    f, c = start(100)
    make(f, c)
    before = str(f)
    with pytest.raises(ScheduleError) as told:
        ig.IdModel(f).verify()
    assert "does not read it at the coordinate of that loop: where that is at i0" in str(told.value)
    if make is rotated:
        assert str(told.value).count("test_same_loop.py") >= 3  # the tensor, the use, and the other use
    assert str(f) == before


def test_one_loop_runs_one_way() -> None:
    f, c = start(4, 8)
    o = f.output(ig.exp(c, name="o")).parallelize(1, "vectorize")
    c.parallelize(1, "unroll").inline(2)
    with pytest.raises(ScheduleError, match=r"c.I3 on unroll .*o.I5 on vectorize|o.I5 on vectorize .*c.I3 on unroll"):
        ig.IdModel(f).verify()
    ig.schedule.inline_most(f)
    assert c.inline_position == 1
    c.parallelize(1, "serial").inline(2)
    assert [loop.parallel for loop in ig.IdModel(f).loops(c.definition)] == ["serial", "vectorize"]  # type: ignore[arg-type]
    assert [loop.parallel for loop in ig.IdModel(f).loops(o.definition)] == ["serial", "vectorize"]  # type: ignore[arg-type]


def test_one_coordinate_wherever_it_is_read() -> None:
    """Loop 0 of the pad is the number modulo 5, that of what it pads the number: one where that has an element."""
    f, c = start(5)
    f.output(ig.pad(c, (0, 5), name="o")).split(0, 5).reorder([1, 0])
    checked(f, c=1)
    m, e = ig.IdModel(f), f["o"].definition
    assert e
    assert not m.index.mapped((c.loop[0], e), (f["o"].loop[0], e))  # elsewhere they differ
    assert m.permissive.mapped(c.loop[0], f["o"].loop[0])  # as loops they are one


def test_a_producer_runs_as_long_as_its_reader() -> None:
    """A pad behind, a slice of the front, steps that end elsewhere: the loop is the reader's, with a bound or a cut."""
    f, c = start(8)
    f.output(ig.pad(c, (0, 2), name="o"))
    checked(f, c=1)
    assert loops(f, "c") == [["10 serial"]]
    assert c.definition
    assert str(ig.IdModel(f).write(c.definition).predicate) == "i0 < 8"
    f, c = start(10)
    f.output(ig.exp(ig.slice(c, 0, 0, 8, name="s"), name="o"))
    checked(f, c=1, s=1)
    assert loops(f, "c") == [["8 serial"]]
    for longer, other in (("c", "o"), ("o", "c")):
        f, c = start(100)
        f.output(ig.exp(c, name="o"))
        f[longer].split(0, 8).split(0, 4).merge(0)
        f[other].split(0, 8)
        checked(f, c=2)
    f, c = start(100)
    f.output(ig.exp(c, name="o")).resize(0, 0, 2)
    checked(f, c=1)


def test_readers_of_two_lengths_in_one_nest() -> None:
    f, c = start(10)
    a, b = (ig.slice(c, 0, 0, n, name=f"s{n}") for n in (8, 6))
    f.output(ig.add(a, ig.pad(b, (0, 2), name="p"), name="o"))
    checked(f, c=1, s8=1, s6=1, p=1)
    assert loops(f, "c", "s6") == [["8 serial"]] * 2


def test_readers_of_two_lengths_in_two_nests_are_refused() -> None:
    f, c = start(10)
    for n in (8, 6):
        f.output(ig.exp(ig.slice(c, 0, 0, n, name=f"s{n}")))
    c.inline(1)
    with pytest.raises(ScheduleError, match=r"(?s)but a loop has one length: 10 or .* also read by"):
        ig.IdModel(f).verify()


def test_an_output_is_not_computed_in_part() -> None:
    f, c = start(10)
    f.output(c)
    f.output(ig.exp(ig.slice(c, 0, 0, 8, name="s"), name="o"))
    c.inline(1)
    with pytest.raises(ScheduleError, match="but a loop has one length: 10 or 8"):
        ig.IdModel(f).verify()


def test_a_symbolic_axis_in_a_longer_loop() -> None:
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(f.symbol("n", min=1, max=9),)), name="c")
    f.output(ig.pad(c, (0, 2), name="o"))
    c.inline(1)
    assert ig.validate(f, target="numpy", symbols={"n": 4}).ok


def loops(f: ig.Fusion, *names: str) -> list[list[str]]:
    m = ig.IdModel(f)
    return [[f"{x.extent} {x.parallel}" for x in m.loops(e)] for e in f.exprs if e.output.name in names]


def test_a_loop_that_no_wider_one_shares_keeps_its_extent() -> None:
    """c shares all loops with d, d two with o: the last loop of both is theirs alone."""
    f, c = start(1, 6, 1)
    d = ig.copy(c, name="d")
    o = f.output(ig.add(d, f.input("y", shape=(4, 6, 5)), name="o"))
    o.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    checked(f, c=3, d=2)
    assert loops(f, "c", "d") == [["4 blockIdx.x", "6 threadIdx.x", "1 serial"]] * 2
    m = ig.IdModel(f)
    for t in (c, d):
        assert t.definition
        assert m.exact.mapped(m.loops(t.definition)[0].domain, o.loop[0])
        assert m.exact.mapped(m.loops(t.definition)[2].domain, t.loop[2])
    d.inline(3)
    assert loops(f, "c", "d") == [["4 blockIdx.x", "6 threadIdx.x", "5 serial"]] * 2


def test_a_tensor_of_another_fusion_or_a_position_past_the_end() -> None:
    f, c = start(4, 6)
    f.output(ig.exp(c, name="o"))
    g, other = start(4, 6)
    g.output(ig.exp(other))
    before = str(f), str(g)
    for wrong in (
        lambda: c.inline(3),
        lambda: ig.schedule.inline_most(f, [other]),
        lambda: ig.schedule.like(f, other),
        lambda: ig.schedule.resize_to_inputs(f, other.definition),  # type: ignore[arg-type]
        lambda: ig.schedule.recompute(c, other.uses[0]),
        lambda: c.set_loop([other.logical[0], c.logical[1]]),
        lambda: ig.IdModel(f).loops(other.definition),  # type: ignore[arg-type]
        lambda: ig.IdModel(f).promotion(other.loop[0]),
    ):
        with pytest.raises(ig.IdGraphError):
            wrong()
        assert (str(f), str(g)) == before


def test_the_one_element_of_an_axis_that_loops_move() -> None:
    """Loops of three steps over one element, rolled: it is made at the second step, in a slot of its own."""
    f, c = start(3)
    t = ig.slice(c, 0, 2, 3, name="t")
    f.output(ig.slice(t, 0, 0, 1, name="o")).split(0, 3, inner=False)
    t.split(0, 3, inner=False).roll(0, 1)
    m = ig.IdModel(f)
    assert t.definition
    assert f["o"].definition
    assert [str(s) for s in m.write(t.definition).slots] == ["i0", "0"]
    assert str(m.write(t.definition).predicate) == "i0 == 1"
    read = m.access(f["o"].definition, t)
    assert [None if s is None else s.evaluate({"i0": 0, "i1": 0}) for s in read.slots] == [1, 0]
    checked(f)
    t.inline(1)
    with pytest.raises(ScheduleError, match="is not loop 0"):
        ig.IdModel(f).verify()


def test_coordinates_that_are_one_only_where_the_operand_is_read() -> None:
    """Loop 1 of the padded row is 0 wherever the copy is read, so that loop 0 of both runs over its elements."""
    f = ig.Fusion("f")
    c = ig.copy(f.input("x", shape=(5,)))
    o = f.output(ig.pad(c, (0, 5)))
    o.split(0, 5)
    o.reorder({0: 1, 1: 0})
    c.inline(1)
    assert ig.validate(f, target="numpy").ok
