"""Checks of loaded indices that failed, as kernels report them and as the user reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from idgraph.arith import Expr
from idgraph.codegen.printers.scalar import site_numbers
from idgraph.errors import IndexingError
from idgraph.kernel.ir import CheckSite, Kernel


def fault_size(kernel: Kernel) -> int:
    """Number, value and loop variables of a failed check."""
    return 2 + max((len(s.site.loops) for s in site_numbers(kernel)), default=0)


def raise_fault(kernel: Kernel, fault: Any, env: Mapping[str, int]) -> NoReturn:
    """The error of a kernel's failed check."""
    site = site_numbers(kernel)[int(fault[0]) - 1].site
    raise out_of_range(site, int(fault[1]), [int(v) for v in fault[2:]], env)


def out_of_range(site: CheckSite, value: int, point: list[int], env: Mapping[str, int] | None) -> IndexingError:
    """A loaded index is outside the axis it indexes."""
    at = ", ".join(f"{name}={v}" for name, v in zip(site.loops, point, strict=False))
    extent: Expr | int = site.extent if env is None else int(site.extent.evaluate(env))
    return IndexingError(
        f"index {value} loaded from {site.index} is outside axis {site.axis} of {site.tensor}, of extent {extent}",
        where=site.line,
        because=[f"in {site.expr} at {at or 'its only point'}"],
        hint=f"indices run from 0 to {extent} - 1; negative ones do not count from the end",
    )
