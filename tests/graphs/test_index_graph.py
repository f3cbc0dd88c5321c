"""The index graph on every kind of operation, alone and in one fusion; why two uses agree, and where they part."""

from __future__ import annotations

import idgraph as ig
from idgraph.ir import TensorExpr


def valid(f: ig.Fusion) -> None:
    """Addresses and values are those of the operations' definitions."""
    report = ig.validate(f, target="python")
    assert report.ok, str(report)


def defined(t: ig.Tensor) -> TensorExpr:
    assert t.definition is not None
    return t.definition


def groups_of(m: ig.IdModel, e: TensorExpr) -> set[frozenset[ig.IterDomain]]:
    """The groups of one operation's uses, by axis."""
    return {frozenset(k[0] for k in g) for g in m.index.groups if all(k[1] is e for k in g)}


def test_resize_with_gather_take_along_and_scatter_in_one_fusion() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4, 9)), f.input("i", shape=(4, 3), dtype="int64")
    turned = ig.cat([x[:, 4:], x[:, :4]], 1, name="turned")
    g = ig.gather(turned, 1, i, name="g")
    k = ig.take_along_dim(ig.pad(x, (1, 1)), i, 1, name="k")
    s = ig.scatter_add(turned, 1, i, g + k)
    f.output(s * x)
    m = ig.IdModel(f)
    e = defined(g)
    (rows, columns), (out_rows, out_columns) = turned.logical, g.logical
    assert m.index.mapped((rows, e), (out_rows, e))
    assert not m.index.mapped((columns, e), (out_columns, e))  # a gathered axis has a loaded coordinate
    assert m.index.mapped((i.logical[1], e), (out_columns, e))
    a = m.access(e, turned)
    assert [str(c) for c in a.coordinates] == ["i0", "ld1"] and a.loads["ld1"][0] is i
    assert not [c for c in m.index.cycles() if c.changes_index]
    valid(f)


def test_strided_slices_and_flips() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(12,))
    odd, back = x[1::3], x[::-1]
    f.output(odd * 1.0, back + x)
    m = ig.IdModel(f)
    assert [str(c) for c in m.access(defined(odd), x).coordinates] == ["i0*3 + 1"]
    assert [str(c) for c in m.access(defined(back), x).coordinates] == ["11 - i0"]
    assert groups_of(m, defined(odd)) == {frozenset({x.logical[0], odd.root[0]}), frozenset({odd.logical[0]})}
    valid(f)


def test_a_slice_reads_its_input_at_the_root() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    cut = f.output(x[2:])
    m = ig.IdModel(f)
    assert groups_of(m, defined(cut)) == {frozenset({x.logical[0], cut.root[0]}), frozenset({cut.logical[0]})}
    (step,) = m.index.expr_groups
    assert [set(g.keys) for g in step.inputs] == [{(x.logical[0], defined(cut)), (cut.root[0], defined(cut))}]
    valid(f)


def test_reductions_and_the_broadcast_back() -> None:
    """A reduced axis is a loop of its own; its reader has a broadcast in its place."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    top = ig.amax(x, 1, keepdim=True, name="top")
    out = f.output(ig.sub(x, top, name="out"))
    m = ig.IdModel(f)
    e = defined(top)
    if e.op != "amax":
        e = defined(e.inputs[0])
    reduced = next(d for d in e.output.logical if d.kind == "reduction")
    assert m.index.mapped((x.logical[1], e), (reduced, e))
    assert not m.index.mapped((x.logical[1], e), (x.logical[1], defined(out)))
    assert [str(c) for c in m.access(defined(out), top).coordinates] == ["i0", "0"]
    valid(f)


def test_promoted_loops_map_stand_ins_and_not_the_axes() -> None:
    """split(merge(b, I)) inlined at 1: t's outer axis under its reader depends on an inner loop that t lacks."""
    f = ig.Fusion("f")
    t = ig.copy(f.input("x", shape=(1, 6)), name="t")
    u = f.output(ig.add(t, f.input("y", shape=(4, 6)), name="u"))
    for x in (t, u):
        x.merge(0).split(0, 5)
    t.inline(1)
    m = ig.IdModel(f)
    make, use = defined(t), defined(u)
    own = t.loop[0]
    assert not m.index.mapped((own, make), (own, use))
    stand_in = m.index.nests.shadows[t].loop[0]
    assert stand_in.tensor is None
    assert m.index.mapped((stand_in, make), (stand_in, use)) and m.index.mapped((stand_in, use), (u.loop[0], use))
    why = m.index.explain((stand_in, make), (u.loop[0], use))
    assert "takes its extent from add -> u" in str(why)
    valid(f)


def test_uses_are_apart_without_a_shared_loop_and_one_with_it() -> None:
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 6)), name="t")
    u = f.output(ig.mul(t, 2.0, name="u"))
    rows, columns = t.logical
    make, use = defined(t), defined(u)
    m = ig.IdModel(f)
    apart = m.index.explain((rows, make), (rows, use))
    assert not apart and "are not the same" in str(apart) and "t.I2, exp -> t" in str(apart)
    t.inline(1)
    assert m.index.mapped((rows, make), (rows, use)) and not m.index.mapped((columns, make), (columns, use))
    why = m.index.explain((rows, make), (rows, use))
    assert [fact.reason.because for fact in why] == ["inline"]
    assert "t is inlined: loop 0 is shared with mul -> u" in str(why) and "test_index_graph.py" in str(why)
    valid(f)


def test_why_not_names_the_first_place_where_two_uses_part() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    low, high = x[:4], x[4:]
    f.output(low + high)
    m = ig.IdModel(f)
    why = m.index.explain((low.logical[0], defined(low)), (high.logical[0], defined(high)))
    assert not why
    assert "part at (t1.I1, slice -> t1) and (t2.I3, slice -> t2)" in str(why)
    valid(f)


def test_rotation_has_no_way_around() -> None:
    """Slices, cat and residual: the exact graph is cyclic, the index graph has one node for each axis and use."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    out = f.output(x + ig.cat([x[3:], x[:3]]))
    m = ig.IdModel(f)
    assert {c.kind for c in m.exact.cycles()} == {"shift"} and m.index.cycles() == ()
    uses = [e for e in f.exprs if x in e.inputs]
    assert len({m.index.group(x.logical[0], e).number for e in uses}) == len(uses) == 3
    assert m.index.mapped((x.logical[0], defined(out)), (out.logical[0], defined(out)))
    valid(f)


def test_one_tensor_read_twice_by_one_operation() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 4))
    twice = f.output(ig.cat([x, x], 1))
    same = f.output(x * x)
    m = ig.IdModel(f)
    e, column = defined(twice), x.logical[1]
    assert not m.index.mapped((column, e), (column, e, 1))
    assert m.index.mapped((column, defined(same)), (column, defined(same), 1))
    valid(f)


def test_size_one_neighbours_share_the_coordinate() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(1, 6))
    t = f.output(ig.reshape(x, 6))
    m = ig.IdModel(f)
    assert [str(c) for c in m.access(defined(t), x).coordinates] == ["0", "i0"]
    t.split(0, 6)
    e = defined(t)
    assert m.index.mapped((t.logical[0], e), (t.loop[1], e))
    valid(f)


def test_networkx_keeps_every_attribute() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8,))
    cut = f.output(x[2:])
    g = ig.IdModel(f).index.to_networkx()
    exprs = [data for _, data in g.nodes(data=True) if data["kind"] == "expr"]
    assert [(data["op"], [str(a) for a in data["attributes"]]) for data in exprs] == [("Resize", ["resize", "-2", "0"])]
    keys = {key for _, data in g.nodes(data=True) if data["kind"] == "group" for key in data["keys"]}
    assert keys == {(d, defined(cut)) for d in (x.logical[0], cut.root[0], cut.logical[0])}
