"""Programs of devices: small inputs that a random search found, and what the programs say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import idgraph as ig
from idgraph.shard.execution import simulate_reduction
from idgraph.shard.transfers import reductions_of, transfer_of
from idgraph.validate.oracle import evaluate
from idgraph.validate.value_check import random_inputs


def compare(f: ig.Fusion) -> ig.shard.DeviceProgram:
    """The program of ``f``, whose values are those of the oracle."""
    run, inputs = ig.shard.emit(f), random_inputs(f)
    found, expected = run.run(inputs), evaluate(f, inputs)
    for t in f.outputs:
        np.testing.assert_allclose(found[t.name], expected[t.name], rtol=1e-5, atol=1e-6)
    return run


def fusion(shape: Sequence[int], **mesh: int) -> tuple[ig.Fusion, ig.Tensor]:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    return f, f.input("x", shape=shape)


@pytest.mark.parametrize("reduce", [ig.sum, ig.amax, ig.amin, ig.prod])
def test_devices_without_a_term_change_nothing(reduce: Callable[..., ig.Tensor]) -> None:
    f, x = fusion((4, 3), x=3, y=2)
    f.output(reduce(x.shard(0, "x", inner=True).shard(0, "y", inner=True), 0))
    run = compare(f)
    assert len(run.steps) == 1  # a partial result, without a move


def test_cyclic_results_of_operations_on_whole_operands() -> None:
    f, x = fusion((3, 1), x=2)
    index, source = f.input("i", (1,), "int64"), f.input("s", (1, 1))
    f.output(ig.index_put(ig.roll(x, 2, 0), (index,), source)).shard(0, "x", inner=True)
    compare(f)


def test_empty_parts_of_gathers() -> None:
    f, x = fusion((2, 1), x=4)
    f.output(ig.gather(x, 0, f.input("i", (2, 1), "int64"))).shard(0, "x", inner=True)
    compare(f)


def test_operations_without_a_move_are_one_kernel_module() -> None:
    f, x = fusion((8, 6), x=2)
    y = f.output(ig.exp(ig.relu(x.shard(0, "x")) * 2.0 + 1.0))
    run = compare(f)
    (step,) = run.steps
    assert isinstance(step, ig.shard.Kernels) and step.makes == (y.name,)
    assert step.programs[0] is step.programs[1]  # devices that are alike share them


def test_kernels_are_of_local_shapes() -> None:
    f, x = fusion((8, 6), x=2, y=3)
    f.output(ig.reshape(ig.exp(x.shard(0, "x").shard(1, "y")).T, (6, 4, 2)))
    run = compare(f)
    step = run.steps[0]
    assert isinstance(step, ig.shard.Kernels)
    shapes = [t.shape for t in step.programs[0].fusion.tensors]
    assert shapes == [(4, 2), (4, 2), (2, 4), (2, 2, 2)]


def test_replicas_that_differ_are_refused() -> None:
    f, x = fusion((4,), x=2)
    y = f.output(x + 1.0)
    run = ig.shard.emit(f)
    from idgraph.shard.execution import assemble_output

    with pytest.raises(ig.MeshError, match="has other values"):
        assemble_output(run, y.name, [np.zeros(4), np.ones(4)])


def test_symbols_and_missing_outputs_are_refused() -> None:
    f, x = fusion((4,), x=2)
    with pytest.raises(ig.MeshError, match="has no output"):
        ig.shard.emit(f)
    n = f.symbol("n", min=1)
    f.output(f.input("y", (n,)) + 1.0, x + 1.0)
    with pytest.raises(ig.MeshError, match="need numbers"):
        ig.shard.emit(f)


def test_wrong_arrays_are_refused() -> None:
    f, x = fusion((4,), x=2)
    f.output(x.shard(0, "x") + 1.0)
    run = ig.shard.emit(f)
    for arrays, said in (({}, "no array for input x"), ({"x": np.zeros(5, np.float32)}, "has the shape")):
        with pytest.raises(ig.MeshError, match=said):
            run.run(arrays)


def test_an_operation_of_parts_that_fits_in_shape_alone_is_not_taken() -> None:
    """Device 1 needs elements 3 to 6: a roll of these four has the shape of its part, and other elements."""
    f, x = fusion((8,), x=2)
    f.output(ig.roll(x, 1, 0)).shard(0, "x")
    compare(f)


def test_every_third_row_goes_to_blocks_of_rows() -> None:
    f, x = fusion((18, 2), x=3)
    f.output(ig.copy(x.shard(0, "x", inner=True)).shard(0, "x"))
    compare(f)


def test_a_term_of_one_element_is_on_one_device() -> None:
    f, x = fusion((1, 3), x=2)
    f.output(ig.amax(x.shard(0, "x"), 0)).partial("x", "max")
    f.output(ig.prod(x - 4.0, 0) + 1.0)
    compare(f)


@pytest.mark.parametrize("first", ["x", "z"])
def test_terms_of_an_axis_that_is_sharded_twice_and_partial_over_one(first: str) -> None:
    """Each device along x adds up its own terms, whatever comes from the devices along z."""
    f, x = fusion((11, 3), x=2, z=3)
    x.shard(0, first).shard(0, "xz".replace(first, ""))
    f.output(ig.copy(ig.sum(x, 0).partial("x", "sum")).replicate())
    run = compare(f)
    assert any(len(s.source) for s in run.steps if isinstance(s, ig.shard.Exchange))


def test_a_partial_result_over_an_axis_that_is_not_reduced_is_refused() -> None:
    f, x = fusion((4, 6), x=2)
    y = f.output(ig.amax(x.shard(1, "x"), 0)).partial("x", "max")
    with pytest.raises(ig.MeshError, match=f"{y.name} is not a partial max over x"):
        ig.shard.emit(f)
    y.replicate().shard(0, "x")
    compare(f)


def test_a_move_for_two_readers_is_made_once() -> None:
    f, x = fusion((6, 4), x=2)
    y = ig.copy(ig.sum(x.shard(0, "x"), 0).partial("x", "sum")).replicate()
    total = y.definition.inputs[0] if y.definition is not None else x
    f.output(ig.exp(total) * ig.relu(total))
    f.output(y)
    run = compare(f)
    assert len([s for s in run.steps if isinstance(s, ig.shard.Exchange)]) == 1, str(run)


def test_a_slice_of_a_sharded_axis_moves_what_crosses_the_border() -> None:
    f, x = fusion((17, 4), x=4)
    x.shard(0, "x")
    y, z, w = (f.output(t) for t in (x[2:] - x[:-2], ig.pad(x, (0, 0, 1, 2)), ig.roll(x, 1, 0)))
    run = compare(f)
    moved = [m for s in run.steps if isinstance(s, ig.shard.Exchange) for m in s.moves]
    assert [m.collective for m in moved] == ["neighbour exchange"] * 4
    assert [m.halo for m in moved] == [(1, 1), (3, 0), (1, 0), (1, 0)]
    assert [str(run.placements[t].placement) for t in (y, z, w)] == ['shard(0, "x")'] * 3


@pytest.mark.parametrize("mesh", [{"x": 3}, {"x": 2, "y": 3}])
def test_a_reduce_scatter_gives_each_device_its_own_elements(mesh: dict[str, int]) -> None:
    """No device has the reduction of elements that another one goes on with."""
    f, a = fusion((7, 5), **mesh)
    for over in mesh:
        a.partial(over, "sum")
    y = ig.relu(a)
    for k, over in enumerate(mesh):
        y.shard(k, over)
    f.output(y)
    run = compare(f)
    (step,) = [s for s in run.steps if isinstance(s, ig.shard.Exchange)]
    assert {m.collective for m in step.moves} == {"reduce-scatter"}
    sides = [transfer_of(run, step, r) for r in run.mesh.ranks]
    found = reductions_of(run, step, sides)
    assert [r.over for r in found] == list(mesh) and found[-1].kept is not None
    assert sorted(n for p in found[-1].kept[:3] for n in p) == list(range(35 if len(mesh) == 1 else 20))
    for r in found:
        parts = [np.arange(35, dtype=np.float32).reshape(7, 5)] * run.mesh.size
        done = simulate_reduction(parts, run.mesh, 0, r).reshape(-1)
        assert r.kept is not None
        inside = np.isin(np.arange(35), r.kept[0])
        assert (done[inside] == np.arange(35)[inside] * mesh[r.over]).all()
        assert (done[~inside] == np.arange(35)[~inside]).all() and not inside.all()
