"""Hand-written schedules and programs of the kinds that nvFuser's tests of 2024 to 2026 try, on inputs of our own.

A case builds and schedules a fusion, says what its loops or memory must be, and gives the values as NumPy has them.
They are compared at all points: of the plain loops, of whole arrays, and of each thread of the CUDA text.

Long: a list of cases, each short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import as_expr
from idgraph.ir import TensorExpr
from tests.emit.cuda_interpreter import interpret

Array = Any
Values = Callable[[Mapping[str, Array]], Array]
Build = Callable[[ig.Fusion], Values]


@dataclass(frozen=True, slots=True)
class Case:
    """``sizes``: values of symbols, one run each."""

    build: Build
    sizes: tuple[Mapping[str, int], ...]


CASES: dict[str, Case] = {}


def case(**symbols: tuple[int, ...]) -> Callable[[Build], Build]:
    """Enter a case under its name, for each of the values of its symbols."""
    count = max((len(v) for v in symbols.values()), default=1)
    sizes = tuple({n: v[k % len(v)] for n, v in symbols.items()} for k in range(count))

    def enter(build: Build) -> Build:
        assert build.__name__ not in CASES, "two cases of one name"
        CASES[build.__name__] = Case(build, sizes)
        return build

    return enter


def loops(t: ig.Tensor) -> list[str]:
    """The extents of a tensor's loops."""
    return [str(d.extent) for d in t.loop]


def definition(t: ig.Tensor) -> TensorExpr:
    assert t.definition is not None
    return t.definition


def outputs(f: ig.Fusion, *tensors: ig.Tensor) -> tuple[ig.Tensor, ...]:
    """The tensors, which are outputs now."""
    f.output(*tensors)
    return tensors


def one_nest(f: ig.Fusion, t: ig.Tensor, *ways: str) -> None:
    """All tensors get the loops of ``t`` and are inlined; the outermost loops of outputs get ``ways``."""
    assert ig.schedule.like(f, t) == ()
    ig.schedule.inline_most(f)
    for u in f.outputs:
        for p, way in enumerate(ways):
            u.parallelize(p, way)


def arrays(f: ig.Fusion, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs: floats in eighths, whose sums are exact; integers that name rows; offsets of rows, where so called."""
    rng, found = np.random.default_rng(len(f.exprs)), dict[str, Array]()
    for t in f.inputs:
        shape = tuple(int(as_expr(n).evaluate(sizes)) for n in t.shape)
        if t.name.startswith("at"):
            found[t.name] = rng.permutation(int(t.name[2:]))[: int(np.prod(shape))].reshape(shape)
        else:
            found[t.name] = (rng.integers(-16, 17, shape) / 8).astype(np.float32)
    return found


@pytest.mark.parametrize("target", ["python", "numpy", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, target: Any) -> None:
    known = CASES[name]
    f = ig.Fusion(name)
    expected = known.build(f)
    f.verify()
    program = ig.emit(f, target)
    for sizes in known.sizes:
        given = arrays(f, sizes)
        found = interpret(program, given) if target == "cuda" else program.run(given)
        wanted: Sequence[Array] = expected(given) if len(f.outputs) > 1 else [expected(given)]
        for t, want in zip(f.outputs, wanted, strict=True):
            assert np.shape(found[t.name]) == np.shape(want)
            np.testing.assert_allclose(np.asarray(found[t.name]), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_addresses(name: str) -> None:
    f = ig.Fusion(name)
    CASES[name].build(f)
    for sizes in CASES[name].sizes:
        report = ig.validate(f, target="python", symbols=sizes or None)
        assert report.ok, report


# ---- `like` through reshapes behind ---------------------------------------------------------------------------------
@case()
def a_merge_is_replayed_as_a_split(f: ig.Fusion) -> Values:
    p = ig.exp(f.input("x", (2, 3, 4)))
    a, c = outputs(f, p + 1.0, ig.reshape(p, 6, 4) * 2.0)
    a.merge(1).split(1, 5)
    one_nest(f, a)
    assert loops(c) == loops(p) == ["2", "3", "5"] and p.inline_position == 3
    return lambda v: (np.exp(v["x"]) + 1, 2 * np.exp(v["x"]).reshape(6, 4))


@case()
def a_divisible_split_is_replayed_as_a_merge(f: ig.Fusion) -> Values:
    p = ig.exp(f.input("x", (24,)))
    a, c = outputs(f, p + 1.0, ig.reshape(p, 4, 6) - 2.0)
    a.split(0, 8)
    one_nest(f, a, "blockIdx.x", "threadIdx.x")
    assert loops(c) == loops(p) == ["3", "8"] and p.inline_position == 2
    return lambda v: (np.exp(v["x"]) + 1, np.exp(v["x"]).reshape(4, 6) - 2)


@case()
def a_split_with_a_rest_behind_a_split(f: ig.Fusion) -> Values:
    p = ig.exp(f.input("x", (24,)))
    a, c = outputs(f, p + 1.0, ig.reshape(ig.reshape(p, 2, 12), 2, 3, 4))
    a.split(0, 7)
    one_nest(f, a, "blockIdx.x", "threadIdx.x")
    assert loops(c) == loops(p) == ["4", "7"]
    return lambda v: (np.exp(v["x"]) + 1, np.exp(v["x"]).reshape(2, 3, 4))


@case()
def where_a_part_is_reshaped_loops_do_not_follow(f: ig.Fusion) -> Values:
    """Loops of 30 elements are not those of the 20 that are left: the place is named, or the loops are whole."""
    p = ig.exp(f.input("x", (5, 6)))
    a, c = outputs(f, p + 1.0, ig.reshape(p[:, :4], 20) * 2.0)
    a.merge(0).split(0, 7)
    places = ig.schedule.like(f, a)
    assert places or loops(c) == loops(a)
    ig.schedule.inline_most(f)
    return lambda v: (np.exp(v["x"]) + 1, 2 * np.exp(v["x"])[:, :4].reshape(20))


@case(n=(1, 3, 8))
def a_symbolic_merge_is_replayed(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    p = ig.exp(f.input("x", (n, 4)))
    a, c = outputs(f, p + 1.0, ig.reshape(p, n * 4) * 2.0)
    a.merge(0).split(0, 3)
    one_nest(f, a, "blockIdx.x", "threadIdx.x")
    assert len(loops(c)) == 2 and p.inline_position == 2
    return lambda v: (np.exp(v["x"]) + 1, 2 * np.exp(v["x"]).reshape(-1))


# ---- a producer under a broadcast loop of its reader ----------------------------------------------------------------
@case()
def a_row_under_the_loop_over_rows(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (6,)))
    y = f.output(ig.unsqueeze(t, 0) + f.input("b", (4, 6)))
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    t.inline(1)  # `inline_most` computes no element twice
    assert loops(t) == ["1", "6"] and t.inline_position == 2 and not ig.IdModel(f).storage(t).in_memory
    return lambda v: np.exp(v["x"]) + v["b"]


@case()
def a_row_under_merged_loops(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (6,)))
    y = f.output(ig.unsqueeze(t, 0) + f.input("b", (4, 6)))
    y.merge(0).split(0, 5)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    read = ig.IdModel(f).access(definition(t), f["x"])
    assert [int(read.address.evaluate({"i0": k // 5, "i1": k % 5})) for k in range(24)] == [k % 6 for k in range(24)]
    return lambda v: np.exp(v["x"]) + v["b"]


@case(n=(1, 5), m=(4, 3))
def a_column_of_symbolic_size(f: ig.Fusion) -> Values:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    t = ig.exp(f.input("x", (n,)))
    y = f.output(ig.unsqueeze(t, 1) * f.input("b", (n, m)))
    y.merge(0).split(0, 4)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    assert not ig.IdModel(f).storage(t).in_memory
    return lambda v: np.exp(v["x"])[:, None] * v["b"]


# ---- two broadcasts merged with each other --------------------------------------------------------------------------
@case()
def two_new_axes_merged(f: ig.Fusion) -> Values:
    u = ig.unsqueeze(ig.exp(f.input("x", (5,))), (0, 1))
    y = f.output(u + f.input("b", (2, 3, 5)))
    y.merge(0).merge(0).split(0, 4)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.exp(v["x"]) + v["b"]


@case()
def two_new_axes_merged_by_hand(f: ig.Fusion) -> Values:
    u = ig.unsqueeze(ig.exp(f.input("x", (5,))), (0, 2))
    y = f.output(u * f.input("b", (2, 5, 3)))
    u.merge(0).merge(0)
    y.merge(0).merge(0)
    u.inline(1)
    return lambda v: np.exp(v["x"])[None, :, None] * v["b"]


@case()
def two_new_axes_of_an_output_merged(f: ig.Fusion) -> Values:
    y = f.output(ig.unsqueeze(ig.exp(f.input("x", (5,))), (1, 2)))
    y.merge(1).merge(0).split(0, 2)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    assert loops(y) == ["3", "2"]
    return lambda v: np.exp(v["x"])[:, None, None]


# ---- implicit broadcasts scheduled by hand --------------------------------------------------------------------------
@case()
def an_axis_of_one_meets_a_longer_one(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (1, 6)))
    y = f.output(t + f.input("b", (4, 6)))
    for u in (t, y):
        u.merge(0).split(0, 4).parallelize(1, "threadIdx.x")
    t.set_memory("shared")
    return lambda v: np.exp(v["x"]) + v["b"]


@case()
def a_column_of_one_in_shared_memory(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (6, 1)))
    y = f.output(t * f.input("b", (6, 4)))
    t.parallelize(0, "threadIdx.x").set_memory("shared")
    y.parallelize(0, "threadIdx.x")
    return lambda v: np.exp(v["x"]) * v["b"]


@case()
def both_operands_are_broadcast(f: ig.Fusion) -> Values:
    a, b = ig.exp(f.input("x", (1, 6))), ig.sin(f.input("b", (4, 1)))
    y = f.output(a + b)
    y.merge(0).split(0, 8)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.exp(v["x"]) + np.sin(v["b"])


# ---- shared between two nests of a block ----------------------------------------------------------------------------
@case()
def shared_between_transposed_threads(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 8)))
    u = t.T
    y = f.output(u + 1.0)
    t.parallelize(1, "threadIdx.x").set_memory("shared")
    for w in (u, y):
        w.parallelize(0, "threadIdx.x")
    u.inline(2)
    assert len(ig.emit(f, "cuda").kernels) == 1
    return lambda v: np.exp(v["x"]).T + 1


@case()
def shared_between_other_splits(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (24,)))
    u = ig.roll(t, 5, 0)
    y = f.output(u * 2.0)
    t.split(0, 8).parallelize(1, "threadIdx.x").set_memory("shared")
    for w in (u, y):
        w.split(0, 5).parallelize(1, "threadIdx.x")
    u.inline(2)
    assert len(ig.emit(f, "cuda").kernels) == 1
    return lambda v: 2 * np.roll(np.exp(v["x"]), 5)


@case()
def shared_between_a_sum_and_its_reader(f: ig.Fusion) -> Values:
    t = ig.sum(f.input("x", (7, 5)), 1)
    u = ig.flip(t, 0)
    y = f.output(u - 1.0)
    t.parallelize(0, "threadIdx.x").set_memory("shared")
    for w in (u, y):
        w.parallelize(0, "threadIdx.x")
    u.inline(1)
    assert len(ig.emit(f, "cuda").kernels) == 1
    return lambda v: v["x"].sum(1)[::-1] - 1


# ---- symbols united by an elementwise operation ---------------------------------------------------------------------
@case(n=(1, 4, 9))
def two_rows_are_one_size(f: ig.Fusion) -> Values:
    n, m = f.symbol("n", min=1), f.symbol("m", min=1)
    x, b = f.input("x", (n, 4)), f.input("b", (m, 4))
    y = f.output(x + b)
    assert x.shape == b.shape and list(f.symbols) == ["n"]
    y.merge(0).split(0, 8)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    assert "m" not in str(ig.IdModel(f).write(definition(y)).predicate)
    return lambda v: v["x"] + v["b"]


@case(n=(2, 5), k=(2, 5))
def a_product_of_sizes_is_another(f: ig.Fusion) -> Values:
    n, k = f.symbol("n", min=1), f.symbol("k", min=1)
    flat = ig.reshape(f.input("x", (n, 3)), n * 3)
    f.output(flat * f.input("b", (3 * n,)), ig.exp(f.input("c", (k,))) + f.input("d", (n,)))
    assert len(f.symbols) == 1
    return lambda v: (v["x"].reshape(-1) * v["b"], np.exp(v["c"]) + v["d"])


@case()
def a_size_is_a_number(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    x = ig.exp(f.input("x", (n, 2)))
    y = f.output(x - f.input("b", (6, 2)))
    assert not f.symbols and x.shape == (6, 2)
    y.merge(0).split(0, 4).parallelize(1, "vectorize")
    x.merge(0).split(0, 4)
    assert "True" in str(ig.IdModel(f).write(definition(y)).predicate)
    return lambda v: np.exp(v["x"]) - v["b"]


# ---- sizes that are more than a symbol ------------------------------------------------------------------------------
@case(n=(1, 2, 5))
def four_times_a_symbol_in_vectors(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    y = f.output(ig.exp(f.input("x", (n * 4,))))
    y.split(0, 4).parallelize(1, "vectorize")
    assert "True" in str(ig.IdModel(f).write(definition(y)).predicate)
    return lambda v: np.exp(v["x"])


@case(n=(1, 2, 5))
def six_times_a_symbol_apart(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    y = f.output(ig.sum(ig.reshape(f.input("x", (6 * n,)), 3, 2 * n), 0))
    y.split(0, 2)
    return lambda v: v["x"].reshape(3, -1).sum(0)


@case(n=(1, 2, 6))
def one_more_than_a_symbol(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    x = f.input("x", (n + 1,))
    y = f.output(x[1:] - x[:-1])
    y.split(0, 4)
    ig.schedule.like(f, y)
    return lambda v: np.diff(v["x"])


# ---- strides of shared and local memory -----------------------------------------------------------------------------
def tile(f: ig.Fusion, strides: list[int]) -> ig.Tensor:
    t = ig.exp(f.input("x", (8, 8)))
    u = t.T
    y = f.output(u + 1.0)
    t.parallelize(1, "threadIdx.x").set_memory("shared").set_allocation(t.logical, strides=strides)
    for w in (u, y):
        w.parallelize(1, "threadIdx.x")
    u.inline(2)
    return t


@case()
def a_padded_tile(f: ig.Fusion) -> Values:
    t = tile(f, [9, 1])
    assert int(ig.IdModel(f).write(definition(t)).buffer.size) == 8 * 9 - 1
    return lambda v: np.exp(v["x"]).T + 1


@case()
def a_tile_by_columns_with_gaps(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (3, 8)))
    u = ig.flip(t, 1)
    y = f.output(u * 2.0)
    t.parallelize(1, "threadIdx.x").set_memory("shared").set_allocation(t.logical[::-1], strides=[5, 1])
    for w in (u, y):
        w.parallelize(1, "threadIdx.x")
    u.inline(2)
    return lambda v: 2 * np.exp(v["x"])[:, ::-1]


@case()
def local_rows_with_gaps(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (5, 3, 4)))
    f.output(ig.flip(t, (1, 2)) * 2.0)
    t.inline(1).set_memory("local").set_allocation(t.logical, strides=[40, 7, 1])
    w = ig.IdModel(f).write(definition(t))
    assert int(w.buffer.size) == 1 + 2 * 7 + 3
    return lambda v: 2 * np.exp(v["x"])[:, ::-1, ::-1]


# ---- views against demanded layouts, of computed results and of joined slices ---------------------------------------
VIEWS: dict[str, tuple[Callable[[ig.Fusion], ig.Tensor], Callable[[Array], Array], bool]] = {}


def view(shared: bool, compute: Callable[[Array], Array]) -> Callable[[Callable[[ig.Fusion], ig.Tensor]], None]:
    """Enter a program of `x`, 6 rows of 8; ``shared``: the output is memory of an input or of another output."""

    def enter(build: Callable[[ig.Fusion], ig.Tensor]) -> None:
        VIEWS[build.__name__] = (build, compute, shared)

    return enter


def given(f: ig.Fusion) -> ig.Tensor:
    return f.input("x", (6, 8))


@view(False, lambda x: x.T)
def a_transpose_demanded_by_rows(f: ig.Fusion) -> ig.Tensor:
    y = f.output(given(f).T)
    return y.set_allocation(y.logical)


@view(True, lambda x: x.T)
def a_transpose_demanded_as_it_lies(f: ig.Fusion) -> ig.Tensor:
    y = f.output(given(f).T)
    return y.set_allocation(y.logical[::-1])


@view(False, lambda x: x[1:4])
def rows_demanded_with_gaps(f: ig.Fusion) -> ig.Tensor:
    y = f.output(given(f)[1:4])
    return y.set_allocation(y.logical, strides=[11, 1])


@view(False, lambda x: x.reshape(2, 24))
def a_reshape_demanded_by_columns(f: ig.Fusion) -> ig.Tensor:
    y = f.output(ig.reshape(given(f), 2, 24))
    return y.set_allocation(y.logical[::-1])


@view(True, lambda x: np.exp(x)[:, 2:6].T)
def columns_of_what_is_computed(f: ig.Fusion) -> ig.Tensor:
    t = f.output(ig.exp(given(f)))
    return f.output(t[:, 2:6].T)


@view(True, lambda x: np.exp(x).reshape(2, 3, 8)[1])
def a_batch_of_what_is_computed(f: ig.Fusion) -> ig.Tensor:
    t = f.output(ig.exp(given(f)))
    return f.output(ig.select(ig.reshape(t, 2, 3, 8), 0, 1))


@view(True, lambda x: np.exp(x).T[1::2])
def every_other_column_of_what_lies_by_columns(f: ig.Fusion) -> ig.Tensor:
    t = f.output(ig.exp(given(f)))
    t.set_allocation(t.logical[::-1])
    return f.output(t.T[1::2])


@view(True, lambda x: x[:, 1:7])
def adjacent_columns_joined(f: ig.Fusion) -> ig.Tensor:
    x = given(f)
    return f.output(ig.cat([x[:, 1:3], x[:, 3:4], x[:, 4:7]], 1))


@view(True, lambda x: np.exp(x)[1:5])
def adjacent_rows_of_what_is_computed_joined(f: ig.Fusion) -> ig.Tensor:
    t = f.output(ig.exp(given(f)))
    return f.output(ig.cat([t[1:3], t[3:5]], 0))


@view(False, lambda x: np.concatenate([x[3:5], x[1:3]]))
def rows_joined_in_another_order(f: ig.Fusion) -> ig.Tensor:
    x = given(f)
    return f.output(ig.cat([x[3:5], x[1:3]], 0))


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_where_the_layout_is_theirs(name: str, target: Any) -> None:
    build, compute, shared = VIEWS[name]
    f = ig.Fusion(name)
    y = build(f)
    x = (np.random.default_rng(0).integers(-16, 17, (6, 8)) / 8).astype(np.float32)
    p = ig.emit(f, target, views=True)
    found = p.run({"x": x})
    np.testing.assert_allclose(np.asarray(found[y.name]), compute(x), rtol=1e-6)
    others = [x, *(np.asarray(v) for n, v in found.items() if n != y.name)]
    assert any(np.shares_memory(np.asarray(found[y.name]), o) for o in others) == shared == (y.name in p.views)
    strides = {"rows_demanded_with_gaps": (44, 4), "a_transpose_demanded_by_rows": (24, 4),
               "a_transpose_demanded_as_it_lies": (4, 32), "a_reshape_demanded_by_columns": (4, 8)}  # fmt: skip
    assert name not in strides or np.asarray(found[y.name]).strides == strides[name]


# ---- resizes --------------------------------------------------------------------------------------------------------
@case()
def a_pad_of_a_slice_in_its_loops(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (9, 4)))
    y = f.output(ig.pad(t[2:7], (0, 0, 3, 1), 2.0))
    y.merge(0).split(0, 8)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.pad(np.exp(v["x"])[2:7], ((3, 1), (0, 0)), constant_values=2)


@case(n=(1, 4, 7))
def pieces_of_symbolic_size_joined(f: ig.Fusion) -> Values:
    n = f.symbol("n", min=1)
    y = f.output(ig.cat([ig.exp(f.input("x", (n, 2))), f.input("b", (3, 2)) * 2.0], 0))
    y.merge(0).split(0, 4)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.concatenate([np.exp(v["x"]), 2 * v["b"]])


@case()
def a_sum_of_a_padded_row(f: ig.Fusion) -> Values:
    p = ig.pad(f.input("x", (5, 6)), (2, 1), 1.0)
    y = f.output(ig.sum(p, 1))
    y.split(1, 4)
    one_nest(f, y, "blockIdx.x")
    return lambda v: v["x"].sum(1) + 3


@case()
def a_pad_that_cuts_on_one_side(f: ig.Fusion) -> Values:
    y = f.output(ig.exp(ig.pad(f.input("x", (7, 5)), (-2, 3), 0.5)))
    y.merge(0).split(0, 6)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.exp(np.pad(v["x"][:, 2:], ((0, 0), (0, 3)), constant_values=0.5))


@case()
def a_pad_moved_before_an_operation(f: ig.Fusion) -> Values:
    x, b = f.input("x", (6,)), f.input("b", (9,))
    f.output(ig.pad(ig.exp(x) * 2.0, (1, 2)) + b)
    ig.schedule.auto(f, device="H200")
    assert len(ig.emit(f, "cuda").kernels) == 1
    return lambda v: np.pad(2 * np.exp(v["x"]), (1, 2)) + v["b"]


@case()
def a_split_and_a_cat_that_cancel(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 10)))
    y = f.output(ig.cat([t[:, :2], t[:, 2:5], t[:, 5:]], 1) + 1.0)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.exp(v["x"]) + 1


@case()
def a_split_and_a_cat_around_a_transpose(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 6)))
    f.output(ig.cat([t[:, :2].T, t[:, 2:].T], 0) * 2.0)
    ig.schedule.auto(f, device="H200")
    return lambda v: 2 * np.exp(v["x"]).T


# ---- loops scheduled after the graph, cycles of loops ---------------------------------------------------------------
@case()
def halves_rotated_with_a_residual(f: ig.Fusion) -> Values:
    x, c, s = f.input("x", (3, 8)), f.input("c", (3, 8)), f.input("s", (3, 8))
    y = f.output(x * c + ig.cat([-x[:, 4:], x[:, :4]], 1) * s)
    y.merge(0).split(0, 4)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: v["x"] * v["c"] + np.concatenate([-v["x"][:, 4:], v["x"][:, :4]], 1) * v["s"]


@case()
def pairs_rotated(f: ig.Fusion) -> Values:
    x, s = f.input("x", (3, 4, 2)), f.input("s", (3, 4, 2))
    y = f.output(ig.reshape(ig.flip(x, 2) * s + x, 3, 8))
    y.split(1, 3)
    one_nest(f, y, "blockIdx.x")
    return lambda v: (v["x"][..., ::-1] * v["s"] + v["x"]).reshape(3, 8)


@case()
def a_reshape_there_and_back_beside_itself(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 6)))
    y = f.output(ig.reshape(ig.reshape(t, 24) * 2.0, 4, 6) + t)
    y.merge(0).split(0, 9)
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    assert t.inline_position == 2
    return lambda v: 3 * np.exp(v["x"])


@case()
def a_reshape_of_a_transpose_beside_it(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 6)))
    y = f.output(ig.reshape(ig.reshape(t.T, 24), 4, 6) + t)
    y.split(1, 4)
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    return lambda v: np.exp(v["x"]).T.reshape(4, 6) + np.exp(v["x"])


@case()
def a_reduction_of_merged_axes_split_anew(f: ig.Fusion) -> Values:
    y = f.output(ig.sum(ig.exp(f.input("x", (3, 4, 5))), (1, 2)))
    y.merge(1).split(1, 7)
    one_nest(f, y, "blockIdx.x")
    return lambda v: np.exp(v["x"]).sum((1, 2))


@case()
def a_sum_and_its_broadcast(f: ig.Fusion) -> Values:
    x = f.input("x", (4, 6))
    f.output(x - ig.sum(x, 1, keepdim=True))
    ig.schedule.inline_most(f)
    return lambda v: v["x"] - v["x"].sum(1, keepdims=True)


# ---- predicates -----------------------------------------------------------------------------------------------------
@case()
def two_splits_with_rests(f: ig.Fusion) -> Values:
    y = f.output(ig.exp(f.input("x", (23,))))
    y.split(0, 7).split(1, 3)
    one_nest(f, y, "blockIdx.x")
    return lambda v: np.exp(v["x"])


@case()
def a_merge_of_a_split_with_a_rest(f: ig.Fusion) -> Values:
    y = f.output(ig.exp(f.input("x", (5, 7))))
    y.split(1, 4)
    y.merge(0)
    y.split(0, 3)
    one_nest(f, y, "blockIdx.x")
    return lambda v: np.exp(v["x"])


@case()
def vectors_of_an_odd_row(f: ig.Fusion) -> Values:
    y = f.output(ig.exp(f.input("x", (6, 10))))
    y.split(1, 2).parallelize(2, "vectorize").parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    return lambda v: np.exp(v["x"])


# ---- swizzles and orders in memory ----------------------------------------------------------------------------------
@case()
def a_swizzled_tile(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (8, 8)))
    u = t.T
    y = f.output(u + 1.0)
    t.swizzle("xor", 0, 1)
    t.set_allocation(t.loop).parallelize(1, "threadIdx.x").set_memory("shared")
    for w in (u, y):
        w.parallelize(1, "threadIdx.x")
    u.inline(2)
    return lambda v: np.exp(v["x"]).T + 1


@case()
def stored_by_columns_of_halves(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 6)))
    f.output(t * 2.0)
    t.split(1, 3).set_allocation([t.loop[1], t.loop[0], t.loop[2]])
    assert [int(a) for a in (ig.IdModel(f).write(definition(t)).address.evaluate(
        {"i0": 1, "i1": 1, "i2": 2}),)] == [12 + 3 + 2]  # fmt: skip
    return lambda v: 2 * np.exp(v["x"])


@case()
def an_input_by_columns(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (4, 6)).T)
    y = f.output(t + 1.0)
    y.set_allocation(y.logical[::-1])
    one_nest(f, y, "blockIdx.x", "threadIdx.x")
    return lambda v: np.exp(v["x"]).T + 1


# ---- gathers and scatters -------------------------------------------------------------------------------------------
@case()
def rows_gathered_and_reshaped(f: ig.Fusion) -> Values:
    t = ig.index_select(ig.exp(f.input("x", (7, 6))), 0, f.input("at7", (4,), "int64"))
    y = f.output(ig.reshape(t, 8, 3) * 2.0)
    y.merge(0).split(0, 5)
    (stop,) = ig.schedule.like(f, y)  # all of the table is computed, not the rows that are read
    assert stop.tensor.name == "t1" and "axis by axis" in stop.why
    ig.schedule.inline_most(f)
    return lambda v: 2 * np.exp(v["x"])[v["at7"]].reshape(8, 3)


@case()
def a_gather_of_a_slice(f: ig.Fusion) -> Values:
    x = ig.exp(f.input("x", (9,)))
    y = f.output(ig.index_select(x[2:8], 0, f.input("at6", (4,), "int64")) + 1.0)
    y.split(0, 3)
    assert {stop.tensor for stop in ig.schedule.like(f, y)} >= {x}
    ig.schedule.inline_most(f)
    return lambda v: np.exp(v["x"])[2:8][v["at6"]] + 1


@case()
def rows_scattered_over_a_padded_table(f: ig.Fusion) -> Values:
    table = ig.pad(f.input("x", (4, 3)), (0, 0, 1, 1))
    f.output(ig.index_put(table, [f.input("at6", (5,), "int64")], ig.exp(f.input("b", (5, 3)))))

    def values(v: Mapping[str, Array]) -> Array:
        out = np.pad(v["x"], ((1, 1), (0, 0)))
        out[v["at6"]] = np.exp(v["b"])
        return out

    return values


# ---- parts of a stream, of devices and of rows ----------------------------------------------------------------------
@case()
def chunks_one_after_another(f: ig.Fusion) -> Values:
    t = ig.exp(f.input("x", (6, 8)))
    y = f.output(t * 2.0 + ig.sum(t, 1, keepdim=True))
    for u in (t, t.uses[0].output, y):
        u.split(0, 2)
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    return lambda v: 2 * np.exp(v["x"]) + np.exp(v["x"]).sum(1, keepdims=True)


@case()
def rows_of_loaded_length_normalised(f: ig.Fusion) -> Values:
    off = ig.cat([f.full((1,), 0, dtype="int64"), f.full((1,), 3, dtype="int64"), f.full((1,), 9, dtype="int64")])
    u = ig.partition(f.input("x", (9, 2)), 0, off)
    f.output(ig.combine(u - ig.amax(u, 1, keepdim=True)))
    return lambda v: np.concatenate([r - r.max(0) for r in np.split(v["x"], [3])])


DEVICES: dict[str, tuple[Callable[[ig.Fusion], ig.Tensor], Callable[[Array], Array], bool]] = {
    "a row of devices normalised": (
        lambda f: (lambda x: x - ig.amax(x, 1, keepdim=True))(f.input("x", (6, 8)).shard(0, "d")),
        lambda x: x - x.max(1, keepdims=True), True,
    ),
    "heads of devices put together": (
        lambda f: ig.reshape(f.input("x", (6, 8)).shard(1, "d"), 6, 2, 4), lambda x: x.reshape(6, 2, 4), True
    ),
    "sums of devices scattered": (
        lambda f: (ig.sum(f.input("x", (6, 8)).shard(1, "d"), 1).partial("d", "sum") * 2.0).shard(0, "d"),
        lambda x: 2 * x.sum(1), False,
    ),
    "a transpose between devices": (
        lambda f: (f.input("x", (6, 8)).shard(0, "d").T + 1.0).shard(0, "d"), lambda x: x.T + 1, False
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEVICES)
def test_devices(name: str) -> None:
    build, compute, local = DEVICES[name]
    f = ig.Fusion("devices")
    f.mesh = ig.Mesh(d=2)
    y = f.output(build(f))
    x = (np.random.default_rng(0).integers(-16, 17, (6, 8)) / 8).astype(np.float32)
    run = ig.shard.emit(f)
    np.testing.assert_allclose(run.run({"x": x})[y.name], compute(x), rtol=1e-6)
    moved = sum(len(s.source) for s in run.steps if isinstance(s, ig.shard.Exchange))
    reduces = any(s.reduces for s in run.steps if isinstance(s, ig.shard.Exchange))
    assert (not moved and not reduces) == local
