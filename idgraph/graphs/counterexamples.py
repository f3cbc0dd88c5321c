"""Counterexamples in numbers: a coordinate that goes round and comes back as another one.

Whether every coordinate comes back is for the algebra to say. Where one does not, a few points tell it sooner: they
are carried along the same ways by the same rules, as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from idgraph.arith import Expr, as_expr
from idgraph.graphs.beside import is_determined
from idgraph.graphs.net import GroupDigraph, is_identity_edge
from idgraph.ir import DomainExpr, IterDomain, Stride

_PLACES = 24  # expressions that one point goes through
_SEARCH_POINTS = 2
_UNKNOWN = -1  # an extent that is no number

Known = dict[int, Expr]


class _PathPoint(NamedTuple):
    """A group that a way came to, with the coordinates of the groups on the way and beside its start."""

    group: int
    known: Known
    passed: tuple[int, ...]


class PointPropagation:
    """Carries points round a net whose groups may grow."""

    def __init__(self, net: GroupDigraph) -> None:
        self._net = net
        self._limits: dict[DomainExpr, tuple[int, ...]] = {}

    def some_come_back_other(self, among: Set[int]) -> bool:
        """True where a coordinate of one of these groups goes round by them and is another one then.

        False where no such point is found. Axes beside the way of which nothing is known have any coordinate; a way
        ends where something may be known of one.
        """
        sizes = {g: _number(self._net.axis(g)) for g in among}
        starts = sorted((g for g, n in sizes.items() if n > 0), key=lambda g: (-sizes[g], g))  # merged axes first
        return any(_PointSearch(self, g, among, k).is_other(sizes[g]) for k in range(_SEARCH_POINTS) for g in starts)

    def made(self, n: int, values: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        """The coordinates that an expression makes; None where it has no element there."""
        e = self._net.expr(n)
        limits = self._limits.get(e)
        if limits is None:
            limits = self._limits[e] = tuple(map(_number, (*e.inputs, *e.outputs)))
        made = self._net.effects.made(e, values) if min(limits) >= 0 else ()
        if not made or not all(
            v.is_const and 0 <= int(v) < limit for v, limit in zip((*values, *made), limits, strict=True)
        ):
            return None
        if isinstance(e, Stride) and e.step != 1 and (values[0] - e.start) % e.step != 0:
            return None  # between the steps there is no element
        return made


class _PointSearch:
    """The ways of one point, whose number is ``seed``."""

    def __init__(self, points: PointPropagation, start: int, among: Set[int], seed: int) -> None:
        self._points, self._net = points, points._net  # pyright: ignore[reportPrivateUsage]
        self._start, self._among, self._seed = start, among, seed
        self._free: dict[int, Expr | None] = {}
        self._frame: Known | None = None

    def is_other(self, extent: int) -> bool:
        """Whether the point comes back to its group as another one."""
        net, among = self._net, self._among
        c = as_expr(extent * (2 * self._seed + 1) // (2 * _SEARCH_POINTS))
        pending, left = [_PathPoint(self._start, {self._start: c}, ())], _PLACES
        while pending and left > 0:
            at = pending.pop()
            for n in net.uses(at.group):
                outs = net.outs(n)
                if among.isdisjoint(outs) or is_identity_edge(net, n):
                    continue
                left -= 1
                values = self._sides(net.ins(n), at.known)
                made = self._points.made(n, values) if values is not None else None
                if values is None or made is None:
                    continue
                for to, value in zip(outs, made, strict=True):
                    if to == self._start and value is not c:
                        return True
                    if to != self._start and to in among and to not in at.passed:
                        known = (
                            dict(zip(net.ins(n), values, strict=True)) | at.known | dict(zip(outs, made, strict=True))
                        )
                        pending.append(_PathPoint(to, known, (*at.passed, to)))
        return False

    def _sides(self, groups: Iterable[int], known: Known) -> tuple[Expr, ...] | None:
        """The coordinates that an expression reads; None where one of them may follow from others."""
        found: list[Expr] = []
        for g in groups:
            value = known.get(g)
            if value is None:
                if self._frame is None:
                    beside = {x: self._any(x) for x in self._net.frame(self._start)}
                    self._frame = {x: v for x, v in beside.items() if v is not None}
                value = self._frame.get(g)
            if value is None and not is_determined(self._net, g, (self._frame or {}) | known):
                value = self._any(g)
            if value is None:
                return None
            found.append(value)
        return tuple(found)

    def _any(self, group: int) -> Expr | None:
        """Some coordinate of a group; None where its extent is not a number, or there is no element."""
        if group not in self._free:
            extent = _number(self._net.axis(group))
            at = 5 * len(self._free) + 3 * self._seed + 1
            self._free[group] = as_expr(at % extent) if extent > 0 else None
        return self._free[group]


def _number(d: IterDomain) -> int:
    return int(d.extent) if d.extent.is_const else _UNKNOWN
