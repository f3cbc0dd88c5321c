"""Rows on the CPU: plain loops over columns that become vector code, with the values of the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.runtime.cpu.namespace import namespace
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import cross_entropy, rows
from tests.emit.test_rows import FORMS, arrays


def test_exp_is_within_a_unit_in_the_last_place() -> None:
    exp32 = namespace()["exp32"]
    x = np.linspace(-87.0, 88.7, 20011).astype(np.float32)
    found, want = np.array([exp32(v) for v in x], np.float64), np.exp(x.astype(np.float64))
    assert np.max(np.abs(found - want) / np.spacing(want.astype(np.float32))) <= 1.0
    assert [exp32(np.float32(v)) for v in (np.inf, -np.inf, 0.0, 200.0, -200.0)] == [np.inf, 0.0, 1.0, np.inf, 0.0]
    assert np.isnan(exp32(np.float32(np.nan)))


@pytest.mark.parametrize("form", ["log_softmax", "two sums", "amin"])
def test_forms(form: str) -> None:
    f = rows(FORMS[form], (5, 77))
    ig.schedule.auto(f)
    report = ig.validate(f, target="cpu")
    assert report.ok, report


@pytest.mark.parametrize("count", [9, 1 << 17])
@pytest.mark.parametrize("op", [ig.amax, ig.amin])
def test_an_extremum_of_everything(op: Callable[..., Any], count: int) -> None:
    f = rows(op, (count,))
    ig.schedule.auto(f)
    program = ig.emit(f, target="cpu")
    for x in (np.arange(1, count + 1, dtype=np.float32), np.arange(-count, 0, dtype=np.float32)):
        assert program.run({"x": x})[f.outputs[0].name] == (x.max() if op is ig.amax else x.min())


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_cross_entropy(dtype: str) -> None:
    f = cross_entropy(6, 130, "mean", gradient=True, dtype=dtype)
    ig.schedule.auto(f)
    assert ig.validate(f, target="cpu").ok


def test_infinities_and_nan() -> None:
    f = rows(FORMS["softmax"], (5, 37))
    x: Any = arrays(f)["x"]
    x[0, :20], x[1, :], x[2, 11], x[3, 30] = -np.inf, -np.inf, np.inf, np.nan
    x[4] = -np.abs(x[4])
    ig.schedule.auto(f)
    with np.errstate(all="ignore"):
        found, want = ig.emit(f, target="cpu").run({"x": x}), evaluate(f, {"x": x})
    name = f.outputs[0].name
    np.testing.assert_allclose(found[name], want[name], rtol=3e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["softmax", "amin", "normalised"])
@pytest.mark.parametrize(
    "config",
    [ig.schedule.KernelConfig(persistent=False, items_per_thread=64), ig.schedule.KernelConfig(persistent=True)],
)
def test_configs(config: ig.schedule.KernelConfig, form: str) -> None:
    f = rows(FORMS[form], (6, 300))
    ig.schedule.auto(f, config=config)
    program, x = ig.emit(f, target="python"), arrays(f)
    assert "kept" not in program.source  # a form for compilers: plain Python reads like the mathematics
    made = ig.emit(f, target="cpu")
    assert ("kept" in made.source) == (form == "softmax" and config.persistent is True)
    name, want = f.outputs[0].name, evaluate(f, x)
    np.testing.assert_allclose(made.run(x)[name], want[f.outputs[0].name], rtol=4e-6, atol=1e-6)
