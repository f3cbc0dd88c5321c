"""The part of the suite that a run on one's own machine tries: some cases of the costly functions, others in each run.

As with the examples of a property, the profile says how much is tried: `default` a part, `ci` and `nightly` everything.
A run that names files or tests, or asks by ``-k`` or ``-m``, tries all that it names.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest

SHARE = 5  # one case in so many of a function marked `sampled`, at least one
CHOSEN = "idgraph_sample"  # the key under which workers are told the seed


def seed_of(config: pytest.Config) -> str | None:
    """The seed of the choice; None where everything is tried."""
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:  # of pytest-xdist, whose workers must choose alike
        return given.get(CHOSEN)
    whole = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.getoption("keyword")
    asked = config.getoption("markexpr") not in ("", "not nightly", "not slow and not nightly")
    if not whole or asked or config.getoption("--hypothesis-profile", None) not in (None, "default"):
        return None
    return str(config.getoption("randomly_seed", 0))


def left_out(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """The tests that a run of this seed does not try: those marked `thorough`, and cases of those marked `sampled`."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    found: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("thorough"):
            found.append(item)
        elif item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, of_one in cases.items():
        of_one.sort(key=lambda item: item.nodeid)
        found += Random(f"{seed} {name}").sample(of_one, len(of_one) - -(-len(of_one) // SHARE))
    return found
