"""Operations that move data: new and dropped axes, permutation, reshape, and the resizes slice, pad, cat, roll, flip.

Each makes root axes that the operand maps to, and domain expressions from root to logical that say the movement.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from idgraph.arith import Expr, as_expr, ceildiv, is_true, simplify
from idgraph.errors import OperationError, short_repr
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attrs, AxisRead, Fixed, Mapped
from idgraph.ir.dtypes import check_dtype, is_float, promote
from idgraph.ir.fusion import Fusion, Operands, Tensor
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Resize, Roll, Stride, TensorDomain
from idgraph.ir.op_builders import check_axis, flat_domain, int_tuple, one_tensor, read_of, same_extent
from idgraph.ir.op_table import primitive
from idgraph.ir.verifier import LARGEST


def moved_domain(
    root: Sequence[IterDomain], logical: Sequence[IterDomain], exprs: Sequence[DomainExpr] = ()
) -> TensorDomain:
    """A tensor domain whose root and logical axes differ; loops and memory follow the logical axes."""
    own = tuple(logical)
    kept = tuple(d for d in own if d.kind != "reduction")
    return TensorDomain(tuple(root), own, kept, own, (None,) * len(kept), tuple(exprs))


def define(expr: DomainExpr, *outputs: IterDomain) -> DomainExpr:
    """Record ``expr`` as (one more) definition of ``outputs``."""
    for d in outputs:
        d.definitions = (*d.definitions, expr)
    return expr


def expr_tuple(attrs: Attrs, key: str) -> tuple[Expr, ...]:
    """An attribute that is a tuple of ints or integer expressions."""
    value = attrs.get(key)
    if isinstance(value, tuple):
        found = tuple(as_expr(v) for v in value if isinstance(v, (int, Expr)) and not isinstance(v, bool))
        if len(found) == len(value):
            return found
    raise OperationError(f"attribute {key} is {value!r}, not a tuple of integer expressions")


def _copy_axes(fusion: Fusion, x: Tensor) -> list[IterDomain]:
    return [fusion.new_domain(d.extent) for d in x.axes]


@primitive("unsqueeze")
def build_unsqueeze(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``unsqueeze(x; dims)``: new axes of extent 1 at these positions of the result."""
    (x,) = one_tensor(args)
    dims = int_tuple(attrs, "dims")
    places = {check_axis(x, d, len(dims)) for d in dims}
    if len(places) != len(dims):
        raise OperationError(f"positions {dims} name one axis of the result of {x.name} twice")
    mapped = iter(_copy_axes(fusion, x))
    kept: list[AxisRead] = []
    logical: list[IterDomain] = []
    for p in range(x.ndim + len(dims)):
        if p in places:
            logical.append(fusion.new_domain(1))
        else:
            d = next(mapped)
            logical.append(d)
            kept.append(Mapped(d))
    return fusion.emit("unsqueeze", args, dict(attrs), [kept], x.dtype, moved_domain(logical, logical), name)


@primitive("squeeze")
def build_squeeze(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``squeeze(x; dims)``: drop these axes of extent 1."""
    (x,) = one_tensor(args)
    dims = {check_axis(x, d) for d in int_tuple(attrs, "dims")}
    for p in dims:
        if not x.axes[p].is_broadcast:
            raise OperationError(
                f"axis {p} of {x.name} has extent {x.axes[p].extent}, only an axis of extent 1 can be dropped",
                hint=f"{x.name} has shape {shape_text(x)}; use {x.name}[..., i, ...] to select one index",
            )
    reads: list[AxisRead] = []
    logical: list[IterDomain] = []
    for p, d in enumerate(x.axes):
        if p in dims:
            reads.append(Fixed(as_expr(0), "squeeze"))
        else:
            logical.append(fusion.new_domain(d.extent))
            reads.append(Mapped(logical[-1]))
    return fusion.emit("squeeze", args, dict(attrs), [reads], x.dtype, moved_domain(logical, logical), name)


@primitive("expand")
def build_expand(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``expand(x; shape)``: axes of extent 1 are repeated; -1 keeps an extent; new axes may stand in front."""
    (x,) = one_tensor(args)
    shape = expr_tuple(attrs, "shape")
    lead = len(shape) - x.ndim
    if lead < 0:
        raise OperationError(f"{x.name} has {x.ndim} axes, the shape asked for has {len(shape)}")
    reads: list[AxisRead] = []
    logical: list[IterDomain] = []
    for p, wanted in enumerate(shape):
        if p < lead:
            logical.append(fusion.new_domain(fusion.extent("expand", p, int_if_constant(wanted))))
            continue
        d = x.axes[p - lead]
        extent = d.extent if wanted == -1 else fusion.extent("expand", p, int_if_constant(wanted))
        if not d.is_broadcast and not same_extent(extent, d.extent):
            raise OperationError(
                f"axis {p - lead} of {x.name} has extent {d.extent} and cannot become {extent}",
                hint="only an axis of extent 1 expands",
            )
        logical.append(fusion.new_domain(extent))
        reads.append(read_of(d, logical[-1]))
    return fusion.emit("expand", args, dict(attrs), [reads], x.dtype, moved_domain(logical, logical), name)


def int_if_constant(e: Expr) -> int | Expr:
    """A constant as a number."""
    return int(e) if e.is_const else e


@primitive("permute")
def build_permute(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``permute(x; dims)``: axis p of the result is axis dims[p] of x."""
    (x,) = one_tensor(args)
    dims = [check_axis(x, d) for d in int_tuple(attrs, "dims")]
    if sorted(dims) != list(range(x.ndim)):
        raise OperationError(
            f"dims {tuple(dims)} are not a permutation of the {x.ndim} axes of {x.name}",
            hint=f"each of 0 to {x.ndim - 1} once" if x.ndim else "no dims: it has no axes",
        )
    root = _copy_axes(fusion, x)
    domain = moved_domain(root, [root[d] for d in dims])
    return fusion.emit("permute", args, dict(attrs), [[Mapped(d) for d in root]], x.dtype, domain, name)


def _slice_axis(
    fusion: Fusion, source: IterDomain, start: Expr, stop: Expr, step: int
) -> tuple[IterDomain, DomainExpr | None]:
    """The axis ``source[start:stop:step]`` and the expression that makes it (None where it is the whole axis)."""
    extent = simplify(ceildiv(stop - start, as_expr(step)) if step > 0 else ceildiv(start - stop, as_expr(-step)))
    if step == 1:
        right = simplify(stop - source.extent)
        if start == 0 and right == 0:
            return source, None
        out = fusion.new_domain(extent)
        return out, define(Resize(source, out, simplify(-start), right), out)
    out = fusion.new_domain(extent)
    return out, define(Stride(source, out, start, as_expr(step)), out)


@primitive("slice")
def build_slice(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``slice(x; dims, starts, stops, steps)``: bounds already resolved, 0 <= start <= stop <= extent for step > 0.

    A negative step runs from ``start`` down to, without, ``stop`` (-1 for the front).
    """
    (x,) = one_tensor(args)
    dims = [check_axis(x, d) for d in int_tuple(attrs, "dims")]
    starts, stops, steps = expr_tuple(attrs, "starts"), expr_tuple(attrs, "stops"), int_tuple(attrs, "steps")
    if not len(dims) == len(starts) == len(stops) == len(steps) or len(set(dims)) != len(dims):
        raise OperationError("dims, starts, stops and steps must name each axis once and have one length")
    root = _copy_axes(fusion, x)
    logical, exprs = list(root), list[DomainExpr]()
    for d, start, stop, step in zip(dims, starts, stops, steps, strict=True):
        n = root[d].extent
        inside = (
            is_true(start >= 0) and is_true(start <= stop) and is_true(stop <= n) if step > 0
            else (is_true(stop >= -1) and is_true(stop <= start) and is_true(start < n)) or is_true(start.eq(stop))
        )  # fmt: skip
        if step == 0 or not inside:
            raise OperationError(
                f"axis {d} of {x.name} has extent {n}; [{start}:{stop}:{step}] is not provably inside it",
                hint="bounds are elements; give symbols the min, max and multiple_of that make it true",
            )
        logical[d], made = _slice_axis(fusion, root[d], start, stop, step)
        if made is not None:
            exprs.append(made)
    return fusion.emit(
        "slice", args, dict(attrs), [[Mapped(d) for d in root]], x.dtype, moved_domain(root, logical, exprs), name
    )


@primitive("select")
def build_select(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``select(x; dim, index)``: one index of an axis, which is dropped."""
    (x,) = one_tensor(args)
    dim = check_axis(x, attrs.get("dim"))
    (index,) = expr_tuple({"index": (attrs.get("index"),)}, "index")
    n = x.axes[dim].extent
    if not (is_true(index >= 0) and is_true(index < n)):
        raise OperationError(
            f"index {index} is not provably inside axis {dim} of {x.name}, of extent {n}",
            hint=f"0 to {simplify(n - 1)}, or -1 and below from the end",
        )
    reads: list[AxisRead] = []
    logical: list[IterDomain] = []
    for p, d in enumerate(x.axes):
        if p == dim:
            reads.append(Fixed(index, "select"))
        else:
            logical.append(fusion.new_domain(d.extent))
            reads.append(Mapped(logical[-1]))
    return fusion.emit("select", args, dict(attrs), [reads], x.dtype, moved_domain(logical, logical), name)


@primitive("pad")
def build_pad(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``pad(x; left, right, value)``: for each axis, elements added in front and behind (negative: cut)."""
    (x,) = one_tensor(args)
    left, right = expr_tuple(attrs, "left"), expr_tuple(attrs, "right")
    value = attrs.get("value")
    if not isinstance(value, (bool, int, float)):
        raise OperationError(f"fill value {value!r} is not a number")
    if len(left) != x.ndim or len(right) != x.ndim:
        raise OperationError(f"{x.name} has {x.ndim} axes, got {len(left)} left and {len(right)} right pads")
    root = _copy_axes(fusion, x)
    logical, exprs = list(root), list[DomainExpr]()
    for p, (l, r) in enumerate(zip(left, right, strict=True)):  # noqa: E741 - left and right
        if l == 0 and r == 0:
            continue
        n = root[p].extent
        extent = simplify(n + l + r)
        if not (is_true(n + l >= 0) and is_true(n + r >= 0) and is_true(extent >= 0)):
            raise OperationError(
                f"pads ({l}, {r}) cut more of axis {p} of {x.name} than its extent {n}",
                hint="a negative pad may be as long as the axis, no longer",
            )
        out = fusion.new_domain(extent)
        exprs.append(define(Resize(root[p], out, l, r), out))
        logical[p] = out
    return fusion.emit(
        "pad", args, dict(attrs), [[Mapped(d) for d in root]], x.dtype, moved_domain(root, logical, exprs), name
    )


@primitive("flip")
def build_flip(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``flip(x; dims)``: these axes backwards."""
    (x,) = one_tensor(args)
    root = _copy_axes(fusion, x)
    logical, exprs = list(root), list[DomainExpr]()
    for d in {check_axis(x, d) for d in int_tuple(attrs, "dims")}:
        if root[d].is_broadcast:
            continue
        out = fusion.new_domain(root[d].extent)
        exprs.append(define(Stride(root[d], out, simplify(root[d].extent - 1), as_expr(-1)), out))
        logical[d] = out
    return fusion.emit(
        "flip", args, dict(attrs), [[Mapped(d) for d in root]], x.dtype, moved_domain(root, logical, exprs), name
    )


@primitive("roll")
def build_roll(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``roll(x; shifts, dims)``: element c of an axis goes to (c + shift) mod extent."""
    (x,) = one_tensor(args)
    shifts, dims = expr_tuple(attrs, "shifts"), [check_axis(x, d) for d in int_tuple(attrs, "dims")]
    if len(shifts) != len(dims) or len(set(dims)) != len(dims):
        raise OperationError(f"{len(shifts)} shifts for axes {tuple(dims)} of {x.name}: each axis once, one shift each")
    root = _copy_axes(fusion, x)
    logical, exprs = list(root), list[DomainExpr]()
    for d, shift in zip(dims, shifts, strict=True):
        n = root[d].extent
        turn = shift if n == 0 else simplify(shift % n)
        if root[d].is_broadcast or n == 0 or turn == 0:
            continue
        out = fusion.new_domain(n)
        exprs.append(define(Roll(root[d], out, turn), out))
        logical[d] = out
    return fusion.emit(
        "roll", args, dict(attrs), [[Mapped(d) for d in root]], x.dtype, moved_domain(root, logical, exprs), name
    )


@primitive("cat")
def build_cat(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``cat(a, b, ...; dim)``: operand k has a root axis of its own, resized into the joined axis."""
    parts = one_tensor(args, max(1, len(args)))
    first = parts[0]
    dim = check_axis(first, attrs.get("dim"))
    for k, t in enumerate(parts):
        if t.ndim != first.ndim:
            raise OperationError(
                f"operand {k}, {t.name}, has {t.ndim} axes, {first.name} has {first.ndim}",
                hint=f"unsqueeze or reshape {t.name if t.ndim < first.ndim else first.name} first",
            )
        for p in range(first.ndim):
            if p != dim and not same_extent(t.axes[p].extent, first.axes[p].extent):
                raise OperationError(
                    f"axis {p} of {t.name} has extent {t.axes[p].extent}, axis {p} of {first.name} has "
                    f"{first.axes[p].extent}: only axis {dim} may differ",
                    because=[f"{u.name} has shape {shape_text(u)}" for u in (first, t)],
                    hint="pad, slice or expand the shorter one",
                )
    shared = _copy_axes(fusion, first)
    total = as_expr(0)
    for t in parts:
        total = simplify(total + t.axes[dim].extent)
    joined = fusion.new_domain(total)
    exprs: list[DomainExpr] = []
    reads: list[list[AxisRead]] = []
    left = as_expr(0)
    for t in parts:
        n = t.axes[dim].extent
        own = joined
        if len(parts) > 1:
            own = fusion.new_domain(n)
            exprs.append(define(Resize(own, joined, left, simplify(total - left - n)), joined))
        left = simplify(left + n)
        reads.append([Mapped(own if p == dim else d) for p, d in enumerate(shared)])
    logical = [joined if p == dim else d for p, d in enumerate(shared)]
    root = [r.domain for r in reads[0] if isinstance(r, Mapped)]
    dtype = promote([t.dtype for t in parts])
    return fusion.emit("cat", args, dict(attrs), reads, dtype, moved_domain(root, logical, exprs), name)


@primitive("slice_scatter")
def build_slice_scatter(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``slice_scatter(x, src; dim, start, stop, step)``: x with x[start:stop:step] along dim replaced by src."""
    x, src = one_tensor(args, 2)
    dim = check_axis(x, attrs.get("dim"))
    start, stop = expr_tuple({"v": (attrs.get("start"), attrs.get("stop"))}, "v")
    (step,) = int_tuple({"v": (attrs.get("step"),)}, "v")
    n = x.axes[dim].extent
    if not (step >= 1 and is_true(start >= 0) and is_true(start <= stop) and is_true(stop <= n)):
        raise OperationError(f"axis {dim} of {x.name} has extent {n}; [{start}:{stop}:{step}] is not inside it")
    wanted = [simplify(ceildiv(stop - start, as_expr(step))) if p == dim else d.extent for p, d in enumerate(x.axes)]
    if src.ndim != x.ndim or not all(same_extent(d.extent, w) for d, w in zip(src.axes, wanted, strict=True)):
        raise OperationError(
            f"{src.name} has shape {shape_text(src)}, the slice of {x.name} has shape ({', '.join(map(str, wanted))})"
        )
    logical = _copy_axes(fusion, x)
    own, exprs = logical[dim], list[DomainExpr]()
    if step == 1 and not (start == 0 and same_extent(stop, n)):
        own = fusion.new_domain(wanted[dim])
        exprs.append(define(Resize(own, logical[dim], start, simplify(n - stop)), logical[dim]))
    elif step != 1:
        own = fusion.new_domain(wanted[dim])
        exprs.append(define(Stride(logical[dim], own, start, as_expr(step)), own))
    reads = [[Mapped(d) for d in logical], [Mapped(own if p == dim else d) for p, d in enumerate(logical)]]
    return fusion.emit("slice_scatter", args, dict(attrs), reads, x.dtype, moved_domain(logical, logical, exprs), name)


@primitive("full")
def build_full(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``full(; shape, value, dtype)``."""
    extents = [fusion.extent("full", p, int(e) if e.is_const else e) for p, e in enumerate(expr_tuple(attrs, "shape"))]
    value = attrs.get("value")
    if not isinstance(value, (bool, int, float)) or args:
        raise OperationError(f"value {value!r} is not a number")
    axes = [fusion.new_domain(e) for e in extents]
    return fusion.emit("full", (), dict(attrs), [], check_dtype(attrs.get("dtype")), flat_domain(axes), name)


@primitive("iota")
def build_iota(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``iota(; n, start, step, dtype)``: element c is start + step * c."""
    (n,) = expr_tuple({"n": (attrs.get("n"),)}, "n")
    for key in ("start", "step"):
        value = attrs.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise OperationError(f"{key} {short_repr(value)} is not a number")
        if isinstance(value, float) and not isfinite(value):
            raise OperationError(f"{key} {value!r} is not finite")
        if isinstance(value, int) and not -LARGEST - 1 <= value <= LARGEST:
            raise OperationError(f"{key} {value} does not fit an int64")
        if isinstance(value, float) and not is_float(check_dtype(attrs.get("dtype"))):
            raise OperationError(f"{key} {value!r} is not an integer, and dtype is {attrs.get('dtype')}")
    if args:
        raise OperationError("takes no operand")
    start, step, last = attrs["start"], attrs["step"], 0
    if n.is_const and isinstance(start, int) and isinstance(step, int):
        last = start + step * max(int(n) - 1, 0)
    if not -LARGEST - 1 <= last <= LARGEST:
        raise OperationError(f"its last number, {last}, does not fit an int64")
    axes = [fusion.new_domain(fusion.extent("iota", 0, int(n) if n.is_const else n))]
    return fusion.emit("iota", (), dict(attrs), [], check_dtype(attrs.get("dtype")), flat_domain(axes), name)
