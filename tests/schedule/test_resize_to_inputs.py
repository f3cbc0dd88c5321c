"""Resizes replayed upstream, through reshapes too: afterwards everything upstream is inlined at all of its loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.errors import ScheduleError


def one_split(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(f.input("x", shape=(4, 100)))
    return [f.output(ig.reshape(x, 4, 5, 20)[..., 1:10])]


def one_merge(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(f.input("x", shape=(4, 5, 20)))
    return [f.output(ig.reshape(x, 4, 100)[:, 1:10])]


def two_reshapes(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(ig.copy(f.input("x", shape=(4, 5, 20))))
    y = ig.exp(ig.reshape(x, 4, 100))
    return [f.output(ig.reshape(y, 4, 10, 10)[:, 2:5])]


def two_slices(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(f.input("x", shape=(4, 100)))
    a = ig.reshape(x, 4, 5, 20)[..., 1:10]
    return [a, f.output(ig.exp(a)[..., 2:4])]


def padded(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(f.input("x", shape=(4, 100)))
    return [f.output(ig.pad(ig.reshape(x, 4, 5, 20), (2, 3)))]


def sliced_before(f: ig.Fusion) -> list[ig.Tensor]:
    x = ig.copy(f.input("x", shape=(4, 100)))
    a = x[:, 20:]
    return [a, f.output(ig.reshape(ig.copy(a), 4, 4, 20)[..., 1:10])]


@pytest.mark.parametrize(
    ("make", "loops"),
    [
        (one_split, "4 5 9"), (one_merge, "4 9"), (two_reshapes, "4 3 10"), (two_slices, "4 5 2"), (padded, "4 5 25"),
        (sliced_before, "4 4 9"),
    ],
)  # fmt: skip
def test_everything_upstream_has_the_loops_of_the_result(
    make: Callable[[ig.Fusion], list[ig.Tensor]], loops: str
) -> None:
    f = ig.Fusion("f")
    for t in make(f):
        assert t.definition
        ig.schedule.resize_to_inputs(f, t.definition)
    for t in f.tensors:
        if t.definition is not None:
            assert " ".join(str(d.extent) for d in t.loop) == loops
            if t.uses:
                t.inline(len(t.loop))
    for target in ("python", "numpy"):
        report = ig.validate(f, target=target, exhaustive=True)
        assert report.ok, str(report)


def test_of_symbolic_extent() -> None:
    f = ig.Fusion("f")
    n = f.symbol("n", min=2)
    x = ig.copy(f.input("x", shape=(n, 100)))
    r = ig.reshape(x, n, 5, 20)
    s = f.output(r[..., 1:10])
    assert s.definition
    ig.schedule.resize_to_inputs(f, s.definition)
    x.inline(3)
    r.inline(3)
    ig.IdModel(f).verify()


def test_what_is_scheduled_otherwise_is_left_as_it_was() -> None:
    f = ig.Fusion("f")
    x = ig.copy(f.input("x", shape=(4, 100)), name="x1").split(1, 7)
    s = f.output(ig.reshape(x, 4, 5, 20, name="r")[..., 1:10])
    before = str(f)
    assert s.definition
    with pytest.raises(ScheduleError, match=r"axis x1.I\d+ is already scheduled"):
        ig.schedule.resize_to_inputs(f, s.definition)
    assert str(f) == before
