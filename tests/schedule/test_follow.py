"""Loops follow memory: order, vectors and threads of the automatic schedule by what is read and written."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import idgraph as ig
from idgraph.kernel.ir import Loop, Store, VectorLoad, VectorStore, walk
from idgraph.runtime import Program, compile_ptx

Build = Callable[[ig.Fusion], None]


def _two_outputs(f: ig.Fusion) -> None:
    x = ig.cast(f.input("x", shape=(4, 64, 5, 5), strides=(1600, 1, 320, 64), dtype="float16"), "float32")
    s, b = (ig.cast(f.input(n, shape=(1, 64, 1, 1), dtype="float16"), "float32") for n in "sb")
    y = x * s + b
    f.output(ig.cast(ig.relu(y), "float16"), y > 0)


def _by_columns(f: ig.Fusion) -> None:
    f.output(f.input("x", shape=(64, 32), strides=(1, 64)) * 2.0)


def _epilogue(f: ig.Fusion) -> None:
    x, r = (f.input(n, shape=(2, 32, 6, 7), strides=(1344, 1, 224, 32), dtype="bfloat16") for n in "xr")
    f.output(ig.relu(x + ig.reshape(f.input("b", shape=(32,), dtype="bfloat16"), 1, 32, 1, 1) + r))


def _odd_total(f: ig.Fusion) -> None:
    f.output(ig.relu(f.input("x", shape=(1003,))) * 2.0 + 1.0)


def _odd_inner(f: ig.Fusion) -> None:  # 5 x 5 pictures: rows of 25, one axis of 1600
    f.output(ig.exp(f.input("x", shape=(4, 16, 5, 5))))


def _odd_rows(f: ig.Fusion) -> None:
    f.output(ig.exp(f.input("x", shape=(7, 1031)) - f.input("m", shape=(7, 1))))


def _odd_rows_and_bias(f: ig.Fusion) -> None:
    f.output(ig.relu(f.input("x", shape=(7, 131)) + f.input("b", shape=(131,))))


def _slices(f: ig.Fusion) -> None:
    x = f.input("x", shape=(9, 140))
    f.output(x[1:8, 3:134] * 2.0 + f.input("y", shape=(7, 131)))


def _padded(f: ig.Fusion) -> None:
    x, y = (f.input(n, shape=(9, 133), strides=(136, 1)) for n in "xy")
    f.output(x * y)


def _two_against_one(f: ig.Fusion) -> None:
    x, y = (f.input(n, shape=(400, 512), strides=(1, 400)) for n in "xy")
    f.output(x + y + f.input("z", shape=(400, 512)))


FOLLOWED: dict[str, tuple[Build, int, int]] = {  # elements of the widest load and store
    "example of #1756": (_two_outputs, 8, 8),
    "by columns": (_by_columns, 4, 4),
    "channels last": (_epilogue, 8, 8),
    "odd total": (_odd_total, 4, 4),
    "odd inner axis": (_odd_inner, 4, 4),
    "odd rows": (_odd_rows, 4, 4),
    "odd rows and bias": (_odd_rows_and_bias, 4, 4),
    "slices": (_slices, 1, 1),
    "padded rows": (_padded, 1, 1),
    "two against one": (_two_against_one, 4, 4),
}


def emitted(build: Build) -> Program:
    f = ig.Fusion("f")
    build(f)
    ig.schedule.auto(f)
    return ig.emit(f, "cuda")


@pytest.mark.sampled
@pytest.mark.parametrize("name", FOLLOWED)
def test_vectors_and_values(name: str) -> None:
    build, load, store = FOLLOWED[name]
    p = emitted(build)
    assert len(p.kernels) == 1
    inside = list(walk(p.kernels[0].body))
    assert max((len(s.locals) * (1 + s.pairs) for s in inside if isinstance(s, VectorLoad)), default=1) >= load
    assert max((len(s.values) * (1 + s.pairs) for s in inside if isinstance(s, VectorStore)), default=1) >= store
    assert ig.validate(p.fusion, target="cpu", exhaustive=True).ok


def test_neighbouring_threads_touch_neighbouring_elements() -> None:
    p = emitted(_by_columns)
    (load,) = (s for s in walk(p.kernels[0].body) if isinstance(s, VectorLoad))
    assert str(load.address) == "i0*512 + i1*4"


def test_body_of_odd_rows_has_wide_accesses_in_ptx() -> None:
    (ptx,) = compile_ptx(emitted(_odd_rows))
    assert re.search(r"ld\.global\S*\.v4", ptx) and re.search(r"st\.global\.v4", ptx)


def test_alignments_that_differ_are_single_elements_side_by_side() -> None:
    p = emitted(_padded)
    stores = [s for s in walk(p.kernels[0].body) if isinstance(s, Store)]
    assert str(stores[0].address) == "i0*512 + i1 + q*128"
    (ptx,) = compile_ptx(p)
    found = "".join(re.findall(r"(l|s)[dt]\.global", ptx))
    assert "l" * 8 + "s" * 4 in found  # all loads are under way before the first store


def test_truth_values_travel_in_vectors() -> None:
    (ptx,) = compile_ptx(emitted(_two_outputs))
    assert re.search(r"st\.global\.v2\.(b|u)32", ptx) and not re.search(r"st\.global\.\w8", ptx)


@pytest.mark.parametrize("strides", [(1, 512), (1, 520)])
def test_sums_of_rows_that_lie_by_columns(strides: tuple[int, int]) -> None:
    f = ig.Fusion("f")
    f.output(ig.sum(f.input("x", shape=(512, 256), strides=strides), 1))
    ig.schedule.auto(f)
    (kernel,) = ig.emit(f, "cuda").kernels
    ways = {s.parallel: int(s.extent) for s in walk(kernel.body) if isinstance(s, Loop) and s.parallel != "unroll"}
    wide = [len(s.locals) for s in walk(kernel.body) if isinstance(s, VectorLoad)]
    assert ways["threadIdx.x"] * min(wide, default=1) >= 32 and ways["threadIdx.y"] > 1
    assert ig.validate(f, target="python").ok


def test_layout_is_told_kept_and_taken_back() -> None:
    f = ig.Fusion("f")
    _by_columns(f)
    (t,) = f.outputs
    ig.schedule.auto(f)
    assert t.allocation == t.logical[::-1] and "a hint from x" in str(f.formats[0])
    assert "set_allocation" in str(f) and "column" not in str(ig.emit(f, "python").report)
    assert "strides (1, 64), a hint from x" in str(ig.emit(f, "python").report)
    ig.schedule.auto(f, layout=False)
    assert t.allocation == t.logical and not f.formats and not any(s.name == "set_allocation" for s in t.log)
    ig.schedule.auto(f)
    assert t.allocation == t.logical[::-1]
    t.set_allocation(t.logical)
    ig.schedule.auto(f)
    assert t.allocation == t.logical and not f.formats
    assert ig.layout.infer(f)[t].kind == "demand"
