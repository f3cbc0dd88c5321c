"""Kinds of cycles, decided by composing the maps around them."""

import itertools
from collections.abc import Callable

import pytest

import idgraph as ig

CASES: dict[str, tuple[Callable[[ig.Tensor], ig.Tensor], str, str | None]] = {
    "slices joined in place": (lambda t: ig.cat([t[:8], t[8:]]) + t, "identity", "0"),
    "pad then cut": (lambda t: ig.pad(ig.pad(t, (2, 1)), (-2, -1)) + t, "identity", "0"),
    "reshape and back": (lambda t: ig.reshape(ig.reshape(t, 4, 6), 24) + t, "identity", "0"),
    "asymmetric pad": (lambda t: ig.pad(t, (3, -3)) + t, "shift", "3"),
    "pad left a and right -a in two steps": (lambda t: ig.pad(ig.pad(t, (5, 0)), (0, -5)) + t, "shift", "5"),
    "roll": (lambda t: ig.roll(t, 5, 0) + t, "shift", "5"),
    "two rolls that cancel": (lambda t: ig.roll(ig.roll(t, 5, 0), -5, 0) + t, "identity", "0"),
    "flip": (lambda t: ig.flip(t, 0) + t, "reorder", None),
    "flip twice": (lambda t: ig.flip(ig.flip(t, 0), 0) + t, "identity", "0"),
    "transposed reshape": (lambda t: ig.reshape(ig.transpose(ig.reshape(t, 4, 6), 0, 1), 24) + t, "reorder", None),
}


@pytest.mark.parametrize("name", CASES)
def test_kind_and_shift(name: str) -> None:
    build, kind, shift = CASES[name]
    f = ig.Fusion("f")
    f.output(build(f.input("t", shape=(24,))))
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact, m.permissive):
        found = g.cycles()
        assert g.is_cyclic and found
        assert {c.kind for c in found} == {kind}
        assert {None if c.shift is None else str(c.shift) for c in found} == {shift}
    assert not [c for c in m.index.cycles() if c.changes_index]
    assert str(found[0]).startswith(f"{kind} cycle in the permissive graph")


def test_symbolic_shift() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=2, multiple_of=2)
    t = f.input("t", shape=(n,))
    f.output(t + ig.cat([t[n // 2 :], t[: n // 2]]))
    up, down = (c.shift for c in ig.IdModel(f).exact.cycles())
    assert up is not None and down is not None
    assert isinstance(ig.prove_equal(up + down, 0), ig.Proof)
    assert {up.evaluate({"n": 10}), down.evaluate({"n": 10})} == {5, -5}


def test_no_cycle_without_a_residual() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(24,))
    f.output(ig.cat([t[8:], t[:8]]))
    assert not ig.IdModel(f).exact.is_cyclic


def test_cycles_do_not_explode() -> None:
    """Twenty rotations in a row share one axis: every slice is on one reported cycle, not on each combination."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(64,))
    for _ in range(20):
        t = t + ig.cat([t[32:], t[:32]])
    f.output(t)
    assert len(ig.IdModel(f).exact.cycles()) <= 40


def test_self_mapping_is_reported_and_indices_stay_right() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(8, 8))
    out = f.output(t + t.T)
    m = ig.IdModel(f)
    found = [s for s in m.exact.self_mappings if s.tensor is t]
    assert [(s.first, s.second) for s in found] == [t.logical]
    tensor, first, second, reason = found[0]
    assert tensor is t and first is not second and "permute" in str(reason)
    assert out.definition
    transposed = out.definition.inputs[1]
    assert [str(c) for c in m.access(out.definition, t).coordinates] == ["i0", "i1"]
    assert transposed.definition
    assert [str(c) for c in m.access(transposed.definition, t).coordinates] == ["i1", "i0"]


def test_a_self_mapping_is_told_once_and_with_the_operations() -> None:
    """Two slices, one transposed, joined: the transposed one has the pair among its root and its logical axes."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(2, 2, 5))
    left, right = ig.slice(x, 2, 0, 2, name="left"), ig.slice(x, 2, 2, 5, name="right")
    turned = ig.permute(left, (1, 0, 2))
    f.output(ig.cat([turned, right], dim=2))
    found = ig.IdModel(f).exact.self_mappings
    assert [s.tensor for s in found].count(turned) == 1 and len(found) == len(
        {frozenset(s[1:3]) for s in map(tuple, found)}
    )
    text = str(next(s for s in found if s.tensor is x))
    assert all(op in text for op in ("slice -> left", "slice -> right", "permute", "cat", "test_cycles.py"))


@pytest.mark.parametrize(
    ("rolled", "pads", "kind", "shift", "modulus"),
    [
        (2, (-2, 2), "identity", "0", "None"),  # what the roll wrapped is cut off
        (3, (-3, 2), "identity", "0", "None"),
        (3, (-4, 4), "shift", "-1", "None"),
        (3, (-1, 1), "shift", "2", "n"),  # two elements come from the end
        (2, (0, 0), "shift", "2", "n"),
    ],
)
def test_a_roll_of_a_symbolic_extent_and_a_pad(
    rolled: int, pads: tuple[int, int], kind: str, shift: str, modulus: str
) -> None:
    """A remainder by n is taken apart into the periods in which elements are left."""
    f = ig.Fusion("f")
    t = f.input("t", shape=(f.symbol("n", min=5),))
    u = ig.pad(ig.roll(t, rolled, 0), pads)
    f.output(t + (ig.pad(u, (0, -sum(pads))) if sum(pads) else u))
    found = {(c.kind, str(c.shift), str(c.modulus)) for c in ig.IdModel(f).exact.cycles()}
    assert (kind, shift, modulus) in found and all(k != "reorder" for k, _, _ in found)


def _rotated_by_a_size() -> ig.Fusion:
    f = ig.Fusion("f")
    n = f.symbol("n", min=4)
    k = f.symbol("k", min=1, max=n // 2)
    x = f.input("x", shape=(n,))
    f.output(ig.cat([x[k:], x[:k]]) + x)
    return f


def _padded_by_a_size() -> ig.Fusion:
    f = ig.Fusion("f")
    k = f.symbol("k", min=0, max=5)
    x = f.input("x", shape=(12,))
    f.output(ig.slice(ig.pad(x, (k, 5 - k)), 0, 0, 12) + x)
    return f


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_rotated_by_a_size, {("shift", "-k", "k <= c"), ("shift", "n - k", "c < k")}),
        (_padded_by_a_size, {("shift", "k", "c + k < 12")}),
    ],
)
def test_a_shift_by_a_given_size(make: Callable[[], ig.Fusion], told: set[tuple[str, str, str]]) -> None:
    """A size of the program that is not the axis' own extent is no axis beside the way."""
    cycles = ig.IdModel(make()).exact.cycles()
    assert {(c.kind, str(c.shift), str(c.holds)) for c in cycles} == told
    n = 12
    for k, start in itertools.product(range(1, 6), range(n)):
        ends = {
            int(c.map.evaluate({"c": start, "k": k, "n": n}))
            for c in cycles
            if c.holds.evaluate({"c": start, "k": k, "n": n})
        }
        moved = {(start - k) % n} if make is _rotated_by_a_size else {start + k} if start + k < n else set[int]()
        assert ends == moved


def test_a_way_that_other_elements_came_before() -> None:
    """Two ways reach t with the same map, for different elements; only those of the second are read on."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(12,))
    t = ig.pad(x[0:4], (0, 8)) + ig.pad(x[8:12], (8, 0))
    turned = ig.reshape(ig.transpose(ig.reshape(t[8:12], 2, 2), 0, 1), 4)
    f.output(x + ig.pad(turned, (0, 8)))
    found = [str(c) for c in ig.IdModel(f).exact.cycles() if c.kind == "reorder"]
    first, second = "Resize(I1[12] -> I2[4]", "Resize(I5[12] -> I6[4]"
    assert sorted((first in c, second in c) for c in found) == [(False, True), (True, False)]


def test_a_ring_that_changes_a_coordinate_from_a_later_group_only() -> None:
    """Doubled and halved is the element itself; halved and doubled is not."""
    f = ig.Fusion("f")
    a = f.input("a", shape=(4,))
    b = ig.reshape(ig.expand(ig.unsqueeze(a, 1), 4, 2), 8) + 1.0
    f.output(a + ig.sum(ig.reshape(b, 4, 2), 1))
    (c,) = ig.IdModel(f).exact.cycles()
    assert c.kind == "reorder" and c.changes_index
