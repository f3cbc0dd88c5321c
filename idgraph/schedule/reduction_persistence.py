"""The rule of each target for rows: held between passes or read again, online or in two passes, how much is under way.

The thresholds are measured: on an H200 softmax and norms of 4096 columns take 0.87 to 0.93 of the time when held, a
loss that one pass can do 1.6 times as long. Facts are written on the reductions (`Tensor.by_rule`); kernels obey them.

The loops of a row run once for each *sweep* that waits for another one's result; the rest go over the columns together.
Values are equal by their operations: a load of one tensor along one way of views, an operation on equal operands.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from idgraph.arith import as_expr, is_true, simplify
from idgraph.index.allocation import COUNTED
from idgraph.ir import (
    SCANS,
    SCATTERS,
    DType,
    IterDomain,
    LoadedCoordinate,
    Mapped,
    Tensor,
    TensorExpr,
    is_float,
    item_size,
)
from idgraph.ir.device import current_device
from idgraph.ir.op_table import GATHERS, OPERATIONS, PIECES, POINTWISE, moving
from idgraph.ir.schedule_log import KernelHints, Ruled
from idgraph.ir.walks import operands, reach
from idgraph.schedule.config import HELD, most_values
from idgraph.schedule.reduction_domain import ReductionDomain, product_of, reduces
from idgraph.schedule.reduction_tiling import ReductionTiling

IN_FLIGHT = 32  # elements whose loads a thread has in flight, where it takes several rows side by side
UNROLLED = 16  # the same of one row, where a kernel only reduces
UNROLLED_BESIDE = 32  # the same in a kernel that also writes a row: fewer of its blocks run at a time
UNROLLED_STORES = 16  # where a sweep keeps as many results too
BLOCK = 256  # columns whose terms the CPU adds up in float32
ONE_PASS = "one pass does it"
NO_VALUE = "no value of one pass is read by another"
CONDITIONS = "parts of its columns are read under conditions"
DIGITS = "a loop over its columns has a condition, or an index modulo its steps"
CHEAP = "nothing to hold that costs more than its loads"
NO_RULE = "nothing says that it is held"
AGAIN = "as a row that is read again"
ON_CORE = KernelHints(items_per_thread=BLOCK, why=AGAIN)
UNCLEAR = KernelHints(online=False, why="what a column reads does not follow from its tensors")


@dataclass(frozen=True, slots=True)
class ReductionGroup:
    """A space with its loops; ``owners``: its reductions and what is written over its columns, in order."""

    space: ReductionDomain
    how: ReductionTiling
    owners: Sequence[Tensor]


def choose_persistence(group: ReductionGroup) -> Iterator[Ruled]:
    """Write what the rules decide on the reductions of a space, nest by nest.

    Where the tensors do not say it, it is not one pass with others, and decides nothing for them.
    """
    flow = Dataflow(group.space, frozenset(t for t in group.space.labels if not t.inline_position))
    passes: list[ReductionPass] = []
    for t in group.owners:
        with suppress(UnclearError):
            passes.append(flow.sweep(t))
    for part in _passes_by_nest(passes):
        sums = [p.owner for p in part if reduces(p.owner)]
        again = KernelHints(online=_is_online(part), items_per_thread=_in_flight(part, group.how.side), why=AGAIN)
        yield from _write_hints(sums, "cuda", on_gpu(part, group), again, "online")
        yield from _write_hints(sums, "cpu", cpu_persistence(part, group), ON_CORE)
    told = {p.owner for p in passes}
    left = [t for t in group.owners if reduces(t) and t not in told]
    yield from _write_hints(left, "cuda", UNCLEAR, UNCLEAR, "online")
    yield from _write_hints(left, "cpu", UNCLEAR, ON_CORE)


def _write_hints(
    sums: Sequence[Tensor], target: str, rule: KernelHints, again: KernelHints, *read: str
) -> Iterator[Ruled]:
    """The decision written on reductions, as far as the user made none: where one was made on whether the row is held,
    or that says so too (``read``), the rest is that of a row that is read ``again``."""
    made = {n for t in sums for n in t.choices.explicit()}
    if sums:
        given = again if made & {"persistent", *read} else rule
        given = given.but(**dict.fromkeys(made & {"online", "items_per_thread"}, None))
        if given.explicit():
            for t in sums:
                t.by_rule(
                    target, persistent=given.persistent, online=given.online,
                    items_per_thread=given.items_per_thread, why=given.why,
                )  # fmt: skip
            yield Ruled(target, tuple(t.name for t in sums), given, given.why)


def _passes_by_nest(passes: Sequence[ReductionPass]) -> list[list[ReductionPass]]:
    """The passes of each loop nest: those that read one number of a row share it."""
    home: dict[Tensor, list[ReductionPass]] = {p.owner: [p] for p in passes}
    for p in passes:
        for t in p.waits:
            if t in home and home[t] is not home[p.owner]:
                whole = [*home[t], *home[p.owner]]
                home.update((q.owner, whole) for q in whole)
    found = {id(part): part for part in home.values()}
    return [[p for p in passes if home[p.owner] is part] for part in found.values()]


def on_gpu(passes: Sequence[ReductionPass], group: ReductionGroup) -> KernelHints:
    """In registers of the threads, where a row is passed over twice and fits."""
    if group.how.side > 1:
        side = group.how.side
        return KernelHints(False, _is_online(passes), _in_flight(passes, side), why=f"a thread has {side} rows")
    online = joined(passes, online=True)
    held, why = (False, ONE_PASS) if len(online) < 2 else _in_registers(joined(passes, online=False), group)
    return KernelHints(held, not held and _is_online(passes), None if held else _in_flight(passes, 1), why=why)


def _in_flight(passes: Sequence[ReductionPass], side: int) -> int:
    """Elements whose loads a thread of a GPU has in flight, of each of its ``side`` rows that are read again."""
    if side > 1:
        return max(1, IN_FLIGHT // side)
    writes = [any(not reduces(p.owner) for p in part.passes) for part in joined(passes, online=True)]
    beside = UNROLLED_BESIDE if any(writes) else UNROLLED
    return max((UNROLLED_STORES if w else beside for w in writes), default=UNROLLED)


def _is_online(passes: Sequence[ReductionPass]) -> bool:
    return any(part.online for part in joined(passes, online=True))


def _in_registers(parts: Sequence[FusedPasses], group: ReductionGroup) -> tuple[bool, str]:
    """Whether the threads hold a row between the passes over it, and why."""
    columns = product_of(group.space.extents[group.space.rows :])
    if len(parts) < 2:
        return False, ONE_PASS
    if columns is None:
        return False, "its length is open"
    arrays = len(reused_values(parts, loads=True))
    if not arrays:
        return False, NO_VALUE
    threads, lanes = group.how.threads, group.how.lanes
    width = lanes
    while width > 1 and columns % width:
        width //= 2
    held = -(-columns // (threads * width)) * width * arrays
    most = most_values(threads)
    if held <= most:
        return True, f"each of {threads} threads holds {held} values, of {HELD} at most"
    return False, f"each of the {threads} threads of its {columns} columns would hold {held} values, at most {most} fit"


def cached_row_bytes() -> int:
    """Bytes of a row kept on the CPU: what a core's own cache holds beside the row itself.

    >>> cached_row_bytes()
    524288
    """
    return current_device("cpu").core_cache // 2


def cpu_persistence(passes: Sequence[ReductionPass], group: ReductionGroup) -> KernelHints:
    """In an array, where a value is expensive to compute and the array stays in a core's cache."""
    found = reused_values(joined(passes, online=False), loads=False)
    if not found:
        return KernelHints(False, False, BLOCK, why=CHEAP)
    size = as_expr(sum(item_size(v.dtype) for v in found))
    for n in group.space.extents[group.space.rows :]:
        size = size * n
    size = simplify(size)
    cached = cached_row_bytes()
    held = is_true(size <= cached)
    why = f"{'held in arrays' if held else 'computed again'}: {size} bytes a row, {cached} at most"
    return KernelHints(held, False, BLOCK, why=why)


_SAME, _MOVED = moving("axes"), moving("places")
_WIDE = ("float32", "float64")
_NONE = frozenset[Tensor]()
_NO_AXES = frozenset[IterDomain]()
MOST_VALUES = 300  # of one sweep that are looked at


class UnclearError(Exception):
    """The values of a column do not follow from the tensors: only the kernel says."""


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A value of one column: ``kind`` is "load", "compute", "row" (one number a row) or "made" (of coordinates).

    Equal values have the same ``number``. ``rows`` are the numbers of the row that it is made of.
    """

    number: int
    kind: str
    dtype: DType
    varies: bool
    op: str = ""
    operands: tuple[ColumnValue, ...] = ()
    rows: frozenset[Tensor] = _NONE


@dataclass(frozen=True, slots=True)
class ReductionPass:
    """The columns of ``owner``, a reduction or what is written over them: ``value`` is the term or the written value.

    ``waits`` are the reductions that the row's numbers which it reads are made of.
    """

    owner: Tensor
    value: ColumnValue
    waits: frozenset[Tensor]


@dataclass(slots=True)
class Dataflow:
    """Reads the tensors of one space; ``stored`` is what its kernels write."""

    space: ReductionDomain
    stored: Collection[Tensor]
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _values: dict[Hashable, ColumnValue] = field(default_factory=dict[Hashable, ColumnValue])
    _reshaped: set[int] = field(default_factory=set[int])
    _waits: dict[Tensor, frozenset[Tensor]] = field(default_factory=dict[Tensor, "frozenset[Tensor]"])

    def sweep(self, owner: Tensor) -> ReductionPass:
        """The sweep of a reduction, or of a tensor written over the columns. Raises `UnclearError`."""
        e = owner.definition
        if e is None:
            raise UnclearError
        columns = frozenset(d for d, n in self.space.labels[owner].items() if n >= self.space.rows)
        if reduces(owner):
            if e.op not in ("sum", "prod", "amax", "amin", "any", "all"):
                raise UnclearError
            value, dtype = self.operand(e, 0, columns, 0), e.output.dtype
            if e.op in ("sum", "prod"):
                value = self.cast(value, dtype) if "dtype" in e.attrs else value
                dtype = "float64" if is_float(dtype) else "int64"
            value = self.cast(value, dtype)
        elif e.op == "reshape":  # its loops run over the axes from before
            value = self.operand(e, 0, columns, 0)
        else:
            value = self.computed(owner, columns, 0)
        return ReductionPass(owner, value, frozenset(r for t in value.rows for r in self.waits(t)))

    def waits(self, t: Tensor) -> frozenset[Tensor]:
        """The reductions of this space that a number of the row is made of, one behind the other."""
        if t not in self._waits:
            e = t.definition
            if e is None or not t.inline_position:
                self._waits[t] = _NONE
            elif reduces(t):
                self._waits[t] = frozenset({t})
                with suppress(UnclearError):
                    self._waits[t] |= self.sweep(t).waits
            else:
                self._waits[t] = frozenset(r for p in e.inputs for r in self.waits(p))
        return self._waits[t]

    def number(self, key: Hashable) -> int:
        """The number of a key: equal keys have the same."""
        return self._numbers.setdefault(key, len(self._numbers) + 1)

    def operand(self, e: TensorExpr, k: int, columns: Collection[IterDomain], path: int) -> ColumnValue:
        """Operand ``k`` of an operation; ``columns`` are the axes of its result that go along the columns."""
        along, steps = columns, e.output.domain.exprs
        if steps:
            along = set(columns)
            for x in reversed(steps):
                if any(d in along for d in x.outputs):
                    along.update(x.inputs)
        t, found = e.inputs[k], list[IterDomain]()
        for n, (axis, read) in enumerate(zip(t.axes, e.reads[k], strict=True)):
            if isinstance(read, Mapped):
                if read.domain in along and axis.kind != "broadcast":
                    found.append(axis)
            elif isinstance(read, LoadedCoordinate):
                index = self.operand(e, read.operand, columns, path)
                path = self.number(("at", path, n, index.number))
                if index.varies:
                    found.append(axis)
        return self.value(t, frozenset(found) if found else _NO_AXES, path)

    def value(self, t: Tensor, columns: frozenset[IterDomain], path: int) -> ColumnValue:
        """A tensor read at one column; ``path`` numbers the views on the way to it."""
        e = t.definition
        if t.inline_position and self.space.is_row(t):
            return self.row(_itself(t))
        counted = e is not None and e.op in COUNTED and not t.fusion.is_output(t)
        if e is None or not (t.inline_position or counted):
            if t in self.stored or (
                columns
                and path in self._reshaped
                and product_of([d.extent for d in t.axes]) != product_of(self.space.extents)
            ):
                raise UnclearError  # written by the same kernel; columns that are digits of an axis
            return ColumnValue(self.number(("load", id(t), path)), "load", t.dtype, varies=bool(columns))
        known = (t, columns, path)
        if known not in self._values:
            if len(self._values) > MOST_VALUES:
                raise UnclearError
            self._values[known] = self.computed(t, columns, path)
        return self._values[known]

    def row(self, t: Tensor) -> ColumnValue:
        """A number of the row: equal to others by its operations, a reduction to itself only."""
        number = self.number(("row", id(t)))
        if not reduces(t):
            with suppress(UnclearError):
                number = self.computed(t, _NO_AXES, 0).number
        return ColumnValue(number, "row", t.dtype, varies=False, rows=frozenset({t}))

    def computed(self, t: Tensor, columns: Collection[IterDomain], path: int) -> ColumnValue:
        """The value that an operation makes of its operands at one column."""
        e = t.definition
        if e is None or e.op in SCATTERS or e.op in SCANS or e.is_reduction or len(e.outputs) > 1:
            raise UnclearError
        attrs = tuple((k, repr(v)) for k, v in sorted(e.attrs.items())) if e.attrs else ()
        if e.op in _SAME or e.op in _MOVED or e.op in GATHERS:
            source = 1 if e.op == "embedding" else 0
            along = path if e.op in _SAME else self.number(("view", path, e.op, attrs))
            if e.op == "reshape" or path in self._reshaped:
                self._reshaped.add(along)
            return self.cast(self.operand(e, source, columns, along), t.dtype)
        if e.op in COUNTED:
            number = self.number((e.op, attrs, path, bool(columns)))
            return ColumnValue(number, "made", t.dtype, varies=e.op == "iota" and bool(columns), op=e.op)
        made: list[ColumnValue] = []
        if e.op in PIECES:
            for k in range(len(e.inputs)):
                made.append(self.operand(e, k, columns, self.number(("part", path, e.op, attrs, k))))
        elif e.op in POINTWISE:
            k = 0
            for a in e.args:
                if isinstance(a, Tensor):
                    made.append(self.operand(e, k, columns, path))
                    k += 1
                else:
                    made.append(ColumnValue(self.number((type(a), repr(a))), "made", t.dtype, varies=False))
        else:
            raise UnclearError
        if e.op == "cast":
            return self.cast(made[0], t.dtype)
        key = (e.op, t.dtype, attrs, path if e.op in PIECES else 0, *(v.number for v in made))
        varies = bool(columns) if e.op in PIECES else any(v.varies for v in made)
        rows = made[0].rows
        for v in made:
            if v.rows is not rows:
                rows = rows | v.rows
        return ColumnValue(self.number(key), "compute", t.dtype, varies, e.op, tuple(made), rows)

    def cast(self, v: ColumnValue, dtype: DType) -> ColumnValue:
        """The value in another type."""
        if v.dtype == dtype:
            return v
        return ColumnValue(self.number(("cast", dtype, v.number)), "compute", dtype, v.varies, "cast", (v,), v.rows)


def _itself(t: Tensor) -> Tensor:
    """The tensor whose values a row's number is, behind views of it."""
    while t.definition is not None and t.definition.op in _SAME and t.inline_position:
        t = t.definition.inputs[0]
    return t


@dataclass(slots=True)
class FusedPasses:
    """Sweeps that go over the columns together; ``online``: sums of the later ones follow a running maximum."""

    passes: list[ReductionPass]
    online: bool = False

    @property
    def owners(self) -> set[Tensor]:
        """Whose columns they are."""
        return {p.owner for p in self.passes}


def joined(passes: Sequence[ReductionPass], online: bool) -> list[FusedPasses]:
    """The sweeps, in order, each together with the last one before unless it waits for that one's result.

    With ``online`` sums of ``u * exp(x - c)`` need not wait for the maximum of the same x.
    """
    made: list[FusedPasses] = []
    for p in passes:
        if made and not p.waits & made[-1].owners:
            made[-1].passes.append(p)
        elif made and online and not made[-1].online and _follows_maximum(p, made[-1]):
            made[-1].passes.append(p)
            made[-1].online = True
        else:
            made.append(FusedPasses([p]))
    return made


def _follows_maximum(p: ReductionPass, before: FusedPasses) -> bool:
    """True of a sum whose terms use the maximum that ``before`` finds only as ``u * exp(x - maximum)``."""
    tops = [q for q in before.passes if reduces(q.owner) and q.owner.definition and q.owner.definition.op == "amax"]
    e = p.owner.definition
    if len(tops) != 1 or e is None or e.op != "sum" or not reduces(p.owner) or tops[0].owner.dtype not in _WIDE:
        return False
    waiting = [t for t in p.value.rows if _made_of(t, before.owners)]
    if len(waiting) != 1 or not _made_of(waiting[0], {tops[0].owner}):
        return False
    known = {v.number for q in before.passes for v in values(q.value)}
    return _factor(p.value, tops[0].value.number, waiting[0], known, {}) == "one"


def _made_of(t: Tensor, reductions: Collection[Tensor]) -> bool:
    """Whether a number of the row is made of one of the reductions."""
    made = reach([t], lambda u: operands(u) if u.inline_position and not reduces(u) else ())
    return any(u in reductions for u in made)


def values(v: ColumnValue) -> list[ColumnValue]:
    """A value and all that it is made of, each once."""
    found, work = dict[int, ColumnValue](), [v]
    while work:
        m = work.pop()
        if m.number not in found:
            found[m.number] = m
            work += m.operands
    return list(found.values())


Factor = Literal["none", "one", "other"]


def _factor(v: ColumnValue, top: int, c: Tensor, known: Collection[int], seen: dict[int, Factor]) -> Factor:
    """ "one" where ``v`` is exp(x - c) times what does not depend on c, "none" where it does not depend on c."""
    if v.number not in seen:
        seen[v.number] = "none" if c not in v.rows or v.number in known else _linear(v, top, c, known, seen)
    return seen[v.number]


def _linear(v: ColumnValue, top: int, c: Tensor, known: Collection[int], seen: dict[int, Factor]) -> Factor:
    """`_factor` of a value that depends on c."""
    if v.dtype not in _WIDE or not v.operands:
        return "other"
    inner = v.operands[0]
    if v.op == "exp" and inner.op == "sub" and inner.dtype in _WIDE:
        x, at = inner.operands
        return "one" if x.number == top and at.kind == "row" and at.rows == frozenset({c}) else "other"
    which = [_factor(m, top, c, known, seen) for m in v.operands]
    fits = which.count("one") == 1 and "other" not in which
    right = v.op in ("mul", "neg", "cast") or (v.op == "div" and which[0] == "one")
    return "one" if fits and right else "other"


def reused_values(parts: Sequence[FusedPasses], loads: bool) -> list[ColumnValue]:
    """Values of columns that later passes need and an earlier one has: what costs more to compute than to keep and,
    with ``loads``, what is loaded. Values nearer to their use are taken where those are no more."""
    first: dict[int, int] = {}
    for n, part in enumerate(parts):
        for p in part.passes:
            for v in values(p.value):
                first.setdefault(v.number, n)
    found = _needed_values(parts, first, loads, any_value=False)
    if loads and found:
        nearer = _needed_values(parts, first, loads, any_value=True)
        if nearer and len(nearer) <= len(found):
            return nearer
    return found


def _needed_values(
    parts: Sequence[FusedPasses], first: Mapping[int, int], loads: bool, any_value: bool
) -> list[ColumnValue]:
    found: dict[int, ColumnValue] = {}
    for n in range(len(parts) - 1, -1, -1):
        seen = set[int]()
        work = [p.value for p in parts[n].passes] + [v for k, v in found.items() if first[k] == n]
        while work:
            v = work.pop()
            if v.number in seen or v.kind == "row":
                continue
            seen.add(v.number)
            if first[v.number] < n and _is_worth_keeping(v, loads, any_value):
                found[v.number] = v
            else:
                work += v.operands
    return list(found.values())


def _is_worth_keeping(v: ColumnValue, loads: bool, any_value: bool) -> bool:
    """True of a value that is worth keeping between two passes."""
    if v.dtype == "bool" or not v.varies:
        return False
    if any_value:
        return True
    if v.op in OPERATIONS and OPERATIONS[v.op].cycles == "library":
        return True
    return loads and (v.kind == "load" or (v.op == "cast" and v.operands[0].kind == "load"))
