"""Schedule steps: each rewrites the loop axes of one tensor and is logged, so that text can replay it.

signature, before -> after (loop extents):

    split(axis, f)         [E]      -> [ceil(E/f), f]
    split(axis, f, False)  [E]      -> [f, ceil(E/f)]
    merge(a, b)            [A, B]   -> [A*B]
    reorder({0: 1})        [A, B]   -> [B, A]
    swizzle(kind, x, y)    [X, Y]   -> [X, Y]       (y permuted by x)
    resize(axis, l, r)     [E]      -> [l + E + r]
    roll(axis, s)          [E]      -> [E]          (element c at (c + s) mod E)
    stride(axis, a, s, n)  [E]      -> [n]          (element a + s*c at c)

Long: one function for each schedule step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from idgraph.arith import Expr, as_expr, ceildiv, is_true, simplify
from idgraph.errors import ScheduleError, one_of, short_repr, user_line
from idgraph.ir.argument_resolution import is_int
from idgraph.ir.axis_read import Attr
from idgraph.ir.iter_domain import (
    PARALLEL,
    SWIZZLES,
    DomainExpr,
    IterDomain,
    Kind,
    Merge,
    Parallel,
    Resize,
    Roll,
    Split,
    Stride,
    Swizzle,
    SwizzleKind,
    is_one,
)
from idgraph.ir.op_table import WRITES
from idgraph.ir.protocols import TensorLike, axis_place, related
from idgraph.ir.reader_loops import LoopPlan, inserted, loop_plan
from idgraph.ir.schedule_log import NAMES, NO_CHOICES, NO_NAMES, NO_RULES, STEPS
from idgraph.ir.verifier import check_symbols


def checked_strides(
    name: str, domains: Sequence[IterDomain], flags: Sequence[bool], steps: Sequence[int]
) -> tuple[int, ...]:
    """Strides in elements, outermost first: as many as axes, and so large that no two elements share an address.

    >>> import idgraph as ig
    >>> t = ig.Fusion("f").input("x", shape=(4, 6))
    >>> checked_strides("x", t.logical, (True, True), [8, 1])
    (8, 1)
    """
    whole = isinstance(steps, (list, tuple)) and all(type(s) is int for s in steps)
    fault = (
        "strides are one whole number for each axis" if not whole or len(steps) != len(domains)
        else "strides are given for axes that are not contiguous" if not all(flags)
        else "strides are given for axes whose size is a symbol" if not all(d.extent.is_const for d in domains)
        else ""
    )  # fmt: skip
    inside = 1
    for d, step in zip(reversed(domains), reversed(steps), strict=False) if not fault else ():
        if step < inside and d.extent != 1:
            fault = f"stride {step} of {d.label} is less than the {inside} elements inside"
        inside = max(inside, step * int(d.extent))
    if fault:
        raise ScheduleError(f"set_allocation: {name}: {fault}", where=user_line(), hint="strides=None: no gaps")
    return tuple(steps)


def _normalize_loop_axis(tensor: TensorLike, axis: int, step: str) -> int:
    count = len(tensor.loop)
    if not is_int(axis) or not -count <= axis < count:
        raise ScheduleError(
            f"{step}: tensor {tensor.name} has no loop axis {axis!r}",
            where=user_line(),
            hint=f"its loop axes are {', '.join(map(repr, tensor.loop)) or '(none)'}, numbered 0 to {count - 1}",
        )
    return axis % count


def _amount(tensor: TensorLike, value: object, step: str) -> Expr:
    """A size or distance given to a step: an int or an integer expression."""
    if isinstance(value, Expr) and not value.is_condition:
        if value.is_const:  # as of a step that is replayed
            return value
        value = tensor.fusion.in_symbols(value)
        check_symbols(f"{step} of tensor {tensor.name}", (value,), tensor.fusion.symbols, tensor.fusion.name)
        return value
    if not is_int(value):
        raise ScheduleError(
            f"{step}: {short_repr(value)} for tensor {tensor.name} is neither an int nor an integer expression",
            hint="an int (n // 2, not n / 2), or an expression of this fusion's symbols",
            where=user_line(),
        )
    return as_expr(value)


def _domains(tensor: TensorLike, values: object, step: str) -> list[IterDomain]:
    """A list of axes given to a step."""
    given = cast("Sequence[object]", values) if isinstance(values, (list, tuple)) else (values,)
    found = [d for d in given if isinstance(d, IterDomain)]
    if len(found) != len(given):
        raise ScheduleError(
            f"{step}: {values!r} are not all axes of tensor {tensor.name}",
            where=user_line(),
            hint=f"axes are objects: {tensor.name}.loop, {tensor.name}.logical, ...",
        )
    return found


def log_step(tensor: TensorLike, name: str, *args: Attr, **kwargs: Attr) -> None:
    """Note a step that was taken, for the text form. What a rule decided for other loops is forgotten."""
    if tensor.ruled and name not in STEPS:
        tensor.ruled = NO_RULES
        tensor.forget("by_rule")
    tensor.note_step(name, args, kwargs or NO_NAMES, user_line())
    tensor.fusion.touch()


def result_kind(sources: Iterable[IterDomain], extent: Expr) -> Kind:
    """The kind of an axis made of others: a reduction stays one; broadcasts only: stays a broadcast; else iteration."""
    kinds = {d.kind for d in sources}
    if "reduction" in kinds:
        return "reduction"
    if kinds == {"broadcast"}:
        return "broadcast"
    return "broadcast" if is_one(extent) and kinds <= {"broadcast", "iteration"} else "iteration"


def _mixed_reduction(tensor: TensorLike, step: str, domains: Sequence[IterDomain]) -> None:
    reduced = {d.kind == "reduction" for d in domains}
    if len(reduced) > 1:
        names = ", ".join(d.label for d in domains)
        raise ScheduleError(
            f"{step}: {names} of tensor {tensor.name}: a reduced and a kept axis cannot become one loop",
            where=user_line(),
            hint="merge reduced axes with each other only",
        )


def part_count(extent: Expr, size: Expr) -> Expr:
    """The number of parts of ``size`` (at least 1) that cover an axis, the last perhaps in part.

    Half of an even symbol covers it in two parts, which no general rule for rounded division proves.

    >>> import idgraph as ig
    >>> n = ig.Fusion("f").symbol("n", min=2, multiple_of=2)
    >>> part_count(n, n // 2), part_count(n, ig.simplify("5"))
    (2, (n + 4)//5)
    """
    if size.op == "floordiv" and size.args[1].is_const and simplify(size * size.args[1] - extent) == 0:
        return size.args[1]
    return simplify(ceildiv(extent, size))


def split_like(tensor: TensorLike, at: int, known: Split) -> None:
    """Split loop ``at`` as ``known`` splits another axis; of an axis of the same extent the parts are known."""
    source = tensor.loop[at]
    if source.extent != known.source.extent:
        split(tensor, at, known.factor, known.inner_split)
    else:
        _split(tensor, at, known.factor, (known.outer.extent, known.inner.extent), known.inner_split)


def split_parts(tensor: TensorLike, at: int, outer: Expr, inner: Expr) -> None:
    """Split loop ``at``, of ``outer`` times ``inner`` steps, into those two."""
    _split(tensor, at, inner, (outer, inner), True)


def split(tensor: TensorLike, axis: int, factor: int | Expr, inner: bool) -> None:
    """See `Tensor.split`."""
    at = _normalize_loop_axis(tensor, axis, "split")
    source = tensor.loop[at]
    size = _amount(tensor, factor, "split")
    if not is_true(size >= 1):
        number = size.is_const
        raise ScheduleError(
            f"split: factor {factor} of axis {source.label} is not {'' if number else 'provably '}positive",
            where=user_line(),
            hint="1 or more" if number else "give the symbol min=1",
        )
    rest = part_count(source.extent, size)
    _split(tensor, at, size, (rest, size) if inner else (size, rest), inner)


def _split(tensor: TensorLike, at: int, size: Expr, extents: tuple[Expr, Expr], inner: bool) -> None:
    source, fusion = tensor.loop[at], tensor.fusion
    outer, within = (fusion.new_domain(n, source.kind, tensor) for n in extents)
    expr = Split(source, outer, within, size, inner, user_line())
    outer.definitions = within.definitions = (expr,)
    _replace(tensor, expr, [*tensor.loop[:at], outer, within, *tensor.loop[at + 1 :]])
    given = int(size) if size.is_const else size
    log_step(tensor, "split", at, given, **({} if inner else {"inner": False}))


def merge(tensor: TensorLike, axis: int, other: int | None) -> None:
    """See `Tensor.merge`."""
    at = _normalize_loop_axis(tensor, axis, "merge")
    if other is None or other == len(tensor.loop):
        raise ScheduleError(
            f"merge: axis {at} of tensor {tensor.name} is its last loop axis and has no next one",
            where=user_line(),
            hint="name the other axis: merge(outer, inner)",
        )
    to = _normalize_loop_axis(tensor, other, "merge")
    if at == to:
        raise ScheduleError(f"merge: axis {at} of tensor {tensor.name} with itself", where=user_line())
    a, b = tensor.loop[at], tensor.loop[to]
    _mixed_reduction(tensor, "merge", (a, b))
    extent = simplify(a.extent * b.extent)
    out = tensor.fusion.new_domain(extent, result_kind((a, b), extent), tensor)
    expr = Merge(a, b, out, user_line())
    out.definitions = (expr,)
    rest = [d for d in tensor.loop if d is not a and d is not b]
    rest.insert(min(at, to), out)
    _replace(tensor, expr, rest)
    log_step(tensor, "merge", at, to)


def reorder(tensor: TensorLike, order: Mapping[int, int] | Sequence[int]) -> None:
    """See `Tensor.reorder`."""
    count = len(tensor.loop)
    if not isinstance(order, (Mapping, list, tuple)):
        raise ScheduleError(
            f"reorder: {order!r} is neither {{old: new}} nor a list of old positions", where=user_line()
        )
    pairs = dict(order) if isinstance(order, Mapping) else {old: new for new, old in enumerate(order)}
    if not isinstance(order, Mapping) and len(order) != count:
        raise ScheduleError(
            f"reorder: tensor {tensor.name} has {count} loop axes, the list names {len(order)}", where=user_line()
        )
    moves = {
        _normalize_loop_axis(tensor, old, "reorder"): _normalize_loop_axis(tensor, new, "reorder")
        for old, new in pairs.items()
    }
    if len(moves) != len(pairs) or len(set(moves.values())) != len(moves):
        raise ScheduleError(
            f"reorder: {pairs} of tensor {tensor.name} names an axis or a position twice", where=user_line()
        )
    rest = iter([p for p in range(count) if p not in moves])
    old_of = {new: old for old, new in moves.items()}
    result = [tensor.loop[old_of[p] if p in old_of else next(rest)] for p in range(count)]
    tensor.domain.loop = tuple(result)
    log_step(tensor, "reorder", tuple((o, n) for o, n in sorted(moves.items())))


def swizzle(tensor: TensorLike, kind: str, x: int, y: int) -> None:
    """See `Tensor.swizzle`."""
    at_x, at_y = _normalize_loop_axis(tensor, x, "swizzle"), _normalize_loop_axis(tensor, y, "swizzle")
    a, b = tensor.loop[at_x], tensor.loop[at_y]
    known: SwizzleKind | None = next((k for k in SWIZZLES if k == kind), None)
    if known is None:
        raise ScheduleError(f"swizzle: unknown kind {kind!r}", where=user_line(), hint=one_of(kind, SWIZZLES))
    if at_x == at_y:
        raise ScheduleError(f"swizzle: axis {a.label} with itself", where=user_line())
    _mixed_reduction(tensor, "swizzle", (a, b))
    if known == "xor" and not xor_stays_inside(a, b):
        raise ScheduleError(
            f"swizzle: xor of {a.label} (extent {a.extent}) into {b.label} (extent {b.extent}) leaves the axis",
            where=user_line(),
            because=["y ^ x stays below y's extent only for a power of two not smaller than x's extent"],
            hint='split to a power of two first, or use kind "cyclic"',
        )
    out_x = tensor.fusion.new_domain(a.extent, a.kind, tensor)
    # A broadcast axis turned by an iteration axis is not a broadcast: its coordinate is not 0.
    out_y = tensor.fusion.new_domain(b.extent, result_kind((a, b), b.extent), tensor)
    expr = Swizzle(a, b, out_x, out_y, known, user_line())
    out_x.definitions = out_y.definitions = (expr,)
    _replace(tensor, expr, [out_x if d is a else out_y if d is b else d for d in tensor.loop])
    log_step(tensor, "swizzle", known, at_x, at_y)


def xor_stays_inside(x: IterDomain, y: IterDomain) -> bool:
    """Whether ``y ^ x`` is a coordinate of ``y`` for all coordinates of both."""
    size = int(y.extent) if y.extent.is_const else 0
    return size > 0 and not size & (size - 1) and is_true(x.extent <= y.extent)


def resize(tensor: TensorLike, axis: int, left: int | Expr, right: int | Expr) -> None:
    """See `Tensor.resize`."""
    at = _normalize_loop_axis(tensor, axis, "resize")
    source = tensor.loop[at]
    left, right = (int(a) if a.is_const else a for a in (_amount(tensor, a, "resize") for a in (left, right)))
    extent = simplify(source.extent + left + right)
    fits = is_true(extent >= 0) and is_true(source.extent + left >= 0) and is_true(source.extent + right >= 0)
    if not fits:
        raise ScheduleError(
            f"resize: ({left}, {right}) cuts more of axis {source.label} of tensor {tensor.name} than its extent "
            f"{source.extent}",
            where=user_line(),
            hint="a cut may be as long as the axis, no longer",
        )
    kind: Kind = "reduction" if source.kind == "reduction" else "broadcast" if is_one(extent) else "iteration"
    out = tensor.fusion.new_domain(extent, kind, tensor)
    expr = Resize(source, out, as_expr(left), as_expr(right), user_line())
    out.definitions = (expr,)
    _replace(tensor, expr, [out if d is source else d for d in tensor.loop])
    log_step(tensor, "resize", at, left, right)


def roll(tensor: TensorLike, axis: int, shift: int | Expr) -> None:
    """See `Tensor.roll`."""
    at, amount = _normalize_loop_axis(tensor, axis, "roll"), _amount(tensor, shift, "roll")
    source = tensor.loop[at]
    out = tensor.fusion.new_domain(source.extent, source.kind, tensor)
    expr = Roll(source, out, amount, user_line())
    out.definitions = (expr,)
    _replace(tensor, expr, [out if d is source else d for d in tensor.loop])
    log_step(tensor, "roll", at, shift)


def stride(tensor: TensorLike, axis: int, start: int | Expr, step: int, extent: int | Expr) -> None:
    """See `Tensor.stride`."""
    at = _normalize_loop_axis(tensor, axis, "stride")
    source = tensor.loop[at]
    size, first = _amount(tensor, extent, "stride"), _amount(tensor, start, "stride")
    last = simplify(first + (size - 1) * _amount(tensor, step, "stride"))
    inside = all(is_true(x >= 0) and is_true(x < source.extent) for x in (first, last)) and is_true(size >= 1)
    if not is_int(step) or step == 0 or not (inside or size == 0):
        raise ScheduleError(
            f"stride: {start} + {step} * c for {extent} elements is not inside axis {source.label} of tensor "
            f"{tensor.name}, of extent {source.extent}",
            where=user_line(),
        )
    out = tensor.fusion.new_domain(size, source.kind if source.kind == "reduction" else None, tensor)
    expr = Stride(source, out, first, as_expr(step), user_line())
    out.definitions = (expr,)
    _replace(tensor, expr, [out if d is source else d for d in tensor.loop])
    log_step(tensor, "stride", at, start, step, extent)


def iterated(tensor: TensorLike) -> tuple[IterDomain, ...]:
    """The axes that loops run over before any step: the logical ones; the root ones where loaded
    numbers say what is written (those of the index, or of the rows)."""
    e = tensor.definition
    return tensor.root if e is not None and e.op in WRITES else tensor.logical


def reset(tensor: TensorLike) -> None:
    """Forget every loop step: the loops are the logical axes (a scatter's root axes) again, serial and not inlined.

    Choices beside loops stay if the user made them, not a scheduler.
    """
    domain = tensor.domain
    domain.loop_exprs.clear()
    domain.loop = iterated(tensor)
    for d in domain.loop:
        d.parallel = "serial"
    tensor.inline_position = 0
    tensor.ruled = NO_RULES
    kept = {"set_memory", "set_allocation"}
    if domain.allocation is not domain.logical and not set(domain.allocation).issubset(domain.logical):
        domain.allocation = tensor.axes  # memory followed axes that are gone
        domain.strides = (None,) * len(tensor.axes)
        kept = {"set_memory"}
    if tensor.choices is not NO_CHOICES:
        made = {s.name: s.args[0] for s in tensor.log if s.name in NAMES and "by" not in s.kwargs}
        tensor.choices = NO_CHOICES.but(**made) if made else NO_CHOICES
        kept.update(made)
    tensor.keep_last(kept)
    tensor.fusion.touch()


_WAYS: Mapping[str, Parallel] = {p: p for p in PARALLEL}


def parallelize(tensor: TensorLike, axis: int, parallel: str, strict: bool = False) -> None:
    """See `Tensor.parallelize`."""
    at = _normalize_loop_axis(tensor, axis, "parallelize")
    known = _WAYS.get(parallel) if isinstance(parallel, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if known is None:
        raise ScheduleError(
            f"parallelize: unknown parallel type {parallel!r} for {tensor.loop[at].label}",
            where=user_line(),
            hint=one_of(parallel, PARALLEL),
        )
    taken = [d for p, d in enumerate(tensor.loop) if p != at and d.parallel == known]
    if taken and known not in ("serial", "unroll"):
        raise ScheduleError(
            f"parallelize: two loop axes of tensor {tensor.name} on {known}: {taken[0].label} and "
            f"{tensor.loop[at].label}",
            where=user_line(),
            hint="merge the two axes first, or use another dimension",
        )
    if strict and known != "vectorize":
        raise ScheduleError(
            f"parallelize: strict is of vector widths, and {tensor.loop[at].label} runs on {known}", where=user_line()
        )
    tensor.loop[at].parallel = known
    log_step(tensor, "parallelize", at, known, **({"strict": True} if strict else {}))


def has_strict_width(tensor: TensorLike) -> bool:
    """Whether the vector loop of a tensor must have the width that it asks for, see `Tensor.vectorize`."""
    for step in reversed(tensor.log):
        if step.name == "row_loops":
            return False
        if step.name == "parallelize" and step.args[1:] == ("vectorize",):
            return step.kwargs.get("strict") is True
    return False


def parallelize_like(tensor: TensorLike, at: int, known: IterDomain) -> None:
    """Parallelize loop ``at`` as ``known`` is: of loops that are another tensor's no two take one way."""
    tensor.loop[at].parallel = known.parallel
    log_step(tensor, "parallelize", at, known.parallel)


def inline(tensor: TensorLike, position: int, *, past: bool = False, beside: bool = False) -> None:
    """See `Tensor.inline`, which gives the tensor loops ``beside`` those of its readers; ``past`` allows readers with
    fewer loops, which came or changed since a step was taken."""
    count = len(tensor.loop)
    if not is_int(position) or not -count - 1 <= position <= count:
        raise ScheduleError(
            f"inline: tensor {tensor.name} has {count} loop axes, position {position!r} is past them",
            where=user_line(),
            hint=f"0 to {count}",
        )
    at = position if position >= 0 else count + 1 + position
    if at and tensor.definition is None:
        raise ScheduleError(
            f"inline: {tensor.name} is an input of the fusion: it is read, not computed",
            where=user_line(),
            hint=f"inline a copy of it: c = ig.copy({tensor.name})",
        )
    for d in tensor.loop[:at]:
        if d.kind == "reduction":
            raise ScheduleError(
                f"inline: position {at} of tensor {tensor.name} is right of its reduced axis {d.name}",
                where=user_line(),
                because=["a consumer needs the finished reduction, so it cannot stand inside the reducing loop"],
                hint=f"reorder {d.name} to the right, or inline at most at {tensor.loop.index(d)}",
            )
    plan = loop_plan(tensor, at) if at and beside else None
    for use in tensor.uses if plan is None else ():
        consumer = use.output
        if len(consumer.loop) < at and not past:
            raise ScheduleError(
                f"inline: position {at} of tensor {tensor.name} is past its consumer {consumer.name}, which has "
                f"{len(consumer.loop)} loop axes",
                where=user_line(),
                because=[f"{use!r}" + (f" at {use.source_line}" if use.source_line else "")],
                hint=f"inline at most at {len(consumer.loop)}, or schedule {consumer.name} first",
            )
    if plan is not None:
        at = _take_loops(tensor, plan)
    tensor.inline_position = at
    log_step(tensor, "inline", at)
    if plan is not None and tensor.definition is not None:
        for p in dict.fromkeys(tensor.definition.inputs):
            if p.inline_position:  # what it shares with the loops as they are now
                inline(p, p.inline_position, beside=True)


def _take_loops(tensor: TensorLike, plan: LoopPlan) -> int:
    """Give a tensor the loops of one element that it needs in those of its readers; returns how many it shares."""
    splits, order = inserted(plan, len(tensor.loop))
    for at in splits:
        way = tensor.loop[at].parallel
        split(tensor, at, 1, inner=False)
        if way != "serial":
            parallelize(tensor, at + 1, way)
    if list(order) != sorted(order):
        reorder(tensor, order)
    return len(plan.shared)


def reachable(start: Iterable[IterDomain], exprs: Sequence[DomainExpr]) -> set[IterDomain]:
    """All axes whose coordinates follow from those of ``start`` through ``exprs``, in either direction."""
    known = set(start)
    pending = list(exprs)
    while True:
        rest: list[DomainExpr] = []
        for e in pending:
            if all(d in known for d in e.inputs):
                known.update(e.outputs)
            elif all(d in known for d in e.outputs):
                known.update(e.inputs)
            else:
                rest.append(e)
        if len(rest) == len(pending):
            return known
        pending = rest


def _check_cover(tensor: TensorLike, domains: Sequence[IterDomain], step: str) -> None:
    exprs = related(tensor)
    own = {d for e in exprs for d in (*e.inputs, *e.outputs)} | set(tensor.logical) | set(tensor.root)
    for d in domains:
        if d not in own:
            raise ScheduleError(
                f"{step}: {d.label} is not an axis of tensor {tensor.name}",
                where=user_line(),
                hint=f"axes: {', '.join(sorted(x.name for x in own))}",
            )
    if len(set(domains)) != len(domains):
        raise ScheduleError(f"{step}: an axis of tensor {tensor.name} is named twice", where=user_line())
    known = reachable(domains, exprs)
    loaded = [d for d in domains if d.kind == "gather_scatter"]
    if loaded:
        raise ScheduleError(
            f"{step}: {loaded[0].label} of tensor {tensor.name} is written at loaded indices, no loop runs over it",
            where=user_line(),
            hint=f"its loops run over {', '.join(map(repr, tensor.root))}",
        )
    missing = [d for d in iterated(tensor) if d not in known and not d.is_broadcast]
    if missing:
        raise ScheduleError(
            f"{step}: the axes {', '.join(map(repr, domains))} do not reach {missing[0].label} of tensor {tensor.name}",
            where=user_line(),
            hint="name axes whose splits, merges and resizes lead to every logical axis",
        )
    for d in domains:
        if d not in reachable(set(domains) - {d}, exprs):
            continue
        if is_one(d.extent):
            continue
        raise ScheduleError(
            f"{step}: {d.label} follows from the other axes named; tensor {tensor.name} would be covered twice",
            where=user_line(),
        )


def set_loop(tensor: TensorLike, domains: Sequence[IterDomain]) -> None:
    """See `Tensor.set_loop`."""
    domains = _domains(tensor, domains, "set_loop")
    _check_cover(tensor, domains, "set_loop")
    tensor.domain.loop = tuple(domains)
    log_step(tensor, "set_loop", tuple(axis_place(tensor, d) for d in domains))


def set_allocation(
    tensor: TensorLike,
    domains: Sequence[IterDomain],
    contiguity: Sequence[bool] | bool,
    steps: Sequence[int] | None = None,
) -> None:
    """See `Tensor.set_allocation`."""
    domains = [d for d in _domains(tensor, domains, "set_allocation") if d.kind != "reduction"]
    flags = (
        [contiguity] * len(domains)
        if isinstance(contiguity, bool)
        else [bool(c) for c in contiguity]
        if isinstance(contiguity, (list, tuple))
        else []
    )
    if len(flags) != len(domains):
        raise ScheduleError(
            f"set_allocation: {len(domains)} axes and {len(flags)} contiguity flags for tensor {tensor.name}",
            where=user_line(),
        )
    exprs = related(tensor)
    known = reachable(domains, exprs)
    missing = [d for d in tensor.axes if d not in known and not d.is_broadcast]
    own = {d for e in exprs for d in (*e.inputs, *e.outputs)} | set(tensor.logical)
    strange = [d for d in domains if d not in own]
    if missing or strange or len(set(domains)) != len(domains):
        fault = (
            f"{strange[0].label} is not an axis of it" if strange
            else f"{missing[0].label} does not follow from them" if missing
            else "an axis is named twice"
        )  # fmt: skip
        raise ScheduleError(
            f"set_allocation: {tensor.name}: {fault}",
            where=user_line(),
            hint=f"all of {tensor.name}.logical in any order, or of {tensor.name}.loop",
        )
    given = None if steps is None else checked_strides(tensor.name, domains, flags, steps)
    tensor.domain.allocation = tuple(domains)
    tensor.domain.strides = tensor.fusion.free_strides(tensor, flags) if given is None else tuple(map(as_expr, given))
    places = tuple(axis_place(tensor, d) for d in domains)
    log_step(tensor, "set_allocation", places, tuple(flags), *(() if given is None else (given,)))


def _replace(tensor: TensorLike, expr: DomainExpr, loop: Sequence[IterDomain]) -> None:
    tensor.domain.loop_exprs.append(expr)
    tensor.domain.loop = tuple(loop)
