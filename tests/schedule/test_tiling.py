"""Loops by their cost: what the search takes is as cheap, as emitted, as what it leaves, and computes the same."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType, Tensor
from idgraph.ir.device import devices
from idgraph.schedule.inlining import inline_far
from idgraph.schedule.pointwise_tiling import coarsening_by_functions, sources_of
from idgraph.schedule.tiling import apply_tiling, base_axes, candidates, choose_tiling, reference_accesses
from idgraph.schedule.tiling_cost import Tiling, tiling_cost
from idgraph.schedule.transform_replay import like
from idgraph.validate import check_addresses, random_inputs
from idgraph.validate.oracle import evaluate
from tests.emit.thread_runner import run_threads

H200 = devices["H200"]


def permuted(shape: tuple[int, ...], order: tuple[int, ...], dtype: DType) -> ig.Fusion:
    f = ig.Fusion("permuted")
    t = f.output(ig.permute(f.input("x", shape, dtype), order))
    t.set_allocation(t.logical)
    return f


def unpatched(n: int, side: int, dtype: DType = "float32") -> ig.Fusion:
    """Patches of ``side`` x ``side`` pixels, three channels innermost, back to pictures."""
    f = ig.Fusion("unpatched")
    x = ig.reshape(f.input("x", (n, 16, side * side * 3), dtype), n, 4, 4, side, side, 3)
    f.output(ig.reshape(ig.permute(x, (0, 5, 1, 3, 2, 4)), n, 3, 4 * side, 4 * side))
    return f


def stacked(n: int) -> ig.Fusion:
    f = ig.Fusion("stacked")
    x = f.input("x", (n,), "int32")
    f.output(ig.reshape(ig.stack([ig.cast(x + k, "int8") for k in range(5)], -1), 5 * n))
    return f


def every_second(n: int, h: int, w: int) -> ig.Fusion:
    f = ig.Fusion("frames")
    t = f.output(ig.permute(f.input("x", (n, 3, h, w), "uint8")[:, :, ::2, ::2], (0, 2, 3, 1)))
    t.set_allocation(t.logical)
    return f


# A small fusion, a large one, and how many times the least sectors the large one may ask for.
CASES: dict[str, tuple[Any, Any, float]] = {
    "channels last": (lambda: permuted((2, 3, 4, 32), (0, 2, 3, 1), "uint8"),
                      lambda: permuted((16, 3, 320, 480), (0, 2, 3, 1), "uint8"), 1.51),
    "channels first": (lambda: permuted((2, 4, 32, 3), (0, 3, 1, 2), "uint8"),
                       lambda: permuted((16, 320, 480, 3), (0, 3, 1, 2), "uint8"), 1.51),
    "patches": (lambda: unpatched(1, 8), lambda: unpatched(64, 16), 1.51),
    "stacked": (lambda: stacked(64), lambda: stacked(2_000_000), 3.2),
    "every second": (lambda: every_second(2, 8, 32), lambda: every_second(16, 320, 480), 2.01),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_large_ones_ask_for_few_sectors(name: str) -> None:
    f = CASES[name][1]()
    decided = ig.schedule.auto(f)
    assert name == "every second" or "not, of " in str(decided.tilings[0])
    (k,) = ig.cost(ig.emit(f, "cuda"), "H200").kernels
    assert 32 * k.sectors <= CASES[name][2] * k.bytes_moved


@pytest.mark.parametrize("name", CASES)
def test_each_candidate_computes_the_same(name: str) -> None:
    build = CASES[name][0]
    f = build()
    x = f.inputs[0]
    array = np.arange(int(np.prod([int(d.extent) for d in x.axes]))).reshape([int(d.extent) for d in x.axes])
    arrays = {"x": (array % 100).astype(x.dtype)}
    (want,) = ig.emit(f, "numpy").run(arrays).values()
    for n in range(0, len(_tilings(f.outputs[0])), 6):
        g = build()
        _apply(g.outputs[0], _tilings(g.outputs[0])[n])
        assert check_addresses(g).ok
        (got,) = run_threads(ig.emit(g, "cuda"), arrays, seed=n).values()
        assert np.array_equal(np.asarray(got), np.asarray(want))


def _tilings(t: Tensor) -> list[Tiling]:
    base = base_axes(t)
    accesses = reference_accesses(t, base, ())
    assert accesses is not None
    return list(candidates(base, accesses, H200))


def _apply(t: Tensor, tiling: Tiling) -> None:
    apply_tiling(t, tiling, 128)
    like(t.fusion, t)
    inline_far(t.fusion, [u for u in t.fusion.tensors if u.definition is not None and u is not t])


SEEDS = (*range(3), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(3, 60)))


def random_case(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], DType]:
    draw = random.Random(seed)
    shape = (*(draw.choice((3, 4, 5, 8, 24, 48)) for _ in range(3)), 512)
    dtype: DType = draw.choice(("uint8", "bfloat16", "float32"))
    return shape, tuple(draw.sample(range(4), 4)), dtype


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_chosen_is_no_dearer_than_what_is_left(seed: int) -> None:
    """The exact cost of the chosen tiling, as emitted, beside that of others: within 5 % of the cheapest."""
    case, draw = random_case(seed), random.Random(seed)
    f = permuted(*case)
    t = f.outputs[0]
    choice = choose_tiling(t, (), Tiling(base_axes(t)), 128, H200)
    if choice is None:
        return
    others = range(len(_tilings(t)))
    costs: list[float] = []
    for n in draw.sample(others, min(3, len(others))):
        g = permuted(*case)
        _apply(g.outputs[0], _tilings(g.outputs[0])[n])
        costs.append(_exact(g))
    _apply(t, choice.tiling)
    assert _exact(f) <= 1.05 * min(costs)


def _exact(f: ig.Fusion) -> float:
    (k,) = ig.cost(ig.emit(f, "cuda"), "H200").kernels
    return k.time_us


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32"])
def test_sectors_are_counted_as_those_of_the_emitted_kernel(dtype: DType) -> None:
    """Where warps divide the axes, the closed form's sectors are those that `ig.cost` counts."""
    shape, order = (32, 64, 128), (2, 0, 1)
    t = permuted(shape, order, dtype).outputs[0]
    accesses = reference_accesses(t, base_axes(t), ())
    assert accesses is not None
    tilings = _tilings(t)
    for n in (0, len(tilings) // 2, len(tilings) - 1):
        g = permuted(shape, order, dtype)
        _apply(g.outputs[0], _tilings(g.outputs[0])[n])
        (k,) = ig.cost(ig.emit(g, "cuda"), "H200").kernels
        assert abs(tiling_cost(tilings[n], accesses, 128, H200).sectors - k.sectors) <= 0.02 * k.sectors


def test_what_lies_alike_has_no_search() -> None:
    f = ig.Fusion("alike")
    x = f.input("x", (64, 512))
    t = f.output(x * 2.0)
    assert choose_tiling(t, (), Tiling(t.axes, run=4), 128, H200) is None
    assert not ig.schedule.auto(f).tilings


def test_a_tiling_that_stays_is_reported_with_its_runner_up() -> None:
    f = ig.Fusion("mixed")
    x, y = f.input("x", (64, 512, 4)), f.input("y", (64, 4, 512))
    t = f.output(x * 2.0 + ig.permute(y, (0, 2, 1)))
    found = choose_tiling(t, (), Tiling(t.axes, ((t.axes[2], 4),)), 128, H200)
    assert found is not None and found.usual == (found.tiling.tile == ((t.axes[2], 4),))
    again = choose_tiling(t, (), found.tiling, 128, H200)
    assert again is not None and again.usual and again.cost == found.cost
    assert again.second[1].time_us * 1.03 >= again.cost.time_us and again.candidates == found.candidates
    (decision,) = ig.schedule.auto(f).tilings
    assert decision.tensor == t.name and decision.candidates == again.candidates


def test_a_cpu_keeps_rows() -> None:
    """The search counts what warps ask for; loops for a CPU stay in the order in which its own pass blocks them."""
    f = permuted((300, 400), (1, 0), "uint8")
    assert not ig.schedule.auto(f, device="cpu").tilings
    assert not any(d.parallel == "unroll" for d in f.outputs[0].loop)


def test_a_thread_of_many_coordinates_has_several_elements() -> None:
    """Six coordinates of one element cost more than the sectors that it saves: 36 us for 12 on an H200."""
    f = ig.Fusion("pictures of patches")
    x = ig.reshape(f.input("x", (48, 256, 588)), 48, 16, 16, 14, 14, 3)
    f.output(ig.reshape(ig.permute(x, (0, 5, 1, 3, 2, 4)), 48, 3, 224, 224))
    program = ig.emit(_scheduled(f), "cuda")
    (k,) = ig.cost(program).kernels
    (made,) = program.report.tilings  # the report has the runner-up, and what both cost
    assert str(made) in str(program.report)
    assert float(made.cost.split()[0]) <= float(made.second_cost.split()[0])
    assert k.blocks * k.threads * 4 <= 48 * 3 * 224 * 224


@pytest.mark.parametrize(("taps", "item"), [(1, 2), (3, 2), (5, 4)])
def test_rows_of_padded_windows_have_lanes_that_read_few_sectors(taps: int, item: int) -> None:
    """The sum over pooled images: with a vector for each thread, every read asked for up to seven times its sectors."""
    f = ig.Fusion("pooled")
    y = ig.cast(f.input("x", (16, 56, 56), "bfloat16" if item == 2 else "float32"), "float32")
    pads = (taps // 2, taps // 2)
    across = ig.pad(y, pads)
    y = sum((across[:, :, n : n + 56] for n in range(1, taps)), across[:, :, :56])
    down = ig.pad(y, (0, 0, *pads))
    y = sum((down[:, n : n + 56] for n in range(1, taps)), down[:, :56])
    s = f.output(ig.sum(ig.exp(y), (1, 2)))
    program = ig.emit(_scheduled(f), "cuda")
    assert ig.cost(program).kernels[0].sectors <= 2.5 * taps * taps * 16 * 56 * 56 * item / H200.sector
    x = np.random.default_rng(0).integers(-3, 3, (16, 56, 56)) / 64
    wide = np.pad(x, ((0, 0), pads, pads))
    wanted = np.exp(sum(wide[:, i : i + 56, j : j + 56] for i in range(taps) for j in range(taps))).sum((1, 2))
    arrays = {"x": x.astype(np.float32 if item == 4 else ml_dtypes.bfloat16)}
    np.testing.assert_allclose(run_threads(program, arrays)[s.name], wanted, rtol=1e-4)


def _scheduled(f: ig.Fusion) -> ig.Fusion:
    ig.schedule.auto(f)
    return f


def woven(count: int, n: int, steps: int, channels: int) -> ig.Fusion:
    """Sequences of which each takes its turn, channels first: a reshape hides which one a step is of."""
    f = ig.Fusion("woven")
    every = [f.input(f"x{k}", (n, steps, channels)) for k in range(count)]
    t = f.output(ig.permute(ig.reshape(ig.cat(every, 2), (n, count * steps, channels)), (0, 2, 1)))
    t.set_allocation(t.logical)
    return f


@pytest.mark.parametrize("count", [2, 3, 4])
def test_an_axis_that_a_reshape_joins_is_searched_in_its_parts(count: int) -> None:
    f = woven(count, 16, 1024, 256)
    decided = ig.schedule.auto(f)
    assert decided.tilings
    (k,) = ig.cost(ig.emit(f, "cuda"), "H200").kernels
    assert 32 * k.sectors <= 1.51 * k.bytes_moved
    small = woven(count, 2, 8, 32)
    rng = np.random.default_rng(count)
    arrays = {x.name: rng.random((2, 8, 32), dtype=np.float32) for x in small.inputs}
    want = np.stack(list(arrays.values()), 2).reshape(2, 8 * count, 32).transpose(0, 2, 1)
    assert ig.schedule.auto(small).tilings
    assert check_addresses(small).ok
    (got,) = run_threads(ig.emit(small, "cuda"), arrays, seed=count).values()
    assert np.array_equal(np.asarray(got), want)


def interleaved(n: int, count: int, parts: int, channels: int) -> ig.Fusion:
    """Rows of ``parts`` tensors in turn, channels first."""
    f = ig.Fusion("interleaved")
    xs = [f.input(f"x{k}", (n, count, channels)) for k in range(parts)]
    t = ig.reshape(ig.stack(xs, 2), (n, count * parts, channels))
    f.output(ig.permute(t, (0, 2, 1))).set_allocation(f.outputs[0].logical)
    return f


@pytest.mark.parametrize("parts", [2, 4])
def test_threads_of_a_rectangle_write_whole_sectors(parts: int) -> None:
    f = interleaved(8, 2048, parts, 256)
    (decided,) = ig.schedule.auto(f).tilings
    assert "a warp" in str(decided)
    (kernel,) = ig.cost(ig.emit(f, "cuda")).kernels
    assert kernel.sectors * 32 <= 1.01 * kernel.bytes_moved


def stacked_last(count: int) -> ig.Fusion:
    f = ig.Fusion("stacked last")
    t = ig.stack([f.input(n, (count, 32)) for n in "ab"], -1)
    f.output(ig.permute(t, (1, 0, 2))).set_allocation(f.outputs[0].logical)
    return f


def test_rectangles_compute_the_same() -> None:
    f = stacked_last(64)
    found = [n for n, x in enumerate(_tilings(f.outputs[0])) if x.warp]
    inputs = random_inputs(f, seed=1)
    assert len(found) > 4
    for n in found[:: len(found) // 4]:
        g = stacked_last(64)
        _apply(g.outputs[0], _tilings(g.outputs[0])[n])
        assert check_addresses(g).ok
        (got,) = run_threads(ig.emit(g, "cuda"), inputs, seed=n).values()
        assert np.array_equal(got, evaluate(g, inputs)[g.outputs[0].name])


@pytest.mark.parametrize(
    ("tile", "along", "measured"),
    [((4, 2, 1), 1, 162), ((1, 1, 4), 0, 124), ((1, 2, 4), 1, 342), ((2, 2, 2), 0, 141), ((1, 1, 1), 0, 233)],
)
def test_parts_of_lines_cost_more_than_their_sectors(tile: tuple[int, ...], along: int, measured: float) -> None:
    """Microseconds on an H200: threads along the channels (1) write parts of many lines, along the others they read
    them. The order of them is that of their costs, and each of these is a quarter off at most."""
    f = interleaved(32, 2048, 2, 256)
    (t,) = f.outputs
    t.split(2, 2)
    n, channel, row, part = t.loop
    order = (n, row, part, channel) if along else (n, channel, row, part)
    sizes = dict(zip((row, part, channel), tile, strict=True))
    _apply(t, Tiling(order, tuple((d, sizes[d]) for d in order if sizes.get(d, 1) > 1)))
    found = ig.cost(ig.emit(f, "cuda")).total.time_us
    assert 0.75 * measured < found < 1.25 * measured, found


def test_heads_share_the_functions_of_their_angles() -> None:
    """Cosines of a position are the same for all heads: a thread that takes several computes each once."""
    f = ig.Fusion("angles")
    x, a = f.input("x", (16, 1024, 256)), f.input("a", (1024, 256))
    t = f.output(x * ig.cos(a) + ig.sin(a))
    ig.schedule.auto(f, device="H200")
    found = coarsening_by_functions(t, t.logical, sources_of(t, []), 4)
    assert found is not None and found[0] is t.logical[0] and found[1] >= 4
    rng = np.random.default_rng(0)
    values = {"x": rng.standard_normal((16, 1024, 256), "float32"), "a": rng.standard_normal((1024, 256), "float32")}
    (found,) = ig.emit(f, "numpy").run(values).values()
    wanted = values["x"] * np.cos(values["a"].astype("float64")) + np.sin(values["a"].astype("float64"))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("taps", "steps"), [(1, 8), (3, None)])
def test_windows_leave_heads_no_registers_to_share(taps: int, steps: int | None) -> None:
    """Nine reads of a window by each of eight heads are more values than a thread has registers for."""
    f = ig.Fusion("windows")
    x, a = f.input("x", (32, 64, 56, 56), "bfloat16"), f.input("a", (56, 56))
    p = ig.pad(ig.cast(x, "float32"), (taps // 2,) * 4)
    total = p[:, :, :56, :56]
    for k in range(1, taps * taps):
        total = total + p[:, :, k // taps : k // taps + 56, k % taps : k % taps + 56]
    t = f.output(ig.cast(total * ig.cos(a), "bfloat16"))
    found = coarsening_by_functions(t, t.logical, sources_of(t, []), 8)
    assert (None if found is None else found[1]) == steps


def test_only_functions_that_heads_share_make_a_thread_take_several() -> None:
    """An average divides each sum by how many elements there are: the counts are the same for all channels, but take
    no function, and the quotients are not. A norm with such an average took 49 us on an H200 where threads took
    eight channels, and 27 where they took one."""
    f = ig.Fusion("average")
    x, i = f.input("x", (32, 64, 56, 56), "bfloat16"), f.iota(56)
    count = ig.unsqueeze(ig.minimum(i + 2, 56) - ig.maximum(i - 1, 0), 1) * (
        ig.minimum(i + 2, 56) - ig.maximum(i - 1, 0)
    )
    t = f.output(ig.cast(ig.cast(x, "float32") / ig.cast(count, "float32"), "bfloat16"))
    assert coarsening_by_functions(t, t.logical, sources_of(t, []), 8) is None
