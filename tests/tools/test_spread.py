"""How tests are dealt to workers: each once, a function's cases and a group's tests to one worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.spread import AHEAD, Spread

TESTS = [
    *(f"a.py::many[{n}]" for n in range(100)),
    *(f"a.py::one_{n}" for n in range(60)),
    *(f"{m}.py::shared_{n}@dear" for m in "ab" for n in range(8)),
    "b.py::other[x@y]",
]


def _workers(_name: str) -> list[str]:
    return ["2*popen"]


class Worker:
    """What the scheduler asks of a worker: runs the tests it was sent, in order."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id=str(id(self)))

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_each_test_once_and_those_that_belong_together_on_one_worker() -> None:
    options: Any = SimpleNamespace(getvalue=_workers, option=SimpleNamespace(loadscopereorder=True, maxschedchunk=None))
    dealt: Any = Spread(options, None)
    workers = [Worker(), Worker()]
    for w in workers:
        dealt.add_node(w)
    for w in workers:
        dealt.add_node_collection(w, TESTS)
    dealt.schedule()
    done: list[list[int]] = [[], []]
    turn = 0
    while not dealt.tests_finished or any(len(d) < len(w.sent) for d, w in zip(done, workers)):
        turn = 1 - turn
        w, d = workers[turn], done[turn]
        if len(d) == len(w.sent):
            assert w.shutting_down or not dealt.workqueue  # nothing to do only at the end
            continue
        d.append(w.sent[len(d)])
        dealt.mark_test_complete(w, d[-1])
        assert w.shutting_down or len(w.sent) - len(d) >= min(AHEAD, 1)
    assert sorted(done[0] + done[1]) == list(range(len(TESTS)))
    of = {TESTS[n]: side for side in (0, 1) for n in done[side]}
    assert len({of[t] for t in TESTS if "::many" in t}) == 1
    assert len({of[t] for t in TESTS if t.endswith("@dear")}) == 1
    assert abs(len(done[0]) - len(done[1])) <= 2 * AHEAD


def test_a_test_at_which_a_worker_crashes_is_not_tried_again() -> None:
    """The rest of the worker's tests go to others, and the one in its place waits until it has collected."""
    options: Any = SimpleNamespace(getvalue=_workers, option=SimpleNamespace(loadscopereorder=True, maxschedchunk=None))
    dealt: Any = Spread(options, None)
    one, two, third = Worker(), Worker(), Worker()
    for w in (one, two):
        dealt.add_node(w)
    for w in (one, two):
        dealt.add_node_collection(w, TESTS)
    dealt.schedule()
    ran = [one.sent[0]]
    dealt.mark_test_complete(one, ran[0])
    crashed = dealt.remove_node(one)
    assert crashed == TESTS[one.sent[1]]
    dealt.add_node(third)
    dealt.schedule()
    assert not third.sent
    dealt.add_node_collection(third, TESTS)
    dealt.schedule()
    for w in (two, third):
        for n in w.sent:  # grows meanwhile
            dealt.mark_test_complete(w, n)
            ran.append(n)
    assert dealt.tests_finished
    assert sorted(ran) == sorted(n for n, t in enumerate(TESTS) if t != crashed)
