"""A device, measured: small programs of idgraph's own, each limited by one thing, timed on this machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from idgraph.errors import IdGraphError, short_repr
from idgraph.ir import DType, Fusion, Tensor
from idgraph.ir.device import Device, devices
from idgraph.ir.indexed import scatter_add
from idgraph.ir.ops import add, copy, div, exp, mul, remainder
from idgraph.runtime import emit
from idgraph.runtime.cuda.numba_cuda import available, load_cuda, microseconds
from idgraph.runtime.held import prepared
from idgraph.schedule import auto

_CHAIN: Final = 32
_ROUNDS: Final = 7


def measured(kind: Literal["cpu", "cuda"], name: str | None, size: int) -> Device:
    """See `idgraph.cost.measure_device`."""
    if kind not in ("cpu", "cuda"):
        raise IdGraphError(f"measure_device: kind is {short_repr(kind)}", hint='"cpu" or "cuda"')
    if not 1 << 14 <= size <= 1 << 30:
        raise IdGraphError(f"measure_device: size is {size}", hint="from 16384 to 1073741824 elements")
    if kind == "cuda" and not available():
        raise IdGraphError("measure_device: this machine has no CUDA device", hint='measure_device("cpu")')
    own = _Bench(kind)
    base = _limits(kind)
    launch = own.seconds(_copy(1))
    work: Callable[[float], float] = lambda seconds: max(seconds - launch, 1e-9)  # noqa: E731
    bandwidth = 8 * size / work(own.seconds(_copy(size)))
    inside = min(size, max(1024, base.cache // 32))
    cached = 8 * inside / work(own.seconds(_copy(inside)))
    few = max(1024, size // 16)
    flops = {d: few * _CHAIN * 2 / work(own.seconds(_chain(few, d))) for d in ("float32", "float64", "int64")}
    special = {d: few * 4 / work(own.seconds(_divisions(few, d))) for d in ("float32", "float64", "int64")}
    special["libm"] = few * 4 / work(own.seconds(_exponentials(few)))
    return replace(
        base, name=name or own.name(), bandwidth=bandwidth, cache_bandwidth=max(bandwidth, cached),
        launch_us=launch * 1e6, flops=flops, special=special, loads=few * 9 / work(own.seconds(_shifts(few))),
        atomics=few / work(own.seconds(_scatter(few))),
    )  # fmt: skip


class _Bench:
    """Programs timed on one kind of device."""

    def __init__(self, kind: Literal["cpu", "cuda"]) -> None:
        self.kind: Literal["cpu", "cuda"] = kind

    def name(self) -> str:
        if self.kind == "cpu":
            return platform.processor() or platform.machine() or "cpu"
        found: Any = load_cuda().get_current_device().name
        return found.decode() if isinstance(found, bytes) else str(found)

    def seconds(self, f: Fusion) -> float:
        """Seconds of one run, the best of several."""
        auto(f)
        ready = prepared(emit(f, self.kind), _inputs(f))
        ready.launch()
        if self.kind == "cuda":
            load_cuda().synchronize()
            return min(microseconds(ready.launch, 20) for _ in range(_ROUNDS)) / 1e6
        best = float("inf")
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            ready.launch()
            best = min(best, time.perf_counter() - began)
        return best


def _inputs(f: Fusion) -> Mapping[str, Any]:
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for t in f.inputs:
        shape = tuple(int(n) for n in t.shape)
        whole = t.dtype == "int64"
        most = int(f.inputs[0].shape[-1]) if t.name == "i" else 1000
        made[t.name] = draw.integers(0, most, shape) if whole else draw.random(shape).astype(t.dtype)
    return made


def _copy(n: int) -> Fusion:
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


def _divisions(n: int, dtype: DType) -> Fusion:
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


def _limits(kind: Literal["cpu", "cuda"]) -> Device:
    """The limits that the system reports: processors, cache, threads, registers, shared memory."""
    if kind == "cpu":
        return replace(devices["cpu"], processors=len(os.sched_getaffinity(0)), cache=_last_cache())
    device: Any = load_cuda().get_current_device()

    def told(name: str, otherwise: int) -> int:
        return int(getattr(device, name, otherwise) or otherwise)

    like = devices["H200"]
    major, minor = (int(n) for n in device.compute_capability)
    return replace(
        like, processors=told("MULTIPROCESSOR_COUNT", like.processors), cache=told("L2_CACHE_SIZE", like.cache),
        threads=told("MAX_THREADS_PER_MULTI_PROCESSOR", like.threads),
        registers=told("MAX_REGISTERS_PER_MULTIPROCESSOR", like.registers),
        shared=told("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", like.shared), cc=(major, minor),
    )  # fmt: skip


def _last_cache() -> int:
    """Bytes of the largest cache that the system reports, the known device's where it reports none."""
    sizes: list[int] = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text("utf-8").strip()
        except OSError:
            continue
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        if text.rstrip("KMG").isdigit():
            sizes.append(int(text.rstrip("KMG")) * scale)
    return max(sizes, default=devices["cpu"].cache)
