"""More blocks than a device counts along x: counted along x, y and z, each element at its address, once."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import symbol
from idgraph.ir.device import GPU
from idgraph.kernel.ir import beyond_x, grid_exprs, grid_of, most_blocks
from idgraph.runtime import emit
from idgraph.runtime.cuda.launch import launch_shape
from tests.emit.cases import Case, arrays_of, difference
from tests.emit.scatter_cases import SCATTERED, id_arrays
from tests.emit.shared_cases import SHARED
from tests.emit.thread_runner import block_runner, run_threads

# ---- shapes of grids -------------------------------------------------------------------------------------------------
BLOCKS = [1, 5, 2**31 - 1, 2**31, 2**32 + 7, 65535 * (2**31 - 1), 65535 * (2**31 - 1) + 1, 2**61 + 5, most_blocks()]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_grid_has_every_block_and_few_more(blocks: int) -> None:
    x, y, z = shape = grid_of(blocks)
    assert x < 2**31 and y < 65536 and z < 65536 and 0 <= x * y * z - blocks < y * z
    n = symbol("n", 1, None)
    assert tuple(int(e.evaluate({"n": blocks})) for e in grid_exprs(n)) == shape
    assert (y, z) == (1, 1) or blocks >= 2**31


# ---- huge sizes: some blocks of the source, run on memory that notes what it is asked --------------------------------
class Noting:
    """Memory of any size: element k is ``value(k)`` until it is written."""

    def __init__(self, value: Callable[[int], Any], size: int) -> None:
        self.value, self.size, self.dtype = value, size, np.dtype(np.float32)
        self.written: dict[int, Any] = {}

    def __getitem__(self, at: Any) -> Any:
        assert 0 <= int(at) < self.size, "read outside of the array"
        return self.value(int(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        assert 0 <= int(at) < self.size, "written outside of the array"
        assert int(at) not in self.written, "written twice"
        self.written[int(at)] = value


def element(k: int) -> float:
    return float(k % 8191)


def pointwise(n: Any) -> Callable[[ig.Fusion], object]:
    return lambda f: f.output(f.input("x", (n,)) + 1.0)


HUGE: dict[str, tuple[Callable[[ig.Fusion], object], int, Callable[[int], float]]] = {
    # what builds it, elements of the output, the value of each
    "one_axis": (pointwise(2**42), 2**42, lambda k: element(k) + 1.0),
    "odd_axis": (pointwise(2**41 + 2**33 + 5), 2**41 + 2**33 + 5, lambda k: element(k) + 1.0),
    "near_the_end": (pointwise(2**62 + 2**20), 2**62 + 2**20, lambda k: element(k) + 1.0),
    "rotation": (
        lambda f: f.output(ig.roll(f.input("x", (2**42,)), 2**41, 0)), 2**42, lambda k: element((k + 2**41) % 2**42),
    ),
    "transposed": (
        lambda f: f.output(ig.transpose(f.input("x", (2**34, 2**9)), 0, 1)).set_allocation(f.outputs[0].logical),
        2**43, lambda k: element(k % 2**34 * 2**9 + k // 2**34),
    ),
    "sums": (
        lambda f: f.output(ig.sum(f.input("x", (2, 2**40)), 0)), 2**40, lambda k: element(k) + element(k + 2**40),
    ),
    "rows": (
        lambda f: f.output(ig.amax(f.input("x", (2**35, 512)), 1)), 2**35,
        lambda k: max(element(k * 512 + j) for j in range(512)),
    ),
    "several": (
        lambda f: f.output(f.input("x", (2**21, 3, 2**20)) * 2.0), 3 * 2**41, lambda k: 2.0 * element(k),
    ),
}  # fmt: skip


def sampled(blocks: int, grid: tuple[int, ...], r: random.Random) -> set[tuple[int, ...]]:
    """Blocks in the corners of a grid, beside what 31 and 32 bits count, behind the last, and at random."""
    x, y, _ = grid
    near = [0, blocks // 2, blocks - 1, *(n + d for n in (x, 2**31, 2**32) for d in (-1, 0, 1) if n + d < blocks)]
    corners = product(*({0, n - 1} for n in grid))
    return {*corners, *((k % x, k // x % y, k // x // y) for k in [*near, *(r.randrange(blocks) for _ in range(2))])}


@pytest.mark.parametrize("name", HUGE)
def test_blocks_of_a_huge_launch_write_what_the_oracle_says(name: str) -> None:
    build, size, expected = HUGE[name]
    f = ig.Fusion(name)
    build(f)
    ig.schedule.auto(f)
    p = emit(f, "cuda")
    (kernel,) = p.plan.kernels
    assert beyond_x(kernel.launch)
    blocks, r = int(kernel.launch["blockIdx.x"][0]), random.Random(7)
    grid, _ = launch_shape(kernel, {})
    out = Noting(lambda _: None, size)
    memory = [Noting(element, int(b.size)) if b.place == "input" else out for b in kernel.buffers]
    run = block_runner(p, kernel, memory, {}, r)
    whole = -(-size // blocks)
    for x, y, z in sorted(sampled(blocks, grid, r)):
        before = len(out.written)
        run({"x": x, "y": y, "z": z})
        number = x + grid[0] * (y + grid[1] * z)
        made = len(out.written) - before
        assert made == 0 if number >= blocks else 0 < made <= whole, number
    assert out.written == {k: expected(k) for k in out.written}
    assert {0, size - 1} <= set(out.written)


@pytest.mark.parametrize(("least", "most", "wide"), [(1, None, False), (1, 2**36, False), (1, 2**45, True)])
def test_a_symbol_tells_by_its_range_whether_there_may_be_too_many(least: int, most: int | None, wide: bool) -> None:
    f = ig.Fusion("symbolic")
    f.output(f.input("x", (f.symbol("n", min=least, max=most), 8)) + 1.0)
    ig.schedule.auto(f)
    (kernel,) = emit(f, "cuda").plan.kernels
    assert beyond_x(kernel.launch) == wide
    assert launch_shape(kernel, {"n": 64 * 100})[0] == (100, 1, 1)
    if wide:
        assert launch_shape(kernel, {"n": 2**45})[0] == grid_of(2**39)
    else:
        with pytest.raises(ig.EmitError, match=r"is more than the 2147483647 that blockIdx\.x can count") as error:
            launch_shape(kernel, {"n": 2**45})
        assert "max=" in error.value.hint


def test_blocks_along_y_leave_no_room_for_more_along_x() -> None:
    f = ig.Fusion("by hand")
    y = f.output(f.input("x", (2, 2**40)) + 1.0)
    y.parallelize(0, "blockIdx.y").parallelize(1, "blockIdx.x")
    with pytest.raises(ig.EmitError, match=r"axis 1 of t1, .* is on blockIdx.x, which counts up to 2,147,483,647") as e:
        emit(f, "cuda")
    assert e.value.hint == 'put a part of it there: t1.split(1, 2147483647).parallelize(2, "blockIdx.x")'
    y.split(1, 2147483647).parallelize(2, "blockIdx.x")
    assert launch_shape(emit(f, "cuda").plan.kernels[0], {})[0] == (2**31 - 1, 2, 1)


# ---- small limits: every block of a whole launch ---------------------------------------------------------------------
def made(build: Callable[[ig.Fusion], object], **options: Any) -> Callable[[], ig.Fusion]:
    def fusion() -> ig.Fusion:
        f = ig.Fusion("f")
        build(f)
        ig.schedule.auto(f, **options)
        return f

    return fusion


def softmax_of_a_symbol(f: ig.Fusion) -> None:
    f.output(ig.softmax(f.input("x", (f.symbol("n", min=1, max=2000), 8)), 1))


SMALL: dict[str, Callable[[], ig.Fusion]] = {
    "pointwise": made(lambda f: f.output(f.input("x", (37, 29)) + 1.0), block=32),
    "softmax": made(lambda f: f.output(ig.softmax(f.input("x", (67, 24)), 1)), block=32),
    "symbol": made(softmax_of_a_symbol, block=32),
    "rows": made(lambda f: f.output(ig.sum(f.input("x", (19, 300)), 1))),
    "columns": made(lambda f: f.output(ig.sum(f.input("x", (40, 500)), 0))),
    "scan": made(lambda f: f.output(ig.cumsum(f.input("x", (21, 130)), 1))),
    "transpose": made(lambda f: f.output(ig.transpose(f.input("x", (200, 150)), 0, 1) * 2.0)),
    "two_results": made(lambda f: [f.output(f.input(n, (16, 40)) + 1.0) for n in "xy"], block=32),
    "scatter": SCATTERED["put_rows_of_130"],
    "shared": SHARED["tile_in_a_loop"],
}


@pytest.mark.parametrize("name", SMALL)
def test_every_block_where_few_are_counted_along_each_axis(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for dim, most in zip("xyz", (2, 3, 1000), strict=True):
        monkeypatch.setitem(GPU.limits, f"blockIdx.{dim}", most)  # type: ignore[arg-type]
    f = SMALL[name]()
    made = Case(f, id_arrays(f) if name == "scatter" else {}, sizes={"n": 700})
    p = emit(made.fusion, "cuda")
    inputs = arrays_of(made)
    assert any(beyond_x(k.launch) for k in p.plan.kernels)
    with np.errstate(all="ignore"):
        assert difference(made, inputs, run_threads(p, inputs)) == ""
