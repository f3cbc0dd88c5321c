"""Calls of imports: bound once for arguments of each sort, no copies, no more work than the call of a fusion."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import idgraph as ig
from idgraph.errors import IdGraphError
from idgraph.frontends.callable_import import Runner

torch: Any = pytest.importorskip("torch")
modes: Any = pytest.importorskip("torch.utils._python_dispatch")
from_torch: Any = ig.from_torch


def three(x: Any, y: Any, z: Any) -> Any:
    return x * 2.0 + y - z


def both(x: Any, y: Any) -> Any:
    return x + y, x - y


def less(x: Any, y: Any) -> Any:
    return x - 2 * y


def more(x: Any) -> Any:
    return x * 3 + 1


def rows(w: Any, i: Any) -> Any:
    return torch.nn.functional.embedding(i, w) * 2


def python_calls(work: Callable[[], object]) -> int:
    """Python functions that a call enters."""
    found = [0]

    def seen(frame: object, event: str, arg: object) -> None:
        found[0] += event == "call"

    work()
    work()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found[0]


class Operations(modes.TorchDispatchMode):
    """Notes the operations that torch runs."""

    def __init__(self) -> None:
        modes.TorchDispatchMode.__init__(self)
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> list[str]:
    work()
    seen: Any = Operations()
    with seen:
        work()
    return list(seen.names)


def test_a_call_of_an_import_does_little_more_than_one_of_a_fusion() -> None:
    args = [torch.rand(64) for _ in range(3)]
    f = ig.Fusion("three")
    x, y, z = (f.input(n, (64,)) for n in "xyz")
    f.output(x * 2.0 + y - z)
    fusion, imported = ig.compile(f), from_torch(three, args)
    k: Any = ig.compile(imported)
    least = python_calls(lambda: fusion(*args))
    assert python_calls(lambda: k(*args)) <= least + 16
    assert python_calls(lambda: imported.run(*args)) <= least + 20
    assert python_calls(lambda: k(*args, out=args[0].new_empty(64))) <= least + 40


def test_nothing_is_copied() -> None:
    args = [torch.rand(64) for _ in range(3)]
    k: Any = ig.compile(from_torch(three, args))
    assert operations(lambda: k(*args)) == ["aten.empty_strided.default"]
    out = torch.empty(64)
    assert operations(lambda: k(*args, out=out)) == []
    assert k(*args, out=out) is out
    torch.testing.assert_close(out, three(*args))


def sums_and_rows(x: Any, y: Any) -> Any:
    s = (x + y).sum(0)
    return x - s, s, torch.sort(s)[0] * 2


def test_out_of_several_parts_and_results() -> None:
    x, y = torch.rand(5, 8), torch.rand(5, 8)
    k: Any = ig.compile(from_torch(sums_and_rows, (x, y)))
    wanted = sums_and_rows(x, y)
    wide = torch.empty(5, 16)
    for first in (torch.empty(5, 8), wide[:, ::2], torch.empty(8, 5).t()):
        out = (first, torch.empty(8), torch.empty(8))
        found = k(x, y, out=out)
        assert all(a is b for a, b in zip(found, out, strict=True))
        torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(k(x, y), wanted)


@pytest.mark.parametrize("target", ["python", "numpy", "cpu"])
def test_out_in_memory_that_is_read_or_written_is_refused(target: Any) -> None:
    x, y = torch.rand(8), torch.rand(8)
    two: Any = ig.compile(from_torch(both, (x, y)), target)
    twice = torch.empty(12)
    with pytest.raises(IdGraphError, match="shares memory with"):
        two(x, y, out=(twice[:8], twice[4:]))
    with pytest.raises(IdGraphError, match=r"has 2 outputs, out has 1|out has 1 arrays for 2 results"):
        two(x, y, out=(torch.empty(8),))
    f = ig.Fusion("two")
    a = f.input("a", (8,))
    f.output(a + 1.0)
    f.output(a - 1.0)
    with pytest.raises(IdGraphError, match="has 2 outputs, out has 1"):
        ig.compile(f, target)(x, out=(torch.empty(8),))
    if target != "cpu":  # results are computed elsewhere, and copied
        return
    with pytest.raises(IdGraphError, match="shares memory with input y"):
        two(x, y, out=(torch.empty(8), y))
    turned, f = np.zeros(8, np.float32), ig.Fusion("f")
    f.output(f.input("x", (8,)) * 2.0)
    backward = ig.compile(f, target)
    with pytest.raises(IdGraphError, match="shares memory with input x"):
        backward(turned, out=turned[::-1])


def test_the_same_tensor_twice_is_no_promise() -> None:
    x, y = torch.rand(8), torch.rand(8)
    k: Any = ig.compile(from_torch(less, (x, y)))
    torch.testing.assert_close(k(x, x), x - 2 * x)
    torch.testing.assert_close(k(x, y), x - 2 * y)
    torch.testing.assert_close(k(y, x), y - 2 * x)


def test_kinds_and_layouts_take_turns() -> None:
    args = [torch.rand(6, 4) for _ in range(3)]
    k: Any = from_torch(three, args).run
    other = [torch.rand(4, 6).t() for _ in range(3)]
    for given in (args, other, [a.numpy() for a in args], [args[0], args[1].numpy(), other[2]]) * 2:
        found: Any = k(*given)
        assert isinstance(found, np.ndarray) == isinstance(given[0], np.ndarray)
        torch.testing.assert_close(torch.as_tensor(found), three(*(torch.as_tensor(a) for a in given)))
    grad = args[0].clone().requires_grad_()
    assert not k(grad, *args[1:]).requires_grad
    with pytest.raises(IdGraphError, match="captured for"):
        k(args[0][:5], *args[1:])
    with pytest.raises(IdGraphError, match="captured for"):
        k(args[0].double(), *args[1:])


def test_parameters_are_read_where_they_are_now() -> None:
    model = torch.nn.Linear(4, 3)
    x = torch.rand(2, 4)
    k: Any = from_torch(model, (x,)).run
    torch.testing.assert_close(k(x), model(x).detach())
    with torch.no_grad():
        model.weight.mul_(2)
    torch.testing.assert_close(k(x), model(x).detach())
    model.weight.data = torch.rand(4, 3).t()
    torch.testing.assert_close(k(x), model(x).detach())


def test_a_schedule_step_makes_new_kernels() -> None:
    x = torch.rand(64)
    imported = from_torch(more, (x,))
    k: Any = ig.compile(imported)
    k(x)
    before = len(imported.kernels)
    imported.fusion.outputs[0].split(0, 16)
    torch.testing.assert_close(k(x), x * 3 + 1)
    assert len(imported.kernels) == before + 1


def test_views_written_arguments_and_nested_results() -> None:
    def f(x: Any, y: Any) -> Any:
        y.add_(x.sum(0))
        return {"rows": x[1:], "y": y.view(2, 2), "new": [x * y, x.t()]}

    x, y = torch.rand(3, 4), torch.rand(4)
    k: Any = ig.compile(from_torch(f, (x, y.clone())))
    for _ in range(3):
        mine, theirs = y.clone(), y.clone()
        found, wanted = k(x, mine), f(x, theirs)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(mine, theirs)
        assert found["rows"].data_ptr() == x[1:].data_ptr() and found["y"].data_ptr() == mine.data_ptr()
        y = mine


def test_a_failed_check_is_told_by_every_way() -> None:
    table, at = torch.rand(7, 4), torch.tensor([1, 6])
    imported = from_torch(rows, (table, at))
    ways: tuple[Any, ...] = (ig.compile(imported), ig.compile(imported, checked="now"), imported.run)
    for k in ways:
        k(table, at)
        with pytest.raises(IdGraphError, match="index 7"):
            k(table, torch.tensor([1, 7]))
        torch.testing.assert_close(k(table, at), table[at] * 2)
    again: Any = ig.compile(imported)
    again.check()


@pytest.mark.parametrize("out", ["list", 3, "x"])
def test_what_is_not_a_tensor_is_told(out: Any) -> None:
    x = torch.ones(2, 3)
    k: Any = ig.compile(from_torch(torch.neg, (x,)))
    given = [torch.empty(2, 3)] if out == "list" else out
    with pytest.raises(IdGraphError, match=f"is of type {type(given).__name__}: it is not a tensor"):
        k(x, out=given)
    assert torch.equal(k(x), -x)


def grown(work: Callable[[int], object], calls: int) -> int:
    """Blocks of memory of the interpreter that calls leave behind; an object is one at least."""
    for n in range(2000):  # interpreters keep some tuples for reuse, and counts of them
        work(n)
    while gc.collect():  # of tests before: what has a finalizer goes one collection later
        pass
    before = sys.getallocatedblocks()
    for n in range(calls):
        work(n)
    gc.collect()
    return sys.getallocatedblocks() - before


@pytest.mark.thorough
def test_a_leak_is_seen() -> None:
    kept: list[object] = []
    # Once, what other tests left behind may go meanwhile.
    assert max(grown(lambda n: kept.append(bytes(64)), 2_000) for _ in range(3)) >= 2_000
    assert grown(lambda n: bytes(64), 2_000) < 1_000


@pytest.mark.thorough
def test_thousands_of_calls_leak_nothing() -> None:
    """One object that each call leaves would be seen."""
    x, y = torch.rand(5, 8), torch.rand(5, 8)
    k: Any = ig.compile(from_torch(sums_and_rows, (x, y)))  # two parts, with a sort of torch's between them
    assert grown(lambda _: k(x, y), 2_000) < 1_000
    assert grown(lambda _: k(x, y, out=(x.new_empty(5, 8), x.new_empty(8), x.new_empty(8))), 2_000) < 1_000


@pytest.mark.thorough
def test_calls_with_ever_new_sizes_leak_nothing() -> None:
    size = torch.export.Dim("n", min=2, max=1 << 20)
    imported = from_torch(three, [torch.rand(64) for _ in range(3)], dynamic_shapes=({0: size},) * 3)
    k: Any = ig.compile(imported)
    data = torch.rand(4096)

    def call(n: int) -> None:
        cut = data[: 2 + n % 4000]
        k(cut, cut, cut)

    assert grown(call, 512 * 4) < 1_000  # 512 sizes are remembered, and were before
    assert len(imported.kernels) == 1


def test_a_second_call_alike_goes_to_the_kernels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take all steps: ``out``, parameters, kernels that a schedule step made anew."""
    whole: Any = Runner.__call__
    calls: list[int] = []

    def counted(self: Runner, *args: Any) -> Any:
        calls.append(1)
        return whole(self, *args)

    monkeypatch.setattr(Runner, "__call__", counted)

    def f(x: Any, y: Any) -> Any:
        return y - x, x * 2

    x, y = torch.randn(33, 16), torch.randn(16)
    imported = from_torch(f, (x, y))
    k: Any = ig.compile(imported)

    def steps(*args: Any, **named: Any) -> int:
        calls.clear()
        got = k(*args, **named)
        for a, b in zip(got, f(*args), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride() and a.untyped_storage().data_ptr() not in (x.data_ptr(), y.data_ptr())
        return len(calls)

    assert [steps(x, y) for _ in range(3)] == [1, 0, 0]
    first = k(x, y)
    assert first[0].data_ptr() != k(x, y)[0].data_ptr()
    assert steps(x, y, out=(torch.empty(33, 16), torch.empty(33, 16))) == 1
    gradient = y.clone().requires_grad_()
    assert [steps(x, gradient) for _ in range(2)] == [1, 0]  # kernels read its memory as any other
    imported.fusion.outputs[0].split(0, 16)
    assert [steps(x, y) for _ in range(3)] == [1, 0, 0]
    weight = torch.nn.Linear(4, 4, bias=False).requires_grad_(False)
    k = ig.compile(from_torch(weight, (torch.randn(2, 4),)))
    assert [len(steps_of(k, torch.randn(2, 4), calls)) for _ in range(3)] == [1, 1, 1]


def steps_of(k: Any, x: Any, calls: list[int]) -> list[int]:
    """The calls with all steps that one call makes."""
    calls.clear()
    k(x)
    return list(calls)
