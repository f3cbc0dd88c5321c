"""A device, measured: small programs of idgraph's own, each limited by one thing, timed on this machine.

Registers and spills, from the assembler of CUDA (`ptxas -v`), where there is one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from idgraph.cost.access_sites import sites_of
from idgraph.cost.cpu_model import scalar_steps
from idgraph.cost.report import Assembled
from idgraph.errors import EmitError, IdGraphError, short_repr
from idgraph.ir import DType, Fusion, Tensor
from idgraph.ir.device import Device, devices
from idgraph.ir.op_table import apply
from idgraph.ir.ops_index import scatter_add
from idgraph.ir.ops_pointwise import add, copy, div, exp, mul, remainder
from idgraph.ir.ops_view import roll
from idgraph.runtime import emit
from idgraph.runtime.cpu.namespace import load_numba
from idgraph.runtime.cuda.compiler import compile_ptx
from idgraph.runtime.cuda.numba_cuda import available, load_cuda, microseconds
from idgraph.runtime.program import Program
from idgraph.runtime.tuning.trial import prepare_launch
from idgraph.schedule import auto

_CHAIN: Final = 32
_ROUNDS: Final = 7
_LEAST: Final = 1e-9  # seconds
_FLOATS: Final[tuple[DType, ...]] = ("float32", "float64")
_TIMED: Final = 1 << 18  # bytes of a cache that can be timed beside a launch; a smaller one counts as fast as the next
_FUNCTIONS: Final = ("exp", "sigmoid", "tanh", "erf")  # which idgraph computes for float32 in vectors on a CPU


def measured(kind: Literal["cpu", "cuda"], name: str | None, size: int) -> Device:
    """See `idgraph.cost.measure_device`."""
    if kind not in ("cpu", "cuda"):
        raise IdGraphError(f"measure_device: kind is {short_repr(kind)}", hint='"cpu" or "cuda"')
    if not 1 << 14 <= size <= 1 << 30:
        raise IdGraphError(f"measure_device: size is {size}", hint="from 16384 to 1073741824 elements")
    if kind == "cuda" and not available():
        raise IdGraphError("measure_device: this machine has no CUDA device", hint='measure_device("cpu")')
    own, base = _Bench(kind), _system_limits(kind)
    launch = own.seconds(_copy_fusion(1))
    bandwidth = 8 * size / max(own.seconds(_copy_fusion(size)) - launch, _LEAST)
    inside = min(size, max(1024, base.cache // 32))
    own.alone(base.processors)
    cached = 8 * inside / own.work(_copy_fusion(inside))
    few = max(1024, size // 16)
    rates: dict[str, Any] = {
        "flops": {d: few * _CHAIN * 2 / own.work(_chain(few, d)) for d in ("float32", "float64", "int64")},
        "special": {d: few * 4 / own.work(_division_fusion(few, d)) for d in ("float32", "float64", "int64")},
        "loads": few * 9 / own.work(_shifts(few)), "atomics": few / own.work(_scatter(few)),
    }  # fmt: skip
    if kind == "cuda":
        rates["special"]["libm"] = few * 4 / own.work(_exponentials(few))
    else:
        rates["special"] |= _functions(own, max(1024, size // 256))
        rates |= _of_cores(own, few, base, cached)
    return replace(
        base, name=name or own.name(), bandwidth=bandwidth, cache_bandwidth=max(bandwidth, cached),
        launch_us=launch * 1e6, **rates,
    )  # fmt: skip


def _functions(own: _Bench, n: int) -> dict[str, float]:
    """Functions of a CPU by name and type, two in one loop, and those of a library."""
    made = {f"{op} {d}": 2 * n / own.work(_twice(op, n, d)) for op in _FUNCTIONS for d in _FLOATS}
    more = {"exp32 float32": made["exp float32"], "libm float64": made["exp float64"]}
    return {**made, **more, "libm": 2 * n / own.work(_twice("log", n, "float32"))}


def _of_cores(own: _Bench, n: int, base: Device, cached: float) -> dict[str, Any]:
    """The rates that only a CPU has, and its caches."""
    levels = list[tuple[int, float]]()
    for size, _ in reversed(base.levels):
        near, count = levels[0][1] if levels else cached, max(1024, size // base.processors // 16)
        copied = 8 * count / own.work(_copy_fusion(count)) if size >= _TIMED else 0.0
        levels.insert(0, (size, max(near, copied)))
    f = _roll(max(1024, n // 16))
    steps = sum(scalar_steps(sites_of(k, {}), devices["cpu"]) for k in _emitted(f).kernels)
    return {"scalar": steps / own.work(f), "levels": tuple(levels)}


def _emitted(f: Fusion) -> Program:
    auto(f)
    return emit(f, "cpu")


class _Bench:
    """Programs timed on one kind of device."""

    def __init__(self, kind: Literal["cpu", "cuda"]) -> None:
        self.kind: Literal["cpu", "cuda"] = kind
        self.cores, self.launch = 0, 0.0

    def alone(self, processors: int) -> None:
        """From now on a CPU's programs run on one core, in processor time, which other work does not add to, and count
        as if on all: neither arithmetic nor caches are shared but for the last one, which is large enough for all."""
        self.cores = processors if self.kind == "cpu" else 0
        self.launch = self.seconds(_copy_fusion(1))

    def work(self, f: Fusion) -> float:
        """Seconds of one run without its launch."""
        return max(self.seconds(f) - self.launch, _LEAST)

    def name(self) -> str:
        if self.kind == "cpu":
            return platform.processor() or platform.machine() or "cpu"
        found: Any = load_cuda().get_current_device().name
        return found.decode() if isinstance(found, bytes) else str(found)

    def seconds(self, f: Fusion) -> float:
        """Seconds of one run, the best of several."""
        auto(f)
        ready = prepare_launch(emit(f, self.kind), _inputs(f))
        ready.launch()
        if self.kind == "cuda":
            load_cuda().synchronize()
            return min(microseconds(ready.launch, 20) for _ in range(_ROUNDS)) / 1e6
        numba, clock = load_numba(), time.thread_time if self.cores else time.perf_counter
        threads, best = int(numba.get_num_threads()), float("inf")
        try:
            numba.set_num_threads(1 if self.cores else threads)
            for _ in range(_ROUNDS):
                began = clock()
                ready.launch()
                best = min(best, clock() - began)
        finally:
            numba.set_num_threads(threads)
        return best / max(1, self.cores)


def _inputs(f: Fusion) -> Mapping[str, Any]:
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        whole = t.dtype == "int64"
        most = int(f.inputs[0].shape[-1]) if t.name == "i" else 1000
        made[t.name] = draw.integers(0, most, shape) if whole else draw.random(shape).astype(t.dtype)
    return made


def _copy_fusion(n: int) -> Fusion:
    f = Fusion("copy")
    f.output(copy(f.input("x", (n,))))
    return f


def _chain(n: int, dtype: DType) -> Fusion:
    f = Fusion("chain")
    x = f.input("x", (n,), dtype)
    y: Tensor = x
    for _ in range(_CHAIN):
        y = add(mul(y, x), x)
    f.output(y)
    return f


def _exponentials(n: int) -> Fusion:
    f = Fusion("exp")
    y: Tensor = f.input("x", (n,))
    for _ in range(4):
        y = exp(mul(y, -0.5))
    f.output(y)
    return f


def _twice(op: str, n: int, dtype: DType) -> Fusion:
    f = Fusion(op)
    x = apply(f, op, (f.input("x", (n,), dtype),))
    f.output(apply(f, op, (add(x, 1.0),)))
    return f


def _roll(n: int) -> Fusion:
    """Each element's place is a quotient and a rest, so no vector unit helps."""
    f = Fusion("roll")
    f.output(roll(f.input("x", (n // 253, 253)), 3, 1))
    return f


def _division_fusion(n: int, dtype: DType) -> Fusion:
    f = Fusion("division")
    x, m = f.input("x", (n,), dtype), f.input("m", (n,), dtype)
    divide = remainder if dtype == "int64" else div
    y: Tensor = x
    for k in range(4):
        y = divide(add(y, 1000 + k), add(m, 7))
    f.output(y)
    return f


def _shifts(n: int) -> Fusion:
    f = Fusion("shifts")
    x = f.input("x", (n + 8,))
    y = x[:n]
    for k in range(1, 8):
        y = add(y, x[k : n + k])
    f.output(y)
    return f


def _scatter(n: int) -> Fusion:
    f = Fusion("scatter")
    shape = (n // 1024, 1024)
    x, i, s = f.input("x", shape), f.input("i", shape, "int64"), f.input("s", shape)
    f.output(scatter_add(x, 1, i, s))
    return f


def _system_limits(kind: Literal["cpu", "cuda"]) -> Device:
    """The limits that the system reports: processors, cache, threads, registers, shared memory."""
    if kind == "cpu":
        own, last = caches()
        count = min(len(os.sched_getaffinity(0)), int(load_numba().get_num_threads()))
        return replace(
            devices["cpu"], processors=count, cache=last, levels=tuple((n * count, 1.0) for n in own if n < last)
        )
    device: Any = load_cuda().get_current_device()

    def reported(name: str, otherwise: int) -> int:
        return int(getattr(device, name, otherwise) or otherwise)

    like = devices["H200"]
    major, minor = (int(n) for n in device.compute_capability)
    return replace(
        like, processors=reported("MULTIPROCESSOR_COUNT", like.processors), cache=reported("L2_CACHE_SIZE", like.cache),
        threads=reported("MAX_THREADS_PER_MULTI_PROCESSOR", like.threads),
        registers=reported("MAX_REGISTERS_PER_MULTIPROCESSOR", like.registers),
        shared=reported("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", like.shared), cc=(major, minor),
    )  # fmt: skip


def caches() -> tuple[list[int], int]:
    """Bytes of a processor's own caches of data, the smallest first, and of the largest cache, as the system reports
    them; the known device's where it reports none."""
    sizes: set[int] = set()
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text, kind = path.read_text("utf-8").strip(), path.with_name("type").read_text("utf-8").strip()
        except OSError:
            continue
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        if text.rstrip("KMG").isdigit() and kind != "Instruction":
            sizes.add(int(text.rstrip("KMG")) * scale)
    last = max(sizes, default=devices["cpu"].cache)
    return sorted(sizes - {last}), last


_SECONDS = 120
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


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
    frame, stores, loads = map(int, spilled.groups()) if spilled is not None else (0, 0, 0)
    return Assembled(int(used.group(1)), max(frame, stores + loads))
