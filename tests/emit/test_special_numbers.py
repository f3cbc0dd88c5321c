"""Zeros with a sign, infinities, NaN, subnormals, wrapped integers and overflow in halves: as torch has them.

Differences stand on the page `numbers` of the guides, and in `special`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import idgraph as ig
from idgraph.codegen.runtime_lib import numba_ops as compiled
from idgraph.codegen.runtime_lib import python_ops as scalars
from idgraph.validate.oracle import evaluate
from tests.emit import special
from tests.emit.special import BUILDS, INF, wrong
from tests.emit.turns import simulated


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("target", ["python", "numpy"])
def test_as_torch_has_them(target: str, build: str) -> None:
    assert BUILDS[build]().differing(target) == {}


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_compiled_as_torch_has_them(build: str) -> None:
    assert BUILDS[build]().differing("cpu") == {}


def test_simulated_as_torch_has_them() -> None:
    """The simulator must be chosen before numba is imported."""
    pytest.importorskip("numba_cuda")
    done = simulated("-m", "tests.emit.special", "cuda")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {name: {} for name in BUILDS}


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = torch.tensor([0.0, 1.0])
    assert wrong(np.array([-0.0, 1.0], np.float32), zeros, signs=True) and not wrong(
        np.array([-0.0, 1.0], np.float32), zeros, signs=False
    )
    assert wrong(np.array([0.0, 1.0], np.float64), zeros, signs=True)
    assert wrong(np.array([0.0, float("nan")], np.float32), zeros, signs=True)
    whole = torch.tensor([2**62 + 1])
    assert wrong(np.array([2**62], np.int64), whole, signs=True)
    made = special.Build()
    x = torch.tensor([1.0])
    made.says("y", ig.neg(made.input("x", x)), x)
    assert made.differing("numpy") == {"y": "at [0]: -1.0, not 1.0"}


def test_the_largest_of_nothing_is_refused() -> None:
    for name in ("amax", "amin"):
        x = ig.Fusion("f").input("x", (3, 0))
        with pytest.raises(ig.OperationError, match="no element"):
            getattr(ig, name)(x, dim=1)
        with pytest.raises(IndexError):
            getattr(torch, name)(torch.zeros((3, 0)), dim=1)


def test_compiled_remainders_of_the_least_integer() -> None:
    """The function that numba compiles, of integers that wrap as compiled ones do."""
    fmod = compiled.rebound({}, lambda f: f)["int_fmod"]
    ends = [np.int64(x) for x in (-(2**63), 2**63 - 1, 0, 1, -1, 7, -3)]
    with np.errstate(all="ignore"):
        for a in ends:
            for b in ends:
                wanted = int(np.fmod(a, b)) if b else 0
                assert int(fmod(a, b)) == wanted == scalars.int_fmod(int(a), int(b)), (a, b)


def test_compiled_quotients_have_the_sign_of_the_quotient() -> None:
    """The function that numba compiles, as Python runs it."""
    names = {"fmod": scalars.fmod, "floor": scalars.floor}
    divide = compiled.rebound(names, lambda f: f)["floor_divide"]
    for a in (0.0, -0.0, 0.25, -0.25, 7.0, -7.0):
        for b in (1.0, -1.0, 3.0, -3.0, INF, -INF):
            wanted = torch.floor_divide(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
            for got in (divide(a, b), scalars.floor_divide(a, b)):
                assert wrong(np.float64(got), wanted, signs=True) == "", (a, b, got)


LEAST = {"int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63)}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_quotients_of_the_least_integer_wrap(target: Any, dtype: Any) -> None:
    """By -1 the quotient is past the largest integer: a trap on some machines, 0 in some compilers."""
    a = torch.tensor([LEAST[dtype], LEAST[dtype], -LEAST[dtype] - 1, -7, 7], dtype=getattr(torch, dtype))
    b = torch.tensor([-1, 1, -1, -1, -2], dtype=a.dtype)
    made = special.Build()
    x, y = made.input("x", a), made.input("y", b)
    made.says("quotient", ig.floor_divide(x, y), torch.floor_divide(a, b))
    made.says("by one number", ig.floor_divide(x, -1), torch.floor_divide(a, -1))
    made.says("remainder", ig.remainder(x, y), torch.remainder(a, b))
    made.says("rest", ig.fmod(x, y), torch.fmod(a, b))
    assert made.differing(target) == {}


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_remainders_and_quotients_of_and_by_infinity(target: Any) -> None:
    points = torch.tensor([0.0, -0.0, 1.5, -1.5, INF, -INF, float("nan"), 1e-30, -1e-30])
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(points, points, indexing="ij"))
    made = special.Build()
    x, y = made.input("x", a), made.input("y", b)
    whole = (a / b).abs() < 2**24  # torch loses the remainder of a larger quotient: the page of numbers
    keep = whole | (a / b).isnan() | (a / b).isinf() & ((b == 0) | a.isinf())
    for name in ("remainder", "fmod"):
        wanted = getattr(torch, name)(a, b)
        made.says(
            name, ig.where(made.input(f"keep_{name}", keep), getattr(ig, name)(x, y), 0.0), wanted.where(keep, 0.0)
        )
    assert made.differing(target) == {}


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_powers_of_integers_wrap_at_any_exponent(target: Any) -> None:
    bases = torch.tensor([0, 1, -1, 2, -2, 3, 10, 2**62, -(2**63), 2**63 - 1])
    exponents = torch.tensor([0, 1, 2, 3, 62, 63, 64, 65, 2**40 + 1, 2**62])
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(bases, exponents, indexing="ij"))
    made = special.Build()
    made.says("power", ig.pow(made.input("x", a), made.input("y", b)), torch.pow(a, b))
    assert made.differing(target) == {}


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_shifts_count_modulo_the_bits_of_int64(target: Any) -> None:
    """By 33 to 63 as by 0 to 31; torch leaves a count of 64 or more, or below 0, to the machine."""
    values, counts = torch.tensor([1, -1, 3, -(2**63), 2**62 + 5]), torch.tensor([0, 1, 31, 32, 33, 40, 62, 63])
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(values, counts, indexing="ij"))
    made = special.Build()
    x, y = made.input("x", a), made.input("y", b)
    made.says("left", ig.shift_left(x, y), torch.bitwise_left_shift(a, b))
    made.says("right", ig.shift_right(x, y), torch.bitwise_right_shift(a, b))
    assert made.differing(target) == {}


def test_a_power_of_a_half_is_cs_in_every_evaluation() -> None:
    """NumPy takes the root where one exponent is 0.5: NaN of -infinity, and -0.0 itself."""
    f = ig.Fusion("half")
    x = f.input("x", shape=(3,), dtype="float64")
    y = f.output(ig.pow(x, 0.5))
    given = {"x": np.array([-np.inf, -0.0, 4.0])}
    for values in (evaluate(f, given), *(ig.emit(f, target=t).run(given) for t in ("python", "numpy", "cpu"))):
        assert np.asarray(values[y.name]).tolist() == [np.inf, 0.0, 2.0]
        assert not np.signbit(values[y.name]).any()


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_quotients_of_float32_have_the_steps_of_float32(target: Any) -> None:
    """Of large quotients one step in more places is another integer: 1e10 / -88 is -113636360 to torch."""
    r = np.random.default_rng(1126)
    x, y = (r.normal(size=400) * 10.0 ** r.uniform(-2, top, 400) for top in (9, 3))
    a, b = (
        np.concatenate([first, v]).astype(np.float32) for first, v in (([1e10, 530595.8], x), ([-88.0, 0.11439345], y))
    )
    f = ig.Fusion("quotients")
    f.output(ig.floor_divide(f.input("a", (402,)), f.input("b", (402,))))
    (got,) = ig.emit(f, target).run({"a": a, "b": b}).values()
    wanted = torch.stack([torch.floor_divide(*pair) for pair in zip(torch.tensor(a), torch.tensor(b), strict=True)])
    assert np.array_equal(got, wanted.numpy())
