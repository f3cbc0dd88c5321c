"""numba's passes that CPU kernels do without: the machine code is that of all passes."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from idgraph.runtime.cpu import compiler as cpu_entry
from idgraph.runtime.cpu import namespace as cpu
from idgraph.runtime.cpu import vector_abi as cpu_passes
from tests.emit.cases import outcome
from tests.emit.llvm_text import no_cache

# Indices that are loaded and tested, rows, scans, private arrays, powers by loops, sizes known when run, half words.
KERNELS = ("gather", "reduce_softmax", "reduce_cumsum", "large_private_array", "power_of_integers", "symbolic_rotation",
           "casts_float16", "scatter")  # fmt: skip


def _text(made: tuple[str, Any]) -> str:
    """LLVM's text after its own passes, without numba's count of what it has compiled."""
    return re.sub(r"B\d+v\d+B", "B", made[1].get_llvm_str())


def _passes() -> set[str]:
    """The names of the passes that a kernel goes through."""
    made: Any = object.__new__(cpu_entry.compiler(False, False))
    made.state = SimpleNamespace(flags=import_module("numba.core.compiler").Flags(), func_ir=None)
    (pipeline,) = made.define_pipelines()
    return {p.__name__ for p, _ in pipeline.passes}


def test_they_are_passes_of_numba_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    left, idle = _passes(), cpu_entry.IDLE
    monkeypatch.setattr(cpu_entry, "IDLE", frozenset[str]())
    every = _passes()
    assert left == every - idle
    assert len(every & idle) >= 12  # a release of numba may lack some


@pytest.mark.sampled
@pytest.mark.parametrize("name", KERNELS)
def test_machine_code_is_the_same_without_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inner: Any = cpu_entry
    compiled, seen = inner.compile_library, list[bool]()

    def both(*given: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(cpu_entry, "IDLE", frozenset[str]())
            every = _text(compiled(*given))
        made = compiled(*given)
        seen.append(_text(made) == every)
        return made

    monkeypatch.setattr(cpu_entry, "compile_library", both)
    monkeypatch.setattr(cpu_entry, "cache_of", no_cache)
    inner._entry.cache_clear()
    inner._machine_code.cache_clear()
    assert outcome(name, "cpu", checked=name == "gather") == ""
    assert seen and all(seen)


def test_functions_of_kernels_are_the_same_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's text has those of the functions that it calls."""
    inner: Any = cpu_entry
    compiled, seen = inner.compile_library, list[str]()

    def noted(*given: Any) -> Any:
        made = compiled(*given)
        seen.append(_text(made))
        return made

    monkeypatch.setattr(cpu_entry, "compile_library", noted)
    monkeypatch.setattr(cpu_entry, "cache_of", no_cache)
    caches: tuple[Any, ...] = (inner._entry, inner._machine_code, cpu.namespace, cpu_passes.short_pipeline)
    each = list[list[str]]()
    for idle in (cpu_passes.IDLE, frozenset[str]()):
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(cpu_passes, "IDLE", idle)
            for kept in caches:
                kept.cache_clear()
            for name in ("reduce_softmax", "power_of_integers", "casts_float16"):
                assert outcome(name, "cpu") == ""
        each.append([*seen])
    for kept in caches:
        kept.cache_clear()
    assert each[0] == each[1] and len(each[0]) >= 3
