"""Kinds of cycles against brute force: the operations applied to an array of element numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.graphs import Cycle

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


@settings(max_examples=PROFILE)
@given(loops_back(tuple(STEPS)))
def test_many_ways_around(case: tuple[ig.Fusion, ig.Tensor, Array]) -> None:
    """With cats there are many ways; where all cycles are identities, every element comes back to its place."""
    f, _, a = case
    m = ig.IdModel(f)
    for g in (m.exact, m.almost_exact, m.permissive):
        if g.is_cyclic and all(c.kind == "identity" for c in g.cycles()):
            assert all(i in (-1, j) for j, i in enumerate(a.tolist()))
