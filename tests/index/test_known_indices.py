"""Gathers at indices that are known numbers are index expressions: the coordinate, no load, and the kernel's values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import idgraph as ig
from tools.judges.expressions import evaluate

Build = Callable[[ig.Fusion, ig.Tensor], ig.Tensor]

CASES: dict[str, tuple[Build, list[int]]] = {  # the rows of x that are read, in order
    "counted": (lambda f, x: ig.index_select(x, 0, f.iota(6)), list(range(6))),
    "from a start, in steps": (lambda f, x: ig.index_select(x, 0, f.iota(4, start=1, step=3)), [1, 4, 7, 10]),
    "reversed": (lambda f, x: ig.index_select(x, 0, ig.flip(f.iota(12), 0)), list(range(11, -1, -1))),
    "constant": (lambda f, x: ig.index_select(x, 0, ig.full((3,), 7, dtype="int64")), [7, 7, 7]),
    "sum and product, reshaped": (
        lambda f, x: ig.index_select(x, 0, ig.reshape(ig.reshape(f.iota(4), 2, 2) * 2 + 1, 4)),
        [1, 3, 5, 7],
    ),
    "of two axes": (
        lambda f, x: ig.index_select(x, 0, ig.reshape(ig.unsqueeze(f.iota(3) * 4, 1) + ig.unsqueeze(f.iota(4), 0), 12)),
        list(range(12)),
    ),
    "transposed": (
        lambda f, x: ig.index_select(x, 0, ig.reshape(ig.transpose(ig.reshape(f.iota(12), 3, 4), 0, 1), 12)),
        [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11],
    ),
    "remainder": (lambda f, x: ig.index_select(x, 0, (f.iota(20) + 5) % 12), [(k + 5) % 12 for k in range(20)]),
    "counted from the end": (lambda f, x: ig.index_get(x, [-1 - f.iota(12)]), list(range(11, -1, -1))),
    "chosen": (
        lambda f, x: ig.index_select(x, 0, ig.where(f.iota(8) < 3, f.iota(8) + 9, f.iota(8))),
        [9, 10, 11, 3, 4, 5, 6, 7],
    ),
    "joined": (
        lambda f, x: ig.index_select(x, 0, ig.cat([f.iota(3), f.iota(4) + 5, ig.flip(f.iota(2), 0)])),
        [0, 1, 2, 5, 6, 7, 8, 1, 0],
    ),
    "joined and cut": (
        lambda f, x: ig.index_select(x, 0, ig.roll(ig.cat([f.iota(3), f.iota(4) + 5]), 2, 0)[1:6]),
        [8, 0, 1, 2, 5],
    ),
    "padded": (
        lambda f, x: ig.index_select(x, 0, ig.pad(f.iota(4) + 1, (2, 3), value=11)),
        [11, 11, 1, 2, 3, 4, 11, 11, 11],
    ),
    "cut by a pad": (lambda f, x: ig.index_select(x, 0, ig.pad(f.iota(9), (-2, 1), value=0)), [2, 3, 4, 5, 6, 7, 8, 0]),
    "stacked": (
        lambda f, x: ig.index_select(x, 0, ig.reshape(ig.stack([f.iota(4), f.iota(4) + 8], 1), 8)),
        [0, 8, 1, 9, 2, 10, 3, 11],
    ),
    "cut": (lambda f, x: ig.index_select(x, 0, f.iota(12)[2:9]), list(range(2, 9))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_a_known_index_is_an_expression(name: str, fused: bool) -> None:
    build, rows = CASES[name]
    f = ig.Fusion("known")
    x = f.input("x", shape=(12, 4))
    out = f.output(build(f, x))
    if fused:
        ig.schedule.like(f, out)
        ig.schedule.inline_most(f)
    (e,) = x.uses
    a = ig.IdModel(f).access(e, x)
    assert a.loads == {} and a.load_bounds == ()
    loop = {loop.name: np.zeros(len(rows), np.int64) for loop in a.loops}
    loop["i0"] = np.arange(len(rows))
    found = np.broadcast_to(evaluate(str(a.coordinates[0]), loop), (len(rows),))
    assert found.tolist() == rows
    assert ig.validate(f, target="python").ok and ig.validate(f, target="numpy").ok


LOADED: dict[str, Callable[[ig.Fusion], ig.Tensor]] = {
    "past the end": lambda f: f.iota(12) + 1,
    "wraps around": lambda f: f.iota(12, dtype="int8") * 50 % 12,
    "data": lambda f: f.input("i", shape=(12,), dtype="int64") % 12,
}


@pytest.mark.parametrize("name", LOADED)
def test_what_is_not_sure_is_loaded(name: str) -> None:
    f = ig.Fusion("loaded")
    x = f.input("x", shape=(12, 4))
    f.output(ig.index_select(x, 0, LOADED[name](f)))
    (e,) = x.uses
    assert list(ig.IdModel(f).access(e, x).loads) == ["ld1"]
