"""Other processes compile kernels; what they cannot compile is compiled here, and values are the same."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from time import sleep
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.frontends import callable_import as early_compilation
from idgraph.runtime import Program, compile_ptx, fusion_call
from idgraph.runtime.compile_workers import POOL, STARTING, limit_workers
from idgraph.runtime.cpu import compiler as cpu
from idgraph.runtime.cpu.trampoline import make_trampoline
from idgraph.runtime.cuda import compiler as cuda

KERNELS = 6


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that compiles, and no folder of kernels."""

    def nowhere(program: object) -> None:
        """Instead of a program's cache."""

    monkeypatch.setattr(cpu, "cache_of", nowhere)
    monkeypatch.setattr(cuda, "cache_of", nowhere)
    POOL.__init__(1)
    yield
    # what was submitted and never asked for, and threads that serve nothing, stay out of the next test
    waiting: dict[Any, Any] = POOL._jobs  # pyright: ignore[reportPrivateUsage]
    for job in waiting.values():
        if job.started:
            job.done.wait(60)
    POOL.__init__(0)


def wait_for_process(begun: int = 1) -> None:
    """Until it has ``begun`` with so many jobs."""
    for _ in range(6000):
        if all(job.started for job in list(POOL._jobs.values())[:begun]):  # pyright: ignore[reportPrivateUsage]
            return
        sleep(0.01)
    raise AssertionError("no process began in a minute")


def programs(scale: float, target: Any = "cpu") -> list[Program]:
    """Distinct kernels: each has its own number."""
    made: list[Program] = []
    for n in range(KERNELS):
        f = ig.Fusion("f")
        f.output(ig.exp(f.input("x", shape=(8, 40)) * (scale + n)))
        ig.schedule.auto(f, device="cpu" if target == "cpu" else "H200")
        made.append(ig.emit(f, target))
    return made


def check_values(made: list[Program], scale: float) -> None:
    x = np.linspace(-1, 1, 320, dtype=np.float32).reshape(8, 40)
    for n, p in enumerate(made):
        (found,) = p.run({"x": x}).values()
        np.testing.assert_allclose(found, np.exp(x * np.float32(scale + n)), rtol=2e-6)


def compiled_here(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What this process compiles from now on."""
    here: list[object] = []
    inner = cpu.compile_library

    def counted(*given: Any) -> Any:
        here.append(given)
        return inner(*given)

    monkeypatch.setattr(cpu, "compile_library", counted)
    return here


def test_kernels_are_compiled_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made, before = programs(0.125), POOL.compiled
    for p in made:
        early_compilation.start_compiling(p, True)
    wait_for_process()
    here = compiled_here(monkeypatch)
    check_values(made, 0.125)
    there = POOL.compiled - before
    assert there > 0 and there + len(here) == KERNELS


def test_this_process_takes_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    made = programs(0.375)

    def idle(kind: object) -> None:
        """No process begins with anything."""

    monkeypatch.setattr(POOL, "_serve", idle)
    for p in made:
        early_compilation.start_compiling(p, True)
    here = compiled_here(monkeypatch)
    early_compilation.share_compiling(made, True)
    assert here
    check_values(made, 0.375)


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program"])
def test_a_process_that_ends_or_never_starts_costs_nothing(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)
    made = programs(0.625 + len(program))
    for p in made:
        early_compilation.start_compiling(p, True)
    check_values(made, 0.625 + len(program))


def test_a_copy_of_the_process_waits_for_nothing() -> None:
    made = programs(0.875)
    for p in made:
        early_compilation.start_compiling(p, True)
    key = next(cpu_bodies(made))  # before the fork: a copy has locks that no thread of its own gives free
    child = os.fork()
    if not child:
        os._exit(int(POOL.take(key) is not None))
    assert os.waitpid(child, 0)[1] == 0


def cpu_bodies(made: list[Program]) -> Iterator[cpu.CompileKey]:
    for p in made:
        for k in p.functions(True).values():
            assert isinstance(k, cpu.LazyKernel)
            yield k.body()[0]


def test_ptx_of_another_process_is_the_same() -> None:
    made = programs(0.25, "cuda")
    for p in made:
        cuda.submit(p, False, (9, 0))
    wait_for_process()
    before = POOL.compiled
    found = [compile_ptx(p) for p in made]
    assert POOL.compiled > before
    limit_workers(0)
    here = [compile_ptx(p) for p in programs(0.25, "cuda")]
    assert [plain(t) for p in found for t in p] == [plain(t) for p in here for t in p]


def gathers(count: int) -> list[ig.Fusion]:
    """Distinct fusions, each with an index that a call checks."""
    made: list[ig.Fusion] = []
    for n in range(count):
        f = ig.Fusion("f")
        x, i = f.input("x", shape=(40 + n, 24)), f.input("i", shape=(16,), dtype="int64")
        f.output(ig.softmax(ig.index_select(x * 2.0, 0, i), dim=-1))
        made.append(f)
    return made


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_programs_of_another_process_are_the_same(monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    here: list[object] = []
    inner = fusion_call.auto

    def counted(*given: Any, **named: Any) -> Any:
        here.append(given)
        return inner(*given, **named)

    monkeypatch.setattr(fusion_call, "auto", counted)
    alone = [fusion_call.scheduled(f, target) for f in gathers(KERNELS)]
    assert len(here) == KERNELS
    fusions = gathers(KERNELS)
    fusion_call.submit_fusions(fusions, target, None)
    wait_for_process(2)
    made = [fusion_call.scheduled(f, target) for f in fusions]
    assert KERNELS <= len(here) <= 2 * KERNELS - 2
    assert [p.source for p in made] == [p.source for p in alone]
    assert [str(p.fusion.decisions) for p in made] == [str(p.fusion.decisions) for p in alone]


def test_a_program_of_another_process_names_the_users_line() -> None:
    fusions = gathers(STARTING)
    fusion_call.submit_fusions(fusions, "cpu", None)
    wait_for_process()
    made = fusion_call.scheduled(fusions[-1], "cpu")
    x, i = np.zeros((40 + STARTING - 1, 24), np.float32), np.full(16, 99)
    with pytest.raises(ig.IndexingError, match=r"test_compile_workers\.py:\d+: f\.output\(ig\.softmax"):
        made.run({"x": x, "i": i})


def test_what_another_process_cannot_make_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlike(fusion: ig.Fusion, _: object) -> dict[str, object]:
        return {"target": "program", "of": "cpu", "fusion": str(fusion)}

    monkeypatch.setattr(fusion_call, "_request", unlike)
    fusions = gathers(STARTING)
    fusion_call.submit_fusions(fusions, "cpu", None)
    wait_for_process()
    made = [fusion_call.scheduled(f, "cpu").source for f in fusions]
    monkeypatch.undo()
    limit_workers(0)
    assert made == [fusion_call.scheduled(f, "cpu").source for f in gathers(STARTING)]


def plain(text: str) -> list[str]:
    """The instructions; a function's name has a number that counts what its process has compiled."""
    return [re.sub(r"_Z\w+", "name", line) for line in text.splitlines()]


@pytest.mark.parametrize("count", [-1, 1.5, True, "two"])
def test_a_number_of_processes_is_a_whole_number(count: Any) -> None:
    with pytest.raises(ig.EmitError, match="processes that compile"):
        limit_workers(count)


def test_machine_code_of_two_processes_keeps_its_own_names() -> None:
    """Two kernels of one name and signature, compiled by two fresh processes and loaded into this one, which finds code
    by name, and again when a kernel first runs on all cores: each runs its own."""
    loaded: list[tuple[str, Any]] = []
    types: Any = import_module("numba.core.types")
    with import_module("numba.core.compiler_lock").global_compiler_lock:
        for number in (3.0, 5.0):
            request = {
                "target": "cpu", "machine": cpu.processor(), "name": "kernel0", "types": ("float64",), "integers": 0,
                "source": f"def kernel0(x):\n    x[0] = {number}\n", "rows": False, "streams": False, "short": False,
                "checked": False,
            }  # fmt: skip
            child = subprocess.run(
                [sys.executable, "-m", "idgraph.runtime.compile_child", "cpu"], input=json.dumps(request) + "\n",
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            loaded.append(cpu.load_library(json.loads(child.stdout.splitlines()[1])["text"]))
            loaded[-1][1].get_pointer_to_function(loaded[-1][0])
        found: list[float] = []
        for name, library in loaded:
            address = library.get_pointer_to_function(name)
            jump = make_trampoline(address, (types.Array(types.float64, 1, "C"),), library)
            x = np.zeros(1)
            assert jump(struct.pack("2q", x.ctypes.data, 1)) == 0
            found.append(float(x[0]))
    assert found == [3.0, 5.0]
