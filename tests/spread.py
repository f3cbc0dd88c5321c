"""How tests are dealt to the workers: a function's cases together, many small ones ahead.

xdist's own schedulers send one case after the other where tests have groups, and count all that a worker ever had each
time a case ends: with ten thousand cases the workers wait for that, and it takes a core's time from them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

GROUPS: Any = import_module("xdist.scheduler").LoadGroupScheduling
AHEAD = 24  # cases that a worker has in hand, so that it never waits for more


class Spread(GROUPS):
    """One unit for the cases of a test function, or for all tests of an `xdist_group`."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = GROUPS._split_scope(self, nodeid)
        return group if group != nodeid else nodeid.partition("[")[0]

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget what is done: only what a worker still has is counted."""
        del duration
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        unit = self.assigned_work[node][scope]
        del unit[nodeid]
        if not unit:
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down or node not in self.registered_collections:  # it takes the place of one that crashed
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) < AHEAD:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """The test at which a worker crashed, which is not tried again; the rest of its work goes to the others."""
        work = self.assigned_work.pop(node)
        crashed: str | None = next((n for unit in work.values() for n in unit), None)
        if crashed is None:
            return None
        scope = self._split_scope(crashed)
        del work[scope][crashed]
        self.workqueue.update({s: unit for s, unit in work.items() if unit})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed
