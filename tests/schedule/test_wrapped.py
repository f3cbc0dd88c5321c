"""Tensors put together from pieces of one tensor: cyclic ones are one read, whatever the order of the writes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.kernel.ir import Load, Store, VectorLoad, walk
from idgraph.rewrite.pad_cat import wrap_pieces
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.property.budget import examples

torch: Any = importlib.import_module("torch")


def padded(f: ig.Fusion, x: ig.Tensor, ends: list[tuple[int, int]], order: list[int]) -> ig.Tensor:
    """``x`` in the middle of a larger tensor, whose ends are then copied from it, axis by axis."""
    inner = [int(d.extent) for d in x.axes]
    size = [a + n + b for n, (a, b) in zip(inner, ends, strict=True)]
    whole = x
    for k in range(len(size)):  # the middle: slices of an empty tensor, written from the inside
        base = f.full([size[p] if p <= k else inner[p] for p in range(len(size))], 0.0, x.dtype)
        whole = ig.slice_scatter(base, whole, k, ends[k][0], ends[k][0] + inner[k])
    for k in order:
        (a, b), n = ends[k], inner[k]
        if a:
            whole = ig.slice_scatter(whole, ig.copy(ig.slice(whole, k, n, n + a)), k, 0, a)
        if b:
            whole = ig.slice_scatter(whole, ig.copy(ig.slice(whole, k, a, a + b)), k, a + n, a + n + b)
    return whole


@pytest.mark.sampled
@pytest.mark.parametrize("order", [[0, 1], [1, 0]], ids=str)
@pytest.mark.parametrize("ends", [[(2, 1), (0, 3)], [(4, 4), (5, 5)], [(0, 0), (1, 0)]], ids=str)
def test_a_circular_pad_reads_each_element_once(ends: list[tuple[int, int]], order: list[int]) -> None:
    f = ig.Fusion("f")
    x = f.input("x", (4, 5))
    t = f.output(padded(f, x, ends, order))
    assert wrap_pieces(f) > 0
    a = np.arange(20, dtype=np.float32).reshape(4, 5)
    assert np.array_equal(evaluate(f, {"x": a})[t.name], np.pad(a, ends, mode="wrap"))
    assert not any(e.op == "slice_scatter" for e in f.exprs)
    ig.schedule.auto(f)
    p = ig.emit(f, target="cuda")
    assert p.source.count("= buf0[") <= 4  # one load, and one of a tail; each for all lanes
    assert ig.validate(f, target="python").ok


def test_pieces_of_whole_words_move_in_vectors() -> None:
    f = ig.Fusion("f")
    f.output(padded(f, f.input("x", (6, 64), dtype="bfloat16"), [(1, 2), (8, 16)], [0, 1]))
    ig.schedule.auto(f)
    assert [e.op for e in f.exprs].count("cat") >= 2 and "slice_scatter" not in {e.op for e in f.exprs}
    (k,) = ig.emit(f, target="cuda").kernels
    made = [type(s) for s in walk(k.ir.body)]
    assert VectorLoad in made and Load not in made and Store not in made
    assert ig.validate(f, target="python").ok


def _step(draw: st.DrawFn, x: ig.Tensor, t: ig.Tensor) -> ig.Tensor:
    k = draw(st.integers(0, 1))
    n = int(t.axes[k].extent)
    source = draw(st.sampled_from([t, t, x]))
    other = 1 - k
    m = int(source.axes[k].extent)
    count = draw(st.integers(1, min(n, m)))
    a, at = draw(st.integers(0, m - count)), draw(st.integers(0, n - count))
    piece = ig.slice(source, k, a, a + count)
    if source is x and int(x.axes[other].extent) != int(t.axes[other].extent):
        piece = ig.slice(t, k, 0, count)
    return ig.slice_scatter(t, ig.copy(piece) if draw(st.booleans()) else piece, k, at, at + count)


@st.composite
def put_together(draw: st.DrawFn) -> ig.Fusion:
    f = ig.Fusion("f")
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    x = f.input("x", (rows, columns))
    more = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(2)]
    kind = draw(st.sampled_from(["circular", "circular", "other"]))
    if kind == "circular":
        ends = [(min(a, n), min(b, n)) for (a, b), n in zip(more, (rows, columns), strict=True)]
        t = padded(f, x, ends, draw(st.permutations([0, 1])))
    else:
        t = (
            ig.copy(x)
            if draw(st.booleans())
            else ig.slice_scatter(f.full((rows, columns + 2), 0.0), x, 1, 1, columns + 1)
        )
    for _ in range(draw(st.integers(0, 3))):
        t = _step(draw, x, t)
    f.output(ig.neg(t))
    if draw(st.booleans()):
        made = [e.output for e in f.exprs if e.op == "slice_scatter"]
        f.output(*([draw(st.sampled_from(made))] if made else []), t)
    return f


@settings(max_examples=examples(150), deadline=None)
@given(put_together())
def test_whatever_is_put_together_stays_what_it_is(f: ig.Fusion) -> None:
    note(str(f))
    inputs = random_inputs(f, 0, {})
    wanted = evaluate(f, inputs)
    event("rewritten" if wrap_pieces(f) else "as it was")
    f.verify()
    found = evaluate(f, inputs)
    assert all(np.array_equal(found[n], w) for n, w in wanted.items())


def test_other_types_and_other_tensors_stay() -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", (4, 6)), f.input("y", (4, 6))
    h = ig.slice_scatter(f.full((4, 8), 0.0), x, 1, 2, 8)
    f.output(ig.slice_scatter(h, y[:, :2], 1, 0, 2))  # another tensor's elements in front
    g = ig.slice_scatter(f.full((4, 8), 0.0), x, 1, 2, 8)
    f.output(ig.slice_scatter(g, x[:, :2], 1, 0, 2))  # not cyclic: 0 1 0 1 2 ...
    before = str(f)
    assert wrap_pieces(f) == 0 and str(f) == before


def test_torchs_circular_padding_is_one_load() -> None:
    def fn(x: Any) -> Any:
        return torch.nn.functional.pad(x, (1, 2, 3, 1), mode="circular")

    imp = ig.from_torch(fn, (torch.rand(2, 3, 6, 7),))
    assert imp.fusion is not None
    ig.schedule.auto(imp.fusion)
    assert all(t.uses or t in imp.fusion.outputs for e in imp.fusion.exprs for t in e.outputs)
    assert "slice_scatter" not in {e.op for e in imp.fusion.exprs}
    assert len(ig.emit(imp.fusion, target="cuda").source.splitlines()) < 60
