"""Places of axes in their tensors: names change when a fusion is built again, places do not."""

from __future__ import annotations

import re

from idgraph.errors import ScheduleError, user_line
from idgraph.ir.domains import DomainExpr, IterDomain
from idgraph.ir.protocols import TensorLike


def related(tensor: TensorLike) -> list[DomainExpr]:
    """The axis expressions of a tensor: its own, then the schedule's."""
    return [*tensor.domain.exprs, *tensor.domain.loop_exprs]


def axis_place(tensor: TensorLike, d: IterDomain) -> str:
    """The place of an axis in its tensor (``root0``, ``logical1``, ``made3.0``): names change, places do not."""
    for name, axes in (("root", tensor.root), ("logical", tensor.logical)):
        if d in axes:
            return f"{name}{axes.index(d)}"
    for n, e in enumerate(related(tensor)):
        for word, axes in (("made", e.outputs), ("read", e.inputs)):
            if d in axes:
                return f"{word}{n}.{axes.index(d)}"
    raise ScheduleError(f"{d.label} is not an axis of tensor {tensor.name}", where=user_line())


def axis_at(tensor: TensorLike, place: str) -> IterDomain | None:
    """The axis at a place that `axis_place` named; None where there is none."""
    found = re.fullmatch(r"(root|logical|made|read)(\d{1,6})(?:\.(\d))?", place)
    if found is None:
        return None
    word, n, part = found.group(1), int(found.group(2)), found.group(3)
    if word in ("root", "logical"):
        axes = tensor.root if word == "root" else tensor.logical
        return axes[n] if n < len(axes) and part is None else None
    exprs = related(tensor)
    if n >= len(exprs) or part is None:
        return None
    axes = exprs[n].outputs if word == "made" else exprs[n].inputs
    return axes[int(part)] if int(part) < len(axes) else None
