"""LLVM's text of the CPU kernels that a test compiles, without those that an earlier run has compiled."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.runtime.cpu import compiler as cpu_entry


def no_cache(program: object) -> None:
    """Instead of a program's cache."""


def llvm_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets the text of every kernel compiled from here on in the test."""
    seen: list[str] = []
    inner: Any = cpu_entry
    compiled = inner.compile_library

    def kept(*given: Any) -> Any:
        made = compiled(*given)
        seen.append(made[1].get_llvm_str())
        return made

    monkeypatch.setattr(cpu_entry, "compile_library", kept)
    monkeypatch.setattr(cpu_entry, "cache_of", no_cache)
    inner._entry.cache_clear()
    inner._machine_code.cache_clear()
    return seen
