"""carry_digits: lanes that cross from one row into the next, with one division for all of them.

A vector of a flat tensor whose rows are not a multiple of it crosses from row to row, so that each lane has a row and
a column of its own: ``(i*8 + q) // n`` and ``(i*8 + q) % n``. A row is longer than the vector, so it crosses one end at
most. With r and c of the vector's first element, lane q has column c + q of row r, or column c + q - n of row r + 1
where that is not below n. What depends on the row has two values for all lanes, which are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from idgraph.arith import TRUE, Expr, and_, multiple_of, not_, or_, simplify, symbol, where
from idgraph.arith.expr import rebuild
from idgraph.arith.interval import interval
from idgraph.kernel.def_use import index_exprs, map_body, map_statement, reads, same
from idgraph.kernel.ir import Comment, Compute, If, Index, Kernel, Let, Load, Loop, Select, Stmt, Store, walk
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.statements import bodies, single_statement
from idgraph.passes import lane_loop_fusion as purpose
from idgraph.passes.lane_unrolling import is_lanes

ROW, COLUMN = "carry_row", "carry_column"


def strength_reduce_divmod(kernel: Kernel) -> Kernel:
    """carry_digits: rows and columns of lanes from those of the first lane, where loads are guarded by them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: int16[80] input "x"
    ...   buffer y: int16[88] output "y"
    ...   for i < 22:
    ...     for q < 4, vectorize:
    ...       v: int16 = x[(i*4 + q)//11*10 + (i*4 + q)%11 - 1] if (i*4 + q)%11 >= 1
    ...       w: int16 = choose((i*4 + q)%11 >= 1 ? v, -1)
    ...       y[i*4 + q] = w
    ... ''')
    >>> made = strength_reduce_divmod(k)
    >>> print(str(made).split("vectorize:")[1].strip())  # doctest: +NORMALIZE_WHITESPACE, +ELLIPSIS
    let carry_row = {i*4//11}
          let carry_column = {i*4%11}
          v: int16 = x[where((carry_column + q >= 12) | ((carry_column + q >= 1) & (carry_column + q < 11)), ...
          w: int16 = choose((carry_column + q >= 12) | ((carry_column + q >= 1) & (carry_column + q < 11)) ? v, -1)
          y[i*4 + q] = w
    """
    if not any(_is_cut(s) for s in walk(kernel.body)):
        return kernel
    body = map_body(kernel.body, _Carried())
    return kernel if body == kernel.body else replace(kernel, body=to_ssa(body))


def _is_cut(s: Stmt) -> bool:
    """Lanes with a load whose guard is another one in each: no vector access can be made of it."""
    if not (isinstance(s, Loop) and is_lanes(s) and s.extent.is_const and int(s.extent) > 1):
        return False
    body = _straight(s)
    plain = all(isinstance(x, (Comment, Load, Compute, Select, Store)) for x in body)
    return plain and any(isinstance(x, Load) and s.var in x.guard.names for x in body)


def _straight(s: Loop) -> tuple[Stmt, ...]:
    """The statements of the lanes, inside of a condition that is the same for all of them, if there is one."""
    whole = _common_lane_condition(s)
    return s.body if whole is None else whole.body


def _common_lane_condition(s: Loop) -> If | None:
    """The condition that all lanes of a loop stand under together."""
    inside = single_statement(s.body)
    return inside if isinstance(inside, If) and s.var not in inside.condition.names else None


class _UnlikeError(Exception):
    """Digits of another number than that of the lanes."""


class _Carried:
    """Loops over lanes with carried digits; their variables have numbers, one for each loop."""

    def __init__(self) -> None:
        self.used = 0

    def __call__(self, s: Stmt) -> Stmt:
        if not isinstance(s, Loop) or not _is_cut(s):
            return s
        whole = _common_lane_condition(s)
        if whole is not None:
            inner = self(replace(s, body=whole.body))
            body = tuple(replace(x, body=bodies(inner)) if x is whole else x for x in s.body)
            return replace(s, body=body)
        digits = _lane_digits(s, str(self.used or ""))
        if digits is None:
            return s
        try:
            chosen = {x.local.name for x in s.body if isinstance(x, Load) and _is_chosen(x, s.body)}
            body = tuple(map_statement(x, index=digits.carried, point=same) for x in s.body)
            body = tuple(_anywhere(x) if isinstance(x, Load) and x.local.name in chosen else x for x in body)
        except _UnlikeError:
            return s
        self.used += 1
        return replace(s, body=(*digits.lets, *body))


def _is_chosen(s: Load, body: Sequence[Stmt]) -> bool:
    """Whether a value is read only where the guard of its load holds, so that it may be any other where not."""
    used = [x for x in body if s.local.name in reads(x)]
    return s.buffer.size.is_const and int(s.buffer.size) > 0 and s.guard != TRUE and all(
        isinstance(x, Select) and [c for c, o in x.cases if o == s.local] == [s.guard] == [x.cases[0][0]]
        and x.default != s.local
        for x in used
    )  # fmt: skip


def _anywhere(s: Load) -> Load:
    """A load without a guard: of the first element where that does not hold, so that the loads of all lanes are under
    way together, without a branch around each."""
    return replace(
        s, address=where(s.guard, s.address, 0), guard=TRUE, serves=purpose.guard_provenance(s.serves, s.guard)
    )


def _lane_digits(s: Loop, number: str) -> _Digits | None:
    """The rows that the lanes of a loop cross, by the shortest of their digits; None where they cross several ends."""
    lane, width = symbol(s.var, 0, s.extent - 1), int(s.extent)
    nodes = {x: None for y in s.body for e in index_exprs(y) for x in _divisions(e, s.var)}
    places = [(int(x.args[1]), x.args[0]) for x in nodes if s.var not in simplify(x.args[0] - lane).names]
    if not places:
        return None
    n, place = min(places, key=lambda x: x[0])
    first = simplify(place - lane)
    if n < width or (multiple_of(first, width) and n % width == 0):
        return None
    whole = simplify(first // n)
    row, column = symbol(ROW + number, *interval(whole)), symbol(COLUMN + number, 0, n - 1)
    lets = (Let(row.name, Index(whole)), Let(column.name, Index(simplify(first % n))))
    return _Digits(lane, n, place, row, column, lets)


def _divisions(e: Expr, lane: str) -> Iterator[Expr]:
    """Quotients and remainders of what depends on the lane, by numbers."""
    if lane in e.names:
        if e.op in ("floordiv", "mod") and e.args[1].is_const:
            yield e
        for x in e.args:
            yield from _divisions(x, lane)


@dataclass(frozen=True, slots=True)
class _Digits:
    """``place`` is a number of which lanes have neighbouring ones. The first lane is in column ``column`` of row
    ``row``, which ``lets`` set; rows have ``n`` columns."""

    lane: Expr
    n: int
    place: Expr
    row: Expr
    column: Expr
    lets: tuple[Let, ...]

    def carried(self, e: Expr) -> Expr:
        """An index expression, or a condition, without divisions of what depends on the lane."""
        if next(_divisions(e, self.lane.name), None) is None:
            return e
        row, column = symbol("carry_r", 0, None), symbol("carry_c", 0, self.n - 1)
        plain = self.by_column(e, row, column)
        at = self.column + self.lane
        over = simplify(at >= self.n)
        here = simplify(plain.substitute({row: self.row, column: at}))
        behind = simplify(plain.substitute({row: self.row + 1, column: at - self.n}))
        if e.is_condition:
            return simplify(or_(and_(not_(over), here), and_(over, behind)))
        rests = [simplify(x - self.lane) for x in (here, behind)]
        if not any(self.lane.name in x.names for x in rests):
            return where(over, rests[1], rests[0]) + self.lane
        return where(over, behind, here)

    def by_column(self, e: Expr, row: Expr, column: Expr) -> Expr:
        """An expression over the row and the column of a lane. Raises `_UnlikeError`."""
        if self.lane.name not in e.names or not e.args:
            return e
        if e.op in ("floordiv", "mod") and e.args[1].is_const:
            by = int(e.args[1])
            rows = self.row_distance(e.args[0]) if by % self.n == 0 else None
            if rows is not None:
                there, times = row + rows, by // self.n
                if e.op == "floordiv":
                    return simplify(there // times)
                return column + (there % times) * self.n if times > 1 else column
            inner = self.by_column(e.args[0], row, column)
            if {self.lane.name, column.name} & inner.names:
                raise _UnlikeError
            return rebuild(e, (inner, e.args[1]))
        return rebuild(e, tuple(self.by_column(x, row, column) for x in e.args))

    def row_distance(self, e: Expr) -> Expr | None:
        """How many whole rows a number is behind ``place``; None where that is not a number of rows."""
        back: dict[Expr, Expr] = {}
        apart = simplify(_without_remainders(e, back) - _without_remainders(self.place, back))
        if self.lane.name in apart.names or not multiple_of(apart, self.n):
            return None
        return simplify(simplify(apart // self.n).substitute(back))


def _without_remainders(e: Expr, back: dict[Expr, Expr]) -> Expr:
    """``a % n`` as ``a - n * t``, where ``back`` says what t is: a sum of both may be a multiple of what a is not."""
    if not e.args:
        return e
    args = tuple(_without_remainders(x, back) for x in e.args)
    if e.op == "mod" and e.args[1].is_const:
        whole = symbol(f"carry_whole{len(back)}", None, None)
        whole = next((t for t, q in back.items() if q is e.args[0] // e.args[1]), whole)
        back[whole] = e.args[0] // e.args[1]
        return args[0] - whole * e.args[1]
    return rebuild(e, args)
