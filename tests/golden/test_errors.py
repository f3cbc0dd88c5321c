"""Errors as users see them: wording, ways out that work, one frame of ours."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

import idgraph as ig
from idgraph.errors import full_tracebacks
from tests.golden.errors import CASES, FOLDER, Case, frames_of_ours, message, run

BY_NAME = {c.name: c for c in CASES}


@pytest.fixture(autouse=True)
def as_users_see_them() -> Iterator[None]:
    full_tracebacks(False)
    yield
    full_tracebacks()


def test_there_are_forty() -> None:
    assert len(BY_NAME) == len(CASES) >= 40
    assert {p.stem for p in FOLDER.glob("*.txt")} == BY_NAME.keys(), "python -m tests.golden.errors"


@pytest.mark.parametrize("name", BY_NAME)
def test_the_message(name: str) -> None:
    stored = FOLDER / f"{name}.txt"
    assert stored.exists(), "if it is new: python -m tests.golden.errors"
    assert message(BY_NAME[name]) == stored.read_text(encoding="utf-8"), "if right: python -m tests.golden.errors"


@pytest.mark.parametrize("name", [c.name for c in CASES if c.right])
def test_the_hint_is_a_way_out(name: str) -> None:
    """The hint names the fix in these words, and the program with the fix runs."""
    case = BY_NAME[name]
    error = run(case.wrong)
    assert error is not None and case.told and case.told in error.hint
    assert run(case.right) is None


@pytest.mark.parametrize("name", BY_NAME)
def test_one_frame_of_ours_at_most(name: str) -> None:
    error = run(BY_NAME[name].wrong)
    assert error is not None
    assert frames_of_ours(error) <= 1, "".join(traceback.format_exception(error))


def test_every_frame_where_asked_for() -> None:
    full_tracebacks()
    error = run(BY_NAME["text_operation"].wrong)
    assert error is not None and error.__cause__ is not None
    assert frames_of_ours(error) > 3


def test_the_cause_is_kept() -> None:
    error = run(BY_NAME["text_operation"].wrong)
    assert error is not None and isinstance(error.__cause__, ig.ParseError)


def test_illegal_inlining_names_the_step_that_caused_it() -> None:
    """The split after the inlining, or the inlining after the split: whichever came last."""
    late = Case("late", 'f["e"].inline(2)\ny.split(0, 4)\nig.IdModel(f).index', "", "")
    error = run(late.wrong)
    assert error is not None and error.where == "case.py:7: y.split(0, 4)"
    early = run('y.split(0, 4)\nf["e"].inline(2)\nig.IdModel(f).index')
    assert early is not None and early.where == 'case.py:7: f["e"].inline(2)'
    mended = run('y.split(0, 4)\nf["e"].inline(1)\ny.merge(0)\ny.split(0, 2)\nig.IdModel(f).index')
    assert mended is not None and mended.where in ("case.py:9: y.split(0, 2)", 'case.py:7: f["e"].inline(1)')
