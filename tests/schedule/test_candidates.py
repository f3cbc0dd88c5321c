"""The schedules that `auto` chose among: each applies, gives the same values, and costs what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import idgraph as ig
from idgraph.cost import devices
from idgraph.validate import random_inputs
from idgraph.validate.oracle import evaluate


def scaled() -> ig.Fusion:
    f = ig.Fusion("scaled")
    f.output(f.input("x", shape=(64, 48)) * 2.0 + 1.0)
    return f


def rotated() -> ig.Fusion:
    f = ig.Fusion("rotated")
    x = f.input("x", shape=(6, 32))
    f.output(x + ig.cat([x[:, 16:], x[:, :16]], 1))
    return f


def normalized() -> ig.Fusion:
    f = ig.Fusion("normalized")
    x = f.input("x", shape=(8, 96))
    f.output(ig.softmax(x, 1) * 3.0)
    return f


def transposed() -> ig.Fusion:
    f = ig.Fusion("transposed")
    f.output(ig.exp(ig.transpose(f.input("x", shape=(40, 24)), 0, 1)))
    return f


BUILDS = (scaled, rotated, normalized, transposed)


@pytest.mark.parametrize("build", BUILDS)
def test_each_candidate_applies_with_equal_values_at_its_cost(build: Callable[[], ig.Fusion]) -> None:
    s = ig.schedule.auto(build(), device="H100")
    found = s.candidates
    assert [c.chosen for c in found] == [True] + [False] * (len(found) - 1) and len(found) > 1
    assert [c.cost for c in found[1:]] == sorted(c.cost for c in found[1:])
    assert s.runner_up is found[1] and s.candidates is found
    inputs = random_inputs(build())
    texts: set[str] = set()
    for c in found[:4]:
        f = build()
        c.schedule.apply(f)
        program = ig.emit(f, target="cuda")
        assert ig.cost(program, device="H100").total.time_us == pytest.approx(c.cost, rel=1e-3)
        texts.add(program.source)
        (t,) = f.outputs
        got = ig.emit(f, target="numpy").run(inputs)[t.name]
        np.testing.assert_allclose(np.asarray(got), np.asarray(evaluate(f, inputs)[t.name]), rtol=1e-5, atol=1e-6)
        assert str(c.schedule).startswith("schedule ") and " us on H100" in str(c)
    assert len(texts) == min(4, len(found))


@pytest.mark.parametrize("way", ["one-hot", "global"])
def test_a_candidate_takes_gathers_as_they_were_asked_for(way: str) -> None:
    def build() -> ig.Fusion:
        f = ig.Fusion("gathered")
        x, i = f.input("x", shape=(64, 48)), f.input("i", shape=(64, 1), dtype="int64")
        f.output(ig.gather(ig.exp(x), 1, i) * 2.0)
        return f

    first = ig.schedule.auto(build(), gathers=way, device="H100").candidates[0]  # pyright: ignore[reportArgumentType]
    f = build()
    first.schedule.apply(f)
    assert [d.chosen for d in f.decisions] == [way]
    assert ig.cost(ig.emit(f, target="cuda"), device="H100").total.time_us == pytest.approx(first.cost, rel=1e-3)


def test_another_device_has_other_candidates() -> None:
    small = replace(devices["H100"], name="small", block_threads=128)
    wide = {str(c.schedule.config) for c in ig.schedule.auto(scaled(), device="H100").candidates}
    narrow = {str(c.schedule.config) for c in ig.schedule.auto(scaled(), device=small).candidates}
    assert "block=512" in wide and "block=512" not in narrow


def test_what_is_not_known_is_said() -> None:
    f = scaled()
    s = ig.schedule.auto(f)
    f.outputs[0].split(0, 2)
    with pytest.raises(ig.ScheduleError, match="has changed since auto"):
        _ = s.candidates
    f = ig.Fusion("sizes")
    n = f.symbol("n", min=1)
    f.output(f.input("x", shape=(n, 4)) * 2.0)
    with pytest.raises(ig.ScheduleError, match="symbols"):
        _ = ig.schedule.auto(f).runner_up
    chosen = ig.schedule.auto(scaled()).candidates[0]
    with pytest.raises(ig.ScheduleError, match="other outputs"):
        chosen.schedule.apply(rotated())


def parts(device: str) -> int:
    """Blocks of the first stage of a full reduction."""
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("x", shape=(1 << 22,))))
    ig.schedule.auto(f, device=device)
    return next(int(t.shape[0]) for t in f.tensors if t.ndim == 1 and t.definition is not None)


def frames(device: str) -> str:
    """Pictures whose channels go last."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 3, 256, 256), dtype="uint8")
    f.output(ig.cast(ig.permute(x, 0, 2, 3, 1), "float32") * 2.0)
    ig.schedule.auto(f, device=device)
    return str(f)


def test_schedules_differ_with_the_device() -> None:
    assert [parts(d) for d in ("H200", "H100", "A100", "L4")] == [1024, 1024, 512, 256]
    assert frames("L4") != frames("H200") == frames("H100")
