"""Zeros with a sign, infinities, NaN, subnormals, wrapped integers and overflow in halves: as torch has them.

What differs stands on the page `numbers` of the guides, and here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

import idgraph as ig
from idgraph.codegen.ops import compiled, scalars
from idgraph.runtime import emit
from idgraph.runtime.program import Target

Array = npt.NDArray[Any]
TARGETS: tuple[Target, ...] = ("python", "numpy")  # what numba compiles is compared with these in test_numbers
INF = float("inf")
POINTS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 1e30, 3e38, -3e38, INF, -INF, float("nan"), 7.0, -7.0]
TIES = {"maximum", "minimum"}  # torch's sign of the larger of 0.0 and -0.0 is that of its vector instruction


def array(t: torch.Tensor) -> Array:
    return t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if t.dtype == torch.bfloat16 else t.numpy()


def equal(got: Any, wanted: torch.Tensor, *, signs: bool = True) -> npt.NDArray[np.bool_]:
    """Equal numbers, NaN where NaN is, zeros of one sign."""
    a, b = np.asarray(got).astype(np.float64), array(wanted).astype(np.float64)
    both = np.isnan(a) & np.isnan(b)
    return both | ((a == b) & ((np.signbit(a) == np.signbit(b)) | (not signs)))


def run(build: Callable[..., ig.Tensor], inputs: list[torch.Tensor], target: Target) -> Any:
    f = ig.Fusion("f")
    names = [f"x{k}" for k in range(len(inputs))]
    given = [f.input(n, tuple(t.shape), str(t.dtype)[6:]) for n, t in zip(names, inputs, strict=True)]
    f.output(build(*given))
    (out,) = emit(f, target).run({n: array(t) for n, t in zip(names, inputs, strict=True)}).values()
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("target", TARGETS)
def test_operations_at_special_points(target: Target, dtype: torch.dtype) -> None:
    x = torch.tensor(POINTS, dtype=torch.float64).to(dtype)
    a, b = (t.contiguous() for t in torch.meshgrid(x, x, indexing="ij"))
    for name in ("neg", "abs", "relu", "square", "floor", "ceil", "trunc", "round", "sign", "reciprocal"):
        assert equal(run(getattr(ig, name), [x], target), getattr(torch, name)(x)).all(), name
    for name in ("add", "sub", "mul", "div", "floor_divide", "maximum", "minimum"):
        wanted = getattr(torch, name)(a, b)
        assert equal(run(getattr(ig, name), [a, b], target), wanted, signs=name not in TIES).all(), name


@pytest.mark.parametrize("target", TARGETS)
def test_remainders(target: Target) -> None:
    """Of float64, which torch computes as C does; its vectors of smaller floats give NaN for 1e30 % 0.5."""
    x = torch.tensor(POINTS, dtype=torch.float64)
    a, b = (t.contiguous() for t in torch.meshgrid(x, x, indexing="ij"))
    for name in ("remainder", "fmod"):
        assert equal(run(getattr(ig, name), [a, b], target), getattr(torch, name)(a, b)).all(), name


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("target", TARGETS)
def test_integers_at_their_ends(target: Target, dtype: torch.dtype) -> None:
    ends = torch.iinfo(dtype)
    x = torch.tensor([0, 1, 2, 7, ends.max, ends.max - 1, ends.min, max(ends.min, -3)], dtype=dtype)
    a, b = torch.meshgrid(x, x, indexing="ij")
    for name in ("add", "sub", "mul", "maximum", "minimum"):
        assert equal(run(getattr(ig, name), [a.contiguous(), b.contiguous()], target), getattr(torch, name)(a, b)).all()
    a, b = a[b != 0], b[b != 0]
    for name in ("floor_divide", "remainder", "fmod"):
        assert equal(run(getattr(ig, name), [a, b], target), getattr(torch, name)(a, b)).all(), name


@pytest.mark.parametrize("target", TARGETS)
def test_means_of_halves_do_not_overflow(target: Target) -> None:
    for dtype, value in ((torch.float16, 100.0), (torch.float16, 65504.0), (torch.bfloat16, 3e38)):
        x = torch.full((2, 1000), value, dtype=dtype)
        got = run(partial(ig.mean, dim=1), [x], target)
        assert equal(got, torch.mean(x, dim=1)).all() and str(got.dtype) == str(dtype)[6:]


@pytest.mark.parametrize("target", TARGETS)
def test_empty_reductions(target: Target) -> None:
    x = torch.zeros((3, 0), dtype=torch.float32)
    for name in ("sum", "mean", "prod", "any", "all"):
        assert equal(run(partial(getattr(ig, name), dim=1), [x], target), getattr(torch, name)(x, dim=1)).all()
    for name in ("amax", "amin"):
        with pytest.raises(ig.OperationError, match="no element"):
            run(partial(getattr(ig, name), dim=1), [x], target)
        with pytest.raises(IndexError):
            getattr(torch, name)(x, dim=1)


def test_compiled_quotients_have_the_sign_of_the_quotient() -> None:
    """The function that numba compiles, as Python runs it."""
    names = {"fmod": scalars.fmod, "floor": scalars.floor}
    divide = compiled.rebound(names, lambda f: f)["floor_divide"]
    for a in (0.0, -0.0, 0.25, -0.25, 7.0, -7.0):
        for b in (1.0, -1.0, 3.0, -3.0, INF, -INF):
            wanted = torch.floor_divide(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
            got = divide(a, b)
            assert equal(got, wanted).all() and equal(scalars.floor_divide(a, b), wanted).all(), (a, b, got)
