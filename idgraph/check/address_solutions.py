"""Points of loops at which an address may be one that is wanted: guesses, which a proof has to confirm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from idgraph.arith import FALSE, Expr, as_expr, minimum, postorder, simplify, symbol
from idgraph.arith.facts import replace as replaced
from idgraph.arith.solve import coefficients
from idgraph.check.program import ZERO, Axis

Point = Mapping[str, Expr]  # values of loops
CONFIRMED = 20_000  # boxes of points in which plain Python looks for a fault before it is reported
FREE = 2  # loops that an address leaves open, and of which both ends are tried


def solutions(address: Expr, free: Sequence[Axis], wanted: Expr, last: Expr | None) -> Iterator[dict[str, Expr]]:
    """Points of the loops ``free`` at which ``address`` may be ``wanted``: guesses, which a proof has to confirm.
    ``last``: the last value that the first of the loops may have.
    """
    if not free:
        yield {}
        return
    names = {a.name for a in free}
    address = simplify(address)
    choice = next((e for e in postorder(address) if e.op in ("min", "max", "where") and e.names & names), None)
    if choice is not None:
        for x in choice.args if choice.op != "where" else choice.args[1:]:
            yield from solutions(replaced(address, {choice: x}), free, wanted, last)
        return
    turns = [e for e in postorder(address) if e.op == "mod" and e.names & names]
    if turns:
        sizes = {e.args[1] for e in turns}
        plain = replaced(address, {e: e.args[0] for e in turns})
        other = replaced(wanted, {e: e.args[0] for e in postorder(wanted) if e.op == "mod" and e.args[1] in sizes})
        yield from solutions(plain, free, simplify(other), last)
        if other != wanted:
            yield from solutions(plain, free, wanted, last)
        yield from _latest(address, turns, free, wanted, last)
        return
    found = coefficients(address, [a.symbol for a in free])
    if found is None:
        return
    *steps, rest = found
    wide = [(s, a) for s, a in zip(steps, free, strict=True) if s != ZERO and a.extent != as_expr(1)]
    open_ = [a for s, a in zip(steps, free, strict=True) if s == ZERO or a.extent == as_expr(1)]
    ends = [[simplify(a.extent - 1), ZERO] if a.extent != as_expr(1) else [ZERO] for a in open_]
    if last is not None and open_ and open_[0] is free[0]:
        ends[0] = [last, *ends[0]]
    every = list(product(*ends)) if len(open_) <= FREE else [tuple(e[0] for e in ends), tuple(e[-1] for e in ends)]
    for digits in _loops_of_sum(wide, simplify(wanted - rest)):
        for c in every:
            yield {**digits, **dict(zip((a.name for a in open_), c, strict=True))}


def _loops_of_sum(wide: Sequence[tuple[Expr, Axis]], value: Expr) -> Iterator[dict[str, Expr]]:
    """Loops of a sum ``step * loop``, from the widest step: as far as it goes, or at most its last iteration."""
    names = sorted({n for s, a in wide for n in (*s.names, *a.extent.names)})
    env = {n: 1009 + 64 * k for k, n in enumerate(names)}
    order = sorted(wide, key=lambda x: -abs(int(x[0].evaluate(env))))
    for clipped, less in ((False, 0), (True, 0), (False, 1)):
        out, rest = dict[str, Expr](), value
        for k, (s, a) in enumerate(order):
            down = int(s.evaluate(env)) < 0
            step = -s if down else s
            left = rest + step * (a.extent - 1) if down else rest  # counted from the last iteration
            part = left // step if step != as_expr(1) else left
            if k == 0 and clipped:
                part = minimum(part, a.extent - 1)
            if k == 0 and less:
                part = part - less
            part = simplify(part)
            out[a.name] = simplify(a.extent - 1 - part) if down else part
            rest = simplify(left - step * part)
        yield out
        if len(order) < 2:
            return


def _latest(
    address: Expr, turns: Sequence[Expr], free: Sequence[Axis], wanted: Expr, last: Expr | None
) -> Iterator[dict[str, Expr]]:
    """The last iteration of the first loop whose remainder is the one that is wanted."""
    a = free[0]
    end = last if last is not None else simplify(a.extent - 1)
    for e in turns:
        x, size = e.args
        found = coefficients(x, [a.symbol])
        if found is None or found[0] != as_expr(1) or x.names & {b.name for b in free[1:]}:
            continue
        scale = coefficients(replaced(address, {e: symbol("turn")}), [symbol("turn")])
        if scale is None:
            continue
        digit = simplify((wanted - scale[1].substitute({b.name: 0 for b in free})) // scale[0])
        at = simplify(end - (x.substitute({a.name: end}) - digit) % size)
        for more in solutions(address.substitute({a.name: at}), free[1:], wanted, None):
            yield {a.name: at, **more}


def points_at(
    address: Expr, when: Expr, loops: Sequence[Axis], at: int, sizes: Mapping[str, int]
) -> list[dict[str, int]] | None:
    """The points of loops at which an address is ``at``: boxes of points that may have such a one are halved.

    None where that are too many boxes.
    """
    spans = {a.name: (0, max(int(a.extent.evaluate(sizes)), 0)) for a in loops}
    address, when = address.substitute(dict(sizes)), when.substitute(dict(sizes))
    weight = {n: _reach(address, {**dict.fromkeys(spans, (0, 1)), n: span}) for n, span in spans.items()}
    found, boxes, steps = list[dict[str, int]](), [spans], 0
    while boxes:
        box = boxes.pop()
        if any(low >= high for low, high in box.values()):
            continue
        if (steps := steps + 1) > CONFIRMED:
            return None
        values = simplify(_boxed(address, box)).range
        if (values.lo is not None and values.lo > at) or (values.hi is not None and values.hi < at):
            continue
        wide = [n for n, (low, high) in box.items() if high - low > 1]
        if not wide:
            env = {**sizes, **{n: low for n, (low, _) in box.items()}}
            found += [env] if int(address.evaluate(env)) == at and when.evaluate(env) else []
        elif simplify(_boxed(when, box)) is not FALSE:
            name = max(wide, key=lambda n: (box[n][1] - box[n][0]) * weight[n])
            low, high = box[name]
            boxes += [{**box, name: (low, (low + high) // 2)}, {**box, name: ((low + high) // 2, high)}]
    return found


def _boxed(x: Expr, box: Mapping[str, tuple[int, int]]) -> Expr:
    """A formula where its loops are in a box."""
    return x.substitute({n: symbol(n, low, high - 1) if high - low > 1 else low for n, (low, high) in box.items()})


def _reach(address: Expr, box: Mapping[str, tuple[int, int]]) -> float:
    """How far an address goes for a step of the one loop of a box, on average."""
    values, trips = simplify(_boxed(address, box)).range, max(high - low for low, high in box.values())
    return 1.0 if values.lo is None or values.hi is None else (values.hi - values.lo) / max(trips, 1)
