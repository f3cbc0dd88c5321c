"""The inverse of a guarded map, piece by piece, proved before it is given out.

A ``where`` (or min, max) in a result cuts the domain into pieces that have none; each piece is solved on its own
(`solve`) under the ranges that its condition leaves. The inverse takes an element to the piece whose image holds it.
Two pieces whose images meet show two points with one image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from idgraph.arith.change_of_variables import CHANGES, InverseCandidate
from idgraph.arith.digit_solver import QuotientForms, solve_digits
from idgraph.arith.expr import FALSE, TRUE, Expr, and_, as_expr, maximum, minimum, not_, or_, postorder, where
from idgraph.arith.facts import facts_of, narrowed, replace
from idgraph.arith.fourier_motzkin import is_nonneg
from idgraph.arith.interval import interval
from idgraph.arith.map_properties import Collision, MapProof, find_collision
from idgraph.arith.mixed_radix import cost
from idgraph.arith.prove import CounterExample, Proof, drop_redundant, prove, prove_equal
from idgraph.arith.rewriter import normal
from idgraph.arith.simplify import simplify

_MAX_PIECES = 64
_MAX_STEPS = 4
_LARGE = 2  # operations of an inverse, by those of its map, of which another way may have fewer
_CLASSES = 16  # values of a remainder that are looked at one by one


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the domain, and what the map is there; ``classes`` are the remainders that are fixed in it."""

    condition: Expr
    results: tuple[Expr, ...]
    classes: tuple[tuple[Expr, int], ...] = ()


def invert(
    symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr], steps: int = _MAX_STEPS
) -> InverseCandidate | Collision | None:
    """The inverse over ``images``, two points with one image, or None where neither was found.

    ``steps``: how often it may be taken apart into a map and one before it.
    """

    def again(
        symbols: Sequence[Expr], results: Sequence[Expr], condition: Expr, images: Sequence[Expr]
    ) -> InverseCandidate | Collision | None:
        return invert(symbols, results, condition, images, steps - 1)

    pieces = _pieces(results, condition)
    if pieces is None:
        return None
    solved: list[tuple[_Piece, InverseCandidate]] = []
    looked = False
    while pieces:
        piece = pieces.pop()
        found = _solved(symbols, piece, images)
        if found is not None:
            size = sum(map(cost, found.results))
            if not pieces and not solved and size > _LARGE * sum(map(cost, results)):
                for way in CHANGES if steps else ():
                    joined = way(symbols, results, condition, images, again)
                    if joined is not None and sum(map(cost, joined.results)) < size:
                        return joined
            solved.append((piece, found))
            continue
        if not looked:  # before it is cut any further: there may be no inverse
            looked = True
            for way in CHANGES if steps else ():
                joined = way(symbols, results, condition, images, again)
                if joined is not None:
                    return joined
            met = find_collision(symbols, results, condition)
            if isinstance(met, Collision):
                return met
        if isinstance(prove(not_(piece.condition)), Proof):
            continue  # no point at all
        classes = _classes(piece) or _split_by_value(symbols, piece)
        if not classes or len(classes) + len(pieces) + len(solved) > _MAX_PIECES:
            return None
        pieces += classes
    for k, (piece, _) in enumerate(solved):
        for _, other in solved[:k]:
            met = _meets(piece, other, images)
            if met is None:
                continue
            return _collision(met, symbols, piece, other, images) if isinstance(met, CounterExample) else None
    if not solved:
        return InverseCandidate(tuple(as_expr(0) for _ in symbols), FALSE, MapProof("exact", "inverse"))
    return _join_pieces(solved)


# pieces ---------------------------------------------------------------------------------------------------------------


def _pieces(results: Sequence[Expr], condition: Expr) -> list[_Piece] | None:
    """Parts of the domain without choices in the results; None for too many."""
    work = [_Piece(c, tuple(results)) for c in _alternatives(condition)]
    out: list[_Piece] = []
    while work:
        p = work.pop()
        if p.condition is FALSE:
            continue
        chosen = next((n for r in p.results for n in postorder(r) if n.op in ("where", "min", "max")), None)
        if chosen is None:
            out.append(p)
            continue
        if len(work) + len(out) > _MAX_PIECES:
            return None
        c, a, b = _branches(chosen)
        for fact, taken in ((not_(c), b), (c, a)):
            for part in _alternatives(fact):
                narrower = simplify(and_(p.condition, part))
                made = tuple(replace(r, {chosen: taken}) for r in p.results)
                work.append(_Piece(narrower, tuple(simplify(r, facts=(narrower,)) for r in made)))
    return out


def _alternatives(c: Expr) -> list[Expr]:
    """Conditions that exclude each other and are ``c`` together, none of them an ``or`` at its top."""
    if c.op != "or":
        return [c]
    out: list[Expr] = []
    before: list[Expr] = []
    for a in c.args:
        out.append(simplify(and_(a, *(not_(b) for b in before))))
        before.append(a)
    return out


def _branches(e: Expr) -> tuple[Expr, Expr, Expr]:
    """The condition, and both ways of a choice."""
    if e.op == "where":
        return e.args[0], e.args[1], e.args[2]
    a, rest = e.args[0], e.args[1:]
    b = minimum(*rest) if e.op == "min" else maximum(*rest)
    return (a <= b if e.op == "min" else a >= b), a, b


def _classes(piece: _Piece) -> list[_Piece]:
    """A piece cut into residue classes, where its condition speaks of a remainder that takes a few values."""
    fixed = {a for a, _ in piece.classes}
    for node in postorder(piece.condition):
        if node.op == "mod" and node not in fixed and node.args[1].op == "const" and 1 < node.args[1].value <= _CLASSES:
            return _split_piece(piece, node, range(node.args[1].value))
    return []


def _split_by_value(symbols: Sequence[Expr], piece: _Piece) -> list[_Piece]:
    """A piece cut into the values of the symbol that has the fewest."""
    fixed = {a for a, _ in piece.classes}
    best: tuple[Expr, range] | None = None
    for s in symbols:
        lo, hi = interval(s)
        if s in fixed or lo is None or hi is None or not 0 < hi - lo < _CLASSES:
            continue
        if best is None or hi - lo + 1 < len(best[1]):
            best = s, range(lo, hi + 1)
    return [] if best is None else _split_piece(piece, *best)


def _split_piece(piece: _Piece, node: Expr, values: Iterable[int]) -> list[_Piece]:
    out: list[_Piece] = []
    for v in values:
        c = simplify(and_(piece.condition, node.eq(v)))
        if c is not FALSE:
            made = tuple(simplify(r, facts=() if c is TRUE else (c,)) for r in piece.results)
            out.append(_Piece(c, made, (*piece.classes, (node, v))))
    return out


# one piece ------------------------------------------------------------------------------------------------------------


def _solved(symbols: Sequence[Expr], piece: _Piece, images: Sequence[Expr]) -> InverseCandidate | None:
    joined = sum((s for s in symbols), as_expr(0))
    known = facts_of(normal(piece.condition))
    narrow = {s: new for s, new in narrowed(joined, known, {}).items() if s in symbols}
    mine = [narrow.get(s, s) for s in symbols]
    own = frozenset(symbols)
    equal = [c.args for c in _constraint_terms(piece.condition) if c.op == "eq"]
    fixed = [(a, b) if not b.symbols & own else (a - b, as_expr(0)) for a, b in equal]
    fixed += [(a, as_expr(v)) for a, v in piece.classes]
    for written in (piece.results, tuple(map(normal, piece.results))):
        equations = [(replace(r, narrow), y) for r, y in zip(written, images, strict=True)]
        equations += [(replace(normal(a), narrow), b) for a, b in fixed]
        found = solve_digits(mine, equations)
        proved = None if found is None else _proved(symbols, piece, images, found)
        if proved is not None:
            return proved
    return None


def _proved(
    symbols: Sequence[Expr], piece: _Piece, images: Sequence[Expr], back: Sequence[Expr]
) -> InverseCandidate | None:
    """The solution with its domain, where it is proved to lead back from every point of the piece."""
    facts = () if piece.condition is TRUE else (piece.condition,)
    there = dict(zip(images, piece.results, strict=True))
    points = 0
    forms = QuotientForms()
    for s, g in zip(symbols, back, strict=True):
        if forms.equal(g.substitute(there), s):
            continue
        proof = prove_equal(g.substitute(there), s, facts=facts)
        if not isinstance(proof, Proof):
            return None
        points = max(points, proof.points)
    for y, r in there.items():
        for c in range_conditions(y, r):
            if not isinstance(prove(c, facts=facts), Proof):
                return None
    condition = _image(symbols, piece, images, back)
    results = tuple(simplify(g, facts=() if condition is TRUE else (condition,)) for g in back)
    return InverseCandidate(results, condition, MapProof("exact", "inverse", points))


def _image(symbols: Sequence[Expr], piece: _Piece, images: Sequence[Expr], back: Sequence[Expr]) -> Expr:
    """The condition that the inverse leads into the piece and the map leads back: the image, by its definition."""
    mine, theirs = _points_of_box(symbols), _points_of_box(images)
    if piece.condition is TRUE and mine is not None and theirs is not None and simplify(mine - theirs) == 0:
        return TRUE  # one to one between boxes of as many points
    table = dict(zip(symbols, back, strict=True))
    wanted = [c for s, g in table.items() for c in range_conditions(s, g)]
    wanted += [c.substitute(table) for c in _constraint_terms(piece.condition)]
    there = [(r.substitute(table), y) for r, y in zip(piece.results, images, strict=True)]
    forms = QuotientForms()
    wanted += [r.eq(y) for r, y in there if not forms.equal(r, y)]
    kept: list[Expr] = []
    for c in sorted((simplify(c) for c in wanted), key=lambda c: (c.cost, c.key)):
        if c is not TRUE and c not in kept and not isinstance(prove(c, facts=kept), Proof):
            kept.append(simplify(c, facts=kept) if kept else c)
    return simplify(and_(*drop_redundant(kept)))


def _points_of_box(box: Sequence[Expr]) -> Expr | None:
    """How many points a box of symbols has; None where a range has a step, or may end before it begins."""
    found = as_expr(1)
    for s in box:
        lo, hi, step, _ = s.symbol_bounds
        if lo is None or hi is None or step != 1 or not is_nonneg(side := normal(as_expr(hi) - as_expr(lo) + 1)):
            return None
        found = found * side
    return found


def range_conditions(s: Expr, x: Expr) -> list[Expr]:
    """The conditions that hold of ``x`` where it is a value of the symbol ``s``."""
    lo, hi, step, first = s.symbol_bounds
    out: list[Expr] = [] if lo is None else [x >= lo]
    out += [] if hi is None else [x <= hi]
    return out if step == 1 else [*out, (x % step).eq(first)]


def _constraint_terms(c: Expr) -> tuple[Expr, ...]:
    return () if c is TRUE else c.conjuncts


# pieces together ------------------------------------------------------------------------------------------------------


def _meets(piece: _Piece, other: InverseCandidate, images: Sequence[Expr]) -> CounterExample | bool | None:
    """None where no point of the piece goes into the image of the other; a point that does; True if not known."""
    there = dict(zip(images, piece.results, strict=True))
    inside = other.condition.substitute(there)
    found = prove(not_(inside), facts=() if piece.condition is TRUE else (piece.condition,))
    if isinstance(found, Proof):
        return None
    return found if isinstance(found, CounterExample) else True


def _collision(
    met: CounterExample, symbols: Sequence[Expr], piece: _Piece, other: InverseCandidate, images: Sequence[Expr]
) -> Collision | None:
    """The point found in two pieces' images, and the point of the other piece that goes there too."""
    values = dict(met.values)
    for s in symbols:
        if s.name not in values:  # any value of it will do, if the condition does not speak of it
            lo = s.symbol_bounds[0]
            values[s.name] = int(as_expr(lo if lo is not None else 0).evaluate(values))
    image = tuple(int(r.evaluate(values)) for r in piece.results)
    there = values | {y.name: n for y, n in zip(images, image, strict=True)}
    first = {s.name: values[s.name] for s in symbols}
    second = {s.name: int(g.evaluate(there)) for s, g in zip(symbols, other.results, strict=True)}
    rest = {k: v for k, v in values.items() if k not in first}
    return None if first == second else Collision(second, first, image, rest)


def _join_pieces(solved: Sequence[tuple[_Piece, InverseCandidate]]) -> InverseCandidate:
    """One inverse of all pieces."""
    condition = simplify(or_(*(f.condition for _, f in solved)))
    if condition is not TRUE and isinstance(prove(condition), Proof):
        condition = TRUE
    last = solved[-1][1]
    results = list(last.results)
    for _, f in reversed(solved[:-1]):
        results = [where(f.condition, a, b) for a, b in zip(f.results, results, strict=True)]
    facts = () if condition is TRUE else (condition,)
    points = max(f.proof.points for _, f in solved)
    return InverseCandidate(
        tuple(simplify(r, facts=facts) for r in results), condition, MapProof("exact", "inverse", points)
    )
