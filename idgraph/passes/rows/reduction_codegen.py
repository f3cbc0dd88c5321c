"""Kernels with their loops over columns as sweeps: joined, and on the GPU in chunks.

A sweep on the CPU: plain loops over the columns, in a form that compilers vectorise.

64-bit values halve the vector width of the whole loop, so it has as few as it can where it becomes vector code:

- In blocks, terms are added up in float32 for ``elements`` columns before they go to the float64 sum. The error is
  below ``elements`` * 2**-24 of the sum of magnitudes in any order, and about 10 * 2**-24 in that of vectors. This is
  for terms that are never negative, whose sum is at least as large as each, and for the whole steps of long rows.
- In runs, `RUNS` neighbouring ranges of columns are read side by side, and their terms are added up in pairs in
  float32 (pairwise summation): an error below log2(`RUNS`) * 2**-24 of the sum of magnitudes in any order. This is for
  the rest.

The tests hold each kind of row to these bounds, and the root mean square of the errors to 1.1 of that of torch's
cascade; rows that mirror themselves, whose terms cancel in torch's vectors, only to the bound (Higham, The accuracy of
floating point summation, 1993). Where a loop becomes no vector code, a float64 sum costs no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from idgraph.arith import TRUE, Expr, as_expr, ceildiv, is_true, minimum, simplify, symbol
from idgraph.errors import EmitError
from idgraph.ir import is_float, item_size
from idgraph.ir.schedule_log import KernelHints
from idgraph.kernel.def_use import map_body, read_only_buffers
from idgraph.kernel.ir import (
    Accumulate,
    Alloc,
    BoundsCheck,
    Buffer,
    Compute,
    If,
    Index,
    InitAccumulator,
    Kernel,
    KernelModule,
    Let,
    Local,
    Loop,
    Stmt,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.kernel.value_numbering import ValueNumbering
from idgraph.passes.lane_unrolling import Lane, is_lanes
from idgraph.passes.rows.online_reductions import finalize_online, settled_moments
from idgraph.passes.rows.persistent import KEPT, cache_row_values, persistence_error, persistent_in_registers
from idgraph.passes.rows.reduction_fusion import Part, fuse_reduction_loops
from idgraph.passes.rows.reduction_loop import COLUMN, Plain, ReductionLoop, drop_unit_loops, match_reduction_loop
from idgraph.passes.rows.summation import (
    hoisted,
    is_short,
    narrowed,
    of_one_sign,
    rounds,
    runs_as_vectors,
    with_products,
)
from idgraph.passes.rows.vector_chunks import Pairs, emit_vector_chunks, stores
from idgraph.schedule.reduction_persistence import (
    BLOCK,
    CHEAP,
    DIGITS,
    IN_FLIGHT,
    NO_RULE,
    UNROLLED,
    UNROLLED_STORES,
    cached_row_bytes,
)


@dataclass(frozen=True, slots=True)
class _RowConfig:
    """Decisions of a schedule about rows of one kernel: ``choices`` of the user, ``ruled`` of the rule, for the running
    value of each reduction. ``done`` gets the names of the choices that a row meets, ``notes`` how each is read
    and why."""

    choices: KernelHints
    ruled: Mapping[str, KernelHints]
    read_only: frozenset[str]
    done: set[str] = field(default_factory=set[str])
    notes: list[str] = field(default_factory=list[str])

    def decided(self, body: Sequence[Stmt]) -> KernelHints:
        """The decisions for the rows of a level: the user's, else those of the rule for each of its reductions.

        Rows of several nests are held where all of them are; they have as much under way as the one that has most.
        """
        sums = [s.acc.name for s in walk(tuple(body)) if isinstance(s, Accumulate) and s.buffer is None]
        found = list(dict.fromkeys(self.ruled[name] for name in sums if name in self.ruled))
        by_rule = KernelHints(
            persistent=any(c.persistent for c in found) and all(c.persistent is not False for c in found),
            online=any(c.online for c in found) or not found,
            items_per_thread=max((n for c in found if (n := c.items_per_thread) is not None), default=None),
            why="; ".join(dict.fromkeys(c.why for c in found)) or NO_RULE,
        )
        made = self.choices.explicit()
        return by_rule.but(**made, **({"why": "so says the schedule"} if "persistent" in made else {}))


def with_rows(plan: KernelModule, *, threads: bool = True) -> KernelModule:
    """rows: reductions over the threads of a block, and the loops beside them, in aligned chunks.

    A kernel's choices are obeyed; with ``threads``, `EmitError` names one that cannot be. `Kernel.rows` tells for each
    row what was done and why: whether it is held between its passes, and how often it is read.

    rows_of_core: the same without ``threads``, for the CPU: in plain loops over the columns.

    >>> from idgraph.kernel.ir import KernelModule
    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   rule s persistent=false items_per_thread=16: one pass does it
    ...   buffer x: float32[1024] input "x"
    ...   buffer y: float32[8] output "y"
    ...   launch blockIdx.x: 8
    ...   launch threadIdx.x: 32
    ...   for b < 8, blockIdx.x:
    ...     acc s: float64 = 0.0
    ...     for o < 2, column 128 of 3:
    ...       for t < 32, threadIdx.x:
    ...         for q < 2, vectorize:
    ...           v: float32 = x[b*128 + o*64 + t*2 + q]
    ...           s <- sum v, to float32
    ...     s <- sum over threadIdx.x
    ...     r: float32 = cast(s)
    ...     single threadIdx.x:
    ...       y[b] = r
    ... ''')
    >>> print(with_rows(KernelModule((k,), (), {}, {})).kernels[0])
    kernel k():
      row 1 pass by the target's rule; not held: one pass does it; 16 elements in flight by the target's rule
      buffer x: float32[1024] input "x"
      buffer y: float32[8] output "y"
      launch blockIdx.x: 8; threadIdx.x: 32
      for b < 8, blockIdx.x:
        acc s: float64 = 0.0
        for t < 32, threadIdx.x:
          lanes:
            v_0: float32 = x[b*128 + t*2]
            v_1: float32 = x[b*128 + t*2 + 1]
            v_2: float32 = x[b*128 + t*2 + 64]
            v_3: float32 = x[b*128 + t*2 + 65]
            s_0: float32 = add(v_0, v_1)
            s_1: float32 = add(v_2, v_3)
            s_2: float32 = add(s_0, s_1)
            s <- sum s_2, to float32
        s <- sum over threadIdx.x
        r: float32 = cast(s)
        single threadIdx.x:
          y[b] = r
    >>> print(with_rows(KernelModule((k,), (), {}, {}), threads=False).kernels[0])
    kernel k():
      row 1 pass; one pass does it, by the target's rule
      buffer x: float32[1024] input "x"
      buffer y: float32[8] output "y"
      launch blockIdx.x: 8; threadIdx.x: 32
      for b < 8, blockIdx.x:
        acc s: float64 = 0.0
        for c < 128, carries s:
          v: float32 = x[b*128 + c]
          s <- sum v, to float32
        s <- sum over threadIdx.x
        r: float32 = cast(s)
        single threadIdx.x:
          y[b] = r
    """
    return replace(plan, kernels=tuple(_kernel(k, threads) for k in plan.kernels))


def _kernel(kernel: Kernel, threads: bool) -> Kernel:
    body: tuple[Stmt, ...] = kernel.body
    row = _RowConfig(kernel.choices, dict(kernel.default_hints), read_only_buffers(kernel.buffers, body))
    if any(isinstance(s, Accumulate) and s.buffer is None for s in walk(body)):
        level = partial(_threaded if threads else _serial, row=row)
        made = map_body(_lower_body(drop_unit_loops(body), level), _without_axis)
        body = made if threads else arrays_outside(made)
    if threads:
        _check_obeyed(kernel.choices, row.done)
    if body is kernel.body:
        return replace(kernel, default_hints=()) if kernel.default_hints else kernel
    return replace(kernel, body=to_ssa(body), rows=tuple(dict.fromkeys(row.notes)), default_hints=())


def _without_axis(s: Stmt) -> Stmt:
    """A loop that names no axis any more: later passes give it other extents."""
    return replace(s, column=None) if isinstance(s, Loop) and s.column is not None else s


def _check_obeyed(choices: KernelHints, done: set[str]) -> None:
    """Raise `EmitError` for a choice that no row of the kernel met."""
    if choices.persistent and "persistent" not in done:
        raise persistence_error(
            choices, "no row of its kernel is passed over twice", "leave it out: the row is read once"
        )
    if choices.online and "online" not in done:
        raise EmitError(
            f"{choices.of or 'a row'}: not online",
            because=("no row of its kernel has a maximum and, behind it, sums of exp(x - maximum)",),
            hint="online(False), or leave it out",
        )


Lower = Callable[[Sequence[Stmt], int, bool], list[Stmt]]


def _lower_body(body: Sequence[Stmt], lower: Lower, side: int = 1, part: bool = False) -> list[Stmt]:
    """The statements of one level, of ``side`` rows of a thread; sweeps stand where a level has a reduction over
    threads or lanes. ``part``: it lies within a loop over columns, which is not one sweep then."""
    if any(_is_row(s) for s in body):
        return lower(body, side, part)
    made: list[Stmt] = []
    for s in body:
        if isinstance(s, Loop):
            lanes = int(s.extent) if is_lanes(s) else 1
            within = part or s.column is not None
            made.append(replace(s, body=tuple(_lower_body(s.body, lower, side * lanes, within))))
        else:
            inside = isinstance(s, (If, BoundsCheck))
            made.append(replace(s, body=tuple(_lower_body(s.body, lower, side, part))) if inside else s)
    return made


def _by(choice: object) -> str:
    """The one who decided, in words."""
    return "the target's rule" if choice is None else "the schedule"


def _passes_text(parts: Sequence[Part]) -> str:
    """How often a row is passed over, and whether sums follow its running maximum."""
    sweeps = [p for p in parts if isinstance(p, ReductionLoop)]
    follow = {s.online.first for s in sweeps if s.online is not None}
    online = ", sums follow the running maximum" * (False in follow) + ", indices follow the running extremum" * (
        True in follow
    )
    variance = ", a variance with its mean" if any(s.moments is not None for s in sweeps) else ""
    return f"{len(sweeps)} pass{'es' * (len(sweeps) > 1)}{online}{variance}"


def _serial(body: Sequence[Stmt], _side: int, _part: bool, row: _RowConfig) -> list[Stmt]:
    """Plain loops; expensive values are kept for the later sweeps, where a row fits into the cache."""
    choices, decided = row.choices, row.decided(body)
    parts: Sequence[Part] = fuse_reduction_loops(body, online=False)
    short = [isinstance(p, ReductionLoop) and is_short(p) for p in parts]
    sweep = next((p for p in parts if isinstance(p, ReductionLoop)), None)
    arrays: tuple[Buffer, ...] = ()
    if sweep is not None:
        why = decided.why if choices.persistent is None else "computed again"
        if decided.persistent:
            found = cache_row_values(parts, row.read_only, loads=False, at=sweep.column, size=sweep.extent)
            parts, arrays = found.parts, found.buffers
            size = simplify(sweep.extent * sum(item_size(b.dtype) for b in arrays))
            why = f"held in arrays: {size} bytes a row, {cached_row_bytes()} at most" if arrays else CHEAP
        row.notes.append(f"{_passes_text(parts)}; {why}, by {_by(choices.persistent)}")
    made: list[Stmt] = [Alloc(b) for b in arrays]
    elements = decided.items_per_thread or BLOCK
    for p, s in zip(parts, short, strict=True):
        made += emit_cpu_reduction(p, row.read_only, elements, s) if isinstance(p, ReductionLoop) else [p]
    return made


def arrays_outside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The rows' arrays made once for all rows of a task: at the start of the outermost loops."""
    made: list[Stmt] = []
    for s in body:
        arrays = [x for x in walk((s,)) if isinstance(x, Alloc) and x.buffer.name.startswith(KEPT)]
        if isinstance(s, Loop) and arrays:
            (s,) = _without((s,), frozenset(a.buffer.name for a in arrays))
            s = replace(s, body=(*arrays, *s.body)) if isinstance(s, Loop) else s
        made.append(s)
    return tuple(made)


def _without(body: tuple[Stmt, ...], arrays: frozenset[str]) -> tuple[Stmt, ...]:
    return tuple(
        replace(s, body=_without(s.body, arrays)) if isinstance(s, (Loop, If)) else s
        for s in body
        if not (isinstance(s, Alloc) and s.buffer.name in arrays)
    )


def _threaded(body: Sequence[Stmt], side: int, part: bool, row: _RowConfig) -> list[Stmt]:
    """On the threads of a block: in their registers where the schedule, or without one the target's rule, says so."""
    choices, decided = row.choices, row.decided(body)
    online, why = decided.online, decided.why
    if choices.online:
        why = "sums shall follow a maximum"
    elif decided.persistent:
        held, why = persistent_in_registers(body, row.read_only, choices)
        if held is not None:
            row.done.add("persistent")
            row.notes.append(f"read once and held by {_by(choices.persistent)}: {why}")
            return held
        why = DIGITS if part else why
        online = choices.online is not False
    parts = fuse_reduction_loops(body, online=bool(online), one_pass=choices.online is not False)
    row.done.update("online" for p in parts if isinstance(p, ReductionLoop) and p.online is not None)

    def items(s: ReductionLoop) -> int:
        """Elements of a sweep whose loads a thread has in flight."""
        most = decided.items_per_thread or max(1, IN_FLIGHT // side if side > 1 else UNROLLED)
        return min(most, UNROLLED_STORES) if choices.items_per_thread is None and side == 1 and stores(s) else most

    most = max((items(p) for p in parts if isinstance(p, ReductionLoop)), default=0)
    row.notes.append(
        f"{_passes_text(parts)} by {_by(choices.online)}; not held: {why}; {most} elements in flight by "
        f"{_by(choices.items_per_thread)}"
    )
    made: list[Stmt] = []
    for n in range(len(parts) - 1, -1, -1):
        one = parts[n]
        if isinstance(one, ReductionLoop):
            made = [
                *emit_vector_chunks(one, row.read_only, items(one)),
                *finalize_online(one, settled_moments(one, made)),
            ]
        else:
            made = [one, *made]
    return made


def _is_row(s: Stmt) -> bool:
    """A loop over columns that accumulates one number."""
    sweep = match_reduction_loop(s) if isinstance(s, Loop) else None
    return sweep is not None and any(isinstance(x, Accumulate) and x.buffer is None for x in sweep.body)


RUNS = 4  # whose terms are added up in pairs
LEAST = 32  # columns that are worth either
LONG = 512  # columns of a row whose partial sums are small beside it in blocks
STEP = 64  # columns that vector code takes at once


def emit_cpu_reduction(
    s: ReductionLoop, read_only: frozenset[str], elements: int = BLOCK, short: bool | None = None
) -> list[Stmt]:
    """The loops, with loop-invariant values in front of them.

    ``short``: all floating point numbers that the kernel's rows read and write have two bytes.
    """
    fixed, s = hoisted(s, read_only)
    if (is_short(s) if short is None else short) and not rounds(s):
        s = with_products(s, fixed, exact=False)
    near = [
        replace(x, op="exp32")
        if isinstance(x, Compute) and x.op == "exp" and is_float(x.compute) and x.compute != "float64" else x
        for x in s.body
    ]  # fmt: skip
    s = replace(s, body=tuple(near))
    loops = _vectors(s, elements) if runs_as_vectors(near, s.column) else [_loop(s, s.extent, near)]
    whole = (*fixed, *loops)
    return [If(s.condition, whole)] if s.condition != TRUE else list(whole)


def _loop(s: ReductionLoop, count: Expr, body: Sequence[Stmt], var: str = COLUMN) -> Stmt:
    return Loop(var, count, "serial", tuple(body), s.loops[0].note)


def _vectors(s: ReductionLoop, elements: int) -> list[Stmt]:
    """Sums in blocks, then in runs."""
    body, terms = narrowed(s.body)
    if not terms or is_true(s.extent < LEAST):
        return [_loop(s, s.extent, s.body)]
    if all(of_one_sign(s.body, x) for x in terms.values()):
        return _blocks(s, body, terms, s.extent, elements)
    whole = int(s.extent) if s.extent.is_const and int(s.extent) >= LONG else 0
    whole -= whole % (elements if whole > elements else STEP)  # compilers know the length of whole blocks
    blocks = _blocks(s, body, terms, as_expr(whole), elements) if whole else []
    return [*blocks, *_emit_runs(s, body, terms, as_expr(whole), elements)]


def _blocks(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], count: Expr, elements: int
) -> list[Stmt]:
    """The first ``count`` columns in blocks, each with sums of its own; the last one may be shorter."""
    sums = [x for x in body if isinstance(x, Accumulate) and isinstance(x.value, Local) and x.value.name in terms]
    near = {x.value.name: Local(f"{x.acc.name}_near", "float32") for x in sums if isinstance(x.value, Local)}
    first = [InitAccumulator(x.name, x.dtype, 0.0) for x in near.values()]
    last = [replace(x, value=near[x.value.name]) for x in sums if isinstance(x.value, Local)]
    inside = [_into(x, near, terms) for x in body]
    if is_true(count <= elements) and count == s.extent:
        return [*first, _loop(s, count, inside), *last]
    many = simplify(ceildiv(count, elements))
    block, inner = symbol(f"{COLUMN}_block", 0, simplify(many - 1)), symbol(f"{COLUMN}_in", 0, elements - 1)
    at = Let(COLUMN, Index(simplify(block * elements + inner)))
    some = _loop(s, simplify(minimum(as_expr(elements), count - block * elements)), (at, *inside), inner.name)
    return [_loop(s, many, (*first, some, *last), block.name)]


def _into(x: Plain, near: Mapping[str, Local], terms: Mapping[str, Local]) -> Stmt:
    """A sum's update as that of its block's sum."""
    if isinstance(x, Accumulate) and isinstance(x.value, Local) and x.value.name in near:
        return Accumulate(near[x.value.name], "sum", terms[x.value.name])
    return x


def _emit_runs(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], first: Expr, elements: int
) -> list[Stmt]:
    """The columns from ``first`` on: blocks of `RUNS` runs of one length, as many shorter runs, what is left."""
    run = max(1, elements // RUNS)
    size, behind = run * RUNS, simplify(s.extent - first)
    whole, rest = simplify(behind // size), simplify(behind % size)
    made: list[Stmt] = []
    if whole != 0:
        block = symbol(f"{COLUMN}_block", 0, simplify(whole - 1))
        made.append(_loop(s, whole, (_interleaved_runs(s, body, terms, first + block * size, run),), block.name))
        first = simplify(first + whole * size)
    if rest.is_const and int(rest) >= RUNS:
        run = int(rest) // RUNS
        made.append(_interleaved_runs(s, body, terms, first, run))
        first, rest = simplify(first + run * RUNS), simplify(rest - run * RUNS)
    if rest != 0:
        inner = symbol(f"{COLUMN}_in", 0, simplify(rest - 1))
        left = Pairs(ValueNumbering(frozenset())).expand(s.body, [Lane((), {s.column: first + inner})], {})
        made.append(_loop(s, rest, left, inner.name))
    return made


def _interleaved_runs(
    s: ReductionLoop, body: Sequence[Plain], terms: Mapping[str, Local], first: Expr, run: int
) -> Stmt:
    """`RUNS` runs of ``run`` columns from ``first`` on, side by side."""
    inner = symbol(f"{COLUMN}_in", 0, run - 1)
    lanes = [Lane((n,), {s.column: first + n * run + inner}) for n in range(RUNS)]
    return _loop(s, as_expr(run), Pairs(ValueNumbering(frozenset()), terms).expand(body, lanes, {}), inner.name)
