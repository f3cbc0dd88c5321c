"""A sum of squares around a number of the row, as a variance has it, in the pass that finds that number.

With p the row's first value, D = sum(x - p) and Q = sum((x - p)^2), for any c

    sum((x - c)^2) = Q + (c - p) * (n * (c - p) - 2 * D),

so both sums are taken while the row is read once, and c, which is made of sum(x) = D + n * p, need not be known before.
All of it is in float64, of float32 values. What the difference loses of it is a factor Q / sum((x - mean)^2), which is
never above n + 1 since p is a value of the row (Chan, Golub and LeVeque, "Algorithms for computing the sample variance:
analysis and recommendations", 1983, on shifted data), and a row of equal values gives exactly 0. In place of an
infinite first value p is 0, or the sum of x would be NaN.

The first argmax or argmin, in the pass that finds it: ``amin(where(x == top, place, other))``.

Each thread has the extremum so far and the least place where its elements were equal to it. When the extremum moves,
the places before it count no more: the running place starts anew, at what is above all places (`Online.first`).

Sums that follow a running maximum, as statements: around a chunk, and behind the sweep (online softmax).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import TRUE, Expr, as_expr, is_true
from idgraph.ir import DType, is_float
from idgraph.kernel.def_use import all_reads, all_sets, definitions, map_statement, reads, rewritten_inside, sets
from idgraph.kernel.ir import (
    Accumulate,
    BlockReduce,
    Comment,
    Compute,
    Constant,
    If,
    Index,
    InitAccumulator,
    Load,
    Local,
    Operand,
    Select,
    Stmt,
    walk,
)
from idgraph.kernel.ssa import Renamer
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_loop_fusion import guard_provenance
from idgraph.passes.rows.reduction_loop import FAR, OnlineRescaling, Plain, ReductionLoop, ShiftedMoments
from idgraph.passes.rows.summation import is_short, widened

LEAST = 32  # columns of each thread: of fewer, reading them again costs less than what is done once for each row


def with_moments(a: ReductionLoop, added: Sequence[Plain], c: str) -> ReductionLoop | None:
    """Sweep ``a`` with the statements ``added`` of a later one, which use the number ``c`` only in a sum of
    ``(x - c)^2``, where ``a`` adds up the same float32 x; None for any others."""
    ready = [s for s in added if not all_reads((s,)) & _derived_from(added, c)]
    waiting = [s for s in added if s not in ready and not isinstance(s, Comment)]
    match waiting:
        case [
            Compute(Local(d, "float32"), "sub", (Local() as left, Local() as right), "float32"),
            Compute(Local(square, "float32"), op, factors, "float32"),
            Compute(Local(term, "float64"), "cast", (Local(squared),)),
            Accumulate(squares, "sum", Local(added_up), None),
        ] if squared == square and added_up == term and (op, factors) in _squares(d):
            x = right if left.name == c else left
            center = left if left.name == c else right
        case _:
            return None
    total = next((s for s in a.body if _adds(s, x, a.body)), None)
    first = _first(a, x)
    known = a.extent.is_const and is_true(a.extent >= max(1, LEAST * a.threads))
    if x.dtype != "float32" or center.name != c or not isinstance(total, Accumulate) or first is None or not known:
        return None
    pivot, name = Local(f"{total.acc.name}_first", "float64"), total.acc.name
    start, made = first
    endless, finite = Local(f"{total.acc.name}_endless", "bool"), Local(f"{total.acc.name}_finite", "float32")
    start += [
        Compute(endless, "isinf", (made,), "float32"),
        Compute(finite, "where", (endless, Constant(0.0), made), "float32"),
    ]
    apart, squared_apart = Local(f"{name}_apart", "float64"), Local(f"{name}_square", "float64")
    terms: tuple[Plain, ...] = (
        Compute(apart, "sub", (total.value, pivot), "float64"),
        replace(total, value=apart, result="float64"),
        Compute(squared_apart, "mul", (apart, apart), "float64"),
        Accumulate(squares, "sum", squared_apart, result="float64"),
    )
    body = [y for s in a.body for y in (terms if s is total else (s,))]
    return replace(
        a,
        body=(*body, *ready),
        moments=ShiftedMoments(
            (*start, Compute(pivot, "cast", (finite,), "float64")), pivot, name, squares.name, center
        ),
    )


def _derived_from(added: Sequence[Plain], c: str) -> frozenset[str]:
    """The variables that are made of ``c``, and itself."""
    found = {c}
    for s in added:
        if reads(s) & found and not isinstance(s, Accumulate):
            found |= sets(s)
    return frozenset(found)


def _squares(d: str) -> tuple[tuple[str, tuple[Operand, ...]], ...]:
    """The operations that square a variable."""
    x = Local(d, "float32")
    return (("square", (x,)), ("mul", (x, x)))


def _adds(s: Plain, x: Local, body: Sequence[Plain]) -> bool:
    """Whether ``s`` adds up the float32 ``x`` in float64."""
    values = ValueNumbering(read_only=None)
    for y in body:
        values.define(y)
    match s:
        case Accumulate(Local(dtype="float64"), "sum", Local() as term, None, running=None):
            wide = Compute(Local(f"{x.name}_wide", "float64"), "cast", (x,), "float64")
            return values.known(wide) == values.home(term)
        case _:
            return False


def _first(s: ReductionLoop, x: Local) -> tuple[list[Stmt], Local] | None:
    """The statements that compute ``x`` of column 0 by themselves, and the variable that holds it there."""
    needed, found = {x.name}, list[Plain]()
    for y in reversed(s.body):
        if not sets(y) & needed:
            continue
        if not isinstance(y, Load | Compute | Select):
            return None
        found.insert(0, y)
        needed |= reads(y)
    names = Renamer(set(), {n: Local(f"{n}_first", "float32") for n in all_sets(found)})
    made: list[Stmt] = []
    for y in found:
        moved = map_statement(
            y, made=names.local, read=names.operand, index=lambda e: e.substitute({s.column: as_expr(0)})
        )
        if isinstance(moved, Load) and s.condition != TRUE:
            moved = replace(moved, guard=moved.guard & s.condition, serves=guard_provenance(moved.serves, s.condition))
        made.append(moved)
    return made, names.local(x)


def first_value(s: ReductionLoop) -> list[Stmt]:
    """The statements in front of a sweep that compute the value which its sums are taken without."""
    return [] if s.moments is None else list(s.moments.first)


def settled_moments(s: ReductionLoop, after: Sequence[Stmt]) -> list[Stmt]:
    """The statements behind a sweep, with its sum and its sum of squares as they are without the first value."""
    m = s.moments
    if m is None:
        return list(after)
    total, squares = Local(m.total, "float64"), Local(m.squares, "float64")
    whole, count = Local(f"{m.total}_whole", "float64"), Constant(float(int(s.extent)))
    summed: list[Stmt] = [Compute(whole, "fma", (m.pivot, count, total), "float64")]
    names = ("center", "away", "less", "more", "left")
    center, away, less, more, left = (Local(f"{m.squares}_{n}", "float64") for n in names)
    squared: list[Stmt] = [
        Compute(center, "cast", (m.center,), "float64"),
        Compute(away, "sub", (center, m.pivot), "float64"),
        Compute(less, "mul", (total, Constant(-2.0)), "float64"),
        Compute(more, "fma", (away, count, less), "float64"),
        Compute(left, "fma", (away, more, squares), "float64"),
        Compute(squares, "maximum", (left, Constant(0.0)), "float64"),
    ]
    readers = Renamer(set(), {m.total: whole})
    at = _after_exchange(m.total, after)
    made = [*after[:at], *summed, *(rewritten_inside(x, read=readers.operand) for x in after[at:])]
    inside = squared if s.condition == TRUE else [If(s.condition, tuple(squared))]  # only such rows have a center
    at = _after_exchange(m.squares, made)
    return [*made[:at], *inside, *made[at:]]


def _after_exchange(acc: str, after: Sequence[Stmt]) -> int:
    """The place behind the exchange of ``acc`` between threads; where there is none, in front of its first reader."""
    exchanges = [n for n, x in enumerate(after) if isinstance(x, BlockReduce) and x.acc.name == acc]
    readers = [n for n, x in enumerate(after) if acc in all_reads((x,))]
    return exchanges[-1] + 1 if exchanges else readers[0] if readers else 0


def with_places(a: ReductionLoop, added: Sequence[Plain], c: str, after: Sequence[Stmt]) -> ReductionLoop | None:
    """Sweep ``a`` with the statements ``added`` of a later one, which use the finished extremum ``c`` only to find the
    least place where x is equal to it (or is NaN); None for any others."""
    tops = [s for s in a.body if isinstance(s, Accumulate) and s.op in ("amax", "amin") and s.buffer is None]
    tops = [s for s in tops if _is_copy(c, s.acc, after)]
    if len(tops) != 1:
        return None
    values = ValueNumbering(read_only=None)
    for s in (*a.body, *added):
        values.define(s)
    found = _ArgmaxSearch(values.operand(tops[0].value), c, values, definitions([*a.body, *added]))
    ready: list[Plain] = []
    later: list[Plain] = []
    for s in added:
        if not all_reads((s,)) & ({c} | found.hits | found.places.keys()):
            ready.append(s)
        elif (made := found.step(s)) is not None:
            later += made
        else:
            return None
    if not found.accs:
        return None
    online = OnlineRescaling(tops[0].acc.name, tuple((acc, c) for acc in found.accs), first=True)
    return replace(a, body=(*a.body, *ready), later=tuple(later), online=online)


def _is_copy(c: str, acc: Local, after: Sequence[Stmt]) -> bool:
    """Whether ``c`` is the finished value of ``acc``, perhaps of a shorter type that holds all elements."""
    made = definitions(walk(tuple(after)))
    while (s := made.get(c)) is not None:
        match s:
            case Compute(Local(), "cast" | "copy", (Local(source, at=None),)):
                c = source
            case _:
                return False
        if c == acc.name:
            return True
    return False


@dataclass(slots=True)
class _ArgmaxSearch:
    """One walk over statements: ``hits`` are conditions that an element is the extremum, ``places`` the integers that
    are its place there, else what is not below any place."""

    element: Operand
    top: str
    values: ValueNumbering
    made: Mapping[str, Stmt]
    hits: set[str] = field(default_factory=set[str])
    places: dict[str, Local] = field(default_factory=dict[str, Local])
    accs: list[str] = field(default_factory=list[str])

    def step(self, s: Plain) -> list[Plain] | None:
        """A statement that depends on the extremum, as it is while that is not finished; None where it is another."""
        match s:
            case Compute(Local(name), "eq", (Local() as x, Local() as y)) if self._is_element(x, y):
                self.hits.add(name)
                return [s]
            case Compute(Local(name), "logical_or", (Local(left), Local(right))) if self._may_be_nan(left, right):
                self.hits.add(name)
                return [s]
            case Compute(Local(name, "int64"), "where", (Local(hit), place, other)) if hit in self.hits:
                return self._placed(name, hit, place, other)
            case Accumulate(acc, "amin", Local(name), None, running=None) if name in self.places:
                self.accs.append(acc.name)
                return [replace(s, value=self.places[name])] if acc.name not in self.accs[:-1] else None
            case Comment():
                return []
            case _:
                return None

    def _is_element(self, x: Local, y: Local) -> bool:
        return self.top in (x.name, y.name) and self.values.operand(x if y.name == self.top else y) == self.element

    def _may_be_nan(self, left: str, right: str) -> bool:
        """One hit, or that the same element is NaN."""
        hit, nan = (left, right) if left in self.hits else (right, left)
        test = self.made.get(nan)
        return hit in self.hits and isinstance(test, Compute) and test.op == "isnan" and (
            self.values.operand(test.operands[0]) == self.element
        )  # fmt: skip

    def _placed(self, name: str, hit: str, place: Operand, other: Operand) -> list[Plain] | None:
        """The place in 32 bits, where it fits, and is not above what stands for no place."""
        at, rest = self._index(place), self._index(other)
        if at is None or rest is None or not (is_true(at >= 0) and is_true(at <= rest) and is_true(rest < FAR)):
            return None
        near, there = Local(f"{name}_near", "int32"), Local(f"{name}_at", "int32")
        self.places[name] = near
        return [
            Compute(there, "cast", (Index(at),), "int32"),
            Compute(near, "where", (Local(hit, "bool"), there, Index(rest)), "int32"),
        ]

    def _index(self, o: Operand) -> Expr | None:
        """An operand as an index expression, behind casts."""
        while isinstance(o, Local):
            s = self.made.get(o.name)
            if not (isinstance(s, Compute) and s.op in ("cast", "copy") and s.local.dtype == "int64"):
                return None
            o = s.operands[0]
        if isinstance(o, Constant):
            return as_expr(o.value) if isinstance(o.value, int) and not isinstance(o.value, bool) else None
        return o.value


def target(x: Accumulate, value: Operand, sums: Mapping[str, str]) -> Local:
    """Sums relative to a running maximum accumulate in the type of their terms until the row is done."""
    if x.acc.name in sums and isinstance(value, Local):
        return Local(f"{x.acc.name}_near", value.dtype)
    return x.acc


def _near_type(s: ReductionLoop, acc: str) -> DType:
    wide = widened(s.later)
    for x in s.later:
        if isinstance(x, Accumulate) and x.acc.name == acc and isinstance(x.value, Local):
            return wide.get(x.value.name, x.value).dtype
    return "float32"


def _top(s: ReductionLoop, o: OnlineRescaling) -> Local:
    return next(x.acc for x in s.body if isinstance(x, Accumulate) and x.acc.name == o.top)


def near(s: ReductionLoop) -> list[Stmt]:
    """First values of the running sums."""
    if s.online is None:
        return []
    first = FAR if s.online.first else 0.0
    return [InitAccumulator(f"{acc}_near", _near_type(s, acc), first) for acc, _ in s.online.sums]


def before(s: ReductionLoop) -> list[Stmt]:
    """The maximum so far."""
    if s.online is None:
        return []
    top = _top(s, s.online)
    return [Compute(Local(f"{top.name}_old", top.dtype), "cast", (top,), top.dtype)]


def reference(top: Local, name: str) -> list[Stmt]:
    """The reference of the sums: the maximum where it is finite, else 0."""
    infinite = Local(f"{name}_inf", "bool")
    return [
        Compute(infinite, "isinf", (top,), top.dtype),
        Compute(Local(name, top.dtype), "where", (infinite, Constant(0.0), top), top.dtype),
    ]


def follow(s: ReductionLoop) -> list[Stmt]:
    """The sums so far, rescaled to the present maximum.

    The factor uses the old maximum, not the old reference: a sum over nothing but -inf is 0, and stays 0 times
    exp(-inf).
    """
    if s.online is None:
        return []
    top, made = _top(s, s.online), list[Stmt]()
    if s.online.first:
        return _anew(s, top)
    made += reference(top, f"{top.name}_ref")
    shrink = _shrink(f"{top.name}_old", f"{top.name}_ref", f"{top.name}_scale", top.dtype, is_short(s))
    made += shrink
    for acc, c in s.online.sums:
        near = Local(f"{acc}_near", _near_type(s, acc))
        made.append(Accumulate(near, "prod", Local(f"{top.name}_scale", top.dtype)))
        # A sum relative to the final maximum becomes a sum relative to the running maximum (online softmax).
        made.append(Compute(Local(c, top.dtype), "cast", (Local(f"{top.name}_ref", top.dtype),), top.dtype))
    return made


def _anew(s: ReductionLoop, top: Local) -> list[Stmt]:
    """The places so far, forgotten where the extremum has moved; NaN stays what it is."""
    stays, start = Local(f"{top.name}_stays", "bool"), Local(f"{top.name}_start", "int32")
    made = _is_same_extremum(Local(f"{top.name}_old", top.dtype), top, stays)
    made.append(Compute(start, "where", (stays, Constant(-FAR), Constant(FAR)), "int32"))
    for acc, c in s.online.sums if s.online is not None else ():
        made.append(Accumulate(Local(f"{acc}_near", "int32"), "amax", start))
        made.append(Compute(Local(c, _element_type(s, c)), "cast", (top,), _element_type(s, c)))
    return made


def _is_same_extremum(old: Local, new: Local, to: Local) -> list[Stmt]:
    """Whether an extremum is still the same: it is equal, or was NaN."""
    if not is_float(new.dtype):
        return [Compute(to, "eq", (old, new), new.dtype)]
    equal, nan = Local(f"{to.name}_equal", "bool"), Local(f"{to.name}_nan", "bool")
    return [
        Compute(equal, "eq", (old, new), new.dtype),
        Compute(nan, "isnan", (old,), new.dtype),
        Compute(to, "logical_or", (equal, nan), "bool"),
    ]


def _element_type(s: ReductionLoop, c: str) -> DType:
    """The type of what the extremum is compared with."""
    found = (o for x in s.later if isinstance(x, Compute) for o in x.operands if isinstance(o, Local) and o.name == c)
    return next(found).dtype


def _shrink(old: str, new: str, to: str, dtype: DType, short: bool) -> list[Stmt]:
    apart = Local(f"{to}_by", dtype)
    return [
        Compute(apart, "sub", (Local(old, dtype), Local(new, dtype)), dtype),
        Compute(Local(to, dtype), "fast_exp" if short else "exp", (apart,), dtype),
    ]


def finalize_online(s: ReductionLoop, after: Sequence[Stmt]) -> list[Stmt]:
    """The statements behind a sweep, with its sums rescaled from each thread's maximum to that of all threads, and then
    to the final maximum (online softmax).
    """
    if s.online is None:
        return list(after)
    top = _top(s, s.online)
    made: list[Stmt] = [Compute(Local(f"{top.name}_own", top.dtype), "cast", (top,), top.dtype)]
    shared = any(isinstance(x, BlockReduce) and x.acc.name == top.name for x in after)
    if not shared:
        made += _single_thread_positions(s.online) if s.online.first else _brought(s, top)
    open_ = {} if s.online.first else dict(s.online.sums)
    for x in after:
        for acc in [a for a in open_ if a in all_reads((x,)) and not (isinstance(x, BlockReduce) and x.acc.name == a)]:
            done = _finished(acc, open_.pop(acc), top)
            made += [If(s.condition, tuple(done))] if s.condition != TRUE else done  # only such rows have a reference
        made.append(x)
        if isinstance(x, BlockReduce) and x.acc.name == top.name:
            made += _brought(s, top)
    return made


def _brought(s: ReductionLoop, top: Local) -> list[Stmt]:
    """Each thread's sums, relative to the maximum of all threads, in the accumulators."""
    if s.online is not None and s.online.first:
        return _least(s.online, top)
    made = reference(top, f"{top.name}_all")
    made += _shrink(f"{top.name}_own", f"{top.name}_all", f"{top.name}_scale", top.dtype, short=False)
    for acc, _ in s.online.sums if s.online is not None else ():
        near, part = Local(f"{acc}_near", _near_type(s, acc)), Local(f"{acc}_part", "float64")
        made.append(Compute(part, "mul", (near, Local(f"{top.name}_scale", top.dtype)), "float64"))
        made.append(Accumulate(Local(acc, "float64"), "sum", part))
    return made


def _least(o: OnlineRescaling, top: Local) -> list[Stmt]:
    """Each thread's places in the accumulators, where its own extremum is that of all threads."""
    holds = Local(f"{top.name}_holds", "bool")
    made = _is_same_extremum(Local(f"{top.name}_own", top.dtype), top, holds)
    for acc, _ in o.sums:
        part, wide = Local(f"{acc}_part", "int32"), Local(f"{acc}_wide", "int64")
        made.append(Compute(part, "where", (holds, Local(f"{acc}_near", "int32"), Constant(FAR)), "int32"))
        made.append(Compute(wide, "cast", (part,), "int64"))
        made.append(Accumulate(Local(acc, "int64"), "amin", wide))
    return made


def _single_thread_positions(o: OnlineRescaling) -> list[Stmt]:
    """The places in the accumulators, of a thread that has the whole row."""
    wide = [
        Compute(Local(f"{acc}_wide", "int64"), "cast", (Local(f"{acc}_near", "int32"),), "int64") for acc, _ in o.sums
    ]
    sums = [Accumulate(Local(acc, "int64"), "amin", x.local) for (acc, _), x in zip(o.sums, wide, strict=True)]
    return [*wide, *sums]


def _finished(acc: str, c: str, top: Local) -> list[Stmt]:
    """exp(reference - c) times the sum."""
    last, wide = Local(f"{acc}_last", top.dtype), Local(acc, "float64")
    return [
        *_shrink(f"{top.name}_all", c, last.name, top.dtype, short=False),
        Compute(wide, "mul", (wide, last), "float64"),
    ]
