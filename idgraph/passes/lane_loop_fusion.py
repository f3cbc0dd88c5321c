"""Loops over lanes fused, arrays that one step uses as variables; expressions and purposes of lanes along a variable.

Loops of nothing but vector accesses become straight-line code (`in_line`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from typing import TypeGuard

from idgraph.arith import TRUE, Expr, and_, as_expr, simplify, symbol
from idgraph.arith.expr import rebuild
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import (
    defs,
    expand_body,
    loaded_in,
    locals_read,
    map_body,
    map_statement,
    operands_of,
    read_before_set,
    stored_in,
    updates,
)
from idgraph.kernel.ir import (
    PRIME,
    BoundsCheck,
    Comment,
    Compute,
    If,
    Kernel,
    Local,
    Loop,
    Operand,
    Provenance,
    ProvenanceList,
    RegisterArray,
    SingleThread,
    Stmt,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.ssa import to_ssa

Body = tuple[Stmt, ...]
_LIBRARY = frozenset(name for name, o in OPERATIONS.items() if o.cycles == "library")


def fuse_lane_loops(kernel: Kernel) -> Kernel:
    """fuse_lanes: neighbouring loops over as many lanes as one.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4] input "x"
    ...   registers t: float32[4]
    ...   registers u: float32[4]
    ...   for q < 4, unroll:
    ...     t[q]: float32 = x[q]
    ...   for q < 4, unroll:
    ...     u[q]: float32 = neg(t[q])
    ... ''')
    >>> print(fuse_lane_loops(k))
    kernel k():
      buffer x: float32[4] input "x"
      registers t: float32[4], u: float32[4]
      for q < 4, unroll:
        t[q]: float32 = x[q]
        u[q]: float32 = neg(t[q])
    """
    return replace(kernel, body=fused(kernel.body))


def scalar_replacement(kernel: Kernel) -> Kernel:
    """scalar_replacement: arrays used within one step of a loop become variables; unused arrays are dropped.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4] input "x"
    ...   registers t: float32[4]
    ...   for q < 4, unroll:
    ...     t[q]: float32 = x[q]
    ...     u: float32 = neg(t[q])
    ... ''')
    >>> print(scalar_replacement(k))
    kernel k():
      buffer x: float32[4] input "x"
      for q < 4, unroll:
        t: float32 = x[q]
        u: float32 = neg(t)
    """
    body = in_line(in_scalars(kernel.body))
    used = {x.name for s in walk(body) for x in _touched(s) if x.at is not None}
    return replace(kernel, body=to_ssa([s for s in body if not isinstance(s, RegisterArray) or s.name in used]))


def fused(body: Sequence[Stmt]) -> Body:
    """Neighbouring loops over as many lanes joined, where no step of the second waits for a later one of the first.

    Comments between them move in front. Loads stay apart from stores behind them: compilers cannot prove that
    the arrays do not alias, and would wait for each lane's load in turn. Divisions by reciprocals, which run again
    where one of them is not that of the division, stay apart from functions of a library.
    """
    made: list[Stmt] = []
    for s in body:
        at = next((n for n in range(len(made) - 1, -1, -1) if not isinstance(made[n], Comment)), -1)
        last = made[at] if at >= 0 else None
        if (
            is_lanes(s)
            and is_lanes(last)
            and (last.var, last.extent) == (s.var, s.extent)
            and not (loaded_in((last,)) and stored_in((s,)))
            and not _runs_once(last, s)
            and _independent(last, s)
        ):
            made[at:] = [*made[at + 1 :], replace(last, body=(*last.body, *s.body))]
        else:
            made.append(s)
    return tuple(
        replace(s, body=fused(s.body)) if isinstance(s, (Loop, If, SingleThread, BoundsCheck)) else s for s in made
    )


def is_lanes(s: Stmt | None) -> TypeGuard[Loop]:
    """True of a loop over lanes."""
    return isinstance(s, Loop) and s.parallel == "unroll" and s.extent.is_const


def _runs_once(a: Loop, b: Loop) -> bool:
    """True where one has divisions by reciprocals, and the other functions of a library."""
    first, second = ({x.op for x in walk(loop.body) if isinstance(x, Compute)} for loop in (a, b))
    return ("div_by" in first and bool(_LIBRARY & second)) or ("div_by" in second and bool(_LIBRARY & first))


def _independent(a: Loop, b: Loop) -> bool:
    """True where arrays that both touch and one sets have one element for each step, the same one in both loops."""
    stored = (stored_in((a,)), stored_in((b,)))
    if stored[0] & (stored[1] | loaded_in((b,))) or stored[1] & loaded_in((a,)):
        return False
    touched = [_array_indices(loop) for loop in (a, b)]
    written = [_array_indices(loop, written=True) for loop in (a, b)]
    names = (written[0].keys() & touched[1].keys()) | (written[1].keys() & touched[0].keys())
    return all(_one_each(touched[0][n] | touched[1][n], a) for n in names)


def _array_indices(loop: Loop, written: bool = False) -> dict[str, set[Expr | None]]:
    found: dict[str, set[Expr | None]] = {}
    for s in walk(loop.body):
        for x in (*defs(s), *updates(s), *(() if written else operands_of(s))):
            if isinstance(x, Local):
                found.setdefault(x.name, set()).add(x.at)
    return found


def _one_each(places: set[Expr | None], loop: Loop) -> bool:
    """True where this is a single place, another one in each step of the loop."""
    place = next(iter(places))
    if len(places) != 1 or place is None or loop.var not in place.names:
        return False
    inner = {s.var: int(s.extent) for s in walk((loop,)) if is_lanes(s)}
    own = [n for n in inner if n in place.names]
    if len(own) < len(place.names):
        return False
    points = [place.evaluate(dict(zip(own, at, strict=True))) for at in product(*(range(inner[n]) for n in own))]
    return len(set(points)) == len(points)


def in_scalars(body: Body) -> Body:
    """Arrays of which each step of a loop sets an element before it reads that one, and which nothing else touches, as
    variables; arrays of one element too."""
    total = Counter(x.name for s in walk(body) for x in _touched(s))
    lanes = [s for s in walk(body) if is_lanes(s) and not any(is_lanes(x) for x in walk(s.body))]
    own = Counter[str]()
    for loop in lanes:
        own.update(_own(loop))
    wide = {x.name for s in walk(body) for x in _touched(s) if x.at is None or not x.at.is_const or int(x.at) != 0}
    vectors = {x.name for s in walk(body) if isinstance(s, (VectorLoad, VectorStore)) for x in _touched(s)}
    plain = ({n for n in total if own[n] == total[n]} | (total.keys() - wide)) - vectors

    def local(x: Local) -> Local:
        return replace(x, at=None) if x.name in plain else x

    def operand(o: Operand) -> Operand:
        return local(o) if isinstance(o, Local) else o

    return map_body(body, lambda s: map_statement(s, made=local, updated=local, read=operand))


def in_line(body: Body) -> Body:
    """Loops of nothing but vector loads as the loads, those of one array side by side.

    NVVM moves a value that one later loop uses, the reciprocal of a row's deviation for example, in front of that loop,
    past any loop between. A division has a slow path, a branch: registers that loads have filled before it are all
    alive there, and ptxas moves no load over it. In straight-line code the value stays before the loads.
    """
    return expand_body(body, lambda s: _unroll_loads(s) if _loads_only(s) else None)


def _loads_only(s: Stmt) -> TypeGuard[Loop]:
    return is_lanes(s) and all(isinstance(x, VectorLoad) or _loads_only(x) for x in s.body)


def _at_iteration(s: Stmt, var: str, n: int) -> Stmt:
    """The statement with ``n`` for the loop's variable."""

    def at(x: Local) -> Local:
        return x if x.at is None else replace(x, at=x.at.substitute({var: n}))

    return map_statement(s, made=at, index=lambda e: e.substitute({var: n}))


def _unroll_loads(s: Stmt) -> list[Stmt]:
    """The steps of a loop of loads, and of loops in it: all of the first statement, then all of the next."""
    if not isinstance(s, Loop):
        return [s]
    return [_at_iteration(x, s.var, n) for one in s.body for n in range(int(s.extent)) for x in _unroll_loads(one)]


def _touched(s: Stmt) -> Iterator[Local]:
    for x in (*defs(s), *updates(s), *operands_of(s)):
        if isinstance(x, Local):
            yield x


def _own(loop: Loop) -> Counter[str]:
    """The number of touches of each array of which a step sets one element, reads that one, and touches no other."""
    found: dict[str, list[Local]] = {}
    for s in walk(loop.body):
        for x in _touched(s):
            found.setdefault(x.name, []).append(x)
    first = {x.name for s in loop.body for x in defs(s)}
    early = set(read_before_set(loop.body, locals_read, scoped=False))
    one = {n for n, xs in found.items() if xs[0].at is not None and len({x.at for x in xs}) == 1}
    return Counter({n: len(found[n]) for n in (one & first) - early})


def split_constant(e: Expr) -> tuple[Expr, int]:
    """``e`` as (rest, constant).

    >>> from idgraph.arith import symbol
    >>> rest, constant = split_constant(symbol("i") * 4 + 3)
    >>> str(rest), constant
    ('i*4', 3)
    """
    if e.is_condition:
        return e, 0
    if e.is_const:
        return as_expr(0), int(e)
    if e.op == "add":
        constant = sum(int(a) for a in e.args if a.is_const)
        return (simplify(e - constant), constant) if constant else (e, 0)
    return e, 0


@lru_cache(maxsize=1 << 14)
def shape(e: Expr) -> object:
    """Equal for expressions that differ in constants only.

    >>> from idgraph.arith import symbol
    >>> i = symbol("i")
    >>> shape(i * 4 + 1) == shape(i * 4 + 3) == shape(i * 4), shape(i // 4) == shape(i % 4)
    (True, False)
    """
    if e.is_const:
        return ("#", e.is_condition and bool(e.value))
    if e.op == "sym":
        return e
    args = tuple(shape(a) for a in e.args if not (e.op == "add" and a.is_const))
    return args[0] if e.op == "add" and len(args) == 1 else (e.op, args)


def along(es: Sequence[Expr], var: Expr) -> Expr | None:
    """The expression that is ``es[n]`` at ``var`` = n, where their constants form an arithmetic progression.

    >>> from idgraph.arith import symbol
    >>> i, q = symbol("i"), symbol("q", 0, 2)
    >>> str(along([i * 4 + 1, i * 4 + 3, i * 4 + 5], q)), along([i, i + 1, i + 3], q)
    ('i*4 + q*2 + 1', None)
    """
    if all(e == es[0] for e in es):
        return es[0]
    found = _affine_in(es, var)
    if found is None or any(not _equal_indices(found.substitute({var: n}), e) for n, e in enumerate(es)):
        return None
    return found


def _affine_in(es: Sequence[Expr], var: Expr) -> Expr | None:
    first = es[0]
    if all(e == first for e in es):
        return first
    parts = [split_constant(e) for e in es]
    constants = [c for _, c in parts]
    by = constants[1] - constants[0]
    if any(b - a != by for a, b in pairwise(constants)):
        return None
    rest = parts[0][0]
    if any(r != rest for r, _ in parts):
        if any(r.op != rest.op or len(r.args) != len(rest.args) for r, _ in parts) or not rest.args:
            return None
        args = [_affine_in(column, var) for column in zip(*(r.args for r, _ in parts), strict=True)]
        known = tuple(a for a in args if a is not None)
        if len(known) < len(args):
            return None
        rest = rebuild(rest, known)
    return rest if first.is_condition else rest + constants[0] + var * by


def _equal_indices(a: Expr, b: Expr) -> bool:
    return a == b or simplify(a) == simplify(b) or (not a.is_condition and simplify(a - b) == 0)


EVERY = f"every{PRIME}"  # the column, in purposes of statements outside of the loop over columns


def guard_provenance(purpose: ProvenanceList, condition: Expr) -> ProvenanceList:
    """The same, where ``condition`` holds."""
    if condition is TRUE:
        return purpose
    return tuple(replace(x, when=and_(x.when, condition)) for x in purpose)


def quantify_provenance(purpose: ProvenanceList, var: Expr, extent: Expr) -> ProvenanceList:
    """The same for all values of ``var`` below ``extent``: the statement was hoisted out of the loop over it."""
    every = symbol(EVERY, *var.symbol_bounds)

    def moved(e: Expr) -> Expr:
        return e.substitute({var: every})

    def each(x: Provenance) -> Provenance:
        if not any(var.name in e.names for e in (*x.point, x.when)):
            return x
        return replace(x, point=tuple(map(moved, x.point)), over=(*x.over, (EVERY, extent)), when=moved(x.when))

    return tuple(map(each, purpose))


def merge_provenance(purposes: Sequence[ProvenanceList], var: Expr) -> ProvenanceList:
    """The purpose of a statement over ``var``, whose purpose at ``var`` = n is ``purposes[n]``.

    >>> i, v = symbol("i"), symbol("v", 0, 1)
    >>> merge_provenance([(Provenance("t0", 0, (i * 4,)),), (Provenance("t0", 0, (i * 4 + 1,)),)], v)[0].point
    (i*4 + v,)
    """
    first = purposes[0]
    if all(p == first for p in purposes):
        return first
    if all(len(p) == len(first) for p in purposes):
        made = [_one(column, var) for column in zip(*purposes, strict=True)]
        known = tuple(x for x in made if x is not None)
        if len(known) == len(made):
            return known
    return tuple(x for n, p in enumerate(purposes) for x in guard_provenance(p, var.eq(n)))


def _along(es: Sequence[Expr], var: Expr) -> Expr | None:
    found = along(es, var)
    return found if found is not None else along(list(map(simplify, es)), var)


def _one(column: Sequence[Provenance], var: Expr) -> Provenance | None:
    first = column[0]
    if any((x.tensor, x.operand, x.over, len(x.point)) != (first.tensor, first.operand, first.over, len(first.point))
           for x in column):  # fmt: skip
        return None
    point = [_along(es, var) for es in zip(*(x.point for x in column), strict=True)]
    when = along([x.when for x in column], var)
    known = tuple(e for e in point if e is not None)
    return replace(first, point=known, when=when) if when is not None and len(known) == len(point) else None
