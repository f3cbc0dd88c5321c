"""Kinds of cycles against brute force: the operations applied to an array of element numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import Cycle
from idgraph.ir import DomainExpr, Resize, Roll, Split, Stride
from idgraph.testing import fusions

Array = npt.NDArray[np.int64]
State = tuple[ig.Tensor, Array]
PROFILE = settings().max_examples


def _slice(draw: st.DrawFn, s: State) -> State:
    t, a = s
    start = draw(st.integers(0, len(a) - 1))
    stop, step = draw(st.integers(start + 1, len(a))), draw(st.sampled_from((1, 1, 1, 2)))
    return ig.slice(t, 0, start, stop, step), a[start:stop:step]


def _pad(draw: st.DrawFn, s: State) -> State:
    t, a = s
    left, right = draw(st.integers(-(len(a) // 2), 4)), draw(st.integers(-(len(a) // 3), 4))
    if len(a) + left + right < 1:
        left = right = 0
    return ig.pad(t, (left, right)), padded(a, left, right)


def padded(a: Array, left: int, right: int) -> Array:
    """torch's pad with -1."""
    return np.pad(a[max(0, -left) : len(a) - max(0, -right)], (max(0, left), max(0, right)), constant_values=-1)


def _roll(draw: st.DrawFn, s: State) -> State:
    t, a = s
    by = draw(st.integers(-9, 9))
    return ig.roll(t, by, 0), np.roll(a, by)


def _flip(draw: st.DrawFn, s: State) -> State:
    return ig.flip(s[0], 0), s[1][::-1]


def _reshape(draw: st.DrawFn, s: State) -> State:
    """There, perhaps transposed, perhaps changed along one axis, and back."""
    t, a = s
    outer = draw(st.sampled_from([d for d in range(1, len(a) + 1) if len(a) % d == 0]))
    u, b = ig.reshape(t, outer, -1), a.reshape(outer, -1)
    axis = draw(st.integers(0, 1))
    match draw(st.sampled_from(("plain", "transposed", "flipped", "rolled"))):
        case "transposed":
            u, b = ig.transpose(u, 0, 1), b.T
        case "flipped":
            u, b = ig.flip(u, axis), np.flip(b, axis)
        case "rolled":
            u, b = ig.roll(u, 1, axis), np.roll(b, 1, axis)
        case _:
            pass
    return ig.reshape(u, -1), b.reshape(-1)


def _rotate(draw: st.DrawFn, s: State) -> State:
    t, a = s
    if len(a) < 2:
        return s
    cut = draw(st.integers(1, len(a) - 1))
    return ig.cat([t[cut:], t[:cut]]), np.concatenate([a[cut:], a[:cut]])


def _rejoin(draw: st.DrawFn, s: State) -> State:
    t, a = s
    cut = draw(st.integers(1, len(a)))
    return (ig.cat([t[:cut], t[cut:]]), a) if cut < len(a) else s


STEPS: dict[str, Callable[[st.DrawFn, State], State]] = {
    "slice": _slice, "pad": _pad, "roll": _roll, "flip": _flip, "reshape": _reshape,
    "rotate": _rotate, "rejoin": _rejoin,
}  # fmt: skip
SINGLE = ("slice", "pad", "roll", "flip", "reshape")


@st.composite
def loops_back(draw: st.DrawFn, steps: tuple[str, ...]) -> tuple[ig.Fusion, ig.Tensor, Array]:
    """t plus a chain of operations on t: the fusion, t, and for each element of the chain's end where it is from."""
    n = draw(st.integers(2, 24))
    f = ig.Fusion("f")
    t = f.input("t", shape=(n,))
    state: State = t, np.arange(n)
    for _ in range(draw(st.integers(1, 4))):
        state = STEPS[draw(st.sampled_from(steps))](draw, state)
    u, a = state
    if len(a) != n:
        left = draw(st.integers(-(len(a) - 1), n - 1)) if draw(st.booleans()) else 0
        left = max(left, 1 - len(a))
        u, a = ig.pad(u, (left, n - len(a) - left)), padded(a, left, n - len(a) - left)
    f.output(t + u)
    note(f"{f}\n{a}")
    return f, t, a


def kind_of(a: Array) -> tuple[str, int | None]:
    """Identity, shift (with its constant) or reorder, from where each element comes."""
    pairs = [(int(i), j) for j, i in enumerate(a) if i >= 0]
    n = len(a)
    for shifts in ({j - i for i, j in pairs}, {(j - i) % n for i, j in pairs}):
        if len(shifts) == 1:
            by = shifts.pop()
            return ("shift", by) if by else ("identity", 0)
    return "reorder", None


def gone(c: Cycle[ig.IterDomain]) -> set[tuple[int, int]]:
    """Where a cycle takes each coordinate for which it holds."""
    n = int(c.groups[0].keys[0].extent)
    at = [{c.variable.name: k} for k in range(n)]
    return {(p[c.variable.name], int(c.map.evaluate(p))) for p in at if c.holds.evaluate(p)}


def from_source(cycles: tuple[Cycle[ig.IterDomain], ...], t: ig.Tensor) -> list[Cycle[ig.IterDomain]]:
    return [c for c in cycles if t.logical[0] in c.groups[0]]


@settings(max_examples=2 * PROFILE)
@given(loops_back(SINGLE))
def test_one_way_around(case: tuple[ig.Fusion, ig.Tensor, Array]) -> None:
    """Without a cat there is one way: every cycle from the source has the kind, and the shift, of the whole."""
    f, t, a = case
    if not (a >= 0).any() or len(f.exprs) < 2:
        return
    kind, by = kind_of(a)
    for c in from_source(
        ig.IdModel(f).exact.cycles(), t
    ):  # others may find the cause inside of a reshape there and back
        assert c.kind == kind, str(c)
        if by is not None:
            assert c.shift is not None
            at = int(c.shift) - by
            assert at % len(a) == 0 if c.modulus is not None else at in (0, -len(a), len(a)), str(c)
        assert gone(c) == {(int(i), j) for j, i in enumerate(a) if i >= 0}, str(c)


@settings(max_examples=PROFILE)
@given(loops_back(tuple(STEPS)))
def test_many_ways_around(case: tuple[ig.Fusion, ig.Tensor, Array]) -> None:
    """With cats there are many ways; where all cycles are identities, every element comes back to its place."""
    f, _, a = case
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact, m.permissive):
        if g.is_cyclic and all(c.kind == "identity" for c in g.cycles()):
            assert all(i in (-1, j) for j, i in enumerate(a.tolist()))


@settings(max_examples=2 * PROFILE)
@given(loops_back(tuple(STEPS)))
def test_all_ways_together(case: tuple[ig.Fusion, ig.Tensor, Array]) -> None:
    """The cycles from the source take each element to all the places where the operations put it, and to no other."""
    f, t, a = case
    found = from_source(ig.IdModel(f).exact.cycles(), t)
    told = set[tuple[int, int]]().union(*map(gone, found))
    put = {(int(i), j) for j, i in enumerate(a) if i >= 0}
    assert told <= put
    if all(int(d.extent) > 1 for u in f.tensors for d in u.logical):  # of one element nothing is mapped by a reshape
        assert all(i == j for i, j in put - told)  # an axis may stay as it is without an expression


def around(c: Cycle[ig.IterDomain]) -> dict[int, int]:
    """Once round the expressions with every coordinate, in plain integers; only translations, strides and rolls."""
    found: dict[int, int] = {}
    for start in range(int(c.groups[0].keys[0].extent)):
        at: int | None = start
        for e in c.exprs:
            match e:
                case Resize() if at is not None and at < int(e.source.extent):
                    at += int(e.left)
                case Stride() if at is not None and at < int(e.source.extent):
                    at, rest = divmod(at - int(e.start), int(e.step))
                    at = None if rest else at
                case Roll() if at is not None:
                    at = (at + int(e.shift)) % int(e.source.extent)
                case _:
                    at = None
            at = at if at is not None and 0 <= at < int(e.outputs[0].extent) else None
        if at is not None:
            found[start] = at
    return found


@settings(max_examples=2 * PROFILE)
@given(fusions())
def test_cycles_of_random_fusions(f: ig.Fusion) -> None:
    """Kind, map and condition are what going round with every coordinate shows; an empty one takes nothing round."""
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact):
        for c in g.cycles(empty=True):
            if not all(isinstance(e, (Resize, Stride, Roll)) for e in c.exprs):
                continue
            there = around(c)
            assert gone(c) == set(there.items()), str(c)
            n = int(c.groups[0].keys[0].extent)
            shifts, turned = {j - i for i, j in there.items()}, {(j - i) % n for i, j in there.items()}
            moved = "identity" if shifts == {0} else "shift" if len(turned) == 1 else "reorder"
            assert c.kind == (moved if there else "empty"), str(c)


def one_step(e: DomainExpr, at: int) -> set[int]:
    """Where an expression that reads one axis takes an element of it: in each of the axes that it makes."""
    match e:
        case Resize():
            return {at + int(e.left)}
        case Stride():
            return {x for x in range(int(e.out.extent)) if int(e.start) + x * int(e.step) == at}
        case Roll():
            return {(at + int(e.shift)) % int(e.source.extent)}
        case Split():
            return set(divmod(at, int(e.inner.extent)))
        case _:  # other axes decide too
            return set(range(max(int(d.extent) for d in e.outputs)))


@settings(max_examples=2 * PROFILE)
@given(fusions())
def test_the_maps_of_a_cycle_lead_from_expression_to_expression(f: ig.Fusion) -> None:
    """Each map leads on from where the one before led, as its expression does; the last is the composed one."""
    m = ig.IdModel(f)
    for c in (c for g in (m.exact, m.almost_exact) for c in g.cycles()):
        assert c.maps[-1] is c.composed and len(c.maps) == len(c.exprs) == len(c.coordinates), str(c)
        if any(x.symbols != (c.variable,) for x in c.maps):
            continue
        for start in (x for x in range(int(c.groups[0].first.extent)) if (x,) in c.composed.domain):
            way = [start, *(int(k(start)[0]) for k in c.maps)]
            for e, at, to in zip(c.exprs, way, way[1:], strict=False):
                assert to in one_step(e, at), f"{c}: {at} to {to} by {e}"


def partitioned(x: ig.Tensor, a: int, b: int) -> ig.Tensor:
    """Windows of a by b, and back."""
    h, w = (int(n) for n in x.shape)
    y = ig.permute(ig.reshape(x, h // a, a, w // b, b), (0, 2, 1, 3))
    y = ig.permute(ig.reshape(ig.reshape(y, h // a * (w // b), a, b), h // a, w // b, a, b), (0, 2, 1, 3))
    return ig.reshape(y, h, w)


@given(*(st.integers(1, 4) for _ in range(4)), st.integers(-3, 3), st.integers(-3, 3))
def test_windows_and_back_are_identities(a: int, b: int, m: int, n: int, down: int, right: int) -> None:
    """Windows, shifted or not, taken apart and put together again."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(a * m, b * n))
    y = partitioned(ig.roll(x, (down, right), (0, 1)), a, b)
    f.output(x + ig.roll(y, (-down, -right), (0, 1)))
    model = ig.IdModel(f)
    assert {c.kind for g in (model.exact, model.almost_exact) for c in g.cycles()} <= {"identity"}


@given(st.integers(2, 6), st.integers(2, 4), st.permutations(range(4)), st.booleans())
def test_parts_taken_apart_and_interleaved(n: int, parts: int, order: list[int], stacked: bool) -> None:
    """De-interleave and back in the same order: identities; in another order: each coordinate moves as in NumPy."""
    order = [k for k in order if k < parts]
    f = ig.Fusion("f")
    x = f.input("x", shape=(n * parts,))
    taken = [x[k::parts] for k in order]
    if stacked:
        y = ig.reshape(ig.stack(taken, 1), n * parts)
    else:
        y = ig.reshape(ig.transpose(ig.reshape(ig.cat(taken), parts, n), 0, 1), n * parts)
    f.output(x + y)
    found = from_source(ig.IdModel(f).exact.cycles(), x)
    a = np.arange(n * parts).reshape(n, parts)[:, order].reshape(-1)
    assert set[tuple[int, int]]().union(*map(gone, found)) == {(int(i), j) for j, i in enumerate(a)}
    if order == sorted(order):
        assert {c.kind for c in found} == {"identity"}


@st.composite
def several_ways(draw: st.DrawFn) -> tuple[ig.Fusion, ig.Tensor, list[tuple[ig.Tensor, Array]]]:
    """t and several tensors that interleave or rotate it: with each where its elements are from."""
    d, m = draw(st.integers(2, 3)), draw(st.integers(2, 4))
    f = ig.Fusion("f")
    t = out = f.input("t", shape=(d * m,))
    made: list[tuple[ig.Tensor, Array]] = []
    for _ in range(draw(st.integers(2, 4))):
        at = np.arange(d * m)
        if draw(st.booleans()):
            order = draw(st.permutations(range(d)))
            u = ig.reshape(ig.stack([t[k::d] for k in order], 1), -1)
            at = at.reshape(m, d)[:, order].reshape(-1)
        else:
            cut = draw(st.integers(1, d * m - 1))
            u, at = ig.cat([t[cut:], t[:cut]]), np.roll(at, -cut)
        made.append((u, at))
        out = out + u
    f.output(out)
    note(str(f))
    return f, t, made


@settings(max_examples=PROFILE)
@given(several_ways())
def test_several_ways_of_one_axis(case: tuple[ig.Fusion, ig.Tensor, list[tuple[ig.Tensor, Array]]]) -> None:
    """Steps that are equal on several ways belong to each: both orders of even and odd elements beside each other."""
    f, t, made = case
    m = ig.IdModel(f)
    moved = [bool((at != np.arange(len(at))).any()) for _, at in made]
    assert any(c.changes_index for c in m.exact.cycles()) == any(moved)
    assert not any(c.changes_index for c in m.aligned.cycles())
    for (u, _), moves in zip(made, moved, strict=True):
        assert not (moves and m.aligned.mapped(t.logical[0], u.logical[0])), str(u)


@pytest.mark.parametrize("scheduled", [False, True])
def test_even_and_odd_elements_interleaved_in_both_orders(scheduled: bool) -> None:
    """Where one coordinate goes round in two manners, the cycle tells the one that changes it."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(12,))
    even, odd = x[::2], x[1::2]
    there, crossed = (ig.reshape(ig.stack(parts, 1), 12) for parts in ([even, odd], [odd, even]))
    out = f.output(x + there + crossed)
    if scheduled:
        out.split(0, 4)
        ig.schedule.like(f, out)
    m = ig.IdModel(f)
    assert not any(c.changes_index for c in m.aligned.cycles())
    found = {(c.kind, str(c.shift), str(c.holds)) for c in m.exact.cycles()}
    assert found == {("shift", "1", "c%2 == 0"), ("shift", "-1", "c%2 == 1")}
    assert not m.aligned.mapped(x.logical[0], crossed.logical[0])
    assert scheduled or m.aligned.mapped(x.logical[0], there.logical[0])


def test_rotations_that_cancel_have_no_shift_that_nothing_takes() -> None:
    f = ig.Fusion("f")
    t = f.input("t", shape=(20,))
    u = ig.cat([t[3:], t[:3]])
    f.output(t + ig.cat([u[17:], u[:17]]))
    g = ig.IdModel(f).exact
    assert [(c.kind, str(c.holds)) for c in g.cycles()] == [("identity", "c >= 3"), ("identity", "c < 3")]
    assert {c.kind for c in g.cycles(empty=True)[2:]} == {"empty"}
    with pytest.raises(ig.IndexingError, match="empty is 'yes'"):
        g.cycles("yes")  # pyright: ignore[reportArgumentType]


def test_axes_beside_the_way_have_their_names() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4, 6))
    f.output(x + ig.transpose(ig.reshape(x, 6, 4), 0, 1))
    for c in ig.IdModel(f).exact.cycles():
        beside = c.map.names - {"c"}
        assert c.kind == "reorder" and beside and "side" not in str(c)
        assert beside <= {d.name for t in f.tensors for d in (*t.root, *t.logical)}


@settings(max_examples=PROFILE)
@given(
    st.permutations(range(3)) | st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans(), st.integers(0, 2)
)
def test_selected_elements_stacked_again(picks: list[int], first: bool, more: int) -> None:
    """Each element of an axis selected alone, something computed, all stacked: identity where NumPy says so."""
    f = ig.Fusion("selected")
    t = f.input("t", (6,))
    shape, dim = ((3, 2), 0) if first else ((2, 3), 1)
    rows, numbers = ig.reshape(t, *shape), np.arange(6).reshape(shape)
    pieces = [ig.select(rows, dim, k) for k in picks]
    for _ in range(more):
        pieces = [ig.exp(p) for p in pieces]
    f.output(ig.reshape(ig.stack(pieces, dim), 6) + t)
    same = bool((np.take(numbers, picks, dim).reshape(-1) == np.arange(6)).all())
    m = ig.IdModel(f)
    assert ({c.kind for c in m.exact.cycles()} == {"identity"}) == same
    assert bool(m.aligned.align_edges) != same


@settings(max_examples=PROFILE)
@given(
    st.permutations(range(3)) | st.lists(st.integers(0, 2), min_size=3, max_size=3), st.booleans(), st.integers(0, 2)
)
def test_selected_rows_joined_and_read_by_a_reshape(picks: list[int], columns: bool, more: int) -> None:
    """Rows selected alone, joined end to end: once around takes each element where NumPy puts it."""
    f = ig.Fusion("joined")
    x, dim = f.input("x", (3, 4)), int(columns)
    pieces = [ig.select(ig.transpose(x, 0, 1) if columns else x, dim, k) for k in picks]
    for _ in range(more):
        pieces = [ig.exp(p) for p in pieces]
    f.output(ig.reshape(ig.cat(pieces), 3, 4) + x)
    m = ig.IdModel(f)
    there = np.arange(12).reshape(3, 4)[picks].reshape(-1)  # the element of x that each place of the joined axis has
    same = bool((there == np.arange(12)).all())
    cycles = [c for c in m.exact.cycles() if 12 in (int(d.extent) for d in c.domains)]
    assert ({c.kind for c in cycles} == {"identity"}) == same
    assert bool(m.aligned.align_edges) != same
    for c in cycles:  # from a place of the joined axis to the element of x there, and joined again
        if c.map.names <= {"c"} and int(c.domains[0].extent) == 12:
            held = [at for at in range(12) if c.holds is True or c.holds.evaluate({"c": at})]
            assert all(there[int(c.map.evaluate({"c": at}))] == at for at in held)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_is_computed_twice_hides_no_exchange(times: int) -> None:
    """Equal parts of equal axes, of other operands: even and odd elements interleaved, and once the other way round."""
    f = ig.Fusion("f")
    t = out = f.input("t", shape=(4,))
    even, odd = t[0::2], t[1::2]
    for _ in range(times):
        out = out + ig.reshape(ig.stack([even, odd], 1), -1)
    crossed = ig.reshape(ig.stack([odd, even], 1), -1)
    f.output(out + crossed)
    m = ig.IdModel(f)
    assert {c.kind for c in m.aligned.cycles()} == {"identity"}
    assert not m.aligned.mapped(t.logical[0], crossed.logical[0])


def test_selected_twice_and_stacked_twice() -> None:
    """What two selections leave is at both coordinates, whichever of them the way goes by."""
    f = ig.Fusion("selected")
    t = f.input("t", (8,))
    r = ig.reshape(t, 2, 2, 2)
    rows = [ig.stack([ig.select(ig.select(r, 0, i), 0, j) for j in range(2)], 0) for i in range(2)]
    f.output(ig.reshape(ig.stack(rows, 0), 8) + t)
    m = ig.IdModel(f)
    assert {c.kind for c in m.exact.cycles()} == {"identity"} and not m.aligned.align_edges
