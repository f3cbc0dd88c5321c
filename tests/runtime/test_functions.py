"""Generated source as functions, and sources that are read, by several threads at once."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from idgraph.check.inductor_wrapper import parse_source
from idgraph.loading import with_trees
from idgraph.runtime.source_function import function_of

LINES = [f"    x = f32(x + f32({k}.0)) if x > f32({-k}.0) else f32(x * x)\n" for k in range(40)]
SOURCE = "".join(["def f(x):\n", *LINES, "    return x\n"])


def makes_function() -> None:
    assert function_of(SOURCE, "f", {"f32": np.float32}, "cpu")(np.float32(1)) > 0


def reads_source() -> None:
    assert len(parse_source(SOURCE).body) == 1


@pytest.mark.parametrize("count", [10, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("make", [makes_function, reads_source])
def test_threads_make_trees_at_once(make: Callable[[], None], count: int) -> None:
    """Other code of the process parses meanwhile, without a lock of ours."""
    stop, wrong = threading.Event(), list[str]()

    def parses() -> None:
        while not stop.is_set():
            with suppress(SystemError):  # CPython's, of this thread: it has no second try
                ast.parse(SOURCE)

    def makes() -> None:
        for _ in range(count):
            try:
                make()
            except BaseException as e:
                wrong.append(repr(e))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        others = [threading.Thread(target=parses) for _ in range(2)]
        makers = [threading.Thread(target=makes) for _ in range(6)]
        for t in (*others, *makers):
            t.start()
        for t in makers:
            t.join()
    finally:
        stop.set()
        sys.setswitchinterval(before)
    for t in others:
        t.join()
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("make", [makes_function, reads_source])
def test_a_tree_that_another_thread_disturbed_is_made_again(make: Callable[[], None], monkeypatch: Any) -> None:
    parse, times = ast.parse, list[int]()

    def disturbed(*given: Any) -> ast.AST:
        times.append(1)
        if len(times) < 3:
            raise SystemError("AST constructor recursion depth mismatch (before=66, after=57)")
        return parse(*given)

    monkeypatch.setattr(ast, "parse", disturbed)
    make()
    assert len(times) == 3


def test_another_system_error_is_raised() -> None:
    def fails() -> None:
        raise SystemError("unknown opcode")

    with pytest.raises(SystemError, match=r"^unknown opcode$"):
        with_trees(fails)
