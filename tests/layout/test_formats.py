"""Memory formats by mapping: the cases of the design, and what must not matter."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.index.bank_conflicts import warp_bytes
from idgraph.layout.inference import bytes_of, moved_bytes
from idgraph.layout.stride_order import carried, eager_strides, own_order
from idgraph.schedule.access_strides import loop_order
from tests.layout.programs import program

NHWC = (262144, 1, 8192, 256)


def test_the_example_of_nvfuser_1756() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(32, 1024, 25, 25), strides=(640000, 1, 25600, 1024), dtype="float16")
    s, b = (f.input(n, shape=(1, 1024, 1, 1), dtype="float16") for n in "sb")
    y = x * s + b
    outs = (ig.cast(ig.relu(y), "float16"), y > 0)
    f.output(*outs)
    d = ig.layout.infer(f)
    for t in outs:
        assert d[t].strides == (640000, 1, 25600, 1024) and d[t].order == (0, 2, 3, 1)
        assert d[t].reference is x and d[t].kind == "hint" and len(d[t].reasons) == 4


def test_column_major() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("x", shape=(4096, 4096), strides=(1, 4096)) * 2.0)
    assert ig.layout.infer(f)[t].strides == (1, 4096)


def test_reshapes_of_neighbours_and_of_others() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(8, 256, 32, 32), strides=NHWC)
    together, apart = ig.relu(ig.reshape(x, 8, 256, 1024)), ig.relu(ig.reshape(x, 8, 256 * 32, 32))
    back = ig.relu(ig.reshape(together, 8, 256, 32, 32))
    f.output(together, apart, back)
    d = ig.layout.infer(f)
    assert d[together].strides == (262144, 1, 256) and d[back].strides == NHWC
    assert d[apart].kind == "none" and d[apart].strides == (262144, 32, 1)
    assert "not neighbours in the memory of x: reshape" in d[apart].explain()
    assert "made by relu at test_formats.py" in d.explain(together)


@pytest.mark.parametrize(("step", "order"), [(1, (8, 16, 49)), (4, (8, 13, 16)), (48, (8, 2, 16))])
def test_windows_lie_by_the_steps_of_their_index(step: int, order: tuple[int, ...]) -> None:
    """Of windows that begin one place apart, neighbours lie side by side whichever the other place is."""
    f = ig.Fusion("windows")
    x = f.input("x", (8, 64))
    at = ig.unsqueeze(f.iota(48 // step + 1, 0, step), 1) + f.iota(16)
    t = ig.index_get(x, [None, at])
    assert t.definition is not None
    assert tuple(int(d.extent) for d in carried(t.definition, 0, own_order(x)).axes) == order
    loaded = ig.index_get(x, [None, f.input("i", (5, 3), "int64")]).definition
    assert loaded is not None
    assert [int(d.extent) for d in carried(loaded, 0, own_order(x)).axes] == [8, 5, 3]


def test_there_and_back() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(6, 8, 10), strides=(1, 60, 6))
    t = f.output(ig.relu(x.T).T)
    assert ig.layout.infer(f)[t].strides == (1, 60, 6)


Build = Callable[[ig.Tensor], ig.Tensor]
CARRIED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "slice": (lambda x: x[:, 4:100], (98304, 1, 3072, 96)),
    "pad": (lambda x: ig.pad(x, (1, 1)), (278528, 1, 8704, 256)),
    "cat": (lambda x: ig.cat([x, x], dim=1), (524288, 1, 16384, 512)),
    "flip": (lambda x: ig.flip(x, 1), NHWC),
    "roll": (lambda x: ig.roll(x, 3, 2), NHWC),
    "sum": (lambda x: ig.sum(x, 2), (8192, 1, 256)),
    "select": (lambda x: x[:, :, 5], (8192, 1, 256)),
    "softmax": (lambda x: ig.softmax(x, 1), NHWC),
    "where": (lambda x: ig.where(x > 0, x, 0.0), NHWC),
    "unsqueeze": (lambda x: ig.unsqueeze(x, 0), (2097152, 262144, 1, 8192, 256)),
}


@pytest.mark.parametrize("name", CARRIED)
def test_orders_are_carried_through(name: str) -> None:
    build, strides = CARRIED[name]
    f = ig.Fusion("f")
    t = f.output(build(f.input("x", shape=(8, 256, 32, 32), strides=NHWC)))
    assert ig.layout.infer(f)[t].strides == strides


def test_who_has_no_say() -> None:
    f = ig.Fusion("f")
    bias = f.input("bias", shape=(1, 16, 1), strides=(1, 1, 16))
    x = f.input("x", shape=(4, 16, 8), strides=(1, 32, 4))
    t = f.output(f.full((4, 16, 8), 1.0) + bias + x)
    assert ig.layout.infer(f)[t].reference is x and ig.layout.infer(f)[t].strides == (1, 32, 4)


def test_inputs_that_disagree_are_counted_in_bytes() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64, 64))
    a, b = (f.input(n, shape=(64, 64), strides=(1, 64)) for n in "ab")
    two, one = x + a + b, x + a
    f.output(two, one)
    d = ig.layout.infer(f)
    assert d[two].strides == (1, 64) and {c.order for c in d[two].candidates} == {(0, 1), (1, 0)}
    assert min(d[two].candidates, key=lambda c: c.moved_bytes).order == (1, 0)
    assert d[one].kind == "none" and d[one].strides == (64, 1) and "tie" in d[one].explain()


@pytest.mark.parametrize("strides", [(32, 1), (64, 2), (96, 3), (256, 8), (1, 64), (3, 192)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_bytes_of_a_format_are_those_that_cost_counts_in_the_program(strides: tuple[int, int], dtype: str) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64, 32), strides=strides, dtype=dtype)
    t = f.output(x + x)
    t.parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    [kernel] = ig.cost(ig.emit(f, target="cuda")).kernels
    [read] = [a for a in kernel.accesses if a.kind == "read"]
    assert t.definition is not None
    told = moved_bytes(t, t.logical, (carried(t.definition, 0, own_order(x)),)) - bytes_of(t)
    item = 4 if dtype == "float32" else 2
    touched = {lane * strides[1] * item // 32 for lane in range(32)}
    assert told == 32 * read.sectors == 64 * 32 * len(touched) == 64 * warp_bytes(((32, strides[1]),), item)[0]


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 40])
def test_threads_go_on_from_a_short_axis_into_the_next(channels: int) -> None:
    """Pictures stored by channels: a warp has all channels of several positions, as `ig.cost` counts it."""
    f = ig.Fusion("f")
    x = f.input("x", shape=(1, channels, 64), strides=(4096 * channels, 4096, 1))
    t = f.output(ig.permute(x, 0, 2, 1))
    t.merge(1, 2).split(1, 32).parallelize(1, "blockIdx.x").parallelize(2, "threadIdx.x")
    [kernel] = ig.cost(ig.emit(f, target="cuda")).kernels
    [read] = [a for a in kernel.accesses if a.kind == "read"]
    inside = (t.logical[2], t.logical[1])
    walk = tuple((int(d.extent), 4096 if d is inside[0] else 1) for d in inside)
    asked, needed = warp_bytes(walk, 4)
    assert needed == 128
    if 32 % channels == 0 or channels > 32:  # every warp begins at a first channel, or stays in one position's
        assert 32 * read.sectors == 2 * channels * asked
    assert asked == 32 * len({((lane % channels) * 4096 + lane // channels) * 4 // 32 for lane in range(32)})


@pytest.mark.parametrize("channels", [3, 4])
def test_loops_keep_the_channels_of_what_they_write_innermost(channels: int) -> None:
    """Bytes at a distance of the channels would be written one by one; an average of few numbers has no say."""
    f = ig.Fusion("f")
    x, mean = f.input("x", shape=(8, channels, 64, 64)), f.input("mean", shape=(channels, 1, 1))
    t = f.output(ig.copy(ig.permute(ig.cast(x * mean, "uint8"), 0, 2, 3, 1)))
    assert loop_order(t, t.logical, []) == t.logical
    assert ig.layout.infer(f)[t].tensor is t


def test_a_format_of_no_elements() -> None:
    f = ig.Fusion("f")
    x, y = f.input("x", shape=(0, 3), strides=(1, 0)), f.input("y", shape=(0, 3))
    t = f.output(x + y)
    assert ig.layout.infer(f)[t].strides in ((3, 1), (1, 0), (1, 1))
    assert len(loop_order(t, t.logical, [])) == 2


def test_demands_stay() -> None:
    f = ig.Fusion("f")
    t = f.output(f.input("x", shape=(4, 6), strides=(1, 4)) * 2.0)
    t.set_allocation(t.logical)
    d = ig.layout.infer(f)
    assert d[t].kind == "demand" and d[t].strides == (6, 1)
    ig.layout.apply(f, d)
    assert t.allocation == t.logical


def test_applied_formats_compute_the_same() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(3, 4, 5, 6), strides=(120, 1, 24, 4))
    t = f.output(ig.relu(x) + 1.0)
    ig.layout.apply(f, ig.layout.infer(f))
    assert [t.logical.index(d) for d in t.allocation] == [0, 2, 3, 1]
    assert all(ig.validate(f, target=target).ok for target in ("python", "numpy"))
    other = ig.parse(str(f))
    assert ig.layout.infer(other)[other.outputs[0]].kind == "demand"
    with pytest.raises(ig.OperationError, match="not a tensor of fusion"):
        ig.layout.apply(ig.Fusion("empty"), ig.layout.infer(f))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
def test_eager_strides_are_those_of_torch(seed: int) -> None:
    """100 random programs each, 2 000 in all."""
    for number in range(100):
        f, made = program(1000 * seed + number)
        found = eager_strides(f)
        for x, t in made:
            assert found[t] == tuple(x.stride()), f"{t.name} of\n{f}"


def test_like_torch_is_told_by_decisions() -> None:
    f, made = program(3)
    f.output(*(t for _, t in made))
    d = ig.layout.infer(f, like="torch")
    assert all(d[t].strides == tuple(x.stride()) for x, t in made)
    with pytest.raises(ig.OperationError, match="like"):
        ig.layout.infer(f, like="jax")  # type: ignore[arg-type]


def _three_inputs(r: random.Random, prefix: str, declared: list[int]) -> list[tuple[int | ig.Expr, ...]]:
    f = ig.Fusion("f")
    memory = [r.sample(range(3), 3) for _ in range(3)]
    made: dict[int, ig.Tensor] = {}
    for k in declared:
        strides, step = [0, 0, 0], 1
        for a in memory[k]:
            strides[a], step = step, step * (4, 6, 8)[a]
        made[k] = f.input(f"{prefix}{k}", shape=(4, 6, 8), strides=tuple(strides))
    t = made[0] * 2.0 + made[1] + made[2]
    f.output(t, ig.sum(t, 1), ig.reshape(t, 4, 48))
    return [d.strides for d in ig.layout.infer(f).values()]


@pytest.mark.parametrize("seed", range(40))
def test_names_and_the_order_of_inputs_do_not_matter(seed: int) -> None:
    a = _three_inputs(random.Random(seed), "x", [0, 1, 2])
    assert a == _three_inputs(random.Random(seed), "other", [0, 1, 2])
    assert a == _three_inputs(random.Random(seed), "x", [2, 0, 1])


def test_axes_of_one_element_have_eager_strides_where_the_memory_is_a_demand() -> None:
    """Captured programs lay out results; axes of one element have no place there, yet eager gives them a stride."""
    f = ig.Fusion("f")
    y = f.input("y", shape=(3, 1, 1, 6), strides=(6, 6, 6, 1))
    t = f.output(y + f.input("x", shape=(3, 1, 1, 6), strides=(1, 18, 1, 3)))
    t.set_allocation(t.logical)
    d = ig.layout.infer(f, like="torch")[t]
    assert d.kind == "demand" and d.strides == (6, 18, 6, 1)
    g = ig.Fusion("other memory")
    u = g.output(g.input("x", shape=(2, 3)) * 2.0)
    u.set_allocation(tuple(reversed(u.logical)))
    assert ig.layout.infer(g, like="torch")[u].strides == (1, 2)
