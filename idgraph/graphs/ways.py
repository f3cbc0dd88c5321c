"""Ways around: a basis of the cycles of a graph, so that whatever holds once round each holds round every cycle.

One pass for strongly connected components (Tarjan 1972), then breadth first from the busiest group of each, forwards
and backwards. Every step outside the forward tree closes one cycle: from it back to the root by one tree, and on to
where it starts by the other, cut short where the two meet. If all of these give the coordinate back, so does every
way around: by induction over the backward tree, there and back through any group is then the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from idgraph.arith import Expr, as_expr
from idgraph.graphs.coordinates import transparent
from idgraph.graphs.trees import Step, Sums, Tree, meetings, mixed, translation, tree
from idgraph.graphs.valgraph import Nodes

_ZERO = as_expr(0)
_SHORT = 64  # steps of ways that are compared one by one


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

    def amounts(self, step: Step) -> Sums:
        """What one step amounts to."""
        adds = translation(self.nodes.form[step.node].expr)
        return Sums(1, adds is None, _ZERO if adds is None else adds, mixed(step.node))

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
    return [way for steps in edges.values() for way in _ways_of(net, steps)]


@dataclass(frozen=True, slots=True)
class Way:
    """A cycle: ``first``, then along ``back`` to the group ``meet``, and along ``there`` to where ``first`` starts."""

    first: Step
    meet: int
    there: Tree
    back: Tree
    sums: Sums

    @property
    def adds(self) -> Expr | None:
        """What once around adds to every coordinate; None where a step is no translation."""
        return None if self.sums.rough else self.sums.offset

    def steps(self) -> list[Step]:
        """The steps, from the expression that entered the graph first."""
        way, at = [self.first], self.first.to
        while at != self.meet:
            step = self.back.up[at]
            if step is None:
                break
            way.append(step)
            at = step.to
        before: list[Step] = []
        at = self.first.source
        while at != self.meet:
            step = self.there.up[at]
            if step is None:
                break
            before.append(step)
            at = step.source
        way += reversed(before)
        begin = min(range(len(way)), key=lambda k: way[k].node)
        return way[begin:] + way[:begin]

    @property
    def key(self) -> object:
        """Equal for the ways through one set of expressions; long ones are told apart by a 64-bit sum."""
        if self.sums.steps > _SHORT:
            return self.sums.steps, self.sums.mark
        return frozenset(s.node for s in self.steps())


def _ways_of(net: Net, steps: list[Step]) -> list[Way]:
    """Cycles through the steps of one component."""
    leaving: dict[int, list[Step]] = {}
    entering: dict[int, list[Step]] = {}
    for step in steps:
        leaving.setdefault(step.source, []).append(step)
        entering.setdefault(step.to, []).append(step)
    root = max(leaving, key=lambda g: len(leaving[g]) + len(entering[g]))  # the first of the busiest
    there, back = tree(root, leaving, True, net.amounts), tree(root, entering, False, net.amounts)
    in_tree = set(there.up.values())
    rest = [step for step in steps if step not in in_tree]
    met = meetings(there, back, ((step.source, step.to) for step in rest))
    found: dict[object, Way] = {}
    for step in rest:
        meet = met[step.source, step.to]
        on = back.sums[step.to].minus(back.sums[meet])
        again = there.sums[step.source].minus(there.sums[meet])
        way = Way(step, meet, there, back, net.amounts(step).plus(on).plus(again))
        found.setdefault(way.key, way)
    return list(found.values())
