"""Faults planted in the sources: the suite notices each. All of them nightly, two here to see that planting works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tools.mutation import FIRST, Fault, Result, faults, plant, run, table

FAULTS = faults()
BY_NAME = {f.name: f for f in FAULTS}
QUICK = {
    "slice with the wrong sign": "tests/index/test_field_forms.py",
    "the buffer's alignment ignored": "tests/index/test_widths.py",
}


def test_there_are_enough_in_every_room() -> None:
    assert len(BY_NAME) == len(FAULTS) >= 30
    rooms = {f.room for f in FAULTS}
    assert rooms == set(FIRST)
    assert all(sum(f.room == r for f in FAULTS) >= 4 for r in rooms)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_the_place_is_there_once(fault: Fault) -> None:
    """A change of the sources that moves a place must move the fault with it."""
    assert fault.place().count(fault.old) == 1 and fault.old != fault.new


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found(name: str) -> None:
    found = run(BY_NAME[name], (QUICK[name],))
    assert found.found_by.startswith(QUICK[name]), found.message


def test_a_harmless_change_is_not_found() -> None:
    """The suite passes in a copy without a fault, so that a failure is due to the fault."""
    fault = BY_NAME["slice with the wrong sign"]
    found = run(replace(fault, new=fault.old + "  # as it was"), (QUICK[fault.name],))
    assert found.found_by == ""
    assert "NOBODY" in str(next(iter(table([found]).columns[2].cells)))


def test_a_place_that_moved_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        plant(replace(FAULTS[0], old="nowhere to be found"), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_every_fault_is_found(fault: Fault) -> None:
    result: Result = run(fault)
    assert result.found_by, f"nobody noticed: {fault.old!r} as {fault.new!r} in {fault.file}"
