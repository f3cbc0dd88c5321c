"""The rules of each graph, one named example each, with the groups expected."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.graphs import CongruenceClosure, DomainGraph, SignatureTable
from idgraph.graphs.signature import KeyList


def valid(f: ig.Fusion) -> None:
    """Addresses and values are those of the operations' definitions."""
    report = ig.validate(f, target="python")
    assert report.ok, str(report)


def groups(g: DomainGraph, **names: ig.IterDomain) -> set[frozenset[str]]:
    """The groups of the named axes, by name."""
    found: dict[int, set[str]] = {}
    for name, d in names.items():
        found.setdefault(g.group(d).number, set()).add(name)
    return {frozenset(x) for x in found.values()}


def sets(*texts: str) -> set[frozenset[str]]:
    """``sets("a b", "c")`` is {{a, b}, {c}}."""
    return {frozenset(t.split()) for t in texts}


def two(shape: tuple[int, ...] = (30, 7)) -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    f = ig.Fusion("f")
    t = f.input("a", shape=shape) + 1.0
    return f, t, f.output(t * 2.0)


def test_forward_congruence() -> None:
    """Equal splits of one axis make equal axes; another factor, or the other side, does not."""
    f, t, u = two()
    t.split(0, 4)
    u.split(0, 4)
    g = ig.IdModel(f).exact
    assert groups(g, to=t.loop[0], ti=t.loop[1], uo=u.loop[0], ui=u.loop[1]) == sets("to uo", "ti ui")
    valid(f)
    f, t, u = two()
    t.split(0, 4)
    u.split(0, 4, inner=False)
    g = ig.IdModel(f).exact
    assert groups(g, to=t.loop[0], ti=t.loop[1], uo=u.loop[0], ui=u.loop[1]) == sets("to", "ti", "uo", "ui")
    valid(f)


def test_backward_congruence() -> None:
    """Two pads with one result, joined by an add, pad one axis: their inputs are mapped."""
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(8,)), f.input("b", shape=(8,))
    f.output(ig.pad(a, (1, 2)) + ig.pad(b, (1, 2)), ig.pad(b, (2, 1)) * 1.0)
    g = ig.IdModel(f).exact
    assert g.mapped(a.logical[0], b.logical[0])
    assert "equal outputs" in str(g.explain(a.logical[0], b.logical[0]))
    valid(f)


def test_backward_needs_equal_attributes() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(8,)), f.input("b", shape=(8,))
    f.output(ig.pad(a, (1, 2)) + ig.pad(b, (2, 1)))
    assert not ig.IdModel(f).exact.mapped(a.logical[0], b.logical[0])
    valid(f)


def test_backward_merge_with_one_input_mapped() -> None:
    """a and b share the outer axis already; the merged axis is shared, so the inner one is too."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    a, b = f.input("a", shape=(4, n)), f.input("b", shape=(4, n))
    rows = ig.sum(a, 1) + ig.sum(b, 1)
    f.output(rows, ig.flatten(a) + ig.flatten(b))
    g = ig.IdModel(f).exact
    assert groups(g, a0=a.logical[0], a1=a.logical[1], b0=b.logical[0], b1=b.logical[1]) == sets("a0 b0", "a1 b1")


def test_backward_merge_of_other_extents_maps_nothing() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(2, 6)), f.input("b", shape=(3, 4))
    f.output(ig.flatten(a) + ig.flatten(b))
    g = ig.IdModel(f).almost_exact
    assert len(groups(g, a0=a.logical[0], a1=a.logical[1], b0=b.logical[0], b1=b.logical[1])) == 4
    valid(f)


@pytest.mark.parametrize("spelling", [0, 1, 2])
def test_symbolic_attributes_by_proof(spelling: int) -> None:
    """2*n, n + n and 3*n - n are one extent."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    extent = (2 * n, n + n, 3 * n - n)[spelling]
    a, b = f.input("a", shape=(2 * n,)), f.input("b", shape=(extent,))
    t = a + 1.0
    u = f.output(t + b)
    t.split(0, 2 * n)
    u.split(0, extent)
    g = ig.IdModel(f).exact
    assert groups(g, to=t.loop[0], uo=u.loop[0], ti=t.loop[1], ui=u.loop[1]) == sets("to uo", "ti ui")


def test_almost_exact_sees_through_merges_with_one() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.unsqueeze(f.input("a", shape=(6,)), 0) * 1.0)
    one, i = t.logical
    t.merge(0)
    m = ig.IdModel(f)
    assert groups(m.almost_exact, one=one, i=i, merged=t.loop[0]) == sets("one", "i merged")
    assert len(groups(m.exact, one=one, i=i, merged=t.loop[0])) == 3
    valid(f)


def test_almost_exact_sees_through_splits_by_one_and_by_all() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(6,)), f.input("b", shape=(6,))
    t, u = f.output(a + 1.0), f.output(b + 1.0)
    t.split(0, 1)
    u.split(0, 6)
    m = ig.IdModel(f)
    assert groups(m.almost_exact, i=t.logical[0], outer=t.loop[0], one=t.loop[1]) == sets("i outer", "one")
    assert groups(m.almost_exact, i=u.logical[0], one=u.loop[0], inner=u.loop[1]) == sets("i inner", "one")
    valid(f)


def test_almost_exact_sees_through_one_after_the_other() -> None:
    """Splits by 1 of one axis, and merges with several of one element: the single elements stay apart."""
    f, t, u = two((10,))
    t.split(0, 1).split(0, 1)
    u.split(0, 1).split(1, 2)  # runs past the end of the single element
    g = ig.IdModel(f).almost_exact
    once, twice = t.domain.loop_exprs
    names = {"i": t.logical[0], "a": once.outputs[0], "b": twice.outputs[0], "x": once.outputs[1], "y": t.loop[1]}
    assert groups(g, **names) == sets("i a b", "x", "y")
    assert g.mapped(u.logical[0], u.loop[0])
    valid(f)
    f = ig.Fusion("f")
    v = f.output(ig.copy(f.input("a", shape=(10, 1, 1)))).merge(0).merge(0)
    g = ig.IdModel(f).almost_exact
    i, one, two_ = v.logical
    assert groups(g, i=i, one=one, two=two_, merged=v.loop[0]) == sets("i merged", "one", "two")
    valid(f)


def test_exact_joins_divisible_splits_of_either_side() -> None:
    f, t, u = two((24,))
    t.split(0, 6)
    u.split(0, 4, inner=False)
    m = ig.IdModel(f)
    names = {"to": t.loop[0], "ti": t.loop[1], "uo": u.loop[0], "ui": u.loop[1]}
    assert groups(m.exact, **names) == groups(m.almost_exact, **names) == sets("to uo", "ti ui")
    valid(f)


def test_almost_exact_keeps_splits_with_a_remainder_apart() -> None:
    f, t, u = two((22,))
    t.split(0, 6)  # 4 x 6
    u.split(0, 4, inner=False)  # 4 x 6
    g = ig.IdModel(f).almost_exact
    assert len(groups(g, to=t.loop[0], ti=t.loop[1], uo=u.loop[0], ui=u.loop[1])) == 4
    valid(f)


def test_almost_exact_undoes_a_reshape() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(6, 4))
    back = f.output(ig.reshape(ig.reshape(a, 24), 6, 4) * 1.0)
    (a0, a1), (b0, b1) = a.logical, back.logical
    assert groups(ig.IdModel(f).almost_exact, a0=a0, a1=a1, b0=b0, b1=b1) == sets("a0 b0", "a1 b1")
    valid(f)


def test_almost_exact_undoes_a_split_too() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(24,))
    back = f.output(ig.reshape(ig.reshape(a, 6, 4), 24) * 1.0)
    m = ig.IdModel(f)
    assert m.almost_exact.mapped(a.logical[0], back.logical[0])
    assert not m.exact.mapped(a.logical[0], back.logical[0])
    valid(f)


def test_almost_exact_never_glues_two_axes_of_one_tensor() -> None:
    """A transpose through a reshape, added to its source: the reshape must not make rows and columns one axis."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(4, 4))
    f.output(t + ig.reshape(ig.reshape(t, 16), 4, 4).T)
    m = ig.IdModel(f)
    rows, columns = t.logical
    assert not m.exact.mapped(rows, columns) and not m.almost_exact.mapped(rows, columns)
    assert m.almost_exact.self_mappings == ()
    valid(f)


def test_almost_exact_of_two_axes_of_one_element() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(1, 1)) + 1.0)
    t.merge(0)
    first, second = t.logical
    g = ig.IdModel(f).almost_exact
    assert groups(g, first=first, second=second, merged=t.loop[0]) == sets("first merged", "second")
    valid(f)


def test_a_padded_part_is_not_its_size_one_source() -> None:
    """An axis of one element split by 8, the part split again with a remainder: nothing of it is the axis."""
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(1, 6)) + 1.0)
    t.split(0, 8).split(1, 3)
    g = ig.IdModel(f).almost_exact
    assert all(not g.mapped(t.logical[0], d) for d in t.loop[1:])
    valid(f)


def test_broadcast_graph() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(6, 1)), f.input("b", shape=(6, 4))
    t = f.output(a + b)
    m = ig.IdModel(f)
    names = {"a1": a.logical[1], "b1": b.logical[1], "t1": t.logical[1]}
    assert groups(m.exact, **names) == sets("a1", "b1 t1")
    assert groups(m.broadcast, **names) == sets("a1 b1 t1")
    valid(f)


def test_a_broadcast_scheduled_like_what_it_resolves_to_stays_with_it() -> None:
    """merge(b, i) and merge(j, i), both split by 32: the same loops in the broadcast graph, others in the exact one."""
    f = ig.Fusion("f")
    t = ig.unsqueeze(f.input("y", shape=(7,)), 0, name="t")
    u = f.output(ig.add(f.input("x", shape=(6, 7)), t, name="u"))
    u.merge(0).split(0, 32)
    ig.schedule.like(f, u)
    m = ig.IdModel(f)
    assert [m.broadcast.mapped(a, b) for a, b in zip(t.loop, u.loop, strict=True)] == [True, True]
    assert [m.exact.mapped(a, b) for a, b in zip(t.loop, u.loop, strict=True)] == [False, False]


@pytest.mark.parametrize(("shapes", "mapped"), [(((1, 6), (4, 6)), True), (((2, 6), (4, 3)), False)])
def test_loose_merges_map_backward_with_one_equal_extent(
    shapes: tuple[tuple[int, int], tuple[int, int]], mapped: bool
) -> None:
    """Two merged axes are stated to be the same: so are their inputs, where one pair has equal extents."""
    f = ig.Fusion("f")
    t, u = (ig.exp(f.input(f"x{k}", shape=shape)) for k, shape in enumerate(shapes))
    f.output(t, u)
    steps = [v.merge(0).domain.loop_exprs[0] for v in (t, u)]
    keys: KeyList[ig.IterDomain] = KeyList()
    keys.enter([*t.logical, *t.loop, *u.logical, *u.loop])
    builder = CongruenceClosure("loose", keys, SignatureTable())
    for step in steps:
        builder.add_expr(step, lambda d: d)
    builder.join_loose()
    builder.map(t.loop[0], u.loop[0], ("access", None, None, 0, ()))
    assert [builder.same(a, b) for a, b in zip(t.logical, u.logical, strict=True)] == [mapped, mapped]


def test_loose_merges_map_backward_with_one_input_mapped() -> None:
    """No extents are equal, but the inner axes are stated to be one: so are the outer ones."""
    f = ig.Fusion("f")
    t, u = ig.exp(f.input("x", shape=(1, 6))), ig.exp(f.input("y", shape=(4, 3)))
    f.output(t, u)
    steps = [v.merge(0).domain.loop_exprs[0] for v in (t, u)]
    keys: KeyList[ig.IterDomain] = KeyList()
    keys.enter([*t.logical, *t.loop, *u.logical, *u.loop])
    builder = CongruenceClosure("loose", keys, SignatureTable())
    for step in steps:
        builder.add_expr(step, lambda d: d)
    builder.join_loose()
    builder.map(t.loop[0], u.loop[0], ("access", None, None, 0, ()))
    assert not builder.same(t.logical[0], u.logical[0])
    builder.map(t.logical[1], u.logical[1], ("access", None, None, 1, ()))
    assert builder.same(t.logical[0], u.logical[0])


def test_permissive_forwards_through_merges_and_names_the_complement() -> None:
    """merge(b, I) is I; the broadcast beside it stays a group of its own."""
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(1, 6)), f.input("b", shape=(4, 6))
    t = ig.copy(a)
    u = f.output(t + b)
    t.merge(0)
    g = ig.IdModel(f).permissive
    names = {"b": t.logical[0], "i": t.logical[1], "merged": t.loop[0], "u0": u.logical[0], "u1": u.logical[1]}
    assert groups(g, **names) == sets("b u0", "i merged u1")
    assert "merges with a broadcast" in str(g.explain(t.logical[1], t.loop[0]))
    valid(f)


def test_permissive_maps_what_a_merge_with_a_broadcast_becomes() -> None:
    f = ig.Fusion("f")
    a, b = f.input("a", shape=(1, 6)), f.input("b", shape=(4, 6))
    t = ig.copy(a)
    u = f.output(t + b)
    t.merge(0)
    u.merge(0)
    assert ig.IdModel(f).permissive.mapped(t.loop[0], u.loop[0])
    valid(f)


def test_permissive_resize() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(8,))
    cut, wide, odd = a[2:], ig.pad(a, (1, 1)), a[::2]
    f.output(cut * 1.0, wide * 1.0, odd * 1.0)
    m = ig.IdModel(f)
    names = {"a": a.logical[0], "cut": cut.logical[0], "wide": wide.logical[0], "odd": odd.logical[0]}
    assert groups(m.permissive, **names) == sets("a", "cut", "wide", "odd")
    assert groups(m.permissive_resize, **names) == sets("a cut wide odd")
    valid(f)


def test_a_tensor_mapped_onto_itself_is_reported() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 8))
    f.output(t + t.T)
    found = [s for s in ig.IdModel(f).exact.self_mappings if s.tensor is t]
    assert [(s.first, s.second) for s in found] == [t.logical]
    text = str(found[0])
    assert "t is mapped onto itself: I0[8] = I1[8]" in text and "permute" in text and "test_valgraph_rules.py" in text
    valid(f)


def test_graphs_are_built_when_asked_for_and_stay() -> None:
    f, t, _ = two()
    m = ig.IdModel(f)
    before = m.exact
    assert m.exact is before
    count = len(before.groups)
    t.split(0, 4)
    assert m.exact is not before and len(before.groups) == count


def test_definitions_and_uses_of_a_group() -> None:
    f, t, u = two()
    for x in (t, u):
        x.split(0, 4)
    g = ig.IdModel(f).exact
    source, outer = g.group(t.logical[0]), g.group(t.loop[0])
    (split,) = g.uses(source)
    assert split.inputs == (source,) and split.outputs[0] is outer and len(split.exprs) == 2
    assert g.definitions(outer) == (split,) and g.definitions(source) == ()


def test_explain_is_the_shortest_chain_as_data_and_as_text() -> None:
    f, t, u = two()
    for x in (t, u):
        x.split(0, 4)
    g = ig.IdModel(f).exact
    why = g.explain(t.loop[0], u.loop[0])
    (fact,) = why
    assert why.mapped and fact.left is t.loop[0] and fact.right is u.loop[0] and fact.reason.because == "congruence"
    assert fact.premises == ((t.logical[0], u.logical[0]),)
    assert str(why).endswith("since t1.I2 = t2.I4")
    deeper = g.explain(t.logical[0], u.logical[0])
    assert [x.reason.because for x in deeper] == ["access"]
    assert "t1.I2 = t2.I4: mul -> t2 reads axis 0 of t1" in str(deeper) and "test_valgraph_rules.py" in str(deeper)
    assert t.loop[0].label in str(why) and u.loop[0].label in str(why)
    apart = g.explain(t.loop[0], t.loop[1])
    assert not apart and "are not the same" in str(apart)


def test_explain_of_a_step_that_reads_what_an_equal_one_made() -> None:
    """The second split of such a chain is equal to the first: a pair of axes tells the side, not an axis alone."""
    f = ig.Fusion("f")
    t = f.output(f.input("x", shape=(2,)) + 1)
    t.split(0, 1).split(0, 1).split(1, 2)
    g = ig.IdModel(f).almost_exact
    for group in g.groups:
        for d in group:
            assert g.explain(group.keys[0], d)
    f = ig.Fusion("f")
    x = f.input("x", shape=(4,))
    x.roll(0, 1).roll(0, 1)
    f.output(x + ig.roll(x, 1))
    once, twice = (step.outputs[0] for step in x.domain.loop_exprs)
    (fact,) = ig.IdModel(f).exact.explain(once, twice)
    assert fact.reason.because == "congruence" and fact.premises == ((x.logical[0], once),)
