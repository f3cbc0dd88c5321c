"""What a program of the caller's raises inside `auto` (a signal's handler, a tracer) is the caller's, at any moment."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

import idgraph as ig


class Stop(Exception):
    """The caller's own."""


def deep() -> ig.Fusion:
    f = ig.Fusion("deep")
    t = f.input("x", shape=(8, 16))
    for _ in range(2):
        t = ig.softmax(t, 1) + ig.exp(t)
    f.output(t)
    return f


def raised_at(n: int, error: BaseException, work: Callable[[], object]) -> bool:
    """Whether ``work`` was still going on at its ``n``-th call, where the caller's hook raises."""
    left = n

    def hook(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        left -= event == "call"
        if left == 0 and event == "call":
            sys.setprofile(None)
            raise error

    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
    return left <= 0


@pytest.mark.parametrize("kind", [Stop, ValueError, TypeError, RuntimeError, RecursionError, KeyError, TimeoutError])
def test_the_callers_exception_goes_through(kind: type[Exception]) -> None:
    met = 0
    for n in (40, 700, 5_000, 40_000):
        f = deep()
        before, error = str(f), kind("mine")
        found: Exception | None = None
        try:
            raised_at(n, error, lambda f=f: ig.schedule.auto(f))
        except Exception as failure:
            found = failure
        if found is not None:
            met += 1
            assert found is error and not getattr(found, "__notes__", ())
            assert str(f) == before
    assert met >= 3


def test_a_cpu_that_runs_unscheduled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(fusion: ig.Fusion, **_: object) -> None:
        raise ig.ScheduleError("no loops fit")

    f = deep()
    monkeypatch.setattr(importlib.import_module("idgraph.runtime.fusion_call"), "auto", refusing)
    with pytest.warns(UserWarning, match="deep: no schedule was found.*no loops fit"):
        k = ig.compile(f, "cpu")
    x = np.zeros((8, 16), np.float32)
    want = ig.emit(deep(), "numpy").run({"x": x})
    assert np.allclose(k(x), next(iter(want.values())))
    with pytest.raises(ig.ScheduleError, match="no loops fit"):
        ig.compile(f, "cuda")
