"""Gathers of computed tensors: every way computes what the gather says, the choice is reported, bounds stay tested."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.rewrite.gather_lowering import Strategy
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate

WAYS: tuple[Strategy, ...] = ("recompute", "predicate", "one-hot", "global")
Build = Callable[[], ig.Fusion]
FUSIONS: dict[str, Build] = {}


def fusion(build: Build) -> Build:
    """Register a fusion under its function's name."""
    FUSIONS[build.__name__] = build
    return build


def two(x: tuple[int, ...], i: tuple[int, ...], dtype: str = "int64") -> tuple[ig.Fusion, ig.Tensor, ig.Tensor]:
    """A fusion with a tensor and an index."""
    f = ig.Fusion("f")
    return f, f.input("x", x), f.input("i", i, dtype)


@fusion
def log_softmax() -> ig.Fusion:
    f, x, i = two((64, 1000), (64, 1))
    f.output(ig.squeeze(ig.gather(ig.log_softmax(x, 1), 1, i), 1))
    return f


@fusion
def embedding() -> ig.Fusion:
    f, x, i = two((300, 16), (8, 5))
    f.output(ig.embedding(i, x + f.input("b", (16,))) + f.input("p", (5, 16)))
    return f


@fusion
def sums() -> ig.Fusion:
    """More sums are gathered than there are: they stay in memory."""
    f, x, i = two((9, 7), (400,))
    f.output(ig.index_select(ig.sum(x, 1), 0, i) * 2.0)
    return f


@fusion
def sliced() -> ig.Fusion:
    f, x, i = two((6, 200), (6, 4), "int32")
    f.output(ig.take_along_dim(ig.exp(x)[:, 3:170:2], i, 1))
    return f


@fusion
def joined() -> ig.Fusion:
    f, x, i = two((60, 5), (8,))
    f.output(ig.index_select(ig.cat([x * 2.0, -f.input("y", (40, 5))], 0), 0, i))
    return f


REPORTED = ("log_softmax", "embedding", "sums", "sliced", "joined")
GOLDEN = Path(__file__).parent.parent / "golden" / "gathers.txt"


def plain(text: object) -> str:
    """A report without the numbers of this file's lines."""
    return re.sub(r" at test_gathers.py:\d+:", " at HERE:", str(text))


def test_reports() -> None:
    """The choice for five gathers, its reason, and the reasons against the other ways."""
    found: list[str] = []
    for name in REPORTED:
        f = FUSIONS[name]()
        before = str(f)
        found.append(f"# {name}\n" + "\n".join(plain(d) for d in ig.schedule.gather_plan(f)))
        assert str(f) == before
    assert "\n\n".join(found) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_a_program_tells_what_was_decided() -> None:
    f = FUSIONS["log_softmax"]()
    plan = ig.schedule.gather_plan(f)
    ig.schedule.auto(f)
    report = ig.emit(f, target="numpy").report
    assert report.gathers == plan
    assert str(report).splitlines()[-2:] == ["kernels: 1", "in memory between them: nothing"]


@fusion
def padded() -> ig.Fusion:
    f, x, i = two((6, 5), (3, 4))
    f.output(ig.gather(ig.pad(x, (2, 3, -1, 1), 7.5), 1, i))
    return f


@fusion
def reshaped() -> ig.Fusion:
    f, x, i = two((6, 4), (2, 5))
    f.output(ig.gather(ig.reshape(ig.flip(x, 1), 2, 12), 1, i))
    return f


@fusion
def rolled() -> ig.Fusion:
    f, x, i = two((6, 4), (4, 5))
    f.output(ig.gather(ig.roll(x, 2, 0).T + 1.0, 1, i))
    return f


@fusion
def gathered() -> ig.Fusion:
    f, x, i = two((6, 4), (6, 5))
    f.output(ig.gather(ig.gather(x * 2.0, 1, i) + 1.0, 1, f.input("j", (3, 2), "int64")))
    return f


@fusion
def advanced() -> ig.Fusion:
    f, x, i = two((6, 4, 3), (5, 1))
    f.output(ig.index_get(x + f.input("y", (4, 1)), [i, f.input("j", (2,), "int64")]))
    return f


@fusion
def few_sums() -> ig.Fusion:
    f, x, i = two((5, 9, 7), (3, 2))
    f.output(ig.gather(ig.amax(x, 2), 1, i))
    return f


@fusion
def integers() -> ig.Fusion:
    f = ig.Fusion("f")
    x, i = f.input("x", (6, 7), "int8"), f.input("i", (6, 1), "int64")
    f.output(ig.take_along_dim(x + 1, i, 1), ig.gather(x > 0, 1, i))
    return f


def both(f: ig.Fusion, given: Mapping[str, Any], want: Mapping[str, Any], target: Any) -> None:
    """The fusion as it is now against the values of the one it was made of, and its addresses against the oracle."""
    report = ig.validate(f, target=target, inputs=given)
    assert report.ok, report
    got = ig.emit(f, target=target).run(given, checked=True)
    for name, value in want.items():
        assert np.allclose(got[name], value, rtol=1e-5, atol=1e-5), name


IMPOSSIBLE = {("advanced", "predicate"), ("advanced", "one-hot"), ("sums", "recompute")}


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUSIONS)
def test_every_way_computes_the_gather(name: str, way: Strategy) -> None:
    f = FUSIONS[name]()
    original = ig.parse(str(f))
    given = random_inputs(original, 3)
    want = evaluate(original, given)
    outputs = f.outputs
    if (name, way) in IMPOSSIBLE:
        with pytest.raises(ig.ScheduleError, match="impossible"):
            ig.schedule.auto(f, gathers=way)
        return
    ig.schedule.auto(f, gathers=way)
    assert f.outputs == outputs  # the user's tensors, under their names
    assert all(d.chosen == way and d.forced for d in f.decisions if d.chosen != "direct")
    both(f, given, want, "numpy")


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["log_softmax", "joined"])
def test_the_chosen_way_on_the_cpu(name: str) -> None:
    f = FUSIONS[name]()
    original = ig.parse(str(f))
    given = random_inputs(original, 4)
    ig.schedule.auto(f)
    both(f, given, evaluate(original, given), "cpu")


@pytest.mark.sampled
@pytest.mark.parametrize("bad", [-1, 100])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["log_softmax", "sliced", "joined", "padded", "rolled"])
def test_an_index_out_of_range_is_refused(name: str, way: Strategy, bad: int) -> None:
    """Also where movement would turn it into a coordinate that exists: 100 is inside what ``sliced`` is cut from."""
    f = FUSIONS[name]()
    given = random_inputs(f, 3)
    if name in ("log_softmax",) and bad == 100:
        bad = 1000
    given["i"].reshape(-1)[1] = bad
    ig.schedule.auto(f, gathers=way)
    with pytest.raises(ig.IndexingError, match=r"\bi\b.* is outside axis"):
        ig.emit(f, target="numpy").run(given, checked=True)


def test_nothing_is_stored() -> None:
    """The log-softmax of a gathered element: no tensor as large as the input lies in memory."""
    for way in ("recompute", "predicate", "one-hot"):
        f = log_softmax()
        ig.schedule.auto(f, gathers=way)
        report = ig.emit(f, target="cuda").report
        assert report.stored == ()
        assert report.kernels == 1
    f = log_softmax()
    ig.schedule.auto(f, gathers="global")
    assert ("t7", 64000) in [(name, int(size)) for name, size in ig.emit(f, target="cuda").report.stored]


def test_what_is_in_memory_anyway_is_read_there() -> None:
    f, x, i = two((64, 1000), (64, 4))
    y = f.output(ig.exp(x))
    f.output(ig.gather(y, 1, i))
    (decision,) = ig.schedule.gather_plan(f)
    assert (decision.chosen, decision.entries) == ("global", "4")
    assert "it is an output" in decision.reason


def test_an_input_is_read_directly() -> None:
    f, x, i = two((64, 10), (64, 1))
    f.output(ig.gather(x, 1, i))
    (decision,) = ig.schedule.gather_plan(f)
    assert (decision.chosen, decision.entries) == ("direct", "one")


def test_one_element_for_each_row_by_its_owner() -> None:
    """A value that cannot be computed element by element is looked at as it comes, and never stored."""
    f, x, i = two((64, 1000), (64, 1))
    f.output(ig.gather(ig.slice_scatter(x, x[:, :10] * 2.0, 1, 0, 10), 1, i))
    (decision,) = ig.schedule.gather_plan(f)
    assert decision.chosen == "predicate"
    assert [o.name for o in decision.rejected if o.cost is None] == ["recompute"]


def test_a_way_by_name() -> None:
    f, x, i = two((6, 9), (6, 2))
    a, b = f.output(ig.gather(x * 2.0, 1, i)), f.output(ig.gather(x + 1.0, 1, i))
    plan = {d.tensor: d.chosen for d in ig.schedule.gather_plan(f, {a.name: "one-hot"})}
    assert plan == {a.name: "one-hot", b.name: "recompute"}


@pytest.mark.parametrize("force", ["twice", {"t9": "global"}, {"t3": "by magic"}])
def test_a_way_there_is_not(force: Any) -> None:
    f, x, i = two((6, 9), (6, 2))
    f.output(ig.gather(x * 2.0, 1, i, name="t3"))
    with pytest.raises(ig.ScheduleError, match="cannot be chosen"):
        ig.schedule.gather_plan(f, force)


def test_an_index_that_nothing_reads_is_not_lost() -> None:
    """Every element of the axis is the same: recomputing would never look at the index, so it is not offered."""
    f, x, i = two((6, 1), (6, 2))
    f.output(ig.gather(ig.expand(x, 6, 9), 1, i))
    (decision,) = ig.schedule.gather_plan(f)
    assert [o.name for o in decision.rejected if o.cost is None] == ["recompute"]


def test_symbolic_rows() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=1)
    x, i = f.input("x", (n, 9)), f.input("i", (n, 1), "int64")
    t = f.output(ig.gather(ig.log_softmax(x, 1), 1, i))
    original = ig.parse(str(f))
    ig.schedule.auto(f)
    assert f.decisions[0].chosen in ("recompute", "predicate")  # one kernel each, of about the same time
    given = {
        "x": np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32),
        "i": np.array([[1], [8], [0], [3], [3]]),
    }
    got = ig.emit(f, target="numpy").run(given)[t.name]
    assert np.allclose(got, evaluate(original, given)[t.name], rtol=1e-5, atol=1e-6)


def test_an_index_that_is_known_needs_no_check() -> None:
    """One index of two is the numbers of an iota: its check would name no loaded value."""
    f = ig.Fusion("f")
    x, i = f.input("x", shape=(6, 5)), f.input("i", shape=(5,), dtype="int64")
    f.output(ig.index_get(x, [i, f.iota(5)]) * 2.0)
    values, rows = np.arange(30, dtype=np.float32).reshape(6, 5), np.array([5, 0, 3, 3, 1])
    given = {"x": values, "i": rows}
    got = ig.emit(f, target="numpy").run(given, checked=True)
    assert np.array_equal(next(iter(got.values())), values[rows, np.arange(5)] * 2)
    rows[2] = 6
    with pytest.raises(ig.IndexingError, match=r"\bi\b.* is outside axis 0"):
        ig.emit(f, target="numpy").run(given, checked=True)


def test_rows_by_an_index_are_scheduled_alike_however_they_are_written() -> None:
    """An index that is one for all columns takes whole rows; one of each element does not."""

    def loops(build: Callable[[ig.Tensor, ig.Tensor], ig.Tensor], shape: tuple[int, ...]) -> list[tuple[str, str]]:
        f = ig.Fusion("f")
        y = f.output(build(f.input("x", (5000, 256)), f.input("i", shape, dtype="int64")))
        ig.schedule.auto(f)
        return [(str(d.extent), d.parallel) for d in y.loop]

    rows = loops(lambda x, i: ig.index_select(x, 0, i), (20000,))
    assert ("128", "threadIdx.x") in rows
    assert loops(lambda x, i: ig.take_along_dim(x, i, 0), (20000, 1)) == rows
    assert loops(lambda x, i: ig.take_along_dim(x, i, 0), (20000, 256)) != rows
