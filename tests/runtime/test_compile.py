"""`ig.compile`: arrays of every kind, shapes, threads, caches, and the driver's launches without a device."""

# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false
from __future__ import annotations

import ctypes
import gc
import re
import tracemalloc
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import idgraph as ig
from idgraph.arith import as_expr
from idgraph.runtime.array_backends import NumPy
from idgraph.runtime.binding import BoundArray
from idgraph.runtime.cuda.driver import DeviceKernel
from idgraph.runtime.cuda.launch import CudaMachine, LaunchContext
from idgraph.runtime.fusion_call import scheduled
from idgraph.runtime.program import Program
from idgraph.runtime.shape_guards import GuardSpec, compile_shape_guards
from idgraph.runtime.shape_specialized import ShapeSpecialization

torch: Any = pytest.importorskip("torch")
TARGETS: Any = pytest.mark.parametrize("target", ["python", "numpy", "cpu"])


def two(dtype: Any = "float32") -> ig.Fusion:
    f = ig.Fusion("two")
    x, y = f.input("x", (4, 6), dtype), f.input("y", (4, 6), dtype)
    f.output(x * 2.0 + y, ig.sum(x, 1))
    return f


def gathers() -> ig.Fusion:
    f = ig.Fusion("g")
    x, i = f.input("x", (4, 6)), f.input("i", (4, 1), "int64")
    f.output(ig.gather(x, 1, i))
    return f


@pytest.mark.sampled
@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_callers_kind_comes_back(target: Any, dtype: str) -> None:
    k: Any = ig.compile(two(dtype), target)
    x, y = torch.randn(4, 6).to(getattr(torch, dtype)), torch.randn(4, 6).to(getattr(torch, dtype))
    a, b = k(x, y=y)
    assert a.dtype == x.dtype
    torch.testing.assert_close(a, x * 2 + y)
    torch.testing.assert_close(b, x.float().sum(1).to(x.dtype), rtol=1e-2, atol=1e-2)

    def host(t: Any) -> Any:
        return t.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if dtype == "bfloat16" else t.numpy()

    mine, _ = k(host(x), host(y))
    assert type(mine) is np.ndarray and mine.dtype == host(x).dtype
    np.testing.assert_array_equal(mine.astype(np.float64), host(a).astype(np.float64))


class Elsewhere:
    """An array of a library that speaks DLPack only."""

    def __init__(self, t: Any) -> None:
        self.t = t

    def __dlpack__(self, **options: Any) -> Any:
        return self.t.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.t.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(from_dlpack=Elsewhere)


def test_dlpack_goes_back_where_it_came_from() -> None:
    k: Any = ig.compile(two())
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    found = k(Elsewhere(x), Elsewhere(y))[0]
    assert isinstance(found, Elsewhere)
    torch.testing.assert_close(torch.as_tensor(found.t), x * 2 + y)


@TARGETS
def test_out_is_written_and_returned(target: Any) -> None:
    k: Any = ig.compile(two(), target)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    for first in (torch.empty(4, 6), torch.empty(6, 4).t(), torch.empty(8, 6)[::2], torch.empty(25)[1:].view(4, 6)):
        out = (first, torch.empty(4))
        found = k(x, y, out=out)
        assert found[0] is first
        torch.testing.assert_close(first, x * 2 + y)
        torch.testing.assert_close(out[1], x.sum(1))


def test_strides_are_copied_and_told_or_refused() -> None:
    x, y = torch.randn(6, 4).t(), torch.randn(4, 6)
    k: Any = ig.compile(two())
    with pytest.warns(
        UserWarning, match=r"input x is copied at each call: its strides are \(1, 4\), not \(6, 1\)"
    ) as told:
        found = k(x, y)[0]
    assert told[0].filename == __file__  # the user's line, not one of ours
    torch.testing.assert_close(found, x * 2 + y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        k(x, y)  # told once
    assert k.copies(x, y) == {"x": "its strides are (1, 4), not (6, 1) as declared"}
    with pytest.raises(ig.EmitError, match="input x would be copied: its strides"):
        ig.compile(two(), layout="refuse")(x, y)
    flat = torch.randn(25)
    with pytest.raises(ig.EmitError, match="it starts at an address that 16 bytes do not divide"):
        ig.compile(two(), layout="refuse")(flat[1:].view(4, 6), y)


def test_a_negated_view_is_read_as_it_is() -> None:
    x = torch.imag(torch.randn(4, 6, dtype=torch.complex64).conj())
    assert x.is_neg()
    y = torch.randn(4, 6)
    with pytest.warns(UserWarning, match="copied"):
        found = ig.compile(two())(x, y)[0]
    torch.testing.assert_close(found, x * 2 + y)


BAD: list[tuple[str, Callable[[Any, Any, Any], object]]] = [
    ("input y is missing", lambda k, x, y: k(x)),
    ("takes 2 inputs, got 3", lambda k, x, y: k(x, y, y)),
    ("input x is given twice", lambda k, x, y: k(x, x=x)),
    ("q is not an input", lambda k, x, y: k(x, y=y, q=y)),
    ("input y is a list", lambda k, x, y: k(x, [1.0])),
    ("declared float32, the array is float64", lambda k, x, y: k(x, y.double())),
    ("axis 0 is declared 4, the array has 5", lambda k, x, y: k(x, torch.randn(5, 6))),
    ("sparse", lambda k, x, y: k(x.to_sparse(), y)),
    ("on meta", lambda k, x, y: k(x, y.to("meta"))),
    ("shares memory with input x", lambda k, x, y: k(x, y, out=(x, torch.empty(4)))),
    ("has 2 outputs, out has 1", lambda k, x, y: k(x, y, out=(torch.empty(4, 6),))),
    ("out of t3 is float64", lambda k, x, y: k(x, y, out=(torch.empty(4, 6).double(), torch.empty(4)))),
]


@pytest.mark.parametrize(("words", "call"), BAD, ids=[w for w, _ in BAD])
def test_what_does_not_fit_is_refused(words: str, call: Callable[[Any, Any, Any], object]) -> None:
    with pytest.raises(ig.EmitError, match=words):
        call(ig.compile(two()), torch.randn(4, 6), torch.randn(4, 6))


@TARGETS
def test_an_index_out_of_range_raises_by_default(target: Any) -> None:
    k: Any = ig.compile(gathers(), target)
    x, i = torch.randn(4, 6), torch.tensor([[0], [5], [2], [3]])
    torch.testing.assert_close(k(x, i), x.gather(1, i))
    for args in ((x, i + 1), (x.numpy(), i.numpy() - 1)):
        with pytest.raises(ig.IndexingError, match="loaded from i is outside axis 1 of x, of extent 6"):
            k(*args)
        with pytest.raises(ig.IndexingError):
            ig.emit(gathers(), target).run(dict(zip("xi", args, strict=True)))


def rows_of(kind: str) -> tuple[ig.Fusion, Callable[[Any, Any], Any]]:
    f = ig.Fusion(kind)
    i = f.input("i", (16,), "int64")
    w = f.input("w", (50, 64), "bfloat16" if kind == "pairs" else "float32")
    rows = ig.embedding(i, w)
    if kind == "sum":
        f.output(ig.sum(rows * 2.0, 1))
        return f, lambda i, w: (w[i] * 2).sum(1)
    if kind == "two":
        j = f.input("j", (16,), "int64")
        f.output(rows + ig.embedding(j, w))
        return f, lambda i, w: w[i] + w[3]
    f.output(rows + rows if kind == "pairs" else rows)
    return f, lambda i, w: w[i] + w[i] if kind == "pairs" else w[i]


@pytest.mark.sampled
@TARGETS
@pytest.mark.parametrize("kind", ["plain", "sum", "pairs", "two"])
@pytest.mark.parametrize("bad", [-1, 50, 10**15, -(10**15)])
def test_unchecked_reads_zero_and_no_foreign_memory(target: Any, kind: str, bad: int) -> None:
    f, want = rows_of(kind)
    at, table = torch.arange(16), torch.randn(50, 64).to(torch.bfloat16 if kind == "pairs" else torch.float32)
    padded = torch.cat([table, torch.zeros(1, 64, dtype=table.dtype)])
    expected = at.clone()
    for n in (0, 5, 6, 15):
        at[n], expected[n] = bad, 50
    more = [torch.full((16,), 3)] if kind == "two" else []
    found = ig.compile(f, target, checked=False)(at, table, *more)
    torch.testing.assert_close(found, want(expected, padded), rtol=2e-2, atol=2e-2)
    with pytest.raises(ig.IndexingError, match=f"index {bad} loaded from i"):
        ig.compile(f, target)(at, table, *more)


def test_cuda_kernels_test_every_access_of_a_loaded_index() -> None:
    """In the source for CUDA, every access by a loaded index stands under its condition, checked or not."""
    for kind in ("plain", "sum", "pairs", "two"):
        program = scheduled(rows_of(kind)[0], "cuda")
        for kernel in program.kernels:
            for checked in (True, False):
                lines = program.kernel_source(kernel, checked).splitlines()
                for n, line in enumerate(lines):
                    depends = re.search(r"(load\d+\(|= .*buf1\[).*\b(ld\d\w*)", line)
                    if depends is None:
                        continue
                    name = depends.group(2)
                    near = [x for x in lines[: n + 1] if re.search(rf"if .*\b{name}\b.* < 50", x)]
                    assert near, line


def test_dynamic_sizes_and_scheduled_copies() -> None:
    f = ig.Fusion("dynamic")
    n = f.symbol("n", min=1)
    x = f.input("x", (n, 8))
    f.output(x - ig.mean(x, 1, keepdim=True))
    before = str(f)
    k: Any = ig.compile(f)
    for size in (1, 5, 700, 100_000, 5):
        t = torch.randn(size, 8)
        torch.testing.assert_close(k(t), t - t.mean(1, keepdim=True), rtol=1e-5, atol=1e-5)
    assert str(f) == before


def nothing(kind: str) -> ig.Fusion:
    f = ig.Fusion(kind)
    x = f.input("x", (0, 5) if kind != "square" else (0, 0))
    if kind == "scaled":
        f.output(x * 2.0)
    elif kind == "square":
        f.output(ig.transpose(x, 0, 1) + x)
    else:
        f.output(ig.transpose(x, 0, 1) * 2.0, ig.sum(x, 0))
    return f


@TARGETS
@pytest.mark.parametrize("kind", ["scaled", "square", "turned and summed"])
def test_tensors_without_elements(target: Any, kind: str) -> None:
    f = nothing(kind)
    x = torch.empty(tuple(int(n) for n in f.inputs[0].shape))
    found = ig.compile(f, target)(x)
    if kind == "turned and summed":
        assert found[0].shape == (5, 0) and not found[1].any() and found[1].shape == (5,)
    else:
        assert found.shape == x.shape
    scheduled(nothing(kind), "cuda")


def test_many_threads_call_at_once() -> None:
    k: Any = ig.compile(two())

    def one(seed: int) -> bool:
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(4, 6, generator=g), torch.randn(4, 6, generator=g)
        return all(bool(torch.equal(k(x, y)[0], x * 2 + y)) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(32)))


@pytest.mark.thorough
def test_ten_thousand_calls_leak_nothing() -> None:
    k: Any = ig.compile(gathers())
    x, i = torch.randn(4, 6), torch.tensor([[0], [5], [2], [3]])
    for _ in range(200):
        k(x, i)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10_000):
        k(x, i)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000


def test_machine_code_is_kept_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from idgraph.runtime.cpu import compiler as cpu_entry

    x, y = torch.randn(4, 6), torch.randn(4, 6)
    folder = tmp_path / "kernels"
    wanted = ig.compile(two(), cache=folder)(x, y)
    assert list(folder.glob("*.obj"))

    def begin() -> None:
        """As another process does."""
        cpu_entry._entry.cache_clear()
        cpu_entry._machine_code.cache_clear()

    begin()
    monkeypatch.setattr(cpu_entry, "compile_library", None)
    found = ig.compile(two(), cache=folder)(x, y)
    assert all(bool(torch.equal(a, b)) for a, b in zip(found, wanted, strict=True))
    begin()
    for kept in folder.glob("*.obj"):
        kept.write_text(kept.read_text()[:-9])  # cut short: it is made anew
    monkeypatch.undo()
    found = ig.compile(two(), cache=folder)(x, y)
    assert all(bool(torch.equal(a, b)) for a, b in zip(found, wanted, strict=True))
    folder.chmod(0o777)
    begin()
    with pytest.raises(ig.EmitError, match="others may write to the kernel cache"):
        ig.compile(two(), cache=folder)(x, y)


# the driver -----------------------------------------------------------------------------------------------------------


class Driver:
    """Notes launches, with the words that the driver would read."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.waited: list[int] = []
        self.write: Callable[[list[int]], None] = lambda words: None
        self.capture = 0
        self.memory: list[Any] = []

    def cuLaunchKernel(self, function: Any, *asked: Any) -> tuple[int]:
        *shape, stream, address, _ = asked
        pointers = (ctypes.c_uint64 * 64).from_address(address)
        words = [ctypes.c_int64.from_address(p).value for p in pointers[:function]]
        self.launches.append((tuple(shape), stream, words))
        self.write(words)
        return (0,)

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, int]:
        return 0, self.capture

    def cuStreamSynchronize(self, stream: int) -> tuple[int]:
        self.waited.append(stream)
        return (0,)

    def cuCtxSynchronize(self) -> tuple[int]:
        return (0,)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        self.memory.append(ctypes.create_string_buffer(size))
        return 0, ctypes.addressof(self.memory[-1])


class OnStream(LaunchContext):
    """A device whose caller works on stream 77."""

    def stream(self) -> int:
        return 77


def frozen(
    f: ig.Fusion, values: list[Any], driver: Driver, checked: bool = True
) -> tuple[ShapeSpecialization, Program]:
    program = ig.emit(f, "cuda")
    kernels: dict[str, Any] = {}
    for k in program.kernels:
        made = DeviceKernel.__new__(DeviceKernel)
        count = 7 * len(k.buffers) + len(k.scalars) + 7 * checked
        vars(made).update(_driver=driver, _function=count, _waits=False)
        kernels[k.name] = made
    program._functions[checked, 3] = kernels
    given = {
        t.name: BoundArray(a.shape, a.dtype.name, tuple(s // a.itemsize for s in a.strides), a)
        for t, a in zip(f.inputs, values)
    }
    return ShapeSpecialization(program, NumPy(), CudaMachine(OnStream(driver, 3)), given, None, checked), program


def test_the_drivers_words_are_addresses_of_the_callers_memory() -> None:
    f = two()
    ig.schedule.auto(f)
    x, y = np.ones((4, 6), np.float32), np.ones((4, 6), np.float32)
    driver = Driver()
    call, program = frozen(f, [x, y], driver)
    found: list[Any] = []
    for _ in range(3):
        found = call([x, y])
    assert driver.waited == [] and len(driver.launches) == 3 * len(program.kernels)
    (kernel, *_), (shape, stream, words) = program.kernels, driver.launches[-len(program.kernels)]
    assert stream == 77 and len(shape) == 7
    address = {"x": x.ctypes.data, "y": y.ctypes.data} | {
        t.name: a.ctypes.data for t, a in zip(f.outputs, found, strict=True)
    }
    for n, b in enumerate(kernel.buffers):
        assert words[7 * n : 7 * n + 7] == [0, 0, int(b.size), 4, address[b.title], int(b.size), 4]


def test_what_a_device_found_is_raised_when_its_work_is_done() -> None:
    f = gathers()
    ig.schedule.auto(f)
    x, i = np.ones((4, 6), np.float32), np.zeros((4, 1), np.int64)
    driver = Driver()
    call, _ = frozen(f, [x, i], driver)
    call([x, i])
    assert driver.waited == [77]

    def fail(words: list[int]) -> None:
        fault = (ctypes.c_int64 * 4).from_address(words[-3])
        fault[0], fault[1], fault[2] = 1, 9, 2

    driver.write = fail
    with pytest.raises(ig.IndexingError, match="index 9 loaded from i is outside axis 1 of x, of extent 6"):
        call([x, i])
    driver.write = lambda words: None
    call([x, i])  # told once
    driver.capture = 1
    waited = len(driver.waited)
    call([x, i])
    assert len(driver.waited) == waited  # nothing waits while a graph is captured
    driver.capture, fault = 0, driver.launches[-1][2]
    fail(fault)  # as a replay of the graph does
    with pytest.raises(ig.IndexingError):
        call([x, i])
    waited = len(driver.waited)
    driver.write = fail
    call([x, i], wait=False)  # no wait, so no error is raised yet
    assert len(driver.waited) == waited
    driver.write = lambda words: None
    with pytest.raises(ig.IndexingError, match="index 9"):
        call([x, i], wait=False)
    call([x, i], wait=False)
    driver.write = fail
    call([x, i], wait=False)
    with pytest.raises(ig.IndexingError, match="index 9"):
        call.launches.check(True)
    call.launches.check(True)
    quiet, _ = frozen(f, [x, i], Driver(), checked=False)
    quiet([x, i])


def test_a_call_writes_the_words_that_it_gives_and_no_others() -> None:
    driver = Driver()
    kernel = DeviceKernel.__new__(DeviceKernel)
    vars(kernel).update(_driver=driver, _function=6, _waits=False)
    launch = kernel.prepared((2,), (32,), [1, 2, 3, 4, 5, 6], places=[4, 1])
    launch((70, 80), 9)
    launch((90, 100), 0)
    lent: list[Any] = []
    other = launch.resized((3, 1, 1, 64, 1, 1), (6, 5, 4, 3, 2, 1), lent)
    other((11, 12), 0)
    again = other.resized((4, 1, 1, 64, 1, 1), (0, 0, 0, 0, 0, 7), lent)
    again((13, 14), 0)
    again((15, 16), 0)
    assert [words for _, _, words in driver.launches] == [
        [1, 80, 3, 4, 70, 6], [1, 100, 3, 4, 90, 6], [6, 12, 4, 3, 11, 1], [0, 14, 0, 0, 13, 7], [0, 16, 0, 0, 15, 7],
    ]  # fmt: skip
    assert [stream for _, stream, _ in driver.launches] == [9, 0, 0, 0, 0]


def test_a_thread_without_a_context_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from idgraph.runtime.cuda import driver as room

    made: list[str] = []
    monkeypatch.setattr(room, "load_context", lambda: made.append("context"))
    fake = SimpleNamespace(cuLaunchKernel=lambda *asked: (0 if made else 201,), cuCtxGetCurrent=lambda: (0, len(made)))
    kernel = DeviceKernel.__new__(DeviceKernel)
    vars(kernel).update(_driver=fake, _function="f", _waits=False)
    kernel.bound((1,), (32,), [7])()
    assert made == ["context"]
    made.clear()
    fake.cuCtxGetCurrent = lambda: (0, 1)
    with pytest.raises(ig.EmitError, match="failed with 201"):
        kernel.bound((1,), (32,), [7])()


# sizes that no call has had -------------------------------------------------------------------------------------------


def grid() -> ig.Fusion:
    f = ig.Fusion("grid")
    n, m = f.symbol("n", min=2, max=64), f.symbol("m", min=0)
    x, y = f.input("x", (n, m)), f.input("y", (m,))
    f.output(x + y)
    f.output(ig.sum(x, 1))
    return f


def test_new_sizes_are_laid_out_from_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = pytest.importorskip("torch")
    from idgraph.runtime import dispatch as caller

    made: list[int] = []
    whole = caller.ShapeSpecialization

    def counted(*given: Any) -> Any:
        made.append(1)
        return whole(*given)

    monkeypatch.setattr(caller, "ShapeSpecialization", counted)
    k: Any = ig.compile(grid(), "cpu")
    rng = np.random.default_rng(0)
    for n, m in ((4, 3), (5, 3), (2, 1), (64, 7), (5, 3), (3, 1)):
        x, y = (torch.from_numpy(rng.random(shape, np.float32)) for shape in ((n, m), (m,)))
        for _ in range(2):
            total, sums = k(x, y)
            torch.testing.assert_close(total, x + y)
            torch.testing.assert_close(sums, x.sum(1))
            assert total.shape == (n, m) and total.is_contiguous()
    assert len(made) == 1
    # What is not like it, or does not fit, is looked at the whole way.
    for x, y, why in (
        (torch.ones(65, 3), torch.ones(3), "symbol n = 65 is outside its declaration: 2 to 64"),
        (torch.ones(4, 3), torch.ones(4), r"axis 0 is declared 3 = m, the array has 4"),
        (torch.ones(4, 3).double(), torch.ones(3), "input x is declared float32, the array is float64"),
        (torch.ones(4, 3, 1), torch.ones(3), "2 axes declared, the array has 3"),
    ):
        with pytest.raises(ig.EmitError, match=why):
            k(x, y)
    x, y = torch.rand(7, 6).t(), torch.rand(7)
    with pytest.warns(UserWarning, match="x is copied at each call"):
        torch.testing.assert_close(k(x, y)[0], x + y)
    x = torch.rand(9, 0)
    assert k(x, torch.rand(0))[0].shape == (9, 0)
    x, y = torch.rand(9 * 5 + 1)[1:].view(9, 5), torch.rand(5)
    with pytest.warns(UserWarning, match="16 bytes do not divide"):
        torch.testing.assert_close(k(x, y)[0], x + y)
    torch.testing.assert_close(k(x, y, symbols={"n": 9})[0], x + y)
    with pytest.raises(ig.EmitError, match="axis 0 is declared 8"):
        k(x, y, symbols={"n": 8})


def test_a_launch_of_other_sizes_borrows_its_room() -> None:
    f = ig.Fusion("three")
    n = f.symbol("n", min=1)
    x, y = f.input("x", (n,)), f.input("y", (n,))
    f.output(x * 2.0 + y)
    ig.schedule.auto(f)
    driver = Driver()
    first = [np.ones(40, np.float32), np.ones(40, np.float32)]
    call, program = frozen(f, first, driver)
    others: list[Any] = [np.ones(200, np.float32), np.ones(200, np.float32)]
    keys = [NumPy().key(a) for a in first]
    shape = as_expr(f.symbols["n"])

    def whole(*_: Any) -> ShapeSpecialization:
        return call

    alike = compile_shape_guards(call, keys, GuardSpec([[shape], [shape]], (0, 1), f.symbols), whole)
    assert alike is not None
    again, small = alike([NumPy().key(a) for a in others]), alike([NumPy().key(np.ones(7, np.float32))] * 2)
    for _ in range(3):
        for made, values in ((call, first), (again, others), (small, None)):
            given: list[Any] = values or [np.ones(7, np.float32), np.ones(7, np.float32)]
            assert made is not None
            found = made(given, None, None, None, True)
            launched, _, words = driver.launches[-1]
            fresh, _ = frozen(f, given, other := Driver(), True), program
            fresh[0](given, [found[0]])
            wanted, _, told = other.launches[-1]
            assert launched == wanted and words == told
