"""Blocks, threads and lanes as loops over columns, on the CPU: every element once, in rows of any length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import postorder
from idgraph.kernel.def_use import index_exprs
from idgraph.kernel.ir import Compute, If, Loop, Stmt, Store, walk
from idgraph.passes.loop_flattening import COLUMNS, LEAST
from idgraph.runtime.program import stages

SHAPES = [(3, COLUMNS + 37), (2, 2 * COLUMNS), (5, 1003), (7, 131), (4 * COLUMNS + 3,), (9, 64, 3), (2, 3, COLUMNS + 8)]


@pytest.mark.sampled
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["alone", "by row", "by column", "two types"])
def test_every_element_once(shape: tuple[int, ...], kind: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=shape, dtype="float16" if kind == "two types" else "float32")
    t = ig.cast(x, "float32") * 2.0
    if kind == "by row":
        t = t + f.input("m", shape=(*shape[:-1], 1))
    elif kind == "by column":
        t = t + f.input("b", shape=shape[-1:])
    f.output(t + 1.0)
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.integers(-9, 9, [int(n) for n in a.shape]).astype(a.dtype) for a in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert all(np.array_equal(p.run(arrays, poison=True)[n], v) for n, v in want.items())
    assert "collapse" in p.kernels[0].passes or (shape[-1] < LEAST and kind != "alone")


def test_blocks_and_threads_of_a_schedule_of_ones_own() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 9, 200))
    t = f.output(x[:, 1:, 40:168] * 2.0)
    t.merge(0)
    t.merge(0)
    t.split(0, 128)  # two loops: a block takes one row, however many there are
    t.parallelize(0, "blockIdx.x")
    t.parallelize(1, "threadIdx.x")
    ig.schedule.like(f, t)
    ig.schedule.inline_most(f)
    p = ig.emit(f, "cpu")
    assert p.kernels[0].passes == ("collapse",)
    a = np.random.default_rng(0).random((8, 9, 200), np.float32)
    assert np.array_equal(p.run({"x": a})[t.name], a[:, 1:, 40:168] * 2)


PIECES: dict[str, Callable[[ig.Tensor, ig.Tensor], ig.Tensor]] = {
    "pad": lambda x, y: ig.pad(x, (2, 3), 0.5),
    "roll": lambda x, y: ig.roll(x, 5, -1) * 2.0,
    "cat": lambda x, y: ig.cat([x, y, x], x.ndim - 1),
    "cat of rows": lambda x, y: ig.cat([x, y], 0),
    "neighbours": lambda x, y: x + ig.roll(x, 1, -1) - ig.roll(y, -1, -1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(5, 1003), (3, 2 * COLUMNS + 9), (4 * COLUMNS + 3,), (70, 16), (6, 5, 40)], ids=str)
@pytest.mark.parametrize("kind", PIECES)
def test_ends_of_loops_settle_what_an_index_divides_by(kind: str, shape: tuple[int, ...]) -> None:
    f = ig.Fusion("f")
    f.output(PIECES[kind](f.input("x", shape=shape), f.input("y", shape=shape)))
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.random(shape, np.float32) for a in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert all(np.array_equal(p.run(arrays, poison=True)[n], v) for n, v in want.items())
    report = ig.validate(f, target="cpu")
    assert report.ok
    assert report.kernels is not None
    assert report.kernels.exhaustive
    for s in innermost(p.kernels[0].body):
        every = [e for x in walk(s.body) for e in index_exprs(x)]
        every += [x.condition for x in walk(s.body) if isinstance(x, If)]
        assert not any(s.var in e.names and e.is_condition for e in every)
        assert not any(s.var in d.names for e in every for d in postorder(e) if d.op in ("mod", "floordiv"))


def _expanded(f: ig.Fusion) -> ig.Tensor:
    x, y = f.input("x", (64, 128)), f.input("y", (128, 128))
    return ig.unsqueeze(x, 1) + ig.unsqueeze(y, 0)


def _normalised(f: ig.Fusion) -> ig.Tensor:
    x, v = f.input("x", (3, 8, 28, 28)), f.input("v", (1, 8, 1, 1))
    return x * ig.rsqrt(v + 1.0)


def _framed(f: ig.Fusion) -> ig.Tensor:
    return ig.pad(f.input("x", (3, 4, 30, 30)), (1, 1, 1, 1), 0.5)


@pytest.mark.sampled
@pytest.mark.parametrize("made", [_expanded, _normalised, _framed], ids=lambda f: f.__name__[1:])
def test_loops_visit_each_element_once(made: Callable[[ig.Fusion], ig.Tensor]) -> None:
    f = ig.Fusion("f")
    t = f.output(made(f))
    arrays = {x.name: np.random.default_rng(0).random([int(n) for n in x.shape], np.float32) for x in f.inputs}
    want = ig.emit(f, "numpy").run(arrays)
    ig.schedule.auto(f)
    p = ig.emit(f, "cpu")
    assert all(np.allclose(p.run(arrays, poison=True)[n], v, rtol=1e-6) for n, v in want.items())
    report = ig.validate(f, target="cpu")
    assert report.ok
    (kernel,) = dict(stages(f, "cpu"))["collapse"].kernels
    assert _stores(kernel.body, 1) == math.prod(int(n) for n in t.shape)
    for s in innermost(kernel.body):
        assert not any(isinstance(x, Compute) and x.op == "rsqrt" for x in walk(s.body))  # once for each row


def _stores(body: Sequence[Stmt], times: int) -> int:
    """How often loops store."""
    found = 0
    for s in body:
        found += times if isinstance(s, Store) else 0
        found += _stores(s.body, times * int(s.extent)) if isinstance(s, Loop) else 0
    return found


def innermost(body: Sequence[Stmt]) -> list[Loop]:
    loops = [s for s in walk(tuple(body)) if isinstance(s, Loop)]
    found = [s for s in loops if not any(isinstance(x, Loop) for x in walk(s.body))]
    assert found
    return found


def test_what_one_piece_of_a_row_sets_no_other_reads() -> None:
    """Three parts of a row, each computed under its condition by functions of its own: the pieces are loops of their
    own, and a value that one sets is not of the step before in the next."""
    f = ig.Fusion("pieces")
    t = f.input("x", shape=(6, 7, 1))
    for _ in range(5):
        t = -t
    f.output(ig.neg(ig.neg(ig.cat([ig.select(t, 2, 0) for _ in range(3)], dim=1))))
    ig.schedule.auto(f)
    assert sum(isinstance(s, Loop) for k in ig.emit(f, "cpu").kernels for s in walk(k.ir.body)) > 3
    for target in ("python", "cpu"):
        ig.validate(f, target=target)
