"""The number of examples of a law: a few in each run on one's own machine, more in the CI's profile ``ci``, 20 000
with ``--hypothesis-profile nightly``.

The CI tries at most 75 of a law that has 20 000 each night, and at least 25 where a law asks for as many; more where a
planted fault needs more, which `tools/mutation.py` tells, as it tries as many.
"""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = 20_000
IN_CI = 75


def is_nightly() -> bool:
    """Whether the profile that is loaded asks for the night's examples: a law may then take hours."""
    return settings().max_examples > 1000


def examples(each_commit: int, needed: int = 0) -> int:
    """Examples for one property under the profile that is loaded, of which the CI tries up to ``each_commit``, and at
    least those ``needed`` to find a planted fault that this law is the first to see."""
    most = settings().max_examples
    if is_nightly():
        return NIGHTLY
    in_ci = max(needed, min(each_commit, max(IN_CI // 3, min(IN_CI, each_commit // 4))))
    return in_ci if most >= 100 else max(5, in_ci * most // 100)
