"""Memory with gaps: strides that are given to a tensor of a fusion."""

from __future__ import annotations

from collections.abc import Sequence

from idgraph.errors import ScheduleError, user_line
from idgraph.ir.domains import IterDomain


def checked_strides(
    name: str, domains: Sequence[IterDomain], flags: Sequence[bool], steps: Sequence[int]
) -> tuple[int, ...]:
    """Strides in elements, outermost first: as many as axes, and so large that no two elements share a place.

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
