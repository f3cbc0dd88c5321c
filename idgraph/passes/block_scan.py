"""Block scans: each thread scans a few neighbours, and adds the exclusive scan over the threads before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from idgraph.arith import Expr, as_expr, symbol
from idgraph.errors import EmitError
from idgraph.index.allocation import is_thread
from idgraph.ir import DType, Scalar, is_float
from idgraph.ir.dtypes import compute_dtype
from idgraph.kernel.def_use import all_reads, defs, loaded_in, sets, updates
from idgraph.kernel.ir import (
    Accumulate,
    AccumulateOp,
    Alloc,
    BlockReduce,
    BoundsCheck,
    Buffer,
    Comment,
    Compute,
    Constant,
    If,
    InitAccumulator,
    Kernel,
    Load,
    Local,
    Loop,
    Stmt,
    Store,
    bodies,
    walk,
)
from idgraph.kernel.ssa import to_ssa
from idgraph.lower.statements import Accumulator, identity

_BOTH: dict[AccumulateOp, str] = {
    "sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "logsum": "logaddexp",
    "near_logsum": "near_logaddexp",
}  # fmt: skip
_WRAPPERS = (If, BoundsCheck)


def on_threads(kernel: Kernel) -> Kernel:
    """scan: a running value through the elements of all threads as an exchange between them.

    >>> import idgraph as ig
    >>> k = ig.kernel.parse('''
    ... kernel k():
    ...   buffer x: float32[64] input "x"
    ...   buffer y: float32[64] output "y"
    ...   launch threadIdx.x: 32
    ...   acc acc: float32 = 0
    ...   for t < 32, threadIdx.x:
    ...     for q < 2, vectorize:
    ...       v: float32 = x[t*2 + q]
    ...       acc <- sum v, now now: float32, along t, along q
    ...       y[t*2 + q] = now
    ... ''')
    >>> print(on_threads(k))
    kernel k():
      buffer x: float32[64] input "x"
      buffer y: float32[64] output "y"
      launch threadIdx.x: 32
      acc acc: float32 = 0
      for t < 32, threadIdx.x:
        alloc run1: float32[2] private "run"
        for q < 2, vectorize:
          v: float32 = x[q + t*2]
          acc_term: float32 = cast(v)
          run1[q] = acc_term
        acc acc_own: float32 = 0
        acc_at0: float32 = run1[0]
        acc_own <- sum acc_at0, now acc_run0: float32
        run1[0] = acc_run0
        acc_at1: float32 = run1[1]
        acc_own <- sum acc_at1, now acc_run1: float32
        run1[1] = acc_run1
        acc_own <- sum over threadIdx.x, acc_before: float32 before
        acc_base: float32 = add(acc, acc_before)
        acc <- sum acc_own
        for q < 2, vectorize:
          acc_here: float32 = run1[q]
          now: float32 = add(acc_base, acc_here)
          y[q + t*2] = now
    """
    made = _Scans(kernel.name)
    body = made.level(kernel.body)
    return replace(kernel, body=to_ssa(body)) if made.count else kernel


def _of(s: Stmt, var: str) -> bool:
    return isinstance(s, Accumulate) and s.running is not None and var in s.along


@dataclass(slots=True)
class _Scans:
    """One walk over a kernel; ``count`` numbers the scans, for names."""

    kernel: str
    count: int = 0
    open: dict[str, Local] = field(default_factory=dict[str, Local])

    def level(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The statements of one level."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Loop) and is_thread(s.parallel) and any(_of(x, s.var) for x in walk(s.body)):
                single, body = _single_steps(s.body, s.var)
                made: Stmt = replace(s, body=tuple(self.shared(s, body)))
                for one in reversed(single.values()):
                    made = replace(one, body=(made,))
                out.append(made)
            elif isinstance(s, (Loop, *_WRAPPERS)):
                out.append(replace(s, body=self.level(s.body)))
            else:
                out.append(s)
        return tuple(out)

    def shared(self, thread: Loop, body: Sequence[Stmt]) -> list[Stmt]:
        """The body of a loop over threads, its first scan, then the others, exchanged."""
        at = next((n for n, s in enumerate(body) if any(_of(x, thread.var) for x in walk((s,)))), None)
        if at is None:
            return list(body)
        s = body[at]
        if isinstance(s, Loop):
            if is_thread(s.parallel) or not s.extent.is_const:
                raise self.stuck(s)
            made = self.phases(thread, s, s.body)
            return [*body[:at], *made, *self.shared(thread, body[at + 1 :])]
        return self.phases(thread, None, body)

    def stuck(self, s: Stmt) -> EmitError:
        return EmitError(
            f"{self.kernel}: a scan on threads has a loop of {getattr(s, 'extent', '?')} steps inside",
            hint="split the scanned axis into steps, threads and a constant number of lanes, in this order",
        )

    def phases(self, thread: Loop, lanes: Loop | None, body: Sequence[Stmt]) -> list[Stmt]:
        """Statements before the running value, the exchange, and those after it."""
        first, step, second, tests = _split(body, thread.var)
        reaches = lanes is None and not tests  # what stands in front of the exchange is defined behind it
        if step.running is None or not (reaches or _is_independent(first, second, lanes)):
            raise self.stuck(thread)
        self.count += 1
        number, op, dtype = self.count, step.op, step.acc.dtype
        own, before, base = (Local(f"{step.acc.name}_{n}", dtype) for n in ("own", "before", "base"))
        extent = int(lanes.extent) if lanes is not None else 1
        lane: Expr = symbol(lanes.var, 0, extent - 1) if lanes is not None else as_expr(0)
        start = Constant(identity(Accumulator(op, dtype)))

        def array(name: str, of: Local) -> Buffer:
            return Buffer(f"{name}{number}", name, compute_dtype(of.dtype), as_expr(extent), "private")

        run = array("run", step.acc)
        term = Local(f"{step.acc.name}_term", dtype)
        value: Stmt = Compute(term, "cast", (step.value,), dtype)
        kept, again = (list[Local](), list[Stmt]()) if reaches else _crossing(first, second)
        arrays = [
            run,
            *(
                Buffer(f"kept{number}_{x.name}", x.name, compute_dtype(x.dtype), as_expr(extent), "private")
                for x in kept
            ),
        ]
        into = [value, Store(run, lane, term), *(Store(b, lane, x) for b, x in zip(arrays[1:], kept, strict=True))]
        one = _ended(first, tests, into)
        guarded = any(isinstance(x, _WRAPPERS) for x in walk(tuple(first)))
        out: list[Stmt] = [Alloc(b) for b in arrays]
        if guarded:  # a thread without an element holds the identity; what is kept for it is read behind the exchange
            values = [start, *(Constant(_zero(x.dtype)) for x in kept)]
            out += [Store(b, as_expr(n), v) for b, v in zip(arrays, values, strict=True) for n in range(extent)]
        out += _in_lane_loop(lanes, one)
        out.append(InitAccumulator(own.name, dtype, identity(Accumulator(op, dtype))))
        for n in range(extent):
            here, now = Local(f"{step.acc.name}_at{n}", dtype), Local(f"{step.acc.name}_run{n}", dtype)
            out += [Load(here, run, as_expr(n)), Accumulate(own, op, here, running=now), Store(run, as_expr(n), now)]
        out.append(BlockReduce(own, op, (thread.parallel,), before))
        out.append(Compute(base, _BOTH[op], (step.acc, before), dtype))
        out.append(Accumulate(step.acc, op, own))
        here = Local(f"{step.acc.name}_here", dtype)
        back: list[Stmt] = [
            *again,
            *(Load(x, b, lane) for b, x in zip(arrays[1:], kept, strict=True)),
            Load(here, run, lane),
            Compute(step.running, _BOTH[op], (base, here), dtype),
        ]
        rest = [*back, *second]
        if any(_of(x, thread.var) for x in walk(tuple(second))):
            return [*out, *self.phases(thread, lanes, rest)]
        return [*out, *_in_lane_loop(lanes, rest)]


def _single_steps(body: Sequence[Stmt], var: str) -> tuple[dict[str, Loop], tuple[Stmt, ...]]:
    """The loops of one step around scans along ``var``, which may stand anywhere, and the statements without them."""
    found: dict[str, Loop] = {}
    made: list[Stmt] = []
    for s in body:
        if not isinstance(s, (Loop, *_WRAPPERS)) or not any(_of(x, var) for x in walk(s.body)):
            made.append(s)
            continue
        more, inner = _single_steps(s.body, var)
        if isinstance(s, Loop) and s.extent == 1:
            found[s.var] = s
            made += inner
        else:
            made.append(replace(s, body=inner))
        found |= more
    return found, tuple(made)


def _in_lane_loop(lanes: Loop | None, body: Sequence[Stmt]) -> list[Stmt]:
    return list(body) if lanes is None else [replace(lanes, body=tuple(body))]


def _split(body: Sequence[Stmt], var: str) -> tuple[list[Stmt], Accumulate, list[Stmt], int]:
    """The statements before the first scan along ``var`` and those after it, each under the tests around it, and the
    number of these tests: the last statements before it, inside each other."""
    at = next(n for n, s in enumerate(body) if any(_of(x, var) for x in walk((s,))))
    s = body[at]
    if isinstance(s, Accumulate):
        return [*body[:at]], s, [*body[at + 1 :]], 0
    if not isinstance(s, _WRAPPERS):
        raise EmitError(f"a scan on threads stands in a {type(s).__name__}")
    first, step, second, tests = _split(s.body, var)
    tail = [replace(s, body=tuple(second))] if second else []
    return [*body[:at], replace(s, body=tuple(first))], step, [*tail, *body[at + 1 :]], tests + 1


def _is_independent(first: Sequence[Stmt], second: Sequence[Stmt], lanes: Loop | None) -> bool:
    """Whether the loops of ``first`` leave nothing to ``second`` but elements of arrays that both see."""
    loops = tuple(x for x in walk(tuple(first)) if isinstance(x, Loop))
    if not loops:
        return True
    added = {x.name for s in walk(loops) for x in updates(s)}
    own = {s.buffer.name for s in walk(tuple(first)) if isinstance(s, Alloc)}
    return added.isdisjoint(all_reads(second)) and (lanes is None or own.isdisjoint(loaded_in(second)))


def _ended(first: Sequence[Stmt], tests: int, into: Sequence[Stmt]) -> list[Stmt]:
    """``first`` with ``into`` at its end, inside the last ``tests`` tests."""
    if tests:
        last = first[-1]
        return [*first[:-1], replace(last, body=tuple(_ended(bodies(last), tests - 1, into)))]
    return [*first, *into]


def _crossing(first: Sequence[Stmt], second: Sequence[Stmt]) -> tuple[list[Local], list[Stmt]]:
    """(variables that ``first`` computes and ``second`` reads, declarations that ``second`` needs again)."""
    wanted = all_reads(second)
    declared = [s for s in walk(tuple(first)) if isinstance(s, InitAccumulator) and {s.name} & (wanted | _set(second))]
    found: dict[str, Local] = {}
    for s in walk(tuple(first)):
        if isinstance(s, (InitAccumulator, Comment, Loop)):
            continue
        for x in defs(s):
            if x.name in wanted and x.at is None:
                found[x.name] = x
    return [*found.values()], [*declared]


def _zero(dtype: DType) -> Scalar:
    return False if dtype == "bool" else 0.0 if is_float(dtype) else 0


def _set(body: Sequence[Stmt]) -> frozenset[str]:
    return frozenset(n for s in walk(tuple(body)) for n in sets(s))
