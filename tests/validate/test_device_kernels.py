"""The address check of the last IR as kernels of a device: it finds what the check on the CPU finds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

import idgraph as ig
from idgraph.runtime import cuda_available
from idgraph.validate.engines import kernel_check_ptx
from idgraph.validate.index_map_check import index_values
from idgraph.validate.kernel_check import check_kernel_addresses
from idgraph.validate.kernel_check_cuda import DeviceSource, fits_device
from idgraph.validate.reference_tables import Expected
from tests.emit.cases import CASES
from tests.emit.turns import simulated
from tests.validate.test_kernels import BUILT, program

SOME = (
    "rotation_auto", "gather", "scatter_add", "pairs_float16", "tile_xor", "softmax_one_kernel", "split_reduction",
    "row_sums_on_blocks", "reduction_outside_threads", "inlined_at_2_on_threads", "symbolic_on_threads",
    "large_private_array", "move_zero_size",
)  # fmt: skip


def outcomes(names: Sequence[str], simulate: bool) -> dict[str, str]:
    """The differences between device and CPU by case; the simulator has to be chosen before numba is imported."""
    asked = ("-m", "tests.validate.simulate_kernels", *names)
    if simulate:
        done = simulated(*asked)
    else:
        done = subprocess.run([sys.executable, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_simulated_device_finds_what_the_cpu_finds() -> None:
    found = outcomes([n for n in SOME if n in CASES], simulate=True)
    assert not any(found.values()), found


@pytest.mark.gpu
def test_the_device_finds_what_the_cpu_finds() -> None:
    if not cuda_available():
        pytest.skip("no CUDA device")
    found = outcomes([*(n for n in SOME if n in CASES), *(str(n) for n in range(len(BUILT)))], simulate=False)
    assert not any(found.values()), found


SLOW = ("rope", "gathered", "loss")  # softmax, turned and added have rows, shared memory and atomics, as these have


@pytest.mark.slow
@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_simulated_device_finds_each_change(slow: bool) -> None:
    found = outcomes([str(n) for n, b in enumerate(BUILT) if (b.__name__ in SLOW) == slow], simulate=True)
    assert found and not any(found.values()), found


@pytest.mark.sampled
@pytest.mark.parametrize(
    "build", [pytest.param(b, marks=[pytest.mark.nightly] if b.__name__ in SLOW else []) for b in BUILT]
)
def test_checks_compile_for_a_device(build: object) -> None:
    p, arrays = program(build, "cuda")  # pyright: ignore[reportArgumentType]
    expected = Expected(p.fusion, {}, index_values(p.fusion, {}, arrays, 0))
    k = p.kernels[0]
    (name, *_) = (n for n, _ in sorted(p.plan.needed, key=str))
    source = DeviceSource(k, name, expected, {}, "numba", True)
    text = source.build()
    assert fits_device(source)
    assert "cuda.atomic" in text and ".visible .entry" in kernel_check_ptx(source, text)


def test_a_barrier_of_the_kernel_is_one_of_the_check() -> None:
    """Threads wait in the check where they wait in the kernel: else a tile would be read before it is there."""
    f = CASES["tile_plain"]().fusion
    p = ig.emit(f, "cuda")
    texts = [
        DeviceSource(k, n, Expected(f, {}, {}), {}, "numba", True).build() for k in p.kernels for n, _ in p.plan.needed
    ]
    assert p.source.count("cuda.syncthreads()") >= 1
    assert any("cuda.syncthreads()" in t and "slot_tile" in t for t in texts)


def test_a_check_waits_only_where_its_kernel_does() -> None:
    """A barrier in a branch that some threads do not take would never be left."""
    f = CASES["move_slice"]().fusion
    p = ig.emit(f, "cuda")
    texts = [
        DeviceSource(k, n, Expected(f, {}, {}), {}, "numba", True).build() for k in p.kernels for n, _ in p.plan.needed
    ]
    assert texts and not any("syncthreads" in t for t in texts)


def test_the_cpu_checks_where_there_is_no_device() -> None:
    p, _ = program(BUILT[0], "cuda")
    assert check_kernel_addresses(p, {}, {}, engine="numba").engine == "python"
