"""The number of examples of a law: a few in every run, 20 000 with ``--hypothesis-profile nightly``."""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = 20_000


def examples(each_run: int) -> int:
    """Examples for one property under the profile that is loaded."""
    return NIGHTLY if settings().max_examples > 1000 else each_run
