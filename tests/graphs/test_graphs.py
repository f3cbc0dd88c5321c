"""Groups of each graph, congruence, refinement, and networkx as a second opinion."""

import networkx as nx
import pytest

import idgraph as ig
from idgraph.graphs import DomainGraph


def refines(fine: DomainGraph, coarse: DomainGraph) -> bool:
    return all(coarse.mapped(g.keys[0], k) for g in fine.groups for k in g)


def reshaped() -> ig.Fusion:
    f = ig.Fusion("reshaped")
    a, b = f.input("a", shape=(6, 4)), f.input("b", shape=(6, 1))
    f.output(ig.reshape(ig.reshape(a + b, 24), 6, 4) * a, ig.pad(a, (1, 1)))
    return f


def test_refinement_chain() -> None:
    m = ig.IdModel(reshaped())
    assert refines(m.exact, m.almost_exact)
    assert refines(m.exact, m.broadcast)
    assert refines(m.broadcast, m.permissive)
    assert refines(m.permissive, m.permissive_resize)


def test_broadcast_axis_is_not_exact() -> None:
    f = reshaped()
    m = ig.IdModel(f)
    added = f["t2"]
    assert not m.exact.mapped(f["b"].logical[1], added.logical[1])
    assert m.broadcast.mapped(f["b"].logical[1], added.logical[1])


def test_almost_exact_sees_through_reshape_and_size_one() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(6, 4))
    back = f.output(ig.reshape(ig.reshape(a, 24), 6, 4))
    m = ig.IdModel(f)
    assert not m.exact.mapped(a.logical[0], back.logical[0])
    assert m.almost_exact.mapped(a.logical[0], back.logical[0])
    assert m.almost_exact.mapped(a.logical[1], back.logical[1])
    back.split(0, 1)
    m = ig.IdModel(f)
    assert m.almost_exact.mapped(back.logical[0], back.loop[0])
    assert not m.exact.mapped(back.logical[0], back.loop[0])


def test_size_one_axis_is_not_glued_to_its_padded_part() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("a", shape=(1,)) + 1.0)
    t.split(0, 8)
    g = ig.IdModel(f).almost_exact
    assert not g.mapped(t.logical[0], t.loop[1])


def test_congruence_maps_equal_schedules() -> None:
    f = ig.Fusion("f")
    a = f.input("a", shape=(30, 7))
    t = a + 1.0
    u = f.output(t * 2.0)
    for x in (t, u):
        x.merge(0).split(0, 4)
    g = ig.IdModel(f).exact
    assert g.mapped(t.loop[0], u.loop[0]) and g.mapped(t.loop[1], u.loop[1])
    u.split(1, 2)
    assert not ig.IdModel(f).exact.mapped(t.loop[1], u.loop[1])


def test_symbolic_extents_match_by_proof() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    a, b = f.input("a", shape=(2 * n,)), f.input("b", shape=(n + n,))
    t = a + 1.0
    u = f.output(t + b)
    t.split(0, n + n)
    u.split(0, 2 * n)
    assert ig.IdModel(f).exact.mapped(t.loop[0], u.loop[0])


def test_merge_maps_backward_only_with_equal_extents() -> None:
    f = ig.Fusion("f")
    a, b, c = f.input("a", shape=(2, 6)), f.input("b", shape=(3, 4)), f.input("c", shape=(2, 6))
    x, y, z = (ig.flatten(t) for t in (a, b, c))
    f.output(x + y + z)
    g = ig.IdModel(f).exact
    assert not g.mapped(a.logical[0], b.logical[0]) and not g.mapped(a.logical[1], b.logical[1])
    assert g.mapped(a.logical[0], c.logical[0]) and g.mapped(a.logical[1], c.logical[1])


def test_gathered_axis_is_not_mapped() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(4, 33)), f.input("i", shape=(4, 33), dtype="int64")
    y = f.output(ig.gather(x, 1, i))
    g = ig.IdModel(f).permissive
    assert g.mapped(x.logical[0], y.logical[0]) and not g.mapped(x.logical[1], y.logical[1])
    assert g.mapped(i.logical[1], y.logical[1])


def test_cat_of_one_tensor_keeps_its_two_reads_apart() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8,))
    c = f.output(ig.cat([t, t]))
    m = ig.IdModel(f)
    e = c.definition
    assert e
    assert not m.index.mapped((t.logical[0], e), (t.logical[0], e, 1))
    with pytest.raises(ig.IndexingError, match="2 different ways"):
        m.access(e, t)
    assert [str(m.access(e, t, operand=k).coordinates[0]) for k in (0, 1)] == ["i0", "i0 - 8"]


def test_networkx_agrees_on_cycles() -> None:
    for residual in (False, True):
        f = ig.Fusion("f")
        t = f.input("t", shape=(24,))
        turned = ig.cat([t[8:], t[:8]])
        f.output(turned + t if residual else turned)
        g = ig.IdModel(f).exact
        assert g.is_cyclic == (not nx.is_directed_acyclic_graph(g.to_networkx())) == residual


def test_groups_do_not_depend_on_the_order_of_operations() -> None:
    """L6: the same two slices built in either order give the same partition by name."""

    def partition(flip: bool) -> set[frozenset[str]]:
        f = ig.Fusion("f")
        t = f.input("t", shape=(24,))
        parts: dict[str, ig.Tensor] = {}
        for name in ("low", "high")[:: -1 if flip else 1]:
            parts[name] = ig.slice(t, 0, 0 if name == "low" else 8, 8 if name == "low" else 24, name=name)
        f.output(ig.add(t, ig.cat([parts["high"], parts["low"]], name="joined"), name="sum"))
        named = {d: f"{x.name}.{p}" for x in f.tensors for p, d in enumerate((*x.root, *x.logical))}
        return {frozenset(named[d] for d in g if d in named) for g in ig.IdModel(f).exact.groups}

    assert partition(False) == partition(True)


def test_unknown_axis_is_refused() -> None:
    f, h = ig.Fusion("f"), ig.Fusion("h")
    f.output(f.input("t", shape=(4,)) + 1.0)
    with pytest.raises(ig.IndexingError, match="is not in the exact graph"):
        ig.IdModel(f).exact.group(h.input("x", shape=(4,)).logical[0])


def test_a_summed_broadcast_is_what_it_is_summed_as() -> None:
    """A reduction over one element: broadcast maps it, exact does not; a shared loop over it is permissive."""
    f = ig.Fusion("f")
    t = ig.exp(f.input("x", shape=(4, 1)))
    s = f.output(ig.sum(t, 1))
    m = ig.IdModel(f)
    assert not m.exact.mapped(t.logical[1], s.logical[1])
    assert m.broadcast.mapped(t.logical[1], s.logical[1]) and m.permissive.mapped(t.logical[1], s.logical[1])
    t.inline(2)
    assert m.loop.mapped(t.loop[1], s.loop[1])
