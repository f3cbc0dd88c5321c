"""Two GPUs of one machine: every promise about devices, checked by running it on both.

    python -m tests.runtime.two_gpus --out two_gpus.json
    python -m tests.runtime.two_gpus --dry               # the checks that need no GPU, on the CPU
    NUMBA_ENABLE_CUDASIM=1 python -m tests.runtime.two_gpus --dry  # the same in numba's simulator

Each check is a function below; it raises where a promise does not hold. All run, whatever fails before; a failure is
reported with its traceback. Exit 1 if one fails.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np

import idgraph as ig
from idgraph.runtime.cuda.numba_cuda import simulated


@dataclass(frozen=True, slots=True)
class Place:
    """Where the checks run: the names of two devices, and the target of kernels for them."""

    torch: Any
    first: str
    second: str
    target: Any
    repeat: int = 300

    @property
    def both(self) -> tuple[str, str]:
        """The second device first: nothing has been made for the other one yet."""
        return self.second, self.first


@dataclass(frozen=True, slots=True)
class Found:
    """One check."""

    name: str
    about: str
    ok: bool
    seconds: float
    note: str


Check = Callable[[Place], object]
CHECKS: dict[str, tuple[Check, bool]] = {}  # by name; True: it needs two GPUs


def check(gpu: bool = True) -> Callable[[Check], Check]:
    """Enter a function into `CHECKS`."""

    def enter(work: Check) -> Check:
        CHECKS[work.__name__] = work, gpu
        return work

    return enter


# what is run ----------------------------------------------------------------------------------------------------------


def _rotation() -> ig.Fusion:
    """Half of each row moved, and a sum."""
    f = ig.Fusion("rotation")
    x, y = f.input("x", (64, 128)), f.input("y", (64, 128))
    f.output(ig.cat([x[:, 64:], x[:, :64]], dim=1) + y)
    return f


def _rotated(torch: Any, x: Any, y: Any) -> Any:
    return torch.cat([x[:, 64:], x[:, :64]], 1) + y


def _rows() -> ig.Fusion:
    """Rows of a table: indices are checked."""
    f = ig.Fusion("rows")
    i, w = f.input("i", (64,), "int64"), f.input("w", (100, 64))
    f.output(ig.embedding(i, w))
    return f


def _two(x: Any, y: Any) -> Any:
    """Two kernels, and a result that is a view."""
    return (x + y).sum(0), x.t(), x * y


def _opaque(x: Any, y: Any) -> Any:
    """Kernels before and behind operations that stay torch's."""
    return (x * 2.0).matmul(y.t() + 1.0).sort(-1)[0] * 3.0


def _pair(p: Place, device: str) -> tuple[Any, Any]:
    return tuple(p.torch.randn(64, 128, device=device) for _ in range(2))  # type: ignore[return-value]


@contextmanager
def _refused(kind: type[Exception], *words: str) -> Generator[None]:
    """The body must raise ``kind`` with these words."""
    try:
        yield
    except kind as error:
        missing = [w for w in words if w not in str(error)]
        if missing:
            raise AssertionError(f"the error does not say {missing}: {error}") from error
    else:
        raise AssertionError(f"nothing was raised, wanted {kind.__name__} with {words}")


def _near(p: Place, found: Any, wanted: Any, device: str) -> None:
    """Values and device."""
    if str(found.device) != device:
        raise AssertionError(f"the result is on {found.device}, not {device}")
    p.torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


# the promises ---------------------------------------------------------------------------------------------------------


@check(gpu=False)
def tensors_choose_the_device(p: Place) -> None:
    """Without device=, kernels run where the tensors are, whatever device is current; that one stays current."""
    k, imported = ig.compile(_rotation(), p.target), ig.compile(ig.from_torch(_two, _pair(p, p.first)), p.target)
    for device in (*p.both, p.second):
        x, y = _pair(p, device)
        _near(p, k(x, y), _rotated(p.torch, x, y), device)
        for found, wanted in zip(imported(x, y), _two(x, y), strict=True):
            _near(p, found, wanted, device)
        if device != "cpu" and p.torch.cuda.current_device() != 0:
            raise AssertionError(f"the current device is {p.torch.cuda.current_device()} after a call")


@check()
def device_by_number_and_by_torch(p: Place) -> None:
    """device= by number, by torch.device and by name says where the host's arrays go, and what tensors must be on."""
    x, y = (np.random.default_rng(0).random((64, 128), np.float32) for _ in range(2))
    tensors = _pair(p, p.second)
    for device in (1, p.torch.device(p.second), p.second):
        k = ig.compile(_rotation(), p.target, device=device)
        before = _used(p, 1)
        found = k(x, y)
        if not isinstance(found, np.ndarray):
            raise AssertionError(f"NumPy arrays gave {type(found).__name__}")
        np.testing.assert_allclose(found, _rotated(p.torch, *map(p.torch.from_numpy, (x, y))).numpy(), rtol=1e-6)
        if _used(p, 1) < before:
            raise AssertionError("the second device lost memory")
        _near(p, k(*tensors), _rotated(p.torch, *tensors), p.second)
        with _refused(ig.EmitError, f"input x is on {p.first}", f"the kernels are for {p.second}"):
            k(*_pair(p, p.first))
    imported = ig.compile(ig.from_torch(_two, _pair(p, p.first)), p.target, device=1)
    with _refused(ig.IdGraphError, f"on {p.first}", f"kernels are for {p.second}"):
        imported(*_pair(p, p.first))
    with _refused(ig.EmitError, "there is no cuda:17"):
        ig.compile(_rotation(), p.target, device=17)(x, y)


@check()
def mixed_devices_are_refused(p: Place) -> None:
    """Tensors on different devices, out= too, are refused by name, of fusions and imports."""
    x, y = _pair(p, p.second)
    k, imported = ig.compile(_rotation(), p.target), ig.compile(ig.from_torch(_two, (x, y)), p.target)
    with _refused(ig.EmitError, f"input x is on {p.second}, input y on {p.first}"):
        k(x, y.to(p.first))
    with _refused(ig.EmitError, "input x is on", "input y on cpu"):
        k(x, y.cpu())
    with _refused(ig.IdGraphError, f"on {p.second}", f"on {p.first}"):
        imported(x, y.to(p.first))
    k(x, y)
    with _refused(ig.EmitError, "out of ", f"on {p.first}", f"on {p.second}"):
        k(x, y, out=p.torch.empty(64, 128, device=p.first))
    with _refused(ig.IdGraphError, f"on {p.first}", f"on {p.second}"):
        imported(x, y, out=tuple(o.to(p.first) for o in _two(x, y)))
    scaled = ig.compile(ig.from_torch(lambda a, s: a * s, (x, p.torch.tensor(2.0))), p.target)
    _near(p, scaled(x, p.torch.tensor(3.0)), x * 3.0, p.second)  # torch takes the host's numbers anywhere


@check()
def other_arrays_on_the_second_device(p: Place) -> None:
    """Arrays of the CUDA array interface that are not torch's: kernels and results are on their device."""
    cuda, host = import_module("numba.cuda"), np.random.default_rng(0).random((64, 128), np.float32)
    k = ig.compile(_rotation(), p.target)
    for number in (1, 0, 1):
        with cuda.gpus[number]:
            x, y = cuda.to_device(host), cuda.to_device(host + 1)
        found = k(x, y)
        on = p.torch.as_tensor(found, device=f"cuda:{number}")
        _near(
            p, on, _rotated(p.torch, *(p.torch.from_numpy(a).to(on.device) for a in (host, host + 1))), str(on.device)
        )
        with cuda.gpus[number]:
            np.testing.assert_allclose(found.copy_to_host(), on.cpu().numpy())


@check()
def streams_of_the_second_device(p: Place) -> None:
    """A call is queued on the current stream of the device of its tensors, whatever device is current, behind what is
    queued there."""
    torch = p.torch
    k, (x, y) = ig.compile(_rotation(), p.target), _pair(p, p.second)
    k(x, y)
    side = torch.cuda.Stream(device=p.second)
    torch.cuda.synchronize(p.second)
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        z = x * 2
        began = time.perf_counter()
        with torch.cuda.device(p.first):
            found = k(z, y)
        if side.query():
            raise AssertionError("the stream had no work left: the check says nothing")
        if time.perf_counter() - began > 0.05:
            raise AssertionError("the call waited for the stream")
    side.synchronize()
    _near(p, found, _rotated(torch, x * 2, y), p.second)


@check(gpu=False)
def two_threads_on_two_devices(p: Place) -> None:
    """Two threads call one callable, each with tensors of its own device, from the first call on."""
    for make in (lambda: ig.compile(_rotation(), p.target), lambda: _as_rotation(p)):
        k, gate, wrong = make(), Barrier(2), list[str]()

        def work(device: str, k: Any = k, gate: Barrier = gate, wrong: list[str] = wrong) -> None:
            try:
                x, y = _pair(p, device)
                wanted = _rotated(p.torch, x, y)
                gate.wait()
                for _ in range(p.repeat):
                    _near(p, k(x, y), wanted, device)
            except BaseException:
                wrong.append(traceback.format_exc())

        threads = [Thread(target=work, args=(d,)) for d in p.both]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if wrong:
            raise AssertionError(wrong[0])


def _as_rotation(p: Place) -> Callable[..., Any]:
    """The rotation captured from torch."""
    return ig.compile(ig.from_torch(lambda x, y: _rotated(p.torch, x, y), _pair(p, p.first)), p.target)


@check()
def graphs_on_the_second_device(p: Place) -> None:
    """A call captured in a CUDA graph on the second device, replayed with other values."""
    torch = p.torch
    for k, (x, y) in ((ig.compile(_rotation(), p.target), _pair(p, p.second)), (_as_rotation(p), _pair(p, p.second))):
        k(x, y)
        with torch.cuda.device(p.second):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = k(x, y)
            x.copy_(torch.randn_like(x))
            graph.replay()
            torch.cuda.synchronize()
        _near(p, found, _rotated(torch, x, y), p.second)


@check(gpu=False)
def opaque_operations(p: Place) -> None:
    """Operations that stay torch's run on the device of the tensors, between kernels."""
    imported = ig.from_torch(_opaque, _pair(p, p.first))
    if not imported.coverage.opaque:
        raise AssertionError("nothing is opaque: the check says nothing")
    k = ig.compile(imported, p.target)
    for device in p.both:
        x, y = _pair(p, device)
        _near(p, k(x, y), _opaque(x, y), device)


@check(gpu=False)
def indices_are_checked(p: Place) -> None:
    """An index out of range on the second device raises, and calls on the first one do not."""
    torch = p.torch
    for checked in (True, "now"):
        k: Any = ig.compile(_rows(), p.target, checked=checked)
        given = {d: (torch.arange(64, device=d), torch.rand(100, 64, device=d)) for d in p.both}
        for device, (at, table) in given.items():
            _near(p, k(at, table), table[at], device)
        at, table = given[p.second]
        at[5] = 100
        with _refused(ig.IndexingError, "index 100 loaded from i is outside axis 0 of w"):
            k(at, table)
            k.check()
        at[5] = 7
        for device, (i, w) in given.items():
            _near(p, k(i, w), w[i], device)
        k.check()
    at[5] = 10**9
    quiet: Any = ig.compile(_rows(), p.target, checked=False)
    if quiet(at, table)[5].any():
        raise AssertionError("checked=False read something beside the table")


@check()
def choices_are_for_a_model(p: Place) -> None:
    """A tuner measures on the device asked for, once for a model of GPU; compiled kernels of a cache serve both."""
    names = [p.torch.cuda.get_device_name(n) for n in (0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        tuner = ig.Tuner(folder)
        k = ig.compile(_rotation(), p.target, device=1, tuner=tuner)
        x, y = _pair(p, p.second)
        _near(p, k(x, y), _rotated(p.torch, x, y), p.second)
        machines = [tuner.machine("cuda", device=n) for n in (0, 1)]
        if any(name not in m for name, m in zip(names, machines, strict=True)):
            raise AssertionError(f"choices are for {machines}, the devices are {names}")
        tuned = [tuner.tune(_rotation(), "cuda", device=n).source for n in (0, 1)]
        wanted = "memory" if names[0] == names[1] else "measured"
        if tuned != [wanted, "memory"]:
            raise AssertionError(f"{tuned} on {names}")
        if names[1] not in tuner.machine("cuda", dict(zip("xy", _pair(p, p.second), strict=True))):
            raise AssertionError("the inputs' device is not the one measured on")
        kept = len(list(Path(folder).glob("*.ptx")))
        for device in p.both:
            other = ig.compile(_rotation(), p.target, cache=folder)
            x, y = _pair(p, device)
            _near(p, other(x, y), _rotated(p.torch, x, y), device)
        same = p.torch.cuda.get_device_capability(0) == p.torch.cuda.get_device_capability(1)
        if same and len(list(Path(folder).glob("*.ptx"))) > kept + 1:
            raise AssertionError("the second device compiled again what the first one had made")


@check()
def addresses_are_checked_on_the_second_device(p: Place) -> None:
    """ig.validate with engine="cuda" while the second device is the current one."""
    f = _rotation()
    ig.schedule.auto(f)
    with p.torch.cuda.device(1):
        found = ig.validate(f, target="cuda", engine="cuda")
        if p.torch.cuda.current_device() != 1:
            raise AssertionError("the check changed the current device")
    if not found.ok or found.addresses is None or "cuda" not in found.addresses.engine:
        raise AssertionError(str(found))


@check(gpu=False)
def torch_compile_on_the_second_device(p: Place) -> None:
    """torch.compile(backend="idgraph"): a model on the second device, forward and backward; a graph of both devices."""
    torch = p.torch
    import_module("idgraph.frontends.torch_compile")  # a checkout that is not installed is not found by its name
    for device in p.both:
        torch._dynamo.reset()
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).to(device)
        other = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.LayerNorm(32)).to(device)
        other.load_state_dict(model.state_dict())
        fast, x = torch.compile(model, backend="idgraph"), torch.randn(8, 32, device=device)
        _near(p, fast(x), other(x), device)
        fast(x).square().sum().backward()
        other(x).square().sum().backward()
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            _near(p, a.grad, b.grad, device)
    if p.first == p.second:
        return
    torch._dynamo.reset()

    def moved(a: Any) -> Any:
        return (a * 2).to(p.second) + 1

    x = torch.randn(8, 32, device=p.first)
    with _warned("several devices"):
        found = torch.compile(moved, backend="idgraph")(x)
    _near(p, found, moved(x), p.second)


@contextmanager
def _warned(words: str) -> Generator[None]:
    warnings: Any = import_module("warnings")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield
    if not any(words in str(w.message) for w in told):
        raise AssertionError(f"no warning says {words!r}: {[str(w.message) for w in told]}")


@check()
def a_thousand_calls_leak_nothing(p: Place) -> None:
    """1 000 calls that alternate devices, of a fusion, an import and checked rows: memory of both devices is as before,
    and the host's objects."""
    torch = p.torch
    pairs = {d: _pair(p, d) for d in p.both}
    rows = {d: (torch.arange(64, device=d), torch.rand(100, 64, device=d)) for d in p.both}
    calls = (
        (ig.compile(_rotation(), p.target), pairs),
        (_as_rotation(p), pairs),
        (ig.compile(_rows(), p.target), rows),
    )

    def work(count: int) -> None:
        for _ in range(count):
            for k, given in calls:
                for device in p.both:
                    k(*given[device])
        for n in (0, 1):
            torch.cuda.synchronize(n)

    def state() -> tuple[int, ...]:
        gc.collect()
        return *(torch.cuda.memory_allocated(n) for n in (0, 1)), *(_used(p, n) for n in (0, 1)), len(gc.get_objects())

    work(100)
    before = state()
    work(1000)
    grown = [b - a for a, b in zip(before, state(), strict=True)]
    if any(grown[:2]) or any(abs(g) > 1 << 22 for g in grown[2:4]) or grown[4] > 200:
        raise AssertionError(f"grown by {grown} (torch's bytes, the devices' bytes, objects)")


def _used(p: Place, number: int) -> int:
    """Bytes of a device that are taken."""
    free, whole = p.torch.cuda.mem_get_info(number)
    return whole - free


# ----------------------------------------------------------------------------------------------------------------------


def run(p: Place, name: str) -> Found:
    """One check."""
    work, _ = CHECKS[name]
    began, note = time.perf_counter(), ""
    try:
        work(p)
    except Exception:
        note = traceback.format_exc(limit=-8)
    return Found(name, str(work.__doc__), not note, round(time.perf_counter() - began, 2), note)


def place(torch: Any, dry: bool = False) -> Place:
    """Two GPUs; ``dry``: the CPU twice, or numba's simulator of a GPU."""
    if not dry:
        return Place(torch, "cuda:0", "cuda:1", "cuda")
    return Place(torch, "cpu", "cpu", "cuda", 2) if simulated() else Place(torch, "cpu", "cpu", "cpu")


def main() -> None:
    """All checks, a line each; JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dry", action="store_true", help="the checks that need no GPU, on the CPU or in the simulator"
    )
    parser.add_argument("--only", help="names of checks, with commas between")
    parser.add_argument("--out", type=Path, help="write the results here, as JSON")
    options = parser.parse_args()
    torch: Any = import_module("torch")
    if not options.dry and torch.cuda.device_count() < 2:
        sys.exit(f"this machine has {torch.cuda.device_count()} CUDA devices, two are needed")
    names = (
        options.only.split(",") if options.only else [n for n, (_, gpu) in CHECKS.items() if not (gpu and options.dry)]
    )
    found: list[Found] = []
    for name in names:
        found.append(run(place(torch, options.dry), name))
        print(f"{'ok' if found[-1].ok else 'FAILED':6}  {found[-1].seconds:6.1f} s  {name}\n{found[-1].note}", end="")
        sys.stdout.flush()
    devices = [] if options.dry else [torch.cuda.get_device_name(n) for n in (0, 1)]
    if options.out is not None:
        facts = {"devices": devices, "torch": str(torch.__version__), "python": sys.version.split()[0]}
        options.out.write_text(json.dumps({**facts, "checks": [asdict(f) for f in found]}, indent=1) + "\n")
    print(f"{sum(f.ok for f in found)} of {len(found)} hold on {', '.join(devices) or 'the CPU'}")
    sys.exit(not all(f.ok for f in found))


if __name__ == "__main__":
    main()
