"""Random programs on ragged axes against a list of NumPy rows: each element visited once, each row to its end.

The expected values know neither offsets nor loops: rows are separate arrays from the start.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir import Tensor
from idgraph.ir.parser import copy_fusion
from idgraph.runtime import Program
from tests.emit.test_ragged import stored_rows
from tests.property.budget import examples

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Array, float], Array]]
STEPS: dict[str, Step] = {
    "negative": (lambda u, s: -u, lambda r, k: -r),
    "twice": (lambda u, s: u + u, lambda r, k: r + r),
    "half": (lambda u, s: u * 0.5, lambda r, k: r * 0.5),
    "scaled": (lambda u, s: u * s, lambda r, k: r * k),
    "shifted": (lambda u, s: s - u, lambda r, k: k - r),
    "top": (lambda u, s: u - ig.amax(u, 1, keepdim=True), lambda r, k: r - r.max(0) if len(r) else r),
    "mean": (lambda u, s: u - ig.mean(u, 1, keepdim=True), lambda r, k: r - r.mean(0) if len(r) else r),
    "total": (lambda u, s: u + ig.sum(u, 1, keepdim=True), lambda r, k: r + r.sum(0)),
    "again": (lambda u, s: again(u), lambda r, k: r),
    "mirrored": (lambda u, s: ig.flip(u, (2,)) if u.ndim == 3 else u, lambda r, k: r[..., ::-1] if r.ndim == 2 else r),
    "rotated": (
        lambda u, s: ig.cat([u[:, :, 1:], u[:, :, :1]], dim=2) if u.ndim == 3 else u,
        lambda r, k: np.roll(r, -1, 1) if r.ndim == 2 else r,
    ),
    "product": (
        lambda u, s: ig.matmul(u, ig.expand(s, (s.shape[0], 2, 2))) if u.ndim == 3 else u,
        lambda r, k: r @ np.full((2, 2), k) if r.ndim == 2 else r,
    ),
    "padded": (lambda u, s: ig.crop_ragged(ig.pad_ragged(u, 9.0), 0, offsets_of(u)), lambda r, k: r),
}
ENDS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[list[Array]], Array]]] = {
    "combine": (ig.combine, np.concatenate),
    "sum": (lambda u: ig.sum(u, 1), lambda rows: np.stack([r.sum(0) for r in rows])),
    "prod": (lambda u: ig.prod(u, 1), lambda rows: np.stack([r.prod(0) for r in rows])),
    "amin": (lambda u: ig.amin(u, 1), lambda rows: np.stack([r.min(0, initial=np.inf) for r in rows])),
}


def offsets_of(u: Tensor) -> Tensor:
    """The offsets of the rows of a tensor."""
    found = next(d.rows for d in u.axes if d.rows is not None)
    return u.fusion[found.offsets.name]


def again(u: Tensor) -> Tensor:
    """One behind the other, and apart again."""
    return ig.partition(ig.combine(u), 0, offsets_of(u))


@st.composite
def offsets(draw: st.DrawFn, most: int) -> list[int]:
    """Random rows, many of them empty."""
    return [0, *np.cumsum(draw(st.lists(st.sampled_from((0, 0, 1, 2, 3, 7)), min_size=1, max_size=most))).tolist()]


@settings(max_examples=examples(150), deadline=None)
@given(
    offsets(5), st.lists(st.sampled_from(sorted(STEPS)), max_size=4), st.sampled_from(sorted(ENDS)),
    st.sampled_from((None, "cpu", "H200")), st.sampled_from(("python", "numpy")), st.booleans(),
)  # fmt: skip
def test_rows_are_rows(
    ends: list[int], steps: list[str], end: str, device: str | None, target: Any, wide: bool
) -> None:
    n, rest = ends[-1], (2,) if wide else ()
    f = ig.Fusion("rows")
    count = f.symbol("n")
    x, off = f.input("x", (count, *rest)), f.input("off", (len(ends),), "int64")
    s = f.input("s", (len(ends) - 1, 1, *(1 for _ in rest)))
    u = ig.partition(x, 0, off)
    for name in steps:
        u = STEPS[name][0](u, s)
    f.output(ENDS[end][0](u))
    if device is not None:
        ig.schedule.auto(f, device=device)
    rng = np.random.default_rng(n)
    data = rng.integers(-8, 9, (n, *rest)).astype(np.float32) / 4
    scale = rng.integers(1, 4, (len(ends) - 1, 1, *(1 for _ in rest))).astype(np.float32)
    (found,) = ig.emit(f, target=target).run({"x": data, "off": np.array(ends), "s": scale}).values()
    rows = [r.astype(np.float64) for r in np.split(data, ends[1:-1])]
    for name in steps:
        rows = [STEPS[name][1](r, float(k.item())) for r, k in zip(rows, scale, strict=True)]
    expected = ENDS[end][1](rows)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
@settings(max_examples=20000, deadline=None)
@given(offsets(40), st.integers(0, 1 << 30))
def test_partition_and_combine_are_inverse(ends: list[int], seed: int) -> None:
    """Each element is visited once, in its order, on the CPU's compiled loops."""
    p = _identity()
    data = np.random.default_rng(seed).random(ends[-1], np.float32)
    (found,) = p.run({"x": data, "off": np.array(ends)}).values()
    np.testing.assert_array_equal(found, data)


@cache
def _identity() -> Program:
    f = ig.Fusion("identity")
    n, b = f.symbol("n"), f.symbol("b", min=2)
    f.output(ig.combine(ig.partition(f.input("x", (n,)), 0, f.input("off", (b,), "int64"))))
    ig.schedule.auto(f, device="cpu")
    return ig.emit(f, target="cpu")


KINDS = ("part", "join", "join", "double", "add", "meet", "sum", "top", "mean", "total", "scan", "wide")


class Graph:
    """A random graph of plain tensors and tensors of rows, each with what NumPy makes of the rows as arrays."""

    def __init__(self, r: random.Random) -> None:
        self.r, self.fusion, self.results = r, ig.Fusion("rows"), dict[Tensor, Array]()
        lengths = [r.choice((0, 0, 1, 1, 2, 3, 5)) for _ in range(r.choice((1, 1, 1, 2, 3)))]
        self.ends = [0, *np.cumsum(lengths).tolist()]
        lead, rest = r.choice(((), (), (1,), (2,))), r.choice(((), (), (1,), (2,)))
        self.dim, self.shape = len(lead), (*lead, self.ends[-1], *rest)
        self.off = self.fusion.input("off", (len(self.ends),), "int64")
        rng = np.random.default_rng(r.randrange(1 << 30))
        self.data = {k: rng.integers(-8, 9, self.shape).astype(np.float32) / 4 for k in ("x", "y")}
        self.flat = [(self.fusion.input(k, self.shape), v.astype(np.float64)) for k, v in self.data.items()]
        self.rows = [self.parted(*self.flat[0])]
        for _ in range(r.randrange(2, 9)):
            self._grow()
        self._output(*self.joined(*self.rows[-1]))
        self._output(*self.flat[-1])
        for t in self.results:
            self.fusion.output(t)

    def judge(self, f: ig.Fusion, target: Any) -> None:
        """The fusion, scheduled somehow, against NumPy."""
        found = ig.emit(f, target=target).run({**self.data, "off": np.array(self.ends)})
        for t, v in self.results.items():
            assert found[t.name].shape == v.shape
            np.testing.assert_allclose(found[t.name], v, rtol=1e-4, atol=1e-4)

    def parted(self, t: Tensor, v: Array) -> tuple[Tensor, list[Array]]:
        return ig.partition(t, self.dim, self.off), np.split(v, self.ends[1:-1], self.dim)

    def joined(self, u: Tensor, rows: list[Array]) -> tuple[Tensor, Array]:
        return ig.combine(u), np.concatenate(rows, self.dim)

    def _output(self, t: Tensor, v: Array) -> None:
        if t.definition is not None:
            self.results[t] = v

    def _grow(self) -> None:
        (u, rows), (t, v), d = self.r.choice(self.rows[-3:]), self.r.choice(self.flat[-3:]), self.dim
        some = self.ends[-1] > 0
        match self.r.choice(KINDS):
            case "part":
                self.rows.append(self.parted(t, v))
            case "join":
                self.flat.append(self.joined(u, rows))
            case "double":
                self.rows.append((u * 2.0, [q * 2 for q in rows]))
            case "add":
                other, values = self.r.choice(self.flat)
                self.flat.append((t + other, v + values))
            case "meet":
                other, more = self.r.choice(self.rows)
                self.rows.append((u + other, [p + q for p, q in zip(rows, more, strict=True)]))
            case "sum":
                self._output(ig.sum(u, d + 1), np.stack([q.sum(d) for q in rows], d))
            case "top" if some:
                tops = [q.max(d, keepdims=True) if q.shape[d] else 0 for q in rows]
                self.rows.append(
                    (u - ig.amax(u, d + 1, keepdim=True), [p - q for p, q in zip(rows, tops, strict=True)])
                )
            case "mean" if some:
                self.flat.append((t - ig.mean(t, d, keepdim=True), v - v.mean(d, keepdims=True)))
            case "total":
                self._output(ig.sum(t, d, keepdim=True), v.sum(d, keepdims=True))
            case "scan" if some:
                self._output(ig.cumsum(t, d), v.cumsum(d))
            case _:
                (x, values), at = self.flat[0], self.r.randrange(d + 2)
                self._output(ig.unsqueeze(t, at) + ig.unsqueeze(x, at), np.expand_dims(v + values, at))


WAYS: dict[str, Callable[[ig.Fusion], object]] = {
    "plain": lambda f: None,
    "auto on a CPU": lambda f: ig.schedule.auto(f, device="cpu"),
    "auto on a GPU": lambda f: ig.schedule.auto(f, device="H200"),
    "inline most": ig.schedule.inline_most,
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(("python", "numpy")))
def test_graphs_of_rows(way: str, seed: int, target: Any) -> None:
    """Of one row, empty ones, and several results: rows that are put together are read by place."""
    g = Graph(random.Random(seed))
    note(str(g.fusion))
    WAYS[way](g.fusion)
    assert "auto" not in way or not stored_rows(g.fusion)
    g.judge(g.fusion, target)


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 1 << 30))
def test_what_is_told_of_pairs_of_rows_can_be_applied(seed: int) -> None:
    """Where a row begins, and how long it is, are loaded values of the accesses; the trial of a pair has rows too."""
    r = random.Random(seed)
    g = Graph(r)
    note(str(g.fusion))
    pairs = [(a, b) for a, b in combinations(g.fusion.exprs, 2) if {a.output, *a.inputs} & {*b.inputs}]
    o = ig.fuse.explain(g.fusion, *r.choice(pairs)) if pairs else None
    if o is None:
        return
    for x in o.accesses:
        named = x.map.condition.names.union(*(c.names for c in x.map.results))
        assert named <= {*x.loads, *(loop.symbol.name for loop in x.loops)}
    if o.alignment is not None:
        f = copy_fusion(g.fusion)
        o.alignment.apply(f)
        g.judge(f, "numpy")


def test_pairs_of_rows_are_listed() -> None:
    """What puts rows together runs over rows: no loop of its own gives the row of an element."""
    f = ig.Fusion("rows")
    x, off = f.input("x", (9, 2)), f.input("off", (4,), "int64")
    u = ig.partition(x, 0, off)
    c = ig.combine(u * 2.0)
    f.output(c + 1.0, ig.neg(x))
    found = {(o.a.op, o.b.op, o.cause): o for o in ig.fuse.obstacles(f)}
    assert {("combine", "add", "loaded index"), ("partition", "neg", "loaded index")} <= set(found)
    write = found["combine", "add", "loaded index"].accesses[0]
    assert str(write) == "combine of t7 writes t7[i1 + t2_0, i2] if i1 < t4_1  for i0 < 3, i1 < 9, i2 < 2"
    assert ig.fuse.explain(f, u, c) is None


def test_reads_of_the_same_rows_agree() -> None:
    """The length of a row is loaded for the condition alone."""
    f = ig.Fusion("rows")
    x, off = f.input("x", (8, 2)), f.input("off", (4,), "int64")
    u, v = ig.partition(x, 1, off), ig.partition(x, 1, off)
    f.output(ig.combine(u), ig.combine(v * 2.0))
    assert ig.fuse.explain(f, u, v) is None
