"""The number of examples of a law: a few in each run on one's own machine, more in the CI's profile ``ci``, 20 000
with ``--hypothesis-profile nightly``."""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = 20_000


def examples(each_commit: int) -> int:
    """Examples for one property under the profile that is loaded, of which the CI tries ``each_commit``."""
    most = settings().max_examples
    return NIGHTLY if most > 1000 else each_commit if most >= 100 else max(5, each_commit * most // 100)
