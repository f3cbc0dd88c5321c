"""What a cycle does to a coordinate: the maps around it composed, and the kind that follows.

*Identity* gives the coordinate back, *shift* adds a constant (modulo the extent where a roll wraps), *reorder* does
anything else. Only coordinates count at which every axis on the way has an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from idgraph.arith import FALSE, Expr, Proof, and_, as_expr, is_true, prove_equal, simplify, symbol
from idgraph.arith.assume import replace
from idgraph.arith.nodes import postorder
from idgraph.graphs.coordinates import forward
from idgraph.graphs.keys import axis_of
from idgraph.graphs.trees import Step
from idgraph.graphs.valgraph import ValGraph
from idgraph.graphs.ways import Net
from idgraph.ir import Stride

CycleKind = Literal["identity", "shift", "reorder"]
_SIDE_STEPS = 64  # expressions looked at to find what enters a cycle from the side
_POINTS = 1024  # coordinates tried one by one where no rule decides
_TURNS = 3  # remainders of one way round that are taken apart
_ZERO = as_expr(0)


@dataclass(frozen=True, slots=True)
class Round:
    """Once around: ``net`` is the coordinate afterwards as an expression of ``c``, the coordinate before."""

    kind: CycleKind
    shift: Expr | None
    modulus: Expr | None
    net: Expr


class Composer:
    """Composes the coordinate maps around cycles of one graph."""

    def __init__(self, graph: ValGraph[Any], net: Net) -> None:
        self._graph = graph
        self._net = net

    def translated(self, start: int, adds: Expr) -> Round:
        """Once around a cycle of translations from a group, which add ``adds`` together."""
        kind, shift, modulus = _shifted(simplify(adds))
        return Round(kind, shift, modulus, simplify(symbol("c", 0, self._extent(start) - 1) + adds))

    def around(self, way: Sequence[Step]) -> Round:
        """The coordinate once around."""
        start = way[0].source
        c = symbol("c", 0, self._extent(start) - 1)
        known = {start: c}
        ahead = {step.source for step in way}
        value, inside = c, list[Expr]()
        for step in way:
            ahead.discard(step.source)
            ins, outs = self._net.ins[step.node], self._net.outs[step.node]
            at = ins.index(step.source)
            values = [value if k == at else self._side(g, known, ahead) for k, g in enumerate(ins)]
            expr = self._graph.nodes.form[step.node].expr
            if isinstance(expr, Stride) and expr.step != -1:
                inside.append(((value - expr.start) % expr.step).eq(0))  # between the steps there is no element
            made = forward(expr, tuple(values))
            for g, v in zip(outs, made, strict=True):
                if g not in known:
                    known[g] = simplify(v)
            value = simplify(made[outs.index(step.to)])
            inside += [value >= 0, value < self._extent(step.to)]
        return Round(*_classify(value, c, self._extent(start), inside), value)

    def _extent(self, g: int) -> Expr:
        return axis_of(self._graph.numbered(g).first).extent

    def _side(self, g: int, known: dict[int, Expr], ahead: set[int]) -> Expr:
        """The coordinate of an axis that enters from the side: what follows from known ones, else a free variable."""
        order: list[int] = []
        seen = {g}
        pending = [g]
        while pending and len(order) < _SIDE_STEPS:
            at = pending.pop()
            if at in known or (at in ahead and at != g):
                continue
            for n in self._net.made_by.get(at, ()):
                order.append(n)
                fresh = [x for x in self._net.ins[n] if x not in seen]
                seen.update(fresh)
                pending += fresh
        for n in reversed(order):
            ins = self._net.ins[n]
            if all(x in known for x in ins):
                made = forward(self._graph.nodes.form[n].expr, tuple(known[x] for x in ins))
                for x, v in zip(self._net.outs[n], made, strict=True):
                    if x not in known and x not in ahead:
                        known[x] = simplify(v)
        if g not in known:
            known[g] = symbol(f"side{g}", 0, self._extent(g) - 1)
        return known[g]


def _classify(net: Expr, c: Expr, extent: Expr, inside: list[Expr]) -> tuple[CycleKind, Expr | None, Expr | None]:
    moved = simplify(net - c)
    if not _moves(moved):
        return _shifted(moved)
    if any(name.startswith("side") for name in net.names):
        return ("identity", _ZERO, None) if isinstance(prove_equal(net, c), Proof) else ("reorder", None, None)
    facts = [x for x in map(simplify, inside) if not x.is_const]
    moved = simplify(moved, facts=facts)
    if not _moves(moved):
        return _shifted(moved)
    if extent.is_const and int(extent) <= _POINTS and net.names <= {"c"}:
        return _by_points(net, int(extent), facts)
    turned = _by_turns(net, c, facts, _TURNS) or []
    if len(turned) == 1:
        return _shifted(turned[0])
    if len(turned) == 2 and simplify(turned[0] - turned[1]) in (extent, simplify(-extent)):
        return "shift", min(turned, key=lambda x: len(str(x))), extent
    total = simplify(net.substitute({"c": _ZERO}))
    if isinstance(prove_equal(net, (c + total) % extent), Proof):
        return "shift", total, extent
    return "reorder", None, None


def _by_turns(net: Expr, c: Expr, facts: Sequence[Expr], depth: int) -> list[Expr] | None:
    """What is added where remainders by a symbolic size lie in their several periods; None where that is not a number.

    Periods that the ``facts`` exclude do not count: a roll whose wrapped part is cut off moves all that is left alike.
    """
    turns = [x for x in postorder(net) if x.op == "mod" and not x.args[1].is_const and c in x.symbols]
    if not turns or depth == 0:
        moved = simplify(net - c, facts=facts)
        return None if turns or _moves(moved) else [moved]
    found: dict[Expr, None] = {}
    x, size = turns[0].args
    for k in (-1, 0, 1):
        value = x - size * k
        table = {turns[0]: value}
        within = [simplify(f) for f in (value >= 0, value < size, *(replace(f, table) for f in facts))]
        if simplify(and_(*within)) == FALSE:
            continue
        one = _by_turns(simplify(replace(net, table)), c, [f for f in within if not f.is_const], depth - 1)
        if one is None:
            return None
        found.update(dict.fromkeys(one))
    return list(found) if is_true(x >= -size) and is_true(x < size * 2) else None  # no other period


def _by_points(net: Expr, n: int, facts: list[Expr]) -> tuple[CycleKind, Expr | None, Expr | None]:
    at = [{"c": c} for c in range(n)]
    alone = [f for f in facts if f.names <= {"c"}]
    pairs = [(p["c"], int(net.evaluate(p))) for p in at if all(f.evaluate(p) for f in alone)]
    shifts = {y - x for x, y in pairs}
    if len(shifts) == 1:
        return _shifted(as_expr(shifts.pop()))
    shifts = {s % n for s in shifts}
    if len(shifts) == 1:
        return "shift", as_expr(shifts.pop()), as_expr(n)
    return "reorder", None, None


def _shifted(by: Expr) -> tuple[CycleKind, Expr | None, Expr | None]:
    return ("identity", _ZERO, None) if by == 0 else ("shift", by, None)


def _moves(moved: Expr) -> bool:
    """True of a difference that is not the same everywhere."""
    return any(name == "c" or name.startswith("side") for name in moved.names)
