"""PTX of the GPU rows for sm_90, at their real sizes: no device is needed to see how memory is accessed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import idgraph as ig
from idgraph.runtime import compile_ptx
from tools.bench.gpu import ptx_facts
from tools.programs.gpu_rows import CASES

pytest.importorskip("numba_cuda")

# (kernels, global accesses of 16 bytes, others, registers of a thread at most)
WANTED: dict[str, tuple[int, int, int, int]] = {
    "rotation": (1, 4, 0, 32),
    "rope": (1, 16, 0, 40),
    "rope_views": (1, 16, 0, 44),
    "rope_residual": (1, 16, 0, 40),
    "rope_interleaved": (1, 2, 2, 32),  # cosines of a pair are 8 bytes
    "qkv_rope": (1, 24, 0, 40),
    "swin": (1, 2, 0, 32),
    "pixel_shuffle": (1, 1, 2, 32),  # two rows of the input interleave in one of the output
    "embedding": (1, 4, 1, 40),  # the index
    "gather": (1, 3, 4, 40),  # four elements from anywhere
    "channels_last": (1, 8, 0, 64),
}
# Instructions at most: those of 16-bit floats come in pairs.
INSTRUCTIONS = {"rope": 160, "rope_residual": 180, "qkv_rope": 260, "channels_last": 250}


OFTEN = ("rotation", "rope_residual", "qkv_rope", "swin", "pixel_shuffle", "embedding", "gather", "channels_last")


@pytest.mark.sampled
@pytest.mark.parametrize("key", [k if k in OFTEN else pytest.param(k, marks=pytest.mark.nightly) for k in WANTED])
def test_row(key: str, tmp_path: Path) -> None:
    (case,) = (c for c in CASES if c.key == key)
    f = case.build(False)
    ig.schedule.auto(f)
    program = ig.emit(f, target="cuda")
    facts = ptx_facts(program)
    kernels, wide, narrow, registers = WANTED[key]
    assert len(facts) == kernels
    assert sum(x["global16"] for x in facts) == wide
    assert sum(x["global"] - x["global16"] for x in facts) == narrow
    assert not any(x["div64"] or x["div32"] or x["local"] for x in facts)
    assert sum(x["instructions"] for x in facts) <= INSTRUCTIONS.get(key, 1000)
    for number, ptx in enumerate(compile_ptx(program)):
        assert not re.search(r"\b(mul\.hi|shr|cvt\.\w+)\.s64\b", ptx)  # nothing counts in signed 64 bits
        assert used_registers(ptx, tmp_path / f"{number}.ptx") <= registers


def used_registers(ptx: str, file: Path) -> int:
    """Registers of a thread as ptxas allots them; 0 where there is no ptxas."""
    tool = shutil.which("ptxas")
    if tool is None:
        return 0
    file.write_text(ptx, encoding="utf-8")
    command = [tool, "-arch=sm_90", "-v", str(file), "-o", str(file.with_suffix(".cubin"))]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes spill stores" in told
    return max(int(n) for n in re.findall(r"Used (\d+) registers", told))


def test_the_facts_can_see_a_64_bit_division() -> None:
    f = ig.Fusion("symbolic")
    n = f.symbol("n", min=1)
    f.output(ig.flatten(f.input("x", shape=(n, n)).T + 1.0, 0))
    ig.schedule.auto(f)
    (facts,) = ptx_facts(ig.emit(f, target="cuda"))
    assert facts["div64"] and not facts["global16"]
