"""The coordinates at which operations touch axes: two axes of one group must not be touched at two by one operation.

A coordinate is named by the axis of the operation's own output that runs over it; what is read at a constant or at a
loaded value has a name of its own. An axis of one element has coordinate 0 everywhere, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from idgraph.graphs.forms import own_domains, own_exprs
from idgraph.ir import SCATTERS, IterDomain, Mapped, TensorExpr, tensor_of
from idgraph.ir.domains import is_one

At = IterDomain | tuple[int, int]  # an own axis, or a place that is read otherwise: operand and axis
Touched = dict[TensorExpr, frozenset[At]]


def coordinate_uses(d: IterDomain) -> Touched:
    """Every operation that touches an axis, the one that makes its tensor and those that read it, and where."""
    found: Touched = {}
    t = tensor_of(d)
    if t is None or is_one(d.extent):
        return found
    if t.definition is not None:
        found[t.definition] = frozenset((d,))
    axes = t.axes
    if d in axes:
        p = axes.index(d)
        for e in dict.fromkeys(t.uses):
            found[e] = frozenset(_read_at(e, k, p) for k, x in enumerate(e.inputs) if x is t)
    return found


def _read_at(e: TensorExpr, k: int, p: int) -> At:
    read = e.reads[k][p]
    if isinstance(read, Mapped):
        return read.domain
    # A scatter reads the elements that it updates where it writes them.
    return e.output.logical[p] if e.op in SCATTERS and k == 0 else (k, p)


def axes_used_by(e: TensorExpr) -> Iterator[tuple[IterDomain, At]]:
    """The axes that an operation touches, each with its coordinate."""
    for d in own_domains(e.output):
        if not is_one(d.extent):
            yield d, d
    for k, t in enumerate(e.inputs):
        for p, d in enumerate(t.axes):
            if not is_one(d.extent):
                yield d, _read_at(e, k, p)


def has_conflicting_coordinates(
    e: TensorExpr, mine: frozenset[At], theirs: frozenset[At], is_there: Callable[[IterDomain], bool]
) -> bool:
    """True where an operation touches one group at coordinates that nothing else keeps equal.

    Where one of two own axes is made of the other and that other ``is_there`` too, the group is on a cycle, which is
    judged instead. The parts of a concatenated axis are never touched at one point.
    """
    return any(a is not b and a != b and not _related(e, a, b, is_there) for a in mine for b in theirs)


def _related(e: TensorExpr, a: At, b: At, is_there: Callable[[IterDomain], bool]) -> bool:
    if isinstance(a, tuple) or isinstance(b, tuple):
        return False
    pairs = ((a, b), (b, a))
    return any(_made_of(e, x, y) and is_there(x) for x, y in pairs) or bool(_parts(e, a) & _parts(e, b))


def _made_of(e: TensorExpr, a: IterDomain, b: IterDomain) -> bool:
    found = {a}
    for x in own_exprs(e.output):
        if any(d in found for d in x.inputs):
            found.update(x.outputs)
    return b in found


def _parts(e: TensorExpr, d: IterDomain) -> set[IterDomain]:
    """Concatenated axes that an axis is an operand's part of."""
    return {x.outputs[0] for x in e.output.domain.exprs if x.inputs[0] is d and len(x.outputs[0].definitions) > 1}
