"""The number of examples of a law: a few in each run on one's own machine, more in the CI's profile ``ci``, 20 000
with ``--hypothesis-profile nightly``.

The CI tries at most 150 of a law that has 20 000 each night, and at least 50 where a law asks for as many.
"""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = 20_000
IN_CI = 150


def examples(each_commit: int) -> int:
    """Examples for one property under the profile that is loaded, of which the CI tries up to ``each_commit``."""
    most = settings().max_examples
    if most > 1000:
        return NIGHTLY
    in_ci = min(each_commit, max(50, min(IN_CI, each_commit // 2)))
    return in_ci if most >= 100 else max(5, in_ci * most // 100)
