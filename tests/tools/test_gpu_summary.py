"""The line at the end of a run that says how many tests wanted a GPU."""

from __future__ import annotations

from types import SimpleNamespace

from tests.conftest import pytest_terminal_summary


def test_one_line_for_each_reason() -> None:
    def skip(reason: str, *marks: str) -> SimpleNamespace:
        return SimpleNamespace(longrepr=("test_a.py", 1, f"Skipped: {reason}"), keywords=dict.fromkeys(marks, 1))

    lines: list[str] = []
    module = SimpleNamespace(longrepr=("test_b.py", 1, "Skipped: no torch"))  # skipped as a whole: no keywords
    stats = {"skipped": [skip("no GPU", "gpu"), skip("no GPU", "gpu"), skip("no chromium", "slow"), module]}
    pytest_terminal_summary(SimpleNamespace(stats=stats, write_line=lines.append))
    assert lines == ["2 skipped: no GPU"]
    pytest_terminal_summary(SimpleNamespace(stats={}, write_line=lines.append))
    assert len(lines) == 1
