"""Kernels are the same whether numba's answers about their calls are new or known."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

import idgraph as ig
from idgraph.runtime.cuda import compiler as cuda
from idgraph.runtime.program import Program
from idgraph.runtime.typing_once import typing_once

READ = "run_untyped_passes"


def normed(dtype: str) -> Program:
    f = ig.Fusion("normed")
    x = f.input("x", shape=(64, 256), dtype=dtype)
    f.output(ig.cast(x / (1.0 + ig.sum(ig.exp(ig.cast(x, "float32")), 1, keepdim=True)), dtype))
    ig.schedule.auto(f)
    return ig.emit(f, target="cuda")


def bodies(texts: Sequence[str]) -> list[str]:
    """Instructions: comments and names of functions have numbers of the process in them."""
    return [t[t.index("{") :] for t in texts]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_code_with_known_answers(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba.cuda")
    if cuda.simulated():
        pytest.skip("the simulator compiles nothing")
    inliner: Any = import_module("numba.cuda.core.inline_closurecall").InlineWorker
    read, functions = getattr(inliner, READ), list[Any]()

    def counted(self: Any, func: Any, enable_ssa: bool = False) -> Any:
        functions.append(func)
        return read(self, func, enable_ssa)

    monkeypatch.setattr(inliner, READ, counted)
    first = cuda.compile_ptx(normed(dtype))
    seen = len(functions)
    again = cuda.compile_ptx(normed(dtype))
    assert len(functions) == seen == len(set(functions))
    assert getattr(inliner, READ) is counted
    assert bodies(first) == bodies(again)


def test_answers_of_other_settings_are_others() -> None:
    class Context:
        def resolve_function_type(self, func: str, args: object, kws: object) -> str:
            return f"{func} under {settings}"

    context, found = Context(), list[str]()
    for settings in ("those of a test", "others of a test"):
        with typing_once(context, None, settings):
            found.append(context.resolve_function_type("f", (1,), {}))
    assert found == ["f under those of a test", "f under others of a test"]
    assert "resolve_function_type" not in vars(context)
