"""The groups of a net on which a cycle can change a coordinate: those that two different ways join.

An expression relates groups: a merge and the split that undoes it are one relation, as are a pad and the slice that
takes it off. Where relations and groups form a tree, whoever comes back to a group comes back by the relation by which
it left, with the coordinate with which it left. So only what is left when leaves are taken off, again and again, has to
be looked at with coordinates (the 2-core of groups and relations).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from idgraph.graphs.net import GroupDigraph, is_identity_edge


def two_core(net: GroupDigraph, among: Collection[int], relation: Callable[[int], Hashable]) -> set[int]:
    """The groups ``among`` on cycles that leave and come back by different relations; every such cycle has only these.

    ``relation`` is equal for expressions that relate the same groups in the same manner, whichever side they read.
    """
    joined: dict[Hashable, list[int]] = {}
    of: dict[int, list[Hashable]] = {g: [] for g in among}
    for g in among:
        for n in net.uses(g):
            outs = net.outs(n)
            if of.keys().isdisjoint(outs) or is_identity_edge(net, n):
                continue
            key = relation(n)
            if key not in joined:
                joined[key] = sides = [x for x in (*net.ins(n), *outs) if x in of]
                for x in sides:
                    of[x].append(key)
    count = {key: len(sides) for key, sides in joined.items()}
    degree = {g: len(keys) for g, keys in of.items()}
    leaves = [g for g, d in degree.items() if d == 1]
    while leaves:
        g = leaves.pop()
        if degree[g] != 1:
            continue  # the relation that it was a leaf of has gone
        degree[g] = 0
        key = next(k for k in of[g] if count[k] > 1)
        count[key] -= 1
        if count[key] == 1:
            last = next(x for x in joined[key] if degree[x] > 0)
            degree[last] -= 1
            if degree[last] == 1:
                leaves.append(last)
    return {g for key, sides in joined.items() if count[key] > 1 for g in sides}
