"""Index arithmetic belongs to the kernel that gathers or scatters, and its values stay those of the definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.ir.device import TargetName
from idgraph.rewrite.constant_folding import align_indices, narrow_indices
from idgraph.rewrite.rematerialize import unsqueezed
from idgraph.schedule.pointwise_tiling import coarsening_by_work
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.oracle import evaluate
from tests.property.budget import examples

N = 9  # elements of an indexed axis
Build = Callable[[ig.Fusion], ig.Tensor]


def wrapped(i: ig.Tensor) -> ig.Tensor:
    """Negative indices count from the end, as torch writes it."""
    return ig.where(ig.lt(i, 0), i + N, i)


def _x(f: ig.Fusion, *shape: int) -> ig.Tensor:
    return f.input("x", shape=shape)


def _i(f: ig.Fusion, *shape: int, name: str = "i") -> ig.Tensor:
    return f.input(name, shape=shape, dtype="int64")


def rows(f: ig.Fusion) -> ig.Tensor:
    return ig.index_get(_x(f, N, 16), [wrapped(_i(f, 12, 2))]) * 2.0


def sum_of_rows(f: ig.Fusion) -> ig.Tensor:
    return ig.sum(ig.index_get(_x(f, N, 16), [wrapped(_i(f, 12, 2))]), 1)


def difference(f: ig.Fusion) -> ig.Tensor:
    x = _x(f, N, 20)
    return ig.index_get(x, [wrapped(_i(f, 12))]) - ig.index_get(x, [wrapped(_i(f, 12, name="j"))])


def columns(f: ig.Fusion) -> ig.Tensor:
    return ig.index_select(_x(f, 6, N, 8), 1, wrapped(_i(f, 5)))


def two_axes(f: ig.Fusion) -> ig.Tensor:
    x, i, j = _x(f, 3, N, N, 4), _i(f, 7, 1), _i(f, 5, name="j")
    at = ig.cast(ig.remainder(j, N), "int32")
    return ig.index_get(x, [None, wrapped(i), at])


def with_axes(f: ig.Fusion) -> ig.Tensor:
    """Indices with axes of one element behind and in front."""
    x, i, j = _x(f, 3, N, N, 4), _i(f, 7), _i(f, 5, name="j")
    return ig.index_get(x, [None, ig.unsqueeze(wrapped(i), 1), ig.unsqueeze(wrapped(j), 0)])


def words(f: ig.Fusion) -> ig.Tensor:
    i, w = _i(f, 4, 6), f.input("w", shape=(N, 32))
    return ig.embedding(wrapped(i[:, ::2]), w)


def picked(f: ig.Fusion) -> ig.Tensor:
    i = _i(f, 4, 3)
    return ig.index_get(_x(f, N, 10), [wrapped(ig.reshape(ig.permute(i[:, 1:], (1, 0)), 8))])


def written(f: ig.Fusion) -> ig.Tensor:
    x, i, k = _x(f, 4, N, 2, 8), _i(f, 4), f.input("k", shape=(4, 2, 8))
    return ig.index_put(x, [f.iota(4, dtype="int64"), wrapped(i)], k)


def added(f: ig.Fusion) -> ig.Tensor:
    x, i, k = _x(f, 5, N, 8), _i(f, 12), f.input("k", shape=(5, 12, 8))
    return ig.index_put(x, [None, wrapped(i)], k, accumulate=True)


def dot_of_rows(f: ig.Fusion) -> ig.Tensor:
    x = _x(f, N, 64)
    return ig.sum(ig.index_get(x, [wrapped(_i(f, 40))]) * ig.index_get(x, [wrapped(_i(f, 40, name="j"))]), 1)


def norm_of_rows(f: ig.Fusion) -> ig.Tensor:
    x = _x(f, N, 160)
    y = ig.index_get(x, [wrapped(_i(f, 12))]) + ig.index_get(x, [wrapped(_i(f, 12, name="j"))])
    return y * ig.rsqrt(ig.mean(y * y, 1, keepdim=True) + 1e-6)


IN_ROWS = (dot_of_rows, norm_of_rows)
CASES = (*IN_ROWS, rows, sum_of_rows, difference, columns, two_axes, with_axes, words, picked, written, added)


def _inputs(f: ig.Fusion) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for t in f.inputs:
        shape = tuple(int(d.extent) for d in t.axes)
        index = t.dtype == "int64"
        found[t.name] = rng.integers(-N, N, shape) if index else rng.standard_normal(shape).astype(np.float32)
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
@pytest.mark.parametrize("target", ["python", "numpy", "cpu", "cuda"])
def test_one_kernel_with_the_values_of_the_definition(build: Build, target: TargetName) -> None:
    f = ig.Fusion("f")
    name = f.output(build(f)).name
    given = _inputs(f)
    want = evaluate(f, given)[name]
    ig.schedule.auto(f)
    copies = name in ("index_put",) or build in (written, added)  # what is written upon is copied first
    program = ig.emit(f, target=target)
    assert len(program.kernels) == 1 + copies, [k.name for k in program.kernels]
    if target != "cuda":
        np.testing.assert_allclose(program.run(given)[name], want, rtol=1e-6)


@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
def test_aligned_indices_mean_the_same_as_text_and_narrowed_again(build: Build) -> None:
    f = ig.Fusion("f")
    name = f.output(build(f)).name
    given, plain = _inputs(f), [e.op for e in f.exprs]
    want = evaluate(f, given)[name]
    align_indices(f)
    assert any(e.attrs.get("aligned") is True for e in f.exprs)
    np.testing.assert_array_equal(evaluate(f, given)[name], want)
    again = ig.parse(str(f))
    np.testing.assert_array_equal(evaluate(again, given)[name], want)
    narrow_indices(again)
    np.testing.assert_array_equal(evaluate(again, given)[name], want)
    assert len(again.exprs) <= len(plain) + 1  # an unread copy may stay away or be shared


@pytest.mark.parametrize("build", CASES, ids=lambda b: b.__name__)
def test_auto_again_changes_nothing(build: Build) -> None:
    f = ig.Fusion("f")
    f.output(build(f))
    ig.schedule.auto(f)
    once = len(f.exprs)
    ig.schedule.auto(f)
    assert len(f.exprs) == once


@pytest.mark.parametrize("build", IN_ROWS, ids=lambda b: b.__name__)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_rows_at_computed_places_are_read_in_vectors(build: Build, target: TargetName) -> None:
    """The index stands in front of the columns, with its check, whether it is loaded there or computed before."""
    f = ig.Fusion("f")
    f.output(build(f))
    ig.schedule.auto(f)
    program = ig.emit(f, target=target)
    assert target == "cpu" or "vload4" in program.source
    given = _inputs(f)
    report = check_kernel_addresses(program, {}, index_values(program.fusion, {}, given, 0))
    assert report.ok, report
    assert report.exhaustive


def test_an_index_that_is_not_aligned_is_refused() -> None:
    text = """
    fusion f {
      x = input(shape=(9, 16))
      i = input(shape=(4, 3), dtype="int64")
      t = index(x, i, dims=(0,), aligned=true)
      output t
    }
    """
    with pytest.raises(ig.IdGraphError, match=r"index i of shape \(4, 3\) is not aligned"):
        ig.parse(text)


@pytest.mark.parametrize(
    ("side", "loaded", "steps"),
    [(200, False, 4), (200, True, 2), (20, False, 0)],  # places in memory; a picture that needs all threads
)
def test_places_and_weights_of_a_picture_are_computed_once_for_several_channels(
    side: int, loaded: bool, steps: int
) -> None:
    f = ig.Fusion("resized")
    x = f.input("x", shape=(2, 64, side, side))
    n = f.input("at", shape=(2 * side,)) if loaded else ig.cast(f.iota(2 * side), "float32")
    place = ig.maximum((n + 0.5) * 0.5 - 0.5, 0.0)
    low = ig.minimum(ig.cast(place, "int64"), side - 2)
    weight = ig.minimum(ig.maximum(place - ig.cast(low, "float32"), 0.0), 1.0)
    weight = weight * weight * weight * (weight * (weight * 6.0 - 15.0) + 10.0)
    a, b = (ig.index_select(x, 3, ig.maximum(low + k, 0)) for k in (0, 1))
    t = f.output(a + (b - a) * ig.minimum(ig.maximum(weight, 0.0), 1.0))
    u = f.output(ig.exp(f.input("scale", shape=(2, 1, side, 1))) * t)  # one operation is another for each row
    for made, axis in ((t, 2), (u, 1)):
        found = coarsening_by_work(made, made.logical, f.exprs)
        assert found == ((made.logical[axis], steps) if steps else None)
    ig.schedule.auto(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    (threads,) = {d.extent for x in f.outputs for d in x.loop if d.parallel == "threadIdx.x"}
    assert threads == (512 if loaded else 128)  # neighbours find in the cache what one of them has loaded


def test_work_that_differs_from_point_to_point_is_not_shared() -> None:
    f = ig.Fusion("own places")
    x, at = f.input("x", shape=(8, 64, 4096)), f.input("at", shape=(8, 64, 4096))
    for _ in range(15):
        at = at * 0.5 + 0.25
    t = f.output(ig.take_along_dim(x, ig.cast(at, "int64"), 2) + ig.index_select(x, 2, f.iota(4096)))
    assert coarsening_by_work(t, t.logical, f.exprs) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=5), st.data())
def test_axes_that_are_squeezed_come_back(shape: list[int], data: st.DataObject) -> None:
    """The same shape as NumPy's, and no squeeze where each of its axes comes back."""
    ones = [p for p, n in enumerate(shape) if n == 1]
    gone = tuple(sorted(data.draw(st.sets(st.sampled_from(ones))))) if ones else ()
    rank = len(shape) - len(gone) + data.draw(st.integers(0, 3))
    new = tuple(sorted(data.draw(st.permutations(range(rank)))[: rank - (len(shape) - len(gone))]))
    f = ig.Fusion("back")
    x = f.input("x", shape=tuple(shape))
    made = unsqueezed(ig.squeeze(x, gone) if gone else x, new)
    want = np.expand_dims(np.squeeze(np.zeros(shape), gone), new)
    assert tuple(int(d.extent) for d in made.axes) == want.shape
    if want.shape == tuple(shape) and gone == new:
        assert made is x


def test_long_index_arithmetic_keeps_a_kernel_of_its_own() -> None:
    f = ig.Fusion("f")
    x, i = _x(f, N, 64), _i(f, 4096)
    for n in range(12):
        i = ig.remainder(i * 5 + n, N)
    f.output(ig.index_get(x, [i]))
    ig.schedule.auto(f)
    assert len(ig.emit(f, target="cuda").kernels) == 2
