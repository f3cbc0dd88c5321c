"""Gathers of gathers: the way of each holds whatever way the others go, and costs what the estimate of it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir.schedule_log import Decision
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate
from tests.cost.test_oracle import counted

Build = Callable[[], ig.Fusion]
Producer = Callable[[ig.Tensor], ig.Tensor]


def levels(axes: tuple[int, ...], make: Producer) -> ig.Fusion:
    """Rows or columns of rows or columns of ... of a computed tensor."""
    f = ig.Fusion("levels")
    t = make(f.input("x", (24, 40)))
    for n, axis in enumerate(axes):
        t = ig.index_select(t, axis, f.input(f"i{n}", (20 - 4 * n,), "int64"))
    f.output(t)
    return f


def joined() -> ig.Fusion:
    """A gather of a cat of gathers from different tensors."""
    f = ig.Fusion("joined")
    x, y = ig.exp(f.input("x", (24, 40))), f.input("y", (24, 40)) * 2.0
    both = ig.cat([ig.index_select(t, 1, f.input(f"i{n}", (8,), "int64")) for n, t in enumerate((x, y))], 1)
    f.output(ig.index_select(both, 0, f.input("i2", (10,), "int64")))
    return f


def shared() -> ig.Fusion:
    """Two gathers of one, one of them an output as it is."""
    f = ig.Fusion("shared")
    t = ig.index_select(ig.exp(f.input("x", (24, 40))), 1, f.input("i0", (20,), "int64"))
    f.output(*(ig.index_select(t, 0, f.input(f"i{n}", (9,), "int64")) for n in (1, 2)))
    return f


BUILDS: dict[str, Build] = {
    "columns, rows": partial(levels, (1, 0), ig.exp),
    "rows, columns": partial(levels, (0, 1), ig.exp),
    "columns, columns": partial(levels, (1, 1), ig.exp),
    "three levels": partial(levels, (1, 0, 1), ig.exp),
    "of a softmax": partial(levels, (1, 0), lambda x: ig.softmax(x, 1)),
    "of means, subtracted": partial(levels, (0, 1, 0), lambda x: x - ig.mean(x, 0, keepdim=True)),
    "a cat of gathers": joined,
    "two of one": shared,
}


def inputs_of(f: ig.Fusion) -> dict[str, Any]:
    """Numbers, and indices of which none comes twice: as many elements are read as an estimate may take for granted."""
    r = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        whole = t.dtype == "int64"
        found[t.name] = r.permutation(shape[0]) if whole else r.normal(size=shape).astype(np.float32)
    return found


def told(d: Decision) -> dict[str, tuple[float, int, int]]:
    """Microseconds, kernels and bytes of each way of a decision."""
    lines = {d.chosen: d.reason, **{o.name: o.amount() for o in d.rejected if o.cost is not None}}
    found = {w: re.match(r"([\d,.]+) us .*?([\d,]+) kernels?, ([\d,]+) bytes", s) for w, s in lines.items()}
    numbers = {w: [x.replace(",", "") for x in m.groups()] for w, m in found.items() if m}
    return {w: (float(us), int(kernels), int(size)) for w, (us, kernels, size) in numbers.items() if w != "one-hot"}


def as_run(build: Build, ways: dict[str, str]) -> tuple[float, int, int] | None:
    """The same of the program that is forced these ways, after its values are compared: the bytes counted access by
    access as it runs. None where the ways are impossible."""
    f, original = build(), build()
    given = inputs_of(f)
    try:
        ig.schedule.auto(f, gathers=ways)  # pyright: ignore[reportArgumentType]
    except ig.ScheduleError:
        return None
    want = evaluate(original, given)
    for name, value in ig.emit(f, target="numpy").run(given, checked=True).items():
        assert np.allclose(value, want[name], rtol=1e-5, atol=1e-5), (ways, name)
    program = ig.emit(f, target="python")
    width = {b.title: np.dtype(b.dtype).itemsize for b in program.plan.buffers}
    seen = counted(program, given)
    size = sum(len(addresses) * width[name] for (_, name, _), addresses in seen.items())
    cuda = ig.emit(f, target="cuda")
    return ig.cost(cuda, "H200").total.time_us, len(cuda.kernels), size


@pytest.mark.sampled
@pytest.mark.parametrize("name", BUILDS)
def test_each_way_costs_what_is_told_of_it(name: str) -> None:
    """Gathers before go the way that was chosen; of those after, all are computed again, or none, or all go this way.

    An estimate takes it that each index names another element, and that all is loaded which a mask (of a reduction or
    of the part of a cat) may ask for: bytes may differ by the indices, which are few, and by inputs under a mask."""
    build = BUILDS[name]
    plan = [d for d in ig.schedule.gather_plan(build()) if d.chosen != "direct"]
    assert len(plan) > 1
    sizes = {t.name: int(np.prod([int(n) for n in t.shape])) for t in build().inputs}
    few = sum(8 * n for t, n in sizes.items() if t.startswith("i"))
    most = sum(4 * n for t, n in sizes.items() if not t.startswith("i"))
    known: dict[tuple[tuple[str, str], ...], tuple[float, int, int] | None] = {}

    def run(ways: dict[str, str]) -> tuple[float, int, int] | None:  # some programs are reached by several decisions
        key = tuple(sorted(ways.items()))
        if key not in known:
            known[key] = as_run(build, ways)
        return known[key]

    for k, d in enumerate(plan):
        costs, before = told(d), {p.tensor: p.chosen for p in plan[:k]}
        assert {"global", "recompute"} <= {*costs, *(o.name for o in d.rejected if o.cost is None)}
        for way, (us, kernels, size) in costs.items():
            masked = "cat" in name or "predicate" in (way, *before.values())
            after = [dict.fromkeys((p.tensor for p in plan[k + 1 :]), later) for later in ("recompute", "global", way)]
            tries = [c for ways in after if (c := run({**before, d.tensor: way, **ways}))]
            same = [c for c in tries if abs(c[0] - us) < 0.006 and c[1] == kernels]
            assert any(abs(c[2] - size) <= few + masked * most for c in same), (d.tensor, way, us, tries)
        assert len({(kernels, size) for _, kernels, size in costs.values()}) == len(costs)


@pytest.mark.sampled
@pytest.mark.parametrize("outer", ["recompute", "predicate", "one-hot", "global"])
@pytest.mark.parametrize("inner", ["recompute", "predicate", "one-hot", "global"])
def test_both_ways_hold(inner: str, outer: str) -> None:
    """What is stored is the source of each gather that is asked to read it there, and nothing else."""
    f = BUILDS["columns, rows"]()
    a, b = (e.output for e in f.exprs if e.op == "index_select")
    source = a.definition.inputs[0] if a.definition else a
    ig.schedule.auto(f, gathers={a.name: inner, b.name: outer})  # pyright: ignore[reportArgumentType]
    stored = {name for name, _ in ig.emit(f, target="cuda").report.stored}
    assert (source.name in stored) == (inner == "global")
    assert (a.name in stored) == (outer == "global")
    f = BUILDS["columns, rows"]()
    given = inputs_of(f)
    want = evaluate(f, given)[b.name]
    ig.schedule.auto(f, gathers={a.name: inner, b.name: outer})  # pyright: ignore[reportArgumentType]
    assert np.allclose(ig.emit(f, target="numpy").run(given)[b.name], want, rtol=1e-5)


def test_an_axis_that_stands_at_two_coordinates_beside_one_that_is_selected() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (3, 3, 4)), f.input("i", (1, 1, 1), "int64")
    y = x - ig.amax(x, 1, keepdim=True)
    parts = [ig.unsqueeze(ig.select(y, 2, 0), 0) for _ in range(2)]
    name = f.output(ig.take_along_dim(ig.neg(ig.cat(parts, dim=0)), i, 2)).name
    given = random_inputs(f, 1)
    want = evaluate(f, given)[name]
    ig.schedule.auto(f)
    np.testing.assert_allclose(ig.emit(f, target="numpy").run(given)[name], want, rtol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "H200"])
def test_a_gather_of_what_is_written_by_index_is_estimated_once(device: str) -> None:
    """The write becomes a sum with a gather in it, whose way no estimate asks for."""
    f = ig.Fusion("f")
    x, v = f.input("x", (5, 16)), f.input("v", (5,))
    i, j, k = f.input("i", (5,), "int64"), f.input("j", (5,), "int64"), f.input("k", (5, 1), "int64")
    t = f.output(ig.take_along_dim(ig.index_put(x, [i, j], v), k, 1))
    ig.schedule.auto(f, device=device)
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "x": np.arange(80, dtype=np.float32).reshape(5, 16),
        "v": np.arange(5, dtype=np.float32) - 9,
        "i": np.array([4, 0, 2, 1, 3]),
        "j": np.array([3, 1, 4, 1, 5]),
        "k": np.array([[1], [1], [4], [5], [2]]),
    }
    want = inputs["x"].copy()
    want[inputs["i"], inputs["j"]] = inputs["v"]
    got = ig.emit(f, target="numpy").run(inputs)[t.name]
    np.testing.assert_array_equal(got, np.take_along_axis(want, inputs["k"], 1))
