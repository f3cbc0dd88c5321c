"""Random calls of the whole public surface: one clear error, in time, and the fusion as it was."""

from __future__ import annotations

import itertools
import signal
import time
import traceback
from collections import UserList
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, cast

import pytest

import idgraph as ig
from idgraph.errors import Keep, OperationError, arguments
from idgraph.ir.clone import rewriting
from idgraph.ir.transaction import transactional_build
from tests.bad_input.fuzz import TooLong, fuzz, interrupt, limit


def test_a_limit_of_processor_time_leaves_a_busy_machine_its_time() -> None:
    with limit(0.05, signal.ITIMER_PROF):
        time.sleep(0.3)
    with pytest.raises(TooLong), limit(0.05, signal.ITIMER_PROF):
        all(n >= 0 for n in itertools.count())
    with pytest.raises(TooLong), limit(0.05):
        time.sleep(600)


@pytest.mark.parametrize(
    ("seed", "calls"),
    [(2, 400), pytest.param(0, 1500, marks=pytest.mark.thorough), pytest.param(1, 1500, marks=pytest.mark.nightly)],
)
def test_random_calls(seed: int, calls: int) -> None:
    found = fuzz(calls, seed)
    assert not found.kinds, str(found)
    assert found.failed > calls * 7 // 15  # the arguments are mostly wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_calls(seed: int) -> None:
    found = fuzz(5000, seed)
    assert not found.kinds, str(found)


@pytest.mark.parametrize("seed", range(2))
def test_interrupted_calls_leave_the_fusion_as_it_was(seed: int) -> None:
    found = interrupt(300, seed)
    assert not found.kinds, str(found)
    assert found.failed > 75  # enough of them were interrupted half-way


def test_an_interrupt_between_an_operation_and_its_reader_is_taken_back() -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(4,))
    mark, before = f.mark, str(f)
    half = (x + 1.0).definition
    assert half is not None
    f.restore(mark)
    x.add_use(half)  # as where an interrupt came between the two
    f.restore(mark)
    assert str(f) == before and x.uses == ()


HIDDEN: dict[str, Callable[[ig.Tensor], object]] = {
    "tensor": lambda t: t,
    "fusion": lambda t: t.fusion,
    "axis": lambda t: t.logical[0],
    "nested list": lambda t: [[1, t]],
    "mapping": lambda t: {"a": t},
    "list in a mapping": lambda t: {1: [t]},
}


@pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("keep", [transactional_build, rewriting])
def test_every_fusion_of_the_arguments_is_put_back(keep: Keep, hide: Callable[[ig.Tensor], object]) -> None:
    mine, other = (ig.Fusion(name).input("x", shape=(4, 6)) for name in ("mine", "other"))
    before = str(mine.fusion), str(other.fusion)

    @arguments(OperationError, keep=keep)
    def fails(*args: object, **kwargs: object) -> None:
        mine.split(0, 2) if keep is rewriting else ig.exp(mine)
        ig.exp(other)
        raise ZeroDivisionError

    calls = (
        lambda: fails(mine, hide(other)),
        lambda: fails(hide(other), mine),
        lambda: fails(0, k=[mine, hide(other)]),
    )
    for call in calls:
        with pytest.raises(ZeroDivisionError):
            call()
        assert (str(mine.fusion), str(other.fusion)) == before


def test_a_gradient_of_another_fusion_leaves_both_as_they_were() -> None:
    f, other = ig.Fusion("f"), ig.Fusion("other")
    x, y = f.input("x", shape=(4, 6)), f.input("y", shape=(4,), dtype="int64")
    far = ig.exp(other.input("x", shape=(4, 6)))
    before = str(f), str(other)
    grads: tuple[Any, ...] = (other, far, far.logical[0])
    for grad in grads:
        with pytest.raises(OperationError):
            ig.cross_entropy_backward(grad, x, y, reduction="none")
        assert (str(f), str(other)) == before


def test_a_collection_that_raises_does_not_hide_the_fusions_beside_it() -> None:
    class Raises(UserList[object]):
        def __iter__(self) -> NoReturn:
            raise RuntimeError("no items")

    x = ig.Fusion("f").input("x", shape=(4, 6))
    before, wrong = str(x.fusion), cast("Any", Raises([x]))
    with pytest.raises((ig.IdGraphError, RuntimeError)):
        ig.cross_entropy_backward(wrong, x, ig.cast(ig.select(x, 1, 0), "int64"))
    after = str(x.fusion)
    assert after.startswith(before[:-2]) and "exp" not in after


def test_an_exception_that_no_annotation_explains_goes_through() -> None:
    def inner(n: int) -> int:
        return {}[n]  # type: ignore[misc, no-any-return]

    @arguments(OperationError)
    def broken(n: int) -> int:
        return inner(n)

    with pytest.raises(KeyError) as caught:
        broken(3)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2:] == ["broken", "inner"]
    assert not hasattr(caught.value, "__notes__"), "raised in a file of the program's"
    with pytest.raises(OperationError, match="broken: n is 'text', a str") as blamed:
        broken(cast("Any", "text"))
    context = blamed.value.__context__
    assert isinstance(context, KeyError) and context.__traceback__ is not None


def test_a_fault_of_the_library_asks_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(*_args: object, **_options: object) -> None:
        return None

    f = ig.Fusion("f")
    f.output(ig.exp(f.input("x", shape=(8,))))
    before = str(f)
    monkeypatch.setattr(import_module("idgraph.schedule.auto"), "schedule_loops", passes)
    with pytest.raises(AttributeError) as caught:
        ig.schedule.auto(f)
    assert [n for n in caught.value.__notes__ if "please report" in n] == caught.value.__notes__
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "auto" and str(f) == before


def test_what_cannot_be_written_down_is_named() -> None:
    x = ig.Fusion("f").input("x", shape=(4, 6))
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(OperationError, match="logcumsumexp: dim is an integer that cannot be written down"):
        ig.logcumsumexp(x, 10**5000)
    with pytest.raises(OperationError, match="unknown dtype"):
        ig.cast(x, cast("Any", deep))


def test_a_scheduler_that_fails_half_way_leaves_loops_and_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64, 64))
    y = f.output(ig.softmax(x + 1.0, 1))
    before = str(f)

    def fails(*_args: object) -> None:
        y.split(0, 8)
        x.fusion.remove([])
        raise ZeroDivisionError

    monkeypatch.setattr("idgraph.schedule.inlining._inline_most", fails, raising=False)
    monkeypatch.setattr("idgraph.ir.loop_transforms.inline", fails)
    with pytest.raises(ZeroDivisionError):
        ig.schedule.inline_most(f)
    assert str(f) == before
