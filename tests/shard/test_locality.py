"""Locality and moves against devices that are simulated by the definition of ownership."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.shard import Locality
from tests.shard.ranks import Steps, held

One = Callable[[ig.Tensor], ig.Tensor]
Two = Callable[[ig.Tensor, ig.Tensor], ig.Tensor]


def explained(t: ig.Tensor) -> Locality:
    assert t.definition is not None
    return ig.shard.explain(t.fusion, t.definition)


def rolled(x: ig.Tensor) -> ig.Tensor:
    return ig.roll(x, 1, 0)


def rolled_by_a_block(x: ig.Tensor) -> ig.Tensor:
    return ig.roll(x, 2, 0)


def flipped(x: ig.Tensor) -> ig.Tensor:
    return ig.flip(x, 0)


def sliced(x: ig.Tensor) -> ig.Tensor:
    return ig.copy(x)[1:]


def scanned(x: ig.Tensor) -> ig.Tensor:
    return ig.cumsum(x, 0)


def gathered(x: ig.Tensor) -> ig.Tensor:
    return ig.index_select(x, 0, x.fusion.input("at", (8,), "int64"))


LINEAR: dict[str, tuple[Two, bool]] = {
    "p + p": (lambda p, _: p + p, True),
    "p + r": (lambda p, r: p + r, False),
    "p * r": (lambda p, r: p * r, True),
    "p * p": (lambda p, _: p * p, False),
    "p + 1": (lambda p, _: p + 1.0, False),
    "p * 3": (lambda p, _: p * 3.0, True),
    "r / p": (lambda p, r: r / p, False),
    "p / r": (lambda p, r: p / r, True),
    "exp": (lambda p, _: ig.exp(p), False),
    "where of both": (lambda p, r: ig.where(r > 0, p, p), True),
    "where by it": (lambda p, r: ig.where(p > 0, r, r), False),
    "where of one": (lambda p, r: ig.where(r > 0, p, r), False),
    "transposed": (lambda p, _: p.T, True),
    "sum": (lambda p, _: ig.sum(p, 0), True),
    "amax": (lambda p, _: ig.amax(p, 0), False),
    "pad": (lambda p, _: ig.pad(p, (0, 1)), True),
    "pad with 1": (lambda p, _: ig.pad(p, (0, 1), value=1.0), False),
    "cat of both": (lambda p, _: ig.cat([p, p]), True),
    "cat of one": (lambda p, r: ig.cat([p, r]), False),
    "integers": (lambda p, _: ig.cast(p, "int32"), False),
}


def place(t: ig.Tensor, steps: Steps) -> ig.Tensor:
    t.replicate()
    for axis, over, inner in steps:
        t.shard(axis, over, inner=inner)
    return t


def shapes(n: int, rank: int) -> list[tuple[int, ...]]:
    return [s for s in product(*[[d for d in range(2, n + 1) if n % d == 0]] * rank) if np.prod(s) == n]


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Steps, Steps, dict[str, int]]:
    n = draw(st.sampled_from([6, 8, 12, 16, 24]))
    both = [s for r in (1, 2, 3) for s in shapes(n, r)]
    shape, out = draw(st.sampled_from(both)), draw(st.sampled_from(both))
    mesh = draw(st.sampled_from([{"x": 2}, {"x": 4}, {"x": 2, "y": 2}, {"x": 3}]))
    steps = [
        [(draw(st.integers(0, len(s) - 1)), m, draw(st.booleans())) for m in mesh if draw(st.booleans())]
        for s in (shape, out)
    ]
    return shape, out, steps[0], steps[1], mesh


@given(views())
def test_views_are_local_where_the_owners_are(
    case: tuple[tuple[int, ...], tuple[int, ...], Steps, Steps, dict[str, int]],
) -> None:
    shape, out, steps, made, mesh = case
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    x = place(f.input("x", shape=shape), steps)
    y = place(f.output(ig.reshape(x, out) if out != shape else ig.copy(x)), made)
    step = explained(y)
    source, output = held(shape, steps, mesh), held(out, made, mesh)
    missing = [np.setdiff1d(o, s) for o, s in zip(output, source, strict=True)]
    assert step.verdict == ("communication" if any(map(len, missing)) else "local")
    if step.moves:
        assert step.moves[0].by_rank == tuple(4 * len(m) for m in missing)
        w = step.witness
        assert w is not None
        assert np.ravel_multi_index(w.made, out) in output[w.rank]
        read = np.ravel_multi_index(w.read, shape)
        assert read not in source[w.rank] and all(read in source[r] for r in w.owners)
        assert np.ravel_multi_index(w.made, out) == read


def one(mesh: dict[str, int], shape: tuple[int, ...], steps: Steps, op: One, made: Steps) -> Locality:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    y = f.output(op(place(f.input("x", shape=shape), steps)))
    return explained(place(y, made))


X = [(0, "x", False)]


@pytest.mark.parametrize(
    ("op", "kind", "size"),
    [
        (rolled, "neighbour exchange", 6 * 4),
        (rolled_by_a_block, "permute", 2 * 6 * 4),
        (flipped, "permute", 2 * 6 * 4),
        (sliced, "neighbour exchange", 6 * 4),
        (scanned, "exchange", 6 * 6 * 4),
        (gathered, "all-gather", 6 * 6 * 4),
    ],
)
def test_the_collective_is_named(op: One, kind: str, size: int) -> None:
    step = one({"x": 4}, (8, 6), X, op, X)
    assert (step.collective, step.bytes) == (kind, size)


def test_collectives_of_placements_alone() -> None:
    mesh = {"x": 4}
    assert one(mesh, (8, 8), X, ig.copy, []).collective == "all-gather"
    assert one(mesh, (8, 8), [], ig.copy, X).verdict == "local"
    assert one(mesh, (8, 8), X, ig.copy, [(1, "x", False)]).collective == "all-to-all"
    assert one(mesh, (8, 8), X, ig.copy, [(0, "x", True)]).collective == "all-to-all"
    assert one({"x": 2, "y": 2}, (8, 8), X, ig.copy, [(0, "y", False)]).verdict == "communication"


def test_a_halo_has_its_width() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=4)
    x = f.input("x", shape=(32, 6)).shard(0, "x")
    y = f.output(ig.copy(ig.pad(x, (0, 0, 2, 0))[:32].shard(0, "x")))
    step = ig.shard.explain(f, f.exprs[0])
    padded = f.exprs[0].output
    assert padded.shape == (34, 6) and step.verdict == "communication"
    rolled = f.output(ig.roll(x, -3, 0)).shard(0, "x")
    found = explained(rolled)
    assert (found.collective, found.moves[0].halo, found.bytes) == ("neighbour exchange", (0, 3), 3 * 6 * 4)
    assert y.shape == (32, 6)


def test_a_sum_over_a_sharded_axis_is_partial() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2, y=2)
    a = f.input("a", shape=(4, 8)).shard(1, "x").shard(0, "y")
    b = f.input("b", shape=(8, 6)).shard(0, "x")
    c = ig.matmul(a, b)
    d = c * 2.0
    g = f.output(ig.relu(d))
    found = ig.shard.propagate(f)
    assert str(found[c].placement) == 'partial("x", "sum") shard(0, "y")'
    assert str(found[d].placement) == 'partial("x", "sum") shard(0, "y")' and found[d].bytes == 0
    assert str(found[g].placement) == 'shard(0, "y")'
    step = found[g].step
    assert step is not None and step.collective == "all-reduce"


def minus_a_column(t: ig.Tensor) -> ig.Tensor:
    column = t.fusion.input("column", shape=(6, 1)).partial("x", "sum")
    return t.fusion.input("wide", shape=(6, 8)) - column


REDUCING: dict[str, tuple[One, int, str]] = {  # of parts of shape (6, 8), with the axis of the result that is sharded
    "each element": (ig.relu, 0, "reduce-scatter"),
    "a slice": (lambda t: t[1:5], 1, "reduce-scatter"),
    "a reshape": (lambda t: ig.reshape(t, (3, 16)), 1, "reduce-scatter"),
    "a new axis": (lambda t: ig.expand(ig.unsqueeze(t, 0), (4, 6, 8)), 0, "all-reduce"),
    "rows of a new axis": (lambda t: ig.expand(ig.unsqueeze(t, 0), (4, 6, 8)), 1, "reduce-scatter"),
    "one column for all": (minus_a_column, 1, "all-reduce"),
    "a column for its rows": (minus_a_column, 0, "reduce-scatter"),
}


@pytest.mark.parametrize("name", REDUCING)
def test_a_partial_result_is_scattered_where_one_device_reads_an_element(name: str) -> None:
    """What several devices along the axis read of one element is no reduce-scatter, wherever the result is sharded."""
    build, axis, collective = REDUCING[name]
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2)
    f.output(build(f.input("p", shape=(6, 8)).partial("x", "sum")).shard(axis, "x"))
    (found,) = [p.step for p in ig.shard.propagate(f).values() if p.step is not None and p.step.moves]
    assert [m.collective for m in found.moves] == [collective]
    whole = 6 if "column" in name else 48  # elements
    assert found.bytes == (whole // 2) * 4 * (1 if collective == "reduce-scatter" else 2)


@pytest.mark.parametrize("name", LINEAR)
def test_partial_results_pass_what_is_linear(name: str) -> None:
    """Sums of what devices hold: the operation of the sum is the sum of the operations, for values as well."""
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2)
    p, r = f.input("p", shape=(4, 4)).partial("x", "sum"), f.input("r", shape=(4, 4))
    op, passes = LINEAR[name]
    y = f.output(op(p, r))
    found = ig.shard.propagate(f)[y]
    assert (found.placement.partials == {"x": "sum"}) == passes
    rng = np.random.default_rng(0)
    one, two, whole = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(3))
    run = ig.emit(f, target="numpy")

    def at(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(
            run.run({n: v for n, v in (("p", a), ("r", whole)) if n in [t.name for t in f.inputs]})[y.name]
        )

    if passes:
        np.testing.assert_allclose(at(one) + at(two), at(one + two), rtol=1e-3, atol=1e-4)


def test_a_partial_result_that_is_none_is_refused() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2)
    y = f.output(ig.exp(f.input("x", shape=(4,)).shard(0, "x"))).partial("x", "sum")
    with pytest.raises(ig.MeshError, match="not a partial sum over x"):
        explained(y)


def test_a_partial_result_of_another_kind_is_refused() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2)
    y = f.output(ig.sum(f.input("x", shape=(4, 3)).partial("x", "max"), 1)).partial("x", "sum")
    with pytest.raises(ig.MeshError, match="not a partial sum over x"):
        explained(y)


@pytest.mark.parametrize(
    ("op", "value", "passes"),
    [
        ("sum", 0.0, True), ("sum", 2.0, False), ("prod", 0.0, True), ("prod", 1.0, True), ("prod", 2.0, False),
        ("max", 2.0, True), ("min", 2.0, True), ("avg", 2.0, True),
    ],
)  # fmt: skip
def test_padding_of_partial_results(op: str, value: float, passes: bool) -> None:
    """What is added is reduced as well: only a value that the reduction of equal ones gives may be."""
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=3)
    y = f.output(ig.pad(f.input("p", shape=(4,)).partial("x", op), (1, 2), value=value))
    assert (ig.shard.propagate(f)[y].placement.partials == {"x": op}) == passes
    data = np.array([1, 2, 3, 4], np.float32)
    want = np.pad(data, (1, 2), constant_values=value)
    np.testing.assert_array_equal(ig.shard.emit(f).run({"p": data})[y.name], want)


def test_means_of_devices_pass_what_is_affine() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=2)
    p = f.input("p", shape=(4, 3)).partial("x", "mean")
    total = ig.sum(p * 2.0 + f.input("r", shape=(4, 3)) - 1.0, 1)
    y = f.output(ig.relu(total))
    found = ig.shard.propagate(f)
    assert found[total].placement.partials == {"x": "avg"} and found[y].placement.partials == {}
    with pytest.raises(ig.MeshError, match="int64, which has no mean"):
        f.input("n", shape=(4,), dtype="int64").partial("x", "avg")


def test_the_cheaper_placement_is_taken() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=4)
    big = f.input("big", shape=(64, 64)).shard(0, "x")
    small = f.input("small", shape=(64, 64)).shard(1, "x")
    y = f.output(big + ig.cast(small, "float16"))
    row = ig.shard.propagate(f)[y]
    assert str(row.placement) == 'shard(0, "x")' and row.step is not None
    assert row.step.moves[0].tensor.dtype == "float16"


def test_large_tensors_are_decided_and_counted_without_listing_them() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=8)
    x = f.input("x", shape=(8192, 8192)).shard(0, "x")
    y = f.output(ig.roll(x, 1, 0)).shard(0, "x")
    step = explained(y)
    assert (step.collective, step.bytes) == ("neighbour exchange", 8192 * 4)
    z = f.output(ig.reshape(x, (8, 1024, 8192))).shard(0, "x")
    assert explained(z).is_local


def test_symbolic_sizes_are_decided_by_proof() -> None:
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(x=4)
    n = f.symbol("n", min=4, multiple_of=4)
    x = f.input("x", shape=(n, 8)).shard(0, "x")
    y = f.output(ig.exp(x)).shard(0, "x")
    assert explained(y).is_local
    z = f.output(ig.copy(x)).shard(1, "x")
    assert explained(z).verdict == "communication"


@settings(deadline=None)
@given(views())
def test_what_follows_is_local_or_pays(
    case: tuple[tuple[int, ...], tuple[int, ...], Steps, Steps, dict[str, int]],
) -> None:
    shape, out, steps, _, mesh = case
    if shape == out:
        return
    f = ig.Fusion("f")
    f.mesh = ig.Mesh(**mesh)
    y = f.output(ig.reshape(place(f.input("x", shape=shape), steps), out))
    row = ig.shard.propagate(f)[y]
    source = held(shape, steps, mesh)
    made = [(s.axis, s.over, s.inner) for s in row.placement.shards]
    output = held(out, made, mesh)
    missing = max(len(np.setdiff1d(o, s)) for o, s in zip(output, source, strict=True))
    assert row.bytes == 4 * missing
