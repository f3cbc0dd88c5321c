"""Rows added to a table by threads that take several neighbours at once: only where that is proved to be right."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.ir import DType
from idgraph.kernel.ir import Accumulate, BoundsCheck, VectorAdd, VectorLoad, walk
from idgraph.runtime import Program, compile_ptx, emit
from tests.emit.cases import CASES, Case, arrays_of, difference
from tests.emit.scatter_cases import SCATTERED, WIDTHS, id_arrays, put_rows
from tests.emit.statements import repeated
from tests.emit.thread_oracle import faults
from tests.emit.thread_runner import bound, run_threads
from tests.emit.turns import simulated


def widths(p: Program) -> list[int]:
    """The number of elements in each addition to memory."""
    found: list[int] = []
    for s in (s for k in p.kernels for s in repeated(k.body)):
        if isinstance(s, VectorAdd):
            found.append(len(s.values))
        elif isinstance(s, Accumulate) and s.buffer is not None:
            found.append(1)
    return found


@pytest.mark.parametrize("columns", WIDTHS)
def test_as_wide_as_the_rows_allow(columns: int) -> None:
    p = emit(SCATTERED[f"put_rows_of_{columns}"](), "cuda")
    assert set(widths(p)) == {WIDTHS[columns] or 1}
    wide = {len(s.locals) for k in p.kernels for s in walk(k.body) if isinstance(s, VectorLoad)}
    assert (WIDTHS[columns] in wide) == (WIDTHS[columns] > 0)


def test_an_expanded_index_is_one_for_the_row() -> None:
    p = emit(SCATTERED["add_rows_of_8"](), "cuda")
    assert set(widths(p)) == {4}


@pytest.mark.parametrize("name", ["put_rows_int32", "put_rows_float64", "add_columns", "columns_in_memory"])
def test_one_by_one_where_neighbours_cannot_be_added_at_once(name: str) -> None:
    assert set(widths(emit(SCATTERED[name](), "cuda"))) == {1}


@pytest.mark.parametrize("columns", [5, 8])
def test_several_vectors_of_one_thread(columns: int) -> None:
    """As many as tuning asks for; the last thread's may lie behind the end."""
    f = put_rows(columns)
    ig.schedule.auto(f, config=ig.schedule.KernelConfig(block=4, vectors=2))
    program, made = emit(f, "cuda"), Case(f, id_arrays(f))
    assert widths(program) == [WIDTHS[columns] or 1] * 2
    inputs = arrays_of(made)
    for seed in range(2):
        assert difference(made, inputs, run_threads(program, inputs, seed)) == ""


def test_columns_of_an_unknown_number() -> None:
    f = ig.Fusion("rows")
    n = f.symbol("n", min=1)
    at, source = f.input("ids", (7,), "int64"), f.input("source", (7, n))
    f.output(ig.index_put(f.input("table", (4, n)), [at], source, accumulate=True))
    ig.schedule.auto(f)
    assert set(widths(emit(f, "cuda"))) == {1}


@pytest.mark.parametrize(("columns", "lanes", "dtype"), [(6, 3, "float32"), (8, 4, "int32"), (8, 2, "float64")])
def test_lanes_by_hand_that_no_instruction_adds(columns: int, lanes: int, dtype: DType) -> None:
    """A row that starts at an odd element, or is of another type: lanes, but an addition for each."""
    f = put_rows(columns, dtype)
    f.outputs[0].split(1, lanes).parallelize(2, "vectorize").parallelize(0, "blockIdx.x").parallelize(1, "threadIdx.x")
    program, made = emit(f, "cuda"), Case(f, id_arrays(f))
    assert widths(program) == [1] * lanes
    inputs = arrays_of(made)
    assert difference(made, inputs, run_threads(program, inputs)) == ""


@pytest.mark.parametrize("name", SCATTERED)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_in_any_order_of_threads(name: str, seed: int) -> None:
    made = CASES[name]()
    inputs = arrays_of(made, seed)
    assert difference(made, inputs, run_threads(emit(made.fusion, "cuda"), inputs, seed)) == ""


@pytest.mark.parametrize("name", ["add_rows_of_6", "add_rows_of_8", "two_entries_of_one_thread", "add_columns"])
def test_no_thread_disturbs_another(name: str) -> None:
    made = CASES[name]()
    program, inputs = emit(made.fusion, "cuda"), arrays_of(made)
    flat, symbols = bound(program, inputs)
    assert faults(program.plan, symbols, flat) == []


def test_each_entry_has_a_test_of_its_own() -> None:
    """An entry out of range leaves the other one of its thread alone."""
    made = CASES["two_entries_of_one_thread"]()
    program, inputs = emit(made.fusion, "cuda"), arrays_of(made)
    inputs["source"] = np.rint(inputs["source"] * 9)  # whole numbers: the order of additions does not matter
    checks = [s for k in program.kernels for s in walk(k.body) if isinstance(s, BoundsCheck)]
    assert [len([x for x in walk(s.body) if isinstance(x, VectorAdd)]) for s in checks] == [1, 1]
    for place, bad in ((2, -1), (3, 4), (6, 10**12)):
        given = {**inputs, "ids": inputs["ids"].copy()}
        given["ids"][place] = bad
        want = np.full((4, 8), 0.5, np.float32)
        keep = [k for k in range(7) if k != place]
        np.add.at(want, given["ids"][keep], given["source"][keep])
        (got,) = run_threads(program, given).values()
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
@pytest.mark.parametrize("bad", [-5, 4])
def test_a_checked_run_names_the_row_out_of_range(target: Any, bad: int) -> None:
    made = CASES["put_rows_of_8"]()
    inputs = arrays_of(made)
    inputs["ids"][3] = bad
    with pytest.raises(ig.IndexingError, match=r"is outside axis 0 of t\d+, of extent 4"):
        emit(made.fusion, target).run(inputs, checked=True)


CHECKED = """
import warnings
import idgraph as ig
from tests.emit.cases import CASES, arrays_of
warnings.simplefilter("ignore")
made = CASES["add_rows_of_8"]()
inputs = arrays_of(made)
inputs["ids"][3] = 9
try:
    ig.emit(made.fusion, "cuda").run(inputs, checked=True)
except ig.IndexingError as error:
    print(error)
"""


def test_a_checked_run_in_the_simulator() -> None:
    done = simulated("-c", CHECKED)
    assert re.search(r"index 9 loaded from .+ is outside axis 0 of t\d+, of extent 4", done.stdout), done.stderr[-900:]


def ptx_of_rows(columns: int, cc: tuple[int, int]) -> str:
    f = put_rows(columns)
    ig.schedule.auto(f)
    return compile_ptx(emit(f, "cuda"), cc=cc)[-1]


@pytest.mark.parametrize(("columns", "width"), [(4096, 4), (130, 2)])
def test_ptx_adds_vectors(columns: int, width: int) -> None:
    ptx = ptx_of_rows(columns, (9, 0))
    assert f"red.relaxed.gpu.global.add.v{width}.f32" in ptx
    assert f"ld.global.v{width}.f32" in ptx.replace(".nc", "")
    assert not re.search(r"\b(div|rem)\.s64|\.local|\batom\.", ptx)


def test_ptx_of_older_devices_adds_one_by_one() -> None:
    ptx = ptx_of_rows(4096, (8, 0))
    assert ".v4.f32 [" not in "".join(line for line in ptx.splitlines() if "red" in line)
    assert len(re.findall(r"\b(?:atom|red)\.(?:global\.)?add\.f32", ptx)) == 4
    assert "ld.global.v4.f32" in ptx.replace(".nc", "")
    assert not re.search(r"\b(div|rem)\.s64|\.local", ptx)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="the assembler comes with CUDA's toolkit")
@pytest.mark.parametrize("cc", [(9, 0), (8, 0)])
def test_ptx_is_taken_by_the_assembler(cc: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "rows.ptx").write_text(ptx_of_rows(130, cc))
    done = subprocess.run(
        ["ptxas", "-v", f"-arch=sm_{cc[0]}{cc[1]}", "rows.ptx", "-o", "rows.cubin"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
