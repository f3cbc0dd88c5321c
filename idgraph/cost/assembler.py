"""Registers and spills, from the assembler of CUDA (`ptxas -v`), where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from idgraph.cost.kernel_costs import Assembled
from idgraph.errors import EmitError
from idgraph.ir.device import Device
from idgraph.runtime.cuda.ptx import compile_ptx
from idgraph.runtime.program import Program

_SECONDS = 120
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def find_assembler() -> str | None:
    """The path of ``ptxas``: of the CUDA toolkit, of the packages that bring one, or on the search path."""
    for folder in _folders():
        found = folder / "ptxas"
        if os.access(found, os.X_OK):
            return str(found)
    return shutil.which("ptxas")


def _folders() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "bin"
    for package, inside in (("nvidia", ("cu13/bin", "cuda_nvcc/bin")), ("triton", ("backends/nvidia/bin",))):
        spec = find_spec(package)
        for root in spec.submodule_search_locations or () if spec is not None else ():
            yield from (Path(root) / x for x in inside)


def assemble(program: Program, device: Device) -> Mapping[str, Assembled]:
    """Registers and spills by kernel; nothing for other targets, or where there is no assembler or PTX compiler."""
    ptxas = find_assembler()
    if ptxas is None or program.target != "cuda" or device.kind != "cuda":
        return {}
    try:
        texts = compile_ptx(program, cc=device.cc)
    except (EmitError, ImportError):
        return {}
    made: dict[str, Assembled] = {}
    for kernel, ptx in zip(program.kernels, texts, strict=True):
        found = assembled(ptxas, ptx, device.cc)
        if found is not None:
            made[kernel.name] = found
    return made


def assembled(ptxas: str, ptx: str, cc: tuple[int, int]) -> Assembled | None:
    """The assembler's answer for one PTX text; None where it refuses the text."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "kernel.ptx"
            source.write_text(ptx, "utf-8")
            command = [ptxas, "-v", f"-arch=sm_{cc[0]}{cc[1]}", "-o", str(Path(folder) / "kernel.cubin"), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # also where temporary files find no room
        return None
    used, spilled = _REGISTERS.search(done.stderr), _SPILLS.search(done.stderr)
    if done.returncode or used is None:
        return None
    return Assembled(int(used.group(1)), sum(map(int, spilled.groups())) if spilled is not None else 0)
