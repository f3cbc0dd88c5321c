"""Sums that follow a running maximum, as statements: around a chunk, and behind the sweep (online softmax)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from idgraph.arith import TRUE
from idgraph.ir import DType, is_float
from idgraph.kernel.def_use import all_reads
from idgraph.kernel.ir import Accumulate, BlockReduce, Compute, Constant, If, InitAccumulator, Local, Operand, Stmt
from idgraph.passes.rows.reduction_loop import FAR, OnlineRescaling, ReductionLoop
from idgraph.passes.rows.summation import is_short, widened


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
