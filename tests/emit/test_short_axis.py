"""Vectors across a short innermost axis: neighbouring threads' accesses side by side, tables loaded once a thread."""

from __future__ import annotations

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Load, VectorLoad, VectorStore, walk
from idgraph.runtime import Program
from idgraph.schedule import KernelConfig
from idgraph.validate import check_addresses
from tests.emit.test_realign import arrays_of, program_of
from tests.emit.thread_runner import run_threads


def pictures(channels: int, width: int, dtype: DType) -> ig.Fusion:
    """Bytes of pictures, channels last, less a number of their channel."""
    f = ig.Fusion("pictures")
    x = f.input("x", shape=(2, 24, width, channels), dtype=dtype)
    mean, scale = (f.input(n, shape=(channels,)) for n in ("mean", "scale"))
    f.output((ig.cast(x, "float32") - mean) * scale)
    return f


@pytest.mark.sampled
@pytest.mark.parametrize("channels", [3, 5, 6, 7])
@pytest.mark.parametrize("width", [16, 31])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("config", [KernelConfig(), KernelConfig(whole_steps=True), KernelConfig(block=128)], ids=str)
def test_values_and_addresses(channels: int, width: int, dtype: DType, config: KernelConfig) -> None:
    f = pictures(channels, width, dtype)
    arrays = arrays_of(f)
    if dtype == "uint8":
        arrays["x"] = np.random.default_rng(1).integers(0, 256, arrays["x"].shape, dtype=np.uint8)
    want = ig.emit(f, "numpy").run(arrays)
    p = program_of(f, config)
    for k in p.kernels:
        k.verify()
    assert check_addresses(f).ok
    found = run_threads(p, arrays, seed=1)
    assert all(np.array_equal(np.asarray(found[n]), np.asarray(v)) for n, v in want.items())


def lanes_of(p: Program, kind: type[VectorLoad] | type[VectorStore]) -> set[int]:
    """How far apart neighbouring threads' vectors begin, in elements."""
    found: set[int] = set()
    for s in walk(p.kernels[0].body):
        if isinstance(s, kind):
            step = [a for a in s.address.args if "i1" in {n.split("#")[0] for n in a.names}]
            found.update(int(x) for a in step for x in a.args if x.is_const)
    return found


def test_neighbouring_threads_write_side_by_side() -> None:
    """A thread's vectors are a block of threads apart, and begin at one channel: each table is read once."""
    p = program_of(pictures(3, 224, "uint8"))
    (kernel,) = p.kernels
    assert lanes_of(p, VectorStore) == lanes_of(p, VectorLoad) == {4}
    assert int(kernel.launch["threadIdx.x"][0]) == 96
    tables = [s for s in walk(kernel.body) if isinstance(s, Load)]
    assert len(tables) == 2  # in a loop over three places


def test_a_config_leaves_whole_steps_to_a_thread() -> None:
    assert lanes_of(program_of(pictures(3, 224, "uint8"), KernelConfig(whole_steps=True)), VectorStore) == {12}


def test_what_is_read_along_the_next_axis_keeps_whole_steps() -> None:
    """Pictures with channels first written channels last: a thread reads vectors of pixels, of each channel."""
    f = ig.Fusion("last")
    x = f.input("x", shape=(64, 3, 240, 224))
    t = f.output(ig.cast(ig.permute(x, (0, 2, 3, 1)), "uint8"))
    t.set_allocation(t.logical)
    (apart,) = lanes_of(program_of(f), VectorStore)
    assert apart in (12, 24, 48)
