"""Ways of a scatter: as selections where nothing need be stored, by atomics, in order, or by the last writer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import entry_axes
from idgraph.validate import random_inputs
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import evaluate
from tests.emit.thread_runner import run_threads

Build = Callable[[], ig.Fusion]
FUSIONS: dict[str, tuple[str, Build]] = {}


def taken(way: str) -> Callable[[Build], Build]:
    """Register a fusion whose scatter is taken that way."""

    def register(build: Build) -> Build:
        FUSIONS[build.__name__] = way, build
        return build

    return register


@taken("where")
def constant_upon_constant() -> ig.Fusion:
    """-1 at one target of each row, 0 elsewhere, times a gradient: cross entropy backward."""
    f = ig.Fusion("f")
    i, g = f.input("i", (6, 1), "int64"), f.input("g", (6, 9))
    f.output(ig.scatter(ig.full((6, 9), 0.0), 1, i, -1.0) * g)
    return f


@taken("where")
def value_for_each_column() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (6, 9)), f.input("i", (1, 9), "int64"), f.input("v", (2, 9))
    f.output(ig.scatter(x, 0, i, v) + 1.0)
    return f


@taken("where")
def middle_axis_of_integers() -> ig.Fusion:
    f = ig.Fusion("f")
    i, x = f.input("i", (2, 1, 3), "int32"), f.input("x", (2, 7, 3), "int8")
    f.output(ig.scatter(x, 1, i, 5.9))
    return f


@taken("where")
def added_to_some_rows() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (6, 9)), f.input("i", (4, 1), "int64"), f.input("v", (5, 3))
    f.output(ig.scatter_add(x * 2.0, 1, i, v))
    return f


@taken("atomic")
def many_added() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (6, 9)), f.input("i", (4, 5), "int64"), f.input("v", (4, 5))
    f.output(ig.sum(ig.scatter_add(x, 1, i, v), 1))
    return f


@taken("atomic")
def few_added_to_many_rows() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (9000, 5)), f.input("i", (9000, 6), "int32"), f.input("v", (9000, 6))
    f.output(ig.scatter_add(x, 1, i, v))
    return f


@taken("winners")
def few_written() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (600, 9)), f.input("i", (600, 5), "int64"), f.input("v", (600, 5))
    f.output(ig.scatter(x, 1, i, v))
    return f


@taken("winners")
def rows_of_a_cache() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (30, 6)), f.input("i", (40,), "int64"), f.input("v", (40, 6))
    f.output(ig.index_put(x, [i], ig.exp(v)) * 2.0)
    return f


@taken("last-writer")
def two_indices_in_the_middle() -> ig.Fusion:
    f = ig.Fusion("f")
    x, v = f.input("x", (2, 5, 6, 3)), f.input("v", (3, 1))
    i, j = f.input("i", (20, 1), "int64"), f.input("j", (3,), "int32")
    f.output(ig.index_put(x, [None, i, j], v))
    return f


@taken("any-order")
def one_row_for_all() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (30, 6)), f.input("i", (40,), "int64"), f.input("v", (1, 6))
    f.output(ig.index_put(x, [i], v))
    return f


@taken("any-order")
def one_number_for_all() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (30, 6)), f.input("i", (40,), "int64"), f.input("v", (1,))
    f.output(ig.index_put(x, [i], v))
    return f


@taken("winners")
def one_long_row() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (50,)), f.input("i", (300,), "int64"), f.input("v", (400,))
    f.output(ig.scatter(x, 0, i, v) + 1.0)
    return f


@taken("any-order")
def a_number_to_some_rows() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7), "int32"), f.input("i", (3, 60), "int64")
    f.output(ig.scatter(x, 1, i, 3.0))
    return f


@taken("winners")
def pairs_of_indices() -> ig.Fusion:
    f = ig.Fusion("f")
    x, v = f.input("x", (3, 4, 5)), f.input("v", (30, 5))
    i, j = f.input("i", (30,), "int64"), f.input("j", (30,), "int32")
    f.output(ig.index_put(x, [i, j], v))
    return f


@taken("winners")
def columns_of_a_middle_axis() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (3, 6, 4)), f.input("i", (3, 9, 2), "int64"), f.input("v", (5, 9, 3))
    f.output(ig.scatter(x[:, :, 1:], 1, i, v) + 1.0)
    return f


@taken("winners")
def entries_behind_an_axis() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, v = f.input("x", (4, 6, 3)), f.input("i", (20,), "int64"), f.input("v", (20, 1))
    f.output(ig.index_put(x, [None, i], v))
    return f


@taken("any-order")
def what_stood_there_scaled() -> ig.Fusion:
    """The repetition penalty: entries that name one element have read it, and write the same."""
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7)), f.input("i", (5, 30), "int64")
    score = ig.gather(x, 1, i)
    f.output(ig.scatter(x, 1, i, ig.where(score < 0.0, score * 1.5, score / 1.5)))
    return f


@taken("any-order")
def a_table_read_by_the_index() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i, w = f.input("x", (30, 6)), f.input("i", (40,), "int64"), f.input("w", (30, 6))
    at = ig.where(i < 0, i + 30, i)
    f.output(ig.index_put(x, [ig.where(i < 0, i + 30, i)], ig.index_select(w, 0, at) * x[:1]))
    return f


@taken("winners")
def the_index_of_the_entry_opposite() -> ig.Fusion:
    """Values that an index decides, but another entry's: they differ where entries name one element."""
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7)), f.input("i", (5, 30), "int64")
    f.output(ig.scatter(x, 1, i, ig.gather(x, 1, ig.flip(i, (1,)))))
    return f


@taken("winners")
def the_index_of_another_row() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7)), f.input("i", (5, 30), "int64")
    f.output(ig.scatter(x, 1, i, ig.gather(x, 1, ig.roll(i, 1, 0))))
    return f


@taken("winners")
def the_number_of_the_entry() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7)), f.input("i", (5, 30), "int64")
    f.output(ig.scatter(x, 1, i, ig.gather(x, 1, i) + ig.cast(f.iota(30), "float32")))
    return f


@taken("winners")
def a_running_sum_of_what_stood_there() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 7)), f.input("i", (5, 30), "int64")
    f.output(ig.scatter(x, 1, i, ig.cumsum(ig.gather(x, 1, i), 1)))
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUSIONS)
def test_the_way_taken_computes_the_scatter(name: str) -> None:
    way, build = FUSIONS[name]
    f = build()
    original = ig.parse(str(f))
    assert [d.chosen for d in ig.schedule.scatter_plan(f)] == [way]
    assert str(f) == str(original)
    given = random_inputs(original, 5)
    want = evaluate(original, given)
    outputs = f.outputs
    ig.schedule.auto(f)
    assert f.outputs == outputs
    assert ig.validate(f, target="numpy", inputs=given).ok
    program = ig.emit(f, target="numpy")
    got = program.run(given, checked=True)
    assert all(np.allclose(got[k], v, rtol=1e-5, atol=1e-6) for k, v in want.items())
    assert [d.chosen for d in program.report.scatters] == [way]
    if way == "where":
        assert program.report.stored == ()
        assert program.report.kernels == 1
        assert not any(e.op == "scatter" for e in f.exprs)


@pytest.mark.parametrize("name", ["constant_upon_constant", "added_to_some_rows", "rows_of_a_cache", "one_long_row"])
@pytest.mark.parametrize("bad", [-31, 1000])
def test_an_index_out_of_range_is_refused(name: str, bad: int) -> None:
    f = FUSIONS[name][1]()
    given: dict[str, Any] = random_inputs(f, 5)
    given["i"].reshape(-1)[2] = bad
    ig.schedule.auto(f)
    with pytest.raises(ig.IndexingError, match=r"\bi\b.* is outside axis"):
        ig.emit(f, target="numpy").run(given, checked=True)


def test_owners_need_no_atomics() -> None:
    f = few_added_to_many_rows()
    with ig.cost.use_device(replace(ig.cost.devices["H200"], latency=0.0)) as quick:
        assert [d.chosen for d in ig.schedule.scatter_plan(f)] == ["owner"]
        ig.schedule.auto(f, device=quick)
    assert "atomic" not in ig.emit(f, target="cuda").source
    f = many_added()
    ig.schedule.auto(f)
    assert "atomic" in ig.emit(f, target="cuda").source


def test_constants_live_nowhere() -> None:
    """The scatter of a constant upon a constant: one kernel that reads the index and the gradient."""
    f = constant_upon_constant()
    ig.schedule.auto(f)
    for target in ("python", "cuda"):
        plan = ig.emit(f, target=target).plan
        assert [(b.title, b.place) for b in plan.buffers] == [("i", "input"), ("g", "input"), ("t4", "output")]
    assert [e.op for e in f.exprs] == ["full", "iota", "reshape", "eq", "where", "mul"]


def test_a_nan_elsewhere_stays_where_it_is() -> None:
    """Adding to one element of a row leaves the signs of zero and the NaN of others alone."""
    f = ig.Fusion("f")
    x, i, v = f.input("x", (1, 4)), f.input("i", (1, 1), "int64"), f.input("v", (1, 1))
    t = f.output(ig.scatter_add(x, 1, i, v))
    ig.schedule.auto(f)
    given = {
        "x": np.array([[-0.0, np.nan, 1.0, np.inf]], np.float32),
        "i": np.array([[2]]),
        "v": np.ones((1, 1), np.float32),
    }
    got = ig.emit(f, target="numpy").run(given)[t.name]
    assert np.array_equal(got, [[-0.0, np.nan, 2.0, np.inf]], equal_nan=True)
    assert np.signbit(got[0, 0])


def test_loops_that_a_scatter_cannot_follow_stay_its_own() -> None:
    f = ig.Fusion("f")
    x, i = f.input("x", (5, 8, 1)), f.input("i", (3, 1, 1), dtype="int32")
    t = ig.scatter_add(x, 0, i, ig.neg(x)[:3, :1])
    out = f.output(ig.neg(ig.pad(t, (0, 0, 0, 0, 3, 2))))
    f.output(t)
    for _ in range(2):
        out.merge(0)  # of axes of which the scatter reads one element, and enters another by its index
    out.split(0, 8)
    ig.schedule.like(f, out)
    assert ig.validate(f, target="python").ok


@pytest.mark.parametrize("other", ["loaded", "counted too"])
def test_entries_along_which_an_index_counts_are_written_side_by_side(other: str) -> None:
    """``cache[arange(n), place] = rows``: no two entries name one element, so none waits for another."""
    f = ig.Fusion("f")
    x, rows = f.input("x", shape=(40, 9, 8)), f.input("rows", shape=(40, 8))
    at = f.input("at", shape=(40,), dtype="int64")
    places = [f.iota(40, dtype="int64"), at] if other == "loaded" else [at, f.iota(40, dtype="int64")]
    target = x if other == "loaded" else ig.permute(x, (1, 0, 2))
    name = f.output(ig.index_put(target, places, rows)).name
    ig.schedule.auto(f)
    assert all(d.parallel != "serial" or d.extent == 1 for d in f[name].loop)
    program = ig.emit(f, target="cuda")
    given = {**random_inputs(f, 0), "at": np.arange(40) * 5 % 9}
    report = check_kernel_addresses(program, {}, index_values(program.fusion, {}, given, 0))
    assert report.ok, report
    np.testing.assert_array_equal(ig.emit(f, target="cpu").run(given)[name], evaluate(f, given)[name])


def test_an_index_that_does_not_count_alone_keeps_its_order() -> None:
    f = ig.Fusion("f")
    x, rows = f.input("x", shape=(9, 8)), f.input("rows", shape=(40, 8))
    at = ig.remainder(f.iota(40, dtype="int64"), 9)
    name = f.output(ig.index_put(x, [at], rows)).name
    definition = f[name].definition
    assert definition is not None
    assert [int(d.extent) for d in entry_axes(definition)] == [40]
    given = random_inputs(f, 0)
    want = evaluate(f, given)[name]
    ig.schedule.auto(f)
    np.testing.assert_array_equal(ig.emit(f, target="cpu").run(given)[name], want)


@pytest.mark.parametrize(
    "name", ["few_written", "pairs_of_indices", "columns_of_a_middle_axis", "what_stood_there_scaled", "one_long_row"]
)
def test_threads_in_any_order_write_what_the_last_entry_does(name: str) -> None:
    f = FUSIONS[name][1]()
    given = random_inputs(f, 7)
    (want,) = evaluate(f, given).values()
    ig.schedule.auto(f)
    for seed in range(2):
        (got,) = run_threads(ig.emit(f, target="cuda"), given, seed=seed).values()
        np.testing.assert_allclose(np.asarray(got).reshape(np.shape(want)), want, rtol=1e-6)


def test_few_places_are_never_looked_for_by_all_elements() -> None:
    """The repetition penalty: a copy, and the few places written by threads of their own."""
    f = ig.Fusion("f")
    x, i = f.input("x", (64, 32000)), f.input("i", (64, 50), "int64")
    score = ig.gather(x, 1, i)
    f.output(ig.scatter(x, 1, i, ig.where(score < 0.0, score * 1.3, score / 1.3)))
    ig.schedule.auto(f)
    copy, few = ig.cost(ig.emit(f, target="cuda")).kernels
    assert copy.bytes_moved == 2 * 4 * 64 * 32000
    assert few.blocks * few.threads >= 64 * 50
    assert few.bytes_moved < 64 * 50 * 80
