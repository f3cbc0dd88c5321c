"""Ways around: a basis of the cycles of a graph, so that whatever holds once round each holds round every cycle.

One pass for strongly connected components (Tarjan 1972), then breadth first from the busiest group of each, forwards
and backwards. Every step outside the forward tree closes one cycle: from it back to the root by one tree, and on to
where it starts by the other, cut short where the two meet. If all of these give the coordinate back, so does every
way around: by induction over the backward tree, there and back through any group is then the identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from idgraph.graphs.coordinates import transparent
from idgraph.graphs.valgraph import Nodes


class Step(NamedTuple):
    """One step of a way: the expression ``node`` reads the group ``source`` and makes the group ``to``."""

    source: int
    node: int
    to: int


Way = list[Step]


class Net:
    """Expressions between groups, equal expressions once, all by number."""

    def __init__(self, nodes: Nodes, find: Callable[[int], int]) -> None:
        self.nodes = nodes
        self.equal = nodes.classes()
        self.ins = {n: tuple(map(find, nodes.ins[n])) for n in self.equal}
        self.outs = {n: tuple(map(find, nodes.outs[n])) for n in self.equal}
        self.made_by: dict[int, list[int]] = {}
        for n, made in self.outs.items():
            for x in made:
                self.made_by.setdefault(x, []).append(n)

    def keeps(self, n: int) -> bool:
        """True of an expression that keeps its axis, beside one of a single element: no cause of a cycle."""
        return bool(set(self.ins[n]) & set(self.outs[n])) and bool(transparent(self.nodes.form[n].expr))


def components(net: Net) -> dict[int, int]:
    """For each group on a cycle the number of its strongly connected component."""
    after: dict[int, list[int]] = {}
    loops: set[int] = set()
    for n, ins in net.ins.items():
        if net.keeps(n):
            continue
        outs = net.outs[n]
        for a in ins:
            after.setdefault(a, []).extend(outs)
            if a in outs:
                loops.add(a)
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    found: dict[int, int] = {}
    for root in after:
        work = [(root, 0)] if root not in order else []
        while work:
            node, at = work.pop()
            if at == 0:
                order[node] = low[node] = len(order)
                stack.append(node)
                on.add(node)
            into = after.get(node, ())
            while at < len(into) and into[at] in order:
                if into[at] in on:
                    low[node] = min(low[node], order[into[at]])
                at += 1
            if at < len(into):
                work += [(node, at + 1), (into[at], 0)]
                continue
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                members = [stack.pop()]
                while members[-1] != node:
                    members.append(stack.pop())
                on.difference_update(members)
                if len(members) > 1 or node in loops:
                    found.update(dict.fromkeys(members, order[node]))
    return found


def find_ways(net: Net) -> list[Way]:
    """Every cause of a cycle once: as many cycles as there are steps besides a tree, without repeats."""
    component = components(net)
    if not component:
        return []
    edges: dict[int, list[Step]] = {}
    for n, ins in net.ins.items():
        if net.keeps(n):
            continue
        for a in dict.fromkeys(ins):
            for b in dict.fromkeys(net.outs[n]):
                if a in component and component[a] == component.get(b):
                    edges.setdefault(component[a], []).append(Step(a, n, b))
    return [way for steps in edges.values() for way in _ways_of(steps)]


def _ways_of(steps: list[Step]) -> list[Way]:
    """Cycles through the steps of one component."""
    leaving: dict[int, list[Step]] = {}
    entering: dict[int, list[Step]] = {}
    for step in steps:
        leaving.setdefault(step.source, []).append(step)
        entering.setdefault(step.to, []).append(step)
    root = max(leaving, key=lambda g: len(leaving[g]) + len(entering[g]))  # the first of the busiest
    there, back = _tree(root, leaving, forwards=True), _tree(root, entering, forwards=False)
    in_tree = set(there.values())
    found: dict[frozenset[int], Way] = {}
    for step in steps:
        if step not in in_tree:
            way = _around(step, there, back)
            found.setdefault(frozenset(s.node for s in way), way)
    return [_from_first(way) for way in found.values()]


def _from_first(way: Way) -> Way:
    """The same cycle from the expression that entered the graph first."""
    at = min(range(len(way)), key=lambda k: way[k].node)
    return way[at:] + way[:at]


def _tree(root: int, steps: dict[int, list[Step]], forwards: bool) -> dict[int, Step | None]:
    """For each group the step that leads to it from the root (forwards), or from it towards the root."""
    found: dict[int, Step | None] = {root: None}
    queue = deque([root])
    while queue:
        for step in steps.get(queue.popleft(), ()):
            to = step.to if forwards else step.source
            if to not in found:
                found[to] = step
                queue.append(to)
    return found


def _around(first: Step, there: dict[int, Step | None], back: dict[int, Step | None]) -> Way:
    """``first``, on towards the root until a group on the way from the root to ``first``, and from there."""
    before: dict[int, Step] = {}  # on the way from the root: for each group the step that leaves it
    at, step = first.source, first
    while True:
        before[at] = step
        up = there[at]
        if up is None:
            break
        at, step = up.source, up
    way = [first]
    while (at := way[-1].to) not in before:
        onwards = back[at]
        if onwards is None:
            break
        way.append(onwards)
    while at != first.source:
        way.append(before[at])
        at = way[-1].to
    return way
