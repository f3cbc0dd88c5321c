"""The cost of a call on the host, in microseconds: idgraph's callable beside torch's eager call and torch.compile's.

    python -m tools.bench.calls --device cpu
    python -m tools.bench.calls --device cuda --json calls.json
    python -m tools.bench.calls --device mocked       # the host's part of calls on a GPU, on a machine without one

The work is small, so that the call is what is measured. Each figure is the shortest of several windows of calls; on a
GPU the calls of a window are queued, and a window ends when they are done. Dynamic rows call with another size each
time, of sizes seen before; torch.compile is asked for dynamic sizes there. "each new" are sizes never seen.

Mocked: kernels are scheduled and lowered for CUDA and bound to torch tensors of the host; the driver is a stand-in that
looks at no argument and starts nothing (the structures of its launches are the real ones), so what is left is the work
of `ig.compile`'s calls: keys, sizes, memory, words of arguments. The clock is the processor's then, values are not
compared, and nothing else takes part.
"""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, cast

import idgraph as ig
from idgraph.runtime import dispatch
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.cuda.launch import CudaMachine, LaunchContext
from idgraph.runtime.loaded_program import LoadedKernels
from tools.bench import report

SIZES = tuple(range(1024, 1024 + 64 * 16, 64))


@dataclass(slots=True)
class Row:
    """One kind of call: microseconds by who is called."""

    name: str
    us: dict[str, float] = field(default_factory=dict[str, float])
    ok: bool = True


# a driver that does nothing -------------------------------------------------------------------------------------------


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

    patched: Any = dispatch
    patched.calls.machine_of = lambda kind, device, overlap=True: machine
    patched.simulated, patched.need_device, patched._ON_HOST = lambda: False, lambda: None, set[str]()
    cast("Any", LoadedKernels).functions = functions
    return driver


# what is called -------------------------------------------------------------------------------------------------------


def three(n: Any) -> ig.Fusion:
    """One kernel of four arrays."""
    f = ig.Fusion("three")
    size = f.symbol("n", min=1) if n is None else n
    x, y, z = (f.input(name, (size,)) for name in "xyz")
    f.output(x * 2.0 + y - z)
    return f


def norm() -> ig.Fusion:
    """A row of sums and one of values."""
    f = ig.Fusion("norm")
    x = f.input("x", (64, 256))
    f.output(x - ig.mean(x, 1, keepdim=True))
    return f


def rows_of() -> ig.Fusion:
    """Gathered rows: a checked call looks at what failed."""
    f = ig.Fusion("embedding")
    i, w = f.input("i", (64,), "int64"), f.input("w", (1000, 64))
    f.output(ig.embedding(i, w))
    return f


def _three(x: Any, y: Any, z: Any) -> Any:
    return x * 2.0 + y - z


def _norm(x: Any) -> Any:
    return x - x.mean(1, keepdim=True)


def _sorted(x: Any, y: Any, z: Any) -> Any:
    """Kernels before and after an operation of torch's, which takes 5 us of a hundred numbers."""
    return (x * 2 + y).sort().values * z


def _tuple(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def _two(x: Any, y: Any) -> Any:
    s = (x * y).sum(0)
    return x - s, y + s.sum()


def _rows(w: Any, i: Any) -> Any:
    return w[i] * 2.0


def _views(x: Any) -> Any:
    return x[:, :128], x[:, 128:].t(), x * 2.0


# who is called --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """How rows are measured: where, by which clock, and beside whom."""

    torch: Any
    device: str  # of the tensors
    target: Any
    calls: int
    mocked: bool
    compiled: bool

    def rand(self, *shape: int) -> Any:
        """Random numbers on the device."""
        return self.torch.rand(*shape, device=self.device)

    def wait(self) -> None:
        """Until a GPU has done what was queued."""
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def shortest(self, work: Callable[[], object]) -> float:
        """Microseconds of one call, in the shortest window."""
        clock, best = time.process_time_ns if self.mocked else time.perf_counter_ns, float("inf")
        for _ in range(self.calls):  # caches, clocks and allocators are warm
            work()
        for _ in range(15):
            self.wait()
            began = clock()
            for _ in range(self.calls):
                work()
            self.wait()
            best = min(best, (clock() - began) / 1000 / self.calls)
        return best

    def row(self, name: str, call: Callable[..., Any], eager: Callable[..., Any], sets: Sequence[list[Any]]) -> Row:
        """One kind of call, with each of ``sets`` of arguments in turn."""
        row = Row(name)
        others = {} if self.mocked else {"eager": eager}
        if self.compiled and not self.mocked:
            others["compile"] = self.torch.compile(eager, dynamic=True if len(sets) > 1 else None)
        if not self.mocked:
            pairs = (zip(_tuple(call(*x)), _tuple(eager(*x)), strict=True) for x in sets)
            row.ok = all(bool(self.torch.allclose(a, b, rtol=1e-4, atol=1e-4)) for p in pairs for a, b in p)
        row.us = {who: self.shortest(_turns(f, sets)) for who, f in {"idgraph": call, **others}.items()}
        return row

    def fresh(self, name: str, call: Callable[..., Any], first: int = 3000, count: int = 200) -> Row:
        """Calls with sizes that were never seen."""
        clock, best = time.process_time_ns if self.mocked else time.perf_counter_ns, float("inf")
        for w in range(5 if self.mocked else 1):
            new = [[self.rand(n) for _ in range(3)] for n in range(first + w * count, first + (w + 1) * count)]
            began = clock()
            for one in new:
                call(*one)
            best = min(best, (clock() - began) / 1000 / count)
        return Row(name, {"idgraph": best})


def _turns(call: Callable[..., Any], sets: Sequence[list[Any]]) -> Callable[[], object]:
    """Calls with the next arguments each time, all of them seen before."""
    if len(sets) == 1:
        (one,) = sets
        return lambda: call(*one)
    state = [0]

    def work() -> object:
        state[0] = (state[0] + 1) % len(sets)
        return call(*sets[state[0]])

    for one in sets:
        call(*one)
    return work


def rows(b: Bench) -> Iterator[Row]:
    """All kinds of calls."""
    xyz, sets = [b.rand(1024) for _ in range(3)], [[b.rand(n) for _ in range(3)] for n in SIZES]
    table, at = b.rand(1000, 64), b.torch.randint(0, 1000, (64,), device=b.device)
    yield b.row("one kernel, four arrays", ig.compile(three(1024), b.target), _three, [xyz])
    yield b.row("norm 64 x 256", ig.compile(norm(), b.target), _norm, [[b.rand(64, 256)]])
    lookup = b.torch.nn.functional.embedding
    for checked in () if b.mocked else (True, False):  # the stand-in has no memory for what a check found
        k: Any = ig.compile(rows_of(), b.target, checked=checked)
        yield b.row(f"embedding 64 of 1000 x 64{'' if checked else ', checked=False'}", k, lookup, [[at, table]])
    k = ig.compile(three(None), b.target)
    yield b.row("dynamic sizes, four arrays", k, _three, sets)
    yield b.fresh("dynamic sizes, each made for the first time", k)
    yield from imports(b, xyz, sets, [table, at])


def imports(b: Bench, xyz: list[Any], sets: Sequence[list[Any]], looked: list[Any]) -> Iterator[Row]:
    """Functions of torch's as `from_torch` captures them: the user's way."""

    def made(f: Callable[..., Any], given: list[Any], least: int = 0) -> Any:
        size = b.torch.export.Dim("n", min=least, max=1 << 20) if least else None
        shapes = ({0: size},) * 3 if least else None
        return ig.compile(ig.from_torch(f, given, dynamic_shapes=shapes), b.target)

    imported = ig.from_torch(_three, xyz)
    k: Any = ig.compile(imported, b.target)
    out = b.rand(1024)
    yield b.row("import: four arrays", k, _three, [xyz])
    yield b.row("import: four arrays, out=", lambda *args: k(*args, out=out), _three, [xyz])
    run = imported.run
    yield b.row("import: four arrays, imp.run", lambda *args: run(*args, target=b.target), _three, [xyz])
    both, part = [b.rand(64, 256), b.rand(64, 256)], [b.rand(64, 256)]
    yield b.row("import: two kernels", made(_two, both), _two, [both])
    if not b.mocked:
        yield b.row("import: embedding", made(_rows, looked), _rows, [looked])
    yield b.row("import: views of the argument", made(_views, part), _views, [part])
    k = made(_three, sets[0], 2)
    yield b.row("import: dynamic sizes, four arrays", k, _three, sets)
    yield b.fresh("import: dynamic sizes, each made for the first time", k)
    short = [[b.rand(n) for _ in range(3)] for n in range(80, 96)]
    k = made(_sorted, short[0], 2)
    yield b.row("import: two kernels around a sort", k, _sorted, short)
    yield b.fresh("import: two kernels around a sort, each made for the first time", k, first=100, count=50)


def main() -> None:
    """One table, JSON."""
    parser = report.arguments(__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, mocked, or a device of torch's")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--no-compile", action="store_true", help="no torch.compile (it needs a C++ compiler)")
    options = parser.parse_args()
    torch: Any = import_module("torch")
    mocked, host = options.device == "mocked", options.device in ("cpu", "mocked")
    if mocked:
        torch.set_num_threads(1)
        mock()
    device = "cpu" if host else options.device
    target = "cpu" if options.device == "cpu" else "cuda"
    found = list(rows(Bench(torch, device, target, options.calls, mocked, not options.no_compile)))
    what = f"{options.device}, {os.cpu_count()} cores" if host else torch.cuda.get_device_name(device)
    who = ("idgraph", "eager", "compile")
    shown = ((r.name, "ok" if r.ok else "WRONG", *(f"{r.us[w]:.1f}" if w in r.us else "-" for w in who)) for r in found)
    title = f"microseconds of a call; {what}, load {os.getloadavg()[0]:.1f}"
    report.show(title, ("call", "values", *who), shown, 120)
    facts = {"device": what, "load": os.getloadavg()[0], "torch": str(torch.__version__)}
    report.write(options.json, {**facts, "rows": [asdict(r) for r in found]})


if __name__ == "__main__":
    main()
