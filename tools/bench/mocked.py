"""The host's part of calls on a GPU, in microseconds of processor time, on a machine without one.

    python -m tools.bench.mocked [--json mocked.json]

Kernels are scheduled and lowered for CUDA and bound to torch tensors of the host; the driver is a stand-in that looks
at no argument and starts nothing (the structures of its launches are the real ones), so what is left is the work of
`ig.compile`'s calls: keys, sizes, memory, words of arguments. Each figure is the least of several windows.
"""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import idgraph as ig
from idgraph.runtime import dispatch as caller
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.cuda.launch import CudaMachine, LaunchContext
from idgraph.runtime.loaded_program import LoadedKernels
from tools.bench import calls

SIZES = tuple(range(1024, 1024 + 64 * 16, 64))


class Driver:
    """The driver's structures, and launches that do nothing."""

    def __init__(self) -> None:
        real: Any = import_module("cuda.bindings.driver")
        for name in (
            "CUlaunchAttribute",
            "CUlaunchAttributeID",
            "CUlaunchAttributeValue",
            "CUlaunchConfig",
            "CUstream",
        ):
            setattr(self, name, getattr(real, name))
        self.launches = 0

    def cuLaunchKernelEx(self, *_: Any) -> tuple[int]:
        self.launches += 1
        return (0,)

    def cuStreamIsCapturing(self, _: int) -> tuple[int, int]:
        return 0, 0

    def cuStreamSynchronize(self, _: int) -> tuple[int]:
        return (0,)


def mock() -> Driver:
    """Calls of CUDA programs with the host's tensors end in this driver, for the rest of the process."""
    driver = Driver()
    machine = CudaMachine(LaunchContext(driver, 0))

    def functions(program: LoadedKernels, checked: bool = True, device: int = 0) -> dict[str, Any]:
        found = program._functions.get((checked, device))
        if found is None:
            made: dict[str, Any] = {}
            for k in program.plan.kernels:
                kernel = DeviceKernel.__new__(DeviceKernel)
                vars(kernel).update(_driver=driver, _function=0, _waits=True)
                made[k.name] = kernel
            found = program._functions[checked, device] = made
        return found

    patched: Any = caller
    patched.calls.machine_of = lambda kind, device, overlap=True: machine
    patched.simulated, patched.need_device, patched._ON_HOST = lambda: False, lambda: None, set[str]()
    cast("Any", LoadedKernels).functions = functions
    return driver


def least(work: Callable[[], object], calls_: int = 400, windows: int = 9) -> float:
    """Microseconds of processor time of a call."""
    for _ in range(calls_):
        work()
    best = float("inf")
    for _ in range(windows):
        began = time.process_time_ns()
        for _ in range(calls_):
            work()
        best = min(best, (time.process_time_ns() - began) / 1000 / calls_)
    return best


def fresh(k: Callable[..., Any], torch: Any, first: int = 3000, count: int = 200, windows: int = 5) -> float:
    """The same of calls with sizes that were never seen."""
    best = float("inf")
    for w in range(windows):
        new = [[torch.rand(n) for _ in range(3)] for n in range(first + w * count, first + (w + 1) * count)]
        began = time.process_time_ns()
        for one in new:
            k(*one)
        best = min(best, (time.process_time_ns() - began) / 1000 / count)
    return best


def rows(torch: Any, target: str) -> dict[str, float]:
    """Microseconds by kind of call."""
    found: dict[str, float] = {}

    def rand(*shape: int) -> Any:
        return torch.rand(*shape)

    xyz = [rand(1024) for _ in range(3)]
    out = rand(1024)
    k: Any = ig.compile(calls.three(1024), cast("Any", target))
    found["one kernel, four arrays"] = least(lambda: k(*xyz))
    found["the same, out="] = least(lambda: k(*xyz, out=out))
    k = ig.compile(calls.three(None), cast("Any", target))
    sets = [[rand(n) for _ in range(3)] for n in SIZES]
    found["dynamic sizes, seen before"] = least(calls._turns(k, sets))
    found["dynamic sizes, each new"] = fresh(k, torch)
    made = ig.from_torch(calls._three, xyz)
    k = ig.compile(made, cast("Any", target))
    found["import: four arrays"] = least(lambda: k(*xyz))
    found["import: out="] = least(lambda: k(*xyz, out=out))
    both = [rand(64, 256), rand(64, 256)]
    k = ig.compile(ig.from_torch(calls._two, both), cast("Any", target))
    found["import: two kernels"] = least(lambda: k(*both))
    part = [rand(64, 256)]
    k = ig.compile(ig.from_torch(calls._views, part), cast("Any", target))
    found["import: views of the argument"] = least(lambda: k(*part))
    k, sets = calls._dynamic_import(torch, target, rand)
    found["import: dynamic sizes, seen before"] = least(calls._turns(k, sets))
    found["import: dynamic sizes, each new"] = fresh(k, torch)
    size = torch.export.Dim("n", min=2)
    made = ig.from_torch(_parts, [rand(64) for _ in range(3)], dynamic_shapes=({0: size},) * 3)
    k = ig.compile(made, cast("Any", target))
    sets = [[rand(n) for _ in range(3)] for n in range(80, 96)]
    found["import: two kernels around a sort, seen before"] = least(calls._turns(k, sets))
    found["import: two kernels around a sort, each new"] = fresh(k, torch, first=100, count=50)
    return found


def _parts(x: Any, y: Any, z: Any) -> Any:
    """Kernels before and after an operation of torch's, which takes 5 us of a hundred numbers."""
    return (x * 2 + y).sort().values * z


def main() -> None:
    """One line a row; JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cuda", choices=("cuda", "cpu"), help="cpu: real calls, nothing is mocked")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    if options.target == "cuda":
        mock()
    found = rows(torch, options.target)
    for name, us in found.items():
        print(f"{us:8.1f}  {name}")
    if options.json is not None:
        options.json.write_text(json.dumps({"unit": "us of processor time", "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
