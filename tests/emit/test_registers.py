"""Rows in registers: what the kernels compile to for sm_90; the simulator checks their values (`tests.emit.cases`)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import EmitError
from idgraph.ir import DType
from idgraph.kernel.ir import most_threads
from idgraph.runtime import Program, compile_ptx
from idgraph.schedule import KernelConfig
from idgraph.validate.oracle import evaluate
from tests.emit.row_cases import NORMS, rows, weighted_norm
from tests.emit.test_row_ptx import used_registers
from tests.emit.test_rows import arrays

pytest.importorskip("numba_cuda")
KEEP = KernelConfig(persistent=True)


def program(f: ig.Fusion, config: KernelConfig = KEEP) -> Program:
    ig.schedule.auto(f, config=config)
    return ig.emit(f, target="cuda")


def accesses(ptx: str) -> dict[str, int]:
    """Loads and stores of global memory."""
    found = {"ld": 0, "st": 0}
    for kind in re.findall(r"\b(ld|st)\.global", ptx):
        found[kind] += 1
    return found


# (form, type, columns, threads of a row, elements of one access)
READ_ONCE = [
    ("softmax", "bfloat16", 4096, 512, 8), ("softmax", "float32", 4096, 256, 4),
    ("log_softmax", "bfloat16", 1000, 32, 8),
    ("layer norm", "bfloat16", 4096, 128, 8), ("rms norm", "bfloat16", 8192, 512, 8),
    ("rms norm", "float32", 999, 128, 1),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("form", "dtype", "columns", "threads", "width"), READ_ONCE)
def test_every_element_is_read_once(
    form: str, dtype: DType, columns: int, threads: int, width: int, tmp_path: Path
) -> None:
    p = program(rows(NORMS[form], (8192, columns), dtype), KernelConfig(persistent=True, threads=threads))
    (kernel,) = p.kernels
    assert [int(n) for n in kernel.launch["threadIdx.x"]] == [threads]
    (ptx,) = compile_ptx(p)
    chunks = -(-columns // (threads * width))
    assert accesses(ptx) == {"ld": chunks, "st": chunks}
    assert ".local" not in ptx
    registers = used_registers(ptx, tmp_path / "kernel.ptx")
    assert registers * threads <= 1 << 16  # used_registers has seen that nothing spills


def test_weights_are_read_once_too() -> None:
    (ptx,) = compile_ptx(program(weighted_norm((4096, 1024), "float32"), KernelConfig(persistent=True, threads=128)))
    assert accesses(ptx) == {"ld": 3 * 2, "st": 2} and ".local" not in ptx


# (columns, type, threads of a row, registers of a thread): a tenth more than ptxas allots
WEIGHTED = [
    (4096, "bfloat16", 128, 72),
    (4096, "bfloat16", 64, 148),
    (1002, "bfloat16", 64, 40),
    (2048, "float32", 64, 76),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("columns", "dtype", "threads", "most"), WEIGHTED)
def test_loads_stay_behind_the_division_before_them(
    columns: int, dtype: DType, threads: int, most: int, tmp_path: Path
) -> None:
    """A division has a slow path, a branch: values loaded before it lie in registers across it."""
    f = weighted_norm((4096, columns), dtype)
    (ptx,) = compile_ptx(program(f, KernelConfig(persistent=True, threads=threads)))
    lines = ptx.splitlines()
    division = max(n for n, line in enumerate(lines) if re.search(r"\b(rcp|div|sqrt)\.rn", line))
    loads = [n for n, line in enumerate(lines) if "ld.global" in line]
    combined = max(n for n, line in enumerate(lines) if "bar.sync" in line or "shfl" in line)
    assert [n for n in loads if n > combined] and not [n for n in loads if combined < n < division]
    assert used_registers(ptx, tmp_path / "kernel.ptx") <= most


def test_a_row_too_long_is_read_again() -> None:
    f = rows(NORMS["softmax"], (8, 50257), "bfloat16")
    assert "kept" not in program(f, KernelConfig()).source
    with pytest.raises(EmitError, match=r"would hold \d+ values, at most"):
        program(f)
    assert "kept" not in program(rows(NORMS["softmax"], (8, 1 << 17), "bfloat16")).source  # each pass is a kernel
    assert "kept" not in program(rows(lambda x: ig.sum(x, 1), (64, 512))).source  # one pass keeps nothing


def test_a_symbolic_row_is_read_again() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4096, f.symbol("n", min=1)))
    f.output(ig.softmax(x, 1))
    assert "kept" not in program(f, KernelConfig()).source
    with pytest.raises(EmitError, match="its length n is open"):
        program(f)


def test_what_the_row_writes_is_no_value_to_keep() -> None:
    """A sum of what another sweep has stored over its own input would be another value."""
    f = rows(NORMS["layer norm"], (6, 96))
    made = program(f)
    loads = [line for line in made.source.splitlines() if "kept" in line and "= kept" in line.replace("  ", "")]
    assert loads and all("buf" not in line for line in loads)
    on_cpu = ig.emit(f, target="cpu")
    x = arrays(f)
    name = f.outputs[0].name
    np.testing.assert_allclose(on_cpu.run(x)[name], evaluate(f, x)[name], rtol=4e-6, atol=1e-6)


@pytest.mark.parametrize(("columns", "bound"), [(65536, ".maxntid 1024, 1, 1"), (512, None)])
def test_every_block_has_registers_enough(columns: int, bound: str | None, tmp_path: Path) -> None:
    """A block of 1 024 threads of 66 registers cannot be launched: the assembler is told of more threads than 256."""
    f = ig.Fusion("deviation")
    x = f.input("x", shape=(256, columns))
    away = x - ig.mean(x, 1, keepdim=True)
    f.output(ig.sqrt(ig.sum(away * away, 1)))
    ig.schedule.auto(f)
    p = ig.emit(f, target="cuda")
    (kernel,) = p.kernels
    (ptx,) = compile_ptx(p)
    assert re.findall(r"\.maxntid .*", ptx) == ([] if bound is None else [bound])
    assert used_registers(ptx, tmp_path / "kernel.ptx") * most_threads(kernel.launch) <= 1 << 16
