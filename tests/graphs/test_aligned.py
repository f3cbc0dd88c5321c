"""Aligned and extents graphs on the cases that define them: the union left out, and its explanation."""

from __future__ import annotations

import pytest

import idgraph as ig
from tests.property.test_aligned import breaks_the_law


def rotation(turned_round: bool = False) -> tuple[ig.Fusion, ig.Tensor, ig.Tensor, ig.Tensor]:
    f = ig.Fusion("rotation")
    t0 = f.input("t0", shape=(64,))
    t1, t2 = t0[:32], t0[32:]
    t3 = ig.cat([t2, t1], dim=0)
    t4 = f.output(t3 + t0 if turned_round else t0 + t3)
    return f, t0, t3, t4


@pytest.mark.parametrize("turned_round", [False, True])
def test_rotation_with_residual(turned_round: bool) -> None:
    """The add's union with the operand computed last is left out, whichever that is."""
    f, t0, t3, t4 = rotation(turned_round)
    m = ig.IdModel(f)
    a, b, c = t0.logical[0], t3.logical[0], t4.logical[0]
    assert m.extents.mapped(a, b) and m.aligned.mapped(a, c) and not m.aligned.mapped(a, b)
    assert m.extents.is_cyclic and not m.aligned.is_cyclic
    ((left, right, operation),) = m.aligned.align_edges
    assert {left, right} == {m.aligned.group(a), m.aligned.group(b)} and operation is t4.definition
    line = operation.source_line.line if operation.source_line is not None else 0
    said = f"same extent by add at line {line}; index differs by -32 on [32, 64), +32 on [0, 32)"
    assert said in str(m.aligned.explain(a, b)) and said in str(m.extents.explain(a, b))
    assert not m.aligned.explain(a, b) and m.extents.explain(a, b)
    assert said in str(m.aligned.explain(b, a))  # a rotation by half is its own inverse
    assert "aligned: the same index" in m.extents.explain(a, c).note


def test_the_difference_is_told_from_the_first_axis() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(10,))
    u = ig.cat([t[3:], t[:3]], name="u")
    f.output(t + u)
    m = ig.IdModel(f)
    assert "by -3 on [3, 10), +7 on [0, 3)" in str(m.aligned.explain(t.logical[0], u.logical[0]))
    assert "by -7 on [7, 10), +3 on [0, 7)" in str(m.aligned.explain(u.logical[0], t.logical[0]))


def test_what_is_scheduled_alike_has_edges_of_its_own() -> None:
    """Loops split equally are one in the exact graph because of the add: they are its edges too."""
    f, _, t3, t4 = rotation()
    t4.split(0, 8)
    ig.schedule.like(f, t4)
    m = ig.IdModel(f)
    pairs = [{e.left, e.right} for e in m.aligned.align_edges]
    assert all({m.aligned.group(d) for d in two} in pairs for two in zip(t3.loop, t4.loop, strict=True))
    assert {e.operation for e in m.aligned.align_edges} == {t4.definition}


def test_each_of_several_rotations_owns_what_follows_from_it() -> None:
    """Pairs of loops that no operation names: the add that made their axes one owns them, however many there are."""
    f = ig.Fusion("f")
    at = f.input("t0", shape=(24,))
    owner: dict[ig.Tensor, ig.Tensor] = {}
    for k in range(1, 5):
        turned = ig.cat([at[k:], at[:k]], name=f"c{k}")
        at = ig.add(at, turned, name=f"s{k}")
        owner[turned] = at
    f.output(at).split(0, 4)
    ig.schedule.like(f, at)
    m = ig.IdModel(f)
    of = {m.aligned.group(d): s.definition for t, s in owner.items() for d in (*t.logical, *t.loop)}
    found = [({of[g] for g in (e.left, e.right) if g in of}, e.operation) for e in m.aligned.align_edges]
    assert len(found) >= 3 * len(owner) and all(operation in wanted for wanted, operation in found)


@pytest.mark.parametrize("symbolic", [False, True])
def test_nothing_goes_where_nothing_moves(symbolic: bool) -> None:
    """Slices joined in place, windows and back: cycles of identities stay."""
    f = ig.Fusion("f")
    n = f.symbol("n", min=2, multiple_of=2) if symbolic else 8
    t = f.input("t", shape=(n,))
    f.output(t + ig.cat([t[: n // 2], t[n // 2 :]]))
    m = ig.IdModel(f)
    assert m.aligned.align_edges == () and m.aligned.is_cyclic and {c.kind for c in m.aligned.cycles()} == {"identity"}


def test_a_symbolic_rotation_goes_too() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=2, multiple_of=2)
    t = f.input("t", shape=(n,))
    u = ig.cat([t[n // 2 :], t[: n // 2]])
    f.output(t + u)
    m = ig.IdModel(f)
    assert not m.aligned.mapped(t.logical[0], u.logical[0]) and not m.aligned.is_cyclic
    assert "same extent by add" in str(m.aligned.explain(t.logical[0], u.logical[0]))


def test_a_transposed_residual() -> None:
    """No cycle, but one operation touches the two axes at different coordinates."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 8))
    out = f.output(t + t.T)
    m = ig.IdModel(f)
    assert not m.exact.is_cyclic and m.exact.self_mappings and not m.aligned.self_mappings
    assert m.aligned.mapped(t.logical[0], out.logical[0]) and not m.aligned.mapped(t.logical[0], t.logical[1])
    assert m.extents.mapped(t.logical[0], t.logical[1])


def test_windows_that_do_not_come_back_to_their_place() -> None:
    """Taken apart and merged otherwise: each axis alone would come back, were the other one where it is not."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(4, 4))
    t1, t3 = ig.add(a, a, name="t1"), ig.add(a, a, name="t3")
    back = ig.reshape(ig.reshape(t1, 2, 2, 4), 4, 4)
    t8 = ig.reshape(ig.permute(ig.reshape(back, 2, 2, 2, 2), (0, 2, 1, 3)), 4, 4, name="t8")
    out = f.output(ig.add(ig.add(t3, a), t8, name="t10"))
    out.split(0, 2)
    ig.schedule.like(f, out)
    m = ig.IdModel(f)
    assert not breaks_the_law(f, m.aligned) and not m.aligned.mapped(a.logical[0], t8.logical[0])


def test_a_loop_that_an_operation_of_its_own_flips() -> None:
    """The flipped loop of t5 is t3's axis by congruence: t5's operation touches that one unflipped."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(6,))
    t3 = ig.cat([a[1:], a[:1]], name="t3")
    t5, t6 = ig.add(a, t3, name="t5"), ig.add(t3, a, name="t6")
    t7, t10 = ig.flip(t5, 0), ig.cat([t5[1:], t5[:1]], name="t10")
    out = f.output(ig.add(t10, t7, name="t11"))
    out.split(0, 2)
    ig.schedule.like(f, out)
    m = ig.IdModel(f)
    assert t6 in f.tensors and not breaks_the_law(f, m.aligned)


def test_the_names_say_what_is_wrong_with_an_argument() -> None:
    f, t0, _, _ = rotation()
    other = ig.Fusion("other").input("u", shape=(3,))
    m = ig.IdModel(f)
    for g in (m.aligned, m.extents):
        with pytest.raises(ig.IndexingError, match="is not an axis of a tensor"):
            g.explain(t0, 3)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ig.IndexingError, match=f"u.I0 is not in the {g.name} graph"):
            g.explain(t0.logical[0], other.logical[0])
        assert g.to_svg() and g.to_dot() and g.to_networkx() and g.definitions(g.groups[-1]) is not None


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 8)])
def test_axes_of_one_operand_are_united_at_once(shape: tuple[int, ...]) -> None:
    """Reshaped and back: either axis alone would leave the other one open, both together are the identity."""
    f = ig.Fusion("f")
    b = f.input("b", shape=shape)
    y = ig.reshape(ig.reshape(b, shape[0] * shape[1] // 4, 2, 2), *shape)
    s = ig.add(y, b)
    f.output(ig.add(ig.cat([s[2:], s[:2]], 0), b))  # the rotation keeps the whole graph from being aligned
    m = ig.IdModel(f)
    assert all(m.aligned.mapped(p, q) for p, q in zip(y.logical, b.logical, strict=True))
    assert [edge.operation.op for edge in m.aligned.align_edges] == ["add"]
    assert not any(c.changes_index for c in m.aligned.cycles())


def test_what_is_refused_of_one_axis_is_asked_again_of_both() -> None:
    """The add would align the rows of ``t`` and ``u`` alone, which leaves their columns open; the product both."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(4, 8))
    u = ig.reshape(ig.reshape(t, 32), 4, 8)
    v = f.output((ig.cat([u[:, 4:], u[:, :4]], dim=1) + t) * u)
    m = ig.IdModel(f)
    assert all(m.aligned.mapped(p, q) for x in (u, v) for p, q in zip(t.logical, x.logical, strict=True))
    assert [edge.operation.op for edge in m.aligned.align_edges] == ["add"]
