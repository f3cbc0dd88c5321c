"""Scans on the threads of a block: every address and value, on targets that run the loops in order and on threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import idgraph as ig
from idgraph.errors import EmitError
from idgraph.kernel.ir import If, Loop, Store, walk
from idgraph.passes.block_scan import on_threads
from idgraph.validate import random_inputs
from tests.emit.cases import Case, difference
from tests.emit.thread_runner import run_threads
from tests.emit.turns import simulated

OPS = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")


def scan(op: str, shape: tuple[int, ...], dim: int, around: bool) -> ig.Fusion:
    """A scan, alone or between pointwise operations."""
    f = ig.Fusion("scan")
    x = f.input("x", shape)
    t = getattr(ig, op)(x * 0.5 if around else x, dim)
    f.output(ig.maximum(t, -3.0) + x if around else t)
    return f


@given(
    st.sampled_from(OPS),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["python", "numpy"]),
)
@settings(deadline=None, max_examples=15)
def test_auto_is_right_along_any_axis(op: str, shape: list[int], dim: int, around: bool, target: str) -> None:
    f = scan(op, tuple(shape), dim % len(shape), around)
    ig.schedule.auto(f)
    assert len(ig.emit(f, "cuda").kernels) == 1
    report = ig.validate(f, target=target)  # type: ignore[arg-type]
    assert report.ok, str(report)


def follows(op: str, shape: tuple[int, ...], dim: int, last: str) -> ig.Fusion:
    """Scans of a scan, and a reduction of both along their axis."""
    f = ig.Fusion("follows")
    x = f.input("x", shape)
    t = getattr(ig, op)(ig.sigmoid(x), dim)
    u = ig.cummax(t * 0.5 - x, dim) + t
    f.output(u if last == "none" else getattr(ig, last)(u * x, (dim,)))
    return f


@given(
    st.sampled_from(OPS[:-1]),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(0, 2),
    st.sampled_from(["none", "sum", "amax", "prod"]),
)
@settings(deadline=None, max_examples=8)
def test_what_goes_along_a_scan_is_in_its_kernel(op: str, shape: list[int], dim: int, last: str) -> None:
    """Another scan, and a reduction of that axis only: nothing as large as the scan is stored."""
    f = follows(op, tuple(shape), dim % len(shape), last)
    ig.schedule.auto(f)
    program, inputs = ig.emit(f, "cuda"), random_inputs(f, 1)
    assert len(program.kernels) == 1
    program.kernels[0].verify()
    assert difference(Case(f), inputs, run_threads(program, inputs)) == ""
    report = ig.validate(f, target="numpy")
    assert report.ok, str(report)


def _rows_scanned_in_columns(x: ig.Tensor) -> ig.Tensor:
    return ig.amax(ig.cumsum(ig.cumsum(x, 0), 1), (1,))


def _columns_reduced(x: ig.Tensor) -> ig.Tensor:
    return ig.amax(ig.cumsum(x, 1), (0,))


def _all_reduced(x: ig.Tensor) -> ig.Tensor:
    return ig.amax(ig.cumsum(x, 1), (0, 1))


def _row_read_again(x: ig.Tensor) -> ig.Tensor:
    t = ig.cumsum(x, 1)
    return t - ig.amax(t, (1,), True)


@pytest.mark.parametrize("make", [_rows_scanned_in_columns, _columns_reduced, _all_reduced, _row_read_again])
def test_what_goes_another_way_is_not(make: Callable[[ig.Tensor], ig.Tensor]) -> None:
    f = ig.Fusion("f")
    f.output(make(f.input("x", (24, 70))))
    ig.schedule.auto(f)
    program, inputs = ig.emit(f, "cuda"), random_inputs(f, 1)
    assert len(program.kernels) == 2
    assert difference(Case(f), inputs, run_threads(program, inputs)) == ""


def test_a_scan_that_is_an_output_too_is_written() -> None:
    f = ig.Fusion("f")
    t = f.output(ig.cumsum(f.input("x", (24, 70)), 1))
    f.output(ig.amax(t, (1,)))
    ig.schedule.auto(f)
    program, inputs = ig.emit(f, "cuda"), random_inputs(f, 1)
    assert difference(Case(f), inputs, run_threads(program, inputs)) == ""


@pytest.mark.parametrize(("n", "threads", "lanes"), [(100, 8, 4), (64, 16, 4), (7, 4, 1), (33, 32, 1)])
def test_steps_threads_lanes(n: int, threads: int, lanes: int) -> None:
    f = scan("cumsum", (3, n), 1, False)
    t = f.outputs[0]
    t.split(1, lanes).split(1, threads).parallelize(2, "threadIdx.x").parallelize(3, "vectorize")
    (kernel,) = ig.emit(f, "cuda").kernels
    assert "scan" in kernel.passes
    kernel.verify()
    for target in ("python", "numpy", "cpu"):
        assert ig.validate(f, target=target).ok  # type: ignore[arg-type]


def expanded() -> ig.Fusion:
    """A scan of an axis merged of an expanded one, beside an axis of one element: `auto` puts that one innermost."""
    f = ig.Fusion("scan")
    x, index = f.input("x", (1, 1, 5)), f.input("index", (1, 3, 5), dtype="int32")
    t = ig.expand(ig.unsqueeze(ig.take_along_dim(x, index, 1), 3), (1, 3, 5, 3))
    f.output(ig.cumsum(ig.reshape(t, 1, 3, 15), 2))
    ig.schedule.auto(f)
    return f


def beside_one(way: str) -> ig.Fusion:
    """A scan on threads around a loop of one step."""
    f = scan("cumsum", (8, 1), 0, False)
    f.outputs[0].parallelize(0, "threadIdx.y").parallelize(1, way)
    return f


@pytest.mark.parametrize("make", [expanded, lambda: beside_one("threadIdx.x"), lambda: beside_one("serial")])
def test_a_loop_of_one_step_inside_is_none(make: Callable[[], ig.Fusion]) -> None:
    f = make()
    kernel = ig.emit(f, "cuda").kernels[-1]
    assert "scan" in kernel.passes
    kernel.verify()
    for target in ("python", "numpy", "cpu"):
        report = ig.validate(f, target=target)  # type: ignore[arg-type]
        assert report.ok, str(report)


def behind_a_row() -> ig.Fusion:
    """A thread computes a row, which it keeps, before the element that it scans."""
    f = ig.Fusion("row")
    x = f.input("x", (6, 7))
    y = ig.neg(ig.flip(x, (1,)))
    f.output(ig.cat([y[:, 1:], y[:, :1]], 1), ig.cumsum(y[:, 0], 0))
    for t in [e.output for e in f.exprs]:
        t.parallelize(0, "threadIdx.x")
    ig.schedule.inline_most(f)
    return f


def test_loops_before_a_scan_stay_before_it() -> None:
    f = behind_a_row()
    (kernel,) = (k for k in ig.emit(f, "cuda").kernels if "scan" in k.passes)
    kernel.verify()
    assert any(isinstance(s, Loop) and s.parallel == "serial" for s in walk(kernel.body))
    assert ig.validate(f, target="numpy").ok
    inputs = random_inputs(f, 1)
    assert difference(Case(f), inputs, run_threads(ig.emit(f, "cuda"), inputs)) == ""


def test_a_test_in_front_of_a_scan_is_not_one_around_it() -> None:
    k = ig.kernel.parse("""
kernel k():
  buffer x: float32[32] input "x"
  buffer y: float32[32] output "y"
  buffer z: float32[5] output "z"
  launch threadIdx.x: 32
  acc acc: float32 = 0
  for t < 32, threadIdx.x:
    v: float32 = x[t]
    if t < 5:
      z[t] = v
    acc <- sum v, now now: float32, along t
    y[t] = now""")
    made = on_threads(k)
    made.verify()
    (test,) = (s for s in walk(made.body) if isinstance(s, If))
    assert [type(s) for s in test.body] == [Store]


SUMMED = """
kernel k():
  buffer x: float32[32] input "x"
  buffer y: float32[32] output "y"
  launch threadIdx.x: 32
  acc acc: float32 = 0
  for t < 32, threadIdx.x:
    v: float32 = x[t]
    acc b: float32 = 0
    for q < 4:
      b <- sum v
    w: float32 = cast(b)
    acc <- sum v, now now: float32, along t
    y[t] = w"""


@pytest.mark.parametrize("test", ["", "if t < 30:"])
@pytest.mark.parametrize("late", [False, True])
def test_a_sum_in_front_of_a_scan_is_finished_there(late: bool, test: str) -> None:
    """Under a test, both sides of the exchange have one of their own: a sum that the second reads is refused."""
    lines: list[str] = [*SUMMED.splitlines()]
    if late:
        lines.insert(-1, lines.pop(-3))
    if test:
        inner = lines.index("    v: float32 = x[t]")
        lines[inner:] = [f"    {test}", *(f"  {line}" for line in lines[inner:])]
    k = ig.kernel.parse("\n".join(lines))
    if late and test:
        with pytest.raises(EmitError, match="a scan on threads has a loop"):
            on_threads(k)
    else:
        on_threads(k).verify()


def test_an_array_of_a_lane_does_not_outlive_its_exchange() -> None:
    """Both sides of the exchange have a loop over lanes of their own."""
    text = """
kernel k():
  buffer x: float32[64] input "x"
  buffer y: float32[64] output "y"
  launch threadIdx.x: 32
  acc acc: float32 = 0
  for t < 32, threadIdx.x:
    for q < 2:
      alloc row: float32[4] private "row"
      for c < 4:
        v: float32 = x[t*2 + q]
        row[c] = v
      u: float32 = row[3]
      acc <- sum u, now now: float32, along t, along q
      y[t*2 + q] = now"""
    on_threads(ig.kernel.parse(text)).verify()
    late = text.replace("y[t*2 + q] = now", "w: float32 = row[2]\n      y[t*2 + q] = w")
    with pytest.raises(EmitError, match="a scan on threads has a loop"):
        on_threads(ig.kernel.parse(late))


SIMULATED = """
import idgraph as ig
from tests.emit.test_scan_threads import OPS, beside_one, expanded, scan
for f in (expanded(), beside_one("threadIdx.x")):
    assert ig.validate(f, target="cuda").ok
SHAPES = (((3, 300), 1), ((70, 5), 0), ((2, 40, 9), 1), ((5, 33), 1), ((600,), 0))
for n, op in enumerate(OPS):
    for k, (shape, dim) in enumerate(SHAPES):
        if EVERY or n == 0 or k == n:  # an operation differs in how two values are combined, a shape in the loops
            f = scan(op, shape, dim, op == "cumsum")
            ig.schedule.auto(f)
            report = ig.validate(f, target="cuda")
            assert report.ok, (op, shape, dim, str(report))
print("all right")
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_threads_of_the_simulator(every: bool) -> None:
    """Each operation and each shape; at night each with each."""
    done = simulated("-c", f"EVERY = {every}\n{SIMULATED}")
    assert done.stdout.strip() == "all right", done.stderr[-2000:]


def test_rows_that_begin_at_any_element_have_fewer_neighbours_in_a_thread() -> None:
    """Their accesses are one by one: each of a thread's asks for a line of its own."""
    widths: list[int] = []
    for columns in (4096, 4095):
        f = ig.Fusion("rows")
        t = f.output(ig.cumsum(f.input("x", (4096, columns)), 1))
        ig.schedule.auto(f)
        widths.append(next(int(d.extent) for d in t.loop if d.parallel == "vectorize"))
    assert widths[1] < widths[0], widths
