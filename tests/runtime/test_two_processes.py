"""Machine code and PTX under one folder: a second process compiles nothing and computes the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hashlib, json, sys
import numpy as np
import idgraph as ig
from idgraph.runtime import compile_ptx
from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cuda import compiler as cuda_ptx

folder, scales = sys.argv[1], [float(s) for s in sys.argv[2:]]
made = []
def counted(module, name, what):
    inner = getattr(module, name)
    def count(*given):
        made.append(what)
        return inner(*given)
    setattr(module, name, count)
counted(cpu_entry, "compile_library", "cpu")
counted(cuda_ptx, "ptx_of", "ptx")

def pointwise(rows, scale):
    f = ig.Fusion("pointwise")
    x = f.input("x", (rows, 64))
    f.output(ig.exp(x * scale) + 1.0)
    return f, {"x": np.linspace(-1, 1, rows * 64, dtype=np.float32).reshape(rows, 64)}

def rows():
    f = ig.Fusion("rows")
    f.output(ig.softmax(f.input("x", (64, 300)), 1))
    return f, {"x": np.linspace(-1, 1, 64 * 300, dtype=np.float32).reshape(64, 300)}

def gathers():
    f = ig.Fusion("gathers")
    x, i = f.input("x", (4, 6)), f.input("i", (4, 1), "int64")
    f.output(ig.gather(x, 1, i))
    return f, {"x": np.arange(24, dtype=np.float32).reshape(4, 6), "i": np.array([[0], [5], [2], [3]])}

def digest(f, inputs):
    found = hashlib.sha256()
    ig.schedule.auto(f)
    for checked in (True, False):
        for value in ig.emit(f, "cpu", cache=folder).run(inputs, checked=checked).values():
            found.update(value.tobytes())
    for text in compile_ptx(ig.emit(f, "cuda", cache=folder)):
        found.update(text.encode())
    return found.hexdigest()

each = [digest(*pointwise(rows, scale)) for scale in scales for rows in (8, 4096)]
others = [digest(*rows()), digest(*gathers())]
print(json.dumps([made.count("cpu"), made.count("ptx"), each + others]))
"""


def run(folder: Path, *scales: float) -> tuple[int, int, list[str]]:
    """Kernels compiled for the CPU and to PTX in a process of its own; digests of results and texts."""
    command = [sys.executable, "-c", PROGRAM, str(folder), *map(str, scales)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    cpu, ptx, digests = json.loads(done.stdout)
    return cpu, ptx, digests


@pytest.mark.thorough
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    cpu, ptx, half = run(tmp_path, 0.5)
    assert cpu >= 4
    assert ptx >= 4
    # Another constant is another kernel, whose machine code has the place in its process that the first had in its.
    again, texts, quarter = run(tmp_path, 0.25)
    assert 0 < again < cpu
    assert texts == 2
    assert not {*half[:2]} & {*quarter[:2]}
    assert quarter[2:] == half[2:]
    assert run(tmp_path, 0.5, 0.25) == (0, 0, half[:2] + quarter)
