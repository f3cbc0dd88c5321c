"""Vector width of an access along a loop: how many elements one aligned access may move, why not more, what would help.

A vector of w elements is legal along a loop when every aligned run of w steps is touched as a whole or not at all, and
where it is touched lies at consecutive addresses from a multiple of w elements (given the buffer's alignment).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Literal, Self

from idgraph.arith import (
    CounterExample,
    Expr,
    Proof,
    Unknown,
    as_expr,
    congruence,
    enumerate_points,
    is_true,
    multiple_of,
    simplify,
    symbol,
)
from idgraph.display import Printed
from idgraph.errors import IndexingError, arguments, short_repr, user_line
from idgraph.index.access_relation import AccessFunction, LoopVariable
from idgraph.index.lane_analysis import (
    MAX_POINTS,
    LaneAccess,
    LaneMismatch,
    address_along,
    bounded_loads,
    fault,
    find_loop,
    lanes,
    loaded_anew,
)
from idgraph.ir import IterDomain, item_size
from idgraph.ir.argument_resolution import is_int
from idgraph.ir.device import current_device


@dataclass(frozen=True, slots=True)
class Peel:
    """``head`` single elements, ``vectors`` aligned accesses of ``width`` elements, ``tail`` single elements.

    Where each row begins at another alignment, ``head`` is None, ``vectors`` is the least number of them and ``tail``
    None. The automatic schedule peels by itself; a loop that is split by the width and vectorised is peeled as well.
    """

    width: int
    head: int | None
    vectors: int
    tail: int | None

    def __str__(self) -> str:
        of = f"{self.vectors} access{'es' if self.vectors > 1 else ''} of {self.width}"
        if self.head is None or self.tail is None:
            head = f"up to {self.width - 1} single elements before"
            return f"{self.width} elements if the loop is peeled: {of} or more a row, {head}"
        single = self.head + self.tail
        return f"{self.width} elements if the loop is peeled: {of} and {single} single element{'s' * (single != 1)}"

    __repr__ = __str__


def peel_of(access: AccessFunction, at: LoopVariable, width: int) -> Peel | None:
    """The peeling of a loop whose steps lie side by side; None where no whole vector is left."""
    aligned = access.tensor.alignment % (width * item_size(access.tensor.dtype)) == 0
    cut = any(at.symbol in c.symbols for c in access.conditions)
    if not (aligned and at.extent.is_const) or cut or width < 2 or access.buffer.place == "register":
        return None
    n = int(at.extent)
    first = simplify(address_along(access, at).substitute({at.symbol: as_expr(0)}))
    modulus, rest = congruence(first)
    if modulus % width:
        least = (n - width + 1) // width
        return Peel(width, None, least, None) if least > 0 else None
    head = -rest % width
    vectors = (n - head) // width
    return Peel(width, head, vectors, n - head - vectors * width) if vectors > 0 else None


_MAX_RUN = 4096

Limit = Literal["widest", "asked", "extent", "loaded", "predicate", "step", "offset", "buffer"]


@dataclass(frozen=True, slots=True)
class Width:
    """`idgraph.index.VectorWidth` as data: ``width`` elements along ``loop``, and what stops ``refused`` ones."""

    access: AccessFunction = field(repr=False, compare=False)
    loop: LoopVariable
    width: int
    wanted: int
    refused: int
    limit: Limit
    reason: str
    point: Mapping[str, int] | None = None

    @classmethod
    @arguments(IndexingError)
    def along(
        cls, access: AccessFunction, loop: str | int | LoopVariable | IterDomain, wanted: int | None = None
    ) -> Self:
        """The width of an access along a loop; see `Access.explain_vector_width`.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> t = f.output(f.input("a", shape=(64,)) + 1.0)
        >>> Width.along(ig.IdModel(f).write(t.definition), "i0").width
        4
        """
        at = find_loop(access, loop)
        top = widest(access)
        if wanted is not None and (not is_int(wanted) or wanted not in [1 << k for k in range(8)]):  # pyright: ignore[reportUnnecessaryContains]
            raise IndexingError(
                f"vector width: {short_repr(wanted)} elements", where=user_line(), hint="1, 2, 4, ... elements"
            )
        goal = top if wanted is None else wanted
        best = 1
        while best < goal:
            width = 2 * best
            if width > top:
                size = item_size(access.tensor.dtype)
                return cls(access, at, best, goal, width, "widest", f"{best * size} bytes are the widest access")
            refused = _refusal(access, at, width)
            if refused is not None:
                asked = _refusal(access, at, min(goal, top)) if min(goal, top) > width else None
                if asked is not None and asked[0] == refused[0]:  # the same thing, in terms of what was asked for
                    refused, width = asked, min(goal, top)
                limit, reason, point = refused
                return cls(access, at, best, goal, width, limit, reason, point)
            best = width
        if best < top:
            return cls(access, at, best, goal, 2 * best, "asked", f"{best} elements were asked for")
        size = item_size(access.tensor.dtype)
        return cls(access, at, best, goal, 2 * best, "widest", f"{best * size} bytes are the widest access")

    def __int__(self) -> int:
        return self.width

    def __index__(self) -> int:
        return self.width

    def __bool__(self) -> bool:
        return self.width >= self.wanted

    @property
    def bytes(self) -> int:
        """Bytes that one access moves."""
        return self.width * item_size(self.access.tensor.dtype)

    @property
    def alignment(self) -> int:
        """Bytes that divide the first address of every vector of ``width``, by proof; at most the buffer's own."""
        run = lanes(self.access, self.loop, self.width)
        modulus, rest = congruence(run.first)
        both = gcd(modulus, rest) * item_size(self.access.tensor.dtype)
        own = self.access.tensor.alignment
        return min(both & -both, own) if both else own

    @property
    def run(self) -> Expr:
        """Steps of the loop that are proved to lie side by side, from every multiple of it; alignment is not asked."""
        return consecutive(self.access, self.loop)

    @property
    def peel(self) -> Peel | None:
        """The loop as whole vectors with single elements around them, where it is not only vectors.

        >>> import idgraph as ig
        >>> f = ig.Fusion("f")
        >>> a = f.input("a", shape=(1003,))
        >>> t = f.output(a + 1.0)
        >>> why = ig.IdModel(f).access(t.definition, a).explain_vector_width("i0")
        >>> print(why.peel)
        4 elements if the loop is peeled: 250 accesses of 4 and 3 single elements
        """
        if self or self.limit not in ("extent", "offset"):
            return None
        width = min(self.wanted, widest(self.access))
        if self.access.loads or not explain_contiguous(self.access, self.loop):
            return None
        return peel_of(self.access, self.loop, width)


def widest(access: AccessFunction) -> int:
    """Elements of the widest access for the tensor's type."""
    return current_device().lanes(item_size(access.tensor.dtype))


def _refusal(
    access: AccessFunction, at: LoopVariable, width: int
) -> tuple[Limit, str, Mapping[str, int] | None] | None:
    """The limit that stops ``width`` lanes along the loop; None where they are legal."""
    if not multiple_of(at.extent, width):
        return "extent", f"extent {at.extent} of {at.name} is not a multiple of {width}", None
    loaded = loaded_anew(access, at, width)
    if loaded:
        index = access.loads[loaded][0].name
        return "loaded", f"the address holds {loaded}, loaded from {index} anew at each step of {at.name}", None
    run = lanes(access, at, width)
    found = fault(run)
    if found is not None:
        limit: Limit = "offset" if found.asked == "start" else found.asked
        return limit, _mismatch_text(run, found), found.point
    size = item_size(access.tensor.dtype)
    if access.tensor.alignment % (width * size):
        name, bytes_ = access.tensor.name, access.tensor.alignment
        return "buffer", f"the buffer of {name} is aligned to {bytes_} bytes, not {width * size}", None
    return None


def _mismatch_text(run: LaneAccess, found: LaneMismatch) -> str:
    """A fault in words, with the loop point that shows it."""
    point = found.point
    seen = "" if not point else f" (at {', '.join(f'{k} = {v}' for k, v in point.items())})"
    match found.asked:
        case "predicate":
            verb = "holds" if point else "may hold"
            condition = _original(run, found.condition)
            return f"{condition} {verb} for a part of {run.width} lanes only{seen}"
        case "step":
            step = simplify(run.at(run.address, 1) - run.first)
            if step.is_const:
                return f"a step of {run.loop.name} moves the address by {step}, not by 1"
            how = "do not lie" if point else "are not proved to lie"
            return f"{run.width} steps of {run.loop.name} {how} side by side in {run.access.address}{seen}"
        case "start":
            return _unaligned(run, found)


def _original(run: LaneAccess, condition: Expr | None) -> str:
    """The conjunct as the access has it."""
    for mine, moved in zip(run.access.conditions, run.conditions, strict=True):
        if moved is condition:
            return str(mine)
    return "the predicate"


def _unaligned(run: LaneAccess, found: LaneMismatch) -> str:
    """The parts of the first lane's address that are not multiples of the width."""
    parts = run.first.args if run.first.op == "add" else (run.first,)
    wrong = [p for p in parts if not multiple_of(p, run.width)]
    blocks = {run.block: symbol(run.loop.name, 0) // run.width}
    told: list[str] = []
    for p in wrong:
        if p.is_const:
            told.append(f"offset {p}")
        elif p.op == "mul" and len(p.args) == 2 and p.args[0].is_const and run.block not in p.symbols:
            told.append(f"stride {p.args[0]} of {p.args[1]}")
        else:
            told.append(f"{p.substitute(blocks)}")
    be, many = ("is not a multiple", "") if len(told) == 1 else ("are not multiples", "")
    proved = "" if found.point else ", as far as is proved"
    return f"{' and '.join(told)} {be} of {run.width}{many}{proved}"


@dataclass(frozen=True, slots=True)
class Contiguity(Printed):
    """Whether steps of ``loop`` and addresses keep pace wherever the access happens; truthy if proved.

    ``step`` is what a step moves the address by, in loop variables; ``point`` a point from which they part.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> a = f.input("a", shape=(4, 8))
    >>> read = ig.IdModel(f).access(f.output(a + 1).definition, a)
    >>> bool(read.explain_contiguous("i1")), print(read.explain_contiguous("i0"))
    a along i0: not contiguous, a step moves the address by 8
    (True, None)
    """

    access: AccessFunction = field(repr=False, compare=False)
    loop: LoopVariable
    holds: bool
    reason: str
    step: Expr
    point: Mapping[str, int] | None = None

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        word = "contiguous" if self.holds else "not contiguous"
        return f"{self.access.tensor.name} along {self.loop.name}: {word}, {self.reason}"

    __repr__ = __str__


def explain_contiguous(access: AccessFunction, loop: str | int | LoopVariable | IterDomain) -> Contiguity:
    """See `Access.explain_contiguous`."""
    at = find_loop(access, loop)
    whole = address_along(access, at).substitute(bounded_loads(access))
    i = symbol(at.name, 0, simplify(at.extent - 2))
    step = simplify(whole.substitute({at.symbol: i + 1}) - whole.substitute({at.symbol: i}))
    if is_true(at.extent <= 1):
        return Contiguity(access, at, True, "it has one step", step)
    loaded = loaded_along(access, at)
    if loaded:
        return Contiguity(access, at, False, f"{loaded} is loaded anew at each step", step)
    if step == 1:
        return Contiguity(access, at, True, "a step moves the address by 1", step)
    if step.is_const and _happens_twice(access, at):
        return Contiguity(access, at, False, f"a step moves the address by {step}", step)
    if at.symbol not in simplify(whole - at.symbol, facts=access.conditions).symbols:
        return Contiguity(access, at, True, "a step moves the address by 1 where the access happens", step)
    return _by_points(access, at, whole, step)


def _happens_twice(access: AccessFunction, at: LoopVariable) -> bool:
    """Whether the access happens at the first two steps of the loop, where all else has its least value; false where
    that is not seen."""
    symbols = {s for c in access.conditions for s in c.symbols}
    least = {s.name: low for s in symbols if (low := s.range.lo) is not None}
    if len(least) < len({s.name for s in symbols}):
        return False
    return all(c.evaluate({**least, at.name: n}) for c in access.conditions for n in (0, 1))


def _by_points(access: AccessFunction, at: LoopVariable, whole: Expr, step: Expr) -> Contiguity:
    """Whether any two points at which the access happens are as far apart in memory as in the loop."""
    verdict = _all_contiguous(whole, access.conditions, at.symbol, symbol(f"i{len(access.loops)}", 0, at.extent - 1))
    if isinstance(verdict, Proof):
        return Contiguity(access, at, True, f"a step moves the address by 1 at all {verdict.points} points", step)
    if step.is_const:
        return Contiguity(access, at, False, f"a step moves the address by {step}", step)
    if isinstance(verdict, CounterExample):
        point = {x.name: verdict.values.get(x.name, 0) for x in access.loops}
        other = {**point, at.name: verdict.values.get(f"i{len(access.loops)}", 0)}
        env = {s.name: 0 for s in whole.symbols} | dict(verdict.values)
        moved = int(whole.evaluate({**env, **other})) - int(whole.evaluate({**env, **point}))
        seen = ", ".join(f"{k} = {v}" for k, v in point.items())
        reason = f"{other[at.name] - point[at.name]} steps from {seen} move the address by {moved}"
        return Contiguity(access, at, False, reason, step, point)
    return Contiguity(access, at, False, f"a step moves the address by {step}, not provably 1", step)


def _all_contiguous(
    whole: Expr, conditions: tuple[Expr, ...], here: Expr, there: Expr
) -> Proof | CounterExample | Unknown:
    moved = {here: there}
    claim = (whole.substitute(moved) - whole).eq(there - here)
    return enumerate_points(claim, MAX_POINTS, (*conditions, *(c.substitute(moved) for c in conditions)))


def loaded_along(access: AccessFunction, at: LoopVariable) -> str:
    """The load symbol in the address whose loaded value changes along the loop; empty when there is none."""
    names = access.address.names
    return next((n for n, (_, w) in access.loads.items() if n in names and any(at.symbol in x.symbols for x in w)), "")


def consecutive(access: AccessFunction, loop: str | int | LoopVariable | IterDomain) -> Expr:
    """See `VectorWidth.run`."""
    at = find_loop(access, loop)
    if explain_contiguous(access, at):
        return at.extent
    limit = int(at.extent) if at.extent.is_const else congruence(at.extent)[0]
    for n in range(min(limit, _MAX_RUN), 1, -1):
        if limit % n == 0 and multiple_of(at.extent, n) and not loaded_anew(access, at, n):
            run = lanes(access, at, n)
            if _side_by_side(run):
                return as_expr(n)
    return as_expr(1)


def _side_by_side(run: LaneAccess) -> bool:
    if simplify(run.address - run.first - run.lane) == 0:
        return True
    if run.lane not in simplify(run.address - run.lane, facts=run.conditions).symbols:
        return True
    other = symbol(f"{run.lane.name}0", 0, run.width - 1)
    return isinstance(_all_contiguous(run.address, run.conditions, run.lane, other), Proof)
