"""The cuda target without a GPU: values in numba's simulator, and PTX for sm_90."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import idgraph as ig
from idgraph.runtime import compile_ptx, emit
from tests.emit.cases import CASES
from tests.emit.simulate import Outcome, simulator
from tests.emit.turns import simulated

pytest.importorskip("numba_cuda")


@pytest.fixture(name="simulated", scope="session")
def _simulated() -> Iterator[Outcome]:
    """One process for each worker, which runs one case after the other."""
    with simulator() as ask:
        yield ask


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_value_in_the_simulator(name: str, simulated: Outcome) -> None:
    assert simulated("plain", name) == ""


@pytest.mark.parametrize("name", ["gather", "embedding", "scatter"])
def test_checked_in_the_simulator(name: str, simulated: Outcome) -> None:
    assert simulated("checked", name) == ""


def test_the_simulator_tells_of_a_case_that_is_wrong(simulated: Outcome) -> None:
    assert simulated("plain", "no case") == "KeyError: 'no case'"


def flat(f: ig.Fusion, block: int = 256) -> ig.Fusion:
    """All outputs' axes on blocks of threads, everything inlined."""
    (y,) = f.outputs
    while len(y.loop) > 1:
        y.merge(0)
    y.split(0, block).parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    ig.schedule.like(f, y)
    ig.schedule.inline_most(f)
    return f


def instructions(ptx: str) -> list[str]:
    """The opcodes of the kernel's body."""
    body = ptx[ptx.index("{") :]
    return [m.group(1) for m in re.finditer(r"^\t(?:@!?%p\d+ )?([a-z][a-z0-9_.]*)", body, re.MULTILINE)]


def test_pointwise_is_one_element_a_thread() -> None:
    f = ig.Fusion("pointwise")
    n = f.symbol("n", min=1)
    x, y = f.input("x", (n,)), f.input("y", (n,))
    f.output(ig.where(x > y, x, y * 2.0) + 1.0)
    program = emit(flat(f), "cuda")
    assert len(program.kernels) == 1
    (ptx,) = compile_ptx(program)
    ops = instructions(ptx)
    assert ".target sm_90" in ptx
    assert sum(o.startswith("ld.global") for o in ops) == 2
    assert sum(o.startswith("st.global") for o in ops) == 1
    assert not [o for o in ops if o.startswith(("div", "rem")) or o.endswith("f64")]
    assert sum(o.startswith("bra") for o in ops) == 1  # the end of the last block, and no loop


def test_rows_of_a_power_of_two_need_no_division() -> None:
    f = ig.Fusion("rotation")
    x = f.input("x", (64, 128), "bfloat16")
    f.output(x + ig.cat([-x[:, 64:], x[:, :64]], dim=1))
    (ptx,) = compile_ptx(emit(flat(f), "cuda"))
    ops = instructions(ptx)
    assert not [o for o in ops if o.startswith(("div", "rem")) or "f64" in o]


def test_logarithms_of_float32_take_no_double() -> None:
    """The library's, off by 2.07 units in the last place at 57 million places: torch's function on a GPU as well."""
    f = ig.Fusion("decibels")
    x = f.input("x", (1024,))
    f.output(ig.log(x) + ig.log2(x) + ig.log10(x) + ig.log1p(x))
    (ptx,) = compile_ptx(emit(flat(f), "cuda"))
    assert not [o for o in instructions(ptx) if "f64" in o]


COMPILED = [
    "move_rotation", "move_slice_scatter", "gather_log_softmax", "casts_float16", "casts_bfloat16", "promotion",
    "softmax_one_kernel", "reduction_outside_threads", "matmul_tiled", "symbolic_rotation", "large_private_array",
    "one_thread_for_a_row", "iota_and_full", "bfloat16_layout", "embedding", "arithmetic_int8", "arithmetic_bool",
    "heads_of_several_sizes", "pairs_float16", "inlined_at_1_on_threads", "inlined_at_3_on_threads",
    "power_of_integers", "rotation_resized",
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [*COMPILED, *(pytest.param(n, marks=pytest.mark.nightly) for n in CASES if n not in COMPILED)]
)
def test_compiles_for_sm_90(name: str) -> None:
    program = emit(CASES[name]().fusion, "cuda")
    for checked in (False, True):
        assert all(".target sm_90" in ptx for ptx in compile_ptx(program, checked=checked))


@pytest.mark.slow
def test_float_arithmetic_compiles() -> None:
    compile_ptx(emit(CASES["arithmetic_float32"]().fusion, "cuda"))


def test_no_device_is_one_clear_error() -> None:
    from idgraph.runtime.cuda.numba_cuda import load_cuda, simulated

    if load_cuda().is_available() or simulated():
        pytest.skip("there is a device")
    f = ig.Fusion("f")
    f.output(f.full((2,), 1.0))
    with pytest.raises(ig.EmitError, match="no CUDA device") as found:
        emit(f, "cuda").run({})
    assert "NUMBA_ENABLE_CUDASIM" in found.value.hint


def test_too_many_threads() -> None:
    from idgraph.runtime.cuda.launch import launch_shape

    f = ig.Fusion("f")
    y = f.output(f.input("x", (4, 2048)) + 1.0)
    y.parallelize(0, "blockIdx.y").parallelize(1, "threadIdx.x")
    with pytest.raises(ig.EmitError, match=r"axis 1 of t1, .* is on threadIdx.x, which counts up to 1,024"):
        emit(f, "cuda")  # before any array is there
    y.split(1, 1024).parallelize(1, "threadIdx.y").parallelize(2, "threadIdx.x")
    with pytest.raises(ig.EmitError, match="asks for 2 x 1024 = 2,048 threads a block"):
        emit(f, "cuda")
    f = ig.Fusion("symbolic")
    n = f.symbol("n", min=1)
    z = f.output(f.input("x", (4, n)) + 1.0)
    z.parallelize(0, "blockIdx.y").parallelize(1, "threadIdx.x")
    with pytest.raises(ig.EmitError, match=r"2048 is more than the 1024"):
        launch_shape(emit(f, "cuda").kernels[0], {"n": 2048})


def test_ptx_of_another_target() -> None:
    f = ig.Fusion("f")
    f.output(f.full((2,), 1.0))
    with pytest.raises(ig.EmitError, match="this one is for cpu"):
        compile_ptx(emit(f, "cpu"))


OUT_OF_RANGE = """
import numpy as np
import idgraph as ig
f = ig.Fusion("f")
x, i = f.input("x", (4, 9)), f.input("i", (4, 1), "int64")
f.output(ig.where(ig.gather(x, 1, i) > 0.5, x, 0.0))
ig.schedule.auto(f)
try:
    ig.emit(f, "cuda").run({"x": np.ones((4, 9), np.float32), "i": np.full((4, 1), 9)}, checked=True)
except ig.IndexingError as error:
    print(error)
"""


def test_an_index_out_of_range_in_the_simulator() -> None:
    """After a failed check threads go on without the access that it guards; the check is reported."""
    done = simulated("-c", OUT_OF_RANGE)
    assert "index 9 loaded from i is outside axis 1 of x, of extent 9" in done.stdout, done.stderr[-1000:]


def cuda_imports(source: str) -> list[str]:
    """Modules of numba.cuda, of llvmlite's IR and of CUDA's bindings that a module asks for."""
    if "cuda" not in source:
        return []
    nodes = list(ast.walk(ast.parse(source)))
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    named = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    named += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return [t for t in (*texts, *named) if re.fullmatch(r"(numba\.cuda|numba_cuda|cuda\.bindings)(\.\w+)*", t)]


def test_one_room_imports_numba_cuda() -> None:
    """One room alone imports numba.cuda, so that replacing it changes no other room."""
    package = Path(ig.__file__).parent
    found = {f.relative_to(package).parent.as_posix() for f in package.rglob("*.py") if cuda_imports(f.read_text())}
    assert found == {"runtime/cuda"}
    assert cuda_imports("import numba.cuda\nx = import_module('numba.cuda.types')") == [
        "numba.cuda.types",
        "numba.cuda",
    ]
