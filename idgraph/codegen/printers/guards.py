"""Loaded indices: an access that one would take outside of its tensor is not made; a load is zero.

A check states the condition on a loaded value, and its name. Every access whose address depends on that name, or on one
made of it, is made only where the condition holds.

First values for variables that are set under a condition, or in an inner loop, and read under another.

The conditions agree, so no such value is ever used. But numba's parallel loops take a variable that some path leaves
without a value to be the same in every iteration.

Divisions by the reciprocal of their divisor, for a GPU: exact, with one test for all of a thread's.

A quotient by the reciprocal is that of the division for all usual numbers. A test of each quotient would be a branch
beside each, across which nothing is computed together. All divisions of neighbouring statements are tested at once:
where one was not usual, the statements run again, with the division itself.

Exchange between the threads of a block: by shuffles where whole warps, or aligned parts of one, take part.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from idgraph.arith import TRUE, Expr, and_
from idgraph.codegen.runtime_lib.formulas import IndexText, inner_text
from idgraph.ir.device import GPU
from idgraph.ir.op_table import OPERATIONS
from idgraph.kernel.def_use import defs, reads
from idgraph.kernel.ir import (
    BoundsCheck,
    Comment,
    Compute,
    ExtractHalf,
    Half2Op,
    Index,
    Let,
    Load,
    Local,
    Loop,
    Select,
    Stmt,
    Store,
    VectorLoad,
    VectorStore,
    walk,
)
from idgraph.kernel.ssa import live_out


@dataclass(slots=True)
class Inside:
    """The conditions on addresses made of these names.

    >>> from idgraph.arith import symbol
    >>> known = Inside({"ld0": symbol("ld0") < 4})
    >>> str(known.of(symbol("ld0") * 8)), known.of(symbol("i")) is TRUE
    ('ld0 < 4', True)
    """

    known: dict[str, Expr] = field(default_factory=dict[str, Expr])

    @contextmanager
    def of_check(self, s: BoundsCheck) -> Generator[None]:
        """Within the statements of a check."""
        before = dict(self.known)
        self.known[s.value] = and_(self.known.get(s.value, TRUE), s.condition)
        yield
        self.known = before

    def let(self, s: Let) -> None:
        """A name made of others."""
        held = self.of(s.value.value) if isinstance(s.value, Index) else TRUE
        if held is not TRUE:
            self.known[s.name] = held

    def of(self, address: Expr) -> Expr:
        """The condition on an access at ``address``."""
        found = [self.known[n] for n in sorted(address.names & self.known.keys())] if self.known else []
        return and_(*found) if found else TRUE


@dataclass(frozen=True, slots=True)
class NestedChecks:
    """Checks in each other of indices that vectors are read at. ``early`` is what stands between them and depends on
    none of them: the indices of the inner ones."""

    checks: tuple[BoundsCheck, ...]
    early: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


def rows_of(s: BoundsCheck) -> NestedChecks | None:
    """A check of an index of vectors, which one instruction reads or leaves out, with those inside of it; None of other
    checks, before a write or of single elements."""
    checks, early = [s], list[Stmt]()
    while checks[-1].body and isinstance(last := checks[-1].body[-1], BoundsCheck):
        early += checks[-1].body[:-1]
        checks.append(last)
    values = {x.value for x in checks}
    free = _moves_up(early, values) and not any(x.always for x in checks)
    if not free or _rows_read(checks[-1].body, values) <= 0:
        return None
    return NestedChecks(tuple(checks), tuple(early), checks[-1].body)


def _moves_up(early: Sequence[Stmt], values: set[str]) -> bool:
    """Whether statements between checks may run in front of all of them: they read no checked value."""
    for s in walk(tuple(early)):
        if isinstance(s, (Loop, Load, VectorLoad, Let, Compute, Select, Comment)) and not reads(s) & values:
            continue
        return False
    return True


def _rows_read(body: Sequence[Stmt], checked: set[str]) -> float:
    """The vectors read at checked indices; less than any number where there is more that depends on them."""
    found = 0.0
    for s in body:
        match s:
            case VectorLoad():
                found += 1 if s.address.names & checked and not s.realigned else -inf
            case Loop(parallel="unroll"):
                found += _rows_read(s.body, checked)
            case VectorStore() | Store() | Load() if not s.address.names & checked:
                pass
            case Compute() | Select() | Comment() | Half2Op() | ExtractHalf():
                pass
            case _:
                found = -inf
    return found


def without_value(s: Stmt, after: Sequence[Stmt]) -> list[Local]:
    """The variables that some path through ``s`` leaves without a value, and statements ``after`` it read.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[8] input "x"
    ...   buffer y: float32[8] output "y"
    ...   for i < 8:
    ...     if i < 4:
    ...       t: float32 = x[i]
    ...     if i < 4:
    ...       y[i] = t
    ... ''')
    >>> first, *rest = k.body[0].body
    >>> [str(x) for x in without_value(first, rest)]
    ['t']
    """
    names = live_out(s, after)
    made = [x for y in walk((s,)) if isinstance(y, (Load, Compute, Select)) for x in defs(y)] if names else []
    return [x for x in made if x.name in names]


Body = Sequence[Stmt]
MOST = 8  # divisions that are tested at once: what they need stays in registers until then


def is_division(s: Stmt) -> bool:
    """A division by a number whose reciprocal is known."""
    return isinstance(s, Compute) and s.op == "div_by"


def divided(body: Body) -> Iterator[tuple[Body, bool]]:
    """``body`` in parts; True beside those with divisions that are tested at once, and may run again.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[4] input "x"
    ...   buffer y: float32[4] output "y"
    ...   for i < 2:
    ...     a: float32 = x[i]
    ...     c: float32 = reciprocal(a)
    ...     d: float32 = div_by(2, a, c)
    ...     e: float32 = add(d, 1)
    ...     f: float32 = div_by(e, a, c)
    ...     y[i] = f
    ... ''')
    >>> [(len(part), again) for part, again in divided(k.body[0].body)]
    [(2, False), (3, True), (1, False)]
    """
    plain, part, last, many = 0, 0, 0, 0  # what begins at ``plain`` has no divisions; those of ``part`` end at ``last``
    for n, s in enumerate((*body, Comment(""))):
        more = divisions(s) if _runs_again(s) and n < len(body) else 0
        if many and (not _runs_again(s) or n == len(body) or (more and many + more > MOST)):
            if part > plain:
                yield body[plain:part], False
            yield body[part : last + 1], True
            plain, many = last + 1, 0
        if more:
            part, last, many = n if not many else part, n, many + more
    if plain < len(body):
        yield body[plain:], False


def divisions(s: Stmt) -> int:
    """How many divisions by reciprocals a statement has, in all steps of its loops."""
    if isinstance(s, Loop):
        return sum(map(divisions, s.body)) * (int(s.extent) if s.extent.is_const else MOST)
    return int(is_division(s))


def steps_together(body: Body) -> int | None:
    """The steps whose divisions are tested at once, of a loop that by itself has more than ``MOST``; None of all
    others."""
    if len(body) != 1 or not isinstance(body[0], Loop) or divisions(body[0]) <= MOST:
        return None
    each = divisions(body[0]) // int(body[0].extent)
    return next((n for n in range(MOST // each, 0, -1) if int(body[0].extent) % n == 0), 1) if each <= MOST else 1


def _runs_again(s: Stmt) -> bool:
    """Whether a statement may run twice: it computes values of a thread from others, at little cost, and no more."""
    if isinstance(s, Loop):
        return s.parallel == "unroll" and s.extent.is_const and all(map(_runs_again, s.body))
    if isinstance(s, Load):
        return s.buffer.place == "private"
    if isinstance(s, Compute):
        return s.op not in OPERATIONS or OPERATIONS[s.op].cycles != "library"
    return isinstance(s, (Select, Comment, Half2Op, ExtractHalf))


def divided_by(s: Compute) -> Compute:
    """The division itself."""
    return replace(s, op="div", operands=s.operands[:2])


def operands_of(s: Compute, index: IndexText) -> str:
    """The arguments of a division: a, b and 1 / b."""
    return ", ".join(inner_text(o, "float32", index) for o in s.operands)


WARP = GPU.warp  # of the language: a device of other warps gets no kernels


def by_shuffles(count: int, block: int) -> bool:
    """True where ``count`` threads in x, of ``block`` in all, are whole warps or an aligned part of one.

    >>> by_shuffles(512, 512), by_shuffles(8, 128), by_shuffles(8, 16), by_shuffles(96, 96), by_shuffles(24, 96)
    (True, True, False, True, False)
    """
    return block % WARP == 0 and (count % WARP == 0 or (count < WARP and count & (count - 1) == 0))


def by_columns(dims: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """True where threads in y exchange for each of a few in x, both powers of two, and the block is whole warps.

    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 64, "threadIdx.z": 1})
    True
    >>> by_columns(("threadIdx.y",), {"threadIdx.x": 8, "threadIdx.y": 2, "threadIdx.z": 1})
    False
    """
    x, y = sizes["threadIdx.x"], sizes["threadIdx.y"]
    whole = x <= WARP and x & (x - 1) == 0 and y & (y - 1) == 0 and x * y % WARP == 0
    return tuple(dims) == ("threadIdx.y",) and sizes["threadIdx.z"] == 1 and whole
