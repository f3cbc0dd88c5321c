"""The difference of the indices of two groups: the ways from one to the other, each with its map and condition."""

from __future__ import annotations

from idgraph.arith import TRUE
from idgraph.graphs.carry import TranslatedInterval
from idgraph.graphs.net import GroupDigraph
from idgraph.graphs.simple_cycles import VisitedStates, follow

_PLACES = 2_000  # places of the search
_PARTS = 8  # parts told


def difference(net: GroupDigraph, a: int, b: int) -> str:
    """``index differs by -32 on [32, 64), +32 on [0, 32)``: from the first group to the second."""
    for forwards in (True, False):
        told = _parts(net, *((a, b) if forwards else (b, a)), forwards=forwards)
        if told:
            more = f" and {len(told) - _PARTS} more" if len(told) > _PARTS else ""
            return f"index differs {', '.join(told[:_PARTS])}{more}"
    return "no way in the aligned graph leads from the one to the other"


def _parts(net: GroupDigraph, start: int, goal: int, *, forwards: bool) -> list[str]:
    among = _between(net, start, goal)
    shifts: dict[int, list[tuple[int, int]]] = {}
    others: list[str] = []
    ways = follow(net, start, goal, among.__contains__, reached=VisitedStates(_PLACES), named=True) if among else ()
    for carrier, end in ways:
        at = end.carried
        if isinstance(at, TranslatedInterval):
            # The same difference seen from the other end.
            by, low = (at.add, at.low) if forwards else (-at.add, at.low + at.add)
            shifts.setdefault(by, []).append((low, low + at.high - at.low))
            continue
        c, where = carrier.c, "" if at.inside is TRUE else f" where {at.inside}"
        others.append(f"by {c} -> {at.value}{where}" if forwards else f"by {at.value} -> {c}{where}")
    spans = [f"{by:+d} on {_union(runs)}" for by, runs in sorted(shifts.items())]
    return ([f"by {spans[0]}", *spans[1:]] if spans else []) + list(dict.fromkeys(others))


def _union(runs: list[tuple[int, int]]) -> str:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(runs):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return " and ".join(f"[{low}, {high})" for low, high in merged)


def _between(net: GroupDigraph, start: int, goal: int) -> set[int]:
    """Groups on ways from one group to another."""
    after, before = {start}, {goal}
    for found, forwards in ((after, True), (before, False)):
        pending = list(found)
        while pending:
            at = pending.pop()
            for n in net.uses(at) if forwards else net.definitions(at):
                for g in net.outs(n) if forwards else net.ins(n):
                    if g not in found:
                        found.add(g)
                        pending.append(g)
    return after & before if goal in after else set()
