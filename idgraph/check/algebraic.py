"""Deciding by algebra: two lists of reads are the same when their formulas simplify to the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations, product
from math import prod

from idgraph.arith import FALSE, TRUE, Expr, and_, as_expr, not_, or_, simplify
from idgraph.arith.expr import postorder
from idgraph.arith.integer_solutions import follows, no_solution
from idgraph.check.index_values import ValueTable
from idgraph.check.semantics import MOST_NEEDS, ElementRead

CASES = 5  # conditions that a proof by cases splits on
ORDERS = 24  # orders of the reduced axes that are tried


def merged(needs: Sequence[ElementRead], held: Expr) -> list[ElementRead]:
    """Needs in their smallest forms, those of one address joined into one with either's condition."""
    found: dict[tuple[str, Expr], ElementRead] = {}
    for n in needs:
        when = simplify(n.when, facts=(held,)) if held is not TRUE else simplify(n.when)
        if when is FALSE:
            continue
        address = simplify(n.address, facts=(and_(when, held),))
        known = found.get((n.storage, address))
        if known is not None:
            when = simplify(or_(known.when, when))
        found[n.storage, address] = ElementRead(n.storage, address, when, known.tensor if known else n.tensor)
    return list(found.values())


def same(ours: Sequence[ElementRead], theirs: Sequence[ElementRead], held: Expr) -> bool:
    """True when both lists are proved to be the same set of elements at every point: formula by formula, or in cases.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 7)
    >>> halves = [ElementRead("x", i + 4, i < 4), ElementRead("x", i - 4, i >= 4)]
    >>> right, wrong = (ElementRead("x", (i + n) % 8, TRUE) for n in (4, 3))
    >>> same([right], halves, TRUE), same([wrong], halves, TRUE)
    (True, False)
    """
    return _in_cases(ours, theirs, held, CASES) or (
        _reads_within(ours, theirs, held) and _reads_within(theirs, ours, held)
    )


def _reads_within(a: Sequence[ElementRead], b: Sequence[ElementRead], held: Expr) -> bool:
    """Proved by integer conditions: each element that the first read is one that the others read."""
    return all(
        no_solution(
            held, n.when, *(not_(and_(m.when, m.address.eq(n.address))) for m in b if m.storage == n.storage)
        )
        for n in a
    )  # fmt: skip


def _in_cases(ours: Sequence[ElementRead], theirs: Sequence[ElementRead], held: Expr, depth: int) -> bool:
    a, b = merged(ours, held), merged(theirs, held)
    if _matched(a, b, held):
        return True
    split = (n.when for n in (*b, *a) if n.when is not TRUE), (x for n in (*b, *a) for x in _choices(n.address))
    c = next((x for group in split for x in group), None)
    if c is None or depth == 0:
        return False
    c = c.args[0] if c.op in ("and", "or") else c
    cases = (simplify(and_(held, c)), simplify(and_(held, not_(c))))
    return held not in cases and all(x is FALSE or _in_cases(a, b, x, depth - 1) for x in cases)


def _choices(x: Expr) -> Iterator[Expr]:
    """Conditions that say which operand a choice in a formula (an absolute value, say) is, innermost first."""
    for e in postorder(x):
        if e.op == "where":
            yield e.args[0]
        elif e.op in ("min", "max"):
            yield simplify(e.args[0] <= e.args[1])


def _matched(a: list[ElementRead], b: list[ElementRead], held: Expr) -> bool:
    if {(n.storage, n.address, n.when) for n in a} == {(n.storage, n.address, n.when) for n in b}:
        return True
    if len(a) != len(b):
        return False
    left = list(b)
    for n in a:
        twin = next((m for m in left if _equal_reads(n, m, held)), None)
        if twin is None:
            return False
        left.remove(twin)
    return True


def _equal_reads(a: ElementRead, b: ElementRead, held: Expr) -> bool:
    if a.storage != b.storage or not equivalent(a.when, b.when, held):
        return False
    return a.address == b.address or simplify(a.address.eq(b.address), facts=(and_(a.when, held),)) is TRUE


def equivalent(a: Expr, b: Expr, held: Expr = TRUE) -> bool:
    """True when two conditions are proved to hold at the same points.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i", 0, 7)
    >>> equivalent(i < 4, i <= 3), equivalent(i < 4, i < 5)
    (True, False)
    """
    if a == b:
        return True
    facts = (held,)
    return simplify(and_(a, not_(b)), facts=facts) is FALSE and simplify(and_(b, not_(a)), facts=facts) is FALSE


def flat_of(variables: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The row-major number of a point."""
    out = as_expr(0)
    for v, n in zip(variables, extents, strict=True):
        out = out * n + v
    return out


def unflat(flat: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """Coordinates of a row-major number.

    >>> from idgraph.arith import symbol
    >>> [str(x) for x in unflat(symbol("i", 0, 11), [as_expr(3), as_expr(4)])]
    ['i//4', 'i%4']
    """
    out: list[Expr] = []
    step = as_expr(1)
    for k, n in reversed(list(enumerate(extents))):
        part = flat // step
        out.append(simplify(part if k == 0 else part % n))
        step = simplify(step * n)
    return out[::-1]


def extent(s: Expr) -> Expr:
    """The number of values of a loop variable."""
    _, high, _, _ = s.symbol_bounds
    return simplify(as_expr(high if high is not None else 0) + 1)


def pairings(ours: Sequence[Expr], theirs: Sequence[Expr]) -> Iterator[tuple[dict[str, Expr], Expr]]:
    """Ways to go over the program's reduced axes with the nest's reduced loops: each a substitution that reaches every
    point once where a condition on the nest's loops holds, and that condition.
    """
    if not theirs:
        if not ours:
            yield {}, TRUE
        return
    mine, wanted = [extent(s) for s in ours], [extent(s) for s in theirs]
    total, needed = _product(mine), _product(wanted)
    if total != needed and not follows(total >= needed):
        return
    every = product(permutations(range(len(ours))), permutations(range(len(theirs))))
    for own, order in islice(every, ORDERS):
        flat = simplify(flat_of([ours[k] for k in own], [mine[k] for k in own]))
        places = unflat(flat, [wanted[k] for k in order])
        inside = TRUE if total == needed else flat < needed  # the points behind are left out
        yield {theirs[k].name: x for k, x in zip(order, places, strict=True)}, inside


def _product(extents: Sequence[Expr]) -> Expr:
    return simplify(prod(extents, start=as_expr(1)))


def all_same(
    ours: Sequence[ElementRead],
    theirs: Sequence[ElementRead],
    reduce: Sequence[Expr],
    meant: Sequence[Expr],
    held: Expr,
    table: ValueTable,
) -> bool:
    """As `same`, where elements are combined over reduced loops: some pairing makes all reads the same ones."""
    for way, inside in pairings(reduce, meant):
        turned = [
            ElementRead(n.storage, table.turn(n.address, way), and_(table.turn(n.when, way), inside), n.tensor)
            for n in theirs
        ]
        if same(ours, turned, held):
            return True
    return False


def spelled_out(needs: Sequence[ElementRead], reduce: Sequence[Expr], table: ValueTable) -> list[ElementRead]:
    """One read for each point of the reduced variables; as they are where those have too many, or a symbolic number.

    >>> from idgraph.arith import symbol
    >>> r = symbol("r", 0, 2)
    >>> [str(n.address) for n in spelled_out([ElementRead("x", r + 4, TRUE)], [r], ValueTable())]
    ['4', '5', '6']
    """
    sizes = [extent(s) for s in reduce]
    if not all(n.is_const for n in sizes) or len(needs) * prod(map(int, sizes)) > MOST_NEEDS:
        return list(needs)
    ways = [
        {s.name: as_expr(v) for s, v in zip(reduce, p, strict=True)} for p in product(*(range(int(n)) for n in sizes))
    ]
    return [replace(n, address=table.turn(n.address, w), when=table.turn(n.when, w)) for w in ways for n in needs]


def same_sets(
    ours: Sequence[ElementRead], theirs: Sequence[ElementRead], held: Expr, table: ValueTable, reduced: Sequence[Expr]
) -> bool:
    """True when both are proved to reach the same elements, however often: each formula has an equal one, its reduced
    variables renamed, on the other side.
    """
    known = {s.name: s for s in reduced}

    def variables(n: ElementRead) -> list[Expr]:
        names = table.variables(n.address) | table.variables(n.when)
        return [known[x] for x in sorted(names) if x in known]

    a, b = merged(ours, held), merged(theirs, held)
    return all(any(_same_read(n, m, variables, held, table) for m in b) for n in a) and all(
        any(_same_read(m, n, variables, held, table) for m in a) for n in b
    )


def _same_read(
    n: ElementRead, m: ElementRead, variables: Callable[[ElementRead], list[Expr]], held: Expr, table: ValueTable
) -> bool:
    if n.storage != m.storage:
        return False
    for way, inside in pairings(variables(n), variables(m)):
        turned = ElementRead(m.storage, table.turn(m.address, way), and_(table.turn(m.when, way), inside), m.tensor)
        if same([n], [turned], held):
            return True
    return False
