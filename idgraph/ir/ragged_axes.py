"""Ragged axes: rows of loaded length, one behind the other, which operations pass on, meet or refuse by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from idgraph.arith import Expr, and_, is_true, or_, simplify, symbol
from idgraph.errors import OperationError
from idgraph.ir.axis_read import Attr, AxisRead, Mapped
from idgraph.ir.dtypes import is_integer
from idgraph.ir.iter_domain import IterDomain, RaggedRows, TensorDomain
from idgraph.ir.op_table import POINTWISE, ROWS, SCANS, apply, moving, names
from idgraph.ir.protocols import L, OperationLike, TensorLike

_PASSED: Final = POINTWISE | moving("axes") | frozenset(names(kind="reduction"))
# Where they leave both axes of the rows as they are:
_BESIDE: Final = moving("places", "pieces", "picks") | SCANS | {"matmul"}
_WAYS_OUT = "ig.combine({0}) puts the rows behind one another, ig.pad_ragged({0}, value) gives all rows one length"
START: Final = symbol("ld1")
"""The loaded number at which a row begins, of the operations of `ROWS`: they load it from operand 1."""
LENGTH: Final = symbol("ld2")
"""The loaded number of its elements: from operand 2."""
COVERS: Final = "covers"  # attribute of the difference of offsets: the elements that rows cover, which a run checks


def check_offsets(offsets: TensorLike) -> None:
    """Raise unless a tensor can be the offsets of rows: one axis of two or more integers."""
    if not is_integer(offsets.dtype):
        raise OperationError(f"offsets {offsets.name} are {offsets.dtype}", hint="offsets are integers: ig.cast them")
    if offsets.ndim != 1:
        raise OperationError(f"offsets {offsets.name} have {offsets.ndim} axes, not one")
    if not is_true(offsets.axes[0].extent >= 2):
        raise OperationError(
            f"offsets {offsets.name} have {offsets.axes[0].extent} elements, maybe fewer than the two of one row",
            hint="offsets have one element more than there are rows; declare their symbol with min=2",
        )


def row_ends(offsets: L, extent: Expr) -> tuple[L, L]:
    """Where each row begins and how many elements it has, of rows that cover ``extent`` elements; the same two tensors
    for all who ask: ``offsets[:-1]`` and ``offsets[1:] - offsets[:-1]``, which tests the offsets when it runs.

    >>> import idgraph as ig
    >>> from idgraph.arith import as_expr
    >>> offsets = ig.Fusion("f").input("offsets", shape=(4,), dtype="int64")
    >>> row_ends(offsets, as_expr(9)) == row_ends(offsets, as_expr(9)), [t.shape for t in row_ends(offsets, as_expr(9))]
    (True, [(3,), (3,)])
    """
    count = offsets.axes[0].extent - 1

    def cut(start: int) -> L:
        attrs: dict[str, Attr] = {
            "dims": (0,),
            "starts": (start,),
            "stops": (_int_or_expr(count + start),),
            "steps": (1,),
        }
        return _built_once(offsets, "slice", (offsets,), attrs)

    starts, stops = cut(0), cut(1)
    return starts, _built_once(starts, "sub", (stops, starts), {COVERS: _int_or_expr(extent)})


def _int_or_expr(extent: Expr) -> int | Expr:
    found = simplify(extent)
    return int(found) if found.is_const else found


def _built_once(t: L, op: str, args: tuple[L, ...], attrs: dict[str, Attr]) -> L:
    """The output of this operation on ``t`` and others, that of before where there is one."""
    known = next((e for e in t.uses if e.op == op and e.attrs == attrs and tuple(e.inputs) == args), None)
    return apply(t.fusion, op, args, attrs) if known is None else cast("L", known.output)


def row_axes(e: OperationLike) -> tuple[IterDomain, IterDomain] | None:
    """(component, ragged): the axes of the output over which the loops of an operation on rows run; None of others.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> x, offsets = f.input("x", shape=(9,)), f.input("offsets", shape=(4,), dtype="int64")
    >>> u = ig.partition(x, 0, offsets)
    >>> row_axes(u.definition), row_axes(offsets.uses[0])
    ((I7[3], I8[offsets]), None)
    """
    dim = e.attrs.get("dim")
    if e.op not in ROWS or not isinstance(dim, int):
        return None
    axes = e.output.root if e.op == "combine" else e.output.logical
    return axes[dim], axes[dim + 1]


def row_bounds(component: Expr, count: Expr, extent: Expr, start: Expr, stop: Expr) -> tuple[Expr, Expr]:
    """Conditions on the loaded ends of row ``component`` of ``count`` rows that cover ``extent`` elements: offsets
    begin at 0, never fall, and end at the extent. Of the start, then of the stop.

    >>> from idgraph.arith import as_expr
    >>> [str(c) for c in row_bounds(symbol("i0", 0, 2), as_expr(3), as_expr(9), symbol("ld1"), symbol("ld0"))]
    ['((i0 > 0) | (ld1 == 0)) & (ld1 >= 0)', '((i0 < 2) | (ld0 == 9)) & (ld0 <= 9) & (ld1 <= ld0)']
    """
    first, last = component > 0, component < count - 1
    return and_(start >= 0, or_(first, start.eq(0))), and_(stop >= start, stop <= extent, or_(last, stop.eq(extent)))


def inherit_rows(
    op: str,
    inputs: Sequence[TensorLike],
    reads: Sequence[Sequence[AxisRead]],
    domain: TensorDomain,
    attrs: Mapping[str, Attr],
) -> None:
    """Give the axes of an operation's output the rows of the operands' axes that they are read at.

    Raises `OperationError` where an operation reads a ragged axis that is not defined on one, and where a ragged axis
    meets a plain one, or one of other offsets.
    """
    ragged = next((t for t in inputs if any(d.rows is not None for d in t.domain.logical)), None)
    if ragged is None or op in ("pad_ragged", "combine"):
        return
    dim = attrs.get("dim")
    along = domain.logical[dim] if op in SCANS and isinstance(dim, int) else None
    if op not in _PASSED and not (op in _BESIDE and _keeps_rows(inputs, reads, domain, along)):
        name = next(d.rows.offsets.name for d in ragged.domain.logical if d.rows is not None)
        raise OperationError(
            f"{ragged.name} has a ragged axis, with rows of {name}, and {op} takes plain axes",
            hint=_WAYS_OUT.format(ragged.name),
        )
    first: dict[IterDomain, tuple[TensorLike, IterDomain]] = {}
    for t, row in zip(inputs, reads, strict=True):
        image = {d: r.domain for d, r in zip(t.axes, row, strict=True) if isinstance(r, Mapped)}
        for d, to in image.items():
            if d.is_broadcast:
                continue
            mine = None if d.rows is None else _moved(op, t, d.rows, image)
            if mine is not None and to.kind == "reduction":
                raise OperationError(
                    f"{op} reduces the ragged axis of {t.name}, whose rows end at {mine.offsets.name}",
                    hint="a sum of products is: ig.sum(a * b, dim) of operands with axes for each other"
                    if op == "matmul"
                    else f"ig.{op}({t.name}, ...) reduces each row up to its end",
                )
            if to in first:
                _check_meeting((t, d, mine), (*first[to], to.rows))
            else:
                first[to], to.rows = (t, d), mine
            if mine is not None:  # of one row, or of one element in all, and still no broadcast
                to.resolve()
                mine.component.resolve()
    for d in domain.logical:
        if d.rows is not None and d.rows.component.kind == "reduction":
            raise OperationError(
                f"{op} reduces the component axis of {ragged.name}, and rows of {d.rows.offsets.name} do not lie "
                "element beside element",
                hint=_WAYS_OUT.format(ragged.name),
            )


def _keeps_rows(
    inputs: Sequence[TensorLike], reads: Sequence[Sequence[AxisRead]], domain: TensorDomain, along: IterDomain | None
) -> bool:
    """Whether the axes of rows, and those of their components, are axes of the output, element by element; not the one
    that is scanned, ``along``."""
    own = set(domain.root) & set(domain.logical) - {along}
    for t, row in zip(inputs, reads, strict=True):
        image = {d: r.domain for d, r in zip(t.axes, row, strict=True) if isinstance(r, Mapped)}
        for d in t.axes:
            if d.rows is not None and not {image.get(d), image.get(d.rows.component)} <= own:
                return False
    return True


def _moved(op: str, t: TensorLike, rows: RaggedRows, image: dict[IterDomain, IterDomain]) -> RaggedRows:
    component = image.get(rows.component)
    if component is None:
        raise OperationError(f"{op}: the component axis of {t.name} is gone", hint=_WAYS_OUT.format(t.name))
    return RaggedRows(rows.offsets, rows.starts, rows.lengths, component)


def _check_meeting(
    a: tuple[TensorLike, IterDomain, RaggedRows | None], b: tuple[TensorLike, IterDomain, RaggedRows | None]
) -> None:
    """Raise unless two axes that meet in one are both plain, or have the rows of one tensor of offsets."""
    (t, d, mine), (other, e, theirs) = a, b
    if mine is None and theirs is None:
        return
    if mine is not None and theirs is not None:
        if not mine.same_rows(theirs):
            raise OperationError(
                f"the ragged axis of {t.name} has the rows of {mine.offsets.name}, that of {other.name} those of "
                f"{theirs.offsets.name}: they are not the same axis",
                hint=f"two ragged axes are one if their offsets are one tensor; else pad both: "
                f"ig.pad_ragged({t.name}, 0) and ig.pad_ragged({other.name}, 0)",
            )
        if mine.component is not theirs.component:
            raise OperationError(f"the rows of {t.name} and of {other.name} lie along different axes of the result")
        return
    ragged, rows, plain, axis = (t, mine, other, e) if mine is not None else (other, theirs, t, d)
    assert rows is not None
    raise OperationError(
        f"the ragged axis of {ragged.name}, with rows of {rows.offsets.name}, meets an axis of {plain.name} that is "
        f"not ragged, of extent {axis.extent}",
        hint=f"pad the rows to one length: ig.pad_ragged({ragged.name}, 0); or partition {plain.name} by "
        f"{rows.offsets.name} too",
    )
