"""Random calls of the whole public surface: one clear error, in time, and the fusion as it was."""

from __future__ import annotations

import pytest

import idgraph as ig
from idgraph.errors import OperationError, arguments
from tests.bad_input.fuzz import fuzz, interrupt


@pytest.mark.parametrize("seed", range(2))
def test_random_calls(seed: int) -> None:
    found = fuzz(1500, seed)
    assert not found.kinds, str(found)
    assert found.failed > 700  # the arguments are mostly wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_random_calls(seed: int) -> None:
    found = fuzz(5000, seed)
    assert not found.kinds, str(found)


@pytest.mark.parametrize("seed", range(2))
def test_interrupted_calls_leave_the_fusion_as_it_was(seed: int) -> None:
    found = interrupt(300, seed)
    assert not found.kinds, str(found)
    assert found.failed > 50  # enough of them were interrupted half-way


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


def test_an_exception_that_no_annotation_explains_is_one_of_ours() -> None:
    @arguments(OperationError)
    def broken(n: int) -> int:
        return {}[n]  # type: ignore[misc, no-any-return]

    with pytest.raises(OperationError, match=r"broken cannot take these arguments: KeyError\(3\)") as caught:
        broken(3)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_scheduler_that_fails_half_way_leaves_loops_and_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ig.Fusion("f")
    x = f.input("x", shape=(64, 64))
    y = f.output(ig.softmax(x + 1.0, 1))
    before = str(f)

    def fails(*_args: object) -> None:
        y.split(0, 8)
        x.fusion.remove([])
        raise ZeroDivisionError

    monkeypatch.setattr("idgraph.schedule.inline._inline_most", fails, raising=False)
    monkeypatch.setattr("idgraph.ir.loops.inline", fails)
    with pytest.raises(ig.IdGraphError):
        ig.schedule.inline_most(f)
    assert str(f) == before
