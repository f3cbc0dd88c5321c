"""Reshape: axes of extent 1 come and go freely, the others are merged and split in the smallest aligned groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from idgraph.arith import Expr, as_expr, is_true, simplify, symbol
from idgraph.errors import OperationError
from idgraph.ir.argument_resolution import shape_text
from idgraph.ir.axis_read import Attr, Attrs, AxisRead, Fixed, Mapped
from idgraph.ir.fusion import Fusion, Operands, Tensor
from idgraph.ir.iter_domain import DomainExpr, IterDomain, Merge, Split, is_one
from idgraph.ir.op_builders import one_tensor, same_extent
from idgraph.ir.op_table import primitive
from idgraph.ir.view_builders import define, expr_tuple, moved_domain


def product(extents: Sequence[Expr]) -> Expr:
    """Number of elements."""
    total = as_expr(1)
    for e in extents:
        total = total * e
    return simplify(total)


def wanted_shape(fusion: Fusion, x: Tensor, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The shape asked for, with -1 inferred; raises where the number of elements differs."""
    total = product([d.extent for d in x.axes])
    free = [p for p, e in enumerate(shape) if e == -1]
    known = [fusion.extent("reshape", p, int(e) if e.is_const else e) for p, e in enumerate(shape) if e != -1]
    if len(free) > 1:
        raise OperationError("only one extent may be -1", hint="numbers for all others")
    if free:
        rest = product(known)
        if rest == 0:
            raise OperationError(f"-1 is ambiguous beside an extent of 0 ({x.name} has shape {shape_text(x)})")
        inferred = simplify(total // rest)
        if not same_extent(inferred * rest, total):
            raise OperationError(
                f"{x.name} has {total} elements, not a multiple of {rest}", hint=_divisible_hint(total, rest)
            )
        known.insert(free[0], inferred)
    elif not same_extent(product(known), total):
        raise OperationError(
            f"{x.name} has shape {shape_text(x)}, {total} elements; "
            f"({', '.join(map(str, known))}) has {product(known)}",
            hint="a reshape keeps the number of elements; -1 infers one extent",
        )
    return tuple(known)


_MOST_TRIED = 4096  # divisors of an extent that are tried for a hint


def _divisible_hint(total: Expr, rest: Expr) -> str:
    """The declaration of a symbol that makes ``rest`` divide ``total``, where one does."""
    number = abs(int(rest) if rest.is_const else rest.coef)
    if not 0 < number <= _MOST_TRIED:
        return ""
    for s in sorted(total.symbols, key=str):
        low, high, step, _ = s.symbol_bounds
        for count in (lcm(step, d) for d in range(2, number + 1) if number % d == 0):
            declared = {s: symbol(s.name, low, high, count)}
            if is_true((total.substitute(declared) % rest.substitute(declared)).eq(0)):
                return f'declare it so: {s} = f.symbol("{s}", ..., multiple_of={count})'
    return ""


def _sample(extents: Sequence[Expr], values: Mapping[str, int]) -> list[int]:
    """Extents at one made-up size: guides the grouping, decides nothing."""
    return [int(e.evaluate(values)) for e in extents]


def _sample_sizes(extents: Sequence[Expr]) -> dict[str, int]:
    values: dict[str, int] = {}
    for number, s in enumerate(sorted({s for e in extents for s in e.symbols}, key=str)):
        # Any value in range will do: large, and not a multiple of small factors by accident where that is allowed.
        bounds, guess = s.range, 1009 + 210 * number
        guess *= 840
        low = bounds.lo if bounds.lo is not None else 1
        high = bounds.hi if bounds.hi is not None else guess
        values[str(s)] = max(low, min(high, guess))
    return values


def groups(source: Sequence[Expr], target: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of source and target positions with equal products, left to right (no extent is 1)."""
    values = _sample_sizes([*source, *target])
    src, dst = _sample(source, values), _sample(target, values)
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        a, b = ([i] if i < len(source) else []), ([j] if j < len(target) else [])
        i, j = i + len(a), j + len(b)
        while True:
            left, right = product([source[p] for p in a]), product([target[p] for p in b])
            if same_extent(left, right):
                break
            size_a, size_b = 1, 1
            for p in a:
                size_a *= src[p]
            for p in b:
                size_b *= dst[p]
            if (size_a <= size_b or j == len(target)) and i < len(source):
                a.append(i)
                i += 1
            elif j < len(target):
                b.append(j)
                j += 1
            else:
                raise OperationError(f"extents {left} and {right} are not provably equal")
        found.append((a, b))
    return found


def axis_groups(source: Sequence[Expr], target: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """`groups` of axes of which some have one element; those are in no group.

    >>> from idgraph.arith import as_expr
    >>> axis_groups([as_expr(n) for n in (4, 1, 6)], [as_expr(n) for n in (4, 2, 1, 3)])
    [([0], [0]), ([2], [1, 3])]
    """
    a, b = ([p for p, n in enumerate(extents) if n != 1] for extents in (source, target))
    found = groups([source[p] for p in a], [target[p] for p in b])
    return [([a[p] for p in some], [b[p] for p in others]) for some, others in found]


def _regroup(
    fusion: Fusion, parts: Sequence[IterDomain], wanted: Sequence[Expr]
) -> tuple[list[IterDomain], list[DomainExpr]]:
    """Merge ``parts`` left to right, then split off the wanted extents from the right."""
    exprs: list[DomainExpr] = []
    whole = parts[0]
    for d in parts[1:]:
        out = fusion.new_domain(simplify(whole.extent * d.extent))
        exprs.append(define(Merge(whole, d, out), out))
        whole = out
    made: list[IterDomain] = []
    for k in range(len(wanted) - 1, 0, -1):
        outer, inner = fusion.new_domain(product(wanted[:k])), fusion.new_domain(wanted[k])
        exprs.append(define(Split(whole, outer, inner, wanted[k]), outer, inner))
        made.insert(0, inner)
        whole = outer
    return [whole, *made], exprs


@primitive("reshape")
def build_reshape(fusion: Fusion, args: Operands, attrs: Attrs, name: str | None) -> Tensor:
    """``reshape(x; shape)``: row-major order kept."""
    (x,) = one_tensor(args)
    shape = wanted_shape(fusion, x, expr_tuple(attrs, "shape"))
    fixed: dict[str, Attr] = {"shape": tuple(int(e) if e.is_const else e for e in shape)}
    if any(e == 0 for e in shape) or any(d.extent == 0 for d in x.axes):
        # No element, hence no coordinate to map.
        axes = [fusion.new_domain(e) for e in shape]
        empty: list[AxisRead] = [Fixed(as_expr(0), "empty") for _ in x.axes]
        return fusion.emit("reshape", args, fixed, [empty], x.dtype, moved_domain(axes, axes), name)
    reads: list[AxisRead] = []
    root: list[IterDomain] = []
    for d in x.axes:
        if d.is_broadcast:
            reads.append(Fixed(as_expr(0), "squeeze"))
        else:
            root.append(fusion.new_domain(d.extent))
            reads.append(Mapped(root[-1]))
    kept = [p for p, e in enumerate(shape) if not is_one(e)]
    logical: dict[int, IterDomain] = {}
    exprs: list[DomainExpr] = []
    for a, b in groups([d.extent for d in root], [shape[p] for p in kept]):
        if len(a) == 1 and len(b) == 1:
            logical[kept[b[0]]] = root[a[0]]
            continue
        made, steps = _regroup(fusion, [root[p] for p in a], [shape[kept[q]] for q in b])
        exprs += steps
        logical.update({kept[q]: d for q, d in zip(b, made, strict=True)})
    ones = {p: fusion.new_domain(1) for p in range(len(shape)) if p not in logical}
    axes = [logical.get(p) or ones[p] for p in range(len(shape))]
    domain = moved_domain([*root, *ones.values()], axes, exprs)
    return fusion.emit("reshape", args, fixed, [reads], x.dtype, domain, name)
