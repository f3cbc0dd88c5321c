"""Checks of loaded indices that failed, as kernels report them and as the user reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy.typing as npt

from idgraph.arith import Expr
from idgraph.emit.plan import Kernel, Site
from idgraph.emit.printers.scalar import site_numbers
from idgraph.errors import IndexingError
from idgraph.ir import Tensor, is_integer

Array = npt.NDArray[Any]


def index_title(t: Tensor) -> str:
    """An index tensor as the user knows it: with the inputs that a computed one is made of.

    >>> import idgraph as ig
    >>> f = ig.Fusion("f")
    >>> i = f.input("i", shape=(4,), dtype="int64")
    >>> index_title(i), index_title(i + 1)
    ('i', 't1 (made of i)')
    """
    seen, open_ = {t}, [t]
    while open_:
        e = open_.pop().definition
        fresh = [x for x in e.inputs if x not in seen] if e is not None else []
        seen.update(fresh)
        open_ += fresh
    given = [x.name for x in t.fusion.inputs if x in seen and is_integer(x.dtype) and x is not t]
    if not given:
        return t.name
    e = t.definition
    moved = e is not None and e.op == "where" and e.args[-1] == -1  # see `idgraph.schedule.pushed`
    return f"{t.name} (made of {', '.join(given)}{'; -1 where that is out of range' if moved else ''})"


def fault_size(kernel: Kernel) -> int:
    """Number, value and loop variables of a failed check."""
    return 2 + max((len(s.site.loops) for s in site_numbers(kernel)), default=0)


def raise_fault(kernel: Kernel, fault: Array, env: Mapping[str, int]) -> NoReturn:
    """The error of a kernel's failed check."""
    site = site_numbers(kernel)[int(fault[0]) - 1].site
    raise out_of_range(site, int(fault[1]), [int(v) for v in fault[2:]], env)


def out_of_range(site: Site, value: int, point: list[int], env: Mapping[str, int] | None) -> IndexingError:
    """A loaded index is outside the axis it indexes."""
    at = ", ".join(f"{name}={v}" for name, v in zip(site.loops, point, strict=False))
    extent: Expr | int = site.extent if env is None else int(site.extent.evaluate(env))
    return IndexingError(
        f"index {value} loaded from {site.index} is outside axis {site.axis} of {site.tensor}, of extent {extent}",
        where=site.line,
        because=[f"in {site.expr} at {at or 'its only point'}"],
        hint=f"indices run from 0 to {extent} - 1; negative ones do not count from the end",
    )
