"""Calls of imports with sizes that no call has had: torch's results, bound once."""

# torch gives its types no types here:
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnusedImport=false
from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import idgraph as ig
import idgraph.frontends.torch_compile
from idgraph.errors import IdGraphError
from idgraph.frontends import callable_import as running

torch: Any = pytest.importorskip("torch")
Dim: Any = torch.export.Dim


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each binding that takes all the work."""
    made: list[int] = []
    whole = running.CallPlan

    def counted(*given: Any) -> Any:
        made.append(1)
        return whole(*given)

    monkeypatch.setattr(running, "CallPlan", counted)
    return made


def same(found: Any, wanted: Any) -> None:
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y)
        assert x.stride() == y.stride() or not y.numel()


n = Dim("n", min=2, max=1 << 20)
CASES: dict[str, tuple[Callable[..., Any], Callable[[int], list[Any]], tuple[Any, ...]]] = {
    "rows": (lambda x, y: (x * 2 + y, x.sum(1)), lambda m: [torch.rand(m, 3), torch.rand(3)], ({0: n}, None)),
    "twice a size": (lambda x: x.reshape(-1, 2) * 2, lambda m: [torch.rand(2 * m)], ({0: 2 * n},)),
    "a size and one more": (
        lambda x, y: x[1:] + y,
        lambda m: [torch.rand(m + 1, 4), torch.rand(m, 4)],
        ({0: n + 1}, {0: n}),
    ),
    "an argument and views": (lambda x: (x, x.t(), x * 2, x[:, 1:]), lambda m: [torch.rand(m, 5)], ({0: n},)),
    "steps": (lambda x: x.reshape(-1, 4).sum(1), lambda m: [torch.rand(4 * m)], ({0: 4 * n},)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_random_sizes(name: str, bound: list[int]) -> None:
    f, given, shapes = CASES[name]
    k: Any = ig.compile(ig.from_torch(f, given(8), dynamic_shapes=shapes))
    rng = random.Random(3)
    for _ in range(50):
        args = given(rng.randrange(2, 300))
        same(k(*args), f(*args))
        if rng.random() < 0.3:
            wanted = f(*args)
            outs: Any = tuple(map(torch.empty_like, wanted)) if isinstance(wanted, tuple) else torch.empty_like(wanted)
            k(*args, out=outs)
            torch.testing.assert_close(outs, wanted)
    assert len(bound) == 1
    for x in (given(1), [torch.rand(7, 7, 7)] * len(given(8)), [x.double() for x in given(9)]):
        with pytest.raises(IdGraphError, match=r"captured for|outside of|lie in one memory"):
            k(*x)


def test_other_ways_to_lie(bound: list[int]) -> None:
    """Strides and addresses as none was laid out for are looked at by the kernels' own call, as are few elements."""

    def f(x: Any, y: Any) -> Any:
        return x * y, x.sum(0)

    k: Any = ig.compile(ig.from_torch(f, (torch.rand(6, 4), torch.rand(6, 4)), dynamic_shapes=({0: n}, {0: n})))
    rng = random.Random(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies
        for _ in range(60):
            m, y = rng.randrange(2, 50), torch.rand(1)
            ways = (
                torch.rand(m, 4),
                torch.rand(4, m).t(),
                torch.rand(m * 4 + 1)[1:].view(m, 4),
                torch.rand(1, 4).expand(m, 4),
            )
            x, y = rng.choice(ways), torch.rand(m, 4)
            for found, wanted in zip(k(x, y), f(x, y), strict=True):
                torch.testing.assert_close(found, wanted)
    assert len(bound) == 1


def changed(x: Any, y: Any) -> Any:
    """An argument changes between kernels."""
    x.mul_(2)
    return torch.sort(x + y, 0).values + 1


PARTS: dict[str, tuple[Callable[..., Any], Callable[[int], list[Any]], tuple[Any, ...]]] = {
    "a sort between kernels": (
        lambda x, y: (torch.sort(x * 2 + y, 0).values * y, x.sum()),
        lambda m: [torch.rand(m, 3), torch.rand(m, 3)],
        ({0: n}, {0: n}),
    ),
    "views, sizes and an argument": (
        lambda x: (torch.sort(x + 1, 1).values[:, 1:] * 2, x.t(), x.shape[0], x),
        lambda m: [torch.rand(m, 5)],
        ({0: n},),
    ),
    "parts of an operation": (
        lambda x: (torch.sort(x, 0).indices + 1, torch.sort(x * 3, 0).values * x),
        lambda m: [torch.rand(2 * m)],
        ({0: 2 * n},),
    ),
    "an argument that changes": (changed, lambda m: [torch.rand(m, 4), torch.rand(m, 4)], ({0: n}, {0: n})),
}


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["cpu", "numpy"])
@pytest.mark.parametrize("name", PARTS)
def test_programs_in_several_parts(name: str, target: Any, bound: list[int]) -> None:
    """Each part's kernels find their sizes; what torch's operations give between them has those of the call."""
    f, given, shapes = PARTS[name]
    imported = ig.from_torch(f, given(8), dynamic_shapes=shapes)
    assert sum(bool(s.calls) for s in imported.segments) >= 1
    k: Any = ig.compile(imported, target)
    rng = random.Random(6)
    for _ in range(25):
        args = given(rng.randrange(2, 200))
        theirs = [x.clone() for x in args]
        found, wanted = k(*args), f(*theirs)
        found, wanted = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
        for x, y in zip((*found, *args), (*wanted, *theirs), strict=True):
            assert x == y if isinstance(y, int) else torch.allclose(x, y) and x.stride() == y.stride()
    assert len(bound) == 1
    for x in (given(1), [torch.rand(7, 7, 7)] * len(given(8)), [x.double() for x in given(9)]):
        with pytest.raises(IdGraphError, match=r"captured for|outside of|lie in one memory"):
            k(*x)


def test_parts_follow_a_schedule_that_changes(bound: list[int]) -> None:
    def f(x: Any) -> Any:
        return torch.sort(x + 1).values * 2

    imported = ig.from_torch(f, (torch.rand(8),), dynamic_shapes=({0: n},))
    k: Any = ig.compile(imported)
    for m in (9, 10):
        torch.testing.assert_close(k(x := torch.rand(m)), f(x))
    fusion = imported.segments[0].fusion
    assert fusion is not None
    fusion.outputs[0].split(0, 4)
    for m in (11, 9, 12):
        torch.testing.assert_close(k(x := torch.rand(m)), f(x))
    assert len(bound) == 1


@pytest.mark.parametrize("parts", [False, True])
def test_integers_that_were_captured_are_compared(parts: bool) -> None:
    """A call with other sizes and another number is refused: the kernels hold the number captured."""

    def f(x: Any, times: int) -> Any:
        return (torch.sort(x).values if parts else x) * times

    k: Any = ig.compile(ig.from_torch(f, (torch.rand(8), 3), dynamic_shapes=({0: n}, None)))
    torch.testing.assert_close(k(x := torch.rand(8), 3), f(x, 3))
    for m in (9, 10):
        with pytest.raises(IdGraphError, match="captured for the value 3"):
            k(torch.rand(m), 4)
        torch.testing.assert_close(k(x := torch.rand(m), 3), f(x, 3))


def test_a_guard_that_new_sizes_break(bound: list[int]) -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.cat([x, y]) * 2 if x.shape[0] * 2 < y.shape[0] + 40 else x

    a, b = Dim("a", min=2, max=500), Dim("b", min=2, max=500)
    try:
        imported = ig.from_torch(f, (torch.rand(8), torch.rand(9)), dynamic_shapes=({0: a}, {0: b}))
    except IdGraphError as refused:
        pytest.skip(f"this torch refuses the guard: {refused}")
    k: Any = ig.compile(imported)
    rng = random.Random(5)
    for _ in range(60):
        x, y = torch.rand(rng.randrange(2, 90)), torch.rand(rng.randrange(2, 90))
        if imported.program.sizes.guards and not 2 * len(x) < len(y) + 40:
            with pytest.raises(IdGraphError, match="does not hold"):
                k(x, y)
        else:
            torch.testing.assert_close(k(x, y), torch.cat([x, y]) * 2)
    assert len(bound) >= 1


@pytest.mark.parametrize("grad", [False, True])
def test_the_backend_of_dynamic_sizes(grad: bool, bound: list[int]) -> None:
    def f(x: Any, w: Any) -> Any:
        return (x - x.mean(1, keepdim=True)) * w

    torch._dynamo.reset()
    k = torch.compile(f, backend="idgraph", dynamic=True)
    w = torch.rand(16, requires_grad=grad)
    for m in range(10, 30):
        x = torch.rand(m, 16, requires_grad=grad)
        found, wanted = k(x, w), f(x, w)
        same(found, wanted)
        if grad:
            g = torch.rand(m, 16)
            for a, b in zip(torch.autograd.grad(found, (x, w), g), torch.autograd.grad(wanted, (x, w), g), strict=True):
                torch.testing.assert_close(a, b)
    assert len(bound) == 1 + grad


def test_a_number_of_sizes_that_guards_know_is_read_after_a_call_of_torch() -> None:
    """A window's offset max(n - 100, 0) is 0 where the guards say that n is below: torch keeps the expression."""

    def f(x: Any, w: Any, n: int) -> Any:
        if n + 1 > 100:
            return x
        late = max(n - 100, 0)
        return (x @ w) + late, torch.relu(x) - late

    torch._dynamo.reset()
    k = torch.compile(f, backend="idgraph", dynamic=True)
    x, w = torch.rand(4, 5), torch.rand(5, 5)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="idgraph: .* left to eager mode")
        for m in (3, 7, 99, 100):
            same(k(x, w, m), f(x, w, m))
