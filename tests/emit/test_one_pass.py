"""Rows that are read once: a variance with its mean, and the first place of an extremum with the extremum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import idgraph as ig
from idgraph.passes.rows import online_reductions as moments
from idgraph.passes.rows import vector_chunks
from idgraph.runtime import Program, emit
from tests.emit.row_cases import least_place, place, variance
from tests.emit.test_rows import row_program
from tests.emit.thread_runner import run_threads

Array = npt.NDArray[Any]
Form = Callable[[ig.Tensor, int], ig.Tensor]


@pytest.fixture(autouse=True)
def rows_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows too are read once; `test_short_rows_are_read_again` has the rule's own number."""
    monkeypatch.setattr(moments, "LEAST", 1)


def scheduled(form: Form, shape: tuple[int, ...], dim: int, dtype: Any = "float32") -> ig.Fusion:
    f = ig.Fusion("rows")
    f.output(form(f.input("x", shape, dtype), dim))
    ig.schedule.auto(f, config=ig.schedule.KernelConfig(persistent=False))
    return f


def found(f: ig.Fusion, x: Array) -> Array:
    """The values of the row kernels, whose threads run one after the other."""
    with np.errstate(all="ignore"):
        return np.asarray(row_program(f).run({"x": x}, poison=True)[f.outputs[0].name])


def sweeps(program: Program) -> int:
    """How often a kernel's loops, or its straight code, read all columns of the input."""
    (kernel,) = program.kernels
    return sum(int(line.split(" pass")[0]) for line in kernel.rows)


SHAPES = [((64, 48), 0), ((3, 200), 1), ((3, 131), 1), ((2, 150, 36), 1), ((5, 5000), 1), ((300, 8), 0), ((6, 1), 1)]


@pytest.mark.sampled
@pytest.mark.parametrize("form", [variance, place, least_place])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_one_pass_gives_the_values(form: Form, shape: tuple[int, ...], dim: int) -> None:
    f = scheduled(form, shape, dim)
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    known: dict[Form, Array] = {variance: x.astype(np.float64).var(dim), place: x.argmax(dim)}
    want: Any = known[form] if form in known else x.argmin(dim)
    np.testing.assert_allclose(found(f, x), want, rtol=1e-6, atol=0)
    if shape[dim] > 1:
        assert sweeps(emit(f, "cuda")) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("mean", [0.0, 3.0, 1e4, -1e6])
@pytest.mark.parametrize("outlier", [None, 0, 17])
def test_a_variance_is_that_of_float64(mean: float, outlier: int | None) -> None:
    """Also where the mean is far above the deviation, or the value that is taken away is far from all others: the error
    is that of the mean in float32, as of two passes."""
    f = scheduled(variance, (300, 16), 0)
    x = np.random.default_rng(2).normal(mean, 1.0, (300, 16)).astype(np.float32)
    if outlier is not None:
        x[outlier] += np.float32(1e5)
    wide = x.astype(np.float64)
    center = wide.sum(0).astype(np.float32) / np.float32(300)
    np.testing.assert_allclose(found(f, x), np.square(wide - center).mean(0), rtol=3e-7)


@pytest.mark.parametrize("value", [0.1, 1e-30, 1e36, -7.0])
def test_equal_values_vary_by_nothing(value: float) -> None:
    f = scheduled(variance, (64, 8), 0)
    assert not found(f, np.full((64, 8), value, np.float32)).any()


def test_a_variance_of_infinities_is_nan() -> None:
    f = scheduled(variance, (96, 8), 0)
    x = np.random.default_rng(3).normal(size=(96, 8)).astype(np.float32)
    x[5, 0], x[0, 1], x[95, 2], x[4, 3], x[0, 4] = np.inf, -np.inf, np.nan, -np.inf, np.nan
    x[6, 3] = np.inf
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found(f, x), x.astype(np.float64).var(0), rtol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(("shape", "dim"), [((96, 8), 0), ((6, 200), 1)])
@pytest.mark.parametrize("first", [np.inf, -np.inf, 2.0])
def test_a_mean_with_its_variance_is_infinite_where_a_value_is(first: float, shape: tuple[int, int], dim: int) -> None:
    """Also where that value is the row's first, which finite rows are summed without."""
    f = ig.Fusion("moments")
    x = f.input("x", shape)
    mean = ig.sum(x, dim, keepdim=True) / float(shape[dim])
    f.output(ig.sum(ig.square(x - mean), dim))
    f.output(mean)
    ig.schedule.auto(f, config=ig.schedule.KernelConfig(persistent=False))
    assert sweeps(emit(f, "cuda")) == 1
    given = np.random.default_rng(6).normal(size=shape).astype(np.float32)
    given[(0, slice(None)) if dim == 0 else (slice(None), 0)] = first
    with np.errstate(all="ignore"):
        made = row_program(f).run({"x": given}, poison=True)
        want = given.astype(np.float64).mean(dim, keepdims=True)
        squares = np.square(given - want).sum(dim)
    np.testing.assert_allclose(np.asarray(made[f.outputs[1].name]), want, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(made[f.outputs[0].name]), squares, rtol=1e-6)


@pytest.mark.parametrize("form", [place, least_place])
@pytest.mark.parametrize(("shape", "dim"), [((150, 8), 0), ((8, 150), 1), ((8, 131), 1)])
def test_the_first_place_of_equal_values_and_of_nan(form: Form, shape: tuple[int, ...], dim: int) -> None:
    f = scheduled(form, shape, dim)
    x = np.random.default_rng(4).integers(0, 3, (8, shape[dim])).astype(np.float32)
    inf, nan, last = np.inf, np.nan, shape[dim] - 1
    x[0] = 0.0
    x[1] = -inf
    x[2] = inf
    x[3, 9], x[3, 40], x[3, 3] = nan, nan, inf
    x[4] = nan
    x[5, last] = nan
    x[6, :] = np.where(np.arange(last + 1) % 2, 0.0, -0.0)
    x[7, 0] = nan
    x = x.T.copy() if dim == 0 else x
    want = (np.argmax if form is place else np.argmin)(x, dim)  # NumPy's first NaN wins too
    np.testing.assert_array_equal(found(f, x), want)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int64"])
@pytest.mark.parametrize("form", [place, least_place])
def test_places_of_other_types(form: Form, dtype: Any) -> None:
    f = scheduled(form if dtype[0] in "bf" else _place_of_integers(form), (150, 8), 0, dtype)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.random.default_rng(5).integers(-5, 5, (150, 8)).astype(kind)
    want = (np.argmax if form is place else np.argmin)(x.astype(np.float64), 0)
    np.testing.assert_array_equal(found(f, x), want)
    assert sweeps(emit(f, "cuda")) == 1


def _place_of_integers(form: Form) -> Form:
    f = ig.amax if form is place else ig.amin

    def made(x: ig.Tensor, dim: int) -> ig.Tensor:
        n = x.shape[dim]
        numbers = ig.reshape(x.fusion.iota(n), [n if p == dim else 1 for p in range(x.ndim)])
        return ig.amin(ig.where(ig.eq(x, f(x, dim, True)), numbers, n), dim)

    return made


def test_a_mean_with_its_variance_is_the_mean() -> None:
    f = ig.Fusion("both")
    x = f.input("x", (300, 16))
    mean = ig.mean(x, 0, keepdim=True)
    f.output(ig.reshape(mean, (16,)))
    f.output(ig.mean(ig.square(x - mean), 0))
    ig.schedule.auto(f)
    given = np.random.default_rng(6).normal(5.0, 2.0, (300, 16)).astype(np.float32)
    got = row_program(f).run({"x": given}, poison=True)
    want = (given.astype(np.float64).mean(0), given.astype(np.float64).var(0))
    for t, w in zip(f.outputs, want, strict=True):
        np.testing.assert_allclose(got[t.name], w, rtol=1e-6)


def _from_the_maximum(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.mean(ig.square(x - ig.amax(x, dim, keepdim=True)), dim)


def _from_another_mean(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.mean(ig.square(x - ig.mean(x * 2.0, dim, keepdim=True)), dim)


def _weighted(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.mean(ig.square(x - ig.mean(x, dim, keepdim=True)) * x, dim)


def _apart(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.mean(ig.abs(x - ig.mean(x, dim, keepdim=True)), dim)


def _values_at_the_maximum(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.amin(ig.where(ig.eq(x, ig.amax(x, dim, True)), x, 9.0), dim)


def _equal_to_another_maximum(x: ig.Tensor, dim: int) -> ig.Tensor:
    return ig.amin(ig.where(ig.eq(x, ig.amax(x * 2.0, dim, True)), 1, 2), dim)


def _places_above_the_other(x: ig.Tensor, dim: int) -> ig.Tensor:
    """Where an element is the maximum its place counts, else 3, which is below most places."""
    n = x.shape[dim]
    numbers = ig.reshape(x.fusion.iota(n), [n if p == dim else 1 for p in range(x.ndim)])
    return ig.amin(ig.where(ig.eq(x, ig.amax(x, dim, True)), numbers, 3), dim)


OTHERS = (
    _from_the_maximum, _from_another_mean, _weighted, _apart, _values_at_the_maximum, _equal_to_another_maximum,
    _places_above_the_other,
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("form", OTHERS)
def test_other_uses_of_a_row_s_number_take_two_passes(form: Form) -> None:
    f = scheduled(form, (300, 16), 0)
    x = np.random.default_rng(7).normal(size=(300, 16)).astype(np.float32)
    np.testing.assert_allclose(found(f, x), emit(f, "numpy").run({"x": x})[f.outputs[0].name], rtol=2e-5, atol=1e-5)
    assert sweeps(emit(f, "cuda")) == 2


@pytest.mark.parametrize(("shape", "times"), [((16, 192, 3136), 2), ((4, 8192, 2048), 1)])
def test_short_rows_are_read_again(shape: tuple[int, ...], times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """192 channels of a pixel on 16 threads: on an H200 two passes were faster than what a row needs once."""
    monkeypatch.undo()
    f = ig.Fusion("pixels")
    f.output(variance(f.input("x", shape, "bfloat16"), 1))
    ig.schedule.auto(f)
    assert sweeps(emit(f, "cuda")) == times


def test_places_of_a_window_are_loads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine loads a column: a chunk has loads enough, so that its text is there once, and not for steps of several."""
    torch: Any = pytest.importorskip("torch")

    def pooled(x: Any, y: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, 3, 1, 1) + y.float().mean((1, 2, 3), keepdim=True)

    def program() -> Program:
        f = ig.from_torch(pooled, (x, y)).fusion
        ig.schedule.auto(f)
        return emit(f, "cuda")

    x, y = torch.randn(2, 4, 61, 28, 28).bfloat16()
    made = program()
    given = {t.name: a.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) for t, a in zip(made.fusion.inputs, (x, y))}
    run = run_threads(made, given)[made.fusion.outputs[0].name]
    np.testing.assert_allclose(run, pooled(x, y).numpy(), rtol=2e-2, atol=2e-2)

    def one_load(_: Iterable[str]) -> dict[str, int]:
        return {"x": 1}

    monkeypatch.setattr(vector_chunks, "Counter", one_load)
    lines, most = (max(str(k).count("\n") for k in p.kernels) for p in (made, program()))
    assert lines * 3 < most, (lines, most)
