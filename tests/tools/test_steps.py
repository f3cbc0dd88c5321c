"""`tools/check`: which steps run, and what a failing one does to the exit status."""

from __future__ import annotations

import sys

import pytest

from tools.steps import CHECKS, Check, chosen, main

GOOD = Check("good", "passes", (sys.executable, "-c", "print('quiet')"))
BAD = Check("bad", "fails", (sys.executable, "-c", "print('the reason'); raise SystemExit(3)"))


def test_names_choose_in_the_fixed_order() -> None:
    assert [check.name for check in chosen(["types", "format"])] == ["format", "types"]
    assert chosen([]) == CHECKS


def test_fast_leaves_long_steps_out_but_shows_what_notebooks_show() -> None:
    names = [check.name for check in chosen(["--fast"])]
    assert {"format", "lint", "layers", "length", "notebooks"} <= set(names)
    assert not {"types", "doctests", "docs", "package", "tests"} & set(names)


def test_one_failure_fails_the_whole(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([], [GOOD, BAD, GOOD]) == 1
    shown = capfd.readouterr().out
    assert "the reason" in shown
    assert "quiet" not in shown
    assert "failed" in shown


def test_all_passing_passes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["good"], [GOOD, BAD]) == 0
    assert "ok" in capfd.readouterr().out


def test_unknown_step_is_bad_input(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["typos"], [GOOD, BAD]) == 2
    assert "no step typos; there are good, bad" in capfd.readouterr().out


def test_list_names_every_step(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    shown = capfd.readouterr().out
    assert all(check.name in shown for check in CHECKS)
